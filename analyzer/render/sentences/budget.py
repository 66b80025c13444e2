"""What the formats of `check` say alike: what a rule's parts are counted in, and what those not shown sum to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from analyzer.budget.record import BudgetReport, Contributor, Skipped, Unit, Verdict
from analyzer.units import format_many, format_others

__all__ = ["count_unit", "sum_others", "tell_exceeded", "tell_observed", "tell_unmatched"]

_COUNTED_BY = {Unit.OPERATORS: "nodes", Unit.DOMAINS: "nodes", Unit.DTYPES: "tensors"}
"""What says how much of a name there is."""

_NO_SUMS = {"ir-version", "largest-tensor-bytes", "opset"}
"""Metrics whose parts are no summands."""


def count_unit(unit: Unit) -> str:
    """What the parts of a rule are counted in."""
    return _COUNTED_BY.get(unit, unit.value)


def sum_others(left: Sequence[Contributor], metric: str) -> tuple[str, Contributor | None]:
    """The name of the row of those that are not shown, and what they are together where that is a number.

    >>> sum_others([Contributor("a", 3), Contributor("b", 2)], "bytes")
    ('[2 others]', Contributor(name='[2 others]', value=5, baseline=None))
    """
    title = format_others(len(left))
    if metric in _NO_SUMS:
        return title, None
    before = sum(each.baseline or 0 for each in left)
    has_baseline = any(each.baseline is not None for each in left)
    return title, Contributor(title, sum(each.value for each in left), before if has_baseline else None)


def tell_observed(verdict: Verdict, number: Callable[[int, Unit], str]) -> str:
    """What was observed, by a format's own way of writing a number; how many, where it is names."""
    observed = verdict.observed
    if isinstance(observed, tuple):
        return format_many(len(observed), verdict.unit.removesuffix("s"))
    return "" if observed is None else number(observed, verdict.unit)


def tell_exceeded(verdict: Verdict, number: Callable[[int, Unit], str]) -> str:
    """By how much the limit was missed, in the same way."""
    if verdict.exceeded_by is None:
        return ""
    if isinstance(verdict.observed, tuple):
        return format_many(verdict.exceeded_by, "other")
    return number(verdict.exceeded_by, verdict.unit)


def tell_unmatched(report: BudgetReport) -> Iterator[str]:
    """How many rules were asked of no model: a glob that fits nothing may be a mistake. Nothing where none was."""
    count = sum(verdict.skipped is Skipped.NOT_MATCHED for verdict in report.verdicts)
    if count:
        verb, globs = ("matches", "the glob is") if count == 1 else ("match", "the globs are")
        yield f"{format_many(count, 'rule')} {verb} no model that was checked: see whether {globs} right"
