"""Findings -> the order in which people read them, and how many of each severity there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from analyzer.ledger import Finding, Severity
from analyzer.units import format_many

__all__ = ["WORST_FIRST", "count_severities", "worst_first"]

_T = TypeVar("_T")

WORST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


def worst_first(found: Iterable[_T], severity: Callable[[_T], str]) -> list[_T]:
    """Errors, then warnings, then notes; those of one severity as they were.

    >>> worst_first([("a", "note"), ("b", "error"), ("c", "note")], lambda each: each[1])
    [('b', 'error'), ('a', 'note'), ('c', 'note')]
    """
    ranks = {each.value: rank for rank, each in enumerate(WORST_FIRST)}
    return sorted(found, key=lambda each: ranks.get(severity(each), len(ranks)))


def count_severities(findings: Iterable[Finding]) -> str:
    """How many of each severity there are, the worst first; "" where there are none.

    >>> count_severities([Finding("a", Severity.NOTE, ""), Finding("b", Severity.ERROR, "")])
    '1 error, 1 note'
    """
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(format_many(counts[each], each.value) for each in WORST_FIRST if counts[each])
