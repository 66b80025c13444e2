"""The accounts of a model file, counted in another way: by the sizes that protobuf computes for its messages."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx
from encoding import is_repeated
from google.protobuf.message import Message

from analyzer.read.book import (
    FUNCTIONS,
    HEADER,
    METADATA,
    NAMES,
    NODE_METADATA,
    NODES,
    TENSORS,
    VALUES,
)

__all__ = ["Bookkeeper"]


def taken(message: Message, *fields: str) -> int:
    """Return the bytes of some fields: how much shorter a message is without them."""
    copy = type(message)()
    copy.CopyFrom(message)
    for field in fields:
        copy.ClearField(field)
    return message.ByteSize() - copy.ByteSize()


def framed(message: Message, field: str, item: Message) -> int:
    """Return the bytes of the key and the length of a field that holds a message."""
    alone = type(message)()
    (
        getattr(alone, field).add()
        if is_repeated(message.DESCRIPTOR.fields_by_name[field])
        else getattr(alone, field)
    ).CopyFrom(item)
    return alone.ByteSize() - item.ByteSize()


class Bookkeeper:
    """Books a model by the sizes that protobuf computes for its messages."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.nbytes: Counter[str] = Counter()
        self.nbytes[METADATA] += taken(proto, "doc_string", "metadata_props")
        rest = ("graph", "training_info", "functions")
        self.nbytes[HEADER] += proto.ByteSize() - taken(proto, *rest, "doc_string", "metadata_props")
        if proto.HasField("graph"):
            self.nbytes[HEADER] += framed(proto, "graph", proto.graph)
            self.graph(proto.graph, NODES, NAMES)
        for info in proto.training_info:
            self.nbytes[HEADER] += framed(proto, "training_info", info)
            self.nbytes[HEADER] += taken(info, "initialization_binding", "update_binding")
            for field in ("initialization", "algorithm"):
                if info.HasField(field):
                    self.nbytes[HEADER] += framed(info, field, getattr(info, field))
                    self.graph(getattr(info, field), NODES, NAMES)
        for function in proto.functions:
            self.nbytes[FUNCTIONS] += framed(proto, "functions", function)
            self.function(function)

    def graph(self, graph: onnx.GraphProto, nodes: str, names: str) -> None:
        self.nbytes[HEADER] += taken(graph, "name", "input", "output", "quantization_annotation")
        self.nbytes[METADATA] += taken(graph, "doc_string", "metadata_props")
        self.nbytes[VALUES] += taken(graph, "value_info")
        for tensor in graph.initializer:
            self.tensor(tensor, framed(graph, "initializer", tensor))
        for sparse in graph.sparse_initializer:
            self.sparse(sparse, framed(graph, "sparse_initializer", sparse))
        for node in graph.node:
            self.node(node, framed(graph, "node", node), nodes, names)

    def function(self, function: onnx.FunctionProto) -> None:
        own = ("doc_string", "metadata_props", "value_info", "node", "attribute_proto")
        self.nbytes[FUNCTIONS] += function.ByteSize() - taken(function, *own)
        self.nbytes[METADATA] += taken(function, "doc_string", "metadata_props")
        self.nbytes[VALUES] += taken(function, "value_info")
        for node in function.node:
            self.node(node, framed(function, "node", node), FUNCTIONS, FUNCTIONS)
        for attribute in function.attribute_proto:
            self.nbytes[FUNCTIONS] += framed(function, "attribute_proto", attribute)
            self.attribute(attribute, FUNCTIONS, FUNCTIONS)

    def node(self, node: onnx.NodeProto, frame: int, nodes: str, names: str) -> None:
        self.nbytes[names] += taken(node, "input", "output", "name")
        self.nbytes[NODE_METADATA] += taken(node, "doc_string", "metadata_props")
        self.nbytes[nodes] += frame + taken(node, "op_type", "domain", "overload", "device_configurations")
        for attribute in node.attribute:
            self.nbytes[nodes] += framed(node, "attribute", attribute)
            self.attribute(attribute, nodes, names)
            is_constant = node.op_type == "Constant" and node.domain in ("", "ai.onnx")
            if (is_constant and attribute.name.startswith("value_")) or node.domain == "ai.onnx.ml":
                self.nbytes[nodes] -= listed_nbytes(attribute, is_constant)

    def attribute(self, a: onnx.AttributeProto, nodes: str, names: str) -> None:
        messages = ("t", "g", "sparse_tensor", "tensors", "graphs", "sparse_tensors")
        self.nbytes[nodes] += a.ByteSize() - taken(a, *messages)
        for field in messages:
            repeated = is_repeated(a.DESCRIPTOR.fields_by_name[field])
            for item in getattr(a, field) if repeated else [getattr(a, field)] * a.HasField(field):
                frame = framed(a, field, item)
                if field in ("g", "graphs"):
                    self.nbytes[FUNCTIONS if nodes == FUNCTIONS else HEADER] += frame
                    self.graph(item, nodes, names)
                elif field in ("t", "tensors"):
                    self.tensor(item, frame)
                else:
                    self.sparse(item, frame)

    def tensor(self, tensor: onnx.TensorProto, frame: int) -> None:
        self.nbytes[NAMES] += taken(tensor, "name")
        self.nbytes[TENSORS] += frame + tensor.ByteSize() - taken(tensor, "name") - payload_nbytes(tensor)

    def sparse(self, sparse: onnx.SparseTensorProto, frame: int) -> None:
        self.nbytes[TENSORS] += frame + taken(sparse, "dims")
        for field in ("values", "indices"):
            item = getattr(sparse, field)
            self.tensor(item, framed(sparse, field, item))


def payload_nbytes(tensor: onnx.TensorProto) -> int:
    """Return the bytes of the elements, without the key and length of their field (of each string's own field)."""
    texts = sum(map(len, tensor.string_data))
    lists = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "raw_data")
    return texts + sum(len_of(tensor, field) for field in lists)


def len_of(tensor: onnx.TensorProto, field: str) -> int:
    """Return the bytes of the content of one length-delimited field."""
    whole = taken(tensor, field)
    return next((n for n in range(whole, -1, -1) if 1 + max(1, (n.bit_length() + 6) // 7) + n == whole), 0)


def listed_nbytes(a: onnx.AttributeProto, is_constant: bool) -> int:
    def varints(numbers: Any) -> int:
        return sum(onnx.TensorProto(dims=[number]).ByteSize() - 1 for number in numbers)

    if is_constant and a.type in (onnx.AttributeProto.INT, onnx.AttributeProto.STRING):
        return varints([a.i]) if a.type == onnx.AttributeProto.INT else len(a.s)
    return 4 * len(a.floats) or varints(a.ints) or sum(map(len, a.strings))
