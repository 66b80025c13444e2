"""What Markdown is made of: headings, lines, lists, tables and folds, of pieces."""

from __future__ import annotations

from typing import TypeAlias

from analyzer.pages.page import Code, Link, Math
from analyzer.records import Frozen


class Strong(Frozen):
    """A word that must not be overlooked."""

    text: str


Piece: TypeAlias = "str | Math | Code | Strong | Link"
"""Text may be anybody's: each format escapes it."""

Cell: TypeAlias = "tuple[Piece, ...]"


class Column(Frozen):
    """A column of a table."""

    title: str
    is_number: bool = False
    """Numbers stand at the right, and are never broken."""


class Row(Frozen):
    """A line of a table."""

    cells: tuple[Cell, ...]
    level: int = 0
    """How far the first cell is set in."""
    is_total: bool = False
    """Totals stand below a rule."""


class Table(Frozen):
    """Rows under titles."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


class Paragraph(Frozen):
    """A sentence."""

    pieces: Cell
    is_strong: bool = False


class Heading(Frozen):
    """What stands above everything."""

    pieces: Cell


class Items(Frozen):
    """Sentences of a list."""

    cells: tuple[Cell, ...]


class Listing(Frozen):
    """Code of ours, which keeps its lines."""

    text: str
    language: str


class Fold(Frozen):
    """What is shown only to who asks for it."""

    title: str
    """Our own words and counts; no names."""
    blocks: tuple[Block, ...]


Block: TypeAlias = "Heading | Paragraph | Table | Items | Fold | Listing"
