"""Records as shown in a console and in a notebook, and their rows for a data frame."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import manifest_of, parameter, ramp, text_model

import analyzer
from analyzer import audit_model, compare_ledgers, group_by, reconcile_ledger
from analyzer.account.ledger import Ledger

HOSTILE = "<b>&\x1b[31m"


def ledger_of(folder: Path, count: int = 3, name: str = "m.onnx") -> Ledger:
    weights = {f"layer.{i}.weight": ramp(4, 4) + np.float32(i) for i in range(count)}
    steps = " ".join(f'x{i + 1} = MatMul(x{i}, "layer.{i}.weight")' for i in range(count))
    proto = text_model(f"g (float[1,4] x0) => (float[1,4] x{count}) {{ {steps} }}", weights)
    path = folder / name
    onnx.save(proto, path)
    return audit_model(path)


def test_a_record_is_declared_as_contributing_says() -> None:
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    made: dict[str, Any] = {}
    exec(compile(block, "CONTRIBUTING.md", "exec"), made)
    part, longer = made["Part"], made["longer"]

    assert repr(longer) == "Part(name='weight', nbytes=24, uses={})"
    assert part("a", _read={0: b"x"}) == part("a")
    assert dataclasses.asdict(longer)["nbytes"] == 24
    with pytest.raises(AttributeError):
        longer.nbytes = 8


def test_a_record_says_in_a_line_what_it_is(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    parameters = [parameter(f"layer.{i}.weight", ramp(4, 4) + np.float32(i)) for i in range(3)]
    manifest = manifest_of(*parameters)
    texts = {
        repr(ledger),
        repr(ledger.model),
        repr(ledger.model.graphs[0]),
        repr(group_by(ledger, "dtype")),
        repr(manifest),
        repr(reconcile_ledger(ledger, manifest)),
        repr(compare_ledgers(ledger, ledger, *[group_by(ledger)] * 2)),
    }

    path = str(tmp_path / "m.onnx")
    assert texts == {
        f"<Ledger {path}: 48 parameters, 3 tensors, 0 findings>",
        f"<Model {path}: 3 tensors, 3 nodes, 1 graph>",
        "<Graph main: 3 tensors, 3 nodes>",
        "<Grouping by dtype: 1 group>",
        "<Manifest: 48 parameters in 3 tensors, 0 buffers>",
        f"<Reconciliation {path}: balanced, 48 parameters in PyTorch, content full>",
        f"<Comparison {path} -> {path}: +0 parameters, +0 bytes>",
    }


def test_rows_sum_to_the_totals_and_have_the_keys_of_the_json(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    document = analyzer.to_document(analyzer.Inspection(ledger, group_by(ledger)))
    rows, groups = ledger.rows(), group_by(ledger).rows()

    assert sum(int(str(row["parameters"])) for row in rows) == ledger.parameters == 48
    assert sum(int(str(row["parameters"])) for row in groups) == 48
    assert rows[0].keys() <= document["tensors"][0].keys()
    assert groups[0].keys() <= document["groups"][0].keys()


def test_a_notebook_shows_a_table_whose_texts_are_escaped(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, 40, f"{HOSTILE}.onnx")
    page = ledger._repr_html_()

    assert "<b>" not in page
    assert "\x1b" not in page
    assert page.count("<tr>") == 27
    assert "and 15 more" in re.sub(r"<[^>]*>", "", page)


def test_the_library_says_its_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+.*|unknown", analyzer.__version__)
