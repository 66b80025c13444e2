"""Ledger + Ledger -> Comparison: totals and groups side by side."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from analyzer.ledger import Group, Grouping, Ledger, natural_order

__all__ = ["Comparison", "GroupPair", "Pair", "Status", "compare_ledgers"]


class Status(enum.StrEnum):
    """What happened to a group between A and B. Unchanged means the same counts and bytes, not the same values."""

    UNCHANGED = "unchanged"
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Pair:
    """One number on both sides."""

    a: int
    b: int

    @property
    def difference(self) -> int:
        """Of a and b: a - b."""
        return self.a - self.b

    @property
    def ratio(self) -> float | None:
        """Quotient a / b; None where b is 0."""
        return self.a / self.b if self.b else None


@dataclass(frozen=True, slots=True)
class GroupPair:
    """One group on both sides; a side that lacks it has 0."""

    name: str
    status: Status
    parameters: Pair
    nbytes: Pair


@dataclass(frozen=True, slots=True)
class Comparison:
    """A against B. Differences are a - b, ratios a / b."""

    a: str
    b: str
    parameters: Pair
    file_nbytes: Pair
    groups: tuple[GroupPair, ...]
    overlap: GroupPair
    ungrouped: GroupPair


def compare_ledgers(a: Ledger, b: Ledger, grouping_a: Grouping, grouping_b: Grouping) -> Comparison:
    """Set two groupings by the same key side by side, groups in natural order or in the user's."""
    # Groups of nodes alone have nothing to compare, and a saved report has no nodes.
    groups_a = {group.name: group for group in grouping_a.groups if group.tensors or grouping_a.by == "group"}
    groups_b = {group.name: group for group in grouping_b.groups if group.tensors or grouping_b.by == "group"}
    names = list(dict.fromkeys((*groups_a, *groups_b)))
    if grouping_a.by != "group":
        names.sort(key=natural_order)
    return Comparison(
        a=str(a.model.path),
        b=str(b.model.path),
        parameters=Pair(a.parameters, b.parameters),
        file_nbytes=Pair(a.file_nbytes, b.file_nbytes),
        groups=tuple(_pair(name, groups_a.get(name), groups_b.get(name)) for name in names),
        overlap=_pair(grouping_a.overlap.name, grouping_a.overlap, grouping_b.overlap),
        ungrouped=_pair(grouping_a.ungrouped.name, grouping_a.ungrouped, grouping_b.ungrouped),
    )


def _pair(name: str, a: Group | None, b: Group | None) -> GroupPair:
    left, right = a or Group(name), b or Group(name)
    if a is None or b is None:
        status = Status.ADDED if a is None else Status.REMOVED
    elif (a.parameters, a.stored_elements, a.nbytes) == (b.parameters, b.stored_elements, b.nbytes):
        status = Status.UNCHANGED
    else:
        status = Status.CHANGED
    return GroupPair(name, status, Pair(left.parameters, right.parameters), Pair(left.nbytes, right.nbytes))
