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
            done = run_here("export", f"otherwise_nets:{name}", "-o", str(made), "--via", exporter)
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
