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
    """What is told of the graph as a whole."""
    nodes: list[Annotated[Any, one_of("NodeVertex", "GraphTensor", "End", "GraphGroup", "CollapsedEnd")]]
    """The vertices, in the order of the file: nodes, stored tensors, inputs and outputs; or groups, inputs and outputs.
    """
    edges: list[Annotated[Any, one_of("Link", "Crossing")]]
    """What leads from one to another."""


class Graph(Record, frozen=True, kw_only=True):
    """What is told of the graph as a whole."""

    model: Text
    """The model, as it was named."""
    components: list[str]
    """The names of the files of an artifact; empty where the model is one file."""
    collapsed: bool
    """Whether the vertices are groups."""
    by: str | None
    """The key of the groups; `group` for groups of the user's own; null where the graph is whole."""
    depth: Annotated[int, Meta(ge=1)] | None
    """Leading parts of a scope, or of a block, that name a group; null where that says nothing."""
    folded: bool
    """Whether numbered neighbours that hold the same are one vertex."""
    left_out: Count
    """Groups that hold nothing learned, and are left out."""
    tensors: Count
    """Stored tensors of the model."""
    parameters: Count
    """Learned elements of the model, each once."""
    stored_elements: Count
    """Elements that the model stores."""
    bytes: Count
    """Bytes of payload of all stored tensors."""


class NodeVertex(Record, frozen=True, kw_only=True):
    """The vertex of a node."""

    id: VertexId
    """Its id in this document: `n0`, `n1`, ..."""
    kind: Literal["node"]
    """What it is."""
    name: str
    """The node's name, which may be empty, and need not be its alone."""
    graph_path: str
    """Where its graph is: empty for the main graph, else the parts of the path with `/` between them."""
    parent: str | None
    """Of a nested graph, the `id` of the node that holds it; null in the main graph and in functions."""
    order: Count
    """Its place among all vertices, which stand in the order of the file."""
    position: Count
    """Its place among its graph's nodes."""
    op_type: str
    """The operator."""
    domain: str
    """The operator's domain; empty for ONNX itself."""
    scope: str | None
    """Its PyTorch module path; empty for the outermost module, null where nothing tells it."""
    block: Text
    """The repeated block that it is in: `stem`, `block.0`, ..., `between.1`, ..., `head`."""
    part: Text | None
    """The part of that block, such as `attention`; null where nothing tells."""
    calls: str | None
    """The `graph_path` of the local function that it calls; null where it calls none."""


class GraphTensor(Record, frozen=True, kw_only=True):
    """The vertex of a stored tensor."""

    id: VertexId
    """Its id in this document: `n0`, `n1`, ..."""
    kind: Literal["tensor"]
    """What it is."""
    name: str
    """The initializer's name; for a Constant node its output; else the node and the attribute."""
    graph_path: str
    """Where its graph is: empty for the main graph, else the parts of the path with `/` between them."""
    parent: str | None
    """Of a nested graph, the `id` of the node that holds it; null in the main graph and in functions."""
    carrier: Carrier
    """The place in the ONNX format that holds it."""
    dtype: Text
    """Element type, by its name in the ONNX specification."""
    shape: Shape
    """Its dimensions; empty for a scalar."""
    stored_elements: Count
    """Elements that it stores."""
    parameters: Count
    """Learned elements that count here; 0 for a copy, and for what is not learned."""
    bytes: Count
    """Bytes of its payload."""
    role: Role
    """What it is."""
    layer_role: Text | None
    """What a learned tensor does, by the operator that reads it, such as `norm`; null for others."""
    scope: str | None
    """Its PyTorch module path; empty for the outermost module, null where nothing tells it."""
    decided_by: str
    """The rule that chose the role."""
    uses: Count
    """How many nodes read it."""
    applications: Annotated[int, Meta(ge=1)]
    """How many nodes compute with it, or with its copies."""
    copy_of: str | None
    """The `id` of the tensor whose content it repeats; null where it repeats none."""
    block: Text
    """The repeated block that it is in: `stem`, `block.0`, ..., `between.1`, ..., `head`."""
    part: Text | None
    """The part of that block, such as `attention`; null where nothing tells."""


class End(Record, frozen=True, kw_only=True):
    """The vertex of an input or an output."""

    id: VertexId
    """Its id in this document: `n0`, `n1`, ..."""
    kind: Literal["input", "output"]
    """What it is."""
    name: str
    """The name of the value."""
    graph_path: str
    """Where its graph is: empty for the main graph, else the parts of the path with `/` between them."""
    parent: str | None
    """Of a nested graph, the `id` of the node that holds it; null in the main graph and in functions."""


class GraphGroup(Record, frozen=True, kw_only=True):
    """The vertex of a group, in a collapsed graph."""

    id: VertexId
    """Its id in this document: `n0`, `n1`, ..."""
    kind: Literal["group"]
    """What it is."""
    name: str
    """The group's name; with `0-11` in place of the numbers of those that are folded into it."""
    members: Annotated[list[str], Meta(min_length=1)]
    """The names of the groups that it stands for: one, or several that are folded."""
    parameters: Count
    """Learned elements, each once."""
    share: float | None
    """The fraction of the model's parameters; null where it has none."""
    applications: Annotated[int, Meta(ge=1)]
    """How often each learned tensor of a member is used; 1 where they differ."""
    unshared_parameters: Count
    """Parameters if every use had its own."""
    stored_elements: Count
    """Elements stored."""
    bytes: Count
    """Bytes of payload."""
    learned_bytes: Count
    """Bytes of payload of learned tensors, copies included."""
    tensors: Count
    """Stored tensors."""
    nodes: Count
    """Nodes."""


class CollapsedEnd(Record, frozen=True, kw_only=True):
    """The vertex of an input or an output, in a collapsed graph."""

    id: VertexId
    """Its id in this document: `n0`, `n1`, ..."""
    kind: Literal["input", "output"]
    """What it is."""
    name: str
    """The name of the value; with `0-11` in place of the numbers of those that are folded into it."""
    graph_path: str
    """Where its graph is: empty for the main graph, else the parts of the path with `/` between them."""
    members: Annotated[list[str], Meta(min_length=1)]
    """The names that it stands for: one, or several that are folded."""


class Link(Record, frozen=True, kw_only=True):
    """What leads from one to another."""

    source: str
    """The `id` of the vertex that it leaves."""
    target: str
    """The `id` of the vertex that it reaches."""
    key: Count
    """Tells it from others between the same two vertices."""
    value: str
    """The name of the value."""
    slot: Annotated[int, Meta(ge=-2)]
    """At which input the target reads it; -1: it is in an attribute of the target; -2: it crosses the border of a
    graph."""


class Crossing(Record, frozen=True, kw_only=True):
    """What leads from one to another."""

    source: str
    """The `id` of the vertex that it leaves."""
    target: str
    """The `id` of the vertex that it reaches."""
    key: Literal["flow", "read", "copy"]
    """The kind again: there is one edge of a kind between two vertices."""
    kind: Literal["flow", "read", "copy"]
    """`flow`: the target reads activations of the source; `read`: it reads tensors that the source owns; `copy`: it
    stores learned tensors of the source again."""
    values: Annotated[list[str], Meta(min_length=1)]
    """The activations, or the stored tensors, with the path of their graph before the name."""
    count: Annotated[int, Meta(ge=1)]
    """How many they are."""
    recurs: bool
    """Whether it only leads from one member of a fold to another, as from each layer to the next."""
    parameters: Count
    """Learned elements of the stored tensors; 0 for activations."""
    stored_elements: Count
    """Elements of the stored tensors; 0 for activations."""
    bytes: Count
    """Bytes of the stored tensors; 0 for activations."""
