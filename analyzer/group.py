"""Entries and nodes -> subgraphs: by keys, or by the user's own patterns, which may overlap.

Totals are logical parameters, stored elements and payload bytes. A tied or copied tensor counts its parameters once.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from analyzer.errors import LedgerError, UsageError
from analyzer.keys import ACCOUNTS, Label, label_members, label_order
from analyzer.ledger import (
    Entry,
    Finding,
    Group,
    Grouping,
    Ledger,
    Role,
    Severity,
    Trainability,
    natural_order,
)

__all__ = [
    "UNGROUPED",
    "Trainability",
    "find_overlap",
    "group_by",
    "group_by_patterns",
    "parse_patterns",
    "total_by",
]

UNGROUPED = "[ungrouped]"
"""What no pattern of the user's matches."""

OVERLAP = "[overlap]"


def group_by(
    ledger: Ledger, by: str = "scope", depth: int | None = None, known: Trainability | None = None
) -> Grouping:
    """Partition the ledger by one key or several: every entry is in exactly one group.

    Args:
        ledger: the account of one model.
        by: one of `analyzer.keys.KEYS`, or several with commas between them; or `bytes`, the accounts.
        depth: leading parts of the scope, or of the block, that name a group; None takes for scopes the first depth
            with three groups or more, for blocks 1.
        known: what the PyTorch side says of the entries; groups then count trainable and frozen parameters.

    Raises:
        UsageError: `by` names no key, or `depth` is below 1.
    """
    if by == ACCOUNTS:
        return _checked(ledger, _by_account(ledger, known))
    labels = label_members(ledger, by, depth)
    members: dict[Label, list[Entry]] = defaultdict(list)
    for entry, label in zip(ledger.entries, labels.entries, strict=True):
        members[label].append(entry)
    nodes = Counter(labels.nodes.values()) if labels.nodes is not None else Counter[Label]()
    names = sorted(members.keys() | nodes.keys(), key=label_order)
    groups = tuple(_total(name, members.get(name, ()), nodes[name], known) for name in names)
    nothing = _total((), (), 0, known)
    return _checked(
        ledger, Grouping(by, labels.depth, groups, nothing, nothing), has_nodes=labels.nodes is not None
    )


def total_by(entries: Iterable[Entry], key: Callable[[Entry], str]) -> tuple[Group, ...]:
    """Totals of entries that have a text in common, in natural order."""
    members: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        members[key(entry)].append(entry)
    return tuple(_total((name,), members[name], 0, None) for name in sorted(members, key=natural_order))


def _by_account(ledger: Ledger, known: Trainability | None) -> Grouping:
    """The accounts of all bytes on disk: those of payload have a role's entries, the others bytes alone."""
    members: dict[str, list[Entry]] = defaultdict(list)
    for entry in ledger.entries:
        members[entry.role.value].append(entry)
    groups = tuple(
        replace(_total((account.name,), members.get(account.name, ()), 0, known), nbytes=account.nbytes)
        for account in ledger.accounts
    )
    nothing = _total((), (), 0, known)
    return Grouping(ACCOUNTS, None, groups, nothing, nothing)


def parse_patterns(texts: Iterable[str]) -> dict[str, re.Pattern[str]]:
    """`NAME=REGEX` options as compiled patterns, in their order.

    Raises:
        UsageError: one is malformed, or a name stands twice.
    """
    patterns: dict[str, re.Pattern[str]] = {}
    for text in texts:
        name, equals, expression = text.partition("=")
        if not name or not equals or not expression:
            raise UsageError(f"--group {text!r}: write NAME=REGEX, as in 'embeddings=^embeddings'")
        if name in patterns:
            raise UsageError(f"--group {name!r} is given twice; join the patterns with |")
        try:
            patterns[name] = re.compile(expression)
        except re.error as error:
            raise UsageError(f"--group {name!r}: {error} in {expression!r}") from error
    return patterns


def group_by_patterns(
    ledger: Ledger, patterns: Mapping[str, re.Pattern[str]], known: Trainability | None = None
) -> Grouping:
    """The user's groups. A pattern is searched in an entry's scope, in its name and in its PyTorch names.

    `overlap` holds what the groups count more than once, `ungrouped` what none of them has.
    """
    members: dict[str, list[Entry]] = {name: [] for name in patterns}
    again: list[Entry] = []
    left: list[Entry] = []
    for entry in ledger.entries:
        matching = [name for name, pattern in patterns.items() if _matches(entry, pattern, known)]
        for name in matching:
            members[name].append(entry)
        again += [entry] * (len(matching) - 1)
        if not matching:
            left.append(entry)
    nodes, nodes_again, nodes_left = _match_nodes(ledger, patterns)
    return _checked(
        ledger,
        Grouping(
            by="group",
            depth=None,
            groups=tuple(_total((name,), members[name], nodes[name], known) for name in patterns),
            overlap=_total((OVERLAP,), again, nodes_again, known),
            ungrouped=_total((UNGROUPED,), left, nodes_left, known),
        ),
        has_nodes=True,
    )


def find_overlap(grouping: Grouping) -> tuple[Finding, ...]:
    """Whether the user's own groups have entries in common, as a finding."""
    overlap = grouping.overlap
    if not overlap.tensors:
        return ()
    message = (
        f"{overlap.parameters:,} parameters in {overlap.tensors:,} tensors are counted in more than one group"
    )
    return (Finding("overlapping-groups", Severity.NOTE, message),)


def _match_nodes(ledger: Ledger, patterns: Mapping[str, re.Pattern[str]]) -> tuple[dict[str, int], int, int]:
    """Nodes per pattern (searched in their scope), how often one counts again, and how many match none."""
    counts = dict.fromkeys(patterns, 0)
    again = left = 0
    for node in ledger.model.nodes():
        scope = ledger.node_scopes.get(node.place)
        matching = [name for name, pattern in patterns.items() if scope is not None and pattern.search(scope)]
        for name in matching:
            counts[name] += 1
        again += max(0, len(matching) - 1)
        left += not matching
    return counts, again, left


def _matches(entry: Entry, pattern: re.Pattern[str], known: Trainability | None) -> bool:
    texts = [entry.tensor.name, *entry.sources]
    if entry.has_scope:
        texts.append(entry.scope)
    if known and entry.tensor.key in known:
        texts.append(known[entry.tensor.key][0])
    return any(pattern.search(text) for text in texts)


def _total(label: Label, entries: Sequence[Entry], nodes: int, known: Trainability | None) -> Group:
    trainable = frozen = None
    if known is not None:
        flags = [(entry, known[entry.tensor.key][1]) for entry in entries if entry.tensor.key in known]
        trainable = sum(entry.parameters for entry, is_trainable in flags if is_trainable)
        frozen = sum(entry.parameters for entry, is_trainable in flags if not is_trainable)
    parameters = unshared = stored_elements = nbytes = learned_nbytes = 0
    applications: set[int] = set()
    for entry in entries:
        stored_elements += entry.tensor.numel
        nbytes += entry.tensor.nbytes
        if entry.role is Role.PARAMETER:
            learned_nbytes += entry.tensor.nbytes
        if entry.parameters:
            parameters += entry.parameters
            unshared += entry.parameters * entry.applications
            applications.add(entry.applications)
    return Group(
        name=" / ".join(label),
        label=label,
        parameters=parameters,
        unshared_parameters=unshared,
        applications=applications.pop() if len(applications) == 1 else 1,
        stored_elements=stored_elements,
        nbytes=nbytes,
        learned_nbytes=learned_nbytes,
        tensors=len(entries),
        nodes=nodes,
        trainable=trainable,
        frozen=frozen,
    )


def _checked(ledger: Ledger, grouping: Grouping, *, has_nodes: bool = False) -> Grouping:
    """Raise unless sum(groups) - overlap + ungrouped is the ledger's own total, for every total."""
    wanted = {
        "parameters": ledger.parameters,
        "stored_elements": ledger.stored_elements,
        "nbytes": ledger.file_nbytes if grouping.by == ACCOUNTS else ledger.stored_nbytes,
        "tensors": len(ledger.entries),
    }
    if has_nodes:
        wanted["nodes"] = sum(1 for _ in ledger.model.nodes())
    for total, value in wanted.items():
        of = attrgetter(total)
        found = sum(map(of, grouping.groups)) + of(grouping.ungrouped) - of(grouping.overlap)
        if found != value:
            raise LedgerError(
                f"{ledger.model.path}: groups by {grouping.by} do not sum up: {total} {found:,}"
            )
    return grouping
