"""FormulaReport -> sections: the tables and lines that its text, Markdown and LaTeX have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence

from analyzer.formulas.algebra import Algebra, to_latex
from analyzer.formulas.language import Value
from analyzer.formulas.record import FieldOrigin, FieldValue, Formula, FormulaReport
from analyzer.formulas.rows import PartRow, TermRow, make_rows
from analyzer.render.formula.checked import check_section, what_if_section
from analyzer.render.formula.math import show_math
from analyzer.render.formula.memory import cache_section, memory_section
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Cell, Code, Column, Line, Math, Row, Section, Table
from analyzer.units import format_count, format_many, format_others, format_share, short_count

__all__ = ["make_sections"]


def make_sections(report: FormulaReport, options: RenderOptions) -> list[Section]:
    """From top to bottom; what there is nothing to say of is left out."""
    algebra, rows = Algebra(report.formula), make_rows(report)
    counted = [row.counted for row in rows if row.count is not None]
    sections = [
        _head(report),
        check_section(report, rows, options),
        _legend(report, algebra, options),
        _terms(report, counted, algebra, options),
        _uses(report, counted),
        what_if_section(report, rows, options),
        *(() if _is_of_a_file(report) else (memory_section(report, options), cache_section(report, algebra))),
        _sources(counted, options),
    ]
    return [section for section in sections if section]


def _is_of_a_file(report: FormulaReport) -> bool:
    """Whether the question is what a file holds, of which the formula's own bytes would say nothing."""
    return report.checked.model is not None and report.tokens is None


def _head(report: FormulaReport) -> Section:
    formula = report.formula
    names = ", ".join(dict.fromkeys(name for name in (formula.family, formula.class_name) if name))
    total = "" if report.is_symbolic else f", {_many(formula.total, ' parameters')}"
    lines = [Line((Code(formula.source), f": {names}{total}"), is_strong=True)]
    if formula.active != formula.total and not report.is_symbolic:
        share = format_share(formula.active, formula.total)
        told = (
            f"{_many(formula.active, ' of them')}, {share}, are active: a token uses some of the experts only"
        )
        lines.append(Line((told,)))
    return (*lines, *(Line((note,)) for note in formula.notes))


def _many(number: int, what: str) -> str:
    short = f" ({short_count(number)})" if number >= 1000 else ""
    return f"{format_count(number)}{what}{short}"


# the fields


def _legend(report: FormulaReport, algebra: Algebra, options: RenderOptions) -> Section:
    """What the symbols are: those that the expressions have, and with --verbose every field that decides something."""
    formula = report.formula
    before = {} if report.before is None else report.before.values
    used = _used(formula)
    shown = [
        each
        for each in formula.fields
        if options.verbose or each.name in used or _is_changed(each, before) or _is_decisive(each)
    ]
    if not shown:
        return ()
    has_values = not report.is_symbolic
    values = [Column("value", is_number=True)] if has_values else []
    rows: list[Row] = []
    for each in shown:
        value: list[Cell] = [(_value(each, before),)] if has_values else []
        rows.append(Row((_letter(each), (Code(each.name),), *value, _origin(each, algebra))))
    return (Table((Column("symbol"), Column("field"), *values, Column("")), tuple(rows)),)


def _used(formula: Formula) -> set[str]:
    """The fields that expressions have, and those that these are computed from."""
    expressions = [
        each
        for part in formula.parts
        for each in (part.expression, part.times_expression, part.active_expression)
    ]
    if formula.cache is not None:
        expressions += [formula.cache.token_expression, formula.cache.source_token_expression]
    used = {name for each in expressions if each is not None for name in each.names}
    for field in reversed(formula.fields):
        if field.name in used and field.expression is not None:
            used.update(re.findall(r"\w+", field.expression))
    return used


def _is_changed(field: FieldValue, before: dict[str, Value]) -> bool:
    return field.name in before and before[field.name] != field.value


def _is_decisive(field: FieldValue) -> bool:
    """Whether it is a condition that somebody has decided here."""
    return field.symbol is None and field.origin is FieldOrigin.SET


def _letter(field: FieldValue) -> Cell:
    return () if field.symbol is None else (Math(field.symbol, to_latex(field.symbol)),)


def _value(field: FieldValue, before: dict[str, Value]) -> str:
    if _is_changed(field, before):
        return f"{_format_value(before[field.name])} -> {_format_value(field.value)}"
    return _format_value(field.value)


def _format_value(value: Value) -> str:
    """A field's value as a person writes it.

    >>> (
    ...     _format_value(30_522),
    ...     _format_value(True),
    ...     _format_value((16, 8)),
    ...     _format_value(None),
    ...     _format_value("gelu"),
    ... )
    ('30,522', 'true', '16 x 8', 'none', 'gelu')
    """
    if isinstance(value, tuple):
        return " x ".join(map(_format_value, value)) or "none"
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    return format_count(value) if isinstance(value, int) else str(value)


def _origin(field: FieldValue, algebra: Algebra) -> Cell:
    """Where the value is from, where that is not the config; and what it usually is."""
    pieces: list[Cell] = []
    if field.usual is not None and type(field.value) is int:
        pieces.append(("= ", show_math(algebra.expression(field.usual))))
    match field.origin:
        case FieldOrigin.COMPUTED if pieces:
            pass  # from what it usually is
        case FieldOrigin.DEFAULT:
            pieces.append(("default",))
        case FieldOrigin.CLASS:
            pieces.append(("the class",))
        case FieldOrigin.SET:
            pieces.append(("--set",))
        case FieldOrigin.COMPUTED if field.expression:
            pieces.append((f"{field.meaning} = " if field.meaning else "= ", Code(field.expression)))
        case FieldOrigin.COMPUTED:
            pieces.append(("computed",))
    return tuple(piece for number, each in enumerate(pieces) for piece in ((", ", *each) if number else each))


# the terms


def _terms(
    report: FormulaReport, rows: Sequence[TermRow], algebra: Algebra, options: RenderOptions
) -> Section:
    """Every term with its parts, their expressions and what these come to."""
    has_active = report.formula.active != report.formula.total
    titles = [] if report.is_symbolic else ["value", *(["active"] if has_active else [])]
    columns = (Column("term"), Column("expression"), *(Column(title, is_number=True) for title in titles))

    def make_row(
        cells: tuple[Cell, Cell], value: int, active: int, level: int = 0, *, total: bool = False
    ) -> Row:
        numbers = [(format_count(number),) for number in (value, active)[: len(titles)]]
        return Row((*cells, *numbers), level, total)

    made: list[Row] = []
    shown = rows[: options.rows] if options.rows else rows
    budget = options.rows or None
    for row in shown:
        made.append(make_row(((row.name,), _term_expression(row, algebra)), *_sums(row.parts)))
        parts = () if row.is_alone else row.parts
        seen = parts if budget is None else parts[:budget]
        made += [
            make_row(((part.name,), _part_expression(part, algebra)), *_sums([part]), 1) for part in seen
        ]
        if left := parts[len(seen) :] if seen else ():
            made.append(make_row(((format_others(len(left)),), ()), *_sums(left), 1))
        budget = None if budget is None else budget - len(seen)
    if left_terms := rows[len(shown) :]:
        others = [part for row in left_terms for part in row.parts]
        made.append(make_row(((format_others(len(left_terms)),), ()), *_sums(others)))
    formula, total = report.formula, algebra.total(usual=True)
    cells = (("total",), () if total is None else (show_math(total),))
    made.append(make_row(cells, formula.total, formula.active, total=True))
    return (Table(columns, tuple(made)),)


def _sums(parts: Sequence[PartRow]) -> tuple[int, int]:
    counts = [part.count for part in parts if part.count is not None]
    return sum(count.value for count in counts), sum(count.active for count in counts)


def _term_expression(row: TermRow, algebra: Algebra) -> Cell:
    if row.count is None:
        return ()
    layout = algebra.term(row.count, usual=True)
    return () if layout is None else (show_math(layout),)


def _part_expression(row: PartRow, algebra: Algebra) -> Cell:
    if row.count is None:
        return ()
    layout = algebra.part(row.count)
    return (_arithmetic(row.count.shown or "") if layout is None else show_math(layout),)


def _arithmetic(text: str) -> Math | str:
    """The numbers of a derived part."""
    return Math(text, text.replace("*", r" \cdot ")) if re.fullmatch(r"[\d*+() ]+", text) else text


def _uses(report: FormulaReport, rows: Sequence[TermRow]) -> Section:
    """What is applied several times, and counts once."""
    if report.is_symbolic:
        return ()
    return tuple(
        Line(
            (
                f"{row.name}: each is applied {format_many(row.count.uses, 'time')} and counts once; "
                f"{format_count(row.value * row.count.uses)} if each use had its own",
            )
        )
        for row in rows
        if row.count is not None and row.count.uses > 1
    )


def _sources(rows: Sequence[TermRow], options: RenderOptions) -> Section:
    """Where each part's expression is from."""
    if not options.verbose:
        return ()
    parts = [part.count for row in rows for part in row.parts if part.count is not None]
    shown = parts[: options.rows or None]
    made = [Row(((part.name,), (part.source,))) for part in shown]
    if left := len(parts) - len(shown):
        made.append(Row(((format_others(left),), ())))
    return (Table((Column("part"), Column("source")), tuple(made)),)
