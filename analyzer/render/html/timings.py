"""Documents of `time` -> sections: one measurement, or one for each length."""

from __future__ import annotations

from analyzer.render.html.blocks import Block, Cell, Chart, Column, Grid, Section, Table, Tile, Tiles
from analyzer.render.html.parts import Beside, facts, name, number
from analyzer.render.html.reading import View
from analyzer.render.html.wording import amount, cell, ms, percent, shape, show, show_all
from analyzer.render.sentences.timing import format_fill

__all__ = ["describe_sweep", "describe_timing", "find_times"]


def find_times(view: View) -> dict[str, float]:
    """Milliseconds of each group of a timing, for other documents of the page."""
    found = {}
    for row in view.rows("groups"):
        group, value = row.text("group"), row.number("ms")
        if group is not None and value is not None and not row.names("across"):
            found[group] = value
    return found


def describe_timing(view: View, beside: Beside) -> Section:
    """One measurement: how long a run takes, and each group of it."""
    groups = _groups(view, beside)
    data = {"grid": groups.key, "name": 0, "most": 30, "measures": [["ms", [["ms", 1]]]]}
    summary = "Bars of the milliseconds of each group; the table below has the numbers."
    blocks: tuple[Block, ...] = (
        _latency(view),
        Chart(beside.keys.next(), "Milliseconds of each group", "bars", data, summary),
        groups,
        _kernels(view, beside),
        _inputs(view),
        _about(view),
    )
    return Section("time", "How long it takes", show(view.at("model").text("path")), blocks, view.missing)


def _latency(view: View) -> Tiles:
    latency = view.at("latency_ms")
    keys = (
        ("Mean", "mean"),
        ("Median", "median"),
        ("90 % within", "p90"),
        ("99 % within", "p99"),
        ("Fastest", "min"),
    )
    return Tiles(tuple(Tile(f"{label}, ms", ms(latency.number(key))) for label, key in keys))


def _groups(view: View, beside: Beside) -> Grid:
    columns = (
        name("group"),
        *map(
            number,
            ("ms", "± ms", "share of time", "share of parameters", "share of bytes", "parameters", "kernels"),
        ),
    )
    rows = [_group(row) for row in view.rows("groups")]
    blank = ("", "", "", "", "", "")
    for label, key in (("[ungrouped]", "ungrouped_ms"), ("[overlap]", "overlap_ms")):
        if value := view.number(key):
            rows.append((label, ms(value), *blank))
    rows.append(("[unattributed]", ms(view.number("unattributed_ms")), *blank))
    rows.append(("[overhead]", ms(view.number("overhead_ms")), *blank))
    total = ("a run under the profiler", ms(view.at("profiled_latency_ms").number("mean")), *blank)
    note = "The rows sum to the mean run under the profiler."
    if view.has("scale"):
        note += f" Without it, as above, a run takes {percent(view.number('scale'))} of that."
    return Grid(beside.keys.next(), "Groups by time", columns, tuple(rows), total, note)


def _group(row: View) -> tuple[Cell, ...]:
    return (
        show(row.text("group")),
        ms(row.number("ms")),
        ms(row.number("error_ms")),
        percent(row.number("share")),
        percent(row.number("parameter_share")),
        percent(row.number("byte_share")),
        cell(row.count("parameters")),
        cell(row.count("kernels")),
    )


def _kernels(view: View, beside: Beside) -> Grid:
    columns = (
        name("kernel"),
        Column("operator"),
        Column("provider"),
        number("ms"),
        name("groups"),
        number("nodes"),
        Column("decided by"),
    )
    rows = tuple(
        (
            show(row.text("name")),
            show(row.text("op_type")),
            show(row.text("provider")),
            ms(row.number("ms")),
            show_all(row.names("groups")),
            cell(row.count("nodes")),
            show(row.text("decided_by")),
        )
        for row in view.rows("kernels")
    )
    return Grid(beside.keys.next(), "Kernels", columns, rows)


def _inputs(view: View) -> Table:
    rows = tuple(
        (show(row.text("name")), show(row.text("dtype")), shape(row.counts("shape")), _fill(row))
        for row in view.rows("inputs")
    )
    return Table(
        "What it was fed", (name("input"), Column("dtype"), Column("shape"), Column("filled with")), rows
    )


def _fill(row: View) -> str:
    """What an input was fed, as in text."""
    fill, low, high = show(row.text("fill")), row.number("low"), row.number("high")
    return fill if low is None or high is None else format_fill(fill, low, high)


def _about(view: View) -> Block:
    environment = view.at("environment")
    versions = ", ".join(f"{what} {version}" for what, version in environment.items("versions"))
    runs = view.count("runs") if view.has("runs") else None
    return facts(
        ("Provider", view.text("provider")),
        ("Device", view.text("device")),
        ("Runs", amount(runs) if runs is not None else None),
        ("Threads", amount(environment.count("threads"))),
        ("Versions", versions),
        title="How it was measured",
    )


def describe_sweep(view: View, beside: Beside) -> Section:
    """A measurement for each length: a table and a line for each group."""
    axis = show(view.text("axis")) or "length"
    points = view.rows("points")
    values = [point.count("value") for point in points]
    times = [{row.text("group") or "": row.number("ms") for row in point.rows("groups")} for point in points]
    names = list(dict.fromkeys(group for point in times for group in point))
    columns = (name("group"), *(number(f"ms at {amount(value)}") for value in values), Column("growth"))
    growth = {
        row.text("group"): row.at("growth").text("order") for row in view.rows("growth") if row.has("growth")
    }
    rows = tuple(
        (show(group), *(ms(point.get(group)) for point in times), show(growth.get(group))) for group in names
    )
    latency = tuple(ms(point.at("latency_ms").number("mean")) for point in points)
    grid = Grid(
        beside.keys.next(), "Groups at each length", columns, rows, ("latency of a run", *latency, "")
    )
    data = {"grid": grid.key, "name": 0, "axis": axis, "values": values, "most": 10}
    summary = f"A line for each group: milliseconds over {axis}; the table below has the numbers."
    chart = Chart(beside.keys.next(), f"Milliseconds over {axis}", "lines", data, summary)
    blocks = (chart, grid, _about(view))
    return Section("sweep", "How its time grows", show(view.at("model").text("path")), blocks, view.missing)
