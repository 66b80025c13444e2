"""Computed work of a model beside a run of it in onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from commands import run_here
from models import noise, save, text_model

from analyzer.account.audit import audit_model
from analyzer.cost.account import measure_cost
from analyzer.cost.measured import compare_run
from analyzer.cost.walk import Walk
from analyzer.read import read_model
from analyzer.schemas import load_schema
from analyzer.timing.running.traced import TracedNode, TracedRun

PRODUCT = """
<ir_version: 10, opset_import: ["": 18]>
g (float[b, s, 6] x) => (float[b, s, 4] y) { h = MatMul(x, w) t = Tanh(h) y = Add(t, h) }
"""


def product(folder: Path) -> Path:
    return save(folder, text_model(PRODUCT, {"w": noise(6, 4)}))


@pytest.mark.time
@pytest.mark.usefixtures("newer_runtime")
def test_a_run_that_is_as_predicted_agrees(tmp_path: Path) -> None:
    done = run_here(
        "cost", product(tmp_path), "--shape", "b=2,s=5", "--measured", "--memory", "--format", "json"
    )

    document = json.loads(done.stdout)
    jsonschema.validate(document, load_schema("cost"))
    run = document["measured"]
    assert (done.returncode, run["verdict"]) == (0, "agrees")
    assert run["at"] == {"b": 2, "s": 5}
    assert run["macs"]["said"] == run["macs"]["measured"] == 2 * 5 * 6 * 4
    assert run["macs"]["operators"] == {"MatMul": 240}
    assert (run["shapes"], run["unknown_shapes"], run["differing"]) == (3, 0, [])
    assert [line["unexplained"] for line in run["memory"]] == [0, 0]
    assert (
        "agrees: 3 shapes and 240 MACs"
        in run_here("cost", product(tmp_path), "--shape", "b=2,s=5", "--measured").stdout
    )


@pytest.mark.time
def test_what_only_the_run_shows_is_counted_from_it(tmp_path: Path) -> None:
    text = """
        g (float[b, 2] x) => (float[n, c] y) {
            i = NonZero(x) t = Transpose(i) f = Cast<to = 1>(t) y = MatMul(f, w)
        }
    """
    model = save(tmp_path, text_model(text, {"w": noise(2, 4)}))

    run = json.loads(run_here("cost", model, "--shape", "b=3", "--measured", "--format", "json").stdout)[
        "measured"
    ]

    assert run["macs"]["verdict"] == "not-compared"
    assert run["macs"]["measured"] == 3 * 2 * 2 * 4  # none of six random numbers is 0
    assert run["unknown_shapes"] == 4


@pytest.mark.time
def test_bodies_are_counted_as_often_as_they_ran(tmp_path: Path) -> None:
    text = """
        g (float[2, 6] x) => (float[2, 6] y) {
            m = Constant<value = int64 {7}>()
            t = Constant<value = bool {1}>()
            y = Loop(m, t, x) <body = b (int64 i, bool c, float[2, 6] h) => (bool d, float[2, 6] o)
                { d = Identity(c) o = MatMul(h, w) }>
        }
    """
    model = save(tmp_path, text_model(text, {"w": noise(6, 6)}))

    run = json.loads(run_here("cost", model, "--measured", "--format", "json").stdout)["measured"]

    assert run["verdict"] == "agrees"
    assert run["macs"]["measured"] == 7 * 2 * 6 * 6


@pytest.mark.time
def test_a_model_that_does_not_run_has_no_answer(tmp_path: Path) -> None:
    proto = text_model("g (float[2] x) => (float[2] y) { y = acme.Mystery(x) }")
    proto.opset_import.append(onnx.helper.make_opsetid("acme", 1))

    done = run_here("cost", save(tmp_path, proto), "--measured")

    assert (done.returncode, done.stdout) == (2, "")
    assert "onnxruntime does not run it" in done.stderr


_TABLE = "g (int64[b, t] ids) => (float[b, t, 4] y) { h = Gather(w, ids) y = Add(h, positions) }"
_WINDOW = "g (float[1, 3, t] x) => (float[1, 2, u] y) { y = Conv(x, w) }"


@pytest.mark.time
@pytest.mark.parametrize(
    ("text", "weights", "size"),
    [
        (_TABLE, {"w": noise(9, 4), "positions": noise(16, 4)}, 16),
        (_WINDOW, {"w": noise(2, 3, 200)}, 256),
    ],
    ids=["a table of positions", "a window"],
)
def test_a_model_that_its_default_sizes_do_not_fit_runs_at_others(
    tmp_path: Path, text: str, weights: dict[str, npt.NDArray[np.float32]], size: int
) -> None:
    model = save(tmp_path, text_model(text, weights))

    run = json.loads(run_here("cost", model, "--measured", "--format", "json").stdout)["measured"]

    assert run["verdict"] == "agrees"
    assert run["at"]["t"] == size


@pytest.mark.time
@pytest.mark.parametrize("options", [[], ["--memory"]])
def test_a_model_that_runs_at_no_size_tried_names_the_axis(tmp_path: Path, options: list[str]) -> None:
    weights = {"w": noise(9, 4), "positions": noise(23, 4)}
    model = save(tmp_path, text_model(_TABLE, weights))

    done = run_here("cost", model, "--measured", *options)

    assert (done.returncode, done.stdout) == (2, "")
    assert "give sizes at which it runs with --shape t=N" in done.stderr
    assert run_here("cost", model, "--measured", "--shape", "t=23").returncode == 0


@pytest.mark.time
def test_a_size_that_the_user_gives_is_not_replaced(tmp_path: Path) -> None:
    model = save(tmp_path, text_model(_TABLE, {"w": noise(9, 4), "positions": noise(16, 4)}))

    done = run_here("cost", model, "--measured", "--shape", "t=7")

    assert (done.returncode, done.stdout) == (2, "")
    assert "default sizes" not in done.stderr


def test_another_shape_is_reported_with_its_value(tmp_path: Path) -> None:
    path = product(tmp_path)
    walk = Walk(read_model(path))
    list(walk.run())
    calls = [
        TracedNode("MatMul_0", "MatMul", (("float", (2, 5, 6)), ("float", (6, 4))), (("float", (2, 5, 7)),)),
        TracedNode("Tanh_1", "Tanh", (("float", (2, 5, 4)),), (("float", (2, 5, 4)),)),
        TracedNode("Add_2", "Add", (("float", (2, 5, 4)),) * 2, (("float", (2, 5, 4)),)),
    ]

    compared = compare_run(walk, {"b": 2, "s": 5}, read_model(path), TracedRun(tuple(calls)))

    assert compared.values == 3
    (row,) = compared.differing
    assert (row.value, row.expression, row.predicted, row.found) == ("h", "[b, s, 4]", (2, 5, 4), (2, 5, 7))


def test_axes_that_meet_are_equal_until_sizes_say_otherwise(tmp_path: Path) -> None:
    text = "g (float[a, 4] x, float[b, 4] z) => (float[c, 5] y) { h = Add(x, z) y = MatMul(h, w) }"
    ledger = audit_model(save(tmp_path, text_model(text, {"w": noise(4, 5)})))

    free = measure_cost(ledger)
    assert (str(free.total.macs), free.assumed) == ("20*a", ("a = b",))
    assert measure_cost(ledger, sizes={"a": 3, "b": 3}).assumed == ("a = b",)
    for a, b in ((1, 7), (7, 1)):
        wide = measure_cost(ledger, sizes={"a": a, "b": b})
        assert (wide.at(wide.total.macs), wide.assumed) == (140, ())


@pytest.mark.time
def test_times_stand_beside_the_work_of_each_group(tmp_path: Path) -> None:
    text = "g (float[b, 6] x) => (float[b, 4] y) { h = MatMul(x, w) y = MatMul(h, v) }"
    proto = text_model(text, {"w": noise(6, 5), "v": noise(5, 4)})
    for node, name in zip(proto.graph.node, ("/one/MatMul", "/two/MatMul"), strict=True):
        node.name = name
    options = ("--shape", "b=3", "--runs", "2", "--optimization", "none", "--by", "scope", "--format", "json")

    done = run_here("time", save(tmp_path, proto), *options)

    document = json.loads(done.stdout)
    jsonschema.validate(document, load_schema("time"))
    assert document["macs"] == 3 * (6 * 5 + 5 * 4)
    assert {group["group"]: group["macs"] for group in document["groups"]} == {"one": 90, "two": 60}
    assert document["macs_per_second"] == pytest.approx(
        document["macs"] / document["latency_ms"]["mean"] * 1e3
    )


VALUES = "i = NonZero(x) t = Transpose(i) f = Cast<to = 1>(t)"
RANKS = """
    total = ReduceSum<keepdims = 0>(x) c = Cast<to = 9>(total)
    f = If(c) <then_branch = t () => (float[b, 2] p) { p = Identity(x) },
               else_branch = e () => (float[1, b, 2] q) { q = Unsqueeze(x, zero) }>
"""


@pytest.mark.time
@pytest.mark.parametrize(("body", "known"), [(VALUES, "not known 66"), (RANKS, "18 of known nodes 42")])
def test_macs_of_unknown_nodes_are_not_said_to_agree(tmp_path: Path, body: str, known: str) -> None:
    text = f"""
        g (float[b, 2] x) => (y, float[b, 3] z) {{ {body} y = MatMul(f, w) z = MatMul(x, v) }}
    """
    stored = {"w": noise(2, 4), "v": noise(2, 3), "zero": np.zeros(1, np.int64)}
    model = save(tmp_path, text_model(text, stored))

    done = run_here("cost", model, "--shape", "b=3", "--measured")

    printed = " ".join(done.stdout.split())
    assert done.returncode == 0  # all shapes that are known agree
    assert "MACs not compared: the work of 1 node is not known without a run" in printed
    assert f"MACs {known} not compared" in printed
    assert " 6 b" not in printed  # the size of b is given
