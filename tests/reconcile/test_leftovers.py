"""Lines of what no other rule settled."""

from __future__ import annotations

import numpy as np
import pytest
from models import (
    bridge_of,
    buffer,
    lines_of,
    manifest_of,
    parameter,
    parameters_of,
    ramp,
    reconcile,
    text_model,
)

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
