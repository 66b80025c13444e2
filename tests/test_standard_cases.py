"""ONNX's own cases of each operator: inferred shapes and computed values against the results that come with them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from standard import AsStored, are_alike

from analyzer import audit_model
from analyzer.cost.walk import Walk
from analyzer.model.evaluation import Evaluator
from analyzer.model.wiring import connect
from analyzer.read import read_model
from analyzer.verify.algebra.field import Numbers
from analyzer.verify.algebra.programs import File
from analyzer.verify.algebra.values import Algebra, is_known

pytestmark = pytest.mark.slow

Case = tuple[str, onnx.ModelProto, list[Any], list[Any]]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Return each case's name, model, inputs and outputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    return [(case.name, case.model, *case.data_sets[0]) for case in found if case.data_sets]


def with_stored(model: onnx.ModelProto, arrays: list[Any], *, is_whole: bool) -> onnx.ModelProto | None:
    """Return a model that stores its inputs, or only small integers such as axes; None if there is nothing to store."""
    stored = onnx.ModelProto()
    stored.CopyFrom(model)
    free = []
    for value, array in zip(model.graph.input, arrays, strict=False):
        is_small = isinstance(array, np.ndarray) and array.dtype.kind in "iub" and array.size <= 64
        if is_whole or is_small:
            stored.graph.initializer.append(numpy_helper.from_array(array, value.name))
        else:
            free.append(value)
    if not stored.graph.initializer:
        return None
    del stored.graph.input[:]
    stored.graph.input.extend(free)
    return stored


def shapes(path: Path, model: onnx.ModelProto) -> Iterator[tuple[str, tuple[Any, ...] | None]]:
    """Yield the name of each output, and its shape as the rules infer it: the model does not say it."""
    unsaid = onnx.ModelProto()
    unsaid.CopyFrom(model)
    for output in unsaid.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    path.write_bytes(unsaid.SerializeToString())
    walk = Walk(read_model(path))
    list(walk.run())
    for output in model.graph.output:
        value = walk.values[()].get(output.name)
        yield output.name, None if value is None else value.shape


@pytest.mark.parametrize("are_axes_stored", [False, True], ids=["inputs", "stored axes"])
def test_no_inferred_shape_contradicts_a_standard_case(
    cases: list[Case], are_axes_stored: bool, tmp_path: Path
) -> None:
    wrong, counts = [], Counter[str]()
    for name, model, inputs, outputs in cases:
        stored = with_stored(model, inputs, is_whole=False) if are_axes_stored else model
        if stored is None:
            continue
        for (output, found), expected in zip(shapes(tmp_path / "case.onnx", stored), outputs, strict=True):
            if not isinstance(expected, np.ndarray) or found is None:
                counts["unknown"] += 1
                continue
            counts["known"] += 1
            sizes = [size if isinstance(size, int) else None for size in found]
            is_alike = len(sizes) == expected.ndim and all(
                size in (None, true) for size, true in zip(sizes, expected.shape, strict=True)
            )
            if not is_alike:
                wrong.append((name, output, found, expected.shape))

    assert not wrong
    assert counts["known"] > 2 * counts["unknown"]


def test_no_evaluated_value_contradicts_a_standard_case(cases: list[Case], tmp_path: Path) -> None:
    path = tmp_path / "case.onnx"
    wrong, count = [], 0
    for name, model, inputs, outputs in cases:
        if not all(isinstance(array, np.ndarray) for array in (*inputs, *outputs)):
            continue
        stored = with_stored(model, inputs, is_whole=True)
        if stored is None:
            continue
        path.write_bytes(stored.SerializeToString())
        read = read_model(path)
        evaluator = Evaluator(read, connect(read), by_default=True)
        for output, expected in zip(model.graph.output, outputs, strict=True):
            found = evaluator.value((), output.name)
            if found is None:
                continue
            count += 1
            if not are_alike(found, expected):
                wrong.append((name, output.name))

    assert not wrong
    assert count > 500


def test_no_value_of_the_algebra_contradicts_a_standard_case(cases: list[Case], tmp_path: Path) -> None:
    path = tmp_path / "case.onnx"
    wrong, counts = [], Counter[str]()
    for name, model, inputs, outputs in cases:
        if not all(isinstance(array, np.ndarray) for array in (*inputs, *outputs)):
            continue
        path.write_bytes(model.SerializeToString())
        known = dict(zip((value.name for value in model.graph.input), inputs, strict=True))
        algebra = Algebra(0, Numbers(), is_first=True)
        file = File(algebra, audit_model(path), AsStored(), known, lambda node, place, value: value)
        file.run()
        for output, expected in zip(model.graph.output, outputs, strict=True):
            found = file.values.get(output.name)
            is_found = found is not None and is_known(found)  # steps of a range are no numbers here
            counts["known" if is_found else "unknown"] += 1
            if is_found and not are_alike(found, expected):
                wrong.append((name, output.name))

    assert not wrong
    assert counts["known"] > counts["unknown"]
