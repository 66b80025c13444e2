"""Weights joined for one product, some of whose output columns are not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import Array, lines_of, manifest_of, noise, parameters_of, reconcile, text_model

NAMES = tuple(f"l.{part}.weight" for part in "qkv")
WEIGHTS: dict[str, Array] = {
    name: noise(size, 4, seed=size) for name, size in zip(NAMES, (2, 3, 4), strict=True)
}
"""Weights in PyTorch's order of axes: their 2, 3 and 4 rows are columns of the product."""
TURNED = [array.T.copy() for array in WEIGHTS.values()]

STORED: dict[str, tuple[str, dict[str, Array]]] = {
    "in one": ("", {"w": np.concatenate(TURNED, axis=1)}),
    "in one, turned": ("w = Transpose(t)", {"t": np.concatenate([*WEIGHTS.values()])}),
    "apart": ("w = Concat <axis = 1> (a, b, c)", dict(zip("abc", TURNED, strict=True))),
}
CUT: dict[str, tuple[str, dict[str, Array]]] = {
    "Split": ("q, k, v = Split <axis = -1> (h, sizes)", {"sizes": np.array([2, 3, 4])}),
    "Split of an axis that its sizes tell": (
        "q, k, v = Split <axis = 1> (h, sizes)",
        {"sizes": np.array([2, 3, 4])},
    ),
    "Split behind a bias": (
        "g = Add(h, bias) q, k, v = Split <axis = -1> (g, sizes)",
        {"sizes": np.array([2, 3, 4]), "bias": np.zeros(9, np.float32)},
    ),
    "Slices": (
        "q = Slice(h, s0, s2, last) k = Slice(h, s2, s5, last) v = Slice(h, s5, end, last)",
        {
            **{f"s{at}": np.array([at]) for at in (0, 2, 5)},
            "end": np.array([2**31 - 1]),
            "last": np.array([-1]),
        },
    ),
}


def run(folder: Path, stored: str, cut: str, read: str) -> dict[str, str]:
    """Return the lines of the weights where the output reads one of q, k and v, or several of them joined."""
    nodes, tensors = STORED[stored]
    cuts, more = CUT[cut]
    text = f"g (float[2,4] x) => (float[2,n] y) {{ {nodes} h = MatMul(x, w) {cuts} y = Concat <axis = -1> ({read}) }}"
    lines = lines_of(
        reconcile(folder, text_model(text, tensors | more), manifest_of(*parameters_of(WEIGHTS)))
    )
    return {name: lines[name] for name in NAMES}


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("cut", CUT)
def test_a_weight_whose_columns_nothing_reads_is_dead(stored: str, cut: str, tmp_path: Path) -> None:
    lines = run(tmp_path, stored, cut, "q, v")

    assert [name for name, line in lines.items() if line == "dead"] == ["l.k.weight"]


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("cut", CUT)
@pytest.mark.parametrize("read", ["q, k, v", "h", "h, v"])
def test_all_are_alive_where_all_are_read_or_the_whole_is(
    stored: str, cut: str, read: str, tmp_path: Path
) -> None:
    assert "dead" not in run(tmp_path, stored, cut, read).values()


@pytest.mark.parametrize(
    "cut",
    [
        "n = Shape(x) q, k, v = Split <axis = -1> (h, n)",
        "n = Shape(x) q = Slice(h, last, first, last, n) v = Identity(q)",
    ],
)
def test_columns_that_the_model_computes_are_no_evidence(cut: str, tmp_path: Path) -> None:
    text = f"g (float[2,4] x) => (float[2,n] y) {{ h = MatMul(x, w) {cut} y = Concat <axis = -1> (q, v) }}"
    numbers: dict[str, Array] = {"last": np.array([-1]), "first": np.array([-10])} if "Slice" in cut else {}
    proto = text_model(text, STORED["in one"][1] | numbers)

    assert "dead" not in lines_of(reconcile(tmp_path, proto, manifest_of(*parameters_of(WEIGHTS)))).values()


def test_an_axis_that_may_be_another_is_no_evidence(tmp_path: Path) -> None:
    """The activation's rows are cut, an axis of another size than the weights'."""
    text = """g (float[2,4] x) => (float[1,9] y) {
        h = MatMul(x, w) a, b = Split <axis = 0, num_outputs = 2> (h) y = Identity(a)
    }"""
    proto = text_model(text, STORED["in one"][1])

    assert "dead" not in lines_of(reconcile(tmp_path, proto, manifest_of(*parameters_of(WEIGHTS)))).values()
