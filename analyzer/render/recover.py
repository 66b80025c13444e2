"""A recovery -> what was written, what lost bits on the way, and what the file does not hold, each with its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.model import label
from analyzer.reconcile import Line
from analyzer.recover import Recovery, StateTensor
from analyzer.render.options import RenderOptions
from analyzer.render.tables import make_table, show_name
from analyzer.render.units import format_bytes, format_count, format_error, printable
from analyzer.report import RecoverReport

__all__ = ["show_recovery"]


def show_recovery(report: RecoverReport, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text, from top to bottom."""
    recovery = report.recovery
    parts: list[RenderableType] = [_source(recovery), _verdict(report), Text("")]
    parts.append(_lines(recovery))
    if options.verbose or not options.rows:
        parts += [Text(""), _tensors(recovery)]
    reasons = {t.name: f"not every bit: {t.loss}" for t in recovery.lossy}
    parts += _listed(((reasons[t.name], t.name) for t in recovery.lossy), options)
    differing = [t.name for t in recovery.tensors if t.line is Line.DIFFERING]
    parts += _listed(((_DIFFERING, name) for name in differing), options)
    parts += _listed(((_GUESSED, name) for name in recovery.guessed), options)
    parts += _listed(((f"not recovered: {lost.reason}", lost.name) for lost in recovery.lost), options)
    unnamed = ((f"without a name: {found.reason}", label(found.key)) for found in recovery.unnamed)
    return parts + _listed(unnamed, options)


_DIFFERING = "other values than PyTorch has: the file's were taken"
_GUESSED = "square, and nothing that was compared tells it from its transpose"


def _source(recovery: Recovery) -> Text:
    result = recovery.reconciliation
    source = result.manifest.source
    names = ", ".join(value for key in ("class", "source", "weights") if (value := source.get(key)))
    compared = {
        "none": "values not compared",
        "sampled": "values compared at fixed positions",
        "full": "whole values compared",
    }[result.content]
    against = f" with the names of {names}" if names else ""
    return Text(printable(f"{result.ledger.model.path}{against}; {compared}"))


def _verdict(report: RecoverReport) -> Text:
    recovery = report.recovery
    of = len(recovery.tensors) + len(recovery.lost)
    head = "recovered" if recovery.is_whole else "NOT ALL RECOVERED"
    text = Text(head, style="bold green" if recovery.is_whole else "bold red")
    numbers = f"{format_count(len(recovery.tensors))} of {format_count(of)} tensors"
    numbers += f", {format_count(recovery.numel)} elements, {format_bytes(recovery.nbytes)}"
    text.append(f": {numbers}", style="not bold default")
    if report.output is not None:
        text.append(f"\nwritten to {printable(report.output)}", style="not bold default")
    elif report.lossless and recovery.lossy:
        text.append(f"\nNOT WRITTEN: {format_count(len(recovery.lossy))} lost bits", style="bold red")
    else:
        text.append("\nNOT WRITTEN: there is nothing to write", style="bold red")
    return text


def _lines(recovery: Recovery) -> Table:
    by_line: dict[Line, list[StateTensor]] = defaultdict(list)
    for tensor in recovery.tensors:
        by_line[tensor.line].append(tensor)
    table = make_table("recovered from", "tensors", "elements", "bytes", "lossy")
    for line in Line:
        if by_line[line]:
            table.add_row(line.value, *_sums(by_line[line]))
    table.add_section()
    table.add_row("total", *_sums(recovery.tensors), style="bold")
    return table


def _sums(tensors: Sequence[StateTensor]) -> list[str]:
    return [
        format_count(len(tensors)),
        format_count(sum(tensor.numel for tensor in tensors)),
        format_bytes(sum(tensor.nbytes for tensor in tensors)),
        format_count(sum(tensor.loss is not None for tensor in tensors)),
    ]


def _tensors(recovery: Recovery) -> Table:
    table = make_table("tensor", "line", "elements", "error", "decided by")
    for tensor in recovery.tensors:
        table.add_row(
            show_name(tensor.name),
            tensor.line.value,
            format_count(tensor.numel),
            format_error(tensor.max_abs_error),
            printable(tensor.decided_by),
        )
    return table


def _listed(pairs: Iterable[tuple[str, str]], options: RenderOptions) -> list[RenderableType]:
    """Each reason, and below it the tensors that it is about."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for reason, name in pairs:
        by_reason[reason].append(name)
    parts: list[RenderableType] = []
    for reason, names in by_reason.items():
        shown = names[: options.rows] if options.rows else names
        parts += [Text(""), Text(printable(reason), style="bold")]
        parts += [Text("  ").append_text(show_name(name)) for name in shown]
        if len(names) > len(shown):
            parts.append(Text(f"  [{format_count(len(names) - len(shown))} others]"))
    return parts
