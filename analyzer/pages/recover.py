"""The page of `recover`: the part of the state dict that the file gives back, and the lost tensors with reasons."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from analyzer.documents.recover import Lossy, Lost, RecoverDocument, StateTensor, Unnamed
from analyzer.model.content import SAMPLES
from analyzer.model.dtypes import DType
from analyzer.pages.page import (
    Block,
    Cell,
    Column,
    Detail,
    Fact,
    Facts,
    Figure,
    Findings,
    Formatted,
    Kind,
    Notes,
    Page,
    Problem,
    Row,
    Table,
    Tone,
)
from analyzer.pages.shared import format_source
from analyzer.reconciliation.lines import Line
from analyzer.text import format_bytes, format_count, format_many, format_shape, short_count


def describe_recovery(document: RecoverDocument) -> Page:
    """Describe a recovery: number of tensors, tensors that are inexact or lost, and the line of each."""
    names = format_source(document.against)
    return Page(
        kind="recover",
        question="The state dict that it holds",
        subject=f"{document.model.path}{f' with the names of {names}' if names else ''}",
        answer=_answer(document),
        tone=Tone.GOOD if _is_whole(document) else Tone.BAD,
        figures=tuple(_figures(document)),
        blocks=tuple(_blocks(document)),
    )


def _is_whole(document: RecoverDocument) -> bool:
    """Whether no tensor is lost, and none lacks a PyTorch name."""
    return not document.lost and not document.unnamed


def _answer(document: RecoverDocument) -> str:
    found = document.recovered
    of = found.tensors + len(document.lost) + len(document.unnamed)
    head = "recovered" if _is_whole(document) else "NOT ALL RECOVERED:"
    counts = f"{format_count(found.tensors)} of {format_many(of, 'tensor')}"
    return f"{head} {counts}, {format_many(found.elements, 'element')}, {format_bytes(found.bytes)}"


def _figures(document: RecoverDocument) -> Iterator[Figure]:
    found = document.recovered
    yield Figure("Recovered", format_count(found.tensors), "tensors")
    yield Figure("Elements", format_count(found.elements), short_count(found.elements))
    yield Figure("Size", format_bytes(found.bytes), format_many(found.bytes, "byte"))
    yield Figure("Not exact", format_count(len(document.lossy)), "tensors")


def _blocks(document: RecoverDocument) -> Iterator[Block]:
    yield from _written(document)
    problems = tuple(_problems(document))
    if problems:
        yield Findings(problems, title="differences from PyTorch")
    yield _lines(document)
    for title, rows in (("lost", document.lost), ("not exact", document.lossy)):
        yield _reasons(title, ((each.name, each) for each in rows))
    unnamed = ((_path(each), each) for each in document.unnamed)
    yield _reasons("without a PyTorch name", unnamed)
    yield _state("parameters", document.parameters)
    yield _state("buffers", document.buffers)
    facts = tuple(Fact(key, value) for key, value in sorted(document.against.items()))
    yield Facts(facts, title="source of the names", detail=Detail.MORE)
    tied = tuple(f"tied: {', '.join(names)}" for names in document.tied)
    if tied:
        yield Notes(tied, title="written once", detail=Detail.MORE)


def _written(document: RecoverDocument) -> Iterator[Block]:
    """Tell where the state dict is, or why there is none, and how far values were compared."""
    if document.output is not None:
        message, tone = f"written to {document.output}", Tone.PLAIN
    elif document.lossless and document.lossy:
        message, tone = f"NOT WRITTEN: {format_many(len(document.lossy), 'tensor')} lost bits", Tone.BAD
    else:
        message, tone = "NOT WRITTEN: there is nothing to write", Tone.BAD
    yield Notes((message,), tone=tone, detail=Detail.FIRST)
    compared = {
        "none": "values not compared",
        "sampled": f"values compared at {SAMPLES} positions of each tensor",
        "full": "all values compared",
    }[document.content]
    yield Notes((compared,), detail=Detail.FIRST)


def _path(tensor: Unnamed) -> str:
    return f"{tensor.graph_path}/{tensor.name}" if tensor.graph_path else tensor.name


def _problems(document: RecoverDocument) -> Iterator[Problem]:
    """Yield problems with the tensors that they concern, lost tensors first."""
    tensors = (*document.parameters, *document.buffers)
    yield from _by_reason("error", "not recovered: ", ((each.reason, each.name) for each in document.lost))
    unnamed = ((each.reason, _path(each)) for each in document.unnamed)
    yield from _by_reason("error", "without a name: ", unnamed)
    yield from _by_reason("warning", "not exact: ", ((each.reason, each.name) for each in document.lossy))
    differing = [each.name for each in tensors if each.line is Line.DIFFERING]
    yield from _by_reason("warning", "", ((_DIFFERING, name) for name in differing))
    yield from _by_reason("warning", "", ((_GUESSED, name) for name in document.guessed))


_DIFFERING = "values differ from PyTorch's: the file's were taken"
_GUESSED = "square, and the comparison cannot tell it from its transpose"


def _by_reason(severity: str, head: str, tensors: Iterable[tuple[str, str]]) -> Iterator[Problem]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for reason, name in tensors:
        reasons[reason].append(name)
    for reason, names in reasons.items():
        many = f"{format_many(len(names), 'tensor')} " if len(names) > 1 else ""
        yield Problem("", severity, f"{many}{head}{reason}", tuple(names))


def _lines(document: RecoverDocument) -> Table:
    """Return the table of recovered tensors, by their line of the bridge."""
    by_line: dict[str, list[StateTensor]] = defaultdict(list)
    for tensor in (*document.parameters, *document.buffers):
        by_line[tensor.line].append(tensor)
    found = document.recovered
    columns = (
        Column("recovered from"),
        Column("tensors", Kind.COUNT, room=9),
        Column("elements", Kind.COUNT, room=8),
        Column("bytes", Kind.BYTES, room=7),
        Column("not exact", Kind.COUNT, room=8),
    )
    rows = tuple(Row((line.value, *_sums(by_line[line]))) for line in Line if by_line[line])
    total = ("total", found.tensors, found.elements, found.bytes, len(document.lossy))
    return Table(columns, rows, total=total, title="recovered from", is_whole=True)


def _sums(tensors: Sequence[StateTensor]) -> tuple[Cell, ...]:
    elements = [_numel(tensor.shape) for tensor in tensors]
    lossy = sum(tensor.lossy for tensor in tensors)
    if any(tensor.dtype not in DType.__members__ for tensor in tensors):  # someone edited the report
        return len(tensors), sum(elements), None, lossy
    sizes = [DType[tensor.dtype].nbytes(count) for tensor, count in zip(tensors, elements, strict=True)]
    return len(tensors), sum(elements), sum(sizes), lossy


def _numel(shape: Sequence[int]) -> int:
    return math.prod(shape)


def _reasons(title: str, rows: Iterable[tuple[str, Lost | Lossy | Unnamed]]) -> Table:
    columns = (
        Column(title, Kind.NAME),
        Column("shape", room=5),
        Column("line", room=6),
        Column("why", Kind.PROSE, room=9),
    )
    cells = tuple(
        Row((name, format_shape(tuple(row.shape)), str(row.line), row.reason)) for name, row in rows
    )
    return Table(columns, cells, title=title, detail=Detail.MORE, is_long=len(cells) > _SHORT)


_SHORT = 20
"""Most rows that an HTML page shows on one page of a table."""


def _state(title: str, tensors: Sequence[StateTensor]) -> Table:
    columns = (
        Column(title, Kind.NAME),
        Column("shape", room=4),
        Column("dtype", room=2),
        Column("elements", Kind.COUNT, room=7),
        Column("line", room=8),
        Column("by way of", room=1),
        Column("held by", Kind.NAME, room=3),
        Column("error", Kind.ERROR, room=6),
        Column("decided by", room=5),
    )
    rows = tuple(
        Row(
            (
                each.name,
                format_shape(tuple(each.shape)),
                each.dtype,
                _numel(each.shape),
                str(each.line),
                " → ".join(map(str, each.chain)) if len(each.chain) > 1 else "",
                ", ".join(each.entries),
                each.max_abs_error,
                each.decided_by,
            )
        )
        for each in tensors
    )
    elements = sum(_numel(each.shape) for each in tensors)
    total: tuple[Cell, ...] = ("total", "", "", elements, "", "", "", Formatted(None, ""), "")
    return Table(
        columns,
        rows,
        title=title,
        total=total if rows else (),
        detail=Detail.MORE,
        is_long=True,
        key=title,
    )
