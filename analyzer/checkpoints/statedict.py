"""Names, types and shapes of a state dict -> Manifest, where no module says which tensors are parameters.

`docs/counting.md` has the table of names in words.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analyzer.checkpoints.buffers import is_known_state, is_power_iteration
from analyzer.checkpoints.weights import Original, Weights
from analyzer.dtypes import DType
from analyzer.manifest import BatchNorm, Buffer, Manifest, Parameter, WeightNorm
from analyzer.scopes import is_buffer_name

__all__ = [
    "BY_MODULE",
    "BY_NAMES",
    "NamedTensor",
    "because",
    "describe_by_names",
    "is_buffer",
    "listed",
    "plain_names",
]

BY_MODULE = "meta-device"
"""`Manifest.source["parameters_by"]` where the class told parameters from buffers."""

BY_NAMES = "names"
"""`Manifest.source["parameters_by"]` where only names, types and shapes did."""

_EPS = 1e-5
"""PyTorch's default, which a state dict does not hold."""

_WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Modules that torch.compile, FSDP and activation checkpointing put around others, at any depth."""

_PARALLEL = "module."
"""What DataParallel and DistributedDataParallel put before every name."""

_OLD_LAYER_NORM = re.compile(r"(?<![^.])LayerNorm\.(gamma|beta)\Z")
_NEW_LEAF = {"gamma": "weight", "beta": "bias"}


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A tensor of a state dict: whether it is a parameter is not known yet."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    tied: tuple[str, ...] = ()
    """Other names of the same storage."""


def plain_names(stored: Iterable[str]) -> dict[str, str]:
    """Names as the bare module has them: without wrappers, with today's names of LayerNorm's tensors.

    >>> plain_names(["module.a._orig_mod.w", "module.LayerNorm.gamma"])
    {'module.a._orig_mod.w': 'a.w', 'module.LayerNorm.gamma': 'LayerNorm.weight'}
    """
    names = list(stored)
    plain = {name: _unwrapped(name) for name in names}
    if names and all(name.startswith(_PARALLEL) and name != _PARALLEL for name in plain.values()):
        plain = {name: shown.removeprefix(_PARALLEL) for name, shown in plain.items()}
    plain = {name: _OLD_LAYER_NORM.sub(_renamed, shown) for name, shown in plain.items()}
    taken = Counter(plain.values())
    return {name: shown if taken[shown] == 1 else name for name, shown in plain.items()}


def _unwrapped(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS) or name


def _renamed(found: re.Match[str]) -> str:
    return f"LayerNorm.{_NEW_LEAF[found[1]]}"


def describe_by_names(
    tensors: Sequence[NamedTensor],
    source: Mapping[str, str],
    weights: Weights | None,
    notes: Iterable[str] = (),
) -> Original:
    """PyTorch's side from names alone: every tensor of the state dict is a parameter or a persistent buffer.

    Every parameter counts as trainable, and ties are those that `tensors` says.
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
            f"the eps of {len(norms)} BatchNorms is not in a state dict: {_EPS:g}, PyTorch's default, or what a folded "
            "weight gives",
        )
    return Original(manifest, weights, notes)


def because(original: Original, path: Path, reason: str) -> Original:
    """The same, with a note of why only names told parameters from buffers."""
    note = f"{path}: parameters are told from buffers by their names: {reason}"
    return dataclasses.replace(original, notes=(note, *original.notes))


def is_buffer(
    tensor: NamedTensor, weights: Weights | None = None, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> bool:
    """Whether a tensor that no module accounts for is state that is not learned.

    Its name is that of a buffer; or it is of integers or booleans and no quantized `weight`, as nothing else that is
    learned is of integers; or it is a causal mask, which GPT-2 and those after it call `attn.bias`; or its values, or
    what stands beside it in `shapes`, say so (`analyzer.checkpoints.buffers`).
    """
    if any(is_buffer_name(name) for name in (tensor.name, *tensor.tied)):
        return True
    leaf = tensor.name.rpartition(".")[2]
    if tensor.dtype.is_integer or tensor.dtype is DType.BOOL:
        return leaf != "weight"
    if leaf == "bias" and _is_causal_mask(tensor, weights):
        return True
    values = weights.array(tensor.name) if weights is not None else None
    return is_known_state(tensor.name, values) or is_power_iteration(tensor.name, values, shapes or {})


def _is_causal_mask(tensor: NamedTensor, weights: Weights | None) -> bool:
    """A (1, 1, positions, positions) lower triangle of ones; a few of its rows are looked at, if they can be."""
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
    """Modules that hold running statistics, in order of their names."""
    for mean in sorted(name for name in names if name.rpartition(".")[2] == "running_mean"):
        module = mean.rpartition(".")[0]
        prefix = f"{module}." if module else ""

        def of(leaf: str, prefix: str = prefix) -> str | None:
            return prefix + leaf if prefix + leaf in names else None

        yield BatchNorm(module, _EPS, of("weight"), of("bias"), mean, of("running_var"))


_LENGTHS = (
    (re.compile(r"(.*?)([^.]+)_g"), r"\1\2_v", r"\1\2"),
    (re.compile(r"(.*?)parametrizations\.([^.]+)\.original0"), r"\1parametrizations.\2.original1", r"\1\2"),
)
"""Names of a weight norm's length in torch's old and new spelling, of its direction, and of their product."""


def _weight_norms(shapes: Mapping[str, tuple[int, ...]]) -> Iterable[WeightNorm]:
    """Weights that are a direction and a length: the length has one element for each index of one axis."""
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
    """The first few of many names, in order.

    >>> listed("gfedcba")
    'a, b, c, d, e and 2 more'
    """
    found = sorted(names)
    rest = len(found) - _LISTED
    return ", ".join(found[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")
