"""Report -> str, one file per format; a timing also -> a picture.

Nothing is loaded before it is needed: whoever wants `analyzer.render.units` need not know of reports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from analyzer.render.options import TextOptions

if TYPE_CHECKING:
    from analyzer.report import Report

__all__ = [
    "FORMATS",
    "PLOTS",
    "PLOT_SUFFIXES",
    "SUFFIXES",
    "TextOptions",
    "is_drawn",
    "render_json",
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


def is_drawn(report: Report) -> bool:
    """Whether there is a plot of it."""
    from analyzer.timing.record import Timing

    return isinstance(report, Timing)


def _draw(report: Report, style: str) -> bytes:
    from analyzer.render.plot import render_plot
    from analyzer.timing.record import Timing

    if not isinstance(report, Timing):
        raise TypeError(f"no plot of a {type(report).__name__}")
    return render_plot(report, style)


FORMATS: dict[str, Callable[[Report, TextOptions], str]] = {
    "json": lambda report, options: render_json(report),
    "text": render_text,
}
"""Formats by the name that `--format` takes."""

SUFFIXES = {".json": "json", ".txt": "text"}
"""Formats by the suffix of an `-o` path."""

PLOTS: dict[str, Callable[[Report, TextOptions], bytes]] = {
    "png": lambda report, options: _draw(report, "png"),
    "svg": lambda report, options: _draw(report, "svg"),
}
"""Pictures of a report that can be drawn."""

PLOT_SUFFIXES = {".png": "png", ".svg": "svg"}
"""Pictures by the suffix of an `-o` path."""
