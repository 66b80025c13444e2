"""A tall drawing -> the same drawing in columns side by side, so that it fits a screen."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

from analyzer.formats.graph.layers import Arrow
from analyzer.formats.graph.layout import Layout, Point, Size
from analyzer.records import Frozen

TALLEST = 860.0
"""Height of a drawing that fits a screen, without its title."""

_WIDEST = 2000.0
_GAP = 64.0
"""Space between two columns, where the arrows between them pass."""
_BEND = 22.0
"""Length of an arrow outside a box before it turns."""


def fold_columns(layout: Layout, sizes: Sequence[Size], arrows: Sequence[Arrow]) -> Layout:
    """Cut the drawing between boxes, and put the lower parts beside it, unless it fits or would be too wide."""
    width, height = layout.size
    count = min(math.ceil(height / TALLEST), math.floor((_WIDEST + _GAP) / (width + _GAP)))
    cuts = _cuts(layout, sizes, count) if height > TALLEST else []
    if not cuts:
        return layout
    columns = _Columns(cuts, width)
    centers = tuple(map(columns.move, layout.centers))
    routes = []
    for arrow, route in zip(arrows, layout.routes, strict=True):
        bands = {columns.band(point[1]) for point in route}
        if len(bands) == 1:
            routes.append(tuple(columns.move(point) for point in route))
        else:
            routes.append(columns.reroute(route, centers, sizes, arrow))
    heights = [end - start for start, end in zip((0.0, *cuts), (*cuts, height), strict=True)]
    across = len(heights) * (width + _GAP) - _GAP
    return Layout((across, max(heights) + _BEND), centers, tuple(routes))


def _cuts(layout: Layout, sizes: Sequence[Size], count: int) -> list[float]:
    """Return heights between boxes, near those that would make the columns equal."""
    spans = sorted(
        (y - size[1] / 2, y + size[1] / 2) for (_, y), size in zip(layout.centers, sizes, strict=True)
    )
    free: list[float] = []
    lowest = spans[0][1] if spans else 0.0
    for top, bottom in spans[1:]:
        if top > lowest:
            free.append((lowest + top) / 2)
        lowest = max(lowest, bottom)
    found: list[float] = []
    for number in range(1, count):
        wanted = layout.size[1] * number / count
        nearest = min((y for y in free if y not in found), key=lambda y: abs(y - wanted), default=None)
        if nearest is not None:
            found.append(nearest)
    return sorted(found)


class _Columns(Frozen):
    cuts: Sequence[float]
    width: float

    def band(self, y: float) -> int:
        return bisect.bisect_right(self.cuts, y)

    def move(self, point: Point) -> Point:
        band = self.band(point[1])
        return point[0] + band * (self.width + _GAP), point[1] - (
            self.cuts[band - 1] if band else 0.0
        ) + _BEND

    def reroute(
        self, route: Sequence[Point], centers: Sequence[Point], sizes: Sequence[Size], arrow: Arrow
    ) -> tuple[Point, ...]:
        """Route an arrow to another column: out below its source, through the gap between, in above its target."""
        source, target = centers[arrow.source], centers[arrow.target]
        start = source[0], source[1] + sizes[arrow.source][1] / 2
        end = target[0], target[1] - sizes[arrow.target][1] / 2
        column = self.band(route[0][1])
        gap = (column + 1) * (self.width + _GAP) - _GAP / 2
        low, high = start[1] + _BEND, end[1] - _BEND
        return (
            start,
            *((start[0], low), (gap, low), (gap, low - _BEND)),
            *((gap, (low + high) / 2), (gap, (low + high) / 2), (gap, high + _BEND)),
            *((gap, high), (end[0], high), end),
        )
