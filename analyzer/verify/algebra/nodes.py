"""ONNX's operators, and onnxruntime's fused ones -> their computation in the algebra.

ONNX docs/Operators.md, onnxruntime docs/ContribOperators.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np

from analyzer.model import Node
from analyzer.model.dtypes import DType
from analyzer.records import Frozen, replace
from analyzer.verify.algebra import calls, codes, layers, places, recurrent, resizing
from analyzer.verify.algebra.values import (
    Algebra,
    Array,
    Rows,
    Stretch,
    UnknownError,
    Value,
    is_known,
    number,
    shape_of,
)

_PLAIN = ("", "ai.onnx")
_FUSED = "com.microsoft"


class Operation(Frozen):
    """A node with its input values."""

    a: Algebra
    node: Node
    values: Sequence[Value | None]
    """Inputs of the node; None for one that is left out."""
    fill: Array | None
    """Tensor among its attributes."""
    opset: int
    factors: Callable[[float], Value | None] = lambda _: None
    """Function that returns the program's value for a number among the attributes that a fusion took from a weight."""

    def at(self, slot: int) -> Value:
        """Return a required input.

        Raises:
            UnknownError: the node does not have it.
        """
        value = self.maybe(slot)
        if value is None:
            raise UnknownError(f"{self.node.op_type} without its input {slot}")
        return value

    def maybe(self, slot: int) -> Value | None:
        """Return an input, or None."""
        return self.values[slot] if slot < len(self.values) else None

    def numbers(self, slot: int) -> list[int]:
        """Return integers that must be known: a shape, axes.

        Raises:
            UnknownError: they depend on weights or real inputs.
        """
        value = self.at(slot)
        if not is_known(value):
            raise UnknownError(f"{self.node.op_type} with numbers that depend on weights or inputs")
        return [int(each) for each in np.asarray(value).reshape(-1)]

    def integer(self, name: str, usual: int) -> int:
        """Return an integer attribute, `usual` by default."""
        return self.node.integers.get(name, usual)

    def real(self, name: str, usual: float) -> float:
        """Return a float attribute in single precision, `usual` by default."""
        found = self.node.settings.get(name, usual)
        if not isinstance(found, (int, float)):
            raise UnknownError(f"{self.node.op_type} with {name} {found}")
        return float(number(found))

    def text(self, name: str, usual: str) -> str:
        """Return a string attribute, `usual` by default."""
        return str(self.node.settings.get(name, usual))

    def integer_list(self, name: str) -> list[int]:
        """Return an attribute of integers; empty without one."""
        return list(self.node.axes(name))

    def axes(self, slot: int, value: Value) -> list[int]:
        """Return axes, from an attribute or an input; all axes without either."""
        rank = len(shape_of(value))
        listed = self.integer_list("axes") or (self.numbers(slot) if self.maybe(slot) is not None else [])
        return [axis % rank for axis in listed] if listed else list(range(rank))


def is_real(value: Value) -> bool:
    """Whether a value holds real numbers, and not integers or booleans."""
    return value.dtype.kind == "f" if is_known(value) else value.kind == "real"  # type: ignore[union-attr]


def operate(operation: Operation) -> Sequence[Value | None]:
    """Compute the outputs of a node.

    Raises:
        UnknownError: the algebra does not support the operator, or not with these inputs.
    """
    node = operation.node
    table = PLAIN if node.domain in _PLAIN else FUSED if node.domain == _FUSED else {}
    compute = table.get(node.op_type)
    if compute is None:
        raise UnknownError(f"operator {node.op_type}")
    unread = {*node.integers, *node.settings} - READ.get(node.op_type, NOTHING) - _HARMLESS
    if unread or len([value for value in operation.values if value is not None]) > INPUTS.get(
        node.op_type, _MANY
    ):
        reason = f" with {', '.join(sorted(unread))}" if unread else " with too many inputs"
        raise UnknownError(f"operator {node.op_type}{reason}")
    odd = [name for name in _BOOLEAN_ATTRIBUTES if node.integers.get(name, 0) not in (0, 1)]
    if odd:
        raise UnknownError(f"operator {node.op_type} with {odd[0]} {node.integers[odd[0]]}")
    if operation.opset < _OLDEST and node.domain in _PLAIN:
        raise UnknownError(f"operator {node.op_type} of operator set {operation.opset}")
    for names, is_usual in ((_ORDERING, _has_numbers), (_OF_FINITE, _is_finite)):
        if node.op_type in names and not all(map(is_usual, operation.values)):
            raise UnknownError(f"operator {node.op_type} of numbers that are infinite or none")
    try:
        found = compute(_in_single(operation))
    except calls.FAILURES as error:
        raise UnknownError(f"operator {node.op_type} with these inputs ({type(error).__name__})") from error
    results = found if isinstance(found, (list, tuple)) else [found]
    return [_in_own_type(operation, slot, value) for slot, value in enumerate(results)]


_HALF = np.dtype(np.float16)
_COMPARISONS = frozenset({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsInf", "IsNaN"})
_TRUTHS = _COMPARISONS | {"And", "Or", "Xor", "Not"}
"""Operators that return booleans."""
_PLACES = frozenset({"Shape", "Size", "NonZero", "ArgMax", "ArgMin"})
"""Operators that return sizes and indices, which are int64."""
_SEQUENCES = frozenset({"SequenceAt", "SequenceConstruct", "SplitToSequence"})
_OF_OWN_TYPE = _SEQUENCES | {"Cast", "CastLike", "ConstantOfShape", "DynamicQuantizeLinear", "EyeLike"}
"""Operators that choose the type themselves, or keep it."""
_TYPED_BY: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Pow", "Range", "Resize"), (0,)),
    **dict.fromkeys(("DequantizeLinear",), (1,)),
    **dict.fromkeys(("MatMulIntegerToFloat", "OneHot"), (2,)),
    "Where": (1, 2),
}
"""Inputs that have the type of the result, if these are not all."""
_NARROWED = frozenset({"CumSum", "ReduceSum", "ReduceProd"})
"""Sums and products of integers, which numpy returns as int64. onnxruntime wraps a CumSum, and no other overflows here.
"""
_ORDERING = frozenset(
    {"ArgMax", "ArgMin", "Clip", "Max", "MaxPool", "Min", "ReduceMax", "ReduceMin", "Relu", "Sign", "TopK"}
)
"""Operators that order numbers, where ONNX does not say what NaN gives."""
_OF_FINITE = frozenset({"LogSoftmax", "MaxPool", "ReduceLogSumExp", "Resize"})
"""Operators that onnxruntime computes by other steps, with other results for infinite numbers."""


def _in_single(operation: Operation) -> Operation:
    """Return the operation with its known numbers of half precision in single, in which all is computed."""
    if operation.node.op_type in _OF_OWN_TYPE or not any(map(_is_half, operation.values)):
        return operation
    values = [np.asarray(each, np.float32) if _is_half(each) else each for each in operation.values]
    return replace(operation, values=values)


def _has_numbers(value: object) -> bool:
    return not _is_real_array(value) or not np.isnan(value).any()


def _is_finite(value: object) -> bool:
    return not _is_real_array(value) or bool(np.isfinite(value).all())


def _is_real_array(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _is_half(value: object) -> bool:
    return getattr(value, "dtype", None) == _HALF


def _in_own_type(operation: Operation, slot: int, value: Any) -> Any:
    """Return a known result in its type by ONNX, in which a run computes it.

    Raises:
        UnknownError: it was computed in another type, and a run may give another number.
    """
    dtype = getattr(value, "dtype", None)
    expected = _type_of_result(operation, slot)
    if dtype is None or expected is None or dtype == expected:
        return value
    array = np.asarray(value)
    with np.errstate(all="ignore"):
        made = array.astype(expected)
    if dtype.kind == expected.kind == "f" and expected.itemsize < dtype.itemsize:
        return made
    if dtype.kind in "iu" and expected.kind in "iu" and operation.node.op_type in _NARROWED:
        return made
    raise UnknownError(f"{operation.node.op_type} of {expected}, which is computed as {dtype} here")


def _type_of_result(operation: Operation, slot: int) -> np.dtype[Any] | None:
    """Return the type of a result by ONNX; None if no known input gives it."""
    name = operation.node.op_type
    if name in _OF_OWN_TYPE:
        return None
    if name in _TRUTHS:
        return np.dtype(bool)
    if name in _PLACES or (name == "TopK" and slot == 1):
        return np.dtype(np.int64)
    slots = _TYPED_BY.get(name, range(len(operation.values)))
    typed = [operation.values[each] for each in slots if each < len(operation.values)]
    found: list[np.dtype[Any]] = [each.dtype for each in typed if isinstance(each, (np.ndarray, np.generic))]
    if not found or (name not in ("Concat", "Where") and not is_known(typed[0])):
        return None
    # A number that stands for PyTorch's own, before a converter rounded it, is no half.
    is_rounded = found[0] == _HALF and all(each == _HALF for each in found if each.kind == "f")
    return found[0] if is_rounded or found[0] != _HALF else None


NOTHING: frozenset[str] = frozenset()
_OLDEST = 9
_HARMLESS = frozenset({"stash_type", "storage_order", "saturate", "name", "momentum", "consumed_inputs"})
"""Attributes that change no value, or only its rounding."""
_BOOLEAN_ATTRIBUTES = (
    *("allowzero", "antialias", "ceil_mode", "count_include_pad", "exclude_outside", "exclusive", "fmod"),
    *("input_forget", "interleaved", "is_causal", "keepdims", "largest", "linear_before_reset", "reverse"),
    *("noop_with_empty_axes", "saturate", "select_last_index", "sorted", "training_mode", "transA"),
    *("transB", "transBatchA", "transBatchB", "unidirectional", "upper"),
)
"""Attributes that are 0 or 1; other numbers have no defined meaning."""
_AXES = frozenset({"axes", "keepdims", "noop_with_empty_axes"})
_WINDOWS = frozenset({"kernel_shape", "strides", "pads", "dilations", "auto_pad"})
_RECURRENT = frozenset({"activations", "clip", "direction", "hidden_size", "layout"})
READ: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"), _AXES
    ),
    **dict.fromkeys(("ReduceSumSquare", "ReduceLogSumExp"), _AXES),
    **dict.fromkeys(
        ("Softmax", "LogSoftmax", "Concat", "Flatten", "Gather", "GatherElements"), frozenset({"axis"})
    ),
    "ArgMax": frozenset({"axis", "keepdims", "select_last_index"}),
    "ArgMin": frozenset({"axis", "keepdims", "select_last_index"}),
    "Attention": frozenset({"is_causal", "scale", "softcap", "qk_matmul_output_mode"}),
    "AveragePool": frozenset({*_WINDOWS, "ceil_mode", "count_include_pad"}) - {"dilations"},
    "BatchNormalization": frozenset({"epsilon", "training_mode"}),
    "Cast": frozenset({"to"}),
    "Celu": frozenset({"alpha"}),
    "Clip": frozenset({"min", "max"}),
    "ConstantOfShape": frozenset({"value"}),
    "Conv": _WINDOWS | {"group"},
    "ConvTranspose": _WINDOWS | {"group", "output_padding", "output_shape"},
    "CumSum": frozenset({"exclusive", "reverse"}),
    "DepthToSpace": frozenset({"blocksize", "mode"}),
    "Dropout": frozenset({"ratio", "seed"}),
    "ConvInteger": _WINDOWS | {"group"},
    "DequantizeLinear": frozenset({"axis", "block_size", "output_dtype"}),
    "Einsum": frozenset({"equation"}),
    "Elu": frozenset({"alpha"}),
    "EyeLike": frozenset({"dtype", "k"}),
    "FusedConv": _WINDOWS | {"group", "activation", "activation_params"},
    "FusedMatMul": frozenset({"alpha", "transA", "transB", "transBatchA", "transBatchB"}),
    "GRU": _RECURRENT | {"linear_before_reset"},
    "GatherND": frozenset({"batch_dims"}),
    "Gelu": frozenset({"approximate"}),
    "Gemm": frozenset({"alpha", "beta", "transA", "transB"}),
    "GroupNormalization": frozenset({"epsilon", "num_groups"}),
    "HardSigmoid": frozenset({"alpha", "beta"}),
    "InstanceNormalization": frozenset({"epsilon"}),
    "LSTM": _RECURRENT | {"input_forget"},
    "LayerNormalization": frozenset({"axis", "epsilon"}),
    "LeakyRelu": frozenset({"alpha"}),
    "LpNormalization": frozenset({"axis", "p"}),
    "MatMulNBits": frozenset({"K", "N", "bits", "block_size", "accuracy_level"}),
    "MaxPool": _WINDOWS | {"ceil_mode"},
    "Mod": frozenset({"fmod"}),
    "MultiHeadAttention": frozenset({"num_heads", "scale", "unidirectional", "mask_filter_value"}),
    "OneHot": frozenset({"axis"}),
    "Pad": frozenset({"mode", "pads"}),
    "QuickGelu": frozenset({"alpha"}),
    "RMSNormalization": frozenset({"axis", "epsilon"}),
    "RNN": _RECURRENT,
    "Reshape": frozenset({"allowzero", "shape"}),
    "Resize": frozenset(
        {
            *("mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "antialias", "axes"),
            *("exclude_outside", "extrapolation_value", "keep_aspect_ratio_policy"),
        }
    ),
    "RotaryEmbedding": frozenset({"interleaved", "num_heads", "rotary_embedding_dim", "scale"}),
    "ScatterElements": frozenset({"axis", "reduction"}),
    "ScatterND": frozenset({"reduction"}),
    "Selu": frozenset({"alpha", "gamma"}),
    "Shape": frozenset({"start", "end"}),
    "SimplifiedLayerNormalization": frozenset({"axis", "epsilon"}),
    "SkipLayerNormalization": frozenset({"epsilon"}),
    "SkipSimplifiedLayerNormalization": frozenset({"epsilon"}),
    "Slice": frozenset({"starts", "ends", "axes"}),
    "SpaceToDepth": frozenset({"blocksize"}),
    "SplitToSequence": frozenset({"axis", "keepdims"}),
    "Split": frozenset({"axis", "split", "num_outputs"}),
    "Squeeze": frozenset({"axes"}),
    "Swish": frozenset({"alpha"}),
    "TopK": frozenset({"axis", "largest", "sorted"}),
    "Transpose": frozenset({"perm"}),
    "Trilu": frozenset({"upper"}),
    "Unsqueeze": frozenset({"axes"}),
}
"""Attributes that are read for each operator; a node with any other is unsupported."""
_MANY = 1 << 30
INPUTS: dict[str, int] = {"MultiHeadAttention": 5, "Attention": 4, "RotaryEmbedding": 4, "Resize": 4}
"""Number of inputs that are supported, for operators with more."""
PLAIN: dict[str, Callable[[Operation], Any]] = {}
FUSED: dict[str, Callable[[Operation], Any]] = {}


def _plain(*names: str) -> Callable[[Callable[[Operation], Any]], Callable[[Operation], Any]]:
    def note(made: Callable[[Operation], Any]) -> Callable[[Operation], Any]:
        for name in names:
            PLAIN[name] = made
        return made

    return note


def _fused(*names: str) -> Callable[[Callable[[Operation], Any]], Callable[[Operation], Any]]:
    def note(made: Callable[[Operation], Any]) -> Callable[[Operation], Any]:
        for name in names:
            FUSED[name] = made
        return made

    return note


# operators that PyTorch has too, each with its name there

for _name, _call_name in {
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Tanh": "tanh",
    "Erf": "erf",
    "Abs": "abs",
    "Sign": "sign",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Relu": "relu",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Atan": "atan",
    "Asin": "asin",
    "Acos": "acos",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
    "Neg": "neg",
    "Reciprocal": "reciprocal",
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Mish": "mish",
    "Identity": "clone",
    "Equal": "eq",
    "Less": "lt",
    "LessOrEqual": "le",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "Not": "logical_not",
    "Where": "where",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseNot": "bitwise_not",
}.items():

    def _alike(operation: Operation, call_name: str = _call_name) -> Value:
        found: Value = calls.OPERATORS[call_name](operation.a, *operation.values)
        return found

    if _call_name:
        PLAIN[_name] = _alike


@_plain("Pow")
def _pow(o: Operation) -> Any:
    base, exponent = o.at(0), o.at(1)
    if not is_real(base) and not (is_known(exponent) and np.asarray(exponent).dtype.kind in "iu"):
        raise UnknownError("a power of integers")
    if is_known(base) and is_known(exponent) and np.asarray(base).dtype.kind in "iu":
        limits = np.iinfo(np.asarray(base).dtype)
        with np.errstate(all="ignore"):
            made = np.power(np.asarray(base, np.float64), np.asarray(exponent, np.float64))
        is_exact = (np.abs(made) < _MOST_EXACT) & (made >= limits.min) & (made <= limits.max)
        if np.asarray(exponent).dtype.kind == "f" or (np.asarray(exponent) < 0).any() or not is_exact.all():
            raise UnknownError("a power of integers that is none, or is too large")
        return np.asarray(made).astype(limits.dtype)
    return o.a.raise_to(base, exponent)


_MOST_EXACT = float(1 << 53)
"""Bound below which double precision, in which onnxruntime computes some functions of integers, has all of them."""


def _is_exact(value: Any) -> bool:
    """Whether double precision has each of some known numbers, if they are integers."""
    array = np.asarray(value)
    return array.dtype.kind == "f" or bool((np.abs(array.astype(np.float64)) < _MOST_EXACT).all())


@_plain("PRelu")
def _prelu(o: Operation) -> Value:
    return o.a.function("leaky relu", o.at(0), o.at(1))


@_plain("Dropout")
def _dropout(o: Operation) -> Value:
    trains = o.maybe(2)
    if trains is not None and not (is_known(trains) and not np.asarray(trains).any()):
        raise UnknownError("Dropout in training")
    return o.at(0)


@_plain("IsInf")
def _is_inf(o: Operation) -> Value:
    return o.a.function("isinf", o.at(0))


@_plain("IsNaN")
def _is_nan(o: Operation) -> Value:
    return o.a.function("isnan", o.at(0))


@_plain("Div")
def _div(o: Operation) -> Any:
    one, two = o.at(0), o.at(1)
    if is_known(one) and is_known(two) and np.asarray(one).dtype.kind in "iu":
        a, b = np.asarray(one), np.asarray(two)
        if not b.all() or (a.dtype.kind == "i" and ((b == -1) & (a == np.iinfo(a.dtype).min)).any()):
            raise UnknownError("a quotient of integers that is none")
        quotient = a // b
        return (quotient + ((quotient < 0) & (quotient * b != a))).astype(a.dtype)
    if not (is_real(one) or is_real(two)):
        return calls.whole_quotient(o.a, one, two)
    if is_known(two) and not is_known(one) and not np.asarray(two).all():
        raise UnknownError("a division by zero")
    return o.a.divide(one, two)


@_plain("Mod")
def _mod(o: Operation) -> Value:
    if not is_known(o.at(0)) or not is_known(o.at(1)):
        if o.integer("fmod", 0):
            raise UnknownError("Mod with fmod=1")
        return o.a.function("remainder", o.at(0), o.at(1))
    made = np.fmod if o.integer("fmod", 0) else np.remainder
    if np.asarray(o.at(1)).dtype.kind in "iu" and not np.asarray(o.at(1)).all():
        raise UnknownError("a remainder of a division by zero")
    if made is np.fmod and not all(map(_is_exact, (o.at(0), o.at(1)))):
        raise UnknownError("a remainder of integers beyond double precision")
    return np.asarray(made(np.asarray(o.at(0)), np.asarray(o.at(1))))


def _one_by_one(name: str, made: Callable[[Algebra, Value, Value], Value]) -> None:
    def compute(o: Operation) -> Value:
        found = o.at(0)
        for slot in range(1, len(o.values)):
            found = made(o.a, found, o.at(slot))
        return found

    PLAIN[name] = compute


_one_by_one("Sum", lambda a, one, other: a.add(one, other))
_one_by_one("Max", lambda a, one, other: a.greatest(one, other))
_one_by_one("Min", lambda a, one, other: a.least(one, other))


@_plain("Clip")
def _clip(o: Operation) -> Value:
    low, high = o.maybe(1), o.maybe(2)
    if "min" in o.node.settings:
        low = number(o.real("min", 0))
    if "max" in o.node.settings:
        high = number(o.real("max", 0))
    if low is not None and is_known(low) and np.asarray(low).dtype == np.float32:
        low = None if (np.asarray(low) <= np.finfo(np.float32).min).all() else low
    return o.a.clamp(o.at(0), low, high)


@_plain("LeakyRelu")
def _leaky(o: Operation) -> Value:
    return o.a.function("leaky relu", o.at(0), number(o.real("alpha", 0.01)))


@_plain("Elu")
def _elu(o: Operation) -> Value:
    return layers.elu(o.a, o.at(0), o.real("alpha", 1.0), 1, number(1))


@_plain("Celu")
def _celu(o: Operation) -> Value:
    alpha = o.real("alpha", 1.0)
    if alpha <= 0:
        raise UnknownError("Celu divides by an alpha that is not above 0")
    return layers.elu(o.a, o.at(0), alpha, 1, o.a.invert(number(alpha)))


@_plain("Selu")
def _selu(o: Operation) -> Value:
    alpha, gamma = o.real("alpha", layers.SELU[0]), o.real("gamma", layers.SELU[1])
    return layers.elu(o.a, o.at(0), alpha, gamma, number(1))


@_plain("HardSigmoid")
def _hard_sigmoid(o: Operation) -> Value:
    return layers.hard_sigmoid(o.a, o.at(0), o.real("alpha", 0.2), o.real("beta", 0.5))


@_plain("HardSwish")
def _hard_swish(o: Operation) -> Value:
    return o.a.multiply(o.at(0), layers.hard_sigmoid(o.a, o.at(0)))


@_plain("Gelu")
def _gelu(o: Operation) -> Value:
    return layers.gelu(o.a, o.at(0), o.text("approximate", "none"))


@_plain("Swish")
def _swish(o: Operation) -> Value:
    scaled = o.a.multiply(o.at(0), number(o.real("alpha", 1.0)))
    return o.a.multiply(o.at(0), o.a.function("sigmoid", scaled))


@_plain("Softmax")
def _softmax(o: Operation) -> Value:
    value = o.at(0)
    if o.opset >= 13 or o.integer("axis", 1) in (-1, len(shape_of(value)) - 1):
        return o.a.softmax(value, o.integer("axis", -1) % len(shape_of(value)))
    return _over_rest(o, Algebra.softmax)


@_plain("LogSoftmax")
def _log_softmax(o: Operation) -> Value:
    value = o.at(0)
    if o.opset >= 13 or o.integer("axis", 1) in (-1, len(shape_of(value)) - 1):
        return layers.log_softmax(o.a, value, o.integer("axis", -1) % len(shape_of(value)))
    return _over_rest(o, layers.log_softmax)


def _over_rest(o: Operation, made: Callable[[Algebra, Value, int], Value]) -> Value:
    """Apply a function as before version 13: over all axes from one on."""
    shape = shape_of(o.at(0))
    axis = o.integer("axis", 1) % len(shape)
    flat = o.a.reshape(o.at(0), (math.prod(shape[:axis]), -1))
    return o.a.reshape(made(o.a, flat, 1), shape)


# types


@_plain("Cast")
def _cast(o: Operation) -> Any:
    dtype = DType(o.integer("to", 1))
    found = dtype.to_numpy()
    is_real = dtype in (DType.FLOAT, DType.DOUBLE, DType.FLOAT16, DType.BFLOAT16)
    if found is None or not (is_real or (found.kind in "biu" and not dtype.is_floating)):
        raise UnknownError(f"a cast to {dtype.name}")
    return _to(o, found)


@_plain("CastLike")
def _cast_like(o: Operation) -> Any:
    like: Any = o.at(1)
    if not is_known(like):
        if like.kind == "whole":
            raise UnknownError("a cast to integers of an unknown type")
        return _to(o, np.dtype(np.float32 if like.kind == "real" else bool))
    if like.dtype.kind not in "biuf" or (like.dtype.kind in "iu" and like.dtype.itemsize == 1):
        raise UnknownError("a cast to a type that may be of less than a byte")
    return _to(o, like.dtype)


def _to(o: Operation, dtype: np.dtype[Any]) -> Any:
    """Cast to a type. Half precision counts as single for all but known numbers, which it may not round.

    Raises:
        UnknownError: half precision rounds known numbers, or they have no defined integer.
    """
    value = o.at(0)
    if not is_known(value):
        return o.a.cast(value, dtype.kind, np.dtype(np.float32) if dtype == _HALF else dtype)
    array = np.asarray(value)
    with np.errstate(all="ignore"):
        made = array.astype(dtype)
    if dtype == _HALF and ((made != array) & np.isfinite(made)).any():
        raise UnknownError("numbers that half precision rounds")
    if dtype.kind in "iu" and array.dtype.kind not in "biu":
        whole, limits = np.trunc(array.astype(np.float64)), np.iinfo(dtype)
        is_below = whole < limits.min
        if dtype.kind == "i" and dtype.itemsize >= 4:  # the least integer, on x86 and ARM: T5 casts log(0)
            made, whole = np.where(is_below, dtype.type(limits.min), made), np.where(is_below, 0, whole)
        if not ((whole >= limits.min) & (whole < float(limits.max) + (dtype.itemsize < 8))).all():
            raise UnknownError(f"a cast to {dtype} of numbers beyond it")
    return made


# shapes and moves


@_plain("Shape")
def _shape(o: Operation) -> Value:
    start, end = o.integer("start", 0), o.node.integers.get("end")
    return np.array(shape_of(o.at(0))[start:end], np.int64)


@_plain("Size")
def _size(o: Operation) -> Value:
    return np.array(math.prod(shape_of(o.at(0))), np.int64)


@_plain("Reshape")
def _reshape(o: Operation) -> Value:
    sizes = o.numbers(1) if len(o.values) > 1 else o.integer_list("shape")
    own = shape_of(o.at(0))
    if not o.integer("allowzero", 0):
        sizes = [own[at] if size == 0 else size for at, size in enumerate(sizes)]
    return o.a.reshape(o.at(0), sizes)


@_plain("Flatten")
def _flatten(o: Operation) -> Value:
    shape = shape_of(o.at(0))
    axis = o.integer("axis", 1)
    return o.a.reshape(o.at(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


@_plain("Transpose")
def _transpose(o: Operation) -> Value:
    return o.a.permute(o.at(0), o.integer_list("perm") or range(len(shape_of(o.at(0))))[::-1])


@_plain("Unsqueeze")
def _unsqueeze(o: Operation) -> Value:
    axes = o.integer_list("axes") or o.numbers(1)
    rank = len(shape_of(o.at(0))) + len(axes)
    at = {axis % rank for axis in axes}
    sizes = iter(shape_of(o.at(0)))
    return o.a.reshape(o.at(0), [1 if axis in at else next(sizes) for axis in range(rank)])


@_plain("Squeeze")
def _squeeze(o: Operation) -> Value:
    shape = shape_of(o.at(0))
    axes = o.integer_list("axes") or (o.numbers(1) if o.maybe(1) is not None else [])
    removed = {axis % len(shape) for axis in axes} or {axis for axis, size in enumerate(shape) if size == 1}
    return o.a.reshape(o.at(0), [size for axis, size in enumerate(shape) if axis not in removed])


@_plain("Expand")
def _expand(o: Operation) -> Value:
    return o.a.expand(o.at(0), o.numbers(1))


@_plain("Tile")
def _tile(o: Operation) -> Value:
    return calls.tile(o.a, o.at(0), o.numbers(1))


@_plain("MatMul")
def _matmul(o: Operation) -> Any:
    rows: Any = o.at(0)
    if isinstance(rows, Rows):
        if len(shape_of(rows.of)) != 2 or len(shape_of(o.at(1))) != 2:
            raise UnknownError("a product with an unknown number of rows")
        return Rows(o.a.matmul(rows.of, o.at(1)), rows.stretch)
    return o.a.matmul(rows, o.at(1))


@_plain("Concat")
def _concat(o: Operation) -> Value:
    operands: Sequence[Any] = o.values
    rows = [each for each in operands if isinstance(each, Rows)]
    if rows and len(rows) == len(o.values) and not o.integer("axis", 0):
        return places.joined(o.a, rows)
    return o.a.concat([o.at(slot) for slot in range(len(o.values))], o.integer("axis", 0))


@_plain("Split")
def _split(o: Operation) -> list[Value]:
    axis = o.integer("axis", 0) % len(shape_of(o.at(0)))
    total, count = shape_of(o.at(0))[axis], len(o.node.outputs)
    sizes = o.integer_list("split") or (o.numbers(1) if o.maybe(1) is not None else [])
    if not sizes:
        each = -(-total // o.integer("num_outputs", count))
        sizes = [min(each, total - at * each) for at in range(count)]
    found: list[Value] = calls.OPERATORS["split_with_sizes"](o.a, o.at(0), sizes, axis)
    return found


@_plain("Slice")
def _slice(o: Operation) -> Value:
    if len(o.values) > 1:
        starts, ends = o.numbers(1), o.numbers(2)
        axes = o.numbers(3) if o.maybe(3) is not None else list(range(len(starts)))
        steps = o.numbers(4) if o.maybe(4) is not None else [1] * len(starts)
    else:
        starts, ends = o.integer_list("starts"), o.integer_list("ends")
        axes, steps = o.integer_list("axes") or list(range(len(starts))), [1] * len(starts)
    shape = shape_of(o.at(0))
    parts = [slice(None)] * len(shape)
    if len({axis % len(shape) for axis in axes}) < len(axes):
        raise UnknownError("Slice of one axis twice")
    if any(step < 0 and end in _ENDS for end, step in zip(ends, steps, strict=True)):
        raise UnknownError(
            "Slice backwards to the largest integer, which onnxruntime reads as the first element"
        )
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        parts[axis % len(shape)] = _limited(start, end, step, shape[axis % len(shape)])
    return o.a.cut(o.at(0), parts)


_ENDS = tuple(int(np.iinfo(each).max) for each in (np.int32, np.int64))
"""Numbers that stand for the end of an axis, whatever its size."""


def _limited(start: int, end: int, step: int, size: int) -> slice:
    """Return a part of an axis by ONNX's rules, which move limits beyond an end to this end.

    Backwards, a start before the first element is the first, of which Python takes nothing.
    """
    if not size:
        return slice(0, 0)
    least, most = (0, size) if step > 0 else (-1, size - 1)
    start, end = (limit + size if limit < 0 else limit for limit in (start, end))
    first, last = min(max(start, 0), most), min(max(end, least), most)
    return slice(first, None if last < 0 else last, step)


@_plain("Gather")
def _gather(o: Operation) -> Any:
    index: Any = o.at(1)
    if isinstance(index, Stretch):
        if o.integer("axis", 0) % len(shape_of(o.at(0))):
            raise UnknownError("an unknown number of columns")
        return Rows(o.at(0), index)
    return calls.look_up(o.a, o.at(0), o.at(1), o.integer("axis", 0) % len(shape_of(o.at(0))))


@_plain("GatherElements")
def _gather_elements(o: Operation) -> Value:
    return calls.gather_elements(o.a, o.at(0), o.integer("axis", 0), o.at(1))


@_plain("GatherND")
def _gather_nd(o: Operation) -> Value:
    if not is_known(o.at(1)):
        if o.integer("batch_dims", 0):
            raise UnknownError("batch_dims with indices that depend on weights or inputs")
        return places.read_rows(o.a, o.at(0), _split_index(o.a, o.at(1), shape_of(o.at(0))), calls.look_up)
    batch, index = o.integer("batch_dims", 0), np.asarray(o.at(1))

    def moved(each: Any) -> Any:
        if not batch:
            return each[tuple(np.moveaxis(index, -1, 0))]
        before = np.indices(index.shape[:-1])[:batch]
        return each[(*before, *np.moveaxis(index, -1, 0))]

    return o.a.move(o.at(0), moved)


def _split_index(a: Algebra, index: Value, sizes: Sequence[int]) -> list[Value | None]:
    """Split indices of several axes, which lie along the last axis."""
    parts = [slice(None)] * (len(shape_of(index)) - 1)
    shape = shape_of(index)[:-1]
    found: list[Value | None] = []
    for at, size in zip(range(shape_of(index)[-1]), sizes, strict=False):
        own = a.reshape(a.cut(index, [*parts, slice(at, at + 1)]), shape)
        found.append(places.resolve_index(own, size))
    return found


@_plain("ScatterElements")
def _scatter_elements(o: Operation) -> Value:
    reduction = o.text("reduction", places.NONE)
    return places.put_elements(o.a, o.at(0), o.integer("axis", 0), o.at(1), o.at(2), reduction)


@_plain("ScatterND")
def _scatter_nd(o: Operation) -> Value:
    value, index = o.at(0), o.at(1)
    rest = shape_of(value)[shape_of(index)[-1] :]
    if shape_of(o.at(2)) != (*shape_of(index)[:-1], *rest):
        raise UnknownError("ScatterND with updates of an unexpected shape")
    return places.put_rows(
        o.a, value, _split_index(o.a, index, shape_of(value)), o.at(2), o.text("reduction", places.NONE)
    )


@_plain("Pad")
def _pad(o: Operation) -> Any:
    pads = o.numbers(1) if len(o.values) > 1 else o.integer_list("pads")
    rank = len(shape_of(o.at(0)))
    axes = [axis % rank for axis in o.numbers(3)] if o.maybe(3) is not None else list(range(rank))
    pairs = {axis: (pads[at], pads[at + len(axes)]) for at, axis in enumerate(axes)}
    modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    fill: Any = o.maybe(2)
    if fill is not None:
        fill = np.asarray(fill).reshape(()).item() if is_known(fill) else fill
    last = [size for axis in reversed(range(rank)) for size in pairs.get(axis, (0, 0))]
    return calls.OPERATORS["pad"](o.a, o.at(0), last, modes[o.text("mode", "constant")], fill)


@_plain("Trilu")
def _trilu(o: Operation) -> Any:
    name = "triu" if o.integer("upper", 1) else "tril"
    diagonal = o.numbers(1)[0] if o.maybe(1) is not None else 0
    return calls.OPERATORS[name](o.a, o.at(0), diagonal)


@_plain("Range")
def _range(o: Operation) -> Any:
    if not is_known(o.at(0)) or not is_known(o.at(1)):
        step = o.at(2)
        ends = [each for each in (o.at(0), o.at(1)) if is_real(each)]
        if ends or not (is_known(step) and (np.asarray(step) == 1).all()):
            raise UnknownError("a range with limits that depend on weights or inputs")
        return Stretch(o.at(0), o.at(1))
    start, limit, delta = (np.asarray(o.at(slot)) for slot in range(3))
    if not all(is_known(o.at(slot)) for slot in range(3)):
        raise UnknownError("a range with limits that depend on weights or inputs")
    first, last, step = (each.reshape(-1)[0].item() for each in (start, limit, delta))
    if not all(float(each).is_integer() for each in (first, step)):
        raise UnknownError("a range of numbers that are not integers")
    length = np.asarray(last - first, start.dtype).item() if start.dtype.kind == "f" else last - first
    count = max(math.ceil(length / step), 0)
    o.a.bound(count)
    most = np.iinfo(start.dtype).max if start.dtype.kind in "iu" else 1 / np.finfo(start.dtype).eps
    if max(map(abs, (first, length, first + count * step))) > most:
        raise UnknownError(f"a range of numbers beyond {start.dtype}")
    return (int(first) + int(step) * np.arange(count)).astype(start.dtype)


@_plain("ConstantOfShape")
def _constant_of_shape(o: Operation) -> Value:
    o.a.bound(int(np.prod(o.numbers(0), dtype=np.float64)))
    fill = np.zeros(1, np.float32) if o.fill is None else o.fill
    return np.full(o.numbers(0), fill.reshape(-1)[0], fill.dtype)


@_plain("EyeLike")
def _eye_like(o: Operation) -> Value:
    rows, columns = shape_of(o.at(0))
    dtype = DType(o.integer("dtype", 0)).to_numpy()
    if dtype is None:
        raise UnknownError("EyeLike without dtype")
    o.a.bound(rows * columns)
    return np.eye(rows, columns, o.integer("k", 0), dtype=dtype)


@_plain("OneHot")
def _one_hot(o: Operation) -> Any:
    depth = o.numbers(1)[0]
    if not is_known(o.at(0)):
        ends = [o.a.reshape(o.a.cut(o.at(2), [slice(at, at + 1)]), ()) for at in range(2)]
        rows = places.one_hot(o.a, o.at(0), depth, *ends)
        return o.a.move(rows, lambda each: np.moveaxis(each, -1, o.integer("axis", -1)))
    off, on = np.asarray(o.at(2)).reshape(-1)
    index = np.asarray(o.at(0))
    if ((index < -depth) | (index >= depth) | (index != np.trunc(index))).any():
        raise UnknownError("one-hot rows beyond the depth, or between two")
    index = index % depth
    axis = o.integer("axis", -1)
    rows = np.where(index[..., None] == np.arange(depth), on, off)
    return np.moveaxis(rows, -1, axis)


@_plain("NonZero")
def _non_zero(o: Operation) -> Value:
    if not is_known(o.at(0)):
        raise UnknownError("NonZero of values that depend on weights or inputs")
    return np.array(np.nonzero(np.asarray(o.at(0))), np.int64)


@_plain("CumSum")
def _cumsum(o: Operation) -> Value:
    axis = o.numbers(1)[0] % len(shape_of(o.at(0)))
    value = o.at(0)
    backwards = bool(o.integer("reverse", 0))
    operand = o.a.move(value, lambda each: np.flip(each, axis)) if backwards else value
    if is_known(operand) and o.integer("exclusive", 0):  # infinity less infinity is no number
        before = np.moveaxis(np.asarray(operand), axis, 0)
        operand = np.moveaxis(np.concatenate([np.zeros_like(before[:1]), before[:-1]]), 0, axis)
    found = calls.running_sum(o.a, operand, axis)
    if not is_known(operand) and o.integer("exclusive", 0):
        found = o.a.subtract(found, operand)
    return o.a.move(found, lambda each: np.flip(each, axis)) if backwards else found


# reductions


_ORDERS = frozenset({"ReduceMax", "ReduceMin", "ReduceProd"})
_IDLE = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"})
"""Reductions that return their input if axes are empty and `noop_with_empty_axes` is set."""


def _reduction(name: str, made: Callable[[Operation, Value, list[int], bool], Value]) -> None:
    def compute(o: Operation) -> Value:
        value = o.at(0)
        is_none = not o.integer_list("axes") and (o.maybe(1) is None or not o.numbers(1))
        if is_none and o.integer("noop_with_empty_axes", 0):
            if name not in _IDLE:
                raise UnknownError(f"{name} over no axes")
            return value
        if name != "ReduceSum" and not is_real(value) and name not in _ORDERS:
            raise UnknownError(f"{name} of integers")
        if is_known(value) and not is_real(value) and name in _NARROWED:
            _refuse_overflow(name, np.asarray(value), tuple(o.axes(1, value)))
        return made(o, value, o.axes(1, value), bool(o.integer("keepdims", 1)))

    PLAIN[name] = compute


def _refuse_overflow(name: str, array: Array, axes: tuple[int, ...]) -> None:
    """Refuse a sum or product of known integers beyond their type, or beyond what double precision has exactly.

    Raises:
        UnknownError: onnxruntime may return another number.
    """
    sizes = np.abs(array.astype(np.float64))
    largest = sizes.sum(axes) if name == "ReduceSum" else np.maximum(sizes, 1).prod(axes)
    if array.dtype.kind in "iu" and (largest > min(_MOST_EXACT, float(np.iinfo(array.dtype).max))).any():
        raise UnknownError(f"{name} of {array.dtype} beyond its largest number")


_reduction("ReduceSum", lambda o, v, axes, keeps: o.a.sum(v, axes, keeps=keeps))
_reduction("ReduceMean", lambda o, v, axes, keeps: o.a.mean(v, axes, keeps=keeps))
_reduction("ReduceSumSquare", lambda o, v, axes, keeps: o.a.sum(o.a.multiply(v, v), axes, keeps=keeps))
_reduction(
    "ReduceL2", lambda o, v, axes, keeps: o.a.function("sqrt", o.a.sum(o.a.multiply(v, v), axes, keeps=keeps))
)
_reduction("ReduceL1", lambda o, v, axes, keeps: o.a.sum(o.a.function("abs", v), axes, keeps=keeps))
_reduction("ReduceLogSumExp", lambda o, v, axes, keeps: layers.log_of_sum(o.a, v, axes, keeps=keeps))
_reduction("ReduceMax", lambda o, v, axes, keeps: calls.OPERATORS["amax"](o.a, v, axes, keeps))
_reduction("ReduceMin", lambda o, v, axes, keeps: calls.OPERATORS["amin"](o.a, v, axes, keeps))
_reduction("ReduceProd", lambda o, v, axes, keeps: calls.OPERATORS["prod"](o.a, v, axes, keeps))


@_plain("ArgMax", "ArgMin")
def _arg(o: Operation) -> Any:
    if o.integer("select_last_index", 0):
        raise UnknownError(f"{o.node.op_type} with select_last_index")
    name = o.node.op_type.lower()
    return calls.OPERATORS[name](o.a, o.at(0), o.integer("axis", 0), bool(o.integer("keepdims", 1)))


@_plain("TopK")
def _topk(o: Operation) -> list[Value]:
    axis = o.integer("axis", -1) % len(shape_of(o.at(0)))
    is_sorted = bool(o.integer("sorted", 1))
    if is_known(o.at(0)) and not is_sorted and o.numbers(1)[0] > 1:
        raise UnknownError("known numbers in any order")
    largest = bool(o.integer("largest", 1))
    return calls.greatest_few(o.a, o.at(0), o.numbers(1)[0], axis, largest, is_sorted=is_sorted)


# products


@_plain("Gemm")
def _gemm(o: Operation) -> Value:
    one, two = o.at(0), o.at(1)
    one = o.a.permute(one, (1, 0)) if o.integer("transA", 0) else one
    two = o.a.permute(two, (1, 0)) if o.integer("transB", 0) else two
    found = o.a.matmul(one, two)
    alpha, beta = o.real("alpha", 1.0), o.real("beta", 1.0)
    found = found if alpha == 1 else o.a.multiply(found, number(alpha))
    bias = o.maybe(2)
    if bias is None:
        return found
    return o.a.add(found, bias if beta == 1 else o.a.multiply(bias, number(beta)))


@_plain("SplitToSequence")
def _split_to_sequence(o: Operation) -> list[Any]:
    """Split a value into a sequence: a tuple of values, which SequenceAt alone reads."""
    value, axis = o.at(0), o.integer("axis", 0)
    size = shape_of(value)[axis]
    split = o.maybe(1)
    if split is None:
        sizes = [1] * size
    else:
        sizes = o.numbers(1)
        if not shape_of(split):  # one size for all parts but the last
            sizes = [min(sizes[0], size - at) for at in range(0, size, sizes[0])]
    if sum(sizes) != size:
        raise UnknownError("SplitToSequence with parts that do not add up to the whole")
    ends = np.cumsum([0, *sizes])
    parts = [o.a.take(value, np.arange(start, end), axis) for start, end in pairwise(ends)]
    if split is None and not o.integer("keepdims", 1):
        left = [dim for at, dim in enumerate(shape_of(value)) if at != axis % len(shape_of(value))]
        parts = [o.a.reshape(part, left) for part in parts]
    return [tuple(parts)]


@_plain("SequenceConstruct")
def _sequence_construct(o: Operation) -> list[Any]:
    return [tuple(o.at(slot) for slot in range(len(o.values)))]


@_plain("SequenceAt")
def _sequence_at(o: Operation) -> Any:
    sequence: Any = o.values[0]
    if not isinstance(sequence, tuple):
        raise UnknownError("SequenceAt of a value that is no sequence")
    (position,) = o.numbers(1)
    return sequence[position]


@_plain("DepthToSpace")
def _depth_to_space(o: Operation) -> Value:
    size, mode = o.integer("blocksize", 0), o.text("mode", "DCR")
    if size < 1 or mode not in ("DCR", "CRD"):
        raise UnknownError(f"DepthToSpace of blocks of {size} in mode {mode}")
    return layers.spread(o.a, o.at(0), size, channels_first=mode == "CRD")


@_plain("SpaceToDepth")
def _space_to_depth(o: Operation) -> Value:
    size = o.integer("blocksize", 0)
    if size < 1:
        raise UnknownError(f"SpaceToDepth of blocks of {size}")
    return layers.gather_blocks(o.a, o.at(0), size, channels_first=False)


@_plain("Einsum")
def _einsum(o: Operation) -> Value:
    return layers.contract(o.a, o.text("equation", ""), [o.at(slot) for slot in range(len(o.values))])


@_plain("LayerNormalization")
def _layer_norm(o: Operation) -> Value:
    value = o.at(0)
    rank = len(shape_of(value))
    axes = range(o.integer("axis", -1) % rank, rank)
    return layers.layer_norm(o.a, value, axes, o.at(1), o.maybe(2), o.real("epsilon", 1e-5))


@_plain("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_norm(o: Operation) -> Value:
    value = o.at(0)
    rank = len(shape_of(value))
    axes = range(o.integer("axis", -1) % rank, rank)
    return layers.rms_norm(o.a, value, axes, o.at(1), o.real("epsilon", 1e-5))


@_plain("BatchNormalization")
def _batch_norm(o: Operation) -> Value:
    if o.integer("training_mode", 0):
        raise UnknownError("a batch normalization in training")
    return layers.batch_norm(o.a, o.at(0), o.at(1), o.at(2), o.at(3), o.at(4), o.real("epsilon", 1e-5))


@_plain("InstanceNormalization")
def _instance_norm(o: Operation) -> Value:
    groups = shape_of(o.at(0))[1]
    return layers.group_norm(o.a, o.at(0), groups, o.at(1), o.at(2), o.real("epsilon", 1e-5))


@_plain("GroupNormalization")
def _group_norm(o: Operation) -> Value:
    if o.opset < 21:
        raise UnknownError("GroupNormalization with a scale per group")
    groups = o.integer("num_groups", 1)
    return layers.group_norm(o.a, o.at(0), groups, o.at(1), o.at(2), o.real("epsilon", 1e-5))


@_plain("LpNormalization")
def _lp_norm(o: Operation) -> Value:
    axis = o.integer("axis", -1) % len(shape_of(o.at(0)))
    if o.integer("p", 2) != 2:
        raise UnknownError("LpNormalization of another order than 2")
    length = o.a.function("sqrt", o.a.sum(o.a.multiply(o.at(0), o.at(0)), (axis,), keeps=True))
    if is_known(length):  # what has no length stays zero
        length = np.where(np.asarray(length) == 0, number(1), np.asarray(length))
    return o.a.divide(o.at(0), length)


@_plain("Attention")
def _attention(o: Operation) -> Any:
    if len(shape_of(o.at(0))) != 4 or any(o.maybe(slot) is not None for slot in range(4, len(o.values))):
        raise UnknownError("Attention of inputs that are not 4-D, or with a cache or padding")
    if o.real("softcap", 0.0) or o.integer("qk_matmul_output_mode", 0):
        raise UnknownError("Attention with softcap or qk_matmul_output_mode")
    by = o.real("scale", 0.0) or 1 / math.sqrt(shape_of(o.at(0))[-1])
    causal = bool(o.integer("is_causal", 0))
    return layers.attention(o.a, o.at(0), o.at(1), o.at(2), o.maybe(3), by, causal=causal)


# windows


def _recurrent(
    o: Operation,
    order: Sequence[int],
    usual: Sequence[str],
    step: Callable[..., recurrent.Step],
    states: Sequence[int],
) -> list[Value]:
    """Compute a recurrent operator; `order` gives the position of each of PyTorch's gates among ONNX's.

    `usual` names its default activations for one direction; `states` are the inputs with its initial states.
    """
    a, value = o.a, o.at(0)
    steps, batch, _ = shape_of(value)
    direction = o.text("direction", "forward")
    if o.integer("layout", 0) or direction not in ("forward", "reverse", "bidirectional"):
        raise UnknownError(f"operator {o.node.op_type} in another layout or direction")
    lengths = o.maybe(4)
    if lengths is not None and not (is_known(lengths) and (np.asarray(lengths) == steps).all()):
        raise UnknownError(f"operator {o.node.op_type} of sequences of several lengths")
    count = 2 if direction == "bidirectional" else 1
    requested = o.node.settings.get("activations", ())
    names = (
        [str(each).lower() for each in requested]
        if isinstance(requested, tuple) and requested
        else [*usual] * count
    )
    if len(names) != len(usual) * count or not _BENDING.issuperset(names):
        raise UnknownError(f"operator {o.node.op_type} with activations {requested}")
    functions = [recurrent.activation(name) for name in names]
    if (
        limit := o.real("clip", 0)
    ) > 0:  # onnxruntime limits the inputs of the gates, not that of an LSTM's output
        functions = [
            each if at % len(usual) == _OUTPUT else _clipped(each, limit) for at, each in enumerate(functions)
        ]

    def reorder_gates(value: Value) -> Value:
        parts = recurrent.gates(a, value, len(order), 0)
        return a.concat([parts[at] for at in order], 0)

    def row(slot: int, at: int) -> Value:
        return recurrent.row(a, o.at(slot), at)

    found, last = [], []
    for at in range(count):
        biases: list[Value | None] = [None, None]
        if o.maybe(3) is not None:
            biases = [reorder_gates(each) for each in recurrent.gates(a, row(3, at), 2, 0)]
        cell = recurrent.Cell(reorder_gates(row(1, at)), reorder_gates(row(2, at)), *biases)
        size = shape_of(cell.hidden_weight)[1]
        state = tuple(
            np.zeros((batch, size), np.float32) if o.maybe(slot) is None else row(slot, at) for slot in states
        )
        own = step(*functions[at * len(usual) : (at + 1) * len(usual)])
        backwards = direction == "reverse" or at == 1
        output, state = recurrent.run(a, own, value, state, cell, backwards=backwards)
        found.append(a.reshape(output, (steps, 1, batch, size)))
        last.append([a.reshape(each, (1, batch, size)) for each in state])
    return [a.concat(found, 1), *(a.concat(each, 0) for each in zip(*last, strict=True))]


_BENDING = frozenset({"sigmoid", "tanh", "relu"})
_OUTPUT = 2
"""Place of the activation of an LSTM's output among those of a direction."""


def _clipped(function: recurrent.Activation, limit: float) -> recurrent.Activation:
    return lambda a, value: function(a, a.clamp(value, number(-limit), number(limit)))


@_plain("LSTM")
def _lstm(o: Operation) -> list[Value]:
    if o.maybe(7) is not None or o.integer("input_forget", 0):
        raise UnknownError("an LSTM with peepholes, or whose gates are coupled")
    return _recurrent(o, (0, 2, 3, 1), ("sigmoid", "tanh", "tanh"), recurrent.lstm_step, (5, 6))


@_plain("GRU")
def _gru(o: Operation) -> list[Value]:
    step = functools.partial(recurrent.gru_step, resets_after=bool(o.integer("linear_before_reset", 0)))
    return _recurrent(o, (1, 0, 2), ("sigmoid", "tanh"), step, (5,))


@_plain("RNN")
def _rnn(o: Operation) -> list[Value]:
    return _recurrent(o, (0,), ("tanh",), recurrent.rnn_step, (5,))


def _window(
    o: Operation, kernel: Sequence[int], sizes: Sequence[int]
) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """Return strides, pads and dilations."""
    rank = len(kernel)
    strides = o.integer_list("strides") or [1] * rank
    dilations = o.integer_list("dilations") or [1] * rank
    auto = o.text("auto_pad", "NOTSET")
    if any(axis != size for axis, size in zip(o.integer_list("kernel_shape"), kernel, strict=False)):
        raise UnknownError("a kernel of another shape than kernel_shape")
    if auto != "NOTSET" and any(o.integer_list("pads")):
        raise UnknownError("pads beside auto_pad")
    if auto in ("NOTSET", "VALID"):
        pads = o.integer_list("pads") or [0] * (2 * rank)
        return strides, [(pads[at], pads[at + rank]) for at in range(rank)], dilations
    found = []
    for size, width, jump, step in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-size // jump) - 1) * jump + (width - 1) * step + 1 - size, 0)
        less, more = total // 2, total - total // 2
        found.append((less, more) if auto == "SAME_UPPER" else (more, less))
    return strides, found, dilations


@_plain("Conv")
def _conv(o: Operation) -> Value:
    kernel = shape_of(o.at(1))[2:]
    strides, pads, dilations = _window(o, kernel, shape_of(o.at(0))[2:])
    return layers.convolve(o.a, o.at(0), o.at(1), o.maybe(2), strides, pads, dilations, o.integer("group", 1))


@_plain("ConvTranspose")
def _conv_transpose(o: Operation) -> Value:
    kernel = shape_of(o.at(1))[2:]
    if o.text("auto_pad", "NOTSET") != "NOTSET" or o.integer_list("output_shape"):
        raise UnknownError("ConvTranspose with auto_pad or output_shape")
    strides, pads, dilations = _window(o, kernel, shape_of(o.at(0))[2:])
    extra = o.integer_list("output_padding") or [0] * len(kernel)
    return layers.convolve_back(
        o.a, o.at(0), o.at(1), o.maybe(2), strides, pads, extra, dilations, o.integer("group", 1)
    )


@_plain("MaxPool")
def _max_pool(o: Operation) -> Any:
    kernel = o.integer_list("kernel_shape")
    strides, pads, dilations = _window(o, kernel, shape_of(o.at(0))[2:])
    if o.integer("ceil_mode", 0):
        if any(first != last for first, last in pads):
            raise UnknownError("MaxPool over partial windows")
        pads = calls._enough(o.at(0), kernel, strides, [pair[0] for pair in pads], True, dilations)
    return layers.max_pool(o.a, o.at(0), kernel, strides, pads, dilations)


@_plain("AveragePool")
def _average_pool(o: Operation) -> Value:
    kernel = o.integer_list("kernel_shape")
    strides, pads, _ = _window(o, kernel, shape_of(o.at(0))[2:])
    counted = pads
    if o.integer("ceil_mode", 0):
        if any(first != last for first, last in pads):
            raise UnknownError("AveragePool over partial windows")
        pads = calls._enough(o.at(0), kernel, strides, [pair[0] for pair in pads], True)
    counts = bool(o.integer("count_include_pad", 0))
    return layers.average_pool(o.a, o.at(0), kernel, strides, pads, counts_pads=counts, counted=counted)


@_plain("GlobalAveragePool")
def _global_average(o: Operation) -> Value:
    return o.a.mean(o.at(0), range(2, len(shape_of(o.at(0)))), keeps=True)


@_plain("GlobalMaxPool")
def _global_max(o: Operation) -> Any:
    return calls.OPERATORS["amax"](o.a, o.at(0), list(range(2, len(shape_of(o.at(0))))), True)


@_plain("Resize")
def _resize(o: Operation) -> Value:
    if o.maybe(1) is not None and 0 not in shape_of(o.at(1)):
        raise UnknownError("Resize with a region of interest")
    if o.integer("antialias", 0) or o.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise UnknownError("Resize with antialias or keep_aspect_ratio_policy")
    mode = o.text("mode", "nearest")
    interpolation = resizing.Interpolation(
        mode,
        o.text("coordinate_transformation_mode", "half_pixel"),
        o.text("nearest_mode", "round_prefer_floor") if mode == "nearest" else "",
        o.real("cubic_coeff_a", -0.75) if mode == "cubic" else 0.0,
    )
    if mode == "cubic" and o.integer("exclude_outside", 0):
        raise UnknownError("Resize with exclude_outside")
    shape = shape_of(o.at(0))
    axes = [axis % len(shape) for axis in o.integer_list("axes")] or list(range(len(shape)))
    has_scales = o.maybe(2) is not None and math.prod(shape_of(o.at(2))) > 0
    if has_scales and not is_known(o.at(2)):
        raise UnknownError("Resize with sizes that depend on weights or inputs")
    scales = list(np.asarray(o.at(2), np.float32)) if has_scales else None
    sizes = (
        o.numbers(3)
        if scales is None  # onnxruntime multiplies in single precision
        else [int(np.float32(shape[n]) * s) for n, s in zip(axes, scales, strict=True)]
    )
    found = o.at(0)
    if all(length == shape[axis] for axis, length in zip(axes, sizes, strict=True)):
        return found  # onnxruntime copies it, whatever the scales
    for place, (axis, length) in enumerate(zip(axes, sizes, strict=True)):
        scale = length / shape[axis] if scales is None else float(scales[place])
        if interpolation.coordinates == "align_corners" and length != shape[axis] * scale:
            # By ONNX's definition corners are those of a length that is no integer; onnxruntime rounds it.
            raise UnknownError("Resize with align_corners to a length that is not an integer")
        if length != shape[axis] or scale != 1:
            found = resizing.resize(o.a, found, axis, length, scale, interpolation)
    return found


# codes, of stored weights and of numbers rounded to their own range


@_plain("DequantizeLinear")
def _dequantize(o: Operation) -> Value:
    value = o.at(0)
    if o.integer("output_dtype", 0) not in (0, DType.FLOAT.value, DType.FLOAT16.value):
        raise UnknownError("DequantizeLinear to another type")
    size, axis = o.integer("block_size", 0), o.integer("axis", 1)
    scale, zero = (codes.spread(o.a, o.maybe(slot), shape_of(value), axis, size) for slot in (1, 2))
    assert scale is not None
    return codes.decoded(o.a, value, scale, zero)


@_plain("DynamicQuantizeLinear")
def _dynamic(o: Operation) -> Sequence[Value]:
    return codes.rounded(o.a, o.at(0))


@_plain("MatMulInteger")
def _matmul_integer(o: Operation) -> Any:
    if all(each is None or is_known(each) for each in o.values):
        raise UnknownError("a product of known codes")
    one = codes.less(o.a, o.at(0), codes.by_rows(o.a, o.maybe(2)))
    return o.a.matmul(one, codes.less(o.a, o.at(1), o.maybe(3)))


@_plain("ConvInteger")
def _conv_integer(o: Operation) -> Value:
    zero = o.maybe(3)
    if all(each is None or is_known(each) for each in o.values):
        raise UnknownError("a convolution of known codes")
    kernel = shape_of(o.at(1))[2:]
    strides, pads, dilations = _window(o, kernel, shape_of(o.at(0))[2:])
    if zero is not None:
        zero = o.a.reshape(zero, (-1, 1, *(1 for _ in kernel)))
    one, two = codes.less(o.a, o.at(0), o.maybe(2)), codes.less(o.a, o.at(1), zero)
    return layers.convolve(o.a, one, two, None, strides, pads, dilations, o.integer("group", 1))


# onnxruntime's operators


@_fused("MatMulIntegerToFloat")
def _matmul_to_float(o: Operation) -> Value:
    one = codes.decoded(o.a, o.at(0), codes.by_rows(o.a, o.at(2)), codes.by_rows(o.a, o.maybe(4)))
    found = o.a.matmul(one, codes.decoded(o.a, o.at(1), o.at(3), o.maybe(5)))
    bias = o.maybe(6)
    return found if bias is None else o.a.add(found, bias)


@_fused("DynamicQuantizeMatMul")
def _dynamic_matmul(o: Operation) -> Value:
    found = o.a.matmul(o.at(0), codes.decoded(o.a, o.at(1), o.at(2), o.maybe(3)))
    bias = o.maybe(4)
    return found if bias is None else o.a.add(found, bias)


@_fused("MatMulNBits")
def _matmul_bits(o: Operation) -> Value:
    sizes = o.integer("K", 0), o.integer("N", 0), o.integer("bits", 4), o.integer("block_size", 0)
    if o.maybe(4) is not None:
        raise UnknownError("MatMulNBits with g_idx")
    weight = codes.unpacked(o.a, o.at(1), o.at(2), o.maybe(3), *sizes)
    found = o.a.matmul(o.at(0), o.a.permute(weight, (1, 0)))
    bias = o.maybe(5)
    return found if bias is None else o.a.add(found, bias)


@_fused("SkipLayerNormalization")
def _skip_layer_norm(o: Operation) -> list[Value | None]:
    added = o.a.add(o.at(0), o.at(1))
    bias = o.maybe(4)
    added = added if bias is None else o.a.add(added, bias)
    axes = (len(shape_of(added)) - 1,)
    found = layers.layer_norm(o.a, added, axes, o.at(2), o.maybe(3), o.real("epsilon", 1e-12))
    return [found, None, None, added]


@_fused("SkipSimplifiedLayerNormalization")
def _skip_rms_norm(o: Operation) -> list[Value | None]:
    added = o.a.add(o.at(0), o.at(1))
    bias = o.maybe(3)
    added = added if bias is None else o.a.add(added, bias)
    axes = (len(shape_of(added)) - 1,)
    return [layers.rms_norm(o.a, added, axes, o.at(2), o.real("epsilon", 1e-12)), None, None, added]


@_fused("SimplifiedLayerNormalization")
def _simplified(o: Operation) -> Any:
    return _rms_norm(o)


@_fused("BiasGelu", "FastGelu", "Gelu")
def _bias_gelu(o: Operation) -> Value:
    bias = o.maybe(1)
    value = o.at(0) if bias is None else o.a.add(o.at(0), bias)
    return layers.gelu(o.a, value, "tanh" if o.node.op_type == "FastGelu" else "none")


@_fused("QuickGelu")
def _quick_gelu(o: Operation) -> Value:
    scaled = o.a.multiply(o.at(0), number(o.real("alpha", 1.702)))
    return o.a.multiply(o.at(0), o.a.function("sigmoid", scaled))


@_fused("FusedConv")
def _fused_conv(o: Operation) -> Value:
    found = _conv(o)
    added = o.maybe(3)
    found = found if added is None else o.a.add(found, added)
    name = o.text("activation", "")
    parameters = [*map(float, np.atleast_1d(np.asarray(o.node.settings.get("activation_params", ()))))]
    if name in ("Relu", "Sigmoid", "Tanh") and not parameters:
        made: Value = calls.OPERATORS[name.lower()](o.a, found)
        return made
    if name == "LeakyRelu" and len(parameters) == 1:
        return o.a.function("leaky relu", found, number(parameters[0]))
    if name == "HardSigmoid" and len(parameters) == 2:
        return layers.hard_sigmoid(o.a, found, *parameters)
    if name:
        raise UnknownError(f"FusedConv with {name}")
    return found


@_fused("FusedMatMul")
def _fused_matmul(o: Operation) -> Value:
    if o.integer("transBatchA", 0) or o.integer("transBatchB", 0):
        raise UnknownError("FusedMatMul with transposed batches")

    def transposed(slot: int, name: str) -> Value:
        value = o.at(slot)
        rank = len(shape_of(value))
        order = [*range(rank - 2), rank - 1, rank - 2]
        return o.a.permute(value, order) if o.integer(name, 0) else value

    found = o.a.matmul(transposed(0, "transA"), transposed(1, "transB"))
    alpha = o.real("alpha", 1.0)
    weight = o.factors(alpha)
    return found if alpha == 1 else o.a.multiply(found, number(alpha) if weight is None else weight)


@_fused("MultiHeadAttention")
def _multi_head(o: Operation) -> Value:
    if any(o.maybe(slot) is not None for slot in (4, 6, 7, 8, 9)) or len(shape_of(o.at(0))) != 3:
        raise UnknownError("MultiHeadAttention with a mask of keys, or with a cache")
    heads = o.integer("num_heads", 1)
    parts = []
    bias, start = o.maybe(3), 0
    if bias is not None and any(len(shape_of(o.at(slot))) != 3 for slot in range(3)):
        raise UnknownError("MultiHeadAttention with a bias, and inputs that are not 3-D")
    for slot in range(3):
        value = o.at(slot)
        if len(shape_of(value)) == 4:
            parts.append(value)
            continue
        size = shape_of(value)[-1]
        if bias is not None:
            value = o.a.add(value, o.a.cut(bias, [slice(start, start + size)]))
            start += size
        per_head = o.a.reshape(value, (*shape_of(value)[:2], heads, -1))
        parts.append(o.a.permute(per_head, (0, 2, 1, 3)))
    by = o.real("scale", 0.0) or 1 / math.sqrt(shape_of(parts[0])[-1])
    causal = bool(o.integer("unidirectional", 0))
    if causal and shape_of(parts[0])[2] != shape_of(parts[1])[2]:
        raise UnknownError("causal MultiHeadAttention with more or fewer keys than queries")
    made = layers.attention(o.a, parts[0], parts[1], parts[2], o.maybe(5), by, causal=causal)
    joined = o.a.permute(made, (0, 2, 1, 3))
    return o.a.reshape(joined, (*shape_of(joined)[:2], -1))


@_fused("RotaryEmbedding")
def _rotary(o: Operation) -> Value:
    value, positions = o.at(0), o.at(1)
    if o.integer("interleaved", 0) or o.integer("rotary_embedding_dim", 0) or o.real("scale", 1.0) != 1.0:
        raise UnknownError("RotaryEmbedding with interleaved, rotary_embedding_dim or scale")
    if not is_known(positions):
        raise UnknownError("RotaryEmbedding at positions that depend on weights or inputs")
    half = shape_of(o.at(2))[-1]
    is_flat = len(shape_of(value)) == 3
    if is_flat:
        per_head = o.a.reshape(value, (*shape_of(value)[:2], -1, 2 * half))
        value = o.a.permute(per_head, (0, 2, 1, 3))
    places = np.asarray(positions)
    if places.size == 1:
        places = places.reshape(1, 1) + np.arange(shape_of(value)[2])[None]
    cosine, sine = (calls.look_up(o.a, o.at(slot), places) for slot in (2, 3))
    cosine, sine = (o.a.reshape(each, (shape_of(each)[0], 1, *shape_of(each)[1:])) for each in (cosine, sine))
    whole = [slice(None)] * 3
    one, two = (o.a.cut(value, [*whole, part]) for part in (slice(0, half), slice(half, None)))
    first = o.a.subtract(o.a.multiply(one, cosine), o.a.multiply(two, sine))
    second = o.a.add(o.a.multiply(two, cosine), o.a.multiply(one, sine))
    found = o.a.concat([first, second], 3)
    if not is_flat:
        return found
    return o.a.reshape(o.a.permute(found, (0, 2, 1, 3)), shape_of(o.at(0)))
