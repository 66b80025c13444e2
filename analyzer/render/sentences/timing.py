"""Timing -> sentences: what ran where, what it was fed, how sure its times are, and how they grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.ledger import Group
from analyzer.timing.record import Latency, Point, Timing
from analyzer.timing.request import Feed, Fill
from analyzer.timing.rows import Growth, TimeRow, total_group
from analyzer.timing.running.measure import judge_profiled
from analyzer.timing.running.session import Fallback, copies, fallbacks
from analyzer.units import (
    format_bytes,
    format_frequency,
    format_many,
    format_ms,
    format_others,
    format_percent,
    format_shape,
    printable,
    printable_name,
    short_count,
    shorten,
)

__all__ = [
    "describe_fill",
    "format_fill",
    "is_blank",
    "list_others",
    "show_axis",
    "show_formula",
    "tell_axes",
    "tell_doubts",
    "tell_elsewhere",
    "tell_head",
    "tell_inputs",
    "tell_memory",
    "tell_settling",
    "tell_unsettled",
]


def tell_head(timing: Timing) -> Iterator[str]:
    """The model, and what it ran on."""
    settings, environment = timing.settings, timing.environment
    short = f" ({short_count(timing.parameters)})" if timing.parameters >= 1000 else ""
    yield printable_name(timing.path)
    yield (
        f"{format_many(timing.parameters, 'parameter')}{short}{_precision(timing)}; "
        f"{format_bytes(timing.file_nbytes)} on disk"
    )
    versions = ", ".join(f"{name} {version}" for name, version in environment.versions)
    clocks = "".join(f", {name} at {format_frequency(clock)}" for name, clock in environment.clocks)
    yield printable(f"{settings.provider} on {environment.device}{clocks}; {versions}")
    options = "".join(f", {key}={value}" for key, value in settings.provider_options)
    yield printable_name(
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


def tell_axes(point: Point) -> Iterator[str]:
    """The sizes that the file leaves open, and what decided each."""
    alike: dict[tuple[int, str], dict[str, None]] = {}
    for axis in point.axes:
        if axis.reason != "file":
            name = axis.role if axis.name is None else axis.name
            alike.setdefault((axis.size, axis.reason), {})[name] = None
    told = [f"{', '.join(names)} = {size:,} ({reason})" for (size, reason), names in alike.items()]
    if told:
        yield printable(f"axes: {'; '.join(told)}")


def describe_fill(feed: Feed) -> str:
    """What an input is fed."""
    return format_fill(feed.fill.value, feed.low, feed.high)


def format_fill(fill: str, low: float, high: float) -> str:
    """What an input is filled with: a value of `Fill`, and its range.

    >>> format_fill("integers", 0, 30521), format_fill("positions", 0, 15), format_fill("constant", 1, 1)
    ('random 0 to 30,521', '0, 1, ...', 'all 1')
    """
    words = {
        Fill.INTEGERS.value: f"random {low:,g} to {high:,.0f}",
        Fill.UNIFORM.value: f"random {low:g} to {high:g}",
        Fill.CONSTANT.value: f"all {low:g}",
        Fill.POSITIONS.value: f"{low:g}, {low + 1:g}, ...",
        Fill.TEXT.value: '"a"',
        Fill.FILE.value: "the .npz file",
    }
    return words.get(fill, fill)


def tell_settling(timing: Timing, point: Point) -> Iterator[str]:
    """How certain the times are, and what profiling added."""
    plain, profiled = point.latency, point.profiled
    added = profiled.mean - plain.mean
    share = format_percent(abs(added) / plain.mean if plain.mean else None)
    yield (
        f"the plain median is certain to {format_percent(plain.precision)} ({_why(timing, plain)}), the profiled one "
        f"to {format_percent(profiled.precision)}; profiled runs take {format_ms(abs(added))} ms "
        f"{'more' if added >= 0 else 'less'}, {share}"
    )
    match judge_profiled(plain, profiled):
        case "slower":
            yield "that is much: kernels are very short, or something else was running at the time"
        case "faster":
            yield (
                "profiling cannot be why: something else was running at the time, and scaled ms mean little"
            )


def _why(timing: Timing, plain: Latency) -> str:
    schedule = timing.settings.schedule
    if schedule.runs is not None:
        return f"{format_many(schedule.runs, 'run')}, as asked for"
    return (
        f"settled: {format_percent(schedule.precision)} was wanted"
        if plain.settled
        else tell_unsettled(timing)
    )


def tell_unsettled(timing: Timing) -> str:
    """Why the plain runs ended before their median had settled."""
    schedule = timing.settings.schedule
    return (
        f"not settled within {schedule.seconds:g} s or {format_many(schedule.most, 'run')}: "
        f"{format_percent(schedule.precision)} was wanted"
    )


def tell_elsewhere(timing: Timing, point: Point) -> Iterator[str]:
    """What did not run where it was asked to, and the copies between devices."""
    name = next(iter(timing.environment.providers), "")
    yield from _counted(
        fallbacks(name, point.kernels), f"ran on another provider than {timing.settings.provider}"
    )
    yield from _counted(copies(point.kernels), "copied values between devices")
    for message in timing.environment.messages:
        yield printable_name(message)


def _counted(found: Sequence[Fallback], what: str) -> Iterator[str]:
    if not found:
        return
    count, ms = sum(len(row.kernels) for row in found), sum(row.ms for row in found)
    listed = [
        f"{len(row.kernels)} {row.op_type} ({row.provider}, {format_ms(row.ms)} ms)" for row in found[:_FEW]
    ]
    more = f", {format_others(len(found) - _FEW)}" if len(found) > _FEW else ""
    yield (printable(f"{format_many(count, 'kernel')} {what}, {format_ms(ms)} ms: {', '.join(listed)}{more}"))


def tell_memory(timing: Timing, point: Point) -> Iterator[str]:
    """The most that was in use."""
    found = (
        ("onnxruntime's arena", point.held_nbytes),
        ("the whole process", timing.environment.peak_rss_nbytes),
    )
    told = [f"{what} {format_bytes(nbytes)}" for what, nbytes in found if nbytes is not None]
    if told:
        yield (
            f"memory at most: {', '.join(told)}; the weights are {format_bytes(total_group(timing).nbytes)}"
        )


def is_blank(row: TimeRow, whole: Group) -> bool:
    """Whether there is nothing to print of a row but zeros."""
    group = row.group
    return not any(row.ms) and not group.parameters and group.nbytes < _NOTHING * whole.nbytes


def tell_doubts(timing: Timing) -> Iterator[str]:
    """The lengths whose times are not as sure as they were to be."""
    judged = [(judge_profiled(point.latency, point.profiled), point) for point in timing.points]
    unsettled = [point for point in timing.points if not point.latency.settled]
    slower, faster = ([point for said, point in judged if said == what] for what in ("slower", "faster"))
    for points, told in (
        (unsettled if timing.settings.schedule.runs is None else [], tell_unsettled(timing)),
        (slower, "profiled runs take over twice as long: very short kernels, or something else was running"),
        (faster, "profiled runs were faster, so that something else was running and times mean little"),
    ):
        if points:
            yield (f"at {show_axis(timing)} = {', '.join(str(point.value) for point in points)}: {told}")


def tell_inputs(timing: Timing) -> Iterator[str]:
    """What was fed, at the first length and at the last."""
    first, last = timing.points[0], timing.points[-1]
    shapes = (
        f"{feed.name} {format_shape(feed.shape)}"
        + (f" to {format_shape(other.shape)}" if feed != other else "")
        for feed, other in zip(first.feeds, last.feeds, strict=False)
    )
    yield printable_name(f"fed: {', '.join(shapes) or 'nothing'}")
    yield from tell_axes(last)


def show_axis(timing: Timing) -> str:
    """The name of the axis that is swept, short and safe."""
    return printable(shorten(timing.axis or "", 20))


def list_others(timing: Timing, points: Sequence[Point]) -> Iterator[tuple[str, list[float]]]:
    """The times that no group has, at each point."""
    if timing.grouping.by == "group":
        name = timing.grouping.ungrouped.name
        yield name, [point.ungrouped.ms if point.ungrouped else 0.0 for point in points]
        yield timing.grouping.overlap.name, [-point.overlap_ms for point in points]
    yield "[unattributed]", [point.unattributed_ms for point in points]
    yield "[overhead]", [point.overhead_ms for point in points]


def show_formula(growth: Growth) -> str:
    """The terms of a fit that are not 0.

    >>> from analyzer.timing.rows import Order
    >>> show_formula(Growth(Order.QUADRATIC, 0.21, 0.0, 2.1e-5, 0.4, 0.99, 6))
    '0.21 + 2.1e-05 n²'
    """
    terms = ((growth.constant, ""), (growth.linear, " n"), (growth.quadratic, " n²"))
    return " + ".join(f"{factor:.3g}{unit}" for factor, unit in terms if factor) or "0"


_FEW = 5
"""Operators that are listed."""


_NOTHING = 5e-5
"""The least share that is not printed as 0."""
