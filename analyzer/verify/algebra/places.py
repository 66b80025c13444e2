"""Operations that read and write at indices: scatters, lookups by several indices, rows by group.

Known indices are computed. With unknown indices a scattered sum follows its definition: at each place the sum of the
updates with that index. Any other scatter is a random function, drawn by the reduction's name, of the old element and
of all updates there: neither PyTorch nor ONNX says which of two updates with the same index stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from analyzer.records import Frozen
from analyzer.verify.algebra.values import (
    Algebra,
    Array,
    Field,
    Rows,
    Stretch,
    UnknownError,
    Value,
    is_known,
    shape_of,
)

NONE, ADD, MULTIPLY, LARGEST, LEAST = "none", "add", "mul", "max", "min"
"""Reductions of a scatter with the old element, by ONNX's names."""
REDUCTIONS = (NONE, ADD, MULTIPLY, LARGEST, LEAST)


def put_elements(
    a: Algebra, value: Value, axis: int, index: Value, updates: Value, reduction: str = NONE
) -> Value:
    """Put each update at its index along one axis, and at its own position along the others."""
    shape, sizes = shape_of(value), shape_of(index)
    if not shape:
        raise UnknownError("a scatter into a scalar")
    axis %= len(shape)
    if len(sizes) != len(shape) or any(
        few > limit for at, (few, limit) in enumerate(zip(sizes, shape, strict=True)) if at != axis
    ):
        raise UnknownError("a scatter with indices larger than its target")
    updates = a.cut(updates, [slice(0, size) for size in sizes]) if shape_of(updates) != sizes else updates
    if shape_of(updates) != sizes:
        raise UnknownError("a scatter with fewer values than indices")
    if is_known(index):
        places = _within(np.asarray(index), shape[axis])
        grid = list(np.indices(sizes))
        grid[axis] = places
        return put(a, value, np.ravel_multi_index(grid, shape), updates, reduction)
    rest = [at for at in range(len(shape)) if at != axis]
    order = [*rest, axis]
    own = a.permute(
        a.cut(value, [slice(0, n) if at != axis else slice(None) for at, n in enumerate(sizes)]), order
    )
    matches = _match_positions(a, a.permute(index, order), shape[axis])  # (..., updates, places)
    made = _combine_updates(a, own, matches, a.permute(updates, order), reduction)
    back = a.permute(made, [order.index(at) for at in range(len(shape))])
    if all(sizes[at] == shape[at] for at in rest):
        return back
    inside = np.arange(math.prod(shape)).reshape(shape)
    inside = inside[tuple(slice(0, n) if at != axis else slice(None) for at, n in enumerate(sizes))]
    return put(a, value, inside, back, NONE)


def put_rows(
    a: Algebra, value: Value, indices: Sequence[Value | None], updates: Value, reduction: str = NONE
) -> Value:
    """Put updates where several indices meet, one for each axis; an axis without an index is taken whole."""
    shape = shape_of(value)
    parts = _parts(indices, len(shape))
    if all(each is None or is_known(each) for each in parts):
        target = np.arange(math.prod(shape)).reshape(shape)
        at = target[tuple(slice(None) if each is None else np.asarray(each) for each in parts)]
        return put(a, value, at, a.expand(updates, at.shape), reduction)
    block = _Block.of(a, value, parts)
    expanded = a.expand(updates, block.shape_read)
    rank = len(block.sizes)
    start, count = block.start, len(shape_of(block.index[0]))
    order = [
        *range(start, start + count),
        *(at for at in range(rank - len(block.index) + count) if not start <= at < start + count),
    ]
    rows = a.reshape(a.permute(expanded, order), (block.index_count, *block.rest))
    matches = block.match_positions(a)  # (updates, places)
    wide_matches = a.reshape(
        matches, (*shape_of(matches)[:1], *(1 for _ in block.rest), shape_of(matches)[1])
    )
    last = [*range(1, 1 + len(block.rest)), 0]
    own = a.permute(a.reshape(block.value, (-1, *block.rest)), last)
    matches_order = [*range(1, 1 + len(block.rest)), 0, 1 + len(block.rest)]
    made = _combine_updates(a, own, a.permute(wide_matches, matches_order), a.permute(rows, last), reduction)
    whole = a.permute(made, [len(block.rest), *range(len(block.rest))])
    whole = a.reshape(whole, shape_of(block.value))
    return a.permute(whole, list(np.argsort(block.order)))


def put(a: Algebra, value: Value, at: Array, updates: Value, reduction: str) -> Value:
    """Put updates at known flat positions."""
    flat = at.reshape(-1)
    unique, earlier_counts = np.unique(flat), _count_earlier(flat)
    if reduction not in REDUCTIONS:
        raise UnknownError(f"a scatter with {reduction}")
    if reduction == NONE and unique.size < flat.size:
        raise UnknownError("a scatter that puts two numbers at one place")
    shape = shape_of(value)
    updates = a.reshape(updates, (-1,))
    found = a.reshape(value, (-1,))
    for turn in range(int(earlier_counts.max(initial=-1)) + 1):
        here = np.flatnonzero(earlier_counts == turn)
        places = flat[here]
        new = a.take(updates, here, 0)
        old = a.take(found, places, 0)
        if reduction != NONE:
            made: dict[str, Callable[[Value, Value], Value]] = {
                ADD: a.add,
                MULTIPLY: a.multiply,
                LARGEST: a.greatest,
                LEAST: a.least,
            }
            new = made[reduction](old, new)
        found = _laid(a, found, places, new)
    return a.reshape(found, shape)


def _laid(a: Algebra, value: Value, places: Array, new: Value) -> Value:
    if is_known(value) and is_known(new):
        array = np.array(value)
        array[places] = np.asarray(new)
        return array
    whole = a.dense(value)
    elements = whole.elements.copy()
    elements[places] = a.dense(new).elements
    kinds = {whole.kind, a.dense(new).kind}
    return Field(elements, next(kind for kind in ("real", "whole", "truth") if kind in kinds))


def _count_earlier(flat: Array) -> Array:
    """Return for each position how often it occurred before."""
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if flat.size else np.zeros(0, np.int64)
    counts = np.diff(np.r_[starts, flat.size])
    found = np.zeros(flat.size, np.int64)
    found[order] = np.arange(flat.size) - np.repeat(starts, counts)
    return found


def _within(index: Array, size: int) -> Array:
    if index.size and (int(index.min()) < -size or int(index.max()) >= size):
        raise UnknownError("an index out of range")
    return np.where(index < 0, index + size, index)


def _match_positions(a: Algebra, index: Value, size: int) -> Any:
    """Return whether each index equals each position; a negative index may count from the end."""
    shape = shape_of(index)
    a.bound(math.prod(shape) * size)
    expanded = a.reshape(index, (*shape, 1))
    if is_known(index):
        return _within(np.asarray(expanded), size) == np.arange(size)
    if isinstance(index, Field) and index.is_place:
        return a.compare("equal", expanded, np.arange(size))
    return a.function("is at", np.arange(size), expanded, settings=(size,))


def _combine_updates(a: Algebra, own: Value, matches: Value, updates: Value, reduction: str) -> Value:
    """Combine the elements along the last axis with the updates along the last axis, by the matches along both."""
    dense_updates = a.dense(updates)
    expanded = a.reshape(dense_updates, (*shape_of(dense_updates), 1))
    axis = len(shape_of(expanded)) - 2
    a.bound(math.prod(np.broadcast_shapes(shape_of(matches), shape_of(expanded))))
    if reduction == ADD:
        return a.add(own, a.sum(a.multiply(matches, expanded), (axis,), keeps=False))
    if reduction not in REDUCTIONS:
        raise UnknownError(f"a scatter with {reduction}")
    encoded = Field(a.dense(a.function("put each", expanded)).elements)
    sums = a.sum(a.multiply(matches, encoded), (axis,), keeps=False)
    found = a.function(f"put {reduction}", own, sums)
    kind = own.kind if isinstance(own, Field) else a.dense(own).kind
    return Field(a.dense(found).elements, "real" if "real" in (kind, dense_updates.kind) else kind)


# reading


def _parts(indices: Sequence[Value | None], rank: int) -> list[Value | None]:
    found: list[Value | None] = []
    for each in indices:
        if each is not None and is_known(each) and np.asarray(each).dtype.kind == "b":
            found += list(np.nonzero(np.asarray(each)))
        elif each is not None and getattr(each, "kind", "whole") != "whole":
            raise UnknownError("indices that are computed booleans or floats")
        else:
            found.append(each)
    if len(found) > rank:
        raise UnknownError("more indices than axes")
    return found


class _Block(Frozen):
    """A value with its indexed axes first, and the indices broadcast to one shape."""

    value: Value
    index: tuple[Value, ...]
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    start: int

    @staticmethod
    def of(a: Algebra, value: Value, parts: Sequence[Value | None]) -> _Block:
        shape = shape_of(value)
        first = [at for at, each in enumerate(parts) if each is not None]
        if first != list(range(first[0], first[-1] + 1)):
            raise UnknownError("indices with an axis between them")
        indices = [each for each in parts if each is not None]
        index_shape = np.broadcast_shapes(*(shape_of(each) for each in indices))
        index = tuple(a.expand(each, index_shape) for each in indices)
        order = (*first, *(at for at in range(len(shape)) if at not in first))
        return _Block(a.permute(value, order), index, shape, order, first[0])

    @property
    def index_count(self) -> int:
        return math.prod(shape_of(self.index[0]))

    @property
    def rest(self) -> tuple[int, ...]:
        return shape_of(self.value)[len(self.index) :]

    @property
    def shape_read(self) -> tuple[int, ...]:
        """Shape of a read by these indices."""
        rest = [n for at, n in enumerate(self.sizes) if at not in self.order[: len(self.index)]]
        return (*rest[: self.start], *shape_of(self.index[0]), *rest[self.start :])

    def restore_axes(self, a: Algebra, read: Value) -> Value:
        """Move the axes of the indices, which come first in a result that was read, to their place."""
        inner = len(shape_of(self.index[0]))
        after = range(inner + self.start, inner + len(self.rest))
        return a.permute(read, [*range(inner, inner + self.start), *range(inner), *after])

    def match_positions(self, a: Algebra) -> Value:
        """Return for each update, and each place where indices may meet, whether the update goes there."""
        found: Value | None = None
        for size, each in zip(shape_of(self.value), self.index, strict=False):
            own = _match_positions(a, a.reshape(each, (-1,)), size)
            if found is None:
                found = own
                continue
            before = shape_of(found)
            a.bound(before[0] * before[1] * size)
            found = a.combine("and", a.reshape(found, (*before, 1)), a.reshape(own, (before[0], 1, size)))
            found = a.reshape(found, (before[0], before[1] * size))
        assert found is not None
        return found


def resolve_index(index: Value, size: int) -> Value:
    """Return an index as known if all its elements are valid positions, else unchanged.

    A known index that was concatenated with unknown ones is found so. A drawn element is a valid position with a
    probability of one in 2^31 for each position.
    """
    if not isinstance(index, Field) or index.kind != "whole" or not index.elements.size:
        return index
    return index.elements.astype(np.int64) if bool((index.elements < np.uint64(size)).all()) else index


def read_rows(
    a: Algebra, value: Value, indices: Sequence[Value | None], look_up: Callable[..., Value]
) -> Value:
    """Read where several indices meet; `look_up` reads by one index."""
    parts = _parts(indices, len(shape_of(value)))
    unknown = [at for at, each in enumerate(parts) if each is not None and not is_known(each)]
    if not unknown:
        array = tuple(slice(None) if each is None else np.asarray(each) for each in parts)
        return a.move(value, lambda each: each[array])
    indexed = [at for at, each in enumerate(parts) if each is not None]
    if len(indexed) == 1:
        return look_up(a, value, parts[indexed[0]], indexed[0])
    block = _Block.of(a, value, parts)
    count = len(block.index)
    if all(is_known(each) or getattr(each, "is_place", False) for each in block.index):
        return _read_flat(a, block, look_up)
    known = [at for at in range(count) if is_known(block.index[at])]
    order = [*known, *(at for at in range(count) if at not in known), *range(count, len(block.sizes))]
    rows = a.dense(a.permute(block.value, order))
    flat = [a.reshape(each, (-1,)) for each in block.index]
    if known:
        at = tuple(_within(np.asarray(flat[each]), shape_of(block.value)[each]) for each in known)
        rows = a.dense(a.move(rows, lambda each: each[at]))  # (index count, unknown axes, rest)
    else:
        rows = a.dense(a.reshape(rows, (1, *shape_of(rows))))
    flattened = a.reshape(rows, (shape_of(rows)[0], -1, *block.rest))
    whole = a.reshape(a.ordered("look up", flattened, 1, 1), (shape_of(rows)[0], *block.rest))
    places = [
        a.reshape(flat[each], (-1, *(1 for _ in block.rest))) for each in range(count) if each not in known
    ]
    read = a.function("look up", whole, *places)
    return block.restore_axes(a, a.reshape(read, (*shape_of(block.index[0]), *block.rest)))


def _read_flat(a: Algebra, block: _Block, look_up: Callable[..., Value]) -> Value:
    """Read by one flat index, as converters do; the caller has checked that no unknown index is negative."""
    sizes = shape_of(block.value)[: len(block.index)]
    flat: Value = np.zeros((), np.int64)
    for size, each in zip(sizes, block.index, strict=True):
        own = _within(np.asarray(each), size) if is_known(each) else each
        flat = a.add(a.multiply(flat, np.asarray(size)), own)
    read = look_up(a, a.reshape(block.value, (-1, *block.rest)), flat, 0)
    return block.restore_axes(a, read)


def one_hot(a: Algebra, index: Value, depth: int, off: Value, on: Value) -> Value:
    """Return `on` at the index along a new last axis, and `off` elsewhere."""
    return a.where(_match_positions(a, index, depth), on, off)


# groups


def joined(a: Algebra, parts: Sequence[Rows]) -> Value:
    """Join rows of consecutive stretches, from the first row to the last.

    Raises:
        UnknownError: a stretch does not begin where the one before ends.
    """
    before: Value = np.zeros((), np.int64)
    found: Value | None = None
    size = shape_of(parts[0].of)[0]
    rank = len(shape_of(parts[0].of))
    rows = np.arange(size).reshape(-1, *(1 for _ in range(rank - 1)))
    for part in parts:
        first = a.reshape(part.stretch.first, ())
        if shape_of(part.of)[0] != size or not a.same(a.dense(first), a.dense(before)):
            raise UnknownError("groups whose rows are not consecutive")
        last = a.reshape(part.stretch.last, ())
        own = a.multiply(part.of, _between(a, rows, before, last))
        found = own if found is None else a.add(found, own)
        before = last
    assert found is not None
    return found


def _between(a: Algebra, rows: Array, first: Value, last: Value) -> Value:
    """Return 1 for rows from `first` on and before `last`, else 0."""
    below, before = (a.cast(a.compare("less", rows, each), "f", np.float32) for each in (last, first))
    return a.subtract(below, before)


def grouped_product(a: Algebra, value: Value, weights: Value, ends: Value) -> Value:
    """Multiply rows by the matrix of their group; `ends` are exclusive (torch.nn.functional.grouped_mm)."""
    if len(shape_of(value)) != 2 or len(shape_of(weights)) != 3 or len(shape_of(ends)) != 1:
        raise UnknownError("groups along other axes than rows")
    groups = shape_of(weights)[0]
    if shape_of(ends) != (groups,):
        raise UnknownError("another number of group ends than of matrices")
    parts, before = [], np.zeros((), np.int64)  # type: tuple[list[Rows], Value]
    for at in range(groups):
        matrix = a.reshape(
            a.cut(weights, [slice(at, at + 1), slice(None), slice(None)]), shape_of(weights)[1:]
        )
        last = a.reshape(a.cut(ends, [slice(at, at + 1)]), ())
        parts.append(Rows(a.matmul(value, matrix), Stretch(before, last)))
        before = last
    return joined(a, parts)
