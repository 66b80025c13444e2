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
    """The first model, as it was named."""
    b: Text
    """The second model, as it was named."""
    totals: CompareTotals
    """Both models whole."""
    changes: Changes
    """How many groups and tensors have each status."""
    content: Contents
    """How far contents were looked at when each side was read: where they were not, what is stored twice counts twice.
    """
    values_compared: ValuesCompared | None
    """Of the tensors that are otherwise alike, how many have the same values; null where values were not compared."""
    wiring: WiringPair | None
    """Whether both compute the same with their weights, whatever these are; null where a side is a saved report, or
    remote."""
    declared: list[DeclaredPair]
    """What the files say of themselves otherwise; inputs and outputs where both sides are models."""
    file_notes: list[DeclaredPair] | UnsetType = UNSET
    """What the files note otherwise, and computes nothing: producer, doc strings, metadata of the model and its graph,
    but not of nodes; only where both sides are local models."""
    followed: Followed | None
    """What became of the learned tensors of one side, by their contents; null where that was not asked: a side is a
    saved report or remote, both are quantized, or all pairs are alike by name."""
    same_file: bool
    """Whether both sides are the same files, byte by byte; their names may differ."""
    by: Keys
    """What the groups are made by: `scope`, `block`, `stage`, `op`, `dtype`, `role`, or several of them with commas
    between; or `bytes`, the accounts, whose bytes sum to the files' sizes; or `group`, the user's own."""
    depth: Parts | None
    """Leading parts of a scope, or of a block, that name a group; null where `by` has neither."""
    match: Match | None
    """Which of the user's groups that match an entry have it: all of them, or the first; null where the groups are not
    the user's."""
    groups_from: GroupsFrom
    """Where the user's groups come from; of `--preset auto`, each side's own."""
    groups: list[GroupPair]
    """The groups of both, the largest change of bytes first, then of parameters; what changed alike in natural order,
    or in the user's."""
    overlap: GroupPair
    """What the user's groups count more than once."""
    ungrouped: GroupPair
    """What no group of the user's has."""
    tensors: list[TensorPair]
    """Every stored tensor of both, in the same order."""
    macs: ComparedMacs | UnsetType = UNSET
    """The work of a run of each; only with `--shape`."""


class Pair(Record, frozen=True, kw_only=True):
    """One number on both sides."""

    a: Annotated[int, Meta(ge=0, extra={"unit": "as its key says"})]
    """The number in A; 0 where A lacks it."""
    b: Annotated[int, Meta(ge=0, extra={"unit": "as its key says"})]
    """The number in B; 0 where B lacks it."""
    difference: Annotated[int, Meta(extra={"unit": "as its key says, signed"})]
    """a - b."""
    change: Annotated[int, Meta(extra={"unit": "as its key says, signed"})]
    """b - a."""
    ratio: Positive | None
    """a / b; null where b is 0."""


class CompareTotals(Record, frozen=True, kw_only=True):
    """Both models whole."""

    parameters: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Logical learned elements."""
    stored_elements: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Elements as stored."""
    stored_bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Encoded payload of all tensors."""
    bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Sizes of all files on disk."""
    tensors: Annotated[Pair, Meta(extra={"unit": "tensors"})]
    """Stored tensors."""
    nodes: Annotated[Pair, Meta(extra={"unit": "nodes"})] | None
    """Nodes of all graphs and functions; null where a saved report does not say how many there were."""
    macs: Annotated[Pair, Meta(extra={"unit": "multiply-accumulates"})] | UnsetType = UNSET
    """The work of a run, as far as it is known; only with `--shape`."""


class Statuses(Record, frozen=True, kw_only=True):
    """How many have each status."""

    unchanged: Annotated[int, Meta(ge=0, extra={"unit": "groups, or tensors"})]
    """Those whose counts and bytes are the same."""
    added: Annotated[int, Meta(ge=0, extra={"unit": "groups, or tensors"})]
    """Those that only B has."""
    removed: Annotated[int, Meta(ge=0, extra={"unit": "groups, or tensors"})]
    """Those that only A has."""
    changed: Annotated[int, Meta(ge=0, extra={"unit": "groups, or tensors"})]
    """Those of both that differ."""


class Changes(Record, frozen=True, kw_only=True):
    """How many groups and tensors have each status."""

    groups: Statuses
    """Rows of `groups`."""
    tensors: Statuses
    """Rows of `tensors`."""


class Contents(Record, frozen=True, kw_only=True):
    """How far contents were looked at when each side was read.

    Where they were not, what is stored twice counts twice.
    """

    a: ContentMode
    """Of A."""
    b: ContentMode
    """Of B."""


class ValuesCompared(Record, frozen=True, kw_only=True):
    """Of the tensors that are otherwise alike, how many have the same values; null where values were not compared."""

    content: Literal["sampled", "full"]
    """Which values were compared: those at some positions, or all."""
    equal: Tensors
    """Tensors whose values are the same."""
    differing: Tensors
    """Tensors whose values are not; they are `changed`."""
    unknown: Tensors
    """Tensors whose values could not be compared: what could not be read."""


class Followed(Record, frozen=True, kw_only=True):
    """What became of the learned tensors of one side, by their contents; null where that was not asked."""

    content: Literal["sampled", "full"]
    """Which values were compared: those at some positions, or all."""
    whole: bool
    """Whether every learned tensor was found in the other side, in whatever orientation, type or code, and nothing
    learned is left over: both hold the same parameters."""
    cut: Tensors
    """Of `whole`, how many the other side has only in part: rows of a table that it does not need."""
    tensors: Tensors
    """Learned tensors that were found."""


class WiringPair(Record, frozen=True, kw_only=True):
    """Whether both compute the same with their weights, whatever these are; null where a side is a saved report.

    Or remote.
    """

    alike: bool
    """Whether all outputs have one digest: operators, attributes, constants by value, the two tensors of a pair as one
    weight."""
    first: str | None
    """The first module of A that is wired otherwise in B; null where they are alike, or no module can be named."""


class DeclaredPair(Record, frozen=True, kw_only=True):
    """What the files say of themselves otherwise."""

    what: Text
    """`opset ai.onnx`, `IR version`, `input x`, `output y`, `order of inputs`, `order of outputs`, `training_info`;
    of notes `producer`, `domain`, `model version`, `doc string`, `metadata KEY`, `graph name`, `doc string of the
    graph`, `metadata of the graph`, `header`."""
    a: Text | None
    """What A says, as `17`, `FLOAT n x 8`, `sequence of FLOAT n x 8`, names as the file has them; null where it says
    nothing."""
    b: Text | None
    """What B says; null where it says nothing."""


class GroupPair(Record, frozen=True, kw_only=True):
    """One group on both sides."""

    group: str
    """The group's name; empty for `overlap` and `ungrouped` without groups of the user's."""
    keys: list[str]
    """The parts of its name, one for each key; the user's own groups have one."""
    status: Status
    """What happened on the way from A to B; `unchanged` compares counts and bytes, not values."""
    parameters: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Logical learned elements."""
    stored_elements: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Elements as stored."""
    bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Encoded payload."""
    tensors: Annotated[Pair, Meta(extra={"unit": "tensors"})]
    """Stored tensors."""
    macs: Annotated[Pair, Meta(extra={"unit": "multiply-accumulates"})] | UnsetType = UNSET
    """The work of a run, as far as it is known; only with `--shape`."""
    nodes_without_macs: Annotated[Pair, Meta(extra={"unit": "nodes"})] | UnsetType = UNSET
    """Nodes whose work is not known, and is not among `macs`; only beside it."""


class ComparedMacs(Record, frozen=True, kw_only=True):
    """The work of a run of each side; only with `--shape`."""

    a: CountedMacs
    """Of A."""
    b: CountedMacs
    """Of B."""


class TensorSide(Record, frozen=True, kw_only=True):
    """The tensor in A; null where A lacks it."""

    name: str
    """Its name there."""
    group: str | None
    """The group that it is in there; of the user's own the first that has it; null where the comparison was not told
    whose groups these are."""
    dtype: DtypeName
    """ONNX element type; `UNDEFINED` for a number that this version does not know."""
    shape: Shape
    """Dimensions; empty for a scalar. A file may claim one below 0, which a finding tells."""
    role: Role
    """What it is."""
    parameters: Elements
    """Logical learned elements: 0 for a copy, K x N for a packed 4-bit weight."""
    stored_elements: Elements
    """The product of a dense shape, the stored values of a sparse tensor, a list's length."""
    bytes: Bytes
    """Encoded payload on disk; 0 where its file is missing."""
    copy_of: str | None
    """The tensor whose content it repeats, with its graph where that is not the main one; else null."""


class TensorPair(Record, frozen=True, kw_only=True):
    """One stored tensor on both sides."""

    name: str
    """Its name in B, else in A."""
    graph_path: str
    """The graph that it is in; empty for the main graph."""
    group: str | None
    """The group that it is in, in B, else in A; null where the comparison was not told whose groups these are."""
    status: Status
    """What happened on the way from A to B; `unchanged` says nothing of its values, unless `values_compared` is there.
    """
    matched_by: TensorMatchedBy | None
    """How the one was found in the other: by its name, by the PyTorch tensors that it is computed from, or by its
    content; null where one side lacks it."""
    changed: Annotated[list[Change], Meta(extra_json_schema={"uniqueItems": True})]
    """What differs; empty unless its status is `changed`."""
    line: Text | None
    """What became of its values, in the words of the bridge of `reconcile`; of a tensor that one side lacks, that the
    other holds it in one piece with another. Null where it was not followed."""
    a: TensorSide | None
    """The tensor in A; null where A lacks it."""
    b: TensorSide | None
    """The tensor in B; null where B lacks it."""
    parameters: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Logical learned elements that count here; of a copy none."""
    stored_elements: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Elements as stored."""
    bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Encoded payload."""
