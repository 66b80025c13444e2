"""Inputs that once made `formula` print something false."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzer.formulas.counting import count_config
from analyzer.formulas.reasons import find_reasons, find_size
from analyzer.formulas.record import Certainty, Counts, Formula, MatchedBy, Side
from tests.commands import run_here

BERT = {
    "model_type": "bert",
    "vocab_size": 101,
    "hidden_size": 36,
    "intermediate_size": 53,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 29,
}
GPT2 = {"model_type": "gpt2", "vocab_size": 101, "n_positions": 29, "n_layer": 3, "n_head": 6}
T5 = {"model_type": "t5", "vocab_size": 101, "d_model": 20, "num_heads": 4, "d_kv": 7, "d_ff": 33}


def _formula(config: dict[str, Any]) -> Formula:
    formula = count_config(config)
    assert formula is not None
    return formula


def _side(formula: Formula, changed: Counts, **other: Any) -> Side:
    counts = {part.key: part.value for part in formula.parts} | dict(changed)
    return replace(Side("model.onnx", "model", counts, {}, {}), **other)


def _saved(folder: Path, config: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("matched_by", "certainty"),
    [
        (MatchedBy.NAMES, Certainty.UNDECIDED),
        (MatchedBy.SHAPES, Certainty.UNDECIDED),
        (MatchedBy.CONTENTS, Certainty.UNEXPLAINED),
    ],
)
def test_a_foreign_tensor_does_not_stand_for_a_missing_part_of_the_same_size(
    matched_by: MatchedBy, certainty: Certainty
) -> None:
    formula = _formula(BERT)
    side = _side(formula, {"pooler/pooler": 0}, unmatched={"foreign": 36 * 37}, matched_by=matched_by)
    assert {reason.certainty for reason in find_reasons(formula, side)} == {certainty}


def test_a_checkpoint_is_not_filled_up_by_what_pytorch_calls_otherwise() -> None:
    formula = _formula(BERT)
    side = _side(formula, {"pooler/pooler": 0}, unmatched={"foreign": 36 * 37}, kind="census")
    assert {reason.certainty for reason in find_reasons(formula, side)} == {Certainty.UNEXPLAINED}


def test_a_number_of_layers_is_not_read_off_one_part_of_them() -> None:
    formula = _formula(BERT)
    norms = next(part for part in formula.parts if part.key == "blocks/norms")
    assert find_size(formula, norms.key, norms.each * 8) is None
    attention = next(part for part in formula.parts if part.key == "blocks/self-attention")
    # Wider, not longer: the norms alone look like more layers.
    changed = {norms.key: norms.each * 8, attention.key: attention.value * 5 // 2 + 1}
    reasons = {reason.part: reason for reason in find_reasons(formula, _side(formula, changed))}
    assert reasons[norms.key].sentence == "the elements of 8 of them, where the formula has 3"


@pytest.mark.export
@pytest.mark.parametrize(("layers", "of_decoder"), [(0, 2), (2, 0), (0, 0)])
@pytest.mark.parametrize("name", ["T5Model", "T5ForConditionalGeneration", "T5EncoderModel"])
def test_a_t5_stack_without_layers_has_no_table_of_positions(name: str, layers: int, of_decoder: int) -> None:
    from exporter import census_config

    config = {**T5, "architectures": [name], "num_layers": layers, "num_decoder_layers": of_decoder}
    assert _formula(config).total == census_config(config).numel


@pytest.mark.export
@pytest.mark.parametrize("field", ["n_embd", "hidden_size"])
@pytest.mark.parametrize("changed", ["n_embd", "hidden_size"])
def test_a_field_that_is_set_is_counted_whatever_the_config_calls_it(
    tmp_path: Path, field: str, changed: str
) -> None:
    path = _saved(tmp_path, {**GPT2, field: 36})
    result = run_here("formula", path, "--set", f"{changed}=48", "--census", "--format", "json")
    assert (result.returncode, json.loads(result.stdout)["difference"]) == (0, 0)


@pytest.mark.export
def test_a_list_that_is_set_is_one_to_transformers_too(tmp_path: Path) -> None:
    sizes = {"vocab_size": 101, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4}
    experts = {"num_key_value_heads": 2, "moe_intermediate_size": 4, "num_experts": 3}
    path = _saved(tmp_path, {"model_type": "qwen3_moe", **sizes, **experts})
    result = run_here("formula", path, "--set", "mlp_only_layers=[0]", "--census", "--format", "json")
    assert (result.returncode, json.loads(result.stdout)["difference"]) == (0, 0)


@pytest.mark.export
def test_a_config_without_a_type_is_built_by_its_architecture(tmp_path: Path) -> None:
    config = {**BERT, "architectures": ["BertForMaskedLM"]}
    del config["model_type"]
    result = run_here("formula", _saved(tmp_path, config), "--census", "--format", "json")
    assert (result.returncode, json.loads(result.stdout)["difference"]) == (0, 0)


@pytest.mark.export
def test_a_manifest_is_pytorchs_side_of_a_formula_and_a_report_is_a_model(tmp_path: Path) -> None:
    from analyzer.manifest import save_manifest
    from exporter import census_config

    path, manifest = _saved(tmp_path, BERT), tmp_path / "other.json"
    save_manifest(census_config({**BERT, "architectures": ["BertForMaskedLM"]}), manifest)
    result = run_here("formula", path, "--against", manifest, "--format", "json")
    assert (result.returncode, json.loads(result.stdout)["difference"]) == (1, 173)
    manifest.write_text(run_here("formula", path, "--format", "json").stdout, encoding="utf-8")
    refused = run_here("formula", path, "--against", manifest)
    assert (refused.returncode, "not a report of `onnxledger inspect" in refused.stderr) == (2, True)


@pytest.mark.parametrize("text", ["{", "[]", "3", '"x"'])
def test_a_broken_manifest_is_no_traceback(tmp_path: Path, text: str) -> None:
    path, manifest = _saved(tmp_path, BERT), tmp_path / "manifest.json"
    manifest.write_text(text, encoding="utf-8")
    result = run_here("formula", path, "--against", manifest)
    assert result.returncode == 2
    assert result.stderr.startswith(f"onnxledger: {manifest}: not ")


def test_the_manifest_beside_a_model_is_never_written_over(tmp_path: Path) -> None:
    path, manifest = _saved(tmp_path, BERT), tmp_path / "manifest.json"
    manifest.write_text("{}", encoding="utf-8")
    result = run_here("formula", path, "--against", tmp_path / "model.onnx", "-o", manifest)
    assert (result.returncode, manifest.read_text(encoding="utf-8")) == (2, "{}")
    assert "is an input of this command" in result.stderr
