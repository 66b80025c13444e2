"""Indices of distances in a grid, made as the models' own sources make them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from analyzer.model.distances import are_distances
from analyzer.model.tables import is_known_table


def levit(side: int, stride: int = 1):
    """Return LeViT's and TinyViT's index: distances without a sign, numbered as they first occur."""
    numbers: dict[tuple[int, int], int] = {}
    queries = product(range(0, side, stride), repeat=2)
    index = [
        [
            numbers.setdefault((abs(y - v), abs(x - u)), len(numbers))
            for v, u in product(range(side), repeat=2)
        ]
        for y, x in queries
    ]
    return np.array(index)


def plain(side: int):
    """Return EfficientFormer's index: rows times the side plus columns, without a sign."""
    y, x = np.divmod(np.arange(side * side), side)
    return np.abs(y[:, None] - y) * side + np.abs(x[:, None] - x)


def swin(rows: int, columns: int):
    """Return Swin's `relative_position_index`."""
    y, x = np.divmod(np.arange(rows * columns), columns)
    return (y[:, None] - y + rows - 1) * (2 * columns - 1) + x[:, None] - x + columns - 1


def beit(rows: int, columns: int):
    """Return BEiT's index, whose first position is the class token."""
    count = (2 * rows - 1) * (2 * columns - 1)
    index = np.full((rows * columns + 1,) * 2, count + 1)
    index[0], index[0, 0] = count, count + 2
    index[1:, 1:] = swin(rows, columns)
    return index


def by_axis(rows: int, columns: int):
    """Return LambdaNet's indices: one of the rows and one of the columns."""
    y, x = np.divmod(np.arange(rows * columns), columns)
    return np.stack([y - y[:, None] + rows - 1, x - x[:, None] + columns - 1])


def convit(side: int):
    """Return ConViT's `rel_indices`: columns, rows, and the sum of their squares."""
    y, x = np.divmod(np.arange(side * side), side)
    columns, rows = x - x[:, None], y - y[:, None]
    return np.stack([columns, rows, columns**2 + rows**2], axis=-1)


def clipped(queries: int, keys: int, most: int):
    """Return SpeechT5's and DeBERTa's index: distances up to a largest one."""
    return np.clip(np.arange(keys) - np.arange(queries)[:, None], -most, most) + most


def with_registers(side: int, count: int, are_last: bool = False):
    """Return Swin's index for registers before or after the positions, as vit-pytorch's MaxViT pads it."""
    sides = (0, count) if are_last else (count, 0)
    return np.pad(swin(side, side), (sides, sides), constant_values=(2 * side - 1) ** 2)


INDICES = {
    "levit": levit(7),
    "levit, every other query": levit(7, 2),
    "levit of an even side": levit(14, 2),
    "levit of a small grid": levit(2),
    "efficientformer": plain(7),
    "swin": swin(7, 7),
    "swin of another height": swin(3, 5),
    "swin, flattened": swin(8, 8).reshape(-1),
    "beit": beit(14, 14),
    "beit of another height": beit(2, 3),
    "registers": with_registers(7, 4),
    "registers after the positions": with_registers(3, 2, are_last=True),
    "lambda": by_axis(6, 6),
    "convit": convit(14),
    "clipped": clipped(20, 20, 6),
    "clipped on one side": clipped(5, 30, 9),
    "without a sign": np.abs(clipped(9, 12, 20) - 20),
    "clipped, without a sign": np.abs(clipped(12, 12, 5) - 5),
}


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("dtype", ["i8", "i4", "f4"])
def test_distances_are_a_table(name, dtype):
    assert is_known_table(INDICES[name].astype(dtype))


@pytest.mark.parametrize("name", INDICES)
def test_one_other_number_is_no_table(name):
    index = INDICES[name]
    for place in (1, index.size // 2, index.size - 2):
        changed = index.copy()
        changed.reshape(-1)[place] += 1
        assert not are_distances(changed)


@pytest.mark.parametrize("name", [name for name in INDICES if name != "levit of a small grid"])
def test_numbers_in_an_order_of_their_own_are_no_table(name):
    """A permutation of all distances holds as many numbers of its own as there are distances."""
    index = INDICES[name]
    order = np.random.default_rng(1).permutation(int(index.max()) + 1)

    assert not are_distances(order[index])


@pytest.mark.parametrize("shape", [(1,), (5,), (0, 4), (4, 0), (3, 3), (2, 2), (0,), (5, 0, 4), (16, 7)])
def test_other_shapes_are_no_distances(shape):
    assert not are_distances(np.zeros(shape, np.int64))


def test_random_integers_are_no_distances():
    random = np.random.default_rng(0)

    for size, high in ((16, 4), (36, 20), (49, 49)):
        assert not are_distances(random.integers(0, high, (size, size)))
