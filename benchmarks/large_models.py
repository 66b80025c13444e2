"""Make the files to measure: `python benchmarks/large_models.py NAME FOLDER` writes NAME.onnx, then NAME.txt.

NAME.txt is one line with a description of the file and its number of parameters in PyTorch. Large files are written as
protobuf by hand, a field at a time, so that making 6 GB takes no more memory than making 6 MB. Weights are cut from one
block of random values, each tensor from another place, so that no two are equal.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

Carrier = Literal["embedded", "external", "constant"]
Pieces = list[bytes | memoryview]

BLOCK = memoryview(np.random.default_rng(0).standard_normal(2**22, dtype=np.float32).tobytes())  # 16 MiB


@dataclass(frozen=True)
class Transformer:
    """A decoder with GPT-2's tensors and nodes, a tied head included, and the way its weights are stored."""

    layers: int
    width: int
    vocabulary: int = 50257
    positions: int = 1024
    carrier: Carrier = "embedded"


TRANSFORMERS = {
    "tiny": Transformer(1, 64, 100, 16),
    "2gb": Transformer(23, 1280, positions=4096),  # 2.09 GB: one layer more is over protobuf's 2 GiB
    "3gb": Transformer(37, 1280, positions=4096),
    "6gb": Transformer(48, 1600, carrier="external"),  # GPT-2 XL
    "constants": Transformer(12, 768, 30522, 512, carrier="constant"),  # BERT's size
}
BERT_SIZED = Transformer(12, 768, 30522, 512)
CHAIN_NODES = 100_000
LENGTH = 8  # tokens of the input


@dataclass
class Graph:
    """Nodes with the legacy exporter's names, and weights as names and shapes."""

    nodes: list[NodeProto] = field(default_factory=list)
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def weight(self, name: str, *shape: int) -> str:
        self.weights[name] = shape
        return name

    def constant(self, name: str, *values: float) -> str:
        array = np.array(values) if len(values) > 1 else np.array(values[0], np.float32)
        node = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
        self.nodes.append(node)
        return name

    def node(self, path: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        """Append the node that `path` ends with, as in `/transformer/h.0/ln_1/LayerNormalization`."""
        names = [f"{path}_output_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(path.rpartition("/")[2], inputs, names, path, **attributes))
        return names


def transformer_graph(shape: Transformer) -> tuple[Graph, str]:
    """Return the graph and the name of its output."""
    graph, width = Graph(), shape.width
    split = graph.constant("split_heads", 1, LENGTH, width // 64, 64)
    join = graph.constant("join_heads", 1, LENGTH, width)
    scale = graph.constant("scale", 64**-0.5)
    places = graph.constant("position_ids", *range(LENGTH))
    wte = graph.weight("transformer.wte.weight", shape.vocabulary, width)
    wpe = graph.weight("transformer.wpe.weight", shape.positions, width)
    [words] = graph.node("/transformer/wte/Gather", wte, "input_ids")
    [order] = graph.node("/transformer/wpe/Gather", wpe, places)
    [hidden] = graph.node("/transformer/Add", words, order)

    def norm(path: str, value: str) -> str:
        scope = path[1:].replace("/", ".")
        scales = [graph.weight(f"{scope}.{kind}", width) for kind in ("weight", "bias")]
        [out] = graph.node(f"{path}/LayerNormalization", value, *scales)
        return out

    def linear(path: str, value: str, rows: int, columns: int) -> str:
        scope = path[1:].replace("/", ".")
        [out] = graph.node(f"{path}/MatMul", value, graph.weight(f"{scope}.weight", rows, columns))
        [out] = graph.node(f"{path}/Add", out, graph.weight(f"{scope}.bias", columns))
        return out

    for layer in range(shape.layers):
        path = f"/transformer/h.{layer}"
        packed = linear(f"{path}/attn/c_attn", norm(f"{path}/ln_1", hidden), width, 3 * width)
        heads = graph.node(f"{path}/attn/Split", packed, outputs=3, axis=2, num_outputs=3)
        for index, perm in enumerate(([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])):  # query, key, value
            [out] = graph.node(f"{path}/attn/{index}/Reshape", heads[index], split)
            [heads[index]] = graph.node(f"{path}/attn/{index}/Transpose", out, perm=perm)
        [out] = graph.node(f"{path}/attn/scores/MatMul", heads[0], heads[1])
        [out] = graph.node(f"{path}/attn/Mul", out, scale)
        [out] = graph.node(f"{path}/attn/Softmax", out, axis=-1)
        [out] = graph.node(f"{path}/attn/context/MatMul", out, heads[2])
        [out] = graph.node(f"{path}/attn/Transpose", out, perm=[0, 2, 1, 3])
        [out] = graph.node(f"{path}/attn/Reshape", out, join)
        [hidden] = graph.node(f"{path}/Add", linear(f"{path}/attn/c_proj", out, width, width), hidden)
        out = linear(f"{path}/mlp/c_fc", norm(f"{path}/ln_2", hidden), width, 4 * width)
        [out] = graph.node(f"{path}/mlp/act/Gelu", out, approximate="tanh")
        [hidden] = graph.node(f"{path}/mlp/Add", linear(f"{path}/mlp/c_proj", out, 4 * width, width), hidden)

    [tied] = graph.node("/lm_head/Transpose", wte, perm=[1, 0])
    [logits] = graph.node("/lm_head/MatMul", norm("/transformer/ln_f", hidden), tied)
    return graph, logits


def write_transformer(shape: Transformer, path: Path) -> str:
    graph, logits = transformer_graph(shape)
    parameters = sum(map(prod, graph.weights.values()))
    if shutil.disk_usage(path.parent).free < 2 * 4 * parameters:
        raise SystemExit(f"{path.parent}: the disk has no room for twice {4 * parameters / 1e9:.1f} GB")
    stored: Pieces = []
    data: Pieces = []
    offset = 0
    for index, (name, dims) in enumerate(graph.weights.items()):
        nbytes = 4 * prod(dims)
        tensor = TensorProto(name=name, dims=dims, data_type=TensorProto.FLOAT)
        if shape.carrier == "external":
            tensor.data_location = TensorProto.EXTERNAL
            where = {"location": f"{path.name}.data", "offset": offset, "length": nbytes}
            for key, value in where.items():
                tensor.external_data.add(key=key, value=str(value))
            stored += enclose(GraphProto.INITIALIZER_FIELD_NUMBER, [tensor.SerializeToString()])
            data += payload(index, nbytes)
            offset += nbytes
            continue
        raw = enclose(TensorProto.RAW_DATA_FIELD_NUMBER, payload(index, nbytes))
        whole: Pieces = [tensor.SerializeToString(), *raw]
        stored += (
            constant_node(name, whole)
            if shape.carrier == "constant"
            else enclose(GraphProto.INITIALIZER_FIELD_NUMBER, whole)
        )
    rest = GraphProto(name="transformer", node=graph.nodes)
    rest.input.append(helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, LENGTH]))
    rest.output.append(
        helper.make_tensor_value_info(logits, TensorProto.FLOAT, [1, LENGTH, shape.vocabulary])
    )
    head = ModelProto(ir_version=10, producer_name="benchmark", opset_import=[helper.make_opsetid("", 20)])
    if data:
        with Path(f"{path}.data").open("wb") as file:
            file.writelines(data)
    with path.open("wb") as file:
        # The fields of a message may come in any order and in parts: stored tensors, then the rest of the graph.
        file.write(head.SerializeToString())
        file.writelines(enclose(ModelProto.GRAPH_FIELD_NUMBER, [*stored, rest.SerializeToString()]))
    where = {"embedded": "in one piece", "external": "external data", "constant": "all in Constant nodes"}
    return (
        f"a transformer of {shape.layers} layers, width {shape.width:,}, {4 * parameters / 1e9:.2f} GB, "
        f"{where[shape.carrier]}: {parameters:,} parameters"
    )


def constant_node(name: str, tensor: Pieces) -> Pieces:
    attribute = AttributeProto(name="value", type=AttributeProto.TENSOR).SerializeToString()
    value = enclose(
        NodeProto.ATTRIBUTE_FIELD_NUMBER, [attribute, *enclose(AttributeProto.T_FIELD_NUMBER, tensor)]
    )
    node = NodeProto(op_type="Constant", output=[name]).SerializeToString()
    return enclose(GraphProto.NODE_FIELD_NUMBER, [node, *value])


def payload(index: int, nbytes: int) -> Pieces:
    """Return slices of the block with `nbytes` bytes together, from another place for each tensor."""
    start = index * 4_000_012 % len(BLOCK)
    pieces: Pieces = []
    while nbytes:
        pieces.append(BLOCK[start : start + nbytes])
        nbytes -= len(pieces[-1])
        start = 0
    return pieces


def enclose(number: int, pieces: Pieces) -> Pieces:
    """Return the pieces as one length-delimited field of a protobuf message."""
    return [varint(number << 3 | 2) + varint(sum(map(len, pieces))), *pieces]


def varint(value: int) -> bytes:
    digits = []
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def write_chain(path: Path, every: int, in_scope: int) -> str:
    """Write a chain in which one node of `every` multiplies by its own 4 x 4 weight; `in_scope` nodes share a scope."""
    random, nodes, weights, value = np.random.default_rng(0), [], [], "x"
    for index in range(CHAIN_NODES):
        scope = f"layer.{index // in_scope}" + (f".block.{index % in_scope}" if in_scope > 1 else "")
        op_type, inputs = "Relu", [value]
        if index % every == 0:
            array = random.standard_normal((4, 4), dtype=np.float32)
            weights.append(numpy_helper.from_array(array, f"{scope}.weight"))
            op_type, inputs = "MatMul", [value, f"{scope}.weight"]
        value = f"v{index}"
        nodes.append(helper.make_node(op_type, inputs, [value], f"/{scope}/{op_type}"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), path)
    return f"{len(nodes):,} nodes, {len(weights):,} weights of 4 x 4: {16 * len(weights):,} parameters"


def write_bert(path: Path) -> str:
    """Write BERT-base as `onnxledger export` does, in one piece; without torch, a transformer of its size."""
    if not (find_spec("torch") and find_spec("transformers")):
        return f"no torch here, so not BERT but {write_transformer(BERT_SIZED, path)}"
    folder = path.with_suffix(".export")
    export = ["export", "bert-base-uncased", "--class", "AutoModel", "--random-weights", "-o", str(folder)]
    subprocess.run([sys.executable, "-m", "analyzer", *export], check=True, stdout=subprocess.DEVNULL)
    onnx.save(onnx.load(folder / "model.onnx"), path)
    manifest = json.loads((folder / "manifest.json").read_text())
    shutil.rmtree(folder)
    parameters = sum(prod(parameter["shape"]) for parameter in manifest["parameters"])
    return f"BERT-base, today's export, {path.stat().st_size / 1e9:.2f} GB, in one piece: {parameters:,} parameters"


def main() -> None:
    name, path = sys.argv[1], Path(sys.argv[2], f"{sys.argv[1]}.onnx")
    if name == "bert":
        title = write_bert(path)
    elif name == "nodes":  # an unrolled network: many nodes, few weights, 100 layers
        title = write_chain(path, every=50, in_scope=1000)
    elif name == "tensors":  # as many subgraphs as nodes, which no real file has
        title = write_chain(path, every=5, in_scope=1)
    else:
        title = write_transformer(TRANSFORMERS[name], path)
    path.with_suffix(".txt").write_text(f"{title}\n")


if __name__ == "__main__":
    main()
