"""A stored tensor -> the axes along which operators sum over it, read results from it, and look it up.

Two layouts of one shape, a square matrix and its transpose, are told apart by what the file does with them: PyTorch's
Linear computes x W^T, whatever Transpose, Gemm, MatMul or packed operator an exporter wrote for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from analyzer.manifest import Buffer, Parameter, split_name
from analyzer.model import Node, StoredTensor
from analyzer.wiring import Wiring

__all__ = ["Use", "class_use", "find_uses", "in_order"]

_MOST_HOPS = 8
_ADDED = -1
"""Stands for an axis of one element that an operator has put in."""

_SAME = frozenset({"Cast", "CastLike", "DequantizeLinear", "Identity", "QuantizeLinear", "Slice", "Split"})
"""Operators that keep the axes of their first input where they are."""

_LEFT = dict.fromkeys(("FusedGemm", "FusedMatMul", "Gemm", "MatMul", "MatMulInteger"), 0) | {
    "DynamicQuantizeMatMul": 0,
    "MatMulIntegerToFloat": 0,
    "QGemm": 0,
    "QLinearMatMul": 0,
}
_RIGHT = _LEFT | dict.fromkeys(_LEFT, 1) | {"QGemm": 3, "QLinearMatMul": 3, "Attention": 1, "QAttention": 1}
"""Products, and which input is their first factor, and their second: (..., rows, summed) x (..., summed, columns)."""

_PACKED = frozenset({"MatMulBnb4", "MatMulNBits"})
"""Products whose second factor is packed as (columns, summed)."""

_LOOKUPS: Mapping[str, tuple[frozenset[int], str]] = {
    "EmbedLayerNormalization": (frozenset({2, 3, 4}), ""),
    "Gather": (frozenset({0}), "axis"),
    "GatherBlockQuantized": (frozenset({0}), "gather_axis"),
    "QEmbedLayerNormalization": (frozenset({2, 3, 4}), ""),
}
"""Operators that look rows up: in which inputs, and the attribute that says along which axis."""


@dataclass(frozen=True, slots=True)
class Use:
    """What an operator does along the axes of a tensor, as stored or as PyTorch has them."""

    result: int
    """The axis that has an element for each result of a product, or for each thing that is looked up."""
    summed: int | None
    """The axis that a product sums over; None where rows are looked up."""


_CLASSES: Mapping[str, tuple[Use, ...]] = {
    "Conv1D": (Use(1, 0),),
    "Embedding": (Use(0, 1), Use(0, None)),
    "Linear": (Use(0, 1),),
    "NonDynamicallyQuantizableLinear": (Use(0, 1),),
}
"""What modules do with their `weight`: those of torch.nn, and Conv1D of transformers.pytorch_utils. An embedding that
is tied to a head is the head's weight as well."""


def class_use(tensor: Parameter | Buffer, modules: Mapping[str, str], *, is_lookup: bool) -> Use | None:
    """How PyTorch uses a tensor, as far as the classes of the modules that own it tell without doubt."""
    found: set[Use | None] = set()
    for name in tensor.names:
        owner, leaf = split_name(name)
        uses = _CLASSES.get(modules.get(owner, ""), ()) if leaf == "weight" else ()
        found |= {use for use in uses if (use.summed is None) == is_lookup}
    return found.pop() if len(found) == 1 else None


def find_uses(tensor: StoredTensor, shape: tuple[int, ...], wiring: Wiring) -> frozenset[Use]:
    """Along which axes of what a tensor stands for, of this shape, operators work; empty where nothing tells."""
    found: set[Use] = set()
    layer: list[tuple[StoredTensor | Node, tuple[int, ...]]] = [(tensor, tuple(range(len(shape))))]
    for _ in range(_MOST_HOPS):
        after: list[tuple[StoredTensor | Node, tuple[int, ...]]] = []
        for provider, axes in layer:
            for node, slot in wiring.readers(provider):
                if not node.is_standard:
                    continue
                use = _use(node, slot, axes)
                moved = None if use is not None else _move(node, slot, axes, shape, wiring)
                if use is not None:
                    found.add(use)
                elif moved is not None:
                    after.append((node, moved))
        layer = after
    return frozenset(found)


def in_order(
    uses: Iterable[Use], stored: tuple[int, ...], shape: tuple[int, ...], axes: tuple[int, ...]
) -> frozenset[Use]:
    """Uses along the axes of a stored shape as uses along PyTorch's, which the file has in this order."""
    long = [place for place, dim in enumerate(stored) if dim != 1]
    theirs = dict(zip(long, (axis for axis in axes if shape[axis] != 1), strict=False))
    if len(theirs) != len(long) or len(long) != sum(dim != 1 for dim in shape):
        return frozenset()
    return frozenset(
        Use(theirs[use.result], None if use.summed is None else theirs[use.summed])
        for use in uses
        if use.result in theirs and (use.summed is None or use.summed in theirs)
    )


def _use(node: Node, slot: int, axes: tuple[int, ...]) -> Use | None:
    """What a node computes with a value whose axes are these of the stored tensor."""
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
    if op_type in _PACKED and slot == 1:
        result, summed = axes[-2:]
    elif slot == _RIGHT.get(op_type):
        summed, result = axes[-2:] if not integers.get("transB") else axes[:-3:-1]
    elif slot == _LEFT.get(op_type):
        result, summed = axes[-2:] if not integers.get("transA") else axes[:-3:-1]
    else:
        return None
    return Use(result, summed) if _ADDED not in (result, summed) else None


def _einsum(node: Node, slot: int, axes: tuple[int, ...]) -> Use | None:
    """Of two factors: the one axis that both have and the result has not, and the one that only this has."""
    left, _, given = str(node.settings.get("equation", "")).replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != 2 or not given or slot > 1 or "." in terms[slot] or len(terms[slot]) != len(axes):
        return None
    mine, other = terms[slot], terms[1 - slot]
    summed = [
        axis for letter, axis in zip(mine, axes, strict=True) if letter in other and letter not in given
    ]
    result = [
        axis for letter, axis in zip(mine, axes, strict=True) if letter in given and letter not in other
    ]
    is_plain = len(summed) == len(result) == 1 and _ADDED not in (summed[0], result[0])
    return Use(result[0], summed[0]) if is_plain else None


def _move(
    node: Node, slot: int, axes: tuple[int, ...], shape: tuple[int, ...], wiring: Wiring
) -> tuple[int, ...] | None:
    """The axes of what a node makes of the value; None where it computes with it, or nobody can follow."""
    if slot != 0:
        return None
    if node.op_type in _SAME:
        return axes
    if node.op_type == "Transpose":
        order = node.axes("perm") or tuple(reversed(range(len(axes))))
        return tuple(axes[place] for place in order) if sorted(order) == list(range(len(axes))) else None
    if node.op_type not in ("Reshape", "Squeeze", "Unsqueeze"):
        return None
    given = node.axes("axes") or _numbers(node, wiring)
    if given is None:
        return None
    if node.op_type == "Reshape":
        return _reshape(given, axes, shape)
    rank = len(axes) + len(given) * (node.op_type == "Unsqueeze")
    places = {place + rank if place < 0 else place for place in given}
    if node.op_type == "Squeeze":
        return tuple(axis for place, axis in enumerate(axes) if place not in places)
    rest = iter(axes)
    return tuple(_ADDED if place in places else next(rest, _ADDED) for place in range(rank))


def _numbers(node: Node, wiring: Wiring) -> tuple[int, ...] | None:
    """The integers of a node's second input, where they are stored."""
    name = node.inputs[1] if len(node.inputs) > 1 else ""
    stored = wiring.find(node.graph_path, name) if name else None
    array = stored.payload.array() if isinstance(stored, StoredTensor) and stored.numel <= 8 else None
    is_whole = array is not None and array.dtype.kind == "i"
    return tuple(np.asarray(array).reshape(-1).tolist()) if is_whole else None


def _reshape(given: tuple[int, ...], axes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes where a reshape only adds axes of one element, or takes them away."""
    sizes = [1 if axis == _ADDED else shape[axis] for axis in axes]
    wanted = [sizes[place] if dim == 0 and place < len(sizes) else dim for place, dim in enumerate(given)]
    known = int(np.prod([dim for dim in wanted if dim > 0], dtype=np.int64))
    wanted = [int(np.prod(sizes, dtype=np.int64)) // max(known, 1) if dim < 0 else dim for dim in wanted]
    left = [(axis, size) for axis, size in zip(axes, sizes, strict=True) if size != 1]
    if [size for _, size in left] != [dim for dim in wanted if dim != 1]:
        return None
    rest = iter(left)
    return tuple(_ADDED if dim == 1 else next(rest)[0] for dim in wanted)
