"""Functions that forward computes of parameters, on real exports, with a state dict alone on PyTorch's side.

Scaled positions (x-transformers), biases divided by attention's scale (LeViT of vit-pytorch), temperatures (XCiT of
vit-pytorch), relative positions (Shaw et al. 2018) and classifiers by cosines (ArcFace). Each has tampered twins.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import run_here
from onnx import numpy_helper

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.export, pytest.mark.slow]

SIDE, HEADS, WIDTH = 4, 2, 16
POSITIONS = SIDE * SIDE


class Attention(torch.nn.Module):
    """Attention over a grid with everything that `forward` may compute of a few parameters."""

    def __init__(self, *, relative: bool = False) -> None:
        super().__init__()
        self.packed = torch.nn.Linear(2 * WIDTH, 6 * WIDTH)
        self.positions = torch.nn.Embedding(2 * POSITIONS, 2 * WIDTH)
        self.biases = torch.nn.Embedding(POSITIONS, HEADS)
        self.temperature = torch.nn.Parameter(torch.randn(HEADS, 1, 1))
        self.distances = torch.nn.Embedding(2 * POSITIONS - 1, WIDTH) if relative else None
        row, column = np.divmod(np.arange(POSITIONS), SIDE)
        places = np.abs(row[:, None] - row) * SIDE + np.abs(column[:, None] - column)
        self.register_buffer("places", torch.tensor(places))
        self.last = torch.nn.Linear(2 * WIDTH, 3)

    def forward(self, x):
        x = x + self.positions(torch.arange(POSITIONS)) * (2 * WIDTH) ** -0.5
        q, k, v = self.packed(x).reshape(-1, POSITIONS, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * self.temperature.exp()
        scores = scores + self.biases(self.places).permute(2, 0, 1) / WIDTH**-0.5
        if self.distances is not None:
            order = torch.arange(POSITIONS)
            picked = self.distances(order[:, None] - order + POSITIONS - 1)  # (queries, keys, width)
            scores = scores + torch.einsum("bhqd,qkd->bhqk", q, picked)
        return self.last((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Cosines(torch.nn.Module):
    def __init__(self, *, normalizes_both: bool = True) -> None:
        super().__init__()
        self.body, self.other = torch.nn.Linear(8, WIDTH), torch.nn.Linear(8, WIDTH)
        self.weight = torch.nn.Parameter(torch.randn(5, WIDTH))
        self.normalizes_both = normalizes_both

    def forward(self, x):
        unit, rows = torch.nn.functional.normalize, torch.nn.functional.normalize(self.weight)
        hidden = torch.relu(self.body(x)) + self.other(x)
        return torch.nn.functional.linear(unit(hidden) if self.normalizes_both else hidden, rows) * 30


def export(folder: Path, net, *inputs, dynamo: bool = True, folds: bool = True, **others) -> Path:
    path = folder / "net.onnx"
    torch.save(net.state_dict(), path.with_suffix(".pt"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"optimize": folds} if dynamo else {"do_constant_folding": folds}
        torch.onnx.export(net.eval(), inputs, path, dynamo=dynamo, verbose=False, **options, **others)
    return path


def reconcile(path: Path, checkpoint: Path | None = None):
    return run_here("reconcile", str(path), "--against", str(checkpoint or path.with_suffix(".pt")))


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "relative"])
def exported(request, tmp_path_factory) -> Path:
    torch.manual_seed(0)
    net = Attention(relative=request.param)
    return export(tmp_path_factory.mktemp("attention"), net, torch.randn(2, POSITIONS, 2 * WIDTH))


def test_functions_that_forward_computes_balance(exported):
    done = reconcile(exported)

    assert done.returncode == 0, done.stdout


def folded(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Return the tensors that the exporter computed, by what they hold."""
    shapes = {
        "positions": (POSITIONS, 2 * WIDTH),
        "biases": (HEADS, POSITIONS, POSITIONS),
        "temperature": (HEADS, 1, 1),
        "distances": (POSITIONS, POSITIONS, WIDTH),
    }
    found = {}
    for tensor in model.graph.initializer:
        shape = list(tensor.dims)
        while len(shape) > 2 and shape[0] == 1:
            shape = shape[1:]
        found |= {name: tensor for name, wanted in shapes.items() if tuple(shape) == wanted}
    return found


@pytest.mark.parametrize("name", ["positions", "biases", "temperature"])
@pytest.mark.parametrize("change", ["one number", "twice", "negated"])
def test_another_function_does_not_balance(exported, tmp_path, name, change):
    model = onnx.load(exported)
    tensor = folded(model)[name]
    values = numpy_helper.to_array(tensor).copy()
    if change == "one number":
        values.reshape(-1)[1] *= 1.01
    values *= {"one number": 1, "twice": 2, "negated": -1}[change]
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(model, tmp_path / "net.onnx")

    done = reconcile(tmp_path / "net.onnx", exported.with_suffix(".pt"))

    assert done.returncode == 1, done.stdout


def test_biases_in_another_order_do_not_balance(exported, tmp_path):
    model = onnx.load(exported)
    tensor = folded(model)["biases"]
    values = numpy_helper.to_array(tensor)
    order = np.random.default_rng(0).permutation(POSITIONS)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values[..., order, :]), tensor.name))
    onnx.save(model, tmp_path / "net.onnx")

    done = reconcile(tmp_path / "net.onnx", exported.with_suffix(".pt"))

    assert done.returncode == 1, done.stdout


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_relative_positions_are_picked_by_distance(tmp_path, dynamo):
    """The file stores all of the table, as for any number of positions, and picks rows by a constant index."""
    torch.manual_seed(0)
    path = export(
        tmp_path, Attention(relative=True), torch.randn(2, POSITIONS, 2 * WIDTH), dynamo=dynamo, folds=False
    )
    assert reconcile(path).returncode == 0

    model = onnx.load(path)
    named = [
        *model.graph.initializer,
        *(a.t for n in model.graph.node for a in n.attribute if a.name == "value"),
    ]
    index = next(
        t for t in named if tuple(t.dims) == (POSITIONS, POSITIONS) and t.data_type == onnx.TensorProto.INT64
    )
    values = numpy_helper.to_array(index).copy()
    values[[2, 3]] = values[[3, 2]]
    index.CopyFrom(numpy_helper.from_array(values, index.name))
    onnx.save(model, tmp_path / "other.onnx")

    assert reconcile(tmp_path / "other.onnx", path.with_suffix(".pt")).returncode == 1


class Calling(torch.nn.Module):
    """A module whose `forward` calls a method of another module, not its `forward`."""

    class Inner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(WIDTH)

        def change(self, x):
            return torch.tanh(self.norm(x))

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([self.Inner(), self.Inner()])
        self.norm, self.last = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 3)
        for norm in (self.norm, *(layer.norm for layer in self.layers)):
            torch.nn.init.normal_(norm.weight)
            torch.nn.init.normal_(norm.bias)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer.change(x)
        return self.last(self.norm(x))


def test_a_module_that_a_method_calls_has_no_full_name_in_torchscript(tmp_path):
    torch.manual_seed(0)
    path = export(tmp_path, torch.nn.Sequential(Calling()), torch.randn(2, WIDTH), dynamo=False)

    done = reconcile(path)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_a_classifier_by_cosines_balances(tmp_path, dynamo):
    torch.manual_seed(0)
    path = export(tmp_path, Cosines(), torch.randn(2, 8), dynamo=dynamo)

    done = reconcile(path)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("normalizes_both", [True, False])
def test_stored_lengths_of_rows_balance_in_a_classifier_by_cosines_alone(tmp_path, normalizes_both):
    """Up to opset 17, TorchScript's exporter computes the lengths in advance, and not the division."""
    torch.manual_seed(0)
    net = Cosines(normalizes_both=normalizes_both)
    path = export(tmp_path, net, torch.randn(2, 8), dynamo=False, opset_version=17)
    assert [5, 1] in [list(tensor.dims) for tensor in onnx.load(path).graph.initializer]

    done = reconcile(path)

    assert (done.returncode == 0) == normalizes_both, done.stdout


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_rows_of_length_one_without_cosines_do_not_balance(tmp_path, dynamo):
    """Nothing tells that PyTorch divides the rows, if the other factor has any length."""
    torch.manual_seed(0)
    path = export(tmp_path, Cosines(normalizes_both=False), torch.randn(2, 8), dynamo=dynamo)

    done = reconcile(path)

    assert done.returncode == 1, done.stdout


def test_another_row_in_a_classifier_by_cosines_does_not_balance(tmp_path):
    torch.manual_seed(0)
    net = Cosines()
    path = export(tmp_path, net, torch.randn(2, 8))
    torch.save({**net.state_dict(), "weight": net.weight.detach().roll(1, 0)}, path.with_suffix(".pt"))

    done = reconcile(path)

    assert done.returncode == 1, done.stdout
