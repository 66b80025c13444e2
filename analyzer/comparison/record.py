"""Records of a comparison: numbers, groups and tensors in pairs, and the status of each."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from analyzer.account.ledger import Entry, Macs, Match
from analyzer.model import Key
from analyzer.model.content import ContentMode
from analyzer.records import Frozen
from analyzer.text import printable


class Status(enum.StrEnum):
    """Change from A to B; unchanged means the same counts and bytes, not the same values."""

    UNCHANGED = "unchanged"
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class MatchedBy(enum.StrEnum):
    """Evidence that pairs a tensor of A with one of B."""

    NAME = "name"
    """Both have the same name, in graphs of the same path."""
    SOURCES = "sources"
    """Both are computed from the same PyTorch tensors, and no other tensor of their graphs is."""
    CONTENT = "content"
    """Both hold the same values, in any orientation, type or code (`analyzer.comparison.following`)."""


class Change(enum.StrEnum):
    """Property in which two paired tensors differ."""

    DTYPE = "dtype"
    SHAPE = "shape"
    ROLE = "role"
    PARAMETERS = "parameters"
    """Elements that count as learned; those of a copy do not."""
    STORED_ELEMENTS = "stored_elements"
    BYTES = "bytes"
    LAYOUT = "layout"
    """The same values in another order: transposed, or cut out of a tensor into which several were packed."""
    VALUES = "values"
    """Values alone differ; only where values were compared."""


class WiringPair(Frozen):
    """Result of comparing the computations of two models with their weights (`analyzer.model.fingerprint`)."""

    alike: bool
    first: str | None = None
    """First module of A that differs in B; None if the models are alike, or no module can be named."""


class DeclaredPair(Frozen):
    """A declaration that differs between two files: the version of an operator set, an input, an output."""

    what: str
    """`opset ai.onnx`, `IR version`, `input x`, `output y`, `order of inputs`, `order of outputs`, `training_info`;
    for notes `producer`, `doc string`, `metadata KEY` and the like."""
    a: str | None
    """Declaration of A; None where it has none."""
    b: str | None


_N = TypeVar("_N", int, float)


class Pair(Frozen, Generic[_N]):
    """One number on both sides, `a` and `b`: a count, or milliseconds; 0 for a side without the counted thing."""

    a: _N
    b: _N

    @property
    def difference(self) -> _N:
        """Difference a - b."""
        return self.a - self.b

    @property
    def change(self) -> _N:
        """Change from a to b: b - a."""
        return self.b - self.a

    @property
    def ratio(self) -> float | None:
        """Quotient a / b; None where b is 0, or negative as a profiling overhead may be."""
        return self.a / self.b if self.b > 0 else None


class GroupPair(Frozen):
    """One group on both sides, with 0 for a side without it.

    `parameters` and `stored_elements` are elements, `nbytes` bytes of encoded payload, `tensors` stored tensors.
    """

    name: str
    label: tuple[str, ...]
    """Parts of its name, one for each key."""
    status: Status
    parameters: Pair[int]
    stored_elements: Pair[int]
    nbytes: Pair[int]
    tensors: Pair[int]
    macs: Pair[int] | None = None
    """Multiply-accumulates, if they were counted on both sides."""
    unworked: Pair[int] | None = None
    """Nodes whose work is unknown and not among `macs`."""


class TensorPair(Frozen):
    """One stored tensor on both sides; a side without it has None, and 0 for every number."""

    a: Entry | None
    b: Entry | None
    groups: tuple[str | None, str | None]
    """Group of the tensor on each side, the first of several; None for a side without it."""
    status: Status
    matched_by: MatchedBy | None
    """None where one side lacks the tensor."""
    changed: tuple[Change, ...] = ()
    """Differences; empty unless its status is `changed`."""
    line: str | None = None
    """Line of `reconcile` for its values, if they were followed; for a tensor of one side alone, it says that the other
    side holds it in one tensor together with others."""

    @property
    def entry(self) -> Entry:
        """B's entry, else A's."""
        found = self.b or self.a
        assert found is not None
        return found

    @property
    def group(self) -> str | None:
        """B's group, else A's."""
        return self.groups[self.b is not None]

    @property
    def parameters(self) -> Pair[int]:
        """Learned elements that count here; none for a copy."""
        return Pair(*(0 if side is None else side.parameters for side in (self.a, self.b)))

    @property
    def stored_elements(self) -> Pair[int]:
        """Elements of the stored tensor."""
        return Pair(*(0 if side is None else side.tensor.numel for side in (self.a, self.b)))

    @property
    def nbytes(self) -> Pair[int]:
        """Bytes of encoded payload."""
        return Pair(*(0 if side is None else side.tensor.nbytes for side in (self.a, self.b)))


class Step(Frozen):
    """Place in the other side of one learned tensor of the followed side."""

    source: Key
    stored_in: tuple[Key, ...]
    """Tensors that hold it there: the one or several that it is stored in, then copies."""
    line: str
    """Line of `reconcile` that it is on: `renamed`, `transposed`, `quantized`, `concatenated`."""


class Followed(Frozen):
    """The learned tensors of one side, followed into the other (`analyzer.comparison.following`)."""

    steps: tuple[Step, ...]
    is_turned: bool
    """Whether B's were followed into A: A has coarser numbers, or more parameters, or more is found that way."""
    is_whole: bool
    """Whether all of them were found, and the other side has no further learned tensor."""
    cut: int
    """Number of tensors that the other side holds only in part, or lacks without contradiction."""
    content: ContentMode


class ValueCounts(Frozen):
    """Numbers of pairs of tensors, otherwise alike, with `equal`, `differing` and `unknown` values."""

    content: ContentMode
    """Values that were compared: those at fixed positions, or all."""
    equal: int
    differing: int
    unknown: int
    """Pairs whose values could not be read."""


class Comparison(Frozen):
    """Comparison of A and B. Differences are a - b, ratios a / b. The largest change comes first.

    `parameters` are learned elements, each once, and `stored_elements` those of stored tensors; `stored_nbytes` are
    bytes of payload, `file_nbytes` those of all files on disk.
    """

    a: str
    b: str
    parameters: Pair[int]
    stored_elements: Pair[int]
    stored_nbytes: Pair[int]
    file_nbytes: Pair[int]
    nodes: Pair[int] | None
    """None where a saved report does not give the number."""
    by: str
    """As in `Grouping`, for both sides."""
    depth: int | None
    """As in `Grouping`, for both sides."""
    groups: tuple[GroupPair, ...]
    overlap: GroupPair
    ungrouped: GroupPair
    tensors: tuple[TensorPair, ...]
    contents: tuple[ContentMode, ContentMode] = ("sampled", "sampled")
    """Amount of contents that was read when each side was made; copies are found only in contents that were read."""
    values: ValueCounts | None = None
    """None where values were not compared."""
    match: Match | None = None
    """As in `Grouping`, for both sides."""
    origins: tuple[str | None, str | None] = (None, None)
    """As in `Grouping`, for A and for B."""
    wiring: WiringPair | None = None
    """None where a side is a saved report, is remote, or is too large for one pass."""
    declared: tuple[DeclaredPair, ...] = ()
    """Declarations that differ; inputs and outputs only where both sides are models."""
    notes: tuple[DeclaredPair, ...] | None = None
    """Notes that differ, which compute nothing; None where a side is a saved report, or remote."""
    followed: Followed | None = None
    """None where the learned tensors were not followed."""
    is_same_file: bool = False
    """Whether both sides are the same files, byte by byte."""
    macs: tuple[Macs, Macs] | None = None
    """Multiply-accumulates of a run of A and of B, if they were counted."""

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each group, the largest change first; `change` is B's number less A's."""
        return [
            {
                "group": pair.name,
                "status": pair.status.value,
                "parameters_a": pair.parameters.a,
                "parameters_b": pair.parameters.b,
                "parameters_change": pair.parameters.change,
                "bytes_a": pair.nbytes.a,
                "bytes_b": pair.nbytes.b,
                "bytes_change": pair.nbytes.change,
            }
            for pair in self.groups
        ]

    def __repr__(self) -> str:
        change = f"{self.parameters.change:+,} parameters, {self.file_nbytes.change:+,} bytes"
        return f"<Comparison {printable(self.a)} -> {printable(self.b)}: {change}>"

    def _repr_html_(self) -> str:
        from analyzer.account.notebook import to_html  # only notebooks need this

        return to_html(repr(self)[1:-1], self.rows())

    @property
    def tensor_count(self) -> Pair[int]:
        """Stored tensors of each side."""
        return Pair(
            sum(pair.a is not None for pair in self.tensors), sum(pair.b is not None for pair in self.tensors)
        )


def count_statuses(pairs: Iterable[GroupPair | TensorPair]) -> Mapping[Status, int]:
    """Return the number of pairs with each status; every status is a key."""
    counter = Counter(pair.status for pair in pairs)
    return {status: counter[status] for status in Status}
