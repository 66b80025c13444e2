"""A function of each element that an exporter computed in advance."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from models import (
    bridge_of,
    dynamo_like,
    lines_of,
    manifest_of,
    noise,
    parameter,
    quantized,
    reconcile,
    text_model,
)

from analyzer.content import SAMPLES, Array, sample_positions
from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.folded_pointwise import FUNCTIONS, undo

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

VECTOR = (noise(24) / 4).astype("f4")


NAMES = {
    "1+w": "norm.weight",
    "exp(w)": "logit_scale",
    "-exp(w)": "mixer.A_log",
    "softplus(w)": "rg_lru.recurrent_param",
    "c*w": "query.weight",
}
"""What PyTorch calls a parameter of which an exporter computes each function in advance."""

_HEADS = "r = Reshape(q, heads) s = MatMul(r, keys) y = Softmax(s)"

READS = {
    "1+w": "n = SimplifiedLayerNormalization(x, {}) y = Relu(n)",
    "exp(w)": "y = Mul(x, {})",
    "-exp(w)": "y = Mul(x, {})",
    "softplus(w)": "y = Mul(x, {})",
    "c*w": f"q = Gemm<transB=1>(x, {{}}) {_HEADS}",
    "c*b": f"h = MatMul(x, keys) q = Add(h, {{}}) {_HEADS}",
}
"""Where such a parameter is read: after a norm, or where a query is compared with keys; a bias is added to it."""


def reading(how: str, name: str, stored: dict[str, Array], before: str = "") -> onnx.ModelProto:
    """A model that reads a value as `how` of READS says; a query has heads of 8."""
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


@both
@pytest.mark.parametrize("rule", sorted(FUNCTIONS))
@pytest.mark.parametrize(("content", "evidence"), [("sampled", "sampled"), ("full", "content")])
def test_function_of_a_parameter_is_that_parameter(tmp_path, rule, content, evidence, at_hand):
    result = run(tmp_path, computed(rule), content=content, at_hand=at_hand, how=rule)

    assert bridge_of(result) == {"folded-pointwise": (1, 24, 0, 0)}
    assert result.parameters[0].decided_by == f"{evidence}:{rule}"
    assert result.balanced


@pytest.mark.parametrize("rule", sorted(FUNCTIONS))
def test_what_is_undone_is_the_parameter(rule):
    assert undo(rule)(computed(rule).astype("f8")) == pytest.approx(VECTOR.astype("f8"), abs=1e-6)


@both
@pytest.mark.parametrize("rule", sorted(FUNCTIONS))
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
def test_large_tensor_is_compared_whole_where_that_is_asked_for(tmp_path, at_hand):
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
    """A query's weight or bias times a number, where PyTorch scales by it what is compared."""
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


# what is asked


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
