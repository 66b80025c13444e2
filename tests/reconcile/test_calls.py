"""Weights passed to local functions count as the nodes inside the functions use them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from functions import FORMS
from models import (
    audit,
    bridge_of,
    dynamo_like,
    entry,
    lines_of,
    manifest_of,
    noise,
    parameters_of,
    reconcile,
    text_model,
)

from analyzer.model.content import Array

KNOWN: dict[str, Array] = {
    "embed.weight": noise(20, 8),
    "norm.weight": noise(8, seed=1),
    "norm.bias": noise(8, seed=2),
    "query.weight": noise(8, 8, seed=3),
    "query.bias": noise(8, seed=4),
    "key.weight": noise(8, 8, seed=5),
    "key.bias": noise(8, seed=6),
    "up.weight": noise(12, 8, seed=7),
    "up.bias": noise(12, seed=8),
    "down.weight": noise(8, 12, seed=9),
    "down.bias": noise(8, seed=10),
}

GRAPH = """
g (int64[1,4] ids) => (float[1,4,8] y) {
    e = Gather(v0, ids)
    n = LayerNormalization<axis = -1>(e, v1, v2)
    q0 = MatMul(n, v3)  q = Add(q0, v4)
    k0 = MatMul(n, v5)  k = Add(k0, v6)
    kt = Transpose<perm = [0, 2, 1]>(k)
    s0 = MatMul(q, kt)  s = Softmax(s0)
    a = MatMul(s, n)
    u0 = MatMul(a, v7)  u = Add(u0, v8)
    r = Relu(u)
    d0 = MatMul(r, v9)  d = Add(v10, d0)
    y = Add(d, e)
}
"""


def stored(known: dict[str, Array] = KNOWN) -> dict[str, Array]:
    """Return the weights under names of the file's own, with matrices in MatMul's order."""
    return {
        f"v{number}": array.T.copy() if array.ndim == 2 and number else array
        for number, array in enumerate(known.values())
    }


forms = pytest.mark.parametrize("form", FORMS)


def file_of(form: str, known: dict[str, Array] = KNOWN) -> onnx.ModelProto:
    return FORMS[form](text_model(GRAPH, stored(known)))


@forms
def test_inspect_counts_parameters_behind_functions(form, tmp_path):
    plain = audit(tmp_path, text_model(GRAPH, stored()))

    ledger = audit(tmp_path, file_of(form))

    assert ledger.parameters == plain.parameters == sum(array.size for array in KNOWN.values())


@forms
@pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])
def test_a_graph_behind_functions_balances(form, at_hand, tmp_path):
    manifest = manifest_of(*parameters_of(KNOWN))

    result = reconcile(tmp_path, file_of(form), manifest, "full", KNOWN if at_hand else None)

    assert result.balanced, bridge_of(result)
    expected = reconcile(tmp_path, text_model(GRAPH, stored()), manifest, "full", KNOWN if at_hand else None)
    if "turned" not in form:
        assert lines_of(result) == lines_of(expected)
    assert result.onnx_parameters == expected.onnx_parameters


def test_an_operator_behind_a_function_of_a_runtimes_domain_counts_as_that_operator(tmp_path):
    packed = np.zeros((8, 1, 8), np.uint8)
    text = """
    <ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (float[1,16] x) => (float[1,8] y) {
        y = com.microsoft.MatMulNBits<K = 16, N = 8, bits = 4, block_size = 16>(x, codes, scales)
    }
    <domain: "com.microsoft", opset_import: ["" : 18]> MatMulNBits (a, b, c) => (d) { d = Relu(a) }
    """
    ledger = audit(tmp_path, text_model(text, {"codes": packed, "scales": np.ones(8, np.float32)}))

    assert ledger.parameters == 16 * 8
    assert [(calls.sites, calls.calls) for calls in ledger.calls] == [(0, 0)]
    assert entry(ledger, "codes").read_by == "MatMulNBits"


@pytest.mark.parametrize(
    "nodes",
    [
        "h = MatMul(x, w) y = MatMul(h, v)",
        'h = MatMul(x, w) y = Einsum<equation = "ij,jk->ik">(h, v)',
        "i = Constant<value_ints = [0]>() j = Constant<value_ints = [8]>() s = Slice(v, i, j) "
        "h = MatMul(x, w) y = MatMul(h, s)",
        "h = MatMul(x, w) y = com.microsoft.FusedMatMul(h, v)",
    ],
    ids=["MatMul", "Einsum", "sliced", "fused"],
)
def test_an_unknown_matrix_that_is_multiplied_by_is_unexplained(nodes, tmp_path):
    weights = {"w": noise(8, 8), "v": noise(8, 8, seed=1)}
    proto = text_model(f"g (float[8,8] x) => (float[8,8] y) {{ {nodes} }}", weights)
    proto = dynamo_like(proto, folded={"v": ["val_7"]})

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of({"w": weights["w"]})), "full")

    assert not result.balanced
    assert bridge_of(result)["unexplained"][:2] == (1, 64)


def test_a_first_state_of_zeros_that_is_multiplied_is_no_unexplained_weight(tmp_path):
    w, state = noise(8, 8), np.zeros((8, 8), "f4")
    text = """g (float[8,8] x) => (float[8,8] y) {
        q = QuantizeLinear(val_7, scale, zero) s = DequantizeLinear(q, scale, zero)
        a = MatMul(x, w) b = MatMul(s, w) y = Add(a, b)
    }"""
    codes = {"scale": np.array(0.5, "f4"), "zero": np.array(0, np.uint8)}
    manifest = manifest_of(*parameters_of({"w": w}))

    def reconcile_with(stored):
        proto = text_model(text, {"w": w, "val_7": stored, **codes})
        return reconcile(tmp_path, dynamo_like(proto, folded={"val_7": ["val_3"]}), manifest, "full")

    assert reconcile_with(state).balanced
    assert not reconcile_with(noise(8, 8, seed=1)).balanced
