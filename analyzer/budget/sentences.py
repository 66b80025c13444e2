"""What came of a rule -> one sentence for people."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.budget.holding import Outcome
from analyzer.budget.limits import format_growths
from analyzer.budget.metrics import Metric
from analyzer.budget.record import AtLeast, Limit, Over, Rule, Unit
from analyzer.budget.selecting import Selection
from analyzer.units import format_count, format_ratio, shorten

__all__ = ["say_failed", "say_passed"]

_LONGEST = 100
"""Characters of a name in a sentence."""

_MOST_NAMES = 5
"""Names that a sentence has."""

_NOUNS: Mapping[str, tuple[str, str]] = {
    "parameters": ("parameter", "parameters"),
    "bytes": ("byte", "bytes"),
    "stored-elements": ("stored element", "stored elements"),
    "stored-bytes": ("byte of payload", "bytes of payload"),
    "tensors": ("stored tensor", "stored tensors"),
    "nodes": ("node", "nodes"),
    "metadata-bytes": ("byte of metadata", "bytes of metadata"),
    "orphaned-bytes": ("byte that serves nobody", "bytes that serve nobody"),
    "external-bytes": ("byte of external data", "bytes of external data"),
    "quantization-bytes": ("byte of quantization", "bytes of quantization"),
    "largest-tensor-bytes": ("byte of the largest tensor", "bytes of the largest tensor"),
    "unattributed": ("unattributed element", "unattributed elements"),
    "opaque": ("opaque element", "opaque elements"),
    "calls": ("call of a function", "calls of functions"),
    "duplicates": ("byte that is stored again", "bytes that are stored again"),
    "external-outside": (
        "tensor with its data outside the model's folder",
        "tensors with their data outside the model's folder",
    ),
    "findings": ("finding", "findings"),
    "ops": ("operator", "operators"),
    "domains": ("domain", "domains"),
    "dtypes": ("dtype", "dtypes"),
}
_VERSIONS: Mapping[str, str] = {"opset": "opset", "ir-version": "IR version"}


def say_failed(
    rule: Rule,
    metric: Metric,
    part: Selection,
    outcome: Outcome,
    baseline: str | None,
    failed: tuple[int, int],
) -> str:
    """What is wrong.

    Args:
        rule: whose limit does not hold.
        metric: the rule's.
        part: all of the model, or the group that is worst.
        outcome: of that part.
        baseline: its name, where the limit is over one.
        failed: how many groups failed, and how many were asked.
    """
    several = f"; {failed[0]:,} of {failed[1]:,} groups fail" if failed[1] > 1 else ""
    if isinstance(outcome.observed, tuple):
        return _of(part) + _say_names(metric, outcome, rule.limit) + several
    assert isinstance(outcome.limit, int)
    side = "less" if isinstance(rule.limit, AtLeast) else "more"
    word = "required" if isinstance(rule.limit, AtLeast) else "allowed"
    if outcome.limit == 0 and outcome.baseline is None:
        return f"{_of(part)}{_count(metric, outcome.observed)}, where none is allowed{several}"
    is_one = metric.unit is Unit.VERSION or outcome.observed == 1
    text = (
        f"{_count(metric, outcome.observed)}{_growth(outcome)} {'is' if is_one else 'are'} "
        f"{format_count(outcome.excess)} {side} than the {format_count(outcome.limit)} {word}"
    )
    return _of(part) + text + _explain(rule.limit, outcome, baseline) + several


def say_passed(rule: Rule, metric: Metric, part: Selection, outcome: Outcome) -> str:
    """What was observed, and what was allowed."""
    if isinstance(outcome.observed, tuple):
        return f"{_of(part)}{_count(metric, len(outcome.observed))}, all of which may be there"
    assert isinstance(outcome.limit, int)
    side, word = ("least", "required") if isinstance(rule.limit, AtLeast) else ("most", "allowed")
    is_one = metric.unit is Unit.VERSION or outcome.limit == 1
    found = f"{_count(metric, outcome.observed)}{_growth(outcome)}"
    return f"{_of(part)}{found}; at {side} {format_count(outcome.limit)} {'is' if is_one else 'are'} {word}"


def _of(part: Selection) -> str:
    return "" if part.kind == "all" else f"{shorten(part.name, _LONGEST)}: "


def _count(metric: Metric, number: int) -> str:
    if metric.name in _VERSIONS:
        return f"{_VERSIONS[metric.name]} {number}"
    one, many = _NOUNS[metric.name]
    return f"{format_count(number)} {one if number == 1 else many}"


def _growth(outcome: Outcome) -> str:
    """By how much it has grown over a baseline, which may be nothing."""
    before, observed = outcome.baseline, outcome.observed
    if before is None or not isinstance(observed, int) or before in (0, observed):
        return ""
    difference = observed - before
    return f" ({'+' if difference > 0 else '-'}{format_ratio(abs(difference) / before)})"


def _explain(limit: Limit, outcome: Outcome, baseline: str | None) -> str:
    """Where a limit over a baseline comes from."""
    if not isinstance(limit, Over) or outcome.baseline is None:
        return ""
    name = shorten(baseline or "", _LONGEST)
    return f" ({format_growths(limit.growths)} over the {format_count(outcome.baseline)} of {name})"


def _say_names(metric: Metric, outcome: Outcome, limit: Limit) -> str:
    assert isinstance(outcome.observed, tuple)
    allowed = outcome.limit if isinstance(outcome.limit, tuple) else ()
    extra = sorted(set(outcome.observed) - set(allowed))
    shown = ", ".join(shorten(name, _LONGEST) for name in extra[:_MOST_NAMES])
    others = f" and {len(extra) - _MOST_NAMES:,} more" if len(extra) > _MOST_NAMES else ""
    verb = "is" if len(extra) == 1 else "are"
    return f"{_count(metric, len(extra))} {verb} not allowed: {shown}{others}"
