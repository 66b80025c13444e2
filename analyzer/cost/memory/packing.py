"""Nodes that read stored weights -> the bytes of the copies that onnxruntime's CPU kernels make of them when they load.

MLAS packs the second matrix of a product in columns of 16, which are filled up. Learnt by measuring what a session
holds with `session.disable_prepacking` and without, by models of one node; integers as on processors with VNNI
instructions; those with AMX fill rows of some up to 64. What nobody reads but kernels that have packed it is let go of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from analyzer.model.dtypes import DType
from analyzer.read.described import Described, DescribedNode, DescribedTensor
from analyzer.records import Frozen

_WIDTH = 16
"""Columns that are packed together."""

_DEPTH = 4
"""Rows of integers that are."""

_FLOAT = 4
"""Bytes of an element of FLOAT."""

_AS_INTEGERS = 4
"""The `accuracy_level` of MatMulNBits at which it multiplies integers."""

_ALIGNED = 126
"""Bytes with which the two parts of what it packs then can begin at a whole line of 64."""


class Packed(Frozen):
    """The copies that one kind of kernel makes."""

    exact: int
    """Bytes that kernels of MatMul and Gemm hold, in FLOAT."""

    modelled: int
    """Bytes of other kernels, as they were measured on one kind of processor."""

    packed: frozenset[str]
    """The tensors that nobody reads but kernels that have packed them, which are let go of."""

    untold: tuple[str, ...]
    """Operators that read stored weights and may copy them, of which nothing is known."""


NOT_PACKED = Packed(0, 0, frozenset(), ())


def pack(described: Described) -> Packed:
    """Return what the kernels of a graph's nodes copy."""
    exact = modelled = 0
    untold = set()
    seen = set()
    packed, read = set[str](), set[str]()
    for node in described.nodes:
        weights = [_constant(described, name) for name in node.inputs]
        stored = {place: name for place, name in enumerate(node.inputs) if weights[place] is not None}
        kernel = (node.domain, node.op_type)
        rule = _PRODUCTS.get(kernel) or _OTHERS.get(kernel)
        made = {place: nbytes for place, nbytes in rule(node, weights) if nbytes} if rule else {}
        packed |= {stored[place] for place in made}
        read |= {name for place, name in stored.items() if place not in made} | set(node.implicit)
        alike = (kernel, tuple(stored.items()), node.integers.get("transB"))
        if alike in seen:  # kernels that pack one tensor in the same way share what they made
            continue
        seen.add(alike)
        if kernel in _PRODUCTS:
            exact += sum(made.values())
        else:
            modelled += sum(made.values())
        is_untold = kernel in _UNTOLD or (rule is _n_bits and _is_untold(node))
        if is_untold and any(weights[1:]):
            untold.add(node.op_type)
    return Packed(exact, modelled, frozenset(packed - read), tuple(sorted(untold)))


def _constant(described: Described, name: str) -> DescribedTensor | None:
    tensor = described.tensors.get(name)
    return tensor if tensor is not None and tensor.is_constant else None


def _columns(count: int) -> int:
    return -(-count // _WIDTH) * _WIDTH


def _product(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    for place, weight in enumerate(weights[1:2], start=1):
        if weight is not None and weight.dtype == DType.FLOAT and len(weight.dims) == 2:
            depth, width = reversed(weight.dims) if node.integers.get("transB") else weight.dims
            yield place, _FLOAT * depth * _columns(width)


def _integer_product(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    place = _INTEGERS[node.domain, node.op_type]
    weight = weights[place] if place < len(weights) else None
    if weight is not None and len(weight.dims) == 2:
        depth, width = reversed(weight.dims) if node.integers.get("transB") else weight.dims
        yield place, _integers(depth, width)


def _integers(depth: int, width: int) -> int:
    """A matrix of integers, and a sum of each column."""
    return (-(-depth // _DEPTH) * _DEPTH + _FLOAT) * _columns(width)


def _n_bits(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """As they are stored; to be multiplied as integers, with the scales and a sum of each block."""
    weight = weights[1] if len(weights) > 1 else None
    if weight is None:
        return
    nbytes = 0
    width, depth, block = (node.integers.get(name, 0) for name in ("N", "K", "block_size"))
    if _is_of_integers(node) and block:
        blocks = -(-depth // block)
        nbytes = _FLOAT * blocks * (width + _columns(width)) + _ALIGNED
    if nbytes or node.integers.get("bits", 4) == 4:
        nbytes += DType.from_onnx(weight.dtype).nbytes(_numel(weight.dims))
    halves = [weights[place] for place in (2, 5) if place < len(weights)]  # scales and the bias
    yield 1, nbytes + sum(_of_half(each) for each in halves)


def _is_untold(node: DescribedNode) -> bool:
    return _is_of_integers(node) and node.integers.get("bits", 4) not in (4, 8)


def _is_of_integers(node: DescribedNode) -> bool:
    return node.integers.get("accuracy_level") == _AS_INTEGERS


def _norm(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """What a normalization reads in FLOAT16."""
    for place, weight in enumerate(weights[1:5], start=1):
        yield place, _of_half(weight)


def _of_half(weight: DescribedTensor | None) -> int:
    """Of FLOAT16 a copy in FLOAT."""
    return 0 if weight is None or weight.dtype != DType.FLOAT16 else _FLOAT * _numel(weight.dims)


def _lstm(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Of both matrices, (directions, gates, inputs)."""
    for place, weight in enumerate(weights[1:3], start=1):
        yield place, _gates(weight)


def _gru(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Of both matrices; of what multiplies the state the gates z and r together, and h by itself."""
    for place, weight in enumerate(weights[1:3], start=1):
        yield place, _gates(weight) if place == 1 else _gates(weight, 2, 3) + _gates(weight, 1, 3)


def _gates(weight: DescribedTensor | None, part: int = 1, of: int = 1) -> int:
    """Of a part of a matrix's rows."""
    if weight is None or len(weight.dims) != 3 or weight.dtype != DType.FLOAT:
        return 0
    directions, gates, inputs = weight.dims
    return _FLOAT * directions * inputs * _columns(gates * part // of)


def _attention(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Of the projections to queries, keys and values, each head's on its own."""
    weight = weights[1] if len(weights) > 1 else None
    heads = node.integers.get("num_heads", 0)
    if weight is None or len(weight.dims) != 2 or not heads:
        return
    depth, width = weight.dims
    each = width // (3 * heads)
    if node.op_type == "QAttention":
        yield 1, 3 * heads * _integers(depth, each)
    elif weight.dtype == DType.FLOAT:
        yield 1, 3 * heads * _FLOAT * depth * _columns(each)


def _integer_lstm(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Of both matrices, (directions, inputs, gates)."""
    for place, weight in enumerate(weights[1:3], start=1):
        if weight is not None and len(weight.dims) == 3:
            directions, inputs, gates = weight.dims
            yield place, directions * _integers(inputs, gates)


def _integer_convolution(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Each group's matrix; of inputs of INT8 as it is stored. Zero points of 0 allow a form that is smaller."""
    weight = weights[3] if len(weights) > 3 else None
    if weight is None or len(weight.dims) < 3:
        return
    groups = max(1, node.integers.get("group", 1))
    depth, width = _numel(weight.dims[1:]), weight.dims[0] // groups
    point = weights[2]  # the input's zero point
    is_plain = weight.dims[1] == width == 1 or (point is not None and point.dtype == DType.INT8)
    yield 3, _numel(weight.dims) if is_plain else groups * _integers(depth, width)


def _turned(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Of ConvTranspose; not where a group's matrix has one row or one column, which needs no turning."""
    for place, weight in enumerate(weights[1:2], start=1):
        if weight is None or weight.dtype != DType.FLOAT or len(weight.dims) < 3:
            continue
        rows = weight.dims[0] // max(1, node.integers.get("group", 1))
        if rows != 1 and _numel(weight.dims[1:]) != 1:
            yield place, _FLOAT * _numel(weight.dims)


def _numel(dims: Sequence[int]) -> int:
    product = 1
    for dim in dims:
        product *= dim
    return product


_MICROSOFT = "com.microsoft"
Made = Iterator[tuple[int, int]]
"""The places of inputs that a kernel packs, and the bytes of what it makes of each."""
_Rule = Callable[[DescribedNode, Sequence[DescribedTensor | None]], Made]
_PRODUCTS: Mapping[tuple[str, str], _Rule] = {
    ("", "MatMul"): _product,
    ("", "Gemm"): _product,
    (_MICROSOFT, "FusedMatMul"): _product,
    (_MICROSOFT, "FusedGemm"): _product,
}
_OTHERS: Mapping[tuple[str, str], _Rule] = {
    ("", "ConvTranspose"): _turned,
    ("", "LayerNormalization"): _norm,
    ("", "RMSNormalization"): _norm,
    ("", "SimplifiedLayerNormalization"): _norm,
    (_MICROSOFT, "SkipLayerNormalization"): _norm,
    (_MICROSOFT, "SkipSimplifiedLayerNormalization"): _norm,
    ("", "GRU"): _gru,
    ("", "LSTM"): _lstm,
    ("", "MatMulInteger"): _integer_product,
    ("", "QLinearMatMul"): _integer_product,
    (_MICROSOFT, "Attention"): _attention,
    (_MICROSOFT, "DynamicQuantizeMatMul"): _integer_product,
    (_MICROSOFT, "MatMulIntegerToFloat"): _integer_product,
    (_MICROSOFT, "MatMulNBits"): _n_bits,
    ("", "QLinearConv"): _integer_convolution,
    (_MICROSOFT, "DynamicQuantizeLSTM"): _integer_lstm,
    (_MICROSOFT, "QAttention"): _attention,
    (_MICROSOFT, "QGemm"): _integer_product,
}
_INTEGERS: Mapping[tuple[str, str], int] = {
    ("", "MatMulInteger"): 1,
    ("", "QLinearMatMul"): 3,
    (_MICROSOFT, "DynamicQuantizeMatMul"): 1,
    (_MICROSOFT, "MatMulIntegerToFloat"): 1,
    (_MICROSOFT, "QGemm"): 3,
}
"""Where products of integers have their weight."""
_UNTOLD = frozenset({(_MICROSOFT, "MoE"), (_MICROSOFT, "QMoE")})
