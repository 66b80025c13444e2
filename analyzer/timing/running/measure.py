"""Something that runs, and a schedule -> how long each run took, until the schedule is met."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from analyzer.timing.request import Schedule
from analyzer.timing.running.latency import precision_of

__all__ = ["measure", "profiled_schedule"]

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
    look = schedule.fewest
    with _no_collections():
        start = clock()
        while True:
            before = clock()
            run()
            after = clock()
            times.append(after - before)
            if len(times) < (schedule.fewest if schedule.runs is None else schedule.runs):
                continue
            if schedule.runs is not None or len(times) >= schedule.most:
                break
            if after - start >= schedule.seconds * 1e9:
                break
            if len(times) >= look:
                if precision_of(sorted(times)) <= schedule.precision:
                    break
                look = math.ceil(len(times) * _GROWTH)
    return tuple(times)


def profiled_schedule(schedule: Schedule) -> Schedule:
    """The schedule of runs with profiling: not until their median has settled, but for a mean of each kernel.

    That takes as many runs as time allows; sixty are enough, and each leaves events on the disk.
    """
    runs = None if schedule.runs is None else min(schedule.runs, _PROFILED_MOST)
    return replace(
        schedule, runs=runs, most=max(schedule.fewest, min(schedule.most, _PROFILED_MOST)), precision=-1.0
    )


@contextmanager
def _no_collections() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
