"""Flow -> function of each learned tensor, given by the operator that computes with it: attention, feed-forward, ...

Sources: ONNX docs/Operators.md, onnxruntime docs/ContribOperators.md; Vaswani et al., "Attention Is All You Need"
(2017), section 3.2, for the definition of attention: a product of two activations before or after a softmax.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from functools import cached_property

from analyzer.account.blocks.flow import NONE, Flow
from analyzer.model import Node, StoredTensor
from analyzer.model.operators import Kind, Slot, operator_of, operators_of
from analyzer.model.wiring import Reader

ATTENTION = "attention"
FEED_FORWARD = "feed-forward"
NORM = "norm"
EMBEDDING = "embedding"
CONVOLUTION = "convolution"
RECURRENT = "recurrent"
LINEAR = "linear"
"""A linear map outside every block: a projection of embeddings, a pooler, a head."""
OTHER = "other"

_LINEAR = operators_of(Kind.PRODUCT)
_ATTENTION = operators_of(Kind.ATTENTION)
_CONVOLUTIONS = operators_of(Kind.CONVOLUTION)
_RECURRENT = operators_of(Kind.RECURRENT)
_EMBEDDINGS = frozenset({"EmbedLayerNormalization", "QEmbedLayerNormalization"})
_TABLES = operators_of(Kind.LOOKS_UP) - _EMBEDDINGS
_NORMS = operators_of(Kind.NORMALIZES)
_BIASES = {"SkipLayerNormalization": frozenset({4}), "SkipSimplifiedLayerNormalization": frozenset({3})}
"""Inputs of a norm that hold the bias of the linear map before it."""

_OPERANDS = frozenset({Slot.DATA, Slot.LEARNED, Slot.CODES})
_EMBEDDING_NORMS = frozenset({5, 6})
"""Inputs of embedding operators that belong to the norm."""

_MOMENTS = frozenset(
    {"InstanceNormalization", "LpNormalization", "ReduceL2", "ReduceMean", "ReduceSumSquare"}
)
"""Operators that compute the mean or the length in a decomposed norm."""

_SCALES = frozenset({"Div", "Mul"})
_ROLE_BY_OPERATOR = {
    **dict.fromkeys(_EMBEDDINGS | _TABLES, EMBEDDING),
    **dict.fromkeys(_NORMS, NORM),
    **dict.fromkeys(_CONVOLUTIONS, CONVOLUTION),
    **dict.fromkeys(_RECURRENT, RECURRENT),
    **dict.fromkeys(_ATTENTION, ATTENTION),
}
"""Operators that give the function of all, or nearly all, of their weights."""

_DECIDED_BY_OPERATOR = _ROLE_BY_OPERATOR.keys() | _BIASES.keys()
"""Operators whose name, and possibly input, is tried first."""

_BEFORE_VECTORS = _MOMENTS | _NORMS | _CONVOLUTIONS
"""Operators that give the function of a vector that is added to their result."""

_SOFTMAX = frozenset({"BiasSoftmax", "QLinearSoftmax", "Softmax"})

_SORTED_OPERATORS = _LINEAR | _SOFTMAX | _ATTENTION

_NEAR = 8
"""Most steps from a moment, or a linear map, to the vectors that scale or shift its result."""


class Roles:
    """Functions of the learned tensors of one flow."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._linear: set[int] = set()
        self._products: set[int] = set()
        self._softmaxes: list[int] = []
        self._attention: list[int] = []
        for vertex, node in enumerate(flow.nodes):
            if node.op_type in _SORTED_OPERATORS:
                self._sort(vertex, node)
        self._attended = self._find_attended()
        self._users: dict[int, int] = {}
        """First vertex that computes with the value of a static vertex, past others that only pass it on."""
        for vertex in sorted(flow.conduits, reverse=True):
            user = self._users.get(vertex, vertex)
            self._users.update(dict.fromkeys(flow.conduits[vertex], user))

    def of(self, reader: Reader, tensor: StoredTensor, is_inside: bool) -> str:
        """Return the function of a learned tensor for one of its readers; `is_inside` means inside a block."""
        flow = self._flow
        vertex = flow.vertex(*reader)
        if (
            vertex in self._linear and flow.nodes[vertex].op_type not in _DECIDED_BY_OPERATOR
        ):  # true of nearly all
            return self._by_product(vertex, is_inside)
        slot = reader.slot
        if self._flow.static[vertex] and not (slot == 0 and self._is_table(vertex)) and vertex in self._users:
            vertex, slot = self._users[vertex], -1
        if self._flow.static[vertex]:
            return EMBEDDING if self._is_table(vertex) else OTHER
        found = self._by_operator(vertex, slot, tensor)
        if found is not None:
            return found
        # A table holds weights of experts, which are chosen by number.
        if vertex in self._linear or self._is_table(vertex):
            return self._by_product(vertex, is_inside)
        if len(tensor.shape) - tensor.shape.count(1) > 1:
            return ATTENTION if is_inside else EMBEDDING
        return self._vector(vertex, is_inside)

    def _by_operator(self, vertex: int, slot: int, tensor: StoredTensor) -> str | None:
        op_type = self._flow.nodes[vertex].op_type
        found = _ROLE_BY_OPERATOR.get(op_type)
        if op_type in _EMBEDDINGS and slot in _EMBEDDING_NORMS:
            return NORM
        if op_type in _BIASES and slot in _BIASES[op_type]:
            return None
        if op_type in _TABLES and len(tensor.shape) > 2:
            return None
        return found

    def _is_table(self, vertex: int) -> bool:
        return self._flow.nodes[vertex].op_type in _TABLES

    def _by_product(self, vertex: int, is_inside: bool) -> str:
        if vertex in self._attended:
            return ATTENTION
        return FEED_FORWARD if is_inside else LINEAR

    def _vector(self, vertex: int, is_inside: bool) -> str:
        """Return the function of a vector: a bias has its linear map's; a scale or shift after a moment is a norm's."""
        moments, distances, deciders = self._near
        before = self._flow.before[vertex]
        if self._flow.nodes[vertex].op_type in _SCALES:
            return NORM if any(moments[source] < _NEAR for source in before) else OTHER
        nearest = min(before, key=distances.__getitem__, default=NONE)
        if nearest == NONE or distances[nearest] >= _NEAR:
            return OTHER
        decider = deciders[nearest]
        if decider in self._linear:
            return self._by_product(decider, is_inside)
        return CONVOLUTION if self._flow.nodes[decider].op_type in _CONVOLUTIONS else NORM

    @cached_property
    def _near(self) -> tuple[list[int], list[int], list[int]]:
        """Return per vertex: steps to the nearest moment, steps to the nearest vertex that tells, and that vertex."""
        flow = self._flow
        moments: list[int] = []
        distances: list[int] = []
        deciders: list[int] = []
        for vertex, (node, before) in enumerate(zip(flow.nodes, flow.before, strict=True)):
            nearest, best, decider = _NEAR, _NEAR, NONE
            for source in before:
                if moments[source] < nearest:
                    nearest = moments[source]
                if distances[source] < best:
                    best, decider = distances[source], deciders[source]
            op_type = node.op_type
            if (
                op_type in _BEFORE_VECTORS
                or vertex in self._linear
                or (op_type == "Mul" and flow.sizes[vertex] and nearest < _NEAR)
            ):
                best, decider = -1, vertex
            moments.append(0 if op_type in _MOMENTS else nearest + 1)
            distances.append(best + 1)
            deciders.append(decider)
        return moments, distances, deciders

    def _sort(self, vertex: int, node: Node) -> None:
        if node.op_type in _LINEAR and self._flow.sizes[vertex]:
            if not self._flow.static[vertex]:
                self._linear.add(vertex)
        elif node.op_type in _LINEAR and self._is_product(node):
            self._products.add(vertex)
        elif node.op_type in _SOFTMAX:
            self._softmaxes.append(vertex)
        elif node.op_type in _ATTENTION:
            self._attention.append(vertex)

    def _find_attended(self) -> set[int]:
        """Return linear maps whose results are multiplied as queries, keys or values, or that read the result."""
        before, after = self._flow.before, self._flow.after
        stops = self._products | self._linear
        near_softmax = _reach(before, self._softmaxes, stops) | _reach(after, self._softmaxes, stops)
        attending = [*(self._products & near_softmax), *self._attention]
        # Attention operators with weights have projections of their own.
        without_weights = [vertex for vertex in attending if not self._flow.sizes[vertex]]
        near = _reach(before, without_weights, self._linear) | _reach(after, attending, self._linear)
        return near & self._linear

    def _is_product(self, node: Node) -> bool:
        """Whether it multiplies two activations."""
        known = operator_of(node)
        operands = [
            n for slot, n in enumerate(node.inputs) if known is not None and known.slot(slot) in _OPERANDS
        ]
        return len(operands) > 1 and all(map(self._flow.is_dynamic, operands[:2]))


def _reach(neighbours: Sequence[Sequence[int]], starts: Iterable[int], stops: Set[int]) -> set[int]:
    """Return the vertices reached through `neighbours`, up to and including the first stop on each path."""
    found: set[int] = set()
    waiting = list(starts)
    while waiting:
        for vertex in neighbours[waiting.pop()]:
            if vertex not in found:
                found.add(vertex)
                if vertex not in stops:
                    waiting.append(vertex)
    return found
