"""Documents of `formula` -> a section: each term, its value, and what the model has."""

from __future__ import annotations

from analyzer.render.html.blocks import Answer, Block, Cell, Column, Notes, Section, Table, Tile, Tiles
from analyzer.render.html.parts import Beside, facts, name, number
from analyzer.render.html.reading import View
from analyzer.render.html.wording import amount, both_counts, cell, show, signed

__all__ = ["describe_formula"]


def describe_formula(view: View, beside: Beside) -> Section:
    """The closed form, term by term."""
    difference = view.count("difference")
    blocks: list[Block] = []
    if difference is not None:
        blocks.append(Answer(difference == 0, _answer(difference)))
    blocks += [
        Tiles(
            (
                Tile("By the formula", *both_counts(view.count("total"))),
                Tile("In the model", *both_counts(view.count("actual"))),
                Tile("Difference", signed(difference)),
            )
        ),
        _terms(view),
        *_reasons(view),
        _fields(view),
        *_memory(view),
        facts(
            ("Family", view.text("family")),
            ("Class", view.text("class")),
            ("Source", view.text("source")),
            title="About the formula",
        ),
    ]
    if expression := view.text("expression"):
        blocks.append(Notes((show(expression, 4000),), "In closed form"))
    if notes := view.names("notes"):
        blocks.append(Notes(tuple(map(show, notes)), "Notes"))
    return Section(
        "formula", "The count in closed form", show(view.text("source")), tuple(blocks), view.missing
    )


def _answer(difference: int) -> str:
    if difference == 0:
        return "The model has exactly what the formula counts."
    return f"The model has {amount(abs(difference))} {'more' if difference > 0 else 'fewer'} than the formula counts."


def _terms(view: View) -> Table:
    rows: list[tuple[Cell, ...]] = []
    levels: list[int] = []
    for term in view.rows("terms"):
        rows.append(_term(term, "term"))
        levels.append(0)
        for part in term.rows("parts"):
            rows.append(_term(part, "part"))
            levels.append(1)
    columns = (Column("term"), name("expression"), *map(number, ("value", "actual", "difference")))
    whole = (
        "total",
        "",
        *(cell(view.count(key)) for key in ("total", "actual")),
        signed(view.count("difference")),
    )
    return Table("Terms", columns, tuple(rows), tuple(levels), whole)


def _term(row: View, key: str) -> tuple[Cell, ...]:
    numbers = (cell(row.count("value")), cell(row.count("actual")), signed(row.count("difference")))
    return (show(row.text(key)), show(row.text("expression")), *numbers)


def _reasons(view: View) -> tuple[Block, ...]:
    rows = tuple(
        (
            show(row.text("part")),
            show(row.text("group")),
            signed(row.count("elements")),
            show(row.text("sentence")),
            show(row.text("certainty")),
        )
        for row in view.rows("reasons")
    )
    columns = (
        Column("part"),
        name("group"),
        number("elements"),
        Column("reason", is_prose=True),
        Column("certainty"),
    )
    return (Table("Why they differ", columns, rows),) if rows else ()


def _fields(view: View) -> Table:
    rows = tuple(
        (
            show(row.text("field")),
            show(row.text("symbol")),
            show(row.plain("value")),
            show(row.text("from")),
        )
        for row in view.rows("fields")
    )
    columns = (name("field"), Column("symbol"), Column("value"), Column("from"))
    note = "Symbols stand for the fields in text and LaTeX."
    return Table("Fields of the config", columns, rows, note=note)


def _memory(view: View) -> tuple[Block, ...]:
    if not view.has("memory"):
        return ()
    rows = tuple(
        (show(row.text("precision")), cell(row.count("bytes")))
        for row in view.at("memory").rows("precisions")
    )
    return (Table("Bytes of the weights", (Column("precision"), number("bytes")), rows),)
