"""Planted repeats, and variants of them, are found."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.account.blocks.repeats import Repeat, add_alike, find_repeats


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4)), max_size=40), st.booleans())
def test_repeats_are_in_order_apart_and_in_range(units, variants):
    found = find_repeats(units, variants=variants)

    bounds = [bound for repeat in found for bound in (repeat.start, repeat.end)]
    assert bounds == sorted(bounds)
    assert all(repeat.count >= 2 and repeat.period >= 1 for repeat in found)
    assert not bounds or (bounds[0] >= 0 and bounds[-1] <= len(units))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(2, 9),
    st.lists(st.integers(1000, 1999), max_size=4, unique=True),
    st.lists(st.integers(2000, 2999), max_size=4, unique=True),
)
def test_repeat_that_was_planted_is_found(period, count, before, after):
    block = [(10 + unit,) for unit in range(period)]

    found = find_repeats([*((size,) for size in before), *block * count, *((size,) for size in after)])

    assert found == (Repeat(len(before), period, count),)


def test_first_block_with_a_weight_more_is_a_variant():
    units = [(5, 50), (1, 2, 7), (9, 9), (1, 7), (9, 9), (1, 7), (9, 9), (6, 60)]

    assert find_repeats(units) == (Repeat(1, 2, 3),)


def test_stages_of_two_blocks_each_are_found_by_likeness_alone():
    stages = [(9, 40, 40), (40, 40), (7, 80, 80), (80, 80)]

    assert find_repeats(stages, variants=False) == ()
    assert find_repeats(stages, variants=True) == (Repeat(0, 1, 2), Repeat(2, 1, 2))


def test_repeat_that_covers_most_is_taken_before_one_within_it():
    units = [(1,), (1,), (50,), (1,), (1,), (50,), (1,), (1,), (50,)]

    assert find_repeats(units) == (Repeat(0, 3, 3),)


def test_of_equal_units_the_shortest_period_is_the_block():
    assert find_repeats([(4,)] * 6) == (Repeat(0, 1, 6),)


def test_two_runs_beside_each_other_are_two_repeats():
    assert find_repeats([(4,)] * 3 + [(9,)] + [(5, 5)] * 2) == (Repeat(0, 1, 3), Repeat(4, 1, 2))


def test_what_does_not_repeat_is_no_repeat():
    assert find_repeats([(1,), (2,), (3,)]) == ()
    assert find_repeats([]) == ()


def test_beside_equal_blocks_one_that_does_the_same_is_a_block():
    forms = [(9,), (1, 1, 1, 2), (1, 1, 2), (1, 1, 2), (1, 2, 2, 2), (3, 3)]

    assert add_alike(forms, (Repeat(2, 1, 2),)) == (Repeat(1, 1, 1), Repeat(2, 1, 2))


def test_blocks_that_do_the_same_are_blocks_where_nothing_repeats():
    forms = [(9,), (1, 1, 2), (1, 3), (1, 1, 2, 2), (1, 3), (8,)]

    assert add_alike(forms, ()) == (Repeat(1, 2, 1), Repeat(3, 2, 1))


def test_two_halves_of_one_layer_that_differ_in_what_they_do_are_no_blocks():
    attention, perceptron = (1, 1, 1, 1, 1, 2, 2, 3), (1, 1, 1, 1, 2)

    assert add_alike([(9,), attention, perceptron, (8,)], ()) == ()
