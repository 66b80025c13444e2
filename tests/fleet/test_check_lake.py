"""Budgets over a lake give the verdicts of its models; relative budgets compare it with an earlier lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from commands import run_here
from fleets import add, survey, weights
from models import save, text_model
from onnx import helper

pytestmark = pytest.mark.child


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number in range(5):
        add(tmp_path / "zoo", f"m{number}.onnx", weights(number, a=8 * (number + 1)))
    return Path("zoo")


def without_contributors(text: str) -> Any:
    """Return a report without the contributors of failed rules: a lake, like a saved report, has no nodes to list."""
    document = json.loads(text)
    for rule in document["rules"]:
        del rule["contributors"]
    return document


def test_a_lake_is_judged_as_its_models_are(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "zoo" / "broken.onnx").write_text("no model")
    survey(zoo, lake=Path("lake"))
    rules = ["--max-parameters", "1500", "--max-nodes", "3", "--allowed-dtypes", "FLOAT", "--strict"]

    of_files = run_here("check", zoo, *rules, "--format", "json")
    of_lake = run_here("check", "lake", *rules, "--format", "json")

    assert without_contributors(of_lake.stdout) == without_contributors(of_files.stdout)
    assert of_lake.returncode == of_files.returncode == 1
    assert {rule["status"] for rule in json.loads(of_lake.stdout)["rules"]} == {"PASS", "FAIL", "SKIP"}


FUNCTIONS = """<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { h = my.Twice(x) y = Mul(h, w) }
<domain: "my", opset_import: ["" : 18]> Twice (a) => (b) { b = Add(a, a) }
"""


@pytest.mark.parametrize("allowed", ["Add,Mul,MatMul,Relu", "Mul,MatMul,Relu", "Add,MatMul,Relu"])
def test_operators_of_a_lake_and_of_a_report_are_those_of_the_files(
    zoo: Path, tmp_path: Path, allowed: str
) -> None:
    save(tmp_path / "zoo", text_model(FUNCTIONS), "calls.onnx")
    survey(zoo, lake=Path("lake"))
    run_here("inspect", zoo / "calls.onnx", "-o", "report.json")
    Path("ops.txt").write_text("\n".join(allowed.split(",")))
    rules = ["--allowed-ops", "ops.txt", "--allowed-domains", "ai.onnx", "--format", "json"]

    runs = {
        name: run_here("check", name, *rules) for name in ("zoo", "lake", zoo / "calls.onnx", "report.json")
    }

    files, lake, file, report = (without_contributors(done.stdout)["rules"] for done in runs.values())
    assert lake == files
    assert [rule["status"] for rule in report] == [rule["status"] for rule in file]
    assert {rule["status"] for rule in files} <= {"PASS", "FAIL"}


def test_growth_is_over_the_model_of_the_same_name_in_an_earlier_lake(zoo: Path, tmp_path: Path) -> None:
    survey(zoo, lake=Path("old"))
    add(tmp_path / "zoo", "m1.onnx", weights(1, a=80))
    add(tmp_path / "zoo", "new.onnx", weights(9))
    survey(zoo, lake=Path("lake"))

    done = run_here("check", "lake", "--max-bytes", "+5 %", "--baseline", "old", "--format", "json")

    statuses = {rule["model"]: rule["status"] for rule in json.loads(done.stdout)["rules"]}
    assert done.returncode == 1
    assert statuses == {
        "zoo/m0.onnx": "PASS",
        "zoo/m1.onnx": "FAIL",
        "zoo/m2.onnx": "PASS",
        "zoo/m3.onnx": "PASS",
        "zoo/m4.onnx": "PASS",
        "zoo/new.onnx": "SKIP",
    }
    (new,) = [rule for rule in json.loads(done.stdout)["rules"] if rule["model"] == "zoo/new.onnx"]
    assert "zoo/new.onnx is not in old" in new["message"]


def test_rules_of_a_config_have_their_globs_and_say_where_they_match_nothing(zoo: Path) -> None:
    survey(zoo, lake=Path("lake"))
    Path("onnxledger.toml").write_text(
        '[[rules]]\nname = "one"\nmetric = "parameters"\nlimit = "at most 1"\nmatch = "zoo/m1.onnx"\n'
        '[[rules]]\nname = "none"\nmetric = "parameters"\nlimit = "at most 1"\nmatch = "other/*"\n'
    )

    done = run_here("check", "lake", "--format", "json")

    assert [(rule["name"], rule["model"], rule["status"]) for rule in json.loads(done.stdout)["rules"]] == [
        ("one", "zoo/m1.onnx", "FAIL"),
        ("none", None, "SKIP"),
    ]


def test_a_lake_stands_alone_and_its_baseline_is_a_lake(zoo: Path) -> None:
    survey(zoo, lake=Path("lake"))

    beside = run_here("check", "lake", zoo, "--max-nodes", "9")
    no_lake = run_here("check", "lake", "--max-bytes", "+5 %", "--baseline", zoo)

    assert (beside.returncode, no_lake.returncode) == (2, 2)
    assert "checked alone" in beside.stderr
    assert "is not a lake" in no_lake.stderr


@pytest.mark.parametrize(
    "limit", [("--max-macs", "batch=1: 1"), ("--max-memory", "1 KiB"), ("--max-drift", "40dB")]
)
def test_what_a_lake_cannot_answer_is_refused(zoo: Path, limit: tuple[str, str]) -> None:
    survey(zoo, lake=Path("lake"))

    done = run_here("check", "lake", *limit, "--min-opset", "5")

    assert done.returncode == 2
    assert limit[0] in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("limit", [("--max-macs", "batch=1: 1"), ("--max-memory", "1 KiB")])
def test_of_a_saved_report_nobody_knows_what_a_run_takes(zoo: Path, limit: tuple[str, str]) -> None:
    run_here("inspect", zoo / "m0.onnx", "-o", "report.json")

    done = run_here("check", "report.json", *limit, "--format", "json")

    (rule,) = json.loads(done.stdout)["rules"]
    assert done.returncode == 2
    assert (rule["status"], rule["skipped"]) == ("SKIP", "not-evaluated")
    assert "does not hold the graph" in rule["message"]


def test_a_lake_that_no_survey_has_finished_is_no_answer(zoo: Path) -> None:
    survey(zoo, lake=Path("lake"))
    note = Path("lake", "lake.json")
    note_of_lake = json.loads(note.read_text())
    note.write_text(json.dumps({**note_of_lake, "complete": False}))

    done = run_here("check", "lake", "--min-opset", "5")

    assert (done.returncode, done.stdout) == (2, "")
    assert "its survey has not finished" in done.stderr


def test_two_versions_of_one_domain_are_no_version_in_a_lake_or_a_report_either(zoo: Path) -> None:
    proto = onnx.load(zoo / "m0.onnx")
    proto.opset_import.append(helper.make_opsetid("", 11))
    (zoo / "m0.onnx").write_bytes(proto.SerializeToString())
    survey(zoo, lake=Path("lake"))
    run_here("inspect", zoo / "m0.onnx", "-o", "report.json")

    of = {name: run_here("check", name, "--min-opset", "17") for name in ("zoo", "lake", "report.json")}

    assert {name: done.returncode for name, done in of.items()} == dict.fromkeys(of, 2)
    assert all("imports ai.onnx 11 and another" in " ".join(done.stdout.split()) for done in of.values())


def test_contents_that_were_read_less_than_required_are_no_answer(zoo: Path) -> None:
    survey(zoo, lake=Path("lake"))
    run_here("inspect", zoo / "m0.onnx", "-o", "report.json")

    for name in ("lake", "report.json"):
        done = run_here("check", name, "--strict", "--content", "full", "--format", "json")
        assert done.returncode == 2
        assert "--content sampled, less than the full asked for" in done.stdout + done.stderr
    assert run_here("check", "report.json", "--min-opset", "5", "--content", "sampled").returncode == 0


def test_a_rule_is_evaluated_for_each_name_of_a_file(zoo: Path) -> None:
    (zoo / "a.onnx").symlink_to("m3.onnx")
    survey(zoo, lake=Path("lake"))
    Path("onnxledger.toml").write_text(
        '[[rules]]\nname = "one"\nmetric = "opset"\nlimit = "at least 99"\nmatch = "*/m3.onnx"\n'
        '[[rules]]\nname = "other"\nmetric = "opset"\nlimit = "at least 99"\nmatch = "*/a.onnx"\n'
    )

    of_files, of_lake = (run_here("check", name, "--format", "json") for name in ("zoo", "lake"))

    outcomes = [
        [(rule["name"], rule["status"]) for rule in json.loads(done.stdout)["rules"]]
        for done in (of_files, of_lake)
    ]
    assert outcomes == [[("one", "FAIL"), ("other", "FAIL")]] * 2


def test_numbers_without_room_in_a_table_are_reported(zoo: Path) -> None:
    proto = onnx.load(zoo / "m0.onnx")
    proto.graph.initializer[0].dims[:] = [2**40, 2**40]
    (zoo / "m0.onnx").write_bytes(proto.SerializeToString())
    survey(zoo, lake=Path("lake"))

    done = run_here("check", "lake", "--max-parameters", "1G", "--format", "json")

    assert done.returncode == 2
    assert "numbers above 2^63" in done.stdout
