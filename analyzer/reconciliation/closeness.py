"""Stored numbers and PyTorch's -> whether the ones are the others: the same, rounded, or within a quantizer's step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from analyzer.content import Array, rounded
from analyzer.decoding import LEAST_LIKENESS, STEP_ROOM
from analyzer.dtypes import DType

__all__ = [
    "BAND",
    "Reals",
    "compare_arrays",
    "compare_codes",
    "find_masked",
    "find_roundings",
    "is_like",
    "is_rounded",
    "largest_difference",
    "least_difference",
    "narrow",
    "was_narrower",
    "within",
]

Reals = npt.NDArray[np.float64]

BAND = 1 << 22
"""Elements that are compared at a time."""

_CLAMPED = 1.2e-7
"""Two of the smallest float16: a converter clamps to it."""

_MASKED = -1e4
"""At most what a mask adds to a score: -65,504 in float16, -1e4 in older models. No table holds as much."""

_NOTHING = 1e-12
"""Sum of squares of numbers that a quantizer may take for zeros, whatever its scale."""


def _allowed(steps: Reals) -> Reals:
    return steps * STEP_ROOM + 1e-12


def within(stored: Reals, original: Reals, steps: Reals | None) -> npt.NDArray[np.bool_]:
    """Which elements are near the original's: within their steps where they are codes, else within a thousandth.

    Nothing is near what is no number, or has no end.
    """
    room = np.abs(original) * 2.0**-10 if steps is None else _allowed(steps)
    with np.errstate(invalid="ignore"):
        return (np.abs(stored - original) <= room) & np.isfinite(original)


def is_like(stored: Array, original: Reals, steps: Reals, *, is_named: bool = False) -> bool:
    """Whether codes stand for the original: each within its step, and all together in its direction.

    A scale so large that everything is within a step of zero is no evidence; where both are nothing, only a name is.
    """
    values, original = stored.astype(np.float64).reshape(-1), original.reshape(-1)
    with np.errstate(invalid="ignore"):
        if not bool((np.abs(values - original) <= _allowed(steps.reshape(-1))).all()):
            return False
    sizes = float(np.linalg.norm(values) * np.linalg.norm(original))
    if sizes == 0.0:
        return is_named and float(original @ original) <= _NOTHING
    return float(values @ original) >= LEAST_LIKENESS * sizes


def find_masked(values: Reals) -> npt.NDArray[np.bool_]:
    """Which numbers only a mask adds."""
    return values <= _MASKED


def is_rounded(stored: Array, original: Array, dtype: DType) -> bool:
    """Whether stored elements are the original's, as they are or rounded to another type."""
    if stored.dtype == original.dtype:
        return stored.tobytes() == original.tobytes()
    return any(_same(stored, way) for way in rounded(original, dtype))


def find_roundings(stored: Array, original: Array, dtype: DType, theirs: DType) -> Iterator[DType]:
    """The narrower types to which the original's elements may have been rounded before they were stored in a wider one.

    A tool that widens a model's weights, or folds the Cast that did, leaves numbers of which the last bits are empty.
    """
    for through in (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16):
        if through.bits < min(dtype.bits, theirs.bits) and dtype.is_floating and theirs.is_floating:
            narrowed = narrow(stored, through)
            if narrowed is not None and is_rounded(narrowed, original, through):
                yield through


def was_narrower(stored: Array) -> bool:
    """Whether numbers may have been rounded to half a type before they were stored in this one."""
    return stored.dtype.kind == "f" and any(
        dtype.bits < 8 * stored.itemsize and narrow(stored, dtype) is not None
        for dtype in (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)
    )


def narrow(array: Array, dtype: DType) -> Array | None:
    """The same numbers in a narrower type; None where it does not have them all. NaN is no number."""
    element = dtype.to_numpy()
    if element is None or array.dtype.kind not in "fV":
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        narrowed = array.astype(element)
        is_same = bool((narrowed.astype(array.dtype) == array).all())
    return narrowed if is_same else None


def _same(stored: Array, expected: Array) -> bool:
    mine = next(iter(rounded(stored, None)))
    return mine.tobytes() == expected.tobytes()


def compare_arrays(restored: Array, original: Array, dtype: DType) -> float | bool:
    """Band by band; the largest difference, or False where an element is not what it should be."""
    largest = 0.0
    ways: set[int] | None = None
    for mine, theirs in zip(_bands(restored), _bands(original), strict=True):
        if mine.dtype == theirs.dtype:
            if mine.tobytes() != theirs.tobytes():
                return False
            continue
        found = {number for number, way in enumerate(rounded(theirs, dtype)) if _same(mine, way)}
        ways = found if ways is None else ways & found
        if not ways:
            return False
        largest = max(largest, largest_difference(mine, theirs) or 0.0)
    return largest


def compare_codes(bands: Iterable[tuple[Reals, Reals]], original: Array) -> float | bool:
    """The same of what codes stand for, flat, with their steps: each within its step, all in the same direction."""
    done, largest, product, mine, yours = 0, 0.0, 0.0, 0.0, 0.0
    for values, steps in bands:
        theirs = original[done : done + values.size].astype(np.float64)
        error = np.abs(values - theirs)
        if not bool((error <= _allowed(steps)).all()):
            return False
        largest = max(largest, float(error.max(initial=0.0)))
        product += float(values @ theirs)
        mine, yours = mine + float(values @ values), yours + float(theirs @ theirs)
        done += values.size
    # A scale so large that everything is within a step of zero is no evidence here either.
    is_alike = product >= LEAST_LIKENESS * np.sqrt(mine * yours) and (mine > 0 or yours <= _NOTHING)
    return largest if done == original.size and is_alike else False


def _bands(array: Array) -> Iterator[Array]:
    if array.ndim == 0 or array.size == 0:
        yield array.reshape(-1)
        return
    rows = max(1, BAND // max(1, array[0].size))
    yield from (np.ascontiguousarray(array[start : start + rows]) for start in range(0, len(array), rows))


def least_difference(stored: Array) -> float:
    """What is no difference between a stored number and a computed one, however small both are."""
    return _CLAMPED if stored.dtype == np.float16 else 1e-12


def largest_difference(stored: Array, original: Array) -> float | None:
    """Largest absolute difference; None where that is no number."""
    if stored.size != original.size or any(a.dtype.kind in "OSUc" for a in (stored, original)):
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(stored.astype(np.float64).reshape(-1) - original.astype(np.float64).reshape(-1))
    largest = float(difference.max()) if difference.size else 0.0
    return largest if np.isfinite(largest) else None
