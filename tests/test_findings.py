"""What the user of a readable file is told."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from models import audit, external, finding_ids, ramp, raw, text_model
from onnx import helper, numpy_helper

from analyzer.ledger import Finding, Ledger, Severity
from analyzer.model import label

LINEAR = "g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }"


def finding(ledger: Ledger, wanted: str) -> Finding:
    (found,) = [f for f in ledger.findings if f.id == wanted]
    return found


def test_sound_model_has_no_findings(tmp_path):
    assert finding_ids(audit(tmp_path, text_model(LINEAR, {"w": ramp(3, 2)}))) == []


def test_model_of_nothing_is_empty(tmp_path):
    ledger = audit(tmp_path, text_model("g (float[1] x) => (float[1] x) { }"))

    assert finding_ids(ledger) == ["empty-model"]


def test_model_without_parameters_is_weightless(tmp_path):
    ledger = audit(tmp_path, text_model("g (float[1] x) => (float[1] y) { y = Relu(x) }"))

    assert finding(ledger, "weightless").severity is Severity.NOTE


def test_name_stored_twice_in_one_graph_is_told_and_both_are_counted(tmp_path):
    proto = text_model(LINEAR, {"w": ramp(3, 2)})
    proto.graph.initializer.append(numpy_helper.from_array(ramp(3, 2, start=50), "w"))

    ledger = audit(tmp_path, proto)

    assert finding(ledger, "duplicate-name").subjects == ("w",)
    assert (ledger.stored_elements, len(ledger.entries)) == (12, 2)


def test_one_name_in_two_graphs_is_no_duplicate(tmp_path):
    proto = text_model("""
        g (bool c, float[1,2] x) => (float[1,2] y) {
            y = If(c) <then_branch = t () => (float[1,2] a) <float[2,2] w = {1, 2, 3, 4}> { a = MatMul(x, w) },
                       else_branch = e () => (float[1,2] b) <float[2,2] w = {5, 6, 7, 8}> { b = MatMul(x, w) }>
        }
    """)

    assert "duplicate-name" not in finding_ids(audit(tmp_path, proto))


def test_copies_are_told_with_elements_bytes_and_names(tmp_path):
    proto = text_model(
        "g (float[1,3] x) => (float[1,3] y) { h = MatMul(x, a) k = MatMul(h, b) y = MatMul(k, t) }",
        {"a": ramp(3, 3), "b": ramp(3, 3), "t": ramp(3, 3).T.copy()},
    )

    ledger = audit(tmp_path, proto)

    assert finding(ledger, "duplicate-content") == Finding(
        "duplicate-content",
        Severity.WARNING,
        "9 elements (36 bytes) are stored again, as it stands",
        ("b = a",),
    )
    assert finding(ledger, "transposed-copy").subjects == ("t = a",)


def test_initializer_that_nothing_reads_is_told_with_its_bytes(tmp_path):
    ledger = audit(tmp_path, text_model(LINEAR, {"w": ramp(3, 2), "idle": ramp(5)}))

    found = finding(ledger, "unused-initializer")
    assert found.subjects == ("idle",)
    assert found.message.startswith("20 bytes")


def test_initializer_that_is_an_output_is_not_unused(tmp_path):
    proto = text_model(
        "g (float[1,3] x) => (float[1,2] y, float[5] out) { y = MatMul(x, w) }",
        {"w": ramp(3, 2), "out": ramp(5)},
    )

    assert "unused-initializer" not in finding_ids(audit(tmp_path, proto))


def test_initializer_read_only_in_a_nested_graph_is_not_unused(tmp_path):
    proto = text_model(
        """
        g (bool c, float[1,3] x) => (float[1,2] y) {
            y = If(c) <then_branch = t () => (float[1,2] a) { a = MatMul(x, w) },
                       else_branch = e () => (float[1,2] b) { b = MatMul(x, w) }>
        }
        """,
        {"w": ramp(3, 2)},
    )

    assert finding_ids(audit(tmp_path, proto)) == []


def test_weights_in_constant_nodes_are_told(tmp_path):
    proto = text_model("""
        g (float[1,3] x) => (float[1,2] y) { w = Constant<value = float[3,2] {1,2,3,4,5,6}>() y = MatMul(x, w) }
    """)

    found = finding(audit(tmp_path, proto), "constant-weights")

    assert found.subjects == ("w",)
    assert found.message.startswith("6 parameters are in Constant nodes")


def test_weights_in_a_list_of_a_constant_node_are_told_too(tmp_path):
    proto = text_model("""
        g (float[1,3] x) => (float[3] y) { w = Constant<value_floats = [1.0, 2.0, 3.0]>() y = MatMul(x, w) }
    """)

    assert "constant-weights" in finding_ids(audit(tmp_path, proto))


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"location": "absent.bin"}, "external-missing"),
        ({"location": "w.bin"}, "external-short"),
        ({"location": "../w.bin"}, "external-escapes"),
    ],
)
def test_external_data_that_cannot_be_had_is_an_error_with_its_tensors(tmp_path, fields, wanted):
    (tmp_path / "w.bin").write_bytes(bytes(5))
    proto = text_model(LINEAR)
    proto.graph.initializer.append(external("w", [3, 2], **fields))

    found = finding(audit(tmp_path, proto), wanted)

    assert (found.severity, found.subjects) == (Severity.ERROR, ("w",))


def test_tensors_that_miss_one_file_are_one_finding(tmp_path):
    proto = text_model(LINEAR)
    proto.graph.initializer.extend(external(name, [2], location="absent.bin") for name in ("w", "v"))

    found = finding(audit(tmp_path, proto), "external-missing")

    assert found.subjects == ("v", "w")
    assert found.message.endswith("(2 tensors)")


def test_payload_that_does_not_fit_its_dims_is_an_error(tmp_path):
    proto = text_model(LINEAR)
    proto.graph.initializer.append(raw("w", [3, 2], 1, bytes(20)))

    assert finding(audit(tmp_path, proto), "payload-mismatch").severity is Severity.ERROR


def test_findings_are_sorted_and_subjects_too(tmp_path):
    weights = {name: ramp(2) for name in ("z", "a", "m")}

    ledger = audit(tmp_path, text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }", weights))

    assert finding_ids(ledger) == sorted(finding_ids(ledger))
    assert finding(ledger, "unused-initializer").subjects == ("a", "m", "z")


def test_label_names_the_graph_of_what_is_not_in_the_main_one():
    assert label(((), "w")) == "w"
    assert label((("Loop_2.body", "If_0.then_branch"), "w")) == "Loop_2.body/If_0.then_branch/w"


def test_tensor_of_an_attribute_is_no_constant_weight(tmp_path):
    value = helper.make_tensor("", 1, [1], np.zeros(1, "f4"))
    node = helper.make_node("ConstantOfShape", ["s"], ["y"], value=value)

    ledger = audit(tmp_path, helper.make_model(helper.make_graph([node], "g", [], [])))

    assert "constant-weights" not in finding_ids(ledger)


def test_model_with_a_training_graph_alone_is_read(tmp_path):
    proto = onnx.ModelProto(ir_version=8)
    proto.training_info.add().initialization.initializer.append(numpy_helper.from_array(ramp(2), "w"))

    assert audit(tmp_path, proto).stored_elements == 2
