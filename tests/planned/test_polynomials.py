"""Polynomials of sizes, from their values at a few points."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from analyzer.cost.memory.polynomials import Polynomial, axis_name, fit_size, sample_points

SIZES = st.fixed_dictionaries({"batch": st.integers(1, 99), "sequence": st.integers(1, 999)})


@given(SIZES, st.integers(0, 50), st.integers(-3, 50), st.integers(-3, 50))
def test_sums_of_axes_are_found(
    bound: dict[str, int], constant: int, of_batch: int, of_sequence: int
) -> None:
    points = sample_points(bound)
    sizes = [constant + of_batch * at["batch"] + of_sequence * at["sequence"] for at in points]
    found = fit_size(sizes, points)
    assert found is not None
    assert found.at({"batch": 7, "sequence": 11}) == constant + 7 * of_batch + 11 * of_sequence


@given(SIZES, st.integers(1, 50))
def test_products_of_axes_are_found(bound: dict[str, int], factor: int) -> None:
    points = sample_points(bound)
    found = fit_size([factor * at["batch"] * at["sequence"] for at in points], points)
    assert found is not None
    assert found.at({"batch": 7, "sequence": 11}) == 77 * factor


def test_what_is_neither_has_none() -> None:
    points = sample_points({"height": 224})
    assert fit_size([(at["height"] - 1) // 2 + 1 for at in points], points) is None
    assert fit_size([at["height"] ** 2 for at in points], points) is None


def test_points_differ_and_stay_positive() -> None:
    points = sample_points({"batch": 1, "sequence": 512})
    assert all(size >= 1 for point in points for size in point.values())
    assert max(point["sequence"] for point in points) == 512


def test_products_of_polynomials_are_expanded() -> None:
    length = Polynomial.of({("s",): 1, (): 1})
    assert str(length * length) == "s**2 + 2*s + 1"
    assert (length * length).at({"s": 4}) == 25
    assert (length + Polynomial.constant(-1)).at({}) is None
    assert str(Polynomial()) == "0"


def test_axes_become_names_of_python() -> None:
    assert axis_name("past + 1") == "past_1"
    assert axis_name("9") == "axis_9"
