"""docs/budgets.md, "In CI": GitHub, GitLab, pre-commit and onnxledger accept the examples to copy."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from commands import run_here
from jobs_of_github import read_action
from models import noise, save, text_model

from analyzer.cli import command
from analyzer.formats import find_suffixes

ROOT = Path(__file__).parent.parent
PAGE = re.sub(
    r"^```console\n.*?^```$",
    "",
    (ROOT / "docs" / "budgets.md").read_text(encoding="utf-8"),
    flags=re.MULTILINE | re.DOTALL,
)
"""The page without the console blocks that the tests of documents run."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def workflows() -> list[Any]:
    read: list[Any] = [yaml.load(block, yaml.BaseLoader) for block in blocks("yaml")]
    return [block for block in read if "jobs" in block]


def our_steps() -> list[Any]:
    steps = [step for flow in workflows() for job in flow["jobs"].values() for step in job["steps"]]
    return [step for step in steps if step.get("uses", "").startswith("OWNER/onnxledger@")]


def vendored(name: str) -> Any:
    pytest.importorskip("check_jsonschema")
    path = resources.files("check_jsonschema").joinpath(f"builtin_schemas/vendor/{name}.json")
    return json.loads(path.read_text(encoding="utf-8"))


def calls() -> list[list[str]]:
    """Return every onnxledger command line on the page, also in YAML and Groovy."""
    joined = re.sub(r"\\\n\s*", "", PAGE)
    lines = re.findall(r"\bonnxledger ((?:check|inspect) [\w./-]+\.onnx[^\n'`]*)", joined)
    return [shlex.split(line) for line in lines]


def test_workflows_are_what_github_takes_for_ones():
    schema = vendored("github-workflows")

    assert len(workflows()) == 2
    for block in blocks("yaml"):
        if "jobs:" in block:
            read = yaml.safe_load(block)
            read["on"] = read.pop(True)  # YAML 1.1 reads `on` as true
            jsonschema.Draft7Validator(schema).validate(read)


def test_workflows_name_inputs_and_outputs_that_are_there():
    action = read_action()
    used = set(re.findall(r"steps\.budget\.outputs\.(\w+)", PAGE))

    assert used <= set(action["outputs"])
    assert our_steps()
    for step in our_steps():
        assert set(step["with"]) <= set(action["inputs"])
        assert all(
            name in step["with"] for name, about in action["inputs"].items() if about.get("required") is True
        )


def test_the_tables_list_every_input_and_output():
    action = read_action()
    rows = re.findall(r"^\| (`[^|]+`) \|", PAGE, re.MULTILINE)

    listed = set(re.findall(r"`([\w.-]+)`", " ".join(rows)))

    assert listed >= set(action["inputs"]) | set(action["outputs"])


def test_no_workflow_puts_an_expression_into_a_script():
    for flow in workflows():
        for job in flow["jobs"].values():
            assert not any("${{" in step.get("run", "") for step in job["steps"])


def test_the_formats_of_a_check_are_those_that_the_page_of_formats_lists():
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\.[^|]+) \|[^|]*\| ([^|]+) \|", page, re.MULTILINE)

    listed = {
        suffix
        for suffixes, reports in rows
        for suffix in re.findall(r"\.\w+", suffixes)
        if reports == "all" or "`check`" in reports or "rules" in reports
    }

    assert listed == set(find_suffixes("BudgetReport"))


def test_the_example_of_pre_commit_names_a_hook_and_options_that_are_there():
    (config,) = [read for block in blocks("yaml") if "repos" in (read := yaml.safe_load(block))]
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

    (used,) = config["repos"][0]["hooks"]

    assert used["id"] == hook["id"]
    parse("check", [*used["args"], "a.onnx"])


def test_the_example_of_gitlab_is_what_gitlab_takes_for_one():
    (config,) = [read for block in blocks("yaml") if "model-budget" in (read := yaml.safe_load(block))]

    jsonschema.validate(config, vendored("gitlab-ci"))

    assert config["model-budget"]["artifacts"]["reports"]["junit"] == "report.xml"


def parse(name: str, arguments: list[str]) -> None:
    """Parse a command line; click raises an error for unknown options."""
    command.commands[name].make_context(name, list(arguments), parent=click.Context(command))


def test_every_command_line_has_options_that_are_there():
    found = calls()

    assert len(found) >= 6
    for name, *arguments in found:
        parse(name, arguments)
    for step in our_steps():
        extra = re.sub(r"\$\{\{.*?\}\}", "1", step["with"].get("arguments", ""))
        parse("check", [*shlex.split(extra), step["with"]["model"]])


def test_the_budget_of_the_page_does_what_the_page_says(tmp_path):
    (tmp_path / "onnxledger.toml").write_text(blocks("toml")[0])
    assert tomllib.loads(blocks("toml")[0])["baseline"] == "main.json"
    (tmp_path / "models").mkdir()

    def write(width: int) -> None:
        proto = text_model(
            "m (float[1,100] x) => (float[1,100] y) { y = MatMul(x, weight) }", {"weight": noise(100, width)}
        )
        save(tmp_path / "models", proto, "encoder.onnx")

    write(100)
    (first, *others), (second, *more) = (
        next(call for call in calls() if call[0] == name) for name in ("check", "inspect")
    )
    assert run_here(second, *more, cwd=tmp_path).returncode == 0
    same = run_here(first, *without_page(others), cwd=tmp_path)
    write(103)
    grown = run_here(first, *without_page(others), cwd=tmp_path)

    assert (same.returncode, grown.returncode) == (0, 1)
    assert {path.suffix for path in tmp_path.glob("report.*")} == {".json", ".md", ".sarif", ".xml"}


def without_page(arguments: list[str]) -> list[str]:
    """Return the arguments without the HTML page, which needs an extra and has tests of its own."""
    place = arguments.index("report.html")
    return arguments[: place - 1] + arguments[place + 1 :]


@pytest.mark.parametrize("shown", [r"\x3a:error", r"\x23#[error]"])
def test_names_are_escaped_as_the_page_says(shown):
    from analyzer.text import printable

    assert f"`{shown}`" in PAGE
    assert printable(shown.replace(r"\x3a", ":").replace(r"\x23", "#")) == shown
