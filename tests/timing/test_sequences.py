"""Inputs that are sequences of tensors: fed one tensor of the stated type, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import run_here
from models import noise, save, text_model
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime")
pytestmark = [pytest.mark.time, pytest.mark.child]


def of_sequence(folder: Path, shape: list[str | int] | None, name: str = "model.onnx", seed: int = 1) -> Path:
    """Save a model that takes the first tensor of a sequence, adds another tensor to it, and multiplies."""
    proto = text_model(
        """g (float[n,8] s, float[n,8] x) => (float[n,5] y) {
            first = Constant<value_int = 0>()
            h = SequenceAt(s, first)
            k = Add(h, x)
            y = MatMul(k, w)
        }""",
        {"w": noise(8, 5, seed=seed)},
    )
    each = helper.make_tensor_type_proto(TensorProto.FLOAT, shape)
    proto.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(each))
    return save(folder, proto, name)


def test_time_feeds_a_sequence_of_one_tensor_and_says_so(tmp_path: Path) -> None:
    path = of_sequence(tmp_path, ["n", 8])

    document = json.loads(run_here("time", path, "--shape", "n=3", "--runs", "3", "--format", "json").stdout)
    text = run_here("time", path, "--runs", "3", "-o", tmp_path / "report.md")

    assert [(row["name"], row["shape"], row.get("sequence")) for row in document["inputs"]] == [
        ("s", [3, 8], True),
        ("x", [3, 8], None),
    ]
    assert text.returncode == 0
    assert "a sequence of one FLOAT" in (tmp_path / "report.md").read_text()


def test_the_tensor_of_a_sequence_may_be_given(tmp_path: Path) -> None:
    path = of_sequence(tmp_path, None)
    np.savez(tmp_path / "inputs.npz", s=np.ones((2, 8), "f4"))

    unknown = run_here("time", path)
    with_array = run_here("time", path, "--input", tmp_path / "inputs.npz", "--runs", "3")

    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "input s: the file does not say its rank; give it with --input" in unknown.stderr
    assert with_array.returncode == 0


def test_verify_compares_what_two_files_make_of_it(tmp_path: Path) -> None:
    path = of_sequence(tmp_path, ["n", 8])

    same = run_here("verify", path, "--against", of_sequence(tmp_path, ["n", 8], "same.onnx"))
    other = run_here("verify", path, "--against", of_sequence(tmp_path, ["n", 8], "other.onnx", seed=2))

    assert (same.returncode, other.returncode) == (0, 1)


def test_cost_takes_each_tensor_of_it_as_the_file_says(tmp_path: Path) -> None:
    known = json.loads(run_here("cost", of_sequence(tmp_path, ["n", 8]), "--format", "json").stdout)
    unknown = run_here("cost", of_sequence(tmp_path, None))

    assert known["totals"]["macs"]["expression"] == "40*n"
    assert "a sequence of tensors whose shapes are not known" in unknown.stdout


@pytest.mark.parametrize("command", ["time", "cost"])
def test_a_sequence_of_maps_is_refused_or_not_known(tmp_path: Path, command: str) -> None:
    path = of_sequence(tmp_path, ["n", 8])
    proto = onnx.load(path)
    value = helper.make_map_type_proto(
        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    )
    proto.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(value))
    result = run_here(command, save(tmp_path, proto))

    if command == "time":
        assert (result.returncode, result.stdout) == (2, "")
        assert "input s: is a sequence, which cannot be made" in result.stderr
    else:
        assert "a sequence of tensors whose shapes are not known" in result.stdout
