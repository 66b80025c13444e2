"""A limit + a part of a model, and of a baseline -> whether the limit holds, and by how much it does not."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from analyzer.budget.measuring import measure
from analyzer.budget.metrics import Metric
from analyzer.budget.record import Among, AtLeast, AtMost, Limit, Over, Unit
from analyzer.budget.selecting import Selection, Unknown
from analyzer.doubt import Range
from analyzer.units import format_count

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
    is_hidden = not (isinstance(limit, Over) and beside is not None and _hide_the_same(limit, part, beside))
    found = measure(metric.name, part, lowest=isinstance(limit, AtLeast), is_hidden=is_hidden)
    if isinstance(found, Unknown):
        return found
    outcome = _compare(metric, limit, part, found.observed, beside, is_hidden=is_hidden)
    if isinstance(outcome, Unknown):
        return outcome
    if found.lacking and not _is_settled(metric, limit, outcome):
        return Unknown(found.lacking)  # what is missing may yet be too much, or make up for it
    if found.range is None:
        return outcome
    return _agree(metric, limit, outcome, found.range, beside, is_hidden=is_hidden)


def _hide_the_same(limit: Over, part: Selection, beside: Selection) -> bool:
    """Whether a model and its baseline hide the same parameters in the same tensors: they grow by what they hold.

    Of a limit below the baseline's own number a share of what is hidden would have to be gone.
    """
    if any(growth.fraction is not None and growth.fraction < 0 for growth in limit.growths):
        return False
    mine, theirs = (
        Counter(
            (entry.tensor.name, entry.logical_numel, hides)
            for entry in each.entries
            if (hides := each.whole.doubt.hidden.get(entry.tensor.key)) is not None
        )
        for each in (part, beside)
    )
    return mine == theirs


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
    metric: Metric,
    limit: Limit,
    outcome: Outcome,
    span: Range,
    beside: Selection | None,
    *,
    is_hidden: bool,
) -> Outcome | Unknown:
    """The outcome that both ends of a range have; where one holds and the other does not, nobody knows which.

    What was counted may lie below the range, as where norms were folded: then the end that is nearer is told.
    """
    ends: list[Outcome] = []
    for end, why in ((span.least, span.fewer), (span.most_of_all, span.more)):
        other = _compare(metric, limit, outcome.part, end, beside, is_hidden=is_hidden)
        if isinstance(other, Unknown):
            return other
        if ends and other.has_failed != ends[0].has_failed:
            return Unknown(f"{span.tell()}: {(why or span.fewer) if end > span.least else span.fewer}")
        ends.append(other)
    return outcome if ends[0].has_failed == outcome.has_failed else ends[0]


def _compare(
    metric: Metric,
    limit: Limit,
    part: Selection,
    observed: int | tuple[str, ...],
    beside: Selection | None,
    *,
    is_hidden: bool,
) -> Outcome | Unknown:
    match limit:
        case Among(names) if isinstance(observed, tuple):
            return Outcome(part, observed, tuple(sorted(names)), len(set(observed) - names))
        case AtMost(value) if isinstance(observed, int):
            return Outcome(part, observed, value, observed - value)
        case AtLeast(value) if isinstance(observed, int):
            return Outcome(part, observed, value, value - observed)
        case Over() if isinstance(observed, int) and beside is not None:
            return _compare_over(metric, limit, part, observed, beside, is_hidden=is_hidden)
    return Unknown(f"no such limit of {metric.name}")


def _compare_over(
    metric: Metric, limit: Over, part: Selection, observed: int, beside: Selection, *, is_hidden: bool
) -> Outcome | Unknown:
    before = measure(metric.name, beside, lowest=False, is_hidden=is_hidden)
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
