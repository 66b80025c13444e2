"""A lake and a query, or the name of a predefined question -> its answer; DuckDB may read the lake and nothing else."""

from __future__ import annotations

import datetime
import decimal
import functools
import io
import math
import re
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.documents.answer import Answer
from analyzer.errors import MissingExtraError, UsageError
from analyzer.fleet.families import find_families
from analyzer.fleet.lake import Lake, open_lake, schemas
from analyzer.fleet.record import TABLES
from analyzer.formats import FORMATS
from analyzer.formats.lake import tables_as_html
from analyzer.text import shorten

if TYPE_CHECKING:
    import duckdb


def answer_as_parquet(answer: Answer) -> bytes:
    """Return all rows as Parquet, with the types of their values.

    Raises:
        UsageError: the values of a column have no type in common.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        columns = {name: pa.array([row[at] for row in answer.rows]) for at, name in enumerate(answer.columns)}
        table = pa.table(columns)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise UsageError(
            f"QUERY: cannot be written as Parquet: {error}; cast the column, or write .csv"
        ) from error
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    return stream.getvalue()


OLD = "old"
"""Schema of the tables of an earlier lake."""

_LOCKS = (
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET threads = 1",  # with more, unordered rows vary from run to run
    "SET temp_directory = ''",
    "SET memory_limit = '1GB'",  # fails with an error instead of killing the process
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""Settings that stop a query from naming files, loading extensions, writing, and changing these settings."""


def ask_lake(
    lake: Path | str | Lake,
    query: str,
    *,
    earlier: Path | str | None = None,
    variables: Mapping[str, int | str] | None = None,
) -> Answer:
    """Query a lake in SQL.

    Args:
        lake: its folder.
        query: one SELECT over the tables models, files, tensors, groups, operators and findings.
        earlier: another lake, whose tables are `old.models` and so on.
        variables: values of `getvariable('name')`.

    Raises:
        UsageError: there is no such lake, or the query is not a SELECT, is wrong, or is not allowed.
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
    """Return a connection to an in-memory database with the tables of a lake, with its settings locked.

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
    """Register a lake's tables as views. Arrow reads them on demand; DuckDB itself opens no file."""
    import pyarrow.dataset as ds

    for table in TABLES:
        columns = schemas()[table]
        files = [str(place) for place in lake.files(table)]
        try:
            found = ds.dataset(files, format="parquet", schema=columns) if files else columns.empty_table()
        except OSError as error:
            raise UsageError(
                f"{shorten(str(error), 400)}: cannot be read; run survey again, which reads its models anew"
            ) from error
        name = f"{schema}_{table}"
        connection.register(name, found)
        connection.execute(f'CREATE VIEW {schema}."{table}" AS SELECT * FROM {name}')


def run(connection: duckdb.DuckDBPyConnection, query: str) -> Answer:
    """Return the answer of a locked database to one SELECT.

    Raises:
        UsageError: it is not a SELECT, is wrong, or is not allowed.
    """
    import duckdb

    try:
        statements = connection.extract_statements(query)
        is_one = len(statements) == 1 and statements[0].type == duckdb.StatementType.SELECT
        if not is_one or _PRAGMA.match(query):
            raise UsageError("QUERY: must be one SELECT statement; a lake is read-only")
        found = connection.execute(statements[0])
        columns = _distinct(column[0] for column in found.description)
        rows = [tuple(map(_plain, row)) for row in found.fetchall()]
    except (duckdb.Error, OSError, RuntimeError, MemoryError) as error:
        line = _first_line(error)
        advice = "; run survey again, which reads its models anew" if "Parquet" in line else ""
        raise UsageError(f"QUERY: {shorten(line, 400)}{advice}") from error
    return Answer(columns, rows)


_PRAGMA = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*pragma\b", re.IGNORECASE | re.DOTALL)
"""PRAGMA statements, some of which are a SELECT to duckdb before 1.5."""


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    hints = [line for line in lines[1:] if line.startswith(("Candidate", "Did you mean"))]
    return "; ".join([lines[0].rstrip("!"), *hints[:1]])


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Return column names made distinct, because a query may repeat one."""
    found: list[str] = []
    for name in names:
        count = sum(each == name or each.startswith(f"{name}:") for each in found)
        found.append(f"{name}:{count}" if count else name)
    return tuple(found)


def _plain(value: Any) -> Any:
    """Return a value in JSON types."""
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


FAMILIES = "families"
_ABOUT = "Models with the same weights, or cast, quantized, fine-tuned or merged from others; the bytes of the copies."
_MEMORY = 8 << 30


@functools.cache
def load_questions() -> Mapping[str, Mapping[str, str]]:
    """Return the predefined questions by name: the text `says`, the query `sql`, the requirement `needs`."""
    text = resources.files("analyzer.fleet").joinpath("questions.toml").read_text(encoding="utf-8")
    return {**tomllib.loads(text), FAMILIES: {"says": _ABOUT}}


def list_questions() -> Answer:
    """Return the names and descriptions of the predefined questions."""
    return Answer(("question", "says"), [(name, each["says"]) for name, each in load_questions().items()])


def answer_question(
    lake: Path | str | Lake,
    name: str,
    *,
    earlier: Path | str | None = None,
    variables: Mapping[str, int | str] | None = None,
) -> Answer:
    """Answer a predefined question about a lake.

    Args:
        lake: its folder.
        name: a name in `load_questions`.
        earlier: another lake, for `growth`.
        variables: `memory` in bytes, for `fits`.

    Raises:
        UsageError: there is no such question or lake, or the question needs an earlier lake.
        MissingExtraError: duckdb or pyarrow is not installed.
    """
    found = load_questions().get(name)
    if found is None:
        raise UsageError(f"--question {name}: no such question; there are {', '.join(load_questions())}")
    if found.get("needs") == "baseline" and earlier is None:
        raise UsageError(f"--question {name}: needs an earlier lake to compare with; add --baseline LAKE")
    if name == FAMILIES:
        from analyzer.fleet.families import find_families

        return find_families(lake, says=found["says"])
    answer = ask_lake(lake, found["sql"], earlier=earlier, variables={"memory": _MEMORY, **(variables or {})})
    return Answer(answer.columns, answer.rows, found["says"])


_MODELS = """
WITH found AS (
    SELECT model, string_agg(id || CASE WHEN n > 1 THEN ' (' || n || ')' ELSE '' END, ', ' ORDER BY id) AS findings
    FROM (SELECT model, id, count(*) AS n FROM findings GROUP BY model, id) GROUP BY model
)
SELECT model, parameters, file_bytes, nodes,
       [each.dtype FOR each IN dtypes IF each.bytes > 0] AS dtypes,
       wasted_bytes, findings, replace(error, model || ': ', '') AS error
FROM models LEFT JOIN found USING (model)
ORDER BY models.error IS NULL, file_bytes DESC NULLS LAST, model
"""

_TOTALS = """
SELECT count(*) AS models, count(error) AS unreadable, sum(parameters) AS parameters, sum(file_bytes) AS file_bytes
FROM models
"""

_BESIDE = ("findings", "duplicates", "precision", "operators")
"""Predefined questions whose answers are on the page too."""


def render_lake(lake: Path | str | Lake) -> str:
    """Return a self-contained HTML page about a lake.

    Raises:
        UsageError: there is no such lake.
        MissingExtraError: a package that makes pages or reads lakes is not installed.
    """
    FORMATS["html"].check()
    opened = lake if isinstance(lake, Lake) else open_lake(lake)
    families = find_families(opened, says=load_questions()["families"]["says"])
    copied = sum(row["copied_bytes"] for row in families.records)
    totals = ask_lake(opened, _TOTALS)
    totals = Answer((*totals.columns, "copied_bytes"), [(*totals.rows[0], copied)])
    models = ask_lake(opened, _MODELS)
    work = answer_question(opened, "work")
    return tables_as_html(
        str(opened.path),
        totals,
        Answer(models.columns, models.rows, "Models"),
        families,
        [answer_question(opened, name) for name in _BESIDE] + ([work] if work.rows else []),
    )
