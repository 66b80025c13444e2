"""A lake and a query -> the rows that answer it: DuckDB, which may read the lake's tables and nothing else."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.answer import Answer
from analyzer.errors import MissingExtraError, UsageError
from analyzer.fleet.columns import schemas
from analyzer.fleet.lake import Lake, open_lake
from analyzer.fleet.record import TABLES
from analyzer.units import shorten

if TYPE_CHECKING:
    import duckdb

__all__ = ["OLD", "ask_lake", "connect"]

OLD = "old"
"""The schema in which an earlier lake's tables are."""

_LOCKS = (
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET threads = 1",  # with more, rows that no ORDER BY orders come in another order each time
    "SET temp_directory = ''",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""After these a query names no file, loads no extension, writes nothing, and cannot take that back."""


def ask_lake(
    lake: Path | str | Lake,
    query: str,
    *,
    earlier: Path | str | None = None,
    variables: Mapping[str, int | str] | None = None,
) -> Answer:
    """Ask a lake in SQL.

    Args:
        lake: its folder.
        query: one SELECT over the tables models, files, tensors, groups, operators and findings.
        earlier: another lake, whose tables are `old.models` and so on.
        variables: what `getvariable('name')` gives.

    Raises:
        UsageError: there is no such lake, or the query is no SELECT, wrong, or asks for what it may not.
        MissingExtraError: duckdb or pyarrow is not installed.
    """
    with connect(lake, earlier=earlier, variables=variables) as connection:
        return run(connection, query)


def connect(
    lake: Path | str | Lake,
    *,
    earlier: Path | str | None = None,
    variables: Mapping[str, int | str] | None = None,
) -> duckdb.DuckDBPyConnection:
    """A database in memory that sees the tables of a lake, and is locked.

    Raises:
        UsageError: there is no such lake.
        MissingExtraError: duckdb or pyarrow is not installed.
    """
    opened = lake if isinstance(lake, Lake) else open_lake(lake)
    before = None if earlier is None else open_lake(earlier)
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError("fleet", "duckdb", "asking a lake") from error
    connection = duckdb.connect(":memory:")
    try:
        for name, value in (variables or {}).items():
            connection.execute(f"SET VARIABLE {name} = ?", [value])
        _show(connection, opened, "main")
        if before is not None:
            connection.execute(f"CREATE SCHEMA {OLD}")
            _show(connection, before, OLD)
        for lock in _LOCKS:
            connection.execute(lock)
    except BaseException:
        connection.close()
        raise
    return connection


def _show(connection: duckdb.DuckDBPyConnection, lake: Lake, schema: str) -> None:
    """Let a lake's tables be seen. They are read as they are needed, by Arrow: DuckDB itself opens no file."""
    import pyarrow.dataset as ds

    for table in TABLES:
        columns = schemas()[table]
        files = [str(place) for place in lake.files(table)]
        found = ds.dataset(files, format="parquet", schema=columns) if files else columns.empty_table()
        name = f"{schema}_{table}"
        connection.register(name, found)
        connection.execute(f'CREATE VIEW {schema}."{table}" AS SELECT * FROM {name}')


def run(connection: duckdb.DuckDBPyConnection, query: str) -> Answer:
    """What a locked database answers to one SELECT.

    Raises:
        UsageError: it is no SELECT, wrong, or asks for what it may not.
    """
    import duckdb

    try:
        statements = connection.extract_statements(query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise UsageError("QUERY: one SELECT is answered, and nothing else: a lake is read only")
        found = connection.execute(statements[0])
        columns = _distinct(column[0] for column in found.description)
        rows = [tuple(map(_plain, row)) for row in found.fetchall()]
    except (duckdb.Error, OSError, RuntimeError) as error:
        raise UsageError(f"QUERY: {shorten(_first_line(error), 400)}") from error
    return Answer(columns, rows)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    hints = [line for line in lines[1:] if line.startswith(("Candidate", "Did you mean"))]
    return "; ".join([lines[0], *hints[:1]])


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Names of columns, of which a query may give two the same."""
    found: list[str] = []
    for name in names:
        count = sum(each == name or each.startswith(f"{name}:") for each in found)
        found.append(f"{name}:{count}" if count else name)
    return tuple(found)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    match value:
        case bool() | None | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case list() | tuple():
            return list(map(_plain, value))
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case bytes():
            return value.hex()
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta() | uuid.UUID():
            return str(value)
        case _:
            return str(value)
