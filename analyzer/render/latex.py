"""FormulaReport -> LaTeX: tabulars and paragraphs for a document of one's own, which need no package."""

from __future__ import annotations

import re
from collections.abc import Iterator

from analyzer.formulas.record import FormulaReport
from analyzer.render.formula.sections import make_sections
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Cell, Code, Line, Math, Piece, Row, Strong, Table
from analyzer.units import printable_name

__all__ = ["render_latex"]


def render_latex(report: FormulaReport, options: RenderOptions | None = None) -> str:
    """The whole report, with every row whatever the options, and a final newline."""
    blocks = [block for section in make_sections(report, RenderOptions(rows=0)) for block in section]
    texts = ["\n".join(_table(block)) if isinstance(block, Table) else _line(block) for block in blocks]
    return "\n\n".join(texts) + "\n"


def _line(line: Line) -> str:
    text = _join(line.pieces)
    return rf"\noindent\textbf{{{text}}}" if line.is_strong else rf"\noindent {text}"


def _table(table: Table) -> Iterator[str]:
    letters = "".join("r" if column.is_number else "l" for column in table.columns)
    yield rf"\begin{{tabular}}{{{letters}}}"
    yield rf"{' & '.join(_escape(column.title) for column in table.columns)} \\"
    yield r"\hline"
    for row in table.rows:
        if row.is_total:
            yield r"\hline"
        yield _row(row)
    yield r"\end{tabular}"


def _row(row: Row) -> str:
    first, *others = (_join(cell) for cell in row.cells)
    return rf"{' & '.join([_INDENT * row.level + first, *others])} \\"


_INDENT = r"\quad "


def _join(cell: Cell) -> str:
    return "".join(map(_write, cell))


def _write(piece: Piece) -> str:
    match piece:
        case Math(latex=latex):
            return f"${latex}$"
        case Code(text=text):
            return rf"\texttt{{{_escape(text)}}}"
        case Strong(text=text):
            return rf"\textbf{{{_escape(text)}}}"
    return _escape(piece)


_SPECIAL = {
    **{character: f"\\{character}" for character in "#$%&_{}"},
    **dict(zip("<>|", ("$<$", "$>$", "$|$"), strict=True)),
    **dict(zip("[]\0", ("{[}", "{]}", "{}"), strict=True)),
    **dict(zip('"`', (r"\char34{}", r"\char96{}"), strict=True)),
    **dict(zip("\\~^", (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}"), strict=True)),
}
"""What LaTeX has a meaning for, or another glyph; a bracket after a line's end would be its argument."""

_LIGATURE = re.compile(r"(?<=-)-|(?<=[?!])`|(?<=')'|(?<=,),")
"""What would become one glyph with what stands before it."""


def _escape(text: str) -> str:
    r"""Anybody's text, as it stands: what is not ASCII is written with Python's escapes, as fonts differ.

    >>> print(_escape("50_000 <a|b> \\input{x} é"))
    50\_000 $<$a$|$b$>$ \textbackslash{}input\{x\} \textbackslash{}xe9
    """
    plain = printable_name(text).encode("ascii", "backslashreplace").decode("ascii")
    apart = _LIGATURE.sub(lambda found: f"\0{found[0]}", plain)
    return "".join(_SPECIAL.get(character, character) for character in apart)
