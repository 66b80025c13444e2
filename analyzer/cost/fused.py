"""Shapes of onnxruntime's fused and quantized operators (docs/ContribOperators.md), and of ONNX's Attention."""

from __future__ import annotations

from analyzer.cost.algebra import Size, add, floor_div, largest, multiply, smallest, subtract
from analyzer.cost.layout import axis_of
from analyzer.cost.values import Rule, Step, UnshapedError, Value
from analyzer.model.dtypes import DType
from analyzer.records import Frozen


class Heads(Frozen):
    """Sizes of an attention operator, each a number or an expression."""

    batch: Size
    heads: int
    kv_heads: int
    queries: Size
    """Number of query positions."""
    keys: Size
    """Number of key positions, including those of the past."""
    head: Size
    """Elements of one head of a query."""
    value_head: Size
    """Elements of one head of a value."""
    projected: Size = 0
    """Multiply-accumulates of projections that are part of the operator."""


def attention_of(step: Step) -> Heads:
    """Return the sizes of an attention operator.

    Raises:
        UnshapedError: the sizes are not known.
    """
    return _ATTENTIONS[step.node.op_type](step)


def seen_twice(step: Step, found: Heads) -> Size:
    """Return twice the number of query-key pairs in one head that no causal mask or window of the operator hides."""
    queries, keys = found.queries, found.keys
    op_type = step.node.op_type
    is_causal = (
        op_type in _CAUSAL or step.number("unidirectional", 0) == 1 or step.number("is_causal", 0) == 1
    )
    if not is_causal:
        return multiply(multiply(queries, keys), 2)
    before = subtract(keys, queries)  # keys before the first query
    if _has_no_past(step) and before != 0:  # the mask is square and starts at the first key
        square = smallest(queries, keys)
        rest = multiply(subtract(queries, square), keys)
        return add(multiply(square, add(square, 1)), multiply(rest, 2))
    width = step.number("local_window_size", -1)
    if width <= 0:
        return add(multiply(multiply(queries, before), 2), multiply(queries, add(queries, 1)))
    growing = smallest(
        largest(subtract(width - 1, before), 0), queries
    )  # queries that see less than the window
    full = multiply(subtract(queries, growing), width)
    part = add(multiply(multiply(growing, before), 2), multiply(growing, add(growing, 1)))
    return add(multiply(full, 2), part)


_CAUSAL = frozenset({"GroupQueryAttention", "SparseAttention"})
"""Operators whose masks are always causal."""


def _has_no_past(step: Step) -> bool:
    return step.node.op_type == "Attention" and step.node.domain != "com.microsoft" and not step.has(4)


def _packed(step: Step) -> Heads:
    """Read `Attention` of com.microsoft, which includes the projection: input (B, S, D), weights (D, 3 D)."""
    x, w = step.shape(0), step.shape(1)
    heads = step.number("num_heads", 1)
    sizes = step.numbers("qkv_hidden_sizes")
    hidden = sizes[0] if sizes else floor_div(w[-1], 3)
    values = sizes[2] if sizes else hidden
    past = 8 if step.node.op_type == "QAttention" else 4
    past_length = step.shape(past)[-2] if step.has(past) else 0
    projected = multiply(multiply(x[0], x[1]), multiply(x[2], w[-1]))
    return Heads(
        x[0],
        heads,
        heads,
        x[1],
        add(x[1], past_length),
        floor_div(hidden, heads),
        floor_div(values, heads),
        projected,
    )


def _multi_head(step: Step) -> Heads:
    """Read `MultiHeadAttention`: query (B, S, D) or packed (B, S, N, 3, H); key (B, L, D) or (B, N, L, H)."""
    query, heads = step.shape(0), step.number("num_heads", 1)
    if len(query) == 5:
        return Heads(query[0], heads, heads, query[1], query[1], query[4], query[4])
    key = step.shape(1) if step.has(1) else query
    keys = key[2] if len(key) == 4 else key[1]
    value = step.shape(2) if step.has(2) else key
    if step.has(6) and len(key) != 4:
        keys = add(keys, step.shape(6)[2])
    head = floor_div(query[2], heads)
    values = value[3] if len(value) == 4 else floor_div(value[-1], heads) if len(value) == 3 else head
    return Heads(query[0], heads, heads, query[1], keys, head, values)


def _grouped(step: Step) -> Heads:
    """Read `GroupQueryAttention`: query (B, S, N H) or packed with keys and values; past (B, G, P, H)."""
    query, heads, groups = step.shape(0), step.number("num_heads", 1), step.number("kv_num_heads", 1)
    head = floor_div(query[2], heads) if step.has(1) else floor_div(query[2], heads + 2 * groups)
    past_shape = step.shape(3) if step.has(3) else None
    if past_shape is None:
        keys = query[1]
    else:
        keys = _total_length(step) or add(query[1], past_shape[2])
    return Heads(query[0], heads, groups, query[1], keys, head, head, 0)


def _total_length(step: Step) -> Size | None:
    """Return the number of keys from input 6; None where it is not known."""
    sizes = step.sizes(6) if step.has(6) else None
    return sizes[0] if sizes else None


def _standard(step: Step) -> Heads:
    """Read ONNX's `Attention` (opset 23): 4-D (B, N, S, H), or 3-D with the numbers of heads as attributes."""
    query, key, value = step.shape(0), step.shape(1), step.shape(2)
    past = step.shape(4)[2] if step.has(4) else 0
    if len(query) == 4:
        heads, groups, head, values = query[1], key[1], query[3], value[3]
        if not isinstance(heads, int) or not isinstance(groups, int):
            raise UnshapedError("Attention of a free number of heads")
        queries, keys = query[2], key[2]
    else:
        heads, groups = step.number("q_num_heads", 1), step.number("kv_num_heads", 1)
        head, values = floor_div(query[2], heads), floor_div(value[2], groups)
        queries, keys = query[1], key[1]
    return Heads(query[0], heads, groups, queries, add(keys, past), head, values)


_ATTENTIONS = {
    "Attention": lambda step: _packed(step) if step.node.domain == "com.microsoft" else _standard(step),
    "QAttention": _packed,
    "MultiHeadAttention": _multi_head,
    "DecoderMaskedMultiHeadAttention": _multi_head,
    "GroupQueryAttention": _grouped,
}


def _attention(step: Step) -> list[Value]:
    """Return the result, then keys and values as the next step reads them."""
    found, dtype = attention_of(step), _float_of(step)
    query = step.shape(0)
    is_deep = step.node.op_type == "Attention" and step.node.domain != "com.microsoft" and len(query) == 4
    wide = multiply(found.value_head, found.heads)
    shape = (
        (query[0], found.heads, found.queries, found.value_head)
        if is_deep
        else (found.batch, found.queries, wide)
    )
    if step.node.op_type in ("Attention", "QAttention") and step.node.domain == "com.microsoft":
        kept = [Value(dtype, (2, found.batch, found.heads, found.keys, found.head))]
    else:
        keys = (found.batch, found.kv_heads, found.keys, found.head)
        kept = [Value(dtype, keys), Value(dtype, (*keys[:3], found.value_head))]
    scores = Value(dtype, (found.batch, found.heads, found.queries, found.keys))
    return [Value(dtype, shape), *kept, scores][: max(len(step.node.outputs), 1)]


def _float_of(step: Step) -> DType:
    return DType.FLOAT if step.node.op_type == "QAttention" else step.value(0).dtype


def _embed_norm(step: Step) -> list[Value]:
    """Infer `EmbedLayerNormalization`: ids (B, S), tables (V, D)."""
    ids, table = step.shape(0), step.shape(2)
    whole = Value(step.value(2).dtype, (*ids, table[1]))
    return [whole, Value(DType.INT32, (ids[0],)), whole][: len(step.node.outputs)]


def _skip_group_norm(step: Step) -> list[Value]:
    return [Value(step.value(0).dtype, step.shape(0))] * len(step.node.outputs)


def _q_elementwise(step: Step) -> list[Value]:
    """Infer `QLinearAdd`, `QLinearMul`: A, its scale and zero point, B, its scale and zero point, the result's."""
    return [Value(step.value(0).dtype, step.broadcast([step.shape(0), step.shape(3)]))]


def _q_concat(step: Step) -> list[Value]:
    """Infer `QLinearConcat`: scale and zero point of the result, then each operand with its own."""
    shapes = [step.shape(slot) for slot in range(2, len(step.inputs), 3)]
    place = axis_of(step.number("axis", 0), len(shapes[0]))
    dims = list(shapes[0])
    for shape in shapes[1:]:
        dims[place] = add(dims[place], shape[place])
    return [Value(step.value(2).dtype, tuple(dims))]


def _q_where(step: Step) -> list[Value]:
    return [Value(step.value(1).dtype, step.broadcast([step.shape(0), step.shape(1), step.shape(4)]))]


def _moe(step: Step) -> list[Value]:
    return [Value(step.value(0).dtype, step.shape(0))]


def _embed_rotary(step: Step) -> list[Value]:
    return [Value(step.value(0).dtype, step.shape(0))]


_BLOCK = 16
"""Largest number of channels in a block of NCHWc: 8 or 16, depending on the machine."""


def _reorder_input(step: Step) -> list[Value]:
    """Infer NCHW -> NCHWc: channels are padded to whole blocks."""
    dims = list(step.shape(0))
    if step.number("channels_last", 0):
        dims = [dims[0], dims[-1], *dims[1:-1]]
    if not isinstance(dims[1], int) or dims[1] % _BLOCK:
        dims[1] = step.fresh("channels in blocks of a size that depends on the machine")
    return [Value(step.value(0).dtype, tuple(dims))]


def _reorder_output(step: Step) -> list[Value]:
    dims = list(step.shape(0))
    dims[1] = step.number("channels", 0) or dims[1]
    if step.number("channels_last", 0):
        dims = [dims[0], *dims[2:], dims[1]]
    return [Value(step.value(0).dtype, tuple(dims))]


FUSED: dict[str, Rule] = {
    **dict.fromkeys(_ATTENTIONS, _attention),
    "EmbedLayerNormalization": _embed_norm,
    "SkipGroupNorm": _skip_group_norm,
    "QLinearAdd": _q_elementwise,
    "QLinearMul": _q_elementwise,
    "QLinearConcat": _q_concat,
    "QLinearWhere": _q_where,
    "MoE": _moe,
    "QMoE": _moe,
    "RotaryEmbedding": _embed_rotary,
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
}
"""Rules by operator."""
