"""TimingComparison -> blocks: whole runs and groups of two timings side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.comparison import Pair, Status
from analyzer.render.markdown.parts import columns, cut, name, others, show_sides, text_row
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Block, Heading, Items, Line, Table
from analyzer.render.sentences.compare_time import is_something, list_others
from analyzer.render.sentences.groups import tell_rule
from analyzer.timing.side_by_side import PointComparison, TimePair, TimingComparison
from analyzer.units import format_count, format_ms, format_percent, format_signed_ms, shorten

__all__ = ["show_timing_comparison"]


def show_timing_comparison(report: TimingComparison, options: RenderOptions) -> Iterator[Block]:
    """From top to bottom; the first line answers."""
    last = report.points[-1]
    where = (
        "" if report.axis is None else f" at {shorten(report.axis, _AXIS)} {format_count(last.value or 0)}"
    )
    yield Heading(
        (f"{format_ms(last.latency.a)} ms against {format_ms(last.latency.b)} ms{where}, {_ratio(last)}",)
    )
    yield from show_sides(report.a, report.b)
    shown, left = cut(report.measured, options.rows)
    unlike = [(f"not measured alike: {row.what} is {row.a} in a, {row.b} in b",) for row in shown]
    if unlike:
        yield Items((*unlike, *([(others(left),)] if left else [])))
    for rule in tell_rule(report.match, *report.origins):
        yield Line((rule,))
    points, left_points = cut(report.points, options.rows)
    for point in points:
        yield _table(report, point, options.rows)
    if left_points:
        yield Line((others(left_points),))
    told = "ms are kernel times of the mean profiled run, which all lines sum to; plain runs are without profiling."
    yield Line((told,))
    if any(pair.status is Status.UNCHANGED for point in report.points for pair in point.groups):
        yield Line(("~ no clear difference: the 95 % confidence intervals meet.",))


_AXIS = 20


def _ratio(point: PointComparison) -> str:
    return f"a / b {format_percent(point.latency.ratio)}"


def _table(report: TimingComparison, point: PointComparison, limit: int) -> Table:
    """Those that take longest on either side come first, where not all are shown."""
    title = "ms" if report.axis is None else f"ms at {shorten(report.axis, _AXIS)} {point.value}"
    shown, left = _cut_groups([pair for pair in point.groups if is_something(pair)], limit)
    rows = []
    for pair in shown:
        mark = "~ " if pair.status is Status.UNCHANGED else ""
        held = ("", "") if pair.across else _counts(pair.parameters)
        rows.append(text_row(name(pair.name), *_times(pair.ms, mark), *held))
    if left:
        times = Pair(sum(pair.ms.a for pair in left), sum(pair.ms.b for pair in left))
        rows.append(text_row(others(left), *_times(times), "", ""))
    rows += [text_row(called, *_times(times), "", "") for called, times in list_others(report, point)]
    held = _counts(report.parameters)
    rows.append(text_row("profiled run", *_times(point.profiled), *held, is_total=True))
    rows.append(text_row("plain run", *_times(point.latency), "", "", is_total=True))
    return Table(columns(title, "a", "b", "a - b", "a / b", "parameters a", "b"), tuple(rows))


def _cut_groups(pairs: Sequence[TimePair], limit: int) -> tuple[Sequence[TimePair], Sequence[TimePair]]:
    """The slowest in their own order, and the others."""
    if not limit or len(pairs) <= limit:
        return pairs, ()
    order = sorted(range(len(pairs)), key=lambda at: -max(pairs[at].ms.a, pairs[at].ms.b))
    kept = sorted(order[:limit])
    return [pairs[at] for at in kept], [pairs[at] for at in order[limit:]]


def _times(times: Pair[float], mark: str = "") -> tuple[str, str, str, str]:
    difference = format_signed_ms(times.difference)
    return format_ms(times.a), format_ms(times.b), difference, mark + format_percent(times.ratio)


def _counts(pair: Pair[int]) -> tuple[str, str]:
    return format_count(pair.a), format_count(pair.b)
