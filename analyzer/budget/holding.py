"""A limit + a part of a model, and of a baseline -> whether the limit holds, and by how much it does not."""

from __future__ import annotations

import math
from dataclasses import dataclass

from analyzer.budget.measuring import measure
from analyzer.budget.metrics import Metric
from analyzer.budget.record import Among, AtLeast, AtMost, Limit, Over, Unit
from analyzer.budget.selecting import Selection, Unknown
from analyzer.doubt import Range
from analyzer.units import format_count, format_many

__all__ = ["Outcome", "hold"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was observed beside what was allowed."""

    part: Selection
    observed: int | tuple[str, ...]
    limit: int | tuple[str, ...]
    excess: int
    """How much too much, or too little, or how many names too many; 0 or less where the limit holds."""
    baseline: int | None = None
    beside: Selection | None = None
    """The part of the baseline."""

    @property
    def has_failed(self) -> bool:
        return self.excess > 0


def hold(metric: Metric, limit: Limit, part: Selection, beside: Selection | None = None) -> Outcome | Unknown:
    """Whether a limit holds for a part of a model, whatever could not be read of it: else it is Unknown."""
    found = measure(metric.name, part, lowest=isinstance(limit, AtLeast))
    if isinstance(found, Unknown):
        return found
    outcome = _compare(metric, limit, part, found.observed, beside)
    if isinstance(outcome, Unknown):
        return outcome
    if found.lacking and not _is_settled(metric, limit, outcome):
        return Unknown(found.lacking)  # what is missing may yet be too much, or make up for it
    return outcome if found.range is None else _agree(metric, limit, outcome, found.range, beside)


def _is_settled(metric: Metric, limit: Limit, outcome: Outcome) -> bool:
    """Whether nothing that is missing could change an outcome.

    What is too much stays so with more, and one version that is too low stays the lowest or lower. What lies on disk
    is there, and is enough if it is enough by itself; any other count that is to be reached may also turn out smaller.
    """
    if isinstance(limit, AtLeast) and metric.unit is not Unit.VERSION:
        is_on_disk = metric.name == "external-bytes" or (
            metric.name == "bytes" and outcome.part.kind == "all"
        )
        return is_on_disk and not outcome.has_failed
    return outcome.has_failed


def _agree(
    metric: Metric, limit: Limit, outcome: Outcome, span: Range, beside: Selection | None
) -> Outcome | Unknown:
    """The outcome where both ends of a range have the same; else nobody knows which."""
    for end, why in ((span.least, span.fewer), (span.most, span.more)):
        other = _compare(metric, limit, outcome.part, end, beside)
        if isinstance(other, Unknown) or other.has_failed != outcome.has_failed:
            return Unknown(
                f"between {format_count(span.least)} and {format_many(span.most, 'parameter')}: {why}"
            )
    return outcome


def _compare(
    metric: Metric,
    limit: Limit,
    part: Selection,
    observed: int | tuple[str, ...],
    beside: Selection | None,
) -> Outcome | Unknown:
    match limit:
        case Among(names) if isinstance(observed, tuple):
            return Outcome(part, observed, tuple(sorted(names)), len(set(observed) - names))
        case AtMost(value) if isinstance(observed, int):
            return Outcome(part, observed, value, observed - value)
        case AtLeast(value) if isinstance(observed, int):
            return Outcome(part, observed, value, value - observed)
        case Over() if isinstance(observed, int) and beside is not None:
            return _compare_over(metric, limit, part, observed, beside)
    return Unknown(f"no such limit of {metric.name}")


def _compare_over(
    metric: Metric, limit: Over, part: Selection, observed: int, beside: Selection
) -> Outcome | Unknown:
    before = measure(metric.name, beside, lowest=False)
    if isinstance(before, Unknown):
        return Unknown(f"of the baseline: {before.reason}")
    span = before.range
    unsure = before.lacking or (span.fewer or span.more if span is not None else "")
    if unsure:
        return Unknown(f"of the baseline: {unsure}")
    if not isinstance(before.observed, int):
        return Unknown(f"{metric.name} does not grow")
    allowed = _allow(limit, before.observed)
    if isinstance(allowed, Unknown):
        return allowed
    return Outcome(part, observed, allowed, observed - allowed, before.observed, beside)


def _allow(limit: Over, baseline: int) -> int | Unknown:
    """The number that follows of a baseline: the strictest, and of fractions their whole part."""
    allowed: list[int] = []
    for growth in limit.growths:
        if growth.fraction is None:
            allowed.append(baseline + (growth.amount or 0))
        elif baseline == 0:
            return Unknown(
                "the baseline has 0, of which there is no percentage; write an amount, such as '+0'"
            )
        else:
            allowed.append(math.floor(baseline * (1 + growth.fraction)))
    least = min(allowed, default=baseline)
    if least < 0:
        return Unknown(f"the baseline has {format_count(baseline)}, which cannot become less by so much")
    return least
