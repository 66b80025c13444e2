"""Main graph, nested graphs, local functions, training graphs, and the types of a graph's inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from encoding import UNKNOWN_FIELDS, block, integer
from memory import MemoryFile, read_memory
from models import FOLDED_FROM, INPUT_KIND, raw, save, set_metadata, text_model
from onnx import TensorProto, helper, numpy_helper

from analyzer.errors import ModelReadError
from analyzer.model import Carrier, Graph, Model, StoredTensor, ValueType
from analyzer.model.dtypes import DType
from analyzer.read import read_model
from analyzer.read.book import FUNCTIONS, HEADER, METADATA, NAMES, NODES, TENSORS, UNKNOWN, VALUES
from analyzer.read.graphs import MAX_DEPTH, MAX_RANK, number_names, read_type

IF_BRANCHES = """
g (bool c, float[2] x) => (float[2] y)
<float[2] scale = {5, 6}>
{
    y = If(c) <
        then_branch = t () => (float[2] a) <float[2] w = {1, 2}> { s = Mul(x, scale) a = Add(s, w) },
        else_branch = e () => (float[2] b) <float[2] w = {3, 4}> { b = Mul(x, w) }
    >
}
"""


def read(folder: Path, proto: onnx.ModelProto) -> Model:
    return read_model(save(folder, proto))


def model_of(graph: onnx.GraphProto | bytes, *functions: onnx.FunctionProto | bytes) -> Model:
    written = [f if isinstance(f, bytes) else f.SerializeToString() for f in functions]
    main = graph if isinstance(graph, bytes) else graph.SerializeToString()
    return read_memory(MemoryFile(block(7, main) + b"".join(block(25, function) for function in written)))


def stored(model: Model) -> dict[tuple[tuple[str, ...], str], StoredTensor]:
    return {tensor.key: tensor for tensor in model.tensors()}


def accounts(model: Model) -> dict[str, int]:
    return {account: nbytes for account, nbytes in model.structure if nbytes}


def main(model: Model) -> Graph:
    return model.graphs[0]


# the main graph


def test_initializer_has_its_dtype_shape_elements_and_bytes(tmp_path):
    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"

    (tensor,) = read(tmp_path, text_model(text)).tensors()

    assert (tensor.name, tensor.carrier, tensor.dtype.name) == ("w", Carrier.INITIALIZER, "FLOAT")
    assert (tensor.shape, tensor.numel, tensor.nbytes) == ((2,), 2, 8)


def test_inputs_and_outputs_are_in_file_order(tmp_path):
    model = read(
        tmp_path, text_model("g (float[2] b, float[2] a) => (float[2] z, float[2] y) { z, y = Odd(b, a) }")
    )

    assert (main(model).inputs, main(model).outputs) == (("b", "a"), ("z", "y"))


def test_initializer_of_ir_3_that_is_an_input_is_stored_and_no_input(tmp_path):
    proto = text_model("""
        <ir_version: 3, opset_import: ["" : 8]>
        g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }
    """)
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(2, dtype="f4"), "w"))

    model = read(tmp_path, proto)

    assert (main(model).inputs, main(model).overridable) == (("x",), ("w",))
    assert [tensor.name for tensor in model.tensors()] == ["w"]


def test_notes_on_values_are_kept_where_the_scopes_are_read_from_them():
    graph = onnx.GraphProto()
    for values, name in (
        (graph.value_info, "v"),
        (graph.input, "i"),
        (graph.output, "o"),
        (graph.value_info, "none"),
    ):
        value = values.add(name=name)
        if name != "none":
            set_metadata(value, {INPUT_KIND: "PARAMETER", "other": "dropped"})

    assert {name: dict(notes) for name, notes in main(model_of(graph)).metadata.items()} == {
        name: {INPUT_KIND: "PARAMETER"} for name in ("v", "i", "o")
    }


@pytest.mark.parametrize("long", [0, 5000])
def test_annotations_of_quantization_are_kept(long):
    graph = onnx.GraphProto()
    annotation = graph.quantization_annotation.add(tensor_name="w" + "x" * long)
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    annotation.quant_parameter_tensor_names.add(key="ZERO_POINT_TENSOR", value="z")

    assert main(model_of(graph)).annotations == {
        "w" + "x" * long: {"SCALE_TENSOR": "s", "ZERO_POINT_TENSOR": "z"}
    }


@pytest.mark.parametrize("count", [1, 300, 10_000])
def test_values_are_read_however_many_there_are(count):
    graph = onnx.GraphProto()
    for index in range(count):
        set_metadata(graph.value_info.add(name=f"v{index}"), {FOLDED_FROM: f"['p{index}']"})

    model = model_of(graph)

    assert len(main(model).metadata) == count
    assert accounts(model)[VALUES] == graph.ByteSize()


def test_graph_in_two_pieces_is_one(tmp_path):
    pieces = [
        text_model("g (float[2] x) => () <float[2] w = {1, 2}> { h = Add(x, w) }"),
        text_model("g () => (float[2] y) <float[2] v = {3, 4}> { y = Mul(h, v) }"),
    ]
    content = b"".join(onnx.ModelProto(graph=piece.graph).SerializeToString() for piece in pieces)

    (graph,) = read_memory(MemoryFile(content)).graphs

    assert [(node.op_type, node.position) for node in graph.nodes] == [("Add", 0), ("Mul", 1)]
    assert [tensor.name for tensor in graph.tensors] == ["w", "v"]
    assert (graph.inputs, graph.outputs) == (("x",), ("y",))


@pytest.mark.parametrize("unknown", UNKNOWN_FIELDS)
def test_unknown_fields_of_a_graph_and_its_values_are_booked_to_the_byte(unknown):
    value = block(1, "v") + unknown + block(2, unknown)
    graph = block(1, block(4, "Relu")) + unknown + block(13, value) + block(11, value) + block(14, unknown)

    model = model_of(graph)

    assert accounts(model)[UNKNOWN] == 6 * len(unknown)
    assert main(model).inputs == ("v",)


@pytest.mark.parametrize("number", [1, 2, 5, 11, 13, 15, 16])
def test_field_of_another_wire_type_is_unknown(number):
    model = model_of(integer(number, 1))

    assert accounts(model)[UNKNOWN] == len(integer(number, 1))
    assert (main(model).nodes, main(model).tensors) == ((), ())


@pytest.mark.parametrize("number", [11, 12, 13, 14])
def test_value_that_is_no_message_is_refused_by_its_place(number):
    with pytest.raises(ModelReadError, match=r"\[not-onnx\] bytes \d+ to \d+ are not part of an ONNX graph"):
        model_of(block(number, b"\x0a\x7f"))


def test_type_nested_deeper_than_protobuf_reads_is_refused():
    kind = b""
    for _ in range(200):
        kind = block(4, block(1, kind))  # sequence type

    with pytest.raises(ModelReadError, match="nested deeper than protobuf reads"):
        model_of(block(11, block(1, "x") + block(2, kind)))


def test_notes_and_names_of_a_graph_are_booked_by_what_they_are():
    graph = onnx.GraphProto(name="main", doc_string="x" * 100)
    set_metadata(graph, {"note": "text"})
    graph.value_info.add(name="v")

    found = accounts(model_of(graph))

    assert found[HEADER] == 2 + len(block(2, "main")) + 1  # plus 3: the graph's own key and length
    assert found[VALUES] == len(block(13, block(1, "v")))
    assert found[METADATA] == len(block(10, "x" * 100)) + len(block(16, block(1, "note"), block(2, "text")))


# repeated names


def test_repeated_names_are_told_apart_by_a_number():
    model = model_of(onnx.GraphProto(initializer=[raw("w", [1], 3, b"1") for _ in range(3)]))

    assert [tensor.key[1] for tensor in model.tensors()] == ["w", "w#2", "w#3"]
    assert [tensor.name for tensor in model.tensors()] == ["w"] * 3


def test_number_of_a_repeated_name_is_none_that_another_has():
    names = ["w", "w#2", "w", "w", "w#2"]

    model = model_of(onnx.GraphProto(initializer=[raw(name, [1], 3, b"1") for name in names]))

    assert [tensor.key[1] for tensor in model.tensors()] == ["w", "w#2", "w#3", "w#4", "w#2#2"]


def test_many_tensors_of_one_name_are_numbered_at_once():
    (tensor,) = model_of(onnx.GraphProto(initializer=[raw("w", [1], 3, b"1")])).tensors()

    numbered = number_names([tensor] * 100_000)

    assert len({tensor.key for tensor in numbered}) == 100_000


# nested graphs


def test_one_name_in_both_branches_is_two_tensors(tmp_path):
    model = read(tmp_path, text_model(IF_BRANCHES))

    assert set(stored(model)) == {
        ((), "scale"),
        (("If_0.then_branch",), "w"),
        (("If_0.else_branch",), "w"),
    }
    assert model.nested_graphs == 2


@pytest.mark.parametrize("op", ["Loop", "Scan"])
def test_body_of_loop_and_scan_is_read(tmp_path, op):
    weights = [numpy_helper.from_array(np.ones(3, dtype="f4"), "w")]
    body = helper.make_graph(
        [helper.make_node("Add", ["h", "w"], ["out"])],
        "b",
        [helper.make_tensor_value_info("h", 1, [3])],
        [helper.make_tensor_value_info("out", 1, [3])],
        weights,
    )
    node = helper.make_node(op, ["x"], ["y"], body=body)

    model = read(tmp_path, helper.make_model(helper.make_graph([node], "g", [], [])))

    assert set(stored(model)) == {((f"{op}_0.body",), "w")}
    assert model.graphs[1].parent == ((), 0)
    assert (model.graphs[1].inputs, model.graphs[1].outputs) == (("h",), ("out",))


def test_graph_inside_a_nested_graph_has_the_whole_path(tmp_path):
    constant = helper.make_node("Constant", [], ["c"], value_int=1)
    inner = helper.make_graph([constant], "i", [], [])
    outer = helper.make_graph(
        [constant, helper.make_node("If", ["c"], ["r"], then_branch=inner)], "o", [], []
    )
    node = helper.make_node("If", ["c"], ["y"], else_branch=outer)

    model = read(tmp_path, helper.make_model(helper.make_graph([node], "g", [], [])))

    assert [graph.path for graph in model.graphs] == [
        (),
        ("If_0.else_branch",),
        ("If_0.else_branch", "If_1.then_branch"),
    ]
    assert model.nested_graphs == 2


def test_list_of_graphs_is_one_graph_each():
    bodies = [onnx.GraphProto(node=[helper.make_node("Relu", [str(i)], ["y"])]) for i in range(3)]
    node = helper.make_node("Switch", ["x"], ["y"], domain="my", bodies=bodies)

    model = model_of(onnx.GraphProto(node=[node]))

    assert [graph.path for graph in model.graphs[1:]] == [(f"Switch_0.bodies[{i}]",) for i in range(3)]
    assert [graph.nodes[0].inputs for graph in model.graphs[1:]] == [("0",), ("1",), ("2",)]


def test_nested_graphs_come_before_those_of_later_nodes():
    inner = onnx.GraphProto(node=[helper.make_node("Relu", ["x"], ["y"])])
    outer = onnx.GraphProto(node=[helper.make_node("If", ["c"], ["y"], then_branch=inner)])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=outer) for _ in range(2)]

    model = model_of(onnx.GraphProto(node=nodes))

    assert [graph.path for graph in model.graphs] == [
        (),
        ("If_0.then_branch",),
        ("If_0.then_branch", "If_0.then_branch"),
        ("If_1.then_branch",),
        ("If_1.then_branch", "If_0.then_branch"),
    ]


def nested(depth: int) -> bytes:
    """Return the bytes of a node nested in `depth` graphs, deeper than protobuf itself would write."""
    graph = block(1, block(4, "Relu"))
    for _ in range(depth):
        attribute = block(1, "then_branch") + block(6, graph) + integer(20, 5)
        graph = block(1, block(4, "If") + block(5, attribute))
    return graph


@pytest.mark.parametrize("depth", [1, 32, 33, MAX_DEPTH])
def test_graphs_are_read_to_a_depth_that_protobuf_does_not_reach(depth):
    model = model_of(nested(depth))

    assert model.nested_graphs == depth
    assert [node.op_type for node in model.nodes()] == ["If"] * depth + ["Relu"]


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 2000])
def test_graphs_nested_deeper_are_refused(depth):
    with pytest.raises(ModelReadError, match=r"\[deep-nesting\] graphs nested deeper than 100"):
        model_of(nested(depth))


def test_two_graphs_of_one_attribute_name_are_told_apart():
    body = onnx.GraphProto(initializer=[raw("w", [1], TensorProto.INT8, b"1")])
    node = onnx.NodeProto(op_type="If", attribute=[helper.make_attribute("body", body)] * 2)

    model = model_of(onnx.GraphProto(node=[node]))

    assert len(stored(model)) == 2


# functions


def function(name: str = "f", *nodes: onnx.NodeProto, **fields: object) -> onnx.FunctionProto:
    return onnx.FunctionProto(name=name, domain="my", node=nodes, **fields)


def test_local_function_is_a_graph_of_its_own(tmp_path):
    model = read(
        tmp_path,
        text_model("""
            <ir_version: 10, opset_import: ["" : 18, "my" : 1]>
            g (float[2] x) => (float[2] y) { y = my.shift(x) }
            <domain: "my", opset_import: ["" : 18]>
            shift (a) => (b) { w = Constant<value = float[2] {1, 2}>() b = Add(a, w) }
        """),
    )

    path = ("function:my:shift",)
    assert set(stored(model)) == {(path, "w")}
    assert [(f.domain, f.name, f.overload, f.path) for f in model.functions] == [("my", "shift", "", path)]
    assert (model.graphs[1].inputs, model.graphs[1].outputs, model.nested_graphs) == (("a",), ("b",), 0)


def test_overloads_of_one_function_are_two_graphs():
    nodes = [helper.make_node("Constant", [], ["w"], value_float=1.0)]

    model = model_of(b"", function("f", *nodes), function("f", *nodes, overload="half"))

    assert [graph.path for graph in model.graphs[1:]] == [("function:my:f",), ("function:my:f:half",)]
    assert len(stored(model)) == 2


def test_functions_that_are_the_same_are_told_apart():
    model = model_of(b"", *[function("f", helper.make_node("Constant", [], ["w"], value_int=1))] * 3)

    assert len({function.path for function in model.functions}) == 3
    assert len(stored(model)) == 3


def test_many_functions_that_are_the_same_have_short_labels():
    model = model_of(b"", *[function("f")] * 300)

    assert max(len(function.path[0]) for function in model.functions) < 40


def test_signature_of_a_function_may_stand_after_its_nodes():
    node = helper.make_node("Relu", ["a"], ["b"]).SerializeToString()

    model = model_of(b"", block(7, node) + block(1, "late") + block(4, "a") + block(5, "b") + block(10, "my"))

    assert model.functions[0].path == ("function:my:late",)
    assert (model.graphs[1].inputs, model.graphs[1].outputs) == (("a",), ("b",))


def test_graph_within_a_function_is_below_it():
    inner = onnx.GraphProto(node=[helper.make_node("Constant", [], ["c"], value_int=1)])

    model = model_of(b"", function("f", helper.make_node("If", ["a"], ["b"], then_branch=inner)))

    assert [graph.path for graph in model.graphs[1:]] == [
        ("function:my:f",),
        ("function:my:f", "If_0.then_branch"),
    ]
    assert model.graphs[2].parent == (("function:my:f",), 0)


@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH])
def test_depth_of_graphs_within_a_function_is_limited_too(depth):
    as_function = block(1, "f") + b"\x3a" + nested(depth)[1:]  # `node` is field 7 of a function

    if depth < MAX_DEPTH:
        assert model_of(b"", as_function).nested_graphs == depth
    else:
        with pytest.raises(ModelReadError, match=r"\[deep-nesting\]"):
            model_of(b"", as_function)


def test_default_of_a_functions_attribute_is_a_stored_tensor():
    made = function("f")
    made.attribute_proto.append(helper.make_attribute("bias", numpy_helper.from_array(np.ones(3, "f4"))))
    made.attribute_proto.append(helper.make_attribute("axis", 1))

    (tensor,) = model_of(b"", made).tensors()

    assert tensor.key == (("function:my:f",), "function:my:f.bias")
    assert (tensor.carrier, tensor.node, tensor.numel) == (Carrier.ATTRIBUTE_TENSOR, None, 3)


def test_notes_on_the_values_of_a_function_are_kept():
    made = function("f")
    set_metadata(made.value_info.add(name="v"), {INPUT_KIND: "BUFFER"})

    model = model_of(b"", made)

    assert {name: dict(notes) for name, notes in model.graphs[1].metadata.items()} == {
        "v": {INPUT_KIND: "BUFFER"}
    }


def test_bytes_of_a_function_are_its_own_but_for_what_has_an_account():
    made = function("f", helper.make_node("Relu", ["a"], ["b"]), input=["a"], output=["b"], doc_string="note")
    made.node.append(
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.zeros(3, "f4"), "c"))
    )
    made.value_info.add(name="v")
    inside = block(5, made.node[1].attribute[0].t.SerializeToString())

    found = accounts(model_of(b"", made))

    assert found[VALUES] == len(block(12, block(1, "v")))
    assert found[METADATA] == len(block(8, "note"))
    assert (found[NAMES], found[TENSORS]) == (3, len(inside) - 3 - 12)
    assert NODES not in found
    rest = found[VALUES] + found[METADATA] + len(inside)
    assert found[FUNCTIONS] == len(block(25, made.SerializeToString())) - rest


@pytest.mark.parametrize("unknown", UNKNOWN_FIELDS)
def test_unknown_fields_of_a_function_are_booked_to_the_byte(unknown):
    default = block(1, "d") + unknown
    content = (
        block(1, "f")
        + unknown
        + block(7, block(4, "Relu") + unknown)
        + block(12, unknown)
        + block(11, default)
    )

    assert accounts(model_of(b"", content))[UNKNOWN] == 4 * len(unknown)


def test_function_that_is_no_message_is_refused():
    with pytest.raises(ModelReadError, match=r"\[not-onnx\]"):
        model_of(b"", block(1, "f") + block(9, b"\x0a\x7f"))


# training


def test_training_graphs_are_read(tmp_path):
    proto = text_model("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    info = proto.training_info.add()
    info.initialization.initializer.append(numpy_helper.from_array(np.ones(2, dtype="f4"), "start"))
    info.algorithm.initializer.append(numpy_helper.from_array(np.ones(5, dtype="f4"), "rate"))

    model = read(tmp_path, proto)

    assert {key: tensor.numel for key, tensor in stored(model).items()} == {
        (("training:0:initialization",), "start"): 2,
        (("training:0:algorithm",), "rate"): 5,
    }
    assert model.nested_graphs == 0


def test_several_training_graphs_are_counted_one_by_one():
    info = onnx.TrainingInfoProto()
    info.algorithm.initializer.append(raw("w", [2], TensorProto.INT8, b"ab"))
    info.update_binding.add(key="w", value="v")
    content = info.SerializeToString()

    model = read_memory(MemoryFile(block(20, content) + block(20, content + content)))

    assert {key: tensor.numel for key, tensor in stored(model).items()} == {
        (("training:0:algorithm",), "w"): 2,
        (("training:1:algorithm",), "w"): 2,
        (("training:1:algorithm",), "w#2"): 2,
    }


def test_bindings_of_training_are_header_and_other_fields_unknown():
    binding = block(4, block(1, "w") + block(2, "v"))

    found = accounts(read_memory(MemoryFile(block(20, binding + integer(9, 1)))))

    assert (found[HEADER], found[UNKNOWN]) == (3 + len(binding), 2)


# the types of a graph's inputs


def signature(folder: Path, proto: onnx.ModelProto) -> tuple[ValueType, ...]:
    return read_model(save(folder, proto)).graphs[0].signature


def model_of_signature(*inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    proto = text_model("g (float x) => (float y) { y = Identity(x) }")
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    return proto


def test_tensor_has_its_type_and_each_axis_its_size_its_name_or_nothing(tmp_path):
    proto = model_of_signature(helper.make_tensor_value_info("x", TensorProto.INT64, [2, "s18", None]))

    assert signature(tmp_path, proto) == (ValueType("x", "tensor", DType.INT64, (2, "s18", None)),)


def test_scalar_has_no_axes_and_an_unknown_rank_no_tuple(tmp_path):
    scalar = helper.make_tensor_value_info("x", TensorProto.BOOL, [])
    unknown = helper.make_tensor_value_info("y", TensorProto.BOOL, None)

    assert [value.dims for value in signature(tmp_path, model_of_signature(scalar, unknown))] == [(), None]


def test_initializers_that_are_inputs_too_are_left_out(tmp_path):
    text = "g (float[1] x, float[1] w) => (float[1] y) <float[1] w = {1}> { y = Add(x, w) }"
    proto = text_model(text)
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]))

    graph = read_model(save(tmp_path, proto)).graphs[0]

    assert tuple(value.name for value in graph.signature) == graph.inputs == ("x",)


@pytest.mark.parametrize(
    ("proto", "kind", "dtype"),
    [
        (helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [1])), "sequence", DType.UNDEFINED),
        (helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [1])), "optional", DType.UNDEFINED),
        (helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, [1])), "map", DType.UNDEFINED),
        (helper.make_sparse_tensor_type_proto(1, [2]), "sparse_tensor", DType.FLOAT),
        (onnx.TypeProto(), "", DType.UNDEFINED),
    ],
)
def test_what_is_no_tensor_is_called_what_it_is(tmp_path, proto, kind, dtype):
    (value,) = signature(tmp_path, model_of_signature(onnx.ValueInfoProto(name="x", type=proto)))

    assert (value.kind, value.dtype) == (kind, dtype)


def test_nested_graphs_have_no_signature(tmp_path):
    text = """
        g (bool c, float[2] x) => (float[2] y)
        { y = If(c) <then_branch = t () => (float[2] a) { a = Neg(x) },
                     else_branch = e () => (float[2] b) { b = Abs(x) }> }
    """

    main, *nested = read_model(save(tmp_path, text_model(text))).graphs

    assert [value.name for value in main.signature] == ["c", "x"]
    assert [graph.signature for graph in nested] == [(), ()]


def test_negative_sizes_and_types_of_no_name_are_kept_as_they_are():
    proto = helper.make_tensor_type_proto(99, [-1, -(2**63)])

    assert read_type("x", proto) == ValueType("x", "tensor", DType.UNDEFINED, (-1, -(2**63)))


def test_of_a_million_axes_one_more_than_an_array_can_have_is_kept():
    proto = helper.make_tensor_type_proto(1, [1] * 1_000_000)

    dims = read_type("x", proto).dims

    assert dims is not None
    assert len(dims) == MAX_RANK + 1


def test_name_of_an_axis_that_is_no_utf8_is_escaped(tmp_path):
    proto = model_of_signature(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["axis"]))
    path = save(tmp_path, proto.SerializeToString().replace(b"axis", b"ax\xffs"))

    assert read_model(path).graphs[0].signature[0].dims == ("ax\\xffs",)
