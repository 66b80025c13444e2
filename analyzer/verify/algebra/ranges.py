"""Smallest and largest number of a value that is made of sizes, at any sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from analyzer.model import Node
from analyzer.records import Frozen, replace

MOST = 2.0**31 - 1
"""Largest size of an axis; with a bound, an overflow at larger sizes is seen."""
_MOST_ELEMENTS = 2.0**40
"""Largest number of elements of a tensor."""


class Range(Frozen):
    """Bounds of the numbers of a tensor; truth values are 0 and 1."""

    low: float
    high: float
    is_filled: bool = True
    """Whether the tensor has an element at any sizes."""

    @property
    def is_one_number(self) -> bool:
        """Whether every element is the same number at any sizes."""
        return self.low == self.high


def range_of(numbers: Any) -> Range | None:
    """Return the range of numbers that do not depend on sizes; None if there are none, or some are not finite."""
    array = np.asarray(numbers)
    if not array.size or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        return None
    return Range(low=float(array.min()), high=float(array.max()))


def range_of_node(node: Node, operands: Sequence[Range | None], result: Any) -> Range | None:
    """Return the range of a node's result at any sizes; None if it is not known.

    Args:
        node: a node of the main graph, not one in a function.
        operands: range of each input.
        result: the result at the sizes at hand.
    """
    own = range_of(result)
    if own is None or not node.is_standard:
        return None
    element = np.asarray(result).dtype
    found = own if node.op_type == "ConstantOfShape" else None
    if node.op_type in _RULES:
        found = _RULES[node.op_type](operands)
    if found is None:
        return None
    is_filled = _is_filled(node, operands)
    if node.op_type == "Cast" and element.kind == "b":
        truth = _truth(not found.low <= 0 <= found.high, found.low == found.high == 0)
        return replace(truth, is_filled=is_filled)
    low, high = _round(found.low, element), _round(found.high, element)
    is_finite = math.isfinite(low) and math.isfinite(high)  # else it may overflow, to NaN in the end
    return Range(low, high, is_filled) if is_finite and low <= own.low and own.high <= high else None


def _is_filled(node: Node, operands: Sequence[Range | None]) -> bool:
    """Whether a node's result has an element at any sizes."""
    if node.op_type in ("Shape", "Size", "Range"):
        return True
    if node.op_type in _REPEATING:
        shape = operands[-1]
        return shape is not None and shape.low >= 1 and all(each and each.is_filled for each in operands)
    return all(each and each.is_filled for each in (operands[:1] if node.op_type in _OF_FIRST else operands))


def _round(end: float, element: np.dtype[Any]) -> float:
    """Return a bound as the result's type has it, which keeps the order of numbers; NaN if it cannot hold it."""
    if element.kind == "f":
        with np.errstate(over="ignore"):
            return float(element.type(end))
    if element.kind == "b" or not math.isfinite(end):
        return end
    kept = np.iinfo(element)
    return float(math.trunc(end)) if abs(end) < _EXACT and kept.min <= end <= kept.max else math.nan


_EXACT = 2.0**53
"""Bound of the integers that a Python float holds."""

_MOVING = ("Identity", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_OF_FIRST = frozenset({*_MOVING, "ReduceMax", "ReduceMin", "ReduceSum"})
"""Operators whose result has an element if the first input has one."""
_REPEATING = ("ConstantOfShape", "Expand", "Tile")
"""Operators whose last input is a shape, or how often elements are repeated."""

_Operands = Sequence[Range | None]
_Rule = Callable[[_Operands], Range | None]


def _known(count: int, rule: Callable[..., Range | None]) -> _Rule:
    """Return a rule that needs the ranges of the first inputs, so many; of all if it is 0."""

    def apply(operands: _Operands) -> Range | None:
        needed = operands[:count] if count else operands
        return rule(*needed) if needed and None not in needed else None

    return apply


def _count(start: Range, limit: Range, step: Range) -> Range | None:
    is_filled = step.low > 0 and limit.low > start.high
    return Range(low=start.low, high=limit.high) if is_filled else None


def _truth(is_true: bool, is_false: bool) -> Range:
    return Range(low=float(is_true), high=float(not is_false))


def _not(one: Range) -> Range:
    return Range(low=1 - one.high, high=1 - one.low)


def _negate(one: Range) -> Range:
    return Range(low=-one.high, high=-one.low)


def _add(one: Range, other: Range) -> Range:
    return Range(low=one.low + other.low, high=one.high + other.high)


def _multiply(one: Range, other: Range) -> Range:
    ends = [a * b for a in (one.low, one.high) for b in (other.low, other.high)]
    return Range(low=min(ends), high=max(ends))


def _absolute(one: Range) -> Range:
    ends = abs(one.low), abs(one.high)
    return Range(low=0.0 if one.low <= 0 <= one.high else min(ends), high=max(ends))


def _is_less(one: Range, other: Range) -> Range:
    return _truth(one.high < other.low, one.low >= other.high)


def _is_equal(one: Range, other: Range) -> Range:
    is_true = one.is_one_number and other.is_one_number and one.low == other.low
    return _truth(is_true, one.high < other.low or other.high < one.low)


def _hull(*ranges: Range) -> Range:
    return Range(low=min(each.low for each in ranges), high=max(each.high for each in ranges))


def _largest(*ranges: Range) -> Range:
    return Range(low=max(each.low for each in ranges), high=max(each.high for each in ranges))


def _smallest(*ranges: Range) -> Range:
    return Range(low=min(each.low for each in ranges), high=min(each.high for each in ranges))


def _choose(operands: _Operands) -> Range | None:
    condition, chosen, other = operands
    if condition is not None and condition.is_one_number:
        return chosen if condition.low else other
    return None if chosen is None or other is None else _hull(chosen, other)


def _total(terms: Range) -> Range:
    """Return the range of a sum of numbers, of at least one if there are any."""
    low, high = min(terms.low, terms.low * _MOST_ELEMENTS), max(terms.high, terms.high * _MOST_ELEMENTS)
    return Range(low, high) if terms.is_filled else Range(min(low, 0.0), max(high, 0.0))


def _extreme(elements: Range) -> Range | None:
    return elements if elements.is_filled else None


def _sizes(most: float) -> _Rule:
    def apply(operands: _Operands) -> Range:
        is_filled = operands[0] is not None and operands[0].is_filled
        return Range(1.0 if is_filled else 0.0, most)

    return apply


_RULES: Mapping[str, _Rule] = {
    "Shape": _sizes(MOST),
    "Size": _sizes(_MOST_ELEMENTS),
    **dict.fromkeys((*_MOVING, "Expand", "Tile", "Gather"), _known(1, lambda one: one)),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), _known(1, _extreme)),
    "Abs": _known(1, _absolute),
    "Add": _known(2, _add),
    "And": _known(2, _smallest),
    "Cast": _known(1, lambda one: one),
    "Concat": _known(0, _hull),
    "Equal": _known(2, _is_equal),
    "Greater": _known(2, lambda one, other: _is_less(other, one)),
    "GreaterOrEqual": _known(2, lambda one, other: _not(_is_less(one, other))),
    "Less": _known(2, _is_less),
    "LessOrEqual": _known(2, lambda one, other: _not(_is_less(other, one))),
    "Max": _known(0, _largest),
    "Min": _known(0, _smallest),
    "Mul": _known(2, _multiply),
    "Neg": _known(1, _negate),
    "Not": _known(1, _not),
    "Or": _known(2, _largest),
    "Range": _known(3, _count),
    "ReduceSum": _known(1, _total),
    "Sub": _known(2, lambda one, other: _add(one, _negate(other))),
    "Where": _choose,
}
"""Operator -> the range of its result, by those of its inputs."""
