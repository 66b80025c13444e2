"""A model and the sizes of its axes -> the shapes of its values, node by node, with computed shapes evaluated.

onnx has no inference for onnxruntime's own operators, so their shapes are defined here. Only for a process of its own:
operators of a file run here, if their inputs are known and small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import defs, numpy_helper, shape_inference

from analyzer.read.described import Dim
from analyzer.read.followed import follow
from analyzer.records import Mutable, field

# operators of onnxruntime

Dims = tuple[Dim, ...]
Typed = tuple[int, Dims]

_FLOAT, _UINT8, _INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8, onnx.TensorProto.INT32

RUNTIME_ONLY = frozenset({"SimplifiedLayerNormalization"})
"""Operators that onnxruntime has added to ONNX's own domain."""

_LIKE_FIRST_INPUT = frozenset(
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
"""Operators whose output has the type and shape of the first input."""

_SKIPS = frozenset({"SkipGroupNorm", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
"""Operators whose first and fourth outputs are like the first input; the second and third have 1 as their last size."""

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

_OPERAND_SLOTS: Mapping[str, tuple[int, int]] = {"QLinearAdd": (0, 3), "QLinearMul": (0, 3)}
"""Positions of the two inputs of quantized operators that broadcast."""


def contributed_types(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    """Return the types of the first outputs of a node, as many as are known."""
    first = inputs[0] if inputs else None
    if first is None:
        return []
    operator = node.op_type
    if operator in ("DequantizeLinear", "QuantizeLinear"):
        return list(quantized(node, inputs).values())
    if operator in _LIKE_FIRST_INPUT:
        return [first]
    if operator in RUNTIME_ONLY:
        return [first, (_FLOAT, (*first[1][:-1], 1))]
    if operator in _SKIPS:
        small = (_FLOAT, (*first[1][:-1], 1))
        return [first, small, small, first]
    if operator in _PRODUCTS:
        return _product(node, inputs)
    if operator in _OPERAND_SLOTS:
        return _broadcast(inputs, *_OPERAND_SLOTS[operator])
    special = _SPECIAL.get(operator)
    return special(node, inputs) if special is not None else []


def quantized(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> dict[str, Typed]:
    """Return the output type of QuantizeLinear or DequantizeLinear: the input's shape, another element type."""
    source = inputs[0]
    if source is None:
        return {}
    other = inputs[2] if len(inputs) > 2 else None
    scale = inputs[1] if len(inputs) > 1 else None
    if node.op_type == "DequantizeLinear":
        kind = _FLOAT if scale is None else scale[0]
    else:
        kind = _integer(node, "output_dtype") or (_UINT8 if other is None else other[0])
    return {node.output[0]: (kind, source[1])}


def _integer(node: onnx.NodeProto, name: str, default: int = 0) -> int:
    return next((int(each.i) for each in node.attribute if each.name == name), default)


def _product(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    a, b = inputs[0], inputs[1] if len(inputs) > 1 else None
    if a is None or b is None or len(a[1]) < 2 or len(b[1]) < 2:
        return []
    rows = a[1][-1] if _integer(node, "transA") else a[1][-2]
    columns = b[1][-2] if _integer(node, "transB") else b[1][-1]
    batch = _broadcast_dims(a[1][:-2], b[1][:-2])
    kind = a[0] if a[0] not in (_UINT8, onnx.TensorProto.INT8) else _FLOAT
    return [] if batch is None else [(kind, (*batch, rows, columns))]


def _broadcast_dims(a: Dims, b: Dims) -> Dims | None:
    """Return the broadcast shape of two shapes."""
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(y if x == 1 else x if y == 1 or x == y else None for x, y in zip(left, right, strict=True))


def _broadcast(inputs: Sequence[Typed | None], a: int, b: int) -> list[Typed]:
    left, right = inputs[a], inputs[b] if b < len(inputs) else None
    if left is None or right is None:
        return []
    dims = _broadcast_dims(left[1], right[1])
    return [] if dims is None else [(left[0], dims)]


def _n_bits(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    assert inputs[0] is not None
    return [(inputs[0][0], (*inputs[0][1][:-1], _integer(node, "N")))]


def _multi_head(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    """Return the outputs of MultiHeadAttention: query (batch, length, hidden) or packed; past and present as stored."""
    query = inputs[0]
    assert query is not None
    value = inputs[2] if len(inputs) > 2 else None
    if len(query[1]) != 3:
        return []
    hidden = value[1][-1] if value is not None and len(value[1]) == 3 else query[1][-1]
    if value is not None and len(value[1]) == 4:  # (batch, heads, length, size): a cached cross attention
        heads, width = value[1][1], value[1][3]
        hidden = heads * width if isinstance(heads, int) and isinstance(width, int) else None
    outputs: list[Typed] = [(query[0], (*query[1][:2], hidden))]
    if len(node.output) > 1 and value is not None and len(value[1]) == 3 and isinstance(hidden, int):
        heads = _integer(node, "num_heads", 1)
        past = inputs[6] if len(inputs) > 6 else None
        before = 0 if past is None else past[1][2]
        length = value[1][1]
        total = before + length if isinstance(before, int) and isinstance(length, int) else None
        outputs += [(query[0], (query[1][0], heads, total, hidden // heads))] * 2
    return outputs


def _group_query(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    """Return the outputs of GroupQueryAttention; query, keys and values are packed if no keys are given."""
    query, past = inputs[0], inputs[3] if len(inputs) > 3 else None
    assert query is not None
    heads, groups = _integer(node, "num_heads", 1), _integer(node, "kv_num_heads", 1)
    hidden = query[1][-1]
    is_packed = len(inputs) < 2 or inputs[1] is None
    if is_packed and isinstance(hidden, int):
        hidden = hidden * heads // (heads + 2 * groups)
    outputs: list[Typed] = [(query[0], (*query[1][:-1], hidden))]
    if past is not None and isinstance(hidden, int):
        length, before = query[1][1], past[1][2]
        total = length + before if isinstance(length, int) and isinstance(before, int) else None
        outputs += [(past[0], (query[1][0], groups, total, hidden // heads))] * 2
    return outputs


def _attention(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    source, weight = inputs[0], inputs[1] if len(inputs) > 1 else None
    assert source is not None
    if weight is None or not isinstance(weight[1][-1], int):
        return []
    return [(source[0], (*source[1][:-1], weight[1][-1] // 3))]


def _embedding(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    ids, words = inputs[0], inputs[2] if len(inputs) > 2 else None
    assert ids is not None
    if words is None:
        return []
    output = (words[0], (*ids[1], words[1][-1]))
    return [output, (_INT32, ids[1][:1]), output]


def _convolution(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    """Return the output of FusedConv, QLinearConv's kin and the blocked Conv, by ONNX's own inference of Conv."""
    standard = onnx.NodeProto()
    standard.CopyFrom(node)
    standard.op_type, standard.domain = "Conv", ""
    del standard.input[2:], standard.output[1:]
    kept = {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}
    attributes = [each for each in node.attribute if each.name in kept]
    del standard.attribute[:]
    standard.attribute.extend(attributes)
    return _standard(standard, inputs[:2])


def _pool(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    standard = onnx.NodeProto()
    standard.CopyFrom(node)
    standard.op_type = {"NhwcMaxPool": "MaxPool"}.get(node.op_type, node.op_type)
    standard.domain = ""
    del standard.input[1:], standard.output[1:]
    return _standard(standard, inputs[:1])


def _quantized_convolution(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    """Return the output of QLinearConv, whose channels may come last."""
    source, weight = inputs[0], inputs[3] if len(inputs) > 3 else None
    if source is None or weight is None:
        return []
    is_last = bool(_integer(node, "channels_last"))
    dims = source[1]
    first = (*dims[:1], dims[-1], *dims[1:-1]) if is_last else dims
    standard = onnx.NodeProto()
    standard.CopyFrom(node)
    del standard.input[:]
    standard.input.extend(["x", "w"])
    outputs = _convolution(standard, [(_FLOAT, first), (_FLOAT, weight[1])])
    if not outputs:
        return []
    out = outputs[0][1]
    return [(source[0], (*out[:1], *out[2:], out[1]) if is_last else out)]


def _quantized_where(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    condition, a, b = (inputs[place] if place < len(inputs) else None for place in (0, 1, 4))
    if condition is None or a is None or b is None:
        return []
    both = _broadcast_dims(a[1], b[1])
    dims = None if both is None else _broadcast_dims(condition[1], both)
    return [] if dims is None else [(a[0], dims)]


def _quantized_concat(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    parts = inputs[2::3]
    first = parts[0] if parts else None
    axis = _integer(node, "axis")
    if first is None or not -len(first[1]) <= axis < len(first[1]):
        return []
    sizes = [None if part is None or len(part[1]) != len(first[1]) else part[1][axis] for part in parts]
    whole = [size for size in sizes if isinstance(size, int)]
    dims = list(first[1])
    dims[axis] = sum(whole) if len(whole) == len(sizes) else None
    return [(first[0], tuple(dims))]


def _quantized_product(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    """Return the output of QGemm from its first and fourth inputs; FLOAT if it has no output scale."""
    products = _product(node, [inputs[0], inputs[3] if len(inputs) > 3 else None])
    source = inputs[0]
    is_float = len(node.input) < 8 or not node.input[7]
    return [(_FLOAT if is_float or source is None else source[0], dims) for _, dims in products]


def _quantized_pool(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    source = inputs[0]
    if source is None or len(source[1]) < 3:
        return []
    ones = (1,) * (len(source[1]) - 2)
    dims = source[1]
    is_last = bool(_integer(node, "channels_last"))
    return [(source[0], (dims[0], *ones, dims[-1]) if is_last else (*dims[:2], *ones))]


def _standard(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    from onnx import defs, shape_inference

    types = {}
    for name, typed in zip(node.input, inputs, strict=False):
        if typed is None:
            return []
        types[name] = onnx.helper.make_tensor_type_proto(typed[0], typed[1])
    try:
        inferred = shape_inference.infer_node_outputs(defs.get_schema(node.op_type, 13, ""), node, types)
    except Exception:  # noqa: BLE001 - nothing is known of an invalid node, whatever error says so
        return []
    proto = inferred.get(node.output[0])
    if proto is None or not proto.tensor_type.HasField("shape"):
        return []
    return [_typed(proto)]


def _reorder(node: onnx.NodeProto, inputs: Sequence[Typed | None]) -> list[Typed]:
    """Return the output of ReorderInput, into blocks of channels, or ReorderOutput, which states the channel count."""
    source = inputs[0]
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
    "FusedGemm": lambda node, inputs: _product(node, inputs),
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
"""Shape functions for operators of `com.microsoft` and `com.microsoft.nchwc`, by name."""


# node by node


def constant_of(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """Return the tensor that a Constant holds; None for other nodes, and for a sparse tensor."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.output) != 1:
        return None
    for attribute in node.attribute:
        if attribute.name == "value":
            return attribute.t
        if attribute.name in _CONSTANT_ATTRIBUTES:
            kind, field_name, is_list = _CONSTANT_ATTRIBUTES[attribute.name]
            numbers = getattr(attribute, field_name)
            return onnx.helper.make_tensor(
                node.output[0], kind, [len(numbers)] if is_list else [], numbers if is_list else [numbers]
            )
    return None


_CONSTANT_ATTRIBUTES: Mapping[str, tuple[int, str, bool]] = {
    "value_float": (onnx.TensorProto.FLOAT, "f", False),
    "value_floats": (onnx.TensorProto.FLOAT, "floats", True),
    "value_int": (onnx.TensorProto.INT64, "i", False),
    "value_ints": (onnx.TensorProto.INT64, "ints", True),
    "value_string": (onnx.TensorProto.STRING, "s", False),
    "value_strings": (onnx.TensorProto.STRING, "strings", True),
}
"""Attributes of Constant that are not tensors: element type, field of the message, and whether it is a list."""

_SMALL = 1 << 14
"""Most elements of a value that is computed."""

_NOT_EVALUATED = frozenset(
    {
        "Bernoulli",
        "If",
        "ImageDecoder",
        "Loop",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Scan",
    }
)
"""Operators that are never run for their values."""

_BROADCAST = frozenset({"Add", "And", "Div", "Equal", "Gemm", "MatMul", "Mul", "Or", "Pow", "Sub", "Where"})
"""Operators whose inputs must fit each other."""


class Sizer(Mutable):
    """Shape inference for a model without its large tensors; the small ones are decoded once."""

    model: onnx.ModelProto
    stored: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    typed: dict[str, Typed] = field(default_factory=dict)
    opsets: dict[str, int] = field(default_factory=dict)
    stated: dict[str, Typed] = field(default_factory=dict)
    refused: str = ""
    """First node whose inputs did not fit each other in the last call of `types`."""

    def __post_init__(self) -> None:
        graph = self.model.graph
        self.stored, self.typed = {}, {}
        self.opsets = {each.domain.replace("ai.onnx", ""): each.version for each in self.model.opset_import}
        constants = [
            (node.output[0], tensor) for node in graph.node if (tensor := constant_of(node)) is not None
        ]
        for name, tensor in (*((tensor.name, tensor) for tensor in graph.initializer), *constants):
            self.typed[name] = (tensor.data_type, tuple(tensor.dims))
            if math.prod(tensor.dims) <= _SMALL and tensor.data_location != onnx.TensorProto.EXTERNAL:
                with suppress(ValueError, TypeError):  # no elements, or fewer than the shape needs
                    self.stored[name] = numpy_helper.to_array(tensor)
        self.stated = {
            value.name: _typed(value.type)
            for value in (*graph.value_info, *graph.output)
            if value.type.tensor_type.HasField("shape")
        }

    def types(self, sizes: Mapping[str, int] | None) -> dict[str, Typed]:
        """Return the type of every value for these axis sizes, with 0 for an unknown element type.

        Without sizes, types are those that onnxruntime knows before it runs: axes keep their names, and of computed
        shapes only those are known that onnxruntime follows.
        """
        self.refused = ""
        run = _Run(self, sizes, dict(self.stored), dict(self.typed))
        for value in self.model.graph.input:
            if value.name not in run.typed and value.type.HasField("tensor_type"):
                typed = value.type.tensor_type
                dims = tuple(
                    dim.dim_value if dim.HasField("dim_value") else run.size(dim.dim_param)
                    for dim in typed.shape.dim
                )
                run.typed[value.name] = (typed.elem_type, dims)
        for node in self.model.graph.node:
            run.infer(node)
        return run.typed


class _Run(Mutable, dict=True):
    sizer: Sizer
    sizes: Mapping[str, int] | None
    values: dict[str, np.ndarray[Any, Any]]
    typed: dict[str, Typed]
    pieces: dict[str, Typed] = field(default_factory=dict)
    """Type of the elements of each sequence, if all are alike."""
    followed: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    """Numbers that onnxruntime derives from sizes; empty if sizes are given."""

    @cached_property
    def imports(self) -> list[onnx.OperatorSetIdProto]:
        return list(self.sizer.model.opset_import) or [onnx.helper.make_opsetid("", 1)]

    def size(self, axis: str) -> Dim:
        """Return the size of an axis, or its name if no sizes are given."""
        return (axis or None) if self.sizes is None else self.sizes.get(axis)

    def infer(self, node: onnx.NodeProto) -> None:
        """Infer and store the types of a node's outputs."""
        if node.op_type == "SplitToSequence":
            self._split(node)
        for name, typed in self._infer(node).items():
            if name:
                self.typed[name] = typed
        if not any(name in self.typed for name in node.output) and self._is_refused(node):
            self.sizer.refused = self.sizer.refused or node.name or node.op_type
            return
        for name in filter(None, node.output):
            self._restate(name)
        if self.sizes is None:
            self._follow(node)
        else:
            self._compute(node)

    def _is_refused(self, node: onnx.NodeProto) -> bool:
        """Whether nothing can be inferred from fully known inputs, because their shapes contradict each other."""
        if self.sizes is None or node.domain not in ("", "ai.onnx") or node.op_type not in _BROADCAST:
            return False
        types = [self.typed.get(name, (0, (None,))) for name in node.input if name]
        return all(kind and all(isinstance(dim, int) for dim in dims) for kind, dims in types)

    def _restate(self, name: str) -> None:
        """Use the file's axis names where inference finds no number, as onnxruntime does."""
        stated = self.sizer.stated.get(name)
        if stated is None:
            return
        known = tuple(self.size(dim) if isinstance(dim, str) else dim for dim in stated[1])
        kind, dims = self.typed.get(name, (stated[0], known))
        if len(dims) == len(known):
            self.typed[name] = (
                kind,
                tuple(a if isinstance(a, int) or b is None else b for a, b in zip(dims, known, strict=True)),
            )

    def _infer(self, node: onnx.NodeProto) -> dict[str, Typed]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        shapes = [self.typed.get(name) for name in node.input]
        if domain or node.op_type in RUNTIME_ONLY:
            return dict(zip(node.output, contributed_types(node, shapes), strict=False))
        if node.op_type == "Shape" and shapes[0] is not None:
            return {node.output[0]: (onnx.TensorProto.INT64, (self._span(node, len(shapes[0][1])),))}
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and shapes[0] is not None:
            return quantized(node, shapes)
        if node.op_type == "SequenceAt" and node.input[0] in self.pieces:
            return {node.output[0]: self.pieces[node.input[0]]}
        try:
            schema = defs.get_schema(node.op_type, self.sizer.opsets.get("", 1), "")
            types = {name: _type(self.typed[name]) for name in node.input if name in self.typed}
            data = {
                name: numpy_helper.from_array(self.values[name], name)
                for name in node.input
                if name in self.values
            }
            inferred = shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=self.imports
            )
        except Exception:  # noqa: BLE001 - nothing is known of an invalid node, whatever error says so
            return {}
        found = {
            name: _typed(proto) for name, proto in inferred.items() if proto.tensor_type.HasField("shape")
        }
        if node.op_type == "Dropout" and len(node.output) > 1 and shapes[0] is not None:
            found.setdefault(node.output[1], (onnx.TensorProto.BOOL, shapes[0][1]))  # the mask
        return found

    def _split(self, node: onnx.NodeProto) -> None:
        """Store the type of the pieces that SplitToSequence makes, if all have one size."""
        source = self.typed.get(node.input[0])
        split = self.values.get(node.input[1]) if len(node.input) > 1 and node.input[1] else np.array(1)
        axis = next((each.i for each in node.attribute if each.name == "axis"), 0)
        if source is None or split is None or not -len(source[1]) <= axis < len(source[1]):
            return
        sizes = {int(size) for size in np.ravel(split)}
        whole = source[1][axis]
        size = sizes.pop()
        if sizes or not isinstance(whole, int) or (not split.ndim and (size < 1 or whole % size)):
            return
        dims = list(source[1])
        dims[axis] = size
        keeps = next((each.i for each in node.attribute if each.name == "keepdims"), 1)
        if len(node.input) < 2 and not keeps:
            del dims[axis]
        self.pieces[node.output[0]] = (source[0], tuple(dims))

    def _span(self, node: onnx.NodeProto, rank: int) -> int:
        start, end = (next((a.i for a in node.attribute if a.name == key), None) for key in ("start", "end"))
        return len(range(rank)[slice(start, end)])

    def _follow(self, node: onnx.NodeProto) -> None:
        """Store the numbers of a node's output that onnxruntime derives from sizes."""
        if node.domain not in ("", "ai.onnx") or not node.input or not node.output:
            return
        source = self.typed.get(node.input[0])
        dims = None if source is None else source[1]
        numbers = follow(node, self.sizer.opsets.get("", 1), dims, self.followed, self.sizer.stored)
        if numbers is not None:
            self.followed[node.output[0]] = self.values[node.output[0]] = numbers

    def _compute(self, node: onnx.NodeProto) -> None:
        """Compute and store a node's outputs, if all inputs are known and the outputs are small."""
        first = node.output[0] if node.output else ""
        typed = self.typed.get(first)
        if node.domain not in ("", "ai.onnx") or typed is None or first in self.values:
            return
        if node.op_type == "Shape":
            source = self.typed.get(node.input[0])
            if source is not None:
                start, end = (
                    next((a.i for a in node.attribute if a.name == key), None) for key in ("start", "end")
                )
                part = source[1][slice(start, end)]
                if all(isinstance(dim, int) for dim in part):
                    self.values[first] = np.array(part, np.int64)
            return
        if any(name and name not in self.values for name in node.input) or node.op_type in _NOT_EVALUATED:
            return
        if (
            not all(isinstance(dim, int) for dim in typed[1])
            or math.prod(dim for dim in typed[1] if isinstance(dim, int)) > _SMALL
        ):
            return
        self._run(node, first)

    def _run(self, node: onnx.NodeProto, first: str) -> None:
        from onnx.reference import ReferenceEvaluator

        inputs = {name: self.values[name] for name in node.input if name}
        try:
            outputs: Any = ReferenceEvaluator(self._model_of(node, inputs)).run(None, inputs)
        except Exception:  # noqa: BLE001 - nothing is known of an invalid node, whatever error says so
            return
        for name, made in zip(node.output, outputs, strict=False):
            if name and isinstance(made, np.ndarray | np.generic):
                array = np.asarray(made)
                self.values[name] = array
                kind = self.typed[name][0] if name in self.typed else 0
                self.typed[name] = (kind or self.typed[first][0], tuple(array.shape))

    def _model_of(self, node: onnx.NodeProto, arrays: Mapping[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
        """Return a model of one node in its opset version, which an evaluator of a bare node would ignore."""
        helper = onnx.helper
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        version = self.sizer.opsets.get("", 1)
        graph = helper.make_graph([node], "node", inputs, outputs)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])


def _type(typed: Typed) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    proto.tensor_type.elem_type = typed[0]
    proto.tensor_type.shape.SetInParent()
    for dim in typed[1]:
        axis = proto.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            axis.dim_value = dim
        elif dim:
            axis.dim_param = dim
    return proto


def _typed(proto: onnx.TypeProto) -> Typed:
    dims: Sequence[Dim] = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in proto.tensor_type.shape.dim
    ]
    return proto.tensor_type.elem_type, tuple(dims)
