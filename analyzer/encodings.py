"""A stored tensor and its readers -> what its codes stand for: the numbers, their shape, and the size of a step.

Quantized and packed weights are read as the operator that reads them reads them: (code - zero point) x scale. Sources:
ONNX docs/Operators.md (DequantizeLinear, MatMulInteger, QLinearConv), onnxruntime docs/ContribOperators.md
(MatMulNBits, GatherBlockQuantized, QAttention), onnxruntime/python/tools/quantization for how its files are written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from analyzer.content import Array
from analyzer.dtypes import DType
from analyzer.model import Node, StoredTensor
from analyzer.wiring import Reader, Wiring

__all__ = ["CODES", "Encoded", "find_encoding", "logical_numel"]

Positions = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_BAND = 1 << 20
"""Elements that are decoded at a time."""


class _Codes(Protocol):
    """Where the codes of a tensor are: as many as it stands for elements, by row-major position."""

    def at(self, positions: Positions) -> Array | None:
        """The codes as they are stored, before the zero point is taken off."""
        ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """A stored tensor as its readers use it: (code - zero point) x scale, element by element."""

    tensor: StoredTensor
    shape: tuple[int, ...]
    """Of what it stands for: (N, K) for a packed weight of K x N elements, as MatMulNBits lays it out."""
    scale: StoredTensor
    zero_point: StoredTensor | None
    second_scale: StoredTensor | None
    """The bias of a quantized product has the input's scale times the weight's."""
    axis: int | None
    """The axis along which scales differ; None where there is one for all."""
    block: int
    """Elements along `axis` that share a scale: 1 per channel."""
    bits: int
    """Bits of a code in a packed byte; 0 where the tensor's own type says it."""
    default_zero: int = 0
    group_index: StoredTensor | None = None
    """Which group each element along `axis` belongs to, where groups are no runs (MatMulNBits `g_idx`)."""

    @property
    def is_blocked(self) -> bool:
        """Whether scales belong to blocks of a row, and not to a channel or the whole tensor."""
        return self.bits > 0 or self.block > 1

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def companions(self) -> tuple[StoredTensor, ...]:
        """The tensors that are needed to decode it."""
        found = (self.scale, self.second_scale, self.zero_point, self.group_index)
        return tuple(tensor for tensor in found if tensor is not None)

    def at(self, positions: Positions) -> tuple[Reals, Reals] | None:
        """The numbers at row-major positions of `shape`, and the step of each; None where they cannot be read."""
        decoder = _Decoder.open(self)
        return None if decoder is None else decoder.at(positions)

    def bands(self) -> Iterator[tuple[Reals, Reals]]:
        """All numbers and steps in row-major order, some at a time; nothing where they cannot be read."""
        decoder = _Decoder.open(self)
        if decoder is None:
            return
        for start in range(0, self.numel, _BAND):
            found = decoder.at(np.arange(start, min(start + _BAND, self.numel), dtype=np.int64))
            if found is None:
                return
            yield found

    def array(self) -> npt.NDArray[np.float32] | None:
        """All numbers in `shape`; None where they cannot be read."""
        parts = [values.astype(np.float32) for values, _ in self.bands()]
        flat = np.concatenate(parts) if parts else np.empty(0, np.float32)
        return flat.reshape(self.shape) if flat.size == self.numel else None


@dataclass(frozen=True, slots=True)
class _Decoder:
    """An encoded tensor with its codes, scales and zero points in memory (codes mapped where the file allows it)."""

    encoded: Encoded
    codes: Array
    """Flat: codes, or packed bytes (rows, bytes of a row)."""
    scales: Reals
    zeros: Reals
    groups: npt.NDArray[np.int64] | None

    @classmethod
    def open(cls, encoded: Encoded) -> _Decoder | None:
        codes, scales = encoded.tensor.payload.array(), _reals(encoded.scale)
        if codes is None or scales is None:
            return None
        if encoded.second_scale is not None:
            second = _reals(encoded.second_scale)
            if second is None or 1 not in (second.size, scales.size):
                return None
            scales = scales * second
        expected = _scale_count(encoded)
        if scales.size != expected:
            return None
        zeros = _zeros(encoded, expected)
        groups = None
        if encoded.group_index is not None:
            found = encoded.group_index.payload.array()
            if found is None or encoded.axis is None or found.size != encoded.shape[encoded.axis]:
                return None
            groups = found.reshape(-1).astype(np.int64)
        return None if zeros is None else cls(encoded, codes.reshape(-1), scales, zeros, groups)

    def at(self, positions: Positions) -> tuple[Reals, Reals] | None:
        encoded = self.encoded
        codes = self._codes(positions)
        if codes is None:
            return None
        index = self._scale_index(positions)
        if index.size and (index.max() >= self.scales.size or index.min() < 0):
            return None
        scales = self.scales[index]
        zeros = self.zeros[index] if self.zeros.size > 1 else self.zeros
        values = (codes - zeros) * scales
        if encoded.tensor.dtype in _FLOAT8_STEPS:
            relative, least = _FLOAT8_STEPS[encoded.tensor.dtype]
            return values, np.maximum(np.abs(codes) * relative, least) * np.abs(scales)
        return values, np.abs(scales)

    def _codes(self, positions: Positions) -> Reals | None:
        encoded = self.encoded
        if not encoded.bits:
            if self.codes.size != encoded.numel:
                return None
            return _numbers(self.codes[positions], encoded.tensor.dtype)
        width = encoded.shape[-1]
        rows = encoded.numel // max(width, 1)
        row_bytes = self.codes.size // max(rows, 1)
        if row_bytes * rows != self.codes.size or row_bytes * 8 < width * encoded.bits:
            return None
        row, column = positions // width, positions % width
        per_byte = 8 // encoded.bits
        packed = self.codes[row * row_bytes + column // per_byte].astype(np.int64)
        mask = (1 << encoded.bits) - 1
        return ((packed >> ((column % per_byte) * encoded.bits)) & mask).astype(np.float64)

    def _scale_index(self, positions: Positions) -> Positions:
        encoded = self.encoded
        if encoded.axis is None or self.scales.size == 1:
            return np.zeros(len(positions), dtype=np.int64)
        axis, shape = encoded.axis, encoded.shape
        inner = math.prod(shape[axis + 1 :])
        along = positions // inner % shape[axis]
        group = along // encoded.block if self.groups is None else self.groups[along]
        if encoded.block == 1 and self.groups is None:
            return group
        count = _blocks(encoded)
        outer, rest = positions // (inner * shape[axis]), positions % inner
        return (outer * count + group) * inner + rest


_FLOAT8_STEPS = {
    DType.FLOAT8E4M3FN: (2.0**-3, 2.0**-9),
    DType.FLOAT8E4M3FNUZ: (2.0**-3, 2.0**-10),
    DType.FLOAT8E5M2: (2.0**-2, 2.0**-16),
    DType.FLOAT8E5M2FNUZ: (2.0**-2, 2.0**-17),
    DType.FLOAT4E2M1: (2.0**-1, 0.5),
}
"""The distance of neighbours, relative to the number, and the least one (onnx docs/technical/float8.md)."""

_FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
_SIGNED = {DType.INT4: 8, DType.INT2: 2}
"""Types whose codes the payload hands out unsigned, and the half of their range."""


def _numbers(codes: Array, dtype: DType) -> Reals:
    if dtype is DType.FLOAT4E2M1:
        return _FLOAT4[codes.astype(np.int64)]
    numbers = codes.astype(np.float64)
    half = _SIGNED.get(dtype)
    return numbers if half is None else (numbers + half) % (2 * half) - half


def _reals(tensor: StoredTensor) -> Reals | None:
    array = tensor.payload.array()
    return None if array is None else _numbers(array.reshape(-1), tensor.dtype)


def _blocks(encoded: Encoded) -> int:
    assert encoded.axis is not None
    return -(-encoded.shape[encoded.axis] // encoded.block)


def _scale_count(encoded: Encoded) -> int:
    if encoded.axis is None:
        return 1
    if encoded.block == 1 and not encoded.bits:
        return encoded.shape[encoded.axis]
    return encoded.numel // max(encoded.shape[encoded.axis], 1) * _blocks(encoded)


def _zeros(encoded: Encoded, count: int) -> Reals | None:
    """Zero points, one for each scale; packed as the codes are where these are packed and they are bytes."""
    if encoded.zero_point is None:
        return np.full(1, float(encoded.default_zero))
    zeros = _reals(encoded.zero_point)
    if zeros is None:
        return None
    if encoded.bits in (2, 4) and encoded.zero_point.dtype is DType.UINT8:
        blocks = _blocks(encoded)
        rows = count // max(blocks, 1)
        per_byte = 8 // encoded.bits
        if zeros.size * per_byte < count or zeros.size % max(rows, 1):
            return None
        packed = zeros.astype(np.int64).reshape(rows, -1)  # (rows, bytes)
        shifts = np.arange(per_byte) * encoded.bits
        unpacked = (packed[:, :, None] >> shifts) & ((1 << encoded.bits) - 1)
        return unpacked.reshape(rows, -1)[:, :blocks].reshape(-1).astype(np.float64)
    return zeros if zeros.size in (1, count) else None


CODES = frozenset(
    {
        DType.INT8,
        DType.UINT8,
        DType.INT16,
        DType.UINT16,
        DType.INT32,
        DType.INT4,
        DType.UINT4,
        DType.INT2,
        DType.UINT2,
        *_FLOAT8_STEPS,
    }
)
"""Types of which a tensor may be codes."""

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
    "QLinearConv": {3: (4, 5, 0)},
    "QLinearMatMul": {0: (1, 2, -2), 3: (4, 5, -1)},
}
"""Quantized inputs: their scale's input, their zero point's, and the axis of a scale for each channel."""

_BIASES = {"QLinearConv": {8: (1, 4)}, "QGemm": {6: (1, 4)}}
"""Quantized biases: the scales of the product that they are added to."""

_INTEGER_PRODUCTS = {"MatMulInteger": {0: 2, 1: 3}, "ConvInteger": {1: 3}}
"""Products whose weight's scale is applied later: its input, and its zero point's."""

_MOVES = frozenset({"Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that may stand between codes with one scale and their DequantizeLinear."""

_MOST_MOVES = 4


def find_encoding(tensor: StoredTensor, wiring: Wiring) -> Encoded | None:
    """How the readers of a stored tensor decode it; None where it stands for itself, or nothing says what for."""
    if tensor.dtype not in CODES:
        return None
    for reader in wiring.readers(tensor):
        encoded = _by_reader(tensor, reader, wiring)
        if encoded is not None:
            return encoded
    return _behind_moves(tensor, wiring)


def logical_numel(tensor: StoredTensor, wiring: Wiring) -> int:
    """Elements that a stored tensor stands for, as its readers unpack it; as many as it stores where none does.

    `MatMulNBits` and `MatMulBnb4` hold K x N of them, `GatherBlockQuantized` and `QMoE` 8 / bits in a byte, if the bytes
    have room for as many.
    """
    for node, slot in wiring.readers(tensor):
        bits, count = _packed(tensor, node, slot)
        if 0 < count and count * bits <= 8 * tensor.numel:
            return count
    return tensor.numel


def _packed(tensor: StoredTensor, node: Node, slot: int) -> tuple[int, int]:
    """Bits of an element and how many there are; (0, 0) where the reader unpacks nothing."""
    integers = node.integers
    if tensor.dtype is not DType.UINT8:
        return 0, 0
    match node.op_type, slot:
        case ("MatMulNBits", 1) | ("MatMulBnb4", 1):
            return integers.get("bits", 4), integers.get("K", 0) * integers.get("N", 0)
        case "GatherBlockQuantized", 0:
            bits = integers.get("bits", 4)
        case "QMoE", (2 | 5 | 8):
            bits = integers.get("expert_weight_bits", 4)
        case _:
            return 0, 0
    return (bits, tensor.numel * (8 // bits)) if bits in (2, 4, 8) else (0, 0)


def _by_reader(tensor: StoredTensor, reader: Reader, wiring: Wiring) -> Encoded | None:
    node, slot = reader.node, reader.slot
    match node.op_type, slot:
        case "MatMulNBits", 1:
            return _nbits(tensor, node, wiring)
        case "GatherBlockQuantized", 0:
            return _gathered_blocks(tensor, node, wiring)
    if slot in _SLOTS.get(node.op_type, ()):
        scale_slot, zero_slot, axis = _SLOTS[node.op_type][slot]
        scale = _stored(wiring, node, scale_slot)
        if scale is None:
            return None
        if node.op_type == "DequantizeLinear":
            axis = node.integers.get("axis", 1)
        elif node.op_type == "QGemm" and slot == 3 and node.integers.get("transB"):
            axis = 0
        return _scaled(
            tensor, scale, _stored(wiring, node, zero_slot), axis, node.integers.get("block_size", 0)
        )
    if slot in _BIASES.get(node.op_type, ()):
        first, second = (_stored(wiring, node, index) for index in _BIASES[node.op_type][slot])
        return None if first is None or second is None else _scaled(tensor, second, None, 0, 0, first)
    if slot in _INTEGER_PRODUCTS.get(node.op_type, ()):
        scale = _later_scale(node, wiring) or _named_scale(tensor, wiring)
        zero = _stored(wiring, node, _INTEGER_PRODUCTS[node.op_type][slot])
        axis = 0 if node.op_type == "ConvInteger" else -1
        return None if scale is None else _scaled(tensor, scale, zero, axis, 0)
    return None


def _stored(wiring: Wiring, node: Node, slot: int) -> StoredTensor | None:
    name = node.inputs[slot] if slot < len(node.inputs) else ""
    found = wiring.find(node.graph_path, name) if name else None
    return found if isinstance(found, StoredTensor) else None


def _scaled(
    tensor: StoredTensor,
    scale: StoredTensor,
    zero: StoredTensor | None,
    axis: int,
    block: int,
    second: StoredTensor | None = None,
) -> Encoded | None:
    """One scale for all, one for each channel along `axis`, or one for each block along it."""
    shape = tensor.shape
    count = scale.numel if second is None else max(scale.numel, second.numel)
    if math.prod(shape) != tensor.numel:
        return None
    if count == 1:
        return Encoded(tensor, shape, scale, zero, second, None, 1, 0)
    axis = axis + len(shape) if axis < 0 else axis
    if not 0 <= axis < len(shape):
        return None
    is_blocked = block > 1 and len(scale.shape) == len(shape)
    return Encoded(tensor, shape, scale, zero, second, axis, block if is_blocked else 1, 0)


def _nbits(tensor: StoredTensor, node: Node, wiring: Wiring) -> Encoded | None:
    scale = _stored(wiring, node, 2)
    k, n = node.integers.get("K", 0), node.integers.get("N", 0)
    bits, block = node.integers.get("bits", 4), node.integers.get("block_size", 0)
    if scale is None or min(k, n, block) < 1 or bits not in (2, 4, 8) or k * n * bits > 8 * tensor.numel:
        return None
    zero, groups = _stored(wiring, node, 3), _stored(wiring, node, 4)
    return Encoded(tensor, (n, k), scale, zero, None, 1, block, bits, 1 << (bits - 1), groups)


def _gathered_blocks(tensor: StoredTensor, node: Node, wiring: Wiring) -> Encoded | None:
    scale = _stored(wiring, node, 2)
    bits, block = node.integers.get("bits", 4), node.integers.get("block_size", 128)
    rank = len(tensor.shape)
    axis = node.integers.get("quantize_axis", 1)
    axis = axis + rank if axis < 0 else axis
    if scale is None or not 0 <= axis < rank or block < 1 or bits not in (2, 4, 8):
        return None
    if math.prod(tensor.shape) != tensor.numel:
        return None
    zero = _stored(wiring, node, 3)
    if tensor.dtype is not DType.UINT8:
        return Encoded(tensor, tensor.shape, scale, zero, None, axis, block, 0)
    shape = (*tensor.shape[:-1], tensor.shape[-1] * (8 // bits))
    return Encoded(tensor, shape, scale, zero, None, axis, block, bits, 1 << (bits - 1))


def _later_scale(node: Node, wiring: Wiring) -> StoredTensor | None:
    """The weight's scale of an integer product: it is cast, then multiplied by the scales' product."""
    layer = [node]
    for _ in range(3):
        readers = [reader.node for source in layer for reader in wiring.readers(source)]
        for product in (reader for reader in readers if reader.op_type == "Mul"):
            for operand in wiring.producers(product):
                if isinstance(operand, StoredTensor):
                    return operand
                if operand.op_type == "Mul":
                    stored = [part for part in wiring.producers(operand) if isinstance(part, StoredTensor)]
                    if len(stored) == 1:
                        return stored[0]
        layer = [reader for reader in readers if reader.op_type in ("Cast", "Reshape", "Transpose")]
    return None


def _named_scale(tensor: StoredTensor, wiring: Wiring) -> StoredTensor | None:
    """`w_scale` beside `w_quantized`, as onnxruntime's quantizer names them."""
    base = tensor.name.removesuffix("_quantized")
    found = wiring.find(tensor.graph_path, f"{base}_scale") if base != tensor.name else None
    return found if isinstance(found, StoredTensor) else None


def _behind_moves(tensor: StoredTensor, wiring: Wiring) -> Encoded | None:
    """Codes that are gathered or reshaped before they are dequantized with one scale for all."""
    layer: list[StoredTensor | Node] = [tensor]
    for _ in range(_MOST_MOVES):
        readers = [reader for source in layer for reader in wiring.readers(source) if reader.slot == 0]
        for reader in readers:
            if reader.node.op_type == "DequantizeLinear":
                scale = _stored(wiring, reader.node, 1)
                if scale is not None and scale.numel == 1:
                    return _scaled(tensor, scale, _stored(wiring, reader.node, 2), 0, 0)
        layer = [reader.node for reader in readers if reader.node.op_type in _MOVES]
    return None
