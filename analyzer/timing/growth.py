"""Times at several lengths -> how they grow: constant, linear or quadratic, as far as the points are evidence."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

__all__ = ["FEWEST", "Growth", "Order", "explains", "fit_growth"]

FEWEST = 3
"""Points without which nothing is fitted."""

_Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Order(enum.StrEnum):
    """How a time grows with the length."""

    CONSTANT = "constant"
    LINEAR = "linear"
    QUADRATIC = "quadratic"


@dataclass(frozen=True, slots=True)
class Growth:
    """A fit: constant + linear * n + quadratic * n squared milliseconds at length n; none of the three is negative."""

    order: Order
    constant: float
    linear: float
    quadratic: float
    share: float
    """What the term of the highest order takes of the time at the largest length."""
    r2: float | None
    """The part of the variance that the fit explains, of times weighted by their inverse; None of a constant."""
    points: int

    def at(self, length: float) -> float:
        """The time at a length, in milliseconds."""
        return self.constant + self.linear * length + self.quadratic * length**2


def fit_growth(
    lengths: Sequence[int], times: Sequence[float], errors: Sequence[float] | None = None
) -> Growth | None:
    """Least squares of relative errors, over constant, linear and quadratic growth without negative terms.

    The higher order is taken only where Schwarz's criterion falls by `_EVIDENCE` or more and its term is more than
    `_SHARE` of the time at the largest length. Three points, which any parabola meets, must contradict a line twice as
    much.

    Args:
        lengths: of the axis, at least `FEWEST` different ones.
        times: milliseconds at each length.
        errors: half the width of each time's confidence interval; a residual below it is no evidence.

    Returns:
        None where there are too few points.
    """
    if len(set(lengths)) < FEWEST:
        return None
    n, t = np.asarray(lengths, np.float64), np.asarray(times, np.float64)  # (points,)
    if t.max(initial=0.0) < _LEAST:
        return Growth(Order.CONSTANT, 0.0, 0.0, 0.0, 1.0, None, len(times))
    noise = np.maximum(np.asarray(errors if errors is not None else t * 0) / _DEVIATIONS, _NOISE * t)
    noise = np.maximum(noise, _FLOOR * t.max())
    best: tuple[float, ...] = ()
    score = math.inf
    for terms in range(1, 4):
        fit, fitted = _fit(n / n.max(), t, noise, terms)
        needed = _EVIDENCE if len(set(lengths)) > terms else 2 * _EVIDENCE
        if score - fitted >= needed and fit[-1] > _SHARE * fit.sum():
            best, score = tuple(map(float, fit)), fitted
    return _growth(best, n, t, noise)


def explains(growth: Growth, lengths: Sequence[int], times: Sequence[float]) -> bool:
    """Whether a fit tells how a time grows: it is near every point, and the lengths are far enough apart.

    A time of 1 % of the longest counts as that long: below it lies what the clock cannot tell.

    >>> line = Growth(Order.LINEAR, 0.0, 1.0, 0.0, 1.0, 1.0, 3)
    >>> (
    ...     explains(line, [1, 2, 4], [1, 2, 4]),
    ...     explains(line, [1, 2, 4], [1, 3, 4]),
    ...     explains(line, [4, 5, 6], [4, 5, 6]),
    ... )
    (True, False, False)
    """
    if max(lengths) < _APART * min(lengths):
        return False
    least = _SMALL * max(times)
    return all(
        abs(growth.at(length) - ms) <= _NEAR * max(ms, least)
        for length, ms in zip(lengths, times, strict=True)
    )


_APART = 2
"""Times the shortest length that the longest has to be."""

_NEAR = 0.2
"""What a fit may miss a time by, as a fraction of it."""

_SMALL = 0.01

_LEAST = 1e-9
"""Milliseconds that no clock tells from nothing."""

_NOISE = 0.01
"""What is taken for noise at least, as a fraction of each time: runs of one program differ by as much."""

_FLOOR = 0.001
"""The same as a fraction of the longest time, so that the clock's resolution at short ones does not decide."""

_DEVIATIONS = 1.96
"""Standard deviations in half a confidence interval of 95 %."""

_EVIDENCE = 6.0
"""By how much the criterion falls at least: strong evidence on the scale of Kass and Raftery (1995)."""

_SHARE = 0.05


def _fit(n: _Floats, t: _Floats, noise: _Floats, terms: int) -> tuple[_Floats, float]:
    """The coefficients of 1, n, n squared (as many as `terms`), and the criterion."""
    powers = np.vander(n, terms, increasing=True)  # (points, terms)
    fit = _non_negative(powers / noise[:, None], t / noise)
    residuals = (powers @ fit - t) / noise
    variance = float(np.mean(residuals**2)) + 1.0  # of what the fit leaves, and of the noise
    return fit, len(t) * math.log(variance) + terms * math.log(len(t))


def _non_negative(matrix: _Floats, target: _Floats) -> _Floats:
    """Least squares without negative coefficients: the best of all choices of those that are not 0."""
    columns = matrix.shape[1]
    best, least = np.zeros(columns), float(target @ target)
    for count in range(1, columns + 1):
        for chosen in itertools.combinations(range(columns), count):
            found = np.linalg.lstsq(matrix[:, chosen], target, rcond=None)[0]
            rest = float(np.sum((matrix[:, chosen] @ found - target) ** 2))
            if found.min() >= 0 and rest < least:
                best, least = np.zeros(columns), rest
                best[list(chosen)] = found
    best[best < _NOTHING * best.sum()] = 0.0
    return best


_NOTHING = 1e-9
"""A term that is less than this part of the whole is rounding."""


def _growth(fit: Sequence[float], n: _Floats, t: _Floats, noise: _Floats) -> Growth:
    """The record of a fit over lengths that were divided by the largest."""
    order = tuple(Order)[len(fit) - 1]
    longest = float(n.max())
    constant, linear, quadratic = (*fit, 0.0, 0.0)[:3]
    found = Growth(
        order=order,
        constant=constant,
        linear=linear / longest,
        quadratic=quadratic / longest**2,
        share=fit[-1] / sum(fit),
        r2=None,
        points=len(t),
    )
    if order is Order.CONSTANT:
        return found
    weights = noise**-2
    mean = float(np.average(t, weights=weights))
    fitted = np.array([found.at(length) for length in n.tolist()])
    rest = float(np.sum(weights * (fitted - t) ** 2))
    whole = float(np.sum(weights * (t - mean) ** 2))
    return replace(found, r2=1 - rest / whole)
