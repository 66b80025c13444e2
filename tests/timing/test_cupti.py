"""CUPTI's records of a GPU, from stand-in bindings: no GPU is needed."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from analyzer.timing.running.cupti import Activity, Trace, TraceError, ahead_of, find_activities, is_installed

KERNEL, MEMCPY, MEMSET, RUNTIME, DRIVER = 10, 1, 2, 5, 4


class Cupti:
    """Bindings that return the given records on a flush."""

    def __init__(self, *records: tuple[int, int, int, int]) -> None:
        self.ActivityKind = SimpleNamespace(
            CONCURRENT_KERNEL=KERNEL, MEMCPY=MEMCPY, MEMSET=MEMSET, RUNTIME=RUNTIME, DRIVER=DRIVER
        )
        self.records = records
        self.enabled: set[int] = set()
        self.complete: Callable[[list[Any]], None] = lambda _: None

    def activity_register_callbacks(self, wanted: object, complete: Callable[[list[Any]], None]) -> None:
        self.complete = complete

    def activity_enable(self, kind: int) -> None:
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def activity_flush_all(self, _: int) -> None:
        self.complete(
            [
                SimpleNamespace(kind=kind, correlation_id=correlation, start=start, end=end)
                for kind, correlation, start, end in self.records
            ]
        )

    def get_timestamp(self) -> int:
        return time.time_ns() + 5_000_000


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Cupti], None]:
    def install(cupti: Cupti) -> None:
        module = ModuleType("cupti")
        module.cupti = cupti  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cupti", module)

    return install


def test_activities_of_a_device_have_the_call_that_launched_them(installed: Callable[[Cupti], None]) -> None:
    origin = time.time_ns()
    at = origin + 5_000_000  # on CUPTI's clock
    cupti = Cupti(
        (RUNTIME, 7, at + 10_000, at + 14_000),
        (DRIVER, 7, at + 11_000, at + 13_000),
        (RUNTIME, 8, at + 20_000, at + 23_000),
        (KERNEL, 7, at + 30_000, at + 32_000),
        (MEMCPY, 8, at + 33_000, at + 34_000),
        (RUNTIME, 9, at + 40_000, at + 41_000),  # starts no work
        (KERNEL, 8, at + 50_000, 0),  # has not ended
    )
    installed(cupti)
    trace = Trace()

    assert cupti.enabled == {KERNEL, MEMCPY, MEMSET, RUNTIME, DRIVER}
    found = trace.end(origin)
    assert not cupti.enabled
    # both clocks are read while other work goes on, so their offset is known to some microseconds
    assert [tuple(round(moment - activity.requested, 6) for moment in activity) for activity in found] == [
        (0, 4, 20, 22),
        (0, 3, 13, 14),
    ]
    assert abs(found[0].requested - 10) < 10_000


def test_a_device_that_cannot_be_traced_is_reported(
    monkeypatch: pytest.MonkeyPatch, installed: Callable[[Cupti], None]
) -> None:
    cupti = Cupti()
    monkeypatch.setattr(cupti, "activity_enable", lambda _: 1 // 0)
    installed(cupti)

    with pytest.raises(TraceError, match="ZeroDivisionError"):
        Trace()


def test_what_no_call_launched_belongs_to_no_call() -> None:
    assert find_activities([(1, 10_000, 20_000), (2, 30_000, 40_000)], {1: (5_000, 6_000)}, 0) == [
        Activity(5, 6, 10, 20),
        Activity(30, math.inf, 30, 40),
    ]


def test_activities_are_in_the_order_in_which_they_were_launched() -> None:
    calls = {1: (5_000, 6_000), 2: (7_000, 8_000)}

    assert find_activities([(2, 9_000, 9_500), (1, 9_600, 9_700)], calls, 1_000) == [
        Activity(4, 5, 8.6, 8.7),
        Activity(6, 7, 8, 8.5),
    ]


@pytest.mark.parametrize("host", [time.time_ns, time.monotonic_ns])
def test_a_clock_is_compared_with_the_one_that_timed_the_start(host: Callable[[], int]) -> None:
    assert abs(ahead_of(lambda: host() + 10**9, host()) - 10**9) < 10**7


def test_a_beginning_that_no_clock_knows_is_refused() -> None:
    with pytest.raises(TraceError, match="clock"):
        ahead_of(time.time_ns, time.time_ns() + 10**15)


def test_bindings_that_are_not_there_are_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "cupti", raising=False)

    assert not is_installed()
    (tmp_path / "cupti").mkdir()
    (tmp_path / "cupti" / "__init__.py").touch()
    assert is_installed()
