"""`onnxledger graph`: a model as a graph, whole or collapsed, as a picture or for other graph tools."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from analyzer.commands.help import command, complete_files
from analyzer.commands.options import GroupOptions, Output, OutputFiles, ReadOptions, bounding, grouping_nodes
from analyzer.commands.run import (
    Run,
    check_artifact,
    check_folders,
    list_inputs,
    print_text,
    refuse_inputs,
    search_clock,
    write_files,
)
from analyzer.commands.terminal import is_terminal
from analyzer.errors import UsageError
from analyzer.formats.graph import FORMATS, PICTURES, SUFFIXES
from analyzer.process import load_numpy, uncollected
from analyzer.records import Frozen

if TYPE_CHECKING:  # these need networkx and numpy, and `--help` does not
    from analyzer.account.group.keys import Labels
    from analyzer.account.ledger import Ledger
    from analyzer.formats.graph.picture import Mark
    from analyzer.reports import GraphMetric, GraphReport

_METRICS = ("parameters", "stored-elements", "bytes")


class _GraphOptions(Frozen):
    """Options for the content of the graph; None: pictures are folded and omit groups without parameters."""

    collapse: bool
    fold: bool | None
    learned: bool | None
    metric: GraphMetric
    grouped: GroupOptions

    def collapses(self, style: str) -> bool:
        return self.collapse or style in PICTURES

    def check(self, styles: Sequence[str]) -> None:
        """Refuse contradictory options before any work.

        Raises:
            UsageError: an option for collapsed graphs is given without one, or groups would share a tensor.
        """
        grouped = self.grouped
        grouped.check(of_nodes=True)
        options = {
            "--by": grouped.by,
            "--depth": grouped.depth,
            "--group": grouped.groups or None,
            "--preset": grouped.preset,
            "--fold": self.fold,
            "--learned": self.learned,
        }
        given_options = [option for option, value in options.items() if value is not None]
        if given_options and not any(map(self.collapses, styles)):
            raise UsageError(
                f"{given_options[0]}: applies only to a collapsed graph; add --collapse, or write .svg or .png"
            )
        if grouped.match == "all":
            raise UsageError(
                "--match all: a graph shows everything once, in the first group that matches; leave --match out"
            )


@command(
    "graph",
    examples=(
        "onnxledger graph model.onnx -o model.svg",
        "onnxledger graph model.onnx --by block -o blocks.dot --collapse",
        "onnxledger graph model.onnx -o model.graphml",
    ),
)
@click.argument("model", shell_complete=complete_files)
@click.option(
    "-o",
    "outputs",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="PATH",
    help=f"Write to PATH; the suffix selects the format: {', '.join(SUFFIXES)}. Repeatable.  [stdout]",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(list(FORMATS)),
    help="Write in this format if no suffix selects one.  [dot]",
)
@click.option("--collapse", is_flag=True, help="Draw one vertex for each group; pictures always do.")
@grouping_nodes
@click.option(
    "--fold/--no-fold",
    default=None,
    help="Draw numbered groups with the same content as one.  [pictures: yes]",
)
@click.option(
    "--learned/--all",
    default=None,
    help="Leave out groups without parameters, and join their neighbours.  [pictures: yes]",
)
@click.option(
    "--metric",
    type=click.Choice(_METRICS),
    default=_METRICS[0],
    help="Show this number for each node in Model Explorer.  [parameters]",
)
@click.option(
    "--mark",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="REPORT",
    help="Mark the first difference in a saved report of verify.",
)
@bounding
@click.option("--quiet", is_flag=True, help="Print no progress and no messages.")
@click.option("--verbose", "-v", is_flag=True, help="Print the traceback of an error, if it has one.")
def graph(
    model: str,
    outputs: tuple[Path, ...],
    style: str | None,
    collapse: bool,
    grouped: GroupOptions,
    fold: bool | None,
    learned: bool | None,
    metric: str,
    mark: Path | None,
    bounded: ReadOptions,
    quiet: bool,
    verbose: bool,
) -> None:
    """What does the graph of MODEL look like? Draw it, or write it for other tools.

    The whole graph has a vertex for each node, stored tensor, input and output;
    with --collapse, and in a picture, one for each group.
    """
    load_numpy()
    options = _GraphOptions(collapse, fold, learned, cast("GraphMetric", metric.replace("-", "_")), grouped)
    styles = [_style_of(path, style) for path in outputs] or [style or "dot"]
    options.check(styles)
    if not outputs and styles[0] != "json" and is_terminal(sys.stdout):
        raise UsageError(
            "a terminal cannot show a graph: name a file with -o model.svg or -o model.png, or pipe the text, as in "
            "onnxledger graph MODEL --collapse | dot -Tpdf -o model.pdf"
        )
    if mark is not None and not {*styles} <= {*PICTURES}:
        raise UsageError("--mark: only pictures show it; write .svg or .png, and nothing else")
    check_artifact(bounded, [model])
    check_folders(outputs)
    refuse_inputs(outputs, [*list_inputs(model), *([mark] if mark is not None else [])])
    place = None if mark is None else _read_mark(mark)
    run = Run(Output("", 0, quiet, verbose), OutputFiles())
    with uncollected():
        ledger = run.audit(model, bounded)
        refuse_inputs(outputs, ledger.model.paths)
        texts = _render(ledger, styles, options, place)
    if not outputs:
        print_text(texts[0])
        return
    write_files(list(zip(outputs, texts, strict=True)))
    run.notify(f"written to {', '.join(map(str, outputs))}")


def _style_of(path: Path, style: str | None) -> str:
    """Return the format of a file.

    Raises:
        UsageError: its suffix stands for no format, or for another than `--format`.
    """
    by_suffix = SUFFIXES.get(path.suffix)
    if by_suffix is None and style is None:
        known = ", ".join(SUFFIXES)
        raise UsageError(
            f"-o {path}: no format for the suffix {path.suffix!r}; use one of {known}, or --format"
        )
    if (
        style is None
        or by_suffix is None
        or style == by_suffix
        or (style, by_suffix) == ("model-explorer", "json")
    ):
        return style or by_suffix or ""
    raise UsageError(f"-o {path}: its suffix selects {by_suffix}, --format {style}; leave one of them out")


def _read_mark(path: Path) -> Mark:
    """Return the first difference in a saved report of `verify`, as a mark in a picture.

    Raises:
        UsageError: it is no report of `verify`, or has no first difference.
    """
    from analyzer.documents.saved import read_report
    from analyzer.formats.graph.picture import Mark

    first = read_report(path, "verify").get("first")
    if not isinstance(first, dict):
        raise UsageError(f"--mark {path}: the report has no first difference")
    try:
        return Mark(first["node"], first["module"] or "", first["reason"])
    except KeyError as error:
        raise UsageError(f"--mark {path}: its `first` lacks {error}; write it again with verify -o") from None


def _render(
    ledger: Ledger, styles: Sequence[str], options: _GraphOptions, mark: Mark | None
) -> list[str | bytes]:
    return [FORMATS[style](_draw(ledger, style, options, mark)) for style in styles]


def _draw(ledger: Ledger, style: str, options: _GraphOptions, mark: Mark | None) -> GraphReport:
    from analyzer.graph import build_graph
    from analyzer.graph.collapse import collapse_graph
    from analyzer.reports import GraphReport

    if not options.collapses(style):
        return GraphReport(build_graph(ledger), options.metric)
    is_picture = style in PICTURES
    fold = is_picture if options.fold is None else options.fold
    learned = is_picture if options.learned is None else options.learned
    labels = _label(ledger, options.grouped, is_picture=is_picture)
    if not is_picture:
        return GraphReport(collapse_graph(ledger, labels, fold=fold, learned=learned))
    from analyzer.formats.graph.picture import draw_groups

    return GraphReport(draw_groups(ledger, labels, fold=fold, learned=learned, mark=mark))


def _label(ledger: Ledger, grouped: GroupOptions, *, is_picture: bool) -> Labels:
    from analyzer.account.group.keys import ACCOUNTS, choose_key, label_members
    from analyzer.graph.collapse import label_own

    own = grouped.own_groups(ledger)
    if own is not None:
        with search_clock(own.origin):
            return label_own(ledger, own.patterns)
    if grouped.by == ACCOUNTS:
        raise UsageError(f"--by {ACCOUNTS}: cannot group nodes; use scope, block, stage or op")
    if is_picture:
        from analyzer.formats.graph.picture import label_picture

        return label_picture(ledger, grouped.by, grouped.depth)
    return label_members(ledger, grouped.by or choose_key(ledger), grouped.depth)
