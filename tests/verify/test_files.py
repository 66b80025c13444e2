"""Two files at run time, one made from the other: rounding and optimizing are no difference, but faults are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from commands import run_here
from models import dynamo_like, noise, save, text_model, with_scopes

from analyzer.schemas import load_schema

pytestmark = [pytest.mark.time, pytest.mark.usefixtures("forked_children")]

BLOCK = """
    <ir_version: 10, opset_import: ["" : 20]>
    net (int64[batch, sequence] ids, int64[batch, sequence] attention_mask) => (float[batch, sequence, 40] logits)
    {
        [words] h0 = Gather(table, ids)
        [cast] m1 = Cast <to = 1> (attention_mask)
        [invert] m2 = Sub(one, m1)
        [scale] m3 = Mul(m2, large)
        [widen] mask = Unsqueeze(m3, axis)
        [norm0] n0 = LayerNormalization <axis = -1, epsilon = 0.00001> (h0, g0, b0)
        [query] q = MatMul(n0, wq)
        [key] k = MatMul(n0, wk)
        [value] v = MatMul(n0, wv)
        [turn] kt = Transpose <perm = [0, 2, 1]> (k)
        [scores] s0 = MatMul(q, kt)
        [divide] s1 = Div(s0, root)
        [masked] s2 = Add(s1, mask)
        [soft] p = Softmax <axis = -1> (s2)
        [mix] a0 = MatMul(p, v)
        [output] a1 = MatMul(a0, wo)
        [residual] h1 = Add(h0, a1)
        [norm1] n1 = LayerNormalization <axis = -1, epsilon = 0.00001> (h1, g1, b1)
        [up] u0 = MatMul(n1, wu)
        [upbias] u1 = Add(u0, ub)
        [act] u2 = Gelu(u1)
        [down] d0 = MatMul(u2, wd)
        [residual1] h2 = Add(h1, d0)
        [head] logits = MatMul(h2, wh)
    }
"""
SCOPES = {
    **dict.fromkeys(("words",), "words"),
    **dict.fromkeys(
        ("norm0", "query", "key", "value", "turn", "scores", "divide", "masked"), "layer.attention"
    ),
    **dict.fromkeys(("soft", "mix", "output", "residual"), "layer.attention"),
    **dict.fromkeys(("cast", "invert", "scale", "widen"), "layer.attention"),
    **dict.fromkeys(("norm1", "up", "upbias", "act", "down", "residual1"), "layer.mlp"),
    "head": "head",
}


def network() -> onnx.ModelProto:
    weights = {
        "table": noise(50, 32, seed=1),
        "one": np.array(1, np.float32),
        "large": np.array(-1e4, np.float32),
        "root": np.array(32**0.5, np.float32),
        "axis": np.array([1], np.int64),
        "wh": noise(32, 40, seed=2) / 4,
        "wu": noise(32, 64, seed=3) / 4,
        "wd": noise(64, 32, seed=4) / 4,
        "ub": noise(64, seed=5),
    }
    for at, name in enumerate(("wq", "wk", "wv", "wo")):
        weights[name] = noise(32, 32, seed=10 + at) / 4
    for at, name in enumerate(("g0", "b0", "g1", "b1")):
        weights[name] = (noise(32, seed=20 + at) / 4 + (name[0] == "g")).astype(np.float32)
    stored = {name: np.asarray(array) for name, array in weights.items()}
    return with_scopes(text_model(BLOCK, stored), SCOPES)


def dynamic(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, weight_type=QuantType.QInt8)


def static(form: str) -> Callable[[Path, Path], None]:
    def run(source: Path, target: Path) -> None:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

        samples: Iterator[dict[str, Any]] = iter(
            [
                {
                    "ids": np.random.default_rng(seed).integers(0, 50, (2, 20)),
                    "attention_mask": np.ones((2, 20), np.int64),
                }
                for seed in range(4)
            ]
        )

        class Reader(CalibrationDataReader):  # type: ignore[misc]
            def get_next(self) -> dict[str, Any] | None:
                return next(samples, None)

        quantize_static(
            source,
            target,
            Reader(),
            quant_format=QuantFormat[form],
            op_types_to_quantize=["MatMul"],
        )

    return run


def half(source: Path, target: Path) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def four_bits(source: Path, target: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=True)
    quantizer.process()
    quantizer.model.save_model_to_file(str(target))


def optimized(source: Path, target: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def renamed(source: Path, target: Path) -> None:
    """Save the model with other names for all nodes, values and tensors."""
    proto = onnx.load(source)
    names: dict[str, str] = {}
    kept = {value.name for value in (*proto.graph.input, *proto.graph.output)} | {""}

    def other(name: str) -> str:
        return name if name in kept else names.setdefault(name, f"t{len(names)}")

    for tensor in proto.graph.initializer:
        tensor.name = other(tensor.name)
    for node in proto.graph.node:
        node.name = ""
        node.input[:] = [other(name) for name in node.input]
        node.output[:] = [other(name) for name in node.output]
        del node.metadata_props[:]
    del proto.graph.value_info[:]
    onnx.save(proto, target)


FORMS: dict[str, Callable[[Path, Path], None]] = {
    "int8": dynamic,
    "qdq": static("QDQ"),
    "qoperator": static("QOperator"),
    "fp16": half,
    "4 bits": four_bits,
    "optimized": optimized,
    "renamed": renamed,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    found = {"float": save(folder, network(), "float.onnx")}
    for form, make in FORMS.items():
        found[form] = folder / f"{form.replace(' ', '-')}.onnx"
        make(found["float"], found[form])
    return found


def run_verify(model: Path, other: Path, *options: object) -> tuple[int, dict[str, Any]]:
    result = run_here("verify", model, "--against", other, *options, "--format", "json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("verify"))
    return result.returncode, document


@pytest.mark.parametrize("form", FORMS)
def test_a_file_computes_what_the_one_that_it_was_made_of_does(files: dict[str, Path], form: str) -> None:
    code, document = run_verify(files[form], files["float"])

    assert (code, document["same"], document["first"]) == (0, True, None)
    if form not in ("optimized", "renamed"):
        assert 5 < document["drift_db"] < 100
        costs = document["costs"]
        alone = [row["signal_to_error_db"] for row in costs["layers"]]
        assert alone
        assert alone == sorted(alone)
        assert {row["module"] for row in costs["layers"]} <= {"words", "layer.attention", "layer.mlp", "head"}
        assert (costs["kept"] is None) == (form == "fp16")


def check(model: Path, limit: str) -> tuple[int, dict[str, Any]]:
    result = run_here("check", model, "--max-drift", limit, "--format", "json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("check"))
    (rule,) = document["rules"]
    return result.returncode, rule


def test_a_drift_is_limited_beside_another_file(files: dict[str, Path], tmp_path: Path) -> None:
    reference = files["float"]
    _, document = run_verify(files["int8"], reference)
    passed = check(files["int8"], f"{int(document['drift_db'])}dB against {reference}")
    failed = check(files["int8"], f"{int(document['drift_db']) + 3}dB against {reference}")
    same = check(reference, f"900 against {reference}")

    assert (passed[0], passed[1]["status"]) == (0, "PASS")
    assert (failed[0], failed[1]["status"], failed[1]["exceeded_by"]) == (1, "FAIL", 3)
    assert [each["value"] for each in failed[1]["contributors"]]
    assert (same[0], same[1]["status"]) == (0, "PASS")
    assert "bit for bit" in same[1]["message"]


def test_a_drift_beside_a_file_of_other_inputs_or_none_is_no_pass(
    files: dict[str, Path], tmp_path: Path
) -> None:
    other = save(tmp_path, text_model("g (float[2] x) => (float[2] y) { y = Sqrt(x) }"), "other.onnx")
    code, rule = check(files["int8"], f"40dB against {other}")
    missing = run_here("check", files["int8"], "--max-drift", "40dB against nothing.onnx")
    config = run_here("check", files["int8"], "--max-drift", "40dB against config.json")

    assert (code, rule["status"], rule["skipped"]) == (2, "SKIP", "not-evaluated")
    assert "other inputs" in rule["message"]
    assert (missing.returncode, config.returncode) == (2, 2)
    assert "is no .onnx file" in config.stderr


@pytest.mark.parametrize("form", ["int8", "qdq", "fp16", "4 bits"])
def test_either_of_the_two_files_may_be_rounded(files: dict[str, Path], form: str) -> None:
    code, document = run_verify(files["float"], files[form], "--seed", 0)

    assert (code, document["same"], document["costs"]) == (0, True, None)
    assert document["drift_db"] < 100


def test_half_precision_and_codes_are_of_one_function(files: dict[str, Path]) -> None:
    code, document = run_verify(files["int8"], files["fp16"], "--seed", 0)

    assert (code, document["same"]) == (0, True)


def test_of_two_files_with_other_codes_nobody_knows_the_weights(files: dict[str, Path]) -> None:
    code, document = run_verify(files["int8"], files["4 bits"], "--seed", 0)

    assert (code, document["same"]) == (2, False)
    assert any("both files hold rounded weights" in each for each in document["uncovered"])


def node(proto: onnx.ModelProto, op_type: str, at: int = 0) -> onnx.NodeProto:
    return [each for each in proto.graph.node if each.op_type == op_type][at]


def tensor(proto: onnx.ModelProto, shape: tuple[int, ...], at: int = 0) -> onnx.TensorProto:
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
    return [
        each for each in proto.graph.initializer if tuple(each.dims) == shape and each.data_type in floats
    ][at]


def epsilon(proto: onnx.ModelProto) -> None:
    norms = [each for each in proto.graph.node if each.op_type.endswith("LayerNormalization")]
    next(a for a in norms[-1].attribute if a.name == "epsilon").f = 0.5


def activation(proto: onnx.ModelProto) -> None:
    at, each = next(
        (at, each) for at, each in enumerate(proto.graph.node) if each.op_type in ("Gelu", "BiasGelu")
    )
    if each.op_type == "BiasGelu":  # keeps the sum
        added = onnx.helper.make_node("Add", list(each.input), ["biased"])
        proto.graph.node.insert(at, added)
        each = proto.graph.node[at + 1]
        del each.input[:]
        each.input.append("biased")
    each.op_type, each.domain = "Relu", ""


def planted(proto: onnx.ModelProto) -> None:
    bias = tensor(proto, (64,))
    array = onnx.numpy_helper.to_array(bias)
    bias.CopyFrom(onnx.numpy_helper.from_array((array + 0.25).astype(array.dtype), bias.name))


def unmasked(proto: onnx.ModelProto) -> None:
    for each in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(each)
        if array.size == 1 and array.dtype.kind == "f" and float(array.reshape(-1)[0]) == -1e4:
            each.CopyFrom(onnx.numpy_helper.from_array(array * 0, each.name))


def dropped(proto: onnx.ModelProto) -> None:
    """Drop the attention's residual: the sum returns the attention's output alone."""
    products = ("MatMul", "MatMulInteger", "MatMulNBits", "Cast", "Mul", "DequantizeLinear")
    makers = {name: each for each in proto.graph.node for name in each.output}
    for each in proto.graph.node:
        if each.op_type == "Add" and all(name in makers for name in each.input):
            kinds = [makers[name].op_type for name in each.input]
            if "Gather" in kinds or "DequantizeLinear" in kinds or "Cast" in kinds:
                keep = next(name for name in each.input if makers[name].op_type in products)
                each.op_type = "Identity"
                each.input[:] = [keep]
                return
    pytest.skip("fused with the norm")


FAULTS = {
    epsilon: "layer.mlp",
    activation: "layer.mlp",
    planted: "layer.mlp",
    unmasked: "layer.attention",
    dropped: "layer.attention",
}


@pytest.mark.parametrize("form", ["float", "int8", "fp16", "4 bits", "optimized", "renamed"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_reported_at_its_place(
    files: dict[str, Path], tmp_path: Path, fault: Callable[[onnx.ModelProto], None], form: str
) -> None:
    proto = onnx.load(files[form])
    fault(proto)
    onnx.save(proto, tmp_path / "faulty.onnx")

    code, document = run_verify(tmp_path / "faulty.onnx", files["float"])

    assert (code, document["same"]) == (1, False)
    assert document["first"]["module"] == FAULTS[fault]


def test_weights_that_are_scaled_are_no_rounding(files: dict[str, Path], tmp_path: Path) -> None:
    proto = onnx.load(files["int8"])
    scale = next(each for each in proto.graph.initializer if each.name == "wu_scale")
    scale.CopyFrom(
        onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(scale) * np.float32(1.01), "wu_scale")
    )
    onnx.save(proto, tmp_path / "faulty.onnx")

    code, document = run_verify(tmp_path / "faulty.onnx", files["float"])

    assert (code, document["same"]) == (1, False)
    assert document["first"]["module"] == "layer.mlp"


def test_weights_that_are_exchanged_are_no_rounding(files: dict[str, Path], tmp_path: Path) -> None:
    proto = onnx.load(files["int8"])
    products = [each for each in proto.graph.node if each.op_type == "MatMulInteger"]
    query, key = (
        next(each for each in products if each.input[1] == f"{name}_quantized") for name in ("wq", "wk")
    )
    query.input[1], key.input[1] = key.input[1], query.input[1]
    onnx.save(proto, tmp_path / "faulty.onnx")

    code, document = run_verify(tmp_path / "faulty.onnx", files["float"])

    assert (code, document["same"]) == (1, False)
    assert document["first"]["module"] == "layer.attention"


def dynamic_quantizers(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in proto.graph.node if node.op_type == "DynamicQuantizeLinear"]


def lose_a_zero_point(proto: onnx.ModelProto) -> None:
    next(node for node in proto.graph.node if node.op_type == "MatMulInteger").input[2] = ""


def take_the_zero_point_of_another(proto: onnx.ModelProto) -> None:
    last = [node for node in proto.graph.node if node.op_type == "MatMulInteger"][-1]
    last.input[2] = dynamic_quantizers(proto)[0].output[2]


def take_the_scale_of_another(proto: onnx.ModelProto) -> None:
    first, *_, last = dynamic_quantizers(proto)
    for node in proto.graph.node:
        node.input[:] = [first.output[1] if name == last.output[1] else name for name in node.input]


TAMPERED: list[Callable[[onnx.ModelProto], None]] = [
    lose_a_zero_point,
    take_the_zero_point_of_another,
    take_the_scale_of_another,
]


@pytest.mark.parametrize("change", TAMPERED)
def test_codes_are_decoded_with_their_own_scale_and_zero_point(
    files: dict[str, Path], tmp_path: Path, change: Callable[[onnx.ModelProto], None]
) -> None:
    proto = onnx.load(files["int8"])
    change(proto)
    onnx.save(proto, tmp_path / "faulty.onnx")

    code, document = run_verify(tmp_path / "faulty.onnx", files["float"])

    assert (code, document["same"]) == (1, False)
    assert document["first"] is not None


BEHIND = {
    "scale as a factor": "logits = Mul(raw, xs)",
    "zero point as a term": "xt = Cast <to = 1> (xz) logits = Add(raw, xt)",
    "zero point dropped": "logits = DequantizeLinear(xq, xs)",
    "whole": "logits = DequantizeLinear(xq, xs, xz)",
}


@pytest.mark.parametrize("name", BEHIND)
def test_a_scale_and_a_zero_point_are_numbers_beside_their_codes(
    files: dict[str, Path], tmp_path: Path, name: str
) -> None:
    changed = append(onnx.load(files["float"]), f"xq, xs, xz = DynamicQuantizeLinear(raw) {BEHIND[name]}")
    onnx.save(changed, tmp_path / "changed.onnx")

    code, document = run_verify(tmp_path / "changed.onnx", files["float"])

    assert (code, document["same"]) == ((0, True) if name == "whole" else (1, False))


def test_an_output_of_which_dynamic_codes_leave_nothing_is_not_the_same(
    files: dict[str, Path], tmp_path: Path
) -> None:
    nodes = """
        shape = Shape(raw)
        flat = Reshape(raw, all)
        both = Concat <axis = 0> (flat, outlier)
        xq, xs, xz = DynamicQuantizeLinear(both)
        decoded = DequantizeLinear(xq, xs, xz)
        kept = Slice(decoded, none, all, none)
        logits = Reshape(kept, shape)
    """
    changed = append(onnx.load(files["float"]), nodes)
    for tensor, array in (
        ("all", np.array([-1], np.int64)),
        ("none", np.array([0], np.int64)),
        ("outlier", np.array([1e5], np.float32)),
    ):
        changed.graph.initializer.append(onnx.numpy_helper.from_array(array, tensor))
    onnx.save(changed, tmp_path / "changed.onnx")

    code, document = run_verify(tmp_path / "changed.onnx", files["float"])
    text = " ".join(run_here("verify", tmp_path / "changed.onnx", "--against", files["float"]).stdout.split())

    assert (code, document["same"]) == (2, False)
    assert [each["verdict"] for each in document["outputs"]] == ["not-compared"]
    assert "NOT COMPARED: rounding to codes leaves nothing of logits" in text


def append(proto: onnx.ModelProto, nodes: str) -> onnx.ModelProto:
    """Append nodes that make the output `logits` from `raw`, as it was before."""
    for node in proto.graph.node:
        node.output[:] = ["raw" if name == "logits" else name for name in node.output]
    body = onnx.parser.parse_graph("g (float[1] raw) => (float[1] logits) {" + nodes + "}")
    proto.graph.node.extend(body.node)
    return proto


def test_text_says_what_rounding_costs_beside_the_other_file(files: dict[str, Path]) -> None:
    lines = run_here("verify", files["int8"], "--against", files["float"], "--seed", "0").stdout

    assert "computes the same" in lines.splitlines()[1]
    assert "as the file stands, against the other file: " in lines
    assert "PyTorch" not in lines


def test_inputs_are_read_and_reported(files: dict[str, Path], tmp_path: Path) -> None:
    ids = np.random.default_rng(3).integers(0, 50, (3, 9))
    np.savez(tmp_path / "in.npz", ids=ids, attention_mask=np.ones((3, 9), np.int64))
    np.save(tmp_path / "ids.npy", ids)

    code, document = run_verify(files["int8"], files["float"], "--input", tmp_path / "in.npz")
    some, partly = run_verify(files["int8"], files["float"], "--input", f"ids={tmp_path / 'ids.npy'}")

    assert (code, some) == (0, 0)
    assert {(row["name"], *row["shape"], row["file"]) for row in document["inputs"]} == {
        ("ids", 3, 9, str(tmp_path / "in.npz")),
        ("attention_mask", 3, 9, str(tmp_path / "in.npz")),
    }
    assert len(document["inputs"]) == 2
    files_of = {row["name"]: row["file"] for row in partly["inputs"]}
    assert files_of == {"ids": str(tmp_path / "ids.npy"), "attention_mask": None}
    assert {tuple(row["shape"]) for row in partly["inputs"]} == {(3, 9)}


def test_a_fault_that_only_some_inputs_show_is_found_with_them(
    files: dict[str, Path], tmp_path: Path
) -> None:
    proto = onnx.load(files["float"])
    table = tensor(proto, (50, 32))
    array = np.array(onnx.numpy_helper.to_array(table))
    array[7] += 1
    table.CopyFrom(onnx.numpy_helper.from_array(array, table.name))
    onnx.save(proto, tmp_path / "faulty.onnx")
    np.savez(tmp_path / "with.npz", ids=np.full((1, 4), 7), attention_mask=np.ones((1, 4), np.int64))
    np.savez(tmp_path / "without.npz", ids=np.full((1, 4), 8), attention_mask=np.ones((1, 4), np.int64))

    found, _ = run_verify(tmp_path / "faulty.onnx", files["float"], "--input", tmp_path / "with.npz")
    missed, document = run_verify(
        tmp_path / "faulty.onnx", files["float"], "--input", tmp_path / "without.npz"
    )

    assert (found, missed) == (1, 0)
    assert any("49 of 50 rows of table" in each for each in document["uncovered"])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"ids": np.zeros((1, 4), np.float32)}, "is to be INT64"),
        ({"ids": np.zeros(4, np.int64)}, "is to have 2 axes"),
        ({"tokens": np.zeros((1, 4), np.int64)}, "tokens is no input of the model"),
    ],
)
def test_inputs_that_do_not_fit_are_reported_before_anything_runs(
    files: dict[str, Path], tmp_path: Path, arrays: dict[str, Any], words: str
) -> None:
    np.savez(tmp_path / "in.npz", **arrays)

    result = run_here("verify", files["int8"], "--against", files["float"], "--input", tmp_path / "in.npz")

    assert (result.returncode, result.stdout) == (2, "")
    assert words in result.stderr


def test_a_weight_may_be_rounded_for_one_of_its_uses(tmp_path: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    text = """
        net (float[n, 32] x) => (float[n, 32] y)
        {
            [first] a = MatMul(x, w)
            [act] b = Tanh(a)
            [second] y = MatMul(b, w)
        }
    """
    original = save(tmp_path, text_model(text, {"w": noise(32, 32)}), "float.onnx")
    quantizer = MatMulNBitsQuantizer(
        onnx.load(original), block_size=32, is_symmetric=True, nodes_to_exclude=["second"]
    )
    quantizer.process()
    quantizer.model.save_model_to_file(str(tmp_path / "low.onnx"))

    code, document = run_verify(tmp_path / "low.onnx", original)

    assert (code, document["same"]) == (0, True)
    assert document["drift_db"] < 60


@pytest.mark.parametrize("form", ["int8", "four bits"])
def test_a_tied_table_and_its_turned_copy_may_be_rounded_apart(tmp_path: Path, form: str) -> None:
    """Exporters store the table of words again for the head, and a tool gives the copy its own codes."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    text = """
        net (int64[n] ids) => (float[n, 40] logits)
        {
            [words] a = Gather("words.weight", ids)
            [act] b = Tanh(a)
            [head] logits = MatMul(b, turned)
        }
    """
    table = noise(40, 32)
    proto = text_model(text, {"words.weight": table, "turned": np.ascontiguousarray(table.T)})
    noted = dynamo_like(proto, parameters=("words.weight",), folded={"turned": ["words.weight"]})
    original = save(tmp_path, noted, "float.onnx")
    low = tmp_path / "low.onnx"
    if form == "int8":
        quantize_dynamic(original, low, weight_type=QuantType.QInt8)
    else:
        quantizer = MatMulNBitsQuantizer(onnx.load(original), block_size=32, is_symmetric=True)
        quantizer.process()
        quantizer.model.save_model_to_file(str(low))

    code, document = run_verify(low, original)

    assert (code, document["same"]) == (0, True)
    assert document["drift_db"] < 60


MASKED = """
    net (float[n, 32] x) => (float[n, 32] y)
    {
        [scores] a = MatMul(x, w)
        [scale] b = Mul(a, third)
        [mask] c = Where(hidden, never, b)
        [soft] y = Softmax <axis = -1> (c)
    }
"""


@pytest.mark.parametrize(
    ("third", "never", "expected"),
    [
        (None, None, True),
        (0.34, None, False),
        (None, -4.0, False),
        (None, -10.0, False),  # hides less, and is near to minus infinity by no measure
    ],
    ids=["as it is", "another factor", "a small mask", "another mask"],
)
def test_an_infinite_mask_is_near_to_no_number(
    tmp_path: Path, third: float | None, never: float | None, expected: bool
) -> None:
    stored = {
        "w": noise(32, 32),
        "third": np.array(1 / 3, np.float32),
        "never": np.array(-np.inf, np.float32),
        "hidden": np.arange(32) % 3 == 1,
    }
    original = save(tmp_path, text_model(MASKED, stored), "float.onnx")
    half(original, tmp_path / "half.onnx")
    proto = onnx.load(tmp_path / "half.onnx")
    for at, number in enumerate((third, never)):
        if number is not None:
            each = tensor(proto, (), at)
            each.CopyFrom(onnx.numpy_helper.from_array(np.array(number, np.float16), each.name))
    onnx.save(proto, tmp_path / "half.onnx")

    pair = [tmp_path / "half.onnx", original]
    for model, other in (pair, pair[::-1]):
        document = run_verify(model, other)[1]

        assert document["same"] == expected
        assert not (expected and document["wiring"]["differences"])


def test_weights_that_no_output_shows_are_reported(tmp_path: Path) -> None:
    """Softmax ignores a constant added to all its inputs."""
    text = "g (float[2, 64] x) => (float[2, 64] y) { h = MatMul(x, w) s = Add(h, b) y = Softmax(s) }"
    weights = {"w": noise(64, 64), "b": noise(64, seed=1)}
    one = save(tmp_path, text_model(text, weights), "one.onnx")
    other = save(tmp_path, text_model(text, {**weights, "b": weights["b"] + np.float32(0.5)}), "other.onnx")

    code, document = run_verify(other, one)

    assert (code, document["same"]) == (0, True)
    assert any("inputs that show a difference in weights: b differ" in each for each in document["uncovered"])
    assert not any("inputs that show a difference" in each for each in run_verify(one, one)[1]["uncovered"])
