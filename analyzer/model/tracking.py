"""Where the elements of a stored tensor go: the places at which they stand in a value that nodes make of them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from analyzer.model import GraphPath, Key, Model, StoredTensor
from analyzer.model.content import Array
from analyzer.model.evaluation import PLACE, WHOLE, Evaluator
from analyzer.model.wiring import Wiring
from analyzer.records import Mutable, field

_MOST_TRACKED = 1 << 26
"""Elements of a value that is looked at, and of the stored tensors that are."""
_MOST_KEPT = 1 << 22
"""Elements of values that are kept beside the last."""

_Places: TypeAlias = npt.NDArray[np.int32]
_Value: TypeAlias = "tuple[GraphPath, str]"


class Box(NamedTuple):
    """The smallest box of a value in which all elements of a stored tensor stand, or a larger one."""

    shape: tuple[int, ...]
    """Of the value."""
    corner: tuple[int, ...]
    """Where it begins along each axis."""
    places: _Places
    """Where each of its elements comes from: 1 + its place in the stored tensor, row-major, or 0 from elsewhere."""


class _Sorted:
    """A value whose elements are numbers of stored elements: each tensor's are found without looking at all others."""

    def __init__(self, numbers: _Places, starts: dict[Key, int]) -> None:
        self.numbers = numbers
        self.starts = starts
        self._flat: _Places | None = None
        self._order: npt.NDArray[np.intp] | None = None

    def box(self, tensor: StoredTensor) -> Box:
        """Where the elements of a tensor stand."""
        shape = self.numbers.shape
        if len(self.starts) == 1:
            return Box(shape, (0,) * len(shape), self.numbers)
        if self._flat is None or self._order is None:
            flat = self.numbers.reshape(-1)
            self._order = np.argsort(flat, kind="stable")
            self._flat = flat[self._order]
        start = self.starts[tensor.key]
        first, last = np.searchsorted(self._flat, (start + 1, start + tensor.numel + 1))
        if first == last:
            return Box(shape, (0,) * len(shape), np.zeros((0,) * len(shape), np.int32))
        at = np.unravel_index(self._order[first:last], shape)
        corner = tuple(int(axis.min()) for axis in at)
        box = self.numbers[
            tuple(slice(low, int(axis.max()) + 1) for low, axis in zip(corner, at, strict=True))
        ]
        is_mine = (box > start) & (box <= start + tensor.numel)
        return Box(shape, corner, np.where(is_mine, box - start, 0).astype(np.int32))


class Tracker(Mutable):
    """Tells where the elements of stored tensors go. What was worked out last is kept for the next tensor in it."""

    model: Model
    wiring: Wiring
    _kept: dict[_Value, _Sorted | None] = field(default_factory=dict)

    def track(self, tensor: StoredTensor, path: GraphPath, name: str) -> Box | None:
        """Where the elements of a stored tensor stand in a value.

        Elements of what is computed come from elsewhere; a scalar has one axis. None where the value depends on an
        input, or nobody can follow.
        """
        if tensor.numel > _MOST_TRACKED:
            return None
        place = self.wiring.place(path, name)
        if place is None:
            return None
        key = (place, name)
        kept = self._kept.get(key)
        if key not in self._kept or (kept is not None and tensor.key not in kept.starts):
            while self._kept and sum(map(_numel, self._kept.values())) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[key] = self._number(tensor, path, name)
        return None if kept is None else kept.box(tensor)

    def _number(self, tensor: StoredTensor, path: GraphPath, name: str) -> _Sorted | None:
        """A value with the numbers of stored elements in it, this tensor's among them."""
        starts = {tensor.key: 0}
        done = tensor.numel

        def number(each: StoredTensor) -> Array | None:
            """The numbers of a tensor's elements; 0 where they are too many. What says how others move is itself."""
            nonlocal done
            if each.key not in starts:
                if each.dtype in WHOLE:
                    return None
                if done + each.numel > _MOST_TRACKED:
                    return np.broadcast_to(PLACE(0), each.shape)
                starts[each.key] = done
                done += each.numel
            start = starts[each.key]
            return np.arange(start + 1, start + each.numel + 1, dtype=PLACE).reshape(each.shape)

        evaluator = Evaluator(self.model, self.wiring, _MOST_TRACKED, by_default=True, tracked=number)
        value = evaluator.value(path, name)
        if value is None:
            return None
        is_placed = value.dtype == PLACE
        numbers = value.astype(np.int32) if is_placed else np.zeros(value.shape, np.int32)
        return _Sorted(np.atleast_1d(numbers), starts)


def _numel(found: _Sorted | None) -> int:
    return 0 if found is None else found.numbers.size
