"""What an account is told of beside its lines: ties that the file undoes, types wider than PyTorch's, unknown code."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import pytest
from models import Array, bridge_of, manifest_of, noise, parameter, ramp, reconcile, text_model

from analyzer.ledger import Finding, Severity
from analyzer.manifest import Manifest, Program
from analyzer.reconciliation import Reconciliation

FC = ramp(3, 2)
TIED = manifest_of(parameter("wte.weight", FC, tied=("head.weight",)))


def with_head(head: Array, name: str = "head.weight", node: str = "n") -> onnx.ModelProto:
    text = f"""g (int64[1,4] ids) => (float[1,4,2] y) {{
        h = Gather("wte.weight", ids)
        ["{node}"] y = MatMul(h, "{name}")
    }}"""
    return text_model(text, {"wte.weight": FC, name: head})


def told(result: Reconciliation, id_: str) -> Finding | None:
    found = [finding for finding in result.findings if finding.id == id_]
    assert len(found) <= 1
    return found[0] if found else None


# ties


@pytest.mark.parametrize(
    ("name", "head"),
    [("head.weight", FC), ("onnx::MatMul_9", FC.T.copy())],
    ids=["as it stands", "transposed"],
)
def test_tied_parameter_that_is_stored_again_is_untied(tmp_path, name, head):
    result = reconcile(tmp_path, with_head(head, name), TIED)

    assert result.balanced
    assert told(result, "untied-weights") == Finding(
        "untied-weights",
        Severity.WARNING,
        "6 elements (24 bytes) that PyTorch ties to others are stored again",
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

    found = told(result, "untied-weights")
    assert found is not None
    assert found.message == (
        "6 elements (24 bytes) that PyTorch ties to others are stored with values of their own"
    )
    assert found.subjects == (f"{name} is not wte.weight (wte.weight, head.weight)",)
    assert found.nbytes == 24
    assert not result.balanced


def test_unexpected_tensor_of_another_module_undoes_no_tie(tmp_path):
    result = reconcile(tmp_path, with_head(noise(2, 3), "onnx::MatMul_9", "/other/MatMul"), TIED)

    assert told(result, "untied-weights") is None
    assert told(result, "unexpected") is not None


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
def test_weight_in_more_bits_than_pytorchs_is_told_with_what_it_costs(
    tmp_path, stored, original, types, saved
):
    array = FC.astype(original)

    result = reconcile(tmp_path, linear(array.astype(stored)), manifest_of(parameter("fc.weight", array)))

    assert told(result, "wider-than-checkpoint") == Finding(
        "wider-than-checkpoint",
        Severity.NOTE,
        f"6 learned elements are stored in more bits than in PyTorch ({types}); its own types would take {saved} bytes "
        "less",
        ("fc.weight",),
        saved,
    )


@pytest.mark.parametrize(("stored", "original"), [("f4", "f4"), ("f2", "f4"), ("f2", "f2")])
def test_weight_in_pytorchs_type_or_a_narrower_is_no_finding(tmp_path, stored, original):
    array = FC.astype(original)

    result = reconcile(tmp_path, linear(array.astype(stored)), manifest_of(parameter("fc.weight", array)))

    assert told(result, "wider-than-checkpoint") is None


def test_weight_with_other_values_may_need_its_type(tmp_path):
    result = reconcile(
        tmp_path, linear(noise(3, 2)), manifest_of(parameter("fc.weight", noise(3, 2, seed=1).astype("f2")))
    )

    assert told(result, "wider-than-checkpoint") is None
    assert told(result, "differing") is not None


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
        return told(result, "wider-than-checkpoint")

    narrow, mixed = found("f2", "f2", "f2"), found("f2", "f4", "f2")

    assert narrow is not None
    assert narrow.nbytes == 36
    assert found("f4", "f2", "f2") is None
    assert mixed is None


# code that nobody has


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
            "4 elements may be computed from others in advance, or not be read",
        ),
        (half_known(trace="exported-program"), "the manifest was written without the values"),
        (half_known(), None),
        (half_known(trace="exported-program", program=Program()), None),
    ],
    ids=["a state dict", "an old manifest", "a class", "a manifest"],
)
def test_what_code_that_is_not_at_hand_may_compute_is_told(tmp_path, known, words):
    stored = {"onnx::MatMul_7": FC, "softplus": np.log1p(np.exp(DECAY)).astype("f4")}

    result = reconcile(tmp_path, text_model(COMPUTED, stored), known)

    found = told(result, "program-unknown")
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

    assert told(reconcile(tmp_path, text_model(text, {"fc.weight": FC}), known), "program-unknown") is None
    assert (
        told(reconcile(tmp_path, text_model(text, {"fc.weight": FC + 1}), known), "program-unknown") is None
    )
