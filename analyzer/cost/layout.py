"""Shapes of operators that move, create and index values, and the numbers of small values (ONNX docs/Operators.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from analyzer.cost.algebra import (
    Poly,
    Size,
    add,
    both,
    divide,
    floor_div,
    is_truth,
    largest,
    multiply,
    power,
    product,
    remainder,
    settle,
    sign_of,
    smallest,
    subtract,
    truth_of,
)
from analyzer.cost.values import MOST, UNFIT, Element, Rule, Step, UnshapedError, Value, check_equal
from analyzer.model.dtypes import DType
from analyzer.records import replace

Grid: TypeAlias = "npt.NDArray[Any]"
"""Array of numbers and expressions."""


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front.

    Raises:
        UnshapedError: there is no such axis.
    """
    if not -rank <= axis < max(rank, 1):
        raise UnshapedError(f"axis {axis} of {rank} axes")
    return axis + rank if axis < 0 else axis


def _grid(value: Value) -> Grid | None:
    """Return the numbers of a value as an array of its shape; None where they are not known."""
    shape = value.shape
    if value.data is None or shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    dims = tuple(dim for dim in shape if isinstance(dim, int))
    if math.prod(dims) != len(value.data):
        return None
    grid = np.empty(len(value.data), dtype=object)
    grid[:] = value.data
    return grid.reshape(dims)


def _flat(grid: Grid | None) -> tuple[Element, ...] | None:
    return None if grid is None or grid.size > MOST else tuple(grid.reshape(-1).tolist())


def _shape(step: Step) -> list[Value]:
    dims = step.shape(0)
    start, end = step.number("start", 0), step.number("end", len(dims))
    part = dims[slice(start, end)]
    return [Value(DType.INT64, (len(part),), tuple(part))]


def _size(step: Step) -> list[Value]:
    return [Value(DType.INT64, (), (product(step.shape(0)),))]


def _same(step: Step) -> list[Value]:
    value = replace(step.value(0), is_stored=False)
    mask = Value(DType.BOOL, value.shape)
    return [value, mask][: len(step.node.outputs)]


def _reshape(step: Step) -> list[Value]:
    value = step.value(0)
    wanted = step.sizes(1) if step.has(1) else step.numbers("shape")
    if wanted is None:
        length = step.inputs[1].shape if step.has(1) else None
        raise UnshapedError(
            f"Reshape to {'a computed shape' if length is None else 'sizes that are computed from values'}"
        )
    source = value.shape
    dims: list[Size] = []
    for place, size in enumerate(wanted):
        if size == 0 and not step.number("allowzero", 0):
            if source is None or place >= len(source):
                raise UnshapedError("Reshape keeps an unknown size")
            size = source[place]
        dims.append(size)
    if -1 in dims:
        if source is None:
            raise UnshapedError(value.why or "Reshape of a tensor of unknown size")
        at = dims.index(-1)
        dims[at] = _rest(source, [*dims[:at], *dims[at + 1 :]])
    if source is not None:
        check_equal(product(source), product(dims), "a Reshape to another number of elements")
    return [Value(value.dtype, tuple(dims), value.data)]


def _rest(source: Sequence[Size], known: Sequence[Size]) -> Size:
    """Return the size that remains for the -1 of a Reshape."""
    above, below = list(source), []
    for size in known:
        if size in above:
            above.remove(size)
        else:
            below.append(size)
    total, by = product(above), product(below)
    if by == 0:
        return 0
    exact = divide(total, by)
    return exact if exact is not None else floor_div(total, by)


def _flatten(step: Step) -> list[Value]:
    dims = step.shape(0)
    axis = step.number("axis", 1)
    axis = axis + len(dims) if axis < 0 else axis
    return [Value(step.value(0).dtype, (product(dims[:axis]), product(dims[axis:])), step.value(0).data)]


def _axes(step: Step, slot: int = 1) -> tuple[int, ...] | None:
    """Return the axes of an input, or of an attribute in older opsets; None where there are none."""
    if step.has(slot):
        sizes = step.sizes(slot)
        if sizes is None or not all(isinstance(size, int) for size in sizes):
            raise UnshapedError("axes that are computed from values")
        return tuple(size for size in sizes if isinstance(size, int))
    return step.numbers("axes")


def _squeeze(step: Step) -> list[Value]:
    dims, axes = step.shape(0), _axes(step)
    if axes is None:
        kept = tuple(dim for dim in dims if dim != 1)
    else:
        removed = {axis_of(axis, len(dims)) for axis in axes}
        kept = tuple(dim for place, dim in enumerate(dims) if place not in removed)
    return [Value(step.value(0).dtype, kept, step.value(0).data)]


def _unsqueeze(step: Step) -> list[Value]:
    dims, axes = list(step.shape(0)), _axes(step) or ()
    rank = len(dims) + len(axes)
    for axis in sorted(axis_of(axis, rank) for axis in axes):
        dims.insert(axis, 1)
    return [Value(step.value(0).dtype, tuple(dims), step.value(0).data)]


def _transpose(step: Step) -> list[Value]:
    dims = step.shape(0)
    order = step.numbers("perm") or tuple(reversed(range(len(dims))))
    if len(order) != len(dims):
        raise UnshapedError(f"Transpose of {len(dims)} axes by {len(order)}")
    grid = _grid(step.value(0))
    data = None if grid is None else _flat(grid.transpose(order))
    return [Value(step.value(0).dtype, tuple(dims[place] for place in order), data)]


def _concat(step: Step) -> list[Value]:
    shapes = [step.shape(slot) for slot in range(len(step.inputs))]
    axis = axis_of(step.number("axis", 1), len(shapes[0]))
    dims = list(shapes[0])
    for place in range(len(dims)):
        column = [shape[place] for shape in shapes]
        if place != axis:
            filled = [shape[place] for shape in shapes if 0 not in shape]  # onnxruntime skips empty inputs
            for dim in filled[1:]:
                check_equal(filled[0], dim, UNFIT)
        dims[place] = _sum(column) if place == axis else min(column, key=lambda dim: not isinstance(dim, int))
    grids = [_grid(value) for value in step.inputs]
    known = [grid for grid in grids if grid is not None]
    data = _flat(np.concatenate(known, axis)) if len(known) == len(grids) else None
    return [Value(step.value(0).dtype, tuple(dims), data)]


def _sum(sizes: Sequence[Size]) -> Size:
    result: Size = 0
    for size in sizes:
        result = add(result, size)
    return settle(result)


def _split(step: Step) -> list[Value]:
    dims, count = step.shape(0), len(step.node.outputs)
    axis = axis_of(step.number("axis", 0), len(dims))
    sizes = step.sizes(1) if step.has(1) else step.numbers("split")
    if step.has(1) and sizes is None:
        raise UnshapedError("Split into sizes that are computed from values")
    if sizes is None:
        each = floor_div(add(dims[axis], count - 1), count)
        sizes = (*(each for _ in range(count - 1)), subtract(dims[axis], multiply(each, count - 1)))
    values, start = [], 0
    data = step.value(0).data
    for size in sizes[:count]:
        part = (
            data[start : start + size]
            if data is not None and len(dims) == 1 and isinstance(size, int)
            else None
        )
        start += size if isinstance(size, int) else 0
        values.append(Value(step.value(0).dtype, (*dims[:axis], size, *dims[axis + 1 :]), part))
    return values


def _slice(step: Step) -> list[Value]:
    value, dims = step.value(0), list(step.shape(0))
    if step.has(1) or step.has(2):
        starts, ends = step.sizes(1), step.sizes(2)
    else:
        starts, ends = step.numbers("starts"), step.numbers("ends")
    axes = _axes(step, 3)
    steps = step.sizes(4) if step.has(4) else None
    if step.has(4) and steps is None:
        raise UnshapedError("Slice by a step that is computed from values")
    count = _length(step, 1, starts, ends, axes)
    axes = axes if axes is not None else tuple(range(count))
    grid = _grid(value)
    for at, axis in enumerate(axes):
        place = axis_of(axis, len(dims))
        stride = steps[at] if steps is not None else 1
        if starts is None or ends is None or not isinstance(stride, int) or not stride:
            dims[place], grid = step.fresh("Slice from or to a place that is computed from values"), None
            continue
        start, end = _bound(starts[at], dims[place], stride), _bound(ends[at], dims[place], stride)
        grid = _cut(grid, place, start, end, stride)
        first, last = (start, end) if stride > 0 else (end, start)
        edge = 0 if stride > 0 else -1
        is_ordered = first == edge or last == (dims[place] if stride > 0 else subtract(dims[place], 1))
        is_ordered |= (
            isinstance(starts[at], int)
            and isinstance(ends[at], int)
            and _follow(starts[at], ends[at], stride)
        )
        dims[place] = _steps(start, end, stride, is_ordered=is_ordered)
    return [Value(value.dtype, tuple(dims), _flat(grid))]


def _follow(start: Size, end: Size, stride: int) -> bool:
    """Whether two places counted from the same end are in the order of the steps."""
    if not isinstance(start, int) or not isinstance(end, int) or (start < 0) != (end < 0):
        return False
    return start <= end if stride > 0 else end <= start


def _cut(grid: Grid | None, place: int, start: Size, end: Size, stride: int) -> Grid | None:
    if grid is None or not isinstance(start, int) or not isinstance(end, int):
        return None
    stop = None if end == -1 and stride < 0 else end
    return grid[(*[slice(None)] * place, slice(start, stop, stride))]


def _length(step: Step, slot: int, *known: Sequence[Size] | None) -> int:
    for each in known:
        if each is not None:
            return len(each)
    found = step.inputs[slot].shape
    if found is not None and len(found) == 1 and isinstance(found[0], int):
        return found[0]
    raise UnshapedError("Slice along axes that are not known")


_FAR = (1 << 31) - 1
"""Value from which on an end means the end of the axis."""


def _bound(value: Size, size: Size, stride: int) -> Size:
    """Clamp a start or an end of a Slice to its axis."""
    low, high = (0, size) if stride > 0 else (-1, subtract(size, 1))
    if isinstance(value, int):
        if value >= _FAR:
            return high
        if value <= -_FAR:
            return low
        if value < 0:
            moved = add(size, value)
            return _within(moved, low if stride < 0 else 0, high)
        return smallest(value, high) if isinstance(size, int) else _less(value, high)
    if value.terms and all(factor < 0 for _, factor in value.terms):
        return _within(add(size, value), low, high)
    return smallest(value, high) if value != high else value


def _less(value: int, high: Size) -> Size:
    return smallest(value, high) if value else 0


def _within(value: Size, low: int, high: Size) -> Size:
    if isinstance(value, int) and isinstance(high, int):
        return min(max(value, low), high)
    return largest(value, low) if value != high else value


def _steps(start: Size, end: Size, stride: int, *, is_ordered: bool = False) -> Size:
    """Return the number of steps between two places: 0 if the end is before the start, which `is_ordered` excludes."""
    length = subtract(end, start) if stride > 0 else subtract(start, end)
    if not is_ordered:
        length = largest(length, 0)
    stride = abs(stride)
    return length if stride == 1 else floor_div(add(length, stride - 1), stride)


def _gather(step: Step) -> list[Value]:
    value, dims, index = step.value(0), step.shape(0), step.shape(1)
    axis = axis_of(step.number("axis", 0), len(dims))
    grid, picks = _grid(value), _grid(step.inputs[1])
    data = None
    if grid is not None and picks is not None and all(isinstance(each, int) for each in picks.reshape(-1)):
        try:
            data = _flat(np.asarray(np.take(grid, picks.astype(np.int64), axis), dtype=object))
        except IndexError as error:
            raise UnshapedError("Gather with an index beyond the end") from error
    return [Value(value.dtype, (*dims[:axis], *index, *dims[axis + 1 :]), data)]


def _gather_nd(step: Step) -> list[Value]:
    dims, index, batch = step.shape(0), step.shape(1), step.number("batch_dims", 0)
    if not isinstance(index[-1], int):
        raise UnshapedError("GatherND by a number of axes that depends on values")
    return [Value(step.value(0).dtype, (*index[:-1], *dims[batch + index[-1] :]))]


def _gather_elements(step: Step) -> list[Value]:
    return [Value(step.value(0).dtype, step.shape(1))]


def _expand(step: Step) -> list[Value]:
    sizes = step.sizes(1)
    if sizes is None:
        raise UnshapedError("Expand to sizes that are computed from values")
    shape = step.broadcast([step.shape(0), sizes])
    value = step.value(0)
    data = None
    if value.data is not None and len(value.data) == 1 and all(isinstance(dim, int) for dim in shape):
        count = math.prod(dim for dim in shape if isinstance(dim, int))
        data = value.data * count if count <= MOST else None
    return [Value(value.dtype, shape, data, fill=value.constant)]


def _tile(step: Step) -> list[Value]:
    dims = step.shape(0)
    repeats = step.sizes(1)
    if repeats is None or len(repeats) != len(dims):
        raise UnshapedError("Tile by numbers that are computed from values")
    shape = tuple(multiply(dim, each) for dim, each in zip(dims, repeats, strict=True))
    return [Value(step.value(0).dtype, shape)]


def _pad(step: Step) -> list[Value]:
    dims = list(step.shape(0))
    pads = step.sizes(1) if step.has(1) else step.numbers("pads") or step.numbers("paddings")
    if pads is None:
        raise UnshapedError("Pad by sizes that are computed from values")
    axes = _axes(step, 3) if step.has(3) else None
    places = [axis_of(axis, len(dims)) for axis in axes] if axes is not None else list(range(len(dims)))
    half = len(pads) // 2
    for at, place in enumerate(places):
        dims[place] = add(dims[place], add(pads[at], pads[at + half]))
    return [Value(step.value(0).dtype, tuple(dims))]


def _constant_of_shape(step: Step) -> list[Value]:
    sizes = step.sizes(0)
    if sizes is None:
        raise UnshapedError("ConstantOfShape of sizes that are computed from values")
    fill = step.attached.get("value", Value(DType.FLOAT, (1,), (0.0,)))
    data = None
    if fill.data and all(isinstance(size, int) for size in sizes):
        count = math.prod(size for size in sizes if isinstance(size, int))
        data = fill.data[:1] * count if 0 <= count <= MOST else None
    return [Value(fill.dtype, sizes, data, fill=fill.constant)]


def _range(step: Step) -> list[Value]:
    start, end, stride = (value.data for value in step.inputs[:3])
    dtype = step.value(0).dtype
    if start is None or end is None or stride is None:
        return [Value(dtype, (step.fresh("Range to a number that is computed from values"),))]
    a, b, by = start[0], end[0], stride[0]
    if (
        isinstance(by, Poly)
        or not by
        or any(isinstance(each, float) and not each.is_integer() for each in (a, b, by))
    ):
        if all(isinstance(each, (int, float)) for each in (a, b, by)) and by:
            count = max(math.ceil((float(b) - float(a)) / float(by)), 0)  # type: ignore[arg-type]
            return [Value(dtype, (count,))]
        return [Value(dtype, (step.fresh("Range by a step that is computed from values"),))]
    first, last, width = (int(each) if isinstance(each, float) else each for each in (a, b, by))
    assert isinstance(width, int)
    length = _steps(first, last, width)
    data: tuple[Element, ...] | None = None
    if isinstance(length, int) and length <= MOST:
        data = tuple(add(first, width * place) for place in range(length))
    return [Value(dtype, (length,), data)]


def _where(step: Step) -> list[Value]:
    shape = step.broadcast([step.shape(slot) for slot in range(3)])
    dtype = step.value(1).dtype
    grids = [_grid(step.inputs[slot]) for slot in range(3)]
    known = [grid for grid in grids if grid is not None]
    data = None
    if len(known) == 3:
        flags, ours, others = np.broadcast_arrays(*known)
        picked = [_pick(*each) for each in zip(flags.flat, ours.flat, others.flat, strict=True)]
        data = (
            None
            if None in picked or len(picked) > MOST
            else tuple(each for each in picked if each is not None)
        )
    return [Value(dtype, shape, data)]


def _pick(flag: Element, a: Element, b: Element) -> Element | None:
    if isinstance(flag, (int, float)):
        return a if flag else b
    return a if a == b else None


def _trilu(step: Step) -> list[Value]:
    return [Value(step.value(0).dtype, step.value(0).shape, None, step.value(0).why)]


def _depth_to_space(step: Step) -> list[Value]:
    n, c, h, w = step.shape(0)
    block = step.number("blocksize", 1)
    return [
        Value(step.value(0).dtype, (n, floor_div(c, block * block), multiply(h, block), multiply(w, block)))
    ]


def _space_to_depth(step: Step) -> list[Value]:
    n, c, h, w = step.shape(0)
    block = step.number("blocksize", 1)
    return [
        Value(step.value(0).dtype, (n, multiply(c, block * block), floor_div(h, block), floor_div(w, block)))
    ]


def _cast(step: Step) -> list[Value]:
    value = step.value(0)
    dtype = step.value(1).dtype if step.node.op_type == "CastLike" else DType.from_onnx(step.number("to", 1))
    data = value.data
    if data is not None and not dtype.is_floating and dtype is not DType.BOOL:
        data = tuple(int(each) if isinstance(each, float) and math.isfinite(each) else each for each in data)
    elif data is not None and dtype.is_floating:
        data = tuple(float(each) if isinstance(each, int) else each for each in data)
    elif data is not None and dtype is DType.BOOL:
        known = [int(bool(each)) if isinstance(each, (int, float)) else truth_of(each) for each in data]
        data = None if None in known else tuple(each for each in known if each is not None)
    return [Value(dtype, value.shape, data, value.why)]


def _constant(step: Step) -> list[Value]:
    """Return the value of a Constant whose attribute the caller of a function gives."""
    for name, dtype in (("value_int", DType.INT64), ("value_float", DType.FLOAT)):
        found = step.setting(name)
        if isinstance(found, (int, float)):
            return [Value(dtype, (), (found,))]
    for name, dtype in (("value_ints", DType.INT64), ("value_floats", DType.FLOAT)):
        found = step.setting(name)
        if isinstance(found, tuple):
            return [Value(dtype, (len(found),), found)]
    raise UnshapedError("a Constant with a value from the caller")


def _eye_like(step: Step) -> list[Value]:
    return [Value(DType.from_onnx(step.number("dtype", int(step.value(0).dtype))), step.shape(0))]


def _one_hot(step: Step) -> list[Value]:
    dims, depth = list(step.shape(0)), step.sizes(1)
    axis = step.number("axis", -1)
    size = depth[0] if depth else step.fresh("OneHot of a depth that is computed from values")
    dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, size)
    return [Value(step.value(2).dtype, tuple(dims))]


Number: TypeAlias = "Callable[[Element, Element], Element | None]"


def _integers(function: Callable[[Size, Size], Size]) -> Number:
    def apply(a: Element, b: Element) -> Element | None:
        return None if isinstance(a, float) or isinstance(b, float) else function(a, b)

    return apply


def _div(a: Element, b: Element) -> Element | None:
    if not b:
        return None
    if isinstance(a, float) or isinstance(b, float):
        if isinstance(a, Poly) or isinstance(b, Poly):
            ours, others = _whole(a), _whole(b)
            return None if ours is None or others is None else divide(ours, others)
        return a / b
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)  # rounds towards 0
    return floor_div(a, b)


def _whole(value: Element) -> Size | None:
    """Return a number as an integer or a size; None where it has a fraction."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value


def _mod(a: Element, b: Element) -> Element | None:
    return None if isinstance(a, float) or isinstance(b, float) or b == 0 else remainder(a, b)


def _equal(a: Element, b: Element) -> Element | None:
    """Compare two numbers; a size that is 0 or 1 equals 1 where it is 1, and 0 where its complement is."""
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Poly) and isinstance(other, int) and is_truth(one):
            return one if other == 1 else subtract(1, one) if other == 0 else 0
    return _compare(lambda x, y: x == y)(a, b)


def _and(a: Element, b: Element) -> Element | None:
    if isinstance(a, float) or isinstance(b, float) or not (is_truth(a) and is_truth(b)):
        return None
    return both(a, b)


_MOST_OF_POWER = 128
"""Maximum size of a computed power, in bits; an element of a tensor has 64."""


def _power(a: Element, b: Element) -> Element | None:
    if isinstance(a, Poly) or isinstance(b, Poly):
        count = _whole(b)
        base = _whole(a)
        is_small = isinstance(count, int) and 0 <= count < 8
        return power(base, count) if is_small and base is not None and isinstance(count, int) else None
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() * b > _MOST_OF_POWER:
        return None
    try:
        made = a**b
    except (OverflowError, ZeroDivisionError):
        return None
    return made if isinstance(made, (int, float)) and math.isfinite(made) else None


def _compare(function: Callable[[float, float], bool]) -> Number:
    def apply(a: Element, b: Element) -> Element | None:
        if isinstance(a, Poly) or isinstance(b, Poly):
            if isinstance(a, float) or isinstance(b, float):
                return None
            known = sign_of(subtract(a, b))
            return None if known is None else int(function(known, 0))
        return int(function(a, b))

    return apply


def _plain(integer: Callable[[Size, Size], Size], real: Callable[[float, float], float]) -> Number:
    def apply(a: Element, b: Element) -> Element | None:
        if isinstance(a, float) or isinstance(b, float):
            if isinstance(a, Poly) or isinstance(b, Poly):
                ours, others = _whole(a), _whole(b)
                return None if ours is None or others is None else integer(ours, others)
            return real(a, b)
        return integer(a, b)

    return apply


NUMBERS: dict[str, Number] = {
    "Add": _plain(add, lambda a, b: a + b),
    "Sub": _plain(subtract, lambda a, b: a - b),
    "Mul": _plain(multiply, lambda a, b: a * b),
    "Div": _div,
    "Mod": _mod,
    "Max": _plain(largest, max),
    "Min": _plain(smallest, min),
    "Pow": _power,
    "Equal": _equal,
    "Less": _compare(lambda a, b: a < b),
    "Greater": _compare(lambda a, b: a > b),
    "LessOrEqual": _compare(lambda a, b: a <= b),
    "GreaterOrEqual": _compare(lambda a, b: a >= b),
    "And": _and,
    "Or": _integers(lambda a, b: int(bool(a) or bool(b))),
}
"""Functions of two numbers, by operator."""

LAYOUT: dict[str, Rule] = {
    "Shape": _shape,
    "Size": _size,
    "Identity": _same,
    "Dropout": _same,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "GatherElements": _gather_elements,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Where": _where,
    "Trilu": _trilu,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Cast": _cast,
    "CastLike": _cast,
    "Constant": _constant,
    "EyeLike": _eye_like,
    "OneHot": _one_hot,
}
"""Rules by operator."""


def _has_symbols(*grids: Grid) -> bool:
    return any(isinstance(each, Poly) for grid in grids for each in grid.flat)


def _exactly(a: Element, b: Element) -> Element | None:
    """Return the exact quotient of two numbers without fractions; None where there is none."""
    ours, others = _whole(a), _whole(b)
    return None if ours is None or others is None else divide(ours, others)


def fold(op_type: str, values: Sequence[Value]) -> tuple[Element, ...] | None:
    """Return the numbers of an element-wise operator with two inputs; None where one is not known."""
    function = NUMBERS.get(op_type)
    if function is None or len(values) != 2:
        return None
    if values[0].data is None or values[1].data is None:
        nothing = (0,) if op_type == "And" else None  # whatever the other input is
        return next((value.data for value in values if value.data == nothing and value.shape == ()), None)
    left, right = _grid(values[0]), _grid(values[1])
    if left is None or right is None:
        return None
    ours, others = np.broadcast_arrays(left, right)
    if ours.size > MOST:
        return None
    if op_type == "Div" and values[0].dtype.is_floating and _has_symbols(ours, others):
        function = _exactly
    made = [function(x, y) for x, y in zip(ours.flat, others.flat, strict=True)]
    if any(isinstance(each, int) and each.bit_length() > 64 for each in made):  # int64 would overflow
        return None
    is_single = values[0].dtype is DType.FLOAT
    return (
        None
        if None in made
        else tuple(_single(each) if is_single else each for each in made if each is not None)
    )


def _single(value: Element) -> Element:
    """Round a number to single precision."""
    return float(np.float32(value)) if isinstance(value, float) else value
