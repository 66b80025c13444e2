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

from analyzer.content import Array, is_constant_filled, transposed_positions
from analyzer.dtypes import DType
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
    groups: dict[tuple[DType, tuple[int, ...]], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.role is Role.PARAMETER and entry.tensor.numel > 1:
            groups[entry.tensor.dtype, _either_way(entry.tensor.shape)].append(entry)
    candidates = [group for group in groups.values() if _may_hold_copies(group)]
    total = sum(map(len, candidates))
    decided: dict[int, Entry] = {}
    done = 0
    for group in candidates:
        originals = _Originals()
        # Named entries first: they are what the others are copies of.
        for entry in sorted(group, key=lambda entry: not entry.sources):
            copy = originals.match(entry)
            if copy is not None:
                decided[id(entry)] = copy
            done += 1
            if progress is not None:
                progress(done, total)
    return tuple(decided.get(id(entry), entry) for entry in entries)


def _either_way(shape: tuple[int, ...]) -> tuple[int, ...]:
    """One shape for a matrix and its transpose."""
    return min(shape, shape[::-1]) if len(shape) == 2 else shape


def _may_hold_copies(group: Sequence[Entry]) -> bool:
    """Whether any two of a group may be copies at all; most files name every tensor, and nothing need be read."""
    sources = {entry.sources for entry in group if entry.sources}
    return len(group) > 1 and len(sources) < len(group)


class _Originals:
    """The entries of one dtype and shape met so far, by a few of their elements."""

    def __init__(self) -> None:
        self._by_samples: dict[tuple[tuple[int, ...], bytes], list[Entry]] = defaultdict(list)

    def match(self, entry: Entry) -> Entry | None:
        """The entry as a copy of an original; None where it is an original itself, which is then remembered."""
        tensor = entry.tensor
        straight = tensor.payload.sample()
        if straight is None:
            return None
        key = (tensor.shape, straight.tobytes())
        for original in self._by_samples.get(key, ()):
            if _may_be_copy(entry, original) and _is_copy(entry, original, transposed=False):
                return _copy(entry, original, "content:copy")
        if len(tensor.shape) == 2:
            turned = tensor.payload.at(transposed_positions(tensor.shape[0], tensor.shape[1]))
            if turned is not None:
                for original in self._by_samples.get((tensor.shape[::-1], turned.tobytes()), ()):
                    if _may_be_copy(entry, original) and _is_copy(entry, original, transposed=True):
                        return _copy(entry, original, "content:transposed-copy")
        self._by_samples[key].append(entry)
        return None


def _copy(entry: Entry, original: Entry, rule: str) -> Entry:
    return dataclasses.replace(entry, decided_by=rule, parameters=0, copy_of=original.tensor.key)


def _is_copy(entry: Entry, original: Entry, *, transposed: bool) -> bool:
    """Whether the whole contents are equal and not constant-filled."""
    array = entry.tensor.payload.array()
    if array is None or is_constant_filled(array):
        return False
    return _is_equal(array.T if transposed else array, original.tensor)


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
