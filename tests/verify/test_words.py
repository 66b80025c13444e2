"""PyTorch calls and the ONNX nodes for them are one value of the algebra; with any change they are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from analyzer.model import Node
from analyzer.verify.algebra.calls import call
from analyzer.verify.algebra.field import Numbers, draw
from analyzer.verify.algebra.nodes import Operation, operate
from analyzer.verify.algebra.values import Algebra, Field, UnknownError, Value, is_known

REAL: Mapping[str, tuple[int, ...]] = {
    "x": (4, 6),
    "y": (4, 6),
    "rows": (3, 6),
    "few": (4, 3),
    "image": (2, 3, 7, 8),
    "weights": (3, 6, 5),
    "w": (6, 5),
    "kernel": (4, 3, 3, 3),
}
WHOLE: Mapping[str, tuple[int, ...]] = {"at": (3,), "other": (3,), "grid": (4, 3), "ends": (3,)}
TRUE: Mapping[str, tuple[int, ...]] = {"mask": (4, 6)}


def drawn(name: str) -> Value:
    for kind, table in (("real", REAL), ("whole", WHOLE), ("truth", TRUE)):
        if name in table:
            return Field(draw(table[name], name), kind)
    raise KeyError(name)


def filled(value: Any) -> Any:
    """Replace the names of drawn values by the values."""
    if isinstance(value, list):
        return [filled(each) for each in value]
    return drawn(value) if isinstance(value, str) and (value in {**REAL, **WHOLE, **TRUE}) else value


@dataclass(frozen=True)
class Op:
    """An ONNX node, with its inputs and attributes."""

    op_type: str
    inputs: Sequence[Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    output: int = 0
    opset: int = 20
    domain: str = ""

    def value(self, a: Algebra) -> Any:
        names = tuple("" if each is None else f"x{at}" for at, each in enumerate(self.inputs))
        integers = {key: value for key, value in self.settings.items() if isinstance(value, int)}
        others = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in self.settings.items()
            if key not in integers
        }
        node = Node((), 0, self.op_type, self.domain, "", names, ("y0", "y1"), integers, settings=others)
        values = [each.value(a) if isinstance(each, Op) else filled(each) for each in self.inputs]
        values = [np.asarray(each) if isinstance(each, (int, float, list)) else each for each in values]
        return operate(Operation(a, node, values, None, self.opset))[self.output]


@dataclass(frozen=True)
class AtenCall:
    """A call of a PyTorch operator, and the index of one result."""

    operator: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    output: int | None = None

    def value(self, a: Algebra) -> Any:
        def resolve(arg: Any) -> Any:
            if isinstance(arg, list):
                return [resolve(each) for each in arg]
            return arg.value(a) if isinstance(arg, AtenCall) else filled(arg)

        args = [resolve(each) for each in self.args]
        found = call(a, self.operator, args, {key: filled(each) for key, each in self.kwargs.items()})
        return found if self.output is None else found[self.output]


def ints(*numbers: Any) -> Any:
    return np.array(numbers, np.int64)


def floats(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def node(op_type: str, *inputs: Any, output: int = 0, **settings: Any) -> Op:
    return Op(op_type, inputs, settings, output)


def aten(operator: str, *args: Any, output: int | None = None, **kwargs: Any) -> AtenCall:
    return AtenCall(operator, args, kwargs, output)


AT = ints(3, 0, 2)
SORTED = node("TopK", "x", ints(6), output=1, axis=1, largest=0)
PLACES = aten("topk", "x", 3, 1, output=1)
FILE_PLACES = node("TopK", "x", ints(3), output=1, axis=1)
FOUR = ints(0, 1, 2, 3).reshape(4, 1)


def joined(rows: Any, columns: Any = FILE_PLACES) -> Op:
    """Join rows and columns into indices of GatherND."""
    last = (node("Unsqueeze", each, ints(-1)) for each in (np.broadcast_to(rows, (4, 3)), columns))
    return node("Concat", *last, axis=-1)


HALVES = {"mode": "linear", "coordinate_transformation_mode": "half_pixel", "antialias": 0}
CUBIC = {"mode": "cubic", "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.75}
WINDOWS = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}


def resized(*sizes: int, **settings: Any) -> Op:
    return node("Resize", "image", None, None, ints(*sizes), **settings)


def scaled(*scales: float, **settings: Any) -> Op:
    return node("Resize", "image", None, floats(*scales), **settings)


def ranged(weights: str, *ends: Any, rows: str = "x") -> Op:
    """Multiply rows of each group by its matrix, as the exporter writes it."""
    parts = []
    for group, (first, last) in enumerate(pairwise(ends)):
        stretch = node("Range", first, last, np.int64(1))
        matrix = node("Squeeze", node("Slice", weights, ints(group), ints(group + 1), ints(0)), ints(0))
        parts.append(node("MatMul", node("Gather", rows, stretch, axis=0), matrix))
    return node("Concat", *parts, axis=0)


def end(at: int, name: str = "ends") -> Op:
    return node("Squeeze", node("Slice", name, ints(at), ints(at + 1), ints(0)), ints(0))


SCALES, ZEROS = floats(0.1, 0.2, 0.3, 0.25, 0.15), floats(3, 0, 1, 2, 0)
CODED = node("Add", node("Div", "w", SCALES), ZEROS)
"""A weight in codes, as read from a file: in units of its scales."""
STEPS = [node("DynamicQuantizeLinear", "x", output=each) for each in range(3)]
BLOCKS = floats(0.1, 0.2, 0.3, 0.25, 0.15, 0.4, 0.5, 0.35, 0.45, 0.05).reshape(5, 2)


def multiplied(scale: Any = SCALES, zeros: Any = ZEROS, steps: Sequence[Any] = STEPS) -> Op:
    """Return a product of codes, as onnxruntime's dynamic quantizer writes it."""
    whole = node("Cast", node("MatMulInteger", steps[0], CODED, steps[2], zeros), to=1)
    return node("Mul", whole, node("Mul", steps[1], scale))


def by_blocks(scale: Any = BLOCKS, zeros: Any = None, **settings: Any) -> Op:
    """Return a MatMulNBits of a weight whose codes have a scale for each run of three."""
    units, zero = np.repeat(BLOCKS, 3, 1), floats(8)
    codes = node("Add", node("Div", node("Transpose", "w"), units), zero)
    attributes = {"K": 6, "N": 5, "bits": 4, "block_size": 3, **settings}
    return Op("MatMulNBits", ["x", codes, scale, zeros], attributes, domain="com.microsoft")


WORDS: list[tuple[AtenCall, Op, list[Op]]] = [
    # sorts
    (
        aten("sort", "x", 1, True, output=0),
        node("TopK", "x", ints(6), axis=1),
        [
            node("TopK", "x", ints(6), axis=1, largest=0),
            node("TopK", "y", ints(6), axis=1),
            node("TopK", "x", ints(6), axis=1, sorted=0),
            node("TopK", "x", ints(6), axis=1, output=1),
            node("TopK", "x", ints(5), axis=1),
            node("Identity", "x"),
        ],
    ),
    (aten("argsort", "x", 1), SORTED, [node("TopK", "x", ints(6), output=1, axis=1, largest=1)]),
    (
        aten("topk", "x", 2, -1, True, False, output=0),
        node("TopK", "x", ints(2)),
        [
            node("TopK", "x", ints(2), largest=0),
            node("TopK", "x", ints(3)),
            node("TopK", "x", ints(2), sorted=0),
        ],
    ),
    (
        aten("floor_divide", PLACES, 2),
        node("Div", FILE_PLACES, ints(2)),
        [node("Div", FILE_PLACES, ints(3)), FILE_PLACES],
    ),
    # scatters
    (
        aten("scatter_add", "x", 0, "grid", "few"),
        node("ScatterElements", "x", "grid", "few", axis=0, reduction="add"),
        [
            node("ScatterElements", "x", "grid", "few", axis=1, reduction="add"),
            node("ScatterElements", "x", "grid", "few", axis=0, reduction="none"),
            node("ScatterElements", "x", "grid", "few", axis=0, reduction="mul"),
            node("ScatterElements", "x", "grid", "few", axis=0, reduction="max"),
            node("ScatterElements", "y", "grid", "few", axis=0, reduction="add"),
            node("ScatterElements", "x", "grid", node("Neg", "few"), axis=0, reduction="add"),
            node("ScatterElements", "x", node("Add", "grid", ints(1)), "few", axis=0, reduction="add"),
        ],
    ),
    (
        aten("scatter", "x", 1, "grid", "few"),
        node("ScatterElements", "x", "grid", "few", axis=1),
        [
            node("ScatterElements", "x", "grid", "few", axis=1, reduction="add"),
            node("ScatterElements", "x", "grid", "few", axis=1, reduction="min"),
            node("ScatterElements", "x", "grid", "few", axis=0),
            node("Identity", "x"),
        ],
    ),
    (
        aten("scatter", "x", 1, ints([3, 0, 2]).repeat(4, 0), "few"),
        node("ScatterElements", "x", ints([3, 0, 2]).repeat(4, 0), "few", axis=1),
        [
            node("ScatterElements", "x", ints([3, 0, 1]).repeat(4, 0), "few", axis=1),
            node("ScatterElements", "x", ints([3, 0, 2]).repeat(4, 0), "few", axis=1, reduction="add"),
            node("ScatterElements", "x", ints([0, 3, 2]).repeat(4, 0), "few", axis=1),
        ],
    ),
    (
        aten("index_put", "x", ["at"], "rows", True),
        node("ScatterND", "x", node("Unsqueeze", "at", ints(1)), "rows", reduction="add"),
        [
            node("ScatterND", "x", node("Unsqueeze", "at", ints(1)), "rows"),
            node("ScatterND", "x", node("Unsqueeze", "other", ints(1)), "rows", reduction="add"),
            node("ScatterND", "x", node("Unsqueeze", "at", ints(1)), node("Neg", "rows"), reduction="add"),
        ],
    ),
    (
        aten("index_add", "x", 0, "at", "rows"),
        node("ScatterND", "x", node("Unsqueeze", "at", ints(1)), "rows", reduction="add"),
        [
            node("ScatterND", "x", node("Unsqueeze", "at", ints(1)), "rows", reduction="none"),
            node("ScatterND", "x", node("Unsqueeze", "at", ints(1)), "rows", reduction="max"),
        ],
    ),
    (
        aten("index_put", "x", ["at", "other"], "at"),
        node(
            "ScatterND",
            "x",
            node("Concat", *(node("Unsqueeze", each, ints(1)) for each in ("at", "other")), axis=1),
            "at",
        ),
        [
            node(
                "ScatterND",
                "x",
                node("Concat", *(node("Unsqueeze", each, ints(1)) for each in ("other", "at")), axis=1),
                "at",
            )
        ],
    ),
    (
        aten("index_put", "x", [None, AT], "few"),
        node("ScatterElements", "x", np.tile(AT, (4, 1)), "few", axis=1),
        [node("ScatterElements", "x", np.tile(AT[::-1], (4, 1)), "few", axis=1)],
    ),
    (
        aten("index_put", "x", ["mask"], floats(0.5)),
        node("Where", "mask", floats(0.5), "x"),
        [node("Where", "mask", floats(0.25), "x"), node("Where", "mask", "x", floats(0.5))],
    ),
    # reads at indices
    (
        aten("index", "x", ["at", "other"]),
        node(
            "GatherND",
            "x",
            node("Concat", *(node("Unsqueeze", each, ints(1)) for each in ("at", "other")), axis=1),
        ),
        [
            node(
                "GatherND",
                "x",
                node("Concat", *(node("Unsqueeze", each, ints(1)) for each in ("other", "at")), axis=1),
            )
        ],
    ),
    (
        aten("index", "x", ["at"]),
        node("GatherND", "x", node("Unsqueeze", "at", ints(1))),
        [node("Gather", "x", "at", axis=1), node("Gather", "x", "other"), node("Gather", "y", "at")],
    ),
    (
        aten("index", "x", [FOUR, PLACES]),
        node("Gather", node("Reshape", "x", ints(-1)), node("Add", FOUR * 6, FILE_PLACES)),
        [
            node("Gather", node("Reshape", "x", ints(-1)), node("Add", FOUR * 5, FILE_PLACES)),
            node("Gather", node("Reshape", "x", ints(-1)), FILE_PLACES),
            node("Gather", node("Reshape", "y", ints(-1)), node("Add", FOUR * 6, FILE_PLACES)),
            node("GatherND", "x", joined(FOUR[::-1].copy())),
        ],
    ),
    (
        aten("index", "x", [FOUR, PLACES]),
        node("GatherND", "x", joined(FOUR)),
        [node("GatherND", "x", joined(FOUR * 0)), node("GatherND", "y", joined(FOUR))],
    ),
    (
        aten("index", "x", [FOUR, "grid"]),
        node("GatherND", "x", joined(FOUR, "grid")),
        [  # a negative index counts from the end, not back into the previous row
            node("Gather", node("Reshape", "x", ints(-1)), node("Add", FOUR * 6, "grid")),
        ],
    ),
    (
        aten("index", "x", [None, "at"]),
        node("Gather", "x", "at", axis=1),
        [node("Transpose", node("Gather", node("Transpose", "x"), "other"))],
    ),
    (
        aten("one_hot", "at", 5),
        node("OneHot", "at", ints(5), ints(0, 1)),
        [
            node("OneHot", "at", ints(6), ints(0, 1)),
            node("OneHot", "at", ints(5), ints(1, 0)),
            node("OneHot", "at", ints(5), ints(0, 2)),
            node("OneHot", "other", ints(5), ints(0, 1)),
        ],
    ),
    # groups
    (
        aten("grouped_mm_fallback", "x", "weights", "ends"),
        ranged("weights", ints(0), end(0), end(1), end(2)),
        [
            ranged("weights", ints(0), end(0), end(2), end(1)),
            ranged("weights", ints(1), end(0), end(1), end(2)),
            ranged("weights", ints(0), end(0), end(1)),
            ranged("weights", ints(0), end(0), end(1), end(2), rows="y"),
            ranged("weights", ints(0), end(0, "at"), end(1), end(2)),
        ],
    ),
    # sums along an axis
    (
        aten("flip", aten("cumsum", aten("flip", "x", [1]), 1), [1]),
        node("CumSum", "x", ints(1), reverse=1),
        [node("CumSum", "x", ints(1)), node("CumSum", "x", ints(1), reverse=1, exclusive=1)],
    ),
    (
        aten("sub", aten("cumsum", "x", 1), "x"),
        node("CumSum", "x", ints(1), exclusive=1),
        [node("CumSum", "x", ints(1)), node("CumSum", "x", ints(0), exclusive=1)],
    ),
    # interpolation
    (
        aten("upsample_bilinear2d", "image", None, False, [2.0, 2.0]),
        scaled(1, 1, 2, 2, **HALVES),
        [
            scaled(1, 1, 2, 2, **{**HALVES, "coordinate_transformation_mode": "align_corners"}),
            scaled(1, 1, 2, 2, **{**HALVES, "coordinate_transformation_mode": "asymmetric"}),
            scaled(1, 1, 2, 2, **{**HALVES, "antialias": 1}),
            scaled(1, 1, 2, 2, **{**HALVES, "mode": "cubic"}),
            scaled(1, 1, 2, 2, **{**HALVES, "mode": "nearest"}),
            scaled(1, 1, 2.1, 2, **HALVES),
        ],
    ),
    (
        aten("upsample_bilinear2d", "image", [9, 5], True, None),
        resized(2, 3, 9, 5, **{**HALVES, "coordinate_transformation_mode": "align_corners"}),
        [resized(2, 3, 9, 5, **HALVES), resized(2, 3, 5, 9, **HALVES)],
    ),
    (
        aten("upsample_bicubic2d", "image", [14, 12], False, None),
        resized(2, 3, 14, 12, **CUBIC),
        [
            resized(2, 3, 14, 12, **{**CUBIC, "cubic_coeff_a": -0.5}),
            resized(2, 3, 14, 12, **{**CUBIC, "exclude_outside": 1}),
            resized(2, 3, 14, 12, **HALVES),
        ],
    ),
    (
        aten("upsample_nearest2d", "image", [10, 12], None),
        resized(
            2, 3, 10, 12, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        ),
        [
            resized(
                2, 3, 10, 12, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="ceil"
            ),
            resized(2, 3, 10, 12, mode="nearest", coordinate_transformation_mode="half_pixel"),
        ],
    ),
    # windows
    (
        aten("avg_pool2d", "image", [3, 3], [2, 2], [1, 1], True, True),
        node("AveragePool", "image", count_include_pad=1, **WINDOWS),
        [
            node("AveragePool", "image", count_include_pad=0, **WINDOWS),
            node("AveragePool", "image", count_include_pad=1, **{**WINDOWS, "ceil_mode": 0}),
            node("AveragePool", "image", count_include_pad=1, **{**WINDOWS, "strides": [2, 1]}),
            node("MaxPool", "image", **WINDOWS),
        ],
    ),
    (
        aten("avg_pool2d", "image", [3, 3], [2, 2], [1, 1], True, False),
        node("AveragePool", "image", **WINDOWS),
        [node("AveragePool", "image", count_include_pad=1, **WINDOWS)],
    ),
    (
        aten("avg_pool2d", "image", [3, 3], [1, 1], 0, False, True, 4),
        node("Mul", node("AveragePool", "image", kernel_shape=[3, 3]), floats(2.25)),
        [node("AveragePool", "image", kernel_shape=[3, 3])],
    ),
    (
        aten("adaptive_max_pool2d", "image", [1, 1], output=0),
        node("ReduceMax", "image", ints(2, 3)),
        [node("ReduceMax", "image", ints(1, 3)), node("ReduceMin", "image", ints(2, 3))],
    ),
    # codes
    (
        aten("matmul", "x", "w"),
        multiplied(),
        [
            multiplied(SCALES[::-1]),
            multiplied(zeros=ZEROS[::-1]),
            multiplied(SCALES * np.float32(1.01)),
            multiplied(zeros=ZEROS + np.float32(1)),
            multiplied(steps=[STEPS[0], STEPS[1], floats(0)]),
            multiplied(steps=[STEPS[0], floats(1), STEPS[2]]),
            multiplied(steps=[STEPS[0], STEPS[1], STEPS[1]]),
            multiplied(steps=[STEPS[0], node("DynamicQuantizeLinear", "y", output=1), STEPS[2]]),
        ],
    ),
    (
        aten("matmul", "x", "w"),
        node("MatMul", "x", node("DequantizeLinear", CODED, SCALES, ZEROS, axis=1)),
        [
            node("MatMul", "x", node("DequantizeLinear", CODED, SCALES[::-1], ZEROS, axis=1)),
            node("MatMul", "x", node("DequantizeLinear", CODED, SCALES, axis=1)),
            node("MatMul", "x", node("DequantizeLinear", CODED, floats(0.1), ZEROS, axis=1)),
            node("MatMul", "x", node("DequantizeLinear", CODED, SCALES, ZEROS, axis=0)),
            node("MatMul", "x", CODED),
        ],
    ),
    (
        aten("matmul", "x", "w"),
        by_blocks(),
        [
            by_blocks(BLOCKS[::-1].copy()),
            by_blocks(block_size=2),
            by_blocks(bits=8),
            by_blocks(K=5, N=6),
            by_blocks(zeros=np.full((5, 1), 0x78, np.uint8)),
        ],
    ),
    (aten("matmul", "x", "w"), by_blocks(zeros=np.full((5, 1), 0x88, np.uint8)), []),
    (
        aten("conv2d", "image", "kernel", None, [1, 1], [1, 1]),
        node(
            "Mul",
            node(
                "ConvInteger",
                node("DynamicQuantizeLinear", "image"),
                node("Div", "kernel", floats(0.5)),
                node("DynamicQuantizeLinear", "image", output=2),
                pads=[1, 1, 1, 1],
            ),
            node("Mul", node("DynamicQuantizeLinear", "image", output=1), floats(0.5)),
        ),
        [
            node(
                "Mul",
                node(
                    "ConvInteger",
                    node("DynamicQuantizeLinear", "image"),
                    node("Div", "kernel", floats(0.5)),
                    node("DynamicQuantizeLinear", "image", output=2),
                    pads=pads,
                ),
                node("Mul", node("DynamicQuantizeLinear", "image", output=1), floats(scale)),
            )
            for pads, scale in (([1, 1, 1, 1], 0.25), ([0, 2, 1, 1], 0.5), ([0, 0, 0, 0], 0.5))
        ],
    ),
    # functions
    (
        aten("softplus", "x", 2.0, 20.0),
        node(
            "Where",
            node("Greater", node("Mul", "x", floats(2)), floats(20)),
            "x",
            node("Div", node("Softplus", node("Mul", "x", floats(2))), floats(2)),
        ),
        [
            node("Softplus", "x"),
            node("Softplus", node("Mul", "x", floats(2))),
            node("Div", node("Softplus", node("Mul", "x", floats(2))), floats(3)),
            node(
                "Where",
                node("Greater", node("Mul", "x", floats(2)), floats(2)),
                "x",
                node("Div", node("Softplus", node("Mul", "x", floats(2))), floats(2)),
            ),
            node(
                "Where",
                node("Greater", node("Mul", "x", floats(2)), floats(20)),
                "y",
                node("Div", node("Softplus", node("Mul", "x", floats(2))), floats(2)),
            ),
            node(
                "Where",
                node("Less", node("Mul", "x", floats(2)), floats(20)),
                "x",
                node("Div", node("Softplus", node("Mul", "x", floats(2))), floats(2)),
            ),
        ],
    ),
    (
        aten("elu", "x", 0.7),
        node("Elu", "x", alpha=0.7),
        [node("Elu", "x", alpha=0.8), node("Celu", "x", alpha=0.7), node("Elu", "x", alpha=1.0)],
    ),
    (
        aten("celu", "x", 0.7),
        node("Celu", "x", alpha=0.7),
        [node("Celu", "x", alpha=0.5), node("Elu", "x", alpha=0.7)],
    ),
    (
        aten("selu", "x"),
        node("Selu", "x"),
        [node("Selu", "x", alpha=1.5), node("Elu", "x"), node("Selu", "x", gamma=1.0)],
    ),
    (
        aten("log_sigmoid", "x"),
        node("Log", node("Sigmoid", "x")),
        [node("Log", node("Sigmoid", node("Neg", "x"))), node("Sigmoid", "x")],
    ),
    (
        aten("hardshrink", "x", 0.2),
        node("Where", node("LessOrEqual", node("Abs", "x"), floats(0.2)), floats(0), "x"),
        [
            node("Where", node("Less", node("Abs", "x"), floats(0.2)), floats(0), "x"),
            node("Where", node("LessOrEqual", node("Abs", "x"), floats(0.3)), floats(0), "x"),
        ],
    ),
]


@pytest.fixture
def a() -> Algebra:
    return Algebra(0, Numbers())


@pytest.mark.parametrize(
    ("pytorch_call", "node", "others"),
    WORDS,
    ids=[f"{at}-{each[0].operator}" for at, each in enumerate(WORDS)],
)
def test_a_call_is_its_node_and_no_other(
    a: Algebra, pytorch_call: AtenCall, node: Op, others: Sequence[Op]
) -> None:
    expected = pytorch_call.value(a)
    a.is_first = False

    assert not is_known(expected)
    assert a.same(expected, node.value(a))
    for other in others:
        try:
            found = other.value(a)
        except UnknownError:
            continue
        assert not a.same(expected, found), other
