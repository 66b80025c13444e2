"""Documents of `inspect` -> sections: of one model, and of many."""

from __future__ import annotations

from analyzer.render.html.blocks import (
    Block,
    Cell,
    Column,
    Findings,
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
    list_findings,
    name,
    number,
)
from analyzer.render.html.reading import View
from analyzer.render.html.trees import chart_groups, chart_tensors
from analyzer.render.html.wording import (
    amount,
    both_bytes,
    both_counts,
    bytes_of,
    cell,
    shape,
    share,
    show,
    show_all,
)
from analyzer.render.sentences.inspect import tell_range
from analyzer.units import format_many

__all__ = ["describe_inspection", "describe_survey"]


def describe_inspection(view: View, beside: Beside) -> Section:
    """One model: totals, what it is made of, its tensors, findings."""
    model, totals = view.at("model"), view.at("totals")
    parameters = totals.count("parameters")
    tensors = _tensors(view, beside)
    groups = describe_groups(view, beside, parameters)
    blocks: list[Block | None] = [
        _tiles(model, totals),
        *_range(totals),
        *_formula(beside, parameters),
        chart_tensors(view, tensors, beside) or chart_groups(groups, beside),
        groups,
        *_balance(view),
        *describe_findings(view),
        tensors,
        *_accounts(view, totals),
        *_components(view),
        _about(model),
    ]
    return Section("inspect", "What is in this file", show(model.text("path")), compact(blocks), view.missing)


def _tiles(model: View, totals: View) -> Tiles:
    tensors = totals.count("stored_tensors")
    return Tiles(
        (
            Tile("Parameters", *both_counts(totals.count("parameters"))),
            Tile("On disk", *both_bytes(totals.count("file_bytes"))),
            Tile("Stored elements", *both_counts(totals.count("stored_elements"))),
            Tile("Tensors", amount(tensors), bytes_of(totals.count("stored_bytes"))),
            Tile("Nodes", amount(model.count("nodes")), _nested(model)),
        )
    )


def _nested(model: View) -> str:
    functions, nested = model.count("functions"), model.count("nested_graphs")
    said = [format_many(functions, "function")] if functions else []
    said += [format_many(nested, "nested graph")] if nested else []
    return ", ".join(said)


def _range(totals: View) -> tuple[Block, ...]:
    """Where the count of parameters rests on what nobody could settle."""
    least, most = totals.count("parameters_at_least"), totals.count("parameters_at_most")
    reasons = totals.names("parameters_unsettled") if totals.has("parameters_unsettled") else ()
    is_told = least is not None and (most is not None or bool(reasons))
    said = (
        ()
        if least is None or not is_told
        else tuple(f"{show(text)}." for text in tell_range(least, most, reasons))
    )
    return (Notes(said),) if said else ()


def _formula(beside: Beside, parameters: int | None) -> tuple[Block, ...]:
    """What a formula beside this model says of its total."""
    if beside.formula is None or parameters is None or (total := beside.formula.count("total")) is None:
        return ()
    who = show(beside.formula.text("class")) or "The formula"
    if total == parameters:
        return (Notes((f"{who} counts the same {format_many(total, 'parameter')} in closed form.",)),)
    more = "more" if parameters > total else "fewer"
    difference = amount(abs(parameters - total))
    return (
        Notes(
            (
                f"{who} counts {format_many(total, 'parameter')} in closed form: this file has {difference} {more}.",
            )
        ),
    )


_TENSORS = (
    name("tensor"),
    Column("dtype"),
    Column("shape"),
    Column("role"),
    number("parameters"),
    number("elements"),
    number("bytes"),
    name("scope"),
    name("in PyTorch, if named otherwise"),
    name("copy of"),
    Column("decided by"),
    Column("block", is_hidden=True),
    Column("read by", is_hidden=True),
    Column("layer role", is_hidden=True),
)


def _tensors(view: View, beside: Beside) -> Grid:
    totals = view.at("totals")
    sums = [cell(totals.count(key)) for key in ("parameters", "stored_elements", "stored_bytes")]
    return Grid(
        beside.keys.next(),
        "Tensors",
        _TENSORS,
        tuple(map(_tensor, view.rows("tensors"))),
        ("total", "", "", "", *sums, "", "", "", "", "", "", ""),
    )


def _tensor(row: View) -> tuple[Cell, ...]:
    own, path, sources = row.text("name"), row.text("graph_path"), row.names("sources")
    scope = row.text("scope")
    return (
        show(f"{path}/{own}" if path else own),
        show(row.text("dtype")),
        shape(row.counts("shape")),
        show(row.text("role")),
        cell(row.count("parameters")),
        cell(row.count("stored_elements")),
        cell(row.count("bytes")),
        "[unscoped]" if scope is None else show(scope) or "[root]",
        "" if sources == (own,) else show_all(sources),
        show(row.text("copy_of")),
        show(row.text("decided_by")),
        show(row.text("block")),
        show(row.text("read_by")),
        show(row.text("layer_role")),
    )


def _balance(view: View) -> tuple[Block, ...]:
    overlap, ungrouped = view.count("overlap"), view.count("ungrouped")
    if not overlap and not ungrouped:
        return ()
    return (
        Notes(
            (
                f"Overlap of groups: {amount(overlap)} stored elements; in no group: {amount(ungrouped)}.",
                "The sum of the groups, less the overlap, plus what is in no group, is the total.",
            )
        ),
    )


def _accounts(view: View, totals: View) -> tuple[Block, ...]:
    """Where the bytes are, and which roles and types the tensors have."""
    whole = totals.count("file_bytes")
    rows = [(row, row.count("bytes")) for row in view.rows("accounts")]
    accounts = tuple((show(row.text("account")), cell(size), share(size, whole)) for row, size in rows)
    roles = view.at("roles")
    return (
        Table(
            "Every byte on disk",
            (Column("account"), number("bytes"), number("share")),
            accounts,
            total=("total", sum(size or 0 for _, size in rows), ""),
        ),
        Table(
            "Roles",
            (
                Column("role"),
                number("parameters"),
                number("stored elements"),
                number("tensors"),
                number("bytes"),
            ),
            tuple(_role(key, roles.at(key)) for key in _ROLES),
        ),
        Table(
            "Types",
            (Column("dtype"), number("stored elements"), number("tensors"), number("bytes")),
            tuple(
                (
                    show(row.text("dtype")),
                    *(cell(row.count(k)) for k in ("stored_elements", "tensors", "bytes")),
                )
                for row in view.rows("dtypes")
            ),
        ),
    )


_ROLES = ("parameter", "buffer", "quantization", "constant", "unattributed")


def _role(key: str, row: View) -> tuple[Cell, ...]:
    return (key, *(cell(row.count(each)) for each in ("parameters", "stored_elements", "tensors", "bytes")))


def _components(view: View) -> tuple[Block, ...]:
    rows = view.rows("components")
    if not rows:
        return ()
    keys = ("nodes", "parameters", "stored_elements", "stored_bytes", "file_bytes")
    columns = (name("component"), name("file"), *(number(key.replace("_", " ")) for key in keys))
    cells = tuple(
        (show(row.text("component")), show(row.text("path")), *(cell(row.count(key)) for key in keys))
        for row in rows
    )
    return (Table("Components", columns, cells),)


def _about(model: View) -> Block:
    ir = model.count("ir_version")
    opsets = ", ".join(
        f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(model.items("opsets"))
    )
    files = [(show(row.text("path")), bytes_of(row.count("bytes"))) for row in model.rows("files")]
    return facts(
        ("Producer", model.text("producer")),
        ("IR version", None if ir is None else str(ir)),
        ("Opsets", opsets),
        *files,
        title="About the file",
    )


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
