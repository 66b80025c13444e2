"""A collapsed graph -> SVG: a picture that needs no program, no script, no font and no network."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.errors import UsageError
from analyzer.formats.graph.boxes import INSET, LEADING, PADDING, Box, Line, make_box, text_width
from analyzer.formats.graph.graphviz import lay_out_by_graphviz
from analyzer.formats.graph.layers import Arrow
from analyzer.formats.graph.layout import Layout, Point, Size, lay_out
from analyzer.units import format_bytes, format_count, format_many, printable, short_count, shorten

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["MOST_BOXES", "render_svg"]

MOST_BOXES = 400

_MARGIN, _HEADER, _FOOTER = 24.0, 58.0, 22.0
_NAMED_VALUES = 5
"""Of those that an arrow stands for, in its tooltip."""

_CARD = 4.0
"""How far a card of a stack looks out below the next."""

_STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
.page { fill: #ffffff; }
.name { fill: #1f2328; font-weight: 600; }
.text { fill: #1f2328; }
.dim { fill: #59636e; }
.group { fill: #f6f8fa; stroke: #c4ccd4; }
.empty { fill: #ffffff; stroke: #c4ccd4; stroke-dasharray: 3 3; }
.end { fill: #ddf4ff; stroke: #54aeff; }
.track { fill: #dfe4e9; }
.bar { fill: #0969da; }
.flow { fill: none; stroke: #8c959f; stroke-width: 1.3; }
.round { fill: none; stroke: #8c959f; stroke-width: 1.3; stroke-dasharray: 2 3; }
.read { fill: none; stroke: #bc4c00; stroke-width: 1.3; stroke-dasharray: 6 4; }
.tip { fill: #8c959f; }
.read-tip { fill: #bc4c00; }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; }
.name, .text { fill: #f0f6fc; }
.dim { fill: #9198a1; }
.group { fill: #161b22; stroke: #3d444d; }
.empty { fill: #0d1117; stroke: #3d444d; }
.end { fill: #10243e; stroke: #1f6feb; }
.track { fill: #2f353d; }
.bar { fill: #4493f8; }
.flow, .round { stroke: #7d8590; }
.read { stroke: #f0883e; }
.tip { fill: #7d8590; }
.read-tip { fill: #f0883e; }
}
"""

Layouts = Sequence[Callable[[Sequence[Size], Sequence[Arrow]], Layout | None]]


def render_svg(graph: nx.MultiDiGraph[Any], layouts: Layouts = (lay_out_by_graphviz, lay_out)) -> str:
    """Draw it, by the first layout that answers.

    Raises:
        UsageError: there are more boxes than anybody could read.
    """
    if len(graph) > MOST_BOXES:
        raise UsageError(
            f"svg: {len(graph):,} boxes, and more than {MOST_BOXES} cannot be read; use a smaller --depth or another "
            "--by, or write .graphml or .dot"
        )
    places = {vertex: place for place, vertex in enumerate(graph)}
    boxes = [make_box(graph, vertex) for vertex in graph]
    edges = [edge for edge in graph.edges(data=True) if edge[0] != edge[1]]
    arrows = [
        Arrow(places[source], places[target], edge["recurs"] or edge["kind"] != "flow")
        for source, target, edge in edges
    ]
    sizes = [(box.size[0] + box.cards * _CARD, box.size[1] + box.cards * _CARD) for box in boxes]
    layout = next(found for lay in layouts if (found := lay(sizes, arrows)) is not None)
    drawing = _Drawing(graph.graph, layout.size, has_reads=any(e["kind"] != "flow" for _, _, e in edges))
    for (source, target, attributes), route in zip(edges, layout.routes, strict=True):
        names = graph.nodes[source]["name"], graph.nodes[target]["name"]
        drawing.add_arrow(attributes, names, route)
    for box, center in zip(boxes, layout.centers, strict=True):
        drawing.add_box(box, center)
    return drawing.text()


class _Drawing:
    """The picture under construction."""

    def __init__(self, about: Mapping[str, Any], size: Size, *, has_reads: bool) -> None:
        title, totals = shorten(printable(about["model"]), 60), _totals(about)
        note = _note(about, has_reads=has_reads)
        texts = text_width(title, 16, "name"), text_width(totals, 12), text_width(note, 11)
        width = max(size[0], *texts) + 2 * _MARGIN
        height = _HEADER + size[1] + (_FOOTER if note else 0.0) + 2 * _MARGIN
        self.shift = (width - size[0]) / 2, _HEADER + _MARGIN
        self.root = ET.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {width:.0f} {height:.0f}",
                "width": f"{width:.0f}",
                "height": f"{height:.0f}",
                "role": "img",
                "aria-labelledby": "title desc",
            },
        )
        ET.SubElement(self.root, "title", id="title").text = f"{title}: {totals}"
        ET.SubElement(self.root, "desc", id="desc").text = (
            f"The groups of {printable(about['model'])} and what flows between them; "
            "a bar shows each group's share of the parameters."
        )
        ET.SubElement(self.root, "style").text = _STYLE
        ET.SubElement(self.root, "rect", {"class": "page", "width": "100%", "height": "100%", "rx": "8"})
        self._text(title, (_MARGIN, _MARGIN + 14), 16, "name")
        self._text(totals, (_MARGIN, _MARGIN + 34), 12, "dim")
        if note:
            self._text(note, (_MARGIN, height - 14), 11, "dim")

    def add_arrow(
        self, attributes: Mapping[str, Any], names: tuple[str, str], route: Sequence[Point]
    ) -> None:
        """A curve with a tip; its tooltip says what flows."""
        is_flow = attributes["kind"] == "flow"
        points = [(x + self.shift[0], y + self.shift[1]) for x, y in route]
        tip = points[-1]
        back = _towards(tip, points[-2], 7.0)
        path = f"M{_pair(points[0])}C" + " ".join(map(_pair, [*points[1:-1], back]))
        group = ET.SubElement(self.root, "g")
        ET.SubElement(group, "title").text = _arrow_tooltip(attributes, names)
        style = "read" if not is_flow else "round" if attributes["recurs"] else "flow"
        ET.SubElement(group, "path", {"class": style, "d": path})
        dx, dy = (tip[0] - back[0]) / 2, (tip[1] - back[1]) / 2
        corners = [tip, (back[0] - dy, back[1] + dx), (back[0] + dy, back[1] - dx)]
        ET.SubElement(
            group,
            "polygon",
            {"class": "tip" if is_flow else "read-tip", "points": " ".join(map(_pair, corners))},
        )

    def add_box(self, box: Box, center: Point) -> None:
        """A stack of cards where a box stands for several groups."""
        width, height = box.size
        x = center[0] - (width + box.cards * _CARD) / 2 + self.shift[0]
        y = center[1] - (height + box.cards * _CARD) / 2 + self.shift[1]
        group = ET.SubElement(self.root, "g")
        ET.SubElement(group, "title").text = box.tooltip
        for card in range(box.cards, -1, -1):
            self._rect(group, box.style, (x + card * _CARD, y + card * _CARD), box.size, 7.0)
        below = y + INSET
        for line in box.lines:
            below += line.size + LEADING
            self._line(group, line, (x, below - LEADING), width, is_middle=box.style != "group")
        if box.share is not None:
            inner = width - 2 * PADDING
            self._rect(group, "track", (x + PADDING, below + 3.0), (inner, 5.0), 2.5)
            if box.share:
                self._rect(group, "bar", (x + PADDING, below + 3.0), (max(inner * box.share, 2.0), 5.0), 2.5)

    def text(self) -> str:
        """The file."""
        ET.indent(self.root, " ")
        return ET.tostring(self.root, encoding="unicode") + "\n"

    def _line(self, parent: ET.Element, line: Line, corner: Point, width: float, *, is_middle: bool) -> None:
        x, y = corner
        if is_middle:
            self._text(line.text, (x + width / 2, y), line.size, line.style, parent, "middle")
        else:
            self._text(line.text, (x + PADDING, y), line.size, line.style, parent)
        if line.right:
            self._text(line.right, (x + width - PADDING, y), line.size - 1, "dim", parent, "end")

    def _text(
        self,
        text: str,
        place: Point,
        size: float,
        style: str,
        parent: ET.Element | None = None,
        anchor: str = "start",
    ) -> None:
        attributes = {
            "class": style,
            "x": f"{place[0]:.1f}",
            "y": f"{place[1]:.1f}",
            "font-size": f"{size:g}",
        }
        if anchor != "start":
            attributes["text-anchor"] = anchor
        ET.SubElement(self.root if parent is None else parent, "text", attributes).text = text

    def _rect(self, parent: ET.Element, style: str, corner: Point, size: Size, radius: float) -> None:
        ET.SubElement(
            parent,
            "rect",
            {
                "class": style,
                "x": f"{corner[0]:.1f}",
                "y": f"{corner[1]:.1f}",
                "width": f"{size[0]:.1f}",
                "height": f"{size[1]:.1f}",
                "rx": f"{radius:g}",
            },
        )


def _totals(about: Mapping[str, Any]) -> str:
    parameters = about["parameters"]
    grouped = f"by {about['by']}" + (f", depth {about['depth']}" if about["depth"] is not None else "")
    return (
        f"{format_many(parameters, 'parameter')} ({short_count(parameters)}), "
        f"{format_bytes(about['bytes'])} in {format_many(about['tensors'], 'tensor')} · {grouped}"
    )


def _note(about: Mapping[str, Any], *, has_reads: bool) -> str:
    notes = ["dashed: what another group owns"] if has_reads else []
    if about["left_out"]:
        noun = "group" if about["left_out"] == 1 else "groups"
        notes.append(f"left out: {about['left_out']} {noun} without parameters")
    return " · ".join(notes)


def _arrow_tooltip(attributes: Mapping[str, Any], names: tuple[str, str]) -> str:
    values = [shorten(printable(value), 60) for value in attributes["values"][:_NAMED_VALUES]]
    more = attributes["count"] - len(values)
    if more:
        values.append(f"and {format_count(more)} more")
    source, target = (shorten(printable(name), 60) for name in names)
    says = {
        "flow": f"from {source} to {target}",
        "read": f"{target} reads of {source}",
        "copy": f"{target} stores again of {source}",
    }
    return "\n".join([f"{says[attributes['kind']]}:", *values])


def _towards(start: Point, end: Point, distance: float) -> Point:
    length = math.dist(start, end) or 1.0
    part = distance / length
    return start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part


def _pair(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"
