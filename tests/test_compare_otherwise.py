"""Differences that `compare` must report: another opset, exchanged weights, other inputs, a newer file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import run_here
from models import noise, save, text_model
from onnx import TensorProto, helper, numpy_helper

WEIGHTS = {"up.weight": noise(8, 8), "down.weight": noise(8, 8, seed=1)}
GRAPH = """g (float[n,8] x) => (float[n,8] y, float[n,8] z) {
    a = MatMul(x, "up.weight")  z = Tanh(a)  y = MatMul(z, "down.weight")
}"""


def plain() -> onnx.ModelProto:
    return text_model(GRAPH, WEIGHTS)


def renamed(**values: np.ndarray[Any, Any]) -> onnx.ModelProto:
    """Return the model with meaningless names."""
    text = GRAPH.replace("up.weight", "w0").replace("down.weight", "w1")
    return text_model(text, {"w0": values["up"], "w1": values["down"]})


UP, DOWN = WEIGHTS.values()


def compare(folder: Path, one: onnx.ModelProto, other: onnx.ModelProto, *more: str) -> dict[str, Any]:
    paths = [save(folder, each, f"{name}.onnx") for name, each in (("one", one), ("other", other))]
    document: dict[str, Any] = json.loads(run_here("compare", *paths, "--format", "json", *more).stdout)
    return document


def test_other_names_are_the_same_wiring(tmp_path: Path) -> None:
    found = compare(tmp_path, plain(), renamed(up=UP, down=DOWN), "--content", "full")

    assert found["followed"]["whole"]
    assert found["wiring"] == {"alike": True, "first": None}


@pytest.mark.parametrize(
    "values", [{"up": DOWN, "down": UP}, {"up": UP.T.copy(), "down": DOWN}], ids=["exchanged", "turned"]
)
def test_weights_that_stand_elsewhere_are_another_wiring(
    tmp_path: Path, values: dict[str, np.ndarray[Any, Any]]
) -> None:
    found = compare(tmp_path, plain(), renamed(**values), "--content", "full")

    assert found["followed"]["whole"]
    assert not found["wiring"]["alike"]
    text = run_here("compare", tmp_path / "one.onnx", tmp_path / "other.onnx", "--content", "full").stdout
    assert "different wiring" in text.partition("\nold ")[0].replace("\n", " ")


def softmax(version: int) -> onnx.ModelProto:
    proto = text_model(
        'g (float[2,3,8] x) => (float[2,3,8] y) { a = MatMul(x, "w") y = Softmax<axis=1>(a) }', {"w": UP}
    )
    del proto.opset_import[:]
    proto.opset_import.append(helper.make_opsetid("", version))
    return proto


def softmax_in_function(version: int, model_version: int) -> onnx.ModelProto:
    proto = softmax(model_version)
    body = [helper.make_node("Softmax", ["a"], ["b"], axis=1)]
    proto.functions.append(
        helper.make_function("my", "f", ["a"], ["b"], body, [helper.make_opsetid("", version)])
    )
    proto.opset_import.add(domain="my", version=1)
    proto.graph.node[1].CopyFrom(helper.make_node("f", ["a"], ["y"], domain="my"))
    return proto


def test_a_function_that_imports_another_meaning_of_an_operator_than_the_model_has_no_known_wiring(
    tmp_path: Path,
) -> None:
    between = softmax_in_function(20, 12)

    for version in (12, 13):
        assert not compare(tmp_path, between, softmax(version))["wiring"]["alike"]
        inside = softmax_in_function(version, version)
        assert not compare(tmp_path, between, inside)["wiring"]["alike"]
    assert compare(tmp_path, softmax_in_function(17, 13), softmax_in_function(20, 18))["wiring"]["alike"]
    report = json.loads(run_here("inspect", save(tmp_path, between), "--format", "json").stdout)
    [finding] = [each for each in report["findings"] if each["id"] == "invalid-version"]
    assert finding["subjects"] == ["function:my:f/Softmax: 20 and 12"]


def test_an_operator_that_means_something_else_in_another_opset_is_another_wiring(tmp_path: Path) -> None:
    found = compare(tmp_path, softmax(13), softmax(12))

    assert not found["wiring"]["alike"]
    assert found["declared"] == [{"what": "opset ai.onnx", "a": "13", "b": "12"}]
    assert compare(tmp_path, softmax(13), softmax(17))["wiring"]["alike"]
    text = run_here("compare", tmp_path / "one.onnx", tmp_path / "other.onnx").stdout
    assert "opset 13 -> 17" in text.splitlines()[0]


def test_inputs_and_outputs_are_compared(tmp_path: Path) -> None:
    other = plain()
    other.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 16
    outputs = [*other.graph.output]
    del other.graph.output[:]
    other.graph.output.extend(reversed(outputs))

    found = compare(tmp_path, plain(), other)

    assert {each["what"]: (each["a"], each["b"]) for each in found["declared"]} == {
        "input x": ("FLOAT n x 8", "FLOAT n x 16"),
        "order of outputs": ("y, z", "z, y"),
    }
    assert not run_here("compare", tmp_path / "one.onnx", tmp_path / "other.onnx").stdout.startswith(
        "no difference"
    )


def declaring(kind: Callable[[str], onnx.ValueInfoProto], name: str = "extra") -> onnx.ModelProto:
    """Return the model with one more input, which no node reads."""
    proto = plain()
    proto.graph.input.append(kind(name))
    return proto


def sequence(dim: int) -> Callable[[str], onnx.ValueInfoProto]:
    return lambda name: helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, ["n", dim])


def sparse(element: int) -> Callable[[str], onnx.ValueInfoProto]:
    return lambda name: helper.make_sparse_tensor_value_info(name, element, [3, 4])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (sequence(4), sequence(5), ("sequence of FLOAT n x 4", "sequence of FLOAT n x 5")),
        (
            sparse(TensorProto.FLOAT),
            sparse(TensorProto.DOUBLE),
            ("sparse FLOAT 3 x 4", "sparse DOUBLE 3 x 4"),
        ),
    ],
    ids=["sequence", "sparse"],
)
def test_types_of_the_elements_are_compared(
    tmp_path: Path,
    one: Callable[[str], onnx.ValueInfoProto],
    other: Callable[[str], onnx.ValueInfoProto],
    expected: tuple[str, str],
) -> None:
    found = compare(tmp_path, declaring(one), declaring(other))

    assert found["declared"] == [{"what": "input extra", "a": expected[0], "b": expected[1]}]


EVIL = "x\x1b[2J\u202e<script>alert(1)</script>\n::error::y"


@pytest.mark.parametrize("suffix", ["txt", "md", "csv", "html"])
def test_names_in_declarations_are_raw_in_json_alone(tmp_path: Path, suffix: str) -> None:
    one, other = plain(), declaring(lambda name: helper.make_tensor_value_info(name, 1, [EVIL]), EVIL)
    for proto, version in ((one, 17), (other, 18)):
        body = [helper.make_node("Relu", ["a"], ["b"])]
        opset = [helper.make_opsetid("", version)]
        proto.functions.append(helper.make_function(EVIL, EVIL, ["a"], ["b"], body, opset))
        proto.opset_import.append(helper.make_opsetid(EVIL, 1))

    found = compare(tmp_path, one, other)
    paths, page = (tmp_path / "one.onnx", tmp_path / "other.onnx"), tmp_path / f"page.{suffix}"
    ran = run_here("compare", *paths, "-o", page, "-n", "0")

    assert [each["what"] for each in found["declared"]] == [
        f"opset ai.onnx of {EVIL}:{EVIL}",
        f"input {EVIL}",
    ]
    assert [(each["a"], each["b"]) for each in found["declared"]] == [("17", "18"), (None, f"FLOAT {EVIL}")]
    written = page.read_text(encoding="utf-8")
    for text in (written, ran.stdout, ran.stderr):
        assert not any(mark in text for mark in ("\x1b", "\u202e", "\n::error"))
    assert "<script>alert" not in written or suffix == "txt"
    assert "alert" in written or suffix == "csv"  # only rows of tensors


def test_a_long_order_is_shortened_where_people_read_it(tmp_path: Path) -> None:
    names = [f"mask_of_layer_{at}" for at in range(40)]
    one, other = plain(), plain()
    for proto, order in ((one, names), (other, names[::-1])):
        proto.graph.input.extend(helper.make_tensor_value_info(name, 1, [2]) for name in order)

    found = compare(tmp_path, one, other)
    markdown = run_here(
        "compare", tmp_path / "one.onnx", tmp_path / "other.onnx", "--format", "markdown"
    ).stdout

    assert found["declared"] == [
        {
            "what": "order of inputs",
            "a": ", ".join(["x", *names]),
            "b": ", ".join(["x", *names[::-1]]),
        }
    ]
    assert "| order of inputs | x, mask_of_layer_0" in markdown.replace("\\_", "_").replace("`", "")
    assert "mask_of_layer_20" not in markdown.replace("\\_", "_")


def test_no_name_of_a_file_writes_itself_into_the_answer(tmp_path: Path) -> None:
    spoken = "same size; 0 tensors differ"
    one, other = plain(), plain()
    for proto, version in ((one, 1), (other, 2)):
        proto.opset_import.append(helper.make_opsetid(spoken, version))
        proto.opset_import.append(helper.make_opsetid("acme.ops", version))
    other.graph.input.append(helper.make_tensor_value_info("y 1; input z 2", 1, [2]))

    compare(tmp_path, one, other)
    text = run_here("compare", tmp_path / "one.onnx", tmp_path / "other.onnx").stdout
    answer, _, rest = " ".join(text.split()).partition(" old ")

    assert "opset acme.ops 1 -> 2; 2 declarations changed" in answer
    assert spoken not in answer
    assert "opset same size; 0 tensors differ 1 2" in rest
    assert "y 1; input z 2 none" in rest


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (30_000, 3, "<-99.9 %"),
        (30_000, 29_999, ">-0.1 %"),
        (30_000, 30_001, "<+0.1 %"),
        (30_000, 59_999, "+100.0 %"),
    ],
)
def test_a_change_of_next_to_nothing_or_all_reads_as_one(
    tmp_path: Path, old: int, new: int, change: str
) -> None:
    paths = tmp_path / "one.onnx", tmp_path / "other.onnx"
    for path, length in zip(paths, (old, new), strict=True):
        proto = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 18]>'
            f"g (float[1,1] x) => (float[1,{length}] y) {{ y = MatMul(x, w) }}"
        )
        proto.graph.initializer.append(
            numpy_helper.from_array(np.arange(length, dtype=np.float32)[None], "w")
        )
        onnx.save(proto, path)

    printed = run_here("compare", *paths).stdout

    assert f"{old:,} -> {new:,} parameters ({change})" in " ".join(printed.split())


def test_a_report_is_not_the_file_that_stands_there_now(tmp_path: Path) -> None:
    model, report = save(tmp_path, plain()), tmp_path / "monday.json"
    run_here("inspect", model, "-o", report, "--quiet")
    changed = plain()
    changed.graph.initializer[0].CopyFrom(numpy_helper.from_array(UP + 1, changed.graph.initializer[0].name))
    onnx.save(changed, model)

    text = run_here("compare", report, model).stdout

    assert not text.startswith("the same file")
    assert "values were not compared" in text.replace("\n", " ")


def test_a_report_has_no_imports_of_functions(tmp_path: Path) -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 18, "own" : 1]> g (float[2] x) => (float[2] y) { y = own.f(x) }'
    )
    function = '<domain: "own", opset_import: ["" : 17]> f (a) => (b) { b = Relu(a) }'
    model, report = save(tmp_path, onnx.parser.parse_model(f"{text}\n{function}")), tmp_path / "report.json"
    run_here("inspect", model, "-o", report, "--quiet")

    found = json.loads(run_here("compare", report, model, "--format", "json").stdout)

    assert found["declared"] == []


def test_strict_has_no_answer_of_contents_that_were_not_looked_at(tmp_path: Path) -> None:
    model = save(tmp_path, plain())

    assert run_here("inspect", model, "--strict", "--quiet").returncode == 0
    unseen = run_here("inspect", model, "--strict", "--content", "none", "--quiet")
    assert (unseen.returncode, "contents were not read" in unseen.stderr) == (2, True)


def test_the_opset_of_a_function_counts(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18, "own" : 1]> g (float[2] x) => (float[2] y) { y = own.f(x) }\n'
        '<domain: "own", opset_import: ["" : 9]> f (a) => (b) { b = Relu(a) }'
    )
    model = save(tmp_path, proto)

    assert run_here("check", model, "--min-opset", "9", "--quiet").returncode == 0
    assert run_here("check", model, "--min-opset", "17", "--quiet").returncode == 1


def test_a_report_whose_nodes_are_not_its_operators_is_refused(tmp_path: Path) -> None:
    model, report = save(tmp_path, plain()), tmp_path / "report.json"
    run_here("inspect", model, "-o", report, "--quiet")
    document = json.loads(report.read_text())
    document["model"]["nodes"] = 1
    report.write_text(json.dumps(document))

    refused = run_here("check", report, "--max-nodes", "1")

    assert (refused.returncode, "its operators are" in refused.stdout.replace("\n", " ")) == (2, True)


QUANTIZED = """g (float[n,8] x) => (float[n,8] y) {
    q = QuantizeLinear(x, "x.scale", "x.zero")  d = DequantizeLinear(q, "x.scale", "x.zero")
    w = DequantizeLinear("w.codes", "w.scale", "w.zero")  y = MatMul(d, w)
}"""


def quantized(scale: float = 0.02, zero: int = 0, activation: float = 0.1) -> onnx.ModelProto:
    codes = np.arange(-32, 32, dtype=np.int8).reshape(8, 8)
    numbers = {"x.scale": np.float32(activation), "x.zero": np.uint8(7), "w.codes": codes}
    return text_model(QUANTIZED, {**numbers, "w.scale": np.float32(scale), "w.zero": np.int8(zero)})


@pytest.mark.parametrize(
    ("other", "name"),
    [({"scale": 0.03}, "w.scale"), ({"zero": 1}, "w.zero"), ({"activation": 0.2}, "x.scale")],
)
@pytest.mark.parametrize("more", [(), ("--content", "full")])
def test_a_changed_scale_is_a_changed_tensor_and_the_wiring_is_the_same(
    tmp_path: Path, other: dict[str, Any], name: str, more: tuple[str, ...]
) -> None:
    found = compare(tmp_path, quantized(), quantized(**other), *more)

    assert [pair["name"] for pair in found["tensors"] if pair["changed"] == ["values"]] == [name]
    assert found["wiring"] == {"alike": True, "first": None}
    text = run_here("compare", tmp_path / "one.onnx", tmp_path / "other.onnx", *more).stdout
    assert "1 scale or zero point changed" in text.partition("\nold ")[0].replace("\n", " ")


def with_notes(key: str = "", value: str = "") -> onnx.ModelProto:
    """Return a model with notes in all places, one of them replaced."""
    notes = {"author": "ann", "doc": "first", "graph": "hello", "inside": "abc", "rate": "1", "step": "Add"}
    notes |= {key: value} if key else {}
    proto = plain()
    proto.producer_name, proto.doc_string, proto.graph.doc_string = "maker", notes["doc"], notes["graph"]
    proto.metadata_props.add(key="author", value=notes["author"])
    proto.graph.metadata_props.add(key="inside", value=notes["inside"])
    algorithm = proto.training_info.add().algorithm
    algorithm.name = "step"
    algorithm.node.add(op_type=notes["step"], input=["a", "rate"], output=["b"])
    algorithm.initializer.append(numpy_helper.from_array(np.float32([float(notes["rate"])]), "rate"))
    return proto


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("author", "bob", "metadata author"),
        ("doc", "other", "doc string"),
        ("graph", "hullo", "doc string of the graph"),
        ("inside", "abx", "metadata of the graph"),
    ],
)
def test_changed_notes_of_the_same_length_are_reported(
    tmp_path: Path, key: str, value: str, what: str
) -> None:
    found = compare(tmp_path, with_notes(), with_notes(key, value))

    (note,) = found["file_notes"]
    assert note["what"] == what
    assert note["a"] != note["b"]
    assert found["declared"] == []
    text = run_here("compare", tmp_path / "one.onnx", tmp_path / "other.onnx").stdout
    assert text.startswith("no difference in the compared parts, except notes\n")
    assert re.search(rf"^notes of the file .*^{re.escape(what)} ", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("key", "value"), [("rate", "2"), ("step", "Sub")])
def test_another_training_is_reported(tmp_path: Path, key: str, value: str) -> None:
    found = compare(tmp_path, with_notes(), with_notes(key, value))

    (declared,) = found["declared"]
    assert declared["what"] == "training_info"
    assert declared["a"] != declared["b"]
    assert found["file_notes"] == []
    text = run_here("compare", tmp_path / "one.onnx", tmp_path / "other.onnx").stdout
    assert "1 declaration changed" in text.partition("\nold ")[0].replace("\n", " ")


def test_what_is_not_compared_is_reported_where_nothing_else_differs(tmp_path: Path) -> None:
    one, other = plain(), plain()
    one.graph.node[0].doc_string, other.graph.node[0].doc_string = "abc", "abx"
    found = compare(tmp_path, one, other, "--content", "full")

    assert (found["file_notes"], found["declared"], found["same_file"]) == ([], [], False)
    text = run_here("compare", tmp_path / "one.onnx", tmp_path / "other.onnx", "--content", "full").stdout
    assert "the files differ in bytes" in text


def test_notes_of_any_size_and_kind_are_reported_in_few_words(tmp_path: Path) -> None:
    one, other = plain(), plain()
    one.metadata_props.add(key="large", value="x" * 3_000_000)
    other.metadata_props.add(key="large", value="x" * 2_999_999 + "\x1b")
    found = compare(tmp_path, one, other)
    assert [note["what"] for note in found["file_notes"]] == ["header"]

    for proto in (one, other):
        proto.metadata_props[0].value = proto.metadata_props[0].value[-200:]
    found = compare(tmp_path, one, other)
    (note,) = found["file_notes"]
    assert (note["what"], note["a"].partition(" SHA")[0]) == ("metadata large", "200 bytes,")

    for proto in (one, other):
        proto.metadata_props[0].value = proto.metadata_props[0].value[-3:]
    assert compare(tmp_path, one, other)["file_notes"][0]["b"] == "xx\x1b"
    assert "\x1b" not in run_here("compare", tmp_path / "one.onnx", tmp_path / "other.onnx").stdout
