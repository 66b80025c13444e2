"""Two timings side by side -> text."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.comparison import Pair, Status
from analyzer.render.options import RenderOptions
from analyzer.render.sentences.compare_time import is_something, list_others
from analyzer.render.sentences.groups import tell_rule
from analyzer.render.text.tables import make_table, show_name
from analyzer.timing.side_by_side import PointComparison, TimingComparison
from analyzer.units import format_ms, format_percent, format_signed_ms, printable, short_count, shorten

__all__ = ["show_timing_comparison"]


def show_timing_comparison(report: TimingComparison, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text of `compare` of two timings, from top to bottom."""
    parts: list[RenderableType] = [show_name(f"a = {report.a}"), show_name(f"b = {report.b}")]
    parts += [
        Text(printable(f"not measured alike: {row.what} is {row.a} in a, {row.b} in b"))
        for row in report.measured
    ]
    parts += map(Text, tell_rule(report.match, *report.origins))
    for point in report.points:
        parts += [Text(""), _table(report, point, is_wide=options.width >= _WIDE)]
    told = "ms are kernel times of the mean profiled run, which all lines sum to"
    parts += [Text(""), Text(f"{told}; plain runs are without profiling")]
    if any(pair.status is Status.UNCHANGED for point in report.points for pair in point.groups):
        parts.append(Text("~ no clear difference: the 95 % confidence intervals meet"))
    return parts


_WIDE = 100


def _table(report: TimingComparison, point: PointComparison, *, is_wide: bool) -> Table:
    title = "ms" if report.axis is None else f"ms at {printable(shorten(report.axis, 20))} {point.value}"
    columns = ["a", "b", *(["a - b"] if is_wide else []), "a / b", "parameters a", "b"]
    table = make_table(title, *columns)
    for pair in point.groups:
        if is_something(pair):
            mark = "~ " if pair.status is Status.UNCHANGED else ""
            held = ("", "") if pair.across else _counts(pair.parameters)
            table.add_row(show_name(pair.name), *_times(pair.ms, is_wide, mark), *held)
    for name, times in list_others(report, point):
        table.add_row(show_name(name), *_times(times, is_wide), "", "")
    table.add_section()
    table.add_row("profiled run", *_times(point.profiled, is_wide), *_counts(report.parameters), style="bold")
    table.add_row("plain run", *_times(point.latency, is_wide), "", "", style="bold")
    return table


def _times(times: Pair[float], is_wide: bool, mark: str = "") -> list[str]:
    difference = [format_signed_ms(times.difference)] if is_wide else []
    return [format_ms(times.a), format_ms(times.b), *difference, mark + format_percent(times.ratio)]


def _counts(pair: Pair[int]) -> tuple[str, str]:
    return short_count(pair.a), short_count(pair.b)
