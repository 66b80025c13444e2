"""What is said of a name with other values: only that, where the values are nowhere in the file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from models import external, manifest_of, noise, parameters_of, reconcile, text_model

from analyzer.content import Array
from analyzer.group import group_by
from analyzer.reconciliation import Reconciliation
from analyzer.render.json import render_json
from analyzer.report import ReconcileReport

A, B = noise(4, 6, seed=1), noise(4, 6, seed=2)
KNOWN: dict[str, Array] = {"a.weight": A, "b.weight": B}
TEXT = """
    g (float[1,4] x) => (float[1,6] y) { p = MatMul(x, "a.weight") q = MatMul(x, "b.weight") y = Sub(p, q) }
"""


def meet(folder: Path, stored: dict[str, Array]) -> Reconciliation:
    """Two weights of PyTorch's, beside a file that has what is stored under their names."""
    manifest = manifest_of(*parameters_of(KNOWN), values=KNOWN)
    return reconcile(folder, text_model(TEXT, stored), manifest, content="full")


def told(result: Reconciliation) -> dict[str, tuple[str, str]]:
    assert not result.balanced
    return {
        line.name: (line.line.value, line.decided_by)
        for line in result.parameters
        if line.line.value != "identical"
    }


def test_other_values_are_other_values(tmp_path: Path) -> None:
    result = meet(tmp_path, {**KNOWN, "a.weight": noise(4, 6, seed=3)})

    assert told(result) == {"a.weight": ("differing", "name+content")}
    assert [finding.message for finding in result.findings] == [
        "1 tensor, 24 elements: the file has other values under this name"
    ]


def test_values_in_another_order_are_not_said_to_be_others(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(A.size)
    result = meet(tmp_path, {**KNOWN, "a.weight": A.reshape(-1)[order].reshape(A.shape)})

    assert told(result) == {"a.weight": ("differing", "content:reordered")}
    assert [finding.message for finding in result.findings] == [
        "1 tensor, 24 elements: the file has its values in another order"
    ]


def test_two_that_stand_under_each_others_name_are_held_elsewhere(tmp_path: Path) -> None:
    result = meet(tmp_path, {"a.weight": B, "b.weight": A})

    assert told(result) == dict.fromkeys(KNOWN, ("differing", "content:held-elsewhere"))
    assert [finding.message for finding in result.findings if finding.id == "differing"] == [
        "2 tensors, 48 elements: the file has other values under these names, and their own under others"
    ]


def test_one_changed_number_is_another_value_and_no_order(tmp_path: Path) -> None:
    changed = A.copy()
    changed[2, 3] += 1

    assert told(meet(tmp_path, {**KNOWN, "a.weight": changed})) == {"a.weight": ("differing", "name+content")}


def test_what_cannot_be_read_is_told_as_that(tmp_path: Path) -> None:
    proto = text_model(TEXT, KNOWN)
    del proto.graph.initializer[0]
    proto.graph.initializer.append(external("a.weight", [4, 6], location="gone.bin"))
    manifest = manifest_of(*parameters_of(KNOWN), values=KNOWN)
    result = reconcile(tmp_path, proto, manifest, content="full")

    assert told(result) == {"a.weight": ("differing", "none:unreadable")}
    assert any(
        "cannot be read, so that nobody knows its values" in found.message for found in result.findings
    )


@pytest.mark.parametrize(
    ("stored", "why"), [(A.reshape(-1)[::-1].reshape(4, 6).copy(), "reordered"), (noise(4, 6, seed=5), None)]
)
def test_the_document_says_why(stored: Array, why: str | None, tmp_path: Path) -> None:
    result = meet(tmp_path, {**KNOWN, "a.weight": stored})
    document = json.loads(render_json(ReconcileReport(result, group_by(result.in_pytorch_terms()))))

    assert {each["name"]: each["why"] for each in document["parameters"]} == {
        "a.weight": why,
        "b.weight": None,
    }
