"""The nouns of the account: roles, entries, findings, groups, and the ledger that holds them."""

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
from analyzer.records import Frozen, aside, field
from analyzer.text import format_many, printable


class Role(enum.StrEnum):
    """What a stored tensor is."""

    PARAMETER = "parameter"
    """Learned: what `named_parameters()` would hold, or is computed from it."""
    BUFFER = "buffer"
    """State that is not learned: running statistics, `position_ids`, `inv_freq`, masks."""
    QUANTIZATION = "quantization"
    """Scales, zero points, group indices."""
    CONSTANT = "constant"
    """Made by the exporter: shapes, indices, axes, masks, scalars."""
    UNATTRIBUTED = "unattributed"
    """No rule explains it."""


class Evidence(enum.StrEnum):
    """What a rule looked at. The part of `decided_by` before the colon."""

    CONTENT = "content"
    """Elements were compared."""
    PROVENANCE = "provenance"
    """The exporter's own notes in the file, or the manifest."""
    NAME = "name"
    """Names."""
    STRUCTURE = "structure"
    """Which operators read it, and how."""
    NONE = "none"
    """Nothing: no rule explains it."""


_NO_EVIDENCE = Evidence.NONE.value


@functools.lru_cache(maxsize=256)
def _evidence_of(rule: str) -> Evidence:
    return Evidence(rule.partition(":")[0])


class Entry(Frozen):
    """One line of the ledger: a stored tensor, what it is, and how we know."""

    tensor: StoredTensor
    role: Role
    decided_by: str
    """The rule that chose the role, `<evidence>:<rule>`."""
    scope: str
    """Dotted module path from PyTorch; "" is the root module, and also what has no scope."""
    scoped_by: str
    """The rule that chose the scope; `none` where it has none."""
    sources: tuple[str, ...]
    """PyTorch names of the tensors that it is, or is computed from, as far as the file tells."""
    uses: int
    """How many nodes read it."""
    read_by: str
    """Operator of the first node in file order that reads it; "" where none does."""
    parameters: int
    """Learned elements that count here: its logical elements, 0 for a copy and for what is not learned."""
    logical_numel: int
    """Elements that it stands for: K x N for a packed 4-bit weight, else what it stores."""
    applications: int = 1
    """How many nodes compute with it or with its copies, past those that only move or re-encode it; at least 1."""
    shared_with: tuple[str, ...] = ()
    """Scopes other than its own whose nodes read it, sorted."""
    copy_of: Key | None = None
    """The entry whose content it repeats: as it stands, transposed, cast, or within a quantization step."""
    computed_by: str = ""
    """Operator of the first node that computes with it, past those that move or decode it; "" where none does."""

    @property
    def evidence(self) -> Evidence:
        return _evidence_of(self.decided_by)

    @property
    def capacity(self) -> int:
        """Elements that it could stand for: its logical elements, of texts their bytes."""
        is_text = self.tensor.dtype is DType.STRING
        return max(self.logical_numel, self.tensor.nbytes if is_text else 0)

    @property
    def has_scope(self) -> bool:
        return self.scoped_by != _NO_EVIDENCE

    @property
    def is_duplicate(self) -> bool:
        """Whether it takes bytes of its own, though another component of the artifact has it too."""
        return self.decided_by.endswith("duplicated-file")


_Told = TypeVar("_Told")


class ByEntry(Mapping[Key, _Told]):
    """By the key of an entry what is told of it; of some entries nothing is.

    It is one list in the order of the entries, as most who ask go through these; whoever asks for a key pays for a
    dict of all keys, once.
    """

    __slots__ = ("_entries", "_found", "in_order")

    def __init__(self, entries: Sequence[Entry], in_order: Sequence[_Told | None]) -> None:
        self.in_order = in_order
        """One for each entry; None where nothing is told."""
        self._entries = entries
        self._found: dict[Key, _Told] | None = None

    def is_of(self, entries: Sequence[Entry]) -> bool:
        """Whether it tells of these entries, in this order."""
        if entries is self._entries:
            return True
        pairs = zip(entries, self._entries, strict=False)
        return len(entries) == len(self._entries) and all(a.tensor is b.tensor for a, b in pairs)

    @property
    def _by_key(self) -> dict[Key, _Told]:
        if self._found is None:
            pairs = zip(self._entries, self.in_order, strict=True)
            self._found = {entry.tensor.key: told for entry, told in pairs if told is not None}
        return self._found

    def __getitem__(self, key: Key) -> _Told:
        return self._by_key[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)


def in_entry_order(entries: Sequence[Entry], told: Mapping[Key, _Told]) -> Sequence[_Told | None]:
    """What is told of each entry, in their order; None where nothing is."""
    if isinstance(told, ByEntry) and told.is_of(entries):
        return told.in_order
    return [told.get(entry.tensor.key) for entry in entries]


class Severity(enum.StrEnum):
    """How much a finding matters: an error means that the account is incomplete."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class Finding(Frozen):
    """Something in a readable file that its user should know. Data, never an exception."""

    id: str
    """One of the contract's stable ids."""
    severity: Severity
    message: str
    subjects: tuple[str, ...] = ()
    """The tensors, nodes or files that it is about, sorted."""
    nbytes: int | None = None
    """Bytes on disk that mending it would save; None where it costs none, or nobody can tell how many."""


Match = Literal["all", "first"]
"""Which of the user's groups have an entry: all that match it, so that groups may overlap, or the first."""

Trainability = Mapping[Key, tuple[str, bool]]
"""PyTorch name and `requires_grad` of each entry's parameter, where the PyTorch side is known."""


def natural_order(name: str) -> tuple[bool, str]:
    """Sort key that counts: layer.2 before layer.10, bracketed groups last.

    >>> sorted(["[unscoped]", "layer.10", "layer.2"], key=natural_order)
    ['layer.2', 'layer.10', '[unscoped]']
    """
    return name.startswith("["), _NUMBER.sub(_by_length, name)


class NaturalOrder:
    """The texts by which `natural_order` sorts, for many names that begin or end alike."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The name with each number after its length.

        >>> order = NaturalOrder()
        >>> sorted(["layer.10.b", "layer.2.b", "layer.2"], key=order.of)
        ['layer.2', 'layer.2.b', 'layer.10.b']
        """
        before, dot, last = name.rpartition(".")
        known = self._known
        if before not in known:
            known[before] = _NUMBER.sub(_by_length, before)
        if last.isdecimal():  # numbers are as many as there are names
            return f"{known[before]}{dot}{_sorted_digits(last)}"
        if last not in known:
            known[last] = _NUMBER.sub(_by_length, last)
        return f"{known[before]}{dot}{known[last]}"


_NUMBER = re.compile(r"\d+")


def _by_length(match: re.Match[str]) -> str:
    return _sorted_digits(match.group())


def _sorted_digits(number: str) -> str:
    """A number that sorts by its size as text does: its length goes first, as a character below all others."""
    digits = number.lstrip("0")  # int() would refuse one of thousands of digits
    length = len(digits)
    return chr(length) + digits if length < _LONG else f"{chr(_LONG)}{length:08}{digits}"


_LONG = 0x1F


class Group(Frozen):
    """Totals of the entries and nodes that share a key.

    `parameters` are learned elements, each once; `stored_elements` elements as stored; `nbytes` bytes of encoded
    payload; `tensors` stored tensors; `nodes` nodes, 0 where the key is one that nodes do not have.
    """

    name: str
    label: tuple[str, ...] = ()
    """The parts of its name, one for each key."""
    parameters: int = 0
    unshared_parameters: int = 0
    """What `parameters` would be if every use of a tensor had one of its own."""
    applications: int = 1
    """How often each of its learned tensors is used; 1 where they differ."""
    stored_elements: int = 0
    nbytes: int = 0
    learned_nbytes: int = 0
    """Bytes of learned tensors, copies included."""
    tensors: int = 0
    nodes: int = 0
    first: int | None = None
    """Where it comes in the order of the computation: the place of the first node that computes with what it has
    learned, else of its first node; None where it has neither, as in a saved report."""
    trainable: int | None = None
    """Elements of trainable parameters; None where the PyTorch side is not known."""
    frozen: int | None = None
    """Elements of the others; None as `trainable`."""
    macs: int | None = None
    """Multiply-accumulates of its nodes; None where the ledger has none (`Ledger.macs`), or nodes have no such key."""
    unworked: int = 0
    """Nodes whose work is not known, and not among `macs`."""


class Macs(Frozen):
    """Multiply-accumulates of one run, node by node (`analyzer.cost.macs.count_macs`)."""

    at: Mapping[str, int]
    """The sizes of the free axes, in elements, by their names in the file, else by `input.position`."""
    nodes: Mapping[Place, int]
    """Of each node that has some."""
    unknown: Collection[Place] = ()
    """Nodes whose work is not known, and so is not among it."""
    choices: int = 0
    """Nodes `If` whose branches work differently: the one that works most is counted."""

    @property
    def total(self) -> int:
        """Of all nodes whose work is known."""
        return sum(self.nodes.values())


@aside("members", "layers")
class Grouping(Frozen):
    """A partition of the ledger, or the user's groups, which may overlap and leave entries out.

    For every total: sum(groups) - overlap + ungrouped = the ledger's total.
    """

    by: str
    """A key, several with commas between them, `bytes` for the accounts, or `group` for the user's own."""
    depth: int | None
    """Leading parts of a scope, or of a block, that name a group; None where `by` has neither."""
    groups: tuple[Group, ...]
    overlap: Group
    """What the user's groups count beyond the first time."""
    ungrouped: Group
    """What none of the user's groups has."""
    match: Match | None = None
    """Which of the user's groups that match an entry have it; None where the groups are not the user's."""
    origin: str | None = None
    """Where the user's groups come from, such as `--group`, `onnxledger.toml` or `preset bert`."""
    members: tuple[tuple[str, ...], ...] = ()
    """The user's groups of each entry, in the ledger's order; nothing where the groups are not the user's."""
    layers: tuple[Group, ...] = ()
    """The groups with the layers apart that most of one repeats; nothing where none does, or a depth was asked for."""

    def rows(self) -> list[dict[str, object]]:
        """A row for each group, for `pandas.DataFrame` and its kin, with the keys of `inspect --format json`.

        `share` is the part of the groups' parameters, None where there are none.
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
        from analyzer.account.notebook import to_html  # what only notebooks need

        return to_html(repr(self)[1:-1], self.rows())


class Member(NamedTuple):
    """Where an entry or a node stands among the repeated blocks of a model."""

    block: str
    """`stem`, `block.0` to `block.N-1`, `head`; of several runs also `between.1`, ..., after each but the last."""
    part: str = ""
    """What it belongs to inside the block, such as `attention`; "" where that is not told."""

    def label(self, depth: int) -> str:
        """At depth 1 the block, below it the part too.

        >>> Member("block.3", "attention").label(1), Member("block.3", "attention").label(2)
        ('block.3', 'block.3.attention')
        """
        return f"{self.block}.{self.part}" if depth > 1 and self.part else self.block


class Run(Frozen):
    """Blocks that repeat each other, one after the other."""

    first: int
    """Number of its first block."""
    count: int
    """How many blocks there are."""
    modules: tuple[str, ...] = ()
    """The PyTorch module that each of them is, where names tell; else none."""
    rule: str = "structure:tandem-repeat"


class Blocks(Frozen):
    """The repeated blocks of a model, with what comes before and after: a partition of entries and of nodes."""

    runs: tuple[Run, ...]
    entries: Mapping[Key, Member]
    nodes: Mapping[Place, Member]
    roles: Mapping[Key, str]
    """What each learned tensor does, by the operator that reads it: attention, feed-forward, norm, ..."""

    @property
    def count(self) -> int:
        """Blocks of all runs."""
        return sum(run.count for run in self.runs)


class Stages(Frozen):
    """The parts of a convolutional trunk that have one resolution each (`analyzer.account.stages`)."""

    names: tuple[str, ...]
    """In the order in which they are first computed, such as `176x176`; `head` last."""
    entries: Mapping[Key, str]
    """Those of the entries that have one, by the node that first computes with them."""
    nodes: Mapping[Place, str]
    firsts: Mapping[str, Place] = field(default_factory=dict)
    """The node that each begins with; nothing of a saved report."""


class Account(Frozen):
    """A share of the bytes on disk: `nbytes`, each booked once."""

    name: str
    nbytes: int


class Hides(NamedTuple):
    """How many more parameters PyTorch had in a tensor's place than it counts, and why nobody can tell exactly."""

    least: int
    """At least so many more; fewer where it is negative."""
    most: int | None
    """At most so many more; None where there is no bound."""
    why: HiddenBy


HiddenBy = Literal[
    "batchnorm", "factor", "bias", "computed", "padding", "buffer", "merged", "repeated", "scalar"
]
"""A BatchNorm, a factor or a bias was put into a layer; its values were computed from who knows how many others; zeros
may fill it up; it may be a buffer, repeat itself or a part of another, or stand for several parameters of equal
content; or it is a number that may be one."""

Hidden = Mapping[Key, Hides]
"""The tensors that hide how many parameters PyTorch had."""


class Opaque(Frozen):
    """Data that computes and that nothing explains (`analyzer.account.opaque`)."""

    tensors: frozenset[Key] = frozenset()
    made: Mapping[Place, int] = field(default_factory=dict)
    """Nodes that make numbers when the model runs, and how many; 0 where that is not known."""


@aside("wiring")
class Ledger(Frozen):
    """The account of one model: every stored tensor once, every byte once."""

    model: Model
    entries: tuple[Entry, ...]
    """In file order."""
    accounts: tuple[Account, ...]
    """They sum to `file_nbytes`."""
    findings: tuple[Finding, ...]
    wiring: Wiring
    """Who provides and who reads each value."""
    node_scopes: Mapping[Place, str] = field(default_factory=dict)
    """Scope of each node that has one, of its own or by its neighbours (`analyzer.account.scopes.owners`)."""
    traced_scopes: Mapping[Place, str] = field(default_factory=dict)
    """Those of them that the nodes tell of themselves, in their notes or their names (`scopes.paths`)."""
    shared_nbytes: int = 0
    """Payload bytes that several tensors claim, beyond the first; `accounts` hold each byte once."""
    content: ContentMode = "sampled"
    """How far contents were looked at."""
    calls: tuple[Calls, ...] = ()
    """How often each local function is called."""
    blocks: Blocks | None = None
    """The repeated blocks; None where nobody has looked for them (`analyzer.account.blocks.find_blocks`)."""
    stages: Stages | None = None
    """The stages of a convolutional trunk; None where there is none."""
    computing: Mapping[Key, Place] = field(default_factory=dict)
    """The first node that computes with each entry, of those that any computes with; nothing of a saved report."""
    live: Live | None = None
    """What the outputs depend on; None where nobody has looked (a saved report)."""
    told_nodes: int | None = None
    """How many nodes a saved report says there were, which has none of them itself."""
    told_operators: Mapping[tuple[str, str], int] | None = None
    """Its operators, as (domain, op_type), with their nodes, but for calls of the model's own functions; None where it
    does not say them all."""
    made: Mapping[Place, int] = field(default_factory=dict)
    """Nodes that make such data when the model runs, and how many numbers; 0 where that is not known."""
    hidden: Hidden = field(default_factory=dict)
    """Entries that hide how many parameters PyTorch had in their place."""
    opaque: tuple[Key, ...] = ()
    """Entries whose data no rule explains and that flows into arithmetic: they may be learned (finding `opaque`)."""
    macs: Macs | None = None
    """What a run computes; None where nobody has counted."""

    def rows(self) -> list[dict[str, object]]:
        """A row for each stored tensor in file order, for `pandas.DataFrame`; keys as in `inspect`'s JSON."""
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
        """Nodes of all graphs and functions; None where a saved report does not say how many there were."""
        return sum(len(graph.nodes) for graph in self.model.graphs) if self.model.graphs else self.told_nodes

    @property
    def parameters(self) -> int:
        """Logical learned elements, each once, as far as the file alone tells."""
        return sum([entry.parameters for entry in self.entries])

    @property
    def parameters_at_least(self) -> int:
        """Elements that PyTorch's count cannot be below.

        What was not compared may be copies, and what was computed from parameters may come of few; a norm that was
        folded into a layer had some more.
        """
        from analyzer.account.doubt import find_doubt  # a stage above, which needs findings

        return find_doubt(self).least

    @property
    def parameters_at_most(self) -> int | None:
        """Elements that PyTorch's count cannot be above; None where there is no bound.

        What is opaque may be learned, what has one name be two, and a folded norm had parameters. What was computed
        from parameters before it was stored has no bound.

        Tensors whose elements cannot be counted have no bound; findings say so (`analyzer.account.findings.UNCOUNTED`).
        """
        from analyzer.account.doubt import find_doubt

        return find_doubt(self).most

    @property
    def opaque_elements(self) -> int:
        """Elements of the opaque entries, as many as each could hold."""
        held = set(self.opaque)
        return sum([entry.capacity for entry in self.entries if entry.tensor.key in held]) if held else 0

    @property
    def stored_elements(self) -> int:
        """Elements of all stored tensors, copies and constants included."""
        return sum([entry.tensor.numel for entry in self.entries])

    @property
    def stored_nbytes(self) -> int:
        """Bytes of all payloads; a byte that two tensors share counts for both (`accounts` books it once)."""
        return sum([entry.tensor.nbytes for entry in self.entries])

    @property
    def duplicated_nbytes(self) -> int:
        """Bytes of learned tensors that stand in more than one file of an artifact, beyond the first."""
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
