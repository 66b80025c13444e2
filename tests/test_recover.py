"""State dicts that `recover` restores: the file's values under PyTorch's names, or the reason for each loss."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import ml_dtypes
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from commands import run_here
from models import (
    FX_NODE,
    Values,
    audit,
    buffer,
    convolution,
    dynamo_like,
    external,
    manifest_of,
    noise,
    packed,
    parameter,
    parameters_of,
    quantized,
    ramp,
    save,
    table,
    text_model,
    without_values,
)
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from analyzer import (
    Manifest,
    Recovery,
    audit_model,
    reconcile_ledger,
    recover_state,
    save_manifest,
    save_state,
)
from analyzer.checkpoints.statefile import FileTensor, write_state_file
from analyzer.cli import command
from analyzer.errors import LedgerError, MissingExtraError, ModelReadError, UsageError
from analyzer.manifest import BatchNorm, WeightNorm
from analyzer.model.content import Array
from analyzer.model.dtypes import DType
from analyzer.reconciliation import ContentMode
from analyzer.reconciliation.lines import Computed
from analyzer.recover.ownnames import read_own_names
from analyzer.schemas import load_schema

W = noise(4, 6)
ONE_WEIGHT = 'g (float[1,6] x) => (float[1,4] y) { ["/fc/MatMul"] y = MatMul(x, "val_0") }'


def recovery_of(
    folder: Path,
    proto: onnx.ModelProto,
    manifest: Manifest,
    content: ContentMode | None = None,
    weights: Mapping[str, Array] | None = None,
) -> Recovery:
    ledger = audit_model(save(folder, proto))
    known = manifest if weights is None else without_values(manifest)
    at_hand = None if weights is None else Values(weights)
    return recover_state(reconcile_ledger(ledger, known, content, weights=at_hand))


def state_of(recovery: Recovery, folder: Path) -> dict[str, Array]:
    """Save the state dict and load it from the file."""
    save_state(recovery, folder / "state.safetensors")
    return load_file(folder / "state.safetensors")


def alone(folder: Path, proto: onnx.ModelProto) -> Recovery:
    """Recover a file by its own names only."""
    ledger = audit_model(save(folder, proto))
    original, refused = read_own_names(ledger)
    return recover_state(reconcile_ledger(ledger, original.manifest), refused)


def reasons(recovery: Recovery) -> dict[str, str]:
    return {lost.name: lost.reason for lost in recovery.lost}


def losses(recovery: Recovery) -> dict[str, str]:
    return {tensor.name: tensor.loss or "" for tensor in recovery.lossy}


def assert_same(state: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Assert equal names, types, shapes and bits."""
    assert state.keys() == expected.keys()
    for name, array in expected.items():
        assert (state[name].dtype, state[name].shape) == (array.dtype, array.shape), name
        assert state[name].tobytes() == array.tobytes(), name


# restored bit by bit


@pytest.mark.parametrize("stored", [W, np.ascontiguousarray(W.T)], ids=["as it is", "transposed"])
def test_a_weight_is_given_back_as_pytorch_has_it(tmp_path: Path, stored: Array) -> None:
    recovery = recovery_of(
        tmp_path, text_model(ONE_WEIGHT, {"val_0": stored}), manifest_of(parameter("fc.weight", W))
    )

    assert recovery.is_whole
    assert not recovery.lossy
    assert_same(state_of(recovery, tmp_path), {"fc.weight": W})


def test_a_packed_projection_is_taken_apart(tmp_path: Path) -> None:
    parts = {f"attn.{name}.weight": noise(6, 6, seed=seed) for seed, name in enumerate("qkv")}
    proto = text_model(
        "g (float[1,6] x) => (float[1,18] y) { y = MatMul(x, packed) }",
        {"packed": np.ascontiguousarray(np.concatenate([part.T for part in parts.values()], axis=1))},
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(*parameters_of(parts)))

    assert {tensor.line.value for tensor in recovery.tensors} == {"concatenated"}
    assert_same(state_of(recovery, tmp_path), parts)


@pytest.mark.parametrize("axis", [0, 1])
def test_pieces_are_put_together(tmp_path: Path, axis: int) -> None:
    experts = noise(2, 8, 16, seed=3)
    parts = [np.ascontiguousarray(part) for part in np.split(experts, 2, axis=axis)]
    stored = {
        f"v{number}": np.ascontiguousarray(part.squeeze(0) if axis == 0 else part)
        for number, part in enumerate(parts)
    }
    proto = text_model(
        "g (float[8,8] x) => (float[8,16] y) { a = MatMul(x, v0) b = MatMul(x, v1) y = Add(a, b) }", stored
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(parameter("experts.gate", experts)))

    assert recovery.is_whole, recovery
    assert_same(state_of(recovery, tmp_path), {"experts.gate": experts})


def test_a_tied_tensor_is_written_once_and_its_other_names_are_noted(tmp_path: Path) -> None:
    proto = text_model('g (int64[1] i) => (float[1,6] y) { y = Gather("wte.weight", i) }', {"wte.weight": W})
    known = manifest_of(parameter("wte.weight", W, tied=("lm_head.weight",)))

    recovery = recovery_of(tmp_path, proto, known)

    assert_same(state_of(recovery, tmp_path), {"wte.weight": W})
    with safe_open(tmp_path / "state.safetensors", framework="np") as opened:
        assert opened.metadata()["lm_head.weight"] == "wte.weight"
        assert opened.metadata()["format"] == "pt"


def test_what_the_exporter_merged_comes_from_the_tensor_that_stores_it(tmp_path: Path) -> None:
    biases = {"a.bias": ramp(3), "b.bias": ramp(3)}
    lines = " ".join(f'["/{name}/Gemm"] y{name} = Gemm(x, x, "a.bias")' for name in "ab")
    proto = text_model(f"g (float[3,3] x) => (float[3,3] ya) {{ {lines} }}", {"a.bias": ramp(3)})

    recovery = recovery_of(tmp_path, proto, manifest_of(*parameters_of(biases)))

    assert [tensor.line.value for tensor in recovery.tensors] == ["identical", "deduplicated"]
    assert_same(state_of(recovery, tmp_path), biases)


def test_a_zero_bias_that_the_optimizer_removed_is_zeros(tmp_path: Path) -> None:
    proto = text_model('g (float[3,3] x) => (float[3,3] y) { ["/b/Gemm"] y = Gemm(x, x) }')
    proto.graph.node[0].metadata_props.add(key=FX_NODE, value="linear(%x, %p_b_weight, %p_b_bias)")
    zeros = np.zeros(3, "f4")

    recovery = recovery_of(tmp_path, proto, manifest_of(parameter("b.bias", zeros)))

    assert recovery.tensors[0].line == "removed-zero"
    assert not recovery.lossy
    assert_same(state_of(recovery, tmp_path), {"b.bias": zeros})


def test_a_table_that_an_export_repeated_is_given_back_once(tmp_path: Path) -> None:
    token = noise(1, 1, 8)
    proto = text_model(
        "g (float[2,1,8] x) => (float[2,1,8] y) { y = Add(x, val_0) }", {"val_0": np.repeat(token, 2, axis=0)}
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(table("cls_token", token)))

    assert recovery.tensors[0].line == "broadcast"
    assert_same(state_of(recovery, tmp_path), {"cls_token": token})


def test_scalars_and_tensors_without_elements_are_part_of_a_state_dict(tmp_path: Path) -> None:
    scale, nothing = np.array(2.5, "f4"), np.empty((0, 3), "f4")
    proto = text_model('g (float[1] x) => (float[1] y) { y = Mul(x, "m.scale") }', {"m.scale": scale})

    recovery = recovery_of(
        tmp_path, proto, manifest_of(parameter("m.scale", scale), parameter("m.none", nothing))
    )

    assert recovery.is_whole, recovery
    assert_same(state_of(recovery, tmp_path), {"m.scale": scale, "m.none": nothing})


def test_a_bfloat16_model_in_a_float32_file_is_given_back_in_bfloat16(tmp_path: Path) -> None:
    original = W.astype(ml_dtypes.bfloat16)
    proto = text_model(
        ONE_WEIGHT.replace("val_0", "fc.weight"), {"fc.weight": original.astype("f4").T.copy()}
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(parameter("fc.weight", original)), "none")

    assert not recovery.lossy
    save_state(recovery, tmp_path / "m.safetensors")
    with safe_open(tmp_path / "m.safetensors", framework="np") as opened:
        assert opened.get_slice("fc.weight").get_dtype() == "BF16"
    values = np.concatenate([*recovery.values("fc.weight")])
    assert values.tobytes() == original.tobytes()


@pytest.mark.parametrize("persistent", [True, False])
def test_a_buffer_is_given_back_if_a_state_dict_has_it(tmp_path: Path, persistent: bool) -> None:
    mean = ramp(3)
    proto = text_model(
        'g (float[3] x) => (float[3] y) { y = Sub(x, "norm.running_mean") }', {"norm.running_mean": mean}
    )
    known = manifest_of(
        buffer("norm.running_mean", mean, persistent=persistent),
        buffer("norm.num_batches_tracked", np.array(7), persistent=persistent),
    )

    recovery = recovery_of(tmp_path, proto, known)

    assert [tensor.name for tensor in recovery.tensors if tensor.is_buffer] == [
        "norm.running_mean"
    ] * persistent
    assert (
        reasons(recovery) == {"norm.num_batches_tracked": "the file does not hold it"}
        if persistent
        else {} == {}
    )
    assert recovery.is_whole is not persistent


# restored approximately


@pytest.mark.parametrize("axis", [None, 1], ids=["tensor", "channel"])
def test_codes_are_given_back_within_their_step(tmp_path: Path, axis: int | None) -> None:
    made = quantized("val_0", W.T.copy(), axis=axis)
    proto = text_model(
        """g (float[1,6] x) => (float[1,4] y) {
            w = DequantizeLinear<axis=1>(val_0_quantized, val_0_scale, val_0_zero_point)
            y = MatMul(x, w)
        }""",
        made,
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(parameter("fc.weight", W)))
    state = state_of(recovery, tmp_path)

    assert losses(recovery) == {
        "fc.weight": f"codes of 8 bits, with a scale for each {'tensor' if axis is None else 'channel'}"
    }
    assert np.abs(state["fc.weight"] - W).max() <= made["val_0_scale"].max()
    assert np.array_equal(state["fc.weight"], (made["val_0_quantized"] * made["val_0_scale"]).T)


def test_four_bits_in_blocks_are_given_back_within_their_step(tmp_path: Path) -> None:
    weight = noise(8, 32)
    made = packed("val_0", weight)
    proto = text_model(
        """g (float[1,32] x) => (float[1,8] y) {
            y = com.microsoft.MatMulNBits<K=32, N=8, bits=4, block_size=16>(x, val_0_Q4, val_0_scales)
        }""",
        made,
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(parameter("fc.weight", weight)))
    state = state_of(recovery, tmp_path)

    assert losses(recovery) == {"fc.weight": "codes of 4 bits, with a scale for each block"}
    assert np.abs(state["fc.weight"] - weight).max() <= made["val_0_scales"].max()


def test_a_half_precision_file_is_given_back_in_pytorchs_type_and_marked(tmp_path: Path) -> None:
    proto = text_model(
        "g (float16[1,6] x) => (float16[1,4] y) { y = MatMul(x, val_0) }", {"val_0": W.T.astype("f2")}
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(parameter("fc.weight", W)), "full", {"fc.weight": W})

    assert losses(recovery) == {"fc.weight": "rounded to FLOAT16"}
    assert_same(state_of(recovery, tmp_path), {"fc.weight": W.astype("f2").astype("f4")})


AFTER_A_NORM = "h = SimplifiedLayerNormalization(x, val_0) y = Relu(h)"
QUERY = "h = Add(x, val_0) q = Reshape(h, heads) s = MatMul(q, keys) y = Softmax(s)"
"""Nodes that read a tensor which an exporter computed in advance."""


@pytest.mark.parametrize(
    ("name", "way", "nodes", "loss"),
    [
        ("norm.weight", lambda w: 1 + w, AFTER_A_NORM, "rounded after 1+w"),
        ("mixer.A_log", lambda w: -np.exp(w), "y = Mul(x, val_0)", "rounded after -exp(w)"),
        ("q.bias", lambda w: w * np.float32(8**-0.5), QUERY, "rounded after 0.353553391*w"),
        ("q.bias", lambda w: w * np.float32(64**-0.5), QUERY, ""),
    ],
    ids=["1+w", "-exp(w)", "a factor", "a power of two"],
)
def test_a_function_of_each_element_is_undone_and_marked_unless_it_is_exact(
    tmp_path: Path, name: str, way: Callable[[Array], Array], nodes: str, loss: str
) -> None:
    weight = noise(64)
    width = 64 if not loss else 8
    proto = text_model(
        f"g (float[64] x, float[{width},n] keys) => (float[m,n] y) {{ {nodes} }}",
        {"val_0": way(weight), "heads": np.array([-1, width])},
    )
    known = manifest_of(parameter(name, weight))

    recovery = recovery_of(tmp_path, proto, known, "full", {name: weight})
    state = state_of(recovery, tmp_path)

    assert recovery.tensors[0].line == "folded-pointwise"
    assert losses(recovery) == ({name: loss} if loss else {})
    assert state[name] == pytest.approx(weight, rel=1e-6, abs=1e-6)
    if not loss:
        assert_same(state, {name: weight})


def test_the_sign_of_an_exponent_is_undone_exactly(tmp_path: Path) -> None:
    known = {"flow.m": noise(64, seed=1), "flow.logs": noise(64)}
    nodes = 'd = Sub(x, "flow.m") e = Exp(val_0) y = Mul(d, e)'
    stored = {"flow.m": known["flow.m"], "val_0": -known["flow.logs"]}
    proto = text_model(f"g (float[64] x) => (float[64] y) {{ {nodes} }}", stored)
    manifest = manifest_of(*(parameter(name, each) for name, each in known.items()))

    recovery = recovery_of(tmp_path, proto, manifest, "full", known)

    assert losses(recovery) == {}
    assert_same(state_of(recovery, tmp_path), known)


def test_numbers_that_pytorchs_narrower_type_lacks_are_marked(tmp_path: Path) -> None:
    original = W.astype(ml_dtypes.bfloat16)
    proto = text_model('g (float[4,6] x) => (float[4,6] y) { y = Add(x, "p.bias") }', {"p.bias": W})

    recovery = recovery_of(tmp_path, proto, manifest_of(parameter("p.bias", original)), "none")

    assert losses(recovery) == {"p.bias": "FLOAT numbers that BFLOAT16 cannot hold"}


# lost


def test_a_folded_batchnorm_gives_nothing_back(tmp_path: Path) -> None:
    weight, ones = (ramp(2, 3, 2, 2) / 7).astype("f4"), np.array([0.5, -2.0], "f4")
    vectors = {"bn.weight": ones, "bn.bias": ones + 1, "bn.running_mean": ones * 3, "bn.running_var": ones**2}
    scale = vectors["bn.weight"] / np.sqrt(vectors["bn.running_var"] + 1e-5)
    shift = (vectors["bn.bias"] - vectors["bn.running_mean"] * scale).astype("f4")
    proto = text_model(
        'g (float[1,3,4,4] x) => (float[1,2,3,3] y) { y = Conv(x, "conv.weight", "conv.weight_bias") }',
        {"conv.weight": (weight * scale[:, None, None, None]).astype("f4"), "conv.weight_bias": shift},
    )
    known = manifest_of(
        convolution("conv.weight", weight),
        *(parameter(name, vectors[name]) for name in ("bn.weight", "bn.bias")),
        *(buffer(name, vectors[name]) for name in ("bn.running_mean", "bn.running_var")),
        batch_norms=(BatchNorm("bn", 1e-5, *vectors),),
        values=vectors,
    )

    recovery = recovery_of(tmp_path, proto, known)

    assert recovery.tensors == ()
    assert set(reasons(recovery)) == {"conv.weight", *vectors}
    assert {*reasons(recovery).values()} == {"folded with a BatchNorm: only the product is in the file"}


def test_a_product_of_direction_and_length_gives_neither_back(tmp_path: Path) -> None:
    direction, length = noise(4, 6), np.abs(noise(4, 1, seed=1))
    product = length * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    weights = {"fc.weight_v": direction, "fc.weight_g": length.astype("f4")}
    known = Manifest(
        tuple(parameters_of(weights)),
        weight_norms=(WeightNorm("fc.weight", "fc.weight_g", "fc.weight_v", 0, None),),
    )
    proto = text_model(ONE_WEIGHT, {"val_0": product.T.astype("f4").copy()})

    recovery = recovery_of(tmp_path, proto, known, "full", weights)

    assert {*reasons(recovery)} == {"fc.weight_v", "fc.weight_g"}
    assert {*reasons(recovery).values()} == {"a direction times a length: only the product is in the file"}


def test_what_a_rule_cannot_take_back_is_lost_and_the_rest_is_written(tmp_path: Path) -> None:
    """A rule may explain a tensor without an inverse, so its values cannot be promised."""
    weight = noise(64)
    proto = text_model(
        'g (float[64] x) => (float[64] y) { h = SimplifiedLayerNormalization(x, val_0) y = Add(h, "fc.bias") }',
        {"val_0": 1 + weight, "fc.bias": W.reshape(-1)[:1]},
    )
    known = manifest_of(parameter("norm.weight", weight), parameter("fc.bias", W.reshape(-1)[:1]))
    result = reconcile_ledger(audit_model(save(tmp_path, proto)), known, "full")
    (piece,) = result.parameters[0].pieces
    square = replace(piece, computed=Computed("w^2"))
    squared = replace(result.parameters[0], pieces=(square,))

    recovery = recover_state(replace(result, parameters=(squared, *result.parameters[1:])))

    assert reasons(recovery) == {"norm.weight": "stored as w^2, which has no inverse"}
    assert_same(state_of(recovery, tmp_path), {"fc.bias": W.reshape(-1)[:1]})


def test_a_cut_table_says_how_many_rows_are_left(tmp_path: Path) -> None:
    rows = noise(9, 8)
    proto = text_model(
        "g (float[1,3,8] x) => (float[1,3,8] y) { y = Add(x, val_0) }", {"val_0": rows[None, :3].copy()}
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(table("pos.weight", rows)))

    assert reasons(recovery) == {"pos.weight": "the file has 3 of its 9 rows"}


def test_what_the_file_lacks_and_what_nobody_knows_are_both_named(tmp_path: Path) -> None:
    proto = text_model(ONE_WEIGHT, {"val_0": W.T.copy()})
    known = manifest_of(
        parameter("other.weight", noise(3, 3)),
        parameter("spare.weight", noise(2, 2), read=False),
        trace="exported-program",
    )

    recovery = recovery_of(tmp_path, proto, known)

    assert reasons(recovery) == {
        "other.weight": "the file does not hold it",
        "spare.weight": "the exported program does not read it, and the file does not hold it",
    }
    assert [(found.key, found.reason) for found in recovery.unnamed] == [
        (((), "val_0"), "the PyTorch tensor that it comes from is unknown")
    ]
    assert not recovery.is_whole


# all values come from the file


def test_samples_give_nothing_back(tmp_path: Path) -> None:
    original = noise(40, 30)
    changed = original.copy()
    changed[1, 1] += 1  # between two sampled positions
    proto = text_model(
        'g (float[1,30] x) => (float[1,40] y) { y = Gemm<transB=1>(x, "fc.weight") }', {"fc.weight": changed}
    )

    recovery = recovery_of(
        tmp_path, proto, manifest_of(parameter("fc.weight", original)), "sampled", {"fc.weight": original}
    )

    assert recovery.tensors == ()
    assert reasons(recovery) == {"fc.weight": "only 256 of its elements were compared"}


@pytest.mark.parametrize("is_folded", [False, True])
def test_a_tensor_that_differs_is_given_back_as_the_file_has_it(tmp_path: Path, is_folded: bool) -> None:
    original = noise(6, 6)
    changed = original.copy()
    changed[0, 1] = 7
    name, stored = ("val_0", np.ascontiguousarray(changed.T)) if is_folded else ("fc.weight", changed)
    proto = text_model(f'g (float[1,6] x) => (float[1,6] y) {{ y = MatMul(x, "{name}") }}', {name: stored})
    proto = dynamo_like(proto, folded={"val_0": ["fc.weight"]}) if is_folded else proto
    known = manifest_of(parameter("fc.weight", original))

    recovery = recovery_of(tmp_path, proto, known, "full", {"fc.weight": original})

    assert recovery.tensors[0].line == "differing"
    assert recovery.is_whole
    assert_same(state_of(recovery, tmp_path), {"fc.weight": changed})


@pytest.mark.parametrize("gone", ["fc.weight_quantized", "fc.weight_scale"])
def test_what_cannot_be_read_is_lost_and_the_rest_is_not(tmp_path: Path, gone: str) -> None:
    proto = text_model(
        """g (float[1,6] x) => (float[1,4] y) {
            w = DequantizeLinear("fc.weight_quantized", "fc.weight_scale", "fc.weight_zero_point")
            y = Gemm<transB=1>(x, w, "fc.bias")
        }""",
        {**quantized("fc.weight", W), "fc.bias": ramp(4)},
    )
    (there,) = [tensor for tensor in proto.graph.initializer if tensor.name == gone]
    there.CopyFrom(external(gone, list(there.dims), there.data_type, location="nowhere.bin"))
    known = without_values(manifest_of(parameter("fc.weight", W), parameter("fc.bias", ramp(4))))

    recovery = recovery_of(tmp_path, proto, known)

    assert reasons(recovery)["fc.weight"].startswith(f"{gone} cannot be read: ")
    assert_same(state_of(recovery, tmp_path), {"fc.bias": ramp(4)})


def test_of_a_tensor_of_another_shape_the_shape_is_reported(tmp_path: Path) -> None:
    proto = text_model(
        'g (int64[1] i) => (float[1,6] y) { y = Gather("wte.weight", i) }', {"wte.weight": W[:3].copy()}
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(parameter("wte.weight", W)))

    assert reasons(recovery) == {"wte.weight": "wte.weight has shape 3x6 in the file"}


# without values to compare


def test_without_values_a_lone_square_matrix_stands_as_the_note_says_and_is_named(tmp_path: Path) -> None:
    square = noise(6, 6)
    proto = dynamo_like(
        text_model(ONE_WEIGHT.replace("4", "6"), {"val_0": square.T.copy()}), folded={"val_0": ["fc.weight"]}
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(parameter("fc.weight", square, weightless=True)))

    assert recovery.guessed == ("fc.weight",)
    assert_same(state_of(recovery, tmp_path), {"fc.weight": square})


def test_without_values_what_was_computed_is_not_taken_for_what_it_was_computed_from(tmp_path: Path) -> None:
    proto = dynamo_like(
        text_model("g (float[8] x) => (float[8] y) { y = Mul(x, val_0) }", {"val_0": 1 + noise(8)}),
        folded={"val_0": ["norm.weight"]},
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(parameter("norm.weight", noise(8), weightless=True)))

    assert recovery.tensors == ()
    assert reasons(recovery) == {
        "norm.weight": "val_0 was computed from it in an unknown way, and no values were compared"
    }


def test_without_values_square_codes_under_their_name_may_be_transposed(tmp_path: Path) -> None:
    made = quantized("fc.weight", noise(6, 6))
    proto = text_model(
        """g (uint8[1,6] x) => (float[1,6] y) {
            i = MatMulInteger(x, "fc.weight_quantized")
            c = Cast<to=1>(i)
            y = Mul(c, "fc.weight_scale")
        }""",
        {name: array for name, array in made.items() if not name.endswith("point")},
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(parameter("fc.weight", noise(6, 6), weightless=True)))

    assert reasons(recovery) == {
        "fc.weight": "fc.weight_quantized may be its transpose, and the compared values do not tell"
    }


UNSCALED = """g (int64[2] i) => (float[2,6] y) {
    g = Gather("wte.weight_quantized", i)
    y = Cast<to=1>(g)
}"""


def test_codes_without_a_scale_are_no_weight_by_their_own_name(tmp_path: Path) -> None:
    codes = quantized("wte.weight", W)["wte.weight_quantized"]

    recovery = alone(tmp_path, text_model(UNSCALED, {"wte.weight_quantized": codes}))

    assert recovery.tensors == ()
    assert [unnamed.reason for unnamed in recovery.unnamed] == ["wte.weight, codes with an unknown scale"]


@pytest.mark.parametrize("content", ["none", "full"])
@pytest.mark.parametrize("name", ["wte.weight_quantized", "wte.weight"])
def test_codes_without_a_scale_are_no_weight_of_pytorch(
    tmp_path: Path, name: str, content: ContentMode
) -> None:
    codes = quantized("wte.weight", W)["wte.weight_quantized"]
    proto = text_model(UNSCALED.replace("wte.weight_quantized", name), {name: codes})

    recovery = recovery_of(tmp_path, proto, manifest_of(parameter("wte.weight", W)), content)

    assert recovery.tensors == ()
    assert list(reasons(recovery)) == ["wte.weight"]


def test_without_values_a_convolution_may_be_multiplied_with_a_batchnorm_that_is_gone(tmp_path: Path) -> None:
    weight, vector = noise(4, 3, 2, 2), noise(4)
    names = ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var")
    known = without_values(
        manifest_of(
            parameter("conv.weight", weight),
            parameter("head.weight", noise(5, 6)),
            *(parameter(name, vector) for name in names[:2]),
            *(buffer(name, vector) for name in names[2:]),
            batch_norms=(BatchNorm("bn", 1e-5, *names),),
        )
    )
    proto = text_model(
        """g (float[1,3,4,4] x, float[1,6] z) => (float[1,4,3,3] y) {
            y = Conv(x, "conv.weight")
            h = Gemm<transB=1>(z, "head.weight")
        }""",
        {"conv.weight": weight, "head.weight": noise(5, 6)},
    )

    recovery = recovery_of(tmp_path, proto, known)

    assert [tensor.name for tensor in recovery.tensors] == ["head.weight"]
    assert "may have a BatchNorm folded in" in reasons(recovery)["conv.weight"]


# a file on its own


def test_a_file_alone_gives_back_what_it_names(tmp_path: Path) -> None:
    table_, weight, bias = noise(5, 6), noise(4, 6, seed=1), noise(4, seed=2)
    proto = dynamo_like(
        text_model(
            """g (int64[1] i) => (float[1,4] y) {
                e = Gather("emb.weight", i)
                m = MatMul(e, val_0)
                y = Add(m, "fc.bias")
            }""",
            {"emb.weight": table_, "val_0": weight.T.copy(), "fc.bias": bias},
        ),
        parameters=("emb.weight", "fc.bias"),
        folded={"val_0": ["fc.weight"]},
    )

    recovery = alone(tmp_path, proto)

    assert recovery.is_whole, recovery
    assert_same(state_of(recovery, tmp_path), {"emb.weight": table_, "fc.weight": weight, "fc.bias": bias})


def test_a_file_alone_says_of_the_rest_why_it_is_not_named(tmp_path: Path) -> None:
    proto = dynamo_like(
        text_model(
            'g (float[1,6] x) => (float[1,4] y) { m = MatMul(x, val_0) n = Mul(m, val_1) y = Add(n, "fc.bias") }',
            {"val_0": noise(6, 4), "val_1": 1 + noise(4), "fc.bias": noise(4)},
        ),
        parameters=("fc.bias",),
        folded={"val_1": ["norm.weight"]},
    )

    recovery = alone(tmp_path, proto)

    assert [tensor.name for tensor in recovery.tensors] == ["fc.bias"]
    assert {found.key[1]: found.reason for found in recovery.unnamed} == {
        "val_0": "the PyTorch tensor that it comes from is unknown",
        "val_1": "norm.weight, computed by the exporter in an unknown way",
    }


def test_a_file_alone_gives_no_convolution_back_that_a_batchnorm_went_into(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[1,3,4,4] x) => (float[1,2,3,3] y) { y = Conv(x, "conv.weight", "conv.weight_bias") }',
        {"conv.weight": noise(2, 3, 2, 2), "conv.weight_bias": noise(2)},
    )

    recovery = alone(tmp_path, proto)

    assert recovery.tensors == ()
    assert "conv.weight, with a BatchNorm folded in" in {found.reason for found in recovery.unnamed}


# the written file


def test_the_header_is_as_the_library_writes_it(tmp_path: Path) -> None:
    arrays = {"b": np.arange(3, dtype="u1"), "a": ramp(2, 2), "n": np.array(5), "e": np.empty((0, 2), "f4")}
    types = {"b": DType.UINT8, "a": DType.FLOAT, "n": DType.INT64, "e": DType.FLOAT}
    slots = [FileTensor(name, types[name], array.shape) for name, array in arrays.items()]

    write_state_file(tmp_path / "m.safetensors", slots, lambda slot: iter([arrays[slot.name].reshape(-1)]))

    raw = (tmp_path / "m.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert length % 8 == 0
    assert [name for name in header if name != "__metadata__"] == ["n", "a", "e", "b"]
    assert_same(load_file(tmp_path / "m.safetensors"), arrays)


@pytest.mark.parametrize("parts", [[ramp(2)], [ramp(3), ramp(3)]], ids=["too little", "too much"])
def test_a_tensor_of_the_wrong_size_leaves_no_file(tmp_path: Path, parts: list[Array]) -> None:
    with pytest.raises(LedgerError, match="w: "):
        write_state_file(
            tmp_path / "m.safetensors", [FileTensor("w", DType.FLOAT, (3,))], lambda _: iter(parts)
        )

    assert list(tmp_path.iterdir()) == []


def test_a_failure_half_way_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    path, slots = (
        tmp_path / "m.safetensors",
        [FileTensor("a", DType.FLOAT, (3,)), FileTensor("b", DType.FLOAT, (3,))],
    )
    write_state_file(path, slots, lambda _: iter([ramp(3)]))
    before = path.read_bytes()

    def values(slot: FileTensor) -> Iterator[Array]:
        if slot.name == "b":
            raise ModelReadError("b: gone")
        yield ramp(3) * 2

    with pytest.raises(ModelReadError, match="b: gone"):
        write_state_file(path, slots, values)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_state_file(tmp_path / "no" / "m.safetensors", [], lambda _: iter([]))


def test_a_large_tensor_is_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analyzer.recover.restoring._BAND", 7)
    weights = {"a.weight": noise(6, 10), "b.weight": noise(3, 4, 5), "c.bias": noise(30)}
    stored = {
        "a": weights["a.weight"].T.copy(),
        "b": weights["b.weight"].transpose(2, 0, 1).copy(),
        "c": weights["c.bias"],
    }
    proto = text_model(
        "g (float[1,10] x) => (float[1,6] y) { y = MatMul(x, a) z = Mul(b, b) k = Add(c, c) }", stored
    )

    recovery = recovery_of(tmp_path, proto, manifest_of(*parameters_of(weights)))

    assert max(part.size for part in recovery.values("a.weight")) <= 10
    assert_same(state_of(recovery, tmp_path), weights)


# the command


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Save a transposed weight alone, beside its manifest."""
    save_manifest(manifest_of(parameter("fc.weight", W)), tmp_path / "manifest.json")
    return save(tmp_path, text_model(ONE_WEIGHT, {"val_0": W.T.copy()}))


def validated(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    jsonschema.validate(document, load_schema("recover"))
    return document


def test_the_state_dict_is_written_and_the_report_says_so(model: Path, tmp_path: Path) -> None:
    result = run_here("recover", model, "-o", tmp_path / "m.safetensors", "-o", tmp_path / "report.json")

    assert (result.returncode, result.stderr) == (0, "")
    assert "recovered 1 of 1 tensor, 24 elements, 96 B\n" in result.stdout
    assert_same(load_file(tmp_path / "m.safetensors"), {"fc.weight": W})
    document = validated((tmp_path / "report.json").read_text())
    assert document["output"] == str(tmp_path / "m.safetensors")
    assert document["recovered"] == {"tensors": 1, "elements": 24, "bytes": 96}
    assert document["parameters"][0]["chain"] == ["transposed"]


def test_a_second_run_gives_the_same_bytes(model: Path, tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        report = run_here("recover", model, "-o", tmp_path / "m.safetensors", "--format", "json").stdout
        found.append((report, (tmp_path / "m.safetensors").read_bytes()))

    assert found[0] == found[1]


def test_what_is_lost_is_written_in_part_and_exits_1(model: Path, tmp_path: Path) -> None:
    known = manifest_of(parameter("fc.weight", W), parameter("fc.bias", ramp(4)))
    save_manifest(known, tmp_path / "manifest.json")

    result = run_here("recover", model, "-o", tmp_path / "m.safetensors", "--format", "json")

    assert result.returncode == 1
    assert validated(result.stdout)["lost"] == [
        {
            "buffer": False,
            "line": "missing",
            "name": "fc.bias",
            "reason": "the file does not hold it",
            "shape": [4],
        }
    ]
    assert [*load_file(tmp_path / "m.safetensors")] == ["fc.weight"]
    assert "NOT ALL RECOVERED" in run_here("recover", model, "-o", tmp_path / "m.safetensors").stdout


def test_what_has_no_name_is_among_what_there_was_to_recover(model: Path, tmp_path: Path) -> None:
    other = "g (float[1,6] x) => (float[1,4] y) { h = MatMul(x, val_0) y = MatMul(h, val_1) }"
    save(tmp_path, text_model(other, {"val_0": W.T.copy(), "val_1": ramp(4, 4, start=90)}))

    for name in ("text", "markdown"):
        result = run_here("recover", model, "-o", tmp_path / "m.safetensors", "--format", name)

        assert result.returncode == 1
        assert "NOT ALL RECOVERED: 1 of 2 tensors" in result.stdout


def test_lossless_refuses_what_was_rounded_and_writes_nothing(model: Path, tmp_path: Path) -> None:
    proto = text_model(ONE_WEIGHT.replace("float[", "float16["), {"val_0": W.T.astype("f2")})
    save(tmp_path, proto)
    path = tmp_path / "m.safetensors"

    refused = run_here("recover", model, "-o", path, "--content", "none", "--lossless", "--format", "json")

    document = validated(refused.stdout)
    assert refused.returncode == 1
    assert document["output"] is None
    assert document["lossy"] == [
        {"line": "cast", "name": "fc.weight", "reason": "rounded to FLOAT16", "shape": [4, 6]}
    ]
    assert not path.exists()
    assert (
        "rounded to FLOAT16: fc.weight\n"
        in run_here("recover", model, "-o", path, "--content", "none", "--lossless").stdout
    )
    assert run_here("recover", model, "-o", path, "--content", "none").returncode == 0


def test_where_nothing_can_be_recovered_nothing_is_written(model: Path, tmp_path: Path) -> None:
    save_manifest(manifest_of(parameter("other.weight", noise(3, 5))), tmp_path / "manifest.json")

    result = run_here("recover", model, "-o", tmp_path / "m.safetensors")

    assert result.returncode == 1
    assert "NOT WRITTEN: there is nothing to write" in result.stdout
    assert not (tmp_path / "m.safetensors").exists()


def test_a_checkpoint_gives_names_and_none_of_its_values(model: Path, tmp_path: Path) -> None:
    theirs = {"fc.weight": W + 1, "norm.bias": ramp(5)}
    save_file(theirs, tmp_path / "checkpoint.safetensors")
    save(tmp_path, text_model(ONE_WEIGHT.replace("val_0", "fc.weight"), {"fc.weight": W.T.copy()}))

    result = run_here(
        "recover", model, "--against", tmp_path / "checkpoint.safetensors", "-o", tmp_path / "m.safetensors"
    )

    assert result.returncode == 1
    assert "WARN values differ from PyTorch's: the file's were taken: fc.weight\n" in result.stdout
    assert_same(load_file(tmp_path / "m.safetensors"), {"fc.weight": W})


def test_without_a_pytorch_side_the_names_are_the_files_own(model: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").unlink()
    save(
        tmp_path,
        text_model('g (int64[1] i) => (float[1,6] y) { y = Gather("wte.weight", i) }', {"wte.weight": W}),
    )

    result = run_here("recover", model, "-o", tmp_path / "m.safetensors")

    assert result.returncode == 0
    text = " ".join(result.stdout.split())
    assert "with the names of the file itself" in text
    assert "values not compared" in text
    assert_same(load_file(tmp_path / "m.safetensors"), {"wte.weight": W})


def test_a_config_that_only_pytorch_could_read_is_skipped_if_it_was_not_requested(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_missing(purpose: str) -> None:
        raise MissingExtraError("export", "torch", purpose)

    monkeypatch.setattr("analyzer.commands.pytorch.import_exporter", raise_missing)
    (tmp_path / "manifest.json").rename(tmp_path / "config.json")
    (tmp_path / "config.json").write_text("{}")
    save(
        tmp_path,
        text_model('g (int64[1] i) => (float[1,6] y) { y = Gather("wte.weight", i) }', {"wte.weight": W}),
    )
    arguments = ["recover", str(model), "-o", str(tmp_path / "m.safetensors")]

    result = CliRunner().invoke(command, arguments)
    requested = CliRunner().invoke(command, [*arguments, "--against", str(tmp_path / "config.json")])

    assert result.exit_code == 0
    assert "names come from the model file itself" in result.stderr
    assert isinstance(requested.exception, MissingExtraError)


def test_what_is_read_and_what_others_wrote_is_never_written_to(model: Path, tmp_path: Path) -> None:
    tensor = external("w", [4, 6], location="data.safetensors")
    (tmp_path / "data.safetensors").write_bytes(W.tobytes())
    proto = text_model(ONE_WEIGHT.replace("val_0", "w"))
    proto.graph.initializer.append(tensor)
    save(tmp_path, proto)
    save_file({"fc.weight": W}, tmp_path / "checkpoint.safetensors")
    (tmp_path / "link.safetensors").symlink_to(model)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    for arguments in (
        [model, "-o", tmp_path / "data.safetensors"],
        [model, "-o", tmp_path / "link.safetensors"],
        [model, "-o", tmp_path / "checkpoint.safetensors"],
        [model, "-o", tmp_path / "checkpoint.safetensors", "--against", tmp_path / "checkpoint.safetensors"],
        [model, "-o", tmp_path / "m.safetensors", "-o", tmp_path / "manifest.json"],
        [model, "-o", tmp_path / "report.json"],
        [model, "-o", tmp_path / "a.safetensors", "-o", tmp_path / "b.safetensors"],
        [model, "-o", tmp_path / "nowhere" / "m.safetensors"],
    ):
        result = run_here("recover", *arguments)
        assert (result.returncode, result.stdout) == (2, ""), arguments
        assert "-o" in result.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_state_dict_of_ours_that_is_read_is_not_written_over(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    assert run_here("recover", model, "-o", path).returncode == 0

    result = run_here("recover", model, "-o", path, "--against", path)

    assert result.returncode == 2
    assert "is an input of this command" in result.stderr


def test_recover_compares_whole_contents_whatever_is_requested(tmp_path: Path) -> None:
    original = noise(40, 30)
    changed = original.copy()
    changed[1, 1] += 1
    proto = text_model(
        'g (float[1,30] x) => (float[1,40] y) { y = Gemm<transB=1>(x, "fc.weight") }', {"fc.weight": changed}
    )
    save(tmp_path, proto)
    save_file({"fc.weight": original}, tmp_path / "original.safetensors")

    done = run_here(
        "recover",
        tmp_path / "model.onnx",
        "--against",
        tmp_path / "original.safetensors",
        "-o",
        tmp_path / "state.safetensors",
        "--content",
        "sampled",
        "--format",
        "json",
    )

    assert "recover compares all values" in done.stderr
    assert json.loads(done.stdout)["content"] == "full"


@pytest.mark.parametrize(("class_", "is_given"), [("Linear", True), (None, False)])
def test_a_square_matrix_of_other_values_is_given_back_where_its_class_says_which_way_it_stands(
    tmp_path: Path, class_: str | None, is_given: bool
) -> None:
    other = noise(20, 20, seed=1)
    proto = text_model(
        'g (float[1,20] x) => (float[1,20] y) { y = MatMul(x, "fc.weight") }', {"fc.weight": other}
    )
    modules = {} if class_ is None else {"fc": class_}

    recovery = recovery_of(
        tmp_path, proto, manifest_of(parameter("fc.weight", noise(20, 20)), modules=modules)
    )

    if is_given:
        assert_same(state_of(recovery, tmp_path), {"fc.weight": np.ascontiguousarray(other.T)})
    else:
        assert reasons(recovery) == {"fc.weight": "fc.weight differs, and its orientation is unknown"}


def test_a_layer_that_hides_a_norm_is_not_given_back(tmp_path: Path) -> None:
    """onnxscript folds a BatchNorm into a layer with a bias, leaves both names, and drops the notes with the values."""
    text = """g (float[1,3,6,6] x) => (float[1,4,4,5] y) {
        a = Conv(x, "c.weight", "c.bias")  y = MatMul(a, "f.weight")
    }"""
    weights = {"c.weight": noise(4, 3, 3, 3), "c.bias": noise(4), "f.weight": noise(4, 5)}
    proto = dynamo_like(text_model(text, weights), parameters=["f.weight"])
    ledger = audit(tmp_path, proto)
    assert {hides.why for hides in ledger.hidden.values()} == {"batchnorm"}

    original, refused = read_own_names(ledger)

    assert [each.name for each in original.manifest.parameters] == ["f.weight"]
    assert set(refused.values()) == {
        "c.weight, with a BatchNorm folded in",
        "c.bias, with a BatchNorm folded in",
    }
