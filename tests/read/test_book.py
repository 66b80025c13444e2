"""Records of one pass over a file: names, each once, and the number of objects."""

from __future__ import annotations

import onnx
import pytest
from memory import MemoryFile, opened, read_memory
from models import raw, save, text_model
from onnx import TensorProto, helper

from analyzer.errors import ModelReadError
from analyzer.model import Model
from analyzer.read import MAX_OBJECTS, read_model
from analyzer.read.book import INSIDE, ORPHANED, STRUCTURE, Names


def model_of(graph: onnx.GraphProto | bytes) -> Model:
    content = graph if isinstance(graph, bytes) else onnx.ModelProto(graph=graph).SerializeToString()
    return read_memory(MemoryFile(content))


# names


def test_each_name_is_one_object_whatever_it_was_made_of():
    names = Names()

    assert names[b"weight"] == names["weight"] == "weight"
    assert names[b"weight"] is names["".join(["wei", "ght"])]


def test_name_that_is_no_utf8_is_escaped_and_noted():
    names = Names()

    assert names[b"w\xff\xfe"] == r"w\xff\xfe"
    assert names.not_utf8 == {r"w\xff\xfe"}


def test_name_that_is_no_utf8_is_escaped_and_its_readers_find_it(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) <float[2] wname = {1, 2}> { y = Add(x, wname) }")
    crafted = proto.SerializeToString().replace(b"wname", b"w\xff\xfe\x80e")

    model = read_model(save(tmp_path, crafted))

    (tensor,) = model.tensors()
    assert tensor.name == r"w\xff\xfe\x80e"
    assert next(model.nodes()).inputs == ("x", r"w\xff\xfe\x80e")
    assert model.not_utf8 == (r"w\xff\xfe\x80e",)


def test_two_names_that_differ_in_their_bytes_only_stay_two():
    graph = onnx.GraphProto(
        initializer=[raw(name, [1], TensorProto.INT8, b"\1") for name in ("name1", "name2")]
    )
    content = onnx.ModelProto(graph=graph).SerializeToString()
    for index in (1, 2):
        content = content.replace(f"name{index}".encode(), b"\xff\xfe\xfd\xfc" + bytes([0xF0 + index]))

    assert len({tensor.key for tensor in model_of(content).tensors()}) == 2


@pytest.mark.parametrize(
    ("name", "is_odd"),
    [
        ("layer.0.weight", False),
        ("名前 ü", False),
        ("no-break\u00a0space", False),
        ("clear\x1b[2J", True),
        ("two\nlines", True),
        ("nul\0", True),
        ("\u202egpj", True),
        ("zero\u200bwidth", True),
        ("line\u2028separator", True),
        ("c1\x9b", True),
    ],
)
def test_names_that_steer_a_terminal_or_hide_are_noted(name, is_odd):
    graph = onnx.GraphProto(node=[helper.make_node("Relu", [name], ["y"])])

    assert model_of(graph).odd_names == ((name,) if is_odd else ())


@pytest.mark.parametrize("field", ["op_type", "name", "input", "domain", "initializer", "output", "value"])
def test_odd_names_are_found_wherever_they_stand(field):
    odd = "odd\x1b"
    node = onnx.NodeProto(op_type="Relu")
    graph = onnx.GraphProto(node=[node])
    if field == "initializer":
        graph.initializer.append(raw(odd, [1], TensorProto.INT8, b"1"))
    elif field == "output":
        graph.output.add(name=odd)
    elif field == "value":
        graph.quantization_annotation.add(tensor_name=odd)
    elif field == "input":
        graph.node[0].input.append(odd)
    else:
        setattr(graph.node[0], field, odd)

    assert model_of(graph).odd_names == (odd,)


# number of objects


def relus(count: int) -> onnx.ModelProto:
    return onnx.ModelProto(graph=onnx.GraphProto(node=[helper.make_node("Relu", ["x"], ["y"])] * count))


def test_as_many_nodes_as_the_limit_are_read(tmp_path):
    path = save(tmp_path, relus(10))

    assert sum(1 for _ in read_model(path, max_objects=10).nodes()) == 10
    with pytest.raises(ModelReadError, match=r"holds more than 9 nodes and tensors.*--max-objects"):
        read_model(path, max_objects=9)


def test_nodes_and_initializers_are_counted_together(tmp_path):
    proto = relus(5)
    proto.graph.initializer.extend([raw("w", [1], TensorProto.INT8, b"1")] * 5)

    with pytest.raises(ModelReadError, match="holds more than 9 nodes and tensors"):
        read_model(save(tmp_path, proto), max_objects=9)


def test_inputs_outputs_and_notes_on_values_are_counted_too(tmp_path):
    proto = relus(1)
    for number in range(5):
        proto.graph.input.add(name=f"x{number}")
        proto.graph.output.add(name=f"y{number}")
    proto.graph.value_info.extend([onnx.ValueInfoProto()] * 16)

    assert read_model(save(tmp_path, proto), max_objects=15)
    with pytest.raises(ModelReadError, match="holds more than 14 nodes and tensors"):
        read_model(save(tmp_path, proto), max_objects=14)


@pytest.mark.parametrize("what", ["nested", "function", "training"])
def test_nodes_are_counted_in_every_graph(tmp_path, what):
    inner = relus(10).graph
    proto = onnx.ModelProto(graph=onnx.GraphProto())
    if what == "nested":
        proto.graph.node.append(helper.make_node("If", [], [], then_branch=inner))
    elif what == "function":
        proto.functions.add(name="f").node.extend(inner.node)
    else:
        proto.training_info.add().algorithm.CopyFrom(inner)

    with pytest.raises(ModelReadError, match="holds more than 9 nodes and tensors"):
        read_model(save(tmp_path, proto), max_objects=9)


def test_million_empty_nodes_are_refused_at_once():
    content = b"\x3a\x80\x89\x7a" + b"\x0a\x00" * 1_000_000

    with (
        opened(MemoryFile(content)),
        pytest.raises(ModelReadError, match=f"holds more than {MAX_OBJECTS:,} nodes and tensors"),
    ):
        read_model("/memory/model.onnx")


@pytest.mark.parametrize("what", ["functions", "training graphs", "nested graphs"])
def test_graphs_are_counted_too(tmp_path, what):
    proto = onnx.ModelProto(graph=onnx.GraphProto(node=[onnx.NodeProto()]))
    if what == "functions":
        proto.functions.extend([onnx.FunctionProto(name=str(index)) for index in range(20)])
    elif what == "training graphs":
        proto.training_info.extend([onnx.TrainingInfoProto()] * 20)
    else:
        proto.graph.node[0].attribute.add(name="g", graphs=[onnx.GraphProto()] * 20)

    with pytest.raises(ModelReadError, match="holds more than 9"):
        read_model(save(tmp_path, proto), max_objects=9)


def test_tensors_of_attributes_are_counted_too(tmp_path):
    node = onnx.NodeProto()
    node.attribute.add(name="t", tensors=[onnx.TensorProto()] * 9)
    path = save(tmp_path, onnx.ModelProto(graph=onnx.GraphProto(node=[node])))

    assert len(list(read_model(path, max_objects=10).tensors())) == 9
    with pytest.raises(ModelReadError, match="holds more than 9 nodes and tensors"):
        read_model(path, max_objects=9)


# accounts


def test_structure_lists_every_account_also_where_it_is_empty():
    model = model_of(onnx.GraphProto())

    assert [account for account, _ in model.structure] == list(STRUCTURE)
    assert set(STRUCTURE) == {*INSIDE, ORPHANED}


def test_opsets_are_counted_too(tmp_path):
    proto = onnx.ModelProto(graph=onnx.GraphProto(name="g"))
    for index in range(20):
        proto.opset_import.add(domain=f"d{index}", version=1)
    path = save(tmp_path, proto)

    assert len(read_model(path, max_objects=20).opsets) == 20
    with pytest.raises(ModelReadError, match="more than 19 nodes and tensors"):
        read_model(path, max_objects=19)


def test_tensor_of_thousands_of_external_keys_is_refused(tmp_path):
    tensor = TensorProto(name="w", dims=[1], data_type=1, data_location=TensorProto.EXTERNAL)
    for index in range(2000):
        tensor.external_data.add(key=f"k{index}", value="v")

    with pytest.raises(ModelReadError, match="more than 1,024 keys of external data"):
        model_of(onnx.GraphProto(initializer=[tensor]))
