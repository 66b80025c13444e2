"""FormulaReport -> Markdown: GitHub's tables, with expressions in LaTeX between dollars."""

from __future__ import annotations

import re
from collections.abc import Iterator

from analyzer.formulas.record import FormulaReport
from analyzer.render.formula_sections import make_sections
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Cell, Code, Line, Math, Piece, Row, Table
from analyzer.render.units import printable_name

__all__ = ["render_formula"]


def render_formula(report: FormulaReport) -> str:
    """The whole report, with every row, and a final newline."""
    blocks = [block for section in make_sections(report, RenderOptions(rows=0)) for block in section]
    first, *others = blocks
    title = f"### {_join(first.pieces)}" if isinstance(first, Line) else "\n".join(_table(first))
    texts = ("\n".join(_table(block)) if isinstance(block, Table) else _line(block) for block in others)
    return "\n\n".join((title, *texts)) + "\n"


def _line(line: Line) -> str:
    text = _join(line.pieces).strip()
    return f"**{text}**" if line.is_strong else _LIST.sub(r"\1\\\2", text)


_LIST = re.compile(r"^(\d*)([-+=.)])")
"""A beginning that would make a line an item of a list, or a heading of the line before."""


def _table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(column.title for column in table.columns)} |"
    yield f"|{'|'.join('---:' if column.is_number else '---' for column in table.columns)}|"
    yield from (_row(row) for row in table.rows)


def _row(row: Row) -> str:
    first, *others = (_join(cell) for cell in row.cells)
    cells = [f"{_INDENT * row.level}{first}", *others]
    if row.is_total:
        cells = [f"**{cell}**" if cell and not cell.startswith("$") else cell for cell in cells]
    return f"| {' | '.join(cells)} |"


_INDENT = "&emsp;"


def _join(cell: Cell) -> str:
    return "".join(map(_write, cell))


def _write(piece: Piece) -> str:
    match piece:
        case Math(latex=latex):
            return f"${latex}$"
        case Code(text=text):
            plain = printable_name(text)
            return f"`{plain}`" if plain.strip() and not set(plain) & _NOT_IN_CODE else _escape(text)
    return _escape(piece)


_NOT_IN_CODE = frozenset("`|\\")
"""What a code span of a table cannot hold as it is."""

_MARKUP = re.compile(r"[\\`*_{}\[\]<>#|$~&!@]|:(?=//)|(?<=www)\.")


def _escape(text: str) -> str:
    r"""Anybody's text without markup: no emphasis, no link, no mathematics, no new cell.

    >>> print(_escape("a_b|<c> $d$ https://e"))
    a\_b\|\<c\> \$d\$ https\://e
    """
    return _MARKUP.sub(lambda found: f"\\{found[0]}", printable_name(text))
