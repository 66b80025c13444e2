"""An `.npz` file -> names, shapes and types of its arrays, by their headers alone."""

from __future__ import annotations

import math
import stat
import tokenize
import warnings
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from analyzer.dtypes import DType
from analyzer.errors import UsageError
from analyzer.units import printable, shorten

__all__ = ["Stored", "read_headers"]

_BROKEN = (
    ValueError,
    TypeError,
    SyntaxError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
    OverflowError,
)
"""What numpy raises for a header that is none."""
_MOST = 10_000
"""Arrays of a file that are looked at."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a file says of one array."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    def holds(self, dtype: DType) -> bool:
        """Whether its elements are of an ONNX type; those that numpy has no name for may be stored as plain bytes."""
        if dtype is DType.STRING:
            return self.dtype.kind in "US"
        element = dtype.to_numpy()
        if element is None:
            return False
        if element.type.__module__.startswith("ml_dtypes") and self.dtype.kind in "Vu":
            return self.dtype.itemsize == element.itemsize
        return self.dtype.newbyteorder("=") == element.newbyteorder("=")


def read_headers(path: Path) -> tuple[Stored, ...]:
    """The arrays of a file, in its order. No element is read, and nothing is unpickled.

    Raises:
        UsageError: it is no `.npz` file, or an array in it is broken or holds Python objects.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a device never ends, a pipe never begins
            raise UsageError(f"--input {path}: is no regular file; give one that numpy.savez wrote")
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > _MOST:
                raise UsageError(f"--input {path}: has more than {_MOST:,} arrays; leave the model's inputs")
            found = tuple(_read_member(path, archive, member) for member in members)
    except OSError as error:
        raise UsageError(f"--input {path}: cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise UsageError(f"--input {path}: is no .npz file ({error}); write it with numpy.savez") from error
    (twice, times), *_ = Counter(stored.name for stored in found).most_common(1) or [("", 0)]
    if times > 1:
        raise UsageError(f"--input {path}: has {printable(twice)} twice; write it again with numpy.savez")
    return found


def _read_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Stored:
    name = member.filename.removesuffix(".npy")
    try:
        with archive.open(member) as stream:
            shape, dtype, header = _read_header(stream)
    except (*_BROKEN, zlib.error) as error:
        raise UsageError(
            f"--input {path}: {printable(name)} is no array that numpy reads ({shorten(printable(str(error)), 200)}); "
            "write the file with numpy.savez, elements of 8-bit floating point as uint8"
        ) from error
    if dtype.hasobject:
        raise UsageError(
            f"--input {path}: {printable(name)} holds Python objects, which are not read; save numbers or texts, as in "
            'numpy.array(["a"])'
        )
    if math.prod(shape) * dtype.itemsize + header != member.file_size:
        raise UsageError(
            f"--input {path}: {printable(name)} is {member.file_size:,} bytes, and its header says "
            f"{math.prod(shape) * dtype.itemsize + header:,}; write the file again with numpy.savez"
        )
    return Stored(name, dtype, shape)


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[np.generic], int]:
    """Shape, type, and bytes of the header."""
    version = npy.read_magic(stream)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version} of the format")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a file of Python 2 is read all the same
        shape, _, dtype = read(stream)
    if any(size < 0 for size in shape):
        raise ValueError(f"shape {shape}")
    return shape, dtype, stream.tell()
