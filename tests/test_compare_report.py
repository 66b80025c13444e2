"""Output of `compare`: the largest changes first, every total, and parts that were not compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from commands import run_here
from models import audit, ramp, save, text_model

from analyzer.account.ledger import Ledger
from analyzer.comparison import Comparison, compare_ledgers, group_alike
from analyzer.formats import RenderOptions, to_document
from analyzer.formats.text import render_text
from analyzer.schemas import load_schema

EVIL = "w\x1b[2J\u202egpj.exe"


def holding(folder: Path, **weights: np.ndarray[Any, Any]) -> Ledger:
    folder.mkdir()
    nodes = " ".join(f'y{i} = MatMul(x, "{name}")' for i, name in enumerate(weights))
    return audit(folder, text_model(f"g (float[2,2] x) => (float[2,2] y0) {{ {nodes} }}", weights))


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Ledger, Ledger]:
    """In B, one tensor is cast, one is new, one is gone, one has become a copy, and one is unchanged."""
    a = {
        "same.weight": ramp(2, 5, start=200),
        "cast.weight": ramp(8, 8),
        "gone.weight": ramp(2, 2, start=300),
        "twin": ramp(2, 5, start=400),
    }
    b = {
        "same.weight": ramp(2, 5, start=200),
        "cast.weight": ramp(8, 8).astype("f2"),
        "fresh.weight": ramp(3, 3, start=500),
        "twin": ramp(2, 5, start=200),
    }
    return holding(tmp_path / "a", **a), holding(tmp_path / "b", **b)


def compared(a: Ledger, b: Ledger, **options: Any) -> Comparison:
    return compare_ledgers(a, b, *group_alike(a, b, "scope", 1), **options)


def show(report: Comparison, rows: int = 20) -> str:
    return render_text(report, RenderOptions(rows=rows))


def rows_of(text: str, heading: str) -> dict[str, str]:
    """Return the rows of the table with this heading, by their first cell."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.startswith(heading))
    table: dict[str, str] = {}
    for line in lines:
        if not line:
            break
        table[line.split("  ")[0]] = " ".join(line.split())
    return table


def test_the_first_line_says_what_happened(sides):
    text = show(compared(*sides))

    assert " ".join(text.partition("\nold ")[0].split()) == (
        "88 -> 83 parameters (-5.7 %); 16.3 % smaller (652 -> 546 bytes); 1 tensor FLOAT -> FLOAT16; "
        "1 learned tensor added; 1 learned tensor gone"
    )


def test_every_total_is_printed_where_all_was_requested(sides):
    report = compared(*sides)

    rows = rows_of(render_text(report, RenderOptions(verbose=True)), "totals ")

    assert rows["parameters"] == "parameters 88 83 -5 -5.7 %"
    assert rows["stored elements"] == "stored elements 88 93 +5 +5.7 %"
    assert rows["stored bytes"] == "stored bytes 352 244 -108 -30.7 %"
    assert rows["tensors"] == rows["nodes"].replace("nodes", "tensors") == "tensors 4 4 0 0 %"


def test_groups_say_what_each_has_now_and_how_much_more_or_less_that_is(sides):
    rows = rows_of(show(compared(*sides)), "scope, depth 1")

    assert rows["cast"] == "cast 64 0 128 B -128 B -50.0 %"
    assert rows["fresh"] == "fresh 9 +9 36 B +36 B added"
    assert rows["gone"] == "gone 0 -4 0 B -16 B removed"
    assert rows["same"] == "same 10 0 80 B +40 B +100 %"
    assert rows["total"] == "total 83 -5 244 B -108 B -30.7 %"


def test_tensors_that_differ_say_in_what(sides):
    text = render_text(compared(*sides), RenderOptions(width=120))

    assert list(rows_of(text, "tensors that differ").values()) == [
        "cast.weight changed FLOAT -> FLOAT16 128 B -128 B",
        "fresh.weight added FLOAT 3x3 36 B +36 B",
        "gone.weight removed FLOAT 2x2 0 B -16 B",
        "twin changed 10 -> 0 parameters; copy of same.weight in the new model 40 B 0 B",
    ]


def test_rows_beyond_n_are_summed(sides):
    text = show(compared(*sides), rows=2)

    assert rows_of(text, "scope, depth 1")["[3 others]"] == "[3 others] 19 +5 116 B +60 B"
    assert rows_of(text, "tensors that differ")["[2 others]"] == "[2 others] 40 B -16 B"
    assert "others]" not in show(compared(*sides), rows=0)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_the_rows_that_are_shown_sum_to_the_totals(sides, rows):
    shown = rows_of(show(compared(*sides), rows), "scope, depth 1")

    counts = [[int(cell) for cell in row.removeprefix(name).split()[:2]] for name, row in shown.items()]

    *parts, total = counts
    assert [sum(column) for column in zip(*parts, strict=True)] == total == [83, -5]


def test_counts_of_each_status_are_printed(sides):
    text = " ".join(show(compared(*sides)).split())

    assert "groups: 1 added, 2 removed, 2 changed" in text
    assert "tensors: 1 unchanged, 1 added, 1 removed, 2 changed" in text


def test_what_is_unchanged_makes_no_claim_of_values_unless_they_were_compared(sides):
    a, b = sides
    note = "values were not compared (--content full); unchanged means the same type, shape, role and size"

    assert note in " ".join(show(compared(a, b)).split())
    whole = show(compared(a, b, content="full"))
    apart = "; not compared: 2 tensors with different type, shape, role or size"
    assert f"values compared in full: 1 tensor, 0 differ{apart}" in " ".join(whole.split())
    assert "values were not compared" not in whole
    alike = show(compared(a, a, content="sampled"))
    assert "values compared at fixed positions: 4 tensors, 0 differ\n" in alike


def test_other_values_are_reported(tmp_path):
    a, b = holding(tmp_path / "a", w=ramp(2, 2)), holding(tmp_path / "b", w=ramp(2, 2) + 1)

    text = show(compared(a, b, content="full"))

    assert rows_of(text, "tensors that differ")["w"] == "w changed different values 16 B 0 B"
    assert "1 tensor, 1 differ" in text


def test_a_model_beside_itself_is_the_same_file(sides):
    text = show(compared(sides[0], sides[0]))

    assert text.startswith("the same file\n")
    assert "tensors that differ" not in text


def test_other_nodes_are_a_difference(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    weights = {"w": ramp(2, 2)}
    a = audit(tmp_path / "a", text_model("g (float[2,2] x) => (float[2,2] y) { y = MatMul(x, w) }", weights))
    text = "g (float[2,2] x) => (float[2,2] y) { h = MatMul(x, w) y = Relu(h) }"
    b = audit(tmp_path / "b", text_model(text, weights))

    assert "no difference" not in show(compared(a, b))


def test_what_was_not_compared_is_reported(sides):
    a, b = sides
    text = " ".join(show(compared(replace(a, content="none"), b)).split())
    old = replace(b, model=replace(b.model, graphs=()))

    assert "contents of the old model were not read: only there, copies count separately" in text
    assert "nodes: not compared, because a saved report lacks their number" in show(compared(a, old))


@pytest.mark.parametrize("name", [EVIL, "w" * 600, "[red]x[/red]", "::error::w"])
def test_names_stay_within_80_columns_and_cannot_escape(tmp_path, name):
    text = show(
        compared(
            holding(tmp_path / "a", **{name: ramp(2, 2), "gone": ramp(3)}),
            holding(tmp_path / "b", **{name: ramp(2, 3), f"{name}2": ramp(2, 3)}),
        )
    )

    assert max(map(len, text.splitlines())) <= 80
    assert text.replace("\n", "").isprintable()
    assert "\u202e" not in text
    assert not any(line.startswith("::") for line in text.splitlines())


def test_the_document_holds_every_tensor_and_what_became_of_it(sides):
    document = to_document(compared(*sides, content="full"))

    jsonschema.validate(document, load_schema("compare"))
    assert document["changes"]["tensors"] == {"unchanged": 1, "added": 1, "removed": 1, "changed": 2}
    assert document["values_compared"] == {"content": "full", "equal": 1, "differing": 0, "unknown": 0}
    assert document["totals"]["nodes"] == {"a": 4, "b": 4, "difference": 0, "change": 0, "ratio": 1.0}
    tensors = {tensor["name"]: tensor for tensor in document["tensors"]}
    assert list(tensors) == ["cast.weight", "fresh.weight", "gone.weight", "twin", "same.weight"]
    assert tensors["cast.weight"]["changed"] == ["dtype", "bytes"]
    assert tensors["cast.weight"]["bytes"] == {
        "a": 256,
        "b": 128,
        "difference": 128,
        "change": -128,
        "ratio": 2.0,
    }
    assert (tensors["fresh.weight"]["a"], tensors["fresh.weight"]["b"]["shape"]) == (None, [3, 3])
    assert tensors["twin"]["b"]["copy_of"] == "same.weight"
    twin = tensors["twin"]
    assert (twin["group"], twin["a"]["group"], twin["b"]["group"]) == ("same", "[unscoped]", "same")


# the command


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    text = 'g (float[2,2] x) => (float[2,2] y) { y = MatMul(x, "w.weight") }'
    for name, start in (("a", 0), ("b", 50)):
        save(tmp_path, text_model(text, {"w.weight": ramp(2, 2, start=start)}), f"{name}.onnx")
    return tmp_path / "a.onnx", tmp_path / "b.onnx"


def test_the_exit_code_is_0_however_much_differs(files):
    for options in ((), ("--content", "full")):
        assert run_here("compare", *files, *options).returncode == 0


def test_values_are_compared_of_two_models_only(files, tmp_path):
    run_here("inspect", files[0], "--quiet", "-o", tmp_path / "a.json")

    models = json.loads(run_here("compare", *files, "--content", "full", "--format", "json").stdout)
    refused = run_here("compare", tmp_path / "a.json", files[1], "--content", "full")

    assert models["tensors"][0]["changed"] == ["values"]
    assert refused.returncode == 2
    assert "a.json is a saved report, which has no values to compare" in " ".join(refused.stderr.split())


def test_one_saved_report_is_enough_without_the_old_model(files, tmp_path):
    run_here("inspect", files[0], "--quiet", "-o", tmp_path / "old.json")
    files[0].unlink()

    result = run_here("compare", tmp_path / "old.json", files[1], "--format", "json")

    assert result.returncode == 0
    document = json.loads(result.stdout)
    assert document["totals"]["nodes"] == {"a": 1, "b": 1, "difference": 0, "change": 0, "ratio": 1.0}
    assert document["changes"]["tensors"]["unchanged"] == 1


def test_tensors_have_the_users_groups(files):
    options = ("--group", "weights=weight", "--format", "json")

    document = json.loads(run_here("compare", *files, *options).stdout)

    assert [tensor["group"] for tensor in document["tensors"]] == ["weights"]
