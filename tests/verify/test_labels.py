"""Outputs that are no tensors of numbers: labels in words, probabilities by label, sequences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import run_here
from models import save
from onnx import TensorProto, helper

from analyzer.verify.arrays import as_array

pytestmark = pytest.mark.time

WORDS = ("bird", "cat", "dog")


def classifier(
    words: Sequence[str] = WORDS, names: Sequence[str] = WORDS, shift: float = 0.0
) -> onnx.ModelProto:
    """Return a classifier as sklearn-onnx writes it: a label in words, and a map of probabilities by label."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((3, 4)).astype(np.float32) * 3
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["x"],
            ["label", "scores"],
            domain="ai.onnx.ml",
            classlabels_strings=list(words),
            coefficients=weights.reshape(-1).tolist(),
            intercepts=[0.0, 0.5, -0.5 + shift],
            post_transform="SOFTMAX",
        ),
        helper.make_node(
            "ZipMap", ["scores"], ["chances"], domain="ai.onnx.ml", classlabels_strings=list(names)
        ),
    ]
    chances = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    )
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [
            helper.make_tensor_value_info("label", TensorProto.STRING, ["n"]),
            helper.make_value_info("chances", chances),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def compare(tmp_path: Path, other: onnx.ModelProto) -> tuple[int, dict[str, Any]]:
    one, two = save(tmp_path, classifier(), "one.onnx"), save(tmp_path, other, "two.onnx")
    result = run_here("verify", one, "--against", two, "--format", "json", "--shape", "n=40")
    return result.returncode, json.loads(result.stdout)


@pytest.mark.parametrize(
    ("other", "label", "chances"),
    [
        ({}, "same", "same"),
        ({"words": ("bird", "cat", "fox"), "names": ("bird", "cat", "fox")}, "differs", "differs"),
        ({"words": ("cat", "bird", "dog")}, "differs", "same"),
        ({"names": ("cat", "bird", "dog")}, "same", "differs"),
        ({"names": ("bird", "cat", "eel")}, "same", "differs"),
        ({"shift": 0.01}, "same", "differs"),
    ],
    ids=["the same", "another word", "words exchanged", "names exchanged", "another name", "another score"],
)
def test_labels_and_their_probabilities_are_compared(
    tmp_path: Path, other: dict[str, Any], label: str, chances: str
) -> None:
    code, document = compare(tmp_path, classifier(**other))

    outputs = {each["name"]: each for each in document["outputs"]}
    assert (outputs["label"]["verdict"], outputs["chances"]["verdict"]) == (label, chances)
    assert code == (0 if label == chances == "same" else 1)
    assert outputs["label"]["max_abs_error"] is None


@pytest.mark.parametrize("words", [("a", "bird"), ("b", "bird")], ids=["the same", "another"])
def test_inputs_may_be_texts(tmp_path: Path, words: Sequence[str]) -> None:
    def encoder(found: Sequence[str]) -> onnx.ModelProto:
        node = helper.make_node(
            "LabelEncoder",
            ["x"],
            ["y"],
            domain="ai.onnx.ml",
            keys_strings=list(found),
            values_floats=[1.0, 2.0],
            default_float=3.0,
        )
        inputs = [helper.make_tensor_value_info("x", TensorProto.STRING, ["n", 2])]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
        graph = helper.make_graph([node], "encoder", inputs, outputs)
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    one = save(tmp_path, encoder(("a", "bird")), "one.onnx")
    two = save(tmp_path, encoder(words), "two.onnx")

    result = run_here("verify", one, "--against", two)  # made-up texts are "a"

    assert result.returncode == (0 if words == ("a", "bird") else 1), result.stderr


def test_values_for_which_no_array_stands_are_not_made_up() -> None:
    assert as_array([{"a": 1.0}, {"b": 1.0}]) is None  # rows of other keys
    assert as_array([np.zeros(2), np.zeros(3)]) is None
    assert as_array([]) is None
    assert as_array({"a": 1.0}) is None


def test_a_sequence_of_tensors_of_one_shape_is_one_array() -> None:
    found = as_array([np.zeros((2, 3)), np.ones((2, 3))])

    assert found is not None
    np.testing.assert_array_equal(found, np.stack([np.zeros((2, 3)), np.ones((2, 3))]))
