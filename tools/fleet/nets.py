"""A number -> a small network with its own weights, with the names that exporters give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

__all__ = ["Values", "build", "draw"]

Floats = npt.NDArray[np.float32]
Values = Mapping[str, Floats]


def draw(number: int) -> dict[str, Floats]:
    """Draw the weights of a network: an embedding, two to five blocks of attention and two layers, and a head."""
    random = np.random.default_rng(number)
    width, blocks, words = int(random.choice([16, 24, 32])), int(random.integers(2, 6)), 100 + number % 50
    shapes: dict[str, tuple[int, ...]] = {"embeddings.word.weight": (words, width)}
    for block in range(blocks):
        prefix = f"encoder.layer.{block}"
        shapes |= {
            f"{prefix}.attention.{part}.weight": (width, width) for part in ("query", "key", "value", "out")
        }
        shapes |= {
            f"{prefix}.attention.out.bias": (width,),
            f"{prefix}.norm.weight": (width,),
            f"{prefix}.norm.bias": (width,),
        }
        shapes |= {f"{prefix}.up.weight": (width, 4 * width), f"{prefix}.up.bias": (4 * width,)}
        shapes |= {f"{prefix}.down.weight": (4 * width, width), f"{prefix}.down.bias": (width,)}
    shapes |= {"head.weight": (width, 10), "head.bias": (10,)}
    return {name: random.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}


def build(values: Mapping[str, Any], *, quantized: Mapping[str, Any] | None = None) -> onnx.ModelProto:
    """Return the network with these weights.

    Args:
            values: weights as `draw` returns them, in any float type.
            quantized: codes and scales of some of the weights, which a DequantizeLinear decodes.
    """
    graph = _Graph(values, dict(quantized or {}))
    width = values["embeddings.word.weight"].shape[1]
    flow = graph.node("Gather", graph.weight("embeddings.word.weight"), "input_ids")
    block = 0
    while f"encoder.layer.{block}.norm.weight" in values:
        flow = graph.block(flow, f"encoder.layer.{block}", width)
        block += 1
    flow = graph.node("MatMul", flow, graph.weight("head.weight"))
    graph.nodes.append(
        helper.make_node("Add", [flow, graph.weight("head.bias")], ["logits"], name="/head/Add")
    )
    kind = helper.np_dtype_to_tensor_dtype(values["head.weight"].dtype)
    signature = [
        helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["batch", "sequence"]),
        helper.make_tensor_value_info("logits", kind, ["batch", "sequence", 10]),
    ]
    made = helper.make_graph(graph.nodes, "main", signature[:1], signature[1:], graph.tensors)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(made, opset_imports=opsets, ir_version=9, producer_name="fleet")


class _Graph:
    """Nodes and tensors so far."""

    def __init__(self, values: Mapping[str, Any], quantized: dict[str, Any]) -> None:
        self.values, self.quantized = values, quantized
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def node(self, op_type: str, *inputs: str, scope: str = "", **attributes: Any) -> str:
        name = f"/{scope.replace('.', '/')}/{op_type}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op_type, list(inputs), [f"{name}_output_0"], name=name, **attributes)
        )
        return f"{name}_output_0"

    def weight(self, name: str) -> str:
        """Return the value of a weight, decoded if it is stored as codes."""
        if name not in self.quantized:
            self.tensors.append(numpy_helper.from_array(self.values[name], name))
            return name
        codes, scale = self.quantized[name]
        self.tensors.append(numpy_helper.from_array(codes, f"{name}_quantized"))
        self.tensors.append(numpy_helper.from_array(scale, f"{name}_scale"))
        return self.node("DequantizeLinear", f"{name}_quantized", f"{name}_scale", axis=1)

    def block(self, flow: str, prefix: str, width: int) -> str:
        heads = {
            part: self.node(
                "MatMul", flow, self.weight(f"{prefix}.attention.{part}.weight"), scope=f"{prefix}.attention"
            )
            for part in ("query", "key", "value")
        }
        transposed = self.node("Transpose", heads["key"], scope=f"{prefix}.attention", perm=[0, 2, 1])
        scores = self.node("MatMul", heads["query"], transposed, scope=f"{prefix}.attention")
        mixed = self.node(
            "MatMul", self.node("Softmax", scores, axis=-1), heads["value"], scope=f"{prefix}.attention"
        )
        out = self.node(
            "MatMul", mixed, self.weight(f"{prefix}.attention.out.weight"), scope=f"{prefix}.attention"
        )
        out = self.node("Add", out, self.weight(f"{prefix}.attention.out.bias"), scope=f"{prefix}.attention")
        flow = self.node("Add", flow, out, scope=prefix)
        norm = self.node(
            "LayerNormalization",
            flow,
            self.weight(f"{prefix}.norm.weight"),
            self.weight(f"{prefix}.norm.bias"),
            scope=prefix,
        )
        up = self.node("MatMul", norm, self.weight(f"{prefix}.up.weight"), scope=prefix)
        up = self.node(
            "Relu", self.node("Add", up, self.weight(f"{prefix}.up.bias"), scope=prefix), scope=prefix
        )
        down = self.node("MatMul", up, self.weight(f"{prefix}.down.weight"), scope=prefix)
        return self.node("Add", down, self.weight(f"{prefix}.down.bias"), scope=prefix)
