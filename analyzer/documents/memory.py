"""What documents say of memory: lines, the peak, and the largest sizes that fit."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from analyzer.cost.memory.account import Basis
from analyzer.documents.base import Bytes, Record, Text

_Position = Annotated[int, Meta(ge=0, extra={"unit": "nodes"})]
_Elements = Annotated[int, Meta(ge=0, extra={"unit": "elements"})]


class MemoryLine(Record, frozen=True, kw_only=True):
    """What one kind of memory takes; the lines that are known sum up to what a run needs."""

    line: Text
    """What it is for."""
    expression: str | None
    """Bytes as Python, over the axes, at the node that has the peak at these sizes; null where they are no polynomial,
    or not known."""
    value: Bytes | None
    """Bytes at these sizes; null where nobody knows, which is never 0."""
    basis: Basis
    """`exact`: follows from the file; `modelled`: by onnxruntime's own rules, replayed; `measured`: by a run."""
    note: str
    """What the reader should know of it; empty where there is nothing."""


class LiveTensor(Record, frozen=True, kw_only=True):
    """A tensor that is there at the peak."""

    value: str
    """Its name in the graph that is planned."""
    op_type: str
    """The operator that asked for its memory."""
    bytes: Bytes
    """What was asked for."""
    saves: Bytes | None
    """By how much the peak of the whole run would be lower without it; null of the smaller ones."""


class MemoryPeak(Record, frozen=True, kw_only=True):
    """The node of the main graph after which a run has the most: what is asked for in the run and not given back."""

    expression: str | None
    """`value` as Python, over the axes; null where it is no polynomial, or not known."""
    value: Bytes | None
    """Bytes of activations, outputs and what is cached at these sizes; null where nobody knows."""
    node: str | None
    """The node's name, which may be empty; null where nobody knows."""
    op_type: str | None
    """Its operator; null where nobody knows."""
    position: _Position | None
    """Its place in the order of the run, from 0; null where nobody knows."""
    group: str | None
    """Its subgraph; null where nobody knows, or the file lacks the node."""
    live: list[LiveTensor]
    """What is there then, the largest first."""


class LiveStep(Record, frozen=True, kw_only=True):
    """A node that ran, and what is there then."""

    node: str
    """Its name, or that of what it makes."""
    op_type: Text
    """Its operator."""
    group: str | None
    """Its subgraph; null of a node that the file lacks."""
    bytes: Bytes
    """Bytes that were asked for in the run and not given back."""


class FittingSize(Record, frozen=True, kw_only=True):
    """The largest size of an axis with which a run fits, with the most that bodies of If, Loop and Scan can ask for."""

    memory: Bytes
    """Bytes that there are."""
    axis: Text
    """The axis; of several that are for the same, such as the batches of all inputs, the first."""
    at: dict[str, _Elements]
    """The sizes of all others."""
    largest: _Elements | None
    """0 where not even 1 fits; null where `reason` is `none` or `unknown`."""
    reason: Literal["memory", "shapes", "none", "unknown"]
    """What ends it: `memory`; `shapes`, where the graph's own contradict each other beyond it; `none`: nothing that was
    tried is too much; `unknown`: nobody knows what a run takes."""


class MemoryRoom(Record, frozen=True, kw_only=True):
    """Whether a run at these sizes fits."""

    memory: Bytes
    """Bytes that there are."""
    needed: Bytes | None
    """The sum of the lines that are known; null where that of the activations is not."""
    fits: bool | None
    """Whether `needed` is no more than `memory`; null where nobody knows."""
    line: str
    """The line with which it is more, going through them in order; where it fits the largest."""


class MeasuredMemory(Record, frozen=True, kw_only=True):
    """What onnxruntime asked for of one kind of memory, beside what is modelled."""

    line: Text
    """What it is for."""
    modelled: Bytes | None
    """What is modelled; null where nobody knows before a run."""
    measured: Bytes
    """What was asked for."""
    unexplained: Annotated[int, Meta(extra={"unit": "bytes"})] | None
    """`measured` - `modelled`; null where nothing is modelled."""
