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
    """Whether the work of every node is known; where it is not, `unknown` says of which, and the sums lack them."""
    convention: Text
    """What is counted as a multiply-accumulate, and what as a floating point operation, in words."""
    axes: list[CostAxis]
    """The free axes of the inputs, in the order of the file: what the expressions are in."""
    totals: CostTotals
    """Sums over all nodes."""
    by: NodeKeys
    """What the groups are made by: `scope`, `block`, `stage`, `op`, or several of them with commas between; or
    `group`, the user's own."""
    depth: Parts | None
    """Leading parts of a scope, or of a block, that name a group; null where `by` has neither."""
    groups: list[CostGroup]
    """The groups in the order in which they first work; their sums are those of the model."""
    operators: list[CostOperator]
    """The operators, the most multiply-accumulates first."""
    unknown: list[CostUnknown]
    """Nodes whose work is not known, each with its reason."""
    memory: list[MemoryLine]
    """What a run takes on onnxruntime's CPU provider, line by line, at `memory_at`; empty without `--memory`."""
    memory_at: dict[str, Annotated[int, Meta(ge=0, extra={"unit": "elements"})]]
    """The sizes of the axes at which it does: those of `--shape`, and what `time` would take for the others."""
    peak: MemoryPeak | None
    """What holds the peak; null without `--memory`."""
    live: list[LiveStep]
    """What is there after each node, in the order of the run; empty where the peak is not known."""
    room: MemoryRoom | None
    """Whether a run fits; null where no memory was given."""
    fits: list[FittingSize]
    """The largest sizes that fit; empty where no memory was given."""
    assumed: list[Text]
    """Sizes that meet in one axis and were taken to be equal, as `a = b`; sizes that contradict one make it fall."""
    against: CostAgainst | None
    """The closed form of a config beside it; null without `--against`."""
    measured: CostMeasured | None
    """A run by onnxruntime beside it; null without `--measured`."""


class CostModel(Record, frozen=True, kw_only=True):
    """The model."""

    path: Text
    """The model file as it was named on the command line."""


class CostAxis(Record, frozen=True, kw_only=True):
    """A free axis of the inputs."""

    name: Text
    """What it is called in expressions: the name in the file, as Python can read it."""
    axis: str | None
    """What the file calls it; null where it has no name."""
    input: Text
    """The first input that has it, and the position there: `input_ids.0`."""
    bound: Annotated[int, Meta(ge=0, extra={"unit": "elements"})] | None
    """Its size, where `--shape` gave one."""


class Amount(Record, frozen=True, kw_only=True):
    """A number in the axes of the inputs."""

    expression: Text
    """A polynomial in the names of the axes, in Python's syntax; integers are exact, `//` is a floor."""
    value: Annotated[int, Meta(extra={"unit": "as its key says"})] | None
    """The number at the sizes that were given; null where they do not tell."""


class CostTotals(Record, frozen=True, kw_only=True):
    """Sums over all nodes."""

    macs: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Products that convolutions, matrix products, attention and recurrent operators sum."""
    flops: Annotated[Amount, Meta(extra={"unit": "floating point operations"})]
    """Two for each of `macs`, and those of all else by `convention`."""
    read_bytes: Annotated[Amount, Meta(extra={"unit": "bytes"})]
    """What nodes read: weights as they are stored, and activations."""
    written_bytes: Annotated[Amount, Meta(extra={"unit": "bytes"})]
    """What nodes write."""
    useful_macs: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Of `macs`, those that no causal mask or window of an attention operator throws away."""
    intensity: Annotated[float, Meta(ge=0, extra={"unit": "flops a byte"})] | None
    """`flops` by `read_bytes` and `written_bytes`, at the sizes that were given."""


class CostGroup(Record, frozen=True, kw_only=True):
    """One group of nodes."""

    group: str
    """The group's name."""
    keys: list[str]
    """The parts of its name, one for each key."""
    macs: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Multiply-accumulates of its nodes."""
    flops: Annotated[Amount, Meta(extra={"unit": "floating point operations"})]
    """Floating point operations of its nodes."""
    read_bytes: Annotated[Amount, Meta(extra={"unit": "bytes"})]
    """What its nodes read."""
    written_bytes: Annotated[Amount, Meta(extra={"unit": "bytes"})]
    """What its nodes write."""
    useful_macs: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Of its `macs`, those that no causal mask or window throws away."""
    share: Share | None
    """Its `macs` as a fraction of all, at the sizes that were given, or where the fraction is the same at all sizes;
    else null."""
    nodes: Nodes
    """Its nodes that work."""


class CostOperator(Record, frozen=True, kw_only=True):
    """One operator."""

    op_type: Text
    """Its name."""
    domain: Text
    """Its operator set; `ai.onnx` is the default one."""
    nodes: Nodes
    """Nodes of it that work."""
    macs: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Multiply-accumulates of them."""
    flops: Annotated[Amount, Meta(extra={"unit": "floating point operations"})]
    """Floating point operations of them."""


class CostUnknown(Record, frozen=True, kw_only=True):
    """A node whose work is not known."""

    node: Text
    """Its name behind its graph's, or the name of its first output."""
    op_type: Text
    """Its operator."""
    domain: Text
    """The operator set of that."""
    reason: Text
    """Why its work is not known."""


class CostAgainst(Record, frozen=True, kw_only=True):
    """The closed form of a config's work beside the file's, both in the axes of the inputs."""

    agrees: bool
    """Whether all terms together are the file's work at every size. Fusions take work from one term to another."""
    source: Text
    """The config."""
    family: Text
    """Its family."""
    class_name: Annotated[str, Meta(min_length=1)] = field(name="class")
    """Its class in transformers."""
    said: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """The sum of all terms."""
    found: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """What the file does."""
    other: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """Of that, what nodes do that are in no term's modules."""
    terms: list[CostTerm]
    """The terms, in the order of the closed form."""


class CostTerm(Record, frozen=True, kw_only=True):
    """One kind of product."""

    term: Text
    """What it is."""
    formula: Text
    """Over the config's fields, and `batch`, `sequence` and `keys`."""
    said: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """That, with the config's numbers, in the axes of the inputs."""
    found: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """What the file's nodes of these modules do."""
    difference: Annotated[Amount, Meta(extra={"unit": "multiply-accumulates"})]
    """`found` - `said`."""


class CostMeasured(Record, frozen=True, kw_only=True):
    """One run by onnxruntime, with optimizations off, beside what is said without it."""

    verdict: Literal["agrees", "differs", "not-compared"]
    """`differs` where a shape is another, multiply-accumulates are, or more memory was asked for than is modelled."""
    version: Text
    """Of onnxruntime."""
    at: dict[str, Annotated[int, Meta(ge=0, extra={"unit": "elements"})]]
    """The sizes of the axes."""
    calls: Annotated[int, Meta(ge=0, extra={"unit": "calls"})]
    """Kernels that ran, each time that one did."""
    shapes: Annotated[int, Meta(ge=0, extra={"unit": "values"})]
    """Values whose shapes were compared, each time that they were made."""
    unknown_shapes: Annotated[int, Meta(ge=0, extra={"unit": "values"})]
    """Values of which nothing but the run tells the shape."""
    differing: list[CostDiffering]
    """Values that ran in another shape than is said, in the order of the run."""
    macs: MeasuredMacs
    """Multiply-accumulates."""
    memory: list[MeasuredMemory]
    """What was asked for beside what is modelled; empty without `--memory`, and where the profile does not say."""


class CostDiffering(Record, frozen=True, kw_only=True):
    """A value that ran in another shape than is said."""

    value: str
    """Its name."""
    node: str
    """The node that made it."""
    op_type: Text
    """The operator of that."""
    expression: Text
    """The shape that is said, as a list in Python."""
    said: list[int]
    """That, at the sizes of the run."""
    found: list[int]
    """The shape that ran."""


class MeasuredMacs(Record, frozen=True, kw_only=True):
    """Multiply-accumulates of a run, counted from its own shapes, beside what is said."""

    verdict: Literal["agrees", "differs", "not-compared"]
    """`not-compared` where the work of a node is not known, with the run or without."""
    said: Annotated[int, Meta(extra={"unit": "multiply-accumulates"})] | None
    """What is said of all nodes; null where it is not a number at these sizes."""
    measured: Annotated[int, Meta(ge=0, extra={"unit": "multiply-accumulates"})] | None
    """What ran; null where a call cannot be counted."""
    why: str
    """Why one cannot; empty where all were."""
    operators: dict[str, Annotated[int, Meta(ge=0, extra={"unit": "multiply-accumulates"})]]
    """What ran by operator, the most first."""
