"""Layers that PyTorch makes as copies of one: an exporter stores their equal weights once."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzer.account.audit import audit_model
from analyzer.reconciliation import reconcile_ledger

pytestmark = [
    pytest.mark.export,
    pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript-based ONNX export"),
    pytest.mark.filterwarnings("ignore:The feature will be removed:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Converting a tensor to a Python"),  # of the tracer
]


@pytest.mark.parametrize("is_dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_the_weights_of_layers_that_are_copies_balance_and_no_others(is_dynamo: bool, tmp_path: Path) -> None:
    import torch
    from torch import nn

    from exporter.census import take_census

    layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
    module = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    path = tmp_path / "encoder.onnx"
    torch.onnx.export(
        module, (torch.randn(2, 5, 32),), str(path), dynamo=is_dynamo, external_data=False, verbose=False
    )
    ledger = audit_model(path)

    assert reconcile_ledger(ledger, take_census(module), "full").balanced
    assert ledger.parameters < sum(parameter.numel() for parameter in module.parameters())

    with torch.no_grad():
        module.layers[2].linear1.weight[3, 5] += 1
    assert not reconcile_ledger(ledger, take_census(module), "full").balanced
