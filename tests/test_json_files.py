"""JSON files that a user names: special files and other formats are refused before they block or fill memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from commands import run_here
from models import save, text_model

from analyzer.json_files import load_json

MODEL = "g (float[2] x) => (float[2] y) { y = Relu(x) }"


def test_what_json_contains_is_read_and_what_is_no_json_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('\n {"ä": [1, null]}', encoding="utf-8")
    (tmp_path / "b.json").write_text("text", encoding="utf-8")
    (tmp_path / "c.json").write_bytes(b'{"a": "\xff"}')

    assert load_json(tmp_path / "a.json") == {"ä": [1, None]}
    with pytest.raises(ValueError, match="Expecting value"):
        load_json(tmp_path / "b.json")
    with pytest.raises(UnicodeDecodeError):
        load_json(tmp_path / "c.json")


@pytest.mark.parametrize(
    "command",
    [
        "show {}",
        "compare model.onnx {}",
        "compare {} model.onnx",
        pytest.param("reconcile model.onnx --against {}", marks=pytest.mark.export),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "device", "vast"])
def test_pipes_devices_and_vast_files_are_refused(tmp_path: Path, command: str, kind: str) -> None:
    path = tmp_path / "report.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"{")
        os.truncate(path, 1 << 40)
    save(tmp_path, text_model(MODEL, {}))

    done = run_here(*command.format("report.json").split(), cwd=tmp_path)

    assert done.returncode == 2
    assert "report.json" in done.stderr
    assert "regular file" in done.stderr or "bytes" in done.stderr or "config.json" in done.stderr
