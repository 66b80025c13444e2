"""Shapes of operators that compute (ONNX docs/Operators.md; onnxruntime docs/ContribOperators.md for com.microsoft)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from analyzer.cost.algebra import (
    Hidden,
    Parts,
    Poly,
    Size,
    add,
    ceil_div,
    floor_div,
    is_truth,
    multiply,
    smallest,
    subtract,
    symbol,
    total,
    truth_of,
)
from analyzer.cost.layout import axis_of, fold
from analyzer.cost.values import (
    NOTHING,
    UNFIT,
    Element,
    MisfitError,
    Rule,
    Step,
    UnshapedError,
    Value,
    check_equal,
    sizes_of,
)
from analyzer.model.dtypes import DType
from analyzer.records import replace


def _like(step: Step) -> list[Value]:
    """Return outputs with the type and the shape of the first input."""
    value = step.value(0)
    made = Value(value.dtype, value.shape, None, value.why)
    return [made] * max(len(step.node.outputs), 1)


_BROADCASTING = 7
"""First operator set that aligns shapes at their last axes; before it, the first input has the shape of the output."""


def _elementwise(step: Step) -> list[Value]:
    slots = [slot for slot in range(len(step.inputs)) if step.has(slot)]
    shape = (
        step.shape(0) if _is_aligned_by_axis(step) else step.broadcast([step.shape(slot) for slot in slots])
    )
    known = [value for value in step.inputs if value is not NOTHING]
    return [Value(known[0].dtype, shape, fold(step.node.op_type, known))]


def _is_aligned_by_axis(step: Step) -> bool:
    """Whether the second input is aligned by an attribute, as before `_BROADCASTING`."""
    return step.opset < _BROADCASTING and step.node.domain in ("", "ai.onnx")


def _truth(step: Step) -> list[Value]:
    shapes = [step.shape(slot) for slot in range(len(step.inputs))]
    shape = shapes[0] if _is_aligned_by_axis(step) else step.broadcast(shapes)
    return [Value(DType.BOOL, shape, fold(step.node.op_type, step.inputs))]


def _unary(step: Step) -> list[Value]:
    value, op_type = step.value(0), step.node.op_type
    dtype = DType.BOOL if op_type in ("IsNaN", "IsInf", "Not") else value.dtype
    return [Value(dtype, value.shape, _applied(op_type, value.data), value.why)]


def _applied(op_type: str, data: tuple[Element, ...] | None) -> tuple[Element, ...] | None:
    """Apply a unary operator to known numbers; None where the results are not known."""
    if data is None or op_type not in _NUMBERS:
        return None
    numbers = [each for each in data if not isinstance(each, Poly)]
    if len(numbers) == len(data):
        made = [_NUMBERS[op_type](each) for each in numbers]
        return tuple(made) if all(map(math.isfinite, made)) else None
    sizes = [each for each in data if not isinstance(each, float)]
    if len(sizes) < len(data):
        return None
    if op_type == "Neg":
        return tuple(multiply(each, -1) for each in sizes)
    if op_type == "Sign":
        known = [truth_of(each) for each in sizes]  # for sizes that are never below 0
        return None if None in known else tuple(each for each in known if each is not None)
    if op_type == "Not":
        return tuple(subtract(1, each) for each in sizes) if all(map(is_truth, sizes)) else None
    return data if op_type in ("Ceil", "Floor", "Round") else None  # sizes are integers


def _root(value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


_NUMBERS: dict[str, Callable[[float], float]] = {
    "Neg": lambda value: -value,
    "Abs": abs,
    "Ceil": math.ceil,
    "Floor": math.floor,
    "Round": round,
    "Sqrt": _root,
    "Not": lambda value: int(not value),
    "Sign": lambda value: (value > 0) - (value < 0),
}


def _matmul(step: Step, a: Sequence[Size], b: Sequence[Size]) -> tuple[Size, ...]:
    if not a or not b:
        raise UnshapedError("MatMul of a scalar")
    left = [1, *a] if len(a) == 1 else list(a)
    right = [*b, 1] if len(b) == 1 else list(b)
    check_equal(left[-1], right[-2], UNFIT)
    dims = [*step.broadcast([tuple(left[:-2]), tuple(right[:-2])]), left[-2], right[-1]]
    if len(a) == 1:
        del dims[-2]
    if len(b) == 1:
        del dims[-1]
    return tuple(dims)


def _transposed(dims: tuple[Size, ...], flag: int) -> tuple[Size, ...]:
    return (*dims[:-2], dims[-1], dims[-2]) if flag and len(dims) > 1 else dims


def operands(step: Step) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """Return the shapes of the two matrices of a product, after transposition."""
    second = 3 if step.node.op_type in ("QLinearMatMul", "QGemm") else 1
    a, b = (
        (*dims[1:-1], dims[0], dims[-1]) if step.number(f"transBatch{name}", 0) else dims
        for name, dims in (("A", step.shape(0)), ("B", step.shape(second)))
    )
    return _transposed(a, step.number("transA", 0)), _transposed(b, step.number("transB", 0))


def _product(step: Step) -> list[Value]:
    return [Value(_PRODUCTS.get(step.node.op_type, step.value(0).dtype), _matmul(step, *operands(step)))]


_PRODUCTS = {
    "MatMulInteger": DType.INT32,
    "MatMulIntegerToFloat": DType.FLOAT,
    "DynamicQuantizeMatMul": DType.FLOAT,
}


def _gemm(step: Step) -> list[Value]:
    a, b = operands(step)
    check_equal(a[-1], b[0], UNFIT)
    is_float = step.node.op_type == "QGemm" and not step.has(7)  # without an output scale
    return [Value(DType.FLOAT if is_float else step.value(0).dtype, (a[0], b[-1]))]


def _block_product(step: Step) -> list[Value]:
    """Infer MatMulNBits and similar operators: N and K are attributes."""
    return [Value(step.value(0).dtype, (*step.shape(0)[:-1], step.number("N", 0)))]


def weight_slot(step: Step) -> int:
    """Return the input slot of a convolution's weight."""
    return 3 if step.node.op_type in ("QLinearConv",) else 1


def window(step: Step, dims: Sequence[Size], kernel: Sequence[Size]) -> tuple[Size, ...]:
    """Return the window positions along each spatial axis: pads, strides, dilations, `auto_pad`, `ceil_mode`.

    Raises:
        MisfitError: the window of a convolution is larger than its input with the pads.
        UnshapedError: that of a pool is.
    """
    rank = len(kernel)
    strides = step.numbers("strides") or (1,) * rank
    dilations = step.numbers("dilations") or (1,) * rank
    pads = step.numbers("pads") or (0,) * (2 * rank)
    auto, is_up = step.text("auto_pad", "NOTSET"), step.number("ceil_mode", 0)
    made: list[Size] = []
    for place, dim in enumerate(dims[:rank]):
        reach = add(multiply(subtract(kernel[place], 1), dilations[place]), 1)
        stride = strides[place]
        if auto.startswith("SAME"):
            made.append(ceil_div(dim, stride))
            continue
        before, after = (0, 0) if auto == "VALID" else (pads[place], pads[place + rank])
        room = total((dim, before, after, multiply(reach, -1)))
        if isinstance(room, int) and room < 0:
            padded = "padded " if before or after else ""
            why = f"a window of {reach} is larger than its {padded}input of {add(room, reach)}"
            if "Pool" in step.node.op_type:  # onnxruntime rounds towards 0, and runs some of these
                raise UnshapedError(why)
            raise MisfitError(why)
        if is_up:  # a window that starts in the end padding is left out
            begins = ceil_div(add(dim, before), stride)
            count = add(ceil_div(room, stride), 1)
            is_inside = isinstance(reach, int) and after + stride <= reach
            made.append(count if is_inside else smallest(count, begins))
        else:
            made.append(add(floor_div(room, stride), 1))
    return tuple(made)


def _conv(step: Step) -> list[Value]:
    x, w = step.shape(0), step.shape(weight_slot(step))
    dtype = DType.INT32 if step.node.op_type == "ConvInteger" else step.value(0).dtype
    if step.node.op_type == "QLinearConv" and step.number("channels_last", 0):
        return [Value(dtype, (x[0], *window(step, x[1:-1], w[2:]), w[0]))]
    return [Value(dtype, (x[0], w[0], *window(step, x[2:], w[2:])))]


def _nhwc_conv(step: Step) -> list[Value]:
    x, w = step.shape(0), step.shape(1)
    return [Value(step.value(0).dtype, (x[0], *window(step, x[1:-1], w[2:]), w[0]))]


def _conv_transpose(step: Step) -> list[Value]:
    x, w = step.shape(0), step.shape(1)
    rank, groups = len(x) - 2, step.number("group", 1)
    output_shape = step.numbers("output_shape")
    strides = step.numbers("strides") or (1,) * rank
    dilations = step.numbers("dilations") or (1,) * rank
    pads, extra = step.numbers("pads") or (0,) * (2 * rank), step.numbers("output_padding") or (0,) * rank
    auto = step.text("auto_pad", "NOTSET")
    space: list[Size] = []
    for place in range(rank):
        if output_shape is not None:
            space.append(output_shape[place - rank])
        elif auto.startswith("SAME"):
            space.append(multiply(x[2 + place], strides[place]))
        else:
            reach = add(multiply(subtract(w[2 + place], 1), dilations[place]), 1)
            moved = multiply(subtract(x[2 + place], 1), strides[place])
            cut = 0 if auto == "VALID" else pads[place] + pads[place + rank]
            space.append(total((moved, extra[place], reach, -cut)))
    return [Value(step.value(0).dtype, (x[0], multiply(w[1], groups), *space))]


def _pool(step: Step) -> list[Value]:
    x, kernel = step.shape(0), step.numbers("kernel_shape") or ()
    if step.number("channels_last", 0):
        return [Value(step.value(0).dtype, (x[0], *window(step, x[1:-1], kernel), x[-1]))]
    shape = (x[0], x[1], *window(step, x[2:], kernel))
    return [Value(step.value(0).dtype, shape), Value(DType.INT64, shape)][: len(step.node.outputs)]


def _global_pool(step: Step) -> list[Value]:
    x = step.shape(0)
    if step.number("channels_last", 0):
        return [Value(step.value(0).dtype, (x[0], *(1,) * (len(x) - 2), x[-1]))]
    return [Value(step.value(0).dtype, (*x[:2], *(1,) * (len(x) - 2)))]


def _reduce(step: Step) -> list[Value]:
    x = step.shape(0)
    if step.has(1):
        sizes = step.sizes(1)
        if sizes is None:
            raise UnshapedError(f"{step.node.op_type} over axes that are computed from values")
        axes: tuple[int, ...] | None = tuple(size for size in sizes if isinstance(size, int)) or None
    else:
        axes = step.numbers("axes")
    if axes is None and step.number("noop_with_empty_axes", 0):
        return _like(step)
    reduced = set(range(len(x))) if axes is None else {axis_of(axis, len(x)) for axis in axes}
    kept = step.number("keepdims", 1)
    shape = tuple(
        1 if place in reduced else dim for place, dim in enumerate(x) if kept or place not in reduced
    )
    return [Value(step.value(0).dtype, shape, _reduced(step) if len(reduced) == len(x) else None)]


def _reduced(step: Step) -> tuple[Size, ...] | None:
    data = step.sizes(0)
    if data is None:
        return None
    if step.node.op_type == "ReduceProd":
        result: Size = 1
        for each in data:
            result = multiply(result, each)
        return (result,)
    if step.node.op_type == "ReduceSum":
        return (total(data),)
    if (
        step.node.op_type in ("ReduceMax", "ReduceMin")
        and data
        and all(isinstance(each, int) for each in data)
    ):
        numbers = [each for each in data if isinstance(each, int)]
        return (max(numbers) if step.node.op_type == "ReduceMax" else min(numbers),)
    return None


def _arg(step: Step) -> list[Value]:
    x = step.shape(0)
    place = axis_of(step.number("axis", 0), len(x))
    kept = (1,) if step.number("keepdims", 1) else ()
    return [Value(DType.INT64, (*x[:place], *kept, *x[place + 1 :]))]


def _norm(step: Step) -> list[Value]:
    """Infer layer normalization and similar operators: mean and deviation keep the axes before `axis`."""
    value, x = step.value(0), step.shape(0)
    place = axis_of(step.number("axis", -1), len(x))
    few = (*x[:place], *(1,) * (len(x) - place))
    return [Value(value.dtype, x), *[Value(DType.FLOAT, few)] * (len(step.node.outputs) - 1)]


def _skip_norm(step: Step) -> list[Value]:
    value, x = step.value(0), step.shape(0)
    few = (*x[:-1], 1)
    whole, part = Value(value.dtype, x), Value(DType.FLOAT, few)
    return [whole, part, part, whole][: len(step.node.outputs)]


def _batch_norm(step: Step) -> list[Value]:
    value = step.value(0)
    statistics = Value(value.dtype, step.shape(1))
    return [Value(value.dtype, value.shape, None, value.why), *[statistics] * (len(step.node.outputs) - 1)]


def _recurrent(step: Step) -> list[Value]:
    x, r = step.shape(0), step.shape(2)
    length, batch, directions = x[0], x[1], r[0]
    hidden = step.number("hidden_size", 0) or r[2]
    dtype = step.value(0).dtype
    if step.number("layout", 0):
        length, batch = x[1], x[0]
        made = [Value(dtype, (batch, length, directions, hidden)), Value(dtype, (batch, directions, hidden))]
    else:
        made = [Value(dtype, (length, directions, batch, hidden)), Value(dtype, (directions, batch, hidden))]
    return [*made, made[1]][: max(len(step.node.outputs), 1)]


def _resize(step: Step) -> list[Value]:
    x = list(step.shape(0))
    if step.node.op_type == "Upsample" or len(step.inputs) == 2:
        scales, sizes = 1, -1
    else:
        scales, sizes = 2, 3
    axes = step.numbers("axes") or tuple(range(len(x)))
    wanted = step.sizes(sizes) if sizes > 0 and step.has(sizes) else None
    if wanted is not None:
        kept = step.text("keep_aspect_ratio_policy", "stretch")
        made = list(wanted) if kept == "stretch" else _in_ratio(kept, [x[axis] for axis in axes], wanted)
        for axis, size in zip(axes, made, strict=True):
            x[axis] = size
        return [Value(step.value(0).dtype, tuple(x))]
    factors = step.inputs[scales].data if step.has(scales) else step.node.settings.get("scales")
    known = [each for each in factors if isinstance(each, (int, float))] if isinstance(factors, tuple) else []
    if len(known) != len(axes):
        raise UnshapedError("Resize to sizes that are computed from values")
    for axis, factor in zip(axes, known, strict=True):
        x[axis] = _scaled(x[axis], float(factor))
    return [Value(step.value(0).dtype, tuple(x))]


def _in_ratio(policy: str, dims: Sequence[Size], wanted: Sequence[Size]) -> list[Size]:
    """Return sizes scaled by one factor, so that the aspect ratio stays and one size is as requested."""
    ratios = [
        b / a for a, b in zip(dims, wanted, strict=True) if isinstance(a, int) and isinstance(b, int) and a
    ]
    if len(ratios) != len(dims):
        raise UnshapedError("Resize in the ratio of free axes")
    factor = min(ratios) if policy == "not_larger" else max(ratios)
    return [int(factor * dim + 0.5) for dim in dims if isinstance(dim, int)]


def _scaled(size: Size, factor: float) -> Size:
    """Multiply in single precision, as runtimes do."""
    if isinstance(size, int):
        return math.floor(np.float32(size) * np.float32(factor))
    top, bottom = factor.as_integer_ratio()
    if bottom > 1 << 12:
        raise UnshapedError("Resize of a free axis by a factor that is no simple fraction")
    return floor_div(multiply(size, top), bottom)


def _top_k(step: Step) -> list[Value]:
    x = list(step.shape(0))
    count = step.sizes(1) if step.has(1) else None
    size: Size = (
        count[0] if count else step.number("k", 0) or step.fresh("TopK of a computed number of elements")
    )
    x[axis_of(step.number("axis", -1), len(x))] = size
    return [Value(step.value(0).dtype, tuple(x)), Value(DType.INT64, tuple(x))]


def _non_zero(step: Step) -> list[Value]:
    count = step.fresh("NonZero: the number of results depends on the values")
    return [Value(DType.INT64, (len(step.shape(0)), count))]


def _unknown_length(step: Step) -> list[Value]:
    """Infer operators whose number of output rows depends on values."""
    count = step.fresh(f"{step.node.op_type}: the number of results depends on the values")
    if step.node.op_type == "NonMaxSuppression":
        return [Value(DType.INT64, (count, 3))]
    axis = step.node.integers.get("axis")
    dims = list(step.shape(0))
    place = None if axis is None else axis_of(axis, len(dims))
    shape = (count,) if place is None else (*dims[:place], count, *dims[place + 1 :])
    others = [Value(DType.INT64, (count,))] * (len(step.node.outputs) - 1)
    return [Value(step.value(0).dtype, shape), *others]


def einsum_axes(step: Step) -> tuple[list[str], str, dict[str, Size]]:
    """Return the letters of each operand and of the result, and their sizes; circled digits stand for ellipsis axes.

    Raises:
        UnshapedError: the equation does not fit.
    """
    equation = step.text("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(step.inputs):
        raise UnshapedError("Einsum with an equation that does not fit its inputs")
    shapes = [step.shape(slot) for slot in range(len(terms))]
    hidden = [len(dims) - len(term.replace("...", "")) for term, dims in zip(terms, shapes, strict=True)]
    most = max((count for term, count in zip(terms, hidden, strict=True) if "..." in term), default=0)
    figures = "".join(chr(0x2460 + place) for place in range(max(most, 0)))  # circled digits
    terms = [
        term.replace("...", figures[most - count :] if count > 0 else "")
        for term, count in zip(terms, hidden, strict=True)
    ]
    sizes: dict[str, Size] = {}
    for term, dims in zip(terms, shapes, strict=True):
        if len(dims) != len(term):
            raise UnshapedError("Einsum with an equation that does not fit its inputs")
        for letter, dim in zip(term, dims, strict=True):
            sizes[letter] = step.broadcast([(sizes.get(letter, 1),), (dim,)])[0]
    if not arrow:
        letters = "".join(terms)
        right = figures + "".join(
            sorted(letter for letter in set(letters) - set(figures) if letters.count(letter) == 1)
        )
    return terms, right.replace("...", figures), sizes


def _einsum(step: Step) -> list[Value]:
    _, result, sizes = einsum_axes(step)
    return [Value(step.value(0).dtype, tuple(sizes[letter] for letter in result))]


def _dynamic_quantize(step: Step) -> list[Value]:
    return [
        Value(DType.UINT8, step.shape(0)),
        Value(DType.FLOAT, ()),
        Value(DType.UINT8, ()),
    ]


def _quantize(step: Step) -> list[Value]:
    dtype = step.inputs[2].dtype if step.has(2) else DType.from_onnx(step.number("output_dtype", 0) or 2)
    return [Value(dtype, step.value(0).shape, _quantized(step, dtype), step.value(0).why)]


def _dequantize(step: Step) -> list[Value]:
    value, zero = step.value(0), _point(step)
    scale = _scale(step)
    data = None
    if value.data and scale is not None and zero is not None:
        whole = [each for each in value.data if isinstance(each, int)]
        if len(whole) == len(value.data):
            data = tuple(_single((each - zero) * scale) for each in whole)
    return [Value(step.value(1).dtype, value.shape, data, value.why)]


_RANGES: Mapping[DType, tuple[int, int]] = {
    DType.UINT8: (0, 255),
    DType.INT8: (-128, 127),
    DType.UINT16: (0, 65535),
    DType.INT16: (-32768, 32767),
}
"""Integer types of quantized values, with their lowest and highest value."""


def _quantized(step: Step, dtype: DType) -> tuple[Element, ...] | None:
    """Return the codes of known FLOAT numbers: quantizers also quantize numbers that shapes are computed from."""
    value, scale, zero = step.value(0), _scale(step), _point(step)
    if (
        not value.data
        or scale is None
        or zero is None
        or dtype not in _RANGES
        or value.dtype is not DType.FLOAT
    ):
        return None
    numbers = [each for each in value.data if isinstance(each, float) and math.isfinite(each)]
    if len(numbers) < len(value.data):
        return None
    least, most = _RANGES[dtype]
    steps = (
        min(max(_single(_single(each) / scale), -_FAR), _FAR) for each in numbers
    )  # infinity cannot be rounded
    return tuple(min(max(round(each) + zero, least), most) for each in steps)


_FAR = 1 << 20
"""Number of steps that exceeds the codes of every type."""


def _scale(step: Step) -> float | None:
    """Return the scale of a node; None where it is not a single positive FLOAT."""
    scale = step.value(1)
    number = scale.data[0] if scale.data and len(scale.data) == 1 and scale.dtype is DType.FLOAT else None
    return number if isinstance(number, float) and math.isfinite(number) and number > 0 else None


def _point(step: Step) -> int | None:
    """Return the zero point; None where it is not a single known integer."""
    if not step.has(2):
        return 0
    zero = step.value(2).data
    return zero[0] if zero and len(zero) == 1 and isinstance(zero[0], int) else None


def _single(value: float) -> float:
    """Return the closest FLOAT number; infinity where there is none.

    >>> _single(0.1)
    0.10000000149011612
    """
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _scatter(step: Step) -> list[Value]:
    value = step.value(0)
    if step.node.op_type == "ScatterElements" and (counts := _counts(step)) is not None:
        return [Value(value.dtype, value.shape, counts)]
    return [Value(value.dtype, value.shape, None, value.why)]


def _counts(step: Step) -> tuple[Element, ...] | None:
    """Return the count of each index where ScatterElements adds ones to zeros; the counts sum to the number of ones.

    Exporters count the tokens of each expert in this way, with the tokens sorted by expert.
    """
    zeros, ones = step.value(0), step.value(2)
    whole = ones.numel
    is_counting = step.text("reduction", "none") == "add" and zeros.constant == 0 and ones.constant == 1
    if not is_counting or len(step.shape(0)) != 1 or not zeros.data or whole is None:
        return None
    each = [step.fresh("how often an index occurs depends on values") for _ in zeros.data]
    atoms = [poly.terms[0][0][0][0] for poly in each]
    parts = Parts(tuple(map(str, atoms)), whole)
    return tuple(symbol(replace(atom, parts=parts)) for atom in atoms if isinstance(atom, Hidden))


def _cumulate(step: Step) -> list[Value]:
    value, axis = step.value(0), step.sizes(1)
    is_plain = not step.number("exclusive", 0) and not step.number("reverse", 0)
    data = sizes_of(value) if value.rank == 1 and axis is not None and is_plain else None
    sums = None if data is None else tuple(itertools.accumulate(data, add))
    return [Value(value.dtype, value.shape, sums, value.why)]


def _random(step: Step) -> list[Value]:
    dims = step.shape(0) if step.inputs and step.has(0) else step.numbers("shape") or ()
    return [Value(DType.from_onnx(step.number("dtype", 1)), tuple(dims))]


def _grid_sample(step: Step) -> list[Value]:
    x, grid = step.shape(0), step.shape(1)
    return [Value(step.value(0).dtype, (*x[:2], *grid[1:-1]))]


def _roi_align(step: Step) -> list[Value]:
    height, width = step.number("output_height", 1), step.number("output_width", 1)
    return [Value(step.value(0).dtype, (step.shape(1)[0], step.shape(0)[1], height, width))]


def _gather_block(step: Step) -> list[Value]:
    table, index = step.shape(0), step.shape(1)
    bits, dtype = step.number("bits", 4), step.value(0).dtype
    packed = 8 // bits if dtype is DType.UINT8 else 1
    return [Value(step.value(2).dtype, (*index, *table[1:-1], multiply(table[-1], packed)))]


_UNARY = """
Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish Hardmax IsInf IsNaN
LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not Reciprocal Relu Round Selu
Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Gelu Swish FastGelu
QuickGelu BiasGelu BiasSoftmax Celu Clip InstanceNormalization GroupNormalization LRN RotaryEmbedding
QLinearSigmoid QLinearLeakyRelu QLinearSoftmax BitwiseNot Bernoulli ReverseSequence Inverse BiasAdd GroupNorm
SkipGroupNorm RMSNormalization SimplifiedLayerNormalization Trilu ImageScaler Scaler Normalizer ScaledTanh
ParametricSoftplus Affine ReorderInput ReorderOutput
"""

_BINARY = """
Add Sub Mul Div Pow Mod PRelu Max Min Sum Mean BitShift BitwiseAnd BitwiseOr BitwiseXor
"""
_TRUTH = """
Equal Less Greater LessOrEqual GreaterOrEqual And Or Xor
"""
_REDUCE = """
ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
ReduceSumSquare QLinearReduceMean
"""

COMPUTE: dict[str, Rule] = {
    **dict.fromkeys(_UNARY.split(), _unary),
    **dict.fromkeys(_BINARY.split(), _elementwise),
    **dict.fromkeys(_TRUTH.split(), _truth),
    **dict.fromkeys(_REDUCE.split(), _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    **dict.fromkeys(("MatMul", "MatMulInteger", "FusedMatMul", "TransposeMatMul", "QLinearMatMul"), _product),
    **dict.fromkeys(("MatMulIntegerToFloat", "DynamicQuantizeMatMul"), _product),
    **dict.fromkeys(("Gemm", "FusedGemm", "QGemm"), _gemm),
    **dict.fromkeys(("MatMulNBits", "MatMulBnb4"), _block_product),
    **dict.fromkeys(("Conv", "FusedConv", "ConvInteger", "QLinearConv"), _conv),
    "NhwcFusedConv": _nhwc_conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _conv,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "QLinearAveragePool", "NhwcMaxPool"), _pool),
    **dict.fromkeys(
        ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "QLinearGlobalAveragePool"), _global_pool
    ),
    **dict.fromkeys(("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"), _norm),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_norm),
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), _recurrent),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "TopK": _top_k,
    "NonZero": _non_zero,
    **dict.fromkeys(("NonMaxSuppression", "Compress", "Unique"), _unknown_length),
    "Einsum": _einsum,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    **dict.fromkeys(("ScatterND", "ScatterElements", "Scatter", "TensorScatter"), _scatter),
    **dict.fromkeys(("RandomNormalLike", "RandomUniformLike", "RandomNormal", "RandomUniform"), _random),
    "CumSum": _cumulate,
    "GridSample": _grid_sample,
    "RoiAlign": _roi_align,
    "GatherBlockQuantized": _gather_block,
}
"""Rules by operator; `analyzer.cost.fused` has those of com.microsoft's fused operators."""
