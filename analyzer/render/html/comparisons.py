"""Documents of `compare` -> sections: two models side by side, or two timings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analyzer.render.html.blocks import Block, Cell, Chart, Column, Grid, Section, Table, Tile, Tiles
from analyzer.render.html.parts import Beside, facts, name, number
from analyzer.render.html.reading import View
from analyzer.render.html.wording import (
    amount,
    bytes_of,
    cell,
    ms,
    ratio,
    shape,
    show,
    signed,
    signed_ms,
)

__all__ = ["describe_comparison", "describe_time_comparison"]

_CHARTED = 30
"""Groups that fit into a chart; the table has all."""


def describe_comparison(view: View, beside: Beside) -> Section:
    """Two models: totals, groups, tensors."""
    totals = view.at("totals")
    tiles = Tiles(
        (
            _tile("Parameters, a - b", totals.at("parameters"), amount, signed),
            _tile("On disk, a - b", totals.at("bytes"), bytes_of, _signed_bytes),
        )
    )
    groups = _groups(view, totals, beside)
    blocks: list[Block] = [_sides(view), tiles]
    blocks += _changes(view)
    blocks += _bars(groups, beside, (("parameters", 2), ("bytes", 6)))
    blocks.append(groups)
    if view.has("tensors"):
        blocks.append(_tensors(view, beside))
    return Section("compare", "Side by side", "", tuple(blocks), view.missing)


def _sides(view: View) -> Block:
    return facts(("a", view.text("a")), ("b", view.text("b")))


def _tile(
    label: str, pair: View, write: Callable[[int | None], str], sign: Callable[[int | None], str]
) -> Tile:
    a, b = write(pair.count("a")), write(pair.count("b"))
    difference = sign(pair.count("difference"))
    return Tile(label, difference, f"a {a}, b {b}; a / b {ratio(pair.number('ratio'))}")


def _signed_bytes(nbytes: int | None) -> str:
    return f"{signed(nbytes)} bytes"


_PAIR = ("a", "b", "a - b", "a / b")


def _groups(view: View, totals: View, beside: Beside) -> Grid:
    columns = (
        name("group"),
        Column("status"),
        *(number(f"parameters {each}" if each in "ab" else f"parameters, {each}") for each in _PAIR),
        *(number(f"bytes {each}" if each in "ab" else f"bytes, {each}") for each in _PAIR),
    )
    total = ("total", "", *_pair(totals.at("parameters")), "", "", "", "")
    rows = [_group(row) for row in view.rows("groups")]
    for key in ("overlap", "ungrouped"):
        row = view.at(key)
        if any(row.at(each).count(side) for each in ("parameters", "bytes") for side in "ab"):
            rows.append((f"[{key}]", *_group(row)[1:]))
    return Grid(beside.keys.next(), "Groups side by side", columns, tuple(rows), total)


def _group(row: View) -> tuple[Cell, ...]:
    return (
        show(row.text("group")),
        show(row.text("status")),
        *_pair(row.at("parameters")),
        *_pair(row.at("bytes")),
    )


def _pair(pair: View) -> tuple[Cell, ...]:
    counts = (cell(pair.count("a")), cell(pair.count("b")))
    return (*counts, signed(pair.count("difference")), ratio(pair.number("ratio")))


def _changes(view: View) -> tuple[Block, ...]:
    """How many groups and tensors were added, removed, changed."""
    if not view.has("changes"):
        return ()
    changes = view.at("changes")
    keys = ("added", "removed", "changed", "unchanged")
    rows = tuple(
        (what, *(cell(changes.at(what).count(key)) for key in keys)) for what in ("groups", "tensors")
    )
    note = "Added: only b has it; removed: only a has it."
    return (Table("What changed", (Column("of"), *map(number, keys)), rows, note=note),)


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


def _tensors(view: View, beside: Beside) -> Grid:
    columns = (
        name("tensor"),
        Column("status"),
        Column("a"),
        Column("b"),
        *(number(f"parameters {each}" if each in "ab" else f"parameters, {each}") for each in _PAIR[:3]),
        *(number(f"bytes {each}" if each in "ab" else f"bytes, {each}") for each in _PAIR[:3]),
        Column("matched by"),
        name("group"),
    )
    return Grid(
        beside.keys.next(), "Tensors side by side", columns, tuple(map(_tensor, view.rows("tensors")))
    )


def _tensor(row: View) -> tuple[Cell, ...]:
    path, own = row.text("graph_path") if row.has("graph_path") else None, row.text("name")
    return (
        show(f"{path}/{own}" if path else own),
        show(row.text("status")),
        *(_stored(row, side) for side in "ab"),
        *_pair(row.at("parameters"))[:3],
        *_pair(row.at("bytes"))[:3],
        show(row.text("matched_by")),
        show(row.text("group")),
    )


def _stored(row: View, side: str) -> str:
    if not row.has(side):
        return "-"
    half = row.at(side)
    return f"{show(half.text('dtype'))} {shape(half.counts('shape'))}"


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
