"""A sequence of units -> its tandem repeats: stretches in which a period of units comes again and again.

After Main and Lorentz, "An O(n log n) algorithm for finding all repetitions in a string" (1984), for short periods
only, with what repeats approximately added at both ends: the first layer of a stage often has a weight more.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Repeat", "Unit", "find_repeats"]

Unit = tuple[int, ...]
"""The sizes of a unit's weights, sorted."""

_LONGEST_PERIOD = 32
"""Units in one block."""

_MOST_COMPARED = 1_000_000
"""Pairs of units, or of weights in variants, that are compared; of more only shorter periods are found."""

_LONGEST_VARIANT = 3
"""Units in one block where no two blocks are equal."""

_ALIKE = 0.5
"""Share of two blocks' weights, by number or by elements, that must agree for the one to be a variant of the other."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Blocks of equally many units, one after the other."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


def find_repeats(units: Sequence[Unit], *, variants: bool = False) -> tuple[Repeat, ...]:
    """The repeats that cover the most elements, without overlap, in order.

    Args:
        units: what follows each other.
        variants: blocks of which no two are equal may repeat each other too.

    >>> find_repeats([(9,), (4, 4), (2,), (4, 4), (2,), (4, 4), (2,), (7,)])
    (Repeat(start=1, period=2, count=3),)
    """
    taken = _choose(units)
    found: list[Repeat] = []
    for position, (start, end, period) in enumerate(taken):
        low = found[-1].end if found else 0
        high = taken[position + 1][0] if position + 1 < len(taken) else len(units)
        found.append(_phase(units, (start, end, period), low, high))
    if found:
        return tuple(_add_variants(units, found, sorted({repeat.period for repeat in found})))
    if not variants:
        return ()
    tries = [_add_variants(units, (), (period,)) for period in range(1, _LONGEST_VARIANT + 1)]
    return tuple(max(tries, key=lambda repeats: _agreement(units, repeats)))


_Stretch = tuple[int, int, int]
"""Start, end and period of units that repeat."""


def _choose(units: Sequence[Unit]) -> list[_Stretch]:
    """Stretches that do not overlap, the ones that cover most first; of equal ones that of the shorter period."""
    elements = [0, *itertools.accumulate(map(sum, units))]

    def rank(start: int, end: int, period: int) -> tuple[int, int, int, int]:
        return elements[start] - elements[end - (end - start) % period], period, start, end

    waiting = [rank(*stretch) for stretch in _stretches(units)]
    heapq.heapify(waiting)
    taken: list[_Stretch] = []
    while waiting:
        covered, period, start, end = heapq.heappop(waiting)
        place = bisect.bisect(taken, (start,))
        low = max(start, taken[place - 1][1]) if place else start
        high = min(end, taken[place][0]) if place < len(taken) else end
        if (low, high) == (start, end):
            if covered:
                taken.insert(place, (start, end, period))
            continue
        for part in ((low, high), (taken[place][1], end)) if high < end else ((low, high),):
            if part[1] - part[0] >= 2 * period:
                heapq.heappush(waiting, rank(*part, period))
    return taken


def _stretches(units: Sequence[Unit]) -> Iterator[_Stretch]:
    """Longest stretches of at least two periods in which every unit is equal to the one a period later."""
    longest = min(_LONGEST_PERIOD, len(units) // 2, max(1, _MOST_COMPARED // max(1, len(units))))
    for period in range(1, longest + 1):
        start = 0
        for position in range(len(units) - period + 1):
            is_last = position == len(units) - period
            if is_last or units[position] != units[position + period]:
                if position - start >= period:
                    yield start, position + period, period
                start = position + 1


def _phase(units: Sequence[Unit], stretch: _Stretch, low: int, high: int) -> Repeat:
    """Where in a stretch the blocks begin: where most are found with the variants beside them, at the largest unit."""
    start, end, period = stretch
    found = [
        _extend(units, Repeat(first, period, (end - first) // period), low, high)
        for first in range(start, start + min(period, (end - start) % period + 1))
    ]

    def rank(repeat: Repeat) -> tuple[int, ...]:
        inner = repeat.start + (repeat.count > 2) * period  # the first block may be a variant
        return repeat.count, *_agreement(units, (repeat,)), sum(units[inner]), -repeat.start

    return max(found, key=rank)


def _extend(units: Sequence[Unit], repeat: Repeat, low: int, high: int) -> Repeat:
    """With a block before and a block after, where these are variants of the others."""
    period, start, count = repeat.period, repeat.start, repeat.count
    block = units[start : start + period]
    if start - period >= low and _is_variant(units[start - period : start], block):
        start, count = start - period, count + 1
    end = start + period * count
    if end + period <= high and _is_variant(units[end : end + period], block):
        count += 1
    return Repeat(start, period, count)


def _add_variants(units: Sequence[Unit], found: Sequence[Repeat], periods: Iterable[int]) -> list[Repeat]:
    """Also blocks between the repeats of which each is a variant of the one before it."""
    every = list(found)
    left = _MOST_COMPARED
    weights = sum(map(len, units))
    for period in periods:
        left -= period * weights
        if left < 0:
            break
        bounds = [0, *(bound for repeat in every for bound in (repeat.start, repeat.end)), len(units)]
        for low, high in zip(bounds[::2], bounds[1::2], strict=True):
            every += _variants(units, period, low, high)
        every.sort(key=lambda repeat: repeat.start)
    return every


def _agreement(units: Sequence[Unit], repeats: Iterable[Repeat]) -> tuple[int, int]:
    """How much blocks have in common with those before them: equal units, and elements of equal weights."""
    equal = elements = 0
    for repeat in repeats:
        for position in range(repeat.start + repeat.period, repeat.end):
            before, unit = units[position - repeat.period], units[position]
            equal += before == unit
            elements += _elements(Counter(before) & Counter(unit))
    return equal, elements


def _variants(units: Sequence[Unit], period: int, low: int, high: int) -> Iterator[Repeat]:
    start = low
    while start + 2 * period <= high:
        end = start + period
        while end + period <= high and _is_variant(units[end - period : end], units[end : end + period]):
            end += period
        if end - start > period:
            yield Repeat(start, period, (end - start) // period)
            start = end
        else:
            start += 1


def _is_variant(block: Sequence[Unit], other: Sequence[Unit]) -> bool:
    if any(one and one == two for one, two in zip(block, other, strict=True)):
        return True
    pairs = [(Counter(one), Counter(two)) for one, two in zip(block, other, strict=True)]
    both = [one & two for one, two in pairs]
    if not any(both):
        return False
    by_number, by_elements = (
        sum(map(measure, both))
        / max(sum(measure(one) for one, _ in pairs), sum(measure(two) for _, two in pairs))
        for measure in (Counter.total, _elements)
    )
    return max(by_number, by_elements) >= _ALIKE


def _elements(sizes: Counter[int]) -> int:
    return sum(size * count for size, count in sizes.items())
