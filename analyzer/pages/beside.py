"""A page + what other documents say of the same groups and total -> the page with these numbers beside its own."""

from __future__ import annotations

import re
from collections.abc import Mapping

from analyzer.pages.page import Block, Cell, Column, Detail, Kind, Notes, Page, Table
from analyzer.pages.shared import GROUPS
from analyzer.records import replace
from analyzer.text import format_count, format_many


def put_times_beside(page: Page, times: Mapping[str, float]) -> Page:
    """The page with a column of milliseconds in its table of groups, by their names.

    A group without a time has none; the total is that of all groups, shown or not.
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
    """What a row stands for: a group, all of `layer.0-11`, and what is below it; None where nothing has a time."""
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
"""The same in a part of a name."""


def put_formula_beside(page: Page, who: str, total: int) -> Page:
    """The page with a sentence on the count in closed form, where it has a count of parameters.

    Args:
        page: of a model.
        who: the class whose formula it is.
        total: parameters by the formula.
    """
    held = next((figure.number for figure in page.figures if figure.label == "Parameters"), None)
    if held is None:
        return page
    told = f"{who} counts {format_many(total, 'parameter')} in closed form: "
    if held == total:
        told += "as many as this file"
    else:
        told += f"this file has {format_count(abs(held - total))} {'more' if held > total else 'fewer'}"
    return replace(page, blocks=(Notes((told,), detail=Detail.FIRST), *page.blocks))
