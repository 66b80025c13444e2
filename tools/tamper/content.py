"""Tampering that stores other values in PyTorch's weights, or the same values in another orientation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.suite.surgery import NoPlaceError, Product, Surgery
from tools.tamper.kinds import kind

Array = npt.NDArray[Any]


def add_at(array: Array, where: Array, by: Array | float) -> Array:
    """Return the array with something added at those flat positions; codes stay within their type."""
    flat = array.reshape(-1).copy()
    if array.dtype.kind == "f":
        flat[where] = (flat[where].astype(np.float64) + by).astype(array.dtype)
    else:
        steps = np.rint(np.asarray(by) * 20).astype(np.int64)
        steps = np.where(steps == 0, 1, steps)
        info = np.iinfo(array.dtype)
        wide = flat[where].astype(np.int64) + steps
        flat[where] = np.where((wide < info.min) | (wide > info.max), flat[where] - steps, wide).astype(
            array.dtype
        )
    return flat.reshape(array.shape)


def change(s: Surgery, make: Callable[[Array], Array], products: list[Product] | None = None) -> None:
    """Change one weight, whatever its storage."""
    found = s.products() if products is None else products
    product = s.pick(found, "no product")
    s.store(product.tensor, make(s.array(product.tensor)))


def everywhere(s: Surgery, make: Callable[[Array], Array]) -> None:
    for name in {product.tensor: None for product in s.products()}:
        s.store(name, make(s.array(name)))


def normal(s: Surgery, size: int, scale: float = 0.3) -> Array:
    return s.random.normal(0, scale, size)


@kind("content/one element")
def one_element(s: Surgery) -> None:
    change(s, lambda w: add_at(w, np.array([s.random.integers(w.size)]), 4.0))


@kind("content/last element")
def last_element(s: Surgery) -> None:
    change(s, lambda w: add_at(w, np.array([w.size - 1]), 4.0))


@kind("content/second element")
def second_element(s: Surgery) -> None:
    change(s, lambda w: add_at(w, np.array([1]), 4.0))


@kind("content/noise on one tensor")
def noise(s: Surgery) -> None:
    change(s, lambda w: add_at(w, np.arange(w.size), normal(s, w.size)))


@kind("content/noise on every tensor")
def noise_everywhere(s: Surgery) -> None:
    everywhere(s, lambda w: add_at(w, np.arange(w.size), normal(s, w.size)))


@kind("content/noise but at evenly spaced places")
def noise_between(s: Surgery) -> None:
    def make(w: Array) -> Array:
        excluded = {
            *np.linspace(0, w.size - 1, 64).astype(int),
            *np.linspace(0, w.size - 1, 64).round().astype(int),
        }
        where = np.setdiff1d(np.arange(w.size), [*excluded])
        return add_at(w, where, normal(s, where.size))

    change(s, make)


@kind("content/noise off the diagonal of a square matrix")
def noise_off_diagonal(s: Surgery) -> None:
    def make(w: Array) -> Array:
        where = np.flatnonzero(~np.eye(len(w), dtype=bool))
        return add_at(w, where, normal(s, where.size))

    change(s, make, s.square())


@kind("content/row with its sign flipped")
def flipped_row(s: Surgery) -> None:
    def make(w: Array) -> Array:
        w = w.copy()
        row = int(s.random.integers(len(w)))
        w[row] = np.bitwise_not(w[row]) if w.dtype.kind in "iu" else -w[row]
        return w

    change(s, make)


@kind("content/row of zeros")
def zero_row(s: Surgery) -> None:
    def make(w: Array) -> Array:
        w = w.copy()
        w[int(s.random.integers(len(w)))] = 0
        return w

    change(s, make)


@kind("content/two rows exchanged")
def swapped_rows(s: Surgery) -> None:
    change(s, lambda w: exchanged(w, 0, 1))


@kind("content/two columns exchanged")
def swapped_columns(s: Surgery) -> None:
    def make(w: Array) -> Array:
        if w.ndim < 2 or w.shape[1] < 2:
            raise NoPlaceError("one column")
        return np.moveaxis(exchanged(np.moveaxis(w, 1, 0), 0, 1), 0, 1)

    change(s, make)


@kind("content/two heads exchanged")
def swapped_heads(s: Surgery) -> None:
    def make(w: Array) -> Array:
        heads = w.reshape(w.shape[0], -1, 16).copy()
        heads[:, [0, 1]] = heads[:, [1, 0]]
        return heads.reshape(w.shape)

    change(s, make, s.square())


@kind("content/all rows in another order")
def permuted_rows(s: Surgery) -> None:
    change(s, lambda w: w[s.random.permutation(len(w))])


@kind("content/all elements in another order")
def permuted_elements(s: Surgery) -> None:
    change(s, lambda w: w.reshape(-1)[s.random.permutation(w.size)].reshape(w.shape))


@kind("content/rows from last to first")
def reversed_rows(s: Surgery) -> None:
    change(s, lambda w: w[::-1])


@kind("content/block of 8 x 8 replaced")
def replaced_block(s: Surgery) -> None:
    def make(w: Array) -> Array:
        if w.ndim != 2 or min(w.shape) < 8:
            raise NoPlaceError("no block")
        places = np.arange(w.size).reshape(w.shape)[-8:, -8:].reshape(-1)
        return add_at(w, places, normal(s, 64, 1.0))

    change(s, make)


@kind("content/weight of another layer copied over")
def copied_over(s: Surgery) -> None:
    by_shape: dict[tuple[Any, ...], list[str]] = {}
    for product in s.products():
        array = s.array(product.tensor)
        names = by_shape.setdefault((array.shape, array.dtype), [])
        names += [product.tensor] if product.tensor not in names else []
    names = s.pick([names for names in by_shape.values() if len(names) > 1], "no two of a shape")
    s.store(names[0], s.array(names[-1]))


@kind("content/bias changed")
def changed_bias(s: Surgery) -> None:
    vector = s.pick(s.vectors("Add", "Gemm", "Conv"), "no bias")
    s.store(vector.tensor, add_at(s.array(vector.tensor), np.array([3]), 3.0))


@kind("content/bias of zeros")
def zero_bias(s: Surgery) -> None:
    vector = s.pick(s.vectors("Add", "Gemm", "Conv"), "no bias")
    s.store(vector.tensor, s.array(vector.tensor) * 0)


@kind("content/norm changed")
def changed_norm(s: Surgery) -> None:
    names = ("LayerNormalization", "BatchNormalization", "Mul", "SimplifiedLayerNormalization")
    vector = s.pick(s.vectors(*names), "no norm")
    array = s.array(vector.tensor)
    s.store(vector.tensor, add_at(array, np.arange(0, array.size, 2), 1.0))


@kind("content/norm of ones")
def ones_norm(s: Surgery) -> None:
    names = ("LayerNormalization", "BatchNormalization", "Mul", "SimplifiedLayerNormalization")
    vector = s.pick(s.vectors(*names), "no norm")
    s.store(vector.tensor, s.array(vector.tensor) * 0 + 1)


@kind("content/fine-tuned by 1 %")
def tuned(s: Surgery) -> None:
    everywhere(s, lambda w: add_at(w, np.arange(w.size), 0.03 * s.random.standard_normal(w.size)))


@kind("content/pruned to half")
def pruned(s: Surgery) -> None:
    def make(w: Array) -> Array:
        w = w.copy()
        centre = np.median(w.astype(np.float64))
        w[np.abs(w - centre) < np.median(np.abs(w - centre))] = w.dtype.type(centre)
        return w

    change(s, make)


def codes(s: Surgery) -> list[Product]:
    return [p for p in s.products() if s.array(p.tensor).dtype.kind in "iu"]


@kind("content/every code a step further")
def codes_stepped(s: Surgery) -> None:
    product = s.pick(codes(s), "no codes")
    if product.node.op_type == "MatMulNBits":
        raise NoPlaceError("packed")
    w = s.array(product.tensor).astype(np.int64)
    info = np.iinfo(s.array(product.tensor).dtype)
    s.store(product.tensor, np.where(w + 2 > info.max, w - 2, w + 2).astype(info.dtype))


@kind("content/codes off by one or two at random")
def codes_jittered(s: Surgery) -> None:
    product = s.pick(codes(s), "no codes")
    w = s.array(product.tensor)
    steps = s.random.integers(1, 3, w.size) * s.random.choice([-1, 1], w.size)
    s.store(product.tensor, add_at(w, np.arange(w.size), steps / 20))


@kind("content/one nibble of four-bit codes")
def one_nibble(s: Surgery) -> None:
    product = s.pick([p for p in codes(s) if p.node.op_type == "MatMulNBits"], "no four-bit codes")
    w = s.array(product.tensor).copy()
    w.reshape(-1)[s.random.integers(w.size)] ^= 0x88
    s.store(product.tensor, w)


@kind("content/nibbles of four-bit codes exchanged")
def nibbles(s: Surgery) -> None:
    product = s.pick([p for p in codes(s) if p.node.op_type == "MatMulNBits"], "no four-bit codes")
    w = s.array(product.tensor)
    s.store(product.tensor, ((w >> 4) | (w << 4)).astype(w.dtype))


def scales(s: Surgery) -> list[str]:
    """Return the names of stored scales of quantized weights, of every scheme."""
    stored = s.stored()
    found = []
    for product in codes(s):
        if product.node.op_type == "MatMulNBits":
            found.append(product.node.input[2])
        found += [move.input[1] for move in product.moves if move.op_type == "DequantizeLinear"]
        guess = product.tensor.removesuffix("_quantized") + "_scale"
        if product.node.op_type in ("MatMulInteger", "ConvInteger") and guess in stored:
            found.append(guess)
    return [name for name in dict.fromkeys(found) if name in stored]


@kind("content/scales times 1.5")
def scaled_scales(s: Surgery) -> None:
    name = s.pick(scales(s), "no scales")
    s.store(name, (s.array(name) * 1.5).astype(s.array(name).dtype))


@kind("content/one scale changed")
def one_scale(s: Surgery) -> None:
    name = s.pick([n for n in scales(s) if s.array(n).size > 1], "no several scales")
    w = s.array(name).copy()
    w.reshape(-1)[-1] *= 3
    s.store(name, w)


@kind("content/scales in another order")
def permuted_scales(s: Surgery) -> None:
    name = s.pick([n for n in scales(s) if s.array(n).size > 8], "no several scales")
    w = s.array(name)
    s.store(name, w.reshape(-1)[s.random.permutation(w.size)].reshape(w.shape))


@kind("content/zero point changed")
def zero_point(s: Surgery) -> None:
    stored = s.stored()
    found = []
    for product in codes(s):
        if product.node.op_type in ("MatMulInteger", "ConvInteger"):
            found += list(product.node.input[3:4])
        found += [n for m in product.moves if m.op_type == "DequantizeLinear" for n in m.input[2:3]]
    name = s.pick([n for n in found if n in stored], "no zero point")
    w = s.array(name)
    s.store(name, (w.astype(np.int64) + np.where(w > 100, -9, 9)).astype(w.dtype))


@kind("content/zero points given to four-bit codes")
def given_zero_points(s: Surgery) -> None:
    product = s.pick([p for p in codes(s) if p.node.op_type == "MatMulNBits"], "no four-bit codes")
    if len(product.node.input) > 3 and product.node.input[3]:
        raise NoPlaceError("has them")
    count, blocks, _ = s.array(product.tensor).shape
    points = s.random.integers(0, 255, count * ((blocks + 1) // 2), dtype=np.uint8)
    del product.node.input[3:]
    product.node.input.append(s.add(points, f"{product.tensor}_zp"))


def exchanged(w: Array, first: int, second: int) -> Array:
    if len(w) <= max(first, second):
        raise NoPlaceError("too few rows")
    w = w.copy()
    w[[first, second]] = w[[second, first]]
    return w


# Orientation


def transpose_stored(s: Surgery, product: Product) -> None:
    s.store(product.tensor, np.ascontiguousarray(s.array(product.tensor).T))


def remove_name(s: Surgery, product: Product, hint: str) -> None:
    """Rename a tensor, and remove its value_info with all notes."""
    name = s.fresh(hint)
    for node, slot in s.readers(product.tensor):
        node.input[slot] = name
    tensor = s.stored()[product.tensor]
    for node in s.nodes:
        if node.op_type == "Constant" and node.output[0] == product.tensor:
            node.output[0] = name
    tensor.name = name
    for value in [v for v in s.graph.value_info if v.name == product.tensor]:
        s.graph.value_info.remove(value)


@kind("orientation/square weight transposed under its name")
def transposed(s: Surgery) -> None:
    transpose_stored(s, s.pick(s.square(), "no square weight"))


@kind("orientation/square weight transposed under no name")
def transposed_nameless(s: Surgery) -> None:
    product = s.pick(s.square(), "no square weight")
    transpose_stored(s, product)
    remove_name(s, product, "onnx::MatMul_907")


@kind("orientation/every square weight transposed")
def all_transposed(s: Surgery) -> None:
    found = {p.tensor: p for p in s.square()}
    if not found:
        raise NoPlaceError("no square weight")
    for product in found.values():
        transpose_stored(s, product)


@kind("orientation/every square weight transposed under no name")
def all_transposed_nameless(s: Surgery) -> None:
    found = {p.tensor: p for p in s.square()}
    if not found:
        raise NoPlaceError("no square weight")
    for product in found.values():
        transpose_stored(s, product)
        remove_name(s, product, "val_907")


@kind("orientation/Transpose put before a square weight's product")
def transpose_added(s: Surgery) -> None:
    product = s.pick(s.square(), "no square weight")
    turned_value = s.node("Transpose", [product.node.input[product.slot]], perm=[1, 0])
    product.node.input[product.slot] = turned_value


@kind("orientation/Transpose of a square weight taken out")
def transpose_removed(s: Surgery) -> None:
    found = [p for p in s.square() if any(m.op_type == "Transpose" for m in p.moves)]
    product = s.pick(found, "no Transpose of a square weight")
    for move in product.moves:
        if move.op_type == "Transpose":
            s.rewire(move.output[0], move.input[0])


@kind("orientation/transB of a square Gemm turned")
def gemm_turned(s: Surgery) -> None:
    product = s.pick([p for p in s.square() if p.node.op_type == "Gemm"], "no square Gemm")
    flip_trans_b(product.node)


def flip_trans_b(node: Any) -> None:
    import onnx

    old = {a.name: a.i for a in node.attribute}.get("transB", 0)
    kept = [a for a in node.attribute if a.name != "transB"]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("transB", 1 - old)])


@kind("orientation/square matrix turned by Gemm with transB")
def to_gemm(s: Surgery) -> None:
    found = [p for p in s.square() if p.node.op_type == "MatMul" and p.slot == 1]
    found = [p for p in found if len(s.seen[p.node.output[0]].shape) == 3]
    product = s.pick(found, "no square MatMul")
    node = product.node
    flat = s.node("Flatten", [node.input[0]], axis=2)
    made = s.node("Gemm", [flat, node.input[1]], transB=1)
    shape = s.node("Shape", [node.input[0]])
    s.rewire(node.output[0], s.node("Reshape", [made, shape]))
    s.remove(node)


@kind("orientation/kernel turned in space")
def kernel_turned(s: Surgery) -> None:
    found = [p for p in s.products() if s.array(p.tensor).ndim == 4 and s.array(p.tensor).shape[-1] > 1]
    product = s.pick(found, "no kernel")
    s.store(product.tensor, np.ascontiguousarray(s.array(product.tensor).swapaxes(2, 3)))


@kind("orientation/kernel's channels exchanged")
def kernel_channels(s: Surgery) -> None:
    found = [p for p in s.products() if (w := s.array(p.tensor)).ndim == 4 and w.shape[0] == w.shape[1]]
    product = s.pick(found, "no square kernel")
    s.store(product.tensor, np.ascontiguousarray(s.array(product.tensor).swapaxes(0, 1)))


@kind("orientation/kernel mirrored")
def kernel_mirrored(s: Surgery) -> None:
    found = [p for p in s.products() if (w := s.array(p.tensor)).ndim == 4 and w.shape[-1] > 1]
    product = s.pick(found, "no kernel")
    s.store(product.tensor, np.ascontiguousarray(s.array(product.tensor)[:, :, ::-1, ::-1]))


@kind("orientation/weight reshaped to its transpose's shape")
def rectangle_reshaped(s: Surgery) -> None:
    found = [
        p
        for p in s.products(codes=False)
        if (w := s.array(p.tensor)).ndim == 2
        and w.shape[0] != w.shape[1]
        and not p.moves
        and p.node.op_type == "MatMul"
    ]
    product = s.pick(found, "no rectangular weight")
    w = s.array(product.tensor)
    s.store(product.tensor, np.ascontiguousarray(w.T).reshape(w.shape))
