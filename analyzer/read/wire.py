"""A file's bytes -> protobuf fields, each with its position, without reading payload.

The encoding is that of protobuf.dev, "Encoding": a message is a run of fields, each a key (number and wire type) and a
value. This module does not interpret the fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analyzer.errors import ModelReadError
from analyzer.model.ranges import Source
from analyzer.read.ahead import Ahead

VARINT = 0
FIXED64 = 1
LENGTH = 2
_GROUP = 3
_GROUP_END = 4
FIXED32 = 5

_LONGEST_VARINT = 10
_HEADER = 2 * _LONGEST_VARINT
"""Most bytes of a key and the length or number after it."""

_RUN = 1 << 18
_RUN_FIELDS = 1 << 12

_LONGEST_NAME = 1 << 24

_MAX_STEPS = 64
"""Most steps of its source to which a window grows."""


class Field(NamedTuple):
    """One field of a message: its content is bytes `start` to `end` of the file, its key begins at `at`."""

    number: int
    wire: int
    at: int
    start: int
    end: int


class Window:
    """Part of a file that is in memory. It moves with the reader, and is narrow after a jump, else wide."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._ahead = None if source.kept is None else Ahead(source, source.kept)
        self._base = 0
        self._buffer = b""
        self._size = source.step
        self._widest = _MAX_STEPS * source.step

    def take(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`.

        Raises:
            ModelReadError: the file ends before, or cannot be read.
        """
        base = self._base
        if not base <= start <= end <= base + len(self._buffer):
            if end - start > self._widest:
                return self._read(start, end - start)
            self._fill(start, end - start)
            base = self._base
        return self._buffer[start - base : end - base]

    def take_name(self, place: Field) -> bytes:
        """Return the content of a field that is kept in memory and shown.

        Raises:
            ModelReadError: it is too long for that. A sparse file makes any length cheap.
        """
        if place.end - place.start > _LONGEST_NAME:
            raise ModelReadError(
                f"{self.source.name}: [not-onnx] a name of {place.end - place.start:,} bytes at byte {place.at:,}; "
                "the file is corrupt, export it again"
            )
        return self.take(place.start, place.end)

    def _read(self, start: int, length: int) -> bytes:
        content = self.source.read(start, length)
        if len(content) < length:
            raise ModelReadError(
                f"{self.source.name}: ended at byte {start + len(content):,} while it was read"
            )
        return content

    def _fill(self, position: int, needed: int) -> None:
        """Load at least `needed` bytes from `position`."""
        end = self._base + len(self._buffer)
        is_near = self._base <= position <= end + self.source.step
        if is_near:  # continuous reading
            kept = self._buffer[position - self._base :]
            self._size = min(2 * self._size, self._widest)
        else:
            kept = b""
            self._size = self.source.step
        start = position + len(kept)
        lacking = needed - len(kept)
        wanted = min(max(lacking, self._size), self.source.nbytes - start)
        if self._ahead is None:
            self._buffer = kept + self._read(start, wanted)
        else:
            self._buffer = kept + self._ahead.read(start, wanted, lacking, jumps=not is_near)
        self._base = position

    def run(self, first: Field, end: int, longest: int) -> list[tuple[int, int]]:
        """Return the content positions of `first` and of the fields after it with the same number, all in memory.

        The run ends before a field of more than `longest` bytes, before any other field, and after at most 4,096 fields
        or 256 KiB: protobuf objects of many small messages take a hundred times as much memory as the messages.
        """
        self.take(first.at, first.end)
        base, buffer = self._base, self._buffer
        offset = first.at - base
        limit = min(len(buffer) - _HEADER, end - base - _HEADER, offset + _RUN)
        key, known = buffer[offset], buffer[offset] < 0x80
        offset = first.end - base
        contents = [(first.start, first.end)]
        while known and offset < limit and buffer[offset] == key and len(contents) < _RUN_FIELDS:
            length = buffer[offset + 1]
            content = offset + 2
            if length >= 0x80:
                try:
                    length, content = varint(buffer, offset + 1)
                except ValueError:
                    break  # `fields` reports the position
            offset = content + length
            if length > longest or offset > len(buffer) or base + offset > end:
                break
            contents.append((base + content, base + offset))
        return contents

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Yield the fields of the message from `start` to `end`, in file order.

        Groups, which ONNX never uses, are one field each. The caller may read a field's content before the next field.

        Raises:
            ModelReadError: the bytes are not a message, with the position of the first bad field.
        """
        position = start
        make = Field._make
        while position < end:
            base, buffer = self._base, self._buffer
            offset = position - base
            if offset < 0 or (offset + _HEADER > len(buffer) and base + len(buffer) < end):
                self._fill(position, min(_HEADER, end - position))
                base, buffer = self._base, self._buffer
                offset = position - base
            at = position
            try:
                key = buffer[offset]
                offset += 1
                if key >= 0x80:
                    key, offset = varint(buffer, offset - 1)
                wire = key & 7
                if wire == LENGTH:
                    length = buffer[offset]
                    offset += 1
                    if length >= 0x80:
                        length, offset = varint(buffer, offset - 1)
                    content = base + offset
                    position = content + length
                else:
                    content = base + offset
                    position = self._skip(key, buffer, offset, end)
            except (IndexError, ValueError) as error:
                reason = "" if isinstance(error, IndexError) else str(error)
                raise BrokenMessageError(self.source, at, end, reason) from error
            if position > end or not 8 <= key <= 0xFFFFFFFF:
                raise self._invalid_field(at, end, key, position)
            yield make((key >> 3, wire, at, content, position))

    def _invalid_field(self, at: int, end: int, key: int, stop: int) -> BrokenMessageError:
        reason = f"a field of {stop - at:,} bytes" if stop > end else f"field number {key >> 3}"
        return BrokenMessageError(self.source, at, end, reason, key >> 3, stop)

    def _skip(self, key: int, buffer: bytes, offset: int, end: int) -> int:
        """Return the end of a field without a length, by its wire type."""
        wire = key & 7
        if wire == VARINT:
            return self._base + varint(buffer, offset)[1]
        if wire in (FIXED32, FIXED64):
            return self._base + offset + (4 if wire == FIXED32 else 8)
        if wire == _GROUP:
            return self._skip_group(key >> 3, self._base + offset, end)
        raise ValueError(f"wire type {wire}")

    def _skip_group(self, number: int, start: int, end: int) -> int:
        """Return the end of a group; nested groups are handled with a list and not by recursion."""
        open_groups = [number]
        position = start
        while open_groups:
            head = self.take(position, min(position + _HEADER, end))
            key, offset = varint(head, 0)
            wire = key & 7
            if wire == _GROUP:
                open_groups.append(key >> 3)
            elif wire == _GROUP_END:
                if open_groups.pop() != key >> 3:
                    raise ValueError("a group with the end of another")
            elif wire == LENGTH:
                length, offset = varint(head, offset)
                offset += length
            elif wire == VARINT:
                offset = varint(head, offset)[1]
            elif wire in (FIXED32, FIXED64):
                offset += 4 if wire == FIXED32 else 8
            else:
                raise ValueError(f"wire type {wire}")
            if len(open_groups) > _MAX_GROUPS:
                raise ValueError(f"groups nested deeper than {_MAX_GROUPS}")
            position += offset
            if position > end:
                raise ValueError("a group without an end")
        return position


_MAX_GROUPS = 100
"""Most nested groups, protobuf's own limit."""


class BrokenMessageError(ModelReadError):
    """Bytes that are not a protobuf message; the reader of the whole file turns it into a sentence with a next step."""

    def __init__(
        self, source: Source, at: int, end: int, reason: str = "", number: int = 0, claimed: int = 0
    ) -> None:
        super().__init__(
            f"{source.name}: [not-onnx] no protobuf message at byte {at:,}: {reason or 'it ends there'}"
        )
        self.at = at
        self.number = number
        """Number of the field; 0 if it is unknown."""
        self.is_cut = end == source.nbytes and (claimed > end or not reason)
        """Whether the field would exceed the end of the file."""


def varint(buffer: bytes, offset: int) -> tuple[int, int]:
    """Return the number at `offset`, modulo 2^64, and its end.

    >>> varint(bytes([0xAC, 0x02]), 0)
    (300, 2)

    Raises:
        IndexError: the bytes end within it.
        ValueError: it has more than 10 bytes.
    """
    value = shift = 0
    for position in range(offset, offset + _LONGEST_VARINT):
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + 1
        shift += 7
    raise ValueError("a number of more than 10 bytes")


def decode_varints(content: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Return a packed list of varints as numbers modulo 2^64.

    >>> decode_varints(np.array([0x01, 0xAC, 0x02], np.uint8)).tolist()
    [1, 300]

    Raises:
        ValueError: the list ends within a number, or has one of more than 10 bytes.
    """
    last = np.flatnonzero(content < 0x80)
    if len(content) and (not len(last) or last[-1] != len(content) - 1):
        raise ValueError("a list that ends within a number")
    first = np.concatenate(([0], last[:-1] + 1)) if len(last) else last
    lengths = last - first + 1
    longest = int(lengths.max(initial=0))
    if longest > _LONGEST_VARINT:
        raise ValueError("a number of more than 10 bytes")
    values = np.zeros(len(last), dtype=np.uint64)
    for index in range(longest):
        has = lengths > index
        part = (content[first[has] + index] & 0x7F).astype(np.uint64)
        values[has] |= part << np.uint64(7 * index)
    return values
