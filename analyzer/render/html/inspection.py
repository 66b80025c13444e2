"""Documents of `inspect` -> sections: of one model, and of many."""

from __future__ import annotations

from analyzer.render.html.blocks import (
    Cell,
    Column,
    Findings,
    Grid,
    Section,
    Tile,
    Tiles,
)
from analyzer.render.html.parts import (
    Beside,
    compact,
    list_findings,
    name,
    number,
)
from analyzer.render.html.reading import View
from analyzer.render.html.trees import chart_groups
from analyzer.render.html.wording import (
    amount,
    both_bytes,
    both_counts,
    cell,
    show,
    show_all,
)

__all__ = ["describe_survey"]


def describe_survey(view: View, beside: Beside) -> Section:
    """Many models: a row each, and what was found in all."""
    totals = view.at("totals")
    models = view.rows("models")
    tiles = Tiles(
        (
            Tile("Models", amount(totals.count("models")), f"{amount(totals.count('readable'))} readable"),
            Tile("Parameters", *both_counts(totals.count("parameters"))),
            Tile("On disk", *both_bytes(totals.count("file_bytes"))),
            Tile("Stored elements", *both_counts(totals.count("stored_elements"))),
        )
    )
    columns = (
        name("model"),
        number("parameters"),
        number("stored elements"),
        number("tensors"),
        number("nodes"),
        number("bytes on disk"),
        Column("findings"),
        Column("error", is_prose=True),
    )
    grid = Grid(beside.keys.next(), "Models", columns, tuple(map(_surveyed, models)))
    found = tuple(
        finding
        for row in models
        if row.flag("readable")
        for finding in list_findings(row.rows("findings"), show(row.text("path")))
    )
    chart = chart_groups(grid, beside, ("parameters", "bytes on disk"))
    blocks = (tiles, chart, grid, Findings(found))
    return Section("survey", "What is in these files", "", compact(blocks), view.missing)


def _surveyed(row: View) -> tuple[Cell, ...]:
    path = show(row.text("path"))
    if not row.flag("readable"):
        return (path, "", "", "", "", "", "", show(row.text("error")))
    totals = row.at("totals")
    counts = [cell(totals.count(key)) for key in ("parameters", "stored_elements", "stored_tensors")]
    ids = sorted({each.text("id") or "" for each in row.rows("findings")})
    nodes, size = cell(row.count("nodes")), cell(totals.count("file_bytes"))
    return (path, *counts, nodes, size, show_all(ids), "")
