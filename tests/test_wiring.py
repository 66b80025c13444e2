"""Providers and readers of each value."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import save, text_model
from onnx import TensorProto, helper, numpy_helper

from analyzer.graph import build_graph, tensor_vertex
from analyzer.model import Model, Node, StoredTensor
from analyzer.model.operators import MOVES
from analyzer.model.wiring import CARRIED, GraphInput, Wiring, connect
from analyzer.read import read_model


def model_of(folder: Path, proto: onnx.ModelProto | str) -> Model:
    return read_model(save(folder, text_model(proto) if isinstance(proto, str) else proto))


def tensor(model: Model, name: str, *path: str) -> StoredTensor:
    (found,) = [tensor for tensor in model.tensors() if tensor.key == (path, name)]
    return found


def read_by(wiring: Wiring, provider: StoredTensor | Node) -> list[tuple[str, int]]:
    return [(reader.node.op_type, reader.slot) for reader in wiring.readers(provider)]


NESTED = """
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


def test_a_nested_graph_reads_what_is_around_it_unless_it_has_the_name_itself(tmp_path):
    model = model_of(tmp_path, NESTED)

    wiring = connect(model)

    assert read_by(wiring, tensor(model, "w")) == [("Mul", 1), ("Add", 1)]
    assert read_by(wiring, tensor(model, "w", "If_1.else_branch")) == [("Sub", 1)]
    assert read_by(wiring, model.graphs[0].nodes[0]) == [("Add", 0), ("Sub", 0)]


def test_a_tensor_read_twice_by_one_node_is_read_at_two_inputs(tmp_path):
    model = model_of(tmp_path, "g () => (float[2] y) <float[2] w = {1, 2}> { y = Mul(w, w) }")

    assert read_by(connect(model), tensor(model, "w")) == [("Mul", 0), ("Mul", 1)]


def test_the_tensor_of_a_constant_node_provides_its_output(tmp_path):
    model = model_of(
        tmp_path, "g (float[2] x) => (float[2] y) { c = Constant<value = float[2] {1, 2}>() y = Add(x, c) }"
    )

    wiring = connect(model)

    assert read_by(wiring, tensor(model, "c")) == [("Add", 1)]
    assert read_by(wiring, model.graphs[0].nodes[0]) == []
    assert wiring.find((), "c") is tensor(model, "c")


def test_a_tensor_in_another_attribute_is_read_by_its_node(tmp_path):
    value = numpy_helper.from_array(np.array([1], dtype="f4"))
    node = helper.make_node("ConstantOfShape", ["s"], ["y"], name="fill", value=value)
    model = model_of(tmp_path, helper.make_model(helper.make_graph([node], "g", [], [])))

    assert read_by(connect(model), tensor(model, "fill#0.value")) == [("ConstantOfShape", CARRIED)]


def test_producers_are_in_the_order_of_the_inputs(tmp_path):
    model = model_of(
        tmp_path,
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { h = Relu(x) y = Sum(w, h, x) }",
    )

    producers = list(connect(model).producers(model.graphs[0].nodes[1]))

    assert producers == [tensor(model, "w"), model.graphs[0].nodes[0]]


@pytest.mark.parametrize(
    ("text", "undefined", "unsorted", "repeated"),
    [
        ("g (float[2] x) => (float[2] y) { y = Add(x, nope) }", ["nope"], [], []),
        ("g (float[2] x) => (float[2] y) { y = Relu(h) h = Relu(x) }", [], ["h"], []),
        ("g (float[2] x) => (float[2] y) { a = Add(x, b) b = Relu(a) y = Relu(b) }", [], ["b"], []),
        ("g (float[2] x) => (float[2] y) { y = Add(y, x) }", [], ["y"], []),
        ("g (float[2] x) => (float[2] y) { y = Relu(x) y = Abs(x) }", [], [], ["y"]),
        ("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { w = Relu(x) y = Abs(w) }", [], [], ["w"]),
        (NESTED, [], [], []),
    ],
)
def test_what_is_wired_wrongly_is_kept(tmp_path, text, undefined, unsorted, repeated):
    wiring = connect(model_of(tmp_path, text))

    assert [name for _, name in wiring.undefined] == undefined
    assert [name for _, name in wiring.unsorted] == unsorted
    assert [name for _, name in wiring.repeated] == repeated


def test_a_name_that_is_stored_and_computed_is_the_stored_one(tmp_path):
    model = model_of(
        tmp_path, "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { w = Relu(x) y = Abs(w) }"
    )

    wiring = connect(model)

    assert read_by(wiring, tensor(model, "w")) == [("Abs", 0)]
    assert read_by(wiring, model.graphs[0].nodes[0]) == []


def test_the_networkx_graph_has_the_same_readers(tmp_path):
    model = model_of(tmp_path, NESTED)
    wiring, graph = connect(model), build_graph(model)

    for stored in model.tensors():
        drawn = [
            (graph.nodes[target]["node"], edge["slot"])
            for _, target, edge in graph.out_edges(tensor_vertex(stored.key), data=True)
            if target[0] == "node"
        ]
        assert sorted(drawn, key=lambda item: (item[0].graph_path, item[0].position, item[1])) == [
            tuple(reader) for reader in wiring.readers(stored)
        ]


OUTER = """
g (bool c, float[2] x) => (float[2] y) {{ {before} y = If(c) <then_branch = t () => (float[2] a) {{ {inside} }}> }}
"""


@pytest.mark.parametrize(
    ("before", "inside", "undefined", "unsorted", "repeated"),
    [
        ("h = Relu(x)", "a = Abs(h)", [], [], []),
        ("", "a = Abs(h)", [(("If_0.then_branch",), "h")], [], []),
        ("", "a = Abs(b) b = Relu(x)", [], [(("If_0.then_branch",), "b")], []),
        ("h = Relu(x)", "h = Relu(x) a = Abs(h)", [], [], []),
        ("", "a = Relu(x) a = Abs(x)", [], [], [(("If_0.then_branch",), "a")]),
        ("", "a = Abs(y)", [], [], []),
    ],
    ids=["outside", "nowhere", "unsorted", "hidden", "repeated", "of its own node"],
)
def test_a_nested_graph_is_wired_by_what_is_around_it(
    tmp_path, before, inside, undefined, unsorted, repeated
):
    wiring = connect(model_of(tmp_path, OUTER.format(before=before, inside=inside)))

    assert (wiring.undefined, wiring.unsorted, wiring.repeated) == (undefined, unsorted, repeated)


def test_a_function_sees_nothing_but_its_inputs(tmp_path):
    model = model_of(
        tmp_path,
        """
        <ir_version: 10, opset_import: ["" : 18, "my" : 1]>
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { h = Add(x, w) y = my.f(h) }
        <domain: "my", opset_import: ["" : 18]>
        f (a) => (b) { b = Add(a, w) }
        """,
    )

    assert connect(model).undefined == [(("function:my:f",), "w")]


def test_a_training_graph_may_read_what_is_trained(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    proto.training_info.add().algorithm.node.append(helper.make_node("Sub", ["w", "rate"], ["w_new"]))

    assert connect(model_of(tmp_path, proto)).undefined == []


def test_a_name_that_is_read_at_many_places_is_listed_at_each(tmp_path):
    text = "g (float[2] x) => (float[2] y) { h = Add(nope, nope) y = Add(h, nope) }"

    assert connect(model_of(tmp_path, text)).undefined == [((), "nope")] * 3


def test_an_omitted_input_and_an_omitted_output_are_no_values(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) { y = Clip(x, , x) }")
    proto.graph.node.extend([helper.make_node("Odd", ["", "y"], [""]), helper.make_node("Odd", ["y"], [""])])

    wiring = connect(model_of(tmp_path, proto))

    assert (wiring.undefined, wiring.unsorted, wiring.repeated) == ([], [], [])


CALLING = """
<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
g (float[2,2] x) => (float[2,2] y)
<float[2,2] w = {1, 2, 3, 4}, float[2,2] v = {5, 6, 7, 8}>
{
    h = my.Linear(x, w)
    i = my.Linear(h, v)
    t = my.Turn(w)
    u = my.Turn(v)
    j = MatMul(i, t)
    k = Add(j, u)
    y = my.Outer(k, w)
}
<domain: "my", opset_import: ["" : 18]> Linear (a, b) => (c) { c = MatMul(a, b) }
<domain: "my", opset_import: ["" : 18]> Turn (a) => (b) { b = Transpose(a) }
<domain: "my", opset_import: ["" : 18, "my" : 1]> Outer (a, b) => (e) {
    z = Constant<value = float[2,2] {1, 2, 3, 4}>()
    c = my.Inner(a, b)
    d = Sub(c, z)
    e = Relu(d)
}
<domain: "my", opset_import: ["" : 18]> Inner (p, q) => (r) { s = Identity(q) r = Gemm(p, s) }
"""


def test_a_call_is_replaced_by_what_the_body_reads(tmp_path):
    model = model_of(tmp_path, CALLING)
    wiring = connect(model)

    assert read_by(wiring, tensor(model, "w")) == [("MatMul", 1), ("Transpose", 0), ("Identity", 0)]
    assert [
        (reader.node.op_type, reader.slot) for reader in wiring.readers(tensor(model, "w"), inlined=False)
    ] == [("Linear", 1), ("Turn", 0), ("Outer", 1)]


def test_operators_that_only_move_are_passed_into_functions_and_out_of_the_call_that_led_in(tmp_path):
    model = model_of(tmp_path, CALLING)
    wiring = connect(model)

    def past(name: str) -> list[tuple[str, int]]:
        return [(r.node.op_type, r.slot) for r in wiring.readers(tensor(model, name), past=MOVES)]

    assert past("w") == [("MatMul", 1), ("MatMul", 1), ("Gemm", 1)]
    assert past("v") == [("Add", 1), ("MatMul", 1)]


def test_a_setting_of_what_moves_is_not_passed(tmp_path):
    model = model_of(
        tmp_path,
        "g (float[2] x) => (float[2] y) <int64[1] s = {2}> { h = Reshape(x, s) y = Relu(h) }",
    )

    readers = connect(model).readers(tensor(model, "s"), past=MOVES)

    assert [(reader.node.op_type, reader.slot) for reader in readers] == [("Reshape", 1)]


def test_what_a_body_gives_out_is_read_where_it_is_called(tmp_path):
    model = model_of(tmp_path, CALLING)
    turn = next(graph for graph in model.graphs if "".join(graph.path).endswith("Turn"))

    assert read_by(connect(model), turn.nodes[0]) == [("MatMul", 1), ("Add", 1)]


def test_what_a_call_gives_is_found_in_the_body_and_what_one_call_is_given_around_it(tmp_path):
    model = model_of(tmp_path, CALLING)
    wiring = connect(model)
    outer, inner = (
        next(graph for graph in model.graphs if "".join(graph.path).endswith(name))
        for name in ("Outer", "Inner")
    )

    def op_type(*place: object) -> str:
        found = wiring.find(*place)
        assert isinstance(found, Node)
        return found.op_type

    assert op_type((), "h") == "MatMul"
    assert op_type(outer.path, "c") == "Gemm"
    assert wiring.find(inner.path, "q") is tensor(model, "w")
    assert op_type(inner.path, "p") == "Add"
    linear = next(graph for graph in model.graphs if "".join(graph.path).endswith("Linear"))
    assert wiring.find(linear.path, "b") == GraphInput(
        linear.path, "b"
    )  # its two calls pass different weights
    assert wiring.look_up(inner.path, "q") == GraphInput(inner.path, "q")


@pytest.mark.parametrize("count", [1, 3])
def test_functions_that_call_each_other_in_a_circle_end(tmp_path, count):
    functions = "".join(
        f"""<domain: "my", opset_import: ["my" : 1]> F{n} (a) => (b) {{ b = my.F{(n + 1) % count}(a) }}\n"""
        for n in range(count)
    )
    model = model_of(
        tmp_path,
        """<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
        g () => (float[2] y) <float[2] w = {1, 2}> { h = my.F0(w) y = Relu(h) }
        """
        + functions,
    )
    wiring = connect(model)

    assert read_by(wiring, tensor(model, "w")) == []
    assert wiring.find((), "h") is not None


# random functions


def random_functions(seed: int) -> onnx.ModelProto:
    """Return functions that call earlier ones, pass inputs through, omit inputs and name undefined outputs."""
    drawn = random.Random(seed)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]

    def steps(values: list[str], callable_: int, prefix: str) -> list[onnx.NodeProto]:
        nodes = []
        for number in range(drawn.randint(1, 5)):
            outputs = [f"{prefix}{number}_{index}" for index in range(drawn.randint(1, 3))]
            if callable_ and drawn.random() < 0.7:
                inputs = [drawn.choice(["", *values]) for _ in range(drawn.randint(0, 3))]
                called = f"F{drawn.randrange(callable_)}"
                nodes.append(helper.make_node(called, inputs, outputs, domain="my"))
            else:
                del outputs[1:]
                nodes.append(helper.make_node("Relu", [drawn.choice(values or [""])], outputs))
            values += outputs
        return nodes

    functions = []
    for number in range(drawn.randint(1, 6)):
        values = [f"i{index}" for index in range(drawn.randint(0, 3))]
        inputs = list(values)
        nodes = steps(values, number, "n")
        outputs = [drawn.choice(values) for _ in range(drawn.randint(1, 3))]
        functions.append(helper.make_function("my", f"F{number}", inputs, outputs, nodes, opsets))
    values = ["x", "w"]
    nodes = steps(values, len(functions), "m")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", values[-1])]
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, functions=functions, opset_imports=opsets)


def found_by_hand(wiring: Wiring, path: Any, name: str, calls: tuple[Node, ...] = ()) -> object:
    """Return the result of `Wiring.find`, followed call by call without a cache."""
    found = wiring.look_up(path, name) if name else None
    if isinstance(found, GraphInput) and found.path in wiring._bodies:
        sites = calls[-1:] or wiring._sites[found.path]
        if len(sites) != 1:
            return found
        [site] = sites
        place = wiring.graphs[found.path].inputs.index(found.name)
        return found_by_hand(
            wiring, site.graph_path, site.inputs[place] if place < len(site.inputs) else "", calls[:-1]
        )
    if isinstance(found, Node) and found.place in wiring.calls:
        body, place = wiring.graphs[wiring.calls[found.place]], found.outputs.index(name)
        if place < len(body.outputs):
            return found_by_hand(wiring, body.path, body.outputs[place], (*calls, found))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_calls_are_followed_whatever_was_queried_before(tmp_path, seed):
    model = model_of(tmp_path, random_functions(seed))
    wiring = connect(model)
    queries = [
        (node.graph_path, name) for node in model.nodes() for name in (*node.inputs, *node.outputs) if name
    ]
    random.Random(seed).shuffle(queries)

    assert [wiring.find(*each) for each in queries] == [found_by_hand(wiring, *each) for each in queries]


def test_a_function_that_is_called_with_what_it_gave_is_followed_twice(tmp_path):
    model = model_of(
        tmp_path,
        """<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
        g () => (float[2] y) <float[2] w = {1, 2}> { a = my.F(w) b = my.F(a) y = Relu(b) }
        <domain: "my", opset_import: ["" : 18]> F (i) => (i) { unused = Relu(i) }""",
    )

    assert connect(model).find((), "b") is tensor(model, "w")


def test_calls_that_double_are_followed_once_for_each_value(tmp_path):
    count = 200
    functions = "".join(
        f"""<domain: "my", opset_import: ["" : 18, "my" : 1]> F{n} (a) => (b) {{
            c = my.F{n + 1}(a) d = my.F{n + 1}(a) b = Add(c, d) }}\n"""
        for n in range(count)
    )
    model = model_of(
        tmp_path,
        """<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
        g () => (float[2] y) <float[2] w = {1, 2}> { y = my.F0(w) }
        """
        + functions
        + f"""<domain: "my", opset_import: ["" : 18]> F{count} (a) => (b) {{ b = Relu(a) }}""",
    )

    assert read_by(connect(model), tensor(model, "w")) == [("Relu", 0)]
    assert len(connect(model).readers(tensor(model, "w"), past=MOVES)) == 1


def test_an_operator_of_the_runtime_is_no_call_of_a_function_of_its_name(tmp_path):
    model = model_of(
        tmp_path,
        """<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>
        g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1, 2, 3, 4}> {
            h = com.microsoft.FusedMatMul(x, w)
            y = com.microsoft.MyMatMul(h, w)
        }
        <domain: "com.microsoft", opset_import: ["" : 18]> FusedMatMul (a, b) => (c) { c = Sub(a, b) }
        <domain: "com.microsoft", opset_import: ["" : 18]> MyMatMul (a, b) => (c) { c = Div(a, b) }
        """,
    )

    assert read_by(connect(model), tensor(model, "w")) == [("FusedMatMul", 1), ("Div", 1)]
