"""Files in half precision: rounding is never reported as a cause, and never moves a fault to another module."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import run_here
from onnx import helper, numpy_helper

from analyzer.model.dtypes import is_one_in_half, round_to_half

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.time, pytest.mark.export, pytest.mark.usefixtures("forked_children")]

BLOCKS = """
import torch
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(16), torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
        self.act = torch.nn.LeakyReLU(0.1)
    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x) * 0.3)))
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.last = torch.nn.Linear(16, 16)
    def forward(self, x):
        x = x * 0.004  # so small that an epsilon of 1e-5 is felt, and that it is rounded too
        for block in self.blocks:
            x = block(x)
        return x + self.last(x * torch.sqrt(torch.tensor(17.3))) * 1e-4  # a root that is rounded, and is not felt
def factory():
    torch.manual_seed(0)
    net = Net().eval()
    with torch.no_grad():
        for each in net.parameters():
            each.add_(0.1 * torch.randn(each.shape))
    return net, (torch.randn(4, 16),)
"""


@pytest.fixture(scope="module")
def halved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    folder = tmp_path_factory.mktemp("half")
    (folder / "blocks.py").write_text(BLOCKS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run_here("export", "blocks:factory", "-o", folder / "out", "--quiet").returncode == 0
    target = folder / "out" / "half.onnx"
    onnx.save(convert_float_to_float16(onnx.load(folder / "out" / "model.onnx"), keep_io_types=True), target)
    return target


def verify(model: Path, folder: Path) -> dict[str, object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = run_here("verify", model, "--against", "blocks:factory", "--format", "json")
    document: dict[str, object] = json.loads(result.stdout)
    return document


def test_an_honest_file_is_the_same(halved: Path) -> None:
    document = verify(halved, halved.parents[1])

    assert (document["same"], document["first"]) == (True, None)


TABLE = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.last = torch.nn.Embedding(50, 16), torch.nn.Linear(16, 16)
        self.steps = torch.arange(0, 16, 2) / -7.0
    def forward(self, ids):
        angles = torch.arange(ids.shape[1])[:, None] * self.steps.exp()
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        x = self.words(ids)
        return self.last(x + table.to(x.dtype))
def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randint(0, 50, (2, 7)),)
"""


def test_a_table_that_was_computed_in_advance_is_pytorchs_rounded(tmp_path: Path) -> None:
    (tmp_path / "table.py").write_text(TABLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        run_here("export", "table:factory", "-o", tmp_path / "out", "--dtype", "fp16", "--static", "--quiet")
        target = tmp_path / "out" / "model.onnx"
        honest = run_here("verify", target, "--format", "json")
        model = onnx.load(target)
        stored = next(each for each in model.graph.initializer if [*each.dims] == [7, 16])
        numbers = numpy_helper.to_array(stored).copy()
        numbers[3, 4] += np.float16(0.01)
        stored.CopyFrom(numpy_helper.from_array(numbers, stored.name))
        onnx.save(model, target)
        changed = run_here("verify", target, "--format", "json")

    assert (honest.returncode, json.loads(honest.stdout)["same"]) == (0, True)
    assert (changed.returncode, json.loads(changed.stdout)["same"]) == (1, False)


def noise(proto: onnx.ModelProto) -> None:
    """Shift the bias of the second block's last product."""
    tensor = next(each for each in proto.graph.initializer if each.name == "blocks.1.down.bias")
    shifted = numpy_helper.to_array(tensor) + np.float16(0.25)
    tensor.CopyFrom(numpy_helper.from_array(shifted.astype(np.float16), tensor.name))


def gain_as_bias(proto: onnx.ModelProto) -> None:
    """Exchange gain and bias of the second block's norm; the first block's similar norm stays."""
    node = [each for each in proto.graph.node if each.op_type == "LayerNormalization"][1]
    node.input[1], node.input[2] = node.input[2], node.input[1]


def slope(proto: onnx.ModelProto) -> None:
    node = [each for each in proto.graph.node if each.op_type == "LeakyRelu"][1]
    node.attribute[0].f = 0.4


def left_out(proto: onnx.ModelProto) -> None:
    """Drop the first block's residual."""
    node = next(each for each in proto.graph.node if each.op_type == "Add")
    made = {name for each in proto.graph.node if each.op_type in ("Gemm", "MatMul") for name in each.output}
    kept = next(name for name in node.input if name in made)
    node.op_type = "Identity"
    del node.input[:]
    node.input.append(kept)


def clip(proto: onnx.ModelProto) -> None:
    """Clip the output after everything is computed."""
    name = proto.graph.output[0].name
    node = next(each for each in proto.graph.node if name in each.output)
    node.output[0] = "inner"
    bounds = [numpy_helper.from_array(np.float32(each), f"bound{each}") for each in (-0.1, 0.1)]
    proto.graph.initializer.extend(bounds)
    proto.graph.node.append(helper.make_node("Clip", ["inner", *(each.name for each in bounds)], [name]))


@pytest.mark.parametrize(
    ("fault", "module", "reason"),
    [
        (noise, "blocks.1.down", "its values in the file differ"),
        (gain_as_bias, "blocks.1.norm", "it is read in place of another tensor"),
        (slope, "blocks.1.act", "alpha 0.4"),
        (left_out, "blocks.0", "the residual is dropped"),
        (clip, "[root]", "goes through Clip"),
    ],
)
def test_a_fault_is_reported_at_its_module_and_not_where_a_number_is_rounded(
    halved: Path, tmp_path: Path, fault: Callable[[onnx.ModelProto], None], module: str, reason: str
) -> None:
    proto = onnx.load(halved)
    fault(proto)
    onnx.save(proto, tmp_path / "model.onnx")

    document = verify(tmp_path / "model.onnx", halved.parents[1])

    assert document["same"] is False
    first = document["first"]
    assert isinstance(first, dict)
    assert (first["module"], reason in first["reason"]) == (module, True), first["reason"]


INNER = """
import torch
class Net(torch.nn.Module):
    def __init__(self, like):
        super().__init__()
        self.up, self.down, self.like = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4), like
    def forward(self, x):
        h = torch.nn.functional.gelu(self.up(x) * 0.3)
        return self.down(h + (h.abs() + 1).log2() * self.like)
def factory(like=1.5):
    torch.manual_seed(0)
    return Net(like).eval(), (torch.randn(4, 8),)
def near():  # the root of 2, rounded, is a number of the program itself
    return factory(1.4140625)
"""


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write exports in half precision; in that of TorchScript, GELU is made of simpler operators."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    folder = tmp_path_factory.mktemp("inner")
    (folder / "inner.py").write_text(INNER)
    names: dict[str, Any] = {}
    exec(INNER, names)
    for name, dynamo in (("factory", False), ("near", True)):
        module, inputs = names[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                inputs,
                folder / "full.onnx",
                dynamo=dynamo,
                opset_version=20 if dynamo else 17,
                verbose=False,
                external_data=False,
                input_names=["x"],
            )
        half = convert_float_to_float16(onnx.load(folder / "full.onnx"), keep_io_types=True)
        onnx.save(half, folder / f"{name}.onnx")
    return folder


def verify_inner(model: Path, folder: Path, source: str = "factory") -> tuple[int, bool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = run_here("verify", model, "--against", f"inner:{source}", "--format", "json")
    return done.returncode, json.loads(done.stdout)["same"]


def test_numbers_inside_functions_are_restored_from_their_roundings(inner: Path) -> None:
    assert verify_inner(inner / "factory.onnx", inner) == (0, True)


def test_a_rounded_number_of_the_program_is_not_taken_for_one_inside_a_function(inner: Path) -> None:
    proto = onnx.load(inner / "near.onnx")

    assert [each.op_type for each in proto.graph.node].count("Gelu") == 1
    assert verify_inner(inner / "near.onnx", inner, "near") == (0, True)


@pytest.mark.parametrize("number", [2**0.5, float(np.log(2)), 0.3], ids=["root", "logarithm", "factor"])
@pytest.mark.parametrize("steps", [1, 40])
def test_another_number_is_no_rounding_of_one_inside_a_function(
    inner: Path, tmp_path: Path, number: float, steps: int
) -> None:
    proto = onnx.load(inner / "factory.onnx")
    tensors = [
        *proto.graph.initializer,
        *(a.t for n in proto.graph.node for a in n.attribute if n.op_type == "Constant"),
    ]
    found = [
        each
        for each in tensors
        if numpy_helper.to_array(each).size == 1 and numpy_helper.to_array(each) == np.float16(number)
    ]
    assert found
    other = np.float16(number) + steps * np.spacing(np.float16(number))
    for each in found:
        each.CopyFrom(numpy_helper.from_array(np.full([*each.dims], other, np.float16), each.name))
    onnx.save(proto, tmp_path / "model.onnx")

    assert verify_inner(tmp_path / "model.onnx", inner) == (1, False)


@pytest.mark.parametrize("half", ["FLOAT16", "BFLOAT16"])
def test_numbers_that_half_precision_cannot_tell_apart_are_one(half: str) -> None:
    for number in (1e-6, 1e-5, 1e-3, 0.1, 0.125, 1 / 3, 8.0, 333.3, -0.7):
        assert is_one_in_half(number, round_to_half(number, half), half)
        assert not is_one_in_half(number, number * 1.1, half)
    assert is_one_in_half(1e-12, 1.1920929e-07, half)  # tools store this instead
