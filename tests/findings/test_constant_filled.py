"""When weights of one value are worth a warning, and when they are what every fresh model has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from models import Array, audit, noise, text_model

from analyzer.ledger import Finding, Severity

TEXT = """
    g (float[1,8] x) => (float[1,8] y) {
        h = MatMul(x, w)
        k = LayerNormalization(h, scale, bias)
        y = MatMul(k, v)
    }
"""
FRESH = {"scale": np.ones(8, "f4"), "bias": np.zeros(8, "f4")}


def constant(folder: Path, weights: Mapping[str, Array]) -> Finding:
    ledger = audit(folder, text_model(TEXT, {**FRESH, **weights}))
    (found,) = (finding for finding in ledger.findings if finding.id == "constant-filled")
    return found


def test_zero_biases_and_gains_of_one_are_a_note(tmp_path: Path) -> None:
    found = constant(tmp_path, {"w": noise(8, 8), "v": noise(8, 8, seed=1)})

    assert (found.severity, found.subjects) == (Severity.NOTE, ("bias", "scale"))
    assert found.message == "16 learned elements are in tensors of one value throughout"


def test_matrices_of_one_value_that_are_most_of_a_model_are_a_warning(tmp_path: Path) -> None:
    found = constant(tmp_path, {"w": np.full((8, 8), 0.5, "f4"), "v": np.full((8, 8), 0.1, "f4")})

    assert found.severity is Severity.WARNING
    assert "most of the model: nobody trained it, or its weights were not loaded" in found.message


@pytest.mark.parametrize("seed", [0, 1])
def test_one_of_two_matrices_is_not_most_of_a_model(tmp_path: Path, seed: int) -> None:
    found = constant(tmp_path, {"w": np.zeros((8, 8), "f4"), "v": noise(8, 8, seed=seed)})

    assert found.severity is Severity.NOTE
    assert "w" in found.subjects
