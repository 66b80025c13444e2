"""A weight that a node changes when the model runs, before it is multiplied."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from models import lines_of, manifest_of, noise, parameter, parameters_of, reconcile, text_model

from analyzer.reconcile import Reconciliation

WEIGHTS = {f"l{number}.weight": noise(6, 6, seed=number) for number in range(3)}


def run(folder: Path, change: str, modules: dict[str, str] | None) -> dict[str, str]:
    """Three layers one after another, of which the second one's weight goes through `change` first."""
    text = f"""g (float[2,6] x) => (float[2,6] y) {{
        h0 = Gemm <transB = 1> (x, "l0.weight") {change}
        h1 = Gemm <transB = 1> (h0, c) y = Gemm <transB = 1> (h1, "l2.weight")
    }}"""
    used = dict(WEIGHTS)
    return lines_of(
        reconcile(folder, text_model(text, used), manifest_of(*parameters_of(used), modules=modules))
    )


def plain(class_: str) -> dict[str, str]:
    return {f"l{number}": class_ for number in range(3)}


CHANGES = ('c = Neg("l1.weight")', 'c = Abs("l1.weight")', 'a = Neg("l1.weight") c = Exp(a)')


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("modules", [plain("Linear"), None], ids=["Linear", "no class known"])
def test_what_a_node_makes_of_a_linears_weight_is_another_weight(
    change: str, modules: dict[str, str] | None, tmp_path: Path
) -> None:
    lines = run(tmp_path, change, modules)

    assert lines == {"l0.weight": "identical", "l1.weight": "differing", "l2.weight": "identical"}


@pytest.mark.parametrize("change", CHANGES)
def test_a_class_of_its_own_may_compute_with_its_weight_as_it_likes(change: str, tmp_path: Path) -> None:
    assert set(run(tmp_path, change, plain("MyLinear")).values()) == {"identical"}


@pytest.mark.parametrize(
    "change",
    ['c = Identity("l1.weight")', 'a = Cast <to = 10> ("l1.weight") c = Cast <to = 1> (a)'],
    ids=["nothing", "casts"],
)
def test_what_only_moves_or_casts_a_weight_changes_nothing(change: str, tmp_path: Path) -> None:
    assert set(run(tmp_path, change, plain("Linear")).values()) == {"identical"}


def test_a_parameter_that_is_not_described_is_not_compared(tmp_path: Path) -> None:
    text = 'g (float[2,6] x) => (float[2,6] y) { h = MatMul(x, "l0.weight") y = MatMul(h, "l1.weight") }'
    held = {name: WEIGHTS[name] for name in ("l0.weight", "l1.weight")}
    manifest = manifest_of(
        parameter("l0.weight", held["l0.weight"]), parameter("l1.weight", held["l1.weight"], content=None)
    )

    result = reconcile(tmp_path, text_model(text, held), manifest)

    assert lines_of(result) == {"l0.weight": "identical", "l1.weight": "not-compared"}
    assert not result.balanced


MOVED = {
    "turned round": 'c = Slice("l1.weight", minus, least, zero, minus)',
    "rolled": """a = Slice("l1.weight", two, six, zero) b = Slice("l1.weight", zero, two, zero)
        c = Concat <axis = 0> (a, b)""",
    "cut anew": 't = Transpose <perm = [1, 0]> ("l1.weight") c = Reshape(t, shape)',
    "a row written over another": """r = Slice("l1.weight", two, three, zero)
        c = ScatterElements <axis = 0> ("l1.weight", zeros, r)""",
    "two halves exchanged": """a, b = Split <axis = 1, num_outputs = 2> ("l1.weight")
        c = Concat <axis = 1> (b, a)""",
    "another layer's added": 'c = Add("l1.weight", "l0.weight")',
    "the larger one of two layers'": """g = Greater("l1.weight", "l0.weight")
        c = Where(g, "l1.weight", "l0.weight")""",
}
"""What leaves no element as it is, or puts it in another place."""

KEPT = {
    "cut and joined again": """a, b = Split <axis = 1, num_outputs = 2> ("l1.weight")
        c = Concat <axis = 1> (a, b)""",
    "flat and back": 'f = Reshape("l1.weight", flat) c = Reshape(f, shape)',
    "axes put in and taken out": 'f = Reshape("l1.weight", deep) c = Reshape(f, shape)',
}
"""What gives each element back in its place."""

NUMBERS = {
    "minus": np.array([-1]),
    "least": np.array([-(1 << 40)]),
    "zero": np.array([0]),
    "two": np.array([2]),
    "three": np.array([3]),
    "six": np.array([6]),
    "zeros": np.zeros((1, 6), "i8"),
    "shape": np.array([6, 6]),
    "flat": np.array([-1]),
    "deep": np.array([2, 3, 1, 6]),
}


def moved(folder: Path, change: str) -> Reconciliation:
    text = f"""<ir_version: 10, opset_import: ["" : 18]> g (float[2,6] x) => (float[2,6] y) {{
        h0 = Gemm <transB = 1> (x, "l0.weight") {change}
        h1 = Gemm <transB = 1> (h0, c) y = Gemm <transB = 1> (h1, "l2.weight")
    }}"""
    manifest = manifest_of(*parameters_of(WEIGHTS), modules=plain("Linear"))
    used = {name: array for name, array in NUMBERS.items() if re.search(rf"\b{name}\b", change)}
    return reconcile(folder, text_model(text, WEIGHTS | used), manifest)


@pytest.mark.parametrize("change", MOVED)
def test_a_weight_whose_elements_arrive_in_another_order_is_another_weight(
    change: str, tmp_path: Path
) -> None:
    result = moved(tmp_path, MOVED[change])

    assert lines_of(result)["l1.weight"] == "differing"
    assert not result.balanced


@pytest.mark.parametrize("change", KEPT)
def test_a_weight_whose_elements_arrive_where_they_were_is_the_same(change: str, tmp_path: Path) -> None:
    assert moved(tmp_path, KEPT[change]).balanced


def test_rows_of_another_length_are_other_rows(tmp_path: Path) -> None:
    wide = noise(12, 6, seed=9)
    text = """<ir_version: 10, opset_import: ["" : 18]> g (float[2,6] x) => (float[2,12] y) {
        c = Reshape("l.weight", shape) y = MatMul(x, c)
    }"""
    manifest = manifest_of(*parameters_of({"l.weight": wide}), modules={"l": "Linear"})

    result = reconcile(tmp_path, text_model(text, {"l.weight": wide, "shape": np.array([6, 12])}), manifest)

    assert not result.balanced
