"""The model as a graph: tensors and their readers, also across nested graphs."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import onnx
import pytest
from models import audit, dynamo_like, ramp, save, text_model
from onnx import helper, numpy_helper

from analyzer.account.audit import audit_model
from analyzer.graph import CROSSING, build_graph, tensor_vertex
from analyzer.model import Vertex
from analyzer.model.wiring import CARRIED
from analyzer.read import read_model
from analyzer.schemas import load_schema

Graph = nx.MultiDiGraph

IF_TEXT = """
g (bool c, float[2] x) => (float[2] y)
<float[2] w = {1, 2}>
{
    h = Mul(x, w)
    y = If(c) <
        then_branch = t () => (float[2] a) { a = Add(h, w) },
        else_branch = e () => (float[2] b) <float[2] w = {3, 4}> { b = Sub(h, w) }
    >
}
"""


def graph_of(folder: Path, proto: onnx.ModelProto) -> Graph:
    return build_graph(read_model(save(folder, proto)))


def read_by(graph: Graph, name: str, *path: str) -> list[tuple[str, int]]:
    edges = [
        (graph.nodes[target]["order"], edge["slot"], graph.nodes[target]["node"].op_type)
        for _, target, edge in graph.out_edges(tensor_vertex((path, name)), data=True)
        if target[0] == "node"
    ]
    return [(op_type, slot) for _, slot, op_type in sorted(edges)]


def test_initializer_leads_to_its_readers_in_file_order(tmp_path):
    graph = graph_of(
        tmp_path,
        text_model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { h = Add(x, w) y = Mul(w, h) }"),
    )

    assert read_by(graph, "w") == [("Add", 1), ("Mul", 0)]


def test_reader_of_one_tensor_twice_is_two_readings_of_one_node(tmp_path):
    graph = graph_of(tmp_path, text_model("g () => (float[2] y) <float[2] w = {1, 2}> { y = Mul(w, w) }"))

    assert read_by(graph, "w") == [("Mul", 0), ("Mul", 1)]


def test_constant_leads_to_its_reader_and_its_own_node_does_not_read_it(tmp_path):
    graph = graph_of(
        tmp_path,
        text_model(
            "g (float[2] x) => (float[2] y) { c = Constant<value = float[2] {1, 2}>() y = Add(x, c) }"
        ),
    )

    assert read_by(graph, "c") == [("Add", 1)]


def test_tensor_in_an_attribute_is_carried_by_its_node(tmp_path):
    value = numpy_helper.from_array(np.array([0], dtype="f4"))
    node = helper.make_node("ConstantOfShape", ["s"], ["y"], value=value)
    proto = helper.make_model(helper.make_graph([node], "g", [], []))

    assert read_by(graph_of(tmp_path, proto), "ConstantOfShape#0.value") == [("ConstantOfShape", CARRIED)]


def test_nested_graph_reads_the_names_of_the_graph_around_it(tmp_path):
    graph = graph_of(tmp_path, text_model(IF_TEXT))

    assert read_by(graph, "w") == [("Mul", 1), ("Add", 1)]


def test_nested_graphs_own_name_hides_the_one_outside(tmp_path):
    graph = graph_of(tmp_path, text_model(IF_TEXT))

    assert read_by(graph, "w", "If_1.else_branch") == [("Sub", 1)]


@pytest.mark.parametrize("target", [("node", (), 1), ("output", (), "y")])
def test_paths_lead_through_a_nested_graph(tmp_path, target):
    graph = graph_of(tmp_path, text_model(IF_TEXT))
    inner: Vertex = tensor_vertex((("If_1.else_branch",), "w"))

    assert nx.has_path(graph, inner, target)


def test_loop_body_is_fed_by_its_node(tmp_path):
    body = helper.make_graph(
        [helper.make_node("Relu", ["h"], ["out"])],
        "b",
        [helper.make_tensor_value_info("h", 1, [3])],
        [helper.make_tensor_value_info("out", 1, [3])],
    )
    proto = helper.make_model(
        helper.make_graph([helper.make_node("Loop", ["x"], ["y"], body=body)], "g", [], [])
    )

    graph = graph_of(tmp_path, proto)

    path = ("Loop_0.body",)
    assert graph.has_edge(("node", (), 0), ("input", path, "h"))
    assert graph.has_edge(("output", path, "out"), ("node", (), 0))
    (edge,) = graph.get_edge_data(("output", path, "out"), ("node", (), 0)).values()
    assert edge["slot"] == CROSSING


def test_function_body_sees_nothing_of_the_main_graph(tmp_path):
    graph = graph_of(
        tmp_path,
        text_model("""
            <ir_version: 10, opset_import: ["" : 18, "my" : 1]>
            g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = my.f(x) }
            <domain: "my", opset_import: ["" : 18]>
            f (a) => (b) { b = Add(a, w) }
        """),
    )

    assert read_by(graph, "w") == []


def test_omitted_input_and_undefined_name_have_no_edge(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) { y = Clip(x, , nowhere) }")

    graph = graph_of(tmp_path, proto)

    assert [value for _, _, value in graph.in_edges(("node", (), 0), data="value")] == ["x"]


def test_output_that_is_an_initializer_is_joined_to_it(tmp_path):
    graph = graph_of(tmp_path, text_model("g () => (float[2] w) <float[2] w = {1, 2}> { }"))

    assert graph.has_edge(tensor_vertex(((), "w")), ("output", (), "w"))
    assert read_by(graph, "w") == []


@pytest.mark.parametrize("op", ["my.Branch", "Two_Words", "a:b", "", "x_y.z_3"])
def test_any_operator_may_hold_a_graph_that_reads_the_one_outside(tmp_path, op):
    body = helper.make_graph(
        [helper.make_node("Add", ["w", "w"], ["r"])], "b", [], [helper.make_tensor_value_info("r", 1, [2])]
    )
    weights = [numpy_helper.from_array(np.ones(2, "f4"), "w")]
    node = helper.make_node(op, ["x"], ["y"], domain="my", body=body)

    graph = graph_of(tmp_path, helper.make_model(helper.make_graph([node], "g", [], [], weights)))

    assert read_by(graph, "w") == [("Add", 0), ("Add", 1)]


def test_graph_within_a_function_sees_the_function(tmp_path):
    inner = helper.make_graph(
        [helper.make_node("Add", ["a", "k"], ["r"])], "i", [], [helper.make_tensor_value_info("r", 1, [2])]
    )
    nodes = [
        helper.make_node("Constant", [], ["k"], value_floats=[1.0, 2.0]),
        helper.make_node("If", ["a"], ["b"], then_branch=inner, else_branch=inner),
    ]
    function = helper.make_function("my", "f", ["a"], ["b"], nodes, [helper.make_opsetid("", 18)])
    graph_proto = helper.make_graph([helper.make_node("f", ["x"], ["y"], domain="my")], "g", [], [])

    graph = graph_of(tmp_path, helper.make_model(graph_proto, functions=[function]))

    assert read_by(graph, "k", "function:my:f") == [("Add", 1), ("Add", 1)]


# attributes from a ledger


SCHEMA = load_schema("graph")  # docs/graph.md explains its keys; test_schemas.py holds the two together
ROWS = SCHEMA["$defs"]
RECORDS = {"node": {"node"}, "tensor": {"tensor", "entry"}, "input": set(), "output": set()}


def described(folder: Path, proto: onnx.ModelProto) -> Graph:
    return build_graph(audit(folder, proto))


def test_every_vertex_has_the_documented_attributes_and_no_others(tmp_path):
    graph = described(tmp_path, text_model(IF_TEXT))

    for (kind, *_), attributes in graph.nodes(data=True):
        row = {"node": ROWS["NodeVertex"], "tensor": ROWS["GraphTensor"]}.get(kind, ROWS["End"])
        assert set(attributes) - RECORDS[kind] == row["properties"].keys() - {"id"}
        assert RECORDS[kind] <= set(attributes)
    for _, _, attributes in graph.edges(data=True):
        assert set(attributes) == ROWS["Link"]["properties"].keys() - {"source", "target", "key"}
    assert graph.graph.keys() == ROWS["Graph"]["properties"].keys()


def test_tensor_says_what_the_ledger_says_of_it(tmp_path):
    proto = text_model("g (float[1,2] x) => (float[1,2] y) { y = MatMul(x, w) }", {"w": ramp(2, 2)})

    graph = described(tmp_path, proto)

    attributes = graph.nodes[tensor_vertex(((), "w"))]
    shown = ("name", "carrier", "dtype", "shape", "stored_elements", "parameters", "bytes", "role", "uses")
    assert [attributes[name] for name in shown] == [
        "w",
        "initializer",
        "FLOAT",
        (2, 2),
        4,
        4,
        16,
        "parameter",
        1,
    ]
    assert attributes["entry"].tensor is attributes["tensor"]


def test_copy_names_the_vertex_that_it_repeats(tmp_path):
    text = "g (float[1,2] x) => (float[1,2] y) { h = MatMul(x, w) y = MatMul(h, v) }"

    graph = described(tmp_path, text_model(text, {"w": ramp(2, 2), "v": ramp(2, 2)}))

    assert graph.nodes[tensor_vertex(((), "v"))]["copy_of"] == tensor_vertex(((), "w"))
    assert graph.nodes[tensor_vertex(((), "v"))]["parameters"] == 0


def test_node_says_its_scope_and_its_place(tmp_path):
    proto = dynamo_like(
        text_model("g (float[2] x) => (float[2] y) { [a] h = Relu(x) [b] y = Neg(h) }"),
        scopes={"b": "encoder.layer.0"},
    )

    graph = described(tmp_path, proto)

    first, second = (graph.nodes["node", (), position] for position in (0, 1))
    assert (first["op_type"], first["name"], first["scope"], first["position"]) == ("Relu", "a", None, 0)
    assert (second["op_type"], second["name"], second["scope"]) == ("Neg", "b", "encoder.layer.0")
    assert first["order"] < second["order"]


def test_everything_in_a_nested_graph_has_the_holding_node_as_parent(tmp_path):
    graph = described(tmp_path, text_model(IF_TEXT))

    parents = {path: graph.nodes[kind, path, name]["parent"] for kind, path, name in graph}
    assert parents == {
        (): None,
        ("If_1.then_branch",): ("node", (), 1),
        ("If_1.else_branch",): ("node", (), 1),
    }


def test_caller_names_the_path_of_the_function_and_the_body_has_no_parent(tmp_path):
    graph = described(
        tmp_path,
        text_model("""
            <ir_version: 10, opset_import: ["" : 18, "my" : 1]>
            g (float[2] x) => (float[2] y) { h = my.f(x) y = Neg(h) }
            <domain: "my", opset_import: ["" : 18]>
            f (a) => (b) { b = Relu(a) }
        """),
    )

    body = ("function:my:f",)
    assert [graph.nodes["node", (), position]["calls"] for position in (0, 1)] == [body, None]
    assert graph.nodes["node", body, 0]["parent"] is None


def test_graph_without_a_ledger_has_the_parents_too(tmp_path):
    graph = graph_of(tmp_path, text_model(IF_TEXT))

    assert graph.nodes["node", ("If_1.then_branch",), 0]["parent"] == ("node", (), 1)
    assert "parent" not in graph.nodes["node", (), 0]


@pytest.mark.slow
def test_the_graph_adds_up_to_the_ledger_for_every_external_case(shared):
    for path in sorted((shared / "models").glob("*/*.onnx")):
        if path.parent.name == "corrupt":
            continue
        ledger = audit_model(path)
        tensors = [
            attributes for (kind, *_), attributes in build_graph(ledger).nodes(data=True) if kind == "tensor"
        ]
        assert len(tensors) == len(ledger.entries)
        assert sum(tensor["parameters"] for tensor in tensors) == ledger.parameters
        assert sum(tensor["bytes"] for tensor in tensors) == ledger.stored_nbytes
