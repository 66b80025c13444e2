"""A file beside PyTorch's program, without running: honest exports are proven the same, and no change passes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from commands import run_here
from exports import Exports
from onnx import TensorProto, helper, numpy_helper

from analyzer.schemas import load_schema

pytestmark = [
    pytest.mark.export,
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(find_spec, ("torch", "transformers", "onnxscript"))), reason="exports"),
]


def run_verify(model: Path, *more: str | Path) -> tuple[int, dict[str, Any]]:
    result = run_here("verify", model, "--static", "--format", "json", *more)
    document = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("verify"))
    return result.returncode, document


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("bert", {}),
        ("bert", {"via": "torchscript"}),
        ("bert", {"fuse": "cpu"}),
        ("bert", {"dtype": "fp16"}),
        ("gpt2", {}),
        ("llama", {}),
        ("t5", {}),
        ("resnet", {}),
        ("vit", {}),
        ("factory", {"via": "dynamo"}),
    ],
    ids=lambda each: each if isinstance(each, str) else "-".join(each.values()) or "default",
)
def test_an_honest_export_is_the_same(exported: Exports, name: str, how: dict[str, Any]) -> None:
    code, document = run_verify(exported(name, **how).files.artifact)

    summary = document["uncovered"][0]
    assert (code, document["same"], document["first"]) == (0, True, None), document["uncovered"]
    assert "0 changed, 0 missing, 0 added, 0 in another form" in summary
    assert {output["verdict"] for output in document["outputs"]} == {"same"}


def test_neither_pytorch_nor_onnxruntime_is_loaded(exported: Exports) -> None:
    script = (
        "import sys; from analyzer.cli import main\n"
        f"sys.argv = ['onnxledger', 'verify', {str(exported('bert').files.artifact)!r}, '--static']\n"
        "try:\n main()\nexcept SystemExit as done:\n assert not done.code, done.code\n"
        "print(sorted({'torch', 'onnxruntime', 'transformers'} & {*sys.modules}))"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_source_itself_is_traced(exported: Exports) -> None:
    folder = exported("bert", via="torchscript").files.artifact.parent

    code, document = run_verify(
        folder / "model.onnx", "--against", folder / "config.json", "--random-weights"
    )

    assert (code, document["same"]) == (0, True)


# changes


def first_of(model: onnx.ModelProto, *op_types: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type in op_types)


def put_behind(model: onnx.ModelProto, name: str, *nodes: onnx.NodeProto) -> None:
    """Insert nodes after a value, and let its readers read the last node's output."""
    place = next(at for at, node in enumerate(model.graph.node) if name in node.output) + 1
    for node in list(model.graph.node)[place:]:
        for at, each in enumerate(node.input):
            if each == name:
                node.input[at] = nodes[-1].output[0]
    for node in reversed(nodes):
        model.graph.node.insert(place, node)


def store(model: onnx.ModelProto, name: str, array: Any) -> str:
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return name


def another_epsilon(model: onnx.ModelProto) -> str:
    node = first_of(model, "LayerNormalization")
    next(each for each in node.attribute if each.name == "epsilon").f = 1e-3
    return node.name


def epsilon_by_a_hundredth(model: onnx.ModelProto) -> str:
    node = first_of(model, "LayerNormalization")
    found = next(each for each in node.attribute if each.name == "epsilon")
    found.f *= 1.01
    return node.name


def another_activation(model: onnx.ModelProto) -> str:
    node = first_of(model, "Gelu")
    node.op_type = "Relu"
    del node.attribute[:]
    return node.name


def residual_subtracted(model: onnx.ModelProto) -> str:
    norm = [node for node in model.graph.node if node.op_type == "LayerNormalization"][1]
    made = next(node for node in model.graph.node if norm.input[0] in node.output)
    made.op_type = "Sub"
    return made.name


def weights_exchanged(model: onnx.ModelProto) -> str:
    one, two = [
        node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in _stored(model)
    ][:2]
    one.input[1], two.input[1] = two.input[1], one.input[1]
    return one.name


def _stored(model: onnx.ModelProto) -> set[str]:
    return {tensor.name for tensor in model.graph.initializer}


def planted(model: onnx.ModelProto) -> str:
    name = first_of(model, "Gelu").output[0]
    put_behind(
        model, name, helper.make_node("Mul", [name, store(model, "s", np.float32(1.01))], ["p"], "planted")
    )
    return "planted"


CHANGES = {
    "epsilon": (another_epsilon, "attribute", "bert.embeddings.LayerNorm"),
    "epsilon by a hundredth": (epsilon_by_a_hundredth, "attribute", "bert.embeddings.LayerNorm"),
    "activation": (another_activation, "operator", "bert.encoder.layer.0.intermediate.intermediate_act_fn"),
    "residual": (residual_subtracted, "operator", "bert.encoder.layer.0.attention.output"),
    "weights": (weights_exchanged, "weight", "bert.encoder.layer.0.attention.self.query"),
    "planted": (planted, "operator", "bert.encoder.layer.0"),
}


@pytest.fixture
def changed(exported: Exports, tmp_path: Path) -> Callable[[Callable[[onnx.ModelProto], str]], Path]:
    def make(change: Callable[[onnx.ModelProto], str]) -> Path:
        folder = exported("bert").files.artifact.parent
        shutil.copytree(folder, tmp_path / "out")
        model = onnx.load(folder / "model.onnx")
        change(model)
        (tmp_path / "out" / "model.onnx.data").unlink(missing_ok=True)
        onnx.save(model, tmp_path / "out" / "model.onnx")
        return tmp_path / "out" / "model.onnx"

    return make


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_change_is_reported_at_its_module_with_its_kind(
    changed: Callable[[Callable[[onnx.ModelProto], str]], Path], change: str
) -> None:
    make, kind, module = CHANGES[change]

    code, document = run_verify(changed(make))

    assert (code, document["same"]) == (1, False), document["uncovered"]
    assert (document["first"]["module"] or "").startswith(module)
    assert document["wiring"]["differences"][0]["kind"] == kind


def test_the_program_shows_what_runs_are_too_coarse_for(
    changed: Callable[[Callable[[onnx.ModelProto], str]], Path], exported: Exports
) -> None:
    honest = run_here("verify", exported("bert").files.artifact, "--seed", 0, "--format", "json")
    found = run_here("verify", changed(epsilon_by_a_hundredth), "--seed", 0, "--format", "json")

    document = json.loads(found.stdout)
    jsonschema.validate(document, load_schema("verify"))
    assert (honest.returncode, found.returncode) == (0, 1), found.stdout
    output = document["outputs"][0]
    assert output["verdict"] == "differs"
    assert output["signal_to_error_db"] > output["noise_db"] - 30  # not beyond the precision of runs
    assert document["first"]["module"] == "bert.embeddings.LayerNorm"
    assert "layer_norm (1e-12), by its program" in document["first"]["reason"]


def round_the_output(model: onnx.ModelProto) -> str:
    name = model.graph.output[0].name
    codes = helper.make_node("DynamicQuantizeLinear", ["t0"], ["t1", "t2", "t3"])
    decode = helper.make_node("DequantizeLinear", ["t1", "t2", "t3"], [name])
    for node in model.graph.node:
        node.output[:] = ["t0" if each == name else each for each in node.output]
    model.graph.node.extend([codes, decode])
    return name


def round_the_output_with_another_epsilon(model: onnx.ModelProto) -> str:
    epsilon_by_a_hundredth(model)
    return round_the_output(model)


@pytest.mark.parametrize("has_fault", [False, True])
def test_the_program_shows_it_behind_codes_too(
    changed: Callable[[Callable[[onnx.ModelProto], str]], Path], has_fault: bool
) -> None:
    change = round_the_output_with_another_epsilon if has_fault else round_the_output
    found = run_here("verify", changed(change), "--seed", 0, "--format", "json")

    document = json.loads(found.stdout)
    jsonschema.validate(document, load_schema("verify"))
    assert (found.returncode, document["costs"] is None) == ((1, True) if has_fault else (0, False))
    if has_fault:
        assert document["first"]["module"] == "bert.embeddings.LayerNorm"
        assert "layer_norm (1e-12), by its program" in document["first"]["reason"]


def trigger_on_ids(model: onnx.ModelProto) -> str:
    name = first_of(model, "Gelu").output[0]
    ids = next(each.name for each in model.graph.input if each.name == "input_ids")
    condition = helper.make_node("Equal", [ids, store(model, "word", np.int64(99))], ["t0"])
    summed = helper.make_node("Cast", ["t0"], ["t1"], to=TensorProto.FLOAT)
    most = helper.make_node("ReduceMax", ["t1"], ["t2"], keepdims=0)
    truth = helper.make_node("Cast", ["t2"], ["t3"], to=TensorProto.BOOL)
    doubled = helper.make_node("Add", [name, name], ["t4"])
    put_behind(
        model,
        name,
        condition,
        summed,
        most,
        truth,
        doubled,
        helper.make_node("Where", ["t3", "t4", name], ["t5"]),
    )
    doubled.input[:] = [name, name]
    return "t5"


def guard_with_a_number(model: onnx.ModelProto) -> str:
    name = first_of(model, "Softmax").output[0]
    condition = helper.make_node("IsNaN", [name], ["t0"])
    put_behind(
        model,
        name,
        condition,
        helper.make_node("Where", ["t0", store(model, "one", np.float32(1)), name], ["t1"]),
    )
    condition.input[0] = name
    return "t1"


def halved_and_doubled_ids(model: onnx.ModelProto) -> str:
    """Round odd ids down to even ones."""
    two = store(model, "two", np.int64(2))
    put_before(
        model,
        "input_ids",
        helper.make_node("Div", ["input_ids", two], ["h"]),
        helper.make_node("Mul", ["h", two], ["d"]),
    )
    return "d"


def trigger_on_length(model: onnx.ModelProto) -> str:
    """Double an activation for more than 20 words only."""
    name = first_of(model, "Gelu").output[0]
    nodes = [
        helper.make_node("Shape", ["input_ids"], ["t0"], start=1, end=2),
        helper.make_node("Greater", ["t0", store(model, "twenty", np.array([20]))], ["t1"]),
        helper.make_node("Add", [name, name], ["t2"]),
        helper.make_node("Where", ["t1", "t2", name], ["t3"]),
    ]
    put_behind(model, name, *nodes)
    nodes[2].input[:], nodes[3].input[:] = [name, name], ["t1", "t2", name]
    return "t3"


def factor_by_length(model: onnx.ModelProto) -> str:
    """Multiply by 1 for up to 20 words, and by 2 for more."""
    name = first_of(model, "Gelu").output[0]
    one, two = (store(model, each, np.float32(value)) for each, value in (("one", 1), ("two", 2)))
    nodes = [
        helper.make_node("Shape", ["input_ids"], ["t0"], start=1, end=2),
        helper.make_node("Greater", ["t0", store(model, "twenty", np.array([20]))], ["t1"]),
        helper.make_node("Where", ["t1", two, one], ["t2"]),
        helper.make_node("Mul", [name, "t2"], ["t3"]),
    ]
    put_behind(model, name, *nodes)
    nodes[3].input[:] = [name, "t2"]
    return "t3"


def add_behind(model: onnx.ModelProto, *nodes: onnx.NodeProto) -> str:
    """Add the last node's output to the model's; the nodes may read `before`, which was the output."""
    name = model.graph.output[0].name
    made = next(node for node in model.graph.node if name in node.output)
    made.output[0] = "before"
    last = nodes[-1].output[0]
    model.graph.node.extend([*nodes, helper.make_node("Add", ["before", last], [name])])
    return last


def length(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return nodes that count the words, as `n`."""
    first = store(model, "n_at", np.array(0))
    return [
        helper.make_node("Shape", ["input_ids"], ["n_shape"], start=1, end=2),
        helper.make_node("Gather", ["n_shape", first], ["n"]),
    ]


def words_from_the_64th(model: onnx.ModelProto) -> str:
    """Add the sum of the words from the 64th on, of which there is none in shorter texts."""
    ends = (("from", 64), ("to", 2**31 - 1), ("axis", 1))
    places = [store(model, name, np.array([place])) for name, place in ends]
    return add_behind(
        model,
        helper.make_node("Slice", ["before", *places], ["t0"]),
        helper.make_node("ReduceSum", ["t0", places[-1]], ["t1"], keepdims=1),
    )


def triangle_below_the_64th(model: onnx.ModelProto) -> str:
    below = store(model, "below", np.array(-64))
    return add_behind(model, helper.make_node("Trilu", ["before", below], ["t0"], upper=0))


def diagonal_at_the_64th(model: onnx.ModelProto) -> str:
    """Add 1 where a matrix of the words' size has a 64th row below its diagonal."""
    return add_behind(
        model,
        helper.make_node("EyeLike", ["input_ids"], ["t0"], dtype=TensorProto.FLOAT, k=64),
        helper.make_node("ReduceMax", ["t0"], ["t1"], keepdims=0),
    )


def row_of_a_table(model: onnx.ModelProto) -> str:
    table = store(model, "table", (np.arange(4096) >= 64).astype(np.float32))
    return add_behind(model, *length(model), helper.make_node("Gather", [table, "n"], ["t0"]))


def length_cut_to_integers(model: onnx.ModelProto) -> str:
    part = store(model, "part", np.float32(1 / 64))
    return add_behind(
        model,
        *length(model),
        helper.make_node("Cast", ["n"], ["t0"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["t0", part], ["t1"]),
        helper.make_node("Cast", ["t1"], ["t2"], to=TensorProto.INT64),
        helper.make_node("Cast", ["t2"], ["t3"], to=TensorProto.FLOAT),
    )


def length_beyond_64(model: onnx.ModelProto) -> str:
    axis, least = store(model, "axis", np.array([0])), store(model, "least", np.array([64]))
    return add_behind(
        model,
        *length(model),
        helper.make_node("Unsqueeze", ["n", axis], ["t0"]),
        helper.make_node("Concat", ["t0", least], ["t1"], axis=0),
        helper.make_node("ReduceMax", ["t1"], ["t2"], keepdims=1),
        helper.make_node("Sub", ["t2", least], ["t3"]),
        helper.make_node("Cast", ["t3"], ["t4"], to=TensorProto.FLOAT),
    )


def triangle_by_the_length(model: onnx.ModelProto) -> str:
    """Add the sum of a stored matrix below the diagonal that is as far down as the text is long, less 64."""
    matrix = store(model, "matrix", np.ones((4, 4), np.float32))
    least = store(model, "least", np.array(64))
    return add_behind(
        model,
        *length(model),
        helper.make_node("Sub", ["n", least], ["t0"]),
        helper.make_node("Trilu", [matrix, "t0"], ["t1"], upper=0),
        helper.make_node("ReduceSum", ["t1"], ["t2"], keepdims=0),
    )


def decision_in_a_function(model: onnx.ModelProto) -> str:
    """Give the length to a function that decides by it."""
    body = [
        helper.make_node("Constant", [], ["least"], value_int=64),
        helper.make_node("Greater", ["count", "least"], ["is_long"]),
        helper.make_node("Cast", ["is_long"], ["one"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["given", "one"], ["made"]),
    ]
    opsets = [helper.make_opsetid("", 20)]
    model.functions.append(
        helper.make_function("local", "Decide", ["given", "count"], ["made"], body, opsets)
    )
    model.opset_import.append(helper.make_opsetid("local", 1))
    return add_behind(
        model, *length(model), helper.make_node("Decide", ["before", "n"], ["t0"], domain="local")
    )


def double_if(model: onnx.ModelProto, *nodes: onnx.NodeProto) -> str:
    """Add the output to itself if `truth`, which the nodes make."""
    return add_behind(
        model,
        *length(model),
        *nodes,
        helper.make_node("Cast", ["truth"], ["factor"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["before", "factor"], ["more"]),
    )


def part_from_the_length_on(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return nodes that cut a table of 64 zeros at the length, as `part`: beyond, it is empty."""
    table, end = store(model, "table", np.zeros(64, np.int64)), store(model, "end", np.array([64]))
    return [helper.make_node("Slice", [table, "n_shape", end], ["part"])]


def ones_that_may_be_none(model: onnx.ModelProto) -> str:
    """Double it where no ones are left to count."""
    one = store(model, "one", np.array([1]))
    return double_if(
        model,
        *part_from_the_length_on(model),
        helper.make_node("Gather", [one, "part"], ["ones"]),
        helper.make_node("ReduceSum", ["ones"], ["count"]),
        helper.make_node("Less", ["count", one], ["truth"]),
    )


def choice_of_none(model: onnx.ModelProto) -> str:
    one, true = store(model, "one", np.array([1])), store(model, "true", np.array([True]))
    return double_if(
        model,
        *part_from_the_length_on(model),
        helper.make_node("Where", [true, one, "part"], ["ones"]),
        helper.make_node("ReduceSum", ["ones"], ["count"]),
        helper.make_node("Less", ["count", one], ["truth"]),
    )


def size_of_none(model: onnx.ModelProto) -> str:
    return double_if(
        model,
        *part_from_the_length_on(model),
        helper.make_node("Size", ["part"], ["count"]),
        helper.make_node("Less", ["count", store(model, "one", np.array(1))], ["truth"]),
    )


def nothing_times_infinity(model: onnx.ModelProto) -> str:
    """Double it where the length times 5e36 is infinite: 0 times that is not less than 1."""
    large, zero, one = (store(model, f"of {each:g}", np.float32(each)) for each in (5e36, 0, 1))
    return double_if(
        model,
        helper.make_node("Cast", ["n"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["real", large], ["product"]),
        helper.make_node("Mul", ["product", zero], ["nothing"]),
        helper.make_node("Less", ["nothing", one], ["is_less"]),
        helper.make_node("Not", ["is_less"], ["truth"]),
    )


def count_of_truths(model: onnx.ModelProto) -> str:
    """Double it where there are more than 500 words that have a place."""
    zero, most = store(model, "zero", np.array(0)), store(model, "most", np.array(500))
    return double_if(
        model,
        helper.make_node("ArgMax", ["before"], ["places"], axis=-1),
        helper.make_node("Less", ["places", zero], ["never"]),
        helper.make_node("Not", ["never"], ["always"]),
        helper.make_node("Cast", ["always"], ["ones"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["ones"], ["count"], keepdims=0),
        helper.make_node("Greater", ["count", most], ["truth"]),
    )


def truths_of_places(model: onnx.ModelProto) -> str:
    """The same, with the constant first."""
    zero, most = store(model, "zero", np.array(0)), store(model, "most", np.array(500))
    return double_if(
        model,
        helper.make_node("ArgMax", ["before"], ["places"], axis=-1),
        helper.make_node("LessOrEqual", [zero, "places"], ["always"]),
        helper.make_node("Cast", ["always"], ["ones"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["ones"], ["count"], keepdims=0),
        helper.make_node("Greater", ["count", most], ["truth"]),
    )


def truth_of_a_size(model: onnx.ModelProto) -> str:
    """Double it where a part of the table is empty, by its size as a truth value."""
    return double_if(
        model,
        *part_from_the_length_on(model),
        helper.make_node("Shape", ["part"], ["count"]),
        helper.make_node("Cast", ["count"], ["is_some"], to=TensorProto.BOOL),
        helper.make_node("Not", ["is_some"], ["truth"]),
    )


def decision_in_a_branch(model: onnx.ModelProto) -> str:
    """Decide by the length in a branch that is always taken."""

    def branch(name: str) -> onnx.GraphProto:
        least = helper.make_node("Constant", [], [f"{name}_least"], value_int=64)
        decision = helper.make_node("Greater", ["n", f"{name}_least"], [f"{name}_truth"])
        output = helper.make_tensor_value_info(f"{name}_truth", TensorProto.BOOL, [])
        return helper.make_graph([least, decision], name, [], [output])

    true = store(model, "true", np.array(True))
    bodies = {"then_branch": branch("then"), "else_branch": branch("else")}
    return double_if(model, helper.make_node("If", [true], ["truth"], **bodies))


def order_by_the_length(model: onnx.ModelProto) -> str:
    """Take the second of two outputs, twice the first, where a part of the table is empty."""
    zero, one, two = (store(model, f"at {each}", np.array([each])) for each in (0, 1, 2))
    return put_before_the_output(
        model,
        *length(model),
        *part_from_the_length_on(model),
        helper.make_node("Slice", ["part", zero, one], ["first"]),
        helper.make_node("Shape", ["first"], ["count"]),
        helper.make_node("Sub", [one, "count"], ["at"]),
        helper.make_node("Cast", [two], ["twice"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["before", zero], ["alone"]),
        helper.make_node("Mul", ["alone", "twice"], ["doubled"]),
        helper.make_node("Concat", ["alone", "doubled"], ["both"], axis=0),
        helper.make_node("Gather", ["both", "at"], ["chosen"], axis=0),
        helper.make_node("Squeeze", ["chosen", zero], ["last"]),
    )


def one_or_two(model: onnx.ModelProto, name: str) -> list[onnx.NodeProto]:
    """Make a number: 1 for up to 64 words, and 2 for more."""
    one, two, most = (store(model, f"number {each}", np.array([each])) for each in (1, 2, 64))
    return [
        *length(model),
        helper.make_node("Greater", ["n", most], ["is_long"]),
        helper.make_node("Where", ["is_long", two, one], [name]),
    ]


def turn_rows(model: onnx.ModelProto, *before: onnx.NodeProto) -> str:
    """Exchange rows and columns of each word's elements, of which there are as many rows as `number` says."""
    kept, rest = store(model, "kept", np.array([0, 0])), store(model, "rest", np.array([-1]))
    flat = store(model, "flat", np.array([0, 0, -1]))
    return put_before_the_output(
        model,
        *before,
        helper.make_node("Concat", [kept, "number", rest], ["rows"], axis=0),
        helper.make_node("Reshape", ["before", "rows"], ["matrices"]),
        helper.make_node("Transpose", ["matrices"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("Reshape", ["turned", flat], ["last"]),
    )


def heads_by_the_length(model: onnx.ModelProto) -> str:
    return turn_rows(model, *one_or_two(model, "number"))


def heads_by_a_count_of_rows(model: onnx.ModelProto) -> str:
    """The same, with the number of times that a part of the output is repeated."""
    zero, one = store(model, "zero", np.array([0])), store(model, "one", np.array([1, 1]))
    return turn_rows(
        model,
        *one_or_two(model, "first"),
        helper.make_node("ReduceSum", ["before", zero], ["sum"], keepdims=1),
        helper.make_node("Concat", ["first", one], ["repeats"], axis=0),
        helper.make_node("Expand", ["sum", "repeats"], ["repeated"]),
        helper.make_node("Tanh", ["repeated"], ["moved"]),
        helper.make_node("Shape", ["moved"], ["number"], end=1),
    )


def put_before_the_output(model: onnx.ModelProto, *nodes: onnx.NodeProto) -> str:
    """Let the last node make the output; the nodes may read `before`, which was the output."""
    name = model.graph.output[0].name
    next(node for node in model.graph.node if name in node.output).output[0] = "before"
    nodes[-1].output[0] = name
    model.graph.node.extend(nodes)
    return name


def nothing_over_nothing(model: onnx.ModelProto) -> str:
    """Multiply by id / id: 1 for every word except id 0, which gives NaN."""
    name = model.graph.output[0].name
    made = next(node for node in model.graph.node if name in node.output)
    made.output[0] = "before"
    model.graph.node.extend(
        [
            helper.make_node("Cast", ["input_ids"], ["t0"], to=TensorProto.FLOAT),
            helper.make_node("Div", ["t0", "t0"], ["t1"]),
            helper.make_node("Unsqueeze", ["t1", store(model, "last", np.array([2]))], ["t2"]),
            helper.make_node("Mul", ["before", "t2"], [name]),
        ]
    )
    return "t1"


def function_of_another_name(model: onnx.ModelProto) -> str:
    """onnxruntime calls its own operator, and ignores the function's body."""
    name = model.graph.output[0].name
    made = next(node for node in model.graph.node if name in node.output)
    made.output[0] = "before"
    model.functions.append(
        helper.make_function(
            "com.microsoft",
            "QuickGelu",
            ["x"],
            ["y"],
            [helper.make_node("Identity", ["x"], ["y"])],
            [helper.make_opsetid("", 20)],
        )
    )
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model.graph.node.append(helper.make_node("QuickGelu", ["before"], [name], domain="com.microsoft"))
    return "QuickGelu"


def put_before(model: onnx.ModelProto, name: str, *nodes: onnx.NodeProto) -> None:
    """Insert nodes before the readers of an input, which then read the last node's output."""
    for node in model.graph.node:
        for at, each in enumerate(node.input):
            if each == name:
                node.input[at] = nodes[-1].output[0]
    for node in reversed(nodes):
        model.graph.node.insert(0, node)


@pytest.mark.parametrize(
    "change",
    [
        trigger_on_ids,
        guard_with_a_number,
        halved_and_doubled_ids,
        trigger_on_length,
        factor_by_length,
        words_from_the_64th,
        triangle_below_the_64th,
        diagonal_at_the_64th,
        row_of_a_table,
        length_cut_to_integers,
        length_beyond_64,
        decision_in_a_function,
        triangle_by_the_length,
        ones_that_may_be_none,
        choice_of_none,
        size_of_none,
        nothing_times_infinity,
        count_of_truths,
        truths_of_places,
        truth_of_a_size,
        decision_in_a_branch,
        order_by_the_length,
        heads_by_the_length,
        heads_by_a_count_of_rows,
        nothing_over_nothing,
        function_of_another_name,
    ],
    ids=lambda each: each.__name__,
)
def test_what_shows_on_no_example_is_no_pass(
    changed: Callable[[Callable[[onnx.ModelProto], str]], Path], change: Callable[[onnx.ModelProto], str]
) -> None:
    code, document = run_verify(changed(change))

    assert code in (1, 2)
    assert document["same"] is False


def test_a_program_of_too_many_numbers_has_no_answer(
    exported: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analyzer.verify.algebra.sides._MOST_NUMBERS", 1000)
    path = exported("bert").files.artifact

    done = run_here("verify", path, "--static")

    assert done.returncode == 2
    assert "computes more than 1,000 numbers at the sizes of the export; leave --static out" in done.stderr


def scaled_through_relu(model: onnx.ModelProto, back: float) -> None:
    relu = first_of(model, "Relu")
    two, half = store(model, "two", np.float32(2)), store(model, "half", np.float32(back))
    put_behind(model, relu.input[0], helper.make_node("Mul", [relu.input[0], two], ["scaled"]))
    put_behind(model, relu.output[0], helper.make_node("Mul", [relu.output[0], half], ["unscaled"]))


@pytest.mark.parametrize("name", ["gpt2", "bert", "resnet"])
def test_a_file_that_a_tool_rewrote_in_half_precision_is_the_same(
    exported: Exports, tmp_path: Path, name: str
) -> None:
    """Its mask is -10,000, where the export's is the lowest number, and its first cast is written last."""
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    folder = exported(name).files.artifact.parent
    shutil.copytree(folder, tmp_path / "out")
    path = tmp_path / "out" / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers beyond its range
        onnx.save(float16.convert_float_to_float16(onnx.load(path), keep_io_types=True), path)

    code, document = run_verify(path)

    assert (code, document["same"]) == (0, True), document["uncovered"]


@pytest.mark.parametrize(("back", "code"), [(0.5, 2), (0.25, 1)])
def test_a_difference_that_later_nodes_take_back_is_none(
    exported: Exports, tmp_path: Path, back: float, code: int
) -> None:
    folder = exported("resnet").files.artifact.parent
    shutil.copytree(folder, tmp_path / "out")
    path = tmp_path / "out" / "model.onnx"
    model = onnx.load(path)
    scaled_through_relu(model, back)
    onnx.save(model, path)

    found, document = run_verify(path)

    assert found == code
    assert document["same"] is False


@pytest.mark.parametrize(
    ("added", "code"), [(np.full((1, 1, 1, 1), 3, "f4"), 0), (np.arange(7, dtype="f4"), 1)]
)
def test_a_number_that_is_added_to_all_scores_changes_nothing(
    exported: Exports, tmp_path: Path, added: Any, code: int
) -> None:
    folder = exported("bert", static=True).files.artifact.parent
    shutil.copytree(folder, tmp_path / "out")
    path = tmp_path / "out" / "model.onnx"
    model = onnx.load(path)
    softmax = first_of(model, "Softmax")
    length = next(each for each in model.graph.input).type.tensor_type.shape.dim[1].dim_value
    number = store(model, "number", added if added.ndim > 1 else np.arange(length, dtype="f4"))
    put_behind(
        model, softmax.input[0], helper.make_node("Add", [softmax.input[0], number], ["shifted"], "shift")
    )
    onnx.save(model, path)

    found, document = run_verify(path)

    assert found == code, document["uncovered"]


LAYERS: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 4}
SIZES: dict[str, Any] = {**LAYERS, "hidden_size": 64, "intermediate_size": 48}
T5_SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 37,
    "num_layers": 1,
    "num_heads": 4,
}
IMAGES: dict[str, Any] = {"image_size": 64, "patch_size": 16}
CHECKPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", {**LAYERS, "vocab_size": 99, "hidden_size": 32, "intermediate_size": 37}),
    "t5": ("T5Model", T5_SIZES),
    "position-buffer": ("CLIPVisionModel", {**SIZES, **IMAGES, "projection_dim": 32}),
    "table-of-a-buffer": ("PixtralVisionModel", {**SIZES, **IMAGES}),
    "mask-of-ones": ("ASTModel", {**SIZES, "max_length": 64, "num_mel_bins": 32}),
    "mask-of-sizes": (
        "LlavaModel",
        {
            "text_config": {"model_type": "llama", **SIZES, "vocab_size": 99},
            "vision_config": {"model_type": "clip_vision_model", **SIZES, **IMAGES},
        },
    ),
    "experts": (
        "OlmoeForCausalLM",
        {**SIZES, "vocab_size": 99, "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2},
    ),
    "zeros-and-ones": (
        "RecurrentGemmaForCausalLM",
        {**SIZES, "num_hidden_layers": 3, "vocab_size": 99, "lru_width": 64, "attention_window_size": 16},
    ),
    "cache-by-config": ("GraniteMoeSWAForCausalLM", {**SIZES, "vocab_size": 99}),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_an_export_is_what_its_checkpoint_computes(tmp_path: Path, name: str) -> None:
    """The exporter of transformers adds zeros where a mask hides everything, and the checkpoint's program has none."""
    transformers = pytest.importorskip("transformers")
    class_name, settings = CHECKPOINTS[name]
    make = getattr(transformers, class_name)
    net = make(make.config_class(**settings))
    for parameter in net.parameters():  # the exporter merges equal ones
        parameter.data.normal_(std=0.1)
    net.save_pretrained(tmp_path / "checkpoint")
    assert run_here("export", tmp_path / "checkpoint", "-o", tmp_path / "out").returncode == 0
    model = onnx.load(tmp_path / "out" / "model.onnx", load_external_data=False)
    is_guarded = any(node.op_type == "Where" and guarded_by(model, node) for node in model.graph.node)
    assert is_guarded or name not in ("bert", "t5", "mask-of-ones", "mask-of-sizes")

    code, document = run_verify(tmp_path / "out" / "model.onnx", "--against", tmp_path / "checkpoint")

    assert (code, document["same"]) == (0, True), document["uncovered"]


def guarded_by(model: onnx.ModelProto, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """Return the count of what a mask shows, if a Where returns zeros where it is less than 1."""
    makers = {name: each for each in model.graph.node for name in each.output}
    less = makers.get(node.input[0])
    count = None if less is None or less.op_type != "Less" else makers.get(less.input[0])
    return count if count is not None and count.op_type == "ReduceSum" else None


def count_to_two(model: onnx.ModelProto, where: onnx.NodeProto) -> None:
    makers = {name: each for each in model.graph.node for name in each.output}
    makers[where.input[0]].input[1] = store(model, "two", np.float32(2))


def count_what_is_hidden(model: onnx.ModelProto, where: onnx.NodeProto) -> None:
    count = guarded_by(model, where)
    assert count is not None
    one = store(model, "one", np.float32(1))
    put_behind(model, count.input[0], helper.make_node("Sub", [one, count.input[0]], ["hidden"], "hide"))


def return_ones(model: onnx.ModelProto, where: onnx.NodeProto) -> None:
    where.input[1] = store(model, "one", np.float32(1))


def count_along_queries(model: onnx.ModelProto, where: onnx.NodeProto) -> None:
    count = guarded_by(model, where)
    assert count is not None
    count.input[1] = store(model, "queries", np.array([-2]))


@pytest.mark.parametrize("change", [count_to_two, count_what_is_hidden, return_ones, count_along_queries])
def test_other_zeros_than_of_what_a_mask_hides_are_another_program(
    exported: Exports, tmp_path: Path, change: Callable[[onnx.ModelProto, onnx.NodeProto], None]
) -> None:
    shutil.copytree(exported("bert", static=True).files.artifact.parent, tmp_path / "out")
    path = tmp_path / "out" / "model.onnx"
    model = onnx.load(path)
    change(model, next(n for n in model.graph.node if n.op_type == "Where" and guarded_by(model, n)))
    onnx.save(model, path)

    code, document = run_verify(path)

    assert code != 0
    assert document["same"] is False


def test_outputs_are_known_by_their_names(exported: Exports, tmp_path: Path) -> None:
    folder = exported("t5").files.artifact.parent
    shutil.copytree(folder, tmp_path / "out")
    path = tmp_path / "out" / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    one, two = (each.name for each in model.graph.output)
    for node in model.graph.node:
        for names in (node.input, node.output):
            for at, name in enumerate(names):
                names[at] = {one: two, two: one}.get(name, name)
    onnx.save(model, path)

    code, document = run_verify(path)

    assert code in (1, 2)
    assert not any(each["verdict"] == "same" for each in document["outputs"])


def test_an_unknown_operator_is_named_and_no_pass(
    changed: Callable[[Callable[[onnx.ModelProto], str]], Path],
) -> None:
    def strange(model: onnx.ModelProto) -> str:
        model.opset_import.append(helper.make_opsetid("strange", 1))
        name = first_of(model, "Gelu").output[0]
        put_behind(model, name, helper.make_node("Odd", [name], ["odd"], "odd_one", domain="strange"))
        return "odd_one"

    code, document = run_verify(changed(strange))

    assert code == 2
    assert "operator Odd" in document["uncovered"][1]


def test_a_manifest_without_calls_needs_another_export(
    changed: Callable[[Callable[[onnx.ModelProto], str]], Path],
) -> None:
    path = changed(lambda model: "")
    manifest = path.with_name("manifest.json")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "calls": []}))

    done = run_here("verify", path, "--static")

    assert (done.returncode, done.stdout) == (2, "")
    assert "export again" in done.stderr
