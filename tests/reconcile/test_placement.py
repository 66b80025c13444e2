"""Weights that the file holds but reads in each other's places, and honest files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
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
    outs,
    parameter,
    parameters_of,
    reconcile,
    text_model,
    with_scopes,
)
from onnx import ModelProto

from analyzer.manifest import BatchNorm, Call, Calls
from analyzer.reconciliation import Reconciliation

MODULES = {"a": "LayerNorm", "b": "LayerNorm"}
NORMS: dict[str, Array] = {
    f"{module}.{leaf}": noise(6, seed=number)
    for number, (module, leaf) in enumerate(
        (module, leaf) for module in ("a", "b") for leaf in ("weight", "bias")
    )
}


def norms(first: str, second: str) -> ModelProto:
    """Return a model of two norms in a row; the arguments name the module whose parameters each reads."""
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
    """Return a model of attention layers without notes; `read` maps a weight to the one that is read in its place."""
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


def list_misplaced(folder: Path, proto: ModelProto) -> list[str]:
    lines = lines_of(
        reconcile(folder, proto, manifest_of(parameter("gain", GAIN), *parameters_of(ATTENTION)))
    )
    return sorted(name for name, line in lines.items() if line == "misplaced")


def test_a_query_and_a_key_that_are_exchanged_in_one_of_three_layers_are_misplaced(tmp_path: Path) -> None:
    pair = ("layers.1.k.weight", "layers.1.q.weight")

    assert list_misplaced(tmp_path, attention(swapped(*pair))) == list(pair)


def test_a_weight_that_is_exchanged_with_another_layers_is_misplaced(tmp_path: Path) -> None:
    pair = ("layers.0.o.weight", "layers.2.o.weight")

    assert list_misplaced(tmp_path, attention(swapped(*pair))) == list(pair)


def test_values_that_are_exchanged_under_the_other_names_are_misplaced(tmp_path: Path) -> None:
    """Names stay in their places and values do not: this is found by name or by place."""
    pair = swapped("layers.1.k.weight", "layers.1.q.weight")
    moved = {name: ATTENTION[pair.get(name, name)] for name in ATTENTION}

    result = reconcile(
        tmp_path, attention(None, moved), manifest_of(parameter("gain", GAIN), *parameters_of(ATTENTION))
    )

    assert not result.balanced


def test_layers_in_their_order_are_not_reported(tmp_path: Path) -> None:
    assert list_misplaced(tmp_path, attention()) == []


def test_layers_that_are_shared_are_not_reported(tmp_path: Path) -> None:
    """ALBERT shares its layers: each reads the same weights."""
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


def test_equal_biases_of_zeros_that_are_merged_are_not_reported(tmp_path: Path) -> None:
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


def test_a_norms_bias_that_a_batchnorm_became_is_not_reported(tmp_path: Path) -> None:
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
    """Return a model of two norms with a third vector that multiplies a gate's input, as in EvoNorm."""
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
    """Return a model of stages, and of layers that fuse their outputs, starting with the last stage."""
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


def list_misplaced_of_neck(folder: Path, proto: ModelProto) -> list[str]:
    lines = lines_of(reconcile(folder, proto, manifest_of(parameter("gain", GAIN), *parameters_of(NECK))))
    return sorted(name for name, line in lines.items() if line == "misplaced")


def test_layers_of_a_neck_whose_branches_begin_in_ever_earlier_stages_are_not_reported(
    tmp_path: Path,
) -> None:
    assert list_misplaced_of_neck(tmp_path, neck()) == []


@pytest.mark.parametrize("part", ["merge", "out"])
def test_weights_of_a_neck_that_compute_one_after_the_other_are_still_reported(
    tmp_path: Path, part: str
) -> None:
    pair = (f"fusion.1.{part}.weight", f"fusion.3.{part}.weight")

    assert list_misplaced_of_neck(tmp_path, neck(swapped(*pair))) == list(pair)


# weights that the file holds but reads in each other's places

SIDES = ("q", "k", "v", "o")
MODES = pytest.mark.parametrize("content", ["sampled", "full"])


def weights(layers: int, *, of: tuple[str, ...] = (*SIDES, "norm1", "norm2")) -> dict[str, Array]:
    """Return the weights of an encoder: attention without biases between two norms in each layer."""
    made: dict[str, Array] = {}
    for layer in range(layers):
        for index, side in enumerate(of):
            shape = (WIDTH,) if side.startswith("norm") else (WIDTH, WIDTH)
            made[f"layers.{layer}.{side}.weight"] = noise(*shape, seed=100 * layer + index)
    return made


def encoder(
    known: dict[str, Array],
    layers: int,
    *,
    swapped: tuple[str, str] | None = None,
    has_names: bool = True,
    scoped: bool = True,
) -> onnx.ModelProto:
    """Return the encoder's file; with `swapped`, each of two weights is read in the other's place."""
    read = {name: name for name in known}
    if swapped is not None:
        read[swapped[0]], read[swapped[1]] = swapped[1], swapped[0]
    stored_as = {name: name if has_names else f"v{index}" for index, name in enumerate(known)}
    nodes: list[str] = []
    before = "x"
    for layer in range(layers):

        def of(side: str, layer: int = layer) -> str:
            return f'"{stored_as[read[f"layers.{layer}.{side}.weight"]]}"'

        def at(side: str, operator: str, layer: int = layer) -> str:
            return f'["/layers.{layer}/{side}/{operator}"]' if scoped else ""

        p = f"l{layer}"
        nodes.append(
            f"{at('norm1', 'Norm')} {p}n = SimplifiedLayerNormalization({before}, {of('norm1')}) "
            f"{at('q', 'MatMul')} {p}q = Gemm <transB = 1> ({p}n, {of('q')}) "
            f"{at('k', 'MatMul')} {p}k = Gemm <transB = 1> ({p}n, {of('k')}) "
            f"{at('v', 'MatMul')} {p}v = Gemm <transB = 1> ({p}n, {of('v')}) "
            f"{p}t = Transpose({p}k) {p}s = MatMul({p}q, {p}t) {p}p = Softmax({p}s) {p}c = MatMul({p}p, {p}v) "
            f"{at('o', 'MatMul')} {p}o = Gemm <transB = 1> ({p}c, {of('o')}) {p}r = Add({before}, {p}o) "
            f"{at('norm2', 'Norm')} {p}y = SimplifiedLayerNormalization({p}r, {of('norm2')}) "
        )
        before = f"{p}y"
    stored = {stored_as[name]: array for name, array in known.items()}
    return text_model(
        f"g (float[4,{WIDTH}] x) => (float[4,{WIDTH}] {before}) {{ {' '.join(nodes)} }}", stored
    )


def run(
    folder: Path, known: dict[str, Array], proto: onnx.ModelProto, content: str = "full"
) -> Reconciliation:
    return reconcile(folder, proto, manifest_of(*parameters_of(known)), content)  # type: ignore[arg-type]


def misplaced(result: Reconciliation) -> set[str]:
    return {name for name, line in lines_of(result).items() if line == "misplaced"}


# read by several nodes


STEPS = 3
CELL = {
    "cell.weight_ih": noise(WIDTH, WIDTH, seed=1),
    "cell.weight_hh": noise(WIDTH, WIDTH, seed=2),
    "cell.bias_ih": noise(WIDTH, seed=3),
    "cell.bias_hh": noise(WIDTH, seed=4),
}


def unrolled(folder: Path, biases: dict[int, tuple[str, str]], *, has_calls: bool = True) -> list[str]:
    """Return the misplaced tensors of a cell of three steps, some of which have other biases, or none."""
    nodes = ["h0 = Relu(x)"]
    for step in range(STEPS):
        first, second = biases.get(step, ("cell.bias_ih", "cell.bias_hh"))
        one, two = (f', "{name}"' if name else "" for name in (first, second))
        nodes.append(
            f"""a{step} = Gemm <transB = 1> (x, "cell.weight_ih"{one})
            b{step} = Gemm <transB = 1> (h{step}, "cell.weight_hh"{two})
            c{step} = Add(a{step}, b{step}) h{step + 1} = Tanh(c{step})"""
        )
    shape = f"float[4,{WIDTH}]"
    proto = text_model(f"g ({shape} x) => ({shape} y) {{ {' '.join(nodes)} y = Relu(h{STEPS}) }}", CELL)
    calls = [
        Call(f"{kind}{step}", "linear", "cell", ({"value": "x"}, *read))
        for step in range(STEPS)
        for kind in ("ih", "hh")
        for read in [[{"tensor": f"cell.weight_{kind}"}, {"tensor": f"cell.bias_{kind}"}]]
    ]
    manifest = manifest_of(*parameters_of(CELL))
    if has_calls:
        manifest = replace(manifest, calls=(Calls(calls=tuple(calls)),))
    return sorted(
        name for name, line in lines_of(reconcile(folder, proto, manifest)).items() if line == "misplaced"
    )


@pytest.mark.parametrize("has_calls", [False, True])
def test_a_cell_that_has_its_biases_at_each_step_is_not_reported(tmp_path: Path, has_calls: bool) -> None:
    assert unrolled(tmp_path, {}, has_calls=has_calls) == []


@pytest.mark.parametrize("has_calls", [False, True])
def test_a_bias_that_one_of_several_steps_has_lost_is_misplaced(tmp_path: Path, has_calls: bool) -> None:
    assert unrolled(tmp_path, {1: ("", "cell.bias_hh")}, has_calls=has_calls) == ["cell.bias_ih"]


@pytest.mark.parametrize(
    ("mean", "var", "expected"),
    [
        ("a.running_mean", "a.running_var", set()),
        ("b.running_mean", "a.running_var", {"b.running_mean"}),
        ("a.running_var", "a.running_var", {"a.running_var"}),
        ("a.running_mean", "b.weight", {"b.weight"}),
        ("a.running_mean", "c.running_var", set()),  # has the same numbers
    ],
)
def test_statistics_that_a_batchnorm_reads_in_place_of_its_own_are_misplaced(
    tmp_path: Path, mean: str, var: str, expected: set[str]
) -> None:
    modules = ("a", "b", "c")
    learned = {
        f"{module}.{leaf}": noise(4, seed=10 * at + place)
        for at, module in enumerate(modules)
        for place, leaf in enumerate(("weight", "bias"))
    }
    gathered = {
        f"{module}.{leaf}": np.abs(noise(4, seed=5 + 10 * (at % 2) + place))
        for at, module in enumerate(modules)
        for place, leaf in enumerate(("running_mean", "running_var"))
    }
    read = {module: (f"{module}.running_mean", f"{module}.running_var") for module in modules}
    read["a"] = (mean, var)
    lines = [
        f'{module}_y = BatchNormalization (x{at}, "{module}.weight", "{module}.bias", "{first}", "{second}")'
        f" x{at + 1} = Relu({module}_y)"
        for at, (module, (first, second)) in enumerate(read.items())
    ]
    proto = text_model(
        f"g (float[1,4,5,5] x0) => (float[1,4,5,5] x3) {{ {' '.join(lines)} }}", {**learned, **gathered}
    )
    manifest = manifest_of(
        *parameters_of(learned), *(buffer(name, array) for name, array in gathered.items())
    )

    result = reconcile(tmp_path, proto, manifest)

    assert {line.key[1] for line in result.entries if line.line == "misplaced"} == expected
    assert result.balanced == (not expected)


def applied_thrice(
    folder: Path, proto: ModelProto, weights: Mapping[str, Array], *, has_calls: bool
) -> list[str]:
    """Return the misplaced tensors of a file whose PyTorch model applies `fc` three times; calls may be unknown."""
    read = ({"value": "x"}, {"tensor": "fc.weight"}, {"tensor": "fc.bias"})
    manifest = manifest_of(*parameters_of(weights))
    if has_calls:
        calls = tuple(Call(f"fc{step}", "linear", "fc", read) for step in range(3))
        manifest = replace(manifest, calls=(Calls(calls=calls),))
    return sorted(misplaced(reconcile(folder, proto, manifest)))


def branched(folder: Path, then: str, other: str, after: str, *, has_calls: bool) -> list[str]:
    """Return the misplaced tensors of a module that is applied three times, the second time in an If's branches."""
    shape = f"float[4,{WIDTH}]"
    weights = {"fc.weight": noise(WIDTH, WIDTH, seed=1), "fc.bias": noise(WIDTH, seed=2)}
    proto = text_model(
        f"""g ({shape} x, bool c, bool d) => ({shape} y) {{
            a = Gemm <transB = 1> (x, "fc.weight", "fc.bias")
            r = If (c) <
                then_branch = t () => ({shape} s) {{ s = {then} }}, else_branch = e () => ({shape} u) {{ u = {other} }}
            >
            b = {after}
            y = Gemm <transB = 1> (b, "fc.weight", "fc.bias")
        }}""",
        weights,
    )
    return applied_thrice(folder, proto, weights, has_calls=has_calls)


@pytest.mark.parametrize("has_calls", [False, True])
def test_a_run_takes_one_branch_of_an_if_and_may_add_the_bias_behind_it(
    tmp_path: Path, has_calls: bool
) -> None:
    bare = 'Gemm <transB = 1> (a, "fc.weight")'
    whole = 'Gemm <transB = 1> (a, "fc.weight", "fc.bias")'
    behind, nothing = 'Add (r, "fc.bias")', "Relu (r)"

    misplaced_in = {
        name: branched(tmp_path, then, other, after, has_calls=has_calls)
        for name, (then, other, after) in {
            "in both": (whole, whole, nothing),
            "behind": (bare, bare, behind),
            "one branch without the weight": (bare, "Relu (a)", behind),
            "lost in one": (whole, bare, nothing),
            "lost in both": (bare, bare, nothing),
        }.items()
    }

    assert {name for name, found in misplaced_in.items() if found == ["fc.bias"]} == {
        "lost in one",
        "lost in both",
    }
    assert not [name for name, found in misplaced_in.items() if found not in ([], ["fc.bias"])]


@pytest.mark.parametrize("has_calls", [False, True])
def test_a_branch_that_reads_neither_does_not_add_the_bias_and_ifs_of_one_condition_go_together(
    tmp_path: Path, has_calls: bool
) -> None:
    bare = 'Gemm <transB = 1> (a, "fc.weight")'
    whole = 'Gemm <transB = 1> (a, "fc.weight", "fc.bias")'

    def again(condition: str, then: str, other: str) -> str:
        return f"""If ({condition}) <
            then_branch = t2 () => (float[4,{WIDTH}] v) {{ v = {then} }},
            else_branch = e2 () => (float[4,{WIDTH}] w) {{ w = {other} }}
        >"""

    add, nothing = 'Add (r, "fc.bias")', "Relu (r)"
    misplaced_in = {
        name: branched(tmp_path, then, other, after, has_calls=has_calls)
        for name, (then, other, after) in {
            "added where it was left out": (bare, whole, again("c", add, nothing)),
            "added in both": (bare, bare, again("d", add, add)),
            "lost where the other adds it": (bare, bare, again("c", add, nothing)),
            "added in the wrong one": (bare, whole, again("c", nothing, add)),
            "added by another condition": (bare, whole, again("d", add, nothing)),
        }.items()
    }

    assert {name: found for name, found in misplaced_in.items() if found} == {
        "lost where the other adds it": ["fc.bias"],
        "added in the wrong one": ["fc.bias"],
        "added by another condition": ["fc.bias"],
    }


FUNCTIONS = """
    <domain: "f", opset_import: ["": 18]> M (a, w) => (z) { z = Gemm <transB = 1> (a, w) }
    <domain: "f", opset_import: ["": 18]> A (a, b) => (z) { z = Add (a, b) }
    <domain: "f", opset_import: ["": 18, "f": 1]> L (a, w, b) => (z) { y = f.M (a, w) z = Add (y, b) }
"""
WHOLE = 'f.L ({}, "fc.weight", "fc.bias")'
BARE = 'f.M ({}, "fc.weight")'


@pytest.mark.parametrize("has_calls", [False, True])
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([WHOLE, WHOLE, WHOLE], []),
        (['Gemm <transB = 1> ({}, "fc.weight")', 'f.A ({}, "fc.bias")'] * 3, []),
        ([BARE, 'Add ({}, "fc.bias")'] * 3, []),
        ([BARE, 'f.A ({}, "fc.bias")', WHOLE, 'Gemm <transB = 1> ({}, "fc.weight", "fc.bias")'], []),
        ([WHOLE, WHOLE, BARE], ["fc.bias"]),
        ([BARE, 'Add ({}, "fc.bias")', WHOLE, BARE], ["fc.bias"]),
    ],
)
def test_a_function_reads_a_bias_at_each_call(
    tmp_path: Path, steps: list[str], expected: list[str], has_calls: bool
) -> None:
    weights = {"fc.weight": noise(WIDTH, WIDTH, seed=1), "fc.bias": noise(WIDTH, seed=2)}
    lines = [f"x{at + 1} = {step.format(f'x{at}')}" for at, step in enumerate(steps)]
    shape = f"float[4,{WIDTH}]"
    proto = text_model(
        f"""<ir_version: 10, opset_import: ["": 18, "f": 1]>
        g ({shape} x0) => ({shape} x{len(steps)}) {{ {" ".join(lines)} }} {FUNCTIONS}""",
        weights,
    )

    assert applied_thrice(tmp_path, proto, weights, has_calls=has_calls) == expected


def test_a_weight_that_is_read_without_its_bias_half_of_the_times_is_not_told_of_no_program(
    tmp_path: Path,
) -> None:
    biases = {1: ("", "cell.bias_hh"), 2: ("", "cell.bias_hh")}

    assert unrolled(tmp_path, biases, has_calls=False) == []


SKIPS: dict[str, Array] = {
    f"{side}.{leaf}": noise(*shape, seed=number)
    for number, (side, leaf, shape) in enumerate(
        (side, leaf, shape)
        for side in ("left", "right")
        for leaf, shape in (("D", (WIDTH,)), ("inner.weight", (WIDTH, WIDTH)))
    )
}


def side_by_side(left: str, right: str, *, of_left: str = "left", of_right: str = "right") -> ModelProto:
    """Return a model of two parallel modules of one class, each multiplying by a vector of an unusual name."""
    shape = f"float[2,{WIDTH}]"
    text = f"""g ({shape} x) => ({shape} y) {{
        [l1] a = MatMul (x, "left.inner.weight")
        [l2] b = Mul (a, "{left}.D")
        [r1] c = MatMul (x, "right.inner.weight")
        [r2] d = Mul (c, "{right}.D")
        y = Mul (b, d)
    }}"""
    scopes = {"l1": "left.inner", "l2": of_left, "r1": "right.inner", "r2": of_right}
    return dynamo_like(text_model(text, SKIPS), scopes=scopes, parameters=tuple(SKIPS))


def test_vectors_of_two_modules_side_by_side_that_are_exchanged_are_misplaced(tmp_path: Path) -> None:
    manifest = manifest_of(*parameters_of(SKIPS))

    honest = reconcile(tmp_path, side_by_side("left", "right"), manifest)
    exchanged = reconcile(tmp_path, side_by_side("right", "left"), manifest)

    assert honest.balanced
    assert misplaced(exchanged) == {"left.D", "right.D"}


def test_a_module_that_reads_anothers_vector_beside_its_own_is_not_reported(tmp_path: Path) -> None:
    proto = side_by_side("right", "left", of_left="left", of_right="left")

    assert reconcile(tmp_path, proto, manifest_of(*parameters_of(SKIPS))).balanced


@pytest.mark.parametrize("has_calls", [False, True])
def test_a_bias_that_one_step_reads_for_another_is_misplaced(tmp_path: Path, has_calls: bool) -> None:
    assert "cell.bias_hh" in unrolled(tmp_path, {1: ("cell.bias_hh", "cell.bias_hh")}, has_calls=has_calls)


@pytest.mark.parametrize("second", ["one.bias", "two.bias"])
def test_one_of_several_nodes_that_reads_another_modules_bias_is_reported(
    tmp_path: Path, second: str
) -> None:
    weights = {f"{name}.weight": noise(WIDTH, WIDTH, seed=n) for n, name in enumerate(("one", "two"))}
    weights |= {f"{name}.bias": noise(WIDTH, seed=7 + n) for n, name in enumerate(("one", "two"))}
    shape = f"float[4,{WIDTH}]"
    proto = text_model(
        f"""g ({shape} x) => ({shape} y) {{
            [a] h = Gemm <transB = 1> (x, "one.weight", "one.bias") [b] i = Relu(h)
            [c] j = Gemm <transB = 1> (i, "two.weight", "two.bias") [d] k = Relu(j)
            [e] y = Gemm <transB = 1> (k, "two.weight", "{second}")
        }}""",
        weights,
    )
    proto = with_scopes(proto, {"a": "one", "b": "", "c": "two", "d": "", "e": "two"})

    lines = lines_of(reconcile(tmp_path, proto, manifest_of(*parameters_of(weights))))

    wrong = {name for name, line in lines.items() if line == "misplaced"}
    assert wrong == ({"one.bias"} if second == "one.bias" else set())


# no exchange


@MODES
@pytest.mark.parametrize("layers", [1, 2, 3, 5])
@pytest.mark.parametrize("scoped", [True, False], ids=["scopes", "no scopes"])
@pytest.mark.parametrize("has_names", [True, False], ids=["names", "no names"])
def test_file_as_it_was_exported_is_quiet(
    tmp_path: Path, layers: int, has_names: bool, scoped: bool, content: str
) -> None:
    known = weights(layers)

    result = run(tmp_path, known, encoder(known, layers, has_names=has_names, scoped=scoped), content)

    assert result.balanced, result.findings


# two weights exchanged


@MODES
@pytest.mark.parametrize("has_names", [True, False], ids=["names", "no names"])
@pytest.mark.parametrize(
    "swapped",
    [
        ("layers.1.norm1.weight", "layers.1.norm2.weight"),
        ("layers.0.norm1.weight", "layers.2.norm1.weight"),
        ("layers.1.q.weight", "layers.1.v.weight"),
        ("layers.1.k.weight", "layers.1.o.weight"),
        ("layers.1.q.weight", "layers.1.k.weight"),
        ("layers.0.q.weight", "layers.2.q.weight"),
        ("layers.1.v.weight", "layers.2.o.weight"),
    ],
    ids=["norms", "norms of layers", "q and v", "k and o", "q and k", "layers", "another's other"],
)
def test_what_two_modules_have_exchanged_is_reported_where_nodes_name_them(
    tmp_path: Path, swapped: tuple[str, str], has_names: bool, content: str
) -> None:
    known = weights(6)

    result = run(tmp_path, known, encoder(known, 6, swapped=swapped, has_names=has_names), content)

    assert not result.balanced
    if has_names:
        decisions = {line.name: line.decided_by for line in result.parameters if line.line == "misplaced"}
        assert [decisions[name] for name in swapped] == [
            f"provenance:read-as {name}" for name in swapped[::-1]
        ]


@MODES
@pytest.mark.parametrize("has_names", [True, False], ids=["names", "no names"])
@pytest.mark.parametrize(
    "swapped",
    [
        ("layers.1.norm1.weight", "layers.1.norm2.weight"),
        ("layers.1.q.weight", "layers.1.v.weight"),
        ("layers.1.q.weight", "layers.1.k.weight"),
        ("layers.1.k.weight", "layers.1.o.weight"),
    ],
    ids=["norms", "q and v", "q and k", "k and o"],
)
def test_in_one_layer_it_is_detected_by_the_other_layers(
    tmp_path: Path, swapped: tuple[str, str], has_names: bool, content: str
) -> None:
    layers = 6  # in four layers, each is at another distance from an end
    known = weights(layers)

    result = run(
        tmp_path, known, encoder(known, layers, swapped=swapped, has_names=has_names, scoped=False), content
    )

    assert misplaced(result) == set(swapped)
    assert {line.decided_by for line in result.parameters if line.line == "misplaced"} == {
        "structure:read-as-another"
    }


@MODES
@pytest.mark.parametrize("has_names", [True, False], ids=["names", "no names"])
@pytest.mark.parametrize("side", ["q", "o", "norm1", "norm2"])
def test_between_layers_it_is_detected_by_their_order(
    tmp_path: Path, side: str, has_names: bool, content: str
) -> None:
    known, swapped = weights(4), (f"layers.1.{side}.weight", f"layers.3.{side}.weight")

    result = run(
        tmp_path, known, encoder(known, 4, swapped=swapped, has_names=has_names, scoped=False), content
    )

    assert misplaced(result) == set(swapped)
    assert {line.decided_by for line in result.parameters if line.line == "misplaced"} == {
        "structure:out-of-order"
    }


def test_of_two_layers_that_differ_nobody_knows_which_one_is_right(tmp_path: Path) -> None:
    known, swapped = weights(3), ("layers.1.q.weight", "layers.1.k.weight")

    result = run(tmp_path, known, encoder(known, 3, swapped=swapped, scoped=False))

    assert misplaced(result) == {*swapped, "layers.2.q.weight", "layers.2.k.weight"}


def test_what_is_misplaced_is_present_and_counted(tmp_path: Path) -> None:
    known, swapped = weights(2), ("layers.1.norm1.weight", "layers.1.norm2.weight")

    result = run(tmp_path, known, encoder(known, 2, swapped=swapped))

    (row,) = [row for row in result.bridge if row.line == "misplaced"]
    assert (row.tensors, row.elements, row.parameter_delta, row.stored_delta) == (2, 2 * WIDTH, 0, 0)
    assert [(finding.id, finding.subjects) for finding in result.findings] == [("misplaced", swapped)]
    assert result.onnx_parameters == sum(array.size for array in known.values())


def test_where_no_values_are_compared_nobody_knows_where_they_are(tmp_path: Path) -> None:
    known, swapped = weights(2), ("layers.1.norm1.weight", "layers.1.norm2.weight")

    assert run(tmp_path, known, encoder(known, 2, swapped=swapped), "none").balanced


# permitted moves


def test_of_equal_values_either_may_stand_there(tmp_path: Path) -> None:
    known = weights(2)
    known["layers.1.norm2.weight"] = known["layers.1.norm1.weight"]
    swapped = ("layers.1.norm1.weight", "layers.1.norm2.weight")

    assert run(tmp_path, known, encoder(known, 2, swapped=swapped)).balanced


def test_zero_biases_that_were_merged_may_stand_in_any_layer(tmp_path: Path) -> None:
    known = {f"layers.{i}.fc.weight": noise(8, 8, seed=i) for i in range(3)}
    known |= {f"layers.{i}.fc.bias": np.zeros(8, "f4") for i in range(3)}
    nodes, before = [], "x"
    for i in range(3):
        nodes.append(f'["/layers.{i}/fc/MatMul"] m{i} = MatMul({before}, "layers.{i}.fc.weight")')
        nodes.append(f'["/layers.{i}/fc/Add"] y{i} = Add("layers.0.fc.bias", m{i})')
        before = f"y{i}"
    stored = {name: array for name, array in known.items() if not name.endswith("bias")}
    stored["layers.0.fc.bias"] = np.zeros(8, "f4")
    proto = text_model(f"g (float[1,8] x) => (float[1,8] y2) {{ {' '.join(nodes)} }}", stored)

    assert run(tmp_path, known, proto).balanced


def test_one_layer_that_is_computed_again_and_again_is_in_its_place(tmp_path: Path) -> None:
    """ALBERT computes one layer repeatedly."""
    known = {"group.q.weight": noise(8, 8), "group.norm.weight": noise(8, seed=1)}
    nodes, before = [], "x"
    for i in range(3):
        nodes.append(f'["/layers.{i}/q/MatMul"] m{i} = MatMul({before}, "group.q.weight")')
        nodes.append(
            f'["/layers.{i}/norm/Norm"] y{i} = SimplifiedLayerNormalization(m{i}, "group.norm.weight")'
        )
        before = f"y{i}"
    proto = text_model(f"g (float[1,8] x) => (float[1,8] y2) {{ {' '.join(nodes)} }}", known)

    assert run(tmp_path, known, proto).balanced


def test_tied_weight_is_read_as_either_name_has_it(tmp_path: Path) -> None:
    table, head = noise(10, 8), noise(10, 8, seed=4)
    proto = text_model(
        """g (int64[1,4] ids) => (float[1,4,10] y) {
            ["/tok/Gather"] h = Gather("tok.weight", ids)
            t = Transpose("tok.weight")
            ["/lm_head/MatMul"] y = MatMul(h, t)
        }""",
        {"tok.weight": table},
    )
    manifest = manifest_of(parameter("tok.weight", table, tied=("lm_head.weight",)))

    assert reconcile(tmp_path, proto, manifest).balanced
    assert not reconcile(
        tmp_path, proto, manifest_of(parameter("tok.weight", table), parameter("lm_head.weight", head))
    ).balanced


def test_bias_that_a_batchnorm_became_stands_at_its_convolution(tmp_path: Path) -> None:
    kernels = [noise(4, 4, 1, 1, seed=i) for i in range(2)]
    own = {
        f"bn{i}.{leaf}": np.abs(noise(4, seed=10 * i + j)) + np.float32(0.5)
        for i in range(2)
        for j, leaf in enumerate(("weight", "bias", "running_mean", "running_var"))
    }
    stored: dict[str, Array] = {}
    for i, kernel in enumerate(kernels):
        scale = own[f"bn{i}.weight"] / np.sqrt(own[f"bn{i}.running_var"] + np.float32(1e-5))
        stored[f"conv{i}.weight"] = kernel * scale[:, None, None, None]
        stored[f"conv{i}.bias"] = own[f"bn{i}.bias"] - own[f"bn{i}.running_mean"] * scale
    proto = text_model(
        """g (float[1,4,5,5] x) => (float[1,4,5,5] y) {
            ["/conv0/Conv"] h = Conv(x, "conv0.weight", "conv0.bias")
            ["/conv1/Conv"] y = Conv(h, "conv1.weight", "conv1.bias")
        }""",
        stored,
    )
    names = ("weight", "bias", "running_mean", "running_var")
    manifest = manifest_of(
        *(convolution(f"conv{i}.weight", kernel) for i, kernel in enumerate(kernels)),
        *(parameter(name, array) for name, array in own.items() if "running" not in name),
        *(buffer(name, array) for name, array in own.items() if "running" in name),
        batch_norms=tuple(BatchNorm(f"bn{i}", 1e-5, *(f"bn{i}.{name}" for name in names)) for i in range(2)),
        values=own,
    )
    result = reconcile(tmp_path, proto, manifest)

    assert misplaced(result) == set()
    assert result.balanced


def test_layers_side_by_side_have_no_order(tmp_path: Path) -> None:
    known = {f"towers.{i}.fc.weight": noise(8, 8, seed=i) for i in range(4)}
    nodes = " ".join(f'y{i} = MatMul(x, "towers.{3 - i}.fc.weight")' for i in range(4))

    assert run(tmp_path, known, text_model(f"g (float[1,8] x) => ({outs(4)}) {{ {nodes} }}", known)).balanced


def test_layers_that_are_all_computed_from_the_last_to_the_first_keep_that_order(tmp_path: Path) -> None:
    """Decoders of U-Nets may be numbered in this order."""
    known = {
        f"ups.{i}.{leaf}.weight": noise(8, 8, seed=10 * i + j)
        for i in range(4)
        for j, leaf in enumerate("ab")
    }
    nodes, before = [], "x"
    for i in reversed(range(4)):
        nodes.append(f'a{i} = MatMul({before}, "ups.{i}.a.weight") b{i} = MatMul(a{i}, "ups.{i}.b.weight")')
        before = f"b{i}"
    proto = text_model(f"g (float[1,8] x) => (float[1,8] b0) {{ {' '.join(nodes)} }}", known)

    assert run(tmp_path, known, proto).balanced


def test_modules_of_a_traced_export_are_reported_as_well(tmp_path: Path) -> None:
    known = {"a.weight": noise(8), "b.weight": noise(8, seed=1)}
    text = """g (float[1,8] x) => (float[1,8] y) {{
        [one] h = SimplifiedLayerNormalization(x, "{0}") [two] y = SimplifiedLayerNormalization(h, "{1}")
    }}"""
    scopes = {"one": "a", "two": "b"}

    right = dynamo_like(text_model(text.format(*known), known), scopes=scopes)
    wrong = dynamo_like(text_model(text.format(*reversed(known)), known), scopes=scopes)

    assert run(tmp_path, known, right).balanced
    assert misplaced(run(tmp_path, known, wrong)) == set(known)


def stages(
    depths: tuple[int, ...], swapped: tuple[str, str] | None = None
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return layers in stages whose last layers differ; with `swapped`, two weights are read in each other's place."""
    known: dict[str, Array] = {}
    nodes: list[str] = []
    before = "x"
    for stage, depth in enumerate(depths):
        for layer in range(depth):
            name, module = f"s.{stage}.{layer}.weight", f"/s.{stage}/s.{stage}.{layer}"
            known[name] = noise(WIDTH, WIDTH, seed=10 * stage + layer)
            read = {**dict(zip(swapped or (), reversed(swapped or ()), strict=True))}.get(name, name)
            after = ["Sigmoid" if layer == depth - 1 else "Relu", *["Relu"] * 5]
            steps = [f'["{module}/MatMul"] p{stage}_{layer}_0 = MatMul({before}, "{read}")']
            steps += [f"p{stage}_{layer}_{i + 1} = {op}(p{stage}_{layer}_{i})" for i, op in enumerate(after)]
            nodes += steps
            before = f"p{stage}_{layer}_6"
    shape = f"float[1,{WIDTH}]"
    return text_model(
        f"g ({shape} x) => ({shape} y) {{ {' '.join(nodes)} y = Relu({before}) }}", known
    ), known


def test_the_last_layer_of_a_short_stage_looks_like_a_later_one_of_a_long_stage(tmp_path: Path) -> None:
    """Stages of 2, 3 and 4 layers: the first stage ends with its second layer, the second stage with its third."""
    honest, known = stages((2, 3, 4))
    exchanged, _ = stages((2, 3, 4), swapped=("s.1.1.weight", "s.1.2.weight"))
    manifest = manifest_of(*parameters_of(known), values=known)

    assert reconcile(tmp_path, honest, manifest).balanced
    assert reconcile(tmp_path, exchanged, manifest).misplaced == 2
