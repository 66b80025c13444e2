"""The one-line calls give the commands' answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from models import noise, save, text_model
from safetensors.numpy import save_file

import analyzer
from analyzer.errors import UsageError

TEXT = """
    <ir_version: 10, opset_import: ["" : 20]>
    agraph (float[n, 6] x) => (float[n, 4] y) { y = MatMul(x, weight) }
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(tmp_path, text_model(TEXT, {"weight": noise(6, 4)}))


def test_inspect_accounts_and_groups(model: Path) -> None:
    report = analyzer.inspect(model, by="op")

    assert report.ledger.parameters == 24
    assert [(group.name, group.parameters) for group in report.grouping.groups] == [("MatMul", 24)]
    assert '"parameters": 24' in analyzer.render_report(report, "json")


def test_compare_takes_models_and_saved_reports(model: Path, tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    saved.write_text(analyzer.render_report(analyzer.inspect(model), "json"))

    assert analyzer.compare(model, model, content="full").tensors
    assert analyzer.compare(saved, model).groups
    with pytest.raises(UsageError, match=r"report\.json: a saved report has no values"):
        analyzer.compare(saved, model, content="full")


def test_reconcile_finds_a_checkpoint_to_balance(model: Path, tmp_path: Path) -> None:
    save_file({"weight": noise(6, 4)}, tmp_path / "good.safetensors")
    save_file({"weight": noise(6, 4, seed=1)}, tmp_path / "other.safetensors")

    assert analyzer.reconcile(model, tmp_path / "good.safetensors").balanced
    assert not analyzer.reconcile(model, tmp_path / "other.safetensors", "full").balanced
    with pytest.raises(UsageError, match=r"no manifest\.json is beside it"):
        analyzer.reconcile(model)
