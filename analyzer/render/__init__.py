"""Report -> str, one file or folder per format; some formats, such as pictures, are of some reports only.

Nothing is loaded before it is needed: whoever wants `analyzer.units` need not know of reports.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from analyzer.errors import MissingExtraError
from analyzer.render.options import RenderOptions

if TYPE_CHECKING:
    from analyzer.report import Report

__all__ = ["FORMATS", "Format", "RenderOptions", "Special", "find_suffixes", "render", "to_document"]


Special: TypeAlias = Literal[
    "BudgetReport",
    "ExportReport",
    "FormulaReport",
    "Inspection",
    "ReconcileReport",
    "SurveyReport",
    "Timing",
]
"""Reports that have forms of their own, by the names of their classes."""


@dataclass(frozen=True, slots=True)
class Format:
    """A form of a report."""

    suffix: str
    """Of an `-o` path that asks for it."""
    renderer: str
    """What makes it of (report, options): a module of `analyzer.render`, and its function."""
    reports: tuple[Special, ...] = ()
    """The records that it is a form of, by the names of their classes; nothing: of all."""
    needs: str = ""
    """What it needs of the extra `report`, by the name that is imported."""

    @property
    def render(self) -> Callable[[Report, RenderOptions], str | bytes]:
        """What makes it."""
        module, _, function = self.renderer.partition(":")
        made: Callable[[Report, RenderOptions], str | bytes]
        made = getattr(importlib.import_module(f"analyzer.render.{module}"), function)
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
    "json": Format(".json", "json:render_json"),
    "text": Format(".txt", "text:render_text"),
    "markdown": Format(".md", "markdown:render_markdown"),
    "csv": Format(".csv", "csv:render_csv"),
    "html": Format(".html", "html:render_html", needs="jinja2"),
    "sarif": Format(".sarif", "sarif:render_sarif", _WITH_FINDINGS),
    "junit": Format(".xml", "junit:render_junit", ("BudgetReport",)),
    "latex": Format(".tex", "latex:render_latex", ("FormulaReport",)),
    "png": Format(".png", "plot:render_png", ("Timing",), "matplotlib"),
    "svg": Format(".svg", "plot:render_svg", ("Timing",), "matplotlib"),
}
"""Formats by name; those that are text are what `--format` takes."""


def render(report: Report, style: str, options: RenderOptions | None = None) -> str | bytes:
    """The report in the format of that name, with a final newline where it is text."""
    return FORMATS[style].render(report, options or RenderOptions())


def to_document(report: Report) -> dict[str, Any]:
    """The report as plain dicts and lists, as its JSON Schema describes it."""
    from analyzer.render.json import to_document as document

    return document(report)


def find_suffixes(report: str | None) -> dict[str, Format]:
    """The formats of a kind of report, by the suffix of an `-o` path.

    Args:
        report: the name of its class; None for the formats that every report has.

    >>> list(find_suffixes(None))
    ['.json', '.txt', '.md', '.csv', '.html']
    >>> list(find_suffixes("BudgetReport"))[5:], list(find_suffixes("Timing"))[5:]
    (['.sarif', '.xml'], ['.png', '.svg'])
    """
    return {each.suffix: each for each in FORMATS.values() if not each.reports or report in each.reports}
