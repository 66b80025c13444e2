"""Sizes of boxes and the arrows between them -> the place of each box and the route of each arrow."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from analyzer.formats.graph.layers import Arrow, Rows, make_rows
from analyzer.records import Frozen

Point = tuple[float, float]
Size = tuple[float, float]

_GAP, _SLOT_GAP = 28.0, 14.0
"""Space between boxes of a row, and beside an arrow that passes."""

_ROW_GAP = 46.0
_SWEEPS = 120
_PORT, _PORTED = 18.0, 0.36
"""Space between two arrows at one box, and the fraction of its width left and right of the middle that they may use."""


class Layout(Frozen):
    """A drawing whose top left corner is (0, 0)."""

    size: Size
    centers: tuple[Point, ...]
    """Centers of the boxes."""
    routes: tuple[tuple[Point, ...], ...]
    """Routes of the arrows, from their source: a start, then three points for each Bezier curve."""


def lay_out(sizes: Sequence[Size], arrows: Sequence[Arrow]) -> Layout:
    """Lay out the boxes in rows from top to bottom, so that no arrow passes through a box."""
    rows = make_rows(len(sizes), arrows)
    widths = _Widths(sizes)
    across = _place_across(rows, widths)
    down, height = _place_down(rows, sizes)
    left = min((across[slot] - widths[slot] / 2 for row in rows.rows for slot in row), default=0)
    right = max((across[slot] + widths[slot] / 2 for row in rows.rows for slot in row), default=0)
    across = {slot: x - left for slot, x in across.items()}
    centers = tuple((across[box], down[box].middle) for box in range(len(sizes)))
    return Layout((right - left, height), centers, tuple(_routes(rows, sizes, across, down)))


class _Widths:
    """Width of each box, and of each slot of an arrow, which is a line."""

    def __init__(self, sizes: Sequence[Size]) -> None:
        self.sizes = sizes

    def __getitem__(self, slot: int) -> float:
        return self.sizes[slot][0] if slot < len(self.sizes) else 2.0

    def gap(self, left: int, right: int) -> float:
        boxes = (left < len(self.sizes)) + (right < len(self.sizes))
        return _GAP if boxes == 2 else _SLOT_GAP + 4 * boxes


def _place_across(rows: Rows, widths: _Widths) -> dict[int, float]:
    """Move every row towards its neighbours, as far as its order and gaps allow, and keep the straightest result."""
    above, below = _link(rows)
    across: dict[int, float] = {}
    for row in rows.rows:
        across |= _place_row(row, dict.fromkeys(row, 0.0), widths, dict.fromkeys(row, 1.0))
    best, least = across, _bend(across, below)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        first, second = (above, below) if downwards else (below, above)
        across = dict(across)
        for row in rows.rows if downwards else rows.rows[::-1]:
            near = {slot: first[slot] or second[slot] for slot in row}
            across |= _place_row(row, _wanted(near, across), widths, _weights(near, widths))
        bend = _bend(across, below)
        if bend < least:
            best, least = across, bend
    for row in rows.rows:  # boxes with only faint links follow at last
        near = {slot: {**above[slot], **below[slot]} for slot in row}
        firm = {slot for slot in row if sum(near[slot].values()) > _FAINT}
        wanted = {slot: best[slot] if slot in firm else x for slot, x in _wanted(near, best).items()}
        best |= _place_row(row, wanted, widths, {slot: 1e6 if slot in firm else 1.0 for slot in row})
    return best


def _wanted(near: Mapping[int, Mapping[int, float]], across: Mapping[int, float]) -> dict[int, float]:
    return {
        slot: _median([(across[other], pull) for other, pull in others.items()], across[slot])
        for slot, others in near.items()
    }


def _weights(near: Mapping[int, Mapping[int, float]], widths: _Widths) -> dict[int, float]:
    """Return the weights of slots; a box is firmer than the slots of arrows beside it."""
    return {
        slot: (sum(others.values()) or _FAINT) * (_FIRM if slot < len(widths.sizes) else 1.0)
        for slot, others in near.items()
    }


_FIRM = 20.0
_FAINT, _THIN, _STRONG = 0.02, 0.25, 6.0
"""Strength of the pull between two places: if one is a box with no other arrow, or the arrow may point upwards; if the
arrow has slots; and between the slots themselves. Two boxes in neighbouring rows pull with 1."""

_Links = dict[int, dict[int, float]]


def _link(rows: Rows) -> tuple[_Links, _Links]:
    """Return the slots that each slot is joined to, above and below, with the strength of each link."""
    ends = Counter(end for chain in rows.chains for end in (chain[0], chain[-1]))
    above: _Links = defaultdict(dict)
    below: _Links = defaultdict(dict)
    for chain, is_soft in zip(rows.chains, rows.soft, strict=True):
        is_faint = is_soft or 1 in (ends[chain[0]], ends[chain[-1]])
        outer = _FAINT if is_faint else _THIN if len(chain) > 2 else 1.0
        for place, (upper, lower) in enumerate(itertools.pairwise(chain)):
            pull = _STRONG if 0 < place < len(chain) - 2 else outer
            above[lower][upper] = below[upper][lower] = max(pull, below[upper].get(lower, 0.0))
    return above, below


def _bend(across: Mapping[int, float], below: _Links) -> float:
    return sum(
        pull * abs(across[upper] - across[lower])
        for upper, near in below.items()
        for lower, pull in near.items()
    )


def _median(near: list[tuple[float, float]], default: float) -> float:
    """Return the weighted median; the middle if two halves weigh the same."""
    near.sort()
    half, weight = sum(pull for _, pull in near) / 2, 0.0
    for place, (x, pull) in enumerate(near):
        weight += pull
        if weight > half + 1e-9:
            return x
        if weight >= half - 1e-9:
            return (x + near[place + 1][0]) / 2
    return default


def _place_row(
    row: Sequence[int], wanted: Mapping[int, float], widths: _Widths, weights: Mapping[int, float]
) -> dict[int, float]:
    """Return the places nearest to the wanted ones (by squares) that keep the order and the gaps."""
    offsets, offset = [], 0.0
    for place, slot in enumerate(row):
        if place:
            before = row[place - 1]
            offset += (widths[before] + widths[slot]) / 2 + widths.gap(before, slot)
        offsets.append(offset)
    means = _pool([(wanted[slot] - offset, weights[slot]) for slot, offset in zip(row, offsets, strict=True)])
    return {slot: mean + offset for slot, mean, offset in zip(row, means, offsets, strict=True)}


def _pool(values: Sequence[tuple[float, float]]) -> list[float]:
    """Return the rising numbers that are nearest to these (by squares), each with its weight."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for value, weight in values:
        mean, members = value, 1
        while pools and pools[-1][0] >= mean:
            other, other_weight, other_members = pools.pop()
            mean = (mean * weight + other * other_weight) / (weight + other_weight)
            weight, members = weight + other_weight, members + other_members
        pools.append((mean, weight, members))
    return [mean for mean, _, members in pools for _ in range(members)]


class _Span(Frozen):
    """Vertical extent of a slot; an arrow's slot is as high as its row."""

    top: float
    bottom: float
    middle: float
    row_top: float
    row_bottom: float


def _place_down(rows: Rows, sizes: Sequence[Size]) -> tuple[dict[int, _Span], float]:
    """Return the vertical extent of each slot, and the total height."""
    down: dict[int, _Span] = {}
    top = 0.0
    for row in rows.rows:
        height = max((sizes[slot][1] for slot in row if slot < len(sizes)), default=0.0)
        middle = top + height / 2
        for slot in row:
            half = sizes[slot][1] / 2 if slot < len(sizes) else height / 2
            down[slot] = _Span(middle - half, middle + half, middle, top, top + height)
        top += height + _ROW_GAP
    return down, max(top - _ROW_GAP, 0.0)


def _routes(
    rows: Rows, sizes: Sequence[Size], across: Mapping[int, float], down: Mapping[int, _Span]
) -> list[tuple[Point, ...]]:
    leaving = _ports(rows, _Widths(sizes), across, end=0)
    arriving = _ports(rows, _Widths(sizes), across, end=-1)
    routes = []
    for number, (chain, turned) in enumerate(zip(rows.chains, rows.turned, strict=True)):
        route: list[Point] = [(leaving[number], down[chain[0]].bottom)]
        for slot in chain:
            span, x = down[slot], across[slot]
            if slot != chain[0]:  # an arrow bends between rows only, not beside a higher box
                x = arriving[number] if slot == chain[-1] else x
                route += _curve(route[-1], (x, span.row_top))
                route += _straight_line(route[-1], span.top)
            if slot != chain[-1]:
                route += _straight_line(route[-1], span.row_bottom)
        routes.append(tuple(reversed(route)) if turned else tuple(route))
    return routes


def _straight_line(start: Point, y: float) -> list[Point]:
    """Return a straight line down to a height; empty if it starts there."""
    x, third = start[0], (y - start[1]) / 3
    return [(x, start[1] + third), (x, y - third), (x, y)] if third > 1e-9 else []


def _curve(start: Point, end: Point) -> list[Point]:
    """Return a curve that leads downwards at both ends."""
    middle = (start[1] + end[1]) / 2
    return [(start[0], middle), (end[0], middle), end]


def _ports(rows: Rows, widths: _Widths, across: Mapping[int, float], *, end: int) -> dict[int, float]:
    """Return the x at which each arrow leaves its upper box, or reaches its lower one: straight if it can be."""
    at: dict[int, list[int]] = defaultdict(list)
    near = 1 if end == 0 else -2
    for number, chain in enumerate(rows.chains):
        at[chain[end]].append(number)
    ports: dict[int, float] = {}
    for box, numbers in at.items():
        numbers.sort(key=lambda number: (across[rows.chains[number][near]], number))
        wanted = [_find_port(box, rows.chains[number][near], widths, across) for number in numbers]
        room = 2 * _PORTED * widths[box]
        gap = min(_PORT, room / max(len(numbers) - 1, 1))
        means = _pool([(x - place * gap, 1.0) for place, x in enumerate(wanted)])
        first, last = across[box] - room / 2, across[box] + room / 2
        for place, (number, mean) in enumerate(zip(numbers, means, strict=True)):
            ports[number] = min(
                max(mean + place * gap, first + place * gap), last - (len(numbers) - 1 - place) * gap
            )
    return ports


def _find_port(box: int, other: int, widths: _Widths, across: Mapping[int, float]) -> float:
    """Return the x at which an arrow leaves a box for another: halfway if it can be straight, else nearest."""
    reach, far = _PORTED * widths[box], _PORTED * widths[other]
    low, high = across[box] - reach, across[box] + reach
    nearest, farthest = max(low, across[other] - far), min(high, across[other] + far)
    if nearest <= farthest:
        return min(max((across[box] + across[other]) / 2, nearest), farthest)
    return min(max(across[other], low), high)
