"""Feed -> numpy array, always the same for a seed; in the process that runs the model."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from analyzer.model.content import Array
from analyzer.model.dtypes import DType
from analyzer.timing.request import Feed, Fill

_SIGNIFICAND = 1 << 53
"""Integers below it are exact as floats."""


def as_taken(arrays: Mapping[str, Array], inference: Any) -> dict[str, Array | list[Array]]:
    """Convert inputs for an onnxruntime session: an array for a tensor, a list with the array for a sequence."""
    sequences = {argument.name for argument in inference.get_inputs() if argument.type.startswith("seq(")}
    return {name: [array] if name in sequences else array for name, array in arrays.items()}


def make_array(feed: Feed, seed: int, npz: str | None = None) -> Array:
    """Return the elements of an input. They depend on the seed and on the input's name, not on the other inputs.

    Raises:
        ValueError: its type has no arrays, or the array in the file differs from the feed.
        OSError: the file cannot be read.
    """
    if feed.fill is Fill.FILE:
        return load_array(feed, npz or "")
    if feed.fill is Fill.TEXT:
        return np.full(feed.shape, "a", dtype=object)
    element = DType[feed.dtype].to_numpy()
    if element is None:
        raise ValueError(f"{feed.name}: {feed.dtype} elements have no numpy type")
    generator = np.random.default_rng([seed, zlib.crc32(feed.name.encode("utf-8", "surrogatepass"))])
    match feed.fill:
        case Fill.CONSTANT:
            return np.full(feed.shape, feed.low).astype(element)
        case Fill.POSITIONS:
            return _positions(feed).astype(element)
        case Fill.INTEGERS:
            high = min(int(feed.high), _SIGNIFICAND)
            return generator.integers(int(feed.low), high, size=feed.shape, endpoint=True).astype(element)
        case _:
            wide = np.float32 if element.itemsize <= 4 else np.float64
            numbers = generator.random(math.prod(feed.shape), dtype=wide).reshape(feed.shape)
            numbers *= feed.high - feed.low
            numbers += feed.low
            return numbers.astype(element, copy=False)


def _positions(feed: Feed) -> Array:
    """Return `low` and the following integers along the last axis, up to `high` if the feed has one."""
    if not feed.shape:
        return np.array(int(feed.low))
    row = np.arange(feed.shape[-1]) + int(feed.low)  # (positions,)
    if feed.high:
        row = np.minimum(row, int(feed.high))
    return np.broadcast_to(row, feed.shape).copy()


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an `.npz` file; `numpy.savez` before numpy 2.1 would take `allow_pickle` for the name of an array.

    Raises:
        ValueError: an array holds Python objects other than texts.
    """
    with zipfile.ZipFile(path, "w") as file:
        for name, array in arrays.items():
            if array.dtype == object and all(isinstance(each, str) for each in array.reshape(-1)):
                array = array.astype(str)
            with file.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)


def load_array(feed: Feed, npz: str) -> Array:
    """Load an input from the `.npz` file; element types unknown to numpy are stored there as bytes, or as integers."""
    with np.load(Path(npz), allow_pickle=False) as file:
        array: Array = file[feed.name]
    if array.shape != feed.shape:
        raise ValueError(f"{npz}: {feed.name} is {array.shape}, not {feed.shape}; the file has changed")
    if feed.dtype == DType.STRING.name:
        return array.astype(object)
    element = DType[feed.dtype].to_numpy()
    if element is None:
        raise ValueError(f"{feed.name}: {feed.dtype} elements have no numpy type")
    if element.type.__module__.startswith("ml_dtypes") and array.dtype.kind in "Vu":
        return np.ascontiguousarray(array).view(element)
    return array.astype(element, copy=False)
