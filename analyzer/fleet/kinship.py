"""Learned tensors -> prints that identify their weights under any name, orientation, type or quantization.

The digest is of the values as a multiset: equal if two tensors hold the same elements, in any order. The sketch is a
few sums of the values with fixed signs, along rows and along columns: it is linear, the same for a matrix and its
transpose, and changes by no more than the rounding of a cast or of a quantization.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math

import numpy as np
import numpy.typing as npt

from analyzer.account.decoding import Encoded
from analyzer.account.decoding.encodings import find_encoding
from analyzer.account.ledger import Entry, Role
from analyzer.model.content import Array, channel_direction
from analyzer.model.dtypes import DType
from analyzer.model.wiring import Wiring
from analyzer.records import Frozen

LEAST = 32
"""Fewest elements of a tensor that identify its origin."""

WIDTH = 32
"""Number of sums in a sketch."""

_FEW = 8
"""Fewest different values of a tensor of numbers: with fewer it is a mask, an identity or the like."""

_FEWEST_CODES = 3
"""The same for codes, of which there may be few."""

_SORTED = 1 << 16
"""Most elements for which the digest is of the sorted values; above, it is of sums of their hashes."""

_LEAST_SKETCHED = 256
"""Fewest elements for a sketch: below, a likeness may be an accident."""

_BAND = 1 << 18

Floats = npt.NDArray[np.float32]


class Print(Frozen):
    """Digest and sketch that identify the weights of one tensor."""

    digest: str
    """Digest of its elements as they are stored, in any order: 128 bits in hexadecimal."""
    sketch: tuple[float, ...] | None
    """`WIDTH` sums of the values that it represents; None for a small tensor, a vector, or unknown values."""
    elements: int
    """Number of these values."""
    code_bits: int | None
    """Bits of each code if it is quantized; None if its elements are the values."""


def take_print(entry: Entry, wiring: Wiring) -> Print | None:
    """Return the print of a learned tensor; None if it is too small, constant or regular to identify anything."""
    tensor = entry.tensor
    if entry.role is not Role.PARAMETER or tensor.numel < LEAST or tensor.dtype is DType.STRING:
        return None
    array = tensor.payload.array()
    if array is None or array.dtype.itemsize not in _LANES:
        return None
    encoded = find_encoding(tensor, wiring)
    lanes = np.ascontiguousarray(array).reshape(-1).view(_LANES[array.dtype.itemsize])
    least = _FEWEST_CODES if encoded is not None else _FEW
    digest = _digest(lanes, tensor.dtype.name, least)
    if digest is None or (encoded is None and _is_even(array.reshape(-1))):
        return None
    if encoded is not None:
        values = _decode(encoded, array)
        bits = encoded.bits or tensor.dtype.bits
        return Print(digest, None if values is None else _sketch(values), encoded.numel, bits)
    if not tensor.dtype.is_floating:
        return Print(digest, None, tensor.numel, tensor.dtype.bits)
    return Print(digest, _sketch(array), tensor.numel, None)


def _decode(encoded: Encoded, codes: Array) -> Array | None:
    """Return dequantized values, computed here if no code is packed and scales are per tensor or per channel."""
    zeros = encoded.zero_point
    is_plain = not encoded.is_blocked and not encoded.levels and encoded.second_scale is None
    if not is_plain or encoded.tensor.dtype not in _WHOLE or codes.shape != encoded.shape:
        return encoded.array()
    scale = encoded.scale.payload.array()
    zero = None if zeros is None else zeros.payload.array()
    if scale is None or (zeros is not None and zero is None):
        return None
    values = codes.astype(np.float32)
    with np.errstate(all="ignore"):
        if zero is not None:
            values -= zero.astype(np.float32).reshape(encoded.grid if zero.size > 1 else (1,) * codes.ndim)
        values *= scale.astype(np.float32).reshape(encoded.grid)
    return values


_WHOLE = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})

_LANES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _is_even(flat: Array) -> bool:
    """Whether values are evenly spaced, like positions and counts; a few values suffice to reject most."""
    with np.errstate(invalid="ignore"):  # casting float8 types, which have no infinity, would warn
        few = sorted(flat[:_FEW].astype(np.float64).tolist())
    gaps = [b - a for a, b in itertools.pairwise(few) if b > a]
    if gaps and max(gaps) - min(gaps) > 1e-6 * max(gaps):
        return False
    for count in (_FEW * 4, 1 << 12):
        steps = np.diff(np.sort(flat[:count].astype(np.float64)))
        steps = steps[steps > 0]
        if not len(steps) or float(steps.max() - steps.min()) > 1e-6 * float(steps.max()):
            return False
    return True


def _digest(lanes: npt.NDArray[np.unsignedinteger], kind: str, least: int) -> str | None:
    """Return 128 bits of a multiset of elements; None if it has fewer than `least` different values.

    Different multisets do not collide by chance, but an attacker could construct a collision.
    """
    head = f"{kind}:{lanes.size}:".encode()
    if lanes.size <= _SORTED:
        ordered = lanes.copy()
        ordered.sort()
        if int(np.count_nonzero(ordered[1:] != ordered[:-1])) + 1 < least:
            return None
        hasher = hashlib.sha256(head)
        hasher.update(ordered.data)
        return hasher.hexdigest()[:32]
    if len(np.unique(lanes[:: lanes.size >> 12])) < least and len(np.unique(lanes)) < least:
        return None
    first = second = np.uint64(0)
    with np.errstate(over="ignore"):
        for start in range(0, lanes.size, _BAND):
            hashed = _mix(lanes[start : start + _BAND].astype(np.uint64))
            first += hashed.sum(dtype=np.uint64)
            hashed *= (hashed >> np.uint64(32)) | np.uint64(1)
            second += hashed.sum(dtype=np.uint64)
    return hashlib.sha256(head + first.tobytes() + second.tobytes()).hexdigest()[:32]


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Compute splitmix64 of each element (Steele, Lea and Flood 2014), in place."""
    x += np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def _sketch(values: Array) -> tuple[float, ...] | None:
    """Return sums of a tensor's values: all rows, and all columns, weighted by fixed numbers whose sum is 0.

    A constant added to all values changes nothing. A vector has none, because any two rising vectors, such as tables of
    frequencies, would have similar sums.
    """
    shape = [size for size in values.shape if size != 1] or [1]
    rows, columns = shape[0], math.prod(shape[1:])
    if values.size < _LEAST_SKETCHED or columns == 1:
        return None
    matrix = values.reshape(rows, columns)
    (across, signs), (down, other_signs) = _weigh(columns), _weigh(rows)
    by_column = np.zeros(columns, dtype=np.float64)
    sums = np.empty(rows, dtype=np.float64)
    height = max(1, _BAND // columns)
    with np.errstate(all="ignore"):
        for top in range(0, rows, height):
            band: Floats = matrix[top : top + height].astype(np.float32, copy=False)
            by_column += down[top : top + height] @ band
            sums[top : top + height] = band @ across
        result = (_fold(sums, other_signs) + _fold(by_column, signs)).astype(np.float32)
    numbers = result.tolist()
    return tuple(numbers) if all(map(math.isfinite, numbers)) else None


def _fold(sums: npt.NDArray[np.float64], signs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Fold sums to the width of a sketch: the i-th number is the signed sum of every `WIDTH`-th from the i-th on."""
    signed = sums * signs
    if len(sums) % WIDTH:
        padded = np.zeros(-(-len(sums) // WIDTH) * WIDTH)
        padded[: len(sums)] = signed
        signed = padded
    folded: npt.NDArray[np.float64] = np.add.reduce(signed.reshape(-1, WIDTH))
    return folded


def _weigh(length: int) -> tuple[Floats, npt.NDArray[np.float64]]:
    """Return `length` fixed weights of sum 0, and as many fixed signs."""
    return _known(length) if length <= _KNOWN else _make_weights(length)


def _make_weights(length: int) -> tuple[Floats, npt.NDArray[np.float64]]:
    direction = channel_direction(length)
    return (direction - direction.mean()).astype(np.float32), np.sign(direction)


_KNOWN = 1 << 13
"""Longest length for which these are cached."""

_known = functools.lru_cache(maxsize=64)(_make_weights)
