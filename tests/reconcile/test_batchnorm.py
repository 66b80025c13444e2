"""A BatchNorm folded into the convolution before it, by hand-computed formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from models import (
    bridge_of,
    buffer,
    convolution,
    lines_of,
    manifest_of,
    noise,
    parameter,
    quantized,
    ramp,
    reconcile,
    text_model,
    with_scopes,
)
from onnx import numpy_helper

from analyzer.manifest import BatchNorm, Manifest
from analyzer.model.content import sample_positions

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
    """Return the tensors of the folded file: W * s, and (b - mean) * s + beta, with s = gamma / sqrt(var + eps)."""
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


def test_fold_names_the_norm_and_the_largest_error(tmp_path):
    result = reconcile(tmp_path, stored(**fold()), known())

    weight = next(p for p in result.parameters if p.name == "conv.weight")
    assert weight.decided_by == "content:batchnorm bn"
    assert [piece.computed and piece.computed.rule for piece in weight.pieces] == ["batchnorm bn"]
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
    """Only one of two convolutions has a norm, which cannot explain the other's scaled weight."""
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


def test_shapes_alone_suggest_a_fold(tmp_path):
    result = reconcile(tmp_path, stored(**fold()), known(), "none")

    assert bridge_of(result) == {"named": (1, 24, 0, 0), "folded-batchnorm": (2, 4, -2, -2)}
    assert result.parameters[1].decided_by == "structure:shape-batchnorm bn"


# with PyTorch's values given, and in other encodings


both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])
ARRAYS = {"conv.weight": WEIGHT, **VECTORS}


def run(
    tmp_path, proto, at_hand: bool, manifest: Manifest | None = None, arrays: dict[str, Any] | None = None
):
    manifest = known(conv_bias=True) if manifest is None else manifest
    return reconcile(
        tmp_path, proto, manifest, "full", (ARRAYS if arrays is None else arrays) if at_hand else None
    )


@both
@pytest.mark.parametrize("name", ["conv.weight", "onnx::Conv_117"])
def test_fold_is_known_by_a_checkpoint_as_by_a_manifest(tmp_path, name, at_hand):
    folded = fold(conv_bias=True)
    proto = text_model(
        f'g (float[1,3,4,4] x) => (float[1,2,3,3] y) {{ y = Conv(x, "{name}", b) }}',
        {name: folded["weight"], "b": folded["bias"]},
    )

    result = run(tmp_path, proto, at_hand)

    assert bridge_of(result) == {"folded-batchnorm": (4, 30, -4, -4)}
    assert result.parameters[0].decided_by == "content:batchnorm bn"
    assert result.balanced


@both
@pytest.mark.parametrize("position", [0, 5, 23])
def test_one_changed_element_is_no_fold_by_a_checkpoint_either(tmp_path, position, at_hand):
    folded = fold(conv_bias=True)
    folded["weight"].reshape(-1)[position] += np.float32(0.01)

    assert not run(tmp_path, stored(**folded), at_hand).balanced


@pytest.mark.parametrize(("operator", "is_balanced"), [("Add", True), ("Mul", False), ("Sub", False)])
def test_a_shift_is_added(tmp_path, operator, is_balanced):
    folded = fold()
    proto = text_model(
        f"g (float[1,3,4,4] x) => (float[1,2,3,3] y) {{ c = Conv(x, w) y = {operator}(c, b) }}",
        {"w": folded["weight"], "b": folded["bias"].reshape(2, 1, 1)},
    )

    assert run(tmp_path, proto, True, known()).balanced == is_balanced


@pytest.mark.parametrize("name", ["conv.weight", "onnx::Conv_117"])
@pytest.mark.parametrize("position", [None, 0, 23])
def test_other_running_statistics_are_told(tmp_path, name, position):
    factors = np.array([0.3, -4.1], "f4")[:, None, None, None]  # 0.25 and -4 by PyTorch's statistics
    weight = (WEIGHT * factors).astype("f4")
    if position is not None:
        weight.reshape(-1)[position] *= np.float32(1.01)
    proto = text_model(
        f'g (float[1,3,4,4] x) => (float[1,2,3,3] y) {{ y = Conv(x, "{name}", b) }}',
        {name: weight, "b": fold()["bias"]},
    )

    result = run(tmp_path, proto, True, known())

    line = next(each for each in result.parameters if each.name == "conv.weight")
    assert not result.balanced
    assert (line.decided_by == "content:rescaled") == (position is None)
    if position is None:
        assert line.line == "differing"
        assert [each for each in result.findings if "exported in training mode" in each.message]


@both
@pytest.mark.parametrize("dtype", ["f2", ml_dtypes.bfloat16])
def test_fold_may_be_cast(tmp_path, dtype, at_hand):
    folded = {part: array.astype(dtype) for part, array in fold(conv_bias=True).items()}

    result = run(tmp_path, stored(**folded), at_hand)

    assert result.balanced
    assert [str(line) for line in result.parameters[0].chain] == ["folded-batchnorm", "cast"]


@both
@pytest.mark.parametrize("off", [0, 3])
def test_fold_may_be_quantized_for_each_channel(tmp_path, off, at_hand):
    folded = fold(conv_bias=True)
    tensors = quantized("w", folded["weight"], axis=0)
    tensors["w_quantized"][1, 2, 0, 1] -= off
    proto = text_model(
        """g (float[1,3,4,4] x) => (float[1,2,3,3] y) {
            d = DequantizeLinear<axis = 0>(w_quantized, w_scale, w_zero_point) y = Conv(x, d, b)
        }""",
        {**tensors, "b": folded["bias"]},
    )

    result = run(tmp_path, proto, at_hand)

    assert result.balanced == (off == 0)
    assert lines_of(result)["conv.weight"] == ("quantized" if off == 0 else "missing")


@both
def test_fold_into_a_linear_layer_is_that_layer_too(tmp_path, at_hand):
    weight = noise(2, 24)
    folded = fold(conv_bias=True)
    scale = VECTORS["bn.weight"] / np.sqrt(VECTORS["bn.running_var"] + EPS)
    proto = text_model(
        "g (float[1,24] x) => (float[1,2] y) { h = MatMul(x, w) y = Add(h, b) }",
        {"w": (weight * scale[:, None]).T.astype("f4").copy(), "b": folded["bias"]},
    )

    result = run(
        tmp_path, proto, at_hand, known(conv_bias=True, weight=weight), {**ARRAYS, "conv.weight": weight}
    )

    assert result.balanced
    assert [str(line) for line in result.parameters[0].chain] == ["transposed", "folded-batchnorm"]


@both
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("is_changed", [False, True])
def test_fold_into_a_transposed_convolution_scales_its_second_axis(tmp_path, group, is_changed, at_hand):
    channels = 2 // group
    weight = noise(4, channels, 8, 8)  # (in, out / groups, height, width)
    folded = fold(conv_bias=True)
    scale = VECTORS["bn.weight"] / np.sqrt(VECTORS["bn.running_var"] + EPS)
    factors = np.repeat(scale.reshape(group, channels), 4 // group, axis=0)[:, :, None, None]
    array = (weight * factors).astype("f4")
    if is_changed:
        unseen = {*range(array.size)} - {*sample_positions(array.size).tolist()}
        array.reshape(-1)[min(unseen, default=2)] *= 2
    proto = text_model(
        f"g (float[1] x) => (float[1] y) {{ y = ConvTranspose<group = {group}>(x, w, b) }}",
        {"w": array, "b": folded["bias"]},
    )
    manifest = known(conv_bias=True, weight=weight)

    result = run(tmp_path, proto, at_hand, manifest, {**ARRAYS, "conv.weight": weight})

    assert result.balanced == (not is_changed)


# fold under the parameter's own name


def two_layers(names: tuple[str, str] = ("conv.weight", "other.weight")):
    """Return two convolutions of equal shape, each folded with a BatchNorm, and PyTorch's tensors."""
    norms = []
    tensors: dict[str, Any] = {}
    parts: dict[str, np.ndarray] = {}
    for index, layer in enumerate(("conv", "other")):
        weight = noise(2, 3, 2, 2, seed=index)
        vectors = {
            f"{layer}_bn.weight": VECTORS["bn.weight"] + index,
            f"{layer}_bn.bias": VECTORS["bn.bias"] - index,
            f"{layer}_bn.running_mean": VECTORS["bn.running_mean"] * (1 + index),
            f"{layer}_bn.running_var": VECTORS["bn.running_var"] + index,
        }
        norms.append(BatchNorm(f"{layer}_bn", EPS, *vectors))
        tensors |= {f"{layer}.weight": weight, **vectors}
        gamma, beta, mean, var = vectors.values()
        scale = gamma / np.sqrt(var + EPS)
        parts[f"{layer}.weight"] = (weight * scale[:, None, None, None]).astype("f4")
        parts[f"{layer}.bias"] = (beta - mean * scale).astype("f4")
    manifest = manifest_of(
        *(
            (buffer if "running" in name else convolution if "bn" not in name else parameter)(name, array)
            for name, array in tensors.items()
        ),
        batch_norms=tuple(norms),
        values={name: array for name, array in tensors.items() if "bn" in name},
    )
    return manifest, tensors, parts


def file_of(parts: dict[str, np.ndarray], order: list[str], names: list[str]):
    inputs = [f'"{name}"' for name in names]
    return text_model(
        f"""g (float[1] x) => (float[1] y) {{
            ["/conv/Conv"] h = Conv(x, {inputs[0]}, {inputs[1]}) ["/other/Conv"] y = Conv(h, {inputs[2]}, {inputs[3]})
        }}""",
        {name: parts[part] for name, part in zip(names, order, strict=True)},
    )


IN_ORDER = ["conv.weight", "conv.bias", "other.weight", "other.bias"]
NAMELESS = ["onnx::Conv_1", "onnx::Conv_2", "onnx::Conv_3", "onnx::Conv_4"]
NAMED = ["conv.weight", "conv.weight_bias", "other.weight", "other.weight_bias"]


@both
@pytest.mark.parametrize("names", [NAMED, NAMELESS], ids=["named", "nameless"])
def test_two_layers_have_each_its_own_norm(tmp_path, names, at_hand):
    manifest, tensors, parts = two_layers()

    result = run(tmp_path, file_of(parts, IN_ORDER, names), at_hand, manifest, tensors)

    assert result.balanced
    rules = {line.name: line.decided_by for line in result.parameters}
    assert (rules["conv.weight"], rules["other.weight"]) == (
        "content:batchnorm conv_bn",
        "content:batchnorm other_bn",
    )


@both
@pytest.mark.parametrize("names", [NAMED, NAMELESS], ids=["named", "nameless"])
@pytest.mark.parametrize(
    "order",
    [
        ["other.weight", "other.bias", "conv.weight", "conv.bias"],
        ["conv.weight", "other.bias", "other.weight", "conv.bias"],
    ],
    ids=["layers", "biases"],
)
def test_what_was_swapped_between_two_layers_is_no_fold(tmp_path, order, names, at_hand):
    manifest, tensors, parts = two_layers()

    assert not run(tmp_path, file_of(parts, order, names), at_hand, manifest, tensors).balanced


def without_bias(weight, arrays):
    """Return the manifest of a convolution without a bias, and of its norm with these arrays."""
    names = ["bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"]
    return manifest_of(
        convolution("conv.weight", weight),
        *((buffer if "running" in name else parameter)(name, arrays[name]) for name in names),
        batch_norms=(BatchNorm("bn", EPS, *names),),
        values={name: arrays[name] for name in names},
    )


@both
def test_small_bias_is_looked_at_as_closely_as_a_large_one(tmp_path, at_hand):
    """A change of 0.002 is float16 rounding beside 1, but it is all of a shift of 0.001."""
    arrays = {
        **ARRAYS,
        "bn.running_mean": np.array([1e-3, 2e-3], "f4"),
        "bn.bias": np.array([1e-3, -1e-3], "f4"),
    }
    scale = arrays["bn.weight"] / np.sqrt(arrays["bn.running_var"] + EPS)
    weight = (WEIGHT * scale[:, None, None, None]).astype("f2")
    shift = (arrays["bn.bias"] - arrays["bn.running_mean"] * scale).astype("f2")
    manifest = without_bias(WEIGHT, arrays)
    del arrays["conv.bias"]

    assert run(tmp_path, stored(weight, shift), at_hand, manifest, arrays).balanced
    assert not run(tmp_path, stored(weight, shift * 0), at_hand, manifest, arrays).balanced


@both
@pytest.mark.parametrize("gain", [1e-6, 3e-5])
def test_a_channel_that_is_hardly_there_is_rounded_as_half_precision_has_it(tmp_path, gain, at_hand):
    arrays = {**ARRAYS, "bn.weight": np.array([gain, 2.0], "f4")}
    scale = arrays["bn.weight"] / np.sqrt(arrays["bn.running_var"] + EPS)
    large = noise(2, 3000, 1, 1, seed=5)
    weight = (large * scale[:, None, None, None]).astype("f2")
    shift = (arrays["bn.bias"] - arrays["bn.running_mean"] * scale).astype("f2")
    manifest = without_bias(large, arrays)
    arrays = {**arrays, "conv.weight": large}
    del arrays["conv.bias"]
    other = weight.copy()
    other[1] = weight[1, ::-1]
    proto, changed = (
        text_model(
            'g (float16[1,3000,4,4] x) => (float16[1,2,4,4] y) { y = Conv(x, "conv.weight", "conv.weight_bias") }',
            {"conv.weight": each, "conv.weight_bias": shift},
        )
        for each in (weight, other)
    )

    assert run(tmp_path, proto, at_hand, manifest, arrays).balanced
    assert not run(tmp_path, changed, at_hand, manifest, arrays).balanced


@both
def test_bias_of_a_small_scale_is_looked_at_as_closely_as_that_of_a_large_one(tmp_path, at_hand):
    arrays = {**ARRAYS, "bn.weight": np.array([1e-4, -2e-4], "f4"), "bn.bias": np.array([1e-4, 2e-4], "f4")}
    scale = arrays["bn.weight"] / np.sqrt(arrays["bn.running_var"] + EPS)
    weight = (WEIGHT * scale[:, None, None, None]).astype("f4")
    shift = (arrays["bn.bias"] - arrays["bn.running_mean"] * scale).astype("f4")
    manifest = without_bias(WEIGHT, arrays)
    del arrays["conv.bias"]

    assert run(tmp_path, stored(weight, shift), at_hand, manifest, arrays).balanced
    assert not run(tmp_path, stored(weight, shift * np.float32(1.01)), at_hand, manifest, arrays).balanced


def by_names(layers: int, eps: dict[int, float]) -> tuple[onnx.ModelProto, Manifest]:
    """Return convolutions, each folded with a norm of its own eps, and a state dict, which has no eps."""
    rng = np.random.default_rng(3)
    values, tensors, nodes, norms = {}, {}, [], []
    for i in range(layers):
        values |= {f"c{i}.weight": rng.standard_normal((16, 16, 1, 1)).astype("f4")}
        values |= {f"b{i}.{leaf}": rng.uniform(0.3, 2, 16).astype("f4") for leaf in ("weight", "bias")}
        values |= {
            f"b{i}.{leaf}": rng.uniform(0.3, 2, 16).astype("f4") for leaf in ("running_mean", "running_var")
        }
        weight, gamma, beta, mean, variance = list(values.values())[-5:]
        scale = gamma.astype("f8") / np.sqrt(variance.astype("f8") + eps.get(i, 1e-3))
        tensors[f"onnx::Conv_{2 * i}"] = (weight * scale[:, None, None, None]).astype("f4")
        tensors[f"onnx::Conv_{2 * i + 1}"] = (beta - mean * scale).astype("f4")
        nodes.append(f'h{i + 1} = Conv(h{i}, "onnx::Conv_{2 * i}", "onnx::Conv_{2 * i + 1}")')
        leaves = ("weight", "bias", "running_mean", "running_var")
        norms.append(BatchNorm(f"b{i}", 1e-5, *(f"b{i}.{leaf}" for leaf in leaves)))
    shape = "float[1,16,2,2]"
    proto = text_model(f"g ({shape} h0) => ({shape} h{layers}) {{ {' '.join(nodes)} }}", tensors)
    manifest = manifest_of(
        *(
            buffer(name, value)
            if "running" in name
            else (convolution if value.ndim == 4 else parameter)(name, value)
            for name, value in values.items()
        ),
        batch_norms=tuple(norms),
        values=values,
    )
    return proto, replace(manifest, source={"source": "tests", "parameters_by": "names"})


@pytest.mark.parametrize("eps", [1e-2, 1e-3, 1e-4, 1e-6])
def test_a_state_dict_lacks_the_eps_which_the_folded_weights_give(tmp_path, eps):
    proto, manifest = by_names(3, dict.fromkeys(range(3), eps))
    result = reconcile(tmp_path, proto, manifest)

    assert result.balanced
    assert [line.decided_by for line in result.parameters if line.name.startswith("c")] == [
        f"content:batchnorm b{i}, eps {eps:g}" for i in range(3)
    ]


def test_the_eps_of_a_manifest_is_known_and_no_other_is_tried(tmp_path):
    proto, manifest = by_names(3, {})
    result = reconcile(tmp_path, proto, replace(manifest, source={"source": "tests"}))

    assert not result.balanced


@pytest.mark.parametrize("eps", [{1: 3e-3}, {1: 1e-2}, {0: 1e-5, 1: 1e-5, 2: 1e-3}, {1: 0.1}], ids=str)
def test_a_weight_that_somebody_scaled_has_no_eps_of_its_own(tmp_path, eps):
    proto, manifest = by_names(3, eps)

    assert not reconcile(tmp_path, proto, manifest).balanced


def test_two_kinds_of_norms_have_two(tmp_path):
    proto, manifest = by_names(4, {0: 1e-5, 1: 1e-5})

    assert reconcile(tmp_path, proto, manifest).balanced


def in_codes(proto: onnx.ModelProto, *, scaled: float = 1.0) -> onnx.ModelProto:
    """Return the model with 8-bit weights and the first bias times `scaled`; biases stay floats, as in dynamic int8."""
    stored = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    nodes, tensors = [], {}
    for place, node in enumerate(proto.graph.node):
        x, weight, bias = node.input
        tensors |= quantized(f"w{place}", stored[weight])
        tensors[f"bias{place}"] = stored[bias] * np.float32(1 if place else scaled)
        codes = ", ".join(f"w{place}_{leaf}" for leaf in ("quantized", "scale", "zero_point"))
        nodes.append(f"d{place} = DequantizeLinear({codes})")
        nodes.append(f"{node.output[0]} = Conv({x}, d{place}, bias{place})")
    shape = "float[1,16,2,2]"
    return text_model(f"g ({shape} h0) => ({shape} h{len(stored) // 2}) {{ {' '.join(nodes)} }}", tensors)


@pytest.mark.parametrize("eps", [1e-3, 1e-4, 1e-6])
def test_codes_are_too_coarse_for_an_eps_and_the_bias_gives_it(tmp_path, eps):
    proto, manifest = by_names(3, dict.fromkeys(range(3), eps))

    assert reconcile(tmp_path, in_codes(proto), manifest).balanced


@pytest.mark.parametrize("eps", [{1: 3e-3}, {1: 0.1}, dict.fromkeys(range(3), 2e-3)], ids=str)
def test_codes_of_a_weight_that_somebody_scaled_have_no_eps_either(tmp_path, eps):
    proto, manifest = by_names(3, eps)

    assert not reconcile(tmp_path, in_codes(proto), manifest).balanced


def test_nor_have_they_one_where_the_bias_is_another(tmp_path):
    proto, manifest = by_names(3, {})

    assert not reconcile(tmp_path, in_codes(proto, scaled=1.001), manifest).balanced


def test_a_scalar_of_other_values_beside_a_fold_is_differing(tmp_path):
    """A scalar has no channels that a norm could scale."""
    parts, scale = fold(), np.array(0.5, "f4")
    text = 'g (float[1,3,4,4] x) => (float[1,2,3,3] y) { h = Conv(x, "conv.weight", b) y = Mul(h, scale) }'
    manifest = known()
    manifest = replace(manifest, parameters=(*manifest.parameters, parameter("scale", scale)))

    result = reconcile(
        tmp_path,
        text_model(text, {"conv.weight": parts["weight"], "b": parts["bias"], "scale": scale + 1}),
        manifest,
    )

    assert lines_of(result)["conv.weight"] == "folded-batchnorm"
    assert lines_of(result)["scale"] == "differing"


def test_a_weight_of_one_number_for_each_channel_is_not_taken_for_the_bias(tmp_path):
    """The bias is added by another node, as after `ConvInteger`, and is searched for in the whole file."""
    weight = np.ascontiguousarray(WEIGHT[:, :1, :1, :1])
    scale = VECTORS["bn.weight"] / np.sqrt(VECTORS["bn.running_var"] + EPS)
    proto = text_model(
        """g (float[1,2,4,4] x) => (float[1,2,4,4] y) {
            h = Conv <group = 2> (x, val_1) b = Reshape(val_2, shape) y = Add(h, b)
        }""",
        {
            "val_1": (weight * scale[:, None, None, None]).astype("f4"),
            "val_2": fold()["bias"],
            "shape": np.array([1, -1, 1, 1]),
        },
    )

    result = reconcile(tmp_path, proto, known(weight=weight))

    assert bridge_of(result)["folded-batchnorm"] == (3, 6, -2, -2)
    assert result.balanced


def used_again(
    norms: int = 2, *, bias: bool = False, affine: bool = True, eps: float = 1e-3
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], Manifest]:
    """Return the tensors of a convolution used with several norms, folded with each, and PyTorch's tensors."""
    rng = np.random.default_rng(5)
    weight = rng.standard_normal((16, 16, 1, 1)).astype("f4")
    values = {"c.weight": weight} | ({"c.bias": rng.standard_normal(16).astype("f4")} if bias else {})
    tensors, known_norms = {}, []
    for i in range(norms):
        vectors = {f"b{i}.{leaf}": rng.uniform(0.3, 2, 16).astype("f4") for leaf in _LEAVES}
        values |= {name: each for name, each in vectors.items() if affine or "running" in name}
        gamma, beta, mean, variance = (each.astype("f8") for each in vectors.values())
        scale = (gamma if affine else 1) / np.sqrt(variance + eps)
        shift = (values.get("c.bias", 0.0) - mean) * scale + (beta if affine else 0)
        tensors[f"onnx::Conv_{2 * i}"] = (weight * scale[:, None, None, None]).astype("f4")
        tensors[f"onnx::Conv_{2 * i + 1}"] = shift.astype("f4")
        names = [f"b{i}.{leaf}" if f"b{i}.{leaf}" in values else None for leaf in _LEAVES]
        known_norms.append(BatchNorm(f"b{i}", eps, *names))
    manifest = manifest_of(
        *(
            buffer(name, value)
            if "running" in name
            else (convolution if value.ndim == 4 else parameter)(name, value)
            for name, value in values.items()
        ),
        batch_norms=tuple(known_norms),
        values=values,
    )
    return tensors, values, manifest


_LEAVES = ("weight", "bias", "running_mean", "running_var")


def used_in(tensors: dict[str, np.ndarray], modules: dict[int, str] | None = None) -> onnx.ModelProto:
    shape, count = "float[1,16,2,2]", len(tensors) // 2
    nodes = [
        f'[n{i}] h{i + 1} = Conv(h{i}, "onnx::Conv_{2 * i}", "onnx::Conv_{2 * i + 1}")' for i in range(count)
    ]
    proto = text_model(f"g ({shape} h0) => ({shape} h{count}) {{ {' '.join(nodes)} }}", tensors)
    return with_scopes(proto, {f"n{i}": module for i, module in (modules or {}).items()})


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("norms", [2, 4])
def test_a_weight_that_forward_uses_again_has_a_norm_for_each_use(tmp_path, norms, affine, bias):
    tensors, values, manifest = used_again(norms, bias=bias, affine=affine)

    result = reconcile(tmp_path, used_in(tensors), manifest, "full", values)

    assert result.balanced, lines_of(result)
    learned = sum(value.size for name, value in values.items() if "running" not in name)
    lost = 256 + 16 * norms - learned
    count = sum("running" not in name for name in values) + (0 if affine else norms - (1 if bias else 0))
    elements = learned + (0 if affine else 16 * (norms - (1 if bias else 0)))
    assert bridge_of(result) == {
        "folded-batchnorm": (count, elements, lost, lost),
        "copied": (norms - 1, 256 * (norms - 1), 0, 256 * (norms - 1)),
    }
    assert result.onnx_parameters == 256 + 16 * norms


@pytest.mark.parametrize("content", ["sampled", "full"])
def test_a_manifest_without_a_checkpoint_shows_the_second_use_too(tmp_path, content):
    tensors, _, manifest = used_again()

    assert reconcile(tmp_path, used_in(tensors), manifest, content).balanced


CHANGED_AGAIN = {
    "an element": lambda tensors: tensors["onnx::Conv_2"].reshape(-1).__setitem__(7, 1.5),
    "a channel": lambda tensors: tensors["onnx::Conv_2"].__setitem__(3, tensors["onnx::Conv_2"][3] * 1.01),
    "the bias": lambda tensors: tensors["onnx::Conv_3"].__setitem__(3, 1.5),
    "the first norm's factors": lambda tensors: tensors.update({"onnx::Conv_2": tensors["onnx::Conv_0"]}),
    "the first norm": lambda tensors: tensors.update(
        {"onnx::Conv_2": tensors["onnx::Conv_0"], "onnx::Conv_3": tensors["onnx::Conv_1"]}
    ),
    "exchanged biases": lambda tensors: tensors.update(
        {"onnx::Conv_1": tensors["onnx::Conv_3"], "onnx::Conv_3": tensors["onnx::Conv_1"]}
    ),
    "no factors": lambda tensors: tensors.update(
        {"onnx::Conv_2": used_again()[1]["c.weight"]},
    ),
    "a use more": lambda tensors: tensors.update(
        {"onnx::Conv_4": tensors["onnx::Conv_2"] * 2, "onnx::Conv_5": tensors["onnx::Conv_3"]}
    ),
}


@pytest.mark.parametrize("change", CHANGED_AGAIN)
def test_another_second_use_is_not_explained(tmp_path, change):
    tensors, values, manifest = used_again()
    CHANGED_AGAIN[change](tensors)

    assert not reconcile(tmp_path, used_in(tensors), manifest, "full", values).balanced


@pytest.mark.parametrize(("module", "is_balanced"), [("c", True), ("d", False)])
def test_the_module_of_the_weight_uses_it_again(tmp_path, module, is_balanced):
    tensors, values, manifest = used_again()

    proto = used_in(tensors, {0: "c", 1: module})

    assert reconcile(tmp_path, proto, manifest, "full", values).balanced == is_balanced


@pytest.mark.parametrize(("second", "is_balanced"), [(1e-3, True), (1e-5, False), (3e-3, False)])
def test_the_norms_of_one_weight_share_an_eps_that_a_state_dict_lacks(tmp_path, second, is_balanced):
    tensors, values, manifest = used_again(eps=1e-3)
    others, _, _ = used_again(eps=second)
    tensors |= {name: others[name] for name in ("onnx::Conv_2", "onnx::Conv_3")}
    default = tuple(replace(norm, eps=1e-5) for norm in manifest.batch_norms)
    known = replace(manifest, batch_norms=default, source={"source": "tests", "parameters_by": "names"})

    assert reconcile(tmp_path, used_in(tensors), known, "full", values).balanced == is_balanced


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_second_use_may_be_cast(tmp_path, is_changed):
    tensors, values, manifest = used_again()
    if is_changed:
        tensors["onnx::Conv_2"][3] *= np.float32(1.1)
    cast = {name: value.astype("f2") for name, value in tensors.items()}

    assert reconcile(tmp_path, used_in(cast), manifest, "full", values).balanced == (not is_changed)
