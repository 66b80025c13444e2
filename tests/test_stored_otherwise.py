"""Values that an export stores otherwise than PyTorch has them balance, and other values in their place do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from commands import run_here
from onnx import numpy_helper

pytest.importorskip("torch")
pytestmark = pytest.mark.export

NETS = """
import torch
from torch import nn


class Masked(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.body = nn.Linear(6, 6)
        self.register_buffer("mask", torch.tensor(mask))

    def forward(self, x):
        return self.body(x) * self.mask


class Cast(nn.Module):
    # Buffers of booleans and integers in arithmetic with an activation.

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first = Masked([True, False, True, True, False, True])
        self.second = Masked([True, True, False, True, False, True])
        self.third = Masked([True, True, False, True, False, True])
        self.register_buffer("levels", torch.tensor([3, 5, 7, 2, 11, 4]))

    def forward(self, x):
        return self.third(self.second(self.first(x)).relu()) * self.levels


class Numbers(nn.Module):
    # Parameters of one element: slopes, one of them never trained, a factor and a summand.

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.body, self.last = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 1)
        self.bend, self.curve, self.new = nn.PReLU(init=0.1234567), nn.PReLU(init=-0.3456789), nn.PReLU()
        self.scale, self.shift = nn.Parameter(torch.tensor(0.7654321)), nn.Parameter(torch.tensor(-0.2345678))

    def forward(self, x):
        return self.new(self.curve(self.last(self.bend(self.body(x))))) * self.scale + self.shift


def numbers():
    return Numbers().eval(), (torch.randn(2, 2, 6, 6),)


class Started(nn.Module):
    # Learned initial states of two layers, repeated for each example.

    def __init__(self):
        super().__init__()
        torch.manual_seed(9)
        self.body, self.last = nn.GRU(5, 7, num_layers=2), nn.Linear(7, 3)
        self.start = nn.Parameter(torch.randn(2, 1, 7))

    def forward(self, x):
        return self.last(self.body(x, self.start.expand(-1, x.shape[1], -1).contiguous())[0])


def started():
    return Started().eval(), (torch.randn(6, 2, 5),)


class Triangle(nn.Module):
    # Indices of a triangle, of which TorchScript stores rows and columns apart.

    def __init__(self):
        super().__init__()
        torch.manual_seed(10)
        self.last = nn.Linear(21, 3)

    def forward(self, x):
        rows, columns = torch.tril_indices(7, 7, -1)
        return self.last(x[:, rows, columns])


def triangle():
    return Triangle().eval(), (torch.randn(2, 7, 7),)


class Both(nn.Module):
    # Two such buffers of one module, one a factor and one a summand.

    def __init__(self):
        super().__init__()
        torch.manual_seed(11)
        self.body = nn.Linear(6, 6)
        self.register_buffer("mask", torch.tensor([True, False, True, True, False, True]))
        self.register_buffer("levels", torch.tensor([3, 5, 7, 2, 11, 4]))

    def forward(self, x):
        return (self.body(x) * self.mask).relu() + self.levels


def both():
    return Both().eval(), (torch.randn(3, 6),)


def cast():
    return Cast().eval(), (torch.randn(3, 6),)
"""

Array = npt.NDArray[np.generic]
Export = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("otherwise")
    (made / "otherwise_nets.py").write_text(NETS)
    return made


@pytest.fixture
def exported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    monkeypatch.chdir(folder)

    def export(name: str, exporter: str) -> Path:
        made = Path(f"{name}-{exporter}")
        if not made.exists():
            done = run_here(
                "export", f"otherwise_nets:{name}", "-o", str(made), "--via", exporter, "--static"
            )
            assert done.returncode == 0, done.stdout
        return made / "model.onnx"

    return export


def stored(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from model.graph.initializer
    for node in model.graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.name == "value")


def holders(model: onnx.ModelProto, values: Array) -> list[onnx.TensorProto]:
    """Return the stored tensors with these elements, in any shape and type."""
    return [
        each
        for each in stored(model)
        if np.prod(each.dims) == values.size
        and np.allclose(numpy_helper.to_array(each).reshape(-1), values.reshape(-1), atol=1e-6)
    ]


def put(tensor: onnx.TensorProto, values: Array) -> None:
    before = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(values.reshape(before.shape).astype(before.dtype), tensor.name))


def balances(model: Path | onnx.ModelProto, name: str, beside: Path) -> bool:
    path = model if isinstance(model, Path) else Path("changed.onnx")
    if not isinstance(model, Path):
        onnx.save(model, path)
    answers = {
        run_here("reconcile", str(path), "--against", source).returncode
        for source in (f"otherwise_nets:{name}", str(beside.with_name("manifest.json")))
    }
    assert len(answers) == 1
    return answers == {0}


FIRST, SECOND = np.array([1, 0, 1, 1, 0, 1], np.float32), np.array([1, 1, 0, 1, 0, 1], np.float32)
LEVELS = np.array([3, 5, 7, 2, 11, 4], np.float32)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_a_buffer_that_arithmetic_casts_is_a_buffer(exported: Export, exporter: str) -> None:
    path = exported("cast", exporter)

    assert len(holders(onnx.load(path), FIRST)) == 1
    assert balances(path, "cast", path)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (FIRST, 1 - FIRST),
        (FIRST, SECOND),
        (SECOND, FIRST),
        (LEVELS, LEVELS[::-1]),
        (LEVELS, LEVELS + (LEVELS == 7)),
    ],
    ids=["turned over", "the second's", "the first's", "reversed", "one number"],
)
def test_other_numbers_in_the_place_of_a_cast_buffer_are_reported(
    exported: Export, exporter: str, before: Array, after: Array
) -> None:
    path = exported("cast", exporter)
    model = onnx.load(path)
    put(holders(model, before)[0], after)

    assert not balances(model, "cast", path)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_cast_buffers_of_one_module_are_told_apart_by_the_operators(exported: Export, exporter: str) -> None:
    path = exported("both", exporter)
    model = onnx.load(path)
    (mask,), (levels,) = holders(model, FIRST), holders(model, LEVELS)
    put(mask, LEVELS)
    put(levels, FIRST)

    assert balances(path, "both", path)
    assert not balances(model, "both", path)


SLOPES = {"bend": 0.1234567, "curve": -0.3456789, "new": 0.25}


def rounded(model: onnx.ModelProto) -> None:
    """Round all weights to half precision."""
    for each in stored(model):
        if each.data_type == onnx.TensorProto.FLOAT:
            each.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(each).astype(np.float16), each.name))


def encoded(model: onnx.ModelProto, name: str) -> None:
    """Encode a number as a quantizer does, with a scale and a zero point of its own."""
    tensor = next(each for each in model.graph.initializer if each.name == name)
    number = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.array(255 * (number > 0), np.uint8), f"{name}_quantized"))
    scale, zero = np.abs(number) / np.float32(255), np.array(255 * (number < 0), np.uint8)
    for end, value in (("scale", scale.astype(np.float32)), ("zero_point", zero)):
        model.graph.initializer.append(numpy_helper.from_array(value, f"{name}_{end}"))
    inputs = [f"{name}_quantized", f"{name}_scale", f"{name}_zero_point"]
    model.graph.node.insert(
        0, onnx.helper.make_node("DequantizeLinear", inputs, [name], name=f"{name}_decoded")
    )


def test_a_number_that_was_rounded_is_held_where_its_module_reads_it(exported: Export) -> None:
    path = exported("numbers", "torchscript")
    half, codes = onnx.load(path), onnx.load(path)
    rounded(half)
    for name in ("scale", "shift"):
        encoded(codes, name)

    assert balances(half, "numbers", path)
    assert balances(codes, "numbers", path)


@pytest.mark.parametrize(
    ("of", "number"), [("bend", -0.3456789), ("bend", 0.124), ("new", 0.26), ("curve", 0.25)]
)
def test_another_number_in_the_place_of_a_rounded_one_is_reported(
    exported: Export, of: str, number: float
) -> None:
    path = exported("numbers", "torchscript")
    model = onnx.load(path)
    (slope,) = holders(model, np.array(SLOPES[of]))
    put(slope, np.array(number))
    rounded(model)

    assert not balances(model, "numbers", path)


def test_two_slopes_exchanged_are_reported(exported: Export) -> None:
    path = exported("numbers", "torchscript")
    model = onnx.load(path)
    (bend,), (curve,) = (holders(model, np.array(SLOPES[name])) for name in ("bend", "curve"))
    put(bend, np.array(SLOPES["curve"]))
    put(curve, np.array(SLOPES["bend"]))
    rounded(model)

    assert not balances(model, "numbers", path)


@pytest.mark.parametrize("number", [0.7, -0.2345678])
def test_another_number_in_codes_is_reported(exported: Export, number: float) -> None:
    path = exported("numbers", "torchscript")
    model = onnx.load(path)
    next(each for each in model.graph.initializer if each.name == "scale").CopyFrom(
        numpy_helper.from_array(np.array(number, np.float32), "scale")
    )
    for name in ("scale", "shift"):
        encoded(model, name)

    assert not balances(model, "numbers", path)


def states(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return the initial states of both layers, in the order of the layers."""
    named = {each.name: each for each in model.graph.initializer}
    return [named[node.input[5]] for node in model.graph.node if node.op_type == "GRU"]


def indices(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return the rows and columns of the triangle."""
    return [each for each in stored(model) if list(each.dims) == [21]]


PIECES = {"started": ("dynamo", states), "triangle": ("torchscript", indices)}


@pytest.mark.parametrize("name", PIECES)
def test_a_value_that_is_stored_in_pieces_balances(exported: Export, name: str) -> None:
    exporter, pieces = PIECES[name]
    path = exported(name, exporter)

    assert len(pieces(onnx.load(path))) == 2
    assert balances(path, name, path)
    assert "wiring-differs" not in run_here("reconcile", str(path)).stdout


@pytest.mark.parametrize("how", ["one number", "exchanged", "the first twice"])
@pytest.mark.parametrize("name", PIECES)
def test_pieces_of_a_value_that_are_not_its_own_are_reported(exported: Export, name: str, how: str) -> None:
    exporter, pieces = PIECES[name]
    path = exported(name, exporter)
    model = onnx.load(path)
    first, second = pieces(model)
    one, other = (numpy_helper.to_array(each).copy() for each in (first, second))
    if how == "one number":
        other.reshape(-1)[-1] += 1
    else:
        other, one = one, one if how == "the first twice" else other
    put(first, one)
    put(second, other)

    assert not balances(model, name, path)
