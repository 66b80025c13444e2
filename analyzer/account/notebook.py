"""Caption and rows -> small table that a notebook shows in place of a record's `repr`."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

_MOST = 25
"""Rows shown at most; `rows()` gives all of them."""


def to_html(caption: str, rows: Sequence[Mapping[str, object]]) -> str:
    """Return an HTML table of the first rows, without style sheet or script, its texts escaped.

    >>> to_html("a & b", [{"group": "<x>", "bytes": 1234}])[:59]
    '<table><caption>a &amp; b</caption><thead><tr><th>group</th'
    """
    columns = list(rows[0]) if rows else []
    heads = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    lines = "".join(
        f"<tr>{''.join(map(_cell, (row[column] for column in columns)))}</tr>" for row in rows[:_MOST]
    )
    rest = len(rows) - _MOST
    if rest > 0:
        lines += f'<tr><td colspan="{len(columns)}">and {rest:,} more: <code>.rows()</code> has all</td></tr>'
    caption = f"<caption>{html.escape(caption)}</caption>"
    return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td style="text-align: right">{value:,}</td>'
    if isinstance(value, float):
        return f'<td style="text-align: right">{value:.4g}</td>'
    return f"<td>{'' if value is None else html.escape(str(value))}</td>"
