"""Closed forms beside real exports: every term of every file, and the term in which a file differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import run_here
from exports import CONFIGS, Exports
from formulas.answers import alone, answer, differing

pytest.importorskip("torch")

from exporter import fitting

pytestmark = pytest.mark.export

FAMILIES = ["bert", "gpt2", "llama", "t5", "whisper", "vit"]
"""Families that other tests export too."""


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(name: str, **changes: Any) -> Path:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**CONFIGS[name], **changes}))
        return path

    return write


@pytest.mark.parametrize(
    ("name", "via"),
    [
        *((name, "transformers") for name in FAMILIES),
        *((name, "torchscript") for name in ("bert", "gpt2", "t5")),
    ],
)
def test_every_term_is_in_the_file_that_the_config_became(
    name: str, via: str, exported: Exports, config: Any, tmp_path: Path
) -> None:
    model = exported(name, via=None if via == "transformers" else via).files.model
    with_names, code = answer(config(name), "--against", model)
    assert (code, with_names["difference"], differing(with_names), with_names["reasons"]) == (0, 0, {}, [])
    from_file, code = answer(config(name), "--against", alone(model, tmp_path))
    assert (code, from_file["difference"], differing(from_file)) == (0, 0, {})
    assert from_file["actual"] == from_file["total"] == sum(term["value"] for term in from_file["terms"])


@pytest.mark.parametrize("name", FAMILIES)
def test_formula_census_and_file_agree(name: str, exported: Exports, config: Any) -> None:
    report, code = answer(config(name), "--census", "--against", exported(name).files.model)
    assert code == 0
    for term in report["terms"]:
        assert term["value"] == term["census"] == term["actual"]


def test_an_untied_head_and_a_padded_vocabulary_are_told_apart(
    exported: Exports, config: Any, tmp_path: Path
) -> None:
    model = alone(exported("bert-untied", via="torchscript").files.model, tmp_path)
    report, code = answer(config("bert"), "--against", model)
    assert code == 1
    reasons = {reason["part"]: reason for reason in report["reasons"]}
    assert set(reasons) == set(differing(report))
    assert "padded from 99 to 104, a multiple of 8" in reasons["embeddings/word embeddings"]["sentence"]
    assert "padded from 99 to 104, a multiple of 8" in reasons["masked LM head/head bias"]["sentence"]
    assert "the head is untied" in reasons["masked LM head/output matrix"]["sentence"]
    assert reasons["masked LM head/output matrix"]["elements"] == 104 * 32
    assert report["difference"] == 5 * 32 + 5 + 104 * 32


def test_a_model_s_own_file_is_no_disagreement_where_it_leaves_out_what_nothing_reads(
    exported: Exports, config: Any, tmp_path: Path
) -> None:
    model = exported("bert-untied", via="torchscript").files.model
    for path in (model, alone(model, tmp_path)):
        report, code = answer(config("bert-untied"), "--against", path)
        (reason,) = report["reasons"]
        assert (code, reason["certainty"], reason["elements"]) == (0, "settled", -104)


def test_a_missing_pooler_is_named(exported: Exports, config: Any) -> None:
    model = exported("bert").files.model
    report, code = answer(config("bert"), "--class", "BertModel", "--against", model)
    assert code == 1
    reasons = {reason["part"]: reason for reason in report["reasons"]}
    assert reasons["pooler/pooler"]["sentence"] == "missing, as in BertForMaskedLM"
    assert reasons["pooler/pooler"]["elements"] == -(32 * 32 + 32)
    assert sum(reason["elements"] for reason in report["reasons"]) == report["difference"]


def test_what_the_exporter_merged_is_known_from_the_manifest_beside_the_file(
    exported: Exports, config: Any
) -> None:
    model = exported("bert", fresh=True).files.model
    report, code = answer(config("bert"), "--against", model)
    assert code == 0
    assert report["terms"][0]["census"] == report["terms"][0]["value"]
    assert {reason["certainty"] for reason in report["reasons"]} == {"settled"}
    assert all("[deduplicated]" in reason["sentence"] for reason in report["reasons"])
    assert sum(reason["elements"] for reason in report["reasons"]) == report["difference"] < 0


def test_an_architecture_without_a_closed_form_has_its_terms_found(exported: Exports, config: Any) -> None:
    report, code = answer(config("resnet"))
    assert (code, report["kind"]) == (0, "derived")
    assert sum(term["value"] for term in report["terms"]) == report["total"]
    model = exported("resnet").files.model
    beside, code = answer(config("resnet"), "--against", model)
    assert (code, beside["difference"] < 0) == (0, True)
    assert all("[folded-batchnorm]" in reason["sentence"] for reason in beside["reasons"])


def test_a_factory_is_counted_on_the_meta_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from exports import write_source

    monkeypatch.chdir(tmp_path)
    report, code = answer(write_source("factory", tmp_path))
    assert (code, report["kind"], report["total"]) == (0, "derived", 140 + 10 + 24 + 49)


def test_a_changed_field_is_counted_by_the_closed_form_as_by_pytorch(config: Any) -> None:
    report, code = answer(config("llama"), "--set", "num_hidden_layers=5", "--census")
    assert (code, report["difference"]) == (0, 0)
    assert report["what_if"]["set"] == [{"field": "num_hidden_layers", "before": 1, "after": 5}]


def test_a_changed_field_is_counted_anew_where_terms_are_found(config: Any) -> None:
    before, _ = answer(config("resnet"))
    report, code = answer(config("resnet"), "--set", "num_channels=1")
    assert code == 0
    assert report["total"] - before["total"] == -2 * 16 * 7 * 7


def test_a_census_of_more_than_any_model_has_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fitting, "MOST_PARAMETERS", 40)
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"architectures": ["BertModel"], "model_type": "bert", "num_hidden_layers": 20_000})
    )

    done = run_here("formula", path, "--census")

    assert done.returncode == 2
    assert "more than 40 parameter tensors" in done.stderr
