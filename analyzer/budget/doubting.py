"""A ledger whose contents were not all read -> which of its parameters may yet turn out to be copies."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from analyzer.findings.ids import UNREAD
from analyzer.ledger import Entry, Finding, Ledger, Role
from analyzer.model import Key

__all__ = ["LOOK", "Doubt", "find_doubt", "say_unread"]

LOOK = "--content sampled compares them"


@dataclass(frozen=True, slots=True)
class Doubt:
    """What nobody could compare."""

    reason: str
    keys: frozenset[Key]
    """Tensors that count parameters, and would not if they repeated another."""
    stays: int
    """Parameters of these that a whole model has in any case: of tensors that may all be one, one."""


def find_doubt(ledger: Ledger) -> Doubt | None:
    """The parameters that contents could still take away; None where they could take none.

    What repeats another has as many elements. A PyTorch name that nothing else in a single file has makes a tensor a
    parameter of its own, whatever it holds, as in `analyzer.copies`; but rows that an exporter gathered count by what
    they hold.
    """
    reason = _say_why(ledger)
    learned = [entry for entry in ledger.entries if entry.role is Role.PARAMETER] if reason else []
    names = Counter(entry.sources for entry in learned if entry.sources and len(ledger.model.parts) == 1)
    alike: dict[int, list[Entry]] = defaultdict(list)
    for entry in learned:
        alike[entry.logical_numel].append(entry)
    keys: set[Key] = set()
    stays = 0
    for entries in alike.values():
        gathered = [entry for entry in entries if entry.decided_by == _GATHERED]
        found = [entry for entry in entries if len(entries) > 1 and names[entry.sources] != 1]
        keys |= {entry.tensor.key for entry in (*gathered, *found) if entry.parameters}
        if len(found) == len(entries) and not gathered:
            stays += min(entry.parameters for entry in found)
    return Doubt(reason, frozenset(keys), stays) if keys else None


_GATHERED = "provenance:folded-with"
"""The rule for rows of a table that an exporter gathered or repeated."""


def _say_why(ledger: Ledger) -> str:
    """Why contents were not all compared; "" where they were."""
    if ledger.content == "none":
        return f"contents were not looked at, so what is stored twice may count twice; {LOOK}"
    unread = next((finding for finding in ledger.findings if finding.id in UNREAD), None)
    return "" if unread is None else say_unread(unread)


def say_unread(finding: Finding) -> str:
    """That tensors could not be read, and why."""
    return f"not all of it could be read: {finding.message} ({finding.id})"
