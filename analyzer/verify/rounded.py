"""Two files -> the tensors that one of them holds rounded, for the other to compute with."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from analyzer.account.decoding import CODES
from analyzer.account.ledger import Entry, Ledger, Role
from analyzer.comparison.following import mean_bits, reconcile_files
from analyzer.model import Key, Node, StoredTensor
from analyzer.model.content import Array
from analyzer.model.dtypes import DType
from analyzer.model.operators import DECODES, MOVES, operator_of
from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.lines import UNBALANCED, Line, ParameterLine
from analyzer.records import Frozen, field
from analyzer.recover import recover_state
from analyzer.recover.restoring import Restorer
from analyzer.verify.against import ROOT, Known
from analyzer.verify.costs import ModuleTensors
from analyzer.verify.reference import Slot
from analyzer.verify.weights import REASONS, buffers_of, decode, is_rounded, unfold

_PAST = frozenset(MOVES | DECODES)
_HALVES = frozenset({"FLOAT16", "BFLOAT16"})
_STEP = 2.0**-11
"""Relative half step of a number in half precision."""


class Rounding(Frozen):
    """Rounded one of two files, and the tensors of the other that it holds."""

    is_other_rounded: bool = False
    """Whether the other side is the rounded one, so that MODEL computes with its tensors."""
    is_unknown: bool = False
    """Whether both have codes, so that the numbers before rounding are unknown."""
    for_finer: tuple[ModuleTensors, ...] = ()
    """Rounded file's values for the finer one to compute with: by module, under labels of `Slot`."""
    for_rounded: tuple[ModuleTensors, ...] = ()
    """Finer file's values for the rounded one: tensors rounded only there, such as norms in half precision."""
    known: Known = field(default_factory=Known)
    """Tensors that do not balance between the two files, with the reasons."""


def find_rounding(ours: Ledger, theirs: Ledger) -> Rounding:
    """Find which file is rounded, and recover its values.

    Raises:
        UsageError: values of a side cannot be read.
        ModelReadError: likewise.
    """
    codes = _has_codes(ours), _has_codes(theirs)
    if not ours.parameters or not theirs.parameters:
        return Rounding()
    if all(codes):
        return Rounding(is_unknown=True)
    is_other_rounded = codes[1] or (not codes[0] and mean_bits(theirs) < mean_bits(ours))
    source, made = (ours, theirs) if is_other_rounded else (theirs, ours)
    result, keys = reconcile_files(source, made, "full", with_constants=True)
    for_finer = _recover(result, keys, source) if _types(ours) != _types(theirs) else ()
    for_finer = _merged((*for_finer, *_recover_numbers(made, source)))
    known = Known() if is_other_rounded else _known(result, keys)
    for_rounded: tuple[ModuleTensors, ...] = ()
    if for_finer and not _HALVES.isdisjoint(_types(source)):
        other, others = reconcile_files(made, source, "full", with_constants=True)
        cast = _recover(other, others, made, only=Line.CAST)
        for_rounded = _merged((*cast, *_recover_numbers(source, made)))
    return Rounding(is_other_rounded, False, for_finer, for_rounded, known)


def _types(ledger: Ledger) -> set[str]:
    """Return the types of all parameters, copies included."""
    return {entry.tensor.dtype.name for entry in ledger.entries if entry.role is Role.PARAMETER}


def _has_codes(ledger: Ledger) -> bool:
    return any(entry.role is Role.PARAMETER and entry.tensor.dtype in CODES for entry in ledger.entries)


def holds_same_codes(ours: Ledger, theirs: Ledger) -> bool:
    """Whether two files with codes hold the same codes for every parameter, in any order of axes."""
    return all(
        not left - right
        for left, right in ((_contents(ours), _contents(theirs)), (_contents(theirs), _contents(ours)))
    )


def _contents(ledger: Ledger) -> set[tuple[int, int, bytes]]:
    found = set()
    for entry in ledger.entries:
        array = entry.tensor.payload.array() if entry.parameters else None
        if array is not None:
            whole = array.reshape(-1).view(np.uint8) if array.dtype.itemsize == 1 else array.reshape(-1)
            digest = hashlib.sha256(np.sort(whole).tobytes()).digest()
            found.add((array.size, array.dtype.itemsize, digest))
    return found


def _known(result: Reconciliation, keys: Mapping[str, Key]) -> Known:
    """Return unbalanced tensors and their reasons, under the names that tensors have in their files."""
    suspects, strangers = {}, {}
    for line in result.parameters:
        if line.line in UNBALANCED:
            reason = REASONS.get(line.line, str(line.line.value))
            suspects[keys[line.name][1]] = reason.replace("PyTorch", "the other file")
    for entry in result.entries:
        if entry.line in UNBALANCED and entry.parameter is None:
            strangers[entry.key[1]] = "the other file has no such tensor"
    return Known(suspects, strangers)


def _recover(
    result: Reconciliation, keys: Mapping[str, Key], source: Ledger, only: Line | None = None
) -> tuple[ModuleTensors, ...]:
    """Return the rounded file's value of each tensor of the other, by module; of one line of the bridge, or of all."""
    restorer = Restorer(result.ledger)
    entries = {entry.tensor.key: entry for entry in source.entries}
    copies: dict[Key, list[Entry]] = {}
    for entry in source.entries:
        if entry.copy_of is not None:
            copies.setdefault(entry.copy_of, []).append(entry)
    stored = {entry.tensor.key: entry.tensor for entry in result.ledger.entries}
    lines = {line.name: line for line in result.parameters}
    found: dict[str, dict[str, Array]] = {}
    nbytes: dict[str, set[Key]] = {}

    def add_values(name: str, value: Array, stored_keys: Sequence[Key]) -> None:
        own = entries[keys[name]]
        for slot, each in _assign_values(
            result, restorer, source, [own, *copies.get(own.tensor.key, ())], value, stored_keys
        ):
            module = own.scope or ROOT
            found.setdefault(module, {})[slot.label] = each
            nbytes.setdefault(module, set()).update(stored_keys)

    for each in recover_state(result).tensors:
        line = lines.get(each.name)
        if line is None or not (is_rounded(line) or _is_rounded_elsewhere(line, restorer, stored)):
            continue
        if only is not None and line.line is not only:
            continue
        parts = [*restorer.values(each.shape, DType.FLOAT, each.pieces)]
        whole = np.concatenate([part.reshape(-1) for part in parts]).reshape(each.shape)
        add_values(each.name, whole, line.entries)
    for _, name, value in buffers_of(result, restorer):
        if name in keys:
            add_values(name, value, ())
    for _, name, value in () if only is not None else unfold(result, restorer, _biases(source, keys)):
        add_values(name, value, lines[name].entries if name in lines else ())
    return tuple(
        ModuleTensors(
            module,
            values,
            sum(stored[key].nbytes for key in nbytes[module]),
            sum(math.prod(value.shape) * 4 for value in values.values()),
        )
        for module, values in found.items()
    )


def _recover_numbers(made: Ledger, source: Ledger) -> tuple[ModuleTensors, ...]:
    """Return the rounded values of scalars, such as a scale, that a half-precision file holds rounded only."""
    rounded, exact = set[float](), set[float]()
    for entry in made.entries:
        array = entry.tensor.payload.array() if entry.tensor.numel == 1 else None
        if array is not None:
            kind = entry.tensor.dtype.name
            (rounded if kind in _HALVES else exact).add(
                float(array.reshape(-1)[0]) if _is_real(entry) else 0.0
            )
    found: dict[str, dict[str, Array]] = {}
    for entry in source.entries if rounded else ():
        tensor = entry.tensor
        array = tensor.payload.array() if tensor.numel == 1 and not tensor.graph_path else None
        if array is None or tensor.dtype is not DType.FLOAT:
            continue
        number = float(array.reshape(-1)[0])
        if not math.isfinite(number):  # any number is near to an infinite one
            continue
        near = [each for each in rounded if each and abs(each - number) <= _STEP * abs(number)]
        if near and number not in exact and number not in near:
            found.setdefault(entry.scope or ROOT, {})[Slot(tensor.name).label] = np.full(
                tensor.shape, near[0], np.float32
            )
    return tuple(
        ModuleTensors(module, values, 2 * len(values), 4 * len(values)) for module, values in found.items()
    )


def _merged(modules: Sequence[ModuleTensors]) -> tuple[ModuleTensors, ...]:
    """Merge entries of the same module."""
    found: dict[str, ModuleTensors] = {}
    for each in modules:
        before = found.get(each.module)
        found[each.module] = (
            each
            if before is None
            else ModuleTensors(
                each.module,
                {**before.tensors, **each.tensors},
                before.nbytes + each.nbytes,
                before.float_nbytes + each.float_nbytes,
            )
        )
    return tuple(found.values())


def _is_real(entry: Entry) -> bool:
    return entry.tensor.dtype.is_floating


def _is_rounded_elsewhere(
    line: ParameterLine, restorer: Restorer, stored: Mapping[Key, StoredTensor]
) -> bool:
    """Whether a copy of a tensor is rounded, such as the head's copy of a tied table that stays as it is."""
    if line.line in UNBALANCED or len(line.entries) < 2:
        return False
    return any(restorer.encoding(stored[key]) is not None for key in line.entries)


def _biases(source: Ledger, keys: Mapping[str, Key]) -> dict[str, str]:
    """Return the bias of each convolution by its weight, under the names of the bridge."""
    names = {key: name for name, key in keys.items()}
    found = {}
    for node in source.model.graphs[0].nodes:
        if node.op_type in ("Conv", "ConvTranspose") and len(node.inputs) > 2:
            weight, bias = (names.get((node.graph_path, name)) for name in node.inputs[1:3])
            if weight is not None and bias is not None:
                found[weight] = bias
    return found


def _assign_values(
    result: Reconciliation,
    restorer: Restorer,
    source: Ledger,
    tensors: Sequence[Entry],
    value: Array,
    stored_keys: Sequence[Key],
) -> Iterator[tuple[Slot, Array]]:
    """Yield the file's value for a tensor and its copies; of several values, each reader gets the one of its kind."""
    versions = _values_by_reader(result, restorer, stored_keys)
    for entry in tensors:
        tensor = entry.tensor
        if tensor.graph_path or not tensor.dtype.is_floating:
            continue
        plain = _orient(value, tensor)
        if len(versions) < 2:
            if plain is not None:
                yield Slot(tensor.name), plain
            continue
        counts: dict[object, int] = {}
        chosen: dict[str, Array] = {}
        readers = [(*_use(source, each.node), each.node) for each in source.wiring.readers(tensor)]
        for _, kind, output, node in sorted(readers, key=lambda each: each[0]):
            place = counts[kind] = counts.get(kind, -1) + 1
            alike = [each for each in versions if each[0] == kind] or versions
            exact = [each for each in alike if output and each[1] == output]  # nodes may be in another order
            made = _orient((exact or alike[min(place, len(alike) - 1) :])[0][2], tensor)
            name = next(filter(None, node.outputs), "")
            if made is not None and name:
                chosen[name] = made
        arrays = list(chosen.values())
        if arrays and all(np.array_equal(arrays[0], each) for each in arrays):
            yield Slot(tensor.name), arrays[0]
        else:
            for name, each in chosen.items():
                yield Slot(tensor.name, name), each


def _values_by_reader(
    result: Reconciliation, restorer: Restorer, stored_keys: Sequence[Key]
) -> list[tuple[object, str, Array]]:
    """Return the file's values of one tensor if it has several: one for each node that computes with it, in order."""
    if len(stored_keys) < 2:
        return []
    stored = {entry.tensor.key: entry.tensor for entry in result.ledger.entries}
    found: list[tuple[int, object, str, Array]] = []
    for key in stored_keys:
        value = decode(restorer, result, key)
        for reader in result.ledger.wiring.readers(stored[key], _PAST) if value is not None else ():
            assert value is not None
            output = next(filter(None, reader.node.outputs), "")
            found.append((reader.node.position, _family(reader.node), output, value.astype(np.float32)))
    return [(kind, output, value) for _, kind, output, value in sorted(found, key=lambda each: each[0])]


def _use(ledger: Ledger, node: Node) -> tuple[int, object, str]:
    """Return position, kind and output of a node, or of its first reader if the node only moves or decodes a tensor."""
    behind = ledger.wiring.readers(node, _PAST) if node.op_type in _PAST else []
    found = behind[0].node if behind else node
    return found.position, _family(found), next(filter(None, found.outputs), "")


def _family(node: Node) -> object:
    known = operator_of(node)
    return None if known is None else known.kind


def _orient(value: Array, tensor: StoredTensor) -> Array | None:
    """Reshape a value to a tensor's shape: as it is or transposed, whichever is nearer to the tensor's content."""
    shape = tensor.shape
    orientations = [way for way in (value, value.T) if way.shape == shape]
    if len(orientations) == 2 and value.ndim == 2:
        own = tensor.payload.array()
        if own is not None:
            orientations.sort(
                key=lambda way: float(np.abs(way.astype(np.float64) - own.astype(np.float64)).sum())
            )
    if orientations:
        return np.ascontiguousarray(orientations[0])
    squeezed = [tuple(n for n in dims if n != 1) for dims in (value.shape, shape)]
    return value.reshape(shape) if squeezed[0] == squeezed[1] else None
