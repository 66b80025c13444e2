"""TypeProto of a graph's input -> ValueType: what a caller has to feed."""

from __future__ import annotations

import itertools

import onnx

from analyzer.dtypes import DType
from analyzer.model import ValueType

__all__ = ["MAX_RANK", "read_type"]

MAX_RANK = 64
"""Dimensions that an array of numpy can have; of an input with more, one more than these is kept."""


def read_type(name: str, proto: onnx.TypeProto) -> ValueType:
    """What the file says of an input of this name."""
    choice = proto.WhichOneof("value") or ""
    kind = choice.removesuffix("_type")
    if kind not in ("tensor", "sparse_tensor"):
        return ValueType(name, kind, DType.UNDEFINED, None)
    tensor = proto.tensor_type if kind == "tensor" else proto.sparse_tensor_type
    dims = None
    if tensor.HasField("shape"):
        dims = tuple(_read_dim(dim) for dim in itertools.islice(tensor.shape.dim, MAX_RANK + 1))
    return ValueType(name, kind, DType.from_onnx(tensor.elem_type), dims)


def _read_dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return dim.dim_value
    axis: str | bytes = dim.dim_param  # bytes where they are no UTF-8
    return (axis if isinstance(axis, str) else axis.decode("utf-8", "backslashreplace")) or None
