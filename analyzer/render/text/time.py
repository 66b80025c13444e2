"""Timings -> text: what ran where, how long whole runs take, and what of that each group does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analyzer.ledger import Group
from analyzer.render.options import RenderOptions
from analyzer.render.sentences.groups import heading, tell_rule
from analyzer.render.sentences.timing import (
    describe_fill,
    is_blank,
    tell_axes,
    tell_elsewhere,
    tell_head,
    tell_memory,
    tell_settling,
)
from analyzer.render.text.tables import make_table, show_name
from analyzer.timing.record import KernelTime, Point, Timing
from analyzer.timing.rows import TimeRow, make_rows, total_group
from analyzer.units import (
    format_count,
    format_many,
    format_ms,
    format_others,
    format_percent,
    format_shape,
    printable,
    shorten,
)

__all__ = ["indent", "show_timing"]


def show_timing(timing: Timing, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text of `time`, from top to bottom; a sweep's are in `analyzer.render.text.sweep`."""
    if timing.axis is not None:
        from analyzer.render.text.sweep import show_sweep

        return show_sweep(timing, options)
    point = timing.points[0]
    rows, closed = make_rows(timing, options.rows)
    parts: list[RenderableType] = [*map(Text, tell_head(timing)), Text(""), _inputs(point)]
    parts += [*map(Text, tell_axes(point)), Text("")]
    parts += [_latencies(point), *map(Text, tell_settling(timing, point)), Text("")]
    parts += [
        *map(Text, tell_rule(timing.grouping.match, timing.grouping.origin)),
        _groups(timing, point, rows),
    ]
    sentences = [
        *_below(rows, closed),
        *map(Text, (*tell_elsewhere(timing, point), *tell_memory(timing, point))),
    ]
    parts += [Text(""), *sentences] if sentences else []
    if options.verbose:
        parts += [Text(""), _slowest(point.kernels, options.rows)]
    return parts


def _inputs(point: Point) -> Table:
    table = make_table("input", "dtype", "shape", "filled with")
    for feed in point.feeds:
        table.add_row(show_name(feed.name), feed.dtype, format_shape(feed.shape), describe_fill(feed))
    if not point.feeds:
        table.add_row("none", "", "", "")
    return table


def _latencies(point: Point) -> Table:
    table = make_table("run, ms", "mean", "median", "p90", "p99", "min", "runs")
    for name, latency in (("plain", point.latency), ("profiled", point.profiled)):
        times = (latency.mean, latency.median, latency.p90, latency.p99, latency.min)
        table.add_row(name, *map(format_ms, times), format_count(latency.runs))
    return table


# the groups


def indent(row: TimeRow) -> Padding:
    """A row's title, in as far as it stands under others."""
    return Padding(show_name(row.title), (0, 0, 0, 2 * min(row.level, 6)))


def _groups(timing: Timing, point: Point, rows: Sequence[TimeRow]) -> Table:
    """Of each group its time beside what it holds; what is below the last rule is the sum of level 0."""
    table = make_table(heading(timing.grouping), "ms", "time", "scaled ms", "parameters", "bytes")
    whole = total_group(timing)
    for row in rows:
        if is_blank(row, whole):
            continue
        held = ("", "") if row.is_fused else _held(row.group, whole)
        table.add_row(indent(row), *_timed(row.ms[0], point), *held)
    if timing.grouping.by == "group":
        ungrouped, overlap = timing.grouping.ungrouped, timing.grouping.overlap
        ms = point.ungrouped.ms if point.ungrouped else 0.0
        table.add_row(show_name(ungrouped.name), *_timed(ms, point), *_held(ungrouped, whole))
        table.add_row(show_name(overlap.name), *_timed(-point.overlap_ms, point), *_held(overlap, whole, -1))
    table.add_row(show_name("[unattributed]"), *_timed(point.unattributed_ms, point), "", "")
    table.add_row(show_name("[overhead]"), *_timed(point.overhead_ms, point), "", "")
    table.add_section()
    table.add_row("total", *_timed(point.profiled.mean, point), *_held(whole, whole), style="bold")
    return table


def _timed(ms: float, point: Point) -> tuple[str, str, str]:
    share = ms / point.profiled.mean if point.profiled.mean else None
    return format_ms(ms), format_percent(share), format_ms(ms * point.scale)


def _held(group: Group, whole: Group, sign: int = 1) -> tuple[str, str]:
    parameters = sign * group.parameters / whole.parameters if whole.parameters else None
    return format_percent(parameters), format_percent(
        sign * group.nbytes / whole.nbytes if whole.nbytes else None
    )


def _below(rows: Sequence[TimeRow], closed: int) -> Iterator[Text]:
    """What folded rows hide, and what the times are."""
    if closed:
        yield Text(
            f"{format_many(closed, 'row')} under these {'is' if closed == 1 else 'are'} not shown; -n 0 shows all"
        )
    for row in rows:
        if len(row.each) > 1:
            low, high = min(row.each), max(row.each)
            count = format_count(len(row.each))
            yield show_name(
                f"{row.group.name}: {count} groups, {format_ms(low)} to {format_ms(high)} ms each"
            )
    yield Text(
        "ms are kernel times of the mean profiled run, which all lines sum to; scaled ms sum to the mean plain run"
    )


# where it ran, and what that took


def _slowest(kernels: Sequence[KernelTime], limit: int) -> Table:
    """The slowest kernels, and by which evidence they belong where they are booked."""
    ordered = sorted(kernels, key=lambda kernel: (-kernel.ms, kernel.name))
    shown = ordered[:limit] if limit else ordered
    table = make_table("slowest kernels", "operator", "ms", "nodes", "decided by")
    for kernel in shown:
        name = Text(printable(shorten(kernel.name, 60)))
        name.append(f"\n  in {printable(shorten(' + '.join(kernel.groups) or 'no group', 90))}")
        operator, rule = printable(shorten(kernel.op_type, 22)), printable(shorten(kernel.decided_by, 24))
        table.add_row(name, operator, format_ms(kernel.ms), format_count(kernel.nodes), rule)
    left = ordered[len(shown) :]
    if left:
        ms = sum(kernel.ms for kernel in left)
        table.add_row(format_others(len(left)), "", format_ms(ms), "", "")
    return table
