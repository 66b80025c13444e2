"""Where a tensor's elements are -> numpy, read only when a rule asks."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from analyzer.content import Array
from analyzer.dtypes import DType
from analyzer.errors import ExternalDataError

__all__ = [
    "ExternalPayload",
    "InlinePayload",
    "ListPayload",
    "NoPayload",
    "encoded_nbytes",
    "locate_external",
]


@dataclass(frozen=True, slots=True, eq=False)
class InlinePayload:
    """The elements are in the model file, in any of TensorProto's fields."""

    proto: onnx.TensorProto
    dtype: DType
    shape: tuple[int, ...]

    def array(self) -> Array | None:
        element = self.dtype.to_numpy()
        if element is None:
            return None
        try:
            if self.proto.HasField("raw_data"):
                return np.frombuffer(self.proto.raw_data, dtype=element).reshape(self.shape)
            return (
                np.asarray(numpy_helper.to_array(self.proto)).astype(element, copy=False).reshape(self.shape)
            )
        except (ValueError, TypeError):
            return None  # fewer or more elements than the shape says; reported when the file is read


@dataclass(frozen=True, slots=True, eq=False)
class ExternalPayload:
    """The elements are a range of another file, mapped when they are wanted."""

    path: Path
    offset: int
    dtype: DType
    shape: tuple[int, ...]

    def array(self) -> Array | None:
        element = self.dtype.to_numpy()
        if element is None:
            return None
        if 0 in self.shape:
            return np.empty(self.shape, dtype=element)
        try:
            # mmap needs no alignment here: np.memmap rounds the offset down to a page itself.
            mapped = np.memmap(self.path, dtype=np.uint8, mode="r", offset=self.offset)
            needed = self.dtype.nbytes(int(np.prod(self.shape, dtype=object)))
            return mapped[:needed].view(element).reshape(self.shape).view(np.ndarray)
        except (OSError, ValueError):
            return None


@dataclass(frozen=True, slots=True, eq=False)
class ListPayload:
    """The elements are a list attribute."""

    values: tuple[int, ...] | tuple[float, ...]
    dtype: DType

    def array(self) -> Array | None:
        element = self.dtype.to_numpy()
        return None if element is None else np.array(self.values, dtype=element)


@dataclass(frozen=True, slots=True)
class NoPayload:
    """The elements are strings, or cannot be had."""

    def array(self) -> Array | None:
        return None


def encoded_nbytes(proto: onnx.TensorProto) -> int:
    """Bytes that the payload takes in its own field of the file, without tags and lengths.

    `raw_data` and the fixed-width lists are as wide as their elements; the integer lists are varints (protobuf
    encoding, "Varints": 7 bits a byte, negative numbers 10 bytes).
    """
    total = len(proto.raw_data)
    total += 4 * len(proto.float_data) + 8 * len(proto.double_data)
    for numbers in (proto.int32_data, proto.int64_data, proto.uint64_data):
        if len(numbers):
            total += varint_nbytes(numbers)
    return total + sum(len(text) for text in proto.string_data)


def varint_nbytes(numbers: Iterable[int]) -> int:
    """Encoded length of integers as protobuf varints.

    >>> varint_nbytes([0, 127, 128, -1])
    14
    """
    unsigned = np.array([number & 0xFFFFFFFFFFFFFFFF for number in numbers], dtype=np.uint64)
    total = len(unsigned)
    for bits in range(7, 64, 7):
        total += int((unsigned >= np.uint64(1) << np.uint64(bits)).sum())
    return total


def locate_external(folder: Path, location: str) -> Path:
    """The regular file that an external-data `location` names, opened nowhere but in the model's own folder.

    A link inside a hub cache (`snapshots/<revision>/x` -> `blobs/<hash>`) may lead to that cache's own blobs.

    Raises:
        ExternalDataError: the location is absolute, leaves the folder, or is no regular file. The message starts
            with the finding's id in brackets.
    """
    if (
        not location
        or "\0" in location
        or Path(location).is_absolute()
        or "\\" in location
        or "://" in location
    ):
        raise ExternalDataError(f"[external-escapes] location {location!r} is no relative path")
    root = folder.resolve()
    target = (folder / location).resolve()
    if not target.is_relative_to(root) and not _is_hub_blob(folder, location, target):
        raise ExternalDataError(f"[external-escapes] location {location!r} leads outside the model's folder")
    try:
        status = target.stat()
    except (OSError, ValueError) as error:
        raise ExternalDataError(f"[external-missing] {location!r} is not there") from error
    if not stat.S_ISREG(status.st_mode):
        raise ExternalDataError(f"[external-escapes] {location!r} is no regular file")
    return target


def _is_hub_blob(folder: Path, location: str, target: Path) -> bool:
    """Whether `target` is in the blob store of the hub cache that `folder` is a snapshot of."""
    snapshot = folder.absolute()
    for parent in (snapshot, *snapshot.parents):
        if parent.parent.name == "snapshots":
            store = (parent.parent.parent / "blobs").resolve()
            return ".." not in Path(location).parts and target.parent == store
    return False
