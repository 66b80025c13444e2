"""What Markdown is made of: headings, lines, lists, tables and folds, of pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from analyzer.pages.page import Code, Link, Math


@dataclass(frozen=True, slots=True)
class Strong:
    """A word that must not be overlooked."""

    text: str


Piece: TypeAlias = "str | Math | Code | Strong | Link"
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
class Paragraph:
    """A sentence."""

    pieces: Cell
    is_strong: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    """What stands above everything."""

    pieces: Cell


@dataclass(frozen=True, slots=True)
class Items:
    """Sentences of a list."""

    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Code of ours, which keeps its lines."""

    text: str
    language: str


@dataclass(frozen=True, slots=True)
class Fold:
    """What is shown only to who asks for it."""

    title: str
    """Our own words and counts; no names."""
    blocks: tuple[Block, ...]


Block: TypeAlias = "Heading | Paragraph | Table | Items | Fold | Listing"
