"""Decoders in the shapes of published ones, without their values: `python -m tools.cost_matrix.shaped`.

The graph has the operators that exporters write, with keys and values as inputs and outputs. The weights are a sparse
file of their real size, because no command here reads a value.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper


@dataclass(frozen=True, slots=True)
class Decoder:
    """Sizes of a Llama-like decoder in FLOAT16."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.hidden // self.heads

    @property
    def parameters(self) -> int:
        """Number of parameters, as published: Touvron et al. 2023."""
        projections = 2 * self.hidden**2 + 2 * self.hidden * self.kv_heads * self.head
        layer = projections + 3 * self.hidden * self.inner + 2 * self.hidden
        return 2 * self.vocabulary * self.hidden + self.layers * layer + self.hidden


DECODERS = {
    "llama-2-7b": Decoder(4096, 32, 32, 32, 11008, 32000),
    "llama-2-70b": Decoder(8192, 80, 64, 8, 28672, 32000),
}
_DTYPE, _NBYTES = TensorProto.FLOAT16, 2


@dataclass(slots=True)
class _Writer:
    """A graph that is being written."""

    nodes: list[Any]
    tensors: list[Any]
    nbytes: int = 0

    def weight(self, name: str, *dims: int) -> str:
        tensor = TensorProto(name=name, data_type=_DTYPE, dims=dims, data_location=TensorProto.EXTERNAL)
        length = _NBYTES
        for dim in dims:
            length *= dim
        for key, value in (("location", "weights.data"), ("offset", self.nbytes), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self.nbytes += length
        self.tensors.append(tensor)
        return name

    def constant(self, name: str, *numbers: int) -> str:
        self.tensors.append(helper.make_tensor(name, TensorProto.INT64, [len(numbers)], numbers))
        return name

    def add(self, op_type: str, inputs: list[str], output: str, name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=name, **attributes))
        return output


def write_decoder(decoder: Decoder, folder: Path, *, has_cache: bool = True) -> Path:
    """Write a decoder's file with its sparse weights, and return its path."""
    writer = _Writer([], [])
    d, g, n, h = decoder.hidden, decoder.kv_heads, decoder.heads, decoder.head
    writer.constant("split_q", 0, 0, n, h)
    writer.constant("split_kv", 0, 0, g, h)
    writer.constant("join", 0, 0, d)
    writer.constant("two", 2)
    writer.constant("grouped", 0, n, -1, h)
    x = writer.add(
        "Gather",
        [writer.weight("embed_tokens", decoder.vocabulary, d), "input_ids"],
        "x0",
        "embed_tokens/Gather",
    )
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])]
    outputs = [helper.make_tensor_value_info("logits", _DTYPE, ["batch", "sequence", decoder.vocabulary])]
    for layer in range(decoder.layers):
        x = _layer(writer, decoder, layer, x, has_cache=has_cache)
        for side in ("key", "value") if has_cache else ():
            for kind, length, values in (("past", "past", inputs), ("present", "past + sequence", outputs)):
                name = f"{kind}.{layer}.{side}"
                values.append(helper.make_tensor_value_info(name, _DTYPE, ["batch", g, length, h]))
    x = _norm(writer, decoder, x, "norm")
    writer.add("MatMul", [x, writer.weight("lm_head", d, decoder.vocabulary)], "logits", "lm_head/MatMul")
    graph = helper.make_graph(writer.nodes, "decoder", inputs, outputs, writer.tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with (folder / "weights.data").open("wb") as data:
        data.truncate(writer.nbytes)
    return path


def _norm(writer: _Writer, decoder: Decoder, x: str, name: str) -> str:
    weight = writer.weight(f"{name}.weight", decoder.hidden)
    return writer.add("RMSNormalization", [x, weight], f"{name}.out", f"{name}/RMSNormalization")


def _layer(writer: _Writer, decoder: Decoder, layer: int, x: str, *, has_cache: bool) -> str:
    d, g, h = decoder.hidden, decoder.kv_heads, decoder.head
    prefix = f"layers.{layer}"

    def linear(name: str, value: str, ins: int, outs: int) -> str:
        full = f"{prefix}.{name}"
        return writer.add(
            "MatMul", [value, writer.weight(f"{full}.weight", ins, outs)], f"{full}.out", f"{full}/MatMul"
        )

    def split(name: str, value: str, shape: str) -> str:
        full = f"{prefix}.{name}"
        flat = writer.add("Reshape", [value, shape], f"{full}.split", f"{full}/Reshape")
        return writer.add("Transpose", [flat], f"{full}.heads", f"{full}/Transpose", perm=[0, 2, 1, 3])

    normed = _norm(writer, decoder, x, f"{prefix}.input_layernorm")
    query = split("self_attn.q_proj", linear("self_attn.q_proj", normed, d, d), "split_q")
    sides = []
    for side, name in (("key", "k_proj"), ("value", "v_proj")):
        new = split(f"self_attn.{name}", linear(f"self_attn.{name}", normed, d, g * h), "split_kv")
        past = [f"past.{layer}.{side}"] if has_cache else []
        present = f"present.{layer}.{side}"
        sides.append(writer.add("Concat", [*past, new], present, f"{prefix}.self_attn/{side}", axis=2))
    attended = writer.add("Attention", [query, *sides], f"{prefix}.seen", f"{prefix}.self_attn/Attention")
    transposed = writer.add(
        "Transpose", [attended], f"{prefix}.turned", f"{prefix}.self_attn/Transpose", perm=[0, 2, 1, 3]
    )
    joined = writer.add("Reshape", [transposed, "join"], f"{prefix}.joined", f"{prefix}.self_attn/Reshape")
    x = writer.add("Add", [x, linear("self_attn.o_proj", joined, d, d)], f"{prefix}.x1", f"{prefix}/Add")
    normed = _norm(writer, decoder, x, f"{prefix}.post_attention_layernorm")
    gate = linear("mlp.gate_proj", normed, d, decoder.inner)
    activated = writer.add("Sigmoid", [gate], f"{prefix}.opened", f"{prefix}.mlp/Sigmoid")
    silu = writer.add("Mul", [gate, activated], f"{prefix}.silu", f"{prefix}.mlp/Mul")
    gated = writer.add(
        "Mul",
        [silu, linear("mlp.up_proj", normed, d, decoder.inner)],
        f"{prefix}.both",
        f"{prefix}.mlp/Mul_1",
    )
    return writer.add(
        "Add", [x, linear("mlp.down_proj", gated, decoder.inner, d)], f"{prefix}.x2", f"{prefix}/Add_1"
    )


def measure(decoder: Decoder, shape: str, past: int) -> dict[str, Any]:
    """Compute the cost and memory of a decoder's file; return them with the time and memory of the command."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_decoder(decoder, Path(folder))
        command = [
            sys.executable,
            "-m",
            "analyzer",
            "cost",
            str(path),
            "--shape",
            shape,
            "--memory",
            "--past",
            str(past),
        ]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        report = json.loads(done.stdout)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {
            "parameters": decoder.parameters,
            "seconds": time.monotonic() - start,
            "cpu": cpu,
            "megabytes": after.ru_maxrss / 1024,
            "macs": report["totals"]["macs"],
            "complete": report["complete"],
            "memory": {line["line"]: line["value"] for line in report["memory"]},
        }


def main() -> None:
    """Print the table."""
    for row in rows():
        sys.stdout.write(row + "\n")


def rows() -> Iterator[str]:
    """Yield the lines of the table: one token after 4,095 others, as in published figures."""
    yield "| model | weights | cache at 4,096 | MACs of a token | CPU | memory of the process |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, decoder in DECODERS.items():
        found = measure(decoder, "batch=1,sequence=1", 4095)
        memory = found["memory"]
        cache = memory.get("key-value cache, present")
        weights = sum(value or 0 for line, value in memory.items() if line.startswith("weights"))
        yield (
            f"| {name} | {weights:,} | {cache:,} | {found['macs']['value']:,} | {found['cpu']:.2f} s "
            f"| {found['megabytes']:.0f} MB |"
        )


if __name__ == "__main__":
    main()
