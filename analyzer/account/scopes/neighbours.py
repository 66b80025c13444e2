"""Data flow and known scopes of nodes and tensors -> scopes of the other nodes.

Each step visits the nodes, or the edges between them, once, whatever the model's size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from analyzer.account.ledger import Entry, Role
from analyzer.account.scopes import common_scope
from analyzer.account.scopes.paths import Scope
from analyzer.model import Key, Node
from analyzer.model.dataflow import Dataflow
from analyzer.model.operators import CARRIES, Kind, is_integer_product, operators_of
from analyzer.model.wiring import Wiring

OWN_WEIGHTS = "structure:own-weights"
PRODUCT_AND_BIAS = "structure:product-and-bias"
BETWEEN = "structure:between"
BODY = "structure:body"

STRENGTH = (
    "provenance:name-scopes",
    "provenance:namespace",
    "name:node-path",
    OWN_WEIGHTS,
    PRODUCT_AND_BIAS,
    BETWEEN,
    BODY,
)
"""Kinds of evidence for the scope of a node, the strongest first."""

_RANKS = {rule: rank for rank, rule in enumerate(STRENGTH)}

_LOOKUPS = operators_of(Kind.LOOKS_UP)
"""Operators that take rows of a table. If a head reads the table too, its name may belong to either module."""

_PRODUCTS = operators_of(Kind.PRODUCT, Kind.CONVOLUTION)
"""Operators to whose result the bias of the same module is added, perhaps by a separate node."""

_BIAS_SLOTS: Mapping[str, frozenset[int]] = {
    "Add": frozenset({0, 1}),
    "BiasGelu": frozenset({1}),
    "FastGelu": frozenset({1}),
    "MultiHeadAttention": frozenset({3}),
    "QLinearAdd": frozenset({0, 3}),
    "SkipLayerNormalization": frozenset({4}),
    "SkipSimplifiedLayerNormalization": frozenset({3}),
}
"""Inputs that are a bias of the value before."""

_FOREIGN_BIAS = frozenset(
    {"MultiHeadAttention", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}
)
"""Operators whose bias belongs to the node before, in another module: the bias says nothing about their own module."""

_MOST_BRIDGES = 6
"""Most nodes between a product and its bias: nodes that only pass the value on, and `Mul` after an integer product."""


class _LearnedInput(NamedTuple):
    """A learned tensor that a node reads, directly or prepared by other nodes."""

    slot: int
    scope: str | None
    is_vector: bool


def settle_nodes(
    flow: Dataflow,
    wiring: Wiring,
    entries: Sequence[Entry],
    entry_scopes: Mapping[Key, Scope],
    traced: Mapping[int, Scope],
) -> dict[int, Scope]:
    """Return scopes of nodes that have none in `traced`, from the strongest evidence to the weakest.

    `entry_scopes` holds the scopes of entries that do not depend on their readers.
    """
    if len(traced) == len(flow.nodes):
        return {}
    learned = _collect_learned(flow, wiring, entries, entry_scopes)
    found: dict[int, Scope] = dict(traced)
    for number, tensors in learned.items():
        if number not in found and not flow.prepares[number]:
            own = _own_scopes(flow.nodes[number], tensors)
            if own:
                found[number] = common_scope(own), OWN_WEIGHTS
    found.update(_scopes_by_bias(flow, learned, found))
    found.update(_scopes_between(flow, found))
    _assign_body_scopes(flow, found)
    _assign_prepared_scopes(flow, found, learned)
    return {number: scope for number, scope in found.items() if number not in traced}


def agree(found: Iterable[Scope | None], *, is_owned: bool) -> Scope | None:
    """Return the common scope of a value's readers, according to the strongest evidence that any of them has.

    If the readers have no module in common, a tensor that a module owns, such as a learned one, gets the scope of its
    first reader, and any other gets the outermost module. Scopes from `BETWEEN` or weaker rules count only if every
    reader has a scope.
    """
    reader_scopes = list(found)
    scopes = [scope for scope in reader_scopes if scope is not None]
    if not scopes:
        return None
    rule = min((rule for _, rule in scopes), key=lambda rule: _RANKS[rule])
    if _RANKS[rule] >= _RANKS[BETWEEN] and len(scopes) < len(reader_scopes):
        return None
    strongest = [scope for scope, by in scopes if by == rule]
    common = common_scope(strongest)
    if not common and is_owned:
        common = next((scope for scope in strongest if scope), "")
    return common, rule


def _collect_learned(
    flow: Dataflow, wiring: Wiring, entries: Sequence[Entry], entry_scopes: Mapping[Key, Scope]
) -> dict[int, list[_LearnedInput]]:
    """Return the learned tensors that each node reads, directly or prepared; those prepared together count as one."""
    learned: dict[int, list[_LearnedInput]] = defaultdict(list)
    repeated = {entry.copy_of for entry in entries}
    for entry in entries:
        if entry.role is not Role.PARAMETER and entry.role is not Role.BUFFER:
            continue
        key, is_vector = entry.tensor.key, sum(dim != 1 for dim in entry.tensor.shape) == 1
        scope = entry_scopes[key][0] if key in entry_scopes else None
        reads = flow.reads(entry.tensor)
        looks_up = [flow.nodes[number].op_type in _LOOKUPS for number, _ in reads]
        is_shared = any(looks_up) and (not all(looks_up) or key in repeated)
        for (number, slot), is_lookup in zip(reads, looks_up, strict=True):
            if not is_shared:
                learned[number].append(_LearnedInput(slot, scope, is_vector))
            elif not is_lookup:
                learned[number].append(_LearnedInput(slot, None, is_vector))
    number = flow.prepares.find(1)
    while number >= 0:
        if number in learned:
            _pass_on(flow, wiring, learned, number)
        number = flow.prepares.find(1, number + 1)
    return learned


def _pass_on(flow: Dataflow, wiring: Wiring, learned: dict[int, list[_LearnedInput]], number: int) -> None:
    """Pass the tensors that a node prepares on to its readers, as one tensor."""
    tensors = learned[number]
    known = [tensor.scope for tensor in tensors if tensor.scope is not None]
    scope = common_scope(known) if known else None
    is_vector = all(tensor.is_vector for tensor in tensors)
    for node, slot in wiring.readers(flow.nodes[number], inlined=False):
        target = flow.numbers[node.graph_path][node.position]
        if target > number:
            learned[target].append(_LearnedInput(slot, scope, is_vector))


def _own_scopes(node: Node, tensors: Iterable[_LearnedInput]) -> list[str]:
    foreign = _BIAS_SLOTS[node.op_type] if node.op_type in _FOREIGN_BIAS else frozenset()
    return [tensor.scope for tensor in tensors if tensor.scope is not None and tensor.slot not in foreign]


def _scopes_by_bias(
    flow: Dataflow, learned: Mapping[int, Sequence[_LearnedInput]], known: Mapping[int, Scope]
) -> dict[int, Scope]:
    """Give a product and the node that adds its bias the same scope, if only one of them has a scope."""
    found: dict[int, Scope] = {}
    for number, tensors in learned.items():
        if flow.nodes[number].op_type not in _PRODUCTS or flow.prepares[number]:
            continue
        scope = known.get(number)
        has_nameless = any(tensor.scope is None for tensor in tensors)
        bias_scopes: list[str] = []
        for target, bias in _biases(flow, learned, number):
            if scope is None and bias.scope is not None and has_nameless:
                bias_scopes.append(bias.scope)
            elif scope is not None and bias.scope is None and target not in known:
                found[target] = scope[0], PRODUCT_AND_BIAS
        if bias_scopes and common_scope(bias_scopes):
            found[number] = common_scope(bias_scopes), PRODUCT_AND_BIAS
    return found


def _biases(
    flow: Dataflow, learned: Mapping[int, Sequence[_LearnedInput]], product: int
) -> Iterable[tuple[int, _LearnedInput]]:
    """Yield the nodes that add a vector to a product, past nodes that only move or re-encode it, with these vectors."""
    is_integer = is_integer_product(flow.nodes[product])
    layer = [product]
    for _ in range(_MOST_BRIDGES):
        following: list[int] = []
        for number in layer:
            outputs = set(flow.nodes[number].outputs)
            for target in dict.fromkeys(flow.targets[number]):
                node = flow.nodes[target]
                is_moved = node.op_type in CARRIES and node.inputs[0] in outputs
                if is_moved or (node.op_type == "Mul" and is_integer):
                    following.append(target)
                for tensor in learned.get(target, ()):
                    if tensor.is_vector and tensor.slot in _BIAS_SLOTS.get(node.op_type, ()):
                        yield target, tensor
        layer = following


def _scopes_between(flow: Dataflow, known: Mapping[int, Scope]) -> dict[int, Scope]:
    """Return the common module of the nearest nodes before and after, nearest in file order."""
    count = len(flow.nodes)
    if not known or len(known) == count:
        return {}
    before, after = [-1] * count, [count] * count
    # These are like `before` and `after`, but a node with a known scope is its own nearest.
    preceding, following = [-1] * count, [count] * count
    for number, sources in enumerate(flow.sources):
        nearest = -1
        for source in sources:
            if preceding[source] > nearest:
                nearest = preceding[source]
        before[number] = nearest
        preceding[number] = number if number in known else nearest
    for number in range(count - 1, -1, -1):
        nearest = count
        for target in flow.targets[number]:
            if following[target] < nearest:
                nearest = following[target]
        after[number] = nearest
        following[number] = number if number in known else nearest
    found: dict[int, Scope] = {}
    common: dict[tuple[str, str], str] = {}
    for number in range(count):
        if number not in known and before[number] >= 0 and after[number] < count:
            ends = known[before[number]][0], known[after[number]][0]
            if ends not in common:
                common[ends] = common_scope(ends)
            if common[ends]:
                found[number] = common[ends], BETWEEN
    return found


def _assign_body_scopes(flow: Dataflow, found: dict[int, Scope]) -> None:
    """Give nodes of a nested graph the scope of the node that holds it."""
    if not flow.holders:
        return
    for number, node in enumerate(flow.nodes):
        holder = flow.holders.get(node.graph_path)
        if holder is not None and number not in found and holder in found and found[holder][0]:
            found[number] = found[holder][0], BODY


def _assign_prepared_scopes(
    flow: Dataflow, found: dict[int, Scope], learned: Mapping[int, Sequence[_LearnedInput]]
) -> None:
    """Give nodes that only prepare stored tensors the scope of their readers."""
    number = flow.prepares.rfind(1)
    while number >= 0:
        if number not in found:
            readers = (found.get(target) for target in flow.targets[number])
            scope = agree(readers, is_owned=number in learned)
            if scope is not None:
                found[number] = scope
        number = flow.prepares.rfind(1, 0, number)
