"""Reports -> text for a terminal or a pipe: tables that stay within their width, names that cannot escape."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.compare import Comparison, GroupPair
from analyzer.components import ComponentTotals
from analyzer.ledger import Entry, Finding, Group, Grouping, Ledger, Role
from analyzer.model import label
from analyzer.ranges import Traffic
from analyzer.read.book import GRAPH_STRUCTURE, INSIDE
from analyzer.reconcile import Line, Reconciliation
from analyzer.render.options import TextOptions
from analyzer.render.recover import show_recovery
from analyzer.render.survey import show_survey
from analyzer.render.tables import make_table, show_name
from analyzer.render.units import (
    format_bytes,
    format_count,
    format_error,
    format_ratio,
    format_share,
    format_signed,
    printable,
    short_count,
)
from analyzer.report import ExportReport, Inspection, ReconcileReport, RecoverReport, Report, SurveyReport
from analyzer.statedict import BY_NAMES

__all__ = ["TextOptions", "render_text"]


def render_text(report: Report, options: TextOptions | None = None) -> str:
    """The report as text with a final newline."""
    options = options or TextOptions()
    match report:
        case Inspection():
            parts = _inspection(report, options)
        case SurveyReport():
            parts = show_survey(report.survey, options)
        case ReconcileReport():
            parts = _reconciliation(report, options)
        case ExportReport():
            files = [Text(f"wrote {printable(path)}") for path in report.files]
            parts = [*files, Text(""), *_reconciliation(report.reconcile, options)]
        case RecoverReport():
            parts = show_recovery(report, options)
        case Comparison():
            parts = _comparison(report)
    return _to_text(parts, options)


def _to_text(parts: Iterable[RenderableType], options: TextOptions) -> str:
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


def _inspection(report: Inspection, options: TextOptions) -> list[RenderableType]:
    ledger = report.ledger
    parts: list[RenderableType] = [show_name(ledger.model.path), _facts(ledger), Text("")]
    parts += [_headline(ledger), _basis(ledger), Text("")]
    if report.components:
        parts += [_components(report.components, ledger), Text("")]
    if report.grouping.by == "bytes":
        parts += [_accounts(report.grouping, ledger), Text("")]
    else:
        parts += [_groups(report.grouping, ledger.parameters, options.rows), Text("")]
        parts += [_roles(ledger), Text("")]
    parts += [_largest(ledger, options)]
    return parts + _findings(report.findings, options)


def _facts(ledger: Ledger) -> Text:
    model = ledger.model
    versions: dict[str, set[int]] = defaultdict(set)
    for part in model.parts:
        for domain, version in part.opsets:
            versions[domain].add(version)
    opsets = ", ".join(f"{domain} {_each(found)}" for domain, found in versions.items())
    facts = [f"{format_count(len(model.components))} components"] if model.components else []
    facts += [model.producer or "unknown producer", f"IR {_each(part.ir_version for part in model.parts)}"]
    facts.append(f"opset {opsets or 'none'}")
    facts.append(f"{format_count(sum(1 for _ in model.nodes()))} nodes")
    if model.nested_graphs:
        facts.append(f"{format_count(model.nested_graphs)} nested graphs")
    if model.functions:
        sites = sum(call.sites for call in ledger.calls)
        facts.append(f"{format_count(len(model.functions))} functions called by {format_count(sites)} nodes")
    if model.traffic is None:
        facts.append(f"{format_bytes(ledger.file_nbytes)} on disk")
    else:
        facts.append(f"{format_bytes(ledger.file_nbytes)} in all, {_traffic(model.traffic)}")
    return Text(printable(", ".join(facts)))


def _each(numbers: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(set(numbers))))


def _traffic(traffic: Traffic) -> str:
    where = f", sent on to {traffic.redirected_to}" if traffic.redirected_to else ""
    return f"{format_bytes(traffic.nbytes)} of it read in {format_count(traffic.requests)} requests{where}"


def _headline(ledger: Ledger) -> Text:
    short = f" ({short_count(ledger.parameters)})" if ledger.parameters >= 1000 else ""
    text = Text(f"{format_count(ledger.parameters)} parameters{short}", style="bold")
    text.append(
        f", {format_count(ledger.stored_elements)} elements in {format_count(len(ledger.entries))} stored tensors",
        style="not bold",
    )
    return text


def _basis(ledger: Ledger) -> Text:
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


def _groups(grouping: Grouping, parameters: int, rows: int) -> Table:
    known = any(group.trainable is not None for group in grouping.groups)
    heading = grouping.by if grouping.depth is None else f"{grouping.by}, depth {grouping.depth}"
    columns = ("trainable", "frozen") if known else ("share", "stored")
    table = make_table(heading, "parameters", *columns, "bytes", "tensors")
    # Groups of nodes alone have nothing to count; JSON lists them.
    counted = [group for group in grouping.groups if group.tensors or grouping.by == "group"]
    shown, left = _cut(counted, 0 if grouping.by == "group" else rows)
    for group in shown:
        table.add_row(*_group_row(group, parameters))
    if left:
        table.add_row(*_group_row(_sum(f"[{format_count(len(left))} others]", left), parameters))
    if grouping.by == "group":
        table.add_row(*_group_row(grouping.ungrouped, parameters))
        table.add_row(*_group_row(grouping.overlap, parameters, sign=-1))
    table.add_section()
    everything = _sum("total", (*grouping.groups, grouping.ungrouped), grouping.overlap)
    table.add_row(*_group_row(everything, parameters), style="bold")
    return table


def _cut(groups: Sequence[Group], rows: int) -> tuple[list[Group], list[Group]]:
    """The groups that are shown, the largest in their own order, and the others."""
    if not rows or len(groups) <= rows:
        return list(groups), []
    largest = sorted(groups, key=lambda group: (-group.parameters, -group.nbytes, -group.tensors))[:rows]
    shown = {id(group) for group in largest}
    return [g for g in groups if id(g) in shown], [g for g in groups if id(g) not in shown]


def _sum(name: str, groups: Sequence[Group], overlap: Group | None = None) -> Group:
    """What groups hold together, less what they count twice."""

    def total(attribute: str) -> int | None:
        numbers: list[int | None] = [getattr(group, attribute) for group in groups]
        twice: int = (getattr(overlap, attribute) or 0) if overlap is not None else 0
        known = [number for number in numbers if number is not None]
        return sum(known) - twice if len(known) == len(numbers) else None

    return Group(
        name=name,
        parameters=total("parameters") or 0,
        stored_elements=total("stored_elements") or 0,
        nbytes=total("nbytes") or 0,
        tensors=total("tensors") or 0,
        nodes=total("nodes") or 0,
        trainable=total("trainable"),
        frozen=total("frozen"),
    )


def _group_row(group: Group, parameters: int, sign: int = 1) -> list[RenderableType]:
    row: list[RenderableType] = [show_name(group.name), format_count(sign * group.parameters)]
    if group.trainable is None or group.frozen is None:
        row += [format_share(sign * group.parameters, parameters), format_count(sign * group.stored_elements)]
    else:
        row += [format_count(sign * group.trainable), format_count(sign * group.frozen)]
    return [*row, format_bytes(sign * group.nbytes), format_count(sign * group.tensors)]


def _roles(ledger: Ledger) -> Table:
    """Every element by its role, and every byte on disk: payload by role, then the rest of the files."""
    table = make_table("role", "parameters", "stored", "tensors", "bytes on disk")
    booked = {account.name: account.nbytes for account in ledger.accounts}
    for role in Role:
        entries = [entry for entry in ledger.entries if entry.role is role]
        table.add_row(
            role.value,
            format_count(sum(entry.parameters for entry in entries)),
            format_count(sum(entry.tensor.numel for entry in entries)),
            format_count(len(entries)),
            format_count(booked.pop(role.value, 0)),
        )
    rest = {GRAPH_STRUCTURE: sum(booked.pop(name, 0) for name in INSIDE)} | booked
    for name, nbytes in rest.items():
        if nbytes:
            table.add_row(name, "", "", "", format_count(nbytes))
    table.add_section()
    table.add_row(
        "total",
        format_count(ledger.parameters),
        format_count(ledger.stored_elements),
        format_count(len(ledger.entries)),
        format_count(ledger.file_nbytes),
        style="bold",
    )
    return table


def _accounts(grouping: Grouping, ledger: Ledger) -> Table:
    """Every byte on disk, and what is stored in it."""
    table = make_table("bytes", "bytes on disk", "share", "stored", "tensors")
    for group in grouping.groups:
        if group.nbytes or group.tensors:
            table.add_row(*_account_row(group, ledger.file_nbytes))
    table.add_section()
    total = _sum("total", grouping.groups)
    table.add_row(*_account_row(total, ledger.file_nbytes), style="bold")
    if ledger.shared_nbytes:
        table.add_row("[shared, booked once]", format_count(ledger.shared_nbytes), "", "", "")
    return table


def _account_row(group: Group, nbytes: int) -> list[RenderableType]:
    elements = (
        (format_count(group.stored_elements), format_count(group.tensors)) if group.tensors else ("", "")
    )
    return [show_name(group.name), format_count(group.nbytes), format_share(group.nbytes, nbytes), *elements]


def _largest(ledger: Ledger, options: TextOptions) -> Table:
    """The largest tensors under the names that PyTorch knows them by, where the file tells."""
    ordered = sorted(ledger.entries, key=lambda entry: (-entry.tensor.nbytes, entry.tensor.key))
    shown = ordered[: options.rows] if options.rows else ordered
    table = make_table("largest tensors", "dtype", "shape", "stored")
    for entry in shown:
        shape = _shape(entry.tensor.shape)
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
        table.add_row(f"[{format_count(len(left))} others]", "", "", format_count(elements))
    return table


def _shape(shape: tuple[int, ...]) -> str:
    """Dimensions, of a tensor of absurdly many only the first."""
    text = "x".join(map(str, shape[:_MAX_DIMS])) or "scalar"
    return text if len(shape) <= _MAX_DIMS else f"{text}x... ({format_count(len(shape))} dimensions)"


_MAX_DIMS = 12


def _describe(entry: Entry, component: str, options: TextOptions) -> Text:
    """What a person calls the tensor: its PyTorch name; else its own, with the module that reads it."""
    text = show_name(", ".join(entry.sources) or label(entry.tensor.key))
    notes = [] if entry.role is Role.PARAMETER else [entry.role.value]
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


def _findings(findings: Sequence[Finding], options: TextOptions) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for finding in findings:
        head = Text(f"{finding.severity.value}: ", style="bold")
        head.append(printable(f"{finding.message} [{finding.id}]"), style="not bold")
        parts += [Text(""), head]
        shown = finding.subjects[: options.rows] if options.rows else finding.subjects
        parts += [Text(f"  {printable(subject)}") for subject in shown]
        if len(finding.subjects) > len(shown):
            parts.append(Text(f"  [{format_count(len(finding.subjects) - len(shown))} others]"))
    return parts


# reconcile


def _reconciliation(report: ReconcileReport, options: TextOptions) -> list[RenderableType]:
    result = report.reconciliation
    parts: list[RenderableType] = [_verdict(result), Text(""), _bridge(result), Text("")]
    parts.append(_groups(report.grouping, result.onnx_parameters, options.rows))
    if options.verbose or not options.rows:
        parts += [Text(""), _parameters(result)]
    if result.nearest:
        parts += [Text(""), _nearest(result, options.rows)]
    return parts + _findings(report.findings, options)


def _verdict(result: Reconciliation) -> Text:
    source = result.manifest.source
    names = ", ".join(value for key in ("class", "source", "weights") if (value := source.get(key)))
    against = f" against {names}" if names else ""
    compared = {
        "none": "contents not compared",
        "sampled": "contents compared at fixed positions",
        "full": "whole contents compared",
    }[result.content]
    text = Text(printable(f"{result.ledger.model.path}{against}") + "\n")
    if result.balanced:
        text.append("balanced, unexplained 0", style="bold green")
    else:
        text.append("DOES NOT BALANCE", style="bold red")
    text.append(f"; {compared}")
    if result.content != "none" and result.undescribed:
        text.append(f", except {format_count(result.undescribed)} that PyTorch's side does not describe")
    sampled = result.compared["sampled"]
    if result.content == "full" and sampled:
        text.append(f"; {format_count(sampled)} elements at fixed positions only, as no values are at hand")
    if source.get("parameters_by") == BY_NAMES:
        text.append("; parameters told from buffers by their names")
    return text


def _bridge(result: Reconciliation) -> Table:
    table = make_table("bridge", "tensors", "elements", "parameters", "stored")
    start = format_count(result.manifest.numel)
    table.add_row("PyTorch", format_count(len(result.manifest.parameters)), start, start, start, style="bold")
    table.add_section()
    for row in result.bridge:
        if row.tensors or row.line is Line.UNEXPLAINED:
            table.add_row(
                row.line.value,
                format_count(row.tensors),
                format_count(row.elements),
                format_signed(row.parameter_delta),
                format_signed(row.stored_delta),
            )
    table.add_section()
    stored = result.ledger.stored_elements
    table.add_row(
        "ONNX",
        format_count(len(result.ledger.entries)),
        format_count(stored),
        format_count(result.onnx_parameters),
        format_count(stored),
        style="bold",
    )
    return table


def _parameters(result: Reconciliation) -> Table:
    table = make_table("parameter", "line", "elements", "error", "decided by")
    numels = {parameter.name: parameter.numel for parameter in result.manifest.parameters}
    for settled in result.parameters:
        table.add_row(
            show_name(settled.name),
            settled.line.value,
            format_count(numels[settled.name]),
            format_error(settled.max_abs_error),
            printable(settled.decided_by),
        )
    return table


def _nearest(result: Reconciliation, rows: int) -> Text:
    """What each unexplained tensor is most like, two lines each."""
    text = Text("nothing explains, and what is nearest to it:", style="bold")
    tensors = {entry.tensor.key: entry.tensor for entry in result.ledger.entries}
    shown = result.nearest[: rows or None]
    for nearest in shown:
        name = show_name(label(nearest.key)).plain
        text.append(f"\n  {name} {_shape(tensors[nearest.key].shape)}", style="not bold")
        equal = f"{format_count(nearest.equal)} of {format_count(nearest.compared)} elements equal"
        error = "" if nearest.max_abs_error is None else f", off by {format_error(nearest.max_abs_error)}"
        text.append(f"\n    {show_name(nearest.name).plain}: {equal}{error}", style="not bold")
    if len(shown) < len(result.nearest):
        text.append(f"\n  [{format_count(len(result.nearest) - len(shown))} others]", style="not bold")
    return text


# compare


def _comparison(report: Comparison) -> list[RenderableType]:
    table = make_table("parameters", "a", "b", "a - b", "a / b")
    for group in report.groups:
        if any((group.parameters.a, group.parameters.b, group.nbytes.a, group.nbytes.b)):
            _add_pair(table, group)
    if report.ungrouped.parameters.a or report.ungrouped.parameters.b:
        _add_pair(table, report.ungrouped)
    if report.overlap.parameters.a or report.overlap.parameters.b:
        _add_pair(table, report.overlap)
    table.add_section()
    for name, pair in (("total parameters", report.parameters), ("total bytes", report.file_nbytes)):
        table.add_row(
            name,
            format_count(pair.a),
            format_count(pair.b),
            format_signed(pair.difference),
            format_ratio(pair.ratio),
            style="bold",
        )
    return [show_name(f"a = {report.a}"), show_name(f"b = {report.b}"), Text(""), table]


def _add_pair(table: Table, group: GroupPair) -> None:
    pair = group.parameters
    table.add_row(
        show_name(group.name),
        format_count(pair.a),
        format_count(pair.b),
        format_signed(pair.difference),
        format_ratio(pair.ratio),
    )
