"""Inspection -> blocks: the totals, the groups, and behind folds everything else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.artifact.components import ComponentTotals
from analyzer.doubt import find_doubt
from analyzer.group.keys import ACCOUNTS
from analyzer.ledger import Entry, Grouping, Ledger, Role, Severity
from analyzer.model import label
from analyzer.render.markdown.parts import (
    columns,
    cut,
    name,
    others,
    show_findings,
    show_group_table,
    text_row,
)
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Block, Cell, Code, Fold, Heading, Line, Row, Table
from analyzer.render.sentences.findings import count_severities
from analyzer.render.sentences.inspect import tell_basis, tell_facts, tell_hidden, tell_range
from analyzer.report import Inspection
from analyzer.units import format_bytes, format_count, format_many, format_shape, format_share

__all__ = ["show_inspection"]


def show_inspection(report: Inspection, options: RenderOptions) -> Iterator[Block]:
    """From top to bottom; the first line answers."""
    ledger, rows = report.ledger, options.rows
    doubt = find_doubt(ledger)
    hidden = f", {said}" if (said := tell_hidden(doubt)) else ""
    total = f"{format_many(ledger.parameters, 'parameter')}{hidden}, {format_bytes(ledger.file_nbytes)}"
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    yield Heading((", ".join(filter(None, [total, count_severities(errors)])),))
    yield Line((Code(str(ledger.model.path)), f": {tell_facts(ledger)}"))
    for told in tell_range(doubt.least, doubt.most, doubt.reasons):
        yield Line((f"{told}.",))
    if report.grouping.by == ACCOUNTS:
        yield _accounts(report.grouping, ledger)
    else:
        yield from show_group_table(report.grouping, ledger.parameters, rows)
    if report.components:
        yield Fold(
            format_many(len(report.components), "component"), (_components(report.components, ledger, rows),)
        )
    yield Fold("Roles, and every byte on disk", (_roles(ledger), _rest(ledger)))
    if ledger.entries:
        yield Fold("Largest tensors", (_largest(ledger, rows), Line((". ".join(tell_basis(ledger)),))))
    yield from show_findings(report.findings, rows)


def _accounts(grouping: Grouping, ledger: Ledger) -> Table:
    """Every byte on disk, and what is stored in it."""
    rows = [
        text_row(
            name(group.name),
            format_count(group.nbytes),
            format_share(group.nbytes, ledger.file_nbytes),
            format_count(group.stored_elements),
        )
        for group in grouping.groups
        if group.nbytes or group.tensors
    ]
    whole = ledger.file_nbytes, ledger.stored_elements
    rows.append(
        text_row(
            "total",
            format_count(whole[0]),
            format_share(whole[0], whole[0]),
            format_count(whole[1]),
            is_total=True,
        )
    )
    return Table(columns("bytes", "bytes on disk", "share", "stored"), tuple(rows))


def _components(components: Sequence[ComponentTotals], ledger: Ledger, limit: int) -> Table:
    """What each file holds by itself; the last row counts once what several hold."""
    shown, left = cut(components, limit)
    rows = [
        text_row(
            Code(row.component.name),
            format_count(row.parameters),
            format_count(row.stored_elements),
            format_bytes(row.duplicated_nbytes),
            format_bytes(row.file_nbytes),
        )
        for row in shown
    ]
    if left:
        rows.append(text_row(others(left), "", "", "", ""))
    rows.append(
        text_row(
            "all, each once",
            format_count(ledger.parameters),
            format_count(ledger.stored_elements),
            format_bytes(ledger.duplicated_nbytes),
            format_bytes(ledger.file_nbytes),
            is_total=True,
        )
    )
    return Table(columns("component", "parameters", "stored", "duplicated", "on disk"), tuple(rows))


def _roles(ledger: Ledger) -> Table:
    """Every element by its role."""
    rows = [_role(role.value, [e for e in ledger.entries if e.role is role]) for role in Role]
    rows.append(_role("total", ledger.entries, is_total=True))
    return Table(columns("role", "parameters", "stored", "tensors", "payload bytes"), tuple(rows))


def _role(title: str, entries: Sequence[Entry], *, is_total: bool = False) -> Row:
    return text_row(
        title,
        format_count(sum(entry.parameters for entry in entries)),
        format_count(sum(entry.tensor.numel for entry in entries)),
        format_count(len(entries)),
        format_count(sum(entry.tensor.nbytes for entry in entries)),
        is_total=is_total,
    )


def _rest(ledger: Ledger) -> Table:
    """Every byte on disk by its account."""
    rows = [text_row(name(each.name), format_count(each.nbytes)) for each in ledger.accounts if each.nbytes]
    rows.append(text_row("total", format_count(ledger.file_nbytes), is_total=True))
    return Table(columns("account", "bytes on disk"), tuple(rows))


def _largest(ledger: Ledger, limit: int) -> Table:
    """The largest tensors, under the names that PyTorch knows them by where the file tells."""
    ordered = sorted(ledger.entries, key=lambda entry: entry.tensor.by_size)
    shown, left = cut(ordered, limit)
    rows = [_tensor(entry) for entry in shown]
    if left:
        rows.append(Row(((others(left),), (), (), (), *_counts(left))))
    rows.append(Row((("total",), (), (), (), *_counts(ordered)), is_total=True))
    titles = ("tensor", "role", "dtype", "shape", "stored", "logical bytes", "bytes")
    return Table(columns(*titles, words=4), tuple(rows))


def _tensor(entry: Entry) -> Row:
    tensor = entry.tensor
    called = (Code(", ".join(entry.sources) or label(tensor.key)),)
    shape = format_shape(tensor.shape)
    return Row((called, (entry.role.value,), (tensor.dtype.name,), (shape,), *_counts([entry])))


def _counts(entries: Sequence[Entry]) -> Iterator[Cell]:
    yield (format_count(sum(entry.tensor.numel for entry in entries)),)
    yield (format_count(sum(entry.tensor.logical_nbytes for entry in entries)),)
    yield (format_count(sum(entry.tensor.nbytes for entry in entries)),)
