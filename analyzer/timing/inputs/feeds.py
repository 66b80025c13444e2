"""Ledger + the user's settings for its inputs, or an `.npz` file -> the content of each input, point by point."""

from __future__ import annotations

import math
import re
import stat
import tokenize
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from analyzer.account.ledger import Ledger
from analyzer.errors import UsageError
from analyzer.model import ValueType
from analyzer.model.dtypes import DType
from analyzer.read.graphs import MAX_RANK
from analyzer.records import Frozen
from analyzer.text import printable, shorten
from analyzer.timing.inputs.roles import (
    RATES,
    KnownInput,
    Lookups,
    Purpose,
    Roles,
    Sides,
    Use,
    assign_roles,
    look_up,
)
from analyzer.timing.inputs.sizes import (
    Defaults,
    RequestedSizes,
    Shapes,
    fixed_size,
    read_settings,
    roles_of_name,
    size_axes,
)
from analyzer.timing.record import Axis
from analyzer.timing.request import Feed, Fill

_BROKEN = (
    ValueError,
    TypeError,
    SyntaxError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
    OverflowError,
)
"""Exceptions that numpy raises for an invalid header."""
_MOST = 10_000
"""Most arrays of a file that are read."""


class Stored(Frozen):
    """Header of one array in a file."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    def has_type(self, dtype: DType) -> bool:
        """Whether its elements are of an ONNX type; types unknown to numpy may be stored as plain bytes."""
        if dtype is DType.STRING:
            return self.dtype.kind in "US"
        element = dtype.to_numpy()
        if element is None:
            return False
        if element.type.__module__.startswith("ml_dtypes") and self.dtype.kind in "Vu":
            return self.dtype.itemsize == element.itemsize
        return self.dtype.newbyteorder("=") == element.newbyteorder("=")


def read_headers(path: Path) -> tuple[Stored, ...]:
    """Return the headers of a file's arrays, in order. No element is read, and nothing is unpickled.

    Raises:
        UsageError: it is no `.npz` file, or an array in it is broken or holds Python objects.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a device never ends, a pipe never begins
            raise UsageError(f"--input {path}: is not a regular file; give one that numpy.savez wrote")
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
    """Return the shape, the type, and the size of the header in bytes."""
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


_MOST_NBYTES = 1 << 40
"""Most bytes of one input."""
_ZEROS = re.compile(r"logits_to_keep|min_length|write_ind")
_LENGTHS = re.compile(r"seq_?len|lengths?$")
"""Names of integer inputs for which 1, or a random number, does not work."""


class Inputs(Frozen):
    """Inputs of one measurement, and the reason of each size."""

    feeds: tuple[Feed, ...]
    axes: tuple[Axis, ...]
    value: int | None = None
    """Length of the swept axis."""


def plan_feeds(
    ledger: Ledger, shapes: Shapes | None = None, past: int | None = None, npz: Path | None = None
) -> tuple[Inputs, ...]:
    """Return the inputs of each point: one, or one for each length of a sweep.

    `past` is the length of the key-value cache; `npz` has inputs, and inputs that it lacks are made up.

    Raises:
        UsageError: a name names nothing, sizes contradict each other, or an input cannot be made.
    """
    shapes = shapes or Shapes()
    stored = {array.name: array for array in read_headers(npz)} if npz is not None else {}
    planner = Planner.of(ledger, stored)
    return tuple(planner.plan(shapes.at(value), past, value) for value in shapes.points())


def _check(ledger: Ledger, stored: Mapping[str, Stored]) -> tuple[ValueType, ...]:
    """Return the signature; an input without a rank gets the rank of its array in the file.

    Raises:
        UsageError: an input cannot be made, or the file does not fit the model.
    """
    if ledger.model.components:
        raise UsageError(f"{ledger.model.path}: is several models; name the .onnx file to run")
    signature = ledger.model.graphs[0].signature
    names = {value_type.name for value_type in signature}
    for name in stored:
        if name not in names:
            listed = ", ".join(printable(value_type.name) for value_type in signature[:20])
            raise UsageError(
                f"--input: {printable(name)} is no input of the model; it has {listed or 'none'}"
            )
    return tuple(_complete(value_type, stored.get(value_type.name)) for value_type in signature)


def _complete(value_type: ValueType, array: Stored | None) -> ValueType:
    """Return the type of an input's array; for a sequence, the type of one tensor."""
    name = printable(value_type.name)
    value_type = value_type.each or value_type
    if value_type.kind != "tensor":
        kind = value_type.kind.replace("_", " ")
        what = (
            f"{'an' if kind[:1] == 'o' else 'a'} {kind}" if kind else "of a type that the file does not give"
        )
        raise UsageError(
            f"input {name}: is {what}, which cannot be made or read from a file; export with tensors"
        )
    if value_type.dims is not None and len(value_type.dims) > MAX_RANK:
        raise UsageError(
            f"input {name}: has more than {MAX_RANK} axes, which no array can have; check the file"
        )
    if value_type.dtype.to_numpy() is None and value_type.dtype is not DType.STRING:
        raise UsageError(
            f"input {name}: {value_type.dtype.name} elements cannot be fed; export with other inputs"
        )
    if array is None:
        if value_type.dims is None:
            raise UsageError(f"input {name}: the file does not say its rank; give it with --input FILE.npz")
        return value_type
    if not array.has_type(value_type.dtype):
        raise UsageError(
            f"--input: {name} is to be {value_type.dtype.name}, and the file has {array.dtype}; convert it"
        )
    dims: tuple[int | str | None, ...] = (
        value_type.dims if value_type.dims is not None else (None,) * len(array.shape)
    )
    if len(dims) != len(array.shape):
        raise UsageError(
            f"--input: {name} is to have {len(dims)} axes, and the file has {len(array.shape)}: {array.shape}"
        )
    return value_type._replace(dims=dims)


class _Scales(Frozen):
    """Lengths that the contents of inputs depend on."""

    past: int
    sequence: int

    @classmethod
    def of(cls, axes: Sequence[Axis], *, has_room: bool) -> _Scales:
        """Read the lengths from the axes; a cache with room does not say how much of it is filled."""
        past = 0 if has_room else next((axis.size for axis in axes if axis.role == Roles.PAST), 0)
        lengths = (axis.size for axis in axes if axis.role in (Roles.SEQUENCE, Roles.DECODER))
        return cls(past, next(lengths, 1))


class Planner:
    """Facts about a model's inputs that do not depend on their sizes."""

    def __init__(
        self,
        parts: Sequence[KnownInput],
        sides: Sides,
        lookups: Lookups,
        settings: Mapping[str, object],
        stored: Mapping[str, Stored],
        sequences: frozenset[str],
    ) -> None:
        self.parts = parts
        self.sides = sides
        self.lookups = lookups
        self.settings = settings
        self.stored = stored
        self.sequences = sequences
        self.room = _room(parts)
        self.defaults = Defaults(
            lookups,
            settings,
            has_decoder=sides.has_decoder,
            room=self.room,
            is_stream=any(part.purpose is Purpose.STATE for part in parts),
        )

    @classmethod
    def of(cls, ledger: Ledger, stored: Mapping[str, Stored] | None = None) -> Planner:
        """Make the planner of a model, with the arrays that a file has for some of its inputs.

        Raises:
            UsageError: an input cannot be made, or the file does not fit the model.
        """
        stored = stored or {}
        signature = _check(ledger, stored)
        lookups = look_up(ledger.model, ledger.wiring)
        parts, sides = assign_roles(signature, lookups.uses)
        sequences = frozenset(
            value_type.name for value_type in ledger.model.graphs[0].signature if value_type.each
        )
        return cls(parts, sides, lookups, read_settings(ledger.model.paths), stored, sequences)

    def roles_of(self, name: str) -> frozenset[str]:
        """Return the roles of the axes that `--shape` means by a name.

        Raises:
            UsageError: it means none.
        """
        return roles_of_name(self.parts, self.sides, name, self.defaults.size)

    def sizes_of(self, role: str) -> frozenset[int | None]:
        """Return the sizes that the file fixes for the axes of a role, None for a free one; empty without such axes."""
        axes = (axis for part in self.parts for axis in zip(part.dims, part.roles, strict=True))
        is_nameless = all(part.value_type.name.isdecimal() for part in self.parts)
        return frozenset(fixed_size(dim, is_nameless=is_nameless) for dim, found in axes if found == role)

    @property
    def positions(self) -> int | None:
        """Largest number of tokens in a sequence, by the smallest table of positions; None without a limit."""
        fed = (
            self.lookups.uses.get(part.value_type.name, Use()).rows
            for part in self.parts
            if part.purpose is Purpose.POSITIONS
        )
        found = (limit for limit in (self.lookups.positions, self.room, *fed) if limit is not None)
        return min(found, default=None)

    def plan(
        self,
        sizes: tuple[tuple[str, int], ...],
        past: int | None = None,
        value: int | None = None,
        roles: tuple[tuple[str, int, str], ...] = (),
    ) -> Inputs:
        """Return the inputs of the model, with the sizes of `--shape` and `--past`, and of roles with a reason.

        Raises:
            UsageError: sizes contradict each other, or an input cannot be made.
        """
        arrays = tuple((array.name, array.shape) for array in self.stored.values())
        axes = size_axes(
            self.parts, self.sides, RequestedSizes(sizes, past, arrays, roles), self.defaults.size
        )
        by_input: dict[str, list[Axis]] = {part.value_type.name: [] for part in self.parts}
        for axis in axes:
            by_input[axis.input].append(axis)
        scales = _Scales.of(axes, has_room=self.room is not None)
        shaped = [(part, tuple(axis.size for axis in by_input[part.value_type.name])) for part in self.parts]
        feeds = tuple(self._feed(part, shape, scales) for part, shape in shaped)
        for feed in feeds:
            _check_size(feed)
        return Inputs(feeds, axes, value)

    def _feed(self, part: KnownInput, shape: tuple[int, ...], scales: _Scales) -> Feed:
        value_type = part.value_type
        is_sequence = value_type.name in self.sequences
        if value_type.name in self.stored:
            return Feed(value_type.name, value_type.dtype.name, shape, Fill.FILE, is_sequence=is_sequence)
        use = self.lookups.uses.get(value_type.name, Use())
        fill, low, high = self._fill(part, use, shape, scales)
        return Feed(value_type.name, value_type.dtype.name, shape, fill, low, high, is_sequence)

    def _fill(
        self, part: KnownInput, use: Use, shape: tuple[int, ...], scales: _Scales
    ) -> tuple[Fill, float, float]:
        match part.purpose:
            case _ if part.value_type.dtype is DType.STRING:
                return Fill.TEXT, 0, 0
            case Purpose.MASK:
                return Fill.CONSTANT, 1, 1
            case Purpose.BRANCH:
                return Fill.CONSTANT, int(scales.past > 0), int(scales.past > 0)
            case Purpose.POSITIONS:
                return Fill.POSITIONS, scales.past, 0 if use.rows is None else use.rows - 1
            case Purpose.SEGMENTS:
                return Fill.INTEGERS, 0, (use.rows or 1) - 1
            case Purpose.TOKENS:
                rows = use.rows or self._vocabulary() or 2
                return Fill.INTEGERS, 0, rows - 1
            case _ if part.value_type.dtype.is_floating:
                return _floating(part, shape)
            case Purpose.IMAGE:
                return Fill.INTEGERS, 0, 127 if part.value_type.dtype is DType.INT8 else 255
            case _:
                return _whole(part, use, shape, scales)

    def _vocabulary(self) -> int | None:
        found = self.settings.get("vocab_size")
        return found if isinstance(found, int) and found > 0 else None


def _room(parts: Sequence[KnownInput]) -> int | None:
    """Return the tokens that fit in a cache of fixed size, if an input gives the index to write at; else None."""
    if not any("write_ind" in part.value_type.name.lower() for part in parts):
        return None
    axes = (axis for part in parts for axis in zip(part.dims, part.roles, strict=True))
    return min((dim for dim, role in axes if role == Roles.PAST and isinstance(dim, int)), default=None)


def _floating(part: KnownInput, shape: tuple[int, ...]) -> tuple[Fill, float, float]:
    """Return numbers around 0; a single one is a setting, such as a temperature."""
    if part.purpose is Purpose.OTHER and math.prod(shape) == 1 and len(shape) <= 1:
        return Fill.CONSTANT, 1, 1
    return Fill.UNIFORM, -1, 1


def _whole(part: KnownInput, use: Use, shape: tuple[int, ...], scales: _Scales) -> tuple[Fill, float, float]:
    """Return integers of unknown purpose: a single one is a setting."""
    if len(shape) <= 1:
        number = _setting(part.value_type.name.lower(), scales.sequence)
        if number is not None or math.prod(shape) == 1:
            number = 1 if number is None else number
            return Fill.CONSTANT, number, number
    if use.is_index and part.value_type.dtype is not DType.BOOL:
        return Fill.CONSTANT, 0, 0  # index 0 always exists
    return Fill.INTEGERS, 0, 1


def _setting(name: str, length: int) -> int | None:
    """Return the value of an input that is a setting, by its name; None for any other name."""
    if name in RATES:
        return 16_000
    if name == "max_length":
        return length + 16
    if _ZEROS.search(name):
        return 0
    return length if _LENGTHS.search(name) else None


def _check_size(feed: Feed) -> None:
    nbytes = math.prod(feed.shape) * max(1, DType[feed.dtype].bits // 8)
    if nbytes > _MOST_NBYTES:
        raise UsageError(
            f"input {printable(feed.name)}: {' x '.join(map(str, feed.shape))} elements take {nbytes:,} bytes; make "
            "an axis smaller with --shape"
        )
