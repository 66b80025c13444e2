"""The shapes of a PyTorch tensor and of a stored one -> the orders of axes in which one can hold the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzer.content import Array
from analyzer.reconciliation.lines import Line

__all__ = ["Layout", "layouts", "same_layout"]

_MOST_ELEMENTS = 1 << 62
"""Elements that positions can count; a header may claim more."""

_MOST_AXES = 5
"""Axes up to which every order is tried."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A PyTorch tensor with its axes in another order, then reshaped to the stored shape."""

    shape: tuple[int, ...]
    """PyTorch's."""
    axes: tuple[int, ...]
    """PyTorch's axes in the order in which the file has them."""
    stored: tuple[int, ...]
    window: tuple[int, int] | None = None
    """(axis, start) of the part of the stored tensor that it fills, where that is not all; then `stored` has as many
    axes as `shape`."""

    @property
    def chain(self) -> tuple[Line, ...]:
        """What it takes: nothing, `transposed`, `reshaped`, or both."""
        order = [axis for axis in self.axes if self.shape[axis] != 1]
        turned = order != sorted(order)
        permuted = tuple(self.shape[axis] for axis in self.axes)
        reshaped = self.window is None and (permuted if turned else self.shape) != self.stored
        return (Line.TRANSPOSED,) * turned + (Line.RESHAPED,) * reshaped

    @property
    def is_plain(self) -> bool:
        """Whether shapes alone prove it: axes moved, axes of 1 added or dropped, and nothing else."""
        permuted = [self.shape[axis] for axis in self.axes]
        return _without_ones(permuted) == _without_ones(self.stored)

    @property
    def has_equal_axes(self) -> bool:
        """Whether two axes are equally long, so that its shape is that of another order of axes as well."""
        long = [dim for dim in self.shape if dim != 1]
        return len(set(long)) < len(long)

    def positions(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where in the stored tensor, row-major, the elements at these positions of PyTorch's stand."""
        is_straight = self.axes == tuple(range(len(self.axes))) and self.window is None
        if is_straight or not self.shape:
            return positions
        index = np.unravel_index(positions, self.shape)
        permuted = [index[axis] for axis in self.axes]
        shape = tuple(self.shape[axis] for axis in self.axes)
        if self.window is not None:
            axis, start = self.window
            permuted[axis] = permuted[axis] + start
            shape = self.stored
        return np.ravel_multi_index(tuple(permuted), shape).astype(np.int64)

    def restore(self, array: Array) -> Array:
        """A stored array in PyTorch's shape, a view of it."""
        shape = [self.shape[axis] for axis in self.axes]
        if self.window is not None:
            axis, start = self.window
            array = array.reshape(self.stored)
            array = array[(slice(None),) * axis + (slice(start, start + shape[axis]),)]
        permuted = array.reshape(shape)
        return permuted.transpose(np.argsort(self.axes)) if self.axes else permuted


def same_layout(shape: tuple[int, ...]) -> Layout:
    """As PyTorch has it."""
    return Layout(shape, tuple(range(len(shape))), shape)


def layouts(shape: tuple[int, ...], stored: tuple[int, ...]) -> Iterator[Layout]:
    """The ways in which a stored tensor may hold one of PyTorch's, likeliest first; none where the sizes differ.

    >>> (
    ...     [layout.axes for layout in layouts((3, 3), (3, 3))],
    ...     [layout.axes for layout in layouts((3, 4), (4, 3))],
    ... )
    ([(0, 1), (1, 0)], [(1, 0)])
    """
    numel = math.prod(shape)
    if numel != math.prod(stored) or numel >= _MOST_ELEMENTS:
        return
    straight = tuple(range(len(shape)))
    first = Layout(shape, straight, stored)
    if first.is_plain:
        yield first
    if len(_without_ones(shape)) >= 2 and len(shape) <= _MOST_AXES:
        wanted = _without_ones(stored)
        seen = {_order(straight, shape)}
        for axes in itertools.permutations(straight):
            order = _order(axes, shape)
            if order not in seen and [shape[axis] for axis in order] == wanted:
                seen.add(order)
                yield Layout(shape, axes, stored)
        merged = _merged(shape, wanted)
        yield from (Layout(shape, axes, stored) for axes in merged)
    if not first.is_plain and sorted(_without_ones(shape)) != sorted(_without_ones(stored)):
        yield first  # no reshape puts dims in another order: that is a transposed tensor, or a scrambled one
        if len(shape) == 2 and min(shape) > 1:
            yield Layout(shape, (1, 0), stored)


_BILINEAR = (1, 0, 2)
"""How PyTorch's decomposition of `Bilinear` has the weight's axes (out, in1, in2) before it joins the last two."""


def _merged(shape: tuple[int, ...], wanted: list[int]) -> list[tuple[int, ...]]:
    """The one order of axes, some of them joined in PyTorch's order, that gives fewer axes of these sizes.

    A table of channels, rows and columns becomes one of positions and channels. Where several orders give the sizes,
    the one that joins neighbours alone does, or of three axes that of `Bilinear`; where even PyTorch's own order gives
    them, nothing says which it is, and none does.
    """
    long = [axis for axis, size in enumerate(shape) if size != 1]
    if len(long) <= len(wanted) or len(wanted) < 2:
        return []
    found = []
    for axes in itertools.permutations(long):
        if list(axes) == long:
            continue
        groups = _groups([shape[axis] for axis in axes], wanted)
        if groups is None:
            continue
        parts = [axes[start:stop] for start, stop in itertools.pairwise(groups)]
        if all(list(part) == sorted(part) for part in parts):
            found.append(axes)
    if len(found) > 1 and len(shape) == len(_BILINEAR) == len(long):
        found = [axes for axes in found if axes == _BILINEAR]
    elif len(found) > 1:
        is_open = _groups([shape[axis] for axis in long], wanted) is not None
        found = [] if is_open else [axes for axes in found if _is_neighbourly(axes, shape, wanted)]
    ones = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return [(*ones, *axes) for axes in found] if len(found) == 1 else []


def _is_neighbourly(axes: tuple[int, ...], shape: tuple[int, ...], wanted: list[int]) -> bool:
    """Whether only axes are joined that are neighbours in PyTorch's order."""
    groups = _groups([shape[axis] for axis in axes], wanted) or []
    parts = (axes[start:stop] for start, stop in itertools.pairwise(groups))
    return all(part[-1] - part[0] == len(part) - 1 for part in parts)


def _groups(sizes: list[int], wanted: list[int]) -> list[int] | None:
    """Where to cut sizes so that the products of the parts are those wanted; None where that cannot be."""
    cuts, product = [0], 1
    for place, size in enumerate(sizes, 1):
        product *= size
        if len(cuts) > len(wanted) or product > wanted[len(cuts) - 1]:
            return None
        if product == wanted[len(cuts) - 1]:
            cuts.append(place)
            product = 1
    return cuts if len(cuts) == len(wanted) + 1 and product == 1 else None


def _order(axes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Axes of one element may stand anywhere."""
    return tuple(axis for axis in axes if shape[axis] != 1)


def _without_ones(shape: tuple[int, ...] | list[int]) -> list[int]:
    return [dim for dim in shape if dim != 1]
