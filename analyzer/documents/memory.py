"""Records of memory in documents: lines, the peak, and the largest sizes that fit."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from analyzer.cost.memory.account import Basis
from analyzer.documents.base import Bytes, Record, Text

_Position = Annotated[int, Meta(ge=0, extra={"unit": "nodes"})]
_Elements = Annotated[int, Meta(ge=0, extra={"unit": "elements"})]


class MemoryLine(Record, frozen=True, kw_only=True):
    """Memory of one kind; the known lines sum to the memory that a run needs."""

    line: Text
    """Purpose of this memory."""
    expression: str | None
    """Bytes as a Python expression over the axes, for the node that has the peak at these sizes; null if they are no
    polynomial, or unknown."""
    value: Bytes | None
    """Bytes at these sizes; null, never 0, if they are unknown."""
    basis: Basis
    """Basis of the number: `exact` follows from the file; `modelled` replays onnxruntime's own rules; `measured` comes
    from a run."""
    note: str
    """Remark for the reader; empty if there is none."""


class LiveTensor(Record, frozen=True, kw_only=True):
    """A tensor that is in memory at the peak."""

    value: str
    """Name of the tensor in the planned graph."""
    op_type: str
    """Operator that requested its memory."""
    bytes: Bytes
    """Bytes that were requested."""
    saves: Bytes | None
    """Bytes by which the peak of the whole run would fall without this tensor; null for smaller tensors."""


class MemoryPeak(Record, frozen=True, kw_only=True):
    """Node of the main graph after which a run holds the most memory that it has requested and not released."""

    expression: str | None
    """`value` as a Python expression over the axes; null if it is no polynomial, or unknown."""
    value: Bytes | None
    """Bytes of activations, outputs and cached values at these sizes; null if unknown."""
    node: str | None
    """Name of the node, which may be empty; null if unknown."""
    op_type: str | None
    """Operator of the node; null if unknown."""
    position: _Position | None
    """Position of the node in the order of the run, from 0; null if unknown."""
    group: str | None
    """Subgraph of the node; null if unknown, or if the file lacks the node."""
    live: list[LiveTensor]
    """Tensors in memory at the peak, largest first."""


class LiveStep(Record, frozen=True, kw_only=True):
    """A node that ran, and the memory in use after it."""

    node: str
    """Name of the node, or else of its output."""
    op_type: Text
    """Operator of the node."""
    group: str | None
    """Subgraph of the node; null if the file lacks the node."""
    bytes: Bytes
    """Bytes that the run has requested and not released."""


class FittingSize(Record, frozen=True, kw_only=True):
    """Largest size of an axis with which a run fits, counting the most that bodies of If, Loop and Scan can request."""

    memory: Bytes
    """Bytes of memory that are available."""
    axis: Text
    """Name of the axis; of several with one purpose, such as the batches of all inputs, the first."""
    at: dict[str, _Elements]
    """Sizes of all other axes."""
    largest: _Elements | None
    """Largest size that fits: 0 if not even 1 fits; null if `reason` is `none` or `unknown`."""
    reason: Literal["memory", "shapes", "none", "unknown"]
    """Reason for the limit: `memory`; `shapes`: the graph's own shapes contradict each other above it; `none`: every
    size that was tried fits; `unknown`: the memory that a run needs is unknown."""


class MemoryRoom(Record, frozen=True, kw_only=True):
    """Whether a run at these sizes fits."""

    memory: Bytes
    """Bytes of memory that are available."""
    needed: Bytes | None
    """Sum of the known lines; null if the line of the activations is unknown."""
    fits: bool | None
    """Whether a run needs no more than `memory`; null if unknown."""
    line: str
    """Line at which the sum of the lines, in order, exceeds the memory; if a run fits, the largest line."""


class MeasuredMemory(Record, frozen=True, kw_only=True):
    """Memory of one kind that onnxruntime requested, beside the modelled memory."""

    line: Text
    """Purpose of this memory."""
    modelled: Bytes | None
    """Bytes that are modelled; null if they are unknown before a run."""
    measured: Bytes
    """Bytes that were requested."""
    unexplained: Annotated[int, Meta(extra={"unit": "bytes"})] | None
    """`measured` - `modelled`; null if nothing is modelled."""
