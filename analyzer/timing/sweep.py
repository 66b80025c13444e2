"""A sweep -> how its latency, its groups and its rows grow with the length."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.group.keys import Label
from analyzer.timing.growth import Growth, fit_growth
from analyzer.timing.record import Part, Point, Timing
from analyzer.timing.rows import TimeRow

__all__ = ["grow_latency", "grow_parts", "grow_row", "lengths"]


def lengths(timing: Timing) -> tuple[int, ...]:
    """The lengths that were measured, in their order."""
    return tuple(point.value or 0 for point in timing.points)


def grow_latency(timing: Timing) -> Growth | None:
    """How the mean run without profiling grows."""
    latencies = [point.latency for point in timing.points]
    errors = [latency.precision * latency.median for latency in latencies]
    return fit_growth(lengths(timing), [latency.mean for latency in latencies], errors)


def grow_parts(timing: Timing) -> tuple[tuple[str, tuple[str, ...], Growth | None], ...]:
    """Of each part of any point its name, the groups that it is fused across, and its growth."""
    by_point = [_by_label(point) for point in timing.points]
    known = {key: part for parts in by_point for key, part in parts.items()}
    return tuple(
        (part.group.name, part.across, _grow([parts.get(key) for parts in by_point], timing))
        for key, part in known.items()
    )


def _by_label(point: Point) -> dict[tuple[Label, tuple[str, ...]], Part]:
    return {(part.group.label, part.across): part for part in point.parts}


def _grow(parts: Sequence[Part | None], timing: Timing) -> Growth | None:
    times = [part.ms if part else 0.0 for part in parts]
    errors = [part.error_ms if part else 0.0 for part in parts]
    return fit_growth(lengths(timing), times, errors)


def grow_row(row: TimeRow, timing: Timing) -> Growth | None:
    """How a row of the table grows, which may stand for several groups."""
    return fit_growth(lengths(timing), row.ms, row.errors)
