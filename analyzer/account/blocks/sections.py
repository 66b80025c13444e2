"""Flow -> chains of sections: what lies between the points that everything flows through, one after the other.

In a network with residual connections these points are the sums, and a section is a branch: attention, feed-forward, a
bottleneck of convolutions.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from analyzer.account.blocks.flow import NONE, Flow, PostDominators, post_dominators

_FEW = 4
"""Nodes with weights of which a chain of its own consists."""


_DEEPEST = 8
"""Streams that feed streams that feed streams."""

_FAR = 4096
"""Edges between summands that are looked at, to know whether one is computed from another."""

_FAR_IN_ALL = 1_000_000
"""Such edges of one flow."""


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
        self._ways = _Ways.of(flow, self._tree, self._weighty)

    def cut(self) -> Sections:
        """One chain to the output, and one for each other stream that several of its sections need."""
        count = len(self.flow.nodes)
        if self._end == NONE:
            return Sections((), [NONE] * count, [False] * count)
        return self._cut([self._ways.down(self.flow, self._end)])

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

    @cached_property
    def _weighty(self) -> list[int]:
        """How many vertices with weights are below each in the tree, itself included."""
        sizes, tree = self.flow.sizes, self._tree
        found = [0] * len(tree.parent)
        for vertex, parent in enumerate(tree.parent):
            if tree.depth[vertex] != NONE:
                found[vertex] += bool(sizes[vertex])
                if parent != NONE:
                    found[parent] += found[vertex]
        return found

    def _cut(self, segments: list[list[int]]) -> Sections:
        for level in range(_DEEPEST + 1):
            points = {vertex for segment in segments for vertex in segment}
            anchors, owners = _anchors(self.flow, self._tree, points)
            if level == _DEEPEST:
                break
            more = [s for s in self._segments(points) if anchors[s[-1]] != owners[s[-1]]]
            if not more:
                break
            segments += more
        chains = _chains(self.flow, segments, anchors, owners)
        sides = [anchor != owner for anchor, owner in zip(anchors, owners, strict=True)]
        return Sections(chains, anchors, sides)

    def _segments(self, points: Set[int]) -> Iterator[list[int]]:
        """The other ways that end at a point."""
        for point in sorted(points):
            for child in self._ways.children.get(point, ()):
                if child not in points and self._weighty[child] >= _FEW:
                    yield self._ways.down(self.flow, child)


def _heaviest(flow: Flow) -> int:
    """The output with the most elements on one way to it, of equal ones the last; NONE where nothing flows to any."""
    outputs = {vertex for vertex in flow.outputs if not flow.static[vertex]}
    if len(outputs) < 2:
        return min(outputs, default=NONE)
    heaviest: list[int] = []
    for before, sizes, is_static in zip(flow.before, flow.sizes, flow.static, strict=True):
        carried = 0
        for source in before:
            if heaviest[source] > carried:
                carried = heaviest[source]
        heaviest.append(carried + sum(sizes) if sizes and not is_static else carried)
    return max(outputs, key=lambda vertex: (heaviest[vertex], vertex))


@dataclass(frozen=True, slots=True)
class _Ways:
    """The ways in the tree from the sources of a flow to its end."""

    children: Mapping[int, Sequence[int]]
    """The vertices on these ways that have each as their immediate post-dominator."""
    longest: Mapping[int, int]
    """The depth of the deepest source above each."""
    weighty: Sequence[int]
    """How many vertices with weights are below each in the tree."""
    search: _Search

    @classmethod
    def of(cls, flow: Flow, tree: PostDominators, weighty: Sequence[int]) -> _Ways:
        depth = tree.depth
        sources = [vertex for vertex in _starts(flow, tree) if depth[vertex] != NONE]
        longest: dict[int, int] = {}
        children: dict[int, list[int]] = defaultdict(list)
        for source in sorted(sources, key=lambda vertex: (-depth[vertex], vertex)):
            vertex = source
            while vertex != NONE and vertex not in longest:
                longest[vertex] = depth[source]
                children[tree.parent[vertex]].append(vertex)
                vertex = tree.parent[vertex]
        return cls(children, longest, weighty, _Search(flow))

    def down(self, flow: Flow, vertex: int) -> list[int]:
        """The way to a vertex that leads from point to point: at a sum over that of which the others are computed."""
        way = []
        while vertex != NONE:
            way.append(vertex)
            found = self.children.get(vertex, ())
            direct = sorted(set(flow.before[vertex]).intersection(found)) if len(found) > 1 else found
            origin = self.search.origin(direct) if len(direct) > 1 else NONE
            if origin == NONE and direct:
                origin = max(direct, key=lambda child: (self.longest[child], -child))
            elif origin == NONE:
                # x + attention(x) + mlp(x): the stream is in a sum of its own there, and a mask may be a longer way
                origin = max(
                    found, key=lambda child: (self.weighty[child], self.longest[child], -child), default=NONE
                )
            vertex = origin
        return way[::-1]


def _starts(flow: Flow, tree: PostDominators) -> list[int]:
    """What reads nothing but what the graph is given; and where the first weights are, on each way from there.

    What is given may go other ways too: the numbers of tokens also make masks, and tell where a text ends. It is a
    start itself where all ways lead to a sum that also reads it: a residual connection.
    """
    given = flow.given
    found = [
        vertex
        for vertex in sorted(given)
        if len(flow.after[vertex]) > 1 and tree.parent[vertex] in flow.after[vertex]
    ]
    carries: list[bool] = []
    for vertex, (before, sizes) in enumerate(zip(flow.before, flow.sizes, strict=True)):
        for source in before:
            if carries[source]:
                carries.append(True)
                break
        else:
            is_first = bool(sizes) and not flow.static[vertex]
            if is_first or (before and given.issuperset(before)):
                found.append(vertex)
            carries.append(is_first)
    return found


@dataclass(slots=True)
class _Search:
    """Finds what of some vertices others of them are computed from."""

    flow: Flow
    left: int = _FAR_IN_ALL
    """Edges that may still be looked at."""

    def origin(self, vertices: Sequence[int]) -> int:
        """The first of them, which are sorted, from which another is computed; NONE where none is, near by."""
        asked = set(vertices)
        waiting = [-vertex for vertex in reversed(vertices)]  # a heap: the last first
        seen = set(vertices)
        found = NONE
        steps = 0
        while waiting and found != vertices[0] and steps < min(_FAR, self.left):
            vertex = -heapq.heappop(waiting)
            before = self.flow.before[vertex]
            steps += 0 if vertex in asked else len(before)
            for source in before:
                if source in asked:
                    found = source if found == NONE else min(found, source)
                elif source > vertices[0] and source not in seen:
                    seen.add(source)
                    heapq.heappush(waiting, -source)
        self.left -= steps
        return found


def _anchors(flow: Flow, tree: PostDominators, points: set[int]) -> tuple[list[int], list[int]]:
    """For each vertex the point where it is first needed, and the first point that all ways from it lead through."""
    count = len(flow.nodes)
    anchors, owners = [NONE] * count, [NONE] * count
    for vertex in range(count - 1, -1, -1):
        if vertex in points:
            anchors[vertex] = owners[vertex] = vertex
        elif tree.depth[vertex] != NONE:
            first = count
            for follower in flow.after[vertex]:
                if NONE < anchors[follower] < first:
                    first = anchors[follower]
            anchors[vertex] = first
            owners[vertex] = owners[tree.parent[vertex]]
    return anchors, owners


def _chains(
    flow: Flow, segments: Sequence[list[int]], anchors: list[int], owners: list[int]
) -> tuple[Chain, ...]:
    chains = [Chain(tuple(map(Section, segment))) for segment in segments]
    sections = {section.end: section for chain in chains for section in chain.sections}
    previous: dict[int, int] = {}
    for segment in segments:
        previous.update(zip(segment, [NONE, *segment], strict=False))
    reached = [False] * len(flow.nodes)
    for vertex, (anchor, owner) in enumerate(zip(anchors, owners, strict=True)):
        if anchor in (vertex, NONE) or anchor != owner:
            continue
        start = previous[anchor]
        for source in flow.before[vertex]:
            if source == start or (reached[source] and anchors[source] == anchor):
                reached[vertex] = True
                break
        if flow.sizes[vertex] and not flow.static[vertex]:
            section = sections[anchor]
            section.inner.append(vertex)
            section.is_branch = section.is_branch or reached[vertex]
    return tuple(sorted(chains, key=lambda chain: chain.sections[-1].end))
