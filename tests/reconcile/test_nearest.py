"""Candidates for what nothing explains."""

from __future__ import annotations

import numpy as np
import pytest
from models import manifest_of, noise, outs, parameters_of, quantized, ramp, reconcile, text_model

from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.lines import Nearest

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

FC = ramp(4, 6)


def run(
    tmp_path,
    stored: dict[str, np.ndarray],
    known: dict[str, np.ndarray],
    content: str = "full",
    *,
    at_hand: bool = False,
) -> Reconciliation:
    nodes = " ".join(f'y{i} = MatMul(x, "{name}")' for i, name in enumerate(stored))
    proto = text_model(f"g (float[1] x) => ({outs(len(stored))}) {{ {nodes} }}", stored)
    return reconcile(tmp_path, proto, manifest_of(*parameters_of(known)), content, known if at_hand else None)


def changed(array: np.ndarray, by: float = 0.5) -> np.ndarray:
    other = array.copy()
    other[1, 2] += np.float32(by)
    return other


@both
@pytest.mark.parametrize("turned", [False, True])
def test_candidate_has_most_elements_in_common_and_says_how_many(tmp_path, turned, at_hand):
    stored = changed(FC).T.copy() if turned else changed(FC)

    result = run(
        tmp_path, {"onnx::MatMul_3": stored}, {"fc.weight": FC, "other.weight": noise(4, 6)}, at_hand=at_hand
    )

    assert result.nearest == (Nearest(((), "onnx::MatMul_3"), "fc.weight", 23, 24, 0.5),)


@both
def test_parameter_that_differs_is_beside_itself(tmp_path, at_hand):
    result = run(tmp_path, {"fc.weight": changed(FC)}, {"fc.weight": FC}, at_hand=at_hand)

    assert [(near.key, near.name) for near in result.nearest] == [(((), "fc.weight"), "fc.weight")]


@both
def test_of_equally_unlike_ones_the_one_that_is_missing_goes_first(tmp_path, at_hand):
    known = {"held.weight": FC, "gone.weight": FC + 100}

    result = run(tmp_path, {"held.weight": FC, "extra": FC + 1000}, known, at_hand=at_hand)

    assert [(near.key[1], near.name) for near in result.nearest] == [("extra", "gone.weight")]


@both
def test_copy_of_a_held_parameter_that_was_changed_is_near_that(tmp_path, at_hand):
    known = {"held.weight": FC, "gone.weight": noise(4, 6)}

    result = run(tmp_path, {"held.weight": FC, "extra": changed(FC)}, known, at_hand=at_hand)

    assert [(near.name, near.equal) for near in result.nearest] == [("held.weight", 23)]


def test_codes_are_near_what_they_are_within_a_step_of(tmp_path):
    known = noise(4, 6)
    tensors = quantized("w", known)
    tensors["w_quantized"][0, 0] += np.int8(20 if tensors["w_quantized"][0, 0] < 0 else -20)
    proto = text_model(
        "g (float[1] x) => (float[1] y) { d = DequantizeLinear(w_quantized, w_scale, w_zero_point) y = MatMul(x, d) }",
        tensors,
    )

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of({"fc.weight": known})))

    assert [(near.name, near.equal, near.compared) for near in result.nearest] == [("fc.weight", 23, 24)]


@both
def test_nothing_of_that_size_is_no_candidate(tmp_path, at_hand):
    assert run(tmp_path, {"extra": FC}, {"fc.weight": ramp(5, 5)}, at_hand=at_hand).nearest == ()


def test_nothing_is_near_where_values_are_not_compared(tmp_path):
    assert run(tmp_path, {"extra": FC}, {"fc.weight": noise(4, 6)}, "none").nearest == ()


def test_what_balances_needs_no_candidates(tmp_path):
    assert run(tmp_path, {"fc.weight": FC}, {"fc.weight": FC}).nearest == ()


@both
def test_of_as_many_elements_in_common_the_least_difference_decides(tmp_path, at_hand):
    known = {"far.weight": FC + 100, "near.weight": FC + 1, "other.weight": FC + 50}

    result = run(tmp_path, {"extra": FC + np.float32(1.5)}, known, at_hand=at_hand)

    assert [(near.name, near.equal, near.max_abs_error) for near in result.nearest] == [
        ("near.weight", 0, 0.5)
    ]


@both
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_difference_that_is_no_number_is_larger_than_any_other(tmp_path, at_hand, names):
    endless = FC + 1
    endless[0, 0] = np.inf
    known = {f"{name}.weight": array for name, array in zip(names, (endless, FC + 100), strict=True)}

    result = run(tmp_path, {"extra": FC + np.float32(1.5)}, known, at_hand=at_hand)

    assert [(near.name, near.max_abs_error) for near in result.nearest] == [(f"{names[1]}.weight", 98.5)]
