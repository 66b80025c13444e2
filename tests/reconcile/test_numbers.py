"""Lines of parameters of one element: stored without a name, or as the factor of a product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import bridge_of, lines_of, manifest_of, outs, parameters_of, reconcile, text_model

from analyzer.reconciliation import Reconciliation

ODD, OTHER = np.float32(0.1), np.float32(0.3)


def scaled_by(*numbers: np.float32):
    """Return a model that multiplies by each of the numbers, whose names match no parameter."""
    nodes = " ".join(f"y{i} = Mul(x, v{i})" for i in range(len(numbers)))
    stored = {f"v{i}": np.asarray(number) for i, number in enumerate(numbers)}
    return text_model(f"g (float[2] x) => ({outs(len(numbers))}) {{ {nodes} }}", stored)


@pytest.mark.parametrize("content", ["sampled", "full"])
def test_nameless_number_is_the_one_parameter_of_that_value(tmp_path, content):
    known = {"layer_scale": ODD.reshape(()), "logit_scale": OTHER.reshape(1)}

    result = reconcile(tmp_path, scaled_by(OTHER, ODD), manifest_of(*parameters_of(known)), content)

    assert lines_of(result) == {"layer_scale": "renamed", "logit_scale": "reshaped"}
    assert {line.parameter: line.key[1] for line in result.entries} == {
        "logit_scale": "v0",
        "layer_scale": "v1",
    }
    assert all(line.max_abs_error == 0 and len(line.pieces) == 1 for line in result.parameters)


@pytest.mark.parametrize(
    ("stored", "known", "content"),
    [
        ([ODD, ODD], [ODD], "full"),
        ([ODD], [ODD, ODD], "full"),
        ([np.float32(0.5)], [np.float32(0.5)], "full"),
        ([OTHER], [ODD], "full"),
        ([ODD], [ODD], "none"),
    ],
    ids=["twice in the file", "twice in PyTorch", "a round one", "another", "not compared"],
)
def test_ambiguous_number_belongs_to_no_parameter(tmp_path, stored, known, content):
    scales = {f"scale_{i}": np.asarray(number) for i, number in enumerate(known)}

    result = reconcile(tmp_path, scaled_by(*stored), manifest_of(*parameters_of(scales)), content)

    assert set(lines_of(result).values()) == {"missing"}


# exponentials, as of CLIP's temperature


def reconcile_products(
    tmp_path: Path, *alphas: np.float32, known: np.float32 = OTHER, names: tuple[str, ...] = ("logit_scale",)
) -> Reconciliation:
    """Reconcile a file whose fused products have factors with parameters of one element."""
    nodes = " ".join(
        f"y{i} = com.microsoft.FusedMatMul<alpha = {float(alpha)!r}>(x, x)" for i, alpha in enumerate(alphas)
    )
    proto = text_model(f"g (float[2,2] x) => ({outs(len(alphas))}) {{ {nodes} }}", {})
    scales = {name: np.asarray(known) for name in names}
    return reconcile(tmp_path, proto, manifest_of(*parameters_of(scales)), "full")


EXPONENTIAL = np.exp(OTHER)


def test_the_factor_of_a_product_may_be_the_exponential_of_a_parameter(tmp_path):
    result = reconcile_products(tmp_path, EXPONENTIAL, np.float32(0.25))

    assert result.balanced
    assert bridge_of(result) == {"evaluated": (1, 1, -1, -1)}


@pytest.mark.parametrize(
    "given",
    [
        {"alphas": [EXPONENTIAL * np.float32(1.00001)]},
        {"alphas": [OTHER]},
        {"alphas": [EXPONENTIAL, EXPONENTIAL]},
        {"alphas": [EXPONENTIAL], "names": ("a_scale", "b_scale")},
        {"alphas": [np.exp(np.float32(0.5))], "known": np.float32(0.5)},
    ],
    ids=["another", "not the exponential", "twice in the file", "twice in PyTorch", "a round one"],
)
def test_another_or_an_ambiguous_factor_is_no_parameter(tmp_path, given):
    result = reconcile_products(tmp_path, *given.pop("alphas"), **given)

    assert set(lines_of(result).values()) == {"missing"}


@pytest.mark.parametrize(
    ("stored", "line"),
    [
        ([EXPONENTIAL], "folded-pointwise"),
        ([EXPONENTIAL * np.float32(1.00001)], "missing"),
        ([EXPONENTIAL, EXPONENTIAL], "missing"),
        ([EXPONENTIAL.astype("f2")], "missing"),
    ],
    ids=["one", "another", "twice in the file", "of few digits"],
)
def test_a_nameless_number_may_be_the_exponential_of_a_parameter(tmp_path, stored, line):
    known = {"logit_scale": np.asarray(OTHER)}

    result = reconcile(tmp_path, scaled_by(*stored), manifest_of(*parameters_of(known)), "full")

    assert lines_of(result) == {"logit_scale": line}
