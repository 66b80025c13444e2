"""A limit + a part of a model and of a baseline -> an outcome with its excess, contributors, and one sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from analyzer.account.doubt import Range
from analyzer.account.group.keys import are_modules
from analyzer.budget.amounts import format_growths
from analyzer.budget.measuring import Metric, Parts, list_parts, measure
from analyzer.budget.record import HIDDEN, Among, AtLeast, AtMost, Contributor, Limit, Over, Rule, Unit
from analyzer.budget.selecting import Selection, Unknown
from analyzer.text import format_count, format_ratio, shorten


class Outcome(NamedTuple):
    """Observed value and the limit it is compared with."""

    part: Selection
    observed: int | tuple[str, ...]
    limit: int | tuple[str, ...]
    excess: int
    """Amount above a maximum or below a minimum, or number of names not allowed; 0 or less where the limit holds."""
    baseline: int | None = None
    baseline_part: Selection | None = None
    """Corresponding part of the baseline."""
    range: Range | None = None
    """Range whose end is the observed value; None where the value is exact."""

    @property
    def has_failed(self) -> bool:
        return self.excess > 0


def compare_with_limit(
    metric: Metric, limit: Limit, part: Selection, baseline_part: Selection | None = None
) -> Outcome | Unknown:
    """Compare a part of a model with a limit; Unknown where unreadable data could change the outcome."""
    is_hidden = not (
        isinstance(limit, Over)
        and baseline_part is not None
        and _have_same_hidden(limit, part, baseline_part)
    )
    found = measure(metric.name, part, lowest=isinstance(limit, AtLeast), is_hidden=is_hidden)
    if isinstance(found, Unknown):
        return found
    outcome = _compare(metric, limit, part, found.observed, baseline_part, is_hidden=is_hidden)
    if isinstance(outcome, Unknown):
        return outcome
    if found.lacking and not _is_settled(metric, limit, outcome):
        return Unknown(found.lacking)  # the missing data may exceed the limit, or reach the minimum
    if found.range is None:
        return outcome
    return _compare_range(metric, limit, outcome, found.range, baseline_part, is_hidden=is_hidden)


def _have_same_hidden(limit: Over, part: Selection, baseline_part: Selection) -> bool:
    """Whether the parameters hidden in tensors are the same in a model and its baseline, and so cancel out.

    False for a limit below the baseline's own number: it requires that a share of the hidden parameters is gone.
    """
    if any(growth.fraction is not None and growth.fraction < 0 for growth in limit.growths):
        return False
    model_counts, baseline_counts = (
        Counter(
            (entry.tensor.name, entry.logical_numel, hides)
            for entry in each.entries
            if (hides := each.whole.doubt.hidden.get(entry.tensor.key)) is not None
        )
        for each in (part, baseline_part)
    )
    return model_counts == baseline_counts


def _is_settled(metric: Metric, limit: Limit, outcome: Outcome) -> bool:
    """Whether missing data cannot change an outcome.

    An exceeded maximum stays exceeded with more data, and a version below its minimum can only become lower. Bytes on
    disk are present, so a minimum that they reach stays reached; any other count may turn out smaller than measured.
    """
    if isinstance(limit, AtLeast) and metric.unit is not Unit.VERSION:
        is_on_disk = metric.name == "external-bytes" or (
            metric.name == "bytes" and outcome.part.kind == "all"
        )
        return is_on_disk and not outcome.has_failed
    return outcome.has_failed


def _compare_range(
    metric: Metric,
    limit: Limit,
    outcome: Outcome,
    span: Range,
    baseline_part: Selection | None,
    *,
    is_hidden: bool,
) -> Outcome | Unknown:
    """Return the outcome of the end nearest to the limit if it is that of both ends of a range; else Unknown.

    So the room up to a limit, or the excess over it, is the least that the range leaves.
    """
    ends: list[Outcome] = []
    for end, reason in ((span.least, span.fewer), (span.most_of_all, span.more)):
        other = _compare(metric, limit, outcome.part, end, baseline_part, is_hidden=is_hidden)
        if isinstance(other, Unknown):
            return other
        if ends and other.has_failed != ends[0].has_failed:
            return Unknown(f"{span.describe()}: {(reason or span.fewer) if end > span.least else span.fewer}")
        ends.append(other)
    nearest = max(ends, key=lambda end: -end.excess if end.has_failed else end.excess)
    return nearest if span.is_exact else nearest._replace(range=span)


def _compare(
    metric: Metric,
    limit: Limit,
    part: Selection,
    observed: int | tuple[str, ...],
    baseline_part: Selection | None,
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
        case Over() if isinstance(observed, int) and baseline_part is not None:
            return _compare_over(metric, limit, part, observed, baseline_part, is_hidden=is_hidden)
    return Unknown(f"no such limit of {metric.name}")


def _compare_over(
    metric: Metric, limit: Over, part: Selection, observed: int, baseline_part: Selection, *, is_hidden: bool
) -> Outcome | Unknown:
    before = measure(metric.name, baseline_part, lowest=False, is_hidden=is_hidden)
    if isinstance(before, Unknown):
        return Unknown(f"in the baseline: {before.reason}")
    span = before.range
    uncertainty = before.lacking or (span.fewer or span.more if span is not None else "")
    if uncertainty:
        return Unknown(f"in the baseline: {uncertainty}")
    if not isinstance(before.observed, int):
        return Unknown(f"{metric.name} does not grow")
    allowed = _compute_allowed(limit, before.observed)
    if isinstance(allowed, Unknown):
        return allowed
    return Outcome(part, observed, allowed, observed - allowed, before.observed, baseline_part)


def _compute_allowed(limit: Over, baseline: int) -> int | Unknown:
    """Return the number that the strictest growth over a baseline allows, rounded down."""
    allowed: list[int] = []
    for growth in limit.growths:
        if growth.fraction is None:
            allowed.append(baseline + (growth.amount or 0))
        elif baseline == 0:
            return Unknown("a percentage of a baseline of 0 has no meaning; write an amount, such as '+0'")
        else:
            allowed.append(math.floor(baseline * (1 + growth.fraction)))
    least = min(allowed, default=baseline)
    if least < 0:
        return Unknown(f"the baseline of {format_count(baseline)} is less than the required decrease")
    return least


def list_contributors(
    metric: Metric, limit: Limit, failed: Sequence[tuple[Selection, Outcome]], evaluated: int
) -> tuple[Contributor, ...]:
    """Return the largest parts, or the largest changes against a baseline; of several groups, those that fail."""
    if evaluated > 1:
        worst = sorted(failed, key=lambda pair: -pair[1].excess)
        return tuple(_make_contributor(part, outcome) for part, outcome in worst)
    part, outcome = failed[0]
    baseline_part = outcome.baseline_part
    if baseline_part is not None:
        return _list_changes(metric, part, baseline_part)
    parts = list_parts(metric.name, part)
    if isinstance(parts, Unknown):
        return ()
    if isinstance(limit, Among):
        parts = {name: number for name, number in parts.items() if name not in limit.names}
    smallest_first = metric.unit is Unit.VERSION and isinstance(limit, AtLeast)
    listed = [Contributor(name, number) for name, number in parts.items() if number]
    if outcome.range is not None and isinstance(outcome.observed, int):
        hidden = outcome.observed - sum(parts.values())
        listed += [Contributor(HIDDEN, hidden)] if hidden > 0 else []
    return _sort(listed, smallest_first)


def _make_contributor(part: Selection, outcome: Outcome) -> Contributor:
    observed = outcome.observed
    value = observed if isinstance(observed, int) else outcome.excess  # for names, those not allowed
    return Contributor(part.name, value, outcome.baseline)


def _list_changes(metric: Metric, part: Selection, baseline_part: Selection) -> tuple[Contributor, ...]:
    """Return the changed parts from the largest growth to the largest reduction."""
    by = depth = None
    if part.kind == "all":
        from analyzer.comparison import group_alike  # only growth needs it

        have_modules = all(map(are_modules, (part.ledger, baseline_part.ledger)))
        grouping, _ = group_alike(part.ledger, baseline_part.ledger, "scope" if have_modules else None)
        by, depth = grouping.by, grouping.depth
    after, before = (
        list_parts(metric.name, part, by, depth),
        list_parts(metric.name, baseline_part, by, depth),
    )
    if isinstance(after, Unknown):
        return ()
    if isinstance(before, Unknown):
        return _sort([Contributor(name, number) for name, number in after.items() if number])
    pairs = _pair_contributors(after, before)
    changed = [one for one in pairs if one.value != one.baseline]
    return tuple(sorted(changed, key=lambda one: ((one.baseline or 0) - one.value, one.name)))


def _pair_contributors(after: Parts, before: Parts) -> list[Contributor]:
    names = dict.fromkeys((*after, *before))
    return [Contributor(name, after.get(name, 0), before.get(name, 0)) for name in names]


def _sort(contributors: list[Contributor], smallest_first: bool = False) -> tuple[Contributor, ...]:
    sign = 1 if smallest_first else -1
    return tuple(sorted(contributors, key=lambda one: (sign * one.value, one.name)))


_LONGEST = 100
"""Maximum length of a name in a sentence, in characters."""

_MOST_NAMES = 5
"""Maximum number of names in a sentence."""

_NOUNS: Mapping[str, tuple[str, str]] = {
    "parameters": ("parameter", "parameters"),
    "bytes": ("byte", "bytes"),
    "stored-elements": ("stored element", "stored elements"),
    "stored-bytes": ("byte of payload", "bytes of payload"),
    "tensors": ("stored tensor", "stored tensors"),
    "nodes": ("node", "nodes"),
    "metadata-bytes": ("byte of metadata", "bytes of metadata"),
    "orphaned-bytes": ("byte without a use", "bytes without a use"),
    "external-bytes": ("byte of external data", "bytes of external data"),
    "quantization-bytes": ("byte of quantization", "bytes of quantization"),
    "largest-tensor-bytes": ("byte of the largest tensor", "bytes of the largest tensor"),
    "unattributed": ("unattributed element", "unattributed elements"),
    "opaque": ("opaque element", "opaque elements"),
    "calls": ("call of a function", "calls of functions"),
    "duplicates": ("byte that is stored again", "bytes that are stored again"),
    "unused-bytes": ("byte that no output depends on", "bytes that no output depends on"),
    "unused-tensors": ("initializer that no output depends on", "initializers that no output depends on"),
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


def describe_failure(
    rule: Rule,
    metric: Metric,
    part: Selection,
    outcome: Outcome,
    baseline: str | None,
    failed: tuple[int, int],
) -> str:
    """Describe the violation of a limit.

    Args:
        rule: rule whose limit does not hold.
        metric: the rule's metric.
        part: all of the model, or the worst group.
        outcome: outcome of that part.
        baseline: the baseline's name, for a limit over one.
        failed: number of groups that failed, and number of groups evaluated.
    """
    several = f"; {failed[0]:,} of {failed[1]:,} groups fail" if failed[1] > 1 else ""
    if isinstance(outcome.observed, tuple):
        return _name_prefix(part) + _describe_names(metric, outcome, rule.limit) + several
    assert isinstance(outcome.limit, int)
    side = "less" if isinstance(rule.limit, AtLeast) else "more"
    word = "required" if isinstance(rule.limit, AtLeast) else "allowed"
    if outcome.limit == 0 and outcome.baseline is None:
        return f"{_name_prefix(part)}{_observed(metric, outcome)}, where none is allowed{several}"
    is_one = metric.unit is Unit.VERSION or outcome.observed == 1
    least = "at least " if outcome.range is not None else ""
    text = (
        f"{_observed(metric, outcome)}{_growth(outcome)} {'is' if is_one else 'are'} "
        f"{least}{format_count(outcome.excess)} {side} than the {format_count(outcome.limit)} {word}"
    )
    return _name_prefix(part) + text + _explain(rule.limit, outcome, baseline) + several


def describe_success(rule: Rule, metric: Metric, part: Selection, outcome: Outcome) -> str:
    """Describe the observed value and the limit that it meets."""
    if isinstance(outcome.observed, tuple):
        return f"{_name_prefix(part)}{_count(metric, len(outcome.observed))}, all allowed"
    assert isinstance(outcome.limit, int)
    side, word = ("least", "required") if isinstance(rule.limit, AtLeast) else ("most", "allowed")
    is_one = metric.unit is Unit.VERSION or outcome.limit == 1
    found = f"{_observed(metric, outcome)}{_growth(outcome)}"
    return f"{_name_prefix(part)}{found}; at {side} {format_count(outcome.limit)} {'is' if is_one else 'are'} {word}"


def _name_prefix(part: Selection) -> str:
    return "" if part.kind == "all" else f"{shorten(part.name, _LONGEST)}: "


def _observed(metric: Metric, outcome: Outcome) -> str:
    """Return the observed number, or its range, with the noun of the metric."""
    assert isinstance(outcome.observed, int)
    return _count(metric, outcome.observed) if outcome.range is None else outcome.range.describe()


def _count(metric: Metric, number: int) -> str:
    if metric.name in _VERSIONS:
        return f"{_VERSIONS[metric.name]} {number}"
    one, many = _NOUNS[metric.name]
    return f"{format_count(number)} {one if number == 1 else many}"


def _growth(outcome: Outcome) -> str:
    """Return the growth over a baseline, as a signed percentage; "" where there is none."""
    before, observed = outcome.baseline, outcome.observed
    if before is None or not isinstance(observed, int) or before in (0, observed):
        return ""
    difference = observed - before
    return f" ({'+' if difference > 0 else '-'}{format_ratio(abs(difference) / before)})"


def _explain(limit: Limit, outcome: Outcome, baseline: str | None) -> str:
    """Describe the derivation of a limit from a baseline."""
    if not isinstance(limit, Over) or outcome.baseline is None:
        return ""
    name = shorten(baseline or "", _LONGEST)
    return f" ({format_growths(limit.growths)} over the {format_count(outcome.baseline)} of {name})"


def _describe_names(metric: Metric, outcome: Outcome, limit: Limit) -> str:
    assert isinstance(outcome.observed, tuple)
    allowed = outcome.limit if isinstance(outcome.limit, tuple) else ()
    extra = sorted(set(outcome.observed) - set(allowed))
    shown = ", ".join(shorten(name, _LONGEST) for name in extra[:_MOST_NAMES])
    others = f" and {len(extra) - _MOST_NAMES:,} more" if len(extra) > _MOST_NAMES else ""
    verb = "is" if len(extra) == 1 else "are"
    return f"{_count(metric, len(extra))} {verb} not allowed: {shown}{others}"
