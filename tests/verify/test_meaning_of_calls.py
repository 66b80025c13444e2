"""Calls whose meaning is easily mistaken: an export of them is the same, and a file with another meaning is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import run_here
from onnx import helper, numpy_helper

pytest.importorskip("torch", reason="needs onnxledger[export]")

NET = """
import torch
from torch.nn import functional as F
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(6, 6)
        self.register_buffer("whole", torch.tensor([0, 1, 2, 3, 0, 5]))
    def forward(self, x):
        return {forward}
def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn({shape}),)
"""
LOWEST = float(np.finfo(np.float32).min)
MASKED = "x.exp().masked_fill(x > 0, float('-inf'))"
Change = Callable[[onnx.ModelProto], None]


def bypass(*op_types: str) -> Change:
    """Let the readers of each such node read its input."""

    def change(model: onnx.ModelProto) -> None:
        for node in [each for each in model.graph.node if each.op_type in op_types]:
            for reader in model.graph.node:
                reader.input[:] = [node.input[0] if each == node.output[0] else each for each in reader.input]
            model.graph.node.remove(node)

    return change


def set_attribute(op_type: str, name: str, value: int) -> Change:
    def change(model: onnx.ModelProto) -> None:
        (node,) = (each for each in model.graph.node if each.op_type == op_type)
        (found,) = (each for each in node.attribute if each.name == name)
        found.i = value

    return change


def mask_with(number: float) -> Change:
    """Replace minus infinity by another number."""

    def change(model: onnx.ModelProto) -> None:
        graph = model.graph
        stored = [
            *graph.initializer,
            *(a.t for node in graph.node for a in node.attribute if a.name == "value"),
        ]
        found = [tensor for tensor in stored if tensor.data_type == onnx.TensorProto.FLOAT]
        masks = [tensor for tensor in found if np.isneginf(numpy_helper.to_array(tensor)).any()]
        assert masks
        for tensor in masks:
            shape = tuple(tensor.dims)
            tensor.CopyFrom(numpy_helper.from_array(np.full(shape, number, np.float32), tensor.name))

    return change


def put_behind(op_type: str, **stored: Any) -> Change:
    """Let a node with a stored operand make the output of the one that made it."""

    def change(model: onnx.ModelProto) -> None:
        name = model.graph.output[0].name
        next(node for node in model.graph.node if name in node.output).output[0] = "before"
        for each, array in stored.items():
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), each))
        model.graph.node.append(helper.make_node(op_type, ["before", *stored], [name]))
        del model.graph.output[0].type.tensor_type.shape.dim[:]

    return change


def export(folder: Path, monkeypatch: pytest.MonkeyPatch, forward: str, shape: str) -> Path:
    (folder / "meant.py").write_text(NET.format(forward=forward, shape=shape))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(__import__("sys").modules, "meant", raising=False)
    done = run_here("export", "meant:factory", "-o", folder / "out")
    assert done.returncode == 0, done.stderr
    return folder / "out" / "model.onnx"


def prove(model: Path) -> int:
    done = run_here("verify", model, "--static", "--format", "json")
    document = json.loads(done.stdout)
    assert document["same"] is (done.returncode == 0)
    return done.returncode


RESIZED = "F.interpolate(self.lin(x.transpose(1, 2)).transpose(1, 2), scale_factor={}, mode='nearest')"


@pytest.mark.parametrize(
    ("forward", "shape", "change"),
    [
        ("self.lin(x.mT)", "2, 6, 6", bypass("Transpose")),
        ("self.lin(x) * torch.logical_not(self.whole)", "4, 6", None),
        ("self.lin((x.abs() * 5).to(torch.uint16).to(torch.float32))", "4, 6", bypass("Cast")),
        (
            "F.max_pool2d(self.lin(x), 3, 3, 0, 2, True)",
            "1, 2, 9, 6",
            set_attribute("MaxPool", "ceil_mode", 0),
        ),
        (RESIZED.format(0.3), "1, 6, 20", None),
        (RESIZED.format(0.7), "1, 6, 10", None),
        ("self.lin(x).masked_fill(x > 0, float('-inf'))", "4, 6", mask_with(-1e30)),
        ("torch.constant_pad_nd(self.lin(x), [1, 1], 5.0)", "4, 6", None),
        ("self.lin(x) + torch.logsumexp(self.whole * 100.0, 0)", "4, 6", None),
        ("torch.relu(self.lin(x))", "4, 6", put_behind("Max", zero=np.zeros((1, 1, 1), np.float32))),
        ("self.lin(x) ** 2", "4, 6", put_behind("Pow", one=np.ones((1, 1, 1), np.float32))),
    ],
)
def test_an_export_is_the_same_and_a_changed_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forward: str, shape: str, change: Change | None
) -> None:
    path = export(tmp_path, monkeypatch, forward, shape)
    assert prove(path) == 0

    if change is not None:
        model = onnx.load(path)
        change(model)
        onnx.save(model, path)
        assert prove(path) in (1, 2)


@pytest.mark.parametrize(
    ("forward", "number"),
    [
        (f"torch.where(torch.isinf({MASKED}), self.lin(x), 2 * self.lin(x))", LOWEST),
        (f"torch.where({MASKED} < torch.finfo(torch.float32).min, self.lin(x), 2 * self.lin(x))", LOWEST),
    ],
)
def test_a_comparison_that_tells_masks_apart_is_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forward: str, number: float
) -> None:
    path = export(tmp_path, monkeypatch, forward, "4, 6")
    assert prove(path) in (0, 2)

    model = onnx.load(path)
    mask_with(number)(model)
    onnx.save(model, path)
    assert prove(path) in (1, 2)


def test_a_softmax_is_no_mask_of_what_it_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    masked = "torch.softmax(x.masked_fill(x <= 0, float('-inf')), -1)"
    chosen = "torch.where(x > 0, 2 * self.lin(x), self.lin(x).exp())"
    path = export(tmp_path, monkeypatch, f"{chosen} + {masked}", "4, 6")
    assert prove(path) == 0

    model = onnx.load(path)
    nodes = model.graph.node
    (softmax,) = (node for node in nodes if node.op_type == "Softmax")
    choice = next(node for node in nodes if node.op_type == "Where" and node.output[0] not in softmax.input)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(LOWEST), "lowest"))
    shown = helper.make_node("Less", ["lowest", softmax.output[0]], ["always"])
    choice.input[0] = "always"
    others = [node for node in nodes if node is not choice and choice.output[0] in node.input]
    for node in (shown, choice, *others):  # after the softmax
        moved = onnx.NodeProto.FromString(node.SerializeToString())
        if node is not shown:
            nodes.remove(node)
        nodes.append(moved)
    onnx.save(model, path)
    assert prove(path) in (1, 2)


def test_a_known_output_that_is_not_a_number_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros = "torch.zeros(x.shape[0])"

    assert prove(export(tmp_path, monkeypatch, f"(self.lin(x), {zeros} / {zeros})", "4, 6")) == 0
