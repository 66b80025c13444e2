"""One parameter's values where another's belong, and honest files in which one might think so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import (
    Array,
    audit,
    buffer,
    convolution,
    dynamo_like,
    lines_of,
    manifest_of,
    noise,
    parameter,
    parameters_of,
    reconcile,
    text_model,
)
from onnx import ModelProto

from analyzer.manifest import BatchNorm

MODULES = {"a": "LayerNorm", "b": "LayerNorm"}
NORMS: dict[str, Array] = {
    f"{module}.{leaf}": noise(6, seed=number)
    for number, (module, leaf) in enumerate(
        (module, leaf) for module in ("a", "b") for leaf in ("weight", "bias")
    )
}


def norms(first: str, second: str) -> ModelProto:
    """Two norms one after another; the arguments say whose parameters each reads."""
    text = f"""g (float[2,6] x) => (float[2,6] y) {{
        [n1] h = LayerNormalization (x, "{first}.weight", "{first}.bias")
        [n2] y = LayerNormalization (h, "{second}.weight", "{second}.bias")
    }}"""
    return dynamo_like(text_model(text, NORMS), scopes={"n1": "a", "n2": "b"}, parameters=tuple(NORMS))


def test_two_norms_that_are_exchanged_under_their_own_names_are_misplaced(tmp_path: Path) -> None:
    result = reconcile(tmp_path, norms("b", "a"), manifest_of(*parameters_of(NORMS), modules=MODULES))

    assert set(lines_of(result).values()) == {"misplaced"}
    assert not result.balanced


def test_two_norms_in_their_places_are_identical(tmp_path: Path) -> None:
    result = reconcile(tmp_path, norms("a", "b"), manifest_of(*parameters_of(NORMS), modules=MODULES))

    assert set(lines_of(result).values()) == {"identical"}
    assert result.balanced


def test_two_norms_of_equal_values_may_be_exchanged(tmp_path: Path) -> None:
    equal = {name: NORMS[f"a.{name[2:]}"] for name in NORMS}
    proto = norms("b", "a")
    proto.graph.ClearField("initializer")
    proto.graph.initializer.extend(text_model("g () => () {}", equal).graph.initializer)

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(equal), modules=MODULES))

    assert result.balanced


LAYERS = 3
WIDTH = 8
GAIN = 1 + noise(WIDTH, seed=99)
PARTS = ("q", "k", "v", "o")
ATTENTION: dict[str, Array] = {
    f"layers.{layer}.{part}.weight": noise(WIDTH, WIDTH, seed=10 * layer + number)
    for layer in range(LAYERS)
    for number, part in enumerate(PARTS)
}


def attention(read: dict[str, str] | None = None, weights: dict[str, Array] | None = None) -> ModelProto:
    """Layers of attention without a note; `read` says which weight is read where another belongs."""
    read = read or {}
    nodes = ["h0 = Add(x, x)"]
    for layer in range(LAYERS):
        name = {part: f"layers.{layer}.{part}.weight" for part in PARTS}
        name = {part: read.get(each, each) for part, each in name.items()}
        nodes.append(
            f"""n{layer} = LayerNormalization(h{layer}, gain) q{layer} = MatMul(n{layer}, "{name["q"]}")
            k{layer} = MatMul(n{layer}, "{name["k"]}") v{layer} = MatMul(n{layer}, "{name["v"]}")
            t{layer} = Transpose <perm = [1, 0]> (k{layer})
            s{layer} = MatMul(q{layer}, t{layer}) p{layer} = Softmax(s{layer}) c{layer} = MatMul(p{layer}, v{layer})
            o{layer} = MatMul(c{layer}, "{name["o"]}") h{layer + 1} = Add(h{layer}, o{layer})"""
        )
    shape = f"float[4,{WIDTH}]"
    text = f"g ({shape} x) => ({shape} y) {{ {' '.join(nodes)} y = Relu(h{LAYERS}) }}"
    return text_model(text, {"gain": GAIN, **(weights or ATTENTION)})


def swapped(one: str, other: str) -> dict[str, str]:
    return {one: other, other: one}


def told(folder: Path, proto: ModelProto) -> list[str]:
    lines = lines_of(
        reconcile(folder, proto, manifest_of(parameter("gain", GAIN), *parameters_of(ATTENTION)))
    )
    return sorted(name for name, line in lines.items() if line == "misplaced")


def test_a_query_and_a_key_that_are_exchanged_in_one_of_three_layers_are_misplaced(tmp_path: Path) -> None:
    pair = ("layers.1.k.weight", "layers.1.q.weight")

    assert told(tmp_path, attention(swapped(*pair))) == list(pair)


def test_a_weight_that_is_exchanged_with_another_layers_is_misplaced(tmp_path: Path) -> None:
    pair = ("layers.0.o.weight", "layers.2.o.weight")

    assert told(tmp_path, attention(swapped(*pair))) == list(pair)


def test_values_that_are_exchanged_under_the_other_names_are_misplaced(tmp_path: Path) -> None:
    """The names in the file stay in their places and their values do not: that is told, by names or by places."""
    pair = swapped("layers.1.k.weight", "layers.1.q.weight")
    moved = {name: ATTENTION[pair.get(name, name)] for name in ATTENTION}

    result = reconcile(
        tmp_path, attention(None, moved), manifest_of(parameter("gain", GAIN), *parameters_of(ATTENTION))
    )

    assert not result.balanced


def test_layers_in_their_order_are_not_told(tmp_path: Path) -> None:
    assert told(tmp_path, attention()) == []


def test_layers_that_are_shared_are_not_told(tmp_path: Path) -> None:
    """ALBERT's: every layer reads the same weights."""
    shared = {name: array for name, array in ATTENTION.items() if ".0." in name}
    read = {
        name: name.replace(f".{layer}.", ".0.")
        for layer in range(LAYERS)
        for name in ATTENTION
        if f".{layer}." in name
    }

    result = reconcile(
        tmp_path, attention(read, shared), manifest_of(parameter("gain", GAIN), *parameters_of(shared))
    )

    assert set(lines_of(result).values()) == {"identical"}
    assert result.balanced


def test_equal_biases_of_zeros_that_are_merged_are_not_told(tmp_path: Path) -> None:
    zeros = {f"{module}.bias": np.zeros(6, "f4") for module in ("a", "b")}
    weights = {f"{module}.weight": noise(6, 6, seed=number) for number, module in enumerate(("a", "b"))}
    text = """g (float[2,6] x) => (float[2,6] y) {
        [n1] h = Gemm <transB = 1> (x, "a.weight", "a.bias")
        [n2] y = Gemm <transB = 1> (h, "b.weight", "a.bias")
    }"""
    proto = text_model(text, {**weights, "a.bias": zeros["a.bias"]})
    proto = dynamo_like(proto, scopes={"n1": "a", "n2": "b"}, parameters=(*weights, "a.bias"))

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(weights), *parameters_of(zeros)))

    assert "misplaced" not in lines_of(result).values()
    assert result.balanced


def test_a_norms_bias_that_a_batchnorm_became_is_not_told(tmp_path: Path) -> None:
    kernel, scale, shift = noise(4, 3, 1, 1), 1 + noise(4, seed=1) / 8, noise(4, seed=2)
    mean, var = noise(4, seed=3), 1 + np.abs(noise(4, seed=4))
    factor = scale / np.sqrt(var + np.float32(1e-5))
    folded = {"conv.weight": kernel * factor[:, None, None, None], "conv.bias": shift - mean * factor}
    text = 'g (float[1,3,2,2] x) => (float[1,4,2,2] y) { [c] y = Conv (x, "conv.weight", "conv.bias") }'
    proto = dynamo_like(text_model(text, folded), scopes={"c": "conv"}, parameters=("conv.weight",))
    manifest = manifest_of(
        convolution("conv.weight", kernel),
        parameter("bn.weight", scale),
        parameter("bn.bias", shift),
        buffer("bn.running_mean", mean),
        buffer("bn.running_var", var),
        batch_norms=(BatchNorm("bn", 1e-5, "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"),),
        values={"bn.weight": scale, "bn.bias": shift, "bn.running_mean": mean, "bn.running_var": var},
    )

    lines = lines_of(reconcile(tmp_path, proto, manifest))

    assert "misplaced" not in lines.values()
    assert lines["bn.bias"] == "folded-batchnorm"
    assert audit(tmp_path, proto).parameters == 16


GATED: dict[str, Array] = {
    f"{module}.{leaf}": noise(6, seed=10 + number)
    for number, (module, leaf) in enumerate(
        (module, leaf) for module in ("a", "b") for leaf in ("weight", "bias", "v")
    )
}


def gated(first: str, second: str) -> ModelProto:
    """Two norms with a third vector, by which the input of a gate is multiplied, as EvoNorm's are."""
    text = f"""g (float[2,6] x) => (float[2,6] y) {{
        [v1] i = Mul (x, "{first}.v")
        [s1] j = Sigmoid (i)
        [m1] k = Mul (j, "{first}.weight")
        [b1] h = Add (k, "{first}.bias")
        [v2] l = Mul (h, "{second}.v")
        [s2] m = Sigmoid (l)
        [m2] n = Mul (m, "{second}.weight")
        [b2] y = Add (n, "{second}.bias")
    }}"""
    scopes = {f"{node}{number}": module for node in "vsmb" for number, module in ((1, "a"), (2, "b"))}
    return dynamo_like(text_model(text, GATED), scopes=scopes, parameters=tuple(GATED))


def test_a_third_vector_of_a_module_that_is_multiplied_is_no_weight_out_of_its_place(tmp_path: Path) -> None:
    result = reconcile(tmp_path, gated("a", "b"), manifest_of(*parameters_of(GATED)))

    assert set(lines_of(result).values()) == {"identical"}
    assert result.balanced


def test_weights_beside_it_that_are_exchanged_are_misplaced_all_the_same(tmp_path: Path) -> None:
    result = reconcile(tmp_path, gated("b", "a"), manifest_of(*parameters_of(GATED)))

    assert {lines_of(result)[f"{module}.weight"] for module in "ab"} == {"misplaced"}
    assert not result.balanced


DEPTH = 4
NECK: dict[str, Array] = {
    **{f"stages.{stage}.weight": noise(WIDTH, WIDTH, seed=200 + stage) for stage in range(DEPTH)},
    **{
        f"fusion.{layer}.{part}.weight": noise(WIDTH, WIDTH, seed=210 + 10 * layer + number)
        for layer in range(DEPTH)
        for number, part in enumerate(("lateral", "merge", "mix", "out"))
    },
}


def neck(read: dict[str, str] | None = None) -> ModelProto:
    """Stages, and layers that fuse what they give, the last stage's first."""
    read = read or {}

    def weight(name: str) -> str:
        return f'"{read.get(name, name)}"'

    stages = [
        f"m{stage} = MatMul(s{stage}, {weight(f'stages.{stage}.weight')}) s{stage + 1} = Relu(m{stage})"
        for stage in range(DEPTH)
    ]
    layers = [
        f"""l{layer} = MatMul(s{DEPTH - layer}, {weight(f"fusion.{layer}.lateral.weight")})
        a{layer} = Add(f{layer}, l{layer}) b{layer} = MatMul(a{layer}, {weight(f"fusion.{layer}.merge.weight")})
        c{layer} = MatMul(b{layer}, {weight(f"fusion.{layer}.mix.weight")})
        f{layer + 1} = MatMul(c{layer}, {weight(f"fusion.{layer}.out.weight")})"""
        for layer in range(DEPTH)
    ]
    nodes = ["s0 = Relu(x) f0 = Mul(x, gain)", *stages, *layers]
    shape = f"float[4,{WIDTH}]"
    text = f"g ({shape} x) => ({shape} y) {{ {' '.join(nodes)} y = Relu(f{DEPTH}) }}"
    return text_model(text, {"gain": GAIN, **NECK})


def told_of_neck(folder: Path, proto: ModelProto) -> list[str]:
    lines = lines_of(reconcile(folder, proto, manifest_of(parameter("gain", GAIN), *parameters_of(NECK))))
    return sorted(name for name, line in lines.items() if line == "misplaced")


def test_layers_of_a_neck_whose_branches_begin_in_ever_earlier_stages_are_not_told(tmp_path: Path) -> None:
    assert told_of_neck(tmp_path, neck()) == []


@pytest.mark.parametrize("part", ["merge", "out"])
def test_weights_of_a_neck_that_compute_one_after_the_other_are_told_all_the_same(
    tmp_path: Path, part: str
) -> None:
    pair = (f"fusion.1.{part}.weight", f"fusion.3.{part}.weight")

    assert told_of_neck(tmp_path, neck(swapped(*pair))) == list(pair)
