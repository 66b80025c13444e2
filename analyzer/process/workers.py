"""Function and arguments -> its result for each argument, from processes that may die without harm to the rest."""

from __future__ import annotations

import os
import pickle
import queue
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from analyzer.errors import OnnxLedgerError
from analyzer.process import load_numpy
from analyzer.process.child import TICK, Child, Inbox, OverMemoryError, OverTimeError, read_frame, write_frame
from analyzer.records import Frozen, Mutable

_T = TypeVar("_T")
_R = TypeVar("_R")

_SERVE = "from analyzer.process.workers import serve; serve()"


class Died(Frozen):
    """Substitute for the result of a process that died or was given up on."""

    code: int
    """Its exit code; the negative number of the signal that ended it."""
    reason: str = ""
    """Reason why it was given up on."""

    def __str__(self) -> str:
        """Return the cause, as the end of a sentence.

        >>> str(Died(-9)), str(Died(1)), str(Died(-9, "it took more than 60 s"))
        ('signal 9', 'exit code 1', 'it took more than 60 s')
        """
        return self.reason or (f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}")


def usable_processors() -> int:
    """Return the number of processors that this process may use; a container may have fewer than the machine."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def call_apart(
    function: Callable[[_T], _R],
    arguments: Sequence[_T],
    processes: int,
    progress: Callable[[int, int], None] | None = None,
    *,
    seconds: float | None = None,
    nbytes: int | None = None,
) -> list[_R | Died]:
    """Call a function on each argument, in up to `processes` processes; results are in the order of the arguments.

    A process that dies loses the result of its current call only, and another takes its place; an exception in the
    function ends the process. Function, arguments and results are pickled, so keep results small, and pass a function
    that can be imported. When this function returns or raises, its processes have ended.

    Args:
        function: the function to call.
        arguments: its arguments, one call each.
        processes: largest number of processes at once.
        progress: called after each call with (done, total) calls.
        seconds: time limit of a call; a longer one is given up on. None for no limit.
        nbytes: limit of a process's own memory; a call that takes more is given up on. None for no limit.

    Raises:
        OnnxLedgerError: no process can be started.
    """
    return _Pool(function, arguments, processes, progress, seconds, nbytes).run()


class _Worker(Mutable):
    position: int | None = None
    """Index of its argument; None until it is ready, and when no calls are left."""
    deadline: float = 0.0


class _Pool(Generic[_T, _R]):
    """Waiting calls and working processes.

    `concurrent.futures.ProcessPoolExecutor` does not serve: when one of its processes dies, it fails all running and
    waiting calls, and reports neither the call that was the cause nor the signal.
    """

    def __init__(
        self,
        function: Callable[[_T], _R],
        arguments: Sequence[_T],
        processes: int,
        progress: Callable[[int, int], None] | None,
        seconds: float | None,
        nbytes: int | None,
    ) -> None:
        self.function = pickle.dumps(function)
        self.arguments = arguments
        self.limit = processes
        self.progress = progress
        self.seconds = seconds
        self.nbytes = nbytes
        self.waiting = deque(range(len(arguments)))
        self.workers: dict[Child, _Worker] = {}
        self.inbox: Inbox = queue.SimpleQueue()
        self.results: dict[int, _R | Died] = {}

    def run(self) -> list[_R | Died]:
        try:
            while len(self.results) < len(self.arguments):
                self._start_workers()
                self._listen()
        finally:
            for child in self.workers:
                child.end()
        return [self.results[position] for position in range(len(self.arguments))]

    def _start_workers(self) -> None:
        """Start a process for each waiting call for which none has been started, up to the limit."""
        starting = sum(worker.position is None for worker in self.workers.values())
        for _ in range(min(self.limit - len(self.workers), len(self.waiting) - starting)):
            try:
                child = Child(_SERVE, inbox=self.inbox)
            except OSError as error:
                self._stop_starting(error.strerror or str(error))
                return
            child.send(self.function)
            self.workers[child] = _Worker()

    def _listen(self) -> None:
        try:
            child, message = self.inbox.get(timeout=TICK)
        except queue.Empty:
            self._look()
            return
        worker = self.workers.get(child)
        if worker is None:
            return  # given up on before
        if message is None:
            self._remove_worker(child, Died(child.end(_EXIT_SECONDS)))
            return
        if worker.position is not None:
            self._settle(worker.position, pickle.loads(message))
        worker.position = None
        if self.waiting:
            worker.position = self.waiting.popleft()
            worker.deadline = float("inf") if self.seconds is None else time.monotonic() + self.seconds
            child.send(pickle.dumps(self.arguments[worker.position]))

    def _look(self) -> None:
        """Give up on processes that exceed the limits."""
        if self.seconds is None and self.nbytes is None:
            return
        for child, worker in list(self.workers.items()):
            if worker.position is not None:
                try:
                    child.check(worker.deadline, self.nbytes)
                except OverTimeError:
                    self._remove_worker(child, Died(child.end(), f"it took more than {self.seconds:g} s"))
                except OverMemoryError:
                    self._remove_worker(
                        child, Died(child.end(), f"it took more than {self.nbytes:,} bytes of memory")
                    )

    def _remove_worker(self, child: Child, died: Died) -> None:
        worker = self.workers.pop(child)
        if worker.position is not None:
            self._settle(worker.position, died)
            return
        self._stop_starting(str(died))  # it had no argument yet, so none is to blame

    def _stop_starting(self, reason: str) -> None:
        """Go on with the running processes only; repeated attempts to start more could go on forever."""
        self.limit = len(self.workers)
        if not self.limit and self.waiting:
            raise OnnxLedgerError(
                f"no process can be started: {reason}; free some memory, or allow one process only"
            )

    def _settle(self, position: int, result: _R | Died) -> None:
        self.results[position] = result
        if self.progress is not None:
            self.progress(len(self.results), len(self.arguments))


_EXIT_SECONDS = 5.0
"""Seconds that a process has to end after its last message."""


def serve() -> None:
    """Serve calls in this process: read a function, report readiness, then answer until the input ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with answers
    load_numpy()  # before the function imports it: there is a process for each processor already
    with suppress(OSError):  # the parent has gone
        function: Callable[[Any], Any] = pickle.loads(read_frame(requests) or b"")
        write_frame(answers, b"")
        while (argument := read_frame(requests)) is not None:
            try:
                result = pickle.dumps(function(pickle.loads(argument)))
            except Exception:  # noqa: BLE001 - nothing may print a traceback; the exit code says that it failed
                os._exit(1)
            write_frame(answers, result)
    sys.stdout.flush()
    os._exit(0)
