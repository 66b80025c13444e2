"""Two models side by side -> text: totals and groups, then the tensors that differ, the largest change first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.comparison import (
    Comparison,
    GroupPair,
    Pair,
    Status,
    TensorPair,
)
from analyzer.model import label
from analyzer.render.options import RenderOptions
from analyzer.render.sentences.compare import list_notes, tell_changes
from analyzer.render.sentences.groups import tell_rule
from analyzer.render.text.tables import make_table, show_name
from analyzer.units import (
    format_count,
    format_others,
    format_ratio,
    format_signed,
)

__all__ = ["show_comparison"]


def show_comparison(report: Comparison, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text of `compare`, from top to bottom."""
    parts: list[RenderableType] = [show_name(f"a = {report.a}"), show_name(f"b = {report.b}")]
    parts += [*map(Text, tell_rule(report.match, *report.origins)), Text(""), _parameters(report, options)]
    if any(map(_is_recoded, report.groups)):
        parts += [Text(""), _bytes(report, options)]
    differing = [pair for pair in report.tensors if pair.status is not Status.UNCHANGED]
    if differing:
        parts += [Text(""), _tensors(differing, options)]
    return [*parts, Text(""), *map(Text, tell_changes(report))]


# groups


def _parameters(report: Comparison, options: RenderOptions) -> Table:
    """Parameters by group, and every total."""
    table = _groups("parameters", report, attrgetter("parameters"), options)
    table.add_section()
    totals = (
        ("total parameters", report.parameters),
        ("stored elements", report.stored_elements),
        ("stored bytes", report.stored_nbytes),
        ("total bytes", report.file_nbytes),
        ("tensors", report.tensor_count),
        ("nodes", report.nodes),
    )
    for name, pair in totals:
        if pair is not None:
            table.add_row(name, *_columns(pair), style="bold")
    return table


def _bytes(report: Comparison, options: RenderOptions) -> Table:
    """Bytes by group, where parameters alone do not tell which of them changed."""
    return _groups("bytes", report, attrgetter("nbytes"), options)


def _is_recoded(pair: GroupPair) -> bool:
    """Whether the same parameters take another number of bytes."""
    return pair.parameters.a == pair.parameters.b > 0 and pair.nbytes.difference != 0


def _groups(
    title: str, report: Comparison, count: Callable[[GroupPair], Pair[int]], options: RenderOptions
) -> Table:
    table = make_table(title, "a", "b", "a - b", "a / b")
    known = [pair for pair in report.groups if any(map(_is_something, (pair.parameters, pair.nbytes)))]
    shown = known[: options.rows] if options.rows else known
    left = list(map(count, known[len(shown) :]))
    for pair in shown:
        table.add_row(show_name(pair.name), *_columns(count(pair)))
    if left:
        others = Pair(sum(pair.a for pair in left), sum(pair.b for pair in left))
        table.add_row(format_others(len(left)), *_columns(others))
    for pair in (report.ungrouped, report.overlap):
        if _is_something(count(pair)):
            table.add_row(show_name(pair.name), *_columns(count(pair)))
    return table


def _is_something(pair: Pair[int]) -> bool:
    return pair.a != 0 or pair.b != 0


def _columns(pair: Pair[int]) -> tuple[str, ...]:
    return (
        format_count(pair.a),
        format_count(pair.b),
        format_signed(pair.difference),
        format_ratio(pair.ratio),
    )


# tensors


def _tensors(differing: Sequence[TensorPair], options: RenderOptions) -> Table:
    table = make_table("tensors that differ", "", "bytes a - b")
    shown = differing[: options.rows] if options.rows else differing
    for pair in shown:
        table.add_row(_describe(pair), pair.status.value, format_signed(pair.nbytes.difference))
    left = differing[len(shown) :]
    if left:
        others = sum(pair.nbytes.difference for pair in left)
        table.add_row(format_others(len(left)), "", format_signed(others))
    return table


def _describe(pair: TensorPair) -> Text:
    """What a person calls it: its PyTorch name, else its own; then what differs."""
    entry = pair.entry
    text = show_name(", ".join(entry.sources) or label(entry.tensor.key))
    notes = list(list_notes(pair))
    if notes:
        text.append(f" ({', '.join(notes)})")
    return text


# sentences
