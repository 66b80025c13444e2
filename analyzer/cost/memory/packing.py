"""Nodes that read stored weights -> the bytes of the copies that onnxruntime's CPU kernels make of them when they load.

MLAS packs the second matrix of a product in columns of 16, which are filled up. Learnt by measuring what a session
holds with `session.disable_prepacking` and without; integers as on processors with VNNI instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from analyzer.model.dtypes import DType
from analyzer.read.described import Described, DescribedNode, DescribedTensor

_WIDTH = 16
"""Columns that are packed together."""

_DEPTH = 4
"""Rows of integers that are."""

_FLOAT = 4
"""Bytes of an element of FLOAT."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The copies that one kind of kernel makes."""

    exact: int
    """Bytes that kernels of MatMul and Gemm hold, in FLOAT."""

    modelled: int
    """Bytes of other kernels, as they were measured on one kind of processor."""

    packed: frozenset[str]
    """The tensors that `exact` is of, which are let go of."""

    untold: tuple[str, ...]
    """Operators that read stored weights and may copy them, of which nothing is known."""


def pack(described: Described) -> Packed:
    """Return what the kernels of a graph's nodes copy."""
    exact = modelled = 0
    untold = set()
    seen = set()
    packed = set()
    for node in described.nodes:
        weights = [_constant(described, name) for name in node.inputs]
        names = tuple(name for name, weight in zip(node.inputs, weights, strict=True) if weight is not None)
        alike = (node.domain, node.op_type, names, node.integers.get("transB"))
        if alike in seen:  # kernels that pack one tensor in the same way share what they made
            continue
        seen.add(alike)
        if (products := _PRODUCTS.get((node.domain, node.op_type))) is not None:
            for place in products:
                weight = weights[place] if place < len(weights) else None
                made = 0 if weight is None else _product_nbytes(node, weight)
                packed |= {node.inputs[place]} if made else set()
                exact += made
        elif (rule := _OTHERS.get((node.domain, node.op_type))) is not None:
            modelled += rule(node, weights)
        elif (node.domain, node.op_type) in _UNTOLD and any(each is not None for each in weights[1:]):
            untold.add(node.op_type)
    return Packed(exact, modelled, frozenset(packed), tuple(sorted(untold)))


def _constant(described: Described, name: str) -> DescribedTensor | None:
    tensor = described.tensors.get(name)
    return tensor if tensor is not None and tensor.is_constant else None


def _columns(count: int) -> int:
    return -(-count // _WIDTH) * _WIDTH


def _product_nbytes(node: DescribedNode, weight: DescribedTensor) -> int:
    if weight.dtype != DType.FLOAT or len(weight.dims) != 2:
        return 0
    depth, width = reversed(weight.dims) if node.integers.get("transB") else weight.dims
    return _FLOAT * depth * _columns(width)


def _integer_product(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> int:
    place = 3 if node.op_type == "QLinearMatMul" else 1
    weight = weights[place] if place < len(weights) else None
    if weight is None or len(weight.dims) != 2:
        return 0
    depth, width = weight.dims
    return (-(-depth // _DEPTH) * _DEPTH + _FLOAT) * _columns(width)


def _n_bits(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> int:
    weight = weights[1] if len(weights) > 1 else None
    return 0 if weight is None else DType.from_onnx(weight.dtype).nbytes(_numel(weight.dims))


def _recurrent(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> int:
    """Of LSTM and GRU both matrices, (directions, gates, inputs)."""
    total = 0
    for weight in weights[1:3]:
        if weight is not None and len(weight.dims) == 3 and weight.dtype == DType.FLOAT:
            directions, gates, inputs = weight.dims
            total += _FLOAT * directions * inputs * _columns(gates)
    return total


def _attention(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> int:
    """Of the projections to queries, keys and values, each head's on its own."""
    weight = weights[1] if len(weights) > 1 else None
    heads = node.integers.get("num_heads", 0)
    if weight is None or len(weight.dims) != 2 or not heads or weight.dtype != DType.FLOAT:
        return 0
    depth, width = weight.dims
    return _FLOAT * 3 * heads * depth * _columns(width // (3 * heads))


def _turned(node: DescribedNode, weights: Sequence[DescribedTensor | None]) -> int:
    weight = weights[1] if len(weights) > 1 else None
    return 0 if weight is None or weight.dtype != DType.FLOAT else _FLOAT * _numel(weight.dims)


def _numel(dims: Sequence[int]) -> int:
    product = 1
    for dim in dims:
        product *= dim
    return product


_MICROSOFT = "com.microsoft"
_PRODUCTS: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("", "MatMul"): (1,),
    ("", "Gemm"): (1,),
    (_MICROSOFT, "FusedMatMul"): (1,),
    (_MICROSOFT, "FusedGemm"): (1,),
}
_Rule = Callable[[DescribedNode, Sequence[DescribedTensor | None]], int]
_OTHERS: Mapping[tuple[str, str], _Rule] = {
    ("", "ConvTranspose"): _turned,
    ("", "GRU"): _recurrent,
    ("", "LSTM"): _recurrent,
    ("", "MatMulInteger"): _integer_product,
    ("", "QLinearMatMul"): _integer_product,
    (_MICROSOFT, "Attention"): _attention,
    (_MICROSOFT, "DynamicQuantizeMatMul"): _integer_product,
    (_MICROSOFT, "MatMulIntegerToFloat"): _integer_product,
    (_MICROSOFT, "MatMulNBits"): _n_bits,
}
_UNTOLD = frozenset(
    {
        ("", "QLinearConv"),
        (_MICROSOFT, "DynamicQuantizeLSTM"),
        (_MICROSOFT, "MoE"),
        (_MICROSOFT, "QAttention"),
        (_MICROSOFT, "QGemm"),
        (_MICROSOFT, "QMoE"),
    }
)
