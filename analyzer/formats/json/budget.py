"""The verdicts of a budget -> their JSON document."""

from __future__ import annotations

from typing import Any

from analyzer.budget.record import Among, AtLeast, BudgetReport, Limit, Verdict
from analyzer.documents import check as check_records
from analyzer.documents.base import LimitKind
from analyzer.formats.json.parts import finding_fields, head, utf8


def document_budget(report: BudgetReport) -> check_records.CheckDocument:
    """Return the document of `check`."""
    return check_records.CheckDocument(
        **head(report.stamp),
        passed=report.passed,
        models=[utf8(path) for path in report.models],
        unreadable=[
            check_records.UnreadableModel(model=utf8(path), error=utf8(error))
            for path, error in report.unreadable.items()
        ],
        rules=[_rule(verdict) for verdict in report.verdicts],
        findings=[
            check_records.ModelFinding(model=utf8(path), **finding_fields(finding))
            for path, findings in report.findings.items()
            for finding in findings
        ],
    )


def _rule(verdict: Verdict) -> check_records.Verdict:
    rule = verdict.rule
    return check_records.Verdict(
        name=rule.name,
        model=None if verdict.model is None else utf8(verdict.model),
        metric=rule.metric,
        group=rule.group,
        match=rule.match,
        status=verdict.status,
        bound=_bound(rule.limit),
        observed=_listed(verdict.observed),
        observed_least=verdict.least,
        observed_most=verdict.most,
        limit=_listed(verdict.limit),
        unit=verdict.unit,
        baseline=verdict.baseline,
        exceeded_by=verdict.exceeded_by,
        contributors=[
            check_records.Contributor(name=each.name, value=each.value, baseline=each.baseline)
            for each in verdict.contributors
        ],
        skipped=verdict.skipped,
        message=utf8(verdict.message),
        advice=rule.message,
        origin=utf8(rule.origin),
    )


def _bound(limit: Limit) -> LimitKind:
    """Return the allowed side of a limit."""
    return "among" if isinstance(limit, Among) else "least" if isinstance(limit, AtLeast) else "most"


def _listed(value: int | tuple[str, ...] | None) -> Any:
    return list(value) if isinstance(value, tuple) else value
