"""Tampering in which nodes move a weight's elements, or mix two weights, before the product."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tools.suite.surgery import NoPlaceError, Product, Surgery
from tools.tamper.kinds import kind
from tools.tamper.unread import NORMS

_FARTHEST = -(1 << 40)
"""End of a Slice that goes backwards."""


def numbers(s: Surgery, *values: int) -> str:
    return s.add(np.array(values, np.int64))


def reverse_rows(s: Surgery, x: str) -> str:
    """Reverse the rows."""
    return s.node("Slice", [x, numbers(s, -1), numbers(s, _FARTHEST), numbers(s, 0), numbers(s, -1)])


def roll_rows(s: Surgery, x: str, first: int, size: int) -> str:
    """Roll the rows: those from `first` on, then those before."""
    parts = [
        s.node("Slice", [x, numbers(s, start), numbers(s, stop), numbers(s, 0)])
        for start, stop in ((first, size), (0, first))
    ]
    return s.node("Concat", parts, axis=0)


def matrices(s: Surgery) -> list[Product]:
    return [
        p
        for p in s.products(codes=False)
        if p.node.op_type in ("MatMul", "Gemm") and len(s.stored()[p.tensor].dims) == 2
    ]


def through(s: Surgery, change: Callable[[str, tuple[int, ...]], str]) -> None:
    """Put nodes between one matrix and its product."""
    product = s.pick(matrices(s), "no matrix")
    value = product.node.input[product.slot]
    shape = s.seen[value].shape if value in s.seen else s.array(product.tensor).shape
    product.node.input[product.slot] = change(value, tuple(shape))


@kind("hollow/weight turned round by Slice")
def turned(s: Surgery) -> None:
    through(s, lambda x, _: reverse_rows(s, x))


@kind("hollow/weight rolled by Slice and Concat")
def rolled(s: Surgery) -> None:
    through(s, lambda x, shape: roll_rows(s, x, 3, shape[0]))


@kind("hollow/weight cut anew by Transpose and Reshape")
def transposed_and_reshaped(s: Surgery) -> None:
    through(
        s, lambda x, shape: s.node("Reshape", [s.node("Transpose", [x], perm=[1, 0]), numbers(s, *shape)])
    )


@kind("hollow/weight with a row written over another")
def overwritten(s: Surgery) -> None:
    def change(x: str, shape: tuple[int, ...]) -> str:
        row = s.node("Slice", [x, numbers(s, 1), numbers(s, 2), numbers(s, 0)])
        return s.node("ScatterElements", [x, s.add(np.zeros((1, shape[1]), np.int64)), row], axis=0)

    through(s, change)


@kind("hollow/weight gathered in another order")
def gathered(s: Surgery) -> None:
    through(
        s,
        lambda x, shape: s.node(
            "Gather", [x, s.add(s.random.permutation(shape[0]).astype(np.int64))], axis=0
        ),
    )


@kind("hollow/weight summed up along an axis")
def summed(s: Surgery) -> None:
    through(s, lambda x, _: s.node("CumSum", [x, s.add(np.array(0, np.int64))]))


@kind("hollow/weight cut down to a triangle")
def triangle(s: Surgery) -> None:
    through(s, lambda x, _: s.node("Trilu", [x]))


@kind("hollow/weight clipped at run time")
def clipped(s: Surgery) -> None:
    product = s.pick(matrices(s), "no matrix")
    bound = np.abs(s.array(product.tensor)).mean()
    value = product.node.input[product.slot]
    limits = [s.add(np.array(side * bound, s.array(product.tensor).dtype)) for side in (-1, 1)]
    product.node.input[product.slot] = s.node("Clip", [value, *limits])


def pair(s: Surgery) -> tuple[Product, Product]:
    """Return two matrices of one shape, each stored as it is multiplied."""
    plain = [p for p in matrices(s) if not p.moves]
    for one in plain:
        for other in plain:
            if one.tensor != other.tensor and s.array(one.tensor).shape == s.array(other.tensor).shape:
                return one, other
    raise NoPlaceError("no two matrices of a shape")


@kind("hollow/sum of two weights in one's place")
def added(s: Surgery) -> None:
    one, other = pair(s)
    one.node.input[one.slot] = s.node("Add", [one.tensor, other.tensor])


@kind("hollow/larger of two weights in one's place")
def larger(s: Surgery) -> None:
    one, other = pair(s)
    chosen = s.node("Greater", [one.tensor, other.tensor])
    one.node.input[one.slot] = s.node("Where", [chosen, one.tensor, other.tensor])


def through_vector(s: Surgery, change: Callable[[str, int], str]) -> None:
    """Put nodes between one gain or bias and the node that reads it."""
    found = s.vectors("Add", "Mul", "Gemm", "Conv", *NORMS)
    found = [v for v in found if len(s.stored()[v.tensor].dims) == 1]
    vector = s.pick(found, "no vector")
    value = vector.node.input[vector.slot]
    vector.node.input[vector.slot] = change(value, int(s.stored()[vector.tensor].dims[0]))


@kind("hollow/vector turned round by Slice")
def vector_turned(s: Surgery) -> None:
    through_vector(s, lambda x, _: reverse_rows(s, x))


@kind("hollow/vector rolled by Slice and Concat")
def vector_rolled(s: Surgery) -> None:
    through_vector(s, lambda x, size: roll_rows(s, x, 3, size))


@kind("hollow/vector gathered in another order")
def vector_gathered(s: Surgery) -> None:
    through_vector(
        s, lambda x, size: s.node("Gather", [x, s.add(s.random.permutation(size).astype(np.int64))], axis=0)
    )


@kind("hollow/vector's halves exchanged")
def vector_halved(s: Surgery) -> None:
    through_vector(s, lambda x, size: roll_rows(s, x, size // 2, size))


@kind("hollow/vector's first element for all")
def vector_first(s: Surgery) -> None:
    def change(x: str, size: int) -> str:
        first = s.node("Slice", [x, numbers(s, 0), numbers(s, 1), numbers(s, 0)])
        return s.node("Expand", [first, numbers(s, size)])

    through_vector(s, change)


@kind("hollow/vector cut anew by Transpose and Reshape")
def vector_cut(s: Surgery) -> None:
    def change(x: str, size: int) -> str:
        if size % 2:
            raise NoPlaceError("an odd number of elements")
        table = s.node("Reshape", [x, numbers(s, 2, size // 2)])
        return s.node("Reshape", [s.node("Transpose", [table], perm=[1, 0]), numbers(s, size)])

    through_vector(s, change)


@kind("hollow/vector clipped at run time")
def vector_clipped(s: Surgery) -> None:
    def change(x: str, _: int) -> str:
        return s.node("Clip", [x, "", s.add(np.array(0.01, dtype_of(s, x)))])

    through_vector(s, change)


@kind("hollow/vector through Tanh")
def vector_tanh(s: Surgery) -> None:
    through_vector(s, lambda x, _: s.node("Tanh", [x]))


def dtype_of(s: Surgery, value: str) -> np.dtype[np.floating]:
    stored = s.stored()
    return s.array(value).dtype if value in stored else np.dtype(s.seen[value].dtype)


@kind("hollow/sum of two vectors in one's place")
def vectors_added(s: Surgery) -> None:
    found = [v for v in s.vectors("Add", "Mul", *NORMS) if not v.moves]
    one = s.pick(found, "no vector")
    dims = s.stored()[one.tensor].dims
    others = [v for v in found if v.tensor != one.tensor and s.stored()[v.tensor].dims == dims]
    other = s.pick(others, "no two vectors of a size")
    one.node.input[one.slot] = s.node("Add", [one.tensor, other.tensor])
