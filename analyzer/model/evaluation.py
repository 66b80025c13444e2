"""Value computed from stored tensors alone -> its numbers, by constant folding.

Covers a few dozen of ONNX's operators on small arrays, as ONNX docs/Operators.md defines them: those that tables and
conditions are made of. Returns None for anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from analyzer.model import GraphPath, Key, Model, Node, Place, StoredTensor
from analyzer.model.content import Array
from analyzer.model.dtypes import DType
from analyzer.model.wiring import Wiring
from analyzer.records import Frozen, Mutable, field

_MOST = 1 << 22
"""Most elements of a computed value."""
_DEEPEST = 200
"""Most nodes in a chain."""
_MOST_STEPS = 20_000
"""Most nodes of functions that are computed for their callers."""


class Evaluator(Mutable):
    """Constant folder that computes each value once. It reads nothing of a remote file."""

    model: Model
    wiring: Wiring
    most: int = _MOST
    by_default: bool = False
    """Whether to assume that callers replace no overridable initializer, so that it has its stored value."""
    unrounded: bool = False
    """Whether quantization at run time is skipped: QuantizeLinear returns its input unrounded."""
    tracked: Callable[[StoredTensor], Array | None] | None = None
    """Function that replaces the elements of a stored tensor with position numbers of type `PLACE`; None from it keeps
    the elements. If set, nothing is cast or decoded, and 0 stands for all other values that are not whole numbers."""
    _known: dict[tuple[GraphPath, str], Array | None] = field(default_factory=dict)
    _numbers: dict[tuple[GraphPath, str], Array | None] = field(default_factory=dict)
    _overridable: set[Key] = field(default_factory=set)
    _called: dict[Place, dict[str, Array]] = field(default_factory=dict)
    _steps: int = 0

    def __post_init__(self) -> None:
        if not self.by_default:
            self._overridable = {
                (graph.path, name) for graph in self.model.graphs for name in graph.overridable
            }

    def value(self, path: GraphPath, name: str, depth: int = 0) -> Array | None:
        """Return the numbers of a value visible in a graph; None if an input of the model contributes to it."""
        if not name or self.model.traffic is not None or depth > _DEEPEST:
            return None
        place = self.wiring.place(path, name)
        if place is None:
            return None
        key = (place, name)
        if key not in self._known:
            self._known[key] = None  # a cycle has no value
            self._known[key] = self._evaluate(key, depth)
        return self._known[key]

    def number(self, path: GraphPath, name: str, depth: int = 0) -> Array | None:
        """Return the one number that all elements of a value have, whatever its shape; None if they may differ.

        An input of the model may determine how often the number occurs, but nothing else.
        """
        if not name or self.tracked is not None or depth > _DEEPEST:
            return None
        place = self.wiring.place(path, name)
        if place is None:
            return None
        key = (place, name)
        if key not in self._numbers:
            self._numbers[key] = None  # a cycle has no value
            value = self.value(path, name)
            if value is None:
                self._numbers[key] = self._find_number(key, depth)
            elif value.size and bool((value == value.flat[0]).all()):
                self._numbers[key] = value.reshape(-1)[:1]
        return self._numbers[key]

    def _find_number(self, key: tuple[GraphPath, str], depth: int) -> Array | None:
        node = self.wiring.find(*key)
        if not isinstance(node, Node) or node.place in self.wiring.calls or not node.is_standard:
            return None
        if node.op_type == "ConstantOfShape":
            fill = self._fill(node)
            return None if fill is None else fill.reshape(-1)[:1]
        if node.op_type == "Concat":
            slots = range(len(node.inputs))
        elif node.op_type in SELECTS:
            slots = range(1)
        elif node.op_type in _ELEMENTWISE:
            slots = range(len(node.inputs))
        else:
            return None
        found: list[Array | None] = []
        for slot in slots:
            operand = self.number(node.graph_path, node.inputs[slot], depth + 1)
            if operand is None:
                return None
            found.append(operand)
        if node.op_type in _ELEMENTWISE:
            try:
                with np.errstate(all="ignore"):
                    return KERNELS[node.op_type](Call(node, found, None, self.most))
            except (ArithmeticError, IndexError, KeyError, MemoryError, TypeError, ValueError):
                return None
        first = found[0]
        is_one = all(each is not None and bool((each == first).all()) for each in found)
        return first if is_one else None

    def _evaluate(self, key: tuple[GraphPath, str], depth: int) -> Array | None:
        provider = self.wiring.find(*key)
        if not isinstance(provider, StoredTensor):
            # For a node in a function, `find` does not say which of its outputs is meant.
            provider = self.wiring.look_up(*key)
        if isinstance(provider, StoredTensor) and self.tracked is not None:
            numbers = self.tracked(provider)
            if numbers is not None:
                return numbers
        if isinstance(provider, StoredTensor):
            is_small = provider.key not in self._overridable and provider.numel <= self.most
            return provider.payload.array() if is_small else None
        if not isinstance(provider, Node):
            return None
        if provider.place in self.wiring.calls:
            return self._call(provider, key[1], depth)
        if provider.op_type == "SequenceAt" and provider.is_standard:
            return self._part(provider, depth)
        if provider.op_type == "If" and provider.is_standard and self.tracked is None:
            return self._chosen(provider, key[1], depth)
        kernel = self._kernel(provider)
        index = provider.outputs.index(key[1]) if key[1] in provider.outputs else 0
        if kernel is None or (index and kernel is not _split):
            return None
        operands: list[Array | None] = []
        for name in provider.inputs[: 1 if provider.op_type == "CastLike" else None]:
            operand = self.value(provider.graph_path, name, depth + 1) if name else None
            if name and operand is None:
                return None
            operands.append(operand)
        if provider.op_type == "CastLike" and operands[0] is not None and operands[0].dtype.kind in "iu":
            operands = [self._as_like(operands[0], provider)]
        is_placed = False
        if self.tracked is not None:
            operands = [each if each is None else _as_positions(each) for each in operands]
            is_placed = any(each is not None and each.dtype == PLACE for each in operands)
        try:
            with np.errstate(all="ignore"):
                found = kernel(
                    Call(provider, operands, self._fill(provider), self.most, index, self.unrounded)
                )
        except (ArithmeticError, IndexError, KeyError, MemoryError, TypeError, ValueError):
            return None
        if is_placed and provider.op_type not in _MOVED:
            found = np.broadcast_to(PLACE(0), found.shape)
        return found if found.size <= self.most else None

    def _as_like(self, whole: Array, node: Node) -> Array:
        """Return whole numbers as real ones if the stored tensor whose type is copied has these."""
        like = self.wiring.find(node.graph_path, node.inputs[1]) if len(node.inputs) > 1 else None
        is_real = isinstance(like, StoredTensor) and like.dtype.is_floating and self.tracked is None
        return whole.astype(np.float32) if is_real else whole

    def _chosen(self, node: Node, name: str, depth: int) -> Array | None:
        """Return the result of the branch that a known condition chooses."""
        condition = self.value(node.graph_path, node.inputs[0], depth + 1) if node.inputs else None
        if condition is None or condition.size != 1 or name not in node.outputs:
            return None
        wanted = "then_branch" if condition.reshape(-1)[0] else "else_branch"
        index = node.outputs.index(name)
        for body in self.wiring.nested.get(node.place, ()):
            if body.path[-1].endswith(f".{wanted}") and index < len(body.outputs):
                return self.value(body.path, body.outputs[index], depth + 1)
        return None

    def _part(self, node: Node, depth: int) -> Array | None:
        """Return one part of a tensor that SplitToSequence has split; other sequences are not followed."""
        splitter = self.wiring.find(node.graph_path, node.inputs[0]) if len(node.inputs) > 1 else None
        if (
            not isinstance(splitter, Node)
            or splitter.op_type != "SplitToSequence"
            or not splitter.is_standard
        ):
            return None
        has_sizes = len(splitter.inputs) > 1 and bool(splitter.inputs[1])
        sizes = self.value(splitter.graph_path, splitter.inputs[1], depth + 1) if has_sizes else np.array(1)
        data = self.value(splitter.graph_path, splitter.inputs[0], depth + 1)
        place = self.value(node.graph_path, node.inputs[1], depth + 1)
        if data is None or place is None or sizes is None:
            return None
        axis = splitter.integers.get("axis", 0)
        try:
            ends = (
                np.cumsum(sizes)
                if sizes.ndim
                else np.arange(int(sizes), data.shape[axis] + int(sizes), int(sizes))
            )
            end = int(ends[int(place.reshape(()))])
            size = int(sizes[int(place.reshape(()))]) if sizes.ndim else int(sizes)
            part = np.moveaxis(data, axis, 0)[end - size : end]
        except (IndexError, MemoryError, TypeError, ValueError, ZeroDivisionError):
            return None
        is_kept = has_sizes or bool(splitter.integers.get("keepdims", 1))
        return np.moveaxis(part, 0, axis) if is_kept else part.reshape(part.shape[1:])

    def _call(self, node: Node, output: str, depth: int) -> Array | None:
        """Return an output of a function call, whose body is computed for this caller."""
        if (
            self.tracked is not None
            or node.graph_path not in self.wiring.graphs
            or output not in node.outputs
        ):
            return None
        if node.place not in self._called:
            self._called[node.place] = {}  # a cycle has no value
            arguments = [
                self.value(node.graph_path, name, depth + 1) if name else None for name in node.inputs
            ]
            self._called[node.place] = self._run(node, arguments, depth)
        return self._called[node.place].get(output)

    def _run(self, caller: Node, arguments: Sequence[Array | None], depth: int) -> dict[str, Array]:
        """Compute the caller's outputs by name, as far as possible."""
        body = self.wiring.graphs.get(self.wiring.calls[caller.place])
        if body is None or depth > _DEEPEST:
            return {}
        known = {
            name: value for name, value in zip(body.inputs, arguments, strict=False) if value is not None
        }
        for tensor in body.tensors:
            array = tensor.payload.array() if tensor.numel <= self.most else None
            if array is not None:
                known[tensor.name] = array
        for node in body.nodes:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                break
            operands = [known.get(name) for name in node.inputs]
            if any(name and value is None for name, value in zip(node.inputs, operands, strict=True)):
                continue
            resolved = _with_settings(node, caller)
            if resolved is None:
                continue
            if node.place in self.wiring.calls:
                known |= self._run(resolved, operands, depth + 1)
            else:
                known |= self._outputs_of(resolved, operands)
        return {
            name: known[inner]
            for name, inner in zip(caller.outputs, body.outputs, strict=False)
            if name and inner in known
        }

    def _outputs_of(self, node: Node, operands: Sequence[Array | None]) -> dict[str, Array]:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            number = _constant_of(node)
            return {} if number is None else {node.outputs[0]: number}
        kernel = self._kernel(node)
        found: dict[str, Array] = {}
        for index, name in enumerate(node.outputs if kernel is _split else node.outputs[:1]):
            try:
                with np.errstate(all="ignore"):
                    value = kernel and kernel(
                        Call(node, operands, self._fill(node), self.most, index, self.unrounded)
                    )
            except (ArithmeticError, IndexError, KeyError, MemoryError, TypeError, ValueError):
                continue
            if value is not None and value.size <= self.most:
                found[name] = value
        return found

    def _kernel(self, node: Node) -> Callable[[Call], Array] | None:
        if node.domain in ("", "ai.onnx"):
            return (KERNELS if self.tracked is None else _TRACKED).get(node.op_type)
        return _CODED.get(node.op_type) if node.domain == "com.microsoft" and self.tracked is None else None

    def _fill(self, node: Node) -> Array | None:
        """Return the tensor in a ConstantOfShape's `value`."""
        if node.op_type != "ConstantOfShape":
            return None
        graph = self.wiring.graphs[node.graph_path]
        carried = next((tensor for tensor in graph.tensors if tensor.node == node.position), None)
        return np.zeros(1, np.float32) if carried is None else carried.payload.array()


def _with_settings(node: Node, caller: Node) -> Node | None:
    """Replace references to the caller's attributes in a function's node; None if the caller does not set one."""
    integers, settings = dict(node.integers), dict(node.settings)
    for name, setting in node.settings.items():
        if isinstance(setting, str) and setting.startswith("@"):
            del settings[name]
            if setting[1:] in caller.integers:
                integers[name] = caller.integers[setting[1:]]
            elif setting[1:] in caller.settings:
                settings[name] = caller.settings[setting[1:]]
            else:  # the function's own default is not looked up
                return None
    return node._replace(integers=integers, settings=settings)


def _constant_of(node: Node) -> Array | None:
    """Return a Constant's number or list that the function's caller sets (ONNX docs/Operators.md, Constant)."""
    if "value_int" in node.integers:
        return np.array(node.integers["value_int"], np.int64)
    for name, element in (
        ("value_ints", np.int64),
        ("value_float", np.float32),
        ("value_floats", np.float32),
    ):
        found = node.settings.get(name)
        if isinstance(found, (int, float, tuple)):
            return np.array(found, element)
    return None


class Call(Frozen):
    """One node with the values of its operands."""

    node: Node
    operands: Sequence[Array | None]
    fill: Array | None
    most: int
    index: int = 0
    """Position of the output to compute."""
    unrounded: bool = False
    """Whether quantization is skipped."""

    def array(self, slot: int) -> Array:
        """Return an operand that must be present."""
        found = self.operands[slot]
        if found is None:
            raise ValueError(slot)
        return found

    def optional(self, slot: int) -> Array | None:
        return self.operands[slot] if slot < len(self.operands) else None

    def ints(self, slot: int, setting: str) -> tuple[int, ...] | None:
        """Return integers such as axes from an input, or, in earlier opsets, from an attribute."""
        operand = self.optional(slot)
        if operand is not None:
            return tuple(int(number) for number in operand.reshape(-1))
        found = self.node.settings.get(setting)
        return tuple(int(number) for number in found) if isinstance(found, tuple) else None

    def check(self, shape: Sequence[int]) -> tuple[int, ...]:
        size = 1
        for dim in shape:
            size *= max(int(dim), 0)
        if size > self.most:
            raise MemoryError(size)
        return tuple(int(dim) for dim in shape)


def _binary(function: Callable[..., Any]) -> Callable[[Call], Array]:
    def apply(call: Call) -> Array:
        first, second = call.array(0), call.array(1)
        call.check(np.broadcast_shapes(first.shape, second.shape))
        return np.asarray(function(first, second))

    return apply


def _unary(function: Callable[..., Any]) -> Callable[[Call], Array]:
    return lambda call: np.asarray(function(call.array(0))).astype(call.array(0).dtype, copy=False)


def _clip(call: Call) -> Array:
    found = call.array(0)
    if {"min", "max"} & set(call.node.settings):
        raise ValueError("bounds as attributes, before opset 11")
    for slot, bound in ((1, np.maximum), (2, np.minimum)):
        limit = call.optional(slot)
        found = found if limit is None else bound(found, limit)
    return np.asarray(found)


def _logical(function: Callable[..., Any]) -> Callable[[Call], Array]:
    return lambda call: np.asarray(function(call.array(0)))


def _variadic(function: Callable[..., Any]) -> Callable[[Call], Array]:
    def apply(call: Call) -> Array:
        found = call.array(0)
        for slot in range(1, len(call.operands)):
            call.check(np.broadcast_shapes(found.shape, call.array(slot).shape))
            found = function(found, call.array(slot))
        return np.asarray(found)

    return apply


def _cast(call: Call) -> Array:
    element = DType.from_onnx(call.node.integers.get("to", 1)).to_numpy()
    if element is None:
        raise ValueError("no number")
    return call.array(0).astype(element)


def _decode(call: Call) -> Array:
    if call.unrounded and call.array(0).dtype.kind == "f":
        return call.array(0)
    codes, scale, zero = call.array(0).astype(np.float32), call.array(1).astype(np.float32), call.optional(2)
    shape = [1] * codes.ndim
    if scale.size > 1:
        shape[call.node.integers.get("axis", 1)] = scale.size
    shift = np.zeros(1, np.float32) if zero is None else zero.astype(np.float32)
    return (codes - shift.reshape(shape if shift.size > 1 else -1)) * scale.reshape(shape)


def _quantize(call: Call) -> Array:
    if call.unrounded:
        return call.array(0)
    data, scale, zero = call.array(0).astype(np.float32), call.array(1).astype(np.float32), call.optional(2)
    shape = [1] * data.ndim
    if scale.size > 1:
        shape[call.node.integers.get("axis", 1)] = scale.size
    element = np.dtype(np.uint8) if zero is None else zero.dtype
    codes = np.rint(data / scale.reshape(shape))
    if zero is not None:
        codes = codes + zero.astype(np.float32).reshape(shape if zero.size > 1 else [1] * data.ndim)
    if element.kind in "iu":
        bounds = np.iinfo(element.name)
        codes = np.clip(codes, bounds.min, bounds.max)
    return np.asarray(codes.astype(element))


def _on_codes(function: Callable[[Sequence[Array], Node], Array], results: int) -> Callable[[Call], Array]:
    """Wrap a function on real numbers as an operator on codes: each operand is followed by its scale and zero point.

    Input `results` is the scale of the result, and the next is its zero point.
    """

    def apply(call: Call) -> Array:
        operands = list(call.operands)
        result_codec = operands[results : results + 2]
        del operands[results : results + 2]
        decoded = [
            _decode(Call(call.node, operands[place : place + 3], None, call.most, unrounded=call.unrounded))
            for place in range(0, len(operands), 3)
        ]
        if results:
            call.check(np.broadcast_shapes(*(each.shape for each in decoded)))
        found = function(decoded, call.node)
        return _quantize(Call(call.node, [found, *result_codec], None, call.most, unrounded=call.unrounded))

    return apply


def _divide(call: Call) -> Array:
    first = call.array(0)
    found = _binary(np.divide)(call)
    return (np.trunc(found) if first.dtype.kind in "iu" else found).astype(first.dtype)


def _power(call: Call) -> Array:
    first, second = call.array(0), call.array(1)
    call.check(np.broadcast_shapes(first.shape, second.shape))
    return np.asarray(np.power(first.astype(np.float64), second)).astype(first.dtype)


def _modulo(call: Call) -> Array:
    remainder = np.fmod if call.node.integers.get("fmod") else np.mod
    return np.asarray(remainder(call.array(0), call.array(1)))


def _range(call: Call) -> Array:
    start, limit, delta = (call.array(slot).reshape(-1)[0] for slot in range(3))
    call.check([max(0, int(np.ceil((limit - start) / delta)))])
    return np.arange(start, limit, delta).astype(call.array(0).dtype)


def _constant_of_shape(call: Call) -> Array:
    fill = call.fill if call.fill is not None else np.zeros(1, np.float32)
    shape = call.check([int(dim) for dim in call.array(0).reshape(-1)])
    return np.full(shape, fill.reshape(-1)[0], dtype=fill.dtype)


def _eye(call: Call) -> Array:
    shape = call.check(call.array(0).shape)
    element = DType.from_onnx(call.node.integers.get("dtype", 1)).to_numpy()
    return np.eye(shape[0], shape[1], call.node.integers.get("k", 0)).astype(element or np.float32)


def _reshape(call: Call) -> Array:
    data, wanted = call.array(0), call.ints(1, "shape") or ()
    keep = not call.node.integers.get("allowzero", 0)
    shape = [data.shape[axis] if dim == 0 and keep else dim for axis, dim in enumerate(wanted)]
    return data.reshape(shape)


def _expand(call: Call) -> Array:
    data = call.array(0)
    shape = call.check(np.broadcast_shapes(data.shape, tuple(int(dim) for dim in call.array(1).reshape(-1))))
    return np.broadcast_to(data, shape)


def _tile(call: Call) -> Array:
    data, times = call.array(0), [int(number) for number in call.array(1).reshape(-1)]
    call.check([dim * number for dim, number in zip(data.shape, times, strict=True)])
    return np.tile(data, times)


def _transpose(call: Call) -> Array:
    perm = call.node.settings.get("perm")
    return call.array(0).transpose(tuple(int(axis) for axis in perm) if isinstance(perm, tuple) else None)


def _unsqueeze(call: Call) -> Array:
    axes = call.ints(1, "axes") or ()
    return np.expand_dims(call.array(0), tuple(axes))


def _squeeze(call: Call) -> Array:
    axes = call.ints(1, "axes")
    return np.squeeze(call.array(0), None if axes is None else tuple(axes))


def _flatten(call: Call) -> Array:
    data, axis = call.array(0), call.node.integers.get("axis", 1)
    rows = int(np.prod(data.shape[: axis if axis >= 0 else data.ndim + axis]))
    return data.reshape(rows, -1)


def _concat(call: Call) -> Array:
    parts = [call.array(slot) for slot in range(len(call.operands))]
    return np.concatenate(parts, axis=call.node.integers.get("axis", 0))


def _slice(call: Call) -> Array:
    data = call.array(0)
    starts, ends = call.ints(1, "starts") or (), call.ints(2, "ends") or ()
    axes = call.ints(3, "axes") or tuple(range(len(starts)))
    steps = call.ints(4, "steps") or (1,) * len(starts)
    cuts = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        stop = None if step < 0 and end < -data.shape[axis] else end
        cuts[axis] = slice(start, stop, step)
    return data[tuple(cuts)]


def _split(call: Call) -> Array:
    data, sizes = call.array(0), call.ints(1, "split")
    axis, count = call.node.integers.get("axis", 0), len(call.node.outputs)
    if sizes is None:
        each = -(-data.shape[axis] // count)
        sizes = (*[each] * (count - 1), data.shape[axis] - each * (count - 1))
    return np.split(data, np.cumsum(sizes)[:-1].tolist(), axis=axis)[call.index]


def _pad(call: Call) -> Array:
    data, pads, axes = call.array(0), call.ints(1, "pads") or (), call.ints(3, "axes")
    if call.node.settings.get("mode", "constant") != "constant" or axes is not None or min(pads) < 0:
        raise ValueError("another padding")
    filled = call.optional(2)
    return np.pad(
        data,
        [*zip(pads[: data.ndim], pads[data.ndim :], strict=True)],
        constant_values=0 if filled is None else filled.reshape(-1)[0],
    )


def _scatter(call: Call) -> Array:
    data, axis = call.array(0).copy(), call.node.integers.get("axis", 0)
    index = np.moveaxis(call.array(1), axis, 0)
    if call.node.settings.get("reduction", "none") != "none":
        raise ValueError("a reduction")
    others = np.indices(index.shape)
    moved = np.moveaxis(data, axis, 0)
    moved[(index, *others[1:])] = np.moveaxis(call.array(2), axis, 0)
    return data


def _scatter_nd(call: Call) -> Array:
    data, index = call.array(0).copy(), call.array(1)
    if call.node.settings.get("reduction", "none") != "none":
        raise ValueError("a reduction")
    data[tuple(np.moveaxis(index, -1, 0))] = call.array(2)
    return data


def _gather(call: Call) -> Array:
    data, index = call.array(0), call.array(1)
    axis = call.node.integers.get("axis", 0)
    call.check(
        [*data.shape, *index.shape] if data.ndim <= 1 else [index.size, data.size // max(1, data.shape[axis])]
    )
    return np.take(data, index.astype(np.int64), axis=axis)


def _gather_elements(call: Call) -> Array:
    index = call.array(1).astype(np.int64)
    return np.take_along_axis(call.array(0), index, call.node.integers.get("axis", 0))


def _gather_places(call: Call) -> Array:
    """GatherND: the last axis of the indices holds positions in the data, after `batch_dims` axes that both share."""
    data, index = call.array(0), call.array(1).astype(np.int64)
    batch, depth = call.node.integers.get("batch_dims", 0), index.shape[-1]
    call.check([*index.shape[:-1], *data.shape[batch + depth :]])
    shape = [1] * (index.ndim - 1)
    examples = [
        np.arange(dim).reshape([*shape[:axis], dim, *shape[axis + 1 :]])
        for axis, dim in enumerate(data.shape[:batch])
    ]
    return np.asarray(data[(*examples, *np.moveaxis(index, -1, 0))])


def _where(call: Call) -> Array:
    call.check(np.broadcast_shapes(*(call.array(slot).shape for slot in range(3))))
    return np.where(call.array(0), call.array(1), call.array(2))


def _nonzero(call: Call) -> Array:
    """Return the indices of the nonzero elements, one column for each (ONNX docs/Operators.md, NonZero)."""
    data = call.array(0)
    call.check((data.ndim, int(np.count_nonzero(data))))
    return np.stack(np.nonzero(data)).astype(np.int64)


def _cumsum(call: Call) -> Array:
    data, axis = call.array(0), int(call.array(1).reshape(-1)[0])
    if call.node.integers.get("reverse") or call.node.integers.get("exclusive"):
        raise ValueError("another sum")
    return np.cumsum(data, axis=axis).astype(data.dtype)


def _resize(call: Call) -> Array:
    """Resize in mode `nearest`: take, along each axis, the element nearest to each position of the result."""
    data, settings = call.array(0), call.node.settings
    scales, sizes = call.optional(2), call.optional(3)
    if len(call.operands) < 3 or settings.get("mode", "nearest") != "nearest" or "axes" in settings:
        raise ValueError("another mode of Resize")
    if settings.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ValueError("a Resize that keeps the aspect ratio")
    if sizes is not None and sizes.size:
        shape = call.check([int(dim) for dim in sizes.reshape(-1)])
        ratios = [new / old for new, old in zip(shape, data.shape, strict=True)]
    elif scales is not None and scales.size == data.ndim:
        ratios = [float(ratio) for ratio in scales.reshape(-1)]
        shape = call.check([int(old * ratio) for old, ratio in zip(data.shape, ratios, strict=True)])
    else:
        raise ValueError("no size")
    mode = str(settings.get("coordinate_transformation_mode", "half_pixel"))
    rounded = _NEAREST[str(settings.get("nearest_mode", "round_prefer_floor"))]
    for axis, (new, old, ratio) in enumerate(zip(shape, data.shape, ratios, strict=True)):
        if new != old:
            places = rounded(_COORDINATES[mode](np.arange(new, dtype=np.float64), new, old, ratio))
            data = np.take(data, np.clip(places, 0, old - 1).astype(np.int64), axis=axis)
    return data


_NEAREST: Mapping[str, Callable[[Any], Any]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda place: np.floor(place + 0.5),
    "round_prefer_floor": lambda place: np.ceil(place - 0.5),
}
"""Function that rounds a position between two elements, for each `nearest_mode`."""

_COORDINATES: Mapping[str, Callable[[Any, int, int, float], Any]] = {
    "align_corners": lambda place, new, old, _: place * (old - 1) / (new - 1) if new > 1 else 0 * place,
    "asymmetric": lambda place, _new, _old, ratio: place / ratio,
    "half_pixel": lambda place, _new, _old, ratio: (place + 0.5) / ratio - 0.5,
    "pytorch_half_pixel": lambda place, new, _, ratio: (place + 0.5) / ratio - 0.5 if new > 1 else 0 * place,
}
"""Function from a position on the new axis to its coordinate on the old one (ONNX docs/Operators.md, Resize)."""


def _trilu(call: Call) -> Array:
    shift = call.optional(1)
    k = 0 if shift is None else int(shift.reshape(-1)[0])
    return np.triu(call.array(0), k) if call.node.integers.get("upper", 1) else np.tril(call.array(0), k)


def _matmul(call: Call) -> Array:
    first, second = call.array(0), call.array(1)
    if first.ndim and second.ndim:
        call.check([first.size, second.shape[-1]])
    return np.asarray(np.matmul(first, second))


def _shape(call: Call) -> Array:
    shape, settings = call.array(0).shape, call.node.integers
    return np.asarray(shape[settings.get("start", 0) : settings.get("end", len(shape))], dtype=np.int64)


def _size(values: Any, **options: Any) -> Any:
    return np.abs(values).sum(**options)


def _squares(values: Any, **options: Any) -> Any:
    return np.square(values).sum(**options)


def _length(values: Any, **options: Any) -> Any:
    return np.sqrt(_squares(values, **options))


def _reduce(function: Callable[..., Any]) -> Callable[[Call], Array]:
    def apply(call: Call) -> Array:
        data, axes = call.array(0), call.ints(1, "axes")
        keep = bool(call.node.integers.get("keepdims", 1))
        # Without axes, or with an empty list of them, all are reduced, or none.
        reduced = tuple(axes) if axes else () if call.node.integers.get("noop_with_empty_axes") else None
        return np.asarray(function(data, axis=reduced, keepdims=keep)).astype(data.dtype)

    return apply


KERNELS: Mapping[str, Callable[[Call], Array]] = {
    "Abs": _unary(np.abs),
    "Add": _binary(np.add),
    "And": _binary(np.logical_and),
    "Cast": _cast,
    "CastLike": lambda call: call.array(0),
    "Ceil": _unary(np.ceil),
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Cos": _unary(np.cos),
    "CumSum": _cumsum,
    "DequantizeLinear": _decode,
    "Div": _divide,
    "Equal": _binary(np.equal),
    "Exp": _unary(np.exp),
    "Expand": _expand,
    "EyeLike": _eye,
    "Flatten": _flatten,
    "Floor": _unary(np.floor),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_places,
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "Identity": lambda call: call.array(0),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Log": _unary(np.log),
    "MatMul": _matmul,
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Mod": _modulo,
    "Mul": _binary(np.multiply),
    "Neg": _unary(np.negative),
    "NonZero": _nonzero,
    "Not": _logical(np.logical_not),
    "Or": _binary(np.logical_or),
    "Pad": _pad,
    "Pow": _power,
    "QuantizeLinear": _quantize,
    "Range": _range,
    "Reciprocal": _unary(lambda value: 1 / value),
    "ReduceL1": _reduce(_size),
    "ReduceL2": _reduce(_length),
    "ReduceMax": _reduce(np.max),
    "ReduceMean": _reduce(np.mean),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "ReduceSumSquare": _reduce(_squares),
    "Reshape": _reshape,
    "Resize": _resize,
    "Relu": _unary(lambda value: np.maximum(value, 0)),
    "Round": _unary(np.round),
    "ScatterElements": _scatter,
    "ScatterND": _scatter_nd,
    "Shape": _shape,
    "Sigmoid": _unary(lambda value: 1 / (1 + np.exp(-value))),
    "Sign": _unary(np.sign),
    "Sin": _unary(np.sin),
    "Size": lambda call: np.asarray(call.array(0).size, dtype=np.int64),
    "Slice": _slice,
    "Softplus": _unary(lambda value: np.logaddexp(0, value)),
    "Split": _split,
    "Sqrt": _unary(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _binary(np.subtract),
    "Tanh": _unary(np.tanh),
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    "Xor": _binary(np.logical_xor),
}
"""Function that computes each operator."""

SELECTS = frozenset(
    {"Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice", "Split"}
    | {"Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
"""Operators that return only elements of their first input, in any position and any number."""

_ELEMENTWISE = frozenset(
    {"Abs", "Add", "And", "Cast", "Ceil", "Cos", "Div", "Equal", "Exp", "Floor", "Greater", "GreaterOrEqual"}
    | {"Less", "LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu"}
    | {"Round", "Sigmoid", "Sign", "Sin", "Sqrt", "Sub", "Tanh", "Where", "Xor"}
)
"""Operators that compute each element from the elements at the same position."""

_CODED: Mapping[str, Callable[[Call], Array]] = {
    "QLinearAdd": _on_codes(lambda decoded, _: np.asarray(np.add(decoded[0], decoded[1])), 6),
    "QLinearConcat": _on_codes(
        lambda decoded, node: np.concatenate(list(decoded), axis=node.integers.get("axis", 0)), 0
    ),
    "QLinearMul": _on_codes(lambda decoded, _: np.asarray(np.multiply(decoded[0], decoded[1])), 6),
    "QLinearSigmoid": _on_codes(lambda decoded, _: np.asarray(1 / (1 + np.exp(np.negative(decoded[0])))), 3),
}
"""Functions that compute operators on codes (onnxruntime docs/ContribOperators.md)."""

_TRACKED: Mapping[str, Callable[[Call], Array]] = {
    **KERNELS,
    **dict.fromkeys(
        ("Cast", "CastLike", "DequantizeLinear", "Dropout", "QuantizeLinear"), lambda call: call.array(0)
    ),
}
"""Functions for position numbers in place of values: casts and codecs return their input."""

_MOVED = SELECTS | {
    *(
        "Cast",
        "CastLike",
        "Concat",
        "DequantizeLinear",
        "Dropout",
        "Pad",
        "QuantizeLinear",
        "Resize",
        "Shape",
        "Size",
    ),
    *("ScatterElements", "ScatterND", "Trilu", "Where"),
}
"""Operators that only move position numbers; all others turn them into 0."""

PLACE = np.uint32
"""Type of the position numbers of stored elements: no operator on shapes and indices returns it."""


def _as_positions(value: Array) -> Array:
    """Return a value as position numbers: floats have none and become 0."""
    return np.broadcast_to(PLACE(0), value.shape) if value.dtype.kind == "f" else value


WHOLE = frozenset({DType.BOOL, DType.INT32, DType.INT64})
"""Types of indices, shapes and conditions."""
