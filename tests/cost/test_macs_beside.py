"""Work of a run beside other answers: `inspect --shape`, `inspect -v`, `compare --shape`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import run_here
from models import noise, save, text_model

LAYERS = """g (float[b, 64] x) => (float[b, 8] y) {{
  h = MatMul(x, "encoder.0.weight")
  i = MatMul(h, "encoder.1.weight")
  {more}
  y = MatMul({last}, "head.weight")
}}"""
ENCODER, HEAD = 2 * 64 * 64, 64 * 8
"""Multiply-accumulates of one row."""


def made(folder: Path, name: str, more: str = "", last: str = "i", **weights: Any) -> Path:
    stored = {f"encoder.{each}.weight": noise(64, 64, seed=each) for each in (0, 1)}
    stored |= {"head.weight": noise(64, 8), **weights}
    return save(folder, text_model(LAYERS.format(more=more, last=last), stored), f"{name}.onnx")


def run_json(*arguments: object) -> Any:
    done = run_here(*arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return made(tmp_path, "model")


@pytest.mark.parametrize(
    "grouped",
    [
        ("--by", "scope", "--depth", "1"),
        ("--by", "op"),
        ("--by", "scope,op"),
        ("--group", "all=.", "--group", "head=^head"),
        ("--group", "encoder=^encoder"),
    ],
    ids=" ".join,
)
def test_the_groups_sum_to_what_cost_says(model: Path, grouped: tuple[str, ...]) -> None:
    document = run_json("inspect", model, "--shape", "b=5", *grouped)
    cost = run_json("cost", model, "--shape", "b=5")

    balance = document["group_balance"]
    found = sum(group["macs"] for group in document["groups"])
    found += balance["ungrouped"].get("macs", 0) - balance["overlap"].get("macs", 0)
    assert found == document["macs"]["total"] == 5 * (ENCODER + HEAD) == cost["totals"]["macs"]["value"]
    assert document["macs"] == {"total": found, "at": {"b": 5}, "unknown": 0, "choices": 0}


def test_each_group_has_its_own(model: Path) -> None:
    document = run_json("inspect", model, "--shape", "b=3", "--by", "scope", "--depth", "1")

    assert {group["group"]: group["macs"] for group in document["groups"]} == {
        "encoder": 3 * ENCODER,
        "head": 3 * HEAD,
    }


def test_the_long_form_has_it_at_the_sizes_of_time_and_the_short_one_has_not(model: Path) -> None:
    short, long = (run_here("inspect", model, *verbose).stdout for verbose in ((), ("-v",)))

    assert "MACs" not in short
    assert f"MACs: {ENCODER + HEAD:,} at b=1" in long


def test_a_node_of_unknown_work_makes_no_zero(tmp_path: Path) -> None:
    model = made(tmp_path, "custom", more="j = my.domain.Odd(i)", last="j")

    document = run_json("inspect", model, "--shape", "b=1", "--by", "scope", "--depth", "1")
    text = run_here("inspect", model, "--shape", "b=1", "--by", "scope", "--depth", "1").stdout

    (head,) = (group for group in document["groups"] if group["group"] == "head")
    assert (head["macs"], head["nodes_without_macs"]) == (0, 1)
    assert document["macs"]["unknown"] == 2
    assert any(line.startswith("head") and line.endswith("unknown") for line in text.splitlines())
    assert "`onnxledger cost` names them" in " ".join(text.split())


def test_a_size_of_no_axis_is_refused(model: Path) -> None:
    for command in (("inspect", model), ("compare", model, model)):
        done = run_here(*command, "--shape", "tokens=5")

        assert done.returncode == 2
        assert "tokens" in done.stderr


def test_a_comparison_says_what_became_of_it(tmp_path: Path, model: Path) -> None:
    other = made(
        tmp_path,
        "other",
        more='j = MatMul(i, "encoder.2.weight")',
        last="j",
        **{"encoder.2.weight": noise(64, 64, seed=2)},
    )

    document = run_json("compare", model, other, "--shape", "b=2", "--by", "scope", "--depth", "1")
    text = run_here("compare", model, other, "--shape", "b=2").stdout

    pairs = {group["group"]: group["macs"] for group in document["groups"]}
    assert (pairs["encoder"]["a"], pairs["encoder"]["b"]) == (2 * ENCODER, 3 * ENCODER)
    assert pairs["encoder"]["change"] == document["totals"]["macs"]["change"] == 2 * 64 * 64
    assert pairs["head"]["change"] == 0
    assert "17.41 k -> 25.60 k MACs (+47.1 %)" in " ".join(text.split())


def test_saved_reports_have_no_nodes_to_count(tmp_path: Path, model: Path) -> None:
    saved = tmp_path / "saved.json"
    run_here("inspect", model, "-o", saved, "--quiet")

    done = run_here("compare", saved, model, "--shape", "b=2")

    assert done.returncode == 2
    assert "name the model itself" in done.stderr


def test_work_of_which_nothing_is_known_is_no_zero(tmp_path: Path) -> None:
    text = "g (float[b, 4, s] x) => (float[b, 2, t] y) { y = Conv(x, w) }"
    model = save(tmp_path, text_model(text, {"w": noise(2, 4, 5)}))

    printed = " ".join(run_here("inspect", model, "--shape", "b=1,s=3").stdout.split())

    assert "MACs: unknown at b=1, s=3, without 1 node of unknown work" in printed
