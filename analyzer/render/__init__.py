"""Report -> str, one file per format; some formats, such as pictures, are of some reports only.

Nothing is loaded before it is needed: whoever wants `analyzer.render.units` need not know of reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from analyzer.render.options import TextOptions

if TYPE_CHECKING:
    from analyzer.report import Report

__all__ = [
    "FORMATS",
    "Format",
    "Special",
    "TextOptions",
    "find_suffixes",
    "render_json",
    "render_latex",
    "render_markdown",
    "render_text",
    "to_document",
]


def render_json(report: Report) -> str:
    """The report as JSON text with a final newline."""
    from analyzer.render.json import render_json as render

    return render(report)


def to_document(report: Report) -> dict[str, Any]:
    """The report as plain dicts and lists, as its JSON Schema describes it."""
    from analyzer.render.json import to_document as document

    return document(report)


def render_text(report: Report, options: TextOptions | None = None) -> str:
    """The report as text with a final newline."""
    from analyzer.render.text import render_text as render  # rich, which JSON does not need

    return render(report, options)


def render_markdown(report: Report) -> str:
    """The report as Markdown, with a final newline."""
    from analyzer.formulas.record import FormulaReport
    from analyzer.render.markdown_formula import render_markdown as render

    return render(_only(report, FormulaReport, "Markdown"))


def render_latex(report: Report) -> str:
    """The report as a piece of a LaTeX document, with a final newline."""
    from analyzer.formulas.record import FormulaReport
    from analyzer.render.latex_formula import render_latex as render

    return render(_only(report, FormulaReport, "LaTeX"))


def _draw(report: Report, style: str) -> bytes:
    from analyzer.render.plot import render_plot
    from analyzer.timing.record import Timing

    return render_plot(_only(report, Timing, "plot"), style)


_R = TypeVar("_R")


def _only(report: object, kind: type[_R], what: str) -> _R:
    if not isinstance(report, kind):
        raise TypeError(f"no {what} of a {type(report).__name__}")
    return report


Special: TypeAlias = Literal["FormulaReport", "Timing"]
"""Reports that have forms of their own, by the names of their classes."""


@dataclass(frozen=True, slots=True)
class Format:
    """A form of a report."""

    suffix: str
    """Of an `-o` path that asks for it."""
    render: Callable[[Report, TextOptions], str | bytes]
    reports: tuple[Special, ...] = ()
    """The records that it is a form of, by the names of their classes; nothing: of all."""


FORMATS: dict[str, Format] = {
    "json": Format(".json", lambda report, options: render_json(report)),
    "text": Format(".txt", render_text),
    "markdown": Format(".md", lambda report, options: render_markdown(report), ("FormulaReport",)),
    "latex": Format(".tex", lambda report, options: render_latex(report), ("FormulaReport",)),
    "png": Format(".png", lambda report, options: _draw(report, "png"), ("Timing",)),
    "svg": Format(".svg", lambda report, options: _draw(report, "svg"), ("Timing",)),
}
"""Formats by name; those that are text are what `--format` takes."""


def find_suffixes(report: str | None) -> dict[str, Format]:
    """The formats of a kind of report, by the suffix of an `-o` path.

    Args:
        report: the name of its class; None for the formats that every report has.

    >>> list(find_suffixes(None)), list(find_suffixes("Timing"))
    (['.json', '.txt'], ['.json', '.txt', '.png', '.svg'])
    """
    return {each.suffix: each for each in FORMATS.values() if not each.reports or report in each.reports}
