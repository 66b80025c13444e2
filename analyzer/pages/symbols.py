"""A formula -> its expressions for readers: in the family's symbols, arranged, as text and as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping

from analyzer.documents.formula import FormulaDocument
from analyzer.formulas.record import FormulaReport
from analyzer.pages.page import Math, Prose
from analyzer.records import Frozen, field


class Symbols(Frozen):
    """Expressions on the page of a formula. A document has expressions over fields alone."""

    total: Prose
    terms: Mapping[str, Prose]
    parts: Mapping[str, Prose]
    """Expressions by `term/part`."""
    token_cache: Prose = ""
    source_cache: Prose = ""
    """Empty if there is no such cache."""
    letters: Mapping[str, Math] = field(default_factory=dict)
    """Symbols by the names of fields."""
    usual: Mapping[str, Math] = field(default_factory=dict)
    """Usual values of fields that have them in this config, as expressions in other fields."""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """Meanings of computed fields, in words."""
    tokens: int | None = None
    """Length of the sequence that the user asked for, in tokens."""


def symbols_of(report: FormulaReport) -> Symbols:
    """Return the expressions of a report, with each field of usual value written in terms of other fields."""
    from analyzer.formulas.algebra import Algebra, Arranged, to_latex  # imports sympy

    def math(layout: Arranged | None) -> Prose:
        return "" if layout is None else (Math(layout.text, layout.latex),)

    formula = report.formula
    algebra = Algebra(formula)
    parts: dict[str, Prose] = {}
    for part in formula.parts:
        layout = algebra.part(part)
        parts[part.key] = _arithmetic(part.shown or "") if layout is None else math(layout)
    cache = formula.cache
    usual = {
        each.name: algebra.expression(each.usual)
        for each in formula.fields
        if each.usual is not None and type(each.value) is int
    }
    return Symbols(
        total=math(algebra.total(usual=True)),
        terms={term.name: math(algebra.term(term, usual=True)) for term in formula.terms},
        parts=parts,
        token_cache="" if cache is None else math(algebra.token_cache(cache)),
        source_cache="" if cache is None else math(algebra.source_cache(cache)),
        letters={
            each.name: Math(each.symbol, to_latex(each.symbol))
            for each in formula.fields
            if each.symbol is not None
        },
        usual={name: Math(layout.text, layout.latex) for name, layout in usual.items()},
        meanings={each.name: each.meaning for each in formula.fields if each.meaning},
        tokens=report.tokens,
    )


def _arithmetic(text: str) -> Prose:
    """Return the expression of a derived part: as math if it has only numbers, else as text."""
    return (Math(text, text.replace("*", r" \cdot ")),) if re.fullmatch(r"[\d*+() ]+", text) else text


def symbols_in(document: FormulaDocument) -> Symbols:
    """Return the expressions of a document as they stand there, with symbols for fields that have one."""
    letters = {each.field: each.symbol for each in document.fields if each.symbol is not None}
    names = "|".join(sorted(map(re.escape, letters), key=len, reverse=True))
    form = re.compile(rf"(?<![\w.])({names})(?!\w)") if names else None

    def math(expression: str | None) -> str:
        return form.sub(lambda found: letters[found[1]], expression or "") if form else expression or ""

    cache = document.cache
    return Symbols(
        total=math(document.expression),
        terms={
            term.term: math(term.expression)
            for term in document.terms
            if document.kind == "closed-form" or len(term.parts) == 1
        },
        parts={
            f"{term.term}/{part.part}": math(part.expression)
            for term in document.terms
            for part in term.parts
        },
        token_cache=math(cache.expression) if cache else "",
        source_cache=math(cache.source_expression) if cache else "",
        letters={name: Math(letter, letter) for name, letter in letters.items()},
        tokens=cache.tokens if cache else None,
    )
