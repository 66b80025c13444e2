"""Tensors on which a model's outputs depend."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import (
    audit,
    bridge_of,
    lines_of,
    manifest_of,
    noise,
    parameter,
    parameters_of,
    reconcile,
    text_model,
)
from onnx import TensorProto, helper, numpy_helper

from analyzer.model.content import Array

W, OTHER, ZEROS = noise(4, 4), noise(4, 4, seed=1), np.zeros((4, 4), "f4")


def live(folder: Path, proto: onnx.ModelProto) -> set[str]:
    """Return the names of tensors on which an output depends."""
    ledger = audit(folder, proto)
    assert ledger.live is not None
    return {name for _, name in ledger.live.tensors}


def needed(folder: Path, proto: onnx.ModelProto) -> set[str]:
    ledger = audit(folder, proto)
    assert ledger.live is not None
    return {name for _, name in ledger.live.needed}


def unused(folder: Path, proto: onnx.ModelProto) -> set[str]:
    """Return the names of tensors that `inspect` reports as unused."""
    return {
        subject
        for finding in audit(folder, proto).findings
        if finding.id == "unused-initializer"
        for subject in finding.subjects
    }


def model(nodes: str, **stored: Array) -> onnx.ModelProto:
    return text_model(f"g (float[1,4] x, bool c) => (float[1,4] y) {{ {nodes} }}", stored)


# nodes


def test_what_leads_to_an_output_is_live(tmp_path: Path) -> None:
    assert live(tmp_path, model("h = MatMul(x, w) y = Add(h, v)", w=W, v=OTHER)) == {"w", "v"}


def test_what_a_node_reads_whose_result_nobody_needs_is_dead(tmp_path: Path) -> None:
    proto = model("h = MatMul(x, w) i = Relu(h) y = MatMul(x, v)", w=W, v=OTHER)

    assert live(tmp_path, proto) == {"v"}
    assert needed(tmp_path, proto) == {"v"}
    assert unused(tmp_path, proto) == {"w"}


def test_initializer_that_nobody_reads_is_dead(tmp_path: Path) -> None:
    proto = model("y = MatMul(x, v)", w=W, v=OTHER)

    assert live(tmp_path, proto) == {"v"}
    assert unused(tmp_path, proto) == {"w"}


def test_initializer_that_is_an_output_is_live(tmp_path: Path) -> None:
    proto = text_model("g (float[1,4] x) => (float[4,4] w) { y = Relu(x) }", {"w": W})

    assert live(tmp_path, proto) == {"w"}


def test_an_output_that_nobody_reads_keeps_no_other_alive(tmp_path: Path) -> None:
    body = "h, mask = Dropout(x) i = Not(mask) j = Where(i, w, v) y = Relu(h)"

    assert live(tmp_path, model(body, w=W, v=OTHER)) == set()


@pytest.mark.parametrize("op_type", ["Shape", "Size"])
def test_what_is_measured_is_needed_and_not_live(tmp_path: Path, op_type: str) -> None:
    body = f"s = {op_type}(w) f = Cast<to=1>(s) m = ReduceSum(f) y = Mul(x, m)"
    proto = model(body, w=W)

    assert live(tmp_path, proto) == set()
    assert needed(tmp_path, proto) == {"w"}


def test_a_function_that_is_called_shape_and_does_more_measures_nothing(tmp_path: Path) -> None:
    proto = model("s = acme.Shape(w) y = Mul(x, s)", w=W)

    assert live(tmp_path, proto) == {"w"}


# zeros and conditions


@pytest.mark.parametrize("nodes", ["Mul(v, w)", "Mul(w, v)", "MatMul(w, v)", "Gemm(v, w)"])
def test_a_factor_of_zeros_shuts_out_what_it_is_multiplied_with(tmp_path: Path, nodes: str) -> None:
    proto = model(f'["scaled"] h = {nodes} y = MatMul(x, h)', w=W, v=ZEROS)
    known = manifest_of(*parameters_of({"w": W}))

    result = reconcile(tmp_path, proto, known)

    assert lines_of(result) == {"w": "dead"}


def test_zeros_that_are_a_parameter_shut_out_nothing(tmp_path: Path) -> None:
    proto = model("h = MatMul(x, w) y = Mul(h, v)", w=W, v=np.zeros(4, "f4"))
    known = manifest_of(*parameters_of({"w": W, "v": np.zeros(4, "f4")}))

    assert lines_of(reconcile(tmp_path, proto, known)) == {"w": "identical", "v": "identical"}


def test_zeros_that_were_computed_are_zeros(tmp_path: Path) -> None:
    nodes = "z = Sub(v, v) h = MatMul(x, w) i = Mul(h, z) y = Add(x, i)"
    known = manifest_of(*parameters_of({"w": W}))

    assert lines_of(reconcile(tmp_path, model(nodes, w=W, v=noise(4, seed=3)), known)) == {"w": "dead"}


def test_what_is_added_to_a_product_with_zeros_is_live(tmp_path: Path) -> None:
    proto = model("y = Gemm(x, v, b)", v=ZEROS, b=noise(4))

    assert "b" in live(tmp_path, proto)


@pytest.mark.parametrize(("chosen", "kept"), [(True, "w"), (False, "v")])
def test_a_stored_condition_chooses(tmp_path: Path, chosen: bool, kept: str) -> None:
    proto = model("h = Where(k, w, v) y = MatMul(x, h)", w=W, v=OTHER, k=np.asarray(chosen))

    assert live(tmp_path, proto) - {"k"} == {kept}
    assert needed(tmp_path, proto) == {"w", "v", "k"}


def test_a_mask_that_chooses_of_both_keeps_both(tmp_path: Path) -> None:
    proto = model("h = Where(k, w, v) y = MatMul(x, h)", w=W, v=OTHER, k=np.eye(4, dtype=bool))

    assert live(tmp_path, proto) == {"w", "v", "k"}


BRANCHES = """y = If (k) <
    then_branch = a () => (float[1,4] p) { p = MatMul(x, w) },
    else_branch = b () => (float[1,4] q) { q = MatMul(x, v) }
>"""


@pytest.mark.parametrize(("chosen", "kept"), [(True, "w"), (False, "v")])
def test_the_branch_that_a_stored_condition_takes_is_live(tmp_path: Path, chosen: bool, kept: str) -> None:
    assert live(tmp_path, model(BRANCHES, w=W, v=OTHER, k=np.asarray(chosen))) - {"k"} == {kept}


@pytest.mark.parametrize(
    ("nodes", "kept"),
    [
        ("k = Not(n)", "v"),
        ("m = Not(n) k = Not(m)", "w"),
        ("k = And(n, o)", "v"),
        ("k = Or(n, o)", "w"),
        ("s = ReduceSum<keepdims=0>(numbers) k = Greater(s, limit)", "w"),
        ("s = Shape(w) d = ReduceSum<keepdims=0>(s) e = Cast<to=1>(d) k = Equal(e, limit)", "v"),
    ],
)
def test_a_condition_may_be_computed_from_what_is_stored(tmp_path: Path, nodes: str, kept: str) -> None:
    stored = {
        "n": np.asarray(True),
        "o": np.asarray(False),
        "numbers": np.array([1, 2, 3], "f4"),
        "limit": np.asarray(5, "f4"),
    }

    found = live(tmp_path, model(f"{nodes} {BRANCHES}", w=W, v=OTHER, **stored))

    assert found & {"w", "v"} == {kept}


def test_a_condition_that_a_caller_gives_keeps_both_branches(tmp_path: Path) -> None:
    assert live(tmp_path, model(BRANCHES.replace("(k)", "(c)"), w=W, v=OTHER)) == {"w", "v"}


def test_a_stored_condition_that_a_caller_may_replace_keeps_both_branches(tmp_path: Path) -> None:
    proto = model(BRANCHES, w=W, v=OTHER, k=np.asarray(True))
    proto.graph.input.append(helper.make_tensor_value_info("k", TensorProto.BOOL, []))

    assert live(tmp_path, proto) >= {"w", "v"}


def test_what_the_branch_reads_that_is_not_taken_is_needed_to_load_the_model(tmp_path: Path) -> None:
    assert unused(tmp_path, model(BRANCHES, w=W, v=OTHER, k=np.asarray(False))) == set()


def test_an_input_that_a_branch_declares_is_the_value_around_it(tmp_path: Path) -> None:
    """Some exporters declare inputs of branches against the standard, in which branches have no inputs."""
    branches = BRANCHES.replace("a () =>", "a (float[1,4] h) =>").replace("MatMul(x, w)", "MatMul(h, w)")
    proto = model(f"h = MatMul(x, u) {branches.replace('(k)', '(c)')}", u=noise(4, 4, seed=2), w=W, v=OTHER)

    assert live(tmp_path, proto) == {"u", "w", "v"}


def test_a_weight_of_the_branch_that_is_not_taken_is_dead(tmp_path: Path) -> None:
    known = {"w": W, "v": OTHER}
    proto = model(BRANCHES, **known, k=np.asarray(False))

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(known)))

    assert lines_of(result) == {"w": "dead", "v": "identical"}
    assert bridge_of(result)["dead"] == (1, 16, 0, 0)
    assert [finding.id for finding in result.findings] == ["dead"]
    assert not result.balanced


# functions


FUNCTION = """<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
g (float[1,4] x) => (float[1,4] y) {{ {nodes} }}
<domain: "local", opset_import: ["" : 18]>
used (a, b, u) => (p, q) {{ p = MatMul(a, b) q = MatMul(a, u) }}
<domain: "local", opset_import: ["" : 18]>
idle (a) => (p) {{ k = Constant<value = float[4] {{1,2,3,5}}>() p = Mul(a, k) }}
"""


@pytest.mark.parametrize(("read", "kept"), [("h", "w"), ("i", "v")])
def test_of_a_call_only_what_leads_to_the_outputs_that_are_needed_is_live(
    tmp_path: Path, read: str, kept: str
) -> None:
    text = FUNCTION.format(nodes=f"h, i = local.used(x, w, v) y = Relu({read})")

    assert live(tmp_path, text_model(text, {"w": W, "v": OTHER})) == {kept}


def test_function_that_nobody_calls_contains_nothing_that_is_live(tmp_path: Path) -> None:
    text = FUNCTION.format(nodes="y, i = local.used(x, w, v)")
    proto = text_model(text, {"w": W, "v": OTHER})

    assert "k" not in live(tmp_path, proto) | needed(tmp_path, proto)
    called = text_model(
        text.replace("y, i =", "h, i =").replace(" }\n<", " y = local.idle(h) }\n<", 1), {"w": W, "v": OTHER}
    )
    assert "k" in live(tmp_path, called)


# subgraph bodies


def test_bodies_of_loop_keep_what_they_use(tmp_path: Path) -> None:
    proto = model(
        """y, scans = Loop (trips, go, x) <
            body = b (int64 i, bool more, float[1,4] s) => (bool on, float[1,4] t, float[1,4] z) {
                on = Identity(more)
                t = MatMul(s, w)
                z = MatMul(s, v)
            }
        >""",
        w=W,
        v=OTHER,
        trips=np.asarray(3),
        go=np.asarray(True),
    )

    assert live(tmp_path, proto) == {"w", "trips", "go"}


def test_what_one_state_of_a_loop_gives_to_another_is_live(tmp_path: Path) -> None:
    proto = model(
        """y, rest = Loop (trips, go, x, x) <
            body = b (int64 i, bool more, float[1,4] s, float[1,4] r) => (bool on, float[1,4] t, float[1,4] u) {
                on = Identity(more)
                t = Identity(r)
                u = MatMul(r, w)
            }
        >""",
        w=W,
        trips=np.asarray(3),
        go=np.asarray(True),
    )

    assert "w" in live(tmp_path, proto)


def test_bodies_of_scan_keep_what_they_use(tmp_path: Path) -> None:
    proto = text_model(
        """g (float[1,4] x, float[5,1,4] xs) => (float[1,4] y) {
            y, each = Scan (x, xs) <
                num_scan_inputs = 1,
                body = b (float[1,4] s, float[1,4] e) => (float[1,4] t, float[1,4] z) {
                    h = Add(s, e)
                    t = MatMul(h, w)
                    z = MatMul(e, v)
                }
            >
        }""",
        {"w": W, "v": OTHER},
    )

    assert live(tmp_path, proto) == {"w"}


# parts beside the main graph


def test_what_only_training_reads_is_dead(tmp_path: Path) -> None:
    proto = model("y = Relu(x)")
    training = proto.training_info.add()
    training.algorithm.name = "step"
    training.algorithm.initializer.append(numpy_helper.from_array(W, "w"))
    training.algorithm.node.append(helper.make_node("Relu", ["w"], ["out"]))
    training.algorithm.output.append(helper.make_tensor_value_info("out", TensorProto.FLOAT, [4, 4]))

    assert live(tmp_path, proto) == set()


def test_what_a_live_node_carries_itself_is_live(tmp_path: Path) -> None:
    node = helper.make_node("Gate", ["x"], ["y"], domain="acme", table=numpy_helper.from_array(W, "t"))
    dead = helper.make_node("Gate", ["x"], ["z"], domain="acme", table=numpy_helper.from_array(W, "t"))
    proto = model("y = Relu(x)")
    del proto.graph.node[:]
    proto.graph.node.extend([node, dead])
    ledger = audit(tmp_path, proto)

    assert ledger.live is not None
    assert len(ledger.live.tensors) == 1
    assert len(ledger.entries) == 2


# parameters that PyTorch does not read either


def test_a_parameter_that_pytorchs_program_does_not_read_may_lie_idle(tmp_path: Path) -> None:
    proto = model("y = MatMul(x, v)", w=W, v=OTHER)
    known = manifest_of(parameter("v", OTHER), parameter("w", W))
    idle = manifest_of(parameter("v", OTHER), parameter("w", W, read=False), trace="exported-program")

    assert lines_of(reconcile(tmp_path, proto, known))["w"] == "dead"
    assert lines_of(reconcile(tmp_path, proto, idle))["w"] == "identical"


def test_one_live_copy_is_enough(tmp_path: Path) -> None:
    proto = model("h = MatMul(x, copy) i = MatMul(x, w) y = Relu(h)", w=W, copy=W)

    assert reconcile(tmp_path, proto, manifest_of(*parameters_of({"w": W}))).balanced


def test_of_a_parameter_in_pieces_each_has_to_be_live(tmp_path: Path) -> None:
    experts = noise(2, 4, 4)
    known = manifest_of(*parameters_of({"experts": experts}))
    first, second = (np.ascontiguousarray(expert) for expert in experts)

    both = reconcile(tmp_path, model("h = MatMul(x, a) y = MatMul(h, b)", a=first, b=second), known)
    one = reconcile(tmp_path, model("h = MatMul(x, a) y = MatMul(x, b)", a=first, b=second), known)

    assert lines_of(both) == {"experts": "sliced"}
    assert lines_of(one) == {"experts": "dead"}


# formulas


EMPTIED = {
    "minus itself": "z = Sub(q, q)",
    "plus its negative": "n = Neg(q) z = Add(q, n)",
    "over itself": "z = Div(q, q)",
    "a clip to one number": "z = Clip(q, zero, zero)",
    "a clip whose bounds are crossed": "z = Clip(q, one, zero)",
    "to the power of 0": "z = Pow(q, zero)",
    "alpha of 0": "z = Gemm<alpha=0.0>(q, v)",
    "a slope of 0": "z = HardSigmoid<alpha=0.0, beta=0.5>(q)",
    "a scale of zeros": "z = LayerNormalization(q, zeros, shift)",
    "not a number": "n = IsNaN(q) z = Cast<to=1>(n)",
    "nothing of it": "s = Slice(q, four, four, last) z = ReduceSum(s, last)",
    "a product with zeros that are computed": "a = Abs(q) d = Sub(a, a) z = Mul(q, d)",
    "a matrix of computed zeros": "d = Sub(q, q) t = Transpose<perm=[1, 0]>(d) z = MatMul(q, t)",
    "an Einsum with computed zeros": 'a = Sub(q, q) z = Einsum<equation="bi,bi->bi">(q, a)',
    "a condition that always holds": "e = Equal(q, q) z = Where(e, one, q)",
    "below a negative": "a = Abs(q) n = Neg(a) z = Relu(n)",
    "a remainder of whole numbers": "r = Round(q) z = Mod<fmod=1>(r, one)",
    "all dropped": "z = Dropout(q, one, yes)",
    "sine and cosine": "a = Sin(q) b = Cos(q) d = Mul(a, a) e = Mul(b, b) z = Add(d, e)",
}


KEPT = {
    "itself": "z = Identity(q)",
    "a rectifier": "z = Relu(q)",
    "a clip": "z = Clip(q, zero, one)",
    "a large threshold": "g = Greater(q, large) z = Cast<to=1>(g)",
    "coarse codes": "a = Div(q, large) b = Round(a) z = Mul(b, large)",
    "a centred value": "m = ReduceMean(q, last) z = Sub(q, m)",
    "a number before shares of all": "m = ReduceMean(q, last) d = Add(x, m) z = Softmax(d)",
    "a number before a normalization": "m = ReduceMean(q, last) d = Add(x, m) z = LayerNormalization(d, shift)",
    "a sum of shares": "s = Softmax(q) z = ReduceSum(s, last)",
    "an axis of length 1": "u = Unsqueeze(q, two) s = Softmax<axis=2>(u) z = Squeeze(s, two)",
    "no dropout": "z = Dropout(q, one)",
    "the place of the largest": "i = ArgMax<axis=1>(q) z = Cast<to=1>(i)",
    "a part that a short axis would not have": "z = Slice(q, two, four, last)",
    "a square": "z = Mul(q, q)",
    "a mask that an Einsum moves": 'm = Einsum<equation="ij->ij">(x) b = Mul(huge, m) z = Sub(q, b)',
    "a mask's sentinel": "g = Greater(x, least) z = Where(g, q, zero)",
}


def emptied(nodes: str) -> onnx.ModelProto:
    numbers = {
        "zero": np.asarray(0, "f4"),
        "one": np.asarray(1, "f4"),
        "large": np.asarray(4096, "f4"),
        "huge": np.asarray(1e30, "f4"),
        "least": np.asarray(-np.finfo("f4").max, "f4"),
        "zeros": np.zeros(4, "f4"),
        "shift": np.ones(4, "f4"),
        "four": np.asarray([4], "i8"),
        "two": np.asarray([2], "i8"),
        "last": np.asarray([1], "i8"),
        "yes": np.asarray(True),
    }
    used = {name: array for name, array in numbers.items() if re.search(rf"\b{name}\b", nodes)}
    return model(f"q = MatMul(x, w) {nodes} k = MatMul(x, v) y = Add(k, z)", w=W, v=OTHER, **used)


@pytest.mark.parametrize("nodes", EMPTIED.values(), ids=EMPTIED)
def test_a_parameter_is_dead_if_no_result_depends_on_it(tmp_path: Path, nodes: str) -> None:
    known = manifest_of(*parameters_of({"w": W, "v": OTHER}))

    assert lines_of(reconcile(tmp_path, emptied(nodes), known)) == {"w": "dead", "v": "identical"}


@pytest.mark.parametrize("nodes", KEPT.values(), ids=KEPT)
def test_a_parameter_is_live_if_any_result_depends_on_it(tmp_path: Path, nodes: str) -> None:
    known = manifest_of(*parameters_of({"w": W, "v": OTHER}))

    assert lines_of(reconcile(tmp_path, emptied(nodes), known)) == {"w": "identical", "v": "identical"}


def test_a_scale_of_zeros_that_is_a_parameter_empties_nothing(tmp_path: Path) -> None:
    stored = {"w": W, "g": np.zeros(4, "f4"), "b": noise(4)}
    proto = model("q = MatMul(x, w) y = LayerNormalization(q, g, b)", **stored)

    lines = lines_of(reconcile(tmp_path, proto, manifest_of(*parameters_of(stored))))

    assert set(lines.values()) == {"identical"}


def test_what_is_added_and_taken_away_again_is_dead(tmp_path: Path) -> None:
    proto = model("q = MatMul(x, w) k = MatMul(x, v) a = Add(k, q) y = Sub(a, q)", w=W, v=OTHER)
    known = manifest_of(*parameters_of({"w": W, "v": OTHER}))

    assert lines_of(reconcile(tmp_path, proto, known)) == {"w": "dead", "v": "identical"}


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        ("n = Expand(zero, s) q = MatMul(n, w) k = MatMul(x, v) a = Add(k, q) y = Add(n, a)", "identical"),
        ("q = MatMul(none, w) k = MatMul(x, v) a = Add(k, q) y = Add(nil, a)", "identical"),
        ("n = Expand(zero, s) q = MatMul(n, w) k = MatMul(x, v) y = Add(k, q)", "dead"),
        ("q = MatMul(none, w) k = MatMul(x, v) y = Add(k, q)", "dead"),
        ("n = Sub(x, x) q = MatMul(n, w) k = MatMul(x, v) a = Add(k, q) y = Add(n, a)", "dead"),
    ],
)
def test_a_layer_may_begin_with_stored_zeros_to_which_its_result_is_added(
    tmp_path: Path, nodes: str, line: str
) -> None:
    """As a decoder with its queries: PyTorch multiplies zeros, too. A replaced input is added to nothing."""
    nodes = f"s = Shape(x) {nodes}"
    empty = np.zeros((2, 4), "f4")
    zeros = {"zero": np.asarray(0, "f4"), "none": empty, "nil": empty}
    proto = model(nodes, w=W, v=OTHER, **{name: each for name, each in zeros.items() if f"({name}," in nodes})
    known = manifest_of(*parameters_of({"w": W, "v": OTHER}))

    result = reconcile(tmp_path, proto, known)

    assert (lines_of(result)["w"], lines_of(result)["v"]) == (line, "identical")
    assert result.balanced == (line == "identical")


@pytest.mark.parametrize(
    ("low", "high", "mask", "line"),
    [
        (0.01, 0.99, "m = ReduceMin(t, axis)", "identical"),
        (0.01, 0.99, "m = Identity(t)", "identical"),
        (0.5, 0.5001, "m = Identity(t)", "dead"),
        (0.99, 0.01, "m = Identity(t)", "dead"),
    ],
)
def test_an_interval_that_chance_does_not_meet_may_still_be_met(
    tmp_path: Path, low: float, high: float, mask: str, line: str
) -> None:
    """As by RT-DETR's anchors, of which those at the border are left out."""
    nodes = (
        f"g = Greater(x, low) l = Less(x, high) a = And(g, l) t = Cast<to = 1>(a) {mask} "
        "q = MatMul(x, w) k = Mul(q, m) r = MatMul(x, v) y = Add(r, k)"
    )
    bounds = {"low": np.asarray(low, "f4"), "high": np.asarray(high, "f4")}
    bounds |= {"axis": np.asarray([-1])} if "axis" in mask else {}
    known = manifest_of(*parameters_of({"w": W, "v": OTHER}))

    lines = lines_of(reconcile(tmp_path, model(nodes, w=W, v=OTHER, **bounds), known))

    assert (lines["w"], lines["v"]) == (line, "identical")
