"""Report -> str, one file or folder per format; some formats, such as pictures, are of some reports only.

Nothing is loaded before it is needed: whoever wants `analyzer.text` need not know of reports.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from analyzer.errors import MissingExtraError, UsageError
from analyzer.formats.options import RenderOptions
from analyzer.records import Frozen, replace
from analyzer.schemas import schema_name

if TYPE_CHECKING:
    from analyzer.documents.base import Head
    from analyzer.reports import GraphReport, Report

__all__ = [
    "FORMATS",
    "USUAL",
    "Format",
    "RenderOptions",
    "Special",
    "find_format",
    "find_printed",
    "find_suffixes",
    "render_report",
    "render_saved",
    "save_report",
    "to_document",
]


Special: TypeAlias = Literal[
    "BudgetReport",
    "CostReport",
    "ExportReport",
    "FormulaReport",
    "Inspection",
    "ReconcileReport",
    "SurveyReport",
    "Timing",
    "VerifyReport",
]
"""Reports that have forms of their own, by the names of their classes."""

_REPORTS: Mapping[str, Special] = {
    "check": "BudgetReport",
    "cost": "CostReport",
    "export": "ExportReport",
    "formula": "FormulaReport",
    "inspect": "Inspection",
    "reconcile": "ReconcileReport",
    "survey": "SurveyReport",
    "sweep": "Timing",
    "time": "Timing",
    "verify": "VerifyReport",
}
"""The same by the names of their documents' schemas."""


class Format(Frozen):
    """A form of a report."""

    suffix: str
    """Of an `-o` path that asks for it."""
    renderer: str
    """What makes it of (report, options): a module of `analyzer.formats`, and its function."""
    reports: tuple[Special, ...] = ()
    """The records that it is a form of, by the names of their classes; nothing: of all."""
    needs: str = ""
    """What it needs of the extra `report`, by the name that is imported."""
    is_printed: bool = False
    """Whether it is read on a terminal, so that `--format` takes it; every format has an `-o` path."""

    @property
    def render(self) -> Callable[[Report | Head, RenderOptions], str | bytes]:
        """What makes it."""
        module, _, function = self.renderer.partition(":")
        made: Callable[[Report | Head, RenderOptions], str | bytes]
        made = getattr(importlib.import_module(f"analyzer.formats.{module}"), function)
        return made

    def check(self) -> None:
        """Find out before any work whether it can be made.

        Raises:
            MissingExtraError: what it needs is not installed.
        """
        if self.needs and importlib.util.find_spec(self.needs) is None:
            raise MissingExtraError("report", self.needs, f"a report in a {self.suffix} file")


_WITH_FINDINGS: tuple[Special, ...] = (
    "BudgetReport",
    "ExportReport",
    "Inspection",
    "ReconcileReport",
    "SurveyReport",
)

FORMATS: dict[str, Format] = {
    "json": Format(".json", "json:render_json", is_printed=True),
    "text": Format(".txt", "text:render_text", is_printed=True),
    "markdown": Format(".md", "markdown:render_markdown", is_printed=True),
    "csv": Format(".csv", "csv:render_csv", is_printed=True),
    "html": Format(".html", "html:render_html", needs="jinja2"),
    "sarif": Format(".sarif", "sarif:render_sarif", (*_WITH_FINDINGS, "VerifyReport")),
    "junit": Format(".xml", "junit:render_junit", ("BudgetReport", "VerifyReport")),
    "latex": Format(".tex", "latex:render_latex", ("FormulaReport",), is_printed=True),
    "png": Format(".png", "plot:render_png", ("Timing", "CostReport"), "matplotlib"),
    "svg": Format(".svg", "plot:render_svg", ("Timing", "CostReport"), "matplotlib"),
}
"""Formats by name, in the order in which messages list them. `--format`, `-o` and `render_report` take what is here."""

USUAL = "text"
"""What is printed where no format is named."""


def render_report(
    report: Report | GraphReport, style: str, options: RenderOptions | None = None
) -> str | bytes:
    """A report in one of its formats: text that ends in a newline, or the bytes of a picture.

    Args:
        report: what a command answers, such as `Inspection`.
        style: a name in `FORMATS`, of a format that such a report has; of a `GraphReport` one in
            `analyzer.formats.graph.FORMATS`.
        options: rows, width, colour, and what stands beside it on a page; a `GraphReport` has none.

    Raises:
        UsageError: there is no such format of such a report.
        MissingExtraError: the format needs what is not installed.
    """
    name = type(report).__name__
    if name == "GraphReport":
        from analyzer.formats.graph import FORMATS as GRAPH_FORMATS

        if style in GRAPH_FORMATS:
            return GRAPH_FORMATS[style](cast("GraphReport", report))
        raise UsageError(f"{style}: no format of {name}; use one of {', '.join(GRAPH_FORMATS)}")
    known = {key: each for key, each in FORMATS.items() if not each.reports or name in each.reports}
    if style not in known:
        raise UsageError(f"{style}: no format of {name}; use one of {', '.join(known)}")
    known[style].check()
    return known[style].render(cast("Report", report), options or RenderOptions())


def save_report(report: Report | GraphReport, path: Path | str, options: RenderOptions | None = None) -> None:
    """Write a report to a file, in the format of its suffix, as `FORMATS` has it.

    Raises:
        UsageError: the suffix names no format of such a report, or the file cannot be written.
        MissingExtraError: the format needs what is not installed.
    """
    path = Path(path)
    content = render_report(report, _style_of(report, path), options)
    try:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error


def _style_of(report: Report | GraphReport, path: Path) -> str:
    from analyzer.formats.graph import SUFFIXES
    from analyzer.reports import GraphReport

    if not isinstance(report, GraphReport):
        suffix = find_format(path, type(report).__name__).suffix
        return next(name for name, each in FORMATS.items() if each.suffix == suffix)
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"{path}: no format for the suffix {path.suffix!r}; use one of {', '.join(SUFFIXES)}"
        )
    return SUFFIXES[path.suffix]


def render_saved(
    *documents: Mapping[str, Any], style: str = "html", options: RenderOptions | None = None
) -> str | bytes:
    """Saved reports again, without the models that they are of.

    Args:
        documents: what `documents.saved.read_any_report` reads. Of several only HTML makes one: a page with a section
            for each, of which the first gives it its title.
        style: a name in `FORMATS`, of a format that such a report has.
        options: rows, width, colour.

    Raises:
        MissingExtraError: the format needs what is not installed.
        UsageError: there is no such format of such a report, or a document has a wrong value.
    """
    from analyzer.documents.saved import to_typed

    known = find_saved_formats(documents[0])
    if style not in FORMATS or FORMATS[style] not in known.values():
        names = ", ".join(name for name, each in FORMATS.items() if each in known.values())
        raise UsageError(f"{style}: no format of a report of {documents[0]['command']}; use one of {names}")
    if len(documents) > 1 and style != "html":
        raise UsageError(f"{style}: has no room for {len(documents)} reports; name one, or write .html")
    FORMATS[style].check()
    first, *others = documents
    shown = replace(options or RenderOptions(), beside=tuple(others))
    return FORMATS[style].render(to_typed(first), shown)


def find_saved_formats(document: Mapping[str, Any]) -> dict[str, Format]:
    """The formats of a saved report, by the suffix of an `-o` path."""
    return find_suffixes(_REPORTS.get(schema_name(document)))


def to_document(report: Report) -> dict[str, Any]:
    """The report as plain dicts and lists, as its JSON Schema describes it."""
    from analyzer.formats.json import to_document as document

    return document(report)


def find_suffixes(report: str | None) -> dict[str, Format]:
    """The formats of a kind of report, by the suffix of an `-o` path.

    Args:
        report: the name of its class; None for the formats that every report has.

    >>> [".md" in find_suffixes(None), ".xml" in find_suffixes(None), ".xml" in find_suffixes("BudgetReport")]
    [True, False, True]
    """
    return {each.suffix: each for each in FORMATS.values() if not each.reports or report in each.reports}


def find_printed(report: Special | None = None) -> tuple[str, ...]:
    """What `--format` takes of a kind of report: the formats that are read on a terminal, the usual one first.

    Args:
        report: as `find_suffixes` takes it.

    >>> find_printed()[0], "latex" in find_printed(), "latex" in find_printed("FormulaReport")
    ('text', False, True)
    """
    known = find_suffixes(report).values()
    names = [name for name, each in FORMATS.items() if each.is_printed and each in known]
    return tuple(sorted(names, key=lambda name: name != USUAL))


def find_format(path: Path, report: str | None) -> Format:
    """The format that a path asks for by its suffix.

    Args:
        path: where a report is to be written.
        report: as `find_suffixes` takes it.

    Raises:
        UsageError: there is none.
    """
    formats = find_suffixes(report)
    if path.suffix not in formats:
        known = ", ".join(formats)
        raise UsageError(f"{path}: no format for the suffix {path.suffix!r}; use one of {known}")
    return formats[path.suffix]
