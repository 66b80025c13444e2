"""SurveyReport -> blocks: a row for each model, what was found, and what cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from analyzer.render.markdown.parts import columns, cut, name, others, text_row
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Block, Code, Fold, Heading, Items, Line, Row, Strong, Table
from analyzer.render.sentences.findings import worst_first
from analyzer.render.sentences.survey import common_folder, count_findings, main_dtype, name_rows
from analyzer.report import SurveyReport
from analyzer.survey import Survey
from analyzer.units import format_bytes, format_count, format_many

__all__ = ["show_survey"]


def show_survey(report: SurveyReport, options: RenderOptions) -> Iterator[Block]:
    """From top to bottom; the first line answers."""
    survey, rows = report.survey, options.rows
    unreadable = f", {format_count(len(survey.unreadable))} unreadable" if survey.unreadable else ""
    total = f"{format_many(survey.parameters, 'parameter')}, {format_bytes(survey.file_nbytes)}"
    yield Heading((f"{format_many(len(survey.rows), 'model')}{unreadable}: {total}",))
    folder = common_folder(survey)
    if folder:
        yield Line(("In ", Code(folder)))
    if survey.unreadable:
        shown, left = cut(survey.unreadable, rows)
        sentences = [(Strong("unreadable"), f": {row.error}") for row in shown]
        yield Items((*sentences, *([(others(left),)] if left else [])))
    if survey.readable:
        yield _models(survey, folder, rows)
    if survey.findings:
        yield Fold(f"Findings: {count_findings(survey)}", (_findings(survey, rows),))


def _models(survey: Survey, folder: str, limit: int) -> Table:
    *models, (total, whole) = name_rows(survey, folder, limit)
    rows = [_model(called, part) for called, part in models]
    rows.append(_model(total, whole, is_total=True))
    titles = ("model", "dtype", "findings", "parameters", "stored", "on disk")
    return Table(columns(*titles, words=3), tuple(rows))


def _model(called: str, part: Survey, *, is_total: bool = False) -> Row:
    counts = (
        format_count(part.parameters),
        format_count(part.stored_elements),
        format_bytes(part.file_nbytes),
    )
    title = called if is_total else name(called)
    return text_row(title, main_dtype(part), count_findings(part), *counts, is_total=is_total)


def _findings(survey: Survey, limit: int) -> Table:
    """Of how many models each is told; JSON has the sentences."""
    models = Counter(
        kind for row in survey.readable for kind in {(found.severity, found.id) for found in row.findings}
    )
    ordered = worst_first(sorted(models, key=lambda kind: kind[1]), lambda kind: kind[0])
    shown, left = cut(ordered, limit)
    rows = [
        text_row(Code(kind), severity.value, format_count(models[severity, kind])) for severity, kind in shown
    ]
    if left:
        rows.append(text_row(others(left), "", ""))
    return Table(columns("finding", "severity", "models", words=2), tuple(rows))
