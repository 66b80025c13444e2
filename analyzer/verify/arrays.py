"""Value of onnxruntime -> one array that is compared in its place: texts, maps and sequences as numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from analyzer.model.content import Array


def as_array(value: object) -> Array | None:
    """Return a value of onnxruntime as one array that is compared in its place; None if no array stands for it.

    - Each text becomes a number of 63 bits that stands for it (BLAKE2b).
    - The maps of ai.onnx.ml's ZipMap become a row each, in the order of their keys. Two rows more stand for the keys,
      with numbers between 1/2 and 1, so that values under other keys differ.
    - Tensors of one shape in a sequence become one.
    """
    if isinstance(value, np.ndarray):
        if value.dtype != object:
            return value
        return np.array([_number_of(text) for text in value.reshape(-1)], np.int64).reshape(value.shape)
    if not isinstance(value, list) or not value:
        return None
    if all(isinstance(each, dict) and each.keys() == value[0].keys() for each in value):
        return _rows_of(value)
    arrays = [found for each in value if (found := as_array(each)) is not None]
    if len(arrays) < len(value) or len({each.shape for each in arrays}) > 1:
        return None
    return np.stack(arrays)


def _rows_of(maps: Sequence[Mapping[object, object]]) -> Array | None:
    keys = sorted(maps[0], key=repr)
    try:
        values = np.array([[each[key] for key in keys] for each in maps], np.float32)
    except (TypeError, ValueError):  # no numbers
        return None
    if values.ndim != 2:
        return None
    numbers = np.array([_number_of(repr(key)) for key in keys], np.int64)
    halves = np.stack([numbers >> 40, numbers >> 17 & (1 << 23) - 1])  # 23 bits each, which float32 holds
    return np.concatenate([values, (0.5 + halves / 2**24).astype(np.float32)])


def _number_of(text: object) -> int:
    content = str(text).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") >> 1
