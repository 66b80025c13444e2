import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.timing.running.measure import (
    interval_ranks,
    judge_profiled,
    precision_of,
    quantile,
    summarize,
)

TIMES = st.lists(st.integers(1, 10**12), min_size=1, max_size=60)


def test_known_times_have_known_quantiles() -> None:
    latency = summarize([1_000_000 * n for n in range(100, 0, -1)], precision=0.5)

    assert latency.mean == 50.5
    assert latency.median == 50.5
    assert latency.p90 == pytest.approx(90.1)
    assert latency.p99 == pytest.approx(99.01)
    assert latency.min == 1
    assert latency.runs == 100
    assert latency.precision == pytest.approx((61 - 40) / 2 / 50.5)
    assert latency.settled


def test_one_run_is_all_that_is_known_and_has_not_settled() -> None:
    latency = summarize([2_000_000], precision=1.0)

    assert latency.mean == latency.median == latency.p90 == latency.p99 == latency.min == 2.0
    assert not latency.settled


def test_fewer_than_six_runs_cannot_have_settled_however_equal_they_are() -> None:
    assert not summarize([7] * 5, precision=0.01).settled
    assert summarize([7] * 6, precision=0.01).settled


def test_no_runs_have_no_latency() -> None:
    with pytest.raises(ValueError, match="no runs"):
        summarize([], precision=0.01)


def test_runs_that_take_no_time_have_a_precision() -> None:
    assert precision_of([0] * 6) == 0


@pytest.mark.parametrize("count", [1, 2, 5])
def test_fewer_than_six_runs_have_no_precision(count: int) -> None:
    assert precision_of([7] * count) is None
    assert summarize([7] * count, precision=0.5).precision is None


@given(TIMES, st.floats(0, 1))
def test_quantiles_are_those_of_numpy(times: list[int], share: float) -> None:
    assert quantile(sorted(times), share) == pytest.approx(float(np.quantile(times, share)))


@given(TIMES)
def test_quantiles_are_in_order_and_within_the_times(times: list[int]) -> None:
    latency = summarize(times, precision=0.01)

    assert latency.min <= latency.median <= latency.p90 <= latency.p99 <= max(times) / 1e6
    assert latency.precision is None or latency.precision >= 0


@given(TIMES, st.randoms())
def test_the_order_of_runs_does_not_matter(times: list[int], random: object) -> None:
    shuffled = sorted(times, key=lambda _: random.random())  # type: ignore[attr-defined]

    assert summarize(shuffled, 0.01) == summarize(times, 0.01)


@pytest.mark.parametrize("count", [6, 7, 10, 31, 100, 500, 999, 1000])
def test_the_interval_is_the_narrowest_symmetric_one_that_has_95_percent(count: int) -> None:
    low, high = interval_ranks(count)

    assert low + high == count - 1
    assert covered(count, low) >= Fraction(95, 100)
    assert low + 1 > (count - 1) // 2 or covered(count, low + 1) < Fraction(95, 100)


def covered(count: int, low: int) -> Fraction:
    """Return the probability that the median is between the value at rank `low` and the one as far from the end."""
    outside = sum(math.comb(count, below) for below in range(low + 1))
    return 1 - Fraction(2 * outside, 2**count)


@pytest.mark.parametrize("count", range(1, 6))
def test_with_few_values_the_interval_is_all_of_them(count: int) -> None:
    assert interval_ranks(count) == (0, count - 1)


@given(st.integers(1, 100_000))
def test_ranks_are_symmetric_and_in_range(count: int) -> None:
    low, high = interval_ranks(count)

    assert 0 <= low <= high < count
    assert low + high == count - 1


def test_the_approximation_joins_the_exact_ranks() -> None:
    exact, approximate = interval_ranks(1000), interval_ranks(1001)

    assert abs(exact[0] - approximate[0]) <= 1


def test_the_interval_covers_the_median_of_a_skewed_distribution() -> None:
    generator = np.random.default_rng(0)
    low, high = interval_ranks(40)
    samples = np.sort(generator.exponential(size=(4000, 40)), axis=1)
    hits = (samples[:, low] <= math.log(2)) & (math.log(2) <= samples[:, high])

    assert 0.94 < hits.mean() < 0.985


@pytest.mark.parametrize(
    ("plain", "profiled", "expected"),
    [
        ([10] * 9, [11] * 9, None),
        ([10] * 9, [10] * 9, None),
        ([10] * 9, [21] * 9, "slower"),
        ([10] * 9, [9] * 9, "faster"),
        ([10] * 8 + [900], [10] * 9, None),
    ],
)
def test_profiled_runs_are_judged_by_medians(
    plain: list[int], profiled: list[int], expected: str | None
) -> None:
    assert judge_profiled(summarize(plain, 0.01), summarize(profiled, 0.01)) == expected
