"""Report -> Markdown, as GitHub shows it: what a comment on a pull request needs, with the long tables folded away."""

from __future__ import annotations

from analyzer.formulas.record import FormulaReport
from analyzer.render.markdown.formula import render_formula
from analyzer.render.options import RenderOptions
from analyzer.report import Report

__all__ = ["render_markdown"]


def render_markdown(report: Report, options: RenderOptions | None = None) -> str:
    """The report as Markdown, with a final newline."""
    match report:
        case FormulaReport():
            return render_formula(report)
        case _:
            raise NotImplementedError(type(report).__name__)
