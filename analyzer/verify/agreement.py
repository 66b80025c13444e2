"""Two arrays, and the rounding error of one of them -> how far apart they are, and whether by more than noise.

With one scale for all, the largest numbers would hide the others: a mask of -1e9 would hide the logits beside it, boxes
in pixels would hide the scores. So numbers are compared with numbers of their own magnitude. A small number may be the
difference of large ones, and then has their rounding error: that is not guessed from its magnitude but measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from analyzer.model.content import Array
from analyzer.records import Frozen
from analyzer.verify.record import Agreement, Verdict

_Reals = npt.NDArray[np.float64]
_Part = npt.NDArray[np.bool_]
"""Mask of the numbers that are meant."""
_Levels = npt.NDArray[np.int16]

_STEPS = {2: 2.0**-10, 4: 2.0**-23, 8: 2.0**-52}
"""Relative rounding error of a number, by its size in bytes."""

_STEP = 8
"""Number of magnitudes per decade that are told apart."""
_ZERO = -(1 << 14)
_GAP = 2 * _STEP
"""Empty magnitudes between two numbers that make a gap: the numbers above it are masks, or have another unit."""
_LEAST_BELOW = 4
"""Fewest numbers below a gap; fewer may be there by chance."""
_LEAST_ALIKE = 8
"""Fewest numbers of one magnitude whose rounding is measured by itself; fewer may all be accurate by luck."""
_WIDER = 4.0
"""Factor by which numbers of one magnitude may be off more than the whole: among many magnitudes, one is lucky."""


class Tolerance(Frozen):
    """Largest distance of two values that still count as the same."""

    margin: float = 32.0
    """Factor on the noise: two files that sum in different orders have noise of their own each."""
    step: float | None = None
    """Relative error of one rounding; None for that of the values' type."""

    def noise(self, scale: float, depth: int, itemsize: int = 4) -> float:
        """Return the least noise of a value whose root mean square is `scale`: one rounding per node before it."""
        step = _STEPS.get(itemsize, _STEPS[4]) if self.step is None else self.step
        return step * scale * math.sqrt(max(depth, 1)) / 2


_USUAL = Tolerance()


def compare_values(
    ours: Array | None,
    theirs: Array | None,
    others: Array | None,
    depth: int,
    tolerance: Tolerance = _USUAL,
    coarse: Array | None = None,
) -> Agreement:
    """Compare one value of both sides.

    Args:
        ours: the value on one side.
        theirs: the value on the other side.
        others: the same as `ours`, computed by other kernels in another order, so that the difference is rounding; None
            where there is none.
        depth: number of nodes that lead to the value: rounding grows with the square root of so many steps.
        tolerance: how many times the noise is still the same.
        coarse: the same as `theirs`, computed by kernels with their largest possible error; None where there is none.
    """
    if ours is None or theirs is None or ours.shape != theirs.shape or ours.dtype.kind not in "biuf":
        return Agreement(None, None, None, Verdict.NOT_COMPARED)
    if theirs.dtype.kind not in "biuf" or not ours.size:
        return Agreement(None, None, None, Verdict.NOT_COMPARED)
    if ours.dtype.kind in "biu" and theirs.dtype.kind in "biu":
        return _compare_integers(ours, theirs)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return Agreement(None, None, None, Verdict.DIFFERS)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return Agreement(None, None, None, Verdict.DIFFERS)
    a, b = a[finite], b[finite]
    rounding = _difference_of(ours, others, finite)
    comparison = _Comparison(
        a,
        np.abs(a - b),
        rounding,
        _difference_of(theirs, coarse, finite),
        lambda scale: tolerance.noise(scale, depth, ours.dtype.itemsize),
        tolerance.margin,
    )
    error = float(comparison.differences.max(initial=0.0))
    levels = _levels(np.abs(a))
    parts = _split_at_gaps(levels)
    found = [*comparison.judge_all(parts)]
    scale, difference, noise, verdict = max(found, key=_rank)
    if verdict is Verdict.SAME and (small := comparison.find_differing_decade(levels, parts)) is not None:
        scale, difference, noise, verdict = small
    return Agreement(error, decibel(scale, difference), decibel(scale, noise), verdict)


_Judged = tuple[float, float, float, Verdict]
"""Root mean squares of the numbers, of their differences and of their rounding, and the verdict."""
_ORDER = (Verdict.SAME, Verdict.NOT_COMPARED, Verdict.DIFFERS)
"""Verdicts, the worst last."""


def _rank(judged: _Judged) -> tuple[int, float]:
    scale, difference, _, verdict = judged
    return _ORDER.index(verdict), difference / scale if scale else math.inf if difference else 0.0


class _Comparison(Frozen, dict=True):
    """Finite numbers of both sides, flattened."""

    one: _Reals
    differences: _Reals
    """Absolute differences of the two sides."""
    rounding: _Reals | None
    """Rounding error of each number."""
    coarse: _Reals | None
    """Error of each number from inexact kernels."""
    least_noise: Callable[[float], float]
    """Function from the RMS of numbers to the least rounding error they have."""
    margin: float

    def judge_all(self, parts: Sequence[_Part]) -> Iterator[_Judged]:
        """Judge each part by its own magnitude; parts come the smallest first.

        Rounding alone may explain any value of a small part; beside larger numbers that round, such a part counts as
        the same.
        """
        is_left = False
        for part in reversed(parts):
            scale, difference, noise, verdict = self.judge(part)
            is_rest = is_left and verdict is Verdict.NOT_COMPARED
            yield scale, difference, noise, Verdict.SAME if is_rest else verdict
            is_left = is_left or self.rounding is None or bool(self.rounding[part].any())

    def judge(self, part: _Part, wider: float = 1.0) -> _Judged:
        """Judge numbers by their own magnitude.

        One rounding of 1 is always allowed where some numbers are as large: functions that saturate round at 1.
        """
        scale, difference = _size(self.one[part]), _size(self.differences[part])
        kernels = 0.0 if self.coarse is None else _size(self.coarse[part])
        least_noise = self.least_noise(scale)
        noise = least_noise if self.rounding is None else max(least_noise, _size(self.rounding[part]))
        room = max(wider * self.margin * noise, self._least_noise_of_one) + 2 * wider * kernels
        if difference > room:
            verdict = Verdict.DIFFERS
        elif difference > self.margin * least_noise + 2 * kernels and self.margin * noise >= scale:
            # Rounding alone may give any value, so the difference tells nothing.
            verdict = Verdict.NOT_COMPARED
        else:
            verdict = Verdict.SAME
        return scale, difference, max(noise, kernels), verdict

    def find_differing_decade(self, levels: _Levels, parts: Sequence[_Part]) -> _Judged | None:
        """Return the result for the first decade that differs by more than its rounding and its part's least noise.

        None where there is none, or where rounding was not measured.
        """
        if self.rounding is None:
            return None
        for part in parts:
            most = self.least_noise(_size(self.one[part]))
            for alike in _decades(levels, part):
                scale, difference, noise, verdict = self.judge(alike, _WIDER)
                if verdict is Verdict.DIFFERS and difference > most:
                    return scale, difference, noise, verdict
        return None

    @cached_property
    def _least_noise_of_one(self) -> float:
        return self.least_noise(min(float(np.abs(self.one).max(initial=0.0)), 1.0))


def _size(values: _Reals) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(values * values))) if values.size else 0.0


def _levels(sizes: _Reals) -> _Levels:
    """Return each number's magnitude, in eighths of a decade; `_ZERO` for zeros."""
    found = np.full(sizes.shape, _ZERO, np.int16)
    is_some = sizes > 0
    found[is_some] = np.floor(_STEP * np.log10(sizes[is_some]))
    return found


def _split_at_gaps(levels: _Levels) -> list[_Part]:
    """Split numbers at the gaps between their magnitudes into parts, the smallest first."""
    there, counts = np.unique(levels, return_counts=True)
    below = np.cumsum(counts)
    starts = [
        int(there[at + 1])
        for at in np.flatnonzero(np.diff(there.astype(np.int64)) > _GAP).tolist()
        if there[at] != _ZERO and below[at] >= _LEAST_BELOW
    ]
    bounds = [_ZERO, *starts, -_ZERO]
    return [(levels >= low) & (levels < high) for low, high in itertools.pairwise(bounds)]


def _decades(levels: _Levels, part: _Part) -> Iterator[_Part]:
    """Yield the numbers of each power of ten; a power with few numbers is merged into the next greater one."""
    powers = levels // _STEP
    waiting = np.zeros(levels.shape, np.bool_)
    for power in np.unique(powers[part]).tolist():
        waiting |= part & (powers == power)
        if np.count_nonzero(waiting) >= _LEAST_ALIKE:
            yield waiting
            waiting = np.zeros(levels.shape, np.bool_)


def _compare_integers(ours: Array, theirs: Array) -> Agreement:
    a, b = ours.astype(np.int64), theirs.astype(np.int64)
    error = float(np.abs(a - b).max(initial=0))
    return Agreement(error, None, None, Verdict.SAME if not error else Verdict.DIFFERS)


_LARGEST = 1e150
"""Largest difference that counts; a larger one lies between the minima of two types, with which masks are filled."""


def _difference_of(one: Array, other: Array | None, finite: _Part) -> _Reals | None:
    """Return the difference of two runs of one value, at its finite elements; None where there is no other run."""
    if other is None or other.shape != one.shape:
        return None
    with np.errstate(invalid="ignore"):
        difference = np.abs(one.astype(np.float64) - other.astype(np.float64))[finite]
    return np.where(difference < _LARGEST, difference, 0.0)


def decibel(scale: float, off: float) -> float | None:
    """Return the ratio of a value's power to that of its error, in dB; None where there is no error."""
    if not off:
        return None
    return 20 * math.log10(scale / off) if scale else -math.inf if off else None


def worst(first: Agreement | None, second: Agreement) -> Agreement:
    """Return the worse result of two runs."""
    if first is None:
        return second
    ranks = (_ORDER.index(first.verdict), _ORDER.index(second.verdict))
    if ranks[0] != ranks[1]:
        return first if ranks[0] > ranks[1] else second
    return first if (first.max_abs_error or 0.0) >= (second.max_abs_error or 0.0) else second
