from __future__ import annotations

from itertools import groupby

import pytest

from analyzer.timing.request import Schedule
from analyzer.timing.running.measure import Turns, measure_in_turns, precision_of

MS = 1_000_000


class Machine:
    """Machine whose runs take times that depend on its load, on its own clock."""

    def __init__(self, *plain: float, factor: float = 1.25, unsteady: bool = False) -> None:
        self.now = 0
        self.load = lambda now: 1.0
        self.plain, self.factor, self.unsteady = plain, factor, unsteady
        self.called: list[tuple[str, int]] = []
        self.done: list[int] = []

    def run(self, kind: str, point: int) -> None:
        jitter = 1 + (len(self.called) * 7919 % 97) / 97 if self.unsteady else 1
        time = self.plain[point] * (self.factor if kind == "profiled" else 1) * self.load(self.now) * jitter
        self.now += int(time * MS)
        self.called.append((kind, point))

    def measure(self, schedule: Schedule) -> Turns:
        plain, profiled = (
            [lambda kind=kind, at=at: self.run(kind, at) for at in range(len(self.plain))]
            for kind in ("plain", "profiled")
        )
        return measure_in_turns(
            plain, profiled, schedule, report_done=self.done.append, clock=lambda: self.now
        )

    def blocks(self) -> list[tuple[tuple[str, int], int]]:
        return [(who, len(list(runs))) for who, runs in groupby(self.called)]


def mean(times: tuple[int, ...]) -> float:
    return sum(times) / len(times)


def test_profiled_and_plain_runs_of_all_points_take_turns() -> None:
    machine = Machine(10, 20)
    machine.measure(Schedule(runs=10, warmup=0))

    first = [("profiled", 0), ("plain", 0), ("profiled", 1), ("plain", 1)]
    assert [who for who, _ in machine.blocks()] == first * 2
    assert {count for _, count in machine.blocks()} == {1 + 5}


def test_the_first_run_of_a_turn_is_thrown_away() -> None:
    machine = Machine(10)
    turns = machine.measure(Schedule(runs=5, warmup=2))

    assert machine.blocks() == [(("profiled", 0), 2 + 1 + 5), (("plain", 0), 1 + 5)]
    assert turns.order == (None, None, None, 0, 0, 0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("ms", "thrown"), [(1.5, 1), (0.4, 3), (0.001, 5)])
def test_short_runs_are_thrown_away_for_a_millisecond_but_no_more_than_are_kept(
    ms: float, thrown: int
) -> None:
    machine = Machine(ms, factor=1)
    turns = machine.measure(Schedule(runs=5, warmup=0))

    assert turns.order == (None,) * thrown + (0,) * 5
    assert machine.blocks()[1] == (("plain", 0), thrown + 5)


def test_who_goes_on_after_its_own_turn_throws_nothing_away() -> None:
    machine = Machine(10)
    machine.measure(Schedule(runs=500, warmup=0))

    assert machine.called.count(("plain", 0)) == 500 + sum(who == ("plain", 0) for who, _ in machine.blocks())


def test_turns_of_slow_runs_are_short() -> None:
    machine = Machine(1000)
    machine.measure(Schedule(runs=4, warmup=0))

    assert {count for _, count in machine.blocks()} == {1 + 2}


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "profiled"), [(1, 1), (7, 7), (60, 60), (200, 60)])
def test_the_runs_are_as_many_as_requested(runs: int, profiled: int) -> None:
    turns = Machine(1, 2).measure(Schedule(runs=runs))

    assert [len(times) for times in turns.plain] == [runs, runs]
    assert [len(times) for times in turns.profiled] == [profiled, profiled]


def test_the_order_names_the_point_of_each_profiled_run() -> None:
    machine = Machine(1, 3, 2)
    turns = machine.measure(Schedule(runs=20))

    whose = [point for kind, point in machine.called if kind == "profiled"]
    assert len(turns.order) == len(whose)
    assert all(entry in (None, point) for entry, point in zip(turns.order, whose, strict=True))
    assert [turns.order.count(point) for point in range(3)] == [20, 20, 20]


def test_plain_runs_that_settle_early_go_on_beside_the_profiled_ones() -> None:
    machine = Machine(20)
    turns = machine.measure(Schedule(warmup=0))

    assert len(turns.profiled[0]) == 60
    assert len(turns.plain[0]) >= 55
    assert max(count for _, count in machine.blocks()) <= 1 + 10


def test_profiled_runs_are_spread_over_the_time_that_plain_ones_take() -> None:
    machine = Machine(20, unsteady=True)
    turns = machine.measure(Schedule(warmup=0, precision=0.0, seconds=10))

    assert sum(turns.plain[0]) >= 10_000 * MS
    assert len(turns.profiled[0]) == 60
    at = [place for place, (kind, _) in enumerate(machine.called) if kind == "profiled"]
    third = len(machine.called) / 3
    assert [sum(k * third <= place < (k + 1) * third for place in at) for k in range(3)] == pytest.approx(
        [24] * 3, abs=6
    )


def test_load_that_comes_and_goes_meets_both_kinds_and_all_points() -> None:
    machine = Machine(20, 40, unsteady=True)
    machine.load = lambda now: 4.0 if now // (3000 * MS) % 2 else 1.0
    turns = machine.measure(Schedule(precision=0.0))

    for plain, profiled in zip(turns.plain, turns.profiled, strict=True):
        assert mean(profiled) / mean(plain) == pytest.approx(1.25, rel=0.2)
    assert mean(turns.plain[1]) / mean(turns.plain[0]) == pytest.approx(2, rel=0.2)


def test_slow_runs_stop_when_the_time_is_up() -> None:
    turns = Machine(1000, unsteady=True).measure(Schedule(fewest=2, seconds=6, precision=0.0))

    for (times,) in (turns.plain, turns.profiled):
        assert sum(times[:-1]) < 6000 * MS <= sum(times)


def test_points_that_are_done_leave_the_others_alone() -> None:
    machine = Machine(1, 50)
    machine.measure(Schedule(seconds=2, precision=0.0))

    assert machine.done == [1, 2]
    assert machine.blocks()[-1][0][1] == machine.blocks()[-2][0][1]


def test_plain_runs_have_settled_when_the_last_one_is_made() -> None:
    turns = Machine(20, unsteady=True).measure(Schedule(precision=0.05, seconds=1e6, most=100_000))

    assert precision_of(sorted(turns.plain[0])) <= 0.05
