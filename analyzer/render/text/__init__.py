"""Reports -> text for a terminal or a pipe: tables that stay within their width, names that cannot escape."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.artifact.components import ComponentTotals
from analyzer.budget.record import BudgetReport
from analyzer.compare import Comparison
from analyzer.formulas.record import FormulaReport
from analyzer.ledger import Entry, Ledger, Role
from analyzer.model import label
from analyzer.ranges import Traffic
from analyzer.render.options import RenderOptions
from analyzer.render.text.accounts import show_accounts, show_roles
from analyzer.render.text.bridge import show_reconciliation
from analyzer.render.text.compare import show_comparison
from analyzer.render.text.groups import show_groups
from analyzer.render.text.recover import show_recovery
from analyzer.render.text.survey import show_survey
from analyzer.render.text.tables import make_table, show_findings, show_name
from analyzer.report import (
    ExportReport,
    Inspection,
    ReconcileReport,
    RecoverReport,
    Report,
    SurveyReport,
)
from analyzer.units import (
    format_bytes,
    format_count,
    format_many,
    format_others,
    format_shape,
    format_share,
    printable,
    short_count,
)

__all__ = ["RenderOptions", "render_text", "show_basis", "show_facts"]


def render_text(report: Report, options: RenderOptions | None = None) -> str:
    """The report as text with a final newline."""
    options = options or RenderOptions()
    match report:
        case Inspection():
            parts = _inspection(report, options)
        case SurveyReport():
            parts = show_survey(report.survey, options)
        case ReconcileReport():
            parts = show_reconciliation(report, options)
        case ExportReport():
            files = [Text(f"wrote {printable(path)}") for path in report.files]
            parts = [*files, Text(""), *show_reconciliation(report.reconcile, options)]
        case RecoverReport():
            parts = show_recovery(report, options)
        case Comparison():
            parts = show_comparison(report, options)
        case BudgetReport():
            from analyzer.render.text.budget import show_budget

            parts = show_budget(report, options)
        case FormulaReport():
            from analyzer.render.text.formula import show_formula  # sympy, which nothing else needs

            parts = show_formula(report, options)
        case _:
            from analyzer.render.text.time import show_timed  # what only a timing needs

            parts = show_timed(report, options)
    return _to_text(parts, options)


def _to_text(parts: Iterable[RenderableType], options: RenderOptions) -> str:
    console = Console(
        file=io.StringIO(),
        width=options.width,
        force_terminal=options.color,
        color_system="auto" if options.color else None,
        no_color=not options.color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    return "\n".join(lines).rstrip("\n") + "\n"


# inspect


def _inspection(report: Inspection, options: RenderOptions) -> list[RenderableType]:
    ledger = report.ledger
    parts: list[RenderableType] = [show_name(ledger.model.path), show_facts(ledger), Text("")]
    parts += [_headline(ledger), show_basis(ledger), Text("")]
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


def show_facts(ledger: Ledger) -> Text:
    """What made the file, and what it is made of."""
    model = ledger.model
    versions: dict[str, set[int]] = defaultdict(set)
    for part in model.parts:
        for domain, version in part.opsets:
            versions[domain].add(version)
    opsets = ", ".join(f"{domain} {_each(found)}" for domain, found in versions.items())
    facts = [format_many(len(model.components), "component")] if model.components else []
    facts += [model.producer or "unknown producer", f"IR {_each(part.ir_version for part in model.parts)}"]
    facts.append(f"opset {opsets or 'none'}")
    facts.append(format_many(sum(1 for _ in model.nodes()), "node"))
    if model.nested_graphs:
        facts.append(format_many(model.nested_graphs, "nested graph"))
    if model.functions:
        sites = sum(call.sites for call in ledger.calls)
        facts.append(
            f"{format_many(len(model.functions), 'function')} called by {format_many(sites, 'node')}"
        )
    if model.traffic is None:
        facts.append(f"{format_bytes(ledger.file_nbytes)} on disk")
    else:
        facts.append(f"{format_bytes(ledger.file_nbytes)} in all, {_traffic(model.traffic)}")
    return Text(printable(", ".join(facts)))


def _each(numbers: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(set(numbers))))


def _traffic(traffic: Traffic) -> str:
    where = f", sent on to {traffic.redirected_to}" if traffic.redirected_to else ""
    return f"{format_bytes(traffic.nbytes)} of it read in {format_many(traffic.requests, 'request')}{where}"


def _headline(ledger: Ledger) -> Text:
    short = f" ({short_count(ledger.parameters)})" if ledger.parameters >= 1000 else ""
    text = Text(f"{format_many(ledger.parameters, 'parameter')}{short}", style="bold")
    elements, tensors = (
        format_many(ledger.stored_elements, "element"),
        format_many(len(ledger.entries), "stored tensor"),
    )
    text.append(f", {elements} in {tensors}", style="not bold")
    return text


def show_basis(ledger: Ledger) -> Text:
    """Which evidence decided how much, and whether contents were looked at."""
    shares = [
        f"{evidence.value} {format_share(count, ledger.stored_elements)}"
        for evidence, count in sorted(ledger.basis.items(), key=lambda item: (-item[1], item[0]))
        if count
    ]
    text = Text(f"Elements decided by: {', '.join(shares) or 'nothing, there are none'}")
    if ledger.content == "none":
        names = " under other names" if ledger.model.components else ""
        text.append(
            f"\nContents were not looked at: what is stored twice{names} counts twice (--content sampled)"
        )
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
