"""Modules that PyTorch's exporter silently gets wrong: weights balance, and `verify` reports the place and cause."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from commands import run_here

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.time, pytest.mark.export, pytest.mark.usefixtures("forked_children")]

MESSAGES = '''
import torch

class Mean(torch.nn.Module):
    """Each node gets the mean of what its neighbours send."""
    def forward(self, x, edges):
        sent = x[edges[0]]
        rows = edges[1].unsqueeze(-1).expand_as(sent)
        return torch.zeros_like(x).scatter_reduce(0, rows, sent, "mean", include_self=False)

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.near, self.mean = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16), Mean()
    def forward(self, x, edges):
        return torch.relu(self.own(x) + self.near(self.mean(x, edges)))

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = Layer(), Layer(), torch.nn.Linear(16, 3)
    def forward(self, x, edges):
        return self.head(self.second(self.first(x, edges), edges))

def factory():
    torch.manual_seed(0)
    return Network().eval(), (torch.randn(10, 16), torch.randint(0, 10, (2, 30)))
'''
POOLED = """
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.pool = torch.nn.Conv2d(3, 8, 3), torch.nn.AvgPool2d(3, divisor_override=4)
        self.head = torch.nn.Linear(8 * 4 * 4, 5)
    def forward(self, x):
        return self.head(self.pool(self.stem(x).relu()).flatten(1))

def factory():
    torch.manual_seed(0)
    return Network().eval(), (torch.randn(2, 3, 14, 14),)
"""

NORMED = """
import torch

class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(16) + 0.5)
    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-8)

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = torch.nn.Linear(16, 16), Norm(), torch.nn.Linear(16, 3)
    def forward(self, x):
        return self.head(self.norm(self.body(x) * 1e-4))

def factory():
    torch.manual_seed(0)
    return Network().eval(), (torch.randn(4, 16),)
"""


@pytest.mark.parametrize(
    ("name", "source", "code", "programs", "module", "reason"),
    [
        (
            "messages",
            MESSAGES,
            0,
            ["not-known", "not-known"],
            "first.mean",
            "reduction none: the last value stays, and reduction mean in PyTorch",
        ),
        (
            "pooled",
            POOLED,
            0,
            ["differs", "differs"],
            "pool",
            "no divisor_override, and divisor_override 4 in PyTorch",
        ),
        (
            "normed",
            NORMED,
            0,
            ["differs", "differs"],
            "norm",
            "nothing: it is left out, and Add in PyTorch",
        ),
    ],
)
def test_what_the_exporter_writes_wrong_is_reported_with_its_module_and_cause(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    source: str,
    code: int,
    programs: list[str],
    module: str,
    reason: str,
) -> None:
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    exported = run_here("export", f"{name}:factory", "-o", tmp_path / "out", "--format", "json")
    reconciled = run_here("reconcile", tmp_path / "out" / "model.onnx", "--format", "json")
    net, inputs = importlib.import_module(name).factory()
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    feeds = {each.name: value.numpy() for each, value in zip(session.get_inputs(), inputs, strict=True)}
    if np.allclose(session.run(None, feeds)[0], net(*inputs).detach().numpy(), atol=1e-3):
        pytest.skip("this version of the exporter writes it right")
    assert (exported.returncode, reconciled.returncode) == (code, code)
    documents = [json.loads(exported.stdout)["reconcile"], json.loads(reconciled.stdout)]
    assert [each["wiring"]["program"] for each in documents] == programs

    result = run_here("verify", tmp_path / "out" / "model.onnx", "--format", "json")

    first = json.loads(result.stdout)["first"]
    assert result.returncode == 1
    assert (first["module"], reason in first["reason"]) == (module, True), first["reason"]
