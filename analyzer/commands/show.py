"""`onnxledger show`: saved reports in any of their formats, without their models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from analyzer.commands.help import command, complete_files
from analyzer.commands.options import Output, reporting
from analyzer.commands.run import check_folders, print_text, refuse_inputs, screen_options, write_files
from analyzer.errors import UsageError
from analyzer.process import load_numpy


@command(
    "show",
    examples=(
        "onnxledger show report.json",
        "onnxledger show report.json -o page.html -o report.md",
        "onnxledger show inspect.json time.json -o page.html",
    ),
)
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...", shell_complete=complete_files)
@click.option(
    "-o",
    "outputs",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="PATH",
    help="Write the report to PATH; the suffix selects the format. Repeatable.  [stdout]",
)
@reporting()
def show(reports: tuple[str, ...], outputs: tuple[Path, ...], output: Output) -> None:
    """Show saved reports again, without their models.

    REPORT is a JSON file that a command wrote. Several reports make one .html
    page with a section for each, under the title of the first. A report that is
    cut off, or contradicts itself, is refused with the path of the wrong key.
    """
    load_numpy()
    from analyzer.documents.saved import read_any_report
    from analyzer.formats import RenderOptions, render_saved

    check_folders(outputs)
    refuse_inputs(outputs, [Path(each) for each in reports])
    documents = tuple(map(read_any_report, reports))
    plain = RenderOptions(rows=output.rows, verbose=output.verbose)
    targets = [(path, _style_of(path, documents[0])) for path in outputs]
    write_files([(path, render_saved(*documents, style=style, options=plain)) for path, style in targets])
    if not outputs and not output.quiet:
        for document in documents:
            print_text(render_saved(document, style=output.style, options=screen_options(plain)))


def _style_of(path: Path, document: dict[str, Any]) -> str:
    """Return the format that the suffix of a path asks for.

    Raises:
        UsageError: this kind of report has no format with the suffix.
    """
    from analyzer.formats import FORMATS, find_saved_formats

    known = find_saved_formats(document)
    if path.suffix not in known:
        raise UsageError(
            f"-o {path}: no format for the suffix {path.suffix!r}; use one of {', '.join(known)}"
        )
    return next(name for name, each in FORMATS.items() if each is known[path.suffix])
