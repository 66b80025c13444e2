"""Constants that fit the algebra, and not the real numbers: a file with them is never proven the same."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import run_here
from exports import Exports
from onnx import TensorProto, helper, numpy_helper

from analyzer.verify.algebra.field import PRIME

pytestmark = [
    pytest.mark.export,
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(find_spec, ("torch", "transformers", "onnxscript"))), reason="exports"),
]
OLD, NEW = "old", "new"
"""Names of the first output before the added nodes, and after them."""


class Tampered:
    """A model whose first output is computed on by more nodes."""

    def __init__(self, model: onnx.ModelProto, length: int) -> None:
        self.model, self.length = model, length
        self.output = model.graph.output[0].name
        for node in model.graph.node:
            for names in (node.input, node.output):
                for at, each in enumerate(names):
                    names[at] = OLD if each == self.output else each
        self.count = 0

    def number(self, value: Any, element: Any = np.float32) -> str:
        name = f"number{len(self.model.graph.initializer)}"
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(value, element), name))
        return name

    def add(self, op_type: str, *inputs: str, **settings: Any) -> str:
        self.count += 1
        name = f"added{self.count}"
        self.model.graph.node.append(helper.make_node(op_type, inputs, [name], **settings))
        return name

    def end(self, value: str) -> None:
        self.model.graph.node.append(helper.make_node("Identity", [value], [self.output]))

    def times(self, value: str, factor: float) -> str:
        return self.add("Mul", value, self.number(factor))


def multiple_of_a_prime(file: Tampered) -> None:
    """x + 1e-9 x (2^15 2^16 - 2337), where 2^31 - 2337 is a prime."""
    large = file.times(file.times(OLD, 1 << 15), 1 << 16)
    none = file.add("Sub", large, file.times(OLD, (1 << 31) - PRIME))
    file.end(file.add("Add", OLD, file.times(none, 1e-9)))


def ratio_of_large_numbers(file: Tampered) -> None:
    file.end(file.add("Div", file.times(OLD, 2e30), file.number(1e30)))


def difference_of_large_products(file: Tampered) -> None:
    difference = file.add("Sub", file.times(OLD, 2e30), file.times(OLD, 1e30))
    file.end(file.add("Add", OLD, file.times(difference, 1e-30)))


def ratio_of_large_sums(file: Tampered) -> None:
    none = file.times(OLD, 0.0)
    sums = [file.add("Add", none, file.number(each)) for each in (2e30, 1e30)]
    file.end(file.add("Mul", OLD, file.add("Div", *sums)))


def difference_of_large_sums(file: Tampered) -> None:
    sums = [file.add("Add", file.times(OLD, 1e25), file.number(each)) for each in (2e30, 1e30)]
    file.end(file.add("Add", OLD, file.times(file.add("Sub", *sums), 1e-30)))


def ratio_of_large_bounds(file: Tampered) -> None:
    bounds = [file.add("Max", OLD, file.number(each)) for each in (2e30, 1e30)]
    file.end(file.add("Mul", OLD, file.add("Div", *bounds)))


def ratio_of_large_choices(file: Tampered) -> None:
    positive = file.add("Greater", OLD, file.number(0.1))
    choices = [file.add("Where", positive, OLD, file.number(each)) for each in (-2e30, -1e30)]
    file.end(file.add("Mul", OLD, file.add("Div", *choices)))


def absorbed_digits(file: Tampered) -> None:
    sums = file.add("Add", OLD, file.number(1 << 29))
    file.end(file.add("Sub", sums, file.number(1 << 29)))


def large_power(file: Tampered) -> None:
    roots = [
        file.add("Sqrt", file.add("Add", file.times(OLD, 0.0), file.number(each))) for each in (2e30, 1e30)
    ]
    file.end(file.add("Mul", OLD, file.add("Div", *roots)))


def minor_of_a_product(file: Tampered) -> None:
    """Add a minor of three rows and columns of a large layer's result: 0 if its weight is drawn with two rows."""
    shapes = {each.name: each.dims for each in file.model.graph.initializer}
    layer = next(
        node
        for node in file.model.graph.node
        if node.op_type == "MatMul" and np.prod(shapes.get(node.input[1], [0])) > 1024
    )
    first = file.add("Gather", layer.output[0], file.number(0, np.int64), axis=0)
    axes = file.number([0, 1], np.int64)
    parts = {
        (row, column): file.add(
            "Slice",
            first,
            file.number([row, column], np.int64),
            file.number([row + 1, column + 1], np.int64),
            axes,
        )
        for row, column in itertools.product(range(3), repeat=2)
    }
    total = ""
    for order in itertools.permutations(range(3)):
        sign = round(float(np.linalg.det(np.eye(3)[list(order)])))
        made = file.add("Mul", parts[0, order[0]], parts[1, order[1]])
        made = file.add("Mul", made, parts[2, order[2]])
        total = file.add("Add" if sign > 0 else "Sub", total, made) if total else made
    file.end(file.add("Add", OLD, file.times(total, 1000.0)))


def neighbours(file: Tampered) -> None:
    """x + (x c - x d) 2^24, where c and d are 0.1 and the next number."""
    first = np.float32(0.1)
    parts = [file.times(OLD, each) for each in (first, np.nextafter(first, np.float32(1)))]
    file.end(file.add("Add", OLD, file.times(file.add("Sub", *parts), 1 << 24)))


def more_digits_than_single(file: Tampered) -> None:
    """x + (x (1 + 1e-9) - x) 2^30, in double precision."""
    double = file.add("Cast", OLD, to=TensorProto.DOUBLE)
    none = file.add("Sub", file.add("Mul", double, file.number(1 + 1e-9, np.float64)), double)
    large = file.add("Mul", none, file.number(1 << 30, np.float64))
    file.end(file.add("Add", OLD, file.add("Cast", large, to=TensorProto.FLOAT)))


def less_than_single(file: Tampered) -> None:
    """x + x 1e-50 1e50, in double precision."""
    double = file.add("Cast", OLD, to=TensorProto.DOUBLE)
    for each in (1e-50, 1e25, 1e25):
        double = file.add("Mul", double, file.number(each, np.float64))
    file.end(file.add("Add", OLD, file.add("Cast", double, to=TensorProto.FLOAT)))


def division_by_zero(file: Tampered) -> None:
    quotient = file.add("Div", OLD, file.number(0))
    signs = [file.add("Tanh", each) for each in (quotient, file.add("Neg", quotient))]
    file.end(file.add("Add", OLD, file.add("Sub", *signs)))


def library_function(file: Tampered) -> None:
    """x times whether exp(v) is what numpy makes of it."""
    values = np.linspace(-3, 3, 64, dtype=np.float32)
    is_same = file.add("Equal", file.add("Exp", file.number(values)), file.number(np.exp(values)))
    all_same = file.add("ReduceMin", file.add("Cast", is_same, to=TensorProto.FLOAT), keepdims=0)
    file.end(file.add("Mul", OLD, all_same))


def library_function_in_a_local_one(file: Tampered) -> None:
    """The same, where a function of the file calls exp."""
    version = next(each.version for each in file.model.opset_import if not each.domain)
    values = np.linspace(-3, 3, 64, dtype=np.float32)
    stored = helper.make_node("Constant", [], ["v"], value=numpy_helper.from_array(values))
    body = [stored, helper.make_node("Exp", ["v"], ["e"])]
    opsets = [helper.make_opsetid("", version)]
    file.model.functions.append(helper.make_function("own", "Powers", [], ["e"], body, opsets))
    file.model.opset_import.append(helper.make_opsetid("own", 1))
    is_same = file.add("Equal", file.add("Powers", domain="own"), file.number(np.exp(values)))
    all_same = file.add("ReduceMin", file.add("Cast", is_same, to=TensorProto.FLOAT), keepdims=0)
    file.end(file.add("Mul", OLD, all_same))


def last_digit_of_a_library_function(file: Tampered) -> None:
    value = np.float32(0.7)
    none = file.add("Sub", file.add("Exp", file.number(value)), file.number(np.exp(value)))
    file.end(file.add("Add", OLD, file.times(none, 1 << 24)))


def polynomial_of_a_size(file: Tampered) -> None:
    """Add a polynomial of the length that is 0 at 1, and at that of the export and the three after it."""
    first = file.model.graph.input[0]
    length = file.add("Shape", first.name, start=1, end=2)
    total = ""
    for root in (1, *range(file.length, file.length + 4)):
        factor = file.add("Sub", length, file.number([root], np.int64))
        total = file.add("Mul", total, factor) if total else factor
    file.end(file.add("Add", OLD, file.add("Cast", total, to=TensorProto.FLOAT)))


def cast_with_another_number(file: Tampered) -> None:
    narrow = file.add("Cast", OLD, to=TensorProto.FLOAT16, saturate=2)
    file.end(file.add("Cast", narrow, to=TensorProto.FLOAT))


def run_static(model: Path) -> tuple[int, bool]:
    result = run_here(
        "verify", model, "--static", "--against", model.with_name("manifest.json"), "--format", "json"
    )
    return result.returncode, json.loads(result.stdout)["same"]


def tamper(exports: Exports, folder: Path, change: Callable[[Tampered], None], **how: Any) -> Path:
    original = exports("bert", **how).files.artifact
    calls = json.loads(original.with_name("manifest.json").read_text())["calls"][0]
    file = Tampered(onnx.load(original), calls["inputs"][0]["shape"][1])
    change(file)
    onnx.save(file.model, folder / original.name)
    (folder / "manifest.json").write_bytes(original.with_name("manifest.json").read_bytes())
    return folder / original.name


@pytest.mark.parametrize(
    "change",
    [
        multiple_of_a_prime,
        ratio_of_large_numbers,
        difference_of_large_products,
        ratio_of_large_sums,
        difference_of_large_sums,
        ratio_of_large_bounds,
        ratio_of_large_choices,
        absorbed_digits,
        large_power,
        minor_of_a_product,
        neighbours,
        more_digits_than_single,
        less_than_single,
        division_by_zero,
        library_function,
        library_function_in_a_local_one,
        last_digit_of_a_library_function,
        polynomial_of_a_size,
        cast_with_another_number,
    ],
)
def test_constants_that_fit_the_algebra_are_no_proof(
    exported: Exports, tmp_path: Path, change: Callable[[Tampered], None]
) -> None:
    code, same = run_static(tamper(exported, tmp_path, change))

    assert (code > 0, same) == (True, False)


def test_a_number_of_half_precision_is_a_factor_like_any_other(exported: Exports, tmp_path: Path) -> None:
    def ratio(file: Tampered) -> None:
        large = file.times(file.add("Cast", OLD, to=TensorProto.FLOAT), 1e4)
        file.end(file.add("Cast", file.add("Div", large, file.number(65504)), to=TensorProto.FLOAT16))

    code, same = run_static(tamper(exported, tmp_path, ratio, dtype="fp16"))

    assert (code > 0, same) == (True, False)
