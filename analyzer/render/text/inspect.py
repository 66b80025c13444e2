"""Inspection -> text: totals, groups, roles, largest tensors, findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.artifact.components import ComponentTotals
from analyzer.doubt import Doubt, find_doubt
from analyzer.ledger import Entry, Ledger, Role, Severity
from analyzer.model import label
from analyzer.render.options import RenderOptions
from analyzer.render.sentences.findings import count_severities
from analyzer.render.sentences.inspect import tell_basis, tell_facts, tell_hidden, tell_range
from analyzer.render.text.accounts import show_accounts, show_roles
from analyzer.render.text.groups import show_groups
from analyzer.render.text.tables import make_table, show_findings, show_name
from analyzer.report import Inspection
from analyzer.units import (
    format_bytes,
    format_count,
    format_many,
    format_others,
    format_shape,
    printable,
    short_count,
)

__all__ = ["show_inspection"]


def show_inspection(report: Inspection, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text, from top to bottom."""
    ledger = report.ledger
    parts: list[RenderableType] = [show_name(ledger.model.path), Text(tell_facts(ledger)), Text("")]
    doubt = find_doubt(ledger)
    told = tell_range(doubt.least, doubt.most, doubt.reasons)
    parts += [_headline(ledger, doubt), *map(Text, (*told, *tell_basis(ledger))), *_errors(report), Text("")]
    if report.components:
        parts += [_components(report.components, ledger), Text("")]
    if report.grouping.by == "bytes":
        parts += [show_accounts(report.grouping, ledger)]
    else:
        parts += [*show_groups(report.grouping, ledger, options), Text("")]
        parts += [show_roles(ledger)]
    if ledger.entries:
        parts += [Text(""), _largest(ledger, options)]
    return parts + show_findings(report.findings, options)


def _errors(report: Inspection) -> Iterator[Text]:
    """That the totals may not be all: the errors themselves stand below them."""
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    if errors:
        yield Text(f"{count_severities(errors)}, see below", style="bold red")


def _headline(ledger: Ledger, doubt: Doubt) -> Text:
    short = f" ({short_count(ledger.parameters)})" if ledger.parameters >= 1000 else ""
    text = Text(f"{format_many(ledger.parameters, 'parameter')}{short}", style="bold")
    if hidden := tell_hidden(doubt):
        text.append(f", {hidden}")
    elements, tensors = (
        format_many(ledger.stored_elements, "element"),
        format_many(len(ledger.entries), "stored tensor"),
    )
    text.append(f", {elements} in {tensors}", style="not bold")
    return text


def _components(components: Sequence[ComponentTotals], ledger: Ledger) -> Table:
    """What each file holds by itself; below it all of them, where what several hold counts once."""
    table = make_table("component", "parameters", "stored", "duplicated", "on disk")
    for row in components:
        table.add_row(
            show_name(row.component.name),
            format_count(row.parameters),
            format_count(row.stored_elements),
            format_bytes(row.duplicated_nbytes),
            format_bytes(row.file_nbytes),
        )
    table.add_section()
    table.add_row(
        "all, each once",
        format_count(ledger.parameters),
        format_count(ledger.stored_elements),
        format_bytes(ledger.duplicated_nbytes),
        format_bytes(ledger.file_nbytes),
        style="bold",
    )
    return table


def _largest(ledger: Ledger, options: RenderOptions) -> Table:
    """The largest tensors under the names that PyTorch knows them by, where the file tells."""
    ordered = sorted(ledger.entries, key=lambda entry: entry.tensor.by_size)
    shown = ordered[: options.rows] if options.rows else ordered
    table = make_table("largest tensors", "dtype", "shape", "stored")
    for entry in shown:
        shape = format_shape(entry.tensor.shape)
        component = "/".join(ledger.model.root(entry.tensor.graph_path))
        table.add_row(
            _describe(entry, component, options),
            entry.tensor.dtype.name,
            shape,
            format_count(entry.tensor.numel),
        )
    left = ordered[len(shown) :]
    if left:
        elements = sum(entry.tensor.numel for entry in left)
        table.add_row(format_others(len(left)), "", "", format_count(elements))
    return table


def _describe(entry: Entry, component: str, options: RenderOptions) -> Text:
    """What a person calls the tensor: its PyTorch name; else its own, with the module that reads it."""
    text = show_name(", ".join(entry.sources) or label(entry.tensor.key))
    tensor = entry.tensor
    notes = [] if entry.role is Role.PARAMETER else [entry.role.value]
    if not tensor.nbytes and tensor.logical_nbytes:
        notes.append(f"0 B of {format_bytes(tensor.logical_nbytes)}")
    if entry.sources and component:
        notes.append(f"in {component}")
    if not entry.sources and entry.scope:
        notes.append(f"of {entry.scope}")
    if entry.copy_of is not None:
        notes.append(f"copy of {label(entry.copy_of)}")
    if options.verbose:
        notes += [f"stored as {entry.tensor.name}", entry.decided_by]
    if notes:
        text.append(printable(f" ({', '.join(notes)})"))
    return text
