"""A collapsed graph -> PNG: the SVG's own shapes, drawn by matplotlib, for viewers that cannot show an SVG."""

from __future__ import annotations

import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from analyzer.errors import MissingExtraError
from analyzer.formats.graph.svg import LIGHT, render_svg

if TYPE_CHECKING:
    import networkx as nx

_DOTS = 144
"""Dots per inch; a unit of the drawing is 1/72 inch."""
_SPACE = "{http://www.w3.org/2000/svg}"
_SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "text.parse_math": False,  # a $ in a name is a dollar
}
_ANCHORS = {"middle": "center", "end": "right"}
_DASHES = re.compile(r"[\d.]+")


def render_png(graph: nx.MultiDiGraph[Any]) -> bytes:
    """Draw the graph in the light theme.

    Raises:
        UsageError: there are more boxes than anybody could read.
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("report", "matplotlib", "a picture in PNG") from error
    root = ET.fromstring(render_svg(graph))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph")  # no font has every script
        figure = Figure(figsize=(width / 72, height / 72), dpi=_DOTS)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        axes.axis("off")
        for order, element in enumerate(_shapes(root)):
            _draw(axes, element, order, (width, height))
        stream = io.BytesIO()
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _shapes(root: ET.Element) -> Iterator[ET.Element]:
    """Yield the visible elements, lowest first."""
    for element in root.iter():
        if element.tag.removeprefix(_SPACE) in ("rect", "path", "polygon", "text"):
            yield element


def _draw(axes: Any, element: ET.Element, order: int, size: tuple[float, float]) -> None:
    from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon
    from matplotlib.path import Path

    style = {**LIGHT.get(element.attrib.get("class", ""), {}), **element.attrib}
    look = _look(style) | {"zorder": order}
    at = {name: float(style[name]) for name in ("x", "y") if name in style}
    match element.tag.removeprefix(_SPACE):
        case "rect":
            width = size[0] if style["width"] == "100%" else float(style["width"])
            height = size[1] if style["height"] == "100%" else float(style["height"])
            radius = min(float(style.get("rx", 0)), width / 2, height / 2)
            corner = at.get("x", 0.0), at.get("y", 0.0)
            shape = f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0"
            axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=shape, mutation_aspect=1, **look))
        case "path":
            points, codes = _curves(style["d"])
            axes.add_patch(PathPatch(Path(points, codes), **look))
        case "polygon":
            corners = [tuple(map(float, pair.split(","))) for pair in style["points"].split()]
            axes.add_patch(Polygon(corners, **look))
        case "text":
            axes.text(
                at["x"],
                at["y"],
                element.text or "",
                fontsize=float(style["font-size"]),
                color=style.get("fill", "#000000"),
                fontweight="bold" if style.get("font-weight") == "600" else "normal",
                ha=_ANCHORS.get(style.get("text-anchor", ""), "left"),
                va="baseline",
                zorder=order,
            )


def _look(style: Mapping[str, str]) -> dict[str, Any]:
    """Return fill, line and dashes in the terms of matplotlib."""
    fill, line = style.get("fill", "#000000"), style.get("stroke", "none")
    look: dict[str, Any] = {
        "facecolor": fill,
        "edgecolor": line,
        "linewidth": float(style.get("stroke-width", 1)) if line != "none" else 0.0,
    }
    dashes = [float(number) for number in _DASHES.findall(style.get("stroke-dasharray", ""))]
    return look | ({"linestyle": (0, tuple(dashes))} if dashes else {})


def _curves(path: str) -> tuple[list[tuple[float, float]], list[int]]:
    """Return the points of `M x,y C x,y x,y x,y ...`, and matplotlib's code of each."""
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path)]
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    return points, [1, *[4] * (len(points) - 1)]
