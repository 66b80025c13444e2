"""`export --verify`: the file runs beside PyTorch right after the export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import run_here

pytest.importorskip("torch")
pytestmark = [pytest.mark.time, pytest.mark.export]

FACTORY = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        return self.last(hidden + TRACED)


TRACED = 0.0


def build():
    return Net().eval(), (torch.ones(2, 8),)


def turned():
    global TRACED
    TRACED += 1.0  # each time that it is made the module computes something else
    return build()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "verified_nets.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_report_of_a_run_is_beside_the_file_and_below_the_bridge(folder: Path) -> None:
    done = run_here("export", "verified_nets:build", "-o", "out", "--verify")

    assert done.returncode == 0
    assert done.stdout.index("balanced, unexplained 0") < done.stdout.index("computes the same: 1 output")
    assert json.loads((folder / "out" / "verify.json").read_text())["same"] is True

    again = run_here("export", "verified_nets:build", "-o", "out")
    assert again.returncode == 0
    assert not (folder / "out" / "verify.json").exists(), "it was of another file"


def test_an_export_that_computes_something_else_fails(folder: Path) -> None:
    done = run_here("export", "verified_nets:turned", "-o", "out", "--verify")

    assert done.returncode == 1
    assert "balanced, unexplained 0" in done.stdout
    assert json.loads((folder / "out" / "verify.json").read_text())["same"] is False


def test_parts_of_a_generation_loop_are_refused_before_any_work(folder: Path) -> None:
    done = run_here("export", "verified_nets:build", "-o", "out", "--verify", "--generation")

    assert done.returncode == 2
    assert "--verify: runs one file" in done.stderr
    assert not (folder / "out").exists()
