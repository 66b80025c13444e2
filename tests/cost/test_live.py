"""Bytes alive after each node: in the document, and as a picture."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from commands import run_here
from models import noise, save, text_model

from analyzer.schemas import load_schema

pytestmark = pytest.mark.child  # onnxruntime writes the optimized graph in a child process

TEXT = """
g (float[b, 64] x) => (float[b, 8] y) {
    wide = MatMul(x, w) high = Tanh(wide) both = Add(wide, high) y = MatMul(both, v)
}
"""


def model_of(folder: Path) -> Path:
    return save(folder, text_model(TEXT, {"w": noise(64, 256), "v": noise(256, 8)}))


def test_the_document_has_the_bytes_after_each_node(tmp_path: Path) -> None:
    done = run_here("cost", model_of(tmp_path), "--memory", "--shape", "b=4", "--format", "json")

    document = json.loads(done.stdout)
    jsonschema.validate(document, load_schema("cost"))
    wide = 4 * 4 * 256
    assert [step["bytes"] for step in document["live"]] == [wide, 2 * wide, 3 * wide, wide + 4 * 4 * 8]
    assert max(step["bytes"] for step in document["live"]) == document["peak"]["value"]
    assert {row["value"]: row["saves"] for row in document["peak"]["live"]} == dict.fromkeys(
        ("wide", "high", "both"), wide
    )


def test_a_picture_needs_memory_and_marks_the_peak(tmp_path: Path) -> None:
    model = model_of(tmp_path)

    drawn = run_here(
        "cost",
        model,
        "--memory",
        "-o",
        tmp_path / "a.svg",
        "-o",
        tmp_path / "a.png",
        "-o",
        tmp_path / "a.html",
    )
    none = run_here("cost", model, "-o", tmp_path / "b.png")

    assert drawn.returncode == 0
    assert "live at the peak, after Add" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "Live bytes along the nodes" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert none.returncode == 2
    assert "add --memory" in none.stderr
    assert not (tmp_path / "b.png").exists()
