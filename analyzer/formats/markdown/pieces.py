"""Elements of Markdown: headings, lines, lists, tables and folds, made of pieces."""

from __future__ import annotations

from typing import TypeAlias

from analyzer.pages.page import Code, Link, Math
from analyzer.records import Frozen


class Strong(Frozen):
    """A word that readers must not overlook."""

    text: str


Piece: TypeAlias = "str | Math | Code | Strong | Link"
"""Piece of a line. A text may come from a file, so each format escapes it."""

Cell: TypeAlias = "tuple[Piece, ...]"


class Column(Frozen):
    """A column of a table."""

    title: str
    is_number: bool = False
    """Whether the column has numbers, which stand at the right and are never broken."""


class Row(Frozen):
    """A row of a table."""

    cells: tuple[Cell, ...]
    level: int = 0
    """Level of indentation of the first cell."""
    is_total: bool = False
    """Whether the row has totals, which stand below a rule."""


class Table(Frozen):
    """Table of rows under titles."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


class Paragraph(Frozen):
    """A sentence."""

    pieces: Cell
    is_strong: bool = False


class Heading(Frozen):
    """Heading above all other blocks."""

    pieces: Cell


class Items(Frozen):
    """List of sentences."""

    cells: tuple[Cell, ...]


class Listing(Frozen):
    """Fixed code, which keeps its lines."""

    text: str
    language: str


class Fold(Frozen):
    """Blocks that are shown only on request."""

    title: str
    """Title of fixed words and counts, without names."""
    blocks: tuple[Block, ...]


Block: TypeAlias = "Heading | Paragraph | Table | Items | Fold | Listing"
