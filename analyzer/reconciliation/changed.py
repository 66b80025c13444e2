"""Rule: parameters and statistics that nodes change at run time, before they meet an activation.

The file stores PyTorch's values, and yet the model computes with others: their negatives, or their elements in another
order. PyTorch's own program may do so too, as Gemma's norms add 1. So a change is an error only if the module's class
is known to use the tensor unchanged, or if most tensors of the kind arrive unchanged.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from analyzer.account.ledger import Entry, Severity
from analyzer.account.opaque import count_rounded
from analyzer.manifest import Buffer, Parameter, split_name
from analyzer.model import Key, Node, StoredTensor
from analyzer.model.content import Array
from analyzer.model.distances import are_distances
from analyzer.model.evaluation import Evaluator
from analyzer.model.operators import MOVES, RECODES, Kind, Slot, kind_of, operator_of
from analyzer.model.tables import is_geometric
from analyzer.model.wiring import Reader
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.closeness import Reals
from analyzer.reconciliation.cosines import is_divided_by_length
from analyzer.reconciliation.lines import CHANGED_BY, MEANINGS, Line
from analyzer.reconciliation.meetings import Follower, Meeting, UntracedError, find_upstream, keeps_values
from analyzer.reconciliation.pointwise import is_offset
from analyzer.reconciliation.program import is_value
from analyzer.records import Frozen, replace

_PLAIN = re.compile(
    r"Linear|NonDynamicallyQuantizableLinear|Conv1D|(?:Lazy)?Conv(?:Transpose)?[123]d|Embedding"
    r"|LayerNorm|RMSNorm|GroupNorm|(?:Lazy)?(?:BatchNorm|InstanceNorm)[123]d|SyncBatchNorm"
)
"""Classes of torch and transformers whose `forward` uses `weight`, `bias` and statistics unchanged."""

_LEAVES = frozenset({"weight", "bias", "running_mean", "running_var", "in_proj_weight", "in_proj_bias"})

_RECURRENT = re.compile(r"(?:weight|bias)_(?:ih|hh)(?:_l\d+)?(?:_reverse)?")
"""Names of the tensors of torch's LSTM, GRU and RNN, and of their cells, which use them unchanged."""

_MOST_FOLLOWED = 1 << 24
"""Most elements of a changed tensor that is computed to compare it."""
_MOST_AXES = 4
_EQUAL = 1e-6
"""Relative tolerance of equal numbers after a computation."""
_LEAST_COSINE = 0.98
"""Least cosine between numbers and their decoded codes: codes of four bits reach 0.99."""
_MOST_FREQUENCIES = 1 << 12
"""Most elements of rotary frequencies, which are half of a head's width."""
_SLACK = 4e-3
"""Relative tolerance of frequencies: float16 rounds by a tenth of that."""


class _Judged(Frozen):
    """Held tensor, and the change that nodes make to it, if any."""

    tensor: Parameter | Buffer
    keys: tuple[Key, ...]
    change: _Change | None = None
    is_certain: bool = False
    """Whether no PyTorch module does so: its class uses the tensor unchanged, or another module's tensor takes part."""

    @property
    def is_allowed(self) -> bool:
        """Whether 1 is added to a gain that lies around 0."""
        return self.change is not None and self.change.is_shift and not self.is_certain


def settle_changed(books: Books) -> None:
    """Settle as `differing` each tensor that a node changes before a product, a norm or a sum with an activation.

    If the class does not tell, tensors of the same kind do: a change is an error if at least half of them arrive
    unchanged. If most are changed, PyTorch may do so too, and they are noted in `books.changed`. A change that destroys
    the order of the numbers is an error all the same, unless a custom class may compute it.
    """
    if books.contents.mode == "none":
        return
    follower = Follower(books)
    kinds: dict[tuple[str | None, str, bool], list[_Judged]] = {}
    for tensor, keys in _find_stored(books):
        leaf, is_matrix = split_name(tensor.name)[1], len(tensor.shape) > 1
        classes = _classes(books, tensor)
        is_plain = any(map(_PLAIN.fullmatch, classes)) or (isinstance(tensor, Buffer) and not classes)
        if leaf in _LEAVES and (is_plain or not classes or not is_matrix):
            change = _first(_find_change(follower, tensor, key) for key in keys)
            kind = (None if is_plain or not classes else classes[0], leaf, is_matrix)
            is_certain = is_plain or (change is not None and change.is_foreign)
            kinds.setdefault(kind, []).append(_Judged(tensor, keys, change, is_certain))
        elif _RECURRENT.fullmatch(leaf):
            change = _first(_find_in_cell(follower, tensor, key) for key in keys)
            if change is not None:
                _settle(books, tensor, keys, change)
        elif not classes and isinstance(tensor, Parameter):
            change = _first(_find_change(follower, tensor, key, is_any_operator=True) for key in keys)
            if change is not None and (change.operator is None or _is_rearranged(books, tensor, change)):
                _settle(books, tensor, keys, change)
            elif change is not None and math.prod(tensor.shape) >= _FEWEST:
                _note(books, tensor, change, Severity.NOTE)
    for some in kinds.values():
        _settle_kind(books, some)
    for entry in books.ledger.entries:
        line = books.entries[entry.tensor.key]
        if entry.tensor.dtype.is_floating and not MEANINGS[line.line].unbalanced and not line.learned:
            change = _first(_find_changed_frequencies(follower, each) for each in (entry,))
            if change is not None:
                books.entries[line.key] = replace(line, line=Line.DIFFERING, decided_by=change.rule)


def _settle_kind(books: Books, kind: Sequence[_Judged]) -> None:
    """Settle the tensors of one class and leaf name: PyTorch may make a change itself that most of them undergo."""
    is_common = 2 * sum(judged.change is not None for judged in kind) > len(kind)
    in_all_layers = _changed_in_all_layers(kind)
    shifts = {judged.change.operator for judged in kind if judged.change is not None and judged.is_allowed}
    for judged in kind:
        tensor, change = judged.tensor, judged.change
        if change is None:
            continue
        is_usual = is_common or judged.is_allowed or _pattern(judged) in in_all_layers
        # A custom class may compute anything from a matrix, unless its program is known.
        is_own = bool(_classes(books, tensor)) and len(tensor.shape) > 1
        is_known = books.manifest.program is not None or not is_own
        if judged.is_certain or not is_usual or (is_known and _is_scrambled(books, tensor, change)):
            _settle(books, tensor, judged.keys, change)
        elif change.operator not in shifts:
            _note(books, tensor, change, Severity.WARNING)


def _note(books: Books, tensor: Parameter | Buffer, change: _Change, severity: Severity) -> None:
    """Note a tensor's change, unless its module combines several of its own tensors, as into a table."""
    changes = () if change.found is None else change.found[1].changes
    others = {split_name(name)[0] for name in _names_behind(books, changes) - {*tensor.names}}
    if change.operator is not None and others != {split_name(tensor.name)[0]}:
        books.changed[tensor.name] = change.operator, severity


def _first(found: Iterable[_Change | None]) -> _Change | None:
    """Return the first change found; an unknown one if too many nodes follow a tensor."""
    try:
        return next(filter(None, found), None)
    except UntracedError:
        return _Change(None, is_foreign=True)


def _changed_in_all_layers(kind: Iterable[_Judged]) -> set[str]:
    """Return the patterns of names whose vectors, in at least two layers, all go through the same operator."""
    operators: dict[str, list[str | None]] = defaultdict(list)
    for judged in kind:
        if len(judged.tensor.shape) == 1:
            change = judged.change
            operators[_pattern(judged)].append(None if change is None else change.operator)
    return {name for name, found in operators.items() if len(found) > 1 and len({*found}) == 1}


def _pattern(judged: _Judged) -> str:
    return _NUMBER.sub("#", judged.tensor.name)


_NUMBER = re.compile(r"\d+")


def _classes(books: Books, tensor: Parameter | Buffer) -> tuple[str, ...]:
    """Return the classes of the modules that own a tensor, under each of its names."""
    modules = (books.manifest.modules.get(split_name(name)[0]) for name in tensor.names)
    return tuple(filter(None, modules))


def _find_stored(books: Books) -> Iterator[tuple[Parameter | Buffer, tuple[Key, ...]]]:
    """Yield the balanced parameters that the file stores, and the buffers, each with the keys of its tensors."""
    for parameter in books.manifest.parameters:
        settled = books.parameters[parameter.name]
        if settled.entries and not MEANINGS[settled.line].unbalanced:
            yield parameter, settled.entries
    keys_by_buffer: dict[str, list[Key]] = {}
    for line in books.entries.values():
        if line.line is Line.BUFFER and line.parameter is not None:
            keys_by_buffer.setdefault(line.parameter, []).append(line.key)
    for buffer in books.manifest.buffers:
        keys = [key for name in buffer.names for key in keys_by_buffer.get(name, ())]
        if keys:
            yield buffer, tuple(keys)


def _settle(books: Books, tensor: Parameter | Buffer, keys: Iterable[Key], change: _Change) -> None:
    settled, rule = books.parameters.get(tensor.name), change.rule
    if settled is not None:
        if settled.compared != "none":
            rule = f"{books.contents.evidence}+{rule}"  # the stored values were compared, and are PyTorch's
        chain = (*settled.chain, Line.DIFFERING)
        books.parameters[tensor.name] = replace(settled, line=Line.DIFFERING, chain=chain, decided_by=rule)
    for key in keys:
        books.entries[key] = replace(books.entries[key], line=Line.DIFFERING, decided_by=rule)


class _Change(Frozen):
    """Change of a tensor by nodes before it meets an activation."""

    operator: str | None
    """Type of the changing operator; None if it is unknown."""
    is_foreign: bool = False
    """Whether a tensor of another module takes part in the change of a vector, as in no PyTorch module."""
    is_shift: bool = False
    """Whether 1 is added to a gain that lies around 0, as Gemma's norms do."""
    found: tuple[Entry, Meeting] | None = None
    """Stored tensor, and the place where its changed values meet an activation."""

    @property
    def rule(self) -> str:
        return "structure:untraced" if self.operator is None else f"structure:{CHANGED_BY}{self.operator}"


def _find_change(
    follower: Follower, tensor: Parameter | Buffer, key: Key, *, is_any_operator: bool = False
) -> _Change | None:
    """Return the change that nodes of stored values alone make to a stored tensor; None if it arrives unchanged.

    Args:
        follower: follows stored tensors.
        tensor: the PyTorch tensor.
        key: key of the stored tensor that holds it.
        is_any_operator: whether any operator counts that computes with it, and not only those that take a `weight`;
            then nodes that only move a matrix are ignored.
    """
    books, fixed = follower.books, follower.fixed
    entry, is_matrix = books.entry(key), len(tensor.shape) > 1
    arrived = np.zeros(0 if is_matrix else entry.tensor.numel + 1, dtype=bool)
    last: _Change | None = None
    for meeting in follower.meetings(entry):
        known = operator_of(meeting.node)
        if known is None or not (
            is_any_operator or _takes(known.kind, known.slot(meeting.slot), is_matrix=is_matrix)
        ):
            arrived[:] = True  # a reader of an unknown kind: taken for proper use
            continue
        changes = meeting.changes
        is_table = (meeting.path is not None and meeting.path.looks_up) or fixed(meeting.node)
        if changes and is_matrix and is_table:
            continue  # a module may add up rows of a table or pass them through layers, such as positions or queries
        if (
            changes
            and not _is_own_formula(books, tensor, changes)
            and not _is_reverted(books, entry, meeting)
        ):
            if _is_of_program(books, tensor, meeting) or _is_divided_by_length(books, entry, tensor, meeting):
                arrived[:] = True
                continue
            owners = {split_name(name)[0] for name in _names_behind(books, changes)}
            is_shift = _is_shift(books, tensor, changes)
            is_foreign = not is_matrix and len(owners) > 1
            return _Change(changes[-1].op_type, is_foreign, is_shift, (entry, meeting))
        moved = meeting.moved
        if changes or moved is None or (is_any_operator and is_matrix):
            arrived[:] = True
            continue
        node = meeting.node
        found = follower.tracker.track(entry.tensor, node.graph_path, node.inputs[meeting.slot])
        places = None if found is None else found.places
        is_factor = known.kind in (Kind.PRODUCT, Kind.CONVOLUTION)
        if places is not None and _is_in_order(places, entry.tensor.shape, is_factor=is_factor):
            if arrived.size:
                arrived[places] = True
                last = _Change(moved.op_type, found=(entry, meeting))
        elif places is not None and _are_of_distances(places, entry.tensor.shape):
            arrived[:] = True
        elif (places is not None or _is_moved_untraced(entry, meeting)) and not _is_of_program(
            books, tensor, meeting
        ):
            return _Change(moved.op_type, found=(entry, meeting))
        else:
            arrived[:] = True
    return last if arrived.size and not arrived[1:].all() else None


def _is_rearranged(books: Books, tensor: Parameter | Buffer, change: _Change) -> bool:
    """Whether a vector is only moved, and arrives in another order."""
    is_moved = change.found is not None and change.found[1].is_kept
    return is_moved and len(tensor.shape) == 1 and _is_scrambled(books, tensor, change)


def _is_scrambled(books: Books, tensor: Parameter | Buffer, change: _Change) -> bool:
    """Whether a change destroys the order of a tensor's numbers, so that it is no usual formula.

    Scales, squashing functions, roundings, softmax and standardization keep the order of all numbers, or of those along
    an axis, except numbers that a mask makes 0. A negative, an absolute value, another order of the elements and one
    number for all do not. Results that involve other parameters, or have another size, are not judged.
    """
    if change.found is None:
        return False
    entry, meeting = change.found
    if entry.tensor.numel > _MOST_FOLLOWED or not _names_behind(books, meeting.changes) <= {*tensor.names}:
        return False
    first = next((step for step in meeting.path or () if not keeps_values(step)), None)
    compared = _compared(books, books.contents.array(entry), meeting)
    if (
        compared is None and first is not None
    ):  # compare with the part that was cut off before the first change
        compared = _compared(books, _value(books, first.node, first.slot), meeting)
    if compared is None or compared[0].size < _FEWEST:
        return False
    found, orders = compared
    alike = [stored for stored in orders if stored.shape == found.shape]
    return bool(alike) and not any(_keeps_order(stored, found) for stored in alike)


def _keeps_order(stored: Reals, arrived: Reals) -> bool:
    """Whether all numbers, or those along one axis, keep their order; numbers that became 0 are ignored."""
    return _is_rising(stored.reshape(1, -1), arrived.reshape(1, -1)) or any(
        _is_rising(*(np.moveaxis(each, axis, -1).reshape(-1, length) for each in (stored, arrived)))
        for axis, length in enumerate(stored.shape)
        if 1 < length < stored.size
    )


def _is_rising(stored: Reals, arrived: Reals) -> bool:
    """Whether the numbers of each row keep their order; numbers that became 0 are ignored."""
    order = np.argsort(stored, axis=1, kind="stable")
    ranked = np.take_along_axis(arrived, order, axis=1)
    is_varied = np.ptp(stored, axis=1) > 0
    if 2 * np.count_nonzero(np.ptp(ranked, axis=1)[is_varied]) < np.count_nonzero(is_varied):
        return False
    before = np.maximum.accumulate(np.where(ranked == 0, -np.inf, ranked), axis=1)
    tolerance = _EQUAL * float(np.abs(arrived).max(initial=0.0))
    return bool(((ranked == 0) | (ranked >= before - tolerance)).all())


_FEWEST = 4
"""Least number of elements whose order is evidence."""


def _find_in_cell(follower: Follower, tensor: Parameter | Buffer, key: Key) -> _Change | None:
    """Return the change of a tensor's numbers or rows before a recurrent node reads it; None without one.

    A permutation of the gates and the sum of both biases do not count: they leave the cell's result as it is.
    """
    books = follower.books
    entry = books.entry(key)
    both = {re.sub(r"_(?:ih|hh)(?=\w*$)", part, tensor.name) for part in ("_ih", "_hh")}
    for meeting in follower.meetings(entry):
        node = meeting.node
        changes = meeting.changes
        if kind_of(node) is not Kind.RECURRENT or meeting.path is None:
            continue
        if not changes:
            name = node.inputs[meeting.slot]
            found = follower.tracker.track(entry.tensor, node.graph_path, name)
            is_as_stored = entry.tensor.shape == tensor.shape
            if found is not None and is_as_stored and not _are_whole_gates(found.places, node.op_type):
                return _Change(meeting.path.last.op_type)
            continue
        changes = [each for each in changes if each.op_type not in RECODES]
        if not changes:
            continue  # a quantizer writes the same numbers as other codes
        is_sum = {step.op_type for step in changes} == {"Add"} and _names_behind(books, changes) == both
        is_own = is_sum and "bias_" in split_name(tensor.name)[1]
        if (
            not is_own
            and not _is_reverted(books, entry, meeting)
            and not _is_of_program(books, tensor, meeting)
        ):
            return _Change(changes[-1].op_type)
    return None


_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def _are_whole_gates(places: Array, op_type: str) -> bool:
    """Whether the arriving tensor has each gate once, with its elements in order."""
    gates = _GATES.get(op_type)
    arrived = places.reshape(-1)[np.flatnonzero(places)]
    if gates is None or not arrived.size or arrived.size % gates:
        return gates is None
    rows = arrived.reshape(gates, -1)
    is_whole = bool((np.diff(rows, axis=1) == 1).all())
    return is_whole and sorted(rows[:, 0]) == [1 + gate * rows.shape[1] for gate in range(gates)]


def _is_of_program(books: Books, tensor: Parameter | Buffer, meeting: Meeting) -> bool:
    """Whether the arriving value is one that PyTorch's program computes from the tensor."""
    program = books.manifest.program
    if program is None or not any({*tensor.names} & {*value.parameters} for value in program.values):
        return False
    value = _value(books, meeting.node, meeting.slot)
    return value is not None and _is_traced(books, value, tensor.names)


def _is_traced(books: Books, value: Array, names: Collection[str] = ()) -> bool:
    """Whether PyTorch's program computes a value, from a parameter of one of these names if any are given."""
    program = books.manifest.program
    arrived = [np.ascontiguousarray(each) for each in ((value, value.T) if value.ndim == 2 else (value,))]
    return any(
        known.numel == value.size
        and known.dtype.is_floating == (value.dtype.kind == "f")
        and (not names or not {*names}.isdisjoint(known.parameters))
        and any(is_value(each, known, books.contents.originals.salt) for each in arrived)
        for known in (() if program is None else program.values)
    )


def _is_divided_by_length(books: Books, entry: Entry, tensor: Parameter | Buffer, meeting: Meeting) -> bool:
    """Whether the arriving value has unit rows, for a product with vectors of unit length."""
    if all(step.op_type not in ("Div", "LpNormalization") for step in meeting.changes):
        return False
    value = _value(books, meeting.node, meeting.slot)
    reader = Reader(meeting.node, meeting.slot)
    return is_divided_by_length(books, tensor, reader, books.contents.array(entry), value)


def _is_moved_untraced(entry: Entry, meeting: Meeting) -> bool:
    """Whether nodes of stored values alone move a tensor in an unknown way."""
    return entry.tensor.numel <= _MOST_FOLLOWED and (meeting.path is None or meeting.path.is_fixed)


def _is_reverted(books: Books, entry: Entry, meeting: Meeting) -> bool:
    """Whether the arriving value has the tensor's numbers after all: multiplied by 1, or quantized and dequantized."""
    if entry.tensor.numel > _MOST_FOLLOWED:
        return False
    compared = _compared(books, books.contents.array(entry), meeting)
    if compared is None:
        return False
    found, orders = compared
    return any(
        _is_near(found.reshape(-1), stored.reshape(-1), is_coded=meeting.is_coded) for stored in orders
    )


def _value(books: Books, node: Node, slot: int) -> Array | None:
    """Return the value of a node's input; None if it is unknown."""
    evaluator = Evaluator(books.ledger.model, books.ledger.wiring, _MOST_FOLLOWED, by_default=True)
    return evaluator.value(node.graph_path, node.inputs[slot])


def _compared(books: Books, stored: Array | None, meeting: Meeting) -> tuple[Reals, Iterator[Reals]] | None:
    """Return the arriving value, and the stored one in every order of axes; None if unknown or of different size.

    Axes of one element are dropped.
    """
    value = _value(books, meeting.node, meeting.slot)
    if stored is None or value is None or value.dtype.kind not in "fV" or value.size != stored.size:
        return None
    found, numbers = (np.squeeze(each.astype(np.float64)) for each in (value, stored))
    orders = itertools.permutations(range(numbers.ndim)) if numbers.ndim <= _MOST_AXES else iter(())
    return found, (numbers.transpose(axes) for axes in orders)


def _is_near(found: Reals, expected: Reals, *, is_coded: bool) -> bool:
    if not is_coded:
        return bool(
            np.allclose(found, expected, rtol=_EQUAL, atol=_EQUAL * float(np.abs(expected).max(initial=0.0)))
        )
    sizes = float(np.linalg.norm(found) * np.linalg.norm(expected))
    return float(found @ expected) >= _LEAST_COSINE * sizes if sizes else not expected.any()


def _find_changed_frequencies(follower: Follower, entry: Entry) -> _Change | None:
    """Return the change that turns rotary frequencies into other numbers before they meet an activation."""
    books = follower.books
    if not 2 < entry.tensor.numel <= _MOST_FREQUENCIES:
        return None
    array = entry.tensor.payload.array()
    frequencies = None if array is None else array.astype(np.float64).reshape(-1)
    if frequencies is None or frequencies[0] == frequencies[-1] or not is_geometric(frequencies):
        return None
    evaluator = Evaluator(books.ledger.model, books.ledger.wiring, by_default=True)
    unrounded = Evaluator(books.ledger.model, books.ledger.wiring, by_default=True, unrounded=True)
    for meeting in follower.meetings(entry):
        changes = meeting.changes
        moved = meeting.moved
        if moved is None or any(node.op_type in ("Cos", "Sin") for node in changes):
            continue
        # Rounding to codes on the way is judged by the rule for data that nothing explains.
        chosen = unrounded if meeting.is_coded else evaluator
        value = _last_known(books, chosen, meeting)
        if value is None or value.dtype.kind in "fV":
            is_kept = not changes if value is None else _keeps_frequencies(books, meeting, value, frequencies)
            if not is_kept:
                return _Change((changes[-1] if changes else moved).op_type)
    return None


def _last_known(books: Books, evaluator: Evaluator, meeting: Meeting) -> Array | None:
    """Return the arriving value, or the last one before it that is known and alone is moved since."""
    wiring, path, name = books.ledger.wiring, meeting.node.graph_path, meeting.node.inputs[meeting.slot]
    value = evaluator.value(path, name)
    while value is None:
        maker = wiring.find(path, name)
        known = operator_of(maker) if isinstance(maker, Node) else None
        if not isinstance(maker, Node) or known is None or maker.op_type not in MOVES:
            return None
        if [slot for slot in range(len(maker.inputs)) if known.passes_on(slot)] != [0]:
            return None
        path, name = maker.graph_path, maker.inputs[0]
        value = evaluator.value(path, name)
    return value


def _keeps_frequencies(books: Books, meeting: Meeting, value: Array, frequencies: Reals) -> bool:
    """Whether a value has the same frequencies, perhaps each twice, or is a table made of them.

    A factor is allowed only if PyTorch's program computes the result, or is unknown; and so are several, such as the
    coordinates of an image's patches (DINOv3).
    """
    found = value.astype(np.float64).reshape(-1)
    twice = (frequencies, np.concatenate([frequencies, frequencies]), np.repeat(frequencies, 2))
    alike = [one for one in twice if one.size == found.size]
    if not alike:
        model, wiring, node = books.ledger.model, books.ledger.wiring, meeting.node
        if count_rounded(model, wiring, node.graph_path, node.inputs[meeting.slot], value) <= 1:
            return True
    is_free = books.manifest.program is None or _is_traced(books, value)
    if not alike:
        return is_free and _are_multiples(found, frequencies)
    factors = [found[0] / one[0] for one in alike]
    return any(
        (abs(factor - 1) <= _SLACK or (is_free and factor > 0))
        and bool(np.allclose(one * factor, found, rtol=_SLACK))
        for one, factor in zip(alike, factors, strict=True)
    )


def _are_multiples(found: Reals, frequencies: Reals) -> bool:
    """Whether numbers are the frequencies several times in a row, each time with one factor."""
    if found.size % frequencies.size:
        return False
    rows = found.reshape(-1, frequencies.size)
    expected = rows[:, :1] / frequencies[0] * frequencies
    return bool(np.allclose(rows, expected, rtol=_SLACK))


def _takes(kind: Kind, slot: Slot, *, is_matrix: bool) -> bool:
    """Whether an operator takes a parameter, matrix or vector, at this slot."""
    if is_matrix:
        return kind in (Kind.PRODUCT, Kind.CONVOLUTION, Kind.LOOKS_UP, Kind.NORMALIZES) and slot in (
            Slot.LEARNED,
            Slot.TABLE,
            Slot.DATA,
        )
    return kind is Kind.ELEMENTWISE or (
        kind in (Kind.PRODUCT, Kind.CONVOLUTION, Kind.NORMALIZES)
        and slot in (Slot.LEARNED, Slot.BIAS, Slot.BUFFER)
    )


def _is_own_formula(books: Books, tensor: Parameter | Buffer, changes: Collection[Node]) -> bool:
    """Whether a module may change its tensor this way, by computing with its other tensors.

    A class that is known to use its tensors unchanged may not, except for a BatchNorm that an exporter decomposed:
    (x - mean) / sqrt(var + eps) * weight + bias, arranged in any way (Ioffe and Szegedy 2015, arXiv:1502.03167,
    algorithm 2).
    """
    module, leaf = split_name(tensor.name)
    if leaf == "running_var" and {node.op_type for node in changes} <= _ROOTS:
        return True
    plain = [class_ for class_ in _classes(books, tensor) if _PLAIN.fullmatch(class_)]
    if plain:
        return "BatchNorm" in plain[0] and _is_of_module(books, module, changes)
    if _is_of_module(books, module, changes):
        return {split_name(name)[1] for name in _names_behind(books, changes)} != {"weight", "bias"}
    return False


def _is_shift(books: Books, tensor: Parameter | Buffer, changes: Collection[Node]) -> bool:
    """Whether nodes add a number to a norm's gain whose values lie around 0."""
    is_sum = {node.op_type for node in changes} == {"Add"} and _names_behind(books, changes) <= {
        *tensor.names
    }
    is_gain = split_name(tensor.name)[1] == "weight" and len(tensor.shape) == 1
    return is_sum and is_gain and isinstance(tensor, Parameter) and is_offset(books, tensor)


_ROOTS = frozenset({"Add", "Sqrt", "Reciprocal", "Pow", "Div", "Mul", "Sub", "Max"})
"""Operators of the square root of a variance plus epsilon, and of its product or quotient."""


def _is_of_module(books: Books, module: str, changes: Iterable[Node]) -> bool:
    """Whether nodes compute with at least two tensors of the module, and with none of another module."""
    names = _names_behind(books, changes)
    return len(names) > 1 and {split_name(name)[0] for name in names} == {module}


def _names_behind(books: Books, nodes: Iterable[Node]) -> set[str]:
    """Return the names of the PyTorch tensors that nodes of stored values alone compute with."""
    found = (each for node in nodes for each in find_upstream(books.ledger.wiring, node))
    lines = (books.entries.get(each.key) for each in found if isinstance(each, StoredTensor))
    return {line.parameter for line in lines if line is not None and line.parameter is not None}


def _are_of_distances(places: Array, shape: tuple[int, ...]) -> bool:
    """Whether rows of a table (rows, width) arrive picked by distance: a bias or an embedding of relative positions."""
    if len(shape) != 2 or places.size < shape[1] or not places.all():
        return False
    for axis, length in enumerate(places.shape):
        if length == shape[1]:
            rows, columns = np.divmod(np.moveaxis(places, axis, -1) - 1, length)
            if bool((columns == np.arange(length)).all()) and bool((rows == rows[..., :1]).all()):
                index = np.squeeze(rows[..., 0])
                return index.ndim > 1 and are_distances(index)
    return False


def _is_in_order(places: Array, shape: tuple[int, ...], *, is_factor: bool) -> bool:
    """Whether the arriving elements are a box of the tensor: each axis has one positive step, along whole axes.

    Axes may be split, or joined, but not both: rows of another length are other rows. A constant axis is a repetition,
    not an axis of the tensor: one row of a table may be repeated for all, but not one column, nor one row of a factor.
    """
    found = np.nonzero(places)
    if not found[0].size:
        return True
    box = places[tuple(slice(int(axis.min()), int(axis.max()) + 1) for axis in found)]
    if not box.all():
        return False
    repeated = set[int]()
    for axis in range(box.ndim):
        first = box.take([0], axis)
        if box.shape[axis] > 1 and math.prod(shape) > 1 and bool((box == first).all()):
            repeated.add(box.shape[axis])
            box = first
    steps = [np.diff(box, axis=axis) for axis in range(box.ndim) if box.shape[axis] > 1]
    if not all(bool((step == step.flat[0]).all()) and int(step.flat[0]) > 0 for step in steps):
        return False
    box_strides = {int(step.flat[0]) for step in steps}
    tensor_strides = {math.prod(shape[axis + 1 :]): size for axis, size in enumerate(shape) if size > 1}
    missing = {
        size for step, size in tensor_strides.items() if step not in box_strides and (step == 1 or is_factor)
    }
    if len(tensor_strides) > 1 and box_strides <= tensor_strides.keys() and not missing.isdisjoint(repeated):
        return False
    return box_strides <= tensor_strides.keys() or tensor_strides.keys() <= box_strides
