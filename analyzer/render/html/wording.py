"""Values of a document, or their absence -> what stands in a cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analyzer.render.html.blocks import Cell
from analyzer.units import (
    format_bytes,
    format_count,
    format_many,
    format_ms,
    format_percent,
    format_ratio,
    format_share,
    format_signed,
    format_signed_ms,
    printable,
    short_count,
    shorten,
)

__all__ = [
    "amount",
    "both_bytes",
    "both_counts",
    "bytes_of",
    "cell",
    "ms",
    "percent",
    "ratio",
    "shape",
    "share",
    "show",
    "show_all",
    "signed",
    "signed_ms",
    "texts",
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


def show_all(texts: Iterable[str], between: str = ", ") -> str:
    """Several texts in one cell."""
    return show(between.join(texts))


def texts(names: Iterable[str]) -> tuple[str, ...]:
    """Several texts, each by itself."""
    return tuple(map(show, names))


def cell(count: int | None) -> Cell:
    """A count, which gets its separators where it is shown."""
    return NONE if count is None else count


def amount(count: int | None) -> str:
    """The same as text."""
    return NONE if count is None else format_count(count)


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


def signed(count: int | None) -> str:
    """A difference."""
    return NONE if count is None else format_signed(count)


def ms(value: float | None) -> str:
    """Milliseconds."""
    return NONE if value is None else format_ms(value)


def signed_ms(value: float | None) -> str:
    """A difference of milliseconds."""
    return NONE if value is None else format_signed_ms(value)


def percent(fraction: float | None) -> str:
    """A share of what is measured."""
    return format_percent(fraction)


def ratio(value: float | None) -> str:
    """How much of one the other is."""
    return format_ratio(value)


def share(part: int | None, whole: int | None) -> str:
    """A share of what is counted."""
    return NONE if part is None or whole is None else format_share(part, whole)


def shape(dims: Sequence[int]) -> str:
    """Dims as everywhere; a scalar's is empty.

    >>> shape((30522, 768)), shape(())
    ('30522x768', 'scalar')
    """
    return "x".join(map(str, dims)) or "scalar"
