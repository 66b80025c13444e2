"""Tables that an exporter writes for one PyTorch operator belong to PyTorch; tables off by one place do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import run_here
from onnx import numpy_helper

pytest.importorskip("torch")
pytestmark = pytest.mark.export

FACTORY = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, forward):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last, self.made = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 3, 1), forward

    def forward(self, image):
        return self.last(self.made(self.first(image)))


class Idle(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.step = nn.Linear(6, 4), nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.body(x)


class Codebook(nn.Module):
    # The word of a codebook that is nearest to each row, as quantized autoencoders take it.

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.body, self.words = nn.Linear(6, 5), nn.Embedding(9, 5)

    def forward(self, x):
        near = torch.cdist(self.body(x), self.words.weight).argmin(1)
        return self.words(near)


class Standardized(nn.Module):
    # A weight that forward standardizes, too large for an exporter to do it in advance, times a gain that is not.

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Conv2d(2, 48, 1)
        self.weight, self.gain = nn.Parameter(torch.randn(48, 48, 3, 3)), nn.Parameter(torch.randn(48))

    def forward(self, image):
        flat = self.weight.reshape(1, 48, -1)
        weight = F.batch_norm(flat, None, None, self.gain * 0.3, training=True, momentum=0.0).reshape_as(self.weight)
        return F.adaptive_avg_pool2d(F.conv2d(self.first(image), weight), 3)


def standardized():
    return Standardized().eval(), (torch.randn(1, 2, 8, 8),)


class Spread(nn.Module):
    # Weights that the file standardizes when it runs: it rounds otherwise than PyTorch.

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.norm, self.last = nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 16)

    def forward(self, image):
        weight = self.first.weight
        spread = weight.std((1, 2, 3), keepdim=True) + 1e-5
        weight = (weight - weight.mean((1, 2, 3), keepdim=True)) / spread
        hidden = self.norm(F.conv2d(image, weight, self.first.bias)).relu().mean((2, 3))
        return F.linear(hidden, self.last.weight.sign() * self.last.weight.abs().mean(), self.last.bias)


def spread():
    return Spread().eval(), (torch.randn(1, 2, 8, 8),)


class Resized(nn.Module):
    # Positions of a 2x3 image, stretched to that of the patches, as a vision transformer stretches its table.

    def __init__(self, mode, in_rows):
        super().__init__()
        torch.manual_seed(4)
        self.patches, self.last, self.mode = nn.Conv2d(2, 5, 2, 2), nn.Linear(5, 3), mode
        self.in_rows = in_rows
        self.positions = nn.Parameter(torch.randn(1, 6, 5) if in_rows else torch.randn(1, 5, 2, 3))

    def forward(self, image):
        x = self.patches(image)
        table = self.positions.reshape(1, 2, 3, 5).permute(0, 3, 1, 2) if self.in_rows else self.positions
        table = F.interpolate(table, size=x.shape[2:], mode=self.mode, align_corners=False)
        return self.last((F.interpolate(x, scale_factor=2, mode=self.mode)[:, :, ::2, ::2] + table).mean((2, 3)))


def bicubic():
    return Resized("bicubic", False).eval(), (torch.randn(2, 2, 8, 8),)


def bilinear():
    return Resized("bilinear", True).eval(), (torch.randn(2, 2, 8, 8),)


class Tracked(nn.Module):
    # A normalization of instances with running statistics: an exporter repeats them for each example.

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.first, self.norm = nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
        for tensor in self.norm.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(4) + 0.5)

    def forward(self, image):
        return self.norm(self.first(image))


def tracked():
    return Tracked().eval(), (torch.randn(2, 2, 6, 6),)


class Recurrent(nn.Module):
    # The steps come first: an exporter computes the first one from a state of zeros, for each example.

    def __init__(self):
        super().__init__()
        torch.manual_seed(8)
        self.body, self.last = nn.RNN(5, 7), nn.Linear(7, 3)

    def forward(self, x):
        return self.last(self.body(x)[0][-1])


def recurrent():
    return Recurrent().eval(), (torch.randn(6, 2, 5),)


def turned(x):
    grid = F.affine_grid(x.mean((2, 3))[:, :1, None] * torch.ones(2, 3), (x.shape[0], 4, 8, 8), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def fixed(x):
    turn = torch.tensor([[[0.8, 0.1, 0], [0, 0.9, 0.1]]]).expand(x.shape[0], 2, 3)
    return F.grid_sample(x, F.affine_grid(turn, (x.shape[0], 4, 6, 6), align_corners=True), align_corners=True)


def turned_once():
    return Net(fixed).eval(), (torch.randn(1, 2, 8, 8),)


def pooled():
    return Net(lambda x: F.adaptive_avg_pool2d(x, 3)).eval(), (torch.randn(1, 2, 8, 8),)


def sampled():
    return Net(turned).eval(), (torch.randn(2, 2, 8, 8),)


def coded():
    return Codebook().eval(), (torch.randn(30, 6),)


def idle():
    return Idle().eval(), (torch.randn(2, 6),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("opened")
    (made / "opened_nets.py").write_text(FACTORY)
    return made


@pytest.mark.parametrize(
    ("name", "exporter"),
    [
        ("pooled", "dynamo"),
        ("sampled", "dynamo"),
        ("idle", "dynamo"),
        ("turned_once", "torchscript"),
        ("coded", "dynamo"),
        ("standardized", "dynamo"),
        ("standardized", "torchscript"),
        ("spread", "dynamo"),
        ("spread", "torchscript"),
        ("bicubic", "dynamo"),
        ("bilinear", "dynamo"),
    ],
)
def test_an_honest_file_balances_beside_its_manifest_and_beside_its_source(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, exporter: str
) -> None:
    monkeypatch.chdir(folder)

    folder_of_file = f"{name}-{exporter}"
    exported = run_here("export", f"opened_nets:{name}", "-o", folder_of_file, "--via", exporter)
    beside = run_here("reconcile", f"{folder_of_file}/model.onnx", "--against", f"opened_nets:{name}")

    assert exported.returncode == 0, exported.stdout
    assert beside.returncode == 0, beside.stdout


def test_an_index_that_is_off_by_one_place_is_no_table_of_pytorch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    if not Path("pooled").exists():
        assert run_here("export", "opened_nets:pooled", "-o", "pooled", "--via", "dynamo").returncode == 0
    model = onnx.load("pooled/model.onnx")
    (gather,) = (node for node in model.graph.node if node.op_type == "GatherND")
    (stored,) = (each for each in model.graph.initializer if each.name == gather.input[1])
    places = numpy_helper.to_array(stored).copy()
    places[1, 2, 1, 2, 0] -= 1
    stored.CopyFrom(numpy_helper.from_array(places, stored.name))
    onnx.save(model, "moved.onnx")

    result = run_here("reconcile", "moved.onnx", "--against", "pooled/manifest.json")

    assert np.unique(places).size > 2
    assert result.returncode == 1
    assert f"{stored.name} [opaque]" in result.stdout


def test_one_number_of_what_was_computed_of_a_codebook_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words are unchanged; one of the squares stored beside them is changed."""
    monkeypatch.chdir(folder)
    if not Path("coded").exists():
        assert run_here("export", "opened_nets:coded", "-o", "coded", "--via", "dynamo").returncode == 0
    model = onnx.load("coded/model.onnx")
    (stored,) = (each for each in model.graph.initializer if sorted(each.dims) == [7, 9])
    numbers = numpy_helper.to_array(stored).copy()
    numbers[-1, 4] += 0.5
    stored.CopyFrom(numpy_helper.from_array(numbers, stored.name))
    onnx.save(model, "changed.onnx")

    result = run_here("reconcile", "changed.onnx", "--against", "opened_nets:coded")

    assert result.returncode == 1
    assert "DOES NOT BALANCE" in result.stdout


@pytest.mark.parametrize("name", ["bicubic", "bilinear"])
def test_one_number_of_resized_positions_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(folder)
    if not Path(f"{name}-dynamo").exists():
        made = run_here("export", f"opened_nets:{name}", "-o", f"{name}-dynamo", "--via", "dynamo")
        assert made.returncode == 0, made.stdout
    model = onnx.load(f"{name}-dynamo/model.onnx")
    (stored,) = (each for each in model.graph.initializer if list(each.dims) == [1, 5, 4, 4])
    numbers = numpy_helper.to_array(stored).copy()
    numbers[0, 3, 1, 2] += 1e-3
    stored.CopyFrom(numpy_helper.from_array(numbers, stored.name))
    onnx.save(model, "stretched.onnx")

    result = run_here("reconcile", "stretched.onnx", "--against", f"{name}-dynamo/manifest.json")

    assert result.returncode == 1
    assert "DOES NOT BALANCE" in result.stdout
    assert "positions" in result.stdout


REPEATED = {"tracked": [8], "recurrent": [1, 2, 7]}


@pytest.fixture
def repeated(folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Export a net with fixed axes, and return its name."""
    monkeypatch.chdir(folder)
    name = str(request.param)
    if not Path(f"{name}-static").exists():
        made = run_here(
            "export", f"opened_nets:{name}", "-o", f"{name}-static", "--via", "dynamo", "--static"
        )
        assert made.returncode == 0, made.stdout
    return name


@pytest.mark.parametrize("repeated", REPEATED, indirect=True)
def test_what_an_exporter_repeats_for_each_example_balances(repeated: str) -> None:
    for source in (f"opened_nets:{repeated}", f"{repeated}-static/manifest.json"):
        result = run_here("reconcile", f"{repeated}-static/model.onnx", "--against", source)

        assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("how", ["one number", "the other's"])
@pytest.mark.parametrize("repeated", REPEATED, indirect=True)
def test_what_is_repeated_otherwise_is_reported(repeated: str, how: str) -> None:
    model = onnx.load(f"{repeated}-static/model.onnx")
    every = [
        each
        for each in model.graph.initializer
        if list(each.dims) == REPEATED[repeated] and each.data_type == onnx.TensorProto.FLOAT
    ]
    numbers = numpy_helper.to_array(every[0]).copy()
    if how == "one number":
        numbers.reshape(-1)[-1] += 1e-2
    elif len(every) > 1:
        numbers = numpy_helper.to_array(every[1])
    else:
        other = next(each for each in model.graph.initializer if each.name.endswith("bias_ih_l0"))
        numbers[:] = numpy_helper.to_array(other)
    every[0].CopyFrom(numpy_helper.from_array(numbers, every[0].name))
    onnx.save(model, "other.onnx")

    result = run_here("reconcile", "other.onnx", "--against", f"{repeated}-static/manifest.json")

    assert result.returncode == 1, result.stdout
