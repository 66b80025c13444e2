"""ReconcileReport, or ExportReport -> blocks: whether it balances, the bridge, and behind folds everything else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.model import label
from analyzer.reconciliation import Line as BridgeLine
from analyzer.reconciliation import ParameterLine, Reconciliation
from analyzer.render.markdown.parts import (
    columns,
    cut,
    others,
    show_findings,
    show_group_table,
    text_row,
)
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Block, Code, Fold, Heading, Items, Line, Piece, Row, Table
from analyzer.render.sentences.bridge import tell_balance, tell_extent, tell_factory, tell_sides, tell_wiring
from analyzer.report import ExportReport, ReconcileReport
from analyzer.units import format_count, format_error, format_many, format_shape, format_signed

__all__ = ["show_export", "show_reconciliation"]


def show_export(report: ExportReport, options: RenderOptions) -> Iterator[Block]:
    """As of `reconcile`, and what was written."""
    yield from show_reconciliation(report.reconcile, options)
    shown, left = cut(report.files, options.rows)
    files: list[tuple[Piece, ...]] = [(Code(path),) for path in shown]
    files += [(others(left),)] if left else []
    yield Fold(f"Wrote {format_many(len(report.files), 'file')}", (Items(tuple(files)),))


def show_reconciliation(report: ReconcileReport, options: RenderOptions) -> Iterator[Block]:
    """From top to bottom; the first line answers."""
    result, rows = report.reconciliation, options.rows
    balance = "balanced" if result.balanced else "DOES NOT BALANCE"
    counts = (
        f"{format_many(result.manifest.numel, 'parameter')} in PyTorch, "
        f"{format_count(result.onnx_parameters)} in ONNX"
    )
    yield Heading((f"{balance}: {counts}",))
    yield Line((tell_sides(result),))
    wiring = tell_wiring(result.reads, result.differs_from)
    yield Line(("; ".join(filter(None, (tell_balance(result), tell_extent(result), wiring))),))
    for told in tell_factory(result):
        yield Line((told,))
    yield _bridge(result)
    yield Fold(
        "Groups", tuple(show_group_table(report.grouping, result.onnx_parameters, rows, is_pytorch=True))
    )
    settled = [
        each for each in result.parameters if each.line not in (BridgeLine.IDENTICAL, BridgeLine.NAMED)
    ]
    if settled:
        title = f"{format_many(len(settled), 'parameter')} not stored as PyTorch has them"
        yield Fold(title, (_parameters(settled, result, rows),))
    if result.evaluated:
        yield Fold("Computed in advance, by PyTorch's own program", (_evaluated(result, rows),))
    if result.nearest:
        yield Fold("What nothing explains, and what is nearest to it", (_nearest(result, rows),))
    yield from show_findings(report.findings, rows)


def _bridge(result: Reconciliation) -> Table:
    """From PyTorch to ONNX: the first row and the lines sum to the last."""
    start, stored = format_count(result.manifest.numel), result.ledger.stored_elements
    tensors = format_count(len(result.manifest.parameters))
    rows = [text_row("PyTorch", tensors, start, start, start)]
    rows += [
        text_row(
            row.line.value,
            format_count(row.tensors),
            format_count(row.elements),
            format_signed(row.parameter_delta),
            format_signed(row.stored_delta),
        )
        for row in result.bridge
        if row.tensors or row.line is BridgeLine.UNEXPLAINED
    ]
    tensors = format_count(len(result.ledger.entries))
    counts = (format_count(stored), format_count(result.onnx_parameters), format_count(stored))
    rows.append(text_row("ONNX", tensors, *counts, is_total=True))
    return Table(columns("bridge", "tensors", "elements", "parameters", "stored"), tuple(rows))


def _parameters(settled: Sequence[ParameterLine], result: Reconciliation, limit: int) -> Table:
    numels = {parameter.name: parameter.numel for parameter in result.manifest.parameters}
    shown, left = cut(settled, limit)
    rows = [_parameter(each, format_count(numels[each.name])) for each in shown]
    if left:
        rows.append(Row(((others(left),), (), (), (format_count(sum(numels[e.name] for e in left)),), ())))
    total = format_count(sum(numels[each.name] for each in settled))
    rows.append(Row((("total",), (), (), (total,), ()), is_total=True))
    return Table(columns("parameter", "line", "decided by", "elements", "error", words=3), tuple(rows))


def _parameter(settled: ParameterLine, elements: str) -> Row:
    error = format_error(settled.max_abs_error)
    return Row(
        ((Code(settled.name),), (settled.line.value,), (Code(settled.decided_by),), (elements,), (error,))
    )


def _evaluated(result: Reconciliation, limit: int) -> Table:
    """Each stored tensor that PyTorch's program computes of no input, with what it computes."""
    shapes = {entry.tensor.key: entry.tensor.shape for entry in result.ledger.entries}
    shown, left = cut(result.evaluated, limit)
    rows = [
        Row(((Code(label(each.key)),), (format_shape(shapes[each.key]),), (Code(each.expression or ""),)))
        for each in shown
    ]
    if left:
        rows.append(Row(((others(left),), (), ())))
    return Table(columns("tensor", "shape", "expression", words=3), tuple(rows))


def _nearest(result: Reconciliation, limit: int) -> Table:
    """What each unexplained tensor is most like."""
    tensors = {entry.tensor.key: entry.tensor for entry in result.ledger.entries}
    shown, left = cut(result.nearest, limit)
    rows = [
        Row(
            (
                (Code(label(each.key)),),
                (format_shape(tensors[each.key].shape),),
                (Code(each.name),),
                (f"{format_count(each.equal)} of {format_count(each.compared)}",),
                (format_error(each.max_abs_error),),
            )
        )
        for each in shown
    ]
    if left:
        rows.append(Row(((others(left),), (), (), (), ())))
    titles = ("tensor", "shape", "nearest", "elements equal", "off by")
    return Table(columns(*titles, words=3), tuple(rows))
