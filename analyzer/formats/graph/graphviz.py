"""Sizes and arrows of boxes -> Layout by Graphviz, if it is installed; it gets sizes and numbers, and no names."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict, deque
from collections.abc import Sequence

from analyzer.formats.graph.layers import Arrow
from analyzer.formats.graph.layout import Layout, Point, Size

_INCH = 72.0
_SECONDS = 30.0


def lay_out_by_graphviz(sizes: Sequence[Size], arrows: Sequence[Arrow]) -> Layout | None:
    """Return Graphviz's layout; None if it is not installed, fails, or takes too long."""
    program = shutil.which("dot")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-Tplain"],
            input=_describe(sizes, arrows),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
        return _parse(done.stdout, len(sizes), arrows)
    except (OSError, subprocess.SubprocessError, ValueError, LookupError):
        return None


def _describe(sizes: Sequence[Size], arrows: Sequence[Arrow]) -> str:
    boxes = (
        f"{number} [width={width / _INCH:.4f}, height={height / _INCH:.4f}];"
        for number, (width, height) in enumerate(sizes)
    )
    lines = (
        f"{arrow.source} -> {arrow.target} [constraint={'false' if arrow.is_soft else 'true'}];"
        for arrow in arrows
    )
    settings = (
        'graph [nodesep=0.4, ranksep=0.55]; node [shape=box, fixedsize=true, label=""]; edge [dir=none];'
    )
    return "\n".join(["digraph {", settings, *boxes, *lines, "}"])


def _parse(text: str, count: int, arrows: Sequence[Arrow]) -> Layout:
    """Read Graphviz's `plain` format: inches, from the bottom left.

    Raises:
        ValueError, LookupError: the text has another format.
    """
    size: Size = (0.0, 0.0)
    centers: dict[int, Point] = {}
    routes: dict[tuple[int, int], deque[tuple[Point, ...]]] = defaultdict(deque)
    for line in text.splitlines():
        kind, *words = line.split() or [""]
        if kind == "graph":
            size = float(words[1]) * _INCH, float(words[2]) * _INCH
        elif kind == "node":
            centers[int(words[0])] = _point(words[1], words[2], size)
        elif kind == "edge":
            numbers = words[3 : 3 + 2 * int(words[2])]
            points = (_point(x, y, size) for x, y in zip(numbers[::2], numbers[1::2], strict=True))
            routes[int(words[0]), int(words[1])].append(tuple(points))
    return Layout(
        size,
        tuple(centers[number] for number in range(count)),
        tuple(routes[arrow.source, arrow.target].popleft() for arrow in arrows),
    )


def _point(x: str, y: str, size: Size) -> Point:
    return float(x) * _INCH, size[1] - float(y) * _INCH
