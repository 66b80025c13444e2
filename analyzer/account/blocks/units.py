"""Sections of a flow -> runs of repeated blocks, and where each vertex is: in a block, before or after them."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from analyzer.account.blocks.flow import Flow
from analyzer.account.blocks.repeats import Repeat, Unit, add_alike, find_repeats
from analyzer.account.blocks.sections import Cutter, Section, Sections

OUTSIDE = -1
"""The block of what is in none."""


class RunPlace(NamedTuple):
    """A place among the runs of one graph."""

    run: int
    """Number of the run; of what is in no block, how many runs come before it."""
    block: int
    unit: int = 0


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """The runs of one graph, and the slot of each vertex."""

    counts: tuple[int, ...]
    """Blocks of each run."""
    slots: tuple[RunPlace, ...]
    places: tuple[int, ...]
    """Number of the section in which each vertex is first needed."""

    @classmethod
    def empty(cls, count: int) -> GraphLayout:
        """Of a graph without blocks."""
        return cls((), (RunPlace(0, OUTSIDE),) * count, tuple(range(count)))


@dataclass(frozen=True, slots=True)
class _Unit:
    """A branch with what follows it up to the next, or where there are no branches one section with weights."""

    start: int
    stop: int
    """Its sections, from `start` to before `stop`."""
    sizes: Unit
    tails: tuple[tuple[int, Unit], ...] = ()
    """The sections after the first that have weights, and the weights."""


def lay_out(flow: Flow) -> GraphLayout:
    """Find the runs of blocks of one graph."""
    cutter = Cutter(flow)
    sections = cutter.cut()
    runs = _runs(flow, sections)
    outside = {end for end, (_, slot) in runs.by_end.items() if slot.block == OUTSIDE}
    refined = cutter.refine(sections, outside)
    if refined is not None:
        sections, runs = refined, _runs(flow, refined)
    order = [slot for _, slot in sorted(runs.by_end.values())]
    positions = {end: position for end, (position, _) in runs.by_end.items()}
    places = _places(flow, sections, positions, len(order))
    slots = _slots(flow, sections, places, order)
    return GraphLayout(tuple(runs.counts), tuple(slots), tuple(places))


Owner = tuple[int, int]
"""Which list of named blocks, and which block of it."""


def lay_out_named(
    flow: Flow,
    owners: Sequence[Owner | None],
    told: Sequence[bool],
    sizes: Sequence[int],
    structure: GraphLayout,
) -> tuple[GraphLayout, tuple[int, ...]]:
    """Put the vertices of one graph into the blocks that names tell, and what has no name by what flows.

    Args:
        flow: of the graph.
        owners: the block that names put each vertex in, if any.
        told: whether names tell of a vertex at all: one that is told of and has no owner is in no block.
        sizes: blocks of each list.
        structure: the units of blocks are those that it has.

    Returns:
        The layout, and the list that each of its runs is, in the order of the computation.
    """
    owned = _fill(flow, owners, told)
    seen = _in_order(flow, owned)
    runs = {number: position for position, number in enumerate(seen)}
    units = _units_of(owned, structure)
    before = [len(seen)] * len(owned)
    for vertex in range(len(owned) - 1, -1, -1):
        owner = owned[vertex]
        after = [before[follower] for follower in flow.after[vertex]]
        before[vertex] = min(after, default=before[vertex]) if owner is None else runs[owner[0]]
        for conduit in flow.conduits.get(vertex, ()):
            before[conduit] = min(before[conduit], before[vertex])
    slots = [
        RunPlace(before[vertex], OUTSIDE)
        if owner is None
        else RunPlace(runs[owner[0]], owner[1], units.get((owner, structure.slots[vertex]), 0))
        for vertex, owner in enumerate(owned)
    ]
    return GraphLayout(
        tuple(sizes[number] for number in seen), tuple(slots), tuple(range(len(slots)))
    ), tuple(seen)


def _in_order(flow: Flow, owned: Sequence[Owner | None]) -> list[int]:
    """The lists, each after those from whose values its own are computed; else in the order in which names tell them.

    Where a file's nodes stand says little: the first node of a decoder may prepare a table of positions. Lists that
    take turns, as the residual blocks and the attentions of a U-Net do, are in the order of their first nodes.
    """
    steps = sorted(range(len(owned)), key=lambda vertex: (flow.static[vertex], vertex))
    firsts = list(dict.fromkeys(owner[0] for vertex in steps if (owner := owned[vertex]) is not None))
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


def _fill(flow: Flow, owners: Sequence[Owner | None], told: Sequence[bool]) -> list[Owner | None]:
    """The owners, with those of vertices that names tell nothing of: what reads a block's values last is in that block.

    What only prepares stored tensors is where all that reads it is; what several blocks read so is in none.
    """
    owned = list(owners)
    for vertex, before in enumerate(flow.before):
        if not told[vertex] and not flow.static[vertex]:
            known = [source for source in before if owned[source] is not None]
            owned[vertex] = owned[max(known)] if known else None
    readers: dict[int, set[Owner | None]] = {}
    for vertex in sorted(flow.conduits, reverse=True):
        if flow.static[vertex] and not told[vertex]:
            owned[vertex] = _only(readers.get(vertex, set()))
        for conduit in flow.conduits[vertex]:
            readers.setdefault(conduit, set()).add(owned[vertex])
    for vertex, found in readers.items():
        if not told[vertex]:
            owned[vertex] = _only(found)
    return owned


def _only(owners: Set[Owner | None]) -> Owner | None:
    return next(iter(owners)) if len(owners) == 1 else None


def _units_of(owned: Sequence[Owner | None], structure: GraphLayout) -> dict[tuple[Owner, RunPlace], int]:
    """Numbers of the units of structure that lie in each named block."""
    found: dict[Owner, dict[RunPlace, int]] = {}
    for owner, slot in zip(owned, structure.slots, strict=True):
        if owner is not None and slot.block != OUTSIDE:
            known = found.setdefault(owner, {})
            known.setdefault(slot, len(known))
    return {(owner, slot): unit for owner, known in found.items() for slot, unit in known.items()}


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of all chains of a flow."""

    counts: list[int]
    by_end: dict[int, tuple[int, RunPlace]]
    """Of each section, by its end: its number, over all chains, and its slot."""


def _runs(flow: Flow, sections: Sections) -> _Runs:
    runs = _Runs([], {})
    work = _work(flow, sections.anchors)
    for chain in sections.chains:
        found, slots = _lay_out_chain(flow, work, chain.sections, len(runs.counts))
        runs.counts.extend(found)
        for section, slot in zip(chain.sections, slots, strict=True):
            runs.by_end[section.end] = (len(runs.by_end), slot)
    return runs


def _lay_out_chain(
    flow: Flow, work: Mapping[int, Sequence[str]], sections: Sequence[Section], first_run: int
) -> tuple[list[int], list[RunPlace]]:
    """How many blocks each run of a chain has, and the slot of each section."""
    weights = [_weights(flow, section) for section in sections]
    has_branches = sum(section.is_branch for section in sections) > 1
    units = _units(sections, weights, has_branches)
    repeats = find_repeats([unit.sizes for unit in units], variants=has_branches)
    if has_branches:
        repeats = add_alike(_forms(work, sections, units), repeats)
    slots: list[RunPlace] = []
    for number, repeat in enumerate(repeats):
        starts = units[repeat.start].start
        slots += [RunPlace(first_run + number, OUTSIDE)] * (starts - len(slots))
        for position in range(repeat.start, repeat.end):
            block, unit = divmod(position - repeat.start, repeat.period)
            stop = units[position].stop
            if block == repeat.count - 1:
                stop = _stop_of_last(units, repeat, unit)
            slots += [RunPlace(first_run + number, block, unit)] * (stop - len(slots))
    slots += [RunPlace(first_run + len(repeats), OUTSIDE)] * (len(sections) - len(slots))
    return [repeat.count for repeat in repeats], slots


def _weights(flow: Flow, section: Section) -> Unit:
    vertices = [*section.inner, section.end]
    return tuple(
        sorted(size for vertex in vertices if not flow.static[vertex] for size in flow.sizes[vertex])
    )


def _units(sections: Sequence[Section], weights: Sequence[Unit], has_branches: bool) -> list[_Unit]:
    starts = [
        position
        for position, section in enumerate(sections)
        if (section.is_branch if has_branches else weights[position])
    ]
    return [
        _Unit(
            start,
            stop,
            weights[start],
            tuple((position, weights[position]) for position in range(start + 1, stop) if weights[position]),
        )
        for start, stop in itertools.pairwise([*starts, len(sections)])
    ]


_WITHOUT_WEIGHTS = frozenset({"MatMul", "Einsum", "Softmax", "Transpose"})
"""Operators that tell attention and mixing over positions from a perceptron, whose weights are alike."""


def _work(flow: Flow, anchors: Sequence[int]) -> dict[int, list[str]]:
    """By the end of each section the operators that say what it does, with weights or without."""
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


def _forms(
    work: Mapping[int, Sequence[str]], sections: Sequence[Section], units: Sequence[_Unit]
) -> list[Unit]:
    """What the branch of each unit does, as numbers, sorted."""
    numbers: dict[str, int] = {}
    return [
        tuple(
            sorted(
                numbers.setdefault(name, len(numbers) + 1) for name in work.get(sections[unit.start].end, ())
            )
        )
        for unit in units
    ]


def _stop_of_last(units: Sequence[_Unit], repeat: Repeat, unit: int) -> int:
    """Where a unit of the last block ends: it takes of what follows as much as the other blocks have of it."""
    last = units[repeat.start + repeat.period * (repeat.count - 1) + unit]
    if unit < repeat.period - 1:
        return last.stop
    if repeat.count == 1:  # nothing tells what follows it from what belongs to it
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


def _places(flow: Flow, sections: Sections, positions: Mapping[int, int], nowhere: int) -> list[int]:
    """The section, by number, in which each vertex is first needed; what leads nowhere follows what it reads."""
    places = [positions.get(anchor, nowhere) for anchor in sections.anchors]
    for vertex, before in enumerate(flow.before):
        if places[vertex] == nowhere and before:
            places[vertex] = max(_next(places[s], s, positions, nowhere) for s in before)
    for vertex in sorted(flow.conduits, reverse=True):
        for conduit in flow.conduits[vertex]:
            places[conduit] = min(places[conduit], places[vertex])
    return places


def _next(place: int, source: int, positions: Mapping[int, int], nowhere: int) -> int:
    """Where what reads a vertex is, if nothing else tells: after a point, the next section."""
    return min(place + 1, nowhere - 1) if source in positions and place < nowhere else place


def _slots(
    flow: Flow, sections: Sections, places: Sequence[int], order: Sequence[RunPlace]
) -> list[RunPlace]:
    """The slot of each vertex. What several blocks need is before them, but for a lone weight: that is the first's."""
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
