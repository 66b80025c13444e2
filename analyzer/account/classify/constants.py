"""Entries that seem learned -> those whose content shows values of the trace, causal masks, or fillers.

PyTorch's tracer writes each parameter as an initializer under its name. Values that forward makes from its own numbers
become Constant nodes: frequencies, sinusoids, the ones and zeros of a GroupNorm without weights (torch/onnx/utils.py).
Tools turn the tensor of such a node into an initializer, and keep its name. A tensor with a numbered name, from the
newer exporter or a tool, is such a value if its content says so: ones and zeros of a norm, an initial state of zeros.
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
from analyzer.read.payload import sample_together
from analyzer.records import replace

# values of PyTorch's trace

TRACED_CONSTANT = "name:traced-constant"
"""Rule for a value of the trace."""

_NAME = re.compile(r"(?:.*?)/(?:.*/)?Constant(?:_\d+)?_output_0")
"""Name that PyTorch's tracer gives to a constant of forward or of the exporter; a tool's prefix may come before it."""

_NUMBERED = re.compile(r"(?:.*/)?(?:val_|_v_)\d+")
"""Name that torch.onnx's exporter and onnxsim give to a value without one."""


def settle_constants(model: Model, entries: Sequence[Entry], wiring: Wiring) -> tuple[Entry, ...]:
    """Enter values of the trace as constants, in each file where parameters kept their PyTorch names.

    If no parameter has one, the weights of a frozen module may be constants too. A value of the trace whose content
    equals that of a tensor outside the trace is a parameter, stored again.
    """
    traced = set(_find_traced(model, entries, wiring))
    if not traced:
        return tuple(entries)
    by_key = {entry.tensor.key: entry for entry in entries}
    learned: set[Key] = set()  # values of the trace that share their content with others
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
    """Yield keys of values of the trace, among entries explained only by the operator that reads them."""
    for part, graphs in model.by_part():
        paths = {graph.path for graph in graphs}
        own = [entry for entry in entries if entry.tensor.graph_path in paths]
        if not any(map(_is_named, own)):
            continue
        is_pytorch = part.producer.startswith("pytorch")
        for entry in own:
            if not _is_undecided(entry):
                continue
            is_node = is_pytorch and entry.tensor.carrier is Carrier.CONSTANT
            name = float_name(entry.tensor.name)
            if is_node or _NAME.fullmatch(name) or (_NUMBERED.fullmatch(name) and _is_neutral(entry, wiring)):
                yield entry.tensor.key


_UNDECIDED = (f"{Evidence.STRUCTURE}:", f"{Evidence.CONTENT}:")
"""Beginnings of rules that leave open whether a parameter is a value of the trace."""


def _is_undecided(entry: Entry) -> bool:
    """Whether neither a name nor metadata gives its role."""
    is_guessed = entry.role is Role.PARAMETER and entry.decided_by.startswith(_UNDECIDED)
    return not entry.sources and (is_guessed or entry.role is Role.UNATTRIBUTED)


def _is_neutral(entry: Entry, wiring: Wiring) -> bool:
    """Whether it is ones that scale a norm, zeros that shift one, or zeros that a stored matrix multiplies.

    A norm's own weights keep their names in every exporter; zeros before a matrix are the initial state of a recurrent
    network.
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
    """Return the entries with values of the trace as their readers see them: as parameters, or unattributed.

    In a comparison with PyTorch a name does not excuse a tensor: a constant in arithmetic must be explained by its
    values. It stays a constant only beside a weight that kept its PyTorch name, because a bias would have kept its
    own name too.
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
"""Rule for zeros, or an infinite mask, into which forward writes computed values."""

_WRITES = frozenset({"Scatter", "ScatterElements", "ScatterND"})


def settle_fillers(entries: Sequence[Entry], wiring: Wiring) -> tuple[Entry, ...]:
    """Enter as constants zeros, and infinities of one sign, that nodes write into and nothing else reads.

    A router's `zeros_like(p).scatter(...)` makes them; readers of the result read the computed values. Zeros that are
    concatenated with others are left alone: an untrained token is zeros too. Names and metadata are not overruled.
    """
    found: set[Key] = set()
    for entry in entries:
        tensor = entry.tensor
        if not _is_undecided(entry) or any(
            reader.node.op_type not in MOVES for reader in wiring.readers(tensor)
        ):
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
"""Fewest positions at which a mask can be told from any matrix of two values."""

_MOST_POSITIONS = 1 << 31
"""Upper limit of positions: more than a file can hold, and its square is more than an index can hold."""


def settle_masks(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Enter causal masks as buffers: GPT-2 and its successors name theirs `attn.bias`, like the bias of a linear layer.

    Only names are overruled: entries decided by the exporter's metadata, or by an operator's weight input, are kept.
    """
    waiting = iter(entries)
    by_name = f"{Evidence.NAME}:"
    squares_of: dict[tuple[tuple[int, ...], int], bool] = {}  # most tensors have one of few shapes
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
"""Entries whose contents are read together."""


def _is_square(tensor: StoredTensor) -> bool:
    shape = tensor.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or tensor.numel != shape[-1] ** 2:
        return False
    return _LEAST_POSITIONS <= shape[-1] < _MOST_POSITIONS


def _may_be_masks(squares: Sequence[StoredTensor]) -> Iterator[StoredTensor]:
    """Yield squares whose samples match a mask, so that other square weights need not be read whole.

    Four elements that a mask shows, on the diagonal and below it, are equal; two that it hides, above it, are another
    equal value.
    """
    places = {
        size: np.array([0, size, size + 1, size**2 - 1, 1, size - 1], np.int64)
        for size in {tensor.shape[-1] for tensor in squares}
    }
    sampled = sample_together([(tensor.payload, places[tensor.shape[-1]]) for tensor in squares])
    by_type: dict[np.dtype, list[tuple[StoredTensor, Array]]] = defaultdict(list)
    for tensor, sample in zip(squares, sampled, strict=True):
        if sample is not None and sample.dtype.kind in "biufV":
            by_type[sample.dtype].append((tensor, sample))
    for found in by_type.values():
        numbers = np.concatenate([sample for _, sample in found]).astype(np.float64).reshape(len(found), -1)
        seen, hidden = numbers[:, :4], numbers[:, 4:]  # (squares, elements)
        is_like = (seen == seen[:, :1]).all(axis=1) & (hidden == hidden[:, :1]).all(axis=1)
        is_like &= seen[:, 0] != hidden[:, 0]
        yield from (found[at][0] for at in np.flatnonzero(is_like))


def _is_mask(tensor: StoredTensor) -> bool:
    """Whether a square is a causal mask: a position sees itself, and all or the nearest before it, and none after."""
    size = tensor.shape[-1]
    array = tensor.payload.array()
    if array is None:
        return False
    values = array.reshape(size, size).astype(np.float64)
    is_clear = bool(
        (values[np.triu_indices(size, 1)] == values[0, 1]).all() and (values.diagonal() == values[0, 0]).all()
    )
    return is_clear and is_mask(values)
