"""Lines of tensors that no other rule settled: absent heads, other values under a name, fillers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import (
    FOLDED_FROM,
    FX_NODE,
    INPUT_KIND,
    as_it_stands,
    bridge_of,
    buffer,
    dynamo_like,
    external,
    lines_of,
    manifest_of,
    noise,
    outs,
    parameter,
    parameters_of,
    ramp,
    reconcile,
    set_metadata,
    text_model,
    with_origins,
)

from analyzer.account.group import group_by
from analyzer.formats.json import render_json
from analyzer.model.content import Array
from analyzer.reconciliation import Reconciliation
from analyzer.reports import ReconcileReport

FC = ramp(2, 3)
RELU = "g (float[1,3] x) => (float[1,3] y) { y = Relu(x) }"
MATMUL = 'g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, "fc.weight") }'


@pytest.mark.parametrize("trace", ["exported-program", "function-calls"])
def test_absent_parameter_that_the_trace_saw_nobody_read_is_unused(tmp_path, trace):
    manifest = manifest_of(parameter("fc.weight", FC, read=False), trace=trace)

    result = reconcile(tmp_path, text_model(RELU), manifest)

    assert bridge_of(result) == {"unused": (1, 6, -6, -6)}
    assert result.parameters[0].decided_by == f"provenance:{trace}"
    assert (result.balanced, result.onnx_parameters) == (True, 0)


@pytest.mark.parametrize(("read", "trace"), [(True, "exported-program"), (None, None), (False, None)])
def test_absent_parameter_without_evidence_is_missing(tmp_path, read, trace):
    manifest = manifest_of(parameter("fc.weight", FC, read=read), trace=trace)

    result = reconcile(tmp_path, text_model(RELU), manifest)

    assert bridge_of(result) == {"missing": (1, 6, -6, -6)}
    assert not result.balanced


def test_unused_parameter_that_is_stored_all_the_same_is_identical(tmp_path):
    manifest = manifest_of(parameter("fc.weight", FC, read=False), trace="exported-program")

    result = reconcile(tmp_path, text_model(MATMUL, {"fc.weight": FC}), manifest)

    assert bridge_of(result) == {"identical": (1, 6, 0, 0)}


def test_what_the_exporter_made_is_added(tmp_path):
    proto = text_model(
        'g (float[1,3] x) => (float[3] y) { h = MatMul(x, "fc.weight") y = Reshape(h, shape) }',
        {"fc.weight": FC, "shape": np.array([2, 1])},
    )

    result = reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", FC)))

    assert bridge_of(result) == {"identical": (1, 6, 0, 0), "added": (1, 2, 0, 2)}
    assert (result.onnx_parameters, result.ledger.stored_elements) == (6, 8)


def test_scales_and_zero_points_are_quantization(tmp_path):
    proto = text_model(
        """g (float[1,3] x) => (float[1,2] y) {
            q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = MatMul(d, "fc.weight")
        }""",
        {"fc.weight": FC, "s": np.array(0.5, "f4"), "z": np.array(3, "u1")},
    )

    result = reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", FC)))

    assert bridge_of(result) == {"identical": (1, 6, 0, 0), "quantization": (2, 2, 0, 2)}
    assert result.balanced


def test_weight_that_pytorch_does_not_have_is_unexpected(tmp_path):
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { h = MatMul(x, "fc.weight") y = MatMul(h, "lora.weight") }',
        {"fc.weight": FC, "lora.weight": ramp(2, 2, start=50)},
    )

    result = reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", FC)))

    assert bridge_of(result) == {"identical": (1, 6, 0, 0), "unexpected": (1, 4, 4, 4)}
    assert (result.onnx_parameters, result.balanced) == (10, False)
    assert [(f.id, f.subjects) for f in result.findings] == [("unexpected", ("lora.weight",))]


def test_buffer_that_pytorch_does_not_have_is_no_parameter_and_does_not_balance(tmp_path):
    proto = text_model(
        'g (float[3] x) => (float[3] y) { y = Sub(x, "bn.running_mean") }', {"bn.running_mean": ramp(3)}
    )

    result = reconcile(tmp_path, proto, manifest_of(buffer("other.running_mean", ramp(3, start=9))))

    assert (result.onnx_parameters, result.ledger.stored_elements) == (0, 3)
    assert not result.balanced
    assert [f.subjects for f in result.findings] == [("bn.running_mean",)]


def test_what_nothing_explains_is_unexplained_and_named_with_its_graph(tmp_path):
    proto = text_model("""
        g (bool c, float[3] x) => (float[3] y) {
            y = If(c) <then_branch = t () => (float[3] a) <float[3] w = {1, 2, 3}> { a = Relu(w) },
                       else_branch = e () => (float[3] b) { b = Relu(x) }>
        }
    """)

    result = reconcile(tmp_path, proto, manifest_of())

    assert bridge_of(result) == {"unexplained": (1, 3, 0, 3)}
    assert not result.balanced
    assert [(f.id, f.subjects) for f in result.findings] == [("unexplained", ("If_0.then_branch/w",))]


@pytest.mark.parametrize(("stored", "line"), [(FC, "identical"), (FC.T.copy(), "transposed")])
def test_tie_keeps_the_line_that_it_had_in_its_chain(tmp_path, stored, line):
    manifest = manifest_of(parameter("fc.weight", FC, tied=("head.weight",)))

    result = reconcile(tmp_path, text_model(MATMUL, {"fc.weight": stored}), manifest)

    assert [str(part) for part in result.parameters[0].chain] == [line, "tied"]
    assert [str(part.line) for part in result.entries] == ["tied"]


def test_missing_tied_parameter_is_missing_once(tmp_path):
    manifest = manifest_of(parameter("wte.weight", FC, tied=("head.weight",)))

    result = reconcile(tmp_path, text_model(RELU), manifest)

    assert bridge_of(result) == {"missing": (1, 6, -6, -6)}


def test_absent_buffer_is_no_line(tmp_path):
    result = reconcile(tmp_path, text_model(RELU), manifest_of(buffer("bn.running_mean", ramp(3))))

    assert bridge_of(result) == {}
    assert result.balanced


def test_lines_of_parameters_are_in_pytorchs_order(tmp_path):
    manifest = manifest_of(*parameters_of({"z.weight": ramp(2), "a.weight": ramp(3), "fc.weight": FC}))

    result = reconcile(tmp_path, text_model(MATMUL, {"fc.weight": FC}), manifest)

    assert list(lines_of(result)) == ["z.weight", "a.weight", "fc.weight"]


def test_a_filler_that_nothing_reads_is_unexplained(tmp_path):
    proto = text_model("g (float[3] x) => (float[3] y) { y = Relu(x) }", {"extra": np.ones((3, 4), "f4")})

    result = reconcile(tmp_path, proto, manifest_of())

    assert bridge_of(result) == {"unexplained": (1, 12, 0, 12)}


# fillers: inputs that an operator requires


def beside(tmp_path, nodes: str, number: np.ndarray, known: tuple = ()):
    """Reconcile a file with `fc.weight` and one more tensor, `v`."""
    proto = text_model(
        f'g (float[1] x) => (float[1] y) {{ h = Gemm(x, "fc.weight") {nodes} }}',
        {"fc.weight": FC, "v": number},
    )
    return reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", FC), *known))


ZEROS, ONES, MASK = np.zeros(3, "f4"), np.ones(3, "f4"), np.array([0, -1e5, 0], "f4")
CORNERS = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [-0.5, 0, 0.5, 0], [0, -0.5, 0, 0.5]], "f4")
MESHED = "s = Shape(h) g = Expand(v, s) i = MatMul(h, x) y = Sub(g, i)"
"""Nodes that subtract from a row of cells, repeated for all rows."""


@pytest.mark.parametrize(
    ("nodes", "number"),
    [
        ("y = LayerNormalization(h, x, v)", ZEROS),
        ("y = LayerNormalization(h, v)", ONES),
        ("y = Conv(h, x, v)", ZEROS),
        ("i = MatMul(h, x) y = Add(i, v)", ZEROS),
        ("i = MatMul(h, x) y = Add(i, v)", MASK),
        ("i = LayerNormalization(h, x) y = Mul(i, v)", ONES),
        ("i = Relu(h) y = Add(i, v)", np.full((4, 4), 5, "f4")),
        ("i = Relu(h) y = Add(i, v)", np.triu(np.full((4, 4), np.finfo("f4").min), 1)),
        ("i = Relu(h) y = Mul(i, v)", np.array([[1000, 0, 0, 0]], "f4")),
        ("i = Relu(h) y = MatMul(i, v)", CORNERS),
        ("i = Relu(h) y = Sub(i, v)", np.array([[[0.485]], [[0.456]], [[0.406]]], "f4")),
        (MESHED, np.arange(4, dtype="f4") + np.float32(0.5)),
    ],
)
def test_number_that_changes_nothing_and_mask_are_added(tmp_path, nodes, number):
    result = beside(tmp_path, nodes, number)

    assert bridge_of(result) == {"identical": (1, 6, 0, 0), "added": (1, number.size, 0, number.size)}
    assert result.balanced


@pytest.mark.parametrize(
    ("nodes", "number"),
    [
        ("y = LayerNormalization(h, x, v)", ONES),
        ("y = LayerNormalization(h, v)", ZEROS),
        ("y = Conv(h, x, v)", ONES),
        ("i = MatMul(h, x) y = Add(i, v)", ONES),
        ("y = Gemm(h, x, v)", MASK),
        ("y = Gemm(h, x, v)", np.full(3, 1e-3, "f4")),
        ("y = MatMul(h, v)", np.zeros((3, 3), "f4")),
        ("y = MatMul(h, v)", np.triu(np.full((3, 3), -1e5), 1).astype("f4")),
        ("i = MatMul(h, x) y = Add(i, v)", ramp(3)),
        ("i = Relu(h) y = MatMul(i, v)", CORNERS[::-1].copy()),
        (MESHED, np.arange(4, dtype="f4") + np.float32(0.25)),
        (MESHED.replace("g = Expand(v, s)", "g = Identity(v)"), np.arange(4, dtype="f4") + np.float32(0.5)),
    ],
)
def test_number_that_changes_what_is_computed_is_unexpected(tmp_path, nodes, number):
    result = beside(tmp_path, nodes, number)

    assert bridge_of(result)["unexpected"] == (1, number.size, number.size, number.size)
    assert not result.balanced


STEPS = 'a = Gemm(v, "fc.weight") r = Relu(a) b = Gemm(r, "fc.weight") y = Add(b, h)'
"""Nodes of an unrolled loop of two steps, of which the first has no state."""


def test_zeros_that_an_unrolled_loop_starts_with_are_added(tmp_path):
    result = beside(tmp_path, STEPS, np.zeros((2, 2), "f4"))

    assert bridge_of(result) == {"identical": (1, 6, 0, 0), "added": (1, 4, 0, 4)}
    assert result.balanced


@pytest.mark.parametrize(
    ("nodes", "number"),
    [
        (STEPS, np.full((2, 2), 1e-3, "f4")),
        ('y = Gemm(v, "fc.weight")', np.zeros((2, 2), "f4")),
        ('a = Gemm(v, "fc.weight") b = Gemm(v, "fc.weight") y = Add(a, b)', np.zeros((2, 2), "f4")),
    ],
)
def test_a_state_that_is_not_zero_or_of_which_nothing_comes_is_unexpected(tmp_path, nodes, number):
    assert not beside(tmp_path, nodes, number).balanced


@pytest.mark.parametrize(("number", "is_made"), [(0.0, True), (1.0, False), (None, False)])
def test_zeros_that_are_joined_with_what_is_computed_are_added(tmp_path, number, is_made):
    state = noise(1, 2, 3) if number is None else np.full((1, 2, 3), number, np.float32)
    text = """g (float[4,2,3] x, float[5,5] t) => (float[5,2,3] y) {
        r = Relu(x) s = Concat<axis = 0>(state, r) y = Einsum<equation = "ij,jkl->ikl">(t, s)
    }"""

    result = reconcile(tmp_path, text_model(text, {"state": state}), manifest_of())

    assert [line.line for line in result.entries] == ["added" if is_made else "unexpected"]


def test_bias_that_was_zeroed_is_no_filler(tmp_path):
    result = beside(tmp_path, "y = Conv(h, x, v)", ZEROS, (parameter("conv.bias", ramp(3)),))

    assert not result.balanced
    assert {finding.id for finding in result.findings} == {"missing", "unexpected"}


# exporters' notes


def extra(tmp_path, note: str, nodes: str = "y = MatMul(h, v)", matrix: Array | None = None):
    """Reconcile a file with a matrix that PyTorch does not have, and a note of its origin."""
    proto = text_model(
        f'g (float[1] x) => (float[1] y) {{ h = Gemm(x, "fc.weight") {nodes} }}',
        {"fc.weight": FC, "v": noise(8, 8) if matrix is None else matrix},
    )
    if note == "folded":
        proto = dynamo_like(proto, folded={"v": ["val_7"]})
    elif note == "buffer":
        proto = dynamo_like(proto, folded={"v": ["rotary.inv_freq"]})
    elif note == "scale":
        proto.graph.quantization_annotation.add(tensor_name="x").quant_parameter_tensor_names.add(
            key="SCALE_TENSOR", value="v"
        )
    elif note:
        proto = with_origins(proto, {"v": {INPUT_KIND: note}})
    return reconcile(
        tmp_path, proto, manifest_of(parameter("fc.weight", FC), buffer("rotary.inv_freq", ramp(4)))
    )


@pytest.mark.parametrize("note", ["", "folded", "buffer", "scale", "CONSTANT_TENSOR", "BUFFER", "PARAMETER"])
def test_no_note_makes_a_matrix_to_multiply_by_the_exporters(tmp_path, note):
    result = extra(tmp_path, note)

    assert not result.balanced
    assert [subject for finding in result.findings for subject in finding.subjects] == [
        "v" if note != "buffer" else "rotary.inv_freq"
    ]


@pytest.mark.parametrize("note", ["folded", "CONSTANT_TENSOR"])
@pytest.mark.parametrize(
    "matrix",
    [
        np.tril(np.ones((8, 8), "f4")),
        ramp(8, 8),
        np.zeros((8, 8), "f4"),
        np.sin(np.outer(np.arange(8), [1, 0.1])),
    ],
    ids=["mask", "count", "zeros", "waves"],
)
def test_table_that_the_exporter_folded_and_adds_is_added(tmp_path, note, matrix):
    result = extra(tmp_path, note, "i = Relu(h) y = Add(i, v)", matrix.astype("f4"))

    assert bridge_of(result)["added"] == (1, matrix.size, 0, matrix.size)
    assert result.balanced


@pytest.mark.parametrize(("count", "line"), [(3, "unexplained"), (7, "unexplained"), (8, "added")])
def test_few_numbers_are_a_count_by_themselves_and_no_table(tmp_path, count, line):
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { h = MatMul(x, "fc.weight") y = acme.Gate(h, v) }',
        {"fc.weight": FC, "v": ramp(count)},
    )

    result = reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", FC)))

    assert [entry.line for entry in result.entries if entry.key[1] == "v"] == [line]


@pytest.mark.parametrize("note", ["folded", "CONSTANT_TENSOR"])
def test_no_note_makes_numbers_that_are_added_and_no_table_the_exporters(tmp_path, note):
    result = extra(tmp_path, note, "i = Relu(h) y = Add(i, v)")

    assert bridge_of(result)["opaque"] == (1, 64, 0, 64)
    assert not result.balanced


def test_zero_bias_that_a_traced_node_names_is_removed_by_what_the_node_says(tmp_path):
    proto = text_model(MATMUL, {"fc.weight": FC})
    proto.graph.node[0].metadata_props.add(key=FX_NODE, value="linear(%x, %p_fc_weight, %p_fc_bias)")
    known = {"fc.weight": FC, "fc.bias": np.zeros(2, "f4")}

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(known)))

    assert bridge_of(result) == {"identical": (1, 6, 0, 0), "removed-zero": (1, 2, -2, -2)}
    assert result.parameters[1].decided_by == "provenance:traced-zero"


@pytest.mark.parametrize(
    ("weight", "bias", "line"),
    [
        (FC, np.zeros(2, "f4"), "removed-zero"),
        (FC, np.array([0, 1e-6], "f4"), "missing"),
        (FC + 1, np.zeros(2, "f4"), "missing"),  # the layer itself is not in the file
    ],
)
def test_a_bias_that_is_not_in_the_file_may_be_zeros_of_a_layer_that_is(tmp_path, weight, bias, line):
    tensors = {"fc.weight": weight, "fc.bias": bias}
    proto = text_model(MATMUL.replace("fc.weight", "kernel"), {"kernel": FC})

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(tensors)), "full")

    assert result.parameters[1].line.value == line
    assert result.balanced == (line == "removed-zero")


@pytest.mark.parametrize(("count", "is_read"), [(2, True), (1, False)])
def test_ones_of_two_norms_may_be_one_tensor_that_a_node_of_no_module_reads(tmp_path, count, is_read):
    """One of the nodes has a module; a tool made the other, and a norm that was cut out has none."""
    nodes = ['h0 = Mul(x, "one.weight")', 'h1 = Mul(h0, "one.weight")'][:count]
    proto = text_model(
        f"g (float[1,3] x) => (float[1,3] y) {{ {' '.join(nodes)} y = Relu(h{count - 1}) }}",
        {"one.weight": np.ones(3, "f4")},
    )
    proto.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'one', 'mul']")
    proto.graph.node[0].metadata_props.add(
        key="pkg.torch.onnx.class_hierarchy",
        value="['Net', 'torch.nn.modules.normalization.RMSNorm', 'aten.mul']",
    )
    known = {"one.weight": np.ones(3, "f4"), "two.weight": np.ones(3, "f4")}

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(known)), "full")

    assert result.balanced == is_read
    assert result.parameters[1].line.value == ("deduplicated" if is_read else "missing")


@pytest.mark.parametrize("content", ["sampled", "full"])
def test_what_differs_names_its_evidence_and_can_still_be_recovered(tmp_path, content):
    proto = text_model(
        'g (float[1,3] x) => (float[1,3] y) { h = MatMul(x, "fc.weight") y = Sub(h, "norm.mean") }',
        {"fc.weight": FC + 1, "norm.mean": ramp(3)},
    )
    known = manifest_of(parameter("fc.weight", FC), buffer("norm.mean", ramp(3, start=7)))

    result = reconcile(tmp_path, proto, known, content)

    rule = "name+content" if content == "full" else "name+sampled"
    assert {line.decided_by for line in result.entries} == {rule}
    assert {line.line.value for line in result.entries} == {"differing"}
    assert [piece.shape for piece in result.parameters[0].pieces] == [(2, 3)]


def messages_of(result: Reconciliation) -> dict[str, str]:
    return {finding.id: finding.message for finding in result.findings}


def test_what_keeps_the_account_from_balancing_is_counted_in_a_sentence(tmp_path):
    one = manifest_of(parameter("fc.weight", FC))
    two = manifest_of(parameter("fc.weight", FC), parameter("fc.bias", ramp(4)))
    other = text_model(MATMUL, {"fc.weight": FC + 1})
    more = text_model(MATMUL, {"fc.weight": FC})

    assert messages_of(reconcile(tmp_path, text_model(RELU), one)) == {
        "missing": "1 tensor, 6 elements: PyTorch has it, the file does not"
    }
    assert messages_of(reconcile(tmp_path, text_model(RELU), two)) == {
        "missing": "2 tensors, 10 elements: PyTorch has them, the file does not"
    }
    assert messages_of(reconcile(tmp_path, more, manifest_of())) == {
        "unexpected": "1 tensor, 6 elements: the file has it, PyTorch does not"
    }
    found = messages_of(reconcile(tmp_path, other, one))
    assert found["differing"] == "1 tensor, 6 elements: the file has other values under this name"


# heads that a file does not have, and parameters that only training reads

BODY = {"bert.encoder.weight": ramp(3, 3), "bert.encoder.bias": ramp(3, start=20)}
HEAD = {"classifier.weight": ramp(2, 3, start=40), "classifier.bias": ramp(2, start=60)}


def file_of(stored: dict[str, np.ndarray], nodes: str | None = None) -> onnx.ModelProto:
    reads = {"bert.encoder.weight": "Gemm <transB = 1>"}  # as for a square Linear weight
    inputs = [f'y{i} = {reads.get(name, "MatMul")} (x, "{name}")' for i, name in enumerate(stored)]
    outputs = outs(1 if nodes else len(stored))
    return text_model(f"g (float[1] x) => ({outputs}) {{ {nodes or ' '.join(inputs)} }}", stored)


def run(
    tmp_path,
    stored: dict[str, np.ndarray],
    known: dict[str, np.ndarray],
    nodes: str | None = None,
    **how: Any,
) -> Reconciliation:
    content = how.pop("content", "full")
    return reconcile(tmp_path, file_of(stored, nodes), manifest_of(*parameters_of(known), **how), content)


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
def test_head_of_which_nothing_is_there_is_outside(tmp_path, content):
    result = run(tmp_path, BODY, BODY | HEAD, content=content)

    assert bridge_of(result) == {as_it_stands(content): (2, 12, 0, 0), "outside": (2, 8, -8, -8)}
    assert result.balanced
    assert {line.decided_by for line in result.parameters if "classifier" in line.name} == {
        "name:head classifier"
    }


@pytest.mark.parametrize(
    "head",
    [
        *("classifier", "pre_classifier", "sop_classifier", "qa_outputs", "score", "pooler", "predictions"),
        *("cls", "cls.predictions", "cls.seq_relationship", "lm_head", "decoder_pred"),
        *("discriminator_predictions", "generator_predictions", "generator_lm_head"),
        *("vocab_layer_norm", "vocab_projector", "vocab_transform"),
        *("project_hid", "project_q", "quantizer"),
    ],
)
def test_heads_are_known_at_the_top_and_in_the_base_model(tmp_path, head):
    for prefix in ("", "bert."):
        name = f"{prefix}{head}.dense.weight"
        (line,) = run(tmp_path, BODY, BODY | {name: ramp(2, 3, start=40)}).parameters[2:]

        assert (line.name, line.line.value, line.decided_by) == (name, "outside", f"name:head {prefix}{head}")


@pytest.mark.parametrize("name", ["classifier.weight", "classifier.bias"])
def test_half_a_head_that_is_absent_is_missing(tmp_path, name):
    stored = {**BODY, **{key: array for key, array in HEAD.items() if key != name}}

    result = run(tmp_path, stored, BODY | HEAD)

    assert lines_of(result)[name] == "missing"
    assert not result.balanced


@pytest.mark.parametrize("name", ["bert.encoder.weight", "bert.encoder.bias"])
def test_layer_that_was_cut_out_is_missing(tmp_path, name):
    stored = {key: array for key, array in BODY.items() if key != name}

    result = run(tmp_path, stored, BODY | HEAD)

    assert lines_of(result) == {
        **dict.fromkeys(BODY, "identical"),
        name: "missing",
        **dict.fromkeys(HEAD, "outside"),
    }
    assert not result.balanced


@pytest.mark.parametrize(
    "name", ["bert.encoder.pooler_layer.weight", "bert.encoder.layer.classifier.weight", "classifiers.weight"]
)
def test_names_that_only_resemble_a_head_are_missing(tmp_path, name):
    assert lines_of(run(tmp_path, BODY, BODY | {name: ramp(2, 3, start=40)}))[name] == "missing"


@pytest.mark.parametrize("trace", ["exported-program", "function-calls"])
def test_the_trace_decides_what_is_read_and_no_name_does(tmp_path, trace):
    result = run(tmp_path, BODY, BODY | HEAD, trace=trace)

    assert {lines_of(result)[name] for name in HEAD} == {"missing"}
    assert not result.balanced


def test_a_class_that_was_traced_may_have_a_head_that_the_file_lacks(tmp_path):
    result = run(tmp_path, BODY, BODY | HEAD, trace="class-program")

    assert {lines_of(result)[name] for name in HEAD} == {"outside"}
    assert result.balanced


@pytest.mark.parametrize("scope", ["/classifier/Gemm", "/classifier/dense/MatMul"])
def test_node_of_the_head_says_that_it_is_in_the_file(tmp_path, scope):
    nodes = f'h = MatMul(x, "bert.encoder.weight") i = Add(h, "bert.encoder.bias") ["{scope}"] y0 = Relu(i)'

    result = run(tmp_path, BODY, BODY | HEAD, nodes)

    assert {lines_of(result)[name] for name in HEAD} == {"missing"}


def test_node_of_another_module_is_no_evidence_of_the_head(tmp_path):
    nodes = 'h = MatMul(x, "bert.encoder.weight") i = Add(h, "bert.encoder.bias") ["/classifiers/Relu"] y0 = Relu(i)'

    assert run(tmp_path, BODY, BODY | HEAD, nodes).balanced


def test_head_that_was_replaced_is_unexpected(tmp_path):
    stored = BODY | {"onnx::MatMul_9": ramp(3, 2, start=90)}

    result = run(tmp_path, stored, BODY | HEAD)

    assert not result.balanced
    assert {finding.id for finding in result.findings} == {"unexpected"}


def test_head_that_is_tied_to_the_body_is_not_one(tmp_path):
    table = parameter("bert.embeddings.weight", ramp(2, 3), tied=("cls.predictions.decoder.weight",))

    result = reconcile(tmp_path, file_of(BODY), manifest_of(*parameters_of(BODY), table))

    assert lines_of(result)["bert.embeddings.weight"] == "missing"


@pytest.mark.parametrize("name", ["vit.embeddings.mask_token", "wav2vec2.masked_spec_embed"])
def test_what_only_training_reads_is_unused(tmp_path, name):
    result = run(tmp_path, BODY, BODY | {name: ramp(3, start=70)})

    assert bridge_of(result)["unused"] == (1, 3, -3, -3)
    assert result.parameters[2].decided_by == "name:training-only"
    assert result.balanced


NEVER_READ = (
    "neck.fusion_stage.layers.0.residual_layer1.convolution1.weight",
    "depth_head.scratch.refinenet4.resConfUnit1.conv1.weight",
    "wav2vec2_conformer.encoder.pos_conv_embed.conv.bias",
)


@pytest.mark.parametrize("name", NEVER_READ)
def test_what_the_forward_of_its_class_never_reads_is_unused(tmp_path, name):
    known = manifest_of(parameter("fc.weight", FC), parameter(name, noise(4, 3)))

    result = reconcile(tmp_path, text_model(MATMUL, {"fc.weight": FC}), known)

    assert lines_of(result)[name] == "unused"
    assert result.balanced


@pytest.mark.parametrize("name", NEVER_READ)
def test_a_layer_of_another_place_is_missing(tmp_path, name):
    name = (
        name.replace("layers.0", "layers.1").replace("refinenet4", "refinenet3").replace("conformer", "bert")
    )
    known = manifest_of(parameter("fc.weight", FC), parameter(name, noise(4, 3)))

    assert lines_of(reconcile(tmp_path, text_model(MATMUL, {"fc.weight": FC}), known))[name] == "missing"


@pytest.mark.parametrize(
    ("other", "entering", "line"),
    [
        ("model.decoder.norm.weight", "x", "unused"),
        (
            "model.encoder.norm.weight",
            "x",
            "missing",
        ),  # the file lacks what an encoder's states would go through
        ("model.decoder.norm.weight", "encoder_hidden_states", "missing"),
    ],
)
@pytest.mark.parametrize("cross", ["encoder_attn.k_proj.weight", "encoder_attn_layer_norm.bias"])
def test_attention_to_an_encoder_is_unused_where_there_is_none(tmp_path, other, entering, line, cross):
    names = [f"model.decoder.layers.{index}.{cross}" for index in range(2)]
    stored = {"fc.weight": FC, other: noise(3, seed=4)}
    held = [parameter(name, array) for name, array in stored.items()]
    known = manifest_of(*held, *(parameter(name, noise(5, 3)) for name in names))
    nodes = f'h = MatMul({entering}, "fc.weight") s = ReduceSum(h) y = Mul("{other}", s)'
    proto = text_model(f"g (float[1,3] {entering}) => (float[3] y) {{ {nodes} }}", stored)

    result = reconcile(tmp_path, proto, known)

    assert [lines_of(result)[name] for name in names] == [line, line]


def test_attention_to_an_encoder_that_one_layer_has_is_missing_in_the_other(tmp_path):
    names = [f"model.decoder.layers.{index}.encoder_attn.k_proj.weight" for index in range(2)]
    known = manifest_of(parameter(names[0], FC), parameter(names[1], noise(5, 3)))
    proto = text_model(MATMUL.replace("fc.weight", names[0]), {names[0]: FC})

    assert lines_of(reconcile(tmp_path, proto, known))[names[1]] == "missing"


@pytest.mark.parametrize(("low", "line"), [(1.0, "added"), (-1e4, "unexpected")])
def test_a_mask_of_a_buffer_that_is_not_listed_is_distinguished_from_one_that_is_added(tmp_path, low, line):
    mask = np.tril(np.full((6, 6), low, np.float32))
    proto = text_model("g (float[6,6] x) => (float[6,6] y) { y = Mul(x, slice_3) }", {"slice_3": mask})
    proto = dynamo_like(proto, folded={"slice_3": ["h.0.attn.bias", "val_1"]})

    result = reconcile(tmp_path, proto, replace(manifest_of(), lists_all_buffers=False))

    assert [str(entry.line) for entry in result.entries] == [line]


@pytest.mark.parametrize("is_mask", [True, False])
def test_a_mask_that_is_looked_up_is_added_beside_a_state_dict(tmp_path, is_mask):
    table = np.repeat([[0, 0, 0, 1, 1, 1, 1, 1]], 2, axis=0).astype(np.float32)
    table[1, 6] = 1 if is_mask else 0
    text = "g (int64[2,8] i) => (float[2,8] y) { y = GatherElements<axis = 1>(table, i) }"
    known = replace(manifest_of(), lists_all_buffers=False)

    result = reconcile(tmp_path, text_model(text, {"table": table}), known)

    assert [line.line for line in result.entries] == ["added" if is_mask else "unexpected"]


def test_mask_token_that_is_stored_is_identical(tmp_path):
    known = BODY | {"vit.embeddings.mask_token": ramp(3, start=70)}

    assert set(lines_of(run(tmp_path, known, known)).values()) == {"identical"}


def test_model_that_is_all_head_is_outside_but_nothing_balances_against_nothing(tmp_path):
    result = run(tmp_path, {}, HEAD, "y0 = Relu(x)")

    assert (result.onnx_parameters, bridge_of(result)) == (0, {"outside": (2, 8, -8, -8)})


# a name with other values is the only difference reported, if PyTorch's values are nowhere in the file

A, B = noise(4, 6, seed=1), noise(4, 6, seed=2)
KNOWN: dict[str, Array] = {"a.weight": A, "b.weight": B}
TEXT = """
    g (float[1,4] x) => (float[1,6] y) { p = MatMul(x, "a.weight") q = MatMul(x, "b.weight") y = Sub(p, q) }
"""


def reconcile_stored(folder: Path, stored: dict[str, Array]) -> Reconciliation:
    """Reconcile a file that stores these tensors with two PyTorch weights."""
    manifest = manifest_of(*parameters_of(KNOWN), values=KNOWN)
    return reconcile(folder, text_model(TEXT, stored), manifest, content="full")


def differing(result: Reconciliation) -> dict[str, tuple[str, str]]:
    assert not result.balanced
    return {
        line.name: (line.line.value, line.decided_by)
        for line in result.parameters
        if line.line.value != "identical"
    }


def test_other_values_are_other_values(tmp_path: Path) -> None:
    result = reconcile_stored(tmp_path, {**KNOWN, "a.weight": noise(4, 6, seed=3)})

    assert differing(result) == {"a.weight": ("differing", "name+content")}
    assert [finding.message for finding in result.findings] == [
        "1 tensor, 24 elements: the file has other values under this name"
    ]


def test_values_in_another_order_are_not_reported_as_other_values(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(A.size)
    result = reconcile_stored(tmp_path, {**KNOWN, "a.weight": A.reshape(-1)[order].reshape(A.shape)})

    assert differing(result) == {"a.weight": ("differing", "content:reordered")}
    assert [finding.message for finding in result.findings] == [
        "1 tensor, 24 elements: the file has its values in another order"
    ]


def test_two_that_stand_under_each_others_name_are_held_elsewhere(tmp_path: Path) -> None:
    result = reconcile_stored(tmp_path, {"a.weight": B, "b.weight": A})

    assert differing(result) == dict.fromkeys(KNOWN, ("differing", "content:held-elsewhere"))
    assert [finding.message for finding in result.findings if finding.id == "differing"] == [
        "2 tensors, 48 elements: the file has other values under these names, and the right ones under other names"
    ]


def test_one_changed_number_is_another_value_and_no_order(tmp_path: Path) -> None:
    changed = A.copy()
    changed[2, 3] += 1

    assert differing(reconcile_stored(tmp_path, {**KNOWN, "a.weight": changed})) == {
        "a.weight": ("differing", "name+content")
    }


def test_what_cannot_be_read_is_reported_as_unreadable(tmp_path: Path) -> None:
    proto = text_model(TEXT, KNOWN)
    del proto.graph.initializer[0]
    proto.graph.initializer.append(external("a.weight", [4, 6], location="gone.bin"))
    manifest = manifest_of(*parameters_of(KNOWN), values=KNOWN)
    result = reconcile(tmp_path, proto, manifest, content="full")

    assert differing(result) == {"a.weight": ("differing", "none:unreadable")}
    assert any("cannot be read, so its values are unknown" in found.message for found in result.findings)


@pytest.mark.parametrize(
    ("stored", "why"), [(A.reshape(-1)[::-1].reshape(4, 6).copy(), "reordered"), (noise(4, 6, seed=5), None)]
)
def test_the_document_says_why(stored: Array, why: str | None, tmp_path: Path) -> None:
    result = reconcile_stored(tmp_path, {**KNOWN, "a.weight": stored})
    document = json.loads(render_json(ReconcileReport(result, group_by(result.in_pytorch_terms()))))

    assert {each["name"]: each["why"] for each in document["parameters"]} == {
        "a.weight": why,
        "b.weight": None,
    }


TABLE = noise(4, 3)


def with_branch(row: Array) -> onnx.ModelProto:
    """Return a model that looks up a row or takes a stored row, which notes say was folded from the table."""
    proto = text_model(
        'g (int64[1] x, bool c) => (float[1,3] y) { seen = Gather("bag.weight", x) y = If(c) }',
        {"bag.weight": TABLE},
    )
    output = onnx.helper.make_tensor_value_info("row", onnx.TensorProto.FLOAT, row.shape)
    stored = onnx.numpy_helper.from_array(row, "row")
    then = onnx.helper.make_graph([], "then", [], [output], [stored])
    set_metadata(then.value_info.add(name="row"), {FOLDED_FROM: repr(["bag.weight", "dim"])})
    other = onnx.helper.make_tensor_value_info("given", onnx.TensorProto.FLOAT, [1, 3])
    otherwise = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["seen"], ["given"])], "else", [], [other]
    )
    branches = {"then_branch": then, "else_branch": otherwise}
    proto.graph.node[-1].attribute.extend(
        onnx.helper.make_attribute(name, graph) for name, graph in branches.items()
    )
    proto.producer_name = "pytorch"
    return proto


@pytest.mark.parametrize(
    ("row", "balanced"),
    [
        pytest.param(
            np.zeros((1, 3), np.float32), True, id="zeros in the shape of a row, as of an empty bag"
        ),
        pytest.param(np.full((1, 3), 0.5, np.float32), False, id="another number"),
        pytest.param(np.zeros((4, 3), np.float32), False, id="as many as the table has"),
    ],
)
def test_zeros_that_a_branch_gives_on_are_no_parameter(tmp_path: Path, row: Array, *, balanced: bool) -> None:
    proto = with_branch(row)
    without_notes = with_branch(row)
    for graph in (attribute.g for attribute in without_notes.graph.node[-1].attribute):
        for value in graph.value_info:
            del value.metadata_props[:]

    result = reconcile(tmp_path, proto, manifest_of(parameter("bag.weight", TABLE)))
    rewritten = reconcile(tmp_path, without_notes, manifest_of(parameter("bag.weight", TABLE)))

    assert (result.balanced, rewritten.balanced) == (balanced, balanced or row.size == TABLE.size)
    if balanced:
        assert bridge_of(result) == {"identical": (1, 12, 0, 0), "added": (1, 3, 0, 3)}


@pytest.mark.parametrize(
    ("gain", "bias", "balanced"), [(1, 0, True), (0, 0, False), (2, 0, False), (1, 1, False)]
)
def test_a_norm_without_a_gain_of_its_own_has_ones_and_zeros(
    tmp_path: Path, gain: float, bias: float, balanced: bool
) -> None:
    made = {"val_7": np.full(3, gain, "f4"), "val_8": np.full(3, bias, "f4")}
    proto = text_model(
        'g (float[2,2] x) => (float[2,3] y) { h = MatMul(x, "fc.weight") y = LayerNormalization(h, val_7, val_8) }',
        {"fc.weight": FC, **made},
    )
    proto = dynamo_like(proto, folded={"val_7": ["val_1"], "val_8": ["val_2"]})

    assert reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", FC))).balanced is balanced


def test_two_tensors_computed_from_one_parameter_hold_none_of_its_values(tmp_path: Path) -> None:
    gate = 1 / (1 + np.exp(-noise(16)))
    text = "g (float[16] x) => (float[16] y) { h = Mul(x, sigmoid) k = Mul(h, sub) y = Add(k, x) }"
    proto = text_model(text, {"sigmoid": gate, "sub": 1 - gate})
    proto = dynamo_like(proto, folded={"sigmoid": ["gate"], "sub": ["gate"]})

    result = reconcile(tmp_path, proto, manifest_of(parameter("gate", noise(16))), "full")

    assert not result.balanced
    assert [line.decided_by for line in result.entries] == ["name+content"] * 2


@pytest.mark.parametrize(("change", "is_balanced"), [(1.0, True), (1.5, False)])
def test_a_longer_table_that_is_cut_before_a_layer_is_no_parameter(
    tmp_path: Path, change: float, is_balanced: bool
) -> None:
    """As the relative positions of ESPnet's Conformer, whose length an exporter also reads."""
    turned = np.outer(np.arange(40, -41, -1), 1e4 ** (-np.arange(0, 8, 2) / 8))
    waves = np.stack([np.sin(turned), np.cos(turned)], axis=-1).reshape(81, 8).astype("f4")
    waves[3, 2] *= change
    stored = {
        "waves": waves,
        "w": noise(8, 4),
        "v": noise(4, 4, seed=1),
        "n": np.asarray([30]),
        "m": np.asarray([51]),
    }
    nodes = "t = Slice(waves, n, m) s = Shape(t) p = MatMul(t, w) k = MatMul(x, v) y = Add(k, p)"
    proto = text_model(f"g (float[21,4] x) => (float[21,4] y, int64[2] s) {{ {nodes} }}", stored)
    known = manifest_of(*parameters_of({"w": stored["w"], "v": stored["v"]}))

    assert reconcile(tmp_path, proto, known).balanced == is_balanced


@pytest.mark.parametrize(
    ("numbers", "line"),
    [
        ([0.125, 0.375, 0.625, 0.875], "added"),
        ([0, 0.5, 1], "unexplained"),
        ([0.125, 0.375, 0.625, 0.876], "unexplained"),
    ],
)
def test_evenly_spaced_numbers_are_positions_if_there_are_four(
    tmp_path: Path, numbers: list[float], line: str
) -> None:
    """As the centers of patches, and positions divided by a length."""
    even, fc = np.asarray(numbers, "f4"), noise(3, len(numbers))
    nodes = 'f = Floor(even) h = MatMul(x, "fc.weight") y = Mul(h, f)'
    size = len(numbers)
    proto = text_model(
        f"g (float[1,3] x) => (float[1,{size}] y) {{ {nodes} }}", {"even": even, "fc.weight": fc}
    )
    known = replace(manifest_of(parameter("fc.weight", fc)), lists_all_buffers=False)

    result = reconcile(tmp_path, proto, known)

    assert {entry.key[1]: entry.line.value for entry in result.entries}["even"] == line


EYE = np.eye(4, dtype="f4")
FACTOR = 'g (float[2,4] x) => (float[2,4] y) { h = MatMul(x, "fc.weight") y = MatMul(h, eye) }'


@pytest.mark.parametrize(
    ("factor", "is_balanced"),
    [
        (EYE, True),
        (EYE * 2, False),
        (EYE[::-1].copy(), False),
        (EYE + np.float32(1e-4), False),
        (np.diag(np.array([1, 1, 1, 0], "f4")), False),
    ],
    ids=["identity", "twice", "turned", "near", "one zero"],
)
def test_only_an_identity_matrix_as_a_factor_has_no_effect(tmp_path, factor, is_balanced):
    weight = noise(4, 4)
    result = reconcile(
        tmp_path,
        text_model(FACTOR, {"fc.weight": weight, "eye": factor}),
        manifest_of(parameter("fc.weight", weight)),
    )

    assert result.balanced == is_balanced
    if is_balanced:
        assert bridge_of(result) == {"identical": (1, 16, 0, 0), "added": (1, 16, 0, 16)}


def test_an_identity_matrix_in_the_place_of_a_parameter_is_unexpected(tmp_path):
    weights = {"fc.weight": noise(4, 4), "head.weight": noise(4, 4, seed=1)}
    proto = text_model(FACTOR, {"fc.weight": weights["fc.weight"], "eye": EYE})

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(weights)))

    assert lines_of(result)["head.weight"] == "missing"
    assert not result.balanced


@pytest.mark.parametrize("operator", ["Add", "Mul"])
def test_an_identity_matrix_that_is_added_or_multiplied_by_elements_is_no_neutral_factor(tmp_path, operator):
    weight = noise(4, 4)
    nodes = f'h = MatMul(x, "fc.weight") k = MatMul(h, eye) y = {operator}(k, eye)'
    text = f"g (float[4,4] x) => (float[4,4] y) {{ {nodes} }}"

    result = reconcile(
        tmp_path,
        text_model(text, {"fc.weight": weight, "eye": EYE}),
        manifest_of(parameter("fc.weight", weight)),
    )

    assert not result.balanced
