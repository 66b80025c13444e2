"""A graph -> DOT, which Graphviz draws; names are quoted, so that they stay names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from analyzer.formats.graph.rows import vertex_ids
from analyzer.text import format_bytes, format_count, format_many, printable, shorten

if TYPE_CHECKING:
    import networkx as nx

    from analyzer.model import GraphPath

_LONGEST = 80

_SHAPES = {"node": "box", "group": "box", "tensor": "cylinder", "input": "ellipse", "output": "ellipse"}

_DASHED = frozenset({"read", "copy"})


def render_dot(graph: nx.MultiDiGraph[Any]) -> str:
    """Render labels for people; programs read GraphML or JSON. Nested graphs and functions are clusters."""
    ids = vertex_ids(graph)
    clusters: dict[GraphPath, list[str]] = defaultdict(list)
    for vertex, attributes in graph.nodes(data=True):
        label = _quote(*_label(attributes))
        line = f"{ids[vertex]} [label={label}, shape={_SHAPES[attributes['kind']]}];"
        clusters[attributes.get("graph_path", ())].append(line)
    parts = [f"digraph {_quote(graph.graph['model'])} {{", 'node [fontname="sans-serif"];']
    for number, (path, lines) in enumerate(clusters.items()):
        if path:
            parts.append(f"subgraph cluster_{number} {{ label={_quote('/'.join(path))};")
        parts += lines
        if path:
            parts.append("}")
    parts += _edges(graph, ids)
    return "\n".join([*parts, "}\n"])


def _edges(graph: nx.MultiDiGraph[Any], ids: Mapping[Any, str]) -> Iterator[str]:
    for source, target, attributes in graph.edges(data=True):
        if "kind" in attributes:
            style = ", style=dashed" if attributes["kind"] in _DASHED else ""
            count = attributes["count"]
            label = attributes["values"][0] if count == 1 else f"{format_count(count)} values"
        else:
            style, label = "", attributes["value"]
        yield f"{ids[source]} -> {ids[target]} [label={_quote(label)}{style}];"


def _label(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    name = attributes["name"]
    match attributes["kind"]:
        case "node":
            return attributes["op_type"], name
        case "tensor":
            shape = "x".join(map(str, attributes["shape"])) or "scalar"
            return (
                name,
                f"{attributes['dtype']} {shape}",
                format_many(attributes["parameters"], "parameter"),
            )
        case "group":
            sizes = (
                f"{format_many(attributes['parameters'], 'parameter')}, {format_bytes(attributes['bytes'])}"
            )
            count = len(attributes["members"])
            return (name, sizes) if count == 1 else (name, f"{count} groups, {sizes}")
    return (name,)


def _quote(*lines: str) -> str:
    """Quote one or more lines; backslashes and entities, which Graphviz would interpret, are escaped."""
    texts = (shorten(printable(line), _LONGEST) for line in lines if line)
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for text in texts)
    return '"' + "\\n".join(escaped) + '"'
