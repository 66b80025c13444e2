"""A ledger + what a rule calls a group -> the entries and nodes that it is about."""

from __future__ import annotations

import difflib
import fnmatch
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from analyzer.account.doubt import Doubt, find_doubt
from analyzer.account.group.keys import ROOT, UNSCOPED
from analyzer.account.group.patterns import Searcher, list_names
from analyzer.account.ledger import Entry, Finding, Ledger, natural_order
from analyzer.model import Key, Node
from analyzer.text import shorten

_LONGEST = 100
"""Characters of a name that a reason shows."""

_MOST_NAMES = 5_000
"""Names among which the nearest are looked for."""

Kind = Literal["all", "group", "scope", "block"]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why there is no answer."""

    reason: str


@dataclass(frozen=True, slots=True)
class Endless(Unknown):
    """Why there is more than any number: no most holds."""


class Whole:  # no slots: what is found once is kept
    """What all parts of a model are asked of it: found once, for there may be thousands of them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @functools.cached_property
    def extents(self) -> Mapping[Key, object]:
        """Where the bytes of each tensor are."""
        return {entry.tensor.key: entry.tensor.extent for entry in self._ledger.entries}

    @functools.cached_property
    def opaque(self) -> frozenset[Key]:
        """The tensors whose data is opaque."""
        return frozenset(self._ledger.opaque)

    @functools.cached_property
    def findings(self) -> tuple[tuple[Finding, frozenset[str]], ...]:
        """The findings, each with its subjects."""
        return tuple((finding, frozenset(finding.subjects)) for finding in self._ledger.findings)

    @functools.cached_property
    def doubt(self) -> Doubt:
        """The parameters that may yet turn out to be copies, and what may turn out to be parameters."""
        return find_doubt(self._ledger)


@dataclass(frozen=True, slots=True)
class Selection:
    """A part of a model, or all of it."""

    ledger: Ledger
    kind: Kind
    name: str
    """"" for all."""
    entries: tuple[Entry, ...]
    nodes: tuple[Node, ...] | None
    """None where the graph is not known: a saved report has none."""
    whole: Whole
    """The same of all parts that were selected together."""


def select(
    ledger: Ledger, group: str | None, groups: Mapping[str, Searcher]
) -> tuple[Selection, ...] | Unknown:
    """What a rule's group is: one of the project's own, else a scope with all below it, else a block, else a glob.

    A glob is held against the leading parts of scopes, or where none fits of blocks, as many as it has parts itself:
    `encoder.layer.*` is each layer, as a whole. There may be several, in natural order.
    """
    if group is None:
        return (_pick(ledger, "all", "", lambda _: True, lambda _: True),)
    if group in groups:
        pattern = groups[group]
        found = _pick(
            ledger,
            "group",
            group,
            lambda entry: any(map(pattern.search, list_names(entry))),
            lambda node: _searches(pattern, ledger.node_scopes.get(node.place)),
        )
        return (
            (found,) if _has_any(found) else Unknown(f"nothing in the model is in the group {_show(group)}")
        )
    for exact in (_scope(ledger, group), _block(ledger, group)):
        if exact is not None and _has_any(exact):
            return (exact,)
    globbed = _glob(ledger, group)
    return globbed or Unknown(_nothing(ledger, group, groups))


def _searches(pattern: Searcher, scope: str | None) -> bool:
    return scope is not None and bool(pattern.search(scope))


def _pick(
    ledger: Ledger,
    kind: Kind,
    name: str,
    has_entry: Callable[[Entry], bool],
    has_node: Callable[[Node], bool],
) -> Selection:
    is_known = bool(ledger.model.graphs)
    return Selection(
        ledger,
        kind,
        name,
        tuple(entry for entry in ledger.entries if has_entry(entry)),
        tuple(node for node in ledger.model.nodes() if has_node(node)) if is_known else None,
        Whole(ledger),
    )


def _has_any(selection: Selection) -> bool:
    return bool(selection.entries or selection.nodes)


def _scope(ledger: Ledger, name: str) -> Selection:
    below = f"{name}."

    def holds(scope: str | None) -> bool:
        if scope is None or name == UNSCOPED:
            return scope is None and name == UNSCOPED
        return scope == ("" if name == ROOT else name) or scope.startswith(below)

    return _pick(
        ledger,
        "scope",
        name,
        lambda entry: holds(entry.scope if entry.has_scope else None),
        lambda node: holds(ledger.node_scopes.get(node.place)),
    )


def _block(ledger: Ledger, name: str) -> Selection | None:
    blocks = ledger.blocks
    if blocks is None:
        return None
    members = {*blocks.entries.values(), *blocks.nodes.values()}
    held = {member for member in members if name in (member.label(1), member.label(2))}
    return _pick(
        ledger,
        "block",
        name,
        lambda entry: blocks.entries[entry.tensor.key] in held,
        lambda node: blocks.nodes.get(node.place) in held,
    )


def _glob(ledger: Ledger, pattern: str) -> tuple[Selection, ...]:
    parts = pattern.split(".")
    scopes: dict[str, str | None] = {}

    def name(scope: str | None) -> str | None:
        if scope is None:
            return None
        if scope not in scopes:
            scopes[scope] = _leading(scope, parts)
        return scopes[scope]

    found = _collect(
        ledger,
        "scope",
        ((entry, name(entry.scope if entry.has_scope else None)) for entry in ledger.entries),
        ((node, name(ledger.node_scopes.get(node.place))) for node in ledger.model.nodes()),
    )
    blocks = ledger.blocks
    if found or blocks is None:
        return found
    labels = {member: _leading(member.label(2), parts) for member in blocks.entries.values()}
    labels |= {member: _leading(member.label(2), parts) for member in blocks.nodes.values()}
    return _collect(
        ledger,
        "block",
        ((entry, labels[blocks.entries[entry.tensor.key]]) for entry in ledger.entries),
        ((node, labels[blocks.nodes[node.place]]) for node in ledger.model.nodes()),
    )


def _leading(name: str, pattern: list[str]) -> str | None:
    """As many leading parts of a name as the pattern has, if they match it one by one."""
    parts = name.split(".", len(pattern))[: len(pattern)]
    if len(parts) < len(pattern) or not all(map(fnmatch.fnmatchcase, parts, pattern)):
        return None
    return ".".join(parts)


def _collect(
    ledger: Ledger,
    kind: Kind,
    entries: Iterable[tuple[Entry, str | None]],
    nodes: Iterable[tuple[Node, str | None]],
) -> tuple[Selection, ...]:
    entries_of: dict[str, list[Entry]] = defaultdict(list)
    nodes_of: dict[str, list[Node]] = defaultdict(list)
    for entry, name in entries:
        if name is not None:
            entries_of[name].append(entry)
    for node, name in nodes:
        if name is not None:
            nodes_of[name].append(node)
    is_known, whole = bool(ledger.model.graphs), Whole(ledger)
    return tuple(
        Selection(
            ledger,
            kind,
            name,
            tuple(entries_of.get(name, ())),
            tuple(nodes_of.get(name, ())) if is_known else None,
            whole,
        )
        for name in sorted(entries_of.keys() | nodes_of.keys(), key=natural_order)
    )


def _nothing(ledger: Ledger, group: str, groups: Mapping[str, Searcher]) -> str:
    """The reason where nothing is called so, with what is called nearly so."""
    depth = group.count(".") + 1
    names = sorted({*groups, *_known(ledger, depth), *_known(ledger, depth + 1)}, key=natural_order)
    near = difflib.get_close_matches(group[:_LONGEST], names[:_MOST_NAMES], 3)
    hint = f"; the nearest: {', '.join(map(_show, near))}" if near else ""
    lacks = "" if ledger.blocks is not None else "; the report does not say which blocks there are"
    return f"no group, scope or block of the model is called {_show(group)}{hint}{lacks}"


def _known(ledger: Ledger, depth: int) -> Iterator[str]:
    """What could have been meant: scopes of as many parts, and blocks."""
    scopes = {entry.scope for entry in ledger.entries if entry.has_scope} | set(ledger.node_scopes.values())
    for scope in scopes:
        name = ".".join(scope.split(".", depth)[:depth])
        if 0 < len(name) <= _LONGEST:
            yield name
    if ledger.blocks is not None:
        yield from (member.label(depth) for member in ledger.blocks.entries.values())


def _show(name: str) -> str:
    return repr(shorten(name, _LONGEST))
