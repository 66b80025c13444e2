"""How a tensor is read -> its role, from the operators' own definitions.

Sources: ONNX docs/Operators.md, onnxruntime docs/ContribOperators.md, ONNX docs/Operators-ml.md.

The weakest evidence that still explains: it is asked only where neither metadata nor names decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from analyzer.account.decoding import CODES
from analyzer.account.ledger import Role
from analyzer.model import GraphPath, Node, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.model.operators import (
    CARRIES,
    Kind,
    Operator,
    Slot,
    is_integer_product,
    kind_of,
    operator_of,
)
from analyzer.model.wiring import CARRIED, GraphInput, Reader, Wiring, is_passed

_COMPUTES = frozenset(
    {Kind.PRODUCT, Kind.CONVOLUTION, Kind.RECURRENT, Kind.ATTENTION, Kind.NORMALIZES, Kind.LOOKS_UP}
)
"""What operators do whose codes are weights when they are stored. The data of integer products are among them: the
codes of a table get there past a Gather. Codes of a quantized sum may be anything."""

_LEARNS_ONE = frozenset({"Conv", "ConvTranspose", "PRelu"})
"""Operators of which a vector of one element is a weight, a bias or a slope all the same. What has no axis was made: as
the zero that fills the bias of a convolution without one."""

_BOOKKEEPING = frozenset({("MatMulNBits", 4)})
"""Indices that tell to which scale a code belongs."""

_QUANTIZED = frozenset({DType.INT8, DType.UINT8, DType.INT4, DType.UINT4, DType.INT2, DType.UINT2})
"""Types of a quantized table, of which rows are taken before they are dequantized."""

_MOMENTS = frozenset({"GlobalAveragePool", "ReduceL2", "ReduceMean", "ReduceSumSquare"})
"""Operators that take a mean or a norm, as normalizations do: what follows is scaled and shifted by learned vectors."""

_ARITHMETIC = frozenset({"Add", "Div", "Mul", "Neg", "Pow", "Reciprocal", "Sqrt", "Sub"})
"""Operators of which a normalization is written out."""

_INDEX_TYPES = frozenset({DType.INT32, DType.INT64, DType.BOOL, DType.UINT32, DType.UINT64})
"""Types of shapes, indices and masks. Narrow integers may be weights."""

_FEW = 64
"""Elements up to which a narrow integer operand is taken for a shape, an axis or a flag."""

_FEW_CODES = 10
"""Elements up to which codes that are added or multiplied are constants of the graph."""

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
    # Cast and repeated a single integer may be a state of zeros, no weight.
    is_state = tensor.dtype is DType.INT64 and tensor.numel == 1
    final: list[Reader] = []
    constant: tuple[Role, str] | None = None
    for reader in _final_readers(wiring, origin, tensor):
        final.append(reader)
        decided = (_by_attribute if reader.slot == CARRIED else _by_slot)(reader, tensor)
        if decided is None or (is_state and decided[0] is Role.PARAMETER):
            continue
        if decided[0] is not Role.CONSTANT:
            return decided
        constant = constant or decided
    if constant:  # one reader that only takes a bound or a size from it does not make a weight a constant
        return constant
    known = next((reader for reader in final if reader.node.is_standard), None)
    if known is None or known.slot == CARRIED:
        return None
    if not tensor.dtype.is_floating:
        is_coded = tensor.numel > _FEW_CODES and any(map(_reads_codes, final))
        is_index = tensor.dtype in _INDEX_TYPES or (tensor.numel <= _FEW and not is_coded)
        return (Role.CONSTANT, f"structure:{known.node.op_type}-operand") if is_index else None
    if tensor.numel <= 1:
        return Role.CONSTANT, "structure:scalar"
    for reader in final:
        if _is_affine(wiring, reader, tensor):
            return Role.PARAMETER, f"structure:{reader.node.op_type}-vector"
    return None


_MOST_READERS = 1_000
"""Readers past what moves a tensor that are asked what it is: thousands of tensors may go into one Concat."""


def _final_readers(wiring: Wiring, origin: StoredTensor | Node, tensor: StoredTensor) -> Iterator[Reader]:
    """The readers of a value, then, past those that only move it, the readers of what they hand on."""
    found: set[tuple[GraphPath, int, int]] = set()
    layer: list[StoredTensor | Node | GraphInput] = [origin]
    for hop in range(_MAX_HOPS + 1):
        following: list[StoredTensor | Node | GraphInput] = []
        for source in layer:
            for reader in (
                wiring.readers_of_given(source) if isinstance(source, GraphInput) else wiring.readers(source)
            ):
                place = (reader.node.graph_path, reader.node.position, reader.slot)
                if place in found:
                    continue
                if hop and len(found) >= _MOST_READERS:
                    return
                found.add(place)
                inner = wiring.kept_in_body(reader) if reader.slot >= 0 else None
                if inner is not None:
                    following.append(inner)
                    continue
                yield reader
                if _moves(reader, tensor):
                    following.append(reader.node)
        layer = following


def _moves(reader: Reader, tensor: StoredTensor) -> bool:
    """Whether a reader hands the tensor on, moved, cut or re-encoded; of a quantized table rows."""
    if is_passed(reader, CARRIES):
        return True
    return kind_of(reader.node) is Kind.LOOKS_UP and reader.slot == 0 and tensor.dtype in _QUANTIZED


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
    known = operator_of(node) if node.is_standard else None
    if known is None:
        return None
    rule = f"structure:{node.op_type}[{slot}]"
    what = known.slot(slot)
    if what in (Slot.SCALE, Slot.ZERO_POINT) or (node.op_type, slot) in _BOOKKEEPING:
        return Role.QUANTIZATION, rule
    if what is Slot.CONSTANT:
        return (Role.CONSTANT, rule) if tensor.numel <= _FEW else None
    if what is Slot.BUFFER:
        return (Role.BUFFER, rule) if tensor.dtype.is_floating else None
    if known.kind is Kind.DECODES and slot == 0:
        if tensor.dtype not in CODES:
            return None  # it is quantized when the model runs: what reads it after that tells what it is
        # A quantizer also encodes the numbers that a graph computes with.
        return (Role.PARAMETER, rule) if tensor.numel > 1 else (Role.CONSTANT, "structure:scalar")
    is_one = tensor.numel == 1 and not (tensor.shape and node.op_type in _LEARNS_ONE)
    if _is_learned(known, slot) and (not is_one or tensor.dtype.is_integer):
        return Role.PARAMETER, rule
    if what is Slot.TABLE and tensor.dtype.is_floating and len(tensor.shape) >= 2:
        return Role.PARAMETER, rule
    return None


def _reads_codes(reader: Reader) -> bool:
    """Whether it computes with the numbers that codes stand for, as a quantized sum does."""
    known = operator_of(reader.node) if reader.node.is_standard else None
    return known is not None and reader.slot >= 0 and known.slot(reader.slot) is Slot.CODES


def _is_learned(known: Operator, slot: int) -> bool:
    """Whether what is stored at an input is a weight, whatever its type and shape."""
    what = known.slot(slot)
    return what in (Slot.LEARNED, Slot.BIAS) or (what is Slot.CODES and known.kind in _COMPUTES)


def learned_beside(wiring: Wiring, tensor: StoredTensor) -> Iterator[StoredTensor]:
    """The stored tensors at the other learned inputs of the nodes that read this one at such an input."""
    for node, slot in _final_readers(wiring, tensor, tensor):
        known = operator_of(node) if node.is_standard else None
        if known is None or slot < 0 or not _is_learned(known, slot):
            continue
        for other in range(len(node.inputs)):
            found = find_origin(wiring, node, other) if other != slot and _is_learned(known, other) else None
            if found is not None:
                yield found


def scales_norm(wiring: Wiring, tensor: StoredTensor) -> bool:
    """Whether all that computes with a tensor multiplies what a mean or a norm gives by it."""
    final = [reader for reader in _final_readers(wiring, tensor, tensor) if not _moves(reader, tensor)]
    return bool(final) and all(
        (
            kind_of(reader.node) is Kind.NORMALIZES
            and (known := operator_of(reader.node)) is not None
            and known.slot(reader.slot) is Slot.LEARNED
        )
        or (
            reader.node.op_type == "Mul"
            and any(map(_normalizes, _upstream(wiring, reader.node, CARRIES | _ARITHMETIC, 3 * _MAX_HOPS)))
        )
        for reader in final
    )


def find_origin(wiring: Wiring, node: Node, slot: int) -> StoredTensor | None:
    """The stored tensor that an input is, past operators that only move or re-encode it."""
    for _ in range(_MAX_HOPS):
        name = node.inputs[slot] if slot < len(node.inputs) else ""
        found = wiring.find(node.graph_path, name) if name else None
        if not isinstance(found, Node) or found.op_type not in CARRIES:
            return found if isinstance(found, StoredTensor) else None
        node, slot = found, 0
    return None


def _is_affine(wiring: Wiring, reader: Reader, tensor: StoredTensor) -> bool:
    """Whether the tensor is the bias of a linear operator, or the scale or shift of a normalization written out.

    Such a tensor is a vector along one axis, and what it is combined with comes from a linear operator, or from a mean
    or a norm within a few operators (the mean of a picture, subtracted as a constant, is none).
    """
    node = reader.node
    if node.op_type not in ("Add", "Mul", "Sub", "Div"):
        return False
    if not _is_vector(tensor):
        return _is_bias_of_heads(wiring, node, tensor) or _is_written_out(wiring, node)
    if any(_is_product(producer) for producer in _upstream(wiring, node, CARRIES)):
        return True
    # An integer product is scaled back before its bias is added.
    if any(
        _is_product(producer) and is_integer_product(producer)
        for producer in _upstream(wiring, node, CARRIES | {"Mul"})
    ):
        return True
    if node.op_type in ("Add", "Sub") and _is_scaled_product(wiring, node):
        return True
    if node.op_type == "Mul" and _is_slope(wiring, node):
        return True
    is_scaling = node.op_type in ("Add", "Mul")
    return is_scaling and any(_normalizes(p) for p in _upstream(wiring, node, CARRIES | _ARITHMETIC))


def _is_scaled_product(wiring: Wiring, node: Node) -> bool:
    """Whether one operand is a linear operator's result times a stored vector: a BatchNorm written out."""
    for scaling in _upstream(wiring, node, CARRIES):
        if scaling.op_type not in ("Mul", "Div") or not scaling.is_standard:
            continue
        factors = [find_origin(wiring, scaling, slot) for slot in range(len(scaling.inputs))]
        is_vector = any(factor is not None and _is_vector(factor) for factor in factors)
        if is_vector and any(map(_is_product, _upstream(wiring, scaling, CARRIES))):
            return True
    return False


_MOST_GATES = 4
"""Biases of one recurrent layer that are stored in rows: one of the input's product, one of the state's."""


def _is_bias_of_heads(wiring: Wiring, node: Node, tensor: StoredTensor) -> bool:
    """Whether a tensor of several axes is added to a product with a stored weight, and is as long as its result.

    Keras gives a bias the axes of heads, and keeps two biases of a recurrent layer in rows that a Split takes apart.
    """
    if node.op_type != "Add":
        return False
    is_cut = all(reader.node.place != node.place for reader in wiring.readers(tensor))
    rows = math.prod(tensor.shape[:-1])
    for product in filter(_is_product, _upstream(wiring, node, CARRIES)):
        for slot in range(len(product.inputs)):
            weight = find_origin(wiring, product, slot) or _kept_origin(wiring, product, slot)
            if weight is None or len(weight.shape) < 2:
                continue
            ends = (weight.shape[k:] for k in range(1, len(weight.shape)))
            if tensor.numel in map(math.prod, ends):
                return True
            if is_cut and rows <= _MOST_GATES and tensor.shape[-1] == weight.shape[-1]:
                return True
    return False


def _kept_origin(wiring: Wiring, node: Node, slot: int) -> StoredTensor | None:
    """The stored tensor that a loop hands round and a node of its body reads."""
    given = wiring.find(node.graph_path, node.inputs[slot]) if node.inputs[slot] else None
    found = wiring.kept_outside(given) if isinstance(given, GraphInput) else None
    return found if isinstance(found, StoredTensor) else None


def _is_written_out(wiring: Wiring, node: Node) -> bool:
    """Whether a normalization is written out as x * (g / s) + (b - m * g / s), and a node takes g or b."""
    for source in wiring.producers(node):
        if not isinstance(source, Node):
            continue
        if node.op_type == "Mul" and source.op_type == "Reciprocal":
            return any(map(_normalizes, _upstream(wiring, source, CARRIES | _ARITHMETIC)))
        if node.op_type == "Add" and source.op_type == "Mul":
            negated = (each for each in wiring.producers(source) if isinstance(each, Node))
            means = (each for less in negated if less.op_type == "Neg" for each in wiring.producers(less))
            if any(isinstance(mean, Node) and _normalizes(mean) for mean in means):
                return True
    return False


def _is_slope(wiring: Wiring, node: Node) -> bool:
    """Whether a node multiplies Relu(-x), as Keras writes the half of a PRelu that has a slope."""
    halves = (each for each in wiring.producers(node) if isinstance(each, Node) and each.op_type == "Relu")
    return any(
        isinstance(each, Node) and each.op_type == "Neg" for half in halves for each in wiring.producers(half)
    )


def _is_vector(tensor: StoredTensor) -> bool:
    return sum(dim != 1 for dim in tensor.shape) == 1


def _is_product(node: Node) -> bool:
    return kind_of(node) in (Kind.PRODUCT, Kind.CONVOLUTION)


def _normalizes(node: Node) -> bool:
    return kind_of(node) is Kind.NORMALIZES or node.op_type in _MOMENTS


def _upstream(wiring: Wiring, node: Node, through: frozenset[str], hops: int = _MAX_HOPS) -> list[Node]:
    """The nodes that compute a node's operands, and those before them as far as operators of `through` lead."""
    found: dict[tuple[GraphPath, int], Node] = {}
    layer = [node]
    for _ in range(hops):
        following: list[Node] = []
        for reader in layer:
            for source in wiring.producers(reader):
                if isinstance(source, Node) and (source.graph_path, source.position) not in found:
                    found[source.graph_path, source.position] = source
                    if source.op_type in through:
                        following.append(source)
        layer = following
    return list(found.values())
