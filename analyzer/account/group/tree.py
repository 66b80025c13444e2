"""Groups -> rows of a tree, depth first: subtotals, and repeated neighbours folded into one row."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from analyzer.account.group.branches import Branch, fold, grow, is_learned
from analyzer.account.group.keys import DEEPEST, NESTED, UNSCOPED, Label, first_dividing_depth
from analyzer.account.ledger import Group, Grouping
from analyzer.records import Frozen, replace
from analyzer.text import format_others

OWN = "(own)"
"""Row for a group's own members, beside the groups below it."""


class TreeRow(Frozen):
    """A group, or several that repeat each other. The rows one level below it sum to it."""

    level: int
    title: str
    """Name relative to the row above it."""
    count: int
    """Number of groups that it represents: 12 for `encoder.layer.0-11`, and for each row below it."""
    parameters: int
    """Parameters of each of these groups."""
    total: Group
    """Total of all these groups, under the full name."""
    members: tuple[Label, ...] = ()
    """Labels of the groups in the total."""


def build_tree(grouping: Grouping, *, is_opened: bool = False) -> tuple[TreeRow, ...]:
    """Nest groups by the parts of their names, then by the next key, each row with its subtotal.

    - A parent with one child and without learned tensors of its own has no row: its constants are beside the child.
      The own members of any other parent are a child `(own)`.
    - Neighbours with consecutive numbers, `layer.0` to `layer.11`, are one row `layer.0-11` if equal names below them
      have equal numbers of parameters and bytes. The rows below it are sums over all of them.
    - At the default depth the parents of scopes have no rows. Parents of blocks never have rows.
    - If `is_opened`, layers that make up most of a group of that depth replace it, or are below it.
    """
    hidden = _hidden_parts(grouping)
    rows = tuple(row for branch in fold(grow(grouping)) for row in _rows(branch, 0, None, None, hidden))
    if not (is_opened and grouping.layers):
        return rows
    layers: dict[str, list[Group]] = defaultdict(list)
    """Layers by the leading parts of their names, as many as a group's name has."""
    for each in grouping.layers:
        layers[".".join(each.name.split(".", grouping.depth or 0)[: grouping.depth])].append(each)
    return tuple(each for row in rows for each in _open(row, grouping, layers))


_MANY_LAYERS = 6
"""Most rows of layers for which a group is opened: with more it repeats too little."""


def _open(row: TreeRow, grouping: Grouping, known: Mapping[str, Sequence[Group]]) -> Iterator[TreeRow]:
    """Yield a row, or its layers: below the row if it has learned tensors beside them, else in its place."""
    name = row.total.name
    is_deepest = name.count(".") + 1 == grouping.depth  # else longer names are groups of their own
    inside = known.get(name, ()) if is_deepest else ()
    layers = [each for each in inside if each.name != name]
    if not layers:
        yield row
        return
    found = fold(grow(replace(grouping, groups=tuple(layers))))
    rows = [each for branch in found for each in _rows(branch, row.level, None, None, {0: DEEPEST})]
    if row.count > 1 or not rows or len(rows) > _MANY_LAYERS:
        yield row
        return
    rest = [each for each in inside if each.name == name]
    if not any(map(is_learned, rest)):
        yield from rows
        yield from (TreeRow(row.level, name, 1, 0, each, (each.label,)) for each in rest)
        return
    yield row
    for own in rest:
        total = replace(own, name=f"{name} {OWN}")
        yield TreeRow(row.level + 1, OWN, 1, own.parameters, total, (own.label,))
    for each in rows:
        title = each.title.removeprefix(f"{name}.")
        yield replace(each, level=row.level + 1, title=title)


def cut_rows(
    rows: Sequence[TreeRow], limit: int, size: Callable[[TreeRow], tuple[float, ...]] | None = None
) -> tuple[tuple[TreeRow, ...], int]:
    """Return at most `limit` rows, and the number of omitted rows below one of these; a limit of 0 omits none.

    The outermost rows are kept first, the largest of them before others; then the rows below the largest, and so on.
    Omitted neighbours of kept rows are summed in one more row, `[3 others]`. `size` is a sort key that puts the largest
    rows first; None sorts by parameters.
    """
    size = size or _size
    if not limit:
        return tuple(rows), 0
    below = _children(rows)
    after: dict[int, list[int]] = {}  # shown rows below each shown row
    others: dict[int, TreeRow] = {}
    level, rows_left = [_ROOT], limit
    while level and rows_left:
        opened: list[int] = []
        for parent in level:
            largest = sorted(below[parent], key=lambda at: size(rows[at]))
            shown, left = largest[:rows_left], largest[rows_left:]
            if not shown:
                continue
            after[parent] = sorted(shown)
            rows_left -= len(shown)
            opened += shown
            if left:
                others[parent] = _sum_others([rows[at] for at in left])
        level = sorted(opened, key=lambda at: size(rows[at]))
    kept = [at for children in after.values() for at in children]
    closed = sum(_count_below(rows, at) for at in kept if at not in after)
    return tuple(_lay_out(_ROOT, rows, after, others)), closed


def sum_groups(name: str, groups: Sequence[Group], twice: Group | None = None) -> Group:
    """Sum groups, minus the amounts that they count twice."""
    whole = (*groups, _NOTHING if twice is None else _negative(twice))
    uses = {group.applications for group in groups if group.parameters}
    known = all(group.trainable is not None for group in groups)
    macs = [group.macs for group in whole if group.macs is not None]
    if len(groups) == 1 and twice is None:  # true of most rows in a large tree
        totals: Iterable[int] = _ADDED(groups[0])
    else:
        totals = map(sum, zip(*map(_ADDED, whole), strict=True))
    parameters, unshared, stored, nbytes, learned, tensors, nodes, unworked = totals
    return Group(
        name=name,
        parameters=parameters,
        unshared_parameters=unshared,
        applications=uses.pop() if len(uses) == 1 else 1,
        stored_elements=stored,
        nbytes=nbytes,
        learned_nbytes=learned,
        tensors=tensors,
        nodes=nodes,
        macs=sum(macs) if macs else None,
        unworked=unworked,
        first=min([group.first for group in groups if group.first is not None], default=None),
        trainable=sum(group.trainable or 0 for group in whole) if known else None,
        frozen=sum(group.frozen or 0 for group in whole) if known else None,
    )


_ADDED = attrgetter(
    "parameters",
    "unshared_parameters",
    "stored_elements",
    "nbytes",
    "learned_nbytes",
    "tensors",
    "nodes",
    "unworked",
)
"""Totals that every group has."""

_NOTHING = Group("")


def _negative(group: Group) -> Group:
    return replace(
        group,
        parameters=-group.parameters,
        unshared_parameters=-group.unshared_parameters,
        stored_elements=-group.stored_elements,
        nbytes=-group.nbytes,
        learned_nbytes=-group.learned_nbytes,
        tensors=-group.tensors,
        nodes=-group.nodes,
        macs=None if group.macs is None else -group.macs,
        unworked=-group.unworked,
        trainable=-(group.trainable or 0),
        frozen=-(group.frozen or 0),
    )


# from branches to rows


def _hidden_parts(grouping: Grouping) -> dict[int, int]:
    """Return, by position of a key, how many leading parts of its texts have no row if there are parts below them."""
    return {
        position: 1 if key == "block" else _hidden_scopes(grouping, position)
        for position, key in enumerate(grouping.by.split(","))
        if key in NESTED
    }


def _hidden_scopes(grouping: Grouping, position: int) -> int:
    """Return all parts if no shallower depth tells more: that is the default depth, which is shown as a plain list."""
    totals: dict[str, int] = defaultdict(int)
    for group in grouping.groups:
        if group.label[position] != UNSCOPED and is_learned(group):
            totals[group.label[position]] += group.parameters
    deepest = max((scope.count(".") + 1 for scope in totals), default=1)
    return DEEPEST if first_dividing_depth(totals) == deepest else 0


def _rows(
    branch: Branch, level: int, title: str | None, name: str | None, hidden: Mapping[int, int]
) -> Iterator[TreeRow]:
    """Yield the rows of a branch; `title` and `name` are prefixes from parents without a row."""
    title, name = branch.step.after(title), branch.step.after(name)
    if branch.children:
        yield from _titled(branch, level, title, name, hidden)
    else:
        yield _row(branch, level, title, name)


def _titled(
    branch: Branch, level: int, title: str, name: str, hidden: Mapping[int, int]
) -> Iterator[TreeRow]:
    if not branch.children:
        yield _row(branch, level, title, name)
        return
    parts = fold(branch.children)
    inner = [part for part in parts if part.step.key == branch.step.key]
    outer = tuple(part for part in parts if part.step.key != branch.step.key)
    own = replace(branch, children=outer) if inner else branch
    has_own = bool(inner and (own.own or own.children))
    is_chain = len(inner) == 1 and not any(map(is_learned, own.groups))
    if len(parts) == 1 and not branch.own:
        yield from _rows(parts[0], level, title, name, hidden)
    elif inner and (is_chain or branch.step.part <= hidden[branch.step.key]):
        if has_own:
            yield from _titled(own, level, title, name, hidden)
        for part in inner:
            yield from _rows(part, level, title, name, hidden)
    else:
        yield _row(branch, level, title, name)
        if has_own:
            yield from _titled(own, level + 1, OWN, f"{name} {OWN}", hidden)
        for part in inner or parts:
            yield from _rows(part, level + 1, None, name, hidden)


def _row(branch: Branch, level: int, title: str, name: str) -> TreeRow:
    groups = tuple(branch.groups) if branch.children else branch.own
    # Most rows of a large tree are one group, which is its own sum.
    total = groups[0] if len(groups) == 1 and groups[0].name == name else sum_groups(name, groups)
    members = tuple([group.label for group in groups])
    return TreeRow(level, title, branch.count, total.parameters // branch.count, total, members)


# cutting rows to a limit

_ROOT = -1
"""Position of the parent of the outermost rows."""


def _children(rows: Sequence[TreeRow]) -> dict[int, list[int]]:
    """Return, for each row, the positions of the rows directly below it."""
    below: dict[int, list[int]] = {at: [] for at in range(_ROOT, len(rows))}
    above = [_ROOT]
    for at, row in enumerate(rows):
        del above[row.level + 1 :]
        below[above[-1]].append(at)
        above.append(at)
    return below


def _size(row: TreeRow) -> tuple[int, int, int]:
    """Return a sort key: largest rows first, equal ones in their order."""
    return -row.total.parameters, -row.total.nbytes, -row.total.tensors


def _sum_others(rows: Sequence[TreeRow]) -> TreeRow:
    title = format_others(len(rows))
    total = sum_groups(title, [row.total for row in rows])
    members = tuple(itertools.chain.from_iterable(row.members for row in rows))
    return TreeRow(rows[0].level, title, 1, total.parameters, total, members)


def _count_below(rows: Sequence[TreeRow], at: int) -> int:
    """Count the rows below one, at any level."""
    level = rows[at].level
    return sum(1 for _ in itertools.takewhile(lambda row: row.level > level, rows[at + 1 :]))


def _lay_out(
    parent: int, rows: Sequence[TreeRow], after: Mapping[int, Sequence[int]], others: Mapping[int, TreeRow]
) -> Iterator[TreeRow]:
    for at in after.get(parent, ()):
        yield rows[at]
        yield from _lay_out(at, rows, after, others)
    if parent in others:
        yield others[parent]
