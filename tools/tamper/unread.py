"""Tampering that skips a computation, while its weights stay in the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.suite.surgery import NoPlaceError, Surgery
from tools.tamper.kinds import kind

NORMS = ("LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization")


def same_size(s: Surgery, before: str, after: str) -> bool:
    one, other = s.seen.get(before), s.seen.get(after)
    return one is not None and other is not None and one == other


def bypass(s: Surgery, node: Any, value: str, *, remove: bool) -> None:
    """Make the node's readers read its input instead."""
    if any(output.name == node.output[0] for output in s.graph.output):
        raise NoPlaceError("an output of the graph")
    s.rewire(node.output[0], value)
    if remove:
        s.remove(node)


@kind("unread/product bypassed, its node dead")
def bypassed(s: Surgery) -> None:
    found = [(p.node, p.node.input[1 - p.slot]) for p in s.products() if p.slot < 2]
    found = [(n, v) for n, v in found if same_size(s, v, n.output[0])]
    node, value = s.pick(found, "no product of equal sizes")
    bypass(s, node, value, remove=False)


@kind("unread/product bypassed, its node gone")
def bypassed_gone(s: Surgery) -> None:
    found = [(p.node, p.node.input[1 - p.slot]) for p in s.products() if p.slot < 2]
    found = [(n, v) for n, v in found if same_size(s, v, n.output[0])]
    node, value = s.pick(found, "no product of equal sizes")
    bypass(s, node, value, remove=True)


def biases(s: Surgery) -> list[tuple[Any, int]]:
    """Return the Adds of a bias, each with the slot of its other term."""
    outputs = {output.name for output in s.graph.output}
    return [
        (vector.node, 1 - vector.slot)
        for vector in s.vectors("Add")
        if same_size(s, vector.node.input[1 - vector.slot], vector.node.output[0])
        and vector.node.output[0] not in outputs
    ]


@kind("unread/bias Add bypassed, its node dead")
def bias_dead(s: Surgery) -> None:
    node, slot = s.pick(biases(s), "no bias Add")
    bypass(s, node, node.input[slot], remove=False)


@kind("unread/bias Add bypassed, its node gone")
def bias_gone(s: Surgery) -> None:
    node, slot = s.pick(biases(s), "no bias Add")
    bypass(s, node, node.input[slot], remove=True)


@kind("unread/every bias Add bypassed")
def biases_dead(s: Surgery) -> None:
    found = biases(s)
    if not found:
        raise NoPlaceError("no bias Add")
    for node, slot in found:
        bypass(s, node, node.input[slot], remove=False)


@kind("unread/bias of a Gemm or Conv taken off")
def bias_input(s: Surgery) -> None:
    found = [n for n in s.nodes if n.op_type in ("Gemm", "Conv") and len(n.input) > 2 and n.input[2]]
    node = s.pick(found, "no bias input")
    del node.input[2:]


@kind("unread/every bias of a Gemm or Conv taken off")
def bias_inputs(s: Surgery) -> None:
    found = [n for n in s.nodes if n.op_type in ("Gemm", "Conv") and len(n.input) > 2 and n.input[2]]
    if not found:
        raise NoPlaceError("no bias input")
    for node in found:
        del node.input[2:]


@kind("unread/bias of a norm taken off")
def norm_bias(s: Surgery) -> None:
    found = [n for n in s.nodes if n.op_type == "LayerNormalization" and len(n.input) > 2 and n.input[2]]
    node = s.pick(found, "no norm with a bias")
    del node.input[2:]


@kind("unread/norm bypassed")
def norm(s: Surgery) -> None:
    node = s.pick([n for n in s.nodes if n.op_type in NORMS], "no norm")
    bypass(s, node, node.input[0], remove=False)


@kind("unread/gain of a norm bypassed")
def gain(s: Surgery) -> None:
    found = []
    for vector in s.vectors("Mul"):
        value = vector.node.input[1 - vector.slot]
        if same_size(s, value, vector.node.output[0]):
            found.append((vector.node, value))
    node, value = s.pick(found, "no gain")
    bypass(s, node, value, remove=False)


@kind("unread/gain of a norm replaced by computed ones")
def ones_for_gain(s: Surgery) -> None:
    """Replace a norm's gain by a ConstantOfShape of ones."""
    found = [n for n in s.nodes if n.op_type == "LayerNormalization" and s.seen.get(n.output[0]) is not None]
    node = s.pick(found, "no norm")
    from onnx import numpy_helper

    seen = s.seen[node.output[0]]
    one = numpy_helper.from_array(np.ones(1, seen.dtype))
    node.input[1] = s.node("ConstantOfShape", [s.add(np.array(seen.shape[-1:], np.int64))], value=one)


def residuals(s: Surgery) -> list[Any]:
    """Return Adds of two computed values of one size."""
    stored, reached = s.stored(), s.from_inputs()
    return [
        n
        for n in s.nodes
        if n.op_type == "Add"
        and all(name in reached and name not in stored for name in n.input)
        and same_size(s, n.input[0], n.input[1])
        and same_size(s, n.input[0], n.output[0])
        and len(s.seen[n.output[0]].shape) >= 3
    ]


@kind("unread/residual's branch left out")
def branch(s: Surgery) -> None:
    """Replace a sum by its first term, so that the nodes and weights of the second term are dead."""
    cut(s, [without_later_term(s, node, s.producers()) for node in residuals(s)], "no branch with weights")


def without_later_term(s: Surgery, node: Any, producers: dict[str, Any]) -> tuple[str, str]:
    """Return a residual sum, and its term that was computed first."""
    slot = 1 if depth(s, node.input[1], producers) > depth(s, node.input[0], producers) else 0
    return node.output[0], node.input[1 - slot]


def weights_in_use(s: Surgery) -> set[str]:
    """Return the stored tensors that are multiplied, added or looked up, and on which an output depends."""
    found = [*s.products(), *s.tables(), *s.vectors("Add", "Mul", "Gemm", "Conv", *NORMS)]
    return {product.tensor for product in found if product.node.output[0] in s.live()}


def cut(s: Surgery, pairs: Sequence[tuple[str, str]], what: str) -> None:
    """Make the readers of a value read another, at one of these places, so that a weight is no longer read.

    A place where every weight is still read, such as one behind a mask or in half of a rotation, does not count: it
    belongs to the class `wiring`.

    Raises:
        NoPlaceError: there is no such place.
    """
    outputs = {output.name for output in s.graph.output}
    before = weights_in_use(s)
    for place in s.random.permutation(len(pairs)):
        old, new = pairs[place]
        readers = s.readers(old)
        if old in outputs:
            continue
        s.rewire(old, new)
        if weights_in_use(s) < before:
            return
        for node, slot in readers:
            node.input[slot] = old
    raise NoPlaceError(what)


def depth(s: Surgery, value: str, producers: dict[str, Any]) -> int:
    order = {node.output[0]: place for place, node in enumerate(s.nodes) if node.output}
    producer = producers.get(value)
    return order.get(producer.output[0], -1) if producer is not None and producer.output else -1


@kind("unread/every residual's branch left out")
def branches(s: Surgery) -> None:
    producers, found = s.producers(), residuals(s)
    if not found:
        raise NoPlaceError("no residual")
    for node in found:
        s.rewire(*without_later_term(s, node, producers))


@kind("unread/position table's rows not added")
def positions(s: Surgery) -> None:
    tables = [p for p in s.tables() if s.stored()[p.tensor].dims[0] < 160]
    if not tables:
        raise NoPlaceError("no second table")
    product = s.pick(tables)
    adds = [n for n, _ in s.readers(product.node.output[0]) if n.op_type == "Add"]
    node = s.pick(adds, "not added")
    other = next(v for v in node.input if v != product.node.output[0])
    bypass(s, node, other, remove=False)


@kind("unread/weight replaced by one already there")
def replaced(s: Surgery) -> None:
    """Make a product read another layer's weight, so that its own has no reader."""
    by_shape: dict[tuple[Any, ...], list[Any]] = {}
    for p in s.products():
        if p.node.op_type != "MatMulNBits" and not any(m.op_type == "DequantizeLinear" for m in p.moves):
            tensor = s.stored()[p.tensor]
            by_shape.setdefault((tuple(tensor.dims), tensor.data_type, p.node.op_type), []).append(p)
    pairs = [found for found in by_shape.values() if len({p.tensor for p in found}) > 1]
    found = s.pick(pairs, "no two of a shape")
    first, second = found[0], next(p for p in found if p.tensor != found[0].tensor)
    first.node.input[first.slot] = second.node.input[second.slot]


@kind("unread/stack ended early")
def early(s: Surgery) -> None:
    """Replace a late activation by an early one of its size, so that all nodes between are dead."""
    cut(s, early_late_pairs(s), "no early one of the size, or each weight is still read")


def early_late_pairs(s: Surgery) -> list[tuple[str, str]]:
    """Return pairs of one of the last activations and an early one of its size."""
    found = s.activations()
    return [
        (last, value)
        for last in found[-4:]
        for value in found[: len(found) // 3]
        if same_size(s, value, last)
    ]


@kind("unread/bias read by a node that multiplies it with zero")
def bias_zeroed(s: Surgery) -> None:
    found = s.vectors("Add")
    vector = s.pick(found, "no bias Add")
    w = s.array(vector.tensor)
    zero = s.add(np.array(0, w.dtype))
    vector.node.input[vector.slot] = s.node("Mul", [vector.node.input[vector.slot], zero])
