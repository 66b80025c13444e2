"""The nouns of a comparison: numbers, groups and tensors in pairs, and what became of each."""

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
    """What happened on the way from A to B. Unchanged means the same counts and bytes, not the same values."""

    UNCHANGED = "unchanged"
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class MatchedBy(enum.StrEnum):
    """How a tensor of A was found in B."""

    NAME = "name"
    """Both have its name, in graphs of one path."""
    SOURCES = "sources"
    """They are computed from the same PyTorch tensors, and nothing else in their graphs is."""
    CONTENT = "content"
    """They hold the same values, in any orientation, type or code (`analyzer.comparison.following`)."""


class Change(enum.StrEnum):
    """What of a tensor differs."""

    DTYPE = "dtype"
    SHAPE = "shape"
    ROLE = "role"
    PARAMETERS = "parameters"
    """What counts as learned: of a copy nothing does."""
    STORED_ELEMENTS = "stored_elements"
    BYTES = "bytes"
    LAYOUT = "layout"
    """The same values stand in another order: turned, or cut out of one that several were packed into."""
    VALUES = "values"
    """Nothing else differs; only where values were compared."""


class WiringPair(Frozen):
    """Whether two models compute alike with their weights (`analyzer.model.fingerprint`)."""

    alike: bool
    first: str | None = None
    """The first module of A that is another in B; None where they are alike, or no module can be named."""


class DeclaredPair(Frozen):
    """What a file says of itself, and the other otherwise: the version of an operator set, an input, an output."""

    what: str
    """`opset ai.onnx`, `IR version`, `input x`, `output y`, `order of inputs`, `order of outputs`, `training_info`;
    of notes `producer`, `doc string`, `metadata KEY` and the like."""
    a: str | None
    """What A says; None where it says nothing."""
    b: str | None


_N = TypeVar("_N", int, float)


class Pair(Frozen, Generic[_N]):
    """One number on both sides, `a` and `b`: a count, or milliseconds; 0 where that side lacks what is counted."""

    a: _N
    b: _N

    @property
    def difference(self) -> _N:
        """Of a and b: a - b."""
        return self.a - self.b

    @property
    def change(self) -> _N:
        """What has come on the way from a to b."""
        return self.b - self.a

    @property
    def ratio(self) -> float | None:
        """Quotient a / b; None where b is 0, or below, as what profiling adds may be."""
        return self.a / self.b if self.b > 0 else None


class GroupPair(Frozen):
    """One group on both sides; a side that lacks it has 0.

    `parameters` and `stored_elements` are elements, `nbytes` bytes of encoded payload, `tensors` stored tensors.
    """

    name: str
    label: tuple[str, ...]
    """The parts of its name, one for each key."""
    status: Status
    parameters: Pair[int]
    stored_elements: Pair[int]
    nbytes: Pair[int]
    tensors: Pair[int]
    macs: Pair[int] | None = None
    """Multiply-accumulates, where they were counted on both sides."""
    unworked: Pair[int] | None = None
    """Nodes whose work is not known, and not among `macs`."""


class TensorPair(Frozen):
    """One stored tensor on both sides; a side that lacks it has None, and 0 of everything."""

    a: Entry | None
    b: Entry | None
    groups: tuple[str | None, str | None]
    """The group that it is in, on each side, of several the first; None where that side lacks it."""
    status: Status
    matched_by: MatchedBy | None
    """None where one side lacks it."""
    changed: tuple[Change, ...] = ()
    """What differs; nothing unless its status is `changed`."""
    line: str | None = None
    """What became of its values, in the words of `reconcile`, where they were followed; of a tensor that only one side
    has, that the other holds it in one piece with another."""

    @property
    def entry(self) -> Entry:
        """B's, else A's: what is there now, if it is."""
        found = self.b or self.a
        assert found is not None
        return found

    @property
    def group(self) -> str | None:
        """B's, else A's."""
        return self.groups[self.b is not None]

    @property
    def parameters(self) -> Pair[int]:
        """Learned elements that count here; of a copy none."""
        return Pair(*(0 if side is None else side.parameters for side in (self.a, self.b)))

    @property
    def stored_elements(self) -> Pair[int]:
        """Elements as stored."""
        return Pair(*(0 if side is None else side.tensor.numel for side in (self.a, self.b)))

    @property
    def nbytes(self) -> Pair[int]:
        """Bytes of encoded payload."""
        return Pair(*(0 if side is None else side.tensor.nbytes for side in (self.a, self.b)))


class Step(Frozen):
    """Where one learned tensor of the side that was followed is in the other."""

    source: Key
    held: tuple[Key, ...]
    """The tensors that hold it there, the first first; others are copies."""
    line: str
    """What became of it, in the words of `reconcile`: `renamed`, `transposed`, `quantized`, `concatenated`."""


class Followed(Frozen):
    """The learned tensors of one side, followed into the other (`analyzer.comparison.following`)."""

    steps: tuple[Step, ...]
    is_turned: bool
    """Whether B's were followed into A, as A has the coarser numbers."""
    is_whole: bool
    """Whether all of them were found, and nothing that is learned is left over."""
    cut: int
    """Of how many the other side has only a part, or nothing, though nothing contradicts it."""
    content: ContentMode


class ValueCounts(Frozen):
    """How many of the tensors that are otherwise alike have `equal`, `differing` and `unknown` values."""

    content: ContentMode
    """How many of their values were compared: those at fixed positions, or all."""
    equal: int
    differing: int
    unknown: int
    """What could not be read."""


class Comparison(Frozen):
    """A against B. Differences are a - b, ratios a / b. Groups and tensors come largest change first.

    `parameters` are learned elements, each once, and `stored_elements` elements as stored; `stored_nbytes` are bytes of
    payload, `file_nbytes` those of all files on disk.
    """

    a: str
    b: str
    parameters: Pair[int]
    stored_elements: Pair[int]
    stored_nbytes: Pair[int]
    file_nbytes: Pair[int]
    nodes: Pair[int] | None
    """None where a saved report does not say how many there were."""
    by: str
    """As in `Grouping`, of both."""
    depth: int | None
    """As in `Grouping`, of both."""
    groups: tuple[GroupPair, ...]
    overlap: GroupPair
    ungrouped: GroupPair
    tensors: tuple[TensorPair, ...]
    contents: tuple[ContentMode, ContentMode] = ("sampled", "sampled")
    """How far contents were looked at when each side was made: what was not looked at has no copies."""
    values: ValueCounts | None = None
    """None where values were not compared."""
    match: Match | None = None
    """As in `Grouping`, of both."""
    origins: tuple[str | None, str | None] = (None, None)
    """As in `Grouping`, of A and of B."""
    wiring: WiringPair | None = None
    """None where a side is a saved report, or too large for one look."""
    declared: tuple[DeclaredPair, ...] = ()
    """What the files say of themselves otherwise; inputs and outputs where both sides are models."""
    notes: tuple[DeclaredPair, ...] | None = None
    """What the files note otherwise, which computes nothing; None where a side is a saved report, or remote."""
    followed: Followed | None = None
    """None where nobody followed the learned tensors."""
    is_same_file: bool = False
    """Whether both sides are the same files, byte by byte."""
    macs: tuple[Macs, Macs] | None = None
    """What a run of A and of B computes, where that was counted."""

    def rows(self) -> list[dict[str, object]]:
        """A row for each group, the largest change first; `change` is B's number less A's."""
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
        from analyzer.account.notebook import to_html  # what only notebooks need

        return to_html(repr(self)[1:-1], self.rows())

    @property
    def tensor_count(self) -> Pair[int]:
        """Stored tensors of each side."""
        return Pair(
            sum(pair.a is not None for pair in self.tensors), sum(pair.b is not None for pair in self.tensors)
        )


def count_statuses(pairs: Iterable[GroupPair | TensorPair]) -> Mapping[Status, int]:
    """How many of them have each status; all statuses are there."""
    counter = Counter(pair.status for pair in pairs)
    return {status: counter[status] for status in Status}
