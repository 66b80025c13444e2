"""Entries and nodes -> subgraphs: by scope, or by the user's own patterns, which may overlap.

Totals are logical parameters, stored elements and payload bytes. A tied or copied tensor counts its parameters once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from analyzer.errors import LedgerError, UsageError
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
    "KEYS",
    "UNGROUPED",
    "UNSCOPED",
    "Trainability",
    "find_overlap",
    "group_by",
    "group_by_patterns",
    "parse_patterns",
]

UNSCOPED = "[unscoped]"
"""The group of what has no scope."""

UNREAD = "[unread]"
"""The group, by operator, of what no node reads."""

ROOT = "[root]"
"""The group of the outermost module's own tensors, whose scope is ""."""

UNGROUPED = "[ungrouped]"
"""What no pattern of the user's matches."""

OVERLAP = "[overlap]"

_DEEPEST = 64
"""Depths that are tried; modules are nested a dozen deep, and a name can be made of a hundred thousand parts."""

_FEW_GROUPS = 3
"""The default depth is the first that gives this many groups: a head beside one large body says little."""


def group_by(
    ledger: Ledger, by: str = "scope", depth: int | None = None, known: Trainability | None = None
) -> Grouping:
    """Partition the ledger by a key: every entry is in exactly one group.

    Args:
        ledger: the account of one model.
        by: one of `KEYS`.
        depth: leading parts of the scope that name a group; None takes the first depth with three groups or more.
        known: what the PyTorch side says of the entries; groups then count trainable and frozen parameters.

    Raises:
        UsageError: `by` is no key, or `depth` is below 1.
    """
    if by not in KEYS:
        raise UsageError(f"--by {by}: not a key; choose one of {', '.join(KEYS)}")
    if depth is not None and depth < 1:
        raise UsageError(f"--depth {depth}: must be 1 or more")
    if by == "bytes":
        return _checked(ledger, _by_account(ledger, known))
    if by == "scope" and depth is None:
        depth = _default_depth(ledger.entries)
    key_of = KEYS[by](depth or 1)
    members: dict[str, list[Entry]] = defaultdict(list)
    for entry in ledger.entries:
        members[key_of(entry)].append(entry)
    nodes = _count_nodes(ledger, by, depth or 1)
    names = sorted(members.keys() | nodes.keys(), key=natural_order)
    groups = tuple(_total(name, members.get(name, ()), nodes.get(name, 0), known) for name in names)
    nothing = _total("", (), 0, known)
    return _checked(ledger, Grouping(by, depth if by == "scope" else None, groups, nothing, nothing))


def _by_account(ledger: Ledger, known: Trainability | None) -> Grouping:
    """The accounts of all bytes on disk: those of payload have a role's entries, the others bytes alone."""
    members: dict[str, list[Entry]] = defaultdict(list)
    for entry in ledger.entries:
        members[entry.role.value].append(entry)
    groups = tuple(
        replace(_total(account.name, members.get(account.name, ()), 0, known), nbytes=account.nbytes)
        for account in ledger.accounts
    )
    nothing = _total("", (), 0, known)
    return Grouping("bytes", None, groups, nothing, nothing)


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
            groups=tuple(_total(name, members[name], nodes[name], known) for name in patterns),
            overlap=_total(OVERLAP, again, nodes_again, known),
            ungrouped=_total(UNGROUPED, left, nodes_left, known),
        ),
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


def _by_scope(depth: int) -> Callable[[Entry], str]:
    return lambda entry: _scope_group(entry.scope, depth) if entry.has_scope else UNSCOPED


def _scope_group(scope: str, depth: int) -> str:
    if scope.count(".") < depth:  # as it is, nearly always where groups are many
        return scope or ROOT
    return ".".join(scope.split(".", depth)[:depth])


KEYS: dict[str, Callable[[int], Callable[[Entry], str]]] = {
    "scope": _by_scope,
    "op": lambda depth: lambda entry: entry.read_by or UNREAD,
    "dtype": lambda depth: lambda entry: entry.tensor.dtype.name,
    "role": lambda depth: lambda entry: entry.role.value,
    "bytes": lambda depth: lambda entry: entry.role.value,
}
"""What a ledger can be partitioned by."""


def _default_depth(entries: Sequence[Entry]) -> int:
    learned = {entry.scope for entry in entries if entry.role is Role.PARAMETER and entry.has_scope}
    deepest = max((scope.count(".") + 1 for scope in learned), default=1)
    for depth in range(1, min(deepest, _DEEPEST)):
        if len({_scope_group(scope, depth) for scope in learned}) >= _FEW_GROUPS:
            return depth
    return deepest


def _count_nodes(ledger: Ledger, by: str, depth: int) -> dict[str, int]:
    """Nodes per group; a node has no dtype and no role, so those keys have none."""
    counts: dict[str, int] = defaultdict(int)
    for node in ledger.model.nodes():
        if by == "op":
            counts[node.op_type] += 1
        elif by == "scope":
            scope = ledger.node_scopes.get((node.graph_path, node.position))
            counts[UNSCOPED if scope is None else _scope_group(scope, depth)] += 1
    return dict(counts)


def _match_nodes(ledger: Ledger, patterns: Mapping[str, re.Pattern[str]]) -> tuple[dict[str, int], int, int]:
    """Nodes per pattern (searched in their scope), how often one counts again, and how many match none."""
    counts = dict.fromkeys(patterns, 0)
    again = left = 0
    for node in ledger.model.nodes():
        scope = ledger.node_scopes.get((node.graph_path, node.position))
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


def _total(name: str, entries: Sequence[Entry], nodes: int, known: Trainability | None) -> Group:
    trainable = frozen = None
    if known is not None:
        flags = [(entry, known[entry.tensor.key][1]) for entry in entries if entry.tensor.key in known]
        trainable = sum(entry.parameters for entry, is_trainable in flags if is_trainable)
        frozen = sum(entry.parameters for entry, is_trainable in flags if not is_trainable)
    parameters = stored_elements = nbytes = 0
    for entry in entries:
        parameters += entry.parameters
        stored_elements += entry.tensor.numel
        nbytes += entry.tensor.nbytes
    return Group(name, parameters, stored_elements, nbytes, len(entries), nodes, trainable, frozen)


def _checked(ledger: Ledger, grouping: Grouping) -> Grouping:
    """Raise unless sum(groups) - overlap + ungrouped is the ledger's own total, for every total."""
    wanted = {
        "parameters": ledger.parameters,
        "stored_elements": ledger.stored_elements,
        "nbytes": ledger.file_nbytes if grouping.by == "bytes" else ledger.stored_nbytes,
        "tensors": len(ledger.entries),
    }
    if grouping.by not in ("dtype", "role", "bytes"):
        wanted["nodes"] = sum(1 for _ in ledger.model.nodes())
    for total, value in wanted.items():
        of = attrgetter(total)
        found = sum(map(of, grouping.groups)) + of(grouping.ungrouped) - of(grouping.overlap)
        if found != value:
            raise LedgerError(
                f"{ledger.model.path}: groups by {grouping.by} do not sum up: {total} {found:,}"
            )
    return grouping
