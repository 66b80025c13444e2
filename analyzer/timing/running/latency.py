"""The nanoseconds of runs -> what is said of them: mean, median, quantiles, and how sure the median is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from analyzer.timing.record import Latency

__all__ = ["interval_ranks", "judge_profiled", "precision_of", "quantile", "summarize"]

_FEWEST = 6
"""With fewer values not even the smallest and the largest enclose the median with a chance of 95 %."""

_EXACT = 1000
"""Beyond so many values the normal approximation of the ranks is within one rank of the binomial's."""


def summarize(times_ns: Sequence[int], precision: float) -> Latency:
    """Whole runs in milliseconds; `settled` says whether the median is as sure as `precision` asks for.

    Raises:
        ValueError: there are no times.
    """
    if not times_ns:
        raise ValueError("no runs")
    times = sorted(times_ns)
    found = precision_of(times)
    return Latency(
        mean=sum(times) / len(times) / 1e6,
        median=quantile(times, 0.5) / 1e6,
        p90=quantile(times, 0.9) / 1e6,
        p99=quantile(times, 0.99) / 1e6,
        min=times[0] / 1e6,
        runs=len(times),
        precision=found,
        settled=len(times) >= _FEWEST and found <= precision,
    )


def quantile(ordered: Sequence[int], share: float) -> float:
    """The value at `share` of the way from the first to the last, in between two values in a straight line.

    This is what `numpy.quantile` calls `linear`. (Hyndman and Fan, 1996, definition 7)

    >>> quantile([10, 20, 30, 40], 0.5), quantile([10, 20, 30, 40], 0.9)
    (25.0, 37.0)
    """
    position = share * (len(ordered) - 1)
    below = min(int(position), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def interval_ranks(count: int) -> tuple[int, int]:
    """Positions in sorted values of the two that enclose the median with a chance of at least 95 %.

    Nothing is assumed of how the values are distributed, only that they are independent: each is below the median
    with a chance of one half, so that how many are is binomial. With fewer than six it is the whole range, and the
    chance is less.

    >>> interval_ranks(6), interval_ranks(10), interval_ranks(100)
    ((0, 5), (1, 8), (39, 60))
    """
    if count > _EXACT:
        rank = int((count - 1.959964 * math.sqrt(count)) / 2)
        return rank - 1, count - rank
    rank, below = 0, 1  # below: in how many of 2 ** count cases at most `rank` values are below the median
    while rank < (count - 1) // 2 and 40 * (below + math.comb(count, rank + 1)) <= 2**count:
        rank += 1
        below += math.comb(count, rank)
    return rank, count - 1 - rank


def precision_of(ordered: Sequence[int]) -> float:
    """Half the width of the 95 % confidence interval of the median, as a fraction of the median; 0 where that is 0."""
    low, high = interval_ranks(len(ordered))
    median = quantile(ordered, 0.5)
    return (ordered[high] - ordered[low]) / 2 / median if median else 0.0


_FASTER, _SLOWER = 0.95, 2.0
"""Times the plain median: between these the profiled one is as it may be."""


def judge_profiled(plain: Latency, profiled: Latency) -> Literal["faster", "slower"] | None:
    """Whether profiled runs were clearly faster than plain ones, or took several times as long; None if neither.

    Medians say it, as one run that was held up can make a mean anything.
    """
    if profiled.median < _FASTER * plain.median:
        return "faster"
    return "slower" if profiled.median > _SLOWER * plain.median else None
