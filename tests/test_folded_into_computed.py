"""A batch normalization that an exporter folded into a weight that forward computes: both are held by the product."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import run_here
from onnx import numpy_helper

pytest.importorskip("torch")
pytestmark = [pytest.mark.export, pytest.mark.usefixtures("forked_children")]

FACTORY = """
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune


class Standardized(nn.Module):
    def forward(self, w):
        return (w - w.mean((1, 2, 3), keepdim=True)) / w.std((1, 2, 3), keepdim=True)


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.conv, self.norm = kind, nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.up, self.up_norm = parametrizations.weight_norm(nn.ConvTranspose2d(8, 4, 2)), nn.BatchNorm2d(4)
        self.rows, self.rows_norm = parametrizations.weight_norm(nn.Linear(5, 6)), nn.BatchNorm1d(8)
        self.last, self.last_norm = parametrizations.weight_norm(nn.Linear(4, 6)), nn.BatchNorm1d(6)
        if kind == "direction":
            parametrizations.weight_norm(self.conv)
        if kind == "pruned":
            prune.random_unstructured(self.conv, "weight", 0.4)
        if kind == "standardized":
            nn.utils.parametrize.register_parametrization(self.conv, "weight", Standardized())
        if kind == "fixed":
            del self.conv.weight
            self.conv.register_buffer("weight", torch.ones(8, 3, 3, 3))
        if kind == "low_rank":
            self.down, self.update = nn.Parameter(torch.randn(2, 27)), nn.Parameter(torch.randn(8, 2))
        for name, tensor in (*self.named_parameters(), *self.named_buffers()):
            if tensor.is_floating_point() and not name.endswith("mask"):
                tensor.data.copy_(torch.rand_like(tensor) + 0.5 if name.endswith("var") else torch.randn_like(tensor))

    def forward(self, x):
        if self.kind == "low_rank":
            weight = self.conv.weight + (self.update @ self.down).view(8, 3, 3, 3) * 0.5
            x = nn.functional.conv2d(x, weight, self.conv.bias)
        else:
            x = self.conv(x)
        x = self.norm(x).relu()
        x = x + self.rows_norm(self.rows(x[:, :, 0, :5])).mean((1, 2), keepdim=True)[..., None]  # of rows, not features
        x = self.up_norm(self.up(x)).relu().mean((2, 3))
        return self.last_norm(self.last(x))


def make(kind):
    return Net(kind).eval(), (torch.randn(2, 3, 9, 9),)


def direction():
    return make("direction")


def pruned():
    return make("pruned")


def standardized():
    return make("standardized")


def fixed():
    return make("fixed")


def low_rank():
    return make("low_rank")
"""


@pytest.mark.parametrize("kind", ["direction", "pruned", "standardized", "low_rank", "fixed"])
def test_weights_that_were_computed_and_then_folded_balance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "folding_net.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    exported = run_here("export", f"folding_net:{kind}", "-o", "out", "--format", "json")
    assert exported.returncode == 0, exported.stdout + exported.stderr
    document = json.loads(exported.stdout)["reconcile"]
    assert (document["balanced"], document["wiring"]["program"]) == (True, "same")
    settled = {line["name"]: line for line in document["parameters"]}
    assert {settled[name]["line"] for name in ("norm.weight", "norm.bias", "conv.bias")} == {"evaluated"}

    model = onnx.load("out/model.onnx")
    held = {*settled["norm.weight"]["entries"]}
    assert held
    for tensor in model.graph.initializer:
        if tensor.name in held:
            values, kept = (
                numpy_helper.to_array(tensor),
                onnx.TensorProto.FromString(tensor.SerializeToString()),
            )
            changed = values.copy()
            changed.flat[3] += 0.01
            others = [changed, np.ascontiguousarray(values[::-1])]
            for number, other in enumerate(others):
                tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
                onnx.save(model, f"{number}.onnx")
                tampered = run_here("reconcile", f"{number}.onnx", "--against", "out/manifest.json")
                assert tampered.returncode == 1, (tensor.name, number, tampered.stdout)
            tensor.CopyFrom(kept)
