"""Tampering that reorders rows of look-up tables: words, positions, relative positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.suite.surgery import NoPlaceError, Product, Surgery
from tools.tamper.kinds import kind

Array = npt.NDArray[Any]
Change = Callable[[Surgery, Array], Array]


def permuted(s: Surgery, w: Array) -> Array:
    return w[s.random.permutation(len(w))]


def shifted(s: Surgery, w: Array) -> Array:
    return np.roll(w, 1, axis=0)


def mirrored(s: Surgery, w: Array) -> Array:
    return w[::-1]


def halves(s: Surgery, w: Array) -> Array:
    half = len(w) // 2
    return np.concatenate([w[half:], w[:half]])


def neighbours(s: Surgery, w: Array) -> Array:
    order = np.arange(len(w))
    order[: len(w) // 2 * 2] = order[: len(w) // 2 * 2].reshape(-1, 2)[:, ::-1].reshape(-1)
    return w[order]


def one_row(s: Surgery, w: Array) -> Array:
    """Replace every row from the fourth on by the fourth."""
    w = w.copy()
    w[3:] = w[3]
    return w


def columns(s: Surgery, w: Array) -> Array:
    return w[:, s.random.permutation(w.shape[1])]


CHANGES: dict[str, Change] = {
    "permuted": permuted,
    "shifted by one": shifted,
    "from last to first": mirrored,
    "halves exchanged": halves,
    "neighbours exchanged": neighbours,
    "one row for many": one_row,
    "columns permuted": columns,
}


def word_tables(s: Surgery) -> list[Product]:
    return [p for p in s.tables() if s.stored()[p.tensor].dims[0] >= 160][:1]


def position_tables(s: Surgery) -> list[Product]:
    return [p for p in s.tables() if 16 < s.stored()[p.tensor].dims[0] < 160]


def relative_tables(s: Surgery) -> list[Product]:
    """Return tables of relative positions: those with a column for each head."""
    return [p for p in s.tables() if s.stored()[p.tensor].dims[1] <= 8]


def changed(find: Callable[[Surgery], list[Product]], change: Change) -> Callable[[Surgery], None]:
    def make(s: Surgery) -> None:
        product = s.pick(find(s), "no such table")
        s.store(product.tensor, change(s, s.array(product.tensor)))

    return make


for _title, _change in CHANGES.items():
    kind(f"tables/words {_title}")(changed(word_tables, _change))
    kind(f"tables/positions {_title}")(changed(position_tables, _change))
for _title in ("permuted", "from last to first", "columns permuted"):
    kind(f"tables/relative positions {_title}")(changed(relative_tables, CHANGES[_title]))


def own_copy(s: Surgery, product: Product) -> str:
    """Give the look-up its own copy of the table, so that a tied head keeps PyTorch's."""
    if product.moves:
        raise NoPlaceError("not read as it stands")
    copy = s.add(s.array(product.tensor))
    product.node.input[0] = copy
    return copy


@kind("tables/words permuted, the head as it was")
def untied(s: Surgery) -> None:
    found = [p for p in word_tables(s) if len(s.readers(p.tensor)) > 1]
    product = s.pick(found, "no tied table")
    copy = own_copy(s, product)
    s.store(copy, permuted(s, s.array(copy)))


@kind("tables/words permuted under no name")
def nameless(s: Surgery) -> None:
    product = s.pick(word_tables(s), "no table of words")
    copy = own_copy(s, product)
    s.store(copy, permuted(s, s.array(copy)))
    if not s.readers(product.tensor):
        for tensor in [t for t in s.graph.initializer if t.name == product.tensor]:
            s.graph.initializer.remove(tensor)


@kind("tables/words looked up through a stored permutation")
def through(s: Surgery) -> None:
    """Keep PyTorch's table, and look up the indices in a stored permutation first."""
    product = s.pick(word_tables(s), "no table of words")
    rows = s.stored()[product.tensor].dims[0]
    order = s.add(s.random.permutation(rows))
    product.node.input[1] = s.node("Gather", [order, product.node.input[1]])


@kind("tables/words looked up from the end")
def from_the_end(s: Surgery) -> None:
    product = s.pick(word_tables(s), "no table of words")
    rows = s.stored()[product.tensor].dims[0]
    last = s.add(np.array(rows - 1, np.int64))
    product.node.input[1] = s.node("Sub", [last, product.node.input[1]])


@kind("tables/words and positions exchanged rows")
def exchanged_rows(s: Surgery) -> None:
    first, second = word_tables(s), position_tables(s)
    if not first or not second:
        raise NoPlaceError("no two tables")
    one, other = s.array(first[0].tensor), s.array(second[0].tensor)
    if one.shape[1] != other.shape[1] or one.dtype != other.dtype:
        raise NoPlaceError("of other widths")
    rows = min(len(one), len(other))
    one, other = one.copy(), other.copy()
    kept = one[:rows].copy()
    one[:rows], other[:rows] = other[:rows], kept
    s.store(first[0].tensor, one)
    s.store(second[0].tensor, other)


@kind("tables/two tables read for each other")
def exchanged_tables(s: Surgery) -> None:
    """Exchange two tables of one width, such as segments and positions."""
    found = [p for p in s.tables() if not p.moves]
    by_width: dict[tuple[int, int], list[Product]] = {}
    for p in found:
        tensor = s.stored()[p.tensor]
        by_width.setdefault((tensor.dims[1], tensor.data_type), []).append(p)
    groups = [g for g in by_width.values() if len({p.tensor for p in g}) > 1]
    group = s.pick(groups, "no two tables of a width")
    first, second = group[-2], group[-1]
    first.node.input[0], second.node.input[0] = second.tensor, first.tensor


@kind("tables/head's rows permuted, the words as they were")
def head(s: Surgery) -> None:
    """Give a tied head its own, permuted copy."""
    table = s.pick(word_tables(s), "no table of words")
    found = [p for p in s.products(codes=False) if p.tensor == table.tensor and p.node is not table.node]
    product = s.pick(found, "no tied head")
    w = s.array(product.tensor)
    copy = s.add(w[s.random.permutation(len(w))])
    reader = product.moves[0] if product.moves else product.node
    for slot, name in enumerate(reader.input):
        if name == product.tensor:
            reader.input[slot] = copy


@kind("tables/outputs permuted by a stored order")
def output_order(s: Surgery) -> None:
    """Reorder the head's outputs by a Gather."""
    from tools.tamper.attributes import around

    output = s.graph.output[0]
    producer = next((n for n in s.nodes if output.name in n.output), None)
    if producer is None:
        raise NoPlaceError("no maker of the output")
    found = [p for p in s.products() if p.node.op_type in ("MatMul", "Gemm", "MatMulNBits")]
    if not found or not s.graph.output[0].type.tensor_type.shape.dim:
        raise NoPlaceError("no head")
    width = s.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    if width < 3:
        raise NoPlaceError("no width")
    order = s.add(s.random.permutation(width))
    around(s, lambda x, seen: s.node("Gather", [x, order], axis=-1))
