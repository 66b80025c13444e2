"""Rules + models, of which some could not be read -> the report of `check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from analyzer.budget.evaluate import check_budget, is_about, skip
from analyzer.budget.metrics import METRICS
from analyzer.budget.record import AtMost, BudgetReport, Contributor, Rule, Skipped, Status, Unit, Verdict
from analyzer.group.patterns import Searcher
from analyzer.ledger import Ledger

__all__ = ["STRICT", "check_models", "judge_findings"]

STRICT = Rule("strict", "findings", AtMost(0), origin="--strict")
"""The rule that `--strict` is: what is found fails, unless it is ignored."""

_NONE: Mapping[str, Searcher] = MappingProxyType({})


def check_models(
    rules: Sequence[Rule],
    models: Mapping[str, Ledger],
    unreadable: Mapping[str, str] = MappingProxyType({}),
    *,
    baseline: str | None = None,
    read: Callable[[str], Ledger],
    groups: Mapping[str, Searcher] = _NONE,
    is_any_baseline: bool = False,
    stamp: str | None = None,
) -> BudgetReport:
    """Ask every rule of every model that it is about. Of one that could not be read, none is answered.

    Args:
        rules: as `check_budget` takes them.
        models: ledgers, by the path as it was named.
        unreadable: why a model could not be read, by its path.
        baseline, read, groups, is_any_baseline: as `check_budget` takes them.
        stamp: when the report is made, if it is to say so.

    Raises:
        UsageError: as of `check_budget`.
    """
    verdicts = check_budget(
        rules, models, baseline=baseline, read=read, groups=groups, is_any_baseline=is_any_baseline
    )
    answered = {id(rule): [each for each in verdicts if each.rule is rule] for rule in rules}
    joined: list[Verdict] = []
    for rule in rules:
        lost = [_unanswered(rule, path) for path in unreadable if rule.is_asked and is_about(rule, path)]
        kept = [each for each in answered[id(rule)] if not (lost and each.skipped is Skipped.NOT_MATCHED)]
        joined += [*kept, *lost]
    return BudgetReport(
        models=(*models, *unreadable),
        verdicts=tuple(joined),
        findings={path: ledger.findings for path, ledger in models.items()},
        unreadable=dict(unreadable),
        stamp=stamp,
    )


def _unanswered(rule: Rule, path: str) -> Verdict:
    return skip(rule, METRICS[rule.metric].unit, path, Skipped.NOT_EVALUATED, "the model cannot be read")


def judge_findings(path: str, ledger: Ledger, ignore: Sequence[str]) -> Verdict:
    """What `--strict` says of one model.

    Args:
        path: the model, as it was named.
        ledger: the account of it.
        ignore: ids of findings that do not count.
    """
    counts = Counter(finding.id for finding in ledger.findings if finding.id not in ignore)
    number = counts.total()
    if not number and ledger.content == "none":
        said = "contents were not looked at, in which there may be findings; say --content sampled"
        return Verdict(
            STRICT, path, Status.SKIP, Unit.FINDINGS, limit=0, skipped=Skipped.NOT_EVALUATED, message=said
        )
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Verdict(
        STRICT,
        path,
        Status.FAIL if number else Status.PASS,
        Unit.FINDINGS,
        observed=number,
        limit=0,
        exceeded_by=number or None,
        contributors=tuple(Contributor(name, count) for name, count in listed),
        message="any finding fails under --strict; mend it, or name it with --ignore" if number else "",
    )
