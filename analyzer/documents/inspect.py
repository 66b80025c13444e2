"""The document of `inspect` on one model."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from analyzer.account.ledger import Evidence, Match, Role
from analyzer.account.summary import Scheme
from analyzer.documents.base import (
    Bytes,
    Count,
    DtypeName,
    Elements,
    Keys,
    Nodes,
    Parts,
    Record,
    Shape,
    SignedElements,
    Stamped,
    Tensors,
    Text,
)
from analyzer.documents.shared import CountedMacs, Finding, Group, GroupBalance, TreeRow
from analyzer.model import Carrier
from analyzer.model.content import ContentMode


class InspectDocument(Stamped, frozen=True, kw_only=True):
    """A report of `onnxledger inspect --format json`."""

    command: Literal["inspect"] = "inspect"
    """The command that wrote the document."""
    model: Model
    """The model as read."""
    totals: Totals
    """Sums over the whole model."""
    components: list[Component]
    """Files of an artifact, in order; empty if the model is one file."""
    content: ContentMode
    """Extent to which tensor contents were read, to find copies and broken weights."""
    roles: Roles
    """Sums by role, for every role, even one without tensors."""
    operators: list[Operator]
    """Every operator, most nodes first; their parameters sum to those of `totals`."""
    quantization: list[Quantization]
    """Quantization schemes of the learned tensors, most parameters first; empty if none is quantized."""
    accounts: list[Account]
    """Bytes of the files, by account."""
    dtypes: list[DtypeTotals]
    """Sums by element type, sorted by name."""
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
    blocks: list[Block] | None
    """Runs of blocks that repeat each other, in order; null if nothing has searched for them."""
    stages: list[Text] | None
    """Stages of a convolutional trunk, in the order of their first computation; null if there is none."""
    tensors: list[Tensor]
    """Every stored tensor, sorted by graph and name."""
    findings: list[Finding]
    """Findings, sorted by id."""
    macs: CountedMacs | UnsetType = UNSET
    """Work of one run; only with `--shape` or `-v`."""


class File(Record, frozen=True, kw_only=True):
    """One file of the model."""

    path: Text
    """Path of the file, relative to the folder of the model or artifact."""
    bytes: Bytes
    """Size of the file on disk."""
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | UnsetType = UNSET
    """SHA-256 of the whole file, in hexadecimal; only with `--digest`."""


class Call(Record, frozen=True, kw_only=True):
    """Calls of one local function."""

    function: Text
    """Path of the function's graph, as in `graph_path`."""
    sites: Nodes
    """Number of nodes that call the function."""
    calls: Annotated[int, Meta(ge=0, extra={"unit": "calls"})] | None
    """Number of copies of the function's body if every call is inlined and each body of If, Loop and Scan counts once;
    null if functions that call each other in a cycle call it, or above 2^128."""


class Remote(Record, frozen=True, kw_only=True):
    """Requests and bytes for reading a remote model; null for a local file."""

    requests: Annotated[int, Meta(ge=1, extra={"unit": "requests"})]
    """Number of requests made."""
    bytes_read: Bytes
    """Bytes read, over all files of the model."""
    redirected_to: str | None
    """Final location of the model file after redirects; null if there were none."""


class Value(Record, frozen=True, kw_only=True):
    """An input or an output of the model."""

    name: str
    """Name of the value; in an artifact, preceded by the name of its component."""
    dtype: DtypeName
    """ONNX element type; `UNDEFINED` if the value is no tensor."""
    shape: list[int | str | None] | None
    """Dimensions, each a size, an axis name, or null if neither is known; null as a whole if the rank is unknown."""


class Operator(Record, frozen=True, kw_only=True):
    """One operator, with its nodes and the parameters that it computes with."""

    op_type: str
    """Name of the operator; empty for tensors that no node computes with."""
    domain: str
    """Domain of the operator; `ai.onnx` is the default one."""
    nodes: Nodes
    """Number of its nodes in all graphs and functions."""
    parameters: Elements
    """Logical learned elements of the tensors that this operator is the first to compute with, after nodes that only
    move or decode them."""


class Quantization(Record, frozen=True, kw_only=True):
    """Learned tensors that are stored as codes in one way."""

    scheme: Scheme
    """`block`: blocks with a scale each; `qdq`: DequantizeLinear before the operator that computes; `qoperator`:
    operators that compute on codes; `dynamic`: the other operand is quantized at run time; `codes`: nothing says how
    they are decoded."""
    bits: Annotated[int, Meta(ge=0, extra={"unit": "bits"})]
    """Bits of each code."""
    block_size: Annotated[int, Meta(ge=1, extra={"unit": "elements"})] | None
    """Number of elements that share a scale; null if a channel or the whole tensor shares one."""
    tensors: Tensors
    """Number of learned tensors stored in this way."""
    parameters: Elements
    """Logical learned elements of these tensors."""


class Model(Record, frozen=True, kw_only=True):
    """The model as read."""

    path: Text
    """Path of the model as given, or the folder of an artifact; a URL without user, password and query."""
    files: Annotated[list[File], Meta(min_length=1)]
    """The model file, or those of all components of an artifact in order; then the external data files, sorted."""
    ir_version: int
    """Version of the ONNX intermediate representation that the file states; for an artifact, the highest."""
    opsets: dict[str, int]
    """Operator set version by domain; for an artifact, the highest. The default domain is `ai.onnx`."""
    producer: str
    """Name and version of the program that wrote the file or files; empty if they do not say."""
    inputs: list[Value]
    """Inputs that a caller feeds, in file order."""
    outputs: list[Value]
    """Outputs that a caller receives, in file order."""
    nodes: Nodes
    """Number of nodes in all graphs and functions."""
    functions: Annotated[int, Meta(ge=0, extra={"unit": "functions"})]
    """Number of model-local functions."""
    nested_graphs: Annotated[int, Meta(ge=0, extra={"unit": "graphs"})]
    """Number of bodies of If, Loop and Scan, at any depth."""
    calls: list[Call]
    """Calls of each local function, in file order."""
    remote: Remote | None
    """Requests and bytes for reading a remote model; null for a local file."""


class Totals(Record, frozen=True, kw_only=True):
    """Sums over the whole model."""

    parameters: Elements
    """Logical learned elements in the files, each once, as far as the files alone tell. If a norm was folded into a
    layer, PyTorch had more, and this is below `parameters_at_least`."""
    parameters_at_least: Elements
    """Lower bound of PyTorch's count: tensors that were not compared may be copies, a value computed from parameters
    may come from few of them, and a norm folded into a layer had some more."""
    parameters_at_most: Elements | None
    """Upper bound of PyTorch's count: opaque data may be learned, one name in two files may stand for two tensors, and
    a folded norm had parameters. Null if there is no bound, as something was computed from parameters."""
    parameters_unsettled: list[Text]
    """Reasons why `parameters_at_least` and `parameters_at_most` differ, in words."""
    opaque_elements: Elements
    """Largest number of elements in data that takes part in the computation and that no rule explains: the finding
    `opaque`."""
    basis: Basis
    """Stored elements by the kind of evidence that decided their role."""
    stored_tensors: Tensors
    """Number of stored tensors of every carrier."""
    stored_elements: Elements
    """Elements as stored."""
    stored_bytes: Bytes
    """Bytes of encoded payload; a byte that two tensors share counts for both."""
    shared_bytes: Bytes
    """Bytes in `stored_bytes` that several tensors claim, counted beyond the first claim; `accounts` hold each byte
    once."""
    duplicated_bytes: Bytes
    """Bytes in `stored_bytes` of learned tensors that are in more than one file of an artifact, counted beyond the
    first."""
    wasted_bytes: Bytes
    """Bytes without use, each once: copies, unused initializers, metadata of nodes, bytes that no reader sees."""
    file_bytes: Bytes
    """Sizes of all files on disk."""


class Component(Record, frozen=True, kw_only=True):
    """One file of an artifact."""

    component: str
    """Name of the component: as in `export.json`, else its file name without the suffix."""
    path: Text
    """Path of the component's model file, relative to the artifact's folder."""
    ir_version: int
    """Version of the ONNX intermediate representation that this file states."""
    opsets: dict[str, int]
    """Operator set version by domain, as this file states."""
    producer: str
    """Name and version of the program that wrote this file; empty if it does not say."""
    nodes: Nodes
    """Number of nodes in all graphs and functions of the component."""
    parameters: Elements
    """Logical learned elements in the component; elements that another component also holds count here as well."""
    stored_tensors: Tensors
    """Number of stored tensors in the component, of every carrier."""
    stored_elements: Elements
    """Stored elements of the component."""
    stored_bytes: Bytes
    """Bytes of encoded payload in the component."""
    duplicated_bytes: Bytes
    """Bytes in `stored_bytes` of learned tensors that count in another component."""
    file_bytes: Bytes
    """Sizes of the component's model file and of all files it refers to; a shared file counts for each component."""


class RoleTotals(Record, frozen=True, kw_only=True):
    """Sums over the tensors of one role."""

    tensors: Tensors
    """Number of stored tensors."""
    stored_elements: Elements
    """Elements as stored."""
    parameters: Elements
    """Logical learned elements; 0 for every role but `parameter`."""
    bytes: Bytes
    """Bytes of encoded payload."""


class Account(Record, frozen=True, kw_only=True):
    """One account of bytes."""

    account: Text
    """Name of the account: a role's payload, or one of the other accounts."""
    bytes: Bytes
    """Bytes on disk, each booked once."""


class DtypeTotals(Record, frozen=True, kw_only=True):
    """Sums over the tensors of one element type."""

    dtype: DtypeName
    """ONNX element type."""
    tensors: Tensors
    """Number of stored tensors of this type."""
    stored_elements: Elements
    """Stored elements of this type."""
    bytes: Bytes
    """Bytes of encoded payload of this type."""


class Block(Record, frozen=True, kw_only=True):
    """One run of blocks that repeat each other."""

    first: Count
    """Number of the first block of the run."""
    count: Annotated[int, Meta(ge=1, extra={"unit": "blocks"})]
    """Number of blocks in the run."""
    modules: list[str]
    """PyTorch module of each block, in order; empty if names do not tell."""
    decided_by: Annotated[str, Meta(pattern="^(content|provenance|name|structure|none):.+$")]
    """Evidence and rule that found the run."""


class Hides(Record, frozen=True, kw_only=True):
    """Range of the parameters that PyTorch had in a tensor's place beyond its own count, and the reason for it."""

    at_least: SignedElements
    """Least number of parameters beyond the tensor's own count; negative if PyTorch may have had fewer."""
    at_most: Elements | None
    """Largest number of parameters beyond the tensor's own count; null if there is no bound."""
    why: Literal[
        "batchnorm", "factor", "bias", "computed", "padding", "buffer", "merged", "repeated", "copy", "scalar"
    ]
    """Change made to the values before they were stored, or another meaning that they may have."""


Roles = Annotated[
    dict[Role, RoleTotals],
    Meta(extra_json_schema={"required": list(Role), "propertyNames": {"enum": list(Role)}}),
]
"""Sums of each role, also of a role without tensors."""

Basis = Annotated[
    dict[Evidence, Elements],
    Meta(extra_json_schema={"required": list(Evidence), "propertyNames": {"enum": list(Evidence)}}),
]
"""Number of elements that each kind of evidence decided."""


class Tensor(Record, frozen=True, kw_only=True):
    """One stored tensor."""

    name: str
    """Name of the initializer; for a Constant node, its output; else the node and its attribute."""
    graph_path: str
    """Path of the tensor's graph, parts joined by `/`, in an artifact the component first; empty for the main graph of
    a file."""
    carrier: Carrier
    """Place in the ONNX format that holds the tensor."""
    dtype: DtypeName
    """ONNX element type; `UNDEFINED` for a type number that this version does not know."""
    shape: Shape
    """Dimensions; empty for a scalar. An invalid file may have a negative one, which a finding reports."""
    stored_elements: Elements
    """Product of a dense shape, number of stored values of a sparse tensor, or length of a list."""
    parameters: Elements
    """Logical learned elements: 0 for a copy, K x N for a packed 4-bit weight."""
    bytes: Bytes
    """Bytes of encoded payload on disk; 0 if the tensor's file is missing."""
    logical_bytes: Bytes
    """Bytes that the elements need, whatever their encoding; 0 for strings."""
    role: Role
    """Role of the tensor."""
    scope: str | None
    """Dotted PyTorch module path; empty for the root module, null if unknown."""
    scoped_by: Annotated[str, Meta(pattern="^(content|provenance|name|structure|none)(:.+)?$")]
    """Rule that chose the scope; `none` if there is none."""
    decided_by: Annotated[str, Meta(pattern="^(content|provenance|name|structure|none):.+$")]
    """Rule that chose the role: evidence, colon, rule."""
    sources: list[str]
    """PyTorch names of the tensor, or of the tensors that it is computed from, as far as the file tells."""
    uses: Nodes
    """Number of nodes that read the tensor."""
    read_by: str
    """Operator of the first node that reads the tensor; empty if none does."""
    computed_by: str
    """Operator of the first node that computes with the tensor, after nodes that only move, cast or decode it; empty if
    none does."""
    applications: Annotated[int, Meta(ge=1, extra={"unit": "nodes"})]
    """Number of nodes that compute with the tensor or its copies, after nodes that only move or re-encode it; at least
    1."""
    shared_with: list[str]
    """Scopes, other than the tensor's own, whose nodes read it; sorted."""
    block: Text | None
    """Block of the tensor: `stem`, `block.0` and so on, `between.1` and so on, `head`; null if `blocks` is null."""
    part: Text | None
    """Part of the block, such as `attention`; null if unknown."""
    stage: Text | None
    """Stage that computes with the tensor: a resolution of a convolutional trunk, such as `88x88`, or `1/4` for inputs
    of any size, with `up` if it was enlarged on the way; or `head`; null if it is in no stage."""
    layer_role: Text | None
    """Purpose of a learned tensor, by the operator that reads it, such as `norm`; null for others, and if `blocks` is
    null."""
    copy_of: str | None
    """Tensor whose content it repeats, with its graph if that is not the main graph; else null."""
    opaque: bool
    """Whether the tensor is data that takes part in the computation and that no rule explains: the finding `opaque`."""
    hides: Hides | None
    """Number of parameters that PyTorch had in its place beyond its own count, at least and at most (null: no bound),
    and the reason: a `batchnorm`, `factor` or `bias` was put into the layer; it was `computed` from parameters; zeros
    may fill it up (`padding`); it may be a `buffer`, be `repeated` within itself or from another, be a learned
    `scalar`, stand for several equal parameters (`merged`), or repeat another tensor and be a parameter of its own
    (`copy`). Null if it hides none."""
