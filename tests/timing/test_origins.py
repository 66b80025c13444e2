"""The graph that ran and the file's graph -> nodes that each kernel computes."""

from __future__ import annotations

from pathlib import Path

import models
import pytest

from analyzer.model import Model
from analyzer.read import read_model
from analyzer.timing.attribution import (
    BETWEEN,
    NAMED,
    NONE,
    SAME,
    VALUES,
    Origin,
    find_origins,
)

LAYER = """
g (float[2,3] x) => (float[2,3] z) <float[3,3] w = {1,2,3,4,5,6,7,8,9}, float[3] b = {1,2,3}>
{
    [product] a = MatMul(x, w)
    [bias] c = Add(a, b)
    [act] z = Relu(c)
}
"""


def read(folder: Path, text: str, name: str) -> Model:
    return read_model(models.save(folder, models.text_model(text), f"{name}.onnx"))


def origins(folder: Path, file: str, ran: str) -> list[tuple[list[str], str]]:
    """Return the names of the file's nodes that each executed node stands for, and the rule."""
    of_file, of_ran = read(folder, file, "file"), read(folder, ran, "ran")
    nodes = of_file.graphs[0].nodes
    return [([nodes[n].name for n in o.nodes], o.rule) for o in find_origins(of_file, of_ran)]


def test_a_node_that_is_as_it_was_stands_for_itself(tmp_path: Path) -> None:
    assert origins(tmp_path, LAYER, LAYER) == [(["product"], SAME), (["bias"], SAME), (["act"], SAME)]


def test_a_fused_node_stands_for_all_between_what_it_reads_and_what_it_gives(tmp_path: Path) -> None:
    ran = """g (float[2,3] x) => (float[2,3] z) <float[3,3] w, float[3] b>
    { [anything] z = com.microsoft.FusedGemm(x, w, b) }"""

    assert origins(tmp_path, LAYER, ran) == [(["product", "bias", "act"], VALUES)]


def test_two_fused_nodes_share_nothing(tmp_path: Path) -> None:
    ran = """g (float[2,3] x) => (float[2,3] z) <float[3,3] w, float[3] b>
    {
        [one] c = Gemm(x, w, b)
        [two] z = com.microsoft.QuickGelu(c)
    }"""

    assert origins(tmp_path, LAYER, ran) == [(["product", "bias"], VALUES), (["act"], VALUES)]


def test_what_was_dropped_before_a_node_does_not_count_with_it(tmp_path: Path) -> None:
    file = """g (float[2,3] x) => (float[2,3] z) <float[3,3] w, int64[1] zero, int64[1] end>
    { [cut] a = Slice(x, zero, end) [copy] b = Identity(a) [head] z = MatMul(b, w) }"""
    ran = "g (float[2,3] x) => (float[2,3] z) <float[3,3] w> { [head] z = MatMul(x, w) }"

    assert origins(tmp_path, file, ran) == [(["head"], SAME)]


def test_what_computes_nothing_does_not_count_beside_others(tmp_path: Path) -> None:
    file = """g (float[2,3] x) => (float[2,3] z) <float[3] s>
    { [sum] a = Add(x, x) [drop] b = Dropout(a) [norm] z = LayerNormalization(b, s) }"""
    ran = """g (float[2,3] x) => (float[2,3] z) <float[3] s>
    { [skip] z = com.microsoft.SkipLayerNormalization(x, x, s) }"""

    assert origins(tmp_path, file, ran) == [(["sum", "norm"], VALUES)]


def test_a_product_has_its_factor_and_its_turned_operands_for_nothing(tmp_path: Path) -> None:
    file = """g (float[2,3] x, float[2,3] y) => (float[2,2] z) <float s = {8}>
    { [scale] a = Div(x, s) [turn] b = Transpose<perm=[1,0]>(y) [product] z = MatMul(a, b) }"""
    ran = "g (float[2,3] x, float[2,3] y) => (float[2,2] z) { [f] z = com.microsoft.FusedMatMul(x, y) }"

    assert origins(tmp_path, file, ran) == [(["product"], VALUES)]


def test_what_quantizing_put_around_a_product_is_the_product_s(tmp_path: Path) -> None:
    file = """g (float[2,3] x) => (float[2,3] z) <uint8[3,3] w, uint8 p, float s, float[3] b>
    {
        [quantize] q, scale, point = DynamicQuantizeLinear(x)
        [scales] both = Mul(scale, s)
        [product] i = MatMulInteger(q, w, point, p)
        [float] f = Cast<to=1>(i)
        [scaled] d = Mul(f, both)
        [bias] z = Add(d, b)
    }"""
    ran = """g (float[2,3] x) => (float[2,3] z) <uint8[3,3] w, uint8 p, float s, float[3] b>
    { [f] z = com.microsoft.DynamicQuantizeMatMul(x, w, s, p, b) }"""

    assert origins(tmp_path, file, ran) == [(["product", "bias"], VALUES)]


def test_what_only_prepares_weights_belongs_to_no_kernel(tmp_path: Path) -> None:
    file = """g (float[2,3] x) => (float[2,3] z) <float[3,3] w>
    {
        [turn] t = Transpose<perm=[1,0]>(w)
        [product] a = MatMul(x, t)
        [act] z = Relu(a)
    }"""
    ran = "g (float[2,3] x) => (float[2,3] z) <float[3,3] t> { [f] z = com.microsoft.FusedMatMul(x, t) }"

    assert origins(tmp_path, file, ran) == [(["product", "act"], VALUES)]


def test_the_path_around_a_fused_node_is_not_its_own(tmp_path: Path) -> None:
    file = """g (float[2,3] x) => (float[2,3] z) <float[3] s>
    {
        [one] a = Relu(x)
        [two] b = Sigmoid(a)
        [add] c = Add(b, x)
        [norm] z = Mul(c, s)
    }"""
    ran = """g (float[2,3] x) => (float[2,3] z) <float[3] s>
    {
        [one] a = Relu(x)
        [two] b = Sigmoid(a)
        [skip] z = com.microsoft.SkipLayerNormalization(b, x, s)
    }"""

    assert origins(tmp_path, file, ran)[2] == (["add", "norm"], VALUES)


CONVOLUTIONS = """
g (float[1,3,8,8] x) => (float[1,3,8,8] z) <float[3,3,1,1] v, float[3,3,1,1] w>
{
    [first] a = Conv(x, v)
    [first_act] b = Relu(a)
    [second] c = Conv(b, w)
    [sum] d = Add(c, b)
    [last_act] e = Relu(d)
    [third] f = Conv(e, w)
    [end] z = GlobalAveragePool(f)
}
"""


def test_convolutions_in_another_layout_are_known_by_the_value_that_they_are_named_for(
    tmp_path: Path,
) -> None:
    ran = """
    g (float[1,3,8,8] x) => (float[1,3,8,8] z) <float[3,3,1,1] reorder_1, float[3,3,1,1] reorder_2>
    {
        [b_nchwc] n1 = com.microsoft.nchwc.Conv(x, reorder_1)
        [c_nchwc] n2 = com.microsoft.nchwc.Conv(n1, reorder_2, n1)
        [f_nchwc] n3 = com.microsoft.nchwc.Conv(n2, reorder_2)
        [ReorderOutput] f = com.microsoft.nchwc.ReorderOutput(n3)
        [end] z = GlobalAveragePool(f)
    }"""

    assert origins(tmp_path, CONVOLUTIONS, ran) == [
        (["first", "first_act"], NAMED),
        (["second", "sum", "last_act"], NAMED),
        (["third"], NAMED),
        (["third"], BETWEEN),
        (["end"], SAME),
    ]


def test_a_convolution_s_name_is_that_of_its_value_before_that_of_a_node(tmp_path: Path) -> None:
    file = """g (float[1,3,8,8] x) => (float[1,3,8,8] z) <float[3,3,1,1] v, float[3,3,1,1] w>
    { [b] a = Conv(x, v) [d] b = Relu(a) [z] c = Conv(b, w) [a] d = Relu(c) [end] z = Neg(d) }"""
    ran = """g (float[1,3,8,8] x) => (float[1,3,8,8] z) <float[3,3,1,1] r, float[3,3,1,1] s>
    {
        [b_nchwc] n1 = com.microsoft.nchwc.Conv(x, r)
        [d_nchwc] n2 = com.microsoft.nchwc.Conv(n1, s)
        [ReorderOutput] d = com.microsoft.nchwc.ReorderOutput(n2)
        [end] z = Neg(d)
    }"""

    assert [nodes for nodes, _ in origins(tmp_path, file, ran)[:2]] == [["b", "d"], ["z", "a"]]


def test_a_value_that_is_only_turned_back_was_computed_before(tmp_path: Path) -> None:
    file = """g (float[1,3,8,8] x) => (float[1,3,8,8] z) <float[3,3,1,1] v>
    { [product] a = Conv(x, v) [sum] b = Add(a, x) [act] z = Relu(b) }"""
    ran = """g (float[1,3,8,8] x) => (float[1,3,8,8] z) <float[3,3,1,1] r>
    {
        [a_nchwc] n1 = com.microsoft.nchwc.Conv(x, r, x)
        [ReorderOutput] z = com.microsoft.nchwc.ReorderOutput(n1)
    }"""

    assert origins(tmp_path, file, ran) == [(["product", "sum", "act"], NAMED), (["act"], BETWEEN)]


def test_a_number_behind_a_name_is_another_name(tmp_path: Path) -> None:
    file = """g (float[2] x) => (float[2] z)
    { [relu_1] a = Relu(x) [relu_12] b = Relu(a) [relu] z = Relu(b) }"""
    ran = """g (float[2] x) => (float[2] z)
    { [relu_12_fused] q = Neg(x) [relu_123] r = Neg(q) [relu] z = Neg(r) }"""

    found = origins(tmp_path, file, ran)

    assert found[0] == (["relu_12"], NAMED)
    assert found[1][1] != NAMED or found[1][0] != ["relu_12"]


def test_a_name_that_another_node_has_already_gives_way_to_a_shorter_one(tmp_path: Path) -> None:
    file = """g (float[2] x) => (float[2] z)
    { [one] relu = Relu(x) [relu_nchwc] b = Exp(relu) [last] z = Neg(b) }"""
    ran = """g (float[2] x) => (float[2] z)
    { [relu_nchwc_token_1] n = com.microsoft.nchwc.Relu(x) [relu_nchwc] b = Exp(n) [last] z = Neg(b) }"""

    assert origins(tmp_path, file, ran) == [(["one"], NAMED), (["relu_nchwc"], SAME), (["last"], SAME)]


def test_values_in_another_precision_are_the_same_values(tmp_path: Path) -> None:
    ran = """g (float[2,3] x) => (float[2,3] z) <float[3,3] w, float[3] b>
    {
        [product] InsertedPrecisionFreeCast_a = MatMul(x, w)
        [bias] InsertedPrecisionFreeCast_c = Add(InsertedPrecisionFreeCast_a, b)
        [InsertedPrecisionFreeCast_c] c = Cast<to=1>(InsertedPrecisionFreeCast_c)
        [act] z = Relu(c)
    }"""

    assert origins(tmp_path, LAYER, ran) == [
        (["product"], SAME),
        (["bias"], SAME),
        (["act"], BETWEEN),
        (["act"], SAME),
    ]


def test_what_was_inserted_serves_its_one_reader_else_whom_it_reads(tmp_path: Path) -> None:
    file = """g (float[2,3] x) => (float[2,3] z)
    { [one] a = Relu(x) [two] b = Neg(a) [three] c = Exp(a) [four] z = Add(b, c) }"""
    for_one = """g (float[2,3] x) => (float[2,3] z)
    { [copy] p = com.a.Copy(x) [one] a = Relu(p) [two] b = Neg(a) [three] c = Exp(a) [four] z = Add(b, c) }"""
    for_two = """g (float[2,3] x) => (float[2,3] z)
    { [one] a = Relu(x) [copy] p = com.a.Copy(a) [two] b = Neg(p) [three] c = Exp(p) [four] z = Add(b, c) }"""

    assert origins(tmp_path, file, for_one)[0] == (["one"], BETWEEN)
    assert origins(tmp_path, file, for_two)[1] == (["one"], BETWEEN)


def test_a_function_s_body_stands_for_the_call(tmp_path: Path) -> None:
    file = """
    <ir_version: 10, opset_import: ["" : 18, "local" : 1]>
    g (float[2,3] x) => (float[2,3] z) { [one] a = Relu(x) [call] b = local.twice(a) [last] z = Exp(b) }
    <domain: "local", opset_import: ["" : 18]>
    twice (p) => (q) { r = Neg(p) q = Sigmoid(r) }
    """
    ran = """g (float[2,3] x) => (float[2,3] z)
    { [one] a = Relu(x) [inl_n1] inl_r = Neg(a) [inl_n2] b = Sigmoid(inl_r) [last] z = Exp(b) }"""

    found = origins(tmp_path, file, ran)

    assert [nodes for nodes, _ in found] == [["one"], ["call"], ["call"], ["last"]]


def test_what_a_nested_graph_reads_from_around_it_counts_as_read(tmp_path: Path) -> None:
    file = """g (float[2] x, bool c) => (float[2] z)
    {
        [one] a = Relu(x)
        [if] b = If(c) <then_branch = t () => (float[2] t1) { t1 = Neg(a) }, else_branch = e () => (float[2] e1)
            { e1 = Exp(a) }>
        [last] z = Abs(b)
    }"""
    ran = """g (float[2] x, bool c) => (float[2] z)
    {
        [one] a = Relu(x)
        [other] z = If(c) <then_branch = t () => (float[2] t1) { t1 = Neg(a) }, else_branch = e () => (float[2] e1)
            { e1 = Exp(a) }>
    }"""

    assert origins(tmp_path, file, ran) == [(["one"], SAME), (["if", "last"], VALUES)]


def test_a_graph_that_shares_nothing_with_the_file_is_not_guessed(tmp_path: Path) -> None:
    ran = "g (float[7] p) => (float[7] q) { [n] q = Exp(p) }"

    assert origins(tmp_path, LAYER, ran) == [([], NONE)]


def test_a_long_chain_takes_steps_in_proportion_to_its_length(tmp_path: Path) -> None:
    body = "\n".join(f"[n{i}] v{i + 1} = Relu(v{i})" for i in range(3000))
    renamed = "\n".join(f"[m{i}] w{i + 1} = Relu({'v0' if i == 0 else f'w{i}'})" for i in range(2999))
    file = f"g (float[2] v0) => (float[2] v3000) {{ {body} }}"
    ran = f"g (float[2] v0) => (float[2] v3000) {{ {renamed} [end] v3000 = Neg(w2999) }}"

    found = find_origins(read(tmp_path, file, "file"), read(tmp_path, ran, "ran"))

    assert len(found) == 3000
    assert found[-1] == Origin(tuple(range(3000)), VALUES)


@pytest.mark.time
@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_every_kernel_of_a_real_session_has_an_origin(tmp_path: Path, level: str) -> None:
    import onnxruntime

    text = CONVOLUTIONS.replace("[1,3,8,8] z", "[1,3,1,1] z")
    weights = {name: models.noise(3, 3, 1, 1, seed=i) for i, name in enumerate("vw")}
    source = models.save(tmp_path, models.text_model(text, weights))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "ran.onnx")
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])

    found = find_origins(read_model(source), read_model(tmp_path / "ran.onnx"))

    assert {node for origin in found for node in origin.nodes} == set(range(7))
    assert all(origin.rule != NONE for origin in found)
