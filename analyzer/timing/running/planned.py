"""A file -> the graph that onnxruntime would run, with the type and shape of every value; in a separate process.

An ONNX file of that graph lacks the shapes at nodes that onnxruntime has inserted. The ORT format has all values, and
the index of each node, which gives their order.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from analyzer.process.child import read_frame, write_frame
from analyzer.read.described import Described, DescribedNode, DescribedTensor, DescribedValue, Dim, Optimizing

_TENSOR = 1
"""Kind of a type in onnxruntime's format."""

_SIZE, _AXIS = 1, 2
"""Kinds of sizes."""

_INTEGER = 2
"""Kind of an attribute, as in ONNX."""


def serve() -> None:
    """Answer one question from stdin, an `Optimizing`, with a `Described` or an error sentence."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries
    question = read_frame(sys.stdin.buffer)
    if question is None:
        return
    request = msgspec.json.decode(question, type=Optimizing)
    try:
        answer: Described | str = _describe(request)
    except Exception as error:  # noqa: BLE001  onnxruntime's exceptions have no common base class
        answer = f"{type(error).__name__}: {error}"
    write_frame(answers, msgspec.json.encode(answer))
    os._exit(0)


def _describe(request: Optimizing) -> Described:
    folder = Path(request.folder)
    _save(request, folder / "optimized.onnx")
    own = folder / "optimized.ort"
    _save(request, own)
    content = own.read_bytes()
    own.unlink()
    session = _class("InferenceSession").GetRootAsInferenceSession(bytearray(content), 0)
    return _read(session.Model().Graph())


@functools.cache
def _class(name: str) -> Any:
    """Return a class of the ORT format, without `onnxruntime.tools`, which imports PyTorch if that is installed."""
    import onnxruntime

    place = str(Path(onnxruntime.__file__).parent / "tools" / "ort_format_model")
    if place not in sys.path:
        sys.path.append(place)  # as that package does
    return getattr(importlib.import_module(f"ort_flatbuffers_py.fbs.{name}"), name)


def _save(request: Optimizing, path: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, request.level)
    options.optimized_model_filepath = str(path)
    if path.suffix == ".ort":
        options.add_session_config_entry("session.save_model_format", "ORT")
    else:
        name = f"{path.name}.data"
        Path(path.parent, name).symlink_to(os.devnull)
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", name)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_min_size_in_bytes", "1024"
        )
    onnxruntime.InferenceSession(request.path, options, providers=["CPUExecutionProvider"])


def _each(count: int, get: Callable[[int], Any]) -> Iterator[Any]:
    return (get(number) for number in range(count))


def _text(name: bytes | None) -> str:
    return (name or b"").decode("utf-8", "backslashreplace")


def _read(graph: Any) -> Described:
    tensors = {
        _text(each.Name()): DescribedTensor(int(each.DataType()), tuple(_each(each.DimsLength(), each.Dims)))
        for each in _each(graph.InitializersLength(), graph.Initializers)
    }
    values = {
        _text(each.Name()): _value(each.Type()) for each in _each(graph.NodeArgsLength(), graph.NodeArgs)
    }
    nodes = sorted(_each(graph.NodesLength(), graph.Nodes), key=lambda node: int(node.Index()))
    fed = [_text(name) for name in _each(graph.InputsLength(), graph.Inputs)]
    return Described(
        nodes=tuple(map(_node, nodes)),
        inputs={name: values.get(name, DescribedValue(0, None)) for name in fed if name not in tensors},
        outputs=tuple(_text(name) for name in _each(graph.OutputsLength(), graph.Outputs)),
        values=values,
        tensors=tensors,
    )


def _node(node: Any) -> DescribedNode:
    domain = _text(node.Domain())
    graphs = [each.G() for each in _each(node.AttributesLength(), node.Attributes) if each.G() is not None]
    return DescribedNode(
        op_type=_text(node.OpType()),
        domain="" if domain == "ai.onnx" else domain,
        name=_text(node.Name()),
        inputs=tuple(_text(name) for name in _each(node.InputsLength(), node.Inputs)),
        outputs=tuple(_text(name) for name in _each(node.OutputsLength(), node.Outputs)),
        implicit=tuple(_text(name) for name in _each(node.ImplicitInputsLength(), node.ImplicitInputs)),
        nested=sum(int(graph.NodesLength()) for graph in graphs),
        integers={
            _text(each.Name()): int(each.I())
            for each in _each(node.AttributesLength(), node.Attributes)
            if each.Type() == _INTEGER
        },
    )


def _value(typed: Any) -> DescribedValue:
    if typed is None:
        return DescribedValue(0, None)
    if typed.ValueType() != _TENSOR:
        return DescribedValue(0, None, is_tensor=False)
    tensor = _class("TensorTypeAndShape")()
    tensor.Init(typed.Value().Bytes, typed.Value().Pos)
    shape = tensor.Shape()
    dims = None if shape is None else tuple(_dim(each) for each in _each(shape.DimLength(), shape.Dim))
    return DescribedValue(int(tensor.ElemType()), dims)


def _dim(dim: Any) -> Dim:
    value = dim.Value()
    kind = None if value is None else value.DimType()
    if kind == _SIZE:
        return int(value.DimValue())
    return (_text(value.DimParam()) or None) if kind == _AXIS else None
