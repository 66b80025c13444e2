"""Kernels and their times -> the time of each group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import models
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.account.group import group_by
from analyzer.account.group.patterns import UNGROUPED, OwnGroups, group_by_patterns, parse_patterns
from analyzer.account.ledger import Group, Grouping, Ledger
from analyzer.errors import UsageError
from analyzer.model import Node
from analyzer.timing.attribution import (
    NONE,
    SAME,
    VALUES,
    Origin,
    Split,
    find_membership,
    match_kernels,
    split_time,
    time_kernels,
)
from analyzer.timing.record import KernelTime
from analyzer.timing.request import Kernel

NET = """
net (float[1,2] x) => (float[1,2] y) <float[2,2] v = {1,2,3,4}, float[2,2] w = {5,6,7,8}>
{
    [first] a = MatMul(x, v)
    [first_act] b = Relu(a)
    [second] c = MatMul(b, w)
    [loose] y = Neg(c)
}
"""
SCOPES = {"first": "layer.0", "first_act": "layer.0", "second": "layer.1"}


def audit(folder: Path) -> Ledger:
    return models.audit(folder, models.dynamo_like(models.text_model(NET), scopes=SCOPES))


def grouping(*names: str, by: str = "scope") -> Grouping:
    nothing = Group("")
    return Grouping(by, 1, tuple(Group(name, label=(name,)) for name in names), nothing, Group(UNGROUPED))


def times(*rows: Sequence[float]) -> npt.NDArray[np.float64]:
    return np.array(rows, dtype=np.float64)


def kernel(ms: float, *groups: str, is_across: bool = False) -> KernelTime:
    return KernelTime("k", "Op", "CPU", ms, groups, SAME if groups else NONE, len(groups), is_across)


def total(split: Split) -> float:
    ungrouped = split.ungrouped.ms if split.ungrouped is not None else 0.0
    return math.fsum(p.ms for p in split.parts) - split.overlap_ms + ungrouped + split.unattributed_ms


def attributed(
    origins: Sequence[Origin | None], membership: dict[int, tuple[str, ...]]
) -> list[tuple[tuple[str, ...], bool]]:
    kernels = [Kernel(str(i), "Op", "CPU") for i in range(len(origins))]
    found = time_kernels(kernels, [1.0] * len(origins), origins, membership)
    return [(k.groups, k.is_across) for k in found]


def test_nodes_are_in_the_group_of_their_scope(tmp_path: Path) -> None:
    ledger = audit(tmp_path)

    found = find_membership(ledger, group_by(ledger, "scope", 2))

    assert [found[i] for i in range(3)] == [("layer.0",), ("layer.0",), ("layer.1",)]


def test_nodes_may_be_in_several_of_the_user_s_groups_or_in_none(tmp_path: Path) -> None:
    ledger = audit(tmp_path)
    own = OwnGroups(parse_patterns([r"all=^layer", r"last=^layer\.1"]), "all", "--group")

    found = find_membership(ledger, group_by_patterns(ledger, own.patterns), own)

    assert found[0] == ("all",)
    assert found[2] == ("all", "last")


@pytest.mark.parametrize("by", ["dtype", "role", "bytes", "scope,dtype"])
def test_keys_that_group_no_nodes_are_refused(tmp_path: Path, by: str) -> None:
    ledger = audit(tmp_path)

    with pytest.raises(UsageError, match="groups no nodes"):
        find_membership(ledger, group_by(ledger, by))


def test_kernels_in_the_order_of_the_saved_nodes_need_no_names() -> None:
    ran = [
        Node((), 0, "Add", "", "", (), ()),
        Node((), 1, "Mul", "", "m", (), ()),
        Node((), 2, "Add", "", "", (), ()),
    ]
    kernels = [Kernel("Add_7", "Add", "CPU"), Kernel("m", "Mul", "CPU"), Kernel("Add_9", "Add", "CPU")]

    assert match_kernels(kernels, ran) == [0, 1, 2]


def test_kernels_in_another_order_go_by_their_names() -> None:
    ran = [
        Node((), 0, "Add", "", "a", (), ()),
        Node((), 1, "Mul", "", "m", (), ()),
        Node((), 2, "Exp", "", "", (), ()),
    ]
    kernels = [Kernel("m", "Mul", "CPU"), Kernel("Exp_9", "Exp", "CPU"), Kernel("a", "Add", "CPU")]

    assert match_kernels(kernels, ran) == [1, 2, 0]


def test_a_kernel_that_the_saved_graph_does_not_have_is_not_guessed() -> None:
    ran = [Node((), 0, "Add", "", "", (), ()), Node((), 1, "Add", "", "", (), ())]
    kernels = [Kernel("Add_7", "Add", "CPU"), Kernel("x", "Memcpy", "CPU"), Kernel("Add_8", "Add", "CPU")]

    assert match_kernels(kernels, ran) == [0, None, 1]
    assert match_kernels([Kernel("Add_7", "Add", "CPU")], ran) == [None]
    assert match_kernels([Kernel("a", "Neg", "CPU")], [Node((), 0, "Add", "", "a", (), ())]) == [None]


def test_a_kernel_of_nodes_in_one_group_is_that_group_s() -> None:
    assert attributed([Origin((0, 1), VALUES)], {0: ("a",), 1: ("a",)}) == [(("a",), False)]


def test_a_kernel_of_nodes_in_two_groups_is_fused_across_them() -> None:
    assert attributed([Origin((0, 1), VALUES)], {0: ("a",), 1: ("b",)}) == [(("a", "b"), True)]


def test_a_node_without_a_scope_does_not_count_beside_others() -> None:
    assert attributed([Origin((0, 1), VALUES)], {0: ("[unscoped]",), 1: ("b",)}) == [(("b",), False)]
    assert attributed([Origin((0,), VALUES)], {0: ("[unscoped]",)}) == [(("[unscoped]",), False)]


def test_a_kernel_whose_nodes_share_several_groups_is_in_each_of_them() -> None:
    assert attributed([Origin((0, 1), VALUES)], {0: ("a", "b"), 1: ("a", "b")}) == [(("a", "b"), False)]


def test_a_kernel_without_a_group_of_the_user_s_is_ungrouped() -> None:
    assert attributed([Origin((0,), SAME)], {0: ()}) == [((UNGROUPED,), False)]


def test_a_kernel_whose_nodes_are_unknown_has_no_group() -> None:
    assert attributed([None, Origin((), NONE)], {}) == [((), False), ((), False)]


def test_a_group_s_time_is_the_mean_over_runs_of_its_kernels() -> None:
    kernels = [kernel(2.0, "a"), kernel(3.0, "a"), kernel(4.0, "b")]

    found = split_time(kernels, times([1, 2, 4], [3, 4, 4]), grouping("a", "b", "c"))

    assert [(part.group.name, part.ms, part.kernels) for part in found.parts] == [
        ("a", 5.0, 2),
        ("b", 4.0, 1),
        ("c", 0.0, 0),
    ]
    assert found.parts[0].error_ms == pytest.approx(12.706 * math.sqrt(8) / math.sqrt(2))
    assert (found.unattributed_ms, found.overlap_ms, found.ungrouped) == (0.0, 0.0, None)


def test_few_runs_are_little_evidence_and_one_is_none() -> None:
    (one,) = split_time([kernel(3, "a")], times([3]), grouping("a")).parts
    rows = np.random.default_rng(1).normal(3, 1, (400, 1))
    (many,) = split_time([kernel(3, "a")], rows, grouping("a")).parts

    assert one.error_ms == one.ms
    assert 0.05 < many.error_ms < 0.2


def test_runs_that_are_like_those_before_them_are_less_evidence_than_as_many_that_are_not() -> None:
    (drifting,) = split_time([kernel(3, "a")], times(*([2],) * 32, *([4],) * 32), grouping("a")).parts
    (mixed,) = split_time([kernel(3, "a")], times(*([2], [4]) * 32), grouping("a")).parts

    assert drifting.error_ms > 0.5
    assert mixed.error_ms < 0.1


def test_fused_kernels_have_a_line_for_each_set_of_groups() -> None:
    kernels = [kernel(1, "b", "a", is_across=True), kernel(2, "a", "b", is_across=True), kernel(4, "a")]

    found = split_time(kernels, times([1, 2, 4]), grouping("a", "b"))

    assert [(part.group.name, part.across, part.ms) for part in found.parts] == [
        ("a", (), 4.0),
        ("b", (), 0.0),
        ("a + b", ("a", "b"), 3.0),
    ]


def test_what_the_user_s_groups_share_is_the_overlap_and_what_none_has_is_ungrouped() -> None:
    kernels = [kernel(1, "a", "b"), kernel(2, "a"), kernel(4, UNGROUPED), kernel(8)]

    found = split_time(kernels, times([1, 2, 4, 8]), grouping("a", "b", by="group"), is_own=True)

    assert [part.ms for part in found.parts] == [3.0, 1.0]
    assert found.overlap_ms == 1.0
    assert found.ungrouped is not None
    assert found.ungrouped.ms == 4.0
    assert found.unattributed_ms == 8.0
    assert total(found) == 15.0


@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from("abcd"), max_size=3), st.booleans(), st.integers(0, 10**6)),
        max_size=30,
    ),
    st.integers(1, 4),
)
def test_parts_sum_up_to_all_kernels(drawn: list[tuple[set[str], bool, int]], runs: int) -> None:
    rows = times(*([ms * (1 + run) / 1e3 for _, _, ms in drawn] for run in range(runs)))
    means = rows.mean(axis=0)
    kernels = [
        kernel(float(means[i]), *(sorted(groups) or (UNGROUPED,)), is_across=is_across and len(groups) > 1)
        for i, (groups, is_across, _) in enumerate(drawn)
    ]

    found = split_time(kernels, rows, grouping(*"abcd", by="group"), is_own=True)

    assert total(found) == pytest.approx(float(rows.sum(axis=1).mean()), rel=1e-9, abs=1e-9)
