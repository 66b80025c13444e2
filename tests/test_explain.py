"""`onnxledger explain`: output in each format, and refusal of unknown ids."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result
from models import ramp, save, text_model

from analyzer import explain as look_up
from analyzer.account.findings.catalog import EXPLANATIONS
from analyzer.cli import command
from analyzer.errors import UsageError
from analyzer.schemas import load_schema

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "findings.md"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments])


@pytest.mark.parametrize("ids", [(), ("nan-or-inf",)])
def test_a_line_is_as_long_as_the_terminal_is_wide(ids, monkeypatch):
    longest = []
    for width in (40, 80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        longest.append(max(map(len, run("explain", *ids).stdout.splitlines())))
        assert longest[-1] <= width

    assert longest == sorted(set(longest))


def test_without_an_id_all_are_listed_with_their_titles():
    lines = run("explain").stdout.splitlines()

    assert [line.split()[0] for line in lines[1:-1] if line[:1] != " "] == list(EXPLANATIONS)
    words = " ".join(lines)
    assert all(set(known.title.split()) <= set(words.split()) for known in EXPLANATIONS.values())
    assert lines[-1] == "onnxledger explain ID shows its meaning, its cost, and how to fix it"


def test_text_says_everything_and_keeps_its_lines_short():
    for id_, explanation in EXPLANATIONS.items():
        text = run("explain", id_).stdout
        words = " ".join(text.split())
        for part in (
            explanation.title,
            explanation.meaning,
            explanation.cost,
            explanation.seen_by,
            explanation.docs,
        ):
            assert " ".join(part.split()) in words
        prose = [line for line in text.splitlines() if not line.startswith("    ")]
        assert text.startswith(f"{id_}\n")
        assert max(map(len, prose)) <= 80
        assert max(map(len, text.splitlines())) <= 100


def test_several_ids_are_explained_in_their_order_and_each_once():
    text = run("explain", "old-opset", "fp64-weights", "old-opset").stdout

    second = "\nold-opset\nan opset that onnxruntime does not run (warning).\n\nWhat it means\n  The model"
    assert second in text
    assert text.count("\nWhat it means\n") == 2
    assert text.index("\nold-opset\n") < text.index("\nfp64-weights\n")


@pytest.mark.parametrize(
    ("ids", "expected"), [(("missing", "differing"), ["missing", "differing"]), ((), list(EXPLANATIONS))]
)
def test_json_matches_its_schema(ids, expected):
    document = json.loads(run("explain", *ids, "--format", "json").stdout)

    jsonschema.Draft202012Validator(load_schema("explain")).validate(document)
    assert [row["id"] for row in document["findings"]] == expected
    assert document["findings"][0]["mend"] == EXPLANATIONS[expected[0]].mend


def test_markdown_of_one_has_no_page_around_it():
    text = run("explain", "transposed-copy", "--format", "markdown").stdout

    assert text.startswith("### `transposed-copy`\n\n**a tensor is stored again, transposed (warning)**\n")
    assert text.count("###") == 1


@pytest.mark.parametrize(
    "arguments",
    [("explain", "fp64-weigths"), ("inspect", "MODEL", "--ignore", "fp64-weigths")],
    ids=["explain", "--ignore"],
)
def test_unknown_id_is_refused_with_the_nearest(tmp_path, arguments):
    path = save(
        tmp_path, text_model("g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }", {"w": ramp(3, 2)})
    )

    result = run(*(str(path) if argument == "MODEL" else argument for argument in arguments))

    assert isinstance(result.exception, UsageError)  # main() turns it into exit code 2
    assert "did you mean fp64-weights" in str(result.exception)
    assert result.stdout == ""


def test_id_that_only_another_command_finds_may_be_ignored(tmp_path):
    path = save(
        tmp_path, text_model("g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }", {"w": ramp(3, 2)})
    )

    assert run("inspect", str(path), "--strict", "--ignore", "untied-weights").exit_code == 0


def test_library_explains_too():
    assert look_up("weightless") is EXPLANATIONS["weightless"]


@pytest.fixture
def drawn(request: pytest.FixtureRequest) -> None:
    """Rewrite the page of findings under --update-golden."""
    if request.config.getoption("--update-golden"):
        PAGE.write_text(draw(), encoding="utf-8")


def draw() -> str:
    """Return the command's output as a page of its own."""
    return run("explain", "--format", "markdown").stdout.replace("### Findings", "# Findings", 1)


@pytest.mark.usefixtures("drawn")
def test_page_of_findings_is_what_the_catalogue_says():
    assert PAGE.read_text(encoding="utf-8") == draw(), "make golden rewrites it"
