"""Entries + data flow -> number of nodes that compute with each entry, and other modules that do.

A node computes with a tensor that it reads directly, or through nodes that read only stored tensors: nodes that
transpose, cast, decode, or multiply it by another stored tensor. Parts cut out of one tensor are used side by side, so
the part with the most uses counts. Bodies of Loop and Scan count once, because the file does not say how often they
run; of an If the branch with the most uses counts; a local function's body counts as often as the function is called.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from analyzer.account.ledger import Entry, Role
from analyzer.model import GraphPath, Key, Model, Node, Place
from analyzer.model.dataflow import Dataflow
from analyzer.model.functions import Calls
from analyzer.model.wiring import Wiring
from analyzer.records import Mutable, replace

_CUTS = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "Split"})
"""Operators that take a part of their first input. A node that only prepares a tensor has a stored selection."""

_Piece = tuple[str, ...]
"""Part of a tensor, given by the cuts that led to it; () is the whole."""

_Uses = dict[_Piece, set[int]]
"""Nodes that compute with each part of a tensor."""

_STEPS = 16
"""Readers of prepared values that are visited, per tensor and node of a model, on average. An exporter makes one to
three.
"""

_MOST_CUTS = 64
"""Longest description of a part, in words; parts with longer ones are not told apart."""


def count_applications(
    model: Model,
    entries: Sequence[Entry],
    wiring: Wiring,
    flow: Dataflow,
    scopes: Mapping[Place, str],
    calls: Iterable[Calls],
) -> tuple[Entry, ...]:
    """Add to each entry how often it or a copy is computed with, and which other modules compute with it.

    Args:
        model: the model.
        entries: entries of all stored tensors, with copies and scopes known.
        wiring: providers and readers of all values.
        flow: data flow between the nodes.
        scopes: scope of each node that has one.
        calls: number of calls of each local function.
    """
    walk = _Walk(wiring, flow, _STEPS * (len(entries) + len(flow.nodes)))
    originals = {entry.copy_of for entry in entries}
    found: list[_Uses | int] = []
    """Uses of each entry, or, as for nearly every tensor, the number of the only node that reads and computes."""
    repeated: dict[Key, _Uses] = {}
    has_copies = originals != {None}
    read_by = wiring.read_by([entry.tensor for entry in entries])
    for entry, readers in zip(entries, read_by, strict=True):
        is_alone = not has_copies or (entry.copy_of is None and entry.tensor.key not in originals)
        if is_alone and len(readers) == 1:
            node = readers[0][0]
            number = flow.numbers[node.graph_path].start + node.position
            if not flow.measures[number] and not flow.prepares[number]:  # the node computes with its input
                found.append(number)
                continue
        key, reads = entry.tensor.key, flow.reads(entry.tensor)
        uses = walk.uses(reads) if reads else {}
        found.append(uses)
        if not is_alone:
            repeated[key] = uses
    for entry in entries:
        if entry.copy_of in repeated:
            for piece, numbers in repeated[entry.tensor.key].items():
                repeated[entry.copy_of].setdefault(piece, set()).update(numbers)
    weights = _Weights(model, flow, calls)
    is_one = len(model.graphs) == 1
    counted: list[Entry] = []
    for entry, entry_uses in zip(entries, found, strict=True):
        shared: tuple[str, ...] = ()
        if isinstance(entry_uses, int):
            applications = 1 if is_one else max(1, weights.count((entry_uses,)))
        else:
            applications = max(1, sum(weights.count(numbers) for numbers in _parallel_uses(entry_uses)))
            shared = _other_modules(entry, entry_uses, flow, scopes)
        is_new = applications != entry.applications or shared != entry.shared_with
        counted.append(replace(entry, applications=applications, shared_with=shared) if is_new else entry)
    return tuple(counted)


def _parallel_uses(uses: _Uses) -> Iterable[set[int]]:
    """Yield the uses of the whole tensor, and the uses of the part that has most."""
    parts = [numbers for piece, numbers in uses.items() if piece]
    if () in uses:
        yield uses[()]
    if parts:
        yield max(parts, key=len)


class _Walk(Mutable):
    """Search from stored tensors for the nodes that compute with them."""

    wiring: Wiring
    flow: Dataflow
    steps: int
    """Steps left: in a file made to exhaust them only direct readers are counted."""

    def uses(self, reads: Iterable[tuple[int, int]]) -> _Uses:
        """Return the nodes that compute with a tensor, given its readers as (node number, input slot)."""
        found: _Uses = defaultdict(set)
        seen: set[tuple[int, _Piece]] = set()
        waiting: list[tuple[int, _Piece]] = []
        self._read(reads, (), found, waiting)
        while waiting and self.steps > 0:
            number, piece = waiting.pop()
            if (number, piece) not in seen:
                seen.add((number, piece))
                self._pass_on(number, piece, found, waiting)
        return found

    def _pass_on(self, number: int, piece: _Piece, found: _Uses, waiting: list[tuple[int, _Piece]]) -> None:
        """Continue with the readers of a node that prepares a tensor; each output of a Split is a part of its own."""
        node, numbers = self.flow.nodes[number], self.flow.numbers
        outputs = {name: str(index) for index, name in enumerate(node.outputs)}
        readers = self.wiring.readers(node, inlined=False)
        self.steps -= len(readers) + 1
        is_split = node.op_type == "Split" and len(piece) < _MOST_CUTS
        for reader, slot in readers:
            part = (*piece, outputs[reader.inputs[slot]]) if is_split else piece
            self._read([(numbers[reader.graph_path][reader.position], slot)], part, found, waiting)

    def _read(
        self,
        readers: Iterable[tuple[int, int]],
        piece: _Piece,
        found: _Uses,
        waiting: list[tuple[int, _Piece]],
    ) -> None:
        """Record the nodes that compute with a part, and queue the nodes that prepare or cut it."""
        for number, slot in readers:
            node = self.flow.nodes[number]
            if self.flow.measures[number]:
                continue
            if not self.flow.prepares[number]:
                found[piece].add(number)
            elif node.op_type in _CUTS and slot == 0 and len(piece) < _MOST_CUTS:
                waiting.append((number, (*piece, *_describe_cut(node, number))))
            else:
                waiting.append((number, piece))


def _describe_cut(node: Node, number: int) -> tuple[str, ...]:
    """Return words that identify a cut of a tensor; a cut given by attributes alone is one of its own."""
    along = repr(sorted(node.integers.items()))
    if node.op_type == "Split":
        return node.op_type, str(len(node.outputs)), along
    where = node.inputs[1:]
    return (node.op_type, *where, along) if any(where) else (f"#{number}",)


class _Weights:
    """Weight of a node in the count, which depends on its graph."""

    def __init__(self, model: Model, flow: Dataflow, calls: Iterable[Calls]) -> None:
        self.model, self.flow = model, flow
        self.order = {graph.path: number for number, graph in enumerate(model.graphs)}
        self.parents = {graph.path: graph.parent for graph in model.graphs if graph.parent is not None}
        self.calls = {found.function.path: 1 if found.calls is None else found.calls for found in calls}

    def count(self, numbers: Collection[int]) -> int:
        """Count these nodes with bodies inlined; for an artifact, return the count of the file that has most."""
        if len(self.order) == 1:
            return len(numbers)
        own = Counter(self.flow.nodes[number].graph_path for number in numbers)
        inner: dict[GraphPath, Counter[Place]] = defaultdict(Counter)
        roots: Counter[GraphPath] = Counter()
        waiting = [(-self.order[path], path) for path in own]
        heapq.heapify(waiting)
        while waiting:  # bodies come before the graphs that hold them
            _, path = heapq.heappop(waiting)
            total = own[path] + sum(inner[path].values())
            parent = self.parents.get(path)
            if parent is None:
                roots[self.model.root(path)] += total * self.calls.get(path, 1)
                continue
            around = parent[0]
            if around not in own and around not in inner:
                heapq.heappush(waiting, (-self.order[around], around))
            is_choice = self.flow.nodes[self.flow.numbers[parent[0]][parent[1]]].op_type == "If"
            known = inner[around][parent]
            inner[around][parent] = max(known, total) if is_choice else known + total
        return max(roots.values(), default=0)


def _other_modules(entry: Entry, uses: _Uses, flow: Dataflow, scopes: Mapping[Place, str]) -> tuple[str, ...]:
    """Return modules that compute with a learned tensor and are neither inside nor around its own module.

    If all nodes that compute with it belong to one module, the tensor is used only there, whatever its name.
    """
    is_learned = entry.role is Role.PARAMETER or entry.role is Role.BUFFER
    if not is_learned or not entry.has_scope or sum(map(len, uses.values())) < 2:
        return ()
    nodes = (flow.nodes[number] for numbers in uses.values() for number in numbers)
    found = {scopes.get((node.graph_path, node.position)) for node in nodes}
    known_scopes = {scope for scope in found if scope is not None}
    if len(known_scopes) < 2:
        return ()
    return tuple(
        sorted(s for s in known_scopes if not _is_within(s, entry.scope) and not _is_within(entry.scope, s))
    )


def _is_within(scope: str, module: str) -> bool:
    return not module or f"{scope}.".startswith(f"{module}.")
