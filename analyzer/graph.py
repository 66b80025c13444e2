"""Model -> networkx.MultiDiGraph of nodes, stored tensors, graph inputs and outputs.

Vertices are tuples: `("node", path, position)`, `("tensor", path, name)`, `("input", path, name)`,
`("output", path, name)`. A tensor that a node carries (a Constant's `value`) has a vertex of its own with an edge to
the vertex of its reader, not of its carrier, so that the readers of every entry are its successors.

Vertex attributes: `kind`; for nodes `node` (the `analyzer.model.Node`) and `order` (its place in the file), for tensors
`tensor` (the `StoredTensor`).
Edge attributes: `value` (the name that flows) and `slot` (the input position; -1 for a carried attribute tensor,
-2 for a value that a nested graph takes from outside or hands back).
"""

from __future__ import annotations

import networkx as nx

from analyzer.model import Graph, Key, Model, Node, StoredTensor, Vertex
from analyzer.wiring import CARRIED, NAMED, GraphInput, Provider, Wiring, connect

__all__ = ["CROSSING", "build_graph", "tensor_vertex"]

CROSSING = -2


def build_graph(model: Model, wiring: Wiring | None = None) -> nx.MultiDiGraph[Vertex]:
    """The whole model as one graph; a nested graph's vertices stand beside its parent's, joined by what crosses.

    A name that nothing defines has no edge: the file is invalid there. `wiring` is what `analyzer.wiring.connect` says
    of the model, if it is known already.
    """
    graph: nx.MultiDiGraph[Vertex] = nx.MultiDiGraph()
    wiring = connect(model) if wiring is None else wiring
    for part in model.graphs:
        _add_vertices(graph, part)
    for part in model.graphs:
        _add_edges(graph, part, wiring)
    return graph


def tensor_vertex(key: Key) -> Vertex:
    """The vertex of the stored tensor with this key."""
    return ("tensor", key[0], key[1])


def _vertex(provider: Provider) -> Vertex:
    match provider:
        case Node():
            return ("node", provider.graph_path, provider.position)
        case StoredTensor():
            return tensor_vertex(provider.key)
        case GraphInput():
            return ("input", provider.path, provider.name)


def _add_vertices(graph: nx.MultiDiGraph[Vertex], part: Graph) -> None:
    for name in part.inputs:
        graph.add_node(("input", part.path, name), kind="input")
    for node in part.nodes:
        graph.add_node(("node", part.path, node.position), kind="node", node=node, order=len(graph))
    for tensor in part.tensors:
        graph.add_node(tensor_vertex(tensor.key), kind="tensor", tensor=tensor)
    for name in part.outputs:
        graph.add_node(("output", part.path, name), kind="output")


def _add_edges(graph: nx.MultiDiGraph[Vertex], part: Graph, wiring: Wiring) -> None:
    path = part.path
    for node in part.nodes:
        target: Vertex = ("node", path, node.position)
        for slot, name in enumerate(node.inputs):
            provider = wiring.find(path, name) if name else None
            if provider is not None:
                graph.add_edge(_vertex(provider), target, value=name, slot=slot)
    for tensor in part.tensors:
        if tensor.node is not None and tensor.carrier not in NAMED:
            target = ("node", path, tensor.node)
            graph.add_edge(tensor_vertex(tensor.key), target, value=tensor.name, slot=CARRIED)
    for name in part.outputs:
        provider = wiring.find(path, name)
        if provider is not None:
            graph.add_edge(_vertex(provider), ("output", path, name), value=name, slot=CROSSING)
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
