"""A model and who has which node -> whose data each value is computed from, and which learned tensors it stands for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from analyzer.ledger import Ledger, Role
from analyzer.model import GraphPath, Key, Node, Place, StoredTensor
from analyzer.model.operators import MEASURES
from analyzer.wiring import NAMED, GraphInput, Provider

__all__ = ["NOTHING", "Content", "Owner", "Streams"]

Owner = int
"""A bit. What several owners have is one number, so that joining thousands of them is one operation."""


class Content(NamedTuple):
    """What a value is made of. It is nobody's, and no tensor's, where it is made of shapes and constants alone."""

    data: Owner
    weights: frozenset[Key]
    """The learned tensors that it is made of, where it holds no data: they are moved, cast or decoded, not applied."""


NOTHING = Content(0, frozenset())

_ROUNDS = 16
"""Each carries contents through one more level of nested graphs and functions; far fewer are ever needed."""

_MANY = 64
"""Learned tensors that a value may be made of and still be called weights."""


@dataclass(slots=True)
class Streams:
    """The contents of every value. Data begin at the inputs of a model, and where somebody's node computes."""

    ledger: Ledger
    nodes: Mapping[Place, Owner]
    """Of the nodes that somebody has; what they compute from data or weights is their owner's data."""
    inputs: Mapping[Key, Owner]
    """Of the graphs that nothing holds."""
    holders: Mapping[GraphPath, list[Place]]
    """The nodes that hold, or call, each of the other graphs."""
    appliers: dict[Place, frozenset[Key]] = field(default_factory=dict)
    """The nodes of nobody that compute with data and learned tensors, and with which."""
    _weights: dict[Key, Content] = field(init=False)
    _read: dict[Place, Content] = field(default_factory=dict)
    _made: dict[Place, Content] = field(default_factory=dict)

    def __post_init__(self) -> None:
        learned = [entry.tensor.key for entry in self.ledger.entries if entry.role is Role.PARAMETER]
        self._weights = {key: Content(0, frozenset([key])) for key in learned}
        carried: dict[Place, list[Content]] = defaultdict(list)
        for tensor in self.ledger.model.tensors():
            if tensor.node is not None and tensor.carrier not in NAMED:
                carried[tensor.graph_path, tensor.node].append(self.of(tensor))
        bodies: dict[Place, list[Key]] = defaultdict(list)
        outputs = {part.path: part.outputs for part in self.ledger.model.graphs}
        for path, places in self.holders.items():
            for place in places:
                bodies[place] += [(path, name) for name in outputs[path]]
        for _ in range(_ROUNDS):
            if not self._carry(bodies, carried):
                break

    def of(self, provider: Provider | None) -> Content:
        """The content of a value, by what provides it."""
        match provider:
            case Node():
                return self._made.get(provider.place, NOTHING)
            case StoredTensor():
                return self._weights.get(provider.key, NOTHING)
            case GraphInput(path=path) if path in self.holders:
                return _join(self._read.get(holder, NOTHING) for holder in self.holders[path])
            case GraphInput():
                return Content(self.inputs.get((provider.path, provider.name), 0), NOTHING.weights)
        return NOTHING

    def _carry(self, bodies: Mapping[Place, list[Key]], carried: Mapping[Place, list[Content]]) -> bool:
        """Take contents through every node once, in file order. Returns whether any node got more than it had."""
        has_changed = False
        find = self.ledger.wiring.look_up
        for node in self.ledger.model.nodes():
            place, path = node.place, node.graph_path
            parts = [self.of(find(path, name)) for name in node.inputs if name]
            read = _join(parts + carried[place]) if place in carried else _join(parts)
            whole = (
                _join([read, *(self.of(find(*key)) for key in bodies[place])]) if place in bodies else read
            )
            made = self._make(node, whole)
            if read != self._read.get(place, NOTHING) or made != self._made.get(place, NOTHING):
                has_changed = True
                self._read[place], self._made[place] = read, made
        return has_changed

    def _make(self, node: Node, read: Content) -> Content:
        if read == NOTHING or node.op_type in MEASURES:
            return NOTHING
        owner = self.nodes.get(node.place)
        if owner is not None:
            return Content(owner, NOTHING.weights)
        if read.data and read.weights:
            self.appliers[node.place] = read.weights
        return Content(read.data, NOTHING.weights) if read.data else read


def _join(contents: Iterable[Content]) -> Content:
    data, weights = 0, NOTHING.weights
    for content in contents:
        if content is not NOTHING:
            data |= content.data
            weights = weights | content.weights if weights else content.weights
    if len(weights) > _MANY:
        weights = frozenset(sorted(weights)[:_MANY])
    return Content(data, weights) if data or weights else NOTHING
