"""A collapsed graph -> SVG: a picture that needs no program, script, font or network."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.errors import UsageError
from analyzer.formats.graph.boxes import INSET, LEADING, PADDING, Box, Label, make_box, text_width
from analyzer.formats.graph.columns import fold_columns
from analyzer.formats.graph.graphviz import lay_out_by_graphviz
from analyzer.formats.graph.layers import Arrow
from analyzer.formats.graph.layout import Layout, Point, Size, lay_out
from analyzer.text import format_bytes, format_count, format_many, printable, short_count, shorten

if TYPE_CHECKING:
    import networkx as nx

MOST_BOXES = 400

_MARGIN, _HEADER, _FOOTER = 24.0, 58.0, 22.0
_NAMED_VALUES = 5
"""Number of values that the tooltip of an arrow names."""

_SWATCH = 32.0
"""Space beside the name of a role in the legend: its colour, and the gap to the next."""
_LONGEST_SHAPE, _SHAPE = 36, 10.0
"""Largest number of characters of a shape beside an arrow, and their size."""

_CARD = 4.0
"""Distance by which a card of a stack shows below the next."""

ROLES: Mapping[str, str] = {
    "embedding": "#0072B2",
    "attention": "#D55E00",
    "feed-forward": "#009E73",
    "norm": "#CC79A7",
    "convolution": "#56B4E9",
    "linear": "#E69F00",
    "recurrent": "#9A7D0A",
    "other": "#8C959F",
}
"""Purposes of learned tensors, each with its colour of Okabe and Ito, which colour-blind people can tell apart."""

LIGHT: Mapping[str, Mapping[str, str]] = {
    "page": {"fill": "#ffffff"},
    "name": {"fill": "#1f2328", "font-weight": "600"},
    "text": {"fill": "#1f2328"},
    "dim": {"fill": "#59636e"},
    "group": {"fill": "#f6f8fa", "stroke": "#c4ccd4"},
    "empty": {"fill": "#ffffff", "stroke": "#c4ccd4", "stroke-dasharray": "3 3"},
    "end": {"fill": "#ddf4ff", "stroke": "#54aeff"},
    "marked": {"fill": "#fff5f4", "stroke": "#cf222e", "stroke-width": "2.5"},
    "mark": {"fill": "#a40e26", "font-weight": "600"},
    "track": {"fill": "#dfe4e9"},
    "halo": {"fill": "#ffffff"},
    "flow": {"fill": "none", "stroke": "#8c959f", "stroke-width": "1.3"},
    "round": {"fill": "none", "stroke": "#8c959f", "stroke-width": "1.3", "stroke-dasharray": "2 3"},
    "read": {"fill": "none", "stroke": "#bc4c00", "stroke-width": "1.3", "stroke-dasharray": "6 4"},
    "tip": {"fill": "#8c959f"},
    "read-tip": {"fill": "#bc4c00"},
    **{f"role-{role}": {"fill": color} for role, color in ROLES.items()},
}
"""Style of each class; PNG, which has no other theme, takes it from here too."""

_DARK: Mapping[str, Mapping[str, str]] = {
    "page": {"fill": "#0d1117"},
    "name": {"fill": "#f0f6fc"},
    "text": {"fill": "#f0f6fc"},
    "dim": {"fill": "#9198a1"},
    "group": {"fill": "#161b22", "stroke": "#3d444d"},
    "empty": {"fill": "#0d1117", "stroke": "#3d444d"},
    "end": {"fill": "#10243e", "stroke": "#1f6feb"},
    "marked": {"fill": "#2c1618", "stroke": "#ff7b72"},
    "mark": {"fill": "#ff9f97"},
    "track": {"fill": "#2f353d"},
    "halo": {"fill": "#0d1117"},
    "flow": {"stroke": "#7d8590"},
    "round": {"stroke": "#7d8590"},
    "read": {"stroke": "#f0883e"},
    "tip": {"fill": "#7d8590"},
    "read-tip": {"fill": "#f0883e"},
}


def _rules(looks: Mapping[str, Mapping[str, str]]) -> str:
    return "".join(
        f".{name} {{ {' '.join(f'{key}: {value};' for key, value in look.items())} }}\n"
        for name, look in looks.items()
    )


_STYLE = (
    '\nsvg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }\n'
    f"{_rules(LIGHT)}@media (prefers-color-scheme: dark) {{\n{_rules(_DARK)}}}\n"
)

Area = tuple[float, float, float, float]
"""Left, top, width, height."""

Layouts = Sequence[Callable[[Sequence[Size], Sequence[Arrow]], Layout | None]]


def render_svg(graph: nx.MultiDiGraph[Any], layouts: Layouts = (lay_out_by_graphviz, lay_out)) -> str:
    """Draw the graph with the first layout that succeeds.

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
    unfolded = next(found for lay in layouts if (found := lay(sizes, arrows)) is not None)
    layout = fold_columns(unfolded, sizes, arrows)
    used = {role for box in boxes for role, _ in box.roles}
    has_reads = any(edge["kind"] != "flow" for _, _, edge in edges)
    drawing = _Drawing(
        graph.graph, layout.size, [role for role in ROLES if role in used], has_reads=has_reads
    )
    for (source, target, attributes), route in zip(edges, layout.routes, strict=True):
        names = graph.nodes[source]["name"], graph.nodes[target]["name"]
        drawing.add_arrow(attributes, names, route)
    for box, center in zip(boxes, layout.centers, strict=True):
        drawing.add_box(box, center)
    for (_, _, attributes), route in zip(edges, layout.routes, strict=True):
        drawing.add_shape(attributes, route)
    return drawing.text()


class _Drawing:
    """Picture under construction."""

    def __init__(
        self, about: Mapping[str, Any], size: Size, roles: Sequence[str], *, has_reads: bool
    ) -> None:
        title, totals = shorten(printable(about["model"]), 60), _totals(about)
        note = _note(about, has_reads=has_reads)
        legend = sum(text_width(role, 11) + _SWATCH for role in roles)
        texts = text_width(title, 16, "name"), text_width(totals, 12), text_width(note, 11), legend
        width = max(size[0], *texts) + 2 * _MARGIN
        height = _HEADER + size[1] + _FOOTER * (bool(note) + bool(roles)) + 2 * _MARGIN
        self.shift = (width - size[0]) / 2, _HEADER + _MARGIN
        self.width = width
        self.taken: list[Area] = []
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
            f"The groups of {printable(about['model'])} and the values between them; "
            "a bar shows each group's share of the parameters."
        )
        ET.SubElement(self.root, "style").text = _STYLE
        ET.SubElement(self.root, "rect", {"class": "page", "width": "100%", "height": "100%", "rx": "8"})
        self._text(title, (_MARGIN, _MARGIN + 14), 16, "name")
        self._text(totals, (_MARGIN, _MARGIN + 34), 12, "dim")
        if roles:
            self._legend(roles, height - 14 - (_FOOTER if note else 0.0))
        if note:
            self._text(note, (_MARGIN, height - 14), 11, "dim")

    def _legend(self, roles: Sequence[str], y: float) -> None:
        """Draw the legend of colours."""
        x = _MARGIN
        for role in roles:
            self._rect(self.root, f"role-{role}", (x, y - 9), (10.0, 10.0), 2.0)
            self._text(role, (x + 15, y), 11, "dim")
            x += text_width(role, 11) + _SWATCH

    def add_arrow(
        self, attributes: Mapping[str, Any], names: tuple[str, str], route: Sequence[Point]
    ) -> None:
        """Draw a curve with a tip; its tooltip names the values that flow."""
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
        """Draw a box, as a stack of cards if it stands for several groups."""
        width, height = box.size
        x = center[0] - (width + box.cards * _CARD) / 2 + self.shift[0]
        y = center[1] - (height + box.cards * _CARD) / 2 + self.shift[1]
        self.taken.append((x, y, width + box.cards * _CARD, height + box.cards * _CARD))
        group = ET.SubElement(self.root, "g")
        ET.SubElement(group, "title").text = box.tooltip
        for card in range(box.cards, -1, -1):
            style = "marked" if box.is_marked and not card else box.style
            self._rect(group, style, (x + card * _CARD, y + card * _CARD), box.size, 7.0)
        below = y + INSET
        for line in box.lines:
            below += line.size + LEADING
            self._line(group, line, (x, below - LEADING), width, is_middle=box.style != "group")
        if box.share is not None:
            inner = width - 2 * PADDING
            self._rect(group, "track", (x + PADDING, below + 3.0), (inner, 5.0), 2.5)
            left = x + PADDING
            for role, share in box.roles:
                long = max(inner * box.share * share, 1.5)
                self._rect(group, f"role-{role}", (left, below + 3.0), (long, 5.0), 1.5)
                left += long
        if box.roles:
            self._rect(group, f"role-{box.roles[0][0]}", (x, y + 6.0), (3.5, height - 12.0), 1.5)

    def add_shape(self, attributes: Mapping[str, Any], route: Sequence[Point]) -> None:
        """Write the shape of the values beside an arrow, if there is room; the tooltip has it too."""
        shape = shorten(printable(attributes.get("drawn") or ""), _LONGEST_SHAPE)
        width = text_width(shape, _SHAPE)
        for x, y in _beside(route, width) if shape else ():
            area = (x + self.shift[0] - 2, y + self.shift[1] - 10, width + 4, 14.0)
            if not self._is_free(area):
                continue
            self.taken.append(area)
            self._rect(self.root, "halo", area[:2], area[2:], 2.0)
            self._text(shape, (area[0] + 2, area[1] + 10), _SHAPE, "dim")
            return

    def _is_free(self, area: Area) -> bool:
        x, y, width, height = area
        if x < 2 or x + width > self.width - 2:
            return False
        return not any(
            x < left + wide and left < x + width and y < top + high and top < y + height
            for left, top, wide, high in self.taken
        )

    def text(self) -> str:
        """Return the text of the file."""
        ET.indent(self.root, " ")
        return ET.tostring(self.root, encoding="unicode") + "\n"

    def _line(self, parent: ET.Element, line: Label, corner: Point, width: float, *, is_middle: bool) -> None:
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


def _beside(route: Sequence[Point], width: float) -> Iterator[Point]:
    """Yield places for a text of this width: right or left of the arrow, from the middle of its curves outwards."""
    curves = [route[at : at + 4] for at in range(0, len(route) - 3, 3)]
    half = (len(curves) - 1) / 2
    for part in (0.5, 0.3, 0.7):
        for number in sorted(range(len(curves)), key=lambda number: abs(number - half)):
            x, y = _on_curve(curves[number], part)
            yield x + 6, y + 4
            yield x - 6 - width, y + 4


def _on_curve(curve: Sequence[Point], part: float) -> Point:
    """Return the point at a fraction of a Bezier curve."""
    rest = 1 - part
    weights = rest**3, 3 * rest**2 * part, 3 * rest * part**2, part**3
    return (
        sum(x * weight for (x, _), weight in zip(curve, weights, strict=True)),
        sum(y * weight for (_, y), weight in zip(curve, weights, strict=True)),
    )


def _totals(about: Mapping[str, Any]) -> str:
    parameters = about["parameters"]
    grouped = f"by {about['by']}" + (f", depth {about['depth']}" if about["depth"] is not None else "")
    return (
        f"{format_many(parameters, 'parameter')} ({short_count(parameters)}), "
        f"{format_bytes(about['bytes'])} in {format_many(about['tensors'], 'tensor')} · {grouped}"
    )


def _note(about: Mapping[str, Any], *, has_reads: bool) -> str:
    notes = ["dashed: weights of another group"] if has_reads else []
    if about["left_out"]:
        noun = "group" if about["left_out"] == 1 else "groups"
        notes.append(f"left out: {about['left_out']} {noun} without parameters")
    return " · ".join(notes)


def _arrow_tooltip(attributes: Mapping[str, Any], names: tuple[str, str]) -> str:
    values = [shorten(printable(value), 60) for value in attributes["values"][:_NAMED_VALUES]]
    more = attributes["count"] - len(values)
    if more:
        values.append(f"and {format_count(more)} more")
    if shape := attributes.get("drawn"):
        values.append(printable(shape))
    source, target = (shorten(printable(name), 60) for name in names)
    headings = {
        "flow": f"from {source} to {target}",
        "read": f"{target} reads of {source}",
        "copy": f"{target} stores again of {source}",
    }
    return "\n".join([f"{headings[attributes['kind']]}:", *values])


def _towards(start: Point, end: Point, distance: float) -> Point:
    length = math.dist(start, end) or 1.0
    part = distance / length
    return start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part


def _pair(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"
