"""A ledger -> the range in which its parameters are, where the file or the contents leave a choice, and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from analyzer.findings.ids import UNREAD
from analyzer.ledger import Entry, Finding, Ledger, Role
from analyzer.model import Key, label
from analyzer.units import format_many

__all__ = ["LOOK", "Doubt", "Range", "find_doubt", "say_unread"]

LOOK = "--content sampled compares them"


@dataclass(frozen=True, slots=True)
class Range:
    """What parameters may be: at least and at most so many, and why they may be fewer or more than was counted."""

    least: int
    most: int
    fewer: str = ""
    more: str = ""


@dataclass(frozen=True, slots=True)
class Doubt:
    """What nobody could settle of a whole model."""

    parameters: int
    """As counted."""
    fewer: str = ""
    """Why some of them may be none; "" where none may."""
    keys: frozenset[Key] = frozenset()
    """Tensors that count parameters, and would not if they repeated another."""
    counted: int = 0
    """Parameters of these."""
    stays: int = 0
    """Parameters of these that a whole model has in any case: of tensors that may all be one, one."""
    more: Mapping[Key, tuple[int, str]] = field(default_factory=dict)
    """Tensors that may hold parameters which are not counted: how many, and why."""

    @property
    def least(self) -> int:
        return self.parameters - self.counted + self.stays

    @property
    def most(self) -> int:
        return self.parameters + sum(number for number, _ in self.more.values())

    def of(self, entries: Collection[Entry], *, is_whole: bool) -> Range:
        """The range of a part of the model, or of all of it: a part may repeat what stands in another."""
        counted = sum(entry.parameters for entry in entries)
        lost = [entry.parameters for entry in entries if entry.tensor.key in self.keys]
        found = [self.more[entry.tensor.key] for entry in entries if entry.tensor.key in self.more]
        return Range(
            counted - sum(lost) + (self.stays if is_whole else 0),
            counted + sum(number for number, _ in found),
            self.fewer if lost else "",
            max(found, default=(0, ""))[1],
        )


def find_doubt(ledger: Ledger) -> Doubt:
    """What contents could still take away from the parameters, and what could still be added to them.

    What repeats another has as many elements. A PyTorch name that nothing else in a single file has makes a tensor a
    parameter of its own, whatever it holds, as in `analyzer.copies`; but rows that an exporter gathered count by what
    they hold. Opaque data may be learned; and of what counts once by its name alone each may be a tensor of its own.
    """
    reason = _say_why(ledger)
    learned = [entry for entry in ledger.entries if entry.role is Role.PARAMETER] if reason else []
    names = Counter(entry.sources for entry in learned if entry.sources and len(ledger.model.parts) == 1)
    unread = _find_unread(ledger)
    alike: dict[int, list[Entry]] = defaultdict(list)
    for entry in learned:
        if entry.parameters:
            alike[entry.logical_numel].append(entry)
    lost: dict[Key, int] = {}
    stays = 0
    for entries in alike.values():
        missing = [entry for entry in entries if entry.tensor.key in unread]
        gathered = [entry for entry in missing if entry.decided_by == _GATHERED]
        own = [entry for entry in entries if names[entry.sources] == 1]
        found = [entry for entry in entries if names[entry.sources] != 1] if missing and entries[1:] else []
        lost |= {entry.tensor.key: entry.parameters for entry in (*gathered, *found)}
        stays += _count_stays(found, own, {entry.tensor.key for entry in missing}) if not gathered else 0
    return Doubt(
        parameters=ledger.parameters,
        fewer=reason if lost else "",
        keys=frozenset(lost),
        counted=sum(lost.values()),
        stays=stays,
        more=_find_more(ledger),
    )


def _count_stays(found: Sequence[Entry], own: Sequence[Entry], unread: Collection[Key]) -> int:
    """Parameters of equally large tensors that there are however many of them are copies.

    What was read was compared with all else that was read, so that each unread tensor of a name of its own takes one of
    them at the most, and without names the unread are copies of what was read, or all of one.

    Args:
        found: those that may be copies.
        own: those that are parameters of their own.
        unread: which of them could not be read.
    """
    read = sorted(entry.parameters for entry in found if entry.tensor.key not in unread)
    takers = [entry for entry in own if entry.tensor.key in unread]
    if takers and len({entry.tensor.dtype for entry in (*found, *takers)}) > 1:
        return 0  # two that differ may both be rounded to one
    if read or own or not found:
        return sum(read[: max(len(read) - len(takers), 0)])
    return min(entry.parameters for entry in found)


def _find_unread(ledger: Ledger) -> frozenset[Key]:
    """Learned tensors whose contents nobody looked at, or could; all of them where a finding does not say which."""
    keys = {label(entry.tensor.key): entry.tensor.key for entry in ledger.entries}
    said = [set(finding.subjects) for finding in ledger.findings if finding.id in UNREAD]
    if ledger.content == "none" or any(keys.keys().isdisjoint(subjects) for subjects in said):
        return frozenset(keys.values())
    return frozenset(keys[subject] for subjects in said for subject in subjects if subject in keys)


_GATHERED = "provenance:folded-with"
"""The rule for rows of a table that an exporter gathered or repeated."""

_BY_NAME = "name:duplicated-file"
"""The rule for what two components both have by its name, where nobody looked at its content."""


def _find_more(ledger: Ledger) -> dict[Key, tuple[int, str]]:
    opaque = set(ledger.opaque)
    why = "contents were not looked at" if ledger.content == "none" else "see the finding opaque"
    said = f"{format_many(ledger.opaque_elements, 'element')} of opaque data may be learned: {why}"
    found: dict[Key, tuple[int, str]] = {}
    for entry in ledger.entries:
        number, reason = 0, ""
        if entry.tensor.key in opaque:
            number, reason = entry.capacity - entry.parameters, said
        elif entry.decided_by == _BY_NAME:
            number, reason = entry.logical_numel, f"{_ONE_NAME}; {LOOK}"
        if number > 0:
            found[entry.tensor.key] = number, reason
    return found


_ONE_NAME = "contents were not looked at, so what has one name in two files counts once"


def _say_why(ledger: Ledger) -> str:
    """Why contents were not all compared; "" where they were."""
    if ledger.content == "none":
        return f"contents were not looked at, so what is stored twice may count twice; {LOOK}"
    unread = next((finding for finding in ledger.findings if finding.id in UNREAD), None)
    return "" if unread is None else say_unread(unread)


def say_unread(finding: Finding) -> str:
    """That tensors could not be read, and why."""
    return f"not all of it could be read: {finding.message} ({finding.id})"
