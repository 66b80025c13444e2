import gc
from collections.abc import Iterable

import pytest

from analyzer.timing.request import Schedule
from analyzer.timing.running.measure import measure, profiled_schedule

MS = 1_000_000


class Model:
    """Model whose runs take the given times on its own clock; the last time repeats."""

    def __init__(self, *times: int) -> None:
        self.times = times
        self.now = 0
        self.calls = 0

    def run(self) -> None:
        self.now += self.times[min(self.calls, len(self.times) - 1)]
        self.calls += 1

    def clock(self) -> int:
        return self.now


def timed(model: Model, schedule: Schedule) -> tuple[int, ...]:
    return measure(model.run, schedule, model.clock)


def test_warm_up_runs_are_not_among_the_times() -> None:
    model = Model(900, 800, 5)

    assert timed(model, Schedule(runs=3, warmup=2)) == (5, 5, 5)
    assert model.calls == 5


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 5, 40])
def test_a_requested_number_of_runs_is_kept(runs: int) -> None:
    model = Model(3600 * 1000 * MS)

    assert len(timed(model, Schedule(runs=runs, warmup=0, seconds=0.001))) == runs


def test_equal_runs_settle_after_the_fewest() -> None:
    assert len(timed(Model(5 * MS), Schedule(fewest=10))) == 10


def test_the_fewest_runs_are_made_though_time_is_up() -> None:
    assert len(timed(Model(100 * MS, 200 * MS), Schedule(fewest=7, seconds=0.1))) == 7


def test_runs_that_do_not_settle_stop_when_the_time_is_up() -> None:
    times = timed(Model(*alternating(1000)), Schedule(warmup=0, seconds=3.0))

    assert sum(times[:-1]) < 3000 * MS <= sum(times)


def test_runs_that_do_not_settle_stop_at_the_most() -> None:
    assert len(timed(Model(*alternating(500)), Schedule(most=123, seconds=1e6))) == 123


def test_unsteady_runs_settle_with_their_number() -> None:
    schedule = Schedule(precision=0.004, most=10_000, seconds=1e6)
    times = timed(Model(*(MS * (95 + (k * 7919) % 11) for k in range(10_000))), schedule)

    assert 10 < len(times) < 1000


def alternating(count: int) -> Iterable[int]:
    return (MS * (10 if k % 2 else 90) for k in range(count))


def test_the_garbage_collector_waits_and_is_as_it_was() -> None:
    seen = []

    measure(lambda: seen.append(gc.isenabled()), Schedule(runs=2, warmup=0))

    assert seen == [False, False]
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        measure(lambda: None, Schedule(runs=1))

        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_garbage_collector_is_on_again_after_a_run_that_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 / 0, Schedule(warmup=0))

    assert gc.isenabled()


def test_profiled_runs_go_on_when_their_median_has_settled() -> None:
    assert len(timed(Model(MS), profiled_schedule(Schedule()))) == 60


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "made"), [(5, 5), (60, 60), (500, 60)])
def test_profiled_runs_are_as_many_as_requested_up_to_sixty(runs: int, made: int) -> None:
    assert len(timed(Model(MS), profiled_schedule(Schedule(runs=runs)))) == made


def test_slow_profiled_runs_stop_when_the_time_is_up() -> None:
    assert len(timed(Model(1000 * MS), profiled_schedule(Schedule(fewest=4, seconds=6)))) == 6
