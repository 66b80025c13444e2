"""Biases by distance, picked or computed, and sinusoids of an image: a state dict alone accounts for them.

The index and the sinusoids are no part of a state dict, as in LeViT, TinyViT, EfficientFormer and EdgeNeXt of timm.
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

SIDE, HEADS = 5, 4


class Attention(torch.nn.Module):
    """Attention over a grid, whose biases are picked in forward or, as LeViT's in `eval`, once before it."""

    def __init__(self, *, cached: bool) -> None:
        super().__init__()
        self.packed, self.last = torch.nn.Linear(16, 48), torch.nn.Linear(16, 3)
        self.attention_biases = torch.nn.Parameter(torch.randn(HEADS, SIDE * SIDE))
        row, column = np.divmod(np.arange(SIDE * SIDE), SIDE)
        places = np.abs(row[:, None] - row) * SIDE + np.abs(column[:, None] - column)
        self.register_buffer("attention_bias_idxs", torch.tensor(places), persistent=False)
        self.register_buffer("sinusoids", sinusoids(), persistent=False)
        self.project = torch.nn.Conv2d(16, 16, 1)
        self.cached = cached

    def forward(self, x):
        image = x.transpose(-2, -1).reshape(-1, 16, SIDE, SIDE) + self.sinusoids
        x = self.project(image).flatten(2).transpose(-2, -1)
        q, k, v = self.packed(x).reshape(-1, SIDE * SIDE, 3, HEADS, 4).permute(2, 0, 3, 1, 4)
        index = self.attention_bias_idxs.clone() if self.cached else self.attention_bias_idxs
        scores = q @ k.transpose(-2, -1) + self.attention_biases[:, index]
        return self.last((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, SIDE * SIDE, 16))


def sinusoids():
    """Return DETR's sines and cosines, (1, 16, side, side): half of the channels for rows, half for columns."""
    places = torch.arange(1, SIDE + 1) / (SIDE + 1e-6) * 2 * torch.pi
    turned = places[:, None] * 10000 ** (-torch.arange(4) / 4)  # (side, frequencies)
    waves = torch.stack([turned.sin(), turned.cos()], 2).flatten(1)  # (side, 8)
    rows, columns = waves[:, None].expand(-1, SIDE, -1), waves.expand(SIDE, -1, -1)
    return torch.cat([rows, columns], 2).permute(2, 0, 1)[None].clone()


@pytest.fixture(scope="module", params=["dynamo", "torchscript"])
def exported(request, tmp_path_factory) -> Path:
    torch.manual_seed(0)
    net = Attention(cached=True).eval()
    path = tmp_path_factory.mktemp(request.param) / "net.onnx"
    torch.save(net.state_dict(), path.with_suffix(".pt"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, (torch.randn(2, SIDE * SIDE, 16),), path, dynamo=request.param == "dynamo", verbose=False
        )
    return path


def reconcile(path: Path, checkpoint: Path):
    return run_here("reconcile", str(path), "--against", str(checkpoint))


def test_a_state_dict_alone_accounts_for_picked_biases(exported):
    done = reconcile(exported, exported.with_suffix(".pt"))

    assert done.returncode == 0, done.stdout


def test_one_other_bias_does_not_balance(exported, tmp_path):
    model = onnx.load(exported)
    picked = next(t for t in model.graph.initializer if len(t.dims) > 1 and t.dims[0] == HEADS)
    values = numpy_helper.to_array(picked).copy()
    values.reshape(-1)[7] += 1e-3
    picked.CopyFrom(numpy_helper.from_array(values, picked.name))
    onnx.save(model, tmp_path / "net.onnx")

    done = reconcile(tmp_path / "net.onnx", exported.with_suffix(".pt"))

    assert done.returncode == 1, done.stdout


class Computed(torch.nn.Module):
    """A bias that two layers compute from the logarithms of distances, as in Swin V2."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        self.up, self.down = torch.nn.Linear(2, 24), torch.nn.Linear(24, 16, bias=False)
        places = torch.arange(1 - SIDE, SIDE) * 8 / (SIDE - 1)
        table = torch.stack(torch.meshgrid(places, places, indexing="ij"), -1)  # (2 side - 1, 2 side - 1, 2)
        self.register_buffer("table", table.sign() * table.abs().log1p() / np.log(8), persistent=False)

    def forward(self, x):
        bias = self.down(self.up(self.table).relu()).sigmoid().reshape(-1, 16)
        return self.last(self.first(x) + bias)


@pytest.mark.parametrize("off", [0.0, 0.01])
def test_a_bias_may_be_computed_from_logarithms_of_distances(tmp_path, off):
    torch.manual_seed(0)
    net = Computed().eval()
    path = tmp_path / "net.onnx"
    torch.save(net.state_dict(), path.with_suffix(".pt"))
    net.table[2, 3, 1] += off
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (torch.randn(1, (2 * SIDE - 1) ** 2, 16),), path, dynamo=False)

    done = reconcile(path, path.with_suffix(".pt"))

    assert done.returncode == (1 if off else 0), done.stdout
