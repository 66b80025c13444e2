"""Sections of a flow -> runs of repeated blocks, and the position of each vertex: in a block, before or after them."""

from __future__ import annotations

import bisect
import functools
import itertools
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from analyzer.account.blocks.flow import Flow
from analyzer.account.blocks.repeats import Repeat, Unit, add_alike, find_repeats
from analyzer.account.blocks.sections import Chain, Cutter, Sections
from analyzer.records import Frozen

OUTSIDE = -1
"""Block number of vertices that belong to no block."""


class RunPlace(NamedTuple):
    """Position among the runs of one graph."""

    run: int
    """Number of the run; for a vertex in no block, the number of runs before it."""
    block: int
    unit: int = 0


_make_place: Callable[[Iterable[Any]], RunPlace] = functools.partial(tuple.__new__, RunPlace)
"""Make a place from its fields: takes a fifth of the time of a call of the class."""


class GraphLayout(Frozen):
    """The runs of one graph, and the slot of each vertex."""

    counts: tuple[int, ...]
    """Number of blocks of each run."""
    slots: tuple[RunPlace, ...]
    places: tuple[int, ...]
    """Number of the section in which each vertex is first needed."""

    @classmethod
    def empty(cls, count: int) -> GraphLayout:
        """Return the layout of a graph without blocks."""
        return cls((), (RunPlace(0, OUTSIDE),) * count, tuple(range(count)))


class _Unit(NamedTuple):
    """A branch, or in a chain without branches a section with weights, with the sections up to the next one."""

    start: int
    stop: int
    """The unit's sections reach from `start` to before `stop`."""
    sizes: Unit
    tails: tuple[tuple[int, Unit], ...] = ()
    """The sections after the first that have weights, and these weights."""


def lay_out(flow: Flow) -> GraphLayout:
    """Find the runs of blocks of one graph."""
    cutter = Cutter(flow)
    sections = cutter.cut()
    runs = _runs(flow, sections)
    refined = cutter.refine(sections, runs.is_outside)
    if refined is not None:
        sections, runs = refined, _runs(flow, refined)
    places = _places(flow, sections, runs)
    slots = _slots(flow, sections, places, runs.slots)
    return GraphLayout(tuple(runs.counts), tuple(slots), tuple(places))


Owner = tuple[int, int]
"""Number of a list of named blocks, and of a block in it."""


def lay_out_named(
    flow: Flow,
    owners: Sequence[Owner | None],
    placed: Sequence[bool],
    sizes: Sequence[int],
    structure: GraphLayout,
) -> tuple[GraphLayout, tuple[int, ...]]:
    """Put the vertices of one graph into the blocks given by names, and unnamed vertices where the data flow puts them.

    Args:
        flow: data flow of the graph.
        owners: the block in which names put each vertex, if any.
        placed: whether names place a vertex at all: a vertex that they place without an owner is in no block.
        sizes: number of blocks of each list.
        structure: layout from structure, whose units divide the blocks.

    Returns:
        The layout, and the list that each of its runs is, in the order of computation.
    """
    owned = _fill_unnamed(flow, owners, placed)
    seen = _in_order(flow, owned)
    runs = {number: position for position, number in enumerate(seen)}
    before = _runs_before(flow, owned, runs)
    slots: list[RunPlace] = []
    units: dict[Owner, dict[RunPlace, int]] = defaultdict(dict)
    """Units from structure in each named block, numbered in order of occurrence."""
    for (owner, slot), alike in itertools.groupby(zip(owned, structure.slots, strict=True)):
        first, count = len(slots), sum(1 for _ in alike)
        if owner is None:
            slots += [RunPlace(run, OUTSIDE) for run in before[first : first + count]]
        else:
            known = units[owner]
            unit = known.setdefault(slot, len(known)) if slot.block != OUTSIDE else 0
            slots += [RunPlace(runs[owner[0]], owner[1], unit)] * count
    return GraphLayout(
        tuple(sizes[number] for number in seen), tuple(slots), tuple(range(len(slots)))
    ), tuple(seen)


def _runs_before(flow: Flow, owned: Sequence[Owner | None], runs: Mapping[int, int]) -> list[int]:
    """Return the run of each vertex; for a vertex in no block, the first run after it."""
    after, conduits = flow.after, flow.conduits
    before = [len(runs)] * len(owned)
    for vertex in range(len(owned) - 1, -1, -1):
        owner = owned[vertex]
        if owner is not None:
            before[vertex] = runs[owner[0]]
        elif after[vertex]:
            before[vertex] = min([before[follower] for follower in after[vertex]])
        for conduit in conduits.get(vertex, ()):
            before[conduit] = min(before[conduit], before[vertex])
    return before


def _in_order(flow: Flow, owned: Sequence[Owner | None]) -> list[int]:
    """Return the lists, each after those from whose values it is computed; else in the order in which names occur.

    The order of nodes in the file says little: the first node of a decoder may prepare a table of positions. Lists that
    alternate, like the residual blocks and the attentions of a U-Net, are in the order of their first nodes.
    """
    static_last = sorted(zip(flow.static, owned, strict=True), key=operator.itemgetter(0))
    firsts = list(dict.fromkeys(owner[0] for _, owner in static_last if owner is not None))
    if len(firsts) < 2:
        return firsts
    bits = {number: 1 << position for position, number in enumerate(firsts)}
    behind = [0] * len(owned)
    needs = dict.fromkeys(firsts, 0)
    for vertex, before in enumerate(flow.before):
        for source in before:
            behind[vertex] |= behind[source]
        owner = owned[vertex]
        if owner is not None:
            needs[owner[0]] |= behind[vertex]
            behind[vertex] |= bits[owner[0]]
    left = sorted(firsts)
    order: list[int] = []
    while left:
        waiting = sum(bits[number] for number in left)
        ready = [
            number
            for number in left
            if all(needs[other] & bits[number] for other in left if needs[number] & bits[other] & waiting)
        ]
        first = min(ready, default=left[0])
        turns = [number for number in ready if needs[number] & bits[first] and needs[first] & bits[number]]
        order.append(min([first, *turns], key=firsts.index))
        left.remove(order[-1])
    return order


def _fill_unnamed(flow: Flow, owners: Sequence[Owner | None], placed: Sequence[bool]) -> list[Owner | None]:
    """Return the owners, with unnamed vertices added to the block whose values they read last.

    Vertices that only prepare stored tensors belong to the block of all their readers, or to no block if these differ.
    """
    owned = list(owners)
    for vertex, before in enumerate(flow.before):
        if not placed[vertex] and not flow.static[vertex]:
            known = [source for source in before if owned[source] is not None]
            owned[vertex] = owned[max(known)] if known else None
    readers: dict[int, set[Owner | None]] = {}
    for vertex in sorted(flow.conduits, reverse=True):
        if flow.static[vertex] and not placed[vertex]:
            owned[vertex] = _single_owner(readers.get(vertex, set()))
        for conduit in flow.conduits[vertex]:
            readers.setdefault(conduit, set()).add(owned[vertex])
    for vertex, found in readers.items():
        if not placed[vertex]:
            owned[vertex] = _single_owner(found)
    return owned


def _single_owner(owners: Set[Owner | None]) -> Owner | None:
    return next(iter(owners)) if len(owners) == 1 else None


class _Runs(Frozen):
    """The runs of all chains of a flow."""

    counts: list[int]
    slots: list[RunPlace]
    """Slots of the sections, chain by chain."""
    positions: list[int]
    """Number of the section that ends at each vertex; for other vertices, and NONE, the number of sections."""

    def is_outside(self, end: int) -> bool:
        """Whether a section is in no block."""
        return self.slots[self.positions[end]].block == OUTSIDE


def _runs(flow: Flow, sections: Sections) -> _Runs:
    ends = list(itertools.chain.from_iterable(sections.chains))
    runs = _Runs([], [], [len(ends)] * (len(sections.anchors) + 1))
    for position, end in enumerate(ends):
        runs.positions[end] = position
    work = _work(flow, sections.anchors) if sections.branches else {}
    for chain in sections.chains:
        found, slots = _lay_out_chain(flow, work, sections, chain, len(runs.counts))
        runs.counts.extend(found)
        runs.slots.extend(slots)
    return runs


def _lay_out_chain(
    flow: Flow, work: Mapping[int, Sequence[str]], sections: Sections, chain: Chain, first_run: int
) -> tuple[list[int], list[RunPlace]]:
    """Return the number of blocks of each run of a chain, and the slot of each section."""
    weights = _weights(flow, sections, chain)
    branches = [position for position, end in enumerate(chain) if end in sections.branches]
    has_branches = len(branches) > 1
    units = _units(weights, branches if has_branches else None)
    repeats = find_repeats([unit.sizes for unit in units], variants=has_branches)
    if has_branches:
        repeats = add_alike(_forms(work, chain, units), repeats)
    slots: list[RunPlace] = []
    make = _make_place
    for number, repeat in enumerate(repeats):
        starts = units[repeat.start].start
        slots += [RunPlace(first_run + number, OUTSIDE)] * (starts - len(slots))
        for position in range(repeat.start, repeat.end):
            block, unit = divmod(position - repeat.start, repeat.period)
            stop = units[position].stop
            if block == repeat.count - 1:
                stop = _stop_of_last(units, repeat, unit)
            slots += [make((first_run + number, block, unit))] * (stop - len(slots))
    slots += [RunPlace(first_run + len(repeats), OUTSIDE)] * (len(chain) - len(slots))
    return [repeat.count for repeat in repeats], slots


def _weights(flow: Flow, sections: Sections, chain: Chain) -> list[Unit]:
    """Return the sorted sizes of the weights in each section of a chain; most sections have none."""
    sizes, static, inner = flow.sizes, flow.static, sections.inner
    found: list[Unit] = [()] * len(chain)
    for position, end in enumerate(chain):
        if sizes[end] or end in inner:
            vertices = [*inner.get(end, ()), end]
            found[position] = tuple(
                sorted(size for vertex in vertices if not static[vertex] for size in sizes[vertex])
            )
    return found


def _units(weights: Sequence[Unit], branches: Sequence[int] | None) -> list[_Unit]:
    """Return the units of a chain: they start at its branches, or, if these are None, at sections with weights."""
    weighty = [position for position, sizes in enumerate(weights) if sizes]
    starts = weighty if branches is None else branches
    if branches is None:  # each unit ends where the next section with weights begins
        return [
            _Unit(start, stop, weights[start]) for start, stop in itertools.pairwise([*starts, len(weights)])
        ]
    return [
        _Unit(
            start,
            stop,
            weights[start],
            tuple(
                (position, weights[position])
                for position in weighty[bisect.bisect(weighty, start) : bisect.bisect_left(weighty, stop)]
            ),
        )
        for start, stop in itertools.pairwise([*starts, len(weights)])
    ]


_WITHOUT_WEIGHTS = frozenset({"MatMul", "Einsum", "Softmax", "Transpose"})
"""Operators that distinguish attention and mixing over positions from a perceptron with similar weights."""


def _work(flow: Flow, anchors: Sequence[int]) -> dict[int, list[str]]:
    """Return the characteristic operators of each section, with weights or without, by the section's end."""
    found: dict[int, list[str]] = defaultdict(list)
    for vertex, anchor in enumerate(anchors):
        name = flow.nodes[vertex].op_type
        if flow.static[vertex]:
            continue
        if flow.sizes[vertex]:
            found[anchor].append(name)
        elif name in _WITHOUT_WEIGHTS:
            found[anchor].append(f"{name} of values")
    return found


def _forms(work: Mapping[int, Sequence[str]], chain: Chain, units: Sequence[_Unit]) -> list[Unit]:
    """Return the operators of each unit's branch as sorted numbers."""
    numbers: dict[str, int] = {}
    return [
        tuple(sorted(numbers.setdefault(name, len(numbers) + 1) for name in work.get(chain[unit.start], ())))
        for unit in units
    ]


def _stop_of_last(units: Sequence[_Unit], repeat: Repeat, unit: int) -> int:
    """Return the end of a unit in the last block: it takes as many following sections as the other blocks have."""
    last = units[repeat.start + repeat.period * (repeat.count - 1) + unit]
    if unit < repeat.period - 1:
        return last.stop
    if repeat.count == 1:  # nothing separates later sections from its own
        return last.tails[0][0] if last.tails else last.stop
    others = [units[repeat.start + repeat.period * block + unit] for block in range(repeat.count - 1)]
    tails = Counter(tuple(sizes for _, sizes in other.tails) for other in others)
    common = min(tails, key=lambda tail: (-tails[tail], len(tail)))
    kept = 0
    for (_, sizes), expected in zip(last.tails, common, strict=False):
        if sizes != expected:
            break
        kept += 1
    end = last.tails[kept - 1][0] if kept else last.start
    idle = min(other.stop - 1 - (other.tails[-1][0] if other.tails else other.start) for other in others)
    limit = last.tails[kept][0] if kept < len(last.tails) else last.stop
    return min(end + 1 + idle, limit)


def _places(flow: Flow, sections: Sections, runs: _Runs) -> list[int]:
    """Return the number of the section that first needs each vertex; one that no section needs follows its sources."""
    positions, nowhere = runs.positions, len(runs.slots)
    places = [positions[anchor] for anchor in sections.anchors]
    for vertex, before in enumerate(flow.before):
        if places[vertex] == nowhere and before:
            # A source that ends a section puts the vertex into the next section.
            places[vertex] = max(
                min(places[source] + 1, nowhere - 1) if positions[source] < nowhere else places[source]
                for source in before
            )
    for vertex in sorted(flow.conduits, reverse=True):
        for conduit in flow.conduits[vertex]:
            places[conduit] = min(places[conduit], places[vertex])
    return places


def _slots(
    flow: Flow, sections: Sections, places: Sequence[int], order: Sequence[RunPlace]
) -> list[RunPlace]:
    """Return each vertex's slot. Vertices that several blocks need are before them; a lone weight is in the first."""
    end = RunPlace(order[-1].run, OUTSIDE) if order else RunPlace(0, OUTSIDE)
    slots = [order[place] if place < len(order) else end for place in places]
    shared = [False] * len(slots)
    for vertex in sorted(flow.conduits, reverse=True):
        for conduit in flow.conduits[vertex]:
            shared[conduit] = shared[conduit] or shared[vertex] or slots[conduit][:2] != slots[vertex][:2]
    carries = [0] * len(slots)
    for vertex, before in enumerate(flow.before):
        if sections.sides[vertex] or flow.static[vertex]:
            carries[vertex] = min(2, len(flow.sizes[vertex]) + sum(carries[source] for source in before))
            is_shared = shared[vertex] if flow.static[vertex] else sections.sides[vertex]
            if is_shared and carries[vertex] != 1:
                slots[vertex] = RunPlace(slots[vertex].run, OUTSIDE)
    return slots
