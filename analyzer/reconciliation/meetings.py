"""Stored tensor -> the nodes at which it meets activations, and the nodes that move, decode or change it before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analyzer.account.ledger import Entry
from analyzer.model import Node, Place, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.model.operators import DECODES, MOVES, Kind, Slot, kind_of, operator_of
from analyzer.model.tracking import Tracker
from analyzer.model.wiring import Reader, Wiring
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.fixed import Fixed
from analyzer.reconciliation.layouts import follows_axes
from analyzer.records import Frozen

_MOST_STEPS, _STEPS_FOR_EACH = 1 << 19, 8
"""Limit of steps through nodes, for all tensors together: the larger of a constant and a multiple of all nodes."""
_MOST_READERS = 64
"""Most nodes that `find_upstream` visits."""


STRAIGHT = DECODES | {"Identity", "QuantizeLinear", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators that keep the order of elements along each axis."""

_PASSING = MOVES | DECODES | {"SequenceAt", "SplitToSequence"}
"""Operators that pass elements on unchanged, or decoded."""


class NodePath:
    """Path of nodes with their input slots, from the first on. Paths with the same end share it."""

    __slots__ = (
        *("after", "is_coded", "is_fixed", "is_followed", "is_kept"),
        *("last", "looks_up", "moved", "reader"),
    )

    def __init__(self, reader: Reader, after: NodePath | None, *, is_fixed: bool) -> None:
        node, kind = reader.node, kind_of(reader.node)
        self.reader = reader
        self.after = after
        self.last: Node = node if after is None else after.last
        self.moved: Node | None = None if after is None else after.moved
        """Last node on the path that may reorder elements."""
        if self.moved is None and node.op_type not in STRAIGHT:
            self.moved = node
        self.is_kept: bool = keeps_values(reader) and (after is None or after.is_kept)
        """Whether no node on the path changes a value."""
        self.is_followed: bool = follows_axes(node) and (after is None or after.is_followed)
        """Whether `find_uses` follows the axes along the whole path."""
        self.is_fixed: bool = is_fixed and (after is None or after.is_fixed)
        """Whether all nodes on the path compute from stored values alone."""
        self.is_coded: bool = kind is Kind.QUANTIZES or (after is not None and after.is_coded)
        self.looks_up: bool = kind is Kind.LOOKS_UP or (after is not None and after.looks_up)

    def __iter__(self) -> Iterator[Reader]:
        path: NodePath | None = self
        while path is not None:
            yield path.reader
            path = path.after


class Meeting(Frozen):
    """Node and input slot at which a stored tensor meets an activation."""

    node: Node
    slot: int
    path: NodePath | None
    """Path of the nodes that move, decode or change it before; None if there are none."""

    @property
    def changes(self) -> list[Node]:
        """Nodes on the path that change it."""
        return [] if self.is_kept else [step.node for step in self.path or () if not keeps_values(step)]

    @property
    def is_kept(self) -> bool:
        return self.path is None or self.path.is_kept

    @property
    def moved(self) -> Node | None:
        """Last node on the path that may reorder its elements."""
        return None if self.path is None else self.path.moved

    @property
    def is_coded(self) -> bool:
        """Whether it is quantized on the path."""
        return self.path is not None and self.path.is_coded


class UntracedError(Exception):
    """More nodes follow a tensor than the limit of steps allows."""


class _Step(Frozen):
    """Reader of a followed value."""

    reader: Reader
    is_met: bool
    continues: bool
    """Whether its output is followed too."""


class Follower:
    """Follower of stored tensors to the activations that they meet. Each node's readers are visited once."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.fixed = books.fixed
        self.tracker = Tracker(books.ledger.model, books.ledger.wiring)
        nodes = sum(len(graph.nodes) for graph in books.ledger.model.graphs)
        self._remaining_steps = max(_MOST_STEPS, _STEPS_FOR_EACH * nodes)
        self._behind: dict[tuple[Place, bool], tuple[Meeting, ...]] = {}

    def meetings(self, entry: Entry) -> Iterator[Meeting]:
        """Yield the meetings of a stored tensor with activations, or with products of stored tensors.

        A node counts once for values that arrive unchanged, and once for changed ones.

        Raises:
            UntracedError: too many nodes follow.
        """
        is_matrix = sum(dim > 1 for dim in self.books.contents.shape(entry)) > 1
        steps = self._steps(self.books.ledger.wiring.readers(entry.tensor), is_matrix=is_matrix)
        for step in steps:
            if step.continues:
                self._look_behind(step.reader.node, is_matrix=is_matrix)
        yield from self._gather(steps, is_matrix=is_matrix)

    def _look_behind(self, node: Node, *, is_matrix: bool) -> None:
        """Record the meetings after a node, and after its successors: these first, without recursion."""
        waiting, opened = [node], dict[Place, list[_Step]]()
        while waiting:
            top = waiting[-1]
            if (top.place, is_matrix) in self._behind:
                waiting.pop()
            elif top.place in opened:
                self._behind[top.place, is_matrix] = self._gather(opened[top.place], is_matrix=is_matrix)
                waiting.pop()
            else:
                steps = self._steps(_next_readers(self.books.ledger.wiring, top), is_matrix=is_matrix)
                opened[top.place] = steps
                # A node that is opened but not recorded is on a cycle, and has no meetings.
                waiting += [
                    step.reader.node
                    for step in steps
                    if step.continues and step.reader.node.place not in opened
                ]

    def _steps(self, readers: Iterable[Reader], *, is_matrix: bool) -> list[_Step]:
        wiring, live, fixed = self.books.ledger.wiring, self.books.ledger.live, self.fixed
        steps: list[_Step] = []
        for reader in readers:
            self._count_step()
            node, slot = reader
            known = operator_of(node)
            if known is None or slot < 0 or (live is not None and node.place not in live.nodes):
                continue
            if known.slot(slot) is Slot.INDEX or known.kind is Kind.MEASURES:
                continue
            if known.kind is Kind.LOOKS_UP:
                continues = fixed(node)
                steps.append(_Step(reader, is_matrix or not continues, continues))
            else:
                is_met = not _passes_on(reader) and _is_met(wiring, fixed, reader, is_matrix=is_matrix)
                steps.append(_Step(reader, is_met, not is_met))
        return steps

    def _gather(self, steps: Iterable[_Step], *, is_matrix: bool) -> tuple[Meeting, ...]:
        """Return the meetings at some nodes and after them."""
        found: dict[tuple[Place, int, bool], Meeting] = {}
        for step in steps:
            reader = step.reader
            if step.is_met:
                found.setdefault(
                    (reader.node.place, reader.slot, True), Meeting(reader.node, reader.slot, None)
                )
            for each in self._behind.get((reader.node.place, is_matrix), ()) if step.continues else ():
                self._count_step()
                path = NodePath(reader, each.path, is_fixed=self.fixed(reader.node))
                key = (each.node.place, each.slot, path.is_kept)
                if key not in found:
                    found[key] = Meeting(each.node, each.slot, path)
        return tuple(found.values())

    def _count_step(self) -> None:
        self._remaining_steps -= 1
        if self._remaining_steps < 0:
            raise UntracedError


def _passes_on(reader: Reader) -> bool:
    """Whether a node passes an input's elements on, unchanged or decoded."""
    known = operator_of(reader.node)
    return reader.node.op_type in _PASSING and (
        known is None or known.kind is Kind.DECODES or known.passes_on(reader.slot)
    )


def keeps_values(reader: Reader) -> bool:
    """Whether a node computes nothing: it moves or decodes its input, or casts it to a floating-point type."""
    if reader.node.op_type == "Cast":
        return DType.from_onnx(reader.node.integers.get("to", 1)) in _REALS
    return _passes_on(reader) or kind_of(reader.node) is Kind.LOOKS_UP


_REALS = frozenset({DType.DOUBLE, DType.FLOAT, DType.FLOAT16, DType.BFLOAT16})


def _is_met(wiring: Wiring, fixed: Fixed, reader: Reader, *, is_matrix: bool) -> bool:
    """Whether a node combines a tensor with an activation, or with a product of weights."""
    node, known = reader.node, operator_of(reader.node)
    if known is None or not fixed(node):
        return True
    if known.kind in (Kind.PRODUCT, Kind.CONVOLUTION, Kind.RECURRENT, Kind.ATTENTION):
        return len(node.inputs) > 1
    if known.kind is Kind.NORMALIZES:
        # A table of positions may be normalized, as DeBERTa's is.
        return known.slot(reader.slot) is not Slot.DATA or (is_matrix and len(node.inputs) > 1)
    return _has_product(wiring, reader)


def _next_readers(wiring: Wiring, node: Node) -> list[Reader]:
    """Return the readers of a node's outputs, and of the If outputs that pass them on."""
    found, graph = wiring.readers(node), wiring.graphs.get(node.graph_path)
    holder = None if graph is None or graph.parent is None else wiring.node_at(graph.parent)
    if graph is not None and holder is not None and holder.op_type == "If":
        output_pairs = zip(graph.outputs, holder.outputs, strict=False)
        names = {outer for inner, outer in output_pairs if inner in node.outputs}
        outside = wiring.readers(holder) if names else []
        found = [*found, *(reader for reader in outside if reader.node.inputs[reader.slot] in names)]
    return found


_COMPUTES = frozenset({Kind.PRODUCT, Kind.CONVOLUTION, Kind.NORMALIZES})


def _has_product(wiring: Wiring, reader: Reader) -> bool:
    """Whether another operand of a node of stored values comes from a product: layers may process positions too."""
    others = [name for slot, name in enumerate(reader.node.inputs) if slot != reader.slot and name]
    providers = (wiring.find(reader.node.graph_path, name) for name in others)
    return any(
        kind_of(node) in _COMPUTES
        for found in providers
        if isinstance(found, Node)
        for node in find_upstream(wiring, found)
        if isinstance(node, Node)
    )


def find_upstream(wiring: Wiring, node: Node) -> Iterator[StoredTensor | Node]:
    """Yield a node of stored values, and the nodes and stored tensors upstream of it, up to a limit."""
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
