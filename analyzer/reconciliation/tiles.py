"""The tiles in which onnxruntime stores a convolution's weight -> PyTorch's order of elements, and back to places.

The layouts are those of MLAS (onnxruntime/core/mlas/lib/reorder.cpp, MlasReorderFilterOIHWBiBo and -OIHWBo): output
channels in blocks of 8 or 16, as wide as the machine's vectors, the last filled up with zeros, and the place within the
block last; input channels as well, but where there are fewer than a block of them, or one for each group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzer.content import Array

__all__ = ["Tiles"]

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tiles:
    """A PyTorch tensor in tiles, or a vector with zeros behind it."""

    shape: tuple[int, ...]
    """PyTorch's."""
    stored: tuple[int, ...]
    """The same axes, filled up to whole blocks."""
    block: int
    """Output channels of a tile."""
    is_deep: bool
    """Whether a tile has as many input channels besides."""

    def restore(self, array: Array) -> Array:
        """A stored array in PyTorch's order, a view where it can be; without what fills it up."""
        return self.whole(array)[tuple(slice(dim) for dim in self.shape)]

    def whole(self, array: Array) -> Array:
        """The same, with what fills it up."""
        if len(self.stored) == 1:
            return array.reshape(self.stored)
        rows, columns, *kernel = self.stored
        deep = self.block if self.is_deep else 1
        tiled = array.reshape(rows // self.block, columns // deep, *kernel, deep, self.block)
        last = tiled.ndim - 1
        order = (0, last, 1, last - 1, *range(2, last - 1))
        return tiled.transpose(order).reshape(self.stored)

    def fills_with_zeros(self, array: Array) -> bool:
        """Whether nothing but zeros stands where PyTorch has nothing."""
        whole = self.whole(array)
        return not any(
            bool(whole[(slice(None),) * axis + (slice(dim, None),)].any())
            for axis, dim in enumerate(self.shape)
        )

    def positions(self, positions: Positions) -> Positions:
        """Where in the stored tensor, row-major, the elements at these positions of PyTorch's stand."""
        if len(self.stored) == 1:
            return positions
        row, column, *kernel = np.unravel_index(positions, self.shape)
        rows, columns, *sizes = self.stored
        deep = self.block if self.is_deep else 1
        index = (row // self.block, column // deep, *kernel, column % deep, row % self.block)
        tiled = (rows // self.block, columns // deep, *sizes, deep, self.block)
        return np.ravel_multi_index(index, tiled).astype(np.int64)
