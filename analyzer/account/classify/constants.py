"""Entries that seem learned -> those that are values of the trace, causal masks, or fillers, by what they hold.

PyTorch's tracer writes each parameter as an initializer under its name. What forward makes of numbers of its own, it
writes as a Constant node: frequencies, sinusoids, the ones and zeros that a GroupNorm without its own is given
(torch/onnx/utils.py). Tools lift such a node's tensor to an initializer, and leave its name. What the newer exporter,
or a tool, names by a number is one of these where its content says so: ones and zeros of a norm, a state of zeros.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from analyzer.account.classify.structure import Structure, find_origin, learned_beside
from analyzer.account.ledger import Entry, Evidence, Role
from analyzer.account.scopes import float_name, is_dotted
from analyzer.model import Carrier, Key, Model, StoredTensor
from analyzer.model.content import Array, is_constant_filled
from analyzer.model.operators import MOVES, Kind, Slot, operator_of
from analyzer.model.tables import is_mask
from analyzer.model.wiring import Reader, Wiring
from analyzer.read.payload import look_together
from analyzer.records import replace

# values of PyTorch's trace

TRACED_CONSTANT = "name:traced-constant"
"""The rule for a value of the trace."""

_NAME = re.compile(r"(?:.*?)/(?:.*/)?Constant(?:_\d+)?_output_0")
"""What PyTorch's tracer calls a constant that forward, or the exporter, makes; perhaps behind a tool's prefix."""

_NUMBERED = re.compile(r"(?:.*/)?(?:val_|_v_)\d+")
"""What torch.onnx's exporter and onnxsim call a value without a name."""


def settle_constants(model: Model, entries: Sequence[Entry], wiring: Wiring) -> tuple[Entry, ...]:
    """Enter values of the trace as constants, in each file where parameters kept their PyTorch names.

    Where none has one, a frozen module's weights may be constants too. One whose content is that of a tensor which is
    none of the trace is what that is: a parameter, stored again.
    """
    traced = set(_find_traced(model, entries, wiring))
    if not traced:
        return tuple(entries)
    by_key = {entry.tensor.key: entry for entry in entries}
    learned: set[Key] = set()  # of the trace, with the content of what is not
    for entry in entries:
        original = None if entry.copy_of is None else by_key.get(entry.copy_of)
        if original is not None and (entry.tensor.key in traced) != (original.tensor.key in traced):
            learned |= {entry.tensor.key, original.tensor.key}
    return tuple(
        _settle(entry)
        if entry.tensor.key in traced and not {entry.tensor.key, entry.copy_of} & learned
        else entry
        for entry in entries
    )


def _settle(entry: Entry) -> Entry:
    return replace(entry, role=Role.CONSTANT, decided_by=TRACED_CONSTANT, parameters=0, copy_of=None)


def _find_traced(model: Model, entries: Sequence[Entry], wiring: Wiring) -> Iterator[Key]:
    """What the trace made, of what has no other explanation than the operator that reads it."""
    for part, graphs in model.by_part():
        paths = {graph.path for graph in graphs}
        own = [entry for entry in entries if entry.tensor.graph_path in paths]
        if not any(map(_is_named, own)):
            continue
        is_pytorch = part.producer.startswith("pytorch")
        for entry in own:
            if not _is_open(entry):
                continue
            is_node = is_pytorch and entry.tensor.carrier is Carrier.CONSTANT
            name = float_name(entry.tensor.name)
            if (
                is_node
                or _NAME.fullmatch(name)
                or (_NUMBERED.fullmatch(name) and _does_nothing(entry, wiring))
            ):
                yield entry.tensor.key


_OPEN = (f"{Evidence.STRUCTURE}:", f"{Evidence.CONTENT}:")
"""How rules begin that leave open whether a parameter is a value of the trace."""


def _is_open(entry: Entry) -> bool:
    """Whether neither a name nor a note says what it is."""
    is_guessed = entry.role is Role.PARAMETER and entry.decided_by.startswith(_OPEN)
    return not entry.sources and (is_guessed or entry.role is Role.UNATTRIBUTED)


def _does_nothing(entry: Entry, wiring: Wiring) -> bool:
    """Whether it is ones that scale a norm, zeros that shift one, or zeros that a stored matrix multiplies.

    A norm's own vectors keep their names, whatever an exporter does; and a state of zeros is where a recurrent net
    starts.
    """
    wanted: set[float | None] = set()
    for node, slot in wiring.readers(entry.tensor, past=MOVES):
        known = operator_of(node) if node.is_standard else None
        if known is None or known.kind not in (Kind.NORMALIZES, Kind.PRODUCT):
            wanted.add(None)
        elif known.kind is Kind.NORMALIZES and known.slot(slot) in (Slot.LEARNED, Slot.BIAS):
            wanted.add(float(known.slot(slot) is Slot.LEARNED))
        elif slot == 0 and isinstance(find_origin(wiring, node, 1), StoredTensor):
            wanted.update((0.0, None))
        else:
            return False
    if wanted not in ({0.0}, {1.0}, {0.0, None}):
        return False
    array = entry.tensor.payload.array()
    return array is not None and bool((array == (1.0 if wanted == {1.0} else 0.0)).all())


def _is_named(entry: Entry) -> bool:
    tensor = entry.tensor
    return tensor.carrier is Carrier.INITIALIZER and is_dotted(float_name(tensor.name).rpartition("/")[2])


def as_read(entries: Sequence[Entry], wiring: Wiring) -> tuple[Entry, ...]:
    """The same entries, those of the trace as the operators that read them take them: as weights, or as nothing known.

    Beside PyTorch's side a name is no excuse: a constant that computes has to be explained by its values. Only what
    stands beside a weight that kept its PyTorch name, as a bias would have, stays a constant.
    """
    by_key = {entry.tensor.key: entry for entry in entries}
    structure = Structure(wiring)

    def read(entry: Entry) -> Entry:
        decided = structure.role(entry.tensor, entry.tensor)
        if decided is None:
            return replace(entry, role=Role.UNATTRIBUTED, decided_by=f"{Evidence.NONE}:no-rule")
        role, rule = decided
        beside = (by_key.get(other.key) for other in learned_beside(wiring, entry.tensor))
        is_beside = any(
            other is not None
            and other.role is Role.PARAMETER
            and other.evidence in (Evidence.PROVENANCE, Evidence.NAME)
            for other in beside
        )
        if role is not Role.PARAMETER or (is_beside and _NAME.fullmatch(float_name(entry.tensor.name))):
            return entry
        return replace(entry, role=role, decided_by=rule, parameters=entry.logical_numel)

    return tuple(read(entry) if entry.decided_by == TRACED_CONSTANT else entry for entry in entries)


# fillers


FILLER = f"{Evidence.CONTENT}:filler"
"""The rule for zeros, or an infinite mask, into which forward writes what it computes."""

_WRITES = frozenset({"Scatter", "ScatterElements", "ScatterND"})


def settle_fillers(entries: Sequence[Entry], wiring: Wiring) -> tuple[Entry, ...]:
    """Enter as constants zeros, and infinities of one sign, into which nodes write, and which nothing else reads.

    `zeros_like(p).scatter(...)` of a router makes them. What reads the result reads what was computed. Zeros that are
    joined to others stay what they are: a token that was never trained is zeros too. Names and notes are not overruled.
    """
    found: set[Key] = set()
    for entry in entries:
        tensor = entry.tensor
        if not _is_open(entry) or any(reader.node.op_type not in MOVES for reader in wiring.readers(tensor)):
            continue
        readers = wiring.readers(tensor, past=MOVES - _WRITES - {"Concat"})
        if not readers or not all(_is_written_into(reader) for reader in readers):
            continue
        array = tensor.payload.array()
        if array is None or not array.size or not is_constant_filled(array):
            continue
        if array.flat[0] == 0 or not np.isfinite(array.flat[0]):
            found.add(tensor.key)
    return tuple(
        replace(entry, role=Role.CONSTANT, decided_by=FILLER, parameters=0, copy_of=None)
        if entry.tensor.key in found
        else entry
        for entry in entries
    )


def _is_written_into(reader: Reader) -> bool:
    return reader.node.op_type in _WRITES and reader.slot == 0 and reader.node.is_standard


# causal masks

_LEAST_POSITIONS = 3
"""Positions from which a mask is told from any matrix of two values."""

_MOST_POSITIONS = 1 << 31
"""More than a file can hold, and its square more than an index."""


def settle_masks(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Enter causal masks as buffers: GPT-2 and those after it call theirs `attn.bias`, as a linear layer its bias.

    Only names are overruled: what the exporter notes, or an operator reads as weights, stays what it is.
    """
    waiting = iter(entries)
    by_name = f"{Evidence.NAME}:"
    squares_of: dict[tuple[tuple[int, ...], int], bool] = {}  # most tensors are of few shapes
    while batch := list(itertools.islice(waiting, _TOGETHER)):
        squares = []
        for entry in batch:
            tensor = entry.tensor
            size = (tensor.shape, tensor.numel)
            if size not in squares_of:
                squares_of[size] = _is_square(tensor)
            if squares_of[size] and entry.role is Role.PARAMETER and entry.decided_by.startswith(by_name):
                squares.append(tensor)
        masks = {tensor.key for tensor in _may_be_masks(squares) if _is_mask(tensor)}
        if not masks:
            yield from batch
            continue
        for entry in batch:
            if entry.tensor.key in masks:
                yield replace(entry, role=Role.BUFFER, decided_by="content:causal-mask", parameters=0)
            else:
                yield entry


_TOGETHER = 1024
"""Entries whose contents are looked at together."""


def _is_square(tensor: StoredTensor) -> bool:
    shape = tensor.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or tensor.numel != shape[-1] ** 2:
        return False
    return _LEAST_POSITIONS <= shape[-1] < _MOST_POSITIONS


def _may_be_masks(squares: Sequence[StoredTensor]) -> Iterator[StoredTensor]:
    """Those of which a few elements are those of a mask, so that no other square weight is read for it.

    Four that a mask shows, on the diagonal and below it, are one number, and two above it, that it hides, another.
    """
    places = {
        size: np.array([0, size, size + 1, size**2 - 1, 1, size - 1], np.int64)
        for size in {tensor.shape[-1] for tensor in squares}
    }
    looked = look_together([(tensor.payload, places[tensor.shape[-1]]) for tensor in squares])
    by_type: dict[np.dtype, list[tuple[StoredTensor, Array]]] = defaultdict(list)
    for tensor, few in zip(squares, looked, strict=True):
        if few is not None and few.dtype.kind in "biufV":
            by_type[few.dtype].append((tensor, few))
    for found in by_type.values():
        numbers = np.concatenate([few for _, few in found]).astype(np.float64).reshape(len(found), -1)
        seen, hidden = numbers[:, :4], numbers[:, 4:]  # (squares, elements)
        is_like = (seen == seen[:, :1]).all(axis=1) & (hidden == hidden[:, :1]).all(axis=1)
        is_like &= seen[:, 0] != hidden[:, 0]
        yield from (found[at][0] for at in np.flatnonzero(is_like))


def _is_mask(tensor: StoredTensor) -> bool:
    """Whether a square says which positions each sees: itself, and all or the nearest before it, and none after."""
    size = tensor.shape[-1]
    array = tensor.payload.array()
    if array is None:
        return False
    values = array.reshape(size, size).astype(np.float64)
    is_clear = bool(
        (values[np.triu_indices(size, 1)] == values[0, 1]).all() and (values.diagonal() == values[0, 0]).all()
    )
    return is_clear and is_mask(values)
