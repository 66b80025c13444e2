"""`check` gives one answer for a budget in text, Markdown, JUnit and CSV, with the decisive rules first."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from models import audit, ramp, text_model

from analyzer.account.ledger import Finding, Ledger, Severity
from analyzer.budget.evaluate import check_models
from analyzer.budget.record import Among, AtLeast, AtMost, BudgetReport, Growth, Limit, Over, Rule
from analyzer.errors import UsageError
from analyzer.formats import render_report
from analyzer.formats.options import RenderOptions

TEXT = """
    g (float[1,3] x) => (float[1,3] y) {
        ["/a/fc/MatMul"] h = MatMul(x, "a.fc.weight")
        ["/b/fc/MatMul"] k = MatMul(h, "b.fc.weight")
        ["/c/fc/MatMul"] y = MatMul(k, "c.fc.weight")
    }
"""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Ledger with 9 parameters in each of three scopes."""
    weights = {f"{scope}.fc.weight": ramp(3, 3, start=20 * at) for at, scope in enumerate("abc")}
    return audit(tmp_path_factory.mktemp("formats"), text_model(TEXT, weights))


def refuse(name: str) -> Ledger:
    raise UsageError(f"{name}: is not there")


def check(ledger: Ledger, *rules: Rule, unreadable: str = "") -> BudgetReport:
    lost = {"lost.onnx": unreadable} if unreadable else {}
    return check_models(rules, {"m.onnx": ledger}, lost, baseline="main.json", read=refuse)


def show(report: BudgetReport, kind: str, rows: int = 1) -> str:
    text = render_report(report, kind, RenderOptions(rows=rows, width=100))
    assert isinstance(text, str)
    return text


def parameters(limit: Limit, **fields: str) -> Rule:
    return Rule("size", "parameters", limit, **fields)


def test_what_is_not_shown_of_the_parts_is_summed_in_every_format(ledger: Ledger) -> None:
    report = check(ledger, parameters(AtMost(20)))

    assert any(line.split() == ["[2", "others]", "18"] for line in show(report, "text").splitlines())
    assert r"| \[2 others\] | 18 |" in show(report, "markdown")


def test_of_the_largest_tensor_the_others_are_no_part(ledger: Ledger) -> None:
    report = check(ledger, Rule("wide", "largest-tensor-bytes", AtMost(1)))

    assert any(line.split() == ["[2", "others]"] for line in show(report, "text").splitlines())
    assert r"| \[2 others\] |  |" in show(report, "markdown")


def test_parts_are_counted_in_what_their_rule_counts(ledger: Ledger) -> None:
    report = check(ledger, parameters(AtMost(20)))

    assert "**size: largest parts**\n\n| part | parameters |" in show(report, "markdown")
    assert "size: largest parts\npart        parameters" in show(report, "text")


def test_a_failure_is_reported_before_what_was_not_evaluated(ledger: Ledger) -> None:
    growth = Rule("growth", "nodes", Over((Growth(amount=0),)))
    text = show(check(ledger, growth, parameters(AtMost(20))), "markdown", rows=2)

    assert "**✗ FAIL: 1 failed, 0 passed, 1 not evaluated**" in text
    text = text.partition("**\n")[2]
    assert text.index("more than the 20 allowed") < text.index("not evaluated: ")


def test_what_passes_says_how_much_room_is_left_and_what_fails_by_how_much(ledger: Ledger) -> None:
    report = check(
        ledger,
        Rule("little", "parameters", AtMost(20)),
        Rule("much", "parameters", AtMost(36)),
        Rule("opset", "opset", AtLeast(17)),
        Rule("none", "unattributed", AtMost(0)),
        Rule("ops", "ops", Among(frozenset())),
        Rule("off", "nodes", AtMost(0), is_enabled=False),
    )

    lines = [re.split(" {2,}", line) for line in show(report, "text", rows=9).splitlines()]

    assert [line for line in lines if len(line) > 2 and line[1] in ("FAIL", "PASS", "SKIP")] == [
        ["little", "FAIL", "27", "<= 20", "7 over"],
        ["ops", "FAIL", "1 operator", "0 allowed", "1 not allowed"],
        ["much", "PASS", "27", "<= 36", "9 (25.0 %)"],
        ["opset", "PASS", "18", ">= 17", "1"],
        ["none", "PASS", "0", "<= 0", "0"],
        ["off", "SKIP", "<= 0", "disabled"],
    ]


def test_bytes_that_would_read_the_same_as_their_limit_are_exact(ledger: Ledger) -> None:
    (size,) = check(ledger, Rule("bytes", "bytes", AtMost(1))).verdicts
    text = show(
        BudgetReport(("m",), (replace(size, observed=2_097_153, limit=2_097_152, exceeded_by=1),)), "text"
    )

    assert "2,097,153  <= 2,097,152  1 over" in text


def test_findings_that_no_rule_judges_are_reported_and_an_error_first_of_all(ledger: Ledger) -> None:
    findings = (
        Finding("unused-initializer", Severity.WARNING, "nothing reads it", ("w",)),
        Finding("external-missing", Severity.ERROR, "w.bin is not here"),
    )
    report = replace(check(ledger, parameters(AtMost(36))), findings={"m.onnx": findings})

    text = show(report, "text")
    assert text.splitlines()[2] == "ERROR w.bin is not here [external-missing]"
    assert "nothing reads it" not in text
    assert "\nalso found: 1 warning\n" in text
    assert "<summary>Findings: 1 warning</summary>" in show(report, "markdown")
    assert "nothing reads it" in show(report, "html")


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (AtMost(8), "a: 9 parameters are 1 more than the 8 allowed. Ask ops."),
        (AtLeast(10), "a: 9 parameters are 1 less than the 10 required. Ask ops."),
    ],
)
def test_a_failure_of_a_group_names_it_where_a_ci_server_looks(
    ledger: Ledger, limit: Limit, expected: str
) -> None:
    report = check(ledger, parameters(limit, group="a", message="Ask ops."))

    (failure,) = ET.fromstring(show(report, "junit")).iter("failure")

    assert failure.get("message") == expected


def test_the_limit_of_a_model_that_cannot_be_read_is_reported(ledger: Ledger) -> None:
    report = check(ledger, parameters(AtMost(20), match="lost*"), unreadable="is a web page")

    (lost,) = report.verdicts
    assert (lost.limit, lost.message) == (20, "the model cannot be read")
    assert "<= 20" in show(report, "text")
    (row,) = csv.DictReader(io.StringIO(show(report, "csv")))
    assert row["limit"] == "20"


def test_what_passes_says_what_is_allowed_as_a_sentence_of_its_own(ledger: Ledger) -> None:
    rules = [
        Rule("copies", "duplicates", AtMost(0)),
        parameters(AtMost(30)),
        Rule("opset", "opset", AtLeast(17)),
        Rule("one", "unattributed", AtMost(1)),
    ]

    assert [verdict.message for verdict in check(ledger, *rules).verdicts] == [
        "0 bytes that are stored again; at most 0 are allowed",
        "27 parameters; at most 30 are allowed",
        "opset 18; at least 17 is required",
        "0 unattributed elements; at most 1 is allowed",
    ]
