"""A BatchNorm folded into the convolution before it, by hand-computed formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from models import (
    bridge_of,
    buffer,
    convolution,
    lines_of,
    manifest_of,
    parameter,
    ramp,
    reconcile,
    text_model,
)

from analyzer.manifest import BatchNorm, Manifest

EPS = 1e-5
WEIGHT = (ramp(2, 3, 2, 2) / 7).astype("f4")  # (out, in, height, width): 24 elements
VECTORS: dict[str, Any] = {
    "bn.weight": np.array([0.5, -2.0], "f4"),
    "bn.bias": np.array([0.25, 1.5], "f4"),
    "bn.running_mean": np.array([3.0, -1.0], "f4"),
    "bn.running_var": np.array([4.0, 0.25], "f4"),
    "conv.bias": np.array([10.0, 20.0], "f4"),
}


def known(conv_bias: bool = False, affine: bool = True, weight: np.ndarray = WEIGHT) -> Manifest:
    names = [*(["conv.bias"] if conv_bias else []), *(["bn.weight", "bn.bias"] if affine else [])]
    norm = BatchNorm(
        "bn",
        EPS,
        "bn.weight" if affine else None,
        "bn.bias" if affine else None,
        "bn.running_mean",
        "bn.running_var",
    )
    return manifest_of(
        convolution("conv.weight", weight),
        *(parameter(name, VECTORS[name]) for name in names),
        *(buffer(name, VECTORS[name]) for name in ("bn.running_mean", "bn.running_var")),
        batch_norms=(norm,),
        values={name: VECTORS[name] for name in (*names, "bn.running_mean", "bn.running_var")},
    )


def fold(conv_bias: bool = False, affine: bool = True) -> dict[str, np.ndarray]:
    """What the exporter stores: W * s, and (b - mean) * s + beta, with s = gamma / sqrt(var + eps)."""
    gamma, beta = (VECTORS["bn.weight"], VECTORS["bn.bias"]) if affine else (np.ones(2), np.zeros(2))
    scale = gamma / np.sqrt(VECTORS["bn.running_var"] + EPS)
    bias = VECTORS["conv.bias"] if conv_bias else np.zeros(2)
    shift = (bias - VECTORS["bn.running_mean"]) * scale + beta
    return {"weight": (WEIGHT * scale[:, None, None, None]).astype("f4"), "bias": shift.astype("f4")}


def stored(weight: np.ndarray, bias: np.ndarray, bias_name: str = "conv.weight_bias"):
    return text_model(
        f'g (float[1,3,4,4] x) => (float[1,2,3,3] y) {{ y = Conv(x, "conv.weight", "{bias_name}") }}',
        {"conv.weight": weight, bias_name: bias},
    )


def test_shift_of_the_fold_is_the_textbooks():
    # channel 0: s = 0.5 / 2 = 0.25, b' = -3 * 0.25 + 0.25 = -0.5
    # channel 1: s = -2 / 0.5 = -4, b' = 1 * -4 + 1.5 = -2.5
    assert fold()["bias"].tolist() == pytest.approx([-0.5, -2.5], rel=1e-4)


@pytest.mark.parametrize("content", ["sampled", "full"])
def test_fold_without_convolution_bias_takes_the_norms_weight_away(tmp_path, content):
    result = reconcile(tmp_path, stored(**fold()), known(), content)

    # 24 + 2 + 2 in PyTorch, 24 + 2 in the file
    assert bridge_of(result) == {"folded-batchnorm": (3, 28, -2, -2)}
    assert (result.onnx_parameters, result.ledger.stored_elements) == (26, 26)
    assert result.balanced


@pytest.mark.parametrize("bias_name", ["conv.weight_bias", "conv.bias", "val_7"])
def test_fold_with_convolution_bias_takes_that_away_too(tmp_path, bias_name):
    result = reconcile(tmp_path, stored(**fold(conv_bias=True), bias_name=bias_name), known(conv_bias=True))

    # 24 + 2 + 2 + 2 in PyTorch, 24 + 2 in the file
    assert bridge_of(result) == {"folded-batchnorm": (4, 30, -4, -4)}
    assert result.balanced


def test_fold_of_a_norm_without_parameters_makes_a_bias(tmp_path):
    result = reconcile(tmp_path, stored(**fold(affine=False)), known(affine=False))

    assert bridge_of(result) == {"folded-batchnorm": (2, 26, 2, 2)}
    assert (result.onnx_parameters, result.balanced) == (26, True)


def test_fold_tells_the_norm_and_the_largest_error(tmp_path):
    result = reconcile(tmp_path, stored(**fold()), known())

    weight = next(p for p in result.parameters if p.name == "conv.weight")
    assert weight.decided_by == "content:batchnorm bn"
    assert weight.max_abs_error < 1e-5


def test_one_changed_channel_is_no_fold(tmp_path):
    folded = fold()
    folded["weight"][1] *= np.float32(1.01)

    result = reconcile(tmp_path, stored(**folded), known())

    assert lines_of(result) == {"conv.weight": "differing", "bn.weight": "missing", "bn.bias": "missing"}


@pytest.mark.parametrize("position", [0, 5, 23])
def test_one_changed_element_is_no_fold(tmp_path, position):
    folded = fold()
    folded["weight"].reshape(-1)[position] += np.float32(0.01)

    assert not reconcile(tmp_path, stored(**folded), known()).balanced


def test_two_elements_changed_in_place_are_no_fold_although_sums_agree(tmp_path):
    folded = fold()
    flat = folded["weight"].reshape(2, -1)
    flat[0, [0, 1]] = flat[0, [1, 0]]

    assert not reconcile(tmp_path, stored(**folded), known()).balanced


def test_wrong_bias_is_no_fold(tmp_path):
    folded = fold()
    folded["bias"][0] += np.float32(0.01)

    result = reconcile(tmp_path, stored(**folded), known())

    assert lines_of(result)["conv.weight"] == "differing"
    assert not result.balanced


def test_unfolded_convolution_and_norm_are_identical(tmp_path):
    names = ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var")
    inputs = ", ".join(f'"{name}"' for name in names)
    proto = text_model(
        f"""g (float[1,3,4,4] x) => (float[1,2,3,3] y) {{
            h = Conv(x, "conv.weight") y = BatchNormalization(h, {inputs})
        }}""",
        {"conv.weight": WEIGHT, **{name: VECTORS[name] for name in names}},
    )

    result = reconcile(tmp_path, proto, known())

    assert bridge_of(result) == {"identical": (3, 28, 0, 0), "buffer": (2, 4, 0, 4)}


def test_each_norm_is_folded_once(tmp_path):
    """Two convolutions of which only one has a norm: the other's scaled weight is unexplained by it."""
    folded = fold()
    proto = text_model(
        """g (float[1,3,4,4] x) => (float[1,2,3,3] y) {
            h = Conv(x, "conv.weight", "conv.weight_bias") y = Conv(x, "other.weight", "other.weight_bias")
        }""",
        {
            "conv.weight": folded["weight"],
            "conv.weight_bias": folded["bias"],
            "other.weight": folded["weight"],
            "other.weight_bias": folded["bias"],
        },
    )
    one = known()
    manifest = manifest_of(
        *one.tensors,
        convolution("other.weight", WEIGHT),
        batch_norms=one.batch_norms,
        values={
            name: VECTORS[name] for name in ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var")
        },
    )

    result = reconcile(tmp_path, proto, manifest)

    assert lines_of(result)["other.weight"] == "differing"


def test_names_alone_explain_no_fold(tmp_path):
    result = reconcile(tmp_path, stored(**fold()), known(), "none")

    assert not result.balanced
