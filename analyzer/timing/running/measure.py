"""Something that runs, and a schedule -> how long each run took, until the schedule is met."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from analyzer.timing.request import Schedule
from analyzer.timing.running.latency import precision_of

__all__ = ["StoppingRule", "measure", "no_collections", "profiled_schedule"]

_PROFILED_MOST = 60
_GROWTH = 1.25
"""The median is looked at after `fewest` runs, and each time there are so many times more: sorting then costs less
in all than twice the last."""


def measure(
    run: Callable[[], object], schedule: Schedule, clock: Callable[[], int] = time.perf_counter_ns
) -> tuple[int, ...]:
    """Run for nothing `warmup` times, then time each run by the clock around the call until the schedule is met.

    Python's garbage collector, whose pauses are not the model's, waits meanwhile.
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


@dataclass(slots=True)
class StoppingRule:
    """Whether a schedule is met, asked after each run or a few."""

    schedule: Schedule
    looked: int = 0
    """After how many runs the median was last looked at."""
    settled: bool = False
    """What it was then."""

    def is_met(self, times: Sequence[int], spent_ns: int) -> bool:
        """Whether these runs, which took so long, are enough."""
        schedule, made = self.schedule, len(times)
        if schedule.runs is not None:
            return made >= schedule.runs
        if made < schedule.fewest:
            return False
        if made >= schedule.most or spent_ns >= schedule.seconds * 1e9:
            return True
        if self.settled or made >= math.ceil(self.looked * _GROWTH):
            self.looked, self.settled = made, precision_of(sorted(times)) <= schedule.precision
        return self.settled


def profiled_schedule(schedule: Schedule) -> Schedule:
    """The schedule of runs with profiling: not until their median has settled, but for a mean of each kernel.

    That takes as many runs as time allows; sixty are enough, and each leaves events on the disk.
    """
    runs = None if schedule.runs is None else min(schedule.runs, _PROFILED_MOST)
    return replace(
        schedule, runs=runs, most=max(schedule.fewest, min(schedule.most, _PROFILED_MOST)), precision=-1.0
    )


@contextmanager
def no_collections() -> Iterator[None]:
    """Python's garbage collector waits meanwhile."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
