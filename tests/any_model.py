"""Random models with everything that the format allows, and their contents according to protobuf's own reader."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from models import NAME_SCOPES, external
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from analyzer.model import GraphPath
from analyzer.model.content import Array
from analyzer.model.dtypes import DType

__all__ = [
    "NUMERIC",
    "PACKED",
    "Artifact",
    "Expected",
    "any_model",
    "array_of",
    "expected_graphs",
    "stored_as",
]


@dataclass
class Artifact:
    """A model, and the files of its external data."""

    proto: onnx.ModelProto
    files: dict[str, bytes] = field(default_factory=dict)


PACKED = {
    DType.UINT4: 4,
    DType.INT4: 4,
    DType.FLOAT4E2M1: 4,
    DType.UINT2: 2,
    DType.INT2: 2,
}
NUMERIC = tuple(dtype for dtype in DType if dtype.bits)
ODD_NAMES = (
    "",
    "w",
    "layer.0.weight",
    "ü",
    "名前",
    "a b",
    "a/b",
    "w#2",
    "two\nlines",
    "\u202egpj",
    "If_0.then_branch",
)
LONG = "x" * 5000
"""A text that is too long to be passed to protobuf unchanged."""

names = st.one_of(
    st.sampled_from(ODD_NAMES),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)
docs = st.sampled_from(["", "", "", "a note", LONG])
shapes = st.lists(st.integers(0, 5), max_size=3)
integers = st.one_of(st.integers(-3, 300), st.sampled_from([2**31, -(2**31), 2**63 - 1, -(2**63)]))
floats = st.sampled_from([0.0, -0.0, 1.5, -2.25, 3e38])


# one tensor


def elements(dtype: DType, numel: int, seed: int) -> bytes:
    """Return little-endian elements, all of them finite numbers."""
    values = (np.arange(numel) * 7 + seed) % 31
    element = dtype.to_numpy()
    if element is None:
        codes = (values % (1 << dtype.bits)).astype(np.uint64)
        whole = sum(int(code) << (dtype.bits * i) for i, code in enumerate(codes))
        return whole.to_bytes(dtype.nbytes(numel), "little")
    return values.astype(element).tobytes()


def listed(proto: onnx.TensorProto) -> None:
    """Move a tensor's elements from `raw_data` to the list field of its type (onnx.proto, TensorProto)."""
    dtype, content = DType(proto.data_type), proto.raw_data
    proto.ClearField("raw_data")
    if dtype in (DType.FLOAT, DType.COMPLEX64):
        proto.float_data.extend(np.frombuffer(content, "<f4").tolist())
    elif dtype in (DType.DOUBLE, DType.COMPLEX128):
        proto.double_data.extend(np.frombuffer(content, "<f8").tolist())
    elif dtype is DType.INT64:
        proto.int64_data.extend(np.frombuffer(content, "<i8").tolist())
    elif dtype in (DType.UINT32, DType.UINT64):
        proto.uint64_data.extend(np.frombuffer(content, f"<u{dtype.bits // 8}").tolist())
    elif dtype in (DType.INT32, DType.INT16, DType.INT8):
        proto.int32_data.extend(np.frombuffer(content, f"<i{dtype.bits // 8}").tolist())
    else:
        proto.int32_data.extend(np.frombuffer(content, f"<u{max(1, dtype.bits // 8)}").tolist())


def stored_as(
    carrier: str, name: str, dtype: DType, shape: list[int], seed: int, outside: bytearray | None = None
) -> onnx.TensorProto:
    """Return a tensor stored as `raw`, `listed` or `external`, then at the end of `outside` ("w.bin")."""
    content = elements(dtype, int(np.prod(shape)), seed)
    if carrier == "external" and outside is not None:
        proto = external(name, shape, dtype, location="w.bin", offset=len(outside), length=len(content))
        outside += content
        return proto
    proto = TensorProto(name=name, dims=shape, data_type=dtype, raw_data=content)
    if carrier == "listed" and dtype.bits != 6:
        listed(proto)
    return proto


# whole models


@dataclass
class _Maker:
    """Draws the parts of one model."""

    draw: st.DrawFn
    outside: bytearray = field(default_factory=lambda: bytearray(b"begin"))
    count: int = 0

    def chosen(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def tensor(self, name: str = "") -> onnx.TensorProto:
        self.count += 1
        if self.chosen(False, False, False, True):
            texts = [text.encode() for text in self.draw(st.lists(names, max_size=3))]
            return TensorProto(name=name, dims=[len(texts)], data_type=DType.STRING, string_data=texts)
        dtype = self.draw(st.sampled_from(NUMERIC))
        shape = self.draw(shapes)
        if self.chosen(*[False] * 8, True):
            shape = [3000]
        carrier = self.chosen("raw", "raw", "listed", "external")
        proto = stored_as(carrier, name, dtype, shape, self.count, self.outside)
        proto.doc_string = self.draw(docs)
        return proto

    def sparse(self, name: str = "") -> onnx.SparseTensorProto:
        self.count += 1
        dtype = self.chosen(DType.FLOAT, DType.INT64, DType.FLOAT16)
        values = stored_as(
            self.chosen("raw", "listed", "external"), name, dtype, [3], self.count, self.outside
        )
        at = stored_as(self.chosen("raw", "listed"), self.chosen("", "at"), DType.INT64, [3], 2)
        return onnx.SparseTensorProto(values=values, indices=at, dims=[40, 2])

    def values(self, count: int) -> list[onnx.ValueInfoProto]:
        made = []
        for _ in range(count):
            value = helper.make_tensor_value_info(self.draw(names), 1, ["n", 3])
            value.doc_string = self.draw(docs)
            self.notes(value)
            made.append(value)
        return made

    def notes(self, proto: Any) -> None:
        for key in self.draw(st.lists(st.sampled_from(["note", NAME_SCOPES]), max_size=2)):
            proto.metadata_props.add(key=key, value=self.chosen("['', 'enc']", "text", LONG[:500]))

    def attributes(self, depth: int) -> Iterator[AttributeProto]:
        for name in self.draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=3)):
            kind = self.chosen(
                "i", "f", "s", "ints", "floats", "strings", "t", "sparse", "ts", "g", "gs", "tp", "ref"
            )
            attribute = AttributeProto(name=name, doc_string=self.draw(docs))
            match kind:
                case "i":
                    attribute.i, attribute.type = self.draw(integers), AttributeProto.INT
                case "f":
                    attribute.f, attribute.type = self.draw(floats), AttributeProto.FLOAT
                case "s":
                    attribute.s, attribute.type = self.draw(names).encode(), AttributeProto.STRING
                case "ints":
                    attribute.ints.extend(self.numbers(integers))
                    attribute.type = AttributeProto.INTS
                case "floats":
                    attribute.floats.extend(self.numbers(floats))
                    attribute.type = AttributeProto.FLOATS
                case "strings":
                    attribute.strings.extend(text.encode() for text in self.draw(st.lists(names, max_size=3)))
                    attribute.type = AttributeProto.STRINGS
                case "t":
                    attribute.t.CopyFrom(self.tensor())
                    attribute.type = AttributeProto.TENSOR
                case "sparse":
                    attribute.sparse_tensor.CopyFrom(self.sparse())
                    attribute.type = AttributeProto.SPARSE_TENSOR
                case "ts":
                    attribute.tensors.extend([self.tensor(), self.tensor("named")])
                    attribute.sparse_tensors.append(self.sparse())
                    attribute.type = AttributeProto.TENSORS
                case "g" if depth:
                    attribute.g.CopyFrom(self.graph(depth - 1))
                    attribute.type = AttributeProto.GRAPH
                case "gs" if depth:
                    attribute.graphs.extend([self.graph(depth - 1), self.graph(0)])
                    attribute.type = AttributeProto.GRAPHS
                case "tp":
                    attribute.tp.CopyFrom(helper.make_tensor_type_proto(1, [2]))
                    attribute.type = AttributeProto.TYPE_PROTO
                case _:
                    attribute.ref_attr_name, attribute.type = "of_the_caller", AttributeProto.TENSOR
            yield attribute

    def numbers(self, one: st.SearchStrategy[Any]) -> list[Any]:
        found = self.draw(st.lists(one, max_size=4))
        return found * 800 if self.chosen(*[False] * 5, True) else found

    def constant(self) -> AttributeProto:
        """Return the attribute of a Constant node."""
        kind = self.chosen(
            "value", "value", "sparse_value", "value_ints", "value_floats", "value_string", "value_int"
        )
        match kind:
            case "value":
                return helper.make_attribute(kind, self.tensor("inner name"))
            case "sparse_value":
                return helper.make_attribute(kind, self.sparse())
            case "value_ints":
                return helper.make_attribute(kind, self.numbers(integers), attr_type=AttributeProto.INTS)
            case "value_floats":
                return helper.make_attribute(kind, self.numbers(floats), attr_type=AttributeProto.FLOATS)
            case "value_string":
                return helper.make_attribute(kind, self.draw(names))
            case _:
                return helper.make_attribute(kind, self.draw(integers))

    def node(self, depth: int) -> onnx.NodeProto:
        self.count += 1
        op = self.chosen("Constant", "If", "MatMul", "Scaler", "", "名前")
        node = helper.make_node(
            op,
            self.draw(st.lists(names, max_size=3)),
            [f"out{self.count}"],
            self.draw(names),
            self.draw(docs),
            "ai.onnx.ml" if op == "Scaler" else self.chosen("", "", "my"),
        )
        node.attribute.extend(self.attributes(depth))
        if op == "Constant" and not node.domain:
            node.attribute.append(self.constant())
        self.notes(node)
        return node

    def graph(self, depth: int) -> onnx.GraphProto:
        graph = onnx.GraphProto(name=self.draw(names), doc_string=self.draw(docs))
        graph.node.extend(self.node(depth) for _ in range(self.draw(st.integers(0, 3))))
        for name in self.draw(st.lists(names, max_size=3)):
            graph.initializer.append(self.tensor(name))
        for name in self.draw(st.lists(names, max_size=1)):
            graph.sparse_initializer.append(self.sparse(name))
        graph.input.extend(self.values(self.draw(st.integers(0, 2))))
        graph.output.extend(self.values(self.draw(st.integers(0, 1))))
        graph.value_info.extend(self.values(self.draw(st.integers(0, 2))))
        for name in self.draw(st.lists(names, max_size=1)):
            annotation = graph.quantization_annotation.add(tensor_name=name)
            annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
        self.notes(graph)
        return graph

    def function(self, index: int) -> onnx.FunctionProto:
        function = onnx.FunctionProto(
            name=f"f{index}", domain=self.chosen("my", ""), overload=self.chosen("", "half")
        )
        function.input.extend(["a"])
        function.output.extend(["b"])
        function.attribute.extend(["p"])
        function.node.extend(self.node(1) for _ in range(self.draw(st.integers(0, 2))))
        function.value_info.extend(self.values(1))
        function.doc_string = self.draw(docs)
        function.opset_import.add(domain="", version=18)
        if self.chosen(False, True):
            function.attribute_proto.append(helper.make_attribute("default", self.tensor()))
        self.notes(function)
        return function

    def model(self) -> onnx.ModelProto:
        model = onnx.ModelProto(ir_version=10, producer_name=self.draw(names), doc_string=self.draw(docs))
        model.opset_import.add(domain="", version=18)
        model.opset_import.add(domain="my", version=1)
        model.graph.CopyFrom(self.graph(2))
        model.functions.extend(self.function(i) for i in range(self.draw(st.integers(0, 2))))
        if self.chosen(False, False, True):
            info = model.training_info.add()
            info.algorithm.CopyFrom(self.graph(0))
            info.update_binding.add(key="w", value="v")
        self.notes(model)
        return model


@st.composite
def any_model(draw: st.DrawFn) -> Artifact:
    """Draw a model of any parts, valid or not, that protobuf can write."""
    maker = _Maker(draw)
    proto = maker.model()
    return Artifact(proto, {"w.bin": bytes(maker.outside)})


# contents of a model, by protobuf


@dataclass(frozen=True)
class Expected:
    """One stored tensor, according to protobuf's reader and onnx."""

    name: str
    carrier: str
    dtype: DType
    shape: tuple[int, ...]
    numel: int
    content: Array | None
    """Elements; None for strings, sparse tensors and six-bit elements, which the reader does not return."""


def array_of(proto: onnx.TensorProto, files: Mapping[str, bytes] | None = None) -> Array | None:
    """Return a tensor's elements by onnx's own reader; those of 2 and 4 bits as codes."""
    dtype = DType(proto.data_type)
    if not dtype.bits or dtype.bits == 6:
        return None
    inline = TensorProto()
    inline.CopyFrom(proto)
    if proto.data_location == TensorProto.EXTERNAL:
        entries = {entry.key: entry.value for entry in proto.external_data}
        offset, length = int(entries["offset"]), int(entries["length"])
        inline.ClearField("data_location")
        inline.ClearField("external_data")
        inline.raw_data = (files or {})[entries["location"]][offset : offset + length]
    if dtype in PACKED:  # as a list, because onnx 1.21 cannot read a scalar of 2 bits
        inline.dims[:] = [math.prod(proto.dims)]
        codes = numpy_helper.to_array(inline).view(np.uint8) & np.uint8((1 << dtype.bits) - 1)
        return codes.reshape(tuple(proto.dims))
    return numpy_helper.to_array(inline)


def expected_graphs(artifact: Artifact) -> dict[GraphPath, tuple[int, list[Expected]]]:
    """Return the number of nodes and the tensors of each graph, by its path."""
    found: dict[GraphPath, tuple[int, list[Expected]]] = {}
    _expect_graph(artifact, artifact.proto.graph, (), found)
    for index, info in enumerate(artifact.proto.training_info):
        for label in ("initialization", "algorithm"):
            _expect_graph(artifact, getattr(info, label), (f"training:{index}:{label}",), found)
    for function in artifact.proto.functions:
        overload = f":{function.overload}" if function.overload else ""
        path = (f"function:{function.domain}:{function.name}{overload}",)
        while path in found:
            path = (path[0] + "#",)
        tensors = [
            _dense(artifact, a.t, "attribute_tensor", f"{path[0]}.{a.name}") for a in function.attribute_proto
        ]
        found[path] = (len(function.node), tensors)
        _expect_nodes(artifact, function.node, path, found)
    return found


def _expect_graph(artifact: Artifact, graph: onnx.GraphProto, path: GraphPath, found: dict[Any, Any]) -> None:
    tensors = [_dense(artifact, t, "initializer", t.name) for t in graph.initializer]
    tensors += [_sparse(s, "sparse_initializer", s.values.name) for s in graph.sparse_initializer]
    found[path] = (len(graph.node), tensors)
    _expect_nodes(artifact, graph.node, path, found)


def _expect_nodes(artifact: Artifact, nodes: Any, path: GraphPath, found: dict[Any, Any]) -> None:
    for position, node in enumerate(nodes):
        is_constant = node.op_type == "Constant" and node.domain in ("", "ai.onnx")
        for attribute in node.attribute:
            path_name = f"{node.name or node.op_type}#{position}.{attribute.name}"
            name = node.output[0] if is_constant and node.output else path_name
            found[path][1].extend(_expect_attribute(artifact, node, attribute, name, is_constant))
            stem = f"{node.op_type}_{position}.{attribute.name}"
            if attribute.HasField("g"):
                _expect_graph(artifact, attribute.g, (*path, stem), found)
            for index, graph in enumerate(attribute.graphs):
                _expect_graph(artifact, graph, (*path, f"{stem}[{index}]"), found)


def _expect_attribute(
    artifact: Artifact, node: onnx.NodeProto, a: AttributeProto, name: str, is_constant: bool
) -> Iterator[Expected]:
    if is_constant and a.name.startswith("value_"):
        one = a.type in (AttributeProto.INT, AttributeProto.STRING)
        values = [helper.get_attribute_value(a)] if one else list(helper.get_attribute_value(a))
        yield _listed("constant_list", name, a, values, () if one else (len(values),))
    elif node.domain == "ai.onnx.ml" and (a.floats or a.ints or a.strings):
        values = list(a.floats or a.ints or a.strings)
        yield _listed("attribute_list", name, a, values, (len(values),))
    if a.HasField("t"):
        yield _dense(artifact, a.t, "constant" if is_constant else "attribute_tensor", name)
    if a.HasField("sparse_tensor"):
        yield _sparse(a.sparse_tensor, "sparse_constant" if is_constant else "attribute_tensor", name)
    for index, tensor in enumerate(a.tensors):
        yield _dense(artifact, tensor, "attribute_tensor", f"{name}[{index}]")
    for index, sparse in enumerate(a.sparse_tensors):
        yield _sparse(sparse, "attribute_tensor", f"{name}[{index}]")


def _dense(artifact: Artifact, proto: onnx.TensorProto, carrier: str, name: str) -> Expected:
    shape = tuple(proto.dims)
    content = array_of(proto, artifact.files)
    return Expected(name, carrier, DType(proto.data_type), shape, int(np.prod(shape)), content)


def _sparse(proto: onnx.SparseTensorProto, carrier: str, name: str) -> Expected:
    numel = int(np.prod(proto.values.dims))
    return Expected(name, carrier, DType(proto.values.data_type), tuple(proto.dims), numel, None)


def _listed(
    carrier: str, name: str, a: AttributeProto, values: list[Any], shape: tuple[int, ...]
) -> Expected:
    if a.type in (AttributeProto.STRING, AttributeProto.STRINGS):
        return Expected(name, carrier, DType.STRING, shape, len(values), None)
    dtype = DType.FLOAT if a.type == AttributeProto.FLOATS else DType.INT64
    return Expected(name, carrier, dtype, shape, len(values), np.array(values, dtype.to_numpy()))
