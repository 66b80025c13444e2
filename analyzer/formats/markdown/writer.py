"""Blocks -> Markdown as GitHub reads it, where text from a file stays plain text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from analyzer.formats.markdown.pieces import (
    Block,
    Cell,
    Fold,
    Heading,
    Items,
    Listing,
    Paragraph,
    Piece,
    Row,
    Strong,
    Table,
)
from analyzer.pages.page import Code, Link, Math
from analyzer.text import printable, shorten


def write_blocks(blocks: Iterable[Block]) -> str:
    """Write the blocks from top to bottom, with empty lines between them and a final newline."""
    return "\n\n".join(map(_block, blocks)) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading(pieces=pieces):
            return f"### {_join(pieces).strip()}"
        case Paragraph():
            return _line(block)
        case Items(cells=cells):
            return "\n".join(f"- {_LIST.sub(_UNLISTED, _join(cell).strip())}" for cell in cells)
        case Table():
            return "\n".join(_table(block))
        case Listing(text=text, language=language):
            fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
            lines = "\n".join(map(printable, text.split("\n")))
            return f"{fence}{language}\n{lines}\n{fence}"
        case Fold(title=title, blocks=blocks):
            inner = "\n\n".join(map(_block, blocks))  # GitHub reads tables only between empty lines
            return f"<details>\n<summary>{html.escape(printable(title))}</summary>\n\n{inner}\n\n</details>"


def _line(line: Paragraph) -> str:
    text = _join(line.pieces).strip()
    return f"**{text}**" if line.is_strong else _LIST.sub(_UNLISTED, text)


_LIST = re.compile(r"^(\d*)([-+=.)])")
"""Beginning of a line that would make it an item of a list, or the line before it a heading."""
_UNLISTED = r"\1\\\2"


def _table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(escape(column.title) for column in table.columns)} |"
    yield f"|{'|'.join('---:' if column.is_number else '---' for column in table.columns)}|"
    yield from (_row(row) for row in table.rows)


def _row(row: Row) -> str:
    first, *others = (_join(cell, _CELL) for cell in row.cells)
    cells = [f"{_INDENT * min(row.level, _DEEPEST)}{first}", *others]
    if row.is_total:
        cells = [f"**{cell}**" if cell and not cell.startswith("$") else cell for cell in cells]
    return f"| {' | '.join(cells)} |"


_INDENT, _DEEPEST = "&emsp;", 6
"""Indentation of one level, and the largest number of levels."""

_CELL, _SENTENCE = 120, 1_000
"""Largest number of characters of a name or text in a cell, and in a line; expressions are never cut."""


_LATEX = re.compile(r"[\w\\{}^ +*/=()\[\].,|:;!'&~-]+", re.ASCII)
"""Characters of an expression: none that ends it or the line, or that forms a tag."""


def _join(cell: Cell, room: int = _SENTENCE) -> str:
    return "".join(_write(piece, room) for piece in cell)


def _write(piece: Piece, room: int) -> str:
    match piece:
        case Math(text=text, latex=latex):  # a saved report may have anything here
            return f"${latex}$" if _LATEX.fullmatch(latex) else _code(printable(shorten(text, _NAME)))
        case Code(text=text):
            return _code(printable(shorten(text, min(room, _NAME))))
        case Link(text=text, target=target, name=name):
            shown = escape(name) if name else _code(printable(text))
            return f"[{shown}]({target})" if _TARGET.fullmatch(target) else shown
        case Strong(text=text):
            return f"**{escape(text)}**"
    return escape(shorten(piece, room))


_TARGET = re.compile(r"[\w./#-]+")
"""A heading, or a path between pages, but no address."""

_NAME = 200


def _code(text: str) -> str:
    """Return a code span; text that would end it, or its cell, becomes an HTML element with entities."""
    if not text.strip():
        return escape(f'"{text}"')
    if "`" not in text and "|" not in text:
        return f"`{text}`"
    return f"<code>{_ACTIVE.sub(lambda found: f'&#{ord(found[0])};', text)}</code>"


_ACTIVE = re.compile(r"[!-/:-@\[-`{-~]")
"""All punctuation of ASCII, and so every character with a meaning in Markdown or HTML."""


def escape(text: str) -> str:
    r"""Return any text without markup: no emphasis, no link, no mathematics, no new cell, and no mention of a person.

    GitHub looks for @names, #numbers and :signs: in the finished page, where no backslash is left; a character of no
    width keeps them apart.

    >>> print(escape("a_b|<c> $d$ https://e @f #1"))
    a\_b\|\<c\> \$d\$ https\://e @&#8288;f \#&#8288;1
    """
    return _MARKUP.sub(_escape_one, printable(text))


_MARKUP = re.compile(
    r"(?P<apart>@(?=\w|$)|\#(?=\d|$)|(?<=\b[Gg][Hh])-(?=\d|$)|:(?=[\w+-]*(?:$|(?<=[\w+-]):)))"
    r"|[\\`*_{}\[\]<>\#|$~&!]|:(?=//)|(?<=[Ww][Ww][Ww])\."
)


def _escape_one(found: re.Match[str]) -> str:
    if not found["apart"]:
        return f"\\{found[0]}"
    return ("\\#" if found[0] == "#" else found[0]) + _APART


_APART = "&#8288;"
"""U+2060, which has no width and is part of no name."""
