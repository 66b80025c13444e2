"""The rows that answer a question to a lake -> text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from analyzer.answer import Answer
from analyzer.render.csv.cells import write_cell
from analyzer.render.json.parts import utf8
from analyzer.units import format_count, format_many, format_others, printable, shorten

__all__ = ["answer_as_csv", "answer_as_json", "answer_as_markdown", "answer_as_text", "show_value"]

_WIDEST = 60
"""Characters of a cell on a terminal; JSON and CSV have all of it."""


def answer_as_text(answer: Answer, rows: int = 20, width: int = 80) -> str:
    """A table that shows some of the rows, and says how many there are.

    Args:
        answer: what is shown.
        rows: so many at most; 0 shows all.
        width: characters of a line, which the first column of texts keeps to as far as it can.
    """
    shown = answer.rows[:rows] if rows else answer.rows
    numeric = [_is_numeric(answer, at) for at in range(len(answer.columns))]
    cells = [[show_value(value, _WIDEST) for value in row] for row in shown]
    heads = [printable(column) for column in answer.columns]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    _narrow(widths, numeric, width)
    lines = [answer.says] if answer.says else []
    lines += [_line(heads, widths, numeric), "  ".join("-" * each for each in widths)]
    lines += [_line([shorten(c, w) for c, w in zip(r, widths, strict=True)], widths, numeric) for r in cells]
    left = len(answer.rows) - len(shown)
    lines.append(format_others(left) if left else format_many(len(answer.rows), "row"))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _narrow(widths: list[int], numeric: list[bool], width: int) -> None:
    """Take from the widest column of texts what is more than a line, so that it keeps something to read."""
    while sum(widths) + 2 * (len(widths) - 1) > width:
        texts = [at for at in range(len(widths)) if not numeric[at] and widths[at] > _LEAST]
        if not texts:
            return
        widest = max(texts, key=lambda at: widths[at])
        widths[widest] -= 1


_LEAST = 16


def _line(cells: list[str], widths: list[int], numeric: list[bool]) -> str:
    return "  ".join(
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )


def _is_numeric(answer: Answer, at: int) -> bool:
    values = [row[at] for row in answer.rows if row[at] is not None]
    return bool(values) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )


def show_value(value: Any, widest: int = 0) -> str:
    """A value as people read it, and no longer than `widest` if that is not 0."""
    match value:
        case None:
            text = ""
        case bool():
            text = "yes" if value else "no"
        case int():
            text = format_count(value)
        case float():
            text = f"{value:,.4g}"
        case str():
            text = value
        case list():
            text = ", ".join(show_value(item) for item in value)
        case dict():
            text = ", ".join(f"{key} {show_value(item)}" for key, item in value.items())
        case _:
            text = str(value)
    text = printable(text)
    return shorten(text, widest) if widest else text


def answer_as_markdown(answer: Answer, rows: int = 20) -> str:
    """The same as a table of Markdown."""
    shown = answer.rows[:rows] if rows else answer.rows
    numeric = [_is_numeric(answer, at) for at in range(len(answer.columns))]
    lines = [answer.says, ""] if answer.says else []
    lines.append(_row(map(_escape, answer.columns)))
    lines.append(_row("---:" if right else "---" for right in numeric))
    lines += [_row(_escape(show_value(value)) for value in row) for row in shown]
    left = len(answer.rows) - len(shown)
    lines += ["", format_others(left)] if left else []
    return "\n".join(lines) + "\n"


def _row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """Text in which nothing is markup, nor ends the cell."""
    return "".join(f"\\{sign}" if sign in _MARKUP else sign for sign in printable(text))


_MARKUP = frozenset("\\`*_{}[]<>()#+!|~$&")


def answer_as_csv(answer: Answer) -> str:
    """All rows as RFC 4180 has it, but with lines that end as Unix's do; lists and objects as JSON."""
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
    """`{"rows": [...]}`, an object with the names of the columns for each row; a line each, in their order."""
    lines = ",\n".join(f"    {_encode(_clean(record))}" for record in answer.records)
    return f'{{\n  "rows": [\n{lines}\n  ]\n}}\n' if lines else '{\n  "rows": []\n}\n'


_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False).encode


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {utf8(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_clean, value))
    return utf8(value) if isinstance(value, str) else value
