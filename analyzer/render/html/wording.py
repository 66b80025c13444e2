"""Values of a document, or their absence -> what stands in a cell."""

from __future__ import annotations

from analyzer.units import (
    format_bytes,
    format_count,
    format_many,
    printable,
    short_count,
    shorten,
)

__all__ = [
    "both_bytes",
    "both_counts",
    "bytes_of",
    "show",
]

_LONGEST = 400
"""Characters of a text from a file that are shown."""

NONE = "-"


def show(text: str | None, longest: int = _LONGEST) -> str:
    r"""A text from a file: no longer than anybody reads, without characters that are not seen.

    >>> show("a\u202eb"), show(None), show("<b>")
    ('a\\u202eb', '', '<b>')
    """
    text = shorten(text or "", longest)
    if text.isspace() and text.isprintable():
        return f'"{text}"'
    return text if text.isprintable() else printable(text)


def both_counts(count: int | None) -> tuple[str, str]:
    """A count, exact and short where that says more."""
    if count is None:
        return NONE, ""
    return format_count(count), short_count(count) if abs(count) >= 1000 else ""


def both_bytes(nbytes: int | None) -> tuple[str, str]:
    """Bytes, short and exact."""
    if nbytes is None:
        return NONE, ""
    return format_bytes(nbytes), format_many(nbytes, "byte") if abs(nbytes) >= 1024 else ""


def bytes_of(nbytes: int | None) -> str:
    """Bytes in one text, exact."""
    return NONE if nbytes is None else format_many(nbytes, "byte")
