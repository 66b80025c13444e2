"""State dicts without a class: buffers recognized by their values, and parameters that resemble them."""

from __future__ import annotations

import numpy as np
import pytest
from models import noise, outs, save, text_model
from safetensors.numpy import save_file

from analyzer.account.audit import audit_model
from analyzer.checkpoints.checkpoint import open_checkpoint
from analyzer.reconciliation import reconcile_ledger


def waves(positions: int, width: int):
    angles = np.arange(positions)[:, None] / 1e4 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(positions, width).astype(np.float32)


def unit(size: int, seed: int):
    vector = noise(size, seed=seed)
    return vector / np.linalg.norm(vector)


def split(tmp_path, **tensors):
    """Return the names of parameters and of buffers in a state dict; `__` stands for a dot."""
    path = tmp_path / "m.safetensors"
    save_file({name.replace("__", "."): np.ascontiguousarray(array) for name, array in tensors.items()}, path)
    manifest = open_checkpoint(path).manifest
    return [p.name for p in manifest.parameters], [b.name for b in manifest.buffers]


GRID = np.stack(np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij"), -1).astype(np.float32)
SIZES = np.abs(noise(6, 2)) + 0.3
SPREAD = np.concatenate([np.repeat(noise(40, 2, seed=3), 2, axis=0)] * 2, axis=1)
SPREAD[:, 2:] += np.tile(np.array([[1, 2], [2, 1]], np.float32), (40, 1))


@pytest.mark.parametrize(
    "values",
    [
        np.tril(np.ones((6, 6), np.float32)),
        np.tril(np.ones((2, 1, 6, 6), np.float32), 2),
        np.triu(np.full((7, 7), -1e9, np.float32), 1),
        waves(12, 8),
        waves(12, 8)[None, :, None],
        (1e4 ** (-np.arange(16) / 16)).astype(np.float32),
        GRID,
        np.array([8, 16, 32], np.float32),
        np.array([[[1.25, 1.625], [2.0, 3.75], [4.125, 2.875]]], np.float32),
        np.concatenate([-SIZES, SIZES], axis=1),
        SPREAD,
        (-np.abs(np.arange(9)[:, None] - np.arange(9)[None])).astype(np.float32),
    ],
    ids=[
        *("triangle", "triangle by the head", "upper mask", "sinusoids", "with axes of one", "frequencies"),
        *("grid", "strides", "anchors over strides", "boxes around 0", "boxes of few sizes", "distances"),
    ],
)
def test_a_few_numbers_in_a_series_are_a_buffer_whatever_the_name(tmp_path, values):
    parameters, buffers = split(tmp_path, fc__weight=noise(4, 4), blocks__0__something=values)

    assert (parameters, buffers) == (["fc.weight"], ["blocks.0.something"])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("norm.weight", np.ones(16, np.float32)),
        ("norm.gain", np.ones(16, np.float32)),
        ("norm.bias", np.zeros(16, np.float32)),
        ("mix", np.eye(6, dtype=np.float32)),
        ("lstm.bias_hh_l0", np.repeat([0, 1, 0, 0], 4).astype(np.float32)),
        ("gates", np.repeat([0, 1, 0, 0], 4).astype(np.float32)),
        ("mix", np.array([0, 1], np.float32)),
        ("scales", np.array([4.625, 4.5, 4.34375], np.float32)),
        ("scales", np.array([130, 141, 155], np.float32)),
        ("table.weight", waves(12, 8)),
        ("dfl.conv.weight", np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1)),
        ("fc.weight", np.tril(np.ones((6, 6), np.float32))),
        ("fc.bias", np.arange(16, dtype=np.float32)),
        ("prior", noise(5, 4)),
        ("prior", np.abs(noise(64, 4))),
        ("slopes", np.sort(np.abs(noise(24)))[::-1].astype(np.float16)),
        ("table", waves(12, 8) + 0.01 * noise(12, 8)),
        ("mask_token", noise(1, 1, 8)),
        ("dropped", noise(8, 8) * (noise(8, 8, seed=1) > 0)),
    ],
)
def test_what_pytorch_learns_stays_a_parameter(tmp_path, name, values):
    assert split(tmp_path, **{name.replace(".", "__"): values}) == ([name], [])


def test_the_vectors_of_spectral_norm_are_buffers_beside_their_matrix_only(tmp_path):
    old = {"a__weight_orig": noise(6, 5), "a__weight_u": unit(6, 1), "a__weight_v": unit(5, 2)}
    new = {
        "b__parametrizations__weight__original": noise(6, 4, 3),
        "b__parametrizations__weight__0___u": unit(6, 3),
        "b__parametrizations__weight__0___v": unit(12, 4),
    }
    weight_norm = {"c__weight_g": noise(6, 1), "c__weight_v": noise(6, 5)}
    odd = {
        "d__weight_u": unit(6, 5),
        "e__weight_orig": noise(6, 5),
        "e__weight_u": 2 * unit(6, 6),
        "e__weight_v": unit(7, 7),
    }

    parameters, buffers = split(tmp_path, **old, **new, **weight_norm, **odd)

    assert buffers == [
        *("a.weight_u", "a.weight_v", "b.parametrizations.weight.0._u", "b.parametrizations.weight.0._v")
    ]
    assert {"c.weight_v", "c.weight_g", "d.weight_u", "e.weight_u", "e.weight_v"} <= set(parameters)


TRIANGLE = np.tril(np.ones((8, 8), np.float32))


def balance(tmp_path, stored, known):
    """Reconcile a file that multiplies scores by `stored` with a state dict that has `known` under the same name."""
    proto = text_model(
        "g (float[8,8] x) => (float[8,8] y) { h = MatMul(x, w)\n y = Mul(h, m) }",
        {"w": noise(8, 8), "m": stored},
    )
    proto.graph.initializer[1].name = proto.graph.node[1].input[1] = "attn.tril"
    path = tmp_path / "w.safetensors"
    save_file({"fc.weight": noise(8, 8), "attn.tril": known}, path)
    original = open_checkpoint(path)
    ledger = audit_model(save(tmp_path, proto))
    return reconcile_ledger(ledger, original.manifest, weights=original.weights)


def test_a_stored_buffer_is_matched_as_one_and_other_values_differ(tmp_path):
    same, other = TRIANGLE, TRIANGLE.copy()
    other[2, 7] = 1

    result = balance(tmp_path, same, TRIANGLE)
    tampered = balance(tmp_path, other, TRIANGLE)

    assert result.balanced
    assert [line.line.value for line in result.entries] == ["transposed", "buffer"] or [
        line.line.value for line in result.entries
    ] == ["renamed", "buffer"]
    assert not tampered.balanced


def test_a_buffer_that_the_export_folded_is_not_missing_but_a_weight_is(tmp_path):
    proto = text_model(f"g (float[8,8] x) => ({outs(1)}) {{ y0 = MatMul(x, w) }}", {"w": noise(8, 8)})
    path = tmp_path / "w.safetensors"
    ledger = audit_model(save(tmp_path, proto))
    found = {}
    for name, values in {"tril": TRIANGLE, "gain": np.ones((8, 8), np.float32)}.items():
        save_file({"fc.weight": noise(8, 8), f"attn.{name}": values}, path)
        original = open_checkpoint(path)
        found[name] = reconcile_ledger(ledger, original.manifest, weights=original.weights).balanced

    assert found == {"tril": True, "gain": False}


@pytest.mark.parametrize("leaf", ["act_scaling_factor", "weight_integer", "x_min"])
def test_state_of_a_module_that_quantizes_itself_is_no_parameter(tmp_path, leaf):
    known = {
        "q__weight": noise(4, 4),
        f"q__{leaf}": noise(4, 4, seed=1),
        "LayerNorm__shift": noise(1, seed=2),
    }

    assert split(tmp_path, **known, norm__shift=noise(1)) == (
        ["norm.shift", "q.weight"],
        ["LayerNorm.shift", f"q.{leaf}"],
    )
