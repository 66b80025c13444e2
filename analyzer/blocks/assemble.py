"""The layouts of all graphs of a model -> the spots of its nodes and entries, in runs that are numbered through."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from analyzer.blocks.flow import Flow, find_holders
from analyzer.blocks.lists import Lists, has_matrix
from analyzer.blocks.units import OUTSIDE, Layout, Owner, Slot, lay_out, lay_out_named
from analyzer.ledger import Entry, Role
from analyzer.model import GraphPath, Model, Place
from analyzer.wiring import Reader, Wiring

__all__ = ["OUTSIDE", "Arrangement", "Named", "Spot", "arrange"]

_Order = tuple[int, ...]
"""A place in the order of the whole model: the component, then in each graph that it is in, from the outermost."""

_DEEPEST = 256
"""Length of the place in the order of a graph in which no more blocks are looked for: that of 64 within each other."""

_MANY = 2
"""Nodes with weights without which a graph has no blocks."""


class Spot(NamedTuple):
    """Where something is: in a unit of a block of a run; outside, before a run."""

    run: int
    """Number of the run; outside, how many are before it."""
    block: int = OUTSIDE
    unit: int = 0
    is_after: bool = False
    """Outside: whether the last run of its model file is before it."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The runs of a model, and the spots of its nodes and entries."""

    counts: tuple[int, ...]
    """Blocks of each run."""
    nodes: Mapping[GraphPath, Sequence[Spot]]
    """Of each graph, in the order of its nodes."""
    entries: tuple[Spot, ...]
    """In the order of the entries."""
    readers: tuple[Reader | None, ...] = ()
    """What reads each entry first, in the order of the entries."""
    lists: tuple[int, ...] = ()
    """Where names tell the blocks: the list that each run is."""


@dataclass(frozen=True, slots=True)
class Named:
    """The blocks that names tell."""

    lists: Lists
    owners: Mapping[Place, Owner]
    """The nodes that names put in a block: of which list, and which of it."""
    told: Set[Place]
    """The nodes that names tell of, in a block or in none."""


@dataclass(frozen=True, slots=True)
class _Laid:
    """One graph with its layout, and where it is in the whole."""

    flow: Flow
    layout: Layout
    prefix: _Order
    held: tuple[GraphPath, int] | None
    """The graph and the vertex that all of it is in, where that is in a block."""
    lists: tuple[int, ...] = ()
    """Where names tell the blocks: the list that each run is."""

    def order(self, vertex: int) -> _Order:
        slot = self.layout.slots[vertex]
        return (*self.prefix, slot.run, int(slot.block != OUTSIDE), self.layout.places[vertex], vertex)


def arrange(
    model: Model,
    entries: Sequence[Entry],
    wiring: Wiring,
    flows: Mapping[GraphPath, Flow],
    named: Named | None = None,
) -> Arrangement:
    """Find the runs of all graphs, those of `named` if it is given, and number them in the order of the computation."""
    laid = _lay_out_all(model, flows, named)
    lists = {
        (*graph.prefix, run, 1): graph.lists[run] if graph.lists else OUTSIDE
        for graph in laid.values()
        if graph.held is None
        for run in range(len(graph.layout.counts))
    }
    keys = sorted(lists)
    everywhere = _Finder(laid, keys)
    kept = {
        everywhere.spot_of_reader(reader).run
        for entry in entries
        if entry.role is Role.PARAMETER and has_matrix(entry)
        for reader in wiring.readers(entry.tensor, inlined=False)
        if everywhere.spot_of_reader(reader).block != OUTSIDE
    }
    keys = [key for run, key in enumerate(keys) if run in kept]  # norms in a row are no blocks
    counts = {
        (*graph.prefix, run, 1): count
        for graph in laid.values()
        for run, count in enumerate(graph.layout.counts)
    }
    finder = _Finder(laid, keys)
    read = [finder.in_order(wiring.readers(entry.tensor, inlined=False)) for entry in entries]
    return Arrangement(
        counts=tuple(counts[key] for key in keys),
        nodes={path: finder.spots_of_nodes(path) for path in laid},
        entries=tuple(map(finder.spot_of_entry, entries, read)),
        readers=tuple(found[0] if found else None for found in read),
        lists=() if named is None else tuple(lists[key] for key in keys),
    )


def _lay_out_all(
    model: Model, flows: Mapping[GraphPath, Flow], named: Named | None
) -> dict[GraphPath, _Laid]:
    """Every graph, after the one that it is in."""
    holders = find_holders(model)
    laid: dict[GraphPath, _Laid] = {}
    roots = 0
    for graph in model.graphs:
        inwards = [graph.path]
        around = {graph.path}
        while (holder := holders.get(inwards[-1])) is not None and holder[0] not in laid:
            if holder[0] in around:  # functions that call each other in a circle
                del holders[inwards[-1]]
                break
            inwards.append(holder[0])
            around.add(holder[0])
        for path in reversed(inwards):
            if path not in laid:
                laid[path] = _lay_out_one(flows[path], holders.get(path), laid, roots, named)
                roots += path not in holders
    return laid


def _lay_out_one(
    flow: Flow, holder: Place | None, laid: Mapping[GraphPath, _Laid], number: int, named: Named | None
) -> _Laid:
    is_large = sum(1 for sizes in flow.sizes if sizes) >= _MANY
    layout = lay_out(flow) if is_large else Layout.empty(len(flow.nodes))
    lists: tuple[int, ...] = ()
    if named is not None:
        places = [node.place for node in flow.nodes]
        owners = [named.owners.get(place) for place in places]
        told = [place in named.told for place in places]
        layout, lists = lay_out_named(flow, owners, told, [len(members) for members in named.lists], layout)
    if holder is None:
        return _Laid(flow, layout, (number,), None, lists)
    around = laid[holder[0]]
    vertex = around.flow.vertices[holder[1]]
    if len(around.prefix) > _DEEPEST:
        return _Laid(flow, Layout.empty(len(flow.nodes)), around.prefix, (holder[0], vertex))
    if around.held is not None:
        return _Laid(flow, layout, around.prefix, around.held, lists)
    is_inside = around.layout.slots[vertex].block != OUTSIDE
    return _Laid(flow, layout, around.order(vertex), (holder[0], vertex) if is_inside else None, lists)


@dataclass(frozen=True, slots=True)
class _Finder:
    """Answers where vertices and entries are."""

    laid: Mapping[GraphPath, _Laid]
    keys: Sequence[_Order]
    """Of the runs, in order."""
    _spots: dict[GraphPath, dict[Slot, Spot]] = field(default_factory=lambda: defaultdict(dict))
    """Of each graph those in blocks that have been asked for."""

    def spot(self, path: GraphPath, vertex: int) -> Spot:
        graph = self.laid[path]
        if graph.held is not None:
            path, vertex = graph.held
            graph = self.laid[path]
        slot = graph.layout.slots[vertex]
        if slot.block == OUTSIDE:
            return self._outside(graph.order(vertex))
        found = self._spots[path].get(slot)
        if found is None:
            key = (*graph.prefix, slot.run, 1)
            run = bisect.bisect_left(self.keys, key)
            if run == len(self.keys) or self.keys[run] != key:
                return self._outside(graph.order(vertex))
            found = self._spots[path][slot] = Spot(run, slot.block, slot.unit)
        return found

    def spots_of_nodes(self, path: GraphPath) -> list[Spot]:
        """The spots of the nodes of a graph, in their order."""
        graph = self.laid[path]
        slots, known = graph.layout.slots, self._spots[path]
        return [known.get(slots[vertex]) or self.spot(path, vertex) for vertex in graph.flow.vertices]

    def in_order(self, readers: list[Reader]) -> list[Reader]:
        """Readers in the order of the computation."""
        return readers if len(readers) < 2 else sorted(readers, key=self._order)

    def _order(self, reader: Reader) -> tuple[_Order, int, int]:
        path, vertex = self._where(reader)
        return self.laid[path].order(vertex), reader.node.position, reader.slot

    def _where(self, reader: Reader) -> tuple[GraphPath, int]:
        path = reader.node.graph_path
        graph = self.laid[path]
        return graph.held or (path, graph.flow.vertex(*reader))

    def spot_of_reader(self, reader: Reader) -> Spot:
        return self.spot(*self._where(reader))

    def spot_of_entry(self, entry: Entry, readers: Sequence[Reader]) -> Spot:
        """Of a learned tensor where it is first read; of any other that several blocks read, before them."""
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
