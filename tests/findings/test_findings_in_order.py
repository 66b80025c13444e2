"""Findings as readers see them: the worst first in every format, and the subject of two findings listed once."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from models import audit, ramp, text_model

from analyzer.account.group import group_by
from analyzer.account.ledger import Finding, Ledger, Severity
from analyzer.budget.evaluate import check_models
from analyzer.budget.record import AtMost, Rule
from analyzer.formats import render_report
from analyzer.formats.options import RenderOptions
from analyzer.reports import Inspection, SurveyReport
from analyzer.survey import survey_models

FOUND = (
    Finding("constant-filled", Severity.NOTE, "all one value", ("b",)),
    Finding("external-missing", Severity.ERROR, "no file", ("w",)),
    Finding("fp64-weights", Severity.WARNING, "64 bits", ("w",)),
)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    text = "g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }"
    return audit(tmp_path, text_model(text, {"w": ramp(3, 2), "b": ramp(4)}))


def inspect(ledger: Ledger, findings: Sequence[Finding]) -> Inspection:
    with_findings = dataclasses.replace(ledger, findings=tuple(findings))
    return Inspection(with_findings, group_by(with_findings))


def show(report: object, kind: str) -> str:
    text = render_report(report, kind, RenderOptions())  # type: ignore[arg-type]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("kind", ["text", "markdown"])
def test_the_worst_is_first(ledger: Ledger, kind: str) -> None:
    text = show(inspect(ledger, FOUND), kind)

    assert text.index("no file") < text.index("64 bits") < text.index("all one value")


def test_the_worst_is_first_where_a_ci_server_lists_properties(ledger: Ledger) -> None:
    with_findings = dataclasses.replace(ledger, findings=FOUND)
    report = check_models([Rule("r", "nodes", AtMost(9))], {"m": with_findings}, read=lambda _: with_findings)

    text = show(report, "junit")

    assert text.index("error: no file") < text.index("warning: 64 bits") < text.index("note: all one value")


def test_json_has_them_by_their_ids(ledger: Ledger) -> None:
    document = json.loads(show(inspect(ledger, FOUND), "json"))

    assert [each["id"] for each in document["findings"]] == [each.id for each in FOUND]


def test_the_head_of_a_comment_says_that_there_are_errors(ledger: Ledger) -> None:
    worse, fine = (show(inspect(ledger, found), "markdown") for found in (FOUND, FOUND[::2]))

    assert "**✗ 1 error: the counts may be incomplete**" in worse.split("\n\n")
    assert "error" not in fine.partition("|")[0]


def test_what_two_findings_are_about_is_listed_once(ledger: Ledger) -> None:
    same = tuple(f"idle.{at}" for at in range(3))
    found = [
        Finding("unattributed", Severity.WARNING, "no rule explains", same),
        Finding("unused-initializer", Severity.WARNING, "no node reads", same, 12),
    ]

    text, page = (show(inspect(ledger, found), kind) for kind in ("text", "markdown"))

    assert text.count("idle.1") == 1
    assert "no node reads: the same 3 as under unattributed [unused-initializer]" in " ".join(text.split())
    assert page.count("`idle.1`") == 1
    assert "no node reads: the same 3 as under unattributed" in page
    document = json.loads(show(inspect(ledger, found), "json"))
    assert [each["subjects"] for each in document["findings"]] == [list(same)] * 2


def test_a_survey_names_each_kind_of_finding_once(tmp_path: Path) -> None:
    text = "g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }"
    audit(tmp_path, text_model(text, {"w": ramp(3, 2)}))
    survey = survey_models([str(tmp_path / "model.onnx")])
    twice = dataclasses.replace(survey.readable[0], findings=(*FOUND, *FOUND))
    report = SurveyReport(dataclasses.replace(survey, rows=(twice,)))

    (row,) = csv.DictReader(io.StringIO(show(report, "csv")))

    assert row["findings"] == "constant-filled;external-missing;fp64-weights"
