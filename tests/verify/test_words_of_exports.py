"""Exports of rare operators beside PyTorch's program, without running: each is the same, and no change passes."""

from __future__ import annotations

import json
import shutil
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

NETS = """
import torch
import torch.nn.functional as F
from torch import nn


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x, edges, mask):
        sent = torch.relu(self.a(x))[edges[0]]
        rows = edges[1].unsqueeze(-1).expand(-1, 8)
        summed = torch.zeros_like(x).scatter_add(0, rows, sent)
        summed = summed.masked_fill(mask.unsqueeze(-1), 0.5)
        return self.b(summed.index_add(0, edges[1], sent * 2))


class Put(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.register_buffer("at", torch.tensor([0, 2, 5]))

    def forward(self, x):
        h = self.a(x).clone()
        h[:, self.at] = torch.tanh(h[:, self.at])
        h[:, 1] = 0
        h[:, 3:5] = h[:, 5:7] * 2
        return h + torch.zeros(x.shape[0], 8).scatter(1, self.at.expand(x.shape[0], 3), h[:, :3])


class Sort(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        h = self.a(x)
        values, places = torch.sort(h, dim=-1, descending=True)
        return values + torch.gather(x, 1, places), torch.gather(h, 1, torch.argsort(h, dim=1)).cumsum(-1)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.up, self.down = nn.Parameter(torch.randn(4, 8, 6) * 0.3), nn.Parameter(torch.randn(4, 6, 8) * 0.3)

    def forward(self, x):
        shares, chosen = torch.topk(torch.softmax(self.gate(x), -1), 2)
        marks = F.one_hot(chosen, 4).to(x.dtype)
        made = torch.einsum("td,edf->tef", x, self.up)
        made = torch.einsum("tef,efd->ted", F.softplus(made, 2.0), self.down)
        return torch.einsum("ted,tke,tk->td", made, marks, shares) + F.log_softmax(x[chosen[:, 0]], -1)


class Bends(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(8))

    def forward(self, x):
        bends = [nn.Softplus(0.5, 10), nn.Softshrink(0.3), nn.Hardshrink(0.2), nn.Threshold(0.1, 0.2)]
        bends += [nn.LogSigmoid(), nn.ELU(0.7), nn.SELU(), nn.CELU(0.5)]
        for layer, bend in zip(self.layers, bends):
            x = x + bend(layer(x))
        return torch.asinh(x) + torch.atan2(x, x + 2) + torch.exp2(x), F.cosine_similarity(x, x + 1)


class Windows(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 4)

    def forward(self, x):
        h = self.conv(x)
        h = F.avg_pool2d(h, 3, 2, 1, ceil_mode=True) + F.max_pool2d(h, 3, 2, 1, ceil_mode=True)
        h = F.adaptive_avg_pool2d(h, (3, 3)).unfold(2, 2, 1).amax(-1)
        return self.head(F.adaptive_max_pool2d(h, 1).flatten(1))


class Sizes(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4)

    def forward(self, x):
        h = self.norm(self.conv(x))
        return (
            F.interpolate(h, scale_factor=2, mode="bilinear", align_corners=False)
            + F.interpolate(h, size=(16, 16), mode="bilinear", align_corners=True)
            + F.interpolate(h, scale_factor=2, mode="nearest")
            + F.interpolate(h, size=(16, 16), mode="bicubic", align_corners=False)
        )


def made(net, *inputs):
    torch.manual_seed(0)
    return net().eval(), inputs


def graph():
    return made(Graph, torch.randn(6, 8), torch.randint(0, 6, (2, 9)), torch.rand(6) > 0.5)


def put():
    return made(Put, torch.randn(4, 8))


def sort():
    return made(Sort, torch.randn(5, 8))


def experts():
    return made(Experts, torch.randn(9, 8))


def bends():
    return made(Bends, torch.randn(5, 8))


def windows():
    return made(Windows, torch.randn(2, 3, 13, 13))


def sizes():
    return made(Sizes, torch.randn(2, 3, 8, 8))
"""
NAMES = ("graph", "put", "sort", "experts", "bends", "windows", "sizes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    (folder / "words_of_nets.py").write_text(NETS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in NAMES:
            done = run_here(
                "export", f"words_of_nets:{name}", "-o", folder / name, "--via", "dynamo", "--quiet"
            )
            assert not done.returncode, done.stderr
    return folder


def run_verify(path: Path) -> tuple[bool, list[str]]:
    document = json.loads(run_here("verify", path, "--static", "--format", "json").stdout)
    return document["same"], document["uncovered"]


@pytest.mark.parametrize("name", NAMES)
def test_an_honest_export_is_the_same(folder: Path, name: str) -> None:
    same, uncovered = run_verify(folder / name / "model.onnx")

    assert same, uncovered
    assert "0 in another form" in uncovered[0]


@pytest.mark.parametrize("name", ["graph", "experts", "windows"])
def test_an_honest_export_with_its_weights_in_codes_is_the_same(
    folder: Path, tmp_path: Path, name: str
) -> None:
    same, uncovered = run_verify(rounded(folder / name, tmp_path / "out"))

    assert same, uncovered
    assert "not proven: the rounding of weights to codes" in uncovered


def test_codes_that_are_read_with_another_scale_are_not_the_same(folder: Path, tmp_path: Path) -> None:
    path = rounded(folder / "graph", tmp_path / "out")
    model = onnx.load(path)
    scale = next(each for each in model.graph.initializer if each.name.endswith("_scale"))
    model.graph.initializer.append(
        numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(3), "other")
    )
    nodes(model, "DequantizeLinear")[0].input[1] = "other"
    onnx.save(model, path)

    assert not run_verify(path)[0]


def rounded(folder: Path, to: Path) -> Path:
    """Copy an export, with matrices stored as codes and a scale for each column."""
    shutil.copytree(folder, to)
    model = onnx.load(to / "model.onnx")
    for tensor in [each for each in model.graph.initializer if len(each.dims) > 1 and each.data_type == 1]:
        array = numpy_helper.to_array(tensor)
        scale = np.abs(array).max(tuple(range(array.ndim - 1))) / np.float32(127)
        names = [f"{tensor.name}_{each}" for each in ("codes", "scale")]
        parts = (np.round(array / scale).astype(np.int8), scale.astype(np.float32))
        model.graph.initializer.extend(
            numpy_helper.from_array(part, name) for part, name in zip(parts, names, strict=True)
        )
        model.graph.initializer.remove(tensor)
        node = helper.make_node("DequantizeLinear", names, [tensor.name], axis=array.ndim - 1)
        model.graph.node.insert(0, node)
    onnx.save(model, to / "model.onnx")
    return to / "model.onnx"


def nodes(model: onnx.ModelProto, op_type: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == op_type]


def set_attribute(op_type: str, name: str, value: object, at: int = 0) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node = nodes(model, op_type)[at]
        kept = [each for each in node.attribute if each.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])

    return change


def exchanges(op_type: str, one: int, other: int, at: int = 0) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node = nodes(model, op_type)[at]
        node.input[one], node.input[other] = node.input[other], node.input[one]

    return change


def becomes(op_type: str, other: str, at: int = 0) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        nodes(model, op_type)[at].op_type = other

    return change


CHANGES: list[tuple[str, Callable[[onnx.ModelProto], None]]] = [
    ("graph", set_attribute("ScatterElements", "reduction", "none")),
    ("graph", set_attribute("ScatterElements", "reduction", "max")),
    ("graph", set_attribute("ScatterND", "reduction", "none")),
    ("graph", set_attribute("ScatterND", "reduction", "mul")),
    ("graph", exchanges("Where", 1, 2)),
    ("graph", becomes("Relu", "Abs")),
    ("put", set_attribute("ScatterElements", "reduction", "add")),
    ("put", set_attribute("ScatterND", "reduction", "add")),
    ("put", becomes("Tanh", "Sigmoid")),
    ("sort", set_attribute("TopK", "largest", 0)),
    ("sort", set_attribute("TopK", "largest", 1, 1)),
    ("sort", set_attribute("TopK", "sorted", 0)),
    ("sort", set_attribute("CumSum", "exclusive", 1)),
    ("sort", set_attribute("CumSum", "reverse", 1)),
    ("sort", set_attribute("TopK", "largest", 2)),
    ("experts", set_attribute("TopK", "largest", 0)),
    ("experts", set_attribute("LogSoftmax", "axis", 0)),
    ("experts", becomes("Softplus", "Relu")),
    ("bends", set_attribute("Elu", "alpha", 0.8)),
    ("bends", set_attribute("Selu", "gamma", 1.0)),
    ("bends", becomes("Celu", "Elu")),
    ("bends", exchanges("Where", 1, 2)),
    ("bends", becomes("LessOrEqual", "Less")),
    ("bends", becomes("Asinh", "Sinh")),
    ("windows", set_attribute("AveragePool", "count_include_pad", 0)),
    ("windows", set_attribute("AveragePool", "strides", [2, 1])),
    ("windows", becomes("ReduceMax", "ReduceMin")),
    ("windows", set_attribute("MaxPool", "pads", [0, 1, 2, 1])),
    *(
        ("sizes", set_attribute("Resize", "coordinate_transformation_mode", each, at))
        for at, each in enumerate(("align_corners", "half_pixel", "half_pixel_symmetric", "asymmetric"))
    ),
    ("sizes", set_attribute("Resize", "mode", "cubic", 1)),
    ("sizes", set_attribute("Resize", "nearest_mode", "ceil", 2)),
    ("sizes", set_attribute("Resize", "cubic_coeff_a", -0.5, 3)),
    ("sizes", set_attribute("Resize", "antialias", 1, 3)),
]


@pytest.mark.parametrize(
    ("name", "change"), CHANGES, ids=[f"{at}-{name}" for at, (name, _) in enumerate(CHANGES)]
)
def test_what_is_changed_is_not_the_same(
    folder: Path, tmp_path: Path, name: str, change: Callable[[onnx.ModelProto], None]
) -> None:
    shutil.copytree(folder / name, tmp_path / "out")
    path = tmp_path / "out" / "model.onnx"
    model = onnx.load(path)
    before = model.SerializeToString()
    change(model)
    assert model.SerializeToString() != before
    onnx.save(model, path)

    same, _ = run_verify(path)

    assert not same
