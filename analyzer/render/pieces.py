"""What a report is made of where several formats show the same: tables and lines, of pieces for each to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Cell", "Code", "Column", "Line", "Math", "Piece", "Row", "Section", "Table"]


@dataclass(frozen=True, slots=True)
class Math:
    """An expression."""

    text: str
    latex: str
    """The same for LaTeX's mathematics, without dollars around it."""


@dataclass(frozen=True, slots=True)
class Code:
    """A name or an expression of a programming language."""

    text: str


Piece: TypeAlias = "str | Math | Code"
"""Text may be anybody's: each format escapes it."""

Cell: TypeAlias = "tuple[Piece, ...]"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    is_number: bool = False
    """Numbers stand at the right, and are never broken."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table."""

    cells: tuple[Cell, ...]
    level: int = 0
    """How far the first cell is set in."""
    is_total: bool = False
    """Totals stand below a rule."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under titles."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence."""

    pieces: Cell
    is_strong: bool = False


Section: TypeAlias = "tuple[Table | Line, ...]"
"""What stands together."""
