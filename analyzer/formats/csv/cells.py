"""A value of a JSON document -> the text of a cell."""

from __future__ import annotations

from analyzer.formats.json.parts import utf8
from analyzer.text import printable


def write_cell(value: object) -> str:
    """Return numbers as they are, nothing for null, lists with semicolons, and text that no program runs.

    >>> [write_cell(value) for value in (109_482_240, 0.5, None, True, ["a", "b"])]
    ['109482240', '0.5', '', 'true', 'a;b']
    >>> write_cell(-5), write_cell("-5"), write_cell(" =HYPERLINK(A1)")
    ('-5', "'-5", "' =HYPERLINK(A1)")
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return _defuse(";".join(map(_plain, value)))
    return _defuse(_plain(value))


def _plain(value: object) -> str:
    """Return the text on one line, and safe for a terminal."""
    return printable(utf8(str(value)))


def _defuse(text: str) -> str:
    """Return the text with an apostrophe first, if a spreadsheet would take it for a formula."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def join_shape(shape: list[int]) -> str:
    """Return dimensions as text.

    >>> join_shape([768, 3072]), join_shape([])
    ('768x3072', 'scalar')
    """
    return "x".join(map(str, shape)) or "scalar"
