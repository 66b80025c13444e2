"""Multiply-accumulates and floating point operations of one node, from the shapes that it reads and makes.

A multiply-accumulate (MAC) is one of the products that Conv, MatMul, Gemm, Einsum, attention, recurrent operators and
their quantized and fused kin sum. Everything else is counted in flops by `CONVENTION`; a MAC is two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzer.cost.algebra import Size, add, floor_div, multiply, product, total
from analyzer.cost.compute import einsum_axes, operands, weight_slot
from analyzer.cost.fused import attention_of
from analyzer.cost.values import Step, UnshapedError, Value

__all__ = ["CONVENTION", "FREE", "Work", "work_of"]

CONVENTION = (
    "macs: multiply-accumulates of products, convolutions, attention and recurrences, masked ones too; "
    "flops: two for a mac, one for each element that an element-wise operator makes, four for a softmax or a "
    "function such as exp, one for each element that a reduction or a pool reads, seven for each of a norm"
)
"""What is counted, in words."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a node computes."""

    macs: Size = 0
    flops: Size = 0
    """Without those of `macs`."""


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
    bias = _numel(made[0]) if step.has(2) else 0
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
    """Operands are multiplied two at a time from the left; what no later one has is summed at once."""
    terms, result, sizes = einsum_axes(step)
    if len(terms) == 1:
        return Work(0, _numel(step.value(0)))
    macs: Size = 0
    held = terms[0]
    for at, term in enumerate(terms[1:], 1):
        letters = dict.fromkeys(held + term)
        macs = add(macs, product(sizes[letter] for letter in letters))
        later = "".join(terms[at + 1 :]) + result
        held = "".join(letter for letter in letters if letter in later)
    return Work(macs)


def _attention(step: Step, made: Sequence[Value]) -> Work:
    """Scores and their product with the values; projections where they are part of the operator."""
    found = attention_of(step)
    pairs = product((found.batch, found.heads, found.queries, found.keys))
    macs = add(multiply(pairs, found.head), multiply(pairs, found.value_head))
    return Work(add(macs, found.projected), multiply(pairs, _SOFTMAX + 1))


def _recurrent(step: Step, made: Sequence[Value]) -> Work:
    """Each step and direction: gates x hidden x (input + hidden)."""
    x, r = step.shape(0), step.shape(2)
    gates = {"GRU": 3, "RNN": 1}.get(step.node.op_type, 4)
    hidden = step.number("hidden_size", 0) or r[2]
    steps = product((x[0], x[1], r[0]))
    rows = multiply(hidden, gates)
    macs = product((steps, rows, add(x[2], hidden)))
    return Work(macs, product((steps, rows, _FUNCTION + 1)))


def _moe(step: Step, made: Sequence[Value]) -> Work:
    """The experts that each token is sent to, each two or three products."""
    x = step.shape(0)
    tokens, width = product(x[:-1]), x[-1]
    active = step.number("k", 1)
    first = step.shape(2)
    if step.node.op_type == "QMoE":
        raise UnshapedError("QMoE: the width of its experts is not known from packed codes")
    inner = floor_div(product(first[1:]), width)
    second = floor_div(product(step.shape(4)[1:]), width) if step.has(4) else inner
    third = floor_div(product(step.shape(6)[1:]), width) if step.has(6) else 0
    return Work(product((tokens, active, width, total((inner, second, third)))))


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


_Rule = Callable[[Step, Sequence[Value]], Work]

_MATMULS = """
MatMul MatMulInteger FusedMatMul TransposeMatMul QLinearMatMul MatMulIntegerToFloat DynamicQuantizeMatMul
"""
_CONVS = "Conv FusedConv ConvInteger QLinearConv NhwcFusedConv DeformConv"
_CHEAP = """
Abs Neg Not Add Sub Mul Div Mod Max Min Sum Mean PRelu Relu LeakyRelu Clip Where Equal Less Greater LessOrEqual
GreaterOrEqual And Or Xor Ceil Floor Round Sign Reciprocal ThresholdedRelu HardSigmoid HardSwish IsNaN IsInf CumSum
BitShift BitwiseAnd BitwiseOr BitwiseXor BitwiseNot QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearAdd
QLinearMul BiasAdd Resize Upsample GridSample Shrink ImageScaler Scaler QLinearLeakyRelu QLinearWhere
"""
_COSTLY = """
Sqrt Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Tanh Sigmoid Erf Gelu FastGelu QuickGelu BiasGelu
Softplus Softsign Mish Elu Selu Celu Swish Pow RotaryEmbedding QLinearSigmoid
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
_POOLS = "MaxPool AveragePool LpPool QLinearAveragePool NhwcMaxPool RoiAlign"
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
    "MoE": _moe,
    "QMoE": _moe,
}
"""By operator."""

FREE = frozenset(
    """
Constant ConstantOfShape Identity Shape Size Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Gather
GatherND GatherElements Expand Tile Pad Range Trilu DepthToSpace SpaceToDepth Cast CastLike EyeLike OneHot Dropout
NonZero Compress Unique NonMaxSuppression ScatterND ScatterElements Scatter TensorScatter RandomNormalLike
RandomUniformLike RandomNormal RandomUniform Bernoulli ReverseSequence QLinearConcat GatherBlockQuantized ReorderInput
ReorderOutput If Loop Scan
""".split()  # noqa: SIM905 - a list of names, one below the other, would be longer than the rules
)
"""Operators that only move, make or choose values."""


def work_of(step: Step, made: Sequence[Value]) -> Work | None:
    """What a node computes; None where no rule knows its operator.

    Raises:
        UnshapedError: a shape that the rule asks for is not known.
    """
    rule = WORK.get(step.node.op_type)
    if rule is None:
        return Work() if step.node.op_type in FREE else None
    return rule(step, made)
