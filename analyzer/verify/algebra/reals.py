"""What two computations of the algebra give for real numbers: whether they differ for sure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analyzer.model import Node
from analyzer.verify.algebra.calls import OPERATORS
from analyzer.verify.algebra.field import Elements, Numbers, mixed
from analyzer.verify.algebra.nodes import Operation, operate
from analyzer.verify.algebra.programs import values_of
from analyzer.verify.algebra.sides import Origin, State
from analyzer.verify.algebra.values import Algebra, Array, Factored, Field, UnknownError, Value, is_known
from analyzer.verify.algebra.watched import Print, print_of

_MOST = 1 << 22
_MOST_STEPS = 400
_FAR = 1e-3
"""Of the largest number."""


def real_of(value: Any) -> Any:
    """Real numbers in the place of elements: the same for the same element, between -2 and 2.

    Raises:
        UnknownError: the value is too large.
    """
    if isinstance(value, Factored):
        if math.prod(value.shape) > _MOST:
            raise UnknownError("a weight that is too large to be tried")
        whole: Array = np.zeros(value.shape)
        for term in value.terms:
            made: Array = np.ones(())
            for vector in term:
                made = made[..., None] * _reals(vector)
            whole = whole + made
        return whole
    if isinstance(value, Field):
        if value.kind == "truth":
            return mixed(value.elements, 0xB001) > np.uint64(1 << 63)
        found = _reals(value.elements)
        return (found > 0).astype(np.int64) if value.kind == "whole" else found
    return value


def _reals(elements: Elements) -> Array:
    scaled = mixed(elements, 0x4EA1).astype(np.float64) / 2.0**62 - 2.0
    return np.where(elements == 0, 0.0, scaled)


def differ(state: State, node: Node, origin: Origin | None, put: Value) -> bool:
    """Whether a node gives another value than the program has in its place, for some real numbers.

    What the file has right before the node are the real numbers that both are given.

    Args:
        state: the file beside the program.
        node: of the file.
        origin: the program's value; None of a node that the program has nothing of.
        put: the value that belongs in the node's place.
    """
    trial = _Trial(state)
    try:
        with np.errstate(all="ignore"):
            mine = trial.result(node)[0]
            yours = trial.value(put) if origin is None else trial.of(origin)
            return _apart(mine, yours)
    except (UnknownError, ValueError, TypeError, IndexError, MemoryError, RecursionError):
        return False


@dataclass
class _Trial:
    state: State
    atoms: set[Print] = field(default_factory=set)
    """What the node's part of the file begins with."""
    results: dict[int, Any] = field(default_factory=dict)
    known: dict[int, Any] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self) -> None:
        self.a = Algebra(0, Numbers())
        drawing = self.state.drawing
        program = drawing.program
        self.leaves = {id(value) for value in (*program.inputs.values(), *program.weights.made)}
        self.calls = {
            id(value): call
            for call in program.calls.calls
            for value in values_of(program.values.get(call.name))
        }

    def result(self, node: Node) -> Any:
        """What a node gives, of what is right before it."""
        if node.position not in self.results:
            self._count()
            values = [self._input(name) if name else None for name in node.inputs]
            graph = self.state.graph
            carried = next((each for each in graph.tensors if each.node == node.position), None)
            fill = None if carried is None else carried.payload.array()
            opset = dict(self.state.ledger.model.opsets).get("ai.onnx", 0)
            self.results[node.position] = operate(Operation(self.a, node, values, fill, opset))
        return self.results[node.position]

    def _count(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise UnknownError("too many steps")

    def _input(self, name: str) -> Any:
        maker = self.state.makers.get(name)
        value = self.state.file.values.get(name)
        if value is None:
            raise UnknownError(f"of {name}, which is not known")
        if maker is None or is_known(value) or self.state.is_right(maker):
            key = print_of(value)
            if key is not None:
                self.atoms.add(key)
            return real_of(value)
        return self.result(maker)[list(maker.outputs).index(name)]

    def of(self, origin: Origin) -> Any:
        """What the program gives there."""
        if origin.step is not None:
            return origin.step.again(self.a, self.value)
        return self._made(origin.value)

    def value(self, value: Any) -> Any:
        """A value of the program."""
        key = print_of(value)
        if id(value) in self.leaves or isinstance(value, Factored) or (key is not None and key in self.atoms):
            return real_of(value)
        return self._made(value)

    def _made(self, value: Any) -> Any:
        if id(value) not in self.known:
            self._count()
            drawing = self.state.drawing
            step, call = drawing.steps.get(id(value)), self.calls.get(id(value))
            if step is not None:
                found = step.again(self.a, self.value)
            elif call is not None:
                args = [self._argument(each) for each in call.args]
                kwargs = {name: self._argument(each) for name, each in call.kwargs.items()}
                made = [*values_of(OPERATORS[call.operator](self.a, *args, **kwargs))]
                place = [id(each) for each in values_of(drawing.program.values[call.name])].index(id(value))
                found = made[place]
            else:
                raise UnknownError("a value that nothing tells the making of")
            self.known[id(value)] = found
            self.kept.append(value)
        return self.known[id(value)]

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, list):
            return [self._argument(each) for each in arg]
        found = self.state.drawing.program.argument(arg)
        return self.value(found) if isinstance(found, (Field, Factored)) else found


def _apart(one: Any, other: Any) -> bool:
    """Whether two results are certainly further apart than rounding."""
    if not (is_known(one) and is_known(other)) or one is None or other is None:
        return False
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape:
        return False
    a, b = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    sound = np.isfinite(a) & np.isfinite(b)
    if not sound.any():
        return False
    size = max(float(np.abs(a[sound]).max()), float(np.abs(b[sound]).max()))
    return bool(float(np.abs(a[sound] - b[sound]).max()) > _FAR * size)
