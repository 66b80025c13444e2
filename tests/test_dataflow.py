"""Dataflow between nodes, and nodes that only prepare stored tensors."""

from __future__ import annotations

from pathlib import Path

import onnx
from models import ramp, save, text_model

from analyzer.model.dataflow import Dataflow, follow_data
from analyzer.model.wiring import connect
from analyzer.read import read_model


def flow_of(folder: Path, proto: onnx.ModelProto) -> Dataflow:
    model = read_model(save(folder, proto))
    return follow_data(model, connect(model))


def test_values_flow_to_those_who_compute_with_them(tmp_path: Path) -> None:
    flow = flow_of(
        tmp_path, text_model("g (float[2] x) => (float[2] y) { a = Relu(x) b = Abs(a) y = Add(a, b) }")
    )

    assert flow.targets == [[1, 2], [2], []]
    assert flow.sources == [[], [0], [0, 1]]


def test_node_that_reads_only_what_is_stored_prepares_it(tmp_path: Path) -> None:
    proto = text_model(
        """g (float[1,3] x) => (float[1,2] y) {
            t = Transpose(w) n = ReduceL2(t) d = Div(t, n) y = MatMul(x, d)
        }""",
        {"w": ramp(2, 3)},
    )

    model = read_model(save(tmp_path, proto))
    flow = follow_data(model, connect(model))

    assert list(flow.prepares) == [1, 1, 1, 0]
    assert flow.targets == [[1, 2], [2], [3], []]
    assert flow.sources[3] == []
    assert [flow.reads(tensor) for tensor in model.tensors()] == [[(0, 0)]]


def test_nothing_flows_through_a_size(tmp_path: Path) -> None:
    proto = text_model(
        "g (float[2,3] x) => (float[2,3] y) { s = Shape(x) r = Relu(x) y = Reshape(r, s) }",
    )

    flow = flow_of(tmp_path, proto)

    assert list(flow.measures) == [1, 0, 0]
    assert flow.sources == [[], [], [1]]


def test_size_of_a_stored_tensor_is_as_good_as_stored(tmp_path: Path) -> None:
    proto = text_model(
        "g (float[6] x) => (float[6] y) { s = Shape(w) v = Reshape(w, s) y = Add(x, v) }", {"w": ramp(6)}
    )

    assert list(flow_of(tmp_path, proto).prepares) == [1, 1, 0]


def test_node_that_holds_a_graph_prepares_nothing(tmp_path: Path) -> None:
    proto = text_model("""
        g (float[2] x) => (float[2] y) <bool c = {1}> {
            h = If(c) <then_branch = t () => (float[2] a) { a = Relu(x) },
                       else_branch = e () => (float[2] b) { b = Abs(x) }>
            y = Neg(h)
        }
    """)

    flow = flow_of(tmp_path, proto)

    assert list(flow.prepares) == [0, 0, 0, 0]
    assert flow.holders == {("If_0.then_branch",): 0, ("If_0.else_branch",): 0}


def test_values_of_the_graph_around_flow_into_a_body(tmp_path: Path) -> None:
    proto = text_model("""
        g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
            r = Relu(x)
            y = If(c) <then_branch = t () => (float[2] a) { m = Neg(w) a = Mul(r, m) },
                       else_branch = e () => (float[2] b) { b = Abs(r) }>
        }
    """)

    flow = flow_of(tmp_path, proto)

    assert [node.op_type for node in flow.nodes] == ["Relu", "If", "Neg", "Mul", "Abs"]
    assert flow.targets[0] == [3, 4]
    assert list(flow.prepares) == [0, 0, 1, 0, 0]


def test_value_that_is_read_before_it_is_computed_does_not_flow(tmp_path: Path) -> None:
    proto = text_model("g (float[2] x) => (float[2] y) { y = Add(x, h) h = Relu(x) }")

    flow = flow_of(tmp_path, proto)

    assert flow.sources == flow.targets == [[], []]
    assert list(flow.prepares) == [0, 0]
