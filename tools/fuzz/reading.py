"""Our reading of a file beside that of protobuf: nodes, tensors and their contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from analyzer.model import Carrier, Model, StoredTensor
from analyzer.model.dtypes import DType

__all__ = ["BrokenPromiseError", "check_reading", "check_refusal", "parse", "require_equal"]

MAY_REFUSE = ("[deep-nesting]", "nodes and tensors", "[invalid-dims]", "a name of", "attributes, of which")
"""Parts of the messages with which we refuse, by our own limits, files that protobuf reads."""

DENSE = {Carrier.INITIALIZER, Carrier.CONSTANT, Carrier.ATTRIBUTE_TENSOR}
LARGEST = 1 << 16
"""Most elements of a tensor whose contents are compared."""


class BrokenPromiseError(AssertionError):
    """A promise that does not hold."""


def parse(content: bytes) -> onnx.ModelProto | None:
    """Return the model as protobuf reads it; None if protobuf refuses the bytes."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError:
        return None
    return proto


def check_refusal(error: Exception, path: Path, proto: onnx.ModelProto | None) -> None:
    """Check that an error names the file, and that protobuf refuses the file too, except for our own limits."""
    message = str(error)
    if path.name not in message:
        raise BrokenPromiseError(f"names no file: {message}") from error
    has_graph = proto is not None and (proto.HasField("graph") or len(proto.training_info))
    if has_graph and not any(words in message for words in MAY_REFUSE):
        raise BrokenPromiseError(f"refuses what protobuf reads: {message}") from error


def check_reading(model: Model, proto: onnx.ModelProto) -> None:
    """Check that our nodes and tensors are those of protobuf.

    Models with sparse tensors in attributes, or with graphs in the defaults of functions, are left out: protobuf's
    messages do not show which of these the file counts.
    """
    if _has_other_nesting(proto):
        return
    graphs = list(_graphs(proto))
    require_equal("nodes", Counter(_our_nodes(model)), Counter(_their_nodes(graphs)))
    ours = [tensor for graph in model.graphs for tensor in graph.tensors]
    require_equal("initializers", sorted(_our_initializers(ours)), sorted(_their_initializers(graphs)))
    dense = _by_kind(
        ((tensor.shape, tensor.dtype), tensor)
        for tensor in ours
        if tensor.carrier in DENSE and not _is_sparse(tensor)
    )
    theirs = _by_kind(
        ((tuple(tensor.dims), DType.from_onnx(tensor.data_type)), tensor)
        for tensor in _tensors(proto, graphs)
    )
    require_equal("tensors", _counts(dense), _counts(theirs))
    for kind, found in theirs.items():
        _compare_contents(model, dense[kind], found)


def require_equal(what: str, ours: Any, theirs: Any) -> None:
    """Raise `BrokenPromiseError`, with both in its message, unless they are equal."""
    if ours != theirs:
        raise BrokenPromiseError(f"{what}: {ours!r} here, {theirs!r} there"[:2000])


def _by_kind(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for kind, tensor in pairs:
        found.setdefault(kind, []).append(tensor)
    return found


def _counts(found: dict[Any, list[Any]]) -> dict[Any, int]:
    return {kind: len(tensors) for kind, tensors in found.items()}


def _our_nodes(model: Model) -> Iterator[tuple[Any, ...]]:
    for node in model.nodes():
        yield node.op_type, node.domain, node.name, node.inputs, node.outputs


def _their_nodes(graphs: list[Any]) -> Iterator[tuple[Any, ...]]:
    for graph in graphs:
        for node in graph.node:
            yield (
                _text(node.op_type),
                _text(node.domain),
                _text(node.name),
                tuple(map(_text, node.input)),
                tuple(map(_text, node.output)),
            )


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")


def _our_initializers(tensors: list[StoredTensor]) -> list[str]:
    return [tensor.name for tensor in tensors if tensor.carrier is Carrier.INITIALIZER]


def _their_initializers(bodies: list[Any]) -> list[str]:
    return [
        _text(tensor.name)
        for body in bodies
        if isinstance(body, onnx.GraphProto)
        for tensor in body.initializer
    ]


def _compare_contents(model: Model, ours: list[Any], theirs: list[Any]) -> None:
    folder = str(Path(model.path).parent)
    expected = Counter(
        content for tensor in theirs if (content := _their_content(tensor, folder)) is not None
    )
    if sum(expected.values()) != len(theirs):
        return  # onnx cannot make an array of one of them
    contents = [((tensor.graph_path, tensor.name), _our_content(tensor)) for tensor in ours]
    reported = {place for _, place, _ in model.unread}
    silent = [place for place, content in contents if content is None and place not in reported]
    require_equal("contents that are not read, and not reported", silent, [])
    found = Counter(content for _, content in contents if content is not None)
    if found.total() < len(theirs):  # the report says why the others cannot be read, or are not for safety
        expected &= found
    require_equal("contents", found, expected)


def _their_content(tensor: onnx.TensorProto, folder: str) -> bytes | None:
    numel = 1
    for dim in tensor.dims:
        numel *= dim
    packed = {*DType.__members__.values()}
    dtype = DType.from_onnx(tensor.data_type)
    if (
        tensor.HasField("segment")
        or dtype is DType.STRING
        or dtype not in packed
        or not 0 <= numel <= LARGEST
        or min(tensor.dims, default=0) < 0
    ):
        return None
    lists = [
        field
        for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
        if len(getattr(tensor, field))
    ]
    if len(lists) + tensor.HasField("raw_data") > 1 or not dtype.bits:
        return None  # contradictory; onnx takes one of them
    if dtype.bits < 8 or (not tensor.HasField("raw_data") and dtype.to_numpy() is None):
        return None
    if tensor.HasField("raw_data") and len(tensor.raw_data) != dtype.nbytes(numel):
        return None
    try:
        array = numpy_helper.to_array(tensor, folder)
    except Exception:  # noqa: BLE001 - any error means that onnx cannot read it
        return None
    if array.size != numel:
        return None
    return _bytes(array)


def _our_content(tensor: Any) -> bytes | None:
    array = tensor.payload.array()
    return None if array is None else _bytes(array)


def _bytes(array: Any) -> bytes:
    """Return the elements as bytes; any truth value that is not 0 is one."""
    if array.dtype == bool:
        array = array.view(np.uint8) != 0
    return np.ascontiguousarray(array).tobytes()


_MOST_COUNTED = 1 << 128
"""Most elements of a shape; larger shapes are reported as wrong, and not counted."""


def _is_sparse(tensor: Any) -> bool:
    """Whether it is a sparse tensor in an attribute; its carrier says only that it is in an attribute."""
    is_counted = min(tensor.shape, default=0) >= 0 and _product(tensor.shape) <= _MOST_COUNTED
    return (
        tensor.carrier is Carrier.ATTRIBUTE_TENSOR and is_counted and tensor.numel != _product(tensor.shape)
    )


def _product(shape: tuple[int, ...]) -> int:
    count = 1
    for dim in shape:
        count *= dim
    return count


def _graphs(proto: onnx.ModelProto) -> Iterator[Any]:
    """Yield every body with nodes: graphs, training graphs and functions, at any depth."""
    waiting: list[Any] = [proto.graph] if proto.HasField("graph") else []
    for info in proto.training_info:
        waiting += (info.initialization, info.algorithm)
    waiting += proto.functions
    while waiting:
        body = waiting.pop()
        yield body
        for attribute in _attributes(body):
            if attribute.HasField("g"):
                waiting.append(attribute.g)
            waiting += attribute.graphs


def _attributes(body: Any) -> Iterator[onnx.AttributeProto]:
    for node in body.node:
        yield from node.attribute
    # A function's default attribute values are left out: graphs in them belong to no node.


def _tensors(proto: onnx.ModelProto, bodies: list[Any]) -> Iterator[onnx.TensorProto]:
    for body in bodies:
        if isinstance(body, onnx.GraphProto):
            yield from body.initializer
        defaults = body.attribute_proto if isinstance(body, onnx.FunctionProto) else ()
        for attribute in (*_attributes(body), *defaults):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _has_other_nesting(proto: onnx.ModelProto) -> bool:
    """Whether there are graphs and sparse tensors that our account counts by rules of its own."""
    bodies = list(_graphs(proto))
    for body in bodies:
        for attribute in _attributes(body):
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                return True
        if isinstance(body, onnx.FunctionProto):
            for attribute in body.attribute_proto:
                if (
                    attribute.HasField("g")
                    or attribute.graphs
                    or attribute.HasField("sparse_tensor")
                    or attribute.sparse_tensors
                ):
                    return True
    return False
