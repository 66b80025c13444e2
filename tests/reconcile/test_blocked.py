"""Weights of blocked convolutions get PyTorch's order back, whole, or nothing is said of them."""

from __future__ import annotations

import numpy as np
import pytest

from analyzer.reconcile.tiles import Tiles


def blocked(weight: np.ndarray, block: int, *, is_deep: bool) -> np.ndarray:
    """As MLAS writes it, one element after the other: MlasReorderFilterOIHWBiBo, or -OIHWBo."""
    rows, columns, height, width = weight.shape
    deep = block if is_deep else 1
    found = [
        weight[o + bo, i + bi, h, w] if o + bo < rows else 0.0
        for o in range(0, rows, block)
        for i in range(0, columns, deep)
        for h in range(height)
        for w in range(width)
        for bi in range(deep)
        for bo in range(block)
    ]
    return np.array(found, np.float32).reshape(-(-rows // block) * block, columns, height, width)


@pytest.mark.parametrize(("columns", "is_deep"), [(16, True), (3, False), (1, False)])
def test_a_weight_comes_back_from_its_tiles(columns: int, is_deep: bool) -> None:
    weight = np.random.default_rng(0).standard_normal((20, columns, 3, 2)).astype(np.float32)
    stored = blocked(weight, 8, is_deep=is_deep)

    tiles = Tiles(weight.shape, stored.shape, 8, is_deep)

    assert tiles.fills_with_zeros(stored)
    assert np.array_equal(tiles.restore(stored), weight)
    every = np.arange(weight.size)
    assert np.array_equal(stored.reshape(-1)[tiles.positions(every)], weight.reshape(-1))


def test_what_stands_behind_the_last_channel_has_to_be_zeros() -> None:
    weight = np.ones((20, 16, 1, 1), np.float32)
    stored = blocked(weight, 8, is_deep=True)
    stored.reshape(-1)[-1] = 1e-3

    assert not Tiles(weight.shape, stored.shape, 8, is_deep=True).fills_with_zeros(stored)
    assert not Tiles((20,), (24,), 8, is_deep=False).fills_with_zeros(np.arange(24.0))
