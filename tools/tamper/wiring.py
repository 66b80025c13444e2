"""Tampering in which every weight is right and live, but is in another's place, or runs twice or never."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import onnx

from tools.suite.surgery import NoPlaceError, Product, Surgery, captured
from tools.tamper.kinds import kind
from tools.tamper.unread import early_late_pairs, residuals, same_size, without_later_term

NORMS = ("LayerNormalization", "BatchNormalization")
LAYER = re.compile(r"(?:layers?|h|blocks?|block|stages)[._/](\d+)")


def exchange(first: Product, second: Product) -> None:
    """Exchange two nodes' weights, with the nodes that move them, their scales and zero points."""
    one, other = first.node.input[first.slot], second.node.input[second.slot]
    first.node.input[first.slot], second.node.input[second.slot] = other, one
    if first.node.op_type == second.node.op_type == "MatMulNBits":
        for slot in (2, 3):
            if slot < len(first.node.input) and slot < len(second.node.input):
                a, b = first.node.input[slot], second.node.input[slot]
                first.node.input[slot], second.node.input[slot] = b, a
    if first.node.op_type == second.node.op_type and first.node.op_type in ("MatMulInteger", "ConvInteger"):
        a, b = first.node.input[3:4], second.node.input[3:4]
        if a and b:
            first.node.input[3], second.node.input[3] = b[0], a[0]


def same_shape_groups(s: Surgery) -> list[list[Product]]:
    """Return groups of several products of one shape."""
    found: dict[tuple[Any, ...], list[Product]] = defaultdict(list)
    for product in s.products():
        tensor = s.stored()[product.tensor]
        key = (product.node.op_type, product.slot, tuple(tensor.dims), len(product.moves))
        found[key].append(product)
    return [group for group in found.values() if len({p.tensor for p in group}) > 1]


def matching(s: Surgery, products: Iterable[Product], pattern: str) -> list[Product]:
    return [p for p in products if re.search(pattern, f"{p.tensor} {p.node.name} {notes(p.node)}")]


def notes(node: Any) -> str:
    return " ".join(
        prop.value for prop in node.metadata_props if "scopes" in prop.key or "namespace" in prop.key
    )


@kind("wiring/two weights of a shape exchanged")
def weights(s: Surgery) -> None:
    group = s.pick(same_shape_groups(s), "no two of a shape")
    order = s.random.permutation(len(group))
    first = group[order[0]]
    exchange(first, s.pick([p for p in group if p.tensor != first.tensor]))


@kind("wiring/next layer's weight and this one's exchanged")
def next_layer(s: Surgery) -> None:
    group = s.pick(same_shape_groups(s), "no two of a shape")
    exchange(group[0], next(p for p in group if p.tensor != group[0].tensor))


@kind("wiring/weights of a shape moved round by one")
def round_by_one(s: Surgery) -> None:
    group = s.pick([g for g in same_shape_groups(s) if len(g) > 2], "no three of a shape")
    for first, second in pairwise(group):
        exchange(first, second)


Q, K = r"(?:^|[._/])(q|query|q_proj)(?=[._/ ]|$)", r"(?:^|[._/])(k|key|k_proj)(?=[._/ ]|$)"
V, O = r"(?:^|[._/])(v|value|v_proj)(?=[._/ ]|$)", r"(?:^|[._/])(o|out|o_proj|output)(?=[._/ ]|$)"  # noqa: E741


def pair(s: Surgery, first: str, second: str) -> tuple[Product, Product]:
    for group in same_shape_groups(s):
        ones, others = matching(s, group, first), matching(s, group, second)
        others = [p for p in others if p not in ones]
        if ones and others:
            return ones[0], others[0]
    raise NoPlaceError("no such pair by name")


@kind("wiring/query and key exchanged")
def query_key(s: Surgery) -> None:
    exchange(*pair(s, Q, K))


@kind("wiring/key and value exchanged")
def key_value(s: Surgery) -> None:
    exchange(*pair(s, K, V))


@kind("wiring/query and output exchanged")
def query_output(s: Surgery) -> None:
    exchange(*pair(s, Q, O))


@kind("wiring/gate and up exchanged")
def gate_up(s: Surgery) -> None:
    exchange(*pair(s, r"gate_proj", r"up_proj"))


@kind("wiring/parts of a packed projection exchanged")
def packed(s: Surgery) -> None:
    reached = s.from_inputs()
    found = [n for n in s.nodes if n.op_type == "Split" and n.input[0] in reached and len(n.output) == 3]
    node = s.pick(found, "no Split in three")
    first, second = node.output[0], node.output[1]
    node.output[0], node.output[1] = second, first


@kind("wiring/queries read as keys")
def scores_turned(s: Surgery) -> None:
    """Exchange the two activations that a MatMul multiplies."""
    reached, stored = s.from_inputs(), s.stored()
    found = [
        n
        for n in s.nodes
        if n.op_type == "MatMul"
        and all(v in reached and v not in stored for v in n.input)
        and same_size(s, *n.input)
        and n.input[0] != n.input[1]
    ]
    node = s.pick(found, "no product of activations of one size")
    first, second = node.input
    node.input[0], node.input[1] = second, first


def vectors(s: Surgery, *op_types: str) -> list[list[Product]]:
    found: dict[tuple[Any, ...], list[Product]] = defaultdict(list)
    for vector in s.vectors(*op_types):
        dims = tuple(s.stored()[vector.tensor].dims)
        found[vector.node.op_type, vector.slot, dims].append(vector)
    return [group for group in found.values() if len({p.tensor for p in group}) > 1]


@kind("wiring/two biases exchanged")
def biases(s: Surgery) -> None:
    group = s.pick(vectors(s, "Add", "Gemm", "Conv"), "no two biases")
    exchange(group[0], next(p for p in group if p.tensor != group[0].tensor))


@kind("wiring/first and last bias exchanged")
def far_biases(s: Surgery) -> None:
    group = s.pick(vectors(s, "Add", "Gemm", "Conv"), "no two biases")
    exchange(group[0], next(p for p in reversed(group) if p.tensor != group[0].tensor))


@kind("wiring/gains of two norms exchanged")
def gains(s: Surgery) -> None:
    group = s.pick(vectors(s, "LayerNormalization", "Mul", "SimplifiedLayerNormalization"), "no two norms")
    exchange(group[0], next(p for p in group if p.tensor != group[0].tensor))


@kind("wiring/two norms exchanged whole")
def norms(s: Surgery) -> None:
    found: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    stored = s.stored()
    for node in s.nodes:
        if node.op_type in NORMS and len(node.input) > 2 and node.input[1] in stored:
            found[node.op_type, tuple(stored[node.input[1]].dims), len(node.input)].append(node)
    group = s.pick([nodes for nodes in found.values() if len(nodes) > 1], "no two norms")
    first, second = group[0], group[-1]
    if first.input[1] == second.input[1]:
        raise NoPlaceError("they share it")
    for slot in range(1, len(first.input)):
        first.input[slot], second.input[slot] = second.input[slot], first.input[slot]


@kind("wiring/a norm's gain read as its bias")
def gain_as_bias(s: Surgery) -> None:
    found = [n for n in s.nodes if n.op_type == "LayerNormalization" and len(n.input) > 2 and n.input[2]]
    node = s.pick(found, "no norm with a bias")
    gain, bias = node.input[1], node.input[2]
    node.input[1], node.input[2] = bias, gain


@kind("wiring/mean and variance of a BatchNorm exchanged")
def statistics(s: Surgery) -> None:
    node = s.pick([n for n in s.nodes if n.op_type == "BatchNormalization"], "no BatchNorm")
    mean, variance = node.input[3], node.input[4]
    node.input[3], node.input[4] = variance, mean


# Segments: the nodes between two values of one size


def ancestors(s: Surgery, value: str, producers: dict[str, Any]) -> dict[str, Any]:
    """Return the nodes that a value depends on, by their first output."""
    found: dict[str, Any] = {}
    todo = [value]
    while todo:
        node = producers.get(todo.pop())
        if node is None or node.output[0] in found:
            continue
        found[node.output[0]] = node
        todo += [*node.input, *captured(node)]
    return found


def segments(s: Surgery) -> list[tuple[str, str, list[Any]]]:
    """Return first value, last value and the nodes between, with at least one product; values are residual sums."""
    stream = [n.output[0] for n in residuals(s)]
    producers = s.producers()
    ancestors_of = {value: ancestors(s, value, producers) for value in stream}
    product_outputs = {p.node.output[0] for p in s.products()}
    found = []
    for first in stream:
        for last in stream:
            if first == last or first not in ancestors_of[last] or not same_size(s, first, last):
                continue
            reached = {first}
            between = []
            for node in s.nodes:
                if node.output and node.output[0] in ancestors_of[last] and reached & {*node.input}:
                    reached |= {*node.output}
                    between.append(node)
            if len(product_outputs & {n.output[0] for n in between}) >= 1:
                found.append((first, last, between))
    return found


def pick_shortest(s: Surgery) -> tuple[str, str, list[Any]]:
    found = segments(s)
    if not found:
        raise NoPlaceError("no residual stream")
    least = min(len(nodes) for *_, nodes in found)
    chosen: tuple[str, str, list[Any]] = s.pick([f for f in found if len(f[2]) == least])
    return chosen


def repeat(s: Surgery, first: str, last: str, nodes: list[Any], times: int = 1) -> None:
    """Run the nodes again on their own result, with the same weights."""
    readers = [(n, slot) for n, slot in s.readers(last) if n.output[0] not in {m.output[0] for m in nodes}]
    if any(output.name == last for output in s.graph.output):
        raise NoPlaceError("an output of the graph")
    value = last
    for _ in range(times):
        names = {first: value}
        for node in nodes:
            copy = onnx.NodeProto.FromString(node.SerializeToString())
            copy.name = s.fresh(f"{node.name}_again")
            for place, name in enumerate(node.output):
                if name:
                    names[name] = s.fresh(f"{name}_again")
                    copy.output[place] = names[name]
            for place, name in enumerate(node.input):
                copy.input[place] = names.get(name, name)
            s.graph.node.append(copy)
        value = names[last]
    for node, slot in readers:
        node.input[slot] = value


@kind("wiring/half a layer applied twice")
def twice(s: Surgery) -> None:
    repeat(s, *pick_shortest(s))


@kind("wiring/layer applied twice")
def layer_twice(s: Surgery) -> None:
    found = sorted(segments(s), key=lambda f: len(f[2]))
    if len(found) < 2:
        raise NoPlaceError("no layer")
    repeat(s, *found[len(found) // 2])


@kind("wiring/all layers applied twice")
def all_twice(s: Surgery) -> None:
    found = sorted(segments(s), key=lambda f: len(f[2]))
    if not found:
        raise NoPlaceError("no layer")
    repeat(s, *found[-1])


@kind("wiring/half a layer applied four times")
def four_times(s: Surgery) -> None:
    repeat(s, *pick_shortest(s), times=3)


@kind("wiring/half a layer skipped")
def skipped(s: Surgery) -> None:
    first, last, nodes = pick_shortest(s)
    inside = {n.output[0] for n in nodes}
    for node, slot in s.readers(last):
        if node.output[0] not in inside:
            node.input[slot] = first


@kind("wiring/layer skipped")
def layer_skipped(s: Surgery) -> None:
    found = sorted(segments(s), key=lambda f: len(f[2]))
    if len(found) < 2:
        raise NoPlaceError("no layer")
    first, last, nodes = found[len(found) // 2]
    inside = {n.output[0] for n in nodes}
    for node, slot in s.readers(last):
        if node.output[0] not in inside:
            node.input[slot] = first


@kind("wiring/layer halved: the mean with what it was given")
def averaged(s: Surgery) -> None:
    first, last, _ = pick_shortest(s)
    s.after(last, lambda x: s.node("Mean", [x, first]))


@kind("wiring/two layers' weights exchanged whole")
def layers(s: Surgery) -> None:
    by_layer: dict[str, list[Product]] = defaultdict(list)
    for product in [*s.products(), *s.vectors("Add", *NORMS, "Mul")]:
        match = (
            LAYER.search(product.tensor)
            or LAYER.search(product.node.name)
            or LAYER.search(notes(product.node))
        )
        if match:
            by_layer[match[0]].append(product)
    groups = [group for group in by_layer.values() if len(group) > 3]
    for first in groups:
        for second in groups:
            shapes = [[tuple(s.stored()[p.tensor].dims) for p in group] for group in (first, second)]
            if first is not second and shapes[0] == shapes[1]:
                for one, other in zip(first, second, strict=True):
                    exchange(one, other)
                return
    raise NoPlaceError("no two layers alike by name")


@kind("wiring/skip connection from another layer")
def other_skip(s: Surgery) -> None:
    found = residuals(s)
    if len(found) < 3:
        raise NoPlaceError("no three residuals")
    node = found[-1]
    early = [n.output[0] for n in found[:-2] if same_size(s, n.output[0], node.input[0])]
    node.input[0] = s.pick(early, "none of the size")


@kind("wiring/residual added twice")
def residual_twice(s: Surgery) -> None:
    node = s.pick(residuals(s), "no residual")
    value = node.input[0]
    s.after(node.output[0], lambda x: s.node("Add", [x, value]))


@kind("wiring/head reads an earlier layer too")
def early_exit(s: Surgery) -> None:
    """Subtract the first activation of the residual stream from the last."""
    found = residuals(s)
    if len(found) < 2 or not same_size(s, found[0].output[0], found[-1].output[0]):
        raise NoPlaceError("no stream")
    first = found[0].output[0]
    s.after(found[-1].output[0], lambda x: s.node("Sub", [x, first]))


@kind("wiring/activation negated")
def negated(s: Surgery) -> None:
    s.after(s.pick(s.activations(), "no activation"), lambda x: s.node("Neg", [x]))


@kind("wiring/activation reversed along its channels")
def reversed_channels(s: Surgery) -> None:
    value = s.pick(s.activations(), "no activation")
    axis = 1 if s.is_image(value) else len(s.seen[value].shape) - 1
    bounds = [s.add(np.array([v], np.int64)) for v in (-1, -(2**31), axis, -1)]
    s.after(value, lambda x: s.node("Slice", [x, *bounds]))


@kind("wiring/another activation before a product")
def tanh_before_product(s: Surgery) -> None:
    found = [p for p in s.products() if p.node.op_type in ("MatMul", "Gemm", "Conv") and p.slot == 1]
    product = s.pick(found, "no product")
    product.node.input[0] = s.node("Tanh", [product.node.input[0]])


@kind("wiring/product applied twice")
def product_twice(s: Surgery) -> None:
    found = [
        p
        for p in s.products()
        if p.node.op_type == "MatMul" and same_size(s, p.node.input[0], p.node.output[0])
    ]
    product = s.pick(found, "no product of equal sizes")
    weight = product.node.input[1]
    s.after(product.node.output[0], lambda x: s.node("MatMul", [x, weight]))


@kind("wiring/a weight put to a second use")
def second_use(s: Surgery) -> None:
    """Add a path of the adversary's own, with PyTorch's weights and no others."""
    from tools.tamper.carriers import shaped
    from tools.tamper.planted import add_product

    value = s.pick([v for v in s.activations() if s.seen[v].dtype == "float32"], "no activation")
    size = s.channels(value) ** 2
    names = sorted({p.tensor for p in s.products(codes=False)})
    name = s.pick(
        [n for n in names if s.array(n).size >= size and s.array(n).dtype == np.float32], "no large weight"
    )

    def part(z: Surgery, shape: tuple[int, ...]) -> str:
        bounds = [z.add(np.array([v], np.int64)) for v in (0, size)]
        return shaped(z, z.node("Slice", [shaped(z, name, (-1,)), *bounds]), shape)

    add_product(s, value, part)


@kind("wiring/a sum's later term left out")
def term(s: Surgery) -> None:
    """Leave out a term, with weights behind it or not: a mask, a residual branch, half of a rotation."""
    s.rewire(*without_later_term(s, s.pick(residuals(s), "no sum"), s.producers()))


@kind("wiring/late activation replaced by an early one")
def late(s: Surgery) -> None:
    s.rewire(*s.pick(early_late_pairs(s), "no early one of the size"))
