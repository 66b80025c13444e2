"""Parallel convolutions that were made one before an export: RepVGG's block, and its likes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from models import bridge_of, buffer, convolution, lines_of, manifest_of, parameter, reconcile, text_model

from analyzer.manifest import BatchNorm, Manifest

Array = npt.NDArray[np.float32]
LEAVES = ("weight", "bias", "running_mean", "running_var")

BLOCKS: dict[str, tuple[dict[str, tuple[str, int | tuple[int, int]]], str, int, int]] = {
    # module of a branch -> its BatchNorm and the size of its kernel; the BatchNorm of the input; channels; groups
    "RepVGG": (
        {"b.dense.conv": ("b.dense.bn", 3), "b.1x1.conv": ("b.1x1.bn", 1)},
        "b.identity",
        6,
        1,
    ),
    "without the input": ({"b.conv1.conv": ("b.conv1.bn", 3), "b.conv2.conv": ("b.conv2.bn", 1)}, "", 6, 1),
    "in groups": (
        {"b.conv1.conv": ("b.conv1.bn", 3), "b.conv2.conv": ("b.conv2.bn", 1)},
        "b.bn",
        6,
        2,
    ),
    "depthwise": ({"b.conv.conv": ("b.conv.bn", 7), "b.conv1.conv": ("b.conv1.bn", 3)}, "", 6, 6),
    "in a list": (
        {
            "b.kxk.0.conv": ("b.kxk.0.bn", 3),
            "b.kxk.1.conv": ("b.kxk.1.bn", 3),
            "b.scale.conv": ("b.scale.bn", 1),
        },
        "b.identity",
        6,
        1,
    ),
    "siblings": (
        {
            "b.conv": ("b.bn", 3),
            "b.ver_conv": ("b.ver_bn", (3, 1)),
            "b.hor_conv": ("b.hor_bn", (1, 3)),
        },
        "b.rbr_identity",
        6,
        1,
    ),
    "a convolution and the input": ({"b.conv": ("b.bn", 3)}, "b.rbr_identity", 6, 1),
    "at the root": ({"conv1.conv": ("conv1.bn", 3), "conv2.conv": ("conv2.bn", 1)}, "", 6, 1),
}


def block(name: str, eps: float = 1e-5) -> tuple[dict[str, Array], list[BatchNorm], Array, Array, int]:
    """Return PyTorch's tensors and norms, and weight and bias of the sum by the paper's formula."""
    convolutions, identity, channels, groups = BLOCKS[name]
    rng = np.random.default_rng(len(name))
    tensors: dict[str, Array] = {}
    norms = []
    sizes = {
        module: (size, size) if isinstance(size, int) else size for module, (_, size) in convolutions.items()
    }
    widest = max(max(size) for size in sizes.values())
    weight = np.zeros((channels, channels // groups, widest, widest))
    bias = np.zeros(channels)
    for module, (norm, _) in [*convolutions.items(), *([("", (identity, 0))] if identity else [])]:
        high, wide = sizes.get(module, (1, 1))
        if module:
            kernel = rng.standard_normal((channels, channels // groups, high, wide)).astype(np.float32)
            tensors[f"{module}.weight"] = kernel
        else:  # the input itself
            kernel = np.zeros((channels, channels // groups, 1, 1), np.float32)
            for channel in range(channels):
                kernel[channel, channel % (channels // groups)] = 1
        found = [rng.uniform(0.5, 1.5, channels).astype(np.float32) for _ in LEAVES]
        tensors |= {f"{norm}.{leaf}": value for leaf, value in zip(LEAVES, found, strict=True)}
        norms.append(BatchNorm(norm, 1e-5, *(f"{norm}.{leaf}" for leaf in LEAVES)))
        gamma, beta, mean, variance = (value.astype(np.float64) for value in found)
        scale, top, left = gamma / np.sqrt(variance + eps), (widest - high) // 2, (widest - wide) // 2
        weight[:, :, top : top + high, left : left + wide] += kernel * scale[:, None, None, None]
        bias += beta - mean * scale
    return tensors, norms, weight.astype(np.float32), bias.astype(np.float32), groups


def manifest(tensors: Mapping[str, Array], norms: list[BatchNorm], by: str = "pickled-module") -> Manifest:
    made = manifest_of(
        *(
            buffer(name, value)
            if "running" in name
            else (convolution if value.ndim == 4 else parameter)(name, value)
            for name, value in tensors.items()
        ),
        batch_norms=tuple(norms),
        values=dict(tensors),
    )
    return replace(made, source={"source": "tests", "parameters_by": by})


def file_of(weight: Array, bias: Array, groups: int, name: str = "b.conv.weight") -> onnx.ModelProto:
    channels, pad = weight.shape[0], weight.shape[2] // 2
    shape = f"float[1,{channels},8,8]"
    settings = f"group = {groups}, pads = [{pad}, {pad}, {pad}, {pad}]"
    return text_model(
        f'g ({shape} x) => ({shape} y) {{ y = Conv<{settings}>(x, "{name}", "bias") }}',
        {name: weight, "bias": bias},
    )


@pytest.mark.parametrize("stored", ["b.conv.weight", "onnx::Conv_7"])
@pytest.mark.parametrize("name", BLOCKS)
def test_the_sum_of_all_branches_is_explained(tmp_path: Path, name: str, stored: str) -> None:
    tensors, norms, weight, bias, groups = block(name)

    proto = file_of(weight, bias, groups, stored)
    result = reconcile(tmp_path, proto, manifest(tensors, norms), "full", tensors)

    assert result.balanced, lines_of(result)
    learned = [value for key, value in tensors.items() if "running" not in key]
    elements = sum(value.size for value in learned)
    lost = weight.size + bias.size - elements
    assert bridge_of(result) == {"folded-batchnorm": (len(learned), elements, lost, lost)}
    assert all(line.decided_by.startswith("content:branches of ") for line in result.parameters)


CHANGED = {
    "a weight": lambda weight, bias: weight.__setitem__((0, 0, 1, 1), weight[0, 0, 1, 1] + 0.01),
    "a corner": lambda weight, bias: weight.__setitem__((5, 0, 0, 0), weight[5, 0, 0, 0] * 1.001),
    "a bias": lambda weight, bias: bias.__setitem__(2, bias[2] + 0.01),
    "a channel": lambda weight, bias: weight.__setitem__(3, weight[3] * 1.01),
    "two channels exchanged": lambda weight, bias: weight.__setitem__([0, 1], weight[[1, 0]]),
}


@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize("name", ["RepVGG", "depthwise", "siblings"])
def test_another_sum_is_not(tmp_path: Path, name: str, change: str) -> None:
    tensors, norms, weight, bias, groups = block(name)
    CHANGED[change](weight, bias)

    proto = file_of(weight, bias, groups)

    assert not reconcile(tmp_path, proto, manifest(tensors, norms), "full", tensors).balanced


def test_a_sum_that_lacks_a_branch_is_not(tmp_path: Path) -> None:
    tensors, norms, _, _, _ = block("RepVGG")
    _, _, weight, bias, groups = block("without the input")

    proto = file_of(weight, bias, groups)

    assert not reconcile(tmp_path, proto, manifest(tensors, norms), "full", tensors).balanced


def test_siblings_with_exchanged_norms_are_not(tmp_path: Path) -> None:
    tensors, norms, weight, bias, groups = block("siblings")
    factors = {
        norm: tensors[f"b.{norm}.weight"] / np.sqrt(tensors[f"b.{norm}.running_var"] + 1e-5)
        for norm in ("ver_bn", "hor_bn")
    }
    gap = (factors["hor_bn"] - factors["ver_bn"])[:, None, None, None]
    weight[:, :, :, 1:2] += tensors["b.ver_conv.weight"] * gap
    weight[:, :, 1:2, :] -= tensors["b.hor_conv.weight"] * gap

    proto = file_of(weight, bias, groups)

    assert not reconcile(tmp_path, proto, manifest(tensors, norms), "full", tensors).balanced


def test_siblings_without_the_input_s_norm_are_not(tmp_path: Path) -> None:
    tensors, norms, weight, bias, groups = block("siblings")
    norm = {leaf: tensors[f"b.rbr_identity.{leaf}"] for leaf in LEAVES}
    scale = norm["weight"] / np.sqrt(norm["running_var"] + 1e-5)
    weight[np.arange(6), np.arange(6), 1, 1] -= scale
    bias -= norm["bias"] - norm["running_mean"] * scale

    proto = file_of(weight, bias, groups)

    assert not reconcile(tmp_path, proto, manifest(tensors, norms), "full", tensors).balanced


@pytest.mark.parametrize("listed_first", ["convolutions", "the input's norm"])
def test_siblings_are_paired_in_the_order_of_the_module(tmp_path: Path, listed_first: str) -> None:
    tensors, norms, weight, bias, groups = block("siblings")
    is_first = (lambda name: "conv" in name) if listed_first == "convolutions" else lambda name: "rbr" in name
    moved = dict(sorted(tensors.items(), key=lambda item: not is_first(item[0])))

    proto = file_of(weight, bias, groups)

    assert reconcile(tmp_path, proto, manifest(moved, norms), "full", moved).balanced


@pytest.mark.parametrize("eps", [1e-5, 1e-3])
@pytest.mark.parametrize("by", ["names", "pickled-module"])
def test_the_eps_of_a_state_dict_is_one_of_the_usual_ones(tmp_path: Path, by: str, eps: float) -> None:
    tensors, norms, weight, bias, groups = block("RepVGG", eps)

    proto = file_of(weight, bias, groups)
    result = reconcile(tmp_path, proto, manifest(tensors, norms, by), "full", tensors)

    assert result.balanced == (by == "names" or eps == 1e-5)


def test_a_file_in_half_precision_is_explained(tmp_path: Path) -> None:
    tensors, norms, weight, bias, groups = block("RepVGG")
    proto = file_of(weight.astype(np.float16), bias.astype(np.float16), groups)

    assert reconcile(tmp_path, proto, manifest(tensors, norms), "full", tensors).balanced


def test_two_blocks_have_each_their_own_sum(tmp_path: Path) -> None:
    tensors, norms, first, bias, _ = block("RepVGG")
    others, more, second, other_bias, _ = block("in a list")
    renamed = {f"c{name[1:]}": value for name, value in others.items()}
    moved = [
        BatchNorm(f"c{n.module[1:]}", n.eps, *(f"c{n.module[1:]}.{leaf}" for leaf in LEAVES)) for n in more
    ]
    known = manifest(tensors | renamed, norms + moved)
    shape = "float[1,6,8,8]"
    pads = "pads = [1, 1, 1, 1]"

    def run(one: str, two: str) -> bool:
        proto = text_model(
            f"g ({shape} x) => ({shape} y) {{ h = Conv<{pads}>(x, {one}, {one}b) y = Conv<{pads}>(h, {two}, {two}b) }}",
            {"p": first, "pb": bias, "q": second, "qb": other_bias},
        )
        return reconcile(tmp_path, proto, known, "full", tensors | renamed).balanced

    assert run("p", "q")
