"""Files that others made, against facts that were established without onnxledger."""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analyzer.audit import audit_model
from analyzer.errors import ModelReadError
from analyzer.ledger import Ledger
from analyzer.model import Carrier

FOLDER = Path(os.environ.get("ONNXLEDGER_CASES", Path(__file__).parent.parent.parent / "shared"))
EXPECTED = FOLDER / "models" / "expected.json"
DENSE = (Carrier.INITIALIZER, Carrier.CONSTANT, Carrier.ATTRIBUTE_TENSOR)

Case = dict[str, Any]


def cases(loadable: bool) -> list[Any]:
    """The cases, or one that skips: where the folder is absent the fixture says so."""
    if not EXPECTED.is_file():
        return [pytest.param({}, id="absent")]
    found = json.loads(EXPECTED.read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["case"]) for case in found if case["facts"]["loadable"] is loadable]


@pytest.fixture
def models(shared: Path) -> Path:
    if not (shared / "models" / "expected.json").is_file():
        pytest.skip(f"no models/expected.json in {shared}")
    return shared / "models"


@functools.cache
def ledger_of(path: Path) -> Ledger:
    """Each model is read once for all of its tests."""
    return audit_model(path)


@pytest.mark.parametrize("case", cases(loadable=True))
def test_stored_elements_are_those_of_the_case(models: Path, case: Case) -> None:
    ledger = ledger_of(models / case["file"])

    stored = sum(entry.tensor.numel for entry in ledger.entries if entry.tensor.carrier in DENSE)
    assert stored == case["facts"]["all_stored_tensor_elems"]


@pytest.mark.parametrize("case", cases(loadable=True))
def test_initializers_by_dtype_are_those_of_the_case(models: Path, case: Case) -> None:
    ledger = ledger_of(models / case["file"])

    by_dtype: Counter[str] = Counter()
    for entry in ledger.entries:
        if entry.tensor.carrier is Carrier.INITIALIZER:
            by_dtype[entry.tensor.dtype.name] += entry.tensor.numel
    assert +by_dtype == +Counter(case["facts"]["init_elems_by_dtype"])


@pytest.mark.parametrize("case", cases(loadable=True))
def test_nodes_are_those_of_the_case(models: Path, case: Case) -> None:
    ledger = ledger_of(models / case["file"])

    assert sum(1 for _ in ledger.model.nodes()) == case["facts"]["n_nodes_all"]


@pytest.mark.parametrize("case", cases(loadable=True))
def test_accounts_sum_to_the_sizes_on_disk(models: Path, case: Case) -> None:
    path = models / case["file"]

    ledger = ledger_of(path)

    on_disk = [path, *(path.parent / file.path for file in ledger.model.files[1:])]
    assert sum(account.nbytes for account in ledger.accounts) == sum(file.stat().st_size for file in on_disk)


@pytest.mark.parametrize("case", cases(loadable=True))
def test_parameters_are_no_more_than_logical_elements(models: Path, case: Case) -> None:
    ledger = ledger_of(models / case["file"])

    packed = case["facts"]["nbits_logical_weights"]
    assert 0 <= ledger.parameters <= ledger.stored_elements + packed


@pytest.mark.parametrize("case", cases(loadable=False))
def test_unreadable_case_is_refused_by_its_name(models: Path, case: Case) -> None:
    path = models / case["file"]

    with pytest.raises(ModelReadError, match=path.name):
        audit_model(path)


def test_reading_the_cases_writes_nothing(models: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in models.rglob("*")}

    before = state()

    for case in json.loads((models / "expected.json").read_text(encoding="utf-8"))["cases"]:
        if case["facts"]["loadable"] and case["facts"]["size"] < 100_000:
            audit_model(models / case["file"])

    assert state() == before
