"""A weight times a factor for each channel, however it is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from models import (
    Values,
    audit,
    convolution,
    entry,
    manifest_of,
    noise,
    quantized,
    text_model,
    without_values,
)

from analyzer.content import Array, sample_positions
from analyzer.reconciliation import ContentMode
from analyzer.reconciliation.contents import Contents
from analyzer.reconciliation.originals import Originals
from analyzer.reconciliation.scaled import ScaledFit, fit_scaled, fit_vector

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

    assert found(stored, False).evidence == "sampled"  # a manifest knows channels along axis 0 alone
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
