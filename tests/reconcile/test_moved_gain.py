"""A factor for each channel that moved from a norm into the weights behind it (SmoothQuant)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from models import Array, lines_of, manifest_of, noise, parameter, quantized, reconcile, text_model
from onnx import ModelProto

from analyzer.reconciliation import Reconciliation

WIDTH, OUT = 24, 40
KNOWN = {
    "norm.weight": np.abs(noise(WIDTH)) + np.float32(0.5),
    "norm.bias": noise(WIDTH, seed=1),
    "a.weight": noise(OUT, WIDTH, seed=2),
    "b.weight": noise(OUT, WIDTH, seed=3),
}
S = np.exp(noise(WIDTH, seed=4).astype("f8") / 2)

HEAD = f'<ir_version: 10, opset_import: ["" : 20]> g (float[2,{WIDTH}] x) => (float[2,{OUT}] y)'
WHOLE = 'n = LayerNormalization(x, "norm.weight", "norm.bias")'
WRITTEN_OUT = 'm = ReduceMean(x) c = Sub(x, m) k = Mul(c, "norm.weight") n = Add(k, "norm.bias")'
PRODUCTS = 'p = Gemm <transB = 1> (n, "a.weight") q = Gemm <transB = 1> (n, "b.weight") y = Add(p, q)'


def smoothed(**others: Array) -> dict[str, Array]:
    stored = {
        "norm.weight": KNOWN["norm.weight"] / S,
        "norm.bias": KNOWN["norm.bias"] / S,
        "a.weight": KNOWN["a.weight"] * S,
        "b.weight": KNOWN["b.weight"] * S,
    }
    return {name: array.astype("f4") for name, array in stored.items()} | others


def run(
    folder: Path,
    stored: Mapping[str, Array],
    text: str = f"{WHOLE} {PRODUCTS}",
    *,
    head: str = HEAD,
    at_hand: bool = False,
) -> Reconciliation:
    manifest = manifest_of(*(parameter(name, array) for name, array in KNOWN.items()))
    proto: ModelProto = text_model(f"{head} {{ {text} }}", dict(stored))
    return reconcile(folder, proto, manifest, "full", KNOWN if at_hand else None)


@pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])
@pytest.mark.parametrize("norm", [WHOLE, WRITTEN_OUT], ids=["one operator", "written out"])
def test_a_model_that_computes_the_same_balances(tmp_path: Path, norm: str, at_hand: bool) -> None:
    result = run(tmp_path, smoothed(), f"{norm} {PRODUCTS}", at_hand=at_hand)

    assert result.balanced
    assert lines_of(result) == dict.fromkeys(KNOWN, "folded-pointwise")


def test_names_of_the_weights_are_not_needed(tmp_path: Path) -> None:
    stored = smoothed()
    stored = {
        "norm.weight": stored["norm.weight"],
        "norm.bias": stored["norm.bias"],
        "onnx::MatMul_1": stored["b.weight"].T.copy(),
        "onnx::MatMul_2": stored["a.weight"].T.copy(),
    }
    products = 'p = MatMul(n, "onnx::MatMul_1") q = MatMul(n, "onnx::MatMul_2") y = Add(p, q)'

    assert run(tmp_path, stored, f"{WHOLE} {products}").balanced


def test_codes_of_the_weights_are_scaled_weights_within_their_step(tmp_path: Path) -> None:
    stored = smoothed()
    for name in ("a.weight", "b.weight"):
        stored |= quantized(name, stored.pop(name), axis=0)
    decoded = " ".join(
        f'{short} = DequantizeLinear <axis = 0> ("{name}_quantized", "{name}_scale", "{name}_zero_point")'
        for short, name in (("v", "a.weight"), ("w", "b.weight"))
    )
    products = "p = Gemm <transB = 1> (n, v) q = Gemm <transB = 1> (n, w) y = Add(p, q)"

    assert run(tmp_path, stored, f"{WHOLE} {decoded} {products}", at_hand=True).balanced


OTHERS = {
    "a weight is not scaled": (smoothed(**{"b.weight": KNOWN["b.weight"]}), PRODUCTS, HEAD),
    "a weight is scaled by another factor": (
        smoothed(**{"b.weight": (KNOWN["b.weight"] * S[::-1]).astype("f4")}),
        PRODUCTS,
        HEAD,
    ),
    "the bias stays": (smoothed(**{"norm.bias": KNOWN["norm.bias"]}), PRODUCTS, HEAD),
    "something else reads the norm": (
        smoothed(),
        f"{PRODUCTS.replace('y =', 'z =')} r = ReduceSum(n) y = Add(z, r)",
        HEAD,
    ),
    "the norm's output is given out": (
        smoothed(),
        PRODUCTS,
        HEAD.replace("[2,40] y)", f"[2,40] y, float[2,{WIDTH}] n)"),
    ),
}


@pytest.mark.parametrize("case", OTHERS)
@pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])
def test_a_model_that_computes_something_else_does_not(tmp_path: Path, case: str, at_hand: bool) -> None:
    stored, products, head = OTHERS[case]

    assert not run(tmp_path, stored, f"{WHOLE} {products}", head=head, at_hand=at_hand).balanced


@pytest.mark.parametrize("name", ["norm.weight", "norm.bias"])
def test_a_gain_or_bias_that_a_node_turns_round_is_another(tmp_path: Path, name: str) -> None:
    turned = f'v = Slice("{name}", minus, least, zero, minus) {WHOLE.replace(chr(34) + name + chr(34), "v")}'
    places = {"minus": np.array([-1]), "least": np.array([-(1 << 40)]), "zero": np.array([0])}

    assert not run(tmp_path, smoothed(**places), f"{turned} {PRODUCTS}", at_hand=True).balanced


def test_one_element_of_a_weight_that_is_another_is_found(tmp_path: Path) -> None:
    stored = smoothed()
    stored["a.weight"][3, 5] += np.float32(0.01)

    assert not run(tmp_path, stored).balanced
    (tmp_path / "2").mkdir()
    assert not run(tmp_path / "2", stored, at_hand=True).balanced


def test_codes_that_are_the_weight_without_the_factor_too_prove_none(tmp_path: Path) -> None:
    stored = dict(KNOWN)
    stored["norm.weight"] = (KNOWN["norm.weight"] * np.linspace(0.999, 1.001, WIDTH)).astype("f4")
    stored["norm.bias"] = (KNOWN["norm.bias"] * np.linspace(0.999, 1.001, WIDTH)).astype("f4")
    for name in ("a.weight", "b.weight"):
        stored |= quantized(name, stored.pop(name), axis=0)
    decoded = " ".join(
        f'{short} = DequantizeLinear <axis = 0> ("{name}_quantized", "{name}_scale", "{name}_zero_point")'
        for short, name in (("v", "a.weight"), ("w", "b.weight"))
    )
    products = "p = Gemm <transB = 1> (n, v) q = Gemm <transB = 1> (n, w) y = Add(p, q)"

    assert not run(tmp_path, stored, f"{WHOLE} {decoded} {products}").balanced
