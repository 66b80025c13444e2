"""The points that everything flows through, and what lies between them."""

from __future__ import annotations

from pathlib import Path

from flows import RESIDUAL, RESIDUAL_WEIGHTS, flow_of

from analyzer.blocks.sections import Cutter


def test_a_residual_sum_ends_a_section_and_what_is_added_is_its_branch(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, RESIDUAL, RESIDUAL_WEIGHTS)

    (chain,) = Cutter(flow).cut().chains

    name = {vertex: node.outputs[0] for vertex, node in enumerate(flow.nodes) if node.outputs}
    branches = {name[s.end]: [name[vertex] for vertex in s.inner] for s in chain.sections if s.is_branch}
    assert branches == {"h1": ["a1"], "h2": ["a2"], "h3": ["a3"]}


def test_every_vertex_is_in_the_section_where_it_is_first_needed(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, RESIDUAL, RESIDUAL_WEIGHTS)

    anchors = Cutter(flow).cut().anchors

    name = {vertex: node.outputs[0] for vertex, node in enumerate(flow.nodes) if node.outputs}
    found = {name[v]: name[anchors[v]] for v in name}
    assert found == {"h0": "h0", **{f"{n}{i}": f"h{i}" for i in (1, 2, 3) for n in "ah"}, "y": "y"}
