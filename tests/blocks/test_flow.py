"""Dataflow between nodes: edges, post-dominators, and the sections between post-dominators."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
from flows import RESIDUAL, RESIDUAL_WEIGHTS, flow_of
from hypothesis import given, settings
from hypothesis import strategies as st
from models import ramp

from analyzer.account.blocks.flow import NONE, post_dominators
from analyzer.account.blocks.sections import Cutter

TEXT = """
g (float[n,2] x) => (float[n,3] y) {
    size = Shape(x)
    turned = Transpose(w)
    h = MatMul(x, turned)
    same = Reshape(h, size)
    y = Add(same, b)
}
"""


def test_shapes_and_arithmetic_on_weights_do_not_flow(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, TEXT, {"w": ramp(3, 2), "b": ramp(3, start=100)})

    name = {vertex: node.outputs[0] for vertex, node in enumerate(flow.nodes) if node.outputs}
    read = {name[v]: [name.get(w, "given") for w in flow.before[v]] for v in name}
    assert read == {"size": [], "turned": [], "h": ["given"], "same": ["h"], "y": ["same"]}
    assert {name[v] for v in name if flow.static[v]} == {"size", "turned"}
    assert [name[v] for v in flow.outputs] == ["y"]
    assert flow.is_dynamic("h")
    assert not flow.is_dynamic("turned")


def test_a_node_has_the_sizes_of_its_weights_also_past_arithmetic_on_them(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, TEXT, {"w": ramp(3, 2), "b": ramp(3, start=100)})

    sizes = {node.outputs[0]: flow.sizes[v] for v, node in enumerate(flow.nodes) if node.outputs}
    assert (sizes["h"], sizes["y"], sizes["same"]) == ((6,), (3,), ())


# post-dominators equal those of networkx


@st.composite
def acyclic(draw) -> list[list[int]]:
    """Successors of each vertex, all with higher numbers."""
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


# vertices that all paths pass through, and the sections between them


def test_a_residual_sum_ends_a_section_and_what_is_added_is_its_branch(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, RESIDUAL, RESIDUAL_WEIGHTS)

    cut = Cutter(flow).cut()

    assert len(cut.chains) == 1
    name = {vertex: node.outputs[0] for vertex, node in enumerate(flow.nodes) if node.outputs}
    branches = {name[end]: [name[vertex] for vertex in cut.inner[end]] for end in cut.branches}
    assert branches == {"h1": ["a1"], "h2": ["a2"], "h3": ["a3"]}


def test_every_vertex_is_in_the_section_where_it_is_first_needed(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, RESIDUAL, RESIDUAL_WEIGHTS)

    anchors = Cutter(flow).cut().anchors

    name = {vertex: node.outputs[0] for vertex, node in enumerate(flow.nodes) if node.outputs}
    found = {name[v]: name[anchors[v]] for v in name}
    assert found == {"h0": "h0", **{f"{n}{i}": f"h{i}" for i in (1, 2, 3) for n in "ah"}, "y": "y"}
