"""Rules + ledgers -> a verdict of each rule on each model that it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from analyzer.budget.baselines import Baselines
from analyzer.budget.contributing import list_contributors
from analyzer.budget.holding import Outcome, hold
from analyzer.budget.limits import NAMES
from analyzer.budget.matching import matches
from analyzer.budget.metrics import METRICS, Metric
from analyzer.budget.record import (
    Among,
    AtLeast,
    AtMost,
    Contributor,
    Over,
    Rule,
    Skipped,
    Status,
    Unit,
    Verdict,
)
from analyzer.budget.selecting import Endless, Selection, Unknown, select
from analyzer.budget.sentences import say_failed, say_passed
from analyzer.errors import UsageError
from analyzer.group.patterns import Searcher
from analyzer.ledger import Ledger
from analyzer.units import format_many

__all__ = ["check_budget", "is_about", "skip"]

_NO_GROUPS: Mapping[str, Searcher] = MappingProxyType({})


def check_budget(
    rules: Iterable[Rule],
    models: Mapping[str, Ledger],
    *,
    baseline: str | None = None,
    read: Callable[[str], Ledger],
    groups: Mapping[str, Searcher] = _NO_GROUPS,
    is_any_baseline: bool = False,
) -> tuple[Verdict, ...]:
    """Ask every rule of every model that its glob matches: rules in their order, then models in theirs.

    A rule that should be evaluated and cannot be is SKIP with `not-evaluated` and says why; it never passes.

    Args:
        rules: the lines of the budget.
        models: ledgers by the path as it was named.
        baseline: the saved report or model that relative limits are over where they name none.
        read: audits a model, or loads a saved report, by its name; asked once for each name.
        groups: the project's own groups, by name.
        is_any_baseline: whether a baseline of another model is one too.

    Raises:
        UsageError: a rule names a metric that there is not.
    """
    judge = _Judge(Baselines(baseline, read, is_any_allowed=is_any_baseline), groups)
    return tuple(verdict for rule in rules for verdict in judge.ask(rule, models))


def is_about(rule: Rule, path: str) -> bool:
    """Whether a rule's glob fits a model's path, as it was named."""
    return matches(path, rule.match)


class _Judge:
    """What all rules are asked with."""

    def __init__(self, baselines: Baselines, groups: Mapping[str, Searcher]) -> None:
        self._baselines, self._groups = baselines, groups

    def ask(self, rule: Rule, models: Mapping[str, Ledger]) -> Iterable[Verdict]:
        metric = METRICS.get(rule.metric)
        if metric is None:
            raise UsageError(
                f"rule {rule.name!r}: {rule.metric!r} is no metric; there are {', '.join(METRICS)}"
            )
        if rule.overridden_by:
            reason = f"{rule.overridden_by} wins over it"
            return [skip(rule, metric.unit, None, Skipped.OVERRIDDEN, reason)]
        if not rule.is_enabled:
            return [skip(rule, metric.unit, None, Skipped.DISABLED, "disabled")]
        about = {path: ledger for path, ledger in models.items() if is_about(rule, path)}
        if not about:
            reason = f"no model that is checked matches {rule.match!r}"
            return [skip(rule, metric.unit, None, Skipped.NOT_MATCHED, reason)]
        return [self._judge(rule, metric, path, ledger) for path, ledger in about.items()]

    def _judge(self, rule: Rule, metric: Metric, path: str, ledger: Ledger) -> Verdict:
        misfit = _find_misfit(rule, metric)
        parts = Unknown(misfit) if misfit else select(ledger, rule.group, self._groups)
        if isinstance(parts, Unknown):
            return skip(rule, metric.unit, path, Skipped.NOT_EVALUATED, parts.reason)
        found = self._hold(rule, metric, path, ledger, parts)
        if isinstance(found, Unknown):
            return skip(rule, metric.unit, path, Skipped.NOT_EVALUATED, found.reason)
        failed = [(part, one) for part, one in found if isinstance(one, Outcome) and one.has_failed]
        if failed:
            return self._fail(rule, metric, path, failed, len(found))
        endless = [one for _, one in found if isinstance(one, Endless)]
        if endless and isinstance(rule.limit, AtMost | Over):
            return replace(skip(rule, metric.unit, path, None, endless[0].reason), status=Status.FAIL)
        unknown = [(part, one.reason) for part, one in found if isinstance(one, Unknown)]
        if unknown:
            part, reason = unknown[0]
            others = f" (and {format_many(len(unknown) - 1, 'group')} more)" if len(unknown) > 1 else ""
            told = f"{part.name}: {reason}" if part.kind != "all" else reason
            return skip(rule, metric.unit, path, Skipped.NOT_EVALUATED, told + others)
        known = [(part, one) for part, one in found if isinstance(one, Outcome)]
        part, worst = max(known, key=lambda pair: pair[1].excess)
        return _verdict(rule, metric, path, worst, Status.PASS, say_passed(rule, metric, part, worst))

    def _hold(
        self, rule: Rule, metric: Metric, path: str, ledger: Ledger, parts: Sequence[Selection]
    ) -> list[tuple[Selection, Outcome | Unknown]] | Unknown:
        """What comes of each part of the model.

        A part that only the model has is Unknown: what was not there has not grown. One that only the baseline has is
        asked by nobody where a glob finds it: nothing of it is left that could be too much.
        """
        if not isinstance(rule.limit, Over):
            return [(part, hold(metric, rule.limit, part)) for part in parts]
        beside = self._baselines.select(rule.limit, rule.group, metric, path, ledger, self._groups)
        if isinstance(beside, Unknown):
            return beside
        known = {(part.kind, part.name): part for part in beside}
        lacks = Unknown(
            f"the baseline {self._baselines.name(rule.limit, path)} lacks it, and nothing grows from nothing"
        )
        found: list[tuple[Selection, Outcome | Unknown]] = []
        for part in parts:
            other = known.get((part.kind, part.name))
            found.append((part, lacks if other is None else hold(metric, rule.limit, part, other)))
        return found

    def _fail(
        self, rule: Rule, metric: Metric, path: str, failed: Sequence[tuple[Selection, Outcome]], asked: int
    ) -> Verdict:
        part, worst = max(failed, key=lambda pair: pair[1].excess)
        name = self._baselines.name(rule.limit, path) if isinstance(rule.limit, Over) else None
        message = say_failed(rule, metric, part, worst, name, (len(failed), asked))
        contributors = list_contributors(metric, rule.limit, failed, asked)
        return _verdict(rule, metric, path, worst, Status.FAIL, message, contributors)


def _find_misfit(rule: Rule, metric: Metric) -> str:
    """Why a rule asks what makes no sense; "" where it does."""
    if rule.group is not None and not metric.has_groups:
        return f"{metric.name} is of a model as a whole, and not of a group; leave the group out"
    if isinstance(rule.limit, Among) != (metric.unit in NAMES):
        wanted = "names that are allowed" if metric.unit in NAMES else "a number"
        return f"the limit of {metric.name} is {wanted}"
    if isinstance(rule.limit, Over) and metric.unit is Unit.VERSION:
        return "a version does not grow; limit it by a number"
    return ""


def skip(rule: Rule, unit: Unit, path: str | None, skipped: Skipped | None, reason: str) -> Verdict:
    """The verdict of a rule that was not evaluated, with what its limit is by itself."""
    limit: int | tuple[str, ...] | None = None
    match rule.limit:
        case AtMost(value) | AtLeast(value):
            limit = value
        case Among(names):
            limit = tuple(sorted(names))
    return Verdict(rule, path, Status.SKIP, unit, limit=limit, skipped=skipped, message=reason)


def _verdict(
    rule: Rule,
    metric: Metric,
    path: str,
    outcome: Outcome,
    status: Status,
    message: str,
    contributors: tuple[Contributor, ...] = (),
) -> Verdict:
    return Verdict(
        rule,
        path,
        status,
        metric.unit,
        observed=outcome.observed,
        limit=outcome.limit,
        baseline=outcome.baseline,
        exceeded_by=outcome.excess if status is Status.FAIL else None,
        contributors=contributors,
        message=message,
    )
