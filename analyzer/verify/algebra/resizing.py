"""Interpolation along one axis as a matrix or a selection of elements, by ONNX's names (Resize, opset 19)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from analyzer.records import Frozen
from analyzer.verify.algebra.values import Algebra, Array, UnknownError, Value, shape_of

_CUBIC = -0.75
"""Coefficient of Keys' kernel in PyTorch."""


class Interpolation(Frozen):
    """Settings of an interpolation."""

    mode: str
    """`nearest`, `linear` or `cubic`."""
    coordinates: str
    """Transformation of an element's position in the result to one in the input."""
    nearest: str = ""
    """Rounding of a position to the nearest element."""
    cubic: float = _CUBIC
    """Coefficient of Keys' kernel."""


def resize(
    a: Algebra, value: Value, axis: int, count: int, scale: float, interpolation: Interpolation
) -> Value:
    """Resize an axis to `count` elements, scaled by `scale`.

    Raises:
        UnknownError: the interpolation is not supported.
    """
    size = shape_of(value)[axis]
    single, places = (
        _coordinates(size, count, scale, interpolation.coordinates, dtype)
        for dtype in (np.float32, np.float64)
    )
    if interpolation.mode == "nearest":  # onnxruntime computes positions in single precision
        near, exact = (_nearest(each, size, interpolation.nearest) for each in (single, places))
        if scale == count / size and not np.array_equal(near, exact):
            raise UnknownError("Resize to positions that rounding decides")
        return a.take(value, near, axis)
    shares = _shares(places, size, interpolation)  # (count, size)
    order = [at for at in range(len(shape_of(value))) if at != axis] + [axis]
    made = a.matmul(a.permute(value, order), a.dense(shares.T) if hasattr(value, "kind") else shares.T)
    return a.permute(made, list(np.argsort(order)))


def _coordinates(size: int, count: int, factor: float, mode: str, dtype: type[np.floating[Any]]) -> Array:
    at: Array = np.arange(count, dtype=dtype)
    scale = dtype(factor)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and count > 1):
        return np.asarray((at + 0.5) / scale - 0.5)
    if mode == "pytorch_half_pixel":
        return at * 0
    if mode == "asymmetric":
        return np.asarray(at / scale)
    if mode == "align_corners":
        return np.asarray(at * (size - 1) / (count - 1) if count > 1 else at * 0)
    raise UnknownError(f"Resize with coordinate_transformation_mode {mode}")


def _nearest(places: Array, size: int, mode: str) -> Array:
    ways: dict[str, Callable[[Array], Any]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda each: np.ceil(each - 0.5),
        "round_prefer_ceil": lambda each: np.floor(each + 0.5),
    }
    if mode not in ways:
        raise UnknownError(f"Resize with nearest_mode {mode}")
    found: Array = np.clip(ways[mode](places), 0, size - 1).astype(np.int64)
    return found


def _shares(places: Array, size: int, interpolation: Interpolation) -> Array:
    """Return the share of each input element in each output element; positions beyond an end take the last element."""
    first = np.floor(places)
    rest = places - first
    if interpolation.mode == "linear":
        parts = {0: 1 - rest, 1: rest}
    elif interpolation.mode == "cubic":
        parts = {step: _keys(np.abs(rest - step), interpolation.cubic) for step in (-1, 0, 1, 2)}
    else:
        raise UnknownError(f"Resize in mode {interpolation.mode}")
    found = np.zeros((places.size, size))
    rows = np.arange(places.size)
    for step, share in parts.items():
        np.add.at(found, (rows, np.clip(first + step, 0, size - 1).astype(np.int64)), share)
    return found.astype(np.float32)


def _keys(far: Array, alpha: float) -> Array:
    """Evaluate the cubic kernel of Keys 1981."""
    near = ((alpha + 2) * far - (alpha + 3)) * far * far + 1
    outer = ((alpha * far - 5 * alpha) * far + 8 * alpha) * far - 4 * alpha
    return np.where(far <= 1, near, np.where(far < 2, outer, 0.0))
