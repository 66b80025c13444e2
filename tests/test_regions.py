"""Programs of PyTorch with regions, such as rotary angles that are computed with autocast switched off."""

from __future__ import annotations

import json

import pytest
from commands import run_here

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

    def forward(self, x):
        with torch.no_grad():
            sin, cos = self.rotary(x)
        with torch.autocast("cpu", enabled=False):
            one, other = self.first(x).chunk(2, -1)
        turned = torch.cat([one * cos - other * sin, other * cos + one * sin], -1)
        return self.last(turned)


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
