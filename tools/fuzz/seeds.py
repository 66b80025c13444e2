"""Seed inputs of fuzzing: a small model of each kind, and the small files of the hostile corpus."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from hostile import generator, make_corpus
from onnx import TensorProto, helper, numpy_helper

__all__ = ["small_models", "write_seeds"]

HEADER = '<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1, "ai.onnx.ml" : 3]>\n'


def write_seeds(folder: Path, longest: int) -> None:
    """Write one file for each, named by its content, so that a second call changes nothing."""
    for content in (*small_models(), *_hostile()):
        if 0 < len(content) <= longest:
            (folder / hashlib.sha1(content, usedforsecurity=False).hexdigest()).write_bytes(content)


def _hostile() -> Iterator[bytes]:
    if generator() is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        for case in make_corpus(Path(folder, "corpus")):
            if case.path.is_file() and case.path.stat().st_size < 1 << 20:
                yield case.path.read_bytes()


def small_models() -> Iterator[bytes]:
    """Yield a small model of each kind that the reader tells apart."""
    for text in _TEXTS:
        yield onnx.parser.parse_model(HEADER + text).SerializeToString()
    yield from (
        model.SerializeToString() for model in (*_tensors(), _attributes(), _noted(), _sparse(), _training())
    )


_TEXTS = (
    "agraph (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }",
    """agraph (float[2,3] x) => (float[2,3] z)
    <float[3,3] w = {1,2,3,4,5,6,7,8,9}, float[3,3] v = {1,4,7,2,5,8,3,6,9}> {
        [a_b] y = MatMul(x, w)
        [a_c] z = MatMul(y, v)
    }""",
    """agraph (bool c, float[2] x) => (float[2] y) {
        y = If (c) <
            then_branch = a () => (float[2] t) <float[2] w = {1, 2}> { t = Add(x, w) },
            else_branch = b () => (float[2] t) { k = Constant <value = float[2] {3, 4}> () t = Mul(x, k) }
        >
    }""",
    """agraph (float[2] x) => (float[2] y) {
        k = Constant <value_floats = [1.0, 2.0]> ()
        n = Constant <value_int = 3> ()
        s = Constant <value_strings = ["a", "b"]> ()
        y = Add(x, k)
    }""",
    """agraph (float[1,2] x) => (float[1,1] y) {
        y = ai.onnx.ml.LinearRegressor <coefficients = [1.0, 2.0], intercepts = [0.5]> (x)
    }""",
    """agraph (float[2] x) => (float[2] y) <int64[1] s = {2}> {
        k = ConstantOfShape <value = float[1] {1}> (s)
        y = local.f <alpha = 2.0> (x)
    }
    <domain: "local", opset_import: ["" : 18]>
    f <alpha> (a) => (b) { k = Constant <value_float: float = @alpha> () b = Mul(a, k) }""",
    """agraph (float[1,32] x) => (float[1,8] y) <uint8[8,1,16] q, float[8] s = {1,2,3,4,5,6,7,8}> {
        y = com.microsoft.MatMulNBits <K = 32, N = 8, bits = 4, block_size = 32> (x, q, s)
    }""",
)


def _tensors() -> Iterator[onnx.ModelProto]:
    """Yield every element type, in `raw_data`, in a typed list, and in another file."""
    for number in TensorProto.DataType.values():
        if number in (TensorProto.UNDEFINED, TensorProto.STRING):
            continue
        raw = TensorProto(name="raw", dims=[4], data_type=number, raw_data=bytes(range(16)))
        listed = TensorProto(name="listed", dims=[2], data_type=number)
        listed.int32_data.extend([1, 2])
        external = TensorProto(name="w", dims=[2], data_type=number, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "w.bin"), ("offset", "8"), ("length", "8")):
            external.external_data.add(key=key, value=value)
        yield _model([helper.make_node("Sum", ["raw", "listed", "w"], ["y"])], [raw, listed, external])
    yield _model(
        [helper.make_node("Sum", list("abcdefg"), ["y"])],
        [
            TensorProto(name="a", dims=[2], data_type=TensorProto.FLOAT, float_data=[1, 2]),
            TensorProto(name="b", dims=[2], data_type=TensorProto.INT64, int64_data=[1, -2]),
            TensorProto(name="c", dims=[2], data_type=TensorProto.DOUBLE, double_data=[1, 2]),
            TensorProto(name="d", dims=[2], data_type=TensorProto.UINT64, uint64_data=[1, 1 << 63]),
            TensorProto(name="e", dims=[2], data_type=TensorProto.STRING, string_data=[b"x", b"y"]),
            TensorProto(name="f", dims=[1], data_type=TensorProto.COMPLEX64, float_data=[1, 2]),
            numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "layer.0.weight"),
        ],
    )


def _attributes() -> onnx.ModelProto:
    tensor = numpy_helper.from_array(np.arange(4, dtype=np.int64))
    inner = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "inner", [], [])
    node = helper.make_node(
        "Odd", ["x"], ["y"], name="n", domain="custom", t=tensor, ts=[tensor, tensor], i=1, f=2.0
    )
    node.attribute.append(helper.make_attribute("g", inner))
    node.attribute.append(helper.make_attribute("gs", [inner, inner]))
    node.attribute.append(helper.make_attribute("s", "text"))
    trees = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["z"],
        domain="ai.onnx.ml",
        nodes_values=[1.0, 2.0],
        nodes_modes=["LEAF", "LEAF"],
    )
    return _model([node, trees], [])


def _noted() -> onnx.ModelProto:
    """Return a model with the notes of a traced export."""
    weight = numpy_helper.from_array(np.ones((2, 2), dtype=np.float32), "layer.0.weight")
    model = _model([helper.make_node("MatMul", ["x", "val_1"], ["y"], name="node_1")], [weight])
    model.graph.initializer.append(numpy_helper.from_array(np.eye(2, dtype=np.float32), "val_1"))
    notes = {
        "pkg.torch.onnx.name_scopes": "['', 'layer.0', 'linear']",
        "namespace": ": Model/layer.0: Linear/linear: aten.linear",
        "pkg.torch.onnx.fx_node": "%linear : [num_users=1] = call_function[target=x](args = (%x, %p_layer_0_weight))",
    }
    for key, value in notes.items():
        model.graph.node[0].metadata_props.add(key=key, value=value)
    value_info = model.graph.value_info.add(name="val_1")
    value_info.metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value="['layer.0.weight']")
    value_info.metadata_props.add(key="pkg.torch.export.graph_signature.InputSpec.kind", value="PARAMETER")
    annotation = model.graph.quantization_annotation.add(tensor_name="x")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="val_1")
    model.metadata_props.add(key="k", value="v")
    model.doc_string = "text"
    return model


def _sparse() -> onnx.ModelProto:
    values = numpy_helper.from_array(np.array([1, 2], dtype=np.float32), "s")
    indices = numpy_helper.from_array(np.array([0, 3], dtype=np.int64), "i")
    model = _model([helper.make_node("Add", ["x", "s"], ["y"])], [])
    model.graph.sparse_initializer.add(values=values, indices=indices, dims=[4])
    sparse = model.graph.sparse_initializer[0]
    constant = helper.make_node("Constant", [], ["k"], sparse_value=sparse)
    model.graph.node.append(constant)
    return model


def _training() -> onnx.ModelProto:
    model = _model([helper.make_node("Identity", ["x"], ["y"])], [])
    inner = onnx.parser.parse_graph("g (float[2] a) => (float[2] b) <float[2] w = {1, 2}> { b = Add(a, w) }")
    model.training_info.add(initialization=inner, algorithm=inner)
    return model


def _model(nodes: list[onnx.NodeProto], tensors: list[TensorProto]) -> onnx.ModelProto:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    graph = helper.make_graph(
        nodes, "g", [value], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    )
    graph.initializer.extend(tensors)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
