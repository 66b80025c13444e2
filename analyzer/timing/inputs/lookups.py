"""Model + wiring -> what becomes of each input: the table that it indexes, the weight that it is multiplied with."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analyzer.model import GraphPath, Key, Model, Node, Place, StoredTensor
from analyzer.wiring import GraphInput, Provider, Reader, Wiring

__all__ = ["Lookups", "Use", "look_up"]

_MOST = 10_000
"""Nodes that are looked at from one input."""
_MOST_OF_ALL = 1_000_000
"""Nodes that are looked at from all inputs together."""
_LONGEST = 100
"""Nodes and callers that are followed back from one."""

_MOVES = frozenset(
    {
        "Cast",
        "CastLike",
        "Clip",
        "Concat",
        "Expand",
        "Flatten",
        "Identity",
        "Max",
        "Min",
        "Pad",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators whose output has the numbers of their input. What else they are given says how, and is not followed."""
_ADDS = frozenset({"Add", "Sub"})
_TABLES: Mapping[str, Mapping[int, int]] = {
    "Gather": {1: 0},
    "GatherND": {1: 0},
    "GatherBlockQuantized": {1: 0},
    "EmbedLayerNormalization": {0: 2, 1: 4, 8: 3},
    "QEmbedLayerNormalization": {0: 2, 1: 4},
    "RotaryEmbedding": {1: 2},
}
"""For each operator, the input that indexes and the input that is the table."""
_GATHERS = frozenset({"Gather", "GatherBlockQuantized", "GatherND"})
_PREPARES = frozenset({"Cast", "DequantizeLinear", "Identity", "QuantizeLinear", "Transpose", "Mul"})
"""What may stand between a stored table and the node that reads it; its first input is the table."""
_PRODUCTS = frozenset(
    {"MatMul", "Gemm", "MatMulInteger", "FusedMatMul", "DynamicQuantizeMatMul", "MatMulNBits"}
)
_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "QLinearConv", "FusedConv"})
_SEARCHES = frozenset({"BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"})
"""They hold graphs that they give their first input; the others are settings."""


class Use(NamedTuple):
    """What the graph does with an input."""

    rows: int | None = None
    """Of the smallest table that its elements index."""
    is_index: bool = False
    """Whether it also indexes what is no stored table."""
    features: int | None = None
    """What its last axis has to be, as it is multiplied with a weight."""
    channels: int | None = None
    """What its second axis has to be, as it is convolved."""


@dataclass(frozen=True, slots=True)
class Lookups:
    """What the wiring tells of inputs."""

    uses: Mapping[str, Use]
    positions: int | None
    """Rows of the smallest table that is indexed by position: the longest sequence."""


def look_up(model: Model, wiring: Wiring) -> Lookups:
    """Follow each input of the main graph."""
    trace = _Trace(model, wiring)
    main = model.graphs[0]
    return Lookups({name: trace.use(main.path, name) for name in main.inputs}, trace.positions())


class _Trace:
    """Values, followed from node to node: into nested graphs and functions, and out of them."""

    def __init__(self, model: Model, wiring: Wiring) -> None:
        self.model = model
        self.wiring = wiring
        self.left = _MOST_OF_ALL
        self.readers: dict[Key, list[Reader]] = defaultdict(list)
        self.bodies: dict[Place, list[GraphPath]] = defaultdict(list)
        self.callers: dict[GraphPath, Node] = {}
        self.inputs = {graph.path: graph.inputs for graph in model.graphs}
        nodes = {graph.path: graph.nodes for graph in model.graphs}
        calls = wiring.calls
        for graph in model.graphs:
            if graph.parent is not None:
                self.bodies[graph.parent].append(graph.path)
                self.callers[graph.path] = nodes[graph.parent[0]][graph.parent[1]]
            for node in graph.nodes:
                self._read(node)
                if calls and (called := calls.get(node.place)) is not None:
                    self.bodies[node.place].append(called)
                    self.callers.setdefault(called, node)

    def _read(self, node: Node) -> None:
        for slot, name in enumerate(node.inputs):
            place = self.wiring.place(node.graph_path, name) if name else None
            if place is not None:
                self.readers[place, name].append(Reader(node, slot))

    def use(self, path: GraphPath, name: str) -> Use:
        """What becomes of an input, as far as it is only moved."""
        rows: list[int] = []
        features = channels = None
        is_index = False
        for (node, slot), offset in self._reached((path, name)):
            if (table := _TABLES.get(node.op_type, {}).get(slot)) is not None:
                found = self._rows(node, table)
                is_index |= found is None
                if found is not None:
                    rows.append(found - offset)
            elif slot == 0 and node.op_type in _PRODUCTS:
                features = features or self._features(node)
            elif slot == 0 and node.op_type in _CONVOLUTIONS:
                channels = channels or self._channels(node)
        return Use(min(rows, default=None), is_index, features, channels)

    def _reached(self, start: Key) -> Iterator[tuple[Reader, int]]:
        """Every node that reads a value or what only moves it, and what was added to it on the way."""
        waiting, seen, looked = [(start, 0)], {start}, 0
        while waiting and looked < min(_MOST, self.left):
            key, offset = waiting.pop()
            for reader in itertools.islice(self.readers.get(key, ()), _MOST):
                looked += 1
                yield reader, offset
                for following, more in self._onwards(reader):
                    if following not in seen:
                        seen.add(following)
                        waiting.append((following, offset + more))
        self.left -= looked

    def _onwards(self, reader: Reader) -> Iterator[tuple[Key, int]]:
        node, slot = reader
        for body in self.bodies.get(node.place, ()):
            if slot < len(self.inputs[body]) and not (slot and node.op_type in _SEARCHES):
                yield (body, self.inputs[body][slot]), 0
        moves = (slot == 0 or node.op_type in ("Concat", "Max", "Min")) and node.op_type in _MOVES
        added = self._added(node, slot)
        if moves or added is not None or (node.op_type == "Where" and slot > 0):
            yield from (((node.graph_path, name), added or 0) for name in node.outputs if name)

    def _added(self, node: Node, slot: int) -> int | None:
        """The stored number that a node adds to its input; None where it is another node."""
        if node.op_type not in _ADDS or len(node.inputs) != 2 or (node.op_type == "Sub" and slot):
            return None
        number = self._number(node.graph_path, node.inputs[1 - slot])
        return number if number is None or node.op_type == "Add" else -number

    def _number(self, path: GraphPath, name: str) -> int | None:
        found = self._stored(path, name)
        if found is None or found[0].numel != 1 or not found[0].dtype.is_integer:
            return None
        array = found[0].payload.array()
        return None if array is None else int(array.reshape(-1)[0])

    def _provider(self, path: GraphPath, name: str) -> Provider | None:
        """What provides a value: where a graph is given it, what its caller provides."""
        for _ in range(_LONGEST):
            found = self.wiring.look_up(path, name)
            if not isinstance(found, GraphInput) or found.path not in self.callers:
                return found
            caller = self.callers[found.path]
            index = self.inputs[found.path].index(found.name)
            if index >= len(caller.inputs):
                return found
            path, name = caller.graph_path, caller.inputs[index]
        return None

    def _table(self, node: Node, slot: int) -> tuple[StoredTensor, bool] | None:
        """The stored tensor that a node's input is, and whether it is turned on the way."""
        return self._stored(node.graph_path, node.inputs[slot]) if slot < len(node.inputs) else None

    def _stored(self, path: GraphPath, name: str) -> tuple[StoredTensor, bool] | None:
        is_turned = False
        for _ in range(_LONGEST):
            found = self._provider(path, name)
            if isinstance(found, StoredTensor):
                return found, is_turned
            if not isinstance(found, Node) or found.op_type not in _PREPARES or not found.inputs:
                return None
            is_turned ^= found.op_type == "Transpose"
            path, name = found.graph_path, found.inputs[0]
        return None

    def _rows(self, node: Node, slot: int) -> int | None:
        found = self._table(node, slot)
        if found is None:
            return None
        table, is_turned = found
        axis = node.integers.get("axis", node.integers.get("gather_axis", 0))
        rank = len(table.shape)
        if not -rank <= axis < rank or rank == 0:
            return None
        return table.shape[-1 - axis % rank if is_turned else axis]

    def _features(self, node: Node) -> int | None:
        if node.op_type == "MatMulNBits":
            return node.integers.get("K")
        found = self._table(node, 1)
        if found is None or len(found[0].shape) != 2:
            return None
        return found[0].shape[found[1] ^ bool(node.integers.get("transB", 0))]

    def _channels(self, node: Node) -> int | None:
        found = self._table(node, {"QLinearConv": 3}.get(node.op_type, 1))
        if found is None or len(found[0].shape) < 3:
            return None
        return found[0].shape[1] * node.integers.get("group", 1)

    def positions(self) -> int | None:
        """Rows of the smallest table whose index is computed from lengths, and from no input's elements."""
        limits = []
        for node in self.model.nodes():
            if node.op_type == "EmbedLayerNormalization" and len(node.inputs) > 3:
                limits.append(self._rows(node, 3))
            elif node.op_type in _GATHERS and len(node.inputs) > 1:
                limits.append(self._positions(node))
        return min((limit for limit in limits if limit is not None), default=None)

    def _positions(self, node: Node) -> int | None:
        """The sequence that a lookup by position allows; None for any other lookup."""
        table = self._table(node, 0)
        if (
            table is None
            or len(table[0].shape) != 2
            or not (table[0].dtype.bits <= 8 or table[0].dtype.is_floating)
        ):
            return None
        rows = self._rows(node, 0)
        index = self._index(node.graph_path, node.inputs[1])
        if rows is None or index is None:
            return None
        offset, length = index
        return rows - offset if length is None else min(rows - offset, length)

    def _index(self, path: GraphPath, name: str) -> tuple[int, int | None] | None:
        """What is added to consecutive numbers, and how many there are if they are stored; None for other values."""
        offset = 0
        for _ in range(_LONGEST):
            found = self._provider(path, name)
            if isinstance(found, StoredTensor):
                length = _consecutive(found)
                return None if length is None else (offset, length)
            if not isinstance(found, Node) or not found.inputs:
                return None
            if found.op_type in ("Range", "CumSum"):
                return offset + (found.op_type == "CumSum"), None
            slot = 0
            if found.op_type in _ADDS:
                added = [self._added(found, side) for side in (0, 1)]
                slot = 0 if added[0] is not None else 1
                if added[slot] is None:
                    return None
                offset += added[slot] or 0
            elif found.op_type not in _MOVES and found.op_type not in ("Mul", "Gather"):
                return None
            path, name = found.graph_path, found.inputs[slot]
        return None


def _consecutive(tensor: StoredTensor) -> int | None:
    """How many numbers a stored tensor has if they are 0, 1, 2, ...; None for any other."""
    if not tensor.dtype.is_integer or not 1 < tensor.numel <= 1 << 20 or tensor.shape[-1] != tensor.numel:
        return None
    array = tensor.payload.array()
    is_range = array is not None and bool((array.reshape(-1) == np.arange(tensor.numel)).all())
    return tensor.numel if is_range else None
