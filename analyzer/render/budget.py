"""The verdicts of a budget -> the parts of their text."""

from __future__ import annotations

from rich.console import RenderableType

from analyzer.budget.record import BudgetReport
from analyzer.render.options import RenderOptions

__all__ = ["show_budget"]


def show_budget(report: BudgetReport, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text, from top to bottom."""
    return []
