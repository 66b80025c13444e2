"""Elementwise functions that an exporter computed in advance, matched only where PyTorch's own program has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import (
    Array,
    Values,
    audit,
    bridge_of,
    dynamo_like,
    lines_of,
    manifest_of,
    noise,
    parameter,
    quantized,
    reconcile,
    text_model,
    without_values,
)

from analyzer.model.content import SAMPLES, sample_positions
from analyzer.reconciliation import Reconciliation, reconcile_ledger
from analyzer.reconciliation.pointwise import FUNCTIONS, undo

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

VECTOR = (noise(24) / 4).astype("f4")


NAMES = {
    "1+w": "norm.weight",
    "exp(w)": "logit_scale",
    "-exp(w)": "mixer.A_log",
    "softplus(w)": "rg_lru.recurrent_param",
    "c*w": "query.weight",
}
"""PyTorch's name of a parameter to which exporters apply each function in advance."""

_HEADS = "r = Reshape(q, heads) s = MatMul(r, keys) y = Softmax(s)"

READS = {
    "1+w": "n = SimplifiedLayerNormalization(x, {}) y = Relu(n)",
    "exp(w)": "y = Mul(x, {})",
    "-exp(w)": "y = Mul(x, {})",
    "softplus(w)": "y = Mul(x, {})",
    "c*w": f"q = Gemm<transB=1>(x, {{}}) {_HEADS}",
    "c*b": f"h = MatMul(x, keys) q = Add(h, {{}}) {_HEADS}",
}
"""Nodes that read such a parameter: a norm, a product of a query and keys, or an addition of a bias."""


def reading(how: str, name: str, stored: dict[str, Array], before: str = "") -> onnx.ModelProto:
    """Return a model that reads a value through the nodes `READS[how]`; a query has heads of 8."""
    heads = {"heads": np.array([1, -1, 8])} if how in ("c*w", "c*b") else {}
    nodes = READS[how].format(f'"{name}"')
    return text_model(
        f"g (float[1,n] x, float[n,n] keys) => (float[1,n] y) {{ {before} {nodes} }}", stored | heads
    )


def run(
    tmp_path,
    stored: Array,
    known: Array = VECTOR,
    content: Any = "full",
    *,
    at_hand: bool = False,
    name: str = "val_1",
    how: str = "1+w",
) -> Reconciliation:
    known_as = NAMES["c*w" if how == "c*b" else how]
    arrays = {known_as: known} if at_hand else None
    manifest = manifest_of(parameter(known_as, known))
    return reconcile(tmp_path, reading(how, name, {name: stored}), manifest, content, arrays)


def computed(rule: str, known: Array = VECTOR) -> Array:
    return FUNCTIONS[rule][0](known.astype("f8")).astype("f4")


ALONE = sorted(set(FUNCTIONS) & set(NAMES))
"""Functions whose place needs no other parameter."""


@both
@pytest.mark.parametrize("rule", ALONE)
@pytest.mark.parametrize(("content", "evidence"), [("sampled", "sampled"), ("full", "content")])
def test_function_of_a_parameter_is_that_parameter(tmp_path, rule, content, evidence, at_hand):
    result = run(tmp_path, computed(rule), content=content, at_hand=at_hand, how=rule)

    assert bridge_of(result) == {"folded-pointwise": (1, 24, 0, 0)}
    assert result.parameters[0].decided_by == f"{evidence}:{rule}"
    assert result.balanced


@pytest.mark.parametrize("rule", sorted(FUNCTIONS))
def test_undoing_a_computation_gives_the_parameter(rule):
    assert undo(rule)(computed(rule).astype("f8")) == pytest.approx(VECTOR.astype("f8"), abs=1e-6)


@both
@pytest.mark.parametrize("rule", ALONE)
@pytest.mark.parametrize("position", [0, 7])
def test_one_changed_element_is_no_function(tmp_path, rule, position, at_hand):
    stored = computed(rule)
    stored[position] *= np.float32(1.0001)

    assert not run(tmp_path, stored, at_hand=at_hand, how=rule).balanced


@both
def test_large_result_gives_no_room_to_the_others(tmp_path, at_hand):
    known = VECTOR.copy()
    known[0] = 20.0
    stored = computed("exp(w)", known)
    stored[3] = 100.0

    assert run(tmp_path, computed("exp(w)", known), known, at_hand=at_hand, how="exp(w)").balanced
    assert not run(tmp_path, stored, known, at_hand=at_hand, how="exp(w)").balanced


def test_an_element_between_the_samples_is_seen_with_the_weights_at_hand(tmp_path):
    known = noise(5000)
    stored = computed("1+w", known)
    stored[1] += np.float32(0.01)
    assert 1 not in sample_positions(known.size)

    assert run(tmp_path, stored, known, "sampled").balanced
    assert not run(tmp_path, stored, known, at_hand=True).balanced


@both
def test_large_tensor_is_compared_whole_where_that_is_requested(tmp_path, at_hand):
    known = noise(300, 200)
    stored = computed("-exp(w)", known)
    changed = stored.copy()
    changed[0, 1] *= np.float32(2)

    assert run(tmp_path, stored, known, at_hand=at_hand, how="-exp(w)").balanced
    assert run(tmp_path, changed, known, at_hand=at_hand, how="-exp(w)").balanced != at_hand


@both
def test_function_may_be_cast(tmp_path, at_hand):
    result = run(tmp_path, computed("1+w").astype("f2"), at_hand=at_hand)

    assert [str(line) for line in result.parameters[0].chain] == ["folded-pointwise", "cast"]
    assert result.balanced


@both
def test_function_may_be_quantized(tmp_path, at_hand):
    decoded = "d = DequantizeLinear(w_quantized, w_scale, w_zero_point)"
    proto = reading("1+w", "d", quantized("w", computed("1+w")), decoded)
    arrays = {"norm.weight": VECTOR} if at_hand else None

    result = reconcile(tmp_path, proto, manifest_of(parameter("norm.weight", VECTOR)), "full", arrays)

    assert [str(line) for line in result.parameters[0].chain] == ["folded-pointwise", "quantized"]


@both
def test_codes_of_ones_are_not_one_plus_whatever(tmp_path, at_hand):
    tensors = {"q": np.ones(24, "i1"), "s": np.asarray(1, "f4")}
    proto = reading("1+w", "d", tensors, "d = DequantizeLinear(q, s)")
    arrays = {"norm.weight": VECTOR} if at_hand else None

    assert not reconcile(
        tmp_path, proto, manifest_of(parameter("norm.weight", VECTOR)), "full", arrays
    ).balanced


# a constant factor


def scaled(tmp_path, known: Array, by: float = 8**-0.5, *, at_hand: bool) -> Reconciliation:
    """Reconcile a query's weight or bias times a number, where PyTorch scales the attention scores by it."""
    how = "c*w" if known.ndim == 2 else "c*b"
    return run(tmp_path, (known * np.float32(by)).astype("f4"), known, at_hand=at_hand, how=how)


@both
@pytest.mark.parametrize("shape", [(24,), (24, 16)])
def test_scale_of_attention_may_be_folded_into_a_query(tmp_path, shape, at_hand):
    known = noise(*shape)

    result = scaled(tmp_path, known, at_hand=at_hand)

    is_whole = at_hand or known.size <= SAMPLES
    assert result.balanced
    assert lines_of(result) == {"query.weight": "folded-pointwise"}
    assert result.parameters[0].decided_by == f"{'content' if is_whole else 'sampled'}:0.353553391*w"


@both
@pytest.mark.parametrize("factor", [2.0, 0.5, -1.0, 1.01, 1.0001, 0.99, 1e-3])
@pytest.mark.parametrize("shape", [(24,), (24, 16)])
def test_layer_times_any_other_number_is_another_layer(tmp_path, factor, shape, at_hand):
    known = noise(*shape)

    result = scaled(tmp_path, known, factor, at_hand=at_hand)

    assert not result.balanced
    assert lines_of(result) == {"query.weight": "missing"}


@both
def test_note_of_the_exporter_makes_no_factor_its_own(tmp_path, at_hand):
    known = noise(24, 16)
    proto = text_model(
        "g (float[1] x) => (float[1] y) { y = MatMul(x, val_1) }", {"val_1": (2 * known).T.copy()}
    )
    proto = dynamo_like(proto, folded={"val_1": ["fc.weight"]})
    arrays = {"fc.weight": known} if at_hand else None

    result = reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", known)), "full", arrays)

    assert lines_of(result) == {"fc.weight": "differing"}


# conditions of a match


@both
def test_tensor_under_the_parameters_own_name_is_no_function_of_it(tmp_path, at_hand):
    result = run(tmp_path, computed("1+w"), at_hand=at_hand, name="norm.weight")

    assert lines_of(result) == {"norm.weight": "differing"}


@both
def test_note_of_what_was_folded_names_the_parameter(tmp_path, at_hand):
    proto = reading("1+w", "val_1", {"val_1": computed("1+w")})
    proto = dynamo_like(proto, folded={"val_1": ["norm.weight"]})
    arrays = {"norm.weight": VECTOR} if at_hand else None

    result = reconcile(tmp_path, proto, manifest_of(parameter("norm.weight", VECTOR)), "full", arrays)

    assert result.parameters[0].decided_by == "content:1+w"


@both
def test_of_equal_parameters_the_readers_own_is_meant(tmp_path, at_hand):
    arrays = {"a.weight": VECTOR, "b.weight": VECTOR}
    proto = text_model(
        """g (float[1] x) => (float[1] y) {
            n = LpNormalization(x) ["/b/Mul"] h = Mul(n, v1) m = LpNormalization(h) ["/a/Mul"] y = Mul(m, v2)
        }""",
        {"v1": computed("1+w"), "v2": computed("1+w")},
    )
    manifest = manifest_of(*(parameter(name, array) for name, array in arrays.items()))

    result = reconcile(tmp_path, proto, manifest, "full", arrays if at_hand else None)

    assert [p.entries for p in result.parameters] == [(((), "v2"),), (((), "v1"),)]


def test_names_alone_explain_no_function(tmp_path):
    assert run(tmp_path, computed("1+w"), content="none").parameters[0].line != "folded-pointwise"


def test_undo_knows_no_other_rule():
    assert undo("batchnorm bn") is None
    assert undo("x*w") is None


@both
def test_one_plus_a_matrix_is_another_matrix(tmp_path, at_hand):
    known = noise(24, 16)

    assert not run(tmp_path, computed("1+w", known), known, at_hand=at_hand).balanced


@both
@pytest.mark.parametrize("number", [0.1, 0.25])
def test_constant_vector_has_no_factor(tmp_path, number, at_hand):
    known = np.full(24, number, "f4")

    result = scaled(tmp_path, known, at_hand=at_hand)

    assert lines_of(result) == {"query.weight": "missing"}


@both
def test_values_one_apart_have_a_factor_as_all_others_do(tmp_path, at_hand):
    known = np.linspace(0, 1, 24, dtype="f4")

    result = scaled(tmp_path, known, at_hand=at_hand)

    assert lines_of(result) == {"query.weight": "folded-pointwise"}


@both
def test_small_result_is_looked_at_as_closely_as_a_large_one(tmp_path, at_hand):
    known = VECTOR.copy()
    known[0] = -18.0
    stored = computed("exp(w)", known)
    changed = stored.copy()
    changed[0] *= np.float32(1.5)

    assert run(tmp_path, stored, known, at_hand=at_hand, how="exp(w)").balanced
    assert not run(tmp_path, changed, known, at_hand=at_hand, how="exp(w)").balanced


@both
def test_layer_too_small_to_have_heads_has_no_factor_at_all(tmp_path, at_hand):
    known = noise(2, 24)
    stored = known.copy()
    stored[1, 3] = np.nextafter(stored[1, 3], np.float32(np.inf))

    assert not run(tmp_path, stored, known, at_hand=at_hand, how="c*w").balanced


@both
def test_small_query_may_have_the_scale_in_it_too(tmp_path, at_hand):
    known = noise(24) * np.float32(0.01)

    result = scaled(tmp_path, known, at_hand=at_hand)

    assert lines_of(result) == {"query.weight": "folded-pointwise"}


# permitted places of elementwise functions: only those of PyTorch's own program

GAIN = noise(16) / 4
QUERY = noise(16, 24, seed=1)


def run_allowed(
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
    result = run_allowed(tmp_path, NORMS[name], {"v": 1 + GAIN}, {"norm.weight": GAIN}, at_hand=at_hand)

    assert lines_of(result) == {"norm.weight": "folded-pointwise"}
    assert result.balanced


@both
@pytest.mark.parametrize(
    "nodes",
    ["y = Mul(x, v)", "y = Add(x, v)", "h = Relu(x) y = Mul(h, v)", "h = MatMul(x, keys) y = Add(h, v)"],
)
def test_what_no_norm_precedes_may_not(tmp_path: Path, nodes: str, at_hand: bool) -> None:
    result = run_allowed(tmp_path, nodes, {"v": 1 + GAIN}, {"norm.weight": GAIN}, at_hand=at_hand)

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
    result = run_allowed(tmp_path, WRITTEN_OUT, {"v": 1 + GAIN}, {"norm.weight": GAIN}, {"norm": class_})

    assert lines_of(result) == {"norm.weight": line}


def test_norm_with_a_bias_adds_no_one(tmp_path: Path) -> None:
    known = {"norm.weight": GAIN, "norm.bias": noise(16, seed=5)}
    stored = {"v": 1 + GAIN, "norm.bias": known["norm.bias"]}

    result = run_allowed(tmp_path, 'y = LayerNormalization(x, v, "norm.bias")', stored, known)

    assert lines_of(result)["norm.weight"] == "missing"


TWO = "h = SimplifiedLayerNormalization(x, v) y = SimplifiedLayerNormalization(h, {})"


def test_norms_of_all_layers_have_one_added_or_none(tmp_path: Path) -> None:
    known = {"layers.0.norm.weight": GAIN, "layers.1.norm.weight": noise(16, seed=6) / 4}
    other = known["layers.1.norm.weight"]

    all_of_them = run_allowed(tmp_path, TWO.format("u"), {"v": 1 + GAIN, "u": 1 + other}, known)
    one_of_them = run_allowed(
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

    result = run_allowed(tmp_path, "y = Mul(x, v)", {"v": stored}, {name: GAIN}, at_hand=at_hand)

    assert lines_of(result) == {name: line}


# the exponent of a step that is undone: (x - m) exp(-w)

STEP = {"flow.m": noise(16, seed=2), "flow.logs": GAIN}
UNDONE = 'd = Sub(x, "flow.m") e = Exp(v) y = Mul(d, e)'


@both
@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        (UNDONE, "folded-pointwise"),
        (UNDONE.replace("Mul(d", "Div(d"), "missing"),
        (UNDONE.replace("y = Mul(d, e)", "k = Mul(x, e) y = Add(k, d)"), "missing"),
        (UNDONE.replace("Mul(d", "Add(d"), "missing"),
        (UNDONE.replace("Exp", "Neg"), "missing"),
        (UNDONE.replace("Exp", "Sigmoid"), "missing"),
        (UNDONE.replace("y = Mul(d, e)", "k = Mul(e, e) y = Mul(d, k)"), "missing"),
        (UNDONE.replace("Mul(d, e)", "Mul(d, v)"), "missing"),
        (UNDONE + " z = Add(x, v)", "missing"),
        (UNDONE + " z = Add(x, e)", "missing"),
    ],
)
def test_negative_is_the_exponent_of_a_factor_and_nothing_else(
    tmp_path: Path, nodes: str, line: str, at_hand: bool
) -> None:
    stored = {"flow.m": STEP["flow.m"], "v": -GAIN}

    result = run_allowed(tmp_path, nodes, stored, STEP, at_hand=at_hand)

    assert lines_of(result) == {"flow.m": "identical", "flow.logs": line}


@both
def test_negative_under_the_parameters_own_name_is_another_value(tmp_path: Path, at_hand: bool) -> None:
    stored = {"flow.m": STEP["flow.m"], "flow.logs": -GAIN}

    result = run_allowed(tmp_path, UNDONE.replace("(v)", '("flow.logs")'), stored, STEP, at_hand=at_hand)

    assert lines_of(result)["flow.logs"] == "differing"


FACTOR = 'd = Sub(x, "flow.m") y = Mul(d, v)'


@both
@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        (FACTOR, "folded-pointwise"),
        (FACTOR.replace("Mul(d", "Div(d"), "missing"),
        (FACTOR.replace("Sub(", "Add("), "missing"),
        (FACTOR.replace('Sub(x, "flow.m")', 'Sub("flow.m", x)'), "missing"),
        (FACTOR.replace("flow.m", "fc.bias"), "missing"),
        (FACTOR.replace("Mul(d, v)", "Mul(x, v)"), "missing"),
        (FACTOR + " z = Mul(x, v)", "missing"),
    ],
)
def test_factor_of_a_step_that_is_undone_may_be_stored(
    tmp_path: Path, nodes: str, line: str, at_hand: bool
) -> None:
    bias = {"fc.bias": noise(16, seed=3)}
    stored = {"flow.m": STEP["flow.m"], "v": np.exp(-GAIN).astype("f4")} | bias

    result = run_allowed(tmp_path, nodes, stored, STEP | bias, at_hand=at_hand)

    assert lines_of(result)["flow.logs"] == line


@both
def test_one_changed_factor_of_a_step_is_another_step(tmp_path: Path, at_hand: bool) -> None:
    factors = np.exp(-GAIN).astype("f4")
    factors[5] *= np.float32(1.0001)
    stored = {"flow.m": STEP["flow.m"], "v": factors}

    result = run_allowed(tmp_path, FACTOR, stored, STEP, at_hand=at_hand)

    assert lines_of(result)["flow.logs"] == "missing"


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

    result = run_allowed(tmp_path, nodes, stored, {"q.weight": QUERY}, at_hand=at_hand)

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


# permitted places of elementwise formulas: a match of values alone is no proof

GAIN_LEASH = (noise(24) / 4).astype("f4")
NORM = 'g (float[2,24] x) => (float[2,24] y) { y = LayerNormalization(x, "val_1") }'


def line(folder: Path, name: str, stored: Array, text: str = NORM, class_: str | None = None) -> str:
    modules = None if class_ is None else {name.rpartition(".")[0]: class_}
    manifest = manifest_of(parameter(name, GAIN_LEASH), modules=modules)
    return lines_of(reconcile(folder, text_model(text, {"val_1": stored}), manifest))[name]


@pytest.mark.parametrize("class_", ["GemmaRMSNorm", "Gemma3RMSNorm", "NemotronLayerNorm1P"])
def test_a_norm_whose_class_scales_by_one_more_may_be_stored_so(class_: str, tmp_path: Path) -> None:
    assert line(tmp_path, "norm.weight", 1 + GAIN_LEASH, class_=class_) == "folded-pointwise"


@pytest.mark.parametrize("class_", ["LayerNorm", "LlamaRMSNorm", "T5LayerNorm"])
def test_one_more_than_a_plain_norms_gain_is_another_gain(class_: str, tmp_path: Path) -> None:
    assert line(tmp_path, "norm.weight", 1 + GAIN_LEASH, class_=class_) != "folded-pointwise"


@pytest.mark.parametrize("name", ["A_log", "layers.0.mixer.A_log"])
def test_a_state_matrix_may_be_stored_as_it_decays(name: str, tmp_path: Path) -> None:
    text = "g (float[2,24] x) => (float[2,24] y) { y = Mul(x, val_1) }"

    assert line(tmp_path, name, -np.exp(GAIN_LEASH), text) == "folded-pointwise"


@pytest.mark.parametrize("stored", [np.exp(GAIN_LEASH), -np.exp(GAIN_LEASH)], ids=["exp", "-exp"])
def test_an_exponential_of_any_other_parameter_is_no_fold_of_it(stored: Array, tmp_path: Path) -> None:
    text = "g (float[2,24] x) => (float[2,24] y) { y = Mul(x, val_1) }"

    assert line(tmp_path, "gate.weight", stored, text) != "folded-pointwise"


def test_swins_scale_of_each_head_may_be_stored_as_its_exponential(tmp_path: Path) -> None:
    text = "g (float[2,24] x) => (float[2,24] y) { y = Mul(x, val_1) }"

    assert line(tmp_path, "attn.logit_scale", np.exp(GAIN_LEASH), text) == "folded-pointwise"


def test_a_formula_stands_in_all_layers_or_in_none(tmp_path: Path) -> None:
    other = (noise(24, seed=1) / 4).astype("f4")
    text = """g (float[2,24] x) => (float[2,24] y) {
        h = LayerNormalization(x, "layers.0.norm.weight") y = LayerNormalization(h, "val_1")
    }"""
    known = {"layers.0.norm.weight": other, "layers.1.norm.weight": GAIN_LEASH}
    modules = dict.fromkeys(("layers.0.norm", "layers.1.norm"), "GemmaRMSNorm")
    manifest = manifest_of(*(parameter(name, array) for name, array in known.items()), modules=modules)
    stored = {"layers.0.norm.weight": other, "val_1": 1 + GAIN_LEASH}

    result = reconcile(tmp_path, text_model(text, stored), manifest)

    assert lines_of(result)["layers.1.norm.weight"] != "folded-pointwise"
    assert not result.balanced
