"""Plain and profiled runs of every point -> how long each took, measured in turns.

What else runs on the machine comes and goes. Measured one after the other, it would slow down the one and not the
other; in turns it meets both alike, and all lengths of a sweep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from analyzer.timing.request import Schedule
from analyzer.timing.running.measure import StoppingRule, no_collections, profiled_schedule

__all__ = ["Turns", "measure_in_turns"]

_BLOCK = 5
"""Runs of a turn, fewer where these take longer than `_BLOCK_NS` and there are two."""

_BLOCK_NS = 300_000_000
_SETTLING_NS = 1_000_000
"""For how long the first runs of a turn are thrown away, one at least and `_BLOCK` at most: the threads of the session
whose turn it was still spin for a while, and the caches hold its weights. (Measured: the first run of BERT with 8
tokens is slower by a quarter, of a model of 0.28 ms by a fifth and the second by 6 %, the next within noise.)"""


@dataclass(frozen=True, slots=True)
class Turns:
    """What was measured at each point."""

    plain: tuple[tuple[int, ...], ...]
    profiled: tuple[tuple[int, ...], ...]
    order: tuple[int | None, ...]
    """For each run of the session that profiles, in their order, the point that it is of; None for one thrown away."""


def measure_in_turns(
    plain: Sequence[Callable[[], object]],
    profiled: Sequence[Callable[[], object]],
    schedule: Schedule,
    *,
    tell: Callable[[int], None] = lambda done: None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Turns:
    """Give each point a turn of profiled and one of plain runs, again and again until all have met the schedule.

    Args:
        plain: what runs without profiling, for each point, warm.
        profiled: what runs with it, in the same order, as yet cold.
        schedule: of the plain runs; the profiled ones are at most sixty, spread over the time that the others take.
        tell: called with the number of points that are done when there is one more.
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
                tell(len(points) - len(still))
            left = still
    return Turns(
        plain=tuple(tuple(point.plain.times) for point in points),
        profiled=tuple(tuple(point.profiled.times) for point in points),
        order=tuple(order.runs),
    )


@dataclass(slots=True)
class _Series:
    """The runs of one point that are of one kind."""

    run: Callable[[], object]
    rule: StoppingRule
    clock: Callable[[], int]
    times: list[int] = field(default_factory=list)
    spent_ns: int = 0
    is_done: bool = False
    """Whether it has enough runs, as things stand."""

    def skip(self, runs: int) -> int:
        """Run for nothing so many times."""
        for _ in range(runs):
            self.run()
        return runs

    def settle(self) -> int:
        """Run for nothing until what was done before is forgotten; how many times that is."""
        start, made = self.clock(), 0
        while made == 0 or (made < _BLOCK and self.clock() - start < _SETTLING_NS):
            made += self.skip(1)
        return made

    def take_turn(self) -> int:
        """A few runs; how many these are."""
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
        """How much it has taken of what it may take at most."""
        schedule, made = self.rule.schedule, len(self.times)
        if schedule.runs is not None:
            return made / schedule.runs
        return max(made / schedule.most, self.spent_ns / max(schedule.seconds * 1e9, 1))

    @property
    def is_over(self) -> bool:
        """Whether it may have no more runs."""
        return self.is_done and self.progress >= 1


@dataclass(slots=True)
class _Point:
    number: int
    plain: _Series
    profiled: _Series

    @property
    def is_done(self) -> bool:
        return self.plain.is_done and self.profiled.is_done

    def turns(self) -> Iterator[_Series]:
        """Whose turns come next.

        Plain runs may have to go on for long after sixty profiled ones, so that these wait until they are due. When
        plain runs have settled early, they go on beside the profiled ones that are still to be made.
        """
        due = len(self.profiled.times) <= self.profiled.rule.schedule.most * self.plain.progress
        if not self.profiled.is_done and (due or self.plain.is_done):
            yield self.profiled
        if not self.plain.is_over and not self.is_done:
            yield self.plain


@dataclass(slots=True)
class _Order:
    """Whose turn it was, and is."""

    runs: list[int | None] = field(default_factory=list)
    """As `Turns.order`."""
    last: _Series | None = None

    def give_turns(self, point: _Point) -> None:
        """Let a point's series run that are due; one that follows itself need not settle."""
        for series in point.turns():
            thrown = 0 if series is self.last else series.settle()
            kept = series.take_turn()
            if series is point.profiled:
                self.runs += [None] * thrown + [point.number] * kept
            self.last = series
