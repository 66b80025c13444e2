"""Every test runs once, and tests of a unit run in one process, even if a process dies."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from scheduling import WAITING, Scheduling

TESTS = [f"{'abc'[i % 3]}.py::test_{i}" for i in range(60)] + [f"single.py::test_{i}" for i in range(200)]


def unit_of(test: str) -> str:
    return test if test.startswith("single") else test.partition("::")[0]


class Process:
    """Stand-in for an xdist process, with the attributes that a scheduler uses."""

    def __init__(self, name: str) -> None:
        self.name, self.gateway = name, SimpleNamespace(id=name)
        self.waiting: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, places: list[int]) -> None:
        self.waiting += places

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_every_test_runs_once_and_those_of_a_unit_in_one_process(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, seed: int, dies: bool
) -> None:
    monkeypatch.setattr(pytestconfig.option, "loadscopereorder", False)
    monkeypatch.setattr(pytestconfig.option, "tx", ["3*popen"])
    drawn = random.Random(seed)
    scheduling: Any = Scheduling(pytestconfig, None, unit_of)
    processes = [Process(name) for name in "xyz"]
    for process in processes:
        scheduling.add_node(process)
        scheduling.add_node_collection(process, TESTS)
    scheduling.schedule()
    ran: dict[str, str] = {}

    while busy := [process for process in processes if process.waiting]:
        process = drawn.choice(busy)
        if dies and len(ran) == 30 and len(processes) == 3:
            processes.remove(process)
            assert scheduling.remove_node(process) == TESTS[process.waiting[0]]
            continue
        test = TESTS[process.waiting[0]]
        assert test not in ran
        ran[test] = process.name
        scheduling.mark_test_complete(process, process.waiting.pop(0))
        assert len({unit_of(TESTS[place]) for place in process.waiting}) <= WAITING

    assert sorted(ran) == sorted(TESTS)
    assert scheduling.tests_finished
    if not dies:
        assert len({(unit_of(test), name) for test, name in ran.items()}) == len(set(map(unit_of, TESTS)))
