"""A graph -> node-link JSON, which `networkx.node_link_graph(document, edges="edges")` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from analyzer.formats.graph.rows import Row, edge_rows, graph_row, vertex_ids, vertex_rows
from analyzer.version import version

if TYPE_CHECKING:
    import networkx as nx

SCHEMA_VERSION = 1

_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=True, allow_nan=False).encode


def render_json(graph: nx.MultiDiGraph[Any]) -> str:
    """Render the graph with sorted keys, and a vertex or an edge on each line."""
    ids = vertex_ids(graph)
    fields = {
        "command": _encode("graph"),
        "directed": "true",
        "edges": _lines(edge_rows(graph, ids)),
        "graph": _encode(graph_row(graph)),
        "multigraph": "true",
        "nodes": _lines(vertex_rows(graph, ids)),
        "schema_version": _encode(SCHEMA_VERSION),
        "tool": _encode({"name": "onnxledger", "version": version()}),
    }
    return "{\n" + ",\n".join(f'  "{key}": {text}' for key, text in fields.items()) + "\n}\n"


def _lines(rows: Iterable[Row]) -> str:
    text = ",\n    ".join(map(_encode, rows))
    return f"[\n    {text}\n  ]" if text else "[]"
