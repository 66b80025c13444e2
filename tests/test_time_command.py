"""`onnxledger time`, and `compare` of its saved reports: options, files, exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import timings
from click.testing import CliRunner, Result

import analyzer.timing.timer
from analyzer.cli import command
from analyzer.commands import terminal
from analyzer.commands.options import parse_size
from analyzer.commands.time import find_models
from analyzer.errors import OnnxLedgerError, UsageError
from analyzer.formats import find_suffixes
from analyzer.formats.json import render_json
from analyzer.schemas import load_schema, schema_name
from analyzer.timing.record import Timing
from analyzer.timing.request import Optimization


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, list(map(str, arguments)))


def message(*arguments: str | Path) -> str:
    """Return the message of a command that cannot answer."""
    result = run(*arguments)
    assert isinstance(result.exception, OnnxLedgerError), result.output
    assert result.stdout == ""
    return str(result.exception)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    timings.audit_net(tmp_path)
    return tmp_path / "model.onnx"


@pytest.fixture
def passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Record the arguments of the library's call, which returns a hand-made timing."""
    found: dict[str, Any] = {}
    made = timings.make_timing(tmp_path)

    def time_model(ledger: object, grouping: object, settings: object, **others: Any) -> Timing:
        found.update(others, grouping=grouping, settings=settings)
        return replace(made, stamp=others["stamp"])

    monkeypatch.setattr(analyzer.timing.timer, "time_model", time_model)
    return found


# arguments


def test_every_option_reaches_the_library(model: Path, passed: dict[str, Any], tmp_path: Path) -> None:
    result = run(
        *("time", model, "--shape", "batch=2", "--shape", "sequence=16:64:x2", "--past", "8"),
        *("--input", tmp_path / "x.npz", "--provider", "cuda", "--provider-option", "device_id=1"),
        *(
            "--threads",
            "3",
            "--optimization",
            "basic",
            "--custom-ops",
            "lib.so",
            "--runs",
            "5",
            "--warmup",
            "1",
        ),
        *("--seconds", "2.5", "--seed", "7", "--timeout", "60", "--memory-limit", "2GiB"),
        *("--by", "op", "--stamp", "--format", "json"),
    )

    assert result.exception is None
    settings = passed["settings"]
    assert (settings.provider, settings.provider_options) == ("cuda", (("device_id", "1"),))
    assert (settings.threads, settings.optimization, settings.seed) == (3, Optimization.BASIC, 7)
    assert (settings.schedule.runs, settings.schedule.warmup, settings.schedule.seconds) == (5, 1, 2.5)
    assert passed["shapes"].sizes == (("batch", 2),)
    assert passed["shapes"].sweep.values == (16, 32, 64)
    assert (passed["past"], passed["npz"]) == (8, tmp_path / "x.npz")
    assert passed["libraries"] == (Path("lib.so"),)
    assert (passed["limits"].seconds, passed["limits"].nbytes) == (60, 2 << 30)
    assert passed["grouping"].by == "op"
    assert json.loads(result.stdout)["generated_at"]


def test_without_options_the_defaults_are_those_of_the_library(model: Path, passed: dict[str, Any]) -> None:
    assert run("time", model).exception is None

    plain = timings.TimingSettings("cpu")
    assert passed["settings"] == plain
    assert (passed["past"], passed["npz"], passed["own"], passed["stamp"]) == (None, None, None, None)
    assert (passed["limits"].seconds, passed["limits"].nbytes) == (600, None)
    assert passed["progress"] is None


def test_the_users_groups_go_with_their_patterns(model: Path, passed: dict[str, Any]) -> None:
    assert run("time", model, "--group", "all=.").exception is None

    assert passed["grouping"].by == "group"
    assert list(passed["own"].patterns) == ["all"]


# outputs


def test_reports_and_plots_follow_their_suffixes(model: Path, passed: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the [report] extra")
    outputs = [tmp_path / f"report{suffix}" for suffix in (".json", ".txt", ".svg", ".png")]

    result = run("time", model, *(word for path in outputs for word in ("-o", path)))

    assert result.exception is None
    assert "[overhead]" in result.stdout
    document, text, svg, png = (path.read_bytes() for path in outputs)
    jsonschema.validate(json.loads(document), load_schema("time"))
    assert b"[overhead]" in text
    assert b"<svg" in svg
    assert png.startswith(b"\x89PNG")


def test_quiet_prints_nothing(model: Path, passed: dict[str, Any]) -> None:
    result = run("time", model, "--quiet")

    assert (result.exit_code, result.output) == (0, "")


def test_the_model_is_never_written_over(model: Path, passed: dict[str, Any]) -> None:
    plot = model.with_name("model.svg")
    shutil.copy(model, plot)

    assert "is an input of this command" in message("time", plot, "-o", plot)
    assert not passed


def test_other_commands_draw_no_plots(model: Path, tmp_path: Path) -> None:
    reason = message("inspect", model, "-o", tmp_path / "x.svg")

    assert "no format for the suffix '.svg'; use one of .json, .txt" in reason


# refusals


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--memory-limit", "much"), "--memory-limit 'much': not a number"),
        (("--provider", "gpu9"), "gpu9"),
        (("--shape", "batch"), "batch"),
        (
            ("-o", "plot.pdf"),
            f"no format for the suffix '.pdf'; use one of {', '.join(find_suffixes('Timing'))}",
        ),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_read(
    options: tuple[str, str], reason: str, passed: dict[str, Any]
) -> None:
    assert reason in message("time", "nowhere.onnx", *options)


@pytest.mark.parametrize(
    "options", [("--timeout", "nan"), ("--timeout", "inf"), ("--seconds", "nan"), ("--seed", str(1 << 63))]
)
def test_an_invalid_limit_is_refused(options: tuple[str, str], passed: dict[str, Any]) -> None:
    result = run("time", "nowhere.onnx", *options)

    assert result.exit_code == 2
    assert f"Invalid value for '{options[0]}'" in result.output


@pytest.mark.parametrize("by", ["dtype", "scope,role", "bytes"])
def test_keys_that_group_no_nodes_are_refused_before_anything_runs(model: Path, by: str) -> None:
    reason = f"--by {by}: groups no nodes, and these take the time; use scope, block, stage or op"

    assert reason in message("time", model, "--by", by)


def test_a_url_is_to_be_downloaded_first() -> None:
    assert "download it" in message("time", "https://host/model.onnx")


def test_a_folder_with_one_model_is_that_model_and_with_several_names_them(tmp_path: Path) -> None:
    timings.audit_net(tmp_path)

    assert list(find_models(str(tmp_path)).values()) == [tmp_path / "model.onnx"]
    shutil.copy(tmp_path / "model.onnx", tmp_path / "decoder.onnx")
    with pytest.raises(UsageError, match=r"holds 2 models; name one of decoder\.onnx, model\.onnx"):
        find_models(str(tmp_path))


def test_an_empty_name_names_nothing() -> None:
    assert "the name is empty" in message("time", "")


@pytest.mark.parametrize("text", ["", "0", "-1", "GiB", "1e9", "1 PB", "9" * 30, "1GiBB", "\u0661"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--memory-limit "):
        parse_size("--memory-limit", text)


def test_a_memory_limit_is_written_as_a_budget() -> None:
    assert parse_size("--memory-limit", "512m") == parse_size("--memory-limit", "0.512 GB") == 512_000_000


# progress


@pytest.mark.parametrize(("watched", "quiet"), [(True, False), (True, True), (False, False)])
def test_stages_are_shown_only_on_a_terminal(
    watched: bool, quiet: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: watched)

    with terminal.stages("timing [bold]", quiet) as show_stage:
        if show_stage is not None:
            show_stage("loading\x1b[2J")

    shown = watched and not quiet
    assert (show_stage is not None) == shown
    assert capsys.readouterr().out == ""


# compare


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    def save(name: str, timing: Timing) -> Path:
        path = tmp_path / name
        path.write_text(render_json(timing), encoding="utf-8")
        return path

    return save


def test_two_saved_timings_are_compared(saved: Callable[..., Path], tmp_path: Path) -> None:
    a = saved("a.json", timings.make_timing(tmp_path))
    b = saved("b.json", timings.make_timing(tmp_path, factor=1.1))

    text, document = run("compare", a, b), run("compare", a, b, "--format", "json")

    assert "10.0 % slower: 8.00 -> 8.80 ms a run" in text.stdout
    found = json.loads(document.stdout)
    assert schema_name(found) == "compare_time"
    jsonschema.validate(found, load_schema("compare_time"))
    assert (found["kind"], found["a"]) == ("time", str(a))
    assert found["totals"]["latency_ms"]["ratio"] == pytest.approx(8 / 8.8)


def test_two_saved_sweeps_are_compared(saved: Callable[..., Path], tmp_path: Path) -> None:
    a = saved("a.json", timings.make_sweep(tmp_path, (8, 16)))
    b = saved("b.json", timings.make_sweep(tmp_path, (16, 32)))

    found = json.loads(run("compare", a, b, "--format", "json").stdout)

    assert schema_name(found) == "compare_sweep"
    assert [point["value"] for point in found["points"]] == [16]


def test_a_timing_is_not_compared_with_anything_else(
    saved: Callable[..., Path], model: Path, tmp_path: Path
) -> None:
    timing = saved("timing.json", timings.make_timing(tmp_path))
    (tmp_path / "inspect.json").write_text(run("inspect", model, "--format", "json").stdout)

    for other in (model, tmp_path / "inspect.json"):
        assert f"{other}: not a report of time, but {timing} is one" in message("compare", timing, other)
        assert f"{other}: not a report of time, but {timing} is one" in message("compare", other, timing)
    assert "leave out --by" in message("compare", timing, timing, "--by", "op")


def test_a_comparison_is_not_written_over_what_it_reads(saved: Callable[..., Path], tmp_path: Path) -> None:
    timing = saved("timing.json", timings.make_timing(tmp_path))

    assert "is an input of this command" in message("compare", timing, timing, "-o", timing)


# with onnxruntime


@pytest.mark.time
def test_a_model_is_run_and_its_groups_sum_to_the_run(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the [time] extra")

    result = run("time", model, "--runs", "5", "--depth", "2", "--format", "json", "--threads", "1")

    assert result.exception is None
    found = json.loads(result.stdout)
    jsonschema.validate(found, load_schema("time"))
    groups = sum(group["ms"] for group in found["groups"])
    whole = groups + found["unattributed_ms"] + found["overhead_ms"]
    assert whole == pytest.approx(found["profiled_latency_ms"]["mean"])
    assert {"embeddings", "layer.0", "head"} <= {group["group"] for group in found["groups"]}
    assert (found["runs"], found["environment"]["threads"]) == (5, 1)
