"""TensorProto and SparseTensorProto in the file -> StoredTensor; elements stay in the file.

All bytes except the elements are booked. The location of external data is checked against the file that holds it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from analyzer.errors import ExternalDataError, ModelReadError
from analyzer.model import Carrier, Extent, GraphPath, Key, NoPayload, Payload, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.model.ranges import Source
from analyzer.read.book import NAMES, ORPHANED, TENSORS, UNKNOWN, Book, Head
from analyzer.read.payload import Encoding, FilePayload, SparsePayload, StringsPayload
from analyzer.read.wire import FIXED32, FIXED64, LENGTH, VARINT, Field, Window, decode_varints, varint
from analyzer.records import Mutable, field
from analyzer.text import format_many

# the fields of a TensorProto

_DIMS, _DATA_TYPE, _SEGMENT, STRINGS, _NAME, _RAW, _EXTERNAL, _LOCATION = 1, 2, 3, 6, 8, 9, 13, 14
_DIMS_KEY, _DATA_TYPE_KEY, _NAME_KEY, _RAW_KEY = 0x08, 0x10, 0x42, 0x4A
"""First byte of these fields: number and wire type (VARINT, VARINT, LENGTH, LENGTH)."""
_HEAD = 512
"""Bytes that hold all but the elements of nearly every tensor."""
LISTS = {4: FIXED32, 5: VARINT, 7: VARINT, 10: FIXED64, 11: VARINT}
"""float_data, int32_data, int64_data, double_data, uint64_data: field number and wire type of an element."""
_OTHERS = frozenset({12, 16})
"""doc_string, metadata_props."""

SMALL = 1 << 12
"""Most bytes of a tensor that is read in a run with others."""

_MAX_ENTRIES = 1 << 10
_MAX_RANK = 1 << 20


class TensorFields(Mutable):
    """Fields of one tensor; a message in several pieces is merged, as protobuf does."""

    dims: list[int] = field(default_factory=list)
    data_type: int = 0
    name: str | None = None
    is_external: bool = False
    is_segment: bool = False
    entries: dict[str, str] = field(default_factory=dict)
    raw: tuple[int, int] | None = None
    lists: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Packed payload by field number, as (offset, length)."""
    unpacked: dict[int, int] = field(default_factory=dict)
    """Number of elements with a key each, by field number."""
    spans: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Start and end of the fields with a number, keys included, in each piece of the message."""
    pieces: dict[int, int] = field(default_factory=dict)
    """Piece that contains the last span."""
    strings: int = 0
    inline: int = 0
    """Bytes of all payload in the model file."""


def collect_fields(book: Book, places: Sequence[Field]) -> TensorFields:
    """Read the fields, and book all but the payload.

    Raises:
        ModelReadError: the bytes are not a message.
    """
    if len(places) == 1:
        usual = _scan_usual(book, places[0])
        if usual is not None:
            inline = 0 if usual.raw is None else usual.raw[1]
            name = usual.book(book, places[0])
            return TensorFields(usual.dims, usual.data_type, name, raw=usual.raw, inline=inline)
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


class _Usual(NamedTuple):
    """Content of a tensor that has only the usual fields."""

    dims: list[int]
    data_type: int
    name: bytes | None
    name_nbytes: int
    """Bytes of the field that holds the name."""
    raw: tuple[int, int] | None

    def book(self, book: Book, place: Field) -> str | None:
        """Book all but the payload, and return the name."""
        inline = 0 if self.raw is None else self.raw[1]
        book.nbytes[NAMES] += self.name_nbytes
        book.nbytes[TENSORS] += place.end - place.at - inline - self.name_nbytes
        if self.name is None:
            return None
        if not self.name.isascii():
            return book.text(self.name)
        text = self.name.decode()
        return book.names.setdefault(text, text)


def _scan_usual(book: Book, place: Field) -> _Usual | None:
    """Parse a tensor as nearly every writer writes it: dims, data_type, name and raw_data, each once except dims.

    The general way takes ten times as long, which matters for tens of thousands of tensors. None for any other tensor.
    """
    start, end = place.start, place.end
    head = book.window.take(start, min(start + _HEAD, end))
    dims: list[int] = []
    data_type = name_nbytes = 0
    name: bytes | None = None
    raw: tuple[int, int] | None = None
    offset, size = 0, len(head)
    try:
        while offset < size:
            at = offset
            key = head[offset]
            number = head[offset + 1]
            offset += 2
            if number >= 0x80:
                number, offset = varint(head, offset - 1)
            if key == _DIMS_KEY:
                dims.append(number if number < 1 << 63 else number - (1 << 64))
            elif key == _DATA_TYPE_KEY:
                data_type = _as_int32(number)
            elif key == _NAME_KEY and not name_nbytes and offset + number <= size:
                name = head[offset : offset + number]
                offset += number
                name_nbytes = offset - at
            elif key == _RAW_KEY and start + offset + number == end:
                raw = (start + offset, number)
                offset = size
            else:
                return None
    except (IndexError, ValueError):
        return None
    if raw is None and size < end - start:
        return None
    return _Usual(dims, data_type, name, name_nbytes, raw)


def _collect_list(fields: TensorFields, part: Field, piece: int) -> int:
    """Record a part of a typed list in one piece of the message, and return the bytes of its elements."""
    nbytes = part.end - part.start
    if not nbytes:
        return 0  # an empty list, which some writers add beside the one that counts
    if part.wire == LENGTH:
        fields.lists.setdefault(part.number, []).append((part.start, nbytes))
    else:
        fields.unpacked[part.number] = fields.unpacked.get(part.number, 0) + 1
    spans = fields.spans.setdefault(part.number, [])
    if spans and fields.pieces.get(part.number) == piece:
        spans[-1] = (spans[-1][0], part.end)
    else:
        spans.append((part.at, part.end))
        fields.pieces[part.number] = piece
    fields.inline += nbytes
    return nbytes


def _collect_header(book: Book, fields: TensorFields, part: Field) -> bool:
    """Record a field that is not payload, and return whether the format defines it."""
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
        ModelReadError: there are too many.
    """
    if len(dims) > _MAX_RANK or part.end - part.start > _MAX_RANK:  # packed, an unusual form
        raise ModelReadError(
            f"{book.source.name}: [invalid-dims] a tensor of more than {_MAX_RANK:,} dimensions at byte {part.at:,}; "
            "the file is corrupt, export it again"
        )


def _collect_entry(book: Book, fields: TensorFields, part: Field) -> None:
    """Record one key and value of `external_data`; the last one of a key counts, as in onnx's own reader."""
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
    """Return the integers of a field, one or packed, as int64."""
    content = window.take(part.start, part.end)
    if part.wire == LENGTH:
        try:
            return list(map(int, decode_varints(np.frombuffer(content, dtype=np.uint8)).view(np.int64)))
        except ValueError:
            return [-1]  # not a shape: reported as invalid
    if len(content) == 1:
        return [content[0]]
    value = varint(content, 0)[0]
    return [value - (1 << 64) if value >= 1 << 63 else value]


def _as_int32(value: int) -> int:
    """Return an int32 field's number: protobuf truncates wider ones."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


# external data

_EXTERNAL_KEYS = {"location", "offset", "length", "checksum", "basepath"}
"""Keys that an entry of `external_data` may have (onnx.proto)."""

_MAX_DIGITS = 20


def locate_external(
    book: Book, entries: dict[str, str], dtype: DType, shape: tuple[int, ...], numel: int | None, key: Key
) -> tuple[Extent | None, Payload]:
    """Locate external data, and check the location against the file that holds it."""
    needed = dtype.nbytes(numel or 0)
    unknown_keys = sorted(entries.keys() - _EXTERNAL_KEYS)
    if unknown_keys:
        book.unread.append(
            ("unknown-fields", key, f"external data has unknown keys: {', '.join(unknown_keys)}")
        )
    try:
        file = _sibling(book, entries.get("location", ""))
        offset, length = _range(entries, needed)
    except ExternalDataError as error:
        finding, _, sentence = str(error).removeprefix("[").partition("] ")
        book.unread.append((finding, key, sentence))
        return None, NoPayload()
    available = max(0, min(length, file.nbytes - offset))
    extent = Extent(file.key, offset, available)
    if available < length:
        shortfall = (
            f"needs {format_many(length, 'byte')} at offset {offset:,}, the file has {available:,} of them"
        )
        book.unread.append(("external-short", key, f"{entries['location']}: {shortfall}"))
    elif dtype.bits and numel is not None and length != needed:
        finding = "external-short" if length < needed else "payload-mismatch"
        what = f"{format_many(numel, 'element')} of {dtype.name} {'needs' if numel == 1 else 'need'}"
        sentence_of_length = f"{what} {format_many(needed, 'byte')}, its entry says {length:,}"
        book.unread.append((finding, key, sentence_of_length))
    else:
        return extent, FilePayload(file, Encoding.PLAIN, ((offset, length),), dtype, shape)
    return extent, NoPayload()


def _sibling(book: Book, location: str) -> Source:
    """Return an external file, inspected once."""
    if location not in book.siblings:
        try:
            book.siblings[location] = book.source.sibling(location)
        except ExternalDataError as error:
            book.siblings[location] = error
    found = book.siblings[location]
    if isinstance(found, Exception):
        raise found
    return found


def _range(entries: dict[str, str], needed: int) -> tuple[int, int]:
    """Return offset and length of external data; the length defaults to the shape's size (ONNX IR, "External Data")."""
    numbers = []
    for key, default in (("offset", 0), ("length", needed)):
        text = entries.get(key) or str(default)
        if not (text.isascii() and text.isdigit()) or len(text) > max(_MAX_DIGITS, len(str(default))):
            shown = text if len(text) <= _MAX_DIGITS else f"{text[:_MAX_DIGITS]}..."
            raise ExternalDataError(f"[external-short] its {key} {shown!r} is not a number of bytes")
        numbers.append(int(text))
    return numbers[0], numbers[1]


# stored tensors

_FIELD_OF = {
    DType.FLOAT: 4,
    DType.COMPLEX64: 4,
    DType.DOUBLE: 10,
    DType.COMPLEX128: 10,
    DType.INT64: 7,
    DType.UINT32: 11,
    DType.UINT64: 11,
    DType.STRING: STRINGS,
}
"""List that holds elements of each type (onnx.proto); int32_data holds all others."""

_WIDTHS = {FIXED32: 4, FIXED64: 8}

_COUNTED = 1 << 16
"""Most bytes of a list of varints whose numbers are counted; for a longer one, its length gives bounds."""

_INDICES = 1 << 20
"""Most bytes of a sparse tensor's indices that are checked against the shape."""


def read_tensor(
    book: Book,
    places: Sequence[Field],
    path: GraphPath,
    carrier: Carrier,
    name: str | None = None,
    node: int | None = None,
) -> StoredTensor:
    """Read a dense tensor; a `name` replaces its own. Its bytes are booked, except those of its elements.

    Raises:
        ModelReadError: the bytes are not a message.
    """
    book.count(1 + len(path))  # a tensor's key repeats the name of each graph around it
    if len(places) == 1:
        usual = _read_usual(book, places[0], path, carrier, name, node)
        if usual is not None:
            return usual
    fields = collect_fields(book, places)
    name = name if name is not None else fields.name or ""
    key = (path, name)
    dtype = DType.from_onnx(fields.data_type)
    if not dtype.bits and dtype is not DType.STRING:
        book.unread.append(("unknown-dtype", key, f"no element type has the number {fields.data_type}"))
    shape, numel = _shape(book, fields.dims, key)
    if fields.is_segment:
        book.unread.append(("payload-mismatch", key, "one segment of a tensor; segments are not supported"))
    if fields.is_external:
        extent, payload = locate_external(book, fields.entries, dtype, shape, numel, key)
        nbytes = extent.length if extent is not None else 0
        book.nbytes[ORPHANED] += fields.inline
        if fields.inline:
            book.unread.append(
                ("payload-mismatch", key, "a tensor with elements both inside and in external data")
            )
    else:
        extent, nbytes = None, fields.inline
        payload = _inline(book, fields, dtype, shape)
        if dtype is DType.STRING and fields.strings:
            pieces = tuple((place.start, place.end - place.start) for place in places)
            payload = StringsPayload(book.source, pieces, is_list=False)
        problem = None if numel is None else _mismatch(book, fields, dtype, numel)
        if problem is not None:
            book.unread.append(("payload-mismatch", key, problem))
    if numel is None:
        payload = NoPayload()
    return StoredTensor(name, path, carrier, dtype, shape, numel or 0, nbytes, payload, extent, node)


_HEADS = re.compile(rb"((?:\x08[\x80-\xff]{0,9}[\x00-\x7f]){0,16}\x10[\x00-\x7f])B([\x00-\x7f])")
"""dims, data_type, and the key and the length of a name, in the order of nearly all writers."""


def read_tensors(book: Book, first: Field, end: int, path: GraphPath, into: list[StoredTensor]) -> int:
    """Read the initializers from `first` on that are in memory, small ones in a run; return their end.

    Most tensors of a large file begin with the same bytes as others, up to their names. Their content is known once the
    first such tensor was parsed in the general way.

    Raises:
        ModelReadError: the bytes are not a message.
    """
    if first.end - first.start > SMALL or book.source.is_remote:
        into.append(read_tensor(book, [first], path, Carrier.INITIALIZER))
        return first.end
    window, names, heads, source = book.window, book.names, book.heads, book.source
    carrier, plain = Carrier.INITIALIZER, Encoding.PLAIN
    contents = window.run(first, end, SMALL)
    base, stop = first.at, contents[-1][1]
    content = window.take(base, stop)
    letters = content.decode("latin-1")  # ASCII text, as names are, needs no further decoding
    match = _HEADS.match
    at = base
    alike = names_nbytes = others_nbytes = 0
    for start, end in contents:
        found = match(content, start - base, end - base)
        known = heads.get(found[1]) if found is not None else None
        if found is None or known is None:
            into.append(read_tensor(book, [Field(first.number, LENGTH, at, start, end)], path, carrier))
            if found is not None:
                _store_head(heads, found, content, base, end, into[-1])
            at = end
            continue
        dtype, shape, numel, nbytes, tail = known
        opened = found.end()
        closed = opened + content[opened - 1]
        raw = base + closed + len(tail)
        if raw + nbytes != end or not content.startswith(tail, closed):
            into.append(read_tensor(book, [Field(first.number, LENGTH, at, start, end)], path, carrier))
            at = end
            continue
        name = letters[opened:closed]
        name = names.setdefault(name, name) if name.isascii() else names[content[opened:closed]]
        payload = FilePayload(source, plain, ((raw, nbytes),), dtype, shape)
        into.append(StoredTensor(name, path, carrier, dtype, shape, numel, nbytes, payload))
        alike += 1
        names_nbytes += closed - opened + 2
        others_nbytes += end - at - nbytes
        at = end
    book.count(alike * (1 + len(path)))
    book.nbytes[NAMES] += names_nbytes
    book.nbytes[TENSORS] += others_nbytes - names_nbytes
    return stop


def _store_head(
    heads: dict[bytes, Head],
    found: re.Match[bytes],
    content: bytes,
    base: int,
    end: int,
    tensor: StoredTensor,
) -> None:
    """Keep the content of the bytes before a name, if the message ends with as many elements as they declare."""
    closed = found.end() + content[found.end() - 1]
    payload = tensor.payload
    is_plain = isinstance(payload, FilePayload) and payload.encoding is Encoding.PLAIN
    if isinstance(payload, FilePayload) and is_plain and tensor.extent is None and len(payload.ranges) == 1:
        ((raw, nbytes),) = payload.ranges
        tail = content[closed : raw - base]
        is_raw = raw + nbytes == end and tail[:1] == _RAW_TAG and varint(tail, 1) == (nbytes, len(tail))
        if is_raw and tensor.dtype.bits and nbytes == tensor.dtype.nbytes(tensor.numel):
            heads[found[1]] = Head(tensor.dtype, tensor.shape, tensor.numel, nbytes, tail)


_RAW_TAG = bytes([_RAW_KEY])


def _read_usual(
    book: Book, place: Field, path: GraphPath, carrier: Carrier, name: str | None, node: int | None
) -> StoredTensor | None:
    """Read a tensor of the usual fields whose elements fit its shape; None for any other, without booking it."""
    found = _scan_usual(book, place)
    if found is None or found.raw is None:
        return None
    dtype = DType.from_onnx(found.data_type)
    dims = tuple(found.dims)
    known = book.shapes.get(dims)
    if known is None:
        numel = math.prod(dims)
        if min(dims, default=0) < 0 or numel > _MAX_NUMEL:
            return None
        known = book.shapes[dims] = dims, numel
    shape, numel = known
    if not dtype.bits or found.raw[1] != dtype.nbytes(numel):
        return None
    own = found.book(book, place)
    payload = FilePayload(book.source, Encoding.PLAIN, (found.raw,), dtype, shape)
    tensor_name = name if name is not None else own or ""
    return StoredTensor(tensor_name, path, carrier, dtype, shape, numel, found.raw[1], payload, None, node)


def read_sparse(
    book: Book,
    places: Sequence[Field],
    path: GraphPath,
    carrier: Carrier,
    name: str | None = None,
    node: int | None = None,
) -> StoredTensor:
    """Read a sparse tensor: its stored values are elements, its indices only bytes (onnx.proto, SparseTensorProto).

    Raises:
        ModelReadError: the bytes are not a message.
    """
    dims, values_at, indices_at = _collect_sparse(book, places)
    values = read_tensor(book, values_at, path, carrier, name, node)
    indices = read_tensor(book, indices_at, path, carrier, values.name, node)
    key = (path, values.name)
    shape, dense = _shape(book, dims, key)
    if indices.extent is not None:
        book.unread.append(
            ("payload-mismatch", key, "its indices are in an external file, and their bytes are not counted")
        )
    problem = None if dense is None else _check_indices(values, indices, shape, dense)
    if problem is not None:
        book.unread.append(("payload-mismatch", key, problem))
    nbytes = values.nbytes + (indices.nbytes if indices.extent is None else 0)
    return StoredTensor(
        values.name,
        path,
        carrier,
        values.dtype,
        shape,
        values.numel,
        nbytes,
        SparsePayload(values.payload, indices.payload, shape) if dense is not None else NoPayload(),
        values.extent,
        node,
    )


def _collect_sparse(book: Book, places: Sequence[Field]) -> tuple[list[int], list[Field], list[Field]]:
    """Return the dims, and the positions of values and indices; all else is booked."""
    dims: list[int] = []
    parts: dict[int, list[Field]] = {1: [], 2: []}
    for place in places:
        book.nbytes[TENSORS] += place.start - place.at
        for part in book.window.fields(place.start, place.end):
            if part.number in parts and part.wire == LENGTH:
                parts[part.number].append(part)
            elif part.number == 3:
                dims += read_integers(book.window, part)
                check_rank(book, dims, part)
                book.field(TENSORS, part)
            else:
                book.field(UNKNOWN, part)
    return dims, parts[1], parts[2]


def _shape(book: Book, dims: list[int], key: Key) -> tuple[tuple[int, ...], int | None]:
    """Return the shape and its number of elements; None for a number that cannot be counted."""
    if dims and min(dims) < 0:
        sentence = f"a negative dimension in [{_preview(dims)}]: its elements cannot be counted"
        book.unread.append(("invalid-dims", key, sentence))
        return tuple(dims), None
    numel = 0 if 0 in dims else 1
    for dim in dims:
        numel *= dim
        if numel > _MAX_NUMEL:  # a product of hundreds of them has thousands of digits
            sentence = f"more elements than any file can hold in [{_preview(dims)}]: they are not counted"
            book.unread.append(("invalid-dims", key, sentence))
            return tuple(dims), None
    return tuple(dims), numel


def _preview(dims: Sequence[int]) -> str:
    return ", ".join(map(str, dims[:8])) + (", ..." if len(dims) > 8 else "")


_MAX_NUMEL = 1 << 128


def _inline(book: Book, fields: TensorFields, dtype: DType, shape: tuple[int, ...]) -> Payload:
    """Return the elements in the model file."""
    if dtype is DType.STRING or not dtype.bits:
        return NoPayload()
    number = _FIELD_OF.get(dtype, 5)
    if fields.raw is not None:
        return FilePayload(book.source, Encoding.PLAIN, (fields.raw,), dtype, shape)
    if fields.spans.keys() - {number}:
        return NoPayload()  # reported as a mismatch
    if number in fields.unpacked:
        spans = tuple((first, end - first) for first, end in fields.spans[number])
        return FilePayload(book.source, Encoding.UNPACKED, spans, dtype, shape)
    encoding = Encoding.VARINTS if LISTS.get(number) == VARINT else Encoding.PLAIN
    return FilePayload(book.source, encoding, tuple(fields.lists.get(number, ())), dtype, shape)


def _mismatch(book: Book, fields: TensorFields, dtype: DType, numel: int) -> str | None:
    """Describe the mismatch between the payload in the file and the shape; None if it fits."""
    if dtype.bits and fields.raw is not None and fields.raw[1] == fields.inline == dtype.nbytes(numel):
        return None
    used = {*fields.spans, *([STRINGS] if fields.strings else [])}
    if fields.raw is not None and used:
        return "elements in raw_data and in a typed list"
    if not dtype.bits and dtype is not DType.STRING:
        return None  # an unknown type: the size of its elements is unknown
    need, has = ("needs", "has") if numel == 1 else ("need", "have")
    what = f"{format_many(numel, 'element')} of {dtype.name} {need}"
    if fields.raw is not None:
        needed, found = dtype.nbytes(numel), fields.raw[1]
        if dtype is DType.STRING:
            return "strings in raw_data, which the format does not allow"
        return None if needed == found else f"{what} {format_many(needed, 'byte')} and {has} {found:,}"
    number = _FIELD_OF.get(dtype, 5)
    if used - {number}:
        return f"{dtype.name} elements in a list of another type"
    needed = _listed_items(dtype, numel)
    low, high = _count_items(book, fields, number)
    if low <= needed <= high:
        return None
    return f"{what} {format_many(needed, 'list item')} and {has} {low:,}" + (
        f" to {high:,}" if high > low else ""
    )


def _listed_items(dtype: DType, numel: int) -> int:
    """Return the items that `numel` elements take in TensorProto's typed lists (onnx.proto, `int32_data`)."""
    if dtype in (DType.COMPLEX64, DType.COMPLEX128):
        return 2 * numel
    return dtype.nbytes(numel) if dtype.bits in (2, 4) else numel


def _count_items(book: Book, fields: TensorFields, number: int) -> tuple[int, int]:
    """Return the least and the most items that a list can have; they differ only for long lists of varints."""
    if number == STRINGS:
        return fields.strings, fields.strings
    count = fields.unpacked.get(number, 0)
    ranges = fields.lists.get(number, [])
    nbytes = sum(length for _, length in ranges)
    wire = LISTS[number]
    if wire != VARINT:
        items, left = divmod(nbytes, _WIDTHS[wire])
        return (count + items, count + items) if not left else (-1, -1)
    if nbytes > _COUNTED:
        return count + nbytes // 10, count + nbytes
    content = b"".join(book.window.take(start, start + length) for start, length in ranges)
    items = sum(byte < 0x80 for byte in content)
    return count + items, count + items


def _check_indices(
    values: StoredTensor, indices: StoredTensor, shape: tuple[int, ...], dense: int
) -> str | None:
    """Describe indices that are not positions in a sparse tensor's shape; None if they are, or are too many to read.

    `dense` is the number of elements of the shape.
    """
    if indices.dtype is not DType.INT64 or indices.nbytes > _INDICES or indices.extent is not None:
        return None
    array = indices.payload.array()
    if array is None:
        return None
    is_linear = array.ndim == 1
    if (
        array.ndim not in (1, 2)
        or len(array) != values.numel
        or (not is_linear and array.shape[1] != len(shape))
    ):
        return (
            f"its indices have the shape {list(array.shape)} for {values.numel:,} values of rank {len(shape)}"
        )
    most = [dense] if is_linear else list(shape)
    columns = [array] if is_linear else list(array.T)
    for column, bound in zip(columns, most, strict=True):
        if len(column) and not (int(column.min()) >= 0 and int(column.max()) < bound):
            return f"indices outside its shape {list(shape)}"
    return None
