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
    """The model file."""
    against: dict[str, str]
    """Origin of the PyTorch side as its manifest states it, for people to read; for a checkpoint file, `parameters_by`
    says how parameters were told from buffers: by its class (`meta-device`), by the whole module in it
    (`pickled-module`) or by `names`."""
    balanced: bool
    """Whether no tensor is on a line that keeps the account from balancing."""
    content: ContentMode
    """Extent of the comparison of values: none, at some positions (`sampled`), or whole (`full`)."""
    compared: ComparedElements
    """Elements of PyTorch's parameters, by the extent to which their values were compared."""
    reads: Reads
    """Whether the file computes with its weights as its export did; `not-compared` if no export is known, or a tool has
    rewritten the file."""
    wiring: WiringRead
    """Check of the places where weights are read."""
    pytorch: Pytorch
    """Counts of the PyTorch side."""
    onnx: Onnx
    """Counts of the ONNX file."""
    bridge: list[BridgeLine]
    """Every line of the bridge, even an empty one."""
    parameters: list[Parameter]
    """Every PyTorch parameter, in `named_parameters()` order."""
    tensors: list[ReconcileTensor]
    """Every stored tensor, sorted by graph and name."""
    nearest: list[NearestMatch]
    """PyTorch parameter that is most similar to each tensor that nothing explains; at most 64."""
    by: Keys
    """Keys by which groups are formed: `scope`, `block`, `stage`, `op`, `dtype`, `role`, or several of them separated
    by commas; or `bytes` for the accounts, whose bytes sum to the file sizes; or `group` for the user's own groups."""
    depth: Parts | None
    """Number of leading parts of a scope or block that name a group; null if `by` has neither."""
    match: Match | None
    """Assignment of an entry that several of the user's groups match: to `all` of them, or to the `first`; null if the
    groups are not the user's."""
    groups_from: Text | None
    """Source of the user's groups: `--group`, the name of a config, or `preset` and its name, followed by ` (auto)` if
    `--preset auto` found it; null if the groups are not the user's."""
    groups: list[Group]
    """Groups in natural order (`layer.2` before `layer.10`), or in the user's order."""
    tree: list[TreeRow]
    """Groups as a tree, depth first, with subtotals, and repeated groups folded into one row."""
    overlap: Annotated[int, Meta(ge=0, extra={"unit": "stored elements"})]
    """Stored elements that groups count more than once; 0 unless `by` is `group`."""
    ungrouped: Annotated[int, Meta(ge=0, extra={"unit": "stored elements"})]
    """Stored elements in no group; 0 unless `by` is `group`."""
    group_balance: GroupBalance
    """The rows that make the groups sum to the totals."""
    findings: list[Finding]
    """Findings that keep the account from balancing, then those of `inspect`."""


class ReconcileModel(Record, frozen=True, kw_only=True):
    """The model file."""

    path: Text
    """Path of the model file as given on the command line."""


class ComparedElements(Record, frozen=True, kw_only=True):
    """Elements of PyTorch's parameters, by the extent to which their values were compared."""

    whole: Elements
    """Elements of parameters of which every element was compared, perhaps by a digest."""
    sampled: Elements
    """Elements of parameters that were compared at some positions, or by sums of rows."""
    none: Elements
    """Elements of parameters that were compared by name and shape only, or are not in the file."""


class WiringRead(Record, frozen=True, kw_only=True):
    """Check of the places where weights are read."""

    checked: Annotated[int, Meta(ge=0, extra={"unit": "parameters"})]
    """Number of parameters that would have been found in the place of another."""
    misplaced: Annotated[int, Meta(ge=0, extra={"unit": "parameters"})]
    """Number of parameters whose values are in the place of another: the line `misplaced`."""
    first: Text | None
    """First module, in the export's order, whose computation differs from the exported one; null if none does, or none
    can be named."""
    program: Computes = "not-known"
    """Whether the file computes the PyTorch program in the manifest: `same`, `differs` or `not-known`."""


class Pytorch(Record, frozen=True, kw_only=True):
    """Counts of the PyTorch side."""

    parameters: Elements
    """Elements of all parameters, a tied one counted once."""
    trainable: Elements
    """Elements of the parameters with `requires_grad`."""
    buffers: Elements
    """Elements of all buffers."""
    tied: list[TiedNames]
    """Names of each parameter that has several, first name first."""


class Onnx(Record, frozen=True, kw_only=True):
    """Counts of the ONNX file."""

    parameters: Elements
    """Learned elements in the file, as far as the file and the PyTorch side tell."""
    parameters_alone: Elements
    """Learned elements as far as the file alone tells: `totals.parameters` of `inspect`."""
    stored_elements: Elements
    """Elements as stored."""


class BridgeLine(Record, frozen=True, kw_only=True):
    """One line of the bridge."""

    line: Line
    """Name of the line; every report lists the lines in the same order."""
    tensors: Tensors
    """Number of parameters and stored tensors on this line."""
    elements: Elements
    """Elements that the line affects."""
    parameter_delta: Annotated[int, Meta(extra={"unit": "elements, signed"})]
    """Elements that the line adds to PyTorch's parameters on the way to the file's parameters."""
    stored_delta: Annotated[int, Meta(extra={"unit": "elements, signed"})]
    """Elements that the line adds to PyTorch's parameters on the way to the stored elements."""
    bytes: Bytes
    """Encoded payload of the stored tensors on this line."""


class Parameter(Record, frozen=True, kw_only=True):
    """One PyTorch parameter and its place in the file."""

    name: Text
    """First name of the parameter, in `named_parameters()` order."""
    shape: list[Count]
    """Dimensions in PyTorch; empty for a scalar."""
    elements: Elements
    """Number of elements of the parameter."""
    trainable: bool
    """Whether the parameter has `requires_grad`."""
    line: Line
    """Line of the bridge for the parameter; of several that apply, the one that it is booked on."""
    chain: Annotated[list[Line], Meta(min_length=1)]
    """All lines of the bridge that apply, in order."""
    entries: list[str]
    """Stored tensors that hold the parameter; it is counted in the first."""
    decided_by: Annotated[str, Meta(pattern="^(content|sampled|provenance|name|structure|none)([:+].+)?$")]
    """Evidence and rule that decided the line."""
    max_abs_error: Annotated[float, Meta(ge=0, extra={"unit": "the weights' own"})] | None
    """Largest difference found; null if none was measured. If only digests or positions were compared, it is the
    difference at the positions, also for `differing`."""
    compared: Compared
    """Extent of the comparison of the parameter's values."""
    why: Why | None
    """Explanation of `differing` beyond plainly different values: held under another name, in another order,
    transposed, or not readable; else null."""
    expression: str | None
    """Value computed by PyTorch's program that holds the parameter; else null."""


class ReconcileTensor(Record, frozen=True, kw_only=True):
    """One stored tensor and its origin."""

    name: str
    """Name of the tensor, as in `inspect`."""
    graph_path: str
    """Path of the tensor's graph, parts joined by `/`; empty for the main graph."""
    line: Line
    """Line of the bridge that says where the tensor came from."""
    parameter: str | None
    """PyTorch parameter or buffer that the tensor holds, the first if there are several; null if it holds none."""
    decided_by: Annotated[str, Meta(pattern="^(content|sampled|provenance|name|structure|none)([:+].+)?$")]
    """Evidence and rule that decided the line."""
    expression: str | None
    """Value that PyTorch's program computes there, on the line `evaluated`; else null."""


class NearestMatch(Record, frozen=True, kw_only=True):
    """PyTorch parameter that is most similar to a tensor that does not balance."""

    tensor: str
    """The stored tensor."""
    parameter: Text
    """Most similar PyTorch parameter with the same number of elements."""
    equal: Elements
    """Number of compared elements that agree."""
    compared: Annotated[int, Meta(ge=1, extra={"unit": "elements"})]
    """Number of elements that were compared: all, or those at some positions."""
    max_abs_error: Annotated[float, Meta(ge=0, extra={"unit": "the weights' own"})] | None
    """Largest difference among the compared elements; null if it is not a finite number, or unknown."""


class ExportDocument(Head, frozen=True, kw_only=True):
    """A report of `onnxledger export --format json`."""

    command: Literal["export"] = "export"
    """The command that wrote the document."""
    files: list[Text]
    """Files in the folder after the export, sorted."""
    reconcile: ReconcileDocument
    """The whole document of `reconcile`, run on the files just written."""
