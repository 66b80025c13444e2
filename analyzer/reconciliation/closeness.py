"""Stored numbers and PyTorch's -> whether they match: equal, rounded, or within a quantizer's step.

For a large tensor a manifest has no values to compare codes with, but two numbers for each row (each slice along the
first axis): its projection on a direction of pseudo-random signs, and its norm
(`analyzer.model.content.channel_statistics`). Both depend on every element.

A quantizer that rounds to the nearest errs by at most half a step s. The projection then errs by a sum of independent
terms of at most 0.75 s each, so that it is off by more than 4 sqrt(sum s^2) with a chance below 1e-9 (Hoeffding 1963).
The mean of its squared error over all rows is at most a quarter of 13/12 sum s^2, 13/12 being the mean square of the
direction's factors. The norm errs by at most sqrt(sum s^2), if no element is off by more than a step. Noise on some
elements is detected if it adds up to more than that in any row, or in the mean.
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
"""Number of elements that are compared at a time."""

_CLAMPED = 1.2e-7
"""Twice the smallest positive float16: a converter clamps numbers to it."""

_MASKED = -1e4
"""Upper bound of a mask's numbers: -65,504 in float16, -1e4 in older models. No table has such low numbers."""

_NOTHING = 1e-12
"""Largest sum of squares of numbers that a quantizer of any scale may take for zeros."""


def _tolerances(steps: Reals) -> Reals:
    return steps * STEP_ROOM + 1e-12


def within(stored: Reals, original: Reals, steps: Reals | None) -> npt.NDArray[np.bool_]:
    """Return a mask of the elements near the original's: within the step for codes, else within a thousandth.

    No element is near NaN or infinity.
    """
    tolerances = np.abs(original) * 2.0**-10 if steps is None else _tolerances(steps)
    with np.errstate(invalid="ignore"):
        return (np.abs(stored - original) <= tolerances) & np.isfinite(original)


def is_like(stored: Array, original: Reals, steps: Reals, *, is_named: bool = False) -> bool:
    """Whether codes represent the original: each within its step, and all together in a similar direction.

    A scale so large that everything is within a step of zero is no evidence. If both are zeros, only a name is.
    """
    values, original = stored.astype(np.float64).reshape(-1), original.reshape(-1)
    with np.errstate(invalid="ignore"):
        if not bool((np.abs(values - original) <= _tolerances(steps.reshape(-1))).all()):
            return False
    sizes = float(np.linalg.norm(values) * np.linalg.norm(original))
    if sizes == 0.0:
        return is_named and float(original @ original) <= _NOTHING
    return float(values @ original) >= LEAST_LIKENESS * sizes


def find_masked(values: Reals) -> npt.NDArray[np.bool_]:
    """Return a mask of the numbers so low that only an attention mask has them."""
    return values <= _MASKED


def is_rounded(stored: Array, original: Array, dtype: DType) -> bool:
    """Whether stored elements are the original's, unchanged or rounded to another type."""
    if stored.dtype == original.dtype:
        return stored.tobytes() == original.tobytes()
    return any(_same(stored, cast) for cast in rounded(original, dtype))


def find_roundings(stored: Array, original: Array, dtype: DType, original_dtype: DType) -> Iterator[DType]:
    """Yield the narrower types to which elements may have been rounded before they were stored in a wider one.

    A tool that widens a model's weights, or folds the Cast that did, leaves numbers whose last bits are zero.
    """
    for narrower in (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16):
        if (
            narrower.bits < min(dtype.bits, original_dtype.bits)
            and dtype.is_floating
            and original_dtype.is_floating
        ):
            narrowed = narrow(stored, narrower)
            if narrowed is not None and is_rounded(narrowed, original, narrower):
                yield narrower


def was_narrower(stored: Array) -> bool:
    """Whether numbers may have been rounded to a narrower type before they were stored in this one."""
    return stored.dtype.kind == "f" and any(
        dtype.bits < 8 * stored.itemsize and narrow(stored, dtype) is not None
        for dtype in (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)
    )


def narrow(array: Array, dtype: DType) -> Array | None:
    """Return the same numbers in a narrower type; None if it cannot represent them all, or if one is NaN."""
    element = dtype.to_numpy()
    if element is None or array.dtype.kind not in "fV":
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        narrowed = array.astype(element)
        is_same = bool((narrowed.astype(array.dtype) == array).all())
    return narrowed if is_same else None


def _same(stored: Array, expected: Array) -> bool:
    rounded_stored = next(iter(rounded(stored, None)))
    return rounded_stored.tobytes() == expected.tobytes()


def compare_arrays(restored: Array, original: Array, dtype: DType) -> float | bool:
    """Compare arrays band by band; return the largest difference, or False if an element does not match."""
    largest = 0.0
    matching: set[int] | None = None
    for stored_band, original_band in zip(_bands(restored), _bands(original), strict=True):
        if stored_band.dtype == original_band.dtype:
            if stored_band.tobytes() != original_band.tobytes():
                return False
            continue
        found = {
            number for number, cast in enumerate(rounded(original_band, dtype)) if _same(stored_band, cast)
        }
        matching = found if matching is None else matching & found
        if not matching:
            return False
        largest = max(largest, largest_difference(stored_band, original_band) or 0.0)
    return largest


def compare_codes(bands: Iterable[tuple[Reals, Reals]], original: Array) -> float | bool:
    """Compare decoded codes, flat and with their steps; return the largest difference, or False if they do not match.

    Each must be within its step, and all together must have a similar direction.
    """
    done, largest, product, stored_squares, original_squares = 0, 0.0, 0.0, 0.0, 0.0
    for values, steps in bands:
        expected = original[done : done + values.size].astype(np.float64)
        error = np.abs(values - expected)
        if not bool((error <= _tolerances(steps)).all()):
            return False
        largest = max(largest, float(error.max(initial=0.0)))
        product += float(values @ expected)
        stored_squares, original_squares = (
            stored_squares + float(values @ values),
            original_squares + float(expected @ expected),
        )
        done += values.size
    # A scale so large that everything is within a step of zero is no evidence.
    is_alike = product >= LEAST_LIKENESS * np.sqrt(stored_squares * original_squares) and (
        stored_squares > 0 or original_squares <= _NOTHING
    )
    return largest if done == original.size and is_alike else False


def _bands(array: Array) -> Iterator[Array]:
    if array.ndim == 0 or array.size == 0:
        yield array.reshape(-1)
        return
    rows = max(1, BAND // max(1, array[0].size))
    yield from (np.ascontiguousarray(array[start : start + rows]) for start in range(0, len(array), rows))


def least_difference(stored: Array) -> float:
    """Return the absolute difference below which a stored and a computed number count as equal."""
    return _CLAMPED if stored.dtype == np.float16 else 1e-12


def largest_difference(stored: Array, original: Array) -> float | None:
    """Return the largest absolute difference; None if it is not a finite number, or sizes differ."""
    if stored.size != original.size or any(a.dtype.kind in "OSUc" for a in (stored, original)):
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(stored.astype(np.float64).reshape(-1) - original.astype(np.float64).reshape(-1))
    largest = float(difference.max()) if difference.size else 0.0
    return largest if np.isfinite(largest) else None


# sums of rows

_MOST_OFF = 4.0
"""Largest error of a row's projection, relative to the root of its sum of squared steps."""

_MEAN_OFF = 0.25 * 13 / 12
"""Largest mean of the squared errors of projections, relative to a row's sum of squared steps."""

_COARSEST = 4.0
"""Largest ratio of squared steps to squared numbers: coarser codes carry no information on the numbers."""

_ROUNDED = 1e-5
"""Relative rounding error of scales and sums."""

_TILE = 1 << 20
"""Number of elements that are decoded at a time."""


class _Sums(Mutable):
    """Sums of each row: projection, sum of squares, sum of squared steps."""

    projections: Reals
    squares: Reals
    steps: Reals

    @classmethod
    def of_rows(cls, rows: int) -> _Sums:
        return cls(np.zeros(rows), np.zeros(rows), np.zeros(rows))


def compare_sums(encoded: Encoded, layout: AxisLayout, known: tuple[Reals, Reals]) -> bool | None:
    """Whether codes may represent the tensor with these projections and norms; None if that cannot be computed."""
    projections, norms = known
    found = _sum_tiles(encoded, layout) if _is_matrix(encoded, layout) else _sum_arrays(encoded, layout)
    if found is None or found.projections.shape != projections.shape:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(found.projections - projections)
        rounding = _ROUNDED * norms + 1e-12
        tolerances = np.sqrt(found.steps)
        fits = (np.abs(np.sqrt(found.squares) - norms) <= tolerances + rounding).all()
        fits &= (off <= _MOST_OFF * tolerances + 4 * rounding).all()
        size, steps = float((norms * norms).sum()), float(found.steps.sum())
        mean = _MEAN_OFF * (1 + 8 / np.sqrt(max(off.size, 1)))
        fits &= float((np.maximum(off - rounding, 0) ** 2).sum()) <= mean * steps + 1e-12
        least = LEAST_LIKENESS**2
        is_coarse = steps > _COARSEST * size + 1e-12
        is_sized = least * size <= float(found.squares.sum()) + 1e-12 <= size / least + steps + 1e-11
    return bool(fits and is_sized and not is_coarse)


def _is_matrix(encoded: Encoded, layout: AxisLayout) -> bool:
    """Whether a tensor is a matrix that can be decoded tile by tile; others are small enough to be decoded whole."""
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
    """Return decoded codes in PyTorch's order, as an array (rows, all else)."""
    return layout.restore(flat.reshape(encoded.shape)).reshape(layout.shape[0], -1).astype(np.float64)


def is_odd(number: npt.NDArray[np.generic]) -> bool:
    """Whether the last byte of a float32's mantissa is not zero, as usual for a trained number."""
    return number.dtype == np.float32 and bool(number.view(np.uint32)[0] & 0xFF)
