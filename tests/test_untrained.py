"""Models as PyTorch makes them: an exporter merges equal tensors, and parts of copied layers, and drops zeros."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from commands import run_here
from onnx import numpy_helper

pytest.importorskip("torch")
pytestmark = [pytest.mark.export, pytest.mark.usefixtures("forked_children")]

FACTORY = """
import torch
from torch import nn


def convolutions():
    torch.manual_seed(0)
    first = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
    second = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Flatten()
    last = nn.Linear(288, 5), nn.BatchNorm1d(5)
    return nn.Sequential(*first, *second, *last).eval(), (torch.randn(2, 3, 6, 6),)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 2)
        self.head = nn.Linear(16, 3)

    def forward(self, x, memory):
        return self.head(self.decoder(x, memory))


def decoder():
    return Net().eval(), (torch.randn(2, 4, 16), torch.randn(2, 7, 16))
"""


@pytest.mark.parametrize(("options", "program"), [((), "same"), (("--no-optimize",), "not-known")])
def test_a_decoder_of_copied_layers_balances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], program: str
) -> None:
    (tmp_path / "untrained_nets.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    exported = run_here("export", "untrained_nets:decoder", *options, "-o", "out", "--format", "json")
    assert exported.returncode == 0, exported.stdout + exported.stderr
    assert json.loads(exported.stdout)["reconcile"]["wiring"]["program"] == program

    model = onnx.load("out/model.onnx")
    largest = sorted(model.graph.initializer, key=lambda each: -numpy_helper.to_array(each).size)[:4]
    for tensor in largest:
        kept = onnx.TensorProto.FromString(tensor.SerializeToString())
        values = numpy_helper.to_array(tensor).copy()
        values.flat[5] += 0.01
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        onnx.save(model, "tampered.onnx")
        tampered = run_here("reconcile", "tampered.onnx", "--against", "out/manifest.json")
        tensor.CopyFrom(kept)
        assert tampered.returncode == 1, (tensor.name, tampered.stdout)


@pytest.mark.parametrize("options", [(), ("--no-optimize",), ("--via", "torchscript")])
def test_fresh_normalizations_balance_and_are_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    (tmp_path / "untrained_nets.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)

    exported = run_here("export", "untrained_nets:convolutions", *options, "-o", "out", "--format", "json")

    assert exported.returncode == 0, exported.stdout + exported.stderr
    assert json.loads(exported.stdout)["reconcile"]["wiring"]["program"] == "same"
