"""Outputs under their names in another order: a run returns them in order, so that the file computes something else."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from commands import run_here

pytest.importorskip("torch")
pytestmark = [pytest.mark.export, pytest.mark.usefixtures("forked_children")]

FACTORY = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(6, 4), torch.nn.Linear(6, 4)
    def forward(self, x):
        return self.one(x).tanh(), self.two(x).sigmoid()
def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(3, 6),)
"""


@pytest.fixture
def turned(tmp_path: Path) -> Path:
    (tmp_path / "two_outputs.py").write_text(FACTORY)
    done = run_here("export", "two_outputs:factory", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    path = tmp_path / "out" / "model.onnx"
    model = onnx.load(path)
    outputs = list(model.graph.output)[::-1]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("how", [["--static"], ["--seed", "0"]])
def test_outputs_in_another_order_are_others(turned: Path, how: list[str]) -> None:
    done = run_here("verify", turned, *how, "--format", "json", cwd=turned.parents[1])

    assert done.returncode > 0
    assert not json.loads(done.stdout)["same"]


def test_reconcile_does_not_say_that_they_are_wired_as_exported(turned: Path) -> None:
    done = run_here("reconcile", turned, cwd=turned.parents[1])

    assert "wired as exported" not in done.stdout
    assert "computes the same" not in done.stdout


@pytest.mark.parametrize("how", [["--static"], ["--seed", "0"]], ids=["static", "run"])
@pytest.mark.parametrize(
    ("kept", "same"), [("ab", True), ("a", True), ("b", False), ("ba", False), ("c", False)]
)
def test_outputs_behind_those_of_the_file_are_left_out_and_the_report_says_so(
    tmp_path: Path, how: list[str], kept: str, same: bool
) -> None:
    """YOLOv6 returns maps of features too outside of an export. Without names, a run pairs outputs by their shapes."""
    text = FACTORY.replace(".sigmoid()", ".sigmoid(), x.cos()").replace("(6, 4)", "(6, 6)")
    (tmp_path / "three_outputs.py").write_text(text)
    done = run_here("export", "three_outputs:factory", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    path = tmp_path / "out" / "model.onnx"
    model = onnx.load(path)
    outputs = dict(zip("abc", model.graph.output, strict=True))
    del model.graph.output[:]
    model.graph.output.extend(outputs[name] for name in kept)
    onnx.save(model, path)

    done = run_here("verify", path, *how, "--format", "json", cwd=tmp_path)

    document = json.loads(done.stdout)
    assert document["same"] is same
    assert (done.returncode == 0) is same
    if same:
        assert len(document["outputs"]) == len(kept)
        assert f"outputs that the file lacks: {3 - len(kept)}" in " ".join(document["uncovered"])
    assert "computes the same" not in run_here("reconcile", path, cwd=tmp_path).stdout
