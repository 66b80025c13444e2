"""Ledger -> range of its parameter count, if the file or its contents leave it open, and the reasons.

Three things leave it open: contents that were not compared, data that no rule explains, and tensors that hide how many
parameters PyTorch had in their place (`analyzer.account.hidden`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from analyzer.account.classify.constants import FILLER, TRACED_CONSTANT
from analyzer.account.findings import UNREAD
from analyzer.account.ledger import Entry, Finding, Hides, Ledger, Role
from analyzer.model import Key, label
from analyzer.records import Frozen, field
from analyzer.text import format_count, format_many

COMPARE_HINT = "--content sampled compares them"


class Range(Frozen):
    """Least and most parameters that there may be, and why they may be fewer or more than the count."""

    least: int
    most: int | None
    """Upper bound; None if there is no bound."""
    fewer: str = ""
    more: str = ""

    @property
    def is_exact(self) -> bool:
        return self.least == self.most

    @property
    def most_of_all(self) -> int:
        """Upper bound as a number, larger than any other if there is no bound."""
        return _NO_BOUND if self.most is None else self.most

    def describe(self) -> str:
        """Return both ends in words."""
        if self.most is None:
            return f"at least {format_many(self.least, 'parameter')}"
        return f"between {format_count(self.least)} and {format_many(self.most, 'parameter')}"


_NO_BOUND = 1 << 127


class Doubt(Frozen):
    """Open questions about the parameters of a whole model."""

    parameters: int
    """Parameters as counted."""
    fewer: str = ""
    """Reason why some of them may not count; "" if all do."""
    keys: frozenset[Key] = frozenset()
    """Tensors that count parameters, and would not if they repeated another."""
    counted: int = 0
    """Parameters of the tensors in `keys`."""
    stays: int = 0
    """Parameters of `keys` that a whole model has in any case: if all of several tensors may be copies, one of them
    stays.
    """
    more: Mapping[Key, tuple[int, str]] = field(default_factory=dict)
    """Tensors that may hold uncounted parameters: how many, and why."""
    hidden: Mapping[Key, Hides] = field(default_factory=dict)
    """Tensors that hide how many parameters PyTorch had in their place."""
    unknown: int = 0
    """Elements of hidden tensors that were computed from an unknown number of parameters."""

    @property
    def least(self) -> int:
        kept = sum(hides.least for key, hides in self.hidden.items() if key not in self.keys)
        return max(self.parameters - self.counted + self._kept_parameters + kept, 0)

    @property
    def most(self) -> int | None:
        return _add_up(
            self.parameters + sum(number for number, _ in self.more.values()), self.hidden.values()
        )

    @property
    def _kept_parameters(self) -> int:
        return 0 if self.keys & self.hidden.keys() else self.stays

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons, in words, why the least is not the most."""
        more = max(self.more.values(), default=(0, ""))[1]
        return tuple(dict.fromkeys(filter(None, (_describe_hidden(self.hidden.values()), self.fewer, more))))

    def of(self, entries: Collection[Entry], *, is_whole: bool, is_hidden: bool = True) -> Range:
        """Return the range for a part of the model, or for all of it: a part may repeat tensors of another.

        Without `is_hidden`, the range leaves aside how many parameters its tensors may hide.
        """
        counted = sum(entry.parameters for entry in entries)
        keys = [entry.tensor.key for entry in entries]
        doubtful = [entry.parameters for entry in entries if entry.tensor.key in self.keys]
        found = [self.more[key] for key in keys if key in self.more]
        hidden = {key: self.hidden[key] for key in keys if key in self.hidden} if is_hidden else {}
        kept = sum(hides.least for key, hides in hidden.items() if key not in self.keys)
        stays = 0 if not is_whole or self.keys & hidden.keys() else self.stays
        why = _describe_hidden(hidden.values())
        return Range(
            max(counted - sum(doubtful) + stays + kept, 0),
            _add_up(counted + sum(number for number, _ in found), hidden.values()),
            (self.fewer if doubtful else "") or why,
            max(found, default=(0, ""))[1] or why,
        )


def _add_up(counted: int, hidden: Collection[Hides]) -> int | None:
    """Return the most that there may be; None if there is no bound."""
    if any(hides.most is None for hides in hidden):
        return None
    return counted + sum(hides.most or 0 for hides in hidden)


def _describe_hidden(hidden: Iterable[Hides]) -> str:
    """Say why the number of PyTorch's parameters is unknown for some tensors; "" if there are none."""
    found = list(hidden)
    counts = Counter(hides.why for hides in found)
    parts = []
    has_norm = sum(hides.why == "batchnorm" and hides.least > 0 for hides in found)
    if has_norm:
        parts.append(
            f"{format_many(has_norm, 'layer')} with a BatchNorm folded in {'hides' if has_norm == 1 else 'hide'} "
            "how many parameters PyTorch had"
        )
    if number := counts["batchnorm"] - has_norm:
        parts.append(f"{format_many(number, 'layer')} may have a BatchNorm folded in")
    if number := counts["factor"] + counts["bias"]:
        parts.append(
            f"a factor or a bias was folded into, or a bias of zeros removed from, {format_many(number, 'layer')}"
        )
    if number := counts["computed"]:
        word = (
            "was computed from parameters before it was"
            if number == 1
            else ("were computed from parameters before they were")
        )
        parts.append(f"{format_many(number, 'tensor')} {word} stored")
    if number := counts["padding"]:
        parts.append(f"{format_many(number, 'tensor')} may contain zero padding")
    if number := counts["buffer"]:
        parts.append(f"{format_many(number, 'tensor')} may be, or hold, a buffer")
    if number := counts["repeated"]:
        parts.append(f"{format_many(number, 'tensor')} may repeat values that are stored already")
    if number := counts["merged"]:
        parts.append(f"{format_many(number, 'tensor')} may stand for several parameters of equal content")
    if number := counts["copy"]:
        verb = (
            "has the content of another, and may be a parameter"
            if number == 1
            else "have the content of others, and may be parameters"
        )
        parts.append(f"{format_many(number, 'tensor')} {verb} of {'its' if number == 1 else 'their'} own")
    if number := counts["scalar"]:
        parts.append(
            f"{format_many(number, 'number')} may be {'a parameter' if number == 1 else 'parameters'}"
        )
    return ", and ".join(parts)


def find_doubt(ledger: Ledger) -> Doubt:
    """Find how many parameters reading more contents could remove, and how many might still be added.

    A copy has as many elements as its original. In a single file a tensor with a unique PyTorch name is a parameter of
    its own, whatever its content, as in `copies`; but rows that an exporter gathered count by their content. Opaque
    data may be learned, and tensors that count once because of an equal name may each be a tensor of its own.
    """
    reason = _describe_uncompared(ledger)
    learned = [entry for entry in ledger.entries if entry.role is Role.PARAMETER] if reason else []
    names = Counter(entry.sources for entry in learned if entry.sources and len(ledger.model.parts) == 1)
    unread = _find_unread(ledger)
    alike: dict[int, list[Entry]] = defaultdict(list)
    for entry in learned:
        if entry.parameters:
            alike[entry.logical_numel].append(entry)
    doubtful: dict[Key, int] = {}
    stays = 0
    for entries in alike.values():
        missing = [entry for entry in entries if entry.tensor.key in unread]
        gathered = [entry for entry in missing if entry.decided_by == _GATHERED]
        own = [entry for entry in entries if names[entry.sources] == 1]
        found = [entry for entry in entries if names[entry.sources] != 1] if missing and entries[1:] else []
        doubtful |= {entry.tensor.key: entry.parameters for entry in (*gathered, *found)}
        stays += _count_stays(found, own, {entry.tensor.key for entry in missing}) if not gathered else 0
    return Doubt(
        parameters=ledger.parameters,
        fewer=reason if doubtful else "",
        keys=frozenset(doubtful),
        counted=sum(doubtful.values()),
        stays=stays,
        more=_find_more(ledger),
        hidden=ledger.hidden,
        unknown=sum(
            entry.capacity
            for entry in (ledger.entries if ledger.hidden else ())
            if entry.tensor.key in ledger.hidden and ledger.hidden[entry.tensor.key].why == "computed"
        ),
    )


def _count_stays(found: Sequence[Entry], own: Sequence[Entry], unread: Collection[Key]) -> int:
    """Return the parameters, among tensors of equal size, that count however many of the tensors are copies.

    The tensors that were read were compared with each other, so that each unread tensor with a name of its own can
    equal at most one of them. Without names, the unread tensors are copies of tensors that were read, or all equal.

    Args:
        found: tensors that may be copies.
        own: tensors that are parameters of their own.
        unread: keys of tensors that could not be read.
    """
    read = sorted(entry.parameters for entry in found if entry.tensor.key not in unread)
    unread_own = [entry for entry in own if entry.tensor.key in unread]
    if unread_own and len({entry.tensor.dtype for entry in (*found, *unread_own)}) > 1:
        return 0  # two different tensors may be rounded to the same values
    if read or own or not found:
        return sum(read[: max(len(read) - len(unread_own), 0)])
    return min(entry.parameters for entry in found)


def _find_unread(ledger: Ledger) -> frozenset[Key]:
    """Return learned tensors whose contents were not read; all of them if a finding does not name its subjects."""
    subject_sets = [set(finding.subjects) for finding in ledger.findings if finding.id in UNREAD]
    if ledger.content != "none" and not subject_sets:
        return frozenset()
    keys = {label(entry.tensor.key): entry.tensor.key for entry in ledger.entries}
    if ledger.content == "none" or any(keys.keys().isdisjoint(subjects) for subjects in subject_sets):
        return frozenset(keys.values())
    return frozenset(keys[subject] for subjects in subject_sets for subject in subjects if subject in keys)


_GATHERED = "provenance:folded-with"
"""Rule for rows of a table that an exporter gathered or repeated."""

_BY_NAME = "name:duplicated-file"
"""Rule for a tensor that two components share by its name, if its content was not read."""


def _find_more(ledger: Ledger) -> dict[Key, tuple[int, str]]:
    opaque = set(ledger.opaque)
    why = "contents were not read" if ledger.content == "none" else "see the finding opaque"
    opaque_reason = f"{format_many(ledger.opaque_elements, 'element')} of opaque data may be learned: {why}"
    found: dict[Key, tuple[int, str]] = {}
    for entry in ledger.entries:
        number, reason = 0, ""
        if entry.decided_by == TRACED_CONSTANT:
            continue  # PyTorch never writes a parameter this way, whatever computes with it
        if opaque and entry.tensor.key in opaque:
            number, reason = entry.capacity - entry.parameters, opaque_reason
        elif entry.decided_by == _BY_NAME:
            number, reason = entry.logical_numel, f"{_EQUAL_NAMES}; {COMPARE_HINT}"
        elif entry.decided_by == FILLER and entry.tensor.dtype.is_floating:
            number, reason = entry.logical_numel, _OVERWRITTEN_ZEROS
        elif entry.role is Role.UNATTRIBUTED and _may_be_learned(entry, ledger):
            number, reason = entry.capacity - entry.parameters, _UNEXPLAINED
        if number > 0:
            found[entry.tensor.key] = number, reason
    return found


_OVERWRITTEN_ZEROS = "zeros that nodes overwrite may be parameters that were never trained"
_UNEXPLAINED = "numbers that no rule explains may be learned: see the finding unattributed"


def _may_be_learned(entry: Entry, ledger: Ledger) -> bool:
    """Whether an output depends on unexplained numbers, however few: the mean of a picture, or a bias."""
    if not entry.tensor.dtype.is_floating:
        return False
    if ledger.model.producer.startswith("pytorch") and entry.tensor.node is not None:
        return False  # a value from the trace
    return ledger.live is not None and entry.tensor.key in ledger.live.tensors


_EQUAL_NAMES = "contents were not read, so tensors of one name in two files count once"


def _describe_uncompared(ledger: Ledger) -> str:
    """Say why contents were not all compared; "" if they were."""
    if ledger.content == "none":
        return f"contents were not read, so a tensor stored twice may count twice; {COMPARE_HINT}"
    unread = next((finding for finding in ledger.findings if finding.id in UNREAD), None)
    return "" if unread is None else describe_unread(unread)


def describe_unread(finding: Finding) -> str:
    """Say that tensors could not be read, and why."""
    return f"parts of the file could not be read: {finding.message} ({finding.id})"
