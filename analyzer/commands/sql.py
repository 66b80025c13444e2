"""`onnxledger sql`: questions to a lake, in SQL or ready-made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.commands.help import command, complete_files, complete_from
from analyzer.commands.options import parse_size
from analyzer.commands.run import check_folders, print_text, screen_options, write_files
from analyzer.commands.terminal import print_message
from analyzer.errors import UsageError

if TYPE_CHECKING:  # `--help` does not need this
    from analyzer.documents.answer import Answer


def _list_questions() -> list[str]:
    from analyzer.fleet.sql import load_questions

    return [*load_questions(), "list"]


@command(
    "sql",
    examples=(
        "onnxledger sql lake 'SELECT model, parameters FROM models ORDER BY 2 DESC'",
        "onnxledger sql lake --question duplicates",
        "onnxledger sql lake -o lake.html",
    ),
)
@click.argument("lake", metavar="LAKE", shell_complete=complete_files)
@click.argument("query", required=False, metavar="[QUERY]")
@click.option(
    "--question",
    metavar="NAME",
    shell_complete=complete_from(_list_questions),
    help="Ask a predefined question: duplicates, largest, growth, operators, ...; `list` lists them.",
)
@click.option(
    "--baseline", metavar="LAKE", help="Compare with an earlier lake, whose tables are old.models and so on."
)
@click.option("--memory", metavar="SIZE", help="Set the memory size for the question `fits`.  [8GiB]")
@click.option(
    "-n", "rows", type=click.IntRange(0), default=20, metavar="N", help="Show N rows; 0 shows all.  [20]"
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json", "markdown", "csv"]),
    default="text",
    help="Print the answer in this format.",
)
@click.option(
    "-o",
    "outputs",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="PATH",
    help="Also write the answer to PATH: .csv .html .json .md .parquet .txt. Repeatable.",
)
@click.option("--quiet", is_flag=True, help="Print no answer.")
@click.option("--verbose", "-v", is_flag=True, help="Print the traceback of an error, if it has one.")
def sql(
    lake: str,
    query: str | None,
    question: str | None,
    baseline: str | None,
    memory: str | None,
    rows: int,
    style: str,
    outputs: tuple[Path, ...],
    quiet: bool,
    verbose: bool,
) -> None:
    """Query the tables of a LAKE that survey has written.

    QUERY is one SELECT of DuckDB's SQL over the tables models, files, tensors,
    groups, operators and findings. It can read nothing else, and writes nothing.
    Without a QUERY, -o PAGE.html writes a page of the whole lake.
    """
    from analyzer.fleet.lake import open_lake
    from analyzer.fleet.sql import answer_question, ask_lake, list_questions
    from analyzer.formats import RenderOptions
    from analyzer.formats.lake import answer_as_text

    check_folders(outputs)
    is_page = bool(outputs) and all(path.suffix == ".html" for path in outputs)
    if query is None and question is None and is_page:
        _write_page(lake, outputs)
        return
    if (query is None) == (question is None):
        raise UsageError("QUERY: give one SELECT, or a --question; `--question list` lists them")
    for path in outputs:
        _check_suffix(path)
    opened = open_lake(lake)
    if not opened.is_complete:
        print_message(
            f"onnxledger: {lake}: no survey has finished it; the answer covers the models read so far"
        )
    variables = _variables(memory)
    if question == "list":
        answer = list_questions()
    elif question is not None:
        answer = answer_question(opened, question, earlier=baseline, variables=variables)
    else:
        answer = ask_lake(opened, query or "", earlier=baseline, variables=variables)
    write_files([(path, _content(answer, path.suffix, question or query or "")) for path in outputs])
    if not quiet:
        screen = screen_options(RenderOptions(rows=rows))
        print_text(
            answer_as_text(answer, rows, screen.width, ascii=screen.ascii)
            if style == "text"
            else _shown(answer, style, rows)
        )


def _write_page(lake: str, outputs: tuple[Path, ...]) -> None:
    from analyzer.fleet.sql import render_lake

    page = render_lake(lake)
    write_files([(path, page) for path in outputs])


def _variables(memory: str | None) -> dict[str, int | str]:
    return {} if memory is None else {"memory": parse_size("--memory", memory)}


_SUFFIXES = (".csv", ".html", ".json", ".md", ".parquet", ".txt")


def _check_suffix(path: Path) -> None:
    if path.suffix not in _SUFFIXES:
        raise UsageError(
            f"-o {path}: no format for the suffix {path.suffix!r}; use one of {', '.join(_SUFFIXES)}"
        )


def _shown(answer: Answer, style: str, rows: int) -> str:
    from analyzer.formats.lake import answer_as_csv, answer_as_json, answer_as_markdown, answer_as_text

    if style == "json":
        return answer_as_json(answer)
    if style == "csv":
        return answer_as_csv(answer)
    if style == "markdown":
        return answer_as_markdown(answer, rows)
    return answer_as_text(answer, rows)


def _content(answer: Answer, suffix: str, title: str) -> str | bytes:
    if suffix == ".html":
        from analyzer.formats import FORMATS

        FORMATS["html"].check()
        from analyzer.formats.lake import answer_as_html

        return answer_as_html(answer, title)
    from analyzer.fleet.sql import answer_as_parquet

    if suffix == ".parquet":
        return answer_as_parquet(answer)
    styles = {".csv": "csv", ".json": "json", ".md": "markdown", ".txt": "text"}
    return _shown(answer, styles[suffix], 0)
