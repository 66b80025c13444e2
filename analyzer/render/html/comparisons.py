"""Documents of `compare` -> sections: two models side by side, or two timings."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.render.html.blocks import Block, Cell, Chart, Column, Grid, Section, Table
from analyzer.render.html.parts import Beside, facts, name, number
from analyzer.render.html.reading import View
from analyzer.render.html.wording import (
    amount,
    ms,
    ratio,
    show,
    signed_ms,
)

__all__ = ["describe_time_comparison"]

_CHARTED = 30
"""Groups that fit into a chart; the table has all."""


def _sides(view: View) -> Block:
    return facts(("a", view.text("a")), ("b", view.text("b")))


_PAIR = ("a", "b", "a - b", "a / b")


def _bars(grid: Grid, beside: Beside, measures: Sequence[tuple[str, int]]) -> tuple[Block, ...]:
    """Bars of a and b for each group: the numbers of a are in the column that is named, those of b in the next."""
    if not grid.rows:
        return ()
    data = {
        "grid": grid.key,
        "name": 0,
        "most": _CHARTED,
        "measures": [[label, [["a", index], ["b", index + 1]]] for label, index in measures],
    }
    summary = "Bars of a and b for each group; the table below has the numbers."
    return (Chart(beside.keys.next(), "Groups of a and b", "bars", data, summary),)


def describe_time_comparison(view: View, beside: Beside) -> Section:
    """Two timings, or two sweeps at each length."""
    measured = tuple(
        (show(row.text("what")), *(show(_either(row, side)) for side in "ab"))
        for row in view.rows("measured")
    )
    blocks: list[Block] = [_sides(view)]
    points = view.rows("points") if view.has("points") else (view,)
    for point in points:
        value = point.count("value") if point.has("value") else None
        title = "Groups side by side" if value is None else f"{show(view.text('axis'))} = {amount(value)}"
        grid = _times(point, title, beside)
        blocks += _bars(grid, beside, (("ms", 2),))
        blocks.append(grid)
    if measured:
        blocks.append(Table("What was measured", (Column("what"), Column("a"), Column("b")), measured))
    return Section("compare-time", "Times side by side", "", tuple(blocks), view.missing)


def _either(row: View, key: str) -> str | None:
    return row.text(key) if row.has(key) else None


def _times(point: View, title: str, beside: Beside) -> Grid:
    columns = (name("group"), Column("status"), *(number(f"ms, {each}") for each in _PAIR))
    rows: list[tuple[Cell, ...]] = [
        (show(row.text("group")), show(row.text("status")), *_ms_pair(row.at("ms")))
        for row in point.rows("groups")
    ]
    for label, key in (("[unattributed]", "unattributed_ms"), ("[overhead]", "overhead_ms")):
        rows.append((label, "", *_ms_pair(point.at(key))))
    totals = point if point.has("latency_ms") else point.at("totals")
    total = ("latency of a run", "", *_ms_pair(totals.at("latency_ms")))
    return Grid(beside.keys.next(), title, columns, tuple(rows), total)


def _ms_pair(pair: View) -> tuple[Cell, ...]:
    sides = (ms(pair.number("a")), ms(pair.number("b")))
    return (*sides, signed_ms(pair.number("difference")), ratio(pair.number("ratio")))
