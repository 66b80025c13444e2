"""Sources and a lake -> the lake as it is to be: shards that have not changed are kept, others read and written."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from analyzer.errors import UsageError
from analyzer.fleet.earlier import Earlier, Part, plain_name
from analyzer.fleet.find import find_sources
from analyzer.fleet.lake import Lake, need_arrow
from analyzer.fleet.record import TABLES, Engine, FleetSettings, Found, Survey, Task
from analyzer.version import version

__all__ = ["SHARD", "survey_fleet"]

SHARD = 64
"""Models of a shard, about."""


def survey_fleet(
    sources: Iterable[str],
    lake: Path | str,
    engine: Engine,
    *,
    settings: FleetSettings | None = None,
    shard: int = SHARD,
    progress: Callable[[Survey], None] | None = None,
) -> Survey:
    """Bring a lake to what its sources hold now.

    Args:
        sources: as `find_sources` takes them.
        lake: its folder, which is made if it is not there.
        engine: what hands shards to processes.
        settings: how models are read.
        shard: models of a shard, about: so many are lost at most by each process when all are killed.
        progress: told what has been done, after each shard.

    Raises:
        UsageError: the sources name nothing, or the lake cannot be written.
        MissingExtraError: what writes tables is not installed.
    """
    need_arrow()
    place = Path(lake)
    if place.exists() and not place.is_dir():
        raise UsageError(f"-o {place}: is no folder; name another")
    if place.is_dir() and any(place.iterdir()) and not (place / "models").is_dir():
        raise UsageError(f"-o {place}: is a folder of something else; name one that is empty, or a lake")
    asked = replace(settings or FleetSettings(), version=version())
    opened = Lake(place)
    with opened.written():
        opened.begin(asked)
        return _Run(opened, engine, asked, shard, progress).go(find_sources(sources))


@dataclass(frozen=True, slots=True)
class _Batch:
    """A shard that is being read: which models it has, and what is taken over from an earlier one."""

    key: str
    names: tuple[str, ...]
    earlier: tuple[Part, ...]


class _Run:
    """What one run goes by, and how far it is."""

    def __init__(
        self,
        lake: Lake,
        engine: Engine,
        settings: FleetSettings,
        shard: int,
        progress: Callable[[Survey], None] | None,
    ) -> None:
        self._lake, self._engine, self._settings, self._shard = lake, engine, settings, shard
        self._progress = progress
        self._tag = _tag(settings)
        self._earlier = Earlier(lake, self._tag)
        self._done = Survey(str(lake.path), rows=dict.fromkeys(TABLES, 0))
        self._shards: dict[int, str] = {}
        self._open: dict[int, _Batch] = {}

    def go(self, found: Iterator[Found]) -> Survey:
        for number, tables in self._engine.run(self._tasks(found)):
            batch = self._open.pop(number)
            whole = self._earlier.complete(batch.names, batch.earlier, tables)
            self._settle(number, self._lake.write(batch.key, whole))
            self._done.written += 1
        if not self._shards:
            raise UsageError("SOURCE: no model is there; check the names")
        self._lake.finish(self._settings, [self._shards[number] for number in sorted(self._shards)])
        return self._done

    def _tasks(self, found: Iterator[Found]) -> Iterator[Task]:
        for number, models in enumerate(cut(found, self._shard)):
            key = f"{self._tag}-{_key(models)}"
            kept = self._earlier.whole(key, models)
            if kept is not None:
                self._done.kept += len(models)
                self._settle(number, kept)
                continue
            wanted, parts = self._earlier.lacks(models)
            names = tuple(plain_name(each.model) for each in models)
            self._open[number] = _Batch(key, names, parts)
            self._done.read += len(wanted)
            self._done.kept += len(models) - len(wanted)
            yield Task(number, wanted, self._settings)

    def _settle(self, number: int, shard: str) -> None:
        """Count a shard that is written."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        done = self._done
        self._shards[number] = shard
        done.shards += 1
        for table in TABLES:
            place = self._lake.file(table, shard)
            done.rows[table] += pq.read_metadata(place).num_rows
            done.nbytes += place.stat().st_size
        done.models = done.rows["models"]
        errors = self._lake.read("models", shard, ["error"])["error"]
        done.unreadable += pc.count(errors, mode="only_valid").as_py()
        if self._progress is not None:
            self._progress(done)


def cut(found: Iterable[Found], size: int) -> Iterator[tuple[Found, ...]]:
    """Cut what is found into shards, where the names say so: what comes or goes in one place moves no other cut."""
    models: dict[str, Found] = {}
    for each in found:
        models.setdefault(plain_name(each.model), each)
        if len(models) >= size // 4 and (_number(each.model) % size == 0 or len(models) >= 2 * size):
            yield tuple(models.values())
            models = {}
    if models:
        yield tuple(models.values())


def _number(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode(errors="surrogateescape")).digest()[:8], "little")


def _tag(settings: FleetSettings) -> str:
    """What tells how models are read from any other way; limits of time and memory are of the machine."""
    return _digest([settings.version, settings.content or "", str(settings.max_objects or "")])[:8]


def _key(models: tuple[Found, ...]) -> str:
    """What tells a shard's models, and their versions, from those of any other."""
    return _digest(itertools.chain.from_iterable((each.model, each.mark) for each in models))[:16]


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()
