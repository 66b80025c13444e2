"""The verdicts of a budget -> their JSON document."""

from __future__ import annotations

from typing import Any

from analyzer.budget.record import Among, AtLeast, BudgetReport, Limit, Verdict
from analyzer.render.json.parts import Document, head, list_findings, utf8

__all__ = ["document_budget"]


def document_budget(report: BudgetReport) -> Document:
    """What `check` answers."""
    return {
        **head("check", report.stamp),
        "passed": report.passed,
        "models": [utf8(path) for path in report.models],
        "unreadable": [
            {"model": utf8(path), "error": utf8(error)} for path, error in report.unreadable.items()
        ],
        "rules": [_rule(verdict) for verdict in report.verdicts],
        "findings": [
            {"model": utf8(path), **row}
            for path, findings in report.findings.items()
            for row in list_findings(findings)
        ],
    }


def _rule(verdict: Verdict) -> Document:
    rule = verdict.rule
    return {
        "name": rule.name,
        "model": None if verdict.model is None else utf8(verdict.model),
        "metric": rule.metric,
        "group": rule.group,
        "match": rule.match,
        "status": verdict.status.value,
        "bound": _bound(rule.limit),
        "observed": _listed(verdict.observed),
        "limit": _listed(verdict.limit),
        "unit": verdict.unit.value,
        "baseline": verdict.baseline,
        "exceeded_by": verdict.exceeded_by,
        "contributors": [
            {"name": each.name, "value": each.value, "baseline": each.baseline}
            for each in verdict.contributors
        ],
        "skipped": None if verdict.skipped is None else verdict.skipped.value,
        "message": utf8(verdict.message),
        "advice": rule.message,
        "origin": utf8(rule.origin),
    }


def _bound(limit: Limit) -> str:
    """Which side of the limit is allowed."""
    return "among" if isinstance(limit, Among) else "least" if isinstance(limit, AtLeast) else "most"


def _listed(value: int | tuple[str, ...] | None) -> Any:
    return list(value) if isinstance(value, tuple) else value
