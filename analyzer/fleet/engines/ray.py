"""Shards read by the workers of a Ray cluster that is there: its address is given, or RAY_ADDRESS is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import ray

from analyzer.errors import UsageError
from analyzer.fleet.record import Engine, Tables, Task
from analyzer.fleet.shard import survey_shard

__all__ = ["make_engine"]


def make_engine(jobs: int | None, address: str | None) -> Engine:
    """A connection to the cluster; `jobs` shards are handed out at a time, None for two a processor.

    Raises:
        UsageError: no address is known, or nobody answers there.
    """
    place = address or os.environ.get("RAY_ADDRESS")
    if not place:
        raise UsageError(
            "--engine ray: where? Give --address HOST:PORT, or set RAY_ADDRESS; `ray start --head` starts one"
        )
    if not ray.is_initialized():
        try:
            ray.init(address=place, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            line = str(error).splitlines()[0]
            raise UsageError(f"--engine ray: {place}: cannot be reached: {line}") from error
    return _Ray(jobs or 2 * int(ray.cluster_resources().get("CPU", 1)))


class _Ray:
    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def run(self, tasks: Iterator[Task]) -> Iterator[tuple[int, Tables]]:
        """As `Engine` says: a call of a remote function for each task, and again where its machine is lost."""
        survey = ray.remote(num_cpus=1, max_retries=3)(survey_shard)
        pending: dict[ray.ObjectRef, int] = {}
        while True:
            while len(pending) < self._jobs and (task := next(tasks, None)) is not None:
                pending[survey.remote(task.wanted, task.settings)] = task.number
            if not pending:
                return
            for done in ray.wait(list(pending))[0]:
                yield pending.pop(done), ray.get(done)
