"""A sample of the tamper suite is told, but for what is known to be silent; and the suite counts as it says."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest

from tools.suite.bases import Base, make_base
from tools.suite.running import distance
from tools.suite.surgery import NoPlaceError, Surgery
from tools.tamper.cases import Case, run_apart
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
SAMPLE = {base: MUST[place :: 2 * len(BASES)] for place, base in enumerate(BASES)}

SILENT: dict[str, tuple[str, ...]] = {
    "A tensor that no output depends on holds its parameter.": (
        "bert-masked-lm/dynamic/unread/product bypassed, its node dead",
        "bert-masked-lm/dynamic/unread/every residual's branch left out",
        "bert-masked-lm/int8/unread/bias of a norm taken off",
        "net/legacy/unread/bias Add bypassed, its node dead",
        "net/legacy/unread/norm bypassed",
        "net/legacy/unread/weight replaced by one already there",
    ),
    "A function of the weights is taken for a fold, whatever tensor it stands in.": (
        "bert-masked-lm/dynamic/folded-factor/w / sqrt(64) of one weight",
        "bert-masked-lm/int8/folded-factor/exp(w) of one weight",
        "net/legacy/folded-factor/-exp(w) of one weight",
    ),
    "What stands between a tensor and its product is not looked at.": (
        "bert-masked-lm/dynamic/folded-factor/Exp of a weight at run time",
        "bert-masked-lm/dynamic/folded-factor/w / sqrt(8) at run time",
        "bert-masked-lm/int8/orientation/square weight transposed under its name",
        "net/legacy/orientation/square matrix turned by Gemm with transB",
        "net/legacy/folded-factor/Abs of a weight at run time",
    ),
    "Integers, bools, scalars, attributes and what is made at run time are not followed to where they compute.": (
        "bert-masked-lm/dynamic/planted/bools",
        "bert-masked-lm/dynamic/planted/RandomUniform",
        "bert-masked-lm/dynamic/planted/int64 through Cast, as a bias",
        "bert-masked-lm/int8/planted/int64 through Cast",
        "bert-masked-lm/int8/planted/int8 chunks of 64",
        "bert-masked-lm/int8/planted/LabelEncoder's values",
        "bert-masked-lm/int8/planted/value_ints",
        "bert-masked-lm/int8/planted/sines at run time",
        "bert-masked-lm/int8/planted/RandomNormalLike",
        "bert-masked-lm/int8/planted/indices into even steps",
        "bert-masked-lm/int8/planted/bools, as a bias",
        "net/legacy/planted/int32 through Cast",
        "net/legacy/planted/1,024 scalars",
        "net/legacy/planted/LabelEncoder's keys",
        "net/legacy/planted/remainders at run time",
        "net/legacy/planted/Bernoulli",
    ),
    "A name or a note settles what flows into arithmetic.": (
        "bert-masked-lm/dynamic/forged/note folded_from naming a parameter, as integers",
        "bert-masked-lm/dynamic/forged/name position_ids, as a bias",
        "bert-masked-lm/dynamic/forged/name token_type_ids, as integers",
        "bert-masked-lm/int8/forged/note InputSpec kind BUFFER, as a bias",
        "bert-masked-lm/int8/forged/name inv_freq, as a bias",
        "bert-masked-lm/int8/forged/name num_batches_tracked, as integers",
        "net/legacy/forged/note InputSpec kind BUFFER, as integers",
        "net/legacy/forged/name running_mean, as a bias",
        "net/legacy/forged/name attn.bias, as integers",
    ),
    "What computes is no tensor that a rule looks at, and PyTorch's weights compute nothing.": (
        "bert-masked-lm/dynamic/hollow/int64 tables, weights in dead products",
        "bert-masked-lm/dynamic/hollow/int64 tables, weights never chosen by Where",
        "bert-masked-lm/dynamic/hollow/int8 chunks, weights times zero",
        "bert-masked-lm/dynamic/hollow/sines, weights times zero",
        "bert-masked-lm/dynamic/hollow/indices into even steps, weights in dead nodes",
        "bert-masked-lm/dynamic/hollow/weights averaged with noise that Dropout's mask gives",
        "net/legacy/hollow/half of the products, int64 tables, weights in dead nodes",
    ),
}
"""What is not told yet, by its reason."""


@pytest.mark.parametrize("base", [pytest.param(base, marks=makes_files, id=base.name) for base in BASES])
def test_what_must_be_told_is_told(honest: Path, base: Base) -> None:
    assert make_base(honest, base) == ""
    known = {name for names in SILENT.values() for name in names if name.startswith(f"{base.name}/")}

    cases = run_apart(honest, base, SAMPLE[base], seed=0)

    assert not [case for case in cases if case.status == "failed"]
    assert {case.name for case in cases if case.status == "silent"} == known
    assert sum(case.counts for case in cases) > len(cases) / 2


def test_the_list_is_long_enough_and_has_every_class() -> None:
    groups = {kind.group for kind in KINDS.values()}

    assert len(KINDS) >= 80
    assert groups == {*CLASSES}
    assert min(sum(kind.group == group for kind in KINDS.values()) for group in CLASSES) >= 10


def test_the_tables_say_what_is_told_of_what_changes() -> None:
    base = BASES[0]
    cases = [
        Case(base, "content/one element", "told", "1 differing: w", 0.1),
        Case(base, "planted/bools", "silent", "", 0.2),
        Case(base, "planted/strings", "unchanged"),
        Case(base, "content/row of zeros", "no place", "no product"),
    ]

    text, document = render_text(cases), render_markdown(cases)

    assert "1 of 2 cases are told: 50.0 %." in text
    assert "0 of   1  planted/bools" in text
    assert "No case: 1 no place, 1 unchanged." in text
    assert "| planted | 0/1 | 0/1 | 0.0 % |" in document
    assert "| planted/bools | 1 | `bert-masked-lm/dynamic` |" in document


# What stands under both suites


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
