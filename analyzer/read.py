"""An .onnx file -> Model. Protobuf stops here; payloads stay where they are."""

from __future__ import annotations

import itertools
import math
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
)

from analyzer.dtypes import DType
from analyzer.errors import ExternalDataError, ModelReadError
from analyzer.model import Carrier, Extent, File, Graph, GraphPath, Key, Model, Node, Payload, StoredTensor
from analyzer.payload import (
    ExternalPayload,
    InlinePayload,
    ListPayload,
    NoPayload,
    encoded_nbytes,
    locate_external,
    payload_mismatch,
    varint_nbytes,
)

__all__ = ["read_model"]

PROTOBUF_LIMIT = 2**31 - 1
"""Bytes of one protobuf message that its Python runtime parses."""

_KEPT_METADATA = frozenset(
    {
        "namespace",
        "pkg.torch.onnx.name_scopes",
        "pkg.torch.onnx.fx_node",
        "pkg.torch.onnx.original_node_name",
        "pkg.torch.export.graph_signature.InputSpec.kind",
        "pkg.onnxscript.optimizer.folded_from",
    }
)
"""What `analyzer.scopes` reads; the rest, stack traces above all, is dropped here."""

_CONSTANT_LISTS = {"value_float", "value_floats", "value_int", "value_ints", "value_string", "value_strings"}
_ML_DOMAIN = "ai.onnx.ml"


def read_model(path: Path | str) -> Model:
    """Read a model without the payloads of its external data.

    Raises:
        ModelReadError: the file is absent, no regular file, empty, no ONNX, or over protobuf's limit of 2 GiB.
    """
    path = Path(path)
    nbytes = _checked_size(path)
    proto = _parse(path)
    reader = _Reader(path)
    graphs = list(reader.graphs(proto))
    externals = sorted({t.extent.file for g in graphs for t in g.tensors if t.extent is not None})
    # Named as seen from the model's folder, whatever the working directory: the report must not depend on it.
    folder = path.parent.resolve()
    files = [File(path.name, nbytes)]
    files += [File(os.path.relpath(file, folder), file.stat().st_size) for file in externals]
    return Model(
        path=path,
        files=tuple(files),
        ir_version=proto.ir_version,
        opsets=tuple(sorted({(_text(o.domain) or "ai.onnx", o.version) for o in proto.opset_import})),
        producer=" ".join(filter(None, (_text(proto.producer_name), _text(proto.producer_version)))),
        graphs=tuple(graphs),
        functions=len(proto.functions),
        unread=tuple(reader.unread),
    )


def _checked_size(path: Path) -> int:
    """The size of a file that is safe to read whole: a pipe or a device would hang or never end."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelReadError(f"{path}: cannot be read: {reason}") from error
    if stat.S_ISDIR(status.st_mode):
        raise ModelReadError(f"{path}: is a folder; name the .onnx file inside it")
    if not stat.S_ISREG(status.st_mode):
        raise ModelReadError(f"{path}: [not-onnx] is no regular file; copy its content to one")
    if status.st_size == 0:
        raise ModelReadError(f"{path}: [empty-model] is empty (0 bytes); export or download it again")
    if status.st_size > PROTOBUF_LIMIT:
        raise ModelReadError(
            f"{path}: {status.st_size:,} bytes in one piece, over the {PROTOBUF_LIMIT:,} that protobuf reads; "
            "save it with external data"
        )
    return status.st_size


def _parse(path: Path) -> ModelProto:
    proto = ModelProto()
    try:
        proto.ParseFromString(path.read_bytes())
    except OSError as error:
        raise ModelReadError(f"{path}: cannot be read: {error.strerror or error}") from error
    except DecodeError as error:
        raise ModelReadError(
            f"{path}: [not-onnx] not an ONNX model, or one that is truncated or nested too deep for protobuf; "
            "check the download, or export it again"
        ) from error
    if not proto.HasField("graph") and not proto.training_info:
        raise ModelReadError(
            f"{path}: [empty-model] holds no graph; it is another kind of file, or an empty model"
        )
    return proto


@dataclass
class _Reader:
    """One pass over a ModelProto, collecting what could not be read on the way."""

    path: Path
    unread: list[tuple[str, Key, str]] = field(default_factory=list)

    def graphs(self, proto: ModelProto) -> Iterator[Graph]:
        """The main graph and every graph below or beside it, each before those it contains."""
        yield from self._graph(proto.graph, ())
        for index, training in enumerate(proto.training_info):
            yield from self._graph(training.initialization, (f"training:{index}:initialization",))
            yield from self._graph(training.algorithm, (f"training:{index}:algorithm",))
        paths: set[str] = set()
        for function in proto.functions:
            overload = f":{_text(function.overload)}" if function.overload else ""
            label = f"function:{_text(function.domain)}:{_text(function.name)}{overload}"
            while label in paths:
                label += "#"  # the same function twice: invalid, and still counted
            paths.add(label)
            yield from self._function(function, (label,))

    def _graph(
        self, graph: GraphProto, path: GraphPath, parent: tuple[GraphPath, int] | None = None
    ) -> Iterator[Graph]:
        tensors = [self._dense(t, path, Carrier.INITIALIZER, _text(t.name)) for t in graph.initializer]
        tensors += [
            self._sparse(sparse, path, Carrier.SPARSE_INITIALIZER, _text(sparse.values.name))
            for sparse in graph.sparse_initializer
        ]
        metadata = {
            _text(value.name): _metadata(value.metadata_props)
            for values in (graph.value_info, graph.input, graph.output)
            for value in values
            if value.metadata_props
        }
        initialized = {t.name for t in tensors}
        yield from self._body(
            graph.node,
            Graph(
                path=path,
                # IR < 4 lists every initializer as an input too; an input here is what a caller feeds.
                inputs=tuple(name for v in graph.input if (name := _text(v.name)) not in initialized),
                outputs=tuple(_text(v.name) for v in graph.output),
                nodes=(),
                tensors=tuple(tensors),
                parent=parent,
                metadata=metadata,
            ),
        )

    def _function(self, function: FunctionProto, path: GraphPath) -> Iterator[Graph]:
        metadata = {
            _text(v.name): _metadata(v.metadata_props) for v in function.value_info if v.metadata_props
        }
        inputs, outputs = map(_text, function.input), map(_text, function.output)
        yield from self._body(
            function.node, Graph(path, tuple(inputs), tuple(outputs), (), (), None, metadata)
        )

    def _body(self, protos: Iterable[NodeProto], graph: Graph) -> Iterator[Graph]:
        """`graph` with its nodes and what they carry, then the graphs nested in them."""
        nodes: list[Node] = []
        tensors = list(graph.tensors)
        nested: list[tuple[GraphProto, GraphPath, int]] = []
        for index, proto in enumerate(protos):
            node = _node(proto, graph.path, index)
            nodes.append(node)
            for attribute in proto.attribute:
                tensors += self._carried(attribute, node)
                for label, body in _bodies(attribute):
                    nested.append((body, (*graph.path, f"{node.op_type}_{index}.{label}"), index))
        yield replace(graph, nodes=tuple(nodes), tensors=_numbered(tensors))
        for body, path, index in nested:
            yield from self._graph(body, path, (graph.path, index))

    def _carried(self, attribute: AttributeProto, node: Node) -> Iterator[StoredTensor]:
        """The tensors that one attribute carries."""
        if attribute.ref_attr_name:
            return  # the value is an attribute of the function's caller, where it is entered
        label = _text(attribute.name)
        is_constant = node.op_type == "Constant" and node.domain in ("", "ai.onnx")
        name = (
            node.outputs[0]
            if is_constant and node.outputs
            else f"{node.name or node.op_type}#{node.index}.{label}"
        )
        path = node.graph_path
        if is_constant and label in _CONSTANT_LISTS:
            yield self._list(attribute, path, Carrier.CONSTANT_LIST, name, node.index)
        elif attribute.type == AttributeProto.TENSOR or attribute.HasField("t"):
            carrier = Carrier.CONSTANT if is_constant else Carrier.ATTRIBUTE_TENSOR
            yield self._dense(attribute.t, path, carrier, name, node.index)
        elif attribute.type == AttributeProto.SPARSE_TENSOR or attribute.HasField("sparse_tensor"):
            carrier = Carrier.SPARSE_CONSTANT if is_constant else Carrier.ATTRIBUTE_TENSOR
            yield self._sparse(attribute.sparse_tensor, path, carrier, name, node.index)
        elif node.domain == _ML_DOMAIN and (attribute.floats or attribute.ints or attribute.strings):
            yield self._list(attribute, path, Carrier.ATTRIBUTE_LIST, name, node.index)
        for position, tensor in enumerate(attribute.tensors):
            yield self._dense(tensor, path, Carrier.ATTRIBUTE_TENSOR, f"{name}[{position}]", node.index)
        for position, sparse in enumerate(attribute.sparse_tensors):
            yield self._sparse(sparse, path, Carrier.ATTRIBUTE_TENSOR, f"{name}[{position}]", node.index)

    def _dense(
        self, proto: TensorProto, path: GraphPath, carrier: Carrier, name: str, node: int | None = None
    ) -> StoredTensor:
        dtype, shape = DType.from_onnx(proto.data_type), self._shape(proto.dims, name)
        numel = math.prod(shape)
        # A varint may be written longer or shorter than it need be; it is never longer than the tensor.
        nbytes, extent, payload = (
            min(encoded_nbytes(proto), proto.ByteSize()),
            None,
            _inline(proto, dtype, shape),
        )
        if proto.data_location == TensorProto.EXTERNAL:
            extent, payload = self._external(proto, dtype, shape, (path, name))
            nbytes = extent.length if extent is not None else 0
        elif (mismatch := payload_mismatch(proto, dtype, numel, nbytes)) is not None:
            self.unread.append(("payload-mismatch", (path, name), mismatch))
        return StoredTensor(name, path, carrier, dtype, shape, numel, nbytes, payload, extent, node)

    def _external(
        self, proto: TensorProto, dtype: DType, shape: tuple[int, ...], key: Key
    ) -> tuple[Extent | None, Payload]:
        """Where external data is, checked against the file that holds it."""
        entries = {_text(item.key): _text(item.value) for item in proto.external_data}
        needed = dtype.nbytes(math.prod(shape))
        try:
            file = locate_external(self.path, entries.get("location", ""))
            offset, length = _range(entries, needed)
        except ExternalDataError as error:
            finding, _, sentence = str(error).removeprefix("[").partition("] ")
            self.unread.append((finding, key, sentence))
            return None, NoPayload()
        available = max(0, min(length, file.stat().st_size - offset))
        extent = Extent(file, offset, available)
        if available < max(needed, length):
            missing = f"needs {max(needed, length):,} bytes at offset {offset:,}, the file has {available:,} of them"
            self.unread.append(("external-short", key, f"{file.name}: {missing}"))
            return extent, NoPayload()
        return extent, ExternalPayload(file, offset, dtype, shape)

    def _sparse(
        self, proto: SparseTensorProto, path: GraphPath, carrier: Carrier, name: str, node: int | None = None
    ) -> StoredTensor:
        """A sparse tensor: its stored values are elements, its indices are bytes only."""
        values = self._dense(proto.values, path, carrier, name, node)
        nbytes, shape = values.nbytes + encoded_nbytes(proto.indices), self._shape(proto.dims, name)
        return StoredTensor(
            name, path, carrier, values.dtype, shape, values.numel, nbytes, NoPayload(), values.extent, node
        )

    def _shape(self, dims: Iterable[int], name: str) -> tuple[int, ...]:
        shape = tuple(dims)
        if any(dim < 0 for dim in shape):
            raise ModelReadError(
                f"{self.path}: [invalid-dims] tensor {name!r} has a negative dimension {list(shape)}; "
                "the file is corrupt, export it again"
            )
        return shape

    def _list(
        self, proto: AttributeProto, path: GraphPath, carrier: Carrier, name: str, node: int
    ) -> StoredTensor:
        dtype, values, nbytes = _list_values(proto)
        is_scalar = proto.type in (AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.STRING)
        payload: Payload = NoPayload() if dtype is DType.STRING else ListPayload(values, dtype)
        shape = () if is_scalar else (len(values),)
        return StoredTensor(name, path, carrier, dtype, shape, len(values), nbytes, payload, None, node)


def _numbered(tensors: Iterable[StoredTensor]) -> tuple[StoredTensor, ...]:
    """One graph's tensors, those that repeat a name told apart by a number that makes their key unique."""
    tensors = tuple(tensors)
    taken = {tensor.name for tensor in tensors}
    seen: set[str] = set()
    numbered = []
    for tensor in tensors:
        occurrence = 1
        if tensor.name in seen:
            occurrence = next(n for n in itertools.count(2) if f"{tensor.name}#{n}" not in taken)
            taken.add(f"{tensor.name}#{occurrence}")
        seen.add(tensor.name)
        numbered.append(tensor if occurrence == 1 else replace(tensor, occurrence=occurrence))
    return tuple(numbered)


def _inline(proto: TensorProto, dtype: DType, shape: tuple[int, ...]) -> Payload:
    return NoPayload() if dtype in (DType.STRING, DType.UNDEFINED) else InlinePayload(proto, dtype, shape)


def _range(entries: dict[str, str], needed: int) -> tuple[int, int]:
    """Offset and length of external data; the length defaults to what the shape needs (ONNX IR, "External Data")."""
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(needed)))
    except ValueError as error:
        raise ExternalDataError("[external-short] its offset or length is no number") from error
    if offset < 0 or length < 0:
        raise ExternalDataError("[external-short] its offset or length is negative")
    return offset, length


def _list_values(proto: AttributeProto) -> tuple[DType, tuple[int, ...] | tuple[float, ...], int]:
    """dtype, values and encoded bytes of a list or scalar attribute. Strings are counted, not kept."""
    if proto.type in (AttributeProto.FLOATS, AttributeProto.FLOAT):
        floats = tuple(proto.floats) if proto.type == AttributeProto.FLOATS else (proto.f,)
        return DType.FLOAT, floats, 4 * len(floats)
    if proto.type in (AttributeProto.INTS, AttributeProto.INT):
        ints = tuple(proto.ints) if proto.type == AttributeProto.INTS else (proto.i,)
        return DType.INT64, ints, varint_nbytes(ints)
    texts = proto.strings if proto.type == AttributeProto.STRINGS else [proto.s]
    return DType.STRING, (0,) * len(texts), sum(len(text) for text in texts)


def _bodies(attribute: AttributeProto) -> Iterator[tuple[str, GraphProto]]:
    label = _text(attribute.name)
    if attribute.type == AttributeProto.GRAPH or attribute.HasField("g"):
        yield label, attribute.g
    for position, body in enumerate(attribute.graphs):
        yield f"{label}[{position}]", body


def _node(proto: NodeProto, path: GraphPath, index: int) -> Node:
    return Node(
        graph_path=path,
        index=index,
        op_type=_text(proto.op_type),
        domain=_text(proto.domain),
        name=_text(proto.name),
        inputs=tuple(map(_text, proto.input)),
        outputs=tuple(map(_text, proto.output)),
        integers={_text(a.name): a.i for a in proto.attribute if a.type == AttributeProto.INT},
        metadata=_metadata(proto.metadata_props),
    )


def _metadata(props: Iterable[onnx.StringStringEntryProto]) -> dict[str, str]:
    return {key: _text(item.value) for item in props if (key := _text(item.key)) in _KEPT_METADATA}


def _text(value: str | bytes) -> str:
    """A name as text: protobuf hands over bytes where a string is not UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")
