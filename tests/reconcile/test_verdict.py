"""Results beside the lines of an account: remarks, most similar candidates, and whether wiring changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from commands import run_here
from models import (
    Array,
    audit,
    bridge_of,
    dynamo_like,
    manifest_of,
    noise,
    outs,
    parameter,
    parameters_of,
    quantized,
    ramp,
    reconcile,
    save,
    text_model,
)
from onnx import helper, numpy_helper
from safetensors.numpy import save_file

from analyzer.account.ledger import Finding, Severity
from analyzer.manifest import Manifest, Program
from analyzer.reconciliation import Nearest, Reconciliation, reconcile_ledger, wiring_of

FC = ramp(3, 2)
TIED = manifest_of(parameter("wte.weight", FC, tied=("head.weight",)))


def with_head(head: Array, name: str = "head.weight", node: str = "n") -> onnx.ModelProto:
    text = f"""g (int64[1,4] ids) => (float[1,4,2] y) {{
        h = Gather("wte.weight", ids)
        ["{node}"] y = MatMul(h, "{name}")
    }}"""
    return text_model(text, {"wte.weight": FC, name: head})


def find_finding(result: Reconciliation, id_: str) -> Finding | None:
    found = [finding for finding in result.findings if finding.id == id_]
    assert len(found) <= 1
    return found[0] if found else None


# findings of the file alone


POWERS = noise(3, 2)


@pytest.mark.parametrize(
    ("stored", "code", "ids"),
    [(POWERS, 0, []), (2 * POWERS, 1, ["differing", "program-unknown"])],
    ids=["balanced", "differing"],
)
def test_a_tensor_with_a_line_is_not_reported_as_unattributed(tmp_path, stored, code, ids):
    """No node tells that `w` is learned, so `inspect` warns. PyTorch's side tells."""
    path = save(tmp_path, text_model("g (float[3,2] x) => (float[3,2] y) { y = Pow(x, w) }", {"w": stored}))
    save_file({"w": POWERS}, tmp_path / "w.safetensors")
    assert "unattributed" in [
        each["id"] for each in json.loads(run_here("inspect", path, "--format", "json").stdout)["findings"]
    ]

    done = run_here(
        "reconcile", path, "--against", tmp_path / "w.safetensors", "--strict", "--format", "json"
    )

    assert done.returncode == code
    assert [each["id"] for each in json.loads(done.stdout)["findings"]] == ids


# ties


@pytest.mark.parametrize(
    ("name", "head"),
    [("head.weight", FC), ("onnx::MatMul_9", FC.T.copy())],
    ids=["as it stands", "transposed"],
)
def test_tied_parameter_that_is_stored_again_is_untied(tmp_path, name, head):
    result = reconcile(tmp_path, with_head(head, name), TIED)

    assert result.balanced
    assert find_finding(result, "untied-weights") == Finding(
        "untied-weights",
        Severity.WARNING,
        "6 elements (24 bytes) that PyTorch ties to other names are stored again",
        (f"{name} = wte.weight (wte.weight, head.weight)",),
        24,
    )


@pytest.mark.parametrize(
    ("name", "node", "head"),
    [("head.weight", "n", noise(3, 2)), ("onnx::MatMul_9", "/head/MatMul", noise(2, 3))],
    ids=["by its name", "by the module that reads it"],
)
def test_tied_parameter_with_values_of_its_own_is_untied_and_does_not_balance(tmp_path, name, node, head):
    result = reconcile(tmp_path, with_head(head, name, node), TIED)

    found = find_finding(result, "untied-weights")
    assert found is not None
    assert found.message == (
        "6 elements (24 bytes) that PyTorch ties to other names are stored with different values"
    )
    assert found.subjects == (f"{name} is not wte.weight (wte.weight, head.weight)",)
    assert found.nbytes == 24
    assert not result.balanced


def test_unexpected_tensor_of_another_module_undoes_no_tie(tmp_path):
    result = reconcile(tmp_path, with_head(noise(2, 3), "onnx::MatMul_9", "/other/MatMul"), TIED)

    assert find_finding(result, "untied-weights") is None
    assert find_finding(result, "unexpected") is not None


def test_tied_parameter_that_is_stored_once_is_no_finding(tmp_path):
    proto = text_model(
        'g (int64[1,4] ids) => (float[1,4,2] y) { y = Gather("wte.weight", ids) }', {"wte.weight": FC}
    )

    result = reconcile(tmp_path, proto, TIED)

    assert bridge_of(result) == {"tied": (1, 6, 0, 0)}
    assert result.findings == ()


def test_copy_of_a_parameter_of_one_name_undoes_no_tie(tmp_path):
    result = reconcile(tmp_path, with_head(FC.T.copy(), "m"), manifest_of(parameter("wte.weight", FC)))

    assert bridge_of(result)["copied"] == (1, 6, 0, 6)
    assert result.findings == ()


# types


def linear(stored: Array) -> onnx.ModelProto:
    return text_model(
        'g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, "fc.weight") }', {"fc.weight": stored}
    )


@pytest.mark.parametrize(
    ("stored", "original", "types", "saved"),
    [
        ("f4", "f2", "32 bits for 16", 12),
        ("f4", ml_dtypes.bfloat16, "32 bits for 16", 12),
        ("f8", "f4", "64 bits for 32", 24),
        ("f8", "f2", "64 bits for 16", 36),
    ],
)
def test_weight_in_more_bits_than_pytorchs_is_reported_with_what_it_costs(
    tmp_path, stored, original, types, saved
):
    array = FC.astype(original)

    result = reconcile(tmp_path, linear(array.astype(stored)), manifest_of(parameter("fc.weight", array)))

    assert find_finding(result, "wider-than-checkpoint") == Finding(
        "wider-than-checkpoint",
        Severity.NOTE,
        f"6 learned elements are stored in more bits than in PyTorch ({types}); PyTorch's types would take {saved} "
        "bytes less",
        ("fc.weight",),
        saved,
    )


@pytest.mark.parametrize(("stored", "original"), [("f4", "f4"), ("f2", "f4"), ("f2", "f2")])
def test_weight_in_pytorchs_type_or_a_narrower_is_no_finding(tmp_path, stored, original):
    array = FC.astype(original)

    result = reconcile(tmp_path, linear(array.astype(stored)), manifest_of(parameter("fc.weight", array)))

    assert find_finding(result, "wider-than-checkpoint") is None


def test_weight_with_other_values_may_need_its_type(tmp_path):
    result = reconcile(
        tmp_path, linear(noise(3, 2)), manifest_of(parameter("fc.weight", noise(3, 2, seed=1).astype("f2")))
    )

    assert find_finding(result, "wider-than-checkpoint") is None
    assert find_finding(result, "differing") is not None


def test_packed_weights_need_the_widest_type_among_them(tmp_path):
    parts = [noise(3, 2, seed=seed) for seed in range(3)]
    half = [part.astype("f2").astype("f4") for part in parts]
    names = [f"att.{name}.weight" for name in ("q", "k", "v")]
    text = 'g (float[1,3] x) => (float[1,6] y) { ["/att/MatMul"] y = MatMul(x, "onnx::MatMul_3") }'

    def found(*dtypes: str) -> Finding | None:
        proto = text_model(text, {"onnx::MatMul_3": np.concatenate(half, axis=1)})
        tensors = [parameter(n, h.T.astype(d)) for n, h, d in zip(names, half, dtypes, strict=True)]
        result = reconcile(tmp_path, proto, manifest_of(*tensors))
        assert result.balanced, bridge_of(result)
        return find_finding(result, "wider-than-checkpoint")

    narrow, mixed = found("f2", "f2", "f2"), found("f2", "f4", "f2")

    assert narrow is not None
    assert narrow.nbytes == 36
    assert found("f4", "f2", "f2") is None
    assert mixed is None


# PyTorch code that is not available


COMPUTED = """g (float[1,3] x) => (float[1,2] y) {
    h = MatMul(x, "onnx::MatMul_7") y = Mul(h, "softplus")
}"""
DECAY = ramp(2)


def half_known(**how: bool | str | None) -> Manifest:
    return replace(manifest_of(parameter("fc.weight", FC.T.copy()), parameter("decay", DECAY)), **how)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (
            half_known(lists_all_buffers=False),
            "4 elements may be computed in advance, or unused",
        ),
        (half_known(trace="exported-program"), "the manifest was written without the values"),
        (half_known(), None),
        (half_known(trace="exported-program", program=Program()), None),
    ],
    ids=["a state dict", "an old manifest", "a class", "a manifest"],
)
def test_what_code_that_is_not_at_hand_may_compute_is_reported(tmp_path, known, words):
    stored = {"onnx::MatMul_7": FC, "softplus": np.log1p(np.exp(DECAY)).astype("f4")}

    result = reconcile(tmp_path, text_model(COMPUTED, stored), known)

    found = find_finding(result, "program-unknown")
    assert not result.balanced
    if words is None:
        assert found is None
    else:
        assert found is not None
        assert words in found.message
        assert found.subjects == ("decay", "softplus")
        assert found.severity is Severity.NOTE


def test_of_what_balances_and_of_other_values_under_a_name_it_is_not(tmp_path):
    text = 'g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, "fc.weight") }'
    known = replace(manifest_of(parameter("fc.weight", FC)), lists_all_buffers=False)

    assert (
        find_finding(reconcile(tmp_path, text_model(text, {"fc.weight": FC}), known), "program-unknown")
        is None
    )
    assert (
        find_finding(reconcile(tmp_path, text_model(text, {"fc.weight": FC + 1}), known), "program-unknown")
        is None
    )


# candidates for unexplained tensors

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

FC_NEAREST = ramp(4, 6)


def run(
    tmp_path,
    stored: dict[str, np.ndarray],
    known: dict[str, np.ndarray],
    content: str = "full",
    *,
    at_hand: bool = False,
) -> Reconciliation:
    nodes = " ".join(f'y{i} = MatMul(x, "{name}")' for i, name in enumerate(stored))
    proto = text_model(f"g (float[1] x) => ({outs(len(stored))}) {{ {nodes} }}", stored)
    return reconcile(tmp_path, proto, manifest_of(*parameters_of(known)), content, known if at_hand else None)


def changed(array: np.ndarray, by: float = 0.5) -> np.ndarray:
    other = array.copy()
    other[1, 2] += np.float32(by)
    return other


@both
@pytest.mark.parametrize("turned", [False, True])
def test_candidate_has_most_elements_in_common_and_says_how_many(tmp_path, turned, at_hand):
    stored = changed(FC_NEAREST).T.copy() if turned else changed(FC_NEAREST)

    result = run(
        tmp_path,
        {"onnx::MatMul_3": stored},
        {"fc.weight": FC_NEAREST, "other.weight": noise(4, 6)},
        at_hand=at_hand,
    )

    assert result.nearest == (Nearest(((), "onnx::MatMul_3"), "fc.weight", 23, 24, 0.5),)


@both
def test_parameter_that_differs_is_beside_itself(tmp_path, at_hand):
    result = run(tmp_path, {"fc.weight": changed(FC_NEAREST)}, {"fc.weight": FC_NEAREST}, at_hand=at_hand)

    assert [(near.key, near.name) for near in result.nearest] == [(((), "fc.weight"), "fc.weight")]


@both
def test_of_equally_unlike_ones_the_one_that_is_missing_goes_first(tmp_path, at_hand):
    known = {"held.weight": FC_NEAREST, "gone.weight": FC_NEAREST + 100}

    result = run(tmp_path, {"held.weight": FC_NEAREST, "extra": FC_NEAREST + 1000}, known, at_hand=at_hand)

    assert [(near.key[1], near.name) for near in result.nearest] == [("extra", "gone.weight")]


@both
def test_changed_copy_of_a_matched_parameter_is_near_that(tmp_path, at_hand):
    known = {"held.weight": FC_NEAREST, "gone.weight": noise(4, 6)}

    result = run(tmp_path, {"held.weight": FC_NEAREST, "extra": changed(FC_NEAREST)}, known, at_hand=at_hand)

    assert [(near.name, near.equal) for near in result.nearest] == [("held.weight", 23)]


def test_codes_are_near_what_they_are_within_a_step_of(tmp_path):
    known = noise(4, 6)
    tensors = quantized("w", known)
    tensors["w_quantized"][0, 0] += np.int8(20 if tensors["w_quantized"][0, 0] < 0 else -20)
    proto = text_model(
        "g (float[1] x) => (float[1] y) { d = DequantizeLinear(w_quantized, w_scale, w_zero_point) y = MatMul(x, d) }",
        tensors,
    )

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of({"fc.weight": known})))

    assert [(near.name, near.equal, near.compared) for near in result.nearest] == [("fc.weight", 23, 24)]


@both
def test_nothing_of_that_size_is_no_candidate(tmp_path, at_hand):
    assert run(tmp_path, {"extra": FC_NEAREST}, {"fc.weight": ramp(5, 5)}, at_hand=at_hand).nearest == ()


def test_nothing_is_near_where_values_are_not_compared(tmp_path):
    assert run(tmp_path, {"extra": FC_NEAREST}, {"fc.weight": noise(4, 6)}, "none").nearest == ()


def test_what_balances_needs_no_candidates(tmp_path):
    assert run(tmp_path, {"fc.weight": FC_NEAREST}, {"fc.weight": FC_NEAREST}).nearest == ()


@both
def test_of_as_many_elements_in_common_the_least_difference_decides(tmp_path, at_hand):
    known = {"far.weight": FC_NEAREST + 100, "near.weight": FC_NEAREST + 1, "other.weight": FC_NEAREST + 50}

    result = run(tmp_path, {"extra": FC_NEAREST + np.float32(1.5)}, known, at_hand=at_hand)

    assert [(near.name, near.equal, near.max_abs_error) for near in result.nearest] == [
        ("near.weight", 0, 0.5)
    ]


@both
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_difference_that_is_no_number_is_larger_than_any_other(tmp_path, at_hand, names):
    endless = FC_NEAREST + 1
    endless[0, 0] = np.inf
    known = {f"{name}.weight": array for name, array in zip(names, (endless, FC_NEAREST + 100), strict=True)}

    result = run(tmp_path, {"extra": FC_NEAREST + np.float32(1.5)}, known, at_hand=at_hand)

    assert [(near.name, near.max_abs_error) for near in result.nearest] == [(f"{names[1]}.weight", 98.5)]


# whether a file uses its weights as the export did, and the first module that does not

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
    """Return the manifest that `export` writes: parameters, and how the file computes with them."""
    plain = manifest_of(*parameters_of(known or KNOWN))
    (folder / "exported").mkdir()
    recorded = wiring_of(reconcile_ledger(audit(folder / "exported", exported(known=known)), plain))
    assert recorded is not None
    return replace(plain, wiring=recorded)


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


def test_a_manifest_without_wiring_is_compared_with_nothing(tmp_path: Path) -> None:
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
    recorded = wiring_of(reconcile_ledger(audit(tmp_path, with_scale(0.5)), plain))
    known = replace(plain, wiring=recorded)

    assert reconcile_ledger(audit(tmp_path, with_scale(0.5)), known).reads == "as-exported"
    assert reconcile_ledger(audit(tmp_path, with_scale(0.25)), known).reads == "differs"
