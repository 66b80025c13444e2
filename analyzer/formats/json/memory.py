"""MemoryAnswer -> its records in JSON documents."""

from __future__ import annotations

from analyzer.cost.memory.answer import MemoryAnswer
from analyzer.cost.memory.polynomials import Polynomial
from analyzer.documents.memory import FittingSize, LiveStep, LiveTensor, MemoryLine, MemoryPeak, MemoryRoom
from analyzer.formats.json.parts import utf8


def document_lines(answer: MemoryAnswer) -> list[MemoryLine]:
    """Return a record for each line of memory."""
    return [
        MemoryLine(
            line=line.line,
            expression=_python(line.polynomial),
            value=line.value,
            basis=line.basis,
            note=utf8(line.note),
        )
        for line in answer.needed.lines
    ]


def document_sizes(answer: MemoryAnswer) -> dict[str, int]:
    """Return the sizes of the axes that have names, by name."""
    return {utf8(axis.name): axis.size for axis in answer.axes if axis.name is not None}


def document_peak(answer: MemoryAnswer) -> MemoryPeak:
    """Return the node with the peak, and the tensors there; with nulls if it is unknown."""
    peak = answer.needed.peak
    if peak is None:
        return MemoryPeak(
            expression=None, value=None, node=None, op_type=None, position=None, group=None, live=[]
        )
    return MemoryPeak(
        expression=_python(peak.polynomial),
        value=peak.nbytes,
        node=utf8(peak.step.name),
        op_type=utf8(peak.step.op_type),
        position=peak.position,
        group=None if answer.peak_group is None else utf8(answer.peak_group),
        live=[
            LiveTensor(
                value=utf8(tensor.value),
                op_type=utf8(tensor.op_type),
                bytes=tensor.nbytes,
                saves=tensor.saves,
            )
            for tensor in peak.live
        ],
    )


def document_live(answer: MemoryAnswer) -> list[LiveStep]:
    """Return the memory in use after each node."""
    return [
        LiveStep(
            node=utf8(step.node),
            op_type=utf8(step.op_type),
            group=None if step.group is None else utf8(step.group),
            bytes=step.nbytes,
        )
        for step in answer.steps
    ]


def document_fits(answer: MemoryAnswer) -> list[FittingSize]:
    """Return the largest sizes that fit; empty if no memory was given."""
    return [
        FittingSize(
            memory=fit.memory,
            axis=utf8(fit.axis),
            at={utf8(axis): size for axis, size in fit.at},
            largest=fit.largest,
            reason=fit.reason,
        )
        for fit in answer.fits
    ]


def document_room(answer: MemoryAnswer) -> MemoryRoom | None:
    """Return whether a run fits; None if no memory was given."""
    room = answer.room
    if room is None:
        return None
    return MemoryRoom(memory=room.memory, needed=room.needed, fits=room.fits, line=room.line)


def _python(polynomial: Polynomial | None) -> str | None:
    return None if polynomial is None else utf8(str(polynomial))
