"""Report -> text or bytes in one of its formats, one file or folder each; some formats exist for some reports only.

Modules are loaded when they are needed: a caller of `analyzer.text` need not load reports.
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
"""Reports that have formats of their own, by the names of their classes."""

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
"""Classes of these reports, by the names of their documents' schemas."""


class Format(Frozen):
    """A format of reports."""

    suffix: str
    """Suffix of an `-o` path that asks for the format."""
    renderer: str
    """Function of (report, options) that renders it, as `module:function` within `analyzer.formats`."""
    reports: tuple[Special, ...] = ()
    """Names of the report classes that have the format; empty for all."""
    needs: str = ""
    """Module of the extra `report` that the format needs, by its import name."""
    is_printed: bool = False
    """Whether the format is read on a terminal, so that `--format` takes it; every format has an `-o` path."""

    @property
    def render(self) -> Callable[[Report | Head, RenderOptions], str | bytes]:
        """Function that renders a report with options."""
        module, _, function = self.renderer.partition(":")
        render_function: Callable[[Report | Head, RenderOptions], str | bytes]
        render_function = getattr(importlib.import_module(f"analyzer.formats.{module}"), function)
        return render_function

    def check(self) -> None:
        """Check, before any work, that the format can be rendered.

        Raises:
            MissingExtraError: the module that it needs is not installed.
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
"""Formats by name, in the order in which messages list them. `--format`, `-o` and `render_report` take these."""

USUAL = "text"
"""Format that is printed if none is named."""


def render_report(
    report: Report | GraphReport, style: str, options: RenderOptions | None = None
) -> str | bytes:
    """Render a report in one of its formats: text that ends in a newline, or the bytes of a picture.

    Args:
        report: answer of a command, such as `Inspection`.
        style: name in `FORMATS` of a format that such a report has; for a `GraphReport`, a name in
            `analyzer.formats.graph.FORMATS`.
        options: rows, width, colour, and documents to show beside the report; a `GraphReport` has none.

    Raises:
        UsageError: such a report has no such format.
        MissingExtraError: a module that the format needs is not installed.
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
    """Write a report to a file, in the format that `FORMATS` has for its suffix.

    Raises:
        UsageError: the suffix names no format of such a report, or the file cannot be written.
        MissingExtraError: a module that the format needs is not installed.
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
    """Render saved reports again, without their models.

    Args:
        documents: as `documents.saved.read_any_report` reads them. Only HTML takes several: a page with a section for
            each, with the title of the first.
        style: name in `FORMATS` of a format that such a report has.
        options: rows, width, colour.

    Raises:
        MissingExtraError: a module that the format needs is not installed.
        UsageError: such a report has no such format, or a document has an invalid value.
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
    """Return the formats of a saved report, by the suffix of an `-o` path."""
    return find_suffixes(_REPORTS.get(schema_name(document)))


def to_document(report: Report) -> dict[str, Any]:
    """Return the report as plain dicts and lists, as its JSON Schema describes it."""
    from analyzer.formats.json import to_document as document

    return document(report)


def find_suffixes(report: str | None) -> dict[str, Format]:
    """Return the formats of a kind of report, by the suffix of an `-o` path.

    Args:
        report: name of its class; None for the formats that every report has.

    >>> [".md" in find_suffixes(None), ".xml" in find_suffixes(None), ".xml" in find_suffixes("BudgetReport")]
    [True, False, True]
    """
    return {each.suffix: each for each in FORMATS.values() if not each.reports or report in each.reports}


def find_printed(report: Special | None = None) -> tuple[str, ...]:
    """Return the names that `--format` takes for a kind of report: formats read on a terminal, the usual one first.

    Args:
        report: as `find_suffixes` takes it.

    >>> find_printed()[0], "latex" in find_printed(), "latex" in find_printed("FormulaReport")
    ('text', False, True)
    """
    known = find_suffixes(report).values()
    names = [name for name, each in FORMATS.items() if each.is_printed and each in known]
    return tuple(sorted(names, key=lambda name: name != USUAL))


def find_format(path: Path, report: str | None) -> Format:
    """Return the format that a path asks for by its suffix.

    Args:
        path: file to which a report is to be written.
        report: as `find_suffixes` takes it.

    Raises:
        UsageError: no format of the report has the suffix.
    """
    formats = find_suffixes(report)
    if path.suffix not in formats:
        known = ", ".join(formats)
        raise UsageError(f"{path}: no format for the suffix {path.suffix!r}; use one of {known}")
    return formats[path.suffix]
