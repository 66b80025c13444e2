"""The document of `graph --format json`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from analyzer.account.ledger import Role
from analyzer.documents.base import Count, Head, Record, Shape, Text, VertexId, Yes, one_of
from analyzer.model import Carrier


class GraphDocument(Head, frozen=True, kw_only=True):
    """A graph that `onnxledger graph --format json` writes."""

    command: Literal["graph"] = "graph"
    """The command that wrote the document."""
    directed: Yes
    """Edges have a direction."""
    multigraph: Yes
    """There may be several edges between two vertices."""
    graph: Graph
    """Attributes of the graph as a whole."""
    nodes: list[Annotated[Any, one_of("NodeVertex", "GraphTensor", "End", "GraphGroup", "CollapsedEnd")]]
    """Vertices in file order: nodes, stored tensors, inputs and outputs; or groups, inputs and outputs."""
    edges: list[Annotated[Any, one_of("Link", "Crossing")]]
    """Edges between the vertices."""


class Graph(Record, frozen=True, kw_only=True):
    """Attributes of the graph as a whole."""

    model: Text
    """Path of the model, as given."""
    components: list[str]
    """Names of the files of an artifact; empty if the model is one file."""
    collapsed: bool
    """Whether the vertices are groups."""
    by: str | None
    """Key of the groups; `group` for the user's own groups; null if the graph is not collapsed."""
    depth: Annotated[int, Meta(ge=1)] | None
    """Number of leading parts of a scope or block that name a group; null if a depth has no meaning."""
    folded: bool
    """Whether numbered neighbours with the same contents are one vertex."""
    left_out: Count
    """Number of groups without learned tensors, which are left out."""
    tensors: Count
    """Number of stored tensors of the model."""
    parameters: Count
    """Learned elements of the model, each counted once."""
    stored_elements: Count
    """Stored elements of the model."""
    bytes: Count
    """Bytes of payload of all stored tensors."""


class NodeVertex(Record, frozen=True, kw_only=True):
    """The vertex of a node."""

    id: VertexId
    """Id of the vertex in this document: `n0`, `n1`, ..."""
    kind: Literal["node"]
    """Kind of the vertex."""
    name: str
    """Name of the node; it may be empty, and other nodes may have the same."""
    graph_path: str
    """Path of its graph: empty for the main graph, else the parts of the path joined by `/`."""
    parent: str | None
    """`id` of the node that holds a nested graph; null in the main graph and in functions."""
    order: Count
    """Position among all vertices, which are in file order."""
    position: Count
    """Position among the nodes of its graph."""
    op_type: str
    """The operator."""
    domain: str
    """Domain of the operator; empty for ONNX itself."""
    scope: str | None
    """PyTorch module path; empty for the outermost module, null if unknown."""
    block: Text
    """Repeated block of the vertex: `stem`, `block.0`, ..., `between.1`, ..., `head`."""
    part: Text | None
    """Part of that block, such as `attention`; null if unknown."""
    calls: str | None
    """`graph_path` of the local function that the node calls; null if it calls none."""


class GraphTensor(Record, frozen=True, kw_only=True):
    """The vertex of a stored tensor."""

    id: VertexId
    """Id of the vertex in this document: `n0`, `n1`, ..."""
    kind: Literal["tensor"]
    """Kind of the vertex."""
    name: str
    """Name of the initializer; for a Constant node, its output; else the node and the attribute."""
    graph_path: str
    """Path of its graph: empty for the main graph, else the parts of the path joined by `/`."""
    parent: str | None
    """`id` of the node that holds a nested graph; null in the main graph and in functions."""
    carrier: Carrier
    """Place in the ONNX format that holds the tensor."""
    dtype: Text
    """Element type, by its name in the ONNX specification."""
    shape: Shape
    """Dimensions; empty for a scalar."""
    stored_elements: Count
    """Stored elements of the tensor."""
    parameters: Count
    """Learned elements that count here; 0 for a copy, and for a tensor that is not learned."""
    bytes: Count
    """Bytes of payload."""
    role: Role
    """Role of the tensor."""
    layer_role: Text | None
    """Purpose of a learned tensor, by the operator that reads it, such as `norm`; null for others."""
    scope: str | None
    """PyTorch module path; empty for the outermost module, null if unknown."""
    decided_by: str
    """Rule that chose the role."""
    uses: Count
    """Number of nodes that read the tensor."""
    applications: Annotated[int, Meta(ge=1)]
    """Number of nodes that compute with the tensor or its copies."""
    copy_of: str | None
    """`id` of the tensor whose content it repeats; null if it repeats none."""
    block: Text
    """Repeated block of the vertex: `stem`, `block.0`, ..., `between.1`, ..., `head`."""
    part: Text | None
    """Part of that block, such as `attention`; null if unknown."""


class End(Record, frozen=True, kw_only=True):
    """The vertex of an input or an output."""

    id: VertexId
    """Id of the vertex in this document: `n0`, `n1`, ..."""
    kind: Literal["input", "output"]
    """Kind of the vertex."""
    name: str
    """The name of the value."""
    graph_path: str
    """Path of its graph: empty for the main graph, else the parts of the path joined by `/`."""
    parent: str | None
    """`id` of the node that holds a nested graph; null in the main graph and in functions."""


class GraphGroup(Record, frozen=True, kw_only=True):
    """The vertex of a group, in a collapsed graph."""

    id: VertexId
    """Id of the vertex in this document: `n0`, `n1`, ..."""
    kind: Literal["group"]
    """Kind of the vertex."""
    name: str
    """Name of the group; for folded groups, with `0-11` in place of their numbers."""
    members: Annotated[list[str], Meta(min_length=1)]
    """Names of the groups that it stands for: one, or several that are folded."""
    parameters: Count
    """Learned elements, each counted once."""
    share: float | None
    """Fraction of the model's parameters; null if the model has none."""
    applications: Annotated[int, Meta(ge=1)]
    """Number of nodes that compute with each learned tensor of a member; 1 if the tensors differ in it."""
    unshared_parameters: Count
    """Parameters if every use of a tensor had its own."""
    stored_elements: Count
    """Stored elements of the group."""
    bytes: Count
    """Bytes of payload."""
    learned_bytes: Count
    """Bytes of payload of learned tensors, copies included."""
    tensors: Count
    """Number of stored tensors."""
    nodes: Count
    """Number of nodes."""


class CollapsedEnd(Record, frozen=True, kw_only=True):
    """The vertex of an input or an output, in a collapsed graph."""

    id: VertexId
    """Id of the vertex in this document: `n0`, `n1`, ..."""
    kind: Literal["input", "output"]
    """Kind of the vertex."""
    name: str
    """Name of the value; for folded values, with `0-11` in place of their numbers."""
    graph_path: str
    """Path of its graph: empty for the main graph, else the parts of the path joined by `/`."""
    members: Annotated[list[str], Meta(min_length=1)]
    """Names of the values that it stands for: one, or several that are folded."""


class Link(Record, frozen=True, kw_only=True):
    """One value that leads from one vertex to another."""

    source: str
    """`id` of the vertex that the edge leaves."""
    target: str
    """`id` of the vertex that the edge reaches."""
    key: Count
    """Number that tells edges between the same two vertices apart."""
    value: str
    """The name of the value."""
    slot: Annotated[int, Meta(ge=-2)]
    """Position among the target's inputs; -1: the value is in an attribute of the target; -2: it crosses the border of
    a graph."""


class Crossing(Record, frozen=True, kw_only=True):
    """Values of one kind that lead from one vertex to another in a collapsed graph."""

    source: str
    """`id` of the vertex that the edge leaves."""
    target: str
    """`id` of the vertex that the edge reaches."""
    key: Literal["flow", "read", "copy"]
    """Kind of the edge again: two vertices have one edge of a kind."""
    kind: Literal["flow", "read", "copy"]
    """`flow`: the target reads activations of the source; `read`: it reads tensors that the source owns; `copy`: it
    stores learned tensors of the source again."""
    values: Annotated[list[str], Meta(min_length=1)]
    """Activations or stored tensors, with the path of their graph before the name."""
    count: Annotated[int, Meta(ge=1)]
    """Number of values."""
    recurs: bool
    """Whether the edge only leads from one member of a fold to another, as from each layer to the next."""
    parameters: Count
    """Learned elements of the stored tensors; 0 for activations."""
    stored_elements: Count
    """Elements of the stored tensors; 0 for activations."""
    bytes: Count
    """Bytes of the stored tensors; 0 for activations."""
