"""Closed forms beside exports of the families that no other test exports: every term of every file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from exports import CONFIGS
from formulas.answers import alone, answer, differing
from formulas.sides import tiny_config
from samples import sampled

from analyzer.formulas.family import family_names, load_family

WRITERS = ("AutoModelForSeq2SeqLM", "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModel")
"""Automatic classes by how much they export, the most first; a family's first one is exported."""

OTHERS = sorted({*family_names()} - {*CONFIGS})

CHANGES: dict[str, dict[str, Any]] = {
    # These sizes also run: heads of even width, and rows of multiples of 16 bytes for products by experts.
    "mistral": {"num_key_value_heads": 4, "head_dim": 8},
    "mixtral": {"hidden_size": 48, "intermediate_size": 52, "head_dim": 8},
    "qwen3_moe": {
        "hidden_size": 40,
        "intermediate_size": 52,
        "moe_intermediate_size": 20,
        "mlp_only_layers": [1],
    },
}
"""Changes to the smallest config of a family."""


def writer_of(key: str) -> str:
    """Return the class of a family that is exported."""
    classes = load_family(key).classes.values()
    return next(each.name for auto in WRITERS for each in classes if auto in each.auto)


@pytest.mark.export
@pytest.mark.parametrize("key", sampled(OTHERS, ["electra"]))
def test_every_term_of_every_other_family_is_in_its_file(key: str, tmp_path: Path) -> None:
    from exporter import SourceOptions, export_model, resolve_source

    path = tmp_path / "config.json"
    path.write_text(json.dumps({**tiny_config(key, writer_of(key)), **CHANGES.get(key, {})}))
    resolved = resolve_source(str(path), SourceOptions(random_weights=True))
    model = export_model(resolved, tmp_path / "out").model
    with_names, code = answer(path, "--against", model)
    assert (code, differing(with_names), with_names["reasons"]) == (0, {}, [])
    (tmp_path / "alone").mkdir()
    from_file, code = answer(path, "--against", alone(model, tmp_path / "alone"))
    assert (code, differing(from_file), from_file["reasons"]) == (0, {}, [])


def test_what_is_changed_is_exported() -> None:
    assert {*CHANGES} <= {*OTHERS}
