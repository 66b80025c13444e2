"""Ledger + Ledger -> Comparison: totals and groups side by side."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Generic, TypeVar

from analyzer.group import group_by
from analyzer.keys import Label, choose_key, label_order
from analyzer.ledger import Group, Grouping, Ledger, Match

__all__ = ["Comparison", "GroupPair", "Pair", "Status", "compare_ledgers", "group_alike"]


class Status(enum.StrEnum):
    """What happened to a group between A and B. Unchanged means the same counts and bytes, not the same values."""

    UNCHANGED = "unchanged"
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


_N = TypeVar("_N", int, float)


@dataclass(frozen=True, slots=True)
class Pair(Generic[_N]):
    """One number on both sides: a count, or milliseconds."""

    a: _N
    b: _N

    @property
    def difference(self) -> _N:
        """Of a and b: a - b."""
        return self.a - self.b

    @property
    def ratio(self) -> float | None:
        """Quotient a / b; None where b is 0, or below, as what profiling adds may be."""
        return self.a / self.b if self.b > 0 else None


@dataclass(frozen=True, slots=True)
class GroupPair:
    """One group on both sides; a side that lacks it has 0."""

    name: str
    label: Label
    """The parts of its name, one for each key."""
    status: Status
    parameters: Pair[int]
    nbytes: Pair[int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A against B. Differences are a - b, ratios a / b."""

    a: str
    b: str
    parameters: Pair[int]
    file_nbytes: Pair[int]
    by: str
    """As in `Grouping`, of both; so is `depth`."""
    depth: int | None
    groups: tuple[GroupPair, ...]
    overlap: GroupPair
    ungrouped: GroupPair
    match: Match | None = None
    """As in `Grouping`, of both."""
    origins: tuple[str | None, str | None] = (None, None)
    """As in `Grouping`, of A and of B."""


def group_alike(
    a: Ledger, b: Ledger, by: str | None = None, depth: int | None = None
) -> tuple[Grouping, Grouping]:
    """Group both by the same keys at the same depth, the lesser of what each would take by default.

    Where `by` is None the key is the one that both would take; if they differ blocks, where both have those.

    Raises:
        UsageError: as of `analyzer.group.group_by`.
    """
    by = _agree_on_key(a, b) if by is None else by
    found = group_by(a, by, depth), group_by(b, by, depth)
    depths = [grouping.depth for grouping in found if grouping.depth is not None]
    if len(set(depths)) < 2:
        return found
    return group_by(a, by, min(depths)), group_by(b, by, min(depths))


def _agree_on_key(a: Ledger, b: Ledger) -> str:
    if choose_key(a) == choose_key(b):
        return choose_key(a)
    has_blocks = all(side.blocks is not None and side.blocks.count > 0 for side in (a, b))
    return "block" if has_blocks else "scope"


def compare_ledgers(a: Ledger, b: Ledger, grouping_a: Grouping, grouping_b: Grouping) -> Comparison:
    """Set two groupings by the same keys side by side, groups in their natural order or in the user's."""
    groups_a, groups_b = _by_label(grouping_a), _by_label(grouping_b)
    labels = list(dict.fromkeys((*groups_a, *groups_b)))
    if grouping_a.by != "group":
        labels.sort(key=label_order)
    return Comparison(
        a=str(a.model.path),
        b=str(b.model.path),
        parameters=Pair(a.parameters, b.parameters),
        file_nbytes=Pair(a.file_nbytes, b.file_nbytes),
        by=grouping_a.by,
        depth=grouping_a.depth,
        groups=tuple(_pair(groups_a.get(label), groups_b.get(label)) for label in labels),
        overlap=_pair(grouping_a.overlap, grouping_b.overlap),
        ungrouped=_pair(grouping_a.ungrouped, grouping_b.ungrouped),
        match=grouping_a.match,
        origins=(grouping_a.origin, grouping_b.origin),
    )


def _by_label(grouping: Grouping) -> dict[Label, Group]:
    """Groups without those of nodes alone, which have nothing to compare: a saved report has no nodes."""
    return {group.label: group for group in grouping.groups if group.tensors or grouping.by == "group"}


def _pair(a: Group | None, b: Group | None) -> GroupPair:
    known = a or b or Group("")
    left, right = a or Group(known.name), b or Group(known.name)
    if a is None or b is None:
        status = Status.ADDED if a is None else Status.REMOVED
    elif (a.parameters, a.stored_elements, a.nbytes) == (b.parameters, b.stored_elements, b.nbytes):
        status = Status.UNCHANGED
    else:
        status = Status.CHANGED
    return GroupPair(
        known.name,
        known.label,
        status,
        Pair(left.parameters, right.parameters),
        Pair(left.nbytes, right.nbytes),
    )
