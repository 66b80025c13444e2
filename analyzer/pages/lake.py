"""The pages of `survey` and `sql`: the summary of a run, the answer to a question, and a whole lake."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from analyzer.documents.answer import Answer
from analyzer.documents.lake import LakeDocument
from analyzer.pages.page import (
    Block,
    Cell,
    Chart,
    Column,
    Detail,
    Figure,
    Formatted,
    Kind,
    Notes,
    Page,
    Row,
    Table,
    Tone,
)
from analyzer.pages.shared import abbreviate_count
from analyzer.records import replace
from analyzer.text import format_bytes, format_count, format_many, format_signed_bytes, short_share


def describe_lake(document: LakeDocument) -> Page:
    """Describe a survey: number of models, models read, size of the tables."""
    counts = f"{format_count(document.models - document.unreadable)} read"
    if document.unreadable:
        counts += f", {format_count(document.unreadable)} unreadable"
    if document.kept:
        counts += f"; {format_count(document.kept)} unchanged since the last run"
    size, shards = format_bytes(document.bytes), format_many(document.shards, "shard")
    errors: tuple[str, ...] = ()
    notes = [f"{size} in {shards}, {format_count(document.written)} written now"]
    command = f"onnxledger sql {shlex.quote(document.lake)} --question"
    if document.unreadable:
        first = "" if document.unreadable == 1 else "first of these errors: "
        errors = (f"{first}{document.first_error}",)
        notes.append(f"{command} errors lists unreadable models, and the reasons")
    notes.append(f"{command} list lists the questions")
    rows = tuple(Row((each.table, each.rows)) for each in document.tables)
    tables = Table((Column("table"), Column("rows", Kind.COUNT, room=9)), rows, title="table", is_whole=True)
    return Page(
        kind="lake",
        question="What was read into this lake?",
        subject=document.lake,
        answer=f"{format_many(document.models, 'model')}: {counts}",
        blocks=(
            Notes(errors, detail=Detail.FIRST, tone=Tone.WARN),
            Notes(tuple(notes), detail=Detail.FIRST),
            tables,
        ),
    )


def describe_answer(answer: Answer, title: str, most: int = 0) -> Page:
    """Describe an answer: rows of any columns.

    Args:
        answer: the rows.
        title: the question.
        most: number of rows to show; 0 shows all.
    """
    table = replace(_table(replace(answer, says=""), most, is_own=not answer.says), title="")
    return Page(
        kind="answer",
        question=title,
        subject="",
        answer=answer.says,
        blocks=(Notes((format_many(len(answer.rows), "row"),), detail=Detail.FIRST), table),
    )


def describe_tables(
    title: str, totals: Answer, models: Answer, families: Answer, others: Sequence[Answer], most: int
) -> Page:
    """Describe a lake: its models, families as a picture, findings by kind.

    Args:
        title: name of the lake.
        totals: one row: models, unreadable, parameters, file_bytes, copied_bytes.
        models: one row for each model.
        families: an answer of `find_families`.
        others: further tables, each titled by its own text.
        most: number of rows of a table; 0 shows all.
    """
    (row,) = totals.records
    return Page(
        kind="lake",
        question="What is in this lake?",
        subject=title,
        figures=tuple(_figures(row)),
        blocks=(_table(models, most), *_families(families, most), *(_table(each, most) for each in others)),
    )


def _figures(row: dict[str, Any]) -> Iterator[Figure]:
    models, unreadable_count = row["models"], row["unreadable"]
    parameters, size, copied = (row[key] or 0 for key in ("parameters", "file_bytes", "copied_bytes"))
    unread = f"{format_count(unreadable_count)} unreadable"
    yield Figure("Models", format_count(models), unread, f"{format_many(models, 'model')}, {unread}")
    many = format_many(parameters, "parameter")
    yield Figure("Parameters", format_count(parameters), abbreviate_count(parameters), many)
    yield Figure("On disk", format_bytes(size), format_many(size, "byte"), f"{format_bytes(size)} on disk")
    yield Figure(
        "Copies", format_bytes(copied), format_many(copied, "byte"), f"{format_bytes(copied)} in copies"
    )


def _families(families: Answer, most: int) -> Iterator[Block]:
    """Draw families as rectangles of their models, with a table; a sentence if there are no families."""
    if not families.rows:
        yield Notes((families.says,), "Families")
        return
    at = {name: place for place, name in enumerate(families.columns)}
    data = {
        "name": at["model"],
        "arrangements": [["family", [at["family"]], ""], ["relation", [at["relation"]], ""]],
        "measures": [["parameters", at["parameters"]], ["copied bytes", at["copied_bytes"]]],
        "colours": [["relation", at["relation"]]],
    }
    summary = "A treemap: each rectangle is a model, within its family, as large as its weights."
    table = _table(families, most)
    yield Chart(table.key, "Families: models with weights in common", "tree", data, summary)
    yield table


_NAMES = frozenset({"model", "models", "of", "sha256", "id", "op_type", "digest", "root"})
_PROSE = frozenset({"error", "findings", "says"})


_SIZES = frozenset({"bytes", "memory"})
_SHARES = frozenset({"share"})
_CHANGE = "change"
"""A change of bytes."""


def _table(answer: Answer, most: int, *, is_own: bool = False) -> Table:
    """Return the rows as a table; a user's own query keeps its values, since its columns may have any meaning."""
    shown = answer.rows[:most] if most else answer.rows
    kinds = [_kind(name, [row[at] for row in answer.rows]) for at, name in enumerate(answer.columns)]
    title, _, more = answer.says.partition(". ")
    left = len(answer.rows) - len(shown)
    notes = (more, f"{format_many(left, 'row')} more are in the lake" if left else "")
    return Table(
        tuple(
            Column(name.replace("_", " "), kind, room=9)
            for name, kind in zip(answer.columns, kinds, strict=True)
        ),
        tuple(
            Row(
                tuple(
                    _cell(value, kind, "" if is_own else name)
                    for value, kind, name in zip(row, kinds, answer.columns, strict=True)
                )
            )
            for row in shown
        ),
        title=title.rstrip("."),
        notes=tuple(filter(None, notes)),
        is_long=True,
        is_split=True,
        key=answer.says or "answer",
    )


def _is_size(name: str) -> bool:
    return name in _SIZES or name.endswith("_bytes")


def _kind(name: str, values: Sequence[object]) -> Kind:
    known = [value for value in values if value is not None]
    if not known and (_is_size(name) or name in _SHARES or name == _CHANGE):
        return Kind.AMOUNT
    if known and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        return Kind.AMOUNT
    return Kind.NAME if name in _NAMES else Kind.PROSE if name in _PROSE else Kind.TEXT


def _cell(value: object, kind: Kind, name: str) -> Cell:
    """Return the cell of a value; `name` is that of its column, if it has the meaning that this name has in a lake."""
    if value is None:
        return Formatted(None, "-")
    if isinstance(value, int | float) and kind is Kind.AMOUNT:
        if _is_size(name):
            return Formatted(value, format_bytes(round(value)))
        if name == _CHANGE:
            return Formatted(value, format_signed_bytes(round(value)))
        return Formatted(value, short_share(value)) if name in _SHARES else value
    return show_value(value)


def show_value(value: Any) -> str:
    """Return a value as people write it.

    >>> show_value([1, {"a": 2.5}]), show_value(True), show_value(None)
    ('1, a 2.5', 'yes', '')
    """
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return format_count(value)
        case float():
            return f"{value:,.4g}"
        case list():
            return ", ".join(show_value(item) for item in value)
        case dict():
            return ", ".join(f"{key} {show_value(item)}" for key, item in value.items())
        case _:
            return str(value)
