"""Entries -> entries that know which of them repeat another's content, as it stands or transposed.

The file alone tells a tensor stored twice from two tensors: a few fixed positions of same-shaped or transposed
candidates are compared first, then, for those that agree, the whole content. Constant-filled tensors are never
copies (equal zero biases are different parameters), nor are two that each have a PyTorch name of their own.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from analyzer.content import Array, is_constant_filled, sample, sample_transposed
from analyzer.ledger import Entry, Role
from analyzer.model import StoredTensor

__all__ = ["find_copies"]

_BAND_ELEMENTS = 1 << 20
"""Elements compared at a time, so that a large pair needs no copy of either."""


def find_copies(
    entries: Sequence[Entry], progress: Callable[[int, int], None] | None = None
) -> tuple[Entry, ...]:
    """Mark each learned entry that repeats an earlier one; it then counts no parameters.

    The original is the one with a PyTorch name, else the first in file order. `progress` is told how many of the
    candidates are done.
    """
    candidates = [entry for entry in entries if entry.role is Role.PARAMETER and entry.tensor.numel > 1]
    originals = _Originals()
    decided: dict[int, Entry] = {}
    # Named entries first: they are what the others are copies of.
    ordered = sorted(candidates, key=lambda entry: not entry.sources)
    for done, entry in enumerate(ordered, start=1):
        found = originals.find(entry)
        if found is None:
            originals.add(entry)
        else:
            original, transposed = found
            rule = "content:transposed-copy" if transposed else "content:copy"
            decided[id(entry)] = dataclasses.replace(
                entry, decided_by=rule, parameters=0, copy_of=original.tensor.key
            )
        if progress is not None:
            progress(done, len(ordered))
    return tuple(decided.get(id(entry), entry) for entry in entries)


class _Originals:
    """The entries met so far, by dtype, shape and a few of their elements."""

    def __init__(self) -> None:
        self._by_samples: dict[tuple[object, ...], list[Entry]] = defaultdict(list)
        self._shapes: set[tuple[object, ...]] = set()
        self._pending: dict[tuple[object, ...], list[Entry]] = defaultdict(list)

    def add(self, entry: Entry) -> None:
        """Remember an entry; its content is read only once another of its shape turns up."""
        tensor = entry.tensor
        self._pending[tensor.dtype, tensor.shape].append(entry)

    def find(self, entry: Entry) -> tuple[Entry, bool] | None:
        """The original that `entry` repeats, and whether transposed."""
        tensor = entry.tensor
        straight = (tensor.dtype, tensor.shape)
        turned = (tensor.dtype, tensor.shape[::-1]) if len(tensor.shape) == 2 else None
        if not self._known(straight) and not (turned and self._known(turned)):
            return None
        array = tensor.payload.array()
        if array is None or is_constant_filled(array):
            return None
        for original in self._like(straight, sample(array)):
            if _may_be_copy(entry, original) and _is_equal(array, original.tensor):
                return original, False
        if turned is not None:
            for original in self._like(turned, sample_transposed(array)):
                if _may_be_copy(entry, original) and _is_equal(array.T, original.tensor):
                    return original, True
        return None

    def _known(self, shape: tuple[object, ...]) -> bool:
        return shape in self._pending or shape in self._shapes

    def _like(self, shape: tuple[object, ...], samples: Array) -> list[Entry]:
        """Originals of this dtype and shape that agree with `samples`."""
        for entry in self._pending.pop(shape, ()):
            self._shapes.add(shape)
            array = entry.tensor.payload.array()
            if array is not None:
                self._by_samples[(*shape, sample(array).tobytes())].append(entry)
        return self._by_samples.get((*shape, samples.tobytes()), [])


def _may_be_copy(entry: Entry, original: Entry) -> bool:
    """Not where both have PyTorch names of their own: then PyTorch says that they are two."""
    return not entry.sources or not original.sources or entry.sources == original.sources


def _is_equal(array: Array, original: StoredTensor) -> bool:
    """Whether the whole contents are the same bytes; `array` is a view in the original's shape."""
    other = original.payload.array()
    if other is None or other.shape != array.shape:
        return False
    if array.ndim == 0:
        return array.tobytes() == other.tobytes()
    step = max(1, _BAND_ELEMENTS // max(1, array.size // max(1, array.shape[0])))
    return all(
        np.array_equal(
            np.ascontiguousarray(array[start : start + step]).view(np.uint8),
            np.ascontiguousarray(other[start : start + step]).view(np.uint8),
        )
        for start in range(0, array.shape[0], step)
    )
