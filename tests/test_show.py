"""Saved reports in every format, without their models."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import reports
from commands import run_here
from models import save, text_model

from analyzer.errors import UsageError
from analyzer.formats import FORMATS, find_saved_formats, render_report, render_saved
from analyzer.reports import Report

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
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "not a report of onnxledger"),
        (json.dumps({"schema_version": 2, "command": "inspect"}), "of schema version 1"),
        (json.dumps({"schema_version": 1, "command": "\x1b[31m"}), "cannot be compared or shown"),
    ],
)
def test_what_is_no_report_is_refused_and_nothing_is_written(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    done = run_here("show", tmp_path / "bad.json", "-o", tmp_path / "page.html")
    assert (done.returncode, (tmp_path / "page.html").exists()) == (2, False)
    assert reason in done.stderr
    assert "\x1b" not in done.stderr


def test_half_a_character_in_a_report_is_refused(report: Path, tmp_path: Path) -> None:
    """JSON can contain a lone surrogate, which UTF-8 cannot encode."""
    path = save(tmp_path, text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    run_here("verify", path, "--against", path, "--static", "-o", report)
    report.write_text(report.read_text().replace('"onnxledger"', '"\\ud800x"'))

    done = run_here("show", report)

    assert (done.returncode, done.stdout) == (2, "")
    assert "not a whole report" in done.stderr


def test_a_suffix_that_such_a_report_has_not_is_refused(report: Path, tmp_path: Path) -> None:
    done = run_here("show", report, "-o", tmp_path / "page.xml")
    assert done.returncode == 2
    assert "no format for the suffix '.xml'; use one of .json, .txt, .md, .csv, .html, .sarif" in done.stderr
    assert run_here("show", report, "-o", report).returncode == 2


def test_a_wrong_value_is_refused_with_the_path_of_its_key(report: Path, tmp_path: Path) -> None:
    document = json.loads(report.read_text())
    document["tensors"][0]["uses"] = "many"
    report.write_text(json.dumps(document))

    done = run_here("show", report)

    assert done.returncode == 2
    assert "`$.tensors[0].uses`" in done.stderr


@pytest.mark.parametrize("make", [*reports.REPORTS], ids=lambda make: make.__name__)
def test_a_saved_report_reads_as_the_report_did(
    make: Callable[[Path], Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = make(tmp_path)
    saved = json.loads(render_report(report, "json"))

    for form in find_saved_formats(saved).values():
        style = next(name for name, each in FORMATS.items() if each is form)
        if style in ("png", "csv") or (saved["command"] == "formula" and style != "json"):
            continue  # only the report has a formula's symbols; a document has expressions over fields
        if style == "svg" and saved["command"] == "cost" and not saved["live"]:
            with pytest.raises(UsageError, match="add --memory"):
                render_saved(saved, style=style)
            continue
        assert render_saved(saved, style=style) == render_report(report, style)

    rows = list(csv.DictReader(str(render_saved(saved, style="csv")).splitlines()))
    expected = list(csv.DictReader(str(render_report(report, "csv")).splitlines()))
    if saved["command"] in ("inspect", "reconcile", "export") and "models" not in saved:
        assert all(not row.pop("group") for row in rows)
        assert all(row.pop("group") is not None for row in expected)
    assert rows == expected
