"""Records that the documents of several commands share."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from analyzer.account.ledger import Severity
from analyzer.documents.base import Bytes, Elements, FindingId, Nodes, Record, Share, Tensors, Text

Place = Annotated[int, Meta(ge=0, extra={"unit": "nodes"})]
"""The position of a node in the order of the computation, from 0."""


Macs = Annotated[int, Meta(ge=0, extra={"unit": "multiply-accumulates"})]
"""Multiply-accumulates of one run."""


class Group(Record, frozen=True, kw_only=True):
    """One group of tensors and nodes, with its sums."""

    group: str
    """Name of the group: a scope, block, stage, operator, dtype or role, several joined by ` / `; or the name of a
    user's own group."""
    keys: list[str]
    """Parts of the group's name, one for each key; a user's own group has one."""
    parameters: Elements
    """Logical learned elements; a copy counts none."""
    unshared_parameters: Elements
    """Parameters if every use of a tensor had its own: each tensor's parameters times its `applications`."""
    applications: Annotated[int, Meta(ge=1, extra={"unit": "nodes"})]
    """Number of nodes that compute with each learned tensor of the group; 1 if the tensors differ in it."""
    stored_elements: Elements
    """Elements as stored."""
    bytes: Bytes
    """Bytes of encoded payload."""
    tensors: Tensors
    """Number of stored tensors."""
    nodes: Nodes
    """Number of nodes; 0 if a key is `dtype` or `role`, which nodes do not have."""
    share: Share | None
    """`parameters` as a fraction of all parameters; null if there are none."""
    first_node: Place | UnsetType = UNSET
    """Position, in the order of computation, of the first node that computes with the group's learned tensors, else of
    the group's first node; only if the nodes are known."""
    trainable: Elements | UnsetType = UNSET
    """Parameters with `requires_grad`; only if the PyTorch side is known."""
    frozen: Elements | UnsetType = UNSET
    """Parameters without `requires_grad`; only together with `trainable`."""
    macs: Macs | UnsetType = UNSET
    """Multiply-accumulates of the group's nodes; only if they were counted and nodes have the keys."""
    nodes_without_macs: Nodes | UnsetType = UNSET
    """Number of nodes whose work is unknown and not in `macs`; only together with `macs`."""


class TreeRow(Record, frozen=True, kw_only=True):
    """One row of the tree: a group, or several groups that repeat each other."""

    level: Annotated[int, Meta(ge=0, extra={"unit": "rows"})]
    """Number of rows above it in the tree; 0 for an outermost row."""
    group: str
    """Full name of the group; `layer.0-11` for twelve that repeat each other, `x (own)` for the part of `x` outside its
    children."""
    count: Annotated[int, Meta(ge=1, extra={"unit": "groups"})]
    """Number of groups that the row stands for."""
    parameters: Elements
    """Logical learned elements of each group of the row."""
    total_parameters: Elements
    """Logical learned elements of all groups of the row: `count` times `parameters`."""
    stored_elements: Elements
    """Stored elements of all groups of the row."""
    bytes: Bytes
    """Bytes of encoded payload of all groups of the row; if `by` is `bytes`, the bytes of the account."""
    tensors: Tensors
    """Number of stored tensors in all groups of the row."""
    nodes: Nodes
    """Number of nodes in all groups of the row."""
    first_node: Place | UnsetType = UNSET
    """Smallest `first_node` of the groups of the row."""
    macs: Macs | UnsetType = UNSET
    """Multiply-accumulates of all groups of the row; only if they were counted."""
    nodes_without_macs: Nodes | UnsetType = UNSET
    """Number of nodes whose work is unknown and not in `macs`; only together with `macs`."""


class GroupBalance(Record, frozen=True, kw_only=True):
    """The rows that make the groups sum to the totals."""

    overlap: Group
    """Surplus that several groups count more than once, as a full row."""
    ungrouped: Group
    """Tensors and nodes in no group, as a full row."""


class CountedMacs(Record, frozen=True, kw_only=True):
    """Work of one run; only with `--shape` or `-v`."""

    total: Macs
    """Multiply-accumulates of all nodes whose work is known."""
    at: dict[str, Annotated[int, Meta(ge=0, extra={"unit": "elements"})]]
    """Sizes of the free axes: those given by `--shape`, and the defaults of `time` for the others."""
    unknown: Nodes
    """Number of nodes whose work is unknown and not in `total`; `cost` lists them with reasons."""
    choices: Nodes
    """Number of `If` nodes whose branches differ in work; the branch with the most work is counted."""


class Finding(Record, frozen=True, kw_only=True):
    """One finding about a file that its user should know."""

    id: FindingId
    """Stable identifier of the kind of finding."""
    severity: Severity
    """Importance of the finding; an error means that the account is incomplete or does not balance."""
    message: Text
    """One sentence for people; its wording may change."""
    subjects: list[str]
    """Tensors, parameters or files concerned, sorted."""
    bytes: Annotated[int, Meta(ge=1, extra={"unit": "bytes"})] | None
    """Bytes on disk that a fix would save; null if the finding costs none, or the amount is unknown."""


class GroupsFrom(Record, frozen=True, kw_only=True):
    """Source of the user's groups; with `--preset auto`, each side has its own."""

    a: Text | None
    """Source for A: `--group`, a config or a preset; null if the groups are not the user's."""
    b: Text | None
    """Source for B, in the same form."""
