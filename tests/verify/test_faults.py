"""A sample of `make faults` is detected, each at its module and with its cause, and the table counts correctly."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from samples import sampled

from tools.faults.cases import CLEAN, Case, run_isolated
from tools.faults.causes import is_named
from tools.faults.quantizing import FAULTS
from tools.faults.report import render_markdown, render_text
from tools.faults.truth import is_right
from tools.suite.bases import Base, make_base

NEEDED = ("torch", "transformers", "onnxscript", "onnxruntime")  # each in another process
makes_files = [
    pytest.mark.export,
    pytest.mark.time,
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}"),
]
BERT = Base("bert-masked-lm", "dynamic")
SAMPLE = {
    BERT: (
        "wiring/residual added twice",
        "wiring/layer skipped",
        "attributes/epsilon of every norm",
        "planted/If's Constants",
        "content/noise on every tensor",
        "tables/head's rows permuted, the words as they were",
    ),
    Base("albert", "nbits"): ("wiring/another activation before a product",),  # one of 3 calls is rounded
    Base("resnet", "dynamic"): (
        "wiring/activation reversed along its channels",
        "wiring/layer applied twice",
    ),
    Base("distilbert", "qdq"): tuple(name for name in FAULTS if name.startswith("quantizers/")),
}


@pytest.mark.parametrize(
    "base",
    [
        pytest.param(base, marks=makes_files, id=base.name)
        for base in sampled(SAMPLE, [BERT, Base("albert", "nbits"), Base("distilbert", "qdq")])
    ],
)
def test_a_fault_is_caught_at_its_module_with_its_cause_and_an_honest_file_is_the_same(
    honest: Path, base: Base
) -> None:
    assert make_base(honest, base) == ""

    clean, *cases = run_isolated(honest, base, (CLEAN, *SAMPLE[base]), seed=0)

    assert clean.status == "same"
    odd = [
        (each.name, each.status, each.reason)
        for each in cases
        if each.status not in ("detected", "unchanged")
    ]
    assert not odd
    caught = [each for each in cases if each.status == "detected"]
    assert len(caught) >= len(cases) - 1
    assert not [(each.name, each.module, each.modules) for each in caught if not each.is_placed]
    assert not [(each.name, each.reason) for each in caught if not each.is_explained]


ELSEWHERE = (
    (
        "modernbert/fp16",
        "folded-factor/-exp(w) of one weight",
        1,
    ),  # an epsilon may be rounded before it
    ("vit/fp16", "wiring/a norm's gain read as its bias", 0),  # another norm resembles this one
    ("deberta-v2/fp16", "attributes/output clipped", 7),  # a root is rounded before it, without effect
    ("gemma/fp16", "unread/stack ended early", 7),  # the first omitted module has no weights
    ("albert-masked-lm/nbits", "content/noise on one tensor", 7),  # in one of three calls
    ("bart/int8", "forged/name a parameter's with _1", 11),  # the planted tensor has another module's name
    ("net/dynamic", "tables/outputs permuted by a stored order", 11),  # values before the output are right
    ("llama/nbits", "planted/into QLinearMatMul's scales", 7),  # only the float twin has the product
)
"""File, fault and seed of cases that were once reported at another module."""


@pytest.mark.parametrize(
    ("file", "kind", "seed"),
    [
        pytest.param(*each, marks=makes_files, id=each[0])
        for each in sampled(ELSEWHERE, [each for each in ELSEWHERE if each[0] == "net/dynamic"])
    ],
)
def test_a_fault_that_something_else_is_near_is_reported_where_it_is(
    honest: Path, file: str, kind: str, seed: int
) -> None:
    base = Base(*file.split("/"))
    assert make_base(honest, base) == ""

    (case,) = run_isolated(honest, base, (kind,), seed=seed)

    assert (case.status, case.is_placed, case.is_explained) == ("detected", True, True), (
        case.module,
        case.reason,
    )


def test_a_module_is_right_within_or_around_the_fault() -> None:
    fault = frozenset({"encoder.layer.1.output"})

    assert is_right("encoder.layer.1.output", fault)
    assert is_right("encoder.layer.1.output.dense", fault)
    assert is_right("encoder.layer.1", fault)
    assert not is_right("encoder.layer.10.output", fault)
    assert not is_right("[root]", fault)


def test_a_cause_is_that_of_the_fault_or_none() -> None:
    scale = "quantizers/an activation's scale times 16"

    assert is_named("attributes/epsilon of every norm", "epsilon 0.1, and epsilon 1e-12", ("attribute",))
    assert not is_named("attributes/epsilon of every norm", "Relu, and Gelu in PyTorch", ("operator",))
    assert not is_named("attributes/epsilon of every norm", "epsilon", ())
    assert is_named(scale, "h is rounded to codes from -9 to 9", ("quantizer",))
    assert not is_named(scale, "Relu, and Gelu in PyTorch", ("operator",))


def test_the_table_counts_what_changes_an_output() -> None:
    cases = [
        Case(BERT, CLEAN, "same"),
        Case(
            BERT, "planted/a gate", "detected", "x: Mul", 0.1, "x", ("x",), is_placed=True, is_explained=True
        ),
        Case(BERT, "planted/bools", "detected", "y: Mul", 0.1, "y", ("x",)),
        Case(BERT, "planted/strings", "silent", "", 0.2),
        Case(BERT, "content/rows", "unchanged"),
    ]

    text, document = render_text(cases), render_markdown(cases)

    assert "2 of 3 faults are caught: 66.7 %." in text
    assert "1 are placed at the right module: 33.3 %." in text
    assert "0 of 1 clean files raise an alarm; 1 are the same." in text
    assert "| planted | 3 | 66.7 % | 33.3 % | 33.3 % |" in document
    assert "planted/strings: silent" in document
