"""Number of applications of each stored tensor, and the other modules that apply it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import Floats, audit, entry, noise, quantized, ramp, save, text_model
from onnx import helper

from analyzer.account.applications import count_applications
from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.account.ledger import Ledger
from analyzer.model.dataflow import follow_data

SHARED = """g (float[1,4] x) => (float[1,4] y) {
    ["/layer/fc/MatMul"] a = MatMul(x, "layer.fc.weight")
    ["/layer/fc_1/MatMul"] b = MatMul(a, "layer.fc.weight")
    ["/layer/fc_2/MatMul"] y = MatMul(b, "layer.fc.weight")
}"""


def applications(ledger: Ledger, name: str = "w", *graph_path: str) -> int:
    return entry(ledger, name, *graph_path).applications


def count(folder: Path, text: str, weights: dict[str, Floats] | None = None) -> int:
    return applications(audit(folder, text_model(text, weights or {"w": noise(4, 4)})))


def test_tensor_that_is_read_once_is_applied_once(tmp_path: Path) -> None:
    assert count(tmp_path, "g (float[1,4] x) => (float[1,4] y) { y = MatMul(x, w) }") == 1


def test_layer_that_is_used_three_times_says_so(tmp_path: Path) -> None:
    ledger = audit(tmp_path, text_model(SHARED, {"layer.fc.weight": noise(4, 4)}))

    (group,) = group_by(ledger, "scope", 2).groups
    assert applications(ledger, "layer.fc.weight") == 3
    assert (group.parameters, group.applications, group.unshared_parameters) == (16, 3, 48)


def test_tensor_that_nobody_reads_counts_as_applied_once(tmp_path: Path) -> None:
    assert count(tmp_path, "g (float[1] x) => (float[1] y) { y = Relu(x) }") == 1


def test_node_that_reads_a_tensor_twice_computes_with_it_once(tmp_path: Path) -> None:
    assert count(tmp_path, "g (float[4,4] x) => (float[4,4] y) { y = Sum(x, w, w) }") == 1


@pytest.mark.parametrize(
    "prepared",
    [
        "p = Transpose(w)",
        "c = Cast<to=10>(w) p = Cast<to=1>(c)",
        "p = Identity(w)",
        "s = Shape(w) p = Reshape(w, s)",
        "n = ReduceL2(w) p = Div(w, n)",
    ],
)
def test_nodes_that_prepare_a_tensor_are_seen_through(tmp_path: Path, prepared: str) -> None:
    text = f"g (float[4,4] x) => (float[4,4] y) {{ {prepared} a = MatMul(x, p) y = MatMul(a, p) }}"

    assert count(tmp_path, text) == 2


def test_each_use_that_prepares_the_tensor_anew_is_a_use(tmp_path: Path) -> None:
    text = """g (float[1,4] x) => (float[1,4] y) {
        p = Transpose(w) a = MatMul(x, p) q = Transpose(w) y = MatMul(a, q)
    }"""

    assert count(tmp_path, text) == 2


def test_codes_are_applied_where_they_are_decoded_for(tmp_path: Path) -> None:
    proto = text_model(
        """g (float[1,4] x) => (float[1,4] y) {
            d = DequantizeLinear(w_quantized, w_scale, w_zero_point)
            a = MatMul(x, d) y = MatMul(a, d)
        }""",
        quantized("w", noise(4, 4)),
    )

    assert applications(audit(tmp_path, proto), "w_quantized") == 2


def test_asking_for_a_size_is_no_use(tmp_path: Path) -> None:
    text = "g (float[1,4] x) => (int64[2] s, float[1,4] y) { s = Shape(w) n = Size(w) y = MatMul(x, w) }"

    assert count(tmp_path, text) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("q, k = Split<axis=1, num_outputs=2>(w) a = MatMul(x, q) y = MatMul(x, k)", 1),
        ("q, k = Split<axis=1, num_outputs=2>(w) a = MatMul(x, q) b = MatMul(x, q) y = MatMul(x, k)", 2),
        ("q = Slice(w, zero, two, one) k = Slice(w, two, four, one) a = MatMul(x, q) y = MatMul(x, k)", 1),
        ("q = Gather<axis=1>(w, zero) k = Gather<axis=1>(w, one) a = Mul(x, q) y = Mul(x, k)", 1),
        ("q = Slice(w, zero, two, one) a = MatMul(x, q) y = MatMul(x, w)", 2),
        (
            """q, k = Split<axis=1, num_outputs=2>(w) a = MatMul(x, q) b = MatMul(x, k)
            r, l = Split<axis=1, num_outputs=2>(w) c = MatMul(x, r) y = MatMul(x, l)""",
            2,
        ),
    ],
)
def test_parts_of_one_tensor_count_once_a_set(tmp_path: Path, text: str, expected: int) -> None:
    numbers = {name: np.array([n]) for name, n in (("zero", 0), ("one", 1), ("two", 2), ("four", 4))}
    proto = text_model(f"g (float[4,4] x) => (float[4,2] y) {{ {text} }}", {"w": noise(4, 4), **numbers})

    assert applications(audit(tmp_path, proto)) == expected


def test_table_of_which_computed_rows_are_taken_is_used_by_who_takes_them(tmp_path: Path) -> None:
    text = "g (int64[n] i) => (float[n,4] y) { r = Gather(w, i) y = Add(r, r) }"

    assert count(tmp_path, text) == 1


# copies


def tied() -> dict[str, Floats]:
    table = noise(50, 8)
    return {"emb.weight": table, "head": table.T.copy()}


TIED = """g (int64[n] ids) => (float[n,50] y) {
    ["/emb/Gather"] h = Gather("emb.weight", ids) ["/lm_head/MatMul"] y = MatMul(h, head)
}"""


def test_uses_of_a_copy_are_uses_of_the_original_too(tmp_path: Path) -> None:
    ledger = audit(tmp_path, text_model(TIED, tied()))

    assert (applications(ledger, "emb.weight"), applications(ledger, "head")) == (2, 1)
    assert entry(ledger, "emb.weight").shared_with == ("lm_head",)
    assert entry(ledger, "head").shared_with == ()


def test_uses_in_several_files_of_an_artifact_do_not_add_up(tmp_path: Path) -> None:
    weights = {"fc.weight": noise(8, 8)}
    for name, uses in (("encoder", 1), ("decoder", 2)):
        steps = " ".join(f'v{i + 1} = MatMul(v{i}, "fc.weight")' for i in range(uses))
        save(
            tmp_path,
            text_model(f"g (float[1,8] v0) => (float[1,8] v{uses}) {{ {steps} }}", weights),
            f"{name}.onnx",
        )

    ledger = audit_model(tmp_path, artifact=True)

    assert sorted(found.applications for found in ledger.entries if found.parameters) == [2]


# subgraph and function bodies


BRANCHES = """g (bool c, float[1,4] x) => (float[1,4] y) {
    h = MatMul(x, w)
    y = If(c) <then_branch = t () => (float[1,4] a) { p = MatMul(h, w) a = MatMul(p, w) },
               else_branch = e () => (float[1,4] b) { b = MatMul(h, w) }>
}"""


def test_of_two_branches_the_one_counts_that_uses_it_most(tmp_path: Path) -> None:
    assert count(tmp_path, BRANCHES) == 3


def test_body_of_a_loop_counts_once(tmp_path: Path) -> None:
    text = """g (int64 n, bool c, float[1,4] x) => (float[1,4] y) {
        y = Loop(n, c, x) <body = b (int64 i, bool k, float[1,4] s) => (bool m, float[1,4] t) {
            m = Identity(k) t = MatMul(s, w)
        }>
    }"""

    assert count(tmp_path, text) == 1


FUNCTIONS = """
    <ir_version: 10, opset_import: ["" : 18, "my" : 1]>
    g (float[2] x) => (float[2] y) { h = my.twice(x) y = my.once(h) }
    <domain: "my", opset_import: ["" : 18, "my" : 1]>
    twice (a) => (b) { c = my.once(a) b = my.once(c) }
    <domain: "my", opset_import: ["" : 18]>
    once (a) => (b) { w = Constant<value = float[2] {1, 2}>() b = Mul(a, w) }
"""


def test_body_of_a_function_counts_as_often_as_it_is_called(tmp_path: Path) -> None:
    assert applications(audit(tmp_path, text_model(FUNCTIONS)), "w", "function:my:once") == 3


# other modules that apply a tensor


def test_other_modules_that_compute_with_a_tensor_are_listed(tmp_path: Path) -> None:
    proto = text_model(
        """g (int64[n] ids) => (float[n,50] y) {
            ["/b/Gather"] h = Gather("emb.weight", ids) ["/a/Gather"] k = Gather("emb.weight", ids)
            t = Transpose("emb.weight") s = Add(h, k) ["/emb/sub/MatMul"] z = MatMul(s, t) ["/Add"] y = MatMul(z, t)
        }""",
        {"emb.weight": noise(50, 8)},
    )

    found = entry(audit(tmp_path, proto), "emb.weight")

    assert (found.scope, found.applications, found.shared_with) == ("emb", 4, ("a", "b"))


def test_tensor_that_is_computed_with_in_one_other_module_is_not_shared(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[1,4] x) => (float[1,4] y) { ["/fused/MatMul"] y = MatMul(x, "fc.weight") }',
        {"fc.weight": noise(4, 4)},
    )

    assert entry(audit(tmp_path, proto), "fc.weight").shared_with == ()


def test_constants_are_not_shared(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[3] x) => (float[3] y) { ["/a/Mul"] h = Mul(x, c) ["/b/Mul"] y = Mul(h, c) }', {"c": ramp(1)}
    )

    found = entry(audit(tmp_path, proto), "c")

    assert (found.applications, found.shared_with) == (2, ())


# files made to take long


def cuts(number: int) -> onnx.ModelProto:
    """Return a model that cuts a tensor, then cuts its part, and so on."""
    nodes = [helper.make_node("Slice", [f"v{i}", "s", f"e{i}"], [f"v{i + 1}"]) for i in range(number)]
    nodes.append(helper.make_node("Add", ["x", f"v{number}"], ["y"]))
    tensors = [helper.make_tensor(f"e{i}", 7, [1], [1]) for i in range(number)]
    tensors += [helper.make_tensor("v0", 1, [1], [1.0]), helper.make_tensor("s", 7, [1], [0])]
    return helper.make_model(
        helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1])], [], tensors)
    )


def fan(number: int) -> onnx.ModelProto:
    """Return a model that joins tensors and reads the result as many times as there are tensors."""
    names = [f"w{i}" for i in range(number)]
    nodes = [helper.make_node("Concat", names, ["all"], axis=0)]
    nodes += [helper.make_node("Add", ["x", "all"], [f"y{i}"]) for i in range(number)]
    tensors = [helper.make_tensor(name, 1, [1], [1.0]) for name in names]
    return helper.make_model(
        helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1])], [], tensors)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("made", "number"), [(cuts, 4000), (fan, 1000)])
def test_file_made_to_take_long_does_not(
    tmp_path: Path, made: Callable[[int], onnx.ModelProto], number: int
) -> None:
    ledger = audit(tmp_path, made(number))
    flow = follow_data(ledger.model, ledger.wiring)

    start = time.process_time()
    count_applications(ledger.model, ledger.entries, ledger.wiring, flow, {}, ())

    assert time.process_time() - start < 2
    assert min(found.applications for found in ledger.entries) == 1
