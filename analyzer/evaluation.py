"""A value that only stored ones lead to -> its numbers, by the operators that tables and conditions are made of.

A few dozen of ONNX's operators on small arrays, as ONNX docs/Operators.md defines them. What it cannot do is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analyzer.content import Array
from analyzer.dtypes import DType
from analyzer.model import GraphPath, Key, Model, Node, Place, StoredTensor
from analyzer.wiring import Wiring

__all__ = ["Evaluator"]

_MOST = 1 << 22
"""Elements of a value that is worked out."""
_DEEPEST = 200
"""Nodes after one another."""


@dataclass
class Evaluator:
    """Works values out, each once. Reads nothing of a remote file, and takes no value that a caller may replace."""

    model: Model
    wiring: Wiring
    most: int = _MOST
    _known: dict[tuple[GraphPath, str], Array | None] = field(default_factory=dict)
    _called: dict[Place, GraphPath] = field(default_factory=dict)
    _given: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._called = self.wiring.calls
        self._given = {(graph.path, name) for graph in self.model.graphs for name in graph.overridable}

    def value(self, path: GraphPath, name: str, depth: int = 0) -> Array | None:
        """The numbers of a value, seen from a graph; None where an input of the model has a part in it."""
        if not name or self.model.traffic is not None or depth > _DEEPEST:
            return None
        place = self.wiring.place(path, name)
        if place is None:
            return None
        key = (place, name)
        if key not in self._known:
            self._known[key] = None  # a circle has no value
            self._known[key] = self._work_out(key, depth)
        return self._known[key]

    def _work_out(self, key: tuple[GraphPath, str], depth: int) -> Array | None:
        provider = self.wiring.find(*key)
        if not isinstance(provider, StoredTensor):
            provider = self.wiring.look_up(*key)  # of a node in a function it is not said which output
        if isinstance(provider, StoredTensor):
            is_small = provider.key not in self._given and provider.numel <= self.most
            return provider.payload.array() if is_small else None
        if (
            not isinstance(provider, Node)
            or provider.domain not in ("", "ai.onnx")
            or provider.place in self._called
        ):
            return None
        way = _WAYS.get(provider.op_type)
        if way is None or provider.outputs[0] != key[1]:
            return None
        operands: list[Array | None] = []
        for name in provider.inputs[: 1 if provider.op_type == "CastLike" else None]:
            operand = self.value(provider.graph_path, name, depth + 1) if name else None
            if name and operand is None:
                return None
            operands.append(operand)
        try:
            with np.errstate(all="ignore"):
                found = way(_Call(provider, operands, self._fill(provider), self.most))
        except (ArithmeticError, IndexError, KeyError, MemoryError, TypeError, ValueError):
            return None
        return found if found.size <= self.most else None

    def _fill(self, node: Node) -> Array | None:
        """The tensor in a ConstantOfShape's `value`."""
        if node.op_type != "ConstantOfShape":
            return None
        graph = next(graph for graph in self.model.graphs if graph.path == node.graph_path)
        carried = next((tensor for tensor in graph.tensors if tensor.node == node.position), None)
        return np.zeros(1, np.float32) if carried is None else carried.payload.array()


@dataclass(frozen=True, slots=True)
class _Call:
    """One node with its operands."""

    node: Node
    operands: Sequence[Array | None]
    fill: Array | None
    most: int

    def array(self, slot: int) -> Array:
        """An operand; it has to be there."""
        found = self.operands[slot]
        if found is None:
            raise ValueError(slot)
        return found

    def optional(self, slot: int) -> Array | None:
        return self.operands[slot] if slot < len(self.operands) else None

    def ints(self, slot: int, setting: str) -> tuple[int, ...] | None:
        """Axes and the like, from an input or, before it was one, from an attribute."""
        given = self.optional(slot)
        if given is not None:
            return tuple(int(number) for number in given.reshape(-1))
        found = self.node.settings.get(setting)
        return tuple(int(number) for number in found) if isinstance(found, tuple) else None

    def check(self, shape: Sequence[int]) -> tuple[int, ...]:
        size = 1
        for dim in shape:
            size *= max(int(dim), 0)
        if size > self.most:
            raise MemoryError(size)
        return tuple(int(dim) for dim in shape)


def _both(function: Callable[..., Any]) -> Callable[[_Call], Array]:
    def apply(call: _Call) -> Array:
        first, second = call.array(0), call.array(1)
        call.check(np.broadcast_shapes(first.shape, second.shape))
        return np.asarray(function(first, second))

    return apply


def _each(function: Callable[..., Any]) -> Callable[[_Call], Array]:
    return lambda call: np.asarray(function(call.array(0))).astype(call.array(0).dtype, copy=False)


def _truth(function: Callable[..., Any]) -> Callable[[_Call], Array]:
    return lambda call: np.asarray(function(call.array(0)))


def _many(function: Callable[..., Any]) -> Callable[[_Call], Array]:
    def apply(call: _Call) -> Array:
        found = call.array(0)
        for slot in range(1, len(call.operands)):
            call.check(np.broadcast_shapes(found.shape, call.array(slot).shape))
            found = function(found, call.array(slot))
        return np.asarray(found)

    return apply


def _cast(call: _Call) -> Array:
    element = DType.from_onnx(call.node.integers.get("to", 1)).to_numpy()
    if element is None:
        raise ValueError("no number")
    return call.array(0).astype(element)


def _decode(call: _Call) -> Array:
    codes, scale, zero = call.array(0).astype(np.float32), call.array(1).astype(np.float32), call.optional(2)
    shape = [1] * codes.ndim
    if scale.size > 1:
        shape[call.node.integers.get("axis", 1)] = scale.size
    shift = np.zeros(1, np.float32) if zero is None else zero.astype(np.float32)
    return (codes - shift.reshape(shape if shift.size > 1 else -1)) * scale.reshape(shape)


def _divide(call: _Call) -> Array:
    first = call.array(0)
    found = _both(np.divide)(call)
    return (np.trunc(found) if first.dtype.kind in "iu" else found).astype(first.dtype)


def _power(call: _Call) -> Array:
    first, second = call.array(0), call.array(1)
    call.check(np.broadcast_shapes(first.shape, second.shape))
    return np.asarray(np.power(first.astype(np.float64), second)).astype(first.dtype)


def _modulo(call: _Call) -> Array:
    way = np.fmod if call.node.integers.get("fmod") else np.mod
    return np.asarray(way(call.array(0), call.array(1)))


def _range(call: _Call) -> Array:
    start, limit, delta = (call.array(slot).reshape(-1)[0] for slot in range(3))
    call.check([max(0, int(np.ceil((limit - start) / delta)))])
    return np.arange(start, limit, delta).astype(call.array(0).dtype)


def _constant_of_shape(call: _Call) -> Array:
    fill = call.fill if call.fill is not None else np.zeros(1, np.float32)
    shape = call.check([int(dim) for dim in call.array(0).reshape(-1)])
    return np.full(shape, fill.reshape(-1)[0], dtype=fill.dtype)


def _eye(call: _Call) -> Array:
    shape = call.check(call.array(0).shape)
    element = DType.from_onnx(call.node.integers.get("dtype", 1)).to_numpy()
    return np.eye(shape[0], shape[1], call.node.integers.get("k", 0)).astype(element or np.float32)


def _reshape(call: _Call) -> Array:
    data, wanted = call.array(0), call.ints(1, "shape") or ()
    keep = not call.node.integers.get("allowzero", 0)
    shape = [data.shape[axis] if dim == 0 and keep else dim for axis, dim in enumerate(wanted)]
    return data.reshape(shape)


def _expand(call: _Call) -> Array:
    data = call.array(0)
    shape = call.check(np.broadcast_shapes(data.shape, tuple(int(dim) for dim in call.array(1).reshape(-1))))
    return np.broadcast_to(data, shape)


def _tile(call: _Call) -> Array:
    data, times = call.array(0), [int(number) for number in call.array(1).reshape(-1)]
    call.check([dim * number for dim, number in zip(data.shape, times, strict=True)])
    return np.tile(data, times)


def _transpose(call: _Call) -> Array:
    perm = call.node.settings.get("perm")
    return call.array(0).transpose(tuple(int(axis) for axis in perm) if isinstance(perm, tuple) else None)


def _unsqueeze(call: _Call) -> Array:
    axes = call.ints(1, "axes") or ()
    return np.expand_dims(call.array(0), tuple(axes))


def _squeeze(call: _Call) -> Array:
    axes = call.ints(1, "axes")
    return np.squeeze(call.array(0), None if axes is None else tuple(axes))


def _flatten(call: _Call) -> Array:
    data, axis = call.array(0), call.node.integers.get("axis", 1)
    rows = int(np.prod(data.shape[: axis if axis >= 0 else data.ndim + axis]))
    return data.reshape(rows, -1)


def _concat(call: _Call) -> Array:
    parts = [call.array(slot) for slot in range(len(call.operands))]
    return np.concatenate(parts, axis=call.node.integers.get("axis", 0))


def _slice(call: _Call) -> Array:
    data = call.array(0)
    starts, ends = call.ints(1, "starts") or (), call.ints(2, "ends") or ()
    axes = call.ints(3, "axes") or tuple(range(len(starts)))
    steps = call.ints(4, "steps") or (1,) * len(starts)
    cuts = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        stop = None if step < 0 and end < -data.shape[axis] else end
        cuts[axis] = slice(start, stop, step)
    return data[tuple(cuts)]


def _gather(call: _Call) -> Array:
    data, index = call.array(0), call.array(1)
    axis = call.node.integers.get("axis", 0)
    call.check(
        [*data.shape, *index.shape] if data.ndim <= 1 else [index.size, data.size // max(1, data.shape[axis])]
    )
    return np.take(data, index.astype(np.int64), axis=axis)


def _gather_places(call: _Call) -> Array:
    """GatherND: the last axis of the indices are places in the data, after `batch_dims` axes that both have."""
    data, index = call.array(0), call.array(1).astype(np.int64)
    batch, depth = call.node.integers.get("batch_dims", 0), index.shape[-1]
    call.check([*index.shape[:-1], *data.shape[batch + depth :]])
    shape = [1] * (index.ndim - 1)
    examples = [
        np.arange(dim).reshape([*shape[:axis], dim, *shape[axis + 1 :]])
        for axis, dim in enumerate(data.shape[:batch])
    ]
    return np.asarray(data[(*examples, *np.moveaxis(index, -1, 0))])


def _where(call: _Call) -> Array:
    call.check(np.broadcast_shapes(*(call.array(slot).shape for slot in range(3))))
    return np.where(call.array(0), call.array(1), call.array(2))


def _cumsum(call: _Call) -> Array:
    data, axis = call.array(0), int(call.array(1).reshape(-1)[0])
    if call.node.integers.get("reverse") or call.node.integers.get("exclusive"):
        raise ValueError("another sum")
    return np.cumsum(data, axis=axis).astype(data.dtype)


def _trilu(call: _Call) -> Array:
    shift = call.optional(1)
    k = 0 if shift is None else int(shift.reshape(-1)[0])
    return np.triu(call.array(0), k) if call.node.integers.get("upper", 1) else np.tril(call.array(0), k)


def _matmul(call: _Call) -> Array:
    first, second = call.array(0), call.array(1)
    if first.ndim and second.ndim:
        call.check([first.size, second.shape[-1]])
    return np.asarray(np.matmul(first, second))


def _shape(call: _Call) -> Array:
    return np.asarray(call.array(0).shape, dtype=np.int64)


def _reduce(function: Callable[..., Any]) -> Callable[[_Call], Array]:
    def apply(call: _Call) -> Array:
        data, axes = call.array(0), call.ints(1, "axes")
        keep = bool(call.node.integers.get("keepdims", 1))
        return np.asarray(function(data, axis=None if axes is None else tuple(axes), keepdims=keep)).astype(
            data.dtype
        )

    return apply


_WAYS: Mapping[str, Callable[[_Call], Array]] = {
    "Abs": _each(np.abs),
    "Add": _both(np.add),
    "And": _both(np.logical_and),
    "Cast": _cast,
    "CastLike": lambda call: call.array(0),
    "Ceil": _each(np.ceil),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Cos": _each(np.cos),
    "CumSum": _cumsum,
    "DequantizeLinear": _decode,
    "Div": _divide,
    "Equal": _both(np.equal),
    "Exp": _each(np.exp),
    "Expand": _expand,
    "EyeLike": _eye,
    "Flatten": _flatten,
    "Floor": _each(np.floor),
    "Gather": _gather,
    "GatherND": _gather_places,
    "Greater": _both(np.greater),
    "GreaterOrEqual": _both(np.greater_equal),
    "Identity": lambda call: call.array(0),
    "Less": _both(np.less),
    "LessOrEqual": _both(np.less_equal),
    "Log": _each(np.log),
    "MatMul": _matmul,
    "Max": _many(np.maximum),
    "Min": _many(np.minimum),
    "Mod": _modulo,
    "Mul": _both(np.multiply),
    "Neg": _each(np.negative),
    "Not": _truth(np.logical_not),
    "Or": _both(np.logical_or),
    "Pow": _power,
    "Range": _range,
    "Reciprocal": _each(lambda value: 1 / value),
    "ReduceMax": _reduce(np.max),
    "ReduceMean": _reduce(np.mean),
    "ReduceMin": _reduce(np.min),
    "ReduceSum": _reduce(np.sum),
    "Reshape": _reshape,
    "Round": _each(np.round),
    "Shape": _shape,
    "Sigmoid": _each(lambda value: 1 / (1 + np.exp(-value))),
    "Sign": _each(np.sign),
    "Sin": _each(np.sin),
    "Slice": _slice,
    "Sqrt": _each(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _both(np.subtract),
    "Tanh": _each(np.tanh),
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    "Xor": _both(np.logical_xor),
}
"""What each operator gives."""
