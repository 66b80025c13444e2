"""A function to run, and a schedule -> the time of each run, plain and profiled in turns, and their statistics."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from analyzer.records import Frozen, Mutable, field, replace
from analyzer.timing.record import Latency
from analyzer.timing.request import Schedule

_FEWEST = 6
"""With fewer values, even the smallest and the largest do not enclose the median with a probability of 95 %."""

_EXACT = 1000
"""With more values, the normal approximation of the ranks is within one rank of the binomial's."""


def summarize(times_ns: Sequence[int], precision: float) -> Latency:
    """Summarize whole runs in milliseconds; `settled` says whether the median is as precise as `precision`.

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
        settled=found is not None and found <= precision,
    )


def quantile(ordered: Sequence[int], share: float) -> float:
    """Return the value at `share` of the way from the first to the last, with linear interpolation.

    This is `linear` in `numpy.quantile`. (Hyndman and Fan, 1996, definition 7)

    >>> quantile([10, 20, 30, 40], 0.5), quantile([10, 20, 30, 40], 0.9)
    (25.0, 37.0)
    """
    position = share * (len(ordered) - 1)
    below = min(int(position), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def interval_ranks(count: int) -> tuple[int, int]:
    """Return the positions of the two sorted values that enclose the median with a probability of at least 95 %.

    The values may have any distribution, but are independent: each is below the median with a probability of one half,
    so the number of those below is binomial. With fewer than six values the result is the whole range, with a lower
    probability.

    >>> interval_ranks(6), interval_ranks(10), interval_ranks(100)
    ((0, 5), (1, 8), (39, 60))
    """
    if count > _EXACT:
        rank = int((count - 1.959964 * math.sqrt(count)) / 2)
        return rank - 1, count - rank
    rank, below = 0, 1  # below: cases of 2 ** count with at most `rank` values below the median
    while rank < (count - 1) // 2 and 40 * (below + math.comb(count, rank + 1)) <= 2**count:
        rank += 1
        below += math.comb(count, rank)
    return rank, count - 1 - rank


def precision_of(ordered: Sequence[int]) -> float | None:
    """Return half the width of the median's 95 % confidence interval, as a fraction of the median; 0 if that is 0.

    Fewer than six values have no such interval: the result is None.
    """
    if len(ordered) < _FEWEST:
        return None
    low, high = interval_ranks(len(ordered))
    median = quantile(ordered, 0.5)
    return (ordered[high] - ordered[low]) / 2 / median if median else 0.0


_FASTER, _SLOWER = 0.95, 2.0
"""Limits of a usual profiled median, as multiples of the plain one."""


def judge_profiled(plain: Latency, profiled: Latency) -> Literal["faster", "slower"] | None:
    """Return whether profiled runs were clearly faster than plain ones, or several times slower; None if neither.

    Medians decide, because a single delayed run can distort a mean.
    """
    if profiled.median < _FASTER * plain.median:
        return "faster"
    return "slower" if profiled.median > _SLOWER * plain.median else None


_PROFILED_MOST = 60
_GROWTH = 1.25
"""Ratio of run counts between two checks of the median, after the first `fewest` runs: all sorting together then costs
less than twice the last."""


def measure(
    run: Callable[[], object], schedule: Schedule, clock: Callable[[], int] = time.perf_counter_ns
) -> tuple[int, ...]:
    """Run `warmup` times untimed, then time each run by the clock around the call until the schedule is met.

    Python's garbage collector is off meanwhile, because its pauses are not the model's.
    """
    for _ in range(schedule.warmup):
        run()
    times: list[int] = []
    rule = StoppingRule(schedule)
    with no_collections():
        start = after = clock()
        while not rule.is_met(times, after - start):
            before = clock()
            run()
            after = clock()
            times.append(after - before)
    return tuple(times)


class StoppingRule(Mutable):
    """Decides whether a schedule is met; asked after one or a few runs."""

    schedule: Schedule
    looked: int = 0
    """Number of runs at the last check of the median."""
    settled: bool = False
    """Result of that check."""

    def is_met(self, times: Sequence[int], spent_ns: int) -> bool:
        """Return whether these runs, with this total time, are enough."""
        schedule, made = self.schedule, len(times)
        if schedule.runs is not None:
            return made >= schedule.runs
        if made < schedule.fewest:
            return False
        if made >= schedule.most or spent_ns >= schedule.seconds * 1e9:
            return True
        if self.settled or made >= math.ceil(self.looked * _GROWTH):
            found = precision_of(sorted(times))
            self.looked, self.settled = made, found is not None and found <= schedule.precision
        return self.settled


def profiled_schedule(schedule: Schedule) -> Schedule:
    """Return the schedule of runs with profiling: not for a settled median, but for a mean of each kernel.

    For the mean, more runs are better; but sixty are enough, and each leaves events on the disk.
    """
    runs = None if schedule.runs is None else min(schedule.runs, _PROFILED_MOST)
    return replace(
        schedule, runs=runs, most=max(schedule.fewest, min(schedule.most, _PROFILED_MOST)), precision=-1.0
    )


@contextmanager
def no_collections() -> Iterator[None]:
    """Keep Python's garbage collector off while the block runs."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# Other load on the machine comes and goes. If plain and profiled runs came one after the other, it might slow down only
# one kind; in turns it slows down both alike, and all lengths of a sweep.


_BLOCK = 5
"""Runs of a turn; fewer if they take longer than `_BLOCK_NS` and there are two."""

_BLOCK_NS = 300_000_000
_SETTLING_NS = 1_000_000
"""Time for which the first runs of a turn are discarded, one at least and `_BLOCK` at most: the threads of the other
session still spin for a while, and the caches hold its weights. (Measured: the first run of BERT with 8 tokens is
slower by a quarter; of a model of 0.28 ms the first is slower by a fifth and the second by 6 %, and the next is within
noise.)"""


class Turns(Frozen):
    """Measurements of each point."""

    plain: tuple[tuple[int, ...], ...]
    profiled: tuple[tuple[int, ...], ...]
    order: tuple[int | None, ...]
    """For each run of the session that profiles, in order, its point; None for a discarded run."""


def measure_in_turns(
    plain: Sequence[Callable[[], object]],
    profiled: Sequence[Callable[[], object]],
    schedule: Schedule,
    *,
    report_done: Callable[[int], None] = lambda done: None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Turns:
    """Give each point a turn of profiled and one of plain runs, again and again until all have met the schedule.

    Args:
        plain: functions that run without profiling, one for each point, warmed up.
        profiled: functions that run with profiling, in the same order, not warmed up yet.
        schedule: of the plain runs; the profiled ones are at most sixty, spread over the time of the plain ones.
        report_done: receives the number of points that are done, whenever it grows.
        clock: returns the time in nanoseconds.
    """
    order = _Order()
    left = points = [
        _Point(
            number,
            plain=_Series(without, StoppingRule(schedule), clock),
            profiled=_Series(within, StoppingRule(profiled_schedule(schedule)), clock),
        )
        for number, (without, within) in enumerate(zip(plain, profiled, strict=True))
    ]
    with no_collections():
        for point in points:
            order.runs += [None] * point.profiled.skip(schedule.warmup)
        while left:
            for point in left:
                order.give_turns(point)
            still = [point for point in left if not point.is_done]
            if len(still) < len(left):
                report_done(len(points) - len(still))
            left = still
    return Turns(
        plain=tuple(tuple(point.plain.times) for point in points),
        profiled=tuple(tuple(point.profiled.times) for point in points),
        order=tuple(order.runs),
    )


class _Series(Mutable):
    """Runs of one kind at one point."""

    run: Callable[[], object]
    rule: StoppingRule
    clock: Callable[[], int]
    times: list[int] = field(default_factory=list)
    spent_ns: int = 0
    is_done: bool = False
    """Whether it has enough runs at present."""

    def skip(self, runs: int) -> int:
        """Run a number of times untimed, and return the number."""
        for _ in range(runs):
            self.run()
        return runs

    def settle(self) -> int:
        """Run untimed until effects of other work have faded, and return the number of runs."""
        start, made = self.clock(), 0
        while made == 0 or (made < _BLOCK and self.clock() - start < _SETTLING_NS):
            made += self.skip(1)
        return made

    def take_turn(self) -> int:
        """Time a few runs, and return their number."""
        start = now = self.clock()
        made = 0
        while not self.is_over and made < _BLOCK and (made < 2 or now - start < _BLOCK_NS):
            before = self.clock()
            self.run()
            now = self.clock()
            self.times.append(now - before)
            self.spent_ns += now - before
            made += 1
            self.is_done = self.rule.is_met(self.times, self.spent_ns)
        return made

    @property
    def progress(self) -> float:
        """Share of its largest number of runs, or of its time, that it has used."""
        schedule, made = self.rule.schedule, len(self.times)
        if schedule.runs is not None:
            return made / schedule.runs
        return max(made / schedule.most, self.spent_ns / max(schedule.seconds * 1e9, 1))

    @property
    def is_over(self) -> bool:
        """Whether it may have no more runs."""
        return self.is_done and self.progress >= 1


class _Point(Mutable):
    number: int
    plain: _Series
    profiled: _Series

    @property
    def is_done(self) -> bool:
        return self.plain.is_done and self.profiled.is_done

    def turns(self) -> Iterator[_Series]:
        """Yield the series whose turns come next.

        Plain runs may go on long after sixty profiled ones, so profiled runs wait until they are due. If plain runs
        have settled early, they go on beside the remaining profiled ones.
        """
        due = len(self.profiled.times) <= self.profiled.rule.schedule.most * self.plain.progress
        if not self.profiled.is_done and (due or self.plain.is_done):
            yield self.profiled
        if not self.plain.is_over and not self.is_done:
            yield self.plain


class _Order(Mutable):
    """Order of the turns."""

    runs: list[int | None] = field(default_factory=list)
    """As in `Turns.order`."""
    last: _Series | None = None

    def give_turns(self, point: _Point) -> None:
        """Run a point's series that are due; a series that follows itself need not settle."""
        for series in point.turns():
            discarded = 0 if series is self.last else series.settle()
            kept = series.take_turn()
            if series is point.profiled:
                self.runs += [None] * discarded + [point.number] * kept
            self.last = series
