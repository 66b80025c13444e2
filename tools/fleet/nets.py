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
        at = f"encoder.layer.{block}"
        shapes |= {
            f"{at}.attention.{part}.weight": (width, width) for part in ("query", "key", "value", "out")
        }
        shapes |= {
            f"{at}.attention.out.bias": (width,),
            f"{at}.norm.weight": (width,),
            f"{at}.norm.bias": (width,),
        }
        shapes |= {f"{at}.up.weight": (width, 4 * width), f"{at}.up.bias": (4 * width,)}
        shapes |= {f"{at}.down.weight": (4 * width, width), f"{at}.down.bias": (width,)}
    shapes |= {"head.weight": (width, 10), "head.bias": (10,)}
    return {name: random.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}


def build(values: Mapping[str, Any], *, wraps: Mapping[str, Any] | None = None) -> onnx.ModelProto:
    """Return the network with these weights.

    Args:
            values: weights as `draw` returns them, in any float type.
            wraps: codes and scales of some of the weights, which a DequantizeLinear decodes.
    """
    graph = _Graph(values, dict(wraps or {}))
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
    ends = [
        helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["batch", "sequence"]),
        helper.make_tensor_value_info("logits", kind, ["batch", "sequence", 10]),
    ]
    made = helper.make_graph(graph.nodes, "main", ends[:1], ends[1:], graph.tensors)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(made, opset_imports=opsets, ir_version=9, producer_name="fleet")


class _Graph:
    """Nodes and tensors so far."""

    def __init__(self, values: Mapping[str, Any], wraps: dict[str, Any]) -> None:
        self.values, self.wraps = values, wraps
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
        if name not in self.wraps:
            self.tensors.append(numpy_helper.from_array(self.values[name], name))
            return name
        codes, scale = self.wraps[name]
        self.tensors.append(numpy_helper.from_array(codes, f"{name}_quantized"))
        self.tensors.append(numpy_helper.from_array(scale, f"{name}_scale"))
        return self.node("DequantizeLinear", f"{name}_quantized", f"{name}_scale", axis=1)

    def block(self, flow: str, at: str, width: int) -> str:
        heads = {
            part: self.node(
                "MatMul", flow, self.weight(f"{at}.attention.{part}.weight"), scope=f"{at}.attention"
            )
            for part in ("query", "key", "value")
        }
        turned = self.node("Transpose", heads["key"], scope=f"{at}.attention", perm=[0, 2, 1])
        scores = self.node("MatMul", heads["query"], turned, scope=f"{at}.attention")
        mixed = self.node(
            "MatMul", self.node("Softmax", scores, axis=-1), heads["value"], scope=f"{at}.attention"
        )
        out = self.node("MatMul", mixed, self.weight(f"{at}.attention.out.weight"), scope=f"{at}.attention")
        out = self.node("Add", out, self.weight(f"{at}.attention.out.bias"), scope=f"{at}.attention")
        flow = self.node("Add", flow, out, scope=at)
        norm = self.node(
            "LayerNormalization",
            flow,
            self.weight(f"{at}.norm.weight"),
            self.weight(f"{at}.norm.bias"),
            scope=at,
        )
        up = self.node("MatMul", norm, self.weight(f"{at}.up.weight"), scope=at)
        up = self.node("Relu", self.node("Add", up, self.weight(f"{at}.up.bias"), scope=at), scope=at)
        down = self.node("MatMul", up, self.weight(f"{at}.down.weight"), scope=at)
        return self.node("Add", down, self.weight(f"{at}.down.bias"), scope=at)
