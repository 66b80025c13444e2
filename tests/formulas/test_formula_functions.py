"""Functions of formulas return the values that their names promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.formulas.language import height, sparse_layers, starts, width


@given(st.integers(0, 60), st.integers(-2, 9), st.lists(st.integers(-3, 70), max_size=9))
def test_layers_with_experts_are_counted_as_transformers_decides_for_each(
    layers: int, step: int, skipped: list[int]
) -> None:
    expected = sum(
        1 for layer in range(layers) if step > 0 and (layer + 1) % step == 0 and layer not in skipped
    )

    assert sparse_layers(layers, step, tuple(skipped)) == expected


def test_layers_are_not_gone_through_one_by_one() -> None:
    assert sparse_layers(10**30, 1, None) == 10**30


def test_a_size_is_the_side_of_a_square_or_height_and_width() -> None:
    assert (height(7), width(7), height((7, 9)), width((7, 9))) == (7, 7, 7, 9)


@pytest.mark.parametrize("side", [height, width])
@pytest.mark.parametrize("size", [(), (7,), (7, 8, 9)])
def test_a_size_of_another_number_of_sides_is_refused(
    side: Callable[[object], int], size: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="neither a side nor"):
        side(size)


def test_what_is_no_text_begins_with_nothing() -> None:
    assert [starts(each, "gated") for each in ("gated-gelu", "relu", None, 5)] == [True, False, False, False]
