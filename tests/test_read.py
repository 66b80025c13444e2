"""An .onnx file as read: every carrier of a tensor, every graph, and what cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import external, raw, save, text_model
from onnx import TensorProto, helper, numpy_helper

from analyzer.dtypes import DType
from analyzer.errors import ModelReadError
from analyzer.model import Carrier, Model, StoredTensor
from analyzer.read import read_model

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


def read(folder: Path, proto: onnx.ModelProto | bytes) -> Model:
    return read_model(save(folder, proto))


def stored(model: Model) -> dict[tuple[tuple[str, ...], str], StoredTensor]:
    return {tensor.key: tensor for tensor in model.tensors()}


def with_initializers(*tensors: onnx.TensorProto) -> onnx.ModelProto:
    proto = text_model("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    proto.graph.initializer.extend(tensors)
    return proto


# carriers


def test_initializer_has_its_dtype_shape_elements_and_bytes(tmp_path):
    model = read(
        tmp_path, text_model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    )

    (tensor,) = model.tensors()
    assert (tensor.name, tensor.carrier, tensor.dtype) == ("w", Carrier.INITIALIZER, DType.FLOAT)
    assert (tensor.shape, tensor.numel, tensor.nbytes) == ((2,), 2, 8)


@pytest.mark.parametrize(
    ("attribute", "carrier", "dtype", "shape", "numel", "nbytes"),
    [
        ("value = float[2,3] {1,2,3,4,5,6}", "constant", DType.FLOAT, (2, 3), 6, 24),
        ("value = float {1}", "constant", DType.FLOAT, (), 1, 4),
        ("value_float = 1.5", "constant_list", DType.FLOAT, (), 1, 4),
        ("value_floats = [1.5, 2.5, 3.5]", "constant_list", DType.FLOAT, (3,), 3, 12),
        ("value_int = 7", "constant_list", DType.INT64, (), 1, 1),
        ("value_ints = [1, 127, 128]", "constant_list", DType.INT64, (3,), 3, 4),
        ('value_string = "abc"', "constant_list", DType.STRING, (), 1, 3),
        ('value_strings = ["a", "bc", ""]', "constant_list", DType.STRING, (3,), 3, 3),
    ],
)
def test_every_form_of_constant_is_a_stored_tensor_named_after_its_output(
    tmp_path, attribute, carrier, dtype, shape, numel, nbytes
):
    model = read(tmp_path, text_model(f"g () => (float[2] c) {{ c = Constant<{attribute}>() }}"))

    (tensor,) = model.tensors()
    assert (tensor.name, tensor.node, tensor.carrier.value) == ("c", 0, carrier)
    assert (tensor.dtype, tensor.shape, tensor.numel, tensor.nbytes) == (dtype, shape, numel, nbytes)


def sparse(name: str) -> onnx.SparseTensorProto:
    """3 of 20 elements."""
    values = numpy_helper.from_array(np.array([1, 2, 3], dtype="f4"), name)
    indices = numpy_helper.from_array(np.array([0, 7, 19], dtype="i8"), "at")
    return helper.make_sparse_tensor(values, indices, [4, 5])


def test_sparse_constant_counts_its_values_and_its_indices_only_as_bytes(tmp_path):
    node = helper.make_node("Constant", [], ["c"], sparse_value=sparse(""))
    proto = helper.make_model(helper.make_graph([node], "g", [], []))

    model = read(tmp_path, proto)

    (tensor,) = model.tensors()
    assert tensor.carrier is Carrier.SPARSE_CONSTANT
    assert (tensor.name, tensor.shape, tensor.numel, tensor.nbytes) == ("c", (4, 5), 3, 3 * 4 + 3 * 8)


def test_sparse_initializer_counts_its_values(tmp_path):
    proto = with_initializers()
    proto.graph.sparse_initializer.append(sparse("w"))

    model = read(tmp_path, proto)

    (tensor,) = model.tensors()
    assert tensor.carrier is Carrier.SPARSE_INITIALIZER
    assert (tensor.name, tensor.shape, tensor.numel, tensor.nbytes) == ("w", (4, 5), 3, 36)


def test_tensor_in_any_other_attribute_is_named_after_node_and_attribute(tmp_path):
    value = numpy_helper.from_array(np.array([0], dtype="f4"))
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["a"], name="fill", value=value),
        helper.make_node("ConstantOfShape", ["s"], ["b"], value=value),
    ]

    model = read(tmp_path, helper.make_model(helper.make_graph(nodes, "g", [], [])))

    assert [(t.name, t.carrier) for t in model.tensors()] == [
        ("fill#0.value", Carrier.ATTRIBUTE_TENSOR),
        ("ConstantOfShape#1.value", Carrier.ATTRIBUTE_TENSOR),
    ]


def test_list_of_tensors_is_one_entry_each(tmp_path):
    value = numpy_helper.from_array(np.zeros(3, dtype="f4"))
    node = helper.make_node("Odd", [], ["a"], name="n", domain="my", parts=[value, value])

    model = read(tmp_path, helper.make_model(helper.make_graph([node], "g", [], [])))

    assert [(t.name, t.numel) for t in model.tensors()] == [("n#0.parts[0]", 3), ("n#0.parts[1]", 3)]


def test_lists_of_classical_operators_are_stored_and_those_of_others_are_not(tmp_path):
    nodes = [
        helper.make_node(
            "LinearRegressor", ["x"], ["a"], name="lin", domain="ai.onnx.ml", coefficients=[1.0, 2.0]
        ),
        helper.make_node("Transpose", ["x"], ["b"], perm=[1, 0]),
    ]

    model = read(tmp_path, helper.make_model(helper.make_graph(nodes, "g", [], [])))

    (tensor,) = model.tensors()
    assert (tensor.name, tensor.carrier) == ("lin#0.coefficients", Carrier.ATTRIBUTE_LIST)
    assert (tensor.dtype, tensor.numel, tensor.nbytes) == (DType.FLOAT, 2, 8)


# graphs


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


def test_graph_inside_a_nested_graph_has_the_whole_path(tmp_path):
    constant = helper.make_node("Constant", [], ["c"], value_int=1)
    inner = helper.make_graph([constant], "i", [], [])
    outer = helper.make_graph(
        [constant, helper.make_node("If", ["c"], ["r"], then_branch=inner)], "o", [], []
    )
    node = helper.make_node("If", ["c"], ["y"], else_branch=outer)

    model = read(tmp_path, helper.make_model(helper.make_graph([node], "g", [], [])))

    assert ("If_0.else_branch", "If_1.then_branch") in [graph.path for graph in model.graphs]
    assert model.nested_graphs == 2


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

    assert set(stored(model)) == {(("function:my:shift",), "w")}
    assert (model.functions, model.nested_graphs) == (1, 0)


def test_overloads_of_one_function_are_two_graphs(tmp_path):
    def overload(name: str, value: float) -> onnx.FunctionProto:
        nodes = [helper.make_node("Constant", [], ["w"], value_float=value)]
        return helper.make_function("my", "f", ["a"], ["w"], nodes, [], overload=name)

    graph = helper.make_graph([helper.make_node("f", ["x"], ["y"], domain="my")], "g", [], [])

    model = read(tmp_path, helper.make_model(graph, functions=[overload("", 1.0), overload("half", 2.0)]))

    assert len({graph.path for graph in model.graphs}) == 3
    assert len(stored(model)) == 2


def test_training_graphs_are_read(tmp_path):
    proto = with_initializers()
    info = proto.training_info.add()
    info.initialization.initializer.append(numpy_helper.from_array(np.ones(2, dtype="f4"), "start"))
    info.algorithm.initializer.append(numpy_helper.from_array(np.ones(5, dtype="f4"), "rate"))

    model = read(tmp_path, proto)

    assert {key: tensor.numel for key, tensor in stored(model).items()} == {
        (("training:0:initialization",), "start"): 2,
        (("training:0:algorithm",), "rate"): 5,
    }
    assert model.nested_graphs == 0


def test_nodes_without_names_are_kept_by_position(tmp_path):
    model = read(tmp_path, text_model("g (float[2] x) => (float[2] y) { h = Relu(x) y = Relu(h) }"))

    assert [(node.name, node.index) for node in model.nodes()] == [("", 0), ("", 1)]


def test_initializer_of_ir_3_that_is_an_input_is_stored_and_no_input(tmp_path):
    proto = text_model("""
        <ir_version: 3, opset_import: ["" : 8]>
        g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }
    """)
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(2, dtype="f4"), "w"))

    model = read(tmp_path, proto)

    assert model.graphs[0].inputs == ("x",)
    assert [tensor.name for tensor in model.tensors()] == ["w"]


def test_opsets_and_producer_are_told(tmp_path):
    proto = text_model('<ir_version: 9, opset_import: ["" : 18, "my" : 2]> g () => () { }')
    proto.producer_name, proto.producer_version = "pytorch", "2.0"

    model = read(tmp_path, proto)

    assert model.opsets == (("ai.onnx", 18), ("my", 2))
    assert (model.producer, model.ir_version) == ("pytorch 2.0", 9)


# odd tensors


@pytest.mark.parametrize(
    ("dtype", "shape", "payload", "nbytes"),
    [
        (DType.FLOAT, (), b"\0" * 4, 4),
        (DType.FLOAT, (0,), b"", 0),
        (DType.FLOAT, (3, 0, 2), b"", 0),
        (DType.INT4, (3,), b"\x21\x03", 2),
        (DType.UINT4, (2, 2), b"\x21\x43", 2),
        (DType.INT2, (5,), b"\x21\x03", 2),
        (DType.BFLOAT16, (3,), b"\0" * 6, 6),
        (DType.FLOAT8E4M3FN, (3,), b"\0" * 3, 3),
        (DType.FLOAT8E5M2FNUZ, (2, 2), b"\0" * 4, 4),
        (DType.FLOAT4E2M1, (5,), b"\0" * 3, 3),
        (DType.BOOL, (2,), b"\0\1", 2),
        (DType.COMPLEX64, (2,), b"\0" * 16, 16),
    ],
)
def test_every_width_and_shape_is_counted_exactly(tmp_path, dtype, shape, payload, nbytes):
    model = read(tmp_path, with_initializers(raw("w", list(shape), dtype, payload)))

    (tensor,) = model.tensors()
    assert (tensor.numel, tensor.nbytes) == (int(np.prod(shape)), nbytes)
    assert tensor.logical_nbytes == nbytes
    assert model.unread == ()


def test_strings_are_counted_with_their_bytes_and_never_read(tmp_path):
    proto = with_initializers(TensorProto(name="w", dims=[2], data_type=8, string_data=[b"abc", b"\xff"]))

    (tensor,) = read(tmp_path, proto).tensors()

    assert (tensor.dtype, tensor.numel, tensor.nbytes, tensor.logical_nbytes) == (DType.STRING, 2, 4, 0)
    assert tensor.payload.array() is None


def test_unknown_dtype_can_be_counted(tmp_path):
    (tensor,) = read(tmp_path, with_initializers(raw("w", [3], 99, b"\0" * 7))).tensors()

    assert (tensor.dtype, tensor.numel, tensor.nbytes) == (DType.UNDEFINED, 3, 7)
    assert tensor.payload.array() is None


def test_payload_shorter_than_its_dims_is_told_and_counted_as_it_stands(tmp_path):
    model = read(tmp_path, with_initializers(raw("w", [4], TensorProto.FLOAT, b"\0" * 12)))

    (tensor,) = model.tensors()
    assert (tensor.numel, tensor.nbytes) == (4, 12)
    assert model.unread == (
        ("payload-mismatch", ((), "w"), "4 elements of FLOAT need 16 bytes, the file has 12"),
    )
    assert tensor.payload.array() is None


def test_list_shorter_than_its_dims_is_told(tmp_path):
    proto = TensorProto(name="w", dims=[4], data_type=TensorProto.FLOAT, float_data=[1, 2])

    model = read(tmp_path, with_initializers(proto))

    assert [finding for finding, _, _ in model.unread] == ["payload-mismatch"]


def test_tensor_without_any_payload_is_told(tmp_path):
    proto = TensorProto(name="w", dims=[4], data_type=TensorProto.FLOAT)

    model = read(tmp_path, with_initializers(proto))

    assert [finding for finding, _, _ in model.unread] == ["payload-mismatch"]


def test_header_that_claims_much_costs_nothing(tmp_path):
    model = read(tmp_path, with_initializers(raw("w", [2**31, 2**31], TensorProto.FLOAT, b"\0" * 4)))

    (tensor,) = model.tensors()
    assert tensor.numel == 2**62
    assert tensor.payload.array() is None


def test_sparse_tensor_with_more_values_than_dims_is_no_crash(tmp_path):
    proto = with_initializers()
    odd = sparse("w")
    odd.values.dims[0] = 99
    proto.graph.sparse_initializer.append(odd)

    model = read(tmp_path, proto)

    assert [finding for finding, _, _ in model.unread] == ["payload-mismatch"]


@pytest.mark.parametrize("where", ["initializer", "constant", "sparse"])
def test_negative_dimension_is_refused_by_name(tmp_path, where):
    proto = with_initializers()
    tensor = raw("bad", [2, -3], TensorProto.FLOAT, b"")
    if where == "initializer":
        proto.graph.initializer.append(tensor)
    elif where == "constant":
        proto.graph.node.append(helper.make_node("Constant", [], ["bad"], value=tensor))
    else:
        odd = sparse("bad")
        odd.dims[0] = -4
        proto.graph.sparse_initializer.append(odd)

    with pytest.raises(ModelReadError, match=r"\[invalid-dims\].*'bad'.*negative"):
        read(tmp_path, proto)


def test_name_that_is_no_utf8_is_escaped_and_its_readers_find_it(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) <float[2] wname = {1, 2}> { y = Add(x, wname) }")
    crafted = proto.SerializeToString().replace(b"wname", b"w\xff\xfe\x80e")

    model = read(tmp_path, crafted)

    (tensor,) = model.tensors()
    assert tensor.name == r"w\xff\xfe\x80e"
    assert next(model.nodes()).inputs == ("x", r"w\xff\xfe\x80e")


def test_two_names_that_differ_in_their_bytes_only_stay_two(tmp_path):
    proto = with_initializers(
        raw("name1", [1], TensorProto.INT8, b"\1"), raw("name2", [1], TensorProto.INT8, b"\2")
    )
    crafted = proto.SerializeToString().replace(b"name1", b"\xff\xfe\xfd\xfc\xf1")
    crafted = crafted.replace(b"name2", b"\xff\xfe\xfd\xfc\xf2")

    model = read(tmp_path, crafted)

    assert len(stored(model)) == 2


# external data


def test_external_data_is_located_and_not_counted_as_inline(tmp_path):
    (tmp_path / "w.bin").write_bytes(np.arange(8, dtype="<f4").tobytes())
    proto = with_initializers(external("w", [2, 3], location="w.bin", offset=8, length=24))

    model = read(tmp_path, proto)

    (tensor,) = model.tensors()
    assert tensor.extent is not None
    assert (tensor.extent.offset, tensor.extent.length, tensor.nbytes) == (8, 24, 24)
    assert [(file.path, file.nbytes) for file in model.files][1:] == [("w.bin", 32)]
    assert tensor.payload.array().tolist() == [[2, 3, 4], [5, 6, 7]]


def test_external_length_defaults_to_what_the_shape_needs(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(100))

    (tensor,) = read(tmp_path, with_initializers(external("w", [5], location="w.bin"))).tensors()

    assert tensor.nbytes == 20


def test_external_file_in_a_folder_below_is_named_from_the_model(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(bytes(4))

    model = read(tmp_path, with_initializers(external("w", [1], location="data/w.bin")))

    assert model.files[1].path == os.path.join("data", "w.bin")  # noqa: PTH118


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"location": "absent.bin"}, "external-missing"),
        ({"location": "w.bin", "offset": 8}, "external-short"),
        ({"location": "w.bin", "offset": 2**63}, "external-short"),
        ({"location": "w.bin", "offset": -4}, "external-short"),
        ({"location": "w.bin", "length": -1}, "external-short"),
        ({"location": "w.bin", "length": 2**70}, "external-short"),
        ({"location": "w.bin", "offset": "twelve"}, "external-short"),
        ({"location": "../secret.bin"}, "external-escapes"),
        ({"location": "/etc/hostname"}, "external-escapes"),
        ({"location": "a\\..\\b.bin"}, "external-escapes"),
        ({"location": "file:///etc/hostname"}, "external-escapes"),
        ({"location": "w.bin\0.txt"}, "external-escapes"),
        ({"location": "."}, "external-escapes"),
        ({}, "external-escapes"),
    ],
)
def test_external_data_that_cannot_be_had_is_told_and_the_rest_is_read(tmp_path, fields, finding):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (folder / "w.bin").write_bytes(bytes(16))
    proto = with_initializers(external("w", [4], **fields), raw("b", [1], TensorProto.FLOAT, bytes(4)))

    model = read(folder, proto)

    assert [(found, key) for found, key, _ in model.unread] == [(finding, ((), "w"))]
    assert [tensor.numel for tensor in model.tensors()] == [4, 1]
    assert stored(model)[(), "w"].payload.array() is None


def test_short_external_file_counts_the_bytes_it_has(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(10))

    model = read(tmp_path, with_initializers(external("w", [4], location="w.bin")))

    (tensor,) = model.tensors()
    assert tensor.nbytes == 10
    assert model.unread[0][2] == "w.bin: needs 16 bytes at offset 0, the file has 10 of them"


def test_external_length_shorter_than_the_shape_is_told(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(100))

    model = read(tmp_path, with_initializers(external("w", [4], location="w.bin", length=8)))

    assert [finding for finding, _, _ in model.unread] == ["external-short"]
    assert next(iter(model.tensors())).nbytes == 8


def test_hub_cache_is_read_through_its_links(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0123abcd"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "data").write_bytes(bytes(16))
    save(blobs, with_initializers(external("w", [4], location="model.onnx.data")), "model")
    (snapshot / "model.onnx").symlink_to("../../blobs/model")
    (snapshot / "model.onnx.data").symlink_to("../../blobs/data")

    model = read_model(snapshot / "model.onnx")

    assert model.unread == ()
    assert [file.nbytes for file in model.files[1:]] == [16]
    assert stored(model)[(), "w"].payload.array().tolist() == [0, 0, 0, 0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipe_as_external_data_is_told_at_once(tmp_path):
    os.mkfifo(tmp_path / "w.bin")

    model = read(tmp_path, with_initializers(external("w", [4], location="w.bin")))

    assert [finding for finding, _, _ in model.unread] == ["external-escapes"]


# files that are no models


def test_empty_file_is_refused(tmp_path):
    with pytest.raises(ModelReadError, match=r"model\.onnx: \[empty-model\] is empty"):
        read(tmp_path, b"")


@pytest.mark.parametrize(
    "content",
    [b"# onnxledger\n\nThis is text, not a model.\n", bytes(4096), b"PK\x03\x04" + bytes(60), b"\x08", b"{}"],
    ids=["text", "zeros", "zip", "one byte", "json"],
)
def test_file_that_is_no_model_is_refused_by_name(tmp_path, content):
    with pytest.raises(ModelReadError, match=r"model\.onnx: \[(not-onnx|empty-model)\]"):
        read(tmp_path, content)


def test_model_cut_short_is_refused(tmp_path):
    whole = with_initializers(raw("w", [64], TensorProto.FLOAT, bytes(256))).SerializeToString()

    with pytest.raises(ModelReadError, match=r"\[not-onnx\]"):
        read(tmp_path, whole[: len(whole) // 2])


def test_model_without_a_graph_is_refused(tmp_path):
    with pytest.raises(ModelReadError, match=r"\[empty-model\] holds no graph"):
        read(tmp_path, onnx.ModelProto(ir_version=8, producer_name="nobody"))


def test_folder_is_refused(tmp_path):
    with pytest.raises(ModelReadError, match=r"is a folder; name the \.onnx file inside it"):
        read_model(tmp_path)


def test_absent_file_is_refused(tmp_path):
    with pytest.raises(ModelReadError, match=r"absent\.onnx: cannot be read: No such file"):
        read_model(tmp_path / "absent.onnx")


def test_name_with_a_null_byte_is_refused():
    with pytest.raises(ModelReadError, match="cannot be read"):
        read_model(Path("a\0b.onnx"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "model.onnx")

    with pytest.raises(ModelReadError, match=r"\[not-onnx\] is no regular file"):
        read_model(tmp_path / "model.onnx")


def field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field, as protobuf itself refuses to write it this deep."""
    length, encoded = len(content), b""
    while length > 127:
        encoded, length = encoded + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + encoded + bytes([length]) + content


def test_graph_nested_deeper_than_protobuf_reads_is_refused(tmp_path):
    graph = b""
    for _ in range(60):
        attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"  # type: GRAPH
        graph = field(1, field(4, b"If") + field(5, attribute))

    with pytest.raises(ModelReadError, match="nested too deep"):
        read(tmp_path, field(7, graph))


def test_reading_writes_nothing(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    path = save(tmp_path, with_initializers(external("w", [4], location="w.bin")))
    before = {item: item.read_bytes() for item in tmp_path.iterdir()}

    list(read_model(path).tensors())

    assert {item: item.read_bytes() for item in tmp_path.iterdir()} == before
