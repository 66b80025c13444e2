"""A survey of many models -> a table with a row for each, what was found, and what cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.render.options import RenderOptions
from analyzer.render.sentences.findings import WORST_FIRST, worst_first
from analyzer.render.sentences.survey import common_folder, count_findings, main_dtype, name_rows
from analyzer.render.text.tables import make_table, show_name
from analyzer.report import SurveyReport
from analyzer.survey import Survey
from analyzer.units import (
    format_bytes,
    format_count,
    format_many,
    format_others,
    printable,
    short_count,
    shorten,
)

__all__ = ["show_survey"]

_GAP = 3
"""Between two columns."""
_NAME_ROOM = 24
"""A model's name should have this many columns before anything else has room to spare."""


def show_survey(report: SurveyReport, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text, from top to bottom."""
    survey = report.survey
    folder = common_folder(survey)
    parts: list[RenderableType] = [_head(survey, folder)]
    if survey.readable:
        parts += [_totals(survey), Text(""), _table(survey, folder, options)]
    if survey.findings:
        parts += [Text(""), _findings(survey)]
    shown = survey.unreadable[: options.rows] if options.rows else survey.unreadable
    for row in shown:
        parts += [Text(""), Text("unreadable: ", style="bold").append(printable(row.error), style="not bold")]
    if left := len(survey.unreadable) - len(shown):
        parts += [Text(""), Text(f"{format_others(left)} unreadable")]
    return parts


def _head(survey: Survey, folder: str) -> Text:
    text = format_many(len(survey.rows), "model")
    if survey.unreadable:
        text += f", {format_count(len(survey.unreadable))} unreadable"
    return show_name(f"{folder}: {text}" if folder else text)


def _totals(survey: Survey) -> Text:
    short = f" ({short_count(survey.parameters)})" if survey.parameters >= 1000 else ""
    text = Text(f"{format_many(survey.parameters, 'parameter')}{short}", style="bold")
    return text.append(f", {format_many(survey.stored_elements, 'element')} stored", style="not bold")


def _table(survey: Survey, folder: str, options: RenderOptions) -> Table:
    named = name_rows(survey, folder, options.rows)
    for layout in _LAYOUTS:  # the fullest that leaves room for names
        cells = [[cell(part) for cell in layout.values()] for _, part in named]
        widths = [max(map(len, column)) for column in zip(layout, *cells, strict=True)]
        room = options.width - sum(widths) - _GAP * len(widths)
        if room >= _NAME_ROOM:
            break
    table = make_table("model", *layout)
    table.columns[-1].justify = "left"
    for (name, _), row in zip(named, cells, strict=True):
        is_total = row is cells[-1]
        if is_total:
            table.add_section()
        # Two lines for a name that is too long for one; no more, as a thousand models may have such names.
        table.add_row(show_name(shorten(printable(name), 2 * room)), *row, style="bold" if is_total else "")
    return table


def _findings(survey: Survey) -> Table:
    """What the letters and counts of the models' rows are about; JSON has each model's sentences."""
    models = Counter(
        kind for row in survey.readable for kind in {(found.severity, found.id) for found in row.findings}
    )
    table = make_table("finding", "severity", "models")
    for severity, name in worst_first(sorted(models, key=lambda kind: kind[1]), lambda kind: kind[0]):
        table.add_row(name, severity.value, format_count(models[severity, name]))
    return table


def _count_findings_briefly(survey: Survey) -> str:
    counts = Counter(finding.severity for finding in survey.findings)
    return " ".join(f"{counts[kind]}{kind.value[0].upper()}" for kind in WORST_FIRST if counts[kind]) or "-"


_PARAMETERS = {"parameters": lambda survey: format_count(survey.parameters)}
_STORED = {"stored": lambda survey: format_count(survey.stored_elements)}
_ON_DISK = {"on disk": lambda survey: format_bytes(survey.file_nbytes), "dtype": main_dtype}
_LAYOUTS: tuple[dict[str, Callable[[Survey], str]], ...] = (
    {**_PARAMETERS, **_STORED, **_ON_DISK, "findings": count_findings},
    {**_PARAMETERS, **_STORED, **_ON_DISK, "findings": _count_findings_briefly},
    {**_PARAMETERS, **_ON_DISK, "findings": _count_findings_briefly},
)
"""The columns after the name, the fullest choice first."""
