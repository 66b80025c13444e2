"""Values of a program over the field, and the operations that move, add, multiply and hash them.

A value that depends on no weight and no real input, such as a size, mask or position, is a numpy array: it is known,
and computed as in a run. Any other value is a `Field`, with an element of the field for each number, or `Factored`, a
large weight that is drawn as a sum of outer products of vectors, one along each axis.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzer.records import Frozen, Mutable, field, replace
from analyzer.verify.algebra.field import (
    PRIME,
    Elements,
    Numbers,
    Short,
    draw,
    draw_short,
    inverse,
    key_of,
    mixed,
    negative,
    power,
    product,
    product_by_short,
)

_MOST = 1 << 26
"""Largest number of elements of one value."""
_SMALL = 1 << 10
"""Largest number of elements of a weight whose elements are drawn one by one."""
PLAIN_BEYOND = 20.0
"""Threshold above which PyTorch's softplus returns its input (torch.nn.Softplus, threshold)."""
_ABOVE, _BELOW = 1, 2
_SATURATED = frozenset({"exp", "sigmoid", "tanh", "erf", "less", "equal", "isnan", "isinf"})
"""Functions that map all masks of a sign to one number."""
LOWEST = -float(np.finfo(np.float32).max)
HIDING = -1e4
"""Number that tools write for the lowest one in half precision."""
_RANK = 2
"""Number of outer products that make up a larger weight."""
_MOST_WORK = 1 << 30
"""Most products of numbers with elements that are drawn without a pattern."""


class UnknownError(Exception):
    """A value that this algebra cannot express; the message gives the reason."""


class Field(Frozen):
    """A tensor of elements of the field."""

    elements: Elements
    kind: str = "real"
    """`real`, `whole` (integers) or `truth` (booleans)."""
    is_share: bool = False
    """Whether it is a softmax, which is NaN only where a mask hides everything."""
    guarded: Field | None = None
    """For the result of `isnan`: the softmax that it tests."""
    is_place: bool = False
    """Whether its elements are indices, which are never negative."""
    limit: int | None = None
    """For indices along an axis, also as real numbers: the axis's size, which they are below."""
    beyond: Field | None = None
    """For a comparison of a value with a large number: the value, which equals its softplus beyond that number."""
    exponent: Field | None = None
    """For powers of e: their exponent."""
    masks: int = 0
    """Whether elements may be masks: `_ABOVE` all numbers, `_BELOW` them, or both."""
    total_of: tuple[Field, tuple[int, ...], bool] | None = None
    """For a sum of powers of e: their exponent, the axes of the sum, and whether it keeps them."""
    truth: Field | None = None
    """For truth values as numbers, 0 and 1: the truth values."""
    shown: Field | None = None
    """For numbers that are masks (below all numbers) in some places, or a softmax of such: whether each is none."""
    terms: tuple[Value, Value] | None = None
    """For a sum, or a softmax of one: its terms, of which one may be a mask."""
    hidden: tuple[Field, ...] = ()
    """For a product with a softmax: whether a mask hides all that made each element, for each mask that it may have."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.elements.shape


class Rest(Frozen):
    """Elements of 16 bits, times a vector along some axes."""

    short: Short
    scales: tuple[Elements | None, ...]
    """Vector along each axis; None for ones."""

    def moved(self, order: Sequence[int]) -> Rest:
        """Permute the axes."""
        return Rest(self.short.transpose(order), tuple(self.scales[axis] for axis in order))

    def at(self, index: Any, axis: int) -> Rest:
        """Take the elements at an index or slice of one axis, which stays one axis."""
        whole = (*(slice(None) for _ in range(axis)), index)
        scales = (
            each[index] if at == axis and each is not None else each for at, each in enumerate(self.scales)
        )
        return Rest(self.short[whole], tuple(scales))

    def scaled(self, vector: Elements, axis: int, p: np.uint64) -> Rest:
        """Multiply by a vector along an axis."""
        before = self.scales[axis]
        made = np.broadcast_to(
            vector % p if before is None else before * vector % p, (self.short.shape[axis],)
        )
        return Rest(self.short, tuple(made if at == axis else each for at, each in enumerate(self.scales)))

    def dense(self, p: np.uint64) -> Elements:
        """Return the elements."""
        found = self.short.astype(np.uint64)
        for axis, vector in enumerate(self.scales):
            if vector is not None:
                found = found * vector.reshape([-1 if at == axis else 1 for at in range(found.ndim)]) % p
        return found

    def equals(self, other: Rest | None) -> bool:
        """Whether elements and vectors are equal."""
        return (
            other is not None
            and (self.short is other.short or np.array_equal(self.short, other.short))
            and all(
                one is two or (one is not None and two is not None and np.array_equal(one, two))
                for one, two in zip(self.scales, other.scales, strict=True)
            )
        )


class Factored(Frozen):
    """A weight as a sum of terms; each is the outer product of its vectors, one along each axis."""

    terms: tuple[tuple[Elements, ...], ...]
    kind: str = "real"
    rest: Rest | None = None
    """Elements without a pattern that are added to the sum."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(vector.size for vector in self.terms[0])


class Coded(Frozen):
    """A weight in codes, which are not computed unless a node other than their decoder reads them."""

    of: Field | Factored
    """The decoded weight."""
    scale: Array
    zero: Array
    """Zero point; it and the scale broadcast to the shape of the weight."""
    kind: str = "real"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.of.shape


class Stretch(Frozen):
    """The integers from one to another (exclusive), if their number is unknown."""

    first: Value
    last: Value


class Rows(Frozen):
    """Rows of a value at the integers of a stretch."""

    of: Value
    """All rows of the value, inside and outside of the stretch."""
    stretch: Stretch


Array = npt.NDArray[Any]
Value = Array | Field | Factored | Coded
Move = Callable[[Any], Any]


def shape_of(value: Value) -> tuple[int, ...]:
    """Return the shape of any value."""
    return tuple(value.shape)


def number(value: float) -> Array:
    """Return a number in single precision, in which both sides compute."""
    return np.asarray(value, np.float32)


def is_known(value: object) -> bool:
    """Whether a value is computed as in a run, and not over the field."""
    return not isinstance(value, (Field, Factored, Coded, Stretch, Rows))


def drawn(name: str, shape: Sequence[int], seed: int, most_dense: int = 0) -> Value:
    """Draw the weight of a name.

    A sum of outer products is random enough for a computation in which each product has at most as many elements of
    this weight as the sum has terms; all minors of more rows are 0. So elements without a pattern are added where time
    allows.

    Args:
        name: the name.
        shape: shape of the weight.
        seed: seed of the drawing.
        most_dense: most elements of a weight to which such elements are added.
    """
    whole = tuple(shape)
    if math.prod(whole) <= _SMALL or len([size for size in whole if size > 1]) < 2:
        if math.prod(whole) > _MOST:
            raise UnknownError(f"{name} is too large")
        return Field(draw(whole, "weight", name, seed))
    return Factored(
        tuple(
            tuple(draw((size,), "weight", name, seed, rank, axis) for axis, size in enumerate(whole))
            for rank in range(_RANK)
        ),
        rest=Rest(draw_short(whole, "rest", name, seed), (None,) * len(whole))
        if math.prod(whole) <= most_dense
        else None,
    )


def most_dense(work: Mapping[int, int]) -> int:
    """Return the most elements of a weight that is drawn without a pattern too: small weights first.

    Args:
        work: numbers to multiply by all weights of a size, by that size.
    """
    found = total = 0
    for size, each in sorted(work.items()):
        total += each
        if total > _MOST_WORK:
            break
        found = size
    return found


class Algebra(Mutable):
    """Operations on values, for one random drawing."""

    seed: int
    numbers: Numbers
    is_first: bool = True
    """Whether constants are registered as new: on PyTorch's side, which is computed first."""
    is_half: bool = False
    """Whether stored numbers may be others that were rounded to half precision."""
    prime: int = PRIME
    products: dict[object, tuple[Short, Elements]] = field(default_factory=dict)
    """Second operand, and product, of products with elements of 16 bits, by both operands."""

    @property
    def p(self) -> np.uint64:
        """The prime, in the type of the elements."""
        return np.uint64(self.prime)

    is_masking: bool = False
    """Whether an operation takes masks, and its result has none."""

    # from one form to another

    def dense(self, value: Value) -> Field:
        """Return the value with every element as an element of the field.

        Raises:
            UnknownError: an element is a mask. All masks of a sign are one element.
        """
        found = self.with_masks(value)
        if found.masks:
            raise UnknownError("numbers so large that they are masks")
        return found

    def with_masks(self, value: Value) -> Field:
        """Return the value with every element as an element of the field, also of masks."""
        if isinstance(value, Field):
            return replace(value, masks=0) if value.masks and self.is_masking else value
        if isinstance(value, Factored):
            return self._dense(value)
        if isinstance(value, Coded):
            whole = self.divide(value.of, value.scale)
            return self.dense(self.add(whole, value.zero) if value.zero.any() else whole)
        return self._entered(np.asarray(value))

    def _dense(self, value: Factored) -> Field:
        if math.prod(value.shape) > _MOST:
            raise UnknownError(
                f"a weight of {math.prod(value.shape):,} elements that takes part in arithmetic"
            )
        found = np.zeros(value.shape, np.uint64)
        for term in value.terms:
            made = np.ones((), np.uint64)
            for vector in term:
                made = made[..., None] * vector % self.p
            found = (found + made) % self.p
        if value.rest is not None:
            found = (found + value.rest.dense(self.p)) % self.p
        return Field(found, value.kind)

    def _entered(self, array: Array) -> Field:
        if array.dtype.kind == "b":
            return Field(array.astype(np.uint64), "truth")
        if array.dtype.kind in "iu":
            if array.size and int(np.abs(array.astype(np.int64)).max()) >= 1 << 30:
                raise UnknownError("integers of more than 30 bits")
            return Field((array.astype(np.int64) % self.prime).astype(np.uint64), "whole")
        if array.dtype.kind != "f":
            raise UnknownError(f"numbers of type {array.dtype}")
        elements = self.numbers.of(array, is_new=self.is_first, is_half=self.is_half, prime=self.prime)
        if self.is_masking:
            return Field(elements)
        above, below = self.numbers.masks(array, is_new=self.is_first, is_half=self.is_half)
        return Field(elements, masks=_ABOVE * above | _BELOW * below)

    @contextlib.contextmanager
    def _masking(self) -> Iterator[None]:
        before, self.is_masking = self.is_masking, True
        try:
            yield
        finally:
            self.is_masking = before

    def _masks(self, *values: Value) -> int:
        """Return the masks of all values."""
        found = 0
        for value in values:
            if isinstance(value, Field):
                found |= value.masks
            elif is_known(value) and np.asarray(value).dtype.kind == "f":
                above, below = self.numbers.masks(
                    np.asarray(value), is_new=self.is_first, is_half=self.is_half
                )
                found |= _ABOVE * above | _BELOW * below
        return found

    def _require_one_mask(self, masks: int) -> None:
        """Raise an error if a result depends on the number that a mask is, and the sides have several such numbers.

        The lowest finite number and minus infinity are one element, and the same in a softmax. They are not in a
        comparison with each other.
        """
        if masks and self.numbers.has_several_masks:
            raise UnknownError("a comparison of masks that are several numbers")

    def is_output_same(self, one: Value, other: Value) -> bool:
        """Whether two values are equal as results: also in the numbers that are their masks."""
        for value in (one, other):
            if is_known(value) and np.asarray(value).dtype.kind == "f" and np.isnan(np.asarray(value)).any():
                is_both = is_known(other) and is_known(one)
                return is_both and bool(np.array_equal(np.asarray(one), np.asarray(other), equal_nan=True))
        is_plain = not (self._masks(one, other) and self.numbers.has_several_masks)
        return is_plain and self.same(one, other)

    def same(self, one: Value, other: Value) -> bool:
        """Whether two values are equal, in shape and in every element."""
        if shape_of(one) != shape_of(other):
            return False
        if is_known(one) and is_known(other):
            a, b = np.asarray(one), np.asarray(other)
            if a.dtype.kind != "f" and b.dtype.kind != "f":
                return bool(np.array_equal(a, b))
        if isinstance(one, Factored) and isinstance(other, Factored) and len(one.terms) == len(other.terms):
            pairs = zip(one.terms, other.terms, strict=True)
            is_rest_same = other.rest is None if one.rest is None else one.rest.equals(other.rest)
            if is_rest_same and all(
                np.array_equal(a, b) for mine, theirs in pairs for a, b in zip(mine, theirs, strict=True)
            ):
                return True
        return bool(np.array_equal(self.with_masks(one).elements, self.with_masks(other).elements))

    # operations that only move elements

    def move(self, value: Value, moved: Move) -> Value:
        """Apply numpy's function `moved` to a value of any kind; its result may not have many more elements."""
        value = self.dense(value) if isinstance(value, Coded) else value
        if isinstance(value, Field):
            made = np.ascontiguousarray(moved(value.elements))
            truth, shown, *hidden = (
                None if each is None else Field(_moved(each.elements, value.shape, moved), each.kind)
                for each in (value.truth, value.shown, *value.hidden)
            )
            return Field(
                made,
                value.kind,
                is_place=value.is_place,
                limit=value.limit,
                masks=value.masks,
                truth=truth,
                shown=shown,
                hidden=tuple(filter(None, hidden)),
            )
        if isinstance(value, Factored):
            return Field(np.ascontiguousarray(moved(self._dense(value).elements)), value.kind)
        return np.asarray(moved(np.asarray(value)))

    def pad(self, value: Value, widths: Sequence[tuple[int, int]]) -> Value:
        """Add zeros before and after the elements of each axis; they are no masks."""
        found = self.move(value, lambda each: np.pad(each, widths))
        return replace(found, shown=None) if isinstance(found, Field) and found.shown is not None else found

    def permute(self, value: Value, axes: Sequence[int]) -> Value:
        """Permute the axes."""
        if isinstance(value, Factored):
            order = [axis % len(value.shape) for axis in axes]
            terms = tuple(tuple(term[axis] for axis in order) for term in value.terms)
            return Factored(terms, value.kind, None if value.rest is None else value.rest.moved(order))
        return self.move(value, lambda each: np.transpose(each, axes))

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """Return the same elements in another shape."""
        if isinstance(value, Factored):
            sizes = [int(size) for size in shape]
            if -1 in sizes:
                rest = math.prod(size for size in sizes if size != -1)
                sizes[sizes.index(-1)] = math.prod(value.shape) // max(rest, 1)
            if [size for size in sizes if size != 1] == [size for size in value.shape if size != 1]:
                return self._with_ones(value, sizes)
        return self.move(value, lambda each: np.reshape(each, [int(size) for size in shape]))

    def _with_ones(self, value: Factored, sizes: Sequence[int]) -> Factored:
        """Insert or remove axes of size 1; the factors on removed axes go to the first axis."""
        terms = []
        for term in value.terms:
            lost = math.prod(int(vector[0]) for vector in term if vector.size == 1) % self.prime
            kept = iter([vector for vector in term if vector.size > 1])
            made = [next(kept) if size != 1 else np.ones(1, np.uint64) for size in sizes]
            made[0] = made[0] * np.uint64(lost) % self.p
            terms.append(tuple(made))
        if value.rest is None:
            return Factored(tuple(terms), value.kind)
        gone = [each for each in value.rest.scales if each is not None and each.size == 1]
        left = iter([each for each, size in zip(value.rest.scales, value.shape, strict=True) if size > 1])
        scales = tuple(next(left) if size != 1 else None for size in sizes)
        rest = Rest(value.rest.short.reshape(sizes), scales)
        for vector in gone:
            rest = rest.scaled(vector, 0, self.p)
        return Factored(tuple(terms), value.kind, rest)

    def take(self, value: Value, index: Array, axis: int) -> Value:
        """Take the elements at known indices along an axis."""
        sizes = shape_of(value)
        self.bound(math.prod(sizes) // max(sizes[axis], 1) * index.size)
        if isinstance(value, Factored):
            axis %= len(value.shape)
            if index.ndim == 1:
                return Factored(
                    tuple(
                        tuple(v[index] if at == axis else v for at, v in enumerate(term))
                        for term in value.terms
                    ),
                    value.kind,
                    None if value.rest is None else value.rest.at(index, axis),
                )
            found = np.zeros((), np.uint64)
            for term in value.terms:
                made = np.ones((), np.uint64)
                for at, vector in enumerate(term):
                    piece = vector[index] if at == axis else vector
                    made = made.reshape(*made.shape, *(1 for _ in piece.shape)) * piece % self.p
                    self.bound(made.size)
                found = (found + made) % self.p
            if value.rest is not None:
                flat = value.rest.at(index.reshape(-1), axis).dense(self.p)
                found = (found + flat.reshape(found.shape)) % self.p
            return Field(found, value.kind)
        return self.move(value, lambda each: np.take(each, index, axis=axis))

    def pick(self, value: Value, places: Array, axis: int) -> Value:
        """Take for each index one element along an axis."""
        return self.move(value, lambda each: np.take_along_axis(each, places, axis=axis))

    def cut(self, value: Value, slices: Sequence[slice]) -> Value:
        """Return a part."""
        if isinstance(value, Factored):
            rest = value.rest
            for axis, part in enumerate(slices if rest is not None else ()):
                rest = rest and rest.at(part, axis)
            return Factored(
                tuple(tuple(v[part] for v, part in zip(term, slices, strict=True)) for term in value.terms),
                value.kind,
                rest,
            )
        return self.move(value, lambda each: each[tuple(slices)])

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        """Broadcast with a shape, as in ONNX's Expand."""
        self.bound(math.prod(np.broadcast_shapes(shape_of(value), tuple(shape))))
        return self.move(
            value, lambda each: np.broadcast_to(each, np.broadcast_shapes(each.shape, tuple(shape)))
        )

    def _spread(self, value: Value, *others: Value) -> Value:
        """Return a value in the shape that it has with others; itself if that is its own."""
        shape = np.broadcast_shapes(shape_of(value), *map(shape_of, others))
        return value if shape == shape_of(value) else self.expand(value, shape)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Concatenate values along an axis."""
        values = [value for value in values if 0 not in shape_of(value)] or list(values[:1])
        if all(is_known(value) for value in values):
            return np.concatenate([np.asarray(value) for value in values], axis=axis)
        weights = [value for value in values if isinstance(value, Factored)]
        if 1 < len(values) == len(weights):
            rests = [value.rest for value in weights if value.rest is not None]
            if not rests or (
                len(rests) == len(weights) and _is_scaled_along(rests, axis % rests[0].short.ndim)
            ):
                return self._concat(weights, axis)
        parts = [self.with_masks(value) for value in values]
        made = np.concatenate([part.elements for part in parts], axis=axis)
        return Field(
            made,
            parts[0].kind,
            is_place=all(_is_place(value) for value in values),
            masks=self._masks(*parts),
        )

    def _concat(self, values: Sequence[Factored], axis: int) -> Factored:
        axis %= len(values[0].shape)
        total = sum(value.shape[axis] for value in values)
        terms, start = [], 0
        for value in values:
            for term in value.terms:
                long = np.zeros(total, np.uint64)
                long[start : start + value.shape[axis]] = term[axis]
                terms.append(tuple(long if at == axis else vector for at, vector in enumerate(term)))
            start += value.shape[axis]
        rests = [value.rest for value in values if value.rest is not None]
        return Factored(tuple(terms), values[0].kind, _joined(rests, axis) if rests else None)

    def bound(self, size: int) -> None:
        """Refuse a value that is too large.

        Raises:
            UnknownError: it is too large.
        """
        if size > _MOST:
            raise UnknownError(f"a value of {size:,} elements")

    # arithmetic

    def _both(self, one: Value, other: Value) -> tuple[Field, Field]:
        self.bound(math.prod(np.broadcast_shapes(shape_of(one), shape_of(other))))
        return self.with_masks(one), self.with_masks(other)

    def add(self, one: Value, other: Value) -> Value:
        """Add elementwise, with broadcasting."""
        if is_known(one) and is_known(other):
            with np.errstate(all="ignore"):
                return np.add(*promoted(one, other))
        a, b = self._both(one, other)
        kind = _kind(one, other)
        if a.masks | b.masks == _ABOVE | _BELOW:
            raise UnknownError("a difference of numbers so large that they are masks")
        made = (a.elements + b.elements) % self.p
        shown = b.shown if not a.masks else a.shown if not b.masks else None
        whole = "whole" if kind == "truth" else kind
        return Field(made, whole, masks=a.masks | b.masks, shown=shown, terms=(a, b))

    def negate(self, value: Value) -> Any:
        """Negate elementwise."""
        if is_known(value):
            return np.negative(np.asarray(value))
        if isinstance(value, Factored):
            return self.scale(value, np.array([self.prime - 1], np.uint64), 0)
        whole = self.with_masks(value)
        masks = _BELOW * bool(whole.masks & _ABOVE) | _ABOVE * bool(whole.masks & _BELOW)
        return Field(negative(whole.elements, self.prime), whole.kind, masks=masks)

    def subtract(self, one: Value, other: Value) -> Value:
        """Subtract elementwise, with broadcasting."""
        if is_known(one) and is_known(other):
            with np.errstate(all="ignore"):
                return np.subtract(*promoted(one, other))
        return self.add(one, self.negate(other))

    def scale(self, value: Factored, vector: Elements, axis: int) -> Factored:
        """Multiply a weight by a vector along one axis."""
        return Factored(
            tuple(
                tuple(v * vector % self.p if at == axis else v for at, v in enumerate(term))
                for term in value.terms
            ),
            value.kind,
            None if value.rest is None else value.rest.scaled(vector, axis, self.p),
        )

    def multiply(self, one: Value, other: Value) -> Value:
        """Multiply elementwise, with broadcasting."""
        if is_known(one) and is_known(other):
            with np.errstate(all="ignore"):
                return np.multiply(*promoted(one, other))
        for truth, by in ((one, other), (other, one)):
            if isinstance(truth, Field) and truth.truth is not None and self._hides(by):
                return self.where(truth.truth, by, number(0))
        for weight, by in ((one, other), (other, one)):
            if isinstance(weight, Factored) and not isinstance(by, Factored):
                sizes = [size for size in shape_of(by) if size != 1]
                padded = (*(1 for _ in range(len(weight.shape) - len(shape_of(by)))), *shape_of(by))
                if len(sizes) < 2 and len(padded) == len(weight.shape):
                    axis = next((at for at, size in enumerate(padded) if size != 1), 0)
                    if padded[axis] in (1, weight.shape[axis]):
                        return self.scale(weight, self._factor(by).reshape(-1), axis)
        a, b = (self._factor(one), self._factor(other))
        self.bound(math.prod(np.broadcast_shapes(a.shape, b.shape)))
        return Field(a * b % self.p, _kind(one, other))

    def _hides(self, value: Value) -> bool:
        """Whether all numbers are the lowest finite one, or what a half-precision file has in its place."""
        if self._is_lowest(value):
            return True
        if not (self.is_half and is_known(value)):
            return False
        array = np.asarray(value)
        is_one = array.dtype.kind == "f" and array.size > 0 and bool((array == array.flat[0]).all())
        return is_one and bool(np.isfinite(array).all()) and self._masks(value) == _BELOW

    @staticmethod
    def _is_lowest(value: Value, *, least: float = LOWEST) -> bool:
        """Whether all numbers are the lowest finite one of single precision, or between it and `least`."""
        if not is_known(value) or np.asarray(value).dtype.kind != "f" or not np.asarray(value).size:
            return False
        return bool(((least <= np.asarray(value)) & (np.asarray(value) <= LOWEST)).all())

    def _factor(self, value: Value) -> Elements:
        """Return the elements of a factor, which must be finite; a large number is no mask there."""
        if isinstance(value, (Field, Factored, Coded)) or value.dtype.kind != "f":
            return self.dense(value).elements
        with np.errstate(over="ignore"):
            array = np.asarray(value, np.float32)
        if np.isinf(array).any():
            raise UnknownError("an infinite factor")
        if not self._masks(array):
            return self.dense(value).elements
        return self.numbers.factors(array, is_new=self.is_first, is_half=self.is_half, prime=self.prime)

    def invert(self, value: Value) -> Value:
        """Return 1 / value."""
        if is_known(value):
            with np.errstate(all="ignore"):
                return np.asarray(1 / _float(value))
        return Field(inverse(self.dense(value).elements, self.prime))

    def divide(self, one: Value, other: Value) -> Value:
        """Divide real numbers elementwise, with broadcasting."""
        if is_known(one) and is_known(other):
            with np.errstate(all="ignore"):
                return np.divide(*promoted(_float(one), _float(other)))
        if is_known(other):  # 1 / sqrt(2) is the inverse of sqrt(2)
            return self.multiply(one, Field(inverse(self._factor(_float(other)), self.prime)))
        if isinstance(one, Field) and isinstance(other, Field) and other.total_of is not None:
            exponent, axes, keeps = other.total_of
            if exponent is one.exponent and keeps and len(axes) == 1:
                return self.softmax(exponent, axes[0])
        return self.multiply(one, self.invert(other))

    def softmax(self, value: Value, axis: int) -> Value:
        """Compute exp(x) / sum(exp(x)) along an axis: the same if one number is added to all x there.

        Such a number is a mask of truth values that hides nothing and is added to the scores, or the maximum that
        exporters subtract. The mean is subtracted, which cancels them all and treats all elements alike.
        """
        if is_known(value):
            array = _float(value)
            highest = array.max(axis, keepdims=True, initial=-np.inf)
            powers = self.function("exp", self.subtract(array, highest))
            return self.divide(powers, self.sum(powers, (axis,), keeps=True))
        with self._masking():
            powers = self.function("exp", self.subtract(value, self.mean(value, (axis,), keeps=True)))
        found = self.multiply(powers, self.invert(self.sum(powers, (axis,), keeps=True)))
        found = Field(self.dense(found).elements, is_share=True)
        if isinstance(value, Field) and axis in (-1, len(value.shape) - 1):
            return replace(found, shown=value.shown, terms=value.terms)
        return found

    def raise_to(self, value: Value, exponent: Value) -> Value:
        """Raise to a power: an integer exponent gives a product, a multiple of one half a product of roots."""
        if is_known(value) and is_known(exponent):
            with np.errstate(all="ignore"):
                a, b = promoted(value, exponent)
                return np.power(a, b) if a.dtype.kind == "f" or (b >= 0).all() else np.power(_float(a), b)
        if is_known(exponent) and np.asarray(exponent).size == 1:
            number = float(np.asarray(exponent).reshape(-1)[0])
            value = self._spread(value, exponent)
            if number < 0 and _is_real(value):
                return self.invert(self.raise_to(value, np.asarray(-number, np.float32)))
            if number.is_integer() and 0 <= number <= 64:
                found = Field(power(self.dense(value).elements, int(number), self.prime))
                return found if _is_real(value) else Field(found.elements, "whole")
            if (2 * number).is_integer() and 0 <= number <= 64 and _is_real(value):
                return Field(
                    power(self.dense(self.function("sqrt", value)).elements, int(2 * number), self.prime)
                )
        if not _is_real(value):
            raise UnknownError("a power of integers")
        return self.function("pow", value, exponent)

    def matmul(self, one: Value, other: Value) -> Any:
        """Multiply matrices, as in `numpy.matmul`."""
        if is_known(one) and is_known(other):
            return np.matmul(np.asarray(one), np.asarray(other))
        if isinstance(other, Factored) and len(other.shape) == 2:
            return self._times(self.dense(one).elements, other)
        if isinstance(one, Factored) and len(one.shape) == 2 and len(shape_of(other)) == 2:
            transposed = self._times(
                self.dense(self.permute(other, (1, 0))).elements, self.permute(one, (1, 0))
            )
            return self.permute(transposed, (1, 0))
        a, b = self.dense(one).elements, self.dense(other).elements
        vector = a.ndim == 1, b.ndim == 1
        a, b = (a[None] if vector[0] else a), (b[:, None] if vector[1] else b)
        batch = math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
        self.bound(batch * a.shape[-2] * b.shape[-1])
        found = product(a, b, self.prime)
        found = found[..., 0, :] if vector[0] else found
        made = found[..., 0] if vector[1] else found
        is_shared = isinstance(one, Field) and one.is_share and not any(vector)
        return Field(made, _kind(one, other), hidden=self._hidden(one, made.shape) if is_shared else ())

    def _hidden(self, shares: Any, shape: Sequence[int]) -> tuple[Field, ...]:
        """Return whether each mask that a softmax may have hides all elements along the last axis.

        It hides what it makes a mask, or, if it is a sum itself, what is not above the lowest number.
        """
        if shares.shown is not None:
            masks = [shares.shown]
        else:
            terms = [term for term in shares.terms or () if not self._masks(term) and _is_real(term)]
            below = Field(self.numbers.of(np.asarray(-np.inf), is_new=False, prime=self.prime), masks=_BELOW)
            masks = [Algebra.function(self, "less", below, term) for term in terms]
        found = []
        for mask in masks:
            total = Algebra.sum(self, Field(self.dense(mask).elements), (-1,), keeps=True)
            found.append(
                self.dense(Algebra.expand(self, Algebra.function(self, "less", total, number(1)), shape))
            )
        return tuple(found)

    def _times(self, rows_left: Elements, weight: Any) -> Value:
        """Return given @ weight; a factored weight takes one dot product and one outer product for each term."""
        if not isinstance(weight, Factored):
            return Field(product(rows_left, self.dense(weight).elements, self.prime))
        found = np.zeros((*rows_left.shape[:-1], weight.shape[1]), np.uint64)
        self.bound(found.size)
        for rows, columns in weight.terms:
            sums = (rows_left * rows % self.p).sum(axis=-1, dtype=np.uint64) % self.p
            found = (found + sums[..., None] * columns) % self.p
        if weight.rest is not None:
            left, right = weight.rest.scales
            rows_left = rows_left if left is None else rows_left * left % self.p
            added = self._by_short(rows_left, weight.rest.short)
            found = (found + (added if right is None else added * right)) % self.p
        return Field(found)

    def _by_short(self, rows_left: Elements, short: Short) -> Elements:
        """Return given @ short; both sides of most files compute the same, which is kept."""
        rows = np.ascontiguousarray(rows_left)
        key = rows.shape, hashlib.blake2b(rows.tobytes()).digest(), *_place_of(short)
        if key not in self.products:
            self.products[key] = short, product_by_short(rows, short, self.prime)
        return self.products[key][1]

    def sum(self, value: Value, axes: Sequence[int], *, keeps: bool) -> Any:
        """Sum over axes."""
        if is_known(value):
            array = np.asarray(value)
            return np.sum(array, axis=tuple(axes), keepdims=keeps, dtype=_sum_type(array))
        dense = self.dense(value)
        found = dense.elements.sum(axis=tuple(axes), keepdims=keeps, dtype=np.uint64) % self.p
        total_of = None
        if isinstance(value, Field) and value.exponent is not None:
            total_of = value.exponent, tuple(axis % len(value.shape) for axis in axes), keeps
        return Field(found, "real" if dense.kind == "real" else "whole", total_of=total_of)

    def mean(self, value: Value, axes: Sequence[int], *, keeps: bool) -> Value:
        """Average over axes."""
        count = math.prod(shape_of(value)[axis] for axis in axes)
        return self.divide(self.sum(value, axes, keeps=keeps), number(count))

    # functions that are drawn at random

    def function(
        self, name: str, *values: Value, settings: Mapping[str, object] | Sequence[object] = ()
    ) -> Value:
        """Apply an elementwise function without a rule here: a random one of its name, settings and operands."""
        real = _REAL.get(name)
        if real is not None and not isinstance(settings, Mapping) and all(map(is_known, values)):
            keeps = name in _KEEPING and all(np.asarray(value).dtype.kind in "iu" for value in values)
            with np.errstate(all="ignore"):
                known = (np.asarray(value) if keeps else _float(value) for value in values)
                return np.asarray(real(*known, *settings))
        first = values[0]
        if name == "isinf":
            self._require_one_mask(self._masks(first))
        if name == "log" and isinstance(first, Field) and first.total_of is not None:
            return self._log_of_total(*first.total_of)
        key = key_of(name, settings, self.prime)
        is_saturated = name in _SATURATED or (name == "relu" and self._masks(first) == _BELOW)
        read = self.with_masks if is_saturated else self.dense
        dense = [read(value).elements for value in values]
        self.bound(math.prod(np.broadcast_shapes(*(each.shape for each in dense))))
        found: Elements = np.full((), key, np.uint64)
        for place, each in enumerate(dense):
            with np.errstate(over="ignore"):
                found = mixed(found ^ (each * np.uint64(2 * place + 0x9E3779B9)), key)
        kind = "truth" if name in _TRUTHS else "whole" if name in _WHOLE else "real"
        guarded = first if name == "isnan" and isinstance(first, Field) and first.is_share else None
        exponent = first if name == "exp" and isinstance(first, Field) else None
        return Field(found % self.p, kind, guarded=guarded, is_place=kind == "whole", exponent=exponent)

    def _log_of_total(self, exponent: Field, axes: Sequence[int], keeps: bool) -> Value:
        """Compute log(sum(exp(x))): if a number is added to all x, it is added to the result."""
        with self._masking():
            mean = self.mean(exponent, axes, keeps=True)
            powers = Field(self.dense(self.function("exp", self.subtract(exponent, mean))).elements)
            rest = self.function("log", self.sum(powers, axes, keeps=keeps))
            return self.add(mean if keeps else self.mean(exponent, axes, keeps=False), rest)

    def symmetric(self, name: str, one: Value, other: Value) -> Value:
        """Apply a random function whose two operands may be exchanged."""
        masks = self._masks(one), self._masks(other)
        if not any(masks):
            return self.function(name, self.add(one, other), self.multiply(one, other))
        near, far = (_ABOVE, _BELOW) if name == "max" else (_BELOW, _ABOVE)
        left = (masks[0] | masks[1]) & near | masks[0] & masks[1] & far
        with self._masking():
            a, b = (self.dense(each).elements for each in (one, other))
            found = self.function(name, Field((a + b) % self.p), Field(a * b % self.p))
        return replace(self.dense(found), masks=left)

    def gathered(self, name: str, value: Value, axes: Sequence[int], *, keeps: bool) -> Value:
        """Apply a random function of all elements along some axes, in any order: the maximum, the minimum."""
        elements = mixed(self.dense(value).elements, key_of(name, "each")) % self.p
        sums = elements.sum(axis=tuple(axes), keepdims=keeps, dtype=np.uint64) % self.p
        return Field(
            mixed(sums, key_of(name)) % self.p, self.dense(value).kind if name in _CHOOSING else "real"
        )

    def ordered(self, name: str, value: Value, axis: int, count: int, settings: object = ()) -> Value:
        """Apply a random function of the elements along an axis in order, with `count` results: a sort, a lookup."""
        whole = self.with_masks(value)
        elements = np.moveaxis(whole.elements, axis, -1)
        weights = draw((elements.shape[-1],), name, "places")
        rows = (mixed(elements, key_of(name, "each")) % self.p * weights % self.p).sum(
            axis=-1, dtype=np.uint64
        ) % self.p
        slots = draw((count,), name, "results", settings)
        made = mixed(rows[..., None] * np.uint64(3) + slots, key_of(name, settings)) % self.p
        made = np.ascontiguousarray(np.moveaxis(made, -1, axis))
        if name in _WHOLE:
            return Field(made, "whole", is_place=True, limit=whole.shape[axis])
        if name in _PICKING and whole.is_place:
            return Field(made, "whole", is_place=True, limit=whole.limit)
        return Field(made, masks=whole.masks)

    # choices

    def where(self, condition: Value, one: Value, other: Value) -> Value:
        """Return `one` where the condition holds, else `other`.

        Three choices are recognised. Zero where a softmax is NaN equals the softmax: PyTorch's own attention does the
        same (`_safe_softmax`). So does zero where a mask hides all of a softmax, which transformers adds
        (`transformers.exporters.exporter_onnx`). A softplus that returns its input beyond 20 equals softplus: there the
        rest is below rounding.
        """
        if is_known(condition):
            chosen = np.asarray(condition).astype(bool)
            if is_known(one) and is_known(other):
                return np.where(chosen, *promoted(one, other))
            if chosen.all():
                return self.expand(one, np.broadcast_shapes(chosen.shape, shape_of(one), shape_of(other)))
            if not chosen.any():
                return self.expand(other, np.broadcast_shapes(chosen.shape, shape_of(one), shape_of(other)))
            a, b = self._both(one, other)
            made = np.where(chosen, a.elements, b.elements)
            return Field(
                made, _kind(one, other), masks=a.masks | b.masks, shown=self._shown(condition, one, other)
            )
        if self._is_guard(condition, one, other):
            return other
        if self._is_softplus(condition, one, other):
            return other
        guarded = condition.guarded if isinstance(condition, Field) else None
        if guarded is not None and is_known(one) and not np.asarray(one).any() and self.same(guarded, other):
            return self._spread(other, one, other)
        true_weight = self.dense(condition).elements
        false_weight = (np.uint64(1) + negative(true_weight, self.prime)) % self.p
        a, b = self._both(one, other)
        self.bound(math.prod(np.broadcast_shapes(true_weight.shape, a.shape, b.shape)))
        made = (true_weight * a.elements + false_weight * b.elements) % self.p
        return Field(
            made, _kind(one, other), masks=a.masks | b.masks, shown=self._shown(condition, one, other)
        )

    def _is_guard(self, condition: Value, one: Value, other: Value) -> bool:
        """Whether a choice is zero where a mask hides all of a softmax, and else the product with it."""
        hidden = other.hidden if isinstance(other, Field) else ()
        if not hidden or not is_known(one) or np.asarray(one).any():
            return False
        if np.broadcast_shapes(shape_of(condition), shape_of(one), shape_of(other)) != shape_of(other):
            return False
        return any(self.same(self.expand(condition, shape_of(other)), each) for each in hidden)

    def _shown(self, condition: Value, one: Value, other: Value) -> Field | None:
        """Return where a choice is none of the masks that are one of its sides."""
        is_masked, is_shown = (self._is_lowest(e, least=-np.inf) or self._hides(e) for e in (one, other))
        if is_masked == is_shown or self._masks(one if is_shown else other):
            return None
        return self.dense(condition if is_shown else self.invert_truth(condition))

    def _is_softplus(self, condition: Value, one: Value, other: Value) -> bool:
        """Whether a choice is a softplus times any factor: w * c where w is large, and softplus(w) * c elsewhere."""
        argument = condition.beyond if isinstance(condition, Field) else None
        if argument is None or not all(
            isinstance(each, Field) and each.shape == argument.shape for each in (one, other)
        ):
            return False
        argument_elements, identity_branch, softplus_branch = (
            self.dense(each).elements.reshape(-1) for each in (argument, one, other)
        )
        for end in (1, argument_elements.size):  # the first element decides nearly all choices
            made = self.dense(Algebra.function(self, "softplus", Field(argument_elements[:end]))).elements
            if not np.array_equal(
                made * identity_branch[:end] % self.p,
                softplus_branch[:end] * argument_elements[:end] % self.p,
            ):
                return False
        return bool(argument_elements.size and argument_elements.all())

    def compare(self, name: str, one: Value, other: Value) -> Any:
        """Compare as `less`, `less_equal` or `equal`; other comparisons exchange or negate these."""
        if is_known(one) and is_known(other):
            return np.asarray(getattr(np, name)(*promoted(one, other)))
        if name == "equal" and {_kind(one, one), _kind(other, other)} == {"truth"}:
            return self.invert_truth(self.combine("xor", one, other))
        if name == "equal":
            self._require_one_mask(self._masks(one) & self._masks(other))
            with self._masking():
                return self.function("equal", self.multiply(*(self.subtract(one, other),) * 2))
        if name == "not_equal":
            return self.invert_truth(self.compare("equal", one, other))
        if name in ("greater", "greater_equal"):
            one, other = other, one
        if name in ("less_equal", "greater_equal"):
            return self.invert_truth(self._less(other, one))
        return self._less(one, other)

    def _less(self, one: Value, other: Value) -> Any:
        if isinstance(one, Field) and one.is_place and is_known(other) and (np.asarray(other) <= 0).all():
            return np.zeros(np.broadcast_shapes(one.shape, shape_of(other)), bool)
        if self._hides(one) and isinstance(other, Field) and other.shown is not None and other.masks:
            return self._spread(other.shown, one, other)
        self._require_one_mask(self._masks(one) & self._masks(other))
        found = self.function("less", one, other)
        if not (isinstance(found, Field) and isinstance(other, Field) and is_known(one)):
            return found
        is_large = np.asarray(one).size == 1 and bool((np.asarray(one) >= PLAIN_BEYOND).all())
        return Field(found.elements, found.kind, beyond=other) if is_large else found

    def invert_truth(self, value: Value) -> Any:
        """Negate truth values."""
        if is_known(value):
            return np.logical_not(np.asarray(value))
        self._require_truth(value)
        return Field(self.dense(self.subtract(np.ones((), np.int64), value)).elements, "truth")

    def combine(self, name: str, one: Value, other: Value) -> Value:
        """Combine truth values by `and`, `or`, `xor`."""
        if is_known(one) and is_known(other):
            made: Callable[..., Any] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[
                name
            ]
            a, b = np.asarray(one), np.asarray(other)
            return np.asarray(made(*promoted(a, b)))
        self._require_truth(one)
        self._require_truth(other)
        both = self.multiply(one, other)
        if name == "and":
            return Field(self.dense(both).elements, "truth")
        rest = self.multiply(both, np.asarray(2)) if name == "xor" else both
        return Field(self.dense(self.subtract(self.add(one, other), rest)).elements, "truth")

    @staticmethod
    def _require_truth(value: Value) -> None:
        kind = (
            value.kind
            if isinstance(value, (Field, Factored, Coded))
            else _KINDS.get(value.dtype.kind, "real")
        )
        if kind != "truth":
            raise UnknownError("bitwise operations on integers")

    def greatest(self, one: Value, other: Value) -> Value:
        """Return the larger of two values, elementwise."""
        if is_known(one) and is_known(other):
            return np.maximum(*promoted(one, other))
        for value, bound in ((one, other), (other, one)):
            if is_known(bound) and np.asarray(bound).size and not np.asarray(bound).any():
                return self._spread(self.function("relu", value), value, bound)
        return self.symmetric("max", one, other)

    def least(self, one: Value, other: Value) -> Value:
        """Return the smaller of two values, elementwise."""
        if is_known(one) and is_known(other):
            return np.minimum(*promoted(one, other))
        return self.symmetric("min", one, other)

    def clamp(self, value: Value, low: Value | None, high: Value | None) -> Value:
        """Clamp between two bounds; a lower bound of 0 alone gives ReLU."""
        if is_known(value) and (low is None or is_known(low)) and (high is None or is_known(high)):
            array = np.asarray(value)
            bounds = [None if each is None else np.asarray(each) for each in (low, high)]
            least, most = (  # a bound takes the type of a tensor of its kind
                each.astype(array.dtype) if each is not None and each.dtype.kind == array.dtype.kind else each
                for each in bounds
            )
            found = array if least is None else self.greatest(array, least)
            return found if most is None else self.least(found, most)
        clamped = value
        low = None if _is_all(low, -np.inf) else low
        high = None if _is_all(high, np.inf) else high
        if low is not None:
            clamped = self.greatest(clamped, low)
        return clamped if high is None else self.least(clamped, high)

    def cast(self, value: Value, kind: str, dtype: Any) -> Any:
        """Cast to another type; `kind` is numpy's letter for it."""
        if is_known(value):
            with np.errstate(all="ignore"):
                return np.asarray(value).astype(dtype)
        dense_kind = value.kind if isinstance(value, (Field, Factored, Coded)) else "real"
        if kind == "f":
            if dense_kind == "real":
                return value
            whole = self.dense(value)
            limit = value.limit if isinstance(value, Field) else None
            return Field(whole.elements, truth=whole if dense_kind == "truth" else None, limit=limit)
        if kind == "b":
            if dense_kind == "truth":
                return value
            return self.compare("not_equal", value, number(0))
        is_narrow = np.dtype(dtype).itemsize < 4 or np.dtype(dtype).kind == "u"
        if is_narrow and dense_kind != "truth":
            made = self.dense(self.function(f"to {np.dtype(dtype).name}", value)).elements
            return Field(made, "whole" if kind in "iu" else "real")
        if dense_kind != "real":
            return Field(self.dense(value).elements, "whole")
        return Field(self.dense(self.function("truncate", value)).elements, "whole")


_KEEPING = frozenset({"abs", "sign", "relu"})
"""Functions whose results are integers if their operands are."""
_TRUTHS = frozenset({"less", "equal", "isnan", "isinf", "is at"})
_WHOLE = frozenset({"argmax", "argmin", "topk-places", "quotient of places"})
"""Functions that return indices: integers that are never negative."""
_PICKING = frozenset({"topk"})
"""Functions of elements in order that return some of them."""
_CHOOSING = frozenset({"max", "min"})
"""Reductions that return one of their elements."""


def _place_of(array: Array) -> tuple[int, ...]:
    """Return where the elements of an array are in memory; they must be kept there."""
    return array.__array_interface__["data"][0], *array.shape, *array.strides


def _is_scaled_along(rests: Sequence[Rest], axis: int) -> bool:
    """Whether the elements are multiplied along no axis but one."""
    return all(each is None for rest in rests for at, each in enumerate(rest.scales) if at != axis)


def _joined(rests: Sequence[Rest], axis: int) -> Rest:
    short = np.concatenate([rest.short for rest in rests], axis=axis)
    scales: list[Elements | None] = [None] * short.ndim
    if any(rest.scales[axis] is not None for rest in rests):
        vectors = (
            np.ones(rest.short.shape[axis], np.uint64) if vector is None else vector
            for rest in rests
            for vector in rest.scales[axis : axis + 1]
        )
        scales[axis] = np.concatenate(list(vectors))
    return Rest(short, tuple(scales))


def _moved(elements: Elements, shape: tuple[int, ...], moved: Move) -> Elements:
    return np.ascontiguousarray(moved(np.broadcast_to(elements, shape)))


def _is_place(value: Value) -> bool:
    """Whether all elements are integers and none is negative."""
    if isinstance(value, Field):
        return value.is_place
    is_whole = is_known(value) and np.asarray(value).dtype.kind in "iu"
    return is_whole and bool((np.asarray(value) >= 0).all())


def _is_all(bound: Value | None, value: float) -> bool:
    return bound is not None and is_known(bound) and bool((np.asarray(bound) == value).all())


def _kind(one: Value, other: Value) -> str:
    """Return the kind of a combination of two values: the wider of theirs."""
    kinds = {
        value.kind
        if isinstance(value, (Field, Factored, Coded))
        else _KINDS.get(np.asarray(value).dtype.kind, "real")
        for value in (one, other)
    }
    return next(kind for kind in ("real", "whole", "truth") if kind in kinds)


_KINDS = {"b": "truth", "i": "whole", "u": "whole"}


def _is_real(value: Value) -> bool:
    kind = (
        value.kind
        if isinstance(value, (Field, Factored, Coded))
        else _KINDS.get(np.asarray(value).dtype.kind, "real")
    )
    return kind == "real"


def _float(value: Any) -> Array:
    array = np.asarray(value)
    return array if array.dtype.kind == "f" else array.astype(np.float32)


def _sum_type(array: Array) -> Any:
    return np.int64 if array.dtype.kind in "biu" else None


def promoted(one: Any, other: Any) -> tuple[Array, Array]:
    """Promote two known values as PyTorch does: a number takes the type of a tensor of its kind or a wider one."""
    a, b = np.asarray(one), np.asarray(other)
    if a.dtype == b.dtype:
        return a, b
    rank = {"b": 0, "u": 1, "i": 1, "f": 2}
    ranks = rank[a.dtype.kind], rank[b.dtype.kind]
    if a.ndim == 0 and b.ndim and ranks[0] <= ranks[1]:
        return a.astype(b.dtype), b
    if b.ndim == 0 and a.ndim and ranks[1] <= ranks[0]:
        return a, b.astype(a.dtype)
    if ranks[0] != ranks[1]:
        wider_type = a.dtype if ranks[0] > ranks[1] else b.dtype
        if wider_type == np.float64 and 0 in (a.ndim, b.ndim):  # a Python number beside integers
            wider_type = np.dtype(np.float32)
        return a.astype(wider_type), b.astype(wider_type)
    wider_type = np.promote_types(a.dtype, b.dtype)
    return a.astype(wider_type), b.astype(wider_type)


_erf = np.vectorize(math.erf, otypes=[np.float64])
_REAL: Mapping[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "erf": lambda x: _erf(x).astype(x.dtype),
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "truncate": np.trunc,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "log1p": np.log1p,
    "softplus": lambda x: np.logaddexp(0, x),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "leaky relu": lambda x, slope: np.where(x >= 0, x, x * slope),
    "expm1 below 0": lambda x: np.expm1(np.minimum(x, 0)),
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "remainder": np.remainder,
    "atan": np.arctan,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "pow": np.power,
}
