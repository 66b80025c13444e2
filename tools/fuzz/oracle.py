"""Properties of our answer to any file, by itself and compared with onnx's reading of the same bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.account.group.keys import KEYS
from analyzer.account.ledger import Ledger
from analyzer.errors import LedgerError, OnnxLedgerError
from analyzer.formats import FORMATS, RenderOptions
from analyzer.model import Carrier
from analyzer.model.dtypes import DType
from analyzer.reports import Inspection

__all__ = ["MAY_REFUSE", "BrokenPromiseError", "check_file"]

MAY_REFUSE = ("[deep-nesting]", "nodes and tensors", "[invalid-dims]", "a name of", "attributes, of which")
"""Parts of the messages with which we refuse, by our own limits, files that protobuf reads."""

DENSE = {Carrier.INITIALIZER, Carrier.CONSTANT, Carrier.ATTRIBUTE_TENSOR}
LARGEST = 1 << 16
"""Most elements of a tensor whose contents are compared."""


class BrokenPromiseError(AssertionError):
    """A promise that does not hold."""


def check_file(path: Path, content: bytes, *, full: bool = False) -> str:
    """Audit the file at `path`, which holds `content`, and return the result: "counted", "refused", ...

    Raises:
        BrokenPromiseError: a promise does not hold; any exception that is not ours is a defect, too.
    """
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
        is_read = True
    except DecodeError:
        is_read = False
    try:
        ledger = audit_model(path, content="full" if full else "sampled")
    except LedgerError as error:
        raise BrokenPromiseError(f"an identity does not hold: {error}") from error
    except OnnxLedgerError as error:
        message = str(error)
        if path.name not in message:
            raise BrokenPromiseError(f"names no file: {message}") from error
        has_graph = proto.HasField("graph") or len(proto.training_info)
        if is_read and has_graph and not any(words in message for words in MAY_REFUSE):
            raise BrokenPromiseError(f"refuses what protobuf reads: {message}") from error
        return "refused"
    check_report(ledger)
    if not is_read:
        return "counted what protobuf refuses"
    if _has_other_nesting(proto):
        return "counted"
    check_same(ledger, proto)
    return "counted"


def check_report(ledger: Ledger) -> None:
    """Check both renderings, and the sums in them."""
    for by in KEYS:
        report = Inspection(ledger, group_by(ledger, by))
        document = json.loads(FORMATS["json"].render(report, RenderOptions()))
        roles = document["roles"].values()
        groups = document["groups"]
        _require_equal("roles", sum(role["stored_elements"] for role in roles), ledger.stored_elements)
        _require_equal("groups", sum(group["stored_elements"] for group in groups), ledger.stored_elements)
        _require_equal("group parameters", sum(group["parameters"] for group in groups), ledger.parameters)
    _require_equal(
        "accounts",
        sum(a["bytes"] for a in document["accounts"]),
        sum(f["bytes"] for f in document["model"]["files"]),
    )
    _require_equal("keys", len({entry.tensor.key for entry in ledger.entries}), len(ledger.entries))
    paths = [graph.path for graph in ledger.model.graphs]
    _require_equal("graph paths", len(set(paths)), len(paths))
    text = str(FORMATS["text"].render(report, RenderOptions(verbose=True)))
    unprintable = [c for c in text if not c.isprintable() and c != "\n"]
    if unprintable:
        raise BrokenPromiseError(f"prints {unprintable[0]!r}")


def check_same(ledger: Ledger, proto: onnx.ModelProto) -> None:
    """Check that our nodes and tensors are those of protobuf's own reader."""
    graphs = list(_graphs(proto))
    _require_equal("nodes", sum(1 for _ in ledger.model.nodes()), sum(len(graph.node) for graph in graphs))
    ours = [entry.tensor for entry in ledger.entries]
    theirs = list(_tensors(proto, graphs))
    seen: dict[Any, list[Any]] = {}
    for tensor in theirs:
        seen.setdefault((tuple(tensor.dims), DType.from_onnx(tensor.data_type)), []).append(tensor)
    dense = [tensor for tensor in ours if tensor.carrier in DENSE and not _is_sparse(tensor)]
    counted = Counter((tensor.shape, tensor.dtype) for tensor in dense)
    _require_equal("tensors", counted, Counter({key: len(found) for key, found in seen.items()}))
    _require_equal("initializers", *(sorted(names) for names in _initializers(ledger, graphs)))
    for key, found in seen.items():
        _compare_contents(ledger, [tensor for tensor in dense if (tensor.shape, tensor.dtype) == key], found)


def _compare_contents(ledger: Ledger, ours: list[Any], theirs: list[Any]) -> None:
    expected = Counter(content for tensor in theirs if (content := _their_content(tensor)) is not None)
    if sum(expected.values()) != len(theirs):
        return  # onnx cannot make an array of one of them
    found = Counter(_our_content(tensor) for tensor in ours)
    if None in found and any(finding.id == "payload-mismatch" for finding in ledger.findings):
        return  # stored in an unusual way, and reported as such
    _require_equal("contents", found, expected)


def _their_content(tensor: onnx.TensorProto) -> bytes | None:
    numel = 1
    for dim in tensor.dims:
        numel *= dim
    packed = {*DType.__members__.values()}
    dtype = DType.from_onnx(tensor.data_type)
    is_skipped = (
        tensor.data_location == onnx.TensorProto.EXTERNAL
        or tensor.HasField("segment")
        or dtype is DType.STRING
    )
    if is_skipped or dtype not in packed or not 0 <= numel <= LARGEST or min(tensor.dims, default=0) < 0:
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
        array = numpy_helper.to_array(tensor)
    except Exception:  # noqa: BLE001 - any error means that onnx cannot read it
        return None
    if array.size != numel:
        return None
    return np.ascontiguousarray(array).tobytes()


def _our_content(tensor: Any) -> bytes | None:
    array = tensor.payload.array()
    return None if array is None else np.ascontiguousarray(array).tobytes()


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


def _initializers(ledger: Ledger, bodies: list[Any]) -> tuple[list[str], list[str]]:
    ours = [e.tensor.name for e in ledger.entries if e.tensor.carrier is Carrier.INITIALIZER]
    theirs = [t.name for body in bodies if isinstance(body, onnx.GraphProto) for t in body.initializer]
    return ours, [
        name if isinstance(name, str) else name.decode("utf-8", "backslashreplace") for name in theirs
    ]


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


def _require_equal(what: str, ours: Any, theirs: Any) -> None:
    if ours != theirs:
        raise BrokenPromiseError(f"{what}: {ours!r} here, {theirs!r} there"[:2000])
