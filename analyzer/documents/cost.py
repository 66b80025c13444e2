"""The document of `cost`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from analyzer.documents.base import NodeKeys, Nodes, Parts, Record, Share, Stamped, Text
from analyzer.documents.memory import (
    FittingSize,
    LiveStep,
    MeasuredMemory,
    MemoryLine,
    MemoryPeak,
    MemoryRoom,
)


class CostDocument(Stamped, frozen=True, kw_only=True):
    """A report of `onnxledger cost --format json`."""

    command: Literal["cost"] = "cost"
    """The command that wrote the document."""
    model: CostModel
    """The model."""
    complete: bool
    """Whether the work of every node is known; if not, `unknown` lists the other nodes, and the sums lack them."""
    convention: Text
    """Definition of a multiply-accumulate and of a floating point operation, in words."""
    axes: list[CostAxis]
    """Free axes of the inputs, in file order; expressions use their names."""
    totals: CostTotals
    """Sums over all nodes."""
    by: NodeKeys
    """Keys by which groups are formed: `scope`, `block`, `stage`, `op`, or several of them separated by commas; or
    `group` for the user's own groups."""
    depth: Parts | None
    """Number of leading parts of a scope or block that name a group; null if `by` has neither."""
    groups: list[CostGroup]
    """Groups in the order of their first work; their sums are those of the model."""
    operators: list[CostOperator]
    """Operators, most multiply-accumulates first."""
    unknown: list[CostUnknown]
    """Nodes whose work is unknown, each with the reason."""
    refused: CostUnknown | None = None
    """First node of `unknown` that cannot run with the sizes of its inputs; null if there is none, as far as known."""
    memory: list[MemoryLine]
    """Memory of a run on onnxruntime's CPU provider, line by line, at `memory_at`; empty without `--memory`."""
    memory_at: dict[str, Annotated[int, Meta(ge=0, extra={"unit": "elements"})]]
    """Sizes of the axes for `memory`: those given by `--shape`, and the defaults of `time` for the others."""
    peak: MemoryPeak | None
    """Node with the peak of memory, and the tensors there; null without `--memory`."""
    live: list[LiveStep]
    """Memory in use after each node, in the order of the run; empty if the peak is unknown."""
    room: MemoryRoom | None
    """Whether a run fits into the given memory; null if none was given."""
    fits: list[FittingSize]
    """Largest sizes that fit into the given memory; empty if none was given."""
    assumed: list[Text]
    """Pairs of sizes that meet in one axis and are assumed to be equal, as `a = b`; if given sizes contradict one,
    nothing is assumed."""
    against: CostAgainst | None
    """Closed form of a config's work, for comparison; null without `--against`."""
    measured: CostMeasured | None
    """Run by onnxruntime, for comparison; null without `--measured`."""


class CostModel(Record, frozen=True, kw_only=True):
    """The model."""

    path: Text
    """Path of the model file as given on the command line."""


class CostAxis(Record, frozen=True, kw_only=True):
    """A free axis of the inputs."""

    name: Text
    """Name of the axis in expressions: its name in the file, made a valid name in Python."""
    axis: str | None
    """Name of the axis in the file; null if it has none."""
    input: Text
    """First input that has the axis, and its position there: `input_ids.0`."""
    bound: Annotated[int, Meta(ge=0, extra={"unit": "elements"})] | None
    """Size given by `--shape`; null if none was given."""


class Amount(Record, frozen=True, kw_only=True):
    """A number, as an expression in the axes of the inputs."""

    expression: Text
    """A polynomial in the names of the axes, in Python's syntax; integers are exact, `//` is a floor."""
    value: Annotated[int, Meta(extra={"unit": "as its key says"})] | None
    """Value at the given sizes; null if they do not determine it."""


class CostTotals(Record, frozen=True, kw_only=True):
    """Sums over all nodes."""

    macs: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Multiply-accumulates of convolutions, matrix products, attention and recurrent operators."""
    flops: Annotated[Amount, Meta(extra={"unit": "floating point operations"})]
    """Floating point operations: two for each of `macs`, and those of other operators by `convention`."""
    read_bytes: Annotated[Amount, Meta(extra={"unit": "bytes"})]
    """Bytes that nodes read: weights as they are stored, and activations."""
    written_bytes: Annotated[Amount, Meta(extra={"unit": "bytes"})]
    """Bytes that nodes write."""
    useful_macs: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Multiply-accumulates of `macs` that no causal mask or window of an attention operator discards."""
    intensity: Annotated[float, Meta(ge=0, extra={"unit": "flops a byte"})] | None
    """`flops` divided by the sum of `read_bytes` and `written_bytes`, at the given sizes; null if these do not
    determine it."""


class CostGroup(Record, frozen=True, kw_only=True):
    """One group of nodes."""

    group: str
    """Name of the group."""
    keys: list[str]
    """Parts of the group's name, one for each key."""
    macs: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Multiply-accumulates of its nodes."""
    flops: Annotated[Amount, Meta(extra={"unit": "floating point operations"})]
    """Floating point operations of its nodes."""
    read_bytes: Annotated[Amount, Meta(extra={"unit": "bytes"})]
    """Bytes that its nodes read."""
    written_bytes: Annotated[Amount, Meta(extra={"unit": "bytes"})]
    """Bytes that its nodes write."""
    useful_macs: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Multiply-accumulates of `macs` that no causal mask or window discards."""
    share: Share | None
    """`macs` as a fraction of the total, at the given sizes, or if the fraction is the same at all sizes; else null."""
    nodes: Nodes
    """Number of its nodes that do work."""
    nodes_without_macs: Annotated[int, Meta(ge=0, extra={"unit": "nodes"})] = 0
    """Number of its nodes whose multiply-accumulates are unknown and not in `macs`."""


class CostOperator(Record, frozen=True, kw_only=True):
    """One operator."""

    op_type: Text
    """Name of the operator."""
    domain: Text
    """Domain of the operator; `ai.onnx` is the default one."""
    nodes: Nodes
    """Number of its nodes that do work."""
    nodes_without_macs: Annotated[int, Meta(ge=0, extra={"unit": "nodes"})] = 0
    """Number of its nodes whose multiply-accumulates are unknown and not in `macs`."""
    macs: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Multiply-accumulates of its nodes."""
    flops: Annotated[Amount, Meta(extra={"unit": "floating point operations"})]
    """Floating point operations of its nodes."""


class CostUnknown(Record, frozen=True, kw_only=True):
    """A node whose work is not known."""

    node: Text
    """Name of the node after that of its graph, or the name of its first output."""
    op_type: Text
    """Operator of the node."""
    domain: Text
    """Domain of the operator."""
    reason: Text
    """Reason why its work is unknown."""


class CostAgainst(Record, frozen=True, kw_only=True):
    """Closed form of a config's work beside the work of the file, both in the axes of the inputs."""

    agrees: bool
    """Whether the sum of all terms is the file's work at every size. Fusions move work from one term to another."""
    source: Text
    """The config, as given."""
    family: Text
    """Model family of the config."""
    class_name: Annotated[str, Meta(min_length=1)] = field(name="class")
    """Class of the config in transformers."""
    said: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Sum of all terms of the closed form."""
    found: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Multiply-accumulates of the file."""
    other: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Multiply-accumulates of the file's nodes that are in no term's modules; part of `found`."""
    terms: list[CostTerm]
    """Terms in the order of the closed form."""


class CostTerm(Record, frozen=True, kw_only=True):
    """One kind of product."""

    term: Text
    """Name of the term."""
    formula: Text
    """Closed form over the config's fields, and `batch`, `sequence` and `keys`."""
    said: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Value of `formula` with the config's numbers, in the axes of the inputs."""
    found: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Multiply-accumulates of the file's nodes in the modules of the term."""
    difference: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """`found` - `said`."""


class CostMeasured(Record, frozen=True, kw_only=True):
    """One run by onnxruntime without optimizations, beside the prediction."""

    verdict: Literal["agrees", "differs", "not-compared"]
    """Outcome: `differs` if a shape or the multiply-accumulates differ, or if more memory was requested than
    modelled; `not-compared` if neither shapes nor multiply-accumulates could be compared; `agrees` if all that was
    compared agrees, which `macs` may not be part of."""
    version: Text
    """Version of onnxruntime."""
    at: dict[str, Annotated[int, Meta(ge=0, extra={"unit": "elements"})]]
    """Sizes of the axes in the run."""
    calls: Annotated[int, Meta(ge=0, extra={"unit": "calls"})]
    """Number of kernel executions."""
    shapes: Annotated[int, Meta(ge=0, extra={"unit": "values"})]
    """Number of values whose shapes were compared, counted each time they were made."""
    unknown_shapes: Annotated[int, Meta(ge=0, extra={"unit": "values"})]
    """Number of values whose shape only a run can tell."""
    differing: list[CostDiffering]
    """Values that ran with another shape than predicted, in the order of the run."""
    macs: MeasuredMacs
    """Multiply-accumulates of the run, beside the prediction."""
    memory: list[MeasuredMemory]
    """Memory that was requested, beside the modelled memory; empty without `--memory`, or if the profile does not
    say."""


class CostDiffering(Record, frozen=True, kw_only=True):
    """A value that ran with another shape than predicted."""

    value: str
    """Name of the value."""
    node: str
    """Node that made the value."""
    op_type: Text
    """Operator of that node."""
    expression: Text
    """Predicted shape, as a list in Python syntax."""
    said: list[int]
    """Predicted shape at the sizes of the run."""
    found: list[int]
    """Shape in the run."""


class MeasuredMacs(Record, frozen=True, kw_only=True):
    """Multiply-accumulates of a run, counted from its own shapes, beside the prediction."""

    verdict: Literal["agrees", "differs", "not-compared"]
    """Outcome: `not-compared` if the work of a node is unknown, in the prediction or in the run."""
    said: Annotated[int, Meta(extra={"unit": "multiply-accumulates"})] | None
    """Predicted multiply-accumulates of all nodes; null if they are not a number at these sizes."""
    unknown: Annotated[int, Meta(ge=0, extra={"unit": "nodes"})] = 0
    """Number of nodes whose work is unknown at these sizes, and not in `said`."""
    measured: Annotated[int, Meta(ge=0, extra={"unit": "multiply-accumulates"})] | None
    """Multiply-accumulates of the run; null if a call cannot be counted."""
    why: str
    """Reason why a call cannot be counted; empty if all were counted."""
    operators: dict[str, Annotated[int, Meta(ge=0, extra={"unit": "multiply-accumulates"})]]
    """Multiply-accumulates of the run by operator, most first."""
