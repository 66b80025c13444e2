"""Sources and a lake -> the updated lake: unchanged shards are kept, all others are read and written."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from analyzer.errors import UsageError
from analyzer.fleet.find import find_sources
from analyzer.fleet.lake import Lake, joined, need_arrow
from analyzer.fleet.reading import may_be_read
from analyzer.fleet.record import TABLES, Engine, FleetSettings, Found, Survey, Tables, Task, Wanted
from analyzer.formats.json.parts import utf8
from analyzer.model.ranges import is_url
from analyzer.read.remote import shown
from analyzer.records import Frozen, replace
from analyzer.version import version

if TYPE_CHECKING:
    import pyarrow as pa


def plain_name(model: str) -> str:
    """Return a model's name in the form of tables: a URL without secrets, a path in UTF-8."""
    return shown(model) if is_url(model) else utf8(model)


class EarlierShard(Frozen):
    """Models to be taken from an earlier shard."""

    shard: str
    names: tuple[str, ...]


class _Known(Frozen):
    """Data on a model from an earlier run."""

    shard: str
    mark: str
    """Mark as in `Found.mark`; "" if it cannot be compared."""
    places: tuple[tuple[str, int | None, int | None], ...]
    """Path, bytes and modification time of its other files."""
    digests: tuple[tuple[str, str], ...]
    """(file, SHA-256) of all its files; empty unless all are known."""
    lacks_data: bool
    """Whether external data was missing when a URL was read: it may exist now."""

    is_tried_again: bool
    """Whether it exceeded a limit that is higher now."""

    @property
    def is_stale(self) -> bool:
        """Whether it must be read again: one of its files has changed or appeared, or a limit is higher now."""
        has_changed = any(_stat(place) != (size, time) for place, size, time in self.places)
        return self.lacks_data or self.is_tried_again or has_changed


class Earlier:
    """Shards on disk at the start of a run that were read with the same settings.

    Args:
        lake: the lake that holds them.
        tag: prefix of the names of shards with these settings.
        settings: settings of the run.
    """

    def __init__(self, lake: Lake, tag: str, settings: FleetSettings) -> None:
        self._lake = lake
        self._settings = settings
        own = (shard for shard in lake.present if shard.startswith(f"{tag}-"))
        self._shards = [shard for shard in own if lake.is_whole(shard)]
        self._by_key: dict[str, list[str]] = defaultdict(list)
        for shard in self._shards:
            self._by_key[shard.rpartition("-")[0]].append(shard)
        self._load = functools.lru_cache(maxsize=8)(self._load_shard)

    def whole(self, key: str, models: Sequence[Found]) -> str | None:
        """Return the shard with exactly these models in their current versions; None if there is none."""
        if not all(each.mark for each in models):
            return None
        for shard in self._by_key.get(key, ()):
            if not any(known.is_stale for known in self._load(shard).values()):
                return shard
        return None

    def lacks(self, models: Sequence[Found]) -> tuple[tuple[Wanted, ...], tuple[EarlierShard, ...]]:
        """Return the models that must be read, and the earlier shards with known rows, also of some of these."""
        wanted: list[Wanted] = []
        parts: dict[str, list[str]] = defaultdict(list)
        for each in models:
            name = plain_name(each.model)
            known = self._find(name) if self._shards else None
            if known is None:
                wanted.append(Wanted(each.model))
                continue
            parts[known.shard].append(name)
            if not each.mark or each.mark != known.mark or known.is_stale:
                wanted.append(Wanted(each.model, () if known.lacks_data else known.digests))
        return tuple(wanted), tuple(EarlierShard(shard, tuple(names)) for shard, names in parts.items())

    def complete(self, names: Sequence[str], parts: Sequence[EarlierShard], read: Tables) -> Tables:
        """Return the tables of a shard, in the order of its models: new rows, and earlier ones of unchanged models."""
        import pyarrow as pa
        import pyarrow.compute as pc

        models = read["models"]
        is_same = pc.and_(pc.is_null(models["content"]), pc.is_null(models["error"]))
        same = set(models["model"].filter(is_same).to_pylist())
        fresh = set(models["model"].to_pylist()) - same
        pieces = [_only(read, fresh)]
        for part in parts:
            old = {table: self._lake.read(table, part.shard) for table in TABLES}
            pieces.append(_only(old, set(part.names) - fresh))
        whole = joined(pieces)
        if same:
            whole = {**whole, "files": _retimed(whole["files"], _only(read, same)["files"])}
        order = pa.array(names, pa.string())
        return {table: _sorted(rows, order) for table, rows in whole.items()}

    def _find(self, name: str) -> _Known | None:
        hashes, shards = self._index
        key = _hash(name)
        at = int(np.searchsorted(hashes, key))
        while at < len(hashes) and hashes[at] == key:
            found = self._load(self._shards[shards[at]]).get(name)
            if found is not None:
                return found
            at += 1
        return None

    @functools.cached_property
    def _index(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
        """Hashes of all models, sorted, and the number of the shard of each: 12 bytes a model."""
        hashes: list[npt.NDArray[np.uint64]] = []
        numbers: list[npt.NDArray[np.int32]] = []
        for number, shard in enumerate(self._shards):
            names = self._lake.read("models", shard, ["model"])["model"].to_pylist()
            hashes.append(np.fromiter(map(_hash, names), np.uint64, len(names)))
            numbers.append(np.full(len(names), number, np.int32))
        joined_hashes, joined_numbers = np.concatenate(hashes), np.concatenate(numbers)
        order = np.argsort(joined_hashes, kind="stable")
        return joined_hashes[order], joined_numbers[order]

    def _load_shard(self, shard: str) -> dict[str, _Known]:
        files = self._lake.read(
            "files", shard, ["model", "place", "bytes", "mtime_ns", "sha256", "etag"]
        ).to_pylist()
        findings = self._lake.read("findings", shard, ["model", "id"]).to_pylist()
        lacking = {row["model"] for row in findings if row["id"] == "external-missing"}
        by_model: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in files:
            by_model[row["model"]].append(row)
        rows = self._lake.read("models", shard, ["model", "error"]).to_pylist()
        return {
            row["model"]: _known(
                shard,
                by_model.get(row["model"], []),
                row["model"] in lacking and is_url(row["model"]),
                may_be_read(row["error"], self._settings),
            )
            for row in rows
        }


def _known(shard: str, files: list[dict[str, Any]], lacks_data: bool, again: bool) -> _Known:
    if not files:
        return _Known(shard, "missing", (), (), lacks_data, again)
    main, others = files[0], files[1:]
    revision = main["etag"] if main["place"] is None else main["mtime_ns"]
    is_whole = all(row["place"] is not None and row["sha256"] is not None for row in files)
    return _Known(
        shard=shard,
        mark="" if revision is None else f"{main['bytes']}:{revision}",
        places=tuple((row["place"], row["bytes"], row["mtime_ns"]) for row in others if row["place"]),
        digests=tuple((row["place"], row["sha256"]) for row in files) if is_whole else (),
        lacks_data=lacks_data,
        is_tried_again=again,
    )


def _stat(place: str) -> tuple[int | None, int | None]:
    try:
        status = Path(place).stat()
    except OSError:
        return None, None
    return status.st_size, status.st_mtime_ns


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _only(tables: Tables, names: Iterable[str]) -> Tables:
    """Return the rows of some models."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(sorted(names), pa.string())
    return {table: rows.filter(pc.is_in(rows["model"], value_set=wanted)) for table, rows in tables.items()}


def _sorted(rows: pa.Table, order: pa.Array) -> pa.Table:
    """Return rows in the order of their models; the order within one model is kept."""
    import pyarrow as pa
    import pyarrow.compute as pc

    places = pc.index_in(rows["model"], value_set=order).to_numpy()
    taken = rows.take(pa.array(np.argsort(places, kind="stable")))
    return taken.combine_chunks()


def _retimed(files: pa.Table, new_times: pa.Table) -> pa.Table:
    """Return rows of files with the new modification times of some of them."""
    import pyarrow as pa

    times = {(row["model"], row["place"]): row["mtime_ns"] for row in new_times.to_pylist()}
    old = zip(*(files[name].to_pylist() for name in ("model", "place", "mtime_ns")), strict=True)
    column = pa.array([times.get((model, place), time) for model, place, time in old], pa.int64())
    return files.set_column(files.schema.get_field_index("mtime_ns"), files.schema.field("mtime_ns"), column)


SHARD = 64
"""Approximate number of models in a shard."""


def survey_fleet(
    sources: Iterable[str],
    lake: Path | str,
    engine: Engine,
    *,
    settings: FleetSettings | None = None,
    shard: int = SHARD,
    progress: Callable[[Survey], None] | None = None,
) -> Survey:
    """Update a lake to the current content of its sources.

    Args:
        sources: sources in the form of `find_sources`.
        lake: its folder, which is created if it does not exist.
        engine: engine that hands shards to processes.
        settings: settings for reading models.
        shard: approximate number of models in a shard: each process loses at most so many if all are killed.
        progress: function that is called with the progress after each shard.

    Raises:
        UsageError: the sources name nothing, or the lake cannot be written.
        MissingExtraError: the package that writes tables is not installed.
    """
    need_arrow()
    place = Path(lake)
    if place.exists() and not place.is_dir():
        raise UsageError(f"-o {place}: is not a folder; name another")
    if place.is_dir() and any(place.iterdir()) and not (place / "models").is_dir():
        raise UsageError(f"-o {place}: is neither an empty folder nor a lake; name another")
    run_settings = replace(settings or FleetSettings(), version=version())
    opened = Lake(place)
    with opened.written():
        opened.begin(run_settings)
        return _Run(opened, engine, run_settings, shard, progress).go(find_sources(sources))


class _Batch(Frozen):
    """Shard in progress: its models, and the parts that are taken from earlier shards."""

    key: str
    names: tuple[str, ...]
    earlier: tuple[EarlierShard, ...]


class _Run:
    """Settings and progress of one run."""

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
        self._earlier = Earlier(lake, self._tag, settings)
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
            raise UsageError("SOURCE: no model found; check the names")
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
        """Count a written shard."""
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
        if done.first_error is None and done.unreadable:
            done.first_error = errors.drop_null()[0].as_py()
        if self._progress is not None:
            self._progress(done)


def cut(found: Iterable[Found], size: int) -> Iterator[tuple[Found, ...]]:
    """Cut found models into shards, at cuts that depend on names: added or removed models move no distant cut."""
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
    """Return a digest of the settings that affect results; limits of time and memory depend on the machine."""
    relevant = [settings.version, settings.content or "", str(settings.max_objects or ""), *settings.shapes]
    return _digest(relevant)[:8]


def _key(models: tuple[Found, ...]) -> str:
    """Return a digest of a shard's models and their versions."""
    return _digest(itertools.chain.from_iterable((each.model, each.mark) for each in models))[:16]


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()
