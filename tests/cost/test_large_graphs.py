"""Graphs of many nodes and tensors of many axes: equal nodes are counted once, and omissions are reported."""

from __future__ import annotations

import cProfile
import json
import pstats
from pathlib import Path

import numpy as np
import pytest
from commands import run_here
from models import noise, save, text_model

from analyzer.cost.memory import answer
from analyzer.cost.values import MOST_AXES


def chain(folder: Path, nodes: int) -> Path:
    """Save a chain of `nodes` Tanh nodes, each on 64 elements per unit of `b`."""
    lines = " ".join(f"x{at + 1} = Tanh(x{at})" for at in range(nodes))
    return save(
        folder,
        text_model(f"g (float[b, 64] x0) => (float[b, 64] x{nodes}) {{ {lines} }}"),
        f"{nodes}.onnx",
    )


def test_nodes_that_are_alike_are_each_counted(tmp_path: Path) -> None:
    document = json.loads(run_here("cost", chain(tmp_path, 500), "--shape", "b=2", "--format", "json").stdout)

    operators = {row["op_type"]: row["nodes"] for row in document["operators"]}
    moved = 500 * 2 * 64 * 4
    assert operators == {"Tanh": 500}
    assert (
        document["totals"]["flops"]["value"] == 500 * 2 * 64 * 4
    )  # Tanh counts as four operations per element
    assert (document["totals"]["read_bytes"]["value"], document["totals"]["written_bytes"]["value"]) == (
        moved,
        moved,
    )


def test_sizes_that_only_a_run_shows_are_one_for_each_node(tmp_path: Path) -> None:
    text = """g (float[n] x) => (int64[1, m] z) {
        a = NonZero(x) b = NonZero(x) c = Shape(a) d = Shape(b) e = Equal(c, d) z = Concat<axis = 1>(a, b) }"""

    document = json.loads(run_here("cost", save(tmp_path, text_model(text)), "--format", "json").stdout)

    written = document["totals"]["written_bytes"]["expression"]
    assert "unknown_1" in written
    assert "unknown_2" in written


def test_a_node_more_takes_little_more(tmp_path: Path) -> None:
    def calls(nodes: int) -> int:
        model, profile = chain(tmp_path, nodes), cProfile.Profile()
        profile.runcall(run_here, "cost", model)
        return pstats.Stats(profile).total_calls

    calls(10)  # loads imports and tables before the measurement
    few, some, many = calls(200), calls(400), calls(800)

    assert many - some <= 2.1 * (some - few)


@pytest.mark.child
def test_the_memory_of_a_graph_that_is_too_large_to_plan_is_reported_as_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save(
        tmp_path, text_model("g (float[4] x) => (float[4] y) { a = Add(x, w) y = Tanh(a) }", {"w": noise(4)})
    )
    planned = run_here("cost", model, "--memory", "1GiB")
    monkeypatch.setattr(answer, "_MOST_NODES", 1)

    done = run_here("cost", model, "--memory", "1GiB")
    document = json.loads(run_here("cost", model, "--memory", "1GiB", "--format", "json").stdout)

    assert "fits 1.00 GiB" in planned.stdout
    assert done.returncode == 0
    assert "whether it fits 1.00 GiB is not known" in done.stdout
    assert "the graph has 2 nodes, of which at most 1 are planned" in " ".join(done.stdout.split())
    assert document["room"] == {"memory": 1 << 30, "needed": None, "fits": None, "line": "weights, copied"}
    assert {line["line"]: line["value"] for line in document["memory"]} == {
        "weights, copied": 16,
        "activations": None,
    }


@pytest.mark.child
def test_a_tensor_of_very_many_axes_is_reported_and_not_followed(tmp_path: Path) -> None:
    text = "g (float[4] x) => (y) { y = Add(x, w) }"
    weights = {"w": np.ones(1, np.float32)}
    proto = text_model(text, weights)
    proto.graph.initializer[0].dims.extend([1] * MOST_AXES)

    done = run_here("cost", save(tmp_path, proto), "--memory")

    printed = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert "NOT COMPLETE" in printed
    assert f"w has {MOST_AXES + 1:,} axes, of which at most {MOST_AXES:,} are followed" in printed
    assert f"activations: not modelled: the graph has a tensor of {MOST_AXES + 1:,} axes" in printed
