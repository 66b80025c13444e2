"""Rule: a table of which an export kept some rows (`sliced`), picked rows (`gathered`) or repeated all (`broadcast`).

Asked only of what the exporter's own note says was folded from the table: a table that stands under its own name and is
shorter was cut by somebody else, and differs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analyzer.content import Array, decode_values, row_digests
from analyzer.manifest import Parameter
from analyzer.reconcile.books import Books, Suspect
from analyzer.reconcile.lines import Line

__all__ = ["match_rows"]

Digests = npt.NDArray[np.uint64]


def match_rows(books: Books) -> None:
    """Explain suspects all of whose rows are rows of the PyTorch table; each distinct row counts once."""
    for suspect in list(books.suspects):
        table, entry = suspect.tensor, suspect.entry
        is_folded = entry.decided_by == "provenance:folded-from" and entry.tensor.name not in table.names
        if not isinstance(table, Parameter) or table.name in books.parameters or not is_folded:
            continue
        compared = books.contents.compares(table)
        found = _compare(suspect, table) if compared else _measure(suspect, table)
        if found is not None:
            line, rows = found
            rule = "provenance+rows" if compared else "provenance+shape"
            books.suspects.remove(suspect)
            books.hold(table, entry, line, rule, 0.0 if compared else None, rows * table.shape[-1])


def _compare(suspect: Suspect, table: Parameter) -> tuple[Line, int] | None:
    """The line, and how many distinct rows the entry holds, along whichever axis makes its rows the table's."""
    array = suspect.entry.tensor.payload.array()
    if table.row_digests is None or array is None or suspect.entry.tensor.dtype is not table.dtype:
        return None
    known = decode_values(table.row_digests, np.dtype("<u8")).astype(np.uint64)
    for rows in _as_rows(array, table.shape[-1]):
        stored = row_digests(rows).astype(np.uint64)
        if stored.size and np.isin(stored, known).all():
            return _line(stored, known), int(np.unique(stored).size)
    return None


def _as_rows(array: Array, width: int) -> list[Array]:
    """The array with each axis of the table's width put last, the last axis first."""
    axes = [axis for axis in reversed(range(array.ndim)) if array.shape[axis] == width]
    return [np.moveaxis(array, axis, -1) for axis in axes]


def _line(stored: Digests, known: Digests) -> Line:
    starts = np.flatnonzero(known == stored[0])
    if any(np.array_equal(known[start : start + stored.size], stored) for start in starts):
        return Line.SLICED
    repeats = stored.size % known.size == 0 and np.array_equal(
        np.tile(known, stored.size // known.size), stored
    )
    return Line.BROADCAST if repeats else Line.GATHERED


def _measure(suspect: Suspect, table: Parameter) -> tuple[Line, int] | None:
    """What shapes alone allow: fewer rows are a slice, more are gathered, and then all may be among them."""
    stored = suspect.entry.tensor
    if len(table.shape) < 2 or table.shape[-1] not in stored.shape or stored.dtype is not table.dtype:
        return None
    rows, known = stored.numel // table.shape[-1], table.numel // table.shape[-1]
    return (Line.SLICED, rows) if rows < known else (Line.GATHERED, known)
