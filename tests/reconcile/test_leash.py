"""Where a formula of each element may stand: a match of values alone is no proof of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import Array, lines_of, manifest_of, noise, parameter, reconcile, text_model

GAIN = (noise(24) / 4).astype("f4")
NORM = 'g (float[2,24] x) => (float[2,24] y) { y = LayerNormalization(x, "val_1") }'


def line(folder: Path, name: str, stored: Array, text: str = NORM, class_: str | None = None) -> str:
    modules = None if class_ is None else {name.rpartition(".")[0]: class_}
    manifest = manifest_of(parameter(name, GAIN), modules=modules)
    return lines_of(reconcile(folder, text_model(text, {"val_1": stored}), manifest))[name]


@pytest.mark.parametrize("class_", ["GemmaRMSNorm", "Gemma3RMSNorm", "NemotronLayerNorm1P"])
def test_a_norm_whose_class_scales_by_one_more_may_be_stored_so(class_: str, tmp_path: Path) -> None:
    assert line(tmp_path, "norm.weight", 1 + GAIN, class_=class_) == "folded-pointwise"


@pytest.mark.parametrize("class_", ["LayerNorm", "LlamaRMSNorm", "T5LayerNorm"])
def test_one_more_than_a_plain_norms_gain_is_another_gain(class_: str, tmp_path: Path) -> None:
    assert line(tmp_path, "norm.weight", 1 + GAIN, class_=class_) != "folded-pointwise"


@pytest.mark.parametrize("name", ["A_log", "layers.0.mixer.A_log"])
def test_a_state_matrix_may_be_stored_as_it_decays(name: str, tmp_path: Path) -> None:
    text = "g (float[2,24] x) => (float[2,24] y) { y = Mul(x, val_1) }"

    assert line(tmp_path, name, -np.exp(GAIN), text) == "folded-pointwise"


@pytest.mark.parametrize("stored", [np.exp(GAIN), -np.exp(GAIN)], ids=["exp", "-exp"])
def test_an_exponential_of_any_other_parameter_is_none_of_it(stored: Array, tmp_path: Path) -> None:
    text = "g (float[2,24] x) => (float[2,24] y) { y = Mul(x, val_1) }"

    assert line(tmp_path, "gate.weight", stored, text) != "folded-pointwise"


def test_swins_scale_of_each_head_may_be_stored_as_its_exponential(tmp_path: Path) -> None:
    text = "g (float[2,24] x) => (float[2,24] y) { y = Mul(x, val_1) }"

    assert line(tmp_path, "attn.logit_scale", np.exp(GAIN), text) == "folded-pointwise"


def test_a_formula_stands_in_all_layers_or_in_none(tmp_path: Path) -> None:
    other = (noise(24, seed=1) / 4).astype("f4")
    text = """g (float[2,24] x) => (float[2,24] y) {
        h = LayerNormalization(x, "layers.0.norm.weight") y = LayerNormalization(h, "val_1")
    }"""
    known = {"layers.0.norm.weight": other, "layers.1.norm.weight": GAIN}
    modules = dict.fromkeys(("layers.0.norm", "layers.1.norm"), "GemmaRMSNorm")
    manifest = manifest_of(*(parameter(name, array) for name, array in known.items()), modules=modules)
    stored = {"layers.0.norm.weight": other, "val_1": 1 + GAIN}

    result = reconcile(tmp_path, text_model(text, stored), manifest)

    assert lines_of(result)["layers.1.norm.weight"] != "folded-pointwise"
    assert not result.balanced
