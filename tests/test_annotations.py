"""Annotations in a GitHub job's log, and names in a file that must not become the runner's commands."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from ci_logs import (
    COMMANDS,
    check_report,
    hostile_model,
    plain_model,
    read_annotation,
    read_commands,
    verdict,
)
from commands import run_here
from models import ramp, save

from analyzer.account.ledger import Finding, Severity
from analyzer.budget.record import Skipped, Status
from analyzer.commands.annotations import list_annotations
from analyzer.text import printable


def test_a_name_of_nothing_but_marks_is_escaped_at_once():
    for mark in (":", "#", ":é", "é:", "::error", " :"):
        assert printable(mark * 100_000)  # a scan of the rest at each mark would take hours
    assert printable("a:::error") == r"a\x3a\x3a:error"


# messages


def test_failed_and_unevaluated_rules_are_errors_and_findings_are_what_they_are():
    report = check_report(
        Finding("old-opset", Severity.NOTE, "opset 7 is old"),
        Finding("duplicate-content", Severity.WARNING, "two are equal"),
        verdicts=(
            verdict(Status.PASS),
            verdict(Status.FAIL),
            verdict(Status.SKIP, "growth", Skipped.NOT_EVALUATED),
            verdict(Status.SKIP, "off", Skipped.DISABLED),
        ),
    )

    annotations = [read_annotation(line) for line in list_annotations(report)]

    assert [(level, at["title"]) for level, at, _ in annotations] == [
        ("error", "onnxledger: over budget: size"),
        ("error", "onnxledger: budget not evaluated: growth"),
        ("warning", "onnxledger: duplicate-content"),
        ("notice", "onnxledger: old-opset"),
    ]
    assert {at["file"] for _, at, _ in annotations} == {"m.onnx"}
    assert annotations[0][2] == "12 of 10 bytes: 2 too many"


def test_an_ignored_finding_is_no_annotation():
    found = Finding("old-opset", Severity.NOTE, "opset 7 is old")
    report = check_report(found, verdicts=(verdict(Status.FAIL, "old-opset"),))

    (annotation,) = list_annotations(report, ["old-opset"])

    assert read_annotation(annotation)[1]["title"] == "onnxledger: over budget: old-opset"


def test_of_each_level_ten_are_printed_and_the_last_counts_the_rest():
    many = [Finding("old-opset", Severity.NOTE, f"number {n}") for n in range(25)]
    few = [Finding("duplicate-content", Severity.WARNING, f"number {n}") for n in range(10)]

    annotations = [read_annotation(line) for line in list_annotations(check_report(*many, *few))]

    assert Counter(level for level, _, _ in annotations) == {"warning": 10, "notice": 10}
    assert annotations[-1][2] == "16 more in the report"
    assert [text for level, _, text in annotations if level == "warning"][-1] == "number 9"


@pytest.mark.parametrize("name", [*COMMANDS, "50 %, a: b,c=d", "%0A::error::x", "\x1b[31mred"])
def test_what_a_file_names_stays_within_its_annotation(name):
    report = check_report(
        Finding("old-opset", Severity.NOTE, f"about {name}", (name,)),
        verdicts=(verdict(Status.FAIL, name, model=f"{name}.onnx"),),
        path=f"{name}.onnx",
    )

    lines = list_annotations(report)

    assert len(lines) == 2
    for line in lines:
        assert line.isprintable()
        level, at, text = read_annotation(line)
        assert level in ("error", "notice")
        assert set(at) == {"file", "title"}
        assert at["file"] == printable(f"{name}.onnx")
        assert text in ("12 of 10 bytes: 2 too many", printable(f"about {name}"))


def test_an_address_is_no_file_of_the_repository():
    (line,) = list_annotations(
        check_report(Finding("old-opset", Severity.NOTE, "m"), path="https://host/m.onnx")
    )

    assert line == "::notice title=onnxledger%3A old-opset::m"


def test_annotations_are_on_stderr_in_a_job_of_github_and_nowhere_else(tmp_path, monkeypatch):
    path = save(tmp_path, plain_model())

    silent = run_here("inspect", path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    in_job = run_here("inspect", path)
    quiet = run_here("inspect", path, "--quiet")

    assert (silent.stderr, quiet.stderr) == ("", "")
    assert in_job.stdout == silent.stdout
    annotations = [read_annotation(line) for line in in_job.stderr.splitlines()]
    assert ("warning", {"file": str(path), "title": "onnxledger: unused-initializer"}) in [
        each[:2] for each in annotations
    ]


def test_what_keeps_a_command_from_answering_is_an_annotation_too(tmp_path, monkeypatch):
    (tmp_path / "budget.toml").write_text('[[rules]]\nname = "a"\nmetric = "bites"\nlimit = 1\n')
    save(tmp_path, plain_model())
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    def annotate(*arguments: str) -> tuple[str, dict[str, str], str]:
        answer = run_here(*arguments, cwd=tmp_path)
        assert answer.returncode == 2
        (line,) = [line for line in answer.stderr.splitlines() if line.startswith("::")]
        return read_annotation(line)

    level, place, text = annotate("check", "model.onnx", "--config", "budget.toml")
    assert (level, place["file"], place["line"]) == ("error", "budget.toml", "3")
    assert "bytes" in text
    assert annotate("inspect", "none.onnx")[1] == {"title": "onnxledger cannot answer"}
    assert "--nonsense" in annotate("inspect", "model.onnx", "--nonsense")[2]


# names that must not become commands


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a model of hostile names, a smaller model, a state dict of these names, and a config."""
    from safetensors.numpy import save_file

    folder = tmp_path_factory.mktemp("hostile")
    save(folder, hostile_model())
    save(folder, plain_model(), "other.onnx")
    save(folder, b"\x08\x0a" + COMMANDS[0].encode(), "::error::broken.onnx")
    state = {name: ramp(64, 65, start=1 + number) for number, name in enumerate(COMMANDS)}
    state |= {f"{name}.missing": np.ones((3, 3), np.float32) for name in COMMANDS}
    save_file(state, folder / "state.safetensors")
    rules = "".join(
        f'[[rules]]\nname = {json.dumps(name)}\nmetric = "bytes"\nlimit = 1\nmessage = {json.dumps(name)}\n'
        for name in COMMANDS
    )
    (folder / "budget.toml").write_text(rules)
    config = {"model_type": COMMANDS[0], "architectures": list(COMMANDS), **dict.fromkeys(COMMANDS, 1)}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "wrong.toml").write_text(
        rules.replace("bytes", COMMANDS[0]) + "".join(f"[{json.dumps(name)}]\na = 1\n" for name in COMMANDS)
    )
    return folder


CASES = (
    ("inspect", "model.onnx", "-n", "0"),
    ("inspect", "model.onnx", "-n", "0", "--by", "op", "--verbose"),
    ("inspect", "model.onnx", "other.onnx", "::error::broken.onnx"),
    ("inspect", "model.onnx", "--format", "json"),
    ("inspect", "model.onnx", "--format", "markdown"),
    ("inspect", "model.onnx", "--format", "csv"),
    ("inspect", "::error::broken.onnx"),
    ("inspect", "::error::broken.onnx", "--verbose"),
    ("inspect", "::error::not there.onnx"),
    ("inspect", "model.onnx", "--\n::error::x"),
    ("inspect", "model.onnx", "--group", "::error::x=a", "--group", "\n::error::y=b"),
    ("reconcile", "model.onnx", "--against", "state.safetensors", "-n", "0"),
    ("reconcile", "model.onnx", "--against", "state.safetensors", "--verbose", "-n", "0"),
    ("reconcile", "model.onnx", "--against", "state.safetensors", "--format", "json"),
    ("reconcile", "model.onnx", "--against", "state.safetensors", "--format", "markdown"),
    ("reconcile", "model.onnx", "--against", "state.safetensors", "--format", "csv"),
    ("reconcile", "model.onnx", "--against", "::error::none.safetensors"),
    ("recover", "model.onnx", "--against", "state.safetensors", "-n", "0"),
    ("compare", "model.onnx", "other.onnx", "-n", "0"),
    ("compare", "model.onnx", "other.onnx", "--format", "markdown"),
    ("compare", "model.onnx", "other.onnx", "--format", "json"),
    ("compare", "model.onnx", "other.onnx", "--format", "csv"),
    ("check", "model.onnx", "--config", "budget.toml", "-n", "0"),
    ("check", "model.onnx", "--config", "budget.toml", "--format", "json"),
    ("check", "model.onnx", "--config", "budget.toml", "--format", "markdown"),
    ("check", "model.onnx", "--config", "budget.toml", "--format", "csv"),
    ("check", "model.onnx", "--config", "wrong.toml"),
    ("check", "model.onnx", "--allowed-domains", "ai.onnx", "-n", "0"),
    ("graph", "model.onnx", "-o", "graph.dot"),
    ("formula", "config.json"),
    ("formula", "config.json", "--verbose"),
    ("explain", "\n::error::x"),
)


@pytest.mark.child
@pytest.mark.parametrize("arguments", CASES, ids=lambda arguments: " ".join(arguments)[:60])
def test_no_name_of_a_file_is_a_command_to_the_runner(hostile, arguments):
    answer = run_here(*arguments, cwd=hostile)

    assert answer.returncode in (0, 1, 2)
    assert "internal error" not in answer.stderr
    assert list(read_commands(answer.stdout)) == []
    assert list(read_commands(answer.stderr)) == []


@pytest.mark.parametrize("arguments", CASES[::3], ids=lambda arguments: " ".join(arguments)[:60])
def test_in_a_job_every_command_of_a_log_is_one_of_ours(hostile, monkeypatch, arguments):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    answer = run_here(*arguments, cwd=hostile)

    assert list(read_commands(answer.stdout)) == []
    for line in read_commands(answer.stderr):
        level, place, _ = read_annotation(line)
        assert level in ("error", "warning", "notice")
        assert place["title"].startswith("onnxledger")
        assert set(place) <= {"file", "line", "title"}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_part_of_a_printable_name_is_a_command(name):
    shown = printable(name)

    assert printable(shown) == shown
    for start in range(len(shown)):  # at any place where a table may break or shorten it
        assert not re.match(r"::(add-mask|error|notice|set-output|stop-commands|warning)\b", shown[start:])
    assert list(read_commands(shown)) == []


@pytest.mark.parametrize("width", [80, 81, 83, 97])
def test_no_broken_line_begins_with_a_command(hostile, monkeypatch, width):
    from analyzer.account.audit import audit_model
    from analyzer.account.group import group_by
    from analyzer.formats import RenderOptions, render_report
    from analyzer.reports import Inspection

    ledger = audit_model(hostile / "model.onnx")

    text = render_report(
        Inspection(ledger, group_by(ledger, "scope")), "text", RenderOptions(rows=0, width=width)
    )

    assert list(read_commands(str(text))) == []


def test_json_that_was_escaped_for_the_runner_means_the_same(hostile):
    answer = run_here("inspect", "model.onnx", "--format", "json", cwd=hostile)

    names = {tensor["name"] for tensor in json.loads(answer.stdout)["tensors"]}

    assert names >= set(COMMANDS)
