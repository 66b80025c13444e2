"""Tampering by an added path into an activation: every carrier into a product, and one carrier into other operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper

from analyzer.account.opaque import FEW
from tools.suite.surgery import NoPlaceError, Surgery
from tools.tamper.carriers import CARRIERS, Carrier, draw
from tools.tamper.kinds import kind

__all__ = ["add_product", "add_vector", "pick_activation", "plant"]


def plant(s: Surgery, carrier: Carrier, *, vector: bool = False) -> None:
    """Add a product with the carrier's weights, or the carrier's vector, to an activation."""
    (add_vector if vector else add_product)(s, pick_activation(s, vector=vector), carrier)


def pick_activation(s: Surgery, *, vector: bool) -> str:
    """Return an activation to change; for a vector, one with more channels than the `FEW` that may stay unexplained."""
    least = FEW + 1 if vector else 1
    wide = [value for value in s.activations() if s.channels(value) >= least]
    return str(s.pick(wide, "no activation"))


def add_product(s: Surgery, value: str, carrier: Carrier) -> None:
    """Replace x by x + x W."""
    width = s.channels(value)
    table = cast_like(s, value, carrier(s, (width, width)))
    image = s.is_image(value)
    if image:
        table = s.node("Reshape", [table, s.add(np.array([width, width, 1, 1], np.int64))])
    s.after(value, lambda x: s.node("Add", [x, s.node("Conv" if image else "MatMul", [x, table])]))


def add_vector(s: Surgery, value: str, carrier: Carrier) -> None:
    """Replace x by x + b."""
    table = vector_of(s, value, carrier)
    s.after(value, lambda x: s.node("Add", [x, table]))


def vector_of(s: Surgery, value: str, carrier: Carrier) -> str:
    width = s.channels(value)
    table = cast_like(s, value, carrier(s, (width,)))
    if s.is_image(value):
        table = s.node("Reshape", [table, s.add(np.array([width, 1, 1], np.int64))])
    return table


def cast_like(s: Surgery, value: str, table: str) -> str:
    """Cast the table to the activation's type."""
    if s.seen[value].dtype == "float32":
        return table
    return s.node("Cast", [table], to=s.element(value))


def every_carrier(carrier: Carrier, vector: bool) -> Callable[[Surgery], None]:
    return lambda s: plant(s, carrier, vector=vector)


for _name, _carrier in CARRIERS.items():
    kind(f"planted/{_name}")(every_carrier(_carrier, vector=False))
for _name in (
    "float initializer",
    "int64 through Cast",
    "bools",
    "value_floats",
    "sines at run time",
    "RandomNormal",
):
    kind(f"planted/{_name}, as a bias")(every_carrier(CARRIERS[_name], vector=True))

# One carrier into operators other than a sum of products


def gain(op_type: str, offset: float) -> Callable[[Surgery], None]:
    def make(s: Surgery) -> None:
        value = s.pick(s.activations(), "no activation")

        def scale_carrier(surgery: Surgery, shape: tuple[int, ...]) -> str:
            return surgery.add((np.abs(draw(surgery, shape)) + offset).astype(np.float32))

        table = vector_of(s, value, scale_carrier)
        s.after(value, lambda x: s.node(op_type, [x, table]))

    return make


for _op, _offset in {"Mul": 1.0, "Div": 0.7, "Sub": 0.2, "Max": -0.1, "Min": 0.1, "PRelu": 0.3}.items():
    kind(f"planted/into {_op}")(gain(_op, _offset))


@kind("planted/into Pow")
def into_pow(s: Surgery) -> None:
    value = s.pick(s.activations(), "no activation")
    table = vector_of(s, value, lambda z, shape: z.add((np.abs(draw(z, shape)) + 0.8).astype(np.float32)))
    s.after(value, lambda x: s.node("Mul", [s.node("Sign", [x]), s.node("Pow", [s.node("Abs", [x]), table])]))


@kind("planted/into Where")
def into_where(s: Surgery) -> None:
    value = s.pick(s.activations(), "no activation")
    table = vector_of(s, value, CARRIERS["float initializer"])
    zero = cast_like(s, value, s.add(np.float32(0).reshape(())))
    s.after(value, lambda x: s.node("Where", [s.node("Greater", [x, zero]), x, table]))


@kind("planted/into LayerNormalization")
def into_layer_norm(s: Surgery) -> None:
    found = [v for v in s.activations() if not s.is_image(v)]
    value = s.pick(found, "no activation")
    width = s.channels(value)
    scale = cast_like(s, value, s.add(draw(s, (width,)) + np.float32(1)))
    bias = cast_like(s, value, s.add(draw(s, (width,))))
    s.after(value, lambda x: s.node("LayerNormalization", [x, scale, bias], axis=-1))


@kind("planted/into BatchNormalization")
def into_batch_norm(s: Surgery) -> None:
    value = s.pick([v for v in s.activations() if s.is_image(v)], "no image")
    width = s.channels(value)
    drawn = [draw(s, (width,)) + np.float32(1), draw(s, (width,)), draw(s, (width,))]
    drawn.append(np.abs(draw(s, (width,))) + np.float32(0.5))
    tables = [cast_like(s, value, s.add(array)) for array in drawn]
    s.after(value, lambda x: s.node("BatchNormalization", [x, *tables]))


@kind("planted/into Einsum")
def into_einsum(s: Surgery) -> None:
    value = s.pick([v for v in s.activations() if len(s.seen[v].shape) == 3], "no activation")
    width = s.channels(value)
    table = cast_like(s, value, s.add(draw(s, (width, width))))
    s.after(value, lambda x: s.node("Add", [x, s.node("Einsum", [x, table], equation="xyz,zw->xyw")]))


@kind("planted/into GRU")
def into_gru(s: Surgery) -> None:
    found = [v for v in s.activations() if len(s.seen[v].shape) == 3 and s.seen[v].dtype == "float32"]
    value = s.pick(found, "no activation")
    width = s.channels(value)
    tables = [s.add(draw(s, (1, 3 * width, width))), s.add(draw(s, (1, 3 * width, width)))]

    def make(x: str) -> str:
        states = s.node("GRU", [x, *tables], hidden_size=width)
        return s.node("Add", [x, s.node("Squeeze", [states, s.add(np.array([1], np.int64))])])

    s.after(value, make)


@kind("planted/into Gemm's C")
def into_gemm(s: Surgery) -> None:
    found = [n for n in s.nodes if n.op_type == "Gemm" and len(n.input) < 3 and n.output[0] in s.seen]
    node = s.pick(found, "no Gemm without C")
    node.input.append(cast_like(s, node.output[0], s.add(draw(s, s.seen[node.output[0]].shape[-1:]))))


@kind("planted/into Conv's B")
def into_conv(s: Surgery) -> None:
    found = [n for n in s.nodes if n.op_type == "Conv" and len(n.input) < 3 and n.output[0] in s.seen]
    node = s.pick(found, "no Conv without B")
    node.input.append(cast_like(s, node.output[0], s.add(draw(s, s.seen[node.output[0]].shape[1:2]))))


@kind("planted/into MatMulNBits' scales")
def into_block_scales(s: Surgery) -> None:
    value = float_value(s)
    width = s.channels(value)
    codes = s.add(np.full((width, width // 16, 8), 0x99, np.uint8))
    scale = s.add(draw(s, (width * (width // 16),)))
    s.after(value, lambda x: s.node("Add", [x, nbits(s, x, codes, scale, width)]))


@kind("planted/into MatMulNBits' codes")
def into_block_codes(s: Surgery) -> None:
    value = float_value(s)
    width = s.channels(value)
    codes = s.add(s.random.integers(0, 256, (width, width // 16, 8)).astype(np.uint8))
    scale = s.add(np.full((width * (width // 16),), 0.05, np.float32))
    s.after(value, lambda x: s.node("Add", [x, nbits(s, x, codes, scale, width)]))


def float_value(s: Surgery) -> str:
    found = [v for v in s.activations() if s.seen[v].dtype == "float32" and len(s.seen[v].shape) == 3]
    return str(s.pick([v for v in found if s.channels(v) % 16 == 0], "no activation"))


def nbits(s: Surgery, value: str, codes: str, scale: str, width: int) -> str:
    return s.node(
        "MatMulNBits", [value, codes, scale], domain="com.microsoft", K=width, N=width, bits=4, block_size=16
    )


@kind("planted/into QLinearMatMul's scales")
def into_qlinear(s: Surgery) -> None:
    value = float_value(s)
    width = s.channels(value)
    one, zero = s.add(np.float32(0.05).reshape(())), s.add(np.array(128, np.uint8))
    ones, scale = s.add(np.ones((width, width), np.int8)), s.add(np.abs(draw(s, (width,))))
    points = s.add(np.zeros((width,), np.int8))

    def make(x: str) -> str:
        codes = s.node("QuantizeLinear", [x, one, zero])
        product = s.node("QLinearMatMul", [codes, one, zero, ones, scale, points, one, zero])
        return s.node("Add", [x, s.node("DequantizeLinear", [product, one, zero])])

    s.after(value, make)


@kind("planted/into MatMulInteger")
def into_integers(s: Surgery) -> None:
    value = float_value(s)
    width = s.channels(value)
    table = s.add(s.random.integers(-100, 100, (width, width)).astype(np.int8))
    factor = s.add(np.float32(0.004).reshape(()))

    def make(x: str) -> str:
        node = helper.make_node(
            "DynamicQuantizeLinear", [x], [s.fresh(n) for n in ("q", "q_scale", "q_zero")]
        )
        s.graph.node.append(node)
        product = s.node("MatMulInteger", [node.output[0], table, node.output[2]])
        back = s.node("Mul", [s.node("Cast", [product], to=TensorProto.FLOAT), node.output[1]])
        return s.node("Add", [x, s.node("Mul", [back, factor])])

    s.after(value, make)


@kind("planted/into a mask of scores")
def into_scores(s: Surgery) -> None:
    """Add a fixed bias to the attention scores."""
    softmax = s.pick([n for n in s.nodes if n.op_type == "Softmax" and n.input[0] in s.seen], "no Softmax")
    value = softmax.input[0]
    shape = s.seen[value].shape
    if len(shape) != 4:
        raise NoPlaceError("no scores")
    table = cast_like(
        s,
        value,
        s.add(
            draw(s, (shape[1], 1, 1))
            * np.float32(3)
            * np.ones((1, *shape[2:]), np.float32)
            * s.random.random((1, *shape[2:])).astype(np.float32)
        ),
    )
    s.after(value, lambda x: s.node("Add", [x, table]))


@kind("planted/low-rank pair")
def low_rank(s: Surgery) -> None:
    value = s.pick([v for v in s.activations() if not s.is_image(v)], "no activation")
    width = s.channels(value)
    down, up = (cast_like(s, value, s.add(draw(s, shape))) for shape in ((width, 4), (4, width)))
    s.after(value, lambda x: s.node("Add", [x, s.node("MatMul", [s.node("MatMul", [x, down]), up])]))


@kind("planted/low-rank pair onto a weight")
def low_rank_weight(s: Surgery) -> None:
    """Apply an adapter at run time: W + A B."""
    found = [p for p in s.products(codes=False) if s.array(p.tensor).ndim == 2]
    product = s.pick(found, "no float weight")
    w = s.array(product.tensor)
    pair = [s.add(draw(s, shape).astype(w.dtype)) for shape in ((w.shape[0], 4), (4, w.shape[1]))]
    value = s.node("Add", [product.tensor, s.node("MatMul", pair)])
    reader = product.moves[0] if product.moves else product.node
    for slot, name in enumerate(reader.input):
        if name == product.tensor:
            reader.input[slot] = value


@kind("planted/integers onto a weight")
def delta_weight(s: Surgery) -> None:
    """Replace W by W + cast(I) * step."""
    product = s.pick(s.products(codes=False), "no float weight")
    w = s.array(product.tensor)
    element = helper.np_dtype_to_tensor_dtype(w.dtype)
    steps = s.node("Cast", [s.add(s.random.integers(-9, 10, w.shape).astype(np.int8))], to=element)
    delta = s.node("Mul", [steps, s.add(np.array(0.05, w.dtype))])
    value = s.node("Add", [product.tensor, delta])
    reader = product.moves[0] if product.moves else product.node
    for slot, name in enumerate(reader.input):
        if name == product.tensor:
            reader.input[slot] = value
