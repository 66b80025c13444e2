"""What a model's outputs depend on, and what is stored beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import HEADER, Array, audit, finding_ids, noise, text_model
from onnx import TensorProto, helper, numpy_helper

from analyzer.ledger import Ledger
from analyzer.liveness import find_live

W = {"w": noise(3, 3)}
U = {"u": noise(3, 3, seed=1)}
TRUE, FALSE = np.array(True), np.array(False)


def names(keys: frozenset[tuple[tuple[str, ...], str]]) -> set[str]:
    return {name for _, name in keys}


def live_in(
    folder: Path, body: str, weights: Mapping[str, Array], functions: str = ""
) -> tuple[set[str], set[str]]:
    """Names of the tensors that a value reaches the output of, and of those the model needs; from one graph's body."""
    header = HEADER.replace("]>", ', "local" : 1]>')
    ledger = audit(
        folder, text_model(f"{header}g (float[3,3] x) => (float[3,3] y) {{ {body} }} {functions}", weights)
    )
    return of(ledger)


def of(ledger: Ledger) -> tuple[set[str], set[str]]:
    assert ledger.live is not None
    return names(ledger.live.tensors), names(ledger.live.needed)


def test_what_a_dead_node_reads_is_neither_live_nor_needed(tmp_path: Path) -> None:
    live, needed = live_in(tmp_path, "y = MatMul(x, w) d = MatMul(x, u)", W | U)

    assert live == needed == {"w"}


def test_what_leads_to_a_dead_node_alone_is_dead(tmp_path: Path) -> None:
    live, _ = live_in(tmp_path, "y = MatMul(x, w) a = MatMul(x, u) b = Relu(a) c = Exp(b)", W | U)

    assert live == {"w"}


def test_a_tensor_that_a_dead_node_and_a_live_one_read_is_live(tmp_path: Path) -> None:
    live, _ = live_in(tmp_path, "y = MatMul(x, w) d = MatMul(x, w)", W)

    assert live == {"w"}


CONDITIONS: dict[str, tuple[str, dict[str, Array]]] = {
    "stored": ("", {"c": TRUE}),
    "computed": (
        "n = Less(few, many) c = And(n, yes)",
        {"few": np.array(2), "many": np.array(5), "yes": TRUE},
    ),
}

BRANCHES = """y = If (c) <
    then_branch = a () => (float[3,3] t) { t = MatMul(x, w) },
    else_branch = b () => (float[3,3] e) { e = MatMul(x, u) }
>"""


@pytest.mark.parametrize("condition", ["stored", "computed"])
def test_the_branch_that_a_stored_condition_never_takes_is_dead(condition: str, tmp_path: Path) -> None:
    before, stored = CONDITIONS[condition]

    live, _ = live_in(tmp_path, f"{before} {BRANCHES}", W | U | stored)

    assert "w" in live
    assert "u" not in live


def test_the_other_branch_is_dead_if_the_condition_is_false(tmp_path: Path) -> None:
    live, _ = live_in(tmp_path, BRANCHES, W | U | {"c": FALSE})

    assert "u" in live
    assert "w" not in live


def test_both_branches_are_live_if_the_condition_depends_on_an_input(tmp_path: Path) -> None:
    live, _ = live_in(tmp_path, f"m = ReduceMax <keepdims = 0> (x) c = Cast <to = 9> (m) {BRANCHES}", W | U)

    assert live >= {"w", "u"}


def test_both_branches_are_live_if_a_caller_may_replace_the_condition(tmp_path: Path) -> None:
    text = f"g (float[3,3] x, bool c) => (float[3,3] y) {{ {BRANCHES} }}"

    live, _ = of(audit(tmp_path, text_model(text, W | U | {"c": TRUE})))

    assert live >= {"w", "u"}


FUNCTION = """<domain: "local", opset_import: ["" : 18]> twice (a) => (b) {
    k = Constant <value = float[3] {1.5, 2.5, 3.5}> ()
    b = Mul(a, k)
}"""


def test_what_a_function_holds_is_live_where_it_is_called_and_not_where_it_is_not(tmp_path: Path) -> None:
    called, _ = live_in(tmp_path, "h = local.twice(x) y = MatMul(h, w)", W, FUNCTION)
    uncalled, needed = live_in(tmp_path, "y = MatMul(x, w)", W, FUNCTION)

    assert called == {"w", "k"}
    assert uncalled == needed == {"w"}


def test_an_argument_that_the_function_does_not_use_is_dead(tmp_path: Path) -> None:
    function = '<domain: "local", opset_import: ["" : 18]> first (a, b) => (c) { c = Neg(a) }'

    live, _ = live_in(tmp_path, "h = MatMul(x, w) y = local.first(h, u)", W | U, function)

    assert live == {"w"}


def test_what_training_info_stores_is_not_live(tmp_path: Path) -> None:
    proto = text_model("g (float[3,3] x) => (float[3,3] y) { y = MatMul(x, w) }", W)
    info = proto.training_info.add()
    info.algorithm.CopyFrom(
        helper.make_graph(
            [helper.make_node("Neg", ["moment"], ["m"])],
            "step",
            [],
            [helper.make_tensor_value_info("m", TensorProto.FLOAT, [3, 3])],
            [numpy_helper.from_array(noise(3, 3), "moment")],
        )
    )

    live, needed = of(audit(tmp_path, proto))

    assert "moment" not in live | needed


ZEROS = np.zeros((3, 3), "f4")


@pytest.mark.parametrize("operator", ["Mul", "MatMul", "Gemm"])
def test_a_factor_of_zeros_that_is_nobodys_parameter_shuts_out_the_other(
    operator: str, tmp_path: Path
) -> None:
    text = f"g (float[3,3] x) => (float[3,3] y) {{ h = MatMul(w, u) z = {operator}(h, o) y = Add(x, z) }}"
    ledger = audit(tmp_path, text_model(text, W | U | {"o": ZEROS}))

    shut = find_live(ledger.model, ledger.wiring, lambda tensor: tensor.name != "o")
    kept = find_live(ledger.model, ledger.wiring, lambda tensor: True)

    assert names(shut.tensors) == {"o"}
    assert names(shut.needed) == {"w", "u", "o"}
    assert names(kept.tensors) == {"w", "u", "o"}


def test_a_layer_of_zeros_that_is_not_trained_yet_shuts_out_nothing(tmp_path: Path) -> None:
    live, _ = live_in(tmp_path, "h = MatMul(x, w) y = MatMul(h, o)", W | {"o": ZEROS})

    assert live == {"w", "o"}


def test_a_factor_that_is_zeros_in_part_shuts_out_nothing(tmp_path: Path) -> None:
    live, _ = live_in(
        tmp_path, "h = MatMul(w, u) z = Mul(h, o) y = Add(x, z)", W | U | {"o": np.eye(3, dtype="f4")}
    )

    assert live == {"w", "u", "o"}


@pytest.mark.parametrize(("chosen", "dead"), [(TRUE, "u"), (FALSE, "w")])
def test_what_a_stored_condition_of_where_never_chooses_is_not_live(
    chosen: Array, dead: str, tmp_path: Path
) -> None:
    live, needed = live_in(tmp_path, "z = Where(c, w, u) y = MatMul(x, z)", W | U | {"c": chosen})

    assert {"w", "u"} - live == {dead}
    assert needed >= {"w", "u"}


def test_a_condition_of_several_values_chooses_from_both(tmp_path: Path) -> None:
    live, _ = live_in(
        tmp_path, "z = Where(c, w, u) y = MatMul(x, z)", W | U | {"c": np.array([True, False, True])}
    )

    assert live >= {"w", "u"}


@pytest.mark.parametrize("operator", ["Shape", "Size"])
def test_what_is_measured_alone_is_needed_and_not_live(operator: str, tmp_path: Path) -> None:
    body = f"s = {operator}(u) f = Cast <to = 1> (s) m = ReduceMax <keepdims = 0> (f) h = Add(x, m) y = MatMul(h, w)"

    live, needed = live_in(tmp_path, body, W | U)

    assert live == {"w"}
    assert needed == {"w", "u"}


LOOP = """h = Identity(x)
y = Loop (count, , h) <
    body = b (int64 i, bool more, float[3,3] state) => (bool again, float[3,3] next) {
        again = Identity(more)
        next = MatMul(state, w)
        dead = MatMul(state, u)
    }
>"""


def test_a_loops_body_keeps_what_it_uses_and_no_more(tmp_path: Path) -> None:
    live, _ = live_in(tmp_path, LOOP, W | U | {"count": np.array(3, "i8")})

    assert live == {"w", "count"}


def test_a_state_of_a_loop_is_live_once_the_body_reads_it(tmp_path: Path) -> None:
    body = """y, rest = Loop (count, , x, u) <
        body = b (int64 i, bool more, float[3,3] p, float[3,3] q) => (bool again, float[3,3] r, float[3,3] s) {
            again = Identity(more)
            r = MatMul(p, q)
            s = Mul(q, w)
        }
    >"""

    live, _ = live_in(tmp_path, body, W | U | {"count": np.array(3, "i8")})

    assert live == {"w", "u", "count"}


def test_a_scans_body_keeps_what_it_uses_and_no_more(tmp_path: Path) -> None:
    body = """rest, y = Scan <num_scan_inputs = 1, body = b (float[3] p, float[3] each) => (float[3] r, float[3] s) {
        r = Add(p, each)
        s = MatMul(r, w)
        dead = MatMul(each, u)
    }> (first, x)"""

    live, _ = live_in(tmp_path, body, W | U | {"first": noise(3)})

    assert live == {"w", "first"}


def test_what_either_of_two_outputs_reads_is_live(tmp_path: Path) -> None:
    text = "g (float[3,3] x) => (float[3,3] y, float[3,3] z) { y = MatMul(x, w) z = MatMul(x, u) }"

    live, _ = of(audit(tmp_path, text_model(text, W | U)))

    assert live == {"w", "u"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("y = MatMul(x, w) d = MatMul(x, u)", True),
        ("z = MatMul(x, w) y = MatMul(z, u)", False),
        ("s = Shape(u) r = Reshape(x, s) y = MatMul(r, w)", False),
    ],
    ids=["dead", "live", "needed for its size"],
)
def test_what_no_output_needs_is_an_unused_initializer(body: str, told: bool, tmp_path: Path) -> None:
    ledger = audit(tmp_path, text_model(f"g (float[3,3] x) => (float[3,3] y) {{ {body} }}", W | U))

    found = [finding for finding in ledger.findings if finding.id == "unused-initializer"]

    assert [finding.subjects for finding in found] == [("u",)] * told


def test_a_deep_chain_is_followed_to_its_end(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(3000)]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["v0"]), *nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 3])],
        [helper.make_tensor_value_info("v3000", TensorProto.FLOAT, [3, 3])],
        [numpy_helper.from_array(W["w"], "w")],
    )
    ledger = audit(tmp_path, helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]))

    assert of(ledger)[0] == {"w"}
    assert "unused-initializer" not in finding_ids(ledger)
