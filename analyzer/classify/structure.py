"""How a tensor is read -> its role, from the operators' own definitions.

Sources: ONNX docs/Operators.md, onnxruntime docs/ContribOperators.md, ONNX docs/Operators-ml.md.

The weakest evidence that still explains: it is asked only where neither metadata nor names decide.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.decoding import CODES
from analyzer.dtypes import DType
from analyzer.ledger import Role
from analyzer.model import GraphPath, Node, StoredTensor
from analyzer.wiring import CARRIED, Reader, Wiring

__all__ = ["learned_beside", "role_by_structure", "scales_norm"]

_LEARNED_SLOTS: dict[str, frozenset[int]] = {
    "Attention": frozenset({1, 2}),
    "BatchNormalization": frozenset({1, 2}),
    "BiasGelu": frozenset({1}),
    "Conv": frozenset({1, 2}),
    "ConvInteger": frozenset({0, 1}),
    "ConvTranspose": frozenset({1, 2}),
    "DecoderMaskedMultiHeadAttention": frozenset({10}),
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
    "QEmbedLayerNormalization": frozenset({2, 3, 4, 5, 6}),
    "QGemm": frozenset({3, 6}),
    "QLinearConv": frozenset({0, 3, 8}),
    "QLinearMatMul": frozenset({0, 3}),
    "QMoE": frozenset({2, 4, 5, 7, 8, 10}),
    "QOrderedMatMul": frozenset({2}),
    "RMSNormalization": frozenset({1}),
    "RNN": frozenset({1, 2, 3}),
    "SimplifiedLayerNormalization": frozenset({1, 2}),
    "SkipLayerNormalization": frozenset({2, 3, 4}),
    "SkipSimplifiedLayerNormalization": frozenset({2, 3}),
}
"""Inputs that hold weights when they are stored, by operator.

The data of `ConvInteger` and of other integer products are among them: the codes of a table get there past a Gather.
"""

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
    "QEmbedLayerNormalization": frozenset(range(8, 18)),
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

_TABLES = frozenset({"Gather", "GatherND"})
"""Operators that take rows, or matrices, of their first input: of floats these are embeddings and experts."""

_QUANTIZED = frozenset({DType.INT8, DType.UINT8, DType.INT4, DType.UINT4, DType.INT2, DType.UINT2})
"""Types of a quantized table, of which rows are taken before they are dequantized."""

_PRODUCERS = frozenset(
    {
        "Conv",
        "ConvTranspose",
        "DynamicQuantizeMatMul",
        "Einsum",
        "FusedMatMul",
        "Gemm",
        "MatMul",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QLinearConv",
        "QLinearMatMul",
    }
)
"""Operators to whose output a bias is added as it is."""

_INTEGER_PRODUCERS = frozenset({"ConvInteger", "MatMulInteger"})
"""Those whose output is in units of the quantization, and is scaled back first."""

_NORMALIZERS = frozenset(
    {
        "BatchNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "LpNormalization",
        "RMSNormalization",
        "ReduceL2",
        "ReduceMean",
        "ReduceSumSquare",
    }
)
"""Operators that take a mean or a norm: what follows is scaled and shifted by learned vectors."""

_ARITHMETIC = frozenset({"Add", "Div", "Mul", "Pow", "Reciprocal", "Sqrt", "Sub"})
"""Operators of which a normalization is written out."""

_MICROSOFT_ONLY = frozenset({"Attention", "MultiHeadAttention"})
"""Operators whose weights are inputs in onnxruntime's domain and not in ONNX's."""

_INDEX_TYPES = frozenset({DType.INT32, DType.INT64, DType.BOOL, DType.UINT32, DType.UINT64})
"""Types of shapes, indices and masks. Narrow integers may be weights."""

_FEW = 64
"""Elements up to which a narrow integer operand is taken for a shape, an axis or a flag."""

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
    wiring: Wiring, origin: StoredTensor | Node, tensor: StoredTensor
) -> tuple[Role, str] | None:
    """The role that a tensor's readers give it, and the rule; None where they say nothing.

    The first reader in file order that explains the tensor decides; one that makes it a constant goes after the others.
    """
    final = _final_readers(wiring, origin, tensor)
    decisions = [
        decided
        for reader in final
        if (decided := (_by_attribute if reader.slot == CARRIED else _by_slot)(reader, tensor)) is not None
    ]
    if decisions:
        # One reader that only takes a bound or a size from it does not make a weight a constant.
        return min(decisions, key=lambda decision: decision[0] is Role.CONSTANT)
    known = next((reader for reader in final if reader.node.is_standard), None)
    if known is None or known.slot == CARRIED:
        return None
    if not tensor.dtype.is_floating:
        is_index = tensor.dtype in _INDEX_TYPES or tensor.numel <= _FEW
        return (Role.CONSTANT, f"structure:{known.node.op_type}-operand") if is_index else None
    if tensor.numel <= 1:
        return Role.CONSTANT, "structure:scalar"
    for reader in final:
        if _is_affine(wiring, reader, tensor):
            return Role.PARAMETER, f"structure:{reader.node.op_type}-vector"
    return None


def _final_readers(wiring: Wiring, origin: StoredTensor | Node, tensor: StoredTensor) -> list[Reader]:
    """The readers of a value, then, past those that only move it, the readers of what they hand on."""
    found: dict[tuple[GraphPath, int, int], Reader] = {}
    layer: list[StoredTensor | Node] = [origin]
    for _ in range(_MAX_HOPS + 1):
        following: list[StoredTensor | Node] = []
        for source in layer:
            for reader in wiring.readers(source):
                place = (reader.node.graph_path, reader.node.position, reader.slot)
                if place not in found:
                    found[place] = reader
                    if _moves(reader, tensor):
                        following.append(reader.node)
        layer = following
    return list(found.values())


def _moves(reader: Reader, tensor: StoredTensor) -> bool:
    """Whether a reader hands the tensor on, moved, cut or re-encoded."""
    op_type = reader.node.op_type
    if not reader.node.is_standard:
        return False
    if op_type == "Concat":
        return True
    return reader.slot == 0 and (
        op_type in _PASS_THROUGH or (op_type in _TABLES and tensor.dtype in _QUANTIZED)
    )


def _by_attribute(reader: Reader, tensor: StoredTensor) -> tuple[Role, str] | None:
    """What a tensor or list in a node's own attribute is."""
    node = reader.node
    attribute = tensor.name.rpartition(".")[2].removesuffix("_as_tensor")
    if node.domain == "ai.onnx.ml":
        return (
            Role.PARAMETER if attribute in _LEARNED_LISTS else Role.CONSTANT
        ), f"structure:list-{attribute}"
    return (Role.CONSTANT, f"structure:{node.op_type}-attribute") if node.is_standard else None


def _by_slot(reader: Reader, tensor: StoredTensor) -> tuple[Role, str] | None:
    node, slot = reader.node, reader.slot
    rule = f"structure:{node.op_type}[{slot}]"
    if not node.is_standard or (
        node.op_type in _MICROSOFT_ONLY and not node.domain.startswith("com.microsoft")
    ):
        return None
    if slot in _QUANTIZATION_SLOTS.get(node.op_type, ()):
        return Role.QUANTIZATION, rule
    if slot in _CONSTANT_SLOTS.get(node.op_type, ()) and tensor.numel <= _FEW:
        return Role.CONSTANT, rule
    if slot in _BUFFER_SLOTS.get(node.op_type, ()) and tensor.dtype.is_floating:
        return Role.BUFFER, rule
    if node.op_type == "DequantizeLinear" and slot == 0:
        if tensor.dtype not in CODES:
            return None  # it is quantized when the model runs: what reads it after that tells what it is
        if tensor.numel <= 1:
            # A quantizer also encodes the numbers that a graph computes with.
            return Role.CONSTANT, "structure:scalar"
    if slot in _LEARNED_SLOTS.get(node.op_type, ()) and (tensor.numel > 1 or tensor.dtype.is_integer):
        return Role.PARAMETER, rule
    if node.op_type in _TABLES and slot == 0 and tensor.dtype.is_floating and len(tensor.shape) >= 2:
        return Role.PARAMETER, rule
    return None


def learned_beside(wiring: Wiring, tensor: StoredTensor) -> Iterator[StoredTensor]:
    """The stored tensors at the other learned inputs of the nodes that read this one at such an input."""
    for node, slot in _final_readers(wiring, tensor, tensor):
        slots = _LEARNED_SLOTS.get(node.op_type, frozenset())
        for other in slots - {slot} if node.is_standard and slot in slots else ():
            found = _origin(wiring, node, other)
            if found is not None:
                yield found


def scales_norm(wiring: Wiring, tensor: StoredTensor) -> bool:
    """Whether all that computes with a tensor multiplies what a mean or a norm gives by it."""
    final = [reader for reader in _final_readers(wiring, tensor, tensor) if not _moves(reader, tensor)]
    return bool(final) and all(
        (reader.node.op_type.endswith("Normalization") and reader.slot in (1, 2))
        or (
            reader.node.op_type == "Mul"
            and any(
                p.op_type in _NORMALIZERS for p in _upstream(wiring, reader.node, _PASS_THROUGH | _ARITHMETIC)
            )
        )
        for reader in final
    )


def _origin(wiring: Wiring, node: Node, slot: int) -> StoredTensor | None:
    """The stored tensor that an input is, past operators that only move or re-encode it."""
    for _ in range(_MAX_HOPS):
        name = node.inputs[slot] if slot < len(node.inputs) else ""
        found = wiring.find(node.graph_path, name) if name else None
        if not isinstance(found, Node) or found.op_type not in _PASS_THROUGH:
            return found if isinstance(found, StoredTensor) else None
        node, slot = found, 0
    return None


def _is_affine(wiring: Wiring, reader: Reader, tensor: StoredTensor) -> bool:
    """Whether the tensor is the bias of a linear operator, or the scale or shift of a normalization written out.

    Such a tensor is a vector along one axis, and what it is combined with comes from a linear operator, or from a mean
    or a norm within a few operators (the mean of a picture, subtracted as a constant, is none).
    """
    node = reader.node
    if node.op_type not in ("Add", "Mul", "Sub", "Div") or sum(dim != 1 for dim in tensor.shape) != 1:
        return False
    if any(producer.op_type in _PRODUCERS for producer in _upstream(wiring, node, _PASS_THROUGH)):
        return True
    # An integer product is scaled back before its bias is added.
    if any(
        producer.op_type in _INTEGER_PRODUCERS
        for producer in _upstream(wiring, node, _PASS_THROUGH | {"Mul"})
    ):
        return True
    is_scaling = node.op_type in ("Add", "Mul")
    return is_scaling and any(
        p.op_type in _NORMALIZERS for p in _upstream(wiring, node, _PASS_THROUGH | _ARITHMETIC)
    )


def _upstream(wiring: Wiring, node: Node, through: frozenset[str]) -> list[Node]:
    """The nodes that compute a node's operands, and those before them as far as operators of `through` lead."""
    found: dict[tuple[GraphPath, int], Node] = {}
    layer = [node]
    for _ in range(_MAX_HOPS):
        following: list[Node] = []
        for reader in layer:
            for source in wiring.producers(reader):
                if isinstance(source, Node) and (source.graph_path, source.position) not in found:
                    found[source.graph_path, source.position] = source
                    if source.op_type in through:
                        following.append(source)
        layer = following
    return list(found.values())
