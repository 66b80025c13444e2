"""Reports -> text for a terminal or a pipe: tables that stay within their width, names that cannot escape."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType

from analyzer.pages.kinds import REPORTS, describe
from analyzer.render.makers import find_maker
from analyzer.render.options import RenderOptions

if TYPE_CHECKING:
    from analyzer.report import Report

__all__ = ["RenderOptions", "render_text"]

_MAKERS = {
    "FormulaReport": "formula:show_formula",
}
"""What makes the parts of each kind of report: a module of this folder, and its function."""


def render_text(report: Report, options: RenderOptions | None = None) -> str:
    """The report as text with a final newline.

    Raises:
        TypeError: it is no report.
    """
    options = options or RenderOptions()
    if type(report).__name__ in REPORTS:
        from analyzer.render.json import to_record
        from analyzer.render.text.writer import write_text

        return write_text(
            describe(to_record(report)),
            rows=options.rows,
            width=options.width,
            color=options.color,
            verbose=options.verbose,
            ascii=options.ascii,
        )
    parts = find_maker(__name__, _MAKERS, report)(report, options)
    return _to_text(parts, options)


def _to_text(parts: Iterable[RenderableType], options: RenderOptions) -> str:
    console = Console(
        file=io.StringIO(),
        width=options.width,
        force_terminal=options.color,
        color_system="auto" if options.color else None,
        no_color=not options.color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    return "\n".join(lines).rstrip("\n") + "\n"
