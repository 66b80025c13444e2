"""A function and its arguments -> what it returns for each, in processes that may die without harm to the rest."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from analyzer.errors import OnnxLedgerError

__all__ = ["Died", "call_apart", "usable_processors"]

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Died:
    """What stands in for a result where the process that was to return it ended without a word."""

    code: int
    """Its exit code; the negative number of the signal that ended it."""

    def __str__(self) -> str:
        """As a sentence's end.

        >>> str(Died(-9)), str(Died(1))
        ('signal 9', 'exit code 1')
        """
        return f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"


def usable_processors() -> int:
    """How many processors this process may use, which in a container are fewer than the machine has."""
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
) -> list[_R | Died]:
    """Call a function on each argument, in up to `processes` processes; results are in the order of the arguments.

    A process that dies costs the result of the one call it was in, and another takes its place; a function that raises
    ends its process. Function, arguments and results are pickled, so keep results small. When this function is left,
    by an exception too, its processes are gone.

    Raises:
        OnnxLedgerError: no process can be started.
    """
    return _Pool(function, arguments, processes, progress).run()


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    position: int | None = None
    """The argument that it works on; None until it is ready, and when there is no more to do."""


class _Pool(Generic[_T, _R]):
    """The calls that wait and the processes that work.

    Not `concurrent.futures.ProcessPoolExecutor`: when one of its processes dies it fails every call that is under way
    or waits, and tells neither which call was the cause nor the signal.
    """

    def __init__(
        self,
        function: Callable[[_T], _R],
        arguments: Sequence[_T],
        processes: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.limit = processes
        self.progress = progress
        self.waiting = deque(range(len(arguments)))
        self.workers: dict[Connection[Any, Any], _Worker] = {}
        self.results: dict[int, _R | Died] = {}

    def run(self) -> list[_R | Died]:
        try:
            while len(self.results) < len(self.arguments):
                self._hire()
                for connection in wait(list(self.workers)):
                    assert isinstance(connection, Connection)
                    self._listen(connection)
        finally:
            for worker in self.workers.values():
                worker.process.kill()
            for connection, worker in self.workers.items():
                worker.process.join()
                connection.close()
        return [self.results[position] for position in range(len(self.arguments))]

    def _hire(self) -> None:
        """Start processes, as many as there are calls that wait and none has been started for."""
        starting = sum(worker.position is None for worker in self.workers.values())
        for _ in range(min(self.limit - len(self.workers), len(self.waiting) - starting)):
            # Not forked: a copy of a process with threads, such as a progress bar's, can stop at a lock forever.
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(self.function, theirs), daemon=True)
            try:
                with _deaf_to_interrupts():
                    process.start()
            except OSError as error:
                self._do_without(error.strerror or str(error))
                return
            theirs.close()  # else its death would not end the connection
            self.workers[ours] = _Worker(process)

    def _listen(self, connection: Connection[Any, Any]) -> None:
        worker = self.workers[connection]
        try:
            message = connection.recv()
        except (EOFError, OSError):
            self._bury(connection)
            return
        if worker.position is not None:
            self._settle(worker.position, message)
        worker.position = None
        if not self.waiting:
            return
        worker.position = self.waiting.popleft()
        with suppress(OSError):  # it has just died: the next look at its connection says so
            connection.send(self.arguments[worker.position])

    def _bury(self, connection: Connection[Any, Any]) -> None:
        worker = self.workers.pop(connection)
        worker.process.join()
        connection.close()
        died = Died(worker.process.exitcode or 0)
        if worker.position is not None:
            self._settle(worker.position, died)
            return
        self._do_without(str(died))  # it had no argument yet, so none is to blame

    def _do_without(self, reason: str) -> None:
        """Go on with the processes that there are; trying again and again could go on forever."""
        self.limit = len(self.workers)
        if not self.limit and self.waiting:
            raise OnnxLedgerError(
                f"no process can be started: {reason}; free some memory, or allow one process only. A script that "
                'calls this needs `if __name__ == "__main__":` around its own beginning'
            )

    def _settle(self, position: int, result: _R | Died) -> None:
        self.results[position] = result
        if self.progress is not None:
            self.progress(len(self.results), len(self.arguments))


def _serve(function: Callable[[Any], Any], connection: Connection[Any, Any]) -> None:
    """The life of a process: say that it is ready, then answer until nobody asks any more."""
    with suppress(EOFError, OSError):  # whoever asked has gone
        connection.send(None)
        while True:
            argument = connection.recv()
            try:
                result = function(argument)
            except Exception:  # noqa: BLE001 - nothing may print a traceback; the exit code says that it failed
                os._exit(1)
            connection.send(result)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started here never get Ctrl-C, which a terminal sends to all: they end with their parent, silently."""
    resource_tracker.ensure_running()  # started with the first process, it would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
