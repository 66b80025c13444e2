"""Report -> str, one file per format."""

from __future__ import annotations

from collections.abc import Callable

from analyzer.render.json import render_json, to_document
from analyzer.render.options import TextOptions
from analyzer.report import Report

__all__ = ["FORMATS", "SUFFIXES", "TextOptions", "render_json", "render_text", "to_document"]


def render_text(report: Report, options: TextOptions | None = None) -> str:
    """The report as text with a final newline."""
    from analyzer.render.text import render_text as render  # rich, which JSON does not need

    return render(report, options)


FORMATS: dict[str, Callable[[Report, TextOptions], str]] = {
    "json": lambda report, options: render_json(report),
    "text": render_text,
}
"""Formats by the name that `--format` takes."""

SUFFIXES = {".json": "json", ".txt": "text"}
"""Formats by the suffix of an `-o` path."""
