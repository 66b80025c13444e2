"""Rows of cells -> a table for the terminal, or for a document."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["aligned", "markdown", "percent"]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row, with columns two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose first row is its header."""
    header, *rest = rows
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *rest])


def percent(part: int, whole: int) -> str:
    """Return a share in percent with one decimal.

    >>> percent(1, 8), percent(0, 0)
    ('12.5 %', 'none')
    """
    return f"{100 * part / whole:.1f} %" if whole else "none"
