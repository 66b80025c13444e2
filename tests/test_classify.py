"""Role and uses of each stored tensor, and the rule that decided them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from models import FOLDED_FROM, INPUT_KIND, audit, dynamo_like, entry, noise, ramp, text_model, with_origins
from onnx import helper

from analyzer.account.audit import audit_model
from analyzer.account.ledger import Evidence, Role

MATMUL = 'g (float[1,3] x) => (float[1,2] y) {{ ["{node}"] y = MatMul(x, "{name}") }}'


def matmul(name: str, node: str = "n", array: np.ndarray | None = None):
    return text_model(MATMUL.format(name=name, node=node), {name: ramp(3, 2) if array is None else array})


# roles, from the strongest evidence to the weakest


@pytest.mark.parametrize(
    ("props", "role", "rule", "sources"),
    [
        ({INPUT_KIND: "PARAMETER"}, "parameter", "provenance:input-spec", ("w.inv_freq",)),
        ({INPUT_KIND: "BUFFER"}, "buffer", "provenance:input-spec", ("w.inv_freq",)),
        ({INPUT_KIND: "CONSTANT_TENSOR"}, "constant", "provenance:input-spec", ()),
        ({FOLDED_FROM: "['a.weight']"}, "parameter", "provenance:folded-from", ("a.weight",)),
        ({FOLDED_FROM: "['a.weight', 'val_3']"}, "parameter", "provenance:folded-with", ("a.weight",)),
        ({FOLDED_FROM: "['a.running_var']"}, "buffer", "provenance:folded-from", ("a.running_var",)),
        ({FOLDED_FROM: "['val_7']"}, "constant", "provenance:folded-constant", ()),
    ],
)
def test_exporters_note_goes_before_name_and_structure(tmp_path, props, role, rule, sources):
    ledger = audit(tmp_path, with_origins(matmul("w.inv_freq"), {"w.inv_freq": props}))

    found = entry(ledger, "w.inv_freq")
    assert (found.role.value, found.decided_by, found.sources) == (role, rule, sources)


@pytest.mark.parametrize(
    ("name", "role", "rule"),
    [
        ("fc.weight", "parameter", "name:parameter"),
        ("fc.bias", "parameter", "name:parameter"),
        ("norm.gamma", "parameter", "name:parameter"),
        ("rnn.weight_ih_l0", "parameter", "name:parameter"),
        ("attn.in_proj_weight", "parameter", "name:parameter"),
        ("mlp.experts.gate_up_proj", "parameter", "name:parameter"),
        ("mlp.experts.down_proj", "parameter", "name:parameter"),
        ("bn.running_mean", "buffer", "name:buffer"),
        ("rotary.inv_freq", "buffer", "name:buffer"),
        ("rotary.sliding_attention_inv_freq", "buffer", "name:buffer"),
        ("layer.causal_mask", "buffer", "name:buffer"),
    ],
)
def test_pytorch_name_decides_where_no_note_does(tmp_path, name, role, rule):
    found = entry(audit(tmp_path, matmul(name)), name)

    assert (found.role.value, found.decided_by, found.sources) == (role, rule, (name,))


@pytest.mark.parametrize(
    "leaf",
    [
        *("A_log", "D", "dt_bias", "alpha", "beta", "b_0", "w_0", "in_proj_bias", "logit_scale"),
        *("class_embedding", "cls_token", "distillation_token", "mask_token", "masked_spec_embed"),
        *("pos_embed", "position_embedding", "position_embeddings"),
        *("weight_g", "weight_v", "original0", "original1"),
        *("weight_ih_l0", "weight_hh_l0", "weight_hr_l0", "bias_ih_l0", "bias_hh_l1_reverse"),
    ],
)
def test_last_part_of_a_name_shows_what_is_learned(tmp_path, leaf):
    found = entry(audit(tmp_path, matmul(f"net.{leaf}")), f"net.{leaf}")

    assert (found.role, found.decided_by, found.sources) == (
        Role.PARAMETER,
        "name:parameter",
        (f"net.{leaf}",),
    )


def test_float_that_is_called_quantized_is_no_weights_codes(tmp_path):
    found = entry(audit(tmp_path, matmul("fc.weight_quantized")), "fc.weight_quantized")

    assert (found.decided_by, found.sources) == ("structure:MatMul[1]", ())


def test_integers_under_a_weights_name_are_judged_by_structure(tmp_path):
    proto = text_model(
        'g (float[2,3] x) => (float[6] y) { y = Reshape(x, "fc.weight") }', {"fc.weight": np.array([6])}
    )

    assert entry(audit(tmp_path, proto), "fc.weight").decided_by == "structure:Reshape-operand"


def test_bias_that_folding_made_is_known_by_the_weight_beside_it(tmp_path):
    weights = {"conv.weight": ramp(2, 3, 1, 1), "conv.weight_bias": ramp(2)}
    proto = text_model(
        'g (float[1,3,4,4] x) => (float[1,2,4,4] y) { y = Conv(x, "conv.weight", "conv.weight_bias") }',
        weights,
    )

    found = entry(audit(tmp_path, proto), "conv.weight_bias")

    assert (found.role, found.decided_by) == (Role.PARAMETER, "name:folded-bias")
    assert (found.sources, found.scope) == (("conv.weight",), "conv")


def test_structure_decides_where_neither_note_nor_name_does(tmp_path):
    found = entry(audit(tmp_path, matmul("onnx_12")), "onnx_12")

    assert (found.role, found.decided_by, found.sources) == (Role.PARAMETER, "structure:MatMul[1]", ())


@pytest.mark.parametrize(("array", "role"), [(ramp(3, 2), "parameter"), (np.ones((3, 2), "?"), "buffer")])
def test_dotted_name_in_a_file_of_pytorch_is_state(tmp_path, array, role):
    proto = text_model('g () => (float[3,2] y) { y = Relu("mod.table") }', {"mod.table": array})
    proto.producer_name = "pytorch"

    found = entry(audit(tmp_path, proto), "mod.table")

    assert (found.role.value, found.decided_by, found.sources) == (role, "name:state-dict", ("mod.table",))


def test_operator_shows_the_role_of_state_whose_name_does_not(tmp_path):
    proto = matmul("mod.table")
    proto.producer_name = "pytorch"

    found = entry(audit(tmp_path, proto), "mod.table")

    assert (found.role, found.decided_by) == (Role.PARAMETER, "structure:MatMul[1]")
    assert (found.sources, found.scope) == (("mod.table",), "mod")


def test_dotted_name_in_a_file_of_another_producer_is_no_evidence(tmp_path):
    proto = text_model('g () => (float[3,2] y) { y = Relu("mod.table") }', {"mod.table": ramp(3, 2)})

    assert entry(audit(tmp_path, proto), "mod.table").decided_by == "none:no-rule"


def test_dotted_name_that_structure_calls_a_constant_is_state_in_a_file_of_pytorch(tmp_path):
    proto = text_model('g (float[2] x) => (float[2] y) { y = Mul(x, "mod.factor") }', {"mod.factor": ramp(1)})
    proto.producer_name = "pytorch"

    found = entry(audit(tmp_path, proto), "mod.factor")

    assert (found.role, found.decided_by) == (Role.PARAMETER, "name:state-dict")


def test_a_prefix_that_a_tool_has_put_before_every_name_makes_no_constant_a_state(tmp_path):
    text = """g (float[2] x) => (float[2] y) {
        "encoder.a" = Mul(x, "encoder.factor")
        "encoder.b" = Mul("encoder.a", "encoder.mod.factor")
        y = Relu("encoder.b")
    }"""
    proto = text_model(text, {"encoder.factor": ramp(1), "encoder.mod.factor": ramp(1)})
    proto.producer_name = "pytorch"
    ledger = audit(tmp_path, proto)

    assert entry(ledger, "encoder.factor").role is Role.CONSTANT
    assert entry(ledger, "encoder.mod.factor").decided_by == "name:state-dict"


def test_what_nothing_explains_is_unattributed_and_reported(tmp_path):
    ledger = audit(tmp_path, text_model("g () => (float[3] y) { y = Relu(w) }", {"w": ramp(3)}))

    found = entry(ledger, "w")
    assert (found.role, found.decided_by, found.parameters) == (Role.UNATTRIBUTED, "none:no-rule", 0)
    assert (found.scope, found.scoped_by) == ("", Evidence.NONE)
    assert "unattributed" in [finding.id for finding in ledger.findings]


def test_initializer_that_nothing_reads_is_judged_by_its_name_alone(tmp_path):
    proto = text_model(
        "g (float[3] x) => (float[3] y) { y = Relu(x) }", {"fc.weight": ramp(3), "w": ramp(3, start=9)}
    )

    ledger = audit(tmp_path, proto)

    assert entry(ledger, "fc.weight").role is Role.PARAMETER
    assert (entry(ledger, "w").role, entry(ledger, "w").read_by) == (Role.UNATTRIBUTED, "")


def test_every_rule_names_its_evidence(tmp_path):
    ledger = audit(tmp_path, dynamo_like(matmul("fc.weight"), parameters=("fc.weight",)))

    assert ledger.basis == {Evidence.PROVENANCE: 6}


# uses


def test_uses_counts_nodes_not_inputs(tmp_path):
    proto = text_model(
        "g (float[2] x) => (float[2] y) { h = Mul(w, w) k = Add(h, w) y = Add(k, x) }", {"w": ramp(2)}
    )

    found = entry(audit(tmp_path, proto), "w")

    assert (found.uses, found.read_by) == (2, "Mul")


def test_readers_inside_nested_graphs_count(tmp_path):
    proto = text_model(
        """
        g (bool c, float[2] x) => (float[2] y) {
            h = Add(x, w)
            y = If(c) <then_branch = t () => (float[2] a) { a = Mul(h, w) },
                       else_branch = e () => (float[2] b) { b = Sub(h, w) }>
        }
        """,
        {"w": ramp(2)},
    )

    assert entry(audit(tmp_path, proto), "w").uses == 3


def test_tensor_used_often_counts_its_parameters_once(tmp_path):
    nodes = " ".join(f"h{i + 1} = MatMul(h{i}, w)" for i in range(12))
    proto = text_model(f"g (float[3,3] h0) => (float[3,3] h12) {{ {nodes} }}", {"w": ramp(3, 3)})

    ledger = audit(tmp_path, proto)

    assert entry(ledger, "w").uses == 12
    assert ledger.parameters == 9


# logical elements


@pytest.mark.parametrize(("k", "n", "blocks"), [(64, 4, 2), (48, 4, 2), (3072, 8, 96)])
def test_four_bit_weight_counts_its_logical_elements(tmp_path, k, n, blocks):
    proto = text_model(
        f"""g (float[1,{k}] x) => (float[1,{n}] y) {{
            y = com.microsoft.MatMulNBits<K = {k}, N = {n}, bits = 4, block_size = 32>(x, w, s)
        }}""",
        {"w": np.arange(n * blocks * 16, dtype="u1").reshape(n, blocks, 16), "s": ramp(n * blocks)},
    )

    ledger = audit(tmp_path, proto)

    assert entry(ledger, "w").parameters == entry(ledger, "w").logical_numel == ledger.parameters == k * n
    assert entry(ledger, "w").tensor.numel == n * blocks * 16
    assert entry(ledger, "s").role is Role.QUANTIZATION


def test_packed_int4_counts_elements_and_packed_bytes(tmp_path):
    proto = text_model("""
        g (float[1,3] x) => (float[1,3] y) <int4[3,3] w = {1,2,3,4,5,6,7,-8,-1}, float s = {0.5}> {
            d = DequantizeLinear(w, s) y = MatMul(x, d)
        }
    """)
    w = proto.graph.initializer[0]
    w.ClearField("int32_data")
    w.raw_data = b"\x21\x43\x65\x87\x0f"

    found = entry(audit(tmp_path, proto), "w")

    assert (found.role, found.parameters, found.tensor.nbytes) == (Role.PARAMETER, 9, 5)


def test_tensor_of_no_elements_is_entered_with_nothing(tmp_path):
    proto = text_model("g (float[0,3] x) => (float[0,3] y) { y = Add(x, w) }", {"w": np.zeros((0, 3), "f4")})

    found = entry(audit(tmp_path, proto), "w")

    assert (found.tensor.numel, found.tensor.nbytes, found.parameters) == (0, 0, 0)


def test_note_on_a_value_of_a_nested_graph_is_read_there(tmp_path):
    proto = text_model("""
        g (bool c, float[2] x) => (float[2] y) {
            y = If(c) <then_branch = t () => (float[2] a) <float[2] w = {1, 2}> { a = Mul(x, w) },
                       else_branch = e () => (float[2] b) <float[2] w = {3, 4}> { b = Sub(x, w) }>
        }
    """)
    branch = proto.graph.node[0].attribute[0].g
    branch.value_info.add(name="w").metadata_props.add(key=INPUT_KIND, value="PARAMETER")

    ledger = audit(tmp_path, proto)

    assert entry(ledger, "w", "If_0.then_branch").decided_by == "provenance:input-spec"
    assert entry(ledger, "w", "If_0.else_branch").decided_by == "none:no-rule"


def test_function_called_twice_stores_its_constants_once(tmp_path):
    proto = text_model("""
        <ir_version: 10, opset_import: ["" : 18, "my" : 1]>
        g (float[2] x) => (float[2] y) { h = my.f(x) y = my.f(h) }
        <domain: "my", opset_import: ["" : 18]>
        f (a) => (b) { w = Constant<value = float[2] {1, 2}>() m = MatMul(a, w) b = Relu(m) }
    """)

    ledger = audit(tmp_path, proto)

    assert entry(ledger, "w", "function:my:f").uses == 1
    assert (ledger.parameters, ledger.stored_elements) == (2, 2)


def test_string_list_of_a_classical_operator_is_no_parameter(tmp_path):
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_strings=["a", "b"])

    (found,) = audit(tmp_path, helper.make_model(helper.make_graph([node], "g", [], []))).entries

    assert (found.role, found.parameters, found.tensor.numel) == (Role.CONSTANT, 0, 2)


@pytest.mark.parametrize(("k", "n"), [(10**12, 10**6), (-5, 8), (0, 8)])
def test_a_packed_weight_stands_for_no_more_elements_than_its_bytes_have_room_for(tmp_path, k, n):
    proto = text_model(
        "g (float[1,8] x) => (float[1,8] y) { y = com.microsoft.MatMulNBits <bits=4, block_size=32> (x, w, s) }",
        {"w": np.zeros((8, 1, 4), np.uint8), "s": np.ones(8, np.float32)},
    )
    proto.graph.node[0].attribute.extend([helper.make_attribute("K", k), helper.make_attribute("N", n)])

    assert entry(audit(tmp_path, proto), "w").parameters == 32


def test_scales_that_quantization_named_after_a_weight_are_no_parameters(tmp_path):
    proto = text_model(
        "g (float[1,2] x) => (float[1,3] y) { d = DequantizeLinear(q, s, z) y = MatMul(x, d) }",
        {"q": np.ones((2, 3), np.int8), "s": np.float32(0.1), "z": np.int8(0)},
    )
    for initializer, name in zip(proto.graph.initializer, ("quantized", "scale", "zero_point"), strict=True):
        initializer.name = f"fc.weight_{name}"
    proto.graph.node[0].input[:] = [initializer.name for initializer in proto.graph.initializer]

    roles = {e.tensor.name: e.role.value for e in audit(tmp_path, proto).entries}

    assert roles == {
        "fc.weight_quantized": "parameter",
        "fc.weight_scale": "quantization",
        "fc.weight_zero_point": "quantization",
    }


def test_an_operator_of_an_unknown_domain_is_not_recognized_by_its_name(tmp_path):
    proto = text_model(
        "g (float[1,2] x) => (float[1,3] y) { y = Conv(x, w) }", {"w": np.ones((2, 3), np.float32)}
    )
    proto.graph.node[0].domain = "acme"

    assert entry(audit(tmp_path, proto), "w").decided_by == "none:no-rule"


def test_names_behind_those_of_inlined_graphs_count_as_without_them(tmp_path):
    weights = {
        f"F0::branch__{name}": np.arange(1, 3, dtype=np.float32) for name in ("stft.window_buffer", "fc.bias")
    }
    buffer, bias = weights
    proto = text_model(
        f'g (float[2] x) => (float[2] z) {{ y = Mul(x, "{buffer}") z = Add(y, "{bias}") }}', weights
    )

    ledger = audit(tmp_path, proto)

    assert (entry(ledger, buffer).role, entry(ledger, buffer).decided_by) == (Role.BUFFER, "name:buffer")
    assert (entry(ledger, bias).role, entry(ledger, bias).scope) == (Role.PARAMETER, "F0::branch__fc")


def test_each_file_of_an_artifact_is_judged_as_what_wrote_it_names_things(tmp_path):
    for file, producer in (("decoder", "tf2onnx"), ("encoder", "pytorch")):
        proto = text_model(
            "g (float[1,3] x) => (float[1,2] y) { h = MatMul(x, w) y = Add(h, final_logits_bias) }",
            {"w": ramp(3, 2), "final_logits_bias": ramp(1, 2)},
        )
        proto.producer_name = producer
        onnx.save(proto, tmp_path / f"{file}.onnx")

    ledger = audit_model(tmp_path, artifact=True)

    assert [(e.tensor.graph_path[0], e.decided_by) for e in ledger.entries if e.tensor.name != "w"] == [
        ("decoder", "structure:Add-vector"),
        ("encoder", "name:buffer"),
    ]


def test_scale_is_in_the_scope_of_the_codes_that_it_belongs_to(tmp_path):
    proto = text_model(
        'g (float[1,2] x) => (float[1,3] y) { d = DequantizeLinear("fc.weight_quantized", s) y = MatMul(x, d) }',
        {"fc.weight_quantized": np.ones((2, 3), "i1"), "s": np.float32(0.1)},
    )

    found = entry(audit(tmp_path, proto), "s")

    assert (found.scope, found.scoped_by) == ("fc", "structure:scale")


@pytest.mark.parametrize("nodes", ["", "y = Relu(x)"])
def test_tensor_that_a_model_returns_is_not_learned_for_that(tmp_path, nodes):
    outputs = "float[2] logits, float[2] y" if nodes else "float[2] logits"
    proto = text_model(f"g (float[2] x) => ({outputs}) <float[2] logits = {{1, 2}}> {{ {nodes} }}")

    ledger = audit(tmp_path, proto)

    assert (entry(ledger, "logits").role, ledger.parameters) == (Role.UNATTRIBUTED, 0)


def test_name_shows_what_is_learned_in_a_model_without_nodes(tmp_path):
    proto = text_model('g () => (float[2] "wte.weight") <float[2] "wte.weight" = {1, 2}> { }')

    assert entry(audit(tmp_path, proto), "wte.weight").decided_by == "name:parameter"


def test_scale_that_the_graph_annotates_is_quantization(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) <float[2] s = {1, 2}> { y = Zap(x, s) }")
    annotation = proto.graph.quantization_annotation.add(tensor_name="x")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")

    found = entry(audit(tmp_path, proto), "s")

    assert (found.role, found.decided_by) == (Role.QUANTIZATION, "provenance:quantization-annotation")


@pytest.mark.parametrize(
    ("name", "producer", "rule"),
    [
        ("final_logits_bias", "pytorch", "name:buffer"),
        ("final_logits_bias", "tf2onnx", "structure:Add-vector"),
        ("version", "pytorch", "structure:Add-vector"),
        ("add_mask", "pytorch", "structure:Add-vector"),
    ],
)
def test_buffer_of_the_outermost_module_has_a_name_without_dots(tmp_path, name, producer, rule):
    proto = text_model(
        f"g (float[1,3] x) => (float[1,2] y) {{ h = MatMul(x, w) y = Add(h, {name}) }}",
        {"w": ramp(3, 2), name: ramp(1, 2)},
    )
    proto.producer_name = producer

    found = entry(audit(tmp_path, proto), name)

    assert (found.decided_by, found.sources) == (rule, (name,) if rule == "name:buffer" else ())


def test_shape_that_was_folded_from_a_weight_and_others_is_a_constant(tmp_path):
    proto = text_model("g (float[2,3] x) => (float[6] y) { y = Reshape(x, s) }", {"s": np.array([6])})

    found = entry(audit(tmp_path, dynamo_like(proto, folded={"s": ["fc.weight", "val_3"]})), "s")

    assert (found.role, found.decided_by) == (Role.CONSTANT, "provenance:folded-shape")


@pytest.mark.parametrize(
    ("props", "role", "rule"),
    [
        ({INPUT_KIND: "PARAMETER"}, "parameter", "provenance:input-spec"),
        ({FOLDED_FROM: "['fc.num_batches_tracked']"}, "buffer", "provenance:folded-from"),
        ({FOLDED_FROM: "['fc.weight']"}, "constant", "provenance:folded-shape"),
    ],
)
@pytest.mark.parametrize("dtype", ["i1", "i8"])
def test_integers_are_a_shape_only_where_they_were_folded_from_a_weight(tmp_path, props, role, rule, dtype):
    proto = text_model(
        "g (float[2,3] x) => (float[6] y) { y = Zap(x, val_9) }", {"val_9": np.array([6, 7], dtype)}
    )

    found = entry(audit(tmp_path, with_origins(proto, {"val_9": props})), "val_9")

    assert (found.role.value, found.decided_by) == (role, rule)


@pytest.mark.parametrize("noted", ["val_9", "val_9_quantized"])
def test_codes_are_what_their_note_says_or_that_on_the_float_that_they_stand_for(tmp_path, noted):
    proto = text_model(
        "g (float[1,2] x) => (float[1,3] y) { d = DequantizeLinear(val_9_quantized, s) y = MatMul(x, d) }",
        {"val_9_quantized": np.ones((2, 3), "i1"), "s": np.float32(0.1)},
    )

    ledger = audit(tmp_path, with_origins(proto, {noted: {FOLDED_FROM: "['fc.weight']"}}))

    found = entry(ledger, "val_9_quantized")
    assert (found.role, found.decided_by) == (Role.PARAMETER, "provenance:folded-from")
    assert (found.sources, found.scoped_by) == (("fc.weight",), "provenance:folded-from")


# tensors that PyTorch's tracer makes


def normalized(scale: str, bias: str, text: str = "") -> onnx.ModelProto:
    proto = text_model(
        text or "g (float[2,3] x) => (float[2,3] y) { y = LayerNormalization(x, scale, bias) }",
        {"scale": ramp(3), "bias": np.zeros(3, "f4")},
    )
    for tensor, name in zip(proto.graph.initializer, (scale, bias), strict=True):
        for node in proto.graph.node:
            node.input[:] = [name if value == tensor.name else value for value in node.input]
        tensor.name = name
    return proto


@pytest.mark.parametrize(
    ("scale", "bias", "role", "rule"),
    [
        ("norm.weight", "/norm/Constant_output_0", "constant", "name:traced-constant"),
        ("norm.weight", "/Constant_12_output_0", "constant", "name:traced-constant"),
        ("norm.weight", "norm.bias", "parameter", "name:parameter"),
        ("norm.weight", "onnx::Add_7", "parameter", "structure:LayerNormalization[2]"),
        ("norm.weight", "/norm/Add_output_0", "parameter", "structure:LayerNormalization[2]"),
        (
            "/norm/Constant_output_0",
            "/norm/Constant_1_output_0",
            "parameter",
            "structure:LayerNormalization[2]",
        ),
    ],
)
def test_constant_of_the_tracer_beside_a_named_weight_is_no_bias(tmp_path, scale, bias, role, rule):
    found = entry(audit(tmp_path, normalized(scale, bias)), bias)

    assert (found.role.value, found.decided_by) == (role, rule)


def test_constant_of_the_tracer_in_a_node_of_its_own_is_no_bias_either(tmp_path):
    proto = normalized("norm.weight", "/norm/Constant_output_0")
    value = proto.graph.initializer.pop()
    proto.graph.node.insert(0, helper.make_node("Constant", [], [value.name], value=value))

    assert entry(audit(tmp_path, proto), value.name).decided_by == "name:traced-constant"


def test_constant_of_the_tracer_that_was_quantized_is_no_bias_either(tmp_path):
    proto = text_model(
        """
        g (float[2,3] x) => (float[2,3] y) {
            w = DequantizeLinear(wq, s) b = DequantizeLinear(bq, s) y = LayerNormalization(x, w, b)
        }
        """,
        {"wq": np.array([1, 2, 3], "i1"), "bq": np.zeros(3, "i4"), "s": np.float32(0.1)},
    )
    names = {"wq": "norm.weight_quantized", "bq": "/norm/Constant_output_0_quantized"}
    for tensor in proto.graph.initializer[:2]:
        tensor.name = names[tensor.name]
    for node in proto.graph.node[:2]:
        node.input[0] = names[node.input[0]]

    assert entry(audit(tmp_path, proto), names["bq"]).decided_by == "name:traced-constant"


def test_codes_have_the_name_of_the_weight_that_they_encode(tmp_path):
    proto = text_model(
        'g (float[1,2] x) => (float[1,3] y) { d = DequantizeLinear("fc.weight_quantized", s) y = MatMul(x, d) }',
        {"fc.weight_quantized": np.ones((2, 3), "i1"), "s": np.float32(0.1)},
    )

    found = entry(audit(tmp_path, proto), "fc.weight_quantized")

    assert (found.role, found.decided_by, found.sources) == (Role.PARAMETER, "name:parameter", ("fc.weight",))


def test_scale_is_known_where_the_arithmetic_applies_it_later(tmp_path):
    proto = text_model(
        """
        g (uint8[1,2] x, float[1] a) => (float[1,3] y) {
            p = MatMulInteger(x, w) c = Cast<to = 1>(p) m = Mul(a, s) y = Mul(c, m)
        }
        """,
        {"w": np.ones((2, 3), "i1"), "s": ramp(3)},
    )

    found = entry(audit(tmp_path, proto), "s")

    assert (found.role, found.decided_by) == (Role.QUANTIZATION, "structure:scale")


@pytest.mark.parametrize(
    ("number", "operands", "role", "rule"),
    [
        pytest.param(0.0, "at, u", "constant", "content:filler", id="zeros that are written into"),
        pytest.param(-np.inf, "at, u", "constant", "content:filler", id="a mask that is opened"),
        pytest.param(None, "at, u", "parameter", "structure:MatMul[0]", id="numbers that may be learned"),
        pytest.param(0.0, None, "parameter", "structure:MatMul[0]", id="nothing is written"),
        pytest.param(0.0, "u", "parameter", "structure:MatMul[0]", id="zeros beside what is computed"),
        pytest.param(1.0, "u", "parameter", "structure:MatMul[0]", id="ones beside it, as a bias would have"),
        pytest.param(1.0, "at, u", "parameter", "structure:MatMul[0]", id="ones that are written into"),
    ],
)
def test_one_number_into_which_others_are_written_is_no_weight(tmp_path, number, operands, role, rule):
    """`zeros_like(p).scatter(-1, at, p)` of a router: the exporter or a tool stores the zeros.

    Zeros concatenated with computed values may be an untrained token.
    """
    written = f"g = ScatterElements <axis = 1> (z, {operands})" if operands else "g = Identity(z)"
    if operands == "u":
        written = "g = Concat <axis = 1> (z, u)"
    proto = text_model(
        f"g (int64[3,2] at, float[3,2] u, float[k,2] v) => (float[3,2] y) {{ {written} y = MatMul(g, v) }}",
        {"z": noise(3, 4) if number is None else np.full((3, 4), number, np.float32)},
    )

    found = entry(audit(tmp_path, proto), "z")

    assert (found.role.value, found.decided_by) == (role, rule)
