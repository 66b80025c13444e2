"""A sample of the rewrite suite stays balanced, except for known failures."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from samples import WHOLE

from tools.rewrites.cases import Case, run_isolated
from tools.rewrites.report import render_markdown, render_text
from tools.rewrites.rewriting import REWRITES
from tools.suite.bases import Base, make_base

NEEDED = ("torch", "transformers", "onnxscript", "onnxruntime", "onnxslim")  # each in another process
makes_files = [
    pytest.mark.export,
    pytest.mark.time,
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}"),
]

BASES = (Base("bert-masked-lm", "dynamic"), Base("bert-masked-lm", "int8"), Base("net", "legacy"))
EACH = len(BASES) if WHOLE else 2 * len(BASES)
SAMPLE = {base: [*REWRITES][place::EACH] for place, base in enumerate(BASES)}

RED: dict[str, tuple[str, ...]] = {}
"""Cases that do not balance yet, by reason."""


@pytest.mark.parametrize("base", [pytest.param(base, marks=makes_files, id=base.name) for base in BASES])
def test_what_is_rewritten_honestly_balances(honest: Path, base: Base) -> None:
    assert make_base(honest, base) == ""
    known = {name for names in RED.values() for name in names if name.startswith(f"{base.name}/")}

    cases = run_isolated(honest, base, SAMPLE[base], seed=0)

    assert not [case for case in cases if case.status == "failed"]
    assert {case.name for case in cases if case.status == "red"} == known
    assert sum(case.counts for case in cases) > len(cases) / 2


def test_the_list_is_long_enough() -> None:
    assert len(REWRITES) >= 30


def test_the_tables_say_what_is_red_of_what_computes_the_same() -> None:
    base = BASES[0]
    cases = [
        Case(base, "external data", "balanced"),
        Case(base, "nodes without names", "red", "64 unexplained: val_1"),
        Case(base, "float16", "does not run", "Fail: no"),
    ]

    text, document = render_text(cases), render_markdown(cases)

    assert "1 of 2 cases are red: 50.0 %." in text
    assert "bert-masked-lm/dynamic/nodes without names: 64 unexplained: val_1" in text
    assert "| nodes without names | 1/1 | 1/1 |" in document
    assert "64 unexplained: val\\_1" in document
    assert "| float16 | does not run | 1 | Fail: no |" in document
