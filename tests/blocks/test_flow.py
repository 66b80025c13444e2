"""What flows between nodes: neither weights nor the sizes of values do."""

from __future__ import annotations

from pathlib import Path

from flows import flow_of
from models import ramp

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
