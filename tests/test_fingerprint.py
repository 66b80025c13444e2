"""Digest of a model's computation with its weights: changes that it ignores, and changes that it detects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from models import dynamo_like, manifest_of, noise, parameters_of, reconcile, set_metadata, text_model
from onnx import ModelProto, TensorProto

from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.verdict import compare_wiring, wiring_of

WEIGHTS = {"a.weight": noise(6, 6), "b.weight": noise(6, 6, seed=1)}
SCOPES = {"m": "a", "r": "act", "s": "b", "n": "b"}
TEXT = """g (float[2,6] x) => (float[2,6] y) {
    [m] h = MatMul (x, "a.weight")
    [r] e = LeakyRelu <alpha = 0.5> (h)
    [s] k = Sub (e, half)
    [n] y = MatMul (k, "b.weight")
}"""
HALF = {"half": noise(1, seed=5)}


def export(text: str = TEXT, functions: str = "", header: str = "", **stored: object) -> ModelProto:
    return dynamo_like(
        text_model(f"{header}{text} {functions}", {**WEIGHTS, **HALF, **stored}),  # type: ignore[dict-item]
        scopes=SCOPES,
        parameters=tuple(WEIGHTS),
    )


def bridge(folder: Path, proto: ModelProto) -> Reconciliation:
    return reconcile(folder, proto, manifest_of(*parameters_of(WEIGHTS)))


def outputs(folder: Path, proto: ModelProto) -> str:
    wired = wiring_of(bridge(folder, proto))
    assert wired is not None
    return wired.outputs


LOCAL = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]>\n'
WRAPPED = '<domain: "local", opset_import: ["" : 18]> act (a) => (b) { b = LeakyRelu <alpha = 0.5> (a) }'


def carried_by_a_constant() -> ModelProto:
    number = float(HALF["half"][0])
    proto = export(TEXT.replace("[s] k", f"half = Constant <value = float[1] {{ {number!r} }}> () [s] k"))
    (index,) = (i for i, tensor in enumerate(proto.graph.initializer) if tensor.name == "half")
    del proto.graph.initializer[index]
    return proto


def noted() -> ModelProto:
    proto = export()
    proto.doc_string = "a note"
    set_metadata(proto, {"some": "note"})
    proto.graph.node[0].doc_string = "another"
    return proto


def in_fields() -> ModelProto:
    proto = export()
    for tensor in proto.graph.initializer:
        floats = memoryview(tensor.raw_data).cast("f").tolist()
        tensor.ClearField("raw_data")
        tensor.data_type = TensorProto.FLOAT
        tensor.float_data.extend(floats)
    return proto


ALIKE = {
    "names of values": export(TEXT.replace("h =", "other =").replace("(h)", "(other)")),
    "another order of nodes": export(
        TEXT.replace("[m] h", "[z] spare = Identity (half) [m] h").replace("(e, half)", "(e, spare)")
    ),
    "an Identity": export(TEXT.replace("[s] k = Sub (e,", "i = Identity (e) [s] k = Sub (i,")),
    "a node wrapped in a function": export(
        TEXT.replace("LeakyRelu <alpha = 0.5>", "local.act"), WRAPPED, LOCAL
    ),
    "notes": noted(),
    "a Constant in place of an initializer": carried_by_a_constant(),
    "a tensor's other fields": in_fields(),
}


@pytest.mark.parametrize("change", ALIKE)
def test_what_computes_the_same_has_the_same_digest(change: str, tmp_path: Path) -> None:
    assert outputs(tmp_path, ALIKE[change]) == outputs(tmp_path, export())


OTHER = {
    "an attribute": (TEXT.replace("0.5", "0.25"), "act"),
    "an operator": (TEXT.replace("LeakyRelu <alpha = 0.5>", "Elu <alpha = 0.5>"), "act"),
    "exchanged inputs": (TEXT.replace("(e, half)", "(half, e)"), "b"),
    "an operator at the end": (TEXT.replace("Sub", "Add"), "b"),
    "exchanged weights": (
        TEXT.replace("a.weight", "?").replace("b.weight", "a.weight").replace("?", "b.weight"),
        "a",
    ),
}


@pytest.mark.parametrize("change", OTHER)
def test_what_computes_something_else_has_another_digest(change: str, tmp_path: Path) -> None:
    text, module = OTHER[change]
    known = wiring_of(bridge(tmp_path, export()))

    result = bridge(tmp_path, export(text))
    result = replace(result, manifest=replace(result.manifest, wiring=known))

    assert compare_wiring(result) == ("differs", module)


FUNCTION_TEXT = TEXT.replace("LeakyRelu <alpha = 0.5>", "local.act")
SETTING = """<domain: "local", opset_import: ["" : 18]> act <slope: float = {}> (a) => (b) {{ {} }}"""


@pytest.mark.parametrize(
    "body",
    [
        "b = LeakyRelu <alpha : float = @slope> (a)",
        "s = Constant <value_float : float = @slope> () b = Mul (a, s)",
    ],
    ids=["in an operator", "in a constant"],
)
def test_the_default_of_a_functions_attribute_is_read(body: str, tmp_path: Path) -> None:
    first, second = (
        outputs(tmp_path, export(FUNCTION_TEXT, SETTING.format(default, body), LOCAL))
        for default in ("0.5", "0.25")
    )

    assert first != second


def test_a_default_that_the_call_repeats_changes_nothing(tmp_path: Path) -> None:
    function = SETTING.format("0.5", "b = LeakyRelu <alpha : float = @slope> (a)")

    left_out = export(FUNCTION_TEXT, function, LOCAL)
    repeated = export(FUNCTION_TEXT.replace("local.act", "local.act <slope = 0.5>"), function, LOCAL)

    assert outputs(tmp_path, left_out) == outputs(tmp_path, repeated) == outputs(tmp_path, export())


def test_another_constant_is_seen(tmp_path: Path) -> None:
    assert outputs(tmp_path, export(half=noise(1, seed=6))) != outputs(tmp_path, export())


def test_an_export_reads_as_exported(tmp_path: Path) -> None:
    result = bridge(tmp_path, export())

    assert compare_wiring(replace(result, manifest=replace(result.manifest, wiring=wiring_of(result)))) == (
        "as-exported",
        None,
    )


def test_nothing_is_compared_with_a_manifest_without_wiring(tmp_path: Path) -> None:
    assert compare_wiring(bridge(tmp_path, export())) == ("not-compared", None)


def test_a_file_that_a_tool_says_to_have_rewritten_is_not_compared(tmp_path: Path) -> None:
    known = wiring_of(bridge(tmp_path, export()))
    proto = export(OTHER["an attribute"][0])
    proto.producer_name = "onnxruntime"

    result = bridge(tmp_path, proto)

    assert (
        compare_wiring(replace(result, manifest=replace(result.manifest, wiring=known)))[0] == "not-compared"
    )
