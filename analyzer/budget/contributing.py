"""What failed -> the parts of it that are the largest, or have grown most."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.budget.holding import Outcome
from analyzer.budget.measuring import Parts, list_parts
from analyzer.budget.metrics import Metric
from analyzer.budget.record import Among, AtLeast, Contributor, Limit, Unit
from analyzer.budget.selecting import Selection, Unknown
from analyzer.comparison import group_alike

__all__ = ["list_contributors"]


def list_contributors(
    metric: Metric, limit: Limit, failed: Sequence[tuple[Selection, Outcome]], asked: int
) -> tuple[Contributor, ...]:
    """The largest parts, or beside a baseline the largest changes; where several groups were asked, those that fail."""
    if asked > 1:
        worst = sorted(failed, key=lambda pair: -pair[1].excess)
        return tuple(_name_group(part, outcome) for part, outcome in worst)
    part, outcome = failed[0]
    beside = outcome.beside
    if beside is not None:
        return _list_changes(metric, part, beside)
    parts = list_parts(metric.name, part)
    if isinstance(parts, Unknown):
        return ()
    if isinstance(limit, Among):
        parts = {name: number for name, number in parts.items() if name not in limit.names}
    smallest_first = metric.unit is Unit.VERSION and isinstance(limit, AtLeast)
    return _sort([Contributor(name, number) for name, number in parts.items() if number], smallest_first)


def _name_group(part: Selection, outcome: Outcome) -> Contributor:
    observed = outcome.observed
    value = observed if isinstance(observed, int) else outcome.excess  # of names those that are not allowed
    return Contributor(part.name, value, outcome.baseline)


def _list_changes(metric: Metric, part: Selection, beside: Selection) -> tuple[Contributor, ...]:
    """What has grown most first, and what has shrunk most last; what is as it was is left out."""
    by = depth = None
    if part.kind == "all":
        grouping, _ = group_alike(part.ledger, beside.ledger)
        by, depth = grouping.by, grouping.depth
    after, before = list_parts(metric.name, part, by, depth), list_parts(metric.name, beside, by, depth)
    if isinstance(after, Unknown):
        return ()
    if isinstance(before, Unknown):
        return _sort([Contributor(name, number) for name, number in after.items() if number])
    pairs = _pair(after, before)
    changed = [one for one in pairs if one.value != one.baseline]
    return tuple(sorted(changed, key=lambda one: ((one.baseline or 0) - one.value, one.name)))


def _pair(after: Parts, before: Parts) -> list[Contributor]:
    names = dict.fromkeys((*after, *before))
    return [Contributor(name, after.get(name, 0), before.get(name, 0)) for name in names]


def _sort(found: list[Contributor], smallest_first: bool = False) -> tuple[Contributor, ...]:
    sign = 1 if smallest_first else -1
    return tuple(sorted(found, key=lambda one: (sign * one.value, one.name)))
