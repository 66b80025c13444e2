"""A table (positions, columns) -> whether each column is a sine or cosine of its own frequency, and these are a series.

Rotary embeddings scale their frequencies in ways that configs name (Su et al. 2021, arXiv:2104.09864; Peng et al. 2023,
arXiv:2309.00071, YaRN; Llama 3), and their base may be any number. So no base is looked up: the frequencies are solved
from the numbers, and must be the falling series of a rotary embedding. Other frequencies could encode learned numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from analyzer.records import Frozen, replace

Reals = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]

_LEAST_POSITIONS = 4
"""Fewest positions that test a column: fewer fit some frequency, whatever the numbers are."""

_LOOKED_AT = 16
"""Positions of a first check."""

_ROUNDED = 1.2e-7
"""Relative rounding error of float32."""

_EXACT = 1e-3
"""Slack up to which numbers are rounded to float32; beyond it, their rounding error is half of the slack."""

_VAGUE = 0.05
"""Relative error above which a frequency is unknown: the cosine of a small angle is 1."""


class _Solved(Frozen):
    """Columns that are waves of one amplitude: the frequency of each, and its possible error."""

    frequencies: Reals
    errors: Reals
    is_cosine: Truths
    amplitude: float

    def __getitem__(self, picked: Truths | slice) -> _Solved:
        return _Solved(self.frequencies[picked], self.errors[picked], self.is_cosine[picked], self.amplitude)

    def residual(self, values: Reals, rows: Reals) -> Reals:
        """Return the absolute differences from given numbers at the positions `rows`."""
        angles = rows[:, None] * self.frequencies
        return np.abs(values - self.amplitude * np.where(self.is_cosine, np.cos(angles), np.sin(angles)))


def are_solved_waves(waves: Reals, slack: float) -> bool:
    """Whether a table is sines and cosines of positions, of one amplitude and a series of frequencies.

    Positions are 0, 1, 2, ...; or distances, which count down past 0; or the positions of a grid of two or three axes,
    of which each column counts one. One row may be zero: that of padding.
    """
    if len(waves) < _LEAST_POSITIONS or not waves.size or not bool(np.isfinite(waves).all()):
        return False
    filled = np.flatnonzero(waves.any(axis=0))
    waves = waves[:, : int(filled[-1]) + 1] if filled.size else waves  # zeros at the end fill up a width
    return _are_of_axes(waves, slack, _MOST_AXES)


_MOST_AXES = 3
"""Most axes of a grid: the positions of a video have three."""


def _are_of_axes(waves: Reals, slack: float, axes: int) -> bool:
    """Whether each column counts one axis of a grid of at most so many."""
    if len(waves) < _LEAST_POSITIONS or not waves.shape[1]:
        return False
    return _are_of_a_line(waves, slack) or (
        axes > 1 and any(all(_are_of_axes(part, slack, axes - 1) for part in parts) for parts in grids(waves))
    )


def _are_of_a_line(waves: Reals, slack: float) -> bool:
    if len(waves) < _LEAST_POSITIONS:
        return False
    few = waves[:_LOOKED_AT]
    if len(waves) > _LOOKED_AT and not may_be_waves(few, slack) and _solve(few, slack) is None:
        return False
    zero = _zero_row(waves, slack)
    if zero and _SIDES * (len(waves) - 1 - zero) < zero:
        return False  # positions in reverse order
    found = None if zero is None else _solve(waves[zero::-1] if zero else waves, slack)
    if found is None or (zero and not _is_mirrored(waves[zero:], found, slack)):
        return False
    return _are_one_series(found, slack)


_SIDES = 8
"""Largest ratio of the number of distances before position 0 to the number after it."""


def begin_at_zero(waves: Reals, slack: float) -> bool:
    """Whether the first row of waves (positions, columns) is position 0."""
    return _zero_row(waves, slack) == 0


def _zero_row(waves: Reals, slack: float) -> int | None:
    """Return the row of position 0, where sines are 0 and cosines are the amplitude; None if there is none."""
    sizes = np.abs(waves)
    size = float(sizes.max())
    is_zero: Truths = np.asarray(((sizes <= slack * size) | (sizes >= (1 - slack) * size)).all(axis=1))
    if bool(is_zero[0]):
        return 0
    is_zero &= waves.any(axis=1)
    return int(is_zero.argmax()) if bool(is_zero.any()) else None


def _is_mirrored(waves: Reals, found: _Solved, slack: float) -> bool:
    """Whether the rows after position 0 mirror those before it: cosines stay, sines change sign."""
    rows = np.arange(len(waves), dtype=np.float64)
    mirrored = np.where(found.is_cosine, waves, -waves)
    return bool((found.residual(mirrored, rows) <= _tolerance(rows, slack) * found.amplitude).all())


def _tolerance(rows: Reals, slack: float) -> Reals:
    """Return the allowed error of a wave, (positions, 1): large angles are rounded more before their sine is taken."""
    return np.minimum(slack * (1 + rows[:, None] / 64), max(slack, 0.05))


def may_be_waves(waves: Reals, slack: float) -> bool:
    """Whether each column's t[p + 1] + t[p - 1] is one number times t[p], as for every wave: a first check.

    The number is twice a cosine, so that it is at most 2.
    """
    middle, around = waves[1:-1], waves[2:] + waves[:-2]
    tolerance = 8 * slack * np.abs(waves).max()
    if bool((np.abs(around) > 2 * np.abs(middle) + tolerance).any()):
        return False
    power = (middle * middle).sum(axis=0)
    twice = np.where(power > 0, (middle * around).sum(axis=0) / np.where(power > 0, power, 1), 2.0)
    return bool((np.abs(around - twice * middle) <= tolerance).all())


def grids(waves: Reals) -> Iterator[tuple[Reals, Reals]]:
    """Yield the columns that count rows of a grid, and those that count its columns, as (positions, columns) each."""
    still = (waves[0] == waves[1]).nonzero()[0]
    if not still.size or still.size == waves.shape[1]:
        return
    changed = waves[:, still] != waves[0, still]  # (positions, columns)
    for width in sorted({int(first) for first in changed.argmax(axis=0) if first})[:_MOST_GRIDS]:
        if len(waves) % width:
            continue
        grid = waves.reshape(-1, width, waves.shape[1])  # (rows of the grid, its columns, columns)
        by_column = (grid == grid[:1]).all(axis=(0, 1))
        by_row = (grid == grid[:, :1]).all(axis=(0, 1))
        if bool((by_column | by_row).all()) and bool((by_column & ~by_row).any()):
            is_row = _beside(by_row & ~by_column, by_row & by_column)
            yield grid[:, 0][:, is_row], grid[0][:, ~is_row]


def _beside(marked: Truths, open_: Truths) -> Truths:
    """Return the marks of columns, an open one's from the last that is not: a cosine too slow to change fits either."""
    settled = np.flatnonzero(~open_)
    last = np.searchsorted(settled, np.arange(marked.size), side="right") - 1
    found: Truths = marked[settled[np.maximum(last, 0)]]
    return found


_MOST_GRIDS = 8
"""Most widths of a grid that are tried."""


def _solve(waves: Reals, slack: float) -> _Solved | None:
    """Solve columns as waves of positions from 0 on; None if a column is not a wave."""
    rows = np.arange(len(waves), dtype=np.float64)
    empty: Truths = np.logical_not(waves.any(axis=1))
    empty[0] = False
    if int(empty.sum()) > 1:
        return None
    rows, values = rows[~empty], waves[~empty]  # (positions,), (positions, columns)
    if len(rows) < _LEAST_POSITIONS:
        return None
    size = float(np.abs(values).max())
    is_cosine = np.abs(values[0]) > slack * size
    speeds = _speeds(waves, empty)
    amplitude = _amplitude(values, rows, is_cosine, speeds, slack)
    if amplitude is None or size > amplitude * (1 + 2 * slack):
        return None
    frequencies = _start(values, rows, amplitude, is_cosine, speeds)
    length = _LEAST_POSITIONS
    while True:
        frequencies, precision = _refine(values[:length], rows[:length], amplitude, is_cosine, frequencies)
        if length >= len(rows):
            break
        length *= 2
    found = _Solved(frequencies, np.zeros_like(frequencies), is_cosine, amplitude)
    residual = found.residual(values, rows)
    if not bool((residual <= _tolerance(rows, slack) * amplitude).all()):
        return None
    rounded = _ROUNDED if slack <= _EXACT else slack / 2
    noise = residual.max(axis=0) + rounded * np.abs(values).max(axis=0)
    with np.errstate(divide="ignore"):
        errors = np.where(precision > 0, 3 * noise / np.sqrt(precision), np.inf)
    # A cosine that is still 1 at the last position gives an upper bound of its frequency.
    errors = np.minimum(errors, np.where(is_cosine, np.sqrt(6 * noise / amplitude) / rows[-1], np.inf))
    return replace(found, errors=errors)


def _speeds(waves: Reals, empty: Truths) -> Reals:
    """Return each column's angle between positions, by t[p + 1] + t[p - 1] = 2 cos(f) t[p]; inexact for slow ones."""
    whole = ~(empty[:-2] | empty[1:-1] | empty[2:])
    middle, around = waves[1:-1][whole], (waves[2:] + waves[:-2])[whole]
    power = (middle * middle).sum(axis=0)
    twice = np.where(power > 0, (middle * around).sum(axis=0) / np.where(power > 0, power, 1), 2.0)
    speeds: Reals = np.arccos(np.clip(twice / 2, -1, 1))
    return speeds


_FAST = 0.3
"""Radians per position above which `_speeds` is more precise than the arcsine or arccosine of the second position."""


def _amplitude(values: Reals, rows: Reals, is_cosine: Truths, speeds: Reals, slack: float) -> float | None:
    """Return the positive amplitude of all waves: cosines begin with it, and a fast sine shows it; None if neither."""
    if bool(is_cosine.any()):
        first = values[0][is_cosine]
        amplitude = float(np.median(first))
        return amplitude if amplitude > 0 and bool(np.isclose(first, amplitude, rtol=slack).all()) else None
    fastest = int(speeds.argmax())
    waves = np.sin(rows * speeds[fastest])
    power = float(waves @ waves)
    if speeds[fastest] < _FAST or not power:
        return None
    amplitude = float(waves @ values[:, fastest]) / power
    return amplitude if amplitude > 0 else None


def _start(values: Reals, rows: Reals, amplitude: float, is_cosine: Truths, speeds: Reals) -> Reals:
    first = np.clip(values[1] / amplitude, -1, 1)
    slow = np.where(is_cosine, np.arccos(first), np.arcsin(first)) / rows[1]
    return np.where(speeds > _FAST, speeds, slow)


_SLOW = 0.1
"""Radians at the last position up to which a cosine is no more than a parabola."""


def _refine(
    values: Reals, rows: Reals, amplitude: float, is_cosine: Truths, frequencies: Reals
) -> tuple[Reals, Reals]:
    """Refine frequencies by a few Newton steps of least squares; return also how sharply the numbers determine each."""
    precision = np.zeros_like(frequencies)
    squares = rows * rows
    curvature = (
        2 * (squares @ (1 - values / amplitude)) / float(squares @ squares)
    )  # 1 - cos(f p) is (f p)^2 / 2
    is_slow = is_cosine & (frequencies * rows[-1] < _SLOW)
    frequencies = np.where(is_slow, np.sqrt(np.maximum(curvature, 0)), frequencies)
    for _ in range(4):
        angles = rows[:, None] * frequencies
        sines, cosines = np.sin(angles), np.cos(angles)
        slopes = amplitude * rows[:, None] * np.where(is_cosine, -sines, cosines)
        residual = values - amplitude * np.where(is_cosine, cosines, sines)
        precision = (slopes * slopes).sum(axis=0)
        change = np.where(
            precision > 0, (slopes * residual).sum(axis=0) / np.where(precision > 0, precision, 1), 0
        )
        frequencies = np.abs(frequencies + np.clip(change, -0.5 / rows[-1], 0.5 / rows[-1]))
    return frequencies, precision


def _are_one_series(solved: _Solved, slack: float) -> bool:
    """Whether sines and cosines have the same frequencies, in the same order, and these are a series."""
    one, *others = (
        _once(solved[kind], slack) for kind in (solved.is_cosine, ~solved.is_cosine) if bool(kind.any())
    )
    frequencies, errors = one.frequencies, one.errors
    for other in others:
        if not _are_equal(one, other, slack):
            return False
        is_first = errors <= other.errors
        frequencies = np.where(is_first, frequencies, other.frequencies)
        errors = np.where(is_first, errors, other.errors)
    return are_frequencies_of_axes(frequencies, slack, errors)


def _once(solved: _Solved, slack: float) -> _Solved:
    """Return frequencies without a repetition, of the whole series or of each one."""
    count = solved.frequencies.size
    if count % 2:
        return solved
    for one, other in (
        (solved[: count // 2], solved[count // 2 :]),
        (solved[::2], solved[1::2]),
    ):
        if _are_equal(one, other, slack) and bool(
            (_are_known(one.frequencies, one.errors) == _are_known(other.frequencies, other.errors)).all()
        ):
            return _once(one, slack)
    return solved


def _are_known(frequencies: Reals, errors: Reals) -> Truths:
    known: Truths = errors <= _VAGUE * frequencies
    return known


def _are_equal(one: _Solved, other: _Solved, slack: float) -> bool:
    if one.frequencies.shape != other.frequencies.shape:
        return False
    tolerance = slack * one.frequencies + one.errors + other.errors
    return bool((np.abs(one.frequencies - other.frequencies) <= tolerance).all())


def are_frequencies(values: Reals, slack: float, errors: Reals | None = None) -> bool:
    """Whether numbers are a rotary embedding's frequencies: positive, falling, the first at most 1, of one ratio.

    Long contexts divide the low frequencies (Llama 3, YaRN) by a factor that grows: then at least half of the ratios
    are equal, and those in between are smaller. One or two frequencies may have any ratio. The slowest may be unknown;
    `errors` is the possible error of each.
    """
    if values.ndim != 1 or not values.size:
        return False
    if errors is None:
        if not bool((values > 0).all()):
            return False
        errors = np.zeros_like(values)
    is_known = _are_known(values, errors)
    count = int(is_known.argmin()) if not bool(is_known.all()) else values.size
    known = values[:count]
    if bool(is_known[count:].any()) or not count or not bool((known > 0).all()):
        return False
    off = errors[:count] / known
    if known[0] > 1 + slack + off[0]:
        return False
    ratios, tolerance = known[1:] / known[:-1], slack + off[1:] + off[:-1]
    if not bool((ratios <= 1 + tolerance).all()):
        return False
    if ratios.size < 2:
        return True
    usual = _usual(ratios, tolerance)
    near = np.abs(ratios - usual) <= 2 * tolerance * usual
    if bool(near.all()):
        return True
    # Where the factor grows, consecutive frequencies fall by more than the usual ratio.
    scaled = np.flatnonzero(~near)
    is_one_run = int(scaled[-1] - scaled[0]) + 1 == scaled.size and bool((ratios[scaled] < usual).all())
    return is_one_run and values.size >= _LEAST_SCALED and 2 * int(near.sum()) >= near.size >= 3


def are_frequencies_of_axes(values: Reals, slack: float, errors: Reals | None = None) -> bool:
    """Whether numbers are the frequencies of a position of one axis or two, which are dealt to the axes in turn.

    Two axes have the even and the odd frequencies of one series, one after the other (transformers
    `modeling_pixtral.py`).
    """
    return values.ndim == 1 and any(
        are_frequencies(_in_turn(values, axes), slack, None if errors is None else _in_turn(errors, axes))
        for axes in (1, 2)
        if values.size % axes == 0
    )


def _in_turn(values: Reals, axes: int) -> Reals:
    """Return the first number of each axis, then the second of each, and so on."""
    return np.ravel(values.reshape(axes, -1).T)


_LEAST_SCALED = 8
"""Fewest frequencies of which some may have been scaled."""


def _usual(ratios: Reals, tolerance: Reals) -> float:
    """Return the ratio that most others are near to, within their errors."""
    counts = [
        (int((np.abs(ratios - ratio) <= 2 * tolerance * ratio).sum()), float(ratio)) for ratio in ratios
    ]
    return max(counts)[1]
