"""A reconciliation -> its text: the verdict, the bridge, its subgraphs, and what nothing explains."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.model import label
from analyzer.reconciliation import Line, Reconciliation
from analyzer.render.options import RenderOptions
from analyzer.render.sentences.bridge import tell_balance, tell_extent, tell_factory, tell_sides, tell_wiring
from analyzer.render.text.groups import show_groups
from analyzer.render.text.tables import make_table, show_findings, show_name
from analyzer.report import ExportReport, ReconcileReport
from analyzer.units import (
    format_count,
    format_error,
    format_many,
    format_others,
    format_shape,
    format_signed,
    printable,
)

__all__ = ["show_export", "show_reconciliation"]


def show_export(report: ExportReport, options: RenderOptions) -> list[RenderableType]:
    """The files that were written, and their reconciliation."""
    files = [Text(f"wrote {printable(path)}") for path in report.files]
    return [*files, Text(""), *show_reconciliation(report.reconcile, options)]


def show_reconciliation(report: ReconcileReport, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text, from top to bottom."""
    result = report.reconciliation
    parts: list[RenderableType] = [_verdict(result), Text(""), _bridge(result), Text("")]
    parts += show_groups(report.grouping, result.in_pytorch_terms(), options, is_pytorch=True)
    if options.verbose or not options.rows:
        parts += [Text(""), _parameters(result)]
    if result.evaluated:
        parts += [Text(""), _evaluated(result, options.rows)]
    if result.nearest:
        parts += [Text(""), _nearest(result, options.rows)]
    return parts + show_findings(report.findings, options)


def _verdict(result: Reconciliation) -> Text:
    style = "bold green" if result.balanced else "bold red"
    told = "".join(f"\n{told}" for told in tell_factory(result))
    rest = "; ".join(filter(None, (tell_extent(result), tell_wiring(result.reads, result.differs_from))))
    return Text.assemble(f"{tell_sides(result)}\n", (tell_balance(result), style), f"; {rest}{told}")


def _bridge(result: Reconciliation) -> Table:
    table = make_table("bridge", "tensors", "elements", "parameters", "stored")
    start = format_count(result.manifest.numel)
    table.add_row("PyTorch", format_count(len(result.manifest.parameters)), start, start, start, style="bold")
    table.add_section()
    for row in result.bridge:
        if row.tensors or row.line is Line.UNEXPLAINED:
            table.add_row(
                row.line.value,
                format_count(row.tensors),
                format_count(row.elements),
                format_signed(row.parameter_delta),
                format_signed(row.stored_delta),
            )
    table.add_section()
    stored = result.ledger.stored_elements
    table.add_row(
        "ONNX",
        format_count(len(result.ledger.entries)),
        format_count(stored),
        format_count(result.onnx_parameters),
        format_count(stored),
        style="bold",
    )
    return table


def _parameters(result: Reconciliation) -> Table:
    table = make_table("parameter", "line", "elements", "error", "decided by")
    numels = {parameter.name: parameter.numel for parameter in result.manifest.parameters}
    for settled in result.parameters:
        table.add_row(
            show_name(settled.name),
            settled.line.value,
            format_count(numels[settled.name]),
            format_error(settled.max_abs_error),
            printable(settled.decided_by),
        )
    return table


def _evaluated(result: Reconciliation, rows: int) -> Text:
    """Each stored tensor that PyTorch's program computes of no input, with what it computes: two lines each."""
    text = Text("computed in advance, by PyTorch's own program:", style="bold")
    shapes = {entry.tensor.key: entry.tensor.shape for entry in result.ledger.entries}
    shown = result.evaluated[: rows or None]
    for line in shown:
        name = show_name(label(line.key)).plain
        text.append(f"\n  {name} {format_shape(shapes[line.key])}", style="not bold")
        text.append(f"\n    {show_name(line.expression or '').plain}", style="not bold")
    if len(shown) < len(result.evaluated):
        text.append(f"\n  {format_others(len(result.evaluated) - len(shown))}", style="not bold")
    return text


def _nearest(result: Reconciliation, rows: int) -> Text:
    """What each unexplained tensor is most like, two lines each."""
    text = Text("nothing explains, and what is nearest to it:", style="bold")
    tensors = {entry.tensor.key: entry.tensor for entry in result.ledger.entries}
    shown = result.nearest[: rows or None]
    for nearest in shown:
        name = show_name(label(nearest.key)).plain
        text.append(f"\n  {name} {format_shape(tensors[nearest.key].shape)}", style="not bold")
        equal = f"{format_count(nearest.equal)} of {format_many(nearest.compared, 'element')} equal"
        error = "" if nearest.max_abs_error is None else f", off by {format_error(nearest.max_abs_error)}"
        text.append(f"\n    {show_name(nearest.name).plain}: {equal}{error}", style="not bold")
    if len(shown) < len(result.nearest):
        text.append(f"\n  {format_others(len(result.nearest) - len(shown))}", style="not bold")
    return text
