"""How a tensor is read -> its role, from the operators' own definitions.

Sources: ONNX docs/Operators.md, onnxruntime docs/ContribOperators.md, ONNX docs/Operators-ml.md.

The weakest evidence that still explains: it is asked only where neither metadata nor names decide.
"""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from analyzer.dtypes import DType
from analyzer.graph import CARRIED, Reader, readers
from analyzer.ledger import Role
from analyzer.model import Carrier, Node, StoredTensor, Vertex

__all__ = ["role_by_structure"]

_LEARNED_SLOTS: dict[str, frozenset[int]] = {
    "Attention": frozenset({1, 2}),
    "BatchNormalization": frozenset({1, 2}),
    "BiasGelu": frozenset({1}),
    "Conv": frozenset({1, 2}),
    "ConvInteger": frozenset({1}),
    "ConvTranspose": frozenset({1, 2}),
    "DecoderMaskedMultiHeadAttention": frozenset({3}),
    "DeformConv": frozenset({1, 3}),
    "DequantizeLinear": frozenset({0}),
    "DynamicQuantizeLSTM": frozenset({1, 2, 3, 7}),
    "DynamicQuantizeMatMul": frozenset({1, 4}),
    "Einsum": frozenset({0, 1, 2}),
    "EmbedLayerNormalization": frozenset({2, 3, 4, 5, 6}),
    "FastGelu": frozenset({1}),
    "FusedConv": frozenset({1, 2}),
    "FusedGemm": frozenset({1, 2}),
    "FusedMatMul": frozenset({0, 1}),
    "GRU": frozenset({1, 2, 3}),
    "GatherBlockQuantized": frozenset({0}),
    "Gemm": frozenset({0, 1, 2}),
    "GroupNorm": frozenset({1, 2}),
    "GroupNormalization": frozenset({1, 2}),
    "InstanceNormalization": frozenset({1, 2}),
    "LSTM": frozenset({1, 2, 3, 7}),
    "LayerNormalization": frozenset({1, 2}),
    "MatMul": frozenset({0, 1}),
    "MatMulBnb4": frozenset({1}),
    "MatMulInteger": frozenset({0, 1}),
    "MatMulIntegerToFloat": frozenset({1, 6}),
    "MatMulNBits": frozenset({1, 5}),
    "MoE": frozenset({2, 3, 4, 5, 6, 7}),
    "MultiHeadAttention": frozenset({3}),
    "PRelu": frozenset({1}),
    "QAttention": frozenset({1, 2}),
    "QGemm": frozenset({3, 6}),
    "QLinearConv": frozenset({3, 8}),
    "QLinearMatMul": frozenset({0, 3}),
    "QMoE": frozenset({2, 4, 5, 7, 8, 10}),
    "QOrderedMatMul": frozenset({2}),
    "RMSNormalization": frozenset({1}),
    "RNN": frozenset({1, 2, 3}),
    "SimplifiedLayerNormalization": frozenset({1, 2}),
    "SkipLayerNormalization": frozenset({2, 3, 4}),
    "SkipSimplifiedLayerNormalization": frozenset({2, 3}),
}
"""Inputs that hold weights when they are stored, by operator."""

_QUANTIZATION_SLOTS: dict[str, frozenset[int]] = {
    "ConvInteger": frozenset({2, 3}),
    "DequantizeLinear": frozenset({1, 2}),
    "DynamicQuantizeLSTM": frozenset({8, 9, 10, 11}),
    "DynamicQuantizeMatMul": frozenset({2, 3}),
    "GatherBlockQuantized": frozenset({2, 3}),
    "MatMulBnb4": frozenset({2}),
    "MatMulInteger": frozenset({2, 3}),
    "MatMulIntegerToFloat": frozenset({2, 3, 4, 5}),
    "MatMulNBits": frozenset({2, 3, 4}),
    "QAttention": frozenset({3, 4, 6, 7}),
    "QGemm": frozenset({1, 2, 4, 5, 7, 8}),
    "QLinearAdd": frozenset({1, 2, 4, 5, 6, 7}),
    "QLinearAveragePool": frozenset({1, 2, 3, 4}),
    "QLinearConcat": frozenset(range(64)),
    "QLinearConv": frozenset({1, 2, 4, 5, 6, 7}),
    "QLinearGlobalAveragePool": frozenset({1, 2, 3, 4}),
    "QLinearLeakyRelu": frozenset({1, 2, 3, 4}),
    "QLinearMatMul": frozenset({1, 2, 4, 5, 6, 7}),
    "QLinearMul": frozenset({1, 2, 4, 5, 6, 7}),
    "QLinearSigmoid": frozenset({1, 2, 3, 4}),
    "QLinearSoftmax": frozenset({1, 2, 3, 4}),
    "QMoE": frozenset({3, 6, 9, 11, 12, 13}),
    "QuantizeLinear": frozenset({1, 2}),
}
"""Inputs that hold scales, zero points and block bookkeeping, by operator."""

_BUFFER_SLOTS: dict[str, frozenset[int]] = {
    "BatchNormalization": frozenset({3, 4}),
    "GroupQueryAttention": frozenset({7, 8}),
    "RotaryEmbedding": frozenset({1, 2, 3}),
}
"""Inputs that hold running statistics and rotary tables."""

_CONSTANT_SLOTS: dict[str, frozenset[int]] = {
    "Clip": frozenset({1, 2}),
    "Pad": frozenset({2}),
    "Range": frozenset({0, 1, 2}),
    "Resize": frozenset({1, 2}),
    "Upsample": frozenset({1}),
}
"""Floating-point inputs that only shape the computation."""

_PASS_THROUGH = frozenset(
    {
        "Cast",
        "CastLike",
        "DequantizeLinear",
        "Expand",
        "Flatten",
        "Identity",
        "QuantizeLinear",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators whose first input is only moved, cut or re-encoded: what reads their output reads the tensor. `Concat`
does so with all of its inputs."""

_QUANTIZED = frozenset({DType.INT8, DType.UINT8, DType.INT4, DType.UINT4, DType.INT2, DType.UINT2})
"""Types of a quantized table, of which `Gather` takes rows before they are dequantized."""

_PRODUCERS = frozenset(
    {
        "Conv",
        "ConvInteger",
        "ConvTranspose",
        "DynamicQuantizeMatMul",
        "Einsum",
        "FusedMatMul",
        "Gemm",
        "MatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QLinearConv",
        "QLinearMatMul",
    }
)
"""Operators to whose output a bias is added."""

_NORMALIZERS = frozenset(
    {
        "BatchNormalization",
        "Div",
        "InstanceNormalization",
        "LayerNormalization",
        "LpNormalization",
        "Mul",
        "Sqrt",
    }
)
"""Operators that end a normalization written out, whose output is scaled and shifted by learned vectors."""

_LEARNED_LISTS = frozenset(
    {
        "base_values",
        "coefficients",
        "intercepts",
        "leaf_weights",
        "nodes_splits",
        "nodes_values",
        "prob_a",
        "prob_b",
        "rho",
        "support_vectors",
        "class_weights",
        "target_weights",
        "offset",
        "scale",
        "imputed_value_floats",
    }
)
"""Lists of `ai.onnx.ml` operators that training computes; the others are ids, modes and labels."""

_MAX_HOPS = 6
"""Operators between a tensor and what it is for; exporters put Transpose, Cast, Reshape and Dequantize there."""


def role_by_structure(
    graph: nx.MultiDiGraph[Vertex], vertex: Vertex, tensor: StoredTensor
) -> tuple[Role, str] | None:
    """The role that a tensor's readers give it, and the rule; None where they say nothing.

    The first reader in file order that explains the tensor decides.
    """
    if tensor.carrier is Carrier.ATTRIBUTE_LIST:
        attribute = tensor.name.rpartition(".")[2].removesuffix("_as_tensor")
        return (
            Role.PARAMETER if attribute in _LEARNED_LISTS else Role.CONSTANT,
            f"structure:list-{attribute}",
        )
    final = list(_final_readers(graph, vertex, tensor))
    for reader in final:
        decided = _by_slot(reader, tensor)
        if decided is not None:
            return decided
    if not tensor.dtype.is_floating:
        return (Role.CONSTANT, f"structure:{final[0].node.op_type}-operand") if final else None
    if tensor.numel <= 1:
        return (Role.CONSTANT, "structure:scalar") if final else None
    for reader in final:
        if _is_affine(graph, reader, tensor):
            return (Role.PARAMETER, f"structure:{reader.node.op_type}-vector")
    return None


def _final_readers(
    graph: nx.MultiDiGraph[Vertex], vertex: Vertex, tensor: StoredTensor, hops: int = _MAX_HOPS
) -> Iterator[Reader]:
    """The readers of a vertex; past those that only move it, the readers of what they hand on."""
    for reader in readers(graph, vertex):
        yield reader
        moved = reader.slot == 0 and (
            reader.node.op_type in _PASS_THROUGH
            or (reader.node.op_type == "Gather" and tensor.dtype in _QUANTIZED)
        )
        if hops and (moved or reader.node.op_type == "Concat"):
            node = reader.node
            yield from _final_readers(graph, ("node", node.graph_path, node.index), tensor, hops - 1)


def _by_slot(reader: Reader, tensor: StoredTensor) -> tuple[Role, str] | None:
    node, slot = reader.node, reader.slot
    rule = f"structure:{node.op_type}[{slot}]"
    if slot == CARRIED:
        return (Role.CONSTANT, f"structure:{node.op_type}-attribute")
    if slot in _QUANTIZATION_SLOTS.get(node.op_type, ()):
        return Role.QUANTIZATION, rule
    if slot in _CONSTANT_SLOTS.get(node.op_type, ()):
        return Role.CONSTANT, rule
    if slot in _BUFFER_SLOTS.get(node.op_type, ()) and tensor.dtype.is_floating:
        return Role.BUFFER, rule
    if slot in _LEARNED_SLOTS.get(node.op_type, ()) and (tensor.numel > 1 or tensor.dtype.is_integer):
        return Role.PARAMETER, rule
    if node.op_type == "Gather" and slot == 0 and tensor.dtype.is_floating and len(tensor.shape) >= 2:
        return Role.PARAMETER, rule
    return None


def _is_affine(graph: nx.MultiDiGraph[Vertex], reader: Reader, tensor: StoredTensor) -> bool:
    """Whether the tensor is the bias of a linear operator, or the scale or shift of a normalization written out.

    Such a tensor is a vector along one axis, and the other operand comes from the operator in question.
    """
    if reader.node.op_type not in ("Add", "Mul", "Sub", "Div") or sum(dim != 1 for dim in tensor.shape) != 1:
        return False
    wanted = _PRODUCERS | _NORMALIZERS if reader.node.op_type in ("Add", "Mul") else _PRODUCERS
    return any(producer.op_type in wanted for producer in _operand_producers(graph, reader.node, _MAX_HOPS))


def _operand_producers(graph: nx.MultiDiGraph[Vertex], node: Node, hops: int) -> Iterator[Node]:
    """The nodes that compute a node's operands, seen through those that only move them."""
    for source, _ in graph.in_edges(("node", node.graph_path, node.index)):
        if source[0] != "node":
            continue
        producer: Node = graph.nodes[source]["node"]
        yield producer
        if hops and producer.op_type in _PASS_THROUGH:
            yield from _operand_producers(graph, producer, hops - 1)
