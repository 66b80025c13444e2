"""Every named weight gets its line, whatever nodes read it: most of these programs could not even run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Array, audit, manifest_of, noise, parameters_of, text_model

from analyzer.reconciliation import reconcile_ledger

WEIGHTS: dict[str, Array] = {
    "l.0.weight": noise(4, 4),
    "l.1.weight": noise(4, 4, seed=1),
    "l.0.bias": noise(4, seed=2),
    "l.1.bias": noise(1, seed=3),
    "l.2.bias": np.array(0.5, np.float32),
    "l.2.weight": noise(2, 3, 4, seed=4),
    "l.3.weight_ih_l0": noise(16, 4, seed=5),
}
NUMBERS: dict[str, Array] = {
    "flat": np.array([-1]),
    "square": np.array([4, -1]),
    "none": np.array([], np.int64),
    "zero": np.array([0]),
    "one": np.array([1]),
    "last": np.array([2**31]),
    "scalar": np.array(0),
    "pair": np.array([0, 0]),
    "yes": np.array(True),
    "scale": np.array(0.1, np.float32),
    "point": np.array(0, np.int8),
}
STEPS = (
    *("Identity({a})", "Neg({a})", "Sqrt({a})", "Softmax({a})", "Cast<to=10>({a})", "Cast<to=7>({a})"),
    *("Transpose({a})", "Reshape({a}, flat)", "Reshape({a}, square)", "Reshape({a}, none)", "Flatten({a})"),
    *(
        "Squeeze({a})",
        "Unsqueeze({a}, zero)",
        "Slice({a}, one, last, zero)",
        "Split<axis=0>({a})",
        "Trilu({a})",
    ),
    *(
        "Gather({a}, scalar)",
        "Gather({a}, pair)",
        "GatherND({a}, zero)",
        "Expand({a}, one)",
        "Tile({a}, one)",
    ),
    *("Concat<axis=0>({a}, {b})", "Concat<axis=-1>({a}, {b}, {a})", "Where(yes, {a}, {b})", "Shape({a})"),
    *("Add({a}, {b})", "Mul({a}, {b})", "MatMul({a}, {b})", "Gemm<transB=1>({a}, {b})", "Max({a}, {b})"),
    *(
        "LayerNormalization({a}, {b})",
        "QuantizeLinear({a}, scale, point)",
        "DequantizeLinear({a}, scale, point)",
    ),
    *('Einsum<equation="ij,jk->ik">({a}, {b})', "LSTM<hidden_size=4>({b}, {a}, {a})", "Pad({a}, pair)"),
)
CLASSES = (None, "Linear", "LayerNorm", "LSTM", "OfItsOwn")

step = st.tuples(st.sampled_from(STEPS), st.integers(0, 30), st.integers(0, 30))


@pytest.mark.slow
@settings(max_examples=400)
@given(st.lists(step, min_size=1, max_size=14), st.sampled_from(CLASSES))
def test_each_tensor_gets_its_line(steps: list[tuple[str, int, int]], class_: str | None) -> None:
    values = [f'"{name}"' for name in WEIGHTS] + ["x"]
    lines = []
    for number, (way, one, other) in enumerate(steps):
        a, b = values[-1 - one % len(values)], values[-1 - other % len(values)]
        lines.append(f"v{number} = {way.format(a=a, b=b)}")
        values.append(f"v{number}")
    text = f"g (float[2,4] x) => (float[n] y) {{ {' '.join(lines)} y = Add({values[-1]}, x) }}"
    modules = None if class_ is None else {name.rpartition(".")[0]: class_ for name in WEIGHTS}
    manifest = manifest_of(*parameters_of(WEIGHTS), modules=modules)
    with tempfile.TemporaryDirectory() as folder:
        ledger = audit(Path(folder), text_model(text, WEIGHTS | NUMBERS))
        result = reconcile_ledger(ledger, manifest, "full")

    assert [line.name for line in result.parameters] == list(WEIGHTS)
    assert {line.key for line in result.entries} == {entry.tensor.key for entry in ledger.entries}
