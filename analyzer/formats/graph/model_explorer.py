"""A graph -> JSON for Model Explorer: node data for a whole model, or a graph of its own if it is collapsed.

Node data are keyed by the names of Model Explorer's ONNX adapter (model-explorer-onnx): `[value] NAME` for an
initializer, and a node's name, made unique as onnx_ir does. The viewer sums them for every namespace.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from analyzer.errors import UsageError
from analyzer.formats.graph.rows import vertex_ids
from analyzer.text import format_bytes, format_count, format_share

if TYPE_CHECKING:
    import networkx as nx

    from analyzer.reports import GraphMetric

_COLORS = ((1e-4, "#eef5fc"), (1e-3, "#cfe3f7"), (1e-2, "#9dc6ef"), (1e-1, "#5c9fe0"), (1.0, "#1a6fc4"))
"""Shares of the whole, and the colour of nodes up to each; a linear scale would show the embedding alone."""


def render_model_explorer(graph: nx.MultiDiGraph[Any], metric: GraphMetric = "parameters") -> str:
    """Render one value for each node and initializer that has any; for a collapsed graph, the graph itself.

    Raises:
        UsageError: the model is several files, and the viewer shows one.
    """
    document = _graph_of(graph) if graph.graph["collapsed"] else _node_data(graph, metric)
    return json.dumps(document, sort_keys=True, allow_nan=False) + "\n"


def _node_data(graph: nx.MultiDiGraph[Any], metric: GraphMetric) -> dict[str, Any]:
    if graph.graph["components"]:
        raise UsageError(
            f"{graph.graph['model']}: is an artifact of several files, and Model Explorer shows one; name that file"
        )
    callers: dict[Any, Any] = {}
    for vertex, attributes in graph.nodes(data=True):
        if attributes["kind"] == "node" and attributes["calls"] is not None:
            callers.setdefault(attributes["calls"], vertex)
    names = _node_names(graph)
    values: Counter[str] = Counter()
    for vertex, attributes in graph.nodes(data=True):
        if attributes["kind"] == "tensor" and attributes[metric]:
            values[_key(graph, vertex, names, callers)] += attributes[metric]
    whole = sum(values.values())
    return {
        "name": f"{metric.replace('_', ' ')}, onnxledger",
        "results": {key: {"value": value} for key, value in values.items()},
        "thresholds": [{"value": share * whole, "bgColor": color} for share, color in _COLORS],
    }


def _node_names(graph: nx.MultiDiGraph[Any]) -> dict[Any, str]:
    """Return the viewer's names for the nodes of the main graph: a name that is taken already gets a number."""
    used: set[str] = set()
    taken: Counter[str] = Counter()
    names = {}
    for vertex, attributes in graph.nodes(data=True):
        if attributes["kind"] == "node" and not attributes["graph_path"]:
            wanted = name = attributes["name"] or "node"
            while name in used:
                taken[wanted] += 1
                name = f"{wanted}_{taken[wanted]}"
            used.add(name)
            names[vertex] = name
    return names


def _key(
    graph: nx.MultiDiGraph[Any], vertex: Any, names: Mapping[Any, str], callers: Mapping[Any, Any]
) -> str:
    """Return the viewer's key of a tensor: the tensor, the node that carries it, or the main graph's node around it.

    A tensor that no node leads to keeps a key of its own, so that the values add up; the viewer has no place for it.
    """
    attributes = graph.nodes[vertex]
    path, name = attributes["graph_path"], attributes["name"]
    position = attributes["tensor"].node
    if not path:
        return f"[value] {name}" if position is None else names["node", path, position]
    seen = set()
    while path and path not in seen:
        seen.add(path)
        holder = attributes["parent"] or callers.get(path)
        if holder is None:
            break
        attributes = graph.nodes[holder]
        path = attributes["graph_path"]
        if not path:
            return names[holder]
    return "/".join((*vertex[1], name))


def _graph_of(graph: nx.MultiDiGraph[Any]) -> dict[str, Any]:
    """Return the collapsed graph in Model Explorer's own format; the scope around a group is its namespace."""
    ids = vertex_ids(graph)
    incoming: dict[Any, list[dict[str, str]]] = defaultdict(list)
    for source, target, _ in graph.edges(keys=True):
        incoming[target].append(
            {
                "sourceNodeId": ids[source],
                "sourceNodeOutputId": "0",
                "targetNodeInputId": str(len(incoming[target])),
            }
        )
    scopes = {
        tuple(attributes["name"].split(".")[:-1])
        for _, attributes in graph.nodes(data=True)
        if attributes["kind"] == "group"
    }
    nodes = [
        {
            "id": ids[vertex],
            "label": attributes["name"],
            "namespace": "/".join(_around(attributes, scopes)),
            "attrs": [{"key": key, "value": value} for key, value in _facts(graph, attributes)],
            "incomingEdges": incoming[vertex],
        }
        for vertex, attributes in graph.nodes(data=True)
    ]
    return {"label": graph.graph["model"], "graphs": [{"id": f"by {graph.graph['by']}", "nodes": nodes}]}


def _around(attributes: Mapping[str, Any], scopes: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the scope around a group: its own if that has others in it."""
    if attributes["kind"] != "group":
        return ()
    scope = tuple(attributes["name"].split("."))
    return scope if scope in scopes else scope[:-1]


def _facts(graph: nx.MultiDiGraph[Any], attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if attributes["kind"] != "group":
        return
    yield "parameters", format_count(attributes["parameters"])
    yield "share", format_share(attributes["parameters"], graph.graph["parameters"])
    yield "bytes", format_bytes(attributes["bytes"])
    for name in ("stored_elements", "tensors", "nodes", "applications"):
        yield name, format_count(attributes[name])
    yield "members", format_count(len(attributes["members"]))
