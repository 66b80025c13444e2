"""An .onnx file -> the same graph with numbers as names and without metadata; weights stay in place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto
from onnx.external_data_helper import uses_external_data

__all__ = ["strip_names"]

_SMALL = 1024
"""Bytes below which a payload is written again; a larger one becomes a reference to the source file."""


class _Numbers:
    """Name -> number, in the order of first mention; "" stays an omitted input."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {"": ""}

    def __getitem__(self, name: str) -> str:
        return self._known.setdefault(name, str(len(self._known)))


def strip_names(source: Path, target: Path) -> None:
    """Write `target`, a header that refers to the payloads of `source`, which has to stay beside it.

    Values, nodes, graphs, axes and functions get numbers as names; metadata, doc strings, shapes of intermediate values
    and the producer are removed. The order of nodes and tensors stays.
    """
    model = onnx.load(source, load_external_data=False)
    _externalize(model, source)
    numbers = _Numbers()
    for graph in (model.graph, *(info.initialization for info in model.training_info)):
        _strip_graph(graph, numbers)
    for function in model.functions:
        _strip_function(function)
    for field in (
        "producer_name",
        "producer_version",
        "domain",
        "doc_string",
        "metadata_props",
        "model_version",
    ):
        model.ClearField(field)
    target.write_bytes(model.SerializeToString())


def _externalize(model: ModelProto, source: Path) -> None:
    """Make large payloads in the header external: references to their bytes in `source`."""
    from analyzer.read import read_model
    from analyzer.read.payload import FilePayload

    ranges = {
        tensor.name: tensor.payload.ranges
        for tensor in read_model(source).graphs[0].tensors
        if isinstance(tensor.payload, FilePayload) and tensor.extent is None
    }
    for tensor in model.graph.initializer:
        if uses_external_data(tensor) or len(tensor.raw_data) < _SMALL:
            continue
        ((offset, length),) = ranges[tensor.name]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", source.name), ("offset", str(offset)), ("length", str(length))):
            tensor.external_data.add(key=key, value=value)


def _strip_graph(graph: GraphProto, numbers: _Numbers) -> None:
    for field in ("value_info", "doc_string", "metadata_props"):
        graph.ClearField(field)
    graph.name = numbers[graph.name] or "0"
    for value in (*graph.input, *graph.output):
        value.name = numbers[value.name]
        for field in ("doc_string", "metadata_props"):
            value.ClearField(field)
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.dim_param = numbers[axis.dim_param]
    for tensor in graph.initializer:
        _strip_tensor(tensor, numbers)
    for sparse in graph.sparse_initializer:
        _strip_tensor(sparse.values, numbers)
    for annotation in graph.quantization_annotation:
        annotation.tensor_name = numbers[annotation.tensor_name]
        for item in annotation.quant_parameter_tensor_names:
            item.value = numbers[item.value]
    for node in graph.node:
        _strip_node(node, numbers)


def _strip_function(function: FunctionProto) -> None:
    """Strip the function's own values; its name is part of the operator set, and stays."""
    numbers = _Numbers()
    for names in (function.input, function.output):
        names[:] = [numbers[name] for name in names]
    for node in function.node:
        _strip_node(node, numbers)
    for field in ("value_info", "doc_string", "metadata_props"):
        function.ClearField(field)


def _strip_node(node: NodeProto, numbers: _Numbers) -> None:
    node.name = ""
    for names in (node.input, node.output):
        names[:] = [numbers[name] for name in names]
    for field in ("doc_string", "metadata_props"):
        node.ClearField(field)
    for attribute in node.attribute:
        attribute.ClearField("doc_string")
        for tensor in (*_tensors(attribute),):
            tensor.name = ""
            tensor.ClearField("doc_string")
        for graph in (attribute.g, *attribute.graphs) if attribute.type in _GRAPHS else ():
            _strip_graph(graph, numbers)


_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def _tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.type == AttributeProto.TENSOR:
        yield attribute.t
    yield from attribute.tensors


def _strip_tensor(tensor: TensorProto, numbers: _Numbers) -> None:
    tensor.name = numbers[tensor.name]
    for field in ("doc_string", "metadata_props"):
        tensor.ClearField(field)
