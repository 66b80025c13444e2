"""Codes -> decoded numbers: (code - zero point) x scale, without rounding.

Numbers that a file rounds to their own range, as `DynamicQuantizeLinear` does, fit that range. Only a run can tell
whether numbers fit a stored range, so `QuantizeLinear` is not supported.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzer.verify.algebra.field import inverse
from analyzer.verify.algebra.values import (
    Algebra,
    Array,
    Coded,
    Field,
    UnknownError,
    Value,
    is_known,
    shape_of,
)


def decoded(a: Algebra, value: Value, scale: Value | None, zero: Value | None) -> Value:
    """Decode codes."""
    if scale is None:
        raise UnknownError("codes without a scale")
    if isinstance(value, Coded) and _is_same_scale(value.zero, zero) and _is_same_scale(value.scale, scale):
        return value.of
    return a.multiply(less(a, value, zero), scale)


def less(a: Algebra, value: Value, zero: Value | None) -> Value:
    """Subtract the zero point from codes."""
    if isinstance(value, Coded) and _is_same_scale(value.zero, zero):
        return a.divide(value.of, value.scale)
    value = a.cast(value, "f", np.float32)
    if zero is None or (is_known(zero) and not np.asarray(zero).any()):
        return value
    return a.subtract(value, a.cast(zero, "f", np.float32))


def _is_same_scale(stored: Array, operand: Value | None) -> bool:
    """Whether a scale or zero point is that of the codes; an absent one is 0."""
    if operand is None:
        return not stored.any()
    if not is_known(operand):
        return False
    array = np.asarray(operand, np.float32)
    one, other = np.broadcast_arrays(stored, array)
    return array.ndim <= stored.ndim and bool(np.array_equal(one, other))


def by_rows(a: Algebra, value: Value | None) -> Value | None:
    """Return one number for all, or one for each row as a column."""
    if value is None or len(shape_of(value)) != 1 or shape_of(value) == (1,):
        return value
    return a.reshape(value, (-1, 1))


def spread(a: Algebra, value: Value | None, shape: Sequence[int], axis: int, block: int) -> Value | None:
    """Reshape a scale or zero point (one, or one per channel or block of an axis) to broadcast to the codes."""
    if value is None or not shape_of(value) or shape_of(value) == (1,):
        return value if value is None else a.reshape(value, ())
    axis %= len(shape)
    if len(shape_of(value)) == 1 and not block:
        return a.reshape(value, [-1 if at == axis else 1 for at in range(len(shape))])
    if not block or len(shape_of(value)) != len(shape):
        raise UnknownError("scales of another shape")
    places = np.arange(shape[axis]) // block
    return a.take(value, places, axis)


def rounded(a: Algebra, value: Value) -> list[Value]:
    """Return numbers in steps of their own range, the step, and the zero point (DynamicQuantizeLinear)."""
    axes = range(len(shape_of(value)))
    scale = a.dense(a.gathered("step of codes", value, axes, keeps=False))
    zero_at = a.gathered("zero of codes", value, axes, keeps=False)
    # A product with the inverse is not recorded as a division: the range is never 0.
    steps = a.multiply(value, Field(inverse(scale.elements, a.prime)))
    return [a.add(steps, zero_at), scale, zero_at]


def unpacked(
    a: Algebra,
    value: Value,
    scale: Value,
    zero: Value | None,
    inputs: int,
    outputs: int,
    bits: int,
    block: int,
) -> Value:
    """Return MatMulNBits' weight, (outputs, inputs), from codes, block scales, and zero points, packed or not."""
    if block < 1 or bits not in (2, 4, 8) or shape_of(value) != (outputs, inputs):
        raise UnknownError("MatMulNBits of codes of another shape")
    count = -(-inputs // block)
    zeros: Value = np.float32(1 << (bits - 1)) * np.ones((outputs, count), np.float32)
    if zero is not None and is_known(zero) and np.asarray(zero).dtype == np.uint8:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        packed = np.asarray(zero).reshape(outputs, -1)
        parts = (packed[:, :, None] >> shifts) & np.uint8((1 << bits) - 1)
        zeros = parts.reshape(outputs, -1)[:, :count]
    elif zero is not None:
        zeros = a.reshape(zero, (outputs, count))
    expanded = [
        spread(a, each, (outputs, inputs), 1, block) for each in (a.reshape(scale, (outputs, count)), zeros)
    ]
    return decoded(a, value, *expanded)
