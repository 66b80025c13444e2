"""Data types of the account: roles, entries, findings, groups, and the ledger that holds them."""

from __future__ import annotations

import enum
import functools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from analyzer.model import Key, Model, Place, StoredTensor, label
from analyzer.model.content import ContentMode
from analyzer.model.dtypes import DType
from analyzer.model.functions import Calls
from analyzer.model.liveness import Live
from analyzer.model.wiring import Wiring
from analyzer.records import Frozen, exclude_fields, field
from analyzer.text import format_many, printable


class Role(enum.StrEnum):
    """Kind of a stored tensor."""

    PARAMETER = "parameter"
    """Learned: an element of `named_parameters()`, or computed from one."""
    BUFFER = "buffer"
    """State of a module that is not learned: running statistics, `position_ids`, `inv_freq`, masks."""
    QUANTIZATION = "quantization"
    """Scales, zero points, group indices."""
    CONSTANT = "constant"
    """Made by the exporter: shapes, indices, axes, masks, scalars."""
    UNATTRIBUTED = "unattributed"
    """Explained by no rule."""


class Evidence(enum.StrEnum):
    """Kind of evidence that a rule used: the part of `decided_by` before the colon."""

    CONTENT = "content"
    """Compared elements."""
    PROVENANCE = "provenance"
    """Metadata that the exporter left in the file, or the manifest."""
    NAME = "name"
    """Names."""
    STRUCTURE = "structure"
    """Operators that read the tensor, and how they read it."""
    NONE = "none"
    """None: no rule explains the tensor."""


_NO_EVIDENCE = Evidence.NONE.value


@functools.lru_cache(maxsize=256)
def _evidence_of(rule: str) -> Evidence:
    return Evidence(rule.partition(":")[0])


class Entry(Frozen):
    """One line of the ledger: a stored tensor, its role, and the evidence for it."""

    tensor: StoredTensor
    role: Role
    decided_by: str
    """The rule that chose the role, `<evidence>:<rule>`."""
    scope: str
    """Dotted module path from PyTorch; "" is the root module, and also stands for an entry without a scope."""
    scoped_by: str
    """The rule that chose the scope; `none` for an entry without one."""
    sources: tuple[str, ...]
    """PyTorch names of the tensors that it equals or was computed from, as far as the file tells."""
    uses: int
    """Number of nodes that read it."""
    read_by: str
    """Operator of the first node in file order that reads it; "" if no node does."""
    parameters: int
    """Learned elements counted here: its logical elements, or 0 for a copy or a tensor that is not learned."""
    logical_numel: int
    """Elements that it represents: K x N for a packed 4-bit weight, else the stored elements."""
    applications: int = 1
    """Number of nodes, at least 1, that compute with it or its copies, past nodes that only move or re-encode it."""
    shared_with: tuple[str, ...] = ()
    """Scopes other than its own whose nodes read it, sorted."""
    copy_of: Key | None = None
    """Key of the entry whose content it repeats: identical, transposed, cast, or equal within a quantization step."""
    computed_by: str = ""
    """Operator of the first node that computes with it; nodes that move or decode it are passed. "" if no node does."""

    @property
    def evidence(self) -> Evidence:
        return _evidence_of(self.decided_by)

    @property
    def capacity(self) -> int:
        """Largest number of elements that it could represent: its logical elements, or the bytes of its strings."""
        is_text = self.tensor.dtype is DType.STRING
        return max(self.logical_numel, self.tensor.nbytes if is_text else 0)

    @property
    def has_scope(self) -> bool:
        return self.scoped_by != _NO_EVIDENCE

    @property
    def is_duplicate(self) -> bool:
        """Whether another component of the artifact holds the same tensor, though this one has its own bytes."""
        return self.decided_by.endswith("duplicated-file")


_Fact = TypeVar("_Fact")


class ByEntry(Mapping[Key, _Fact]):
    """Mapping from the key of an entry to a fact about it; some entries have no fact.

    It is stored as one list in the order of the entries, because most callers iterate in that order. The first lookup
    by key builds a dict of all keys.
    """

    __slots__ = ("_entries", "_found", "in_order")

    def __init__(self, entries: Sequence[Entry], in_order: Sequence[_Fact | None]) -> None:
        self.in_order = in_order
        """One item for each entry; None for an entry without a fact."""
        self._entries = entries
        self._found: dict[Key, _Fact] | None = None

    def is_of(self, entries: Sequence[Entry]) -> bool:
        """Whether it describes these entries, in this order."""
        if entries is self._entries:
            return True
        pairs = zip(entries, self._entries, strict=False)
        return len(entries) == len(self._entries) and all(a.tensor is b.tensor for a, b in pairs)

    @property
    def _by_key(self) -> dict[Key, _Fact]:
        if self._found is None:
            pairs = zip(self._entries, self.in_order, strict=True)
            self._found = {entry.tensor.key: fact for entry, fact in pairs if fact is not None}
        return self._found

    def __getitem__(self, key: Key) -> _Fact:
        return self._by_key[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)


def in_entry_order(entries: Sequence[Entry], facts: Mapping[Key, _Fact]) -> Sequence[_Fact | None]:
    """Return the fact about each entry, in the order of the entries; None for an entry without one."""
    if isinstance(facts, ByEntry) and facts.is_of(entries):
        return facts.in_order
    return [facts.get(entry.tensor.key) for entry in entries]


class Severity(enum.StrEnum):
    """Importance of a finding: an error means that the account is incomplete."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class Finding(Frozen):
    """A fact about a readable file that its user should know. It is data, never an exception."""

    id: str
    """One of the stable ids in the catalog of findings."""
    severity: Severity
    message: str
    subjects: tuple[str, ...] = ()
    """The tensors, nodes or files that it is about, sorted."""
    nbytes: int | None = None
    """Bytes on disk that fixing it would save; None if it costs none, or their number is unknown."""


Match = Literal["all", "first"]
"""Matching rule of the user's groups: an entry is in all that match it, so that they may overlap, or in the first."""

Trainability = Mapping[Key, tuple[str, bool]]
"""PyTorch name and `requires_grad` of each entry's parameter, if the PyTorch side is known."""


def natural_order(name: str) -> tuple[bool, str]:
    """Return a sort key that compares numbers by value: layer.2 before layer.10, bracketed groups last.

    >>> sorted(["[unscoped]", "layer.10", "layer.2"], key=natural_order)
    ['layer.2', 'layer.10', '[unscoped]']
    """
    return name.startswith("["), _NUMBER.sub(_by_length, name)


class NaturalOrder:
    """Cache of the sort keys of `natural_order`, for many names that begin or end alike."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        """Return the name with the length of each number put before it.

        >>> order = NaturalOrder()
        >>> sorted(["layer.10.b", "layer.2.b", "layer.2"], key=order.of)
        ['layer.2', 'layer.2.b', 'layer.10.b']
        """
        before, dot, last = name.rpartition(".")
        known = self._known
        if before not in known:
            known[before] = _NUMBER.sub(_by_length, before)
        if last.isdecimal():  # distinct numbers may be as many as the names, so they are not cached
            return f"{known[before]}{dot}{_sorted_digits(last)}"
        if last not in known:
            known[last] = _NUMBER.sub(_by_length, last)
        return f"{known[before]}{dot}{known[last]}"


_NUMBER = re.compile(r"\d+")


def _by_length(match: re.Match[str]) -> str:
    return _sorted_digits(match.group())


def _sorted_digits(number: str) -> str:
    """Return a number as text that sorts by its value: its length comes first, as a character below all others."""
    digits = number.lstrip("0")  # int() refuses a number of thousands of digits
    length = len(digits)
    return chr(length) + digits if length < _LONG else f"{chr(_LONG)}{length:08}{digits}"


_LONG = 0x1F


class Group(Frozen):
    """Totals of the entries and nodes that share a key.

    `parameters` are learned elements, each counted once; `stored_elements` elements as stored; `nbytes` bytes of
    encoded payload; `tensors` are stored tensors; `nodes` are nodes, 0 if nodes do not have this key.
    """

    name: str
    label: tuple[str, ...] = ()
    """Parts of its name, one for each key."""
    parameters: int = 0
    unshared_parameters: int = 0
    """Value that `parameters` would have if every use of a tensor had its own copy."""
    applications: int = 1
    """Number of uses of each of its learned tensors; 1 if they differ."""
    stored_elements: int = 0
    nbytes: int = 0
    learned_nbytes: int = 0
    """Bytes of learned tensors, copies included."""
    tensors: int = 0
    nodes: int = 0
    first: int | None = None
    """Position in the order of computation: that of the first node that computes with its learned tensors, else of its
    first node; None if it has neither, as in a saved report.
    """
    trainable: int | None = None
    """Elements of trainable parameters; None if the PyTorch side is not known."""
    frozen: int | None = None
    """Elements of the other parameters; None if `trainable` is."""
    macs: int | None = None
    """Multiply-accumulates of its nodes; None if the ledger has none (`Ledger.macs`), or nodes do not have this key."""
    unworked: int = 0
    """Nodes whose work is not known, so that `macs` leaves them out."""


class Macs(Frozen):
    """Multiply-accumulates of one run, node by node (`analyzer.cost.macs.count_macs`)."""

    at: Mapping[str, int]
    """Sizes of the free axes, in elements, by their names in the file, else by `input.position`."""
    nodes: Mapping[Place, int]
    """Multiply-accumulates of each node that has some."""
    unknown: Collection[Place] = ()
    """Nodes whose work is not known, so that `nodes` leaves them out."""
    choices: int = 0
    """Number of `If` nodes whose branches differ in work: the branch with the most work is counted."""

    @property
    def total(self) -> int:
        """Multiply-accumulates of all nodes whose work is known."""
        return sum(self.nodes.values())


@exclude_fields("members", "layers")
class Grouping(Frozen):
    """A partition of the ledger, or the user's groups, which may overlap and leave entries out.

    For every total: sum(groups) - overlap + ungrouped = the ledger's total.
    """

    by: str
    """A key, several separated by commas, `bytes` for the accounts, or `group` for the user's groups."""
    depth: int | None
    """Leading parts of a scope, or of a block, that name a group; None if `by` contains neither key."""
    groups: tuple[Group, ...]
    overlap: Group
    """Amounts that the user's groups count more than once, beyond the first time."""
    ungrouped: Group
    """Entries that are in none of the user's groups."""
    match: Match | None = None
    """Matching rule of the user's groups; None if the groups are not the user's."""
    origin: str | None = None
    """Origin of the user's groups, such as `--group`, `onnxledger.toml` or `preset bert`."""
    members: tuple[tuple[str, ...], ...] = ()
    """The user's groups of each entry, in the ledger's order; empty if the groups are not the user's."""
    layers: tuple[Group, ...] = ()
    """Groups in which repeated layers that make up most of a group are apart; empty if there are none, or for a given
    depth.
    """

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each group, for `pandas.DataFrame` and its kin, with the keys of `inspect --format json`.

        `share` is the fraction of the parameters of all groups, None if there are none.
        """
        total = (
            sum(group.parameters for group in self.groups)
            + self.ungrouped.parameters
            - self.overlap.parameters
        )
        return [
            {
                "group": group.name,
                "parameters": group.parameters,
                "share": group.parameters / total if total else None,
                "stored_elements": group.stored_elements,
                "bytes": group.nbytes,
                "tensors": group.tensors,
                "nodes": group.nodes,
            }
            for group in self.groups
        ]

    def __repr__(self) -> str:
        depth = "" if self.depth is None else f", depth {self.depth}"
        return f"<Grouping by {self.by}{depth}: {format_many(len(self.groups), 'group')}>"

    def _repr_html_(self) -> str:
        from analyzer.account.notebook import to_html  # only notebooks need it

        return to_html(repr(self)[1:-1], self.rows())


class Member(NamedTuple):
    """Position of an entry or a node among the repeated blocks of a model."""

    block: str
    """`stem`, `block.0` to `block.N-1`, or `head`; with several runs also `between.1`, ..., after each run but the
    last.
    """
    part: str = ""
    """Part of the block, such as `attention`; "" if it is not known."""

    def label(self, depth: int) -> str:
        """Return the block at depth 1, or the block and the part at a greater depth.

        >>> Member("block.3", "attention").label(1), Member("block.3", "attention").label(2)
        ('block.3', 'block.3.attention')
        """
        return f"{self.block}.{self.part}" if depth > 1 and self.part else self.block


class Run(Frozen):
    """Consecutive blocks that repeat each other."""

    first: int
    """Number of its first block."""
    count: int
    """Number of blocks."""
    modules: tuple[str, ...] = ()
    """The PyTorch module of each block, if names tell it; else empty."""
    rule: str = "structure:tandem-repeat"


class Blocks(Frozen):
    """Repeated blocks of a model, and the parts before and after them: a partition of entries and of nodes."""

    runs: tuple[Run, ...]
    entries: Mapping[Key, Member]
    nodes: Mapping[Place, Member]
    roles: Mapping[Key, str]
    """Function of each learned tensor, told by the operator that reads it: attention, feed-forward, norm, ..."""

    @property
    def count(self) -> int:
        """Number of blocks in all runs."""
        return sum(run.count for run in self.runs)


class Stages(Frozen):
    """Parts of a convolutional trunk that each have one resolution (`analyzer.account.stages`)."""

    names: tuple[str, ...]
    """Names such as `176x176`, in the order of first computation; `head` is last."""
    entries: Mapping[Key, str]
    """Stage of each entry that has one, given by the first node that computes with it."""
    nodes: Mapping[Place, str]
    firsts: Mapping[str, Place] = field(default_factory=dict)
    """First node of each stage; empty in a saved report."""


class Account(Frozen):
    """A share of the bytes on disk: `nbytes`, each booked once."""

    name: str
    nbytes: int


class Hides(NamedTuple):
    """Bounds for how many more parameters PyTorch had in a tensor's place than are counted, and the reason."""

    least: int
    """Lower bound of the difference; negative if PyTorch may have had fewer."""
    most: int | None
    """Upper bound of the difference; None if there is no bound."""
    why: HiddenBy


HiddenBy = Literal[
    "batchnorm", "factor", "bias", "computed", "padding", "buffer", "merged", "repeated", "copy", "scalar"
]
"""Reason for the bounds: a BatchNorm, a factor or a bias was folded into a layer, or zeros removed from it; the
values were computed from an unknown number of others; zeros may pad the tensor; it may be a buffer, repeat itself or a
part of another tensor, or stand for several parameters of equal content; it equals another tensor, and may be a
parameter of its own; or it is a single number that may be a parameter.
"""

Hidden = Mapping[Key, Hides]
"""Bounds for each tensor that hides how many parameters PyTorch had."""


class Opaque(Frozen):
    """Data that flows into arithmetic and that no rule explains (`analyzer.account.opaque`)."""

    tensors: frozenset[Key] = frozenset()
    made: Mapping[Place, int] = field(default_factory=dict)
    """Nodes that create numbers when the model runs, and how many; 0 if the number is not known."""


@exclude_fields("wiring")
class Ledger(Frozen):
    """Account of one model: every stored tensor once, every byte once."""

    model: Model
    entries: tuple[Entry, ...]
    """Entries in file order."""
    accounts: tuple[Account, ...]
    """Accounts of the bytes on disk; they sum to `file_nbytes`."""
    findings: tuple[Finding, ...]
    wiring: Wiring
    """Provider and readers of each value."""
    node_scopes: Mapping[Place, str] = field(default_factory=dict)
    """Scope of each node that has one, its own or one from its neighbours (`analyzer.account.scopes.owners`)."""
    traced_scopes: Mapping[Place, str] = field(default_factory=dict)
    """Scopes among `node_scopes` that nodes give in their own metadata or names (`scopes.paths`)."""
    shared_nbytes: int = 0
    """Payload bytes that several tensors claim, beyond the first; `accounts` hold each byte once."""
    content: ContentMode = "sampled"
    """Extent to which contents were read."""
    calls: tuple[Calls, ...] = ()
    """Number of calls of each local function."""
    blocks: Blocks | None = None
    """The repeated blocks; None if they were not searched (`analyzer.account.blocks.find_blocks`)."""
    stages: Stages | None = None
    """The stages of a convolutional trunk; None if there is none."""
    computing: Mapping[Key, Place] = field(default_factory=dict)
    """First node that computes with each entry, for entries that any node computes with; empty in a saved report."""
    live: Live | None = None
    """Nodes and tensors that the outputs depend on; None if this was not worked out (a saved report)."""
    told_nodes: int | None = None
    """Number of nodes according to a saved report, which holds no nodes itself."""
    told_operators: Mapping[tuple[str, str], int] | None = None
    """Node counts according to a saved report by (domain, op_type), without calls of the model's own functions; None if
    the report does not list all operators.
    """
    made: Mapping[Place, int] = field(default_factory=dict)
    """Nodes that create opaque data when the model runs, and how many numbers; 0 if the number is not known."""
    hidden: Hidden = field(default_factory=dict)
    """Entries that hide how many parameters PyTorch had in their place."""
    opaque: tuple[Key, ...] = ()
    """Entries whose data no rule explains and that flows into arithmetic: they may be learned (finding `opaque`)."""
    macs: Macs | None = None
    """Multiply-accumulates of one run; None if they were not counted."""

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each stored tensor in file order, for `pandas.DataFrame`; keys as in `inspect`'s JSON."""
        return [
            {
                "name": entry.tensor.name,
                "graph_path": "/".join(entry.tensor.graph_path),
                "carrier": entry.tensor.carrier.value,
                "dtype": entry.tensor.dtype.name,
                "shape": entry.tensor.shape,
                "stored_elements": entry.tensor.numel,
                "parameters": entry.parameters,
                "bytes": entry.tensor.nbytes,
                "role": entry.role.value,
                "scope": entry.scope if entry.has_scope else None,
                "decided_by": entry.decided_by,
                "uses": entry.uses,
                "copy_of": None if entry.copy_of is None else label(entry.copy_of),
            }
            for entry in self.entries
        ]

    def __repr__(self) -> str:
        tensors, findings = (
            format_many(len(self.entries), "tensor"),
            format_many(len(self.findings), "finding"),
        )
        parameters = format_many(self.parameters, "parameter")
        return f"<Ledger {printable(self.model.path)}: {parameters}, {tensors}, {findings}>"

    def _repr_html_(self) -> str:
        from analyzer.account.notebook import to_html

        learned = sorted(self.rows(), key=lambda row: -int(str(row["parameters"])))
        shown = ("name", "parameters", "dtype", "shape", "bytes", "role", "scope")
        return to_html(repr(self)[1:-1], [{key: row[key] for key in shown} for row in learned])

    @property
    def nodes(self) -> int | None:
        """Number of nodes in all graphs and functions; None if a saved report does not give it."""
        return sum(len(graph.nodes) for graph in self.model.graphs) if self.model.graphs else self.told_nodes

    @property
    def parameters(self) -> int:
        """Number of logical learned elements, each counted once, as far as the file alone tells."""
        return sum([entry.parameters for entry in self.entries])

    @property
    def parameters_at_least(self) -> int:
        """Lower bound of PyTorch's count of parameters, in elements.

        Tensors that were not compared may be copies, and tensors computed from parameters may come from few; a norm
        that was folded into a layer had some more.
        """
        from analyzer.account.doubt import find_doubt  # a later stage, which needs findings

        return find_doubt(self).least

    @property
    def parameters_at_most(self) -> int | None:
        """Upper bound of PyTorch's count of parameters; None if there is no bound.

        Opaque data may be learned, equal names may mean two tensors, and a folded norm had parameters. Values computed
        from parameters before they were stored have no bound.

        Tensors whose elements cannot be counted have no bound; findings say so (`analyzer.account.findings.UNCOUNTED`).
        """
        from analyzer.account.doubt import find_doubt

        return find_doubt(self).most

    @property
    def opaque_elements(self) -> int:
        """Elements of the opaque entries, the most that each could hold."""
        keys = set(self.opaque)
        return sum([entry.capacity for entry in self.entries if entry.tensor.key in keys]) if keys else 0

    @property
    def stored_elements(self) -> int:
        """Number of elements in all stored tensors, copies and constants included."""
        return sum([entry.tensor.numel for entry in self.entries])

    @property
    def stored_nbytes(self) -> int:
        """Bytes of all payloads; a byte that two tensors share counts for both (`accounts` books it once)."""
        return sum([entry.tensor.nbytes for entry in self.entries])

    @property
    def duplicated_nbytes(self) -> int:
        """Bytes of learned tensors that several files of an artifact hold, beyond the first."""
        return sum([entry.tensor.nbytes for entry in self.entries if entry.is_duplicate])

    @property
    def file_nbytes(self) -> int:
        """Bytes of all files on disk."""
        return sum(file.nbytes for file in self.model.files)

    @property
    def basis(self) -> dict[Evidence, int]:
        """Stored elements by the kind of evidence that decided them; they sum to `stored_elements`."""
        by_rule: Counter[str] = Counter()
        for entry in self.entries:
            by_rule[entry.decided_by] += entry.tensor.numel
        counter: Counter[Evidence] = Counter()
        for rule, elements in by_rule.items():
            counter[_evidence_of(rule)] += elements
        return dict(counter)
