"""Comparison -> blocks: the totals and groups side by side, and behind a fold the tensors that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.comparison import Comparison, GroupPair, Pair, Status, TensorPair
from analyzer.model import label
from analyzer.render.markdown.parts import columns, cut, name, others, show_sides, text_row
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Block, Cell, Code, Fold, Heading, Line, Piece, Row, Table
from analyzer.render.sentences.compare import list_notes, tell_changes
from analyzer.units import (
    format_bytes,
    format_count,
    format_many,
    format_ratio,
    format_signed,
    format_signed_bytes,
)

__all__ = ["show_comparison"]


def show_comparison(report: Comparison, options: RenderOptions) -> Iterator[Block]:
    """From top to bottom; the first line answers."""
    yield Heading(
        (
            f"{format_many(report.parameters.a, 'parameter')}, {format_bytes(report.file_nbytes.a)}, against "
            f"{format_many(report.parameters.b, 'parameter')}, {format_bytes(report.file_nbytes.b)}",
        )
    )
    yield from show_sides(report.a, report.b)
    yield _groups(report, options.rows)
    differing = [pair for pair in report.tensors if pair.status is not Status.UNCHANGED]
    if differing:
        yield Fold(
            f"{format_many(len(differing), 'tensor')} that differ", (_tensors(differing, options.rows),)
        )
    for sentence in tell_changes(report):
        yield Line((sentence,))


def _groups(report: Comparison, limit: int) -> Table:
    """Groups, the largest change first; they and what is in brackets sum to the total."""
    known = [pair for pair in report.groups if _is_something(pair)]
    shown, left = cut(known, limit)
    rows = [_group(name(pair.name), pair.status.value, pair.parameters, pair.nbytes) for pair in shown]
    if left:
        sums = (_sum([pair.parameters for pair in left]), _sum([pair.nbytes for pair in left]))
        rows.append(_group(others(left), "", *sums))
    if _is_something(report.ungrouped):
        rows.append(_group(report.ungrouped.name, "", report.ungrouped.parameters, report.ungrouped.nbytes))
    if _is_something(report.overlap):
        overlap = report.overlap
        rows.append(_group(overlap.name, "", _negative(overlap.parameters), _negative(overlap.nbytes)))
    rows.append(_group("total", "", report.parameters, report.stored_nbytes, is_total=True))
    files = report.file_nbytes
    rows.append(_group("on disk", "", None, files, is_total=True))
    titles = ("group", "", "parameters a", "b", "a - b", "a / b", "bytes a - b")
    return Table(columns(*titles, words=2), tuple(rows))


def _group(
    title: Piece, status: str, counts: Pair[int] | None, nbytes: Pair[int], *, is_total: bool = False
) -> Row:
    numbers = ("", "", "", "")
    if counts is not None:
        numbers = (
            format_count(counts.a),
            format_count(counts.b),
            format_signed(counts.difference),
            format_ratio(counts.ratio),
        )
    return text_row(title, status, *numbers, format_signed_bytes(nbytes.difference), is_total=is_total)


def _is_something(pair: GroupPair) -> bool:
    return any((pair.parameters.a, pair.parameters.b, pair.nbytes.a, pair.nbytes.b))


def _sum(pairs: Sequence[Pair[int]]) -> Pair[int]:
    return Pair(sum(pair.a for pair in pairs), sum(pair.b for pair in pairs))


def _negative(pair: Pair[int]) -> Pair[int]:
    return Pair(-pair.a, -pair.b)


def _tensors(differing: Sequence[TensorPair], limit: int) -> Table:
    shown, left = cut(differing, limit)
    rows = [_tensor(pair) for pair in shown]
    if left:
        rows.append(Row(((others(left),), (), (), *_counts(left))))
    rows.append(Row((("total",), (), (), *_counts(differing)), is_total=True))
    titles = ("tensor", "", "what differs", "parameters a - b", "bytes a - b")
    return Table(columns(*titles, words=3), tuple(rows))


def _tensor(pair: TensorPair) -> Row:
    entry = pair.entry
    called = Code(", ".join(entry.sources) or label(entry.tensor.key))
    return Row(((called,), (pair.status.value,), (", ".join(list_notes(pair)),), *_counts([pair])))


def _counts(pairs: Sequence[TensorPair]) -> Iterator[Cell]:
    yield (format_signed(sum(pair.parameters.difference for pair in pairs)),)
    yield (format_signed(sum(pair.nbytes.difference for pair in pairs)),)
