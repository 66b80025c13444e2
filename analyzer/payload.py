"""Where a tensor's elements are -> numpy, read only when a rule asks."""

from __future__ import annotations

import math
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
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
    "payload_mismatch",
    "varint_nbytes",
]


@dataclass(frozen=True, slots=True, eq=False)
class InlinePayload:
    """The elements are in the model file, in any of TensorProto's fields."""

    proto: onnx.TensorProto
    dtype: DType
    shape: tuple[int, ...]

    def array(self) -> Array | None:
        element = self.dtype.to_numpy()
        try:
            if self.proto.HasField("raw_data"):
                return _from_bytes(np.frombuffer(self.proto.raw_data, dtype=np.uint8), self.dtype, self.shape)
            if element is None:
                packed = np.array(self.proto.int32_data, dtype=np.int64).astype(np.uint8)
                return _from_bytes(packed, self.dtype, self.shape)
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
        if 0 in self.shape:
            return _from_bytes(np.empty(0, dtype=np.uint8), self.dtype, self.shape)
        try:
            # mmap needs no alignment here: np.memmap rounds the offset down to a page itself.
            mapped = np.memmap(self.path, dtype=np.uint8, mode="r", offset=self.offset)
            needed = self.dtype.nbytes(math.prod(self.shape))
            return _from_bytes(mapped[:needed].view(np.ndarray), self.dtype, self.shape)
        except (OSError, ValueError):
            return None


def _from_bytes(raw: npt.NDArray[np.uint8], dtype: DType, shape: tuple[int, ...]) -> Array | None:
    """Elements from `raw_data`, a view where they are whole bytes.

    Elements of 2 and 4 bits are unpacked, the first in the lowest bits (onnx.proto, `raw_data`), into uint8 codes: as
    good as values to compare contents by. None for other types without a numpy equivalent.

    Raises:
        ValueError: there are fewer or more bytes than the shape needs.
    """
    element = dtype.to_numpy()
    if element is not None:
        return raw.view(element).reshape(shape)
    if dtype.bits not in (2, 4):
        return None
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    codes = (raw[:, None] >> shifts) & np.uint8((1 << dtype.bits) - 1)  # (bytes, elements a byte)
    return codes.reshape(-1)[: math.prod(shape)].reshape(shape)


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
    unsigned = np.fromiter((number & 0xFFFFFFFFFFFFFFFF for number in numbers), dtype=np.uint64)
    total = len(unsigned)
    for bits in range(7, 64, 7):
        total += int((unsigned >= np.uint64(1) << np.uint64(bits)).sum())
    return total


def payload_mismatch(proto: onnx.TensorProto, dtype: DType, numel: int, nbytes: int) -> str | None:
    """What is wrong with the amount of data that a tensor in the file brings; None if it fits its shape.

    `nbytes` is `encoded_nbytes`: asking the proto for `raw_data` again would copy it again.
    """
    if not dtype.bits and dtype is not DType.STRING:
        return None  # an unknown type: nobody knows what its elements need
    if proto.HasField("raw_data"):
        needed, found, unit = dtype.nbytes(numel), nbytes, "bytes"
    else:
        needed, found, unit = _listed_items(dtype, numel), _count_items(proto), "list items"
    if needed == found:
        return None
    return f"{numel:,} elements of {dtype.name} need {needed:,} {unit}, the file has {found:,}"


def _listed_items(dtype: DType, numel: int) -> int:
    """Items that `numel` elements take in TensorProto's typed lists (onnx.proto, `int32_data`)."""
    if dtype in (DType.COMPLEX64, DType.COMPLEX128):
        return 2 * numel
    return dtype.nbytes(numel) if dtype.bits in (2, 4) else numel


def _count_items(proto: onnx.TensorProto) -> int:
    return (
        len(proto.float_data)
        + len(proto.int32_data)
        + len(proto.int64_data)
        + len(proto.double_data)
        + len(proto.uint64_data)
        + len(proto.string_data)
    )


def locate_external(model: Path, location: str) -> Path:
    """The regular file that an external-data `location` names, opened nowhere but in the model's own folder.

    A link inside a hub cache (`snapshots/<revision>/x` -> `blobs/<hash>`) may lead to that cache's own blobs.

    Raises:
        ExternalDataError: the location is absolute, leaves the folder, is the model itself or no regular file. The
            message starts with the finding's id in brackets.
    """
    if (
        not location
        or "\0" in location
        or Path(location).is_absolute()
        or "\\" in location
        or "://" in location
    ):
        raise ExternalDataError(f"[external-escapes] location {location!r} is no relative path")
    folder = model.parent
    try:
        root, target, itself = folder.resolve(), (folder / location).resolve(), model.resolve()
        if not target.is_relative_to(root) and not _is_hub_blob(folder, location, target):
            raise ExternalDataError(
                f"[external-escapes] location {location!r} leads outside the model's folder"
            )
        status = target.stat()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle
        raise ExternalDataError(f"[external-missing] {location!r} is not there") from error
    if target == itself:
        raise ExternalDataError(f"[external-escapes] location {location!r} is the model file itself")
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
