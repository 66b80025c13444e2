"""Rules + a lake -> the report of `check` on all its models, one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from analyzer.budget.gate import check_models, judge_findings
from analyzer.budget.record import BudgetReport, Rule, Verdict
from analyzer.fleet.lake import Lake
from analyzer.fleet.ledgers import EarlierLedgers, read_ledgers
from analyzer.group.patterns import Searcher
from analyzer.ledger import Finding, Ledger

__all__ = ["check_lake"]

_NONE: Mapping[str, Searcher] = MappingProxyType({})


def check_lake(
    rules: Sequence[Rule],
    lake: Lake,
    *,
    earlier: Lake | None = None,
    read: Callable[[str], Ledger],
    groups: Mapping[str, Searcher] = _NONE,
    is_any_baseline: bool = False,
    strict: bool = False,
    ignore: Sequence[str] = (),
    stamp: str | None = None,
) -> BudgetReport:
    """Ask every rule of every model of a lake, as `check_models` asks them of models in memory.

    Args:
        rules: the lines of the budget.
        lake: its models; one that could not be read is one of which nothing is answered.
        earlier: a lake that relative limits are over where they name no baseline: each model is held against the one
            of the same name.
        read: audits a model, or loads a saved report, that a rule names.
        groups: the project's own groups, by name.
        is_any_baseline: whether a baseline of another model is one too.
        strict: whether findings fail too.
        ignore: ids of findings that do not.
        stamp: when the report is made, if it is to say so.

    Raises:
        UsageError: a rule names a metric that there is not, or the lake cannot be read.
    """
    before = None if earlier is None else EarlierLedgers(earlier)
    by_rule: dict[int, list[Verdict]] = defaultdict(list)
    strictly: list[Verdict] = []
    findings: dict[str, tuple[Finding, ...]] = {}
    lost: dict[str, str] = {}
    for name, found in read_ledgers(lake):
        if isinstance(found, str):
            lost[name] = found.removeprefix(f"{name}: ")
            continue
        key = None if earlier is None else f"{earlier.path}: {name}"

        def ask(asked: str, name: str = name, key: str | None = key) -> Ledger:
            return before.find(name) if before is not None and asked == key else read(asked)

        report = check_models(
            rules, {name: found}, baseline=key, read=ask, groups=groups, is_any_baseline=is_any_baseline
        )
        for verdict in report.verdicts:
            if verdict.model is not None:
                by_rule[id(verdict.rule)].append(verdict)
        findings[name] = found.findings
        if strict:
            strictly.append(judge_findings(name, found, ignore))
    rest = check_models(rules, {}, lost, read=read)
    verdicts = [each for rule in rules for each in _joined(by_rule[id(rule)], rule, rest)]
    return BudgetReport(
        models=(*findings, *lost),
        verdicts=(*verdicts, *strictly),
        findings=findings,
        unreadable=lost,
        stamp=stamp,
    )


def _joined(own: list[Verdict], rule: Rule, rest: BudgetReport) -> list[Verdict]:
    """What a rule says of the models that were read, then of the others, or once why it was asked of none."""
    others = [each for each in rest.verdicts if each.rule is rule]
    return [*own, *(each for each in others if each.model is not None or not own)]
