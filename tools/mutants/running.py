"""Mutants and collected tests -> the mutants that the tests notice, each tried in a separate process."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tools.mutants.applying import Loaded
from tools.mutants.changes import MODULE, Mutant

NOTICED, UNNOTICED = 0, 1
_SECONDS = 5  # processor time beyond three times that of the tests; a mutant may loop forever


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a mutant: `killed`, `timeout`, `survived`, or `not reached` by any test."""

    mutant: Mutant
    status: str


@dataclass(slots=True)
class Reached:
    """Time and executed lines of each test."""

    seconds: dict[int, float] = field(default_factory=dict)
    lines: dict[int, set[tuple[str, int]]] = field(default_factory=dict)


class Trial:
    """Plugin of pytest that collects the tests as usual, and runs them once for each mutant that they reach."""

    def __init__(
        self, mutants: Sequence[Mutant], processes: int, seconds: float, report: Callable[[Outcome], None]
    ) -> None:
        self._mutants = mutants
        self._processes = processes
        self._seconds = seconds
        self._report = report

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # pytest has to import it first

        settings.register_profile(
            "mutants", derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        paths = {mutant.path for mutant in self._mutants}
        reached = _run_all(session.items, paths)
        loaded = Loaded(paths)
        gc.freeze()  # else the first collection of each process copies the memory of all
        tests_of = _by_line(reached)
        children: dict[int, Mutant] = {}
        for mutant in self._mutants:
            own = {n for n, item in enumerate(session.items) if item.path.stem == f"test_{mutant.path.stem}"}
            tests = list(_quickest(_tests(mutant, tests_of, own), own, reached.seconds, self._seconds))
            if not tests:
                self._report(Outcome(mutant, "not reached"))
                continue
            if len(children) == self._processes:
                self._wait(children)
            seconds = _SECONDS + 3 * sum(reached.seconds[number] for number in tests)
            items = [session.items[number] for number in tests]
            children[_fork(lambda: _try_mutant(loaded, mutant, items, seconds))] = mutant  # noqa: B023 - called at once
        while children:
            self._wait(children)
        return True

    def _wait(self, children: dict[int, Mutant]) -> None:
        child, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        word = {NOTICED: "killed", UNNOTICED: "survived"}.get(code, "timeout" if code < 0 else "killed")
        self._report(Outcome(children.pop(child), word))


def _tests(mutant: Mutant, tests_of: Mapping[tuple[str, int], set[int]], own: Set[int]) -> set[int]:
    """Return tests that run a line of the statement; for a table, those that run its module or are the module's own."""
    path = str(mutant.path)
    if mutant.function == MODULE:
        return set(own).union(*(tests for (file, _), tests in tests_of.items() if file == path))
    return set().union(*(tests_of.get((path, line), ()) for line in mutant.lines))


def _quickest(
    tests: Iterable[int], own: Set[int], seconds: Mapping[int, float], limit: float
) -> Iterator[int]:
    """Yield the module's own tests, then the fastest others until these exceed the limit together."""
    spent = 0.0
    for number in sorted(tests, key=lambda number: (number not in own, seconds[number])):
        if number in own or spent <= limit:
            yield number
        spent += 0.0 if number in own else seconds[number]


def _by_line(reached: Reached) -> Mapping[tuple[str, int], set[int]]:
    tests: dict[tuple[str, int], set[int]] = defaultdict(set)
    for number, lines in reached.lines.items():
        for line in lines:
            tests[line].add(number)
    return tests


def _run_all(items: Sequence[pytest.Item], paths: set[Path]) -> Reached:
    """Run every test once, in a separate process: mutants must not inherit the fixtures and caches that it fills."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "reached")

        def work() -> int:
            found = _reached(items, {str(path) for path in paths})
            answer.write_bytes(pickle.dumps(found))
            return isinstance(found, str)

        _, status = os.waitpid(_fork(work), 0)
        found = pickle.loads(answer.read_bytes()) if answer.exists() else "the process of the tests"
        if status:
            sys.exit(f"fails without any mutant: {found}")
        assert isinstance(found, Reached)
        return found


def _reached(items: Sequence[pytest.Item], paths: set[str]) -> Reached | str:
    """Return the lines that the tests run, or the name of the first test that fails."""
    reached = Reached()
    lines: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in paths:
            return None
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    threading.settrace(trace)
    for number, (item, following) in enumerate(_in_order(items)):
        lines.clear()
        sys.settrace(trace)
        start = time.process_time()
        passed = _passes(item, following)
        sys.settrace(None)
        if not passed:
            return item.nodeid
        reached.seconds[number] = time.process_time() - start
        if lines:
            reached.lines[number] = set(lines)
    return reached


def _try_mutant(loaded: Loaded, mutant: Mutant, items: Sequence[pytest.Item], seconds: float) -> int:
    limit = int(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    loaded.apply(mutant)
    return UNNOTICED if all(_passes(item, following) for item, following in _in_order(items)) else NOTICED


def _in_order(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def _fork(work: Callable[[], int]) -> int:
    """Fork a silent process that does the work and exits with its result; return the process id."""
    child = os.fork()
    if child:
        return child
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    code = 2
    try:
        code = work()
    finally:
        os._exit(code)
