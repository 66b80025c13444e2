"""Ways to hand shards to processes: here, or to a cluster that is there already; each by its name."""

from __future__ import annotations

import importlib

from analyzer.errors import MissingExtraError
from analyzer.fleet.record import Engine

__all__ = ["ENGINES", "find_engine"]

ENGINES = ("local", "ray", "dask")
"""The names of the engines, each of which has a module here."""


def find_engine(name: str = "local", jobs: int | None = None, address: str | None = None) -> Engine:
    """The engine of a name.

    Args:
        name: one of `ENGINES`.
        jobs: shards that are worked on at once; None takes one for each processor.
        address: of the cluster; None takes the environment's.

    Raises:
        MissingExtraError: what it needs is not installed.
    """
    try:
        made: Engine = importlib.import_module(f"analyzer.fleet.engines.{name}").make_engine(jobs, address)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"fleet-{name}", error.name or name, f"--engine {name}") from error
    return made
