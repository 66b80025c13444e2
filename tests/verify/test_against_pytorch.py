"""A file beside PyTorch's module: honest exports compute the same; a fault is reported at its module with its cause."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from commands import run_here
from onnx import helper
from samples import sampled

from analyzer.schemas import load_schema

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.time, pytest.mark.export, pytest.mark.usefixtures("forked_children")]

CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 300,
    "max_position_embeddings": 64,
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify")
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    assert run_here("export", folder, "--random-weights", "-o", folder / "out", "--quiet").returncode == 0
    return folder / "out"


def verify(model: Path, *options: object) -> tuple[int, dict[str, object]]:
    result = run_here("verify", model, *options, "--format", "json", "--seed", 0)
    document = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("verify"))
    return result.returncode, document


def test_an_export_computes_what_its_module_does(exported: Path) -> None:
    code, document = verify(exported / "model.onnx")

    assert (code, document["same"], document["first"]) == (0, True, None)
    assert [each["name"] for each in document["outputs"]] == ["last_hidden_state", "pooler_output"]
    assert {each["name"] for each in document["inputs"]} == {"input_ids", "attention_mask", "token_type_ids"}


def test_inputs_are_read_beside_the_module(exported: Path, tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(3, 300, (2, 9))
    ones = np.ones((2, 9), np.int64)
    np.savez(tmp_path / "in.npz", input_ids=ids, attention_mask=ones, token_type_ids=ones * 0)
    np.save(tmp_path / "ids.npy", ids)

    code, document = verify(exported / "model.onnx", "--input", tmp_path / "in.npz")
    lacking = run_here("verify", exported / "model.onnx", "--input", f"input_ids={tmp_path / 'ids.npy'}")

    assert (code, document["same"]) == (0, True)
    assert {tuple(row["shape"]) for row in document["inputs"]} == {(2, 9)}
    assert {row["file"] for row in document["inputs"]} == {str(tmp_path / "in.npz")}
    assert lacking.returncode == 2
    assert "lacks attention_mask" in lacking.stderr


def epsilon(proto: onnx.ModelProto) -> None:
    node = [each for each in proto.graph.node if each.op_type == "LayerNormalization"][3]
    kept = [each for each in node.attribute if each.name != "epsilon"]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("epsilon", 0.05)])


def activation(proto: onnx.ModelProto) -> None:
    node = next(each for each in proto.graph.node if each.op_type == "Gelu")
    node.op_type = "Relu"
    del node.attribute[:]


def swap(proto: onnx.ModelProto) -> None:
    stored = {tensor.name: list(tensor.dims) for tensor in proto.graph.initializer}
    nodes = [each for each in proto.graph.node if each.op_type == "MatMul" and each.input[1] in stored]
    first, second = [each for each in nodes if stored[each.input[1]] == [64, 64]][:2]
    first.input[1], second.input[1] = second.input[1], first.input[1]


@pytest.mark.parametrize(
    ("fault", "module", "reason"),
    [
        (epsilon, "encoder.layer.1.attention.output.LayerNorm", "epsilon 0.05, and epsilon 1e-12 in PyTorch"),
        (
            activation,
            "encoder.layer.0.intermediate.intermediate_act_fn",
            "Relu, and Gelu in PyTorch",
        ),
        (swap, "encoder.layer.0.attention.self.query", "encoder.layer.0.attention.self.query.weight: "),
    ],
)
def test_a_fault_is_reported_at_its_module(
    fault: Callable[[onnx.ModelProto], None], module: str, reason: str, exported: Path, tmp_path: Path
) -> None:
    proto = onnx.load(exported / "model.onnx")
    fault(proto)
    onnx.save(proto, tmp_path / "model.onnx")

    code, document = verify(tmp_path / "model.onnx", "--against", exported)

    assert (code, document["same"]) == (1, False)
    first = document["first"]
    assert isinstance(first, dict)
    assert first["module"] == module
    assert reason in first["reason"]


def half(source: Path, target: Path) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def dynamic(source: Path, target: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    # codes of 7 bits: CPUs without VNNI saturate a sum of two larger products
    quantize_dynamic(source, target, reduce_range=True)


def static(source: Path, target: Path) -> None:
    ids = np.random.default_rng(0).integers(3, 300, (3, 2, 11))
    others = {"attention_mask": np.ones((2, 11), np.int64), "token_type_ids": np.zeros((2, 11), np.int64)}
    quantize(source, target, [{"input_ids": each, **others} for each in ids], "QDQ")


def quantize(source: Path, target: Path, samples: list[dict[str, object]], form: str) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, object] | None:
            return samples.pop() if samples else None

    quantize_static(source, target, Reader(), quant_format=QuantFormat[form])


def four_bits(source: Path, target: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=True)
    quantizer.process()
    quantizer.model.save_model_to_file(str(target))


def test_what_one_rounded_layer_costs_is_all_that_rounding_costs(exported: Path, tmp_path: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    proto = onnx.load(exported / "model.onnx")
    names = {each.name for each in proto.graph.initializer}
    products = [each.name for each in proto.graph.node if each.op_type == "MatMul" and each.input[1] in names]
    quantizer = MatMulNBitsQuantizer(proto, block_size=32, is_symmetric=True, nodes_to_exclude=products[1:])
    quantizer.process()
    quantizer.model.save_model_to_file(str(tmp_path / "model.onnx"))

    code, document = verify(tmp_path / "model.onnx", "--against", exported)

    assert (code, document["same"]) == (0, True)
    costs = document["costs"]
    assert isinstance(costs, dict)
    (row,) = costs["layers"]
    query = "encoder.layer.0.attention.self.query"
    assert (row["module"], row["float_nbytes"]) == (query, 64 * 64 * 4)
    assert row["nbytes"] == 64 * 64 // 2
    assert row["signal_to_error_db"] == pytest.approx(document["drift_db"], abs=0.5)
    kept = costs["kept"]
    assert (kept["modules"], kept["more_nbytes"]) == ([query], row["float_nbytes"] - row["nbytes"])
    assert kept["signal_to_error_db"] is None or kept["signal_to_error_db"] > 100


FORMS = {"half": half, "dynamic": dynamic, "QDQ": static, "four bits": four_bits}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_with_codes_or_half_precision_computes_pytorchs_function_of_its_weights(
    exported: Path, tmp_path: Path, form: str
) -> None:
    FORMS[form](exported / "model.onnx", tmp_path / "model.onnx")

    code, document = verify(tmp_path / "model.onnx", "--against", exported)

    assert (code, document["same"], document["first"]) == (0, True, None)
    assert not any("cost of rounded weights" in each for each in document["uncovered"])
    costs = document["costs"]
    assert isinstance(costs, dict)
    assert (costs["kept"] is None) == (form == "half")
    alone = [row["signal_to_error_db"] for row in costs["layers"]]
    assert alone == sorted(alone)
    assert min(costs["weights_db"], costs["codes_db"] or 999) == pytest.approx(document["drift_db"], abs=6)
    if form != "half":
        assert costs["kept"]["modules"] == [row["module"] for row in costs["layers"][:3]]
        assert costs["kept"]["signal_to_error_db"] > costs["kept"]["before_db"]


@pytest.mark.parametrize("form", ["half", "dynamic", "QDQ"])
def test_a_fault_in_a_file_with_codes_is_reported_at_its_module(
    exported: Path, tmp_path: Path, form: str
) -> None:
    FORMS[form](exported / "model.onnx", tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    epsilon(proto)
    onnx.save(proto, tmp_path / "model.onnx")

    code, document = verify(tmp_path / "model.onnx", "--against", exported)

    assert code == 1
    first = document["first"]
    assert isinstance(first, dict)
    assert first["module"] == "encoder.layer.1.attention.output.LayerNorm"
    assert "epsilon 0.05, and epsilon 1e-12 in PyTorch" in first["reason"]


def add_gate(proto: onnx.ModelProto) -> None:
    """Add a gate after the first activation."""
    node = next(each for each in proto.graph.node if each.op_type == "Gelu")
    gate = np.random.default_rng(0).normal(1, 0.1, 128).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(gate, "gate"))
    read = [each for each in proto.graph.node if node.output[0] in each.input]
    for each in read:
        each.input[[*each.input].index(node.output[0])] = "gated"
    place = [*proto.graph.node].index(node)
    proto.graph.node.insert(place + 1, helper.make_node("Mul", [node.output[0], "gate"], ["gated"]))


def skip(proto: onnx.ModelProto) -> None:
    """Give the second layer the first layer's input."""
    norms = [each for each in proto.graph.node if each.op_type == "LayerNormalization"]
    before, after = norms[0].output[0], norms[2].output[0]
    for each in proto.graph.node:
        for slot, name in enumerate(each.input):
            if name == after:
                each.input[slot] = before


def drop(proto: onnx.ModelProto) -> None:
    norm = [each for each in proto.graph.node if each.op_type == "LayerNormalization"][2]
    add = next(each for each in proto.graph.node if norm.input[0] in each.output)
    norm.input[0] = add.input[0]


def low_rank(proto: onnx.ModelProto) -> None:
    """Add an adapter after the second attention's products, before heads are joined; its input occurs twice."""
    softmax = [each for each in proto.graph.node if each.op_type == "Softmax"][-1]
    product = next(each for each in proto.graph.node if softmax.output[0] in each.input)
    while product.op_type != "MatMul":
        product = next(each for each in proto.graph.node if product.output[0] in each.input)
    turn = next(
        each for each in proto.graph.node if each.op_type == "Transpose" and _reads(proto, each, product)
    )
    random = np.random.default_rng(0)
    for name, shape in (("down", (16, 4)), ("up", (4, 16))):
        array = random.normal(0, 0.3, shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    activation = turn.input[0]
    made = [
        helper.make_node("Identity", [activation], ["same"]),
        helper.make_node("MatMul", ["same", "down"], ["few"]),
        helper.make_node("MatMul", ["few", "up"], ["many"]),
        helper.make_node("Add", ["same", "many"], ["adapted"]),
    ]
    turn.input[0] = "adapted"
    place = [*proto.graph.node].index(turn)
    for each in reversed(made):
        proto.graph.node.insert(place, each)


def _reads(proto: onnx.ModelProto, node: onnx.NodeProto, made: onnx.NodeProto) -> bool:
    """Whether a node reads another's output, directly or through one node between."""
    between = [each.output[0] for each in proto.graph.node if made.output[0] in each.input]
    return node.input[0] in (made.output[0], *between)


@pytest.mark.parametrize(
    ("fault", "module", "reason"),
    [
        (low_rank, "encoder.layer.1.attention.self", "MatMul with down, which PyTorch does not have"),
        (add_gate, "encoder.layer.0.intermediate.intermediate_act_fn", "gate, which PyTorch does not have"),
        (skip, "encoder.layer.0", "nothing: encoder.layer.0 is skipped"),
        (drop, "encoder.layer.0.output", "residual is dropped"),
    ],
)
def test_what_the_graph_does_is_reported_with_its_cause(
    fault: Callable[[onnx.ModelProto], None], module: str, reason: str, exported: Path, tmp_path: Path
) -> None:
    proto = onnx.load(exported / "model.onnx")
    fault(proto)
    onnx.save(proto, tmp_path / "model.onnx")

    code, document = verify(tmp_path / "model.onnx", "--against", exported)

    assert code == 1
    first = document["first"]
    assert isinstance(first, dict)
    assert (first["module"], reason in first["reason"]) == (module, True), first


def test_a_side_without_weights_computes_with_those_of_the_file_or_says_what_is_lost(
    exported: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    result = run_here("verify", exported / "model.onnx", "--against", tmp_path)

    assert result.returncode in (0, 2)
    assert "computes the same" in result.stdout or "cannot be recovered from the file" in result.stderr


CONVOLUTIONS = """
import torch
from torch import nn
def factory():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, bias=False),
        nn.BatchNorm2d(8), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )
    for each in net.modules():
        if isinstance(each, nn.BatchNorm2d):
            nn.init.normal_(each.running_mean), nn.init.uniform_(each.running_var, 0.5, 2)
    return net.eval(), (torch.randn(2, 3, 16, 16),)
"""


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_codes_take_the_place_of_norms_and_activations_and_compute_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    (tmp_path / "convolutions.py").write_text(CONVOLUTIONS)
    monkeypatch.chdir(tmp_path)
    assert run_here("export", "convolutions:factory", "-o", tmp_path / "out", "--quiet").returncode == 0
    model = tmp_path / "out" / "model.onnx"
    name = onnx.load(model, load_external_data=False).graph.input[0].name
    random = np.random.default_rng(0)
    images: list[dict[str, object]] = [
        {name: random.normal(size=(2, 3, 16, 16)).astype(np.float32)} for _ in range(4)
    ]
    quantize(model, model.with_name("int8.onnx"), images, form)

    code, document = verify(model.with_name("int8.onnx"))

    assert (code, document["same"], document["first"]) == (0, True, None)


def scaled(proto: onnx.ModelProto, name: str, factor: float) -> None:
    tensor = next(each for each in proto.graph.initializer if each.name == name)
    value = onnx.numpy_helper.to_array(tensor) * np.float32(factor)
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(value, np.float32), name))


def lowest(proto: onnx.ModelProto, name: str) -> None:
    tensor = next(each for each in proto.graph.initializer if each.name == name)
    value = onnx.numpy_helper.to_array(tensor)
    least = np.full_like(value, np.iinfo(value.dtype).min)
    tensor.CopyFrom(onnx.numpy_helper.from_array(least, name))


@pytest.mark.parametrize("factor", sampled([4, 16, 1 / 4, 1 / 16, 0], [16, 0]))
def test_a_quantizer_that_does_not_fit_its_values_differs(
    exported: Path, tmp_path: Path, factor: float
) -> None:
    static(exported / "model.onnx", tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    gelu = next(each for each in proto.graph.node if each.op_type == "Gelu")
    made = next(each for each in proto.graph.node if gelu.input[0] in each.output)
    wrong = next(n for n in proto.graph.node if n.op_type == "QuantizeLinear" and made.input[0] in n.output)
    if factor:
        scaled(proto, wrong.input[1], factor)
    else:
        lowest(proto, wrong.input[2])
    onnx.save(proto, tmp_path / "model.onnx")

    code, document = verify(tmp_path / "model.onnx", "--against", exported)

    assert (code, document["same"]) == (1, False)
    wiring = document["wiring"]
    assert isinstance(wiring, dict)
    differences = [(each["kind"], each["node"]) for each in wiring["differences"]]
    assert differences == [("quantizer", wrong.name)]
    first = document["first"]
    assert isinstance(first, dict)
    assert first["module"] == "encoder.layer.0.intermediate.dense"


def check(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = run_here("check", *arguments, "--format", "json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("check"))
    (rule,) = document["rules"]
    return result.returncode, rule


def test_a_drift_beyond_the_limit_fails_and_the_costliest_modules_are_reported(
    exported: Path, tmp_path: Path
) -> None:
    shutil.copy(exported / "manifest.json", tmp_path)
    dynamic(exported / "model.onnx", tmp_path / "model.onnx")

    passed = check(tmp_path / "model.onnx", "--max-drift", "20dB")
    observed = passed[1]["observed"]
    failed = check(tmp_path / "model.onnx", "--max-drift", f"{observed + 5} dB")

    assert (passed[0], passed[1]["status"]) == (0, "PASS")
    assert (failed[0], failed[1]["status"], failed[1]["exceeded_by"]) == (1, "FAIL", 5)
    _, document = verify(tmp_path / "model.onnx", "--seed", 1, "--seed", 2)
    assert document["drift_db"] == pytest.approx(observed, abs=4)
    parts = [each["value"] for each in failed[1]["contributors"]]
    assert parts == sorted(parts)
    assert parts


def test_a_drift_that_nobody_can_measure_is_no_pass(exported: Path, tmp_path: Path) -> None:
    shutil.copy(exported / "model.onnx", tmp_path)
    alone = check(tmp_path / "model.onnx", "--max-drift", "40dB")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    weightless = check(tmp_path / "model.onnx", "--max-drift", "40dB")

    for code, rule in (alone, weightless):
        assert (code, rule["status"], rule["skipped"]) == (2, "SKIP", "not-evaluated")
    assert "manifest.json" in alone[1]["message"]
    assert "model.onnx.data" in weightless[1]["message"]  # the file is missing, and no run works without it


@pytest.mark.parametrize("text", ["", "forty", "-3dB", "40%", "4e3"])
def test_a_limit_that_is_no_number_of_decibels_is_refused(exported: Path, text: str) -> None:
    result = run_here("check", exported / "model.onnx", f"--max-drift={text}")

    assert (result.returncode, result.stdout) == (2, "")
    assert "write it as 40dB" in result.stderr


FACTORY = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)
    def forward(self, x, skip=None, y=None, scale=1.0):
        x = self.first(x) if skip is None else x
        return self.second(x * scale + y)
def factory():
    return Net().eval(), {arguments}
"""


@pytest.mark.parametrize(
    "arguments",
    [
        "(torch.randn(2, 6), None, torch.randn(2, 6))",
        "dict(x=torch.randn(2, 6), y=torch.randn(2, 6), scale=3.0)",
    ],
)
def test_what_is_no_tensor_is_given_to_forward_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    (tmp_path / "net.py").write_text(FACTORY.replace("{arguments}", arguments))
    monkeypatch.chdir(tmp_path)
    assert run_here("export", "net:factory", "-o", tmp_path / "out", "--quiet").returncode == 0

    code, document = verify(tmp_path / "out" / "model.onnx")

    assert (code, document["same"]) == (0, True)


POSITIONS = """
import torch
class Positions(torch.nn.Embedding):
    def forward(self, values):
        return super().forward(torch.arange(values.shape[1]).expand(values.shape[:2]))
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions = torch.nn.Embedding(30, 8), Positions(40, 8)
        self.last = torch.nn.Linear(8, 5)
    def forward(self, ids):
        x = self.words(ids)
        return self.last(x + self.positions(x))
def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randint(0, 30, (2, 7)),)
"""


def test_a_table_whose_module_is_given_no_ids_is_watched_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "positions.py").write_text(POSITIONS)
    monkeypatch.chdir(tmp_path)
    assert run_here("export", "positions:factory", "-o", tmp_path / "out", "--quiet").returncode == 0

    code, document = verify(tmp_path / "out" / "model.onnx")

    assert (code, document["same"]) == (0, True)
    assert any("33 of 40 rows of positions" in each for each in document["uncovered"])


TWICE = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.again, self.last = torch.nn.Linear(16, 16), torch.nn.Linear(16, 5)
    def forward(self, x):
        x = self.again(x) * 3
        x = self.again(x.exp())
        return self.last(x)
def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(4, 16),)
"""


def test_a_bias_that_is_rounded_anew_for_each_call_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "twice.py").write_text(TWICE)
    monkeypatch.chdir(tmp_path)
    assert run_here("export", "twice:factory", "-o", tmp_path / "out", "--quiet").returncode == 0
    model = tmp_path / "out" / "model.onnx"
    name = onnx.load(model, load_external_data=False).graph.input[0].name
    random = np.random.default_rng(0)
    samples: list[dict[str, object]] = [
        {name: random.normal(size=(4, 16)).astype(np.float32)} for _ in range(4)
    ]
    quantize(model, model.with_name("int8.onnx"), samples, "QDQ")
    stored = onnx.load(model.with_name("int8.onnx")).graph.initializer
    codes = [each for each in stored if each.data_type == onnx.TensorProto.INT32 and [*each.dims] == [16]]
    assert len({each.raw_data for each in codes}) == 2  # two sets of codes of one parameter

    code, document = verify(model.with_name("int8.onnx"))

    assert (code, document["same"]) == (0, True)


ATTENTION = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.mix = torch.nn.Embedding(30, 16), torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.last = torch.nn.Linear(16, 4)
    def forward(self, ids):
        x = self.words(ids)
        return self.last(self.mix(x, x, x, need_weights=False)[0])
def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randint(0, 30, (2, 7)),)
"""


def test_a_fault_in_pytorchs_own_attention_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "attention.py").write_text(ATTENTION)
    monkeypatch.chdir(tmp_path)
    assert run_here("export", "attention:factory", "-o", tmp_path / "out", "--quiet").returncode == 0
    proto = onnx.load(tmp_path / "out" / "model.onnx")
    tensor = next(each for each in proto.graph.initializer if each.name == "mix.out_proj.weight")
    tensor.CopyFrom(
        onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) * np.float32(3), tensor.name)
    )
    onnx.save(proto, tmp_path / "out" / "wrong.onnx")

    code, document = verify(tmp_path / "out" / "wrong.onnx")

    assert code == 1
    first = document["first"]
    assert isinstance(first, dict)
    assert first["module"].startswith("mix")


LLAMA = {
    "architectures": ["LlamaModel"],
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 60,
    "max_position_embeddings": 64,
}


def test_a_stack_that_ends_early_is_reported_where_it_ends(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    exported = run_here("export", tmp_path, "--random-weights", "--static", "-o", tmp_path / "out", "--quiet")
    assert exported.returncode == 0
    proto = onnx.load(tmp_path / "out" / "model.onnx")
    words = next(each.output[0] for each in proto.graph.node if each.op_type == "Gather")
    late = [each for each in proto.graph.node if each.op_type == "Pow"][-1].input[0]  # input of the last norm
    for node in proto.graph.node:
        for place, name in enumerate(node.input):
            if name == late:
                node.input[place] = words
    onnx.save(proto, tmp_path / "out" / "early.onnx")

    code, document = verify(tmp_path / "out" / "early.onnx")

    assert code == 1
    first = document["first"]
    assert isinstance(first, dict)
    assert (first["module"], "it reads the result of " in first["reason"]) == ("norm", True), first


PARTS = """
import torch
class Unbiased(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, bias=False)
        self.norm = torch.nn.BatchNorm2d(8, affine=False)
        self.norm.running_mean.normal_(0, 0.3)
        self.norm.running_var.uniform_(0.5, 2)
    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))
class Affine(Unbiased):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(8)
        for each in (self.norm.running_mean, self.norm.weight.data, self.norm.bias.data):
            each.add_(0.3 * torch.randn(8))
class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(20, 8), torch.nn.Embedding(12, 8)
        self.last = torch.nn.Linear(8, 3)
    def forward(self, ids):
        return self.last(self.words(ids) + self.places(torch.arange(ids.shape[1])))
class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(5, 7, bidirectional=True, batch_first=True)
        self.last = torch.nn.Linear(14, 3)
    def forward(self, x):
        return self.last(self.layer(x)[0])
def build(kind, *inputs):
    torch.manual_seed(0)
    return kind().eval(), inputs
def unbiased():
    return build(Unbiased, torch.randn(2, 3, 8, 8))
def affine():
    return build(Affine, torch.randn(2, 3, 8, 8))
def rows():
    return build(Rows, torch.arange(14).reshape(2, 7))
def both():
    return build(Both, torch.randn(2, 6, 5))
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    (folder / "parts.py").write_text(PARTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("unbiased", "affine", "rows", "both"):
            done = run_here("export", f"parts:{name}", "-o", name, "--static", "--quiet")
            assert done.returncode == 0, done.stderr
    return folder


def with_quantizers(source: Path, target: Path, **options: bool) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    model = onnx.load(source)
    given = model.graph.input[0]
    sizes = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    generator = np.random.default_rng(0)
    is_real = given.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    samples = [
        generator.normal(size=sizes).astype(np.float32) if is_real else generator.integers(0, 20, sizes)
        for _ in range(3)
    ]

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, object] | None:
            return {given.name: samples.pop()} if samples else None

    quantize_static(model, target, Reader(), quant_format=QuantFormat.QDQ, extra_options=options)


def with_float_weights(source: Path, target: Path) -> None:
    with_quantizers(source, target, AddQDQPairToWeight=True)


def shift(path: Path, sizes: list[int], kind: int) -> None:
    """Change the last element of the only tensor of these sizes and this type, by more than rounding."""
    proto = onnx.load(path)
    (tensor,) = [each for each in proto.graph.initializer if [*each.dims] == sizes and each.data_type == kind]
    array = onnx.numpy_helper.to_array(tensor).copy()
    last = array.reshape(-1)[-1:]
    step = {"f": 0.05, "i": 2000 if array.dtype == np.int32 else 20, "u": 20}[array.dtype.kind]
    last += array.dtype.type(-step if last[0] > 0 else step)
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    onnx.save(proto, path)


FLOAT, HALF, INT8, INT32 = (getattr(onnx.TensorProto, each) for each in ("FLOAT", "FLOAT16", "INT8", "INT32"))


@pytest.mark.parametrize(
    ("name", "form", "sizes", "kind"),
    [
        ("unbiased", half, [8], HALF),
        ("unbiased", dynamic, [8], FLOAT),
        ("unbiased", with_quantizers, [8], INT32),
        ("unbiased", with_quantizers, [8, 3, 3, 3], INT8),
        ("affine", with_float_weights, [8], INT32),
        ("affine", with_float_weights, [8, 3, 3, 3], FLOAT),
        ("rows", half, [7, 8], HALF),
        ("rows", with_quantizers, [7, 8], INT8),
        ("both", dynamic, [2, 5, 28], INT8),
        ("both", dynamic, [2, 7, 28], INT8),
    ],
    ids=lambda each: each.__name__ if callable(each) else None,
)
def test_rounded_parts_of_pytorchs_tensors_are_computed_with_and_changed_ones_are_not(
    parts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    form: Callable[[Path, Path], None],
    sizes: list[int],
    kind: int,
) -> None:
    monkeypatch.chdir(parts)
    form(parts / name / "model.onnx", tmp_path / "model.onnx")
    code, document = verify(tmp_path / "model.onnx", "--against", f"parts:{name}")
    shift(tmp_path / "model.onnx", sizes, kind)
    changed, other = verify(tmp_path / "model.onnx", "--against", f"parts:{name}")

    assert (code, document["same"], document["first"]) == (0, True, None)
    assert (changed, other["same"]) == (1, False)


MAPPED = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)
    def forward(self, x):
        places = torch.arange(x.shape[0])
        def sees(row, column):
            return row.new_ones((), dtype=torch.bool) & (column <= row)
        mask = torch.func.vmap(torch.func.vmap(sees, (None, 0)), (0, None))(places, places)
        scores = (x @ x.T).masked_fill(~mask, -1e4).softmax(-1)
        h = self.first(scores @ x)
        return self.last(h[h.sum(-1).topk(2).indices])
def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(4, 8),)
"""


def test_a_mask_that_forward_makes_by_vmap_has_no_values_to_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mapped.py").write_text(MAPPED)
    monkeypatch.chdir(tmp_path)
    assert run_here("export", "mapped:factory", "-o", tmp_path / "out", "--quiet", "--static").returncode == 0

    code, document = verify(tmp_path / "out" / "model.onnx")

    assert (code, document["same"]) == (0, True)
