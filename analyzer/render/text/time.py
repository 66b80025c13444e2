"""Timings -> text: what ran where, how long whole runs take, and what of that each group does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analyzer.ledger import Group
from analyzer.render.options import RenderOptions
from analyzer.render.text.groups import heading, show_rule
from analyzer.render.text.tables import make_table, show_name, show_shape
from analyzer.timing.compare import TimingComparison
from analyzer.timing.record import KernelTime, Latency, Point, Timing
from analyzer.timing.request import Feed, Fill
from analyzer.timing.rows import TimeRow, make_rows, total_group
from analyzer.timing.running.latency import judge_profiled
from analyzer.timing.running.placement import Fallback, copies, fallbacks
from analyzer.units import (
    format_bytes,
    format_count,
    format_frequency,
    format_many,
    format_ms,
    format_percent,
    printable,
    short_count,
    shorten,
)

__all__ = [
    "describe_fill",
    "indent",
    "is_blank",
    "show_axes",
    "show_elsewhere",
    "show_head",
    "show_memory",
    "show_settling",
    "show_timed",
    "show_timing",
    "show_unsettled",
]


def show_timed(report: Timing | TimingComparison, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text of `time`, or of `compare` of two of its reports."""
    if isinstance(report, Timing):
        return show_timing(report, options)
    from analyzer.render.text.compare_time import show_timing_comparison

    return show_timing_comparison(report, options)


def show_timing(timing: Timing, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text of `time`, from top to bottom; a sweep's are in `analyzer.render.text.sweep`."""
    if timing.axis is not None:
        from analyzer.render.text.sweep import show_sweep

        return show_sweep(timing, options)
    point = timing.points[0]
    rows, closed = make_rows(timing, options.rows)
    parts: list[RenderableType] = [*show_head(timing), Text(""), _inputs(point), *show_axes(point), Text("")]
    parts += [_latencies(point), *show_settling(timing, point), Text("")]
    parts += [*show_rule(timing.grouping.match, timing.grouping.origin), _groups(timing, point, rows)]
    sentences = [*_below(rows, closed), *show_elsewhere(timing, point), *show_memory(timing, point)]
    parts += [Text(""), *sentences] if sentences else []
    if options.verbose:
        parts += [Text(""), _slowest(point.kernels, options.rows)]
    return parts


def show_head(timing: Timing) -> Iterator[RenderableType]:
    """The model, and what it ran on."""
    settings, environment = timing.settings, timing.environment
    short = f" ({short_count(timing.parameters)})" if timing.parameters >= 1000 else ""
    yield show_name(timing.path)
    yield Text(
        f"{format_count(timing.parameters)} parameters{short}{_precision(timing)}; "
        f"{format_bytes(timing.file_nbytes)} on disk"
    )
    versions = ", ".join(f"{name} {version}" for name, version in environment.versions)
    clocks = "".join(f", {name} at {format_frequency(clock)}" for name, clock in environment.clocks)
    yield Text(printable(f"{settings.provider} on {environment.device}{clocks}; {versions}"))
    options = "".join(f", {key}={value}" for key, value in settings.provider_options)
    yield show_name(
        f"{format_many(environment.threads, 'thread')} on {format_many(environment.cores, 'core')}, optimization "
        f"{settings.optimization.value}{options}; session made in {format_ms(environment.load_ms)} ms; plain and "
        f"profiled runs {environment.order}"
    )


def _precision(timing: Timing) -> str:
    """What the parameters are stored as."""
    shares = timing.environment.precision
    if len(shares) == 1:
        return f" stored as {shares[0][0]}"
    told = ", ".join(f"{dtype} {format_percent(share)}" for dtype, share in shares)
    return f" stored as {told}" if told else ""


def _inputs(point: Point) -> Table:
    table = make_table("input", "dtype", "shape", "filled with")
    for feed in point.feeds:
        table.add_row(show_name(feed.name), feed.dtype, show_shape(feed.shape), describe_fill(feed))
    if not point.feeds:
        table.add_row("none", "", "", "")
    return table


def show_axes(point: Point) -> Iterator[Text]:
    """The sizes that the file leaves open, and what decided each."""
    alike: dict[tuple[int, str], dict[str, None]] = {}
    for axis in point.axes:
        if axis.reason != "file":
            name = axis.role if axis.name is None else axis.name
            alike.setdefault((axis.size, axis.reason), {})[name] = None
    told = [f"{', '.join(names)} = {size:,} ({reason})" for (size, reason), names in alike.items()]
    if told:
        yield Text(printable(f"axes: {'; '.join(told)}"))


def describe_fill(feed: Feed) -> str:
    """What an input is fed."""
    match feed.fill:
        case Fill.INTEGERS:
            return f"random {feed.low:,g} to {feed.high:,.0f}"
        case Fill.UNIFORM:
            return f"random {feed.low:g} to {feed.high:g}"
        case Fill.CONSTANT:
            return f"all {feed.low:g}"
        case Fill.POSITIONS:
            return f"{feed.low:g}, {feed.low + 1:g}, ..."
        case Fill.TEXT:
            return '"a"'
        case Fill.FILE:
            return "the .npz file"


def _latencies(point: Point) -> Table:
    table = make_table("run, ms", "mean", "median", "p90", "p99", "min", "runs")
    for name, latency in (("plain", point.latency), ("profiled", point.profiled)):
        times = (latency.mean, latency.median, latency.p90, latency.p99, latency.min)
        table.add_row(name, *map(format_ms, times), format_count(latency.runs))
    return table


def show_settling(timing: Timing, point: Point) -> Iterator[Text]:
    """How certain the times are, and what profiling added."""
    plain, profiled = point.latency, point.profiled
    added = profiled.mean - plain.mean
    share = format_percent(abs(added) / plain.mean if plain.mean else None)
    yield Text(
        f"the plain median is certain to {format_percent(plain.precision)} ({_why(timing, plain)}), the profiled one "
        f"to {format_percent(profiled.precision)}; profiled runs take {format_ms(abs(added))} ms "
        f"{'more' if added >= 0 else 'less'}, {share}"
    )
    match judge_profiled(plain, profiled):
        case "slower":
            yield Text("that is much: kernels are very short, or something else was running at the time")
        case "faster":
            yield Text(
                "profiling cannot be why: something else was running at the time, and scaled ms mean little"
            )


def _why(timing: Timing, plain: Latency) -> str:
    schedule = timing.settings.schedule
    if schedule.runs is not None:
        return f"{format_many(schedule.runs, 'run')}, as asked for"
    return (
        f"settled: {format_percent(schedule.precision)} was wanted"
        if plain.settled
        else show_unsettled(timing)
    )


def show_unsettled(timing: Timing) -> str:
    """Why the plain runs ended before their median had settled."""
    schedule = timing.settings.schedule
    return (
        f"not settled within {schedule.seconds:g} s or {format_count(schedule.most)} runs: "
        f"{format_percent(schedule.precision)} was wanted"
    )


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


def is_blank(row: TimeRow, whole: Group) -> bool:
    """Whether there is nothing to print of a row but zeros."""
    group = row.group
    return not any(row.ms) and not group.parameters and group.nbytes < _NOTHING * whole.nbytes


_NOTHING = 5e-5
"""The least share that is not printed as 0."""


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
        yield Text(f"{format_count(closed)} rows under these are not shown; -n 0 shows all")
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


def show_elsewhere(timing: Timing, point: Point) -> Iterator[Text]:
    """What did not run where it was asked to, and the copies between devices."""
    name = next(iter(timing.environment.providers), "")
    yield from _counted(
        fallbacks(name, point.kernels), f"ran on another provider than {timing.settings.provider}"
    )
    yield from _counted(copies(point.kernels), "copied values between devices")
    for message in timing.environment.messages:
        yield show_name(message)


def _counted(found: Sequence[Fallback], what: str) -> Iterator[Text]:
    if not found:
        return
    count, ms = sum(len(row.kernels) for row in found), sum(row.ms for row in found)
    listed = [
        f"{len(row.kernels)} {row.op_type} ({row.provider}, {format_ms(row.ms)} ms)" for row in found[:_FEW]
    ]
    more = f", [{format_count(len(found) - _FEW)} others]" if len(found) > _FEW else ""
    yield Text(
        printable(f"{format_many(count, 'kernel')} {what}, {format_ms(ms)} ms: {', '.join(listed)}{more}")
    )


_FEW = 5


def show_memory(timing: Timing, point: Point) -> Iterator[Text]:
    """The most that was in use."""
    found = (
        ("onnxruntime's arena", point.held_nbytes),
        ("the whole process", timing.environment.peak_rss_nbytes),
    )
    told = [f"{what} {format_bytes(nbytes)}" for what, nbytes in found if nbytes is not None]
    if told:
        yield Text(
            f"memory at most: {', '.join(told)}; the weights are {format_bytes(total_group(timing).nbytes)}"
        )


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
        table.add_row(f"[{format_count(len(left))} others]", "", format_ms(ms), "", "")
    return table
