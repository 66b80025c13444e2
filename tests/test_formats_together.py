"""Several formats from one run: each equals its own run, and no file is half-written if one fails."""

from __future__ import annotations

import json
from pathlib import Path

import click
import models
import pytest
import timings
from commands import run_here

from analyzer.cli import command
from analyzer.formats import FORMATS, USUAL, Special, find_printed, find_suffixes
from analyzer.formats.json import render_json
from analyzer.manifest import save_manifest

TEXTS = find_printed()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.save(tmp_path, models.dynamo_like(models.text_model(timings.NET), scopes=timings.SCOPES))


def outputs(folder: Path, *suffixes: str) -> list[str]:
    return [part for suffix in suffixes for part in ("-o", str(folder / f"a{suffix}"))]


def test_one_run_writes_them_all_and_prints_another(model: Path, tmp_path: Path) -> None:
    suffixes = (".md", ".csv", ".json", ".txt")
    result = run_here("inspect", model, *outputs(tmp_path, *suffixes), "--format", "markdown")

    assert result.returncode == 0, result.stderr
    assert result.stdout == (tmp_path / "a.md").read_text(encoding="utf-8")
    for suffix, style in zip(suffixes, ("markdown", "csv", "json", "text"), strict=True):
        alone = run_here("inspect", model, "--format", style)
        assert alone.stdout == (tmp_path / f"a{suffix}").read_text(encoding="utf-8")


def test_quiet_writes_the_files_and_prints_nothing(model: Path, tmp_path: Path) -> None:
    result = run_here("inspect", model, *outputs(tmp_path, ".md", ".csv"), "--quiet")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (tmp_path / "a.md").stat().st_size > 0 < (tmp_path / "a.csv").stat().st_size


@pytest.mark.parametrize("suffix", [".docx", "", ".sarifx", ".tex", ".png"])
def test_a_suffix_without_a_format_is_reported_before_anything_is_written(
    suffix: str, model: Path, tmp_path: Path
) -> None:
    result = run_here("inspect", model, *outputs(tmp_path, ".md", suffix))

    assert (result.returncode, result.stdout) == (2, "")
    assert "no format for the suffix" in result.stderr
    assert ".md" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [model.name]


def test_a_file_that_cannot_be_written_is_reported_and_the_others_are_whole(
    model: Path, tmp_path: Path
) -> None:
    full = tmp_path / "a.csv"
    full.symlink_to("/dev/full")
    result = run_here("inspect", model, *outputs(tmp_path, ".md"), "-o", full, *outputs(tmp_path, ".json"))

    assert (result.returncode, result.stdout) == (2, "")
    assert f"-o {full}: cannot be written: No space left on device" in " ".join(result.stderr.split())
    alone = run_here("inspect", model, "--format", "markdown").stdout
    for path in (tmp_path / "a.md", tmp_path / "a.json"):
        if path.exists() and path.suffix == ".md":
            assert path.read_text(encoding="utf-8") == alone
        elif path.exists():
            json.loads(path.read_text(encoding="utf-8"))


def test_a_folder_that_is_not_there_is_reported_before_anything_is_written(
    model: Path, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere" / "a.csv"
    result = run_here("inspect", model, *outputs(tmp_path, ".md"), "-o", nowhere)

    assert (result.returncode, result.stdout) == (2, "")
    assert f"-o {nowhere}: its folder does not exist; create it first" in " ".join(result.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == [model.name]


def test_what_is_read_is_never_written_over(model: Path, tmp_path: Path) -> None:
    saved = tmp_path / "old.json"
    run_here("inspect", model, "-o", saved, "--quiet")
    before = saved.read_bytes()

    result = run_here("compare", saved, model, *outputs(tmp_path, ".md"), "-o", saved)

    assert (result.returncode, result.stdout) == (2, "")
    assert "is an input of this command" in result.stderr
    assert saved.read_bytes() == before
    assert not (tmp_path / "a.md").exists()


# every command that prints a report


def made(*arguments: object, code: int = 0) -> None:
    """Check that the command prints each text format."""
    for style in TEXTS:
        result = run_here(*arguments, "--format", style)
        assert result.returncode == code, result.stderr
        assert result.stdout.endswith("\n")
        assert "Traceback" not in result.stderr
        assert result.stdout.startswith("### ") == (style == "markdown")
        assert result.stdout.startswith("{") == (style == "json")


def test_inspect_of_one_and_of_many_has_every_form(model: Path, tmp_path: Path) -> None:
    for by in ("scope", "op", "bytes", "scope,dtype"):
        made("inspect", model, "--by", by)
    made("inspect", model, "--group", "early=embed", "--group", "late=layer")
    made("inspect", tmp_path)


def test_compare_of_models_and_of_timings_has_every_form(model: Path, tmp_path: Path) -> None:
    made("compare", model, model)
    made("compare", model, model, "--group", "early=embed")
    sides = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, factor in zip(sides, (1.0, 1.1), strict=True):
        timing = timings.make_timing(tmp_path, factor=factor)
        path.write_text(render_json(timing), encoding="utf-8")
    made("compare", *sides)
    for path, power in zip(sides, (1, 2), strict=True):
        path.write_text(render_json(timings.make_sweep(tmp_path, power=power)), encoding="utf-8")
    made("compare", *sides)


def test_reconcile_and_recover_have_every_form(tmp_path: Path) -> None:
    weight = models.ramp(3, 2)
    proto = models.text_model(
        'g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, "fc.weight") }', {"fc.weight": weight}
    )
    model = models.save(tmp_path, proto)
    save_manifest(models.manifest_of(models.parameter("fc.weight", weight)), tmp_path / "manifest.json")
    made("reconcile", model)
    for style in TEXTS:
        state = tmp_path / f"{style}.safetensors"
        result = run_here("recover", model, "-o", state, "--format", style)
        assert (result.returncode, state.exists()) == (0, True), result.stderr


def test_formula_has_every_form(tmp_path: Path) -> None:
    made("formula", "bert-base-uncased", "--class", "AutoModel")
    made("formula", "bert-base-uncased", "--symbolic")


def test_check_has_every_form(model: Path) -> None:
    made("check", model, "--max-parameters", "1k", "--no-config")
    made("check", model, "--max-parameters", "1", "--no-config", code=1)


def test_a_pull_request_that_grows_by_3_percent_gets_its_comment(tmp_path: Path) -> None:
    text = 'g (float[1,40] x) => (float[1,n] y) { h = MatMul(x, "fc.weight") y = MatMul(h, "out.weight") }'
    rest = {"out.weight": models.ramp(50, 40, start=9000)}
    main = models.save(
        tmp_path, models.text_model(text, {"fc.weight": models.ramp(40, 50), **rest}), "main.onnx"
    )
    grown = {"fc.weight": models.ramp(40, 53), **rest}
    branch = models.save(tmp_path, models.text_model(text, grown), "branch.onnx")
    run_here("inspect", main, "-o", tmp_path / "main.json", "--quiet")

    limits = ("--max-parameters", "+2 %", "--max-nodes", "+0", "--baseline", tmp_path / "main.json")
    result = run_here("check", branch, *limits, "--no-config", "-o", tmp_path / "comment.md", "--quiet")

    comment = (tmp_path / "comment.md").read_text(encoding="utf-8")
    assert result.returncode == 1, result.stderr
    assert comment.splitlines()[2] == "**✗ FAIL: 1 failed, 1 passed**"
    assert r"| `max-parameters` | FAIL | 4,120 | \<= 4,080 | 4,000 | +120 (+3.00 %) | 40 over |" in comment
    assert r"| `max-nodes` | PASS | 2 | \<= 2 | 2 | 0 | 0 (0 %) |" in comment
    assert "| **total** | **4,000** | **4,120** | **+120 (+3.00 %)** |\n" in comment


OF_THEIR_OWN: dict[str, Special] = {"check": "BudgetReport", "formula": "FormulaReport"}


@pytest.mark.parametrize("name", sorted({*command.commands} - {"graph", "explain", "show", "survey"}))
def test_format_takes_what_the_registry_says_is_printed(name: str) -> None:
    """Pages, pictures and formats for other programs are files, which only `-o` writes."""
    (style,) = (each for each in command.commands[name].params if each.name == "style")

    assert isinstance(style.type, click.Choice)
    assert tuple(style.type.choices) == find_printed(OF_THEIR_OWN.get(name))
    assert not {"html", "png", "svg", "sarif", "junit"} & set(style.type.choices)
    assert style.default == style.type.choices[0] == USUAL


def test_every_printed_format_is_the_text_of_the_file_with_its_suffix(model: Path, tmp_path: Path) -> None:
    for name in TEXTS:
        path = tmp_path / f"a{FORMATS[name].suffix}"
        result = run_here("inspect", model, "--format", name, "-o", path)
        assert result.stdout == path.read_text(encoding="utf-8")


def test_every_report_has_markdown_and_csv() -> None:
    assert {".md", ".csv"} <= find_suffixes(None).keys()
