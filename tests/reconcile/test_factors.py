"""A weight times a factor for each channel, in any encoding, and a factor that moved out of a norm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from models import (
    Array,
    Values,
    audit,
    convolution,
    entry,
    lines_of,
    manifest_of,
    noise,
    parameter,
    quantized,
    reconcile,
    text_model,
    without_values,
)
from onnx import ModelProto

from analyzer.model.content import sample_positions
from analyzer.reconciliation import ContentMode, Reconciliation
from analyzer.reconciliation.contents import Contents, Originals
from analyzer.reconciliation.factors import ScaledFit, fit_scaled, fit_vector

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

WEIGHT = noise(6, 5, 3, 3)
SCALE = np.array([0.5, -2.0, 1e-3, 3.0, 1.0, -0.25])


def scaled(weight: Array = WEIGHT, scale: Array = SCALE) -> Array:
    return (weight * scale.reshape(-1, *[1] * (weight.ndim - 1))).astype(np.float32)


def contents(
    folder: Path, proto: onnx.ModelProto, weight: Array, mode: ContentMode, at_hand: bool
) -> tuple[Contents, Any, Any]:
    manifest = manifest_of(convolution("conv.weight", weight))
    originals = (
        Originals(without_values(manifest), Values({"conv.weight": weight}))
        if at_hand
        else Originals(manifest)
    )
    ledger = audit(folder, proto)
    return Contents(mode, originals, ledger.wiring), ledger, originals.manifest.parameters[0]


def conv(stored: Array) -> onnx.ModelProto:
    return text_model("g (float[1] x) => (float[1] y) { y = Conv(x, w) }", {"w": stored})


def fit(
    folder: Path,
    stored: Array | onnx.ModelProto,
    weight: Array = WEIGHT,
    scale: Array = SCALE,
    *,
    mode: ContentMode = "full",
    at_hand: bool = False,
    name: str = "w",
    axis: int = 0,
    group: int = 1,
) -> ScaledFit | None:
    proto = stored if isinstance(stored, onnx.ModelProto) else conv(stored)
    known, ledger, tensor = contents(folder, proto, weight, mode, at_hand)
    return fit_scaled(known, entry(ledger, name), tensor, scale, axis, group)


@both
@pytest.mark.parametrize(("mode", "evidence"), [("sampled", "sampled"), ("full", "content")])
def test_scaled_weight_is_recognised(tmp_path, mode, evidence, at_hand):
    found = fit(tmp_path, scaled(), mode=mode, at_hand=at_hand)

    assert (found.evidence, found.chain) == (evidence, ())
    assert found.error < 1e-6


@both
@pytest.mark.parametrize("dtype", ["f2", ml_dtypes.bfloat16])
def test_scaled_weight_may_be_cast_besides(tmp_path, dtype, at_hand):
    assert [str(line) for line in fit(tmp_path, scaled().astype(dtype), at_hand=at_hand).chain] == ["cast"]


@both
@pytest.mark.parametrize("mode", ["sampled", "full"])
def test_scaled_weight_may_be_quantized_besides(tmp_path, mode, at_hand):
    proto = text_model(
        """g (float[1] x) => (float[1] y) {
            d = DequantizeLinear<axis = 0>(w_quantized, w_scale, w_zero_point) y = Conv(x, d)
        }""",
        quantized("w", scaled(), axis=0),
    )

    found = fit(tmp_path, proto, mode=mode, at_hand=at_hand, name="w_quantized")

    assert [str(line) for line in found.chain] == ["quantized"]


@both
@pytest.mark.parametrize("position", [0, 100, 269])
def test_one_changed_element_is_another_weight(tmp_path, position, at_hand):
    stored = scaled()
    stored.reshape(-1)[position] *= np.float32(1.001)

    assert fit(tmp_path, stored, at_hand=at_hand) is None


def test_an_element_of_a_small_channel_is_looked_at_as_closely_as_one_of_a_large_one(tmp_path):
    weight = np.where(np.arange(6).reshape(6, 1, 1, 1) == 3, 1000, 1).astype("f4") * WEIGHT
    stored = scaled(weight)
    unseen = np.setdiff1d(np.arange(weight.size), sample_positions(weight.size))
    stored.reshape(-1)[unseen[unseen // 45 != 3][0]] *= np.float32(1.01)

    assert fit(tmp_path, scaled(weight), weight, at_hand=True) is not None
    assert fit(tmp_path, stored, weight, at_hand=True) is None


@both
def test_elements_in_another_order_are_another_weight(tmp_path, at_hand):
    stored = scaled().reshape(6, -1)
    stored[1, [1, 2]] = stored[1, [2, 1]]

    assert fit(tmp_path, stored.reshape(WEIGHT.shape), at_hand=at_hand) is None


@both
@pytest.mark.parametrize("axes", [(0, 1, 3, 2), (0, 3, 1, 2)])
def test_kernel_is_not_turned(tmp_path, axes, at_hand):
    weight = noise(6, 3, 3, 3)

    assert fit(tmp_path, scaled(weight), weight, at_hand=at_hand) is not None
    assert fit(tmp_path, scaled(weight).transpose(axes).copy(), weight, at_hand=at_hand) is None


@both
def test_huge_scale_of_codes_proves_nothing(tmp_path, at_hand):
    tensors = {"w_quantized": np.zeros(WEIGHT.shape, "i1"), "s": np.asarray(100, "f4")}
    proto = text_model(
        "g (float[1] x) => (float[1] y) { d = DequantizeLinear(w_quantized, s) y = Conv(x, d) }", tensors
    )

    assert fit(tmp_path, proto, at_hand=at_hand, name="w_quantized") is None


def test_groups_of_a_transposed_convolution_have_factors_of_their_own(tmp_path):
    weight, scale = (
        noise(4, 3, 5, 5),
        np.array([1.0, 2.0, 3.0, -1.0, -2.0, -3.0]),
    )  # (in, out / groups), 2 groups
    factors = np.repeat(scale.reshape(2, 3), 2, axis=0)[:, :, None, None]
    stored = (weight * factors).astype("f4")
    changed = stored.copy()
    changed[3, 1, 2, 2] *= np.float32(1.5)

    def found(array: Array, at_hand: bool) -> ScaledFit | None:
        return fit(tmp_path, array, weight, scale, at_hand=at_hand, axis=1, group=2)

    assert found(stored, False).evidence == "sampled"  # manifests describe channels along axis 0 only
    assert found(stored, True).evidence == "content"
    assert found(changed, True) is None
    assert fit(tmp_path, stored, weight, scale[::-1], at_hand=True, axis=1, group=2) is None


def test_factors_of_another_number_fit_nothing(tmp_path):
    assert fit(tmp_path, scaled(), scale=np.ones(5)) is None


# vectors


def vector(folder: Path, stored: Array, expected: Array, sizes: Array | None = None) -> float | None:
    known, ledger, _ = contents(folder, conv(stored), WEIGHT, "full", False)
    return fit_vector(known, entry(ledger, "w"), expected, np.abs(expected) if sizes is None else sizes)


EXPECTED = np.array([1.0, -2.0, 1e-3])


def test_vector_is_known_by_its_values(tmp_path):
    assert vector(tmp_path, EXPECTED.astype("f4"), EXPECTED) < 1e-9
    assert vector(tmp_path, EXPECTED.astype("f4").reshape(1, 3, 1), EXPECTED) is not None


@pytest.mark.parametrize("stored", [np.array([1.0, -2.0, 1.001e-3]), np.array([1.0, -2.0]), np.ones((3, 3))])
def test_other_vectors_are_not_it(tmp_path, stored):
    assert vector(tmp_path, stored.astype("f4"), EXPECTED) is None


def test_difference_of_large_numbers_rounds_as_they_do(tmp_path):
    stored = (EXPECTED + 1e-4).astype("f4")

    assert vector(tmp_path, stored, EXPECTED, sizes=np.full(3, 1e3)) is not None
    assert vector(tmp_path, stored, EXPECTED, sizes=np.ones(3)) is None


@both
@pytest.mark.parametrize("half", ["f2", ml_dtypes.bfloat16])
def test_channels_that_were_scaled_in_a_half_type_and_widened_are_rounded_to_it(tmp_path, half, at_hand):
    stored = scaled().astype(half).astype("f4")
    changed = stored.copy()
    changed.reshape(-1)[0] *= np.float32(1.0625)

    assert fit(tmp_path, stored, at_hand=at_hand) is not None
    assert fit(tmp_path, changed, at_hand=at_hand) is None


# a factor for each channel that moved from a norm into the weights behind it (SmoothQuant)

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
