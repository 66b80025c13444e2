"""Shards read by processes of this machine, each watched by a thread."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from analyzer.errors import UsageError
from analyzer.fleet.record import Engine, Tables, Task
from analyzer.fleet.shard import dismiss_readers, survey_shard
from analyzer.process.workers import usable_processors

__all__ = ["make_engine"]


def make_engine(jobs: int | None, address: str | None) -> Engine:
    """Processes of this machine.

    Raises:
        UsageError: it is told an address.
    """
    if address is not None:
        raise UsageError("--address: is a cluster's; add --engine ray or --engine dask")
    return _Local(jobs or usable_processors())


class _Local:
    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def run(self, tasks: Iterator[Task]) -> Iterator[tuple[int, Tables]]:
        """As `Engine` says: threads that wait for processes."""
        pending: dict[Future[Tables], int] = {}
        pool = ThreadPoolExecutor(self._jobs)
        try:
            while True:
                while len(pending) <= self._jobs and (task := next(tasks, None)) is not None:
                    pending[pool.submit(survey_shard, task.wanted, task.settings)] = task.number
                if not pending:
                    return
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    yield pending.pop(future), future.result()
        finally:
            pool.shutdown(cancel_futures=True)
            dismiss_readers()
