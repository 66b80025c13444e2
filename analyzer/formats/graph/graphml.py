"""A graph -> GraphML, for yEd, Gephi, Cytoscape and `networkx.read_graphml`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from analyzer.formats.graph.rows import Row, edge_rows, graph_row, vertex_ids, vertex_rows
from analyzer.text import printable

if TYPE_CHECKING:
    import networkx as nx

_TYPES = {bool: "boolean", int: "long", float: "double", str: "string", list: "string"}
"""Types of GraphML, which has no lists: those of numbers are written as 768x3072, others with a line for each item."""

_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
"""

_PLACES = frozenset({"id", "source", "target", "key"})
"""Attributes that GraphML itself has a place for."""


def render_graphml(graph: nx.MultiDiGraph[Any]) -> str:
    """Render the graph without unknown attributes; characters that XML forbids, or a terminal obeys, are escaped."""
    ids = vertex_ids(graph)
    about = graph_row(graph)
    vertices, edges = list(vertex_rows(graph, ids)), list(edge_rows(graph, ids))
    parts = [_HEAD]
    for kind, rows in (("graph", [about]), ("node", vertices), ("edge", edges)):
        parts += [
            f'<key id="{kind}.{name}" for="{kind}" attr.name="{name}" attr.type="{type_}"/>\n'
            for name, type_ in _columns(rows).items()
        ]
    parts.append('<graph edgedefault="directed">\n')
    parts += [f"{data}\n" for data in _data("graph", about)]
    for row in vertices:
        parts.append(f'<node id="{row["id"]}">{"".join(_data("node", row))}</node>\n')
    for number, row in enumerate(edges):
        data = "".join(_data("edge", row))
        parts.append(
            f'<edge id="e{number}" source="{row["source"]}" target="{row["target"]}">{data}</edge>\n'
        )
    parts.append("</graph>\n</graphml>\n")
    return "".join(parts)


def _columns(rows: Iterable[Row]) -> dict[str, str]:
    """Return the attributes and their types, in the order in which they first have a value."""
    columns: dict[str, str] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None and name not in columns and name not in _PLACES:
                columns[name] = _TYPES[type(value)]
    return columns


def _data(kind: str, row: Row) -> Iterable[str]:
    return (
        f'<data key="{kind}.{name}">{_text(value)}</data>'
        for name, value in row.items()
        if value is not None and name not in _PLACES
    )


def _text(value: object) -> str:
    match value:
        case str():
            return escape(value if value.isprintable() else printable(value))
        case bool():
            return str(value).lower()
        case list() if value and isinstance(value[0], str):
            return escape("\n".join(map(printable, value)))
        case list():
            return "x".join(map(str, value))
    return repr(value)
