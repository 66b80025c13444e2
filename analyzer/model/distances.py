"""Integers -> whether they number the distances between positions of a grid, or of a line.

Attention over a picture adds a learned bias for the distance between two positions, which an index (queries, keys)
picks: Liu et al. 2021 (arXiv:2103.14030, section 3.2, Swin: rows and columns with a sign), Bao et al. 2021
(arXiv:2106.08254, BEiT: with a class token), Darcet et al. 2023 (arXiv:2309.16588: with registers), Graham et al. 2021
(arXiv:2104.01136, section 3.4, LeViT: without a sign, perhaps with fewer queries), Wu et al. 2022 (arXiv:2207.10666,
TinyViT), d'Ascoli et al. 2021 (arXiv:2103.10697, ConViT: distances and their squares). The sizes of the grid describe
such an index. On a line, distances are often clipped: Shaw et al. 2018 (arXiv:1803.02155, section 3.2), He et al. 2020
(arXiv:2006.03654, equation 3, DeBERTa).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

_MOST = 1 << 22
"""Most elements of an index: 2,048 positions."""

_LEAST = 4
"""Least number of keys: a grid of 2 x 2."""

_MOST_PARTS = 4
"""Most indices in one tensor."""

_STRIDES = (1, 2, 3, 4)
"""Steps from query to query, if queries are fewer than keys."""


def are_distances(values: Integers) -> bool:
    """Whether integers (queries, keys), perhaps flattened, number the distances between positions of one grid.

    Rows and columns count with a sign or without. Numbers follow the order in which distances first occur, or are a
    multiple of the rows plus a multiple of the columns plus a constant. A class token or registers before or after the
    positions have three numbers of their own: to the positions, from them, and to themselves. In three axes, each part
    along the first or the last one is such an index, as one for the rows and one for the columns; or the squares of the
    distances. On a line, numbers count up or down by ones with the distance, with a sign or without, perhaps only up to
    a largest or a smallest one.

    >>> row, column = np.divmod(np.arange(6), 3)
    >>> rows, columns = row[:, None] - row, column[:, None] - column
    >>> are_distances((rows + 1) * 5 + columns + 2), are_distances(abs(rows) * 4 + columns**2)
    (True, False)
    """
    if values.ndim == 3:
        axis = 0 if len(values) <= _MOST_PARTS else 2
        parts = np.moveaxis(values, axis, 0)
        return len(parts) <= _MOST_PARTS and all(map(are_distances, parts))
    if values.ndim == 1 and values.size <= _MOST:
        side = math.isqrt(values.size)
        values = values.reshape(side, side) if side * side == values.size else values
    if values.ndim != 2 or min(values.shape) < 1 or values.shape[1] < _LEAST or values.size > _MOST:
        return False
    if _are_of_line(values) or _are_of_grid(values):
        return True
    return any(map(_are_beside_tokens, (values, values[::-1, ::-1])))


def _are_beside_tokens(values: Integers) -> bool:
    """Whether all but the first few positions are those of a grid, and the first have three numbers of their own."""
    count = int((values[-1] == values[-1, 0]).argmin())  # numbers of different distances follow
    tokens, rest = values[:count], values[count:]
    parts = (tokens[:, :count], tokens[:, count:], rest[:, :count])
    is_beside = count > 0 and rest.size > 0 and all(bool((part == part.flat[0]).all()) for part in parts)
    return is_beside and rest.shape[1] - count >= _LEAST and _are_of_grid(rest[:, count:])


def _are_of_line(values: Integers) -> bool:
    rows, columns = values.shape
    by_distance = np.concatenate([values[::-1, 0], values[0, 1:]])  # (rows + columns - 1,)
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    if not np.array_equal(by_distance[distance + rows - 1], values):
        return False
    before, after = by_distance[rows - 1 :: -1], by_distance[rows - 1 :]
    shared = min(before.size, after.size)
    is_unsigned = np.array_equal(before[:shared], after[:shared])
    return _counts_by_ones(by_distance) or (is_unsigned and _counts_by_ones(max(before, after, key=len)))


def _counts_by_ones(numbers: Integers) -> bool:
    """Whether numbers count up or down by ones, except perhaps the first and the last ones, which stay the same."""
    steps = np.diff(numbers)
    counted = np.flatnonzero(steps)
    if not counted.size or counted[-1] - counted[0] + 1 != counted.size or abs(steps[counted[0]]) != 1:
        return False
    return bool((steps[counted] == steps[counted[0]]).all())


def _are_of_grid(values: Integers) -> bool:
    queries, keys = values.shape
    for rows, columns in _grids(keys):
        for stride in _STRIDES:
            if math.ceil(rows / stride) * math.ceil(columns / stride) == queries:
                distances = _distances(rows, columns, stride)
                signed = (np.abs(distances), distances)
                if any(_number(values[:1], each[:, :1]) and _number(values, each) for each in signed):
                    return True
    return False


def _grids(positions: int) -> Iterator[tuple[int, int]]:
    """Yield rows and columns of each grid with so many positions and at least two rows and columns."""
    for rows in range(2, positions // 2 + 1):
        if positions % rows == 0:
            yield rows, positions // rows


def _distances(rows: int, columns: int, stride: int) -> Integers:
    """Return the distances from each query to each key, (2, queries, keys): rows, columns."""
    keys = np.stack(np.divmod(np.arange(rows * columns), columns))  # (2, keys)
    is_query = (keys % stride == 0).all(axis=0)
    distances: Integers = keys[:, is_query, None] - keys[:, None, :]
    return distances


def _number(values: Integers, distances: Integers) -> bool:
    """Whether values (queries, keys) number the distances (2, queries, keys), or are their squares."""
    if np.array_equal(values, (distances**2).sum(axis=0)):
        return True
    span = int(distances[1].max() - distances[1].min()) + 1
    codes = (distances[0] * span + distances[1]).reshape(-1)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    numbers = values.reshape(-1)[first]  # one for each distance
    if not np.array_equal(numbers[inverse.reshape(-1)], values.reshape(-1)):
        return False
    if np.array_equal(numbers, np.argsort(np.argsort(first))):
        return True
    places = distances.reshape(2, -1)[:, first].astype(np.float64)  # (2, distances)
    terms = np.vstack([places, np.ones(places.shape[1])]).T
    found = np.rint(np.linalg.lstsq(terms, numbers.astype(np.float64), rcond=None)[0])
    return np.array_equal(terms @ found, numbers)
