"""Documents of `reconcile`, `export` and `recover` -> sections: the bridge between PyTorch and the file."""

from __future__ import annotations

from analyzer.render.html.blocks import (
    Answer,
    Block,
    Column,
    Grid,
    Section,
    Table,
    Tile,
    Tiles,
)
from analyzer.render.html.parts import (
    Beside,
    facts,
    name,
    number,
)
from analyzer.render.html.reading import View
from analyzer.render.html.wording import (
    amount,
    both_bytes,
    both_counts,
    shape,
    show,
    show_all,
)
from analyzer.units import format_doing, format_error

__all__ = ["describe_recovery"]


def describe_recovery(view: View, beside: Beside) -> Section:
    """What of the state dict the file holds, and what was lost."""
    recovered = view.at("recovered")
    lost, lossy = view.rows("lost"), view.rows("lossy")
    output = view.text("output")
    blocks: list[Block] = [
        Answer(
            not lost, f"{format_doing(len(lost), 'tensor', 'were')} lost." if lost else "Nothing was lost."
        ),
        Tiles(
            (
                Tile("Recovered", amount(recovered.count("tensors")), "tensors"),
                Tile("Elements", *both_counts(recovered.count("elements"))),
                Tile("Size", *both_bytes(recovered.count("bytes"))),
                Tile("Not exact", amount(len(lossy)), "tensors"),
            )
        ),
    ]
    blocks += [_reasons(title, rows) for title, rows in (("Lost", lost), ("Not exact", lossy)) if rows]
    blocks += [
        _state(title, view.rows(key), beside)
        for title, key in (("Parameters", "parameters"), ("Buffers", "buffers"))
    ]
    if unnamed := view.rows("unnamed"):
        blocks.append(_reasons("Without a PyTorch name", unnamed))
    blocks.append(facts(("Written to", output), *view.items("against"), title="About the state dict"))
    return Section(
        "recover",
        "The state dict that it holds",
        show(view.at("model").text("path")),
        tuple(blocks),
        view.missing,
    )


def _reasons(title: str, rows: tuple[View, ...]) -> Table:
    cells = tuple(
        (show(row.text("name")), shape(row.counts("shape")), show(row.text("line")), show(row.text("reason")))
        for row in rows
    )
    return Table(
        title, (name("tensor"), Column("shape"), Column("line"), Column("reason", is_prose=True)), cells
    )


def _state(title: str, rows: tuple[View, ...], beside: Beside) -> Grid:
    columns = (
        name("name"),
        Column("shape"),
        Column("dtype"),
        Column("line"),
        name("held by"),
        number("largest error"),
    )
    return Grid(
        beside.keys.next(),
        title,
        columns,
        tuple(
            (
                show(row.text("name")),
                shape(row.counts("shape")),
                show(row.text("dtype")),
                show_all(row.names("chain"), " → ") or show(row.text("line")),
                show_all(row.names("entries")),
                format_error(row.number("max_abs_error")),
            )
            for row in rows
        ),
    )
