"""Weights that onnxruntime folds into products and convolutions, once for each call, are PyTorch's program still."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from commands import run_here
from onnx import numpy_helper

pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime", reason="needs onnxledger[time]")
pytestmark = [pytest.mark.time, pytest.mark.export, pytest.mark.usefixtures("forked_children")]

FACTORY = """
import torch
from torch import nn
from torch.nn import functional as F


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tower = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        for tensor in (*self.tower[1].parameters(), *self.tower[1].buffers()):
            if tensor.is_floating_point():
                tensor.data = torch.rand_like(tensor) + 0.5
        self.prototypes = nn.Parameter(torch.randn(9, 64))
        self.log_scale = nn.Parameter(torch.tensor(1.7))

    def forward(self, a, b):
        x, y = self.tower(a), self.tower(b)
        return (x * y).sum(-1), x @ F.normalize(self.prototypes, dim=-1).t() * self.log_scale.exp()


def build():
    return Siamese().eval(), (torch.randn(2, 3, 24, 24), torch.randn(2, 3, 24, 24))
"""


@pytest.fixture
def fused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an export that onnxruntime has optimized, beside its manifest."""
    monkeypatch.chdir(tmp_path)
    Path("siamese_net.py").write_text(FACTORY)
    done = run_here("export", "siamese_net:build", "--static", "-o", "out", "--quiet")
    assert done.returncode == 0, done.stderr
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = "out/fused.onnx"
    options.log_severity_level = 3
    ort.InferenceSession("out/model.onnx", options, providers=["CPUExecutionProvider"])
    return tmp_path / "out" / "fused.onnx"


def reconcile(path: Path) -> tuple[int, dict[str, Any]]:
    done = run_here("reconcile", path, "--against", path.with_name("manifest.json"), "--format", "json")
    return done.returncode, json.loads(done.stdout)


def test_a_scale_in_an_attribute_and_a_norm_folded_twice_are_the_same_program(fused: Path) -> None:
    model = onnx.load(fused)
    product = next(node for node in model.graph.node if node.op_type == "FusedMatMul")
    assert any(each.name == "alpha" and each.f != 1 for each in product.attribute)

    code, document = reconcile(fused)

    assert (code, document["balanced"], document["wiring"]["program"]) == (0, True, "same")


def test_another_scale_is_another_program(fused: Path) -> None:
    model = onnx.load(fused)
    product = next(node for node in model.graph.node if node.op_type == "FusedMatMul")
    next(each for each in product.attribute if each.name == "alpha").f *= 1.5
    onnx.save(model, fused)

    code, document = reconcile(fused)

    assert (code, document["balanced"]) == (1, False)


def test_a_changed_copy_of_a_folded_bias_does_not_balance(fused: Path) -> None:
    model = onnx.load(fused)
    biases = [tensor for tensor in model.graph.initializer if tensor.name.startswith("ConvBnFusion_BN_B_")]
    assert len(biases) == 2
    array = numpy_helper.to_array(biases[1]) + 0.25
    biases[1].CopyFrom(numpy_helper.from_array(array, biases[1].name))
    onnx.save(model, fused)

    code, document = reconcile(fused)

    assert (code, document["balanced"]) == (1, False)
    assert document["wiring"]["checked"] >= document["wiring"]["misplaced"]
