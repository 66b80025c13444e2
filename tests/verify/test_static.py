"""Two files compared without running: proofs give equality, changes are reported, and all else has no answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from commands import run_here
from models import noise, save, text_model, with_scopes

from analyzer.schemas import load_schema

TEXT = """
    <ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
    net (float[n, 8] x) => (float[n, 8] y)
    {
        [first] a = MatMul(x, w)
        [bias] b = Add(a, e)
        [act] c = Gelu(b)
        [second] d = MatMul(c, v)
        [residual] r = Add(x, d)
        [norm] y = LayerNormalization <axis = -1, epsilon = 0.00001> (r, g, h)
    }
"""
FUSED = """
    <ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
    net (float[n, 8] x) => (float[n, 8] y)
    {
        t = MatMul(x, w2)
        u = com.microsoft.BiasGelu(t, e2)
        o = Identity(u)
        z = MatMul(o, v2)
        y = com.microsoft.SkipLayerNormalization <epsilon = 0.00001> (z, x, g2, h2)
    }
"""
WEIGHTS = {
    "w": noise(8, 16),
    "e": noise(16, seed=1),
    "v": noise(16, 8, seed=2),
    "g": noise(8),
    "h": noise(8, seed=3),
}
SCOPES = {"first": "up", "bias": "up", "act": "act", "second": "down", "residual": "", "norm": "norm"}


def model() -> onnx.ModelProto:
    return with_scopes(text_model(TEXT, WEIGHTS), SCOPES)


def fused() -> onnx.ModelProto:
    return text_model(FUSED, {f"{name}2": array for name, array in WEIGHTS.items()})


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return save(tmp_path, model(), "a.onnx")


def run_verify(model: Path, other: Path) -> tuple[int, dict[str, Any]]:
    result = run_here("verify", model, "--against", other, "--static", "--format", "json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("verify"))
    return result.returncode, document


def test_a_file_is_the_same_to_the_last_operator(original: Path) -> None:
    code, document = run_verify(original, original)

    assert (code, document["same"], document["inputs"]) == (0, True, [])
    assert "6 same, 0 decomposed, 0 fused, 0 folded, 0 moved, 0 changed, 0 missing, 0 added" in str(
        document["uncovered"]
    )


def test_what_is_fused_and_renamed_is_the_same_in_both_directions(original: Path, tmp_path: Path) -> None:
    other = save(tmp_path, fused(), "b.onnx")

    code, document = run_verify(other, original)
    back, turned = run_verify(original, other)

    assert (code, document["same"]) == (0, True)
    assert ", 2 fused, " in document["uncovered"][0]
    assert (back, turned["same"]) == (0, True)
    assert "0 missing, 0 added, 0 in another form" in turned["uncovered"][0]


def node(proto: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(each for each in proto.graph.node if each.name == name)


def epsilon(proto: onnx.ModelProto) -> None:
    next(a for a in node(proto, "norm").attribute if a.name == "epsilon").f = 0.05


def activation(proto: onnx.ModelProto) -> None:
    node(proto, "act").op_type = "Relu"


def weight(proto: onnx.ModelProto) -> None:
    tensor = next(each for each in proto.graph.initializer if each.name == "v")
    tensor.CopyFrom(onnx.numpy_helper.from_array(WEIGHTS["v"] * 2, "v"))


def bias(proto: onnx.ModelProto) -> None:
    tensor = next(each for each in proto.graph.initializer if each.name == "h")
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.arange(8, dtype=np.float32), "h"))


def skipped(proto: onnx.ModelProto) -> None:
    node(proto, "second").input[0] = "b"


@pytest.mark.parametrize(
    ("fault", "culprit", "module", "words"),
    [
        (epsilon, "norm", "norm", "epsilon 0.05"),
        (activation, "act", "act", "Relu, and Gelu in the other file"),
        (weight, "second", "down", "v with other values"),
        (bias, "norm", "norm", "FLOAT 8: 0.0, 1.0, 2.0, 3.0, ..., and FLOAT 8: "),
        (skipped, "second", "down", "input 0 b, and input 0 c"),
    ],
)
def test_a_change_is_reported_with_its_module(
    original: Path,
    tmp_path: Path,
    fault: Callable[[onnx.ModelProto], None],
    culprit: str,
    module: str,
    words: str,
) -> None:
    proto = model()
    fault(proto)
    code, document = run_verify(save(tmp_path, proto, "b.onnx"), original)

    assert (code, document["same"]) == (1, False)
    assert (document["first"]["node"], document["first"]["module"]) == (culprit, module)
    assert words in document["first"]["reason"]


def test_what_cannot_be_judged_is_named_and_is_no_answer(original: Path, tmp_path: Path) -> None:
    proto = model()
    node(proto, "act").op_type = "QuickGelu"
    node(proto, "act").domain = "com.microsoft"

    code, document = run_verify(save(tmp_path, proto, "b.onnx"), original)

    assert (code, document["same"], document["first"]) == (2, False, None)
    assert any("act" in each for each in document["uncovered"])


def test_rounded_weights_are_not_judged_without_running(original: Path, tmp_path: Path) -> None:
    proto = model()
    tensor = next(each for each in proto.graph.initializer if each.name == "v")
    tensor.CopyFrom(onnx.numpy_helper.from_array(WEIGHTS["v"] * (1 + 1e-6), "v"))

    code, _ = run_verify(save(tmp_path, proto, "b.onnx"), original)

    assert code == 2


def test_bodies_are_not_judged(tmp_path: Path) -> None:
    text = """
        <ir_version: 10, opset_import: ["" : 20]>
        net (bool c, float[4] x) => (float[4] y)
        { y = If(c) <then_branch = t () => (float[4] p) { p = Relu(x) },
                     else_branch = e () => (float[4] q) { q = Identity(x) }> }
    """
    path = save(tmp_path, text_model(text), "a.onnx")

    assert run_verify(path, path)[0] == 2


@pytest.mark.export  # reads the config through transformers
def test_it_needs_another_file_and_runs_nothing(original: Path, tmp_path: Path) -> None:
    done = run_here("verify", original, "--against", tmp_path, "--static")

    assert (done.returncode, done.stdout) == (2, "")
    assert "config.json" in done.stderr


def test_values_that_are_not_there_are_no_difference(original: Path, tmp_path: Path) -> None:
    path = tmp_path / "lost.onnx"
    onnx.save(model(), path, save_as_external_data=True, location="lost.data", size_threshold=0)
    (tmp_path / "lost.data").unlink()

    for pair in ((path, original), (original, path)):
        result = run_here("verify", pair[0], "--static", "--against", pair[1])

        assert result.returncode == 2
        assert "'lost.data' is not there" in result.stderr


def test_a_static_comparison_takes_no_sizes(original: Path) -> None:
    done = run_here("verify", original, "--against", original, "--static", "--shape", "n=2")

    assert (done.returncode, done.stdout) == (2, "")
    assert "--shape" in done.stderr


@pytest.mark.parametrize(("other", "code"), [(1, 0), (2, 2)], ids=["the same number", "another"])
def test_what_a_shape_is_filled_with_is_part_of_what_is_computed(
    tmp_path: Path, other: int, code: int
) -> None:
    text = """
        <ir_version: 10, opset_import: ["" : 20]>
        net (float[n, 4] x) => (int64[n, 4] y)
        { s = Shape(x) y = ConstantOfShape <value = int64[1] {%d}> (s) }
    """
    one, two = (save(tmp_path, text_model(text % fill), f"{at}.onnx") for at, fill in enumerate((1, other)))

    assert run_verify(one, two)[0] == code


def of_opset(text: str, version: int) -> onnx.ModelProto:
    proto = text_model(text, {})
    for each in proto.opset_import:
        if not each.domain:
            each.version = version
    return proto


SOFTMAX = "g (float[2,3,3] x) => (float[2,3,3] y) { y = Softmax(x) }"
"""Softmax with default axes: before version 13 all but the first, since then the last."""
ROOTS = tuple(f"g ({dtype}[2] x) => ({dtype}[2] y) {{ y = Sqrt(x) }}" for dtype in ("float16", "float"))
AXES = tuple(
    f"g (float[2,3,3] x) => (float[2,3,3] y) {{ y = Softmax{axis}(x) }}" for axis in ("<axis = -1>", "")
)
ENDS = tuple(
    f"g (float[2] x) => (float[2] y, float[2] z) {{ {a} = Relu(x) {b} = Tanh(x) }}" for a, b in ("yz", "zy")
)


@pytest.mark.parametrize(
    ("texts", "versions"),
    [((SOFTMAX, SOFTMAX), (11, 13)), (AXES, (11, 11)), (ROOTS, (17, 17)), (ENDS, (17, 17))],
    ids=["versions of an operator", "defaults of a version", "types of an input", "outputs exchanged"],
)
def test_operators_that_look_alike_are_not_proven_the_same(
    tmp_path: Path, texts: tuple[str, str], versions: tuple[int, int]
) -> None:
    files = [
        save(tmp_path, of_opset(text, version), f"{at}.onnx")
        for at, (text, version) in enumerate(zip(texts, versions, strict=True))
    ]

    code, document = run_verify(files[0], files[1])

    assert (code, document["same"]) == (2, False)


@pytest.mark.parametrize(
    "body",
    {
        "Identity": "y = Identity()",
        "Gather": "y = Gather()",
        "Shape": "y = Shape()",
        "SkipLayerNormalization": "y = com.microsoft.SkipLayerNormalization(x)",
        "BiasGelu": "y = com.microsoft.BiasGelu(x)",
        "an attribute that is no number": "y = com.microsoft.SkipLayerNormalization<bits = nan>(x, x)",
    }.items(),
    ids=lambda each: each[0],
)
def test_an_operator_without_its_inputs_is_not_judged(tmp_path: Path, body: tuple[str, str]) -> None:
    text = f"""
        <ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
        net (float[n, 8] x) => (float[n, 8] y) {{ {body[1].replace("nan", "0.5")} }}
    """
    proto = text_model(text)
    for each in proto.graph.node[0].attribute:
        if each.name == "bits":
            each.f = float("nan")
    path = save(tmp_path, proto, "a.onnx")

    code, document = run_verify(path, path)

    assert (code, document["first"]) == (2, None)


@pytest.mark.parametrize(
    "body", ["a, b, c, y = SkipLayerNormalization(x, x, x)", "t = Transpose<perm = [1, 0]>() y = Shape(t)"]
)
def test_an_operator_that_no_rule_knows_is_judged_as_any(tmp_path: Path, body: str) -> None:
    path = save(tmp_path, text_model(f"net (float[n, 8] x) => (float[n, 8] y) {{ {body} }}"), "a.onnx")

    assert run_verify(path, path)[0] == 0
