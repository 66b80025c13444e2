"""What a question to a lake is answered with: a table of any columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analyzer.records import Frozen


class Answer(Frozen):
    """Rows with the same columns, as plain values: numbers, texts, lists, objects, None."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    says: str = ""
    """What it is the answer to, in one sentence; "" where the question was somebody's own."""

    @property
    def records(self) -> list[dict[str, Any]]:
        """Each row as an object, by the names of the columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]
