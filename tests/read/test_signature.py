"""The types of a graph's inputs."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from models import save, text_model
from onnx import TensorProto, helper

from analyzer.dtypes import DType
from analyzer.model import ValueType
from analyzer.read import read_model
from analyzer.read.signature import MAX_RANK, read_type


def signature(folder: Path, proto: onnx.ModelProto) -> tuple[ValueType, ...]:
    return read_model(save(folder, proto)).graphs[0].signature


def model_of(*inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    proto = text_model("g (float x) => (float y) { y = Identity(x) }")
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    return proto


def test_tensor_has_its_type_and_each_axis_its_size_its_name_or_nothing(tmp_path):
    proto = model_of(helper.make_tensor_value_info("x", TensorProto.INT64, [2, "s18", None]))

    assert signature(tmp_path, proto) == (ValueType("x", "tensor", DType.INT64, (2, "s18", None)),)


def test_scalar_has_no_axes_and_an_unknown_rank_no_tuple(tmp_path):
    scalar = helper.make_tensor_value_info("x", TensorProto.BOOL, [])
    unknown = helper.make_tensor_value_info("y", TensorProto.BOOL, None)

    assert [given.dims for given in signature(tmp_path, model_of(scalar, unknown))] == [(), None]


def test_initializers_that_are_inputs_too_are_left_out(tmp_path):
    text = "g (float[1] x, float[1] w) => (float[1] y) <float[1] w = {1}> { y = Add(x, w) }"
    proto = text_model(text)
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]))

    graph = read_model(save(tmp_path, proto)).graphs[0]

    assert tuple(given.name for given in graph.signature) == graph.inputs == ("x",)


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
    (given,) = signature(tmp_path, model_of(onnx.ValueInfoProto(name="x", type=proto)))

    assert (given.kind, given.dtype) == (kind, dtype)


def test_nested_graphs_have_no_signature(tmp_path):
    text = """
        g (bool c, float[2] x) => (float[2] y)
        { y = If(c) <then_branch = t () => (float[2] a) { a = Neg(x) },
                     else_branch = e () => (float[2] b) { b = Abs(x) }> }
    """

    main, *nested = read_model(save(tmp_path, text_model(text))).graphs

    assert [given.name for given in main.signature] == ["c", "x"]
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
    proto = model_of(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["axis"]))
    path = save(tmp_path, proto.SerializeToString().replace(b"axis", b"ax\xffs"))

    assert read_model(path).graphs[0].signature[0].dims == ("ax\\xffs",)
