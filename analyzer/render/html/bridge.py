"""Documents of `reconcile`, `export` and `recover` -> sections: the bridge between PyTorch and the file."""

from __future__ import annotations

from analyzer.content import SAMPLES
from analyzer.reconciliation.lines import UNBALANCED
from analyzer.render.html.blocks import (
    Answer,
    Block,
    Cell,
    Chart,
    Column,
    Grid,
    Notes,
    Section,
    Table,
    Tile,
    Tiles,
)
from analyzer.render.html.parts import (
    Beside,
    compact,
    describe_findings,
    describe_groups,
    facts,
    name,
    number,
)
from analyzer.render.html.reading import View
from analyzer.render.html.trees import chart_parameters
from analyzer.render.html.wording import (
    amount,
    both_bytes,
    both_counts,
    cell,
    shape,
    show,
    show_all,
    signed,
)
from analyzer.render.sentences.bridge import tell_wiring
from analyzer.units import format_doing, format_error

__all__ = ["describe_export", "describe_reconciliation", "describe_recovery"]


def describe_reconciliation(view: View, beside: Beside) -> Section:
    """Whether the file holds the PyTorch model, the bridge, and every parameter."""
    return Section(
        "reconcile",
        "Does it hold the PyTorch model?",
        show(view.at("model").text("path")),
        _reconciled(view, beside),
        view.missing,
    )


def describe_export(view: View, beside: Beside) -> Section:
    """The files that were written, and their reconciliation."""
    inner = view.at("reconcile")
    files = Notes(tuple(map(show, view.names("files"))), "Files written")
    subject = show(inner.at("model").text("path"))
    return Section("export", "What was exported", subject, (*_reconciled(inner, beside), files), view.missing)


def _reconciled(view: View, beside: Beside) -> tuple[Block, ...]:
    pytorch, onnx = view.at("pytorch"), view.at("onnx")
    parameters = _parameters(view, beside)
    chart = chart_parameters(parameters, beside, elements=2, line=4)
    blocks: list[Block | None] = [
        _answer(view),
        Tiles(
            (
                Tile("In PyTorch", *both_counts(pytorch.count("parameters"))),
                Tile("In the file", *both_counts(onnx.count("parameters"))),
                Tile("Stored elements", *both_counts(onnx.count("stored_elements"))),
                Tile("By the file alone", *both_counts(onnx.count("parameters_alone"))),
            )
        ),
        _waterfall(view, pytorch, onnx, beside),
        _bridge(view, pytorch, onnx),
        chart,
        describe_groups(view, beside, onnx.count("parameters"), is_pytorch=True),
        *describe_findings(view),
        parameters,
        _tensors(view, beside),
        facts(*((key, value) for key, value in view.items("against")), title="Compared with"),
        *_tied(pytorch),
    ]
    return compact(blocks)


def _answer(view: View) -> Answer | None:
    balanced = view.flag("balanced")
    if balanced is None:
        return None
    content = {
        "full": "whole contents compared",
        "sampled": f"contents compared at {SAMPLES} positions of each tensor",
        "none": "contents not compared",
    }.get(view.text("content") or "", "")
    how = {"sampled": f" at {SAMPLES} positions of each tensor", "none": " by names and shapes only"}
    text = (
        f"Balanced{how.get(view.text('content') or '', '')}: every parameter is accounted for"
        if balanced
        else "Not balanced: see the bridge"
    )
    wiring = tell_wiring(view.text("reads"), view.at("wiring").text("first"))
    return Answer(balanced, f"{'; '.join(filter(None, (text, content, show(wiring))))}.")


_TROUBLE = frozenset(line.value for line in UNBALANCED)


def _waterfall(view: View, pytorch: View, onnx: View, beside: Beside) -> Block | None:
    """Stacked steps from PyTorch's parameters to the file's."""
    start = pytorch.count("parameters")
    ends = [onnx.count("parameters"), onnx.count("stored_elements")]
    if start is None or None in ends:
        return None
    rows = view.rows("bridge")
    measures = []
    for label, key, end in zip(
        ("parameters", "stored elements"), ("parameter_delta", "stored_delta"), ends, strict=True
    ):
        steps = [[show(row.text("line")), row.count(key)] for row in rows if row.count(key)]
        measures.append([label, steps, end])
    if not any(steps for _, steps, _ in measures):
        return Notes(
            (f"No line changes a count: PyTorch and the file both hold {amount(start)}.",), "The bridge"
        )
    measures.sort(key=lambda each: not each[1])
    return Chart(
        beside.keys.next(),
        "The bridge, step by step",
        "waterfall",
        {"start": start, "measures": measures, "from": "PyTorch", "to": "ONNX"},
        "A waterfall from PyTorch's parameters over each line of the bridge to what the file holds.",
    )


def _bridge(view: View, pytorch: View, onnx: View) -> Table:
    start = amount(pytorch.count("parameters"))
    ours, theirs = (len(view.rows(key)) or None for key in ("parameters", "tensors"))
    rows: list[tuple[Cell, ...]] = [("PyTorch", cell(ours), start, start, start, "")]
    for row in view.rows("bridge"):
        line, tensors, elements = row.text("line"), row.count("tensors"), row.count("elements")
        if tensors or elements or line in _TROUBLE:
            deltas = (signed(row.count("parameter_delta")), signed(row.count("stored_delta")))
            rows.append((show(line), cell(tensors), cell(elements), *deltas, cell(row.count("bytes"))))
    stored = amount(onnx.count("stored_elements"))
    ends = (cell(theirs), stored, amount(onnx.count("parameters")), stored, "")
    columns = (
        Column("line"),
        *map(number, ("tensors", "elements", "parameters", "stored elements", "bytes")),
    )
    return Table("The bridge", columns, tuple(rows), total=("ONNX", *ends))


def _parameters(view: View, beside: Beside) -> Grid:
    columns = (
        name("parameter"),
        Column("shape"),
        number("elements"),
        Column("trainable"),
        Column("line"),
        name("held by"),
        Column("decided by"),
        number("largest error"),
    )
    rows = tuple(map(_parameter, view.rows("parameters")))
    whole = cell(view.at("pytorch").count("parameters"))
    total = ("total", "", whole, "", "", "", "", "")
    return Grid(beside.keys.next(), "PyTorch's parameters", columns, rows, total)


def _parameter(row: View) -> tuple[Cell, ...]:
    return (
        show(row.text("name")),
        shape(row.counts("shape")),
        cell(row.count("elements")),
        "yes" if row.flag("trainable") else "no",
        show_all(row.names("chain"), " → ") or show(row.text("line")),
        show_all(row.names("entries")),
        show(row.text("decided_by")),
        format_error(row.number("max_abs_error")),
    )


def _tensors(view: View, beside: Beside) -> Grid:
    columns = (name("tensor"), Column("line"), name("parameter"), Column("decided by"), Column("expression"))
    rows = tuple(
        (
            "/".join(filter(None, (show(row.text("graph_path")), show(row.text("name"))))),
            show(row.text("line")),
            show(row.text("parameter")),
            show(row.text("decided_by")),
            show(row.text("expression")),
        )
        for row in view.rows("tensors")
    )
    return Grid(beside.keys.next(), "Tensors of the file", columns, rows)


def _tied(pytorch: View) -> tuple[Block, ...]:
    tied = pytorch.lists("tied")
    return (Notes(tuple(show_all(names, " = ") for names in tied), "Tied in PyTorch"),) if tied else ()


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
