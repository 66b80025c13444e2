"""Expressions are rearranged for reading and keep their value, for every class of every family."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import formula_reports
import pytest

from analyzer.errors import LedgerError
from analyzer.formulas.algebra import Algebra, Arranged, to_latex
from analyzer.formulas.family import family_names, load_family
from analyzer.formulas.language import FUNCTIONS, parse_expression
from analyzer.formulas.record import FieldOrigin, FieldValue, Formula, Kind, PartCount, TermCount


def formulas(key: str) -> list[Formula]:
    """Formulas of every class of a family, with the defaults of its config."""
    family = load_family(key)
    configs = [{"model_type": family.model_types[0], "architectures": [name]} for name in family.classes]
    return [formula_reports.count(config) for config in configs]


def evaluated(layout: Arranged | None, formula: Formula) -> Any:
    """Evaluate an expression with the fields in Python, as a reader of a report may."""
    assert layout is not None
    return eval(layout.python, {"__builtins__": {}, **FUNCTIONS}, dict(formula.values))


def field(name: str, symbol: str | None, value: Any, **more: Any) -> FieldValue:
    return FieldValue(name, symbol, value, FieldOrigin.CONFIG, **more)


FIELDS = (
    field("hidden_size", "D", 6),
    field("intermediate_size", "F", 24, usual=parse_expression("4*hidden_size")),
    field("layers", "N", 3),
    field("experts_layers", "N_e", 2),
    field("vocab_size", "V", 11),
    field("embedding_size", "E", 5),
    field("image", "I", (8, 12)),
    field("patch", "p", 2),
    field("no_letter", None, 7),
)


def made(*parts: tuple[str, str | None]) -> tuple[Algebra, Formula]:
    """Return the algebra of parts, each given by its count and its number of repeats."""
    values = {each.name: each.value for each in FIELDS}
    counted = []
    for number, (count, times) in enumerate(parts):
        each, repeated = parse_expression(count), None if times is None else parse_expression(times)
        counted.append(
            PartCount(
                name=f"part {number}",
                term="term",
                times=1 if repeated is None else repeated.count(values),
                each=each.count(values),
                vectors=0,
                active=0,
                source="",
                scope="",
                expression=each,
                times_expression=repeated,
            )
        )
    terms = (TermCount("term", tuple(counted)),)
    formula = Formula("here", Kind.CLOSED_FORM, "made", "Made", FIELDS, terms)
    return Algebra(formula), formula


def text(*parts: tuple[str, str | None], usual: bool = False) -> str:
    algebra, formula = made(*parts)
    layout = algebra.term(formula.terms[0], usual=usual)
    assert evaluated(layout, formula) == formula.total
    assert layout is not None
    return layout.text


# output


def test_bert_is_printed_as_it_is_written_in_papers() -> None:
    formula = formula_reports.bert()
    algebra = Algebra(formula)
    printed = {term.name: algebra.term(term, usual=True) for term in formula.terms}
    total = algebra.total(usual=True)
    assert total is not None
    assert {name: layout.text for name, layout in printed.items() if layout is not None} == {
        "embeddings": "D*(L + T + V + 2)",
        "blocks": "N*(12*D**2 + 13*D)",
        "masked LM head": "D**2 + 3*D + V",
    }
    assert total.text == "N*(12*D**2 + 13*D) + D*(D + L + T + V + 5) + V"
    assert total.latex == (r"N \left(12 D^{2} + 13 D\right) + D \left(D + L + T + V + 5\right) + V")


def test_a_field_is_kept_where_its_usual_value_is_not_requested() -> None:
    formula = formula_reports.bert()
    layout = Algebra(formula).term(formula.terms[1])
    assert layout is not None
    assert layout.text == "N*(4*D**2 + 2*D*F + 9*D + F)"
    assert layout.python == (
        "num_hidden_layers*(4*hidden_size**2 + 2*hidden_size*intermediate_size + 9*hidden_size + intermediate_size)"
    )


def test_a_field_of_another_value_than_the_usual_is_kept() -> None:
    formula = formula_reports.bert(changes={"intermediate_size": 1000})
    layout = Algebra(formula).term(formula.terms[1], usual=True)
    assert layout is not None
    assert layout.text == "N*(4*D**2 + 2*D*F + 9*D + F)"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("hidden_size", None)], "D"),
        ([("3", None)], "3"),
        ([("hidden_size - hidden_size", None)], "0"),
        ([("0", "layers")], "0"),
        ([("vocab_size*hidden_size", None), ("2*hidden_size", None)], "D*(V + 2)"),
        ([("2*vocab_size*hidden_size", None), ("2*hidden_size", None)], "2*D*(V + 1)"),
        ([("hidden_size**2 + hidden_size", None)], "D**2 + D"),
        ([("hidden_size**2", "layers"), ("hidden_size", "layers")], "N*(D**2 + D)"),
        ([("hidden_size**2", "layers"), ("hidden_size", None)], "N*D**2 + D"),
        ([("2*hidden_size", "3*layers")], "6*N*D"),
        ([("hidden_size", "2"), ("vocab_size", None)], "2*D + V"),
        ([("hidden_size", "layers - experts_layers")], "(N - N_e)*D"),
        ([("hidden_size", "layers"), ("hidden_size", "experts_layers")], "N*D + N_e*D"),
        ([("vocab_size - hidden_size", None)], "-D + V"),
        ([("embedding_size*(hidden_size + vocab_size + 2) + hidden_size", None)], "E*(D + V + 2) + D"),
        ([("no_letter*hidden_size", None)], "D*no_letter"),
        ([("height(image)*width(patch)", None)], "I_height*p"),
        ([("(height(image) // height(patch))*hidden_size", None)], "(height(I) // height(p))*D"),
        ([("hidden_size // 4 + max(hidden_size, 2)", None)], "(D // 4) + max(D, 2)"),
    ],
)
def test_sums_are_laid_out_for_reading(parts: list[tuple[str, str | None]], expected: str) -> None:
    assert text(*parts) == expected


def test_the_usual_value_is_put_in_everywhere() -> None:
    assert text(("2*hidden_size*intermediate_size + intermediate_size", "layers"), usual=True) == (
        "N*(8*D**2 + 4*D)"
    )


def test_latex_has_indices_and_quotients() -> None:
    algebra, formula = made(("hidden_size // 4 + 2*no_letter", "experts_layers"))
    layout = algebra.term(formula.terms[0])
    assert layout is not None
    assert layout.latex == (
        r"N_{e} \left(\left\lfloor \frac{D}{4} \right\rfloor + 2 \mathrm{no\_letter}\right)"
    )
    assert to_latex("C_in") == "C_{in}"


# properties of all formulas


@pytest.mark.parametrize("key", family_names())
def test_every_expression_evaluates_to_its_number(key: str) -> None:
    for formula in formulas(key):
        algebra = Algebra(formula)
        for usual in (False, True):
            assert evaluated(algebra.total(usual=usual), formula) == formula.total
            for term in formula.terms:
                assert evaluated(algebra.term(term, usual=usual), formula) == term.value
        assert evaluated(algebra.active(), formula) == formula.active
        for part in formula.parts:
            assert evaluated(algebra.part(part), formula) == part.value
        if formula.cache is not None:
            assert evaluated(algebra.token_cache(formula.cache), formula) == formula.cache.token
            source = algebra.source_cache(formula.cache)
            assert (0 if source is None else evaluated(source, formula)) == formula.cache.source_token


def test_an_expression_that_does_not_come_to_its_number_is_never_printed() -> None:
    algebra, formula = made(("hidden_size", None))
    (wrong,) = (replace(part, each=part.each + 1) for part in formula.parts)
    with pytest.raises(LedgerError, match="hidden_size comes to 6, and its parts to 7"):
        algebra.part(wrong)


def test_a_derived_part_has_no_algebra() -> None:
    formula = formula_reports.derived().formula
    algebra = Algebra(formula)
    assert algebra.total() is algebra.active() is algebra.part(formula.parts[0]) is None


def test_a_field_may_be_called_like_a_function_of_sympy() -> None:
    part = PartCount("p", "t", 1, 8, 0, 8, "", "", parse_expression("beta*E + I"))
    fields = (field("beta", "S", 2), field("E", "E", 3), field("I", "I", 2))
    formula = Formula("here", Kind.CLOSED_FORM, "made", "", fields, (TermCount("t", (part,)),))
    layout = Algebra(formula).part(part)
    assert layout is not None
    assert (layout.text, layout.python) == ("E*S + I", "E*beta + I")


@pytest.mark.child
def test_the_order_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "from analyzer.formulas.algebra import Algebra\n"
        "from analyzer.formulas.counting import count_config\n"
        "for name in ('qwen3_moe', 'whisper', 'albert', 'vit'):\n"
        "    formula = count_config({'model_type': name})\n"
        "    algebra = Algebra(formula)\n"
        "    print(algebra.total().python, *(algebra.term(term, usual=True).latex for term in formula.terms))\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(printed) == 1
    assert all(printed)
