"""Operators that onnxruntime has added: inferred shapes, the cost's shapes, and the algebra's values against a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import helper
from standard import AsStored, are_alike

from analyzer import audit_model
from analyzer.cost.walk import Walk
from analyzer.read import read_model
from analyzer.read.sized import contributed_types
from analyzer.verify.algebra.field import Numbers
from analyzer.verify.algebra.programs import File
from analyzer.verify.algebra.values import Algebra

ort = pytest.importorskip("onnxruntime", reason="needs onnxledger[time]")
pytestmark = pytest.mark.time

CHANCE = np.random.default_rng(5)


def real(*shape: int) -> Any:
    return CHANCE.normal(size=shape).astype(np.float32)


def codes(*shape: int, of: str = "u1") -> Any:
    return CHANCE.integers(0, 100, shape).astype(of)


class Case(NamedTuple):
    """One node, with its inputs; None is an omitted one."""

    operator: str
    inputs: list[Any]
    settings: Mapping[str, Any] = MappingProxyType({})
    outputs: tuple[str, ...] = ("y",)
    domain: str = "com.microsoft"


X, IMAGE = real(2, 3, 8), real(1, 4, 6, 6)
SCALE, STEP, ZERO = np.float32(0.05), np.float32(0.1), np.uint8(3)
CODED = [codes(2, 4, 3, 3), SCALE, ZERO]
QUERY, KEY = real(1, 3, 16), real(1, 3, 8)
NORMED = [X, real(2, 3, 8), real(8), real(8)]
TABLES = [real(16, 4), real(16, 4)]
EMBEDDED = [
    np.array([[1, 2, 3], [4, 0, 0]], "i4"),
    np.zeros((2, 3), "i4"),
    real(10, 8),
    real(16, 8),
    real(2, 8),
]

CASES: dict[str, Case] = {
    "bias and GELU": Case("BiasGelu", [X, real(8)]),
    "GELU": Case("Gelu", [X]),
    "fast GELU": Case("FastGelu", [X, real(8)]),
    "quick GELU": Case("QuickGelu", [X], {"alpha": 1.5}),
    "norm of a sum": Case(
        "SkipLayerNormalization", [*NORMED, real(8)], {"epsilon": 1e-3}, ("y", "", "", "sum")
    ),
    "norm of a sum without biases": Case("SkipLayerNormalization", NORMED[:3], {"epsilon": 1e-3}),
    "root mean square of a sum": Case(
        "SkipSimplifiedLayerNormalization", NORMED[:3], {"epsilon": 1e-3}, ("y", "", "", "sum")
    ),
    "root mean square": Case("SimplifiedLayerNormalization", [X, real(8)], {"epsilon": 1e-3}, domain=""),
    "embeddings and norm": Case(
        "EmbedLayerNormalization",
        [*EMBEDDED, real(8), real(8), np.ones((2, 3), "i4")],
        {},
        ("y", "mask", "sum"),
    ),
    "embeddings without segments": Case(
        "EmbedLayerNormalization",
        [EMBEDDED[0], None, *EMBEDDED[2:4], None, real(8), real(8)],
        {},
        ("y", "mask"),
    ),
    "product": Case("FusedMatMul", [real(2, 3, 4), real(4, 5)], {"alpha": 0.5}),
    "turned product": Case("FusedMatMul", [real(2, 4, 3), real(2, 5, 4)], {"transA": 1, "transB": 1}),
    "product and ReLU": Case(
        "FusedGemm", [real(3, 4), real(5, 4), real(5)], {"transB": 1, "activation": "Relu"}
    ),
    "convolution and ReLU": Case(
        "FusedConv", [IMAGE, real(5, 4, 3, 3), real(5)], {"activation": "Relu", "strides": [2, 1]}
    ),
    "padded convolution and a leaky ReLU": Case(
        "FusedConv",
        [IMAGE, real(5, 4, 3, 3), real(5)],
        {"activation": "LeakyRelu", "activation_params": [0.1], "pads": [1, 1, 1, 1]},
    ),
    "convolution and clip": Case(
        "FusedConv",
        [IMAGE, real(5, 4, 3, 3), real(5)],
        {"activation": "Clip", "activation_params": [0.0, 1.0]},
    ),
    "four bits": Case(
        "MatMulNBits",
        [real(2, 3, 32), codes(8, 1, 16), real(8)],
        {"K": 32, "N": 8, "bits": 4, "block_size": 32},
    ),
    "four bits with zero points": Case(
        "MatMulNBits",
        [real(3, 64), codes(8, 2, 16), real(16), codes(8)],
        {"K": 64, "N": 8, "bits": 4, "block_size": 32},
    ),
    "product with codes": Case(
        "DynamicQuantizeMatMul", [real(2, 3), codes(3, 4), np.array([SCALE]), np.array([ZERO])]
    ),
    "product of codes": Case(
        "MatMulIntegerToFloat", [codes(2, 3), codes(3, 4), SCALE, STEP, ZERO, np.array([ZERO])]
    ),
    "sum of codes": Case("QLinearAdd", [*CODED, codes(4, 1, 3), STEP, ZERO, STEP, ZERO]),
    "products of codes by element": Case("QLinearMul", [*CODED, codes(4, 1, 3), STEP, ZERO, STEP, ZERO]),
    "leaky ReLU of codes": Case("QLinearLeakyRelu", [*CODED, STEP, ZERO], {"alpha": 0.1}),
    "sigmoid of codes": Case("QLinearSigmoid", [*CODED, STEP, ZERO]),
    "softmax of codes": Case(
        "QLinearSoftmax", [*CODED, np.float32(1 / 256), np.uint8(0)], {"axis": -1, "opset": 13}
    ),
    "joined codes": Case("QLinearConcat", [STEP, ZERO, *CODED, codes(2, 2, 3, 3), SCALE, ZERO], {"axis": 1}),
    "average of codes": Case("QLinearGlobalAveragePool", [*CODED, STEP, ZERO], {"channels_last": 0}),
    "average of codes, channels last": Case(
        "QLinearGlobalAveragePool", [*CODED, STEP, ZERO], {"channels_last": 1}
    ),
    "chosen codes": Case(
        "QLinearWhere", [codes(4, 1, 3) > 50, *CODED, codes(4, 1, 3), STEP, ZERO, STEP, ZERO]
    ),
    "product of coded matrices": Case(
        "QGemm", [codes(2, 3), SCALE, ZERO, codes(3, 4), STEP, ZERO, codes(4, of="i4"), STEP, ZERO]
    ),
    "product of coded matrices as numbers": Case(
        "QGemm", [codes(2, 3), SCALE, ZERO, codes(4, 3), STEP, ZERO], {"transB": 1}
    ),
    "convolution of codes, channels last": Case(
        "QLinearConv",
        [codes(1, 6, 6, 4), SCALE, ZERO, codes(5, 4, 3, 3), STEP, ZERO, STEP, ZERO],
        {"channels_last": 1, "strides": [2, 1]},
    ),
    "codes": Case("QuantizeLinear", [X, STEP, ZERO]),
    "decoded": Case("DequantizeLinear", CODED),
    "attention with its projection": Case("Attention", [X, real(8, 24), real(24)], {"num_heads": 2}),
    "attention": Case("MultiHeadAttention", [X, real(2, 5, 8), real(2, 5, 8)], {"num_heads": 2}),
    "attention that keeps keys and values": Case(
        "MultiHeadAttention", [X, real(2, 3, 8), real(2, 3, 8)], {"num_heads": 2}, ("y", "keys", "values")
    ),
    "attention with a past": Case(
        "MultiHeadAttention",
        [X, real(2, 3, 8), real(2, 3, 8), None, None, None, real(2, 2, 4, 4), real(2, 2, 4, 4)],
        {"num_heads": 2},
        ("y", "keys", "values"),
    ),
    "attention to a cache of heads": Case(
        "MultiHeadAttention", [X, real(2, 2, 5, 4), real(2, 2, 5, 4)], {"num_heads": 2}
    ),
    "attention of groups": Case(
        "GroupQueryAttention",
        [QUERY, KEY, KEY, real(1, 1, 4, 8), real(1, 1, 4, 8), np.array([6], "i4"), np.array(7, "i4")],
        {"num_heads": 2, "kv_num_heads": 1},
        ("y", "keys", "values"),
    ),
    "turned positions": Case(
        "RotaryEmbedding", [real(1, 2, 3, 8), np.array([[2, 3, 4]]), *TABLES], {"interleaved": 0}
    ),
    "turned positions in pairs": Case(
        "RotaryEmbedding", [real(1, 2, 3, 8), np.array([[2, 3, 4]]), *TABLES], {"interleaved": 1}
    ),
}

COMPUTED = frozenset(
    {"bias and GELU", "GELU", "fast GELU", "quick GELU", "norm of a sum", "norm of a sum without biases"}
    | {"root mean square of a sum", "root mean square", "product", "turned product", "convolution and ReLU"}
    | {"padded convolution and a leaky ReLU", "product with codes", "product of codes", "attention"}
    | {"attention that keeps keys and values"}
    | {"attention to a cache of heads", "turned positions"}
)
"""Cases that the algebra computes; of the others it says that they are not supported."""


def model_of(case: Case) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model of the case's node, and its inputs by name."""
    names = ["" if value is None else f"x{place}" for place, value in enumerate(case.inputs)]
    inputs = {name: np.asarray(value) for name, value in zip(names, case.inputs, strict=True) if name}
    node = helper.make_node(case.operator, names, case.outputs, "node", domain=case.domain, **case.settings)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in case.outputs if name],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), inputs


def run(model: onnx.ModelProto, inputs: dict[str, Any]) -> dict[str, Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_shapes_and_values_are_those_of_a_run(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model, inputs = model_of(case)
    expected = run(model, inputs)

    types = [
        None if value is None else (helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value))
        for value in case.inputs
    ]
    inferred = contributed_types(model.graph.node[0], types)
    assert len(inferred) >= len(case.outputs)
    for output, (kind, shape) in zip(case.outputs, inferred, strict=False):
        if output:
            assert shape == expected[output].shape, f"inferred: {output}"
            assert kind == helper.np_dtype_to_tensor_dtype(expected[output].dtype)

    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    walk = Walk(read_model(path))
    list(walk.run())
    for output, array in expected.items():
        assert walk.values[()][output].shape == array.shape, f"cost: {output}"

    algebra = Algebra(0, Numbers(), is_first=True)
    file = File(algebra, audit_model(path), AsStored(), inputs, lambda node, place, value: value)
    file.run()
    for output, array in expected.items():
        found = file.values.get(output)
        assert found is None or are_alike(found, array), f"algebra: {output}"
    assert (file.values.get("y") is not None) == (name in COMPUTED)
