"""Timing + Timing -> TimingComparison: whole runs and groups side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analyzer.account.group.keys import Label, label_order
from analyzer.account.ledger import Group, Match
from analyzer.comparison import Pair, Status
from analyzer.errors import UsageError
from analyzer.records import Frozen
from analyzer.timing.record import Point, TimedGroup, Timing


class TimePair(Frozen):
    """One group on both sides; a side that lacks it has 0.

    `ms` are milliseconds, the mean kernel time per profiled run; `parameters` are learned elements, `nbytes` bytes of
    payload.
    """

    name: str
    label: Label
    across: tuple[str, ...]
    """See `TimedGroup`."""
    status: Status
    """Status of the times: unchanged if their confidence intervals overlap."""
    ms: Pair[float]
    errors: tuple[float, float]
    """Half the widths of the confidence intervals, of A and of B."""
    parameters: Pair[int]
    nbytes: Pair[int]


class PointComparison(Frozen):
    """One measurement on both sides, or one length of two sweeps (`value`). All times are milliseconds.

    On each side: groups - `overlap` + `ungrouped` + `unattributed` + `overhead` = `profiled`, the mean run with
    profiling.
    """

    value: int | None
    latency: Pair[float]
    """Mean runs without profiling."""
    profiled: Pair[float]
    groups: tuple[TimePair, ...]
    overlap: Pair[float]
    ungrouped: Pair[float]
    unattributed: Pair[float]
    overhead: Pair[float]


class Measured(Frozen):
    """A condition that differed between the two measurements."""

    what: str
    a: str
    b: str


class TimingComparison(Frozen):
    """A against B. Differences are a - b, ratios a / b.

    `parameters` are learned elements, `file_nbytes` bytes of all files on disk. For `by`, `depth`, `match` and
    `origins` see `Comparison`.
    """

    a: str
    """Path of the model, or of the report."""
    b: str
    parameters: Pair[int]
    file_nbytes: Pair[int]
    by: str
    depth: int | None
    points: tuple[PointComparison, ...]
    """One point, or one for each length that both sweeps have."""
    measured: tuple[Measured, ...]
    axis: str | None = None
    match: Match | None = None
    origins: tuple[str | None, str | None] = (None, None)


def compare_timings(a: Timing, b: Timing, names: tuple[str, str] | None = None) -> TimingComparison:
    """Set two timings side by side, groups in their natural order or in the user's.

    Args:
        names: names of the sides; by default the paths of the models.

    Raises:
        UsageError: they are grouped by other keys, only one is a sweep, or the sweeps have no length in common.
    """
    _check_alike(a, b)
    of_b = {point.value: point for point in b.points}
    both = [(point, of_b[point.value]) for point in a.points if point.value in of_b]
    if a.axis is None:
        both = [(a.points[0], b.points[0])]
    if not both:
        of_a, lengths = (", ".join(str(point.value) for point in side.points) for side in (a, b))
        raise UsageError(
            f"sweeps without a common length: {of_a} in a, {lengths} in b; time both at one of these"
        )
    sides = names or (a.path, b.path)
    return TimingComparison(
        a=sides[0],
        b=sides[1],
        parameters=Pair(a.parameters, b.parameters),
        file_nbytes=Pair(a.file_nbytes, b.file_nbytes),
        by=a.grouping.by,
        depth=a.grouping.depth,
        points=tuple(_compare_points(a, b, *pair) for pair in both),
        measured=tuple(_measured(_conditions(a, both[0][0]), _conditions(b, both[0][1]))),
        axis=a.axis,
        match=a.grouping.match,
        origins=(a.grouping.origin, b.grouping.origin),
    )


def _check_alike(a: Timing, b: Timing) -> None:
    if (a.axis is None) != (b.axis is None):
        sweep, other = ("a", "b") if a.axis else ("b", "a")
        raise UsageError(f"{sweep} is a sweep and {other} a timing at one length; compare two of a kind")
    if a.axis != b.axis:
        raise UsageError(f"a is a sweep of {a.axis}, b of {b.axis}; sweep the same axis in both")
    keys = [(side.grouping.by, side.grouping.depth) for side in (a, b)]
    if keys[0] != keys[1]:
        labels = [f"{by}{'' if depth is None else f' at depth {depth}'}" for by, depth in keys]
        raise UsageError(
            f"a is grouped by {labels[0]}, b by {labels[1]}; time both with the same --by and --depth, or --group"
        )


def _compare_points(a: Timing, b: Timing, ours: Point, theirs: Point) -> PointComparison:
    return PointComparison(
        value=ours.value,
        latency=Pair(ours.latency.mean, theirs.latency.mean),
        profiled=Pair(ours.profiled.mean, theirs.profiled.mean),
        groups=tuple(_pairs(_by_key(ours), _by_key(theirs), is_sorted=a.grouping.by != "group")),
        overlap=Pair(ours.overlap_ms, theirs.overlap_ms),
        ungrouped=Pair(*(point.ungrouped.ms if point.ungrouped else 0.0 for point in (ours, theirs))),
        unattributed=Pair(ours.unattributed_ms, theirs.unattributed_ms),
        overhead=Pair(ours.overhead_ms, theirs.overhead_ms),
    )


_Key = tuple[tuple[str, ...], Label]
"""Groups that share fused kernels, and an empty label; or no groups, and the label of one."""


def _by_key(point: Point) -> dict[_Key, TimedGroup]:
    return {(part.across, () if part.across else part.group.label): part for part in point.parts}


def _pairs(a: dict[_Key, TimedGroup], b: dict[_Key, TimedGroup], *, is_sorted: bool) -> Iterator[TimePair]:
    keys = list(dict.fromkeys((*a, *b)))
    if is_sorted:
        keys.sort(key=lambda key: (bool(key[0]), label_order(key[0] or key[1])))
    for key in keys:
        yield _pair(key, a.get(key), b.get(key))


def _pair(key: _Key, a: TimedGroup | None, b: TimedGroup | None) -> TimePair:
    known = a or b
    group = known.group if known else Group("")
    ours, theirs = a or TimedGroup(Group(group.name), 0.0, 0), b or TimedGroup(Group(group.name), 0.0, 0)
    times = Pair(ours.ms, theirs.ms)
    if a is None or b is None:
        status = Status.ADDED if a is None else Status.REMOVED
    else:
        apart = abs(times.difference) > ours.error_ms + theirs.error_ms
        status = Status.CHANGED if apart else Status.UNCHANGED
    return TimePair(
        name=group.name,
        label=group.label,
        across=key[0],
        status=status,
        ms=times,
        errors=(ours.error_ms, theirs.error_ms),
        parameters=Pair(ours.group.parameters, theirs.group.parameters),
        nbytes=Pair(ours.group.nbytes, theirs.group.nbytes),
    )


def _measured(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Measured]:
    """Yield the conditions other than the model that may cause a difference."""
    for what in dict.fromkeys((*a, *b)):
        if a.get(what) != b.get(what):
            yield Measured(what, a.get(what, "none"), b.get(what, "none"))


def _conditions(timing: Timing, point: Point) -> dict[str, str]:
    settings, environment = timing.settings, timing.environment
    options = ", ".join(f"{key}={value}" for key, value in settings.provider_options)
    inputs = (f"{feed.name} {'x'.join(map(str, feed.shape)) or 'scalar'}" for feed in point.feeds)
    return {
        "device": environment.device,
        "provider": settings.provider,
        "provider options": options or "none",
        **{f"version of {name}": version for name, version in environment.versions},
        "threads": str(environment.threads),
        "optimization": settings.optimization.value,
        "clock of kernels": environment.kernel_clock,
        "order": environment.order,
        "inputs": ", ".join(inputs) or "none",
    }
