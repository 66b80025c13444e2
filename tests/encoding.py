"""Protobuf's wire format by hand: every way to write one message, also ways that no writer uses."""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

VARINT, FIXED64, LENGTH, GROUP, GROUP_END, FIXED32 = range(6)

_INTEGERS = (
    FieldDescriptor.TYPE_INT32,
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_ENUM,
)
_UNKNOWN = 999
"""Field number that no message of ONNX has."""


def varint(number: int, longer: int = 0) -> bytes:
    """Encode a number modulo 2^64, `longer` bytes longer than necessary.

    >>> varint(300).hex(), varint(1, longer=2).hex()
    ('ac02', '818000')
    """
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    for _ in range(min(longer, 10 - len(encoded))):
        encoded[-1] |= 0x80
        encoded.append(0)
    return bytes(encoded)


def key(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def integer(number: int, value: int) -> bytes:
    return key(number, VARINT) + varint(value)


def block(number: int, *content: bytes | str) -> bytes:
    """Encode a length-delimited field: a message, a text, a packed list."""
    joined = b"".join(part.encode() if isinstance(part, str) else part for part in content)
    return head(number, len(joined)) + joined


def head(number: int, length: int) -> bytes:
    """Encode the key and length of a length-delimited field."""
    return key(number, LENGTH) + varint(length)


def group(number: int, *content: bytes) -> bytes:
    return key(number, GROUP) + b"".join(content) + key(number, GROUP_END)


UNKNOWN_FIELDS = (
    integer(_UNKNOWN, 7),
    key(_UNKNOWN, FIXED64) + bytes(8),
    block(_UNKNOWN, "unknown"),
    group(_UNKNOWN, integer(1, 5), block(2, "in a group"), group(3, key(4, FIXED32) + bytes(4))),
    key(_UNKNOWN, FIXED32) + bytes(4),
)
"""One unknown field of each wire type."""


@dataclass(frozen=True)
class Ways:
    """Unusual ways to write a message; each is used at random."""

    chance: random.Random
    lists: Literal["any", "usual", "packed", "unpacked"] = "any"
    """Form of a list of numbers: packed in one field or in two, or each with its own key."""
    overlong: bool = True
    """Whether keys, lengths and numbers may have more bytes than necessary."""
    shuffled: bool = True
    """Whether fields may be in any order; those of one number keep theirs."""
    repeated: bool = True
    """Whether a single field may occur twice: the last one counts."""
    split: bool = True
    """Whether a message may be in two pieces, which parsers merge."""
    unknown: bool = False
    """Whether every message has fields that the format does not define."""


def rewrite(message: Message, ways: Ways) -> bytes:
    """Encode the same message, as protobuf's own parser reads it, in other bytes."""
    fields = list(_fields(message, ways))
    if ways.unknown:
        # Not at random, so that the rest is written alike with and without them.
        fields.append((_UNKNOWN, UNKNOWN_FIELDS[len(fields) % len(UNKNOWN_FIELDS)]))
    if ways.shuffled:
        fields = _shuffle(fields, ways.chance)
    return b"".join(content for _, content in fields)


def _shuffle(fields: list[tuple[int, bytes]], chance: random.Random) -> list[tuple[int, bytes]]:
    waiting: dict[int, list[bytes]] = defaultdict(list)
    for number, content in fields:
        waiting[number].append(content)
    order = [number for number, _ in fields]
    chance.shuffle(order)
    return [(number, waiting[number].pop(0)) for number in order]


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether the field is a list; older protobuf has only a label, which is deprecated in newer protobuf."""
    if hasattr(field, "is_repeated"):
        return field.is_repeated
    return field.label == field.LABEL_REPEATED


def _fields(message: Message, ways: Ways) -> Iterator[tuple[int, bytes]]:
    """Yield (number, bytes) of each field."""
    for field, value in message.ListFields():
        number = field.number
        if field.message_type is not None:
            for item in value if is_repeated(field) else [value]:
                for piece in _pieces(item, ways, may_split=not is_repeated(field)):
                    yield number, _block(number, piece, ways)
        elif not is_repeated(field):
            if ways.repeated and ways.chance.random() < 0.2:
                yield number, _scalar(field, type(value)(), ways)
            yield number, _scalar(field, value, ways)
        elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            for item in value:
                yield number, _scalar(field, item, ways)
        else:
            yield from ((number, content) for content in _list(field, list(value), ways))


def _pieces(message: Message, ways: Ways, *, may_split: bool) -> list[bytes]:
    if not (may_split and ways.split and ways.chance.random() < 0.3):
        return [rewrite(message, ways)]
    fields = list(_fields(message, ways))
    # A list with a key for each element stays in one piece.
    counted = defaultdict(int)
    for number, _ in fields:
        counted[number] += 1
    first = {number for number in counted if ways.chance.random() < 0.5}
    return [
        b"".join(content for number, content in fields if number in first),
        b"".join(content for number, content in fields if number not in first),
    ]


def _list(field: FieldDescriptor, values: list[Any], ways: Ways) -> Iterator[bytes]:
    lists = ways.chance.choice(("packed", "unpacked")) if ways.lists == "any" else ways.lists
    if lists == "unpacked" or (lists == "usual" and not field.GetOptions().packed):
        for value in values:
            yield _scalar(field, value, ways)
        return
    # A packed list may come in several parts, also empty ones.
    middle = ways.chance.randrange(len(values) + 1)
    for part in (values,) if lists == "usual" else (values[:middle], values[middle:]):
        yield _block(field.number, b"".join(_number(field, value, ways) for value in part), ways)


def _scalar(field: FieldDescriptor, value: Any, ways: Ways) -> bytes:
    if isinstance(value, str | bytes):
        return _block(field.number, value.encode() if isinstance(value, str) else value, ways)
    wire = VARINT if field.type in _INTEGERS else {4: FIXED32, 8: FIXED64}[len(_number(field, value, ways))]
    return _long(field.number << 3 | wire, ways) + _number(field, value, ways)


def _number(field: FieldDescriptor, value: float, ways: Ways) -> bytes:
    if field.type in _INTEGERS:
        return _long(int(value), ways)
    return struct.pack("<f" if field.type == FieldDescriptor.TYPE_FLOAT else "<d", value)


def _block(number: int, content: bytes, ways: Ways) -> bytes:
    return _long(number << 3 | LENGTH, ways) + _long(len(content), ways) + content


def _long(number: int, ways: Ways) -> bytes:
    is_key_sized = 0 <= number < 1 << 28
    longer = ways.chance.choice((0, 0, 1, 2)) if ways.overlong and is_key_sized else 0
    return varint(number, min(longer, 5 - len(varint(number))) if is_key_sized else 0)
