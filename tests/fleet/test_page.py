"""The page of a lake: its models, families and findings, in one file that loads nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import run_here
from fleets import add, survey, turned, weights
from models import save

pytestmark = pytest.mark.child

NAME = "</script><img src=x onerror=alert(1)>.onnx"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "zoo"
    for number in range(15):
        add(folder, f"m{number}.onnx", weights(number))
    save(folder, turned(weights(3)), "copy.onnx")
    add(folder, NAME.replace("/", ""), weights(99))
    (folder / "broken.onnx").write_text("no model")
    survey(folder, lake=tmp_path / "lake")
    return tmp_path / "lake"


def islands(page: str) -> dict[str, Any]:
    """Data of the page's tables and pictures, by title."""
    found = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    return {data.get("title", "picture"): data for data in map(json.loads, found)}


def test_a_page_has_every_model_and_its_families_and_findings(lake: Path, tmp_path: Path) -> None:
    done = run_here("sql", lake, "-o", tmp_path / "page.html")
    data = islands((tmp_path / "page.html").read_text())

    assert done.returncode == 0, done.stderr
    models = data["Models"]
    assert len(models["rows"]) == 18
    assert Path(models["rows"][0][0]).name == "broken.onnx"  # the worst model is first
    assert [column[0] for column in models["columns"]][:3] == ["model", "parameters", "file bytes"]
    (families,) = [each for title, each in data.items() if title.startswith("Models with the same weights")]
    assert len(families["rows"]) == 2
    assert any(title.startswith("Findings by kind") for title in data)


def test_a_page_loads_nothing_and_runs_no_name(lake: Path, tmp_path: Path) -> None:
    run_here("sql", lake, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()

    assert "default-src &#39;none&#39;" in page
    assert "<img src=x" not in page
    assert not re.search(r"<(script|iframe) [^>]*(src|href)=", page)


def test_survey_writes_the_page_too_and_an_answer_may_be_one(lake: Path, tmp_path: Path) -> None:
    survey_page, answer = tmp_path / "survey.html", tmp_path / "answer.html"

    done = run_here("survey", tmp_path / "zoo", "-o", lake, "-o", survey_page, "--jobs", 1)
    queried = run_here("sql", lake, "SELECT model FROM models", "-o", answer)
    run_here("sql", lake, "-o", tmp_path / "page.html")

    assert (done.returncode, queried.returncode) == (0, 0)
    assert survey_page.read_text() == (tmp_path / "page.html").read_text()
    assert len(islands(answer.read_text())["Model"]["rows"]) == 18
