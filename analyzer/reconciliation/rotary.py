"""Rules for rotary embeddings: tables that a static export computed of frequencies, and frequencies that are others.

cos(p f) and sin(p f) for positions p and frequencies f, times one factor (Su et al. 2021, section 3.4.2; transformers
`modeling_rope_utils.py`, `attention_scaling`). The frequencies are a buffer, `inv_freq`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from analyzer.ledger import Entry, Role
from analyzer.manifest import Buffer, split_name
from analyzer.model import Place
from analyzer.model.operators import DECODES, MOVES
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import Line
from analyzer.waves import are_frequencies

__all__ = ["is_only_turned", "match_rotary", "settle_untuned"]

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


def settle_untuned(books: Books) -> None:
    """Settle as `differing` each nameless vector that stands where frequencies belong, and is not PyTorch's.

    PyTorch's program reads its frequencies, and the file holds them nowhere; of a vector of as many elements nothing is
    computed but cosines and sines: the file turns by other angles, though these may be frequencies, too.
    """
    if books.contents.mode == "none" or not books.manifest.lists_all_buffers:
        return
    held = {line.parameter for line in books.entries.values()}
    for buffer, frequencies in _frequencies(books):
        if buffer.read is False or held & {*buffer.names} or not are_frequencies(frequencies, _FREQUENCIES):
            continue
        for entry in list(books.free_entries()):
            if not entry.tensor.dtype.is_floating or books.contents.numel(entry) not in (
                frequencies.size,
                2 * frequencies.size,
            ):
                continue
            scope, module = books.aligned.module(entry.scope), split_name(buffer.name)[0]
            is_at_home = not entry.has_scope or not scope or f"{module}.".startswith(f"{scope}.")
            if is_at_home and is_only_turned(books, entry):
                books.settle(entry, Line.DIFFERING, f"structure+{books.contents.evidence}", buffer.name)


_FREQUENCIES = 2e-4
"""Relative error of frequencies that are stored as PyTorch stores them."""


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
    """Whether the rows are those of positions 0, 1, 2, ..., from the first on, however often they are repeated.

    At position 0 all cosines are 1, which says nothing of the frequencies: there have to be two positions.
    """
    for count in (n for n in range(2, len(rows) + 1) if len(rows) % n == 0):
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


def is_only_turned(books: Books, entry: Entry) -> bool:
    """Whether all that is computed of a tensor, past one product, are cosines and sines."""
    wiring = books.ledger.wiring
    waiting = [(reader, 0) for reader in wiring.readers(entry.tensor)]
    seen: set[Place] = set()
    is_turned = False
    while waiting:
        (node, _), products = waiting.pop()
        if node.op_type in ("Cos", "Sin") and node.is_standard:
            is_turned = True
            continue
        products += node.op_type in _PRODUCTS
        if products > 1 or node.op_type not in _ONWARDS or len(seen) > _MOST_ONWARDS:
            return False
        if node.place not in seen:
            seen.add(node.place)
            onwards = wiring.readers(node)
            if not onwards:
                return False
            waiting += [(reader, products) for reader in onwards]
    return is_turned


_PRODUCTS = frozenset({"MatMul", "Mul", "QLinearMatMul", "QLinearMul"})
"""What multiplies frequencies by positions."""

_ONWARDS = _PRODUCTS | MOVES | DECODES | {"Cast", "Concat", "Expand", "QLinearConcat", "QuantizeLinear"}
"""What may stand between frequencies and the sines of their angles."""

_MOST_ONWARDS = 64
"""Nodes that are followed."""
