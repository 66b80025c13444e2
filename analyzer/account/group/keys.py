"""A ledger and a key, `scope` or `scope,dtype` -> which group each entry and each node is in."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from analyzer.account.blocks import find_blocks
from analyzer.account.ledger import Blocks, Ledger, NaturalOrder, Role, in_entry_order
from analyzer.errors import UsageError
from analyzer.model import Place
from analyzer.model.operators import Kind, named
from analyzer.model.places import ByNode, in_order

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

UNSTAGED = "[no stage]"
"""The group, by stage, of what is in no convolutional trunk."""

NESTED = frozenset({"scope", "block"})
"""Keys of which a group's name has parts, with dots between them, so that groups stand under each other."""

Label = tuple[str, ...]
"""What a group is called: one text for each key."""


class Labels(NamedTuple):
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
        depth = _usual_depth(ledger)
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


def _usual_depth(ledger: Ledger) -> int:
    """The depth of scopes where nobody asks for one."""
    held: dict[str, int] = defaultdict(int)
    learned = Role.PARAMETER
    for entry in ledger.entries:
        if entry.role is learned and entry.has_scope:
            held[entry.scope] += entry.parameters
    return first_telling_depth(held)


def label_layers(ledger: Ledger, labels: Labels) -> Labels | None:
    """The same scopes, and apart from these the layers that repeat each other in them: `encoder.layer.3` of `encoder`.

    A scope is opened where numbered modules below it follow each other, have as many parameters, and hold half of what
    it holds; None where there is no such scope.
    """
    depth = labels.depth or 1
    if all(entry.scope.count(".") < depth for entry in ledger.entries):  # as where each layer is a group
        return None
    held: Counter[str] = Counter()
    below: dict[str, dict[str, Counter[int]]] = {}
    layers = _Layers(depth)
    for entry in ledger.entries:
        if entry.parameters and entry.has_scope:
            group = _scope_group(entry.scope, depth)
            held[group] += entry.parameters
            if layer := layers.of(entry.scope):
                stem, _, number = layer.rpartition(".")
                below.setdefault(group, {}).setdefault(stem, Counter())[int(number)] += entry.parameters
    opened = {
        group
        for group, stems in below.items()
        if 2 * sum(map(_count_repeated, stems.values())) >= held[group] > 0
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
    """`_layer_of` by scope, of those around others."""

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
    """The scope up to the first number below so many parts; "" where there is none.

    >>> _layer_of("encoder.layer.3.output", 1), _layer_of("encoder.norm", 1)
    ('encoder.layer.3', '')
    """
    parts = scope.split(".", DEEPEST)[:DEEPEST]
    for at in range(depth, len(parts)):
        if _NUMBER.fullmatch(parts[at]):
            return ".".join(parts[: at + 1])
    return ""


_NUMBER = re.compile(r"(?a:0|[1-9]\d{0,8})")


def _count_repeated(held: Mapping[int, int]) -> int:
    """What those have that have as much as the one before or after them."""
    return sum(
        count for number, count in held.items() if count in (held.get(number - 1), held.get(number + 1))
    )


def _join(by_key: Sequence[Sequence[str]]) -> list[Label]:
    labels: dict[Label, Label] = {}  # one object for all nodes of a group
    return [labels.setdefault(label, label) for label in zip(*by_key, strict=True)]


def choose_key(ledger: Ledger) -> str:
    """The key where nobody named one (`choose`)."""
    return choose(ledger)[0]


def choose(ledger: Ledger) -> tuple[str, int | None]:
    """The key where nobody named one: the first that tells the parts of the model apart.

    That is the first of scope, block, stage and op by which the parameters are in 3 to 20 groups, none of which has
    over 90 %; groups that repeat each other count as one of the 20. Blocks are passed where over half of the model lies
    in one piece before, between or after them. Where no key does, two groups are enough; then scopes, if more than a
    tenth has one; then blocks; else the operators.

    Returns:
        The key, and the usual depth of scopes where that is known.
    """
    depth = None
    shares: dict[str, _Shares] = {}
    for least, most in ((_FEW_GROUPS, _MANY_GROUPS), (2, _MANY_GROUPS), (2, None)):
        for key in _CHOICES:
            if key not in shares:
                if key == "scope" and ledger.parameters and are_modules(ledger):
                    depth = _usual_depth(ledger)
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
    """What the groups by a key have of the parameters."""

    groups: int
    """How many have any."""
    rows: int
    """How many they are where those that repeat each other are one; counted up to one more than many."""
    most: float
    """The share of the largest."""
    rest: float
    """The share of what no group has by name."""

    @classmethod
    def of(cls, ledger: Ledger, key: str, depth: int | None) -> _Shares:
        """The shares by a key; `depth` is that of scopes, None where these are no modules."""
        is_unknown = (
            (key == "block" and not _is_repeated(ledger))
            or (key == "stage" and ledger.stages is None)
            or (key == "scope" and depth is None)
        )
        if is_unknown or not ledger.parameters:
            return cls(0, 0, 1.0, 1.0)
        labels, _ = KEYS[key](ledger, depth or 1 if key == "scope" else 1)
        held: dict[str, int] = defaultdict(int)
        for entry, label in zip(ledger.entries, labels, strict=True):
            if entry.parameters:
                held[label] += entry.parameters
        rows: set[tuple[str, int]] = set()
        for name, count in held.items():
            rows.add((_NUMBERS.sub("#", name), count))
            if len(rows) > _MANY_GROUPS:
                break
        rest = sum(count for name, count in held.items() if name in (UNSCOPED, UNSTAGED, UNREAD))
        return cls(len(held), len(rows), max(held.values()) / ledger.parameters, rest / ledger.parameters)


_NUMBERS = re.compile(r"\d+")


def are_modules(ledger: Ledger) -> bool:
    """Whether any scope of what is learned is more than a tensor's own name with a dot or a counter in it."""
    held = Counter(entry.scope for entry in ledger.entries if entry.has_scope)
    return any(
        entry.parameters
        and entry.has_scope
        and not entry.tensor.name.rpartition(".")[2].isdecimal()
        and (held[entry.scope] > 1 or entry.scoped_by != "name:dotted")
        for entry in ledger.entries
    )


def _is_repeated(ledger: Ledger) -> bool:
    """Whether blocks say where the parameters are: no part before, between or after them has more than half of all.

    Tables of embeddings are no part of that, which stand before the blocks of whatever repeats.
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


_TABLES = named(Kind.LOOKS_UP)


def first_telling_depth(held: Mapping[str, int]) -> int:
    """The first depth at which scopes are in three groups or more, none with nearly all that they hold together.

    Where there is none it is the first with three groups, else the deepest.

    >>> first_telling_depth(
    ...     {"bert.embeddings": 4, "bert.encoder.layer.0": 9, "bert.encoder.layer.1": 9, "cls": 1}
    ... )
    2
    >>> (
    ...     first_telling_depth({"a.b.c": 9, "a.b.d": 9, "a.e": 1, "f": 0, "g": 0}),
    ...     first_telling_depth({"a": 99, "b": 1}),
    ... )
    (3, 1)
    """
    deepest = max((scope.count(".") + 1 for scope in held), default=1)
    whole = sum(held.values())
    sizes: dict[int, tuple[int, int]] = {}
    """At each depth how many groups there are, and what the largest holds."""
    groups: Mapping[str, int] = held
    # Groups are made of those below, which are fewer than scopes.
    for depth in range(min(deepest, DEEPEST), 0, -1):
        if depth < deepest or ROOT in held:
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


def drawn_depth(ledger: Ledger, by: str) -> int | None:
    """The depth for a picture: the first at which no group has over half of the parameters; None where no depth tells.

    Where no depth does, as of one large table, it is the first at which the largest is smallest. Beyond a few dozen
    boxes nobody looks: there the last depth before is taken.

    Raises:
        UsageError: `by` is blocks, of a saved report that does not tell them.
    """
    if by not in NESTED or not ledger.parameters:
        return None
    usual = label_members(ledger, by).depth or 1
    best, least = usual, 2.0
    for depth in range(usual, usual + _DEEPER):
        held: Counter[str] = Counter()
        for entry, label in zip(ledger.entries, label_members(ledger, by, depth).entries, strict=True):
            if entry.parameters:
                held[label[0]] += entry.parameters
        boxes = {(_NUMBERS.sub("#", name), count) for name, count in held.items()}
        if depth > usual and len(boxes) > _MANY_BOXES:
            break
        largest = max(held.values()) / ledger.parameters
        if largest < least - _CLEARLY:
            best, least = depth, largest
        if largest <= _HALF:
            break
    return best


_DEEPER, _MANY_BOXES, _HALF, _CLEARLY = 6, 40, 0.5, 1e-9

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
            import difflib  # what only a mistake needs

            like = difflib.get_close_matches(name[:_LONGEST], [*KEYS, *WORDS, ACCOUNTS], 1)
            near = f"; did you mean {like[0]}?" if like and not alone else ""
            raise UsageError(f"--by {by}: {name!r} is not one of {', '.join(KEYS)}{alone}{near}")
    if len(set(names)) < len(names):
        raise UsageError(f"--by {by}: names a key twice")
    return names


def label_order(label: Label, order: NaturalOrder | None = None) -> tuple[tuple[bool, int, str], ...]:
    """Sort key: numbers by their size, `stem` before blocks, `between.1` and `head` after, bracketed groups last."""
    natural = (order or NaturalOrder()).of
    return tuple([(text.startswith("["), _end_of(text), natural(text)) for text in label])


def _end_of(text: str) -> int:
    name, _, number = text.partition(".")
    if name not in _ENDS:
        return 0
    is_end = not number if name != "between" else number.isdecimal()
    return _ENDS[name] if is_end else 0


def sort_labels(labels: Iterable[Label]) -> list[Label]:
    """Labels in their order; many in half of the time that a sort by `label_order` alone takes.

    >>> sort_labels([("head",), ("block.10",), ("block.9",), ("[unscoped]",), ("stem",)])
    [('stem',), ('block.9',), ('block.10',), ('head',), ('[unscoped]',)]
    """
    order = NaturalOrder()
    return sorted(labels, key=lambda label: label_order(label, order))


_Found = tuple[Sequence[str], Callable[[], Sequence[str]] | None]
"""The labels of the entries, and what makes those of the nodes, in the order of `Model.nodes`."""


def _by_scope(ledger: Ledger, depth: int) -> _Found:
    def nodes() -> list[str]:
        found: list[str] = []
        groups: dict[str, str] = {}
        """By the module around a scope: scopes may be as many as nodes, and the modules around them are few."""
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
    if dots < depth:  # as it is, nearly always where groups are many
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
    """What learned tensors do; the role of the others."""
    blocks = _blocks_of(ledger)
    told = zip(ledger.entries, in_entry_order(ledger.entries, blocks.roles), strict=True)
    return [
        role if entry.role is Role.PARAMETER and role is not None else entry.role.value
        for entry, role in told
    ], None


KEYS: dict[str, Callable[[Ledger, int], _Found]] = {
    "scope": _by_scope,
    "block": _by_block,
    "stage": _by_stage,
    "op": _by_op,
    "dtype": _by_dtype,
    "role": _by_role,
}
"""What a ledger can be partitioned by: a function of the ledger and a depth."""
