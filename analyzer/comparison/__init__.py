"""Ledger + Ledger -> Comparison: pairs of totals, groups and tensors."""

from __future__ import annotations

import filecmp

from analyzer.account.group import group_by
from analyzer.account.group.keys import ACCOUNTS, Label, choose_key, label_order
from analyzer.account.group.members import list_groups
from analyzer.account.ledger import Entry, Group, Grouping, Ledger, natural_order
from analyzer.comparison.declared import compare_declared
from analyzer.comparison.record import (
    Change,
    Comparison,
    DeclaredPair,
    Followed,
    GroupPair,
    MatchedBy,
    Pair,
    Status,
    TensorPair,
    ValueCounts,
    WiringPair,
    count_statuses,
)
from analyzer.comparison.tensors import compare_scales, compare_values, compare_wiring, pair_tensors
from analyzer.errors import UsageError
from analyzer.model import Model
from analyzer.model.content import ContentMode

__all__ = [
    "Change",
    "Comparison",
    "DeclaredPair",
    "Followed",
    "GroupPair",
    "MatchedBy",
    "Pair",
    "Status",
    "TensorPair",
    "ValueCounts",
    "WiringPair",
    "are_same_files",
    "compare_ledgers",
    "count_statuses",
    "group_alike",
]


def group_alike(
    a: Ledger, b: Ledger, by: str | None = None, depth: int | None = None
) -> tuple[Grouping, Grouping]:
    """Group both ledgers by the same keys at the same depth, the smaller of their default depths.

    Where `by` is None the key is the default of both. If their defaults differ, the key is blocks if both have blocks,
    else scopes if either takes them by default, else operators.

    Raises:
        UsageError: as in `analyzer.account.group.group_by`.
        LedgerError: as in `analyzer.account.group.group_by`.
    """
    by = _agree_on_key(a, b) if by is None else by
    found = group_by(a, by, depth), group_by(b, by, depth)
    depths = [grouping.depth for grouping in found if grouping.depth is not None]
    if len(set(depths)) < 2:
        return found
    return group_by(a, by, min(depths)), group_by(b, by, min(depths))


def _agree_on_key(a: Ledger, b: Ledger) -> str:
    keys = choose_key(a), choose_key(b)
    if keys[0] == keys[1]:
        return keys[0]
    has_blocks = all(side.blocks is not None and side.blocks.count > 0 for side in (a, b))
    return "block" if has_blocks else "scope" if "scope" in keys else "op"


def compare_ledgers(
    a: Ledger,
    b: Ledger,
    grouping_a: Grouping,
    grouping_b: Grouping,
    *,
    content: ContentMode = "none",
    followed: Followed | None = None,
) -> Comparison:
    """Compare two groupings by the same keys, and all tensors; the largest change comes first.

    Args:
        content: values that are compared in pairs of tensors that are otherwise alike: none, those at fixed positions,
            or all.
        followed: places of one side's learned tensors in the other, if they were followed (`comparison.following`).

    Raises:
        UsageError: values are to be compared, and one side is a saved report, which has none.
        ModelReadError: a file has changed since it was counted.
    """
    pairs, values = _pair_tensors((a, grouping_a), (b, grouping_b), content, followed)
    is_same_file = are_same_files(a.model, b.model)
    declared, notes = ((), ()) if is_same_file else compare_declared(a.model, b.model)
    return Comparison(
        a=str(a.model.path),
        b=str(b.model.path),
        parameters=Pair(a.parameters, b.parameters),
        stored_elements=Pair(a.stored_elements, b.stored_elements),
        stored_nbytes=Pair(a.stored_nbytes, b.stored_nbytes),
        file_nbytes=Pair(a.file_nbytes, b.file_nbytes),
        nodes=None if a.nodes is None or b.nodes is None else Pair(a.nodes, b.nodes),
        by=grouping_a.by,
        depth=grouping_a.depth,
        groups=_pair_groups(grouping_a, grouping_b),
        overlap=_pair(grouping_a.overlap, grouping_b.overlap),
        ungrouped=_pair(grouping_a.ungrouped, grouping_b.ungrouped),
        tensors=pairs,
        contents=(a.content, b.content),
        values=values,
        match=grouping_a.match,
        origins=(grouping_a.origin, grouping_b.origin),
        wiring=compare_wiring(a, b, pairs),
        declared=declared,
        notes=notes,
        followed=followed,
        is_same_file=is_same_file,
        macs=None if a.macs is None or b.macs is None else (a.macs, b.macs),
    )


def are_same_files(a: Model, b: Model) -> bool:
    """Whether two local models are the same files, byte by byte; their names may differ."""
    if not all(side.graphs and side.traffic is None for side in (a, b)):
        return False
    if [file.nbytes for file in a.files] != [file.nbytes for file in b.files]:
        return False
    try:
        return all(
            here.resolve() == there.resolve() or filecmp.cmp(here, there, shallow=False)
            for here, there in zip(a.paths, b.paths, strict=True)
        )
    except (OSError, RuntimeError):
        return False


def _pair_tensors(
    a: tuple[Ledger, Grouping],
    b: tuple[Ledger, Grouping],
    content: ContentMode,
    followed: Followed | None,
) -> tuple[tuple[TensorPair, ...], ValueCounts | None]:
    """Return the pairs, the largest change first, and the counts of compared values."""
    pairs, values = pair_tensors(_with_groups(*a), _with_groups(*b), followed), None
    if content != "none":
        _check_content(content, a[0], b[0])
        salt = "+".join(sorted(side[0].model.salt for side in (a, b)))  # the same in either order
        pairs, values = compare_values(pairs, content, salt)
    elif all(side[0].model.graphs and side[0].model.traffic is None for side in (a, b)):
        pairs = compare_scales(pairs)
    return tuple(sorted(pairs, key=lambda pair: (*_size(pair), *_place(pair)))), values


def _with_groups(ledger: Ledger, grouping: Grouping) -> tuple[tuple[Entry, str], ...]:
    """Return each entry with its group; with the first of several groups."""
    return tuple(
        (entry, names[0]) for entry, names in zip(ledger.entries, list_groups(ledger, grouping), strict=True)
    )


def _check_content(content: ContentMode, *sides: Ledger) -> None:
    for side in sides:
        if not side.model.graphs:
            raise UsageError(
                f"--content {content}: the report on {side.model.path} has no values to compare; name the model "
                "itself, or leave --content out"
            )


def _pair_groups(grouping_a: Grouping, grouping_b: Grouping) -> tuple[GroupPair, ...]:
    """Return pairs of groups, the largest change first; equal changes in natural order, or in the user's."""
    groups_a, groups_b = _by_label(grouping_a), _by_label(grouping_b)
    labels = list(dict.fromkeys((*groups_a, *groups_b)))
    if grouping_a.by != "group":
        labels.sort(key=label_order)
    pairs = [_pair(groups_a.get(label), groups_b.get(label)) for label in labels]
    return tuple(sorted(pairs, key=_size))


def _size(pair: GroupPair | TensorPair) -> tuple[int, int, bool]:
    """Sort key: the largest change of bytes first, then of parameters; unchanged pairs come last."""
    is_last = pair.status is Status.UNCHANGED
    return -abs(pair.nbytes.difference), -abs(pair.parameters.difference), is_last


def _place(pair: TensorPair) -> tuple[tuple[bool, str], tuple[bool, str], bool]:
    path, name = pair.entry.tensor.key
    return natural_order("/".join(path)), natural_order(name), pair.a is None


def _by_label(grouping: Grouping) -> dict[Label, Group]:
    """Return groups by label, without groups of nodes alone: a saved report has no nodes to compare with them."""
    return {
        group.label: group
        for group in grouping.groups
        if grouping.by in ("group", ACCOUNTS) or group.tensors > 0 or group.macs or group.unworked
    }


def _pair(a: Group | None, b: Group | None) -> GroupPair:
    known = a or b or Group("")
    left, right = (each or Group(known.name, macs=None if known.macs is None else 0) for each in (a, b))
    a_macs, b_macs = left.macs, right.macs
    if a is None or b is None:
        status = Status.ADDED if a is None else Status.REMOVED
    else:
        status = Status.UNCHANGED if _facts(a) == _facts(b) else Status.CHANGED
    return GroupPair(
        name=known.name,
        label=known.label,
        status=status,
        parameters=Pair(left.parameters, right.parameters),
        stored_elements=Pair(left.stored_elements, right.stored_elements),
        nbytes=Pair(left.nbytes, right.nbytes),
        tensors=Pair(left.tensors, right.tensors),
        macs=None if a_macs is None or b_macs is None else Pair(a_macs, b_macs),
        unworked=Pair(left.unworked, right.unworked),
    )


def _facts(group: Group) -> tuple[int, ...]:
    return group.parameters, group.stored_elements, group.nbytes, group.tensors, group.macs or 0
