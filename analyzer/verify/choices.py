"""Graph's edges and two runs -> choices and bounds of the file that equal outputs say little about.

Many inputs lead to one choice (ArgMin, TopK, a comparison): a wrong weight that matters only where another row would
win does not show on inputs without such a row. So the values by which a file chooses are compared themselves, with the
other side's. And an operator that bends only beyond a bound (Clip, Relu, Max) does nothing where no value is beyond it:
it is reported, unless the other side has it too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from analyzer.model.content import Array
from analyzer.records import Frozen
from analyzer.verify.parting import MOVING, STEPS, Pass, Seen, chooses, live_calls
from analyzer.verify.prints import TOLERANCE_FACTOR, Print, is_like, scale_between

_CHOOSING = STEPS | frozenset(
    {
        *("ArgMax", "ArgMin", "TopK", "NonZero", "Unique", "Cast"),
        *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    }
)
"""Operators that may map many inputs to one result; not IsNaN and IsInf, which only ask for non-finite numbers."""
COMPARING = frozenset({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
"""Operators that compare two numbers."""
_SIZES = frozenset({"Shape", "Size"})
"""Operators whose results do not depend on the numbers in their inputs."""
_ROOM = 1e-5
"""Largest distance of values from a line, relative to the largest value: both sides are rounded."""

_FEWEST_ON_LINE = 4
"""Fewest elements for which lying on one line tells anything."""

Edges = Sequence[tuple[Sequence[str], Sequence[str], str]]
"""Inputs, outputs and operator of each node that runs."""


_BENDING = frozenset(
    {
        *("Relu", "LeakyRelu", "PRelu", "ThresholdedRelu", "Clip", "Max", "Min", "Abs"),
        *("Elu", "Selu", "Celu", "HardSigmoid", "Shrink"),
    }
)
_BENT = frozenset(
    {
        *("relu", "relu6", "leaky_relu", "prelu", "rrelu", "threshold", "hardtanh"),
        *("hardsigmoid", "hardshrink", "hardswish", "softshrink", "softplus", "elu", "selu", "celu"),
        *("clamp", "clamp_min", "clamp_max", "clip", "maximum", "minimum", "max", "min"),
        *("fmax", "fmin", "abs", "absolute", "where"),
        *_BENDING,
    }
)
"""PyTorch calls that are exported as a bending operator, and those operators."""


class Bend(Frozen):
    """Node whose function is linear up to a bound, and another beyond; also any node of `find_single_output_nodes`."""

    operands: tuple[str, ...]
    operator: str
    output: str

    def has_no_effect(self, prints: Mapping[str, Print]) -> bool:
        """Whether the node returns an input unchanged, or the same number everywhere."""
        result = prints.get(self.output)
        if result is None or not result.is_float:
            return False
        inputs = [prints[name] for name in self.operands if name in prints]
        return result.high == result.low or any(_fingerprint(result) == _fingerprint(each) for each in inputs)


def _fingerprint(value: Print) -> tuple[object, ...]:
    return value.numel, value.odd, value.power, value.low, value.high, value.signs


def _dependent_nodes(
    edges: Edges, graph_inputs: Collection[str]
) -> Iterator[tuple[tuple[str, ...], Sequence[str], str]]:
    """Yield the nodes whose results depend on the graph's inputs: their operands that do too, outputs, operator."""
    dependent = {*graph_inputs}
    for inputs, outputs, op_type in edges:
        if op_type in _SIZES or not dependent.intersection(inputs):
            continue
        dependent.update(name for name in outputs if name)
        yield tuple(name for name in inputs if name in dependent and name), outputs, op_type


def find_bends(edges: Edges, graph_inputs: Collection[str], live: Collection[str]) -> list[Bend]:
    """Return the bending nodes that depend on the graph's inputs; arguments as of `find_choices`."""
    return [
        Bend(operands, op_type, outputs[0])
        for operands, outputs, op_type in _dependent_nodes(edges, graph_inputs)
        if op_type in _BENDING and outputs[0] in live
    ]


class ConstantNodes:
    """Nodes that give one number in every run though their inputs vary: a saturated sigmoid, a product with 0.

    Inputs vary within a run, or from one run to the next.
    """

    def __init__(self, nodes: Iterable[Bend]) -> None:
        self._nodes = [*nodes]
        self._operand_numbers: dict[str, float] = {}
        self._results: dict[str, float] = {}
        self._with_varied_inputs: set[str] = set()

    @property
    def needed_names(self) -> list[str]:
        """Names of the values whose prints the next run needs."""
        return [*dict.fromkeys(name for each in self._nodes for name in (*each.operands, each.output))]

    def add_run(self, prints: Mapping[str, Print]) -> None:
        """Take in the prints of one run."""
        left = []
        for node in self._nodes:
            result = prints.get(node.output)
            if (
                result is None
                or not result.is_float
                or result.odd
                or not result.numel
                or result.low != result.high
            ):
                continue
            if self._results.setdefault(node.output, result.low) != result.low:
                continue
            for name in node.operands:
                value = prints.get(name)  # an input of the graph has no print, and its values are drawn
                if (
                    value is None
                    or value.low != value.high
                    or self._operand_numbers.setdefault(name, value.low) != value.low
                ):
                    self._with_varied_inputs.add(node.output)
            left.append(node)
        self._nodes = left

    def found(self) -> list[tuple[Bend, float]]:
        """Return the nodes that gave one number in every run, with that number."""
        return [
            (each, self._results[each.output])
            for each in self._nodes
            if each.output in self._with_varied_inputs
        ]


def find_single_output_nodes(
    edges: Edges, graph_inputs: Collection[str], live: Collection[str]
) -> list[Bend]:
    """Return the single-output nodes that compute with the graph's inputs; arguments as of `find_choices`."""
    return [
        Bend(operands, op_type, outputs[0])
        for operands, outputs, op_type in _dependent_nodes(edges, graph_inputs)
        if len(outputs) == 1 and op_type not in _CHOOSING and outputs[0] in live
    ]


def is_constant_there(node: Bend, prints: Mapping[str, Print], passed: Pass) -> bool:
    """Whether a call of the other side gives this one number too; a saturating function must match by name."""
    result = prints[node.output]
    called = node.operator.lower()
    for seen in passed.seen:
        if called in _SATURATING and called not in seen.call.operator.lower().replace("_", ""):
            continue
        for print_, noise in zip(seen.prints, seen.noises, strict=True):
            tolerance = TOLERANCE_FACTOR * max(noise, 2.0**-22 * abs(result.high))
            if (
                print_.numel == result.numel
                and max(abs(print_.low - result.low), abs(print_.high - result.high)) <= tolerance
            ):
                return True
    return False


_SATURATING = frozenset(
    {
        *("sigmoid", "tanh", "erf", "exp", "softplus", "softsign", "gelu", "swish", "mish", "silu"),
        *("softmax", "logsoftmax", "quickgelu", "fastgelu", "hardswish", "pow", "reciprocal", "sqrt"),
    }
)


def is_bent_there(bend: Bend, prints: Mapping[str, Print], passed: Pass) -> bool:
    """Whether a call of the other side bends too, and gives the same value."""
    result = prints[bend.output]
    for seen in passed.seen:
        for print_, noise in zip(seen.prints, seen.noises, strict=True):
            if seen.call.operator in _BENT and print_.numel == result.numel:
                if result.high == result.low:
                    tolerance = TOLERANCE_FACTOR * max(noise, 2.0**-22 * abs(result.high))
                    if max(abs(print_.low - result.low), abs(print_.high - result.high)) <= tolerance:
                        return True
                elif is_like(print_, result, noise) is not None:
                    return True
    return False


class Choice(Frozen):
    """Node that chooses by one of its operands."""

    operand: str
    """Name of the value by which the node chooses."""
    operator: str
    outputs: tuple[str, ...]

    def is_choice(self, prints: Mapping[str, Print]) -> bool:
        """Whether the operand is float and the result is coarser: no float, or a step function."""
        operand_print = prints.get(self.operand)
        results = [prints[name] for name in self.outputs if name in prints]
        is_less = self.operator in STEPS or any(not each.is_float for each in results)
        return operand_print is not None and operand_print.is_float and is_less


def find_choices(edges: Edges, graph_inputs: Collection[str], live: Collection[str]) -> list[Choice]:
    """Return the choices that depend on the graph's inputs, and on which an output depends.

    Args:
        edges: nodes that run, in their order.
        graph_inputs: names of the graph's inputs.
        live: names of the values that an output depends on.
    """
    return [
        Choice(name, op_type, tuple(filter(None, outputs)))
        for operands, outputs, op_type in _dependent_nodes(edges, graph_inputs)
        if op_type in _CHOOSING and any(name in live for name in outputs)
        for name in operands
        if name in live
    ]


def is_explained(value: Print, passed: Pass, kernels: float = 0.0) -> bool:
    """Whether some call of the other side gives a value, or the value times one number.

    Args:
        value: print of the file's value.
        passed: the other side's pass.
        kernels: error of the value in addition to rounding (root mean square).
    """
    return any(_gives(seen, value, kernels) for seen in passed.seen)


def _gives(seen: Seen, value: Print, kernels: float) -> bool:
    for print_, noise in zip(seen.prints, seen.noises, strict=True):
        if print_.numel != value.numel or not print_.is_float:
            continue
        if is_like(print_, value, noise, kernels=kernels) is not None:
            return True
        if print_.is_identifiable and scale_between(print_, value) is not None:
            return True
    return False


def find_thresholds(choices: Iterable[Choice]) -> list[Choice]:
    """Return the comparisons of a value that depends on inputs with one that does not."""
    found: dict[tuple[str, ...], list[Choice]] = {}
    for each in choices:
        if each.operator in COMPARING:
            found.setdefault(each.outputs, []).append(each)
    return [one for one, *others in found.values() if not others]


def is_chosen_there(value: Print, passed: Pass, kernels: float = 0.0) -> bool:
    """Whether the other side chooses by a value, or bends it; arguments as of `is_explained`."""
    reached = set[int]()
    for seen in passed.seen:
        is_read = not reached.isdisjoint(seen.call.parents)
        if is_read and (chooses(seen) or seen.call.operator in _BENT):
            return True
        if _gives(seen, value, kernels) or (is_read and seen.call.operator in MOVING):
            reached.add(seen.call.number)
    return False


def find_unread(passed: Pass, operands: Sequence[tuple[Print, float]]) -> Iterator[tuple[Seen, Seen]]:
    """Yield calls by which the other side chooses and the file does not, each with the choice.

    Args:
        passed: the other side's pass.
        operands: prints of the values by which the file chooses, each with its error in addition to rounding.
    """
    live = live_calls(passed)
    behind: dict[int, Seen] = {}
    for each in reversed(passed.seen):
        number = each.call.number
        choice = behind.pop(number, None)
        if choice is not None and each.is_identifiable:
            if not any(_gives(each, *operand) for operand in operands):
                yield each, choice
            choice = None
        if number in live and chooses(each):
            choice = choice or each
        if choice is not None:
            behind.update((parent, choice) for parent in each.call.parents if parent < number)


def keeps_order(one: Array, other: Array, axis: int | None) -> bool | None:
    """Whether `other` is known to rise, or to fall, with `one`, so that both lead to the same choice on any input.

    This holds where `other` is a linear function of `one`, or of its square, root, exponential, logarithm, sigmoid,
    logit, tanh or reciprocal: over all elements (a square root left out before ArgMin), or over the elements among
    which one is chosen (a softmax). An equal order on some inputs proves nothing. None where elements cannot be
    paired.

    Args:
        one: array of any shape.
        other: array of the same shape but for axes of one element.
        axis: axis of `other` along which one is chosen; None where it is unknown, or each element is judged by itself.
    """
    shape = [size for size in one.shape if size != 1]
    if shape != [size for size in other.shape if size != 1]:
        return None
    a, b = (each.reshape(shape).astype(np.float64) for each in (one, other))
    if not np.isfinite(a).all() or not np.isfinite(b).all():
        return False
    ways = [(a.reshape(1, -1), b.reshape(1, -1))]
    if axis is not None and -other.ndim <= axis < other.ndim and other.shape[axis] != 1:
        at = sum(size != 1 for size in other.shape[: axis % other.ndim])
        ways.append((np.moveaxis(a, at, -1), np.moveaxis(b, at, -1)))
    with np.errstate(all="ignore"):
        return any(_is_line(make(x), y) for x, y in ways for make in _RISING)


_Reals = npt.NDArray[np.float64]
_RISING: tuple[Callable[[_Reals], _Reals], ...] = (
    lambda x: x,
    np.exp,
    np.log,
    np.sqrt,
    lambda x: np.where(x < 0, np.nan, x * x),
    lambda x: 1 / (1 + np.exp(-x)),
    lambda x: np.log(x / (1 - x)),
    np.tanh,
    lambda x: np.where(x > 0, -1 / x, np.nan),
)
"""Functions that rise wherever they give numbers."""


def _is_line(one: _Reals, other: _Reals) -> bool:
    """Whether `other` is a linear function of `one` in each row, rising in all rows or falling in all."""
    if not np.isfinite(one).all() or one.shape[-1] < _FEWEST_ON_LINE:
        return False
    x, y = (each - each.mean(-1, keepdims=True) for each in (one, other))
    slope = (x * y).sum(-1, keepdims=True) / (x * x).sum(-1, keepdims=True)
    off = np.abs(y - slope * x).max()
    return bool((off <= _ROOM * np.abs(other).max()) and ((slope > 0).all() or (slope < 0).all()))
