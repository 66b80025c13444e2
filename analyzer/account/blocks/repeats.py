"""Sequence of units -> its tandem repeats: stretches in which a period of units repeats.

After Main and Lorentz, "An O(n log n) algorithm for finding all repetitions in a string" (1984), for short periods
only, with approximate repeats added at both ends: the first layer of a stage often has an additional weight.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from analyzer.records import Frozen

Unit = tuple[int, ...]
"""Sorted sizes of a unit's weights."""

_LONGEST_PERIOD = 32
"""Most units in one block."""

_MOST_COMPARED = 1_000_000
"""Most pairs of units that are compared; with more units only shorter periods are found."""

_MOST_IN_COMMON = 400_000
"""Most weights of units that are compared one by one to find variants."""

_LONGEST_VARIANT = 3
"""Most units in one block if no two blocks are equal."""

_SAME_WORK = 0.65
"""Least share of equal operators for two blocks to be alike, whatever the sizes of their weights."""

_ALIKE = 0.5
"""Least share of equal weights, by number or by elements, for one block to be a variant of another."""


class Repeat(Frozen):
    """Consecutive blocks with the same number of units."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


def find_repeats(units: Sequence[Unit], *, variants: bool = False) -> tuple[Repeat, ...]:
    """Return the repeats that cover the most elements, without overlap, in order.

    Args:
        units: units in their order.
        variants: whether blocks may repeat each other even if no two are equal.

    >>> find_repeats([(9,), (4, 4), (2,), (4, 4), (2,), (4, 4), (2,), (7,)])
    (Repeat(start=1, period=2, count=3),)
    """
    common = _Common(units)
    taken = _choose(units)
    found: list[Repeat] = []
    for position, (start, end, period) in enumerate(taken):
        low = found[-1].end if found else 0
        high = taken[position + 1][0] if position + 1 < len(taken) else len(units)
        found.append(_phase(common, (start, end, period), low, high))
    if found:
        return tuple(_add_variants(common, found, sorted({repeat.period for repeat in found})))
    if not variants:
        return ()
    candidates = [_add_variants(common, (), (period,)) for period in range(1, _LONGEST_VARIANT + 1)]
    return tuple(max(candidates, key=lambda repeats: _agreement(common, repeats)))


def add_alike(forms: Sequence[Unit], repeats: Sequence[Repeat]) -> tuple[Repeat, ...]:
    """Return the repeats and similar blocks beside them, with weights of other sizes: each of these is its own run.

    A stage of a convolutional network or of a pyramid of attentions is narrower than the next, and may have one block.
    If nothing repeats, consecutive similar blocks are returned; they must then have an equal unit.

    Args:
        forms: operators of each unit as numbers, equal for equal operators.
        repeats: known blocks of equal sizes, in order.

    >>> add_alike([(7,), (1, 1, 2), (1, 1, 2), (8,)], ())
    (Repeat(start=1, period=1, count=1), Repeat(start=2, period=1, count=1))
    """
    common = _Common(forms)
    found = list(repeats) or _find_similar(common)
    ends = [bound for repeat in found for bound in (repeat.start, repeat.end)]
    bounds = list(zip([0, *ends[1::2]], [*ends[::2], len(forms)], strict=True))
    more: list[Repeat] = []
    for number, repeat in enumerate(found):
        period, start, end = repeat.period, repeat.start, repeat.end
        low = max(bounds[number][0], more[-1].end if more else 0)
        while start - period >= low and common.is_variant(start - period, start, period, _SAME_WORK):
            start -= period
            more.append(Repeat(start, period, 1))
        high = bounds[number + 1][1]
        while end + period <= high and common.is_variant(end - period, end, period, _SAME_WORK):
            more.append(Repeat(end, period, 1))
            end += period
    return tuple(sorted([*found, *more], key=lambda repeat: repeat.start))


def _find_similar(common: _Common) -> list[Repeat]:
    """Return blocks similar to the one before or after, as a run each, in the period with the most equal units."""
    candidates = []
    for period in range(1, _LONGEST_VARIANT + 1):
        found: list[Repeat] = []
        start = 0
        while start + 2 * period <= len(common.units):
            count = 1
            while start + (count + 1) * period <= len(common.units) and _is_next(
                common, start + (count - 1) * period, period
            ):
                count += 1
            found += [Repeat(start + block * period, period, 1) for block in range(count) if count > 1]
            start += period * count if count > 1 else 1
        candidates.append(found)
    return max(candidates, key=lambda repeats: _equal(common, repeats))


def _is_next(common: _Common, start: int, period: int) -> bool:
    """Whether the next block is a variant of this one, with an equal unit of several operators."""
    is_equal = any(
        common.of(start + unit, start + period + unit)[0] and len(common.units[start + unit]) > 1
        for unit in range(period)
    )
    return is_equal and common.is_variant(start, start + period, period, _ALIKE)


def _equal(common: _Common, repeats: Sequence[Repeat]) -> tuple[int, int]:
    """Count units that equal those of the block before them, and operators that both have."""
    pairs = [
        common.of(position, position + later.period)
        for one, later in itertools.pairwise(repeats)
        if one.end == later.start
        for position in range(one.start, one.end)
    ]
    return sum(is_equal for is_equal, *_ in pairs), sum(number for _, number, _ in pairs)


class _Common:
    """Common weights of units. Once the limit of comparisons is reached, only equal units have any."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units
        self._numbers = [0, *itertools.accumulate(map(len, units))]
        self._elements = [0, *itertools.accumulate(map(sum, units))]
        self._known: dict[tuple[int, int], tuple[int, int]] = {}
        self._comparisons_left = _MOST_IN_COMMON

    def of(self, one: int, two: int) -> tuple[int, int, int]:
        """Return whether two units are equal, and the number and the elements of the weights that both have."""
        a, b = self.units[one], self.units[two]
        if a == b:
            return 1, len(a), self._elements[one + 1] - self._elements[one]
        found = self._known.get((one, two))
        self._comparisons_left -= len(a) + len(b) if found is None else 1
        if found is None:
            both = Counter(a) & Counter(b) if self._comparisons_left >= 0 else Counter[int]()
            elements = sum(size * count for size, count in both.items())
            found = self._known[one, two] = both.total(), elements
        return 0, *found

    def is_variant(self, one: int, two: int, period: int, share: float = 0.0) -> bool:
        """Whether one block is a variant of another: a unit is equal, or half of the larger block's weights are.

        With `share`, that share of the larger block's weights must be equal, by number alone.
        """
        if self._comparisons_left < 0:
            return False
        pairs = [self.of(one + unit, two + unit) for unit in range(period)]
        if share:
            larger = max(self._numbers[start + period] - self._numbers[start] for start in (one, two))
            return 0 < larger * share <= sum(number for _, number, _ in pairs)
        if any(is_equal and number for is_equal, number, _ in pairs):
            return True
        shares = (
            (sum(number for _, number, _ in pairs), self._numbers),
            (sum(elements for *_, elements in pairs), self._elements),
        )
        return any(
            both and both >= _ALIKE * max(sums[start + period] - sums[start] for start in (one, two))
            for both, sums in shares
        )


_Stretch = tuple[int, int, int]
"""Start, end and period of units that repeat."""


def _choose(units: Sequence[Unit]) -> list[_Stretch]:
    """Return stretches that do not overlap, those that cover most first; of equal ones that of the shorter period."""
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
    """Yield the longest stretches of at least two periods in which every unit equals the one a period later."""
    longest = min(_LONGEST_PERIOD, len(units) // 2, max(1, _MOST_COMPARED // max(1, len(units))))
    numbers: dict[Unit, int] = {}
    alike = [numbers.setdefault(unit, len(numbers)) for unit in units]
    for period in range(1, longest + 1):
        differs = bytes(map(operator.ne, alike, alike[period:])) + b"\1"
        start = 0
        while start < len(differs):
            position = differs.index(1, start)
            if position - start >= period:
                yield start, position + period, period
            start = position + 1


def _phase(common: _Common, stretch: _Stretch, low: int, high: int) -> Repeat:
    """Return the best start of the blocks in a stretch: most blocks, variants included, and most agreement."""
    start, end, period = stretch
    found = [
        _extend(common, Repeat(first, period, (end - first) // period), low, high)
        for first in range(start, start + min(period, (end - start) % period + 1))
    ]
    low = min(repeat.start for repeat in found)
    equal, elements = [0], [0]  # cumulative sums over units compared with those a period later
    for position in range(low, max(repeat.end for repeat in found) - period):
        is_equal, _, both = common.of(position, position + period)
        equal.append(equal[-1] + is_equal)
        elements.append(elements[-1] + both)

    def rank(repeat: Repeat) -> tuple[int, ...]:
        inner = repeat.start + (repeat.count > 2) * period  # the first block may be a variant
        first, last = repeat.start - low, repeat.end - period - low
        agreement = equal[last] - equal[first], elements[last] - elements[first]
        return repeat.count, *agreement, sum(common.units[inner]), -repeat.start

    return max(found, key=rank)


def _extend(common: _Common, repeat: Repeat, low: int, high: int) -> Repeat:
    """Add a block before and a block after, if these are variants of the others."""
    period, start, count = repeat.period, repeat.start, repeat.count
    if start - period >= low and common.is_variant(start - period, start, period):
        start, count = start - period, count + 1
    end = start + period * count
    if end + period <= high and common.is_variant(repeat.start, end, period):
        count += 1
    return Repeat(start, period, count)


def _add_variants(common: _Common, found: Sequence[Repeat], periods: Iterable[int]) -> list[Repeat]:
    """Add blocks between the repeats if each is a variant of the one before it."""
    every = list(found)
    for period in periods:
        bounds = [0, *(bound for repeat in every for bound in (repeat.start, repeat.end)), len(common.units)]
        for low, high in zip(bounds[::2], bounds[1::2], strict=True):
            every += _variants(common, period, low, high)
        every.sort(key=lambda repeat: repeat.start)
    return every


def _agreement(common: _Common, repeats: Iterable[Repeat]) -> tuple[int, int]:
    """Sum up the agreement of blocks with those before them: equal units, and elements of equal weights."""
    equal = elements = 0
    for repeat in repeats:
        for position in range(repeat.start, repeat.end - repeat.period):
            is_equal, _, both = common.of(position, position + repeat.period)
            equal += is_equal
            elements += both
    return equal, elements


def _variants(common: _Common, period: int, low: int, high: int) -> Iterator[Repeat]:
    start = low
    while start + 2 * period <= high:
        end = start + period
        while end + period <= high and common.is_variant(end - period, end, period):
            end += period
        if end - start > period:
            yield Repeat(start, period, (end - start) // period)
            start = end
        else:
            start += 1
