"""Heads that a file does not have, and parameters that only training reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from models import (
    as_it_stands,
    bridge_of,
    lines_of,
    manifest_of,
    outs,
    parameter,
    parameters_of,
    ramp,
    reconcile,
    text_model,
)

from analyzer.reconciliation import Reconciliation

BODY = {"bert.encoder.weight": ramp(3, 3), "bert.encoder.bias": ramp(3, start=20)}
HEAD = {"classifier.weight": ramp(2, 3, start=40), "classifier.bias": ramp(2, start=60)}


def file_of(stored: dict[str, np.ndarray], nodes: str | None = None) -> onnx.ModelProto:
    inputs = [f'y{i} = MatMul(x, "{name}")' for i, name in enumerate(stored)]
    given = outs(1 if nodes else len(stored))
    return text_model(f"g (float[1] x) => ({given}) {{ {nodes or ' '.join(inputs)} }}", stored)


def run(
    tmp_path,
    stored: dict[str, np.ndarray],
    known: dict[str, np.ndarray],
    nodes: str | None = None,
    **how: Any,
) -> Reconciliation:
    content = how.pop("content", "full")
    return reconcile(tmp_path, file_of(stored, nodes), manifest_of(*parameters_of(known), **how), content)


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
def test_head_of_which_nothing_is_there_is_outside(tmp_path, content):
    result = run(tmp_path, BODY, BODY | HEAD, content=content)

    assert bridge_of(result) == {as_it_stands(content): (2, 12, 0, 0), "outside": (2, 8, -8, -8)}
    assert result.balanced
    assert {line.decided_by for line in result.parameters if "classifier" in line.name} == {
        "name:head classifier"
    }


@pytest.mark.parametrize(
    "head",
    [
        *("classifier", "pre_classifier", "sop_classifier", "qa_outputs", "score", "pooler", "predictions"),
        *("cls", "cls.predictions", "cls.seq_relationship", "lm_head", "decoder_pred"),
        *("discriminator_predictions", "generator_predictions", "generator_lm_head"),
        *("vocab_layer_norm", "vocab_projector", "vocab_transform"),
        *("project_hid", "project_q", "quantizer"),
    ],
)
def test_heads_are_known_at_the_top_and_in_the_base_model(tmp_path, head):
    for prefix in ("", "bert."):
        name = f"{prefix}{head}.dense.weight"
        (line,) = run(tmp_path, BODY, BODY | {name: ramp(2, 3, start=40)}).parameters[2:]

        assert (line.name, line.line.value, line.decided_by) == (name, "outside", f"name:head {prefix}{head}")


@pytest.mark.parametrize("name", ["classifier.weight", "classifier.bias"])
def test_half_a_head_that_is_absent_is_missing(tmp_path, name):
    stored = {**BODY, **{key: array for key, array in HEAD.items() if key != name}}

    result = run(tmp_path, stored, BODY | HEAD)

    assert lines_of(result)[name] == "missing"
    assert not result.balanced


@pytest.mark.parametrize("name", ["bert.encoder.weight", "bert.encoder.bias"])
def test_layer_that_was_cut_out_is_missing(tmp_path, name):
    stored = {key: array for key, array in BODY.items() if key != name}

    result = run(tmp_path, stored, BODY | HEAD)

    assert lines_of(result) == {
        **dict.fromkeys(BODY, "identical"),
        name: "missing",
        **dict.fromkeys(HEAD, "outside"),
    }
    assert not result.balanced


@pytest.mark.parametrize(
    "name", ["bert.encoder.pooler_layer.weight", "bert.encoder.layer.classifier.weight", "classifiers.weight"]
)
def test_names_that_only_resemble_a_head_are_missing(tmp_path, name):
    assert lines_of(run(tmp_path, BODY, BODY | {name: ramp(2, 3, start=40)}))[name] == "missing"


@pytest.mark.parametrize("trace", ["exported-program", "function-calls"])
def test_trace_says_what_is_read_and_no_name_does(tmp_path, trace):
    result = run(tmp_path, BODY, BODY | HEAD, trace=trace)

    assert {lines_of(result)[name] for name in HEAD} == {"missing"}
    assert not result.balanced


def test_a_class_that_was_traced_may_have_a_head_that_the_file_lacks(tmp_path):
    result = run(tmp_path, BODY, BODY | HEAD, trace="class-program")

    assert {lines_of(result)[name] for name in HEAD} == {"outside"}
    assert result.balanced


@pytest.mark.parametrize("scope", ["/classifier/Gemm", "/classifier/dense/MatMul"])
def test_node_of_the_head_says_that_it_is_in_the_file(tmp_path, scope):
    nodes = f'h = MatMul(x, "bert.encoder.weight") i = Add(h, "bert.encoder.bias") ["{scope}"] y0 = Relu(i)'

    result = run(tmp_path, BODY, BODY | HEAD, nodes)

    assert {lines_of(result)[name] for name in HEAD} == {"missing"}


def test_node_of_another_module_says_nothing_of_the_head(tmp_path):
    nodes = 'h = MatMul(x, "bert.encoder.weight") i = Add(h, "bert.encoder.bias") ["/classifiers/Relu"] y0 = Relu(i)'

    assert run(tmp_path, BODY, BODY | HEAD, nodes).balanced


def test_head_that_was_replaced_is_unexpected(tmp_path):
    stored = BODY | {"onnx::MatMul_9": ramp(3, 2, start=90)}

    result = run(tmp_path, stored, BODY | HEAD)

    assert not result.balanced
    assert {finding.id for finding in result.findings} == {"unexpected"}


def test_head_that_is_tied_to_the_body_is_not_one(tmp_path):
    table = parameter("bert.embeddings.weight", ramp(2, 3), tied=("cls.predictions.decoder.weight",))

    result = reconcile(tmp_path, file_of(BODY), manifest_of(*parameters_of(BODY), table))

    assert lines_of(result)["bert.embeddings.weight"] == "missing"


@pytest.mark.parametrize("name", ["vit.embeddings.mask_token", "wav2vec2.masked_spec_embed"])
def test_what_only_training_reads_is_unused(tmp_path, name):
    result = run(tmp_path, BODY, BODY | {name: ramp(3, start=70)})

    assert bridge_of(result)["unused"] == (1, 3, -3, -3)
    assert result.parameters[2].decided_by == "name:training-only"
    assert result.balanced


def test_mask_token_that_is_stored_is_identical(tmp_path):
    known = BODY | {"vit.embeddings.mask_token": ramp(3, start=70)}

    assert set(lines_of(run(tmp_path, known, known)).values()) == {"identical"}


def test_model_that_is_all_head_is_outside_but_nothing_balances_against_nothing(tmp_path):
    result = run(tmp_path, {}, HEAD, "y0 = Relu(x)")

    assert (result.onnx_parameters, bridge_of(result)) == (0, {"outside": (2, 8, -8, -8)})
