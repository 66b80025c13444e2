"""Onnxruntime's own operators -> the shapes of their outputs, for which onnx has no inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from analyzer.read.described import Dim

__all__ = ["RUNTIME_ONLY", "contributed_dims", "quantized"]

Dims = tuple[Dim, ...]
Typed = tuple[int, Dims]

_FLOAT, _UINT8, _INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8, onnx.TensorProto.INT32

RUNTIME_ONLY = frozenset({"SimplifiedLayerNormalization"})
"""Operators that onnxruntime has put into ONNX's own domain."""

_ALIKE = frozenset(
    {
        "BiasGelu",
        "BiasSoftmax",
        "FastGelu",
        "Gelu",
        "GroupNorm",
        "QLinearLeakyRelu",
        "QLinearSigmoid",
        "QLinearSoftmax",
        "QuickGelu",
        "RotaryEmbedding",
    }
)
"""The output is as the first input."""

_SKIPS = frozenset({"SkipGroupNorm", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
"""The first output and the fourth are as the first input; the second and third have 1 as their last size."""

_PRODUCTS = frozenset(
    {
        "DynamicQuantizeMatMul",
        "FusedMatMul",
        "FusedMatMulActivation",
        "MatMulInteger16",
        "MatMulIntegerToFloat",
        "TransposeMatMul",
    }
)

_PLACES: Mapping[str, tuple[int, int]] = {"QLinearAdd": (0, 3), "QLinearMul": (0, 3)}
"""Of quantized operators of two inputs that broadcast, where these stand."""


def contributed_dims(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    """Return the types of the first outputs of a node, as many as are known."""
    first = given[0] if given else None
    if first is None:
        return []
    operator = node.op_type
    if operator in ("DequantizeLinear", "QuantizeLinear"):
        return list(quantized(node, given).values())
    if operator in _ALIKE:
        return [first]
    if operator in RUNTIME_ONLY:
        return [first, (_FLOAT, (*first[1][:-1], 1))]
    if operator in _SKIPS:
        small = (_FLOAT, (*first[1][:-1], 1))
        return [first, small, small, first]
    if operator in _PRODUCTS:
        return _product(node, given)
    if operator in _PLACES:
        return _broadcast(given, *_PLACES[operator])
    special = _SPECIAL.get(operator)
    return special(node, given) if special is not None else []


def quantized(node: onnx.NodeProto, given: Sequence[Typed | None]) -> dict[str, Typed]:
    """Return the type of the output of QuantizeLinear and DequantizeLinear: as the input, of another element."""
    source = given[0]
    if source is None:
        return {}
    other = given[2] if len(given) > 2 else None
    scale = given[1] if len(given) > 1 else None
    if node.op_type == "DequantizeLinear":
        kind = _FLOAT if scale is None else scale[0]
    else:
        kind = _integer(node, "output_dtype") or (_UINT8 if other is None else other[0])
    return {node.output[0]: (kind, source[1])}


def _integer(node: onnx.NodeProto, name: str, default: int = 0) -> int:
    return next((int(each.i) for each in node.attribute if each.name == name), default)


def _product(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    a, b = given[0], given[1] if len(given) > 1 else None
    if a is None or b is None or len(a[1]) < 2 or len(b[1]) < 2:
        return []
    rows = a[1][-1] if _integer(node, "transA") else a[1][-2]
    columns = b[1][-2] if _integer(node, "transB") else b[1][-1]
    batch = _together(a[1][:-2], b[1][:-2])
    kind = a[0] if a[0] not in (_UINT8, onnx.TensorProto.INT8) else _FLOAT
    return [] if batch is None else [(kind, (*batch, rows, columns))]


def _together(a: Dims, b: Dims) -> Dims | None:
    """Two shapes, broadcast."""
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(y if x == 1 else x if y == 1 or x == y else None for x, y in zip(left, right, strict=True))


def _broadcast(given: Sequence[Typed | None], a: int, b: int) -> list[Typed]:
    left, right = given[a], given[b] if b < len(given) else None
    if left is None or right is None:
        return []
    dims = _together(left[1], right[1])
    return [] if dims is None else [(left[0], dims)]


def _n_bits(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    assert given[0] is not None
    return [(given[0][0], (*given[0][1][:-1], _integer(node, "N")))]


def _multi_head(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    """MultiHeadAttention: query (batch, length, hidden) or packed; past and present as they are stored."""
    query = given[0]
    assert query is not None
    value = given[2] if len(given) > 2 else None
    if len(query[1]) != 3:
        return []
    hidden = value[1][-1] if value is not None and len(value[1]) == 3 else query[1][-1]
    if (
        value is not None and len(value[1]) == 4
    ):  # (batch, heads, length, size): a cross attention's own cache
        heads, width = value[1][1], value[1][3]
        hidden = heads * width if isinstance(heads, int) and isinstance(width, int) else None
    made: list[Typed] = [(query[0], (*query[1][:2], hidden))]
    if len(node.output) > 1 and value is not None and len(value[1]) == 3 and isinstance(hidden, int):
        heads = _integer(node, "num_heads", 1)
        past = given[6] if len(given) > 6 else None
        before = 0 if past is None else past[1][2]
        length = value[1][1]
        total = before + length if isinstance(before, int) and isinstance(length, int) else None
        made += [(query[0], (query[1][0], heads, total, hidden // heads))] * 2
    return made


def _group_query(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    """GroupQueryAttention: packed query, keys and values where no keys are given."""
    query, past = given[0], given[3] if len(given) > 3 else None
    assert query is not None
    heads, groups = _integer(node, "num_heads", 1), _integer(node, "kv_num_heads", 1)
    hidden = query[1][-1]
    is_packed = len(given) < 2 or given[1] is None
    if is_packed and isinstance(hidden, int):
        hidden = hidden * heads // (heads + 2 * groups)
    made: list[Typed] = [(query[0], (*query[1][:-1], hidden))]
    if past is not None and isinstance(hidden, int):
        length, before = query[1][1], past[1][2]
        total = length + before if isinstance(length, int) and isinstance(before, int) else None
        made += [(past[0], (query[1][0], groups, total, hidden // heads))] * 2
    return made


def _attention(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    source, weight = given[0], given[1] if len(given) > 1 else None
    assert source is not None
    if weight is None or not isinstance(weight[1][-1], int):
        return []
    return [(source[0], (*source[1][:-1], weight[1][-1] // 3))]


def _embedding(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    ids, words = given[0], given[2] if len(given) > 2 else None
    assert ids is not None
    if words is None:
        return []
    made = (words[0], (*ids[1], words[1][-1]))
    return [made, (_INT32, ids[1][:1]), made]


def _convolution(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    """FusedConv, QLinearConv's kin and the blocked Conv: ONNX's own inference of Conv."""
    standard = onnx.NodeProto()
    standard.CopyFrom(node)
    standard.op_type, standard.domain = "Conv", ""
    del standard.input[2:], standard.output[1:]
    kept = {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}
    attributes = [each for each in node.attribute if each.name in kept]
    del standard.attribute[:]
    standard.attribute.extend(attributes)
    return _standard(standard, given[:2])


def _pool(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    standard = onnx.NodeProto()
    standard.CopyFrom(node)
    standard.op_type = {"NhwcMaxPool": "MaxPool"}.get(node.op_type, node.op_type)
    standard.domain = ""
    del standard.input[1:], standard.output[1:]
    return _standard(standard, given[:1])


def _quantized_convolution(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    """QLinearConv, of which the channels may come last."""
    source, weight = given[0], given[3] if len(given) > 3 else None
    if source is None or weight is None:
        return []
    is_last = bool(_integer(node, "channels_last"))
    dims = source[1]
    first = (*dims[:1], dims[-1], *dims[1:-1]) if is_last else dims
    standard = onnx.NodeProto()
    standard.CopyFrom(node)
    del standard.input[:]
    standard.input.extend(["x", "w"])
    made = _convolution(standard, [(_FLOAT, first), (_FLOAT, weight[1])])
    if not made:
        return []
    out = made[0][1]
    return [(source[0], (*out[:1], *out[2:], out[1]) if is_last else out)]


def _quantized_where(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    condition, a, b = (given[place] if place < len(given) else None for place in (0, 1, 4))
    if condition is None or a is None or b is None:
        return []
    both = _together(a[1], b[1])
    dims = None if both is None else _together(condition[1], both)
    return [] if dims is None else [(a[0], dims)]


def _quantized_concat(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    parts = given[2::3]
    first = parts[0] if parts else None
    axis = _integer(node, "axis")
    if first is None or not -len(first[1]) <= axis < len(first[1]):
        return []
    sizes = [None if part is None or len(part[1]) != len(first[1]) else part[1][axis] for part in parts]
    whole = [size for size in sizes if isinstance(size, int)]
    dims = list(first[1])
    dims[axis] = sum(whole) if len(whole) == len(sizes) else None
    return [(first[0], tuple(dims))]


def _quantized_product(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    """QGemm: its first matrix and its fourth input; FLOAT where no scale of the output is given."""
    made = _product(node, [given[0], given[3] if len(given) > 3 else None])
    source = given[0]
    is_float = len(node.input) < 8 or not node.input[7]
    return [(_FLOAT if is_float or source is None else source[0], dims) for _, dims in made]


def _quantized_pool(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    source = given[0]
    if source is None or len(source[1]) < 3:
        return []
    ones = (1,) * (len(source[1]) - 2)
    dims = source[1]
    is_last = bool(_integer(node, "channels_last"))
    return [(source[0], (dims[0], *ones, dims[-1]) if is_last else (*dims[:2], *ones))]


def _standard(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    from onnx import defs, shape_inference

    types = {}
    for name, typed in zip(node.input, given, strict=False):
        if typed is None:
            return []
        types[name] = onnx.helper.make_tensor_type_proto(typed[0], typed[1])
    try:
        made = shape_inference.infer_node_outputs(defs.get_schema(node.op_type, 13, ""), node, types)
    except Exception:  # noqa: BLE001 - of a node that is wrong nothing is known, whatever says so
        return []
    proto = made.get(node.output[0])
    if proto is None or not proto.tensor_type.HasField("shape"):
        return []
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in proto.tensor_type.shape.dim)
    return [(proto.tensor_type.elem_type, dims)]


def _reorder(node: onnx.NodeProto, given: Sequence[Typed | None]) -> list[Typed]:
    """To blocks of channels and back: ReorderOutput says how many channels there are."""
    source = given[0]
    assert source is not None
    channels = _integer(node, "channels")
    if channels and len(source[1]) > 1:
        return [(source[0], (source[1][0], channels, *source[1][2:]))]
    return [source]


_SPECIAL = {
    "Attention": _attention,
    "Conv": _convolution,
    "EmbedLayerNormalization": _embedding,
    "FusedConv": _convolution,
    "FusedGemm": lambda node, given: _product(node, given),
    "GlobalAveragePool": _pool,
    "GlobalMaxPool": _pool,
    "AveragePool": _pool,
    "MaxPool": _pool,
    "GroupQueryAttention": _group_query,
    "MatMulNBits": _n_bits,
    "MultiHeadAttention": _multi_head,
    "QGemm": _quantized_product,
    "QLinearConcat": _quantized_concat,
    "QLinearConv": _quantized_convolution,
    "QLinearGlobalAveragePool": _quantized_pool,
    "QLinearWhere": _quantized_where,
    "ReorderInput": _reorder,
    "ReorderOutput": _reorder,
}
"""Operators of `com.microsoft` and `com.microsoft.nchwc` by their names."""
