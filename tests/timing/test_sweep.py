"""A sweep reports the growth of its latency, its groups and its rows."""

from __future__ import annotations

from pathlib import Path

import timings

from analyzer.timing.rows import Order, grow_latency, grow_parts, grow_row, lengths, make_rows


def test_every_part_and_the_plain_run_have_a_growth(tmp_path: Path) -> None:
    sweep = timings.make_sweep(tmp_path, power=2)

    latency, parts = grow_latency(sweep), grow_parts(sweep)

    assert lengths(sweep) == (16, 32, 64, 128, 256)
    assert latency is not None
    assert latency.order is Order.QUADRATIC
    assert [name for name, _, _ in parts] == [*timings.MS, "layer.0 + layer.1"]
    assert [across for _, across, _ in parts][-1] == timings.ACROSS
    assert {growth.order for _, _, growth in parts if growth} == {Order.QUADRATIC}


def test_a_folded_row_grows_as_the_sum_of_its_groups(tmp_path: Path) -> None:
    sweep = timings.make_sweep(tmp_path)
    (row,) = [row for row in make_rows(sweep, 20)[0] if row.title == "layer.0-2"]

    growth = grow_row(row, sweep)

    assert growth is not None
    assert growth.order is Order.LINEAR
    assert abs(growth.at(64) - 6.375) < 1e-9


def test_two_lengths_have_no_growth(tmp_path: Path) -> None:
    sweep = timings.make_sweep(tmp_path, (16, 32))

    assert grow_latency(sweep) is None
    assert {growth for _, _, growth in grow_parts(sweep)} == {None}
