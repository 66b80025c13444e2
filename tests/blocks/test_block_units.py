"""Position of each node of a graph: its block and run, or before or after all blocks."""

from __future__ import annotations

from pathlib import Path

from flows import RESIDUAL, RESIDUAL_WEIGHTS, flow_of
from models import ramp

from analyzer.account.blocks.flow import Flow
from analyzer.account.blocks.units import OUTSIDE, GraphLayout, RunPlace, lay_out


def slots_by_output(flow: Flow, layout: GraphLayout) -> dict[str, tuple[int, int]]:
    found = zip(flow.nodes, layout.slots, strict=True)
    return {node.outputs[0]: (slot.run, slot.block) for node, slot in found if node.outputs}


def test_branches_of_equal_weights_are_blocks_and_the_rest_is_before_or_after(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, RESIDUAL, RESIDUAL_WEIGHTS)

    layout = lay_out(flow)

    assert layout.counts == (3,)
    assert slots_by_output(flow, layout) == {
        "h0": (0, OUTSIDE),
        **{f"{name}{block + 1}": (0, block) for block in range(3) for name in "ah"},
        "y": (1, OUTSIDE),
    }


def test_weights_of_different_sizes_are_no_blocks(tmp_path: Path) -> None:
    text = "g (float[n,2] x) => (float[n,9] y) { h = MatMul(x, a) i = MatMul(h, b) y = MatMul(i, c) }"

    layout = lay_out(flow_of(tmp_path, text, {"a": ramp(2, 3), "b": ramp(3, 5), "c": ramp(5, 9)}))

    assert layout.counts == ()
    assert {slot.block for slot in layout.slots} == {OUTSIDE}


def test_a_graph_without_blocks_has_everything_outside() -> None:
    assert GraphLayout.empty(2) == GraphLayout((), (RunPlace(0, OUTSIDE), RunPlace(0, OUTSIDE)), (0, 1))
