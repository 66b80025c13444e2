"""Shards read by the workers of a Dask cluster that is there: its address is given, or DASK_SCHEDULER_ADDRESS is."""

from __future__ import annotations

import os
from collections.abc import Iterator

from distributed import Client, Future, wait

from analyzer.errors import UsageError
from analyzer.fleet.record import Engine, Tables, Task
from analyzer.fleet.shard import survey_shard

__all__ = ["make_engine"]


def make_engine(jobs: int | None, address: str | None) -> Engine:
    """A connection to the cluster; `jobs` shards are handed out at a time, None for two a thread.

    Raises:
        UsageError: no address is known, or nobody answers there.
    """
    place = address or os.environ.get("DASK_SCHEDULER_ADDRESS")
    if not place:
        raise UsageError(
            "--engine dask: where? Give --address tcp://HOST:PORT, or set DASK_SCHEDULER_ADDRESS;"
            " `dask scheduler` and `dask worker` start one"
        )
    try:
        client = Client(place, timeout="10s")
    except (OSError, ValueError) as error:
        line = str(error).splitlines()[0]
        raise UsageError(f"--engine dask: {place}: cannot be reached: {line}") from error
    return _Dask(client, jobs)


class _Dask:
    def __init__(self, client: Client, jobs: int | None) -> None:
        self._client, self._jobs = client, jobs

    def run(self, tasks: Iterator[Task]) -> Iterator[tuple[int, Tables]]:
        """As `Engine` says: a future for each task, and again where its worker is lost."""
        jobs = self._jobs or 2 * max(1, sum(self._client.nthreads().values()))
        pending: dict[Future, int] = {}
        try:
            while True:
                while len(pending) < jobs and (task := next(tasks, None)) is not None:
                    future = self._client.submit(survey_shard, task.wanted, task.settings, pure=False)
                    pending[future] = task.number
                if not pending:
                    return
                for done in wait(list(pending), return_when="FIRST_COMPLETED").done:
                    yield pending.pop(done), done.result()
        finally:
            self._client.close()
