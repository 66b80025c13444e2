"""Flow -> chains of sections: what lies between the points that everything flows through, one after the other.

In a network with residual connections these points are the sums, and a section is a branch: attention, feed-forward, a
bottleneck of convolutions.
"""

from __future__ import annotations

import heapq
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property

from analyzer.account.blocks.flow import NONE, Flow, PostDominators, post_dominators
from analyzer.records import Frozen, Mutable

_FEW = 4
"""Nodes with weights of which a chain of its own consists."""


_DEEPEST = 8
"""Streams that feed streams that feed streams."""

_FAR = 4096
"""Edges between summands that are looked at, to know whether one is computed from another."""

_FAR_IN_ALL = 1_000_000
"""Such edges of one flow."""


Chain = list[int]
"""The points that everything from one source flows through, in order: each is the end of a section, which holds what
lies before it, after the point before it."""


class Sections(Frozen):
    """Every vertex of a flow in a section of a chain."""

    chains: tuple[Chain, ...]
    """In the order of their ends."""
    anchors: list[int]
    """The end of the section that each vertex is in: where it is first needed; NONE where nothing flows on."""
    sides: list[bool]
    """Whether a vertex serves several sections: masks, tables of positions, what an encoder hands to a decoder."""
    inner: Mapping[int, list[int]]
    """By the end of a section, of those that have some: vertices with weights that not everything flows through."""
    branches: Set[int]
    """The sections, by their ends, of which some of these lie beside a way from point to point: units of their own."""


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
            return Sections((), [NONE] * count, [False] * count, {}, frozenset())
        return self._cut([self._ways.down(self.flow, self._end)])

    def refine(self, sections: Sections, is_host: Callable[[int], bool]) -> Sections | None:
        """Give streams that end in one of some sections, told by its end, a chain of their own; None without such."""
        if not sections.chains:
            return None
        anchors = sections.anchors
        more = [chain for chain in self._others(anchors) if is_host(anchors[chain[-1]])]
        return self._cut([*sections.chains, *more]) if more else None

    @cached_property
    def _weighty(self) -> list[int]:
        """How many vertices with weights are below each in the tree, itself included."""
        found = [1 if sizes else 0 for sizes in self.flow.sizes]
        for vertex, parent in enumerate(self._tree.parent):
            if parent != NONE:
                found[parent] += found[vertex]
        return found

    def _cut(self, chains: list[Chain]) -> Sections:
        for level in range(_DEEPEST + 1):
            anchors, owners = _anchors(self.flow, self._tree, chains)
            if level == _DEEPEST:
                break
            more = [chain for chain in self._others(anchors) if anchors[chain[-1]] != owners[chain[-1]]]
            if not more:
                break
            chains += more
        inner, branches = _look_inside(self.flow, chains, anchors, owners)
        sides = list(map(operator.ne, anchors, owners))
        ordered = tuple(sorted(chains, key=lambda chain: chain[-1]))
        return Sections(ordered, anchors, sides, inner, branches)

    def _others(self, anchors: Sequence[int]) -> Iterator[Chain]:
        """The other ways that end at a point, which is its own anchor: of a single way all is a point already."""
        for point in sorted(self._ways.more):
            for child in self._ways.above(point) if anchors[point] == point else ():
                if anchors[child] != child and self._weighty[child] >= _FEW:
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


class _Ways(Frozen):
    """The ways in the tree from the sources of a flow to its end."""

    first: Sequence[int]
    """A vertex on these ways that has each as its immediate post-dominator: that of the longest way; or NONE."""
    more: Mapping[int, Sequence[int]]
    """The others of those that have several."""
    longest: Sequence[int]
    """The depth of the deepest source above each; NONE of what is on no way."""
    weighty: Sequence[int]
    """How many vertices with weights are below each in the tree."""
    search: _Search

    @classmethod
    def of(cls, flow: Flow, tree: PostDominators, weighty: Sequence[int]) -> _Ways:
        depth, parent = tree.depth, tree.parent
        sources = [vertex for vertex in _starts(flow, tree) if depth[vertex] != NONE]
        longest = [NONE] * len(depth)
        first = [NONE] * len(depth)
        more: dict[int, list[int]] = defaultdict(list)
        for source in sorted(sources, key=lambda vertex: (-depth[vertex], vertex)):
            vertex = source
            while vertex != NONE and longest[vertex] == NONE:
                longest[vertex] = depth[source]
                below = parent[vertex]
                if below != NONE and first[below] == NONE:
                    first[below] = vertex
                elif below != NONE:
                    more[below].append(vertex)
                vertex = below
        return cls(first, more, longest, weighty, _Search(flow))

    def above(self, vertex: int) -> list[int]:
        """What has a vertex as its immediate post-dominator, that of the longest way first."""
        return [self.first[vertex], *self.more.get(vertex, ())] if self.first[vertex] != NONE else []

    def down(self, flow: Flow, vertex: int) -> list[int]:
        """The way to a vertex that leads from point to point: at a sum over that of which the others are computed."""
        way = []
        while vertex != NONE:
            way.append(vertex)
            vertex = self._origin(flow, vertex) if vertex in self.more else self.first[vertex]
        way.reverse()
        return way

    def _origin(self, flow: Flow, vertex: int) -> int:
        """Of several that a vertex follows the one that the stream comes from."""
        found = self.above(vertex)
        direct = sorted(set(flow.before[vertex]).intersection(found))
        origin = self.search.origin(direct) if len(direct) > 1 else NONE
        if origin != NONE:
            return origin
        if direct:
            return max(direct, key=lambda child: (self.longest[child], -child))
        # x + attention(x) + mlp(x): the stream is in a sum of its own there, and a mask may be a longer way
        return max(found, key=lambda child: (self.weighty[child], self.longest[child], -child))


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


class _Search(Mutable):
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


def _anchors(flow: Flow, tree: PostDominators, chains: Iterable[Chain]) -> tuple[list[int], list[int]]:
    """For each vertex the point where it is first needed, and the first point that all ways from it lead through."""
    depth, parent, after = tree.depth, tree.parent, flow.after
    count = len(depth)
    anchors = [NONE] * count
    for point in itertools.chain.from_iterable(chains):
        anchors[point] = point
    owners = anchors.copy()
    for vertex in range(count - 1, -1, -1):
        if anchors[vertex] == NONE and depth[vertex] != NONE:
            first = count
            for follower in after[vertex]:
                if NONE < anchors[follower] < first:
                    first = anchors[follower]
            anchors[vertex] = first
            owners[vertex] = owners[parent[vertex]]
    return anchors, owners


def _look_inside(
    flow: Flow, chains: Iterable[Chain], anchors: Sequence[int], owners: Sequence[int]
) -> tuple[dict[int, list[int]], set[int]]:
    """What `Sections` says of the sections that hold weights before their ends."""
    previous: dict[int, int] = {}
    for chain in chains:
        previous.update(zip(chain, itertools.chain((NONE,), chain), strict=False))
    inner: dict[int, list[int]] = defaultdict(list)
    branches: set[int] = set()
    reached = [False] * len(anchors)
    for vertex, (anchor, owner) in enumerate(zip(anchors, owners, strict=True)):
        if anchor in (vertex, NONE) or anchor != owner:
            continue
        start = previous[anchor]
        for source in flow.before[vertex]:
            if source == start or (reached[source] and anchors[source] == anchor):
                reached[vertex] = True
                break
        if flow.sizes[vertex] and not flow.static[vertex]:
            inner[anchor].append(vertex)
            if reached[vertex]:
                branches.add(anchor)
    return inner, branches
