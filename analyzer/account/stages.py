"""Graph of a convolutional network -> its stages: the parts of the trunk that each have one resolution.

A resolution is the spatial size of a node's output: the size of the graph's input, divided by each stride and enlarged
by each interpolation. Neither names nor the sizes of the input are needed: strides give the size relative to the input.
A value pooled to one number per channel belongs to the head, unless it returns to the trunk, as in
squeeze-and-excitation.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from analyzer.account.ledger import Stages
from analyzer.model import GraphPath, Key, Model, Node, Place, StoredTensor, ValueType
from analyzer.model.operators import DECODES, Kind, Slot, kind_of, operator_of, operators_of
from analyzer.model.wiring import Wiring
from analyzer.records import Frozen, replace

HEAD = "head"
"""Stage of values that are pooled or flattened, and have no resolution any more."""

_FEWEST = 2
"""Fewest convolutions of a graph that has a trunk."""

_CONVOLUTIONS = operators_of(Kind.CONVOLUTION)

_Dims = tuple[int | None, ...]
_Strides = tuple[Fraction, ...]
_Level = tuple[_Strides, bool]
"""Ratio of the input's size to a value's size along each axis, and whether the value was enlarged on the way."""


class _Facts(Frozen):
    """Facts known about a value."""

    dims: _Dims | None
    """Sizes of its axes; None for an unknown size, or for the whole if even the rank is unknown."""
    strides: _Strides | None = None
    """Stride along each axis relative to the input; None before the first convolution."""
    is_up: bool = False
    is_flat: bool = False
    """Whether it is pooled or flattened."""

    @property
    def level(self) -> _Level | None:
        return None if self.strides is None else (self.strides, self.is_up)


_UNKNOWN = _Facts(None)


def find_stages(model: Model, wiring: Wiring, computing: Mapping[Key, Place]) -> Stages | None:
    """Find the stages of a model's convolutional trunks; None if it has none.

    Args:
        model: the model.
        wiring: providers and readers of all values.
        computing: the first node that computes with each stored tensor.
    """
    firsts: dict[str, Place] = {}
    nodes: dict[Place, str] = {}
    for part in model.parts:
        graph = wiring.graphs.get(part.path)
        if graph is None:
            continue
        trunk = _Trunk(wiring, graph.path, graph.signature)
        windows = (node for node in graph.nodes if node.op_type in _CONVOLUTIONS)
        if sum(kind_of(node) is Kind.CONVOLUTION for node in windows) >= _FEWEST:
            starts, found = trunk.walk(graph.nodes)
            firsts = starts | firsts
            nodes |= found
    if not nodes:
        return None
    _fill_bodies(model, wiring, nodes)
    entries = {key: nodes[place] for key, place in computing.items() if place in nodes}
    names = sorted(firsts.keys() & set(nodes.values()), key=lambda name: (name == HEAD, firsts[name]))
    return Stages(tuple(names), entries, nodes, {name: firsts[name] for name in names})


def _fill_bodies(model: Model, wiring: Wiring, nodes: dict[Place, str]) -> None:
    """Assign nodes of a nested graph or a function to the stage of the node that holds it, or calls it first."""
    holders: dict[GraphPath, Place] = {path: place for place, path in reversed(wiring.calls.items())}
    holders |= {graph.path: graph.parent for graph in model.graphs if graph.parent is not None}
    for graph in model.graphs:
        path, visited = graph.path, set[GraphPath]()
        while path in holders and path not in visited:
            visited.add(path)
            stage = nodes.get(holders[path])
            if stage is not None:
                nodes |= {node.place: stage for node in graph.nodes if node.place not in nodes}
                break
            path = holders[path][0]


class _Trunk:
    """One main graph, walked in the order of its nodes."""

    def __init__(self, wiring: Wiring, path: GraphPath, signature: Sequence[ValueType]) -> None:
        self._wiring, self._path = wiring, path
        self._values: dict[str, _Facts] = {}
        for value in signature:
            if value.dims is not None and len(value.dims) > 2:
                dims = tuple(dim if isinstance(dim, int) and dim > 0 else None for dim in value.dims)
                self._values[value.name] = _Facts(dims)

    def walk(self, nodes: Sequence[Node]) -> tuple[dict[str, Place], dict[Place, str]]:
        """Return the first node of each stage, and the stage of each node that has one."""
        levels: list[_Level | None] = []
        flat: list[bool] = []
        sizes: dict[_Level, Counter[_Dims]] = defaultdict(Counter)
        for node in nodes:
            facts = self._take(node)
            levels.append(None if facts is None else facts.level)
            flat.append(facts is not None and facts.is_flat)
            if facts is not None and facts.level is not None and not facts.is_flat and facts.dims is not None:
                space = facts.dims[2:]
                if len(space) == len(facts.level[0]) and all(space):
                    sizes[facts.level][space] += 1
        used = dict.fromkeys(level for level in levels if level is not None)
        names = {
            **_name(list(used), {level: _most_common(found) for level, found in sizes.items()}),
            _FLAT: HEAD,
        }
        starts: dict[str, Place] = {}
        for node, level, is_flat in zip(nodes, levels, flat, strict=True):
            if level is not None:
                starts.setdefault(HEAD if is_flat else names[level], node.place)
        assigned = zip(nodes, _assign_levels(nodes, levels, flat), strict=True)
        return starts, {node.place: names[level] for node, level in assigned if level is not None}

    def _take(self, node: Node) -> _Facts | None:
        """Compute the facts about a node's outputs; None if no value of the trunk flows into the node."""
        operands = [self._values[name] for name in node.inputs if name in self._values]
        if not operands or kind_of(node) is Kind.MEASURES:
            return None
        rule = _RULES.get(node.op_type, _follow) if node.is_standard else _follow
        result = rule(node, operands[0] if rule is not _follow else _largest(operands), self)
        if node.op_type in ("Concat", "Sum", "Add", "Mul", "Max") and len(operands) > 1:
            result = replace(result, is_up=any(each.is_up for each in operands))
        for name in node.outputs:
            if name:
                self._values[name] = result
        return result

    def constant(self, node: Node, slot: int) -> list[float] | None:
        """Return the numbers of a short stored tensor that a node reads; None if the input is no such tensor."""
        name = node.inputs[slot] if 0 <= slot < len(node.inputs) else ""
        tensor = self._wiring.find(self._path, name) if name else None
        if (
            not isinstance(tensor, StoredTensor)
            or not 0 < tensor.numel <= _SHORT
            or tensor.extent is not None
        ):
            return None
        array = tensor.payload.array()
        if array is None or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
            return None
        return [float(number) for number in np.ravel(array)]

    def shape(self, node: Node, slot: int) -> tuple[int, ...] | None:
        """Return the shape of the stored tensor that a node reads, directly or through decoding nodes."""
        name = node.inputs[slot] if 0 <= slot < len(node.inputs) else ""
        for _ in range(_STEPS):
            found = self._wiring.find(self._path, name) if name else None
            if isinstance(found, StoredTensor):
                return found.shape
            if not isinstance(found, Node) or found.op_type not in DECODES or not found.inputs:
                return None
            name = found.inputs[0]
        return None


def _ints(node: Node, name: str) -> tuple[int, ...]:
    """Return a node's attribute of type INTS; empty if the node does not have it."""
    found = node.settings.get(name, ())
    return tuple(x for x in found if isinstance(x, int)) if isinstance(found, tuple) else ()


_STEPS = 8
"""Nodes between a stored tensor and the node that computes with it, at most."""

_SHORT = 16
"""Elements, at most, of a tensor that may be a shape."""

_FLAT: _Level = ((), False)

_Rule = Callable[[Node, _Facts, "_Trunk"], _Facts]


def _assign_levels(
    nodes: Sequence[Node], levels: Sequence[_Level | None], flat: Sequence[bool]
) -> list[_Level | None]:
    """Give nodes without a level, and pooled nodes that return to the trunk, the level of their first reader."""
    readers: dict[str, list[int]] = defaultdict(list)
    for at, node in enumerate(nodes):
        for name in node.inputs:
            readers[name].append(at)
    found = [_FLAT if is_flat else level for level, is_flat in zip(levels, flat, strict=True)]
    for at in reversed(range(len(nodes))):
        if found[at] is not None and not flat[at]:
            continue
        following = (found[reader] for name in nodes[at].outputs for reader in readers[name] if reader > at)
        known = [level for level in following if level is not None]
        if known:
            found[at] = next((level for level in known if level != _FLAT), _FLAT)
    return found


def _most_common(sizes: Counter[_Dims]) -> _Dims:
    """Return the most common output size, the last of equally common ones: in some files padding is a separate node."""
    return max(reversed(sizes), key=sizes.__getitem__)


def _name(levels: Sequence[_Level], sizes: Mapping[_Level, _Dims]) -> dict[_Level, str]:
    """Name levels by their sizes if the input's sizes are known; else by their ratio to the input's size."""
    names: dict[_Level, str] = {}
    taken: set[str] = set()
    for level in levels:
        strides, is_up = level
        size = sizes.get(level)
        text = "x".join(map(str, size)) if size else _ratio(strides)
        name = f"{text} up" if is_up else text
        if name in taken:
            name = f"{name} ({_ratio(strides)})"
        taken.add(name)
        names[level] = name
    return names


def _ratio(strides: _Strides) -> str:
    """Return the ratio of the size to the input's size.

    >>> _ratio((Fraction(8), Fraction(8))), _ratio((Fraction(1), Fraction(1)))
    ('1/8', '1/1')
    """
    parts = [f"{stride.denominator}/{stride.numerator}" for stride in strides]
    return parts[0] if len(set(parts)) == 1 else " x ".join(parts)


# rules of operators

_MAX_RATIO = 1 << 16
"""Largest ratio between a picture's size and the input's: larger numbers are a mistake, and would grow."""


def _largest(operands: Sequence[_Facts]) -> _Facts:
    """Return the value whose size is nearest to the input's, because the others are broadcast to it."""

    def order(facts: _Facts) -> tuple[bool, bool, Fraction, int]:
        strides = facts.strides or ()
        size = -math.prod(dim or 1 for dim in facts.dims) if facts.dims is not None else 1
        return facts.is_flat, facts.strides is None, math.prod(strides, start=Fraction(1)), size

    return min(operands, key=order)


def _follow(node: Node, facts: _Facts, trunk: _Trunk) -> _Facts:
    return facts


def _convolve(node: Node, facts: _Facts, trunk: _Trunk) -> _Facts:
    """Apply a sliding window: a convolution, or a pool."""
    kernel = _ints(node, "kernel_shape") or _weight_size(node, trunk)
    rank = len(kernel) or (len(facts.dims) - 2 if facts.dims is not None else len(facts.strides or ()))
    if rank < 1:
        return replace(facts, dims=None)
    steps = _ints(node, "strides") or (1,) * rank
    before = (
        facts.strides if facts.strides is not None and len(facts.strides) == rank else (Fraction(1),) * rank
    )
    if len(steps) != rank or min(steps) < 1 or max(steps) > _MAX_RATIO or max(before) > _MAX_RATIO:
        return _UNKNOWN
    space = facts.dims[2:] if facts.dims is not None and len(facts.dims) == rank + 2 else (None,) * rank
    is_turned = node.op_type == "ConvTranspose"
    output_sizes = tuple(
        None if size is None or not kernel else _window_output_size(node, size, axis, kernel, steps)
        for axis, size in enumerate(space)
    )
    if kind_of(node) is Kind.POOLS and all(size == 1 for size in output_sizes) and any(s != 1 for s in space):
        return _pooled(facts, rank)
    strides = tuple(
        stride / step if is_turned else stride * step for stride, step in zip(before, steps, strict=True)
    )
    is_up = facts.is_up or (is_turned and any(step > 1 for step in steps))
    return _Facts((None, None, *output_sizes), strides, is_up, facts.is_flat)


def _weight_size(node: Node, trunk: _Trunk) -> tuple[int, ...]:
    """Return the window size taken from the weight, for a convolution without `kernel_shape`."""
    known = operator_of(node)
    if known is None or kind_of(node) is not Kind.CONVOLUTION:
        return ()
    slots = [at for at, slot in enumerate(known.slots) if at and slot in (Slot.LEARNED, Slot.CODES)]
    return (trunk.shape(node, slots[0]) or ())[2:] if slots else ()


def _window_output_size(
    node: Node, size: int, axis: int, kernel: Sequence[int], steps: Sequence[int]
) -> int | None:
    """Return the size of an axis after a sliding window (ONNX, Conv and AveragePool)."""
    step, rank = steps[axis], len(steps)
    pads = _ints(node, "pads") or (0,) * (2 * rank)
    widened = _ints(node, "dilations") or (1,) * rank
    auto = node.settings.get("auto_pad", "NOTSET")
    if len(pads) != 2 * rank or len(widened) != rank or len(kernel) != rank:
        return None
    window = widened[axis] * (kernel[axis] - 1) + 1
    if node.op_type == "ConvTranspose":
        added = _ints(node, "output_padding") or (0,) * rank
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            return size * step
        return (
            step * (size - 1)
            + window
            - pads[axis]
            - pads[axis + rank]
            + (added[axis] if len(added) == rank else 0)
        )
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        return -(-size // step)
    free_size = size + (0 if auto == "VALID" else pads[axis] + pads[axis + rank]) - window
    result = (-(-free_size // step) if node.integers.get("ceil_mode") else free_size // step) + 1
    return result if result > 0 else None


def _pooled(facts: _Facts, rank: int) -> _Facts:
    return replace(facts, dims=(None, None, *(1,) * rank), is_flat=True)


def _pool(node: Node, facts: _Facts, trunk: _Trunk) -> _Facts:
    rank = len(facts.dims) - 2 if facts.dims is not None else len(facts.strides or ())
    return _pooled(facts, max(rank, 0))


def _reduce(node: Node, facts: _Facts, trunk: _Trunk) -> _Facts:
    """Apply a reduction: a mean over the spatial axes is a pool; a mean over the channels belongs to a norm."""
    rank = 0 if facts.dims is None else len(facts.dims)
    axes = _ints(node, "axes") or tuple(int(axis) for axis in trunk.constant(node, 1) or ())
    reduced = {axis % rank for axis in axes} if rank else set[int]()
    space = len(facts.strides or ())
    if facts.strides is not None and space and len(reduced) >= space and 0 not in reduced:
        is_pool = rank != 3 or space == 1 or 1 in reduced
        if is_pool and (len(reduced) > 1 or space == 1):
            keeps = node.integers.get("keepdims", 1)
            return _pooled(facts, space) if keeps else replace(facts, dims=(None, None), is_flat=True)
    if facts.strides is not None and rank == 3 and reduced == {1}:
        return replace(facts, dims=None, is_flat=True)
    return facts


def _flatten(node: Node, facts: _Facts, trunk: _Trunk) -> _Facts:
    return replace(facts, dims=(None, None), is_flat=True)


def _reshape(node: Node, facts: _Facts, trunk: _Trunk) -> _Facts:
    target = _ints(node, "shape") or trunk.constant(node, 1)
    if target is None:
        return replace(facts, dims=None)
    dims = tuple(int(dim) if dim > 0 else None for dim in target)
    if len(dims) <= 2 and facts.strides is not None:
        return replace(facts, dims=dims, is_flat=True)
    old = facts.dims
    if old is not None and len(old) == len(dims):  # 0 keeps the input's size
        dims = tuple(old[at] if target[at] == 0 else dim for at, dim in enumerate(dims))
    return replace(facts, dims=dims)


def _transpose(node: Node, facts: _Facts, trunk: _Trunk) -> _Facts:
    order = _ints(node, "perm")
    if facts.dims is None or sorted(order) != list(range(len(facts.dims))):
        return replace(facts, dims=None if facts.dims is None else tuple(reversed(facts.dims)))
    return replace(facts, dims=tuple(facts.dims[axis] for axis in order))


def _gather(node: Node, facts: _Facts, trunk: _Trunk) -> _Facts:
    """Take a part of an axis; a scalar index removes the axis."""
    index = trunk.shape(node, 1)
    axis = node.integers.get("axis", 0)
    if facts.dims is None or index is None or not -len(facts.dims) <= axis < len(facts.dims):
        return replace(facts, dims=None)
    at = axis % len(facts.dims)
    size = () if index == () else (math.prod(index),)
    return replace(facts, dims=(*facts.dims[:at], *size, *facts.dims[at + 1 :]))


def _resize(node: Node, facts: _Facts, trunk: _Trunk) -> _Facts:
    """Resize; if neither sizes nor scales are stored, the result is unknown, and values joined with it decide."""
    setting = node.settings.get("scales")
    scales = [x for x in setting if isinstance(x, int | float)] if isinstance(setting, tuple) else None
    old = facts.dims
    if scales is None:
        place = 1 if node.op_type == "Upsample" or len(node.inputs) == 2 else 2
        scales = trunk.constant(node, place)
    sizes = trunk.constant(node, 3)
    space = None if old is None else old[2:]
    if scales is None and sizes is not None and space and len(sizes) >= len(space) and all(space):
        ends = [int(size) for size in sizes[-len(space) :]]
        ratios = [Fraction(new, was) for new, was in zip(ends, space, strict=True) if was]
    elif scales is not None and len(scales) >= len(facts.strides or ()):
        count = len(facts.strides or ()) or max(len(scales) - 2, 0)
        if not all(math.isfinite(scale) for scale in scales):
            return _UNKNOWN
        ratios = [Fraction(float(scale)).limit_denominator(64) for scale in scales[len(scales) - count :]]
    else:
        return _UNKNOWN
    if not ratios or min(ratios) <= 0:
        return _UNKNOWN
    return _scaled(facts, ratios)


def _scaled(facts: _Facts, ratios: Sequence[Fraction]) -> _Facts:
    """Scale a picture by a ratio along each axis."""
    rank = len(ratios)
    strides = facts.strides if facts.strides is not None else (Fraction(1),) * rank
    if len(strides) != rank or max((*ratios, *(1 / stride for stride in strides))) > _MAX_RATIO:
        return _UNKNOWN
    dims = facts.dims
    if dims is not None:
        space = dims[2:] if len(dims) == rank + 2 else (None,) * rank
        dims = (
            None,
            None,
            *(
                None if size is None else math.floor(size * ratio)
                for size, ratio in zip(space, ratios, strict=True)
            ),
        )
    new_strides = tuple(stride / ratio for stride, ratio in zip(strides, ratios, strict=True))
    return _Facts(dims, new_strides, facts.is_up or max(ratios) > 1, facts.is_flat and max(ratios) <= 1)


def _fold(node: Node, facts: _Facts, trunk: _Trunk) -> _Facts:
    """Move data from channels to space, or from space to channels."""
    block = node.integers.get("blocksize", 1)
    rank = len(facts.dims) - 2 if facts.dims is not None else len(facts.strides or ())
    if block < 1 or rank < 1:
        return facts
    ratio = Fraction(block) if node.op_type == "DepthToSpace" else Fraction(1, block)
    return _scaled(facts, [ratio] * rank)


def _slice(node: Node, facts: _Facts, trunk: _Trunk) -> _Facts:
    """Take every n-th line of a picture: the first step of some detectors, in place of a stride."""
    steps, axes = trunk.constant(node, 4), trunk.constant(node, 3)
    if steps is None or axes is None or len(steps) != len(axes) or facts.dims is None:
        return facts
    rank = len(facts.dims)
    taken = {int(axis) % rank: int(step) for axis, step in zip(axes, steps, strict=True) if step > 1}
    space = range(2, rank)
    if not taken or not set(taken) <= set(space):
        return facts
    dims = list(facts.dims)
    for axis, step in taken.items():
        size = dims[axis]
        dims[axis] = None if size is None else -(-size // step)
    before = facts.strides or (Fraction(1),) * len(space)
    if len(before) != len(space):
        return facts
    strides = tuple(stride * taken.get(axis, 1) for axis, stride in zip(space, before, strict=True))
    return replace(facts, dims=tuple(dims), strides=strides)


_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(
        (
            *("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "FusedConv", "LpPool", "MaxPool"),
            *("QLinearAveragePool", "QLinearConv"),
        ),
        _convolve,
    ),
    **dict.fromkeys(
        ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "QLinearGlobalAveragePool"), _pool
    ),
    **dict.fromkeys(("QLinearReduceMean", "ReduceMax", "ReduceMean", "ReduceSum"), _reduce),
    "DepthToSpace": _fold,
    "Flatten": _flatten,
    "Gather": _gather,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "SpaceToDepth": _fold,
    "Transpose": _transpose,
    "Upsample": _resize,
}
"""Rules of the operators that change a picture; all others keep their input's facts."""
