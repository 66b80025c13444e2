"""Entries and nodes + the user's own patterns -> groups, which may overlap and leave entries out."""

from __future__ import annotations

import itertools
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from analyzer.account.group import check_sums, total_entries
from analyzer.account.ledger import Entry, Finding, Grouping, Ledger, Match, Severity, Trainability
from analyzer.errors import UsageError
from analyzer.model import Place
from analyzer.records import Frozen, replace
from analyzer.text import format_doing, format_many

UNGROUPED = "[ungrouped]"
"""Row of entries and nodes that match no pattern of the user."""

OVERLAP = "[overlap]"
"""Row of amounts that several groups count, beyond the first time."""

MATCHES: tuple[Match, ...] = ("all", "first")

MAX_LENGTH = 1_000
"""Longest pattern allowed, in characters."""


class Searcher(Protocol):
    """Pattern that can be searched in a text: a compiled regex, or `AnyOf` several."""

    def search(self, text: str, /) -> object:
        """Return a true value if the text matches."""


class AnyOf(Frozen):
    """Several regexes, one of which must match. They are not joined, because each may number groups of its own."""

    patterns: tuple[re.Pattern[str], ...]

    def search(self, text: str, /) -> bool:
        """Whether one of the regexes matches the text."""
        for pattern in self.patterns:  # noqa: SIM110 - asked of every name of a model for every group of a budget
            if pattern.search(text):
                return True
        return False


class OwnGroups(Frozen):
    """Groups that do not come from a key: given one by one, in a config, or by a preset."""

    patterns: Mapping[str, Searcher]
    """Patterns by the name of their group, in the order in which they are tried and shown."""
    match: Match
    origin: str
    """Name of their origin in the report."""


def parse_patterns(texts: Iterable[str]) -> dict[str, re.Pattern[str]]:
    """Compile `NAME=REGEX` options, in their order.

    Raises:
        UsageError: an option is malformed, or a name is given twice.
    """
    patterns: dict[str, re.Pattern[str]] = {}
    for text in texts:
        name, equals, expression = text.partition("=")
        if not name or not equals or not expression:
            raise UsageError(f"--group {text!r}: write NAME=REGEX, as in 'embeddings=^embeddings'")
        if name in patterns:
            raise UsageError(f"--group {name!r} is given twice; join the patterns with |")
        try:
            check_name(name)
            patterns[name] = compile_pattern(expression)
        except ValueError as error:
            raise UsageError(f"--group {name!r}: {error}") from error
    return patterns


def check_name(name: str) -> None:
    """Reject a text that cannot be a group's name.

    Raises:
        ValueError: the name is empty, or in brackets like the rows that the report adds.
    """
    if not name.strip():
        raise ValueError("a group needs a name")
    if name.startswith("["):
        raise ValueError(f"names in brackets are reserved for the report, such as {UNGROUPED}")


def compile_pattern(expression: str) -> re.Pattern[str]:
    """Compile one regex.

    Raises:
        ValueError: the regex is empty, too long, or malformed; the message says why.
    """
    if not expression:
        raise ValueError("an empty pattern matches everything; write . if that is meant")
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"a pattern of {len(expression):,} characters; {MAX_LENGTH:,} are allowed")
    try:
        with warnings.catch_warnings(action="error"):  # of [[:alpha:]], which Python lacks
            return re.compile(expression)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise ValueError(f"{error} in {expression!r}") from error


def group_by_patterns(
    ledger: Ledger,
    patterns: Mapping[str, Searcher],
    known: Trainability | None = None,
    *,
    match: Match = "all",
    origin: str | None = None,
) -> Grouping:
    """Compute the user's groups. A pattern is searched in an entry's scope, in its name and in its PyTorch names.

    Args:
        ledger: the account of one model.
        patterns: patterns by the name of their group, in order.
        known: facts from the PyTorch side about the entries: a name that is searched too, and whether it is trainable.
        match: `all`: an entry is in every group that matches; `first`: only in the first of them.
        origin: origin of the patterns, for the report.

    Raises:
        LedgerError: the groups do not sum to the totals, a defect of onnxledger.
    """
    found = [tuple(find_groups(list_names(entry, known), patterns, match)) for entry in ledger.entries]
    placed = list(zip(ledger.entries, found, strict=True))
    members = {name: [entry for entry, names in placed if name in names] for name in patterns}
    again = [entry for entry, names in placed for _ in names[1:]]
    left = [entry for entry, names in placed if not names]
    nodes, nodes_again, nodes_left = _count_nodes(ledger, patterns, match, dict.fromkeys(_places(ledger), 1))
    groups = [total_entries((name,), members[name], nodes[name], known) for name in patterns]
    overlap = total_entries((OVERLAP,), again, nodes_again, known)
    ungrouped = total_entries((UNGROUPED,), left, nodes_left, known)
    if ledger.macs is not None:
        macs, macs_again, macs_left = _count_nodes(ledger, patterns, match, ledger.macs.nodes)
        unworked = dict.fromkeys(ledger.macs.unknown, 1)
        uncounted, unknown_again, unknown_left = _count_nodes(ledger, patterns, match, unworked)
        groups = [replace(each, macs=macs[each.name], unworked=uncounted[each.name]) for each in groups]
        overlap = replace(overlap, macs=macs_again, unworked=unknown_again)
        ungrouped = replace(ungrouped, macs=macs_left, unworked=unknown_left)
    return check_sums(
        ledger,
        Grouping(
            by="group",
            depth=None,
            groups=tuple(groups),
            overlap=overlap,
            ungrouped=ungrouped,
            match=match,
            origin=origin,
            members=tuple(found),
        ),
        has_nodes=True,
    )


def find_overlap(grouping: Grouping) -> tuple[Finding, ...]:
    """Return a finding if the user's own groups have entries in common."""
    overlap = grouping.overlap
    if not overlap.tensors:
        return ()
    message = (
        f"{format_doing(overlap.parameters, 'parameter', 'are')} counted in more than one group "
        f"({format_many(overlap.tensors, 'tensor')})"
    )
    return (Finding("overlapping-groups", Severity.NOTE, message),)


def list_names(entry: Entry, known: Trainability | None = None) -> list[str]:
    """Return all names of an entry: its name, its PyTorch names, its scope."""
    texts = [entry.tensor.name, *entry.sources]
    if entry.has_scope:
        texts.append(entry.scope)
    if known and entry.tensor.key in known:
        texts.append(known[entry.tensor.key][0])
    return texts


def find_groups(texts: Sequence[str], patterns: Mapping[str, Searcher], match: Match) -> list[str]:
    """Return the groups whose pattern matches one of the texts, in order; at most one if `match` is `first`."""
    found = (name for name, pattern in patterns.items() if any(map(pattern.search, texts)))
    return list(itertools.islice(found, 1) if match == "first" else found)


def _places(ledger: Ledger) -> Iterator[Place]:
    return (node.place for node in ledger.model.nodes())


def _count_nodes(
    ledger: Ledger, patterns: Mapping[str, Searcher], match: Match, weights: Mapping[Place, int]
) -> tuple[Counter[str], int, int]:
    """Return the weights of nodes by matching pattern (tested on their scope), of repeated matches, and of no match."""
    scopes: Counter[str | None] = Counter()
    for place, weight in weights.items():
        scopes[ledger.node_scopes.get(place)] += weight
    counts: Counter[str] = Counter()
    again = left = 0
    for scope, number in scopes.items():
        names = find_groups([scope], patterns, match) if scope is not None else []
        counts.update(dict.fromkeys(names, number))
        again += number * max(0, len(names) - 1)
        left += number * (not names)
    return counts, again, left
