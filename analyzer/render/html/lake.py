"""What a lake answers -> a page: its models to search and sort, families as a picture, findings by kind."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.answer import Answer
from analyzer.render.answer import show_value
from analyzer.render.html.blocks import Block, Cell, Chart, Column, Grid, Keys, Notes, Section, Tile, Tiles
from analyzer.render.html.page import make_page
from analyzer.render.html.wording import both_bytes, both_counts, show

__all__ = ["MOST_MODELS", "page_of_answer", "page_of_lake"]

MOST_MODELS = 10_000
"""Rows of a table on a page."""

_NAMES = frozenset({"model", "models", "of", "sha256", "id", "op_type", "digest", "root"})
_PROSE = frozenset({"error", "findings"})


def page_of_answer(title: str, answer: Answer) -> str:
    """One answer as a page."""
    return make_page(show(title), [Section("answer", show(title), "", _grids(Keys(), (answer,)))])


def page_of_lake(
    title: str, totals: Answer, models: Answer, families: Answer, others: Sequence[Answer]
) -> str:
    """A lake as a page.

    Args:
        title: what the lake is called.
        totals: one row: models, unreadable, parameters, file_bytes, copied_bytes.
        models: a row each.
        families: as `find_families` answers.
        others: what else stands there as tables, each under what it says.
    """
    keys = Keys()
    (row,) = totals.records
    tiles = Tiles(
        (
            Tile("Models", show_value(row["models"]), f"{show_value(row['unreadable'])} unreadable"),
            Tile("Parameters", *both_counts(row["parameters"] or 0)),
            Tile("On disk", *both_bytes(row["file_bytes"] or 0)),
            Tile("Copies", *both_bytes(row["copied_bytes"] or 0)),
        )
    )
    blocks: list[Block] = [tiles, *_grids(keys, (models,))]
    if families.rows:
        (grid,) = _grids(keys, (families,))
        assert isinstance(grid, Grid)
        blocks += [_picture(keys, grid, families.columns), grid]
    else:
        blocks.append(Notes((show(families.says, 1000),), "Families"))
    blocks += _grids(keys, others)
    return make_page(show(title), [Section("lake", "What is in this lake", show(title), tuple(blocks))])


def _picture(keys: Keys, grid: Grid, columns: Sequence[str]) -> Chart:
    """Families as rectangles of their models."""
    at = {name: place for place, name in enumerate(columns)}
    return Chart(
        keys.next(),
        "Families: models with weights in common",
        "tree",
        {
            "grid": grid.key,
            "name": at["model"],
            "arrangements": [["family", [at["family"]], ""], ["relation", [at["relation"]], ""]],
            "measures": [["parameters", at["parameters"]], ["copied bytes", at["copied_bytes"]]],
            "colours": [["relation", at["relation"]]],
            "times": [],
        },
        "A treemap: each rectangle is a model, within its family, as large as its weights.",
    )


def _grids(keys: Keys, answers: Sequence[Answer]) -> tuple[Grid, ...]:
    return tuple(_grid(keys, each) for each in answers)


def _grid(keys: Keys, answer: Answer) -> Grid:
    shown = answer.rows[:MOST_MODELS]
    left = len(answer.rows) - len(shown)
    numeric = [_is_count([row[at] for row in answer.rows]) for at in range(len(answer.columns))]
    title, _, more = answer.says.partition(". ")
    note = " ".join(filter(None, (more, f"{left:,} rows more are in the lake." if left else "")))
    return Grid(
        keys.next(),
        show(title.rstrip(".")) or "Answer",
        tuple(map(_column, answer.columns, numeric)),
        tuple(tuple(map(_cell, row, numeric)) for row in shown),
        note=show(note, 1000),
    )


def _is_count(values: Sequence[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int) and not isinstance(value, bool) for value in known)


def _column(name: str, is_number: bool) -> Column:
    return Column(
        show(name.replace("_", " ")),
        is_number=is_number,
        is_code=name in _NAMES and not is_number,
        is_prose=name in _PROSE,
    )


def _cell(value: object, is_number: bool) -> Cell:
    if is_number:
        return value if isinstance(value, int) else "-"
    return show(show_value(value))
