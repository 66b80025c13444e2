"""Names, types, shapes and values of a state dict -> Manifest, without a module that says which are parameters.

`docs/counting.md` has the table of names in words.

Whatever its name, a tensor's values may show that it is not learned. Learned numbers form no table: if a short formula
gives all values, a module computed the tensor and registered it as a buffer. Untrained weights of PyTorch's own layers
may look like a table too: a gain of ones, a bias of zeros, the identity. These stay parameters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from analyzer.account.scopes import is_buffer_name
from analyzer.checkpoints import Original, Weights
from analyzer.manifest import BatchNorm, Buffer, Manifest, Parameter, WeightNorm
from analyzer.model.content import Array, is_constant_filled
from analyzer.model.dtypes import DType
from analyzer.model.tables import is_known_table
from analyzer.records import Frozen, replace

BY_MODULE = "meta-device"
"""`Manifest.source["parameters_by"]` where the class separated parameters from buffers."""

BY_PICKLED_MODULE = "pickled-module"
"""`Manifest.source["parameters_by"]` where a whole module that torch.save wrote did."""

BY_NAMES = "names"
"""`Manifest.source["parameters_by"]` where only names, types and shapes did."""

_EPS = 1e-5
"""PyTorch's default of eps, which a state dict does not hold."""

_WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Wrapper modules of torch.compile, FSDP and activation checkpointing, at any depth."""

_PARALLEL = "module."
"""Prefix that DataParallel and DistributedDataParallel give to every name."""

_OLD_LAYER_NORM = re.compile(r"(?<![^.])LayerNorm\.(gamma|beta)\Z")
_NEW_LEAF = {"gamma": "weight", "beta": "bias"}


class NamedTensor(Frozen):
    """A tensor of a state dict, not known yet to be a parameter or a buffer."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    tied: tuple[str, ...] = ()
    """Other names of the same storage."""


def plain_names(stored: Iterable[str]) -> dict[str, str]:
    """Return names as in the bare module: without wrappers, with today's names of LayerNorm's tensors.

    >>> plain_names(["module.a._orig_mod.w", "module.LayerNorm.gamma"])
    {'module.a._orig_mod.w': 'a.w', 'module.LayerNorm.gamma': 'LayerNorm.weight'}
    """
    names = list(stored)
    plain = {
        name: ".".join(part for part in name.split(".") if part not in _WRAPPERS) or name for name in names
    }
    if names and all(name.startswith(_PARALLEL) and name != _PARALLEL for name in plain.values()):
        plain = {name: shown.removeprefix(_PARALLEL) for name, shown in plain.items()}
    plain = {
        name: _OLD_LAYER_NORM.sub(lambda found: f"LayerNorm.{_NEW_LEAF[found[1]]}", shown)
        for name, shown in plain.items()
    }
    taken = Counter(plain.values())
    return {name: shown if taken[shown] == 1 else name for name, shown in plain.items()}


def describe_by_names(
    tensors: Sequence[NamedTensor],
    source: Mapping[str, str],
    weights: Weights | None,
    notes: Iterable[str] = (),
) -> Original:
    """Describe PyTorch's side without its class: every tensor of the state dict is a parameter or a persistent buffer.

    Every parameter counts as trainable, and ties are those of `tensors`.
    """
    shapes = {name: tensor.shape for tensor in tensors for name in (tensor.name, *tensor.tied)}
    buffers = {tensor.name for tensor in tensors if is_buffer(tensor, weights, shapes)}
    norms = tuple(_batch_norms({tensor.name for tensor in tensors}))
    manifest = Manifest(
        parameters=tuple(
            Parameter(t.name, t.shape, t.dtype, trainable=True, tied=t.tied)
            for t in tensors
            if t.name not in buffers
        ),
        buffers=tuple(
            Buffer(t.name, t.shape, t.dtype, persistent=True, tied=t.tied)
            for t in tensors
            if t.name in buffers
        ),
        batch_norms=norms,
        weight_norms=tuple(_weight_norms({tensor.name: tensor.shape for tensor in tensors})),
        source={**source, "parameters_by": BY_NAMES},
        lists_all_buffers=False,
    )
    notes = tuple(notes)
    if norms:
        notes += (
            f"a state dict does not hold the eps of {len(norms)} BatchNorms: taken from folded weights, or else "
            f"{_EPS:g}, PyTorch's default",
        )
    return Original(manifest, weights, notes)


def add_reason(original: Original, path: Path, reason: str) -> Original:
    """Return the original with a note of why only names separated parameters from buffers."""
    note = f"{path}: parameters and buffers are told apart by their names: {reason}"
    return replace(original, notes=(note, *original.notes))


def is_buffer(
    tensor: NamedTensor, weights: Weights | None = None, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> bool:
    """Whether a tensor without a known module is a buffer, and not learned.

    It is a buffer in these cases: its name is that of a buffer; it holds integers or booleans and is no quantized
    `weight`, the only learned integers; it is a causal mask, which GPT-2 and its successors call `attn.bias`; its
    values, or the tensors beside it in `shapes`, show it (`analyzer.checkpoints.statedict`).
    """
    if any(is_buffer_name(name) for name in (tensor.name, *tensor.tied)):
        return True
    leaf = tensor.name.rpartition(".")[2]
    if tensor.dtype.is_integer or tensor.dtype is DType.BOOL:
        return leaf != "weight"
    if leaf == "bias" and _is_causal_mask(tensor, weights):
        return True
    values = weights.array(tensor.name) if weights is not None else None
    with np.errstate(all="ignore"):  # a file may hold any bit pattern, signalling NaN too
        return is_known_state(tensor.name, values) or is_power_iteration(tensor.name, values, shapes or {})


def _is_causal_mask(tensor: NamedTensor, weights: Weights | None) -> bool:
    """Whether a tensor is a (1, 1, n, n) lower triangle of ones, by a few of its rows if values are available."""
    shape = tensor.shape
    if len(shape) != 4 or shape[:2] != (1, 1) or shape[2] != shape[3] or not shape[2]:
        return False
    mask = weights.array(tensor.name) if weights is not None else None
    if mask is None:
        return True
    positions = np.arange(shape[3])
    rows = {0, shape[2] // 2, shape[2] - 1}
    return all(np.array_equal(mask[0, 0, row].astype(np.float32), positions <= row) for row in rows)


def _batch_norms(names: Collection[str]) -> Iterable[BatchNorm]:
    """Return modules that hold running statistics, in order of their names."""
    for mean in sorted(name for name in names if name.rpartition(".")[2] == "running_mean"):
        module = mean.rpartition(".")[0]
        prefix = f"{module}." if module else ""

        def of(leaf: str, prefix: str = prefix) -> str | None:
            return prefix + leaf if prefix + leaf in names else None

        yield BatchNorm(module, _EPS, of("weight"), of("bias"), mean, of("running_var"))


_LENGTHS = (
    (re.compile(r"((?:.*\.)?)([^.]+)_g"), r"\1\2_v", r"\1\2"),
    (re.compile(r"(.*?)parametrizations\.([^.]+)\.original0"), r"\1parametrizations.\2.original1", r"\1\2"),
)
"""Names of a weight norm's length in torch's old and new spelling, of its direction, and of their product."""


def _weight_norms(shapes: Mapping[str, tuple[int, ...]]) -> Iterable[WeightNorm]:
    """Return weights that are a direction and a length: the length has one element for each index of one axis."""
    for length, shape in shapes.items():
        for pattern, other, product in _LENGTHS:
            found = pattern.fullmatch(length)
            direction = found.expand(other) if found else ""
            whole = shapes.get(direction, ())
            if not found or len(whole) != len(shape):
                continue
            long = [axis for axis, size in enumerate(shape) if size != 1] or [0]
            if len(long) == 1 and whole and shape[long[0]] == whole[long[0]]:
                yield WeightNorm(found.expand(product), length, direction, long[0], None)


_LISTED = 5


def listed(names: Iterable[str]) -> str:
    """Join the first five of many names, in order, with the number of the rest.

    >>> listed("gfedcba")
    'a, b, c, d, e and 2 more'
    """
    found = sorted(names)
    rest = len(found) - _LISTED
    return ", ".join(found[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


# tensors that are not learned

Shapes = Mapping[str, tuple[int, ...]]

_LEARNED = re.compile(r"(?:weight|bias)(?:_[a-z]+_l\d+(?:_reverse)?)?")
"""Last parts of the names of tensors that PyTorch's own layers learn, recurrent layers too."""

_FEWEST = 3
"""Number of distinct values from which whole numbers are more than a vector of ones and zeros."""

_LEAST_TABLE = 9
"""Number of elements from which values can be recognised as a table of waves or of one ratio."""

_LEAST_PLANE = 3
"""Number of rows and columns from which a triangle is no coincidence."""

_GRAINS = tuple(2.0**exponent for exponent in range(6, -7, -1))
"""Units of which coordinates are multiples: from a stride of 64 pixels down to a pixel over that stride."""

_LEAST_BITS = 16
"""Least number of empty mantissa bits of bfloat16, of all values together: by chance in one tensor of 65,536."""

_MOST = 1 << 24
"""Largest number of elements of a tensor that is examined."""

_LARGEST = 1 << 20
"""Largest magnitude of coordinates."""


def is_known_state(name: str, array: Array | None) -> bool:
    """Whether a tensor's values show that it is a mask, a count, a grid, boxes, or a table of waves.

    A `weight` or `bias` of PyTorch's layers is learned, except a mask of two axes or more that is named `bias`.

    >>> is_known_state("blocks.0.tril", np.tril(np.ones((4, 4), np.float32)))
    True
    >>> (
    ...     is_known_state("norm.gain", np.ones(8, np.float32)),
    ...     is_known_state("mix", np.eye(4, dtype=np.float32)),
    ... )
    (False, False)
    """
    leaf = name.rpartition(".")[2]
    is_learned = _LEARNED.fullmatch(leaf) is not None
    if array is None or array.dtype.kind not in "fV" or not 1 < array.size <= _MOST:
        return False
    if (is_learned and (leaf != "bias" or array.ndim < 2)) or is_constant_filled(array):
        return False
    values = np.squeeze(array.astype(np.float64))
    if is_learned or _is_identity(values):
        return is_learned and _is_triangle(values)
    return (
        _is_triangle(values)
        or _are_whole(values)
        or _are_boxes(values)
        or (array.size >= _LEAST_TABLE and not _is_binary(values) and is_known_table(array))
    )


def _is_binary(values: npt.NDArray[np.float64]) -> bool:
    return bool(np.isin(values, (0.0, 1.0, -1.0)).all())


def _is_identity(values: npt.NDArray[np.float64]) -> bool:
    """Whether the last two axes hold an identity matrix: an untrained mixing matrix may be one, a mask is none."""
    if values.ndim < 2:
        return False
    eye = np.eye(*values.shape[-2:])
    return bool((values == eye).all())


def _is_triangle(values: npt.NDArray[np.float64]) -> bool:
    """Whether all planes are one mask of two values: one on and below some diagonal, the other above it."""
    if values.ndim < 2 or min(values.shape[-2:]) < _LEAST_PLANE:
        return False
    planes = values.reshape(-1, *values.shape[-2:])
    plane = planes[0]
    if not bool((planes == plane).all()) or np.unique(plane).size != 2:
        return False
    rows, columns = plane.shape
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    by_distance = np.concatenate([plane[::-1, 0], plane[0, 1:]])  # (rows + columns - 1,)
    is_one_step = int((by_distance[1:] != by_distance[:-1]).sum()) == 1
    return is_one_step and bool((by_distance[distance + rows - 1] == plane).all())


def _are_whole(values: npt.NDArray[np.float64]) -> bool:
    """Whether all values are multiples of one power of two, too many and too coarse for a rounding to 16 bits."""
    known = values[values > -_LARGEST] if values.min() <= -_LARGEST else values  # masks use the lowest number
    different = np.unique(known)
    if not bool(np.isfinite(different).all()) or different.size < _FEWEST:
        return False
    sizes = np.unique(np.abs(different[different != 0]))
    if not sizes.size or float(sizes[-1]) > _LARGEST:
        return False
    for grain in _GRAINS:
        if bool((np.remainder(sizes, grain) == 0).all()):
            step = np.exp2(np.floor(np.log2(sizes)) - 7)  # spacing of bfloat16
            return float(np.maximum(np.log2(grain / step), 0).sum()) >= _LEAST_BITS
    return False


def _are_boxes(values: npt.NDArray[np.float64]) -> bool:
    """Whether rows of four are boxes around a point, or many boxes of a few sizes: anchors of a detector."""
    if values.ndim < 2 or values.shape[-1] != 4 or not bool(np.isfinite(values).all()):
        return False
    boxes = values.reshape(-1, 4)
    first, last = boxes[:, :2], boxes[:, 2:]
    if len(boxes) >= 2 and bool((first == -last).all()):
        return True
    sizes = last - first
    scale = float(np.abs(boxes).max())
    if len(boxes) < 32 or not bool((sizes > 0).all()):
        return False
    return len(np.unique(np.rint(sizes / scale * 1e4), axis=0)) <= len(boxes) // 8


_VECTORS = (
    (re.compile(r"((?:.*\.)?)([^.]+)_([uv])"), r"\1\2_orig"),
    (re.compile(r"(.*?)parametrizations\.([^.]+)\.\d+\._([uv])"), r"\1parametrizations.\2.original"),
)
"""Names of the vectors of a power iteration in torch's old and new spelling, and of their matrix."""

_NEAR_ONE = 1e-2
"""Largest distance from 1 of such a vector's length: it is normalized, and perhaps rounded to 16 bits."""


def is_power_iteration(name: str, array: Array | None, shapes: Shapes) -> bool:
    """Whether a vector belongs to spectral norm (Miyato et al. 2018, algorithm 1): length 1, beside its matrix."""
    for pattern, matrix in _VECTORS:
        found = pattern.fullmatch(name)
        shape = shapes.get(found.expand(matrix)) if found else None
        if found is None or shape is None or len(shape) < 2:
            continue
        mine = shapes.get(name, ())
        numel = int(np.prod(shape))
        is_left = found[3] == "u"
        fits = len(mine) == 1 and any(
            mine[0] == (side if is_left else numel // side) for side in shape if side
        )
        return fits and (array is None or _is_unit(array))
    return False


def _is_unit(array: Array) -> bool:
    return array.dtype.kind in "fV" and abs(float(np.linalg.norm(array.astype(np.float64))) - 1) <= _NEAR_ONE
