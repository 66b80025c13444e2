"""Report -> Markdown, as GitHub shows it: what a comment on a pull request needs, with the long tables folded away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from analyzer.pages.kinds import REPORTS, describe
from analyzer.render.makers import find_maker
from analyzer.render.markdown.writer import write_blocks
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Block, Line

if TYPE_CHECKING:
    from analyzer.report import Report

__all__ = ["LONGEST", "render_markdown"]

LONGEST = 60_000
"""Characters of a report: a comment on GitHub holds 65,536, and who posts it may add something."""

_MAKERS = {
    "FormulaReport": "formula:show_formula",
}
"""What makes the blocks of each kind of report: a module of this folder, and its function."""


def render_markdown(report: Report, options: RenderOptions | None = None) -> str:
    """The report as Markdown with a final newline, in no more than `LONGEST` characters.

    Long tables have `options.rows` rows, and less where these are too many for a comment.

    Raises:
        TypeError: it is no report.
    """
    options = options or RenderOptions()
    if type(report).__name__ in REPORTS:
        from analyzer.render.json import to_record
        from analyzer.render.markdown.pages import write_markdown

        return write_markdown(describe(to_record(report)), rows=options.rows, verbose=options.verbose)
    text = write_blocks(_blocks(report, options))
    rows = options.rows or _MANY
    is_cut = False
    while len(text) > LONGEST and not (is_cut and rows == 1):
        rows = _fewer(rows, len(text)) if is_cut or options.rows else rows
        text = write_blocks([*_blocks(report, replace(options, rows=rows)), _CUT])
        is_cut = True
    return text if len(text) <= LONGEST else _drop(list(_blocks(report, replace(options, rows=1))))


_MANY = 256
"""Rows with which it begins where all were asked for, and are too many."""


def _fewer(rows: int, length: int) -> int:
    """So many rows that there may be room, where `rows` take this length: always less of them.

    >>> _fewer(256, 120_000), _fewer(2, 60_001), _fewer(1, 60_001)
    (115, 1, 1)
    """
    return max(1, min(rows - 1, rows * 9 * LONGEST // (10 * length)))


_CUT = Line(("Cut to what a comment holds; the JSON report has every row.",))


def _drop(blocks: list[Block]) -> str:
    """What comes first of the report, where even one row of each table is too much."""
    while len(text := write_blocks([*blocks, _CUT])) > LONGEST:
        del blocks[-1]
    return text


def _blocks(report: Report, options: RenderOptions) -> Iterator[Block]:
    made: Iterator[Block] = find_maker(__name__, _MAKERS, report)(report, options)
    return made
