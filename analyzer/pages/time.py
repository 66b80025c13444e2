"""The pages of `time`: time of a run, at one length or at several, and the time of each group in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.documents.saved.timing import rebuild_timing
from analyzer.documents.time import Elsewhere, InputFeed, Latency, Point, SweepDocument, TimeDocument
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
from analyzer.pages.shared import (
    abbreviate_count,
    format_exact_bytes,
    format_shares,
    natural_list,
    report_group_rule,
    title_groups,
)
from analyzer.text import (
    format_bytes,
    format_count,
    format_fine_ms,
    format_frequency,
    format_many,
    format_ms,
    format_others,
    format_percent,
    format_shape,
    printable,
    short_ms,
    short_share,
    shorten,
)
from analyzer.timing.record import Timing
from analyzer.timing.request import Fill
from analyzer.timing.rows import (
    FEWEST,
    Growth,
    Order,
    TimeRow,
    explains,
    grow_latency,
    grow_row,
    lengths,
    make_rows,
    total_group,
)
from analyzer.timing.running.measure import judge_profiled

EACH = "each"
"""Key by which charts refer to the table of single groups."""

Timed = TimeDocument | SweepDocument
Measured = TimeDocument | Point


def describe_timing(document: TimeDocument) -> Page:
    """Describe a timing: median, its precision, doubts, groups; with `-v` also kernels, inputs, settings."""
    timing = rebuild_timing(document)
    rows = _rows(timing)
    return Page(
        kind="time",
        question="How long it takes",
        subject=document.model.path,
        about=f"{document.provider} on {document.device}",
        answer=_answer(document, rows),
        figures=tuple(_figures(document)),
        blocks=tuple(_blocks(document, timing, rows)),
    )


def _rows(timing: Timing) -> tuple[TimeRow, ...]:
    """Return the rows of all groups that take time, or hold parameters or bytes."""
    whole = total_group(timing)
    return tuple(
        row
        for row in make_rows(timing, 0)[0]
        if any(row.ms) or row.group.parameters or row.group.nbytes >= _NOTHING * whole.nbytes
    )


_NOTHING = 5e-5
"""The least share that is not printed as 0."""


def _answer(document: TimeDocument, rows: Sequence[TimeRow]) -> str:
    answer = f"{short_ms(document.latency_ms.median)} ms median{_sizes(document)} on {name_provider(document.provider)}"
    outer = [row for row in rows if not row.level and row.ms[0] > 0]
    whole = _whole(document)
    if not outer or not whole:
        return answer
    first = max(outer, key=lambda row: row.ms[0])
    share = short_share(first.ms[0] * _scale_of(document) / whole)
    return f"{answer}; {share} in {shorten(first.group.name or '[root]', _NAME)}"


def _whole(document: TimeDocument) -> float:
    """Return the mean ms that shares refer to.

    It is the mean of the profiled run, or of the plain run if the device's own clock timed the kernels, because
    profiling does not slow those.
    """
    return (document.latency_ms if _is_device(document) else document.profiled_latency_ms).mean


def _scale_of(document: TimeDocument) -> float:
    return document.scale if _is_device(document) else 1.0


def _is_device(document: Timed) -> bool:
    """Whether the device's own clock timed the kernels."""
    return document.environment.kernel_clock == "device"


_NAME = 40


def _sizes(measured: Measured) -> str:
    """Return the sizes of the axes that the file leaves open, by their roles."""
    sizes = dict.fromkeys((axis.role, axis.size) for axis in measured.axes if axis.decided_by != "file")
    sizes_by_role = [f"{role.replace('_', ' ')} {format_count(size)}" for role, size in sizes]
    return f" at {natural_list(sizes_by_role)}" if sizes_by_role else ""


def name_provider(name: str) -> str:
    """Return the name of a provider as people write it: `CPU`, `CUDA`, `openvino`."""
    return name.upper() if len(name) <= _INITIALS else name


_INITIALS = 4


def _figures(document: TimeDocument) -> Iterator[Figure]:
    latency = document.latency_ms
    yield Figure(
        "Median", f"{short_ms(latency.median)} ms", _format_precision(document, latency), _precision(document)
    )
    yield Figure("Mean", f"{short_ms(latency.mean)} ms")
    shown = (("90 % within", latency.p90), ("99 % within", latency.p99), ("Fastest", latency.min))
    for label, ms in shown:
        yield Figure(label, f"{short_ms(ms)} ms")
    quantiles = ", ".join(
        f"{name} {short_ms(ms)}"
        for name, ms in zip(("p90", "p99", "min"), (latency.p90, latency.p99, latency.min), strict=True)
    )
    yield Figure(
        "Runs",
        format_count(latency.runs),
        "without the profiler",
        f"{format_many(latency.runs, 'run')}: mean {short_ms(latency.mean)}, {quantiles} ms",
    )


def _precision(document: TimeDocument) -> str:
    precision = _format_precision(document, document.latency_ms)
    return f"median {precision}" if precision.startswith("±") else f"median of {precision}"


def _format_precision(document: Timed, latency: Latency) -> str:
    """Return the precision of a median, and whether it reached the target."""
    settings = document.settings
    if latency.precision is None or latency.precision > 1:
        return f"{format_many(latency.runs, 'run')}, uncertainty {_margin(latency)}"
    if settings.runs is not None:
        return f"{_margin(latency)} of {format_many(settings.runs, 'run')}, as asked for"
    reached = "reached" if latency.settled else "NOT reached"
    return f"{_margin(latency)} (target {format_percent(settings.precision)}, {reached})"


def _margin(latency: Latency) -> str:
    """Return the precision of a median as a sentence has it.

    >>> from types import SimpleNamespace
    >>> [_margin(SimpleNamespace(precision=each)) for each in (0.0123, 11.9, None)]
    ['±1.23 %', 'over 100 %', 'not known']
    """
    if latency.precision is None:
        return "not known"
    return "over 100 %" if latency.precision > 1 else f"±{format_percent(latency.precision)}"


def _blocks(document: TimeDocument, timing: Timing, rows: Sequence[TimeRow]) -> Iterator[Block]:
    yield Notes(tuple(list_doubts(document, timing)), detail=Detail.FIRST, tone=Tone.WARN)
    yield Notes((*_profiling(document), *_axes(document)), detail=Detail.FIRST)
    groups = _groups(document, timing, rows)
    each = _each(document)
    yield Chart(EACH, "Milliseconds of each group", "bars", _BARS, _BARS_SUMMARY)
    yield groups
    yield Notes(
        (*report_group_rule(document.match, document.groups_from), *_memory(document, document, timing))
    )
    yield each
    yield _kernels(document)
    yield _runs(document)
    yield from _measured(document, document)


_BARS = {"name": 0, "most": 30, "measures": [["ms", [["ms", 1]]]]}
_BARS_SUMMARY = "Bars of the milliseconds of each group; the table of groups has the numbers."


def list_doubts(document: TimeDocument, timing: Timing | None = None) -> Iterator[str]:
    """List doubts about a measurement: imprecise medians, other load, fallback providers, onnxruntime's messages."""
    yield from _doubts(document, timing or rebuild_timing(document))
    yield from _elsewhere(document, document)
    yield from document.environment.messages


def _doubts(document: TimeDocument, timing: Timing) -> Iterator[str]:
    """List reasons why the times are less precise than the settings asked for."""
    latency = document.latency_ms
    if not latency.settled and document.settings.runs is None:
        yield f"the median is less precise than requested: {_unsettled(document)}"
    if document.settings.runs is not None and latency.precision is not None and latency.precision > _FAR:
        runs = format_many(document.settings.runs, "run")
        error = _margin(latency).removeprefix("±")
        yield f"the median of {runs} may be off by {error}: leave --runs out, or wait until nothing else is running"
    if latency.mean > _DISTURBED * latency.median > 0:
        yield (
            f"the mean run took {latency.mean / latency.median:.1f} times as long as the median: something else was "
            "running at the time; shares and scaled ms use means"
        )
    match judge_profiled(timing.points[0].latency, timing.points[0].profiled):
        case "slower" if not _is_device(document):
            yield f"profiled runs {_slower(document)}"
        case "faster":
            yield f"profiled runs {_FASTER}"


_DISTURBED = 2
"""Multiple of the median above which the mean is a warning: a few disturbed runs change only the mean."""

_FAR = 0.25
"""Relative error of a median above which it is a warning, if the user set the number of runs."""


def _slower(document: Timed) -> str:
    statement = "take over twice as long:"
    if document.provider in _CUPTI_PROVIDERS:
        return (
            f"{statement} the host waits for each kernel, so its time includes the launch; cupti-python "
            "(Linux, the extra time-gpu) reads the GPU's own clock"
        )
    return f"{statement} kernels are very short, or something else was running at the time"


_CUPTI_PROVIDERS = frozenset({"cuda", "tensorrt"})
"""Providers whose kernels CUPTI can time."""

_FASTER = "were faster than plain ones: something else was running at the time, and the times are unreliable"


def _unsettled(document: Timed) -> str:
    settings = document.settings
    return (
        f"±{format_percent(settings.precision)} was not reached within {settings.seconds:g} s "
        f"or {format_many(settings.most, 'run')}"
    )


def _elsewhere(document: Timed, *measured: Measured) -> Iterator[str]:
    """Tell which kernels ran on another provider or copied between devices, at lengths where these are the same."""
    yield from _report_kernels(
        [each.fallback for each in measured], f"ran on another provider than {document.provider}"
    )
    yield from _report_kernels([each.copies for each in measured], "copied values between devices")


def _report_kernels(measured: Sequence[Sequence[Elsewhere]], what: str) -> Iterator[str]:
    if not measured[0]:
        return
    count = sum(row.kernels for row in measured[0])
    ms = _range_of([sum(row.ms for row in found) for found in measured])
    listed = []
    for row in measured[0][:_FEW]:
        same = [other.ms for found in measured for other in found if _is_alike(other, row)]
        listed.append(f"{format_count(row.kernels)} {row.op_type} ({row.provider}, {_range_of(same)} ms)")
    more = f", {format_others(len(measured[0]) - _FEW)}" if len(measured[0]) > _FEW else ""
    yield f"{format_many(count, 'kernel')} {what}, {ms} ms: {', '.join(listed)}{more}"


def _is_alike(one: Elsewhere, other: Elsewhere) -> bool:
    return (one.op_type, one.provider) == (other.op_type, other.provider)


def _range_of(ms: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(map(format_ms, (min(ms), max(ms)))))


def _elsewhere_at(document: SweepDocument) -> Iterator[str]:
    """Tell the fallback kernels and copies of a sweep, once for all lengths with the same operators and counts."""
    alike: dict[frozenset[tuple[str, str, int]], list[Point]] = {}
    for point in document.points:
        rows = (*point.fallback, *point.copies)
        alike.setdefault(frozenset((row.op_type, row.provider, row.kernels) for row in rows), []).append(
            point
        )
    for points in alike.values():
        if len(alike) == 1:
            at = "at every length: "
        else:
            at = f"at {_axis(document)} = {', '.join(format_count(point.value) for point in points)}: "
        for line in _elsewhere(document, *points):
            yield f"{at}{line}"


_FEW = 5
"""Number of operators that are listed."""


def _profiling(document: TimeDocument) -> Iterator[str]:
    added, plain = document.profiling_ms, document.latency_ms.mean
    share = short_share(abs(added) / plain if plain else None)
    more = "more" if added >= 0 else "less"
    profiled = document.profiled_latency_ms
    precision = "" if profiled.precision is None else f"; median {_margin(profiled)}"
    yield f"profiled runs, used by the table, take {short_ms(abs(added))} ms {more}, {share}{precision}"
    if isinstance(document.device_ms, float):
        busy = document.device_ms * document.scale
        yield (
            f"the GPU is busy for {short_ms(busy)} ms of a run, {short_share(busy / plain if plain else None)}, by "
            "its own clock; in [overhead] it waits for the host"
        )


def _axes(measured: Measured) -> Iterator[str]:
    """Tell the sizes that the file leaves open, and the source of each."""
    alike: dict[tuple[int, str], dict[str, None]] = {}
    for axis in measured.axes:
        if axis.decided_by != "file":
            name = axis.role if axis.name is None else axis.name
            alike.setdefault((axis.size, axis.decided_by), {})[name] = None
    parts = [f"{', '.join(names)} = {size:,} ({reason})" for (size, reason), names in alike.items()]
    if parts:
        yield f"axes: {'; '.join(parts)}"


# groups


def _groups(document: TimeDocument, timing: Timing, rows: Sequence[TimeRow]) -> Table:
    """Return the table of groups with time, parameters and bytes; rows of level 0 sum to the profiled run."""
    profiled, plain, total = document.profiled_latency_ms.mean, document.latency_ms.mean, total_group(timing)
    kernels = profiled - document.overhead_ms
    kind, noise = _kinds(document)
    format_time = format_ms if kind is Kind.MS else format_fine_ms
    is_device, whole = _is_device(document), _whole(document)

    def row(
        name: str, ms: float, *details: Cell, level: int = 0, stays: bool = False, rest: bool = False
    ) -> Row:
        scaled = plain - kernels * document.scale if rest else ms * document.scale
        share = (scaled if is_device else ms) / whole if whole else None
        cells = (name, ms, share, scaled, *(details or (Formatted(None, ""),) * 5))
        return Row(cells, level, stays=stays)

    def detail_cells(
        parameters: int, nbytes: int, error: float | None, kernels: int | None
    ) -> tuple[Cell, ...]:
        return (
            parameters / total.parameters if total.parameters else None,
            nbytes / total.nbytes if total.nbytes else None,
            Formatted(None, "") if error is None else error,
            parameters,
            Formatted(None, "") if kernels is None else kernels,
        )

    table_rows = []
    for each in rows:
        group, error = each.group, each.errors[0]
        counts = detail_cells(group.parameters, group.nbytes, error, each.kernels)
        if each.is_fused:
            counts = (*(Formatted(None, ""),) * 2, error, Formatted(None, ""), each.kernels)
        name = each.title if each.is_fused else group.name
        table_rows.append(row(name or "[root]", each.ms[0], *counts, level=each.level))
    if document.by == "group":
        balance = document.group_balance
        for part, sign in ((balance.ungrouped, 1), (balance.overlap, -1)):
            counts = detail_cells(sign * part.parameters, sign * part.bytes, None, None)
            table_rows.append(row(part.group, sign * part.ms, *counts, stays=True))
    table_rows += [row(name, ms, stays=True, rest=name == _OVERHEAD) for name, ms in outside(document)]
    title = title_groups(document.by, document.depth)
    columns = (
        Column(title, Kind.NAME),
        Column("ms", kind, room=9),
        Column("share", Kind.SHARE, room=8, is_bar=True),
        Column("scaled ms", kind, room=3),
        Column("parameters", Kind.SHARE, room=6),
        Column("bytes", Kind.SHARE, room=5),
        Column("± ms", noise, room=2),
        Column("elements", Kind.COUNT, room=1),
        Column("kernels", Kind.COUNT, room=0),
    )
    sums = detail_cells(total.parameters, total.nbytes, None, sum(part.kernels for part in document.groups))
    notes = (
        *_spread(rows),
        f"ms sum to the mean profiled run, {format_time(profiled)}; scaled ms to the plain one, "
        f"{format_time(plain)}"
        f"{', of which the shares are' if is_device else ''}",
    )
    return Table(
        columns,
        tuple(table_rows),
        title=title,
        total=("total", profiled, 1.0 if whole else None, plain, *sums),
        notes=notes,
        is_whole=document.by == "group",
        order=1,
        others="other group",
    )


def _kinds(measured: Measured) -> tuple[Kind, Kind]:
    """Return the kinds of the columns of times and of their errors: with figures enough also for a short run.

    A sweep has a column for each length, and no room for more decimals until it needs them.
    """
    if measured.latency_ms.median < (_SHORT if isinstance(measured, TimeDocument) else _VERY_SHORT):
        return Kind.FINE_MS, Kind.FINE_NOISE
    return Kind.MS, Kind.NOISE


_SHORT, _VERY_SHORT = 1.0, 0.1
"""Medians in ms below which columns have more decimals."""


def outside(measured: Measured) -> tuple[tuple[str, float], ...]:
    """Return the times that belong to no group."""
    return (("[unattributed]", measured.unattributed_ms), (_OVERHEAD, measured.overhead_ms))


_OVERHEAD = "[overhead]"


def _spread(rows: Sequence[TimeRow]) -> Iterator[str]:
    """Tell the range of times among groups that share a row, for the slowest such rows."""
    folded = sorted((row for row in rows if len(row.each) > 1), key=lambda row: -row.ms[-1])
    for row in folded[:_SPREADS]:
        low, high = short_ms(min(row.each)), short_ms(max(row.each))
        yield f"{row.group.name}: {format_count(len(row.each))} groups, {low} to {high} ms each"


_SPREADS = 2


def _each(document: TimeDocument) -> Table:
    """Return the table of single groups, as they were measured."""
    kind, noise = _kinds(document)
    whole = _whole(document)
    rows = tuple(
        Row(
            (
                part.group or "[root]",
                part.ms,
                part.error_ms,
                part.scaled_ms / whole if _is_device(document) and whole else part.share,
                part.scaled_ms,
                part.kernels,
                part.nodes,
            )
        )
        for part in document.groups
    )
    columns = (
        Column("group", Kind.NAME),
        Column("ms", kind, room=9),
        Column("± ms", noise, room=8),
        Column("share", Kind.SHARE, room=7),
        Column("scaled ms", kind, room=3),
        Column("kernels", Kind.COUNT, room=2),
        Column("nodes", Kind.COUNT, room=1),
    )
    return Table(columns, rows, title="each group", detail=Detail.MORE, is_long=True, order=1, key=EACH)


def _memory(document: Timed, measured: Measured, timing: Timing) -> Iterator[str]:
    """Tell the peak memory."""
    found = (
        ("onnxruntime's arena", measured.held_bytes),
        ("the whole process", document.environment.peak_rss_bytes),
    )
    parts = [f"{what} {format_bytes(nbytes)}" for what, nbytes in found if nbytes is not None]
    if parts:
        yield f"memory at most: {', '.join(parts)}; the weights are {format_bytes(total_group(timing).nbytes)}"


def _kernels(measured: Measured) -> Table:
    """Return the table of the slowest kernels, with the evidence for their groups."""
    kind, _ = _kinds(measured)
    ordered = sorted(measured.kernels, key=lambda kernel: (-kernel.ms, kernel.name))
    rows = tuple(
        Row(
            (
                kernel.name,
                kernel.op_type,
                kernel.ms,
                " + ".join(kernel.groups) or Formatted(None, "no group"),
                kernel.nodes,
                kernel.decided_by,
                kernel.provider,
            )
        )
        for kernel in ordered
    )
    columns = (
        Column("slowest kernels", Kind.NAME),
        Column("operator", Kind.NAME, room=8),
        Column("ms", kind, room=9),
        Column("group", Kind.NAME, room=7),
        Column("nodes", Kind.COUNT, room=2),
        Column("decided by", room=3),
        Column("provider", room=1),
    )
    return Table(
        columns,
        rows,
        title="slowest kernels",
        detail=Detail.MORE,
        is_long=True,
        key="kernels",
        others="other kernel",
    )


def _runs(document: TimeDocument) -> Table:
    rows = tuple(
        _run(Formatted(None, name), latency)
        for name, latency in (("plain", document.latency_ms), ("profiled", document.profiled_latency_ms))
    )
    columns = (Column("whole runs"), *_run_columns(_kinds(document)[0]))
    return Table(columns, rows, title="whole runs", detail=Detail.MORE, is_whole=True)


def _run_columns(kind: Kind) -> tuple[Column, ...]:
    return (
        Column("median ms", kind, room=9),
        Column("±", Kind.RATIO, room=8),
        Column("mean", kind, room=7),
        Column("p90", kind, room=6),
        Column("p99", kind, room=5),
        Column("min", kind, room=4),
        Column("runs", Kind.COUNT, room=3),
    )


def _run(name: Cell, latency: Latency) -> Row:
    margin = Formatted(latency.precision, format_percent(latency.precision))  # "-" if not known
    return Row(
        (name, latency.median, margin, latency.mean, latency.p90, latency.p99, latency.min, latency.runs)
    )


# the measurement


def _type(feed: InputFeed) -> str:
    return f"a sequence of one {feed.dtype}" if feed.sequence is True else feed.dtype


def _measured(document: Timed, measured: Measured) -> Iterator[Block]:
    """Yield the inputs, and the settings and environment of the runs."""
    rows = tuple(
        Row((feed.name, _type(feed), format_shape(tuple(feed.shape)), _fill(feed.fill, feed.low, feed.high)))
        for feed in measured.inputs
    )
    columns = (
        Column("input", Kind.NAME),
        Column("dtype", room=8),
        Column("shape", room=9),
        Column("filled with", room=7),
    )
    if rows:
        yield Table(columns, rows, title="inputs", detail=Detail.MORE)
    else:
        yield Notes(("the model has no inputs",), detail=Detail.MORE)
    yield Facts(tuple(_facts(document)), title="how it was measured", detail=Detail.MORE)


def _fill(fill: str, low: float, high: float) -> str:
    """Describe the content of an input: a value of `Fill`, and its range.

    >>> _fill("integers", 0, 30521), _fill("positions", 0, 15), _fill("constant", 1, 1)
    ('random 0 to 30,521', '0, 1, ...', 'all 1')
    """
    words = {
        Fill.INTEGERS.value: f"random {low:,g} to {high:,.0f}",
        Fill.UNIFORM.value: f"random {low:g} to {high:g}",
        Fill.CONSTANT.value: f"all {low:g}",
        Fill.POSITIONS.value: f"{low:g}, {low + 1:g}, ...",
        Fill.TEXT.value: '"a"',
        Fill.FILE.value: "the .npz file",
    }
    return words.get(fill, fill)


def _facts(document: Timed) -> Iterator[Fact]:
    model, settings, environment = document.model, document.settings, document.environment
    short = abbreviate_count(model.parameters)
    precision = format_shares(
        [(name, round(share * _PARTS)) for name, share in environment.precision.items()], _PARTS
    )
    yield Fact(
        "model",
        f"{format_many(model.parameters, 'parameter')}{f' ({short})' if short else ''}"
        f"{f' stored as {precision}' if precision else ''}; "
        f"{format_exact_bytes(model.file_bytes, format_bytes(model.file_bytes))} on disk",
    )
    clocks = "".join(f", {name} at {format_frequency(clock)}" for name, clock in environment.clocks.items())
    yield Fact("device", f"{document.device}{clocks}")
    options = "".join(f", {key}={value}" for key, value in settings.provider_options.items())
    yield Fact("provider", f"{document.provider}{options}; session of {', '.join(environment.providers)}")
    yield Fact("versions", ", ".join(f"{name} {version}" for name, version in environment.versions.items()))
    origin = "" if settings.threads is None else " (--threads)"
    yield Fact(
        "threads",
        f"{format_many(environment.threads, 'thread')}{origin} on {format_many(environment.cores, 'core')}",
    )
    yield Fact("session", f"optimization {settings.optimization}; made in {short_ms(environment.load_ms)} ms")
    yield Fact("order", f"plain and profiled runs {environment.order}")
    yield Fact("clock of kernels", _CLOCKS[environment.kernel_clock])
    until = (
        format_many(settings.runs, "run")
        if settings.runs is not None
        else f"until the median is ±{format_percent(settings.precision)}: {format_count(settings.fewest)} to "
        f"{format_many(settings.most, 'run')}, {settings.seconds:g} s"
    )
    yield Fact("runs", f"{until}; {format_many(settings.warmup, 'run')} before to warm up")
    yield Fact("seed", str(settings.seed))


_PARTS = 1_000_000
"""Parts of a whole, which turn shares into counts."""

_CLOCKS = {
    "host": "the host's, around calls that wait for the device",
    "device": "the device's own",
}


# a sweep


def describe_sweep(document: SweepDocument) -> Page:
    """Describe a sweep: medians, growth, doubts, and each group at each length."""
    timing = rebuild_timing(document)
    rows = tuple(row for row in make_rows(timing, 0)[0] if any(row.ms))
    return Page(
        kind="sweep",
        question="How its time grows",
        subject=document.model.path,
        about=f"{document.provider} on {document.device}",
        answer=_sweep_answer(document, timing),
        figures=tuple(_sweep_figures(document)),
        blocks=tuple(_sweep_blocks(document, timing, rows)),
    )


def _axis(document: SweepDocument) -> str:
    """Return the name of the swept axis, shortened."""
    return shorten(document.axis, _AXIS)


_AXIS = 20


def _sweep_answer(document: SweepDocument, timing: Timing) -> str:
    first, last = document.points[0], document.points[-1]
    times = f"{short_ms(first.latency_ms.median)} to {short_ms(last.latency_ms.median)} ms median"
    span = f"{_axis(document)} {format_count(first.value)} to {format_count(last.value)}"
    order = _order(grow_latency(timing), timing, [point.latency.mean for point in timing.points])
    return f"{times} at {span} on {name_provider(document.provider)}; growth: {order}"


def _order(growth: Growth | None, timing: Timing, times: Sequence[float]) -> str:
    """Return the order of growth; `unclear` if the fit does not explain the times."""
    if growth is None or not explains(growth, lengths(timing), times):
        return "unclear"
    return growth.order.value


def _sweep_figures(document: SweepDocument) -> Iterator[Figure]:
    for point in (document.points[0], document.points[-1]):
        label = f"Median at {_axis(document)} {format_count(point.value)}"
        yield Figure(
            label, f"{short_ms(point.latency_ms.median)} ms", _format_precision(document, point.latency_ms)
        )


def _sweep_blocks(document: SweepDocument, timing: Timing, rows: Sequence[TimeRow]) -> Iterator[Block]:
    last = document.points[-1]
    doubts = [*_lengths_in_doubt(document, timing)]
    doubts += _elsewhere_at(document)
    yield Notes((*doubts, *document.environment.messages), detail=Detail.FIRST, tone=Tone.WARN)
    yield Notes(tuple(_axes(last)), detail=Detail.FIRST)
    yield _lengths(document)
    yield _growths(document, timing, rows)
    yield Chart(EACH, f"Milliseconds over {_axis(document)}", "lines", _lines(document), _LINES_SUMMARY)
    yield _times(document, rows)
    yield Notes((*report_group_rule(document.match, document.groups_from), *_memory(document, last, timing)))
    yield _each_at(document)
    yield Notes((_input_shapes(document),), title="inputs", detail=Detail.MORE)
    yield _kernels(last)
    yield from _measured(document, last)


def _lines(document: SweepDocument) -> dict[str, object]:
    return {
        "name": 0,
        "axis": printable(_axis(document)),
        "values": [point.value for point in document.points],
        "most": 10,
    }


_LINES_SUMMARY = "A line for each group: milliseconds over the length; the tables have the numbers."


def _lengths_in_doubt(document: SweepDocument, timing: Timing) -> Iterator[str]:
    """List the lengths whose times are less precise than the settings asked for."""
    points = document.points
    judged = [
        (judge_profiled(each.latency, each.profiled), point)
        for each, point in zip(timing.points, points, strict=True)
    ]
    unsettled = [point for point in points if not point.latency_ms.settled]
    slower, faster = (
        [point for verdict, point in judged if verdict == wanted] for wanted in ("slower", "faster")
    )
    for found, reason in (
        (
            unsettled if document.settings.runs is None else [],
            f"the median is not precise: {_unsettled(document)}",
        ),
        ([] if _is_device(document) else slower, f"profiled runs {_slower(document)}"),
        (faster, f"profiled runs {_FASTER}"),
    ):
        if found:
            yield f"at {_axis(document)} = {', '.join(format_count(point.value) for point in found)}: {reason}"


def _lengths(document: SweepDocument) -> Table:
    """Return the table of whole runs at each length."""
    rows = tuple(
        Row(
            (
                *_run(Formatted(point.value, format_count(point.value)), point.latency_ms).cells,
                point.profiled_latency_ms.mean,
            )
        )
        for point in document.points
    )
    kind, _ = _kinds(document.points[0])
    columns = (Column(_axis(document)), *_run_columns(kind), Column("profiled mean", kind, room=2))
    return Table(columns, rows, title="whole runs", is_whole=True)


def _growths(document: SweepDocument, timing: Timing, rows: Sequence[TimeRow]) -> Block:
    """Return the table of each group's growth with the length."""
    if len(set(lengths(timing))) < FEWEST:
        return Notes((f"growth: unclear, because a fit needs at least {FEWEST} lengths",))
    longest = format_count(max(lengths(timing)))
    point = timing.points[-1]
    last = point.latency.mean / point.scale if _is_device(document) else point.profiled.mean
    table_rows = [
        _growth(name_row(row), grow_row(row, timing), timing, row.ms, row.level, last) for row in rows
    ]
    latency = [point.latency.mean for point in timing.points]
    total = _growth("plain run", grow_latency(timing), timing, latency, 0, 0.0)
    columns = (
        Column("growth", Kind.NAME),
        Column("order", room=9),
        Column(f"ms at {_axis(document)} n", Kind.FORMULA, room=8),
        Column(f"share at {longest}", Kind.SHARE, room=7),
        Column("highest term", Kind.RATIO, room=4),
        Column("R2", Kind.ERROR, room=3),
    )
    note = (
        "fitted without negative terms, of a higher order only where the points are clear evidence for it; unclear: "
        "a point is over a fifth off, or lengths are too few or too close; share: of the run; highest term: its part "
        f"of the fit at {longest}"
    )
    return Table(
        columns,
        tuple(table_rows),
        title="growth",
        total=total.cells,
        notes=(note,),
        order=3,
        others="other group",
    )


def name_row(row: TimeRow) -> str:
    """Return the name of a group's row, or of a row of fused kernels."""
    return row.title if row.is_fused else row.group.name or "[root]"


def _growth(
    name: str, growth: Growth | None, timing: Timing, ms: Sequence[float], level: int, whole: float
) -> Row:
    share: Cell = ms[-1] / whole if whole else Formatted(None, "")
    order = _order(growth, timing, ms)
    if growth is None:
        return Row((name, order, "", share, None, None), level)
    r2: Cell = None if growth.r2 is None else Formatted(growth.r2, f"{growth.r2:.4f}")
    term = None if growth.order is Order.CONSTANT else growth.share
    return Row((name, order, format_growth(growth), share, term, r2), level)


def format_growth(growth: Growth) -> str:
    """Return the terms of a fit that are not 0.

    >>> format_growth(Growth(Order.QUADRATIC, 0.21, 0.0, 2.1e-5, 0.4, 0.99, 6))
    '0.21 + 2.1e-05 n²'
    """
    terms = ((growth.constant, ""), (growth.linear, " n"), (growth.quadratic, " n²"))
    return " + ".join(f"{factor:.3g}{unit}" for factor, unit in terms if factor) or "0"


def _times(document: SweepDocument, rows: Sequence[TimeRow]) -> Table:
    """Return the table of each group's time at each length."""
    points = document.points
    table_rows = [Row((name_row(row), *row.ms), row.level) for row in rows]
    if document.by == "group":
        balance = points[0].group_balance
        table_rows.append(
            Row((balance.ungrouped.group, *(point.ungrouped_ms for point in points)), stays=True)
        )
        table_rows.append(Row((balance.overlap.group, *(-point.overlap_ms for point in points)), stays=True))
    for at, (name, _) in enumerate(outside(points[0])):
        table_rows.append(Row((name, *(outside(point)[at][1] for point in points)), stays=True))
    title = f"{title_groups(document.by, document.depth)}; ms at {_axis(document)}"
    return Table(
        (Column(title, Kind.NAME), *_at_lengths(document)),
        tuple(table_rows),
        title=title,
        total=("profiled run", *(point.profiled_latency_ms.mean for point in points)),
        notes=("rows sum to the mean profiled run",),
        order=len(points),
        others="other group",
        is_split=True,
        is_whole=document.by == "group",
    )


def _at_lengths(document: SweepDocument) -> Iterator[Column]:
    return (Column(format_count(point.value), _kinds(point)[0], room=9) for point in document.points)


def _each_at(document: SweepDocument) -> Table:
    """Return the table of single groups at each length, as they were measured."""
    times: dict[str, list[float]] = {}
    for at, point in enumerate(document.points):
        for part in point.groups:
            times.setdefault(part.group, [0.0] * len(document.points))[at] = part.ms
    rows = tuple(Row((name or "[root]", *ms)) for name, ms in times.items())
    return Table(
        (Column("group", Kind.NAME), *_at_lengths(document)),
        rows,
        title="each group",
        detail=Detail.MORE,
        is_long=True,
        order=len(document.points),
        is_split=True,
        key=EACH,
    )


def _input_shapes(document: SweepDocument) -> str:
    """Return the shapes of the inputs at the first length and at the last."""
    first, last = document.points[0], document.points[-1]
    shapes = (
        f"{feed.name} {format_shape(tuple(feed.shape))}"
        + (f" to {format_shape(tuple(other.shape))}" if feed != other else "")
        for feed, other in zip(first.inputs, last.inputs, strict=False)
    )
    return ", ".join(shapes) or "nothing"
