"""Weights that PyTorch computes from others, beside its program: honest exports are the same, and no others pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import run_here
from onnx import numpy_helper

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.export, pytest.mark.slow]

COMPUTED = """
import torch
from torch import nn
from torch.nn import functional as F
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.square, self.mask = nn.Linear(8, 8), torch.randint(0, 2, (8, 8)).float()
        self.log, self.table = nn.Parameter(torch.randn(8, 4)), nn.Parameter(torch.randn(15, 2))
        self.one, self.two = nn.Parameter(torch.randn(2, 2)), nn.Parameter(torch.randn(4, 4))
        self.twin, self.norm = nn.Linear(8, 8), nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))
        self.register_buffer("places", (torch.arange(8)[:, None] - torch.arange(8)) + 7)
    def forward(self, x):  # 2 x 8 x 8
        x = F.linear(x, self.square.weight * self.mask, self.square.bias)
        x = torch.cat([*reversed(x.split([3, 5], -1))], -1)
        x = F.softplus(x + self.table[self.places].permute(2, 0, 1))
        x = self.twin(torch.tanh(x @ torch.kron(self.one, self.two)))
        y = torch.einsum("bij,bik,jd->bkd", x, x, -torch.exp(self.log))
        return self.norm(F.pixel_shuffle(x[:, None].reshape(2, 4, 4, 4), 2).flatten(1)[:, :8]), y
def factory():
    torch.manual_seed(0)
    net = Net().eval()
    for each in net.parameters():
        nn.init.normal_(each, 0, 0.3)
    net.twin.weight.data.copy_(net.square.weight)  # equal, and not tied
    return net, (torch.randn(2, 8, 8),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("computed")
    (folder / "computed.py").write_text(COMPUTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_here("export", "computed:factory", "-o", folder / "out", "--quiet")
        run_here(
            "export", "computed:factory", "-o", folder / "raw", "--via", "dynamo", "--no-optimize", "--quiet"
        )
    return folder


@pytest.mark.parametrize("how", ["out", "raw"])
def test_an_honest_export_is_the_same_and_balances(folder: Path, how: str) -> None:
    model = folder / how / "model.onnx"
    operators = {node.op_type for node in onnx.load(model).graph.node}
    assert ("SplitToSequence" in operators) is (how == "raw")

    verified = run_here("verify", model, "--static", "--format", "json")

    document = json.loads(verified.stdout)
    assert (verified.returncode, document["same"]) == (0, True), document["uncovered"]
    assert run_here("reconcile", model, "--quiet").returncode == 0


def shaped(model: onnx.ModelProto, shape: list[int], wanted: np.ndarray) -> onnx.TensorProto:
    """Return the stored tensor with these values."""
    return next(
        each
        for each in model.graph.initializer
        if [*each.dims] == shape and np.allclose(numpy_helper.to_array(each), wanted, atol=1e-6)
    )


def put(tensor: onnx.TensorProto, array: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), tensor.name))


def net() -> object:
    scope: dict[str, object] = {}
    exec(COMPUTED, scope)
    return scope["factory"]()[0]  # type: ignore[operator]


def without_its_sign(model: onnx.ModelProto, made: dict[str, np.ndarray]) -> None:
    put(shaped(model, [8, 4], -np.exp(made["log"])), np.exp(made["log"]))


def without_its_mask(model: onnx.ModelProto, made: dict[str, np.ndarray]) -> None:
    product = made["square.weight"] * made["mask"]
    for turned in (False, True):
        for each in model.graph.initializer:
            array = numpy_helper.to_array(each)
            if [*each.dims] == [8, 8] and np.allclose(array, product.T if turned else product, atol=1e-6):
                put(each, made["square.weight"].T if turned else made["square.weight"])
                return
    raise AssertionError("the product is not stored")


def turned(model: onnx.ModelProto, made: dict[str, np.ndarray]) -> None:
    product = np.kron(made["one"], made["two"])
    put(shaped(model, [8, 8], product), product.T)


def rows_exchanged(model: onnx.ModelProto, made: dict[str, np.ndarray]) -> None:
    """Exchange two rows of a folded table lookup."""
    (tensor,) = [each for each in model.graph.initializer if [*each.dims] == [2, 8, 8]]
    put(tensor, numpy_helper.to_array(tensor)[:, [1, 0, *range(2, 8)]])


@pytest.mark.parametrize(
    "fault", [without_its_sign, without_its_mask, turned, rows_exchanged], ids=lambda each: each.__name__
)
def test_no_stand_in_passes(
    folder: Path, tmp_path: Path, fault: Callable[[onnx.ModelProto, dict[str, np.ndarray]], None]
) -> None:
    module = net()
    made = {name: each.detach().numpy() for name, each in module.named_parameters()}  # type: ignore[attr-defined]
    made["mask"] = module.mask.numpy()  # type: ignore[attr-defined]
    model = onnx.load(folder / "out" / "model.onnx")
    fault(model, made)
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "manifest.json").write_bytes((folder / "out" / "manifest.json").read_bytes())

    assert run_here("reconcile", tmp_path / "model.onnx", "--quiet").returncode == 1
    assert run_here("verify", tmp_path / "model.onnx", "--static", "--quiet").returncode in (1, 2)


GUARDED = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)
    def forward(self, x):
        x = torch.relu(self.up(x))
        return self.down(x / (x.sum(-1, keepdim=True) + 1e-8))
def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.rand(4, 6) + 1,)
"""


@pytest.mark.time
@pytest.mark.usefixtures("forked_children")
def test_a_guard_of_a_quotient_that_the_exporter_left_out_is_reported(tmp_path: Path) -> None:
    (tmp_path / "guarded.py").write_text(GUARDED)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        run_here("export", "guarded:factory", "-o", tmp_path / "out", "--quiet")
        model = onnx.load(tmp_path / "out" / "model.onnx")
        assert [node.op_type for node in model.graph.node].count("Add") == 0, "the exporter keeps it now"
        verified = run_here("verify", tmp_path / "out" / "model.onnx", "--format", "json")

    assert any(
        "divisions that PyTorch does not do" in each for each in json.loads(verified.stdout)["uncovered"]
    )


HOLDING = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.read, self.other = nn.Linear(8, 4), nn.utils.weight_norm(nn.Linear(8, 4))
    def forward(self, x):
        return self.read(x)
def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(2, 8),)
"""


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_product_that_a_module_keeps_and_forward_does_not_read_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "holding.py").write_text(HOLDING)
    monkeypatch.chdir(tmp_path)
    run_here("export", "holding:factory", "-o", tmp_path / "out", "--quiet")

    verified = run_here("verify", tmp_path / "out" / "model.onnx", "--format", "json")

    assert (verified.returncode, json.loads(verified.stdout)["same"]) == (0, True), verified.stderr
