"""Values that PyTorch's program computes from no input, matched only where it reads them and never as parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import starmap
from pathlib import Path

import numpy as np
import pytest
from models import (
    Array,
    bridge_of,
    buffer,
    lines_of,
    manifest_of,
    noise,
    packed,
    parameter,
    quantized,
    reconcile,
    text_model,
    traced,
    with_scopes,
)
from onnx import ModelProto

from analyzer.account.group import group_by
from analyzer.errors import ManifestError
from analyzer.formats import render_report
from analyzer.manifest import Manifest, Program, Traced, load_manifest, save_manifest
from analyzer.reconciliation import Reconciliation
from analyzer.recover import recover_state
from analyzer.reports import ReconcileReport

WIDTH = 8
MIX = np.abs(noise(WIDTH, seed=1))
SHARED = "g (float[8] x, float[8] z) => (float[8] y) { a = Mul(x, mix) b = Mul(z, val_4) y = Add(a, b) }"
ALONE = "g (float[8] x) => (float[8] y) { y = Mul(x, val_4) }"


def computed(array: Array, expression: str, *parameters: str, **fields: object) -> Traced:
    known = {"parameters": parameters, "origins": parameters, "uses": (("", "mul"),)}
    return traced(f"%{expression}", array, expression, **{**known, **fields})


def with_program(manifest: Manifest, *values: Traced, through: tuple[str, ...] = ()) -> Manifest:
    return replace(manifest, program=Program(values, through))


def tensors_of(result: Reconciliation) -> dict[str, str]:
    return {line.key[1]: line.line.value for line in result.entries}


def mixed(stored: Array, *, body: str = SHARED, value: Traced | None = None) -> tuple[ModelProto, Manifest]:
    """Return a file that stores `stored` where the program computes `1 - mix`, and the manifest."""
    weights = {"val_4": stored} | ({"mix": MIX} if "mix)" in body else {})
    program = computed(1 - MIX, "1 - mix", "mix") if value is None else value
    through = () if "mix)" in body else ("mix",)
    return text_model(body, weights), with_program(
        manifest_of(parameter("mix", MIX)), program, through=through
    )


def test_a_value_of_the_program_is_explained_with_its_expression(tmp_path: Path) -> None:
    result = reconcile(tmp_path, *mixed(1 - MIX))

    assert result.balanced
    assert bridge_of(result) == {"identical": (1, 8, 0, 0), "evaluated": (1, 8, 0, 8)}
    (line,) = result.evaluated
    assert (line.expression, line.decided_by, line.parameter) == ("1 - mix", "content:evaluated", None)


@pytest.mark.parametrize(("change", "is_balanced"), [(0, True), (1, False)])
def test_a_value_of_the_program_may_be_cut_at_a_size_that_an_input_gives(
    tmp_path: Path, change: int, is_balanced: bool
) -> None:
    """As ProphetNet's positions: the file computes them for the longest text, and cuts them to the text."""
    ranks = np.random.default_rng(0).permutation(40)
    picked = (ranks * 3 % 41).astype("f4")
    stored = {
        "mix": MIX,
        "ranks": ranks + change,
        "three": np.asarray(3),
        "most": np.asarray(41),
        "none": np.asarray([0]),
    }
    nodes = (
        "t = Mul(ranks, three) m = Mod(t, most) p = Cast<to = 1>(m) n = Shape(x) c = Slice(p, none, n) "
        "a = Mul(x, mix) y = Add(a, c)"
    )
    proto = text_model(f"g (float[8] x) => (float[8] y) {{ {nodes} }}", stored)
    known = with_program(manifest_of(parameter("mix", MIX)), computed(picked, "ranks * 3 % 41"))

    assert reconcile(tmp_path, proto, known).balanced == is_balanced


def test_without_a_program_the_computed_value_is_unexplained(tmp_path: Path) -> None:
    proto, manifest = mixed(1 - MIX)

    result = reconcile(tmp_path, proto, replace(manifest, program=None))

    assert tensors_of(result)["val_4"] == "unexplained"


def test_a_parameter_that_only_such_values_are_made_of_is_found_in_them(tmp_path: Path) -> None:
    result = reconcile(tmp_path, *mixed(1 - MIX, body=ALONE))

    assert result.balanced
    assert bridge_of(result) == {"evaluated": (1, 8, 0, 0)}
    (settled,) = result.parameters
    assert (settled.line.value, settled.entries) == ("evaluated", (((), "val_4"),))


def test_recover_lists_such_a_parameter_as_lost_with_what_became_of_it(tmp_path: Path) -> None:
    recovery = recover_state(reconcile(tmp_path, *mixed(1 - MIX, body=ALONE)))

    (lost,) = recovery.lost
    assert (lost.name, lost.line.value) == ("mix", "evaluated")
    assert lost.reason.endswith("only the result of PyTorch's program: 1 - mix")


def test_a_parameter_that_the_program_reads_elsewhere_too_is_missing_without_its_own_tensor(
    tmp_path: Path,
) -> None:
    proto, manifest = mixed(1 - MIX, body=ALONE)

    result = reconcile(tmp_path, proto, with_program(manifest, *manifest.program.values))

    assert lines_of(result) == {"mix": "missing"}


def test_a_parameter_is_found_only_if_every_way_to_what_reads_it_is_stored(tmp_path: Path) -> None:
    other = computed(np.exp(MIX), "exp(mix)", "mix")
    proto, manifest = mixed(1 - MIX, body=ALONE)
    both = with_program(manifest, *manifest.program.values, other, through=("mix",))

    assert lines_of(reconcile(tmp_path, proto, both)) == {"mix": "missing"}


def test_a_step_that_nothing_reads_but_another_step_need_not_be_stored(tmp_path: Path) -> None:
    first = computed(np.exp(MIX), "exp(mix)", "mix", is_read=False)
    second = computed(-np.exp(MIX), "-exp(mix)", "mix", origins=("%exp(mix)",))
    proto = text_model(ALONE, {"val_4": -np.exp(MIX)})
    manifest = with_program(manifest_of(parameter("mix", MIX)), first, second, through=("mix",))

    assert lines_of(reconcile(tmp_path, proto, manifest)) == {"mix": "evaluated"}


@pytest.mark.parametrize("place", [0, 3, WIDTH - 1])
def test_one_changed_element_is_another_tensor(tmp_path: Path, place: int) -> None:
    stored = 1 - MIX
    stored[place] *= 1.001

    assert not reconcile(tmp_path, *mixed(stored)).balanced


@pytest.mark.parametrize("place", [0, 777, 19999])
def test_one_changed_element_of_a_large_value_is_detected_by_the_sums(tmp_path: Path, place: int) -> None:
    large = noise(100, 200, seed=4)
    body = "g (float[100,200] x) => (float[100,200] y) { y = Mul(x, val_4) }"
    value = computed(1 - large, "1 - w", "w")
    manifest = with_program(manifest_of(parameter("w", large)), value, through=("w",))
    stored = 1 - large
    stored.reshape(-1)[7] += np.float32(1e-7)  # rounding errors are no change

    assert reconcile(tmp_path, text_model(body, {"val_4": stored}), manifest).balanced
    stored.reshape(-1)[place] *= 1.01
    assert not reconcile(tmp_path, text_model(body, {"val_4": stored}), manifest).balanced


def test_axes_may_stand_in_another_order(tmp_path: Path) -> None:
    table = noise(4, 6, seed=2)
    body = "g (float[6,4] x) => (float[6,4] y) { y = Mul(x, val_4) }"
    manifest = with_program(manifest_of(parameter("w", table)), computed(np.exp(table), "exp(w)", "w"))
    proto = text_model(body, {"val_4": np.ascontiguousarray(np.exp(table).T)})

    assert tensors_of(reconcile(tmp_path, proto, manifest)) == {"val_4": "evaluated"}


def test_neighbouring_axes_may_be_joined_before_the_rest_is_turned(tmp_path: Path) -> None:
    made = noise(6, 6, 5, seed=2) * 2
    body = "g (float[1,30] x) => (float[1,6] y) { y = MatMul(x, val_4) }"
    value = computed(made, "w * 2", "w", uses=(("", "linear"),))
    manifest = with_program(manifest_of(parameter("w", made / 2)), value, through=("w",))
    turned = np.ascontiguousarray(made.reshape(6, 30).T)
    otherwise = np.ascontiguousarray(made.transpose(1, 2, 0).reshape(30, 6)[::-1])

    assert reconcile(tmp_path, text_model(body, {"val_4": turned}), manifest).balanced
    assert not reconcile(tmp_path, text_model(body, {"val_4": otherwise}), manifest).balanced


def test_what_forward_computes_twice_may_be_stored_once(tmp_path: Path) -> None:
    twice = "g (float[8] x) => (float[8] y) { a = Mul(x, val_4) y = Mul(a, val_4) }"
    first = computed(np.exp(MIX), "exp(mix)", "mix")
    again = replace(first, name="%exp(mix)_1")
    other = replace(computed(np.exp(MIX) / 2, "exp(mix) / 2", "mix"), name="%other")
    proto, manifest = text_model(twice, {"val_4": np.exp(MIX)}), manifest_of(parameter("mix", MIX))

    both = with_program(manifest, first, again, through=("mix",))
    apart = with_program(manifest, first, other, through=("mix",))

    assert lines_of(reconcile(tmp_path, proto, both)) == {"mix": "evaluated"}
    assert lines_of(reconcile(tmp_path, proto, apart)) == {"mix": "missing"}


def test_what_was_computed_in_half_precision_errs_by_some_of_its_steps(tmp_path: Path) -> None:
    mix, half = MIX, np.float16
    value = computed((mix * mix + 1) / 3, "(mix * mix + 1) / 3", "mix")
    inside = (mix.astype(half) * mix.astype(half) + half(1)) / half(3)
    body = "g (float16[8] x) => (float16[8] y) { y = Mul(x, val_4) }"
    manifest = with_program(manifest_of(parameter("mix", mix)), value, through=("mix",))
    changed = inside.copy()
    changed[3] *= half(1.02)

    assert reconcile(tmp_path, text_model(body, {"val_4": inside}), manifest).balanced
    assert not reconcile(tmp_path, text_model(body, {"val_4": changed}), manifest).balanced


def test_exp_of_a_weight_in_its_place_is_another_model_unless_the_program_has_it(tmp_path: Path) -> None:
    weight = noise(8, 8, seed=3)
    body = 'g (float[1,8] x) => (float[1,8] y) { y = MatMul(x, "onnx::MatMul_3") }'
    proto = text_model(body, {"onnx::MatMul_3": np.exp(weight.T)})
    other = computed(1 - weight, "1 - w", "w")

    result = reconcile(tmp_path, proto, with_program(manifest_of(parameter("w", weight)), other))

    assert lines_of(result) == {"w": "missing"}
    assert not result.balanced


def test_a_value_under_the_parameters_own_name_is_differing(tmp_path: Path) -> None:
    proto = text_model(ALONE.replace("val_4", "mix"), {"mix": 1 - MIX})
    manifest = with_program(
        manifest_of(parameter("mix", MIX)), computed(1 - MIX, "1 - mix", "mix"), through=("mix",)
    )

    assert lines_of(reconcile(tmp_path, proto, manifest)) == {"mix": "differing"}


@pytest.mark.parametrize("uses", [(("", "add"),), (("", "add"), ("", "sub"))])
def test_what_another_operator_reads_than_in_the_program_is_not_explained(
    tmp_path: Path, uses: tuple[tuple[str, str], ...]
) -> None:
    value = computed(1 - MIX, "1 - mix", "mix", uses=uses)

    assert not reconcile(tmp_path, *mixed(1 - MIX, value=value)).balanced


def scoped(stored: Mapping[str, Array]) -> ModelProto:
    """Return a file that applies one layer's mix after another, in nodes named after modules."""
    steps = " ".join(f"a{n + 1} = Mul(a{n}, val_{n})" for n in range(len(stored)))
    proto = text_model(f"g (float[8] a0) => (float[8] a{len(stored)}) {{ {steps} }}", stored)
    for n, node in enumerate(proto.graph.node):
        node.name = f"/layers.{n}/Mul"
    return proto


def layers(*order: int) -> tuple[Mapping[str, Array], Manifest]:
    """Return two layers that multiply by `1 - mix`, stored in this order, and their manifest."""
    mixes = [np.abs(noise(WIDTH, seed=seed)) for seed in (11, 12, 13, 14)]
    names = [f"layers.{n}.mix" for n in range(len(mixes))]
    values = [
        computed(1 - mix, f"1 - {name}", name, uses=((f"layers.{n}", "mul"),))
        for n, (name, mix) in enumerate(zip(names, mixes, strict=True))
    ]
    known = manifest_of(*(parameter(name, mix) for name, mix in zip(names, mixes, strict=True)))
    stored = {f"val_{place}": 1 - mixes[n] for place, n in enumerate(order)}
    return stored, with_program(known, *values, through=tuple(names))


def test_a_value_of_another_layer_is_not_explained_where_the_file_names_its_modules(tmp_path: Path) -> None:
    right, manifest = layers(0, 1, 2, 3)
    swapped, _ = layers(1, 0, 2, 3)

    assert reconcile(tmp_path, scoped(right), manifest).balanced
    assert not reconcile(tmp_path, scoped(swapped), manifest).balanced


@pytest.mark.parametrize("is_stored", [False, True], ids=["held by it", "stored too"])
def test_a_value_of_another_layer_is_misplaced_where_only_the_order_shows_it(
    tmp_path: Path, is_stored: bool
) -> None:
    right, manifest = layers(0, 1, 2, 3)
    swapped, _ = layers(1, 0, 2, 3)
    names = [f"layers.{n}" for n in range(4)]
    weights = {
        f"{name}.{leaf}": noise(8, 8, seed=31 + 2 * n + (leaf == "v"))
        for n, name in enumerate(names)
        for leaf in "wv"
    }
    steps = [
        f'b{n} = MatMul(a{n}, "layers.{n}.w") c{n} = Mul(b{n}, val_{n}) d{n} = MatMul(c{n}, "layers.{n}.v") '
        + (
            f'e{n} = Mul(d{n}, "layers.{n}.mix") a{n + 1} = Tanh(e{n})'
            if is_stored
            else f"a{n + 1} = Tanh(d{n})"
        )
        for n in range(4)
    ]
    body = f"g (float[1,8] a0) => (float[1,8] a4) {{ {' '.join(steps)} }}"
    if is_stored:
        mixes = [np.abs(noise(WIDTH, seed=seed)) for seed in (11, 12, 13, 14)]
        weights |= {f"{name}.mix": mix for name, mix in zip(names, mixes, strict=True)}
        manifest = replace(manifest, program=replace(manifest.program, through=()))
    known = [parameter(name, array) for name, array in weights.items() if not name.endswith("mix")]
    manifest = replace(manifest, parameters=(*manifest.parameters, *known))

    assert reconcile(tmp_path, text_model(body, {**weights, **right}), manifest).balanced
    result = reconcile(tmp_path, text_model(body, {**weights, **swapped}), manifest)
    assert [line.key[1] for line in result.entries if line.line.value == "misplaced"] == ["val_0", "val_1"]


def test_single_numbers_are_taken_if_they_are_odd_and_stand_once(tmp_path: Path) -> None:
    scale = np.array([0.73], np.float32)
    value = computed(np.exp(scale), "exp(scale)", "scale")
    manifest = with_program(manifest_of(parameter("scale", scale)), value, through=("scale",))
    once = "g (float[8] x) => (float[8] y) { y = Mul(x, val_1) }"
    twice = "g (float[8] x) => (float[8] y) { a = Mul(x, val_1) y = Mul(a, val_2) }"
    number = np.exp(scale)

    assert lines_of(reconcile(tmp_path, text_model(once, {"val_1": number}), manifest)) == {
        "scale": "evaluated"
    }
    doubled = text_model(twice, {"val_1": number, "val_2": number})
    assert not reconcile(tmp_path, doubled, manifest).balanced


SCALE = np.array(1.2345678, dtype=np.float32)


def factor(alpha: float, *others: Traced) -> tuple[ModelProto, Manifest]:
    """Return a file that holds `exp(scale)` as the factor of a fused product, as onnxruntime's optimizer writes it."""
    proto = text_model(
        f"""g (float[2,3] x, float[3,2] z) => (float[2,2] y) {{
            y = com.microsoft.FusedMatMul<alpha = {alpha!r}>(x, z)
        }}""",
        {},
    )
    value = computed(np.exp(SCALE), "exp(scale)", "scale", is_read=True)
    return proto, with_program(manifest_of(parameter("scale", SCALE)), value, *others, through=("scale",))


@pytest.mark.parametrize("alpha", [float(np.exp(SCALE)), float(1 / np.exp(SCALE))])
def test_a_number_that_became_the_factor_of_a_product_is_found_in_it(tmp_path: Path, alpha: float) -> None:
    result = reconcile(tmp_path, *factor(alpha))

    assert result.balanced
    assert lines_of(result) == {"scale": "evaluated"}
    assert bridge_of(result) == {"evaluated": (1, 1, -1, -1)}
    (lost,) = recover_state(result).lost
    assert lost.name == "scale"


def test_another_or_an_ambiguous_factor_is_not_the_parameter(tmp_path: Path) -> None:
    same = computed(np.exp(SCALE), "other", "scale")

    assert lines_of(reconcile(tmp_path, *factor(float(np.exp(SCALE)) * 1.00001))) == {"scale": "missing"}
    assert lines_of(reconcile(tmp_path, *factor(float(np.exp(SCALE)), same))) == {"scale": "missing"}


def test_few_round_numbers_are_no_evidence_of_a_parameter(tmp_path: Path) -> None:
    gain = np.array([0.5, 0.25, 0.5, 0.25], np.float32)
    value = computed(1 - gain, "1 - gain", "gain")
    manifest = with_program(manifest_of(parameter("gain", gain)), value, through=("gain",))
    body = "g (float[4] x) => (float[4] y) { y = Mul(x, val_1) }"

    assert not reconcile(tmp_path, text_model(body, {"val_1": 1 - gain}), manifest).balanced


def test_a_table_of_no_parameter_that_would_be_opaque_is_explained(tmp_path: Path) -> None:
    weight, bend = noise(8, 8, seed=5), noise(8, 8, seed=6)
    body = "g (float[8,8] x) => (float[8,8] y) { h = MatMul(x, w) y = Add(h, t) }"
    proto = text_model(body, {"w": weight, "t": np.tanh(bend)})
    value = traced("%tanh", np.tanh(bend), "tanh(bend)", uses=(("", "add"),))
    known = manifest_of(parameter("w", weight), buffer("bend", bend))

    assert not reconcile(tmp_path, proto, known).balanced
    result = reconcile(tmp_path, proto, with_program(known, value))
    assert result.balanced
    assert tensors_of(result)["t"] == "evaluated"


@pytest.mark.parametrize(
    ("numbers", "balanced"),
    [
        pytest.param([1.0, 0.01], True, id="frequencies, to the bit"),
        pytest.param([1.0, 0.011], False, id="of another base"),
        pytest.param([0.75, 0.5, 2.0], False, id="few round numbers, of no table"),
    ],
)
def test_a_short_table_is_the_programs_to_the_bit_or_unexplained(
    tmp_path: Path, numbers: list[float], balanced: bool
) -> None:
    """The file does not name the module that reads the table, as a tool removed the names."""
    table, weight = np.array(numbers), noise(8, 8, seed=5)
    body = f"""g (float[8,8] x, double[8,1] p) => (double[8,{len(table)}] a, float[8,8] y) {{
        y = MatMul(x, w) a = Mul(p, t)
    }}"""
    proto = text_model(body, {"w": weight, "t": table})
    program = np.array([1.0, 0.01]) if len(numbers) == 2 else table
    value = traced("%div", program, "1 / 10000 ** (arange(0, 4, 2) / 4)", uses=(("rotary", "mul"),))

    result = reconcile(tmp_path, proto, with_program(manifest_of(parameter("w", weight)), value))

    assert (result.balanced, tensors_of(result)["t"] == "evaluated") == (balanced, balanced)


SHORT = """g (float[8] x) => (float[8] y) {
    [scale] a = Reshape(x, pair)
    [apply] b = Mul(a, mul_3)
    [flat] c = Reshape(b, all)
    [shift] d = Add(c, "layer.norm.bias")
    [other] y = Add(d, "layer.other.bias")
}"""


@pytest.mark.parametrize(("module", "balanced"), [("layer.norm", True), ("layer.other", False)])
def test_a_short_table_of_buffers_is_explained_in_the_module_that_reads_it(
    tmp_path: Path, module: str, balanced: bool
) -> None:
    """The four factors of a frozen BatchNorm, which the exporter stores as a constant of its own."""
    table = 1 + noise(1, 4, 1, seed=3)
    known = {"layer.norm.bias": noise(8, seed=4), "layer.other.bias": noise(8, seed=5)}
    weights = {"mul_3": table, "pair": np.array([1, 4, 2]), "all": np.array([8])}
    proto = with_scopes(text_model(SHORT, weights | known), {"apply": "layer.norm"})
    value = computed(table, "rsqrt(running_var + eps)", uses=((module, "mul"),))

    result = reconcile(tmp_path, proto, with_program(manifest_of(*starmap(parameter, known.items())), value))

    assert result.balanced is balanced
    assert (tensors_of(result)["mul_3"] == "evaluated") is balanced


def test_codes_of_a_value_are_within_a_step(tmp_path: Path) -> None:
    large = noise(16, 16, seed=8)
    codes = quantized("val_1", 1 - large)
    body = """g (float[16,16] x) => (float[16,16] y) {
        d = DequantizeLinear <axis = 0> (val_1_quantized, val_1_scale) y = Mul(x, d) }"""
    names = list(codes)
    body = body.replace("val_1_quantized", names[0]).replace("val_1_scale", names[1])
    manifest = with_program(
        manifest_of(parameter("w", large)), computed(1 - large, "1 - w", "w"), through=("w",)
    )

    result = reconcile(tmp_path, text_model(body, codes), manifest)

    assert lines_of(result) == {"w": "evaluated"}


def test_nothing_is_found_in_a_value_on_which_no_output_depends(tmp_path: Path) -> None:
    body = "g (float[8] x) => (float[8] y) { idle = Mul(x, val_4) y = Mul(x, x) }"
    _, manifest = mixed(1 - MIX, body=ALONE)

    result = reconcile(tmp_path, text_model(body, {"val_4": 1 - MIX}), manifest)

    assert lines_of(result) == {"mix": "missing"}


@pytest.mark.parametrize("format_", ["text", "markdown", "json", "csv", "html"])
def test_every_format_has_the_expression(tmp_path: Path, format_: str) -> None:
    result = reconcile(tmp_path, *mixed(1 - MIX, body=ALONE))

    report = ReconcileReport(result, group_by(result.in_pytorch_terms()))

    assert "1 - mix" in str(render_report(report, format_))


def test_a_manifest_keeps_its_program_and_older_ones_have_none(tmp_path: Path) -> None:
    _, manifest = mixed(1 - MIX)
    path = tmp_path / "manifest.json"
    save_manifest(manifest, path)

    assert load_manifest(path) == manifest
    document = json.loads(path.read_text())
    del document["program"]
    path.write_text(json.dumps(document))
    assert load_manifest(path).program is None


@pytest.mark.parametrize(
    "change",
    [
        {"origins": ["nobody"]},
        {"parameters": ["nobody"]},
        {"whole": "AAAA"},
        {"sums": "AAAA"},
        {"name": "mix"},
        {"is_read": 1},
        {"uses": [[1, "mul"]]},
        {"expression": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_broken_program_is_refused(tmp_path: Path, change: Mapping[str, object]) -> None:
    _, manifest = mixed(1 - MIX)
    path = tmp_path / "manifest.json"
    save_manifest(manifest, path)
    document = json.loads(path.read_text())
    document["program"]["values"][0] |= change
    path.write_text(json.dumps(document))

    with pytest.raises(ManifestError):
        load_manifest(path)


def test_packed_codes_that_nothing_decodes_are_no_value_of_the_program(tmp_path: Path) -> None:
    weight = noise(64, 32)
    value = computed(weight, "w + 0", "w", uses=(("", "linear"),))
    product = "com.microsoft.MatMulNBits <K = 32, N = 64, bits = 4, block_size = 16> (x, b, val_4_scales)"
    text = f"g (float[1,32] x) => (float[1,64] y) {{ b = Reshape(val_4_Q4, shape) y = {product} }}"
    stored = packed("val_4", weight) | {"shape": np.array([64, 2, 8])}
    manifest = with_program(manifest_of(parameter("w", weight)), value, through=("w",))

    result = reconcile(tmp_path, text_model(text, stored), manifest)

    assert not result.balanced
    assert lines_of(result) == {"w": "missing"}
