"""FormulaReport -> its JSON document: expressions that Python evaluates with the fields, and exact numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from analyzer.documents import formula as formula_records
from analyzer.formats.json.parts import Fields, head, utf8
from analyzer.formulas.algebra import Algebra, Arranged
from analyzer.formulas.language import Value
from analyzer.formulas.record import Checked, FieldValue, FormulaReport, Side
from analyzer.formulas.rows import PartRow, TermRow, cache_bytes, make_rows, weigh
from analyzer.records import replace


def document_formula(report: FormulaReport) -> formula_records.FormulaDocument:
    """Return the document of `formula`; every number of a symbolic one is null."""
    has_numbers = not report.is_symbolic
    if report.is_symbolic:
        report = replace(report, checked=Checked(report.formula), before=None)
    formula, checked = (report.formula, report.checked)
    algebra, rows = (Algebra(formula), make_rows(report))
    side = checked.side
    return formula_records.FormulaDocument(
        **head(report.stamp),
        source=utf8(formula.source),
        kind=formula.kind,
        family=utf8(formula.family),
        class_=utf8(formula.class_name),
        total=formula.total if has_numbers else None,
        active=formula.active if has_numbers else None,
        expression=_python(algebra.total()),
        active_expression=_python(algebra.active()),
        actual=None if side is None else side.total,
        difference=checked.difference,
        census=None if checked.census is None else formula_records.Census(**_side(checked.census)),
        model=None if checked.model is None else formula_records.FormulaModel(**_side(checked.model)),
        terms=[_term(row, algebra, has_numbers=has_numbers) for row in rows if row.is_compared],
        fields=[_field(field, has_numbers=has_numbers) for field in formula.fields],
        reasons=[
            formula_records.Reason(
                part=utf8(reason.part),
                group=utf8(reason.group),
                elements=reason.elements,
                sentence=utf8(reason.sentence),
                certainty=reason.certainty,
            )
            for reason in checked.reasons
        ],
        unmatched=_unmatched(checked.census, checked.model),
        memory=_memory(report),
        cache=_cache(report, algebra),
        what_if=_what_if(report, rows),
        notes=[utf8(note) for note in formula.notes],
    )


def _python(layout: Arranged | None) -> str | None:
    return None if layout is None else layout.python


def _side(side: Side) -> Fields:
    return {
        "name": utf8(side.name),
        "total": side.total,
        "matched_by": side.matched_by,
        "errors": [utf8(each) for each in side.errors],
    }


def _unmatched(*sides: Side | None) -> list[formula_records.Unmatched]:
    return [
        formula_records.Unmatched(side=side.kind, name=utf8(name), elements=elements)
        for side in sides
        if side is not None
        for name, elements in sorted(side.unmatched.items())
    ]


def _term(row: TermRow, algebra: Algebra, *, has_numbers: bool) -> formula_records.FormulaTerm:
    count = row.count
    layout = None if count is None else algebra.term(count)
    shown = " + ".join(part.count.shown for part in row.parts if part.count is not None and part.count.shown)
    return formula_records.FormulaTerm(
        term=utf8(row.name),
        expression=_python(layout) or shown or "0",
        value=row.value if has_numbers else None,
        active=_number(0 if count is None else count.active, has_numbers),
        uses=_number(1 if count is None else count.uses, has_numbers),
        census=row.census,
        actual=row.actual,
        difference=_difference(row.actual, row.value),
        parts=[_part(part, algebra, has_numbers=has_numbers) for part in row.parts],
    )


def _part(row: PartRow, algebra: Algebra, *, has_numbers: bool) -> formula_records.FormulaPart:
    count = row.count
    layout = None if count is None else algebra.part(count)
    numbers = (
        (0, 0, 0, 0) if count is None else (count.each, count.times, count.vector_elements, count.active)
    )
    each, times, vectors, active = (_number(number, has_numbers) for number in numbers)
    return formula_records.FormulaPart(
        part=utf8(row.name),
        expression=_python(layout) or (count.shown if count is not None else None) or "0",
        each=each,
        times=times,
        value=_number(row.value, has_numbers),
        vectors=vectors,
        active=active,
        scope=None if count is None else utf8(count.scope),
        source=None if count is None else utf8(count.source),
        census=row.census,
        actual=row.actual,
        difference=_difference(row.actual, row.value),
    )


def _number(number: int, has_numbers: bool) -> int | None:
    return number if has_numbers else None


def _difference(actual: int | None, value: int) -> int | None:
    return None if actual is None else actual - value


def _field(field: FieldValue, *, has_numbers: bool) -> formula_records.FormulaField:
    is_known = has_numbers or field.symbol is None
    return formula_records.FormulaField(
        field=field.name,
        symbol=field.symbol,
        value=_plain(field.value) if is_known else None,
        from_=field.origin,
        expression=field.expression,
    )


def _plain(value: Value) -> Any:
    """Return a count as it is, and any other value, which a config may have by mistake, as text."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, int) else utf8(str(value))


def _memory(report: FormulaReport) -> formula_records.Memory | None:
    if report.is_symbolic:
        return None
    return formula_records.Memory(
        block=report.block,
        precisions=[
            formula_records.Precision(
                precision=each.precision.label,
                bytes=each.nbytes,
                terms=[
                    formula_records.TermValue(term=utf8(name), bytes=nbytes) for name, nbytes in each.terms
                ],
            )
            for each in weigh(report.formula, report.block)
        ],
    )


def _cache(report: FormulaReport, algebra: Algebra) -> formula_records.Cache | None:
    cache = report.formula.cache
    if cache is None:
        return None
    expressions: Fields = {
        "expression": algebra.token_cache(cache).python,
        "source_expression": _python(algebra.source_cache(cache)),
    }
    nbytes = cache_bytes(cache, report.tokens)
    is_bounded = report.tokens is not None or cache.context is not None
    numbers: Fields = {
        "token_elements": cache.token,
        "source_token_elements": cache.source_token,
        "token_bytes": nbytes.token,
        "source_token_bytes": nbytes.source_token,
        "window": cache.window,
        "context": cache.context,
        "tokens": nbytes.tokens if is_bounded else None,
        "kept": nbytes.kept if is_bounded else None,
        "source_tokens": nbytes.source_tokens,
        "bytes": nbytes.nbytes if is_bounded else None,
    }
    return formula_records.Cache(**expressions, **(dict.fromkeys(numbers) if report.is_symbolic else numbers))


def _what_if(report: FormulaReport, rows: Iterable[TermRow]) -> formula_records.WhatIf | None:
    before = report.before
    if before is None:
        return None
    old_values, new_values = before.values, report.formula.values
    return formula_records.WhatIf(
        set=[
            formula_records.FieldChange(field=name, before=_plain(old_values.get(name)), after=_plain(value))
            for name, value in new_values.items()
            if old_values.get(name) != value
        ],
        total=before.total,
        difference=report.formula.total - before.total,
        terms=[
            formula_records.TermChange(
                term=utf8(row.name),
                **_change(row),
                parts=[
                    formula_records.PartChange(part=utf8(part.name), **_change(part)) for part in row.parts
                ],
            )
            for row in rows
            if row.count is not None or row.before
        ],
    )


def _change(row: TermRow | PartRow) -> Fields:
    before = row.before or 0
    return {"before": before, "after": row.value, "difference": row.value - before}
