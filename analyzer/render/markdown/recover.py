"""RecoverReport -> blocks: what the state dict got, and behind folds what it did not get, with the reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from analyzer.reconciliation import Line as BridgeLine
from analyzer.recover import Recovery, StateTensor
from analyzer.render.markdown.parts import columns, cut, list_names, others, text_row
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Block, Code, Fold, Heading, Items, Line, Row, Table
from analyzer.render.sentences.recover import list_reasons, tell_source
from analyzer.report import RecoverReport
from analyzer.units import format_bytes, format_count, format_error, format_many

__all__ = ["show_recovery"]


def show_recovery(report: RecoverReport, options: RenderOptions) -> Iterator[Block]:
    """From top to bottom; the first line answers."""
    recovery = report.recovery
    of = len(recovery.tensors) + len(recovery.lost) + len(recovery.unnamed)
    head = "recovered" if recovery.is_whole else "NOT ALL RECOVERED"
    counts = f"{format_count(len(recovery.tensors))} of {format_many(of, 'tensor')}"
    yield Heading((f"{head}: {counts}, {format_bytes(recovery.nbytes)}",))
    yield Line((tell_source(recovery),))
    yield _written(report)
    yield _lines(recovery)
    yield from _reasons(list_reasons(recovery), options.rows)
    if recovery.tensors:
        yield Fold(
            f"{format_many(len(recovery.tensors), 'tensor')} of the state dict",
            (_tensors(recovery.tensors, options.rows),),
        )


def _written(report: RecoverReport) -> Line:
    if report.output is not None:
        return Line(("Written to ", Code(report.output)))
    lossy = report.recovery.lossy
    if report.lossless and lossy:
        return Line((f"NOT WRITTEN: {format_count(len(lossy))} lost bits",), is_strong=True)
    return Line(("NOT WRITTEN: there is nothing to write",), is_strong=True)


def _lines(recovery: Recovery) -> Table:
    """What was recovered, by the line of the bridge that it took."""
    by_line: dict[BridgeLine, list[StateTensor]] = defaultdict(list)
    for tensor in recovery.tensors:
        by_line[tensor.line].append(tensor)
    rows = [_sums(line.value, by_line[line]) for line in BridgeLine if by_line[line]]
    rows.append(_sums("total", recovery.tensors, is_total=True))
    return Table(columns("recovered from", "tensors", "elements", "bytes", "lossy"), tuple(rows))


def _sums(title: str, tensors: Sequence[StateTensor], *, is_total: bool = False) -> Row:
    return text_row(
        title,
        format_count(len(tensors)),
        format_count(sum(tensor.numel for tensor in tensors)),
        format_count(sum(tensor.nbytes for tensor in tensors)),
        format_count(sum(tensor.loss is not None for tensor in tensors)),
        is_total=is_total,
    )


def _reasons(reasons: Mapping[str, Sequence[str]], limit: int) -> Iterator[Block]:
    """Each reason with the tensors that it is about."""
    shown, left = cut(list(reasons), limit)
    items = [(f"{reason}: ", *list_names(reasons[reason], limit)) for reason in shown]
    if left:
        items.append((others(left),))
    if items:
        yield Items(tuple(items))


def _tensors(tensors: Sequence[StateTensor], limit: int) -> Table:
    shown, left = cut(tensors, limit)
    rows = [
        Row(
            (
                (Code(tensor.name),),
                (tensor.line.value,),
                (Code(tensor.decided_by),),
                (format_count(tensor.numel),),
                (format_error(tensor.max_abs_error),),
            )
        )
        for tensor in shown
    ]
    if left:
        rows.append(Row(((others(left),), (), (), (format_count(sum(t.numel for t in left)),), ())))
    total = format_count(sum(tensor.numel for tensor in tensors))
    rows.append(Row((("total",), (), (), (total,), ()), is_total=True))
    return Table(columns("tensor", "line", "decided by", "elements", "error", words=3), tuple(rows))
