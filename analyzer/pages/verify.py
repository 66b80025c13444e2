"""The page of `verify`: whether two sides compute the same, and the first place where they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from analyzer.documents.verify import (
    EMPTIED,
    OTHER_WEIGHTS,
    REFUSED,
    VerifiedModule,
    VerifiedOutput,
    VerifyCosts,
    VerifyDocument,
)
from analyzer.pages.page import (
    Block,
    Cell,
    Chart,
    Column,
    Detail,
    Fact,
    Facts,
    Kind,
    Notes,
    Page,
    Row,
    Table,
    Tone,
)
from analyzer.text import format_doing, format_error, format_many, format_signed_bytes


def describe_verification(document: VerifyDocument) -> Page:
    """Describe a verification: the verdict, outputs, and inner values that differ."""
    return Page(
        kind="verify",
        question="Does it compute the same?",
        subject=document.model,
        answer=_answer(document),
        tone=Tone.GOOD if document.same else Tone.BAD,
        blocks=tuple(_blocks(document)),
    )


def _sides(document: VerifyDocument) -> Iterator[Fact]:
    """Yield the other side, or both runs of one file."""
    if document.executions is None:
        yield Fact("against", document.against)
        return
    pairs = document.executions
    for label, each in (("run", pairs.model), ("against", pairs.against)):
        node_count = "" if each.nodes is None else f": {format_many(each.nodes, 'node')}"
        exact = ", TF32 off" if each.provider == "cuda" else ""
        yield Fact(label, f"optimization {each.optimization.value} on {each.provider}{exact}{node_count}")


def _answer(document: VerifyDocument) -> str:
    skipped = [each for each in document.outputs if each.verdict == "not-compared"]
    if document.same:
        many = format_many(len(document.outputs), "output")
        if not document.inputs:
            return f"computes the same: {many} by the same operators on the same numbers; nothing was run"
        runs = format_many(max(Counter(each.name for each in document.inputs).values()), "run")
        return f"computes the same: {many} in {runs}, no further apart than rounding"
    if document.first is not None:
        node, reason = document.first.node, document.first.reason
        where = f", in {document.first.module}" if document.first.module else ""
        who, _, what = reason.partition(f"{node}: ")
        return f"DIFFERS from {node} on{where}: {what if what and who.count(' ') <= 1 else reason}"
    if any(each.verdict == "differs" for each in document.outputs):
        return "DIFFERS: no inner value of both sides shows the first difference"
    if not document.inputs:
        computed = format_doing(len(skipped), "output", "are")
        return f"NOT COMPARED: {computed} computed by different operators; leave --static out to run them"
    if skipped and all(each.noise_db is not None and each.noise_db <= _DROWNED for each in skipped):
        return (
            f"NOT COMPARED: rounding alone changes {format_many(len(skipped), 'output')} beyond recognition, such as "
            "after TopK or ArgMax of nearly equal values; try other inputs (--input)"
        )
    for each in document.uncovered:
        if each.startswith(REFUSED):
            return f"NOT COMPARED: onnxruntime cannot run it at sizes that it declares: {each.removeprefix(REFUSED)}"
        if each.startswith(EMPTIED):
            return f"NOT COMPARED: rounding to codes leaves nothing of {each.removeprefix(EMPTIED)}"
    return f"NOT COMPARED: {format_many(len(skipped), 'output')} with different shapes, types or codes"


_DROWNED = 30.2
"""Signal-to-noise ratio in dB at which the tolerance, 32 times the noise, is as large as the value."""


def _blocks(document: VerifyDocument) -> Iterator[Block]:
    yield Facts(tuple(_sides(document)), detail=Detail.FIRST)
    yield Notes(tuple(_remarks(document)), detail=Detail.FIRST)
    is_static = not document.inputs
    columns = (
        Column("output", Kind.NAME),
        Column("off by", Kind.ERROR, room=8, is_hidden=is_static),
        Column("signal/error", Kind.DECIBEL, room=7, is_hidden=is_static),
        Column("rounding", Kind.DECIBEL, room=6, is_hidden=is_static),
        Column("verdict", room=9),
    )
    outputs = tuple(
        Row((each.name or "[only there]", *_cells(each), str(each.verdict))) for each in document.outputs
    )
    yield Table(columns, outputs, title="outputs", is_whole=True)
    yield from _curve(document)
    inner = tuple(
        Row((each.value, each.class_, each.module or "", *_cells(each), str(each.verdict)))
        for each in document.modules
    )
    titles = (
        Column("value", Kind.NAME),
        Column("made by", room=5),
        Column("in", Kind.NAME, room=3),
        *columns[1:],
    )
    off = tuple(row for row, each in zip(inner, document.modules, strict=True) if each.verdict != "same")
    title = "inner values that are not the same"
    yield Table(titles, off, title=title, is_long=True, brief=_BRIEF, key="values")
    if len(inner) > len(off):
        title = "modules in the order of the run"
        yield Table(titles, inner, title=title, is_long=True, key="modules", detail=Detail.MORE)
    if document.costs is not None:
        yield from _costs(document.costs)
    yield _differences(document)
    lead = "" if is_static else "not tried: "
    yield Notes(tuple(f"{lead}{each}" for each in document.uncovered if not each.startswith(OTHER_WEIGHTS)))
    yield _inputs(document)


def _curve(document: VerifyDocument) -> Iterator[Block]:
    """Draw the error of each module's value, in the order of the run, with a mark at the first that differs."""
    points: list[list[object]] = [
        [
            each.module or each.value,
            "" if each.value == each.module else each.value,
            each.signal_to_error_db,
            each.noise_db,
            str(each.verdict),
        ]
        for each in document.modules
    ]
    first = None
    if document.first is not None:
        where = document.first.module or document.first.node
        bad = [at for at, point in enumerate(points) if point[-1] == "differs"]
        first = next((at for at in bad if points[at][0] == where), None)
        if first is None:  # inside a module, or in none: its mark goes where the correct values end
            first = bad[0] if bad else len(points)
            points.insert(first, [where, document.first.node, None, None, "differs"])
    if len(points) < _FEWEST:
        return
    summary = (
        "Signal to error in decibels of each module's output, in the order of the run, with the level of rounding "
        f"alone.{f' The first that differs is {points[first][0]}.' if first is not None else ''}"
    )
    yield Chart("", "Error through the modules", "errors", {"points": points, "first": first}, summary)


_FEWEST = 2
"""Fewest modules that make a curve."""
_BRIEF = 5
"""Number of values and nodes that are shown at first: the answer already tells the first difference."""


def _costs(costs: VerifyCosts) -> Iterator[Block]:
    """Yield modules by the output error of rounding each alone, and the gain of keeping the worst in float."""
    columns = (
        Column("module rounded alone", Kind.NAME),
        Column("signal/error", Kind.DECIBEL, room=9),
        Column("weights", Kind.DECIBEL, room=7),
        Column("codes", Kind.DECIBEL, room=7),
        Column("stored", Kind.BYTES, room=8),
        Column("in float", Kind.BYTES, room=8),
    )
    rows = tuple(
        Row(
            (
                each.module,
                each.signal_to_error_db,
                each.weights_db,
                each.codes_db,
                each.nbytes or None,
                each.float_nbytes or None,
            )
        )
        for each in costs.layers
    )
    yield Table(columns, rows, title="what rounding costs", is_long=True, brief=_BRIEF, key="costs")
    remarks = []
    if costs.kept is not None and costs.kept.modules:
        kept = costs.kept
        error_after = "no error" if kept.signal_to_error_db is None else f"{kept.signal_to_error_db:.0f} dB"
        larger = format_signed_bytes(kept.more_nbytes)
        error_before = "no error" if kept.before_db is None else f"{kept.before_db:.0f} dB"
        names = ", ".join(kept.modules)
        remarks.append(
            f"estimated from single modules: {error_before} as it stands, {error_after} with {names} in float, {larger}"
        )
    if costs.unmeasured:
        remarks.append(f"no time was left for {format_many(costs.unmeasured, 'module')}")
    yield Notes(tuple(remarks))


def _inputs(document: VerifyDocument) -> Table:
    rows = tuple(
        Row((each.name, each.dtype, "x".join(map(str, each.shape)) or "scalar", each.file or str(each.seed)))
        for each in document.inputs
    )
    columns = (
        Column("input", Kind.NAME),
        Column("dtype", room=8),
        Column("shape", room=8),
        Column("seed or file", room=7),
    )
    return Table(columns, rows, title="inputs", detail=Detail.MORE)


def _cells(row: VerifiedOutput | VerifiedModule) -> tuple[Cell, ...]:
    return row.max_abs_error, row.signal_to_error_db, row.noise_db


def _remarks(document: VerifyDocument) -> Iterator[str]:
    for each in document.uncovered:
        if each.startswith(OTHER_WEIGHTS):
            yield f"{each} (reconcile shows where)"
    worst = max((each.max_abs_error or 0.0 for each in document.outputs), default=0.0)
    if worst:
        yield f"outputs are off by {format_error(worst)} at most; column rounding: signal/error of rounding alone"
    if document.drift_db is not None:
        parts = []
        if document.costs is not None:
            known = (("rounded weights", document.costs.weights_db), ("codes", document.costs.codes_db))
            parts = [f"{what} alone {value:.0f} dB" for what, value in known if value is not None]
        shares = f" ({', '.join(parts)})" if parts else ""
        other = "the other file" if _is_file(document.against) else "PyTorch's own weights"
        yield f"as the file stands, against {other}: {document.drift_db:.0f} dB signal to error{shares}"
    if document.executions is not None:
        return
    yield "this does not show that the weights are the checkpoint's: reconcile does"


def _is_file(against: str) -> bool:
    """Whether the other side is a file; the name of a PyTorch side begins with its class."""
    return against.endswith(".onnx")


def _differences(document: VerifyDocument) -> Table:
    rows = tuple(
        Row((each.node, each.module or "", each.kind, each.found, each.expected))
        for each in document.wiring.differences
    )
    columns = (
        Column("without running", Kind.NAME),
        Column("in", Kind.NAME, room=2),
        Column("what", room=7),
        Column("here", Kind.PROSE, room=9),
        Column("there", Kind.PROSE, room=9),
    )
    return Table(columns, rows, title="without running", is_long=True, brief=_BRIEF, key="wiring")
