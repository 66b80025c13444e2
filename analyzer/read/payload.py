"""Positions of a tensor's elements in a file -> numpy arrays, read only when a rule asks."""

from __future__ import annotations

import enum
import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from analyzer.model import NoPayload, Payload
from analyzer.model.content import SAMPLES, Array, sample, sample_positions
from analyzer.model.dtypes import DType
from analyzer.model.ranges import Source
from analyzer.read.protos import AttributeProto, TensorProto
from analyzer.read.wire import decode_varints
from analyzer.records import Frozen

Bytes = npt.NDArray[np.uint8]

_PART = 1 << 24
"""Bytes of a tensor that are in memory at a time during a full pass; a whole number of elements of every type."""

_READ_WHOLE = 1 << 16
"""Most bytes that are read whole, because a read for each requested element costs more."""

_FEW = 8
"""Most elements for which separate reads cost less."""

_PAGE = 1 << 12
"""Bytes that a local file returns as quickly as one element."""


class Encoding(enum.Enum):
    """Encoding of a tensor's elements (onnx.proto, TensorProto)."""

    PLAIN = enum.auto()
    """Little-endian elements: `raw_data`, external data, and packed lists of fixed width."""
    VARINTS = enum.auto()
    """A packed list of varints: `int32_data`, `int64_data`, `uint64_data`."""
    UNPACKED = enum.auto()
    """A list with a key before each element, which protobuf's own parser reads."""


class FilePayload(Frozen, eq=False):
    """Ranges of a file that hold a tensor's elements.

    Reading them raises ModelReadError if the file has changed, or a request fails.
    """

    source: Source
    encoding: Encoding
    ranges: tuple[tuple[int, int], ...]
    """(offset, length) of each range, in order; nearly always one."""
    dtype: DType
    shape: tuple[int, ...]

    def array(self) -> Array | None:
        """Return all elements in the tensor's shape; memory-mapped if a local file holds them in numpy's format.

        Elements of 2 and 4 bits are unpacked into uint8 codes. None if they are not numbers, or do not fit the shape
        (reported when the file is read).
        """
        try:
            match self.encoding:
                case Encoding.PLAIN:
                    return _from_bytes(self._bytes(), self.dtype, self.shape)
                case Encoding.VARINTS:
                    return _from_numbers(decode_varints(self._bytes()), self.dtype, self.shape)
                case Encoding.UNPACKED:
                    return self._unpacked()
        except ValueError:
            return None

    def sample(self, salt: str = "") -> Array | None:
        """Return the elements at `analyzer.model.content.sample_positions`, flat; a large tensor is not read whole."""
        numel = math.prod(self.shape)
        nbytes = self.dtype.nbytes(numel)
        if not self._is_random_access or nbytes <= _READ_WHOLE or numel <= SAMPLES:
            array = self.array()
            return None if array is None else sample(array, salt)
        if self.ranges[0][1] != nbytes:
            return None  # `array` would fail too, and a shape may have more elements than an int64 counts
        return self.at(sample_positions(numel, salt))

    def at(self, positions: npt.NDArray[np.int64]) -> Array | None:
        """Return the elements at these row-major positions, flat, with as few bytes read as the file allows."""
        if not self._is_random_access:
            array = self.array()
            return None if array is None else array.reshape(-1)[positions]
        ((start, length),) = self.ranges
        if length != self.dtype.nbytes(math.prod(self.shape)):
            return None
        element, bits = self.dtype.to_numpy(), self.dtype.bits
        most_separate = 1 if length <= _PAGE and not self.source.is_remote else _FEW
        if length <= _READ_WHOLE and (len(positions) > most_separate or self.source.is_in_memory):
            array = self.array()
            return None if array is None else array.reshape(-1)[positions]
        size = 1 if element is None else element.itemsize
        places = positions if element is not None else positions * bits // 8
        parts = self.source.read_ranges([(place, size) for place in (start + size * places).tolist()])
        if element is not None:
            return np.frombuffer(b"".join(parts), dtype=element)
        packed = np.frombuffer(b"".join(parts), dtype=np.uint8)
        return packed >> (positions * bits % 8).astype(np.uint8) & np.uint8((1 << bits) - 1)

    @property
    def _is_random_access(self) -> bool:
        """Whether an element's position in the file is known without reading earlier ones."""
        is_known = self.dtype.to_numpy() is not None or self.dtype.bits in (2, 4)
        return is_known and self.encoding is Encoding.PLAIN and len(self.ranges) == 1

    def parts(self) -> Iterator[Array]:
        """Yield all elements, flat, in parts, so that memory does not grow with the tensor."""
        element = self.dtype.to_numpy()
        if self.encoding is not Encoding.PLAIN or element is None or len(self.ranges) != 1:
            yield from _flat(self.array())
            return
        ((start, length),) = self.ranges
        if length != math.prod(self.shape) * element.itemsize:
            return
        for offset in range(0, length, _PART):
            content = self.source.read(start + offset, min(_PART, length - offset))
            yield np.frombuffer(content, dtype=element)

    def _bytes(self) -> Bytes:
        views = [self.source.view(offset, length) for offset, length in self.ranges]
        return views[0] if len(views) == 1 else np.concatenate([np.empty(0, dtype=np.uint8), *views])

    def _unpacked(self) -> Array | None:
        proto = TensorProto()
        try:
            for offset, length in self.ranges:
                proto.MergeFromString(self.source.read(offset, length))
        except DecodeError:
            return None
        if proto.float_data or proto.double_data:
            reals = np.array(
                proto.float_data or proto.double_data, dtype="<f4" if proto.float_data else "<f8"
            )
            return _from_bytes(reals.view(np.uint8), self.dtype, self.shape)
        numbers = [n & 0xFFFFFFFFFFFFFFFF for n in (*proto.int32_data, *proto.int64_data, *proto.uint64_data)]
        return _from_numbers(np.array(numbers, dtype=np.uint64), self.dtype, self.shape)


def read_together(payloads: Sequence[Payload]) -> list[Array | None]:
    """Return `array` of each payload, opening each file once for all plain ones: for many small tensors."""
    return [
        _decode(content, payload)
        if content is not None and isinstance(payload, FilePayload)
        else payload.array()
        for payload, content in zip(payloads, _read_plain(payloads), strict=True)
    ]


def read_elements_together(payloads: Sequence[Payload]) -> list[tuple[np.dtype, bytes] | None]:
    """Return the element type and the bytes of each payload, as in `read_together` but without making arrays.

    None for a payload in another encoding, or whose elements are not whole bytes, or do not fit its shape.
    """
    found: list[tuple[np.dtype, bytes] | None] = []
    for payload, content in zip(payloads, _read_plain(payloads), strict=True):
        element = payload.dtype.to_numpy() if content and isinstance(payload, FilePayload) else None
        if element is None or content is None or not isinstance(payload, FilePayload):
            found.append(None)
        else:
            is_whole = len(content) == element.itemsize * math.prod(payload.shape)
            found.append((element, content) if is_whole else None)
    return found


def _read_plain(payloads: Sequence[Payload]) -> list[bytes | None]:
    """Return the bytes of each payload that is in one piece and needs no decoding; None for others."""
    contents: list[bytes | None] = [None] * len(payloads)
    plain: dict[str, list[tuple[int, FilePayload]]] = defaultdict(list)
    for index, payload in enumerate(payloads):
        is_plain = isinstance(payload, FilePayload) and payload.encoding is Encoding.PLAIN
        if isinstance(payload, FilePayload) and is_plain and len(payload.ranges) == 1:
            plain[payload.source.key].append((index, payload))
    for group in plain.values():
        read = group[0][1].source.read_ranges([payload.ranges[0] for _, payload in group])
        for (index, _), content in zip(group, read, strict=True):
            contents[index] = content
    return contents


def _decode(content: bytes, payload: FilePayload) -> Array | None:
    """Return the elements of a plain payload from its bytes; None if they do not fit its shape."""
    element = payload.dtype.to_numpy()
    try:
        if element is not None and content:
            return np.frombuffer(content, dtype=element).reshape(payload.shape)
        return _from_bytes(np.frombuffer(content, dtype=np.uint8), payload.dtype, payload.shape)
    except ValueError:
        return None


def sample_together(requests: Sequence[tuple[Payload, npt.NDArray[np.int64]]]) -> list[Array | None]:
    """Return `at` of each payload for its positions; small tensors of local files are read together."""
    whole = [
        isinstance(payload, FilePayload)
        and payload.encoding is Encoding.PLAIN
        and len(payload.ranges) == 1
        and payload.ranges[0][1] <= _PAGE
        and not payload.source.is_remote
        for payload, _ in requests
    ]
    found: list[Array | None] = [None] * len(requests)
    small = [number for number, is_whole in enumerate(whole) if is_whole]
    alike: dict[tuple[np.dtype, int, int], list[tuple[int, bytes]]] = defaultdict(list)
    """Payloads of equal type and size with the same positions, for one numpy call."""
    for number, elements in zip(small, read_elements_together([requests[n][0] for n in small]), strict=True):
        payload, positions = requests[number]
        if elements is not None:
            element, content = elements
            alike[element, len(content), id(positions)].append((number, content))
        else:
            array = payload.array()
            found[number] = None if array is None else array.reshape(-1)[positions]
    for (element, _, _), members in alike.items():
        rows = np.frombuffer(b"".join([content for _, content in members]), element).reshape(len(members), -1)
        for (number, _), elements_at in zip(members, rows[:, requests[members[0][0]][1]], strict=True):
            found[number] = elements_at
    for number, is_whole in enumerate(whole):
        if not is_whole:
            payload, positions = requests[number]
            found[number] = payload.at(positions)
    return found


class ListPayload(Frozen, eq=False):
    """Elements of a list attribute, whose bytes are parsed again when they are requested."""

    source: Source
    start: int
    end: int
    """End of the AttributeProto in the file."""
    dtype: DType

    def array(self) -> Array | None:
        """Return the list, or the one scalar, in its shape; None for strings."""
        element = self.dtype.to_numpy()
        if element is None:
            return None
        try:
            proto = AttributeProto.FromString(self.source.read(self.start, self.end - self.start))
        except DecodeError:
            return None
        if self.dtype is DType.FLOAT:
            return np.array(proto.f if proto.type == proto.FLOAT else proto.floats, dtype=element)
        return np.array(proto.i if proto.type == proto.INT else proto.ints, dtype=element)

    def sample(self, salt: str = "") -> Array | None:
        """Return the elements at `analyzer.model.content.sample_positions`."""
        array = self.array()
        return None if array is None else sample(array, salt)

    def at(self, positions: npt.NDArray[np.int64]) -> Array | None:
        """Return the elements at these positions."""
        array = self.array()
        return None if array is None else array.reshape(-1)[positions]

    def parts(self) -> Iterator[Array]:
        """Yield the list, in one part."""
        return _flat(self.array())


class StringsPayload(NoPayload, eq=False):
    """Strings of a tensor or of a list attribute, whose message is parsed again when they are requested."""

    source: Source
    ranges: tuple[tuple[int, int], ...]
    """(offset, length) of the message, in order."""
    is_list: bool
    """Whether the strings are an attribute's, not a tensor's."""

    def digest(self) -> bytes | None:
        """Return a digest of each string's length and bytes."""
        attribute, tensor = AttributeProto(), TensorProto()
        try:
            for offset, length in self.ranges:
                (attribute if self.is_list else tensor).MergeFromString(self.source.read(offset, length))
        except DecodeError:
            return None
        if not self.is_list:
            strings = list(tensor.string_data)
        else:
            strings = [attribute.s] if attribute.type == attribute.STRING else list(attribute.strings)
        hasher = hashlib.sha256()
        for text in strings:
            hasher.update(len(text).to_bytes(8, "little") + text)
        return hasher.digest()


class SparsePayload(NoPayload, eq=False):
    """Stored values of a sparse tensor, and their positions."""

    values: Payload
    indices: Payload
    shape: tuple[int, ...]

    def digest(self) -> bytes | None:
        """Return a digest of the values and their positions, stored in the file as linear indices or as coordinates."""
        places = self.indices.array()
        if places is None or (places.size and int(places.min()) < 0):
            return None
        try:
            if places.ndim == 2:
                places = np.ravel_multi_index(tuple(places.T.astype(np.int64)), self.shape)
        except (OverflowError, ValueError):
            return None
        hasher, count = hashlib.sha256(), 0
        for part in self.values.parts():
            hasher.update(part.tobytes())
            count += part.size
        if count != places.size:
            return None
        hasher.update(places.astype("<i8").tobytes())
        return hasher.digest()


def _flat(array: Array | None) -> Iterator[Array]:
    if array is not None:
        yield array.reshape(-1)


def _from_bytes(raw: Bytes, dtype: DType, shape: tuple[int, ...]) -> Array | None:
    """Return elements from little-endian bytes, as a view if they are whole bytes.

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
    if len(raw) != dtype.nbytes(math.prod(shape)):
        raise ValueError(f"{len(raw)} bytes for {shape}")
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    codes = (raw[:, None] >> shifts) & np.uint8((1 << dtype.bits) - 1)  # (bytes, elements per byte)
    return codes.reshape(-1)[: math.prod(shape)].reshape(shape)


def _from_numbers(numbers: npt.NDArray[np.uint64], dtype: DType, shape: tuple[int, ...]) -> Array | None:
    """Return elements from a list of integers (onnx.proto, `int32_data`), which hold bit patterns of narrow types.

    Raises:
        ValueError: there are fewer or more than the shape needs.
    """
    element = dtype.to_numpy()
    if element is None:
        return _from_bytes(numbers.astype(np.uint8), dtype, shape)
    if element.kind == "b":
        return np.not_equal(numbers, 0).reshape(shape)
    if element.kind == "c" or element.itemsize > 8:
        return None
    bits: Array = numbers.astype(f"<u{element.itemsize}")
    return bits.view(element).reshape(shape)
