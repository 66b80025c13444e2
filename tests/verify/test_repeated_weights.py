"""Values computed from parameters and then rounded: the rounding error is no difference in computation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import run_here

pytest.importorskip("torch")
pytestmark = [pytest.mark.time, pytest.mark.export, pytest.mark.usefixtures("forked_children")]

FACTORY = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.token = nn.Parameter(torch.randn(1, 1, 64))
        self.first, self.last = nn.Linear(64, 16), nn.Linear(16, 4)

    def forward(self, x):
        hidden = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        return self.last(torch.relu(self.first(hidden)))


def build():
    return Net().eval(), (torch.randn(2, 3, 64),)


class Near(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.kinds, self.first = nn.Parameter(torch.randn(5, 16)), nn.Linear(64, 16)

    def forward(self, x):
        kinds = nn.functional.normalize(self.kinds - self.kinds.mean(1, keepdim=True), dim=1)
        return torch.tanh(self.first(x)) @ kinds.T


def near():
    return Near().eval(), (torch.randn(2, 3, 64),)


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(64, 16)
        self.register_buffer("turns", 1 / 10 ** torch.linspace(0, 2, 16), persistent=False)

    def forward(self, x):
        places = torch.arange(x.shape[1]).float()
        return torch.tanh(self.first(x)) + (places[:, None] * self.turns).cos()


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.share, self.first = nn.Parameter(torch.rand(64)), nn.Linear(64, 16)

    def forward(self, x):
        before = nn.functional.pad(x, (0, 0, 1, -1))
        return torch.tanh(self.first(x * self.share + before * (1 - self.share)))


def mixed():
    return Mixed().eval(), (torch.randn(2, 3, 64),)


def turned():
    return Turned().eval(), (torch.randn(2, 3, 64),)
"""


def round_all(source: Path, target: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    samples = [{"x": np.random.default_rng(seed).normal(size=(2, 3, 64)).astype("f4")} for seed in range(4)]

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, object] | None:
            return samples.pop() if samples else None

    quantize_static(source, target, Reader())


def export_net(source: str) -> None:
    """Export the source to the folder `out`."""
    Path("repeating_net.py").write_text(FACTORY)
    done = run_here("export", source, "--static", "-o", "out", "--quiet")
    assert done.returncode == 0, done.stderr


def make_rounded(source: str) -> None:
    """Export the source, and quantize all stored tensors."""
    export_net(source)
    round_all(Path("out", "model.onnx"), Path("rounded.onnx"))


def test_what_was_repeated_and_rounded_is_given_back_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_rounded("repeating_net:build")
    stored = {each.name: tuple(each.dims) for each in onnx.load("rounded.onnx").graph.initializer}
    assert (2, 1, 64) in stored.values(), stored  # once for each example of the batch

    honest = run_here("verify", "rounded.onnx", "--against", "repeating_net:build")

    assert honest.returncode == 0, honest.stdout + honest.stderr
    assert "computes the same: 1 output" in honest.stdout

    model = onnx.load("rounded.onnx")
    (token,) = (each for each in model.graph.initializer if tuple(each.dims) == (2, 1, 64))
    codes = onnx.numpy_helper.to_array(token).copy()
    codes[1] = codes[1][..., ::-1]  # in one of the two only
    token.CopyFrom(onnx.numpy_helper.from_array(codes, token.name))
    onnx.save(model, "changed.onnx")

    changed = run_here("verify", "changed.onnx", "--against", "repeating_net:build")

    assert changed.returncode == 1
    assert "DIFFERS" in changed.stdout


def test_what_was_computed_of_weights_and_rounded_is_computed_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_rounded("repeating_net:near")
    model = onnx.load("rounded.onnx")
    (kinds,) = (each for each in model.graph.initializer if tuple(each.dims) == (16, 5))

    honest = run_here("verify", "rounded.onnx", "--against", "repeating_net:near")
    codes = onnx.numpy_helper.to_array(kinds).copy()
    codes[:, 2] = codes[::-1, 2]
    kinds.CopyFrom(onnx.numpy_helper.from_array(codes, kinds.name))
    onnx.save(model, "changed.onnx")
    changed = run_here("verify", "changed.onnx", "--against", "repeating_net:near")

    assert honest.returncode == 0, honest.stdout + honest.stderr
    assert "computes the same: 1 output" in honest.stdout
    assert changed.returncode == 1
    assert "DIFFERS" in changed.stdout


def test_a_weight_and_what_is_computed_of_it_are_each_rounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    export_net("repeating_net:mixed")
    model = onnx.load(Path("out", "model.onnx"))
    casts = []
    for each in model.graph.initializer:
        if each.data_type == onnx.TensorProto.FLOAT:
            name, values = each.name, onnx.numpy_helper.to_array(each)
            each.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), f"{name}_half"))
            casts.append(onnx.helper.make_node("Cast", [each.name], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, "rounded.onnx")
    first, second = (each for each in model.graph.initializer if tuple(each.dims) == (64,))

    honest = run_here("verify", "rounded.onnx", "--against", "repeating_net:mixed")
    for changed in (first, second):
        kept = changed.raw_data
        values = onnx.numpy_helper.to_array(changed)[::-1].copy()
        changed.CopyFrom(onnx.numpy_helper.from_array(values, changed.name))
        onnx.save(model, f"{changed.name}.onnx")
        changed.raw_data = kept
    others = [
        run_here("verify", f"{each.name}.onnx", "--against", "repeating_net:mixed")
        for each in (first, second)
    ]

    assert honest.returncode == 0, honest.stdout + honest.stderr
    assert "computes the same: 1 output" in honest.stdout
    assert [each.returncode for each in others] == [1, 1]


def test_a_table_of_codes_that_say_nothing_is_not_computed_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_rounded("repeating_net:turned")
    model = onnx.load("rounded.onnx")
    stored = {each.name: each for each in model.graph.initializer}
    (table,) = (name for name, each in stored.items() if tuple(each.dims) == (3, 16))
    (decoder,) = (node for node in model.graph.node if node.input[:1] == [table])

    honest = run_here("verify", "rounded.onnx", "--against", "repeating_net:turned")
    for name, factor in ((table, 0), (decoder.input[1], 1000), (decoder.input[2], 0)):
        value = onnx.numpy_helper.to_array(stored[name])
        changed = (value * np.array(factor)).astype(value.dtype)
        stored[name].CopyFrom(onnx.numpy_helper.from_array(changed, name))
    onnx.save(model, "changed.onnx")
    changed_report = run_here("verify", "changed.onnx", "--against", "repeating_net:turned")

    assert honest.returncode == 0, honest.stdout + honest.stderr
    assert changed_report.returncode == 1, changed_report.stdout
