"""Where a function of each element may stand: only where PyTorch's own program has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import (
    Values,
    audit,
    lines_of,
    manifest_of,
    noise,
    parameter,
    reconcile,
    text_model,
    without_values,
)

from analyzer.content import Array
from analyzer.reconciliation import Reconciliation, reconcile_ledger

GAIN = noise(16) / 4
QUERY = noise(16, 24, seed=1)

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])


def run(
    folder: Path,
    nodes: str,
    stored: dict[str, Array],
    known: dict[str, Array],
    modules: dict[str, str] | None = None,
    *,
    at_hand: bool = False,
) -> Reconciliation:
    proto = text_model(f"g (float[1,16] x, float[n,n] keys) => (float[1,n] y) {{ {nodes} }}", stored)
    manifest = manifest_of(*(parameter(name, array) for name, array in known.items()), modules=modules)
    if not at_hand:
        return reconcile_ledger(audit(folder, proto), manifest)
    return reconcile_ledger(audit(folder, proto), without_values(manifest), weights=Values(known))


# 1 + w

WRITTEN_OUT = """s = Mul(x, x) m = ReduceMean<keepdims=1>(s) r = Sqrt(m) n = Div(x, r) y = Mul(n, v)"""
NORMS = {
    "one node": "h = SimplifiedLayerNormalization(x, v) y = Relu(h)",
    "onnxruntime's": "y = com.microsoft.SkipSimplifiedLayerNormalization(x, x, v)",
    "written out": WRITTEN_OUT,
    "written out, to float and back": WRITTEN_OUT.replace("y = Mul(n, v)", "c = Cast<to=1>(n) y = Mul(c, v)"),
}


@both
@pytest.mark.parametrize("name", sorted(NORMS))
def test_gain_of_a_norm_may_have_one_added(tmp_path: Path, name: str, at_hand: bool) -> None:
    result = run(tmp_path, NORMS[name], {"v": 1 + GAIN}, {"norm.weight": GAIN}, at_hand=at_hand)

    assert lines_of(result) == {"norm.weight": "folded-pointwise"}
    assert result.balanced


@both
@pytest.mark.parametrize(
    "nodes",
    ["y = Mul(x, v)", "y = Add(x, v)", "h = Relu(x) y = Mul(h, v)", "h = MatMul(x, keys) y = Add(h, v)"],
)
def test_what_no_norm_precedes_may_not(tmp_path: Path, nodes: str, at_hand: bool) -> None:
    result = run(tmp_path, nodes, {"v": 1 + GAIN}, {"norm.weight": GAIN}, at_hand=at_hand)

    assert lines_of(result) == {"norm.weight": "missing"}
    assert not result.balanced


@pytest.mark.parametrize(
    ("class_", "line"),
    [
        ("GemmaRMSNorm", "folded-pointwise"),
        ("Gemma3RMSNorm", "folded-pointwise"),
        ("Qwen3NextRMSNorm", "folded-pointwise"),
        ("NemotronLayerNorm1P", "folded-pointwise"),
        ("LlamaRMSNorm", "missing"),
        ("LayerNorm", "missing"),
        ("Linear", "missing"),
    ],
)
def test_the_class_says_whether_a_norm_adds_one(tmp_path: Path, class_: str, line: str) -> None:
    result = run(tmp_path, WRITTEN_OUT, {"v": 1 + GAIN}, {"norm.weight": GAIN}, {"norm": class_})

    assert lines_of(result) == {"norm.weight": line}


def test_norm_with_a_bias_adds_no_one(tmp_path: Path) -> None:
    known = {"norm.weight": GAIN, "norm.bias": noise(16, seed=5)}
    stored = {"v": 1 + GAIN, "norm.bias": known["norm.bias"]}

    result = run(tmp_path, 'y = LayerNormalization(x, v, "norm.bias")', stored, known)

    assert lines_of(result)["norm.weight"] == "missing"


TWO = "h = SimplifiedLayerNormalization(x, v) y = SimplifiedLayerNormalization(h, {})"


def test_norms_of_all_layers_have_one_added_or_none(tmp_path: Path) -> None:
    known = {"layers.0.norm.weight": GAIN, "layers.1.norm.weight": noise(16, seed=6) / 4}
    other = known["layers.1.norm.weight"]

    all_of_them = run(tmp_path, TWO.format("u"), {"v": 1 + GAIN, "u": 1 + other}, known)
    one_of_them = run(
        tmp_path, TWO.format('"layers.1.norm.weight"'), {"v": 1 + GAIN, "layers.1.norm.weight": other}, known
    )

    assert set(lines_of(all_of_them).values()) == {"folded-pointwise"}
    assert lines_of(one_of_them) == {"layers.0.norm.weight": "missing", "layers.1.norm.weight": "identical"}


# exp


@both
@pytest.mark.parametrize(
    ("name", "rule", "line"),
    [
        ("mixer.A_log", "-exp", "folded-pointwise"),
        ("layers.3.mixer.A_log", "-exp", "folded-pointwise"),
        ("mixer.A_logs", "-exp", "missing"),
        ("norm.weight", "-exp", "missing"),
        ("fc.bias", "-exp", "missing"),
        ("attn.logit_scale", "exp", "folded-pointwise"),
        ("norm.weight", "exp", "missing"),
        ("mixer.A_log", "exp", "missing"),
        ("attn.logit_scale", "-exp", "missing"),
    ],
)
def test_exponentials_are_of_parameters_that_are_logarithms(
    tmp_path: Path, name: str, rule: str, line: str, at_hand: bool
) -> None:
    stored = -np.exp(GAIN) if rule == "-exp" else np.exp(GAIN)

    result = run(tmp_path, "y = Mul(x, v)", {"v": stored}, {name: GAIN}, at_hand=at_hand)

    assert lines_of(result) == {name: line}


# a query times 1 / sqrt(d)

HEADS = {"heads": np.array([1, -1, 8])}
SCORED = "r = Reshape(q, heads) s = MatMul(r, keys) {} y = Softmax(s)"
PRODUCT = "q = Gemm<transB=1>(keys, v) "


@both
@pytest.mark.parametrize(
    ("nodes", "factor", "line"),
    [
        (PRODUCT + SCORED.format(""), 8**-0.5, "folded-pointwise"),
        (
            PRODUCT + SCORED.format("m = Add(s, keys)").replace("Softmax(s)", "Softmax(m)"),
            8**-0.5,
            "folded-pointwise",
        ),
        (PRODUCT + SCORED.format(""), 16**-0.5, "missing"),
        (PRODUCT + SCORED.format("m = Mul(s, half)").replace("Softmax(s)", "Softmax(m)"), 8**-0.5, "missing"),
        (PRODUCT + SCORED.format("m = Div(s, half)").replace("Softmax(s)", "Softmax(m)"), 8**-0.5, "missing"),
        (PRODUCT + "s = MatMul(q, keys) y = Softmax(s)", 8**-0.5, "missing"),
        (PRODUCT + "r = Reshape(q, heads) y = Softmax(r)", 8**-0.5, "missing"),
        (PRODUCT + "r = Reshape(q, heads) y = MatMul(r, keys)", 8**-0.5, "missing"),
        (PRODUCT + "y = Relu(q)", 8**-0.5, "missing"),
    ],
    ids=[
        "a query",
        "with a mask",
        "of another width",
        "scaled twice",
        "divided besides",
        "not cut into heads",
        "not compared",
        "no softmax",
        "any other layer",
    ],
)
def test_the_scale_of_attention_stands_in_a_query_alone(
    tmp_path: Path, nodes: str, factor: float, line: str, at_hand: bool
) -> None:
    stored = {"v": (QUERY * np.float32(factor)).astype("f4"), "half": np.asarray(0.5, "f4"), **HEADS}

    result = run(tmp_path, nodes, stored, {"q.weight": QUERY}, at_hand=at_hand)

    assert lines_of(result) == {"q.weight": line}


def test_queries_of_all_layers_are_scaled_or_none(tmp_path: Path) -> None:
    known = {"layers.0.q.weight": QUERY, "layers.1.q.weight": noise(16, 24, seed=8)}
    first = PRODUCT + SCORED.format("")
    second = 'q2 = Gemm<transB=1>(y, "layers.1.q.weight")'
    stored = {"v": (QUERY / np.sqrt(np.float32(8))).astype("f4"), **HEADS}
    stored["layers.1.q.weight"] = known["layers.1.q.weight"]
    proto = text_model(f"g (float[n,n] keys) => (float[1,n] q2) {{ {first} {second} }}", stored)

    result = reconcile(tmp_path, proto, manifest_of(*(parameter(n, a) for n, a in known.items())))

    assert lines_of(result) == {"layers.0.q.weight": "missing", "layers.1.q.weight": "identical"}
