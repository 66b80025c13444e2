"""Nodes that read stored weights -> the bytes of the copies that onnxruntime's CPU kernels pack when they load.

MLAS packs the second matrix of a product in groups of 16 columns, padded. The rules come from measurements of sessions
with `session.disable_prepacking` and without, on models of one node; for integers, on processors with VNNI
instructions; those with AMX pad the rows of some up to 64. A tensor is released if all of its readers have packed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from analyzer.model.dtypes import DType
from analyzer.read.described import Described, DescribedNode, DescribedTensor
from analyzer.records import Frozen

_WIDTH = 16
"""Number of columns packed together."""

_DEPTH = 4
"""Number of rows of integers packed together."""

_FLOAT = 4
"""Bytes of a FLOAT element."""

_AS_INTEGERS = 4
"""`accuracy_level` at which MatMulNBits multiplies integers."""

_ALIGNED = 126
"""Bytes of padding that align the two parts of its packed weights to lines of 64."""


class Packed(Frozen):
    """Packed copies of a graph's weights."""

    exact: int
    """Bytes of the FLOAT copies of MatMul and Gemm."""

    modelled: int
    """Bytes of other kernels' copies, as measured on one kind of processor."""

    packed: frozenset[str]
    """Tensors whose readers have all packed them, so that they are released."""

    unknown_operators: tuple[str, ...]
    """Operators that read stored weights and may copy them in an unknown way."""


NOT_PACKED = Packed(0, 0, frozenset(), ())


def pack(described: Described) -> Packed:
    """Return the packed copies of a graph's weights."""
    exact = modelled = 0
    unknown_operators = set()
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
        if alike in seen:  # kernels that pack one tensor in the same way share the copy
            continue
        seen.add(alike)
        if kernel in _PRODUCTS:
            exact += sum(made.values())
        else:
            modelled += sum(made.values())
        is_unknown = kernel in _UNKNOWN_PACKING or (rule is _n_bits and _has_unknown_packing(node))
        if is_unknown and any(weights[1:]):
            unknown_operators.add(node.op_type)
    return Packed(exact, modelled, frozenset(packed - read), tuple(sorted(unknown_operators)))


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
    """Return the bytes of a packed matrix of integers with a sum of each column."""
    return (-(-depth // _DEPTH) * _DEPTH + _FLOAT) * _columns(width)


def _n_bits(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Yield the stored bytes; for products of integers, also the scales and a sum of each block."""
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


def _has_unknown_packing(node: DescribedNode) -> bool:
    return _is_of_integers(node) and node.integers.get("bits", 4) not in (4, 8)


def _is_of_integers(node: DescribedNode) -> bool:
    return node.integers.get("accuracy_level") == _AS_INTEGERS


def _norm(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Yield FLOAT copies of a normalization's FLOAT16 weights."""
    for place, weight in enumerate(weights[1:5], start=1):
        yield place, _of_half(weight)


def _of_half(weight: DescribedTensor | None) -> int:
    """Return the bytes of a FLOAT copy of a FLOAT16 tensor; 0 for others."""
    return 0 if weight is None or weight.dtype != DType.FLOAT16 else _FLOAT * _numel(weight.dims)


def _lstm(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Yield both matrices, of shape (directions, gates, inputs)."""
    for place, weight in enumerate(weights[1:3], start=1):
        yield place, _gates(weight)


def _gru(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Yield both matrices; of the recurrence weights, the gates z and r are packed together, and h separately."""
    for place, weight in enumerate(weights[1:3], start=1):
        yield place, _gates(weight) if place == 1 else _gates(weight, 2, 3) + _gates(weight, 1, 3)


def _gates(weight: DescribedTensor | None, part: int = 1, of: int = 1) -> int:
    """Return the bytes of a packed fraction of a matrix's gates."""
    if weight is None or len(weight.dims) != 3 or weight.dtype != DType.FLOAT:
        return 0
    directions, gates, inputs = weight.dims
    return _FLOAT * directions * inputs * _columns(gates * part // of)


def _attention(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Yield the projections to queries, keys and values, packed separately for each head."""
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
    """Yield both matrices, of shape (directions, inputs, gates)."""
    for place, weight in enumerate(weights[1:3], start=1):
        if weight is not None and len(weight.dims) == 3:
            directions, inputs, gates = weight.dims
            yield place, directions * _integers(inputs, gates)


def _integer_convolution(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Yield each group's matrix; for INT8 inputs, the stored bytes. Zero points of 0 allow a smaller form."""
    weight = weights[3] if len(weights) > 3 else None
    if weight is None or len(weight.dims) < 3:
        return
    groups = max(1, node.integers.get("group", 1))
    depth, width = _numel(weight.dims[1:]), weight.dims[0] // groups
    point = weights[2]  # the input's zero point
    is_plain = weight.dims[1] == width == 1 or (point is not None and point.dtype == DType.INT8)
    yield 3, _numel(weight.dims) if is_plain else groups * _integers(depth, width)


def _transposed(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> Made:
    """Yield ConvTranspose's transposed weight; a group's matrix with one row or column needs no transposition."""
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
"""Input slots that a kernel packs, with the bytes of each copy."""
_Rule = Callable[[DescribedNode, Sequence[DescribedTensor | None]], Made]
_PRODUCTS: Mapping[tuple[str, str], _Rule] = {
    ("", "MatMul"): _product,
    ("", "Gemm"): _product,
    (_MICROSOFT, "FusedMatMul"): _product,
    (_MICROSOFT, "FusedGemm"): _product,
}
_OTHERS: Mapping[tuple[str, str], _Rule] = {
    ("", "ConvTranspose"): _transposed,
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
"""Input slot of the weight in products of integers."""
_UNKNOWN_PACKING = frozenset({(_MICROSOFT, "MoE"), (_MICROSOFT, "QMoE")})
