"""The rows of a timing's table sum to its total, however they are folded and cut."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import timings

from analyzer.account.ledger import Group
from analyzer.timing.record import TimedGroup, Timing
from analyzer.timing.rows import make_rows, total_group


def outer_ms(timing: Timing, limit: int) -> float:
    rows, _ = make_rows(timing, limit)
    return math.fsum(row.ms[0] for row in rows if row.level == 0)


@pytest.mark.parametrize("limit", range(6))
def test_the_outermost_rows_have_the_time_of_all_parts(tmp_path: Path, limit: int) -> None:
    timing = timings.make_timing(tmp_path)

    assert outer_ms(timing, limit) == pytest.approx(math.fsum(part.ms for part in timing.points[0].parts))


def test_layers_with_equal_contents_are_one_row_with_the_time_of_each(tmp_path: Path) -> None:
    rows, closed = make_rows(timings.make_timing(tmp_path), 20)

    (layers,) = [row for row in rows if row.title == "layer.0-2"]
    assert layers.ms == (pytest.approx(6.375),)
    assert sorted(layers.each) == [2.0, 2.125, 2.25]
    assert layers.errors == (pytest.approx(0.02 * math.sqrt(3)),)
    assert (layers.kernels, layers.group.parameters, closed) == (6, 12, 0)


def test_kernels_fused_within_a_folded_row_are_between_its_groups(tmp_path: Path) -> None:
    rows, _ = make_rows(timings.make_timing(tmp_path), 20)

    (fused,) = [row for row in rows if row.is_fused]
    assert (fused.title, fused.ms, fused.group.parameters) == ("between layer.0-2", (0.3,), 0)


def test_fused_lines_beyond_the_limit_are_summed(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    point = timing.points[0]
    lines = [("embeddings", "layer.0"), ("layer.2", "head"), ("embeddings", "head")]
    parts = [TimedGroup(Group(" + ".join(across)), 0.1, 1, across) for across in lines]
    timing = replace(timing, points=(replace(point, parts=(*point.parts, *parts)),))

    rows, _ = make_rows(timing, 2)

    fused = [row for row in rows if row.is_fused]
    assert [row.title for row in fused] == [
        "between layer.0-2",
        "embeddings + head",
        "[2 others of fused kernels]",
    ]
    assert fused[-1].ms == (pytest.approx(0.2),)


def test_the_slowest_groups_have_room_first(tmp_path: Path) -> None:
    rows, _ = make_rows(timings.make_timing(tmp_path), 1)

    assert [row.title for row in rows if not row.is_fused] == ["layer.0-2", "[2 others]"]


def test_a_group_without_kernels_has_a_row_as_its_weights_count(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    point = timing.points[0]
    kept = tuple(part for part in point.parts if part.group.name != "embeddings")

    rows, _ = make_rows(replace(timing, points=(replace(point, parts=kept),)), 20)

    (row,) = [row for row in rows if row.title == "embeddings"]
    assert (row.ms, row.group.parameters) == ((0.0,), 12)


def test_a_group_of_nodes_alone_has_a_row_as_they_take_time(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    point = timing.points[0]
    busy = Group("glue", ("glue",), nodes=1)
    grouping = replace(timing.grouping, groups=(*timing.grouping.groups, busy))
    parts = (*point.parts, TimedGroup(busy, 1.0, 1))

    found = replace(timing, grouping=grouping, points=(replace(point, parts=parts),))

    assert busy in found.grouping.groups
    assert "glue" in [row.title for row in make_rows(found, 20)[0]]


def test_the_users_groups_are_all_shown_in_their_order(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path, is_own=True)

    rows, closed = make_rows(timing, 1)

    assert [row.title for row in rows] == ["early", "late"]
    assert closed == 0
    assert total_group(timing).parameters == timing.parameters


def test_rows_of_a_sweep_have_a_time_for_each_length(tmp_path: Path) -> None:
    rows, _ = make_rows(timings.make_sweep(tmp_path, (16, 32, 64)), 20)

    assert {len(row.ms) for row in rows} == {3}
    assert rows[0].ms == pytest.approx((0.125, 0.25, 0.5))
