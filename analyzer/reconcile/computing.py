"""Rules: data that computes and that is nothing of PyTorch's, and weights that are changed when the model runs.

Parameters are explained, and buffers whose values were compared, and the scales and zero points of codes that are held.
What a name, a note or an annotation says of anything else is no explanation, once it reaches arithmetic.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np

from analyzer.content import Array
from analyzer.evaluation import track
from analyzer.ledger import Entry
from analyzer.manifest import Parameter, split_name
from analyzer.model import GraphPath, Key, Node, StoredTensor
from analyzer.model.operators import DECODES, MOVES, Kind, Slot, operator_of
from analyzer.opaque import find_opaque
from analyzer.reconcile.books import Books
from analyzer.reconcile.lines import MEANINGS, Line
from analyzer.wiring import Reader

__all__ = ["settle_changed", "settle_opaque"]

_COMPARED = frozenset({"content", "sampled", "rows"})


def settle_opaque(books: Books) -> None:
    """Settle as `opaque` what computes and is not explained."""
    ledger = books.ledger
    if ledger.live is None:
        return
    explained = _find_explained(books)
    claims = {key for key, line in books.entries.items() if line.line is Line.BUFFER and key not in explained}
    found = find_opaque(
        ledger.model,
        ledger.wiring,
        ledger.live,
        lambda tensor: tensor.key in explained or tensor.key not in books.entries,
        claims,
        whole=books.contents.mode == "full",
    )
    for key in found.tensors:
        books.entries[key] = replace(
            books.entries[key], line=Line.OPAQUE, decided_by="structure:computes", learned=0
        )
    books.made = dict(found.made)


def _find_explained(books: Books) -> set[Key]:
    """What needs no other explanation: what is PyTorch's by its values, and what decodes it; what is told already."""
    explained: set[Key] = set()
    for entry in books.ledger.entries:
        key = entry.tensor.key
        line = books.entries.get(key)
        if line is None:
            continue
        meaning = MEANINGS[line.line]
        if line.line is Line.BUFFER:
            is_compared = bool(_COMPARED.intersection(re.split("[+: ]", line.decided_by)))
            is_explained = is_compared or books.contents.mode == "none"
        else:
            is_explained = meaning.values != "none" or bool(meaning.unbalanced)
        if is_explained:
            explained.add(key)
            encoded = books.contents.encoding(entry)
            if encoded is not None:
                explained.update(companion.key for companion in encoded.companions)
    return explained


_PLAIN = re.compile(
    r"Linear|NonDynamicallyQuantizableLinear|Conv1D|(?:Lazy)?Conv(?:Transpose)?[123]d|Embedding"
)
"""Classes of torch and transformers whose forward computes with `weight` as it is."""

_MOST_STEPS = 4


def settle_changed(books: Books) -> None:
    """Settle as `differing` the weights of plain modules that a node changes before they are multiplied.

    Where no class is known, a matrix is one of a plain module if most others are multiplied as they are.
    """
    if books.contents.mode == "none":
        return
    found: list[tuple[Parameter, str | None]] = []
    for parameter in books.manifest.parameters:
        settled = books.parameters[parameter.name]
        module, leaf = split_name(parameter.name)
        class_ = books.manifest.modules.get(module)
        is_plain = len(parameter.shape) > 1 if class_ is None else _PLAIN.fullmatch(class_) is not None
        if is_plain and leaf == "weight" and settled.entries and not MEANINGS[settled.line].unbalanced:
            entries = [books.entry(key) for key in settled.entries]
            change = _find_change(books, entries[0]) if len(entries) == 1 else None
            moves = (_find_move(books, entry) for entry in entries)
            found.append((parameter, change or next(filter(None, moves), None)))
    changed = [(parameter, operator) for parameter, operator in found if operator is not None]
    if not books.manifest.modules and 2 * len(changed) > len(found):
        return
    for parameter, operator in changed:
        settled = books.parameters[parameter.name]
        rule, chain = f"structure:changed-by-{operator}", (*settled.chain, Line.DIFFERING)
        books.parameters[parameter.name] = replace(settled, line=Line.DIFFERING, chain=chain, decided_by=rule)
        for key in settled.entries:
            books.entries[key] = replace(books.entries[key], line=Line.DIFFERING, decided_by=rule)


def _find_change(books: Books, entry: Entry) -> str | None:
    """The operator that computes something else of a weight, and of no input, if that is what is multiplied."""
    wiring = books.ledger.wiring
    waiting = [(reader, "") for reader in wiring.readers(entry.tensor, past=MOVES | DECODES)]
    for _ in range(_MOST_STEPS):
        onwards: list[tuple[Reader, str]] = []
        for (node, slot), changed in waiting:
            known = operator_of(node)
            if known is None:
                continue
            if known.kind in (Kind.PRODUCT, Kind.CONVOLUTION, Kind.LOOKS_UP, Kind.NORMALIZES):
                if changed and known.slot(slot) in (Slot.LEARNED, Slot.TABLE):
                    return changed
            elif known.kind is Kind.ELEMENTWISE and _is_alone(books, node):
                onwards += [(reader, node.op_type) for reader in wiring.readers(node, past=MOVES)]
        waiting = onwards[:_MOST_READERS]
    return None


_MOST_READERS = 64
"""Readers of one step that are followed."""

_STRAIGHT = DECODES | {"Identity", "QuantizeLinear", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators that leave the order of elements along each axis as it is."""


def _find_move(books: Books, entry: Entry) -> str | None:
    """The operator that puts a weight's elements in an order that is none of its axes, before it is multiplied."""
    wiring, model = books.ledger.wiring, books.ledger.model
    for node, slot in wiring.readers(entry.tensor, past=MOVES | DECODES):
        known = operator_of(node)
        if known is None or known.kind not in (Kind.PRODUCT, Kind.CONVOLUTION, Kind.LOOKS_UP):
            continue
        operator = _first_move(books, entry, node, slot)
        if operator is None:
            continue
        places = track(model, wiring, entry.tensor, node.graph_path, node.inputs[slot])
        if places is not None and not _is_in_order(places, entry.tensor.shape):
            return operator
    return None


def _first_move(books: Books, entry: Entry, node: Node, slot: int) -> str | None:
    """The last operator before a node that may change the order in which a tensor arrives there."""
    wiring = books.ledger.wiring
    provider = wiring.find(node.graph_path, node.inputs[slot])
    while isinstance(provider, Node):
        if provider.op_type not in _STRAIGHT or not provider.inputs:
            return provider.op_type
        provider = wiring.find(provider.graph_path, provider.inputs[0])
    return None


def _is_in_order(places: Array, shape: tuple[int, ...]) -> bool:
    """Whether what comes from a tensor is a box of it: along each axis one step, onwards, and by whole axes.

    Axes may be cut into several, or several made one, but not both: rows of another length are other rows.
    """
    found = np.nonzero(places)
    if not found[0].size:
        return True
    box = places[tuple(slice(int(axis.min()), int(axis.max()) + 1) for axis in found)]
    steps = [np.diff(box, axis=axis) for axis in range(box.ndim) if box.shape[axis] > 1]
    if not box.all() or not all(
        bool((step == step.flat[0]).all()) and int(step.flat[0]) > 0 for step in steps
    ):
        return False
    mine = {int(step.flat[0]) for step in steps}
    theirs = {math.prod(shape[axis + 1 :]) for axis, size in enumerate(shape) if size > 1}
    return mine <= theirs or theirs <= mine


def _is_alone(books: Books, node: Node) -> bool:
    """Whether no input of the model has a part in what a node reads."""
    return all(_is_fixed(books, node.graph_path, name, 0) for name in node.inputs if name)


def _is_fixed(books: Books, path: GraphPath, name: str, depth: int) -> bool:
    provider = books.ledger.wiring.find(path, name)
    if isinstance(provider, Node) and depth < _MOST_STEPS:
        given = [each for each in provider.inputs if each]
        return all(_is_fixed(books, provider.graph_path, each, depth + 1) for each in given)
    return isinstance(provider, StoredTensor)
