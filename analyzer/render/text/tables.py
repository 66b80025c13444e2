"""What the text reports are built of: tables within their width, names that cannot escape, findings."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.ledger import Finding
from analyzer.render.options import RenderOptions
from analyzer.units import format_count, printable, printable_name

__all__ = ["make_table", "show_findings", "show_name", "show_shape"]


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


def show_shape(shape: tuple[int, ...]) -> str:
    """Dimensions, of a tensor of absurdly many only the first."""
    text = "x".join(map(str, shape[:_MAX_DIMS])) or "scalar"
    return text if len(shape) <= _MAX_DIMS else f"{text}x... ({format_count(len(shape))} dimensions)"


_MAX_DIMS = 12


def show_findings(findings: Sequence[Finding], options: RenderOptions) -> list[RenderableType]:
    """A paragraph for each finding, with the first of its subjects and what it costs; then where to read of them."""
    parts: list[RenderableType] = []
    for finding in findings:
        head = Text(f"{finding.severity.value}: ", style="bold")
        head.append(printable(f"{finding.message} [{finding.id}]"), style="not bold")
        parts += [Text(""), head]
        shown = finding.subjects[: options.rows] if options.rows else finding.subjects
        parts += [Text(f"  {printable(subject)}") for subject in shown]
        if len(finding.subjects) > len(shown):
            parts.append(Text(f"  [{format_count(len(finding.subjects) - len(shown))} others]"))
        if finding.nbytes:
            parts.append(Text(f"  costs {format_count(finding.nbytes)} bytes", style="bold"))
    return [*parts, Text(""), Text(_READ_ON)] if parts else []


_READ_ON = "onnxledger explain ID says what each means, costs, and how to mend it"
