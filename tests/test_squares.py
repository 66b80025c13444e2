"""Square weights in either orientation: PyTorch's is found, and a file that reads the other one is reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import Values, manifest_of, noise, packed, parameter, quantized, save, without_values
from safetensors.numpy import load_file

from analyzer.account.audit import audit_model
from analyzer.account.ledger import Ledger
from analyzer.manifest import Manifest
from analyzer.model.content import Array
from analyzer.reconciliation import Reconciliation, reconcile_ledger
from analyzer.recover import Recovery, recover_state, save_state
from analyzer.recover.ownnames import read_own_names

STRAIGHT = {
    "Gemm": "y = Gemm<transB=1>(x, {})",
    "Transpose": "t = Transpose<perm=[1,0]>({}) y = MatMul(x, t)",
    "left": "t = Transpose(x) z = MatMul({}, t) y = Transpose(z)",
    "fused": "y = com.microsoft.FusedMatMul<transB=1>(x, {})",
    "Einsum": 'y = Einsum<equation="bi,oi->bo">(x, {})',
    "unfolded": "c = Cast<to=1>({}) i = Identity(c) y = Gemm<transB=1>(x, i)",
}
"""Nodes that compute x W^T from W."""

TURNED = {
    "MatMul": "y = MatMul(x, {})",
    "Gemm": "y = Gemm(x, {})",
    "identity": "t = Transpose<perm=[0,1]>({}) y = MatMul(x, t)",
    "twice": "t = Transpose({}) u = Transpose(t) y = MatMul(x, u)",
    "Einsum": 'y = Einsum<equation="bi,io->bo">(x, {})',
    "left": "t = Transpose(x) z = Gemm<transA=1>({}, t) y = Transpose(z)",
}
"""Nodes that compute x W from W."""

LINEAR = {"fc": "Linear"}


def file_of(reader: str, stored: Mapping[str, Array], name: str) -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g (float[1] x) => (float[1] y)'
    body = reader.replace("{}", f'"{name}"')
    proto = onnx.parser.parse_model(f"{head} {{ {body} }}")
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, key) for key, array in stored.items())
    return proto


def in_form(form: str, name: str, reader: str, stored: Array) -> onnx.ModelProto:
    """Return a model with the weight as floats, or as 8-bit codes before a DequantizeLinear."""
    if form == "float":
        return file_of(reader, {name: stored}, name)
    codes = quantized(name, stored, axis=0)
    proto = file_of(reader, codes, "w")
    decode = onnx.helper.make_node("DequantizeLinear", list(codes), ["w"], axis=0)
    proto.graph.node.insert(0, decode)
    return proto


def known_of(weight: Array, modules: Mapping[str, str] | None = None) -> Manifest:
    return manifest_of(parameter("fc.weight", weight), modules=modules)


def compare(
    folder: Path, proto: onnx.ModelProto, side: str, weight: Array, content: str | None = None
) -> tuple[Ledger, Reconciliation]:
    ledger = audit_model(save(folder, proto))
    manifest = known_of(weight, None if "classless" in side else LINEAR)
    if side.startswith("weights"):
        return ledger, reconcile_ledger(
            ledger, without_values(manifest), content, weights=Values({"fc.weight": weight})
        )
    if side == "names":
        manifest = without_values(manifest)
    if side == "alone":
        manifest = read_own_names(ledger)[0].manifest
    return ledger, reconcile_ledger(ledger, manifest, content)


def recovered_weight(recovery: Recovery, folder: Path) -> Array | None:
    if not recovery.tensors:
        return None
    save_state(recovery, folder / "state.safetensors")
    return load_file(folder / "state.safetensors").get("fc.weight")


def is_near(found: Array, weight: Array) -> bool:
    return float(np.abs(found - weight).max()) <= 1.01 * float(np.abs(weight).max()) / 127


@pytest.mark.parametrize("size", [64, 127, 190])
@pytest.mark.parametrize("form", ["float", "codes"])
@pytest.mark.parametrize("name", ["fc.weight", "v0"])
@pytest.mark.parametrize(
    "side", ["weights", "weights classless", "manifest", "manifest classless", "names", "alone"]
)
@pytest.mark.parametrize("way", ["straight", "turned"])
def test_the_right_matrix_is_given_back_or_none(
    tmp_path: Path, size: int, form: str, name: str, side: str, way: str
) -> None:
    weight = noise(size, size)
    reader = STRAIGHT["Gemm"] if way == "straight" else TURNED["MatMul"]
    stored = weight if way == "straight" else weight.T.copy()

    _, result = compare(tmp_path, in_form(form, name, reader, stored), side, weight)
    found = recovered_weight(recover_state(result), tmp_path)

    assert found is None or is_near(found, weight)
    if side.startswith(("weights", "manifest")):
        assert result.balanced
        assert found is not None
    elif (side, name, way) in (("names", "fc.weight", "straight"), ("alone", "fc.weight", "straight")):
        assert found is not None or form == "codes"


@pytest.mark.parametrize("content", ["sampled", "full"])
@pytest.mark.parametrize("name", ["fc.weight", "v0"])
@pytest.mark.parametrize("side", ["weights", "manifest"])
@pytest.mark.parametrize("form", ["float", "codes"])
@pytest.mark.parametrize(
    ("reader", "is_straight"),
    [*((reader, True) for reader in STRAIGHT.values()), *((reader, False) for reader in TURNED.values())],
    ids=[*(f"straight-{name}" for name in STRAIGHT), *(f"turned-{name}" for name in TURNED)],
)
def test_a_linear_layer_is_read_as_pytorch_reads_it_or_differs(
    tmp_path: Path, reader: str, is_straight: bool, form: str, side: str, name: str, content: str
) -> None:
    weight = noise(64, 64)
    right, wrong = (weight, weight.T.copy()) if is_straight else (weight.T.copy(), weight)

    _, good = compare(tmp_path, in_form(form, name, reader, right), side, weight, content)
    _, bad = compare(tmp_path, in_form(form, name, reader, wrong), side, weight, content)

    assert good.balanced
    assert not bad.balanced
    assert bad.parameters[0].line in ("differing", "missing")
    assert not recover_state(bad).tensors


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("name", ["fc.weight", "v0"])
@pytest.mark.parametrize("side", ["weights", "manifest"])
def test_four_bits_stand_as_their_operator_packs_them(
    tmp_path: Path, side: str, name: str, is_turned: bool
) -> None:
    weight = noise(64, 64)
    stored = packed(name, weight.T.copy() if is_turned else weight)
    reader = (
        f'y = com.microsoft.MatMulNBits<K=64, N=64, bits=4, block_size=16>(x, "{name}_Q4", "{name}_scales")'
    )

    _, result = compare(tmp_path, file_of(reader, stored, name), side, weight)
    found = recovered_weight(recover_state(result), tmp_path)

    assert result.balanced != is_turned
    assert (found is None) == is_turned


@pytest.mark.parametrize("side", ["weights", "manifest"])
def test_layer_of_gpt_2_multiplies_by_its_weight_as_it_is(tmp_path: Path, side: str) -> None:
    weight = noise(64, 64)
    proto = file_of(TURNED["Gemm"], {"fc.weight": weight}, "fc.weight")
    ledger = audit_model(save(tmp_path, proto))
    manifest = known_of(weight, {"fc": "Conv1D"})

    assert reconcile_ledger(ledger, manifest).balanced
    assert not reconcile_ledger(ledger, replace(manifest, modules=LINEAR)).balanced


@pytest.mark.parametrize("side", ["weights", "manifest"])
def test_noise_that_keeps_the_sampled_codes_is_reported(tmp_path: Path, side: str) -> None:
    weight = noise(128, 96)
    codes = quantized("fc.weight", weight, axis=0)
    ledger, good = compare(tmp_path, in_form("codes", "fc.weight", STRAIGHT["Gemm"], weight), side, weight)
    changed = codes["fc.weight_quantized"].copy()
    seen = good.manifest.numel and np.unravel_index(positions_of(ledger, good), weight.shape)
    kept = changed[seen]
    changed[:] = np.random.default_rng(3).permutation(changed.reshape(-1)).reshape(changed.shape)
    changed[seen] = kept
    proto = in_form("codes", "fc.weight", STRAIGHT["Gemm"], weight)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(changed, "fc.weight_quantized"))

    assert good.balanced
    assert not compare(tmp_path, proto, side, weight)[1].balanced


def positions_of(ledger: Ledger, result: Reconciliation) -> Array:
    from analyzer.model.content import sample_positions

    salt = result.manifest.salt if result.manifest.has_content else ledger.model.salt
    return sample_positions(result.manifest.numel, salt)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fc.weight", "v0"])
@pytest.mark.parametrize("way", ["straight", "turned"])
def test_a_matrix_of_a_large_model_is_given_back(tmp_path: Path, name: str, way: str) -> None:
    weight = np.random.default_rng(0).standard_normal((4096, 4096), dtype=np.float32)
    reader = STRAIGHT["Gemm"] if way == "straight" else TURNED["MatMul"]
    proto = file_of(reader, {name: weight if way == "straight" else weight.T.copy()}, name)

    _, result = compare(tmp_path, proto, "manifest", weight)
    found = recovered_weight(recover_state(result), tmp_path)

    assert found is not None
    assert np.array_equal(found, weight)
