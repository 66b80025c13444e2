"""Weights packed by GPTQ and AWQ into words of 32 bits -> decoded weights, in the layout of `nn.Linear`.

For one layer a checkpoint holds `qweight` and `qzeros` (INT32), `scales`, and for GPTQ often `g_idx`, the group of each
input. With codes q and zero points z of b bits the weight is (q - z) x scale. A word is filled from its lowest bits on:

- GPTQ (AutoGPTQ, GPTQModel): `qweight` is (in x b / 32, out); zero points are stored less one, but not in `gptq_v2`.
- AWQ (AutoAWQ, `gemm`): `qweight` is (in, out x b / 32), in the order 0, 2, 4, 6, 1, 3, 5, 7 of the outputs.

Sources: Frantar et al. 2022 (arXiv:2210.17323), Lin et al. 2023 (arXiv:2306.00978), `qlinear_torch.py` of AutoGPTQ, and
`packing_utils.py` of AutoAWQ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from analyzer.checkpoints import Weights
from analyzer.json_files import load_json
from analyzer.model.content import Array
from analyzer.model.dtypes import DType
from analyzer.records import Frozen

Described = tuple[DType, tuple[int, ...]]
"""Type and shape of a tensor."""

_PARTS = ("qweight", "qzeros", "scales")
_INDEX = "g_idx"
_WORD = 32
_BITS = (2, 4, 8)
"""Widths of codes that fill a word; codes of 3 bits cross its end, and stay as they are stored."""

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Output that each code of a word belongs to, from the lowest bits on."""


class Packed(Frozen):
    """The weight of one layer, as codes."""

    name: str
    """Name of the weight: `model.layers.0.mlp.up_proj.weight`."""
    method: Literal["gptq", "awq"]
    bits: int
    shape: tuple[int, int]
    """(out, in), in elements."""
    groups: int
    """Rows of scales along the inputs."""
    has_index: bool
    """Whether `g_idx` gives the group of each input."""
    is_less_one: bool
    """Whether zero points are stored less one."""

    @property
    def stored(self) -> dict[str, str]:
        """Names of its stored tensors, by their last parts."""
        stem = self.name.removesuffix("weight")
        return {leaf: stem + leaf for leaf in (*_PARTS, *([_INDEX] if self.has_index else []))}

    def decode(self, array: Callable[[str], Array | None]) -> Array | None:
        """Return the weight in float32, which holds each product of a code and a scale of 16 bits exactly.

        Args:
            array: function that returns the stored tensor of a name, or None where there is none.
        """
        found = {leaf: array(name) for leaf, name in self.stored.items()}
        codes, zeros, scales = (found[leaf] for leaf in _PARTS)
        if codes is None or zeros is None or scales is None:
            return None
        out, width = self.shape
        is_gptq = self.method == "gptq"
        order = None if is_gptq else _AWQ_ORDER
        values = _unpack(codes, self.bits, axis=0 if is_gptq else 1, order=order)  # (in, out)
        points = _unpack(zeros, self.bits, axis=1, order=order)[:, :out]  # (groups, out)
        if self.is_less_one:
            points = (points + 1) % (1 << self.bits)
        index = found.get(_INDEX)
        group = np.arange(width) // -(-width // self.groups) if index is None else index.astype(np.int64)
        if group.size != width or (group < 0).any() or (group >= self.groups).any():
            return None
        weight = values.astype(np.float32)
        weight -= points.astype(np.float32)[group]
        weight *= scales.astype(np.float32)[group]
        return np.ascontiguousarray(weight.T)


class PackedWeights(Frozen):
    """Values of a checkpoint, with weights decoded from their codes on request."""

    stored: Weights
    packed: Mapping[str, Packed]

    def array(self, name: str) -> Array | None:
        """Return the values as in `Weights.array`."""
        found = self.packed.get(name)
        return self.stored.array(name) if found is None else found.decode(self.stored.array)


def _unpack(words: Array, bits: int, *, axis: int, order: tuple[int, ...] | None) -> npt.NDArray[np.uint16]:
    """Unpack codes of `bits` bits from words, along an axis."""
    count = _WORD // bits
    shifts = np.arange(count, dtype=np.uint32) * bits
    mask = np.uint32((1 << bits) - 1)
    spread = np.expand_dims(words.view(np.uint32), axis + 1)
    shape = [1, 1, 1]
    shape[axis + 1] = count
    codes = ((spread >> shifts.reshape(shape)) & mask).astype(np.uint16)
    if order is not None and len(order) == count:
        codes = np.take(codes, np.argsort(order), axis=axis + 1)
    rows, columns = words.shape
    return codes.reshape((rows * count, columns) if axis == 0 else (rows, columns * count))


def find_packed(
    tensors: Mapping[str, Described], config: Mapping[str, Any] | None = None
) -> dict[str, Packed]:
    """Find the packed weights of a checkpoint, by the names of the weights.

    Args:
        tensors: type and shape of each tensor, by name.
        config: `quantization_config`, if it is known.
    """
    checkpoint_format = str((config or {}).get("checkpoint_format") or "")
    found = {}
    for name in tensors:
        stem, _, leaf = name.rpartition(".")
        prefix = f"{stem}." if stem else ""
        if leaf == "qweight" and f"{prefix}weight" not in tensors:
            made = _of_layer(prefix, tensors, is_less_one=checkpoint_format != "gptq_v2")
            if made is not None:
                found[made.name] = made
    return found


def _of_layer(prefix: str, tensors: Mapping[str, Described], *, is_less_one: bool) -> Packed | None:
    parts = [tensors.get(prefix + leaf) for leaf in _PARTS]
    if any(part is None or len(part[1]) != 2 for part in parts):
        return None
    (kind, codes), (zero_kind, zeros), (_, scales) = (part for part in parts if part is not None)
    if kind is not DType.INT32 or zero_kind is not DType.INT32 or zeros[0] != scales[0] or not all(scales):
        return None
    groups, out = scales
    bits, rest = divmod(_WORD * zeros[1], out)
    if rest or bits not in _BITS:
        return None
    count = _WORD // bits
    index = tensors.get(prefix + _INDEX)
    name = f"{prefix}weight"
    if codes[1] == out and codes[0]:
        shape = (out, codes[0] * count)
        has_index = index is not None and index[1] == (shape[1],)
        return Packed(name, "gptq", bits, shape, groups, has_index, is_less_one)
    if codes[1] * count == out and bits == 4 and codes[0] % groups == 0:
        return Packed(name, "awq", bits, (out, codes[0]), groups, has_index=False, is_less_one=False)
    return None


def read_quantization(folder: Path) -> Mapping[str, Any] | None:
    """Return the quantization settings in the config beside a checkpoint; None where there are none."""
    for name, key in (("config.json", "quantization_config"), ("quantize_config.json", None)):
        try:
            document = load_json(folder / name)
        except (OSError, ValueError, RecursionError):
            continue
        found = document.get(key) if key and isinstance(document, dict) else document
        if isinstance(found, dict):
            return found
    return None


def describe_packed(found: Mapping[str, Packed]) -> tuple[str, ...]:
    """Return remarks for the user on packed weights, one for each method and width.

    >>> describe_packed({"a.weight": Packed("a.weight", "awq", 4, (8, 64), 2, False, False)})
    ('1 weight decoded from AWQ codes of 4 bits in 2 groups or fewer',)
    """
    remarks = []
    for method, bits in sorted({(each.method, each.bits) for each in found.values()}):
        those = [each for each in found.values() if (each.method, each.bits) == (method, bits)]
        most = max(each.groups for each in those)
        many = f"{len(those):,} weight{'s' if len(those) > 1 else ''}"
        remarks.append(
            f"{many} decoded from {method.upper()} codes of {bits} bits in {most:,} groups or fewer"
        )
    return tuple(remarks)
