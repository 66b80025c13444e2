"""Operators outside the algebra: the rest of a file is still compared with the program, and nothing is proven."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx
import pytest
from commands import run_here

pytestmark = [
    pytest.mark.export,
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(find_spec, ("torch", "onnxscript"))), reason="exports"),
]

NETS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, stop, does):
        super().__init__()
        self.a, self.b, self.c, self.out = (nn.Linear(12, 12) for _ in range(4))
        self.gain, self.norm, self.stop, self.does = nn.Parameter(torch.ones(12)), nn.LayerNorm(12), stop, does
    def forward(self, x):
        if self.stop == "before":
            x = torch.fmod(self.c(x), 0.7)
        p, q = self.a(x), self.b(x)
        if self.does == "sub":
            y = p - q
        elif self.does == "div":
            y = p / (q * q + 1)
        elif self.does == "gain":
            y = self.gain - p * q
        else:
            y = self.norm(p * q)
        if self.stop == "after":
            y = torch.fmod(y, 0.7)
        return self.out(y)

class Unfolded(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.mixed, self.last = nn.Linear(6, 6), nn.Linear(3, 1), nn.Linear(12, 4)
    def forward(self, x):
        x = self.first(x)
        near = nn.functional.unfold(x.transpose(1, 2)[..., None], (3, 1), padding=(1, 0))
        near = self.mixed(near.reshape(x.shape[0], 6, 3, -1).transpose(2, 3)).squeeze(-1).transpose(1, 2)
        return self.last(torch.cat([near, x], 2))

class Attended(nn.Module):
    def __init__(self):
        super().__init__()
        self.both, self.last = nn.Linear(12, 24), nn.Linear(12, 4)
    def forward(self, x):
        q, k = self.both(x).split(12, -1)
        return self.last(torch.softmax(q @ k.transpose(1, 2), -1) @ x)

class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(12, 12), nn.Linear(12, 12), nn.LayerNorm(12)
    def forward(self, x):
        t, v = self.a(x), self.norm(torch.fmod(self.b(x), 0.7))
        t = t / torch.linalg.vector_norm(t, float("inf"), -1, keepdim=True)
        v = v / torch.linalg.vector_norm(v, float("inf"), -1, keepdim=True)
        return t, v, v @ t.t()

def normed():
    torch.manual_seed(0)
    net = Normed()
    for each in net.parameters():
        nn.init.normal_(each, 0.1, 0.4)
    return net.eval(), (torch.randn(3, 12),)

def attended():
    torch.manual_seed(0)
    net = Attended()
    for each in net.parameters():
        nn.init.normal_(each, 0.1, 0.4)
    return net.eval(), (torch.randn(2, 5, 12),)

def unfolded():
    torch.manual_seed(0)
    net = Unfolded()
    for each in net.parameters():
        nn.init.normal_(each, 0.1, 0.4)
    return net.eval(), (torch.randn(2, 5, 6),)

def made(stop, does):
    torch.manual_seed(0)
    net = Net(stop, does)
    for each in net.parameters():
        nn.init.normal_(each, 0.1, 0.4)
    return net.eval(), (torch.randn(3, 12),)

def before_sub(): return made("before", "sub")
def before_div(): return made("before", "div")
def after_sub(): return made("after", "sub")
def after_div(): return made("after", "div")
def after_gain(): return made("after", "gain")
def after_norm(): return made("after", "norm")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stops")
    (folder / "stops.py").write_text(NETS)
    return folder


def made(folder: Path, name: str, change: Callable[[onnx.ModelProto], None] | None = None) -> Path:
    """Export a model with a tool as its producer, and perhaps change it."""
    if not (folder / name).exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            run_here("export", f"stops:{name}", "-o", folder / name, "--via", "torchscript", "--quiet")
    model = onnx.load(folder / name / "model.onnx")
    model.producer_name = "a tool"
    if change is not None:
        change(model)
    path = folder / name / ("changed.onnx" if change is not None else "rewritten.onnx")
    onnx.save(model, path)
    return path


def run_json(command: str, path: Path, *more: str | Path) -> tuple[int, dict[str, Any]]:
    result = run_here(command, path, "--against", path.parent / "manifest.json", "--format", "json", *more)
    return result.returncode, json.loads(result.stdout)


def exchange(model: onnx.ModelProto) -> None:
    node = [node for node in model.graph.node if node.op_type in ("Sub", "Div")][-1]
    node.input[0], node.input[1] = node.input[1], node.input[0]


def move_epsilon(model: onnx.ModelProto) -> None:
    node = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
    next(each for each in node.attribute if each.name == "epsilon").f = 1e-3


@pytest.mark.parametrize("name", ["before_sub", "before_div", "after_sub", "after_div", "after_gain"])
def test_operands_that_are_exchanged_do_not_balance(folder: Path, name: str) -> None:
    honest, changed = made(folder, name), made(folder, name, exchange)

    assert run_json("reconcile", honest)[0] == 0
    code, document = run_json("reconcile", changed)
    assert (code, document["balanced"], document["wiring"]["program"]) == (1, False, "differs")
    assert run_json("verify", changed, "--static")[0] == 1


def exchange_parts(model: onnx.ModelProto) -> None:
    node = next(node for node in model.graph.node if node.op_type == "Split")
    node.output[0], node.output[1] = node.output[1], node.output[0]


def test_scores_of_queries_and_keys_in_each_others_place_do_not_balance(folder: Path) -> None:
    """The products are the same numbers transposed; the difference is in the softmax, whose axis equals PyTorch's."""
    honest, changed = made(folder, "attended"), made(folder, "attended", exchange_parts)

    assert run_json("reconcile", honest)[0] == 0
    code, document = run_json("reconcile", changed)
    assert (code, document["wiring"]["program"], document["wiring"]["misplaced"] > 0) == (1, "differs", True)


def test_another_number_before_it_differs(folder: Path) -> None:
    code, document = run_json("verify", made(folder, "after_norm", move_epsilon), "--static")

    assert (code, document["outputs"][0]["verdict"]) == (1, "differs")
    assert "0.001" in document["first"]["reason"]


def test_what_an_exporter_took_apart_is_no_other_program(folder: Path) -> None:
    honest = made(folder, "unfolded")

    assert run_json("verify", honest, "--static")[0] == 2
    code, document = run_json("reconcile", honest)
    assert (code, document["balanced"], document["wiring"]["program"]) == (0, True, "not-known")


@pytest.mark.parametrize("name", ["before_sub", "after_sub", "after_norm"])
def test_nothing_is_proven_past_it(folder: Path, name: str) -> None:
    code, document = run_json("verify", made(folder, name), "--static")

    assert (code, document["outputs"][0]["verdict"], document["same"]) == (2, "not-compared", False)
    assert "2 in another form" in document["uncovered"][0]


def test_a_form_of_an_unsupported_call_is_not_taken_for_another_call(folder: Path) -> None:
    path = made(folder, "normed")
    assert {"ReduceMax", "ReduceL2", "Abs"} & {node.op_type for node in onnx.load(path).graph.node}

    done = run_here("verify", path, "--static", "--format", "json")

    document = json.loads(done.stdout)
    assert done.returncode == 2
    assert {output["verdict"] for output in document["outputs"]} == {"not-compared"}
