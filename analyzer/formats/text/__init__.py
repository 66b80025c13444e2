"""Reports -> text for a terminal or a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzer.documents.base import Head
from analyzer.formats.described import page_of
from analyzer.formats.options import RenderOptions
from analyzer.formats.text.writer import write_text

if TYPE_CHECKING:
    from analyzer.reports import Report

__all__ = ["RenderOptions", "render_text"]


def render_text(report: Report | Head, options: RenderOptions | None = None) -> str:
    """Render the report as text with a final newline.

    Raises:
        TypeError: the argument is no report.
    """
    options = options or RenderOptions()
    return write_text(
        page_of(report),
        rows=options.rows,
        width=options.width,
        color=options.color,
        verbose=options.verbose,
        ascii=options.ascii,
    )
