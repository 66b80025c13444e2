"""A node, and the nodes before it -> whether it only returns zeros for what a mask of attention hides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from analyzer.model import Node
from analyzer.verify.algebra.values import LOWEST

_AXES = 1
"""Input of a reduction that gives its axes."""


def is_guard(node: Node, makers: Mapping[str, Node], numbers: Callable[[str], Any]) -> bool:
    """Return whether a Where chooses zeros in place of a product, in the rows whose keys are all hidden.

    Transformers adds such nodes (`transformers.exporters.exporter_onnx`): they count the truths of a mask along the
    keys, and the same truths mask the scores of which the product takes a softmax.

    Args:
        node: the node.
        makers: node that computes a value, by the value's name.
        numbers: function that returns the numbers of a value, by its name; None if it depends on an input.
    """

    def made(name: str, op_type: str) -> Node | None:
        found = makers.get(name)
        return found if found is not None and found.is_standard and found.op_type == op_type else None

    def is_all(name: str, holds: Callable[[Any], Any]) -> bool:
        found = numbers(name)
        return found is not None and bool(np.all(holds(np.asarray(found, np.float64))))

    if node.op_type != "Where" or not is_all(node.inputs[1], lambda each: each == 0):
        return False
    less = made(node.inputs[0], "Less")
    count = (
        made(less.inputs[0], "ReduceSum") if less and is_all(less.inputs[1], lambda each: each == 1) else None
    )
    product = made(node.inputs[2], "MatMul")
    shares = made(product.inputs[0], "Softmax") if product else None
    scores = made(shares.inputs[0], "Add") if shares and shares.integers.get("axis", -1) == -1 else None
    if count is None or scores is None or not is_all(count.inputs[_AXES], lambda each: each.tolist() == [-1]):
        return False
    shown = made(count.inputs[0], "Cast")
    for mask in (made(name, "Mul") for name in scores.inputs):
        for one, other in (mask.inputs, mask.inputs[::-1]) if mask else ():
            cast = made(one, "Cast") if is_all(other, lambda each: each <= LOWEST) else None
            hidden = made(cast.inputs[0], "Not") if cast else None
            if shown and hidden and hidden.inputs[0] == shown.inputs[0]:
                return True
    return False
