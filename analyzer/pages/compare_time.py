"""The pages of `compare` on two timings or two sweeps: the faster one, by how much, and in which groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.documents.compare import Pair
from analyzer.documents.compare_time import (
    ComparedPoint,
    CompareSweepDocument,
    CompareTimeDocument,
    MsPair,
    TimePair,
)
from analyzer.pages.page import (
    Block,
    Cell,
    Chart,
    Column,
    Detail,
    Fact,
    Facts,
    Figure,
    Formatted,
    Kind,
    Notes,
    Page,
    Row,
    Table,
    Tone,
)
from analyzer.pages.shared import report_group_rule, title_groups
from analyzer.text import (
    format_bytes,
    format_change,
    format_count,
    format_many,
    format_signed_ms,
    short_ms,
    short_share,
    shorten,
)

Compared = CompareTimeDocument | CompareSweepDocument
Times = CompareTimeDocument | ComparedPoint


def describe_time_comparison(document: CompareTimeDocument) -> Page:
    """Describe a comparison: the faster one, differing conditions, whole runs, groups; every change is new - old."""
    totals = document.totals
    blocks = (
        *_first(document),
        _whole([("plain", totals.latency_ms), ("profiled", totals.profiled_latency_ms)], "mean run"),
        *_groups(document, document, totals.profiled_latency_ms, "", ""),
    )
    return _page(
        document, f"{_faster(totals.latency_ms)}{_doubt(document.groups)}", totals.latency_ms, blocks
    )


def describe_sweep_comparison(document: CompareSweepDocument) -> Page:
    """Describe a comparison of sweeps at each length that both have; groups at the largest length first."""
    points = document.points
    ordered = sorted(points, key=lambda point: -point.value)
    first = ordered[0]
    axis = shorten(document.axis, _AXIS)
    whole = [(format_count(point.value), point.latency_ms) for point in points]
    blocks = [*_first(document), _whole(whole, f"mean run at {axis}")]
    for point in ordered:
        where = f" at {axis} {format_count(point.value)}"
        blocks += _groups(
            document, point, point.profiled_latency_ms, where, str(point.value), more=point is not first
        )
    where = f" at {axis} {format_count(first.value)}"
    answer = f"{_faster(first.latency_ms, where)}{_doubt(first.groups)}"
    return _page(document, answer, first.latency_ms, tuple(blocks))


_AXIS = 20


def _page(document: Compared, answer: str, latency: MsPair, blocks: tuple[Block, ...]) -> Page:
    totals = document.totals
    figures = (
        Figure("Mean run", f"{format_signed_ms(latency.change)} ms", _arrow(latency)),
        Figure("Parameters", _change(totals.parameters), f"now {format_count(totals.parameters.b)}"),
        Figure("On disk", _change(totals.bytes), f"now {format_bytes(totals.bytes.b)}"),
    )
    return Page(
        kind="compare-time",
        question="Which is faster?",
        subject="",
        answer=answer,
        figures=figures,
        blocks=blocks,
    )


def _change(pair: Pair) -> str:
    return format_change(pair.change / pair.a) if pair.a else f"{pair.change:+,}"


def _arrow(pair: MsPair) -> str:
    return f"{short_ms(pair.a)} -> {short_ms(pair.b)} ms"


def _faster(latency: MsPair, where: str = "") -> str:
    """Return the change of the mean run without the profiler, in words."""
    if not latency.change:
        return f"as fast{where}: {short_ms(latency.b)} ms a run"
    word = "slower" if latency.change > 0 else "faster"
    share = f"{short_share(abs(latency.change) / latency.a)} {word}" if latency.a > 0 else word
    return f"{share}{where}: {_arrow(latency)} a run"


def _doubt(groups: Sequence[TimePair]) -> str:
    """Return how many groups differ clearly, in words: without any, a change of the whole is doubtful."""
    both = [pair for pair in groups if pair.status in ("changed", "unchanged") and (pair.ms.a or pair.ms.b)]
    if not both:
        return ""
    clear = sum(pair.status == "changed" for pair in both)
    if not clear:
        return "; no group differs clearly"
    return f"; {format_count(clear)} of {format_many(len(both), 'group')} clearly differ"


def _first(document: Compared) -> Iterator[Block]:
    """Yield the two sides, and conditions besides the model that may cause a difference."""
    yield Facts((Fact("old", document.a), Fact("new", document.b)), detail=Detail.FIRST)
    yield Notes(
        tuple(f"measured differently: {row.what} {row.a} -> {row.b}" for row in document.measured),
        detail=Detail.FIRST,
        tone=Tone.WARN,
    )
    origins = (document.groups_from.a, document.groups_from.b)
    yield Notes(tuple(report_group_rule(document.match, *origins)), detail=Detail.FIRST)


_PAIR = (
    Column("old ms", Kind.MS, room=8),
    Column("new ms", Kind.MS, room=8),
    Column("change", Kind.SIGNED_MS, room=7),
    Column("change", Kind.RATIO, room=9),
)


def _pair(pair: MsPair, status: str = "") -> tuple[Cell, ...]:
    share = pair.change / pair.a if pair.a > 0 else None
    text = format_change(share)
    if status in ("added", "removed"):
        text = status
    elif status == "unchanged":
        text = f"~ {text}"
    return pair.a, pair.b, pair.change, Formatted(share, text)


def _whole(runs: Sequence[tuple[str, MsPair]], title: str) -> Table:
    rows = tuple(Row((Formatted(None, name), *_pair(pair))) for name, pair in runs)
    return Table((Column(title), *_PAIR), rows, title=title, is_whole=True)


def _groups(
    document: Compared, times: Times, profiled: MsPair, where: str, key: str, *, more: bool = False
) -> Iterator[Block]:
    """Yield the groups side by side, without those that have neither time nor weights, and their picture."""
    rows = [
        _group(pair)
        for pair in times.groups
        if any((pair.ms.a, pair.ms.b, pair.parameters.a, pair.parameters.b, pair.bytes.a, pair.bytes.b))
    ]
    if document.by == "group":
        overlap = MsPair(
            a=-times.overlap_ms.a,
            b=-times.overlap_ms.b,
            difference=-times.overlap_ms.difference,
            change=-times.overlap_ms.change,
            ratio=times.overlap_ms.ratio,
        )
        rows += [_outside("[ungrouped]", times.ungrouped_ms), _outside("[overlap]", overlap)]
    rows += [_outside("[unattributed]", times.unattributed_ms), _outside("[overhead]", times.overhead_ms)]
    title = title_groups(document.by, document.depth)
    columns = (
        Column(title, Kind.NAME),
        *_PAIR,
        Column("± ms", Kind.NOISE, room=3),
        Column("parameters", Kind.COUNT, room=2),
        Column("change", Kind.SIGNED, room=1),
    )
    notes = ["rows sum to the mean profiled run"]
    if any(pair.status == "unchanged" for pair in times.groups):
        notes.append("~ no clear difference: the 95 % confidence intervals overlap")
    parameters = document.totals.parameters
    total = ("profiled run", *_pair(profiled), Formatted(None, ""), parameters.b, parameters.change)
    name = f"groups{key}"
    if not more:
        yield Chart(name, f"What changed{where}", "bars", _BARS, _BARS_SUMMARY)
    yield Table(
        columns,
        tuple(rows),
        title=where.strip() or title,
        total=total,
        notes=tuple(notes),
        detail=Detail.MORE if more else Detail.SHOWN,
        is_long=True,
        order=2,
        others="other group",
        key=name,
    )


_BARS = {
    "name": 0,
    "most": 30,
    "measures": [["change of ms", [["change", 3]]], ["ms", [["old", 1], ["new", 2]]]],
}
_BARS_SUMMARY = (
    "Bars to both sides of nothing: how much slower or faster each group is; the table has the numbers."
)


def _group(pair: TimePair) -> Row:
    weights: tuple[Cell, ...] = (pair.parameters.b, pair.parameters.change)
    error = pair.error_ms.a + pair.error_ms.b
    return Row(
        (
            pair.group or "[root]",
            *_pair(pair.ms, str(pair.status)),
            error,
            *((Formatted(None, ""),) * 2 if pair.across else weights),
        )
    )


def _outside(name: str, pair: MsPair) -> Row:
    return Row((name, *_pair(pair), *(Formatted(None, ""),) * 3), stays=True)
