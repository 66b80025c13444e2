"""A timing + its ledger -> the timing with the multiply-accumulates of each group at each point."""

from __future__ import annotations

from analyzer.account.ledger import Ledger
from analyzer.cost.account import measure_cost
from analyzer.records import replace
from analyzer.timing.record import Point, Timing


def with_work(timing: Timing, ledger: Ledger) -> Timing:
    """Add the work of each group's nodes; not for the user's own groups, which may overlap.

    Raises:
        UsageError: a size of the timing names no axis of the ledger's model.
    """
    if timing.grouping.by == "group":
        return timing
    return replace(timing, points=tuple(_with_work(point, timing, ledger) for point in timing.points))


def _with_work(point: Point, timing: Timing, ledger: Ledger) -> Point:
    grouping = timing.grouping
    sizes = {f"{axis.input}.{axis.position}": axis.size for axis in point.axes}
    report = measure_cost(ledger, grouping.by, grouping.depth, sizes, is_lenient=True)
    groups = {group.name: group.sums.macs for group in report.groups}
    uncounted = {row.group for row in report.unknown}
    parts = tuple(
        part
        if part.across or part.group.name in uncounted
        else replace(part, macs=report.at(groups.get(part.group.name, 0)))
        for part in point.parts
    )
    whole = report.at(report.total.macs) if report.is_complete else None
    return replace(point, parts=parts, macs=whole)
