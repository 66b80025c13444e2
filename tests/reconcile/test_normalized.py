"""Weights that forward normalizes, by hand: spectral and weight norm, standardization, frozen BatchNorm, LayerScale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from models import (
    bridge_of,
    dynamo_like,
    lines_of,
    manifest_of,
    noise,
    outs,
    parameter,
    parameters_of,
    quantized,
    reconcile,
    save,
    text_model,
)
from safetensors.numpy import save_file

from analyzer.account.audit import audit_model
from analyzer.checkpoints.checkpoint import open_checkpoint
from analyzer.manifest import Manifest, WeightNorm
from analyzer.model.content import Array, encode_values, sample_positions
from analyzer.reconciliation import Reconciliation, reconcile_ledger


def run(tmp_path, proto, known):
    """Reconcile with a state dict alone on PyTorch's side."""
    path = tmp_path / "w.safetensors"
    save_file({name: np.ascontiguousarray(array) for name, array in known.items()}, path)
    original = open_checkpoint(path)
    return reconcile_ledger(audit_model(save(tmp_path, proto)), original.manifest, weights=original.weights)


def unit(size, seed):
    vector = noise(size, seed=seed)
    return vector / np.linalg.norm(vector)


def f32(array):
    return np.ascontiguousarray(array, dtype=np.float32)


# spectral norm

MATRIX, LEFT, RIGHT = noise(6, 4, 3), unit(6, 1), unit(12, 2)
SIGMA = LEFT.astype("f8") @ MATRIX.reshape(6, 12).astype("f8") @ RIGHT
OLD = {"c.weight_orig": MATRIX, "c.weight_u": LEFT, "c.weight_v": RIGHT}
NEW = {
    "c.parametrizations.weight.original": MATRIX,
    "c.parametrizations.weight.0._u": LEFT,
    "c.parametrizations.weight.0._v": RIGHT,
}


def convolved(weight):
    return text_model("g (float[1,4,9] x) => (float[1,6,7] y) { y = Conv(x, w) }", {"w": f32(weight)})


@pytest.mark.parametrize("known", [OLD, NEW], ids=["old", "new"])
def test_spectral_norm_is_one_factor(tmp_path, known):
    result = run(tmp_path, convolved(MATRIX / SIGMA), known)

    assert result.balanced
    assert set(lines_of(result).values()) == {"folded-pointwise"}
    assert result.parameters[0].decided_by.startswith("content:spectralnorm c.")
    restored = result.parameters[0].pieces[0].computed
    assert restored.factor == pytest.approx(1 / SIGMA, rel=1e-5)


def test_no_other_factor_is_the_spectral_norms(tmp_path):
    changed = MATRIX / SIGMA
    changed[2, 1, 1] *= 1.001

    for number, weight in enumerate((MATRIX / SIGMA * 1.001, MATRIX / 2, changed, -MATRIX / SIGMA)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not run(folder, convolved(weight), OLD).balanced
    other = {"c.weight_orig": MATRIX, "c.weight_u": unit(6, 5), "c.weight_v": RIGHT}
    assert not run(tmp_path, convolved(MATRIX / SIGMA), other).balanced
    assert not run(tmp_path, convolved(MATRIX / SIGMA), {"c.weight_orig": MATRIX}).balanced


# weight standardization

FIRST, SECOND = noise(8, 3, 3, 3, seed=3), noise(8, 8, 3, 3, seed=4)


def standardized(weight, eps=1e-6, ddof=0, root=True):
    rows = weight.reshape(len(weight), -1).astype("f8")
    spread = rows.var(1, ddof=ddof, keepdims=True)
    size = np.sqrt(spread + eps) if root else np.sqrt(spread) + eps
    return f32(((rows - rows.mean(1, keepdims=True)) / size).reshape(weight.shape))


def two_layers(first, second, names=("v1", "v2")):
    return text_model(
        f"""g (float[1,3,9,9] x) => (float[1,8,5,5] y) {{
            a = Conv(x, {names[0]})  b = Relu(a)  y = Conv(b, {names[1]})
        }}""",
        {names[0]: f32(first), names[1]: f32(second)},
    )


LAYERS = {"c1.weight": FIRST, "c2.weight": SECOND}


@pytest.mark.parametrize(
    "how",
    [{}, {"eps": 1e-5}, {"eps": 1e-10}, {"ddof": 1, "root": False, "eps": 1e-5}, {"ddof": 1, "eps": 1e-5}],
)
def test_standardized_convolutions_are_known(tmp_path, how):
    result = run(tmp_path, two_layers(standardized(FIRST, **how), standardized(SECOND, **how)), LAYERS)

    assert result.balanced
    assert lines_of(result) == {"c1.weight": "folded-weightnorm", "c2.weight": "folded-weightnorm"}
    assert result.parameters[0].decided_by == "content:standardized c1"


def test_a_layer_of_another_name_may_have_another_eps_but_not_stand_alone(tmp_path):
    third = noise(8, 8, 3, 3, seed=5)
    layers = {"stem.weight": FIRST, "c1.weight": SECOND, "c2.weight": third}

    def file(eps):
        proto = two_layers(standardized(FIRST, eps=eps), standardized(SECOND), ("v1", "v2"))
        more = two_layers(standardized(FIRST), standardized(third), ("v0", "v3"))
        proto.graph.node[-1].output[0] = "h"
        node = proto.graph.node.add(op_type="Conv", input=["h", "v3"], output=["y"])
        assert node.output
        proto.graph.initializer.extend(t for t in more.graph.initializer if t.name == "v3")
        return proto

    result = run(tmp_path, file(1e-8), layers)

    assert result.balanced
    assert set(lines_of(result).values()) == {"folded-weightnorm"}
    (tmp_path / "off").mkdir()
    assert not run(tmp_path / "off", file(0.02), layers).balanced


def test_a_gain_of_the_weights_name_is_no_layer_that_stands_plain(tmp_path):
    """In a Sequential, `1.weight` is a norm's gain between the convolutions `0.weight` and `2.weight`."""
    proto = text_model(
        """g (float[1,3,9,9] x) => (float[1,8,5,5] y) {
            a = Conv(x, v1)  b = GroupNormalization<num_groups = 4, epsilon = 0.00001>(a, "1.weight", "1.bias")
            y = Conv(b, v2)
        }""",
        {
            "v1": standardized(FIRST),
            "v2": standardized(SECOND),
            "1.weight": noise(8, seed=8),
            "1.bias": noise(8, seed=9),
        },
    )
    known = {"0.weight": FIRST, "2.weight": SECOND, "1.weight": noise(8, seed=8), "1.bias": noise(8, seed=9)}

    assert run(tmp_path, proto, known).balanced


def test_one_layer_normalized_or_one_element_changed_is_another_model(tmp_path):
    changed = standardized(SECOND)
    changed[3, 2, 1, 1] += 1e-3
    files = (
        two_layers(standardized(FIRST), SECOND),
        two_layers(standardized(FIRST), changed),
        two_layers(standardized(FIRST), standardized(SECOND, eps=0.02)),
        two_layers(standardized(FIRST), standardized(SECOND) * 2),
    )

    for number, proto in enumerate(files):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not run(folder, proto, LAYERS).balanced


def test_what_has_the_weights_own_name_was_not_normalized_by_an_exporter(tmp_path):
    proto = two_layers(standardized(FIRST), standardized(SECOND))
    for tensor, node, name in zip(
        proto.graph.initializer, [proto.graph.node[0], proto.graph.node[2]], LAYERS, strict=True
    ):
        tensor.name = node.input[1] = name

    assert not run(tmp_path, proto, LAYERS).balanced


# frozen BatchNorms


def norm_of(seed):
    return {
        "weight": np.abs(noise(8, seed=seed)) + 0.5,
        "bias": noise(8, seed=seed + 1),
        "running_mean": noise(8, seed=seed + 2),
        "running_var": np.abs(noise(8, seed=seed + 3)) + 0.5,
    }


NORMS = {f"bn{n}.{leaf}": array for n in (1, 2) for leaf, array in norm_of(10 * n).items()}


def scale_and_shift(number, eps=1e-5):
    weight, bias, mean, var = (
        NORMS[f"bn{number}.{leaf}"].astype("f8") for leaf in ("weight", "bias", "running_mean", "running_var")
    )
    scale = weight / np.sqrt(var + eps)
    return f32(scale.reshape(1, 8, 1, 1)), f32((bias - mean * scale).reshape(1, 8, 1, 1))


def frozen(first, second):
    stored = dict(zip(("s1", "t1", "s2", "t2"), (*first, *second), strict=True)) | {"w1": FIRST, "w2": SECOND}
    return text_model(
        """g (float[1,3,9,9] x) => (float[1,8,5,5] y) {
            a = Conv(x, w1)  b = Mul(a, s1)  c = Add(b, t1)  d = Relu(c)
            e = Conv(d, w2)  f = Mul(e, s2)  y = Add(f, t2)
        }""",
        stored,
    )


@pytest.mark.parametrize("eps", [1e-5, 0.0, 1e-3])
def test_a_frozen_batch_norm_is_two_vectors(tmp_path, eps):
    result = run(tmp_path, frozen(scale_and_shift(1, eps), scale_and_shift(2, eps)), LAYERS | NORMS)

    assert result.balanced
    assert lines_of(result)["bn1.weight"] == lines_of(result)["bn2.bias"] == "folded-batchnorm"
    assert {line.decided_by for line in result.parameters if line.name.startswith("bn1")} == {
        "content:batchnorm bn1"
    }


def test_vectors_of_other_norms_or_other_values_are_reported(tmp_path):
    first, second = scale_and_shift(1), scale_and_shift(2)
    changed = second[1].copy()
    changed[0, 3] += 1e-3
    files = (
        frozen(second, first),
        frozen((first[0], second[1]), (second[0], first[1])),
        frozen(first, (second[0], changed)),
        frozen(first, (second[0] * 2, second[1])),
        frozen(first, (second[0], np.zeros_like(changed))),
    )

    for number, proto in enumerate(files):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not run(folder, proto, LAYERS | NORMS).balanced


QDQ = """
    g (float[1,3,9,9] x) => (float[1,8,5,5] y) {
        a = Conv(x, w1) qa = QuantizeLinear(a, r, z) ra = DequantizeLinear(qa, r, z)
        s1 = DequantizeLinear(s1_quantized, s1_scale, s1_zero_point)
        t1 = DequantizeLinear(t1_quantized, t1_scale, t1_zero_point)
        b = Mul(ra, s1) qb = QuantizeLinear(b, r, z) rb = DequantizeLinear(qb, r, z) c = Add(rb, t1) d = Relu(c)
        s2 = DequantizeLinear(s2_quantized, s2_scale, s2_zero_point)
        t2 = DequantizeLinear(t2_quantized, t2_scale, t2_zero_point)
        e = Conv(d, w2) f = Mul(e, s2) y = Add(f, t2)
    }
"""
CODED = """
    <ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
    g (float[1,3,9,9] x) => (float[1,8,5,5] y) {
        a = Conv(x, w1) qa = QuantizeLinear(a, r, z)
        qb = com.microsoft.QLinearMul(qa, r, z, s1_quantized, s1_scale, s1_zero_point, r, z)
        qc = com.microsoft.QLinearAdd(qb, r, z, t1_quantized, t1_scale, t1_zero_point, r, z)
        c = DequantizeLinear(qc, r, z) d = Relu(c) e = Conv(d, w2) qe = QuantizeLinear(e, r, z)
        qf = com.microsoft.QLinearMul(qe, r, z, s2_quantized, s2_scale, s2_zero_point, r, z)
        qy = com.microsoft.QLinearAdd(qf, r, z, t2_quantized, t2_scale, t2_zero_point, r, z)
        y = DequantizeLinear(qy, r, z)
    }
"""


def coded(text, first, second):
    stored = {"w1": FIRST, "w2": SECOND, "r": np.array(0.1, "f4"), "z": np.array(128, "u1")}
    for name, array in zip(("s1", "t1", "s2", "t2"), (*first, *second), strict=True):
        low, high = min(array.min(), 0), max(array.max(), 0)
        step = (high - low) / 255
        stored[f"{name}_zero_point"] = np.rint(-low / step).astype("u1")
        stored[f"{name}_quantized"] = np.rint(array / step - np.rint(low / step)).clip(0, 255).astype("u1")
        stored[f"{name}_scale"] = np.array(step, "f4")
    return text_model(text, stored)


@pytest.mark.parametrize("text", [QDQ, CODED], ids=["QDQ", "QOperator"])
def test_codes_of_the_two_vectors_are_the_norm_too(text, tmp_path):
    first, second = scale_and_shift(1), scale_and_shift(2)
    result = run(tmp_path, coded(text, first, second), LAYERS | NORMS)

    assert result.balanced
    assert lines_of(result)["bn1.weight"] == lines_of(result)["bn2.bias"] == "folded-batchnorm"
    changed = second[1].copy()
    changed[0, 3] += 0.5
    for number, other in enumerate(((first, (second[0], changed)), (second, first))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not run(folder, coded(text, *other), LAYERS | NORMS).balanced


# LayerScale

GAMMAS = {"blocks.0.ls1.gamma": noise(8, seed=30), "blocks.0.ls2.gamma": noise(8, seed=31)}
LINEARS = {
    "blocks.0.attn.proj.weight": noise(8, 8, seed=32),
    "blocks.0.attn.proj.bias": noise(8, seed=33),
    "blocks.0.mlp.fc2.weight": noise(8, 8, seed=34),
    "blocks.0.mlp.fc2.bias": noise(8, seed=35),
}


def blocks(one, two, gamma_one=None, gamma_two=None, bias=1.0):
    (weight1, bias1, weight2, bias2), (gamma1, gamma2) = LINEARS.values(), GAMMAS.values()
    one = gamma1 if gamma_one is None else gamma_one
    two = gamma2 if gamma_two is None else gamma_two
    return text_model(
        """g (float[2,8] x) => (float[2,8] y) {
            a = MatMul(x, w1)  b = Add(a, b1)  c = Add(x, b)
            d = Relu(c)  e = MatMul(d, w2)  f = Add(e, b2)  y = Add(c, f)
        }""",
        {
            "w1": f32((weight1 * one[:, None]).T),
            "b1": f32(bias1 * one),
            "w2": f32((weight2 * two[:, None]).T),
            "b2": f32(bias2 * two * bias),
        },
    )


def test_a_layer_scale_may_be_multiplied_out(tmp_path):
    result = run(tmp_path, blocks(None, None), LINEARS | GAMMAS)

    assert result.balanced
    assert set(lines_of(result).values()) == {"folded-weightnorm"}
    assert {line.decided_by.partition(" ")[0] for line in result.parameters} == {"content:layerscale"}


@pytest.mark.parametrize(("factor", "is_same"), [(1.0, True), (1.01, False)])
def test_one_number_may_be_multiplied_out_too(tmp_path, factor, is_same):
    level = np.float32(1.2345678)
    weight, bias = noise(8, 8, 1, 1, seed=36), noise(8, seed=37)
    stored = {"w": f32(weight * level * factor), "b": f32(bias * level * factor)}
    proto = text_model("g (float[1,8,2,2] x) => (float[1,8,2,2] y) { y = Conv(x, w, b) }", stored)
    known = {"box.weight": weight, "box.bias": bias, "scale": np.array(level)}

    assert run(tmp_path, proto, known).balanced is is_same


def test_exchanged_or_other_factors_are_reported(tmp_path):
    first, second = GAMMAS.values()
    files = (
        blocks(None, None, second, first),
        blocks(None, None, first * 2, second),
        blocks(None, None, first, first),
        blocks(None, None, bias=1.001),
    )

    for number, proto in enumerate(files):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not run(folder, proto, LINEARS | GAMMAS).balanced


@pytest.mark.parametrize("is_exchanged", [False, True])
def test_factors_of_a_block_stand_in_the_order_in_which_the_class_defines_them(tmp_path, is_exchanged):
    """EdgeNeXt's `gamma_xca` comes before its `gamma`; a checkpoint with sorted names does not show that order."""
    first, second = GAMMAS.values()
    known = {"blocks.0.gamma_xca": first, **LINEARS, "blocks.0.gamma": second}
    proto = blocks(None, None, *((second, first) if is_exchanged else ()))

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(known)), "full", known)

    assert result.balanced is not is_exchanged
    assert not run(tmp_path, proto, known).balanced


def test_the_factor_of_another_block_is_another_model(tmp_path):
    known = {name.replace("blocks.0.ls1", "blocks.1.ls1"): array for name, array in GAMMAS.items()}

    assert not run(tmp_path, blocks(None, None), LINEARS | known).balanced


# 1 + w under its own name

GAINS = {f"layers.{n}.norm.weight": noise(8, seed=40 + n) * np.float32(0.1) for n in range(2)}


def norms(first, second):
    proto = text_model(
        f"""<ir_version: 10, opset_import: ["" : 23]> g (float[2,8] x) => ({outs(1)}) {{
            a = RMSNormalization<axis=-1>(x, n0)  b = MatMul(a, w)  y0 = RMSNormalization<axis=-1>(b, n1)
        }}""",
        {"n0": f32(first), "n1": f32(second), "w": noise(8, 8, seed=50)},
    )
    for tensor, node, name in zip(
        proto.graph.initializer, [proto.graph.node[0], proto.graph.node[2]], GAINS, strict=False
    ):
        tensor.name = node.input[1] = name
    return proto


OTHER = {"layers.0.fc.weight": noise(8, 8, seed=50).T}


def test_one_plus_w_may_keep_the_name_of_w(tmp_path):
    result = run(tmp_path, norms(*(1 + gain for gain in GAINS.values())), GAINS | OTHER)

    assert result.balanced
    assert lines_of(result)["layers.0.norm.weight"] == "folded-pointwise"


def test_one_plus_a_gain_that_is_no_offset_is_another_model(tmp_path):
    """Cases: one of two norms; gains around 1, as in all other models; one element changed."""
    first, second = GAINS.values()
    changed = 1 + second
    changed[3] += 1e-3
    plain = {name: 1 + gain for name, gain in GAINS.items()}

    assert not run(tmp_path, norms(1 + first, second), GAINS | OTHER).balanced
    assert not run(tmp_path, norms(1 + first, changed), GAINS | OTHER).balanced
    assert not run(tmp_path, norms(*(1 + gain for gain in plain.values())), plain | OTHER).balanced


def test_a_note_of_the_exporter_is_no_proof(tmp_path):
    proto = dynamo_like(convolved(MATRIX / 2), folded={"w": ["c.weight_orig"]})

    assert not run(tmp_path, proto, OLD).balanced


# a weight norm multiplied out: W = g v / ||v||, by hand

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

DIRECTION = noise(4, 3, 5)


def length_of(axis: int | None, direction: Array = DIRECTION) -> Array:
    """Return lengths of the shape that torch.nn.utils.weight_norm(dim=axis) gives them, all different."""
    if axis is None:
        return np.array([2.5], "f4")
    shape = [size if number == axis else 1 for number, size in enumerate(direction.shape)]
    return (np.arange(direction.shape[axis], dtype="f4") - 1.5).reshape(shape)


def product(axis: int | None, direction: Array = DIRECTION) -> Array:
    others = tuple(number for number in range(direction.ndim) if number != axis)
    norms = np.sqrt(np.square(direction.astype("f8")).sum(axis=others, keepdims=True))
    return (
        length_of(axis, direction).reshape(norms.shape if axis is not None else (1, 1, 1)) * direction / norms
    ).astype("f4")


def known(axis: int | None, direction: Array = DIRECTION) -> tuple[Manifest, dict[str, Any]]:
    others = tuple(number for number in range(direction.ndim) if number != axis)
    length = length_of(axis, direction)
    norms = np.sqrt(np.square(direction.astype("f8")).sum(axis=others))
    norm = WeightNorm(
        "conv.weight",
        "conv.weight_g",
        "conv.weight_v",
        axis,
        encode_values(length.reshape(-1) / norms.reshape(-1)),
    )
    arrays = {"conv.weight_g": length, "conv.weight_v": direction}
    return manifest_of(
        *(parameter(name, array) for name, array in arrays.items()), weight_norms=(norm,)
    ), arrays


def run_folded_weightnorm(
    tmp_path,
    stored: Array,
    axis: int | None,
    content: Any = "full",
    *,
    at_hand: bool = False,
    name: str = "onnx::Conv_9",
    direction: Array = DIRECTION,
) -> Reconciliation:
    proto = text_model(f'g (float[1] x) => (float[1] y) {{ y = Conv(x, "{name}") }}', {name: stored})
    manifest, arrays = known(axis, direction)
    return reconcile(tmp_path, proto, manifest, content, arrays if at_hand else None)


@both
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize("name", ["onnx::Conv_9", "conv.weight"])
def test_product_keeps_the_direction_and_removes_the_length(tmp_path, axis, name, at_hand):
    result = run_folded_weightnorm(tmp_path, product(axis), axis, at_hand=at_hand, name=name)

    length = length_of(axis).size
    assert bridge_of(result) == {"folded-weightnorm": (2, 60 + length, -length, -length)}
    assert result.balanced
    assert {p.decided_by.partition(":")[2] for p in result.parameters} == {"weightnorm conv.weight"}


@both
@pytest.mark.parametrize(("position", "axis"), [(0, 0), (7, 0), (59, 0), (7, 1), (7, None)])
def test_one_changed_element_is_no_product(tmp_path, position, axis, at_hand):
    stored = product(axis)
    stored.reshape(-1)[position] *= np.float32(1.01)

    assert not run_folded_weightnorm(tmp_path, stored, axis, at_hand=at_hand).balanced


def test_an_element_between_the_samples_is_seen_with_the_weights_at_hand(tmp_path):
    direction = noise(40, 10, 5)
    stored = product(0, direction)
    assert 1 not in sample_positions(direction.size)
    stored.reshape(-1)[1] *= np.float32(1.001)

    assert not run_folded_weightnorm(tmp_path, stored, 0, at_hand=True, direction=direction).balanced


@both
def test_direction_alone_is_no_product(tmp_path, at_hand):
    result = run_folded_weightnorm(tmp_path, DIRECTION * np.float32(3), 0, at_hand=at_hand)

    assert lines_of(result) == {"conv.weight_g": "missing", "conv.weight_v": "missing"}


@both
def test_product_may_be_cast(tmp_path, at_hand):
    result = run_folded_weightnorm(tmp_path, product(0).astype("f2"), 0, at_hand=at_hand)

    assert result.balanced
    assert lines_of(result)["conv.weight_v"] == "cast"
    assert [str(line) for line in result.parameters[1].chain] == ["folded-weightnorm", "cast"]


@both
def test_product_may_be_quantized(tmp_path, at_hand):
    proto = text_model(
        """g (float[1] x) => (float[1] y) {
            d = DequantizeLinear<axis = 0>(w_quantized, w_scale, w_zero_point) y = Conv(x, d)
        }""",
        quantized("w", product(0), axis=0),
    )
    manifest, arrays = known(0)

    result = reconcile(tmp_path, proto, manifest, "full", arrays if at_hand else None)

    assert result.balanced
    assert lines_of(result)["conv.weight_v"] == "quantized"


def test_parts_that_are_stored_themselves_are_identical(tmp_path):
    manifest, arrays = known(0)
    proto = text_model(
        'g (float[1] x) => (float[1] y) { w = Mul("conv.weight_v", "conv.weight_g") y = Conv(x, w) }', arrays
    )

    result = reconcile(tmp_path, proto, manifest)

    assert set(lines_of(result).values()) == {"identical"}


def test_names_alone_explain_no_product(tmp_path):
    assert not run_folded_weightnorm(tmp_path, product(0), 0, "none").balanced


@both
def test_every_norm_is_multiplied_out_and_one_of_what_pytorch_does_not_have_is_passed_over(tmp_path, at_hand):
    manifest, arrays = known(0)
    other, others = known(1)
    renamed = {name.replace("conv", "other"): array for name, array in others.items()}
    (norm,) = other.weight_norms
    second = WeightNorm("other.weight", "other.weight_g", "other.weight_v", 1, norm.scale)
    absent = WeightNorm("gone.weight", "gone.weight_g", "gone.weight_v", 0, norm.scale)
    manifest = manifest_of(
        *manifest.parameters,
        *(parameter(name, array) for name, array in renamed.items()),
        weight_norms=(absent, *manifest.weight_norms, second),
    )
    proto = text_model(
        "g (float[1] x) => (float[1] y) { h = Conv(x, v0) y = Conv(h, v1) }",
        {"v0": product(0), "v1": product(1)},
    )

    result = reconcile(tmp_path, proto, manifest, "full", arrays | renamed if at_hand else None)

    assert set(lines_of(result).values()) == {"folded-weightnorm"}
    assert result.balanced
    pieces = [piece for line in result.parameters for piece in line.pieces]
    assert [piece.computed and piece.computed.rule for piece in pieces] == [
        "weightnorm conv.weight",
        "weightnorm other.weight",
    ]


# lengths by which nodes divide a matrix

ROWS = noise(5, 8, seed=7)
LENGTHS = f32(np.linalg.norm(ROWS, axis=1, keepdims=True))
CLASSIFIER = """
    l = ReduceL2<axes = [1]>(x) u = Div(x, l)
    b = Clip(v, least) e = Expand(b, shape) n = Div("head.weight", e) t = Transpose<perm = [1, 0]>(n)
    y = MatMul(u, t)
"""
"""Cosines of data with the rows of a matrix, as exported with the lengths of the rows computed in advance."""


def classify(tmp_path, nodes=CLASSIFIER, lengths=LENGTHS, least=1e-12, name="head.weight"):
    text = f"g (float[2,8] x) => (float[2,5] y) {{ {nodes.replace('head.weight', name)} }}"
    stored = {name: ROWS, "v": lengths, "shape": np.array([5, 8])}
    stored |= {"least": f32(least)} if "least" in nodes else {}
    known = {name: ROWS} | ({"fc.bias": noise(8, seed=8)} if "fc.bias" in nodes else {})
    return run(tmp_path, text_model(text, stored | known), known)


@pytest.mark.parametrize(
    "nodes",
    [
        CLASSIFIER,
        CLASSIFIER.replace("Clip", "Max"),
        CLASSIFIER.replace("Clip(v, least)", "Max(least, v)"),
        CLASSIFIER.replace("b = Clip(v, least) e = Expand(b, shape)", "e = Expand(v, shape)"),
    ],
    ids=["clip", "max", "max of a number", "unbounded"],
)
def test_lengths_of_rows_that_are_divided_by_them_balance(tmp_path, nodes):
    result = classify(tmp_path, nodes)

    assert result.balanced
    assert lines_of(result) == {"head.weight": "identical"}
    assert [line.decided_by for line in result.entries if line.line == "evaluated"] == [
        "content:lengths head.weight"
    ]


def test_a_parametrization_tells_that_rows_are_divided(tmp_path):
    nodes = CLASSIFIER.replace("MatMul(u", "MatMul(x")

    assert classify(tmp_path, nodes, name="head.parametrizations.weight.original").balanced
    assert not classify(tmp_path, nodes).balanced


@pytest.mark.parametrize(
    "changes",
    [
        {"lengths": LENGTHS * np.float32(2)},
        {"lengths": np.where(np.arange(5)[:, None] == 1, LENGTHS * np.float32(1.0001), LENGTHS)},
        {"lengths": LENGTHS[::-1].copy()},
        {"lengths": f32(np.abs(ROWS).sum(axis=1, keepdims=True))},
        {"least": float(np.sort(LENGTHS.ravel())[1])},
        {"nodes": CLASSIFIER.replace("Clip(v, least)", 'Clip(v, least, "fc.bias")')},
        {"nodes": CLASSIFIER.replace("Clip(v, least)", "Min(v, least)")},
        {"nodes": CLASSIFIER.replace("Clip(v, least)", "Add(v, least)")},
        {"nodes": CLASSIFIER.replace('Div("head.weight", e)', 'Mul("head.weight", e)')},
        {"nodes": CLASSIFIER.replace('Div("head.weight", e)', 'Div(e, "head.weight")')},
        {"nodes": CLASSIFIER.replace("Div(x, l)", "Div(x, e1)").replace("u =", "e1 = Abs(x) u =")},
        {"nodes": CLASSIFIER.replace("MatMul(u, t)", "MatMul(x, t)")},
        {"nodes": CLASSIFIER.replace("y = MatMul(u, t)", "z = MatMul(u, t) w = Transpose(v) y = Add(z, w)")},
    ],
    ids=[
        *("twice", "one number", "other order", "another norm", "a bound with an effect"),
        *("an upper bound", "only an upper bound", "a sum", "a product", "a quotient upside down"),
        *("data divided by something else", "data of any length", "read elsewhere too"),
    ],
)
def test_other_lengths_or_other_uses_of_them_do_not_balance(tmp_path, changes):
    assert not classify(tmp_path, **changes).balanced
