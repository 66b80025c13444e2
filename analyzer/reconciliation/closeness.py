"""Stored numbers and PyTorch's -> whether the ones are the others: the same, rounded, or within a quantizer's step.

Of a large tensor a manifest has no values that codes could be held against, but two numbers of each row (each slice
along the first axis): its projection on a direction of pseudo-random signs, and its norm
(`analyzer.model.content.channel_statistics`). Every element is in them.

A quantizer that rounds to the nearest errs by at most half a step s. The projection then errs by a sum of independent
terms of at most 0.75 s each, so that it is off by more than 4 sqrt(sum s^2) with a chance below 1e-9 (Hoeffding 1963),
and in the mean over all rows by no more than a quarter of 13/12 sum s^2 in square, 13/12 being the mean square of the
direction's factors. The norm errs by at most sqrt(sum s^2), where no element is off by more than a step. Noise on some
elements is told where it adds up to more than that in any row, or in the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from analyzer.account.decoding import LEAST_LIKENESS, STEP_ROOM, Decoder, Encoded
from analyzer.model.content import Array, channel_direction, rounded
from analyzer.model.dtypes import DType
from analyzer.reconciliation.layouts import AxisLayout
from analyzer.records import Mutable

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


# sums of rows

_MOST_OFF = 4.0
"""Of the root of a row's squared steps: how far its projection may be off."""

_MEAN_OFF = 0.25 * 13 / 12
"""Of a row's squared steps: how far, in square, the projections may be off in the mean."""

_COARSEST = 4.0
"""Squared steps by the squares of the numbers: coarser codes hold none of them."""

_ROUNDED = 1e-5
"""Relative error of scales and sums that were rounded on the way."""

_TILE = 1 << 20
"""Elements that are decoded at a time."""


class _Sums(Mutable):
    """Of each row: projection, sum of squares, sum of squared steps."""

    projections: Reals
    squares: Reals
    steps: Reals

    @classmethod
    def of_rows(cls, rows: int) -> _Sums:
        return cls(np.zeros(rows), np.zeros(rows), np.zeros(rows))


def compare_sums(encoded: Encoded, layout: AxisLayout, known: tuple[Reals, Reals]) -> bool | None:
    """Whether codes can be those of the tensor with these projections and norms; None where that cannot be computed."""
    projections, norms = known
    found = _sum_tiles(encoded, layout) if _is_matrix(encoded, layout) else _sum_arrays(encoded, layout)
    if found is None or found.projections.shape != projections.shape:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(found.projections - projections)
        rounding = _ROUNDED * norms + 1e-12
        room = np.sqrt(found.steps)
        fits = (np.abs(np.sqrt(found.squares) - norms) <= room + rounding).all()
        fits &= (off <= _MOST_OFF * room + 4 * rounding).all()
        size, steps = float((norms * norms).sum()), float(found.steps.sum())
        mean = _MEAN_OFF * (1 + 8 / np.sqrt(max(off.size, 1)))
        fits &= float((np.maximum(off - rounding, 0) ** 2).sum()) <= mean * steps + 1e-12
        least = LEAST_LIKENESS**2
        is_coarse = steps > _COARSEST * size + 1e-12
        is_sized = least * size <= float(found.squares.sum()) + 1e-12 <= size / least + steps + 1e-11
    return bool(fits and is_sized and not is_coarse)


def _is_matrix(encoded: Encoded, layout: AxisLayout) -> bool:
    """Whether it is decoded tile by tile: other tensors are small enough to be decoded whole."""
    permuted = tuple(layout.shape[axis] for axis in layout.axes)
    is_plain = len(layout.shape) == 2 and len(encoded.shape) == 2
    return is_plain and (
        permuted == encoded.shape if layout.window is None else layout.stored == encoded.shape
    )


def _sum_tiles(encoded: Encoded, layout: AxisLayout) -> _Sums | None:
    decoder = encoded.open()
    if decoder is None:
        return None
    rows, columns = (slice(0, size) for size in encoded.shape)
    if layout.window is not None:
        axis, start = layout.window
        part = slice(start, start + layout.shape[layout.axes[axis]])
        rows, columns = (part, columns) if axis == 0 else (rows, part)
    direction = channel_direction(layout.shape[1])
    sums = _Sums.of_rows(layout.shape[0])
    height = max(1, _TILE // max(1, columns.stop - columns.start))
    for top in range(rows.start, rows.stop, height):
        band = slice(top, min(top + height, rows.stop))
        within = slice(top - rows.start, band.stop - rows.start)
        if not _add_tile(sums, decoder, (band, columns), within, direction, is_turned=layout.axes == (1, 0)):
            return None
    return sums


def _add_tile(
    sums: _Sums,
    decoder: Decoder,
    tile: tuple[slice, slice],
    within: slice,
    direction: Reals,
    *,
    is_turned: bool,
) -> bool:
    found = decoder.tile(*tile)
    if found is None:
        return False
    values, steps = found
    with np.errstate(invalid="ignore", over="ignore"):
        if is_turned:  # the rows of the tile are columns of PyTorch's
            sums.projections += direction[within] @ values
            sums.squares += (values * values).sum(axis=0)
            sums.steps += (steps * steps).sum(axis=0)
        else:
            sums.projections[within] = values @ direction
            sums.squares[within] = (values * values).sum(axis=1)
            sums.steps[within] = (steps * steps).sum(axis=1)
    return True


def _sum_arrays(encoded: Encoded, layout: AxisLayout) -> _Sums | None:
    bands = list(encoded.bands())
    if not layout.shape or sum(values.size for values, _ in bands) != encoded.numel or not encoded.numel:
        return None
    values, steps = (
        _rows_of_codes(np.concatenate(parts), encoded, layout) for parts in zip(*bands, strict=True)
    )
    with np.errstate(invalid="ignore", over="ignore"):
        return _Sums(
            values @ channel_direction(values.shape[1]),
            (values * values).sum(axis=1),
            (steps * steps).sum(axis=1),
        )


def _rows_of_codes(flat: Reals, encoded: Encoded, layout: AxisLayout) -> Reals:
    """What the entry stands for as PyTorch has it (rows, all else)."""
    return layout.restore(flat.reshape(encoded.shape)).reshape(layout.shape[0], -1).astype(np.float64)


def is_odd(number: npt.NDArray[np.generic]) -> bool:
    """Whether the last byte of its mantissa is not empty, as of a number that training left."""
    return number.dtype == np.float32 and bool(number.view(np.uint32)[0] & 0xFF)
