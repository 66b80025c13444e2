"""The float twin of each operator on codes computes what the codes stand for, as onnxruntime's runs of both show."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from analyzer.verify.twin import RefusedError, make_twin

ort = pytest.importorskip("onnxruntime", reason="needs onnxledger[time]")
pytestmark = pytest.mark.time

CHANCE = np.random.default_rng(7)
STEP, ZERO = np.float32(0.03), np.uint8(128)
OUT, OUT_ZERO = np.float32(0.05), np.uint8(120)


class Case(NamedTuple):
    """Operator on codes; `x` and `z` are codes of the model's inputs, arrays are stored."""

    operator: str
    inputs: list[Any]
    settings: Mapping[str, Any] = MappingProxyType({})
    shape: tuple[int, ...] = (2, 4, 6, 6)
    step: float = float(OUT)
    """Step of the result's codes."""
    is_coded: bool = True
    """Whether the result is codes; else they are real numbers, or integers for `scale`."""
    domain: str = "com.microsoft"
    scale: float = 0.0
    """Size of the unit of the result's integers, if it is integers."""


def weight(*shape: int) -> Any:
    return CHANCE.integers(60, 190, shape).astype(np.uint8)


X, Z = ["x", STEP, ZERO], ["z", STEP, ZERO]
Y, WIDE = [OUT, OUT_ZERO], [np.float32(0.2), OUT_ZERO]
KERNEL, SQUARE = weight(5, 4, 3, 3), weight(6, 6)
W_STEP = np.float32(0.01)
BIAS = CHANCE.integers(-500, 500, 5).astype(np.int32)

CASES: dict[str, Case] = {
    "sum": Case("QLinearAdd", [*X, *Z, *Y]),
    "product by element": Case("QLinearMul", [*X, *Z, *Y]),
    "sigmoid": Case("QLinearSigmoid", [*X, np.float32(1 / 256), np.uint8(0)], step=1 / 256),
    "leaky ReLU": Case("QLinearLeakyRelu", [*X, *Y], {"alpha": 0.2}),
    "average of all": Case("QLinearGlobalAveragePool", [*X, np.float32(0.01), ZERO], step=0.01),
    "average": Case("QLinearAveragePool", [*X, *Y], {"kernel_shape": [2, 2]}),
    "softmax": Case(
        "QLinearSoftmax", [*X, np.float32(1 / 256), np.uint8(0)], {"axis": -1, "opset": 13}, step=1 / 256
    ),
    "joined": Case("QLinearConcat", [*Y, *X, *Z], {"axis": 1}),
    "chosen": Case("QLinearWhere", [CHANCE.random((6, 6)) > 0.5, *X, *Z, *Y]),
    "product": Case("QLinearMatMul", [*X, SQUARE, W_STEP, ZERO, *WIDE], step=0.2, domain=""),
    "product by column": Case(
        "QLinearMatMul",
        [*X, SQUARE, (0.01 * np.arange(1, 7)).astype("f4"), np.full(6, ZERO), *WIDE],
        step=0.2,
        domain="",
    ),
    "convolution": Case(
        "QLinearConv", [*X, KERNEL, W_STEP, ZERO, *WIDE, BIAS], {"pads": [1, 1, 1, 1]}, step=0.2, domain=""
    ),
    "convolution by channel": Case(
        "QLinearConv",
        [*X, KERNEL, (0.01 * np.arange(1, 6)).astype("f4"), np.full(5, ZERO), *WIDE, BIAS],
        step=0.2,
        domain="",
    ),
    "general product": Case(
        "QGemm", [*X, SQUARE, W_STEP, ZERO, BIAS[[0, 1, 2, 3, 4, 0]], *WIDE], step=0.2, shape=(3, 6)
    ),
    "general product, turned and scaled": Case(
        "QGemm",
        [*X, weight(5, 6), W_STEP, ZERO, BIAS],
        {"transB": 1, "alpha": 0.5},
        shape=(3, 6),
        is_coded=False,
    ),
    "product of integers as numbers": Case(
        "MatMulIntegerToFloat", ["x", SQUARE, STEP, W_STEP, ZERO, np.array([ZERO])], is_coded=False
    ),
    "product with stored codes": Case(
        "DynamicQuantizeMatMul", ["real", SQUARE, np.array([W_STEP]), np.array([ZERO])], is_coded=False
    ),
    "product of integers": Case(
        "MatMulInteger", ["x", SQUARE, ZERO, ZERO], is_coded=False, domain="", scale=float(STEP * W_STEP)
    ),
    "convolution of integers": Case(
        "ConvInteger", ["x", KERNEL, ZERO, ZERO], is_coded=False, domain="", scale=float(STEP * W_STEP)
    ),
}

CHANNELS_LAST = {
    "average of all": Case("QLinearGlobalAveragePool", [*X, *Y], {"channels_last": 1}),
    "convolution": Case("QLinearConv", [*X, weight(5, 6, 3, 3), W_STEP, ZERO, *Y], {"channels_last": 1}),
}


def model_of(case: Case) -> onnx.ModelProto:
    """Return float inputs, their codes, the operator, and a float output."""
    stored: dict[str, Any] = {"step": STEP, "zero": ZERO, "out": OUT, "unit": np.float32(case.scale)}
    names = []
    for place, value in enumerate(case.inputs):
        names.append(value if isinstance(value, str) else f"c{place}")
        if not isinstance(value, str):
            stored[names[-1]] = np.asarray(value)
    nodes = [
        helper.make_node("QuantizeLinear", ["real", "step", "zero"], ["x"]),
        helper.make_node("QuantizeLinear", ["other", "step", "zero"], ["z"]),
        helper.make_node(case.operator, names, ["codes"], "operator", domain=case.domain, **case.settings),
    ]
    if case.is_coded:
        last = (
            0
            if case.operator == "QLinearConcat"
            else next(
                place for place in reversed(range(len(names))) if isinstance(case.inputs[place], np.float32)
            )
        )
        nodes.append(helper.make_node("DequantizeLinear", ["codes", names[last], names[last + 1]], ["y"]))
    elif case.scale:
        nodes.append(helper.make_node("Cast", ["codes"], ["numbers"], to=onnx.TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", ["numbers", "unit"], ["y"]))
    else:
        nodes.append(helper.make_node("Identity", ["codes"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, case.shape) for n in ("real", "other")],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def run(model: onnx.ModelProto, shape: tuple[int, ...]) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    chance = np.random.default_rng(3)
    inputs = {name: chance.uniform(-2, 2, shape).astype(np.float32) for name in ("real", "other")}
    return session.run(["y"], inputs)[0]


@pytest.mark.parametrize("name", CASES)
def test_the_twin_computes_what_the_codes_stand_for(name: str) -> None:
    case = CASES[name]
    model = model_of(case)
    expected = run(model, case.shape)

    twin = make_twin(model)

    found = run(model, case.shape)
    assert not [node for node in model.graph.node if node.op_type == case.operator]
    assert twin.products == (case.operator not in ELEMENTWISE)
    assert found.shape == expected.shape
    # Inputs are rounded by half a step, and so is the result.
    largest = float(np.abs(expected).max())
    np.testing.assert_allclose(found, expected, atol=0.02 * largest + 2 * case.step)
    assert np.abs(found - expected).mean() < 0.01 * largest + 0.5 * case.step


ELEMENTWISE = frozenset(
    {"QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool"}
    | {"QLinearAveragePool", "QLinearSoftmax", "QLinearConcat", "QLinearWhere"}
)
"""Operators without a product of weights."""


@pytest.mark.parametrize(
    ("mode", "code"),
    [("constant", ZERO), ("constant", np.uint8(140)), ("constant", None), ("reflect", None)],
    ids=["zero point", "another code", "code 0", "reflected"],
)
def test_padding_of_codes_is_the_number_that_its_code_stands_for(mode: str, code: np.uint8 | None) -> None:
    stored = {"step": STEP, "zero": ZERO, "pads": np.array([0, 0, 1, 2, 0, 0, 1, 0], np.int64)}
    names = ["x", "pads"]
    if code is not None:
        stored["code"] = code
        names.append("code")
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["real", "step", "zero"], ["x"]),
            helper.make_node("Pad", names, ["codes"], mode=mode),
            helper.make_node("DequantizeLinear", ["codes", "step", "zero"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (2, 4, 6, 6)) for n in ("real", "other")],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    expected = run(model, (2, 4, 6, 6))

    twin = make_twin(model)
    found = run(twin.model, (2, 4, 6, 6))

    difference = np.abs(found - expected)
    assert difference.max() <= STEP / 2 + 1e-6
    assert mode != "constant" or difference[:, :, 0].max() <= 1e-6  # a row of padding alone


@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_an_operator_with_channels_last_is_refused(name: str) -> None:
    with pytest.raises(RefusedError, match="channels_last"):
        make_twin(model_of(CHANNELS_LAST[name]))


DYNAMIC: dict[str, tuple[str, bool]] = {
    "decoded as it is": ("y = DequantizeLinear(q, s, z)", False),
    "decoded by hand": (
        "c = Cast <to = 1> (q) d = Cast <to = 1> (z) e = Sub(c, d) y = Mul(e, s)",
        False,
    ),
    "moved and decoded": (
        "qt = Transpose <perm = [1, 0]> (q) yt = DequantizeLinear(qt, s, z) y = Transpose <perm = [1, 0]> (yt)",
        False,
    ),
    "decoded without its zero point": ("y = DequantizeLinear(q, s)", True),
    "decoded with another scale": ("y = DequantizeLinear(q, s2, z)", True),
    "decoded with another zero point": ("y = DequantizeLinear(q, s, z2)", True),
    "decoded with a stored zero point": ("y = DequantizeLinear(q, s, stored_zero)", True),
    "its scale is a factor": ("y = Mul(real, s)", True),
    "its zero point is a term": ("d = Cast <to = 1> (z) y = Add(real, d)", True),
    "multiplied": (
        "p = MatMulInteger(q, weight, z) f = Cast <to = 1> (p) u = Mul(s, step) y = Mul(f, u)",
        False,
    ),
    "multiplied without its zero point": (
        "p = MatMulInteger(q, weight) f = Cast <to = 1> (p) u = Mul(s, step) y = Mul(f, u)",
        True,
    ),
    "multiplied with another zero point": (
        "p = MatMulInteger(q, weight, z2) f = Cast <to = 1> (p) u = Mul(s, step) y = Mul(f, u)",
        True,
    ),
    "multiplied, and another scale": (
        "p = MatMulInteger(q, weight, z) f = Cast <to = 1> (p) u = Mul(s2, step) y = Mul(f, u)",
        True,
    ),
    "multiplied to floats": ("y = com.microsoft.MatMulIntegerToFloat(q, weight, s, step, z)", False),
    "multiplied to floats without its zero point": (
        "y = com.microsoft.MatMulIntegerToFloat(q, weight, s, step)",
        True,
    ),
    "multiplied to floats, and another scale": (
        "y = com.microsoft.MatMulIntegerToFloat(q, weight, s2, step, z)",
        True,
    ),
}
"""Nodes behind the codes `q`, scale `s` and zero point `z` of `real`, and the same `q2`, `s2`, `z2` of other numbers;
then whether they compute something else than right nodes do."""


def dynamic_model(nodes: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[6,6] real, float[6,6] other) => (float[6,6] y)
        <float step = {0.01}, uint8 stored_zero = {60}>
        {
            q, s, z = DynamicQuantizeLinear(real)
            large = Exp(other)
            q2, s2, z2 = DynamicQuantizeLinear(large)
        """
        + nodes
        + "}"
    )
    signed = (weight(6, 6).astype(np.int16) - 128).astype(np.int8)
    model.graph.initializer.append(numpy_helper.from_array(signed, "weight"))
    return model


@pytest.mark.parametrize("name", DYNAMIC)
def test_codes_of_a_dynamic_quantizer_mean_what_their_scale_and_zero_point_make_of_them(name: str) -> None:
    nodes, is_wrong = DYNAMIC[name]
    model = dynamic_model(nodes)
    right = "multiplied" if "multiplied" in name else "decoded as it is"
    meant = dynamic_model(DYNAMIC[right][0])
    meant.graph.initializer[-1].CopyFrom(model.graph.initializer[-1])
    expected = run(model, (6, 6))

    make_twin(model)
    make_twin(meant)

    found = run(model, (6, 6))
    np.testing.assert_allclose(found, expected, atol=0.03 * float(np.abs(expected).max()))
    distance = np.abs(found - run(meant, (6, 6))).max() / np.abs(found).max()
    assert (distance > 0.1) if is_wrong else (distance < 1e-5)
