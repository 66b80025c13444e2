"""The document of `compare` on two models."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from analyzer.account.ledger import Match, Role
from analyzer.comparison.record import Change, Status
from analyzer.comparison.record import MatchedBy as TensorMatchedBy
from analyzer.documents.base import (
    Bytes,
    DtypeName,
    Elements,
    Head,
    Keys,
    Parts,
    Positive,
    Record,
    Shape,
    Tensors,
    Text,
)
from analyzer.documents.shared import CountedMacs, GroupsFrom
from analyzer.model.content import ContentMode


class CompareDocument(Head, frozen=True, kw_only=True):
    """A report of `onnxledger compare --format json`."""

    command: Literal["compare"] = "compare"
    """The command that wrote the document."""
    a: Text
    """The first model, as given on the command line."""
    b: Text
    """The second model, as given on the command line."""
    totals: CompareTotals
    """Totals of both models."""
    changes: Changes
    """Number of groups and of tensors with each status."""
    content: Contents
    """Extent to which tensor contents were read on each side; without it, content that is stored twice counts twice."""
    values_compared: ValuesCompared | None
    """Comparison of the values of tensors that are otherwise alike; null if values were not compared."""
    wiring: WiringPair | None
    """Whether both models compute the same with their weights, whatever the values of these; null if a side is a saved
    report, or remote."""
    declared: list[DeclaredPair]
    """Declarations in which the files differ; with inputs and outputs if both sides are models."""
    file_notes: list[DeclaredPair] | UnsetType = UNSET
    """Notes in which the files differ and that compute nothing: producer, doc strings, metadata of the model and its
    graph, but not of nodes; only if both sides are local models."""
    followed: Followed | None
    """Learned tensors of one side, found in the other by their contents; null if nothing searched for them: a side is a
    saved report or remote, both are quantized, or all pairs are alike by name."""
    same_file: bool
    """Whether both sides are the same files, byte by byte; their names may differ."""
    by: Keys
    """Keys by which groups are formed: `scope`, `block`, `stage`, `op`, `dtype`, `role`, or several of them separated
    by commas; or `bytes` for the accounts, whose bytes sum to the file sizes; or `group` for the user's own groups."""
    depth: Parts | None
    """Number of leading parts of a scope or block that name a group; null if `by` has neither."""
    match: Match | None
    """Assignment of an entry that several of the user's groups match: to `all` of them, or to the `first`; null if the
    groups are not the user's."""
    groups_from: GroupsFrom
    """Source of the user's groups; with `--preset auto`, each side has its own."""
    groups: list[GroupPair]
    """Groups of both sides, largest change of bytes first, then of parameters; equal changes in natural order, or in
    the user's."""
    overlap: GroupPair
    """Surplus that the user's groups count more than once."""
    ungrouped: GroupPair
    """Tensors in none of the user's groups."""
    tensors: list[TensorPair]
    """Every stored tensor of both sides, in the same order."""
    macs: ComparedMacs | UnsetType = UNSET
    """Work of one run of each side; only with `--shape`."""


class Pair(Record, frozen=True, kw_only=True):
    """One number on both sides."""

    a: Annotated[int, Meta(ge=0, extra={"unit": "as its key says"})]
    """The number in A; 0 if A lacks it."""
    b: Annotated[int, Meta(ge=0, extra={"unit": "as its key says"})]
    """The number in B; 0 if B lacks it."""
    difference: Annotated[int, Meta(extra={"unit": "as its key says, signed"})]
    """a - b."""
    change: Annotated[int, Meta(extra={"unit": "as its key says, signed"})]
    """b - a."""
    ratio: Positive | None
    """a / b; null if b is 0."""


class CompareTotals(Record, frozen=True, kw_only=True):
    """Totals of both models."""

    parameters: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Logical learned elements."""
    stored_elements: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Elements as stored, over all tensors."""
    stored_bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Bytes of encoded payload of all tensors."""
    bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Sizes of all files on disk."""
    tensors: Annotated[Pair, Meta(extra={"unit": "tensors"})]
    """Number of stored tensors."""
    nodes: Annotated[Pair, Meta(extra={"unit": "nodes"})] | None
    """Number of nodes in all graphs and functions; null if a saved report does not say it."""
    macs: Annotated[Pair, Meta(extra={"unit": "multiply-accumulates"})] | UnsetType = UNSET
    """Work of one run, as far as it is known; only with `--shape`."""


class Statuses(Record, frozen=True, kw_only=True):
    """Number of groups or tensors with each status."""

    unchanged: Annotated[int, Meta(ge=0, extra={"unit": "groups, or tensors"})]
    """Number of those with equal counts and bytes."""
    added: Annotated[int, Meta(ge=0, extra={"unit": "groups, or tensors"})]
    """Number of those that only B has."""
    removed: Annotated[int, Meta(ge=0, extra={"unit": "groups, or tensors"})]
    """Number of those that only A has."""
    changed: Annotated[int, Meta(ge=0, extra={"unit": "groups, or tensors"})]
    """Number of those that both have and that differ."""


class Changes(Record, frozen=True, kw_only=True):
    """Number of groups and of tensors with each status."""

    groups: Statuses
    """Statuses of the rows of `groups`."""
    tensors: Statuses
    """Statuses of the rows of `tensors`."""


class Contents(Record, frozen=True, kw_only=True):
    """Extent to which tensor contents were read on each side.

    Without it, content that is stored twice counts twice.
    """

    a: ContentMode
    """Extent for A."""
    b: ContentMode
    """Extent for B."""


class ValuesCompared(Record, frozen=True, kw_only=True):
    """Comparison of the values of tensors that are otherwise alike."""

    content: Literal["sampled", "full"]
    """Extent of the comparison: values at some positions (`sampled`), or all (`full`)."""
    equal: Tensors
    """Number of tensors with the same values."""
    differing: Tensors
    """Number of tensors with different values; they are `changed`."""
    unknown: Tensors
    """Number of tensors whose values could not be read and compared."""


class Followed(Record, frozen=True, kw_only=True):
    """Learned tensors of one side, found in the other by their contents."""

    content: Literal["sampled", "full"]
    """Extent of the comparison: values at some positions (`sampled`), or all (`full`)."""
    whole: bool
    """Whether every learned tensor was found in the other side, in any orientation, type or code, and no learned tensor
    is left over: both sides hold the same parameters."""
    cut: Tensors
    """Number of tensors that the other side has only in part, or lacks without contradiction, such as rows of a table
    that it does not need; `whole` may be true nevertheless."""
    tensors: Tensors
    """Number of learned tensors that were found."""


class WiringPair(Record, frozen=True, kw_only=True):
    """Whether both models compute the same with their weights, whatever the values of these."""

    alike: bool
    """Whether all outputs have the same digest: of operators, attributes, constants by value, and the two tensors of a
    pair as one weight."""
    first: str | None
    """First module of A that is wired differently in B; null if they are alike, or no module can be named."""


class DeclaredPair(Record, frozen=True, kw_only=True):
    """Declaration in which the files differ."""

    what: Text
    """Name of the declaration: `opset ai.onnx`, `IR version`, `input x`, `output y`, `order of inputs`, `order of
    outputs`, `training_info`; for notes `producer`, `domain`, `model version`, `doc string`, `metadata KEY`, `graph
    name`, `doc string of the graph`, `metadata of the graph`, `header`."""
    a: Text | None
    """Declaration in A, such as `17`, `FLOAT n x 8`, `sequence of FLOAT n x 8`, with names as in the file; null if A
    has none."""
    b: Text | None
    """Declaration in B; null if B has none."""


class GroupPair(Record, frozen=True, kw_only=True):
    """One group on both sides."""

    group: str
    """Name of the group; empty for `overlap` and `ungrouped` if the groups are not the user's."""
    keys: list[str]
    """Parts of the group's name, one for each key; a user's own group has one."""
    status: Status
    """Change from A to B; `unchanged` compares counts and bytes, not values."""
    parameters: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Logical learned elements."""
    stored_elements: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Elements as stored."""
    bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Bytes of encoded payload."""
    tensors: Annotated[Pair, Meta(extra={"unit": "tensors"})]
    """Number of stored tensors."""
    macs: Annotated[Pair, Meta(extra={"unit": "multiply-accumulates"})] | UnsetType = UNSET
    """Work of one run, as far as it is known; only with `--shape`."""
    nodes_without_macs: Annotated[Pair, Meta(extra={"unit": "nodes"})] | UnsetType = UNSET
    """Number of nodes whose work is unknown and not in `macs`; only together with `macs`."""


class ComparedMacs(Record, frozen=True, kw_only=True):
    """Work of one run of each side; only with `--shape`."""

    a: CountedMacs
    """Work of A."""
    b: CountedMacs
    """Work of B."""


class TensorSide(Record, frozen=True, kw_only=True):
    """A stored tensor on one side."""

    name: str
    """Name of the tensor on this side."""
    group: str | None
    """Group of the tensor on this side, the first if several of the user's groups have it; null if the comparison knows
    no groups."""
    dtype: DtypeName
    """ONNX element type; `UNDEFINED` for a type number that this version does not know."""
    shape: Shape
    """Dimensions; empty for a scalar. An invalid file may have a negative one, which a finding reports."""
    role: Role
    """Role of the tensor."""
    parameters: Elements
    """Logical learned elements: 0 for a copy, K x N for a packed 4-bit weight."""
    stored_elements: Elements
    """Product of a dense shape, number of stored values of a sparse tensor, or length of a list."""
    bytes: Bytes
    """Bytes of encoded payload on disk; 0 if the tensor's file is missing."""
    copy_of: str | None
    """Tensor whose content it repeats, with its graph if that is not the main graph; else null."""


class TensorPair(Record, frozen=True, kw_only=True):
    """One stored tensor on both sides."""

    name: str
    """Name of the tensor in B, or in A if B lacks it."""
    graph_path: str
    """Path of the tensor's graph; empty for the main graph."""
    group: str | None
    """Group of the tensor in B, or in A if B lacks it; null if the comparison knows no groups."""
    status: Status
    """Change from A to B; `unchanged` says nothing about values unless `values_compared` is present."""
    matched_by: TensorMatchedBy | None
    """Basis of the match: the name, the PyTorch tensors that the tensor is computed from, or its content; null if one
    side lacks it."""
    changed: Annotated[list[Change], Meta(extra_json_schema={"uniqueItems": True})]
    """Properties that differ; empty unless `status` is `changed`."""
    line: Text | None
    """Change of its values, in the words of the bridge of `reconcile`; for a tensor that one side lacks, that the other
    side holds it in one piece with another. Null if the tensor was not searched for."""
    a: TensorSide | None
    """The tensor in A; null if A lacks it."""
    b: TensorSide | None
    """The tensor in B; null if B lacks it."""
    parameters: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Logical learned elements that count here; 0 for a copy."""
    stored_elements: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Elements as stored."""
    bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Bytes of encoded payload."""
