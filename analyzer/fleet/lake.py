"""A lake: six folders of Parquet files, a file of each for every shard, and a note of which shards it is made of.

A shard is written under names that nobody reads, synced, and renamed, its `models` last: it is there once that is. The
note is replaced when a run has been through all sources. So whoever is killed leaves whole shards and the last note.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import MissingExtraError, UsageError
from analyzer.fleet.columns import schemas
from analyzer.fleet.record import TABLES, FleetSettings, Tables

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NOTE", "Lake", "is_lake", "open_lake"]

NOTE = "lake.json"
"""The file that says of a folder that it is a lake, and which shards it is made of."""

FORMAT = 1
"""Of what a lake looks like; one of another format is not read."""

_PARTIAL = ".partial"
_LOCK = ".lock"
_SUFFIX = ".parquet"


def is_lake(path: Path | str) -> bool:
    """Whether a path is a folder that `survey` has written."""
    return os.path.isfile(os.path.join(path, NOTE))  # noqa: PTH113, PTH118 - unlike Path's, it never raises


class Lake:
    """The shards of one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._note = _read_note(path)

    @property
    def is_complete(self) -> bool:
        """Whether a run has been through all its sources."""
        return bool(self._note["complete"])

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards that it is made of; of a lake that no run has finished, those that are there."""
        return tuple(self._note["shards"]) if self.is_complete else self.present

    @property
    def present(self) -> tuple[str, ...]:
        """All shards that are on disk, also those that a later run has replaced, or has not finished with."""
        names = os.listdir(self.path / "models") if (self.path / "models").is_dir() else []  # noqa: PTH208 - names
        return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))

    def file(self, table: str, shard: str) -> Path:
        """Where a shard's rows of one table are."""
        return self.path / table / f"{shard}{_SUFFIX}"

    def files(self, table: str) -> list[Path]:
        """Where all rows of one table are."""
        return [self.file(table, shard) for shard in self.shards]

    def read(self, table: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A shard's rows of one table.

        Raises:
            UsageError: it cannot be read.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        place = self.file(table, shard)
        try:
            return pq.read_table(
                place, columns=None if columns is None else list(columns), partitioning=None, memory_map=False
            )
        except (OSError, pa.ArrowException) as error:
            line = str(error).splitlines()[0]
            raise UsageError(f"{place}: cannot be read: {line}; run survey again without it") from error

    @contextmanager
    def written(self) -> Iterator[None]:
        """The time in which this process alone writes to the lake.

        Raises:
            UsageError: another process does, or the folder cannot be written to.
        """
        try:
            for name in (*TABLES, _PARTIAL):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            with (self.path / _LOCK).open("wb") as lock, _locked(self.path, lock):
                for left in (self.path / _PARTIAL).iterdir():
                    left.unlink()
                yield
        except OSError as error:
            raise UsageError(f"-o {self.path}: cannot be written: {error.strerror or error}") from error

    def begin(self, settings: FleetSettings) -> None:
        """Say what the folder is, before its first shard."""
        if not is_lake(self.path):
            self._replace_note(settings, (), complete=False)

    def write(self, key: str, tables: Tables) -> str:
        """Write a shard, and answer its name: the key, and what tells its content from that of another."""
        contents = {table: _encode(tables[table]) for table in TABLES}
        hasher = hashlib.sha256()
        for table in TABLES:
            hasher.update(hashlib.sha256(contents[table]).digest())
        shard = f"{key}-{hasher.hexdigest()[:16]}"
        if self.file("models", shard).exists():
            return shard
        for table in reversed(TABLES):  # models last, which stands for all
            partial = self.path / _PARTIAL / f"{table}-{shard}"
            _write_synced(partial, contents[table])
            partial.replace(self.file(table, shard))
            _sync_folder(self.path / table)
        return shard

    def finish(self, settings: FleetSettings, shards: Sequence[str]) -> None:
        """Say which shards the lake is made of, then drop all others."""
        self._replace_note(settings, shards, complete=True)
        kept = set(shards)
        for table in TABLES:  # models first: what lacks them is nothing
            for place in (self.path / table).iterdir():
                if place.name.removesuffix(_SUFFIX) not in kept:
                    place.unlink()

    def _replace_note(self, settings: FleetSettings, shards: Sequence[str], *, complete: bool) -> None:
        note = {
            "format": FORMAT,
            "tool": {"name": "onnxledger", "version": settings.version},
            "settings": {"content": settings.content, "max_objects": settings.max_objects},
            "complete": complete,
            "shards": list(shards),
        }
        partial = self.path / _PARTIAL / NOTE
        _write_synced(partial, (json.dumps(note, indent=1, sort_keys=True) + "\n").encode())
        partial.replace(self.path / NOTE)
        _sync_folder(self.path)
        self._note = note


def open_lake(path: Path | str) -> Lake:
    """A lake that is there.

    Raises:
        UsageError: it is none, or one of another format.
        MissingExtraError: what reads it is not installed.
    """
    if not is_lake(path):
        raise UsageError(f"{path}: is no lake: it has no {NOTE}; make one with survey SOURCE -o {path}")
    need_arrow()
    return Lake(Path(path))


def need_arrow() -> None:
    """Find out whether what reads and writes tables is installed.

    Raises:
        MissingExtraError: it is not.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("fleet", "pyarrow", "a lake") from error


def _read_note(path: Path) -> Mapping[str, Any]:
    try:
        note = json.loads((path / NOTE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"complete": False, "shards": ()}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path / NOTE}: cannot be read: {error}; make the lake again") from error
    names = note.get("shards") if isinstance(note, dict) else None
    if not isinstance(names, list) or note.get("format") != FORMAT:
        raise UsageError(f"{path / NOTE}: is not of format {FORMAT}; make the lake again in another folder")
    if not all(isinstance(name, str) and name.replace("-", "").isalnum() for name in names):
        raise UsageError(f"{path / NOTE}: names what is no shard; make the lake again in another folder")
    return {**note, "complete": note.get("complete") is True}


def _encode(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd", write_statistics=True)
    return stream.getvalue()


def _write_synced(place: Path, content: bytes) -> None:
    with place.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(place: Path) -> None:
    with contextlib.suppress(OSError):  # not every system lets folders be opened
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _locked(path: Path, lock: io.BufferedWriter) -> Iterator[None]:
    """The lock of a lake, which the system takes back from whoever dies.

    Raises:
        UsageError: another process has it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"-o {path}: another survey writes to it; wait for it, or name another") from None
    yield


def joined(tables: Iterable[Tables]) -> Tables:
    """Several tables of each name as one."""
    import pyarrow as pa

    several = list(tables)
    return {
        name: pa.concat_tables([each[name] for each in several]) if several else schema.empty_table()
        for name, schema in schemas().items()
    }
