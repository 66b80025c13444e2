"""Rule: a detector's anchor boxes, which a file has level by level, in pixels.

A checkpoint has the widths and heights of all levels' anchors in one buffer. `forward` multiplies each level's slice by
the level's stride, 8, 16 and 32 (YOLOv5), or all slices by one number (YOLOv7), and a static export repeats it for all
cells (Redmon and Farhadi 2018, arXiv:1804.02767, section 2.1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from analyzer.account.ledger import Entry, Role
from analyzer.manifest import Buffer
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.closeness import Reals
from analyzer.reconciliation.lines import Line

_MOST_LEVELS = 8
_MOST_ANCHORS = 64
"""Most anchors of a level."""
_FACTORS = frozenset(2.0**exponent for exponent in range(8))
"""Strides in pixels, and 1."""


def match_anchors(books: Books) -> None:
    """Explain tensors that are the slices of a buffer of sizes, one for each level, times the strides of the levels."""
    tables = [(buffer, levels) for buffer in books.manifest.buffers if (levels := _levels(books, buffer))]
    entries = [
        (entry, sizes) for entry in books.free_entries() if (sizes := _sizes(books, entry)) is not None
    ]
    for buffer, levels in tables if entries else ():
        found = [[*_scaled(level, entries)] for level in levels]
        if not all(found):
            continue
        factors = [{factor for _, factor in each} for each in found]
        places = [place for each in found for place in sorted(_place(books, entry) for entry, _ in each)]
        if _are_strides(factors) and places == sorted(places):
            for entry, _ in itertools.chain.from_iterable(found):
                books.settle(entry, Line.BUFFER, "content:anchors", buffer.name)
            taken = {entry.tensor.key for each in found for entry, _ in each}
            entries = [each for each in entries if each[0].tensor.key not in taken]


def _levels(books: Books, buffer: Buffer) -> Sequence[Reals]:
    """Return each level's widths and heights (anchors, 2), if a buffer may hold anchors."""
    is_table = len(buffer.shape) >= 3 and buffer.shape[-1] == 2 and 2 <= buffer.shape[0] <= _MOST_LEVELS
    count = math.prod(buffer.shape[1:-1])
    if not is_table or not 2 <= count <= _MOST_ANCHORS or not buffer.dtype.is_floating:
        return ()
    array = books.contents.originals.values(buffer)
    if array is None:
        return ()
    values = array.astype(np.float64)
    return [*values.reshape(buffer.shape[0], count, 2)] if bool((values > 0).all()) else ()


def _sizes(books: Books, entry: Entry) -> Reals | None:
    """Return an unexplained tensor's widths and heights (anchors, 2), each once; None if it has none."""
    shape = entry.tensor.shape
    if entry.role is Role.BUFFER or not entry.uses or len(shape) < 3 or shape[-1] != 2:
        return None
    array = books.contents.array(entry)
    if array is None or array.dtype.kind != "f" or not array.size:
        return None
    values = array.astype(np.float64)
    if not bool((values > 0).all()):
        return None
    for axis in range(values.ndim - 1):
        first = values.take([0], axis)
        values = first if bool((values == first).all()) else values
    return values.reshape(-1, 2)


def _scaled(level: Reals, entries: Sequence[tuple[Entry, Reals]]) -> Iterator[tuple[Entry, float]]:
    """Yield the entries that are a level's sizes times a stride, each with the stride."""
    for entry, sizes in entries:
        if sizes.shape == level.shape:
            factor = float(np.rint(sizes[0, 0] / level[0, 0]))
            if factor in _FACTORS and np.allclose(sizes, level * factor, rtol=1e-6, atol=0.0):
                yield entry, factor


def _are_strides(factors: Sequence[set[float]]) -> bool:
    """Whether each level has one stride, and all have the same, or each twice that of the level before."""
    if any(len(each) > 1 for each in factors):
        return False
    ratios = {after / before for (before,), (after,) in itertools.pairwise(factors)}
    return len(ratios) == 1 and ratios <= {1.0, 2.0}


def _place(books: Books, entry: Entry) -> int:
    """Return the position of the first node that reads an entry: a file computes its levels in order."""
    return min(reader.node.position for reader in books.readers(entry))
