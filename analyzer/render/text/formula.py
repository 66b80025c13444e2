"""FormulaReport -> its text: what the symbols are, every term and part, what differs and why, and the memory."""

from __future__ import annotations

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analyzer.formulas.record import FormulaReport
from analyzer.render import pieces
from analyzer.render.formula.sections import make_sections
from analyzer.render.options import RenderOptions
from analyzer.units import printable_name

__all__ = ["show_formula"]


def show_formula(report: FormulaReport, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text, from top to bottom."""
    parts: list[RenderableType] = []
    for section in make_sections(report, options):
        parts += [Text("")] if parts else []
        parts += _show_section(section, options.width - _BESIDE)
    return parts


_BESIDE = 44
"""What names and numbers usually take of a line, so that the rest is an expression's."""


def _show_section(section: pieces.Section, room: int) -> Iterable[RenderableType]:
    """Tables stand apart from the lines around them."""
    for number, block in enumerate(section):
        if number and pieces.Table in (type(block), type(section[number - 1])):
            yield Text("")
        yield (
            _show_table(block, room)
            if isinstance(block, pieces.Table)
            else Text(_plain(block.pieces), style="bold" if block.is_strong else "")
        )


def _show_table(table: pieces.Table, room: int) -> Table:
    shown = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in table.columns:
        if column.is_number:
            shown.add_column(column.title, justify="right", no_wrap=True)
        else:
            shown.add_column(column.title, overflow="fold")
    for row in table.rows:
        if row.is_total:
            shown.add_section()
        first, *others = (Text(_lines(cell, room)) for cell in row.cells)
        name = Padding(first, (0, 0, 0, 2 * row.level))
        shown.add_row(name, *others, style="bold" if row.is_total else "")
    return shown


def _plain(cell: pieces.Cell) -> str:
    texts = (piece if isinstance(piece, str) else piece.text for piece in cell)
    return printable_name("".join(texts))


def _lines(cell: pieces.Cell, room: int) -> str:
    """The text of a cell; of an expression with a new line before the first summand that does not fit."""
    text = _plain(cell)
    if len(text) <= room or not all(isinstance(piece, pieces.Math) for piece in cell):
        return text
    lines = [""]
    for summand in _summands(text):
        if lines[-1] and len(lines[-1]) + len(summand) > room:
            lines.append("")
        lines[-1] += summand
    return "\n".join(line.strip() for line in lines)


def _summands(text: str) -> list[str]:
    """What is added outside of brackets, each with its sign.

    >>> _summands("N*(D**2 + D) + 2*D - V")
    ['N*(D**2 + D)', ' + 2*D', ' - V']
    """
    depth, found = 0, [""]
    for number, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth and text[number : number + 3] in (" + ", " - "):
            found.append("")
        found[-1] += character
    return found
