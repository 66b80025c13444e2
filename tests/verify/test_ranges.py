"""Ranges of numbers that are made of sizes: they hold at every size, and tell which truths do not depend on one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.model import Node
from analyzer.verify.algebra.ranges import Range, range_of, range_of_node

INPUT = Range(-math.inf, math.inf)
"""Range of an input of the graph, whose sizes are positive."""
TRUTH, WHOLE = "b", "i"
OPERATORS: Mapping[str, tuple[str, str, Callable[..., Any]]] = {
    "Abs": (WHOLE, WHOLE, np.abs),
    "Neg": (WHOLE, WHOLE, np.negative),
    "Add": (WHOLE * 2, WHOLE, np.add),
    "Sub": (WHOLE * 2, WHOLE, np.subtract),
    "Mul": (WHOLE * 2, WHOLE, np.multiply),
    "Max": (WHOLE * 2, WHOLE, np.maximum),
    "Min": (WHOLE * 2, WHOLE, np.minimum),
    "Less": (WHOLE * 2, TRUTH, np.less),
    "LessOrEqual": (WHOLE * 2, TRUTH, np.less_equal),
    "Greater": (WHOLE * 2, TRUTH, np.greater),
    "GreaterOrEqual": (WHOLE * 2, TRUTH, np.greater_equal),
    "Equal": (WHOLE * 2, TRUTH, np.equal),
    "And": (TRUTH * 2, TRUTH, np.logical_and),
    "Or": (TRUTH * 2, TRUTH, np.logical_or),
    "Not": (TRUTH, TRUTH, np.logical_not),
    "Where": (TRUTH + WHOLE * 2, WHOLE, np.where),
    "ReduceSum": (WHOLE, WHOLE, lambda a: a.sum(keepdims=True)),
    "ReduceMax": (WHOLE, WHOLE, lambda a: a.max(keepdims=True)),
    "ReduceMin": (WHOLE, WHOLE, lambda a: a.min(keepdims=True)),
    "Cast": (WHOLE, TRUTH, lambda a: a != 0),
}
"""Operator -> kinds of its operands and of its result, and what numpy makes of them."""
SIZES = (2, 1, 3, 7, 50)


def node_of(op_type: str, count: int = 1) -> Node:
    names = tuple(f"x{at}" for at in range(count))
    return Node((), 0, op_type, "", "", names, ("y",), {}, settings={})


@given(st.data())
def test_numbers_made_of_sizes_stay_in_their_range(data: st.DataObject) -> None:
    """The range that is found at one size holds at each of them."""
    stored = [
        np.array([number]) for number in data.draw(st.lists(st.integers(-3, 3), min_size=1, max_size=3))
    ]
    pool: list[tuple[list[Any], Range | None]] = [([each] * len(SIZES), range_of(each)) for each in stored]
    size = [np.array([each]) for each in SIZES]
    pool.append((size, range_of_node(node_of("Shape"), [INPUT], size[0])))
    fill = pool[0]
    expanded = [np.broadcast_to(stored[0], (each,)) for each in SIZES]
    pool.append((expanded, range_of_node(node_of("Expand", 2), [fill[1], pool[-1][1]], expanded[0])))
    counted = [np.arange(each) for each in SIZES]
    ends = range_of(0), pool[-2][1], range_of(1)
    pool.append((counted, range_of_node(node_of("Range", 3), ends, counted[0])))

    for _ in range(data.draw(st.integers(1, 6))):
        op_type = data.draw(st.sampled_from(sorted(OPERATORS)))
        kinds, _, compute = OPERATORS[op_type]
        chosen = []
        for kind in kinds:
            fitting = [each for each in pool if each[0][0].dtype.kind == kind]
            if not fitting:
                break
            chosen.append(data.draw(st.sampled_from(fitting)))
        if len(chosen) < len(kinds):
            continue
        results = [np.asarray(compute(*(each[0][at] for each in chosen))) for at in range(len(SIZES))]
        found = range_of_node(node_of(op_type, len(kinds)), [each[1] for each in chosen], results[0])
        pool.append((results, found))

    for results, found in pool:
        if found is not None:
            assert all(found.low <= each.min() and each.max() <= found.high for each in results)


def test_a_mask_that_hides_nothing_shows_something_at_any_size() -> None:
    size = range_of_node(node_of("Shape"), [INPUT], np.array([2]))
    shown = range_of_node(node_of("Expand", 2), [range_of(True), size], np.ones(2, bool))
    number = range_of_node(node_of("Cast"), [shown], np.ones(2, np.float32))
    total = range_of_node(node_of("ReduceSum"), [number], np.float32(2))
    hidden = range_of_node(node_of("Less", 2), [total, range_of(np.float32(1))], np.array(False))

    assert hidden == Range(low=0, high=0)
    assert hidden.is_one_number


def test_a_truth_about_a_size_is_left_open() -> None:
    size = range_of_node(node_of("Shape"), [INPUT], np.array([2]))

    assert range_of_node(node_of("Less", 2), [size, range_of(100)], np.array(True)) == Range(low=0, high=1)


def test_rounding_does_not_hide_a_size() -> None:
    """A size plus 1e10 is 1e10 in single precision, for small sizes only."""
    size = range_of_node(node_of("Shape"), [INPUT], np.array([2]))
    real = range_of_node(node_of("Cast"), [size], np.float32(2))
    large = range_of(np.float32(1e10))
    total = range_of_node(node_of("Add", 2), [real, large], np.float32(2) + np.float32(1e10))
    rest = range_of_node(node_of("Sub", 2), [total, large], np.float32(0))

    assert rest is not None
    assert rest.low == 0
    assert not rest.is_one_number


def test_a_size_that_a_short_type_does_not_hold_has_no_range() -> None:
    size = range_of_node(node_of("Shape"), [INPUT], np.array([2]))

    assert range_of_node(node_of("Cast"), [size], np.int8(2)) is None


@pytest.mark.parametrize("factor", [2**59, 2**33])
def test_a_size_times_a_large_number_may_overflow(factor: int) -> None:
    """At 16 words, 2^59 times their number is negative in int64."""
    size = range_of_node(node_of("Shape"), [INPUT], np.array([2]))

    assert range_of_node(node_of("Mul", 2), [size, range_of(factor)], np.array([2 * factor])) is None


def test_what_may_be_empty_may_have_no_element_at_some_size() -> None:
    """A sum of no ones is 0, and a size may be 0, where a part that a size cuts may be empty."""
    part = np.ones(5, np.int64)  # of a Slice, whose range is not known
    one = range_of(1)
    picked = range_of_node(node_of("Gather", 2), [one, None], part)
    chosen = range_of_node(node_of("Where", 3), [range_of(True), one, None], part)

    for each in (picked, chosen):
        assert each is not None
        assert not each.is_filled
        total = range_of_node(node_of("ReduceSum"), [each], np.array(5))
        assert total is not None
        assert total.low == 0
        assert not total.is_filled  # the sum along another axis than the empty one is empty
        assert range_of_node(node_of("ReduceMax"), [each], np.array(1)) is None
    size = range_of_node(node_of("Shape"), [None], np.array([5]))
    assert size is not None
    assert size.low == 0


def test_what_overflows_has_no_range() -> None:
    """5e36 times 69 is infinite in single precision, and 0 times that is no number."""
    size = range_of_node(node_of("Shape"), [INPUT], np.array([2]))
    real = range_of_node(node_of("Cast"), [size], np.float32(2))

    assert range_of_node(node_of("Mul", 2), [real, range_of(np.float32(5e36))], np.float32(1e37)) is None
