"""The pages of `reconcile` and `export`: whether the file holds the PyTorch model, and the line of each parameter."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.checkpoints.statedict import BY_NAMES
from analyzer.documents.reconcile import BridgeLine, ExportDocument, NearestMatch, ReconcileDocument
from analyzer.model.content import SAMPLES
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
    format_source,
    list_findings,
    natural_list,
    report_group_rule,
    report_reuse,
    table_groups,
    title_groups,
)
from analyzer.reconciliation.lines import UNBALANCED
from analyzer.records import replace
from analyzer.text import format_count, format_many, format_shape

PARAMETERS = "parameters"


def describe_export(document: ExportDocument) -> Page:
    """Describe an export: the files that were written, and their reconciliation."""
    inner = document.reconcile
    files = Notes(tuple(f"wrote {path}" for path in document.files), detail=Detail.FIRST)
    return Page(
        kind="export",
        question="What was exported?",
        subject=_subject(inner),
        title=inner.model.path,
        answer=_answer(inner),
        tone=_tone(inner),
        figures=tuple(_figures(inner)),
        blocks=(files, *_blocks(inner)),
    )


def describe_reconciliation(document: ReconcileDocument) -> Page:
    """Describe a reconciliation: the verdict, the extent of the comparison, the bridge, groups in PyTorch's terms."""
    return Page(
        kind="reconcile",
        question="Does it hold the PyTorch model?",
        subject=_subject(document),
        title=document.model.path,
        answer=_answer(document),
        tone=_tone(document),
        figures=tuple(_figures(document)),
        blocks=tuple(_blocks(document)),
    )


def _subject(document: ReconcileDocument) -> str:
    """Return the path of the file, and a name of PyTorch's side."""
    names = format_source(document.against)
    return f"{document.model.path}{f' against {names}' if names else ''}"


def _tone(document: ReconcileDocument) -> Tone:
    if not document.balanced:
        return Tone.BAD
    return Tone.PLAIN if _computes_otherwise(document) else Tone.GOOD


def _computes_otherwise(document: ReconcileDocument) -> bool:
    """Whether the file certainly computes something else than PyTorch, or than its own export."""
    program = document.wiring.program
    return program == "differs" or (program == "not-known" and document.reads == "differs")


def _answer(document: ReconcileDocument) -> str:
    if not document.balanced:
        lines = [row for row in document.bridge if row.line in UNBALANCED and row.tensors]
        lines.sort(key=lambda row: -row.elements)
        counts = ", ".join(f"{row.line} {format_count(row.tensors)}" for row in lines)
        return f"DOES NOT BALANCE{f': {counts}' if counts else ''}"
    how = {"none": " by names and shapes only", "sampled": f" at {SAMPLES} positions of each tensor"}
    count = len(document.parameters)
    verdict = (
        f"the one PyTorch parameter is {_location(document)}"
        if count == 1
        else f"all {format_count(count)} PyTorch parameters are {_location(document)}"
    )
    return f"balanced{how.get(document.content, '')}, unexplained 0: {verdict}"


def _location(document: ReconcileDocument) -> str:
    """Return where the parameters are: in the file, or on which lines outside it; and what else is known of it."""
    lines = [row.line for row in document.bridge if row.line in ("unused", "outside") and row.tensors]
    rest = "but it computes something else" if _computes_otherwise(document) else "and nothing else is"
    return f"{' or '.join(['in the file', *lines])}, {rest}"


def _figures(document: ReconcileDocument) -> Iterator[Figure]:
    pytorch, onnx = document.pytorch, document.onnx
    yield Figure("In PyTorch", format_count(pytorch.parameters), abbreviate_count(pytorch.parameters))
    yield Figure("In the file", format_count(onnx.parameters), abbreviate_count(onnx.parameters))
    yield Figure(
        "Stored elements", format_count(onnx.stored_elements), abbreviate_count(onnx.stored_elements)
    )
    yield Figure(
        "Counted without PyTorch",
        format_count(onnx.parameters_alone),
        abbreviate_count(onnx.parameters_alone),
    )


def _blocks(document: ReconcileDocument) -> Iterator[Block]:
    yield Notes(tuple(_extent(document)), detail=Detail.FIRST)
    yield replace(list_findings(document.findings, is_short=True), has_whole_errors=True)
    yield from _waterfall(document)
    yield _bridge(document)
    yield _chart()
    title = title_groups(document.by, document.depth, document.tree).replace("scope", "scope in PyTorch")
    groups = table_groups(
        document.tree,
        document.groups,
        document.group_balance,
        document.by,
        title,
        document.onnx.parameters,
    )
    yield groups
    yield Notes(
        (
            *report_group_rule(document.match, document.groups_from),
            *_trained(document),
            *report_reuse(document.groups),
        )
    )
    yield _evaluated(document)
    yield _nearest(document)
    yield _parameters(document)
    yield _tensors(document)
    yield Facts(
        tuple(Fact(key, value) for key, value in sorted(document.against.items())),
        title="compared with",
        detail=Detail.MORE,
    )
    yield Notes(tuple(f"tied: {', '.join(names)}" for names in document.pytorch.tied), "", detail=Detail.MORE)


def _extent(document: ReconcileDocument) -> Iterator[str]:
    """Tell how far contents and wiring were compared, and the limits of that proof."""
    compared = document.compared
    absent = sum(
        each.elements for each in document.parameters if each.compared == "none" and not each.entries
    )
    parts = []
    if compared.whole:
        all_ = not compared.sampled and compared.none == absent
        parts.append(
            f"every value of {format_count(compared.whole)}"
            if all_
            else f"every value of {format_many(compared.whole, 'element')}"
        )
    if compared.sampled:
        parts.append(f"{format_many(compared.sampled, 'element')} at {SAMPLES} positions and by sums")
    if compared.none > absent:
        parts.append(f"{format_many(compared.none - absent, 'element')} by name and shape only")
    extent = f"compared: {', '.join(parts) or 'nothing'}"
    if document.against.get("parameters_by") == BY_NAMES:
        extent += "; parameters and buffers distinguished by name"
    yield extent
    yield f"wiring: {_wiring(document)}"
    is_differing = any(row.line == "differing" and row.tensors for row in document.bridge)
    if is_differing and document.against.get("weights") == "factory":
        yield "the factory made PyTorch's weights: does it load the checkpoint?"


def _wiring(document: ReconcileDocument) -> str:
    wiring = document.wiring
    whole = len(document.parameters)
    placed = wiring.checked - wiring.misplaced
    statement = f"{format_count(placed)} of {format_many(whole, 'parameter')} read where PyTorch reads them"
    if wiring.checked and whole > wiring.checked:
        statement += f", {format_count(whole - wiring.checked)} not known"
    if not wiring.checked:
        statement = "the parameter that each node reads was not compared"
        if document.reads == "as-exported":
            return f"as exported; {statement}"
    if wiring.program == "same":
        return f"{statement}; computes the same as PyTorch's program up to rounding (verify --static)"
    if wiring.program == "differs":
        return f"{statement}; computes a different program from PyTorch's"
    if document.reads == "as-exported":
        return f"{statement}; wired as exported"
    if document.reads == "differs":
        first = f", first in {wiring.first}" if wiring.first else ""
        return f"{statement}; wiring differs from the export{first}"
    return f"{statement}; not a proof that it computes the same"


def _waterfall(document: ReconcileDocument) -> Iterator[Block]:
    """Draw stacked steps from PyTorch's parameters to the file's; nothing if no line changes a count."""
    measures = []
    ends = (
        ("parameters", "parameter_delta", document.onnx.parameters),
        ("stored elements", "stored_delta", document.onnx.stored_elements),
    )
    for label, key, end in ends:
        steps = [[str(row.line), getattr(row, key)] for row in document.bridge if getattr(row, key)]
        measures.append([label, steps, end])
    if not any(steps for _, steps, _ in measures):
        return
    measures.sort(key=lambda each: not each[1])
    data = {"start": document.pytorch.parameters, "measures": measures, "from": "PyTorch", "to": "ONNX"}
    summary = "A waterfall from PyTorch's parameters over each line of the bridge to the count in the file."
    yield Chart("", "The bridge, step by step", "waterfall", data, summary)


_BRIDGE = (
    Column("bridge"),
    Column("tensors", Kind.COUNT, room=3),
    Column("elements", Kind.COUNT, room=4),
    Column("parameters", Kind.SIGNED, room=9),
    Column("stored", Kind.SIGNED, room=8),
    Column("bytes", Kind.BYTES, room=1),
)


def _bridge(document: ReconcileDocument) -> Table:
    start = document.pytorch.parameters
    whole = Formatted(start, format_count(start))
    first = Row(("PyTorch", len(document.parameters), start, whole, whole, None))
    rows = [_line(row) for row in document.bridge if row.tensors or row.line == "unexplained"]
    onnx = document.onnx
    total = (
        "ONNX",
        len(document.tensors),
        onnx.stored_elements,
        Formatted(onnx.parameters, format_count(onnx.parameters)),
        Formatted(onnx.stored_elements, format_count(onnx.stored_elements)),
        None,
    )
    return Table(_BRIDGE, (first, *rows), title="bridge", total=total, is_whole=True)


def _line(row: BridgeLine) -> Row:
    tone = Tone.BAD if row.line in UNBALANCED and row.tensors else Tone.PLAIN
    cells = (str(row.line), row.tensors, row.elements, row.parameter_delta, row.stored_delta, row.bytes)
    return Row(cells, tone=tone)


def _trained(document: ReconcileDocument) -> Iterator[str]:
    """Tell how many parameters are frozen, if any are."""
    frozen = document.pytorch.parameters - document.pytorch.trainable
    if frozen:
        groups = [
            (each.group or "[root]", each.frozen)
            for each in document.groups
            if isinstance(each.frozen, int) and each.frozen
        ]
        groups.sort(key=lambda each: (-each[1], each[0]))
        listed = natural_list([f"{name} {format_count(count)}" for name, count in groups], 5)
        yield f"{format_many(frozen, 'parameter')} frozen (requires_grad is false){f': {listed}' if listed else ''}"


def _evaluated(document: ReconcileDocument) -> Table:
    """Return the table of stored tensors that PyTorch's program computes from no input, with their expressions."""
    rows = tuple(
        Row((_path(each.graph_path, each.name), each.expression or ""))
        for each in document.tensors
        if each.line == "evaluated"
    )
    columns = (
        Column("computed in advance", Kind.NAME),
        Column("by PyTorch's own program", Kind.PROSE, room=9),
    )
    return Table(columns, rows, title="computed in advance")


def _path(graph: str, name: str) -> str:
    return f"{graph}/{name}" if graph else name


def _nearest(document: ReconcileDocument) -> Table:
    """Return the table of tensors that do not balance, each with its nearest parameter."""
    elements = {each.name: each.elements for each in document.parameters}
    rows = tuple(
        Row((each.tensor, each.parameter, _count_equal(each, elements.get(each.parameter)), _off_by(each)))
        for each in document.nearest
    )
    columns = (
        Column("unbalanced tensor", Kind.NAME),
        Column("nearest parameter", Kind.NAME, room=9),
        Column("equal", room=9),
        Column("off by", Kind.ERROR, room=5),
    )
    return Table(columns, rows, title="unbalanced tensors")


def _count_equal(match: NearestMatch, elements: int | None) -> str:
    is_whole = match.compared == elements
    whole = format_count(match.compared) if is_whole else format_many(match.compared, "position")
    return f"{format_count(match.equal)} of {whole}"


def _off_by(match: NearestMatch) -> Cell:
    """Return the largest difference; infinity and NaN have none."""
    if match.max_abs_error is None and match.equal < match.compared:
        return Formatted(None, "not finite")
    return match.max_abs_error


_PARAMETERS = (
    Column("parameter", Kind.NAME),
    Column("shape", room=4),
    Column("elements", Kind.COUNT, room=6),
    Column("trainable", room=0),
    Column("line", room=9),
    Column("by way of", room=1),
    Column("error", Kind.ERROR, room=7),
    Column("compared", room=3),
    Column("held by", Kind.NAME, room=2),
    Column("why", room=5),
    Column("decided by", room=3),
)


def _parameters(document: ReconcileDocument) -> Table:
    rows = tuple(
        Row(
            (
                each.name,
                format_shape(tuple(each.shape)),
                each.elements,
                "" if each.trainable else "frozen",
                str(each.line),
                ", ".join(map(str, each.chain)) if len(each.chain) > 1 else "",
                each.max_abs_error,
                str(each.compared),
                ", ".join(each.entries),
                str(each.why or ""),
                each.decided_by,
            ),
            tone=Tone.BAD if each.line in UNBALANCED else Tone.PLAIN,
        )
        for each in document.parameters
    )
    elements = sum(each.elements for each in document.parameters)
    total: tuple[Cell, ...] = ("total", "", elements, "", "", "", Formatted(None, ""), "", "", "", "")
    return Table(
        _PARAMETERS,
        rows,
        title="parameters of PyTorch",
        total=total,
        detail=Detail.MORE,
        is_long=True,
        key=PARAMETERS,
    )


def _tensors(document: ReconcileDocument) -> Table:
    rows = tuple(
        Row((_path(each.graph_path, each.name), str(each.line), each.parameter or "", each.decided_by))
        for each in document.tensors
    )
    columns = (
        Column("stored tensor", Kind.NAME),
        Column("line", room=9),
        Column("holds", Kind.NAME, room=8),
        Column("decided by", room=3),
    )
    return Table(columns, rows, title="stored tensors", detail=Detail.MORE, is_long=True, key="stored")


def _chart() -> Chart:
    """Make a treemap of PyTorch's parameters within their modules."""
    at = {column.title: number for number, column in enumerate(_PARAMETERS)}
    data = {
        "name": 0,
        "arrangements": [["module", [0], "."], ["line", [at["line"]], ""]],
        "measures": [["elements", at["elements"]]],
        "colours": [["line", at["line"]]],
    }
    summary = "A treemap: each rectangle is a module or a parameter, as large as its share."
    return Chart(PARAMETERS, "PyTorch's parameters, and their lines of the bridge", "tree", data, summary)
