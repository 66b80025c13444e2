"""Weights of blocked convolutions are restored to PyTorch's order as a whole, or nothing is claimed of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import buffer, convolution, lines_of, manifest_of, noise, parameter, reconcile, text_model

from analyzer.manifest import BatchNorm
from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.layouts import Tiles


def blocked(weight: np.ndarray, block: int, *, is_deep: bool) -> np.ndarray:
    """Return MLAS's layout, written element by element: MlasReorderFilterOIHWBiBo, or -OIHWBo."""
    rows, columns, height, width = weight.shape
    deep = block if is_deep else 1
    found = [
        weight[o + bo, i + bi, h, w] if o + bo < rows else 0.0
        for o in range(0, rows, block)
        for i in range(0, columns, deep)
        for h in range(height)
        for w in range(width)
        for bi in range(deep)
        for bo in range(block)
    ]
    return np.array(found, np.float32).reshape(-(-rows // block) * block, columns, height, width)


@pytest.mark.parametrize(("columns", "is_deep"), [(16, True), (3, False), (1, False)])
def test_a_weight_comes_back_from_its_tiles(columns: int, is_deep: bool) -> None:
    weight = np.random.default_rng(0).standard_normal((20, columns, 3, 2)).astype(np.float32)
    stored = blocked(weight, 8, is_deep=is_deep)

    tiles = Tiles(weight.shape, stored.shape, 8, is_deep)

    assert tiles.fills_with(stored, 0.0)
    assert np.array_equal(tiles.restore(stored), weight)
    every = np.arange(weight.size)
    assert np.array_equal(stored.reshape(-1)[tiles.positions(every)], weight.reshape(-1))


def test_what_stands_behind_the_last_channel_has_to_be_zeros() -> None:
    weight = np.ones((20, 16, 1, 1), np.float32)
    stored = blocked(weight, 8, is_deep=True)
    stored.reshape(-1)[-1] = 1e-3

    assert not Tiles(weight.shape, stored.shape, 8, is_deep=True).fills_with(stored, 0.0)
    assert not Tiles((20,), (24,), 8, is_deep=False).fills_with(np.arange(24.0), 0.0)


KNOWN = {
    "layers.0.weight": noise(16, 16, 3, 3),
    "layers.0.bias": noise(16, seed=1),
    "layers.1.weight": noise(20, 16, 3, 3, seed=2),
    "layers.1.bias": noise(20, seed=3),
}
FIRST = 'a = com.microsoft.nchwc.Conv <kernel_shape = [3, 3]> (r, "0_nchwc", "layers.0.bias")'
SECOND = 'b = com.microsoft.nchwc.Conv <kernel_shape = [3, 3]> (a, "1_nchwc", "1_bias")'
END = "y = com.microsoft.nchwc.ReorderOutput <channels = 20> (b)"


def run(folder: Path, *, element: float = 0.0, nodes: str = f"{FIRST} {SECOND} {END}") -> Reconciliation:
    """Reconcile onnxruntime's optimized file of two convolutions for a machine with vectors of 8 floats."""
    stored = {
        "0_nchwc": blocked(KNOWN["layers.0.weight"], 8, is_deep=True),
        "layers.0.bias": KNOWN["layers.0.bias"],
        "1_nchwc": blocked(KNOWN["layers.1.weight"], 8, is_deep=True),
        "1_bias": np.pad(KNOWN["layers.1.bias"], (0, 4)),
    }
    stored["1_nchwc"].reshape(-1)[100] += np.float32(element)
    head = '<ir_version: 10, opset_import: ["" : 17, "com.microsoft.nchwc" : 1]> '
    head += "g (float[1,16,9,9] x) => (float[1,20,5,5] y)"
    text = f"{head} {{ r = com.microsoft.nchwc.ReorderInput (x) {nodes} }}"
    known = [(convolution if array.ndim > 1 else parameter)(name, array) for name, array in KNOWN.items()]
    return reconcile(folder, text_model(text, stored), manifest_of(*known))


def test_a_file_of_blocked_convolutions_balances_and_says_what_moved(tmp_path: Path) -> None:
    result = run(tmp_path)

    assert result.balanced
    assert lines_of(result) == {
        "layers.0.weight": "reshaped",
        "layers.0.bias": "identical",
        "layers.1.weight": "reshaped",
        "layers.1.bias": "renamed",
    }
    assert result.onnx_parameters == sum(array.size for array in KNOWN.values())


@pytest.mark.parametrize(
    ("behind", "element", "is_same"), [(1.0, 0, True), (0.5, 0, False), (1.0, 0.01, False)]
)
def test_a_factor_of_each_channel_is_a_convolution_with_ones_behind(
    tmp_path: Path, behind: float, element: float, is_same: bool
) -> None:
    scale = noise(20, 1, 1, seed=5)
    stored = np.pad(scale.reshape(20, 1, 1, 1), ((0, 4), (0, 0), (0, 0), (0, 0)), constant_values=behind)
    stored[7] += np.float32(element)
    head = '<ir_version: 10, opset_import: ["" : 17, "com.microsoft.nchwc" : 1]> '
    text = f"""{head} g (float[1,20,5,5] x) => (float[1,20,5,5] y) {{
        r = com.microsoft.nchwc.ReorderInput (x)
        s = com.microsoft.nchwc.Conv <group = 24, kernel_shape = [1, 1]> (r, "mul_scale")
        y = com.microsoft.nchwc.ReorderOutput <channels = 20> (s)
    }}"""

    result = reconcile(
        tmp_path, text_model(text, {"mul_scale": stored}), manifest_of(parameter("layer_scale", scale))
    )

    assert result.balanced is is_same


@pytest.mark.parametrize("off", [0.0, 1e-3])
def test_a_norm_that_follows_no_convolution_is_a_convolution_of_one_pixel(tmp_path: Path, off: float) -> None:
    random = np.random.default_rng(8)
    values = {f"bn.{leaf}": random.uniform(0.5, 2, 20).astype(np.float32) for leaf in LEAVES}
    gamma, beta, mean, variance = values.values()
    scale = gamma / np.sqrt(variance + np.float32(1e-5))
    shift = beta - mean * scale
    shift[3] += np.float32(off)
    stored = {"bn_scale": np.pad(scale, (0, 4)).reshape(24, 1, 1, 1), "bn_B": np.pad(shift, (0, 4))}
    head = '<ir_version: 10, opset_import: ["" : 17, "com.microsoft.nchwc" : 1]> '
    text = f"""{head} g (float[1,20,5,5] x) => (float[1,20,5,5] y) {{
        r = com.microsoft.nchwc.ReorderInput (x)
        s = com.microsoft.nchwc.Conv <group = 24, kernel_shape = [1, 1]> (r, bn_scale, bn_B)
        y = com.microsoft.nchwc.ReorderOutput <channels = 20> (s)
    }}"""
    known = [(buffer if "running" in name else parameter)(name, array) for name, array in values.items()]
    norm = BatchNorm("bn", 1e-5, *(f"bn.{leaf}" for leaf in LEAVES))

    result = reconcile(
        tmp_path, text_model(text, stored), manifest_of(*known, batch_norms=(norm,)), "full", values
    )

    assert result.balanced is (not off)


LEAVES = ("weight", "bias", "running_mean", "running_var")


def test_another_element_in_the_tiles_is_found(tmp_path: Path) -> None:
    assert not run(tmp_path, element=0.01).balanced


def test_tiles_that_no_output_depends_on_are_dead_and_not_only_moved(tmp_path: Path) -> None:
    end = END.replace("20", "16").replace("(b)", "(a)")

    result = run(tmp_path, nodes=f"{FIRST} {SECOND} {end}")

    assert lines_of(result) == {
        "layers.0.weight": "reshaped",
        "layers.0.bias": "identical",
        "layers.1.weight": "dead",
        "layers.1.bias": "dead",
    }
