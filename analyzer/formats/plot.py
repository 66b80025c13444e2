"""Timings or costs -> a picture, PNG or SVG.

A sweep is drawn as times against lengths, one measurement as each group's share of time, parameters and bytes, and a
cost as live bytes along the nodes.

No global state of matplotlib is used or left behind: no display, no style of the user's, no date.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from analyzer.cost.record import CostReport
from analyzer.documents.cost import CostDocument
from analyzer.documents.saved.timing import rebuild_timing
from analyzer.documents.time import SweepDocument, TimeDocument
from analyzer.errors import MissingExtraError, UsageError
from analyzer.formats.json.cost import document_cost
from analyzer.formats.options import RenderOptions
from analyzer.records import Frozen
from analyzer.text import (
    format_bytes,
    format_count,
    format_many,
    format_ms,
    format_others,
    format_percent,
    printable,
    shorten,
)
from analyzer.timing.record import Timing
from analyzer.timing.rows import Growth, TimeRow, fit_growth, grow_latency, lengths, make_rows, total_group

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6000")
"""Colours of Okabe and Ito, which colour-blind people can tell apart; their yellow is too light for lines."""

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", ":")
_MOST = 20
"""Largest number of lines or groups in a picture; the others are summed in one."""

_LONGEST = 44
"""Largest number of characters in a name."""

_PLAIN, _REST = "#000000", "#8C8C8C"
_SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "svg.fonttype": "none",  # keep text as text
    "svg.hashsalt": "onnxledger",
    "text.parse_math": False,  # a $ in a name is a dollar
}


class _Line(Frozen):
    """Times of one group, or of a whole run, at each point."""

    name: str
    ms: tuple[float, ...]
    growth: Growth | None
    color: str
    marker: str
    dashes: str = "-"


Plottable: TypeAlias = "Timing | TimeDocument | SweepDocument | CostReport | CostDocument"
"""Reports and documents that have a picture."""


def render_png(report: Plottable, options: RenderOptions | None = None) -> bytes:
    """Return `render_plot` as PNG.

    Raises:
        MissingExtraError, UsageError: as in `render_plot`.
    """
    return render_plot(report, "png")


def render_svg(report: Plottable, options: RenderOptions | None = None) -> bytes:
    """Return `render_plot` as SVG.

    Raises:
        MissingExtraError, UsageError: as in `render_plot`.
    """
    return render_plot(report, "svg")


def render_plot(report: Plottable, style: str) -> bytes:
    """Draw a timing or a cost, or a document of one, as `png` or `svg`; the same bytes each time.

    Raises:
        MissingExtraError: matplotlib is not installed.
        UsageError: a cost has no memory.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("report", error.name or "matplotlib", "a plot") from error
    stream = io.BytesIO()
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph")  # no font has every script
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        figure = Figure(layout="constrained")
        if isinstance(report, (CostReport, CostDocument)):
            _draw_live(figure, document_cost(report) if isinstance(report, CostReport) else report)
        else:
            timing = report if isinstance(report, Timing) else rebuild_timing(report)
            if timing.axis is None:
                _draw_shares(figure, timing)
            else:
                _draw_sweep(figure, timing)
        figure.savefig(stream, format=style, dpi=150, metadata={"svg": {"Date": None}}.get(style))
    return stream.getvalue()


def _name(row: TimeRow) -> str:
    return _label(row.title if row.is_fused else row.group.name)


def _label(text: str) -> str:
    return printable(shorten(text, _LONGEST))


def _title(figure: Figure, timing: Timing, what: str) -> None:
    environment = timing.environment
    model, device = printable(shorten(timing.path, 70)), printable(shorten(environment.device, 70))
    place = f"{timing.settings.provider} on {device}, {format_many(environment.threads, 'thread')}"
    figure.suptitle(f"{model}\n{what}\n{place}", fontsize=9, x=0.01, ha="left")


def _leaves(timing: Timing) -> tuple[TimeRow, ...]:
    """Return the rows that have no rows below them, and those of fused kernels: together they are all groups."""
    rows = make_rows(timing, 0)[0]
    levels = [row.level for row in rows[1:]] + [0]
    return tuple(row for row, below in zip(rows, levels, strict=True) if below <= row.level)


# a sweep


def _draw_sweep(figure: Figure, timing: Timing) -> None:
    lines = list(_lines(timing))
    figure.set_size_inches(10, max(5.5, 1.5 + 0.24 * len(lines)))
    axes = figure.add_subplot()
    at = lengths(timing)
    is_log = min(at) > 0 and max(at) >= 4 * min(at)
    drawn = [found for line in lines if (found := _draw_line(axes, line, at, is_log=is_log))]
    if is_log:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda ms, _: f"{ms:,g}")
    ticks = _ticks(at, is_log=is_log)
    axes.set_xticks(ticks, list(map(format_count, ticks)))
    axes.minorticks_off()
    axes.set_xlabel(_label(timing.axis or ""))
    axes.set_ylabel("ms in the mean profiled run")
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    _title(figure, timing, "time of each group")
    figure.legend(*zip(*drawn, strict=True), loc="outside right center", fontsize=8, frameon=False)


def _ticks(at: Sequence[int], *, is_log: bool) -> list[int]:
    """Return the lengths whose labels have room."""
    ordered = sorted(set(at))
    places = [math.log(length) if is_log else length for length in ordered]
    room = (places[-1] - places[0]) / _TICKS
    shown: list[int] = []
    last = -math.inf
    for length, place in zip(ordered, places, strict=True):
        if place - last >= room:
            shown.append(length)
            last = place
    return shown


_TICKS = 14
"""Number of labels that an axis has room for."""


def _lines(timing: Timing) -> Iterator[_Line]:
    """Yield the slowest groups at the largest length, the sum of the others, times in no group, and the plain run."""
    at = lengths(timing)
    longest = at.index(max(at))
    ordered = sorted(_leaves(timing), key=lambda row: (-row.ms[longest], row.group.name))
    timed = [row for row in ordered if any(row.ms)]
    shown, left = (timed[: _MOST - 1], timed[_MOST - 1 :]) if len(timed) > _MOST else (timed, [])
    for number, row in enumerate(shown):
        cycle, color = divmod(number, len(_COLORS))
        yield _Line(
            name=_name(row),
            ms=row.ms,
            growth=fit_growth(at, row.ms, row.errors),
            color=_COLORS[color],
            marker=_MARKERS[(number + cycle) % len(_MARKERS)],
            dashes=_DASHES[cycle % len(_DASHES)],
        )
    if left:
        others = [math.fsum(times) for times in zip(*(row.ms for row in left), strict=True)]
        yield _grey(format_others(len(left)), others, at, "*")
    if timing.grouping.by == "group":
        left_out = [point.ungrouped.ms if point.ungrouped else 0.0 for point in timing.points]
        yield _grey(timing.grouping.ungrouped.name, left_out, at, "1")
    yield _grey("[unattributed]", [point.unattributed_ms for point in timing.points], at, "x")
    yield _grey("[overhead]", [point.overhead_ms for point in timing.points], at, "+")
    latency = tuple(point.latency.mean for point in timing.points)
    yield _Line("plain run", latency, grow_latency(timing), _PLAIN, ".", "-.")


def _grey(name: str, ms: Sequence[float], at: Sequence[int], marker: str) -> _Line:
    growth = fit_growth(at, ms) if min(ms) >= 0 else None
    return _Line(name, tuple(ms), growth, _REST, marker, ":")


def _draw_line(axes: Axes, line: _Line, at: Sequence[int], *, is_log: bool) -> tuple[Line2D, str] | None:
    """Draw the points and the fitted curve through them, without values that a logarithm cannot show.

    Returns:
        Handle and label for the legend; None if nothing is drawn.
    """
    points = [(n, ms) for n, ms in sorted(zip(at, line.ms, strict=True)) if ms > 0 or not is_log]
    if not any(ms for _, ms in points):
        return None
    label = line.name if line.growth is None else f"{line.name}: {line.growth.order.value}"
    dots: dict[str, Any] = {"color": line.color, "marker": line.marker, "markersize": 5}
    if line.growth is None:
        (whole,) = axes.plot(*zip(*points, strict=True), linestyle=line.dashes, linewidth=1.2, **dots)
        return whole, label
    low, high = min(at), max(at)
    curve = [low * (high / low) ** (i / 100) if is_log else low + (high - low) * i / 100 for i in range(101)]
    fitted = [(n, line.growth.at(n)) for n in curve]
    shown = [(n, ms) for n, ms in fitted if ms > 0 or not is_log]
    axes.plot(*zip(*shown, strict=True), linestyle=line.dashes, linewidth=1.2, color=line.color)
    axes.plot(*zip(*points, strict=True), linestyle="none", **dots)
    (both,) = axes.plot([], [], linestyle=line.dashes, linewidth=1.2, **dots)
    return both, label


# one measurement


class _Bars(Frozen):
    """Time, parameters and bytes of one group."""

    name: str
    ms: float
    parameters: int = 0
    nbytes: int = 0


def _draw_shares(figure: Figure, timing: Timing) -> None:
    """Draw three bars for each group."""
    point, whole = timing.points[0], total_group(timing)
    bars = list(_bars(timing))
    figure.set_size_inches(9, 2.0 + 0.4 * len(bars))
    axes = figure.add_subplot()
    columns: tuple[tuple[str, Sequence[float], float], ...] = (
        ("time", [bar.ms for bar in bars], point.profiled.mean),
        ("parameters", [bar.parameters for bar in bars], whole.parameters),
        ("bytes", [bar.nbytes for bar in bars], whole.nbytes),
    )
    for number, (label, values, total) in enumerate(columns):
        places = [place + 0.27 * (number - 1) for place in range(len(bars))]
        shares = [value / total if total else 0.0 for value in values]
        drawn = axes.barh(places, [100 * share for share in shares], 0.25, color=_COLORS[number], label=label)
        if not number:
            bar_texts = [
                f"{format_percent(part)}  {format_ms(ms)} ms" for part, ms in zip(shares, values, strict=True)
            ]
            axes.bar_label(drawn, bar_texts, padding=3, fontsize=7)
    axes.set_yticks(range(len(bars)), [bar.name for bar in bars], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.3, y=0.02)
    axes.set_xlabel("% of the mean profiled run, of all parameters, of all bytes of weights")
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    mean, profiled = format_ms(point.latency.mean), format_ms(point.profiled.mean)
    _title(figure, timing, f"{mean} ms a run, {profiled} ms profiled")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def _bars(timing: Timing) -> Iterator[_Bars]:
    """Yield the `_MOST` groups with the most time, the sum of the others, and times in no group."""
    point = timing.points[0]
    rows = [row for row in _leaves(timing) if row.ms[0] or row.group.parameters]
    bars = [_Bars(_name(row), row.ms[0], row.group.parameters, row.group.nbytes) for row in rows]
    kept = set(range(len(bars)))
    if len(bars) > _MOST:
        kept = set(sorted(kept, key=lambda at: (-bars[at].ms, at))[: _MOST - 1])
    yield from (bars[at] for at in sorted(kept))
    left = [bar for at, bar in enumerate(bars) if at not in kept]
    if left:
        parameters, nbytes = sum(bar.parameters for bar in left), sum(bar.nbytes for bar in left)
        yield _Bars(format_others(len(left)), math.fsum(bar.ms for bar in left), parameters, nbytes)
    if point.ungrouped is not None:
        group = point.ungrouped.group
        yield _Bars(group.name, point.ungrouped.ms, group.parameters, group.nbytes)
    yield _Bars("[unattributed]", point.unattributed_ms)
    yield _Bars("[overhead]", point.overhead_ms)


# a cost


def _draw_live(figure: Figure, document: CostDocument) -> None:
    """Draw live bytes along the nodes: an area in each subgraph's colour, and the peak."""
    steps, peak = document.live, document.peak
    if not steps or peak is None or peak.position is None:
        raise UsageError("a picture of a cost shows live bytes, and these are not known; add --memory")
    figure.set_size_inches(10, 4.5)
    axes = figure.add_subplot()
    groups = list(dict.fromkeys(step.group or "[root]" for step in steps))
    colors = {name: _COLORS[at % len(_COLORS)] for at, name in enumerate(groups[:_MOST])}
    places = range(len(steps) + 1)
    for name in groups:
        heights = [step.bytes if (step.group or "[root]") == name else 0 for step in steps]
        axes.stairs(heights, places, fill=True, color=colors.get(name, _REST), label=_label(name))
    top = steps[peak.position]
    axes.plot(peak.position + 0.5, top.bytes, marker="v", color=_PLAIN, markersize=6, clip_on=False)
    axes.margins(x=0.005)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("nodes in the order of the run")
    axes.set_ylabel("bytes")
    step = 1 << max(top.bytes // 4, 1).bit_length() - 1  # a round number of KiB, or of MiB
    axes.set_yticks(range(0, top.bytes + 1, step))
    axes.yaxis.set_major_formatter(lambda size, _: format_bytes(int(size)))
    axes.tick_params(labelsize=8)
    model = _label(document.model.path)
    sizes = ", ".join(f"{axis}={size}" for axis, size in document.memory_at.items())
    what = f"{format_bytes(top.bytes)} live at the peak, after {_label(f'{top.op_type} {top.node}')}"
    figure.suptitle(f"{model}\n{what}\n{_label(sizes)}", fontsize=9, x=0.01, ha="left")
    handles, labels = axes.get_legend_handles_labels()
    shown = min(len(handles), _MOST)
    figure.legend(
        handles[:shown], labels[:shown], loc="outside lower center", ncols=4, fontsize=7, frameon=False
    )
