"""Nodes as stored in the file, their attributes, and the tensors that they carry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from encoding import UNKNOWN_FIELDS, block, integer, varint
from memory import MemoryFile, read_memory
from models import FX_NODE, NAME_SCOPES, save, set_metadata, text_model
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from analyzer.errors import ModelReadError
from analyzer.model import Carrier, Model, Node
from analyzer.model.dtypes import DType
from analyzer.read import read_model
from analyzer.read.book import METADATA, NAMES, NODE_METADATA, NODES, TENSORS, UNKNOWN
from analyzer.read.nodes import (
    BIG,
    GRAPH,
    GRAPHS,
    SPARSE,
    SPARSES,
    TENSOR,
    TENSORS_OF,
    Attribute,
    read_attribute,
)
from analyzer.read.wire import Window

CHUNK = 1 << 12
"""Largest size, in bytes, of nodes that are read in runs."""


def model_of(*nodes: onnx.NodeProto | bytes) -> Model:
    """Return a model of these nodes alone, each given as a message or as bytes."""
    written = [node if isinstance(node, bytes) else node.SerializeToString() for node in nodes]
    return read_memory(MemoryFile(block(7, *(block(1, node) for node in written))))


def node_of(content: onnx.NodeProto | bytes) -> Node:
    (node,) = model_of(content).nodes()
    return node


def accounts(model: Model) -> dict[str, int]:
    return {account: nbytes for account, nbytes in model.structure if nbytes}


def read(folder: Path, proto: onnx.ModelProto) -> Model:
    return read_model(save(folder, proto))


# fields of a node


FULL = helper.make_node(
    "Gemm", ["x", "", "w"], ["y", "z"], "fc", "a note", "my", "half", alpha=1.5, transB=1, axes=[1]
)
PLAIN = helper.make_node("Relu", ["x"], ["y"])


@pytest.mark.parametrize("longer", ["", "x" * 5000], ids=["in a run", "alone"])
def test_node_is_what_protobuf_says(longer):
    proto = onnx.NodeProto()
    proto.CopyFrom(FULL)
    proto.doc_string += longer
    set_metadata(proto, {NAME_SCOPES: "['', 'fc']", "other": "dropped"})

    node = node_of(proto)

    assert (node.op_type, node.domain, node.overload, node.name) == ("Gemm", "my", "half", "fc")
    assert (node.inputs, node.outputs) == (("x", "", "w"), ("y", "z"))
    assert dict(node.integers) == {"transB": 1}
    assert dict(node.metadata) == {NAME_SCOPES: "['', 'fc']"}


def test_node_of_nothing_is_a_node():
    assert node_of(b"") == Node((), 0, "", "", "", (), ())


def test_nodes_are_kept_by_their_position(tmp_path):
    model = read(tmp_path, text_model("g (float[2] x) => (float[2] y) { h = Relu(x) y = Relu(h) }"))

    assert [(node.name, node.position) for node in model.nodes()] == [("", 0), ("", 1)]


@pytest.mark.parametrize("note", [0, 3900, 9000])
@pytest.mark.parametrize("count", [1, 3, 300])
def test_nodes_in_runs_and_alone_are_one_list(count, note):
    nodes = [helper.make_node("Relu", [f"x{i}"], [f"x{i + 1}"], doc_string="x" * note) for i in range(count)]

    model = model_of(*nodes)

    assert [node.inputs for node in model.nodes()] == [(f"x{i}",) for i in range(count)]
    assert [node.position for node in model.nodes()] == list(range(count))


def test_more_nodes_than_one_run_holds_are_read():
    model = model_of(*[PLAIN] * 10_000)

    assert sum(1 for _ in model.nodes()) == 10_000


def test_other_fields_between_the_nodes_change_nothing():
    written = [block(1, helper.make_node("Relu", [str(i)], ["y"]).SerializeToString()) for i in range(4)]
    graph = written[0] + block(10, "note") + written[1] + block(5) + written[2] + integer(99, 1) + written[3]

    (main,) = read_memory(MemoryFile(block(7, graph))).graphs

    assert [node.inputs for node in main.nodes] == [("0",), ("1",), ("2",), ("3",)]
    assert len(main.tensors) == 1


# encodings of a node


@pytest.mark.parametrize(
    "content",
    [
        block(4, "Relu") + block(2, "y") + block(3, "n") + block(1, "x") + block(1, "w"),
        block(3, "before")
        + block(1, "x")
        + block(4, "Add")
        + block(3, "n")
        + block(4, "Relu")
        + block(1, "w")
        + block(2, "y"),
        b"\x8a\x00"
        + b"\x01x"
        + block(1, "w")
        + b"\x92\x80\x00"
        + b"\x01y"
        + block(3, "n")
        + block(4, "Relu"),
        b"\x0a"
        + varint(1, longer=3)
        + b"x"
        + block(1, "w")
        + block(2, "y")
        + block(3, "n")
        + block(4, "Relu"),
    ],
    ids=["any order", "repeated", "long keys", "long lengths"],
)
def test_every_way_to_write_a_node_is_the_same_node(content):
    node = node_of(content)

    assert (node.op_type, node.name, node.inputs, node.outputs) == ("Relu", "n", ("x", "w"), ("y",))


@pytest.mark.parametrize("longer", [0, 1, 3])
def test_length_of_a_node_may_have_more_bytes_than_it_needs(longer):
    written = PLAIN.SerializeToString()
    graph = (b"\x0a" + varint(len(written), longer) + written) * 3

    model = read_memory(MemoryFile(block(7, graph)))

    assert [node.op_type for node in model.nodes()] == ["Relu"] * 3


def test_key_of_a_node_may_have_more_bytes_than_it_needs():
    content = b"\x11" + bytes(8) + b"\x11" + bytes(8)

    (node,) = read_memory(MemoryFile(block(7, b"\x8a\x00" + varint(len(content)) + content))).nodes()

    assert node.outputs == ()


@pytest.mark.parametrize("unknown", UNKNOWN_FIELDS)
@pytest.mark.parametrize("note", [b"", block(6, "x" * CHUNK)], ids=["in a run", "alone"])
def test_unknown_fields_of_a_node_are_booked_to_the_byte(unknown, note):
    model = model_of(PLAIN.SerializeToString() + unknown + note)

    assert accounts(model)[UNKNOWN] == len(unknown)
    assert next(model.nodes()).op_type == "Relu"


@pytest.mark.parametrize("content", [integer(4, 1), integer(5, 1), integer(9, 1), block(11, "x")])
def test_field_of_another_wire_type_is_unknown(content):
    model = model_of(PLAIN.SerializeToString() + content)

    assert accounts(model)[UNKNOWN] == len(content)
    assert (next(model.nodes()).op_type, next(model.nodes()).metadata) == ("Relu", {})


@pytest.mark.parametrize(
    "entry", [block(1, NAME_SCOPES) + block(2, "a") + integer(3, 1), b"\x0a\x7f", b"\xff"]
)
def test_note_of_another_form_is_no_crash(entry):
    node = node_of(PLAIN.SerializeToString() + block(9, entry))

    assert node.metadata == ({NAME_SCOPES: "a"} if entry.startswith(b"\x0a") and len(entry) > 2 else {})


def test_note_that_is_repeated_counts_by_its_last():
    proto = onnx.NodeProto(op_type="Relu")
    set_metadata(proto, {FX_NODE: "first"})
    set_metadata(proto, {FX_NODE: "last"})

    assert dict(node_of(proto).metadata) == {FX_NODE: "last"}


@pytest.mark.parametrize("content", [b"\x0a\x05abc", b"\x0f", b"\x00\x00", b"\x0a\x80"])
@pytest.mark.parametrize("note", [b"", block(6, "x" * CHUNK)], ids=["in a run", "alone"])
def test_node_that_is_no_message_is_refused_by_its_place(content, note):
    with pytest.raises(ModelReadError, match=r"\[not-onnx\] no protobuf message at byte \d+"):
        read_memory(
            MemoryFile(block(7, block(1, note + PLAIN.SerializeToString() + content)) + integer(1, 10))
        )


# bytes


@pytest.mark.parametrize("length", [0, 5000], ids=["in a run", "alone"])
def test_bytes_of_a_node_are_booked_by_what_they_are(length):
    proto = onnx.NodeProto()
    proto.CopyFrom(FULL)
    proto.doc_string = "x" * length
    set_metadata(proto, {"note": "text"})
    whole = len(block(1, proto.SerializeToString()))
    in_names = sum(len(block(1, name)) for name in ("x", "", "w", "y", "z", "fc"))
    noted = sum(proto.ByteSize() - without(proto, field) for field in ("doc_string", "metadata_props"))

    found = accounts(model_of(proto))

    assert (found[NAMES], found[NODE_METADATA]) == (in_names, noted)
    assert found[NODES] == whole - in_names - noted


def without(proto: onnx.NodeProto, field: str) -> int:
    """Return the size of a message without one field."""
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    copy.ClearField(field)
    return copy.ByteSize()


def test_tensor_in_an_attribute_is_booked_as_one():
    value = numpy_helper.from_array(np.zeros(3, "f4"), "name")
    proto = helper.make_node("ConstantOfShape", ["s"], ["y"], value=value)

    found = accounts(model_of(proto))

    inside = len(block(5, value.SerializeToString()))
    assert found[TENSORS] == inside - 12 - 6
    assert found[NAMES] == 3 + 3 + 6
    assert found[NODES] == len(block(1, proto.SerializeToString())) - inside - 3 - 3


def test_stack_traces_are_booked_and_dropped():
    proto = onnx.NodeProto(op_type="Relu")
    set_metadata(proto, {"pkg.torch.onnx.stack_trace": "x" * 1000, "namespace": "n"})

    model = model_of(proto)

    assert dict(next(model.nodes()).metadata) == {"namespace": "n"}
    assert accounts(model)[NODE_METADATA] > 1000
    assert METADATA not in accounts(model)


# tensors in nodes


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


def sparse(name: str = "") -> onnx.SparseTensorProto:
    """Return a sparse tensor with 3 of 20 elements."""
    values = numpy_helper.from_array(np.array([1, 2, 3], dtype="f4"), name)
    indices = numpy_helper.from_array(np.array([0, 7, 19], dtype="i8"), "at")
    return helper.make_sparse_tensor(values, indices, [4, 5])


def test_sparse_constant_counts_its_values_and_its_indices_only_as_bytes():
    (tensor,) = model_of(helper.make_node("Constant", [], ["c"], sparse_value=sparse())).tensors()

    assert tensor.carrier is Carrier.SPARSE_CONSTANT
    assert (tensor.name, tensor.shape, tensor.numel, tensor.nbytes) == ("c", (4, 5), 3, 3 * 4 + 3 * 8)


def test_tensor_of_a_constant_goes_by_its_output_and_not_by_its_own_name():
    value = numpy_helper.from_array(np.zeros(2, "f4"), "inside")

    (tensor,) = model_of(helper.make_node("Constant", [], ["outside"], value=value)).tensors()

    assert tensor.key == ((), "outside")


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_constant_of_either_name_of_the_default_domain_is_one(domain):
    node = helper.make_node("Constant", [], ["c"], value_int=1, domain=domain)

    assert [tensor.carrier for tensor in model_of(node).tensors()] == [Carrier.CONSTANT_LIST]


def test_constant_of_another_domain_is_any_operator():
    node = helper.make_node(
        "Constant", [], ["c"], value=numpy_helper.from_array(np.zeros(1, "f4")), domain="my"
    )
    other = helper.make_node("Constant", [], ["c"], value_ints=[1, 2], domain="my")

    assert [(t.name, t.carrier) for t in model_of(node, other).tensors()] == [
        ("Constant#0.value", Carrier.ATTRIBUTE_TENSOR)
    ]


def test_constant_without_an_output_is_named_after_node_and_attribute():
    node = helper.make_node("Constant", [], [], value=numpy_helper.from_array(np.zeros(1, "f4")))

    assert [tensor.name for tensor in model_of(node).tensors()] == ["Constant#0.value"]


def test_tensor_in_any_other_attribute_is_named_after_node_and_attribute():
    value = numpy_helper.from_array(np.array([0], dtype="f4"))
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["a"], name="fill", value=value),
        helper.make_node("ConstantOfShape", ["s"], ["b"], value=value),
    ]

    assert [(t.name, t.carrier) for t in model_of(*nodes).tensors()] == [
        ("fill#0.value", Carrier.ATTRIBUTE_TENSOR),
        ("ConstantOfShape#1.value", Carrier.ATTRIBUTE_TENSOR),
    ]


def test_list_of_tensors_is_one_entry_each():
    value = numpy_helper.from_array(np.zeros(3, dtype="f4"))
    node = helper.make_node("Odd", [], ["a"], name="n", domain="my", parts=[value, value], few=[sparse()])

    found = {t.name: (t.numel, t.carrier) for t in model_of(node).tensors()}

    assert found == {
        "n#0.few[0]": (3, Carrier.ATTRIBUTE_TENSOR),
        "n#0.parts[0]": (3, Carrier.ATTRIBUTE_TENSOR),
        "n#0.parts[1]": (3, Carrier.ATTRIBUTE_TENSOR),
    }


def test_lists_of_classical_operators_are_stored_and_those_of_others_are_not():
    nodes = [
        helper.make_node(
            "LinearRegressor", ["x"], ["a"], name="lin", domain="ai.onnx.ml", coefficients=[1.0, 2.0]
        ),
        helper.make_node("Transpose", ["x"], ["b"], perm=[1, 0]),
    ]

    (tensor,) = model_of(*nodes).tensors()

    assert (tensor.name, tensor.carrier) == ("lin#0.coefficients", Carrier.ATTRIBUTE_LIST)
    assert (tensor.dtype, tensor.numel, tensor.nbytes) == (DType.FLOAT, 2, 8)


def test_scalars_of_classical_operators_are_no_tensors():
    node = helper.make_node(
        "LinearRegressor", ["x"], ["a"], domain="ai.onnx.ml", targets=1, post_transform="NONE"
    )

    assert list(model_of(node).tensors()) == []


def referring() -> onnx.NodeProto:
    node = helper.make_node("Constant", [], ["c"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR, ref_attr_name="given")
    return node


def test_attribute_of_the_functions_caller_is_no_tensor_here():
    content = block(25, onnx.FunctionProto(name="f", node=[referring()]).SerializeToString())

    model = read_memory(MemoryFile(block(7) + content))

    assert (list(model.tensors()), model.unread) == ([], ())


def test_attribute_of_a_caller_outside_of_any_function_is_reported():
    model = model_of(referring())

    assert list(model.tensors()) == []
    assert model.unread == (
        (
            "undefined-input",
            ((), "c"),
            "takes its value from an attribute of a function, but is outside any function",
        ),
    )


def test_node_of_too_many_attributes_is_refused():
    with pytest.raises(ModelReadError, match="has more than 65,536 attributes"):
        model_of(block(4, "X") + block(5) * 65_537)


def test_tensor_in_two_pieces_is_one():
    value = block(5, integer(1, 2), block(8, "w")) + block(
        5, integer(1, 3), integer(2, DType.INT8), block(9, bytes(6))
    )
    node = block(2, "c") + block(4, "Constant") + block(5, block(1, "value"), value, integer(20, 4))

    (tensor,) = model_of(node).tensors()

    assert (tensor.shape, tensor.dtype, tensor.nbytes) == ((2, 3), DType.INT8, 6)
    assert tensor.payload.array().shape == (2, 3)


def test_two_attributes_of_one_name_are_two_tensors():
    value = numpy_helper.from_array(np.zeros(3, dtype="f4"))
    node = onnx.NodeProto(op_type="Odd", domain="my")
    node.attribute.extend([helper.make_attribute("v", value), helper.make_attribute("v", value)])

    assert [tensor.key[1] for tensor in model_of(node).tensors()] == ["Odd#0.v", "Odd#0.v#2"]


def test_integers_of_a_node_are_known_and_its_other_attributes_are_not():
    attributes: Mapping[str, object] = {"axis": -1, "to": 10, "alpha": 1.5, "perm": [1, 0], "mode": "text"}

    assert dict(node_of(helper.make_node("Odd", [], [], **attributes)).integers) == {"axis": -1, "to": 10}


def test_stored_list_that_is_broken_is_refused_and_not_dropped():
    attribute = block(1, "offset") + block(7, bytes(5)) + integer(20, 6)
    node = block(4, "Scaler") + block(7, "ai.onnx.ml") + block(5, attribute)

    with pytest.raises(ModelReadError, match=r"\[not-onnx\].*an invalid attribute"):
        model_of(node)


# attributes: protobuf parses their scalars and lists, but only places of tensors and graphs are kept

TENSOR_CONTENT = TensorProto(dims=[2], data_type=1, raw_data=bytes(8)).SerializeToString()
LONG = [block(13, "x" * BIG), b""]
"""A note that makes the attribute too long to be handed to protobuf whole, or no note."""


def attribute_of(content: bytes | AttributeProto) -> Attribute:
    written = content if isinstance(content, bytes) else content.SerializeToString()
    window = Window(MemoryFile(block(5, written)))
    (place,) = window.fields(0, len(block(5, written)))
    return read_attribute(window, place)


@pytest.mark.parametrize("note", LONG, ids=["long", "short"])
@pytest.mark.parametrize(
    ("content", "dtype", "numel", "nbytes", "is_scalar"),
    [
        (helper.make_attribute("a", 300), DType.INT64, 1, 2, True),
        (helper.make_attribute("a", -1), DType.INT64, 1, 10, True),
        (helper.make_attribute("a", 1.5), DType.FLOAT, 1, 4, True),
        (helper.make_attribute("a", "text"), DType.STRING, 1, 4, True),
        (helper.make_attribute("a", [1, 127, 128]), DType.INT64, 3, 4, False),
        (helper.make_attribute("a", [1.5] * 2000), DType.FLOAT, 2000, 8000, False),
        (helper.make_attribute("a", [7] * 5000), DType.INT64, 5000, 5000, False),
        (helper.make_attribute("a", ["ab", "", "c"]), DType.STRING, 3, 3, False),
    ],
)
def test_lists_and_scalars_are_counted_with_the_bytes_of_their_elements(
    content, dtype, numel, nbytes, is_scalar, note
):
    attribute = attribute_of(content.SerializeToString() + note)

    assert attribute.listed == (dtype, numel, nbytes)
    assert (attribute.name, attribute.is_scalar) == ("a", is_scalar)
    assert (attribute.messages, attribute.unknown) == ({}, 0)


@pytest.mark.parametrize("kind", [AttributeProto.FLOATS, AttributeProto.INTS, AttributeProto.STRINGS])
def test_list_of_nothing_has_no_elements(kind):
    assert attribute_of(AttributeProto(name="a", type=kind)).listed[1:] == (0, 0)


def test_list_without_a_type_is_recognized_by_its_content():
    """`type` came with IR 2."""
    assert attribute_of(AttributeProto(name="a", floats=[1, 2])).listed == (DType.FLOAT, 2, 8)


@pytest.mark.parametrize("number", [TENSOR, GRAPH, TENSORS_OF, GRAPHS, SPARSE, SPARSES])
@pytest.mark.parametrize("note", LONG, ids=["long", "short"])
@pytest.mark.parametrize("times", [1, 2])
def test_tensors_and_graphs_are_located_and_not_parsed(number, note, times):
    content = block(1, "a") + block(number, TENSOR_CONTENT) * times + note + integer(20, 4)

    attribute = attribute_of(content)

    places = attribute.messages[number]
    assert [place.end - place.start for place in places] == [len(TENSOR_CONTENT)] * times
    assert (attribute.name, attribute.proto.type, attribute.unknown) == ("a", 4, 0)
    assert not attribute.proto.HasField("t")
    assert not attribute.proto.tensors


@pytest.mark.parametrize("nbytes", [BIG, BIG + 1, 1 << 22])
def test_long_text_is_counted_and_not_read(nbytes):
    """A compiled context for a device may be as large as the model."""
    written = block(1, "ep_cache_context") + block(4, b"\xff" * nbytes) + integer(20, AttributeProto.STRING)
    file = MemoryFile(block(5, written))
    window = Window(file)
    (place,) = window.fields(0, file.nbytes)

    attribute = read_attribute(window, place)

    assert attribute.listed == (DType.STRING, 1, nbytes)
    assert (attribute.name, attribute.is_scalar, attribute.unknown) == ("ep_cache_context", True, 0)
    assert len(attribute.proto.s) == (nbytes if nbytes == BIG else 0)
    assert sum(length for _, length in file.reads) <= 4 * file.step


@pytest.mark.parametrize("sizes", [(BIG + 1, 3), (3, BIG + 1), (BIG + 2, BIG + 1), (BIG + 1, 0)])
def test_of_several_texts_the_last_counts(sizes):
    texts = b"".join(block(4, "x" * size) for size in sizes)

    assert attribute_of(texts + integer(20, AttributeProto.STRING)).listed == (DType.STRING, 1, sizes[-1])


def test_text_beside_a_list_is_no_part_of_it():
    content = block(4, "x" * (BIG + 1)) + block(9, "ab") + integer(20, AttributeProto.STRINGS)

    assert attribute_of(content).listed == (DType.STRING, 1, 2)


@pytest.mark.parametrize("note", LONG, ids=["long", "short"])
@pytest.mark.parametrize("order", [1, -1])
def test_list_and_tensor_in_one_attribute_are_both_found(note, order):
    parts = [block(7, bytes(8)), block(TENSOR, TENSOR_CONTENT), note]

    attribute = attribute_of(b"".join(parts[::order]))

    assert attribute.listed == (DType.FLOAT, 2, 8)
    assert list(attribute.messages) == [TENSOR]
    assert not attribute.proto.HasField("t")


@pytest.mark.parametrize("unknown", UNKNOWN_FIELDS)
@pytest.mark.parametrize("note", LONG, ids=["long", "short"])
@pytest.mark.parametrize(
    "content", [integer(3, 7) + integer(20, 2), block(7, bytes(8)), block(TENSOR, TENSOR_CONTENT)]
)
def test_unknown_fields_are_counted_to_the_byte(unknown, note, content):
    assert attribute_of(block(1, "a") + content + unknown + note).unknown == len(unknown)


def test_unknown_fields_of_a_tensor_inside_are_not_the_attributes():
    assert attribute_of(block(TENSOR, TENSOR_CONTENT + integer(999, 1))).unknown == 0


def test_kind_that_the_format_does_not_define_is_an_unknown_field():
    assert attribute_of(block(1, "a") + integer(20, 77)).unknown == len(integer(20, 77))


def test_graph_deeper_than_protobuf_reads_is_located():
    graph = b""
    for _ in range(60):
        graph = block(1, block(5, block(GRAPH, graph)))

    attribute = attribute_of(block(1, "body") + block(GRAPH, graph) + integer(20, 5))

    assert (attribute.name, len(attribute.messages[GRAPH])) == ("body", 1)


@pytest.mark.parametrize("note", LONG, ids=["long", "short"])
@pytest.mark.parametrize("content", [block(7, bytes(5)), block(8, b"\x80")], ids=["cut float", "cut number"])
def test_list_that_is_broken_is_refused_by_its_place(content, note):
    with pytest.raises(ModelReadError, match="no protobuf message at byte 0: an invalid attribute"):
        attribute_of(block(1, "a") + note + content + integer(20, 6))


def test_numbers_with_more_bytes_than_they_need_are_counted_as_they_would_be_written():
    assert attribute_of(block(8, varint(1, longer=5), varint(2))).listed == (DType.INT64, 2, 2)
