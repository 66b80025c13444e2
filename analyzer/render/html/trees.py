"""Tables of tensors or groups -> charts that can be clicked into, of the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.render.html.blocks import Chart, Grid
from analyzer.render.html.parts import Beside
from analyzer.render.html.reading import View

__all__ = ["chart_groups", "chart_parameters", "chart_tensors"]

_TENSOR, _DTYPE, _ROLE, _SCOPE = 0, 1, 3, 7
_PARAMETERS, _ELEMENTS, _BYTES = 4, 5, 6
_BLOCK, _READ_BY, _LAYER_ROLE = 11, 12, 13


def chart_tensors(view: View, grid: Grid, beside: Beside) -> Chart | None:
    """Tensors within their scopes, or in whatever else they may be grouped by; None where there are none."""
    if not grid.rows:
        return None
    arrangements = [
        ["scope", [_SCOPE], "."],
        ["block", [_BLOCK], ""],
        ["operator", [_READ_BY], ""],
        ["layer role", [_LAYER_ROLE], ""],
        ["role", [_ROLE], ""],
        ["dtype", [_DTYPE], ""],
    ]
    by = view.text("by")
    named = any(row[_SCOPE] not in ("[unscoped]", "[root]") for row in grid.rows)
    chosen = [each for each in arrangements if any(row[_index(each[1])] for row in grid.rows)]
    first = by if by in [each[0] for each in chosen] else "scope" if named else "block"
    chosen.sort(key=lambda each: each[0] != first)
    return Chart(
        beside.keys.next(),
        "Where the parameters and bytes are",
        "tree",
        {
            "grid": grid.key,
            "name": _TENSOR,
            "arrangements": chosen,
            "measures": [["parameters", _PARAMETERS], ["bytes", _BYTES], ["stored elements", _ELEMENTS]],
            "colours": [["role", _ROLE], ["dtype", _DTYPE]],
            "times": [[name, ms] for name, ms in beside.times.items()],
        },
        "A treemap: each rectangle is a group or a tensor, as large as its share.",
    )


def _index(columns: object) -> int:
    assert isinstance(columns, list)
    index = columns[0]
    assert isinstance(index, int)
    return index


def chart_parameters(grid: Grid, beside: Beside, *, elements: int, line: int) -> Chart | None:
    """PyTorch's parameters within their modules."""
    if not grid.rows:
        return None
    return Chart(
        beside.keys.next(),
        "Where PyTorch's parameters are, and what became of them",
        "tree",
        {
            "grid": grid.key,
            "name": 0,
            "arrangements": [["module", [0], "."], ["line", [line], ""]],
            "measures": [["elements", elements]],
            "colours": [["line", line]],
            "times": [[name, ms] for name, ms in beside.times.items()],
        },
        "A treemap: each rectangle is a module or a parameter, as large as its share.",
    )


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
