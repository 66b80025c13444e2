"""A graph -> plain rows of its vertices and edges, the same in every format for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import networkx as nx

Row = dict[str, Any]

_RECORDS = frozenset({"node", "tensor", "entry", "drawn"})
"""Attributes that hold this program's own records, or that only pictures show."""

_VERTICES = frozenset({"parent", "copy_of"})
"""Attributes that hold another vertex."""

_PATHS = frozenset({"graph_path", "calls"})
"""Attributes that hold the path of a graph."""


def graph_row(graph: nx.MultiDiGraph[Any]) -> Row:
    """Return the attributes of the graph as a whole."""
    return {name: _plain(value) for name, value in graph.graph.items()}


def vertex_ids(graph: nx.MultiDiGraph[Any]) -> dict[Any, str]:
    """Return a short id for each vertex, in order; names from the file would need quoting, and may be equal."""
    return {vertex: f"n{number}" for number, vertex in enumerate(graph)}


def vertex_rows(graph: nx.MultiDiGraph[Any], ids: dict[Any, str]) -> Iterator[Row]:
    """Yield the attributes of each vertex, and its `id`."""
    for vertex, attributes in graph.nodes(data=True):
        row: Row = {"id": ids[vertex]}
        for name, value in attributes.items():
            if name in _RECORDS:
                continue
            if value is not None and name in _VERTICES:
                row[name] = ids[value]
            elif value is not None and name in _PATHS:
                row[name] = "/".join(value)
            else:
                row[name] = _plain(value)
        yield row


def edge_rows(graph: nx.MultiDiGraph[Any], ids: dict[Any, str]) -> Iterator[Row]:
    """Yield the attributes of each edge, with `source`, `target`, and the `key` that tells parallel edges apart."""
    for source, target, key, attributes in graph.edges(keys=True, data=True):
        row: Row = {"source": ids[source], "target": ids[target], "key": key}
        row |= {name: _plain(value) for name, value in attributes.items() if name not in _RECORDS}
        yield row


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
