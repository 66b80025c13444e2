"""Engines that hand shards to processes, by name: on this machine, or on a running Dask or Ray cluster."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from analyzer.errors import MissingExtraError, UsageError
from analyzer.fleet.reading import dismiss_readers, survey_shard
from analyzer.fleet.record import Engine, Tables, Task
from analyzer.process.workers import usable_processors

if TYPE_CHECKING:
    import distributed
    import ray


def find_engine(name: str = "local", jobs: int | None = None, address: str | None = None) -> Engine:
    """Return the engine of a name.

    Args:
        name: one of `ENGINES`.
        jobs: shards in progress at once; None takes one for each processor.
        address: address of the cluster; None takes the environment's.

    Raises:
        MissingExtraError: a package that it needs is not installed.
        UsageError: an address is given for this machine; or that of a cluster is unknown, or nothing answers there.
    """
    try:
        return ENGINES[name](jobs, address)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"fleet-{name}", error.name or name, f"--engine {name}") from error


def make_local(jobs: int | None, address: str | None) -> Engine:
    """Return the engine that uses processes of this machine.

    Raises:
        UsageError: an address is given.
    """
    if address is not None:
        raise UsageError("--address: only clusters have one; add --engine ray or --engine dask")
    return _Local(jobs or usable_processors())


class _Local:
    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def run(self, tasks: Iterator[Task]) -> Iterator[tuple[int, Tables]]:
        """Run tasks as `Engine` states, with threads that wait for processes."""
        pending: dict[concurrent.futures.Future[Tables], int] = {}
        pool = concurrent.futures.ThreadPoolExecutor(self._jobs)
        try:
            while True:
                while len(pending) <= self._jobs and (task := next(tasks, None)) is not None:
                    pending[pool.submit(survey_shard, task.wanted, task.settings)] = task.number
                if not pending:
                    return
                first = concurrent.futures.FIRST_COMPLETED
                for future in concurrent.futures.wait(pending, return_when=first).done:
                    yield pending.pop(future), future.result()
        finally:
            pool.shutdown(cancel_futures=True)
            dismiss_readers()


def connect_dask(jobs: int | None, address: str | None) -> Engine:
    """Connect to the cluster; `jobs` shards are in progress at a time, None for two a thread.

    Raises:
        UsageError: no address is known, or nothing answers there.
    """
    import distributed

    place = address or os.environ.get("DASK_SCHEDULER_ADDRESS")
    if not place:
        raise UsageError(
            "--engine dask: no address; give --address tcp://HOST:PORT, or set DASK_SCHEDULER_ADDRESS;"
            " `dask scheduler` and `dask worker` start one"
        )
    try:
        client = distributed.Client(place, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        line = str(error).splitlines()[0]
        raise UsageError(f"--engine dask: {place}: cannot be reached: {line}") from error
    return _Dask(client, jobs)


_PATIENCE = 10
"""Seconds that a cluster may take to answer."""


class _Dask:
    def __init__(self, client: distributed.Client, jobs: int | None) -> None:
        self._client, self._jobs = client, jobs

    def run(self, tasks: Iterator[Task]) -> Iterator[tuple[int, Tables]]:
        """Run tasks as `Engine` states, with a future for each, which Dask repeats if its worker is lost."""
        import distributed

        jobs = self._jobs or 2 * max(1, sum(self._client.nthreads().values()))
        pending: dict[distributed.Future, int] = {}
        try:
            while True:
                while len(pending) < jobs and (task := next(tasks, None)) is not None:
                    future = self._client.submit(survey_shard, task.wanted, task.settings, pure=False)
                    pending[future] = task.number
                if not pending:
                    return
                for done in distributed.wait(list(pending), return_when="FIRST_COMPLETED").done:
                    yield pending.pop(done), done.result()
        finally:
            self._client.close()


def connect_ray(jobs: int | None, address: str | None) -> Engine:
    """Connect to the cluster; `jobs` shards are in progress at a time, None for two a processor.

    Raises:
        UsageError: no address is known, or nothing answers there.
    """
    import ray

    place = address or os.environ.get("RAY_ADDRESS")
    if not place:
        raise UsageError(
            "--engine ray: no address; give --address HOST:PORT, or set RAY_ADDRESS; `ray start --head` starts one"
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
        """Run tasks as `Engine` states, with a remote call for each, which Ray repeats if its machine is lost."""
        import ray

        survey = ray.remote(num_cpus=1, max_retries=3)(survey_shard)
        pending: dict[ray.ObjectRef, int] = {}
        while True:
            while len(pending) < self._jobs and (task := next(tasks, None)) is not None:
                pending[survey.remote(task.wanted, task.settings)] = task.number
            if not pending:
                return
            for done in ray.wait(list(pending))[0]:
                yield pending.pop(done), ray.get(done)


ENGINES: dict[str, Callable[[int | None, str | None], Engine]] = {
    "local": make_local,
    "ray": connect_ray,
    "dask": connect_dask,
}
"""Constructors of the engines, by name."""
