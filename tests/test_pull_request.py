"""A pull request that makes a model 3 % larger than main's, as GitHub and its reviewers see it."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import jsonschema
import onnx
import pytest
from ci_logs import read_annotation, read_sarif
from commands import run_here
from jobs_of_github import Finished, read_action, run_step, runner
from models import dynamo_like, noise, save, text_model

from analyzer.schemas import load_schema, schema_name

pytestmark = pytest.mark.child

(CHECK,) = (step for step in read_action()["runs"]["steps"] if step.get("id") == "check")

BUDGET = """
baseline = "main.json"

[[rules]]
name = "growth"
match = "models/*.onnx"
metric = "parameters"
limit = "at most +2 % over main.json"
message = "ask the serving team before you ship more"

[[rules]]
name = "size"
metric = "bytes"
limit = "1 MB"
"""

SCOPES = {"first": "encoder.layer.0", "up": "encoder.layer.1", "down": "encoder.layer.1"}


def model(hidden: int) -> onnx.ModelProto:
    """Return a model of two encoder layers; `hidden` is the width of the second."""
    weights = {
        "encoder.layer.0.weight": noise(100, 200),
        "encoder.layer.1.up": noise(200, hidden, seed=1),
        "encoder.layer.1.down": noise(hidden, 200, seed=2),
    }
    nodes = "[first] a = MatMul(x, w0) [up] b = MatMul(a, w1) [down] y = MatMul(b, w2)"
    proto = text_model(f"encoder (float[1,100] x) => (float[1,200] y) {{ {nodes} }}", weights)
    for node, name in zip(proto.graph.node, weights, strict=True):
        node.input[1] = name
    return dynamo_like(proto, scopes=SCOPES, parameters=tuple(weights))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the workspace of the pull request's job: its model, main's report and the budget, but not main's model."""
    folder = runner(tmp_path_factory.mktemp("job"))
    work = folder / "work"
    (work / "models").mkdir()
    save(work / "models", model(250), "encoder.onnx")
    made = run_here("inspect", "models/encoder.onnx", "-o", "main.json", "--quiet", cwd=work)
    assert made.returncode == 0, made.stderr
    save(work / "models", model(259), "encoder.onnx")
    (work / "onnxledger.toml").write_text(BUDGET)
    return folder


@pytest.fixture(scope="module")
def checked(job: Path) -> Finished:
    """Outputs of the action's step."""
    return run_step(CHECK, {"model": "models/encoder.onnx"}, job)


def test_the_job_fails_once_every_report_is_written(checked):
    assert checked.code == 1
    assert checked.outputs["passed"] == "false"
    assert set(checked.outputs) == {"passed", "json", "markdown", "sarif", "junit"}


def test_the_json_says_how_much_it_grew_and_where(checked):
    document = json.loads(Path(checked.outputs["json"]).read_text())

    jsonschema.validate(document, load_schema(schema_name(document)))
    growth, size = document["rules"]
    assert (growth["status"], size["status"], document["passed"]) == ("FAIL", "PASS", False)
    assert (growth["baseline"], growth["observed"]) == (120_000, 123_600)  # 3 % more
    assert (growth["limit"], growth["exceeded_by"]) == (122_400, 1_200)
    first = growth["contributors"][0]
    assert re.search(r"\b1\b", first["name"])
    assert first["value"] - first["baseline"] == 3_600


def test_the_comment_says_observed_limit_and_by_how_much(checked):
    comment = Path(checked.outputs["markdown"]).read_text()

    for number in ("123,600", "122,400", "1,200", "120,000", "+3,600"):
        assert number in comment
    assert any("FAIL" in line for line in comment.splitlines()[:3])
    assert "growth" in comment
    assert "ask the serving team" in comment


def test_the_comment_names_the_group_that_grew(checked):
    comment = Path(checked.outputs["markdown"]).read_text()

    (grew,) = [line for line in comment.splitlines() if "layer" in line and "+3,600" in line]

    assert "layer.1" in grew or "encoder" in grew


def test_the_summary_of_the_job_is_the_comment(checked):
    assert checked.summary == Path(checked.outputs["markdown"]).read_text()


def test_the_pull_request_is_annotated_at_the_model(checked):
    annotations = [read_annotation(line) for line in checked.stderr.splitlines() if line.startswith("::")]

    (error,) = [each for each in annotations if each[0] == "error"]

    assert error[1] == {"file": "models/encoder.onnx", "title": "onnxledger: over budget: growth"}
    assert "123,600" in error[2]
    assert "most of it in encoder.layer.1" in error[2]
    assert "ask the serving team" in error[2]


def test_code_scanning_gets_the_rule_and_where_it_stands(checked):
    run = read_sarif(Path(checked.outputs["sarif"]).read_text())

    (failed,) = [result for result in run["results"] if result["ruleId"] == "budget/growth"]

    assert failed["level"] == "error"
    place = failed["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "models/encoder.onnx"
    (rule,) = failed["relatedLocations"]
    assert rule["physicalLocation"]["artifactLocation"]["uri"].endswith("onnxledger.toml")
    line = rule["physicalLocation"]["region"]["startLine"]
    assert "rules" in BUDGET.splitlines()[line - 1] or "growth" in BUDGET.splitlines()[line - 1]


def test_junit_has_a_case_for_each_rule_and_one_failure(checked):
    root = ElementTree.parse(checked.outputs["junit"]).getroot()

    cases = list(root.iter("testcase"))

    assert len([case for case in cases if case.find("failure") is not None]) == 1
    assert {"growth", "size"} <= {re.sub(r"[^a-z]", "", case.get("name", "")) for case in cases} or len(
        cases
    ) == 2


def test_the_log_says_the_same_to_people(checked):
    assert "123,600" in checked.stdout
    assert "FAIL" in checked.stdout
    assert "Traceback" not in checked.stderr


def test_a_pull_request_that_grows_by_less_passes(job, tmp_path):
    folder = runner(tmp_path / "other")
    for name in ("main.json", "onnxledger.toml"):
        shutil.copy(job / "work" / name, folder / "work" / name)
    (folder / "work" / "models").mkdir()
    save(folder / "work" / "models", model(255), "encoder.onnx")

    done = run_step(CHECK, {"model": "models/encoder.onnx"}, folder)

    assert (done.code, done.outputs["passed"]) == (0, "true")
    assert "::error" not in done.stderr


def test_without_the_baseline_the_pull_request_does_not_pass(job, tmp_path):
    folder = runner(tmp_path / "other")
    shutil.copytree(job / "work", folder / "work", dirs_exist_ok=True)
    (folder / "work" / "main.json").unlink()

    done = run_step(CHECK, {"model": "models/encoder.onnx"}, folder)

    assert (done.code, done.outputs["passed"]) == (2, "false")
    assert "budget not evaluated" in done.stderr or "main.json" in done.stderr
