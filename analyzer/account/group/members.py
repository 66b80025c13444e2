"""Ledger + Grouping -> the groups of each entry."""

from __future__ import annotations

from analyzer.account.group.keys import ACCOUNTS, label_members
from analyzer.account.group.patterns import UNGROUPED
from analyzer.account.ledger import Grouping, Ledger


def list_groups(ledger: Ledger, grouping: Grouping) -> list[tuple[str, ...]]:
    """Return the names of each entry's groups, in the ledger's order: one for keys, one or more for user groups."""
    if grouping.by == "group":
        return [names or (UNGROUPED,) for names in grouping.members]
    if grouping.by == ACCOUNTS:
        return [(entry.role.value,) for entry in ledger.entries]
    labels = label_members(ledger, grouping.by, grouping.depth).entries
    return [(" / ".join(label),) for label in labels]
