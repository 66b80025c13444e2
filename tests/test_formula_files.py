"""Closed forms beside exports of the families that no other test exports: every term of every file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from exports import CONFIGS
from formulas.answers import alone, answer, differing
from formulas.sides import tiny_config

from analyzer.formulas.family import family_names

OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "albert": ("AlbertForMaskedLM", {}),
    "bart": ("BartForConditionalGeneration", {}),
    "distilbert": ("DistilBertForMaskedLM", {}),
    "electra": ("ElectraForMaskedLM", {}),
    "gemma": ("GemmaForCausalLM", {}),
    # Sizes that can be run, too: heads of even width, and rows of whole 16 bytes for a multiplication by experts.
    "mistral": ("MistralForCausalLM", {"num_key_value_heads": 4, "head_dim": 8}),
    "mixtral": ("MixtralForCausalLM", {"hidden_size": 48, "intermediate_size": 52, "head_dim": 8}),
    "opt": ("OPTForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        {"hidden_size": 40, "intermediate_size": 52, "moe_intermediate_size": 20, "mlp_only_layers": [1]},
    ),
    "roberta": ("RobertaForMaskedLM", {}),
}
"""The other families, with what has to be other than in the smallest of their configs."""


@pytest.mark.export
@pytest.mark.parametrize("key", OTHERS)
def test_every_term_of_every_other_family_is_in_its_file(key: str, tmp_path: Path) -> None:
    from exporter import SourceOptions, export_model, resolve_source

    name, changes = OTHERS[key]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**tiny_config(key, name), **changes}))
    resolved = resolve_source(str(path), SourceOptions(random_weights=True))
    model = export_model(resolved, tmp_path / "out").model
    with_names, code = answer(path, "--against", model)
    assert (code, differing(with_names), with_names["reasons"]) == (0, {}, [])
    (tmp_path / "alone").mkdir()
    from_file, code = answer(path, "--against", alone(model, tmp_path / "alone"))
    assert (code, differing(from_file), from_file["reasons"]) == (0, {}, [])


def test_no_family_goes_without_a_file() -> None:
    assert {*CONFIGS, *OTHERS} >= set(family_names())
