"""Embeddings whose codes an integer product also reads, as `quantize_dynamic` of onnxruntime writes real exports."""

from __future__ import annotations

from typing import Any

import pytest

from analyzer import Manifest, audit_model, reconcile_ledger, recover_state
from analyzer.account.ledger import Ledger
from analyzer.recover.ownnames import read_own_names

pytest.importorskip("torch")
quantization = pytest.importorskip("onnxruntime.quantization")

pytestmark = [
    pytest.mark.export,
    pytest.mark.time,
    pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript-based ONNX export"),
    pytest.mark.filterwarnings("ignore:The feature will be removed:DeprecationWarning"),
]


def network(kind: str) -> Any:
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb = nn.Embedding(100, 16)
            is_convolution = kind == "convolution"
            self.head = nn.Conv1d(16, 8, 3) if is_convolution else nn.Linear(16, 100, bias=False)
            if kind == "tied":
                self.head.weight = self.emb.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            rows = self.emb(ids)
            return self.head(rows.transpose(1, 2) if kind == "convolution" else rows)

    torch.manual_seed(0)
    return Network().eval()


@pytest.fixture(scope="module", params=["convolution", "linear", "tied"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["dynamo", "torchscript"])
def quantized_export(
    request: pytest.FixtureRequest, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Ledger, Manifest]:
    """Return the ledger of the file, and the manifest of the PyTorch model."""
    import torch

    from exporter.census import take_census

    folder = tmp_path_factory.mktemp("tables")
    module, inputs = network(kind), (torch.zeros(2, 5, dtype=torch.long),)
    torch.onnx.export(
        module, inputs, str(folder / "whole.onnx"), dynamo=request.param == "dynamo", verbose=False
    )
    quantization.quantize_dynamic(folder / "whole.onnx", folder / "model.onnx")
    return audit_model(folder / "model.onnx"), take_census(module)


def test_a_quantized_table_balances(quantized_export: tuple[Ledger, Manifest]) -> None:
    ledger, manifest = quantized_export

    result = reconcile_ledger(ledger, manifest, "full")

    assert result.balanced
    assert ledger.parameters == manifest.numel
    assert all(line.decided_by.partition(":")[0].endswith("content") for line in result.parameters)


def test_a_quantized_table_is_recovered_in_floats(quantized_export: tuple[Ledger, Manifest]) -> None:
    ledger, _ = quantized_export
    original, refused = read_own_names(ledger)

    recovery = recover_state(reconcile_ledger(ledger, original.manifest), refused)

    assert {tensor.dtype.name for tensor in recovery.tensors} == {"FLOAT"}
    assert any(tensor.shape == (100, 16) and tensor.loss for tensor in recovery.tensors)
