"""Stored tensor + `Piece` -> the part of a PyTorch tensor that it holds."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from analyzer.model.content import Array
from analyzer.reconciliation.layouts import AxisLayout
from analyzer.reconciliation.lines import Piece


def viewed(piece: Piece, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape in which a decoded tensor of this shape is cut; None if it cannot be reshaped so."""
    if piece.viewed is None:
        return tuple(dim for dim in shape if dim != 1) if piece.taken is not None else shape
    numel, known = math.prod(shape), math.prod(dim for dim in piece.viewed if dim >= 0)
    if known == 0 or numel % known or (-1 not in piece.viewed and numel != known):
        return None
    return tuple(numel // known if dim < 0 else dim for dim in piece.viewed)


def cut(piece: Piece, array: Array) -> Array:
    """Return a piece's part of a decoded tensor, in PyTorch's order of axes, as a view where possible."""
    if piece.tiles is not None:
        array = piece.tiles.restore(array)
    shape = viewed(piece, array.shape)
    if shape is not None:
        array = array.reshape(shape)
    if piece.taken is not None:
        axis, start, stop = piece.taken
        array = array[(slice(None),) * axis + (slice(start, stop),)]
    return AxisLayout(piece.shape, piece.axes, array.shape).restore(array)


Numbers: TypeAlias = npt.NDArray[np.int32]


def number(piece: Piece, shape: tuple[int, ...]) -> Numbers:
    """Return the row-major number in PyTorch's part of each element of a tensor of this shape; -1 for others."""
    numel = math.prod(shape)
    numbers = np.full(numel, -1, np.int32)
    part = cut(piece, np.arange(numel, dtype=np.int32).reshape(shape))
    numbers[part.reshape(-1)] = np.arange(part.size, dtype=np.int32)
    return numbers
