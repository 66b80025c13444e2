"""Assignment of tests to processes of xdist: those that share something go together, the rest one by one.

xdist's own schedulers search all that a process has done whenever a test ends, which takes a fifth of the machine for
twenty thousand tests. Here a process's work is only what it has yet to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

WAITING = 12
"""Tests that are queued in a process, so that it does not wait for the next one; slow ones come first, and singly."""


class Scheduling(LoadScopeScheduling):
    """Units of tests, by `unit_of` of a test's id, in the order of their first tests."""

    def __init__(self, config: pytest.Config, log: Any, unit_of: Callable[[str], str]) -> None:
        super().__init__(config, log)
        self._split_scope = unit_of  # type: ignore[method-assign]
        self._place: dict[str, int] = {}

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Remove a finished test, and assign the next ones."""
        test = self.registered_collections[node][item_index]
        unit, work = self._split_scope(test), self.assigned_work[node]
        work[unit].pop(test)
        if not work[unit]:
            del work[unit]
        self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        if node.shutting_down:
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) < WAITING:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()

    def _assign_work_unit(self, node: Any) -> None:
        self._place = self._place or {test: i for i, test in enumerate(self.collection or ())}
        unit, tests = self.workqueue.popitem(last=False)
        self.assigned_work[node][unit] = tests
        node.send_runtest_some([self._place[test] for test in tests])
