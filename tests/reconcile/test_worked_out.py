"""What a file computes of stored numbers when it runs is PyTorch's own, or data of somebody's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from models import (
    Array,
    lines_of,
    manifest_of,
    noise,
    parameter,
    parameters_of,
    reconcile,
    text_model,
    traced,
    with_scopes,
)

from analyzer.manifest import Manifest, Program, Traced
from analyzer.reconciliation import Reconciliation

SPEED, GROWTH = np.array(0.37, "f4"), np.array(0.05, "f4")

POSITIONS = np.arange(1, 25, dtype="f4")

TABLE = (np.sin(POSITIONS * SPEED) * np.exp(POSITIONS * GROWTH)).reshape(4, 6)
"""Of no series that any table is known by."""

WEIGHT = noise(6, 6, seed=6)

BODY = """g (float[4,6] x) => (float[4,6] y) {
    p = CumSum(ones, axis) a = Mul(p, speed) b = Mul(p, growth) s = Sin(a) e = Exp(b) m = Mul(s, e)
    [shape] t = Reshape(m, shape) [add] h = Add(x, t) y = MatMul(h, "l.weight")
}"""


def value(array: Array, *parameters: str, module: str = "") -> Traced:
    return traced(
        "%sin", array, "sin(p * f)", parameters=parameters, origins=parameters, uses=((module, "add"),)
    )


def run(folder: Path, manifest: Manifest, speed: Array = SPEED, *, scope: str = "") -> Reconciliation:
    held = {"ones": np.ones(24, "f4"), "speed": speed, "growth": GROWTH, "l.weight": WEIGHT}
    held |= {"axis": np.array(0), "shape": np.array([4, 6])}
    proto = with_scopes(text_model(BODY, held), {"shape": scope, "add": scope})
    return reconcile(folder, proto, manifest)


BARE = manifest_of(parameter("l.weight", WEIGHT))


def with_program(*values: Traced, through: tuple[str, ...] = ()) -> Manifest:
    return replace(BARE, program=Program(values, through))


def test_what_the_program_computes_too_is_pytorchs(tmp_path: Path) -> None:
    assert run(tmp_path, with_program(value(TABLE))).balanced


def test_so_it_is_with_its_axes_turned(tmp_path: Path) -> None:
    assert run(tmp_path, with_program(value(np.ascontiguousarray(TABLE.T)))).balanced


def changed(place: tuple[int, int]) -> Array:
    array = TABLE.copy()
    array[place] += 0.01
    return array


@pytest.mark.parametrize(
    "manifest",
    [
        BARE,
        with_program(),
        with_program(value(changed((0, 0)))),
        with_program(value(changed((2, 3)))),
        with_program(value(TABLE[:, ::-1].copy())),
        with_program(value(TABLE[:2])),
        with_program(value(-TABLE)),
    ],
    ids=["no program", "no value", "first", "one", "turned round", "half", "negated"],
)
def test_what_it_does_not_is_somebodys(manifest: Manifest, tmp_path: Path) -> None:
    result = run(tmp_path, manifest)

    assert not result.balanced
    assert {line.key[1]: line.line.value for line in result.entries}["speed"] == "opaque"


def test_other_numbers_in_its_place_are_told(tmp_path: Path) -> None:
    assert not run(tmp_path, with_program(value(TABLE)), np.array(0.38, "f4")).balanced


def test_another_modules_value_is_none_of_this_one(tmp_path: Path) -> None:
    manifest = with_program(value(TABLE, module="encoder.positions"))

    assert run(tmp_path, manifest, scope="encoder.positions").balanced
    assert not run(tmp_path, manifest, scope="decoder").balanced


# what PyTorch's own program multiplies by zeros

QUERIES = """g (float[2,4] x) => (float[2,4] y) {
    [query] h = MatMul(zeros, "q.weight") [add] y = Add(x, h)
}"""


@pytest.mark.parametrize("is_programs", [True, False])
def test_zeros_are_the_programs_own_or_a_cut(is_programs: bool, tmp_path: Path) -> None:
    weight = noise(4, 4, seed=2)
    nothing = traced(
        "%mm", np.zeros((2, 4), "f4"), "zeros @ q.weight", parameters=("q.weight",), origins=("q.weight",)
    )
    program = (
        Program((replace(nothing, uses=(("", "add"),)),), ("q.weight",)) if is_programs else Program((), ())
    )
    manifest = replace(manifest_of(parameter("q.weight", weight)), program=program)
    proto = text_model(QUERIES, {"zeros": np.zeros((2, 4), "f4"), "q.weight": weight})

    assert reconcile(tmp_path, proto, manifest).balanced is is_programs


# norms without a gain and a bias of their own

NORM = """g (float[2,6] x) => (float[2,6] y) {
    [norm] n = LayerNormalization(x, ones, zeros) y = MatMul(n, w)
}"""


def normed(folder: Path, **fields: object) -> Reconciliation:
    held = {"ones": np.ones(6, "f4"), "zeros": np.zeros(6, "f4"), "w": noise(6, 6, seed=3)}
    proto = with_scopes(text_model(NORM, held), {"norm": "norm"})
    free = parameter("mask_embedding", noise(6, seed=4), **fields)
    manifest = replace(manifest_of(*parameters_of({"w": held["w"]}), free, trace="exported-program"))
    return reconcile(folder, proto, manifest)


def test_a_norm_without_vectors_gets_ones_and_zeros_though_another_of_their_size_is_not_read(
    tmp_path: Path,
) -> None:
    result = normed(tmp_path, read=False)

    assert result.balanced
    assert lines_of(result)["mask_embedding"] == "unused"


def test_a_norms_own_vector_that_is_read_is_still_to_be_found(tmp_path: Path) -> None:
    held = {"ones": np.ones(6, "f4"), "zeros": np.zeros(6, "f4"), "w": noise(6, 6, seed=3)}
    proto = with_scopes(text_model(NORM, held), {"norm": "norm"})
    manifest = manifest_of(*parameters_of({"w": held["w"], "norm.weight": noise(6, seed=4)}))

    assert not reconcile(tmp_path, proto, manifest).balanced
