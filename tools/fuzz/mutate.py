"""Mutations of protobuf messages that stay messages: lengths are corrected, or made wrong on purpose."""

from __future__ import annotations

import random
from dataclasses import dataclass

import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor

__all__ = ["DICTIONARY", "mutate"]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
DEEPEST = 40

NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    22,
    127,
    128,
    255,
    1 << 31,
    (1 << 31) - 1,
    1 << 32,
    1 << 62,
    (1 << 63) - 1,
    -1,
    -2,
)
TEXTS = (
    b"", b"w", b"x", b"y", b"Constant", b"If", b"Loop", b"MatMul", b"Add", b"Gather", b"MatMulNBits",
    b"ConstantOfShape",
    b"DequantizeLinear", b"LSTM", b"BatchNormalization", b"TreeEnsembleClassifier", b"ai.onnx.ml", b"com.microsoft",
    b"value", b"value_ints", b"value_string", b"sparse_value", b"then_branch", b"body", b"nodes_values", b"K", b"N",
    b"bits",
    b"location", b"offset", b"length", b"w.bin", b"../w.bin", b"d/w.bin", b"8", b"16", b"-1", b"99999999999999999999",
    b"layer.0.weight", b"layer.1.bias", b"bn.running_mean", b"/layer/MatMul", b"namespace", b"pkg.torch.onnx.fx_node",
    b"pkg.torch.onnx.name_scopes", b"pkg.onnxscript.optimizer.folded_from",
    b"pkg.torch.export.graph_signature.InputSpec.kind", b"PARAMETER", b"['', 'layer.0', 'n']", b"['layer.0.weight']",
    b"[1, {2: 3}, 'a']", b"\xff\xfe", b"\x1b[2J", b"\xe2\x80\xae", b"SCALE_TENSOR", b"1" * 30, b"a." * 50, b"/" * 50,
)  # fmt: skip
"""Words that the reader and the rules know, and some that should have no effect."""


def _descriptors() -> dict[str, Descriptor]:
    return dict(onnx.ModelProto.DESCRIPTOR.file.message_types_by_name)


DICTIONARY = tuple(
    sorted(
        {
            bytes([n << 3 | w])
            for m in _descriptors().values()
            for n in m.fields_by_number
            for w in (0, 2, 5)
            if n < 16
        }
    )
) + tuple(text for text in TEXTS if text)
"""Words for libFuzzer: keys of fields, and texts."""


@dataclass
class Field:
    number: int
    wire: int
    value: int | bytes | list[Field]
    message: Descriptor | None = None
    """Descriptor of the value, if it is a message."""
    length_error: int = 0
    """Number that is added to the encoded length."""

    def copy(self) -> Field:
        value = [field.copy() for field in self.value] if isinstance(self.value, list) else self.value
        return Field(self.number, self.wire, value, self.message, self.length_error)


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _varint(content: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
        if shift > 63:
            raise ValueError


def parse(content: bytes, kind: Descriptor, depth: int = 0) -> list[Field]:
    """Parse a message; raise ValueError or IndexError if the bytes are none."""
    fields = []
    offset = 0
    while offset < len(content):
        key, offset = _varint(content, offset)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, offset = _varint(content, offset)
            fields.append(Field(number, wire, value))
        elif wire in (FIXED64, FIXED32):
            width = 8 if wire == FIXED64 else 4
            fields.append(Field(number, wire, content[offset : offset + width]))
            offset += width
        elif wire == LENGTH:
            length, offset = _varint(content, offset)
            inner = content[offset : offset + length]
            offset += length
            if offset > len(content):
                raise ValueError
            known = kind.fields_by_number.get(number)
            field = Field(number, wire, inner)
            if known is not None and known.type == FieldDescriptor.TYPE_MESSAGE and depth < DEEPEST:
                try:
                    field.value = parse(inner, known.message_type, depth + 1)
                    field.message = known.message_type
                except (ValueError, IndexError):
                    pass
            fields.append(field)
        else:
            raise ValueError
    return fields


def encode(fields: list[Field]) -> bytes:
    parts = []
    for field in fields:
        parts.append(varint(field.number << 3 | field.wire))
        if isinstance(field.value, int):
            parts.append(varint(field.value))
        elif field.wire == LENGTH:
            content = field.value if isinstance(field.value, bytes) else encode(field.value)
            parts += (varint(len(content) + field.length_error), content)
        else:
            assert isinstance(field.value, bytes)
            parts.append(field.value)
    return b"".join(parts)


def mutate(content: bytes, most: int, seed: int) -> bytes | None:
    """Make a few changes anywhere in a model; return None if the bytes are no message."""
    rng = random.Random(seed)
    model = onnx.ModelProto.DESCRIPTOR
    try:
        fields = parse(content, model)
    except (ValueError, IndexError):
        return None
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        places = list(_messages(fields, model))
        _change(*rng.choice(places), places, rng)
    changed = encode(fields)
    return changed if len(changed) <= most else content[:most]


def _messages(fields: list[Field], kind: Descriptor) -> list[tuple[list[Field], Descriptor]]:
    found = [(fields, kind)]
    for field in fields:
        if isinstance(field.value, list) and field.message is not None:
            found += _messages(field.value, field.message)
    return found


def _change(
    fields: list[Field], kind: Descriptor, places: list[tuple[list[Field], Descriptor]], rng: random.Random
) -> None:
    what = rng.randrange(12)
    if what < 3 or not fields:
        fields.insert(rng.randint(0, len(fields)), _any_field(kind, rng))
        return
    at = rng.randrange(len(fields))
    field = fields[at]
    if what == 3:
        del fields[at]
    elif what == 4:
        fields.insert(rng.randint(0, len(fields)), field.copy())
    elif what == 5:
        fields.insert(rng.randint(0, len(fields)), fields.pop(at))
    elif what == 6:  # a field of any message of the same kind
        others = [f for inner, other in places if other is kind for f in inner]
        fields.insert(at, rng.choice(others).copy())
    elif what == 7:
        field.length_error = rng.choice((-1, 1, 2, 100, 1 << 31, (1 << 64) - 1)) if rng.random() < 0.2 else 0
    elif what == 8 and isinstance(field.value, list):  # in two pieces, which protobuf merges
        cut = rng.randint(0, len(field.value))
        rest = Field(field.number, LENGTH, field.value[cut:], field.message)
        field.value = field.value[:cut]
        fields.insert(rng.randint(at + 1, len(fields)), rest)
    elif isinstance(field.value, int):
        field.value = rng.choice(NUMBERS) if rng.random() < 0.7 else field.value + rng.choice((-1, 1))
    elif isinstance(field.value, bytes) and field.wire == LENGTH:
        field.value = _any_bytes(field.value, rng)
    elif isinstance(field.value, bytes):
        field.value = rng.choice((b"\0\0\0\0", b"\0\0\x80\x7f", b"\0\0\xc0\x7f", rng.randbytes(4))) * (
            len(field.value) // 4
        )
    elif rng.random() < 0.2:
        field.value = rng.randbytes(rng.randint(0, 6))
        field.message = None


def _any_bytes(value: bytes, rng: random.Random) -> bytes:
    match rng.randrange(6):
        case 0:
            return rng.choice(TEXTS)
        case 1:
            return value[: rng.randint(0, len(value))]
        case 2:
            return value + rng.randbytes(rng.randint(1, 8))
        case 3:
            return rng.randbytes(len(value))
        case 4:
            return b"".join(varint(rng.choice(NUMBERS)) for _ in range(rng.randint(0, 5)))
        case _:
            return value * rng.choice((2, 3))


def _any_field(kind: Descriptor, rng: random.Random) -> Field:
    number, known = rng.choice(list(kind.fields_by_number.items()))
    if rng.random() < 0.05:
        number = rng.choice((0, 19, 99, 500, (1 << 29) - 1))
    if rng.random() < 0.05:
        return (
            Field(number, rng.choice((VARINT, LENGTH)), rng.choice(NUMBERS))
            if rng.random() < 0.5
            else Field(number, LENGTH, rng.choice(TEXTS))
        )
    if known.type == FieldDescriptor.TYPE_MESSAGE:
        inner = (
            [_any_field(known.message_type, rng) for _ in range(rng.choice((0, 1, 2, 4)))]
            if rng.random() < 0.8
            else []
        )
        return Field(number, LENGTH, inner, known.message_type)
    if known.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return Field(number, LENGTH, rng.choice(TEXTS))
    if known.type == FieldDescriptor.TYPE_FLOAT:
        return Field(number, FIXED32, rng.randbytes(4))
    if known.type == FieldDescriptor.TYPE_DOUBLE:
        return Field(number, FIXED64, rng.randbytes(8))
    if getattr(known, "is_repeated", False) and rng.random() < 0.5:
        packed = b"".join(varint(rng.choice(NUMBERS)) for _ in range(rng.randint(0, 4)))
        return Field(number, LENGTH, packed)
    return Field(number, VARINT, rng.choice(NUMBERS))
