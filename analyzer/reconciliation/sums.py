"""Codes, and a manifest's sums over each row of what they were made of -> whether they can be that, all of them.

Of a large tensor a manifest has no values that codes could be held against, but two numbers of each row (each slice
along the first axis): its projection on a direction of pseudo-random signs, and its norm
(`analyzer.content.channel_statistics`). Every element is in them.

A quantizer that rounds to the nearest errs by at most half a step s. The projection then errs by a sum of independent
terms of at most 0.75 s each, so that it is off by more than 4 sqrt(sum s^2) with a chance below 1e-9 (Hoeffding 1963),
and in the mean over all rows by no more than a quarter of 13/12 sum s^2 in square, 13/12 being the mean square of the
direction's factors. The norm errs by at most sqrt(sum s^2), where no element is off by more than a step. Noise on some
elements is told where it adds up to more than that in any row, or in the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzer.content import channel_direction
from analyzer.decoding import LEAST_LIKENESS, Decoder, Encoded
from analyzer.reconciliation.layouts import Layout

__all__ = ["compare_sums"]

Reals = npt.NDArray[np.float64]

_MOST_OFF = 4.0
"""Of the root of a row's squared steps: how far its projection may be off."""

_MEAN_OFF = 0.25 * 13 / 12
"""Of a row's squared steps: how far, in square, the projections may be off in the mean."""

_MOST_STEPS = 4.0
"""Squared steps by the squares of the numbers: coarser codes hold none of them."""

_ROUNDED = 1e-5
"""Relative error of scales and sums that were rounded on the way."""

_BAND = 1 << 20
"""Elements that are decoded at a time."""


@dataclass(slots=True)
class _Sums:
    """Of each row: projection, sum of squares, sum of squared steps."""

    projections: Reals
    squares: Reals
    steps: Reals

    @classmethod
    def of_rows(cls, rows: int) -> _Sums:
        return cls(np.zeros(rows), np.zeros(rows), np.zeros(rows))


def compare_sums(encoded: Encoded, layout: Layout, known: tuple[Reals, Reals]) -> bool | None:
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
        is_coarse = steps > _MOST_STEPS * size + 1e-12
        is_sized = least * size <= float(found.squares.sum()) + 1e-12 <= size / least + steps + 1e-11
    return bool(fits and is_sized and not is_coarse)


def _is_matrix(encoded: Encoded, layout: Layout) -> bool:
    """Whether it is decoded tile by tile: other tensors are small enough to be decoded whole."""
    permuted = tuple(layout.shape[axis] for axis in layout.axes)
    is_plain = len(layout.shape) == 2 and len(encoded.shape) == 2
    return is_plain and (
        permuted == encoded.shape if layout.window is None else layout.stored == encoded.shape
    )


def _sum_tiles(encoded: Encoded, layout: Layout) -> _Sums | None:
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
    height = max(1, _BAND // max(1, columns.stop - columns.start))
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


def _sum_arrays(encoded: Encoded, layout: Layout) -> _Sums | None:
    bands = list(encoded.bands())
    if not layout.shape or sum(values.size for values, _ in bands) != encoded.numel or not encoded.numel:
        return None
    values, steps = (_rows(np.concatenate(parts), encoded, layout) for parts in zip(*bands, strict=True))
    with np.errstate(invalid="ignore", over="ignore"):
        return _Sums(
            values @ channel_direction(values.shape[1]),
            (values * values).sum(axis=1),
            (steps * steps).sum(axis=1),
        )


def _rows(flat: Reals, encoded: Encoded, layout: Layout) -> Reals:
    """What the entry stands for as PyTorch has it (rows, all else)."""
    return layout.restore(flat.reshape(encoded.shape)).reshape(layout.shape[0], -1).astype(np.float64)
