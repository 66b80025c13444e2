"""File and program in real numbers: whether their values differ for sure.

Weights are drawn, integer inputs are the example's. The program is computed with these, and the differing part of the
file with the program's values right before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from analyzer.model import Node
from analyzer.records import Mutable, field
from analyzer.verify.algebra.field import Elements, Numbers, mixed
from analyzer.verify.algebra.nodes import Operation, operate
from analyzer.verify.algebra.programs import Program, inputs_of, values_of
from analyzer.verify.algebra.sides import Origin, State
from analyzer.verify.algebra.stored import Stored, Weights, complete_buffers
from analyzer.verify.algebra.values import (
    Algebra,
    Array,
    Coded,
    Factored,
    Field,
    UnknownError,
    Value,
    is_known,
    shape_of,
)
from analyzer.verify.algebra.watched import print_of

_MOST = 1 << 26
"""Largest number of elements of a weight that is computed in full."""
_MOST_STEPS = 2_000
_MOST_AFTER = 40
"""Most nodes after the last wrong one that are computed to see whether one of them takes the difference back."""
_MASKED = 1e9
"""Magnitude above which a number is a mask."""
_SMALL = 100.0
"""Magnitude below which a number on one side differs from a mask on the other."""
_FAR, _FAR_OF_HALVES = 1e-5, 1e-3
"""Differences, relative to the largest number, that rounded constants cannot cause; the second for half precision."""


def _reals(elements: Elements) -> Array:
    """Return numbers between -1 and 1, equal for equal elements."""
    return mixed(elements, 0x4EA1).astype(np.float64) / 2.0**63 - 1.0


def real_of(value: Value) -> Array:
    """Return a drawn weight in real numbers: vectors are positive, matrices keep the magnitude of products.

    Raises:
        UnknownError: the value is too large.
    """
    shape = shape_of(value)
    if math.prod(shape) > _MOST:
        raise UnknownError("a weight that is too large to be tried")
    if isinstance(value, Factored):
        whole: Array = np.zeros(shape)
        for term in value.terms:
            made: Array = np.ones(())
            for vector in term:
                made = made[..., None] * (_reals(vector) * 1.7)
            whole = whole + made
        if value.rest is not None:
            whole = whole + value.rest.short.astype(np.float64) / 2.0**15 - 1.0
    elif isinstance(value, Field):
        whole = _reals(value.elements)
    elif isinstance(value, Coded):
        raise UnknownError("codes")
    else:
        return value
    if len(shape) < 2:
        return whole / 2 + 1.0
    return whole * 1.7 / math.sqrt(math.prod(shape[1:]))


class _RealWeights(Weights):
    """The same tensors in real numbers; large ones are made on each use, buffers take values from the manifest."""

    buffers: Mapping[str, Array] = field(default_factory=dict)

    def of(self, name: str) -> Value:
        """Return the tensor of a name."""
        own = self.buffers.get(self.first.get(name, ""))
        if own is not None:
            return own
        found = Weights.of(self, name)
        return found if is_known(found) else real_of(found)


class _RealStored(Stored):
    def _draw_other_values(self, name: str, shape: tuple[int, ...]) -> Value:
        return real_of(Stored._draw_other_values(self, name, shape))


class Reals(Mutable, dict=True):
    """PyTorch's program in real numbers, computed on first use."""

    state: State
    """The file beside the program, for the drawing whose values are compared."""

    @cached_property
    def _computed(self) -> dict[int, Any]:
        """Real value for each value of the drawing, by `id`."""
        drawn = self.state.drawing.program
        a = Algebra(0, Numbers())
        self.weights = _RealWeights(a, drawn.weights.shapes, drawn.weights.first, drawn.weights.known)
        self.weights.buffers = complete_buffers(self.state.result.manifest)
        whole = [
            program_input.name
            for program_input in self.state.drawing.inputs
            if not program_input.dtype.is_floating
        ]
        inputs = inputs_of(self.state.drawing.inputs, 0, whole)
        inputs = {
            name: _reals(each.elements) if isinstance(each, Field) else each for name, each in inputs.items()
        }
        program = Program(a, drawn.calls, self.weights, inputs)
        program.run(
            stand_ins={
                name: _reals(each.elements)
                for name, each in drawn.stand_ins.items()
                if isinstance(each, Field)
            }
        )
        found: dict[int, Any] = {id(drawn.inputs[name]): value for name, value in inputs.items()}
        for name, value in drawn.values.items():
            pairs = zip(values_of(value), values_of(program.values.get(name)), strict=False)
            found.update((id(one), other) for one, other in pairs)
        self.stored = _RealStored(self.state.result, self.weights, program.value)
        return found

    def is_different(self, state: State, node: Node, origin: Origin | None, replacement: Value) -> bool:
        """Whether a node computes another value than the program has in its place.

        Args:
            state: the file beside the program, before the node's value is substituted.
            node: the node of the file.
            origin: the program's value; None for a node without counterpart in the program.
            replacement: the value that belongs in the node's place.
        """
        trial = _Trial(self, state)
        try:
            if self._is_doubtful(state, node, origin, replacement):
                return False
            with np.errstate(all="ignore"):
                found = trial.result(node)[0]
                expected = trial.file_value(replacement) if origin is None else trial.of(origin)
                return _is_different(found, expected, _FAR_OF_HALVES if state.a.is_half else _FAR)
        except (UnknownError, ValueError, TypeError, IndexError, MemoryError, RecursionError):
            return False

    @cached_property
    def _unknown_buffers(self) -> frozenset[str]:
        """Names of buffers whose numbers nothing tells."""
        manifest, weights = self.state.result.manifest, self.state.drawing.program.weights
        known = complete_buffers(manifest).keys() | weights.known.keys()
        return frozenset(
            name for buffer in manifest.buffers if buffer.name not in known for name in buffer.names
        )

    def _is_doubtful(self, state: State, node: Node, origin: Origin | None, replacement: Value) -> bool:
        """Whether a node, or one before it with a substituted value, may hold numbers of unknown buffers.

        What was substituted there may belong elsewhere, so that a node behind it differs by that alone.
        """
        if not self._unknown_buffers:
            return False
        if self._may_hold_buffers(state, origin or _origin_of(state, replacement)):
            return True
        substituted = {
            position: _origin_of(state, value) for (position, _), value in state.substituted.items()
        }
        doubtful = {
            position
            for position, each in substituted.items()
            if each is not None and self._may_hold_buffers(state, each)
        }
        waiting, seen = [node], {node.position}
        while waiting and doubtful:
            current = waiting.pop()
            if current.position in doubtful:
                return True
            for maker in filter(None, map(state.makers.get, current.inputs)):
                if maker.position not in seen:
                    seen.add(maker.position)
                    waiting.append(maker)
        return False

    def _may_hold_buffers(self, state: State, origin: Origin | None) -> bool:
        """Whether the file may hold numbers of unknown buffers where the program computes a value from these.

        An exporter computes them in advance: here the buffers have other numbers, and the value differs by them alone.
        """
        if origin is None:
            return True
        program = state.drawing.program
        calls = {call.name: call for call in program.calls.calls}
        mine = {key for value in state.file.values.values() if (key := print_of(value)) is not None}
        waiting, seen = [origin.call], {origin.call.name}
        while waiting:
            call = waiting.pop()
            for kind, name in _references([*call.args, *call.kwargs.values()]):
                if kind == "tensor" and name in self._unknown_buffers:
                    return True
                if kind != "value" or name in seen or name not in calls:
                    continue
                seen.add(name)
                keys = [print_of(value) for value in values_of(program.values.get(name))]
                if not keys or any(key is None or key not in mine for key in keys):
                    waiting.append(calls[name])
        return False

    def shows(self, state: State, nodes: Sequence[Node]) -> bool:
        """Whether wrong results of nodes give wrong results in the nodes after them; True too where it is not known.

        A function may take a difference back, which its random counterpart in the field does not show: a Relu and a
        later factor one that scales, a norm one that shifts.

        Args:
            state: the file with the program's values substituted.
            nodes: the nodes whose values were substituted.
        """
        if any(graph.parent is not None for graph in state.ledger.model.graphs):
            return True  # a body may read such a value too
        try:
            with np.errstate(all="ignore"):
                return _Trial(self, state).shows(nodes)
        except (UnknownError, KeyError, ValueError, TypeError, IndexError, MemoryError, RecursionError):
            return True


class _Trial(Mutable, dict=True):
    reals: Reals
    state: State
    results: dict[int, Sequence[Any]] = field(default_factory=dict)
    known: dict[int, Any] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        self.a = Algebra(0, Numbers())
        self.known.update(self.reals._computed)

    def _count(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise UnknownError("too many steps")

    # the file's side

    def result(self, node: Node) -> Sequence[Any]:
        """Return the results of a node, computed from right values before it."""
        if node.position not in self.results:
            self._count()
            values = [self._input(name) if name else None for name in node.inputs]
            self.results[node.position] = self._operate(node, values)
        return self.results[node.position]

    def _operate(self, node: Node, values: Sequence[Any]) -> Sequence[Any]:
        graph = self.state.graph
        carried = next((each for each in graph.tensors if each.node == node.position), None)
        fill = None if carried is None else carried.payload.array()
        opset = dict(self.state.ledger.model.opsets).get("ai.onnx", 0)
        return operate(Operation(self.a, node, values, fill, opset, self.reals.stored.factor))

    def shows(self, nodes: Sequence[Node]) -> bool:
        """Whether results differ after some wrong nodes, as `Reals.shows`."""
        wrong: dict[str, Any] = {}
        waiting = {node.position: node for node in nodes}
        last, left = max(waiting), _MOST_AFTER
        while waiting:
            node = waiting.pop(min(waiting))
            left -= node.position > last
            if left < 0:
                return True
            values = [
                wrong[name] if name in wrong else self._input(name) if name else None for name in node.inputs
            ]
            for name, found in zip(node.outputs, self._operate(node, values), strict=False):
                if name and _may_differ(found, self.file_value(self.state.file.values[name])):
                    wrong[name] = found
                    waiting.update({each.position: each for each in self.state.readers.get(name, ())})
        return not wrong.keys().isdisjoint(self.state.graph.outputs)

    def _input(self, name: str) -> Any:
        maker = self.state.makers.get(name)
        value = self.state.file.values.get(name)
        if maker is not None and maker.op_type != "Constant":
            if value is None or not self.state.is_right(maker) or print_of(value) is None:
                return self.result(maker)[list(maker.outputs).index(name)]
            return self.file_value(value)
        tensor = self.state.tensors.get(name)
        if tensor is not None:
            return self.reals.stored.of(tensor)
        graph_input = self.state.file.inputs.get(name)
        if graph_input is None:
            raise UnknownError(f"of {name}, which is not known")
        return self.known[id(graph_input)]

    def file_value(self, value: Value) -> Any:
        """Return the real value of a file's value that is the program's, in the file's order."""
        key = print_of(value)
        if key is None or not isinstance(value, Field):
            return value
        origin = self.state.drawing.origins.get(key)
        if origin is None:
            raise UnknownError("a value that the program does not have")
        theirs = np.asarray(self.of(origin)).reshape(-1)
        elements = self.state.a.with_masks(origin.value).elements.reshape(-1)
        if theirs.size != elements.size:
            raise UnknownError("a value of another size")
        if np.array_equal(elements, value.elements.reshape(-1)):
            return theirs.reshape(value.elements.shape)
        order = np.argsort(elements, kind="stable")
        ordered = elements[order]
        if (ordered[1:] == ordered[:-1]).any() and not _is_one_each(ordered, theirs[order]):
            raise UnknownError("elements that are equal by chance")
        places = np.searchsorted(ordered, value.elements)
        return theirs[order[np.minimum(places, order.size - 1)]]

    # the program's side

    def of(self, origin: Origin) -> Any:
        """Return a value of the program."""
        return self.value(origin.value)

    def value(self, value: Any) -> Any:
        """Return a value of the program by its `id`: of a call, a weight, or an intermediate value."""
        if id(value) not in self.known:
            self._count()
            step = self.state.drawing.steps.get(id(value))
            weights = self.state.drawing.program.weights
            name = next((name for name, each in weights.used_tensors() if each is value), None)
            if name is not None:
                self.known[id(value)] = self.reals.weights.of(name)
            elif step is not None:
                self.known[id(value)] = step.again(self.a, self.value)
            else:
                raise UnknownError("a value of unknown origin")
        return self.known[id(value)]


def _origin_of(state: State, value: Value) -> Origin | None:
    key = print_of(value)
    return None if key is None else state.drawing.origins.get(key)


def _references(args: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield the kind and the name of each value, tensor and constant among arguments of a call."""
    for arg in args:
        if isinstance(arg, list):
            yield from _references(arg)
        elif isinstance(arg, dict):
            yield from arg.items()


def _is_one_each(elements: Elements, numbers: Array) -> bool:
    """Whether equal elements, which are adjacent, stand for equal numbers."""
    equal = elements[1:] == elements[:-1]
    return bool(np.array_equal(numbers[1:][equal], numbers[:-1][equal]))


def _is_different(one: Any, other: Any, far: float) -> bool:
    """Whether two results differ by more than rounding, which is `far` times the largest number."""
    if not (is_known(one) and is_known(other)) or one is None or other is None:
        return False
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape:
        return False
    a, b = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    if (_is_masked(a) & (np.abs(b) < _SMALL)).any() or (_is_masked(b) & (np.abs(a) < _SMALL)).any():
        return True
    comparable = np.isfinite(a) & np.isfinite(b) & ~(_is_masked(a) & _is_masked(b))
    if not comparable.any():
        return False
    size = max(float(np.abs(a[comparable]).max()), float(np.abs(b[comparable]).max()))
    return bool(float(np.abs(a[comparable] - b[comparable]).max()) > far * size)


def _may_differ(one: Any, other: Any) -> bool:
    """Whether two results are not the same up to the precision of float32, or cannot be compared."""
    if not (is_known(one) and is_known(other)) or np.shape(one) != np.shape(other):
        return True
    return not np.allclose(
        np.asarray(one, np.float64), np.asarray(other, np.float64), 2e-7, 1e-12, equal_nan=True
    )


def _is_masked(array: Array) -> Array:
    """Mark the numbers that belong to a mask or are infinite."""
    found: Array = np.abs(array) > _MASKED
    return found
