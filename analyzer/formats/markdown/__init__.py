"""Report -> Markdown, as GitHub shows it: a comment for a pull request, with the long tables folded away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzer.documents.base import Head
from analyzer.formats.described import page_of
from analyzer.formats.markdown.pages import LONGEST, write_markdown
from analyzer.formats.options import RenderOptions

if TYPE_CHECKING:
    from analyzer.reports import Report

__all__ = ["LONGEST", "render_markdown"]


def render_markdown(report: Report | Head, options: RenderOptions | None = None) -> str:
    """Render the report as Markdown with a final newline, in no more than `LONGEST` characters.

    Long tables have `options.rows` rows, and fewer if these are too many for a comment.

    Raises:
        TypeError: the argument is no report.
    """
    options = options or RenderOptions()
    return write_markdown(page_of(report), rows=options.rows, verbose=options.verbose)
