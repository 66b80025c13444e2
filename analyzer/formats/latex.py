"""Page -> LaTeX: tabulars and paragraphs for the user's own document, which need no package.

Blocks stand in their own order; those that text shows only with `-v` are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from analyzer.documents.base import Head
from analyzer.formats.described import page_of
from analyzer.formats.options import RenderOptions
from analyzer.pages.page import (
    Cell,
    Code,
    Column,
    Detail,
    Formatted,
    Kind,
    Link,
    Math,
    Notes,
    Page,
    Piece,
    Prose,
    Row,
    Table,
    Tone,
    format_cell,
    name_rows,
    pieces_of,
)
from analyzer.reports import Report
from analyzer.text import printable_name


def render_latex(report: Report | Head, options: RenderOptions | None = None) -> str:
    """Render the whole report, with every row whatever the options, and a final newline."""
    return write_latex(page_of(report))


def write_latex(page: Page) -> str:
    """Write the page, with every row and a final newline."""
    return "\n\n".join([_head(page), *_blocks(page)]) + "\n"


def _head(page: Page) -> str:
    phrases = [figure.phrase for figure in page.figures if figure.phrase]
    text = _join((Code(page.subject), f": {', '.join([page.about, *phrases])}"))
    return rf"\noindent\textbf{{{text}}}"


def _blocks(page: Page) -> Iterator[str]:
    for block in page.blocks:
        if getattr(block, "detail", None) is Detail.MORE:
            continue
        match block:
            case Notes(lines=lines, tone=tone):
                for line in lines:
                    text = _join(line)
                    yield rf"\noindent\textbf{{{text}}}" if tone is not Tone.PLAIN else rf"\noindent {text}"
            case Table() if block.rows or block.total:
                yield "\n".join(_table(block))
                yield from (rf"\noindent {_join(note)}" for note in block.notes)


def _table(table: Table) -> Iterator[str]:
    columns = [(at, column) for at, column in enumerate(table.columns) if not column.is_hidden]
    letters = "".join("r" if column.kind.is_number else "l" for _, column in columns)
    yield rf"\begin{{tabular}}{{{letters}}}"
    yield rf"{' & '.join(_escape(column.title) for _, column in columns)} \\"
    yield r"\hline"
    for row, name in zip(table.rows, name_rows(table), strict=True):
        yield _row(row, (name, *row.cells[1:]), columns)
    if table.total:
        yield r"\hline"
        yield _row(Row(table.total), table.total, columns)
    yield r"\end{tabular}"


def _row(row: Row, cells: Sequence[Cell], columns: Sequence[tuple[int, Column]]) -> str:
    first, *others = (_cell(cells[at], column) for at, column in columns)
    return rf"{' & '.join([_INDENT * row.level + first, *others])} \\"


_INDENT = r"\quad "


def _cell(cell: Cell, column: Column) -> str:
    if isinstance(cell, Math | tuple):
        return _join(cell if isinstance(cell, tuple) else (cell,))
    text = format_cell(cell, column.kind)
    is_name = column.kind is Kind.NAME and not isinstance(cell, Formatted) and text and text[0] != "["
    return _write(Code(text) if is_name else text)


def _join(prose: Prose) -> str:
    return "".join(map(_write, pieces_of(prose)))


def _write(piece: Piece) -> str:
    match piece:
        case Math(latex=latex):
            return f"${latex}$"
        case Code(text=text) | Link(text=text):
            return rf"\texttt{{{_escape(text)}}}"
    return _escape(piece)


_SPECIAL = {
    **{character: f"\\{character}" for character in "#$%&_{}"},
    **dict(zip("<>|", ("$<$", "$>$", "$|$"), strict=True)),
    **dict(zip("[]\0", ("{[}", "{]}", "{}"), strict=True)),
    **dict(zip('"`', (r"\char34{}", r"\char96{}"), strict=True)),
    **dict(zip("\\~^", (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}"), strict=True)),
}
"""Characters that have a meaning in LaTeX, or another glyph; a bracket after the end of a line would be its
argument."""

_LIGATURE = re.compile(r"(?<=-)-|(?<=[?!])`|(?<=')'|(?<=,),")
"""Characters that would form one glyph with the character before them."""


def _escape(text: str) -> str:
    r"""Return any text as it stands; characters beyond ASCII become Python's escapes, as fonts differ.

    >>> print(_escape("50_000 <a|b> \\input{x} é"))
    50\_000 $<$a$|$b$>$ \textbackslash{}input\{x\} \textbackslash{}xe9
    """
    plain = printable_name(text).encode("ascii", "backslashreplace").decode("ascii")
    separated = _LIGATURE.sub(lambda found: f"\0{found[0]}", plain)
    return "".join(_SPECIAL.get(character, character) for character in separated)
