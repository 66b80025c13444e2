"""Closed form of a config's work, compared term by term with files of that config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from commands import run_here
from models import noise, save, text_model
from samples import sampled

from analyzer.account.audit import audit_model
from analyzer.cost.against import compare_work
from analyzer.cost.algebra import text_of
from analyzer.errors import CostError
from analyzer.formulas.family import load_families
from analyzer.schemas import load_schema

CONFIG = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 6,
    "vocab_size": 9,
}


def layer(folder: Path, scores: str = "MatMul(q, t)") -> Path:
    """Save one layer of BERT without biases and norms, whose nodes have the names of their modules."""
    text = f"""
        g (float[rows, places, 4] x) => (float[rows, places, 4] y, float[rows, 4] z) {{
            q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv) t = Transpose<perm = [0, 2, 1]>(k)
            s = {scores} p = Softmax(s) a = MatMul(p, v) o = MatMul(a, wo) i = MatMul(o, wi) y = MatMul(i, wd)
            f = Gather<axis = 1>(y, first) z = MatMul(f, wp)
        }}
    """
    weights = {name: noise(4, 4) for name in ("wq", "wk", "wv", "wo", "wp")} | {
        "wi": noise(4, 6),
        "wd": noise(6, 4),
    }
    proto = text_model(text, weights | {"first": np.array(0)})
    scopes = {
        "q": "attention/self/query", "k": "attention/self/key", "v": "attention/self/value", "s": "attention/self",
        "a": "attention/self", "o": "attention/output/dense", "i": "intermediate/dense", "y": "output/dense",
    }  # fmt: skip
    for node in proto.graph.node:
        name = node.output[0]
        scope = (
            f"/encoder/layer.0/{scopes[name]}"
            if name in scopes
            else "/pooler/dense"
            if name == "z"
            else "/other"
        )
        node.name = f"{scope}/{node.op_type}"
    return save(folder, proto)


def test_each_term_is_the_files(tmp_path: Path) -> None:
    comparison = compare_work(audit_model(layer(tmp_path)), CONFIG, "the config")

    assert comparison.agrees
    assert comparison.other == 0
    assert {term.name: text_of(term.found) for term in comparison.terms} == {
        "projections of attention": "64*places*rows",
        "scores and sums of attention": "8*places**2*rows",
        "feed-forward": "48*places*rows",
        "pooler": "16*rows",
    }
    assert all(term.predicted == term.found for term in comparison.terms)


def test_another_config_differs_in_the_terms_that_its_fields_are_in(tmp_path: Path) -> None:
    comparison = compare_work(audit_model(layer(tmp_path)), {**CONFIG, "intermediate_size": 7}, "the config")

    assert not comparison.agrees
    assert {term.name: text_of(term.difference) for term in comparison.terms if term.difference != 0} == {
        "feed-forward": "-8*places*rows"
    }


def test_the_command_fails_where_the_config_says_something_else(tmp_path: Path) -> None:
    model, config = layer(tmp_path), tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG), encoding="utf-8")

    same = run_here("cost", model, "--against", config, "--shape", "rows=2,places=3", "--format", "json")
    config.write_text(json.dumps({**CONFIG, "hidden_size": 8}), encoding="utf-8")
    other = run_here("cost", model, "--against", config)

    document = json.loads(same.stdout)
    jsonschema.validate(document, load_schema("cost"))
    assert (same.returncode, document["against"]["agrees"]) == (0, True)
    assert document["against"]["said"]["value"] == document["totals"]["macs"]["value"] == 848
    assert other.returncode == 1
    assert "DIFFERS from the closed form of BertModel" in " ".join(other.stdout.split())


def test_a_family_or_a_head_without_a_closed_form_has_no_answer(tmp_path: Path) -> None:
    ledger = audit_model(layer(tmp_path))

    with pytest.raises(CostError, match="its family has no closed form"):
        compare_work(ledger, {"model_type": "whisper", "architectures": ["WhisperModel"]}, "the config")
    with pytest.raises(CostError, match="classifier has no closed form"):
        compare_work(
            ledger,
            {**CONFIG, "model_type": "roberta", "architectures": ["RobertaForTokenClassification"]},
            "c",
        )


HOW: list[dict[str, Any]] = [{}, {"static": True}, {"via": "torchscript"}]


@pytest.mark.export
@pytest.mark.parametrize(
    ("name", "how"),
    sampled(
        [(name, how) for name in ("bert", "gpt2", "llama", "vit") for how in HOW],
        [
            *((name, {}) for name in ("bert", "gpt2", "llama", "vit")),
            *((name, {"static": True}) for name in ("bert", "vit")),
            *((name, {"via": "torchscript"}) for name in ("bert", "gpt2")),
        ],
    ),
)
def test_exports_do_what_their_configs_stand_for(exported: Any, name: str, how: dict[str, Any]) -> None:
    files = exported(name, **how).files
    config = json.loads((Path(files.models[0]).parent / "config.json").read_text(encoding="utf-8"))
    comparison = compare_work(audit_model(files.models[0]), config, "config.json")

    assert comparison.agrees
    assert [term.name for term in comparison.terms if term.difference != 0] == []


def test_terms_of_work_are_told_apart_by_their_names() -> None:
    for family in load_families().values():
        names = [work.name for work in family.work]
        assert len(set(names)) == len(names)
