"""Timings, of one measurement or a sweep, and comparisons of two -> JSON documents; times are milliseconds."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from analyzer.account.ledger import Group
from analyzer.comparison import Pair
from analyzer.documents import compare as compare_records
from analyzer.documents import compare_time as compare_time_records
from analyzer.documents import shared as shared_records
from analyzer.documents import time as time_records
from analyzer.formats.json.parts import Fields, head, utf8
from analyzer.timing.record import Axis, KernelTime, Latency, Point, TimedGroup, Timing
from analyzer.timing.request import Feed
from analyzer.timing.rows import Growth, grow_latency, grow_parts, total_group
from analyzer.timing.running.session import Fallback, copies, fallbacks
from analyzer.timing.side_by_side import Measured, PointComparison, TimePair, TimingComparison

Timed = time_records.TimeDocument | time_records.SweepDocument
Compared = compare_time_records.CompareTimeDocument | compare_time_records.CompareSweepDocument


def document_timed(report: Timing | TimingComparison) -> Timed | Compared:
    """Return the document of `time`, or of `compare` on two of its reports."""
    return document_timing(report) if isinstance(report, Timing) else document_timing_comparison(report)


def document_timing(timing: Timing) -> Timed:
    """Return the document of `time`: one measurement, or a sweep with one for each length."""
    shared: Fields = {
        **head(timing.stamp),
        "model": time_records.TimeModel(
            path=utf8(timing.path), parameters=timing.parameters, file_bytes=timing.file_nbytes
        ),
        "provider": timing.settings.provider,
        "device": timing.environment.device,
        "settings": _settings(timing),
        "environment": _environment(timing),
        "by": timing.grouping.by,
        "depth": timing.grouping.depth,
        "match": timing.grouping.match,
        "groups_from": timing.grouping.origin,
    }
    if timing.axis is None:
        return time_records.TimeDocument(**shared, **_point(timing, timing.points[0]))
    return time_records.SweepDocument(
        **shared,
        axis=timing.axis,
        points=[
            time_records.Point(value=point.value or 0, **_point(timing, point)) for point in timing.points
        ],
        latency_growth=_growth(grow_latency(timing)),
        growth=[
            time_records.GroupGrowth(group=name, across=list(across), growth=_growth(growth))
            for name, across, growth in grow_parts(timing)
        ],
    )


def _settings(timing: Timing) -> time_records.Settings:
    settings, schedule = (timing.settings, timing.settings.schedule)
    return time_records.Settings(
        provider_options=dict(settings.provider_options),
        threads=settings.threads,
        optimization=settings.optimization,
        seed=settings.seed,
        runs=schedule.runs,
        warmup=schedule.warmup,
        fewest=schedule.fewest,
        most=schedule.most,
        seconds=float(schedule.seconds),
        precision=schedule.precision,
    )


def _environment(timing: Timing) -> time_records.Environment:
    environment = timing.environment
    return time_records.Environment(
        providers=list(environment.providers),
        versions=dict(environment.versions),
        threads=environment.threads,
        cores=environment.cores,
        precision=dict(environment.precision),
        clocks=dict(environment.clocks),
        load_ms=environment.load_ms,
        peak_rss_bytes=environment.peak_rss_nbytes,
        messages=list(environment.messages),
        kernel_clock=environment.kernel_clock,
        order=environment.order,
    )


def _point(timing: Timing, point: Point) -> Fields:
    """Return the fields of one measurement: inputs, latencies, and the times of groups and kernels."""
    whole = total_group(timing)
    ungrouped = point.ungrouped or TimedGroup(timing.grouping.ungrouped, 0.0, 0)
    name = next(iter(timing.environment.providers), "")
    return {
        "inputs": list(map(_feed, point.feeds)),
        "axes": list(map(_axis, point.axes)),
        "runs": point.latency.runs,
        "latency_ms": _latency(point.latency),
        "profiled_latency_ms": _latency(point.profiled),
        "profiling_ms": point.profiled.mean - point.latency.mean,
        "scale": point.scale,
        "device_ms": UNSET if point.device_ms is None else point.device_ms,
        "groups": [_part(part, point, whole) for part in point.parts],
        "overlap_ms": point.overlap_ms,
        "ungrouped_ms": ungrouped.ms,
        "group_balance": time_records.TimeGroupBalance(
            overlap=_part(TimedGroup(timing.grouping.overlap, point.overlap_ms, 0), point, whole),
            ungrouped=_part(ungrouped, point, whole),
        ),
        "unattributed_ms": point.unattributed_ms,
        "overhead_ms": point.overhead_ms,
        "held_bytes": point.held_nbytes,
        "macs": point.macs,
        "macs_per_second": _rate(point.macs, point.latency.mean),
        "fallback": _elsewhere(fallbacks(name, point.kernels)),
        "copies": _elsewhere(copies(point.kernels)),
        "kernels": [_kernel(kernel) for kernel in point.kernels],
    }


def _feed(feed: Feed) -> time_records.InputFeed:
    return time_records.InputFeed(
        name=feed.name,
        dtype=feed.dtype,
        shape=list(feed.shape),
        fill=feed.fill,
        low=feed.low,
        high=feed.high,
        sequence=feed.is_sequence or UNSET,
    )


def _axis(axis: Axis) -> time_records.AxisSize:
    return time_records.AxisSize(
        input=axis.input,
        position=axis.position,
        name=axis.name,
        role=axis.role,
        size=axis.size,
        decided_by=axis.reason,
    )


def _latency(latency: Latency) -> time_records.Latency:
    return time_records.Latency(
        mean=latency.mean,
        median=latency.median,
        p90=latency.p90,
        p99=latency.p99,
        min=latency.min,
        runs=latency.runs,
        precision=latency.precision,
        settled=latency.settled,
    )


def _part(part: TimedGroup, point: Point, whole: Group) -> time_records.TimeGroup:
    group = part.group
    return time_records.TimeGroup(
        group=group.name,
        keys=list(group.label),
        across=list(part.across),
        ms=part.ms,
        share=_share(part.ms, point.profiled.mean),
        scaled_ms=part.ms * point.scale,
        error_ms=part.error_ms,
        kernels=part.kernels,
        parameters=group.parameters,
        parameter_share=_share(group.parameters, whole.parameters),
        bytes=group.nbytes,
        byte_share=_share(group.nbytes, whole.nbytes),
        stored_elements=group.stored_elements,
        tensors=group.tensors,
        nodes=group.nodes,
        macs=part.macs,
        macs_per_second=_rate(part.macs, part.ms * point.scale if _has_own_kernels(part, point) else 0.0),
    )


def _has_own_kernels(part: TimedGroup, point: Point) -> bool:
    """Whether no kernel computes nodes of this group and of others."""
    return not any(part.group.name in other.across for other in point.parts)


def _rate(macs: int | None, ms: float) -> float | None:
    return None if macs is None or ms <= 0 else macs / (ms / 1e3)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _elsewhere(found: Iterable[Fallback]) -> list[time_records.Elsewhere]:
    return [
        time_records.Elsewhere(
            provider=row.provider, op_type=row.op_type, kernels=len(row.kernels), ms=row.ms
        )
        for row in found
    ]


def _kernel(kernel: KernelTime) -> time_records.Kernel:
    return time_records.Kernel(
        name=kernel.name,
        op_type=kernel.op_type,
        provider=kernel.provider,
        ms=kernel.ms,
        groups=list(kernel.groups),
        decided_by=kernel.decided_by,
        nodes=kernel.nodes,
        across=kernel.is_across,
    )


def _growth(growth: Growth | None) -> time_records.Growth | None:
    if growth is None:
        return None
    return time_records.Growth(
        order=growth.order,
        constant=growth.constant,
        linear=growth.linear,
        quadratic=growth.quadratic,
        share=growth.share,
        r2=growth.r2,
        points=growth.points,
    )


def document_timing_comparison(report: TimingComparison) -> Compared:
    """Return the document of `compare` on two saved timings."""
    shared: Fields = {
        **head(),
        "a": utf8(report.a),
        "b": utf8(report.b),
        "measured": [_measured(row) for row in report.measured],
        "by": report.by,
        "depth": report.depth,
        "match": report.match,
        "groups_from": shared_records.GroupsFrom(a=report.origins[0], b=report.origins[1]),
    }
    counts: Fields = {"parameters": _counts(report.parameters), "bytes": _counts(report.file_nbytes)}
    if report.axis is None:
        (point,) = report.points
        totals = compare_time_records.CompareTimeTotals(**_latencies(point), **counts)
        return compare_time_records.CompareTimeDocument(**shared, totals=totals, **_compared(point))
    return compare_time_records.CompareSweepDocument(
        **shared,
        axis=report.axis,
        totals=compare_time_records.CompareSweepTotals(**counts),
        points=[
            compare_time_records.ComparedPoint(
                value=point.value or 0, **_latencies(point), **_compared(point)
            )
            for point in report.points
        ],
    )


def _latencies(point: PointComparison) -> Fields:
    return {"latency_ms": _times(point.latency), "profiled_latency_ms": _times(point.profiled)}


def _compared(point: PointComparison) -> Fields:
    return {
        "groups": list(map(_time_pair, point.groups)),
        "overlap_ms": _times(point.overlap),
        "ungrouped_ms": _times(point.ungrouped),
        "unattributed_ms": _times(point.unattributed),
        "overhead_ms": _times(point.overhead),
    }


def _time_pair(pair: TimePair) -> compare_time_records.TimePair:
    return compare_time_records.TimePair(
        group=pair.name,
        keys=list(pair.label),
        across=list(pair.across),
        status=pair.status,
        ms=_times(pair.ms),
        error_ms=compare_time_records.ErrorMs(a=pair.errors[0], b=pair.errors[1]),
        parameters=_counts(pair.parameters),
        bytes=_counts(pair.nbytes),
    )


def _measured(row: Measured) -> compare_time_records.Measured:
    return compare_time_records.Measured(what=row.what, a=row.a, b=row.b)


def _times(pair: Pair[float]) -> compare_time_records.MsPair:
    return compare_time_records.MsPair(
        a=pair.a, b=pair.b, difference=pair.difference, change=pair.change, ratio=pair.ratio
    )


def _counts(pair: Pair[int]) -> compare_records.Pair:
    return compare_records.Pair(
        a=pair.a, b=pair.b, difference=pair.difference, change=pair.change, ratio=pair.ratio
    )
