"""AttributeProto, where it stands in the file -> its scalars, and where tensors, graphs and a long text in it are."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field

import onnx
from google.protobuf.message import DecodeError, Message

from analyzer.dtypes import DType
from analyzer.model import Setting
from analyzer.read.wire import LENGTH, BrokenMessageError, Field, Window

__all__ = [
    "BIG",
    "GRAPH",
    "GRAPHS",
    "SPARSE",
    "SPARSES",
    "TENSOR",
    "TENSORS_OF",
    "Attribute",
    "discard_unknown",
    "read_attribute",
    "setting_of",
]

BIG = 1 << 12
"""Bytes of a message up to which it is handed to protobuf as it stands."""

_MOST = 1 << 31
"""Bytes of a message that protobuf reads at most."""

_TEXT = 4
TENSOR, GRAPH, TENSORS_OF, GRAPHS, SPARSE, SPARSES = 5, 6, 10, 11, 22, 23
_MESSAGES = frozenset({TENSOR, GRAPH, TENSORS_OF, GRAPHS, SPARSE, SPARSES})
_LISTS = frozenset({7, 8, 9})
"""floats, ints, strings."""

_KINDS = onnx.AttributeProto


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a node."""

    place: Field
    name: str | bytes
    proto: onnx.AttributeProto
    """Without its tensors and graphs, and without a long text."""
    messages: dict[int, list[Field]] = field(default_factory=dict)
    """Where its tensors and graphs are, by field number."""
    unknown: int = 0
    """Bytes of fields that the format does not define."""
    text: Field | None = None
    """Where its text is, if that is a long one: what a device was given, compiled."""

    @property
    def listed(self) -> tuple[DType, int, int]:
        """dtype, elements and encoded bytes of what is a list or a scalar; strings are counted, not kept."""
        proto = self.proto
        if proto.floats or proto.type in (_KINDS.FLOATS, _KINDS.FLOAT):
            count = 1 if proto.type == _KINDS.FLOAT else len(proto.floats)
            return DType.FLOAT, count, 4 * count
        if proto.ints or proto.type in (_KINDS.INTS, _KINDS.INT):
            ints = [proto.i] if proto.type == _KINDS.INT else proto.ints
            return DType.INT64, len(ints), sum(_varint_nbytes(number) for number in ints)
        if self.text is not None and proto.type == _KINDS.STRING:
            return DType.STRING, 1, self.text.end - self.text.start
        texts = [proto.s] if proto.type == _KINDS.STRING else proto.strings
        return DType.STRING, len(texts), sum(len(text) for text in texts)

    @property
    def is_scalar(self) -> bool:
        """Whether it holds one number or text and no list."""
        return self.proto.type in (_KINDS.INT, _KINDS.FLOAT, _KINDS.STRING)


def setting_of(attribute: Attribute) -> Setting | None:
    """What an attribute says, as `analyzer.model.Node.settings` holds it; None of one of tensors and graphs alone."""
    proto = attribute.proto
    if proto.ref_attr_name:
        return f"@{proto.ref_attr_name}"
    if attribute.text is not None:
        return f"text:{attribute.text.end - attribute.text.start}"
    if proto.type == _KINDS.FLOAT:
        return proto.f
    if proto.type == _KINDS.STRING:
        return proto.s.decode("utf-8", "backslashreplace")
    if proto.type == _KINDS.INT:
        return proto.i
    if attribute.place.end - attribute.place.start > BIG:
        content = proto.SerializeToString(deterministic=True)
        return f"sha256:{hashlib.sha256(content).hexdigest()}" if attribute.listed[1] else None
    if proto.type == _KINDS.STRINGS or proto.strings:
        return tuple(text.decode("utf-8", "backslashreplace") for text in proto.strings)
    if proto.type == _KINDS.FLOATS or proto.floats:
        return tuple(proto.floats)
    return tuple(proto.ints) if proto.type == _KINDS.INTS or proto.ints else None


def read_attribute(window: Window, place: Field) -> Attribute:
    """An attribute, by protobuf; tensors and graphs in it, and a long text, are only located.

    Raises:
        ModelReadError: its bytes are no message.
    """
    if place.end - place.start <= BIG:
        proto = _parse(window.take(place.start, place.end))
        if proto is not None and not _has_messages(proto):
            return Attribute(place, proto.name, proto, {}, discard_unknown(proto))
    messages: dict[int, list[Field]] = defaultdict(list)
    rest: list[bytes] = []
    text: Field | None = None
    left = _MOST
    for part in window.fields(place.start, place.end):
        if part.number in _MESSAGES and part.wire == LENGTH:
            messages[part.number].append(part)
        elif part.number in _LISTS and not messages:
            return _read_list(window, place)
        else:
            left -= part.end - part.at
            if left <= 0:
                raise BrokenMessageError(window.source, place.at, place.end, "an attribute of over 2 GiB")
            if part.number == _TEXT and part.wire == LENGTH:  # of several, the last holds
                text = part if part.end - part.start > BIG else None
            if part is not text:
                rest.append(window.take(part.at, part.end))
    proto = _parse(b"".join(rest))
    if proto is None:
        raise BrokenMessageError(window.source, place.at, place.end, "an attribute that is none")
    return Attribute(place, proto.name, proto, dict(messages), discard_unknown(proto), text)


def _read_list(window: Window, place: Field) -> Attribute:
    """A list of numbers or texts has a key for each, which protobuf takes apart a hundred times as fast as we do."""
    proto = _parse(window.take(place.start, place.end)) if place.end - place.start < _MOST else None
    if proto is None:
        raise BrokenMessageError(window.source, place.at, place.end, "an attribute that is none")
    messages: dict[int, list[Field]] = defaultdict(list)
    if _has_messages(proto):
        for part in window.fields(place.start, place.end):
            if part.number in _MESSAGES and part.wire == LENGTH:
                messages[part.number].append(part)
        for name in ("t", "g", "sparse_tensor", "tensors", "graphs", "sparse_tensors"):
            proto.ClearField(name)
    return Attribute(place, proto.name, proto, dict(messages), discard_unknown(proto))


def discard_unknown(message: Message) -> int:
    """Drop what the format does not define; how many bytes that was."""
    before = message.ByteSize()
    message.DiscardUnknownFields()
    return before - message.ByteSize()


def _has_messages(proto: onnx.AttributeProto) -> bool:
    return (
        proto.HasField("t")
        or proto.HasField("g")
        or proto.HasField("sparse_tensor")
        or bool(proto.tensors or proto.graphs or proto.sparse_tensors)
    )


def _parse(content: bytes) -> onnx.AttributeProto | None:
    """The message; None where protobuf finds none, or one nested deeper than it reads."""
    try:
        return onnx.AttributeProto.FromString(content)
    except DecodeError:
        return None


def _varint_nbytes(number: int) -> int:
    """Bytes of an int64 as a varint; a negative one takes ten (protobuf.dev, "Encoding").

    >>> [_varint_nbytes(number) for number in (0, 127, 128, -1)]
    [1, 1, 2, 10]
    """
    return 10 if number < 0 else max(1, (number.bit_length() + 6) // 7)
