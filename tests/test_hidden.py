"""PyTorch parameters that a file hides: reported as a range with a reason, and judged as one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from commands import run_here as run
from models import dynamo_like, noise, save, text_model

from analyzer.account.audit import audit_model
from analyzer.account.ledger import Ledger, Role
from analyzer.documents.saved import load_report

Array = npt.NDArray[np.generic]

LAYER = "g (float[1,3,6,6] x) => (float[1,4,4,4] y) { y = Conv(x, %s) }"
TWO = 'g (float[1,3,6,6] x) => (float[1,4,4,4] y) { h = Conv(x, %s) y = Conv(h, "head.weight", "head.bias") }'
HEAD: dict[str, Array] = {"head.weight": noise(4, 4, 1, 1, seed=9), "head.bias": noise(4, seed=8)}


def convolve(folder: Path, weight: str, bias: str | None, *, notes: tuple[str, ...] | None = None) -> Ledger:
    """Audit a convolution of 108 elements, perhaps with a bias of 4, before one of 20 with PyTorch names."""
    names = ", ".join(f'"{name}"' for name in (weight, bias) if name)
    tensors = {weight: noise(4, 3, 3, 3), **HEAD} | ({bias: noise(4, seed=1)} if bias else {})
    proto = text_model(TWO % names, tensors)
    return audit_model(save(folder, proto if notes is None else dynamo_like(proto, parameters=notes)))


def span(ledger: Ledger) -> tuple[int, int, int | None]:
    return ledger.parameters, ledger.parameters_at_least, ledger.parameters_at_most


@pytest.mark.parametrize(
    ("weight", "bias"),
    [
        ("onnx::Conv_28", "onnx::Conv_29"),
        ("497", "498"),
        ("_v_36", "_v_37"),
        ("getitem_3_weight", "getitem_3_bias"),
        ("/a/BatchNormalization_output_0_weight", "/a/BatchNormalization_output_0_bias"),
        ("ConvBnFusion_W_a.0.weight", "ConvBnFusion_BN_B_a.1.bias"),
        ("a.0.weight", "a.0.weight_bias"),
        ("block1-0.weight", "block1-0.weight_bias"),
    ],
)
def test_a_folded_norm_hides_once_or_twice_as_many_parameters_as_it_has_channels(
    weight: str, bias: str, tmp_path: Path
) -> None:
    assert span(convolve(tmp_path, weight, bias)) == (132, 136, 140)


def test_a_norm_that_left_the_names_is_detected_in_codes_too(tmp_path: Path) -> None:
    """Dynamic int8 adds the convolution's bias in a node after it, and passes notes on with the weight."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    proto = text_model(
        TWO % '"a.weight", "a.bias"', {"a.weight": noise(4, 3, 3, 3), "a.bias": noise(4, seed=1), **HEAD}
    )
    folded = save(tmp_path, dynamo_like(proto, parameters=("head.weight", "head.bias")))
    quantize_dynamic(folded, tmp_path / "int8.onnx", weight_type=QuantType.QUInt8)

    assert span(audit_model(tmp_path / "int8.onnx")) == span(audit_model(folded)) == (132, 136, 140)


def test_missing_notes_show_a_norm_that_left_the_names(tmp_path: Path) -> None:
    folded = convolve(tmp_path, "a.weight", "a.bias", notes=("head.weight", "head.bias"))
    kept = convolve(tmp_path, "a.weight", "a.bias", notes=("head.weight", "head.bias", "a.weight", "a.bias"))
    rewritten = convolve(tmp_path, "a.weight", "a.bias")  # without any notes, no conclusion is possible

    assert [span(each) for each in (folded, kept, rewritten)] == [(132, 136, 140), (132,) * 3, (132,) * 3]


@pytest.mark.parametrize("weight", ["onnx::Conv_21", "/c/Mul_output_0"])
def test_a_kernel_without_its_name_has_an_unknown_number_of_parameters(weight: str, tmp_path: Path) -> None:
    ledger = convolve(tmp_path, weight, "a.bias")

    assert span(ledger) == (132, 24, None)


def test_where_nothing_has_a_pytorch_name_the_file_is_counted_as_it_stands(tmp_path: Path) -> None:
    proto = text_model(LAYER % "kernel, shift", {"kernel": noise(4, 3, 3, 3), "shift": noise(4)})

    assert span(audit_model(save(tmp_path, proto))) == (112, 112, 112)


TABLE = (
    'g (float[1,6,8] x) => (float[1,6,8] y) { h = Add(x, %s) n = MatMul(h, "l.weight") y = Add(n, "l.bias") }'
)


@pytest.mark.parametrize("name", ["onnx::Add_33", "/pos/Slice_output_0", "slice_1", "_v_4"])
def test_rows_of_a_table_that_lost_its_name_are_of_an_unknown_number(name: str, tmp_path: Path) -> None:
    kept: dict[str, Array] = {"l.weight": noise(8, 8), "l.bias": noise(8, seed=2)}
    proto = text_model(TABLE % f'"{name}"', {name: noise(1, 6, 8, seed=3), **kept})
    intact = text_model(TABLE % '"position"', {"position": noise(1, 6, 8, seed=3), **kept})
    sources = ["pos", "val_0", "val_1"]

    assert span(audit_model(save(tmp_path, proto))) == (72, 72, None)
    assert span(audit_model(save(tmp_path, intact))) == (
        72,
        72,
        120,
    )  # it may be a whole parameter
    noted = dynamo_like(intact, folded={"position": sources})
    assert span(audit_model(save(tmp_path, noted))) == (72, 72, None)
    made = dynamo_like(intact, folded={"position": ["arange", "exp", "val_0"]})
    assert span(audit_model(save(tmp_path, made))) == (72, 72, 120)


def test_what_a_note_says_was_computed_with_other_values_is_of_an_unknown_number(tmp_path: Path) -> None:
    proto = text_model(TABLE % "rows", {"rows": noise(1, 6, 8), "l.weight": noise(8, 8), "l.bias": noise(8)})
    noted = dynamo_like(proto, folded={"rows": ["p.weight", "val_1"]}, parameters=("l.weight", "l.bias"))
    ledger = audit_model(save(tmp_path, noted))

    assert span(ledger) == (120, 72, None)
    assert (
        "48 elements computed from an unknown number of parameters"
        in run("inspect", ledger.model.path).stdout
    )


NORM = """
    g (float[1,4,3,3] x) => (float[1,4,3,3] y) {
        h = Conv(x, "c.weight", "c.bias") n = InstanceNormalization(h, ones, zeros) s = Mul(n, "%s") y = Add(s, "%s")
    }
"""


def test_the_scale_and_shift_of_a_norm_written_out_are_known_though_they_lost_their_names(
    tmp_path: Path,
) -> None:
    vectors: dict[str, Array] = {"onnx::Mul_42": noise(4, 1, 1), "onnx::Add_43": noise(4, 1, 1, seed=4)}
    layer: dict[str, Array] = {"c.weight": noise(4, 4, 1, 1), "c.bias": noise(4, seed=5)}
    proto = text_model(
        NORM % tuple(vectors), {**layer, **vectors, "ones": np.ones(4, "f4"), "zeros": np.zeros(4, "f4")}
    )
    ones = [tensor for tensor in proto.graph.initializer if tensor.name in ("ones", "zeros")]
    for tensor, name in zip(ones, ("/g/Constant_1_output_0", "/g/Constant_2_output_0"), strict=True):
        proto.graph.node[1].input[1 + (tensor.name == "zeros")] = name
        tensor.name = name

    assert span(audit_model(save(tmp_path, proto))) == (28, 28, 28)


def _with_constant(name: str, weight: str, *, is_node: bool) -> onnx.ModelProto:
    values = (np.linspace(0.3, 7.7, 64) ** 2).astype("f4")
    text = f'g (float[1,8] x) => (float[1,64] y) {{ h = MatMul(x, "{weight}") y = Mul(h, "{name}") }}'
    proto = text_model(text, {weight: noise(8, 64), name: values})
    proto.producer_name = "pytorch"
    if is_node:
        tensor = proto.graph.initializer.pop()
        assert tensor.name == name
        proto.graph.node.insert(0, onnx.helper.make_node("Constant", [], [name], value=tensor))
    return proto


@pytest.mark.parametrize("is_node", [True, False], ids=["as a node", "lifted"])
def test_a_value_of_the_trace_is_no_parameter_beside_parameters_with_names(
    is_node: bool, tmp_path: Path
) -> None:
    proto = _with_constant("/Constant_5_output_0", "l.weight", is_node=is_node)
    ledger = audit_model(save(tmp_path, proto))
    (entry,) = (entry for entry in ledger.entries if entry.tensor.name.startswith("/Constant"))

    assert (entry.role, entry.decided_by) == (Role.CONSTANT, "name:traced-constant")
    assert span(ledger) == (512, 512, 512)


def test_where_no_initializer_has_a_name_a_constant_may_be_a_weight(tmp_path: Path) -> None:
    proto = _with_constant("/Constant_5_output_0", "weights", is_node=True)

    assert span(audit_model(save(tmp_path, proto))) == (576, 576, 576)


def test_a_constant_with_the_content_of_a_parameter_is_its_copy(tmp_path: Path) -> None:
    text = (
        'g (float[1,8] x) => (float[1,8] y) { h = MatMul(x, "l.weight") y = MatMul(h, "/Constant_output_0") }'
    )
    weight = noise(8, 8)
    ledger = audit_model(save(tmp_path, text_model(text, {"l.weight": weight, "/Constant_output_0": weight})))

    assert [entry.copy_of for entry in ledger.entries] == [None, ((), "l.weight")]
    assert span(ledger) == (64, 64, 64)


def test_the_headline_and_every_document_say_what_is_hidden_and_why(tmp_path: Path) -> None:
    path = convolve(tmp_path, "onnx::Conv_28", "onnx::Conv_29").model.path
    text, document = run("inspect", path).stdout, json.loads(run("inspect", path, "--format", "json").stdout)
    marked = run("inspect", path, "--format", "markdown").stdout
    tensor = next(each for each in document["tensors"] if each["name"] == "onnx::Conv_29")
    reason = "1 layer with a BatchNorm folded in hides how many parameters PyTorch had"

    assert "132 parameters   4 to 8 more in PyTorch" in text
    assert f"PyTorch's count is uncertain: {reason}" in " ".join(text.split())
    assert "**132 parameters** · 4 to 8 more in PyTorch" in marked
    assert reason in marked
    assert document["totals"]["parameters_unsettled"] == [reason]
    assert tensor["hides"] == {"at_least": 4, "at_most": 8, "why": "batchnorm"}


@pytest.mark.child
def test_the_table_of_many_models_has_the_range_of_each_and_of_all(tmp_path: Path) -> None:
    for name, weight, bias in (("norm", "onnx::Conv_28", "onnx::Conv_29"), ("plain", "a.weight", "a.bias")):
        (tmp_path / name).mkdir()
        convolve(tmp_path / name, weight, bias)
    both = run("inspect", tmp_path).stdout.splitlines()
    (tmp_path / "none").mkdir()
    convolve(tmp_path / "none", "onnx::Conv_21", "a.bias")
    unbound = run("inspect", tmp_path).stdout.splitlines()
    plain = run("inspect", tmp_path / "plain" / "model.onnx", tmp_path / "plain").stdout

    rows = {line.split()[0]: " ".join(line.split()) for line in both if line}
    assert "model parameters in PyTorch" in rows["model"]
    assert rows["norm/model.onnx"].startswith("norm/model.onnx 132 136 to 140 ")
    assert rows["plain/model.onnx"].startswith("plain/model.onnx 132 ")
    assert " to " not in rows["plain/model.onnx"]
    assert rows["total"].startswith("total 264 268 to 272 ")
    assert any("132 24 or more" in " ".join(line.split()) for line in unbound)
    assert any("total 396 292 or more" in " ".join(line.split()) for line in unbound)
    assert "in PyTorch" not in plain


@pytest.mark.parametrize(
    ("limit", "code", "answer"),
    [
        ("140", 0, "PASS"),
        ("139", 2, "between 136 and 140"),
        ("136", 2, "between 136 and 140"),
        ("135", 1, "FAIL"),
    ],
)
def test_a_budget_judges_all_that_pytorch_may_have_had(
    limit: str, code: int, answer: str, tmp_path: Path
) -> None:
    path = convolve(tmp_path, "onnx::Conv_28", "onnx::Conv_29").model.path
    result = run("check", path, "--max-parameters", limit)

    assert result.returncode == code
    assert answer in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("limit", "observed", "room"),
    [
        ("at most 150", 140, "10 (6.7 %)"),
        ("at most 130", 136, "6 over"),
        ("at least 130", 136, "6 (4.6 %)"),
        ("at least 150", 140, "10 too low"),
    ],
)
def test_the_end_of_the_range_nearest_to_the_limit_is_judged(
    limit: str, observed: int, room: str, tmp_path: Path
) -> None:
    path = convolve(tmp_path, "onnx::Conv_28", "onnx::Conv_29").model.path
    config = tmp_path / "budget.toml"
    config.write_text(f'[[rules]]\nname = "count"\nmetric = "parameters"\nlimit = "{limit}"\n')

    done = run("check", path, "--config", config, "--format", "json")
    printed = run("check", path, "--config", config).stdout

    assert done.stdout, done.stderr
    (rule,) = json.loads(done.stdout)["rules"]
    assert (rule["observed"], rule["observed_least"], rule["observed_most"]) == (observed, 136, 140)
    assert rule["exceeded_by"] in (None, abs(observed - int(limit.split()[-1])))
    assert "136 to 140" in printed
    assert room in printed


def test_the_parts_of_a_range_add_up_to_its_end(tmp_path: Path) -> None:
    path = convolve(tmp_path, "onnx::Conv_28", "onnx::Conv_29").model.path

    (rule,) = json.loads(run("check", path, "--max-parameters", "130", "--format", "json").stdout)["rules"]

    parts = {part["name"]: part["value"] for part in rule["contributors"]}
    assert parts["[more in PyTorch]"] == 4
    assert sum(parts.values()) == rule["observed"] == 136


@pytest.mark.parametrize(("limit", "code"), [("1B", 2), ("23", 1)])
def test_what_has_no_bound_passes_no_budget(limit: str, code: int, tmp_path: Path) -> None:
    path = convolve(tmp_path, "onnx::Conv_21", "a.bias").model.path

    assert run("check", path, "--max-parameters", limit).returncode == code


def test_what_is_hidden_as_in_the_baseline_has_not_grown(tmp_path: Path) -> None:
    path = convolve(tmp_path, "onnx::Conv_28", "onnx::Conv_29").model.path
    report = tmp_path / "base.json"
    report.write_text(run("inspect", path, "--format", "json").stdout)
    (tmp_path / "other").mkdir()
    other = convolve(tmp_path / "other", "a.weight", "a.bias").model.path
    rule = ("--max-parameters", "+0", "--baseline", report, "--baseline-any")

    assert run("check", path, *rule).returncode == 0
    assert run("check", other, *rule).returncode == 2
    assert span(load_report(report)) == (132, 136, 140)


WORDS, OWN = noise(40, 6, seed=21), noise(40, 3, seed=22)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_nameless_matrix_with_a_tables_words_in_it_may_count_these_twice(
    is_first: bool, tmp_path: Path
) -> None:
    parts = [WORDS.T, OWN.T]
    tensors = {
        "words.weight": WORDS,
        "onnx::MatMul_9": np.concatenate(parts if is_first else parts[::-1]),
        **HEAD,
    }
    text = """g (int64[2] i, float[2,9] x) => (float[2,40] y, float[2,6] t) {
        t = Gather("words.weight", i)  y = MatMul(x, "onnx::MatMul_9")
    }"""

    ledger = audit_model(save(tmp_path, text_model(text, tensors)))

    assert span(ledger) == (
        600 + sum(a.size for a in HEAD.values()),
        360 + sum(a.size for a in HEAD.values()),
        ledger.parameters,
    )


def test_a_matrix_with_other_words_counts_as_it_stands(tmp_path: Path) -> None:
    tensors = {"words.weight": WORDS, "onnx::MatMul_9": noise(9, 40, seed=4), **HEAD}
    text = """g (int64[2] i, float[2,9] x) => (float[2,40] y, float[2,6] t) {
        t = Gather("words.weight", i)  y = MatMul(x, "onnx::MatMul_9")
    }"""

    ledger = audit_model(save(tmp_path, text_model(text, tensors)))

    assert ledger.parameters_at_least == ledger.parameters_at_most == ledger.parameters


@pytest.mark.parametrize(("name", "least"), [("val_89", 64), ("pos.weight", 112)])
def test_positions_that_lost_their_name_may_be_a_buffer(name: str, least: int, tmp_path: Path) -> None:
    angles = np.arange(12.0)[:, None] * 10_000.0 ** (-np.arange(0, 4, 2) / 4)
    table = np.concatenate([np.sin(angles), np.cos(angles)], 1).astype("f4")
    proto = text_model(
        f'g (int64[3] i) => (float[3,8] y) {{ h = Gather("{name}", i) y = MatMul(h, "l.weight") }}',
        {name: table, "l.weight": noise(4, 16, seed=2)},
    )

    ledger = audit_model(save(tmp_path, proto))

    assert span(ledger) == (112, least, 112)


@pytest.mark.parametrize(("state", "fewer"), [(0.0, 8), (1.0, 0)])
def test_zeros_that_fill_a_recurrent_bias_up_may_be_no_parameters(
    state: float, fewer: int, tmp_path: Path
) -> None:
    bias = np.concatenate([noise(1, 8), np.full((1, 8), state, np.float32)], axis=1)
    proto = text_model(
        "g (float[5,1,3] x) => (float[5,1,1,2] y) { y = LSTM <hidden_size = 2> (x, w, r, b) }",
        {"w": noise(1, 8, 3), "r": noise(1, 8, 2, seed=1), "b": bias},
    )

    assert span(audit_model(save(tmp_path, proto))) == (56, 56 - fewer, 56)


def test_numbers_that_no_rule_explains_widen_the_range_however_few(tmp_path: Path) -> None:
    proto = text_model("g (float[2,3] x) => (float[2,3] y) { y = Sub(x, mean) }", {"mean": noise(3)})

    assert span(audit_model(save(tmp_path, proto))) == (0, 0, 3)


def test_a_name_that_only_a_parameter_has_needs_no_module(tmp_path: Path) -> None:
    proto = text_model(
        "g (float[1,5,4] x) => (float[1,5,4] y) { y = Add(x, pos_embed) }", {"pos_embed": noise(1, 5, 4)}
    )
    other = span(audit_model(save(tmp_path, proto)))
    proto.producer_name = "pytorch"

    assert (other[0], span(audit_model(save(tmp_path, proto)))) == (0, (20, 20, 20))


def test_zeros_that_an_exporter_computed_of_a_weight_may_be_no_parameters(tmp_path: Path) -> None:
    def exported(result: Array) -> Ledger:
        text = "g (float[2,4] x) => (float[2,4] y) { h = MatMul(x, val_1) y = Add(h, linear_1) }"
        proto = text_model(text, {"val_1": noise(4, 4), "linear_1": result})
        return audit_model(
            save(
                tmp_path,
                dynamo_like(
                    proto, folded={"val_1": ["rnn.weight_hh_l0"], "linear_1": ["rnn.weight_hh_l0", "zeros"]}
                ),
            )
        )

    assert span(exported(np.zeros((2, 4), np.float32))) == (24, 16, 24)
    assert span(exported(noise(2, 4))) == (24, 24, 24)


def test_a_norm_that_tf2onnx_folded_is_known_by_the_name_of_its_shift(tmp_path: Path) -> None:
    def converted(bias: str) -> Ledger:
        weights = {"k/merged_input:0": noise(4, 3, 3, 3), bias: noise(4, seed=1)}
        proto = text_model(LAYER % f'"k/merged_input:0", "{bias}"', weights)
        return audit_model(save(tmp_path, proto))

    assert span(converted("net/bn_1/batchnorm/sub:0")) == (112, 112, 120)
    assert span(converted("net/conv/BiasAdd:0")) == (112, 112, 112)


CODEBOOK = """g (float[7,8] x, int64[7] at) => (float[7,12] d, float[7,6] y) {
    d = MatMul(x, transpose_8) y = Gather("words.weight", at)
}"""


@pytest.mark.parametrize("has_notes", [True, False])
@pytest.mark.parametrize("beside", ["squares", "others"])
def test_what_distances_to_a_codebook_take_of_it_is_in_the_range(
    tmp_path: Path, beside: str, has_notes: bool
) -> None:
    """`cdist` joins ones and squares to the words; any other joined column may be learned."""
    words = noise(12, 6, seed=4)
    more = np.square(words).sum(1, keepdims=True) if beside == "squares" else noise(12, 1, seed=5)
    joined = np.concatenate([words, np.ones((12, 1), np.float32), more], 1)
    proto = text_model(CODEBOOK, {"words.weight": words, "transpose_8": np.ascontiguousarray(joined.T)})
    if has_notes:
        folded = {"transpose_8": ["cat", "words.weight"]}
        proto = dynamo_like(proto, parameters=("words.weight",), folded=folded)

    ledger = audit_model(save(tmp_path, proto))

    is_known = beside == "squares" or has_notes
    assert ledger.parameters_at_least == (72 if is_known else 96)


def test_a_number_that_was_computed_of_a_vector_leaves_the_count_open(tmp_path: Path) -> None:
    """The exporter stores `(1 + eps[0]) * h` as one number for each layer."""
    body = 'g (float[2,4] x) => (float[2,3] y) { h = Mul(x, add_2) y = MatMul(h, "out.weight") }'
    numbers = {"add_2": np.array(1.3, np.float32), "out.weight": noise(4, 3)}
    made = ["scalar_tensor_default_1", "select_7", "val_9"]

    def count_with(*sources: str) -> tuple[int, int, int | None]:
        proto = dynamo_like(
            text_model(body, numbers), parameters=("out.weight",), folded={"add_2": [*sources, *made]}
        )
        return span(audit_model(save(tmp_path, proto)))

    assert count_with("eps") == (12, 12, None)
    assert count_with() == (12, 12, 12)
    assert span(audit_model(save(tmp_path, text_model(body, numbers)))) == (12, 12, 13)  # a tool left no note


BANKS = """
    g (float[2, 6] x) => (float[2, 6] y) {
        h = MatMul(x, "%s")
        r = Relu(h)
        t = MatMul(r, "%s")
        y = Gemm(t, "head.weight", "head.bias")
    }
"""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("onnx::MatMul_31", "onnx::MatMul_32"), (66, 66, 90)),  # 24 elements, 24 equal ones, 36 and 6
        (("bank.weight", "onnx::MatMul_32"), (66, 66, 66)),  # tied: the first has PyTorch's name
        (("onnx::MatMul_31", "inverse.weight"), (66, 66, 66)),
    ],
)
def test_a_copy_may_be_a_parameter_of_its_own_if_pytorchs_names_are_gone(
    names: tuple[str, str], expected: tuple[int, int, int], tmp_path: Path
) -> None:
    bank = noise(6, 4)
    tensors = {
        names[0]: bank,
        names[1]: bank.T.copy(),
        "head.weight": noise(6, 6, seed=2),
        "head.bias": noise(6, seed=3),
    }

    ledger = audit_model(save(tmp_path, text_model(BANKS % names, tensors)))

    assert span(ledger) == expected
    if expected[2] > 66:
        printed = " ".join(run("inspect", ledger.model.path).stdout.split())
        assert "0 to 24 more in PyTorch" in printed
        assert "1 tensor has the content of another, and may be a parameter of its own" in printed
        assert run("check", ledger.model.path, "--max-parameters", "70").returncode == 2


def test_a_weight_that_a_tool_stored_for_each_layer_hides_no_copy(tmp_path: Path) -> None:
    """onnxslim does so with the weights that ALBERT's layers share."""
    names = ("onnx::MatMul_31", "onnx::MatMul_32")
    text = BANKS.replace("float[2, 6] x", "float[2, 4] x").replace("[2, 6] y", "[2, 4] y") % names
    tensors = {name: noise(4, 4) for name in names}
    tensors |= {"head.weight": noise(4, 4, seed=2), "head.bias": noise(4, seed=3)}

    assert span(audit_model(save(tmp_path, text_model(text, tensors)))) == (36, 36, 36)


def test_a_weight_that_two_nodes_read_hides_no_copy(tmp_path: Path) -> None:
    text = BANKS.replace("float[2, 6] x", "float[2, 4] x").replace("[2, 6] y", "[2, 4] y") % (
        ("onnx::MatMul_31",) * 2
    )
    tensors = {
        "onnx::MatMul_31": noise(4, 4),
        "head.weight": noise(4, 4, seed=2),
        "head.bias": noise(4, seed=3),
    }

    assert span(audit_model(save(tmp_path, text_model(text, tensors)))) == (36, 36, 36)
