"""Codes, scales and zero points -> the numbers that they represent, and the size of a step, one part at a time.

A number is (code - zero point) x scale, as the operator that reads the codes computes it. `encodings` finds the tensors
that are codes, and those that decode them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from analyzer.model import StoredTensor
from analyzer.model.content import Array
from analyzer.model.dtypes import DType
from analyzer.records import Frozen

__all__ = ["CODES", "LEAST_LIKENESS", "STEP_ROOM", "Decoder", "Encoded"]

Positions = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

STEP_ROOM = 1.001
"""Tolerance as a multiple of a quantization step, for rounding in the arithmetic that applied it."""

LEAST_LIKENESS = 0.6
"""Least correlation, or cosine, between decoded numbers and their originals: one bit of noise in two leaves 0.8."""

_BAND = 1 << 20
"""Elements that are decoded at a time."""

_FEW = 1 << 10
"""Most positions for which the codes of a tensor above `_SMALL` are read one by one."""

_SMALL = 1 << 16
"""Largest tensor, in bytes, that is cheaper to read whole."""


class Encoded(Frozen):
    """A stored tensor as its readers use it: (code - zero point) x scale, element by element."""

    tensor: StoredTensor
    shape: tuple[int, ...]
    """Shape of the decoded numbers: (N, K) for a packed weight of K x N elements, as MatMulNBits lays it out."""
    scale: StoredTensor
    grid: tuple[int, ...]
    """Number of scales along each dimension of `shape`: 1 for a common scale, one per element, or one per block. Empty
    if runs of `block` elements share a scale, across rows.
    """
    zero_point: StoredTensor | None = None
    second_scale: StoredTensor | None = None
    """Additional single scale: the bias of a quantized product has the input's scale times the weight's."""
    axis: int | None = None
    """Dimension whose elements share a scale block by block; None without blocks."""
    block: int = 1
    """Number of elements in a block."""
    bits: int = 0
    """Bits of a code in a packed byte; 0 if the tensor's own type gives it."""
    default_zero: int = 0
    group_index: StoredTensor | None = None
    """Group of each element along `axis`, if groups are not consecutive (MatMulNBits `g_idx`)."""
    levels: tuple[float, ...] = ()
    """Numbers that codes represent if they are not linear (MatMulBnb4); the high code of a byte then comes first."""
    zeros_along: int = -1
    """Dimension of `grid` along which packed zero points are adjacent in bytes."""

    @property
    def is_blocked(self) -> bool:
        """Whether scales belong to blocks of a row, and not to a channel or the whole tensor."""
        return self.bits > 0 or self.axis is not None

    @property
    def has_one_scale(self) -> bool:
        """Whether all elements have the same scale, wherever they are moved."""
        return not self.is_blocked and math.prod(self.scale.shape) == 1

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """Number of elements in a row, along the last dimension; a scalar has one."""
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        return self.numel // max(self.width, 1)

    @property
    def scale_count(self) -> int:
        return -(-self.numel // self.block) if self.block > 1 and not self.grid else math.prod(self.grid)

    @property
    def companions(self) -> tuple[StoredTensor, ...]:
        """Tensors that are needed to decode it."""
        found = (self.scale, self.second_scale, self.zero_point, self.group_index)
        return tuple(tensor for tensor in found if tensor is not None)

    def is_sound(self) -> bool:
        """Whether codes, scales, zero points and groups have the required number of elements, and numeric types."""
        codes = self.tensor
        expected = self.numel if not self.bits else self._packed_bytes()
        if (
            codes.numel != expected
            or math.prod(codes.shape) != codes.numel
            or min(codes.shape, default=0) < 0
        ):
            return False
        second = self.second_scale
        is_scaled = _is_real(self.scale) and math.prod(self.scale.shape) == self.scale_count
        if not is_scaled or (second is not None and not (_is_real(second) and math.prod(second.shape) == 1)):
            return False
        return self._has_zeros() and self._has_groups()

    def _packed_bytes(self) -> int:
        """Return the bytes of all rows if each begins with a byte of its own; -1 if no number of bytes fits."""
        if self.levels:
            return -(-self.numel * self.bits // 8)
        row_bytes = self.tensor.numel // max(self.rows, 1)
        return row_bytes * self.rows if row_bytes * 8 >= self.width * self.bits else -1

    def _has_zeros(self) -> bool:
        zeros = self.zero_point
        if zeros is None:
            return True
        if self.has_packed_zeros:
            width = self.grid[self.zeros_along]
            return math.prod(zeros.shape) == self.scale_count // max(width, 1) * -(-width * self.bits // 8)
        is_number = zeros.dtype in CODES or _is_real(zeros)
        return is_number and math.prod(zeros.shape) in (1, self.scale_count)

    @property
    def has_packed_zeros(self) -> bool:
        """Whether zero points are packed like the codes, in bytes."""
        zeros = self.zero_point
        return zeros is not None and self.bits in (2, 4) and zeros.dtype is DType.UINT8 and bool(self.grid)

    def _has_groups(self) -> bool:
        groups = self.group_index
        if groups is None:
            return True
        is_fitting = self.axis is not None and math.prod(groups.shape) == self.shape[self.axis]
        return is_fitting and groups.dtype in (DType.INT32, DType.INT64)

    def at(self, positions: Positions) -> tuple[Reals, Reals] | None:
        """Return the numbers at row-major positions of `shape`, and the step of each; None if they cannot be read.

        For a few positions only those codes are read.
        """
        is_cheap = self.tensor.nbytes <= _SMALL
        decoder = Decoder.open(self, whole=is_cheap or positions.size > _FEW)
        return None if decoder is None else decoder.at(positions)

    def open(self) -> Decoder | None:
        """Return a decoder for reading tile by tile; None if the tensor cannot be read."""
        return Decoder.open(self, whole=True)

    def bands(self) -> Iterator[tuple[Reals, Reals]]:
        """Yield all numbers and steps in row-major order, in parts; nothing if they cannot be read."""
        decoder = self.open()
        if decoder is None or not self.numel:
            return
        height = max(1, _BAND // self.width)
        for top in range(0, self.rows, height):
            for left in range(0, self.width, _BAND):
                rows = slice(top, min(top + height, self.rows))
                found = decoder.tile(rows, slice(left, min(left + _BAND, self.width)))
                if found is None:
                    return
                yield found[0].reshape(-1), found[1].reshape(-1)

    def array(self) -> npt.NDArray[np.float32] | None:
        """Return all numbers in `shape`; None if they cannot be read."""
        parts = [values.astype(np.float32) for values, _ in self.bands()]
        flat = np.concatenate(parts) if parts else np.empty(0, np.float32)
        try:
            return flat.reshape(self.shape) if flat.size == self.numel else None
        except ValueError:  # no elements, and dimensions too large for numpy
            return None


class Decoder(Frozen):
    """An encoded tensor with its scales and zero points in memory, memory-mapped if the file allows it."""

    encoded: Encoded
    codes: Array | None
    """Flat codes, packed or not; None if they are read on demand."""
    scales: Array
    second: Array | None
    zeros: Array | None
    groups: Array | None

    @classmethod
    def open(cls, encoded: Encoded, *, whole: bool) -> Decoder | None:
        """Read the companions, and map the codes themselves if `whole`; None if any of them cannot be read."""
        wanted = (encoded.scale, encoded.second_scale, encoded.zero_point, encoded.group_index)
        found = [None if tensor is None else tensor.payload.array() for tensor in wanted]
        codes = encoded.tensor.payload.array() if whole else None
        if any(a is None for t, a in zip(wanted, found, strict=True) if t is not None) or (
            whole and codes is None
        ):
            return None
        scales, second, zeros, groups = (None if array is None else array.reshape(-1) for array in found)
        assert scales is not None
        blocks = 0 if encoded.axis is None else encoded.grid[encoded.axis]
        if groups is not None and groups.size and not 0 <= groups.min() <= groups.max() < blocks:
            return None
        return cls(encoded, None if codes is None else codes.reshape(-1), scales, second, zeros, groups)

    def units(self) -> tuple[Reals, Reals]:
        """Return scales and zero points of all numbers, in shapes that broadcast to theirs."""
        encoded = self.encoded
        if not encoded.is_blocked and encoded.grid:  # one for all, or one per channel
            count = math.prod(encoded.grid)
            scales = _numbers(self.scales, encoded.scale.dtype)
            if self.second is not None and encoded.second_scale is not None:
                scales = scales * _numbers(self.second, encoded.second_scale.dtype)
            zeros = np.broadcast_to(self._zeros_at(np.arange(count)), (count,))
            return scales.reshape(encoded.grid), zeros.reshape(encoded.grid)
        rows, columns = np.arange(encoded.rows)[:, None], np.arange(encoded.width)[None, :]
        whole = encoded.rows, encoded.width
        wide = [np.broadcast_to(found, whole) for found in self._scales_at(rows, columns)]
        return wide[0].reshape(encoded.shape), wide[1].reshape(encoded.shape)

    def at(self, positions: Positions) -> tuple[Reals, Reals] | None:
        """Return the numbers at row-major positions, and the step of each."""
        width = max(self.encoded.width, 1)
        rows, columns = positions // width, positions % width
        codes = self._codes_at(rows, columns)
        return None if codes is None else self._apply(codes, *self._scales_at(rows, columns))

    def tile(self, rows: slice, columns: slice) -> tuple[Reals, Reals] | None:
        """Return the numbers and steps of a part of the (rows, width) matrix, as (height of the tile, its width)."""
        row = np.arange(rows.start, rows.stop, dtype=np.int64)[:, None]
        codes = self._codes_in(rows, columns)
        if codes is None:
            codes = self._codes_at(row, np.arange(columns.start, columns.stop, dtype=np.int64)[None, :])
        if codes is None:
            return None
        block, width = self._run, columns.stop - columns.start
        first = columns.start // block * block
        scales, zeros = self._scales_at(row, np.arange(first, columns.stop, block, dtype=np.int64)[None, :])
        if block > 1:  # one lookup for each run of columns
            skipped = columns.start - first
            scales, zeros = (
                np.repeat(found, block, axis=1)[:, skipped : skipped + width] if found.shape[1] > 1 else found
                for found in (scales, zeros)
            )
        return self._apply(codes, scales, zeros)

    @property
    def _run(self) -> int:
        """Number of consecutive columns that share a scale, anywhere in the row."""
        is_last = self.encoded.axis == len(self.encoded.shape) - 1
        return self.encoded.block if is_last and self.groups is None else 1

    def _codes_in(self, rows: slice, columns: slice) -> Reals | None:
        """Return the codes of a tile; None if rows do not begin with a byte of their own."""
        encoded = self.encoded
        if self.codes is None or encoded.levels:
            return None
        table = self.codes.reshape(encoded.rows, -1)
        if not encoded.bits:
            return _numbers(table[rows, columns], encoded.tensor.dtype)
        per_byte = 8 // encoded.bits
        first = columns.start // per_byte
        packed = table[rows, first : -(-columns.stop // per_byte)].astype(np.uint8)  # (rows, bytes)
        shifts = np.arange(0, 8, encoded.bits, dtype=np.uint8)
        codes = (packed[:, :, None] >> shifts) & np.uint8((1 << encoded.bits) - 1)
        skipped = columns.start - first * per_byte
        width = columns.stop - columns.start
        return codes.reshape(len(packed), -1)[:, skipped : skipped + width].astype(np.float64)

    def _codes_at(self, rows: Positions, columns: Positions) -> Reals | None:
        encoded = self.encoded
        if not encoded.bits:
            found = self._stored_at(rows * encoded.width + columns)
            return None if found is None else _numbers(found, encoded.tensor.dtype)
        per_byte = 8 // encoded.bits
        if encoded.levels:
            flat = rows * encoded.width + columns
            place, shift = flat // per_byte, (per_byte - 1 - flat % per_byte) * encoded.bits
        else:
            row_bytes = encoded.tensor.numel // max(encoded.rows, 1)
            place, shift = rows * row_bytes + columns // per_byte, columns % per_byte * encoded.bits
        packed = self._stored_at(place)
        if packed is None:
            return None
        codes = (packed.astype(np.int64) >> shift) & ((1 << encoded.bits) - 1)
        return (
            np.array(encoded.levels, dtype=np.float64)[codes] if encoded.levels else codes.astype(np.float64)
        )

    def _stored_at(self, index: Positions) -> Array | None:
        if self.codes is not None:
            return self.codes[index]
        found = self.encoded.tensor.payload.at(index.reshape(-1))
        return None if found is None else found.reshape(index.shape)

    def _scales_at(self, rows: Positions, columns: Positions) -> tuple[Reals, Reals]:
        """Return scales and zero points, in shapes that broadcast to the positions'."""
        encoded = self.encoded
        index = self._scale_index(rows, columns)
        scales = _numbers(self.scales[index], encoded.scale.dtype)
        if self.second is not None and encoded.second_scale is not None:
            with np.errstate(invalid="ignore", over="ignore"):
                scales = scales * _numbers(self.second, encoded.second_scale.dtype)
        return scales, self._zeros_at(index)

    def _apply(self, codes: Reals, scales: Reals, zeros: Reals) -> tuple[Reals, Reals]:
        """Return values and steps, in the shape of the codes."""
        with np.errstate(invalid="ignore", over="ignore"):
            values = (codes - zeros) * scales
            return values, np.broadcast_to(np.abs(scales) * self._gaps(codes), values.shape)

    def _gaps(self, codes: Reals) -> Reals | float:
        """Return the distance from a code to its neighbours, before the scale is applied."""
        dtype = self.encoded.tensor.dtype
        if self.encoded.levels:
            return float(np.diff(np.sort(self.encoded.levels)).max())
        if dtype not in _FLOAT_STEPS:
            return 1.0
        relative, least = _FLOAT_STEPS[dtype]
        return np.maximum(np.abs(codes) * relative, least)

    def _scale_index(self, rows: Positions, columns: Positions) -> Positions:
        """Return the index of each element's scale, in a shape that broadcasts to the elements'."""
        encoded = self.encoded
        index, stride, inner = np.zeros((1,) * rows.ndim, dtype=np.int64), 1, 1
        if not encoded.grid:
            return (rows * encoded.width + columns) // encoded.block if encoded.block > 1 else index
        last = len(encoded.shape) - 1
        for dim in range(last, -1, -1):
            if encoded.grid[dim] > 1:
                along = columns if dim == last else rows // inner % encoded.shape[dim]
                index = index + self._group(dim, along) * stride
                stride *= encoded.grid[dim]
            inner *= 1 if dim == last else encoded.shape[dim]
        return index

    def _group(self, dim: int, along: Positions) -> Positions:
        if dim != self.encoded.axis:
            return along
        return along // self.encoded.block if self.groups is None else self.groups[along].astype(np.int64)

    def _zeros_at(self, index: Positions) -> Reals:
        """Return the zero points that belong to the scales with these indices."""
        encoded, zeros = self.encoded, self.zeros
        if zeros is None or encoded.zero_point is None:
            return np.full((1,) * index.ndim, float(encoded.default_zero))
        if encoded.has_packed_zeros:
            per_byte, width = 8 // encoded.bits, encoded.grid[encoded.zeros_along]
            row, column = index // width, index % width
            row_bytes = -(-width // per_byte)
            packed = zeros[row * row_bytes + column // per_byte].astype(np.int64)
            unpacked: Positions = (packed >> (column % per_byte * encoded.bits)) & ((1 << encoded.bits) - 1)
            return unpacked.astype(np.float64)
        return _numbers(zeros[index if zeros.size > 1 else index * 0], encoded.zero_point.dtype)


_FLOAT_STEPS = {
    DType.FLOAT8E4M3FN: (2.0**-3, 2.0**-9),
    DType.FLOAT8E4M3FNUZ: (2.0**-3, 2.0**-10),
    DType.FLOAT8E5M2: (2.0**-2, 2.0**-16),
    DType.FLOAT8E5M2FNUZ: (2.0**-2, 2.0**-17),
    DType.FLOAT4E2M1: (2.0**-1, 0.5),
}
"""Distance between neighbours relative to the number, and the least distance (onnx docs/technical/float8.md)."""

_FLOAT4: Reals = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
_SIGNED = {DType.INT4: 8, DType.INT2: 2}
"""Types whose codes the payload returns unsigned, and half of their range."""

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
        *_FLOAT_STEPS,
    }
)
"""Types that codes may have."""


def _numbers(codes: Array, dtype: DType) -> Reals:
    if dtype is DType.FLOAT4E2M1:
        return _FLOAT4[codes.astype(np.int64)]
    with np.errstate(invalid="ignore"):  # a signaling NaN
        numbers: Reals = codes.astype(np.float64)
    if dtype in _SIGNED:
        half = _SIGNED[dtype]
        numbers = (numbers + half) % (2 * half) - half
    return numbers


_REALS = frozenset(
    {DType.FLOAT, DType.FLOAT16, DType.BFLOAT16, DType.DOUBLE, DType.FLOAT8E8M0, *_FLOAT_STEPS}
)


def _is_real(tensor: StoredTensor) -> bool:
    return tensor.dtype in _REALS
