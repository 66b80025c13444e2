"""Answer to a question to a lake: a table with any columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analyzer.records import Frozen


class Answer(Frozen):
    """Rows with the same columns, as plain values: numbers, texts, lists, objects, None."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    says: str = ""
    """Sentence that says what the table answers; "" for a user's own query."""

    @property
    def records(self) -> list[dict[str, Any]]:
        """Rows as objects, keyed by the names of the columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]
