"""A survey of many models -> a table with a row for each, what was found, and what cannot be read."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.ledger import Severity
from analyzer.render.options import RenderOptions
from analyzer.render.text.tables import make_table, show_name
from analyzer.survey import Survey
from analyzer.units import (
    format_bytes,
    format_count,
    printable,
    short_count,
    shorten,
)

__all__ = ["common_folder", "count_findings", "main_dtype", "name_rows", "show_survey"]

_GAP = 3
"""Between two columns."""
_NAME_ROOM = 24
"""A model's name should have this many columns before anything else has room to spare."""


def show_survey(survey: Survey, options: RenderOptions) -> list[RenderableType]:
    """The parts of the text, from top to bottom."""
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
        parts += [Text(""), Text(f"[{format_count(left)} others] unreadable")]
    return parts


def _head(survey: Survey, folder: str) -> Text:
    text = _plural(len(survey.rows), "model")
    if survey.unreadable:
        text += f", {format_count(len(survey.unreadable))} unreadable"
    return show_name(f"{folder}: {text}" if folder else text)


def _totals(survey: Survey) -> Text:
    short = f" ({short_count(survey.parameters)})" if survey.parameters >= 1000 else ""
    text = Text(f"{format_count(survey.parameters)} parameters{short}", style="bold")
    return text.append(f", {format_count(survey.stored_elements)} elements stored", style="not bold")


def _plural(count: int, noun: str) -> str:
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"


def common_folder(survey: Survey) -> str:
    """What all names begin with, which the table then leaves out; "" where they have no folder in common."""
    folders = [row.path.split("/")[:-1] for row in survey.rows]
    together = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
    return "/".join(names[0] for names in together)


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


def name_rows(survey: Survey, folder: str, rows: int) -> list[tuple[str, Survey]]:
    """The largest models in their own order, the others together, all together: each with its name."""
    models = survey.readable
    order = sorted(range(len(models)), key=lambda i: (-models[i].parameters, -models[i].file_nbytes, i))
    shown = sorted(order[: rows or None])
    named = [(models[i].path.removeprefix(f"{folder}/"), Survey((models[i],))) for i in shown]
    if left := [models[i] for i in order[len(shown) :]]:
        named.append((f"[{format_count(len(left))} others]", Survey(tuple(left))))
    return [*named, ("total", survey)]


def _findings(survey: Survey) -> Table:
    """What the letters and counts of the models' rows are about; JSON has each model's sentences."""
    models = Counter(
        kind for row in survey.readable for kind in {(found.severity, found.id) for found in row.findings}
    )
    table = make_table("finding", "severity", "models")
    for severity, name in sorted(models, key=lambda kind: (_WORST_FIRST.index(kind[0]), kind[1])):
        table.add_row(name, severity.value, format_count(models[severity, name]))
    return table


def count_findings(survey: Survey) -> str:
    """How many of each severity, the worst first; "-" where there are none."""
    counts = Counter(finding.severity for finding in survey.findings)
    return ", ".join(_plural(counts[kind], kind.value) for kind in _WORST_FIRST if counts[kind]) or "-"


def _count_findings_briefly(survey: Survey) -> str:
    counts = Counter(finding.severity for finding in survey.findings)
    return " ".join(f"{counts[kind]}{kind.value[0].upper()}" for kind in _WORST_FIRST if counts[kind]) or "-"


def main_dtype(survey: Survey) -> str:
    """The element type of most parameters, and how many others there are."""
    parameters: Counter[str] = Counter()
    for row in survey.readable:
        parameters.update({group.name: group.parameters for group in row.dtypes if group.parameters})
    first, *others = sorted(parameters, key=lambda name: (-parameters[name], name)) or ["-"]
    return f"{first} +{len(others)}" if others else first


_WORST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
_PARAMETERS = {"parameters": lambda survey: format_count(survey.parameters)}
_STORED = {"stored": lambda survey: format_count(survey.stored_elements)}
_ON_DISK = {"on disk": lambda survey: format_bytes(survey.file_nbytes), "dtype": main_dtype}
_LAYOUTS: tuple[dict[str, Callable[[Survey], str]], ...] = (
    {**_PARAMETERS, **_STORED, **_ON_DISK, "findings": count_findings},
    {**_PARAMETERS, **_STORED, **_ON_DISK, "findings": _count_findings_briefly},
    {**_PARAMETERS, **_ON_DISK, "findings": _count_findings_briefly},
)
"""The columns after the name, the fullest choice first."""
