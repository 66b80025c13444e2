"""TimingComparison -> what of it is worth a row."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.comparison import Pair
from analyzer.timing.side_by_side import PointComparison, TimePair, TimingComparison

__all__ = ["is_something", "list_others"]


def is_something(pair: TimePair) -> bool:
    """Whether there is anything but zeros to print of a group."""
    return any((pair.ms.a, pair.ms.b, pair.parameters.a, pair.parameters.b, pair.nbytes.a, pair.nbytes.b))


def list_others(report: TimingComparison, point: PointComparison) -> Iterator[tuple[str, Pair[float]]]:
    """The times that no group has."""
    if report.by == "group":
        yield "[ungrouped]", point.ungrouped
        yield "[overlap]", Pair(-point.overlap.a, -point.overlap.b)
    yield "[unattributed]", point.unattributed
    yield "[overhead]", point.overhead
