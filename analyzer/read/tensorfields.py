"""TensorProto's bytes -> what its fields say, and where the elements stand; all but these is booked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from analyzer.errors import ModelReadError
from analyzer.read.book import NAMES, ORPHANED, TENSORS, UNKNOWN, Book
from analyzer.read.wire import FIXED32, FIXED64, LENGTH, VARINT, Field, Window, decode_varints, varint

__all__ = ["LISTS", "STRINGS", "TensorFields", "check_rank", "collect_fields", "read_integers"]

_DIMS, _DATA_TYPE, _SEGMENT, STRINGS, _NAME, _RAW, _EXTERNAL, _LOCATION = 1, 2, 3, 6, 8, 9, 13, 14
_DIMS_KEY, _DATA_TYPE_KEY, _NAME_KEY, _RAW_KEY = 0x08, 0x10, 0x42, 0x4A
"""The first byte of these fields: number and wire type (VARINT, VARINT, LENGTH, LENGTH)."""
_HEAD = 512
"""Bytes in which all but the elements of nearly every tensor are."""
LISTS = {4: FIXED32, 5: VARINT, 7: VARINT, 10: FIXED64, 11: VARINT}
"""float_data, int32_data, int64_data, double_data, uint64_data: field number and wire type of an element."""
_OTHERS = frozenset({12, 16})
"""doc_string, metadata_props."""

_MAX_ENTRIES = 1 << 10
_MAX_RANK = 1 << 20


@dataclass
class TensorFields:
    """What the fields of one tensor say; a message in several pieces is merged, as protobuf does."""

    dims: list[int] = field(default_factory=list)
    data_type: int = 0
    name: str | None = None
    is_external: bool = False
    is_segment: bool = False
    entries: dict[str, str] = field(default_factory=dict)
    raw: tuple[int, int] | None = None
    lists: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Packed payload by field number, as (offset, length)."""
    unpacked: Counter[int] = field(default_factory=Counter)
    """Elements with a key each, by field number."""
    spans: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Where the fields of a number begin and end, keys included, in each piece of the message."""
    pieces: dict[int, int] = field(default_factory=dict)
    """The piece that the last span is in."""
    strings: int = 0
    inline: int = 0
    """Bytes of all payload in the model file."""


def collect_fields(book: Book, places: Sequence[Field]) -> TensorFields:
    """Read the fields, and book all but the payload.

    Raises:
        ModelReadError: the bytes are no message.
    """
    if len(places) == 1:
        usual = _collect_usual(book, places[0])
        if usual is not None:
            return usual
    fields = TensorFields()
    window = book.window
    for piece, place in enumerate(places):
        total = place.end - place.at
        for part in window.fields(place.start, place.end):
            number, wire = part.number, part.wire
            if number == _RAW and wire == LENGTH:
                if fields.raw is not None:  # the last one counts
                    fields.inline -= fields.raw[1]
                    book.nbytes[ORPHANED] += fields.raw[1]
                fields.raw = (part.start, part.end - part.start)
                fields.inline += part.end - part.start
                total -= part.end - part.start
            elif number in LISTS and wire in (LENGTH, LISTS[number]):
                total -= _collect_list(fields, part, piece)
            elif number == STRINGS and wire == LENGTH:
                fields.strings += 1
                fields.inline += part.end - part.start
                total -= part.end - part.start
            elif number == _NAME and wire == LENGTH:
                fields.name = book.text(window.take_name(part))
                book.field(NAMES, part)
                total -= part.end - part.at
            elif not _collect_header(book, fields, part):
                book.field(UNKNOWN, part)
                total -= part.end - part.at
        book.nbytes[TENSORS] += total
    return fields


def _collect_usual(book: Book, place: Field) -> TensorFields | None:
    """A tensor as nearly every writer writes it: dims, data_type, name and raw_data, each once but for the dims.

    The general way takes ten times as long, which counts where there are tens of thousands. None for any other tensor.
    """
    start, end = place.start, place.end
    head = book.window.take(start, min(start + _HEAD, end))
    fields = TensorFields()
    offset, size = 0, len(head)
    named = 0
    try:
        while offset < size:
            at = offset
            key = head[offset]
            number = head[offset + 1]
            offset += 2
            if number >= 0x80:
                number, offset = varint(head, offset - 1)
            if key == _DIMS_KEY:
                fields.dims.append(number if number < 1 << 63 else number - (1 << 64))
            elif key == _DATA_TYPE_KEY:
                fields.data_type = _as_int32(number)
            elif key == _NAME_KEY and not named and offset + number <= size:
                fields.name = book.text(head[offset : offset + number])
                offset += number
                named = offset - at
            elif key == _RAW_KEY and start + offset + number == end:
                fields.raw = (start + offset, number)
                fields.inline = number
                offset = size
            else:
                return None
    except (IndexError, ValueError):
        return None
    if fields.raw is None and size < end - start:
        return None
    book.nbytes[NAMES] += named
    book.nbytes[TENSORS] += end - place.at - fields.inline - named
    return fields


def _collect_list(fields: TensorFields, part: Field, piece: int) -> int:
    """Note a part of a typed list, in one piece of the message; how many bytes of elements it has."""
    nbytes = part.end - part.start
    if not nbytes:
        return 0  # an empty list, which some writers leave beside the one that counts
    if part.wire == LENGTH:
        fields.lists.setdefault(part.number, []).append((part.start, nbytes))
    else:
        fields.unpacked[part.number] += 1
    spans = fields.spans.setdefault(part.number, [])
    if spans and fields.pieces.get(part.number) == piece:
        spans[-1] = (spans[-1][0], part.end)
    else:
        spans.append((part.at, part.end))
        fields.pieces[part.number] = piece
    fields.inline += nbytes
    return nbytes


def _collect_header(book: Book, fields: TensorFields, part: Field) -> bool:
    """Note what is no payload; whether the format knows the field."""
    number, wire, window = part.number, part.wire, book.window
    if number == _DIMS and wire in (VARINT, LENGTH):
        if part.end - part.start <= _MAX_RANK:
            fields.dims += read_integers(window, part)
        check_rank(book, fields.dims, part)
    elif number == _DATA_TYPE and wire == VARINT:
        fields.data_type = _as_int32(read_integers(window, part)[0])
    elif number == _EXTERNAL and wire == LENGTH:
        _collect_entry(book, fields, part)
    elif number == _LOCATION and wire == VARINT:
        fields.is_external = read_integers(window, part)[0] == 1
    elif number == _SEGMENT and wire == LENGTH:
        fields.is_segment = True
    else:
        return number in _OTHERS and wire == LENGTH
    return True


def check_rank(book: Book, dims: list[int], part: Field) -> None:
    """Refuse dims that no tensor has.

    Raises:
        ModelReadError: they are too many.
    """
    if len(dims) > _MAX_RANK or part.end - part.start > _MAX_RANK:  # packed, as nobody packs them
        raise ModelReadError(
            f"{book.source.name}: [invalid-dims] a tensor of more than {_MAX_RANK:,} dimensions at byte {part.at:,}; "
            "the file is corrupt, export it again"
        )


def _collect_entry(book: Book, fields: TensorFields, part: Field) -> None:
    """One key and value of `external_data`; a later one of the same key counts, as in onnx's own reader."""
    texts = {1: "", 2: ""}
    for place in book.window.fields(part.start, part.end):
        if place.number in texts and place.wire == LENGTH:
            texts[place.number] = book.window.take_name(place).decode("utf-8", "backslashreplace")
    fields.entries[texts[1]] = texts[2]
    if len(fields.entries) > _MAX_ENTRIES:
        raise ModelReadError(
            f"{book.source.name}: [not-onnx] a tensor with more than {_MAX_ENTRIES:,} keys of external data at byte "
            f"{part.at:,}, of which the format knows five; the file is corrupt, export it again"
        )


def read_integers(window: Window, part: Field) -> list[int]:
    """The integers of a field, one or packed, as int64."""
    content = window.take(part.start, part.end)
    if part.wire == LENGTH:
        try:
            return list(map(int, decode_varints(np.frombuffer(content, dtype=np.uint8)).view(np.int64)))
        except ValueError:
            return [-1]  # no shape: told as one that is invalid
    if len(content) == 1:
        return [content[0]]
    value = varint(content, 0)[0]
    return [value - (1 << 64) if value >= 1 << 63 else value]


def _as_int32(value: int) -> int:
    """An int32 field's number: protobuf cuts what is wider."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
