"""Stored tensor + value that nodes compute from it -> the positions of the tensor's elements in that value."""

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
"""Most elements of a tracked value, and of the stored tensors tracked together."""
_MOST_KEPT = 1 << 22
"""Most elements of values that are kept beside the last one."""

_Places: TypeAlias = npt.NDArray[np.int32]
_Value: TypeAlias = "tuple[GraphPath, str]"


class Box(NamedTuple):
    """Smallest box of a value that contains all elements of a stored tensor, or a larger box."""

    shape: tuple[int, ...]
    """Shape of the value."""
    corner: tuple[int, ...]
    """First position of the box along each axis."""
    places: _Places
    """For each element of the box, 1 + its row-major position in the stored tensor, or 0 if it comes from elsewhere."""


class _Sorted:
    """Value as position numbers of stored elements, sorted so that each tensor's are found without a full scan."""

    def __init__(self, numbers: _Places, starts: dict[Key, int]) -> None:
        self.numbers = numbers
        self.starts = starts
        self._flat: _Places | None = None
        self._order: npt.NDArray[np.intp] | None = None

    def box(self, tensor: StoredTensor) -> Box:
        """Return the box of a tensor's elements."""
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
        is_own = (box > start) & (box <= start + tensor.numel)
        return Box(shape, corner, np.where(is_own, box - start, 0).astype(np.int32))


class Tracker(Mutable):
    """Tracker of the elements of stored tensors through nodes. It keeps values for the next tensors in them."""

    model: Model
    wiring: Wiring
    _kept: dict[_Value, _Sorted | None] = field(default_factory=dict)

    def track(self, tensor: StoredTensor, path: GraphPath, name: str) -> Box | None:
        """Return the box of a stored tensor's elements in a value.

        Computed elements count as coming from elsewhere; a scalar has one axis. None if the value depends on an input,
        or cannot be tracked.
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
        """Return a value as position numbers of stored elements, including this tensor's."""
        starts = {tensor.key: 0}
        done = tensor.numel

        def number(each: StoredTensor) -> Array | None:
            """Return a tensor's position numbers: 0 if there are too many, None for indices and shapes."""
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
