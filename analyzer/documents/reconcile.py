"""The documents of `reconcile` and `export`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from analyzer.account.ledger import Match
from analyzer.documents.base import (
    Bytes,
    Count,
    Elements,
    Head,
    Keys,
    Parts,
    Record,
    Stamped,
    Tensors,
    Text,
    TiedNames,
)
from analyzer.documents.shared import Finding, Group, GroupBalance, TreeRow
from analyzer.model.content import ContentMode
from analyzer.reconciliation.lines import Compared, Computes, Line, Reads, Why


class ReconcileDocument(Stamped, frozen=True, kw_only=True):
    """A report of `onnxledger reconcile --format json`."""

    command: Literal["reconcile"] = "reconcile"
    """The command that wrote the document."""
    model: ReconcileModel
    """The file's side."""
    against: dict[str, str]
    """PyTorch's side: what the manifest says of its origin, for people to read; of a checkpoint file `parameters_by`
    says what told parameters from buffers: `meta-device` (its class) or `names`."""
    balanced: bool
    """Whether no tensor is on a line that keeps the account from balancing."""
    content: ContentMode
    """How far values were compared: not at all, at some positions, whole."""
    compared: ComparedElements
    """Elements of PyTorch's parameters, by how far their values were compared."""
    reads: Reads
    """Whether the file computes with its weights as its export did; `not-compared` where no export is known or a tool
    has rewritten the file."""
    wiring: WiringRead
    """Where the weights are read."""
    pytorch: Pytorch
    """What PyTorch counts."""
    onnx: Onnx
    """What the file holds."""
    bridge: list[BridgeLine]
    """Every line, also the empty ones."""
    parameters: list[Parameter]
    """Every PyTorch parameter, in `named_parameters()` order."""
    tensors: list[ReconcileTensor]
    """Every stored tensor, sorted by graph and name."""
    nearest: list[NearestMatch]
    """For tensors that nothing explains, the PyTorch parameter that each is most like; at most 64."""
    by: Keys
    """What the groups are made by: `scope`, `block`, `stage`, `op`, `dtype`, `role`, or several of them with commas
    between; or `bytes`, the accounts, whose bytes sum to the files' sizes; or `group`, the user's own."""
    depth: Parts | None
    """Leading parts of a scope, or of a block, that name a group; null where `by` has neither."""
    match: Match | None
    """Which of the user's groups that match an entry have it: all of them, or the first; null where the groups are not
    the user's."""
    groups_from: Text | None
    """Where the user's groups come from: `--group`, the name of a config, or `preset` and its name, ` (auto)` after it
    where it was found by `--preset auto`; null where the groups are not the user's."""
    groups: list[Group]
    """The groups, in natural order (`layer.2` before `layer.10`), or in the user's."""
    tree: list[TreeRow]
    """The groups under each other, with subtotals, and what repeats folded, depth first."""
    overlap: Annotated[int, Meta(ge=0, extra={"unit": "stored elements"})]
    """What groups count more than once; 0 unless `by` is `group`."""
    ungrouped: Annotated[int, Meta(ge=0, extra={"unit": "stored elements"})]
    """What no group has; 0 unless `by` is `group`."""
    group_balance: GroupBalance
    """The rows that make the groups sum to the totals."""
    findings: list[Finding]
    """What keeps the account from balancing, then what `inspect` finds."""


class ReconcileModel(Record, frozen=True, kw_only=True):
    """The file's side."""

    path: Text
    """The model file as it was named on the command line."""


class ComparedElements(Record, frozen=True, kw_only=True):
    """Elements of PyTorch's parameters, by how far their values were compared."""

    whole: Elements
    """Every element."""
    sampled: Elements
    """Those at some positions, or by sums of rows."""
    none: Elements
    """Names and shapes only, or not in the file."""


class WiringRead(Record, frozen=True, kw_only=True):
    """Where the weights are read."""

    checked: Annotated[int, Meta(ge=0, extra={"unit": "parameters"})]
    """Parameters that would have been found in another one's place."""
    misplaced: Annotated[int, Meta(ge=0, extra={"unit": "parameters"})]
    """Those whose values stand where another's belong: the line `misplaced`."""
    first: Text | None
    """The first module, in the export's order, that computes something else than the exported one; null where none does
    or none can be named."""
    program: Computes = "not-known"
    """Whether the file is the program of PyTorch that the manifest has: `same`, `differs`, `not-known`."""


class Pytorch(Record, frozen=True, kw_only=True):
    """What PyTorch counts."""

    parameters: Elements
    """Elements of all parameters, a tied one once."""
    trainable: Elements
    """Those with `requires_grad`."""
    buffers: Elements
    """Elements of all buffers."""
    tied: list[TiedNames]
    """The names of each parameter that has several, first name first."""


class Onnx(Record, frozen=True, kw_only=True):
    """What the file holds."""

    parameters: Elements
    """Learned elements in the file with the PyTorch side known."""
    parameters_alone: Elements
    """Learned elements as far as the file alone tells: `totals.parameters` of `inspect`."""
    stored_elements: Elements
    """Elements as stored."""


class BridgeLine(Record, frozen=True, kw_only=True):
    """One line of the bridge."""

    line: Line
    """The line, in the order of the table below."""
    tensors: Tensors
    """Parameters and stored tensors on this line."""
    elements: Elements
    """Elements touched."""
    parameter_delta: Annotated[int, Meta(extra={"unit": "elements, signed"})]
    """What the line adds to PyTorch's parameters on the way to the file's."""
    stored_delta: Annotated[int, Meta(extra={"unit": "elements, signed"})]
    """What it adds to PyTorch's parameters on the way to the stored elements."""
    bytes: Bytes
    """Encoded payload of the stored tensors on this line."""


class Parameter(Record, frozen=True, kw_only=True):
    """One PyTorch parameter, and where it went."""

    name: Text
    """Its first name in `named_parameters()` order."""
    shape: list[Count]
    """Dimensions in PyTorch; empty for a scalar."""
    elements: Elements
    """Their product."""
    trainable: bool
    """`requires_grad`."""
    line: Line
    """What became of it; where several lines apply, the one that it is booked on."""
    chain: Annotated[list[Line], Meta(min_length=1)]
    """All lines that apply, in order."""
    entries: list[str]
    """The stored tensors that hold it; the first is the one it is counted in."""
    decided_by: Annotated[str, Meta(pattern="^(content|sampled|provenance|name|structure|none)([:+].+)?$")]
    """The evidence and the rule."""
    max_abs_error: Annotated[float, Meta(ge=0, extra={"unit": "the weights' own"})] | None
    """Largest difference that was found; null where none was taken. Where only digests or positions were compared, it
    is that at the positions, also of what is `differing`."""
    compared: Compared
    """How far its values were compared."""
    why: Why | None
    """On the line `differing`, what is known of its values where they are not simply others: held under another name,
    in another order, the other way round, or not to be had; else null."""
    expression: str | None
    """Where it is held by a value that PyTorch's program computes: that value; else null."""


class ReconcileTensor(Record, frozen=True, kw_only=True):
    """One stored tensor, and where it came from."""

    name: str
    """As `inspect` has it."""
    graph_path: str
    """The graph that it is in, parts joined by `/`; empty for the main graph."""
    line: Line
    """Where it came from."""
    parameter: str | None
    """The PyTorch parameter or buffer that it holds, the first if it holds several; null where it holds none."""
    decided_by: Annotated[str, Meta(pattern="^(content|sampled|provenance|name|structure|none)([:+].+)?$")]
    """The evidence and the rule."""
    expression: str | None
    """On `evaluated`: what PyTorch's program computes there; else null."""


class NearestMatch(Record, frozen=True, kw_only=True):
    """For tensors that nothing explains, the PyTorch parameter that each is most like; at most 64."""

    tensor: str
    """The stored tensor."""
    parameter: Text
    """The PyTorch parameter that it is most like, of as many elements."""
    equal: Elements
    """Of the compared elements, how many agree."""
    compared: Annotated[int, Meta(ge=1, extra={"unit": "elements"})]
    """How many were compared, at some positions."""
    max_abs_error: Annotated[float, Meta(ge=0, extra={"unit": "the weights' own"})] | None
    """Largest difference among them; null where that is no number."""


class ExportDocument(Head, frozen=True, kw_only=True):
    """A report of `onnxledger export --format json`."""

    command: Literal["export"] = "export"
    """The command that wrote the document."""
    files: list[Text]
    """The files that the folder holds after the export, sorted."""
    reconcile: ReconcileDocument
    """The whole document of `reconcile`, run on the files just written."""
