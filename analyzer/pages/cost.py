"""The page of `cost`: the work of a model, in the axes of its inputs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from analyzer.documents.cost import Amount, CostDocument, CostGroup
from analyzer.pages.memory import memory_answer, memory_blocks
from analyzer.pages.page import (
    Block,
    Cell,
    Column,
    Detail,
    Fact,
    Facts,
    Figure,
    Formatted,
    Kind,
    Notes,
    Page,
    Row,
    Table,
    Tone,
)
from analyzer.pages.shared import chart_groups, format_expression, title_groups
from analyzer.text import format_bytes, format_count, format_many, short_count


def describe_cost(document: CostDocument) -> Page:
    """Describe a cost: sums, unknown nodes, groups; with `-v` also operators."""
    return Page(
        kind="cost",
        question="How much work is it?",
        subject=document.model.path,
        about=_at(document),
        answer=_answer(document),
        tone=Tone.PLAIN if document.complete and not _has_disagreement(document) else Tone.BAD,
        figures=tuple(_figures(document)),
        blocks=tuple(_blocks(document)),
    )


def _has_disagreement(document: CostDocument) -> bool:
    if document.against is not None and not document.against.agrees:
        return True
    return document.measured is not None and document.measured.verdict != "agrees"


def _at(document: CostDocument) -> str:
    bound = [f"{axis.axis or axis.input}={axis.bound}" for axis in document.axes if axis.bound is not None]
    if bound:
        return f"at {', '.join(bound)}"
    return "all sizes are fixed" if not document.axes else "in the axes of its inputs"


def _answer(document: CostDocument) -> str:
    answers = (_run_answer(document), _form_answer(document), memory_answer(document))
    answer = "; ".join(filter(None, answers))
    if document.complete:
        return answer
    node_count = format_many(len(document.unknown), "node")
    parts = (_refusal(document), f"the work of {node_count} is not known, and is not in the sums", answer)
    return f"NOT COMPLETE: {'; '.join(filter(None, parts))}"


def _refusal(document: CostDocument) -> str:
    """Return that the model does not run, and at which node, in words; empty where nothing says so."""
    if document.refused is None:
        return ""
    at = " at these sizes" if any(axis.bound is not None for axis in document.axes) else ""
    return f"the model does not run{at} ({document.refused.node}: {document.refused.reason})"


def _run_answer(document: CostDocument) -> str:
    """Return whether a run agrees with the computed cost, in words."""
    run = document.measured
    if run is None:
        return ""
    if run.verdict == "agrees":
        shapes = format_many(run.shapes, "shape")
        if run.macs.verdict == "agrees":
            return f"a run by onnxruntime {run.version} agrees: {shapes} and {_plain(run.macs.measured)} MACs"
        return f"a run by onnxruntime {run.version} agrees in {shapes}; MACs not compared: {_uncompared(document)}"
    if run.verdict == "not-compared":
        return "no part of the run could be compared"
    parts = [f"{format_many(len(run.differing), 'shape')}"] if run.differing else []
    parts += ["MACs"] if run.macs.verdict == "differs" else []
    parts += ["memory"] if any((line.unexplained or 0) > 0 for line in run.memory) else []
    return f"DIFFERS from a run by onnxruntime {run.version}: {', '.join(parts)}"


def _uncompared(document: CostDocument) -> str:
    """Return the reason why the multiply-accumulates of a run could not be compared, in words."""
    if document.measured is None:
        return ""
    macs = document.measured.macs
    if macs.unknown:
        return f"the work of {format_many(macs.unknown, 'node')} is not known without a run"
    return macs.why or "their number is not known without a run"


def _form_answer(document: CostDocument) -> str:
    """Return whether the closed form of a config agrees, in words."""
    against = document.against
    if against is None:
        return ""
    if against.agrees:
        return f"the closed form of {against.class_name} agrees"
    counts = format_expression(against.found.expression), format_expression(against.said.expression)
    return f"DIFFERS from the closed form of {against.class_name}: {counts[0]} MACs instead of {counts[1]}"


def _figures(document: CostDocument) -> Iterator[Figure]:
    totals = document.totals
    known = _has_all_macs(document), not any(row.op_type != "If" for row in document.unknown)
    for label, amount, is_known in zip(("MACs", "Flops"), (totals.macs, totals.flops), known, strict=True):
        unit = "MACs" if label == "MACs" else "flops"
        text = _or_more(_number(amount), amount, is_known=is_known)
        yield Figure(label, text, _short(amount), f"{text} {unit}")
    for label, amount in (("Read", totals.read_bytes), ("Written", totals.written_bytes)):
        text = _bytes(amount)
        yield Figure(label, text, "", f"{text} {label.lower()}" if amount.value is not None else "")
    if totals.intensity is not None:
        yield Figure(
            "Intensity", f"{totals.intensity:.1f}", "flops a byte", f"{totals.intensity:.1f} flops a byte"
        )


def _number(amount: Amount) -> str:
    return format_count(amount.value) if amount.value is not None else format_expression(amount.expression)


def _has_all_macs(document: CostDocument) -> bool:
    """Whether the sums lack no multiply-accumulates; an If counts its larger branch, which may be too many."""
    return not any(group.nodes_without_macs for group in document.groups)


def _or_more(text: str, amount: Amount, *, is_known: bool) -> str:
    """Return a sum in words if it lacks the work of a node."""
    if is_known:
        return text
    return "unknown" if amount.expression == "0" else f"{text} or more"


def _short(amount: Amount) -> str:
    return short_count(amount.value) if amount.value is not None and amount.value >= 1000 else ""


def _bytes(amount: Amount) -> str:
    return format_bytes(amount.value) if amount.value is not None else format_expression(amount.expression)


def _blocks(document: CostDocument) -> Iterator[Block]:
    free_axes = [axis for axis in document.axes if axis.bound is None]
    if free_axes:
        axis_names = ", ".join(f"{axis.name} ({axis.input})" for axis in free_axes)
        sizes = ",".join(f"{axis.axis or axis.input}=N" for axis in free_axes)
        lines = f"free axes: {axis_names}; give sizes with --shape {sizes}"
        yield Notes((lines,), detail=Detail.FIRST)
    yield _unknown(document)
    yield from _measured(document)
    yield from _against(document)
    yield from memory_blocks(document)
    groups = _groups(document)
    if document.totals.macs.value:
        yield chart_groups(groups, ("MACs", "flops", "read", "written"))
    yield groups
    yield _operators(document)
    if document.assumed:
        equal = tuple(f"{each}: both are sizes of one axis" for each in document.assumed)
        yield Notes(equal, title="Assumed equal", detail=Detail.MORE)
    yield Facts((Fact("convention", document.convention),), title="What is counted", detail=Detail.MORE)


def _unknown(document: CostDocument) -> Table:
    """Return the table of nodes of unknown work; nodes with the same reason share a row."""
    first = {row.reason: row.node for row in reversed(document.unknown)}
    operators: dict[str, Counter[str]] = {}
    for row in document.unknown:
        operators.setdefault(row.reason, Counter())[row.op_type] += 1
    rows = sorted(operators.items(), key=lambda item: -item[1].total())
    columns = (
        Column("not known", Kind.NAME),
        Column("operators", room=9),
        Column("nodes", Kind.COUNT, room=5),
        Column("why", Kind.PROSE, room=9),
    )
    table_rows = tuple(
        Row((first[why], _name_operators(counts), counts.total(), why)) for why, counts in rows
    )
    return Table(columns, table_rows, title="not known", detail=Detail.FIRST)


def _name_operators(counts: Counter[str]) -> str:
    """Return the operators of nodes, the most frequent first."""
    names = [name for name, _ in counts.most_common(_MOST_OPERATORS)]
    others = len(counts) - len(names)
    return ", ".join([*names, *([format_many(others, "other")] if others else [])])


_MOST_OPERATORS = 2


def _measured(document: CostDocument) -> Iterator[Block]:
    """Yield a run beside the computed cost: work and memory, then each value whose shape differs."""
    run = document.measured
    if run is None:
        return
    sizes = ", ".join(f"{axis}={size}" for axis, size in run.at.items())
    is_compared = run.macs.verdict != "not-compared"
    gap = _gap(run.macs.said, run.macs.measured) if is_compared else "not compared"
    said = _plain(run.macs.said or None) if run.macs.unknown else _plain(run.macs.said)
    if run.macs.unknown and run.macs.said:
        said = f"{said} of known nodes"
    rows = [Row(("MACs", said, _plain(run.macs.measured), gap))]
    rows += [
        Row((line.line, _nbytes(line.modelled), _nbytes(line.measured), _more(line.unexplained)))
        for line in run.memory
    ]
    columns = (
        Column(f"a run at {sizes}" if sizes else "a run", Kind.NAME),
        Column("computed", Kind.PROSE, room=9),
        Column("measured", Kind.PROSE, room=9),
        Column("unexplained", Kind.PROSE, room=8),
    )
    yield Table(columns, tuple(rows), title="measured", key="measured")
    notes = []
    if run.unknown_shapes:
        many = format_many(run.unknown_shapes, "value")
        notes.append(f"only the run shows the shape of {many}")
    if run.macs.measured is None:
        notes.append(f"MACs of the run cannot be counted: {run.macs.why}")
    if notes:
        yield Notes(tuple(notes))
    shapes = (
        Column("value", Kind.NAME),
        Column("operator", room=5),
        Column("computed", Kind.PROSE, room=9),
        Column("in the run", Kind.PROSE, room=9),
    )
    rows = [Row((row.value, row.op_type, str(row.said), str(row.found))) for row in run.differing]
    if rows:
        yield Table(shapes, tuple(rows), title="shapes that differ", is_long=True, key="differing")


def _against(document: CostDocument) -> Iterator[Block]:
    """Yield the closed form of a config beside the file, term by term."""
    against = document.against
    if against is None:
        return
    columns = (
        Column(f"MACs of {against.class_name}", Kind.NAME),
        Column("closed form", Kind.COUNT, room=9),
        Column("the file", Kind.COUNT, room=9),
        Column("difference", Kind.COUNT, room=7),
    )
    rows = [
        Row((term.term, _cell(term.said), _cell(term.found), _cell(term.difference)))
        for term in against.terms
    ]
    if against.other.expression != "0":
        rows.append(Row(("in other modules", "", _cell(against.other), "")))
    yield Table(columns, tuple(rows), title="closed form", key="against")
    if against.agrees and any(term.difference.expression != "0" for term in against.terms):
        yield Notes(("the sums are equal: fused nodes count in other modules",))


def _plain(count: int | None) -> str:
    return "not known" if count is None else format_count(count)


def _nbytes(count: int | None) -> str:
    return "not known" if count is None else format_bytes(count)


def _gap(computed: int | None, found: int | None) -> str:
    return "" if computed is None or found is None else _signed(found - computed, format_count)


def _more(unexplained: int | None) -> str:
    return "" if unexplained is None else _signed(unexplained, lambda count: f"{format_count(count)} B")


def _signed(count: int, form: Callable[[int], str]) -> str:
    return "0" if not count else f"{'+' if count > 0 else '-'}{form(abs(count))}"


def _columns(*rows: Row) -> tuple[Column, ...]:
    """Return the columns of the groups; a formula in free sizes may be broken between its terms."""
    is_free = any(isinstance(cell, Formatted) and cell.value is None for row in rows for cell in row.cells)
    return (
        Column("MACs", Kind.FORMULA if is_free else Kind.COUNT, room=9),
        Column("share", Kind.SHARE, room=6, is_bar=True),
        Column("read", Kind.BYTES, room=3),
        Column("written", Kind.BYTES, room=2),
        Column("flops", Kind.COUNT, room=1),
        Column("nodes", Kind.COUNT, room=0),
    )


def _groups(document: CostDocument) -> Table:
    title = title_groups(document.by, document.depth)
    idle = [group for group in document.groups if _is_idle(group)]
    busy = [group for group in document.groups if len(idle) == 1 or not _is_idle(group)]
    busy.sort(
        key=lambda group: {"stem": -1, "head": 1}.get(group.group, 0)
    )  # as in the graph, and in `inspect`
    rows = tuple(_row(name, alike, document) for name, alike in _alike(busy))
    if len(idle) > 1:
        rows += (_row(f"[{format_count(len(idle))} groups with 0]", idle, document, is_alike=False),)
    totals = document.totals
    total = (
        "total",
        _sum(totals.macs, is_known=_has_all_macs(document)),
        1.0 if totals.macs.expression != "0" and _has_shares(document) else None,
        _size(totals.read_bytes),
        _size(totals.written_bytes),
        _cell(totals.flops),
        sum(group.nodes for group in document.groups),
    )
    return Table(
        (Column(title, Kind.NAME), *_columns(*rows, Row(total))),
        rows,
        title=title,
        total=total,
        is_long=True,
        key="groups",
    )


def _is_idle(group: CostGroup) -> bool:
    """Whether a group has no multiply-accumulates, as far as all of its nodes are known."""
    return group.macs.expression == "0" and not group.nodes_without_macs


def _has_shares(document: CostDocument) -> bool:
    return all(group.share is not None for group in document.groups if not _is_idle(group))


def _sum(amount: Amount, *, is_known: bool) -> Cell:
    """Return the cell of a sum, in words if it lacks the work of a node."""
    cell = _cell(amount)
    return cell if is_known else Formatted(amount.value, _or_more(_number(amount), amount, is_known=False))


def _alike(groups: Sequence[CostGroup]) -> Iterator[tuple[str, list[CostGroup]]]:
    """Yield runs of groups for one row each: names that count up in their last number, and the same MACs."""
    run: list[CostGroup] = []
    for group in groups:
        if run and not _follows(run[-1], group):
            yield _name(run), run
            run = []
        run.append(group)
    if run:
        yield _name(run), run


_COUNTER = re.compile(r"^(.*\.)(\d+)$", re.DOTALL)


def _follows(first: CostGroup, second: CostGroup) -> bool:
    ours, theirs = _COUNTER.match(first.group), _COUNTER.match(second.group)
    if ours is None or theirs is None or ours[1] != theirs[1] or int(theirs[2]) != int(ours[2]) + 1:
        return False
    is_alike = (first.macs, first.nodes_without_macs) == (second.macs, second.nodes_without_macs)
    return is_alike and not _is_idle(first)


def _name(groups: Sequence[CostGroup]) -> str:
    first = groups[0].group or "[root]"
    return first if len(groups) == 1 else f"{first}-{groups[-1].group.rpartition('.')[2]}"


def _row(name: str, alike: Sequence[CostGroup], document: CostDocument, *, is_alike: bool = True) -> Row:
    one, times = alike[0], len(alike)
    shares = [group.share for group in alike]
    known = [share for share in shares if share is not None]
    is_known = not one.nodes_without_macs
    macs = _sum(one.macs, is_known=is_known)
    if times > 1 and is_alike:
        value = None if one.macs.value is None else times * one.macs.value
        text = f"{times} x {_format_factor(one.macs)}"
        macs = Formatted(value, _or_more(text, one.macs, is_known=is_known))
    sums = [[getattr(group, key) for group in alike] for key in ("read_bytes", "written_bytes", "flops")]
    return Row(
        (
            name,
            macs,
            sum(known) if len(known) == len(shares) else None,
            _summed(sums[0], size=True),
            _summed(sums[1], size=True),
            _summed(sums[2], size=False),
            sum(group.nodes for group in alike),
        )
    )


def _format_factor(amount: Amount) -> str:
    if amount.value is not None:
        return format_count(amount.value)
    text = format_expression(amount.expression)
    return f"({text})" if " + " in text or " - " in text else text


def _cell(amount: Amount) -> Cell:
    return amount.value if amount.value is not None else Formatted(None, format_expression(amount.expression))


def _size(amount: Amount) -> Cell:
    return amount.value if amount.value is not None else Formatted(None, format_expression(amount.expression))


def _summed(amounts: Sequence[Amount], *, size: bool) -> Cell:
    values = [amount.value for amount in amounts if amount.value is not None]
    if len(values) == len(amounts):
        return sum(values)
    return _size(amounts[0]) if len(amounts) == 1 else Formatted(None, "...")


def _operators(document: CostDocument) -> Table:
    unknown = {(row.op_type, row.domain) for row in document.unknown if row.op_type != "If"}
    rows = tuple(
        Row(
            (
                row.op_type,
                row.domain,
                row.nodes,
                _sum(row.macs, is_known=not row.nodes_without_macs),
                _sum(row.flops, is_known=(row.op_type, row.domain) not in unknown),
            )
        )
        for row in document.operators
    )
    columns = (
        Column("operator", Kind.NAME),
        Column("domain", room=1),
        Column("nodes", Kind.COUNT, room=5),
        Column("MACs", Kind.COUNT, room=9),
        Column("flops", Kind.COUNT, room=4),
    )
    return Table(columns, rows, title="operators", detail=Detail.MORE, is_long=True, key="operators")
