"""Modules that change their own tensors, have empty tensors, or are in half precision: honest exports balance."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from commands import run_here

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.export, pytest.mark.slow]

ODD = """
import torch
from torch import nn
from torch.nn.utils import prune

def made(net, *inputs):
    torch.manual_seed(0)
    for each in net.parameters():
        nn.init.normal_(each, 0, 0.3)
    return net.eval(), inputs

def pruned():
    net, inputs = made(nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3)), torch.randn(2, 10))
    prune.l1_unstructured(net[0], "weight", 0.4)
    prune.random_unstructured(net[2], "bias", 1)
    return net, inputs

class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps, self.last = nn.RNN(6, 9, bias=False, nonlinearity="relu"), nn.Linear(9, 2)
    def forward(self, x):
        return self.last(self.steps(x)[0])
def unrolled():
    return made(Steps(), torch.randn(5, 2, 6))

class Empty(nn.Module):
    def __init__(self):
        super().__init__()
        self.last, self.more = nn.Linear(7, 3), nn.Parameter(torch.zeros(0, 7))
    def forward(self, x):
        return self.last(torch.cat([x, self.more]))
def empty():
    return made(Empty(), torch.randn(2, 7))

class Merged(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(2, 8)
    def forward(self, x):
        return self.base(x)
def merged():
    return made(Merged(), torch.randn(3, 8))

class Spline(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("grid", torch.linspace(-1, 1, 5).repeat(6, 1))
        self.knots, self.scale = nn.Parameter(torch.ones(6, 6, 5)), nn.Parameter(torch.ones(6, 6, 1))
    def forward(self, x):
        bumps = torch.exp(-(x[..., None] - self.grid) ** 2)
        return nn.functional.linear(bumps.flatten(-2), (self.knots * self.scale).flatten(1))
def splines():
    return made(nn.Sequential(Spline(), Spline(), Spline()), torch.randn(3, 6))

class Halved(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layer = nn.Embedding(33, 16), nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
    def forward(self, ids):
        return self.layer(self.words(ids))
def halved():
    net, inputs = made(Halved(), torch.randint(0, 33, (2, 7)))
    return net.half(), inputs
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd.py").write_text(ODD)
    return folder


def run(folder: Path, *words: str | Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return run_here(*words, "--quiet").returncode


@pytest.mark.parametrize("name", ["pruned", "unrolled", "empty"])
def test_an_honest_export_balances(folder: Path, name: str) -> None:
    target = folder / name

    assert run(folder, "export", f"odd:{name}", "-o", target) == 0
    assert run(folder, "reconcile", target / "model.onnx") == 0


def test_buffers_of_equal_numbers_that_an_exporter_merged_are_no_other_program(folder: Path) -> None:
    target = folder / "merged_tables"

    assert run(folder, "export", "odd:splines", "-o", target) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        against = run_here("reconcile", target / "model.onnx", "--against", "odd:splines")

    assert against.returncode == 0
    assert "computes-otherwise" not in against.stdout


def test_inputs_of_other_names_are_forwards_in_order(folder: Path) -> None:
    assert run(folder, "export", "odd:merged", "-o", folder / "merged", "--via", "torchscript") == 0
    model = onnx.load(folder / "merged" / "model.onnx")
    own = model.graph.input[0].name
    model.graph.input[0].name = "in0"
    for node in model.graph.node:
        node.input[:] = ["in0" if name == own else name for name in node.input]
    onnx.save(model, folder / "merged.onnx")

    assert own != "in0"
    assert run(folder, "reconcile", folder / "merged.onnx", "--against", "odd:merged") == 0


@pytest.mark.time
@pytest.mark.usefixtures("forked_children")
def test_the_scale_of_an_attention_is_rounded_as_the_file_has_it(folder: Path) -> None:
    target = folder / "halved"

    assert run(folder, "export", "odd:halved", "-o", target) == 0
    assert run(folder, "verify", target / "model.onnx") == 0
