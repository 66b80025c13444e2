"""Lake: six folders of Parquet files, with one file per shard in each, and a note that lists the shards.

A shard is written under temporary names, synced, and renamed, its `models` last: it exists once that file exists. The
note is replaced when a run has processed all sources. So a killed run leaves whole shards and the previous note.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from analyzer.documents import inspect as inspect_records
from analyzer.documents import shared as shared_records
from analyzer.errors import MissingExtraError, UsageError
from analyzer.fleet import NOTE, is_lake
from analyzer.fleet.record import TABLES, FleetSettings, Tables
from analyzer.json_files import load_json

if TYPE_CHECKING:
    import pyarrow as pa


_HEAD = ("model", "sha256", "etag")
_MOST_BITS = 63

_LEFT_OUT = {
    "models": {"path", "files"},
    "files": {"path", "bytes", "sha256"},
    "groups": {"trainable", "frozen"},
}
"""Fields of the documents that a table holds in another form, or that a single file never has."""

OF_RUN = ("macs", "nodes_without_macs", "memory_bytes", "memory_bytes_at_most", "sizes")
"""Columns of `models` for the cost of a run, filled if sizes were given; documents of `inspect` do not have them."""

OF_MODEL = (
    *("components", "content", "roles", "quantization", "accounts", "dtypes"),
    *("by", "depth", "overlap", "ungrouped", "blocks"),
)
"""Keys of `inspect` that are columns of `models`, besides those of its `model` and `totals`."""


@functools.cache
def schemas() -> Mapping[str, pa.Schema]:
    """Return the columns of each table, with their types."""
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    head = [(name, text) for name in _HEAD]
    whole = dict(_fields(inspect_records.InspectDocument))
    models = [
        *_fields(inspect_records.Model, _LEFT_OUT["models"]),
        *_fields(inspect_records.Totals),
        *((name, whole[name]) for name in OF_MODEL),
    ]
    run = [(name, text if name == "sizes" else number) for name in OF_RUN]
    prints = [
        ("digest", text),
        ("sketch", pa.list_(pa.float32())),
        ("logical_elements", number),
        ("code_bits", number),
    ]
    files = [("path", text), ("bytes", number), ("mtime_ns", number), ("place", text), ("file", text)]
    found = {
        "models": [*head, ("error", text), *models, *run],
        "files": [*head, *files],
        "tensors": [*head, *_fields(inspect_records.Tensor), *prints],
        "groups": [*head, *_fields(shared_records.Group, _LEFT_OUT["groups"])],
        "operators": [*head, *_fields(inspect_records.Operator)],
        "findings": [*head, *_fields(shared_records.Finding)],
    }
    return {name: pa.schema(found[name]) for name in TABLES}


def _fields(kind: type[msgspec.Struct], left_out: Iterable[str] = ()) -> list[tuple[str, pa.DataType]]:
    struct_type = msgspec.inspect.type_info(kind)
    assert isinstance(struct_type, msgspec.inspect.StructType)
    return [
        (field.encode_name, _arrow(field.type))
        for field in struct_type.fields
        if field.encode_name not in left_out
    ]


def _arrow(field_type: msgspec.inspect.Type) -> pa.DataType:
    """Return the Arrow type for a field of a document, or for a part of one."""
    import pyarrow as pa

    match field_type:
        case msgspec.inspect.Metadata(type=inner):
            return _arrow(inner)
        case msgspec.inspect.BoolType():
            return pa.bool_()
        case msgspec.inspect.IntType():
            return pa.int64()
        case msgspec.inspect.FloatType():
            return pa.float64()
        case msgspec.inspect.ListType(item_type=item) | msgspec.inspect.CollectionType(item_type=item):
            return pa.list_(_arrow(item))
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            names = _names(key)
            if names is None:
                return pa.map_(pa.string(), _arrow(value))
            return pa.struct([(name, _arrow(value)) for name in names])
        case msgspec.inspect.StructType(cls=kind):
            return pa.struct(_fields(kind))
        case msgspec.inspect.UnionType(types=types):
            kinds = {_arrow(each) for each in types if not isinstance(each, _NOTHING)}
            return kinds.pop() if len(kinds) == 1 else pa.string()
        case _:
            return pa.string()


_NOTHING = (msgspec.inspect.NoneType,)


def _names(key: msgspec.inspect.Type) -> list[str] | None:
    """Return the keys that an object always has; None if it may have any."""
    if isinstance(key, msgspec.inspect.Metadata):
        return _names(key.type)
    return [str(each.value) for each in key.cls] if isinstance(key, msgspec.inspect.EnumType) else None


Columns = Mapping[str, Mapping[str, list[Any]]]
"""Rows of tables, by table and column name; all columns of a table have one length."""


def by_column(rows: Mapping[str, list[dict[str, Any]]]) -> Columns:
    """Return rows by column, so that each column name is written and read once for all rows."""
    return {
        table: {
            name: [row.get(name) for row in found]
            for name in dict.fromkeys(itertools.chain.from_iterable(found))
        }
        for table, found in rows.items()
    }


def make_tables(models: Sequence[Columns]) -> Tables:
    """Return the tables with the rows of some models, in their order."""
    import pyarrow as pa

    try:
        return {name: _table(_columns_of_table(models, name), schema) for name, schema in schemas().items()}
    except (OverflowError, pa.ArrowException):  # a file may claim any size
        return {
            name: _table(fitted(_columns_of_table(models, name)), schema)
            for name, schema in schemas().items()
        }


def _columns_of_table(models: Iterable[Columns], table: str) -> list[Mapping[str, list[Any]]]:
    return [table_columns for columns in models if (table_columns := columns.get(table))]


def _table(parts: Sequence[Mapping[str, list[Any]]], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns = []
    lengths = [len(next(iter(part.values()))) for part in parts]
    for field in schema:
        values: list[Any] = []
        for part, length in zip(parts, lengths, strict=True):
            values += part.get(field.name) or [None] * length
        convert = _converter(field.type)
        if convert is not None:
            values = [value if value is None else convert(value) for value in values]
        columns.append(pa.array(values, type=field.type))
    return pa.Table.from_arrays(columns, schema=schema)


@functools.cache
def _converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a function that converts values for Arrow; None if they need no conversion.

    Maps become lists of pairs; each item of a list of sizes and names becomes text.
    """
    import pyarrow as pa

    if pa.types.is_map(kind):
        return lambda value: list(value.items())
    if pa.types.is_struct(kind):
        inner = {field.name: convert for field in kind if (convert := _converter(field.type)) is not None}
        return (lambda value: _converted(value, inner)) if inner else None
    if not pa.types.is_list(kind):
        return None
    if pa.types.is_string(kind.value_type):
        return _texts
    convert = _converter(kind.value_type)
    return None if convert is None else lambda value: [convert(item) for item in value]


def _converted(value: Mapping[str, Any], inner: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    made = dict(value)
    for name, convert in inner.items():
        if made.get(name) is not None:
            made[name] = convert(made[name])
    return made


def _texts(value: Sequence[Any]) -> list[str | None]:
    return [item if item is None or type(item) is str else str(item) for item in value]


def fitted(value: Any) -> Any:
    """Return a value with all integers that exceed 64 bits replaced by null, at any depth."""
    if isinstance(value, dict):
        return {key: fitted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fitted(item) for item in value]
    return None if isinstance(value, int) and value.bit_length() > _MOST_BITS else value


FORMAT = 1
"""Format version of a lake; a lake of another version is not read."""

_PARTIAL = ".partial"
_LOCK = ".lock"
_SUFFIX = ".parquet"


class Lake:
    """Shards of one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._note = _read_note(path)

    @property
    def is_complete(self) -> bool:
        """Whether a run has processed all its sources."""
        return bool(self._note["complete"])

    @property
    def shards(self) -> tuple[str, ...]:
        """Shards of the lake; if no run has finished it, those on disk."""
        return tuple(self._note["shards"]) if self.is_complete else self.present

    @property
    def present(self) -> tuple[str, ...]:
        """All shards on disk, including those that a later run has replaced, or has not finished.

        A shard without one of its tables does not count, and its models are read again.
        """
        listings = [
            set(os.listdir(self.path / table) if (self.path / table).is_dir() else ())  # noqa: PTH208 - names
            for table in TABLES
        ]
        names = set.intersection(*listings)
        return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))

    def is_whole(self, shard: str) -> bool:
        """Whether all tables of a shard are whole at both ends: a copy may have been truncated."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            for table in TABLES:
                pq.read_metadata(self.file(table, shard))
        except (OSError, pa.ArrowException):
            return False
        return True

    def file(self, table: str, shard: str) -> Path:
        """Return the path of a shard's rows of one table."""
        return self.path / table / f"{shard}{_SUFFIX}"

    def files(self, table: str) -> list[Path]:
        """Return the paths of all rows of one table."""
        return [self.file(table, shard) for shard in self.shards]

    def read(self, table: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a shard's rows of one table.

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
            advice = "run survey again" if not place.exists() else "remove it, and run survey again"
            raise UsageError(f"{place}: cannot be read: {line}; {advice}") from error

    @contextmanager
    def written(self) -> Iterator[None]:
        """Lock the lake for writing by this process alone, until the block ends.

        Raises:
            UsageError: another process writes, or the folder cannot be written to.
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
        """Mark the folder as a lake, before its first shard."""
        if not is_lake(self.path):
            self._replace_note(settings, (), complete=False)

    def write(self, key: str, tables: Tables) -> str:
        """Write a shard, and return its name: the key, and a digest of the content."""
        contents = {table: _encode(tables[table]) for table in TABLES}
        hasher = hashlib.sha256()
        for table in TABLES:
            hasher.update(hashlib.sha256(contents[table]).digest())
        shard = f"{key}-{hasher.hexdigest()[:16]}"
        if self.is_whole(shard):
            return shard
        for table in reversed(TABLES):  # models last: a shard with it is complete
            partial = self.path / _PARTIAL / f"{table}-{shard}"
            _write_synced(partial, contents[table])
            partial.replace(self.file(table, shard))
            _sync_folder(self.path / table)
        return shard

    def finish(self, settings: FleetSettings, shards: Sequence[str]) -> None:
        """Record the shards of the lake, then delete all others."""
        self._replace_note(settings, shards, complete=True)
        kept = set(shards)
        for table in TABLES:  # models first: without it a shard does not exist
            for place in (self.path / table).iterdir():
                if place.name.removesuffix(_SUFFIX) not in kept:
                    place.unlink()

    def _replace_note(self, settings: FleetSettings, shards: Sequence[str], *, complete: bool) -> None:
        note = {
            "format": FORMAT,
            "tool": {"name": "onnxledger", "version": settings.version},
            "settings": {
                "content": settings.content,
                "max_objects": settings.max_objects,
                **({"shapes": list(settings.shapes)} if settings.shapes else {}),
            },
            "complete": complete,
            "shards": list(shards),
        }
        partial = self.path / _PARTIAL / NOTE
        _write_synced(partial, (json.dumps(note, indent=1, sort_keys=True) + "\n").encode())
        partial.replace(self.path / NOTE)
        _sync_folder(self.path)
        self._note = note


def open_lake(path: Path | str) -> Lake:
    """Return an existing lake.

    Raises:
        UsageError: it is not a lake, or has another format.
        MissingExtraError: the package that reads it is not installed.
    """
    if not is_lake(path):
        raise UsageError(f"{path}: is not a lake: it has no {NOTE}; make one with survey SOURCE -o {path}")
    need_arrow()
    return Lake(Path(path))


def need_arrow() -> None:
    """Check that the package that reads and writes tables is installed.

    Raises:
        MissingExtraError: it is not.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("fleet", "pyarrow", "a lake") from error


def _read_note(path: Path) -> Mapping[str, Any]:
    try:
        note = load_json(path / NOTE)
    except FileNotFoundError:
        return {"complete": False, "shards": ()}
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path / NOTE}: cannot be read: {error}; make the lake again") from error
    names = note.get("shards") if isinstance(note, dict) else None
    if not isinstance(names, list) or note.get("format") != FORMAT:
        raise UsageError(f"{path / NOTE}: is not of format {FORMAT}; make the lake again in another folder")
    if not all(isinstance(name, str) and name.replace("-", "").isalnum() for name in names):
        raise UsageError(
            f"{path / NOTE}: has an invalid name of a shard; make the lake again in another folder"
        )
    if len(set(names)) < len(names):
        raise UsageError(f"{path / NOTE}: names a shard twice; make the lake again in another folder")
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
    with contextlib.suppress(OSError):  # some systems do not open folders
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _locked(path: Path, lock: io.BufferedWriter) -> Iterator[None]:
    """Hold the lock of a lake, which the system releases when the process dies.

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
        raise UsageError(
            f"-o {path}: another survey writes to it; wait for it, or name another folder"
        ) from None
    yield


def joined(tables: Iterable[Tables]) -> Tables:
    """Return several tables of each name as one."""
    import pyarrow as pa

    several = list(tables)
    return {
        name: pa.concat_tables([each[name] for each in several]) if several else schema.empty_table()
        for name, schema in schemas().items()
    }
