"""A recovery -> what was written, what lost bits on the way, and what the file does not hold, each with its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.reconciliation import Line
from analyzer.recover import Recovery, StateTensor
from analyzer.render.options import RenderOptions
from analyzer.render.sentences.recover import list_reasons, tell_source
from analyzer.render.text.tables import make_table, show_name
from analyzer.report import RecoverReport
from analyzer.units import (
    format_bytes,
    format_count,
    format_error,
    format_many,
    format_others,
    printable,
)

__all__ = ["show_recovery"]


def show_recovery(report: RecoverReport, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text, from top to bottom."""
    recovery = report.recovery
    parts: list[RenderableType] = [Text(tell_source(recovery)), _verdict(report), Text("")]
    parts.append(_lines(recovery))
    if options.verbose or not options.rows:
        parts += [Text(""), _tensors(recovery)]
    return parts + _listed(list_reasons(recovery), options)


def _verdict(report: RecoverReport) -> Text:
    recovery = report.recovery
    of = len(recovery.tensors) + len(recovery.lost) + len(recovery.unnamed)
    head = "recovered" if recovery.is_whole else "NOT ALL RECOVERED"
    text = Text(head, style="bold green" if recovery.is_whole else "bold red")
    numbers = f"{format_count(len(recovery.tensors))} of {format_many(of, 'tensor')}"
    numbers += f", {format_many(recovery.numel, 'element')}, {format_bytes(recovery.nbytes)}"
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


def _listed(reasons: Mapping[str, Sequence[str]], options: RenderOptions) -> list[RenderableType]:
    """Each reason, and below it the tensors that it is about."""
    parts: list[RenderableType] = []
    for reason, names in reasons.items():
        shown = names[: options.rows] if options.rows else names
        parts += [Text(""), Text(printable(reason), style="bold")]
        parts += [Text("  ").append_text(show_name(name)) for name in shown]
        if len(names) > len(shown):
            parts.append(Text(f"  {format_others(len(names) - len(shown))}"))
    return parts
