"""Shapes of sequences of tensors, of signals, and of rare operators (ONNX docs/Operators.md)."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.cost.algebra import Size, add, floor_div, largest, multiply, subtract, total
from analyzer.cost.compute import window
from analyzer.cost.layout import axis_of
from analyzer.cost.values import NOTHING, Rule, Step, UnshapedError, Value
from analyzer.model.dtypes import DType
from analyzer.records import replace

_MOST_ITEMS = 4096
"""Maximum number of tensors in a sequence that are followed."""


def _sequence(dtype: DType, items: Sequence[Value] | None, each: Value | None = None) -> Value:
    known = None if items is None or len(items) > _MOST_ITEMS else tuple(items)
    return Value(dtype, None, None, "a sequence of tensors", items=known, each=each)


def _split_to_sequence(step: Step) -> list[Value]:
    value, dims = step.value(0), step.shape(0)
    axis = axis_of(step.number("axis", 0), len(dims))
    size, kept = dims[axis], step.number("keepdims", 1)
    if not step.has(1):
        shape = (*dims[:axis], *((1,) if kept else ()), *dims[axis + 1 :])
        if not isinstance(size, int) or size > _MOST_ITEMS:
            return [_sequence(value.dtype, None, Value(value.dtype, shape))]
        return [_sequence(value.dtype, [Value(value.dtype, shape)] * size)]
    parts = step.sizes(1)
    if parts is None:
        return [_sequence(value.dtype, None)]
    if step.inputs[1].shape == ():
        each = parts[0]
        if not isinstance(each, int) or not isinstance(size, int) or not each:
            alike = Value(value.dtype, (*dims[:axis], 1, *dims[axis + 1 :])) if each == 1 else None
            return [_sequence(value.dtype, None, alike)]
        parts = tuple(min(each, size - start) for start in range(0, size, each))
    shapes = [(*dims[:axis], part, *dims[axis + 1 :]) for part in parts]
    return [_sequence(value.dtype, [Value(value.dtype, shape) for shape in shapes])]


def _at(step: Step, slot: int) -> int | None:
    """Return the position in an input; None where it is no known number."""
    sizes = step.sizes(slot) if step.has(slot) else None
    return sizes[0] if sizes and isinstance(sizes[0], int) else None


def _sequence_at(step: Step) -> list[Value]:
    items, place = step.value(0).items, _at(step, 1)
    alike = step.value(0).each
    if items is None and alike is not None:
        return [alike]
    if items is None:
        raise UnshapedError("a sequence of tensors whose shapes are not known")
    if place is not None and -len(items) <= place < len(items):
        return [items[place]]
    if items and all(item.shape == items[0].shape for item in items):
        return [replace(items[0], data=None)]
    raise UnshapedError("SequenceAt a place that is computed from values")


def _sequence_construct(step: Step) -> list[Value]:
    return [_sequence(step.value(0).dtype, step.inputs)]


def _sequence_empty(step: Step) -> list[Value]:
    return [_sequence(DType.from_onnx(step.number("dtype", 1)), [])]


def _sequence_insert(step: Step) -> list[Value]:
    items, new = step.value(0).items, step.value(1)
    place = _at(step, 2) if step.has(2) else (None if items is None else len(items))
    if items is None or place is None:
        return [_sequence(new.dtype, None)]
    made = list(items)
    made.insert(place if place >= 0 else len(items) + place, new)
    return [_sequence(new.dtype, made)]


def _sequence_erase(step: Step) -> list[Value]:
    items = step.value(0).items
    place = _at(step, 1) if step.has(1) else -1
    if items is None or place is None or not -len(items) <= place < len(items):
        return [_sequence(step.value(0).dtype, None)]
    place %= len(items)
    return [_sequence(step.value(0).dtype, (*items[:place], *items[place + 1 :]))]


def _sequence_length(step: Step) -> list[Value]:
    items = step.value(0).items
    return [Value(DType.INT64, (), None if items is None else (len(items),))]


def _concat_from_sequence(step: Step) -> list[Value]:
    items = step.value(0).items
    shapes = None if items is None else [item.shape for item in items]
    if not shapes or any(shape is None for shape in shapes):
        raise UnshapedError("a sequence of tensors whose shapes are not known")
    known = [shape for shape in shapes if shape is not None]
    dims = list(known[0])
    if step.number("new_axis", 0):
        axis = step.number("axis", 0)
        dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, len(known))
        return [Value(step.value(0).dtype, tuple(dims))]
    axis = axis_of(step.number("axis", 0), len(dims))
    dims[axis] = total(shape[axis] for shape in known)
    return [Value(step.value(0).dtype, tuple(dims))]


def _optional(step: Step) -> list[Value]:
    return [step.value(0) if step.has(0) else NOTHING]


def _optional_has(step: Step) -> list[Value]:
    return [Value(DType.BOOL, (), (int(step.has(0)),))]


def _like(step: Step) -> list[Value]:
    value = step.value(0)
    return [Value(value.dtype, value.shape, None, value.why)]


def _window_of_length(step: Step) -> list[Value]:
    """Infer HannWindow and similar operators."""
    sizes = step.sizes(0)
    length = (
        sizes[0] if sizes else step.fresh(f"{step.node.op_type} of a length that is computed from values")
    )
    return [Value(DType.from_onnx(step.number("output_datatype", 1)), (length,))]


def _dft(step: Step) -> list[Value]:
    dims = list(step.shape(0))
    if step.has(2):
        input_axis = _at(step, 2)
        if input_axis is None:
            raise UnshapedError("DFT along an axis that is computed from values")
        axis = input_axis
    else:
        axis = step.number("axis", 1 if step.opset < 20 else -2)
    place = axis_of(axis, len(dims))
    is_back, is_half = step.number("inverse", 0), step.number("onesided", 0)
    # Half of a spectrum of n values has n / 2 + 1.
    whole = multiply(2, subtract(dims[place], 1)) if is_back and is_half else dims[place]
    lengths = step.sizes(1) if step.has(1) else (whole,)
    if lengths is None:
        raise UnshapedError("DFT of a length that is computed from values")
    length = lengths[0]
    if is_half:
        dims[place] = add(floor_div(length, 2), 1) if not is_back else length
        dims[-1] = 2 if not is_back else 1
    else:
        dims[place], dims[-1] = length, 2
    return [Value(step.value(0).dtype, tuple(dims))]


def _stft(step: Step) -> list[Value]:
    signal, hop = step.shape(0), step.sizes(1)
    frames = step.sizes(3) if step.has(3) else None
    length: Size | None = frames[0] if frames else step.shape(2)[0] if step.has(2) else None
    if hop is None or length is None:
        raise UnshapedError("STFT of a length that is computed from values")
    count = add(floor_div(subtract(signal[1], length), hop[0]), 1)
    bins = add(floor_div(length, 2), 1) if step.number("onesided", 1) else length
    return [Value(step.value(0).dtype, (signal[0], count, bins, 2))]


def _mel_matrix(step: Step) -> list[Value]:
    bins, length = step.sizes(0), step.sizes(1)
    if bins is None or length is None:
        raise UnshapedError("MelWeightMatrix of sizes that are computed from values")
    dtype = DType.from_onnx(step.number("output_datatype", 1))
    return [Value(dtype, (add(floor_div(length[0], 2), 1), bins[0]))]


def _affine_grid(step: Step) -> list[Value]:
    sizes = step.sizes(1)
    if sizes is None:
        raise UnshapedError("AffineGrid of sizes that are computed from values")
    return [Value(step.value(0).dtype, (sizes[0], *sizes[2:], len(sizes) - 2))]


def _crop_pad(step: Step) -> list[Value]:
    dims, sizes = list(step.shape(0)), step.sizes(1)
    if sizes is None:
        raise UnshapedError("CenterCropPad to sizes that are computed from values")
    for axis, size in zip(step.numbers("axes") or range(len(dims)), sizes, strict=True):
        dims[axis_of(axis, len(dims))] = size
    return [Value(step.value(0).dtype, tuple(dims))]


def _col_to_im(step: Step) -> list[Value]:
    dims, sizes, block = step.shape(0), step.sizes(1), step.sizes(2)
    if sizes is None or block is None:
        raise UnshapedError("Col2Im of sizes that are computed from values")
    cells: Size = 1
    for size in block:
        cells = multiply(cells, size)
    return [Value(step.value(0).dtype, (dims[0], floor_div(dims[1], cells), *sizes))]


def _det(step: Step) -> list[Value]:
    return [Value(step.value(0).dtype, step.shape(0)[:-2])]


def _multinomial(step: Step) -> list[Value]:
    dtype = DType.from_onnx(step.number("dtype", 6))
    return [Value(dtype, (step.shape(0)[0], step.number("sample_size", 1)))]


def _unpool(step: Step) -> list[Value]:
    dims = step.shape(0)
    sizes = step.sizes(2) if step.has(2) else None
    if step.has(2):
        if sizes is None:
            raise UnshapedError("MaxUnpool to sizes that are computed from values")
        return [Value(step.value(0).dtype, sizes)]
    kernel = step.numbers("kernel_shape") or ()
    strides = step.numbers("strides") or (1,) * len(kernel)
    pads = step.numbers("pads") or (0,) * (2 * len(kernel))
    space = [
        total(
            (multiply(subtract(dims[2 + at], 1), strides[at]), -pads[at], -pads[at + len(kernel)], kernel[at])
        )
        for at in range(len(kernel))
    ]
    return [Value(step.value(0).dtype, (*dims[:2], *space))]


def _max_roi_pool(step: Step) -> list[Value]:
    pooled = step.numbers("pooled_shape") or ()
    return [Value(step.value(0).dtype, (step.shape(1)[0], step.shape(0)[1], *pooled))]


def _causal_conv(step: Step) -> list[Value]:
    """Infer `CausalConvWithState`: input (B, C, L), weight (C, 1, K)."""
    x, w = step.shape(0), step.shape(1)
    dtype = step.value(0).dtype
    return [Value(dtype, x), Value(dtype, (*x[:2], subtract(w[-1], 1)))]


def _linear_attention(step: Step) -> list[Value]:
    """Infer `LinearAttention`: query (B, T, N K), key (B, T, G K), value (B, T, G V)."""
    query, key, value = step.shape(0), step.shape(1), step.shape(2)
    heads, groups = step.number("q_num_heads", 1), step.number("kv_num_heads", 1)
    wide = floor_div(value[-1], groups)
    dtype = step.value(0).dtype
    state = (query[0], groups, floor_div(key[-1], groups), wide)
    return [Value(dtype, (*query[:2], multiply(wide, heads))), Value(dtype, state)]


def _nhwc_conv(step: Step) -> list[Value]:
    x, w = step.shape(0), step.shape(1)
    return [Value(step.value(0).dtype, (x[0], *window(step, x[1:-1], w[1:-1]), w[0]))]


def _text_words(step: Step) -> list[Value]:
    shape = step.shape(0)
    if step.node.op_type == "StringNormalizer" and (
        "stopwords" in step.attached or step.setting("stopwords")
    ):
        count = step.fresh("StringNormalizer: the number of words that stay depends on the values")
        shape = (*shape[:-1], count)
    return [Value(DType.STRING, shape)]


def _scores(step: Step) -> list[Value]:
    """Infer linear models, support vector machines and trees: a row of scores for each input row."""
    targets = step.number("n_targets", step.number("targets", 1))
    return [Value(DType.FLOAT, (step.shape(0)[0], targets))]


def _classes(step: Step) -> list[Value]:
    """Infer classifiers: a label for each input row, and a score of each class."""
    names = ("classlabels_ints", "classlabels_int64s", "classlabels_strings")
    found = [(name, step.attached[name]) for name in names if name in step.attached]
    rows = largest(step.shape(0)[0], 1) if len(step.shape(0)) > 1 else 1
    dtype = DType.STRING if any(name.endswith("strings") for name, _ in found) else DType.INT64
    label = Value(dtype, (rows,))
    count = found[0][1].numel if found else None
    if count is None:
        return [
            label,
            Value(DType.FLOAT, None, None, f"{step.node.op_type}: its number of classes is unknown"),
        ]
    return [label, Value(DType.FLOAT, (rows, count))]


def _picked_features(step: Step) -> list[Value]:
    """Infer `ArrayFeatureExtractor`: the selected elements of the last axis."""
    dims = step.shape(0)
    count = step.value(1).numel
    if count is None:
        raise UnshapedError("ArrayFeatureExtractor of an unknown number of places")
    return [Value(step.value(0).dtype, (*(dims[:-1] or (1,)), count))]


def _encoded(step: Step) -> list[Value]:
    """Infer `LabelEncoder`, `CategoryMapper`: an element for each input element, of the type of the table's values."""
    kinds = {"values_floats": DType.FLOAT, "values_strings": DType.STRING, "values_int64s": DType.INT64}
    output_dtype = next((dtype for name, dtype in kinds.items() if name in step.attached), None)
    if output_dtype is None:
        output_dtype = DType.STRING if step.value(0).dtype is DType.INT64 else DType.INT64
    return [Value(output_dtype, step.shape(0))]


def _one_hot_of_classes(step: Step) -> list[Value]:
    """Infer `OneHotEncoder`: a number for each category."""
    found = next(
        (step.attached[name] for name in ("cats_int64s", "cats_strings") if name in step.attached), None
    )
    if found is None or found.numel is None:
        raise UnshapedError("OneHotEncoder of an unknown number of categories")
    return [Value(DType.FLOAT, (*step.shape(0), found.numel))]


def _loss(step: Step) -> list[Value]:
    """Infer `SoftmaxCrossEntropyLoss` and `NegativeLogLikelihoodLoss`: one loss for all labels, or one for each."""
    scores = step.value(0)
    shape = step.shape(1) if step.text("reduction", "mean") == "none" else ()
    return [Value(scores.dtype, shape), Value(scores.dtype, step.shape(0))][: len(step.node.outputs)]


OTHERS: dict[str, Rule] = {
    "SplitToSequence": _split_to_sequence,
    "SequenceAt": _sequence_at,
    "SequenceConstruct": _sequence_construct,
    "SequenceEmpty": _sequence_empty,
    "SequenceInsert": _sequence_insert,
    "SequenceErase": _sequence_erase,
    "SequenceLength": _sequence_length,
    "ConcatFromSequence": _concat_from_sequence,
    "Optional": _optional,
    "OptionalGetElement": _optional,
    "OptionalHasElement": _optional_has,
    **dict.fromkeys(("BitCast", "CumProd", "Affine", "Imputer", "Binarizer", "SwiGLU", "ZipMap"), _like),
    "ArrayFeatureExtractor": _picked_features,
    **dict.fromkeys(("LabelEncoder", "CategoryMapper"), _encoded),
    "OneHotEncoder": _one_hot_of_classes,
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow"), _window_of_length),
    "DFT": _dft,
    "STFT": _stft,
    "MelWeightMatrix": _mel_matrix,
    "AffineGrid": _affine_grid,
    "CenterCropPad": _crop_pad,
    "Col2Im": _col_to_im,
    "Det": _det,
    "Multinomial": _multinomial,
    "MaxUnpool": _unpool,
    "MaxRoiPool": _max_roi_pool,
    "CausalConvWithState": _causal_conv,
    "LinearAttention": _linear_attention,
    **dict.fromkeys(("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"), _loss),
    "NhwcConv": _nhwc_conv,
    **dict.fromkeys(("StringConcat", "StringNormalizer"), _text_words),
    **dict.fromkeys(("LinearRegressor", "SVMRegressor", "TreeEnsembleRegressor"), _scores),
    **dict.fromkeys(("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"), _classes),
}
"""Rules by operator."""
