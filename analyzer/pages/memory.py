"""Memory on the page of `cost`: memory of a run, live tensors at the peak, and the largest sizes that fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analyzer.documents.cost import CostDocument
from analyzer.documents.memory import FittingSize, MemoryLine
from analyzer.pages.page import Block, Chart, Column, Detail, Fact, Facts, Kind, Notes, Row, Table
from analyzer.pages.shared import format_expression
from analyzer.text import format_bytes, format_count


def memory_answer(document: CostDocument) -> str:
    """Return whether a run fits, and the line that decides; empty if nobody asked."""
    room = document.room
    if room is None:
        return ""
    there = format_bytes(room.memory)
    if room.fits is None and room.needed is not None:
        more = "bodies of If, Loop and Scan may need too much more"
        return f"whether it fits {there} is not known: {format_bytes(room.needed)} are modelled, and {more}"
    if room.fits is None:
        why = "; ".join(line.note for line in _unknown_activations(document))
        return f"whether it fits {there} is not known{why and ': '}{why}"
    if room.fits and room.needed is not None:
        return f"fits {there}: {format_bytes(room.needed)} are modelled, most of it {room.line}"
    needed = "more" if room.needed is None else format_bytes(room.needed)
    return f"DOES NOT FIT {there}: {needed} are needed; the sum exceeds it at the line {room.line}"


def memory_blocks(document: CostDocument) -> Iterator[Block]:
    """Yield the lines, the peak and the largest sizes; nothing if nobody asked for memory."""
    if not document.memory:
        return
    yield from _lines(document)
    yield from _peak(document)
    yield from _fits(document)


def _lines(document: CostDocument) -> Iterator[Block]:
    sizes = _sizes(document.memory_at)
    if sizes:
        yield Notes((f"memory of a run at {sizes}",))
    columns = (
        Column("memory", Kind.NAME),
        Column("bytes", Kind.BYTES, room=9),
        Column("basis", room=5),
        Column("in the axes", Kind.PROSE, room=3),
    )
    rows = tuple(
        Row(
            (
                line.line,
                line.value,
                "not known" if line.value is None else line.basis.value,
                _format_symbolic(line.expression, line.value),
            )
        )
        for line in document.memory
    )
    known = [line.value for line in document.memory if line.value is not None]
    total = ("sum of known numbers", sum(known), "", "")
    yield Table(columns, rows, title="memory", total=total, key="memory")
    why = _unknown_activations(document)
    if why:  # unknown activations are the answer, so the reason is always shown
        yield Notes(tuple(f"{line.line}: {line.note}" for line in why))
    notes = tuple(f"{line.line}: {line.note}" for line in document.memory if line.note and line not in why)
    if notes:
        yield Notes(notes, detail=Detail.MORE)


def _unknown_activations(document: CostDocument) -> list[MemoryLine]:
    """Return the line of activations if only its reason is known."""
    return [
        line for line in document.memory if line.note and line.line == "activations" and line.value is None
    ]


def _sizes(at: Mapping[str, int]) -> str:
    return ", ".join(f"{_axis(axis)}={size}" for axis, size in at.items())


def _axis(name: str) -> str:
    """Return the name of an axis, as expressions write it: a name that looks like a number gets a prefix.

    >>> _axis("batch"), _axis("9")
    ('batch', 'axis_9')
    """
    return f"axis_{name}" if name[:1].isdigit() else name


def _format_symbolic(expression: str | None, value: int | None) -> str:
    """Return the expression, unless it is only the number."""
    if expression is None or expression == str(value):
        return ""
    return format_expression(expression)


def _peak(document: CostDocument) -> Iterator[Block]:
    peak = document.peak
    if peak is None or peak.value is None:
        return
    where = f"{peak.op_type} {peak.node}".strip()
    group = f" in {peak.group}" if peak.group else ""
    yield Notes((f"the peak of requested memory, {format_bytes(peak.value)}, is after {where}{group}",))
    columns = (
        Column("live at the peak", Kind.NAME),
        Column("made by", room=5),
        Column("bytes", Kind.BYTES, room=9),
        Column("peak without it", Kind.PROSE, room=4),
    )
    rows = tuple(
        Row((tensor.value, tensor.op_type, tensor.bytes, _without(tensor.saves))) for tensor in peak.live
    )
    yield Table(columns, rows, title="live at the peak", is_long=True, brief=_BRIEF, key="live")
    yield _picture(document)


_BRIEF = 5
"""Number of live tensors that are shown at first, the largest."""


def _without(saves: int | None) -> str:
    """Return how much lower the peak of the run would be without a tensor, in words."""
    if saves is None:
        return ""
    return f"-{format_bytes(saves)}" if saves else "the same"


_BINS = 1_500
"""Most bars of a picture; with more nodes, each bar is the largest of several."""


def _picture(document: CostDocument) -> Chart:
    """Draw the live bytes along the nodes, coloured by subgraph."""
    steps = document.live
    names = list(dict.fromkeys(step.group or "" for step in steps))
    width = -(-len(steps) // _BINS) or 1
    bars = []
    for start in range(0, len(steps), width):
        most = max(steps[start : start + width], key=lambda step: step.bytes)
        bars.append([f"{most.op_type} {most.node}".strip(), most.bytes, names.index(most.group or "")])
    data = {"groups": [name or "[root]" for name in names], "bars": bars}
    summary = "Live bytes after each node in the order of the run, coloured by subgraph; the peak is marked."
    return Chart("", "Live bytes along the nodes", "steps", data, summary)


def _fits(document: CostDocument) -> Iterator[Block]:
    if document.fits:
        facts = tuple(Fact(f"largest {_axis(fit.axis)}", _largest(fit)) for fit in document.fits)
        yield Facts(facts, title=f"fits {format_bytes(document.fits[0].memory)}")


def _largest(fit: FittingSize) -> str:
    others = _sizes(fit.at)
    at = f" at {others}" if others else ""
    if fit.reason == "unknown":
        return f"not known{at}"
    if fit.largest is None:
        return f"no limit was found{at}"
    why = "; beyond it the shapes of the graph contradict each other" if fit.reason == "shapes" else ""
    return f"{format_count(fit.largest)}{at}{why}"
