"""The verdicts of a budget -> the parts of their text: a line for each rule, and below what failed by what it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analyzer.budget.record import (
    Among,
    AtLeast,
    AtMost,
    BudgetReport,
    Contributor,
    Skipped,
    Status,
    Unit,
    Verdict,
)
from analyzer.render.options import RenderOptions
from analyzer.render.sentences.budget import (
    count_unit,
    sum_others,
    tell_exceeded,
    tell_observed,
    tell_unmatched,
)
from analyzer.render.text.tables import make_table, show_name
from analyzer.units import (
    format_bytes,
    format_count,
    format_many,
    format_signed,
    printable,
)

__all__ = ["show_budget"]

_INDENT = 6
"""Of what stands below a line: as wide as its status."""

_STYLES = {Status.PASS: "green", Status.FAIL: "bold red", Status.SKIP: "yellow"}


@dataclass(frozen=True, slots=True)
class _Widths:
    """Of the columns of numbers, so that the lines of all models are aligned."""

    observed: int
    limit: int
    exceeded: int


def show_budget(report: BudgetReport, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text, from top to bottom; `-n` bounds what stands below a line that failed."""
    widths = _measure(report.verdicts)
    parts: list[RenderableType] = []
    for path in report.models:
        verdicts = [verdict for verdict in report.verdicts if verdict.model == path]
        parts.append(show_name(path, "bold"))
        if path in report.unreadable:
            parts.append(Text(printable(report.unreadable[path]), style="bold red"))
        if verdicts:
            parts += _lines(verdicts, widths, options, has_head=path not in report.unreadable)
        elif path not in report.unreadable:
            parts.append(Text("no rule is about it"))
        parts.append(Text(""))
    unasked = [verdict for verdict in report.verdicts if verdict.model is None]
    if unasked:
        heading = Text("asked of no model", style="bold")
        parts += [heading, *_lines(unasked, widths, options, has_head=False), Text("")]
    unmatched = [Text(told, style="bold yellow") for told in tell_unmatched(report)]
    return [*parts, *unmatched, _conclude(report)]


def _lines(
    verdicts: Sequence[Verdict], widths: _Widths, options: RenderOptions, *, has_head: bool = True
) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for verdict in verdicts:
        parts.append(_line(verdict, widths, has_head=has_head and not parts))
        parts += [Padding(part, (0, 0, 0, _INDENT)) for part in _below(verdict, options)]
        parts += [Text("")] if verdict.contributors and verdict is not verdicts[-1] else []
    return parts


def _line(verdict: Verdict, widths: _Widths, *, has_head: bool) -> Table:
    table = Table(
        box=None, pad_edge=False, show_header=has_head, header_style="not bold", padding=(0, 2, 0, 0)
    )
    table.add_column("", width=len(Status.PASS))
    table.add_column("rule", overflow="fold", ratio=1)
    for title, width in (
        ("observed", widths.observed),
        ("limit", widths.limit),
        ("exceeded by", widths.exceeded),
    ):
        table.add_column(title, justify="right", no_wrap=True, width=width)
    table.expand = True
    table.add_row(
        Text(verdict.status, style=_STYLES[verdict.status]),
        show_name(verdict.rule.name),
        *_cells(verdict),
    )
    return table


def _cells(verdict: Verdict) -> tuple[str, str, str]:
    return tell_observed(verdict, _number), _limit(verdict), tell_exceeded(verdict, _number)


def _limit(verdict: Verdict) -> str:
    limit = verdict.limit
    if isinstance(limit, tuple) or isinstance(verdict.rule.limit, Among):
        return f"{format_count(len(limit))} allowed" if isinstance(limit, tuple) else ""
    sign = ">=" if isinstance(verdict.rule.limit, AtLeast) else "<="
    return "" if limit is None else f"{sign} {_number(limit, verdict.unit)}"


def _number(number: int, unit: Unit) -> str:
    """Exact; of bytes the short form below it."""
    is_long = unit is Unit.BYTES and abs(number) >= 1024
    return f"{format_count(number)}\n{format_bytes(number)}" if is_long else format_count(number)


def _measure(verdicts: Sequence[Verdict]) -> _Widths:
    titles = ("observed", "limit", "exceeded by")
    rows = [titles, *map(_cells, verdicts)]
    observed, limit, exceeded = (
        max(len(line) for cell in column for line in cell.split("\n")) for column in zip(*rows, strict=True)
    )
    return _Widths(observed, limit, exceeded)


# what stands below a line


def _below(verdict: Verdict, options: RenderOptions) -> list[RenderableType]:
    """Why, the largest parts, and what the project says."""
    parts: list[RenderableType] = []
    if verdict.skipped is Skipped.NOT_EVALUATED:
        parts.append(Text(printable(f"not evaluated: {verdict.message}")))
    elif verdict.status is not Status.PASS and _says_more(verdict):
        parts.append(Text(printable(verdict.message)))
    if verdict.status is Status.FAIL and verdict.rule.message:
        parts.append(Text(printable(verdict.rule.message), style="bold"))
    if verdict.contributors:
        parts.append(_contributors(verdict, options))
    if options.verbose and verdict.rule.origin:
        parts.append(Text(printable(f"{verdict.rule.metric}, from {verdict.rule.origin}"), style="dim"))
    return parts


def _says_more(verdict: Verdict) -> bool:
    """Whether the sentence says what the line does not."""
    is_plain = isinstance(verdict.rule.limit, AtMost | AtLeast) and verdict.rule.group is None
    return verdict.observed is None or not is_plain or verdict.rule.origin == "--strict"


def _contributors(verdict: Verdict, options: RenderOptions) -> Table:
    contributors = verdict.contributors
    has_baseline = any(each.baseline is not None for each in contributors)
    unit = count_unit(verdict.unit)
    columns = ["largest changes", unit, "baseline", "change"] if has_baseline else ["largest", unit]
    table = make_table(*columns)
    shown = contributors[: options.rows] if options.rows else contributors
    for each in shown:
        table.add_row(show_name(each.name), *_values(each, has_baseline))
    if left := contributors[len(shown) :]:
        title, rest = sum_others(left, verdict.rule.metric)
        table.add_row(title, *([] if rest is None else _values(rest, has_baseline)))
    return table


def _values(each: Contributor, has_baseline: bool) -> list[str]:
    if not has_baseline:
        return [format_count(each.value)]
    if each.baseline is None:
        return [format_count(each.value), "-", format_signed(each.value)]
    return [format_count(each.value), format_count(each.baseline), format_signed(each.value - each.baseline)]


# the last line


def _conclude(report: BudgetReport) -> Text:
    """PASS, FAIL, or that there is no answer, and why, in one line."""
    counts = {status: sum(each.status is status for each in report.verdicts) for status in Status}
    unread, unknown = len(report.unreadable), len(report.unevaluated)
    said = [f"{format_count(counts[Status.FAIL])} failed"] if counts[Status.FAIL] else []
    said.append(f"{format_count(counts[Status.PASS])} passed")
    said += [f"{format_count(unknown)} not evaluated"] if unknown else []
    skipped = counts[Status.SKIP] - unknown
    said += [f"{format_count(skipped)} skipped"] if skipped else []
    said += [f"{format_many(unread, 'model')} cannot be read"] if unread else []
    if report.failed:
        return Text(f"FAIL: {', '.join(said)}", style="bold red")
    if report.passed:
        return Text(f"PASS: {', '.join(said)}", style="bold green")
    return Text(f"NO ANSWER, which is no PASS: {', '.join(said)}", style="bold yellow")
