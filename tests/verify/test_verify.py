"""Two files at run time: rounding is no difference, differences are reported with their node, none pass silently."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from commands import run_here
from models import noise, save, text_model

from analyzer.schemas import load_schema
from analyzer.verify.agreement import compare_values
from analyzer.verify.record import Verdict

pytestmark = pytest.mark.time

TEXT = """
    <ir_version: 10, opset_import: ["" : 20]>
    agraph (float[n, 8] x) => (float[n, 4] y)
    {
        [first] a = MatMul(x, w)
        [norm] b = LayerNormalization <axis = -1, epsilon = 0.00001> (a, g)
        [act] c = Gelu(b)
        [second] d = MatMul(c, v)
        [bias] y = Add(d, e)
    }
"""


def model() -> onnx.ModelProto:
    return text_model(TEXT, {"w": noise(8, 16), "g": noise(16), "v": noise(16, 4), "e": noise(4)})


def node(proto: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(each for each in proto.graph.node if each.name == name)


def epsilon(proto: onnx.ModelProto) -> None:
    next(a for a in node(proto, "norm").attribute if a.name == "epsilon").f = 0.05


def activation(proto: onnx.ModelProto) -> None:
    node(proto, "act").op_type = "Relu"


def constant(proto: onnx.ModelProto) -> None:
    bias = next(each for each in proto.graph.initializer if each.name == "e")
    bias.CopyFrom(onnx.numpy_helper.from_array(noise(4) * 2, "e"))


def dropped(proto: onnx.ModelProto) -> None:
    node(proto, "second").input[0] = "b"


def weight(proto: onnx.ModelProto) -> None:
    tensor = next(each for each in proto.graph.initializer if each.name == "w")
    tensor.CopyFrom(onnx.numpy_helper.from_array(noise(8, 16, seed=1), "w"))


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return save(tmp_path, model(), "a.onnx")


def run_verify(*arguments: object) -> tuple[int, dict[str, object]]:
    result = run_here("verify", *arguments, "--shape", "n=6", "--format", "json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("verify"))
    return result.returncode, document


def test_a_file_computes_what_it_computes(original: Path) -> None:
    code, document = run_verify(original, "--against", original)

    assert (code, document["same"], document["first"]) == (0, True, None)
    assert {row["seed"] for row in document["inputs"]} == {0, 1, 2}


@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_an_optimizer_is_no_difference(original: Path, tmp_path: Path, level: str) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "fast.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(original), options, providers=["CPUExecutionProvider"])

    assert run_verify(tmp_path / "fast.onnx", "--against", original)[0] == 0


@pytest.mark.parametrize(
    ("fault", "culprit", "words"),
    [
        (epsilon, "norm", "epsilon"),
        (activation, "act", "Relu, and Gelu in the other"),
        (constant, "bias", "FLOAT ["),
        (dropped, "act", "it is left out, and Gelu in the other"),
        (weight, "first", "w: its values in the file differ"),
    ],
)
def test_a_fault_is_reported_with_its_node_and_its_cause(
    original: Path, tmp_path: Path, fault: Callable[[onnx.ModelProto], None], culprit: str, words: str
) -> None:
    proto = model()
    fault(proto)
    code, document = run_verify(save(tmp_path, proto, "b.onnx"), "--against", original)

    assert (code, document["same"]) == (1, False)
    assert document["first"]["node"] == culprit
    assert words in document["first"]["reason"]


def test_an_output_of_another_shape_is_not_compared_and_never_the_same(
    original: Path, tmp_path: Path
) -> None:
    proto = text_model("g (float[n, 8] x) => (float[n, 5] y) { y = MatMul(x, w) }", {"w": noise(8, 5)})
    code, document = run_verify(save(tmp_path, proto, "b.onnx"), "--against", original)

    assert (code, document["same"]) == (2, False)
    assert [row["verdict"] for row in document["outputs"]] == ["not-compared"]


def test_an_output_that_one_side_lacks_is_not_the_same(original: Path, tmp_path: Path) -> None:
    proto = model()
    proto.graph.output.append(onnx.ValueInfoProto(name="d"))
    code, document = run_verify(save(tmp_path, proto, "b.onnx"), "--against", original)

    assert (code, document["same"]) == (2, False)


def test_other_inputs_and_no_models_are_refused(original: Path, tmp_path: Path) -> None:
    proto = text_model("g (float[n, 8] z) => (float[n, 5] y) { y = MatMul(z, w) }", {"w": noise(8, 5)})
    other = run_here("verify", original, "--against", save(tmp_path, proto, "b.onnx"))
    folder = run_here("verify", original, "--against", tmp_path)
    proto = text_model("g (float[n, 7] x) => (float[n, 5] y) { y = MatMul(x, w) }", {"w": noise(7, 5)})
    wider = run_here("verify", save(tmp_path, proto, "c.onnx"), "--against", original)

    assert (other.returncode, other.stdout) == (2, "")
    assert "takes other inputs" in other.stderr
    assert (wider.returncode, wider.stdout) == (2, "")
    assert "input x is [n, 8], and [n, 7] in the first file" in wider.stderr
    assert (folder.returncode, folder.stdout) == (2, "")


def test_text_says_where_they_part_in_its_first_lines(original: Path, tmp_path: Path) -> None:
    proto = model()
    epsilon(proto)
    lines = run_here(
        "verify", save(tmp_path, proto, "b.onnx"), "--against", original, "--shape", "n=6"
    ).stdout

    assert "DIFFERS from norm on" in lines.splitlines()[1]


def test_one_run_writes_what_ci_reads_and_its_code_is_that_of_the_answer(
    original: Path, tmp_path: Path
) -> None:
    proto = model()
    epsilon(proto)
    outputs = ("-o", tmp_path / "r.xml", "-o", tmp_path / "r.sarif")

    bad = run_here(
        "verify", save(tmp_path, proto, "b.onnx"), "--against", original, "--shape", "n=6", *outputs
    )
    cases = [*ElementTree.fromstring((tmp_path / "r.xml").read_text()).iter("testcase")]
    (run,) = json.loads((tmp_path / "r.sarif").read_text())["runs"]
    good = run_here("verify", original, "--against", original, "--shape", "n=6", *outputs)
    quiet = json.loads((tmp_path / "r.sarif").read_text())["runs"][0]

    assert (bad.returncode, good.returncode) == (1, 0)
    failed = {case.get("name"): each.get("message") for case in cases for each in case.iter("failure")}
    assert "epsilon 0.05" in str(failed["output y"])
    assert "epsilon 0.05" in run["results"][0]["message"]["text"]
    assert (quiet["results"], quiet["invocations"][0]["executionSuccessful"]) == ([], True)
    assert not [*ElementTree.fromstring((tmp_path / "r.xml").read_text()).iter("failure")]


def test_a_nan_differs_and_rounding_does_not() -> None:
    values = noise(64).astype(np.float32)
    rounded = np.nextafter(values, np.float32(np.inf))
    lost = values.copy()
    lost[3] = np.nan

    assert compare_values(values, values, None, 1).verdict is Verdict.SAME
    assert compare_values(values, rounded, None, 4).verdict is Verdict.SAME
    assert compare_values(values, lost, None, 1).verdict is Verdict.DIFFERS
    assert compare_values(values, values * np.float32(1.001), None, 9).verdict is Verdict.DIFFERS
    assert compare_values(values, values[:3], None, 1).verdict is Verdict.NOT_COMPARED


def perturbation(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the values, each one unit in the last place larger."""
    return np.nextafter(values, np.float32(np.inf))


@pytest.mark.parametrize("fill", [-1e4, -1e9, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("change", [-1.0, 1.01])
def test_a_mask_hides_no_other_number(fill: float, change: float) -> None:
    values = noise(64).astype(np.float32)
    masked = np.where(np.arange(64) % 3 == 0, np.float32(fill), values)
    changed = np.where(np.arange(64) % 3 == 0, np.float32(fill), values * np.float32(change))

    assert (
        compare_values(masked, perturbation(masked), perturbation(perturbation(masked)), 9).verdict
        is Verdict.SAME
    )
    assert compare_values(masked, changed, perturbation(masked), 9).verdict is Verdict.DIFFERS
    assert compare_values(masked, changed, None, 9).verdict is Verdict.DIFFERS


def test_large_numbers_hide_no_small_ones_beside_them() -> None:
    boxes, scores = 600 * np.abs(noise(64)), 0.2 + 0.1 * np.tanh(noise(64))
    values = np.concatenate((boxes, scores)).astype(np.float32)
    changed = np.concatenate((boxes, scores * 1.003)).astype(np.float32)

    assert (
        compare_values(values, perturbation(values), perturbation(perturbation(values)), 50).verdict
        is Verdict.SAME
    )
    assert compare_values(values, changed, perturbation(values), 50).verdict is Verdict.DIFFERS


def test_what_is_left_of_large_numbers_has_their_rounding() -> None:
    """Small results are sums of large terms here, which round differently in another order."""
    terms = noise(4096).reshape(64, 64) * 1000
    small = np.arange(64) % 2 == 0
    terms[small, -1] -= terms[small].sum(1) - 0.01
    one, other = (rows.astype(np.float32).cumsum(1)[:, -1] for rows in (terms, terms[:, ::-1]))
    exact = terms.astype(np.float32).astype(np.float64).sum(1)

    assert compare_values(one, other, exact, 1).verdict is Verdict.SAME
    assert compare_values(one[small], other[small], exact[small], 1).verdict is Verdict.NOT_COMPARED


def test_functions_that_saturate_are_rounded_at_one() -> None:
    """onnxruntime's Sigmoid returns 1.5e-8 from -18 down."""
    values = 1 / (1 + np.exp(-np.linspace(-40, 3, 64)))
    exact, ours = values, values.astype(np.float32)

    assert compare_values(ours, np.maximum(ours, np.float32(1.5e-8)), exact, 1).verdict is Verdict.SAME
