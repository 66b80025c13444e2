"""What blocks stand on: post-dominators against networkx, repeats against what was planted."""

from __future__ import annotations

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.blocks.dominators import NONE, post_dominators
from analyzer.blocks.repeats import Repeat, find_repeats


@st.composite
def acyclic(draw) -> list[list[int]]:
    """The successors of each vertex, all with higher numbers."""
    count = draw(st.integers(1, 24))
    edges = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=60))
    after: list[list[int]] = [[] for _ in range(count)]
    for a, b in sorted(edges):
        if a != b:
            after[min(a, b)].append(max(a, b))
    return [sorted(set(found)) for found in after]


@settings(max_examples=300, deadline=None)
@given(acyclic())
def test_post_dominators_are_those_of_networkx(after):
    end = len(after) - 1
    backwards = nx.DiGraph((follower, vertex) for vertex, found in enumerate(after) for follower in found)
    backwards.add_node(end)

    found = post_dominators(after, end)

    expected = dict(nx.immediate_dominators(backwards, end))
    for vertex in range(end):
        wanted = expected.get(vertex, NONE)
        assert found.parent[vertex] == (NONE if wanted is None else wanted)
        assert (found.depth[vertex] == NONE) == (vertex not in expected)


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
