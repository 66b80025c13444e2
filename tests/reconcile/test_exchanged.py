"""Weights that the file holds, and reads where others belong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import (
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
)

from analyzer.content import Array
from analyzer.manifest import BatchNorm
from analyzer.reconciliation import Reconciliation

WIDTH = 8
SIDES = ("q", "k", "v", "o")
MODES = pytest.mark.parametrize("content", ["sampled", "full"])


def weights(layers: int, *, of: tuple[str, ...] = (*SIDES, "norm1", "norm2")) -> dict[str, Array]:
    """An encoder's: attention without biases between two norms in each layer."""
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
    named: bool = True,
    scoped: bool = True,
) -> onnx.ModelProto:
    """The file; with `swapped`, each of the two is read where the other belongs."""
    read = {name: name for name in known}
    if swapped is not None:
        read[swapped[0]], read[swapped[1]] = swapped[1], swapped[0]
    stored_as = {name: name if named else f"v{index}" for index, name in enumerate(known)}
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
            f"{at('q', 'MatMul')} {p}q = MatMul({p}n, {of('q')}) "
            f"{at('k', 'MatMul')} {p}k = MatMul({p}n, {of('k')}) "
            f"{at('v', 'MatMul')} {p}v = MatMul({p}n, {of('v')}) "
            f"{p}t = Transpose({p}k) {p}s = MatMul({p}q, {p}t) {p}p = Softmax({p}s) {p}c = MatMul({p}p, {p}v) "
            f"{at('o', 'MatMul')} {p}o = MatMul({p}c, {of('o')}) {p}r = Add({before}, {p}o) "
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


# nothing exchanged


@MODES
@pytest.mark.parametrize("layers", [1, 2, 3, 5])
@pytest.mark.parametrize("scoped", [True, False], ids=["scopes", "no scopes"])
@pytest.mark.parametrize("named", [True, False], ids=["names", "no names"])
def test_file_as_it_was_exported_is_quiet(
    tmp_path: Path, layers: int, named: bool, scoped: bool, content: str
) -> None:
    known = weights(layers)

    result = run(tmp_path, known, encoder(known, layers, named=named, scoped=scoped), content)

    assert result.balanced, result.findings


# two exchanged


@MODES
@pytest.mark.parametrize("named", [True, False], ids=["names", "no names"])
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
def test_what_two_modules_have_exchanged_is_told_where_nodes_name_them(
    tmp_path: Path, swapped: tuple[str, str], named: bool, content: str
) -> None:
    known = weights(6)

    result = run(tmp_path, known, encoder(known, 6, swapped=swapped, named=named), content)

    assert not result.balanced
    if named:
        told = {line.name: line.decided_by for line in result.parameters if line.line == "misplaced"}
        assert [told[name] for name in swapped] == [f"provenance:read-as {name}" for name in swapped[::-1]]


@MODES
@pytest.mark.parametrize("named", [True, False], ids=["names", "no names"])
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
def test_in_one_layer_it_is_told_by_the_other_layers(
    tmp_path: Path, swapped: tuple[str, str], named: bool, content: str
) -> None:
    layers = 6  # of four, each stands at another distance from an end
    known = weights(layers)

    result = run(tmp_path, known, encoder(known, layers, swapped=swapped, named=named, scoped=False), content)

    assert misplaced(result) == set(swapped)
    assert {line.decided_by for line in result.parameters if line.line == "misplaced"} == {
        "structure:read-as-another"
    }


@MODES
@pytest.mark.parametrize("named", [True, False], ids=["names", "no names"])
@pytest.mark.parametrize("side", ["q", "o", "norm1", "norm2"])
def test_between_layers_it_is_told_by_their_order(
    tmp_path: Path, side: str, named: bool, content: str
) -> None:
    known, swapped = weights(4), (f"layers.1.{side}.weight", f"layers.3.{side}.weight")

    result = run(tmp_path, known, encoder(known, 4, swapped=swapped, named=named, scoped=False), content)

    assert misplaced(result) == set(swapped)
    assert {line.decided_by for line in result.parameters if line.line == "misplaced"} == {
        "structure:out-of-order"
    }


def test_of_two_layers_that_differ_nobody_knows_which_one_is_right(tmp_path: Path) -> None:
    known, swapped = weights(3), ("layers.1.q.weight", "layers.1.k.weight")

    result = run(tmp_path, known, encoder(known, 3, swapped=swapped, scoped=False))

    assert misplaced(result) == {*swapped, "layers.2.q.weight", "layers.2.k.weight"}


def test_what_is_misplaced_is_held_and_counted(tmp_path: Path) -> None:
    known, swapped = weights(2), ("layers.1.norm1.weight", "layers.1.norm2.weight")

    result = run(tmp_path, known, encoder(known, 2, swapped=swapped))

    (row,) = [row for row in result.bridge if row.line == "misplaced"]
    assert (row.tensors, row.elements, row.parameter_delta, row.stored_delta) == (2, 2 * WIDTH, 0, 0)
    assert [(finding.id, finding.subjects) for finding in result.findings] == [("misplaced", swapped)]
    assert result.onnx_parameters == sum(array.size for array in known.values())


def test_where_no_values_are_compared_nobody_knows_where_they_are(tmp_path: Path) -> None:
    known, swapped = weights(2), ("layers.1.norm1.weight", "layers.1.norm2.weight")

    assert run(tmp_path, known, encoder(known, 2, swapped=swapped), "none").balanced


# what may stand elsewhere


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
    """As ALBERT's."""
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
    """As decoders of U-Nets may be numbered."""
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


def test_modules_of_a_traced_export_are_told_as_well(tmp_path: Path) -> None:
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
    """Layers in stages, the last of each ends otherwise; with `swapped`, two are read in each other's place."""
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
    """Stages of 2, 3 and 4 layers: the second of the first stage ends it, as the third of the second stage does."""
    honest, known = stages((2, 3, 4))
    exchanged, _ = stages((2, 3, 4), swapped=("s.1.1.weight", "s.1.2.weight"))
    manifest = manifest_of(*parameters_of(known), values=known)

    assert reconcile(tmp_path, honest, manifest).balanced
    assert reconcile(tmp_path, exchanged, manifest).misplaced == 2
