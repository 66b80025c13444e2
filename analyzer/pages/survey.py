"""The page of `inspect` on many models: a row for each, the worst first, then findings by kind with their files."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from analyzer.account.findings.catalog import EXPLANATIONS
from analyzer.documents.inspect import Totals
from analyzer.documents.survey import SurveyDocument, Surveyed, SurveyFinding, Unreadable
from analyzer.pages.page import (
    Block,
    Cell,
    Column,
    Detail,
    Figure,
    Findings,
    Kind,
    Page,
    Problem,
    Row,
    Table,
    Tone,
)
from analyzer.pages.shared import abbreviate_count, chart_groups, count_severities, format_shares
from analyzer.records import replace
from analyzer.text import format_bytes, format_count, format_many


def describe_survey(document: SurveyDocument) -> Page:
    """Describe a survey: number and sums of models, each with its size and findings, then findings by kind."""
    bad = any(isinstance(row, Unreadable) or _errors(row) for row in document.models)
    return Page(
        kind="survey",
        question="What is in these files?",
        subject=_folder(document),
        answer=_answer(document),
        tone=Tone.BAD if bad else Tone.PLAIN,
        figures=tuple(_figures(document)),
        blocks=tuple(_blocks(document)),
    )


def _folder(document: SurveyDocument) -> str:
    """Return the common folder of all models, which the table leaves out; "" if they share none."""
    folders = [row.path.split("/")[:-1] for row in document.models]
    together = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
    return "/".join(names[0] for names in together)


def _errors(row: Surveyed) -> bool:
    return any(finding.severity == "error" for finding in row.findings)


def _answer(document: SurveyDocument) -> str:
    totals = document.totals
    counts = [format_many(totals.models, "model")]
    if unread := totals.models - totals.readable:
        counts.append(f"{format_count(unread)} unreadable")
    if wrong := sum(isinstance(row, Surveyed) and _errors(row) for row in document.models):
        counts.append(f"{format_count(wrong)} with errors")
    return ", ".join(counts)


def _figures(document: SurveyDocument) -> Iterator[Figure]:
    totals = document.totals
    yield Figure("Models", format_count(totals.models), f"{format_count(totals.readable)} readable")
    if not totals.readable:  # nothing is known, which is not 0
        return
    short = abbreviate_count(totals.parameters)
    many = format_many(totals.parameters, "parameter")
    yield Figure(
        "Parameters", format_count(totals.parameters), short, f"{many}{f' ({short})' if short else ''}"
    )
    size = format_bytes(totals.file_bytes)
    yield Figure("On disk", size, format_many(totals.file_bytes, "byte"), f"{size} on disk")
    stored = format_many(totals.stored_elements, "element")
    yield Figure(
        "Stored elements",
        format_count(totals.stored_elements),
        abbreviate_count(totals.stored_elements),
        f"{stored} stored",
    )


def _blocks(document: SurveyDocument) -> Iterator[Block]:
    models = _models(document)
    yield models
    if any(isinstance(row, Surveyed) for row in document.models):
        yield chart_groups(models, ("parameters", "on disk"))
    problems = tuple(_problems(document))
    if problems:
        yield Findings(problems, title="findings by kind", detail=Detail.SHOWN)
    yield _findings(document)


_HIDDEN = "in PyTorch"
"""Title of the column for PyTorch's count, which is shown if any file hides parameters."""

_COLUMNS = (
    Column("model", Kind.NAME),
    Column("parameters", Kind.COUNT, room=9),
    Column(_HIDDEN, room=8),
    Column("stored", Kind.COUNT, room=2),
    Column("tensors", Kind.COUNT, room=0),
    Column("nodes", Kind.COUNT, room=1),
    Column("on disk", Kind.BYTES, room=8),
    Column("precision", room=6),
    Column("findings", room=7),
)


def _models(document: SurveyDocument) -> Table:
    """Return the table of models: unreadable ones and ones with errors first, then the largest."""
    folder = _folder(document)
    totals = document.totals
    readable = [row for row in document.models if isinstance(row, Surveyed)]
    total: tuple[Cell, ...] = (
        "total",
        totals.parameters,
        _hidden([row.totals for row in readable]),
        totals.stored_elements,
        sum(row.totals.stored_tensors for row in readable),
        sum(row.nodes for row in readable),
        totals.file_bytes,
        "",
        count_severities(finding for row in readable for finding in row.findings),
    )
    rows = [_model(row, folder) for row in sorted(document.models, key=_rank)]
    kept = [
        place
        for place, column in enumerate(_COLUMNS)
        if column.title != _HIDDEN or any(row.cells[place] for row in rows)
    ]
    return Table(
        tuple(_COLUMNS[place] for place in kept),
        tuple(replace(row, cells=tuple(row.cells[place] for place in kept)) for row in rows),
        title="model",
        total=tuple(total[place] for place in kept) if readable else (),
        is_long=True,
        key="models",
    )


def _rank(row: Surveyed | Unreadable) -> tuple[int, int, int]:
    if isinstance(row, Unreadable):
        return 0, 0, 0
    return 1 if _errors(row) else 2, -row.totals.file_bytes, -row.totals.parameters


def _name(path: str, folder: str) -> str:
    return path.removeprefix(f"{folder}/") if folder else path


def _model(row: Surveyed | Unreadable, folder: str) -> Row:
    name = _name(row.path, folder)
    if isinstance(row, Unreadable):
        return Row((name, None, "", None, None, None, None, "", "unreadable"), tone=Tone.BAD)
    totals = row.totals
    cells = (
        name,
        totals.parameters,
        _hidden([totals]),
        totals.stored_elements,
        totals.stored_tensors,
        row.nodes,
        totals.file_bytes,
        _precision(row),
        count_severities(row.findings),
    )
    return Row(cells, tone=Tone.BAD if _errors(row) else Tone.PLAIN)


def _hidden(models: Sequence[Totals]) -> str:
    """Return how many parameters PyTorch had, if the counts differ; "" if the files hide none."""
    counted = sum(each.parameters for each in models)
    least = sum(each.parameters_at_least for each in models)
    most = [each.parameters_at_most for each in models]
    if None in most:
        return f"{format_count(least)} or more"
    bound = sum(each or 0 for each in most)
    return f"{format_count(least)} to {format_count(bound)}" if (least, bound) != (counted, counted) else ""


def _precision(row: Surveyed) -> str:
    """Return the dtype of most stored elements, and its share."""
    elements = [(each.dtype, each.stored_elements) for each in row.dtypes]
    return format_shares(elements, sum(count for _, count in elements), 1).removesuffix(", ...")


_WORST_FIRST = ("error", "warning", "note")


def _problems(document: SurveyDocument) -> Iterator[Problem]:
    """Yield unreadable models by reason, then each kind of finding with its models, the worst first."""
    folder = _folder(document)
    unreadable: dict[str, list[str]] = defaultdict(list)
    found: dict[tuple[int, str], list[tuple[str, SurveyFinding]]] = defaultdict(list)
    for row in document.models:
        name = _name(row.path, folder)
        if isinstance(row, Unreadable):
            unreadable[row.error.removeprefix(f"{row.path}: ")].append(name)
            continue
        for finding in row.findings:
            found[_WORST_FIRST.index(finding.severity), finding.id].append((name, finding))
    for reason, names in unreadable.items():
        yield Problem("unreadable", "error", f"{_many(names)}{reason}", tuple(names))
    for (rank, id_), members in sorted(found.items(), key=lambda each: each[0]):
        names = list(dict.fromkeys(name for name, _ in members))
        nbytes = sum(finding.bytes or 0 for _, finding in members)
        text = (
            members[0][1].message
            if len(members) == 1
            else EXPLANATIONS[id_].title
            if id_ in EXPLANATIONS
            else id_
        )
        saves = f" ({format_bytes(nbytes)})" if nbytes and len(members) > 1 else ""
        yield Problem(id_, _WORST_FIRST[rank], f"{_many(names)}{text}{saves}", tuple(names), nbytes or None)


def _many(names: Sequence[str]) -> str:
    return f"{format_many(len(names), 'model')}: " if len(names) > 1 else ""


def _findings(document: SurveyDocument) -> Table:
    """Return the table of each model's findings."""
    folder = _folder(document)
    rows = tuple(
        Row((_name(row.path, folder), str(finding.severity), finding.id, finding.message, finding.bytes))
        for row in document.models
        if isinstance(row, Surveyed)
        for finding in row.findings
    )
    columns = (
        Column("model", Kind.NAME),
        Column("severity", room=5),
        Column("finding", room=8),
        Column("what", Kind.PROSE, room=9),
        Column("a fix saves", Kind.BYTES, room=3),
    )
    return Table(
        columns, rows, title="findings of each model", detail=Detail.MORE, is_long=True, key="findings"
    )
