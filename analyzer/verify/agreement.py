"""Two arrays, and what rounding makes of one of them -> how far apart they are, and whether that is more than noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analyzer.model.content import Array
from analyzer.verify.record import Agreement, Verdict

_STEPS = {2: 2.0**-10, 4: 2.0**-23, 8: 2.0**-52}
"""Rounding of a number, relative, by its bytes."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far apart two values may be, and still be the same."""

    margin: float = 32.0
    """How many times the noise: two files that sum in other orders have noise of their own each."""
    step: float | None = None
    """What one rounding is off by, relative; None for that of the values' type."""

    def noise(self, scale: float, depth: int, itemsize: int = 4) -> float:
        """No less than one rounding for each node that leads there, for a value of this size (root mean square)."""
        step = _STEPS.get(itemsize, _STEPS[4]) if self.step is None else self.step
        return step * scale * math.sqrt(max(depth, 1)) / 2


_USUAL = Tolerance()


def compare_values(
    ours: Array | None,
    theirs: Array | None,
    others: Array | None,
    depth: int,
    tolerance: Tolerance = _USUAL,
    kernels: float = 0.0,
) -> Agreement:
    """Compare a value of both sides.

    Args:
        ours: of one side.
        theirs: of the other.
        others: the same as `ours`, computed by other kernels in another order, whose difference is rounding; None
            where there is none.
        depth: nodes that lead to it: rounding grows with the square root of so many steps.
        tolerance: how many times the noise is still the same.
        kernels: what kernels may be off by beside rounding, at most (root mean square).
    """
    if ours is None or theirs is None or ours.shape != theirs.shape or ours.dtype.kind not in "biuf":
        return Agreement(None, None, None, Verdict.NOT_COMPARED)
    if theirs.dtype.kind not in "biuf" or not ours.size:
        return Agreement(None, None, None, Verdict.NOT_COMPARED)
    if ours.dtype.kind in "biu" and theirs.dtype.kind in "biu":
        return _whole(ours, theirs)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return Agreement(None, None, None, Verdict.DIFFERS)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return Agreement(None, None, None, Verdict.DIFFERS)
    a, b = a[finite], b[finite]
    error = float(np.abs(a - b).max(initial=0.0))
    scale = float(np.sqrt(np.mean(a * a))) if a.size else 0.0
    least = tolerance.noise(scale, depth, ours.dtype.itemsize)
    noise = _noise(ours, others, least)
    off = float(np.sqrt(np.mean((a - b) ** 2))) if a.size else 0.0
    if off > tolerance.margin * noise + 2 * kernels:
        verdict = Verdict.DIFFERS
    elif off > tolerance.margin * least + 2 * kernels and tolerance.margin * noise >= scale:
        verdict = Verdict.NOT_COMPARED  # rounding alone may make anything of it, so that it tells nothing
    else:
        verdict = Verdict.SAME
    return Agreement(error, decibel(scale, off), decibel(scale, max(noise, kernels)), verdict)


def _whole(ours: Array, theirs: Array) -> Agreement:
    a, b = ours.astype(np.int64), theirs.astype(np.int64)
    error = float(np.abs(a - b).max(initial=0))
    return Agreement(error, None, None, Verdict.SAME if not error else Verdict.DIFFERS)


def _noise(ours: Array, others: Array | None, least: float) -> float:
    """Root mean square of rounding: what was measured, and no less than this."""
    if others is None or others.shape != ours.shape:
        return least
    return max(least, difference_of(ours, others))


def difference_of(one: Array, other: Array) -> float:
    """Root mean square of what two arrays of one shape are apart, where both are finite."""
    with np.errstate(invalid="ignore"):
        difference = one.astype(np.float64) - other.astype(np.float64)
    difference = difference[np.isfinite(difference)]
    return float(np.sqrt(np.mean(difference**2))) if difference.size else 0.0


def decibel(scale: float, off: float) -> float | None:
    """Power of a value over that of its error; None where there is none."""
    if not off:
        return None
    return 20 * math.log10(scale / off) if scale else -math.inf if off else None


def worst(first: Agreement | None, second: Agreement) -> Agreement:
    """The worse of two runs."""
    if first is None:
        return second
    order = (Verdict.SAME, Verdict.NOT_COMPARED, Verdict.DIFFERS)
    ranks = (order.index(first.verdict), order.index(second.verdict))
    if ranks[0] != ranks[1]:
        return first if ranks[0] > ranks[1] else second
    return first if (first.max_abs_error or 0.0) >= (second.max_abs_error or 0.0) else second
