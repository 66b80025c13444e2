"""The composite action, as far as it runs without GitHub: its steps in bash, its inputs, its outputs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ci_logs import read_annotation
from jobs_of_github import ROOT, Finished, read_action, run_step, runner
from models import ramp, save, text_model

INSTALL, CHECK = (step for step in read_action()["runs"]["steps"] if "run" in step)

NAMES = (
    "plain.onnx",
    "two words.onnx",
    "$(touch pwned).onnx",
    "`touch pwned`.onnx",
    '";touch pwned;".onnx',
    "'quoted'.onnx",
    "-o.onnx",
    "--config=x.onnx",
    "*.onnx",
    "::set-output name=passed::true.onnx",
    "##[add-path]tmp.onnx",
    "größe.onnx",
)


def check(folder: Path, **inputs: str) -> Finished:
    return run_step(CHECK, {name.replace("_", "-"): value for name, value in inputs.items()}, folder)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Prepare a job whose workspace has a model of 6,400 parameters."""
    folder = runner(tmp_path)
    proto = text_model(
        "m (float[1,80] x) => (float[1,80] y) { y = MatMul(x, weight) }", {"weight": ramp(80, 80)}
    )
    save(folder / "work", proto)
    return folder


def expressions(value: Any) -> str:
    return " ".join(re.findall(r"\$\{\{(.*?)\}\}", json.dumps(value)))


# metadata


def test_the_action_is_what_github_takes_for_one():
    pytest.importorskip("check_jsonschema")
    vendor = resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/github-actions.json")
    action = read_action()

    jsonschema.validate(action, json.loads(vendor.read_text(encoding="utf-8")))

    assert action["runs"]["using"] == "composite"
    for step in action["runs"]["steps"]:
        assert ("uses" in step) or step["shell"] == "bash"


def test_no_input_is_part_of_a_script():
    for step in read_action()["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_every_input_is_described_and_used():
    action = read_action()

    used = set(re.findall(r"inputs\.([\w-]+)", json.dumps(action["runs"])))

    assert used == set(action["inputs"])
    for about in action["inputs"].values():
        assert about["description"]
        assert about.get("required") or isinstance(about["default"], str)


def test_every_output_is_described_and_is_one_of_its_step():
    for name, about in read_action()["outputs"].items():
        assert about["description"]
        assert about["value"] == f"${{{{ steps.check.outputs.{name} }}}}"
    assert CHECK["id"] == "check"


def test_every_variable_of_a_script_is_set():
    for step in (INSTALL, CHECK):
        own = set(re.findall(r"\b(\w+)=", step["run"])) | set(
            re.findall(r"(?:for|-d ''|-r) (\w+)", step["run"])
        )
        read = set(re.findall(r"\$\{?#?([A-Za-z_]\w*)", step["run"]))
        assert read <= own | set(step["env"]) | {"RUNNER_TEMP", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"}
        assert set(step["env"]) <= read | set(re.findall(r'environ\["(\w+)"\]', step["run"]))


# the installation step


@pytest.mark.child
@pytest.mark.parametrize(
    ("inputs", "installed"),
    [
        ({}, ["{source}"]),
        ({"with-html": "true"}, ["{source}[report]"]),
        ({"package": "onnxledger==0.1.0"}, ["onnxledger==0.1.0"]),
        ({"package": "onnxledger==0.1.0", "with-html": "true"}, ["onnxledger==0.1.0", "jinja2"]),
        ({"package": "$(touch pwned)"}, ["$(touch pwned)"]),
    ],
)
def test_it_installs_into_an_environment_of_its_own(tmp_path, inputs, installed):
    (tmp_path / "work").mkdir()
    log = tmp_path / "log"
    (tmp_path / "bin").mkdir()
    fake = (
        tmp_path / "bin" / "python3"
    )  # prints its arguments, and copies itself as the new environment's Python
    fake.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >> "{log}"\n'
        f'if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\n'
    )
    fake.chmod(0o755)

    done = run_step(INSTALL, inputs, tmp_path, PYTHON=str(fake))

    temp = str(tmp_path / "temp" / "onnxledger")
    assert (done.code, done.stderr) == (0, "")
    commands = log.read_text().splitlines()
    expected = [each.format(source=tmp_path / "action") for each in installed]
    assert commands == [
        "-m",
        "venv",
        temp,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        *expected,
    ]
    assert not (tmp_path / "work" / "pwned").exists()


def test_what_it_installs_by_default_has_the_requested_extra():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert "[report]" in INSTALL["run"]
    assert any(each.startswith("jinja2") for each in project["optional-dependencies"]["report"])


# the check step


@pytest.mark.child
def test_a_model_within_its_budget_passes_with_every_report(job):
    done = check(job, model="model.onnx", arguments="--max-parameters 7k")

    assert (done.code, done.outputs["passed"]) == (0, "true")
    assert set(done.outputs) == {"passed", "json", "markdown", "sarif", "junit"}
    for name in ("json", "sarif"):
        json.loads(Path(done.outputs[name]).read_text())
    assert Path(done.outputs["junit"]).read_text().startswith("<?xml")
    assert done.summary == Path(done.outputs["markdown"]).read_text()
    assert "::error" not in done.stderr


@pytest.mark.child
def test_a_model_over_its_budget_fails_once_all_is_written(job):
    done = check(job, model="model.onnx", arguments='--max-parameters 6k --max-bytes "20 KiB"')

    assert (done.code, done.outputs["passed"]) == (1, "false")
    assert json.loads(Path(done.outputs["json"]).read_text())["passed"] is False
    assert "6,400" in done.summary
    errors = [read_annotation(line) for line in done.stderr.splitlines() if line.startswith("::error")]
    assert [at["title"] for _, at, _ in errors] == [
        "onnxledger: over budget: max-parameters",
        "onnxledger: over budget: max-bytes",
    ]
    assert {at["file"] for _, at, _ in errors} == {"model.onnx"}


@pytest.mark.child
def test_a_page_is_written_where_it_is_requested(job):
    pytest.importorskip("jinja2")

    done = check(job, model="model.onnx", arguments="--max-nodes 5", with_html="true")

    assert done.code == 0
    assert "<html" in Path(done.outputs["html"]).read_text()


@pytest.mark.child
def test_a_model_that_cannot_be_read_is_no_pass(job):
    (job / "work" / "broken.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0")

    done = check(job, model="broken.onnx", arguments="--max-nodes 5")

    assert (done.code, done.outputs["passed"]) == (2, "false")
    assert done.summary


@pytest.mark.child
def test_a_wrong_argument_is_no_pass_and_the_summary_says_so(job):
    done = check(job, model="model.onnx", arguments="--max-nodes many")

    assert (done.code, done.outputs) == (2, {"passed": "false"})
    assert "could not answer" in done.summary


@pytest.mark.child
@pytest.mark.parametrize(
    "inputs",
    [{"model": "\n"}, {"model": "model.onnx", "arguments": "--max-nodes '5"}],
    ids=["model", "arguments"],
)
def test_an_input_without_sense_is_an_error_that_names_it(job, inputs):
    done = check(job, **inputs)

    assert (done.code, done.outputs) == (2, {"passed": "false"})
    assert f"the input {list(inputs)[-1]}" in done.stderr
    assert f"the input {list(inputs)[-1]}" in done.summary
    assert "Traceback" not in done.stderr


@pytest.mark.child
def test_config_and_baseline_are_passed_on(job):
    work = job / "work"
    baseline = subprocess.run(
        [sys.executable, "-m", "analyzer", "inspect", str(work / "model.onnx"), "--format", "json"],
        capture_output=True,
        check=True,
        cwd=ROOT,
    )
    (work / "the main.json").write_bytes(baseline.stdout)
    (work / "my budget.toml").write_text('[[rules]]\nname = "growth"\nmetric = "bytes"\nlimit = "+0"\n')

    done = check(job, model="model.onnx", config="my budget.toml", baseline="the main.json")

    assert (done.code, done.outputs["passed"]) == (0, "true")
    (rule,) = json.loads(Path(done.outputs["json"]).read_text())["rules"]
    assert (rule["name"], rule["status"], rule["baseline"]) == ("growth", "PASS", rule["observed"])


@pytest.mark.child
def test_several_models_are_checked_and_a_second_check_keeps_the_reports_of_the_first(job):
    model = (job / "work" / "model.onnx").read_bytes()
    (job / "work" / "other.onnx").write_bytes(model)

    first = check(job, model="model.onnx\nother.onnx\n", arguments="--max-nodes 5")
    second = check(job, model="other.onnx", arguments="--max-nodes 5")

    assert [
        len(json.loads(Path(each.outputs["json"]).read_text())["models"]) for each in (first, second)
    ] == [2, 1]
    assert first.outputs["json"] != second.outputs["json"]


@pytest.mark.child
@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_model_is_a_name_and_nothing_else(job, name):
    work = job / "work"
    (work / "model.onnx").rename(work / name)

    done = check(job, model=name, arguments="--max-parameters 6k")

    assert (done.code, done.outputs["passed"]) == (1, "false")
    assert json.loads(Path(done.outputs["json"]).read_text())["models"] == [name]
    assert [path.name for path in work.iterdir()] == [name]
    for line in (*done.stdout.splitlines(), *done.stderr.splitlines()):
        assert not re.search(r"##\w*\[", line)
        if line.lstrip().startswith("::"):
            level, at, _ = read_annotation(line)
            assert level in ("error", "warning", "notice")
            assert set(at) == {"file", "title"}


@pytest.mark.child
def test_a_report_too_long_for_a_summary_is_left_out(job):
    shim = job / "temp" / "onnxledger" / "bin" / "onnxledger"
    long = 'case "$each" in *.md) yes | head -c 1200000 > "$each";; esac'
    shim.write_text(f'#!/bin/sh\nfor each in "$@"; do {long}; done\n')

    done = check(job, model="model.onnx")

    assert done.code == 0
    assert len(done.summary) < 100


def test_the_action_stands_where_github_looks_for_it():
    assert yaml.safe_load((ROOT / "action.yml").read_text())["name"] == "onnxledger check"
