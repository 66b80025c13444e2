"""Rule: parameters and statistics that nodes change when the model runs, before they meet an activation.

What is stored is PyTorch's, and yet the model computes with something else: the negative of it, or its elements in
another order. PyTorch's own program may do so too, as Gemma's norms add 1; so this is told where the module's class
says that it computes with the tensor as it is, and where most tensors of the kind arrive unchanged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from analyzer.content import Array
from analyzer.evaluation import Evaluator, track
from analyzer.ledger import Entry
from analyzer.manifest import Buffer, Parameter, split_name
from analyzer.model import Key, Node, Place, StoredTensor
from analyzer.model.operators import DECODES, MOVES, Kind, Slot, kind_of, operator_of
from analyzer.reconcile.books import Books
from analyzer.reconcile.leash import is_offset
from analyzer.reconcile.lines import MEANINGS, Line
from analyzer.tables import count_free, is_geometric, is_known_table
from analyzer.wiring import Reader, Wiring

__all__ = ["settle_changed"]

_PLAIN = re.compile(
    r"Linear|NonDynamicallyQuantizableLinear|Conv1D|(?:Lazy)?Conv(?:Transpose)?[123]d|Embedding"
    r"|LayerNorm|RMSNorm|GroupNorm|(?:Lazy)?(?:BatchNorm|InstanceNorm)[123]d|SyncBatchNorm"
)
"""Classes of torch and transformers whose forward computes with `weight`, `bias` and statistics as they are."""

_LEAVES = frozenset({"weight", "bias", "running_mean", "running_var"})

_MOST_STEPS = 16
"""Nodes after one another that change a tensor."""
_MOST_OF_A_TABLE = 1 << 16
"""Elements of a buffer that is looked at as a table."""
_SLACK = 4e-3
"""Relative difference of frequencies: float16 rounds by a tenth of that."""
_MOST_READERS = 64
"""Readers of one step that are followed."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A tensor that is held, and the operator that changes it, if one does."""

    tensor: Parameter | Buffer
    keys: tuple[Key, ...]
    operator: str | None
    is_certain: bool
    """Whether no program of PyTorch's does so: its module's class says so, or by what it meets."""


def settle_changed(books: Books) -> None:
    """Settle as `differing` what a node changes before a product, a norm or a sum with an activation reads it.

    Where the class does not tell, tensors of the same kind do: half of them at least arrive as they are.
    """
    if books.contents.mode == "none":
        return
    fixed = _Fixed(books.ledger.wiring)
    kinds: dict[tuple[str | None, str, bool], list[_Judged]] = {}
    for tensor, keys in _held(books):
        leaf, is_matrix = split_name(tensor.name)[1], len(tensor.shape) > 1
        classes = _classes(books, tensor)
        is_plain = any(map(_PLAIN.fullmatch, classes)) or (isinstance(tensor, Buffer) and not classes)
        if leaf in _LEAVES and (is_plain or not classes or not is_matrix):
            found = (_find_operator(books, fixed, tensor, key) for key in keys)
            operator, is_foreign = next(filter(None, found), (None, False))
            kind = (None if is_plain or not classes else classes[0], leaf, is_matrix)
            judged = _Judged(tensor, keys, operator, is_plain or is_foreign)
            kinds.setdefault(kind, []).append(judged)
    for some in kinds.values():
        changed = [judged for judged in some if judged.operator is not None]
        is_habit = 2 * len(changed) > len(some)
        for judged in changed:
            if judged.is_certain or not is_habit:
                _settle(books, judged)
    for entry in books.ledger.entries:
        line = books.entries[entry.tensor.key]
        if entry.tensor.dtype.is_floating and not MEANINGS[line.line].unbalanced and not line.learned:
            operator = _find_untabled(books, fixed, entry)
            if operator is not None:
                books.entries[line.key] = replace(line, line=Line.DIFFERING, decided_by=_rule(operator))


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


def _settle(books: Books, judged: _Judged) -> None:
    rule = _rule(judged.operator)
    settled = books.parameters.get(judged.tensor.name)
    if settled is not None:
        chain = (*settled.chain, Line.DIFFERING)
        books.parameters[judged.tensor.name] = replace(
            settled, line=Line.DIFFERING, chain=chain, decided_by=rule
        )
    for key in judged.keys:
        books.entries[key] = replace(books.entries[key], line=Line.DIFFERING, decided_by=rule)


def _rule(operator: str | None) -> str:
    return f"structure:changed-by-{operator}"


def _find_operator(
    books: Books, fixed: _Fixed, tensor: Parameter | Buffer, key: Key
) -> tuple[str, bool] | None:
    """The operator that makes something else of a stored tensor, and of no input, before an activation meets it.

    And whether it does so with a vector of another module, as no module does.
    """
    entry, is_matrix = books.entry(key), len(tensor.shape) > 1
    arrived = np.zeros(0 if is_matrix else entry.tensor.numel + 1, dtype=bool)
    last: str | None = None
    for (node, slot), changes in _meetings(books, fixed, entry):
        known = operator_of(node)
        if known is None or not _takes(known.kind, known.slot(slot), is_matrix=is_matrix):
            arrived[:] = True  # somebody reads it, and nobody knows how
            continue
        if changes and not _is_own_formula(books, tensor, [change.node for change in changes]):
            owners = {split_name(name)[0] for name in _names_behind(books, [c.node for c in changes])}
            return changes[-1].node.op_type, not is_matrix and len(owners) > 1
        reader = changes[0] if changes else Reader(node, slot)
        operator = _first_move(books, entry, reader)
        places = None if operator is None else _track(books, entry, reader)
        if places is None:
            arrived[:] = True
        elif operator is not None and not _is_in_order(places, entry.tensor.shape):
            return operator, False
        elif arrived.size:
            arrived[places] = True
            last = operator
    return (last, False) if last is not None and arrived.size and not arrived[1:].all() else None


def _find_untabled(books: Books, fixed: _Fixed, entry: Entry) -> str | None:
    """The operator that makes of counts, frequencies or a mask what is none of these, before an activation meets it."""
    evaluator: Evaluator | None = None
    array: Array | None = None
    if not 2 < entry.tensor.numel <= _MOST_OF_A_TABLE:
        return None
    for (node, slot), changes in _meetings(books, fixed, entry):
        reader = Reader(node, slot)
        operator = changes[-1].node.op_type if changes else _first_move(books, entry, reader)
        if operator is None:
            continue
        if evaluator is None:
            array = entry.tensor.payload.array()
            if array is None or not is_known_table(array):
                return None
            evaluator = Evaluator(books.ledger.model, books.ledger.wiring, by_default=True)
        value = evaluator.value(node.graph_path, node.inputs[slot])
        if array is not None and (value is None or value.dtype.kind in "fV"):
            is_kept = not changes if value is None else _is_still_table(value, array)
            if not is_kept:
                return operator
    return None


def _is_still_table(value: Array, table: Array) -> bool:
    """Whether what a known table became is one: of frequencies the same ones, times a number, perhaps each twice."""
    before, after = (found.astype(np.float64).reshape(-1) for found in (table, value))
    if not is_geometric(before) or after.size not in (before.size, 2 * before.size):
        return count_free(value) <= 1
    twice = (before, np.concatenate([before, before]), np.repeat(before, 2))
    return any(
        one.size == after.size and bool(np.allclose(one * (after[0] / before[0]), after, rtol=_SLACK))
        for one in twice
    )


def _track(books: Books, entry: Entry, reader: Reader) -> Array | None:
    """Where in a tensor each element comes from that a node reads."""
    node = reader.node
    return track(
        books.ledger.model, books.ledger.wiring, entry.tensor, node.graph_path, node.inputs[reader.slot]
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


def _meetings(books: Books, fixed: _Fixed, entry: Entry) -> Iterator[tuple[Reader, tuple[Reader, ...]]]:
    """The nodes at which a stored tensor meets an activation, and those that computed something of it before."""
    wiring = books.ledger.wiring
    waiting: list[tuple[Reader, tuple[Reader, ...]]] = [
        (reader, ()) for reader in wiring.readers(entry.tensor, past=MOVES | DECODES)
    ]
    for _ in range(_MOST_STEPS):
        onwards: list[tuple[Reader, tuple[Reader, ...]]] = []
        for reader, changes in waiting:
            node, slot = reader
            known = operator_of(node)
            if known is None or slot < 0:
                continue
            if not fixed(node) or _has_product(wiring, reader):
                yield reader, changes
            elif known.kind is Kind.ELEMENTWISE:
                onwards += [(each, (*changes, reader)) for each in wiring.readers(node, past=MOVES)]
            elif (
                known.kind is Kind.LOOKS_UP and known.slot(slot) is not Slot.INDEX
            ):  # at places that are stored
                onwards += [(each, changes) for each in wiring.readers(node, past=MOVES)]
        waiting = onwards[:_MOST_READERS]


_COMPUTES = frozenset({Kind.PRODUCT, Kind.CONVOLUTION, Kind.NORMALIZES})


def _has_product(wiring: Wiring, reader: Reader) -> bool:
    """Whether what a node of stored values adds to a tensor is a product: positions go through layers too."""
    others = [name for slot, name in enumerate(reader.node.inputs) if slot != reader.slot and name]
    providers = (wiring.find(reader.node.graph_path, name) for name in others)
    return any(
        kind_of(node) in _COMPUTES
        for found in providers
        if isinstance(found, Node)
        for node in _behind(wiring, found)
        if isinstance(node, Node)
    )


def _is_own_formula(books: Books, tensor: Parameter | Buffer, changes: Collection[Node]) -> bool:
    """Whether a module may compute this of its tensor: with its other tensors, or by adding 1 to a gain.

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
        return True
    is_sum = {node.op_type for node in changes} == {"Add"} and _names_behind(books, changes) <= {*tensor.names}
    is_gain = leaf == "weight" and len(tensor.shape) == 1
    return is_sum and is_gain and isinstance(tensor, Parameter) and is_offset(books, tensor)


_ROOTS = frozenset({"Add", "Sqrt", "Reciprocal", "Pow", "Div", "Mul", "Sub", "Max"})
"""Operators that the root of a variance and an epsilon is made of, and what it multiplies or divides."""


def _is_of_module(books: Books, module: str, changes: Iterable[Node]) -> bool:
    """Whether two tensors of the module, at least, have a part in what is computed, and no other module's."""
    names = _names_behind(books, changes)
    return len(names) > 1 and {split_name(name)[0] for name in names} == {module}


def _names_behind(books: Books, nodes: Iterable[Node]) -> set[str]:
    """The PyTorch tensors that nodes of stored values alone compute with."""
    found = (each for node in nodes for each in _behind(books.ledger.wiring, node))
    lines = (books.entries.get(each.key) for each in found if isinstance(each, StoredTensor))
    return {line.parameter for line in lines if line is not None and line.parameter is not None}


def _behind(wiring: Wiring, node: Node) -> Iterator[StoredTensor | Node]:
    """A node of stored values alone, and the nodes and stored tensors that it computes with, a few of them."""
    waiting, seen = [node], {node.place}
    while waiting and len(seen) < _MOST_READERS:
        found = waiting.pop()
        yield found
        for provider in wiring.producers(found):
            if isinstance(provider, StoredTensor):
                yield provider
            elif provider.place not in seen:
                seen.add(provider.place)
                waiting.append(provider)


_STRAIGHT = DECODES | {"Identity", "QuantizeLinear", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators that leave the order of elements along each axis as it is."""


def _first_move(books: Books, entry: Entry, reader: Reader) -> str | None:
    """The last operator before a node that may change the order in which a tensor arrives there."""
    wiring = books.ledger.wiring
    provider = wiring.find(reader.node.graph_path, reader.node.inputs[reader.slot])
    while isinstance(provider, Node):
        if provider.op_type not in _STRAIGHT or not provider.inputs:
            return provider.op_type
        provider = wiring.find(provider.graph_path, provider.inputs[0])
    return None


def _is_in_order(places: Array, shape: tuple[int, ...]) -> bool:
    """Whether what comes from a tensor is a box of it: along each axis one step, onwards, and by whole axes.

    Axes may be cut into several, or several made one, but not both: rows of another length are other rows. An axis
    along which all is the same is a repetition.
    """
    found = np.nonzero(places)
    if not found[0].size:
        return True
    box = places[tuple(slice(int(axis.min()), int(axis.max()) + 1) for axis in found)]
    if not box.all():
        return False
    for axis in range(box.ndim):
        first = box.take([0], axis)
        if box.shape[axis] > 1 and math.prod(shape) > 1 and bool((box == first).all()):
            box = first
    steps = [np.diff(box, axis=axis) for axis in range(box.ndim) if box.shape[axis] > 1]
    if not all(bool((step == step.flat[0]).all()) and int(step.flat[0]) > 0 for step in steps):
        return False
    mine = {int(step.flat[0]) for step in steps}
    theirs = {math.prod(shape[axis + 1 :]) for axis, size in enumerate(shape) if size > 1}
    return mine <= theirs or theirs <= mine


@dataclass
class _Fixed:
    """Whether no input of the model has a part in what a node computes; each node is looked at once."""

    wiring: Wiring
    _known: dict[Place, bool] = field(default_factory=dict)

    def __call__(self, node: Node) -> bool:
        known, wiring = self._known, self.wiring
        waiting = [node]
        opened: set[Place] = set()
        while waiting:
            top = waiting[-1]
            if top.place in known:
                waiting.pop()
                continue
            opened.add(top.place)
            pending = None
            is_fixed = top.place not in wiring.nested and top.place not in wiring.calls
            for name in top.inputs if is_fixed else ():
                provider = wiring.find(top.graph_path, name) if name else None
                if not name or isinstance(provider, StoredTensor):
                    continue
                if not isinstance(provider, Node) or not known.get(provider.place, True):
                    is_fixed = False
                    break
                if provider.place not in known:
                    pending = provider
            if is_fixed and pending is not None:
                if pending.place in opened:  # a circle
                    is_fixed = False
                else:
                    waiting.append(pending)
                    continue
            known[top.place] = is_fixed
        return known[node.place]
