"""Two arrays, and what rounding makes of one of them -> how far apart they are, and whether that is more than noise.

With one scale the largest numbers would hide the others: a mask of -1e9 the logits beside it, boxes in pixels the
scores. So numbers are held against those of their own size. Whether a small number is the rest of large ones, and
has their rounding, is not asked of its size: it is measured.
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
"""Which numbers are meant."""
_Levels = npt.NDArray[np.int16]

_STEPS = {2: 2.0**-10, 4: 2.0**-23, 8: 2.0**-52}
"""Rounding of a number, relative, by its bytes."""

_STEP = 8
"""Sizes of numbers that are told apart, in a decade."""
_ZERO = -(1 << 14)
_GAP = 2 * _STEP
"""Sizes between two numbers with none between: what is above is a mask, or of another unit."""
_LEAST_BELOW = 4
"""Numbers below a gap; fewer are chance."""
_LEAST_ALIKE = 8
"""Numbers of one size whose rounding is measured by themselves; fewer may all have had luck."""
_WIDER = 4.0
"""How much more numbers of one size may be off than the whole: of many sizes one has luck."""


class Tolerance(Frozen):
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
    coarse: Array | None = None,
) -> Agreement:
    """Compare a value of both sides.

    Args:
        ours: of one side.
        theirs: of the other.
        others: the same as `ours`, computed by other kernels in another order, whose difference is rounding; None
            where there is none.
        depth: nodes that lead to it: rounding grows with the square root of so many steps.
        tolerance: how many times the noise is still the same.
        coarse: the same as `theirs`, computed by kernels that are off by as much as they may be; None where none is.
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
    shaken = _apart(ours, others, finite)
    beside = _Beside(
        a,
        np.abs(a - b),
        shaken,
        _apart(theirs, coarse, finite),
        lambda scale: tolerance.noise(scale, depth, ours.dtype.itemsize),
        tolerance.margin,
    )
    error = float(beside.off.max(initial=0.0))
    levels = _levels(np.abs(a))
    parts = _between_gaps(levels)
    found = [*beside.judge_all(parts)]
    scale, off, noise, verdict = max(found, key=_rank)
    if verdict is Verdict.SAME and (small := beside.find_off(levels, parts)) is not None:
        scale, off, noise, verdict = small
    return Agreement(error, decibel(scale, off), decibel(scale, noise), verdict)


_Judged = tuple[float, float, float, Verdict]
"""Root mean squares of numbers, of what they are apart, of their rounding, and what that says."""
_ORDER = (Verdict.SAME, Verdict.NOT_COMPARED, Verdict.DIFFERS)
"""The worst last."""


def _rank(judged: _Judged) -> tuple[int, float]:
    scale, off, _, verdict = judged
    return _ORDER.index(verdict), off / scale if scale else math.inf if off else 0.0


class _Beside(Frozen, dict=True):
    """Numbers of both sides that are finite, one after another."""

    one: _Reals
    off: _Reals
    """What they are apart."""
    shaken: _Reals | None
    """What rounding makes of them."""
    coarse: _Reals | None
    """What kernels make of them."""
    least: Callable[[float], float]
    """The least that rounding is, of numbers of a size."""
    margin: float

    def judge_all(self, parts: Sequence[_Part]) -> Iterator[_Judged]:
        """Hold each part against its own size; parts come the smallest first.

        What may be no more than the rounding of larger numbers is the same, though rounding makes anything of it.
        """
        is_left = False
        for part in reversed(parts):
            scale, off, noise, verdict = self.judge(part)
            is_rest = is_left and verdict is Verdict.NOT_COMPARED
            yield scale, off, noise, Verdict.SAME if is_rest else verdict
            is_left = is_left or self.shaken is None or bool(self.shaken[part].any())

    def judge(self, part: _Part, wider: float = 1.0) -> _Judged:
        """Hold numbers against their own size.

        One rounding of 1 is always allowed where others are as large: functions that saturate are rounded there.
        """
        scale, off = _size(self.one[part]), _size(self.off[part])
        kernels = 0.0 if self.coarse is None else _size(self.coarse[part])
        least = self.least(scale)
        noise = least if self.shaken is None else max(least, _size(self.shaken[part]))
        room = max(wider * self.margin * noise, self._least_of_one) + 2 * wider * kernels
        if off > room:
            verdict = Verdict.DIFFERS
        elif off > self.margin * least + 2 * kernels and self.margin * noise >= scale:
            verdict = Verdict.NOT_COMPARED  # rounding alone may make anything of it, so that it tells nothing
        else:
            verdict = Verdict.SAME
        return scale, off, max(noise, kernels), verdict

    def find_off(self, levels: _Levels, parts: Sequence[_Part]) -> _Judged | None:
        """Numbers of one size, a decade, that are apart by more than their rounding, and the least of all others'.

        None where there are none, or nobody has measured what rounding makes of them.
        """
        if self.shaken is None:
            return None
        for part in parts:
            most = self.least(_size(self.one[part]))
            for alike in _decades(levels, part):
                scale, off, noise, verdict = self.judge(alike, _WIDER)
                if verdict is Verdict.DIFFERS and off > most:
                    return scale, off, noise, verdict
        return None

    @cached_property
    def _least_of_one(self) -> float:
        return self.least(min(float(np.abs(self.one).max(initial=0.0)), 1.0))


def _size(values: _Reals) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(values * values))) if values.size else 0.0


def _levels(sizes: _Reals) -> _Levels:
    """Each number's size, in eighths of a decade; of zeros `_ZERO`."""
    found = np.full(sizes.shape, _ZERO, np.int16)
    is_some = sizes > 0
    found[is_some] = np.floor(_STEP * np.log10(sizes[is_some]))
    return found


def _between_gaps(levels: _Levels) -> list[_Part]:
    """The places of numbers between which there is no gap, the smallest first."""
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
    """The places of numbers of one power of ten; the few of one are counted with the next greater."""
    powers = levels // _STEP
    waiting = np.zeros(levels.shape, np.bool_)
    for power in np.unique(powers[part]).tolist():
        waiting |= part & (powers == power)
        if np.count_nonzero(waiting) >= _LEAST_ALIKE:
            yield waiting
            waiting = np.zeros(levels.shape, np.bool_)


def _whole(ours: Array, theirs: Array) -> Agreement:
    a, b = ours.astype(np.int64), theirs.astype(np.int64)
    error = float(np.abs(a - b).max(initial=0))
    return Agreement(error, None, None, Verdict.SAME if not error else Verdict.DIFFERS)


_LARGEST = 1e150
"""What is further apart is the least number of two types, which masks are filled with."""


def _apart(one: Array, other: Array | None, finite: _Part) -> _Reals | None:
    """What two runs of one value are apart, where that is a number; None where there is no other run."""
    if other is None or other.shape != one.shape:
        return None
    with np.errstate(invalid="ignore"):
        apart = np.abs(one.astype(np.float64) - other.astype(np.float64))[finite]
    return np.where(apart < _LARGEST, apart, 0.0)


def decibel(scale: float, off: float) -> float | None:
    """Power of a value over that of its error; None where there is none."""
    if not off:
        return None
    return 20 * math.log10(scale / off) if scale else -math.inf if off else None


def worst(first: Agreement | None, second: Agreement) -> Agreement:
    """The worse of two runs."""
    if first is None:
        return second
    ranks = (_ORDER.index(first.verdict), _ORDER.index(second.verdict))
    if ranks[0] != ranks[1]:
        return first if ranks[0] > ranks[1] else second
    return first if (first.max_abs_error or 0.0) >= (second.max_abs_error or 0.0) else second
