"""A node + the known numbers of its inputs -> the numbers that onnxruntime knows of its output before it runs.

`Graph::SaveShapeValuesFromDataPropagation` (graph.cc) and `core/graph/data_propagation` of onnxruntime 1.31: whole
numbers derived from sizes, if all of a vector are known. Stored numbers are not among them, so that nothing is known of
a Concat with one of these, though a Reshape may read either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from analyzer.read.described import Dim

Numbers = np.ndarray[Any, Any]
"""Whole numbers of shape (n,), or one of shape ()."""

_SINCE: Mapping[str, int] = {"Add": 14, "Cast": 13, "Concat": 13, "Mul": 14, "Sub": 14}
"""Versions from which ONNX defines the results of these operators on vectors."""

_PAIRS: Mapping[str, Callable[[int, int], int]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a // b if a * b >= 0 else -(-a // b),
}
"""Result for two numbers; Div truncates as in C++."""

_LEAST, _MOST = -(2**63), 2**63 - 1


def follow(
    node: onnx.NodeProto,
    opset: int,
    source: Sequence[Dim] | None,
    known: Mapping[str, Numbers],
    stored: Mapping[str, Numbers],
) -> Numbers | None:
    """Return the numbers of a node's output; None if onnxruntime knows none.

    Args:
        node: node of one of ONNX's own operators.
        opset: version of these operators.
        source: sizes of its first input; None if the rank is unknown.
        known: results of this function for earlier nodes, by the names of their outputs.
        stored: small tensors of the file.
    """
    inputs = [known.get(name) for name in node.input]
    first = inputs[0] if inputs else None
    if node.op_type == "Shape":
        return _sizes(node, source)
    if node.op_type in _PAIRS and len(inputs) == 2:
        return _pair(node.op_type, inputs, is_whole=opset >= _SINCE.get(node.op_type, opset + 1))
    if node.op_type == "Concat" and opset >= _SINCE["Concat"]:
        parts = [each for each in inputs if each is not None and each.ndim]
        return np.concatenate(parts) if parts and len(parts) == len(inputs) else None
    if first is None:
        return None
    if node.op_type == "Gather" and first.ndim and len(inputs) > 1:
        places = inputs[1]
        if places is None:
            places = stored.get(node.input[1])
            return _taken(first, places) if places is not None and places.size == 1 else None
        return _taken(first, places) if places.ndim else None
    if node.op_type == "Cast" and first.ndim and opset >= _SINCE["Cast"]:
        return first
    if node.op_type == "Squeeze":
        return first.reshape(()) if first.size == 1 else None
    if node.op_type == "Unsqueeze":
        return None if first.ndim else first.reshape(1)
    return None


def _sizes(node: onnx.NodeProto, source: Sequence[Dim] | None) -> Numbers | None:
    start, end = (next((a.i for a in node.attribute if a.name == key), None) for key in ("start", "end"))
    part = () if source is None else source[slice(start, end)]
    whole = [dim for dim in part if isinstance(dim, int)]
    return np.array(whole, np.int64) if whole and len(whole) == len(part) else None


def _pair(operator: str, operands: Sequence[Numbers | None], *, is_whole: bool) -> Numbers | None:
    """Combine two vectors, or two single numbers, of which one may have an axis."""
    a, b = operands
    if a is None or b is None or (operator == "Div" and not b.all()):
        return None
    sizes = {a.size, b.size} - {1}
    if len(sizes) > is_whole or (sizes and not (a.ndim and b.ndim)):
        return None
    left, right = np.broadcast_arrays(a, b)
    results = [_PAIRS[operator](int(x), int(y)) for x, y in zip(left.flat, right.flat, strict=True)]
    if any(not _LEAST <= number <= _MOST for number in results):
        return None
    return np.array(results, np.int64).reshape(left.shape)


def _taken(first: Numbers, places: Numbers) -> Numbers | None:
    is_one = places.ndim <= 1 and np.issubdtype(places.dtype, np.integer)
    is_within = is_one and all(-first.size <= int(place) < first.size for place in places.flat)
    return first[places.astype(np.int64)] if is_within else None
