"""JUnit XML of `check`: valid where CI servers look, each rule a case, no name that breaks out of the markup."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from analyzer.account.ledger import Finding, Severity
from analyzer.budget.record import (
    Among,
    AtMost,
    BudgetReport,
    Contributor,
    Growth,
    Over,
    Rule,
    Skipped,
    Status,
    Unit,
    Verdict,
)
from analyzer.formats import render_report

SCHEMAS = Path(__file__).parent / "schemas"
XSDS = {name: etree.XMLSchema(etree.parse(str(SCHEMAS / f"junit-{name}.xsd"))) for name in ("ant", "jenkins")}

SIZE = Rule(
    "size", "bytes", Over((Growth(amount=5),), "main.json"), message="ask ops", origin="budget.toml:3"
)
TYPES = Rule("types", "dtypes", Among(frozenset({"FLOAT16"})), origin="--allowed-dtypes")
NODES = Rule("nodes", "nodes", AtMost(3), group="enc", origin="budget.toml:9")
LOST = Rule("lost", "bytes", AtMost(3), match="x/*", origin="budget.toml:12")

REPORT = BudgetReport(
    models=("a.onnx", "b.onnx", "bad.onnx"),
    verdicts=(
        Verdict(
            SIZE,
            "a.onnx",
            Status.FAIL,
            Unit.BYTES,
            observed=2048,
            limit=1005,
            baseline=1000,
            exceeded_by=1043,
            contributors=tuple(
                Contributor(f"layer.{i}", 100 - i, None if i % 2 else 3 * i) for i in range(25)
            ),
            message="too large",
        ),
        Verdict(SIZE, "b.onnx", Status.PASS, Unit.BYTES, observed=7, limit=1005, baseline=1000),
        Verdict(
            TYPES,
            "a.onnx",
            Status.FAIL,
            Unit.DTYPES,
            observed=("FLOAT", "FLOAT16"),
            limit=("FLOAT16",),
            exceeded_by=1,
            message="1 dtype is not allowed: FLOAT",
        ),
        Verdict(
            NODES,
            "b.onnx",
            Status.SKIP,
            Unit.NODES,
            limit=3,
            skipped=Skipped.NOT_EVALUATED,
            message="there is no enc",
        ),
        Verdict(
            LOST,
            None,
            Status.SKIP,
            Unit.BYTES,
            limit=3,
            skipped=Skipped.NOT_MATCHED,
            message="no model matches",
        ),
    ),
    findings={"a.onnx": (Finding("fp64-weights", Severity.WARNING, "3 parameters in 64 bits"),)},
    unreadable={"bad.onnx": "is empty"},
)


def read(report: BudgetReport) -> ET.Element:
    text = render_report(report, "junit")
    assert isinstance(text, str)
    document = etree.fromstring(text.encode("utf-8", "surrogatepass"))
    for xsd in XSDS.values():
        xsd.assertValid(document)
    return ET.fromstring(text)


def test_a_report_is_valid_by_the_schemas_of_ant_and_of_jenkins() -> None:
    root = read(REPORT)

    assert root.tag == "testsuites"
    assert [suite.get("name") for suite in root] == ["a.onnx", "b.onnx", "bad.onnx", "no model"]


def test_the_schemas_refuse_what_is_wrong() -> None:
    text = render_report(REPORT, "junit")
    assert isinstance(text, str)

    for xsd in XSDS.values():
        assert not xsd.validate(etree.fromstring(text.replace("testcase", "testcas").encode()))
        assert not xsd.validate(etree.fromstring(text.replace(' name="size"', "").encode()))


def test_a_suite_counts_its_cases() -> None:
    counted = [
        tuple(suite.get(key) for key in ("tests", "failures", "errors", "skipped")) for suite in read(REPORT)
    ]

    assert counted == [("2", "2", "0", "0"), ("2", "0", "1", "0"), ("1", "0", "1", "0"), ("1", "0", "0", "1")]


def test_a_failure_says_what_was_observed_what_is_allowed_and_what_it_is_made_of() -> None:
    size, types = read(REPORT).findall("testsuite/testcase/failure")

    assert size.get("message") == "too large. ask ops"
    assert size.get("type") == "bytes"
    assert size.text is not None
    assert size.text.splitlines()[:8] == [
        "metric: bytes",
        "rule: budget.toml:3",
        "observed: 2,048 bytes (2.00 KiB)",
        "limit: at most 1,005 bytes",
        "baseline: 1,000 bytes",
        "exceeded by: 1,043",
        "  layer.0: 100, was 0",
        "  layer.1: 99",
    ]
    assert size.text.splitlines()[-1] == "  [5 others]: 390, was 198"
    assert types.get("message") == "1 dtype is not allowed: FLOAT."


def test_what_was_not_evaluated_is_an_error_and_what_does_not_apply_is_skipped() -> None:
    root = read(REPORT)

    assert [(each.get("type"), each.get("message")) for each in root.iter("error")] == [
        ("not-evaluated", "there is no enc"),
        ("unreadable", "is empty"),
    ]
    assert [each.get("message") for each in root.iter("skipped")] == ["no model matches"]


def test_properties_hold_the_verdict_and_the_findings() -> None:
    suite = read(REPORT)[0]

    properties = [(each.get("name"), each.get("value")) for each in suite.iter("property")]
    assert ("passed", "false") in properties
    assert ("finding", "warning: 3 parameters in 64 bits [fp64-weights]") in properties


def test_there_is_no_time_but_the_one_that_is_asked_for() -> None:
    stamped = BudgetReport(("a.onnx",), REPORT.verdicts[:1], stamp="2025-01-31T12:00:00+00:00")

    assert render_report(REPORT, "junit") == render_report(REPORT, "junit")
    assert {suite.get("timestamp") for suite in read(REPORT)} == {"1970-01-01T00:00:00"}
    assert read(stamped)[0].get("timestamp") == "2025-01-31T12:00:00"
    assert {each.get("time") for each in read(REPORT).iter("testcase")} == {"0"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("</testcase><script>", "</testcase><script>"),
        ("a\x00b\x1b[2J", "a\\x00b\\x1b[2J"),
        ("]]>&amp;\"'", "]]>&amp;\"'"),
        ("\u202egpj.exe\ufffe\uffff", "\\u202egpj.exe\\ufffe\\uffff"),
        ("line\nline\ttab\r", "line\\nline\\ttab\\r"),
        ("\udcff.onnx", "\\xff.onnx"),
    ],
)
def test_a_hostile_name_stays_text(name: str, shown: str) -> None:
    rule = Rule(name, "bytes", AtMost(0), message=name, origin=name)
    verdict = Verdict(
        rule,
        name,
        Status.FAIL,
        Unit.BYTES,
        observed=1,
        limit=0,
        exceeded_by=1,
        contributors=(Contributor(name, 1),),
        message=name,
    )

    root = read(BudgetReport((name,), (verdict,)))

    assert {each.tag for each in root.iter()} == {
        "testsuites",
        "testsuite",
        "properties",
        "property",
        "testcase",
        "failure",
        "system-out",
        "system-err",
    }
    assert root[0].get("name") == shown


@given(st.text(min_size=1))
def test_any_name_makes_a_document(name: str) -> None:
    rule = Rule(name, "bytes", AtMost(0), message=name, origin=name)

    for status, skipped in ((Status.PASS, None), (Status.SKIP, Skipped.NOT_EVALUATED)):
        verdict = Verdict(rule, name, status, Unit.BYTES, 0, 0, skipped=skipped, message=name)
        assert len(read(BudgetReport((name,), (verdict,), unreadable={name: name}))) == 1
