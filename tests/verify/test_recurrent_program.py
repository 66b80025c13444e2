"""Recurrent layers beside PyTorch's program, without running: whole and decomposed, and no change passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import run_here
from onnx import helper, numpy_helper

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.export, pytest.mark.slow]

LAYERS = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.both = nn.LSTM(6, 8, bidirectional=True, batch_first=True)
        self.deep = nn.GRU(16, 7, num_layers=2, bias=False)
        self.plain = nn.RNN(7, 5, nonlinearity="relu")
        self.cell, self.gate = nn.LSTMCell(5, 9), nn.GRUCell(9, 4)
    def forward(self, x):
        x = self.both(x)[0].transpose(0, 1)
        x, last = self.deep(x)
        x = self.plain(x)[0]
        hidden, kept = self.cell(x[0])
        hidden, kept = self.cell(x[2], (hidden, kept))
        return self.gate(hidden), last
def factory():
    torch.manual_seed(0)
    net = Net().eval()
    for each in net.parameters():
        nn.init.normal_(each, 0, 0.3)
    return net, (torch.randn(2, 5, 6),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recurrent")
    (folder / "layers.py").write_text(LAYERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for via in ("dynamo", "torchscript"):
            run_here("export", "layers:factory", "-o", folder / via, "--via", via, "--quiet")
    return folder


@pytest.mark.parametrize("via", ["dynamo", "torchscript"])
def test_an_honest_export_is_the_same(folder: Path, via: str) -> None:
    result = run_here("verify", folder / via / "model.onnx", "--static", "--format", "json")

    document = json.loads(result.stdout)
    assert (result.returncode, document["same"]) == (0, True), document["uncovered"]
    assert "0 in another form" in document["uncovered"][0]
    assert {node.op_type for node in onnx.load(folder / via / "model.onnx").graph.node} >= {"LSTM", "GRU"}


def nodes(model: onnx.ModelProto, op_type: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == op_type]


def set_attribute(node: onnx.NodeProto, name: str, value: object) -> None:
    kept = [each for each in node.attribute if each.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def change(model: onnx.ModelProto, name: str, changed: Callable[[np.ndarray], np.ndarray]) -> None:
    tensor = next(each for each in model.graph.initializer if each.name == name)
    tensor.CopyFrom(numpy_helper.from_array(changed(numpy_helper.to_array(tensor)).copy(), name))


def gates_of_the_input_exchanged(model: onnx.ModelProto) -> None:
    change(
        model,
        nodes(model, "GRU")[0].input[1],
        lambda each: each.reshape(1, 3, 7, -1)[:, [1, 0, 2]].reshape(each.shape),
    )


def directions_exchanged(model: onnx.ModelProto) -> None:
    change(model, nodes(model, "LSTM")[0].input[2], lambda each: each[::-1])


def layers_exchanged(model: onnx.ModelProto) -> None:
    one, other = nodes(model, "GRU")
    one.input[2], other.input[2] = other.input[2], one.input[2]


def resets_before(model: onnx.ModelProto) -> None:
    set_attribute(nodes(model, "GRU")[1], "linear_before_reset", 0)


def backwards(model: onnx.ModelProto) -> None:
    set_attribute(nodes(model, "GRU")[0], "direction", "reverse")


def another_activation(model: onnx.ModelProto) -> None:
    set_attribute(
        nodes(model, "LSTM")[0], "activations", ["Sigmoid", "Tanh", "Relu", "Sigmoid", "Tanh", "Tanh"]
    )


def clipped(model: onnx.ModelProto) -> None:
    set_attribute(nodes(model, "GRU")[0], "clip", 0.25)


CHANGES = (
    gates_of_the_input_exchanged,
    directions_exchanged,
    layers_exchanged,
    resets_before,
    backwards,
    another_activation,
    clipped,
)


@pytest.mark.parametrize("fault", CHANGES, ids=lambda each: each.__name__)
def test_no_change_of_a_layer_passes(
    folder: Path, tmp_path: Path, fault: Callable[[onnx.ModelProto], None]
) -> None:
    model = onnx.load(folder / "torchscript" / "model.onnx")
    fault(model)
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "manifest.json").write_bytes((folder / "torchscript" / "manifest.json").read_bytes())

    verified = run_here("verify", tmp_path / "model.onnx", "--static", "--format", "json")
    reconciled = run_here("reconcile", tmp_path / "model.onnx", "--format", "json")

    verdicts = {each["verdict"] for each in json.loads(verified.stdout)["outputs"]}
    assert verified.returncode in (1, 2)
    assert "same" not in verdicts
    findings = {each["id"] for each in json.loads(reconciled.stdout)["findings"]}
    assert reconciled.returncode == 1 or "computes-otherwise" in findings


@pytest.mark.parametrize(
    ("slot", "value"),
    [(4, np.array([5, 4], np.int32)), (7, np.zeros((2, 24), np.float32))],
    ids=["lengths", "peepholes"],
)
def test_what_pytorch_has_not_is_no_pass(folder: Path, tmp_path: Path, slot: int, value: np.ndarray) -> None:
    model = onnx.load(folder / "torchscript" / "model.onnx")
    (layer,) = nodes(model, "LSTM")
    layer.input.extend([""] * (slot + 1 - len(layer.input)))
    layer.input[slot] = "more"
    model.graph.initializer.append(numpy_helper.from_array(value, "more"))
    onnx.save(model, tmp_path / "model.onnx")

    result = run_here(
        "verify", tmp_path / "model.onnx", "--static", "--against", folder / "torchscript", "--format", "json"
    )

    document = json.loads(result.stdout)
    assert (result.returncode, {each["verdict"] for each in document["outputs"]}) == (2, {"not-compared"})


def test_a_step_that_is_not_there_has_no_value() -> None:
    """`x[:, 5]` of three steps is an error on both sides, and must not wrap around."""
    from analyzer.verify.algebra.calls import call
    from analyzer.verify.algebra.field import Numbers
    from analyzer.verify.algebra.values import Algebra, UnknownError

    a, value = Algebra(0, Numbers()), np.arange(6).reshape(2, 3)

    with pytest.raises(UnknownError):
        call(a, "select", [value, 1, 5], {})
    assert call(a, "select", [value, 1, -1], {}).tolist() == [2, 5]
