"""SARIF that its public schema accepts, and that GitHub's code scanning can show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ci_logs import COMMANDS, check_report, hostile_model, read_sarif, verdict
from models import audit, manifest_of, parameters_of, ramp, reconcile, text_model
from reports import verification

from analyzer.account.audit import audit_model
from analyzer.account.findings.catalog import EXPLANATIONS
from analyzer.account.group import group_by
from analyzer.account.ledger import Finding, Severity
from analyzer.budget.record import BudgetReport, Contributor, Skipped, Status, Unit
from analyzer.formats import render_report
from analyzer.records import replace
from analyzer.reports import ExportReport, Inspection, ReconcileReport, Report, SurveyReport
from analyzer.survey import survey_models
from analyzer.verify.record import Agreement, Verdict, VerifyReport

NOTE = Finding("old-opset", Severity.NOTE, "opset 7 is old")
COPIES = Finding("duplicate-content", Severity.WARNING, "two are equal", ("a", "b"), 400)


def sarif(report: Report) -> Any:
    return read_sarif(render_report(report, "sarif"))


def marks(run: Any) -> list[str]:
    return [result["partialFingerprints"]["primaryLocationLineHash"] for result in run["results"]]


def inspection(folder: Any, proto: Any) -> Inspection:
    ledger = audit(folder, proto)
    return Inspection(ledger, group_by(ledger))


def uri(result: Any) -> str:
    found: str = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    return found


# contents


def test_every_finding_of_the_catalog_is_a_rule_with_its_explanation():
    run = sarif(check_report(NOTE))

    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert list(rules) == list(EXPLANATIONS)
    for id_, explanation in EXPLANATIONS.items():
        assert rules[id_]["shortDescription"]["text"] == explanation.title
        assert explanation.mend in rules[id_]["help"]["text"]
        assert explanation.cost in rules[id_]["help"]["markdown"]
        assert rules[id_]["defaultConfiguration"]["level"] in explanation.severities


def test_a_finding_says_where_and_what_it_costs():
    run = sarif(check_report(COPIES, path="models/größe 1.onnx"))

    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("duplicate-content", "warning")
    assert result["message"]["text"] == "two are equal"
    assert uri(result) == "models/gr%C3%B6%C3%9Fe%201.onnx"
    assert [each["fullyQualifiedName"] for each in result["locations"][0]["logicalLocations"]] == ["a", "b"]
    assert result["properties"] == {"subjects": 2, "bytes": 400}
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def test_of_many_subjects_some_are_shown_and_the_rest_is_counted():
    subjects = tuple(f"layer.{n}" for n in range(25))

    (result,) = sarif(check_report(Finding("old-opset", Severity.NOTE, "many", subjects)))["results"]

    assert len(result["locations"][0]["logicalLocations"]) == 10
    assert result["message"]["text"] == "many (15 others not shown)"
    assert result["properties"]["subjects"] == 25


def test_a_failed_budget_is_a_rule_of_its_own_and_an_error():
    failed = verdict(Status.FAIL, "size")
    report = check_report(NOTE, verdicts=(verdict(Status.PASS, "other"), failed))

    run = sarif(report)

    assert run["tool"]["driver"]["rules"][-1]["id"] == "budget/size"
    assert "--max-bytes" in run["tool"]["driver"]["rules"][-1]["fullDescription"]["text"]
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [
        ("budget/size", "error"),
        ("old-opset", "note"),
    ]
    facts = run["results"][0]["properties"]
    assert (facts["observed"], facts["limit"], facts["unit"]) == (12, 10, "bytes")


@pytest.mark.parametrize(
    ("observed", "limit", "unit", "names"),
    [(12, 10, Unit.BYTES, True), (9, 10, Unit.BYTES, False), (12, 10, Unit.VERSION, False)],
)
def test_only_a_sum_that_exceeds_its_limit_names_its_largest_part(
    observed: int, limit: int, unit: Unit, names: bool
) -> None:
    part = Contributor("layer.0", 9)
    failed = replace(verdict(Status.FAIL), observed=observed, limit=limit, unit=unit, contributors=(part,))

    (result,) = sarif(check_report(verdicts=(failed,)))["results"]

    assert ("(most of it in layer.0)" in result["message"]["text"]) is names


def test_a_rule_that_was_not_evaluated_is_no_result_and_the_run_was_no_success():
    skipped = verdict(Status.SKIP, "growth", Skipped.NOT_EVALUATED)

    run = sarif(check_report(verdicts=(skipped, verdict(Status.SKIP, "off", Skipped.DISABLED))))

    assert run["results"] == []
    (invocation,) = run["invocations"]
    (notification,) = invocation["toolExecutionNotifications"]
    assert invocation["executionSuccessful"] is False
    assert (notification["level"], notification["associatedRule"]["id"]) == ("error", "budget/growth")


def test_a_rule_of_a_config_is_shown_where_it_stands():
    from dataclasses import replace

    failed = verdict(Status.FAIL)
    failed = replace(failed, rule=replace(failed.rule, origin="onnxledger.toml:12"))

    (result,) = sarif(check_report(verdicts=(failed,)))["results"]

    (place,) = result["relatedLocations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "onnxledger.toml"
    assert place["physicalLocation"]["region"]["startLine"] == 12


# identity of results between runs


def test_a_fingerprint_does_not_depend_on_the_numbers_of_its_message():
    from dataclasses import replace

    failed = verdict(Status.FAIL)
    later = replace(failed, observed=99, message="99 of 10", contributors=(Contributor("other", 1),))

    before = sarif(check_report(COPIES, verdicts=(failed,)))
    after = sarif(check_report(replace(COPIES, message="two, now larger", nbytes=9), verdicts=(later,)))

    assert marks(before) == marks(after)


def test_what_differs_in_place_or_subject_has_a_fingerprint_of_its_own():
    from dataclasses import replace

    several = check_report(COPIES, replace(COPIES, subjects=("a", "c")), COPIES, NOTE)
    elsewhere = check_report(COPIES, path="other.onnx")

    found = [*marks(sarif(several)), *marks(sarif(elsewhere))]

    assert len(set(found)) == 5
    assert found[2].endswith(":2")


@pytest.mark.slow
def test_no_more_results_are_written_than_github_takes():
    many = [Finding("old-opset", Severity.NOTE, f"{n}", (str(n),)) for n in range(25_001)]

    (run,) = json.loads(render_report(check_report(*many, COPIES), "sarif"))["runs"]

    assert len(run["results"]) == 25_000
    assert run["results"][0]["level"] == "warning"  # the most important results are kept
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notification["message"]["text"].startswith("2 more results")
    assert run["invocations"][0]["executionSuccessful"] is True


# commands with SARIF


def test_an_inspection_has_its_findings(tmp_path):
    weights = {name: ramp(80, 80) for name in ("a", "b")}
    report = inspection(tmp_path, text_model("m (float[1] x) => (float[1] y) { y = Identity(x) }", weights))

    run = sarif(report)

    assert [result["ruleId"] for result in run["results"]] == [
        finding.id
        for finding in sorted(report.findings, key=lambda f: ("error", "warning", "note").index(f.severity))
    ]
    assert {uri(result) for result in run["results"]} == {f"file://{tmp_path}/model.onnx"}
    assert run["automationDetails"]["id"] == "onnxledger/inspect/"


@pytest.mark.child
def test_a_survey_says_which_models_cannot_be_read(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0")
    audit(tmp_path, text_model("m (float[1] x) => (float[1] y) { y = Identity(x) }", {"w": ramp(64, 64)}))

    run = sarif(SurveyReport(survey_models([str(tmp_path)])))

    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert notification["descriptor"]["id"] == "unreadable"
    assert "git lfs pull" in notification["message"]["text"]
    assert {uri(result) for result in run["results"]} == {f"file://{tmp_path}/model.onnx"}


def test_what_does_not_balance_is_an_error_of_a_reconciliation_and_of_an_export(tmp_path):
    proto = text_model("m (float[1] x) => (float[1] y) { y = Identity(x) }", {"w": ramp(64, 64)})
    original = parameters_of({"w": ramp(64, 64), "gone": ramp(9, 9)})
    result = reconcile(tmp_path, proto, manifest_of(*original))
    report = ReconcileReport(result, group_by(result.ledger))

    runs = [sarif(report), sarif(ExportReport(("model.onnx",), report))]

    for run in runs:
        assert ("missing", "error") in [(each["ruleId"], each["level"]) for each in run["results"]]
    assert [run["automationDetails"]["id"] for run in runs] == ["onnxledger/reconcile/", "onnxledger/export/"]


# names in a file


@pytest.mark.parametrize("name", [*COMMANDS, "[click](https://evil)", "\ud800\x00", "<script>", "x" * 5000])
def test_a_hostile_name_stays_text(name):
    report = check_report(
        Finding("old-opset", Severity.NOTE, f"about {name}", (name,)),
        verdicts=(verdict(Status.FAIL, name), verdict(Status.SKIP, f"{name}2", Skipped.NOT_EVALUATED)),
    )

    run = sarif(report)

    assert json.dumps(run, ensure_ascii=False).isprintable()
    messages = [
        notification["message"]["text"]
        for notification in run["invocations"][0]["toolExecutionNotifications"]
    ]
    messages += [result["message"]["text"] for result in run["results"]]
    for rule in run["tool"]["driver"]["rules"][-2:]:
        messages += [rule["shortDescription"]["text"], rule["fullDescription"]["text"], rule["help"]["text"]]
    assert len(messages) == 9
    assert not any(re.search(r"(?<!\\)\[[^\]]*\]\(", message) for message in messages)


def test_a_model_of_hostile_names_is_written(tmp_path):
    run = sarif(inspection(tmp_path, hostile_model()))

    assert run["results"]


def test_two_reports_of_one_file_are_byte_identical(tmp_path):
    audit(tmp_path, hostile_model())

    def write() -> str | bytes:
        ledger = audit_model(tmp_path / "model.onnx")
        return render_report(Inspection(ledger, group_by(ledger)), "sarif")

    assert write() == write()


def test_a_report_without_a_problem_is_a_run_without_results():
    run = sarif(BudgetReport(("m.onnx",), (verdict(Status.PASS),)))

    assert run["results"] == []


# verify


def test_the_first_module_that_differs_is_a_result_with_its_cause(tmp_path: Path) -> None:
    run = sarif(verification(tmp_path))

    (result,) = run["results"]
    assert (result["ruleId"], result["level"], uri(result)) == ("verify/differs", "error", "new.onnx")
    assert "epsilon 0.05, and epsilon 1e-05 in the other" in result["message"]["text"]
    assert "output y at 32 dB signal to error" in result["message"]["text"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "verify/differs"


def test_an_output_that_was_not_compared_is_no_result_and_the_run_was_no_success(tmp_path: Path) -> None:
    (invocation,) = sarif(verification(tmp_path))["invocations"]

    (notification,) = invocation["toolExecutionNotifications"]
    assert invocation["executionSuccessful"] is False
    assert (notification["level"], notification["descriptor"]["id"]) == ("error", "verify/not-compared")


def test_two_files_that_are_the_same_have_no_result_but_a_warning_of_what_no_output_shows(
    tmp_path: Path,
) -> None:
    from dataclasses import replace

    report = verification(tmp_path)
    assert isinstance(report, VerifyReport)
    same = replace(report.outputs[0], agreement=Agreement(0.0, None, 120.0, Verdict.SAME))

    quiet = sarif(replace(report, outputs=(same,), values=(), first=None, differences=()))
    run = sarif(replace(report, outputs=(same,), values=(), first=None))

    assert (quiet["results"], quiet["invocations"][0]["executionSuccessful"]) == ([], True)
    assert [(each["ruleId"], each["level"]) for each in run["results"]] == [("verify/changed", "warning")]


def test_no_output_at_all_is_no_success(tmp_path: Path) -> None:
    from dataclasses import replace

    report = verification(tmp_path)
    assert isinstance(report, VerifyReport)

    run = sarif(replace(report, outputs=(), values=(), first=None, differences=()))

    assert run["invocations"][0]["executionSuccessful"] is False
