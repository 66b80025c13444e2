"""A saved `time` report -> Timing, so that two can be compared without running anything."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import UNSET

from analyzer.account.ledger import Group, Grouping
from analyzer.documents.saved import check_numbers, decode, read_report
from analyzer.documents.time import (
    AxisSize,
    InputFeed,
    Kernel,
    SweepDocument,
    TimeDocument,
    TimeGroup,
)
from analyzer.documents.time import Latency as LatencyRow
from analyzer.documents.time import (
    Point as PointRow,
)
from analyzer.errors import UsageError
from analyzer.json_files import load_json
from analyzer.timing.record import (
    Axis,
    Environment,
    KernelTime,
    Latency,
    Point,
    TimedGroup,
    Timing,
    TimingSettings,
)
from analyzer.timing.request import Clock, Feed, Schedule


def is_saved_timing(path: Path | str) -> bool:
    """Whether a path names a JSON report of `time`, whatever its version; False for a file that cannot be read."""
    if Path(path).suffix != ".json":
        return False
    try:
        document = load_json(path)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("command") == "time"


def load_timing(path: Path | str) -> Timing:
    """Rebuild the timing that a `time --format json` report describes; its ledger is None.

    Raises:
        UsageError: the file cannot be read, or is no complete report of this schema.
    """
    document = read_report(path, "time")
    check_numbers(path, document)
    if "loop" in document:
        raise UsageError(
            f"{path}: a report of a generation loop, which cannot be compared; time each file of the loop alone, "
            "and compare those reports"
        )
    if document.get("axis") is None:
        return rebuild_timing(decode(path, document, TimeDocument))
    return rebuild_timing(decode(path, document, SweepDocument))


def rebuild_timing(document: TimeDocument | SweepDocument) -> Timing:
    """Return the timing that a document describes; its ledger is None."""
    rows: list[TimeDocument | PointRow] = (
        [document] if isinstance(document, TimeDocument) else list(document.points)
    )
    environment = document.environment
    points = tuple(_point(row, environment.kernel_clock, is_own=document.by == "group") for row in rows)
    return Timing(
        ledger=None,
        path=document.model.path,
        grouping=_grouping(document, rows[0], points),
        settings=_settings(document),
        environment=Environment(
            device=document.device,
            providers=tuple(environment.providers),
            versions=tuple(environment.versions.items()),
            threads=environment.threads,
            cores=environment.cores,
            precision=tuple(environment.precision.items()),
            clocks=tuple(environment.clocks.items()),
            load_ms=environment.load_ms,
            peak_rss_nbytes=environment.peak_rss_bytes,
            messages=tuple(environment.messages),
            kernel_clock=environment.kernel_clock,
            order=environment.order,
        ),
        points=points,
        axis=document.axis if isinstance(document, SweepDocument) else None,
        parameters=document.model.parameters,
        file_nbytes=document.model.file_bytes,
        stamp=None if document.generated_at is msgspec.UNSET else document.generated_at,
    )


def _grouping(
    document: TimeDocument | SweepDocument, first: TimeDocument | PointRow, points: tuple[Point, ...]
) -> Grouping:
    """Return the groups that the points have, with the overlap of the user's own groups and the rest outside them."""
    groups = {part.group.label: part.group for point in points for part in point.parts if not part.across}
    return Grouping(
        by=document.by,
        depth=document.depth,
        groups=tuple(groups.values()),
        overlap=_part(first.group_balance.overlap).group,
        ungrouped=_part(first.group_balance.ungrouped).group,
        match=document.match,
        origin=document.groups_from,
    )


def _settings(document: TimeDocument | SweepDocument) -> TimingSettings:
    row = document.settings
    return TimingSettings(
        provider=document.provider,
        provider_options=tuple(row.provider_options.items()),
        threads=row.threads,
        optimization=row.optimization,
        seed=row.seed,
        schedule=Schedule(
            runs=row.runs,
            warmup=row.warmup,
            fewest=row.fewest,
            most=row.most,
            seconds=row.seconds,
            precision=row.precision,
        ),
    )


def _point(row: TimeDocument | PointRow, clock: Clock, *, is_own: bool) -> Point:
    return Point(
        feeds=tuple(map(_feed, row.inputs)),
        latency=_latency(row.latency_ms),
        profiled=_latency(row.profiled_latency_ms),
        parts=tuple(map(_part, row.groups)),
        unattributed_ms=row.unattributed_ms,
        overhead_ms=row.overhead_ms,
        kernels=tuple(map(_kernel, row.kernels)),
        value=row.value if isinstance(row, PointRow) else None,
        overlap_ms=row.overlap_ms,
        ungrouped=_part(row.group_balance.ungrouped) if is_own else None,
        held_nbytes=row.held_bytes,
        macs=None if row.macs is UNSET else row.macs,
        axes=tuple(map(_axis, row.axes)),
        clock=clock,
    )


def _feed(row: InputFeed) -> Feed:
    return Feed(
        row.name, row.dtype, tuple(row.shape), row.fill, row.low, row.high, is_sequence=row.sequence is True
    )


def _axis(row: AxisSize) -> Axis:
    return Axis(row.input, row.position, row.name, row.role, row.size, row.decided_by)


def _latency(row: LatencyRow) -> Latency:
    return Latency(
        mean=row.mean,
        median=row.median,
        p90=row.p90,
        p99=row.p99,
        min=row.min,
        runs=row.runs,
        precision=row.precision,
        settled=row.settled,
    )


def _part(row: TimeGroup) -> TimedGroup:
    group = Group(
        name=row.group,
        label=tuple(row.keys),
        parameters=row.parameters,
        stored_elements=row.stored_elements,
        nbytes=row.bytes,
        tensors=row.tensors,
        nodes=row.nodes,
    )
    macs = None if row.macs is UNSET else row.macs
    return TimedGroup(group, row.ms, row.kernels, tuple(row.across), row.error_ms, macs)


def _kernel(row: Kernel) -> KernelTime:
    groups = tuple(row.groups)
    return KernelTime(
        row.name, row.op_type, row.provider, row.ms, groups, row.decided_by, row.nodes, row.across
    )
