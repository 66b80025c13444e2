"""Tensors stored again are found by content, never by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import audit, dynamo_like, entry, external, ramp, save, text_model
from onnx import TensorProto, helper, numpy_helper

from analyzer.account.audit import audit_model
from analyzer.account.ledger import Ledger


def matmuls(weights: dict[str, np.ndarray], ops: tuple[str, ...] = ()):
    """Return a chain of nodes that each read one weight."""
    names = list(weights)
    nodes = [
        helper.make_node(op, [f"h{i}", name], [f"h{i + 1}"], name=f"n{i}")
        for i, (name, op) in enumerate(zip(names, ops or ("MatMul",) * len(names), strict=True))
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("h0", 1, [2, 2])], [], tensors)
    return helper.make_model(graph)


def copied(ledger: Ledger) -> dict[str, tuple[str, str]]:
    """Return (original, rule) of every copy, by name."""
    return {e.tensor.name: (e.copy_of[1], e.decided_by) for e in ledger.entries if e.copy_of is not None}


def test_equal_content_is_a_copy_of_the_first_and_counts_no_parameters(tmp_path):
    ledger = audit(tmp_path, matmuls({"a": ramp(3, 3), "b": ramp(3, 3)}))

    assert copied(ledger) == {"b": ("a", "content:copy")}
    assert (ledger.parameters, ledger.stored_elements) == (9, 18)


@pytest.mark.parametrize("shape", [(2, 5), (4, 4)])
def test_transposed_content_is_a_transposed_copy(tmp_path, shape):
    ledger = audit(tmp_path, matmuls({"a": ramp(*shape), "b": np.ascontiguousarray(ramp(*shape).T)}))

    assert copied(ledger) == {"b": ("a", "content:transposed-copy")}
    assert ledger.parameters == shape[0] * shape[1]


def test_symmetric_content_is_a_copy_as_it_stands(tmp_path):
    symmetric = ramp(3, 3) + ramp(3, 3).T

    ledger = audit(tmp_path, matmuls({"a": symmetric, "b": symmetric}))

    assert copied(ledger) == {"b": ("a", "content:copy")}


def test_third_copy_is_one_of_the_original(tmp_path):
    ledger = audit(tmp_path, matmuls({"a": ramp(2, 3), "b": ramp(2, 3).T.copy(), "c": ramp(2, 3)}))

    assert copied(ledger) == {"b": ("a", "content:transposed-copy"), "c": ("a", "content:copy")}


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
def test_constant_filled_tensors_are_never_copies(tmp_path, value):
    filled = np.full((3, 3), value, "f4")

    ledger = audit(tmp_path, matmuls({"a": filled, "b": filled.copy()}))

    assert copied(ledger) == {}
    assert ledger.parameters == 18


def test_two_tensors_with_pytorch_names_of_their_own_are_two_parameters(tmp_path):
    ledger = audit(tmp_path, matmuls({"a.weight": ramp(3, 3), "b.weight": ramp(3, 3)}))

    assert copied(ledger) == {}
    assert ledger.parameters == 18


def test_named_tensor_is_the_original_wherever_it_stands(tmp_path):
    ledger = audit(tmp_path, matmuls({"onnx_7": ramp(2, 3).T.copy(), "fc.weight": ramp(2, 3)}))

    assert copied(ledger) == {"onnx_7": ("fc.weight", "content:transposed-copy")}


def test_two_tensors_folded_from_one_parameter_are_copies(tmp_path):
    proto = dynamo_like(
        matmuls({"val_1": ramp(3, 3), "val_2": ramp(3, 3)}),
        folded={"val_1": ["fc.weight"], "val_2": ["fc.weight"]},
    )

    ledger = audit(tmp_path, proto)

    assert copied(ledger) == {"val_2": ("val_1", "content:copy")}
    assert entry(ledger, "val_2").sources == ("fc.weight",)


@pytest.mark.parametrize(
    "other",
    [ramp(3, 3).astype("i4"), ramp(9, 1), ramp(3, 3) + np.float32(1), ramp(3, 3)[::-1].copy()],
    ids=["dtype", "shape", "values", "order"],
)
def test_what_differs_in_dtype_shape_or_any_value_is_no_copy(tmp_path, other):
    assert copied(audit(tmp_path, matmuls({"a": ramp(3, 3), "b": other}))) == {}


def test_one_element_between_the_samples_makes_a_difference(tmp_path):
    changed = ramp(100, 100)
    changed[0, 1] = -1

    assert copied(audit(tmp_path, matmuls({"a": ramp(100, 100), "b": changed}))) == {}


def test_whole_contents_are_compared(tmp_path):
    last = ramp(50, 4)
    last[49, 2] = -1

    ledger = audit(
        tmp_path, matmuls({"a": ramp(50, 4), "b": ramp(4, 50, start=0), "c": ramp(50, 4), "d": last})
    )

    assert copied(ledger) == {"c": ("a", "content:copy")}


def test_zero_and_negative_zero_are_different_bytes(tmp_path):
    a, b = ramp(2, 2, start=0), ramp(2, 2, start=0)
    b[0, 0] = -0.0

    assert copied(audit(tmp_path, matmuls({"a": a, "b": b}))) == {}


def test_buffers_and_constants_are_not_looked_at(tmp_path):
    ledger = audit(tmp_path, matmuls({"a.running_mean": ramp(3), "b": ramp(3)}, ops=("Add", "Relu")))

    assert copied(ledger) == {}


def test_two_tensors_on_one_external_range_are_copies(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(ramp(3, 3).tobytes())
    proto = matmuls({"a": ramp(1), "b": ramp(1)})
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(
        [external("a", [3, 3], location="w.bin"), external("b", [3, 3], location="w.bin")]
    )

    ledger = audit_model(save(tmp_path, proto))

    assert copied(ledger) == {"b": ("a", "content:copy")}
    assert (ledger.parameters, ledger.stored_nbytes) == (9, 72)


def test_copy_in_a_nested_graph_knows_where_its_original_is(tmp_path):
    proto = text_model("""
        g (bool c, float[1,2] x) => (float[1,2] y) <float[2,2] w = {1, 2, 3, 4}> {
            h = MatMul(x, w)
            y = If(c) <then_branch = t () => (float[1,2] a) <float[2,2] w = {1, 2, 3, 4}> { a = MatMul(h, w) },
                       else_branch = e () => (float[1,2] b) <float[2,2] w = {5, 6, 7, 8}> { b = MatMul(h, w) }>
        }
    """)

    ledger = audit(tmp_path, proto)

    assert entry(ledger, "w", "If_1.then_branch").copy_of == ((), "w")
    assert entry(ledger, "w", "If_1.else_branch").copy_of is None


def test_progress_ends_at_its_total(tmp_path):
    steps: list[tuple[int, int]] = []

    audit_model(
        save(tmp_path, matmuls({"a": ramp(3, 3), "b": ramp(3, 3)})), progress=lambda *step: steps.append(step)
    )

    assert steps[:2] == [(1, 2), (2, 2)]
    assert steps[-1] == (2, 2)  # from the next stage
    assert all(done <= total for done, total in steps)


def test_scalars_are_no_copies(tmp_path):
    assert copied(audit(tmp_path, matmuls({"a.weight": ramp(), "b": ramp()}))) == {}


def quantized(**tensors: onnx.TensorProto) -> onnx.ModelProto:
    proto = text_model("""
        g (float[1,3] x, float s) => (float[1,3] y) {
            a = DequantizeLinear(v, s) b = DequantizeLinear(w, s) h = MatMul(x, a) y = MatMul(h, b)
        }
    """)
    for name, tensor in tensors.items():
        tensor.name = name
        proto.graph.initializer.append(tensor)
    return proto


@pytest.mark.parametrize("is_raw", [False, True])
def test_packed_four_bit_weights_of_equal_bytes_are_copies(tmp_path, is_raw):
    listed = helper.make_tensor("", TensorProto.INT4, [3, 3], [1, 2, 3, 4, 5, 6, 7, -8, -1])
    packed = np.array(listed.int32_data, dtype=np.uint8).tobytes()
    other = helper.make_tensor("", TensorProto.INT4, [3, 3], packed, raw=True) if is_raw else listed

    assert copied(audit(tmp_path, quantized(v=listed, w=other))) == {"w": ("v", "content:copy")}


def test_equal_content_in_another_encoding_is_a_copy(tmp_path):
    (tmp_path / "w.bin").write_bytes(ramp(3, 3).tobytes())
    proto = matmuls({"a": ramp(3, 3)}, ops=("MatMul",))
    proto.graph.node.extend(
        [helper.make_node("MatMul", ["h0", "b"], ["b1"]), helper.make_node("MatMul", ["h0", "c"], ["c1"])]
    )
    proto.graph.initializer.append(helper.make_tensor("b", TensorProto.FLOAT, [3, 3], ramp(3, 3).reshape(-1)))
    proto.graph.initializer.append(external("c", [3, 3], location="w.bin"))

    assert copied(audit(tmp_path, proto)) == {"b": ("a", "content:copy"), "c": ("a", "content:copy")}


def test_copies_in_constant_nodes_are_found(tmp_path):
    proto = matmuls({"a": ramp(3, 3)})
    proto.graph.node.insert(
        0, helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(ramp(3, 3)))
    )
    proto.graph.node.append(helper.make_node("MatMul", ["h1", "b"], ["h2"]))

    assert copied(audit(tmp_path, proto)) == {"b": ("a", "content:copy")}


def test_tensors_whose_elements_cannot_be_had_are_no_copies(tmp_path):
    proto = matmuls({"a": ramp(3, 3), "b": ramp(3, 3)})
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(external(name, [3, 3], location="absent.bin") for name in "ab")

    ledger = audit(tmp_path, proto)

    assert (copied(ledger), ledger.parameters) == ({}, 18)


def test_nothing_is_compared_where_contents_are_not_looked_at(tmp_path):
    path = save(tmp_path, matmuls({"a": ramp(3, 3), "b": ramp(3, 3)}))

    ledger = audit_model(path, content="none")

    assert (copied(ledger), ledger.parameters, ledger.content) == ({}, 18, "none")


@pytest.mark.parametrize("content", ["sampled", "full"])
def test_copies_are_compared_whole_however_far_contents_are_looked_at(tmp_path, content):
    path = save(tmp_path, matmuls({"a": ramp(200, 200), "b": ramp(200, 200)}))

    assert copied(audit_model(path, content=content)) == {"b": ("a", "content:copy")}


# tables that an exporter gathered


def folded_with(table: np.ndarray, sources: list[str]) -> onnx.ModelProto:
    proto = text_model("g (float[2,3] x) => (float[2,3] y) { y = Add(x, expand) }", {"expand": table})
    return dynamo_like(proto, folded={"expand": sources})


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (np.repeat(ramp(1, 1, 8), 4, axis=0), 8),
        (ramp(6, 8)[[0, 1, 1, 5, 0]], 24),
        (ramp(2, 3, 8), 48),
        (np.zeros((4, 8), "f4"), 32),
        (np.concatenate([np.zeros((2, 8), "f4"), ramp(1, 8), ramp(1, 8)]), 24),
        (np.tile(ramp(8), 3), 24),
    ],
    ids=["repeated", "gathered", "as it was", "zeros", "zeros and a row", "a vector"],
)
def test_rows_of_a_table_count_once_however_often_they_are_stored(tmp_path, table, expected):
    ledger = audit(tmp_path, folded_with(table, ["cls_token.weight", "val_3"]))

    found = entry(ledger, "expand")
    assert (found.parameters, found.decided_by) == (expected, "provenance:folded-with")
    assert found.copy_of is None


def test_rows_that_a_parameter_has_itself_all_count(tmp_path):
    table = np.repeat(ramp(1, 8), 4, axis=0)

    ledger = audit(tmp_path, folded_with(table, ["cls_token.weight"]))

    assert (entry(ledger, "expand").decided_by, ledger.parameters) == ("provenance:folded-from", 32)


def test_rows_are_not_looked_at_where_contents_are_not(tmp_path):
    proto = folded_with(np.repeat(ramp(1, 8), 4, axis=0), ["cls_token.weight", "val_3"])

    assert audit_model(save(tmp_path, proto), content="none").parameters == 32


@pytest.mark.parametrize("is_list", [True, False])
def test_a_flat_copy_of_a_matrix_is_a_copy(tmp_path: Path, is_list: bool) -> None:
    matrix = np.random.default_rng(0).standard_normal((8, 8)).astype("f4")
    numbers = ", ".join(repr(float(number)) for number in matrix.reshape(-1))
    kind = f"value_floats = [{numbers}]" if is_list else f"value = float[64] {{ {numbers} }}"
    text = f"""g (float[2,8] x) => (float[2,8] y) {{
        h = MatMul(x, w)
        flat = Constant <{kind}> ()
        v = Reshape(flat, shape)
        y = MatMul(h, v)
    }}"""

    ledger = audit(tmp_path, text_model(text, {"w": matrix, "shape": np.array([8, 8])}))

    assert copied(ledger) == {"flat": ("w", "content:copy")}
    assert ledger.parameters == 64


def test_a_vector_with_other_numbers_than_a_matrix_is_no_copy(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).standard_normal((8, 8)).astype("f4")
    text = """g (float[2,8] x) => (float[2,8] y) {
        h = MatMul(x, w)
        v = Reshape(flat, shape)
        y = MatMul(h, v)
    }"""
    stored = {"w": matrix, "flat": matrix.T.reshape(-1), "shape": np.array([8, 8])}

    assert copied(audit(tmp_path, text_model(text, stored))) == {}
