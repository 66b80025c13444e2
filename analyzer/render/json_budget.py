"""The verdicts of a budget -> their JSON document."""

from __future__ import annotations

from analyzer.budget.record import BudgetReport
from analyzer.render.json_parts import Document, head

__all__ = ["document_budget"]


def document_budget(report: BudgetReport) -> Document:
    """What `check` answers."""
    return {**head("check", report.stamp), "passed": report.passed}
