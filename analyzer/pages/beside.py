"""A page + numbers of other documents on the same groups and total -> the page with these numbers beside its own."""

from __future__ import annotations

import re
from collections.abc import Mapping

from analyzer.pages.page import Block, Cell, Column, Detail, Kind, Notes, Page, Table
from analyzer.pages.shared import GROUPS
from analyzer.records import replace
from analyzer.text import format_count, format_many


def add_times(page: Page, times: Mapping[str, float]) -> Page:
    """Add a column of milliseconds to the page's table of groups, matched by name.

    The cell of a group without a time is empty; the total covers all groups, shown or not.
    """
    if not times:
        return page
    return replace(page, blocks=tuple(_with_times(block, times) for block in page.blocks))


def _with_times(block: Block, times: Mapping[str, float]) -> Block:
    if not isinstance(block, Table) or block.key != GROUPS:
        return block
    levels = [*(row.level for row in block.rows[1:]), 0]
    rows = tuple(
        replace(row, cells=(*row.cells, _time(row.cells[0], times, has_rows=below > row.level)))
        for row, below in zip(block.rows, levels, strict=False)
    )
    total = (*block.total, sum(times.values())) if block.total else ()
    return replace(block, columns=(*block.columns, Column("ms", Kind.MS)), rows=rows, total=total)


def _time(name: Cell, times: Mapping[str, float], *, has_rows: bool) -> float | None:
    """Return the milliseconds of a row's groups: one, all of `layer.0-11`, or all below it; None if none has a time."""
    if not isinstance(name, str):
        return None
    parts = (_ESCAPED_RANGE.sub(r"(\\d{1,9})", re.escape(part)) for part in name.split("."))
    form = re.compile("[.]".join(parts) + ("(?:[.].*)?" if has_rows else ""))
    ranges = [(int(first), int(last)) for first, last in _RANGE.findall(name)]
    found = []
    for group, ms in times.items():
        match = form.fullmatch(group)
        if match is not None and all(
            first <= int(number) <= last for number, (first, last) in zip(match.groups(), ranges, strict=True)
        ):
            found.append(ms)
    return sum(found) if found else None


_RANGE = re.compile(r"(?<![^.])(\d{1,9})-(\d{1,9})(?![^.])")
_ESCAPED_RANGE = re.compile(r"^\d{1,9}\\-\d{1,9}$")
"""A range as a whole part of a dotted name, after `re.escape`."""


def add_formula(page: Page, class_name: str, total: int) -> Page:
    """Add a sentence on the count in closed form to a page that has a count of parameters.

    Args:
        page: the page of a model.
        class_name: name of the class that the formula is of.
        total: number of parameters by the formula.
    """
    actual = next((figure.number for figure in page.figures if figure.label == "Parameters"), None)
    if actual is None:
        return page
    sentence = f"{class_name} counts {format_many(total, 'parameter')} in closed form: "
    if actual == total:
        sentence += "as many as this file"
    else:
        sentence += (
            f"this file has {format_count(abs(actual - total))} {'more' if actual > total else 'fewer'}"
        )
    return replace(page, blocks=(Notes((sentence,), detail=Detail.FIRST), *page.blocks))
