"""Prints of weights -> which are alike: in another type, as codes, after some training; which are sums of others."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzer.dtypes import DType
from analyzer.fleet.kinship import WIDTH

__all__ = ["Weights", "find_merge", "group_alike"]

_ALIKE = 0.9
"""Cosine of two sketches above which their tensors are kin: of unrelated ones 1 of 10^10 pairs has it."""

_BLOCK = 1024

_FITS = 0.02
"""What a sum may leave of a sketch, as a part of what the nearer of both leaves."""

_EQUAL = 1 - 1e-6
"""Cosine of the sketches of equal tensors."""

Sketches = npt.NDArray[np.float32]


class Weights:
    """Every different weight tensor of a lake, by a number; `elements` are values that it stands for."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}
        self.elements: list[int] = []
        self.exactness: list[int] = []
        """Bits of an element as it is stored, less a half, so to speak, where it is a code: twice the bits, less 1."""
        self.is_code: list[bool] = []
        self._sketches: list[Sketches | None] = []

    def __len__(self) -> int:
        return len(self.elements)

    def enter(self, row: Mapping[str, Any]) -> int:
        """The number of the weights that a row of `tensors` has."""
        key = (row["digest"], row["logical_elements"])
        if key not in self._numbers:
            self._numbers[key] = len(self.elements)
            is_code = row["code_bits"] is not None
            bits = row["code_bits"] if is_code else DType[row["dtype"]].bits
            self.elements.append(row["logical_elements"])
            self.exactness.append(2 * bits - is_code)
            self.is_code.append(is_code)
            self._sketches.append(_unit(row["sketch"]))
        return self._numbers[key]

    def sketch(self, number: int) -> Sketches | None:
        """The sketch of a tensor, of length 1; None where nothing is known of its values."""
        return self._sketches[number]

    def likeness(self, a: int, b: int) -> float:
        """The cosine of two sketches; 0 where one is not known."""
        first, second = self._sketches[a], self._sketches[b]
        return 0.0 if first is None or second is None else float(first @ second)


def _unit(sketch: Sequence[float] | None) -> Sketches | None:
    if sketch is None:
        return None
    found = np.array(sketch, dtype=np.float64)
    length = float(np.linalg.norm(found))
    return (found / length).astype(np.float32) if length > 0 and found.size == WIDTH else None


def group_alike(weights: Weights) -> list[int]:
    """The class of each tensor: the number of the first that it is like."""
    classes = list(range(len(weights)))
    by_size: dict[int, list[int]] = defaultdict(list)
    for number, elements in enumerate(weights.elements):
        if weights.sketch(number) is not None:
            by_size[elements].append(number)
    for numbers in by_size.values():
        if len(numbers) > 1:
            _group(weights, sorted(numbers, key=lambda each: (-weights.exactness[each], each)), classes)
    return classes


def _group(weights: Weights, numbers: Sequence[int], classes: list[int]) -> None:
    """Give each the class of the first that is like it: one block after the other, against those that are first."""
    firsts: list[int] = []
    known = np.empty((0, WIDTH), np.float32)
    for start in range(0, len(numbers), _BLOCK):
        block = numbers[start : start + _BLOCK]
        sketches = np.stack([_known(weights, each) for each in block])
        new: list[int] = []
        if len(firsts):
            likeness = sketches @ known.T  # (block, firsts)
            best = likeness.argmax(axis=1)
            for at, number in enumerate(block):
                if likeness[at, best[at]] >= _ALIKE:
                    classes[number] = firsts[best[at]]
                else:
                    new.append(at)
        else:
            new = list(range(len(block)))
        among = sketches[new] @ sketches[new].T
        own: list[int] = []
        for at, place in enumerate(new):
            like = [each for each in own if among[at, each] >= _ALIKE]
            if like:
                classes[block[place]] = block[new[like[0]]]
            else:
                own.append(at)
        firsts += [block[new[each]] for each in own]
        known = np.concatenate([known, sketches[[new[each] for each in own]]])


def _known(weights: Weights, number: int) -> Sketches:
    found = weights.sketch(number)
    assert found is not None  # who has none is in no group
    return found


def find_merge(
    weights: Weights, prints: Sequence[int], others: Sequence[Sequence[int]]
) -> tuple[int, int] | None:
    """Which two of some models a model is a sum of, tensor by tensor; None where it is of none.

    Sketches are linear: that of a sum is the sum of both. Two factors of 32 numbers fit by no accident.
    """
    tested = [each for each in prints if weights.sketch(each) is not None]
    sides = [[_counterpart(weights, each, side) for each in tested] for side in others]
    usable = [at for at, side in enumerate(sides) if all(each is not None for each in side)]
    mine = [_known(weights, each) for each in tested]
    for a, b in itertools.combinations(usable, 2):
        is_sum = False
        for m, x, y in zip(mine, sides[a], sides[b], strict=True):
            is_equal = _are_equal(m, x, y)
            if not is_equal and not _is_sum(m, x, y):
                break
            is_sum = is_sum or not is_equal
        else:
            if is_sum:
                return a, b
    return None


def _counterpart(weights: Weights, number: int, side: Sequence[int]) -> Sketches | None:
    """Of a model's tensors the one of the same size that is most like another."""
    same = [each for each in side if weights.elements[each] == weights.elements[number]]
    same = [each for each in same if weights.sketch(each) is not None]
    return _known(weights, max(same, key=lambda each: weights.likeness(number, each))) if same else None


def _are_equal(mine: Sketches, a: Sketches | None, b: Sketches | None) -> bool:
    """Whether three sketches are one: a tensor that both sides have in common."""
    return a is not None and b is not None and min(float(mine @ a), float(mine @ b)) > _EQUAL


def _is_sum(mine: Sketches, a: Sketches | None, b: Sketches | None) -> bool:
    """Whether a sketch is a sum of two others, and both have a part in it."""
    assert a is not None
    assert b is not None
    both = np.stack([a, b], axis=1).astype(np.float64)
    alone = min(float(np.linalg.norm(mine - each * (each @ mine))) for each in (a, b))
    factors = np.linalg.lstsq(both, mine.astype(np.float64), rcond=None)[0]
    left = float(np.linalg.norm(mine - both @ factors))
    return left <= _FITS * alone and bool((factors > _FITS).all())
