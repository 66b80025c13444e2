"""Stored tensor and its readers -> encoding of its codes: scales and zero points, and the dimension that they follow.

Quantized and packed weights are decoded as the operators that read them decode them. Sources: ONNX docs/Operators.md
(DequantizeLinear, MatMulInteger, QLinearConv), onnxruntime docs/ContribOperators.md (MatMulNBits, GatherBlockQuantized,
QAttention, QMoE), onnxruntime/python/tools/quantization for the layout of its files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from analyzer.account.decoding import CODES, Encoded
from analyzer.model import Node, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.model.operators import MOVES, Kind, operators_of
from analyzer.model.wiring import Reader, Wiring, is_passed
from analyzer.records import Frozen

_SLOTS: dict[str, dict[int, tuple[int, int, int]]] = {
    "DequantizeLinear": {0: (1, 2, -1)},
    "DynamicQuantizeMatMul": {1: (2, 3, -1)},
    "MatMulIntegerToFloat": {0: (2, 4, -2), 1: (3, 5, -1)},
    "QAttention": {1: (4, 7, -1)},
    "QEmbedLayerNormalization": {
        2: (8, 13, -1),
        3: (9, 14, -1),
        4: (10, 15, -1),
        5: (11, 16, -1),
        6: (12, 17, -1),
    },
    "QGemm": {0: (1, 2, -2), 3: (4, 5, -1)},
    "QLinearAdd": {0: (1, 2, -1), 3: (4, 5, -1)},
    "QLinearConv": {0: (1, 2, 1), 3: (4, 5, 0)},
    "QLinearConvTranspose": {0: (1, 2, 1), 3: (4, 5, 1)},
    "QLinearMatMul": {0: (1, 2, -2), 3: (4, 5, -1)},
    "QLinearMul": {0: (1, 2, -1), 3: (4, 5, -1)},
    "QLinearWhere": {1: (2, 3, -1), 4: (5, 6, -1)},
}
"""Quantized inputs: the input of their scale, of their zero point, and the axis of per-channel scales."""

_RECURRENT = {1: (8, 9), 2: (10, 11)}
"""Inputs for codes of DynamicQuantizeLSTM: the inputs of their scales and zero points."""

_BIASES = {"QLinearConv": {8: (1, 4)}, "QLinearConvTranspose": {8: (1, 4)}, "QGemm": {6: (1, 4)}}
"""Inputs for quantized biases: the inputs of the two scales of the product that they are added to."""

_INTEGER_PRODUCTS = {"MatMulInteger": {0: 2, 1: 3}, "ConvInteger": {0: 2, 1: 3}}
"""Products whose operands' scales are applied later: the input of an operand, and of its zero point."""

_MOVES = MOVES | operators_of(Kind.LOOKS_UP)
"""Operators that may come between codes with one scale and the node that decodes them."""

_MOST_MOVES = 4

_SAME = frozenset({"Identity"})
"""Operators that may come before an operand in any number."""
_MOST_SAME = 1 << 12
"""Most nodes that are passed: a file may have them in a cycle."""

_FP4 = (0, 0.0625 / 12, 8 / 12, 12 / 12, 4 / 12, 6 / 12, 2 / 12, 3 / 12)
_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_LEVELS = {0: (*_FP4, *(-level for level in _FP4)), 1: _NF4}
"""Numbers that the codes of MatMulBnb4 represent, by `quant_type` (bitsandbytes, csrc/kernels.cu)."""


def find_encoding(tensor: StoredTensor, wiring: Wiring) -> Encoded | None:
    """Return the encoding that readers of a stored tensor apply; None if it is not encoded, or nothing tells how.

    A tensor without scales, or with sizes that do not fit, counts as not encoded.
    """
    if tensor.dtype not in CODES:
        return None
    for reader in wiring.readers(tensor, past=_SAME):
        encoded = _by_reader(tensor, reader, wiring) if reader.node.is_standard else None
        if encoded is not None and encoded.is_sound():
            return encoded
    return _behind_moves(tensor, wiring)


class Packing(Frozen):
    """Elements that a reader unpacks from a stored tensor: `numel` elements of `bits` bits each."""

    numel: int
    bits: int
    stored: int
    """Bits that the reader receives."""
    least: int
    most: int
    """Bits that the elements take, without and with the padding of rows to whole blocks."""

    @property
    def is_short(self) -> bool:
        """Whether it receives too few bits, or its attributes describe nothing that could be unpacked."""
        return self.numel < 1 or not 0 < self.bits <= 8 or self.stored < self.least

    @property
    def is_sound(self) -> bool:
        return not self.is_short and self.stored <= self.most


def logical_numel(tensor: StoredTensor, wiring: Wiring) -> int:
    """Return the elements that a stored tensor represents when its readers unpack it; its stored elements if none does.

    `MatMulNBits` and `MatMulBnb4` hold K x N of them, `GatherBlockQuantized` and `QMoE` 8 / bits in a byte, whatever
    type stores the codes, if there is room for that many.
    """
    found = find_packing(tensor, wiring)
    return tensor.numel if found is None or found.is_short else found.numel


def may_unpack(readers: Iterable[Reader]) -> bool:
    """Whether any of a tensor's readers unpacks codes, or may pass them on to a node that does."""
    return any(reader.node.op_type in _TO_CODES for reader in readers)


def find_packing(tensor: StoredTensor, wiring: Wiring) -> Packing | None:
    """Return the packing that the first unpacking reader applies to a stored tensor; None if there is none.

    Codes may reach that reader in another type, one code per element, past operators that cast, decode or reshape; the
    reader receives the type of the last cast.
    """
    layer: list[tuple[StoredTensor | Node, DType]] = [(tensor, tensor.dtype)]
    for _ in range(_MOST_MOVES + 1):
        following: list[tuple[StoredTensor | Node, DType]] = []
        for source, code_type in layer:
            for node, slot in wiring.readers(source, past=_SAME):
                if node.op_type not in _TO_CODES or not node.is_standard:
                    continue
                found = _unpack(node, slot, tensor.numel, code_type)
                if found is not None:
                    return found
                if slot == 0 and node.op_type in _RESHAPES:
                    following.append((node, code_type))
                elif slot == 0 and node.op_type in _RECODES:
                    following.append((node, _recode(node)))
        layer = following
    return None


_RESHAPES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_RECODES = frozenset({"Cast", "CastLike", "DequantizeLinear", "QuantizeLinear"})
_UNPACKS = frozenset({"MatMulNBits", "MatMulBnb4", "GatherBlockQuantized", "QMoE"})
_TO_CODES = _RESHAPES | _RECODES | _UNPACKS
"""Operators that unpack codes, or that codes may pass on their way to one of these."""


def _recode(node: Node) -> DType:
    """Return the type of an operator's output codes: bytes, unless a Cast gives another integer type."""
    to = DType.from_onnx(node.integers["to"]) if node.op_type == "Cast" and "to" in node.integers else None
    return to if to is not None and to.is_integer else DType.UINT8


def _unpack(node: Node, slot: int, count: int, code_type: DType) -> Packing | None:
    """Return the packing of `count` codes of a type at a reader's input; None if the reader does not unpack there."""
    stored = count * code_type.bits
    integers = node.integers
    k, n = (max(integers.get(key, 0), 0) for key in ("K", "N"))
    match node.op_type, slot:
        case "MatMulNBits", 1 if code_type.is_integer:
            bits, block = integers.get("bits", 4), max(integers.get("block_size", 0), 1)
            blocks = -(-k // block) * 8 * -(-block * bits // 8)
            row = 8 * -(-k * bits // 8)
            return Packing(k * n, bits, stored, n * row, n * max(row, blocks))
        case "MatMulBnb4", 1 if code_type.is_integer:
            whole = 8 * -(-k * n // 2)
            return Packing(k * n, 4, stored, whole, whole)
        case "GatherBlockQuantized", 0 if code_type is DType.UINT8:
            bits = integers.get("bits", 4)
        case "QMoE", (2 | 5 | 8) if code_type is DType.UINT8:
            bits = _expert_bits(node, slot)
        case _:
            return None
    return Packing(stored // bits, bits, stored, stored, stored) if bits in (2, 4, 8) else None


def _by_reader(tensor: StoredTensor, reader: Reader, wiring: Wiring) -> Encoded | None:
    node, slot = reader.node, reader.slot
    match node.op_type, slot:
        case "MatMulNBits", 1:
            return _nbits(tensor, node, wiring)
        case "MatMulBnb4", 1:
            return _levels(tensor, node, wiring)
        case "GatherBlockQuantized", 0:
            return _gathered_blocks(tensor, node, wiring)
        case "QMoE", (2 | 5 | 8):
            return _experts(tensor, node, slot, wiring)
        case "DynamicQuantizeLSTM", (1 | 2):
            return _recurrent(tensor, node, slot, wiring)
    if slot in _SLOTS.get(node.op_type, ()):
        scale_slot, zero_slot, axis = _SLOTS[node.op_type][slot]
        if node.op_type == "DequantizeLinear":
            axis = node.integers.get("axis", 1)
        elif node.op_type == "QGemm" and slot == 3 and node.integers.get("transB"):
            axis = 0
        if _is_computed(wiring, node, zero_slot):
            return None
        scale, zero = _stored(wiring, node, scale_slot), _stored(wiring, node, zero_slot)
        return _scaled(tensor, scale, zero, axis, node.integers.get("block_size", 0))
    if node.op_type == "QLinearConcat" and slot % 3 == 2:  # (codes, scale, zero point) of each part
        if _is_computed(wiring, node, slot + 2):
            return None
        return _scaled(tensor, _stored(wiring, node, slot + 1), _stored(wiring, node, slot + 2), -1)
    if slot in _BIASES.get(node.op_type, ()):
        scales = [_stored(wiring, node, index) for index in _BIASES[node.op_type][slot]]
        return _product(tensor, *scales)
    if slot in _INTEGER_PRODUCTS.get(node.op_type, ()):
        return _integer_product(tensor, reader, wiring)
    return None


def _integer_product(tensor: StoredTensor, reader: Reader, wiring: Wiring) -> Encoded | None:
    node, slot = reader.node, reader.slot
    zero_slot = _INTEGER_PRODUCTS[node.op_type][slot]
    axis = 1 - slot if node.op_type == "ConvInteger" else slot - 2
    if not _is_computed(wiring, node, zero_slot):
        named_scale = _named_scale(tensor, wiring)
        for scale in (_later_scale(reader, named_scale, wiring), named_scale):
            encoded = _scaled(tensor, scale, _stored(wiring, node, zero_slot), axis)
            if encoded is not None and encoded.is_sound():
                return encoded
    return None


def _stored(wiring: Wiring, node: Node, slot: int) -> StoredTensor | None:
    found = _provider(wiring, node, slot)
    return found if isinstance(found, StoredTensor) else None


def _provider(wiring: Wiring, node: Node, slot: int) -> StoredTensor | Node | None:
    """Return the provider of a node's input, past nodes that pass it on unchanged."""
    for _ in range(_MOST_SAME):
        name = node.inputs[slot] if slot < len(node.inputs) else ""
        found = wiring.find(node.graph_path, name) if name else None
        if not isinstance(found, Node) or found.op_type not in _SAME or not found.is_standard:
            return found if isinstance(found, StoredTensor | Node) else None
        node, slot = found, 0
    return None


def _is_computed(wiring: Wiring, node: Node, slot: int) -> bool:
    """Whether an input is present but not stored, so that the file alone does not give its value."""
    is_given = slot < len(node.inputs) and node.inputs[slot] != ""
    return is_given and _stored(wiring, node, slot) is None


def _scaled(
    tensor: StoredTensor, scale: StoredTensor | None, zero: StoredTensor | None, axis: int, block: int = 0
) -> Encoded | None:
    """Return the encoding with one scale for all, one per channel along `axis`, or one per block along it."""
    shape, ones = tensor.shape, (1,) * len(tensor.shape)
    if scale is None:
        return None
    if math.prod(scale.shape) == 1:
        return Encoded(tensor, shape, scale, ones, zero)
    axis = axis + len(shape) if axis < 0 else axis
    if not 0 <= axis < len(shape):
        return None
    if block > 0:
        grid = _with(shape, axis, -(-shape[axis] // block))
        return Encoded(tensor, shape, scale, grid, zero, None, axis, block) if scale.shape == grid else None
    return Encoded(tensor, shape, scale, _with(ones, axis, shape[axis]), zero)


def _with(shape: tuple[int, ...], axis: int, count: int) -> tuple[int, ...]:
    return (*shape[:axis], count, *shape[axis + 1 :])


def _product(tensor: StoredTensor, first: StoredTensor | None, second: StoredTensor | None) -> Encoded | None:
    """Return the encoding of a vector whose scale is the product of two, one of them a single number."""
    if first is None or second is None or len(tensor.shape) != 1:
        return None
    scale, other = (first, second) if math.prod(second.shape) == 1 else (second, first)
    is_single = math.prod(scale.shape) == 1
    return Encoded(tensor, tensor.shape, scale, (1,) if is_single else tensor.shape, None, other)


def _nbits(tensor: StoredTensor, node: Node, wiring: Wiring) -> Encoded | None:
    scale, zero, groups = (_stored(wiring, node, index) for index in (2, 3, 4))
    k, n = node.integers.get("K", 0), node.integers.get("N", 0)
    bits, block = node.integers.get("bits", 4), node.integers.get("block_size", 0)
    if scale is None or _is_computed(wiring, node, 3) or _is_computed(wiring, node, 4):
        return None
    if min(k, n, block) < 1 or bits not in (2, 4, 8) or tensor.dtype is not DType.UINT8:
        return None
    grid = (n, -(-k // block))
    return Encoded(tensor, (n, k), scale, grid, zero, None, 1, block, bits, 1 << (bits - 1), groups)


def _levels(tensor: StoredTensor, node: Node, wiring: Wiring) -> Encoded | None:
    scale, levels = _stored(wiring, node, 2), _LEVELS.get(node.integers.get("quant_type", -1))
    k, n = node.integers.get("K", 0), node.integers.get("N", 0)
    block = node.integers.get("block_size", 0)
    if scale is None or levels is None or min(k, n) < 1 or block < 2 or tensor.dtype is not DType.UINT8:
        return None
    return Encoded(tensor, (n, k), scale, (), block=block, bits=4, levels=levels)


def _gathered_blocks(tensor: StoredTensor, node: Node, wiring: Wiring) -> Encoded | None:
    scale, zero = _stored(wiring, node, 2), _stored(wiring, node, 3)
    bits, block = node.integers.get("bits", 4), node.integers.get("block_size", 128)
    rank = len(tensor.shape)
    axis = node.integers.get("quantize_axis", 1)
    axis = axis + rank if axis < 0 else axis
    if scale is None or _is_computed(wiring, node, 3) or not 0 <= axis < rank or block < 0:
        return None
    is_packed = tensor.dtype is DType.UINT8
    if is_packed and bits not in (2, 4, 8):
        return None
    shape = (*tensor.shape[:-1], tensor.shape[-1] * (8 // bits)) if is_packed else tensor.shape
    block = block or max(shape[axis], 1)
    grid = _with(shape, axis, -(-shape[axis] // block))
    if scale.shape != grid:
        is_broadcast = len(scale.shape) == rank and all(
            count == full or (count == 1 and index != axis)
            for index, (count, full) in enumerate(zip(scale.shape, grid, strict=True))
        )
        if not is_broadcast or not tensor.dtype.is_floating:
            return None  # only float codes may have one scale for all rows
        grid = scale.shape
    if not is_packed:
        return Encoded(tensor, shape, scale, grid, zero, None, axis, block)
    return Encoded(tensor, shape, scale, grid, zero, None, axis, block, bits, 1 << (bits - 1))


def _expert_bits(node: Node, slot: int) -> int:
    """Return the bits of a code in QMoE's weights at an input: the common attribute, unless the input has its own."""
    own = f"fc{slot // 3 + 1}_expert_weight_bits"
    return node.integers.get(own, node.integers.get("expert_weight_bits", 4))


def _experts(tensor: StoredTensor, node: Node, slot: int, wiring: Wiring) -> Encoded | None:
    """Return the encoding of QMoE's (experts, N, K): a scale per row of each expert, or per block of a row.

    Weights that a provider has reordered (`weights_prepacked` 1) and types other than integers are not decoded.
    """
    bits, block = _expert_bits(node, slot), node.integers.get("block_size", 0)
    zero_slot = 11 + slot // 3
    scale, zero = _stored(wiring, node, slot + 1), _stored(wiring, node, zero_slot)
    is_plain = (
        node.settings.get("quant_type", "int") == "int" and node.integers.get("weights_prepacked", -1) < 1
    )
    if scale is None or not is_plain or _is_computed(wiring, node, zero_slot):
        return None
    if tensor.dtype is not DType.UINT8 or bits not in (2, 4, 8) or len(tensor.shape) != 3:
        return None
    experts, rows, packed = tensor.shape
    shape, half = (experts, rows, packed * (8 // bits)), 1 << (bits - 1)
    if block <= 0:
        return Encoded(
            tensor, shape, scale, (experts, rows, 1), zero, None, None, 1, bits, half, zeros_along=1
        )
    grid = (experts, rows, -(-shape[-1] // block))
    return Encoded(tensor, shape, scale, grid, zero, None, 2, block, bits, half)


def _recurrent(tensor: StoredTensor, node: Node, slot: int, wiring: Wiring) -> Encoded | None:
    """Return the encoding of an LSTM's (directions, inputs, 4 x hidden): a scale per direction, or per column of it."""
    scale_slot, zero_slot = _RECURRENT[slot]
    scale, zero = _stored(wiring, node, scale_slot), _stored(wiring, node, zero_slot)
    if scale is None or _is_computed(wiring, node, zero_slot) or len(tensor.shape) != 3:
        return None
    directions, _, columns = tensor.shape
    is_single = math.prod(scale.shape) == directions
    return Encoded(tensor, tensor.shape, scale, (directions, 1, 1 if is_single else columns), zero)


def _later_scale(reader: Reader, named_scale: StoredTensor | None, wiring: Wiring) -> StoredTensor | None:
    """Return the scale of an operand of an integer product, which is cast, then multiplied by both scales.

    If both operands are stored, both scales are stored too: the operand's own is the one with its name, else the one at
    its position. A single stored scale then belongs to both together, and to neither alone.
    """
    layer, is_pair = [reader.node], all(_is_stored_operand(reader.node, slot, wiring) for slot in (0, 1))
    for _ in range(3):
        readers = [found.node for source in layer for found in wiring.readers(source, past=_SAME)]
        for product in (found for found in readers if found.op_type == "Mul"):
            for slot in range(len(product.inputs)):
                scales = _factors(_provider(wiring, product, slot), wiring)
                if is_pair and len(scales) == 2:
                    return named_scale if named_scale in scales else scales[reader.slot]
                if not is_pair and len(scales) == 1:
                    return scales[0]
        layer = [found for found in readers if found.op_type in ("Cast", "Reshape", "Transpose")]
    return None


def _factors(operand: StoredTensor | Node | None, wiring: Wiring) -> list[StoredTensor]:
    """Return the stored factors of a product: a scale, or the two scales of a product of scales."""
    if isinstance(operand, StoredTensor):
        return [operand]
    if operand is None or operand.op_type != "Mul":
        return []
    parts = (_provider(wiring, operand, slot) for slot in range(len(operand.inputs)))
    return [part for part in parts if isinstance(part, StoredTensor)]


def _is_stored_operand(node: Node, slot: int, wiring: Wiring) -> bool:
    """Whether a product's operand is stored, past operators that only move it."""
    for _ in range(_MOST_MOVES):
        found = _provider(wiring, node, slot)
        if not isinstance(found, Node) or found.op_type not in _MOVES:
            return isinstance(found, StoredTensor)
        node, slot = found, 0
    return False


def _named_scale(tensor: StoredTensor, wiring: Wiring) -> StoredTensor | None:
    """Return `w_scale` for `w_quantized`, as onnxruntime's quantizer names them."""
    base = tensor.name.removesuffix("_quantized")
    found = wiring.find(tensor.graph_path, f"{base}_scale") if base != tensor.name else None
    return found if isinstance(found, StoredTensor) else None


def _behind_moves(tensor: StoredTensor, wiring: Wiring) -> Encoded | None:
    """Return the encoding of codes with a single scale that are gathered or reshaped before they are decoded."""
    layer: list[StoredTensor | Node] = [tensor]
    for _ in range(_MOST_MOVES):
        found = (reader for source in layer for reader in wiring.readers(source, past=_SAME))
        readers = [reader for reader in found if reader.node.is_standard]
        for reader in readers:
            encoded = _by_reader(tensor, reader, wiring)
            if encoded is not None and encoded.has_one_scale and encoded.is_sound():
                return encoded
        layer = [reader.node for reader in readers if is_passed(reader, _MOVES)]
    return None
