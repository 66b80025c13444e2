"""PyTorch's calls, and a file's graph -> their values in the algebra, each computed once, in order."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from analyzer.account.ledger import Ledger
from analyzer.manifest import FOLDED, FOLDED_BIAS, PRODUCT, PROGRAM, Call, Calls, ProgramInput
from analyzer.model import Graph, Node, Place, StoredTensor, is_runtime_domain
from analyzer.model.content import decode_values
from analyzer.model.dtypes import DType
from analyzer.model.order import sorted_graph
from analyzer.model.wiring import NAMED
from analyzer.records import Mutable, field
from analyzer.verify.algebra import layers
from analyzer.verify.algebra.calls import FAILURES, call
from analyzer.verify.algebra.field import draw
from analyzer.verify.algebra.guards import is_guard
from analyzer.verify.algebra.nodes import Operation, operate
from analyzer.verify.algebra.ranges import MOST, Range, range_of, range_of_node
from analyzer.verify.algebra.stored import Stored, Weights
from analyzer.verify.algebra.values import (
    Algebra,
    Factored,
    Field,
    Rows,
    Stretch,
    UnknownError,
    Value,
    is_known,
    shape_of,
)

_SIZES = ("Shape", "Size")
_SMOOTH = frozenset(
    {
        *("Add", "Sub", "Mul", "Neg", "Pow", "Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos"),
        *("Sum", "ReduceProd", "CumSum", "MatMul", "Einsum", "Unique"),
        *("Concat", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"),
        *("Slice", "Split", "Tile", "ConstantOfShape", "Range"),
    }
)
"""Operators that make no decision of a size: any other one may turn it into one."""
_INEXACT = frozenset(
    {
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan", "Tanh"),
        *("Celu", "Elu", "Erf", "Exp", "Gelu", "Log", "Mish", "Pow", "Selu", "Sigmoid", "Softplus", "Swish"),
        *("Conv", "CumSum", "Einsum", "Gemm", "LogSoftmax", "MatMul", "Softmax"),
        *("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum"),
        *("BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization"),
        *("LpNormalization", "RMSNormalization", "ReduceSumSquare"),
    }
)
"""Operators whose result is another number on another machine: functions of libraries, and sums in any order."""
_STEPWISE = frozenset({"Ceil", "Floor", "Mod", "Round", "Sign"})
"""Operators that make other real numbers where their operand passes some numbers."""
_DOUBT = 2.0**-18
"""Relative error of a number that such operators have made."""
_LOST = 2.0**-10
"""Share of the largest term below which a sum of such numbers is mostly rounding."""
_ALWAYS_KNOWN = frozenset(
    {"CastLike", "ConstantOfShape", "Expand", "IsInf", "IsNaN", "Reshape", "Shape", "Size"}
)
"""Operators whose result is known though they read an activation: its size alone, or a fact of all real numbers."""
_DATA = {"ConstantOfShape": 0, "EyeLike": 0, "Expand": 1, "Reshape": 1, "Slice": 1, "Tile": 1}
"""Number of inputs that give the numbers of the result, where the others give its shape."""
_SHAPE = {**_DATA, "Range": 0}
"""Number of inputs before those that give the shape of the result."""
_NEUTRAL = {"Add": 0, "Sub": 0, "Sum": 0, "Mul": 1, "Div": 1, "Pow": 1}
"""Number that changes nothing as an operand, by operator."""
_CHANGING: Mapping[str, Collection[int]] = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "Pad"), (1,)),
    **dict.fromkeys(("MatMul", "Gemm", "Clip", "Max", "Min"), range(256)),
}
"""Slots of other operands that may change nothing, beside real numbers: an order, widths of 0, a matrix, a bound."""
_DIVIDING = frozenset({"Div", "Mod", "Sign"})
"""Operators of which PyTorch's exporter makes the quotient of sizes that is rounded down."""
_MOST_NODES = 200_000
_DEEPEST = 32
"""Largest depth of nested functions."""


def inputs_of(inputs: Sequence[ProgramInput], seed: int, known: Collection[str]) -> dict[str, Value]:
    """Return the inputs of the program: drawn numbers, also for integers, and for some inputs the example's, repeated.

    Args:
        inputs: inputs of the program.
        seed: seed of the drawing.
        known: names of integer inputs that take the example's numbers.

    Raises:
        UnknownError: an example that is needed was not recorded.
    """
    found: dict[str, Value] = {}
    for program_input in inputs:
        if program_input.dtype.is_floating or program_input.name not in known:
            kind = (
                "real"
                if program_input.dtype.is_floating
                else "truth"
                if program_input.dtype is DType.BOOL
                else "whole"
            )
            found[program_input.name] = Field(
                draw(program_input.shape, "input", program_input.name, seed), kind
            )
            continue
        element = program_input.dtype.to_numpy()
        if program_input.numbers is None or element is None:
            raise UnknownError(f"input {program_input.name}: no example of it was recorded")
        found[program_input.name] = np.resize(
            decode_values(program_input.numbers, element), program_input.shape
        )
    return found


class Program(Mutable):
    """Values of PyTorch's program, computed call by call."""

    a: Algebra
    calls: Calls
    weights: Weights
    inputs: Mapping[str, Value]
    values: dict[str, Any] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    """Reason why a value was not computed, by name."""
    constants: dict[str, Any] = field(default_factory=dict)
    unsupported_inputs: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    """Inputs over the field of each unsupported call whose inputs were all computed, by the call's name."""
    stand_ins: dict[str, Value] = field(default_factory=dict)
    """Random values that replace the results of such calls."""
    doubtful: dict[str, frozenset[str]] = field(default_factory=dict)
    """Names of the unsupported calls on which a value depends, by the value's name."""
    _doubts: frozenset[str] = frozenset()

    def run(
        self,
        on_result: Callable[[int, Call, Any], None] | None = None,
        *,
        goes_on: bool = False,
        stand_ins: Mapping[str, Value] | None = None,
    ) -> None:
        """Compute every call.

        Args:
            on_result: called with the index of a call, the call, and its result.
            goes_on: whether the result of an unsupported call is drawn, in the shape of its first input, as of an
                elementwise function.
            stand_ins: values that are taken for such results instead.
        """
        self.values.update(self.inputs)
        for constant in self.calls.constants:
            element = constant.dtype.to_numpy() if constant.dtype is not DType.BFLOAT16 else np.dtype("<f4")
            if constant.numbers is not None and element is not None:
                array = decode_values(constant.numbers, element).reshape(constant.shape)
                is_half = array.dtype.kind == "f" and array.dtype.itemsize == 2
                self.constants[constant.name] = array.astype(np.float32) if is_half else array
        for at, each in enumerate(self.calls.calls):
            self._doubts = frozenset()
            try:
                args = [self.argument(arg) for arg in each.args]
                kwargs = {name: self.argument(arg) for name, arg in each.kwargs.items()}
            except UnknownError as error:
                self.why[each.name] = str(error)
                continue
            try:
                self.values[each.name] = call(self.a, each.operator, args, kwargs)
            except UnknownError as error:
                self.why[each.name] = str(error)
                operands = tuple(
                    arg for arg in [*args, *kwargs.values()] if isinstance(arg, (Field, Factored))
                )
                self.unsupported_inputs[each.name] = operands
                if stand_ins is not None and each.name in stand_ins:
                    self.values[each.name] = stand_ins[each.name]
                elif self._doubts and error.__cause__ is not None:
                    continue  # the stand-in may have another shape than the value
                elif goes_on and operands and isinstance(operands[0], Field):
                    made = Field(
                        draw(operands[0].shape, "in place of", each.name, self.a.seed), operands[0].kind
                    )
                    self.values[each.name] = self.stand_ins[each.name] = made
                else:
                    continue
                self._doubts |= {each.name}
            if self._doubts:
                self.doubtful[each.name] = self._doubts
            if on_result is not None:
                on_result(at, each, self.values[each.name])

    def argument(self, arg: Any) -> Any:
        """Return the value of a call's argument.

        Raises:
            UnknownError: the value was not computed.
        """
        if isinstance(arg, list):
            return [self.argument(each) for each in arg]
        if not isinstance(arg, dict):
            return arg
        ((kind, name),) = arg.items()
        if kind == "value":
            if name not in self.values:
                raise UnknownError(f"its input {name} was not computed")
            self._doubts |= self.doubtful.get(name, frozenset())
            return self.values[name]
        if kind == "tensor":
            return self.weights.of(name)
        if kind == "constant":
            if name not in self.constants:
                raise UnknownError(f"constant {name} was not recorded")
            return self.constants[name]
        return DType[name] if kind == "dtype" else float(name)

    def value(self, name: str) -> Value | None:
        """Return a tensor of the program, a value or a constant, by its name there or in the manifest's `program`.

        `x.product` names the product to which layer x adds its bias; `x.folded` and `x.folded_bias` the weight and bias
        of a layer together with the batch normalization x behind it.
        """
        name = name.removeprefix(PROGRAM)
        found = self.values.get(name, self.constants.get(name))
        owner, _, part = name.rpartition(".")
        if found is None and part in _PARTS:
            owner_call = self._call_of(owner)
            with contextlib.suppress(UnknownError):
                found = None if owner_call is None else _PARTS[part](self, owner_call)
        return found if hasattr(found, "shape") else None

    def _call_of(self, name: str) -> Call | None:
        return next((each for each in self.calls.calls if each.name == name), None)

    def _product(self, layer_call: Call) -> Value | None:
        operands = [self.argument(arg) for arg in layer_call.args[:2]]
        found: Value | None = (
            call(self.a, layer_call.operator, operands, {}) if layer_call.operator == "linear" else None
        )
        return found

    def _folded_weight(self, norm: Call) -> Value | None:
        """Return a layer's weight, times the factor of the batch normalization behind it for each output channel."""
        layer = self._call_of(norm.args[0]["value"])
        if layer is None or norm.operator != "batch_norm":
            return None
        weight, _, _, variance = (self.argument(arg) for arg in norm.args[1:5])
        own: Value = self.argument(layer.args[1])
        axes = (1, 0, *range(2, len(shape_of(own))))
        is_first = not layer.operator.startswith("conv_transpose")  # the axis of output channels
        own = self.a.permute(own, axes) if is_first else own
        zero = np.zeros(shape_of(variance), np.float32)
        found = layers.batch_norm(self.a, own, weight, None, zero, variance, norm.args[7])
        return self.a.permute(found, axes) if is_first else found

    def _folded_bias(self, norm: Call) -> Value | None:
        """Return what the batch normalization behind a layer makes of the layer's bias alone."""
        layer = self._call_of(norm.args[0]["value"])
        if layer is None or norm.operator != "batch_norm":
            return None
        weight, bias, mean, variance = (self.argument(arg) for arg in norm.args[1:5])
        own = self.argument(layer.args[2]) if len(layer.args) > 2 else None
        own = np.zeros(shape_of(mean), np.float32) if own is None else own
        row = self.a.reshape(own, (1, -1))
        found = layers.batch_norm(self.a, row, weight, bias, mean, variance, norm.args[7])
        return self.a.reshape(found, shape_of(mean))


_PARTS: Mapping[str, Callable[[Program, Call], Value | None]] = {
    PRODUCT: Program._product,
    FOLDED: Program._folded_weight,
    FOLDED_BIAS: Program._folded_bias,
}
"""Last part of the name of a value that no call makes -> how it is computed from the call before it."""


def _is_empty(value: Value | None) -> bool:
    """Whether a tensor has no element; a sequence of tensors may have."""
    return any(0 in shape_of(each) for each in values_of(value))


def _is_real_type(node: Node) -> bool:
    """Whether a Cast makes real numbers."""
    to = node.integers.get("to")
    return to is not None and DType(to).is_floating


ResultHook = Callable[[Node, int, Value], Value]
StandIn = Callable[[Node, Sequence[Value | None]], Value | None]


class File(Mutable, dict=True):
    """Values of a file's graph, computed node by node."""

    a: Algebra
    ledger: Ledger
    stored: Stored
    inputs: Mapping[str, Value]
    """Inputs by the names of the graph."""
    on_result: ResultHook
    """Function called with each result of the main graph, its node and output index; returns the value to use."""
    values: dict[str, Value] = field(default_factory=dict)
    """Values of the main graph, by name."""
    why: dict[str, str] = field(default_factory=dict)
    """Reason why a value was not computed, by name."""
    deciding: set[int] = field(default_factory=set)
    """Positions of nodes that compute real numbers by decisions that depend on sizes."""
    recomputed: frozenset[int] = frozenset()
    """Positions of nodes that were computed again."""
    stand_in: StandIn | None = None
    """Function that replaces the result of an unsupported node, by the node and its inputs."""
    unsupported: set[int] = field(default_factory=set)
    """Positions of unsupported nodes whose inputs were all computed."""
    is_theirs: Callable[[Value], bool] = lambda _: False
    """Function that returns whether PyTorch's program computes a known value too."""

    def __post_init__(self) -> None:
        model = self.ledger.model
        self._inside: dict[Place, list[Graph]] = {}
        self._graphs = {graph.path: sorted_graph(graph, self.ledger.wiring) for graph in model.graphs}
        self._main = self._graphs[model.graphs[0].path]
        for graph in self._graphs.values():
            if graph.parent is not None:
                self._inside.setdefault(graph.parent, []).append(graph)
        self._functions = {(each.domain, each.name, each.overload): each.path for each in model.functions}
        self._opset = dict(model.opsets).get("ai.onnx", dict(model.opsets).get("", 0))
        self._sized: set[str] = set()
        """Names of values that are computed from sizes."""
        self._counted: set[str] = set()
        """Those of them whose numbers are, and not their shape alone."""
        self._decided: set[str] = set()
        """Those of them that depend on a comparison or another deciding operator."""
        self._shaped: set[str] = set()
        """Names of values whose shape depends on such a decision."""
        self._ranges: dict[str, Range] = {}
        """Ranges of values of the main graph that are computed from sizes, where they are known."""
        self._inexact: set[str] = set()
        """Names of known values that a run may round otherwise."""
        self._left = _MOST_NODES

    def run(self) -> None:
        """Compute every node."""
        self.values.update(self.inputs)
        self._graph(self._main, self.values, 0)

    def again(
        self,
        a: Algebra,
        on_result: ResultHook,
        changed: Collection[int],
        most: int | None = None,
        stand_in: StandIn | None = None,
    ) -> File:
        """Copy with other results of some nodes; compute the nodes that depend on them again, at most about `most`."""
        found = File(a, self.ledger, self.stored, self.inputs, on_result, dict(self.values), dict(self.why))
        found.stand_in, found.unsupported = stand_in or self.stand_in, set(self.unsupported)
        found.is_theirs, found._inexact = self.is_theirs, self._inexact
        found._sized, found._decided, found.deciding = self._sized, self._decided, self.deciding
        found._counted, found._ranges, found._shaped = self._counted, dict(self._ranges), self._shaped
        graph = self._main
        carried = {tensor.node: tensor for tensor in graph.tensors if tensor.node is not None}
        changed_names: set[str] = set()
        done: set[int] = set()
        for node in graph.nodes:
            if most is not None and len(done) > most:
                break
            if (
                node.position in changed
                or not changed_names.isdisjoint(node.inputs)
                or (changed_names and node.place in self._inside)
            ):
                for name in filter(None, node.outputs):
                    found.why.pop(name, None)
                    found.values.pop(name, None)
                changed_names.update(filter(None, node.outputs))
                done.add(node.position)
                found.unsupported.discard(node.position)
                found._compute(node, carried.get(node.position), found.values, 0)
        found.recomputed = frozenset(done)
        return found

    def _graph(self, graph: Graph, scope: dict[str, Value], depth: int) -> None:
        stored = {tensor.name: tensor for tensor in graph.tensors if tensor.carrier in NAMED}
        carried = {tensor.node: tensor for tensor in graph.tensors if tensor.node is not None}
        for name, tensor in stored.items():
            is_inner = graph.parent is not None  # there its own tensor hides a value outside
            if name not in scope or is_inner:
                scope.pop(name, None)
                try:
                    scope[name] = self.stored.of(tensor)
                except UnknownError as error:
                    self.why[name] = str(error)
                except FAILURES as error:
                    self.why[name] = f"{name}: {type(error).__name__}"
        for node in graph.nodes:
            if node.op_type != "Constant" or not node.outputs or node.outputs[0] not in scope:
                self._compute(node, carried.get(node.position), scope, depth)

    def _compute(self, node: Node, carried: StoredTensor | None, scope: dict[str, Value], depth: int) -> None:
        self._left -= 1
        try:
            if self._left < 0:
                raise UnknownError(f"more than {_MOST_NODES:,} nodes, counting those in functions")
            with np.errstate(all="ignore"):  # numbers that are known may divide by zero, as they do in a run
                results = self._node(node, carried, scope, depth)
            operands = [scope.get(name) if name else None for name in node.inputs]
            self._follow_rounding(node, scope, results)
            self._follow_sizes(node, operands, results, depth)
        except UnknownError as error:
            for name in filter(None, node.outputs):
                self.why.setdefault(name, str(error))
            if not depth and all(name in scope for name in node.inputs if name):
                self._replace_unsupported(node, scope)
            return
        except FAILURES as error:
            for name in filter(None, node.outputs):
                self.why.setdefault(name, f"operator {node.op_type}: {type(error).__name__}")
            return
        for place, (name, value) in enumerate(zip(node.outputs, results, strict=False)):
            if name and value is not None:
                scope[name] = value if depth else self.on_result(node, place, value)

    def _replace_unsupported(self, node: Node, scope: dict[str, Value]) -> None:
        """Go on behind an unsupported node of the main graph, if a value replaces its result."""
        self.unsupported.add(node.position)
        bodies = node.place in self._inside or (node.domain, node.op_type, node.overload) in self._functions
        operands = [scope[name] if name else None for name in node.inputs]
        value = None if self.stand_in is None or bodies else self.stand_in(node, operands)
        if value is not None and node.outputs and node.outputs[0]:
            scope[node.outputs[0]] = self.on_result(node, 0, value)

    def _follow_rounding(
        self, node: Node, scope: Mapping[str, Value], results: Sequence[Value | None]
    ) -> None:
        """Track known numbers that a run may round otherwise than numpy.

        Raises:
            UnknownError: the node makes of them what rounding may change: a truth, an integer, or a difference of which
                no digits are left.
        """
        if node.op_type == "Constant" or not all(map(is_known, values_of(results))):
            return
        is_real = any(np.asarray(value).dtype.kind == "f" for value in values_of(results))
        if node.place in self._inside or (node.domain, node.op_type, node.overload) in self._functions:
            self._inexact.update(filter(None, node.outputs if is_real else ()))
            return  # the nodes of a body were followed one by one
        doubtful = [name for name in node.inputs if name in self._inexact]
        if doubtful and (not is_real or node.op_type in _STEPWISE):
            if not self._is_settled(node, scope, results, doubtful):
                raise UnknownError(f"{node.op_type} of numbers that a run may round otherwise")
        elif doubtful and node.op_type in ("Add", "Sub", "Sum") and self._is_lost(node, scope, results):
            raise UnknownError(f"{node.op_type} of numbers that a run may round otherwise")
        elif is_real and (
            doubtful or (node.op_type in _INEXACT and node.inputs and not _is_count(node, scope))
        ):
            self._inexact.update(filter(None, node.outputs))

    def _is_settled(
        self, node: Node, scope: Mapping[str, Value], results: Sequence[Value | None], doubtful: Sequence[str]
    ) -> bool:
        """Whether a node makes the same of numbers that are slightly larger or smaller, or PyTorch makes it too."""
        for factor in (1 - _DOUBT, 1 + _DOUBT):
            operands = [
                np.asarray(scope[name]) * np.asarray(factor, np.asarray(scope[name]).dtype)
                if name in doubtful
                else scope[name]
                if name
                else None
                for name in node.inputs
            ]
            others = operate(Operation(self.a, node, operands, None, self._opset, self.stored.factor))
            pairs = zip(values_of(results), values_of(list(others)), strict=True)
            if not all(np.array_equal(np.asarray(one), np.asarray(other)) for one, other in pairs):
                return all(map(self.is_theirs, values_of(results)))
        return True

    def _is_lost(self, node: Node, scope: Mapping[str, Value], results: Sequence[Value | None]) -> bool:
        """Whether a sum is so small beside its terms that their rounding decides it, and PyTorch has no such sum."""
        (result,) = values_of(results)
        terms = np.max(
            np.stack(np.broadcast_arrays(*(np.abs(np.asarray(scope[name])) for name in node.inputs))), 0
        )
        return bool((np.abs(np.asarray(result)) < _LOST * terms).any()) and not self.is_theirs(result)

    def _follow_sizes(
        self, node: Node, operands: Sequence[Value | None], results: Sequence[Value | None], depth: int
    ) -> None:
        """Track computations that depend on decisions by sizes, as a hidden trigger at other sizes would need.

        No size need be read for one: a part of an activation that is empty at the sizes of the drawings, or a result
        that is known although its input is not, such as a triangle of zeros, may be another at others.
        """
        outputs = [name for name in node.outputs if name]
        op_type = node.op_type if node.is_standard else ""  # in another domain a name says nothing
        # of the second input of a CastLike, only the type counts
        inputs = node.inputs[:1] if op_type == "CastLike" else node.inputs
        for name in () if depth else outputs:
            self._ranges.pop(name, None)
        first = operands[0] if operands else None
        if isinstance(first, (Field, Factored)) and not _is_empty(first) and any(map(_is_empty, results)):
            self._decide(node, depth)
        if not self._counted.isdisjoint(inputs[: _DATA.get(op_type)]) or op_type in _SIZES:
            self._counted.update(outputs)
        is_decided = not (self._shaped if op_type in _SIZES else self._decided).isdisjoint(inputs)
        if self._has_decided_shape(node, operands, results):
            self._shaped.update(outputs)
        is_by_group = any(isinstance(each, (Rows, Stretch)) for each in results)
        if is_by_group or not all(map(is_known, values_of(results))):
            if (is_decided and not self._is_shaping(node, depth)) or self._is_idle(node, operands, depth):
                self._decide(node, depth)
            return
        is_drawn = op_type not in _ALWAYS_KNOWN and any(
            isinstance(each, (Field, Factored)) for each in operands
        )
        is_sized = op_type in _SIZES or not self._sized.isdisjoint(inputs)
        if is_sized or is_drawn:
            self._sized.update(outputs)
        if is_sized or is_decided or is_drawn:
            is_fixed = not depth and self._is_fixed(node, operands, results)
            is_deciding = is_drawn or (op_type not in _SIZES and self._is_deciding(node, operands))
            if is_decided or (is_deciding and not is_fixed):
                self._decided.update(outputs)

    def _is_shaping(self, node: Node, depth: int) -> bool:
        """Whether a node only arranges or repeats elements by decided sizes, as after a convolution with a stride."""
        if node.op_type != "Reshape" or not node.is_standard:
            return node.op_type == "Expand" and node.is_standard
        waiting, seen = [node.inputs[1]], {""}
        while waiting and not depth:
            maker = self._makers.get(name := waiting.pop())
            if maker is None or name in seen:
                continue
            seen.add(name)
            decided = [each for each in maker.inputs if each in self._decided]
            if not decided and maker.op_type not in _DIVIDING:
                return False
            waiting += decided
        return not depth

    def _has_decided_shape(
        self, node: Node, operands: Sequence[Value | None], results: Sequence[Value | None]
    ) -> bool:
        """Whether the shape of a result depends on a decision, and no other activation or weight has this shape."""
        if self._shaped.isdisjoint(node.inputs):
            shape = node.inputs[_SHAPE[node.op_type] :] if node.op_type in _SHAPE else ()
            is_whole = node.op_type == "Expand" and self._keeps_sizes(shape[0])
            return not (is_whole or self._decided.isdisjoint(shape))
        others = (
            each
            for name, each in zip(node.inputs, operands, strict=True)
            if isinstance(each, (Field, Factored)) and name not in self._shaped
        )
        shapes = {shape_of(each) for each in values_of(results)}
        return all(shape_of(each) not in shapes for each in others)

    def _keeps_sizes(self, name: str) -> bool:
        """Whether a shape is sizes, with 1 for each -1: torch.onnx writes `expand` so, and -1 would be an error."""
        choice = self._makers.get(name)
        if choice is None or choice.op_type != "Where":
            return False
        truth, one, sizes = choice.inputs
        equal = self._makers.get(truth)
        if equal is None or equal.op_type != "Equal" or equal.inputs[0] != sizes:
            return False
        return self._is_number(equal.inputs[1], -1) and self._is_number(one, 1)

    def _is_number(self, name: str, number: float) -> bool:
        """Whether each element of a value of the main graph is this number, at any sizes."""
        found = self._range(name, self.values.get(name))
        return found is not None and found.low == found.high == number

    def _is_fixed(
        self, node: Node, operands: Sequence[Value | None], results: Sequence[Value | None]
    ) -> bool:
        """Whether a known result is one number at any sizes, such as the truth of a mask that hides nothing."""
        if len(results) != 1:
            return False
        found = range_of_node(node, [*map(self._range, node.inputs, operands)], results[0])
        if found is not None:
            self._ranges[node.outputs[0]] = found
        return found is not None and found.is_one_number

    def _range(self, name: str, value: Value | None) -> Range | None:
        """Return the range of a value of the main graph; sizes of the graph's inputs are positive."""
        if name in self._sized or name in self._decided:
            return self._ranges.get(name)
        if not isinstance(value, Field):
            return range_of(value) if value is not None and is_known(value) else None
        is_input = name in self.inputs
        if value.kind == "truth" or value.is_place:
            return Range(0.0, 1.0 if value.kind == "truth" else MOST, is_input)
        return Range(-math.inf, math.inf) if is_input else None

    @cached_property
    def _makers(self) -> Mapping[str, Node]:
        """Node of the main graph that computes a value, by the value's name."""
        return {name: node for node in self._main.nodes for name in node.outputs if name}

    def _numbers(self, name: str) -> Any:
        """Return the numbers of a value of the main graph; None if it is not known, or depends on sizes."""
        value = self.values.get(name)
        if value is None or not is_known(value) or name in self._sized or name in self._decided:
            return None
        return np.asarray(value)

    def _is_idle(self, node: Node, operands: Sequence[Value | None], depth: int) -> bool:
        """Whether a number made of sizes may change nothing at these sizes only, as a polynomial that is 0 at them."""
        neutral = _NEUTRAL.get(node.op_type)
        is_real = any(isinstance(each, Field) and each.kind == "real" for each in operands)
        changing = _CHANGING.get(node.op_type, ()) if is_real else ()
        for slot, (name, value) in enumerate(zip(node.inputs, operands, strict=True)):
            if name not in self._counted or value is None or not is_known(value):
                continue
            if not depth and name in self._ranges and self._ranges[name].is_one_number:
                continue
            if slot in changing or (neutral is not None and bool((np.asarray(value) == neutral).all())):
                return True
        return False

    def _is_deciding(self, node: Node, operands: Sequence[Value | None]) -> bool:
        """Whether a node may turn a size into a decision: a comparison, a cut to integers, a row of a stored table."""
        if node.op_type in ("Cast", "CastLike"):
            kind, other = (
                np.asarray(each).dtype.kind if is_known(each) else "" for each in (*operands, None)[:2]
            )
            if node.op_type == "Cast":
                other = "b" if node.integers.get("to") == DType.BOOL else "f" if _is_real_type(node) else "i"
            return (kind != "b" and other == "b") or (kind == "f" and other != "f")
        if node.op_type == "Gather":  # the size of one axis, among those of all
            return node.inputs[0] not in self._sized
        if node.op_type == "Trilu":  # its diagonal decides
            return any(name in self._sized for name in node.inputs[1:])
        return not node.is_standard or node.op_type not in _SMOOTH

    def _decide(self, node: Node, depth: int) -> None:
        if depth:
            raise UnknownError("a decision by sizes in a function")
        if not is_guard(node, self._makers, self._numbers):
            self.deciding.add(node.position)

    def _node(
        self, node: Node, carried: StoredTensor | None, scope: Mapping[str, Value], depth: int
    ) -> Sequence[Value | None]:
        if any(str(value).startswith("@") for value in node.settings.values()):
            raise UnknownError("a function with attributes")
        operands: list[Value | None] = []
        for name in node.inputs:
            if name and name not in scope:
                raise UnknownError(self.why.get(name, f"its input {name} was not computed"))
            operands.append(scope[name] if name else None)
        called = self._functions.get((node.domain, node.op_type, node.overload))
        if called is not None and (node.is_standard or is_runtime_domain(node.domain)):
            raise UnknownError(f"a function in place of the standard {node.op_type}")
        if called is not None:
            return self._call(self._graphs[called], node, operands, depth)
        if node.op_type == "If" and node.place in self._inside:
            return self._choose(node, operands[0], scope, depth)
        if node.place in self._inside:
            raise UnknownError(f"operator {node.op_type}")
        if node.op_type == "Constant":
            return [self._constant(node, carried)]
        fill = None if carried is None else carried.payload.array()
        if carried is not None and (fill is None or carried.dtype.to_numpy() is None):
            raise UnknownError(f"operator {node.op_type} with a tensor of type {carried.dtype.name}")
        return operate(Operation(self.a, node, operands, fill, self._opset, self.stored.factor))

    def _constant(self, node: Node, carried: StoredTensor | None) -> Value:
        if carried is not None:
            return self.stored.of(carried)
        for key, kind in (
            ("value_float", np.float32),
            ("value_floats", np.float32),
            ("value_ints", np.int64),
        ):
            if key in node.settings:
                return np.asarray(node.settings[key], kind)
        if "value_int" in node.integers:
            return np.asarray(node.integers["value_int"], np.int64)
        raise UnknownError("a constant that is no tensor")

    def _call(
        self, graph: Graph, node: Node, arguments: Sequence[Value | None], depth: int
    ) -> list[Value | None]:
        if depth >= _DEEPEST:
            raise UnknownError("functions nested too deeply")
        # a function is told which of its inputs are sizes, or rounded
        for names in self._marks:
            names.update(own for own, name in zip(graph.inputs, node.inputs, strict=False) if name in names)
        scope = {
            name: value for name, value in zip(graph.inputs, arguments, strict=False) if value is not None
        }
        self._graph(graph, scope, depth + 1)
        self._carry_marks(graph.outputs, node.outputs)
        return [scope.get(name) for name in graph.outputs]

    def _choose(
        self, node: Node, condition: Value | None, scope: Mapping[str, Value], depth: int
    ) -> list[Value | None]:
        if not isinstance(condition, np.ndarray) or node.inputs[0] in self._sized or depth >= _DEEPEST:
            raise UnknownError("an If whose condition depends on inputs, sizes or weights")
        taken = "then_branch" if condition.reshape(-1)[0] else "else_branch"
        body = next((graph for graph in self._inside[node.place] if graph.path[-1].endswith(taken)), None)
        if body is None:
            raise UnknownError("an If without a body")
        if any(name in scope for each in body.nodes for name in each.outputs):
            raise UnknownError("an If with a result that has the name of a value outside")
        inner = dict(scope)
        self._graph(body, inner, depth + 1)
        self._carry_marks(body.outputs, node.outputs)
        return [inner.get(name) for name in body.outputs]

    @property
    def _marks(self) -> Sequence[set[str]]:
        """Return the sets of names that a function passes on."""
        return self._sized, self._counted, self._decided, self._shaped, self._inexact

    def _carry_marks(self, inner: Sequence[str], outer: Sequence[str]) -> None:
        """Note of a node's results what is noted of those of its body: that they are sizes, or rounded."""
        for names in self._marks:
            names.update(own for own, name in zip(outer, inner, strict=False) if own and name in names)


def _is_count(node: Node, scope: Mapping[str, Value]) -> bool:
    """Whether a node adds whole numbers, whose sum is exact in any order."""
    if node.op_type != "ReduceSum":
        return False
    terms = np.abs(np.asarray(scope[node.inputs[0]], np.float64))
    return bool((terms == np.rint(terms)).all() and terms.sum() < _MOST_WHOLE)


_MOST_WHOLE = 1 << 11
"""A bound of whole numbers that every type of floating-point numbers holds: float16 has 11 bits."""


def values_of(found: Any) -> Iterator[Value]:
    """Yield the tensors in the result of a call."""
    if isinstance(found, (list, tuple)):
        for each in found:
            yield from values_of(each)
    elif hasattr(found, "shape"):
        yield found
