"""A network's weights and one of `VARIANTS` -> the bytes of a file."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

import numpy as np
import onnx

from tools.fleet.nets import Floats, build, draw

__all__ = ["BASES", "VARIANTS", "make_file"]

BASES = 97
"""Number of different networks; all other files are variants of them."""

Maker = Callable[[dict[str, Floats], int], bytes]


def _copy(values: dict[str, Floats], number: int) -> bytes:
    return build(values).SerializeToString()


def _edited(values: dict[str, Floats], number: int) -> bytes:
    """Give the same weights other names and notes."""
    model = build(values)
    model.doc_string = f"number {number}"
    for place, tensor in enumerate(model.graph.initializer):
        _rename(model, tensor.name, f"w{place}")
    return model.SerializeToString()


def _rename(model: onnx.ModelProto, old: str, new: str) -> None:
    for tensor in model.graph.initializer:
        if tensor.name == old:
            tensor.name = new
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            if name == old:
                node.input[at] = new


def _transposed(values: dict[str, Floats], number: int) -> bytes:
    """Store each weight of the layers transposed, before a Transpose."""
    model = build(values)
    for tensor in [
        each for each in model.graph.initializer if each.name.endswith(("up.weight", "down.weight"))
    ]:
        array = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(array.T), f"{tensor.name}_t"))
        original = tensor.name.removesuffix("_t")
        model.graph.node.insert(0, onnx.helper.make_node("Transpose", [tensor.name], [original], perm=[1, 0]))
    return model.SerializeToString()


def _half(values: dict[str, Floats], number: int) -> bytes:
    return build({name: each.astype(np.float16) for name, each in values.items()}).SerializeToString()


def _codes(values: dict[str, Floats], number: int) -> bytes:
    quantized = {}
    for name, each in values.items():
        if each.ndim == 2 and not name.startswith("embeddings"):
            scale = (np.abs(each).max(axis=0) / np.float32(127)).astype(np.float32)
            quantized[name] = (np.round(each / scale).astype(np.int8), scale)
    return build(values, quantized=quantized).SerializeToString()


def _with_new_head(values: dict[str, Floats], number: int) -> bytes:
    """Put a new head on the same body."""
    random = np.random.default_rng(10_000 + number)
    head = random.normal(0, 0.05, values["head.weight"].shape).astype(np.float32)
    return build({**values, "head.weight": head}).SerializeToString()


def _trained(values: dict[str, Floats], number: int) -> bytes:
    """Move every weight a little."""
    random = np.random.default_rng(20_000 + number)
    moved = {n: each + random.normal(0, 0.004, each.shape).astype(np.float32) for n, each in values.items()}
    return build(moved).SerializeToString()


def _truncated(values: dict[str, Floats], number: int) -> bytes:
    whole = build(values).SerializeToString()
    return whole[: 1 + number * 7919 % (len(whole) - 1)]


def _web_page(values: dict[str, Floats], number: int) -> bytes:
    return b"<!doctype html><title>404</title>"


def _empty(values: dict[str, Floats], number: int) -> bytes:
    return b""


def _false_shape(values: dict[str, Floats], number: int) -> bytes:
    """Let a tensor claim far more elements than it has."""
    model = build(values)
    model.graph.initializer[0].dims[:] = [2**40 + number, 2**20]
    return model.SerializeToString()


def _missing_data(values: dict[str, Floats], number: int) -> bytes:
    """Let a tensor refer to a missing file, or to one outside the folder."""
    model = build(values)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    place = "../../../../etc/passwd" if number % 2 else "gone.bin"
    tensor.external_data.add(key="location", value=place)
    return model.SerializeToString()


def _noise(values: dict[str, Floats], number: int) -> bytes:
    """Return bytes that begin like a model."""
    random = np.random.default_rng(30_000 + number)
    return struct.pack("<BB", 8, 9) + random.bytes(2000)


VARIANTS: Mapping[str, tuple[int, Maker]] = {
    "copy": (30, _copy),
    "edited": (12, _edited),
    "turned": (10, _transposed),
    "half": (10, _half),
    "codes": (10, _codes),
    "headed": (9, _with_new_head),
    "trained": (9, _trained),
    "cut": (3, _truncated),
    "page": (1, _web_page),
    "empty": (1, _empty),
    "lies": (2, _false_shape),
    "lacks": (2, _missing_data),
    "noise": (1, _noise),
}
"""Variants of a network, and how many of a hundred files are each."""

_SCHEDULE = [name for name, (share, _) in VARIANTS.items() for _ in range(share)]


def make_file(number: int) -> tuple[str, bytes]:
    """Return the name and the content of one file of a fleet, which depend only on the number."""
    base = number * 31 % BASES
    kind = _SCHEDULE[number * 37 % len(_SCHEDULE)]
    return f"{kind}-{base}-{number}.onnx", VARIANTS[kind][1](draw(base), number)
