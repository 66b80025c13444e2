"""Two timings side by side: differences beyond their error bars, and differences in measurement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import timings

from analyzer.comparison import Status
from analyzer.errors import UsageError
from analyzer.timing.side_by_side import TimePair, TimingComparison, compare_timings


def group(report: TimingComparison, name: str) -> TimePair:
    (found,) = [pair for pair in report.points[0].groups if pair.name == name]
    return found


def test_a_timing_beside_itself_is_unchanged_throughout(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)

    report = compare_timings(timing, timing)

    assert {pair.status for pair in report.points[0].groups} == {Status.UNCHANGED}
    assert report.measured == ()
    assert report.points[0].latency.ratio == 1


def test_a_group_has_changed_where_the_error_bars_do_not_meet(tmp_path: Path) -> None:
    a, b = timings.make_timing(tmp_path), timings.make_timing(tmp_path, factor=1.05)

    report = compare_timings(a, b)

    assert group(report, "layer.0").status is Status.CHANGED  # 0.1 apart, errors 0.041
    assert group(report, "embeddings").status is Status.UNCHANGED  # 0.025 apart
    assert group(report, "layer.0").ms.difference == pytest.approx(-0.1)
    assert group(report, "layer.0").parameters.a == 4


def test_the_times_of_a_side_sum_to_its_profiled_run(tmp_path: Path) -> None:
    for is_own in (False, True):
        timing = timings.make_timing(tmp_path, is_own=is_own)

        (point,) = compare_timings(timing, timing).points

        others = point.ungrouped.a + point.unattributed.a + point.overhead.a - point.overlap.a
        assert sum(pair.ms.a for pair in point.groups) + others == pytest.approx(point.profiled.a)


def test_groups_of_one_side_are_added_or_removed(tmp_path: Path) -> None:
    whole = timings.make_timing(tmp_path)
    groups = tuple(g for g in whole.grouping.groups if g.name != "head")
    parts = tuple(part for part in whole.points[0].parts if part.group.name != "head" and not part.across)
    less = replace(
        whole,
        grouping=replace(whole.grouping, groups=groups),
        points=(replace(whole.points[0], parts=parts),),
    )

    removed, added = compare_timings(whole, less), compare_timings(less, whole)

    assert group(removed, "head").status is Status.REMOVED
    assert group(added, "head").status is Status.ADDED
    assert (group(added, "head").ms.a, group(added, "head").ms.ratio) == (0, 0)
    assert group(removed, "head").ms.ratio is None
    assert group(removed, "layer.0 + layer.1").status is Status.REMOVED
    assert removed.points[0].groups[-1].across == timings.ACROSS


def test_what_was_not_measured_alike_is_listed(tmp_path: Path) -> None:
    a = timings.make_timing(tmp_path)
    environment = replace(
        a.environment, device="Another", threads=8, versions=(("onnxruntime", "1.30.0"), ("CUDA", "12"))
    )
    feeds = (replace(timings.FEEDS[0], shape=(1, 8)), *timings.FEEDS[1:])
    b = replace(
        a,
        environment=environment,
        settings=replace(a.settings, provider="cuda"),
        points=(replace(a.points[0], feeds=feeds),),
    )

    found = {row.what: (row.a, row.b) for row in compare_timings(a, b).measured}

    assert found.keys() == {
        "device",
        "provider",
        "version of onnxruntime",
        "version of CUDA",
        "threads",
        "inputs",
    }
    assert found["threads"] == ("2", "8")
    assert found["version of CUDA"] == ("none", "12")
    assert found["inputs"][1].startswith("ids 1x8, ")


def test_sweeps_are_compared_at_the_lengths_that_both_have(tmp_path: Path) -> None:
    a, b = timings.make_sweep(tmp_path, (8, 16, 32)), timings.make_sweep(tmp_path, (16, 32, 64))

    report = compare_timings(a, b)

    assert [point.value for point in report.points] == [16, 32]
    assert report.axis == "sequence"


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((8, 16), (32, 64), "without a common length: 8, 16 in a, 32, 64 in b"),
        ((8, 16), None, "a is a sweep and b a timing at one length"),
        (None, (8, 16), "b is a sweep and a a timing at one length"),
    ],
)
def test_what_has_no_length_in_common_is_refused(
    tmp_path: Path, a: tuple[int, ...] | None, b: tuple[int, ...] | None, message: str
) -> None:
    sides = [timings.make_sweep(tmp_path, at) if at else timings.make_timing(tmp_path) for at in (a, b)]

    with pytest.raises(UsageError, match=message):
        compare_timings(*sides)


def test_sweeps_of_different_axes_are_refused(tmp_path: Path) -> None:
    sweep = timings.make_sweep(tmp_path)

    with pytest.raises(UsageError, match="a is a sweep of sequence, b of batch"):
        compare_timings(sweep, replace(sweep, axis="batch"))


def test_other_keys_are_refused(tmp_path: Path) -> None:
    scopes, own = timings.make_timing(tmp_path), timings.make_timing(tmp_path, is_own=True)

    with pytest.raises(UsageError, match="a is grouped by scope at depth 2, b by group"):
        compare_timings(scopes, own)
