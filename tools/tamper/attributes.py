"""Tampering that keeps all weights in place, but changes an attribute, an axis or a constant of the graph."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tools.suite.surgery import NoPlaceError, Surgery
from tools.tamper.kinds import kind
from tools.tamper.unread import residuals, same_size


def get_attribute(node: Any, name: str, default: Any = None) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def set_attribute(node: Any, name: str, value: Any) -> None:
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def live_nodes(s: Surgery, *op_types: str) -> list[Any]:
    needed, reached = s.live(), s.from_inputs()
    return [
        n
        for n in s.nodes
        if n.op_type in op_types and {*n.output} & needed and any(v in reached for v in n.input)
    ]


def changes(
    op_types: tuple[str, ...], name: str, change: Callable[[Any], Any], default: Any = None
) -> Callable[[Surgery], None]:
    """Change one attribute of every such node that has it, or whose default is known."""

    def make(s: Surgery) -> None:
        found = [n for n in live_nodes(s, *op_types) if get_attribute(n, name, default) is not None]
        if not found:
            raise NoPlaceError("no such node")
        for node in found:
            set_attribute(node, name, change(get_attribute(node, name, default)))

    return make


NORMS = ("LayerNormalization", "BatchNormalization", "SimplifiedLayerNormalization", "InstanceNormalization")
kind("attributes/epsilon of every norm")(changes(NORMS, "epsilon", lambda e: 0.3, 1e-5))
kind("attributes/axis of a norm")(changes(("LayerNormalization",), "axis", lambda a: 1, -1))
kind("attributes/slope of LeakyRelu")(changes(("LeakyRelu",), "alpha", lambda a: 0.7, 0.01))
kind("attributes/axis of Softmax")(changes(("Softmax",), "axis", lambda a: -2 if a in (-1, 2, 3) else -1, -1))
kind("attributes/Gelu's approximation")(
    changes(("Gelu",), "approximate", lambda a: "none" if a in (b"tanh", "tanh") else "tanh", "none")
)
kind("attributes/kernel's strides exchanged for dilations")(
    changes(("Conv",), "dilations", lambda d: [2] * len(d), None)
)
kind("attributes/alpha of Gemm")(changes(("Gemm",), "alpha", lambda a: 2.0, 1.0))
kind("attributes/beta of Gemm")(changes(("Gemm",), "beta", lambda b: 0.25, 1.0))
kind("attributes/padding counted in pools")(
    changes(("AveragePool",), "count_include_pad", lambda c: 1 - c, 0)
)


@kind("attributes/pads of a convolution")
def pads(s: Surgery) -> None:
    """Move the pads to one side, so that all sizes stay the same."""
    found = [
        n for n in live_nodes(s, "Conv", "MaxPool", "ConvInteger") if any(get_attribute(n, "pads", []) or [])
    ]
    node = s.pick(found, "no pads")
    old = list(get_attribute(node, "pads"))
    half = len(old) // 2
    set_attribute(node, "pads", [0] * half + [a + b for a, b in zip(old[:half], old[half:], strict=True)])


@kind("attributes/dilations of a convolution")
def dilations(s: Surgery) -> None:
    """Widen dilations and pads together, so that all sizes stay the same."""
    found = [
        n
        for n in live_nodes(s, "Conv")
        if any(get_attribute(n, "pads", []) or []) and max(get_attribute(n, "kernel_shape", [1])) == 3
    ]
    node = s.pick(found, "no kernel of 3")
    set_attribute(node, "dilations", [2, 2])
    set_attribute(node, "pads", [p + 1 for p in get_attribute(node, "pads")])


@kind("attributes/perm of a Transpose")
def perm(s: Surgery) -> None:
    """Exchange two axes of one size."""
    found = []
    for node in live_nodes(s, "Transpose"):
        seen = s.seen.get(node.output[0])
        if seen is None:
            continue
        pairs = combinations(range(len(seen.shape)), 2)
        found += [(node, a, b) for a, b in pairs if seen.shape[a] == seen.shape[b] > 1]
    node, one, other = s.pick(found, "no two axes of a size")
    order = list(get_attribute(node, "perm"))
    order[one], order[other] = order[other], order[one]
    set_attribute(node, "perm", order)


@kind("attributes/Transpose of heads left out")
def heads(s: Surgery) -> None:
    """Replace a Transpose by a Reshape to its output's size."""
    found = [
        n for n in live_nodes(s, "Transpose") if n.output[0] in s.seen and len(s.seen[n.output[0]].shape) == 4
    ]
    node = s.pick(found, "no Transpose of four axes")
    shape = s.node("Shape", [node.output[0]])
    made = s.node("Reshape", [node.input[0], shape])
    s.rewire(node.output[0], made, excluding=[shape])


@kind("attributes/order of a Concat")
def concat(s: Surgery) -> None:
    """Reverse the parts, also in the Concats of rotary positions."""
    found = [
        n
        for n in live_nodes(s, "Concat")
        if len(n.input) > 1 and n.output[0] in s.seen and len(s.seen[n.output[0]].shape) > 2
    ]
    node = s.pick(found, "no Concat of activations")
    parts = list(node.input)[::-1]
    del node.input[:]
    node.input.extend(parts)


@kind("attributes/bounds of a Clip")
def clip(s: Surgery) -> None:
    node = s.pick(live_nodes(s, "Clip", "Relu"), "no Clip nor Relu")
    node.op_type = "Clip"
    seen = s.seen[node.output[0]]
    del node.input[1:]
    node.input.extend([s.add(np.array(-0.2, seen.dtype)), s.add(np.array(0.3, seen.dtype))])


SWAPS = {
    "Relu": "Softplus",
    "Gelu": "Tanh",
    "Tanh": "Softsign",
    "Erf": "Tanh",
    "Sigmoid": "Tanh",
    "LeakyRelu": "Elu",
    "Softmax": "LogSoftmax",
    "MaxPool": "AveragePool",
    "Sqrt": "Abs",
    "ReduceMean": "ReduceMax",
    "GlobalAveragePool": "GlobalMaxPool",
}


@kind("attributes/an activation replaced by another")
def activation(s: Surgery) -> None:
    node = s.pick(live_nodes(s, "Relu", "Gelu", "Tanh", "Erf", "Sigmoid", "LeakyRelu"), "no activation")
    swap(node)


@kind("attributes/every activation replaced by another")
def activations(s: Surgery) -> None:
    found = live_nodes(s, "Relu", "Gelu", "Tanh", "Erf", "Sigmoid", "LeakyRelu")
    if not found:
        raise NoPlaceError("no activation")
    for node in found:
        swap(node)


@kind("attributes/a pool or mean replaced by another")
def pool(s: Surgery) -> None:
    found = live_nodes(s, "MaxPool", "GlobalAveragePool", "ReduceMean")
    node = s.pick(found, "no pool")
    swap(node)
    if node.op_type == "AveragePool":
        kept = [a for a in node.attribute if a.name in ("kernel_shape", "strides", "pads", "auto_pad")]
        del node.attribute[:]
        node.attribute.extend(kept)


def swap(node: Any) -> None:
    node.op_type = SWAPS[node.op_type]
    if node.op_type in ("Tanh", "Softsign"):
        del node.attribute[:]


@kind("attributes/a residual subtracted")
def subtracted(s: Surgery) -> None:
    s.pick(residuals(s), "no residual").op_type = "Sub"


@kind("attributes/a residual multiplied")
def multiplied(s: Surgery) -> None:
    s.pick(residuals(s), "no residual").op_type = "Mul"


@kind("attributes/a bias subtracted")
def bias_subtracted(s: Surgery) -> None:
    found = [v for v in s.vectors("Add") if v.slot == 1]
    s.pick(found, "no bias Add").node.op_type = "Sub"


@kind("attributes/mean over another axis")
def reduced(s: Surgery) -> None:
    stored = s.stored()
    found = []
    for node in live_nodes(s, "ReduceMean", "ReduceSum", "ReduceMax"):
        seen = s.seen.get(node.input[0])
        axes = (
            list(s.array(node.input[1]))
            if len(node.input) > 1 and node.input[1] in stored
            else get_attribute(node, "axes")
        )
        if seen is None or not axes or len(axes) != 1 or len(seen.shape) < 3:
            continue
        if get_attribute(node, "keepdims", 1):
            found.append((node, axes[0], len(seen.shape)))
    node, axis, rank = s.pick(found, "no mean")
    other = [1] if axis in (-1, rank - 1) else [rank - 1]
    if len(node.input) > 1:
        node.input[1] = s.add(np.array(other, np.int64))
    else:
        set_attribute(node, "axes", other)


# Constants


def scalars(s: Surgery, *op_types: str) -> list[tuple[Any, int]]:
    """Return stored single floats that an operator on activations reads."""
    stored, reached = s.stored(), s.from_inputs()
    found = []
    for node in s.nodes:
        if node.op_type not in op_types or not any(v in reached for v in node.input):
            continue
        for slot, name in enumerate(node.input):
            tensor = stored.get(name)
            if tensor is not None and int(np.prod(tensor.dims)) == 1 and tensor.data_type in (1, 10):
                found.append((node, slot))
    return found


def constants(op_types: tuple[str, ...], factor: float, *, every: bool = False) -> Callable[[Surgery], None]:
    def make(s: Surgery) -> None:
        found = scalars(s, *op_types)
        if not found:
            raise NoPlaceError("no such scalar")
        for node, slot in found if every else [s.pick(found)]:
            w = s.array(node.input[slot])
            node.input[slot] = s.add((w * factor).astype(w.dtype))

    return make


kind("attributes/a factor of attention or activation doubled")(constants(("Mul", "Div"), 2.0))
kind("attributes/every factor times 1.2")(constants(("Mul", "Div"), 1.2, every=True))
kind("attributes/a factor's sign")(constants(("Mul", "Div"), -1.0))
kind("attributes/a constant added doubled")(constants(("Add", "Sub"), 2.0))
kind("attributes/an epsilon made large")(constants(("Add",), 1e5))
kind("attributes/an exponent changed")(constants(("Pow",), 1.5))
kind("attributes/a mask's constant made small")(constants(("Where", "Mul"), 1e-37))


@kind("attributes/attention's scores scaled")
def scores(s: Surgery) -> None:
    node = s.pick(live_nodes(s, "Softmax"), "no Softmax")
    seen = s.seen.get(node.input[0])
    if seen is None:
        raise NoPlaceError("no scores")
    half = s.add(np.array(0.25, seen.dtype))
    node.input[0] = s.node("Mul", [node.input[0], half])


@kind("attributes/mask not added")
def unmasked(s: Surgery) -> None:
    """Skip the Add before Softmax, whose other term is the mask."""
    producers = s.producers()
    found = []
    for node in live_nodes(s, "Softmax"):
        add = producers.get(node.input[0])
        if add is not None and add.op_type == "Add" and same_size(s, add.input[0], add.output[0]):
            found.append((node, add.input[0]))
    if not found:
        raise NoPlaceError("no mask")
    for node, value in found:
        node.input[0] = value


@kind("attributes/mask's sides exchanged")
def mask_sides(s: Surgery) -> None:
    found = live_nodes(s, "Where")
    node = s.pick(found, "no Where")
    first, second = node.input[1], node.input[2]
    node.input[1], node.input[2] = second, first


@kind("attributes/comparison turned")
def comparison(s: Surgery) -> None:
    turned = {
        "Greater": "Less",
        "Less": "Greater",
        "LessOrEqual": "GreaterOrEqual",
        "GreaterOrEqual": "LessOrEqual",
    }
    producers = {name: n for n in s.nodes for name in n.output}
    needed = s.live()
    found = [n for n in s.nodes if n.op_type in turned and {*n.output} & needed and producers]
    node = s.pick(found, "no comparison")
    node.op_type = turned[node.op_type]


@kind("attributes/index of a Gather")
def index(s: Surgery) -> None:
    stored = s.stored()
    found = []
    for node in live_nodes(s, "Gather"):
        tensor = stored.get(node.input[1])
        seen = s.seen.get(node.input[0])
        if tensor is None or seen is None or int(np.prod(tensor.dims)) != 1 or seen.dtype == "int64":
            continue
        found.append(node)
    node = s.pick(found, "no Gather at a stored index")
    w = s.array(node.input[1])
    node.input[1] = s.add(np.where(w == 0, 1, 0).astype(w.dtype))


@kind("attributes/bounds of a Slice of an activation")
def sliced(s: Surgery) -> None:
    """Exchange the bounds of two Slices of one value."""
    by_value: dict[str, list[Any]] = {}
    for node in live_nodes(s, "Slice"):
        if node.output[0] in s.seen and s.seen[node.output[0]].dtype.startswith("float"):
            by_value.setdefault(node.input[0], []).append(node)
    pairs = [
        nodes
        for nodes in by_value.values()
        if len(nodes) > 1 and same_size(s, nodes[0].output[0], nodes[1].output[0])
    ]
    first, second = s.pick(pairs, "no two Slices")[:2]
    for slot in range(1, len(first.input)):
        first.input[slot], second.input[slot] = second.input[slot], first.input[slot]


@kind("attributes/rotary cosine and sine exchanged")
def rotary(s: Surgery) -> None:
    found = live_nodes(s, "Cos", "Sin")
    if not found:
        raise NoPlaceError("no rotary positions")
    for node in found:
        node.op_type = {"Cos": "Sin", "Sin": "Cos"}[node.op_type]


@kind("attributes/output scaled")
def output_scaled(s: Surgery) -> None:
    around(s, lambda x, seen: s.node("Mul", [x, s.add(np.array(1.1, seen))]))


@kind("attributes/output rounded")
def output_rounded(s: Surgery) -> None:
    around(s, lambda x, seen: s.node("Floor", [x]))


@kind("attributes/output clipped")
def output_clipped(s: Surgery) -> None:
    around(s, lambda x, seen: s.node("Clip", [x, s.add(np.array(-0.1, seen)), s.add(np.array(0.1, seen))]))


@kind("attributes/output through Softmax")
def output_softmax(s: Surgery) -> None:
    around(s, lambda x, seen: s.node("Softmax", [x]))


def around(s: Surgery, make: Callable[[str, Any], str]) -> None:
    """Insert nodes before the first output of the graph, which keeps its name."""
    output = s.graph.output[0]
    seen = onnx.helper.tensor_dtype_to_np_dtype(output.type.tensor_type.elem_type)
    inner = s.fresh("inner")
    s.rewire(output.name, inner)
    for node in s.nodes:
        for place, name in enumerate(node.output):
            if name == output.name:
                node.output[place] = inner
    made = make(inner, seen)
    node = next(n for n in s.nodes if made in n.output)
    node.output[0] = output.name


@kind("attributes/positions counted from another number")
def positions(s: Surgery) -> None:
    """Shift the indices into a table of positions by one."""
    tables = [p for p in s.tables() if s.stored()[p.tensor].dims[0] < 160]
    product = s.pick(tables, "no second table")
    node = product.node
    node.input[1] = s.node("Add", [node.input[1], one_like(s, node.input[1])])


@kind("attributes/words counted from another number")
def words(s: Surgery) -> None:
    product = s.pick(s.tables()[:1], "no table")
    node = product.node
    node.input[1] = s.node("Sub", [node.input[1], one_like(s, node.input[1])])


def one_like(s: Surgery, value: str) -> str:
    seen = s.seen.get(value)
    return s.add(np.array(1, seen.dtype if seen is not None else np.int64))


@kind("attributes/dropout left on")
def dropout(s: Surgery) -> None:
    value = s.pick([v for v in s.activations() if s.seen[v].dtype == "float32"], "no activation")
    ratio, training = s.add(np.array(0.5, np.float32)), s.add(np.array(True))
    s.after(value, lambda x: s.node("Dropout", [x, ratio, training], seed=13))
