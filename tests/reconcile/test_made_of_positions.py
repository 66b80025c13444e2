"""Frequencies and waves that forward makes, beside a state dict, which has none of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from models import manifest_of, noise, parameter, reconcile, text_model

from analyzer.content import Array
from analyzer.manifest import Manifest
from analyzer.reconciliation import Reconciliation

FC = noise(4, 4)
BESIDE = {"fc.weight": FC}

FREQUENCIES = (1e4 ** (-np.arange(4) / 4)).astype("f4")
TURNED = """g (float[3,1] x, float[3,4] t) => (float[3,4] y) {
    a = Mul(x, freq) c = Cos(a) s = Sin(a)
    h = MatMul(t, "fc.weight") i = Mul(h, c) j = Mul(h, s) y = Add(i, j)
}"""
ADDED_TOO = TURNED.replace("c = Cos(a)", "b = Add(a, t) c = Cos(b)")


def state_dict() -> Manifest:
    return replace(manifest_of(parameter("fc.weight", FC)), lists_all_buffers=False)


def run(folder: Path, text: str, stored: dict[str, Array], known: Manifest | None = None) -> Reconciliation:
    return reconcile(folder, text_model(text, {**BESIDE, **stored}), known or state_dict())


def line_of(result: Reconciliation, name: str) -> str:
    return next(entry.line for entry in result.entries if entry.key[1] == name)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_frequencies_that_only_sines_and_cosines_read_are_added(
    tmp_path: Path, count: int, dtype: str
) -> None:
    frequencies = (1e4 ** (-np.arange(count) / count)).astype(dtype)
    kind = {"f4": "float", "f2": "float16"}[dtype]
    text = (
        TURNED.replace("float[", f"{kind}[").replace("4]", f"{count}]").replace('"fc.weight"', '"fc.weight"')
    )
    weight = noise(count, count).astype(dtype)
    known = replace(manifest_of(parameter("fc.weight", weight)), lists_all_buffers=False)

    result = reconcile(tmp_path, text_model(text, {"fc.weight": weight, "freq": frequencies}), known)

    assert line_of(result, "freq") == "added"
    assert result.balanced


OTHERS = {
    "the other way round": -FREQUENCIES,
    "rising": FREQUENCIES[::-1].copy(),
    "faster than a radian a position": 3 * FREQUENCIES,
    "of any ratio": np.array([1, 0.7, 0.1, 0.09], "f4"),
    "zeros but for the first": np.array([1, 0, 0, 0], "f4"),
    "all one": np.full(4, 0.5, "f4"),
    "zeros": np.zeros(4, "f4"),
    "one of them the other way round": FREQUENCIES * np.array([1, 1, -1, 1], "f4"),
}


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_numbers_that_are_no_frequencies_are_not(tmp_path: Path, name: str) -> None:
    result = run(tmp_path, TURNED, {"freq": OTHERS[name]})

    assert line_of(result, "freq") != "added"
    assert not result.balanced


def test_frequencies_that_something_else_reads_are_not(tmp_path: Path) -> None:
    text = TURNED.replace("y = Add(i, j)", "k = Add(i, j) y = Mul(k, freq)")

    result = run(tmp_path, text, {"freq": FREQUENCIES})

    assert not result.balanced


def test_nor_are_they_where_angles_are_added_to_an_activation(tmp_path: Path) -> None:
    assert not run(tmp_path, ADDED_TOO, {"freq": FREQUENCIES}).balanced


def test_a_side_that_lists_its_buffers_has_the_frequencies(tmp_path: Path) -> None:
    listed = manifest_of(parameter("fc.weight", FC))

    assert not run(tmp_path, TURNED, {"freq": FREQUENCIES}, listed).balanced


def waves(positions: int, frequencies: Array) -> Array:
    angles = np.outer(np.arange(positions), frequencies)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("f4")


LOOKED_UP = """g (int64[3] x) => (float[3,4] y) {
    p = Gather(table, x) h = MatMul(p, "fc.weight") y = Relu(h)
}"""


def test_a_table_of_positions_that_is_looked_up_is_added(tmp_path: Path) -> None:
    table = waves(20, np.array([1, 1e-4], "f4"))
    table[1] = 0  # padding

    result = run(tmp_path, LOOKED_UP, {"table": table})

    assert line_of(result, "table") == "added"
    assert result.balanced


@pytest.mark.parametrize("change", ["one element", "one frequency", "counts", "last to first", "listed"])
def test_a_table_that_is_looked_up_and_is_another_is_not(tmp_path: Path, change: str) -> None:
    table, known = waves(20, np.array([1, 1e-4], "f4")), None
    if change == "one element":
        table[7, 0] += 0.1
    elif change == "one frequency":
        table[:, 1] = np.sin(0.3 * np.arange(20))
    elif change == "last to first":
        table = table[::-1].copy()
    elif change == "counts":
        table = np.add.outer(np.arange(20), np.arange(4)).astype("f4")
    else:
        known = manifest_of(parameter("fc.weight", FC))

    result = run(tmp_path, LOOKED_UP, {"table": table}, known)

    assert line_of(result, "table") == "unexpected"
    assert not result.balanced


CACHED = """<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
g (float[1,5,4] x, int64[1,5] at) => (float[1,5,4] y) {
    h = MatMul(x, "fc.weight")
    y = com.microsoft.RotaryEmbedding(h, at, cosines, sines)
}"""


def test_attentions_own_tables_of_cosines_and_sines_are_added(tmp_path: Path) -> None:
    angles = np.outer(np.arange(9), [1, 0.03])
    stored = {"cosines": np.cos(angles).astype("f4"), "sines": np.sin(angles).astype("f4")}

    result = run(tmp_path, CACHED, stored)

    assert result.balanced
    assert {line_of(result, name) for name in stored} == {"added"}


@pytest.mark.parametrize("change", ["noise", "turned", "listed"])
def test_what_attention_is_given_instead_is_not(tmp_path: Path, change: str) -> None:
    angles = np.outer(np.arange(9), [1, 0.03])
    stored = {"cosines": np.cos(angles).astype("f4"), "sines": np.sin(angles).astype("f4")}
    known = manifest_of(parameter("fc.weight", FC)) if change == "listed" else None
    if change == "noise":
        stored["sines"] = noise(9, 2, seed=4)
    elif change == "turned":
        stored["sines"] = -stored["sines"]

    assert not run(tmp_path, CACHED, stored, known).balanced


def test_alibis_slopes_are_known_by_their_number(tmp_path: Path) -> None:
    text = """g (float[4,4] x) => (float[4,4] y) {
        h = MatMul(x, "fc.weight") b = Mul(slopes, x) y = Add(h, b)
    }"""
    slopes = (2.0 ** (-2 * np.arange(1, 5))).astype("f4")[:, None]

    assert run(tmp_path, text, {"slopes": slopes}).balanced
    assert not run(tmp_path, text, {"slopes": 2 * slopes}).balanced
    assert not run(tmp_path, text, {"slopes": -slopes}).balanced
