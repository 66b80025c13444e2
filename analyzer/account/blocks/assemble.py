"""Layouts of all graphs of a model -> spots of its nodes and entries in numbered runs, and the module of each block.

Structure gives the number of blocks. If names are known, they give the members of each block.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from analyzer.account.blocks.flow import Flow, find_holders
from analyzer.account.blocks.lists import Lists, has_matrix
from analyzer.account.blocks.units import OUTSIDE, GraphLayout, Owner, RunPlace, lay_out, lay_out_named
from analyzer.account.ledger import Blocks, Entry, Role, in_entry_order
from analyzer.model import GraphPath, Key, Model, Place
from analyzer.model.operators import MEASURES
from analyzer.model.wiring import Reader, Wiring
from analyzer.records import Frozen, field, replace

# spots

_Order = tuple[int, ...]
"""Position in the order of the whole model: the component, then the position in each graph, outermost first."""

_DEEPEST = 256
"""Longest position of a graph in which blocks are still searched: that of 64 nested graphs."""

_MAIN_GRAPH_KEY_LENGTH = 3
"""Length of the key of a run in a main graph."""

_FEWEST_WEIGHTED = 2
"""Fewest nodes with weights in a graph that has blocks."""


class Spot(NamedTuple):
    """Position of an entry or a node: in a unit of a block of a run, or outside, before a run."""

    run: int
    """Number of the run; outside, the number of runs before it."""
    block: int = OUTSIDE
    unit: int = 0
    is_after: bool = False
    """Whether it is outside, after the last run of its model file."""


class Arrangement(Frozen):
    """The runs of a model, and the spots of its nodes and entries."""

    counts: tuple[int, ...]
    """Number of blocks of each run."""
    nodes: Mapping[GraphPath, Sequence[Spot]]
    """Spots by graph, in the order of its nodes."""
    entries: tuple[Spot, ...]
    """Spots in the order of the entries."""
    readers: tuple[Reader | None, ...] = ()
    """First reader of each entry, in the order of the entries."""
    lists: tuple[int, ...] = ()
    """List of named blocks that each run is; empty if names are not used."""


class NamedBlocks(Frozen):
    """The blocks given by names."""

    lists: Lists
    owners: Mapping[GraphPath, Sequence[Owner | None]]
    """Blocks of a graph's nodes, in order: the number of the list of named blocks, and of the block in it."""
    placed: Mapping[GraphPath, Sequence[bool]]
    """Flags of a graph's nodes: whether names place a node. A node that they place without an owner is in no block."""

    def find(self, flow: Flow, path: GraphPath) -> tuple[list[Owner | None], list[bool]]:
        """Return the block in which names put each vertex of a graph, and whether names place the vertex at all."""
        owners: list[Owner | None] = [None] * len(flow.nodes)
        placed = [False] * len(flow.nodes)
        for vertex, owner, is_placed in zip(flow.vertices, self.owners[path], self.placed[path], strict=True):
            owners[vertex], placed[vertex] = owner, is_placed
        for second, first in flow.firsts.items():
            owners[first], placed[first] = owners[second], placed[second]
        return owners, placed


class _LaidOut(Frozen):
    """One graph with its layout, and its position in the model."""

    flow: Flow
    layout: GraphLayout
    prefix: _Order
    container: tuple[GraphPath, int] | None
    """The graph and the vertex that contain this graph, if they are in a block."""
    lists: tuple[int, ...] = ()
    """List of named blocks that each run is; empty if names are not used."""

    def order(self, vertex: int) -> _Order:
        slot = self.layout.slots[vertex]
        return (*self.prefix, slot.run, int(slot.block != OUTSIDE), self.layout.places[vertex], vertex)


def arrange(
    model: Model,
    entries: Sequence[Entry],
    wiring: Wiring,
    flows: Mapping[GraphPath, Flow],
    layouts: dict[GraphPath, GraphLayout],
    named_blocks: NamedBlocks | None = None,
) -> Arrangement:
    """Find the runs of all graphs, or those of `named_blocks`, and number them in the order of computation.

    Args:
        model: the model.
        entries: entries of all stored tensors.
        wiring: providers and readers of all values.
        flows: data flow of each graph.
        layouts: layout of each graph according to structure; missing ones are added.
        named_blocks: the blocks given by names.
    """
    laid_out = _lay_out_all(model, flows, layouts, named_blocks)
    lists = {
        (*graph.prefix, run, 1): graph.lists[run] if graph.lists else OUTSIDE
        for graph in laid_out.values()
        if graph.container is None
        for run in range(len(graph.layout.counts))
    }
    keys = sorted(lists)
    all_runs = _Finder.of(laid_out, keys)
    kept: set[int] = set()
    read_by = wiring.read_by([entry.tensor for entry in entries])
    for entry, readers in zip(entries, read_by, strict=True):
        if len(kept) == len(keys):
            break
        if entry.role is Role.PARAMETER and has_matrix(entry):
            spots = map(all_runs.spot_of_reader, readers)
            kept.update(spot.run for spot in spots if spot.block != OUTSIDE)
    keys = [key for run, key in enumerate(keys) if run in kept]  # consecutive norms are no blocks
    counts = {
        (*graph.prefix, run, 1): count
        for graph in laid_out.values()
        for run, count in enumerate(graph.layout.counts)
    }
    finder = _Finder.of(laid_out, keys)
    nodes = {path: finder.spots_of_nodes(path) for path in laid_out}
    plain = {path: spots for path, spots in nodes.items() if not flows[path].firsts}
    read: list[Reader | None] = []
    placed: list[Spot] = []
    for entry, readers in zip(entries, read_by, strict=True):
        if len(readers) > 1:
            readers = finder.in_order(_without_shape_readers(readers))
        first = readers[0] if readers else None
        read.append(first)
        # This holds for nearly all entries.
        if first is not None and len(readers) == 1 and first[0].graph_path in plain:
            placed.append(plain[first[0].graph_path][first[0].position])
        else:
            placed.append(finder.spot_of_entry(entry, readers))
    return Arrangement(
        counts=tuple(counts[key] for key in keys),
        nodes=nodes,
        entries=tuple(placed),
        readers=tuple(read),
        lists=() if named_blocks is None else tuple(lists[key] for key in keys),
    )


def _without_shape_readers(readers: list[Reader]) -> list[Reader]:
    """Return the readers without those that only read a shape, if there are others."""
    return [reader for reader in readers if reader.node.op_type not in MEASURES] or readers


def _lay_out_all(
    model: Model,
    flows: Mapping[GraphPath, Flow],
    layouts: dict[GraphPath, GraphLayout],
    named_blocks: NamedBlocks | None,
) -> dict[GraphPath, _LaidOut]:
    """Lay out every graph, after the graph that contains it."""
    for path, flow in flows.items():
        if path not in layouts:
            is_large = sum(1 for sizes in flow.sizes if sizes) >= _FEWEST_WEIGHTED
            layouts[path] = lay_out(flow) if is_large else GraphLayout.empty(len(flow.nodes))
    holders = find_holders(model)
    laid_out: dict[GraphPath, _LaidOut] = {}
    roots = 0
    for graph in model.graphs:
        enclosing = [graph.path]
        around = {graph.path}
        while (holder := holders.get(enclosing[-1])) is not None and holder[0] not in laid_out:
            if holder[0] in around:  # functions that call each other in a cycle
                del holders[enclosing[-1]]
                break
            enclosing.append(holder[0])
            around.add(holder[0])
        for path in reversed(enclosing):
            if path not in laid_out:
                holder = holders.get(path)
                laid_out[path] = _lay_out_one(
                    path, flows[path], layouts[path], holder, laid_out, roots, named_blocks
                )
                roots += path not in holders
    return laid_out


def _lay_out_one(
    path: GraphPath,
    flow: Flow,
    layout: GraphLayout,
    holder: Place | None,
    laid_out: Mapping[GraphPath, _LaidOut],
    number: int,
    named_blocks: NamedBlocks | None,
) -> _LaidOut:
    lists: tuple[int, ...] = ()
    if named_blocks is not None:
        owners, placed = named_blocks.find(flow, path)
        layout, lists = lay_out_named(
            flow, owners, placed, [len(members) for members in named_blocks.lists], layout
        )
    if holder is None:
        return _LaidOut(flow, layout, (number,), None, lists)
    around = laid_out[holder[0]]
    vertex = around.flow.vertices[holder[1]]
    if len(around.prefix) > _DEEPEST:
        return _LaidOut(flow, GraphLayout.empty(len(flow.nodes)), around.prefix, (holder[0], vertex))
    if around.container is not None:
        return _LaidOut(flow, layout, around.prefix, around.container, lists)
    is_inside = around.layout.slots[vertex].block != OUTSIDE
    return _LaidOut(flow, layout, around.order(vertex), (holder[0], vertex) if is_inside else None, lists)


class _Finder(Frozen):
    """Lookup of the spots of vertices and entries."""

    laid_out: Mapping[GraphPath, _LaidOut]
    keys: Sequence[_Order]
    """Keys of the runs, in order."""
    is_flat: bool
    """Whether all runs are in main graphs: then the slot of a vertex gives its spot, also outside the blocks."""
    _spots: dict[GraphPath, dict[RunPlace, Spot]] = field(default_factory=lambda: defaultdict(dict))
    """Cache, by graph, of spots that depend only on the slot."""
    _of_nodes: dict[GraphPath, list[Spot]] = field(default_factory=dict)
    """Cache, by graph, of the spots of all its nodes."""

    @classmethod
    def of(cls, laid_out: Mapping[GraphPath, _LaidOut], keys: Sequence[_Order]) -> _Finder:
        return cls(laid_out, keys, all(len(key) == _MAIN_GRAPH_KEY_LENGTH for key in keys))

    def spot(self, path: GraphPath, vertex: int) -> Spot:
        graph = self.laid_out[path]
        if graph.container is not None:
            path, vertex = graph.container
            graph = self.laid_out[path]
        slot = graph.layout.slots[vertex]
        known = self._spots[path]
        found = known.get(slot)
        if found is None:
            found = self._find(graph, slot, vertex)
            if self.is_flat or found.block != OUTSIDE:
                known[slot] = found
        return found

    def _find(self, graph: _LaidOut, slot: RunPlace, vertex: int) -> Spot:
        if slot.block != OUTSIDE:
            key = (*graph.prefix, slot.run, 1)
            run = bisect.bisect_left(self.keys, key)
            if run < len(self.keys) and self.keys[run] == key:
                return Spot(run, slot.block, slot.unit)
        return self._outside(graph.order(vertex))

    def spots_of_nodes(self, path: GraphPath) -> list[Spot]:
        """Return the spots of a graph's nodes, in order."""
        graph = self.laid_out[path]
        slots, known = graph.layout.slots, self._spots[path]
        found = [known.get(slots[vertex]) or self.spot(path, vertex) for vertex in graph.flow.vertices]
        self._of_nodes[path] = found
        return found

    def in_order(self, readers: list[Reader]) -> list[Reader]:
        """Sort readers in the order of computation."""
        return sorted(readers, key=self._order)

    def _order(self, reader: Reader) -> tuple[_Order, int, int]:
        path, vertex = self._where(reader)
        return self.laid_out[path].order(vertex), reader.node.position, reader.slot

    def _where(self, reader: Reader) -> tuple[GraphPath, int]:
        path = reader.node.graph_path
        graph = self.laid_out[path]
        return graph.container or (path, graph.flow.vertex(*reader))

    def spot_of_reader(self, reader: Reader) -> Spot:
        node, slot = reader
        path = node.graph_path
        flow = self.laid_out[path].flow
        if path in self._of_nodes and not flow.firsts:
            return self._of_nodes[path][node.position]
        return self.spot(path, flow.vertex(node, slot))

    def spot_of_entry(self, entry: Entry, readers: Sequence[Reader]) -> Spot:
        """Return the spot of a learned tensor's first reader; others that several blocks read are before them."""
        if not readers:
            return Spot(0)
        first = self.spot_of_reader(readers[0])
        if entry.role is Role.PARAMETER or len(readers) == 1:
            return first
        others = map(self.spot_of_reader, readers[1:])
        if any(other[:2] != first[:2] for other in others):
            return first if first.block == OUTSIDE else Spot(first.run)
        return first

    def _outside(self, order: _Order) -> Spot:
        run = bisect.bisect_left(self.keys, order)
        is_after = run > 0 and self.keys[run - 1][0] == order[0]
        is_last = run == len(self.keys) or self.keys[run][0] != order[0]
        return Spot(run, is_after=is_after and is_last)


# modules

_MOST_MODULES = 0.9
"""Least share of a block's elements in one module for the block to be named after that module."""

_DEEPEST_MODULE = 32
"""Most parts of a scope that are used."""

Modules = tuple[tuple[str, ...], ...]
"""For each run the modules of its blocks, or nothing."""

_Weights = Mapping[str, int]
"""Elements by scope."""


def name_blocks(found: Arrangement, entries: Sequence[Entry]) -> Modules:
    """Return the module of each block of each run: the shortest one that tells the blocks of the run apart.

    If all blocks use one module's weights (ALBERT), each block has that module.
    """
    weights: list[list[dict[str, int]]] = [[{} for _ in range(count)] for count in found.counts]
    for entry, spot in zip(entries, found.entries, strict=True):
        if spot.block != OUTSIDE and entry.role is Role.PARAMETER and entry.has_scope:
            elements = weights[spot.run][spot.block]
            elements[entry.scope] = elements.get(entry.scope, 0) + entry.logical_numel
    return tuple(map(_name_run, weights))


def _name_run(blocks: Sequence[_Weights]) -> tuple[str, ...]:
    known = [block for block in blocks if block]
    if len(known) == 1 and blocks[0]:
        module = _deepest_common(blocks[0])
        return (module,) * len(blocks) if module else ()
    if len(known) < len(blocks):
        return ()
    for depth in range(1, _DEEPEST_MODULE):
        names: dict[str, None] = {}  # an ordered set
        for block in blocks:
            name = _module_at(block, depth)
            if not name:
                return ()
            if name in names:
                break
            names[name] = None
        else:
            return tuple(names)
    return ()


def _module_at(block: _Weights, depth: int) -> str:
    """Return the module at a depth that holds most of a block; "" if there is none."""
    if len(block) == 1:
        [scope] = block
        return ".".join(scope.split(".", depth)[:depth]) if scope.count(".") + 1 >= depth else ""
    totals: Counter[str] = Counter()
    for scope, elements in block.items():
        if scope.count(".") + 1 >= depth:
            totals[".".join(scope.split(".", depth)[:depth])] += elements
    module, elements = max(totals.items(), key=lambda item: item[1], default=("", 0))
    return module if elements >= _MOST_MODULES * sum(block.values()) else ""


def _deepest_common(block: _Weights) -> str:
    module = ""
    for depth in range(1, _DEEPEST_MODULE):
        deeper = _module_at(block, depth)
        if not deeper:
            break
        module = deeper
    return module


def merge_runs(found: Arrangement, modules: Modules) -> tuple[Arrangement, Modules]:
    """Merge runs whose blocks are the same modules: the files of an artifact may hold one decoder twice."""
    kept: dict[object, int] = {}
    numbers = [kept.setdefault(names or run, len(kept)) for run, names in enumerate(modules)]
    if len(kept) == len(modules):
        return found, modules
    firsts: dict[int, int] = {}
    for run, number in enumerate(numbers):
        firsts.setdefault(number, run)
    numbers.append(len(kept))  # for spots after the last run

    def renumber(spot: Spot) -> Spot:
        return spot._replace(run=numbers[spot.run])

    merged = replace(
        found,
        counts=tuple(found.counts[run] for run in firsts.values()),
        nodes={path: list(map(renumber, spots)) for path, spots in found.nodes.items()},
        entries=tuple(map(renumber, found.entries)),
    )
    return merged, tuple(modules[run] for run in firsts.values())


def correct_spots(found: Arrangement, entries: Sequence[Entry], modules: Modules) -> tuple[Spot, ...]:
    """Return the spots of the entries, with each learned tensor whose name is in a block's module in that block.

    A tensor that structure puts into a block, and whose name is in no block's module, is outside: after the last block
    of the last run if it was found in that block, else before the run.
    """
    owners = {
        name: (run, block)
        for run, names in reversed(list(enumerate(modules)))
        for block, name in reversed(list(enumerate(names)))
    }
    if not owners:
        return found.entries
    shared = {run for run, names in enumerate(modules) if len(set(names)) == 1}
    parents: set[str] = set()
    for name in owners:
        for part in ancestors(name):
            if part in parents:
                break
            parents.add(part)
    wanted: dict[str, tuple[int, int] | None] = {}
    spots = []
    for entry, spot in zip(entries, found.entries, strict=True):
        if entry.role is Role.PARAMETER and entry.has_scope:
            scope = entry.scope
            owner = owners.get(scope)
            if owner is None:
                if scope not in wanted:
                    around = (owners[part] for part in ancestors(scope) if part in owners)
                    wanted[scope] = next(around, None)
                owner = wanted[scope]
            if owner is None:
                if spot.block != OUTSIDE and modules[spot.run] and scope not in parents:
                    spot = _outside(found, spot)
            elif (spot[0] != owner[0] or spot[1] != owner[1]) and not (
                spot.run == owner[0] and spot.run in shared and spot.block != OUTSIDE
            ):
                spot = Spot(*owner, spot.unit if spot.block != OUTSIDE else 0)
        spots.append(spot)
    return tuple(spots)


def gather_copies(spots: Sequence[Spot], entries: Sequence[Entry]) -> tuple[Spot, ...]:
    """Move a tensor with copies to the first spot where it or one of them is read: the first block that uses it."""
    firsts: dict[Key, Spot] = {}
    for entry, spot in zip(entries, spots, strict=True):
        if entry.copy_of is not None:
            firsts[entry.copy_of] = min(firsts.get(entry.copy_of, spot), spot)
    if not firsts:
        return tuple(spots)
    return tuple(
        min(spot, firsts.get(entry.tensor.key, spot)) for entry, spot in zip(entries, spots, strict=True)
    )


def _outside(found: Arrangement, spot: Spot) -> Spot:
    is_last = spot.run == len(found.counts) - 1 and spot.block == found.counts[spot.run] - 1
    return Spot(spot.run + is_last, is_after=is_last)


def ancestors(scope: str) -> Iterator[str]:
    """Yield a scope and the modules around it, the deepest first."""
    if scope.count(".") >= _DEEPEST_MODULE:
        scope = ".".join(scope.split(".", _DEEPEST_MODULE)[:_DEEPEST_MODULE])
    while scope:
        yield scope
        scope = scope.rpartition(".")[0]


def assign_block_scopes(entries: Sequence[Entry], blocks: Blocks) -> tuple[Entry, ...]:
    """Give entries without a scope the module of their block, if other names tell that module.

    This is the last rule after those of `analyzer.account.scopes.owners`.
    """
    if all(entry.has_scope for entry in entries):
        return tuple(entries)
    modules = {
        f"block.{run.first + number}": module
        for run in blocks.runs
        for number, module in enumerate(run.modules)
    }
    if not modules:
        return tuple(entries)
    found = []
    for entry, member in zip(entries, in_entry_order(entries, blocks.entries), strict=True):
        module = "" if entry.has_scope or member is None else modules.get(member.block, "")
        found.append(replace(entry, scope=module, scoped_by="structure:block") if module else entry)
    return tuple(found)
