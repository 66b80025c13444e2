"""A saved report of `time` is loaded as the same timing, or refused with a message."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timings

from analyzer.documents.saved.timing import is_saved_timing, load_timing
from analyzer.errors import UsageError
from analyzer.formats.json import render_json
from analyzer.timing.record import Timing


def save(folder: Path, timing: Timing) -> Path:
    path = folder / "timing.json"
    path.write_text(render_json(timing), encoding="utf-8")
    return path


@pytest.mark.parametrize("is_own", [False, True])
def test_a_loaded_timing_writes_the_report_that_it_was_loaded_from(tmp_path: Path, is_own: bool) -> None:
    path = save(
        tmp_path, replace(timings.make_timing(tmp_path, is_own=is_own), stamp="2025-01-31T12:00:00+00:00")
    )

    loaded = load_timing(path)

    assert loaded.ledger is None
    assert render_json(loaded) == path.read_text(encoding="utf-8")


def test_a_loaded_sweep_does_too(tmp_path: Path) -> None:
    path = save(tmp_path, timings.make_sweep(tmp_path))

    assert render_json(load_timing(path)) == path.read_text(encoding="utf-8")


def test_reports_of_other_commands_and_other_files_are_no_timings(tmp_path: Path) -> None:
    path = save(tmp_path, timings.make_timing(tmp_path))
    (tmp_path / "inspect.json").write_text('{"command": "inspect"}')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "timing.txt").write_text(path.read_text())

    assert is_saved_timing(path)
    for name in ("inspect.json", "list.json", "broken.json", "timing.txt", "nowhere.json"):
        assert not is_saved_timing(tmp_path / name)


def change(*keys: str | int, to: object) -> Callable[[Any], None]:
    def apply(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = to

    return apply


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: document.pop("groups"),
        lambda document: document.pop("settings"),
        change("latency_ms", "mean", to="fast"),
        change("latency_ms", "mean", to=True),
        change("groups", 0, "parameters", to=-1),
        change("groups", 0, "parameters", to=1.5),
        change("settings", "optimization", to="much"),
        change("inputs", 0, "fill", to="zeros"),
        change("device", to=None),
        change("kernels", to=None),
        change("axis", to="sequence"),
        change("model", to=[]),
        change("latency_ms", "mean", to=10**400),
        change("match", to=[]),
        change("groups_from", to={}),
    ],
)
def test_a_damaged_report_is_refused_with_its_name(tmp_path: Path, damage: Callable[[Any], None]) -> None:
    path = save(tmp_path, timings.make_timing(tmp_path))
    document = json.loads(path.read_text())
    damage(document)
    path.write_text(json.dumps(document))

    with pytest.raises(UsageError, match=r"timing\.json: not a whole report") as caught:
        load_timing(path)

    assert "make it again" in str(caught.value)


def test_nans_in_a_report_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path, timings.make_timing(tmp_path))
    path.write_text(path.read_text().replace('"p99": 12.0', '"p99": NaN'))

    with pytest.raises(UsageError, match="not a whole report"):
        load_timing(path)


def test_what_a_damaged_report_contains_is_reported_in_short(tmp_path: Path) -> None:
    path = save(tmp_path, timings.make_timing(tmp_path))
    document = json.loads(path.read_text())
    document["latency_ms"]["mean"] = "long" * 10_000
    path.write_text(json.dumps(document))

    with pytest.raises(UsageError) as caught:
        load_timing(path)

    assert len(str(caught.value)) < 300 + len(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('{"command": "inspect", "schema_version": 1}', "not a report of `onnxledger time"),
        ('{"command": "time", "schema_version": 2}', "of schema version 1"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_report_of_time_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "other.json").write_text(text)

    with pytest.raises(UsageError, match=message):
        load_timing(tmp_path / "other.json")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.json: cannot be read"):
        load_timing(tmp_path / "nowhere.json")
