"""Whether a file computes with its weights what the export did, and the first module that does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import audit, dynamo_like, manifest_of, noise, parameters_of, text_model
from onnx import helper, numpy_helper

from analyzer.content import Array
from analyzer.manifest import Manifest
from analyzer.reconciliation import Reconciliation, reconcile_ledger
from analyzer.reconciliation.wired import wiring_of

KNOWN = {"a.weight": noise(8, 8), "b.weight": noise(8, 8, seed=1), "norm.weight": noise(8, seed=2)}
TEXT = """g (float[1,8] x) => (float[1,8] y) {{
    [first] p = MatMul(x, "a.weight")
    [act] q = {act}(p)
    [second] r = MatMul(q, "b.weight")
    [sum] s = Add({sum})
    [last] y = LayerNormalization<epsilon={epsilon}>(s, "norm.weight")
}}"""
SCOPES = {"first": "a", "act": "act", "second": "b", "sum": "", "last": "norm"}


def exported(
    act: str = "Gelu", sum: str = "r, x", epsilon: float = 1e-5, known: dict[str, Array] | None = None
) -> onnx.ModelProto:
    text = '<ir_version: 10, opset_import: ["" : 20]> ' + TEXT.format(act=act, sum=sum, epsilon=epsilon)
    return dynamo_like(text_model(text, known or KNOWN), scopes={k: v for k, v in SCOPES.items() if v})


def manifest(folder: Path, known: dict[str, Array] | None = None) -> Manifest:
    """What `export` writes: the parameters, and how the file computes with them."""
    plain = manifest_of(*parameters_of(known or KNOWN))
    (folder / "exported").mkdir()
    told = wiring_of(reconcile_ledger(audit(folder / "exported", exported(known=known)), plain))
    assert told is not None
    return replace(plain, wiring=told)


def read(folder: Path, proto: onnx.ModelProto) -> Reconciliation:
    return reconcile_ledger(audit(folder, proto), manifest(folder))


def test_the_export_itself_reads_as_exported(tmp_path: Path) -> None:
    result = read(tmp_path, exported())

    assert (result.reads, result.differs_from) == ("as-exported", None)
    assert result.balanced


@pytest.mark.parametrize(
    ("changes", "module"),
    [
        ({"act": "Relu"}, "act"),
        ({"epsilon": 1e-3}, "norm"),
        ({"sum": "r, r"}, "norm"),
        ({"sum": "q, x"}, "b"),
    ],
    ids=["operator", "attribute", "no residual", "another source"],
)
def test_what_computes_otherwise_is_named_by_its_first_module(
    tmp_path: Path, changes: dict[str, object], module: str
) -> None:
    result = read(tmp_path, exported(**changes))  # type: ignore[arg-type]

    assert (result.reads, result.differs_from) == ("differs", module)
    assert [finding.severity.value for finding in result.findings if finding.id == "wiring-differs"] == [
        "warning"
    ]


def reversed_initializers(proto: onnx.ModelProto) -> None:
    kept = list(proto.graph.initializer)[::-1]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)


def renamed_values(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        node.input[:] = [f"other_{name}" if name in "pqrs" and name else name for name in node.input]
        node.output[:] = [f"other_{name}" if name in "pqrs" else name for name in node.output]


def through_identities(proto: onnx.ModelProto) -> None:
    proto.graph.node[2].input[0] = "copy"
    proto.graph.node.insert(2, helper.make_node("Identity", ["q"], ["copy"]))


def without_notes(proto: onnx.ModelProto) -> None:
    proto.doc_string = "seen"
    del proto.graph.value_info[:]


def with_a_dead_node(proto: onnx.ModelProto) -> None:
    proto.graph.node.append(helper.make_node("Relu", ["y"], ["nobody's"]))


def in_constants(proto: onnx.ModelProto) -> None:
    (weight,) = [tensor for tensor in proto.graph.initializer if tensor.name == "a.weight"]
    proto.graph.initializer.remove(weight)
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["a.weight"], value=weight))


@pytest.mark.parametrize(
    "rewrite",
    [
        reversed_initializers,
        renamed_values,
        through_identities,
        without_notes,
        with_a_dead_node,
        in_constants,
    ],
)
def test_what_changes_nothing_that_is_computed_is_not_seen(
    tmp_path: Path, rewrite: Callable[[onnx.ModelProto], None]
) -> None:
    proto = exported()
    rewrite(proto)

    assert read(tmp_path, proto).reads == "as-exported"


def by_another_producer(proto: onnx.ModelProto) -> None:
    proto.producer_name = "onnxruntime.transformers"


def with_a_fused_operator(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].op_type, proto.graph.node[1].domain = "FastGelu", "com.microsoft"
    proto.opset_import.add(domain="com.microsoft", version=1)


def rounded(proto: onnx.ModelProto) -> None:
    (weight,) = [tensor for tensor in proto.graph.initializer if tensor.name == "a.weight"]
    weight.CopyFrom(numpy_helper.from_array(KNOWN["a.weight"].astype("f2"), "a.weight"))


def without_scopes(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].op_type = "Relu"
    for node in proto.graph.node:
        del node.metadata_props[:]


@pytest.mark.parametrize("rewrite", [by_another_producer, with_a_fused_operator, rounded, without_scopes])
def test_what_a_tool_has_rewritten_is_compared_with_nothing(
    tmp_path: Path, rewrite: Callable[[onnx.ModelProto], None]
) -> None:
    proto = exported("Relu")
    rewrite(proto)

    result = read(tmp_path, proto)

    assert (result.reads, result.differs_from) == ("not-compared", None)
    assert "wiring-differs" not in {finding.id for finding in result.findings}


def test_a_manifest_that_tells_no_wiring_is_compared_with_nothing(tmp_path: Path) -> None:
    result = reconcile_ledger(audit(tmp_path, exported("Relu")), manifest_of(*parameters_of(KNOWN)))

    assert result.reads == "not-compared"


def test_weights_that_are_exchanged_differ(tmp_path: Path) -> None:
    proto = exported()
    proto.graph.node[0].input[1], proto.graph.node[2].input[1] = "b.weight", "a.weight"

    result = read(tmp_path, proto)

    assert (result.reads, result.differs_from) == ("differs", "a")
    assert not result.balanced


def test_parameters_of_equal_values_may_be_exchanged(tmp_path: Path) -> None:
    known = KNOWN | {"b.weight": KNOWN["a.weight"]}
    proto = exported(known=known)
    proto.graph.node[0].input[1], proto.graph.node[2].input[1] = "b.weight", "a.weight"

    result = reconcile_ledger(audit(tmp_path, proto), manifest(tmp_path, known))

    assert result.reads == "as-exported"


def test_another_constant_differs(tmp_path: Path) -> None:
    def with_scale(number: float) -> onnx.ModelProto:
        proto = exported(sum="r, k")
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(number, "f4"), "k"))
        return proto

    plain = manifest_of(*parameters_of(KNOWN))
    told = wiring_of(reconcile_ledger(audit(tmp_path, with_scale(0.5)), plain))
    known = replace(plain, wiring=told)

    assert reconcile_ledger(audit(tmp_path, with_scale(0.5)), known).reads == "as-exported"
    assert reconcile_ledger(audit(tmp_path, with_scale(0.25)), known).reads == "differs"
