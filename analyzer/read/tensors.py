"""TensorProto and SparseTensorProto, where they stand in the file -> StoredTensor; elements stay where they are."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.dtypes import DType
from analyzer.model import Carrier, GraphPath, Key, NoPayload, Payload, StoredTensor
from analyzer.read.book import ORPHANED, TENSORS, UNKNOWN, Book
from analyzer.read.external import locate_external
from analyzer.read.payload import Encoding, FilePayload
from analyzer.read.tensorfields import LISTS, STRINGS, TensorFields, check_rank, collect_fields, read_integers
from analyzer.read.wire import FIXED32, FIXED64, LENGTH, VARINT, Field
from analyzer.units import format_many

__all__ = ["read_sparse", "read_tensor"]

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
"""The list that holds elements of each type (onnx.proto); int32_data holds all others."""

_WIDTHS = {FIXED32: 4, FIXED64: 8}

_COUNTED = 1 << 16
"""Bytes of a list of varints up to which its numbers are counted; beyond, its length bounds them."""

_INDICES = 1 << 20
"""Bytes of a sparse tensor's indices up to which they are checked against the shape."""


def read_tensor(
    book: Book,
    places: Sequence[Field],
    path: GraphPath,
    carrier: Carrier,
    name: str | None = None,
    node: int | None = None,
) -> StoredTensor:
    """A dense tensor; without a `name` it goes by its own. Its bytes are booked, but for those of its elements.

    Raises:
        ModelReadError: the bytes are no message.
    """
    book.count(1 + len(path))  # each graph around a tensor is named wherever the tensor is
    fields = collect_fields(book, places)
    name = name if name is not None else fields.name or ""
    key = (path, name)
    dtype = DType.from_onnx(fields.data_type)
    if not dtype.bits and dtype is not DType.STRING:
        book.unread.append(("unknown-dtype", key, f"no element type has the number {fields.data_type}"))
    shape, numel = _shape(book, fields.dims, key)
    if fields.is_segment:
        book.unread.append(("payload-mismatch", key, "one segment of a tensor, which nobody puts together"))
    if fields.is_external:
        extent, payload = locate_external(book, fields.entries, dtype, shape, numel, key)
        nbytes = extent.length if extent is not None else 0
        book.nbytes[ORPHANED] += fields.inline
        if fields.inline:
            book.unread.append(("payload-mismatch", key, "elements in the file and others outside"))
    else:
        extent, nbytes = None, fields.inline
        payload = _inline(book, fields, dtype, shape)
        problem = None if numel is None else _mismatch(book, fields, dtype, numel)
        if problem is not None:
            book.unread.append(("payload-mismatch", key, problem))
    if numel is None:
        payload = NoPayload()
    return StoredTensor(name, path, carrier, dtype, shape, numel or 0, nbytes, payload, extent, node)


def read_sparse(
    book: Book,
    places: Sequence[Field],
    path: GraphPath,
    carrier: Carrier,
    name: str | None = None,
    node: int | None = None,
) -> StoredTensor:
    """A sparse tensor: its stored values are elements, its indices are bytes only (onnx.proto, SparseTensorProto).

    Raises:
        ModelReadError: the bytes are no message.
    """
    dims, values_at, indices_at = _collect_sparse(book, places)
    values = read_tensor(book, values_at, path, carrier, name, node)
    indices = read_tensor(book, indices_at, path, carrier, values.name, node)
    key = (path, values.name)
    shape, dense = _shape(book, dims, key)
    if indices.extent is not None:
        book.unread.append(("payload-mismatch", key, "its indices are in an external file, and not counted"))
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
        NoPayload(),
        values.extent,
        node,
    )


def _collect_sparse(book: Book, places: Sequence[Field]) -> tuple[list[int], list[Field], list[Field]]:
    """Its dims, and where its values and its indices are; all but these is booked."""
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
    """The shape, and its elements; None where they cannot be counted."""
    few = ", ".join(map(str, dims[:8])) + (", ..." if len(dims) > 8 else "")
    if any(dim < 0 for dim in dims):
        sentence = f"a negative dimension in [{few}]: its elements cannot be counted"
        book.unread.append(("invalid-dims", key, sentence))
        return tuple(dims), None
    numel = 0 if 0 in dims else 1
    for dim in dims:
        numel *= dim
        if numel > _MAX_NUMEL:  # a product of hundreds of them has thousands of digits
            sentence = f"more elements than any file can hold in [{few}]: they are not counted"
            book.unread.append(("invalid-dims", key, sentence))
            return tuple(dims), None
    return tuple(dims), numel


_MAX_NUMEL = 1 << 128


def _inline(book: Book, fields: TensorFields, dtype: DType, shape: tuple[int, ...]) -> Payload:
    """Where the elements are in the model file."""
    if dtype is DType.STRING or not dtype.bits:
        return NoPayload()
    number = _FIELD_OF.get(dtype, 5)
    if fields.raw is not None:
        return FilePayload(book.source, Encoding.PLAIN, (fields.raw,), dtype, shape)
    if fields.spans.keys() - {number}:
        return NoPayload()  # told as a mismatch
    if number in fields.unpacked:
        spans = tuple((first, end - first) for first, end in fields.spans[number])
        return FilePayload(book.source, Encoding.UNPACKED, spans, dtype, shape)
    encoding = Encoding.VARINTS if LISTS.get(number) == VARINT else Encoding.PLAIN
    return FilePayload(book.source, encoding, tuple(fields.lists.get(number, ())), dtype, shape)


def _mismatch(book: Book, fields: TensorFields, dtype: DType, numel: int) -> str | None:
    """What is wrong with the payload that a tensor brings in the file; None if it fits its shape."""
    if dtype.bits and fields.raw is not None and fields.raw[1] == fields.inline == dtype.nbytes(numel):
        return None
    used = {*fields.spans, *([STRINGS] if fields.strings else [])}
    if fields.raw is not None and used:
        return "elements in raw_data and in a typed list"
    if not dtype.bits and dtype is not DType.STRING:
        return None  # an unknown type: nobody knows what its elements need
    what = f"{format_many(numel, 'element')} of {dtype.name} {'needs' if numel == 1 else 'need'}"
    if fields.raw is not None:
        needed, found = dtype.nbytes(numel), fields.raw[1]
        if dtype is DType.STRING:
            return "strings in raw_data, which the format does not allow"
        return None if needed == found else f"{what} {format_many(needed, 'byte')}, the file has {found:,}"
    number = _FIELD_OF.get(dtype, 5)
    if used - {number}:
        return f"{dtype.name} elements in a list of another type"
    needed = _listed_items(dtype, numel)
    low, high = _count_items(book, fields, number)
    if low <= needed <= high:
        return None
    return f"{what} {format_many(needed, 'list item')}, the file has {low:,}" + (
        f" to {high:,}" if high > low else ""
    )


def _listed_items(dtype: DType, numel: int) -> int:
    """Items that `numel` elements take in TensorProto's typed lists (onnx.proto, `int32_data`)."""
    if dtype in (DType.COMPLEX64, DType.COMPLEX128):
        return 2 * numel
    return dtype.nbytes(numel) if dtype.bits in (2, 4) else numel


def _count_items(book: Book, fields: TensorFields, number: int) -> tuple[int, int]:
    """The least and the most items that a list can have; the same number but for long lists of varints."""
    if number == STRINGS:
        return fields.strings, fields.strings
    count = fields.unpacked[number]
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
    """Whether a sparse tensor's indices are positions in its shape; None if so, or if they are too many to read.

    `dense` is how many elements the shape has.
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
