"""Programs of PyTorch with regions, such as rotary angles that are computed with autocast switched off."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from commands import run_here
from onnx import numpy_helper

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.export, pytest.mark.slow]

SOURCE = """
import torch


class Rotary(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scales", torch.linspace(1.0, 7.3, 8))

    @torch.autocast("cuda", enabled=False)
    def forward(self, x):
        places = torch.linspace(-1.0, 1.0, x.shape[1])[:, None] * self.scales * torch.pi
        return places.sin(), places.cos()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rotary, self.first, self.last = Rotary(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 3)
        self.register_buffer("eps", torch.zeros(1))

    def forward(self, x):
        with torch.no_grad():
            sin, cos = self.rotary(x)
        with torch.autocast("cpu", enabled=False):
            one, other = self.first(x).chunk(2, -1)
        turned = torch.cat([one * cos - other * sin, other * cos + one * sin], -1)
        return self.last(torch.relu(turned) + (1 + self.eps) * x)


def make():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(2, 12, 16),)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("regions")
    (folder / "net_of_regions.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        done = run_here("export", "net_of_regions:make", "-o", str(folder / "out"))
        assert done.returncode == 0, done.stdout + done.stderr
        yield folder


def test_tables_that_a_region_computes_are_pytorchs(exported):
    done = run_here("reconcile", str(exported / "out/model.onnx"), "--against", str(exported / "out"))

    assert done.returncode == 0, done.stdout


def test_the_record_has_the_calls_in_regions(exported):
    [calls] = json.loads((exported / "out/manifest.json").read_text())["calls"]
    found = {call["operator"]: call["module"] for call in calls["calls"]}

    assert not calls["note"]
    assert found["sin"] == found["cos"] == "rotary"
    assert found["linear"] in ("first", "last")


def test_a_file_with_regions_computes_the_same(exported):
    done = run_here(
        "verify", str(exported / "out/model.onnx"), "--against", str(exported / "out"), "--static"
    )

    assert done.returncode == 0, done.stdout


def test_a_number_that_is_made_from_a_buffer_is_not_the_buffer(exported, tmp_path):
    """The file stores 1 + eps, noted as made from eps, which is 0."""
    model = onnx.load(exported / "out/model.onnx")
    stored = next(
        t for t in model.graph.initializer if list(t.dims) == [1] and t.data_type == onnx.TensorProto.FLOAT
    )
    assert numpy_helper.to_array(stored).tolist() == [1.0]
    stored.CopyFrom(numpy_helper.from_array(np.array([1.5], np.float32), stored.name))
    onnx.save(model, tmp_path / "other.onnx")

    done = run_here("verify", str(tmp_path / "other.onnx"), "--against", str(exported / "out"), "--static")

    assert done.returncode == 1, done.stdout
