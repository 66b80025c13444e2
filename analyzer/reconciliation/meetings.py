"""Where stored tensors meet activations, and the nodes that move, decode or change them on the way there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from analyzer.account.ledger import Entry
from analyzer.model import Node, Place, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.model.operators import DECODES, MOVES, Kind, Slot, kind_of, operator_of
from analyzer.model.wiring import Reader, Wiring
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.fixed import Fixed
from analyzer.records import Frozen

_MOST_STEPS, _STEPS_FOR_EACH = 1 << 19, 8
"""Nodes that are looked at behind all tensors, each as often as it is come by: so many, or so many for each node."""
_MOST_READERS = 64
"""Nodes behind one value that are looked at."""


class Meeting(Frozen):
    """Where a stored tensor meets an activation."""

    node: Node
    slot: int
    way: tuple[Reader, ...]
    """The nodes that move, decode or change it before, and at which input each reads it."""


class UntracedError(Exception):
    """More nodes stand behind a tensor than are followed."""


_Way: TypeAlias = "tuple[Reader, _Way] | None"
"""The last node on a way, and the way before it: ways that part share what they have in common."""


class Follower:
    """What becomes of stored tensors, until activations meet them."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.fixed = Fixed(books.ledger.wiring)
        nodes = sum(len(graph.nodes) for graph in books.ledger.model.graphs)
        self._left = max(_MOST_STEPS, _STEPS_FOR_EACH * nodes)

    def meetings(self, entry: Entry) -> Iterator[Meeting]:
        """The nodes at which a stored tensor meets an activation, or a product of stored tensors, once each.

        Raises:
            UntracedError: there are too many on the way.
        """
        wiring, live, fixed = self.books.ledger.wiring, self.books.ledger.live, self.fixed
        is_matrix = sum(dim > 1 for dim in self.books.contents.shape(entry)) > 1
        waiting: list[tuple[Reader, _Way, bool]] = [
            (reader, None, True) for reader in wiring.readers(entry.tensor)
        ]
        seen: set[tuple[Place, int, bool]] = set()
        while waiting:
            self._left -= 1
            if self._left < 0:
                raise UntracedError
            reader, way, is_kept = waiting.pop()
            node, slot = reader
            known, state = operator_of(node), (node.place, slot, is_kept)
            is_dead = live is not None and node.place not in live.nodes
            if known is None or slot < 0 or state in seen or is_dead:
                continue
            seen.add(state)
            if known.slot(slot) is Slot.INDEX or known.kind is Kind.MEASURES:
                continue
            is_looked_up = known.kind is Kind.LOOKS_UP
            if is_looked_up and (is_matrix or not fixed(node)):
                yield Meeting(node, slot, _whole(way))
            if is_looked_up and not fixed(node):
                continue
            if not (_hands_on(reader) or is_looked_up) and _is_met(
                wiring, fixed, reader, is_matrix=is_matrix
            ):
                yield Meeting(node, slot, _whole(way))
                continue
            waiting += [(each, (reader, way), is_kept and keeps(reader)) for each in _onward(wiring, node)]


def _whole(way: _Way) -> tuple[Reader, ...]:
    """The nodes on a way, in their order."""
    nodes: list[Reader] = []
    while way is not None:
        reader, way = way
        nodes.append(reader)
    return tuple(reversed(nodes))


def _hands_on(reader: Reader) -> bool:
    """Whether an input's elements come out as they are, or decoded."""
    known = operator_of(reader.node)
    return reader.node.op_type in MOVES | DECODES and (
        known is None or known.kind is Kind.DECODES or known.hands_on(reader.slot)
    )


def keeps(reader: Reader) -> bool:
    """Whether a node computes nothing of what it is given: it moves or decodes it, or casts it to a type of reals."""
    if reader.node.op_type == "Cast":
        return DType.from_onnx(reader.node.integers.get("to", 1)) in _REALS
    return _hands_on(reader) or kind_of(reader.node) is Kind.LOOKS_UP


_REALS = frozenset({DType.DOUBLE, DType.FLOAT, DType.FLOAT16, DType.BFLOAT16})


def _is_met(wiring: Wiring, fixed: Fixed, reader: Reader, *, is_matrix: bool) -> bool:
    """Whether a node brings a tensor together with what is none of its kind: an activation, or products of weights."""
    node, known = reader.node, operator_of(reader.node)
    if known is None or not fixed(node):
        return True
    if known.kind in (Kind.PRODUCT, Kind.CONVOLUTION, Kind.RECURRENT, Kind.ATTENTION):
        return len(node.inputs) > 1
    if known.kind is Kind.NORMALIZES:
        # A table of positions may be normalized, as DeBERTa's is.
        return known.slot(reader.slot) is not Slot.DATA or (is_matrix and len(node.inputs) > 1)
    return _has_product(wiring, reader)


def _onward(wiring: Wiring, node: Node) -> list[Reader]:
    """Who reads what a node gives, and what an If gives of it."""
    found, graph = wiring.readers(node), wiring.graphs.get(node.graph_path)
    holder = None if graph is None or graph.parent is None else wiring.node_at(graph.parent)
    if graph is not None and holder is not None and holder.op_type == "If":
        given = zip(graph.outputs, holder.outputs, strict=False)
        names = {outer for inner, outer in given if inner in node.outputs}
        outside = wiring.readers(holder) if names else []
        found = [*found, *(reader for reader in outside if reader.node.inputs[reader.slot] in names)]
    return found


_COMPUTES = frozenset({Kind.PRODUCT, Kind.CONVOLUTION, Kind.NORMALIZES})


def _has_product(wiring: Wiring, reader: Reader) -> bool:
    """Whether what a node of stored values adds to a tensor is a product: positions go through layers too."""
    others = [name for slot, name in enumerate(reader.node.inputs) if slot != reader.slot and name]
    providers = (wiring.find(reader.node.graph_path, name) for name in others)
    return any(
        kind_of(node) in _COMPUTES
        for found in providers
        if isinstance(found, Node)
        for node in behind(wiring, found)
        if isinstance(node, Node)
    )


def behind(wiring: Wiring, node: Node) -> Iterator[StoredTensor | Node]:
    """A node of stored values alone, and the nodes and stored tensors that it computes with, a few of them."""
    waiting, seen = [node], {node.place}
    while waiting and len(seen) < _MOST_READERS:
        found = waiting.pop()
        yield found
        for provider in wiring.producers(found):
            if isinstance(provider, StoredTensor):
                yield provider
            elif provider.place not in seen:
                seen.add(provider.place)
                waiting.append(provider)
