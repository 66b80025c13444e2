"""FormulaReport -> blocks: its sections, with expressions in LaTeX."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.formulas.record import FormulaReport
from analyzer.render.formula.sections import make_sections
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Block, Heading, Line

__all__ = ["show_formula"]


def show_formula(report: FormulaReport, options: RenderOptions) -> Iterator[Block]:
    """Every section; the first line is the heading."""
    (first, *others), *sections = make_sections(report, options)
    yield Heading(first.pieces) if isinstance(first, Line) else first
    yield from others
    for section in sections:
        yield from section
