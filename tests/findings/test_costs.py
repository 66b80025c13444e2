"""Savings that each finding names, bytes freed with tensors, and both in reports."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Array, audit, external, noise, ramp, save, text_model
from onnx import helper, numpy_helper

from analyzer.account.audit import audit_model
from analyzer.account.findings.facts import count_freed
from analyzer.account.group import group_by
from analyzer.account.ledger import Ledger
from analyzer.formats import RenderOptions, render_report, to_document
from analyzer.reports import Inspection, SurveyReport
from analyzer.survey import survey_models

LINEAR = "g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }"
ADDED = "g (float[1,3] x) => (float[1,2] y) { h = MatMul(x, w) y = Add(h, b) }"
LARGE = 1 << 15


def costs(ledger: Ledger) -> dict[str, int | None]:
    return {finding.id: finding.nbytes for finding in ledger.findings}


@pytest.mark.parametrize(("dtype", "expected"), [("f8", 24), ("c16", 48)])
def test_half_of_what_is_stored_in_64_bits_is_saved(tmp_path, dtype, expected):
    ledger = audit(tmp_path, text_model(LINEAR, {"w": ramp(3, 2).astype(dtype)}))

    assert costs(ledger)["fp64-weights"] == expected


def test_unread_tensor_costs_its_bytes(tmp_path):
    ledger = audit(tmp_path, text_model(LINEAR, {"w": ramp(3, 2), "idle": ramp(5)}))

    assert costs(ledger) == {"unattributed": None, "unused-initializer": 20}


def test_unread_tensor_in_the_place_of_another_costs_nothing(tmp_path):
    proto = text_model(LINEAR)
    (tmp_path / "w.bin").write_bytes(ramp(6).tobytes())
    proto.graph.initializer.extend(external(name, [3, 2], location="w.bin") for name in ("w", "idle"))

    assert costs(audit(tmp_path, proto))["unused-initializer"] is None


def test_copy_in_the_place_of_the_original_costs_nothing_and_says_so(tmp_path):
    proto = text_model("g (float[1,2] x) => (float[1,2] y) { h = MatMul(x, a) y = MatMul(h, b) }")
    (tmp_path / "w.bin").write_bytes(ramp(4).tobytes())
    proto.graph.initializer.extend(external(name, [2, 2], location="w.bin") for name in "ab")

    (found,) = audit(tmp_path, proto).findings

    assert (found.id, found.nbytes) == ("duplicate-content", None)
    assert found.message == "4 elements are stored again, unchanged, in the same bytes"


@pytest.mark.parametrize(("bias", "expected"), [(np.zeros(2, "f4"), 4), (np.ones(2, "f2"), 2)])
def test_constant_filled_tensor_costs_all_but_one_of_its_elements(tmp_path, bias: Array, expected):
    ledger = audit(tmp_path, text_model(ADDED, {"w": ramp(3, 2), "b": bias}))

    assert costs(ledger)["constant-filled"] == expected


@pytest.mark.parametrize(("content", "expected"), [("sampled", None), ("full", 4 * (2 * LARGE - 1))])
def test_large_tensor_of_one_value_has_a_cost_once_all_of_it_was_looked_at(tmp_path, content, expected):
    path = save(tmp_path, text_model(LINEAR, {"w": np.zeros((2, LARGE), "f4")}))

    assert costs(audit_model(path, content=content))["constant-filled"] == expected


def test_what_takes_no_bytes_has_no_cost(tmp_path):
    proto = text_model(
        "g (float[1,2] x) => (float[1,2] y) { w = Constant<value = float[2,2] {1,2,3,4}>() y = MatMul(x, w) }"
    )
    proto.graph.node.append(helper.make_node("Odd", ["y"], ["z"], domain="my"))

    assert costs(audit(tmp_path, proto)) == {"constant-weights": None, "custom-domain": None}


# reports


def wasteful(folder: Path) -> Ledger:
    proto = text_model(LINEAR, {"w": noise(3, 2)})
    proto.graph.initializer.append(numpy_helper.from_array(ramp(2000), "idle"))
    return audit(folder, proto)


def text_of(ledger: Ledger) -> list[str]:
    text = render_report(Inspection(ledger, group_by(ledger)), "text", RenderOptions())
    return str(text).splitlines()


def test_text_says_what_a_finding_costs_and_where_to_read_on(tmp_path):
    lines = text_of(wasteful(tmp_path))

    warnings = [
        line for line in lines if line.startswith("WARN 2,000 elements that no output depends on: idle")
    ]
    assert [line.split()[-1] for line in warnings] == ["[unused-initializer]"]
    assert any(line.startswith("wasted 7.81 KiB (") for line in lines)


def test_text_of_a_sound_model_has_nothing_to_explain(tmp_path):
    assert not any(
        "explain" in line for line in text_of(audit(tmp_path, text_model(LINEAR, {"w": ramp(3, 2)})))
    )


def test_json_has_the_bytes_of_each_finding_of_one_model_and_of_many(tmp_path):
    ledger = wasteful(tmp_path)

    alone = to_document(Inspection(ledger, group_by(ledger)))["findings"]
    (row,) = to_document(SurveyReport(survey_models([str(tmp_path / "model.onnx")])))["models"]

    assert [(each["id"], each["bytes"]) for each in alone] == [
        ("unattributed", None),
        ("unused-initializer", 8000),
    ]
    assert [each["bytes"] for each in row["findings"]] == [None, 8000]


# bytes that files lose with some tensors: each byte once, and none that another tensor needs

FILE = 40
RANGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=6)
"""(offset, length) in floats, within a file of ten floats."""


def model_of(folder: Path, ranges: list[tuple[int, int]], inline: int = 0) -> Ledger:
    (folder / "w.bin").write_bytes(np.arange(1, 11, dtype="f4").tobytes())
    proto = text_model("g (float[1] x) => (float[1] y) { y = Relu(x) }")
    for index, (start, count) in enumerate(ranges):
        place = {"location": "w.bin", "offset": 4 * start, "length": 4 * count}
        proto.graph.initializer.append(external(f"e{index}", [count], **place))
    for index in range(inline):
        proto.graph.initializer.append(numpy_helper.from_array(ramp(3 + index), f"i{index}"))
    return audit(folder, proto)


def freed(ledger: Ledger, *names: str) -> int:
    removed = [entry for entry in ledger.entries if entry.tensor.name in names]
    assert len(removed) == len(names)
    return count_freed(removed, ledger.entries, ledger.model)


@pytest.mark.parametrize(
    ("ranges", "names", "expected"),
    [
        ([(0, 3), (3, 2)], ["e0"], 12),
        ([(0, 3), (0, 3)], ["e0"], 0),
        ([(0, 3), (0, 3)], ["e0", "e1"], 12),
        ([(0, 3), (2, 3)], ["e0"], 8),
        ([(0, 6), (2, 1)], ["e0"], 20),
        ([(0, 6), (2, 1)], ["e1"], 0),
        ([(0, 0), (2, 1)], ["e0"], 0),
        ([(0, 2)], ["e0", "i0"], 8 + 12),
        ([(0, 2)], [], 0),
    ],
    ids=["beside", "same", "both", "overlap", "around", "within", "empty", "inline", "nothing"],
)
def test_bytes_that_another_tensor_claims_stay(tmp_path, ranges, names, expected):
    assert freed(model_of(tmp_path, ranges, inline=1), *names) == expected


@settings(max_examples=60, deadline=None)
@given(ranges=RANGES, chosen=st.sets(st.integers(0, 5)))
def test_freed_bytes_are_those_that_no_other_tensor_occupies(ranges, chosen):
    with TemporaryDirectory() as folder:
        ledger = model_of(Path(folder), ranges)
    going = {index for index in chosen if index < len(ranges)}
    bytes_of = {
        index: {*range(4 * start, 4 * (start + count))} for index, (start, count) in enumerate(ranges)
    }
    gone = set().union(*(bytes_of[index] for index in going))
    kept = set().union(*(bytes_of[index] for index in bytes_of if index not in going))

    assert freed(ledger, *(f"e{index}" for index in sorted(going))) == len(gone - kept)


@settings(max_examples=60, deadline=None)
@given(ranges=RANGES, inline=st.integers(0, 3))
def test_no_finding_costs_more_than_the_files_have(ranges, inline):
    with TemporaryDirectory() as folder:
        ledger = model_of(Path(folder), ranges, inline)

    assert all(0 < (finding.nbytes or 1) <= ledger.file_nbytes for finding in ledger.findings)
    assert sum(f.nbytes or 0 for f in ledger.findings if f.id in DISJOINT) <= ledger.file_nbytes


DISJOINT = ("external-orphaned", "strippable-metadata", "unknown-fields", "unused-initializer")
"""Findings that never concern the same bytes."""
