"""A sweep's Timing -> blocks: groups by lengths, and how each grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.render.markdown.parts import columns, name, text_row
from analyzer.render.markdown.time import closed_line, show_measuring
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Block, Code, Fold, Heading, Line, Piece, Row, Table
from analyzer.render.sentences.groups import heading, tell_rule
from analyzer.render.sentences.timing import list_others, show_formula, tell_doubts, tell_inputs
from analyzer.timing.record import Timing
from analyzer.timing.rows import FEWEST, Growth, Order, TimeRow, grow_latency, grow_row, lengths, make_rows
from analyzer.units import format_count, format_ms, format_percent, shorten

__all__ = ["show_sweep"]


def show_sweep(timing: Timing, options: RenderOptions) -> Iterator[Block]:
    """From top to bottom; the first line answers."""
    found, closed = make_rows(timing, options.rows)
    rows = [row for row in found if any(row.ms)]
    first, last = timing.points[0], timing.points[-1]
    axis = shorten(timing.axis or "", _AXIS)
    provider, device = timing.settings.provider, timing.environment.device
    times = f"{format_ms(first.latency.median)} to {format_ms(last.latency.median)} ms"
    span = f"{format_count(first.value or 0)} to {format_count(last.value or 0)}"
    yield Heading((f"{times} at {axis} {span} on {provider}, {device}",))
    yield Line((Code(timing.path),))
    for rule in tell_rule(timing.grouping.match, timing.grouping.origin):
        yield Line((rule,))
    yield _times(timing, rows, axis)
    yield from closed_line(closed)
    yield Line(
        (
            "ms are kernel times of the mean profiled run, which all lines sum to; plain runs are without profiling.",
        )
    )
    for doubt in tell_doubts(timing):
        yield Line((doubt,))
    yield _growths(timing, rows, axis)
    fed = [Line((text,)) for text in tell_inputs(timing)]
    yield Fold("How it was measured", (*fed, *show_measuring(timing, last, options.rows)))


_AXIS = 20


def _times(timing: Timing, rows: Sequence[TimeRow], axis: str) -> Table:
    made = [text_row(name(row.title), *map(format_ms, row.ms), level=row.level) for row in rows]
    made += [text_row(title, *map(format_ms, times)) for title, times in list_others(timing, timing.points)]
    for title, means in (
        ("profiled run", [point.profiled.mean for point in timing.points]),
        ("plain run", [point.latency.mean for point in timing.points]),
    ):
        made.append(text_row(title, *map(format_ms, means), is_total=True))
    titles = (format_count(point.value or 0) for point in timing.points)
    return Table(columns(f"{heading(timing.grouping)}; ms at {axis}", *titles), tuple(made))


def _growths(timing: Timing, rows: Sequence[TimeRow], axis: str) -> Block:
    """How each group grows with the length."""
    if len(set(lengths(timing))) < FEWEST:
        return Line((f"No growth is fitted to less than {FEWEST} lengths.",))
    longest = format_count(max(lengths(timing)))
    fits = [_growth(name(row.title), grow_row(row, timing), row.level) for row in rows]
    fits.append(_growth("plain run", grow_latency(timing), is_total=True))
    table = Table(
        columns("growth", "order", f"ms at {axis} n", f"at {longest}", "R2", words=3),
        tuple(row for row in fits if row is not None),
    )
    told = (
        "Fitted without negative terms; a higher order only where the points are clear evidence for it; "
        f"at {longest}: what its term takes of the time there."
    )
    return Fold("How each grows", (table, Line((told,))))


def _growth(title: Piece, growth: Growth | None, level: int = 0, *, is_total: bool = False) -> Row | None:
    if growth is None:
        return None
    r2 = "-" if growth.r2 is None else f"{growth.r2:.4f}"
    share = "-" if growth.order is Order.CONSTANT else format_percent(growth.share)
    return text_row(
        title, growth.order.value, show_formula(growth), share, r2, level=level, is_total=is_total
    )
