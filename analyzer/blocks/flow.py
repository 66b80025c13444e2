"""One graph of a model -> what flows between its nodes, by number, without the arithmetic on weights and on shapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from analyzer.ledger import Entry, Role
from analyzer.model import Graph, GraphPath, Key, Model, Node, Place, StoredTensor
from analyzer.wiring import NAMED, GraphInput, Wiring

__all__ = ["Flow", "Weights", "find_holders", "weigh"]

_SHAPE_READERS = frozenset({"Shape", "Size"})
"""Operators that take from a value its size alone: nothing flows through them."""

_SUMS: Mapping[str, frozenset[int]] = {
    "SkipLayerNormalization": frozenset({2, 3}),
    "SkipSimplifiedLayerNormalization": frozenset({2}),
}
"""onnxruntime's sum and norm in one node, and the inputs that are the norm's. (docs/ContribOperators.md)"""

_SUM_OUTPUT = 3
"""Their output that is the sum before the norm. The norm is what follows the sum: of a block whose norms come last the
end, else the beginning of the next."""

_MOST_WEIGHTS = 64
"""Weights of one node, merged by arithmetic on weights, that are told apart."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Sizes of the learned tensors that nodes find in the file, beyond those that are read by name."""

    sizes: Mapping[Key, int]
    """Learned elements that each learned tensor stands for, copies included."""
    inside: Mapping[Place, tuple[int, ...]]
    """Sizes of those in the attributes, nested graphs and functions of a node."""
    captured: Mapping[Place, tuple[str, ...]]
    """Values of the graph around it that the nested graphs of a node read."""


@dataclass(slots=True)
class Flow:
    """Vertices in an order in which each comes after what it reads. A node has one, a sum with a norm has two."""

    nodes: list[Node] = field(default_factory=list)
    """The node of each vertex."""
    before: list[list[int]] = field(default_factory=list)
    """The vertices whose values each reads, without those that only the file's contents reach."""
    after: list[list[int]] = field(default_factory=list)
    sizes: list[tuple[int, ...]] = field(default_factory=list)
    """Of the learned tensors that each computes with; of a static vertex, those that it hands on."""
    static: list[bool] = field(default_factory=list)
    """Whether it computes with nothing but the file's contents and the shapes of values."""
    conduits: list[list[int]] = field(default_factory=list)
    """The static vertices that each reads."""
    operands: list[tuple[int, int]] = field(default_factory=list)
    """The dynamic vertices that provide its first two inputs; -1 where none does."""
    vertices: dict[int, int] = field(default_factory=dict)
    """By position of the node: its vertex, of two the second."""
    outputs: list[int] = field(default_factory=list)
    """Vertices that provide the graph's outputs."""
    firsts: dict[int, int] = field(default_factory=dict)
    """Of nodes with two vertices: the first, by the second."""

    @classmethod
    def of(cls, graph: Graph, wiring: Wiring, weights: Weights) -> Flow:
        """Number the nodes of one graph. A value that is read before it is computed does not flow."""
        flow = cls()
        producers: dict[str, int] = {}
        scales: set[str] = set()  # of activations: what a product is multiplied by, and no way for what flows
        for node in graph.nodes:
            read: list[tuple[int, int]] = []
            stored: dict[int, int] = {}
            is_given = False
            names = node.inputs + weights.captured.get(node.place, ()) if weights.captured else node.inputs
            for slot, name in enumerate(names):
                if name in producers:
                    read.append((slot, producers[name]))
                elif name and name not in scales:
                    found = wiring.find(graph.path, name)
                    if isinstance(found, StoredTensor):
                        stored[slot] = weights.sizes.get(found.key, 0)
                    is_given = is_given or isinstance(found, Node | GraphInput)
            if node.op_type in _SHAPE_READERS:
                read, stored, is_given = [], {}, False
            is_static = not is_given and all(flow.static[vertex] for _, vertex in read)
            norm = _SUMS.get(node.op_type, frozenset())
            inside = list(weights.inside.get(node.place, ()))
            own_sizes = [size for slot, size in stored.items() if size and slot not in norm]
            first = flow._add(node, read, inside + own_sizes, is_static)
            last = first
            if norm:
                sizes = [size for slot, size in stored.items() if size and slot in norm]
                last = flow._add(node, [(0, first)], sizes, is_static)
                flow.firsts[last] = first
            if node.op_type == "DynamicQuantizeLinear":
                scales.update(node.outputs[1:])
            for number, name in enumerate(node.outputs):
                if name and name not in scales:
                    producers[name] = first if norm and number == _SUM_OUTPUT else last
        flow.outputs = [producers[name] for name in graph.outputs if name in producers]
        return flow

    def vertex(self, node: Node, slot: int) -> int:
        """The vertex that reads an input of a node."""
        second = self.vertices[node.position]
        return self.firsts.get(second, second) if slot not in _SUMS.get(node.op_type, ()) else second

    def _add(self, node: Node, read: list[tuple[int, int]], sizes: list[int], is_static: bool) -> int:
        vertex = len(self.nodes)
        moving = {slot: source for slot, source in read if not self.static[source]}
        conduits = [source for _, source in read if self.static[source]]
        for source in conduits:
            sizes += self.sizes[source]
        before = list(dict.fromkeys(moving.values())) if not is_static else []
        self.nodes.append(node)
        self.before.append(before)
        self.after.append([])
        self.conduits.append(conduits)
        self.sizes.append(tuple(sorted(sizes)[-_MOST_WEIGHTS:]))
        self.static.append(is_static)
        self.operands.append((moving.get(0, -1), moving.get(1, -1)))
        self.vertices[node.position] = vertex
        for source in before:
            self.after[source].append(vertex)
        return vertex


def weigh(model: Model, entries: Iterable[Entry], wiring: Wiring) -> Weights:
    """Sizes of all learned tensors, and of those that a node holds inside it, at any depth."""
    sizes = {entry.tensor.key: entry.logical_numel for entry in entries if entry.role is Role.PARAMETER}
    holders = find_holders(model)
    inside: dict[Place, list[int]] = defaultdict(list)
    for graph in model.graphs:
        for tensor in graph.tensors:
            size = sizes.get(tensor.key, 0)
            if not size:
                continue
            if tensor.node is not None and tensor.carrier not in NAMED:
                inside[graph.path, tensor.node].append(size)
            for place in _around(graph.path, holders):
                inside[place].append(size)
    return Weights(
        sizes=sizes,
        inside={place: tuple(sorted(found)[-_MOST_WEIGHTS:]) for place, found in inside.items()},
        captured=_captured(model, wiring),
    )


def find_holders(model: Model) -> dict[GraphPath, Place]:
    """The node that holds each nested graph; of a function the first that calls it."""
    found = {graph.path: graph.parent for graph in model.graphs if graph.parent is not None}
    if model.functions:
        paths = {
            (model.root(function.path), function.domain, function.name, function.overload): function.path
            for function in model.functions
        }
        for node in model.nodes():
            path = paths.get((model.root(node.graph_path), node.domain, node.op_type, node.overload))
            if path is not None and path != node.graph_path:
                found.setdefault(path, node.place)
    return found


_DEEPEST = 64
"""Graphs within graphs that are looked through; functions may call each other in a circle."""


def _around(path: GraphPath, holders: Mapping[GraphPath, Place]) -> Iterator[Place]:
    """The nodes that a graph is in, the innermost first."""
    for _ in range(_DEEPEST):
        place = holders.get(path)
        if place is None:
            return
        yield place
        path = place[0]


def _captured(model: Model, wiring: Wiring) -> dict[Place, tuple[str, ...]]:
    parents = {graph.path: graph.parent for graph in model.graphs if graph.parent is not None}
    found: dict[Place, dict[str, None]] = defaultdict(dict)
    for graph in model.graphs:
        if graph.parent is None:
            continue
        names = {name for node in graph.nodes for name in node.inputs if name} | set(graph.outputs)
        own = wiring.providers[graph.path]
        for name in sorted(names - own.keys()):
            place = wiring.place(graph.path, name)
            holder: Place | None = graph.parent
            while holder is not None and holder[0] != place:
                found[holder][name] = None
                holder = parents.get(holder[0])
            if holder is not None:
                found[holder][name] = None
    return {place: tuple(names) for place, names in found.items()}
