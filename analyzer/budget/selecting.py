"""A ledger + a rule's group -> the entries and nodes in that group."""

from __future__ import annotations

import bisect
import fnmatch
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile
from typing import Any, Literal

from analyzer.account.doubt import Doubt, find_doubt
from analyzer.account.group.keys import ROOT, UNSCOPED
from analyzer.account.group.patterns import Searcher, list_names
from analyzer.account.ledger import Entry, Finding, Ledger, natural_order
from analyzer.model import Key, Node
from analyzer.records import Frozen, field
from analyzer.text import shorten

_LONGEST = 100
"""Maximum length of a name in a reason, in characters."""

_MOST_NAMES = 5_000
"""Maximum number of names searched for the nearest."""

Kind = Literal["all", "group", "scope", "block"]


class Unknown(Frozen):
    """Reason why there is no answer."""

    reason: str


class Infinite(Unknown):
    """Reason why a number is infinite, so that it exceeds every maximum."""


class Members(Frozen):
    """Entries and nodes by their numbers in file order."""

    entries: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)


class Whole:  # no slots: cached_property needs __dict__
    """Indexes of a model that all of its parts share, each computed once because there may be thousands of parts."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._leading: dict[tuple[Kind, int], _Leading] = {}
        self._selected: dict[tuple[str, Searcher | None], tuple[Selection, ...] | Unknown] = {}

    @functools.cached_property
    def nodes(self) -> tuple[Node, ...] | None:
        """All nodes in file order; None for a saved report, which has no graph."""
        return tuple(self.ledger.model.nodes()) if self.ledger.model.graphs else None

    @functools.cached_property
    def by_scope(self) -> Mapping[str | None, Members]:
        """Entries and nodes of each scope, without those below it; under None, those without a scope."""
        ledger = self.ledger
        found: dict[str | None, Members] = defaultdict(Members)
        for number, entry in enumerate(ledger.entries):
            found[entry.scope if entry.has_scope else None].entries.append(number)
        for number, place in enumerate(ledger.model.places()):
            found[ledger.node_scopes.get(place)].nodes.append(number)
        return found

    @functools.cached_property
    def by_name(self) -> Mapping[str, Sequence[int]]:
        """Numbers of entries by each name that the user's own patterns are searched in."""
        found: dict[str, list[int]] = defaultdict(list)
        for number, entry in enumerate(self.ledger.entries):
            for name in list_names(entry):
                found[name].append(number)
        return found

    @functools.cached_property
    def by_block(self) -> Mapping[str, Members] | None:
        """Entries and nodes of each block, and of each part of a block; None where blocks are not known."""
        ledger, blocks = self.ledger, self.ledger.blocks
        if blocks is None:
            return None
        found: dict[str, Members] = defaultdict(Members)
        for number, entry in enumerate(ledger.entries):
            member = blocks.entries[entry.tensor.key]
            for label in {member.label(1), member.label(2)}:
                found[label].entries.append(number)
        for number, place in enumerate(ledger.model.places()):
            node_member = blocks.nodes.get(place)
            for label in {node_member.label(1), node_member.label(2)} if node_member is not None else ():
                found[label].nodes.append(number)
        return found

    @functools.cached_property
    def scopes(self) -> Sequence[str]:
        """Sorted names of all scopes, so that scopes below one follow it."""
        return sorted(scope for scope in self.by_scope if scope is not None)

    def leading(self, kind: Kind, depth: int) -> _Leading:
        """Return the members of scopes or blocks by the first `depth` parts of their names."""
        if (kind, depth) not in self._leading:
            self._leading[kind, depth] = self._find_leading(kind, depth)
        return self._leading[kind, depth]

    def _find_leading(self, kind: Kind, depth: int) -> _Leading:
        found: dict[tuple[str, ...], list[Members]] = defaultdict(list)
        members: Mapping[Any, Members] = self.by_scope if kind == "scope" else self.by_block or {}
        for name, group in members.items():
            parts = () if name is None else tuple(name.split(".", depth)[:depth])
            if len(parts) == depth:
                found[parts].append(group)
        return _Leading(found, tuple(map(frozenset, zip(*found, strict=True))))

    def find(self, group: str, groups: Mapping[str, Searcher]) -> tuple[Selection, ...] | Unknown:
        """Return the selection of a group, as `select` does, computed once for all rules about it."""
        key = (group, groups.get(group))
        if key not in self._selected:
            self._selected[key] = _find(self, group, groups)
        return self._selected[key]

    def select(self, kind: Kind, name: str, parts: Iterable[Members]) -> Selection:
        """Return the union of several members, in file order."""
        entries, nodes = self.ledger.entries, self.nodes
        chosen = [*parts]
        return Selection(
            self.ledger,
            kind,
            name,
            tuple(
                entries[number] for number in sorted({*chain.from_iterable(each.entries for each in chosen)})
            ),
            None
            if nodes is None
            else tuple(
                nodes[number] for number in sorted({*chain.from_iterable(each.nodes for each in chosen)})
            ),
            self,
        )

    @functools.cached_property
    def extents(self) -> Mapping[Key, object]:
        """Place of each tensor's bytes."""
        return {entry.tensor.key: entry.tensor.extent for entry in self.ledger.entries}

    @functools.cached_property
    def opaque(self) -> frozenset[Key]:
        """Tensors with opaque data."""
        return frozenset(self.ledger.opaque)

    @functools.cached_property
    def unused(self) -> frozenset[str]:
        """Names of the initializers that no output depends on, as the finding has them."""
        return frozenset(
            name for finding, names in self.findings if finding.id == "unused-initializer" for name in names
        )

    @functools.cached_property
    def findings(self) -> tuple[tuple[Finding, frozenset[str]], ...]:
        """The findings, each with its subjects."""
        return tuple((finding, frozenset(finding.subjects)) for finding in self.ledger.findings)

    @functools.cached_property
    def doubt(self) -> Doubt:
        """Parameters that may turn out to be copies, and tensors that may turn out to be parameters."""
        return find_doubt(self.ledger)


class _Leading(Frozen):
    """Members of scopes or blocks, grouped by the first parts of their names."""

    members: Mapping[tuple[str, ...], Sequence[Members]]
    """Members by their first parts."""
    texts: tuple[frozenset[str], ...]
    """Distinct strings at each position of the first parts."""


class Selection(Frozen):
    """A part of a model, or all of it."""

    ledger: Ledger
    kind: Kind
    name: str
    """Name of the part; "" for all of the model."""
    entries: tuple[Entry, ...]
    nodes: tuple[Node, ...] | None
    """Nodes of the part; None for a saved report, which has no graph."""
    whole: Whole
    """Indexes of the whole model, shared by all selections of it."""


def select(
    model: Ledger | Whole, group: str | None, groups: Mapping[str, Searcher]
) -> tuple[Selection, ...] | Unknown:
    """Select a rule's group: one of the project's own, else a scope with all below it, else a block, else a glob.

    A glob is matched against the leading parts of scopes, or of blocks where no scope matches; it takes as many parts
    as it has itself: `encoder.layer.*` selects each layer as a whole. There may be several, in natural order.

    Args:
        model: a model; or a `Whole` made from it, so that many groups share its indexes.
        group: the group's name; None selects all of the model.
        groups: the project's own groups.
    """
    whole = model if isinstance(model, Whole) else Whole(model)
    ledger = whole.ledger
    if group is None:
        return (Selection(ledger, "all", "", ledger.entries, whole.nodes, whole),)
    return whole.find(group, groups)


def _find(whole: Whole, group: str, groups: Mapping[str, Searcher]) -> tuple[Selection, ...] | Unknown:
    if group in groups:
        found = _search(whole, group, groups[group])
        return (
            (found,)
            if _has_any(found)
            else Unknown(f"no tensor and no node of the model is in the group {_quote_name(group)}")
        )
    for exact in (_scope(whole, group), _block(whole, group)):
        if _has_any(exact):
            return (exact,)
    globbed = _glob(whole, group)
    return globbed or Unknown(_describe_missing(whole.ledger, group, groups))


def _search(whole: Whole, name: str, pattern: Searcher) -> Selection:
    search = pattern.search
    entries = [number for text, numbers in whole.by_name.items() if search(text) for number in numbers]
    nodes = [
        number
        for scope, members in whole.by_scope.items()
        if members.nodes and scope is not None and search(scope)
        for number in members.nodes
    ]
    return whole.select("group", name, (Members(entries, nodes),))


def _has_any(selection: Selection) -> bool:
    return bool(selection.entries or selection.nodes)


def _scope(whole: Whole, name: str) -> Selection:
    below, own = f"{name}.", {UNSCOPED: None, ROOT: ""}.get(name, name)
    parts = [whole.by_scope[own]] if own in whole.by_scope else []
    start = bisect.bisect_left(whole.scopes, below) if name != UNSCOPED else len(whole.scopes)
    inside = takewhile(lambda scope: scope.startswith(below), islice(whole.scopes, start, None))
    return whole.select("scope", name, [*parts, *(whole.by_scope[scope] for scope in inside)])


def _block(whole: Whole, name: str) -> Selection:
    members = (whole.by_block or {}).get(name)
    return whole.select("block", name, () if members is None else (members,))


def _glob(whole: Whole, pattern: str) -> tuple[Selection, ...]:
    globs = pattern.split(".")
    kinds: tuple[Kind, ...] = ("scope", "block")
    for kind in kinds:
        leading = whole.leading(kind, len(globs))
        fitting = [*leading.members]
        for position, (glob, texts) in enumerate(zip(globs, leading.texts, strict=bool(leading.texts))):
            fits = re.compile(fnmatch.translate(glob)).match
            found = {text for text in texts if fits(text)}
            if len(found) < len(texts):
                fitting = [parts for parts in fitting if parts[position] in found]
        if fitting:
            members_by_name = {".".join(parts): leading.members[parts] for parts in fitting}
            return tuple(
                whole.select(kind, name, members_by_name[name])
                for name in sorted(members_by_name, key=natural_order)
            )
    return ()


def _describe_missing(ledger: Ledger, group: str, groups: Mapping[str, Searcher]) -> str:
    """Return the reason why a name selects nothing, with the closest names."""
    import difflib  # only a mistake needs it

    depth = group.count(".") + 1
    names = sorted(
        {*groups, *_list_candidates(ledger, depth), *_list_candidates(ledger, depth + 1)}, key=natural_order
    )
    nearest = difflib.get_close_matches(group[:_LONGEST], names[:_MOST_NAMES], 3)
    hint = f"; the nearest: {', '.join(map(_quote_name, nearest))}" if nearest else ""
    blocks_hint = "" if ledger.blocks is not None else "; the report does not say which blocks there are"
    return f"no group, scope or block of the model is called {_quote_name(group)}{hint}{blocks_hint}"


def _list_candidates(ledger: Ledger, depth: int) -> Iterator[str]:
    """Yield names that the user may have meant: scopes of as many parts, and blocks."""
    scopes = {entry.scope for entry in ledger.entries if entry.has_scope} | set(ledger.node_scopes.values())
    for scope in scopes:
        name = ".".join(scope.split(".", depth)[:depth])
        if 0 < len(name) <= _LONGEST:
            yield name
    if ledger.blocks is not None:
        yield from (member.label(depth) for member in ledger.blocks.entries.values())


def _quote_name(name: str) -> str:
    return repr(shorten(name, _LONGEST))
