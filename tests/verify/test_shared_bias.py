"""A bias whose codes two products read at different scales: onnxruntime's quantizer rounds it for the first product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import run_here

pytest.importorskip("torch")
pytestmark = [pytest.mark.time, pytest.mark.export, pytest.mark.usefixtures("forked_children")]

FACTORY = """
import torch
from torch import nn


class Twins(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tower = nn.Conv2d(3, 6, 3)
        nn.init.normal_(self.tower.bias, std=2.0)

    def forward(self, a, b):
        return self.tower(a) - self.tower(b)


def build():
    return Twins().eval(), (torch.randn(2, 3, 8, 8), 3 * torch.randn(2, 3, 8, 8))
"""


def round_all(source: Path, target: Path, form: str) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    draws = [np.random.default_rng(seed).normal(size=(2, 2, 3, 8, 8)).astype("f4") for seed in range(4)]
    samples = [{"a": a, "b": 3 * b} for a, b in draws]

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, object] | None:
            return samples.pop() if samples else None

    quantize_static(source, target, Reader(), quant_format=QuantFormat[form])


@pytest.mark.parametrize(("form", "code"), [("QDQ", 0), ("QOperator", 1)])
def test_a_bias_that_is_right_for_one_of_two_calls_is_reported_with_its_scales(
    form: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin_net.py").write_text(FACTORY)
    done = run_here("export", "twin_net:build", "--static", "-o", "out", "--quiet")
    assert done.returncode == 0, done.stderr
    round_all(Path("out", "model.onnx"), Path("rounded.onnx"), form)

    done = run_here("verify", "rounded.onnx", "--against", "twin_net:build")

    assert done.returncode == code, done.stdout + done.stderr
    sentence = "tower.bias: its codes are read with scales from "
    assert (sentence in " ".join(done.stdout.split())) is bool(code)
