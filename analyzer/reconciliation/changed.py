"""Rule: parameters and statistics that nodes change when the model runs, before they meet an activation.

What is stored is PyTorch's, and yet the model computes with something else: the negative of it, or its elements in
another order. PyTorch's own program may do so too, as Gemma's norms add 1; so this is told where the module's class
says that it computes with the tensor as it is, and where most tensors of the kind arrive unchanged.
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
from analyzer.model.content import Array, digest, digest_transposed
from analyzer.model.evaluation import Evaluator
from analyzer.model.operators import RECODES, Kind, Slot, kind_of, operator_of
from analyzer.model.tables import is_geometric
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.closeness import Reals
from analyzer.reconciliation.lines import CHANGED_BY, MEANINGS, Line
from analyzer.reconciliation.meetings import Follower, Meeting, UntracedError, behind, keeps
from analyzer.reconciliation.pointwise import is_offset
from analyzer.records import Frozen, replace

_PLAIN = re.compile(
    r"Linear|NonDynamicallyQuantizableLinear|Conv1D|(?:Lazy)?Conv(?:Transpose)?[123]d|Embedding"
    r"|LayerNorm|RMSNorm|GroupNorm|(?:Lazy)?(?:BatchNorm|InstanceNorm)[123]d|SyncBatchNorm"
)
"""Classes of torch and transformers whose forward computes with `weight`, `bias` and statistics as they are."""

_LEAVES = frozenset({"weight", "bias", "running_mean", "running_var", "in_proj_weight", "in_proj_bias"})

_RECURRENT = re.compile(r"(?:weight|bias)_(?:ih|hh)(?:_l\d+)?(?:_reverse)?")
"""Names of the tensors of torch's LSTM, GRU and RNN, and of their cells, which compute with them as they are."""

_MOST_FOLLOWED = 1 << 24
"""Elements of a tensor that is worked out after it was changed."""
_MOST_AXES = 4
_EQUAL = 1e-6
"""Relative difference of numbers that were computed and are the same."""
_LIKE_CODES = 0.98
"""The least cosine of numbers and what their codes stand for: those of four bits have 0.99."""
_MOST_FREQUENCIES = 1 << 12
"""Elements of what is looked at as rotary frequencies: half of a head's width."""
_SLACK = 4e-3
"""Relative difference of frequencies: float16 rounds by a tenth of that."""


class _Judged(Frozen):
    """A tensor that is held, and what changes it, if anything does."""

    tensor: Parameter | Buffer
    keys: tuple[Key, ...]
    change: _Change | None = None
    is_certain: bool = False
    """Whether no program of PyTorch's does so: its module's class says so, or by what it meets."""

    @property
    def is_allowed(self) -> bool:
        """Whether 1 is added to a gain that lies around 0."""
        return self.change is not None and self.change.is_shift and not self.is_certain


def settle_changed(books: Books) -> None:
    """Settle as `differing` what a node changes before a product, a norm or a sum with an activation reads it.

    Where the class does not tell, tensors of the same kind do: half of them at least arrive as they are. Where all are
    changed alike, that may be PyTorch's too, but not what takes the order from their numbers, unless a class of its own
    computes it; the rest is noted in `books.changed`.
    """
    if books.contents.mode == "none":
        return
    follower = Follower(books)
    kinds: dict[tuple[str | None, str, bool], list[_Judged]] = {}
    for tensor, keys in _held(books):
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
            change = _first(_find_change(follower, tensor, key, by_any=True) for key in keys)
            if change is not None and (change.operator is None or _is_rearranged(books, tensor, change)):
                _settle(books, tensor, keys, change)
            elif change is not None and math.prod(tensor.shape) >= _FEWEST:
                _note(books, tensor, change, Severity.NOTE)
    for some in kinds.values():
        _settle_kind(books, some)
    for entry in books.ledger.entries:
        line = books.entries[entry.tensor.key]
        if entry.tensor.dtype.is_floating and not MEANINGS[line.line].unbalanced and not line.learned:
            change = _first(_find_untuned(follower, each) for each in (entry,))
            if change is not None:
                books.entries[line.key] = replace(line, line=Line.DIFFERING, decided_by=change.rule)


def _settle_kind(books: Books, kind: Sequence[_Judged]) -> None:
    """Settle those of one class and name: what is done to most of them may be PyTorch's."""
    is_habit = 2 * sum(judged.change is not None for judged in kind) > len(kind)
    in_all_layers = _changed_in_all_layers(kind)
    shifts = {judged.change.operator for judged in kind if judged.change is not None and judged.is_allowed}
    for judged in kind:
        tensor, change = judged.tensor, judged.change
        if change is None:
            continue
        is_usual = is_habit or judged.is_allowed or _pattern(judged) in in_all_layers
        # A class of its own may compute anything of a matrix, until its program is known.
        is_own = bool(_classes(books, tensor)) and len(tensor.shape) > 1
        is_told = books.manifest.program is not None or not is_own
        if judged.is_certain or not is_usual or (is_told and _is_scrambled(books, tensor, change)):
            _settle(books, tensor, judged.keys, change)
        elif change.operator not in shifts:
            _note(books, tensor, change, Severity.WARNING)


def _note(books: Books, tensor: Parameter | Buffer, change: _Change, severity: Severity) -> None:
    """Note what a tensor goes through, unless its module makes that of its tensors together, as a table."""
    changes = () if change.found is None else change.found[1].changes
    others = {split_name(name)[0] for name in _names_behind(books, changes) - {*tensor.names}}
    if change.operator is not None and others != {split_name(tensor.name)[0]}:
        books.changed[tensor.name] = change.operator, severity


def _first(found: Iterable[_Change | None]) -> _Change | None:
    """The first change that is found; one that nobody knows where the nodes behind a tensor are too many to follow."""
    try:
        return next(filter(None, found), None)
    except UntracedError:
        return _Change(None, is_foreign=True)


def _changed_in_all_layers(kind: Iterable[_Judged]) -> set[str]:
    """The patterns of names of which all vectors, of two layers at least, go through the same operator."""
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
    """Of the modules that own a tensor, under each of its names."""
    modules = (books.manifest.modules.get(split_name(name)[0]) for name in tensor.names)
    return tuple(filter(None, modules))


def _held(books: Books) -> Iterator[tuple[Parameter | Buffer, tuple[Key, ...]]]:
    """What stands in the file on its own, with its copies: parameters, and buffers whose values were compared."""
    for parameter in books.manifest.parameters:
        settled = books.parameters[parameter.name]
        if settled.entries and not MEANINGS[settled.line].unbalanced:
            yield parameter, settled.entries
    held: dict[str, list[Key]] = {}
    for line in books.entries.values():
        if line.line is Line.BUFFER and line.parameter is not None:
            held.setdefault(line.parameter, []).append(line.key)
    for buffer in books.manifest.buffers:
        keys = [key for name in buffer.names for key in held.get(name, ())]
        if keys:
            yield buffer, tuple(keys)


def _settle(books: Books, tensor: Parameter | Buffer, keys: Iterable[Key], change: _Change) -> None:
    settled, rule = books.parameters.get(tensor.name), change.rule
    if settled is not None:
        if settled.compared != "none":
            rule = f"{books.contents.evidence}+{rule}"  # what is stored was compared, and is PyTorch's
        chain = (*settled.chain, Line.DIFFERING)
        books.parameters[tensor.name] = replace(settled, line=Line.DIFFERING, chain=chain, decided_by=rule)
    for key in keys:
        books.entries[key] = replace(books.entries[key], line=Line.DIFFERING, decided_by=rule)


class _Change(Frozen):
    """What is done to a tensor before an activation meets it."""

    operator: str | None
    """None where nobody knows what."""
    is_foreign: bool = False
    """Whether it is computed with a vector of another module, as no module does."""
    is_shift: bool = False
    """Whether 1 is added to a gain that lies around 0, as Gemma's norms do."""
    found: tuple[Entry, Meeting] | None = None
    """What is stored, and where what is made of it meets an activation."""

    @property
    def rule(self) -> str:
        return "structure:untraced" if self.operator is None else f"structure:{CHANGED_BY}{self.operator}"


def _find_change(
    follower: Follower, tensor: Parameter | Buffer, key: Key, *, by_any: bool = False
) -> _Change | None:
    """What nodes of stored values alone make of a stored tensor that is something else.

    Args:
        follower: follows stored tensors.
        tensor: PyTorch's.
        key: of the stored tensor that holds it.
        by_any: whether any operator counts that computes with it, and not those alone that do with a `weight`;
            then what only moves a matrix is let be.
    """
    books, fixed = follower.books, follower.fixed
    entry, is_matrix = books.entry(key), len(tensor.shape) > 1
    arrived = np.zeros(0 if is_matrix else entry.tensor.numel + 1, dtype=bool)
    last: _Change | None = None
    for meeting in follower.meetings(entry):
        known = operator_of(meeting.node)
        if known is None or not (by_any or _takes(known.kind, known.slot(meeting.slot), is_matrix=is_matrix)):
            arrived[:] = True  # somebody reads it, and nobody knows how
            continue
        changes = meeting.changes
        is_table = (meeting.way is not None and meeting.way.looks_up) or fixed(meeting.node)
        if changes and is_matrix and is_table:
            continue  # rows of a table are added up and go through layers, as positions and queries do
        if changes and not _is_own_formula(books, tensor, changes) and not _is_undone(books, entry, meeting):
            if _is_of_program(books, tensor, meeting):
                arrived[:] = True
                continue
            owners = {split_name(name)[0] for name in _names_behind(books, changes)}
            is_shift = _is_shift(books, tensor, changes)
            is_foreign = not is_matrix and len(owners) > 1
            return _Change(changes[-1].op_type, is_foreign, is_shift, (entry, meeting))
        moved = meeting.moved
        if changes or moved is None or (by_any and is_matrix):
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
        elif (places is not None or _is_lost(entry, meeting)) and not _is_of_program(books, tensor, meeting):
            return _Change(moved.op_type, found=(entry, meeting))
        else:
            arrived[:] = True
    return last if arrived.size and not arrived[1:].all() else None


def _is_rearranged(books: Books, tensor: Parameter | Buffer, change: _Change) -> bool:
    """Whether a vector is what is only moved, and arrives in another order."""
    is_moved = change.found is not None and change.found[1].is_kept
    return is_moved and len(tensor.shape) == 1 and _is_scrambled(books, tensor, change)


def _is_scrambled(books: Books, tensor: Parameter | Buffer, change: _Change) -> bool:
    """Whether what arrives is no formula of a tensor: as numbers grow, what is made of them grows nowhere.

    Scales, squashing functions, roundings, softmax and standardization keep the order of all numbers, or of those along
    an axis, but for some that a mask makes 0. The negative, an absolute value, another order of the elements and one
    number for all do not. What is computed with other parameters, or has another size, is no such thing.
    """
    if change.found is None:
        return False
    entry, meeting = change.found
    if entry.tensor.numel > _MOST_FOLLOWED or not _names_behind(books, meeting.changes) <= {*tensor.names}:
        return False
    first = next((step for step in meeting.way or () if not keeps(step)), None)
    compared = _compared(books, books.contents.array(entry), meeting)
    if compared is None and first is not None:  # of a part that was cut off what is made of that tells
        compared = _compared(books, _value(books, first.node, first.slot), meeting)
    if compared is None or compared[0].size < _FEWEST:
        return False
    found, ways = compared
    alike = [stored for stored in ways if stored.shape == found.shape]
    return bool(alike) and not any(_keeps_order(stored, found) for stored in alike)


def _keeps_order(stored: Reals, arrived: Reals) -> bool:
    """Whether of all numbers, or of those along one axis, the larger stay the larger; what became 0 says nothing."""
    return _is_rising(stored.reshape(1, -1), arrived.reshape(1, -1)) or any(
        _is_rising(*(np.moveaxis(each, axis, -1).reshape(-1, length) for each in (stored, arrived)))
        for axis, length in enumerate(stored.shape)
        if 1 < length < stored.size
    )


def _is_rising(stored: Reals, arrived: Reals) -> bool:
    """The same of the numbers of each row."""
    order = np.argsort(stored, axis=1, kind="stable")
    ranked = np.take_along_axis(arrived, order, axis=1)
    is_varied = np.ptp(stored, axis=1) > 0
    if 2 * np.count_nonzero(np.ptp(ranked, axis=1)[is_varied]) < np.count_nonzero(is_varied):
        return False
    before = np.maximum.accumulate(np.where(ranked == 0, -np.inf, ranked), axis=1)
    room = _EQUAL * float(np.abs(arrived).max(initial=0.0))
    return bool(((ranked == 0) | (ranked >= before - room)).all())


_FEWEST = 4
"""Elements of which an order can be told."""


def _find_in_cell(follower: Follower, tensor: Parameter | Buffer, key: Key) -> _Change | None:
    """What makes of a tensor other numbers, or other rows, before a recurrent node reads it.

    Gates may be put in another order, and both biases added up: the cell does that itself.
    """
    books = follower.books
    entry = books.entry(key)
    both = {re.sub(r"_(?:ih|hh)(?=\w*$)", part, tensor.name) for part in ("_ih", "_hh")}
    for meeting in follower.meetings(entry):
        node = meeting.node
        changes = meeting.changes
        if kind_of(node) is not Kind.RECURRENT or meeting.way is None:
            continue
        if not changes:
            name = node.inputs[meeting.slot]
            found = follower.tracker.track(entry.tensor, node.graph_path, name)
            is_as_stored = entry.tensor.shape == tensor.shape
            if found is not None and is_as_stored and not _are_whole_gates(found.places, node.op_type):
                return _Change(meeting.way.last.op_type)
            continue
        changes = [each for each in changes if each.op_type not in RECODES]
        if not changes:
            continue  # a quantizer writes the same numbers as other codes
        is_sum = {step.op_type for step in changes} == {"Add"} and _names_behind(books, changes) == both
        is_own = is_sum and "bias_" in split_name(tensor.name)[1]
        if (
            not is_own
            and not _is_undone(books, entry, meeting)
            and not _is_of_program(books, tensor, meeting)
        ):
            return _Change(changes[-1].op_type)
    return None


_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def _are_whole_gates(places: Array, op_type: str) -> bool:
    """Whether what arrives has each gate of a tensor once, its elements in their order."""
    gates = _GATES.get(op_type)
    arrived = places.reshape(-1)[np.flatnonzero(places)]
    if gates is None or not arrived.size or arrived.size % gates:
        return gates is None
    rows = arrived.reshape(gates, -1)
    is_whole = bool((np.diff(rows, axis=1) == 1).all())
    return is_whole and sorted(rows[:, 0]) == [1 + gate * rows.shape[1] for gate in range(gates)]


def _is_of_program(books: Books, tensor: Parameter | Buffer, meeting: Meeting) -> bool:
    """Whether what arrives is a value that PyTorch's own program computes of the tensor."""
    program = books.manifest.program
    if program is None or not any({*tensor.names} & {*value.parameters} for value in program.values):
        return False
    value = _value(books, meeting.node, meeting.slot)
    return value is not None and _is_traced(books, value, tensor.names)


def _is_traced(books: Books, value: Array, names: Collection[str] = ()) -> bool:
    """Whether a value is one that PyTorch's own program computes, of a parameter of these names if there are any."""
    program = books.manifest.program
    ways = [digest(value), *([digest_transposed(value)] if value.ndim == 2 else [])]
    return any(
        known.content is not None
        and known.content.digest in ways
        and (not names or not {*names}.isdisjoint(known.parameters))
        for known in (() if program is None else program.values)
    )


def _is_lost(entry: Entry, meeting: Meeting) -> bool:
    """Whether nodes of stored values alone move a tensor in a way that nobody can follow."""
    return entry.tensor.numel <= _MOST_FOLLOWED and (meeting.way is None or meeting.way.is_fixed)


def _is_undone(books: Books, entry: Entry, meeting: Meeting) -> bool:
    """Whether what arrives has the tensor's numbers after all: a product with 1, or codes that were put and read."""
    if entry.tensor.numel > _MOST_FOLLOWED:
        return False
    compared = _compared(books, books.contents.array(entry), meeting)
    if compared is None:
        return False
    found, ways = compared
    return any(_is_near(found.reshape(-1), stored.reshape(-1), is_coded=meeting.is_coded) for stored in ways)


def _value(books: Books, node: Node, slot: int) -> Array | None:
    """What a node reads; None where that is not known."""
    evaluator = Evaluator(books.ledger.model, books.ledger.wiring, _MOST_FOLLOWED, by_default=True)
    return evaluator.value(node.graph_path, node.inputs[slot])


def _compared(books: Books, stored: Array | None, meeting: Meeting) -> tuple[Reals, Iterator[Reals]] | None:
    """What arrives, and what is stored with its axes in every order; None where one is not known or has more elements.

    Axes of one element are left out.
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
    return float(found @ expected) >= _LIKE_CODES * sizes if sizes else not expected.any()


def _find_untuned(follower: Follower, entry: Entry) -> _Change | None:
    """What makes of frequencies what is none of theirs, before an activation meets them."""
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
        # What rounds them to codes on the way is weighed as data that nothing explains.
        look = unrounded if meeting.is_coded else evaluator
        value = look.value(meeting.node.graph_path, meeting.node.inputs[meeting.slot])
        if value is None or value.dtype.kind in "fV":
            is_kept = not changes if value is None else _is_in_tune(books, meeting, value, frequencies)
            if not is_kept:
                return _Change((changes[-1] if changes else moved).op_type)
    return None


def _is_in_tune(books: Books, meeting: Meeting, value: Array, frequencies: Reals) -> bool:
    """Whether it is the same frequencies, perhaps each twice; or a table that is made of them.

    Times a number only where PyTorch's program computes that, or is not known.
    """
    found = value.astype(np.float64).reshape(-1)
    twice = (frequencies, np.concatenate([frequencies, frequencies]), np.repeat(frequencies, 2))
    alike = [one for one in twice if one.size == found.size]
    if not alike:
        model, wiring, node = books.ledger.model, books.ledger.wiring, meeting.node
        return count_rounded(model, wiring, node.graph_path, node.inputs[meeting.slot], value) <= 1
    factors = [found[0] / one[0] for one in alike]
    is_free = books.manifest.program is None or _is_traced(books, value)
    return any(
        (abs(factor - 1) <= _SLACK or (is_free and factor > 0))
        and bool(np.allclose(one * factor, found, rtol=_SLACK))
        for one, factor in zip(alike, factors, strict=True)
    )


def _takes(kind: Kind, slot: Slot, *, is_matrix: bool) -> bool:
    """Whether an operator computes with what stands in this input as a parameter of that many axes."""
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
    """Whether a module may compute this of its tensor: with its other tensors.

    Of a class that is known to compute nothing of the kind nothing is let pass, but for a BatchNorm that an exporter
    wrote out: (x - mean) / sqrt(var + eps) * weight + bias, arranged in any way (Ioffe and Szegedy 2015,
    arXiv:1502.03167, algorithm 2).
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
    """Whether a number is added to a gain that lies around 0: to 1, where the values are a norm's."""
    is_sum = {node.op_type for node in changes} == {"Add"} and _names_behind(books, changes) <= {
        *tensor.names
    }
    is_gain = split_name(tensor.name)[1] == "weight" and len(tensor.shape) == 1
    return is_sum and is_gain and isinstance(tensor, Parameter) and is_offset(books, tensor)


_ROOTS = frozenset({"Add", "Sqrt", "Reciprocal", "Pow", "Div", "Mul", "Sub", "Max"})
"""Operators that the root of a variance and an epsilon is made of, and what it multiplies or divides."""


def _is_of_module(books: Books, module: str, changes: Iterable[Node]) -> bool:
    """Whether two tensors of the module, at least, have a part in what is computed, and no other module's."""
    names = _names_behind(books, changes)
    return len(names) > 1 and {split_name(name)[0] for name in names} == {module}


def _names_behind(books: Books, nodes: Iterable[Node]) -> set[str]:
    """The PyTorch tensors that nodes of stored values alone compute with."""
    found = (each for node in nodes for each in behind(books.ledger.wiring, node))
    lines = (books.entries.get(each.key) for each in found if isinstance(each, StoredTensor))
    return {line.parameter for line in lines if line is not None and line.parameter is not None}


def _is_in_order(places: Array, shape: tuple[int, ...], *, is_factor: bool) -> bool:
    """Whether what comes from a tensor is a box of it: along each axis one step, onwards, and by whole axes.

    Axes may be cut into several, or several made one, but not both: rows of another length are other rows. An axis
    along which all is the same is a repetition, and no axis of the tensor: one row of a table may stand for all, but
    not one column, nor one row of a factor.
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
    mine = {int(step.flat[0]) for step in steps}
    theirs = {math.prod(shape[axis + 1 :]): size for axis, size in enumerate(shape) if size > 1}
    lost = {size for step, size in theirs.items() if step not in mine and (step == 1 or is_factor)}
    if len(theirs) > 1 and mine <= theirs.keys() and not lost.isdisjoint(repeated):
        return False
    return mine <= theirs.keys() or theirs.keys() <= mine
