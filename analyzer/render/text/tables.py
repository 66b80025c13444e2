"""What the text reports are built of: tables within their width, names that cannot escape, findings."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.ledger import Finding
from analyzer.render.options import RenderOptions
from analyzer.render.sentences.findings import worst_first
from analyzer.units import format_count, format_many, format_others, printable, printable_name

__all__ = ["make_table", "show_findings", "show_name"]


def make_table(*columns: str) -> Table:
    """The first column holds names and takes the room that is left; the others hold numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for position, column in enumerate(columns):
        if position:
            table.add_column(column, justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold")
    return table


def show_name(name: str, style: str = "") -> Text:
    """A name from a file, escaped, and no longer than anybody reads."""
    return Text(printable_name(name), style=style)


def show_findings(findings: Sequence[Finding], options: RenderOptions) -> list[RenderableType]:
    """A paragraph for each finding, worst first, with its subjects and what it costs; then where to read of them."""
    parts: list[RenderableType] = []
    told: dict[tuple[str, ...], str] = {}
    for finding in worst_first(findings, lambda each: each.severity):
        head = Text(f"{finding.severity.value}: ", style="bold")
        head.append(printable(f"{finding.message} [{finding.id}]"), style="not bold")
        parts += [Text(""), head]
        known = told.setdefault(finding.subjects, finding.id)
        if known != finding.id and len(finding.subjects) > 1:
            parts.append(Text(f"  the same {format_count(len(finding.subjects))} as under [{known}]"))
        else:
            parts += _subjects(finding.subjects, options)
        if finding.nbytes:
            parts.append(Text(f"  costs {format_many(finding.nbytes, 'byte')}", style="bold"))
    return [*parts, Text(""), Text(_READ_ON)] if parts else []


def _subjects(subjects: Sequence[str], options: RenderOptions) -> list[RenderableType]:
    shown = subjects[: options.rows] if options.rows else subjects
    parts: list[RenderableType] = [Text(f"  {printable(subject)}") for subject in shown]
    return (
        parts
        if len(shown) == len(subjects)
        else [*parts, Text(f"  {format_others(len(subjects) - len(shown))}")]
    )


_READ_ON = "onnxledger explain ID says what each means, costs, and how to mend it"
