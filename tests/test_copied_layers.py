"""Layers that PyTorch makes as copies of one: an exporter merges what they have in common, and drops their zeros."""

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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 2)
        self.head = nn.Linear(16, 3)

    def forward(self, x, memory):
        return self.head(self.decoder(x, memory))


def make():
    return Net().eval(), (torch.randn(2, 4, 16), torch.randn(2, 7, 16))
"""


@pytest.mark.parametrize(("options", "program"), [((), "same"), (("--no-optimize",), "not-known")])
def test_a_decoder_of_copied_layers_balances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], program: str
) -> None:
    (tmp_path / "copied_net.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    exported = run_here("export", "copied_net:make", *options, "-o", "out", "--format", "json")
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
