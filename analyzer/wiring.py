"""Model -> who provides each value and who reads it: the index that rules ask (`analyzer.graph` draws it)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from analyzer.model import Carrier, Graph, GraphPath, Key, Model, Node, StoredTensor

__all__ = ["CARRIED", "NAMED", "GraphInput", "Provider", "Reader", "Wiring", "connect"]

CARRIED = -1
"""The slot of a tensor in one of its reader's own attributes."""

_INITIALIZERS = frozenset({Carrier.INITIALIZER, Carrier.SPARSE_INITIALIZER})
_CONSTANTS = frozenset({Carrier.CONSTANT, Carrier.SPARSE_CONSTANT, Carrier.CONSTANT_LIST})
NAMED = _INITIALIZERS | _CONSTANTS
"""Carriers whose tensor has a value's name. Of a Constant node it is the tensor that provides the value."""


class Reader(NamedTuple):
    """A node that reads a value, and at which input."""

    node: Node
    slot: int


class GraphInput(NamedTuple):
    """What a graph is given: by a caller, or by the node that holds the graph."""

    path: GraphPath
    name: str


Provider = StoredTensor | Node | GraphInput


@dataclass(slots=True)
class Wiring:
    """Names of values belong to one graph; nested graphs also see those of the graphs around them."""

    parents: dict[GraphPath, GraphPath]
    """The graph around each nested graph. A function body and a training graph have none."""
    providers: dict[GraphPath, dict[str, Provider]] = field(default_factory=dict)
    undefined: list[Key] = field(default_factory=list)
    """Values that are read and nothing provides."""
    unsorted: list[Key] = field(default_factory=list)
    """Values that a node reads before they are computed."""
    repeated: list[Key] = field(default_factory=list)
    """Values that are computed more than once, or computed and given besides."""
    _nodes: dict[GraphPath, tuple[Node, ...]] = field(default_factory=dict)
    _order: dict[GraphPath, int] = field(default_factory=dict)
    """The graphs' places in the file."""
    _readers: dict[GraphPath, dict[str, list[Reader]]] = field(default_factory=dict)
    """By the graph that provides a value, and its name; in file order."""

    def find(self, path: GraphPath, name: str) -> Provider | None:
        """What provides a name, seen from a graph; None where nothing does, and the file is invalid."""
        place = self.place(path, name)
        return None if place is None else self.providers[place][name]

    def place(self, path: GraphPath, name: str) -> GraphPath | None:
        """The graph that a name belongs to, seen from a graph: its own names first, then those around it."""
        around: GraphPath | None = path
        while around is not None:
            if name in self.providers[around]:
                return around
            around = self.parents.get(around)
        return None

    def readers(self, provider: StoredTensor | Node) -> list[Reader]:
        """The nodes that read what a tensor or a node provides, in file order, one item for each input that does."""
        if isinstance(provider, Node):
            found = [self._readers_of(provider, name) for name in provider.outputs]
            return found[0] if len(found) == 1 else sorted(itertools.chain(*found), key=self._file_order)
        if provider.node is not None and provider.carrier not in _CONSTANTS:
            return [Reader(self._nodes[provider.graph_path][provider.node], CARRIED)]
        return self._readers_of(provider, provider.name)

    def _file_order(self, reader: Reader) -> tuple[int, int, int]:
        return self._order[reader.node.graph_path], reader.node.position, reader.slot

    def _readers_of(self, provider: StoredTensor | Node, name: str) -> list[Reader]:
        path = provider.graph_path
        if self.providers[path].get(name) is not provider:
            return []  # another provides the name
        return self._readers[path].get(name, [])

    def producers(self, node: Node) -> Iterator[StoredTensor | Node]:
        """The tensors and nodes that provide what a node reads, in the order of its inputs."""
        for name in node.inputs:
            provider = self.find(node.graph_path, name) if name else None
            if provider is not None and not isinstance(provider, GraphInput):
                yield provider


def connect(model: Model) -> Wiring:
    """Look up every name that a node reads.

    A name that nothing defines connects nothing: the file is invalid there, and counting it needs none.
    """
    wiring = Wiring({part.path: part.parent[0] for part in model.graphs if part.parent is not None})
    for part in model.graphs:
        _provide(wiring, part)
    bodies = {part.path for part in model.parts} | {function.path for function in model.functions}
    closed: set[GraphPath] = set()
    for part in model.graphs:
        # A training graph also reads what is trained, by rules of its own (onnx.proto, TrainingInfoProto).
        if part.path in bodies or (part.parent is not None and part.parent[0] in closed):
            closed.add(part.path)
        _read(wiring, part, is_closed=part.path in closed)
    return wiring


def _provide(wiring: Wiring, part: Graph) -> None:
    path = part.path
    provided: dict[str, Provider] = {name: GraphInput(path, name) for name in part.inputs}
    stored = {t.name: t for t in part.tensors if t.occurrence == 1 and t.carrier in NAMED}
    provided.update((name, tensor) for name, tensor in stored.items() if tensor.carrier in _INITIALIZERS)
    for node in part.nodes:
        for name in node.outputs:
            if name:
                if name in provided:
                    wiring.repeated.append((path, name))
                provided[name] = node
    provided.update(
        stored
    )  # where a node computes the same name, which is invalid, what is stored goes first
    wiring.providers[path] = provided
    wiring._nodes[path] = part.nodes
    wiring._order[path] = len(wiring._order)
    wiring._readers[path] = {}


def _read(wiring: Wiring, part: Graph, *, is_closed: bool) -> None:
    path, provided, readers = part.path, wiring.providers[part.path], wiring._readers[part.path]
    for node in part.nodes:
        for slot, name in enumerate(node.inputs):
            if name in provided:
                provider, found = provided[name], readers
                if isinstance(provider, Node) and provider.position >= node.position:
                    wiring.unsorted.append((path, name))
            elif name and (place := wiring.place(path, name)) is not None:
                found = wiring._readers[place]
            else:
                if name and is_closed:
                    wiring.undefined.append((path, name))
                continue
            if name in found:
                found[name].append(Reader(node, slot))
            else:
                found[name] = [Reader(node, slot)]
