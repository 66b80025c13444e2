"""A file beside PyTorch's module: honest exports compute the same, a fault is told at its module, with its cause."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import onnx
import pytest
from commands import run_here
from onnx import helper

from analyzer.schemas import load_schema

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.time, pytest.mark.export]

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
            "Relu, and GELUActivation in PyTorch",
        ),
        (swap, "encoder.layer.0.attention.self.query", "what Linear gives is off by"),
    ],
)
def test_a_fault_is_told_at_its_module(
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


def test_codes_of_activations_are_never_the_same_in_silence(exported: Path, tmp_path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(exported / "model.onnx", tmp_path / "int8.onnx")

    code, document = verify(tmp_path / "int8.onnx", "--against", exported)

    assert (code, document["same"]) == (2, False)
    assert {each["verdict"] for each in document["outputs"]} == {"not-compared"}
    assert any("round activations" in each for each in document["uncovered"])


def test_a_side_without_weights_computes_with_those_of_the_file_or_says_what_is_lost(
    exported: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    result = run_here("verify", exported / "model.onnx", "--against", tmp_path)

    assert result.returncode in (0, 2)
    assert "computes the same" in result.stdout or "cannot be recovered from the file" in result.stderr


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
