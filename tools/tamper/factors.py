"""A function of the weights stored in their place, which the graph does not undo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.suite.surgery import NotApplicable, Product, Surgery
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


def apply(s: Surgery, names: list[str], function: Function) -> None:
    """Store the function of each tensor, in its own type."""
    for name in names:
        w = s.array(name)
        s.store(name, np.asarray(function(w.astype(np.float64))).astype(w.dtype))


def weights(s: Surgery) -> list[str]:
    found = [p.tensor for p in s.products(codes=False)]
    if not found:
        raise NotApplicable("no float weight")
    return [*dict.fromkeys(found)]


def vectors(s: Surgery) -> list[str]:
    found: list[Product] = s.vectors("LayerNormalization", "BatchNormalization", "Mul", "Add", "Conv", "Gemm")
    if not found:
        raise NotApplicable("no vector")
    return [*dict.fromkeys(p.tensor for p in found)]


def one(function: Function) -> Callable[[Surgery], None]:
    return lambda s: apply(s, [s.pick(weights(s))], function)


def every(function: Function) -> Callable[[Surgery], None]:
    return lambda s: apply(s, weights(s), function)


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
            raise NotApplicable("no scales")
        for name in found if several else [s.pick(found)]:
            s.store(name, (s.array(name) * factor).astype(s.array(name).dtype))

    return make


kind("folded-factor/2 w in the scales of one weight")(with_scales(2.0, several=False))
kind("folded-factor/w / sqrt(8) in the scales of one weight")(with_scales(8**-0.5, several=False))
kind("folded-factor/w / sqrt(8) in every scale")(with_scales(8**-0.5, several=True))
kind("folded-factor/-w in the scales of one weight")(with_scales(-1.0, several=False))


def at_run_time(op_type: str) -> Callable[[Surgery], None]:
    """The stored weight is PyTorch's; a node computes the function on the way to the product."""

    def make(s: Surgery) -> None:
        product = s.pick(s.products(codes=False), "no float weight")
        product.node.input[product.slot] = s.node(op_type, [product.node.input[product.slot]])

    return make


for _op in ("Exp", "Neg", "Abs", "Tanh", "Relu"):
    kind(f"folded-factor/{_op} of a weight at run time")(at_run_time(_op))


def scaled_at_run_time(factor: float) -> Callable[[Surgery], None]:
    def make(s: Surgery) -> None:
        product = s.pick(s.products(codes=False), "no float weight")
        scalar = s.add(np.array(factor, s.array(product.tensor).dtype))
        product.node.input[product.slot] = s.node("Mul", [product.node.input[product.slot], scalar])

    return make


kind("folded-factor/2 w at run time")(scaled_at_run_time(2.0))
kind("folded-factor/w / sqrt(8) at run time")(scaled_at_run_time(8**-0.5))
