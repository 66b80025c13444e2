"""Rules: several PyTorch tensors that are stored in one tensor.

Tensors may be side by side: packed query, key and value; gate and up. If some of them are held elsewhere already
(MobileBERT's head: the table of words, transposed, above a matrix of its own), each may have its own order of axes.

The gates of LSTM, GRU and RNN, with all directions in one tensor: PyTorch has the rows of one gate after those of
another (torch.nn.LSTM: i, f, g, o; torch.nn.GRU: r, z, n), and a tensor for each direction. ONNX (docs/Operators.md)
has W (directions, gates x hidden, input), R (directions, gates x hidden, hidden) and B (directions, 2 x gates x
hidden), with the gates i, o, f, c of LSTM and z, r, h of GRU. Onnxruntime's DynamicQuantizeLSTM
(docs/ContribOperators.md) has W and R transposed: (directions, input, gates x hidden).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from analyzer.account.ledger import Entry, Role
from analyzer.account.scopes import module_of
from analyzer.manifest import Parameter
from analyzer.model import GraphPath, Node
from analyzer.model.content import Array, cast_digest
from analyzer.model.content import digest as digest_of
from analyzer.model.operators import DECODES
from analyzer.reconciliation.books import Books, Holding, piece_of
from analyzer.reconciliation.closeness import is_like, is_rounded
from analyzer.reconciliation.contents import Fit, Stacks
from analyzer.reconciliation.layouts import AxisLayout, is_turned
from analyzer.reconciliation.lines import Line, Piece, with_line
from analyzer.records import Frozen, replace

# side by side

_MOST_AXES = 3

_Form = tuple[tuple[int, ...], tuple[int, ...]]
"""PyTorch shape, and the order of its axes in the file."""


class _Run(Frozen):
    """Run along one axis that holds a PyTorch tensor, or zeros in place of a tensor that PyTorch lacks."""

    tensor: Parameter | None
    fit: Fit | None
    start: int
    stop: int


def match_concatenated(books: Books) -> None:
    """Explain nameless entries that PyTorch tensors fill from end to end along one axis."""
    if books.contents.mode == "none":
        return
    stacks = Stacks(books.contents, books.free_parameters())
    for entry in list(books.free_entries()):
        if (
            entry.role in (Role.PARAMETER, Role.UNATTRIBUTED, Role.CONSTANT)
            and books.contents.numel(entry) > 1
        ):
            parts = _find_runs(books, entry, stacks, are_settled=False)
            if parts:
                _settle_runs(books, entry, parts)


def match_packed_copies(books: Books) -> None:
    """Explain entries filled from end to end by held PyTorch tensors, as copies, or by held and free ones together."""
    if books.contents.mode == "none":
        return
    stacks = Stacks(books.contents, (p for p in books.manifest.parameters if p.name in books.holdings))
    for entry in list(books.free_entries()):
        if entry.role in (Role.PARAMETER, Role.UNATTRIBUTED) and books.contents.numel(entry) > 1:
            parts = _find_runs(books, entry, stacks, are_settled=True)
            if parts and all(part.tensor is not None for part in parts):
                for part in parts:
                    assert part.tensor is not None
                    assert part.fit is not None
                    books.copy(part.tensor, entry, f"{part.fit.evidence}:packed")
    _match_rest(books)


def _match_rest(books: Books) -> None:
    """Explain entries that tensors fill from end to end, some of which are held elsewhere, and some only here."""
    if not any(True for _ in books.free_parameters()):
        return
    stacks = Stacks(books.contents, books.manifest.parameters)
    for entry in list(books.free_entries()):
        if entry.role not in (Role.PARAMETER, Role.UNATTRIBUTED) or len(books.contents.shape(entry)) != 2:
            continue
        parts = _find_runs(books, entry, stacks, are_settled=True, is_mixed=True)
        found = [
            (part.tensor, part.fit) for part in parts if part.tensor is not None and part.fit is not None
        ]
        if len(found) < len(parts) or len({tensor.name for tensor, _ in found}) < len(found):
            continue
        is_free = [tensor.name not in books.parameters for tensor, _ in found]
        if any(is_free) and not all(is_free):
            _settle_rest(books, entry, parts)


def _settle_rest(books: Books, entry: Entry, parts: list[_Run]) -> None:
    """Count the tensors that only this entry holds; the others are copies."""
    remaining = entry.tensor.numel
    for part in parts:
        assert part.tensor is not None
        assert part.fit is not None
        if part.tensor.name in books.parameters:
            settled = books.parameters[part.tensor.name]
            chain = settled.chain if Line.COPIED in settled.chain else (*settled.chain, Line.COPIED)
            keys = (*settled.entries, entry.tensor.key)
            books.parameters[part.tensor.name] = replace(settled, chain=chain, entries=keys)
            continue
        chain = with_line(part.fit.chain, Line.CONCATENATED)
        window = part.fit.layout.window
        assert window is not None
        piece = replace(piece_of(entry, part.fit), taken=(window[0], part.start, part.stop))
        holding = Holding(entry.tensor.key, part.tensor.numel, remaining)
        books.assign_parts(part.tensor, [holding], chain, part.fit.evidence, part.fit.error, (piece,))
        remaining = 0


def _find_runs(
    books: Books, entry: Entry, stacks: Stacks, *, are_settled: bool, is_mixed: bool = False
) -> list[_Run]:
    """Return the parts in order, along the first axis on which they fill the entry; none if they do not fill it."""
    stored = books.contents.shape(entry)
    if len(stored) > _MOST_AXES:
        return []
    squeezed = tuple(dim for dim in stored if dim != 1)
    # Samples may fit a square matrix in both orders of axes, so the likelier order is tried first.
    is_likely_turned = is_turned(entry, books.contents.wiring, is_computed=True)
    for axis in range(len(squeezed)):
        shapes = _fitting(stacks, squeezed, axis, is_turned=is_likely_turned)
        if shapes:
            parts = _fill_runs(
                books, entry, squeezed, axis, shapes, stacks, are_settled=are_settled, is_mixed=is_mixed
            )
            if sum(part.tensor is not None for part in parts) > 1:
                return parts
    return []


def _fitting(stacks: Stacks, stored: tuple[int, ...], axis: int, *, is_turned: bool) -> list[_Form]:
    """Return the shapes and orders of axes in which a tensor equals the entry's shape except along one axis."""
    found: list[_Form] = []
    wanted = [dim for number, dim in enumerate(stored) if number != axis]
    for shape in stacks.all_shapes:
        if len(shape) != len(stored):
            continue
        for axes in sorted(itertools.permutations(range(len(shape))), reverse=is_turned and len(shape) == 2):
            turned = [shape[number] for number in axes]
            rest = [dim for number, dim in enumerate(turned) if number != axis]
            if rest == wanted and turned[axis] < stored[axis]:
                found.append((shape, axes))
    return found


def _fill_runs(
    books: Books,
    entry: Entry,
    stored: tuple[int, ...],
    axis: int,
    shapes: list[_Form],
    stacks: Stacks,
    *,
    are_settled: bool,
    is_mixed: bool,
) -> list[_Run]:
    """Return the tensors that fill an entry, from the start on; empty if no tensor fits at some place."""
    parts: list[_Run] = []
    start, layout_axes = 0, None
    used = set() if are_settled else set(books.parameters)
    # A gap stands for one more tensor of the same kind. The limit stops a file that claims terabytes of zeros.
    gaps = sum(len(stacks.of(shape)[0]) for shape in {shape for shape, _ in shapes})
    while start < stored[axis]:
        found = None
        for shape, axes in shapes:
            if layout_axes is not None and axes != layout_axes:
                continue
            layout = AxisLayout(shape, axes, stored, (axis, start))
            stop = start + shape[axes[axis]]
            if stop > stored[axis]:
                continue
            look = books.contents.look(entry, layout)
            candidates = [] if look is None else stacks.near(shape, look)
            free = [
                tensor for tensor in candidates if isinstance(tensor, Parameter) and tensor.name not in used
            ]
            found = next(_find_tensors_at(books, entry, layout, free, parts), None)
            if found is not None:
                tensor, fit = found
                parts.append(_Run(tensor, fit, start, stop))
                used.add(tensor.name)
                layout_axes, start = None if is_mixed else axes, stop
                break
        if found is None:
            gap = _find_zeros(
                books, entry, stored, axis, start, [shape[axes[axis]] for shape, axes in shapes]
            )
            if gap is None or not gaps:
                return []
            gaps -= 1
            parts.append(_Run(None, None, start, gap))
            start = gap
    return parts


def _find_tensors_at(
    books: Books, entry: Entry, layout: AxisLayout, tensors: list[Parameter], before: list[_Run]
) -> Iterator[tuple[Parameter, Fit]]:
    """Yield the tensors that the entry holds in this place, those near the last part's module first."""
    last = next((part.tensor for part in reversed(before) if part.tensor is not None), None)
    modules = books.reader_modules(entry)

    def distance(tensor: Parameter) -> tuple[bool, int]:
        shared = 0 if last is None else -_count_shared_steps(last.name, tensor.name)
        return not any(module_of(tensor.name).startswith(module) for module in modules), shared

    for tensor in sorted(tensors, key=distance):
        fit = books.contents.fit_layout(entry, tensor, layout, is_named=False)
        if fit is not None and not books.is_elsewhere(entry, tensor):
            yield tensor, fit


def _count_shared_steps(one: str, other: str) -> int:
    pairs = zip(one.split("."), other.split("."), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _find_zeros(
    books: Books, entry: Entry, stored: tuple[int, ...], axis: int, start: int, sizes: list[int]
) -> int | None:
    """Return the end of a run of zeros as long as some tensor, which replaces a bias that PyTorch lacks; else None."""
    fitting = {size for size in sizes if start + size <= stored[axis] and len(stored) == 1}
    for size in sorted(fitting, reverse=True):
        look = books.contents.at(entry, np.arange(start, start + size, dtype=np.int64))
        if look is not None and not look[0].astype(np.float64).any():
            return start + size
    return None


def _settle_runs(books: Books, entry: Entry, parts: list[_Run]) -> None:
    total, length = entry.tensor.numel, parts[-1].stop
    for part in parts:
        if part.tensor is None or part.fit is None:
            continue
        stored = total * part.stop // length - total * part.start // length
        holding = Holding(entry.tensor.key, part.tensor.numel, stored)
        chain = with_line(part.fit.chain, Line.CONCATENATED)
        window = part.fit.layout.window
        assert window is not None
        piece = replace(piece_of(entry, part.fit), taken=(window[0], part.start, part.stop))
        books.assign_parts(part.tensor, [holding], chain, part.fit.evidence, part.fit.error, (piece,))


# gates of recurrent layers

_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,), "DynamicQuantizeLSTM": (0, 2, 3, 1)}
"""Operator -> index in ONNX of each of PyTorch's gates."""

_TURNED = "DynamicQuantizeLSTM"
"""Operator whose W and R have the gates along the last axis."""

_SLOTS = {1: ("weight_ih",), 2: ("weight_hh",), 3: ("bias_ih", "bias_hh")}
"""Slots of W, R and B -> PyTorch's names for the blocks of one direction."""

_RECURRENT_NAME = re.compile(r"((?:weight|bias)_[ih]h)(_l\d+)?(_reverse)?")
"""Names of torch.nn.LSTM, GRU and RNN, and of their cells."""


class _GateRows(Frozen):
    """Rows of one PyTorch tensor in a stored one: they begin at `start`, in runs of `hidden` rows in `order`."""

    tensor: Parameter
    start: int
    hidden: int
    order: tuple[int, ...]
    changed: tuple[Line, ...]
    is_turned: bool = False
    """Whether each direction is stored transposed, with rows as columns."""
    evidence: str = "sampled"

    def places(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the stored positions of elements at positions of the PyTorch tensor, both row-major."""
        width = self.tensor.numel // max(1, self.tensor.shape[0])
        rows, columns = self.rows()[positions // width], positions % width
        if not self.is_turned:
            return rows * width + columns
        length = self.hidden * len(self.order)
        return (rows // length * width + columns) * length + rows % length

    def rows(self) -> npt.NDArray[np.int64]:
        """Return the stored row of each of PyTorch's rows."""
        runs = [self.start + gate * self.hidden + np.arange(self.hidden) for gate in self.order]
        return np.concatenate(runs).astype(np.int64)


def match_recurrent(books: Books) -> None:
    """Explain the weights of recurrent operators, if every run of rows is a PyTorch tensor.

    Other weights of these operators are misfits: rows in PyTorch's order are in the wrong order there.
    """
    if books.contents.mode == "none":
        return
    layers: dict[tuple[GraphPath, int], str | None] = {}
    for entry in books.open_entries():
        for node, slot in books.ledger.wiring.readers(entry.tensor, past=DECODES):
            if node.op_type in _GATES and slot in _SLOTS:
                parts = _find_gates(books, entry, node, slot, layers.get((node.graph_path, node.position)))
                if parts:
                    _settle_gates(books, entry, parts)
                    layers[node.graph_path, node.position] = _layer_of(parts[0].tensor.name)
                else:
                    books.misfits.add(entry.tensor.key)
                break


def _layer_of(name: str) -> str | None:
    """Return the module and the layer number of a tensor; None if it is not named as PyTorch's recurrent tensors."""
    match = _RECURRENT_NAME.fullmatch(name.rpartition(".")[2])
    return None if match is None else f"{module_of(name)} {match[2]}"


def _find_gates(books: Books, entry: Entry, node: Node, slot: int, layer: str | None) -> list[_GateRows]:
    """Return the tensors of an entry in order, from the layer of the node's other inputs if that is known."""
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
    if not rows or rows % (blocks * gates):
        return []
    hidden = rows // (blocks * gates)
    parts: list[_GateRows] = []
    for block in range(blocks):
        used = {part.tensor.name for part in parts}
        start = block * gates * hidden
        direction, number = divmod(block, len(_SLOTS[slot]))
        is_reverse = direction == 1 if shape[0] > 1 else None
        expected = (gates * hidden,) if is_bias else (gates * hidden, shape[2])
        for part in _find_gates_at(books, entry, start, hidden, order, expected, is_turned=is_turned):
            name = part.tensor.name
            is_of_layer = not layer or _layer_of(name) in (None, layer)
            if is_of_layer and _may_be_named(name, _SLOTS[slot][number], is_reverse) and name not in used:
                parts.append(part)
                layer = _layer_of(name)
                break
        else:
            return []
    return parts


def _may_be_named(name: str, expected: str, is_reverse: bool | None) -> bool:
    """Whether a name allows its tensor in this place: W and R may have the same shape."""
    match = _RECURRENT_NAME.fullmatch(name.rpartition(".")[2])
    return match is None or (match[1] == expected and is_reverse in (None, bool(match[3])))


def _find_gates_at(
    books: Books,
    entry: Entry,
    start: int,
    hidden: int,
    order: tuple[int, ...],
    shape: tuple[int, ...],
    *,
    is_turned: bool,
) -> Iterator[_GateRows]:
    for tensor in books.free_parameters():
        changed = books.contents.changes(entry, tensor)
        if tensor.shape == shape and changed is not None:
            part = _GateRows(tensor, start, hidden, order, changed, is_turned)
            evidence = _compare_gates(books, entry, part)
            if evidence is not None:
                yield replace(part, evidence=evidence)


def _compare_gates(books: Books, entry: Entry, part: _GateRows) -> str | None:
    """Return the evidence that the entry holds the tensor there: `content` or `sampled`; None if it does not."""
    originals = books.contents.originals
    samples = originals.samples(part.tensor)
    positions = originals.positions(part.tensor.numel)
    if samples is None or not _matches_gates(books, entry, part, positions, samples):
        return None
    if books.contents.mode != "full":
        return "sampled"
    if positions.size == part.tensor.numel:
        return "content"
    values = originals.values(part.tensor)
    if values is not None:
        every = np.arange(part.tensor.numel, dtype=np.int64)
        return "content" if _matches_gates(books, entry, part, every, values.reshape(-1)) else None
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


def _matches_gates(
    books: Books, entry: Entry, part: _GateRows, positions: npt.NDArray[np.int64], expected: Array
) -> bool:
    """Whether the stored numbers at positions of the tensor match the expected ones."""
    look = books.contents.at(entry, part.places(positions))
    if look is None:
        return False
    stored, steps = look
    if steps is not None:
        return is_like(stored, expected.astype(np.float64), steps)
    return is_rounded(stored, expected, entry.tensor.dtype)


def _settle_gates(books: Books, entry: Entry, parts: list[_GateRows]) -> None:
    books.release(entry)
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
            pieces = ()  # one cut cannot take a part of each row of one direction
        holding = Holding(entry.tensor.key, part.tensor.numel, stored)
        chain = (line, *part.changed)
        error = None if part.changed else 0.0
        books.assign_parts(part.tensor, [holding], chain, f"{part.evidence}:gates", error, pieces)
