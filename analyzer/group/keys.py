"""A ledger and a key, `scope` or `scope,dtype` -> which group each entry and each node is in."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from analyzer.blocks import find_blocks
from analyzer.errors import UsageError
from analyzer.ledger import Blocks, Ledger, Role, natural_order
from analyzer.model import Place

__all__ = [
    "ACCOUNTS",
    "DEEPEST",
    "KEYS",
    "NESTED",
    "ROOT",
    "UNREAD",
    "UNSCOPED",
    "Label",
    "Labels",
    "choose_key",
    "first_telling_depth",
    "label_members",
    "label_order",
    "parse_keys",
]

ACCOUNTS = "bytes"
"""The key that is no key of entries, and stands alone: every byte of the files by its account."""

UNSCOPED = "[unscoped]"
"""The group of what has no scope."""

UNREAD = "[unread]"
"""The group, by operator, of what no node reads."""

ROOT = "[root]"
"""The group of the outermost module's own tensors, whose scope is ""."""

_ENDS = {"stem": -1, "between": 1, "head": 2}
"""What stands before the blocks and after them; what is between two runs of them is told after all."""

DEEPEST = 64
"""Depths that are tried; modules are nested a dozen deep, and a name can be made of a hundred thousand parts."""

_FEW_GROUPS = 3
"""The default depth is the first that gives this many groups: a head beside one large body says little."""

NESTED = frozenset({"scope", "block"})
"""Keys of which a group's name has parts, with dots between them, so that groups stand under each other."""

Label = tuple[str, ...]
"""What a group is called: one text for each key."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Which group each entry and each node is in."""

    by: str
    """The keys, with commas between them."""
    depth: int | None
    """Leading parts of a scope, or of a block, that name a group; None for keys that have no depth."""
    entries: tuple[Label, ...]
    """In the ledger's order."""
    nodes: Mapping[Place, Label] | None
    """None where a key says nothing of nodes, which have no dtype and no role."""


def label_members(ledger: Ledger, by: str = "scope", depth: int | None = None) -> Labels:
    """Put every entry, and every node where the keys tell, into exactly one group.

    Args:
        ledger: the account of one model.
        by: one of `KEYS`, or several with commas between them.
        depth: leading parts of the scope, or of the block, that name a group; None takes for scopes the first depth
            with three groups or more, for blocks 1.

    Raises:
        UsageError: `by` names no key, or one twice, or `depth` is below 1.
    """
    names = parse_keys(by)
    if depth is not None and depth < 1:
        raise UsageError(f"--depth {depth}: must be 1 or more")
    if depth is None and "scope" in names:
        depth = first_telling_depth(
            {entry.scope for entry in ledger.entries if entry.role is Role.PARAMETER and entry.has_scope}
        )
    found = [KEYS[name](ledger, depth or 1) for name in names]
    has_depth = "scope" in names or "block" in names
    by_node = [nodes for _, nodes in found if nodes is not None]
    return Labels(
        by=by,
        depth=(depth or 1) if has_depth else None,
        entries=tuple(zip(*(entries for entries, _ in found), strict=True)),
        nodes=_join(by_node) if len(by_node) == len(found) else None,
    )


def _join(by_key: Sequence[Mapping[Place, str]]) -> dict[Place, Label]:
    if len(by_key) > 1:
        return {place: tuple(nodes[place] for nodes in by_key) for place in by_key[0]}
    labels = {text: (text,) for text in by_key[0].values()}  # one object for all nodes of a group
    return {place: labels[text] for place, text in by_key[0].items()}


def choose_key(ledger: Ledger) -> str:
    """The key where nobody named one: scopes; blocks where no parameter has a scope and there are blocks."""
    has_scopes = any(entry.parameters and entry.has_scope for entry in ledger.entries)
    has_blocks = ledger.blocks is not None and ledger.blocks.count > 0
    return "block" if has_blocks and not has_scopes else "scope"


def first_telling_depth(scopes: Collection[str]) -> int:
    """The first depth at which scopes are in three groups or more, else the deepest.

    >>> first_telling_depth({"bert.embeddings", "bert.encoder.layer.0", "bert.encoder.layer.1", "cls"})
    2
    """
    deepest = max((scope.count(".") + 1 for scope in scopes), default=1)
    for depth in range(1, min(deepest, DEEPEST)):
        if len({_scope_group(scope, depth) for scope in scopes}) >= _FEW_GROUPS:
            return depth
    return deepest


WORDS: Mapping[str, str] = {"operator": "op", "layer": "block"}
"""Other words for keys, as people call them."""

_LONGEST = 40
"""Characters of a word that is taken for a misspelt one."""


def parse_keys(by: str) -> tuple[str, ...]:
    """The keys that `--by` names.

    >>> parse_keys("scope,dtype")
    ('scope', 'dtype')

    Raises:
        UsageError: one is no key, or stands twice.
    """
    names = tuple(WORDS.get(name, name) for name in by.split(","))
    for name in names:
        if name not in KEYS:
            alone = f"; {ACCOUNTS} stands alone" if name == ACCOUNTS else ""
            like = difflib.get_close_matches(name[:_LONGEST], [*KEYS, *WORDS, ACCOUNTS], 1)
            near = f"; did you mean {like[0]}?" if like and not alone else ""
            raise UsageError(f"--by {by}: {name!r} is not one of {', '.join(KEYS)}{alone}{near}")
    if len(set(names)) < len(names):
        raise UsageError(f"--by {by}: names a key twice")
    return names


def label_order(label: Label) -> tuple[tuple[bool, int, str], ...]:
    """Sort key: numbers by their size, `stem` before blocks, `between.1` and `head` after, bracketed groups last."""
    return tuple(_order(text) for text in label)


def _order(text: str) -> tuple[bool, int, str]:
    is_bracketed, natural = natural_order(text)
    name, _, number = text.partition(".")
    is_end = not number if name != "between" else number.isdecimal()
    return is_bracketed, _ENDS.get(name, 0) if is_end else 0, natural


_Found = tuple[Sequence[str], Mapping[Place, str] | None]
"""The labels of the entries, and those of the nodes."""


def _by_scope(ledger: Ledger, depth: int) -> _Found:
    scopes = ledger.node_scopes
    names: dict[str | None, str] = {scope: _scope_group(scope, depth) for scope in set(scopes.values())}
    names[None] = UNSCOPED
    places = (node.place for node in ledger.model.nodes())
    nodes = {place: names[scopes.get(place)] for place in places}
    entries = [_scope_group(e.scope, depth) if e.has_scope else UNSCOPED for e in ledger.entries]
    return entries, nodes


def _scope_group(scope: str, depth: int) -> str:
    if scope.count(".") < depth:  # as it is, nearly always where groups are many
        return scope or ROOT
    return ".".join(scope.split(".", depth)[:depth])


def _by_block(ledger: Ledger, depth: int) -> _Found:
    blocks = _blocks_of(ledger)
    names = {member: member.label(depth) for member in {*blocks.entries.values(), *blocks.nodes.values()}}
    nodes = {place: names[member] for place, member in blocks.nodes.items()}
    return [names[blocks.entries[entry.tensor.key]] for entry in ledger.entries], nodes


def _blocks_of(ledger: Ledger) -> Blocks:
    """The blocks that are known, or are found now.

    Raises:
        UsageError: they are not known, and there is no graph in which to find them.
    """
    if ledger.blocks is not None:
        return ledger.blocks
    if ledger.entries and not ledger.model.graphs:
        raise UsageError(
            f"--by block, --by role: the report on {ledger.model.path} does not say which blocks there are; "
            "make it again with this version, or group by scope, op or dtype"
        )
    return find_blocks(ledger)


def _by_op(ledger: Ledger, depth: int) -> _Found:
    nodes = {node.place: node.op_type for node in ledger.model.nodes()}
    return [entry.read_by or UNREAD for entry in ledger.entries], nodes


def _by_dtype(ledger: Ledger, depth: int) -> _Found:
    return [entry.tensor.dtype.name for entry in ledger.entries], None


def _by_role(ledger: Ledger, depth: int) -> _Found:
    """What learned tensors do; the role of the others."""
    blocks = _blocks_of(ledger)
    return [
        blocks.roles[entry.tensor.key] if entry.role is Role.PARAMETER else entry.role.value
        for entry in ledger.entries
    ], None


KEYS: dict[str, Callable[[Ledger, int], _Found]] = {
    "scope": _by_scope,
    "block": _by_block,
    "op": _by_op,
    "dtype": _by_dtype,
    "role": _by_role,
}
"""What a ledger can be partitioned by: a function of the ledger and a depth."""
