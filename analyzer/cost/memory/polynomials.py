"""Sizes at some points of the axes -> polynomials, verified at further points.

A size is fitted as a sum of its axes with a factor each, and as their product. Any other, such as the rounded size of a
strided convolution, has no polynomial.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from analyzer.records import Frozen

Point = Mapping[str, int]


class Polynomial(Frozen):
    """Factors by monomial; a monomial is its axes in order, each repeated as often as its power."""

    terms: tuple[tuple[tuple[str, ...], Fraction], ...] = ()

    @classmethod
    def of(cls, terms: Mapping[tuple[str, ...], Fraction | int]) -> Polynomial:
        """Return the sum of these terms, without those that are 0."""
        kept = ((tuple(sorted(axes)), Fraction(factor)) for axes, factor in terms.items() if factor)
        return cls(tuple(sorted(kept, key=lambda term: (-len(term[0]), term[0]))))

    @classmethod
    def constant(cls, number: int) -> Polynomial:
        return cls.of({(): number})

    def __add__(self, other: Polynomial) -> Polynomial:
        summed: dict[tuple[str, ...], Fraction] = dict(self.terms)
        for axes, factor in other.terms:
            summed[axes] = summed.get(axes, Fraction(0)) + factor
        return Polynomial.of(summed)

    def __mul__(self, other: Polynomial) -> Polynomial:
        made: dict[tuple[str, ...], Fraction] = {}
        for (a, x), (b, y) in itertools.product(self.terms, other.terms):
            key = tuple(sorted((*a, *b)))
            made[key] = made.get(key, Fraction(0)) + x * y
        return Polynomial.of(made)

    def at(self, point: Point) -> int | None:
        """Return its value; None where that is no integer, or an axis has no size."""
        total = Fraction(0)
        for axes, factor in self.terms:
            for axis in axes:
                if axis not in point:
                    return None
                factor *= point[axis]
            total += factor
        return int(total) if total.denominator == 1 else None

    def __str__(self) -> str:
        """The polynomial in Python's syntax.

        >>> str(Polynomial.of({("s", "s"): 2, ("b",): 3, (): -4}))
        '2*s**2 + 3*b - 4'
        """
        text = " + ".join(_term(axes, factor) for axes, factor in self.terms) or "0"
        return text.replace("+ -", "- ")


def _term(axes: Sequence[str], factor: Fraction) -> str:
    powers = [(name, len(list(group))) for name, group in itertools.groupby(axes)]
    parts = [axis_name(name) if power == 1 else f"{axis_name(name)}**{power}" for name, power in powers]
    if not parts:
        return str(factor)
    whole = "" if factor == 1 else f"{factor.numerator}*"
    over = "" if factor.denominator == 1 else f"/{factor.denominator}"
    return whole + "*".join(parts) + over


def axis_name(axis: str) -> str:
    """Return an axis as a Python identifier.

    >>> axis_name("past_sequence_length + 1"), axis_name("9")
    ('past_sequence_length_1', 'axis_9')
    """
    identifier = re.sub(r"\W+", "_", axis).strip("_")
    return f"axis_{identifier}" if identifier[:1].isdigit() else identifier or "axis"


def sample_points(bound: Point) -> tuple[dict[str, int], ...]:
    """Return sample points near one: itself, one more for each axis, and two that only verify the polynomial.

    The sizes are smaller where possible, because a graph may not accept larger ones than requested.
    """
    steps = {axis: -1 if size > _ROOM else 1 for axis, size in bound.items()}
    points = [dict(bound)]
    points += [{**bound, axis: size + steps[axis]} for axis, size in bound.items()]
    for distance in (2, 3):
        points.append({axis: size + distance * steps[axis] for axis, size in bound.items()})
    points[-1] = {
        axis: size + (2 + number % 3) * steps[axis] for number, (axis, size) in enumerate(points[0].items())
    }
    return tuple(points)


_ROOM = 5
"""Size above which sample points are smaller than the given one."""


def fit_size(sizes: Sequence[int], points: Sequence[Point]) -> Polynomial | None:
    """Return the polynomial of a size that has these values at `sample_points`; None where neither form fits."""
    if len(set(sizes)) == 1:
        return Polynomial.constant(sizes[0])
    axes = tuple(points[0])
    for form in (_sum, _product):
        made = form(sizes, points, axes)
        if made is not None and all(
            made.at(point) == size for point, size in zip(points, sizes, strict=True)
        ):
            return made
    return None


def _sum(sizes: Sequence[int], points: Sequence[Point], axes: Sequence[str]) -> Polynomial | None:
    terms: dict[tuple[str, ...], Fraction | int] = {}
    rest = Fraction(sizes[0])
    for number, axis in enumerate(axes, start=1):
        step = Fraction(sizes[number] - sizes[0], points[number][axis] - points[0][axis])
        terms[(axis,)] = step
        rest -= step * points[0][axis]
    terms[()] = rest
    return Polynomial.of(terms)


def _product(sizes: Sequence[int], points: Sequence[Point], axes: Sequence[str]) -> Polynomial | None:
    factor, monomial = Fraction(sizes[0]), []
    for number, axis in enumerate(axes, start=1):
        if sizes[number] == sizes[0]:
            continue
        if sizes[number] * points[0][axis] != sizes[0] * points[number][axis]:
            return None
        monomial.append(axis)
        factor /= points[0][axis]
    return Polynomial.of({tuple(monomial): factor})
