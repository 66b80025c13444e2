"""ONNX element types: their names, their width in bits and their numpy equivalents."""

from __future__ import annotations

import enum
import math
import struct

import numpy as np


class DType(enum.IntEnum):
    """`TensorProto.DataType` of the ONNX IR spec, by its own names and numbers.

    An unknown number becomes `UNDEFINED`; elements of that type can be counted, but not read.
    """

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28

    @classmethod
    def from_onnx(cls, number: int) -> DType:
        """Return the type with this `TensorProto.DataType` number, `UNDEFINED` if there is none."""
        return _BY_NUMBER.get(number, cls.UNDEFINED)

    @property
    def bits(self) -> int:
        """Bits per element in `raw_data`; 0 for strings and unknown types, which have no fixed width."""
        return _BITS[self]

    @property
    def is_floating(self) -> bool:
        """Whether the type is real or complex floating-point, of any width."""
        return self in _FLOATING

    @property
    def is_integer(self) -> bool:
        """Whether the type is a signed or unsigned integer of any width; booleans are not."""
        return self in _INTEGER

    def nbytes(self, numel: int) -> int:
        """Return the bytes of `numel` elements; packed types are rounded up to a whole byte.

        >>> DType.INT4.nbytes(3)
        2
        """
        return (self.bits * numel + 7) // 8

    def to_numpy(self) -> np.dtype | None:
        """Return the numpy (or ml_dtypes) type with the same bytes; None if elements are packed or not numbers."""
        known = _NUMPY.get(self)
        if known is not None:
            return known
        if self in _ML_DTYPES:
            import ml_dtypes  # imported here because it takes 0.03 s, and few files need it

            element: np.dtype = np.dtype(getattr(ml_dtypes, _ML_DTYPES[self]))
            return element
        return None


_BY_NUMBER: dict[int, DType] = {dtype.value: dtype for dtype in DType}

_BITS = {
    DType.UNDEFINED: 0,
    DType.STRING: 0,
    DType.UINT2: 2,
    DType.INT2: 2,
    DType.UINT4: 4,
    DType.INT4: 4,
    DType.FLOAT4E2M1: 4,
    DType.FLOAT6E2M3: 6,
    DType.FLOAT6E3M2: 6,
    DType.UINT8: 8,
    DType.INT8: 8,
    DType.BOOL: 8,
    DType.FLOAT8E4M3FN: 8,
    DType.FLOAT8E4M3FNUZ: 8,
    DType.FLOAT8E5M2: 8,
    DType.FLOAT8E5M2FNUZ: 8,
    DType.FLOAT8E8M0: 8,
    DType.UINT16: 16,
    DType.INT16: 16,
    DType.FLOAT16: 16,
    DType.BFLOAT16: 16,
    DType.FLOAT: 32,
    DType.INT32: 32,
    DType.UINT32: 32,
    DType.DOUBLE: 64,
    DType.INT64: 64,
    DType.UINT64: 64,
    DType.COMPLEX64: 64,
    DType.COMPLEX128: 128,
}

_FLOATING = frozenset(
    {
        DType.FLOAT,
        DType.FLOAT16,
        DType.DOUBLE,
        DType.BFLOAT16,
        DType.COMPLEX64,
        DType.COMPLEX128,
        DType.FLOAT8E4M3FN,
        DType.FLOAT8E4M3FNUZ,
        DType.FLOAT8E5M2,
        DType.FLOAT8E5M2FNUZ,
        DType.FLOAT8E8M0,
        DType.FLOAT4E2M1,
        DType.FLOAT6E2M3,
        DType.FLOAT6E3M2,
    }
)

_INTEGER = frozenset(
    {
        DType.UINT8,
        DType.INT8,
        DType.UINT16,
        DType.INT16,
        DType.INT32,
        DType.INT64,
        DType.UINT32,
        DType.UINT64,
        DType.UINT4,
        DType.INT4,
        DType.UINT2,
        DType.INT2,
    }
)

_NUMPY: dict[DType, np.dtype] = {
    DType.FLOAT: np.dtype("<f4"),
    DType.UINT8: np.dtype("u1"),
    DType.INT8: np.dtype("i1"),
    DType.UINT16: np.dtype("<u2"),
    DType.INT16: np.dtype("<i2"),
    DType.INT32: np.dtype("<i4"),
    DType.INT64: np.dtype("<i8"),
    DType.BOOL: np.dtype("?"),
    DType.FLOAT16: np.dtype("<f2"),
    DType.DOUBLE: np.dtype("<f8"),
    DType.UINT32: np.dtype("<u4"),
    DType.UINT64: np.dtype("<u8"),
    DType.COMPLEX64: np.dtype("<c8"),
    DType.COMPLEX128: np.dtype("<c16"),
}

_ML_DTYPES = {
    DType.BFLOAT16: "bfloat16",
    DType.FLOAT8E4M3FN: "float8_e4m3fn",
    DType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    DType.FLOAT8E5M2: "float8_e5m2",
    DType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    DType.FLOAT8E8M0: "float8_e8m0fnu",
}


_FINER: dict[DType, frozenset[DType]] = {
    DType.FLOAT16: frozenset({DType.FLOAT, DType.DOUBLE}),
    DType.BFLOAT16: frozenset({DType.FLOAT, DType.DOUBLE}),
    DType.FLOAT: frozenset({DType.DOUBLE}),
}
"""For each type, the wider types that represent all its numbers."""


def is_exact(dtype: DType, stored: DType) -> bool:
    """Whether a tensor of type `dtype` loses nothing when it is stored as `stored`.

    >>> is_exact(DType.BFLOAT16, DType.FLOAT), is_exact(DType.FLOAT, DType.BFLOAT16)
    (True, False)
    """
    return dtype is stored or stored in _FINER.get(dtype, ())


def round_to_half(number: float, half: str) -> float:
    """Return a number as a half-precision file stores it; a number outside the type's range stays unchanged.

    Args:
        number: such as an epsilon or a scale.
        half: `FLOAT16` or `BFLOAT16`.

    >>> round_to_half(1e-5, "FLOAT16"), round_to_half(1e-5, "BFLOAT16"), round_to_half(1e-12, "FLOAT16")
    (1.0013580322265625e-05, 1.0013580322265625e-05, 1e-12)
    """
    if not _LEAST_HALF < abs(number) < _MOST_HALF:
        return number
    if half == DType.FLOAT16.name:
        return float(struct.unpack("<e", struct.pack("<e", number))[0])
    whole = int.from_bytes(struct.pack("<f", number), "little") + 0x8000
    return float(struct.unpack("<f", (whole & 0xFFFF0000).to_bytes(4, "little"))[0])


def is_one_in_half(one: float, other: float, half: str) -> bool:
    """Whether two numbers are equal in a half-precision file, where numbers below `_TINY` are raised to it.

    >>> is_one_in_half(1e-6, 1.01328e-6, "FLOAT16"), is_one_in_half(1e-5, 1e-6, "FLOAT16")
    (True, False)
    """
    a, b = (round_to_half(math.copysign(max(abs(each), _TINY), each), half) for each in (one, other))
    return a == b


HALF_STEPS = {DType.FLOAT16: 2.0**-11, DType.BFLOAT16: 2.0**-8}
"""Half-precision types, with the largest relative error of rounding to each."""

_LEAST_HALF, _MOST_HALF = 1e-7, 6e4
_TINY = 1.2e-7
"""Size to which converters raise smaller numbers, so that they do not vanish."""
