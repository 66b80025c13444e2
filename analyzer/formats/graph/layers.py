"""Boxes and the arrows between them -> rows of boxes, in an order with few crossings."""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import networkx as nx

from analyzer.records import Frozen


class Arrow(NamedTuple):
    """Arrow from one box to another, by their numbers."""

    source: int
    target: int
    is_soft: bool = False
    """Whether it may point upwards; other arrows do so only if they close a circle."""


_SWEEPS = 24


class Rows(Frozen):
    """Places of all boxes and arrows. An arrow that skips rows has a slot of its own in each of them."""

    rows: tuple[tuple[int, ...], ...]
    """Rows from the top, each from the left; numbers past those of the boxes are slots of arrows."""
    chains: tuple[tuple[int, ...], ...]
    """Boxes and slots that each arrow passes, from the top."""
    turned: tuple[bool, ...]
    """Whether each arrow points upwards."""
    soft: tuple[bool, ...]
    """Whether each arrow was free to point upwards."""


def make_rows(count: int, arrows: Sequence[Arrow]) -> Rows:
    """Put every box below those that lead to it; no arrow may join a box to itself."""
    ranks = _rank_all(count, arrows)
    members: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for box, rank in enumerate(ranks):
        members[rank].append(box)
    turned = tuple(ranks[arrow.source] > ranks[arrow.target] for arrow in arrows)
    chains, slots = [], count
    for (source, target, _), up in zip(arrows, turned, strict=True):
        upper, lower = (target, source) if up else (source, target)
        between = range(ranks[upper] + 1, ranks[lower])
        chain = [upper, *range(slots, slots + len(between)), lower]
        slots += len(between)
        for rank, slot in zip(between, chain[1:-1], strict=True):
            members[rank].append(slot)
        chains.append(tuple(chain))
    return Rows(
        tuple(map(tuple, _order(members, chains))),
        tuple(chains),
        turned,
        tuple(arrow.is_soft for arrow in arrows),
    )


def _rank_all(count: int, arrows: Sequence[Arrow]) -> list[int]:
    """Return the row of each box, so that no arrow joins two boxes of one row."""
    firm = [arrow for arrow in arrows if not arrow.is_soft]
    while True:
        upward = _find_upward(count, firm)
        down = [
            (arrow.target, arrow.source) if up else (arrow.source, arrow.target)
            for arrow, up in zip(firm, upward, strict=True)
        ]
        ranks = _rank(count, down)
        level = [arrow for arrow in arrows if ranks[arrow.source] == ranks[arrow.target]]
        if not level:
            return ranks
        firm += level


def _find_upward(count: int, arrows: Sequence[Arrow]) -> list[bool]:
    """Return for each arrow whether it closes a circle, in a search from the first boxes."""
    leading: dict[int, list[int]] = defaultdict(list)
    for number, arrow in enumerate(arrows):
        leading[arrow.source].append(number)
    targets = {arrow.target for arrow in arrows}
    open_boxes, done = set[int](), set[int]()
    upward = [False] * len(arrows)
    for start in sorted(range(count), key=lambda box: box in targets):
        stack: list[tuple[int, Iterator[int]]] = []
        if start not in done:
            open_boxes.add(start)
            stack.append((start, iter(leading[start])))
        while stack:
            box, rest = stack[-1]
            for number in rest:
                target = arrows[number].target
                if target in open_boxes:
                    upward[number] = True
                elif target not in done:
                    open_boxes.add(target)
                    stack.append((target, iter(leading[target])))
                    break
            else:
                stack.pop()
                open_boxes.remove(box)
                done.add(box)
    return upward


def _rank(count: int, arrows: Sequence[tuple[int, int]]) -> list[int]:
    """Return the row of each box: below all that lead to it, and no higher than its successors require."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(arrows)
    ranks = [0] * count
    order: list[int] = []
    for rank, generation in enumerate(nx.topological_generations(graph)):
        for box in generation:
            ranks[box] = rank
            order.append(box)
    for box in reversed(order):
        if graph.out_degree(box) > graph.in_degree(box):
            ranks[box] = min(ranks[other] for other in graph.successors(box)) - 1
    return ranks


def _order(members: Sequence[Sequence[int]], chains: Sequence[Sequence[int]]) -> list[list[int]]:
    """Sort each row by the places of its neighbours, down and up, and keep the order with the fewest crossings."""
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for chain in chains:
        for upper, lower in itertools.pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    rows = [list(row) for row in members]
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        downwards = sweep % 2 == 0
        order = range(1, len(rows)) if downwards else range(len(rows) - 2, -1, -1)
        for number in order:
            fixed = rows[number - 1 if downwards else number + 1]
            _sort_row(rows[number], fixed, above if downwards else below)
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _sort_row(row: list[int], fixed: Sequence[int], neighbours: Mapping[int, Sequence[int]]) -> None:
    places = {slot: place for place, slot in enumerate(fixed)}
    middle = len(fixed) / 2
    own = {slot: place for place, slot in enumerate(row)}
    scale = len(fixed) / max(len(row), 1)

    def wanted(slot: int) -> float:
        found = [places[other] for other in neighbours.get(slot, ())]
        return sum(found) / len(found) if found else own[slot] * scale if len(row) > 1 else middle

    row.sort(key=wanted)


def _crossings(rows: Sequence[Sequence[int]], below: Mapping[int, Sequence[int]]) -> int:
    crossings = 0
    for upper, lower in itertools.pairwise(rows):
        places = {slot: place for place, slot in enumerate(lower)}
        passed: list[int] = []
        for slot in upper:
            ends = sorted(places[other] for other in below.get(slot, ()))
            crossings += sum(len(passed) - bisect.bisect_right(passed, end) for end in ends)
            for end in ends:
                bisect.insort(passed, end)
    return crossings
