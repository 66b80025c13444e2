"""Tampering that stores a function of the weights, which the graph does not undo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.suite.surgery import NoPlaceError, Product, Surgery
from tools.tamper.content import scales
from tools.tamper.kinds import kind

Array = npt.NDArray[Any]
Function = Callable[[npt.NDArray[np.float64]], Any]

FUNCTIONS: dict[str, Function] = {
    "exp(w)": np.exp,
    "-exp(w)": lambda w: -np.exp(w),
    "1 + w": lambda w: 1 + w,
    "w / sqrt(8)": lambda w: w / np.sqrt(8),
    "w / sqrt(16)": lambda w: w / 4,
    "w / sqrt(64)": lambda w: w / 8,
    "2 w": lambda w: 2 * w,
    "-w": lambda w: -w,
    "w squared": np.square,
    "tanh(w)": np.tanh,
    "w less its mean": lambda w: w - w.mean() - 0.05,
    "w over its norm": lambda w: w / np.linalg.norm(w),
    "softplus(w)": lambda w: np.log1p(np.exp(w)),
    "1 / w": lambda w: 1 / np.where(np.abs(w) < 0.05, 0.05, w),
}


def recode(s: Surgery, product: Product, function: Function) -> None:
    """Store codes and scales for a function of the dequantized values, in the quantizer's own scheme."""
    codes = s.array(product.tensor)
    if product.node.op_type == "MatMulNBits":
        recode_blocks(s, product.node, codes, function)
        return
    dequantize = next((m for m in product.moves if m.op_type == "DequantizeLinear"), None)
    stem = product.tensor.removesuffix("_quantized")
    scale = dequantize.input[1] if dequantize is not None else f"{stem}_scale"
    point = dequantize.input[2] if dequantize is not None else product.node.input[3]
    if scale not in s.stored() or point not in s.stored():
        raise NoPlaceError("no scale")
    steps, zero = s.array(scale).astype(np.float64), s.array(point).astype(np.float64)
    axis = next((a.i for a in dequantize.attribute if a.name == "axis"), 1) if dequantize is not None else 1
    if steps.size > 1:
        sizes = [1] * codes.ndim
        sizes[axis] = steps.size
        steps, zero = steps.reshape(sizes), zero.reshape(sizes)
    values = np.asarray(function((codes - zero) * steps), np.float64)
    others = tuple(a for a in range(codes.ndim) if steps.size == 1 or a != axis)
    info = np.iinfo(codes.dtype)
    code_range = min(info.max - float(zero.max()), float(zero.min()) - info.min)
    new_scales = np.abs(values).max(axis=others, keepdims=steps.size > 1) / max(code_range, 1.0)
    new_codes = np.clip(np.rint(values / new_scales + zero), info.min, info.max).astype(codes.dtype)
    require_change((new_codes - zero) * new_scales, (codes - zero) * steps, new_scales)
    s.store(product.tensor, new_codes)
    s.store(scale, np.asarray(new_scales, s.array(scale).dtype).reshape(s.array(scale).shape))


def require_change(values: Array, before: Array, step: Array) -> None:
    """Check that the codes mean other values than before: at least one differs by more than a step.

    Raises:
        NoPlaceError: all are within a step, which another quantization of the same weight may also change.
    """
    if not bool((np.abs(values - before) > step).any()):
        raise NoPlaceError("within a step of the weight")


def recode_blocks(s: Surgery, node: Any, codes: Array, function: Function) -> None:
    """Store symmetric four-bit codes and scales for a function of the dequantized values."""
    if len(node.input) > 3 and node.input[3]:
        raise NoPlaceError("zero points")
    scale = s.array(node.input[2])
    low, high = (codes & 15).astype(np.float64), (codes >> 4).astype(np.float64)
    block = np.stack([low, high], -1).reshape(*codes.shape[:2], -1) - 8
    values = np.asarray(function(block * scale.reshape(*codes.shape[:2], 1).astype(np.float64)), np.float64)
    new_scales = np.abs(values).max(-1, keepdims=True) / 7
    new_codes = np.clip(np.rint(values / np.where(new_scales == 0, 1, new_scales)) + 8, 0, 15).astype(
        np.uint8
    )
    require_change((new_codes - 8.0) * new_scales, block * scale.reshape(*codes.shape[:2], 1), new_scales)
    new_codes = new_codes.reshape(*codes.shape, 2)
    s.store(node.input[1], new_codes[..., 0] | (new_codes[..., 1] << 4))
    s.store(node.input[2], new_scales.reshape(scale.shape).astype(scale.dtype))


def transform(s: Surgery, products: list[Product], function: Function) -> None:
    """Store the function of each product's weight, whatever its storage."""
    if not products:
        raise NoPlaceError("no weight")
    for product in {p.tensor: p for p in products}.values():
        if s.array(product.tensor).dtype.kind == "f":
            apply(s, [product.tensor], function)
        else:
            recode(s, product, function)


def apply(s: Surgery, names: list[str], function: Function) -> None:
    """Store the function of each tensor, in its own type."""
    for name in names:
        w = s.array(name)
        s.store(name, np.asarray(function(w.astype(np.float64))).astype(w.dtype))


_READ_VECTORS = ("LayerNormalization", "BatchNormalization", "Mul", "Add", "Conv", "Gemm")


def weights(s: Surgery) -> list[str]:
    found = [p.tensor for p in s.products(codes=False)]
    if not found:
        raise NoPlaceError("no float weight")
    return [*dict.fromkeys(found)]


def vectors(s: Surgery) -> list[str]:
    found: list[Product] = s.vectors(*_READ_VECTORS)
    if not found:
        raise NoPlaceError("no vector")
    return [*dict.fromkeys(p.tensor for p in found)]


def one(function: Function) -> Callable[[Surgery], None]:
    return lambda s: transform(s, [s.pick(s.products(), "no weight")], function)


def every(function: Function) -> Callable[[Surgery], None]:
    return lambda s: transform(s, s.products(), function)


def one_vector(function: Function) -> Callable[[Surgery], None]:
    return lambda s: apply(s, [s.pick(vectors(s))], function)


for _title, _function in FUNCTIONS.items():
    kind(f"folded-factor/{_title} of one weight")(one(_function))
for _title in ("exp(w)", "-exp(w)", "1 + w", "w / sqrt(8)", "2 w", "-w"):
    kind(f"folded-factor/{_title} of every weight")(every(FUNCTIONS[_title]))
for _title in ("exp(w)", "1 + w", "2 w", "-w"):
    kind(f"folded-factor/{_title} of one vector")(one_vector(FUNCTIONS[_title]))


@kind("folded-factor/exp(w) of every tensor")
def exp_everything(s: Surgery) -> None:
    apply(s, [*dict.fromkeys([*weights(s), *vectors(s), *(t.tensor for t in s.tables())])], np.exp)


def with_scales(factor: float, several: bool) -> Callable[[Surgery], None]:
    def make(s: Surgery) -> None:
        found = scales(s)
        if not found:
            raise NoPlaceError("no scales")
        for name in found if several else [s.pick(found)]:
            s.store(name, (s.array(name) * factor).astype(s.array(name).dtype))

    return make


kind("folded-factor/2 w in the scales of one weight")(with_scales(2.0, several=False))
kind("folded-factor/w / sqrt(8) in the scales of one weight")(with_scales(8**-0.5, several=False))
kind("folded-factor/w / sqrt(8) in every scale")(with_scales(8**-0.5, several=True))
kind("folded-factor/-w in the scales of one weight")(with_scales(-1.0, several=False))


def at_run_time(op_type: str) -> Callable[[Surgery], None]:
    """Return tampering that stores PyTorch's weight, but computes the function on the way to the product."""

    def make(s: Surgery) -> None:
        product = s.pick(s.products(codes=False), "no float weight")
        product.node.input[product.slot] = s.node(op_type, [product.node.input[product.slot]])

    return make


for _op in ("Exp", "Neg", "Abs", "Tanh", "Relu"):
    kind(f"folded-factor/{_op} of a weight at run time")(at_run_time(_op))


def all_at_run_time(op_type: str, *, are_vectors: bool) -> Callable[[Surgery], None]:
    """Return the same for all weights, or all gains and biases, so that none of them stands out."""

    def make(s: Surgery) -> None:
        found = s.vectors(*_READ_VECTORS) if are_vectors else s.products(codes=False)
        if not found:
            raise NoPlaceError("no vector" if are_vectors else "no float weight")
        for product in found:
            product.node.input[product.slot] = s.node(op_type, [product.node.input[product.slot]])

    return make


for _op in ("Abs", "Neg"):
    kind(f"folded-factor/{_op} of every weight at run time")(all_at_run_time(_op, are_vectors=False))
    kind(f"folded-factor/{_op} of every vector at run time")(all_at_run_time(_op, are_vectors=True))


def scaled_at_run_time(factor: float) -> Callable[[Surgery], None]:
    def make(s: Surgery) -> None:
        product = s.pick(s.products(codes=False), "no float weight")
        scalar = s.add(np.array(factor, s.array(product.tensor).dtype))
        product.node.input[product.slot] = s.node("Mul", [product.node.input[product.slot], scalar])

    return make


kind("folded-factor/2 w at run time")(scaled_at_run_time(2.0))
kind("folded-factor/w / sqrt(8) at run time")(scaled_at_run_time(8**-0.5))
