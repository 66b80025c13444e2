"""The group of each entry and node -> edges between all groups, or only between groups with learned tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from analyzer.account.group.keys import Label, Labels
from analyzer.account.ledger import Entry, Ledger, Role
from analyzer.errors import UsageError
from analyzer.model import Graph, GraphPath, Key, Model, Node, Place, StoredTensor
from analyzer.model.functions import called_bodies
from analyzer.model.operators import MEASURES
from analyzer.model.wiring import NAMED, GraphInput, Provider
from analyzer.records import Mutable, field

FLOW, READ, COPY = "flow", "read", "copy"

Vertex = tuple[Any, ...]

Edge = tuple[Vertex, Vertex, str]
"""Source, target and kind."""

Edges = dict[Edge, dict[Key, Entry | None]]
"""Values of each edge: activations, or stored tensors with their entries."""

Reading = tuple[Vertex, Key, Provider]
"""The vertex that reads a value, the key of the value, and its provider."""


class Crossings(Mutable):
    """A model with its entries and nodes in groups, and the values that cross between groups."""

    ledger: Ledger
    labels: Labels
    by_node: Mapping[Place, Label]
    entries: dict[Key, Entry] = field(default_factory=dict)
    owners: dict[Key, Vertex] = field(default_factory=dict)
    """Group of each stored tensor."""
    holders: dict[GraphPath, list[Place]] = field(default_factory=dict)
    """Nodes that hold each nested graph, or call each function."""

    def __post_init__(self) -> None:
        paired = list(zip(self.ledger.entries, self.labels.entries, strict=True))
        self.entries = {entry.tensor.key: entry for entry, _ in paired}
        self.owners = {entry.tensor.key: ("group", label) for entry, label in paired}
        self.holders = _holders(self.ledger.model)

    def all_edges(self) -> Edges:
        """Return all edges between groups, inputs and outputs."""
        edges: Edges = {}
        for target, key, provider in self.readings():
            match provider:
                case Node():
                    add(edges, self.group(provider.place), target, FLOW, key)
                case StoredTensor():
                    add(edges, self.owners[key], target, READ, key, self.entries[key])
                case GraphInput():
                    for source in self.sources(provider):
                        add(edges, source, target, FLOW, key)
        self.add_copies(edges)
        return edges

    def readings(self) -> Iterator[Reading]:
        """Yield every value that a node reads, or that a graph returns to the node that holds it or to the caller."""
        wiring = self.ledger.wiring
        for part in self.ledger.model.graphs:
            for target, name in self._reads(part):
                place = wiring.place(part.path, name)
                if place is not None:
                    provider = wiring.providers[place][name]
                    key = provider.key if isinstance(provider, StoredTensor) else (place, name)
                    yield target, key, provider
            for tensor in part.tensors:
                if tensor.node is not None and tensor.carrier not in NAMED:
                    yield self.group((part.path, tensor.node)), tensor.key, tensor

    def _reads(self, part: Graph) -> Iterator[tuple[Vertex, str]]:
        for node in part.nodes:
            target = self.group(node.place)
            for name in node.inputs:
                if name:
                    yield target, name
        for name in part.outputs:
            if part.path in self.holders:
                for holder in self.holders[part.path]:
                    yield self.group(holder), name
            else:
                yield ("output", part.path, name), name

    def group(self, place: Place) -> Vertex:
        """Return the group of a node."""
        return ("group", self.by_node[place])

    def sources(self, graph_input: GraphInput) -> list[Vertex]:
        """Return the vertices that feed a graph input: groups of the nodes that hold the graph, or the input itself."""
        if graph_input.path in self.holders:
            return [self.group(holder) for holder in self.holders[graph_input.path]]
        return [("input", graph_input.path, graph_input.name)]

    def add_copies(self, edges: Edges) -> None:
        """Add an edge for each learned tensor that repeats one of another group."""
        for key, entry in self.entries.items():
            if entry.copy_of is not None and entry.role is Role.PARAMETER:
                add(edges, self.owners[entry.copy_of], self.owners[key], COPY, key, entry)


def add(
    edges: Edges, source: Vertex, target: Vertex, kind: str, key: Key, entry: Entry | None = None
) -> None:
    """Add a value to an edge, unless source and target are the same vertex."""
    if source != target:
        edges.setdefault((source, target, kind), {})[key] = entry


def open_graphs(model: Model) -> list[Graph]:
    """Return the graphs that are neither nested nor function bodies: their inputs and outputs are the model's."""
    bodies = {function.path for function in model.functions}
    return [part for part in model.graphs if part.parent is None and part.path not in bodies]


def _holders(model: Model) -> dict[GraphPath, list[Place]]:
    holders: dict[GraphPath, list[Place]] = {function.path: [] for function in model.functions}
    holders |= {part.path: [part.parent] for part in model.graphs if part.parent is not None}
    for place, path in called_bodies(model).items():
        holders[path].append(place)
    return holders


Owner = int
"""Bit mask of owners, one bit each, so that thousands of owners are joined in one operation."""


class Content(NamedTuple):
    """Origin of a value: owners of its data, or learned tensors; neither for values from shapes and constants alone."""

    data: Owner
    weights: frozenset[Key]
    """Learned tensors that it consists of, if it has no data: only moved, cast or decoded, not applied to data."""


NOTHING = Content(0, frozenset())

_ROUNDS = 16
"""Most rounds; each carries contents through one more level of nested graphs and functions, and few are needed."""

_MANY = 64
"""Most learned tensors that are kept for a value; the rest is dropped."""


class Streams(Mutable):
    """Contents of every value. Data begin at the inputs of a model, and at nodes that have an owner."""

    ledger: Ledger
    nodes: Mapping[Place, Owner]
    """Owners of nodes; a node's result from data or weights is its owner's data."""
    inputs: Mapping[Key, Owner]
    """Owners of the inputs of the model."""
    holders: Mapping[GraphPath, list[Place]]
    """Nodes that hold each nested graph, or call each function."""
    appliers: dict[Place, frozenset[Key]] = field(default_factory=dict)
    """Nodes without an owner that compute with data and learned tensors, and these tensors."""
    _weights: dict[Key, Content] = field(default_factory=dict)
    _read: dict[Place, Content] = field(default_factory=dict)
    _made: dict[Place, Content] = field(default_factory=dict)

    def __post_init__(self) -> None:
        learned = [entry.tensor.key for entry in self.ledger.entries if entry.role is Role.PARAMETER]
        self._weights = {key: Content(0, frozenset([key])) for key in learned}
        carried: dict[Place, list[Content]] = defaultdict(list)
        for tensor in self.ledger.model.tensors():
            if tensor.node is not None and tensor.carrier not in NAMED:
                carried[tensor.graph_path, tensor.node].append(self.of(tensor))
        bodies: dict[Place, list[Key]] = defaultdict(list)
        outputs = {part.path: part.outputs for part in self.ledger.model.graphs}
        for path, places in self.holders.items():
            for place in places:
                bodies[place] += [(path, name) for name in outputs[path]]
        for _ in range(_ROUNDS):
            if not self._carry(bodies, carried):
                break

    def of(self, provider: Provider | None) -> Content:
        """Return the content of a value, by its provider."""
        match provider:
            case Node():
                return self._made.get(provider.place, NOTHING)
            case StoredTensor():
                return self._weights.get(provider.key, NOTHING)
            case GraphInput(path=path) if path in self.holders:
                return _join(self._read.get(holder, NOTHING) for holder in self.holders[path])
            case GraphInput():
                return Content(self.inputs.get((provider.path, provider.name), 0), NOTHING.weights)
        return NOTHING

    def _carry(self, bodies: Mapping[Place, list[Key]], carried: Mapping[Place, list[Content]]) -> bool:
        """Carry contents through every node once, in file order; return whether the content of any node changed."""
        has_changed = False
        find = self.ledger.wiring.look_up
        for node in self.ledger.model.nodes():
            place, path = node.place, node.graph_path
            parts = [self.of(find(path, name)) for name in node.inputs if name]
            read = _join(parts + carried[place]) if place in carried else _join(parts)
            whole = (
                _join([read, *(self.of(find(*key)) for key in bodies[place])]) if place in bodies else read
            )
            made = self._make(node, whole)
            if read != self._read.get(place, NOTHING) or made != self._made.get(place, NOTHING):
                has_changed = True
                self._read[place], self._made[place] = read, made
        return has_changed

    def _make(self, node: Node, read: Content) -> Content:
        if read == NOTHING or node.op_type in MEASURES:
            return NOTHING
        owner = self.nodes.get(node.place)
        if owner is not None:
            return Content(owner, NOTHING.weights)
        if read.data and read.weights:
            self.appliers[node.place] = read.weights
        return Content(read.data, NOTHING.weights) if read.data else read


def _join(contents: Iterable[Content]) -> Content:
    data, weights = 0, NOTHING.weights
    for content in contents:
        if content is not NOTHING:
            data |= content.data
            weights = weights | content.weights if weights else content.weights
    if len(weights) > _MANY:
        weights = frozenset(sorted(weights)[:_MANY])
    return Content(data, weights) if data or weights else NOTHING


_MOST = 2_000
"""Most groups that can be joined: edges may lead from each to every other."""

_ROUNDS_OF_JOINING = 16
"""Most rounds; each follows the edges once, in the order of the file, and two are nearly always enough."""

_Passing = dict[Vertex, dict[Key, Owner]]
"""For each vertex, the values that it reads from groups that are left out, and the owners of their data."""


def join_learned(crossings: Crossings, labels: Collection[Label]) -> tuple[Edges, Collection[Vertex]]:
    """Return the edges between groups with learned tensors, and these groups; all other groups are left out.

    Only data flow; values from shapes and constants alone make no edge. Data that pass through other groups make an
    edge only if no other path leads there: a residual stream is not an edge from each layer to all later ones.

    Raises:
        UsageError: there are too many groups.
    """
    if len(labels) > _MOST:
        raise UsageError(
            f"--learned: {len(labels):,} groups, more than the {_MOST:,} that can be joined; "
            "use --all, or a smaller --depth"
        )
    crossings, kept = _join_weight_groups(crossings, {("group", label) for label in labels})
    sources, streams = _trace(crossings, kept)
    edges: Edges = {}
    passing: _Passing = defaultdict(dict)
    for target, key, provider in crossings.readings():
        if target[0] == "group" and target not in kept:
            continue
        content = streams.of(provider)
        for weight in sorted(content.weights):
            add(edges, crossings.owners[weight], target, READ, weight, crossings.entries[weight])
        if not content.data:
            continue
        if isinstance(provider, Node) and (source := crossings.group(provider.place)) in kept:
            add(edges, source, target, FLOW, key)
        else:
            passing[target][key] = content.data
    _add_passing(edges, sources, passing)
    crossings.add_copies(edges)
    return edges, kept


def _join_weight_groups(
    crossings: Crossings, learned: Collection[Vertex]
) -> tuple[Crossings, Collection[Vertex]]:
    """Keep nodes outside these groups that compute with their learned tensors.

    A node without a group of its own, such as one that a quantizer made, joins the group of its weights. The group of
    any other node is kept too, such as that of an embedding tied to the head.
    """
    homes = dict(crossings.by_node)
    kept = set(learned)
    _, streams = _trace(crossings, learned)
    for place, weights in streams.appliers.items():
        owners = {crossings.owners[weight] for weight in weights}
        if len(owners) == 1 and all(text.startswith("[") for text in homes[place]):
            ((_, homes[place]),) = owners
        else:
            kept.add(crossings.group(place))
    return Crossings(crossings.ledger, crossings.labels, homes), kept


def _trace(crossings: Crossings, kept: Collection[Vertex]) -> tuple[list[Vertex], Streams]:
    model = crossings.ledger.model
    model_inputs = [("input", part.path, name) for part in open_graphs(model) for name in part.inputs]
    sources: list[Vertex] = [*sorted(kept), *model_inputs]
    bits = {vertex: 1 << number for number, vertex in enumerate(sources)}
    groups = ((node.place, crossings.group(node.place)) for node in model.nodes())
    return sources, Streams(
        crossings.ledger,
        nodes={place: bits[group] for place, group in groups if group in kept},
        inputs={(path, name): bits["input", path, name] for _, path, name in model_inputs},
        holders=crossings.holders,
    )


def _add_passing(edges: Edges, sources: Sequence[Vertex], passing: _Passing) -> None:
    bits = {vertex: 1 << number for number, vertex in enumerate(sources)}
    leading: dict[Vertex, Owner] = defaultdict(int)
    for source, target, kind in list(edges):
        if kind == FLOW:
            leading[target] |= bits[source]
    direct = dict(leading)
    for target, values in passing.items():
        for owners in values.values():
            leading[target] |= owners & ~bits.get(target, 0)
    detours = _find_detours(sources, leading)
    for target, values in passing.items():
        needed = direct.get(target, 0) | leading[target] & ~detours[target]
        for key, owners in values.items():
            for number in _numbers(owners & needed):
                add(edges, sources[number], target, FLOW, key)


def _find_detours(sources: Sequence[Vertex], leading: Mapping[Vertex, Owner]) -> dict[Vertex, Owner]:
    """Return, for each vertex, the sources that also reach it through another of its sources.

    In a cycle everything leads to everything, so members of one cycle are no detours for each other.
    """
    above = _find_all_above(sources, leading)
    around = [
        sum(1 << other for other in _numbers(mask) if above[other] >> number & 1) if mask >> number & 1 else 0
        for number, mask in enumerate(above)
    ]
    detours = dict.fromkeys(leading, 0)
    places = {vertex: number for number, vertex in enumerate(sources)}
    for target, owners in leading.items():
        circle = around[places[target]] if target in places else 0
        for number in _numbers(owners & ~circle):
            detours[target] |= above[number] & ~around[number]
    return detours


def _find_all_above(sources: Sequence[Vertex], leading: Mapping[Vertex, Owner]) -> list[Owner]:
    """Return all sources that lead to each source, directly or through others."""
    above = [0] * len(sources)
    places = {vertex: number for number, vertex in enumerate(sources)}
    order = [(places[vertex], owners) for vertex, owners in leading.items() if vertex in places]
    for _ in range(_ROUNDS_OF_JOINING):
        before = list(above)
        for number, owners in order:
            above[number] |= owners
            for other in _numbers(owners):
                above[number] |= above[other]
        if above == before:
            break
    return above


def _numbers(owners: Owner) -> Iterator[int]:
    """Yield the positions of the bits that are set."""
    while owners:
        lowest = owners & -owners
        yield lowest.bit_length() - 1
        owners ^= lowest
