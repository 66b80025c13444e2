"""Timing -> the rows of its table: groups under each other, repeated ones folded, fused kernels apart."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analyzer.group.keys import Label
from analyzer.group.tree import TreeRow, build_tree, cut_rows, sum_groups
from analyzer.ledger import Group
from analyzer.timing.record import Part, Point, Timing
from analyzer.units import format_many

__all__ = ["TimeRow", "make_rows", "total_group"]


@dataclass(frozen=True, slots=True)
class TimeRow:
    """A group, or several in one row. Rows of level 0 and the point's other times sum to the profiled run."""

    level: int
    title: str
    """Its name, as seen from the row that it stands under."""
    group: Group
    """What it holds; a line of fused kernels holds nothing."""
    ms: tuple[float, ...]
    """At each point."""
    errors: tuple[float, ...]
    """Half the widths of their confidence intervals."""
    kernels: int
    each: tuple[float, ...] = ()
    """What each group takes that it was folded of, at the last point; () where it is one, or they have parts."""
    is_fused: bool = False


def total_group(timing: Timing) -> Group:
    """What all groups hold together."""
    grouping = timing.grouping
    return sum_groups("total", (*grouping.groups, grouping.ungrouped), grouping.overlap)


def make_rows(timing: Timing, limit: int) -> tuple[tuple[TimeRow, ...], int]:
    """At most `limit` rows of groups, the slowest of each level first to be shown, then those of fused kernels.

    What has no room is summed in a row `[3 others]`; the second number counts rows that stand under one that is shown.
    The user's own groups are all shown.
    """
    grouping = timing.grouping
    times = _Times(timing.points)
    rows = build_tree(grouping)
    shown, closed = cut_rows(rows, 0 if grouping.by == "group" else limit, lambda row: (-times.last(row),))
    found = [_row(row, times) for row in shown]
    return (*found, *_cut_fused(list(_fused(timing.points, shown)), limit)), closed


class _Times:
    """The parts of each point, by the label of their group."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = [
            {part.group.label: part for part in point.parts if not part.across} for point in points
        ]

    def last(self, row: TreeRow) -> float:
        return _sum_ms(self.points[-1], row.members)


def _sum_ms(parts: Mapping[Label, Part], labels: Sequence[Label]) -> float:
    return math.fsum(parts[label].ms for label in labels if label in parts)


def _row(row: TreeRow, times: _Times) -> TimeRow:
    last = times.points[-1]
    is_folded = row.count > 1 and row.count == len(row.members)
    return TimeRow(
        level=row.level,
        title=row.title,
        group=row.total,
        ms=tuple(_sum_ms(parts, row.members) for parts in times.points),
        errors=tuple(_join(parts[m].error_ms for m in row.members if m in parts) for parts in times.points),
        kernels=sum(last[label].kernels for label in row.members if label in last),
        each=tuple(_sum_ms(last, [label]) for label in row.members) if is_folded else (),
    )


def _join(errors: Iterator[float]) -> float:
    """The error of a sum of independent times."""
    return math.hypot(*errors)


def _fused(points: Sequence[Point], shown: Sequence[TreeRow]) -> Iterator[TimeRow]:
    """A row for each set of rows whose groups kernels were fused across."""
    titles = _innermost(shown)
    found: dict[tuple[str, ...], list[list[Part]]] = defaultdict(lambda: [[] for _ in points])
    for at, point in enumerate(points):
        for part in point.parts:
            if part.across:
                names = tuple(dict.fromkeys(titles.get(name, name) for name in part.across))
                found[names][at].append(part)
    for names, parts in found.items():
        yield TimeRow(
            level=0,
            title=_together(names) if len(names) > 1 else f"between {names[0]}",
            group=Group(" + ".join(names)),
            ms=tuple(math.fsum(part.ms for part in there) for there in parts),
            errors=tuple(_join(part.error_ms for part in there) for there in parts),
            kernels=sum(part.kernels for part in parts[-1]),
            is_fused=True,
        )


def _together(names: Sequence[str]) -> str:
    """Several names in one, with what they all begin with once.

    >>> _together(["pooler.dense", "pooler.activation"]), _together(["stem", "block.0-11"])
    ('pooler: dense + activation', 'stem + block.0-11')
    """
    split = [name.split(".") for name in names]
    common = 0
    while all(len(parts) > common + 1 and parts[common] == split[0][common] for parts in split):
        common += 1
    rest = " + ".join(".".join(parts[common:]) for parts in split)
    return f"{'.'.join(split[0][:common])}: {rest}" if common else rest


def _innermost(shown: Sequence[TreeRow]) -> dict[str, str]:
    """For the name of each group the full name of the deepest row that it is a part of, but for `[3 others]`."""
    told = (row for row in shown if not row.title.endswith((" other]", " others]")))
    return {" / ".join(label): row.total.name for row in told for label in row.members}


def _cut_fused(rows: list[TimeRow], limit: int) -> Iterator[TimeRow]:
    """The slowest of them, and the sum of the others."""
    ordered = sorted(rows, key=lambda row: (-row.ms[-1], row.title))
    left = ordered[limit:] if limit else []
    yield from ordered[: len(ordered) - len(left)]
    if len(left) == 1:
        yield left[0]
    elif left:
        title = f"[{format_many(len(left), 'other')} of fused kernels]"
        yield TimeRow(
            level=0,
            title=title,
            group=Group(title),
            ms=tuple(map(math.fsum, zip(*(row.ms for row in left), strict=True))),
            errors=tuple(_join(iter(errors)) for errors in zip(*(row.errors for row in left), strict=True)),
            kernels=sum(row.kernels for row in left),
            is_fused=True,
        )
