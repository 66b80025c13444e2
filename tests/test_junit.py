"""JUnit XML: valid for CI servers, one case for each rule or module, and no name that breaks the markup."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from reports import verification

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
from analyzer.reports import Report
from analyzer.verify.record import Agreement, Difference, Fed, First, Pairing, VerifyReport
from analyzer.verify.record import Verdict as Judged

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


def read(report: Report) -> ET.Element:
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


def test_there_is_no_time_but_the_requested_one() -> None:
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


# verify


FAR = Agreement(0.5, 12.0, 120.0, Judged.DIFFERS)
NEAR = Agreement(1e-6, 118.0, 120.0, Judged.SAME)
NOT_COMPARED = Agreement(None, None, None, Judged.NOT_COMPARED)


def verified(*outputs: Pairing, **more: object) -> VerifyReport:
    fed = (Fed("x", "FLOAT", (2, 8), 0),)
    defaults = {"values": (), "first": None, "checked": 3, "differences": (), "inputs": fed, "uncovered": ()}
    return VerifyReport("new.onnx", "old.onnx", outputs, **{**defaults, **more})  # type: ignore[arg-type]


def output(name: str, found: Agreement) -> Pairing:
    return Pairing(name, name, "", "Add", None, found)


def module(path: str, found: Agreement) -> Pairing:
    return Pairing(f"{path}.out", path, "", "Linear", path, found)


def cases(report: VerifyReport) -> dict[str, list[tuple[str, str | None]]]:
    """Return the outcome and message of each case, by name; the list of a passed case is empty."""
    return {
        case.get("name", ""): [(each.tag, each.get("message")) for each in case]
        for case in read(report).iter("testcase")
    }


def test_an_output_that_is_the_same_passes_and_what_no_run_tried_is_skipped() -> None:
    found = cases(verified(output("y", NEAR), uncovered=("other sizes",)))

    assert found == {"output y": [], "not tried: other sizes": [("skipped", "other sizes")]}


def test_the_first_module_that_differs_fails_with_its_cause_and_those_before_it_pass() -> None:
    first = First("enc.1", "norm", "epsilon 0.05, and epsilon 1e-12 in PyTorch")
    values = (module("enc.0", NEAR), module("enc.1", FAR), module("enc.2", FAR))
    report = verified(output("y", FAR), output("z", NEAR), values=values, first=first)

    assert cases(report) == {
        "output y": [("failure", first.reason)],
        "output z": [],
        "module enc.0": [],
        "module enc.1": [("failure", first.reason)],
        "module enc.2": [("failure", "its values are others; the two part in module enc.1")],
    }


def test_what_was_not_compared_is_an_error_and_so_is_a_report_of_no_output() -> None:
    (found,) = cases(verified(output("y", NOT_COMPARED))).values()

    assert [each[0] for each in found] == ["error"]
    assert [each[0] for each in cases(verified())["outputs"]] == ["error"]


def test_a_difference_that_no_output_shows_is_a_property_and_fails_nothing() -> None:
    change = Difference("enc", None, "norm", "attribute", "epsilon 1e-05", "epsilon 0.05")
    root = read(verified(output("y", NEAR), differences=(change,)))

    properties = [(each.get("name"), each.get("value")) for each in root.iter("property")]
    assert ("difference", "norm: epsilon 0.05, and epsilon 1e-05 in old.onnx") in properties
    assert not [*root.iter("failure")]


def test_an_account_of_a_file_that_was_not_run_is_no_case(tmp_path: Path) -> None:
    root = read(verified(output("y", NEAR), inputs=(), uncovered=("nothing was run; 6 same",)))

    assert [case.get("name") for case in root.iter("testcase")] == ["output y"]
    assert "nothing was run; 6 same" in [each.get("value") for each in root.iter("property")]
    assert len([*read(verification(tmp_path)).iter("failure")]) == 3
