"""Rule: tables of cosines and sines that a static export computed in advance from a rotary embedding's frequencies.

cos(p f) and sin(p f) for positions p and frequencies f, times one factor (Su et al. 2021, section 3.4.2; transformers
`modeling_rope_utils.py`, `attention_scaling`). The frequencies are a buffer, `inv_freq`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from analyzer.ledger import Entry, Role
from analyzer.manifest import Buffer
from analyzer.reconcile.books import Books
from analyzer.reconcile.lines import Line

__all__ = ["match_rotary"]

Reals = npt.NDArray[np.float64]

_MOST = 1 << 22
"""Elements up to which a table is looked at."""

_NEAR = 2e-3
"""Cosines in float16 differ from those in float64 by half of that; an angle of a thousand in float32 by less."""


def match_rotary(books: Books) -> None:
    """Settle as `buffer` each nameless table all of whose rows are cosines, or sines, of whole positions."""
    if books.contents.mode == "none":
        return
    tables = list(_frequencies(books))
    for entry in list(books.free_entries()):
        is_learned = entry.role in (Role.QUANTIZATION, Role.CONSTANT)
        if is_learned or not entry.tensor.dtype.is_floating or not 1 < entry.tensor.numel <= _MOST:
            continue
        for buffer, frequencies in tables:
            if _is_table(books, entry, frequencies):
                books.settle(entry, Line.BUFFER, "content:rotary", buffer.name)
                break


def _frequencies(books: Books) -> Iterator[tuple[Buffer, Reals]]:
    for buffer in books.manifest.buffers:
        if (
            buffer.name.rpartition(".")[2].endswith("inv_freq")
            and len(buffer.shape) == 1
            and buffer.numel > 1
        ):
            values = books.contents.originals.vector(buffer.name)
            if values is not None:
                yield buffer, values


def _is_table(books: Books, entry: Entry, frequencies: Reals) -> bool:
    array = books.contents.array(entry)
    if array is None:
        return False
    width = frequencies.size
    for axis in range(array.ndim):
        if array.shape[axis] in (width, 2 * width):
            rows = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis]).astype(np.float64)
            if any(_follows(rows, angles) for angles in _angles(frequencies, rows)):
                return True
    return False


def _angles(frequencies: Reals, rows: Reals) -> Iterator[Reals]:
    """Angles a position, (width of a row,): once, or for both halves, or for both of each pair."""
    if rows.shape[1] == frequencies.size:
        yield frequencies
    else:
        yield np.concatenate([frequencies, frequencies])
        yield np.repeat(frequencies, 2)


def _follows(rows: Reals, angles: Reals) -> bool:
    """Whether the rows are those of positions 0, 1, 2, ..., from the first on, however often they are repeated."""
    for count in {len(rows), *(n for n in range(2, len(rows)) if len(rows) % n == 0)}:
        positions = np.arange(count)[:, None] * angles  # (positions, width)
        for table in (np.cos(positions), np.sin(positions)):
            whole = np.tile(table, (len(rows) // count, 1))
            factor = _factor(rows, whole)
            if factor and bool((np.abs(rows - factor * whole) <= _NEAR * abs(factor)).all()):
                return True
    return False


def _factor(rows: Reals, table: Reals) -> float:
    size = float((table * table).sum())
    return float((rows * table).sum()) / size if size else 0.0
