"""A collapsed graph -> the boxes of its drawing, each with its text and size."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.records import Frozen, replace
from analyzer.text import (
    format_bytes,
    format_count,
    format_many,
    format_share,
    printable,
    short_count,
    shorten,
)

if TYPE_CHECKING:
    import networkx as nx

_LONGEST = 44
"""Largest number of characters of a name; the tooltip has all of it."""

PADDING, INSET, LEADING, BAR = 12.0, 7.0, 5.0, 13.0
"""Space beside the lines of a box, above and below them, between them, and for the bar."""

_NARROWEST = 150.0


class Label(Frozen):
    """One line of text, with another text at its right end."""

    text: str
    size: float
    style: str
    """Class of the drawing's style sheet."""
    right: str = ""

    @property
    def width(self) -> float:
        gap = 14.0 if self.right else 0.0
        return text_width(self.text, self.size, self.style) + gap + text_width(self.right, self.size - 1)


class Box(Frozen):
    """Appearance of a vertex."""

    style: str
    """Class of the drawing's style sheet: `group`, `empty` or `end`."""
    lines: tuple[Label, ...]
    tooltip: str
    share: float | None = None
    """Fraction of all parameters; None draws no bar."""
    count: int = 1
    """Number of groups that it stands for."""
    roles: tuple[tuple[str, float], ...] = ()
    """Purposes of its learned tensors, each with its fraction of them, largest first."""
    is_marked: bool = False
    """Whether the box stands out."""

    @property
    def cards(self) -> int:
        """Number of cards of a stack that are seen behind the box."""
        return min(self.count, 3) - 1

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the first card."""
        least = _NARROWEST if self.style == "group" else 0.0
        height = sum(line.size + LEADING for line in self.lines) + (BAR if self.share is not None else 0.0)
        return max(least, *(line.width for line in self.lines)) + 2 * PADDING, height + 2 * INSET


def make_box(graph: nx.MultiDiGraph[Any], vertex: Any) -> Box:
    """Return the box of a vertex."""
    box = _make_plain(graph, vertex)
    mark = graph.nodes[vertex].get("mark")
    if mark is None:
        return box
    where, reason = map(printable, mark)
    texts = ("differs from here on", _tail(where), *_wrap(reason))
    return replace(
        box,
        lines=(*box.lines, *(Label(text, 11, "mark") for text in texts)),
        tooltip=f"{box.tooltip}\ndiffers from {where} on: {reason}",
        is_marked=True,
    )


_MOST_LINES = 3
"""Number of lines that say why a box is marked; the tooltip has the whole text."""


def _tail(path: str) -> str:
    """Return a path, without its first parts if it is long.

    >>> _tail("encoder.layer.1"), _tail("bert.encoder.layer.1.intermediate.intermediate_act_fn")
    ('encoder.layer.1', '…layer.1.intermediate.intermediate_act_fn')
    """
    rest = path
    while len(rest) > _LONGEST and "." in rest:
        rest = rest.partition(".")[2]
    return shorten(rest if rest == path else f"…{rest}", _LONGEST)


def _wrap(text: str) -> list[str]:
    """Return a sentence in lines as long as a name may be."""
    lines = textwrap.wrap(text, _LONGEST)
    rest = " ".join(lines[_MOST_LINES - 1 :])
    return [*lines[: _MOST_LINES - 1], *([shorten(rest, _LONGEST)] if rest else [])]


def _make_plain(graph: nx.MultiDiGraph[Any], vertex: Any) -> Box:
    attributes, whole = graph.nodes[vertex], graph.graph["parameters"]
    name = printable(attributes["name"])
    title = shorten(name, _LONGEST)
    if attributes["kind"] != "group":
        count = len(attributes["members"])
        noun = attributes["kind"] if count == 1 else f"{format_count(count)} {attributes['kind']}s"
        return Box("end", (Label(title, 12, "name"),), f"{noun} {name}", count=count)
    if not attributes["learned_bytes"] and not attributes["parameters"]:
        text = _why_empty(graph, vertex)
        return Box("empty", (Label(title, 12, "name"), Label(text, 11, "dim")), f"{name}: {text}")
    parameters, count = attributes["parameters"], len(attributes["members"])
    exact = format_many(parameters, "parameter")
    each = exact if count == 1 else f"{count} x {format_many(parameters // count, 'parameter')}"
    lines = [
        Label(title, 13, "name"),
        Label(each, 12, "text", _short_share(parameters, whole)),
        Label(_details(attributes, count), 11, "dim"),
    ]
    drawn = attributes.get("drawn") or {}
    if operators := _operators(drawn.get("operators", ())):
        lines.append(Label(operators, 11, "dim"))
    tooltip = [name, exact, format_share(parameters, whole), format_bytes(attributes["bytes"])]
    tooltip += [f"{format_many(attributes['tensors'], 'tensor')}, {format_many(attributes['nodes'], 'node')}"]
    share = parameters / whole if whole else 0.0
    learned_sizes = [(role, size) for role, size in drawn.get("roles", ()) if size]
    total = sum(size for _, size in learned_sizes) or 1
    roles = tuple((role, size / total) for role, size in learned_sizes) if parameters else ()
    return Box("group", tuple(lines), "\n".join(tooltip), share, count, roles)


_OPERATORS = 3
"""Number of operators that a box names."""


def _operators(counted: Sequence[tuple[str, int]]) -> str:
    counts = [f"{format_count(count)} {printable(name)}" for name, count in counted[:_OPERATORS]]
    return shorten(", ".join(counts) + (", ..." if len(counted) > _OPERATORS else ""), _LONGEST + 8)


def _why_empty(graph: nx.MultiDiGraph[Any], vertex: Any) -> str:
    """Return a text on the weights that a group without its own computes with."""
    owners = [source for source, _, kind in graph.in_edges(vertex, keys=True) if kind == "read"]
    if len(owners) == 1:
        return f"weights of {shorten(printable(graph.nodes[owners[0]]['name']), _LONGEST)}"
    if owners:
        return f"weights of {len(owners)} groups"
    return f"no parameters, nodes: {format_count(graph.nodes[vertex]['nodes'])}"


def _details(attributes: Mapping[str, Any], count: int) -> str:
    parts = [] if count == 1 else [f"= {format_count(attributes['parameters'])}"]
    parts += [short_count(attributes["parameters"]), format_bytes(attributes["bytes"])]
    if attributes["applications"] > 1:
        parts.append(f"used {attributes['applications']} times")
    return " · ".join(parts)


def _short_share(part: int, whole: int) -> str:
    """Return a share with one decimal, as precise as the bar beside it."""
    percent = 100 * part / whole if whole else 0.0
    return "" if not part else "<0.1 %" if percent < 0.1 else f"{percent:.1f} %"


def text_width(text: str, size: float, style: str = "") -> float:
    """Estimate the width of a text in any sans-serif font, rather too large than too small."""
    widths = sum(map(_character_width, text))
    return widths * size * (1.16 if style in ("name", "mark") else 1.0)


def _character_width(character: str) -> float:
    if character in "iljtfrI.,:;'|!()[]-/· ":
        return 0.36
    if character in "mwMW@%":
        return 0.92
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    return 0.7 if character.isupper() else 0.6
