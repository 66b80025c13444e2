"""Flow -> chains of sections: the parts between consecutive points that all data flows through.

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
"""Fewest nodes with weights in a separate chain."""


_DEEPEST = 8
"""Most levels of streams that feed other streams."""

_MOST_EDGES = 4096
"""Most edges between summands that are visited to find whether one is computed from another."""

_MOST_EDGES_IN_ALL = 1_000_000
"""Most such edges of one flow."""


Chain = list[int]
"""Points that all data from one source flows through, in order. Each is the end of a section, which holds the vertices
between the previous point and this one.
"""


class Sections(Frozen):
    """Every vertex of a flow in a section of a chain."""

    chains: tuple[Chain, ...]
    """Chains in the order of their ends."""
    anchors: list[int]
    """End of the section of each vertex: the section that first needs it; NONE if no data flows on from it."""
    sides: list[bool]
    """Whether a vertex serves several sections: masks, tables of positions, an encoder's output to a decoder."""
    inner: Mapping[int, list[int]]
    """Vertices with weights that only some data flows through, by the end of their section."""
    branches: Set[int]
    """Ends of sections in which some of these vertices are parallel to a path between points: separate units."""


class Cutter:
    """Cuts a flow at the points that all data flows through on its way to the heaviest output."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._end = _heaviest(flow)
        if self._end == NONE:
            return
        self._tree = post_dominators(flow.after, self._end)
        self._paths = _Paths.of(flow, self._tree, self._weight_counts)

    def cut(self) -> Sections:
        """Return one chain to the output, and one for each other stream that several of its sections need."""
        count = len(self.flow.nodes)
        if self._end == NONE:
            return Sections((), [NONE] * count, [False] * count, {}, frozenset())
        return self._cut([self._paths.down(self.flow, self._end)])

    def refine(self, sections: Sections, is_host: Callable[[int], bool]) -> Sections | None:
        """Give streams that end in a section accepted by `is_host` a chain of their own; None if there are none."""
        if not sections.chains:
            return None
        anchors = sections.anchors
        more = [chain for chain in self._others(anchors) if is_host(anchors[chain[-1]])]
        return self._cut([*sections.chains, *more]) if more else None

    @cached_property
    def _weight_counts(self) -> list[int]:
        """Number of vertices with weights in the subtree of each vertex, itself included."""
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
        """Yield the other paths to points that are their own anchors; on a single path all vertices are points."""
        for point in sorted(self._paths.more):
            for child in self._paths.above(point) if anchors[point] == point else ():
                if anchors[child] != child and self._weight_counts[child] >= _FEW:
                    yield self._paths.down(self.flow, child)


def _heaviest(flow: Flow) -> int:
    """Return the output with the most elements on one path to it, the last of equals; NONE if no data reaches any."""
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


class _Paths(Frozen):
    """Paths in the tree from the sources of a flow to its end."""

    first: Sequence[int]
    """For each vertex, the child on the longest path among those that it immediately post-dominates; or NONE."""
    more: Mapping[int, Sequence[int]]
    """The other children of vertices that have several."""
    longest: Sequence[int]
    """Depth of the deepest source above each vertex; NONE for vertices on no path."""
    weight_counts: Sequence[int]
    """Number of vertices with weights in the subtree of each vertex."""
    search: _Search

    @classmethod
    def of(cls, flow: Flow, tree: PostDominators, weight_counts: Sequence[int]) -> _Paths:
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
        return cls(first, more, longest, weight_counts, _Search(flow))

    def above(self, vertex: int) -> list[int]:
        """Return the vertices that a vertex immediately post-dominates, that on the longest path first."""
        return [self.first[vertex], *self.more.get(vertex, ())] if self.first[vertex] != NONE else []

    def down(self, flow: Flow, vertex: int) -> list[int]:
        """Return the path to a vertex from point to point; at a sum it follows the summand that others derive from."""
        path = []
        while vertex != NONE:
            path.append(vertex)
            vertex = self._origin(flow, vertex) if vertex in self.more else self.first[vertex]
        path.reverse()
        return path

    def _origin(self, flow: Flow, vertex: int) -> int:
        """Return the one of several predecessors from which the stream comes."""
        found = self.above(vertex)
        direct = sorted(set(flow.before[vertex]).intersection(found))
        origin = self.search.origin(direct) if len(direct) > 1 else NONE
        if origin != NONE:
            return origin
        if direct:
            return max(direct, key=lambda child: (self.longest[child], -child))
        # in x + attention(x) + mlp(x) the stream is inside a separate sum, and a mask may be a longer path
        return max(found, key=lambda child: (self.weight_counts[child], self.longest[child], -child))


def _starts(flow: Flow, tree: PostDominators) -> list[int]:
    """Return the vertices that read only graph inputs, and those with the first weights on each path from there.

    An input may take other paths too: the numbers of tokens also make masks, and show where a text ends. An input is a
    start itself if all its paths lead to a sum that also reads it: a residual connection.
    """
    graph_inputs = flow.graph_inputs
    found = [
        vertex
        for vertex in sorted(graph_inputs)
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
            if is_first or (before and graph_inputs.issuperset(before)):
                found.append(vertex)
            carries.append(is_first)
    return found


class _Search(Mutable):
    """Finds, among some vertices, those from which others are computed."""

    flow: Flow
    left: int = _MOST_EDGES_IN_ALL
    """Edges that may still be visited."""

    def origin(self, vertices: Sequence[int]) -> int:
        """Return the first of these sorted vertices from which another is computed; NONE if there is none nearby."""
        candidates = set(vertices)
        waiting = [-vertex for vertex in reversed(vertices)]  # a heap: the last vertex comes first
        seen = set(vertices)
        found = NONE
        steps = 0
        while waiting and found != vertices[0] and steps < min(_MOST_EDGES, self.left):
            vertex = -heapq.heappop(waiting)
            before = self.flow.before[vertex]
            steps += 0 if vertex in candidates else len(before)
            for source in before:
                if source in candidates:
                    found = source if found == NONE else min(found, source)
                elif source > vertices[0] and source not in seen:
                    seen.add(source)
                    heapq.heappush(waiting, -source)
        self.left -= steps
        return found


def _anchors(flow: Flow, tree: PostDominators, chains: Iterable[Chain]) -> tuple[list[int], list[int]]:
    """Return for each vertex the point that first needs it, and the first point that all paths from it lead through."""
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
    """Return the fields `inner` and `branches` of `Sections`."""
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
