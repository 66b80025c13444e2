"""Values of a state dict's tensor, and what stands beside it -> whether it is state that nobody learns, of any name.

Learned numbers are no table: where few numbers say all of a tensor, a module computed it and registered it as a buffer.
What PyTorch's own layers learn may still look like one before it was trained: a gain of ones, a bias of zeros, the
identity. These stay parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from analyzer.content import Array, is_constant_filled
from analyzer.tables import is_known_table

__all__ = ["is_known_state", "is_power_iteration"]

Shapes = Mapping[str, tuple[int, ...]]

_LEARNED = re.compile(r"(?:weight|bias)(?:_[a-z]+_l\d+(?:_reverse)?)?")
"""Leaves of the tensors that PyTorch's own layers learn, recurrent ones too."""

_FEWEST = 3
"""Different numbers that whole numbers take to be no vector of ones and zeros."""

_LEAST_TABLE = 9
"""Elements from which numbers may be known for a table of waves or of one ratio."""

_LEAST_PLANE = 3
"""Rows and columns from which a triangle or a band is no chance."""

_GRAINS = tuple(2.0**exponent for exponent in range(6, -7, -1))
"""What coordinates are multiples of: a stride of pixels, down to a pixel over the largest stride, 64."""

_LEAST_BITS = 16
"""Bits that are empty in numbers of bfloat16, by chance in one tensor of 65,536."""

_MOST = 1 << 24
"""Elements up to which a tensor is looked at."""

_LARGEST = 1 << 20
"""Whole numbers that coordinates reach at most."""


def is_known_state(name: str, array: Array | None) -> bool:
    """Whether a tensor's values say that it is a mask, a count, a grid, boxes, or a table of waves.

    A `weight` or `bias` of PyTorch's layers is learned, but for a mask of two axes or more that bears such a name.

    >>> is_known_state("blocks.0.tril", np.tril(np.ones((4, 4), np.float32)))
    True
    >>> (
    ...     is_known_state("norm.gain", np.ones(8, np.float32)),
    ...     is_known_state("mix", np.eye(4, dtype=np.float32)),
    ... )
    (False, False)
    """
    leaf = name.rpartition(".")[2]
    is_learned = _LEARNED.fullmatch(leaf) is not None
    if array is None or array.dtype.kind not in "fV" or not 1 < array.size <= _MOST:
        return False
    if (is_learned and (leaf != "bias" or array.ndim < 2)) or is_constant_filled(array):
        return False
    values = np.squeeze(array.astype(np.float64))
    if is_learned or _is_identity(values):
        return is_learned and _is_triangle(values)
    return (
        _is_triangle(values)
        or _are_whole(values)
        or _are_boxes(values)
        or (array.size >= _LEAST_TABLE and not _is_binary(values) and is_known_table(array))
    )


def _is_binary(values: npt.NDArray[np.float64]) -> bool:
    return bool(np.isin(values, (0.0, 1.0, -1.0)).all())


def _is_identity(values: npt.NDArray[np.float64]) -> bool:
    """Ones on the diagonal of the last two axes and zeros beside: what an untrained mixing matrix is, and no mask."""
    if values.ndim < 2:
        return False
    eye = np.eye(*values.shape[-2:])
    return bool((values == eye).all())


def _is_triangle(values: npt.NDArray[np.float64]) -> bool:
    """Whether each plane has two numbers, the one on and below some diagonal, the other above, or the reverse."""
    if values.ndim < 2 or min(values.shape[-2:]) < _LEAST_PLANE:
        return False
    planes = values.reshape(-1, *values.shape[-2:])
    plane = planes[0]
    if not bool((planes == plane).all()) or np.unique(plane).size != 2:
        return False
    rows, columns = plane.shape
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    by_distance = np.concatenate([plane[::-1, 0], plane[0, 1:]])  # (rows + columns - 1,)
    is_one_step = int((by_distance[1:] != by_distance[:-1]).sum()) == 1
    return is_one_step and bool((by_distance[distance + rows - 1] == plane).all())


def _are_whole(values: npt.NDArray[np.float64]) -> bool:
    """Whether all are multiples of one power of two, so many and so coarse that rounding to half a type is not why."""
    known = values[values > -_LARGEST] if values.min() <= -_LARGEST else values  # a mask's least number
    different = np.unique(known)
    if not bool(np.isfinite(different).all()) or different.size < _FEWEST:
        return False
    sizes = np.unique(np.abs(different[different != 0]))
    if not sizes.size or float(sizes[-1]) > _LARGEST:
        return False
    for grain in _GRAINS:
        if bool((np.remainder(sizes, grain) == 0).all()):
            step = np.exp2(np.floor(np.log2(sizes)) - 7)  # between two numbers of bfloat16
            return float(np.maximum(np.log2(grain / step), 0).sum()) >= _LEAST_BITS
    return False


def _are_boxes(values: npt.NDArray[np.float64]) -> bool:
    """Whether rows of four are boxes around a point, or many boxes of a few sizes: anchors of a detector."""
    if values.ndim < 2 or values.shape[-1] != 4 or not bool(np.isfinite(values).all()):
        return False
    boxes = values.reshape(-1, 4)
    first, last = boxes[:, :2], boxes[:, 2:]
    if len(boxes) >= 2 and bool((first == -last).all()):
        return True
    sizes = last - first
    scale = float(np.abs(boxes).max())
    if len(boxes) < 32 or not bool((sizes > 0).all()):
        return False
    return len(np.unique(np.rint(sizes / scale * 1e4), axis=0)) <= len(boxes) // 8


_VECTORS = (
    (re.compile(r"(.*?)([^.]+)_([uv])"), r"\1\2_orig"),
    (re.compile(r"(.*?)parametrizations\.([^.]+)\.\d+\._([uv])"), r"\1parametrizations.\2.original"),
)
"""Names of the vectors of a power iteration in torch's old and new spelling, and of the matrix that they are of."""

_NEAR_ONE = 1e-2
"""How far the length of such a vector may be from 1: it is normalized, and perhaps rounded to half a type."""


def is_power_iteration(name: str, array: Array | None, shapes: Shapes) -> bool:
    """Whether a vector is one of spectral norm's (Miyato et al. 2018, algorithm 1): of length 1, beside its matrix."""
    for pattern, matrix in _VECTORS:
        found = pattern.fullmatch(name)
        shape = shapes.get(found.expand(matrix)) if found else None
        if found is None or shape is None or len(shape) < 2:
            continue
        mine = shapes.get(name, ())
        numel = int(np.prod(shape))
        is_left = found[3] == "u"
        fits = len(mine) == 1 and any(
            mine[0] == (side if is_left else numel // side) for side in shape if side
        )
        return fits and (array is None or _is_unit(array))
    return False


def _is_unit(array: Array) -> bool:
    return array.dtype.kind in "fV" and abs(float(np.linalg.norm(array.astype(np.float64))) - 1) <= _NEAR_ONE
