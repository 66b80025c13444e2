"""An arranged expression -> a piece of a table or of a line."""

from __future__ import annotations

from analyzer.formulas.algebra import Arranged
from analyzer.render.pieces import Math

__all__ = ["show_math"]


def show_math(layout: Arranged) -> Math:
    """The expression as text and as LaTeX."""
    return Math(layout.text, layout.latex)
