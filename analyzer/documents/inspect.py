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
    """The files of an artifact, in order; empty where the model is one file."""
    content: ContentMode
    """How far contents were looked at, to find copies and broken weights."""
    roles: Roles
    """Sums by role; every role is there, also where it is empty."""
    operators: list[Operator]
    """Every operator, the most nodes first; their parameters sum to the totals'."""
    quantization: list[Quantization]
    """How learned tensors are quantized, the most parameters first; empty where none is."""
    accounts: list[Account]
    """Where the bytes of the files went."""
    dtypes: list[DtypeTotals]
    """Sums by element type, sorted by name."""
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
    blocks: list[Block] | None
    """The blocks that repeat each other, in order; null where nobody has looked for them."""
    stages: list[Text] | None
    """The stages of a convolutional trunk in the order in which they are first computed; null where there is none."""
    tensors: list[Tensor]
    """Every stored tensor, sorted by graph and name."""
    findings: list[Finding]
    """What the user of the file should know, sorted by id."""
    macs: CountedMacs | UnsetType = UNSET
    """What one run computes; only with `--shape` or `-v`."""


class File(Record, frozen=True, kw_only=True):
    """One file of the model."""

    path: Text
    """The file, as seen from the folder of the model or artifact."""
    bytes: Bytes
    """Its size on disk."""
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | UnsetType = UNSET
    """SHA-256 of the whole file, in hexadecimal; only with `--digest`."""


class Call(Record, frozen=True, kw_only=True):
    """How often one local function is called."""

    function: Text
    """The function's graph, as in `graph_path`."""
    sites: Nodes
    """Nodes that call it."""
    calls: Annotated[int, Meta(ge=0, extra={"unit": "calls"})] | None
    """How often its body is there when every call is inlined, the bodies of If, Loop and Scan once each; null where
    functions that call each other in a circle call it, or beyond 2^128."""


class Remote(Record, frozen=True, kw_only=True):
    """What reading a remote model took; null for a local file."""

    requests: Annotated[int, Meta(ge=1, extra={"unit": "requests"})]
    """Requests that were made."""
    bytes_read: Bytes
    """Bytes that were read, of all its files."""
    redirected_to: str | None
    """Where the model file is in the end; null where it is where it was asked for."""


class Value(Record, frozen=True, kw_only=True):
    """An input or an output of the model."""

    name: str
    """Its name; of an artifact behind the name of its component."""
    dtype: DtypeName
    """ONNX element type; `UNDEFINED` for what is no tensor."""
    shape: list[int | str | None] | None
    """A size, an axis's name, or null for neither; null as a whole where the rank is not known."""


class Operator(Record, frozen=True, kw_only=True):
    """One operator: how many nodes are of it, and what it computes with."""

    op_type: str
    """Its name; empty for what no node computes with."""
    domain: str
    """Its operator set; `ai.onnx` is the default one."""
    nodes: Nodes
    """Nodes of it in all graphs and functions."""
    parameters: Elements
    """Logical learned elements of the tensors that it is the first to compute with, past what moves or decodes them."""


class Quantization(Record, frozen=True, kw_only=True):
    """Learned tensors that are stored as codes in one way."""

    scheme: Scheme
    """`block`: blocks with a scale each; `qdq`: DequantizeLinear before what computes; `qoperator`: operators on codes;
    `dynamic`: the other operand is quantized when the model runs; `codes`: nothing says how they are decoded."""
    bits: Annotated[int, Meta(ge=0, extra={"unit": "bits"})]
    """Of each code."""
    block_size: Annotated[int, Meta(ge=1, extra={"unit": "elements"})] | None
    """Elements that share a scale; null where a channel or the whole tensor has one."""
    tensors: Tensors
    """Learned tensors stored so."""
    parameters: Elements
    """Their logical learned elements."""


class Model(Record, frozen=True, kw_only=True):
    """The model as read."""

    path: Text
    """The model as it was named, of an artifact its folder; a URL without user, password and query."""
    files: Annotated[list[File], Meta(min_length=1)]
    """The model file, of an artifact those of all components in their order; then the external data, sorted."""
    ir_version: int
    """Version of the ONNX intermediate representation, as the file says; of an artifact the highest."""
    opsets: dict[str, int]
    """Operator set version by domain, of an artifact the highest; the default domain is `ai.onnx`."""
    producer: str
    """Name and version of what wrote the file, or the files; empty where it does not say."""
    inputs: list[Value]
    """What a caller feeds, in the order of the file."""
    outputs: list[Value]
    """What a caller is given, in the order of the file."""
    nodes: Nodes
    """Nodes of all graphs and functions."""
    functions: Annotated[int, Meta(ge=0, extra={"unit": "functions"})]
    """Model-local functions."""
    nested_graphs: Annotated[int, Meta(ge=0, extra={"unit": "graphs"})]
    """Bodies of If, Loop and Scan, at any depth."""
    calls: list[Call]
    """How often each local function is called, in file order."""
    remote: Remote | None
    """What reading a remote model took; null for a local file."""


class Totals(Record, frozen=True, kw_only=True):
    """Sums over the whole model."""

    parameters: Elements
    """Logical learned elements that the files hold, each once, as far as they alone tell. PyTorch had more where a norm
    was folded into a layer: then this is below `parameters_at_least`."""
    parameters_at_least: Elements
    """What PyTorch's count cannot be below: tensors that nobody could compare may be copies, what was computed from
    parameters may come of few, and a norm that was folded into a layer had some more."""
    parameters_at_most: Elements | None
    """What PyTorch's count cannot be above: opaque data may be learned, what has one name in two files two tensors, and
    a folded norm had parameters. Null where there is no bound, as something was computed from parameters."""
    parameters_unsettled: list[Text]
    """Why these two are not one number, each reason in words."""
    opaque_elements: Elements
    """Elements of data that computes and that no rule explains, as many as it could hold: the finding `opaque`."""
    basis: Basis
    """Stored elements by the kind of evidence that decided their role."""
    stored_tensors: Tensors
    """Stored tensors of every carrier."""
    stored_elements: Elements
    """Elements as stored."""
    stored_bytes: Bytes
    """Encoded payloads; a byte that two tensors share counts for both."""
    shared_bytes: Bytes
    """Of these, bytes that several tensors claim, beyond the first; `accounts` hold each byte once."""
    duplicated_bytes: Bytes
    """Of these, bytes of learned tensors that stand in more than one file of an artifact, beyond the first."""
    wasted_bytes: Bytes
    """Bytes that serve nobody, each once: copies, unused initializers, notes on nodes, what no reader sees."""
    file_bytes: Bytes
    """Sizes of all files on disk."""


class Component(Record, frozen=True, kw_only=True):
    """One file of an artifact."""

    component: str
    """Its name: as `export.json` has it, else its file's without the suffix."""
    path: Text
    """Its model file, as seen from the artifact's folder."""
    ir_version: int
    """Version of the ONNX intermediate representation, as this file says."""
    opsets: dict[str, int]
    """Operator set version by domain, as this file says."""
    producer: str
    """Name and version of what wrote this file; empty where it does not say."""
    nodes: Nodes
    """Nodes of all its graphs and functions."""
    parameters: Elements
    """Logical learned elements that it holds; what another component has too counts here as well."""
    stored_tensors: Tensors
    """Its stored tensors of every carrier."""
    stored_elements: Elements
    """Their elements as stored."""
    stored_bytes: Bytes
    """Their encoded payload."""
    duplicated_bytes: Bytes
    """Of these, bytes of learned tensors that count in another component."""
    file_bytes: Bytes
    """Sizes of its model file and of all that it refers to; a file that several refer to counts for each."""


class RoleTotals(Record, frozen=True, kw_only=True):
    """What the tensors of one role sum to."""

    tensors: Tensors
    """Stored tensors."""
    stored_elements: Elements
    """Elements as stored."""
    parameters: Elements
    """Logical learned elements; 0 for every role but `parameter`."""
    bytes: Bytes
    """Encoded payload."""


class Account(Record, frozen=True, kw_only=True):
    """One account of bytes."""

    account: Text
    """A role's payload, or one of the other accounts."""
    bytes: Bytes
    """Bytes on disk, each booked once."""


class DtypeTotals(Record, frozen=True, kw_only=True):
    """What the tensors of one element type sum to."""

    dtype: DtypeName
    """ONNX element type."""
    tensors: Tensors
    """Stored tensors of this type."""
    stored_elements: Elements
    """Their elements as stored."""
    bytes: Bytes
    """Their encoded payload."""


class Block(Record, frozen=True, kw_only=True):
    """One run of blocks that repeat each other."""

    first: Count
    """Number of the first of them."""
    count: Annotated[int, Meta(ge=1, extra={"unit": "blocks"})]
    """How many there are."""
    modules: list[str]
    """The PyTorch module that each of them is, in order; empty where names do not tell."""
    decided_by: Annotated[str, Meta(pattern="^(content|provenance|name|structure|none):.+$")]
    """The evidence and the rule that found them."""


class Hides(Record, frozen=True, kw_only=True):
    """How many more parameters PyTorch had in its place than it counts, at least and at most (null.

    No bound), and why: `batchnorm`, `factor` or `bias` that was put into the layer; `computed` from parameters; zeros
    may fill it up (`padding`), it may be a `buffer`, be `repeated` within or from another, or a `scalar` that is
    learned, or stand for several equal parameters (`merged`). Null where it hides none.
    """

    at_least: SignedElements
    """At least so many more; fewer where it is negative."""
    at_most: Elements | None
    """At most so many more; null where there is no bound."""
    why: Literal[
        "batchnorm", "factor", "bias", "computed", "padding", "buffer", "merged", "repeated", "scalar"
    ]
    """What was done to the values before they were stored, or what else they may be."""


Roles = Annotated[
    dict[Role, RoleTotals],
    Meta(extra_json_schema={"required": list(Role), "propertyNames": {"enum": list(Role)}}),
]
"""What each role has, all of them, also those without a tensor."""

Basis = Annotated[
    dict[Evidence, Elements],
    Meta(extra_json_schema={"required": list(Evidence), "propertyNames": {"enum": list(Evidence)}}),
]
"""How many elements each kind of evidence decided."""


class Tensor(Record, frozen=True, kw_only=True):
    """One stored tensor."""

    name: str
    """The initializer's name; for a Constant node its output; else the node and its attribute."""
    graph_path: str
    """The graph that it is in, parts joined by `/`, of an artifact the component first; empty for the main graph of a
    file."""
    carrier: Carrier
    """The place in the format that holds it."""
    dtype: DtypeName
    """ONNX element type; `UNDEFINED` for a number that this version does not know."""
    shape: Shape
    """Dimensions; empty for a scalar. A file may claim one below 0, which a finding tells."""
    stored_elements: Elements
    """The product of a dense shape, the stored values of a sparse tensor, a list's length."""
    parameters: Elements
    """Logical learned elements: 0 for a copy, K x N for a packed 4-bit weight."""
    bytes: Bytes
    """Encoded payload on disk; 0 where its file is missing."""
    logical_bytes: Bytes
    """What the elements need whatever their encoding; 0 for strings."""
    role: Role
    """What it is."""
    scope: str | None
    """Dotted module path; empty for the root module, null where nothing tells."""
    scoped_by: Annotated[str, Meta(pattern="^(content|provenance|name|structure|none)(:.+)?$")]
    """The rule that chose the scope; `none` where there is none."""
    decided_by: Annotated[str, Meta(pattern="^(content|provenance|name|structure|none):.+$")]
    """The rule that chose the role: evidence, colon, rule."""
    sources: list[str]
    """PyTorch names of what it is, or is computed from, as far as the file tells."""
    uses: Nodes
    """Nodes that read it."""
    read_by: str
    """Operator of the first node that reads it; empty where none does."""
    computed_by: str
    """Operator of the first node that computes with it, past those that only move, cast or decode it; empty where none
    does."""
    applications: Annotated[int, Meta(ge=1, extra={"unit": "nodes"})]
    """How many nodes compute with it or with its copies, past those that only move or re-encode it; at least 1."""
    shared_with: list[str]
    """Scopes other than its own whose nodes read it, sorted."""
    block: Text | None
    """The block that it is in: `stem`, `block.0` and so on, `between.1` and so on, `head`; null where `blocks` is."""
    part: Text | None
    """The part of the block, such as `attention`; null where nothing tells."""
    stage: Text | None
    """The stage that computes with it: a resolution of a convolutional trunk, such as `88x88`, or `1/4` of an input of
    any size, with `up` where it was enlarged on the way; or `head`; null where it is in none."""
    layer_role: Text | None
    """What a learned tensor does, by the operator that reads it, such as `norm`; null for others, and where `blocks`
    is."""
    copy_of: str | None
    """The tensor whose content it repeats, with its graph where that is not the main one; else null."""
    opaque: bool
    """Whether it is data that computes and that no rule explains: the finding `opaque`."""
    hides: Hides | None
    """How many more parameters PyTorch had in its place than it counts, at least and at most (null: no bound), and why:
    `batchnorm`, `factor` or `bias` that was put into the layer; `computed` from parameters; zeros may fill it up
    (`padding`), it may be a `buffer`, be `repeated` within or from another, or a `scalar` that is learned, or stand
    for several equal parameters (`merged`). Null where it hides none."""
