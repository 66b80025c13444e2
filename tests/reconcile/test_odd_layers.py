"""Layers that compute differently from their neighbours, though they hold the same parameters."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import pytest
from models import Array, manifest_of, noise, parameters_of, reconcile, save, text_model

import analyzer
from analyzer.checkpoints import Original
from analyzer.reconciliation import Reconciliation
from analyzer.records import replace
from analyzer.verify.originals import settle_original

COUNT = 6
LAYER = {
    "norm": "LayerNormalization<epsilon = 0.00001>(x, {gain}, {bias})",
    "q": "MatMul(norm, {q})",
    "scores": "Div(q, scale)",
    "masked": "Add(scores, mask)",
    "weights": "Softmax<axis = -1>(masked)",
    "mixed": "MatMul(weights, q)",
    "up": "MatMul(mixed, {up})",
    "act": "Relu(up)",
    "down": "MatMul(act, {down})",
    "sum": "Add(x, down)",
}
"""Expression of each value of a layer; `x` is the previous layer's output, or the model's input."""


def model(
    changes: Mapping[int, Mapping[str, str]], count: int = COUNT
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return layers that normalize the summed residual stream first; `changes` replaces some of their values."""
    weights: dict[str, Array] = {"wte.weight": noise(9, 4, seed=99)}
    lines = ['h = Gather("wte.weight", ids)', "scale = Constant<value_float = 2.0>()"]
    lines += ["other = Constant<value_float = 5.0>()"] if "other" in str(changes) else []
    lines += ["mask = Cast<to = 1>(far)", "window = Neg(mask)"]
    before = ["h"]
    for number in range(count):
        names = {"gain": f"layers.{number}.norm.weight", "bias": f"layers.{number}.norm.bias"}
        names |= {each: f"layers.{number}.{each}.weight" for each in ("q", "up", "down")}
        shapes = {"gain": (4,), "bias": (4,), "q": (4, 4), "up": (4, 5), "down": (5, 4)}
        weights |= {
            name: noise(*shapes[each], seed=10 * number + place)
            for place, (each, name) in enumerate(names.items())
        }
        quoted = {each: f'"{name}"' for each, name in names.items()}
        rules = _changed(changes.get(number, {}))
        for value, rule in rules.items():
            words = rule.format(**quoted, earlier=before[max(0, number - 2)])
            for own in (*rules, "x"):
                words = _renamed(words, own, before[-1] if own == "x" else f"{own}{number}")
            lines.append(f"{value}{number} = {words}")
        before.append(f"sum{number}")
    text = f"g (int64[4] ids, bool[4,4] far) => (float[4,4] y) {{ {chr(10).join(lines)} y = Identity({before[-1]}) }}"
    return text_model(text, weights), weights


def _changed(change: Mapping[str, str]) -> dict[str, str]:
    """Return the rules of a changed layer; values that plain layers lack come before the first changed one."""
    rules: dict[str, str] = {}
    for value in LAYER:
        if value in change:
            rules |= {each: rule for each, rule in change.items() if each not in LAYER}
        rules[value] = change.get(value, LAYER[value])
    return rules


def _renamed(rule: str, own: str, name: str) -> str:
    operator, _, rest = rule.partition("(")
    words = [name if word.strip() == own else word.strip() for word in rest.rstrip(")").split(",")]
    return f"{operator}({', '.join(words)})"


def judge(tmp_path, changes: Mapping[int, Mapping[str, str]], count: int = COUNT) -> Reconciliation:
    proto, weights = model(changes, count)
    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(weights)))
    assert result.balanced, result.findings
    return result


def odd(result: Reconciliation) -> list[str]:
    return [finding.message for finding in result.findings if finding.id == "odd-layer"]


def test_layers_that_are_alike_are_not_reported(tmp_path):
    assert odd(judge(tmp_path, {})) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"norm": "LayerNormalization<epsilon = 0.5>(x, {gain}, {bias})"},
            "LayerNormalization has epsilon 0.5, not epsilon 1e-05",
        ),
        ({"act": "Tanh(up)"}, "Tanh, not Relu"),
        ({"act": "Neg(up)"}, "Neg, not Relu"),
        ({"weights": "Softmax<axis = 0>(masked)"}, "Softmax has axis 0, not axis -1"),
        ({"scores": "Div(q, other)"}, "Div with 5, not 2"),
        ({"scores": "Div(scale, q)"}, "Div has its operands exchanged"),
        ({"scores": "Mul(q, scale)"}, "Mul, not Div"),
        ({"masked": "Sub(scores, mask)"}, "Sub, not Add"),
        ({"mixed": "MatMul(q, weights)"}, "MatMul has its operands exchanged"),
        ({"turned": "Transpose(weights)", "mixed": "MatMul(turned, q)"}, "an additional Transpose"),
        ({"damped": "Tanh(mixed)", "up": "MatMul(damped, {up})"}, "an additional Tanh"),
        ({"more": "Add(scores, q)", "masked": "Add(more, mask)"}, "an additional Add"),
        (
            {"again": "MatMul(q, {q})", "scores": "Div(again, scale)"},
            "one of 2 nodes that use the same parameter, not the only one",
        ),
    ],
    ids=lambda value: next(iter(value.values())) if isinstance(value, dict) else "",
)
def test_layer_that_computes_otherwise_is_reported_with_what_the_others_do(tmp_path, change, expected):
    [message] = odd(judge(tmp_path, {3: change}))

    assert message.startswith("layers.3 differs from 5 other layers of its list at ")
    assert message.partition(": ")[2].partition("; ")[0] == expected


@pytest.mark.parametrize(
    "change", [{"sum": "Add({earlier}, down)"}, {"sum": "Identity(down)"}], ids=["moved", "cut"]
)
def test_residual_that_is_cut_or_taken_from_elsewhere_is_reported_where_it_is_read(tmp_path, change):
    [message] = odd(judge(tmp_path, {3: change}, 8))

    assert message.startswith("layers.4 differs from ")


@pytest.mark.parametrize(
    ("other", "is_reported"), [("com.microsoft.QuickGelu(up)", True), ("Gelu(up)", False)]
)
def test_an_activation_of_a_runtime_is_known_as_well(tmp_path, other, is_reported):
    fused = {number: {"act": "com.microsoft.FastGelu(up)"} for number in range(COUNT)}

    findings = odd(judge(tmp_path, fused | {3: {"act": other}}))

    assert bool(findings) == is_reported


def test_layer_that_is_first_may_be_odd_too(tmp_path):
    [message] = odd(judge(tmp_path, {0: {"act": "Tanh(up)"}}))

    assert message.startswith("layers.0 differs from ")


@pytest.mark.parametrize(
    "changes",
    [
        {1: {"act": "Tanh(up)"}, 3: {"act": "Tanh(up)"}, 5: {"act": "Tanh(up)"}},
        {4: {"act": "Tanh(up)"}, 5: {"act": "Tanh(up)"}},
        {5: {"masked": "Add(scores, window)"}},
        {5: {"masked": "Identity(scores)"}},
    ],
    ids=["every other", "the last two", "a mask of its own", "no mask"],
)
def test_layers_that_may_be_meant_to_differ_are_not_reported(tmp_path, changes):
    assert odd(judge(tmp_path, changes)) == []


def test_layer_whose_weight_is_merged_with_that_of_another_is_not_reported(tmp_path):
    proto, weights = model({}, 8)
    merged = {f"layers.{number}.down.weight": weights["layers.2.down.weight"] for number in (2, 5)}
    kept = [tensor for tensor in proto.graph.initializer if tensor.name != "layers.5.down.weight"]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    for node in proto.graph.node:
        node.input[:] = [name.replace("layers.5.down", "layers.2.down") for name in node.input]

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(weights | merged)))

    assert result.balanced
    assert odd(result) == []


def test_of_four_layers_one_may_be_odd(tmp_path):
    [message] = odd(judge(tmp_path, {2: {"act": "Tanh(up)"}}, 4))

    assert message.startswith("layers.2 differs from 3 other layers")


@pytest.mark.parametrize("changes", [{}, {3: {"act": "Tanh(up)"}}], ids=["alike", "odd"])
def test_class_at_hand_is_checked_where_a_layer_is_odd(tmp_path, changes):
    manifests = []

    def trace(manifest, *_):
        manifests.append(manifest)
        return manifest

    result = judge(tmp_path, changes)
    known = replace(result, checked_places=len(result.parameters))

    settle_original(known, Original(known.manifest, trace=trace))

    assert len(manifests) == len(changes)


def test_library_traces_a_class_at_hand_where_the_account_does_not_balance(tmp_path):
    proto, weights = model({}, COUNT)
    traced = []

    def trace(manifest, *_):
        traced.append(manifest)
        return manifest

    path = save(tmp_path, proto)
    complete = manifest_of(*parameters_of(weights))
    partial = manifest_of(*parameters_of(dict(list(weights.items())[1:])))

    assert analyzer.reconcile(path, Original(complete, trace=trace)).balanced
    assert not traced
    assert not analyzer.reconcile(path, Original(partial, trace=trace)).balanced
    assert traced == [partial]


def test_of_few_layers_none_is_odd(tmp_path):
    assert odd(judge(tmp_path, {1: {"act": "Tanh(up)"}}, 3)) == []


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_may_have_a_stride_of_its_own(tmp_path, stride):
    weights = {f"convs.{number}.weight": noise(2, 2, 1, 1, seed=number) for number in range(5)}
    lines = [
        f'x{number + 1} = Conv<strides = [{step}, {step}]>(x{number}, "convs.{number}.weight")'
        for number, step in enumerate((1, 1, 1, stride, 1))
    ]
    text = f"g (float[1,2,8,8] x0) => (float y) {{ {chr(10).join(lines)} y = Identity(x5) }}"

    result = reconcile(tmp_path, text_model(text, weights), manifest_of(*parameters_of(weights)))

    assert odd(result) == []
