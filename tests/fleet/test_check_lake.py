"""Budgets over a lake say what they say over its models, and relative ones what has changed since an earlier lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import run_here
from fleets import add, survey, weights

pytestmark = pytest.mark.child


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number in range(5):
        add(tmp_path / "zoo", f"m{number}.onnx", weights(number, a=8 * (number + 1)))
    return Path("zoo")


def without_contributors(text: str) -> Any:
    """A report but for the parts of what failed: a lake, as a saved report, has no nodes to list."""
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


def test_growth_is_over_the_model_of_the_same_name_in_an_earlier_lake(zoo: Path, tmp_path: Path) -> None:
    survey(zoo, lake=Path("old"))
    add(tmp_path / "zoo", "m1.onnx", weights(1, a=80))
    add(tmp_path / "zoo", "new.onnx", weights(9))
    survey(zoo, lake=Path("lake"))

    done = run_here("check", "lake", "--max-bytes", "+5 %", "--baseline", "old", "--format", "json")

    said = {rule["model"]: rule["status"] for rule in json.loads(done.stdout)["rules"]}
    assert done.returncode == 1
    assert said == {
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
    assert "is no lake" in no_lake.stderr
