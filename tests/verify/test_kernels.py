"""Errors of kernels beyond rounding are no difference; a fault as small as the value itself is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import run_here
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.time

FACTORY = """
import torch
from torch import nn


class Rare(nn.Module):
    # scores of what is hardly ever there: sigmoids of about -9

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(16, 12), nn.Linear(12, 8)
        with torch.no_grad():
            self.body.bias.sub_(8)
            self.head.bias.sub_(9)

    def forward(self, x):
        return torch.sigmoid(self.head(nn.functional.silu(self.body(x))))


def build():
    return Rare().eval(), (torch.randn(3, 16, generator=torch.Generator().manual_seed(1)),)
"""


def verify(*arguments: object) -> tuple[int, dict[str, Any]]:
    done = run_here("verify", *arguments, "--format", "json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.export
def test_scores_near_nothing_are_the_same_and_a_tenth_more_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rare_net.py").write_text(FACTORY)
    assert run_here("export", "rare_net:build", "-o", "out", "--quiet").returncode == 0
    model = onnx.load("out/model.onnx")
    at, last = next((i, n) for i, n in enumerate(model.graph.node) if model.graph.output[0].name in n.output)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.1), "more"))
    add = helper.make_node("Add", [last.input[0], "more"], ["raised"])
    last.input[0] = "raised"
    model.graph.node.insert(at, add)
    onnx.save(model, "raised.onnx")

    honest = verify("out/model.onnx", "--against", "rare_net:build", "--seed", 0)
    raised = verify("raised.onnx", "--against", "rare_net:build", "--seed", 0)

    assert (honest[0], honest[1]["same"]) == (0, True)
    assert honest[1]["outputs"][0]["signal_to_error_db"] < 100  # rounding alone does not explain it
    assert (raised[0], raised[1]["same"]) == (1, False)


def detector(folder: Path) -> Path:
    """Save a detector that scales an image by two and scores it: the scales of Resize are stored numbers."""
    rng = np.random.default_rng(0)
    tensors = {
        "w": rng.normal(size=(4, 3, 3, 3)),
        "b": np.full(4, -9.0),
        "scales": np.array([1, 1, 2, 2]),
        "v": rng.normal(size=(2, 4, 1, 1)) * 4,
        "c": np.full(2, -7.0),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["seen"], pads=[1, 1, 1, 1], name="sees"),
        helper.make_node("Sigmoid", ["seen"], ["on"], name="scores"),
        helper.make_node("Resize", ["on", "", "scales"], ["large"], mode="nearest", name="grows"),
        helper.make_node("Conv", ["large", "v", "c"], ["logits"], name="classifies"),
        helper.make_node("Sigmoid", ["logits"], ["found"], name="tells"),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 11, 11])],
        [helper.make_tensor_value_info("found", TensorProto.FLOAT, [1, 2, 22, 22])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    path = folder / "detector.onnx"
    onnx.save(model, path)
    return path


def test_two_runs_of_a_detector_are_the_same(tmp_path: Path) -> None:
    code, document = verify(detector(tmp_path), "--optimization", "all")

    assert (code, document["same"], document["first"]) == (0, True, None)


def test_sizes_are_not_moved_to_measure_rounding(tmp_path: Path) -> None:
    path = detector(tmp_path)
    model = onnx.load(path)
    model.graph.name = "copy"
    onnx.save(model, tmp_path / "copy.onnx")

    code, document = verify(tmp_path / "copy.onnx", "--against", path)

    assert (code, document["same"]) == (0, True)
    assert document["outputs"][0]["noise_db"] < 130  # measured; one rounding per node would leave less noise
