"""Graph of a model -> data flow between its nodes, by number, without arithmetic on weights and on shapes.

Every path from a vertex to the end leads through its immediate post-dominator. On an acyclic graph one pass in reverse
order finds the post-dominators, as lowest common ancestors in the growing tree (Cooper, Harvey and Kennedy, "A Simple,
Fast Dominance Algorithm", 2001); ancestors are found in logarithmic time by the jump pointers of Myers' skew-binary
lists ("An applicative random-access stack", 1983).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from analyzer.account.ledger import Entry, Role
from analyzer.model import Graph, GraphPath, Key, Model, Node, Place, StoredTensor
from analyzer.model.functions import called_bodies
from analyzer.model.operators import MEASURES
from analyzer.model.order import sort_nodes
from analyzer.model.wiring import ELSEWHERE, STORED, Provider, Wiring
from analyzer.records import Frozen, Mutable, field

# paths to the end

NONE = -1
"""No vertex."""


class PostDominators(Frozen):
    """The tree of post-dominators, whose root is the end."""

    parent: list[int]
    """Immediate post-dominator of each vertex; NONE for the end, and for vertices without a path to the end."""
    depth: list[int]
    """Number of vertices on the path to the end in this tree; NONE for vertices without a path to the end."""


def post_dominators(after: Sequence[Sequence[int]], end: int) -> PostDominators:
    """Find the immediate post-dominator of every vertex.

    Args:
        after: the successors of each vertex; all have higher numbers than it.
        end: the vertex where paths end.

    >>> post_dominators([[1, 2], [3], [3], []], 3).parent
    [3, 3, 3, -1]
    """
    count = len(after)
    parent, depth, jump = [NONE] * count, [NONE] * count, [NONE] * count
    depth[end], jump[end] = 0, end
    for vertex in range(end - 1, -1, -1):
        found = NONE
        for follower in after[vertex]:
            if depth[follower] == NONE or follower == found:
                continue
            found = follower if found == NONE else _meet(found, follower, parent, depth, jump)
        if found != NONE:
            parent[vertex], depth[vertex] = found, depth[found] + 1
            over = jump[found]
            is_even = depth[found] - depth[over] == depth[over] - depth[jump[over]]
            jump[vertex] = jump[over] if is_even else found
    return PostDominators(parent, depth)


def _meet(a: int, b: int, parent: list[int], depth: list[int], jump: list[int]) -> int:
    """Return the lowest common ancestor."""
    if depth[a] < depth[b]:
        a, b = b, a
    while depth[a] > depth[b]:
        a = jump[a] if depth[jump[a]] >= depth[b] else parent[a]
    while a != b:
        if jump[a] == jump[b]:
            a, b = parent[a], parent[b]
        else:
            a, b = jump[a], jump[b]
    return a


# data flow

_SUMS: Mapping[str, frozenset[int]] = {
    "SkipLayerNormalization": frozenset({2, 3}),
    "SkipSimplifiedLayerNormalization": frozenset({2}),
}
"""onnxruntime's sum and norm in one node, and the inputs that belong to the norm (docs/ContribOperators.md)."""

_SUM_OUTPUT = 3
"""Output with the sum before the norm. The norm comes after the sum: it ends a block if norms come last, else it begins
the next.
"""

_MOST_WEIGHTS = 64
"""Most weights that are kept for one node, if arithmetic on weights merges several."""


class Weights(Frozen):
    """Sizes of learned tensors, including those that a node holds inside it."""

    sizes: Mapping[Key, int]
    """Learned elements that each learned tensor represents, copies included."""
    inside: Mapping[Place, tuple[int, ...]]
    """Sizes of those in a node's attributes, nested graphs and functions. For a Constant node, its value."""
    captured: Mapping[Place, tuple[str, ...]]
    """Values of outer graphs that the nested graphs of a node read."""


_NOTHING, _STORED = -1, -2
"""Codes of names that no vertex provides: no data flow; stored tensors have the codes from -2 downwards."""


class _Codes(dict[str, int]):
    """Vertex or code that provides each name; names that no vertex has computed are looked up on first use."""

    def __init__(self, look_up: Callable[[str], int]) -> None:
        super().__init__({"": _NOTHING})
        self._look_up = look_up

    def __missing__(self, name: str) -> int:
        code = self[name] = self._look_up(name)
        return code

    def settle(self) -> None:
        """Stop looking names up: the function refers to the flow, which refers to this dict: a cycle, freed late."""
        self._look_up = lambda name: _NOTHING


class Flow(Mutable):
    """Vertices in topological order.

    A node has one vertex, a sum with a norm has two; a graph input has one if a node reads it.
    """

    nodes: list[Node] = field(default_factory=list)
    """Node of each vertex; for graph inputs, a node that represents the caller."""
    before: list[list[int]] = field(default_factory=list)
    """Vertices whose values each vertex reads, without those that depend only on the file's contents."""
    after: list[list[int]] = field(default_factory=list)
    sizes: list[tuple[int, ...]] = field(default_factory=list)
    """Sizes of the learned tensors that each vertex computes with; for a static vertex, those that it passes on."""
    static: list[bool] = field(default_factory=list)
    """Whether a vertex depends only on the file's contents and the shapes of values."""
    conduits: dict[int, list[int]] = field(default_factory=dict)
    """Static vertices that a vertex reads."""
    vertices: list[int] = field(default_factory=list)
    """Vertex of each node, by the node's position; for nodes with two, the second."""
    outputs: list[int] = field(default_factory=list)
    """Vertices that provide the graph's outputs."""
    firsts: dict[int, int] = field(default_factory=dict)
    """First vertex of nodes that have two, by the second."""
    graph_inputs: set[int] = field(default_factory=set)
    """Vertices that represent graph inputs."""
    _codes: Mapping[str, int] = field(default_factory=dict)
    """Vertex or code of each name that is read, unless its node gives the vertex directly."""
    _providers: Mapping[str, Provider] = field(default_factory=dict)
    """Provider of each name of the graph."""
    _stored: list[int] = field(default_factory=list)
    """Learned elements of the stored tensors that are read by name."""

    @classmethod
    def of(cls, graph: Graph, wiring: Wiring, weights: Weights) -> Flow:
        """Number the nodes of one graph, sorted if they are not. Cycles carry no data flow."""
        path = graph.path
        flow = cls(vertices=[0] * len(graph.nodes), _providers=wiring.providers[path])
        caller = Node(path, -1, "", "", "", (), ())
        own = flow._providers

        def look_up(name: str) -> int:
            provider = own.get(name)
            if is_numbered and type(provider) is Node:
                return vertices[provider.position]
            return flow._provide(provider or wiring.look_up(path, name), weights, caller)

        codes = _Codes(look_up)
        inside, captured, known = weights.inside, weights.captured, weights.sizes
        stored, vertices = flow._stored, flow.vertices
        static, before, after, sizes = flow.static, flow.before, flow.after, flow.sizes
        nodes: Sequence[Node] = graph.nodes
        # Constant nodes may come after their readers.
        has_constants = any(tensor.node is not None for tensor in graph.tensors)
        is_numbered = not (captured or has_constants) and wiring.is_plain and wiring.is_in_order(path)
        if not is_numbered:
            names_read = [
                (*node.inputs, *captured.get(node.place, ())) if captured else node.inputs for node in nodes
            ]
            nodes, _ = sort_nodes(nodes, names_read)
        makers = wiring.makers[path]
        apart: set[int] = set()
        """Nodes whose outputs belong to different vertices or codes."""
        for node in nodes:
            op_type, names, position = node.op_type, node.inputs, node.position
            made = makers[position]
            if captured and (more := captured.get(node.place)):
                names += more
                made += (ELSEWHERE,) * len(more)
            if op_type in _SUMS and node.is_standard:
                flow._add_sum(node, codes)
                apart.add(position)
                continue
            source = other = _NOTHING
            if 0 < len(names) < 3 and op_type not in MEASURES and not inside:
                # A known maker saves a look-up of the name.
                is_known = is_numbered and made[0] >= 0 and made[0] not in apart
                source = vertices[made[0]] if is_known else codes[names[0]]
                if len(names) == 2:
                    name, maker = names[1], made[1]
                    if is_numbered and maker >= 0 and maker not in apart:
                        other = vertices[maker]
                    elif maker == STORED and name not in codes:  # the same as `_provide`, without the calls
                        codes[name] = other = _STORED - len(stored)
                        tensor = own[name]
                        stored.append(known.get(tensor.key, 0) if isinstance(tensor, StoredTensor) else 0)
                    else:
                        other = codes[name]
            if source >= 0 > other and not static[source]:
                vertex = len(static)  # for most nodes: the same as `_add`, without the call
                flow.nodes.append(node)
                before.append([source])
                size = stored[_STORED - other] if other <= _STORED else 0
                sizes.append((size,) if size else ())
                after[source].append(vertex)
                after.append([])
                static.append(False)
            else:
                read = [] if op_type in MEASURES else [codes[name] for name in names]
                vertex = flow._add(node, read, inside.get(node.place, ()) if inside else ())
            vertices[position] = vertex
            if not is_numbered:
                codes.update(dict.fromkeys(node.outputs, vertex))
                codes[""] = _NOTHING
            if op_type == "DynamicQuantizeLinear":
                # These are scales of activations: factors of a product, and no path of the data flow.
                codes.update(dict.fromkeys(node.outputs[1:], _NOTHING))
                apart.add(position)
        codes.settle()
        flow._codes = codes
        flow.outputs = [code for name in graph.outputs if (code := flow._code(name)) >= 0]
        return flow

    def vertex(self, node: Node, slot: int) -> int:
        """Return the vertex that reads an input of a node."""
        second = self.vertices[node.position]
        if not self.firsts:
            return second
        return self.firsts.get(second, second) if slot not in _SUMS.get(node.op_type, ()) else second

    def is_dynamic(self, name: str) -> bool:
        """Whether a value depends on the graph's inputs."""
        code = self._code(name)
        return code >= 0 and not self.static[code]

    def _code(self, name: str) -> int:
        code = self._codes.get(name)
        if code is None:
            provider = self._providers.get(name)
            code = self.vertices[provider.position] if type(provider) is Node else _NOTHING
        return code

    def _provide(self, provider: Provider | None, weights: Weights, caller: Node) -> int:
        """Return the code of a value that no vertex has computed; a graph input gets a new vertex."""
        if provider is None:
            return _NOTHING
        if isinstance(provider, StoredTensor):
            self._stored.append(weights.sizes.get(provider.key, 0))
            return _STORED - len(self._stored) + 1
        vertex = self._add(caller, ())
        self.static[vertex] = False
        self.graph_inputs.add(vertex)
        return vertex

    def _add(self, node: Node, read: Iterable[int], inside: Sequence[int] = ()) -> int:
        static, after = self.static, self.after
        vertex = len(static)
        before: list[int] = []
        sizes = list(inside)
        for code in read:
            if code >= 0:
                if not static[code]:
                    before.append(code)
                    continue
                self.conduits.setdefault(vertex, []).append(code)
                sizes += self.sizes[code]
            elif code <= _STORED and (size := self._stored[_STORED - code]):
                sizes.append(size)
        if len(before) > 2 or (len(before) == 2 and before[0] == before[1]):
            before = list(dict.fromkeys(before))
        for source in before:
            after[source].append(vertex)
        self.nodes.append(node)
        self.before.append(before)
        after.append([])
        if len(sizes) > 1:
            sizes = sorted(sizes)[-_MOST_WEIGHTS:]
        self.sizes.append(tuple(sizes))
        static.append(not before)
        return vertex

    def _add_sum(self, node: Node, codes: _Codes) -> None:
        """Add the vertex of the sum, then that of the norm, of a node that is both."""
        norm = _SUMS[node.op_type]
        read = [codes[name] for name in node.inputs]
        first = self._add(node, [code for slot, code in enumerate(read) if slot not in norm])
        second = self._add(node, [first, *(code for slot, code in enumerate(read) if slot in norm)])
        self.firsts[second] = first
        self.vertices[node.position] = second
        for number, name in enumerate(node.outputs):
            if name:
                codes[name] = first if number == _SUM_OUTPUT else second


def weigh(model: Model, entries: Iterable[Entry], wiring: Wiring) -> Weights:
    """Return the sizes of all learned tensors, and of those that a node holds inside it, at any depth."""
    learned = [(e, e.tensor.key) for e in entries if e.role is Role.PARAMETER and e.logical_numel]
    holders = find_holders(model)
    inside: dict[Place, list[int]] = defaultdict(list)
    for entry, (path, _) in learned:
        tensor = entry.tensor
        if tensor.node is not None:
            inside[path, tensor.node].append(entry.logical_numel)
        for place in _enclosing_nodes(path, holders) if path in holders else ():
            inside[place].append(entry.logical_numel)
    return Weights(
        sizes={key: entry.logical_numel for entry, key in learned},
        inside={place: tuple(sorted(found)[-_MOST_WEIGHTS:]) for place, found in inside.items()},
        captured=_captured(model, wiring),
    )


def find_holders(model: Model) -> dict[GraphPath, Place]:
    """Return the node that holds each nested graph; for a function, the first node that calls it."""
    found = {graph.path: graph.parent for graph in model.graphs if graph.parent is not None}
    for place, path in called_bodies(model).items():
        if path != place[0]:
            found.setdefault(path, place)
    return found


_DEEPEST = 64
"""Most levels of nested graphs that are followed; functions may call each other in a cycle."""


def _enclosing_nodes(path: GraphPath, holders: Mapping[GraphPath, Place]) -> Iterator[Place]:
    """Yield the nodes that contain a graph, the innermost first."""
    for _ in range(_DEEPEST):
        place = holders.get(path)
        if place is None:
            return
        yield place
        path = place[0]


def _captured(model: Model, wiring: Wiring) -> dict[Place, tuple[str, ...]]:
    parents = {graph.path: graph.parent for graph in model.graphs if graph.parent is not None}
    found: dict[Place, dict[str, None]] = defaultdict(dict)
    for graph in model.graphs:
        if graph.parent is None:
            continue
        names = {name for node in graph.nodes for name in node.inputs if name} | set(graph.outputs)
        own = wiring.providers[graph.path]
        for name in sorted(names - own.keys()):
            place = wiring.place(graph.path, name)
            holder: Place | None = graph.parent
            while holder is not None and holder[0] != place:
                found[holder][name] = None
                holder = parents.get(holder[0])
            if holder is not None:
                found[holder][name] = None
    return {place: tuple(names) for place, names in found.items()}
