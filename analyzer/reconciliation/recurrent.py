"""Rule: weights of LSTM, GRU and RNN, whose gates ONNX has in another order, with all directions in one tensor.

PyTorch has the rows of a gate after those of another (torch.nn.LSTM: i, f, g, o; torch.nn.GRU: r, z, n), a tensor for
each direction. ONNX (docs/Operators.md) has W (directions, gates x hidden, input), R (directions, gates x hidden,
hidden) and B (directions, 2 x gates x hidden), with the gates i, o, f, c of LSTM and z, r, h of GRU. Onnxruntime's
DynamicQuantizeLSTM (docs/ContribOperators.md) has W and R turned: (directions, input, gates x hidden).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from analyzer.content import Array, cast_digest, rounded
from analyzer.content import digest as digest_of
from analyzer.ledger import Entry
from analyzer.manifest import Parameter
from analyzer.model import GraphPath, Node
from analyzer.model.operators import DECODES
from analyzer.reconciliation.books import Books, Holding
from analyzer.reconciliation.closeness import is_like
from analyzer.reconciliation.lines import Line, Piece
from analyzer.scopes import module_of
from analyzer.wiring import Reader

__all__ = ["match_recurrent"]

_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,), "DynamicQuantizeLSTM": (0, 2, 3, 1)}
"""Where ONNX has each of PyTorch's gates."""

_TURNED = "DynamicQuantizeLSTM"
"""The operator whose W and R have the gates along the last axis."""

_SLOTS = {1: ("weight_ih",), 2: ("weight_hh",), 3: ("bias_ih", "bias_hh")}
"""W, R and B, and what PyTorch calls the blocks of one direction of each."""

_NAME = re.compile(r"((?:weight|bias)_[ih]h)(_l\d+)?(_reverse)?")
"""Names of torch.nn.LSTM, GRU and RNN, and of their cells."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Where one PyTorch tensor is in a stored one: its rows begin at `start`, in runs of `hidden` in `order`."""

    tensor: Parameter
    start: int
    hidden: int
    order: tuple[int, ...]
    changed: tuple[Line, ...]
    is_turned: bool = False
    """Whether the stored rows are columns, direction by direction."""
    evidence: str = "sampled"

    def places(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where the stored tensor has these of the tensor's elements; both are counted along their rows."""
        width = self.tensor.numel // max(1, self.tensor.shape[0])
        rows, columns = self.rows()[positions // width], positions % width
        if not self.is_turned:
            return rows * width + columns
        length = self.hidden * len(self.order)
        return (rows // length * width + columns) * length + rows % length

    def rows(self) -> npt.NDArray[np.int64]:
        """The stored row of each of PyTorch's rows."""
        runs = [self.start + gate * self.hidden + np.arange(self.hidden) for gate in self.order]
        return np.concatenate(runs).astype(np.int64)


def match_recurrent(books: Books) -> None:
    """Explain what recurrent operators read, where every run of rows is one of PyTorch's tensors.

    What is not explained so is nobody's: rows as PyTorch has them are in the wrong order there.
    """
    if books.contents.mode == "none":
        return
    suspected = [suspect.entry for suspect in books.suspects]
    layers: dict[tuple[GraphPath, int], str | None] = {}
    for entry in [*suspected, *books.free_entries()]:
        for node, slot in _reads(books, entry):
            if node.op_type in _GATES and slot in _SLOTS:
                parts = _take_apart(books, entry, node, slot, layers.get((node.graph_path, node.position)))
                if parts:
                    _settle(books, entry, parts)
                    layers[node.graph_path, node.position] = _layer(parts[0].tensor.name)
                else:
                    books.misfits.add(entry.tensor.key)
                break


def _reads(books: Books, entry: Entry) -> Iterator[Reader]:
    """The nodes that read an entry, as it is or decoded or cast."""
    yield from books.ledger.wiring.readers(entry.tensor, past=DECODES)


def _layer(name: str) -> str | None:
    """The module and the number of the layer that a tensor belongs to; None where it is not named as PyTorch's are."""
    match = _NAME.fullmatch(name.rpartition(".")[2])
    return None if match is None else f"{module_of(name)} {match[2]}"


def _take_apart(books: Books, entry: Entry, node: Node, slot: int, layer: str | None) -> list[_Part]:
    """The tensors in order; of the layer that the node's other inputs are of, if that is known."""
    shape = books.contents.shape(entry)
    order = _GATES[node.op_type]
    gates = len(order)
    if len(shape) not in (2, 3):
        return []
    is_bias = len(shape) == 2
    is_turned = node.op_type == _TURNED and not is_bias
    if is_turned:
        shape = (shape[0], shape[2], shape[1])
    blocks = shape[0] * (2 if is_bias else 1)
    rows = shape[0] * shape[1]
    if rows % (blocks * gates):
        return []
    hidden = rows // (blocks * gates)
    parts: list[_Part] = []
    for block in range(blocks):
        used = {part.tensor.name for part in parts}
        start = block * gates * hidden
        direction, number = divmod(block, len(_SLOTS[slot]))
        is_reverse = direction == 1 if shape[0] > 1 else None
        expected = (gates * hidden,) if is_bias else (gates * hidden, shape[2])
        for part in _there(books, entry, start, hidden, order, expected, is_turned=is_turned):
            name = part.tensor.name
            is_of_layer = not layer or _layer(name) in (None, layer)
            if is_of_layer and _may_be(name, _SLOTS[slot][number], is_reverse) and name not in used:
                parts.append(part)
                layer = _layer(name)
                break
        else:
            return []
    return parts


def _may_be(name: str, expected: str, is_reverse: bool | None) -> bool:
    """Whether a name does not say that its tensor belongs elsewhere: W and R may have one shape."""
    match = _NAME.fullmatch(name.rpartition(".")[2])
    return match is None or (match[1] == expected and is_reverse in (None, bool(match[3])))


def _there(
    books: Books,
    entry: Entry,
    start: int,
    hidden: int,
    order: tuple[int, ...],
    shape: tuple[int, ...],
    *,
    is_turned: bool,
) -> Iterator[_Part]:
    for tensor in books.free_parameters():
        changed = books.contents.changes(entry, tensor)
        if tensor.shape == shape and changed is not None:
            part = _Part(tensor, start, hidden, order, changed, is_turned)
            evidence = _compare(books, entry, part)
            if evidence is not None:
                yield replace(part, evidence=evidence)


def _compare(books: Books, entry: Entry, part: _Part) -> str | None:
    """Whether the tensor is there, by all that is known of it or by its samples; None where it is not."""
    originals = books.contents.originals
    samples = originals.samples(part.tensor)
    positions = originals.positions(part.tensor.numel)
    if samples is None or not _holds(books, entry, part, positions, samples):
        return None
    if books.contents.mode != "full":
        return "sampled"
    if positions.size == part.tensor.numel:
        return "content"
    values = originals.values(part.tensor)
    if values is not None:
        every = np.arange(part.tensor.numel, dtype=np.int64)
        return "content" if _holds(books, entry, part, every, values.reshape(-1)) else None
    if books.contents.encoding(entry) is not None:
        return "sampled"
    array = books.contents.array(entry)
    if array is None or part.is_turned:
        return None
    restored = array.reshape(-1, part.tensor.numel // part.tensor.shape[0])[part.rows()]
    if not part.changed:
        return "content" if digest_of(restored) == originals.digest(part.tensor) else None
    expected = originals.cast_digest(part.tensor, entry.tensor.dtype)
    if expected is None:
        return "sampled"
    return "content" if cast_digest(restored, entry.tensor.dtype) == expected else None


def _holds(
    books: Books, entry: Entry, part: _Part, positions: npt.NDArray[np.int64], expected: Array
) -> bool:
    """Whether the stored numbers at positions of the tensor are what they should be."""
    look = books.contents.at(entry, part.places(positions))
    if look is None:
        return False
    stored, steps = look
    if steps is not None:
        return is_like(stored, expected.astype(np.float64), steps)
    if not part.changed:
        return stored.tobytes() == expected.tobytes()
    mine = next(rounded(stored, None))
    return any(mine.tobytes() == way.tobytes() for way in rounded(expected, entry.tensor.dtype))


def _settle(books: Books, entry: Entry, parts: list[_Part]) -> None:
    books.suspects = [s for s in books.suspects if s.entry.tensor.key != entry.tensor.key]
    total = len(parts)
    for number, part in enumerate(parts):
        stored = entry.tensor.numel * (number + 1) // total - entry.tensor.numel * number // total
        line = Line.CONCATENATED if total > 1 else Line.RESHAPED
        rest = part.tensor.shape[1:]
        pieces = tuple(
            Piece(
                entry.tensor.key,
                (part.hidden, *rest),
                (1, 0) if part.is_turned else tuple(range(1 + len(rest))),
                taken=(
                    int(part.is_turned),
                    part.start + gate * part.hidden,
                    part.start + (gate + 1) * part.hidden,
                ),
                put=(0, place * part.hidden, (place + 1) * part.hidden),
                viewed=(*rest, -1) if part.is_turned else (-1, *rest),
            )
            for place, gate in enumerate(part.order)
        )
        if part.is_turned and total > 1:
            pieces = ()  # a part of each row of one direction is no one cut
        holding = Holding(entry.tensor.key, part.tensor.numel, stored)
        chain = (line, *part.changed)
        error = None if part.changed else 0.0
        books.hold_parts(part.tensor, [holding], chain, f"{part.evidence}:gates", error, pieces)
