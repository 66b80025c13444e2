"""A file -> the types that onnx's own inference finds, in a process of its own, because files may crash it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Iterator

import msgspec
import onnx
from onnx import shape_inference

from analyzer.model.dtypes import DType
from analyzer.process.child import read_frame, write_frame
from analyzer.read.described import (
    Described,
    DescribedNode,
    DescribedTensor,
    DescribedValue,
    DescribeRequest,
    Dim,
    Sizes,
)
from analyzer.read.expanded import (
    expand_functions,
    expand_own,
    kernel_name,
    variadic_places,
    with_second_names,
)
from analyzer.read.sized import Sizer, constant_of

_KEPT = 1024
"""Most bytes of a stored tensor that inference keeps, because it may hold a shape."""

_TENSORS = ("tensor_type", "sparse_tensor_type")


def serve() -> None:
    """Answer requests on stdin: a `DescribeRequest` first, with `Described`; then sizes of axes, each with `Sizes`."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output that libraries print
    frame = read_frame(sys.stdin.buffer)
    if frame is None:
        return
    request = msgspec.json.decode(frame, type=DescribeRequest)
    model = _load(request.path)
    write_frame(answers, msgspec.json.encode(describe(model, request.halves, request.functions)))
    sizer = Sizer(model)
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        sizes = msgspec.json.decode(frame, type=dict[str, int])
        write_frame(
            answers,
            msgspec.json.encode(Sizes(sizer.types(sizes), sizer.refused)),
        )


def _load(path: str) -> onnx.ModelProto:
    """Load the model without its large tensors."""
    model = onnx.load(path, load_external_data=False)
    for graph in _graphs(model.graph):
        for tensor in graph.initializer:
            if tensor.data_location != onnx.TensorProto.EXTERNAL and tensor.ByteSize() > _KEPT:
                for field in (
                    "raw_data",
                    "float_data",
                    "int32_data",
                    "int64_data",
                    "double_data",
                    "uint64_data",
                ):
                    tensor.ClearField(field)
                tensor.data_location = onnx.TensorProto.EXTERNAL
                entry = tensor.external_data.add()
                entry.key, entry.value = "location", ""  # external data stays unread
    return model


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for nested in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from _graphs(nested)


def describe(
    model: onnx.ModelProto, halves: Collection[str] | None = None, functions: Collection[str] = ()
) -> Described:
    """Describe the main graph of a model, which is changed: its functions are expanded.

    Args:
        model: the model, without the contents of its large tensors.
        halves: kernels that take FLOAT16, without which an operator that is a function is expanded; None expands none.
        functions: operators without a kernel for any type.
    """
    expanded = expand_own(model)
    added = {} if halves is None else expand_functions(model, halves, functions)
    opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 1)
    graph = model.graph
    axis_names = frozenset(_axis_names(graph))
    extended = model if halves is None else with_second_names(model)
    inferred, why = _infer(extended)
    values = _values(inferred.graph, axis_names)
    for name, (dtype, dims) in Sizer(extended).types(None).items():
        known = values.get(name) or DescribedValue(dtype, None)
        dims_known = _merge_dims(known.dims, _drop_invented_names(dims, axis_names))
        values[name] = DescribedValue(known.dtype or dtype, dims_known, known.is_tensor)
    tensors = dict(_tensors(graph))
    nodes = sorted(graph.node, key=lambda node: added.get(node.output[0], -1) if node.output else -1)
    return Described(
        nodes=tuple(_node(node, opset) for node in nodes if not _is_constant(node)),
        inputs={
            value.name: values.get(value.name) or _value(value, axis_names)
            for value in graph.input
            if value.name not in tensors
        },
        outputs=tuple(value.name for value in graph.output),
        values=values,
        tensors=tensors,
        nested_nbytes=sum(map(_nested_nbytes, graph.node)),
        expanded=expanded,
        why=why,
    )


def _merge_dims(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """Combine two shapes: a number is better than a name."""
    if a is None or b is None or len(a) != len(b):
        return a if a is not None else b
    return tuple(
        y if x is None or (isinstance(y, int) and not isinstance(x, int)) else x
        for x, y in zip(a, b, strict=True)
    )


def _infer(model: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    try:
        return shape_inference.infer_shapes(model), ""
    except (shape_inference.InferenceError, ValueError, RuntimeError) as error:
        return model, str(error)


def _axis_names(graph: onnx.GraphProto) -> Iterator[str]:
    for value in (*graph.input, *graph.value_info, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                yield dim.dim_param


def _values(graph: onnx.GraphProto, axis_names: frozenset[str]) -> dict[str, DescribedValue]:
    return {
        value.name: _value(value, axis_names) for value in (*graph.input, *graph.value_info, *graph.output)
    }


def _value(value: onnx.ValueInfoProto, axis_names: frozenset[str]) -> DescribedValue:
    """Return the type of a value; axis names that inference invented become None, as onnxruntime does not know them."""
    kind = value.type.WhichOneof("value")
    if kind not in _TENSORS:  # if no kind is set, the file states only a name
        return DescribedValue(0, None, is_tensor=kind is None)
    typed = getattr(value.type, kind)
    if not typed.HasField("shape"):
        return DescribedValue(typed.elem_type, None)
    return DescribedValue(typed.elem_type, tuple(_dim(dim, axis_names) for dim in typed.shape.dim))


def _dim(dim: onnx.TensorShapeProto.Dimension, axis_names: frozenset[str]) -> Dim:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return str(dim.dim_param) if dim.dim_param in axis_names else None


def _drop_invented_names(dims: tuple[Dim, ...] | None, axis_names: frozenset[str]) -> tuple[Dim, ...] | None:
    if dims is None:
        return None
    return tuple(dim if isinstance(dim, int) or dim in axis_names else None for dim in dims)


def _tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, DescribedTensor]]:
    input_names = {value.name for value in graph.input}
    for tensor in graph.initializer:
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        yield (
            tensor.name,
            DescribedTensor(
                tensor.data_type,
                tuple(tensor.dims),
                is_external=bool(location),
                is_constant=tensor.name not in input_names,
            ),
        )
    for sparse in graph.sparse_initializer:
        yield sparse.values.name, DescribedTensor(sparse.values.data_type, tuple(sparse.dims))
    for node in graph.node:
        if _is_constant(node):
            constant = constant_of(node)
            yield (
                node.output[0],
                DescribedTensor(0, ())
                if constant is None
                else DescribedTensor(constant.data_type, tuple(constant.dims)),
            )


def _nested_nbytes(node: onnx.NodeProto) -> int:
    graphs = [
        inner
        for attribute in node.attribute
        for nested in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)
        for inner in _graphs(nested)
    ]
    stored = [tensor for graph in graphs for tensor in graph.initializer]
    stored += [
        attribute.t
        for graph in graphs
        for each in graph.node
        for attribute in each.attribute
        if attribute.HasField("t")
    ]
    return sum(DType.from_onnx(tensor.data_type).nbytes(math.prod(tensor.dims)) for tensor in stored)


def _is_constant(node: onnx.NodeProto) -> bool:
    """Whether onnxruntime turns the node into a stored tensor before anything else."""
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx") and len(node.output) == 1


def _node(node: onnx.NodeProto, opset: int) -> DescribedNode:
    nested = [
        graph
        for attribute in node.attribute
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)
    ]
    outer_names = dict.fromkeys(name for graph in nested for name in _outer(graph))
    return DescribedNode(
        op_type=node.op_type,
        domain="" if node.domain == "ai.onnx" else node.domain,
        name=node.name,
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        implicit=tuple(name for name in outer_names if name not in node.input),
        nested=sum(len(each.node) for graph in nested for each in _graphs(graph)),
        integers={each.name: each.i for each in node.attribute if each.type == onnx.AttributeProto.INT},
        kernel=kernel_name("" if node.domain == "ai.onnx" else node.domain, node.op_type, opset),
        variadic=variadic_places(node, opset),
    )


def _outer(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a nested graph reads from the graphs around it."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        inner = (
            name
            for attribute in node.attribute
            for nested in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)
            for name in _outer(nested)
        )
        yield from (name for name in (*node.input, *inner) if name and name not in own)
        own.update(node.output)
    yield from (value.name for value in graph.output if value.name not in own)
