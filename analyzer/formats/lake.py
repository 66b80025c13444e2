"""Summary of a survey, and rows that answer a question to its lake -> text, Markdown, HTML, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from analyzer.documents.answer import Answer
from analyzer.documents.lake import LakeDocument, LakeTable
from analyzer.formats.csv.cells import write_cell
from analyzer.formats.json import write_json
from analyzer.formats.json.parts import head, utf8
from analyzer.pages.lake import describe_answer, describe_lake, describe_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ROWS = 10_000
"""Largest number of rows in a table of a page."""


class SurveySummary(Protocol):
    """Summary that a run gives of itself: `analyzer.fleet.record.Survey`."""

    lake: str
    models: int
    kept: int
    read: int
    unreadable: int
    first_error: str | None
    shards: int
    written: int
    nbytes: int

    @property
    def rows(self) -> Mapping[str, int]: ...


def document_lake(done: SurveySummary) -> LakeDocument:
    """Return the document of the run."""
    return LakeDocument(
        **head(),
        lake=utf8(done.lake),
        models=done.models,
        unreadable=done.unreadable,
        first_error=None if done.first_error is None else utf8(done.first_error),
        read=done.read,
        kept=done.kept,
        shards=done.shards,
        written=done.written,
        tables=[LakeTable(table=name, rows=count) for name, count in done.rows.items()],  # type: ignore[arg-type]
        bytes=done.nbytes,
    )


def summary_as_text(done: SurveySummary, width: int = 80, *, ascii: bool = False) -> str:
    """Return numbers of models and sizes of tables as text; `width` and `ascii` as in `answer_as_text`."""
    from analyzer.formats.text.writer import write_text

    return write_text(describe_lake(document_lake(done)), width=width, ascii=ascii)


def summary_as_json(done: SurveySummary) -> str:
    """Return the document of the run as JSON."""
    return write_json(document_lake(done))


def answer_as_text(answer: Answer, rows: int = 20, width: int = 80, *, ascii: bool = False) -> str:
    """Return a table as text that shows some of the rows, and says how many there are.

    Args:
        answer: table to show.
        rows: largest number of rows that are shown; 0 shows all.
        width: characters of a line.
        ascii: whether the output encoding has ASCII characters only.
    """
    from analyzer.formats.text.writer import write_text

    return write_text(describe_answer(answer, ""), rows=rows, width=width, ascii=ascii)


def answer_as_markdown(answer: Answer, rows: int = 20, title: str = "Answer") -> str:
    """Return the answer as Markdown, under a title."""
    from analyzer.formats.markdown.pages import write_markdown

    return write_markdown(describe_answer(answer, title), rows=rows)


def answer_as_html(answer: Answer, title: str) -> str:
    """Return the answer as an HTML page."""
    from analyzer.formats.html import write_html  # it needs jinja2

    return write_html(describe_answer(answer, title, MOST_ROWS))


def tables_as_html(
    title: str, totals: Answer, models: Answer, families: Answer, others: Sequence[Answer]
) -> str:
    """Return a lake as an HTML page, arranged by `describe_tables`."""
    from analyzer.formats.html import write_html  # it needs jinja2

    return write_html(describe_tables(title, totals, models, families, others, MOST_ROWS))


def answer_as_csv(answer: Answer) -> str:
    """Return all rows as CSV by RFC 4180, but with Unix line ends; objects and nested lists as JSON."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([write_cell(column) for column in answer.columns])
    for row in answer.rows:
        writer.writerow([write_cell(_flat(value)) for value in row])
    return stream.getvalue()


def _flat(value: Any) -> Any:
    is_nested = isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
    )
    return json.dumps(value, sort_keys=True) if is_nested else value


def answer_as_json(answer: Answer) -> str:
    """Return `{"rows": [...]}`: one line per row, an object keyed by the names of the columns, in their order."""
    lines = ",\n".join(f"    {_encode(_clean(record))}" for record in answer.records)
    return f'{{\n  "rows": [\n{lines}\n  ]\n}}\n' if lines else '{\n  "rows": []\n}\n'


_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False).encode


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {utf8(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_clean, value))
    return utf8(value) if isinstance(value, str) else value
