"""Roles from the operator input that reads a tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import audit, entry, ramp, save, text_model
from onnx import helper

from analyzer.account.classify.structure import learned_beside
from analyzer.account.ledger import Entry, Role
from analyzer.model.wiring import connect
from analyzer.read import read_model

INT8 = np.arange(6, dtype=np.int8).reshape(2, 3)


def decide(folder: Path, nodes: str, array: np.ndarray, *others: str) -> Entry:
    """Return the entry of `w` in a model of these nodes; the other names are inputs."""
    inputs = ", ".join(f"float[2] {name}" for name in ("x", *others))
    return entry(audit(folder, text_model(f"g ({inputs}) => (float[2] y) {{ {nodes} }}", {"w": array})), "w")


@pytest.mark.parametrize(
    ("node", "array", "role", "rule"),
    [
        ("MatMul(x, w)", ramp(2, 3), "parameter", "MatMul[1]"),
        ("MatMul(w, x)", ramp(2, 3), "parameter", "MatMul[0]"),
        ("Gemm(x, w)", ramp(2, 3), "parameter", "Gemm[1]"),
        ("Gemm(x, x, w)", ramp(3), "parameter", "Gemm[2]"),
        ("Conv(x, w)", ramp(2, 3, 1, 1), "parameter", "Conv[1]"),
        ("Conv(x, x, w)", ramp(3), "parameter", "Conv[2]"),
        ("LSTM(x, w, x)", ramp(1, 8, 3), "parameter", "LSTM[1]"),
        ("PRelu(x, w)", ramp(3), "parameter", "PRelu[1]"),
        ("Gather(w, x)", ramp(5, 3), "parameter", "Gather[0]"),
        ("GatherND(w, x)", ramp(5, 3), "parameter", "GatherND[0]"),
        ("GatherND(w, x)", ramp(4, 5, 3), "parameter", "GatherND[0]"),
        ("LayerNormalization(x, w)", ramp(3), "parameter", "LayerNormalization[1]"),
        ("BatchNormalization(x, w, x, x, x)", ramp(3), "parameter", "BatchNormalization[1]"),
        ("BatchNormalization(x, x, x, w, x)", ramp(3), "buffer", "BatchNormalization[3]"),
        ("BatchNormalization(x, x, x, x, w)", ramp(3), "buffer", "BatchNormalization[4]"),
        ("com.microsoft.RotaryEmbedding(x, x, w, x)", ramp(3, 2), "buffer", "RotaryEmbedding[2]"),
        ("com.microsoft.SkipLayerNormalization(x, x, w)", ramp(3), "parameter", "SkipLayerNormalization[2]"),
        ("MatMulInteger(x, w)", INT8, "parameter", "MatMulInteger[1]"),
        ("MatMulInteger(x, x, x, w)", np.int8(3), "quantization", "MatMulInteger[3]"),
        ("DequantizeLinear(w, x)", INT8, "parameter", "DequantizeLinear[0]"),
        ("DequantizeLinear(x, w)", ramp(3), "quantization", "DequantizeLinear[1]"),
        ("DequantizeLinear(x, x, w)", np.int8(3), "quantization", "DequantizeLinear[2]"),
        ("QuantizeLinear(x, w)", np.float32(0.5), "quantization", "QuantizeLinear[1]"),
        ("QLinearConv(x, x, x, w, x, x, x, x)", INT8, "parameter", "QLinearConv[3]"),
        ("QLinearConv(x, x, x, x, w, x, x, x)", ramp(3), "quantization", "QLinearConv[4]"),
        (
            "com.microsoft.MatMulNBits<K = 3, N = 2>(x, w, x)",
            np.zeros((2, 1, 8), "u1"),
            "parameter",
            "MatMulNBits[1]",
        ),
        ("com.microsoft.MatMulNBits<K = 3, N = 2>(x, x, w)", ramp(2), "quantization", "MatMulNBits[2]"),
        (
            "com.microsoft.QEmbedLayerNormalization(x, x, w, x, x, x, x)",
            INT8,
            "parameter",
            "QEmbedLayerNormalization[2]",
        ),
        (
            "com.microsoft.QEmbedLayerNormalization(x, x, x, x, x, x, x, , w)",
            np.float32(1),
            "quantization",
            "QEmbedLayerNormalization[8]",
        ),
        ("Clip(x, w)", np.float32(0), "constant", "Clip[1]"),
        ("Resize(x, , w)", ramp(4), "constant", "Resize[2]"),
        ("Pad(x, x, w)", np.float32(0), "constant", "Pad[2]"),
    ],
)
def test_slot_decides_the_role(tmp_path, node, array, role, rule):
    found = decide(tmp_path, f"y = {node}", np.asarray(array))

    assert (found.role.value, found.decided_by) == (role, f"structure:{rule}")


SIGNATURES = {
    "BatchNormalization": ".PPbb",
    "Clip": ".cc",
    "Conv": ".PP",
    "ConvInteger": "PPqq",
    "ConvTranspose": ".PP",
    "DeformConv": ".P.P.",
    "DequantizeLinear": ".qq",
    "Einsum": "PPPP",
    "GRU": ".PPP..",
    "Gemm": "PPP",
    "GroupNormalization": ".PP",
    "InstanceNormalization": ".PP",
    "LSTM": ".PPP...P",
    "LayerNormalization": ".PP",
    "MatMul": "PP",
    "MatMulInteger": "PPqq",
    "PRelu": ".P",
    "Pad": "..c.",
    "QLinearConv": "PqqPqqqqP",
    "QLinearMatMul": "PqqPqqqq",
    "QuantizeLinear": ".qq",
    "RMSNormalization": ".P",
    "RNN": ".PPP..",
    "Range": "ccc",
    "Resize": ".cc.",
    "Upsample": ".c",
    "com.microsoft.Attention": ".PP....",
    "com.microsoft.BiasGelu": ".P",
    "com.microsoft.DecoderMaskedMultiHeadAttention": "..........P",
    "com.microsoft.DynamicQuantizeLSTM": ".PPP...Pqqqq",
    "com.microsoft.DynamicQuantizeMatMul": ".PqqP",
    "com.microsoft.EmbedLayerNormalization": "..TTTPP..",
    "com.microsoft.FastGelu": ".P",
    "com.microsoft.FusedConv": ".PP.",
    "com.microsoft.FusedGemm": "PPP",
    "com.microsoft.FusedMatMul": "PP",
    "com.microsoft.GatherBlockQuantized": "P.qq",
    "com.microsoft.GroupNorm": ".PP",
    "com.microsoft.GroupQueryAttention": ".......bb..",
    "com.microsoft.MatMulBnb4": ".Pq",
    "com.microsoft.MatMulIntegerToFloat": "PPqqqqP",
    "com.microsoft.MatMulNBits": ".PqqqP",
    "com.microsoft.MoE": "..PPPPPP",
    "com.microsoft.MultiHeadAttention": "...P......",
    "com.microsoft.QAttention": "PPPqq.qq.",
    "com.microsoft.QEmbedLayerNormalization": "..PPPPP.qqqqqqqqqq",
    "com.microsoft.QGemm": "PqqPqqPqq",
    "com.microsoft.QLinearAdd": ".qq.qqqq",
    "com.microsoft.QLinearAveragePool": ".qqqq",
    "com.microsoft.QLinearConcat": "qq",
    "com.microsoft.QLinearGlobalAveragePool": ".qqqq",
    "com.microsoft.QLinearLeakyRelu": ".qqqq",
    "com.microsoft.QLinearMul": ".qq.qqqq",
    "com.microsoft.QLinearSigmoid": ".qqqq",
    "com.microsoft.QLinearSoftmax": ".qqqq",
    "com.microsoft.QMoE": "..PqPPqPPqPqqq",
    "com.microsoft.QOrderedMatMul": "PqPqqPPq",
    "com.microsoft.RotaryEmbedding": ".ibb",
    "com.microsoft.SkipLayerNormalization": "..PPP",
    "com.microsoft.SkipSimplifiedLayerNormalization": "..PP",
    "RotaryEmbedding": ".bbi",
    "SimplifiedLayerNormalization": ".P",
}
"""Roles of an operator's inputs in order.

P is learned, T too if it has rows, q quantization, b a buffer, c a constant, i integers that are constants; a dot
gives floats no role.
"""


@pytest.mark.parametrize("operator", SIGNATURES)
def test_each_input_of_an_operator_has_the_role_that_the_operator_gives_it(tmp_path, operator):
    op_type, signature = operator.rpartition(".")[2], SIGNATURES[operator]
    decisions = {
        "P": ("parameter", "structure:{}[{}]"),
        "T": ("parameter", "structure:{}[{}]"),
        "q": ("quantization", "structure:{}[{}]"),
        "b": ("buffer", "structure:{}[{}]"),
        "c": ("constant", "structure:{}[{}]"),
        "i": ("constant", "structure:{}-operand"),
        ".": ("unattributed", "none:no-rule"),
    }

    for slot, letter in enumerate(signature):
        inputs = ["w" if place == slot else "x" for place in range(len(signature))]
        array = np.array([1, 2, 3]) if letter == "i" else ramp(3, 2) if letter == "T" else ramp(3)
        found = decide(tmp_path, f"y = {operator}({', '.join(inputs)})", array)

        role, rule = decisions[letter]
        assert (found.role.value, found.decided_by) == (role, rule.format(op_type, slot))


@pytest.mark.parametrize("operator", [name for name in SIGNATURES if onnx.defs.has(name)])
def test_signatures_are_no_longer_than_onnx_lets_them_be(operator):
    assert len(SIGNATURES[operator]) <= onnx.defs.get_schema(operator).max_input


@pytest.mark.parametrize(
    ("node", "rule"),
    [
        ("Reshape(x, w)", "Reshape-operand"),
        ("Unsqueeze(x, w)", "Unsqueeze-operand"),
        ("Gather(x, w)", "Gather-operand"),
    ],
)
def test_integers_that_shape_the_computation_are_constants(tmp_path, node, rule):
    found = decide(tmp_path, f"y = {node}", np.array([2, 3]))

    assert (found.role, found.decided_by) == (Role.CONSTANT, f"structure:{rule}")


@pytest.mark.parametrize("node", ["Mul(x, w)", "Div(x, w)", "Add(x, w)", "Pow(x, w)"])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_lone_number_is_a_constant(tmp_path, node, shape):
    found = decide(tmp_path, f"y = {node}", ramp(*shape))

    assert (found.role, found.decided_by) == (Role.CONSTANT, "structure:scalar")


@pytest.mark.parametrize(
    ("nodes", "rule"),
    [
        ("h = MatMul(x, x) y = Add(h, w)", "Add-vector"),
        ("h = MatMul(x, x) y = Add(w, h)", "Add-vector"),
        ("h = Conv(x, x) y = Sub(h, w)", "Sub-vector"),
        ("m = ReduceMean(x) c = Sub(x, m) d = Div(c, m) y = Mul(d, w)", "Mul-vector"),
        ("m = ReduceMean(x) c = Sub(x, m) d = Div(c, m) s = Mul(d, x) y = Add(s, w)", "Add-vector"),
        ("h = MatMul(x, x) r = Reshape(h, x) y = Add(r, w)", "Add-vector"),
        ("h = MatMul(x, x) y = Div(h, w)", "Div-vector"),
        ("h = ConvInteger(x, x) c = Cast<to=1>(h) s = Mul(c, x) y = Add(s, w)", "Add-vector"),
        ("h = MatMulInteger(x, x) c = Cast<to=1>(h) s = Mul(c, x) y = Add(s, w)", "Add-vector"),
    ],
)
def test_vector_beside_a_linear_or_normalized_value_is_learned(tmp_path, nodes, rule):
    found = decide(tmp_path, nodes, ramp(3))

    assert (found.role, found.decided_by) == (Role.PARAMETER, f"structure:{rule}")


@pytest.mark.parametrize(
    ("nodes", "array"),
    [
        ("y = Add(x, w)", ramp(3)),
        ("h = MatMul(x, x) y = Add(h, w)", ramp(2, 3)),
        ("h = MatMul(x, x) y = Pow(h, w)", ramp(3)),
        ("h = Sqrt(x) d = Mul(x, h) y = Sub(d, w)", ramp(3)),
        ("y = Relu(w)", ramp(3)),
        ("y = GatherND(w, x)", ramp(3)),
        ("y = Add(x, w)", ramp(2, 5, 3)),
    ],
)
def test_floats_that_no_operator_explains_are_unattributed(tmp_path, nodes, array):
    found = decide(tmp_path, nodes, array)

    assert (found.role, found.decided_by) == (Role.UNATTRIBUTED, "none:no-rule")


@pytest.mark.parametrize(
    "nodes",
    [
        "t = Transpose<perm = [1, 0]>(w) y = MatMul(x, t)",
        "t = Cast<to = 1>(w) y = MatMul(x, t)",
        "t = Identity(w) u = Reshape(t, x) v = Unsqueeze(u, x) y = MatMul(x, v)",
        "t = Concat<axis = 0>(x, w) y = MatMul(x, t)",
    ],
)
def test_role_is_that_of_what_reads_it_past_operators_that_only_move_it(tmp_path, nodes):
    found = decide(tmp_path, nodes, ramp(2, 3))

    assert (found.role, found.decided_by) == (Role.PARAMETER, "structure:MatMul[1]")


@pytest.mark.parametrize(
    "op",
    [
        *(
            "Cast",
            "CastLike",
            "DequantizeLinear",
            "Expand",
            "Flatten",
            "Identity",
            "QuantizeLinear",
            "Reshape",
        ),
        *("Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    ],
)
def test_operator_that_moves_its_first_input_is_no_evidence_of_its_role(tmp_path, op):
    assert (
        decide(tmp_path, f"t = {op}(w, x) y = MatMul(x, t)", ramp(2, 3)).decided_by == "structure:MatMul[1]"
    )


@pytest.mark.parametrize(
    "op",
    [
        *("Conv", "ConvInteger", "ConvTranspose", "Einsum", "Gemm", "MatMul", "MatMulInteger"),
        *("QLinearConv", "QLinearMatMul"),
        *("com.microsoft.DynamicQuantizeMatMul", "com.microsoft.FusedMatMul"),
        *("com.microsoft.MatMulIntegerToFloat", "com.microsoft.MatMulNBits"),
    ],
)
def test_vector_that_is_added_to_a_product_is_its_bias(tmp_path, op):
    assert decide(tmp_path, f"h = {op}(x, x) y = Add(h, w)", ramp(3)).role is Role.PARAMETER
    assert decide(tmp_path, f"h = {op}(x, x) y = Pow(h, w)", ramp(3)).role is Role.UNATTRIBUTED


@pytest.mark.parametrize(
    "op",
    [
        *("BatchNormalization", "InstanceNormalization", "LayerNormalization", "LpNormalization"),
        *("RMSNormalization", "ReduceL2", "ReduceMean", "ReduceSumSquare"),
    ],
)
@pytest.mark.parametrize(
    ("last", "role"), [("Mul", "parameter"), ("Add", "parameter"), ("Sub", "unattributed")]
)
def test_vector_that_scales_or_shifts_what_was_normalized_is_learned(tmp_path, op, last, role):
    nodes = f"n = {op}(x) d = Div(x, n) y = {last}(d, w)"

    assert decide(tmp_path, nodes, ramp(3)).role.value == role


@pytest.mark.parametrize("op", ["Add", "Div", "Mul", "Pow", "Reciprocal", "Sqrt", "Sub"])
def test_normalization_may_be_written_out_in_any_arithmetic(tmp_path, op):
    assert decide(tmp_path, f"m = ReduceMean(x) h = {op}(m) y = Mul(h, w)", ramp(3)).role is Role.PARAMETER
    assert (
        decide(tmp_path, f"m = ReduceMean(x) h = Relu(m) y = {op}(h, w)", ramp(3)).role is Role.UNATTRIBUTED
    )


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "i8", "?", "u4", "u8"])
@pytest.mark.parametrize("count", [64, 65])
def test_many_narrow_integers_may_be_weights_and_others_are_a_shape_or_a_mask(tmp_path, dtype, count):
    found = decide(tmp_path, "y = Where(w, x, x)", np.ones(count, dtype))

    may_be_weights = count > 64 and dtype in ("i1", "u1", "i2", "u2")
    assert found.role is (Role.UNATTRIBUTED if may_be_weights else Role.CONSTANT)


@pytest.mark.parametrize(("to", "role"), [("FLOAT16", "parameter"), ("BOOL", "unattributed")])
def test_numbers_that_become_truth_values_are_a_mask_and_no_table(tmp_path, to, role):
    cast = getattr(onnx.TensorProto, to)

    assert decide(tmp_path, f"t = Cast<to = {cast}>(w) y = Gather(t, i)", ramp(5, 3), "i").role.value == role


@pytest.mark.parametrize("dtype", ["i1", "u1"])
def test_table_of_codes_is_what_reads_its_rows(tmp_path, dtype):
    nodes = "rows = Gather(w, x) d = DequantizeLinear(rows, x) y = MatMul(x, d)"

    assert decide(tmp_path, nodes, np.ones((4, 3), dtype)).decided_by == "structure:DequantizeLinear[0]"
    assert decide(tmp_path, "r = Gather(w, x) y = MatMul(x, r)", np.ones((4, 3), "i8")).role is Role.CONSTANT


@pytest.mark.parametrize(("op", "before"), [("Attention", "x"), ("MultiHeadAttention", "x, x, x")])
def test_attention_of_onnx_has_no_weights_among_its_inputs(tmp_path, op, before):
    assert decide(tmp_path, f"y = {op}({before}, w)", ramp(2, 3)).role is Role.UNATTRIBUTED
    assert decide(tmp_path, f"y = com.microsoft.{op}({before}, w)", ramp(2, 3)).role is Role.PARAMETER


@pytest.mark.parametrize("dtype", ["i1", "u1"])
@pytest.mark.parametrize(
    ("node", "rule"),
    [
        ("MatMulInteger(t, x)", "MatMulInteger[0]"),
        ("ConvInteger(t, x)", "ConvInteger[0]"),
        ("QLinearMatMul(t, x, x, x, x, x, x, x)", "QLinearMatMul[0]"),
        ("QLinearConv(t, x, x, x, x, x, x, x)", "QLinearConv[0]"),
    ],
)
def test_table_of_codes_is_learned_where_a_product_of_integers_takes_its_rows(tmp_path, node, rule, dtype):
    nodes = f"rows = Gather(w, x) t = Transpose(rows) y = {node}"

    found = decide(tmp_path, nodes, np.ones((4, 3), dtype))

    assert (found.role, found.decided_by) == (Role.PARAMETER, f"structure:{rule}")


@pytest.mark.parametrize(("count", "role"), [(64, "constant"), (65, "unattributed")])
def test_bounds_and_sizes_are_few_numbers(tmp_path, count, role):
    assert decide(tmp_path, "y = Clip(x, w)", ramp(count)).role.value == role


@pytest.mark.parametrize(
    ("node", "array", "role", "rule"),
    [
        ("MatMul(x, w)", ramp(1, 1), "constant", "scalar"),
        ("MatMulInteger(x, w)", np.ones((1, 1), "i1"), "parameter", "MatMulInteger[1]"),
    ],
)
def test_lone_float_is_no_weight_and_a_lone_code_of_a_product_is(tmp_path, node, array, role, rule):
    found = decide(tmp_path, f"y = {node}", array)

    assert (found.role.value, found.decided_by) == (role, f"structure:{rule}")


@pytest.mark.parametrize(("hops", "role"), [(6, "parameter"), (7, "unattributed")])
def test_reader_is_looked_for_past_six_operators_that_only_move(tmp_path, hops, role):
    moves = " ".join(f"h{i + 1} = Identity(h{i})" for i in range(hops)).replace("(h0)", "(w)")

    assert decide(tmp_path, f"{moves} y = MatMul(x, h{hops})", ramp(2, 3)).role.value == role


@pytest.mark.parametrize("nodes", ["t = acme.Identity(w) y = MatMul(x, t)", "t = Relu(w) y = MatMul(x, t)"])
def test_operator_that_is_not_known_to_move_hides_what_reads_its_output(tmp_path, nodes):
    assert decide(tmp_path, nodes, ramp(2, 3)).role is Role.UNATTRIBUTED


@pytest.mark.parametrize(
    ("count", "role", "rule"), [(1, "constant", "scalar"), (2, "parameter", "DequantizeLinear[0]")]
)
def test_lone_code_is_a_number_that_the_graph_computes_with(tmp_path, count, role, rule):
    found = decide(tmp_path, "t = DequantizeLinear(w, x) y = Mul(x, t)", np.ones(count, "i1"))

    assert (found.role.value, found.decided_by) == (role, f"structure:{rule}")


def test_shape_of_a_reshape_is_not_what_is_reshaped(tmp_path):
    found = decide(tmp_path, "t = Reshape(x, w) y = MatMul(x, t)", np.array([2, 3]))

    assert found.role is Role.CONSTANT


def test_dequantized_weight_is_learned(tmp_path):
    found = decide(tmp_path, "t = DequantizeLinear(w, x) y = MatMul(x, t)", INT8)

    assert (found.role, found.parameters) == (Role.PARAMETER, 6)


@pytest.mark.parametrize(
    ("nodes", "role"), [("y = MatMul(x, d)", "parameter"), ("y = Cos(d)", "unattributed")]
)
def test_float_that_is_quantized_when_the_model_runs_is_what_reads_it_after_that(tmp_path, nodes, role):
    """A quantizer also puts node pairs around constants, such as the frequencies of rotary positions."""
    found = decide(tmp_path, f"q = QuantizeLinear(w, x) d = DequantizeLinear(q, x) {nodes}", ramp(2, 3))

    assert found.role.value == role


@pytest.mark.parametrize("op", ["Gather", "GatherND"])
def test_quantized_table_whose_rows_are_dequantized_is_learned(tmp_path, op):
    """onnxruntime's quantizer writes embeddings in this way."""
    found = decide(tmp_path, f"rows = {op}(w, x) y = DequantizeLinear(rows, x)", INT8)

    assert (found.role, found.parameters) == (Role.PARAMETER, 6)


def test_a_reader_that_only_takes_bounds_makes_no_weight_a_constant(tmp_path):
    found = decide(tmp_path, "h = Relu(w) c = Clip(x, w) y = MatMul(x, w)", ramp(2, 2))

    assert found.decided_by == "structure:MatMul[1]"


@pytest.mark.parametrize(
    ("op", "attribute", "value", "role"),
    [
        ("TreeEnsembleRegressor", "nodes_values", [1.0, 2.0], "parameter"),
        ("TreeEnsembleRegressor", "nodes_truenodeids", [1, 2], "constant"),
        ("TreeEnsembleRegressor", "nodes_modes", ["BRANCH_LEQ", "LEAF"], "constant"),
        ("SVMClassifier", "support_vectors", [1.0, 2.0], "parameter"),
        ("LinearClassifier", "coefficients", [1.0, 2.0], "parameter"),
        ("LinearClassifier", "classlabels_ints", [1, 2], "constant"),
        ("Scaler", "offset", [1.0, 2.0], "parameter"),
        ("Scaler", "scale", [1.0, 2.0], "parameter"),
        ("LinearClassifier", "intercepts", [1.0, 2.0], "parameter"),
        ("SVMClassifier", "prob_a", [1.0, 2.0], "parameter"),
        ("SVMClassifier", "prob_b", [1.0, 2.0], "parameter"),
        ("SVMClassifier", "rho", [1.0, 2.0], "parameter"),
        ("SVMClassifier", "vectors_per_class", [1, 2], "constant"),
        ("TreeEnsembleClassifier", "base_values", [1.0, 2.0], "parameter"),
        ("TreeEnsembleClassifier", "class_weights", [1.0, 2.0], "parameter"),
        ("TreeEnsembleRegressor", "target_weights", [1.0, 2.0], "parameter"),
        ("TreeEnsemble", "leaf_weights", [1.0, 2.0], "parameter"),
        ("TreeEnsemble", "nodes_splits", [1.0, 2.0], "parameter"),
        ("Imputer", "imputed_value_floats", [1.0, 2.0], "parameter"),
    ],
)
def test_lists_of_classical_operators_are_learned_or_bookkeeping(tmp_path, op, attribute, value, role):
    node = helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **{attribute: value})

    ledger = audit(tmp_path, helper.make_model(helper.make_graph([node], "g", [], [])))

    (found,) = ledger.entries
    assert (found.role.value, found.decided_by) == (role, f"structure:list-{attribute}")


def test_tensor_attribute_is_a_constant_of_its_operator(tmp_path):
    value = helper.make_tensor("", 1, [1], [0.0])
    node = helper.make_node("ConstantOfShape", ["s"], ["y"], value=value)

    (found,) = audit(tmp_path, helper.make_model(helper.make_graph([node], "g", [], []))).entries

    assert (found.role, found.decided_by) == (Role.CONSTANT, "structure:ConstantOfShape-attribute")


def test_tensor_attribute_of_an_unknown_operator_is_unattributed(tmp_path):
    value = helper.make_tensor("", 1, [1], [0.0])
    node = helper.make_node("Thing", ["s"], ["y"], domain="acme", value=value)

    (found,) = audit(tmp_path, helper.make_model(helper.make_graph([node], "g", [], []))).entries

    assert found.role is Role.UNATTRIBUTED


@pytest.mark.parametrize(
    ("attribute", "role"), [("nodes_values", "parameter"), ("nodes_hitrates", "constant")]
)
def test_list_in_a_tensor_is_what_the_list_is(tmp_path, attribute, role):
    """In float64 the lists are attributes such as `nodes_values_as_tensor`."""
    value = helper.make_tensor("", 11, [2], [1.0, 2.0])
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        name="a.b",
        domain="ai.onnx.ml",
        **{f"{attribute}_as_tensor": value},
    )

    (found,) = audit(tmp_path, helper.make_model(helper.make_graph([node], "g", [], []))).entries

    assert (found.role.value, found.decided_by) == (role, f"structure:list-{attribute}")


def test_chain_of_operators_that_only_move_is_followed_without_growing(tmp_path):
    """Forty Concats that each read their predecessor twice have 2**40 paths."""
    nodes = "h0 = Concat<axis = 0>(w, w) " + " ".join(
        f"h{i} = Concat<axis = 0>(h{i - 1}, h{i - 1})" for i in range(1, 40)
    )

    found = decide(tmp_path, f"{nodes} y = Relu(h39)", ramp(2, 3))

    assert found.role is Role.UNATTRIBUTED


def test_the_mean_of_a_picture_is_no_parameter(tmp_path):
    found = decide(tmp_path, "h = Div(x, x) s = Mul(h, x) y = Add(s, w)", ramp(3))

    assert found.role is Role.UNATTRIBUTED


def test_layers_of_concat_are_walked_once_each(tmp_path):
    layers = "\n".join(
        f"c{i}_{j} = Concat<axis=0>({', '.join(f'c{i - 1}_{k}' if i else 'w' for k in range(7))})"
        for i in range(12)
        for j in range(7)
    )

    found = decide(tmp_path, f"{layers}\ny = MatMul(x, c3_0)", ramp(2, 2))

    assert (found.role, found.decided_by) == (Role.PARAMETER, "structure:MatMul[1]")


def test_tensors_at_other_learned_inputs_are_found_past_what_moves_them(tmp_path):
    proto = text_model(
        """
        g (float[2] x) => (float[2] y) {
            d = DequantizeLinear(q, s) t = Identity(d) h = Relu(x)
            y = Gemm(h, t, w) z = Conv(x, w, b) u = Conv(v, c, w) n = LayerNormalization(x, h, w)
            k = Conv(x, w) r = Gather(q, x)
        }
        """,
        {"w": ramp(3), "q": INT8, "s": ramp(1), "b": ramp(2), "c": ramp(1), "v": ramp(4)},
    )
    model = read_model(save(tmp_path, proto))
    tensors = {tensor.name: tensor for tensor in model.tensors()}
    wiring = connect(model)

    found = {name: {other.name for other in learned_beside(wiring, tensors[name])} for name in "wqbs"}

    assert found == {"w": {"q", "b", "c"}, "q": {"w"}, "b": {"w"}, "s": set()}


def test_input_that_is_left_out_is_not_a_tensor_without_a_name(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) { y = Conv(x, w, z) }", {"w": ramp(3), "z": ramp(2)})
    proto.graph.node[0].input[2] = proto.graph.initializer[1].name = ""
    model = read_model(save(tmp_path, proto))
    (weight,) = (tensor for tensor in model.tensors() if tensor.name == "w")

    assert list(learned_beside(connect(model), weight)) == []


TURNS = """<ir_version: 9, opset_import: ["" : 17]>
g (float[2,3] x) => (float[2,3] y) {
    y = Loop(trip, , w, x) <body = body (int64 i, bool go, float[3,3] kept, float[2,3] state)
            => (bool stay, float[3,3] LAST, float[2,3] next) {
        stay = Identity(go)
        next = MatMul(state, kept)
        CHANGE
    }>
}"""


@pytest.mark.parametrize(
    ("last", "change", "role"),
    [
        ("kept", "", "parameter"),
        ("same", "same = Identity(kept)", "parameter"),
        ("new", "new = Neg(kept)", None),
    ],
)
def test_a_weight_that_a_loop_carries_is_read_in_its_body(
    last: str, change: str, role: str | None, tmp_path: Path
) -> None:
    text = TURNS.replace("y = Loop", "z, y = Loop").replace("LAST", last).replace("CHANGE", change)
    proto = text_model(text, {"w": ramp(3, 3), "trip": np.array(4, np.int64)})

    assert entry(audit(tmp_path, proto), "w").role is Role(role or "unattributed")


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ("h = Conv(x, k) s = Mul(h, g) y = Add(s, w)", (1, 4, 1, 1)),  # a norm after a convolution
        ("h = Conv(x, k) s = Mul(h, g) y = Sub(s, w)", (1, 4, 1, 1)),
        ("n = Neg(x) r = Relu(n) y = Mul(r, w)", (1, 4, 1, 1)),  # the slope of an activation
        ("m = ReduceMean(x) r = Sqrt(m) i = Reciprocal(r) y = Mul(i, w)", (1, 1, 2, 2)),  # a norm of groups
        ("m = GlobalAveragePool(x) n = Neg(m) s = Mul(n, x) y = Add(s, w)", (1, 4, 1, 1)),
    ],
)
def test_scales_and_shifts_that_keras_writes_out_are_learned(
    nodes: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    proto = text_model(
        f"g (float[1,4,6,6] x) => (float[1,4,6,6] y) {{ {nodes} }}",
        {"w": ramp(*shape), "k": ramp(4, 4, 1, 1), "g": ramp(1, 4, 1, 1, start=2.0)},
    )

    assert entry(audit(tmp_path, proto), "w").role is Role.PARAMETER


@pytest.mark.parametrize(("second", "role"), [("k", "parameter"), ("x", "unattributed")])
def test_a_bias_with_an_axis_of_heads_is_added_to_a_product_with_a_weight(
    second: str, role: str, tmp_path: Path
) -> None:
    proto = text_model(
        f"g (float[2,6] x) => (float[2,2,3] y) {{ h = MatMul(x, {second}) r = Reshape(h, to) y = Add(r, w) }}",
        {"w": ramp(2, 3), "k": ramp(6, 6), "to": np.array([-1, 2, 3])},
    )

    assert entry(audit(tmp_path, proto), "w").role is Role(role)
