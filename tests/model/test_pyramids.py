"""Cells of a detector's grids, and their strides, as a static export stores them; and numbers that are almost these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from models import manifest_of, noise, parameter, reconcile, text_model

from analyzer.model.pyramids import are_levels, is_grid, is_pyramid
from analyzer.model.tables import is_known_table

Reals = npt.NDArray[np.float64]
Sides = Sequence[tuple[int, int]]

PYRAMIDS: dict[str, Sides] = {
    "square": ((8, 8), (4, 4), (2, 2)),
    "640 pixels": ((80, 80), (40, 40), (20, 20)),
    "four levels of 1280 pixels": ((160, 160), (80, 80), (40, 40), (20, 20)),
    "wide": ((60, 80), (30, 40), (15, 20)),
    "two levels": ((2, 4), (1, 2)),
    "the coarsest first": ((20, 20), (40, 40), (80, 80)),
}


def strides_of(sides: Sides) -> list[float]:
    found = [8.0 * 2**level for level in range(len(sides))]
    return found if sides[0] > sides[-1] else found[::-1]


def cells(sides: Sides, start: float = 0.5, steps: Sequence[float] | None = None) -> Reals:
    """Return the places (2, cells) of all grids, x first."""
    grids = []
    for (height, width), step in zip(sides, steps or [1.0] * len(sides), strict=True):
        y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
        grids.append((np.stack([x.ravel(), y.ravel()]) + start) * step)
    return np.concatenate(grids, axis=1)


def strides(sides: Sides) -> Reals:
    return np.repeat(strides_of(sides), [height * width for height, width in sides])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("in_pixels", [False, True], ids=["cells", "pixels"])
@pytest.mark.parametrize("start", [0.0, 0.5])
@pytest.mark.parametrize("name", PYRAMIDS)
def test_cells_of_grids_are_a_known_table(
    name: str, start: float, in_pixels: bool, dtype: type[np.generic]
) -> None:
    sides = PYRAMIDS[name]
    places = cells(sides, start, strides_of(sides) if in_pixels else None).astype(dtype)

    assert is_known_table(places[None])
    assert is_known_table(np.ascontiguousarray(places.T))


@pytest.mark.parametrize("name", PYRAMIDS)
def test_strides_of_cells_are_a_known_table(name: str) -> None:
    found = strides(PYRAMIDS[name]).astype(np.float32)

    assert is_known_table(found[None]) or found.size < 8


CHANGES: dict[str, Callable[[Reals], Reals]] = {
    "x and y exchanged": lambda places: places[::-1],
    "backwards": lambda places: places[:, ::-1],
    "moved": lambda places: places + 1,
    "scaled": lambda places: places * 1.01,
    "negative": lambda places: -places,
    "rotated": lambda places: np.roll(places, 1, axis=1),
    "one cell moved": lambda places: places + np.eye(*places.shape) * 0.01,
    "last cell moved": lambda places: places + np.eye(*places.shape)[::-1, ::-1],
    "last cell left out": lambda places: places[:, :-1],
    "one grid": lambda places: places[:, : np.flatnonzero(np.diff(places[1]) < 0)[0] + 1],
    "other order of grids": lambda places: np.concatenate([places[:, -20:], places[:, :-20]], axis=1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("start", [0.0, 0.5])
def test_almost_the_cells_of_grids_are_no_pyramid(change: str, start: float) -> None:
    places = cells(((16, 12), (8, 6), (4, 3)), start)

    assert is_pyramid(places)
    assert not is_pyramid(CHANGES[change](places))


def grid(height: int, width: int, start: float = 0.5, step: float = 1.0) -> Reals:
    """Return the places (height, width, 2) of the cells of one grid, x first."""
    return cells(((height, width),), start, [step]).T.reshape(height, width, 2)


GRIDS = {
    "cells": grid(4, 6),
    "from half a cell before": grid(8, 8, -0.5),
    "pixels": grid(5, 4, -0.5, 16.0),
    "middles from 0 to 1": grid(4, 8) / [8, 4],
    "middles from -1 to 1": grid(6, 3) / [3, 6] * 2 - 1,
    "ends from -1 to 1": grid(5, 9, 0.0) / [8, 4] * 2 - 1,
    "starts from 0 to 1": grid(5, 9, 0.0) / [9, 5],
}


@pytest.mark.parametrize("name", GRIDS)
def test_the_cells_of_one_grid_are_a_known_table(name: str) -> None:
    places = GRIDS[name].astype(np.float32)

    assert is_known_table(places)
    assert is_known_table(places[None, None].repeat(3, axis=1))
    assert is_known_table(places.reshape(-1, 2))
    assert is_known_table(np.ascontiguousarray(places.reshape(-1, 2).T))


CHANGED_GRIDS: dict[str, Callable[[Reals], Reals]] = {
    "x and y exchanged": lambda places: places[..., ::-1],
    "backwards": lambda places: places[::-1],
    "mirrored": lambda places: places[:, ::-1],
    "moved": lambda places: places + 0.25,
    "scaled": lambda places: places * 1.01,
    "steps that differ": lambda places: places * np.array([1, 2]),
    "starts that differ": lambda places: places + np.array([0, 0.5]),
    "negative": lambda places: -places,
    "rotated": lambda places: np.roll(places, 1, axis=0),
    "one cell moved": lambda places: places + np.eye(*places.shape[:2])[..., None] * 0.01,
}


@pytest.mark.parametrize("change", CHANGED_GRIDS)
@pytest.mark.parametrize("name", GRIDS)
def test_almost_the_cells_of_one_grid_are_none(name: str, change: str) -> None:
    places = GRIDS[name]

    assert is_grid(places)
    assert not is_grid(CHANGED_GRIDS[change](places))


@pytest.mark.parametrize(
    ("values", "is_known"),
    [
        ([0.485, 0.456, 0.406], True),
        ([0.229, 0.224, 0.225], True),
        ([0.26862954, 0.26130258, 0.27577711], True),
        ([123.675, 116.28, 103.53], True),
        ([0.406, 0.456, 0.485], False),
        ([0.485, 0.456, 0.4061], False),
        ([0.97, 0.912, 0.812], False),
    ],
)
def test_published_statistics_of_images_are_known(values: Sequence[float], is_known: bool) -> None:
    assert is_known_table(np.array(values, np.float32).reshape(3, 1, 1)) is is_known


@pytest.mark.parametrize(
    ("values", "is_known"),
    [
        ([8.0, 16.0, 32.0], True),
        ([4.0, 8.0, 16.0, 32.0], True),
        ([8.0, 16.0], False),
        ([8.0, 16.0, 64.0], False),
        ([32.0, 16.0, 8.0], False),
        ([9.0, 18.0, 36.0], False),
        ([1.0, 2.0, 4.0], False),
    ],
)
def test_the_strides_of_levels_are_three_or_more_powers_of_two(
    values: Sequence[float], is_known: bool
) -> None:
    assert are_levels(np.array(values)) is is_known


def test_the_matrix_from_centers_and_sizes_to_corners_is_known() -> None:
    matrix = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [-0.5, 0, 0.5, 0], [0, -0.5, 0, 0.5]], np.float32)

    assert is_known_table(matrix)
    assert is_known_table(np.ascontiguousarray(matrix.T))
    assert not is_known_table(matrix[::-1])
    assert not is_known_table(matrix * 2)


@pytest.mark.parametrize(
    "values",
    [
        np.repeat([8.0, 16.0, 32.0], [64, 16, 5]),
        np.repeat([8.0, 16.0, 64.0], [64, 16, 4]),
        np.repeat([8.0, 32.0, 16.0], [64, 16, 4]),
        np.repeat([9.0, 18.0, 36.0], [64, 16, 4]),
        np.repeat([8.0], [64]),
        -np.repeat([8.0, 16.0, 32.0], [64, 16, 4]),
    ],
    ids=["count", "step", "order", "no power of two", "one level", "negative"],
)
def test_almost_strides_are_no_pyramid(values: Reals) -> None:
    assert not is_pyramid(values)


def test_weights_are_no_pyramid() -> None:
    random = np.random.default_rng(0)

    assert not any(is_pyramid(random.standard_normal(shape)) for shape in ((2, 84), (84, 2), (84,)))
    assert not is_pyramid(np.zeros((2, 84)))
    assert not is_pyramid(np.ones(84) * 8)


@pytest.mark.parametrize(
    ("sides", "image", "is_moved", "is_balanced"),
    [
        (((8, 8), (4, 4), (2, 2)), "64,64", False, True),
        (((8, 8), (4, 4), (2, 2)), "64,64", True, False),
        (((8, 8), (4, 4), (2, 2)), "128,128", False, False),
        (((8, 8), (4, 4), (2, 2)), "64,n", False, False),
        (((7, 13), (4, 7), (2, 4)), "50,104", False, True),
        (((7, 13), (4, 7), (2, 4)), "64,104", False, False),
    ],
)
def test_a_detector_s_grids_balance_against_a_state_dict(
    tmp_path: Path, sides: Sides, image: str, is_moved: bool, is_balanced: bool
) -> None:
    count = sum(height * width for height, width in sides)
    weight, places = noise(count, count), cells(sides)[None].astype(np.float32)
    stored = {
        "head.weight": weight,
        "grid": np.roll(places, 1, axis=2) if is_moved else places,
        "strides": strides(sides)[None].astype(np.float32),
    }
    nodes = 'a = MatMul(x, "head.weight") b = Sub(grid, a) y = Mul(b, strides)'
    shape = f"float[1,2,{count}]"
    proto = text_model(f"g (float[1,3,{image}] i, {shape} x) => ({shape} y) {{ {nodes} }}", stored)

    result = reconcile(tmp_path, proto, manifest_of(parameter("head.weight", weight)))

    assert result.balanced == is_balanced
