"""Times at several lengths are constant, linear or quadratic only as far as the points are evidence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analyzer.timing.rows import Order, fit_growth

LENGTHS = (16, 32, 64, 128, 256, 512)
SCALES = st.floats(1e-3, 1e3)


def noisy(times: list[float], noise: float, seed: int) -> list[float]:
    return list(np.asarray(times) * (1 + noise * np.random.default_rng(seed).standard_normal(len(times))))


@given(SCALES)
def test_a_time_that_does_not_grow_is_constant(constant: float) -> None:
    growth = fit_growth(LENGTHS, [constant] * 6)

    assert growth is not None
    assert growth.order is Order.CONSTANT
    assert (growth.linear, growth.quadratic, growth.r2) == (0, 0, None)
    assert growth.constant == pytest.approx(constant)


@given(SCALES, st.floats(0, 10))
def test_an_exact_line_is_found(slope: float, offset: float) -> None:
    times = [slope * (offset + n) for n in LENGTHS]

    growth = fit_growth(LENGTHS, times)

    assert growth is not None
    assert growth.order is Order.LINEAR
    assert growth.linear == pytest.approx(slope)
    assert growth.r2 == pytest.approx(1)
    assert [growth.at(n) for n in LENGTHS] == pytest.approx(times)


@given(SCALES, st.floats(0, 100))
def test_an_exact_parabola_is_found(curve: float, offset: float) -> None:
    times = [curve * (offset * n + n * n) for n in LENGTHS]

    growth = fit_growth(LENGTHS, times)

    assert growth is not None
    assert growth.order is Order.QUADRATIC
    assert growth.quadratic == pytest.approx(curve)
    assert growth.share == pytest.approx(512 / (512 + offset))


@given(
    st.lists(st.floats(0, 1e4), min_size=4, max_size=4), st.lists(st.floats(0, 100), min_size=4, max_size=4)
)
@example([0.0, 6e-06, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0])
def test_whatever_was_measured_no_term_is_negative_and_nothing_overflows(
    times: list[float], errors: list[float]
) -> None:
    growth = fit_growth((1, 10, 100, 1000), times, errors)

    assert growth is not None
    assert min(growth.constant, growth.linear, growth.quadratic) >= 0
    assert 0 <= growth.share <= 1
    assert growth.r2 is None or growth.r2 <= 1
    assert np.isfinite([growth.at(n) for n in (1, 1000)]).all()


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.05])
@pytest.mark.parametrize("count", [4, 5, 6])
def test_noise_seldom_makes_a_line_look_like_a_parabola(noise: float, count: int) -> None:
    lengths = LENGTHS[:count]
    line = [0.3 + 0.01 * n for n in lengths]

    orders = [fit_growth(lengths, noisy(line, noise, seed)) for seed in range(100)]

    wrong = sum(growth is not None and growth.order is Order.QUADRATIC for growth in orders)
    assert wrong <= 10


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.05])
def test_attention_at_long_lengths_is_seen_through_noise(noise: float) -> None:
    times = [0.01 * n + 0.01 * n * n / 512 for n in LENGTHS]

    orders = [fit_growth(LENGTHS, noisy(times, noise, seed)) for seed in range(100)]

    found = sum(growth is not None and growth.order is Order.QUADRATIC for growth in orders)
    assert found >= 95


def test_three_points_contradict_a_line_only_where_they_are_far_from_it() -> None:
    near = fit_growth((16, 32, 64), [1.6, 3.4, 7.0])
    far = fit_growth((16, 32, 64), [0.16, 0.64, 2.56])

    assert near is not None
    assert near.order is Order.LINEAR
    assert far is not None
    assert far.order is Order.QUADRATIC


def test_a_small_term_is_not_worth_its_order() -> None:
    growth = fit_growth(LENGTHS, [n + 0.02 * n * n / 512 for n in LENGTHS], [0.0] * 6)

    assert growth is not None
    assert growth.order is Order.LINEAR


def test_what_the_errors_cover_is_no_evidence() -> None:
    times = [1.0, 1.1, 1.2, 1.4]

    sure, unsure = (fit_growth((1, 2, 3, 5), times, [error] * 4) for error in (0.001, 1.0))

    assert sure is not None
    assert sure.order is Order.LINEAR
    assert unsure is not None
    assert unsure.order is Order.CONSTANT


@pytest.mark.parametrize("lengths", [(), (16,), (16, 32), (16, 32, 32)])
def test_fewer_than_three_lengths_are_not_fitted(lengths: tuple[int, ...]) -> None:
    assert fit_growth(lengths, [1.0] * len(lengths)) is None


def test_a_group_that_takes_no_time_is_constant_at_nothing() -> None:
    growth = fit_growth((1, 2, 3), [0.0, 0.0, 0.0])

    assert growth is not None
    assert (growth.order, growth.at(1000)) == (Order.CONSTANT, 0)
