"""Two ledgers side by side: a - b and a / b, group by group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from models import audit, ramp, text_model

from analyzer.account.group import group_by
from analyzer.account.group.patterns import group_by_patterns, parse_patterns
from analyzer.account.ledger import Ledger, Member, Run
from analyzer.comparison import (
    Comparison,
    Pair,
    Status,
    ValueCounts,
    compare_ledgers,
    count_statuses,
    group_alike,
)
from analyzer.errors import UsageError


def made_of(folder: Path, **sizes: int) -> Ledger:
    """Audit a model with one matrix of `size` rows in each module."""
    folder.mkdir()
    nodes = " ".join(f'y{i} = MatMul(x, "{module}.weight")' for i, module in enumerate(sizes))
    proto = text_model(
        f"g (float[2,2] x) => (float[2,2] y0) {{ {nodes} }}",
        {f"{module}.weight": ramp(size, 2, start=100 * i) for i, (module, size) in enumerate(sizes.items())},
    )
    return audit(folder, proto)


def compare(a: Ledger, b: Ledger, depth: int | None = 1) -> Comparison:
    return compare_ledgers(a, b, group_by(a, depth=depth), group_by(b, depth=depth))


def test_groups_are_unchanged_added_removed_or_changed(tmp_path):
    a = made_of(tmp_path / "a", same=3, gone=4, grown=5)
    b = made_of(tmp_path / "b", same=3, grown=7, fresh=6)

    statuses = {group.name: group.status for group in compare(a, b).groups if group.parameters != Pair(0, 0)}

    assert statuses == {
        "same": Status.UNCHANGED,
        "gone": Status.REMOVED,
        "grown": Status.CHANGED,
        "fresh": Status.ADDED,
    }


def test_side_that_lacks_a_group_has_nothing_of_it(tmp_path):
    result = compare(made_of(tmp_path / "a", left=3), made_of(tmp_path / "b", right=4))

    pairs = {group.name: (group.parameters, group.nbytes) for group in result.groups}
    assert pairs["left"] == (Pair(6, 0), Pair(24, 0))
    assert pairs["right"] == (Pair(0, 8), Pair(0, 32))


def test_totals_are_those_of_the_ledgers(tmp_path):
    a, b = made_of(tmp_path / "a", x=3, y=5), made_of(tmp_path / "b", x=4)

    result = compare(a, b)

    assert result.parameters == Pair(16, 8)
    assert result.file_nbytes == Pair(a.file_nbytes, b.file_nbytes)
    assert result.parameters.a == sum(group.parameters.a for group in result.groups)
    assert result.parameters.b == sum(group.parameters.b for group in result.groups)


@pytest.mark.parametrize(
    ("a", "b", "difference", "ratio"),
    [(6, 3, 3, 2.0), (3, 6, -3, 0.5), (3, 0, 3, None), (0, 3, -3, 0.0), (0, 0, 0, None)],
)
def test_difference_is_a_less_b_and_ratio_a_by_b(a, b, difference, ratio):
    assert (Pair(a, b).difference, Pair(a, b).ratio) == (difference, ratio)


def test_model_against_itself_is_unchanged(tmp_path):
    ledger = made_of(tmp_path / "a", x=3, y=5)

    assert {group.status for group in compare(ledger, ledger).groups} == {Status.UNCHANGED}


def test_same_counts_of_another_width_are_changed(tmp_path):
    proto = text_model(
        'g (float[2,2] x) => (float[2,2] y) { y = MatMul(x, "x.weight") }',
        {"x.weight": ramp(3, 2).astype("f2")},
    )
    (tmp_path / "b").mkdir()

    (group,) = compare(made_of(tmp_path / "a", x=3), audit(tmp_path / "b", proto)).groups[:1]

    assert (group.status, group.parameters, group.nbytes) == (Status.CHANGED, Pair(6, 6), Pair(24, 12))


def test_groups_that_changed_alike_come_in_natural_order_whichever_side_has_them(tmp_path):
    a, b = made_of(tmp_path / "a", h10=2, h2=2), made_of(tmp_path / "b", h1=2)

    names = [group.name for group in compare(a, b).groups if not group.name.startswith("[")]

    assert names == ["h1", "h2", "h10"]


def test_largest_change_of_bytes_comes_first_then_of_parameters_and_what_is_unchanged_last(tmp_path):
    a = made_of(tmp_path / "a", same=9, little=3, much=3, gone=4)
    b = made_of(tmp_path / "b", same=9, little=4, much=30, fresh=5)

    result = compare(a, b)

    assert [group.name for group in result.groups] == ["much", "fresh", "gone", "little", "same"]
    assert [pair.entry.tensor.name.split(".")[0] for pair in result.tensors] == [
        "much",
        "fresh",
        "gone",
        "little",
        "same",
    ]


def test_own_groups_come_with_the_largest_change_first_too(tmp_path):
    a, b = made_of(tmp_path / "a", x=3, y=5, z=2), made_of(tmp_path / "b", x=3, y=6, z=9)
    patterns = parse_patterns(["same=x", "little=y", "much=z"])

    result = compare_ledgers(a, b, group_by_patterns(a, patterns), group_by_patterns(b, patterns))

    assert [group.name for group in result.groups] == ["much", "little", "same"]


def test_accounts_are_compared_to_the_last_byte(tmp_path):
    a, b = made_of(tmp_path / "a", x=3), made_of(tmp_path / "b", x=4)

    result = compare_ledgers(a, b, *group_alike(a, b, "bytes"))

    assert sum(group.nbytes.a for group in result.groups) == a.file_nbytes
    assert sum(group.nbytes.b for group in result.groups) == b.file_nbytes


def test_statuses_are_counted_also_those_that_nothing_has(tmp_path):
    a, b = made_of(tmp_path / "a", x=3, y=3, z=3), made_of(tmp_path / "b", x=3, y=4)

    result = compare(a, b)

    expected = {Status.UNCHANGED: 1, Status.ADDED: 0, Status.REMOVED: 1, Status.CHANGED: 1}
    assert count_statuses(result.groups) == count_statuses(result.tensors) == expected


def test_every_total_is_that_of_the_ledgers(tmp_path):
    a, b = made_of(tmp_path / "a", x=3, y=5), made_of(tmp_path / "b", x=4)

    result = compare(a, b)

    assert (result.stored_elements, result.stored_nbytes) == (Pair(16, 8), Pair(64, 32))
    assert (result.nodes, result.tensor_count) == (Pair(2, 1), Pair(2, 1))


def test_nodes_are_not_compared_where_a_side_does_not_say_how_many_it_has(tmp_path):
    ledger = made_of(tmp_path / "a", x=3)
    old = replace(ledger, model=replace(ledger.model, graphs=()))

    assert compare(ledger, old).nodes is None
    assert compare(ledger, replace(old, told_nodes=7)).nodes == Pair(1, 7)


def test_values_are_compared_where_that_is_requested(tmp_path):
    a, b = made_of(tmp_path / "a", x=3, y=5), made_of(tmp_path / "b", z=1, x=3, y=5)  # z shifts x and y

    result = compare_ledgers(a, b, *group_alike(a, b), content="full")

    assert compare(a, b).values is None
    assert result.values == ValueCounts("full", equal=0, differing=2, unknown=0)
    assert count_statuses(result.tensors)[Status.CHANGED] == 2


def test_a_saved_report_has_no_values_to_compare(tmp_path):
    ledger = made_of(tmp_path / "a", x=3)
    saved = replace(ledger, model=replace(ledger.model, graphs=()))

    with pytest.raises(UsageError, match=r"--content full: the report on .*model\.onnx has no values"):
        compare_ledgers(ledger, saved, *group_alike(ledger, saved), content="full")


def test_a_tensor_has_the_group_that_it_is_in_on_each_side(tmp_path):
    a, b = made_of(tmp_path / "a", x=3, y=5), made_of(tmp_path / "b", x=3, z=4)

    groups = {pair.entry.tensor.name: (pair.groups, pair.group) for pair in compare(a, b).tensors}

    assert groups == {
        "x.weight": (("x", "x"), "x"),
        "y.weight": (("y", None), "y"),
        "z.weight": ((None, "z"), "z"),
    }


def test_the_group_of_a_tensor_is_the_first_of_the_users_that_has_it(tmp_path):
    a = made_of(tmp_path / "a", x=3, y=5, z=4)
    grouping = group_by_patterns(a, parse_patterns(["why=y", "both=x|y"]))

    pairs = compare_ledgers(a, a, grouping, grouping).tensors

    groups = {pair.entry.tensor.name: pair.group for pair in pairs}
    assert groups == {"x.weight": "both", "y.weight": "why", "z.weight": "[ungrouped]"}


def test_groups_of_two_keys_meet_by_both(tmp_path):
    a, b = made_of(tmp_path / "a", x=3, y=5), made_of(tmp_path / "b", x=3, z=4)

    result = compare_ledgers(a, b, *group_alike(a, b, "scope,dtype", 1))

    assert (result.by, result.depth) == ("scope,dtype", 1)
    assert [(group.name, group.label, group.parameters) for group in result.groups] == [
        ("y / FLOAT", ("y", "FLOAT"), Pair(10, 0)),
        ("z / FLOAT", ("z", "FLOAT"), Pair(0, 8)),
        ("x / FLOAT", ("x", "FLOAT"), Pair(6, 6)),
    ]


def test_both_are_grouped_at_the_lesser_of_their_depths(tmp_path):
    a, b = made_of(tmp_path / "a", x=3, y=5, z=4), made_of(tmp_path / "b", **{"m.x": 3, "m.y": 5, "m.z": 4})

    assert [group_by(side).depth for side in (a, b)] == [1, 2]
    assert [grouping.depth for grouping in group_alike(a, b)] == [1, 1]
    assert [grouping.depth for grouping in group_alike(a, b, depth=2)] == [2, 2]
    assert [grouping.depth for grouping in group_alike(a, b, "dtype", 2)] == [None, None]


def unnamed(ledger: Ledger, *, has_scopes: bool, count: int) -> Ledger:
    """Return the ledger with `count` blocks, optionally without scopes."""
    entries = tuple(
        entry if has_scopes else replace(entry, scope="", scoped_by="none") for entry in ledger.entries
    )
    runs = (Run(0, count),) if count else ()
    members = {
        entry.tensor.key: Member(f"block.{at}" if at < count else "head") for at, entry in enumerate(entries)
    }
    return replace(ledger, entries=entries, blocks=replace(ledger.blocks, runs=runs, entries=members))


@pytest.mark.parametrize(
    ("a", "b", "key"),
    [
        ((True, 2), (True, 2), "scope"),
        ((False, 2), (False, 2), "block"),
        ((True, 2), (False, 2), "block"),
        ((True, 0), (False, 2), "scope"),
        ((False, 0), (False, 2), "op"),
    ],
)
def test_key_is_one_that_both_sides_have(tmp_path, a, b, key):
    sides = [
        unnamed(made_of(tmp_path / name, x=3, y=5), has_scopes=has_scopes, count=count)
        for name, (has_scopes, count) in (("a", a), ("b", b))
    ]

    assert [grouping.by for grouping in group_alike(*sides)] == [key, key]


def test_own_groups_come_with_overlap_and_rest(tmp_path):
    a, b = made_of(tmp_path / "a", x=3, y=5), made_of(tmp_path / "b", x=3, z=4)
    patterns = parse_patterns(["why=y", "both=x|y"])

    result = compare_ledgers(a, b, group_by_patterns(a, patterns), group_by_patterns(b, patterns))

    assert [group.name for group in result.groups] == ["why", "both"]  # equal changes: in the user's order
    assert (result.overlap.parameters, result.ungrouped.parameters) == (Pair(10, 0), Pair(0, 8))
    for side in ("a", "b"):
        summed = sum(getattr(group.parameters, side) for group in result.groups)
        summed += getattr(result.ungrouped.parameters, side) - getattr(result.overlap.parameters, side)
        assert summed == getattr(result.parameters, side)
