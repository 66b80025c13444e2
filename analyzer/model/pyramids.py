"""Numbers -> whether they are the cells of one grid, or of a detector's grids: their places, or the levels' strides.

A detector without anchors predicts a box for each cell of several grids, each half as wide and high as the one before.
A static export stores the places of the cells, of all grids one after another, and the stride of each cell's grid (Tian
et al. 2019, arXiv:1904.01355, section 3.1; Ge et al. 2021, arXiv:2107.08430; `make_anchors` of Ultralytics). Or it
stores each grid by itself (YOLOv5, YOLOv7), or one grid over the whole image (Segment Anything, arXiv:2304.02643).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["are_cells", "are_levels", "is_grid", "is_pyramid", "strides_of"]

Reals = npt.NDArray[np.float64]

_LEAST = 8
"""Least number of cells: few numbers look like grids by accident."""
_MOST_LEVELS = 8
_STRIDES = frozenset(2.0**exponent for exponent in range(1, 9))
_EQUAL = 1e-5
"""Tolerance of a place, as a part of a cell."""


class _Grid(NamedTuple):
    width: int
    height: int
    step: float
    """Distance between two cells: 1, or the stride in pixels."""
    start: float
    """Place of the first cell, as a part of a step."""


def is_pyramid(values: Reals) -> bool:
    """Whether numbers are the places of the cells of several grids, or the strides of these cells.

    Places are rows or columns of x and y; in each grid x runs first, and both begin at 0 or at half a cell.
    """
    if values.ndim == 1:
        return _are_strides(values)
    if values.ndim != 2 or 2 not in values.shape or values.size < 2 * _LEAST:
        return False
    sides = (values, values.T) if values.shape == (2, 2) else (values if len(values) == 2 else values.T,)
    return any(_are_levels(list(_grids(side))) for side in sides)


def is_grid(values: Reals) -> bool:
    """Whether numbers are the places of the cells of one grid: x and y on an axis of two, and x runs first.

    Both begin in the same way (`are_cells`), and other axes only repeat the grid.
    """
    if values.ndim < 2 or values.size < 2 * _LEAST or not bool(np.isfinite(values).all()):
        return False
    return any(
        bool(_spacings(x) & _spacings(y))
        for axis, count in enumerate(values.shape)
        if count == 2
        for x, y in _sides(np.moveaxis(values, axis, 0))
    )


def _sides(places: Reals) -> Iterator[tuple[Reals, Reals]]:
    """Yield x along a row and y along a column, if places (2, ...) are a grid."""
    if places.ndim == 2:
        width = int(np.argmax(places[1] != places[1, 0]))
        if width < 2 or places.shape[1] % width:
            return
        places = places.reshape(2, -1, width)
    lines, axes = [], []
    for side in places:
        varying = [axis for axis in range(side.ndim) if bool((side != side.take([0], axis)).any())]
        if len(varying) != 1:
            return
        axes += varying
        lines.append(np.moveaxis(side, varying[0], 0).reshape(side.shape[varying[0]], -1)[:, 0])
    if axes[0] > axes[1]:
        yield lines[0], lines[1]


def are_cells(line: Reals) -> bool:
    """Whether numbers are the places of a row of cells.

    They are whole steps from 0, or from half a step before or after it, and a step is 1, or the stride in pixels. Or
    they divide 0 to 1, or -1 to 1, and are the middles, the starts or the ends of the cells.
    """
    return bool(_spacings(line))


def _spacings(line: Reals) -> set[tuple[float, float]]:
    """Return how a row of cells may begin: its step, or the length that it divides, and its start in steps."""
    count, step = len(line), float(line[-1] - line[0]) / max(1, len(line) - 1)
    even = line[0] + step * np.arange(count)
    if count < 2 or step <= 0 or not bool((np.abs(line - even) <= _EQUAL * step).all()):
        return set()
    first = float(line[0]) / step
    found = {
        (step, start)
        for start in (0.0, 0.5, -0.5)
        if (step == 1 or step in _STRIDES) and abs(first - start) <= _EQUAL
    }
    for low in (0.0, -1.0):
        for cells, start in ((count, 0.0), (count, 0.5), (count - 1, 0.0)):
            is_divided = abs(step * cells - (1 - low)) <= _EQUAL * step
            if is_divided and abs(float(line[0]) - low - start * step) <= _EQUAL * step:
                found.add((low, start if cells == count else 1.0))
    return found


def _grids(places: Reals) -> Iterator[_Grid | None]:
    """Yield the grids one after another; None where the places (2, cells) are those of no further grid."""
    at, count, before = 0, places.shape[1], None
    for _ in range(_MOST_LEVELS):
        if at == count:
            return
        grid = _first_grid(places[:, at:], before)
        yield grid
        if grid is None:
            return
        at, before = at + grid.width * grid.height, grid
    if at < count:
        yield None


def _first_grid(places: Reals, before: _Grid | None) -> _Grid | None:
    x, y = places
    is_row = y == y[0]
    width = len(x) if is_row.all() else int(np.argmin(is_row))
    if width > 1:
        step = float(x[1] - x[0])
    elif before is not None:  # one column of cells has no distance of its own
        step = before.step * (2 if x[0] > before.start * before.step else 1)
    else:
        return None
    if step != 1 and step not in _STRIDES:
        return None
    width = (
        int(np.argmax(np.append(x[1:width] <= x[: width - 1], True))) + 1
    )  # x begins again at the next row
    rows, height = (y - y[0]) / step, 1
    while (height + 1) * width <= len(x) and abs(rows[height * width] - height) <= _EQUAL:
        height += 1
    cells = width * height
    expected = np.arange(cells)
    across, down = (x[:cells] - x[0]) / step, rows[:cells]
    is_grid = (np.abs(across - expected % width) <= _EQUAL).all() and (
        np.abs(down - expected // width) <= _EQUAL
    ).all()
    start = float(x[0]) / step
    is_started = abs(x[0] - y[0]) <= _EQUAL * step and min(abs(start), abs(start - 0.5)) <= _EQUAL
    return _Grid(width, height, step, round(start, 3)) if is_grid and is_started else None


def _are_levels(grids: list[_Grid | None]) -> bool:
    """Whether each grid has half the cells of its neighbor on each side, and the same cells or twice as large ones."""
    found = [grid for grid in grids if grid is not None]
    if len(found) < max(2, len(grids)) or len({grid.start for grid in found}) > 1:
        return False
    ordered = found if found[0].width >= found[-1].width else found[::-1]
    steps = {small.step / large.step for large, small in itertools.pairwise(ordered)}
    return (
        len(steps) == 1
        and steps <= {1.0, 2.0}
        and all(
            small.width == -(-large.width // 2) and small.height == -(-large.height // 2)
            for large, small in itertools.pairwise(ordered)
        )
    )


def are_levels(values: Reals) -> bool:
    """Whether numbers are the strides of a detector's levels, each once: at least three, each twice the one before."""
    return 3 <= values.size <= _MOST_LEVELS and (
        bool((values[1:] == 2 * values[:-1]).all()) and set(values.tolist()) <= _STRIDES
    )


def strides_of(values: Reals) -> tuple[tuple[float, int], ...]:
    """Return the strides of the grids and their numbers of cells, if numbers are strides of levels; else nothing.

    Each stride is a power of two, and twice that of the next finer grid.
    """
    if values.ndim != 1 or values.size < _LEAST or float(values[0]) not in _STRIDES:
        return ()
    starts = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1])
    if not 2 <= len(starts) <= _MOST_LEVELS:
        return ()
    counts, strides = np.diff(np.append(starts, values.size)), values[starts]
    finest_first = strides if strides[0] < strides[1] else strides[::-1]
    is_doubled = bool((finest_first[1:] == 2 * finest_first[:-1]).all()) and set(strides.tolist()) <= _STRIDES
    return tuple(zip(strides.tolist(), counts.tolist(), strict=True)) if is_doubled else ()


def _are_strides(values: Reals) -> bool:
    """Whether numbers are strides, each repeated for the cells of its grid: half the sides of the finer one."""
    levels = sorted(strides_of(values))
    if not levels or levels[0][1] > _MOST_CELLS:
        return False
    finest = levels[0][1]
    heights = (height for height in range(1, math.isqrt(finest) + 1) if finest % height == 0)
    return any(
        all(
            -(-height // 2**at) * -(-(finest // height) // 2**at) == count
            for at, (_, count) in enumerate(levels)
        )
        for height in heights
    )


_MOST_CELLS = 1 << 24
"""Most cells of a grid."""
