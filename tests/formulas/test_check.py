"""A file checked with a formula: lacking evidence that is no count is reported too."""

from __future__ import annotations

from pathlib import Path

import models
import numpy as np
import pytest
from formulas.answers import answer

from analyzer.formulas.check import check_formula
from analyzer.formulas.derived import derive_formula
from analyzer.formulas.record import Formula, MatchedBy
from analyzer.manifest import Manifest, save_manifest

TEXT = """
agraph (float[n, 4] x) => (float[n, 3] y) {
  h = MatMul(x, first)
  y = MatMul(h, second)
}
"""
WEIGHTS = {"first": models.noise(4, 5), "second": models.noise(5, 3, seed=1)}


@pytest.fixture
def manifest() -> Manifest:
    return models.manifest_of(*models.parameters_of(WEIGHTS))


@pytest.fixture
def formula(manifest: Manifest) -> Formula:
    return derive_formula(manifest, "net")


def save(folder: Path, manifest: Manifest, weights: dict[str, models.Floats]) -> Path:
    save_manifest(manifest, folder / "manifest.json")
    return models.save(folder, models.text_model(TEXT, weights))


def test_contents_that_agree_are_reported_as_agreeing(
    tmp_path: Path, manifest: Manifest, formula: Formula
) -> None:
    save(tmp_path, manifest, WEIGHTS)
    report, code = answer(tmp_path, "--against", tmp_path / "model.onnx")
    assert (code, report["difference"], report["model"]["matched_by"]) == (0, 0, "contents")
    assert report["total"] == formula.total == 4 * 5 + 5 * 3


def test_counts_alone_do_not_say_that_contents_agree(tmp_path: Path, manifest: Manifest) -> None:
    save(tmp_path, manifest, {**WEIGHTS, "second": np.zeros_like(WEIGHTS["second"])})
    report, code = answer(tmp_path, "--against", tmp_path / "model.onnx")
    assert (code, report["difference"], report["model"]["matched_by"]) == (0, 0, "unbalanced")


def test_a_file_whose_data_is_missing_does_not_contain_what_it_counts(
    tmp_path: Path, manifest: Manifest, formula: Formula
) -> None:
    proto = models.text_model(TEXT, {"second": WEIGHTS["second"]})
    proto.graph.initializer.append(models.external("first", [4, 5], location="gone.bin"))
    ledger = models.audit(tmp_path, proto)
    checked = check_formula(formula, None, ledger)
    assert checked.model is not None
    assert (checked.difference, checked.agrees) == (0, False)
    (error,) = checked.model.errors
    assert error.endswith("[external-missing]")
    save_manifest(manifest, tmp_path / "manifest.json")
    report, code = answer(tmp_path, "--against", tmp_path / "model.onnx")
    assert (code, report["model"]["errors"]) == (1, [error])


def test_names_alone_match_what_they_can(tmp_path: Path, formula: Formula) -> None:
    checked = check_formula(formula, None, models.audit(tmp_path, models.text_model(TEXT, WEIGHTS)))
    assert checked.model is not None
    assert (checked.model.matched_by, checked.difference, checked.reasons) == (MatchedBy.NAMES, 0, ())
