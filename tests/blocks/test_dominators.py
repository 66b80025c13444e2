"""Post-dominators are those that networkx finds."""

from __future__ import annotations

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.blocks.flow import NONE, post_dominators


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


def test_vertex_from_which_no_way_leads_to_the_end_has_none():
    found = post_dominators([[1], [3], [], []], 3)

    assert found.parent == [1, 3, NONE, NONE]
    assert found.depth == [2, 1, NONE, 0]


def test_what_comes_after_the_end_is_left_out():
    assert post_dominators([[1], [2], []], 1).parent == [1, NONE, NONE]


def test_long_chain_is_no_deeper_than_it_is_long():
    count = 20_000

    found = post_dominators([*([vertex + 1] for vertex in range(count - 1)), []], count - 1)

    assert found.depth[0] == count - 1
