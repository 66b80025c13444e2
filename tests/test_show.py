"""Saved reports as a page, without their models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import run_here
from models import save, text_model

MODEL = "g (float[1,2] x) => (float[1,2] y) <float[2,2] w = {1,2,3,4}> { y = MatMul(x, w) }"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    model = save(tmp_path, text_model(MODEL))
    path = tmp_path / "report.json"
    assert run_here("inspect", model, "--quiet", "-o", path, "-o", tmp_path / "inspect.html").returncode == 0
    model.unlink()
    return path


def test_the_page_is_the_one_that_the_command_itself_makes(report: Path, tmp_path: Path) -> None:
    done = run_here("show", report, "-o", tmp_path / "page.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "inspect.html").read_bytes()


def test_several_reports_are_sections_of_one_page(report: Path, tmp_path: Path) -> None:
    assert run_here("show", report, report, "-o", tmp_path / "two.html").returncode == 0
    assert (tmp_path / "two.html").stat().st_size > (tmp_path / "inspect.html").stat().st_size


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not a report of onnxledger"),
        (json.dumps({"schema_version": 2, "command": "inspect"}), "of schema version 1"),
        (json.dumps({"schema_version": 1, "command": "\x1b[31m"}), "no report"),
    ],
)
def test_what_is_no_report_is_refused_and_nothing_is_written(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    done = run_here("show", tmp_path / "bad.json", "-o", tmp_path / "page.html")
    assert (done.returncode, (tmp_path / "page.html").exists()) == (2, False)
    assert said in done.stderr
    assert "\x1b" not in done.stderr


def test_another_suffix_is_refused(report: Path, tmp_path: Path) -> None:
    done = run_here("show", report, "-o", tmp_path / "page.csv")
    assert done.returncode == 2
    assert "end it in .html" in done.stderr
    assert run_here("show", report, "-o", report).returncode == 2
