"""Multiply-accumulates and floating point operations of one node, from the shapes of its inputs and outputs.

A multiply-accumulate (MAC) is one of the products that Conv, MatMul, Gemm, Einsum, attention, recurrent operators and
their quantized and fused variants sum. Everything else is counted in flops by `CONVENTION`; a MAC is two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analyzer.cost.algebra import Size, add, bits_of, floor_div, multiply, product, subtract, total
from analyzer.cost.compute import einsum_axes, operands, weight_slot
from analyzer.cost.fused import attention_of, seen_twice
from analyzer.cost.values import Step, UnshapedError, Value
from analyzer.records import Frozen

CONVENTION = (
    "macs: multiply-accumulates of products, convolutions, attention and recurrences, masked ones too; "
    "flops: two for a mac, one for each element that an element-wise operator makes, four for a softmax or a "
    "function such as exp, one for each element that a reduction or a pool reads, seven for each of a norm"
)
"""Counting convention, as text for users."""


class Work(Frozen):
    """Work of a node."""

    macs: Size = 0
    flops: Size = 0
    """Floating point operations without those of `macs`."""
    masked: Size = 0
    """Those of `macs` whose products a causal mask or a window discards."""


def _numel(value: Value) -> Size:
    count = value.numel
    if count is None:
        raise UnshapedError(value.why or "a shape that is not known")
    return count


def _matmul(step: Step, made: Sequence[Value]) -> Work:
    a, _ = operands(step)
    return Work(multiply(_numel(made[0]), a[-1]))


def _gemm(step: Step, made: Sequence[Value]) -> Work:
    a, _ = operands(step)
    bias = _numel(made[0]) if step.has(6 if step.node.op_type == "QGemm" else 2) else 0
    return Work(multiply(_numel(made[0]), a[-1]), bias)


def _blocks(step: Step, made: Sequence[Value]) -> Work:
    return Work(multiply(_numel(made[0]), step.number("K", 0)))


def _conv(step: Step, made: Sequence[Value]) -> Work:
    weight = step.shape(weight_slot(step))
    each = product(weight[1:])
    slot = {"QLinearConv": 8}.get(step.node.op_type, 2)
    has_bias = step.has(slot) and step.node.op_type != "ConvInteger"
    return Work(multiply(_numel(made[0]), each), _numel(made[0]) if has_bias else 0)


def _conv_transpose(step: Step, made: Sequence[Value]) -> Work:
    weight = step.shape(1)
    return Work(multiply(_numel(step.value(0)), product(weight[1:])), _numel(made[0]) if step.has(2) else 0)


def _einsum(step: Step, made: Sequence[Value]) -> Work:
    """Multiply operands two at a time from the left.

    An axis of only one of the two that neither a later operand nor the result has is summed first.
    """
    terms, result, sizes = einsum_axes(step)
    macs: Size = 0
    flops: Size = 0
    current = terms[0]
    if len(terms) == 1:
        return Work(0, _numel(step.value(0)))
    for at, term in enumerate(terms[1:], 1):
        later = "".join(terms[at + 1 :]) + result
        ours = [letter for letter in dict.fromkeys(current) if letter in later or letter in term]
        theirs = [letter for letter in dict.fromkeys(term) if letter in later or letter in current]
        for before, after in ((current, ours), (term, theirs)):
            if len(after) < len(set(before)):
                flops = add(flops, product(sizes[letter] for letter in set(before)))
        letters = dict.fromkeys([*ours, *theirs])
        macs = add(macs, product(sizes[letter] for letter in letters))
        current = "".join(letter for letter in letters if letter in later)
    return Work(macs, flops)


def _attention(step: Step, made: Sequence[Value]) -> Work:
    """Count scores, their product with the values, and projections that are part of the operator."""
    found = attention_of(step)
    each = product((found.batch, found.heads, add(found.head, found.value_head)))
    seen = seen_twice(step, found)
    every = multiply(found.queries, found.keys)
    masked = subtract(multiply(each, every), floor_div(multiply(each, seen), 2))
    pairs = product((found.batch, found.heads, every))
    return Work(add(multiply(each, every), found.projected), multiply(pairs, _SOFTMAX + 1), masked)


def _recurrent(step: Step, made: Sequence[Value]) -> Work:
    """Count each step and direction: gates x hidden x (input + hidden)."""
    x, r = step.shape(0), step.shape(2)
    gates = {"GRU": 3, "RNN": 1}.get(step.node.op_type, 4)
    hidden = step.number("hidden_size", 0) or r[2]
    steps = product((x[0], x[1], r[0]))
    rows = multiply(hidden, gates)
    macs = product((steps, rows, add(x[2], hidden)))
    return Work(macs, product((steps, rows, _FUNCTION + 1)))


def _moe(step: Step, made: Sequence[Value]) -> Work:
    """Count the `k` experts of each token, with two or three products each."""
    x = step.shape(0)
    tokens = product(x[:-1])
    is_packed = step.node.op_type == "QMoE"
    codes = 8 // step.number("expert_weight_bits", 4) if is_packed else 1
    slots = (2, 5, 8) if is_packed else (2, 4, 6)
    matrices = total(product((*step.shape(slot)[1:], codes)) for slot in slots if step.has(slot))
    return Work(product((tokens, step.number("k", 1), matrices)))


def _causal_conv(step: Step, made: Sequence[Value]) -> Work:
    return Work(multiply(_numel(made[0]), step.shape(1)[-1]), _numel(made[0]) if step.has(2) else 0)


def _linear_attention(step: Step, made: Sequence[Value]) -> Work:
    """Count each step: every query reads the state, every key adds to it; a delta rule first removes the old value."""
    query, key, value = step.shape(0), step.shape(1), step.shape(2)
    heads, groups = step.number("q_num_heads", 1), step.number("kv_num_heads", 1)
    cells = multiply(floor_div(key[-1], groups), floor_div(value[-1], groups))
    rule = step.text("update_rule", "gated_delta")
    visits = heads + groups * (2 if "delta" in rule else 1)
    return Work(product((query[0], query[1], cells, visits)))


def _transform(step: Step, made: Sequence[Value]) -> Work:
    """Count DFT and STFT as fast transforms: 5 N log2 N for each signal of length N, with the logarithm rounded up."""
    dims = step.shape(0)
    if step.node.op_type == "STFT":
        lengths = step.sizes(3) if step.has(3) else step.shape(2)
        count = multiply(made[0].shape[0], made[0].shape[1]) if made[0].shape else None
    else:
        axis = step.sizes(2) if step.has(2) else (step.number("axis", 1 if step.opset < 20 else -2),)
        place = axis[0] if axis else None
        lengths = step.sizes(1) if step.has(1) else (dims[place],) if isinstance(place, int) else None
        rest = [
            dim for at, dim in enumerate(dims[:-1]) if not isinstance(place, int) or at != place % len(dims)
        ]
        count = product(rest)
    length = lengths[0] if lengths else None
    if length is None or count is None:
        raise UnshapedError(f"{step.node.op_type}: a length that is not known")
    return Work(0, product((count, 5, length, bits_of(subtract(length, 1)))))


def _linear_model(step: Step, made: Sequence[Value]) -> Work:
    """Count each row times all coefficients."""
    coefficients = step.attached.get("coefficients")
    if coefficients is None:
        raise UnshapedError(f"{step.node.op_type} without coefficients")
    dims = step.shape(0)
    return Work(multiply(dims[0] if len(dims) > 1 else 1, _numel(coefficients)), _numel(made[-1]))


_FUNCTION, _SOFTMAX, _NORM = 4, 4, 7


def _per_element(factor: int) -> _Rule:
    return lambda step, made: Work(0, multiply(_numel(made[0]), factor))


def _per_read(factor: int) -> _Rule:
    return lambda step, made: Work(0, multiply(_numel(step.value(0)), factor))


def _pool(step: Step, made: Sequence[Value]) -> Work:
    kernel = step.numbers("kernel_shape") or ()
    return Work(0, multiply(_numel(made[0]), product(kernel)))


def _skip_norm(step: Step, made: Sequence[Value]) -> Work:
    return Work(0, multiply(_numel(made[0]), _NORM + 1))


def _softmax_loss(step: Step, made: Sequence[Value]) -> Work:
    return Work(0, add(multiply(_numel(step.value(0)), _SOFTMAX), _numel(step.value(1))))


def _picked_loss(step: Step, made: Sequence[Value]) -> Work:
    return Work(0, _numel(step.value(1)))


_Rule = Callable[[Step, Sequence[Value]], Work]

_MATMULS = """
MatMul MatMulInteger FusedMatMul TransposeMatMul QLinearMatMul MatMulIntegerToFloat DynamicQuantizeMatMul
"""
_CONVS = "Conv FusedConv ConvInteger QLinearConv NhwcFusedConv NhwcConv DeformConv"
_CHEAP = """
Abs Neg Not Add Sub Mul Div Mod Max Min Sum Mean PRelu Relu LeakyRelu Clip Where Equal Less Greater LessOrEqual
GreaterOrEqual And Or Xor Ceil Floor Round Sign Reciprocal ThresholdedRelu HardSigmoid HardSwish IsNaN IsInf CumSum
BitShift BitwiseAnd BitwiseOr BitwiseXor BitwiseNot QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearAdd
QLinearMul BiasAdd CumProd Affine Imputer Binarizer Det AffineGrid ParametricSoftplus
Resize Upsample GridSample Shrink ImageScaler Scaler QLinearLeakyRelu QLinearWhere
"""
_COSTLY = """
Sqrt Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Tanh Sigmoid Erf Gelu FastGelu QuickGelu BiasGelu
Softplus Softsign Mish Elu Selu Celu Swish SwiGLU ScaledTanh HannWindow HammingWindow
BlackmanWindow MelWeightMatrix Pow RotaryEmbedding QLinearSigmoid
"""
_SOFTMAXES = "Softmax LogSoftmax BiasSoftmax Hardmax QLinearSoftmax"
_NORMS = """
LayerNormalization SimplifiedLayerNormalization RMSNormalization InstanceNormalization GroupNormalization GroupNorm
LpNormalization MeanVarianceNormalization LRN Normalizer
"""
_SKIPPING = "SkipLayerNormalization SkipSimplifiedLayerNormalization EmbedLayerNormalization SkipGroupNorm"
_REDUCTIONS = """
ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare
ArgMax ArgMin TopK GlobalAveragePool GlobalMaxPool GlobalLpPool QLinearGlobalAveragePool QLinearReduceMean
"""
_LOSSES = "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss"
_POOLS = "MaxPool AveragePool LpPool QLinearAveragePool NhwcMaxPool RoiAlign MaxRoiPool"
_ATTENTIONS = "Attention QAttention MultiHeadAttention GroupQueryAttention DecoderMaskedMultiHeadAttention"

WORK: dict[str, _Rule] = {
    **dict.fromkeys(_CHEAP.split(), _per_element(1)),
    **dict.fromkeys(_COSTLY.split(), _per_element(_FUNCTION)),
    **dict.fromkeys(_SOFTMAXES.split(), _per_element(_SOFTMAX)),
    **dict.fromkeys(_NORMS.split(), _per_element(_NORM)),
    "BatchNormalization": _per_element(2),
    **dict.fromkeys(_SKIPPING.split(), _skip_norm),
    **dict.fromkeys(_REDUCTIONS.split(), _per_read(1)),
    **dict.fromkeys(_POOLS.split(), _pool),
    **dict.fromkeys(_MATMULS.split(), _matmul),
    **dict.fromkeys(("Gemm", "FusedGemm", "QGemm"), _gemm),
    **dict.fromkeys(("MatMulNBits", "MatMulBnb4"), _blocks),
    **dict.fromkeys(_CONVS.split(), _conv),
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    **dict.fromkeys(_ATTENTIONS.split(), _attention),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), _recurrent),
    **dict.fromkeys(("MoE", "QMoE"), _moe),
    "CausalConvWithState": _causal_conv,
    "LinearAttention": _linear_attention,
    **dict.fromkeys(("DFT", "STFT"), _transform),
    "SoftmaxCrossEntropyLoss": _softmax_loss,
    "NegativeLogLikelihoodLoss": _picked_loss,
    **dict.fromkeys(("LinearRegressor", "LinearClassifier"), _linear_model),
}
"""Rules of work, by operator."""

WITHOUT_MACS = frozenset(
    "\n".join(
        [_CHEAP, _COSTLY, _SOFTMAXES, _NORMS, _SKIPPING, _REDUCTIONS, _POOLS, "DFT STFT", _LOSSES]
    ).split()
)
"""Operators that compute, but never sum products."""

FREE = frozenset(
    """
Constant ConstantOfShape Identity Shape Size Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Gather
GatherND GatherElements Expand Tile Pad Range Trilu DepthToSpace SpaceToDepth Cast CastLike EyeLike OneHot Dropout
NonZero Compress Unique NonMaxSuppression ScatterND ScatterElements Scatter TensorScatter RandomNormalLike
RandomUniformLike RandomNormal RandomUniform Bernoulli ReverseSequence QLinearConcat GatherBlockQuantized ReorderInput
ReorderOutput If Loop Scan BitCast CenterCropPad Col2Im MaxUnpool Multinomial Optional OptionalGetElement
OptionalHasElement SplitToSequence SequenceAt SequenceConstruct SequenceEmpty SequenceInsert SequenceErase
SequenceLength ConcatFromSequence StringConcat StringNormalizer ArrayFeatureExtractor LabelEncoder CategoryMapper
OneHotEncoder ZipMap
""".split()  # noqa: SIM905 - a list of names, one below the other, would be longer than the rules
)
"""Operators that only move, create or select values."""


_BODIES = frozenset({"If", "Loop", "Scan"})


def may_have_macs(op_type: str, domain: str) -> bool:
    """Whether an operator may sum products, itself or in its bodies."""
    return domain != "ai.onnx" or op_type in _BODIES or op_type not in WITHOUT_MACS | FREE


def work_of(step: Step, made: Sequence[Value]) -> Work | None:
    """Return the work of a node; None where no rule knows its operator.

    Raises:
        UnshapedError: a shape that the rule needs is not known.
    """
    rule = WORK.get(step.node.op_type)
    if rule is None:
        return Work() if step.node.op_type in FREE else None
    return rule(step, made)
