"""Sweeps -> text: groups by lengths, and how each grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.render.options import RenderOptions
from analyzer.render.text.groups import heading, show_rule
from analyzer.render.text.tables import make_table, show_name, show_shape
from analyzer.render.text.time import indent, show_axes, show_head, show_unsettled
from analyzer.timing.growth import FEWEST, Growth, Order
from analyzer.timing.record import Point, Timing
from analyzer.timing.rows import TimeRow, make_rows
from analyzer.timing.running.latency import judge_profiled
from analyzer.timing.sweep import grow_latency, grow_row, lengths
from analyzer.units import format_count, format_ms, format_percent, printable, shorten

__all__ = ["list_others", "show_doubts", "show_formula", "show_inputs", "show_sweep"]


def show_sweep(timing: Timing, options: RenderOptions) -> list[RenderableType]:
    """Groups by lengths, in as many tables as the width asks for; then how they grow."""
    found, closed = make_rows(timing, options.rows)
    rows = [row for row in found if any(row.ms)]
    parts: list[RenderableType] = [*show_head(timing), *show_inputs(timing), Text("")]
    parts += show_rule(timing.grouping.match, timing.grouping.origin)
    for points in _chunks(timing, options.width):
        parts += [_times(timing, points, rows), Text("")]
    if closed:
        parts.append(Text(f"{format_count(closed)} rows under these are not shown; -n 0 shows all"))
    parts.append(
        Text(
            "ms are kernel times of the mean profiled run, which all lines sum to; plain runs are without profiling"
        )
    )
    parts += show_doubts(timing)
    return [*parts, Text(""), *_growths(timing, rows)]


def show_doubts(timing: Timing) -> Iterator[Text]:
    """The lengths whose times are not as sure as they were to be."""
    judged = [(judge_profiled(point.latency, point.profiled), point) for point in timing.points]
    unsettled = [point for point in timing.points if not point.latency.settled]
    slower, faster = ([point for said, point in judged if said == what] for what in ("slower", "faster"))
    for points, told in (
        (unsettled if timing.settings.schedule.runs is None else [], show_unsettled(timing)),
        (slower, "profiled runs take over twice as long: very short kernels, or something else was running"),
        (faster, "profiled runs were faster, so that something else was running and times mean little"),
    ):
        if points:
            yield Text(f"at {_axis(timing)} = {', '.join(str(point.value) for point in points)}: {told}")


def show_inputs(timing: Timing) -> Iterator[Text]:
    """What was fed, at the first length and at the last."""
    first, last = timing.points[0], timing.points[-1]
    shapes = (
        f"{feed.name} {show_shape(feed.shape)}" + (f" to {show_shape(other.shape)}" if feed != other else "")
        for feed, other in zip(first.feeds, last.feeds, strict=False)
    )
    yield show_name(f"fed: {', '.join(shapes) or 'nothing'}")
    yield from show_axes(last)


def _axis(timing: Timing) -> str:
    return printable(shorten(timing.axis or "", 20))


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
    title = f"{heading(timing.grouping)}; ms at {_axis(timing)}"
    table = make_table(title, *(format_count(point.value or 0) for point in points))
    for row in rows:
        table.add_row(indent(row), *(format_ms(row.ms[position]) for position in at))
    for name, times in list_others(timing, points):
        table.add_row(show_name(name), *map(format_ms, times))
    table.add_section()
    table.add_row("profiled run", *(format_ms(point.profiled.mean) for point in points), style="bold")
    table.add_row("plain run", *(format_ms(point.latency.mean) for point in points), style="bold")
    return table


def list_others(timing: Timing, points: Sequence[Point]) -> Iterator[tuple[str, list[float]]]:
    """The times that no group has, at each point."""
    if timing.grouping.by == "group":
        name = timing.grouping.ungrouped.name
        yield name, [point.ungrouped.ms if point.ungrouped else 0.0 for point in points]
        yield timing.grouping.overlap.name, [-point.overlap_ms for point in points]
    yield "[unattributed]", [point.unattributed_ms for point in points]
    yield "[overhead]", [point.overhead_ms for point in points]


# how they grow


def _growths(timing: Timing, rows: Sequence[TimeRow]) -> list[RenderableType]:
    if len(set(lengths(timing))) < FEWEST:
        return [Text(f"no growth is fitted to less than {FEWEST} lengths")]
    longest = format_count(max(lengths(timing)))
    table = make_table("growth", "order", f"ms at {_axis(timing)} n", f"at {longest}", "R2")
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


def show_formula(growth: Growth) -> str:
    """The terms of a fit that are not 0.

    >>> show_formula(Growth(Order.QUADRATIC, 0.21, 0.0, 2.1e-5, 0.4, 0.99, 6))
    '0.21 + 2.1e-05 n²'
    """
    terms = ((growth.constant, ""), (growth.linear, " n"), (growth.quadratic, " n²"))
    return " + ".join(f"{factor:.3g}{unit}" for factor, unit in terms if factor) or "0"
