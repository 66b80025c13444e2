"""Values that a module computes and no output uses, such as an unused pooler's, are not searched for."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from commands import run_here

pytest.importorskip("torch")
pytestmark = [pytest.mark.time, pytest.mark.export, pytest.mark.usefixtures("forked_children")]

FACTORY = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.pooler, self.second, self.last = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        torch.sigmoid(self.pooler(hidden[:, 0]))
        return self.last(torch.relu(self.second(hidden)))


def build():
    return Net().eval(), (torch.randn(2, 3, 16),)
"""


def test_a_fault_is_reported_at_its_place_and_not_at_what_nobody_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pooling_net.py").write_text(FACTORY)
    done = run_here("export", "pooling_net:build", "-o", "out", "--quiet")
    assert done.returncode == 0, done.stderr
    model = onnx.load(Path("out", "model.onnx"))
    assert not [node for node in model.graph.node if node.op_type == "Sigmoid"]

    honest = run_here("verify", "out/model.onnx", "--against", "pooling_net:build")
    (relu,) = (node for node in model.graph.node if node.op_type == "Relu")
    relu.op_type = "Elu"
    onnx.save(model, "changed.onnx")
    changed = run_here("verify", "changed.onnx", "--against", "pooling_net:build")

    assert honest.returncode == 0, honest.stdout
    assert changed.returncode == 1
    assert "pooler" not in changed.stdout.partition("not tried")[0]
    assert "DIFFERS from node_relu on, in [root]: Net: Elu, and Relu in PyTorch" in changed.stdout
