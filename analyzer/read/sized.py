"""A model and the sizes of its axes -> the shapes of its values: node by node, computing what is computed of shapes.

Only for a process of its own: operators of a file run here, if their inputs are known and small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import defs, numpy_helper, shape_inference

from analyzer.read.contributed import RUNTIME_ONLY, contributed_dims, quantized
from analyzer.read.described import Dim

__all__ = ["Sizer"]

Dims = tuple[Dim, ...]
Typed = tuple[int, Dims]
"""An element type and a shape."""

_SMALL = 1 << 14
"""Elements up to which a value is computed."""

_NEVER = frozenset(
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
"""Operators that are not run for their values."""

_BROADCAST = frozenset({"Add", "And", "Div", "Equal", "Gemm", "MatMul", "Mul", "Or", "Pow", "Sub", "Where"})
"""Operators whose inputs have to fit each other."""

_FOLLOWED = frozenset(
    {
        "Add",
        "Cast",
        "Concat",
        "Div",
        "Gather",
        "Identity",
        "Mul",
        "Size",
        "Slice",
        "Squeeze",
        "Sub",
        "Unsqueeze",
    }
)
"""Operators through which onnxruntime follows the values of shapes."""


@dataclass(slots=True)
class Sizer:
    """A model whose large tensors are left out; its small ones are decoded once."""

    model: onnx.ModelProto
    stored: dict[str, np.ndarray[Any, Any]] = field(init=False)
    typed: dict[str, Typed] = field(init=False)
    opsets: dict[str, int] = field(init=False)
    stated: dict[str, Dims] = field(init=False)
    refused: str = ""
    """The first node whose inputs did not fit each other when types were last asked for."""

    def __post_init__(self) -> None:
        graph = self.model.graph
        self.stored, self.typed = {}, {}
        self.opsets = {each.domain.replace("ai.onnx", ""): each.version for each in self.model.opset_import}
        for tensor in graph.initializer:
            self.typed[tensor.name] = (tensor.data_type, tuple(tensor.dims))
            if math.prod(tensor.dims) <= _SMALL and tensor.data_location != onnx.TensorProto.EXTERNAL:
                with suppress(ValueError, TypeError):  # without its values, or with fewer than its shape has
                    self.stored[tensor.name] = numpy_helper.to_array(tensor)
        self.stated = {
            value.name: tuple(
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
                for dim in value.type.tensor_type.shape.dim
            )
            for value in (*graph.value_info, *graph.output)
            if value.type.tensor_type.HasField("shape")
        }

    def types(self, sizes: Mapping[str, int] | None) -> dict[str, Typed]:
        """Return the type of every value where the axes have these sizes, with 0 for an element that is not known.

        Without sizes, as onnxruntime knows it before it runs: axes keep their names, and of values only those that it
        follows through operators on shapes are known.
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
            run.take(node)
        return run.typed


@dataclass
class _Run:
    of: Sizer
    sizes: Mapping[str, int] | None
    values: dict[str, np.ndarray[Any, Any]]
    typed: dict[str, Typed]
    pieces: dict[str, Typed] = field(default_factory=dict)
    """What sequences hold, if all of it is alike."""

    @cached_property
    def imports(self) -> list[onnx.OperatorSetIdProto]:
        return list(self.of.model.opset_import) or [onnx.helper.make_opsetid("", 1)]

    def size(self, axis: str) -> Dim:
        """The size of an axis, or its name where no sizes are asked for."""
        return (axis or None) if self.sizes is None else self.sizes.get(axis)

    def take(self, node: onnx.NodeProto) -> None:
        """Enter the outputs of a node."""
        if node.op_type == "SplitToSequence":
            self._split(node)
        for name, typed in self._infer(node).items():
            if name:
                self.typed[name] = typed
        if not any(name in self.typed for name in node.output) and self._is_refused(node):
            self.of.refused = self.of.refused or node.name or node.op_type
            return
        for name in filter(None, node.output):
            self._restate(name)
        self._compute(node)

    def _is_refused(self, node: onnx.NodeProto) -> bool:
        """Whether nothing follows from inputs of which all is known: their shapes contradict each other."""
        if self.sizes is None or node.domain not in ("", "ai.onnx") or node.op_type not in _BROADCAST:
            return False
        types = [self.typed.get(name, (0, (None,))) for name in node.input if name]
        return all(kind and all(isinstance(dim, int) for dim in dims) for kind, dims in types)

    def _restate(self, name: str) -> None:
        """What the file says of a value, where inference says nothing."""
        stated = self.of.stated.get(name)
        if stated is None:
            return
        known = tuple(self.size(dim) if isinstance(dim, str) else dim for dim in stated)
        kind, dims = self.typed.get(name, (0, known))
        if len(dims) == len(known):
            self.typed[name] = (
                kind,
                tuple(a if a is not None else b for a, b in zip(dims, known, strict=True)),
            )

    def _infer(self, node: onnx.NodeProto) -> dict[str, Typed]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        shapes = [self.typed.get(name) for name in node.input]
        if domain or node.op_type in RUNTIME_ONLY:
            return dict(zip(node.output, contributed_dims(node, shapes), strict=False))
        if node.op_type == "Shape" and shapes[0] is not None:
            return {node.output[0]: (onnx.TensorProto.INT64, (self._span(node, len(shapes[0][1])),))}
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and shapes[0] is not None:
            return quantized(node, shapes)
        if node.op_type == "SequenceAt" and node.input[0] in self.pieces:
            return {node.output[0]: self.pieces[node.input[0]]}
        try:
            schema = defs.get_schema(node.op_type, self.of.opsets.get("", 1), "")
            types = {name: _type(self.typed[name]) for name in node.input if name in self.typed}
            data = {
                name: numpy_helper.from_array(self.values[name], name)
                for name in node.input
                if name in self.values
            }
            made = shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=self.imports)
        except Exception:  # noqa: BLE001 - of a node that is wrong nothing is known, whatever says so
            return {}
        found = {name: _typed(proto) for name, proto in made.items() if proto.tensor_type.HasField("shape")}
        if node.op_type == "Dropout" and len(node.output) > 1 and shapes[0] is not None:
            found.setdefault(node.output[1], (onnx.TensorProto.BOOL, shapes[0][1]))  # the mask
        return found

    def _split(self, node: onnx.NodeProto) -> None:
        """A tensor in pieces of one size."""
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

    def _compute(self, node: onnx.NodeProto) -> None:
        """Its values, where all that it reads is known and what it makes is small."""
        first = node.output[0] if node.output else ""
        typed = self.typed.get(first)
        if node.domain not in ("", "ai.onnx") or typed is None:
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
        if any(name and name not in self.values for name in node.input) or node.op_type in _NEVER:
            return
        if self.sizes is None and node.op_type not in _FOLLOWED:
            return
        if (
            not all(isinstance(dim, int) for dim in typed[1])
            or math.prod(dim for dim in typed[1] if isinstance(dim, int)) > _SMALL
        ):
            return
        self._run(node, first)

    def _run(self, node: onnx.NodeProto, first: str) -> None:
        from onnx.reference import ReferenceEvaluator

        given = {name: self.values[name] for name in node.input if name}
        try:
            outputs: Any = ReferenceEvaluator(self._model_of(node, given)).run(None, given)
        except Exception:  # noqa: BLE001 - of a node that is wrong nothing is known, whatever says so
            return
        for name, made in zip(node.output, outputs, strict=False):
            if name and isinstance(made, np.ndarray | np.generic):
                array = np.asarray(made)
                self.values[name] = array
                kind = self.typed[name][0] if name in self.typed else 0
                self.typed[name] = (kind or self.typed[first][0], tuple(array.shape))

    def _model_of(self, node: onnx.NodeProto, given: Mapping[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
        """A node alone, in its version, which an evaluator of a node would not heed."""
        helper = onnx.helper
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in given.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        version = self.of.opsets.get("", 1)
        graph = helper.make_graph([node], "node", inputs, outputs)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])


def _type(typed: Typed) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    proto.tensor_type.elem_type = typed[0]
    proto.tensor_type.shape.SetInParent()
    for dim in typed[1]:
        made = proto.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            made.dim_value = dim
        elif dim:
            made.dim_param = dim
    return proto


def _typed(proto: onnx.TypeProto) -> Typed:
    dims: Sequence[Dim] = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in proto.tensor_type.shape.dim
    ]
    return proto.tensor_type.elem_type, tuple(dims)
