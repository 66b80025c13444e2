"""The first part of a report on a model: inputs and outputs, operators, quantization, and wasted bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import audit, noise, packed, ramp, text_model

import analyzer
from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.account.ledger import Ledger
from analyzer.account.summary import count_operators, count_quantized, count_wasted


def document_of(ledger: Ledger) -> dict[str, Any]:
    return analyzer.to_document(analyzer.Inspection(ledger, group_by(ledger)))


def test_inputs_and_outputs_have_a_type_and_a_shape(tmp_path: Path) -> None:
    text = """g (int64[batch,4] ids, float x) => (float[batch,4,2] y, bool b) {
        y = Gather(w, ids) b = Cast <to = 9> (x)
    }"""
    proto = text_model(text, {"w": ramp(9, 2)})
    model = document_of(audit(tmp_path, proto))["model"]

    assert model["inputs"] == [
        {"name": "ids", "dtype": "INT64", "shape": ["batch", 4]},
        {"name": "x", "dtype": "FLOAT", "shape": []},
    ]
    assert model["outputs"] == [
        {"name": "y", "dtype": "FLOAT", "shape": ["batch", 4, 2]},
        {"name": "b", "dtype": "BOOL", "shape": []},
    ]


def test_inputs_of_an_artifact_stand_behind_their_component(tmp_path: Path) -> None:
    for name in ("encoder", "decoder"):
        proto = text_model('g (float[1,3] x) => (float[1,3] y) { y = MatMul(x, "w") }', {"w": ramp(3, 3)})
        onnx.save(proto, tmp_path / f"{name}.onnx")
    document = document_of(audit_model(tmp_path, artifact=True))

    assert [value["name"] for value in document["model"]["inputs"]] == ["decoder/x", "encoder/x"]


def test_a_weight_is_booked_on_the_operator_that_computes_with_it(tmp_path: Path) -> None:
    text = """g (float[2,4] x) => (float[2,3] y) {
        t = Transpose <perm = [1, 0]> (w) h = MatMul(x, t) a = Add(h, b) c = Cast <to = 1> ("n.weight") y = Mul(a, c)
    }"""
    stored = {"w": ramp(3, 4), "b": ramp(3), "n.weight": noise(3).astype("f2")}
    ledger = audit(tmp_path, text_model(text, stored))
    rows = {row.op_type: (row.nodes, row.parameters) for row in count_operators(ledger)}

    assert rows == {"Transpose": (1, 0), "MatMul": (1, 12), "Add": (1, 3), "Cast": (1, 0), "Mul": (1, 3)}
    assert sum(parameters for _, parameters in rows.values()) == ledger.parameters


def test_nodes_of_branches_and_functions_count_and_what_nobody_reads_has_a_row(tmp_path: Path) -> None:
    text = """g (float[1,2] x, bool t) => (float[1,2] y) {
        y = If(t) <
            then_branch = a () => (float[1,2] p) { p = MatMul(x, w) },
            else_branch = b () => (float[1,2] q) { q = Relu(x) }
        >
    }"""
    ledger = audit(tmp_path, text_model(text, {"w": ramp(2, 2), "layer.weight": noise(5, 5)}))
    rows = count_operators(ledger)

    assert {row.op_type: row.nodes for row in rows} == {"If": 1, "MatMul": 1, "Relu": 1, "": 0}
    assert sum(row.nodes for row in rows) == document_of(ledger)["model"]["nodes"]
    assert sum(row.parameters for row in rows) == ledger.parameters == 29


MICROSOFT = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'


def codes(scheme: str) -> onnx.ModelProto:
    if scheme == "block":
        stored = dict(zip(("w", "s"), packed("w", noise(32, 16)).values(), strict=False))
        node = "com.microsoft.MatMulNBits <K = 32, N = 16, bits = 4, block_size = 16> (x, w, s)"
        return text_model(f"{MICROSOFT} g (float[1,32] x) => (float[1,16] y) {{ y = {node} }}", stored)
    stored = {"w": noise(4, 4).astype("i1"), "s": np.array(0.5, "f4"), "z": np.array(0, "i1")}
    steps = {
        "qdq": "d = DequantizeLinear(w, s, z) y = MatMul(x, d)",
        "dynamic": "c, cs, cz = DynamicQuantizeLinear(x) i = MatMulInteger(c, w, cz, z) f = Cast <to = 1> (i) "
        "m = Mul(cs, s) y = Mul(f, m)",
        "qoperator": "q = QuantizeLinear(x, s, z) r = QLinearMatMul(q, s, z, w, s, z, s, z) "
        "y = DequantizeLinear(r, s, z)",
    }
    stored["w"] = np.arange(-8, 8, dtype="i1").reshape(4, 4)
    return text_model(f"{MICROSOFT} g (float[1,4] x) => (float[1,4] y) {{ {steps[scheme]} }}", stored)


@pytest.mark.parametrize(
    ("scheme", "bits", "block", "parameters"),
    [("block", 4, 16, 512), ("qdq", 8, None, 16), ("dynamic", 8, None, 16), ("qoperator", 8, None, 16)],
)
def test_quantized_weights_are_recognized_by_how_they_are_read(
    scheme: str, bits: int, block: int | None, parameters: int, tmp_path: Path
) -> None:
    (row,) = count_quantized(audit(tmp_path, codes(scheme)))

    assert (row.scheme, row.bits, row.block_size, row.tensors, row.parameters) == (
        scheme,
        bits,
        block,
        1,
        parameters,
    )


def test_codes_that_are_looked_up_are_decoded_after_it(tmp_path: Path) -> None:
    """onnxruntime's dynamic quantization leaves embeddings in this form."""
    stored = {
        "w": np.arange(-8, 8, dtype="i1").reshape(4, 4),
        "s": np.array(0.5, "f4"),
        "z": np.array(0, "i1"),
    }
    body = "c = Gather(w, i) y = DequantizeLinear(c, s, z)"
    (row,) = count_quantized(
        audit(tmp_path, text_model(f"g (int64[2] i) => (float[2,4] y) {{ {body} }}", stored))
    )

    assert (row.scheme, row.bits, row.parameters) == ("qdq", 8, 16)


def test_what_is_not_quantized_has_no_row(tmp_path: Path) -> None:
    proto = text_model('g (float[1,3] x) => (float[1,3] y) { y = MatMul(x, "w") }', {"w": ramp(3, 3)})

    assert count_quantized(audit(tmp_path, proto)) == ()


def test_waste_is_counted_once(tmp_path: Path) -> None:
    """An unread copy is wasted for two reasons, but its bytes count once."""
    text = "g (float[1,8] x) => (float[1,8] y) { h = MatMul(x, w) a = MatMul(h, twin) y = Relu(a) }"
    weight = noise(8, 8)
    ledger = audit(
        tmp_path, text_model(text, {"w": weight, "twin": weight, "unread": weight, "alone": noise(4, seed=3)})
    )

    assert count_wasted(ledger) == 2 * weight.nbytes + 16
    assert document_of(ledger)["totals"]["wasted_bytes"] == count_wasted(ledger)


def test_a_comparison_says_the_change_too(tmp_path: Path) -> None:
    sides = []
    for name, size in (("a", 3), ("b", 5)):
        (tmp_path / name).mkdir()
        proto = text_model('g (float[1,3] x) => (float[1,n] y) { y = MatMul(x, "w") }', {"w": ramp(3, size)})
        sides.append(audit(tmp_path / name, proto))
    pair = analyzer.to_document(analyzer.compare_ledgers(*sides, *map(group_by, sides)))["totals"][
        "parameters"
    ]

    assert pair == {"a": 9, "b": 15, "difference": -6, "change": 6, "ratio": 0.6}


def test_a_weight_whose_shape_is_taken_first_is_booked_on_what_computes_with_it(tmp_path):
    proto = text_model(
        "g (float[1,3,8,8] x) => (float[1,4,6,6] y, int64[4] z) { z = Shape(w) y = Conv(x, w) }",
        {"w": ramp(4, 3, 3, 3)},
    )
    ledger = audit(tmp_path, proto)

    assert {row.op_type: row.parameters for row in count_operators(ledger)} == {"Conv": 108, "Shape": 0}
    assert list(ledger.blocks.roles.values()) == ["convolution"]
