"""Timing -> blocks: how long runs take, what of that each group does, and behind folds how it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.ledger import Group
from analyzer.render.markdown.parts import columns, cut, name, others, text_row
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Block, Code, Fold, Heading, Line, Row, Table
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
from analyzer.timing.record import KernelTime, Point, Timing
from analyzer.timing.rows import TimeRow, make_rows, total_group
from analyzer.units import format_count, format_many, format_ms, format_percent, format_shape

__all__ = ["closed_line", "show_measuring", "show_timing"]


def show_timing(timing: Timing, options: RenderOptions) -> Iterator[Block]:
    """From top to bottom; the first line answers. A sweep's are in `analyzer.render.markdown.sweep`."""
    if timing.axis is not None:
        from analyzer.render.markdown.sweep import show_sweep

        yield from show_sweep(timing, options)
        return
    point, limit = timing.points[0], options.rows
    provider, device = timing.settings.provider, timing.environment.device
    yield Heading((f"{format_ms(point.latency.median)} ms on {provider}, {device}",))
    yield Line((Code(timing.path),))
    yield _latencies(point)
    for rule in tell_rule(timing.grouping.match, timing.grouping.origin):
        yield Line((rule,))
    rows, closed = make_rows(timing, limit)
    yield _groups(timing, point, rows)
    yield from closed_line(closed)
    yield Line(
        (
            "ms are kernel times of the mean profiled run, which all lines sum to; "
            "scaled ms sum to the mean plain run.",
        )
    )
    yield Fold("How it was measured", (*show_measuring(timing, point, limit), *_how(timing, point)))
    yield Fold("Slowest kernels", (_slowest(point.kernels, limit),))


def closed_line(closed: int) -> Iterator[Block]:
    """How many rows are hidden under those that are shown."""
    if closed:
        yield Line((f"{format_many(closed, 'row')} under these are not shown.",))


def show_measuring(timing: Timing, point: Point, limit: int) -> Iterator[Block]:
    """What ran where, and what it was fed."""
    for text in tell_head(timing):
        yield Line((text,))
    shown, left = cut(point.feeds, limit)
    rows = [text_row(Code(f.name), f.dtype, format_shape(f.shape), describe_fill(f)) for f in shown]
    if left:
        rows.append(text_row(others(left), "", "", ""))
    yield Table(columns("input", "dtype", "shape", "filled with", words=4), tuple(rows))
    for axes in tell_axes(point):
        yield Line((axes,))


def _how(timing: Timing, point: Point) -> Iterator[Block]:
    for text in (*tell_settling(timing, point), *tell_elsewhere(timing, point), *tell_memory(timing, point)):
        yield Line((text,))


def _latencies(point: Point) -> Table:
    rows = []
    for title, latency in (("plain", point.latency), ("profiled", point.profiled)):
        times = (latency.mean, latency.median, latency.p90, latency.p99, latency.min)
        rows.append(text_row(title, *map(format_ms, times), format_count(latency.runs)))
    return Table(columns("run, ms", "mean", "median", "p90", "p99", "min", "runs"), tuple(rows))


def _groups(timing: Timing, point: Point, rows: Sequence[TimeRow]) -> Table:
    """Of each group its time beside what it holds; those of the outermost level and what is in brackets sum up."""
    whole = total_group(timing)
    made = []
    for row in rows:
        if not is_blank(row, whole):
            held = ("", "") if row.is_fused else _held(row.group, whole)
            made.append(text_row(name(row.title), *_timed(row.ms[0], point), *held, level=row.level))
    if timing.grouping.by == "group":
        ungrouped, overlap = timing.grouping.ungrouped, timing.grouping.overlap
        ms = point.ungrouped.ms if point.ungrouped else 0.0
        made.append(text_row(ungrouped.name, *_timed(ms, point), *_held(ungrouped, whole)))
        made.append(text_row(overlap.name, *_timed(-point.overlap_ms, point), *_held(overlap, whole, -1)))
    made.append(text_row("[unattributed]", *_timed(point.unattributed_ms, point), "", ""))
    made.append(text_row("[overhead]", *_timed(point.overhead_ms, point), "", ""))
    total = _timed(point.profiled.mean, point)
    made.append(text_row("total", *total, *_held(whole, whole), is_total=True))
    titles = (heading(timing.grouping), "ms", "time", "scaled ms", "parameters", "bytes")
    return Table(columns(*titles), tuple(made))


def _timed(ms: float, point: Point) -> tuple[str, str, str]:
    share = ms / point.profiled.mean if point.profiled.mean else None
    return format_ms(ms), format_percent(share), format_ms(ms * point.scale)


def _held(group: Group, whole: Group, sign: int = 1) -> tuple[str, str]:
    return _share(sign * group.parameters, whole.parameters), _share(sign * group.nbytes, whole.nbytes)


def _share(part: int, whole: int) -> str:
    return format_percent(part / whole if whole else None)


def _slowest(kernels: Sequence[KernelTime], limit: int) -> Table:
    """The slowest kernels, and where they are booked."""
    ordered = sorted(kernels, key=lambda kernel: (-kernel.ms, kernel.name))
    shown, left = cut(ordered, limit)
    rows = [
        Row(
            (
                (Code(kernel.name),),
                (Code(kernel.op_type),),
                (Code(" + ".join(kernel.groups)) if kernel.groups else "no group",),
                (format_ms(kernel.ms),),
            )
        )
        for kernel in shown
    ]
    if left:
        rows.append(text_row(others(left), "", "", format_ms(sum(kernel.ms for kernel in left))))
    return Table(columns("kernel", "operator", "group", "ms", words=3), tuple(rows))
