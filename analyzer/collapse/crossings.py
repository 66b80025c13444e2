"""Which group each entry and node is in -> what crosses from one group to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from analyzer.functions import called_bodies
from analyzer.group.keys import Label, Labels
from analyzer.ledger import Entry, Ledger, Role
from analyzer.model import Graph, GraphPath, Key, Model, Node, Place, StoredTensor
from analyzer.wiring import NAMED, GraphInput, Provider

__all__ = ["COPY", "FLOW", "READ", "Crossings", "Edge", "Edges", "Reading", "Vertex", "open_graphs"]

FLOW, READ, COPY = "flow", "read", "copy"

Vertex = tuple[Any, ...]

Edge = tuple[Vertex, Vertex, str]
"""From, to, and the kind."""

Edges = dict[Edge, dict[Key, Entry | None]]
"""What each edge is made of: activations, or stored tensors with their entries."""

Reading = tuple[Vertex, Key, Provider]
"""The vertex that reads a value, the value, and what provides it."""


@dataclass(slots=True)
class Crossings:
    """A model whose entries and nodes are in groups."""

    ledger: Ledger
    labels: Labels
    by_node: Mapping[Place, Label]
    entries: dict[Key, Entry] = field(init=False)
    owners: dict[Key, Vertex] = field(init=False)
    """The group of each stored tensor."""
    holders: dict[GraphPath, list[Place]] = field(init=False)
    """The nodes that hold each nested graph, or call each function."""

    def __post_init__(self) -> None:
        paired = list(zip(self.ledger.entries, self.labels.entries, strict=True))
        self.entries = {entry.tensor.key: entry for entry, _ in paired}
        self.owners = {entry.tensor.key: ("group", label) for entry, label in paired}
        self.holders = _holders(self.ledger.model)

    def all_edges(self) -> Edges:
        """Everything that crosses."""
        edges: Edges = {}
        for target, key, provider in self.readings():
            match provider:
                case Node():
                    add(edges, self.group(provider.place), target, FLOW, key)
                case StoredTensor():
                    add(edges, self.owners[key], target, READ, key, self.entries[key])
                case GraphInput():
                    for source in self.sources(provider):
                        add(edges, source, target, FLOW, key)
        self.add_copies(edges)
        return edges

    def readings(self) -> Iterator[Reading]:
        """Every value that a node reads, or a graph hands out to what holds it or to the caller."""
        wiring = self.ledger.wiring
        for part in self.ledger.model.graphs:
            for target, name in self._reads(part):
                place = wiring.place(part.path, name)
                if place is not None:
                    provider = wiring.providers[place][name]
                    key = provider.key if isinstance(provider, StoredTensor) else (place, name)
                    yield target, key, provider
            for tensor in part.tensors:
                if tensor.node is not None and tensor.carrier not in NAMED:
                    yield self.group((part.path, tensor.node)), tensor.key, tensor

    def _reads(self, part: Graph) -> Iterator[tuple[Vertex, str]]:
        for node in part.nodes:
            target = self.group(node.place)
            for name in node.inputs:
                if name:
                    yield target, name
        for name in part.outputs:
            if part.path in self.holders:
                for holder in self.holders[part.path]:
                    yield self.group(holder), name
            else:
                yield ("output", part.path, name), name

    def group(self, place: Place) -> Vertex:
        """The group of a node."""
        return ("group", self.by_node[place])

    def sources(self, given: GraphInput) -> list[Vertex]:
        """What feeds an input of a graph: the groups of the nodes that hold it, or nothing but itself."""
        if given.path in self.holders:
            return [self.group(holder) for holder in self.holders[given.path]]
        return [("input", given.path, given.name)]

    def add_copies(self, edges: Edges) -> None:
        """An edge for each learned tensor that repeats one of another group."""
        for key, entry in self.entries.items():
            if entry.copy_of is not None and entry.role is Role.PARAMETER:
                add(edges, self.owners[entry.copy_of], self.owners[key], COPY, key, entry)


def add(
    edges: Edges, source: Vertex, target: Vertex, kind: str, key: Key, entry: Entry | None = None
) -> None:
    """Note what crosses; what stays inside crosses nothing."""
    if source != target:
        edges.setdefault((source, target, kind), {})[key] = entry


def open_graphs(model: Model) -> list[Graph]:
    """The main graph, and others that no node holds or calls: their inputs and outputs are the model's."""
    bodies = {function.path for function in model.functions}
    return [part for part in model.graphs if part.parent is None and part.path not in bodies]


def _holders(model: Model) -> dict[GraphPath, list[Place]]:
    holders: dict[GraphPath, list[Place]] = {function.path: [] for function in model.functions}
    holders |= {part.path: [part.parent] for part in model.graphs if part.parent is not None}
    for place, path in called_bodies(model).items():
        holders[path].append(place)
    return holders
