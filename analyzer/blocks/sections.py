"""Flow -> chains of sections: what lies between the points that everything flows through, one after the other.

In a network with residual connections these points are the sums, and a section is a branch: attention, feed-forward, a
bottleneck of convolutions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from analyzer.blocks.dominators import NONE, PostDominators, post_dominators
from analyzer.blocks.flow import Flow

__all__ = ["Chain", "Cutter", "Section", "Sections"]

_FEW = 4
"""Nodes with weights of which a chain of its own consists."""


@dataclass(slots=True)
class Section:
    """What lies before one point of a chain, after the point before it."""

    end: int
    """The vertex that everything flows through."""
    inner: list[int] = field(default_factory=list)
    """Vertices with weights, none of which everything flows through."""
    is_branch: bool = False
    """Whether some of them lie beside a way from point to point: what begins here is a unit of its own."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The points that everything from one source flows through, in order."""

    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Sections:
    """Every vertex of a flow in a section of a chain."""

    chains: tuple[Chain, ...]
    """In the order of their ends."""
    anchors: list[int]
    """The end of the section that each vertex is in: where it is first needed; NONE where nothing flows on."""
    sides: list[bool]
    """Whether a vertex serves several sections: masks, tables of positions, what an encoder hands to a decoder."""


class Cutter:
    """Cuts a flow at the points that everything flows through on its way to the heaviest output."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._end = _heaviest(flow)
        if self._end == NONE:
            return
        self._tree = post_dominators(flow.after, self._end)
        self._weighty = _count_weights(flow, self._tree)
        self._ways = _ways(flow, self._tree)

    def cut(self) -> Sections:
        """One chain to the output, and one for each other stream that several of its sections need."""
        count = len(self.flow.nodes)
        if self._end == NONE:
            return Sections((), [NONE] * count, [False] * count)
        return self._cut([_main(self.flow, self._tree, self._ways)])

    def refine(self, sections: Sections, hosts: Set[int]) -> Sections | None:
        """Give streams that end in one of some sections a chain of their own; None where there are none."""
        points = {section.end for chain in sections.chains for section in chain.sections}
        segments = [[section.end for section in chain.sections] for chain in sections.chains]
        more = [
            segment
            for segment in self._segments(points)
            if sections.anchors[segment[-1]] in hosts and segment[-1] not in points
        ]
        return self._cut(segments + more) if more else None

    def _cut(self, segments: list[list[int]]) -> Sections:
        while True:
            points = {vertex for segment in segments for vertex in segment}
            anchors, owners = _anchors(self.flow, self._tree, points)
            more = [s for s in self._segments(points) if anchors[s[-1]] != owners[s[-1]]]
            if not more:
                break
            segments += more
        chains = _chains(self.flow, segments, anchors, owners)
        sides = [anchor != owner for anchor, owner in zip(anchors, owners, strict=True)]
        return Sections(chains, anchors, sides)

    def _segments(self, points: Set[int]) -> list[list[int]]:
        """The other ways from the sources, each down to a point or to where a longer one has been."""
        seen = set(points)
        segments: list[list[int]] = []
        for source in self._ways:
            segment, vertex = [], source
            while vertex not in seen:
                seen.add(vertex)
                segment.append(vertex)
                vertex = self._tree.parent[vertex]
            if segment and self._weighty[segment[-1]] >= _FEW:
                segments.append(segment)
        return segments


def _heaviest(flow: Flow) -> int:
    """The output with the most elements on one way to it; without any, the last vertex."""
    heaviest = [0] * len(flow.nodes)
    for vertex, before in enumerate(flow.before):
        carried = max((heaviest[source] for source in before), default=0)
        heaviest[vertex] = carried + (0 if flow.static[vertex] else sum(flow.sizes[vertex]))
    outputs = [vertex for vertex in flow.outputs if not flow.static[vertex]]
    return max(outputs, key=lambda vertex: (heaviest[vertex], vertex), default=NONE)


def _count_weights(flow: Flow, tree: PostDominators) -> list[int]:
    """How many vertices with weights are below each in the tree, itself included."""
    found = [0] * len(tree.parent)
    for vertex, parent in enumerate(tree.parent):
        if tree.depth[vertex] != NONE:
            found[vertex] += bool(flow.sizes[vertex])
            if parent != NONE:
                found[parent] += found[vertex]
    return found


def _ways(flow: Flow, tree: PostDominators) -> list[int]:
    """Where ways to the end begin, those that most lies on first."""
    depth = tree.depth
    sources = [
        vertex
        for vertex, before in enumerate(flow.before)
        if depth[vertex] != NONE and not flow.static[vertex] and all(depth[source] == NONE for source in before)
    ]
    return sorted(sources, key=lambda vertex: (-depth[vertex], vertex))


def _main(flow: Flow, tree: PostDominators, ways: Iterable[int]) -> list[int]:
    """The way that leads on from point to point: at a sum the longest that is itself a summand."""
    longest: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for source in ways:
        vertex = source
        while vertex != NONE and vertex not in longest:
            longest[vertex] = tree.depth[source]
            children[tree.parent[vertex]].append(vertex)
            vertex = tree.parent[vertex]
    way, vertex = [], children[NONE][0] if children[NONE] else NONE
    while vertex != NONE:
        way.append(vertex)
        direct = set(flow.before[vertex])
        vertex = max(
            children[vertex], key=lambda child: (child in direct, longest[child], -child), default=NONE
        )
    return way[::-1]


def _anchors(flow: Flow, tree: PostDominators, points: set[int]) -> tuple[list[int], list[int]]:
    """For each vertex the point where it is first needed, and the first point that all ways from it lead through."""
    count = len(flow.nodes)
    anchors, owners = [NONE] * count, [NONE] * count
    for vertex in range(count - 1, -1, -1):
        if vertex in points:
            anchors[vertex] = owners[vertex] = vertex
        elif tree.depth[vertex] != NONE:
            anchors[vertex] = min(anchors[s] for s in flow.after[vertex] if anchors[s] != NONE)
            owners[vertex] = owners[tree.parent[vertex]]
    return anchors, owners


def _chains(
    flow: Flow, segments: Iterable[list[int]], anchors: list[int], owners: list[int]
) -> tuple[Chain, ...]:
    chains = [Chain(tuple(map(Section, segment))) for segment in segments]
    sections = {section.end: section for chain in chains for section in chain.sections}
    previous = {
        after.end: before.end
        for chain in chains
        for before, after in zip(chain.sections, chain.sections[1:], strict=False)
    }
    reached = [False] * len(flow.nodes)
    for vertex, anchor in enumerate(anchors):
        if anchor == NONE or anchor != owners[vertex] or vertex == anchor:
            continue
        start = previous.get(anchor, NONE)
        reached[vertex] = any(
            source == start or (anchors[source] == anchor and reached[source]) for source in flow.before[vertex]
        )
        if flow.sizes[vertex] and not flow.static[vertex]:
            section = sections[anchor]
            section.inner.append(vertex)
            section.is_branch = section.is_branch or reached[vertex]
    return tuple(sorted(chains, key=lambda chain: chain.sections[-1].end))
