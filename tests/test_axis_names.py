"""Axes of an export have meaningful names, one for each independent size."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("torch")
from exporter.export import name_axes, name_axes_of

BERT = {
    "input_ids": {0: "batch", 1: "sequence"},
    "attention_mask": {0: "batch", 1: "sequence"},
}


def model(**shapes: list[str | int]) -> onnx.ModelProto:
    """Return a model with these inputs, and one output with twice the first input's leading size."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in shapes.items()]
    first = next(iter(shapes))
    output = helper.make_tensor_value_info("y", TensorProto.INT64, [f"2*{shapes[first][0]}", "s41 - 1"])
    node = helper.make_node("Identity", [first], ["y"])
    return helper.make_model(helper.make_graph([node], "g", inputs, [output]))


def sizes(proto: onnx.ModelProto) -> dict[str, list[str | int]]:
    values = (*proto.graph.input, *proto.graph.output)
    return {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


def test_symbols_have_the_names_of_their_axes_wherever_they_stand():
    proto = model(input_ids=["s18", "s41"], attention_mask=["s43", "s41"])

    names = name_axes_of(proto, BERT)

    assert names == {"s18": "batch", "s41": "sequence", "s43": "attention_mask_batch"}
    assert sizes(proto) == {
        "input_ids": ["batch", "sequence"],
        "attention_mask": ["attention_mask_batch", "sequence"],
        "y": ["2*batch", "sequence - 1"],
    }


@pytest.mark.parametrize("shape", [[2, 8], ["batch", "tokens"]], ids=["fixed", "named"])
def test_axes_that_are_fixed_or_named_stay(shape):
    proto = model(input_ids=shape)

    assert name_axes_of(proto, BERT) == {}
    assert sizes(proto)["input_ids"] == shape


def test_a_name_that_the_file_has_already_is_not_given_to_another_axis():
    proto = model(input_ids=["s18", "s41"], past=["batch", 4])

    assert name_axes_of(proto, BERT)["s18"] == "input_ids_batch"


def test_a_file_is_written_once_more_only_where_it_has_symbols(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(model(input_ids=["s18", "s41"]), path)

    name_axes(path, BERT)
    renamed = path.read_bytes()
    name_axes(path, BERT)

    assert sizes(onnx.load(path))["input_ids"] == ["batch", "sequence"]
    assert path.read_bytes() == renamed
