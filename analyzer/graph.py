"""Model -> networkx.MultiDiGraph of nodes, stored tensors, graph inputs and outputs.

Vertices are tuples: `("node", path, index)`, `("tensor", path, name)`, `("input", path, name)`,
`("output", path, name)`. A tensor that a node carries (a Constant's `value`) has a vertex of its own with an edge to
the vertex of its reader, not of its carrier, so that the readers of every entry are its successors.

Vertex attributes: `kind`; for nodes `node` (the `analyzer.model.Node`) and `order` (its
place in the file), for tensors `tensor` (the `StoredTensor`).
Edge attributes: `value` (the name that flows) and `slot` (the input position; -1 for a carried attribute tensor,
-2 for a value that a nested graph takes from outside or hands back).
Graph attributes: `undefined`, values (graph path, name) that are read and nothing provides; `unsorted`, those that a
node reads before they are computed; `repeated`, those that are computed more than once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter

import networkx as nx

from analyzer.model import Carrier, Graph, GraphPath, Key, Model, Node, Vertex

__all__ = ["CARRIED", "CROSSING", "Reader", "build_graph", "readers", "tensor_vertex"]

CARRIED = -1
CROSSING = -2

_INITIALIZERS = frozenset({Carrier.INITIALIZER, Carrier.SPARSE_INITIALIZER})
_CONSTANTS = frozenset({Carrier.CONSTANT, Carrier.SPARSE_CONSTANT, Carrier.CONSTANT_LIST})
_NAMED = _INITIALIZERS | _CONSTANTS
"""Carriers whose tensor has a value's name."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A node that reads a value, and at which input."""

    node: Node
    slot: int


def build_graph(model: Model) -> nx.MultiDiGraph[Vertex]:
    """The whole model as one graph; a nested graph's vertices stand beside its parent's, joined by what crosses.

    A name that nothing defines has no edge: the file is invalid there, and counting it needs none.
    """
    graph: nx.MultiDiGraph[Vertex] = nx.MultiDiGraph(undefined=[], unsorted=[], repeated=[])
    scopes = _Scopes({part.path: part.parent[0] for part in model.graphs if part.parent is not None})
    for part in model.graphs:
        _add_vertices(graph, part, scopes)
    bodies = {(), *(function.path for function in model.functions)}
    for part in model.graphs:
        # A training graph also reads what is trained, by rules of its own (onnx.proto, TrainingInfoProto).
        _add_edges(graph, part, scopes, is_closed=scopes.root(part.path) in bodies)
    return graph


def tensor_vertex(key: Key) -> Vertex:
    """The vertex of the stored tensor with this key."""
    return ("tensor", key[0], key[1])


def readers(graph: nx.MultiDiGraph[Vertex], vertex: Vertex) -> Iterator[Reader]:
    """The nodes that read what `vertex` provides, in file order, one item for each input that does."""
    found = [
        (attributes["order"], slot, attributes["node"])
        for target, edges in graph.adj[vertex].items()
        if target[0] == "node"
        for attributes in (graph.nodes[target],)
        for slot in sorted(edge["slot"] for edge in edges.values())
    ]
    if len(found) > 1:
        found.sort(key=itemgetter(0, 1))
    for _, slot, node in found:
        yield Reader(node, slot)


@dataclass
class _Scopes:
    """Which vertex provides a name, seen from a graph: its own names first, then those of the graphs around it.

    A function body and a training graph have no graph around them.
    """

    parents: dict[GraphPath, GraphPath]
    providers: dict[GraphPath, dict[str, Vertex]] = field(default_factory=dict)

    def of(self, path: GraphPath) -> dict[str, Vertex]:
        return self.providers.setdefault(path, {})

    def root(self, path: GraphPath) -> GraphPath:
        """The outermost graph around this one."""
        while path in self.parents:
            path = self.parents[path]
        return path

    def find(self, path: GraphPath, name: str) -> Vertex | None:
        around: GraphPath | None = path
        while around is not None:
            vertex = self.of(around).get(name)
            if vertex is not None:
                return vertex
            around = self.parents.get(around)
        return None


def _add_vertices(graph: nx.MultiDiGraph[Vertex], part: Graph, scopes: _Scopes) -> None:
    path, provided = part.path, scopes.of(part.path)
    for name in part.inputs:
        provided[name] = ("input", path, name)
        graph.add_node(provided[name], kind="input")
    for tensor in part.tensors:
        vertex = tensor_vertex(tensor.key)
        graph.add_node(vertex, kind="tensor", tensor=tensor)
        if tensor.occurrence == 1 and tensor.carrier in _INITIALIZERS:
            provided[tensor.name] = vertex
    order = len(graph)
    for node in part.nodes:
        vertex = ("node", path, node.position)
        graph.add_node(vertex, kind="node", node=node, order=order + node.position)
        for name in node.outputs:
            if name:
                if name in provided:
                    graph.graph["repeated"].append((path, name))
                provided[name] = vertex
    for (
        tensor
    ) in part.tensors:  # where a node computes the same name, which is invalid, what is stored goes first
        if tensor.occurrence == 1 and tensor.carrier in _NAMED:
            provided[tensor.name] = tensor_vertex(tensor.key)


def _add_edges(graph: nx.MultiDiGraph[Vertex], part: Graph, scopes: _Scopes, *, is_closed: bool) -> None:
    path, provided = part.path, scopes.of(part.path)
    for node in part.nodes:
        target: Vertex = ("node", path, node.position)
        for slot, name in enumerate(node.inputs):
            if not name:
                continue
            source = provided.get(name) or scopes.find(path, name)
            if source is None:
                if is_closed:
                    graph.graph["undefined"].append((path, name))
                continue
            if source[0] == "node" and source[1] == path and source[2] >= node.position:  # type: ignore[operator]
                graph.graph["unsorted"].append((path, name))
            graph.add_edge(source, target, slot, value=name, slot=slot)
    for tensor in part.tensors:
        if tensor.node is not None and tensor.carrier not in _CONSTANTS:
            graph.add_edge(
                tensor_vertex(tensor.key), ("node", path, tensor.node), value=tensor.name, slot=CARRIED
            )
    for name in part.outputs:
        source = scopes.find(part.path, name)
        vertex: Vertex = ("output", part.path, name)
        graph.add_node(vertex, kind="output")
        if source is not None:
            graph.add_edge(source, vertex, value=name, slot=CROSSING)
    _join_parent(graph, part)


def _join_parent(graph: nx.MultiDiGraph[Vertex], part: Graph) -> None:
    """Edges between a nested graph and the node that holds it, so that paths lead in and out."""
    if part.parent is None:
        return
    parent: Vertex = ("node", *part.parent)
    for name in part.inputs:
        graph.add_edge(parent, ("input", part.path, name), value=name, slot=CROSSING)
    for name in part.outputs:
        graph.add_edge(("output", part.path, name), parent, value=name, slot=CROSSING)
