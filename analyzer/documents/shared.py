"""What the documents of several commands have in common."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from analyzer.account.ledger import Severity
from analyzer.documents.base import Bytes, Elements, FindingId, Nodes, Record, Share, Tensors, Text

Place = Annotated[int, Meta(ge=0, extra={"unit": "nodes"})]
"""The position of a node in the order of the computation, from 0."""


Macs = Annotated[int, Meta(ge=0, extra={"unit": "multiply-accumulates"})]
"""The work of one run."""


class Group(Record, frozen=True, kw_only=True):
    """One group: what it holds."""

    group: str
    """The group's name: a scope, block, stage, operator, dtype or role, several joined by ` / `; or one of the user's
    own."""
    keys: list[str]
    """The parts of its name, one for each key; the user's own groups have one."""
    parameters: Elements
    """Logical learned elements; a copy has none."""
    unshared_parameters: Elements
    """Parameters if every use of a tensor had one of its own: each tensor's, times its `applications`."""
    applications: Annotated[int, Meta(ge=1, extra={"unit": "nodes"})]
    """How often each of its learned tensors is used; 1 where they differ."""
    stored_elements: Elements
    """Elements as stored."""
    bytes: Bytes
    """Encoded payload."""
    tensors: Tensors
    """Stored tensors."""
    nodes: Nodes
    """Nodes; 0 where a key is `dtype` or `role`, which nodes do not have."""
    share: Share | None
    """`parameters` as a fraction of all parameters; null where there are none."""
    first_node: Place | UnsetType = UNSET
    """Place, in the order of the computation, of the first node that computes with what the group has learned, else of
    its first node; only where the nodes are known."""
    trainable: Elements | UnsetType = UNSET
    """Parameters with `requires_grad`; only where the PyTorch side is known."""
    frozen: Elements | UnsetType = UNSET
    """Parameters without `requires_grad`; only beside `trainable`."""
    macs: Macs | UnsetType = UNSET
    """Multiply-accumulates of its nodes; only where they were counted, and nodes have the keys."""
    nodes_without_macs: Nodes | UnsetType = UNSET
    """Nodes whose work is not known, and is not among `macs`; only beside it."""


class TreeRow(Record, frozen=True, kw_only=True):
    """One row of the tree: a group, or several that repeat each other."""

    level: Annotated[int, Meta(ge=0, extra={"unit": "rows"})]
    """How many rows it stands under; 0 for the outermost."""
    group: str
    """The group's full name; `layer.0-11` for twelve that repeat each other, `x (own)` for what is in `x` beside its
    children."""
    count: Annotated[int, Meta(ge=1, extra={"unit": "groups"})]
    """How many groups it stands for."""
    parameters: Elements
    """Logical learned elements of each of them."""
    total_parameters: Elements
    """Logical learned elements of all of them: `count` times `parameters`."""
    stored_elements: Elements
    """Elements of all of them as stored."""
    bytes: Bytes
    """Encoded payload of all of them; of `bytes` the account's."""
    tensors: Tensors
    """Stored tensors of all of them."""
    nodes: Nodes
    """Nodes of all of them."""
    first_node: Place | UnsetType = UNSET
    """The least of their `first_node`."""
    macs: Macs | UnsetType = UNSET
    """Multiply-accumulates of all of them; only where they were counted."""
    nodes_without_macs: Nodes | UnsetType = UNSET
    """Nodes whose work is not known, and is not among `macs`; only beside it."""


class GroupBalance(Record, frozen=True, kw_only=True):
    """The rows that make the groups sum to the totals."""

    overlap: Group
    """Everything that groups count more than once, in full."""
    ungrouped: Group
    """Everything that no group has, in full."""


class CountedMacs(Record, frozen=True, kw_only=True):
    """What one run computes; only where that was asked for (`--shape`), or with `-v`."""

    total: Macs
    """Of all nodes whose work is known."""
    at: dict[str, Annotated[int, Meta(ge=0, extra={"unit": "elements"})]]
    """The sizes of the free axes: those of `--shape`, and what `time` would take for the others."""
    unknown: Nodes
    """Nodes whose work is not known, and is not among it; `cost` says which, and why."""
    choices: Nodes
    """Nodes `If` whose branches work differently; the one that works most is counted."""


class Finding(Record, frozen=True, kw_only=True):
    """What the user of the file should know."""

    id: FindingId
    """Stable identifier of the kind of finding."""
    severity: Severity
    """How much it matters; an error means that the account is incomplete or does not balance."""
    message: Text
    """One sentence for people; its words may change."""
    subjects: list[str]
    """The tensors, parameters or files that it is about, sorted."""
    bytes: Annotated[int, Meta(ge=1, extra={"unit": "bytes"})] | None
    """Bytes on disk that mending it would save; null where it costs none, or nobody can tell."""


class GroupsFrom(Record, frozen=True, kw_only=True):
    """Where the user's groups come from; of `--preset auto`, each side's own."""

    a: Text | None
    """Of A: `--group`, a config, or a preset; null where the groups are not the user's."""
    b: Text | None
    """The same of B."""
