"""A sample of the tamper suite is detected, except for known misses, and the suite counts correctly."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from samples import WHOLE

from tools.suite.bases import Base, make_base
from tools.suite.running import distance
from tools.suite.surgery import NoPlaceError, Surgery
from tools.tamper.cases import Case, run_isolated
from tools.tamper.catalog import CERTAIN, CLASSES, KINDS
from tools.tamper.report import render_markdown, render_text

NEEDED = ("torch", "transformers", "onnxscript", "onnxruntime", "onnxslim")  # each in another process
makes_files = [
    pytest.mark.export,
    pytest.mark.time,
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}"),
]

BASES = (Base("bert-masked-lm", "dynamic"), Base("bert-masked-lm", "int8"), Base("net", "legacy"))
MUST = [name for name, kind in KINDS.items() if kind.group in CERTAIN]
EACH = (2 if WHOLE else 4) * len(BASES)
SAMPLE = {base: MUST[place::EACH] for place, base in enumerate(BASES)}

SILENT: dict[str, tuple[str, ...]] = {}
"""Cases that are not detected yet, by reason."""


@pytest.mark.parametrize("base", [pytest.param(base, marks=makes_files, id=base.name) for base in BASES])
def test_what_must_be_reported_is_reported(honest: Path, base: Base) -> None:
    assert make_base(honest, base) == ""
    known = {name for names in SILENT.values() for name in names if name.startswith(f"{base.name}/")}

    cases = run_isolated(honest, base, SAMPLE[base], seed=0)

    assert not [case for case in cases if case.status == "failed"]
    assert {case.name for case in cases if case.status == "silent"} == known
    assert sum(case.counts for case in cases) > len(cases) / 2


def test_the_list_is_long_enough_and_has_every_class() -> None:
    groups = {kind.group for kind in KINDS.values()}

    assert len(KINDS) >= 80
    assert groups == {*CLASSES}
    assert min(sum(kind.group == group for kind in KINDS.values()) for group in CLASSES) >= 10


def test_the_tables_say_what_is_reported_of_what_changes() -> None:
    base = BASES[0]
    cases = [
        Case(base, "content/one element", "detected", "1 differing: w", 0.1),
        Case(base, "planted/bools", "silent", "", 0.2),
        Case(base, "planted/strings", "unchanged"),
        Case(base, "content/row of zeros", "no place", "no product"),
    ]

    text, document = render_text(cases), render_markdown(cases)

    assert "1 of 2 cases are detected: 50.0 %." in text
    assert "0 of   1  planted/bools" in text
    assert "No case: 1 no place, 1 unchanged." in text
    assert "| planted | 0/1 | 0/1 | 0.0 % |" in document
    assert "| planted/bools | 1 | `bert-masked-lm/dynamic` |" in document


# Parts of both suites


def surgery(text: str) -> Surgery:
    return Surgery(onnx.parser.parse_model(text), {}, np.random.default_rng(0))


TEXT = """
    <ir_version: 10, opset_import: ["" : 20]>
    model (float[2,4] x) => (float[2,4] y)
    <float[4,4] w = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}, float[4] b = {1,2,3,4}>
    {
        t = Transpose <perm = [1, 0]> (w)
        z = MatMul (x, t)
        y = Add (z, b)
    }
"""


def test_a_product_is_found_through_what_only_moves_its_weight() -> None:
    (product,) = Surgery(
        onnx.parser.parse_model(
            TEXT.replace("[4,4]", "[8,4]").replace("{0,", "{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,")
        ),
        {},
        np.random.default_rng(0),
    ).products()

    assert (product.tensor, product.node.op_type, [m.op_type for m in product.moves]) == (
        "w",
        "MatMul",
        ["Transpose"],
    )


def test_nodes_are_sorted_and_a_circle_is_refused() -> None:
    s = surgery(TEXT)
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(s.graph.node)]
    del s.graph.node[:]
    s.graph.node.extend(nodes)

    assert [n.op_type for n in s.finish().graph.node] == ["Transpose", "MatMul", "Add"]

    s.nodes[0].input[0] = "y"
    with pytest.raises(NoPlaceError):
        s.finish()


def test_what_takes_a_values_place_is_read_by_all_who_read_it() -> None:
    s = surgery(TEXT)

    made = s.after("z", lambda z: s.node("Neg", [z]))

    assert [n.op_type for n, _ in s.readers("z")] == ["Neg"]
    assert [n.op_type for n, _ in s.readers(made)] == ["Add"]


def test_distance_is_relative_and_infinite_for_other_shapes_or_nans() -> None:
    one = [np.array([1.0, -4.0])]

    assert distance(one, one) == 0
    assert distance(one, [np.array([1.0, -3.0])]) == 0.25
    assert distance(one, [np.array([1.0, np.nan])]) == float("inf")
    assert distance(one, [np.array([1.0])]) == float("inf")
