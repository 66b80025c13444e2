"""Tables of tensors or groups -> charts that can be clicked into, of the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.render.html.blocks import Chart, Grid
from analyzer.render.html.parts import Beside

__all__ = ["chart_groups"]


def chart_groups(
    grid: Grid, beside: Beside, measures: Sequence[str] = ("parameters", "bytes", "stored elements")
) -> Chart | None:
    """Rows of a table as they are, without levels, by those of its columns; None where there are none."""
    if not grid.rows:
        return None
    titles = [column.title for column in grid.columns]
    return Chart(
        beside.keys.next(),
        "Shares",
        "tree",
        {
            "grid": grid.key,
            "name": 0,
            "arrangements": [["row", [], ""]],
            "measures": [[title, titles.index(title)] for title in measures],
            "colours": [],
            "times": [],
        },
        "A treemap: each rectangle is a row of the table, as large as its share.",
    )
