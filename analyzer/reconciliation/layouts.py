"""Shapes of a PyTorch tensor and of a stored one -> orders of axes in which the one can hold the other.

Two layouts of one shape, a square matrix and its transpose, are told apart by names and by the file's operators:
PyTorch's Linear computes x W^T, whichever Transpose, Gemm, MatMul or packed operator an exporter wrote for it.

Tiles are the format in which onnxruntime stores a convolution's weight (MLAS: onnxruntime/core/mlas/lib/reorder.cpp,
MlasReorderFilterOIHWBiBo and -OIHWBo). Output channels form blocks of 8 or 16, as wide as the machine's vectors; the
last block is padded with zeros, and the index within the block is the last axis. Input channels form blocks too, unless
there are fewer than a block of them, or one for each group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from analyzer.account.ledger import Entry
from analyzer.account.scopes import float_name
from analyzer.manifest import Buffer, Parameter, split_name
from analyzer.model import Node, Place, StoredTensor
from analyzer.model.content import Array
from analyzer.model.operators import DECODES, Kind, kind_of, operators_of
from analyzer.model.wiring import Wiring
from analyzer.reconciliation.lines import Line
from analyzer.records import Frozen

_MOST_ELEMENTS = 1 << 62
"""Most elements that positions can count; a header may claim more."""

_MOST_AXES = 5
"""Most axes for which every order is tried."""


class AxisLayout(Frozen):
    """Layout of a PyTorch tensor in the file: its axes permuted, then reshaped to the stored shape."""

    shape: tuple[int, ...]
    """Shape in PyTorch."""
    axes: tuple[int, ...]
    """PyTorch's axes in the file's order."""
    stored: tuple[int, ...]
    window: tuple[int, int] | None = None
    """(axis, start) of the part of the stored tensor that it fills; None for all of it. With a window, `stored` has as
    many axes as `shape`."""

    @property
    def chain(self) -> tuple[Line, ...]:
        """Lines of the layout's changes: none, `transposed`, `reshaped`, or both."""
        order = [axis for axis in self.axes if self.shape[axis] != 1]
        turned = order != sorted(order)
        permuted = tuple(self.shape[axis] for axis in self.axes)
        reshaped = self.window is None and (permuted if turned else self.shape) != self.stored
        return (Line.TRANSPOSED,) * turned + (Line.RESHAPED,) * reshaped

    @property
    def is_plain(self) -> bool:
        """Whether the layout only moves axes, and adds or drops axes of size 1."""
        permuted = [self.shape[axis] for axis in self.axes]
        return _without_ones(permuted) == _without_ones(self.stored)

    @property
    def has_equal_axes(self) -> bool:
        """Whether two axes are equally long, so that another order of axes gives the same shape."""
        long = [dim for dim in self.shape if dim != 1]
        return len(set(long)) < len(long)

    def positions(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the row-major positions in the stored tensor of elements at positions of the PyTorch tensor."""
        is_straight = self.axes == tuple(range(len(self.axes))) and self.window is None
        if is_straight or not self.shape:
            return positions
        index = np.unravel_index(positions, self.shape)
        permuted = [index[axis] for axis in self.axes]
        shape = tuple(self.shape[axis] for axis in self.axes)
        if self.window is not None:
            axis, start = self.window
            permuted[axis] = permuted[axis] + start
            shape = self.stored
        if math.prod(shape) > _MOST_ELEMENTS:  # a false claim: no file holds so many
            return np.zeros_like(positions)
        return np.ravel_multi_index(tuple(permuted), shape).astype(np.int64)

    def restore(self, array: Array) -> Array:
        """Return a view of a stored array in PyTorch's shape."""
        shape = [self.shape[axis] for axis in self.axes]
        if self.window is not None:
            axis, start = self.window
            array = array.reshape(self.stored)
            array = array[(slice(None),) * axis + (slice(start, start + shape[axis]),)]
        permuted = array.reshape(shape)
        return permuted.transpose(np.argsort(self.axes)) if self.axes else permuted


def layouts(shape: tuple[int, ...], stored: tuple[int, ...]) -> Iterator[AxisLayout]:
    """Yield the layouts in which a stored shape may hold a PyTorch shape, likeliest first; none if the sizes differ.

    >>> (
    ...     [layout.axes for layout in layouts((3, 3), (3, 3))],
    ...     [layout.axes for layout in layouts((3, 4), (4, 3))],
    ... )
    ([(0, 1), (1, 0)], [(1, 0)])
    """
    numel = math.prod(shape)
    if numel != math.prod(stored) or numel >= _MOST_ELEMENTS:
        return
    straight = tuple(range(len(shape)))
    first = AxisLayout(shape, straight, stored)
    if first.is_plain:
        yield first
    if len(_without_ones(shape)) >= 2 and len(shape) <= _MOST_AXES:
        wanted = _without_ones(stored)
        seen = {_order(straight, shape)}
        for axes in itertools.permutations(straight):
            order = _order(axes, shape)
            if order not in seen and [shape[axis] for axis in order] == wanted:
                seen.add(order)
                yield AxisLayout(shape, axes, stored)
        merged = _merged(shape, wanted)
        yield from (AxisLayout(shape, axes, stored) for axes in (*merged, *_spread(shape, wanted)))
    if not first.is_plain and sorted(_without_ones(shape)) != sorted(_without_ones(stored)):
        yield first  # a reshape between permuted dims would scramble the tensor
        if len(shape) == 2 and min(shape) > 1:
            yield AxisLayout(shape, (1, 0), stored)


_BILINEAR = (1, 0, 2)
"""Order of the weight's axes (out, in1, in2) in PyTorch's decomposition of `Bilinear`, before it joins the last two."""


def _merged(shape: tuple[int, ...], wanted: list[int]) -> list[tuple[int, ...]]:
    """Return the one order of axes that gives fewer axes of these sizes, some of them joined in PyTorch's order.

    A table of channels, rows and columns becomes one of positions and channels. If several orders give the sizes, the
    one that joins only neighbours counts, or for three axes that of `Bilinear`. If PyTorch's own order gives them too,
    the order is ambiguous, and none is returned.
    """
    long = [axis for axis, size in enumerate(shape) if size != 1]
    if len(long) <= len(wanted) or len(wanted) < 2:
        return []
    found = []
    for axes in itertools.permutations(long):
        if list(axes) == long:
            continue
        groups = _groups([shape[axis] for axis in axes], wanted)
        if groups is None:
            continue
        parts = [axes[start:stop] for start, stop in itertools.pairwise(groups)]
        if all(list(part) == sorted(part) for part in parts):
            found.append(axes)
    if len(found) > 1 and len(shape) == len(_BILINEAR) == len(long):
        found = [axes for axes in found if axes == _BILINEAR]
    elif len(found) > 1:
        is_open = _groups([shape[axis] for axis in long], wanted) is not None
        found = [] if is_open else [axes for axes in found if _joins_neighbours(axes, shape, wanted)]
    ones = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return [(*ones, *axes) for axes in found] if len(found) == 1 else []


def _spread(shape: tuple[int, ...], wanted: list[int]) -> list[tuple[int, ...]]:
    """Return the order of axes that turns a table of positions and channels into one of channels, rows and columns.

    An exporter lays out an image's positions this way to resize them. If PyTorch's own order gives these sizes too, the
    order is ambiguous, and none is returned.
    """
    long = [axis for axis, size in enumerate(shape) if size != 1]
    if len(long) != 2 or len(wanted) <= 2:
        return []
    positions, channels = (shape[axis] for axis in long)
    if wanted[0] != channels or _groups(wanted, [positions, channels]) is not None:
        return []
    ones = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return [(*ones, long[1], long[0])] if _groups(wanted, [channels, positions]) is not None else []


def _joins_neighbours(axes: tuple[int, ...], shape: tuple[int, ...], wanted: list[int]) -> bool:
    """Whether all joined axes are neighbours in PyTorch's order."""
    groups = _groups([shape[axis] for axis in axes], wanted) or []
    parts = (axes[start:stop] for start, stop in itertools.pairwise(groups))
    return all(part[-1] - part[0] == len(part) - 1 for part in parts)


def joins(shape: tuple[int, ...], joined: tuple[int, ...]) -> bool:
    """Whether joining neighbouring axes of the first shape gives the second.

    >>> joins((10, 10, 5), (10, 50)), joins((10, 10, 5), (50, 10))
    (True, False)
    """
    return _groups(list(shape), list(joined)) is not None


def _groups(sizes: list[int], wanted: list[int]) -> list[int] | None:
    """Return the cuts of sizes into parts with the wanted products; None if there are none."""
    cuts, product = [0], 1
    for place, size in enumerate(sizes, 1):
        product *= size
        if len(cuts) > len(wanted) or product > wanted[len(cuts) - 1]:
            return None
        if product == wanted[len(cuts) - 1]:
            cuts.append(place)
            product = 1
    return cuts if len(cuts) == len(wanted) + 1 and product == 1 else None


def _order(axes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return an order of axes without axes of one element, whose place is arbitrary."""
    return tuple(axis for axis in axes if shape[axis] != 1)


def _without_ones(shape: tuple[int, ...] | list[int]) -> list[int]:
    return [dim for dim in shape if dim != 1]


# evidence of names and reading operators on the axes

PACKS_TRANSPOSE = frozenset({"MatMulBnb4", "MatMulNBits"})
"""Products whose second factor is packed as (columns, summed): the transpose of MatMul's matrix."""

_CONVOLUTIONS = operators_of(Kind.CONVOLUTION)
"""Convolutions, whose weight has PyTorch's order of axes."""

_INTEGER_PRODUCTS = frozenset(
    {"DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QLinearMatMul"}
)
"""Integer products, whose weight a quantizer may have transposed when it replaced a Gemm."""


def is_computed(entry: Entry, tensor: Parameter | Buffer) -> bool:
    """Whether a stored tensor does not bear its PyTorch name, so that an exporter computed it."""
    name = float_name(entry.tensor.name)
    return name not in tensor.names and name not in entry.sources


def is_own(entry: Entry, tensor: Parameter | Buffer) -> bool:
    """Whether a stored tensor bears a PyTorch tensor's name, up to a prefix."""
    stored = f".{float_name(entry.tensor.name)}"
    return any(stored.endswith(f".{name}") or f".{name}".endswith(stored) for name in tensor.names)


def is_turned(entry: Entry, wiring: Wiring, *, is_computed: bool) -> bool:
    """Whether a matrix is presumably the transpose of PyTorch's, by its name and its reading operator."""
    if entry.read_by in PACKS_TRANSPOSE:
        return not is_computed
    reads = wiring.readers(entry.tensor)
    return is_computed and not any(r.node.op_type == "Gemm" and r.node.integers.get("transB") for r in reads)


def is_straight(entry: Entry, wiring: Wiring) -> bool:
    """Whether a reader takes a matrix in PyTorch's order, with a row for each output or token."""
    return any(
        (node.op_type == "Gemm" and slot == 1 and node.integers.get("transB") == 1)
        or (node.op_type == "Gather" and slot == 0)
        for node, slot in wiring.readers(entry.tensor)
    )


def is_convolved(entry: Entry, wiring: Wiring) -> bool:
    """Whether a convolution reads a tensor, directly or after nodes that decode or cast it."""
    reads = wiring.readers(entry.tensor, past=DECODES)
    return any(node.op_type in _CONVOLUTIONS and slot > 0 for node, slot in reads)


def is_turnable(entry: Entry) -> bool:
    """Whether codes may be of the transpose of the named tensor: a quantizer transposes the weight of a Gemm."""
    return entry.read_by in _INTEGER_PRODUCTS


# roles of axes in operators

_ADDED = -1
"""Placeholder for an axis of one element that an operator has inserted."""

_SAME = frozenset({"Cast", "CastLike", "DequantizeLinear", "Identity", "QuantizeLinear", "Slice", "Split"})
"""Operators that keep the order of their first input's axes."""

_LEFT = dict.fromkeys(("FusedGemm", "FusedMatMul", "Gemm", "MatMul", "MatMulInteger"), 0) | {
    "DynamicQuantizeMatMul": 0,
    "MatMulIntegerToFloat": 0,
    "QGemm": 0,
    "QLinearMatMul": 0,
}
_RIGHT = _LEFT | dict.fromkeys(_LEFT, 1) | {"QGemm": 3, "QLinearMatMul": 3, "Attention": 1, "QAttention": 1}
"""Products -> input slot of the first factor (`_LEFT`) and the second: (..., rows, summed) x (..., summed, columns)."""

_LOOKUPS: Mapping[str, tuple[frozenset[int], str]] = {
    "EmbedLayerNormalization": (frozenset({2, 3, 4}), ""),
    "Gather": (frozenset({0}), "axis"),
    "GatherBlockQuantized": (frozenset({0}), "gather_axis"),
    "QEmbedLayerNormalization": (frozenset({2, 3, 4}), ""),
}
"""Operators that look rows up -> input slots of their tables, and the attribute that names the axis."""


class Use(Frozen):
    """Use of a tensor by an operator: the roles of its axes, in the stored or in PyTorch's order."""

    result: int
    """Axis with an element for each output of a product, or for each item of a lookup."""
    summed: int | None
    """Axis that a product sums over; None for a lookup."""


_CLASSES: Mapping[str, tuple[Use, ...]] = {
    "Conv1D": (Use(1, 0),),
    "Embedding": (Use(0, 1), Use(0, None)),
    "Linear": (Use(0, 1),),
    "NonDynamicallyQuantizableLinear": (Use(0, 1),),
}
"""Uses of `weight` in the classes of torch.nn, and in Conv1D of transformers.pytorch_utils. An embedding that is tied
to a head is the head's weight as well."""


def class_use(tensor: Parameter | Buffer, modules: Mapping[str, str], *, is_lookup: bool) -> Use | None:
    """Return PyTorch's use of a tensor by the classes of its modules; None if they do not tell, or disagree."""
    found: set[Use | None] = set()
    for name in tensor.names:
        owner, leaf = split_name(name)
        uses = _CLASSES.get(modules.get(owner, ""), ()) if leaf == "weight" else ()
        found |= {use for use in uses if (use.summed is None) == is_lookup}
    return found.pop() if len(found) == 1 else None


def find_uses(tensor: StoredTensor, shape: tuple[int, ...], wiring: Wiring) -> frozenset[Use]:
    """Return the operators' uses of a tensor of this shape, once decoded; empty if none is known."""
    found: set[Use] = set()
    waiting: list[tuple[StoredTensor | Node, tuple[int, ...]]] = [(tensor, tuple(range(len(shape))))]
    seen: set[tuple[Place, tuple[int, ...]]] = set()
    while waiting:
        provider, axes = waiting.pop()
        for node, slot in wiring.readers(provider):
            if not node.is_standard:
                continue
            use = use_of(node, slot, axes)
            moved = None if use is not None else _move(node, slot, axes, shape, wiring)
            if use is not None:
                found.add(use)
            elif moved is not None and (node.place, moved) not in seen:
                seen.add((node.place, moved))
                waiting.append((node, moved))
    return frozenset(found)


def is_second_factor(node: Node, slot: int) -> bool:
    """Whether a node is a product that reads its second factor at this slot."""
    place = 1 if node.op_type in PACKS_TRANSPOSE else _RIGHT.get(node.op_type)
    return slot == place and kind_of(node) is Kind.PRODUCT


def follows_axes(node: Node) -> bool:
    """Whether `find_uses` follows axes through a node in any case."""
    return node.is_standard and (node.op_type in _SAME or node.op_type == "Transpose")


def in_order(
    uses: Iterable[Use], stored: tuple[int, ...], shape: tuple[int, ...], axes: tuple[int, ...]
) -> frozenset[Use]:
    """Convert uses along the axes of a stored shape to uses along PyTorch's axes, which the file has in this order."""
    long = [place for place, dim in enumerate(stored) if dim != 1]
    pytorch_axes = dict(zip(long, (axis for axis in axes if shape[axis] != 1), strict=False))
    if len(pytorch_axes) != len(long) or len(long) != sum(dim != 1 for dim in shape):
        return frozenset()
    return frozenset(
        Use(pytorch_axes[use.result], None if use.summed is None else pytorch_axes[use.summed])
        for use in uses
        if use.result in pytorch_axes and (use.summed is None or use.summed in pytorch_axes)
    )


def use_of(node: Node, slot: int, axes: tuple[int, ...]) -> Use | None:
    """Return a node's use of a value whose axes are these axes of the stored tensor; None if it is no known use."""
    op_type, integers = node.op_type, node.integers
    if op_type in _LOOKUPS:
        slots, attribute = _LOOKUPS[op_type]
        axis = integers.get(attribute, 0)
        is_axis = slot in slots and -len(axes) <= axis < len(axes) and axes[axis] != _ADDED
        return Use(axes[axis], None) if is_axis else None
    if op_type == "Einsum":
        return _einsum(node, slot, axes)
    if len(axes) < 2:
        return None
    if op_type in PACKS_TRANSPOSE and slot == 1:
        result, summed = axes[-2:]
    elif slot == _RIGHT.get(op_type):
        summed, result = axes[-2:] if not integers.get("transB") else axes[:-3:-1]
    elif slot == _LEFT.get(op_type):
        result, summed = axes[-2:] if not integers.get("transA") else axes[:-3:-1]
    else:
        return None
    return Use(result, summed) if _ADDED not in (result, summed) else None


def _einsum(node: Node, slot: int, axes: tuple[int, ...]) -> Use | None:
    """Return an Einsum's use of a factor: it sums the one axis that both share, and keeps the one of this alone."""
    left, _, output = str(node.settings.get("equation", "")).replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != 2 or not output or slot > 1 or "." in terms[slot] or len(terms[slot]) != len(axes):
        return None
    term, other_term = terms[slot], terms[1 - slot]
    summed = [
        axis for letter, axis in zip(term, axes, strict=True) if letter in other_term and letter not in output
    ]
    result = [
        axis for letter, axis in zip(term, axes, strict=True) if letter in output and letter not in other_term
    ]
    is_plain = len(summed) == len(result) == 1 and _ADDED not in (summed[0], result[0])
    return Use(result[0], summed[0]) if is_plain else None


def _move(
    node: Node, slot: int, axes: tuple[int, ...], shape: tuple[int, ...], wiring: Wiring
) -> tuple[int, ...] | None:
    """Return the axes of a value after a node moves it; None if the node computes with it, or cannot be followed."""
    if slot != 0:
        return None
    if node.op_type in _SAME:
        return axes
    if node.op_type == "Transpose":
        order = node.axes("perm") or tuple(reversed(range(len(axes))))
        return tuple(axes[place] for place in order) if sorted(order) == list(range(len(axes))) else None
    if node.op_type not in ("Reshape", "Squeeze", "Unsqueeze"):
        return None
    operand = node.axes("axes") or _numbers(node, wiring)
    if operand is None:
        return None
    if node.op_type == "Reshape":
        return _reshape(operand, axes, shape)
    rank = len(axes) + len(operand) * (node.op_type == "Unsqueeze")
    places = {place + rank if place < 0 else place for place in operand}
    if node.op_type == "Squeeze":
        return tuple(axis for place, axis in enumerate(axes) if place not in places)
    rest = iter(axes)
    return tuple(_ADDED if place in places else next(rest, _ADDED) for place in range(rank))


def _numbers(node: Node, wiring: Wiring) -> tuple[int, ...] | None:
    """Return the integers of a node's second input, if they are stored."""
    name = node.inputs[1] if len(node.inputs) > 1 else ""
    stored = wiring.find(node.graph_path, name) if name else None
    array = stored.payload.array() if isinstance(stored, StoredTensor) and stored.numel <= 8 else None
    is_whole = array is not None and array.dtype.kind == "i"
    return tuple(np.asarray(array).reshape(-1).tolist()) if is_whole else None


def _reshape(
    target: tuple[int, ...], axes: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the axes after a reshape that only adds or drops axes of one element; None for another reshape."""
    sizes = [1 if axis == _ADDED else shape[axis] for axis in axes]
    wanted = [sizes[place] if dim == 0 and place < len(sizes) else dim for place, dim in enumerate(target)]
    known = int(np.prod([dim for dim in wanted if dim > 0], dtype=np.int64))
    wanted = [int(np.prod(sizes, dtype=np.int64)) // max(known, 1) if dim < 0 else dim for dim in wanted]
    left = [(axis, size) for axis, size in zip(axes, sizes, strict=True) if size != 1]
    if [size for _, size in left] != [dim for dim in wanted if dim != 1]:
        return None
    rest = iter(left)
    return tuple(_ADDED if dim == 1 else next(rest)[0] for dim in wanted)


# the tiles of onnxruntime

Positions = npt.NDArray[np.int64]


class Tiles(Frozen):
    """Tiled storage of a PyTorch tensor, or a padded vector."""

    shape: tuple[int, ...]
    """Shape in PyTorch."""
    stored: tuple[int, ...]
    """Shape with the same axes, padded to whole blocks."""
    block: int
    """Number of output channels in a tile."""
    is_deep: bool
    """Whether a tile also has as many input channels."""

    def restore(self, array: Array) -> Array:
        """Return a stored array in PyTorch's order without padding, as a view where possible."""
        return self.whole(array)[tuple(slice(dim) for dim in self.shape)]

    def whole(self, array: Array) -> Array:
        """Return a stored array in PyTorch's order with its padding."""
        if len(self.stored) == 1:
            return array.reshape(self.stored)
        rows, columns, *kernel = self.stored
        deep = self.block if self.is_deep else 1
        tiled = array.reshape(rows // self.block, columns // deep, *kernel, deep, self.block)
        last = tiled.ndim - 1
        order = (0, last, 1, last - 1, *range(2, last - 1))
        return tiled.transpose(order).reshape(self.stored)

    def fills_with(self, array: Array, number: float) -> bool:
        """Whether the padding consists of one number."""
        whole = self.whole(array)
        return all(
            bool((whole[(slice(None),) * axis + (slice(dim, None),)] == number).all())
            for axis, dim in enumerate(self.shape)
        )

    def positions(self, positions: Positions) -> Positions:
        """Return the row-major positions in the stored tensor of elements at positions of the PyTorch tensor."""
        if len(self.stored) == 1:
            return positions
        row, column, *kernel = np.unravel_index(positions, self.shape)
        rows, columns, *sizes = self.stored
        deep = self.block if self.is_deep else 1
        index = (row // self.block, column // deep, *kernel, column % deep, row % self.block)
        tiled = (rows // self.block, columns // deep, *sizes, deep, self.block)
        return np.ravel_multi_index(index, tiled).astype(np.int64)
