"""Ledger and a key such as `scope` or `scope,dtype` -> the group of each entry and each node."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from analyzer.account.blocks import find_blocks
from analyzer.account.ledger import Blocks, Ledger, NaturalOrder, Role, in_entry_order
from analyzer.errors import UsageError
from analyzer.model import Place
from analyzer.model.operators import Kind, operators_of
from analyzer.model.places import ByNode, in_order

ACCOUNTS = "bytes"
"""The key of accounts, every byte of the files by its account; it cannot be combined with keys of entries."""

UNSCOPED = "[unscoped]"
"""Group of entries and nodes without a scope."""

UNREAD = "[unread]"
"""Group, by operator, of entries that no node reads."""

ROOT = "[root]"
"""Group of the outermost module's own tensors, whose scope is ""."""

_PART_RANKS = {"stem": -1, "between": 1, "head": 2}
"""Parts before and after the blocks; parts between two runs of blocks are listed after all blocks."""

DEEPEST = 64
"""Largest depth tried; modules are nested a dozen deep, but a name can have a hundred thousand parts."""

_FEW_GROUPS = 3
"""The default depth is the first with this many groups: a head beside one large body says little."""

UNSTAGED = "[no stage]"
"""Group, by stage, of entries and nodes outside any convolutional trunk."""

NESTED = frozenset({"scope", "block"})
"""Keys whose group names have parts, separated by dots, so that groups form a tree."""

Label = tuple[str, ...]
"""Name of a group: one text for each key."""


class Labels(NamedTuple):
    """Group of each entry and each node."""

    by: str
    """The keys, separated by commas."""
    depth: int | None
    """Leading parts of a scope, or of a block, that name a group; None for keys without a depth."""
    entries: tuple[Label, ...]
    """Labels of the entries, in the ledger's order."""
    nodes: Mapping[Place, Label] | None
    """Labels of the nodes; None if a key does not apply to nodes, which have no dtype and no role."""


def label_members(ledger: Ledger, by: str = "scope", depth: int | None = None) -> Labels:
    """Put every entry, and every node if all keys apply to nodes, into exactly one group.

    Args:
        ledger: the account of one model.
        by: one of `KEYS`, or several separated by commas.
        depth: leading parts of the scope, or of the block, that name a group; None takes for scopes the first depth
            with three groups or more, for blocks 1.

    Raises:
        UsageError: `by` names no key, or the same key twice, or `depth` is below 1.
    """
    names = parse_keys(by)
    if depth is not None and depth < 1:
        raise UsageError(f"--depth {depth}: must be 1 or more")
    if depth is None and "scope" in names:
        depth = _default_depth(ledger)
    found = [KEYS[name](ledger, depth or 1) for name in names]
    has_depth = "scope" in names or "block" in names
    by_node = [nodes for _, nodes in found if nodes is not None]
    has_nodes = len(by_node) == len(found)
    return Labels(
        by=by,
        depth=(depth or 1) if has_depth else None,
        entries=tuple(zip(*(entries for entries, _ in found), strict=True)),
        nodes=ByNode(ledger.model, _join([nodes() for nodes in by_node])) if has_nodes else None,
    )


def _default_depth(ledger: Ledger) -> int:
    """Return the default depth of scopes."""
    totals: dict[str, int] = defaultdict(int)
    learned = Role.PARAMETER
    for entry in ledger.entries:
        if entry.role is learned and entry.has_scope:
            totals[entry.scope] += entry.parameters
    return first_dividing_depth(totals)


def label_layers(ledger: Ledger, labels: Labels) -> Labels | None:
    """Return the labels with repeated layers apart from the rest of their scopes: `encoder.layer.3` in `encoder`.

    A scope is opened if consecutive numbered modules below it have equal numbers of parameters, and hold half of the
    scope's parameters. Return None if there is no such scope.
    """
    depth = labels.depth or 1
    if all(entry.scope.count(".") < depth for entry in ledger.entries):  # if each layer is a group
        return None
    totals: Counter[str] = Counter()
    below: dict[str, dict[str, Counter[int]]] = {}
    layers = _Layers(depth)
    for entry in ledger.entries:
        if entry.parameters and entry.has_scope:
            group = _scope_group(entry.scope, depth)
            totals[group] += entry.parameters
            if layer := layers.of(entry.scope):
                stem, _, number = layer.rpartition(".")
                below.setdefault(group, {}).setdefault(stem, Counter())[int(number)] += entry.parameters
    opened = {
        group
        for group, stems in below.items()
        if 2 * sum(map(_count_repeated, stems.values())) >= totals[group] > 0
    }
    if not opened:
        return None
    names: dict[str, Label] = {}

    def label(scope: str | None, usual: Label) -> Label:
        if scope is None or usual[0] not in opened:
            return usual
        if scope not in names:
            layer = layers.of(scope)
            names[scope] = (layer,) if layer else usual
        return names[scope]

    model = ledger.model
    scopes = in_order(model, ledger.node_scopes)
    return Labels(
        by=labels.by,
        depth=labels.depth,
        entries=tuple(
            label(entry.scope if entry.has_scope else None, usual)
            for entry, usual in zip(ledger.entries, labels.entries, strict=True)
        ),
        nodes=ByNode(
            model,
            [
                None if usual is None else label(scope, usual) if usual[0] in opened else usual
                for scope, usual in zip(scopes, in_order(model, labels.nodes or {}), strict=True)
            ],
        ),
    )


class _Layers(dict[str, str]):
    """Cache of `_layer_of` by scope, for scopes that contain others."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self._depth = depth

    def __missing__(self, scope: str) -> str:
        layer = self[scope] = _layer_of(scope, self._depth)
        return layer

    def of(self, scope: str) -> str:
        around, _, last = scope.rpartition(".")
        return self[around] or (_layer_of(scope, self._depth) if last.isdigit() else "")


def _layer_of(scope: str, depth: int) -> str:
    """Return the scope up to the first number below `depth` parts; "" if there is none.

    >>> _layer_of("encoder.layer.3.output", 1), _layer_of("encoder.norm", 1)
    ('encoder.layer.3', '')
    """
    parts = scope.split(".", DEEPEST)[:DEEPEST]
    for at in range(depth, len(parts)):
        if _NUMBER.fullmatch(parts[at]):
            return ".".join(parts[: at + 1])
    return ""


_NUMBER = re.compile(r"(?a:0|[1-9]\d{0,8})")


def _count_repeated(totals: Mapping[int, int]) -> int:
    """Return the parameters of numbered modules that have as many as the one before or after them."""
    return sum(
        count for number, count in totals.items() if count in (totals.get(number - 1), totals.get(number + 1))
    )


def _join(by_key: Sequence[Sequence[str]]) -> list[Label]:
    labels: dict[Label, Label] = {}  # one object for all nodes of a group
    return [labels.setdefault(label, label) for label in zip(*by_key, strict=True)]


def choose_key(ledger: Ledger) -> str:
    """Return the default key (`choose`)."""
    return choose(ledger)[0]


def choose(ledger: Ledger) -> tuple[str, int | None]:
    """Return the default key: the first that tells the parts of the model apart.

    That is the first of scope, block, stage and op that divides the parameters into 3 to 20 groups, none of which has
    over 90 %; groups that repeat each other count as one of the 20. Blocks are skipped if over half of the model lies
    in one part before, between or after them. If no key fits, two groups are enough; then scopes, if more than a tenth
    of the parameters has one; then blocks; else the operators.

    Returns:
        The key, and the default depth of scopes if it is known.
    """
    depth = None
    shares: dict[str, _Shares] = {}
    for least, most in ((_FEW_GROUPS, _MANY_GROUPS), (2, _MANY_GROUPS), (2, None)):
        for key in _CHOICES:
            if key not in shares:
                if key == "scope" and ledger.parameters and are_modules(ledger):
                    depth = _default_depth(ledger)
                shares[key] = _Shares.of(ledger, key, depth)
            found = shares[key]
            if found.groups >= least and (most is None or found.rows <= most) and found.most <= _NEARLY_ALL:
                return key, depth
    if shares["scope"].groups and shares["scope"].rest <= _NEARLY_ALL:
        return "scope", depth
    if not ledger.parameters and len({entry.scope for entry in ledger.entries if entry.has_scope}) > 1:
        return "scope", depth
    return "block" if _is_repeated(ledger) else "op", depth


_CHOICES = ("scope", "block", "stage", "op")
_MANY_GROUPS, _NEARLY_ALL = 20, 0.9


class _Shares(NamedTuple):
    """Distribution of the parameters over the groups of a key."""

    groups: int
    """Number of groups that have parameters."""
    rows: int
    """Number of groups if those that repeat each other count as one; counting stops at one more than `_MANY_GROUPS`."""
    most: float
    """Share of the largest group."""
    rest: float
    """Share of the groups for entries without a name under the key."""

    @classmethod
    def of(cls, ledger: Ledger, key: str, depth: int | None) -> _Shares:
        """Compute the shares for a key; `depth` is the depth of scopes, None if the scopes are not modules."""
        is_unknown = (
            (key == "block" and not _is_repeated(ledger))
            or (key == "stage" and ledger.stages is None)
            or (key == "scope" and depth is None)
        )
        if is_unknown or not ledger.parameters:
            return cls(0, 0, 1.0, 1.0)
        labels, _ = KEYS[key](ledger, depth or 1 if key == "scope" else 1)
        totals: dict[str, int] = defaultdict(int)
        for entry, label in zip(ledger.entries, labels, strict=True):
            if entry.parameters:
                totals[label] += entry.parameters
        rows: set[tuple[str, int]] = set()
        for name, count in totals.items():
            rows.add((_NUMBERS.sub("#", name), count))
            if len(rows) > _MANY_GROUPS:
                break
        rest = sum(count for name, count in totals.items() if name in (UNSCOPED, UNSTAGED, UNREAD))
        return cls(len(totals), len(rows), max(totals.values()) / ledger.parameters, rest / ledger.parameters)


_NUMBERS = re.compile(r"\d+")


def are_modules(ledger: Ledger) -> bool:
    """Whether any scope of a learned tensor is more than the tensor's own name with a dot or a counter in it."""
    scope_counts = Counter(entry.scope for entry in ledger.entries if entry.has_scope)
    return any(
        entry.parameters
        and entry.has_scope
        and not entry.tensor.name.rpartition(".")[2].isdecimal()
        and (scope_counts[entry.scope] > 1 or entry.scoped_by != "name:dotted")
        for entry in ledger.entries
    )


def _is_repeated(ledger: Ledger) -> bool:
    """Whether blocks locate the parameters: no part before, between or after them has more than half of all.

    Tables of embeddings are left out, because they come before the blocks of any repetitive model.
    """
    blocks = ledger.blocks
    if blocks is None or not blocks.count:
        return False
    outside: Counter[str] = Counter()
    for entry, member in zip(ledger.entries, in_entry_order(ledger.entries, blocks.entries), strict=True):
        block = "" if member is None else member.block
        if not block.startswith("block.") and entry.computed_by not in _TABLES:
            outside[block] += entry.parameters
    return 2 * max(outside.values(), default=0) <= ledger.parameters


_TABLES = operators_of(Kind.LOOKS_UP)


def first_dividing_depth(totals: Mapping[str, int]) -> int:
    """Return the first depth at which scopes form three groups or more, none with nearly all of the parameters.

    If there is none, return the first depth with three groups, else the deepest.

    >>> first_dividing_depth(
    ...     {"bert.embeddings": 4, "bert.encoder.layer.0": 9, "bert.encoder.layer.1": 9, "cls": 1}
    ... )
    2
    >>> (
    ...     first_dividing_depth({"a.b.c": 9, "a.b.d": 9, "a.e": 1, "f": 0, "g": 0}),
    ...     first_dividing_depth({"a": 99, "b": 1}),
    ... )
    (3, 1)
    """
    deepest = max((scope.count(".") + 1 for scope in totals), default=1)
    whole = sum(totals.values())
    sizes: dict[int, tuple[int, int]] = {}
    """At each depth the number of groups, and the parameters of the largest."""
    groups: Mapping[str, int] = totals
    # Groups are formed from those one level deeper, which are fewer than the scopes.
    for depth in range(min(deepest, DEEPEST), 0, -1):
        if depth < deepest or ROOT in totals:
            folded: dict[str, int] = defaultdict(int)
            for scope, count in groups.items():
                folded[scope or ROOT if scope.count(".") < depth else _scope_group(scope, depth)] += count
            groups = folded
        sizes[depth] = len(groups), max(groups.values(), default=0)
    first = None
    for depth, (count, largest) in sorted(sizes.items()):
        if count >= _FEW_GROUPS:
            first = first or depth
            if largest <= _NEARLY_ALL * whole or not whole:
                return depth
    return first or deepest


def picture_depth(ledger: Ledger, by: str) -> int | None:
    """Return the depth for a picture: the first at which no group has over half of the parameters.

    If there is none, as for one large table, it is the first depth at which the largest group is smallest. Nobody reads
    more than a few dozen boxes: a depth with more is not taken. Return None for keys without a depth, or without
    parameters.

    Raises:
        UsageError: `by` is `block`, and a saved report does not contain the blocks.
    """
    if by not in NESTED or not ledger.parameters:
        return None
    usual = label_members(ledger, by).depth or 1
    best, least = usual, 2.0
    for depth in range(usual, usual + _DEPTHS_TRIED):
        totals: Counter[str] = Counter()
        for entry, label in zip(ledger.entries, label_members(ledger, by, depth).entries, strict=True):
            if entry.parameters:
                totals[label[0]] += entry.parameters
        boxes = {(_NUMBERS.sub("#", name), count) for name, count in totals.items()}
        if depth > usual and len(boxes) > _MANY_BOXES:
            break
        largest = max(totals.values()) / ledger.parameters
        if largest < least - _LEAST_GAIN:
            best, least = depth, largest
        if largest <= _HALF:
            break
    return best


_DEPTHS_TRIED, _MANY_BOXES, _HALF, _LEAST_GAIN = 6, 40, 0.5, 1e-9

WORDS: Mapping[str, str] = {"operator": "op", "layer": "block"}
"""Alternative words that people use for keys."""

_LONGEST = 40
"""Characters of the longest word that is compared with keys as a misspelling."""


def parse_keys(by: str, *, of_nodes: bool = False) -> tuple[str, ...]:
    """Return the keys that `--by` names.

    >>> parse_keys("scope,dtype")
    ('scope', 'dtype')

    Args:
        by: the value of `--by`; `bytes` alone, which needs no keys, is handled before.
        of_nodes: whether the groups must consist of nodes; only the message for a wrong key depends on it.

    Raises:
        UsageError: a name is not a key, or a key is named twice.
    """
    names = tuple(WORDS.get(name, name) for name in by.split(","))
    for name in names:
        if name == ACCOUNTS:
            wrong = "groups no nodes; use scope, block, stage or op"
            raise UsageError(
                f"--by {by}: {wrong if len(names) == 1 else f'{ACCOUNTS} cannot be combined with another key'}"
            )
        if name not in KEYS:
            import difflib  # only a mistake needs it

            known = [*NODE_KEYS] if of_nodes else [*KEYS, *([ACCOUNTS] if len(names) == 1 else [])]
            like = difflib.get_close_matches(name[:_LONGEST], [*known, *WORDS], 1)
            near = f"; did you mean {like[0]}?" if like else ""
            raise UsageError(f"--by {by}: {name!r} is not one of {', '.join(known)}{near}")
    if len(set(names)) < len(names):
        raise UsageError(f"--by {by}: names a key twice")
    return names


def label_order(label: Label, order: NaturalOrder | None = None) -> tuple[tuple[bool, int, str], ...]:
    """Return a sort key: numbers by value, `stem` before blocks, `between.1` and `head` after, brackets last."""
    natural = (order or NaturalOrder()).of
    return tuple([(text.startswith("["), _part_rank(text), natural(text)) for text in label])


def _part_rank(text: str) -> int:
    name, _, number = text.partition(".")
    if name not in _PART_RANKS:
        return 0
    is_end = not number if name != "between" else number.isdecimal()
    return _PART_RANKS[name] if is_end else 0


def sort_labels(labels: Iterable[Label]) -> list[Label]:
    """Sort labels; for many labels this takes half of the time of a plain sort by `label_order`.

    >>> sort_labels([("head",), ("block.10",), ("block.9",), ("[unscoped]",), ("stem",)])
    [('stem',), ('block.9',), ('block.10',), ('head',), ('[unscoped]',)]
    """
    order = NaturalOrder()
    return sorted(labels, key=lambda label: label_order(label, order))


_Found = tuple[Sequence[str], Callable[[], Sequence[str]] | None]
"""Labels of the entries, and a function that makes those of the nodes, in the order of `Model.nodes`."""


def _by_scope(ledger: Ledger, depth: int) -> _Found:
    def nodes() -> list[str]:
        found: list[str] = []
        groups: dict[str, str] = {}
        """Groups by parent module: scopes may be as many as nodes, but their parent modules are few."""
        for scope in in_order(ledger.model, ledger.node_scopes):
            if scope is None:
                found.append(UNSCOPED)
                continue
            around = scope.rpartition(".")[0]
            if around not in groups:
                is_deep = around.count(".") >= depth - 1 and around
                groups[around] = _scope_group(around, depth) if is_deep else ""
            found.append(groups[around] or scope or ROOT)
        return found

    entries = []
    for entry in ledger.entries:
        scope = entry.scope
        if scope.count(".") >= depth:
            scope = _scope_group(scope, depth)
        entries.append((scope or ROOT) if entry.has_scope else UNSCOPED)
    return entries, nodes


def _scope_group(scope: str, depth: int) -> str:
    dots = scope.count(".")
    if dots < depth:  # the scope itself is the group, nearly always if there are many groups
        return scope or ROOT
    return scope.rsplit(".", dots - depth + 1)[0]


def _by_block(ledger: Ledger, depth: int) -> _Found:
    blocks = _blocks_of(ledger)

    def nodes() -> list[str]:
        members = in_order(ledger.model, blocks.nodes)
        names = {member: "" if member is None else member.label(depth) for member in set(members)}
        return [names[member] for member in members]

    members = in_entry_order(ledger.entries, blocks.entries)
    return ["" if member is None else member.label(depth) for member in members], nodes


def _blocks_of(ledger: Ledger) -> Blocks:
    """Return the known blocks, or find them now.

    Raises:
        UsageError: the blocks are not known, and there is no graph in which to find them.
    """
    if ledger.blocks is not None:
        return ledger.blocks
    if ledger.entries and not ledger.model.graphs:
        raise UsageError(
            f"--by block, --by role: the report on {ledger.model.path} does not list its blocks; "
            "make it again with this version, or group by scope, op or dtype"
        )
    return find_blocks(ledger)


def _by_op(ledger: Ledger, depth: int) -> _Found:
    def nodes() -> list[str]:
        return [node.op_type for node in ledger.model.nodes()]

    return [entry.computed_by or entry.read_by or UNREAD for entry in ledger.entries], nodes


def _by_stage(ledger: Ledger, depth: int) -> _Found:
    stages = ledger.stages

    def nodes() -> list[str]:
        known = {} if stages is None else stages.nodes
        return [UNSTAGED if stage is None else stage for stage in in_order(ledger.model, known)]

    if stages is None:
        return [UNSTAGED] * len(ledger.entries), nodes
    return [stages.entries.get(entry.tensor.key, UNSTAGED) for entry in ledger.entries], nodes


def _by_dtype(ledger: Ledger, depth: int) -> _Found:
    return [entry.tensor.dtype.name for entry in ledger.entries], None


def _by_role(ledger: Ledger, depth: int) -> _Found:
    """Group learned tensors by their function, and the others by their role."""
    blocks = _blocks_of(ledger)
    pairs = zip(ledger.entries, in_entry_order(ledger.entries, blocks.roles), strict=True)
    return [
        role if entry.role is Role.PARAMETER and role is not None else entry.role.value
        for entry, role in pairs
    ], None


KEYS: dict[str, Callable[[Ledger, int], _Found]] = {
    "scope": _by_scope,
    "block": _by_block,
    "stage": _by_stage,
    "op": _by_op,
    "dtype": _by_dtype,
    "role": _by_role,
}
"""Keys by which a ledger can be partitioned, each with a function of the ledger and a depth."""

NODE_KEYS = ("scope", "block", "stage", "op")
"""Keys whose groups consist of nodes."""
