"""Rule: weights of LSTM, GRU and RNN, whose gates ONNX has in another order, with all directions in one tensor.

PyTorch has the rows of a gate after those of another (torch.nn.LSTM: i, f, g, o; torch.nn.GRU: r, z, n), a tensor for
each direction. ONNX (docs/Operators.md) has W (directions, gates x hidden, input), R (directions, gates x hidden,
hidden) and B (directions, 2 x gates x hidden), with the gates i, o, f, c of LSTM and z, r, h of GRU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzer.content import digest as digest_of
from analyzer.content import rounded, sample_positions
from analyzer.ledger import Entry
from analyzer.manifest import Parameter
from analyzer.model import Node
from analyzer.reconcile.books import Books, Holding
from analyzer.reconcile.lines import Line, Piece

__all__ = ["match_recurrent"]

_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""Where ONNX has each of PyTorch's gates."""

_SLOTS = (1, 2, 3)
"""W, R and B."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Where one PyTorch tensor is in a stored one: its rows begin at `start`, in runs of `hidden` in `order`."""

    tensor: Parameter
    start: int
    hidden: int
    order: tuple[int, ...]
    changed: tuple[Line, ...]

    def rows(self) -> npt.NDArray[np.int64]:
        """The stored row of each of PyTorch's rows."""
        runs = [self.start + gate * self.hidden + np.arange(self.hidden) for gate in self.order]
        return np.concatenate(runs).astype(np.int64)


def match_recurrent(books: Books) -> None:
    """Explain what recurrent operators read, where every run of rows is one of PyTorch's tensors."""
    if books.contents.mode == "none":
        return
    suspected = [suspect.entry for suspect in books.suspects]
    for entry in [*suspected, *books.free_entries()]:
        for node in books.users(entry):
            is_weight = any(
                reader.node.op_type == node.op_type and reader.slot in _SLOTS
                for reader in books.readers(entry)
            )
            if node.op_type in _GATES and is_weight:
                parts = _take_apart(books, entry, node)
                if parts:
                    _settle(books, entry, parts)
                break


def _take_apart(books: Books, entry: Entry, node: Node) -> list[_Part]:
    shape = books.contents.shape(entry)
    order = _GATES[node.op_type]
    gates = len(order)
    if len(shape) not in (2, 3):
        return []
    is_bias = len(shape) == 2
    blocks = shape[0] * (2 if is_bias else 1)
    rows = shape[0] * shape[1]
    if rows % (blocks * gates):
        return []
    hidden = rows // (blocks * gates)
    parts: list[_Part] = []
    for block in range(blocks):
        used = {part.tensor.name for part in parts}
        start = block * gates * hidden
        part = next(_there(books, entry, start, hidden, order, used, is_bias=is_bias), None)
        if part is None:
            return []
        parts.append(part)
    return parts


def _there(
    books: Books,
    entry: Entry,
    start: int,
    hidden: int,
    order: tuple[int, ...],
    used: set[str],
    *,
    is_bias: bool,
) -> Iterator[_Part]:
    rows = hidden * len(order)
    shape = (rows,) if is_bias else (rows, books.contents.shape(entry)[2])
    for tensor in books.free_parameters():
        changed = books.contents.changes(entry, tensor)
        if tensor.shape == shape and tensor.name not in used and changed is not None:
            part = _Part(tensor, start, hidden, order, changed)
            if _holds(books, entry, part):
                yield part


def _holds(books: Books, entry: Entry, part: _Part) -> bool:
    samples = books.contents.originals.samples(part.tensor)
    if samples is None:
        return False
    width = part.tensor.numel // max(1, part.tensor.shape[0])
    positions = sample_positions(part.tensor.numel)
    rows = part.rows()
    look = books.contents.at(entry, rows[positions // width] * width + positions % width)
    if look is None:
        return False
    stored, steps = look
    if steps is not None:
        return bool((np.abs(stored - samples.astype(np.float64)) <= steps * 1.001 + 1e-12).all())
    mine = next(rounded(stored, None))
    ways = [samples] if not part.changed else list(rounded(samples, entry.tensor.dtype))
    if not any(mine.tobytes() == way.tobytes() for way in ways):
        return False
    array = books.contents.array(entry) if books.contents.mode == "full" and not part.changed else None
    if array is None:
        return not (books.contents.mode == "full" and not part.changed)
    return digest_of(array.reshape(-1, width)[rows]) == books.contents.originals.digest(part.tensor)


def _settle(books: Books, entry: Entry, parts: list[_Part]) -> None:
    books.suspects = [s for s in books.suspects if s.entry.tensor.key != entry.tensor.key]
    total = len(parts)
    for number, part in enumerate(parts):
        stored = entry.tensor.numel * (number + 1) // total - entry.tensor.numel * number // total
        line = Line.CONCATENATED if total > 1 else Line.RESHAPED
        evidence = "content" if books.contents.mode == "full" and not part.changed else "sampled"
        rest = part.tensor.shape[1:]
        pieces = tuple(
            Piece(
                entry.tensor.key,
                (part.hidden, *rest),
                tuple(range(1 + len(rest))),
                taken=(0, part.start + gate * part.hidden, part.start + (gate + 1) * part.hidden),
                put=(0, place * part.hidden, (place + 1) * part.hidden),
                viewed=(-1, *rest),
            )
            for place, gate in enumerate(part.order)
        )
        holding = Holding(entry.tensor.key, part.tensor.numel, stored)
        chain = (line, *part.changed)
        error = None if part.changed else 0.0
        books.hold_parts(part.tensor, [holding], chain, f"{evidence}:gates", error, pieces)
