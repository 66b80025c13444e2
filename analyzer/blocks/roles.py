"""Flow -> what each learned tensor does, by the operator that computes with it: attention, feed-forward, norm, ...

Sources: ONNX docs/Operators.md, onnxruntime docs/ContribOperators.md; Vaswani et al., "Attention Is All You Need"
(2017), section 3.2, for what makes attention: a product of two activations that passes, or has passed, a softmax.
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.blocks.dominators import NONE
from analyzer.blocks.flow import Flow
from analyzer.model import StoredTensor
from analyzer.wiring import Reader

__all__ = [
    "ATTENTION",
    "CONVOLUTION",
    "EMBEDDING",
    "FEED_FORWARD",
    "LINEAR",
    "NORM",
    "OTHER",
    "RECURRENT",
    "Roles",
]

ATTENTION = "attention"
FEED_FORWARD = "feed-forward"
NORM = "norm"
EMBEDDING = "embedding"
CONVOLUTION = "convolution"
RECURRENT = "recurrent"
LINEAR = "linear"
"""A linear map outside every block: a projection of embeddings, a pooler, a head."""
OTHER = "other"

_LINEAR = frozenset(
    {
        "DynamicQuantizeMatMul",
        "Einsum",
        "FusedGemm",
        "FusedMatMul",
        "Gemm",
        "MatMul",
        "MatMulBnb4",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "MoE",
        "QGemm",
        "QLinearMatMul",
        "QMoE",
        "QOrderedMatMul",
    }
)
_PRODUCTS = frozenset(
    {"Einsum", "FusedMatMul", "MatMul", "MatMulInteger", "MatMulIntegerToFloat", "QLinearMatMul"}
)
"""Operators that may multiply two activations."""

_ATTENTION = frozenset(
    {
        "Attention",
        "DecoderMaskedMultiHeadAttention",
        "DecoderMaskedSelfAttention",
        "GroupQueryAttention",
        "LinearAttention",
        "LongformerAttention",
        "MultiHeadAttention",
        "PackedAttention",
        "PackedMultiHeadAttention",
        "PagedAttention",
        "QAttention",
        "QOrderedAttention",
        "SparseAttention",
    }
)
_CONVOLUTIONS = frozenset(
    {
        "Conv",
        "ConvInteger",
        "ConvTranspose",
        "DeformConv",
        "FusedConv",
        "NhwcConv",
        "NhwcFusedConv",
        "QLinearConv",
    }
)
_RECURRENT = frozenset({"DynamicQuantizeLSTM", "GRU", "LSTM", "RNN"})
_TABLES = frozenset({"Gather", "GatherBlockQuantized", "GatherElements", "GatherND"})
_NORMS = frozenset(
    {
        "BatchNormalization",
        "GroupNorm",
        "GroupNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "RMSNormalization",
        "SimplifiedLayerNormalization",
        "SkipGroupNorm",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
    }
)
_BIASES = {"SkipLayerNormalization": frozenset({4}), "SkipSimplifiedLayerNormalization": frozenset({3})}
"""Inputs of a norm that are the bias of the linear map before it."""

_EMBEDDINGS = frozenset({"EmbedLayerNormalization", "QEmbedLayerNormalization"})
_EMBEDDING_NORMS = frozenset({5, 6})
"""Inputs of these that are the norm's."""

_MOMENTS = frozenset(
    {"InstanceNormalization", "LpNormalization", "ReduceL2", "ReduceMean", "ReduceSumSquare"}
)
"""Operators of which a norm that is written out takes a mean or a length."""

_SOFTMAX = frozenset({"BiasSoftmax", "QLinearSoftmax", "Softmax"})

_NEAR = 8
"""Steps between a moment, or a linear map, and the vectors that scale or shift what comes of it."""


_WIDE = 64
"""Vertices that are looked at in one step."""


class Roles:
    """Answers for one flow."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._is_linear = [
            bool(flow.sizes[vertex]) and not flow.static[vertex] and node.op_type in _LINEAR
            for vertex, node in enumerate(flow.nodes)
        ]
        self._is_attended = self._find_attended()
        self._users: dict[int, int] = {}
        for vertex in range(len(flow.nodes) - 1, -1, -1):
            self._users.update(dict.fromkeys(flow.conduits[vertex], vertex))

    def of(self, reader: Reader, tensor: StoredTensor, is_inside: bool) -> str:
        """What a learned tensor does for one of the nodes that read it; `is_inside` a block or not."""
        vertex = self._flow.vertex(*reader)
        slot = reader.slot
        while self._flow.static[vertex]:
            is_table = self._flow.nodes[vertex].op_type in _TABLES
            if (is_table and slot == 0) or vertex not in self._users:
                return EMBEDDING if is_table else OTHER
            vertex, slot = self._users[vertex], -1
        found = self._by_operator(vertex, slot, tensor)
        if found is not None:
            return found
        is_stack = self._flow.nodes[vertex].op_type in _TABLES  # weights of experts, chosen by number
        if self._is_linear[vertex] or is_stack:
            return self._linear(vertex, is_inside)
        if sum(dim != 1 for dim in tensor.shape) > 1:
            return ATTENTION if is_inside else EMBEDDING
        return self._vector(vertex, is_inside)

    def _by_operator(self, vertex: int, slot: int, tensor: StoredTensor) -> str | None:
        op_type = self._flow.nodes[vertex].op_type
        if op_type in _EMBEDDINGS:
            return NORM if slot in _EMBEDDING_NORMS else EMBEDDING
        if op_type in _NORMS:
            return None if slot in _BIASES.get(op_type, ()) else NORM
        if op_type in _TABLES:
            return EMBEDDING if len(tensor.shape) <= 2 else None
        for operators, role in (
            (_CONVOLUTIONS, CONVOLUTION),
            (_RECURRENT, RECURRENT),
            (_ATTENTION, ATTENTION),
        ):
            if op_type in operators:
                return role
        return None

    def _linear(self, vertex: int, is_inside: bool) -> str:
        if self._is_attended[vertex]:
            return ATTENTION
        return FEED_FORWARD if is_inside else LINEAR

    def _vector(self, vertex: int, is_inside: bool) -> str:
        """A bias does what its linear map does; a scale, and the shift after it, are a norm's near a moment."""
        flow = self._flow
        is_scale = flow.nodes[vertex].op_type in ("Div", "Mul")
        layer, seen = [vertex], {vertex}
        for _ in range(_NEAR):
            layer = [source for found in layer for source in flow.before[found] if source not in seen][:_WIDE]
            seen.update(layer)
            for source in layer:
                op_type = flow.nodes[source].op_type
                if op_type in _MOMENTS:
                    return NORM
                if is_scale:
                    continue
                if op_type in _NORMS or (
                    op_type == "Mul" and flow.sizes[source] and self._vector(source, False) == NORM
                ):
                    return NORM
                if self._is_linear[source]:
                    return self._linear(source, is_inside)
                if op_type in _CONVOLUTIONS:
                    return CONVOLUTION
        return OTHER

    def _find_attended(self) -> list[bool]:
        """The linear maps whose results are multiplied as queries, keys or values, or that take what came of it."""
        flow = self._flow
        count = len(flow.nodes)
        stops = [linear or self._may_attend(vertex) for vertex, linear in enumerate(self._is_linear)]
        soft = [node.op_type in _SOFTMAX for node in flow.nodes]
        to_soft, from_soft = _reach(flow.after, soft, stops, reverse=True), _reach(flow.before, soft, stops)
        products = [
            flow.nodes[vertex].op_type in _ATTENTION
            or (self._may_attend(vertex) and (to_soft[vertex] or from_soft[vertex]))
            for vertex in range(count)
        ]
        to_product = _reach(flow.after, products, self._is_linear, reverse=True)
        from_product = _reach(flow.before, products, self._is_linear)
        return [
            self._is_linear[vertex] and (to_product[vertex] or from_product[vertex])
            for vertex in range(count)
        ]

    def _may_attend(self, vertex: int) -> bool:
        """Whether it multiplies two activations."""
        is_product = self._flow.nodes[vertex].op_type in _PRODUCTS
        return is_product and not self._is_linear[vertex] and NONE not in self._flow.operands[vertex]


def _reach(
    neighbours: Sequence[Sequence[int]],
    targets: Sequence[bool],
    stops: Sequence[bool],
    *,
    reverse: bool = False,
) -> list[bool]:
    """Whether a way along the neighbours leads to a target, without a stop on it."""
    found = [False] * len(targets)
    order = range(len(targets) - 1, -1, -1) if reverse else range(len(targets))
    for vertex in order:
        found[vertex] = any(
            targets[next_] or (found[next_] and not stops[next_]) for next_ in neighbours[vertex]
        )
    return found
