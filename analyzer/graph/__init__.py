"""Model -> networkx.MultiDiGraph of nodes, stored tensors, graph inputs and outputs; Ledger -> its attributes.

Vertices are tuples: `("node", path, position)`, `("tensor", path, name)`, `("input", path, name)`,
`("output", path, name)`. A tensor that a node carries (a Constant's `value`) has its own vertex, with an edge to its
reader and not to its carrier, so that the successors of each entry are its readers.

Vertex attributes: `kind`; for nodes `node` (the `analyzer.model.Node`) and `order` (its place in the file), for tensors
`tensor` (the `StoredTensor`); in a nested graph `parent`, the vertex of the node that holds it.
Edge attributes: `value` (the name that flows) and `slot` (the input position; -1 for a carried attribute tensor,
-2 for an edge to an input or output of a graph, or from an output of a nested graph to the node that holds it).
A ledger adds more attributes; docs/graph.md lists all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx

from analyzer.account.blocks import find_blocks
from analyzer.account.ledger import Blocks, Entry, Ledger
from analyzer.model import Graph, GraphPath, Key, Model, Node, Place, StoredTensor, Vertex
from analyzer.model.functions import called_bodies
from analyzer.model.wiring import CARRIED, NAMED, GraphInput, Provider, Wiring, connect

__all__ = ["CROSSING", "build_graph", "tensor_vertex"]

CROSSING = -2

_UNNESTED: Mapping[str, Any] = {}


def build_graph(of: Ledger | Model) -> nx.MultiDiGraph[Vertex]:
    """Build one graph of a whole model; a ledger adds its attributes.

    Vertices of a nested graph stand beside those of its parent, and edges join them. A name that nothing defines has
    no edge: the file is invalid there. Each call builds a new graph.
    """
    if isinstance(of, Model):
        return _draw(of, connect(of))
    return _describe(_draw(of.model, of.wiring), of)


def _draw(model: Model, wiring: Wiring) -> nx.MultiDiGraph[Vertex]:
    graph: nx.MultiDiGraph[Vertex] = nx.MultiDiGraph()
    for part in model.graphs:
        _add_vertices(graph, part)
    for part in model.graphs:
        _add_edges(graph, part, wiring)
    return graph


def _describe(graph: nx.MultiDiGraph[Vertex], ledger: Ledger) -> nx.MultiDiGraph[Vertex]:
    """Add the ledger's attributes to the vertices, and its totals to the graph."""
    blocks = ledger.blocks or find_blocks(ledger)
    functions = called_bodies(ledger.model)
    entries = {entry.tensor.key: entry for entry in ledger.entries}
    for vertex, attributes in graph.nodes(data=True):
        kind, path, name = vertex
        attributes["graph_path"] = path
        attributes.setdefault("parent", None)
        if kind == "node":
            _describe_node(attributes, ledger, blocks, functions)
        elif kind == "tensor":
            entry = entries[path, str(name)]
            _describe_tensor(attributes, entry, blocks)
        else:
            attributes["name"] = name
    graph.graph |= {
        "model": ledger.model.path,
        "components": tuple(part.name for part in ledger.model.components),
        "collapsed": False,
        "by": None,
        "depth": None,
        "folded": False,
        "left_out": 0,
        "tensors": len(ledger.entries),
        "parameters": ledger.parameters,
        "stored_elements": ledger.stored_elements,
        "bytes": ledger.stored_nbytes,
    }
    return graph


def tensor_vertex(key: Key) -> Vertex:
    """Return the vertex of the stored tensor with this key."""
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
    nested = _UNNESTED if part.parent is None else {"parent": ("node", *part.parent)}
    for name in part.inputs:
        graph.add_node(("input", part.path, name), kind="input", **nested)
    for node in part.nodes:
        graph.add_node(("node", part.path, node.position), kind="node", node=node, order=len(graph), **nested)
    for tensor in part.tensors:
        graph.add_node(tensor_vertex(tensor.key), kind="tensor", tensor=tensor, **nested)
    for name in part.outputs:
        graph.add_node(("output", part.path, name), kind="output", **nested)


def _add_edges(graph: nx.MultiDiGraph[Vertex], part: Graph, wiring: Wiring) -> None:
    path = part.path
    for node in part.nodes:
        target: Vertex = ("node", path, node.position)
        for slot, name in enumerate(node.inputs):
            provider = wiring.look_up(path, name) if name else None
            if provider is not None:
                graph.add_edge(_vertex(provider), target, value=name, slot=slot)
    for tensor in part.tensors:
        if tensor.node is not None and tensor.carrier not in NAMED:
            target = ("node", path, tensor.node)
            graph.add_edge(tensor_vertex(tensor.key), target, value=tensor.name, slot=CARRIED)
    for name in part.outputs:
        provider = wiring.look_up(path, name)
        if provider is not None:
            graph.add_edge(_vertex(provider), ("output", path, name), value=name, slot=CROSSING)
    _join_parent(graph, part)


def _join_parent(graph: nx.MultiDiGraph[Vertex], part: Graph) -> None:
    """Add edges between a nested graph and the node that holds it, so that paths lead in and out."""
    if part.parent is None:
        return
    parent: Vertex = ("node", *part.parent)
    for name in part.inputs:
        graph.add_edge(parent, ("input", part.path, name), value=name, slot=CROSSING)
    for name in part.outputs:
        graph.add_edge(("output", part.path, name), parent, value=name, slot=CROSSING)


def _describe_node(
    attributes: dict[str, Any], ledger: Ledger, blocks: Blocks, functions: Mapping[Place, GraphPath]
) -> None:
    node: Node = attributes["node"]
    place = node.place
    member = blocks.nodes[place]
    attributes["name"] = node.name
    attributes["position"] = node.position
    attributes["op_type"] = node.op_type
    attributes["domain"] = node.domain
    attributes["scope"] = ledger.node_scopes.get(place)
    attributes["block"] = member.block
    attributes["part"] = member.part or None
    attributes["calls"] = functions.get(place)


def _describe_tensor(attributes: dict[str, Any], entry: Entry, blocks: Blocks) -> None:
    tensor = entry.tensor
    member = blocks.entries[tensor.key]
    attributes["entry"] = entry
    attributes["name"] = tensor.key[1]
    attributes["carrier"] = tensor.carrier.value
    attributes["dtype"] = tensor.dtype.name
    attributes["shape"] = tensor.shape
    attributes["stored_elements"] = tensor.numel
    attributes["parameters"] = entry.parameters
    attributes["bytes"] = tensor.nbytes
    attributes["role"] = entry.role.value
    attributes["layer_role"] = blocks.roles.get(tensor.key)
    attributes["scope"] = entry.scope if entry.has_scope else None
    attributes["decided_by"] = entry.decided_by
    attributes["uses"] = entry.uses
    attributes["applications"] = entry.applications
    attributes["copy_of"] = None if entry.copy_of is None else tensor_vertex(entry.copy_of)
    attributes["block"] = member.block
    attributes["part"] = member.part or None
