"""Sweeps -> text: groups by lengths, and how each grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.render.options import RenderOptions
from analyzer.render.sentences.groups import heading, tell_rule
from analyzer.render.sentences.timing import (
    list_others,
    show_axis,
    show_formula,
    tell_doubts,
    tell_head,
    tell_inputs,
)
from analyzer.render.text.tables import make_table, show_name
from analyzer.render.text.time import indent
from analyzer.timing.record import Timing
from analyzer.timing.rows import FEWEST, Growth, Order, TimeRow, grow_latency, grow_row, lengths, make_rows
from analyzer.units import format_count, format_many, format_ms, format_percent

__all__ = ["show_sweep"]


def show_sweep(timing: Timing, options: RenderOptions) -> list[RenderableType]:
    """Groups by lengths, in as many tables as the width asks for; then how they grow."""
    found, closed = make_rows(timing, options.rows)
    rows = [row for row in found if any(row.ms)]
    parts: list[RenderableType] = [*map(Text, (*tell_head(timing), *tell_inputs(timing))), Text("")]
    parts += map(Text, tell_rule(timing.grouping.match, timing.grouping.origin))
    for points in _chunks(timing, options.width):
        parts += [_times(timing, points, rows), Text("")]
    if closed:
        parts.append(
            Text(
                f"{format_many(closed, 'row')} under these {'is' if closed == 1 else 'are'} not shown; -n 0 shows all"
            )
        )
    parts.append(
        Text(
            "ms are kernel times of the mean profiled run, which all lines sum to; plain runs are without profiling"
        )
    )
    parts += map(Text, tell_doubts(timing))
    return [*parts, Text(""), *_growths(timing, rows)]


def _chunks(timing: Timing, width: int) -> Iterator[Sequence[int]]:
    """Positions of the points that have room beside each other."""
    widest = max(len(format_ms(point.profiled.mean)) for point in timing.points) + _GAP
    room = max(1, (width - _NAMES) // widest)
    count = len(timing.points)
    tables = -(-count // room)
    size = -(-count // tables)
    yield from (range(count)[start : start + size] for start in range(0, count, size))


_GAP, _NAMES = 3, 30
"""Columns between columns, and for names."""


def _times(timing: Timing, at: Sequence[int], rows: Sequence[TimeRow]) -> Table:
    points = [timing.points[position] for position in at]
    title = f"{heading(timing.grouping)}; ms at {show_axis(timing)}"
    table = make_table(title, *(format_count(point.value or 0) for point in points))
    for row in rows:
        table.add_row(indent(row), *(format_ms(row.ms[position]) for position in at))
    for name, times in list_others(timing, points):
        table.add_row(show_name(name), *map(format_ms, times))
    table.add_section()
    table.add_row("profiled run", *(format_ms(point.profiled.mean) for point in points), style="bold")
    table.add_row("plain run", *(format_ms(point.latency.mean) for point in points), style="bold")
    return table


# how they grow


def _growths(timing: Timing, rows: Sequence[TimeRow]) -> list[RenderableType]:
    if len(set(lengths(timing))) < FEWEST:
        return [Text(f"no growth is fitted to less than {FEWEST} lengths")]
    longest = format_count(max(lengths(timing)))
    table = make_table("growth", "order", f"ms at {show_axis(timing)} n", f"at {longest}", "R2")
    for row in rows:
        _add_growth(table, indent(row), grow_row(row, timing))
    table.add_section()
    _add_growth(table, Text("plain run"), grow_latency(timing))
    told = Text(
        f"fitted without negative terms; a higher order only where the points are clear evidence for it; "
        f"at {longest}: what its term takes of the time there"
    )
    return [table, Text(""), told]


def _add_growth(table: Table, name: RenderableType, growth: Growth | None) -> None:
    if growth is None:
        return
    r2 = "-" if growth.r2 is None else f"{growth.r2:.4f}"
    share = "-" if growth.order is Order.CONSTANT else format_percent(growth.share)
    table.add_row(name, growth.order.value, show_formula(growth), share, r2)
