"""PyTorch's operators -> their computation in the algebra, by names and arguments of ATen (native_functions.yaml)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from analyzer.model.dtypes import DType
from analyzer.verify.algebra import layers, places, recurrent, resizing
from analyzer.verify.algebra.field import draw
from analyzer.verify.algebra.values import (
    PLAIN_BEYOND,
    Algebra,
    Coded,
    Factored,
    Field,
    UnknownError,
    Value,
    is_known,
    number,
    promoted,
    shape_of,
)

_LAST = 1 << 62
FAILURES = (
    *(
        ArithmeticError,
        AttributeError,
        IndexError,
        KeyError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ),
)
"""Exceptions that arguments unfit for an operator raise."""


def _plain(*numbers: Any) -> bool:
    """Whether all are numbers, and none is a tensor.

    Raises:
        UnknownError: one is neither number nor tensor.
    """
    if not all(isinstance(each, (bool, int, float)) or hasattr(each, "shape") for each in numbers):
        raise UnknownError("neither numbers nor tensors")
    return not any(hasattr(each, "shape") for each in numbers)


def call(a: Algebra, operator: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Compute the result of a call: a value, several, or a number.

    Raises:
        UnknownError: the algebra does not support the operator, or not with these arguments.
    """
    made = OPERATORS.get(operator)
    if made is None:
        raise UnknownError(f"operator {operator}")
    try:
        return made(a, *args, **kwargs)
    except FAILURES as error:
        raise UnknownError(f"operator {operator} with these arguments ({type(error).__name__})") from error


OPERATORS: dict[str, Callable[..., Any]] = {}


def _operator(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def note(made: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            OPERATORS[name] = made
        return made

    return note


def _array(value: Any) -> Any:
    """Return a number as a tensor without axes."""
    return np.asarray(value) if isinstance(value, (bool, int, float)) else value


def _axis(value: Value, dim: int) -> int:
    rank = len(shape_of(value))
    return dim % rank if rank else 0


def _axes(value: Value, dim: Any) -> list[int]:
    if dim is None or dim == []:
        return list(range(len(shape_of(value))))
    return [_axis(value, each) for each in (dim if isinstance(dim, list) else [dim])]


_REALS = frozenset({DType.FLOAT, DType.DOUBLE, DType.FLOAT16, DType.BFLOAT16})


def _kind(dtype: DType) -> tuple[str, Any]:
    """Return numpy's letter and type for a cast; half precision counts as single."""
    found = dtype.to_numpy()
    if found is not None and found.kind in "biu":
        return found.kind, found
    if dtype not in _REALS:
        raise UnknownError(f"a cast to {dtype.name}")
    return "f", np.float64 if dtype is DType.DOUBLE else np.float32


def _cast(a: Algebra, value: Value, dtype: DType | None) -> Value:
    return value if dtype is None else a.cast(value, *_kind(dtype))


def _sizes(size: Any) -> list[int]:
    return [int(each) for each in size]


# numbers and shapes


@_operator("sym_size")
def _sym_size(a: Algebra, input: Value, dim: int) -> int:
    return shape_of(input)[dim]


@_operator("sym_numel", "numel")
def _sym_numel(a: Algebra, input: Value) -> int:
    return math.prod(shape_of(input))


def _on_numbers(name: str, made: Callable[..., Any]) -> None:
    def compute(a: Algebra, *args: Any) -> Any:
        return made(*args)

    OPERATORS[name] = compute


_NUMBERS: dict[str, Callable[..., Any]] = {
    "floordiv": lambda x, y: x // y,
    "truediv": lambda x, y: x / y,
    "sym_max": max,
    "sym_min": min,
    "sym_not": lambda x: not x,
    "sym_ite": lambda c, x, y: x if c else y,
    "sym_float": float,
    "sym_sqrt": lambda x: math.sqrt(x),
    "_sym_sqrt": lambda x: math.sqrt(x),
    "sym_int": int,
    "mod": lambda x, y: x % y,
    "trunc_number": math.trunc,
}
for _name, _made in _NUMBERS.items():
    _on_numbers(_name, _made)


@_operator("getitem")
def _getitem(a: Algebra, value: Any, index: int) -> Any:
    return value[index]


@_operator("item", "_local_scalar_dense")
def _item(a: Algebra, input: Value) -> Any:
    if not is_known(input):
        raise UnknownError("a number that depends on weights or inputs")
    return np.asarray(input).item()


# operators that return their input


@_operator("clone", "contiguous", "detach", "alias", "lift_fresh", "lift_fresh_copy", "detach_", "positive")
def _same(a: Algebra, input: Value, **_: Any) -> Value:
    return input


@_operator("dropout", "feature_dropout", "native_dropout", "alpha_dropout")
def _dropout(a: Algebra, input: Value, p: float = 0.5, train: bool = False) -> Value:
    if train and p:
        raise UnknownError("dropout in training")
    return input


@_operator("to", "_to_copy")
def _to(a: Algebra, input: Value, *args: Any, dtype: Any = None, **_: Any) -> Any:
    found = next((each for each in args if isinstance(each, DType)), dtype)
    like = next((each for each in args if isinstance(each, np.ndarray)), None)
    if found is None and like is not None:
        return _type_as(a, input, like)
    return _cast(a, input, found)


@_operator("type_as")
def _type_as(a: Algebra, input: Value, other: Value) -> Any:
    if isinstance(other, (Field, Factored, Coded)):
        return a.cast(
            input,
            *{"real": ("f", np.float32), "whole": ("i", np.int64), "truth": ("b", np.bool_)}[other.kind],
        )
    return a.cast(input, other.dtype.kind, other.dtype)


# operators that move elements


@_operator("view", "reshape", "_unsafe_view", "view_copy")
def _view(a: Algebra, input: Value, size: Any, **_: Any) -> Value:
    if isinstance(size, DType):
        raise UnknownError("a view of the same bits as another type")
    return a.reshape(input, _sizes(size))


@_operator("reshape_as", "view_as")
def _view_as(a: Algebra, input: Value, other: Value) -> Value:
    return a.reshape(input, shape_of(other))


@_operator("flatten")
def _flatten(a: Algebra, input: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    shape = shape_of(input)
    start, end = _axis(input, start_dim), _axis(input, end_dim)
    return a.reshape(input, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


@_operator("unflatten")
def _unflatten(a: Algebra, input: Value, dim: int, sizes: Any) -> Value:
    shape, dim = shape_of(input), _axis(input, dim)
    return a.reshape(input, (*shape[:dim], *_sizes(sizes), *shape[dim + 1 :]))


@_operator("transpose", "swapaxes", "swapdims")
def _transpose(a: Algebra, input: Value, dim0: int, dim1: int) -> Value:
    order = list(range(len(shape_of(input))))
    one, two = _axis(input, dim0), _axis(input, dim1)
    if order:
        order[one], order[two] = order[two], order[one]
    return a.permute(input, order)


@_operator("t", "numpy_T")
def _t(a: Algebra, input: Value) -> Value:
    return a.permute(input, list(range(len(shape_of(input))))[::-1])


@_operator("mT")
def _matrix_transpose(a: Algebra, input: Value) -> Any:
    return _transpose(a, input, -2, -1)


@_operator("permute")
def _permute(a: Algebra, input: Value, dims: Any) -> Value:
    return a.permute(input, [_axis(input, dim) for dim in dims])


@_operator("movedim", "moveaxis")
def _movedim(a: Algebra, input: Value, source: Any, destination: Any) -> Value:
    return a.move(input, lambda each: np.moveaxis(each, source, destination))


@_operator("unsqueeze")
def _unsqueeze(a: Algebra, input: Value, dim: int) -> Value:
    shape = shape_of(input)
    dim %= len(shape) + 1
    return a.reshape(input, (*shape[:dim], 1, *shape[dim:]))


@_operator("squeeze")
def _squeeze(a: Algebra, input: Value, dim: Any = None) -> Value:
    axes = _axes(input, dim) if dim is not None else range(len(shape_of(input)))
    return a.reshape(input, [n for at, n in enumerate(shape_of(input)) if at not in axes or n != 1])


@_operator("expand")
def _expand(a: Algebra, input: Value, size: Any, implicit: bool = False) -> Value:
    shape = (*(1 for _ in range(len(size) - len(shape_of(input)))), *shape_of(input))
    return a.expand(input, [own if n == -1 else int(n) for n, own in zip(size, shape, strict=True)])


@_operator("expand_as", "broadcast_to")
def _expand_as(a: Algebra, input: Value, other: Any) -> Value:
    return a.expand(input, _sizes(other) if isinstance(other, list) else shape_of(other))


@_operator("repeat")
def _repeat(a: Algebra, input: Value, repeats: Any) -> Value:
    return tile(a, input, _sizes(repeats))


def tile(a: Algebra, value: Value, times: Sequence[int]) -> Value:
    """Repeat a tensor along each axis."""
    a.bound(math.prod(shape_of(value)) * math.prod(times))
    rank = max(len(shape_of(value)), len(times))
    found = a.reshape(value, (*(1 for _ in range(rank - len(shape_of(value)))), *shape_of(value)))
    for axis, repeats in enumerate(times, rank - len(times)):
        if repeats != 1:
            found = a.take(found, np.tile(np.arange(shape_of(found)[axis]), repeats), axis)
    return found


@_operator("tile")
def _tile(a: Algebra, input: Value, dims: Any) -> Value:
    return tile(a, input, _sizes(dims))


@_operator("repeat_interleave")
def _repeat_interleave(
    a: Algebra, input: Value, repeats: Any, dim: Any = None, output_size: Any = None
) -> Value:
    if not isinstance(repeats, int):
        if not is_known(repeats):
            raise UnknownError("repeats that depend on weights or inputs")
        repeats = np.asarray(repeats)
    a.bound(math.prod(shape_of(input)) * int(np.max(repeats)))
    return a.move(input, lambda each: np.repeat(each, repeats, axis=dim))


def _range(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    first = 0 if start is None else min(max(start + size if start < 0 else start, 0), size)
    last = size if end is None else min(max(end + size if end < 0 else end, 0), size)
    return first, max(first, last)


@_operator("slice", "slice_copy")
def _slice(
    a: Algebra, input: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    dim = _axis(input, dim)
    parts = [slice(None)] * len(shape_of(input))
    first, last = _range(shape_of(input)[dim], start, end)
    parts[dim] = slice(first, last, step)
    return input if (first, last, step) == (0, shape_of(input)[dim], 1) else a.cut(input, parts)


@_operator("narrow")
def _narrow(a: Algebra, input: Value, dim: int, start: int, length: int) -> Any:
    return _slice(a, input, dim, start, start + length)


@_operator("select", "select_copy")
def _select(a: Algebra, input: Value, dim: int, index: int) -> Value:
    dim = _axis(input, dim)
    index = range(shape_of(input)[dim])[index]
    cut = _slice(a, input, dim, index, index + 1)
    return a.reshape(cut, [n for at, n in enumerate(shape_of(input)) if at != dim])


def _put(a: Algebra, input: Value, src: Value, place: Callable[[Any], Any]) -> Value:
    """Write a tensor into a part of another."""
    shape = shape_of(input)
    at = place(np.arange(math.prod(shape)).reshape(shape))
    return places.put(a, input, at, a.expand(src, at.shape), places.NONE)


@_operator("select_scatter")
def _select_scatter(a: Algebra, input: Value, src: Value, dim: int, index: int) -> Value:
    return _put(a, input, src, lambda each: np.take(each, index, axis=dim))


@_operator("slice_scatter")
def _slice_scatter(
    a: Algebra, input: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    first, last = _range(shape_of(input)[dim], start, end)
    return _put(a, input, src, lambda each: np.take(each, np.arange(first, last, step), axis=dim))


@_operator("copy", "copy_")
def _copy(a: Algebra, input: Value, src: Value, *_: Any) -> Value:
    return a.expand(src, shape_of(input))


def _split_at(a: Algebra, input: Value, sizes: Sequence[int], dim: int) -> list[Value]:
    dim, start, found = _axis(input, dim), 0, []
    for size in sizes:
        found.append(_slice(a, input, dim, start, start + size))
        start += size
    return found


@_operator("split")
def _split(a: Algebra, input: Value, split_size: Any, dim: int = 0) -> list[Value]:
    total = shape_of(input)[_axis(input, dim)]
    if isinstance(split_size, list):
        return _split_at(a, input, _sizes(split_size), dim)
    sizes = [min(split_size, total - start) for start in range(0, total, split_size)]
    return _split_at(a, input, sizes, dim)


@_operator("split_with_sizes")
def _split_with_sizes(a: Algebra, input: Value, split_sizes: Any, dim: int = 0) -> list[Value]:
    return _split_at(a, input, _sizes(split_sizes), dim)


@_operator("chunk")
def _chunk(a: Algebra, input: Value, chunks: int, dim: int = 0) -> Any:
    total = shape_of(input)[_axis(input, dim)]
    return _split(a, input, -(-total // chunks), dim)


@_operator("unbind")
def _unbind(a: Algebra, input: Value, dim: int = 0) -> list[Value]:
    return [_select(a, input, dim, at) for at in range(shape_of(input)[_axis(input, dim)])]


@_operator("cat", "concat", "concatenate")
def _cat(a: Algebra, tensors: Sequence[Value], dim: int = 0) -> Value:
    rank = max(len(shape_of(each)) for each in tensors)
    kept = [each for each in tensors if len(shape_of(each)) == rank]
    return a.concat(kept, dim)


@_operator("stack")
def _stack(a: Algebra, tensors: Sequence[Value], dim: int = 0) -> Value:
    dim %= len(shape_of(tensors[0])) + 1
    return a.concat([_unsqueeze(a, each, dim) for each in tensors], dim)


@_operator("flip")
def _flip(a: Algebra, input: Value, dims: Any) -> Value:
    return a.move(input, lambda each: np.flip(each, tuple(dims)))


@_operator("roll")
def _roll(a: Algebra, input: Value, shifts: Any, dims: Any = ()) -> Value:
    if not dims:
        raise UnknownError("a roll over the flattened tensor")
    return a.move(input, lambda each: np.roll(each, tuple(shifts), tuple(dims)))


def _triangle(upper: bool) -> Callable[..., Any]:
    def cut(a: Algebra, input: Value, diagonal: int = 0) -> Value:
        shape = shape_of(input)
        kept = np.tri(shape[-2], shape[-1], diagonal - upper, dtype=bool)
        return a.where(
            ~kept if upper else kept,
            input,
            np.zeros((), np.asarray(input).dtype if is_known(input) else np.float32),
        )

    return cut


OPERATORS["tril"], OPERATORS["triu"] = _triangle(False), _triangle(True)


@_operator("constant_pad_nd")
def _constant_pad(a: Algebra, input: Value, pad: Any, value: Any = 0) -> Any:
    return _pad(a, input, pad, value=value)


@_operator("pad")
def _pad(a: Algebra, input: Value, pad: Any, mode: str = "constant", value: Any = None) -> Value:
    rank = len(shape_of(input))
    pairs = [(int(pad[at]), int(pad[at + 1])) for at in range(0, len(pad), 2)]
    widths = [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
    a.bound(math.prod(max(n + f + b, 0) for n, (f, b) in zip(shape_of(input), widths, strict=True)))
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode != "constant":
        return a.move(input, lambda each: np.pad(each, widths, mode=modes[mode]))  # type: ignore[call-overload]
    found = input
    if any(first < 0 or last < 0 for first, last in widths):
        cuts = [slice(max(-f, 0), n - max(-b, 0)) for (f, b), n in zip(widths, shape_of(input), strict=True)]
        found = a.cut(found, cuts)
        widths = [(max(f, 0), max(b, 0)) for f, b in widths]
    inside = np.pad(np.ones(shape_of(found), bool), widths)
    padded = a.pad(found, widths)
    fill = 0 if value is None else value
    return padded if not fill else a.where(inside, padded, _array(fill))


@_operator("index")
def _index(a: Algebra, input: Value, indices: Sequence[Any]) -> Value:
    if not all(each is None or is_known(each) for each in indices):
        return places.read_rows(a, input, indices, look_up)
    parts: tuple[Any, ...] = tuple(slice(None) if each is None else np.asarray(each) for each in indices)
    if len(parts) == 1 and parts[0].dtype.kind != "b":
        return a.take(input, parts[0], 0)
    return a.move(input, lambda each: each[parts])


@_operator("index_select")
def _index_select(a: Algebra, input: Value, dim: int, index: Value) -> Value:
    return look_up(a, input, index, _axis(input, dim))


@_operator("embedding")
def _embedding(a: Algebra, weight: Value, indices: Value, *_: Any, **__: Any) -> Value:
    return look_up(a, weight, indices)


def look_up(a: Algebra, table: Value, index: Value, axis: int = 0) -> Value:
    """Take rows at indices; for unknown indices, apply a random function of the index and the whole table."""
    if is_known(index):
        return a.take(table, np.asarray(index), axis)
    if isinstance(table, Coded) and table.scale.size == table.zero.size == 1:
        units = (each.reshape(()) for each in (table.scale, table.zero))
        scale, zero = units
        return a.add(a.divide(look_up(a, table.of, index, axis), scale), zero)
    size = shape_of(table)[axis]
    weights = Field(draw((1, size), "look up", size, a.seed))
    if len(shape_of(table)) == 2 and not axis:  # of a large table one sum, not all its rows
        whole = a.matmul(weights, table)
    else:
        rows = a.move(a.dense(table), lambda each: np.moveaxis(each, axis, -1))
        whole = a.ordered("look up", rows, len(shape_of(rows)) - 1, 1)
    before = shape_of(table)[:axis]
    rest = a.reshape(whole, (*before, *(1 for _ in shape_of(index)), *shape_of(table)[axis + 1 :]))
    places = a.reshape(
        index, (*(1 for _ in before), *shape_of(index), *(1 for _ in shape_of(table)[axis + 1 :]))
    )
    return a.function("look up", rest, places)


@_operator("gather")
def _gather(a: Algebra, input: Value, dim: int, index: Value, **_: Any) -> Value:
    return gather_elements(a, input, dim, index)


def gather_elements(a: Algebra, value: Value, axis: int, index: Value) -> Value:
    """Take for each element of the index one element along an axis."""
    axis = _axis(value, axis)
    cut = [slice(None) if at == axis else slice(0, n) for at, n in enumerate(shape_of(index))]
    value = a.cut(value, cut) if shape_of(value) != shape_of(index) else value
    if is_known(index):
        places = np.asarray(index)
        return a.pick(value, places, axis)
    whole = a.ordered("look up", value, axis, 1)
    return a.function("look up", whole, index)


_REDUCE = {
    "sum": places.ADD,
    "add": places.ADD,
    "prod": places.MULTIPLY,
    "multiply": places.MULTIPLY,
    "amax": places.LARGEST,
    "amin": places.LEAST,
}


@_operator("scatter", "scatter_")
def _scatter(
    a: Algebra,
    input: Value,
    dim: int,
    index: Value,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Value:
    updates = _array(src if value is None else value)
    if isinstance(src, (bool, int, float)) or value is not None:
        updates = a.expand(_of_type(input, updates), shape_of(index))
    reduction = places.NONE if reduce is None else _REDUCE[reduce]
    return places.put_elements(a, input, dim, index, updates, reduction)


@_operator("scatter_add", "scatter_add_")
def _scatter_add(a: Algebra, input: Value, dim: int, index: Value, src: Value) -> Value:
    return places.put_elements(a, input, dim, index, src, places.ADD)


@_operator("scatter_reduce", "scatter_reduce_")
def _scatter_reduce(
    a: Algebra, input: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Value:
    if not include_self or reduce not in _REDUCE:
        raise UnknownError(f"a scatter by {reduce}{'' if include_self else ' with include_self=False'}")
    return places.put_elements(a, input, dim, index, src, _REDUCE[reduce])


@_operator("index_add", "index_add_")
def _index_add(a: Algebra, input: Value, dim: int, index: Value, source: Value, alpha: Any = 1) -> Value:
    before = [None] * _axis(input, dim)
    return places.put_rows(a, input, [*before, index], _scaled(a, source, alpha), places.ADD)


@_operator("index_copy", "index_copy_")
def _index_copy(a: Algebra, input: Value, dim: int, index: Value, source: Value) -> Value:
    return places.put_rows(a, input, [*[None] * _axis(input, dim), index], source)


@_operator("index_fill", "index_fill_")
def _index_fill(a: Algebra, input: Value, dim: int, index: Value, value: Any) -> Value:
    fill = _of_type(input, _array(value))
    return places.put_rows(a, input, [*[None] * _axis(input, dim), index], fill)


@_operator("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")
def _index_put(
    a: Algebra,
    input: Value,
    indices: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
    *_: Any,
    **__: Any,
) -> Value:
    mask = indices[0]
    if len(indices) == 1 and mask is not None and getattr(mask, "kind", "") == "truth":
        if accumulate or math.prod(shape_of(values)) != 1:
            raise UnknownError("several values, or sums, put in by a computed mask")
        update = a.reshape(values, ())
        expanded_mask = a.reshape(
            mask, (*shape_of(mask), *(1 for _ in shape_of(input)[len(shape_of(mask)) :]))
        )
        return a.where(expanded_mask, update, input)
    return places.put_rows(a, input, indices, values, places.ADD if accumulate else places.NONE)


def _of_type(like: Value, value: Any) -> Value:
    """Return a number as a tensor of another's type; in single precision or as an integer if that is not known."""
    if is_known(like):
        return np.asarray(value).astype(np.asarray(like).dtype)
    return number(value) if getattr(like, "kind", "") == "real" else np.asarray(value)


@_operator("grouped_mm_fallback", "_grouped_mm")
def _grouped_mm(a: Algebra, input: Value, weight: Value, offs: Value) -> Value:
    return places.grouped_product(a, input, weight, offs)


@_operator("one_hot")
def _one_hot(a: Algebra, input: Value, num_classes: int = -1) -> Value:
    if num_classes < 0:
        raise UnknownError("one_hot without num_classes")
    return places.one_hot(a, input, num_classes, np.asarray(0), np.asarray(1))


@_operator("unfold")
def _unfold(a: Algebra, input: Value, dimension: int, size: int, step: int) -> Value:
    axis = _axis(input, dimension)
    starts = np.arange(0, shape_of(input)[axis] - size + 1, step)
    flat_windows = a.take(input, (starts[:, None] + np.arange(size)).reshape(-1), axis)
    shape = shape_of(input)
    windows = a.reshape(flat_windows, (*shape[:axis], starts.size, size, *shape[axis + 1 :]))
    return a.move(windows, lambda each: np.moveaxis(each, axis + 1, -1))


# operators that create tensors


def _filled(a: Algebra, size: Any, value: Any, dtype: DType | None) -> Value:
    a.bound(math.prod(_sizes(size)))
    usual: Any = np.float32 if isinstance(value, float) else np.bool_ if isinstance(value, bool) else np.int64
    return np.full(_sizes(size), value, usual if dtype is None else _kind(dtype)[1])


@_operator("zeros", "new_zeros", "empty", "new_empty")
def _zeros(a: Algebra, *args: Any, dtype: Any = None, size: Any = None, **_: Any) -> Value:
    return _filled(a, args[-1] if size is None else size, 0.0, dtype)


@_operator("ones", "new_ones")
def _ones(a: Algebra, *args: Any, dtype: Any = None, size: Any = None, **_: Any) -> Value:
    like = args[0] if len(args) > 1 else None
    if dtype is None and like is not None and is_known(like):
        return np.ones(_sizes(args[-1]), np.asarray(like).dtype)
    return _filled(a, args[-1] if size is None else size, 1.0, dtype)


@_operator("full")
def _full(a: Algebra, size: Any, fill_value: Any, dtype: Any = None, **_: Any) -> Value:
    return _filled(a, size, fill_value, dtype)


@_operator("new_full")
def _new_full(a: Algebra, input: Value, size: Any, fill_value: Any, dtype: Any = None, **_: Any) -> Any:
    return _full_like(
        a,
        np.empty(_sizes(size), np.asarray(input).dtype if is_known(input) else np.float32),
        fill_value,
        dtype,
    )


@_operator("full_like")
def _full_like(a: Algebra, input: Value, fill_value: Any, dtype: Any = None, **_: Any) -> Value:
    kinds = {"whole": np.int64, "truth": np.bool_}
    own = np.asarray(input).dtype if is_known(input) else kinds.get(getattr(input, "kind", ""), np.float32)
    return np.full(shape_of(input), fill_value, own if dtype is None else _kind(dtype)[1])


@_operator("fill", "fill_")
def _fill(a: Algebra, input: Value, value: Any) -> Value:
    return a.expand(_of_type(input, value) if _plain(value) else value, shape_of(input))


@_operator("zeros_like", "empty_like")
def _zeros_like(a: Algebra, input: Value, dtype: Any = None, **_: Any) -> Any:
    return _full_like(a, input, 0, dtype)


@_operator("ones_like")
def _ones_like(a: Algebra, input: Value, dtype: Any = None, **_: Any) -> Any:
    return _full_like(a, input, 1, dtype)


@_operator("scalar_tensor")
def _scalar_tensor(a: Algebra, s: Any, dtype: Any = None, **_: Any) -> Value:
    return _filled(a, [], s, dtype)


@_operator("arange")
def _arange(a: Algebra, *args: Any, dtype: Any = None, **_: Any) -> Value:
    a.bound(int(max(map(abs, args))) if len(args) < 3 else math.ceil(abs(args[1] - args[0]) / abs(args[2])))
    made = np.arange(*args)
    return (
        made.astype(np.float32 if made.dtype.kind == "f" else np.int64)
        if dtype is None
        else made.astype(_kind(dtype)[1])
    )


@_operator("linspace")
def _linspace(a: Algebra, start: Any, end: Any, steps: int, dtype: Any = None, **_: Any) -> Value:
    a.bound(int(steps))
    return np.linspace(start, end, steps, dtype=np.float32 if dtype is None else _kind(dtype)[1])


@_operator("meshgrid")
def _meshgrid(a: Algebra, tensors: Sequence[Value], indexing: str = "ij") -> list[Value]:
    sizes = [shape_of(each)[0] for each in tensors]
    found = []
    for at, each in enumerate(tensors):
        shape = [1] * len(sizes)
        shape[at] = sizes[at]
        whole = a.expand(a.reshape(each, shape), sizes)
        found.append(_transpose(a, whole, 0, 1) if indexing == "xy" else whole)
    return found


# arithmetic


def _scaled(a: Algebra, value: Any, alpha: Any) -> Value:
    return _array(value) if alpha == 1 else a.multiply(_array(value), _array(alpha))


@_operator("add", "add_")
def _add(a: Algebra, input: Any, other: Any, alpha: Any = 1) -> Any:
    if _plain(input, other):
        return input + other
    return a.add(_array(input), _scaled(a, other, alpha))


@_operator("sub", "subtract", "sub_")
def _sub(a: Algebra, input: Any, other: Any, alpha: Any = 1) -> Any:
    if _plain(input, other):
        return input - other
    return a.subtract(_array(input), _scaled(a, other, alpha))


@_operator("rsub")
def _rsub(a: Algebra, input: Any, other: Any, alpha: Any = 1) -> Any:
    return a.subtract(_array(other), _scaled(a, input, alpha))


@_operator("mul", "multiply", "mul_")
def _mul(a: Algebra, input: Any, other: Any) -> Any:
    if _plain(input, other):
        return input * other
    return a.multiply(_array(input), _array(other))


@_operator("div", "true_divide", "divide", "div_")
def _div(a: Algebra, input: Any, other: Any, rounding_mode: str | None = None) -> Any:
    one, two = _array(input), _array(other)
    if rounding_mode is None:
        return a.divide(one, two)
    if is_known(one) and is_known(two):
        dividend, divisor = promoted(one, two)
        if rounding_mode == "floor":
            return np.floor_divide(dividend, divisor)
        return np.trunc(np.divide(dividend, divisor)).astype(dividend.dtype)
    if getattr(one, "is_place", False):
        return whole_quotient(a, one, two)
    return a.function("floor" if rounding_mode == "floor" else "truncate", a.divide(one, two))


def whole_quotient(a: Algebra, one: Value, two: Value) -> Any:
    """Divide an index by a positive number, where rounding down equals rounding to 0."""
    is_place = isinstance(one, Field) and one.is_place
    if not (
        is_place and is_known(two) and np.asarray(two).dtype.kind in "iu" and (np.asarray(two) > 0).all()
    ):
        raise UnknownError("a quotient of integers")
    return a.function("quotient of places", one, two)


@_operator("floor_divide")
def _floor_divide(a: Algebra, input: Any, other: Any) -> Any:
    return _div(a, input, other, "floor")


@_operator("remainder")
def _remainder(a: Algebra, input: Any, other: Any) -> Value:
    one, two = _array(input), _array(other)
    if is_known(one) and is_known(two):
        return np.remainder(*promoted(one, two))
    return a.function("remainder", one, two)


@_operator("pow", "pow_")
def _pow(a: Algebra, input: Any, exponent: Any) -> Any:
    if _plain(input, exponent):
        if abs(exponent) > 64:
            raise UnknownError("a power above 64")
        return input**exponent
    return a.raise_to(_array(input), _array(exponent))


@_operator("square")
def _square(a: Algebra, input: Value) -> Value:
    return a.multiply(input, input)


@_operator("neg")
def _neg(a: Algebra, input: Any) -> Any:
    return a.negate(input) if hasattr(input, "shape") else -input


@_operator("reciprocal")
def _reciprocal(a: Algebra, input: Value) -> Value:
    return a.invert(input)


@_operator("rsqrt")
def _rsqrt(a: Algebra, input: Value) -> Value:
    return a.invert(a.function("sqrt", input))


def _elementwise(name: str, function_name: str) -> None:
    def compute(a: Algebra, input: Value) -> Value:
        return a.function(function_name, input)

    OPERATORS[name] = compute


for _name in (
    "exp",
    "log",
    "sqrt",
    "sin",
    "cos",
    "tan",
    "tanh",
    "erf",
    "abs",
    "sign",
    "floor",
    "ceil",
    "round",
    *("asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh"),
):
    _elementwise(_name, _name)
for _name, _function_name in (
    ("sigmoid", "sigmoid"),
    ("relu", "relu"),
    ("relu_", "relu"),
    ("trunc", "truncate"),
    ("log1p", "log1p"),
    ("isnan", "isnan"),
    ("isinf", "isinf"),
    ("atan", "atan"),
    ("sgn", "sign"),
    ("softsign", "softsign"),
):
    _elementwise(_name, _function_name)


@_operator("expm1")
def _expm1(a: Algebra, input: Value) -> Value:
    return a.subtract(a.function("exp", input), number(1))


@_operator("silu", "silu_", "swish")
def _silu(a: Algebra, input: Value) -> Value:
    return layers.silu(a, input)


@_operator("gelu")
def _gelu(a: Algebra, input: Value, approximate: str = "none") -> Value:
    return layers.gelu(a, input, approximate)


@_operator("mish")
def _mish(a: Algebra, input: Value) -> Value:
    return a.multiply(input, a.function("tanh", a.function("softplus", input)))


@_operator("softplus")
def _softplus(a: Algebra, input: Value, beta: Any = 1, threshold: Any = PLAIN_BEYOND) -> Value:
    """Compute softplus; PyTorch returns the input above a threshold, which from 20 on only changes rounding."""
    scaled = input if beta == 1 else a.multiply(input, _array(beta))
    found = a.function("softplus", scaled)
    found = found if beta == 1 else a.divide(found, _array(beta))
    if threshold >= PLAIN_BEYOND:
        return found
    return a.where(a.compare("greater", scaled, number(threshold)), input, found)


@_operator("logsigmoid", "log_sigmoid")
def _log_sigmoid(a: Algebra, input: Value) -> Any:
    return a.function("log", a.function("sigmoid", input))


@_operator("elu", "elu_")
def _elu(a: Algebra, input: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    return layers.elu(a, input, alpha, scale, number(input_scale))


@_operator("celu", "celu_")
def _celu(a: Algebra, input: Value, alpha: Any = 1.0) -> Value:
    if alpha <= 0:
        raise UnknownError("celu divides by an alpha that is not above 0")
    return layers.elu(a, input, alpha, 1, a.invert(number(alpha)))


@_operator("selu", "selu_")
def _selu(a: Algebra, input: Value) -> Value:
    return layers.elu(a, input, layers.SELU[0], layers.SELU[1], number(1))


@_operator("softshrink")
def _softshrink(a: Algebra, input: Value, lambd: Any = 0.5) -> Value:
    less = a.subtract(input, a.multiply(a.function("sign", input), number(lambd)))
    beyond = a.compare("greater", a.function("abs", input), number(lambd))
    return a.where(beyond, less, a.multiply(input, number(0)))


@_operator("hardshrink")
def _hardshrink(a: Algebra, input: Value, lambd: Any = 0.5) -> Value:
    return a.where(a.compare("less_equal", a.function("abs", input), number(lambd)), number(0), input)


@_operator("threshold", "threshold_")
def _threshold(a: Algebra, input: Value, threshold: Any, value: Any) -> Value:
    return a.where(a.compare("less_equal", input, number(threshold)), number(value), input)


@_operator("log2")
def _log2(a: Algebra, input: Value) -> Value:
    return a.divide(a.function("log", input), a.function("log", number(2)))


@_operator("log10")
def _log10(a: Algebra, input: Value) -> Value:
    return a.divide(a.function("log", input), a.function("log", number(10)))


@_operator("exp2", "special_exp2")
def _exp2(a: Algebra, input: Value) -> Value:
    return a.raise_to(number(2), input)


@_operator("atan2", "arctan2")
def _atan2(a: Algebra, input: Value, other: Value) -> Value:
    """Compute as converters do: the angle of the quotient, turned by half a circle where `other` is negative."""
    angle, zero, half = a.function("atan", a.divide(input, other)), number(0), number(math.pi)
    shifted = a.where(a.compare("greater", input, zero), a.add(angle, half), a.subtract(angle, half))
    found = a.where(a.compare("less", other, zero), shifted, angle)
    return a.where(a.function("isnan", found), zero, found)


@_operator("cosine_similarity")
def _cosine_similarity(a: Algebra, x1: Value, x2: Value, dim: int = 1, eps: float = 1e-8) -> Any:
    sides = []
    for each in (x1, x2):
        length = a.function("sqrt", a.sum(a.multiply(each, each), [_axis(each, dim)], keeps=True))
        sides.append(a.divide(each, a.clamp(length, number(eps), None)))
    return a.sum(a.multiply(*sides), [_axis(x1, dim)], keeps=False)


@_operator("special_erfc", "erfc")
def _erfc(a: Algebra, input: Value) -> Value:
    return a.subtract(number(1), a.function("erf", input))


@_operator("leaky_relu", "leaky_relu_")
def _leaky_relu(a: Algebra, input: Value, negative_slope: Any = 0.01) -> Value:
    return a.function("leaky relu", input, _array(number(negative_slope)))


@_operator("prelu", "_prelu_kernel")
def _prelu(a: Algebra, input: Value, weight: Value) -> Value:
    if len(shape_of(weight)) == 1 and len(shape_of(input)) > 1:
        weight = a.reshape(weight, (1, -1, *(1 for _ in shape_of(input)[2:])))
    return a.function("leaky relu", input, weight)


@_operator("hardswish", "hardswish_")
def _hardswish(a: Algebra, input: Value) -> Value:
    return a.multiply(input, _hardsigmoid(a, input))


@_operator("hardsigmoid")
def _hardsigmoid(a: Algebra, input: Value) -> Value:
    return layers.hard_sigmoid(a, input)


@_operator("relu6")
def _relu6(a: Algebra, input: Value) -> Value:
    return a.clamp(input, number(0), number(6))


@_operator("hardtanh", "hardtanh_")
def _hardtanh(a: Algebra, input: Value, min_val: Any = -1, max_val: Any = 1) -> Value:
    return a.clamp(input, _array(min_val), _array(max_val))


@_operator("clamp", "clamp_", "clip")
def _clamp(a: Algebra, input: Value, min: Any = None, max: Any = None) -> Value:
    return a.clamp(input, _array(min), _array(max))


@_operator("clamp_min")
def _clamp_min(a: Algebra, input: Value, min: Any) -> Value:
    return a.clamp(input, _array(min), None)


@_operator("clamp_max")
def _clamp_max(a: Algebra, input: Value, max: Any) -> Value:
    return a.clamp(input, None, _array(max))


@_operator("glu")
def _glu(a: Algebra, input: Value, dim: int = -1) -> Value:
    one, two = _chunk(a, input, 2, dim)
    return a.multiply(one, a.function("sigmoid", two))


@_operator("softmax", "_softmax")
def _softmax(a: Algebra, input: Value, dim: int, *_: Any, **__: Any) -> Value:
    return a.softmax(input, _axis(input, dim))


@_operator("log_softmax", "_log_softmax")
def _log_softmax(a: Algebra, input: Value, dim: int, *_: Any, **__: Any) -> Value:
    return layers.log_softmax(a, input, _axis(input, dim))


@_operator("logsumexp")
def _logsumexp(a: Algebra, input: Value, dim: Any, keepdim: bool = False) -> Value:
    return layers.log_of_sum(a, input, _axes(input, dim), keeps=keepdim)


@_operator("sum")
def _sum(a: Algebra, input: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return a.sum(_cast(a, input, dtype), _axes(input, dim), keeps=keepdim)


@_operator("mean")
def _mean(a: Algebra, input: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return a.mean(_cast(a, input, dtype), _axes(input, dim), keeps=keepdim)


def _spread(root: bool) -> Callable[..., Any]:
    def compute(
        a: Algebra,
        input: Value,
        dim: Any = None,
        unbiased: Any = True,
        keepdim: bool = False,
        correction: Any = None,
    ) -> Value:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        axes = _axes(input, dim)
        count = math.prod(shape_of(input)[axis] for axis in axes)
        less = correction if correction is not None else int(bool(unbiased))
        centred = a.subtract(input, a.mean(input, axes, keeps=True))
        found = a.divide(a.sum(a.multiply(centred, centred), axes, keeps=keepdim), number(count - less))
        return a.function("sqrt", found) if root else found

    return compute


OPERATORS["var"], OPERATORS["std"] = _spread(False), _spread(True)


@_operator("linalg_vector_norm", "norm")
def _norm(
    a: Algebra, input: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    if ord not in (2, None):
        if ord == 1:
            return a.sum(a.function("abs", input), _axes(input, dim), keeps=keepdim)
        raise UnknownError(f"a norm of order {ord}")
    return a.function("sqrt", a.sum(a.multiply(input, input), _axes(input, dim), keeps=keepdim))


@_operator("linalg_norm")
def _linalg_norm(
    a: Algebra, input: Value, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    if ord is not None and (len(shape_of(input)) if dim is None else len(_axes(input, dim))) != 1:
        raise UnknownError("the norm of a matrix")
    return _norm(a, input, ord, dim, keepdim, dtype)


@_operator("cumsum")
def _cumsum(a: Algebra, input: Value, dim: int, dtype: Any = None) -> Value:
    return running_sum(a, _cast(a, input, dtype), dim)


def running_sum(a: Algebra, value: Value, axis: int) -> Value:
    """Sum cumulatively along an axis."""
    axis = _axis(value, axis)
    if is_known(value):
        array = np.asarray(value)
        return np.cumsum(array, axis=axis, dtype=np.int64 if array.dtype.kind in ("b", "u") else None)
    size = shape_of(value)[axis]
    triangle = np.tri(size, dtype=np.int64).T
    order = [at for at in range(len(shape_of(value))) if at != axis] + [axis]
    summed = a.matmul(a.permute(value, order), a.dense(triangle))
    return a.permute(summed, list(np.argsort(order)))


@_operator("cumprod", "logcumsumexp", "cummax")
def _running(a: Algebra, input: Value, dim: int, **_: Any) -> Value:
    raise UnknownError("a cumulative operation other than a sum")


@_operator("prod")
def _prod(a: Algebra, input: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if is_known(input):
        return np.prod(np.asarray(input), axis=tuple(_axes(input, dim)), keepdims=keepdim)
    return a.gathered("product", input, _axes(input, dim), keeps=keepdim)


def _extreme(name: str) -> Callable[..., Any]:
    known = {"max": np.max, "min": np.min}[name]
    places = {"max": np.argmax, "min": np.argmin}[name]

    def compute(a: Algebra, input: Value, dim: Any = None, keepdim: bool = False) -> Any:
        if hasattr(dim, "shape"):
            return (a.greatest if name == "max" else a.least)(input, dim)
        if is_known(input):
            if dim is None:
                return np.asarray(known(np.asarray(input)))
            array = np.asarray(input)
            return [known(array, axis=dim, keepdims=keepdim), places(array, axis=dim, keepdims=keepdim)]
        found = a.gathered(name, input, _axes(input, dim), keeps=keepdim)
        if dim is None:
            return found
        return [found, _argument(f"arg{name}")(a, input, dim, keepdim)]

    return compute


def _argument(name: str) -> Callable[..., Any]:
    def compute(a: Algebra, input: Value, dim: Any = None, keepdim: bool = False) -> Value:
        if is_known(input):
            return np.asarray(getattr(np, name)(np.asarray(input), axis=dim, keepdims=keepdim))
        if dim is None:
            input, dim = a.reshape(input, (-1,)), 0
        return position(a, name, input, dim, keepdim)

    return compute


def position(a: Algebra, name: str, value: Value, dim: int, keepdim: bool) -> Value:
    """Return the index of the maximum or minimum along an axis."""
    axis = _axis(value, dim)
    found = a.ordered(name, value, axis, 1)
    shape = [n for at, n in enumerate(shape_of(found)) if keepdim or at != axis]
    return a.reshape(found, shape)


OPERATORS |= {"max": _extreme("max"), "min": _extreme("min")}
OPERATORS |= {"argmax": _argument("argmax"), "argmin": _argument("argmin")}


@_operator("amax")
def _amax(a: Algebra, input: Value, dim: Any = None, keepdim: bool = False) -> Value:
    if is_known(input):
        return np.asarray(np.max(np.asarray(input), axis=tuple(_axes(input, dim)), keepdims=keepdim))
    return a.gathered("max", input, _axes(input, dim), keeps=keepdim)


@_operator("amin")
def _amin(a: Algebra, input: Value, dim: Any = None, keepdim: bool = False) -> Value:
    if is_known(input):
        return np.asarray(np.min(np.asarray(input), axis=tuple(_axes(input, dim)), keepdims=keepdim))
    return a.gathered("min", input, _axes(input, dim), keeps=keepdim)


@_operator("maximum")
def _maximum(a: Algebra, input: Value, other: Value) -> Value:
    return a.greatest(input, other)


@_operator("minimum")
def _minimum(a: Algebra, input: Value, other: Value) -> Value:
    return a.least(input, other)


@_operator("topk")
def _topk(
    a: Algebra, input: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Value]:
    """Return the k largest elements and their indices; unsorted results are sorted too, as converters do."""
    return greatest_few(a, input, k, _axis(input, dim), largest)


def greatest_few(
    a: Algebra, value: Value, count: int, axis: int, largest: bool, *, is_sorted: bool = True
) -> list[Value]:
    """Return the largest or smallest elements and their indices, sorted or in an unspecified order."""
    if is_known(value):
        array = np.asarray(value)
        if largest:  # unsigned integers have no negatives
            array = np.invert(array) if array.dtype.kind in "biu" else np.negative(array)
        order = np.argsort(array, axis=axis, kind="stable")
        places = np.take(order, np.arange(count), axis=axis)
        return [np.take_along_axis(np.asarray(value), places, axis=axis), places]
    word = ("greatest" if largest else "least", "" if is_sorted else "in any order")
    return [a.ordered(name, value, axis, count, word) for name in ("topk", "topk-places")]


@_operator("sort")
def _sort(a: Algebra, input: Value, dim: Any = -1, descending: bool = False, **_: Any) -> list[Value]:
    axis = _axis(input, dim)
    return greatest_few(a, input, shape_of(input)[axis], axis, descending)


@_operator("argsort")
def _argsort(a: Algebra, input: Value, dim: Any = -1, descending: bool = False, **_: Any) -> Any:
    return _sort(a, input, dim, descending)[1]


@_operator("histc")
def _histc(a: Algebra, input: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    """Count indices, each number in one bin (torch.histc), by the formula that transformers exports.

    Outside the limits this formula counts numbers that `histc` leaves out (`transformers.exporters.utils`).
    """
    limit = input.limit if isinstance(input, Field) else None
    if limit is None or min != 0 or max < limit - 1 or max == 0:
        raise UnknownError("histc of numbers that may be beyond its limits")
    width = np.float32(max) / np.float32(bins)
    scaled = a.divide(a.reshape(input, (-1,)), np.asarray(width))
    at = OPERATORS["clamp"](a, a.cast(scaled, "i", np.int64), 0, bins - 1)
    ones = np.ones(shape_of(at), np.float32)
    return places.put_elements(a, np.zeros(bins, np.float32), 0, at, ones, places.ADD)


@_operator("nonzero", "unique2", "bincount", "multinomial")
def _sorted(a: Algebra, input: Value, *_: Any, **__: Any) -> Value:
    raise UnknownError("a result whose size or order depends on numbers")


@_operator("diff")
def _diff(
    a: Algebra, input: Value, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
) -> Value:
    if n > 8:
        raise UnknownError("diff with n above 8")
    parts = [part for part in (prepend, input, append) if part is not None]
    value = a.concat(parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        value = a.subtract(_slice(a, value, dim, 1, _LAST), _slice(a, value, dim, 0, -1))
    return value


# products


@_operator("linear")
def _linear(a: Algebra, input: Value, weight: Value, bias: Value | None = None) -> Value:
    transposed = _t(a, weight) if len(shape_of(weight)) == 2 else weight
    found = a.matmul(input, transposed)
    return found if bias is None else a.add(found, bias)


@_operator("matmul", "mm", "bmm", "mv", "dot")
def _matmul(a: Algebra, input: Value, other: Value) -> Any:
    return a.matmul(input, other)


@_operator("addmm", "baddbmm")
def _addmm(a: Algebra, input: Value, mat1: Value, mat2: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    return a.add(_scaled(a, input, beta), _scaled(a, a.matmul(mat1, mat2), alpha))


@_operator("outer")
def _outer(a: Algebra, input: Value, vec2: Value) -> Value:
    return a.multiply(_unsqueeze(a, input, 1), _unsqueeze(a, vec2, 0))


@_operator("pixel_shuffle")
def _pixel_shuffle(a: Algebra, input: Value, upscale_factor: int) -> Value:
    return layers.spread(a, input, upscale_factor, channels_first=True)


@_operator("pixel_unshuffle")
def _pixel_unshuffle(a: Algebra, input: Value, downscale_factor: int) -> Value:
    return layers.gather_blocks(a, input, downscale_factor, channels_first=True)


@_operator("kron")
def _kron(a: Algebra, input: Value, other: Value) -> Value:
    """Multiply each element of one tensor by the whole other (torch.kron)."""
    rank = max(len(shape_of(input)), len(shape_of(other)))
    one, two = ((*(1 for _ in range(rank - len(shape_of(each)))), *shape_of(each)) for each in (input, other))
    products = a.multiply(
        a.reshape(input, [size for each in one for size in (each, 1)]),
        a.reshape(other, [size for each in two for size in (1, each)]),
    )
    return a.reshape(products, [mine * theirs for mine, theirs in zip(one, two, strict=True)])


@_operator("einsum")
def _einsum(a: Algebra, equation: str, tensors: Sequence[Value], path: Any = None) -> Value:
    return layers.contract(a, equation, tensors)


@_operator("scaled_dot_product_attention")
def _attention(
    a: Algebra,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **_: Any,
) -> Any:
    if dropout_p:
        raise UnknownError("attention in training")
    by = 1 / math.sqrt(shape_of(query)[-1]) if scale is None else scale
    return layers.attention(a, query, key, value, attn_mask, by, causal=is_causal)


@_operator("layer_norm", "native_layer_norm")
def _layer_norm(
    a: Algebra,
    input: Value,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
) -> Value:
    rank = len(shape_of(input))
    return layers.layer_norm(a, input, range(rank - len(normalized_shape), rank), weight, bias, eps)


@_operator("rms_norm")
def _rms_norm(a: Algebra, input: Value, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Value:
    rank = len(shape_of(input))
    usual = float(np.finfo(np.float32).eps)
    return layers.rms_norm(
        a, input, range(rank - len(normalized_shape), rank), weight, usual if eps is None else eps
    )


@_operator("group_norm")
def _group_norm(
    a: Algebra,
    input: Value,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
) -> Value:
    return layers.group_norm(a, input, num_groups, weight, bias, eps)


@_operator("instance_norm")
def _instance_norm(
    a: Algebra,
    input: Value,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Value:
    if not use_input_stats:
        return layers.batch_norm(a, input, weight, bias, mean, var, eps)
    return layers.group_norm(a, input, shape_of(input)[1], weight, bias, eps)


@_operator("batch_norm")
def _batch_norm(
    a: Algebra,
    input: Value,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Value:
    if training:
        raise UnknownError("a batch normalization in training")
    return layers.batch_norm(a, input, weight, bias, running_mean, running_var, eps)


@_operator("_native_batch_norm_legit_no_training")
def _native_batch_norm(
    a: Algebra,
    input: Value,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
) -> list[Any]:
    return [layers.batch_norm(a, input, weight, bias, running_mean, running_var, eps), None, None]


@_operator("_weight_norm")
def _weight_norm(a: Algebra, v: Value, g: Value, dim: int = 0) -> Value:
    axis = None if dim == -1 else _axis(v, dim)  # -1: one length for all (WeightNorm.cpp)
    return layers.weight_norm(a, v, g, axis)


# recurrent layers


def _recurrent(
    a: Algebra,
    step: recurrent.Step,
    input: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Value]:
    if train and dropout:
        raise UnknownError("a recurrent layer with dropout")
    directions = 2 if bidirectional else 1
    own, rest = divmod(len(params), num_layers * directions)
    if rest or own not in (range(4, 6) if has_biases else range(2, 4)):
        raise UnknownError(f"a recurrent layer of {len(params)} weights")
    each = (params[at : at + own] for at in range(0, len(params), own))
    made = []
    for some in each:
        one, other = some[2:4] if has_biases else (None, None)
        made.append(recurrent.Cell(some[0], some[1], one, other, None if own in (2, 4) else some[-1]))
    cells = [made[at : at + directions] for at in range(0, len(made), directions)]
    value = a.permute(input, (1, 0, 2)) if batch_first else input
    value, last = recurrent.layers(a, step, value, states, cells)
    return [a.permute(value, (1, 0, 2)) if batch_first else value, *last]


def _sequence(name: str, step: recurrent.Step, count: int) -> Callable[..., list[Value]]:
    """Return a layer over a sequence; its state has `count` tensors."""

    def compute(a: Algebra, input: Value, hx: Any, params: Any, *settings: Any) -> list[Value]:
        states = hx if isinstance(hx, list) else [hx]
        if len(states) != count or not isinstance(params, list):
            raise UnknownError(f"{name} of packed sequences")
        return _recurrent(a, step, input, states, params, *settings)

    return compute


def _cell(step: recurrent.Step) -> Callable[..., Any]:
    """Return one step of a layer; a state of one tensor is passed and returned as that tensor."""

    def compute(a: Algebra, input: Value, hx: Any, *weights: Value) -> Any:
        states = hx if isinstance(hx, list) else [hx]
        found = [*step(a, input, tuple(states), recurrent.Cell(*weights))]
        return found if len(found) > 1 else found[0]

    return compute


for _name, _step, _count in (
    ("lstm", recurrent.lstm_step(), 2),
    ("gru", recurrent.gru_step(), 1),
    ("rnn_tanh", recurrent.rnn_step(), 1),
    ("rnn_relu", recurrent.rnn_step(recurrent.RELU), 1),
):
    OPERATORS[_name], OPERATORS[f"{_name}_cell"] = _sequence(_name, _step, _count), _cell(_step)


# windows


def _spatial(value: Any, rank: int) -> list[int]:
    if isinstance(value, int):
        return [value] * rank
    return _sizes(value) * (rank if len(value) == 1 and rank > 1 else 1)


def _pads(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding == "same":
        totals = [(width - 1) * step for width, step in zip(kernel, dilation, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(each, each) for each in _spatial(padding, len(kernel))]


@_operator("conv1d", "conv2d", "conv3d")
def _conv(
    a: Algebra,
    input: Value,
    weight: Value,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    kernel = shape_of(weight)[2:]
    rank = len(kernel)
    steps = _spatial(dilation, rank)
    return layers.convolve(
        a, input, weight, bias, _spatial(stride, rank), _pads(padding, kernel, steps), steps, groups
    )


@_operator("convolution")
def _convolution(
    a: Algebra,
    input: Value,
    weight: Value,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    if transposed:
        return _conv_transpose(a, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(a, input, weight, bias, stride, padding, dilation, groups)


@_operator("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(
    a: Algebra,
    input: Value,
    weight: Value,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    rank = len(shape_of(weight)) - 2
    pads = [(each, each) for each in _spatial(padding, rank)]
    return layers.convolve_back(
        a,
        input,
        weight,
        bias,
        _spatial(stride, rank),
        pads,
        _spatial(output_padding, rank),
        _spatial(dilation, rank),
        groups,
    )


def _enough(
    value: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    dilation: Sequence[int] | None = None,
) -> list[tuple[int, int]]:
    """Return pads on both sides; more at the end where partial windows count (`ceil_mode`)."""
    found = []
    shape, steps = shape_of(value)[-len(kernel) :], dilation or [1] * len(kernel)
    for size, length, jump, pad, step in zip(shape, kernel, stride, padding, steps, strict=True):
        width = (length - 1) * step + 1
        rest = (size + 2 * pad - width) % jump
        more = jump - rest if ceil_mode and rest else 0
        last = (size + 2 * pad - width + more) // jump * jump
        found.append((pad, pad + (more if last < size + pad else 0)))
    return found


@_operator("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(
    a: Algebra,
    input: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    rank = len(shape_of(input)) - 2
    kernel = _spatial(kernel_size, rank)
    jumps = _spatial(stride, rank) if stride else kernel
    steps = _spatial(dilation, rank)
    pads = _enough(input, kernel, jumps, _spatial(padding, rank), ceil_mode, steps)
    return layers.max_pool(a, input, kernel, jumps, pads, steps)


@_operator("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(
    a: Algebra,
    input: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Value:
    rank = len(shape_of(input)) - 2
    kernel = _spatial(kernel_size, rank)
    jumps = _spatial(stride, rank) if stride else kernel
    counted = [(each, each) for each in _spatial(padding, rank)]
    pads = _enough(input, kernel, jumps, _spatial(padding, rank), ceil_mode)
    return layers.average_pool(
        *(a, input, kernel, jumps, pads),
        counts_pads=count_include_pad,
        counted=counted,
        divisor=divisor_override,
    )


@_operator("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max(a: Algebra, input: Value, output_size: Any) -> list[Value | None]:
    """Return the maxima of windows; their indices are not supported."""
    return [layers.adaptive_max_pool(a, input, output_size), None]


@_operator("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d")
def _adaptive(a: Algebra, input: Value, output_size: Any) -> Value:
    return layers.adaptive_average_pool(a, input, output_size)


@_operator("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def _nearest(
    a: Algebra, input: Value, output_size: Any = None, scale_factors: Any = None, *more: Any, **_: Any
) -> Value:
    found = input
    scales = scale_factors if isinstance(scale_factors, list) else [*filter(None, (scale_factors, *more))]
    for at in range(len(shape_of(input)) - 2):
        size = shape_of(input)[2 + at]
        count = int(output_size[at]) if output_size else math.floor(size * float(scales[at]))
        by = 1 / float(scales[at]) if scales else size / count
        places = np.arange(count, dtype=np.float32) * np.float32(by)  # as torch computes them
        index = np.minimum(np.floor(places).astype(np.int64), size - 1)
        found = a.take(found, index, 2 + at)
    return found


def _interpolating(names: Sequence[str], mode: str) -> None:
    def compute(
        a: Algebra, input: Value, output_size: Any, align_corners: bool, scale_factors: Any = None, *more: Any
    ) -> Value:
        rank = len(shape_of(input)) - 2
        factors: list[Any] = scale_factors if isinstance(scale_factors, list) else [scale_factors, *more]
        scales: list[Any] = [None] * rank if all(each is None for each in factors) else factors
        found = input
        for at in range(rank):
            size = shape_of(input)[2 + at]
            scale = scales[at]
            count = int(output_size[at]) if output_size else math.floor(size * float(scale))
            interpolation = resizing.Interpolation(mode, "align_corners" if align_corners else "half_pixel")
            found = resizing.resize(
                a, found, 2 + at, count, count / size if scale is None else float(scale), interpolation
            )
        return found

    for name in names:
        OPERATORS[name] = compute


_interpolating(("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"), "linear")
_interpolating(("upsample_bicubic2d",), "cubic")


# truth values


def _comparison(names: Sequence[str], comparison: str) -> None:
    def compute(a: Algebra, input: Any, other: Any) -> Any:
        if _plain(input, other):
            return bool(getattr(np, comparison)(input, other))
        return a.compare(comparison, _array(input), _array(other))

    for name in names:
        OPERATORS[name] = compute


for _names, _word in (
    (("eq",), "equal"),
    (("ne", "not_equal"), "not_equal"),
    (("lt", "less"), "less"),
    (("le", "less_equal"), "less_equal"),
    (("gt", "greater"), "greater"),
    (("ge", "greater_equal"), "greater_equal"),
):
    _comparison(_names, _word)


def _connective(names: Sequence[str], connective: str, *, is_logical: bool = False) -> None:
    def compute(a: Algebra, input: Any, other: Any) -> Any:
        if is_logical:
            return a.combine(connective, *(a.cast(_array(each), "b", np.bool_) for each in (input, other)))
        if _plain(input, other):
            return {"and": input & other, "or": input | other, "xor": input ^ other}[connective]
        return a.combine(connective, _array(input), _array(other))

    for name in names:
        OPERATORS[name] = compute


for _connected in ("and", "or", "xor"):
    _connective((f"__{_connected}__", f"bitwise_{_connected}", f"{_connected}_"), _connected)
    _connective((f"logical_{_connected}",), _connected, is_logical=True)


@_operator("logical_not")
def _logical_not(a: Algebra, input: Value) -> Any:
    return a.invert_truth(a.cast(input, "b", np.bool_))


@_operator("bitwise_not")
def _not(a: Algebra, input: Value) -> Any:
    if is_known(input) and np.asarray(input).dtype.kind != "b":
        return np.invert(np.asarray(input))
    return a.invert_truth(input)


@_operator("all", "_is_all_true")
def _all(a: Algebra, input: Value, dim: Any = None, keepdim: bool = False) -> Any:
    if not is_known(input):
        return a.gathered("min", a.cast(input, "b", np.bool_), _axes(input, dim), keeps=keepdim)
    return np.asarray(np.all(np.asarray(input), axis=tuple(_axes(input, dim)), keepdims=keepdim))


@_operator("any")
def _any(a: Algebra, input: Value, dim: Any = None, keepdim: bool = False) -> Any:
    if not is_known(input):
        return a.gathered("max", a.cast(input, "b", np.bool_), _axes(input, dim), keeps=keepdim)
    return np.asarray(np.any(np.asarray(input), axis=tuple(_axes(input, dim)), keepdims=keepdim))


@_operator("where")
def _where(a: Algebra, condition: Value, input: Any, other: Any) -> Value:
    return a.where(condition, _array(input), _array(other))


@_operator("masked_fill", "masked_fill_")
def _masked_fill(a: Algebra, input: Value, mask: Value, value: Any) -> Value:
    fill = _array(value)
    if is_known(input) and is_known(fill):
        fill = np.asarray(fill).astype(np.asarray(input).dtype)
    return a.where(mask, fill, input)
