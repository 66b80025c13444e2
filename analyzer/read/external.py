"""What a tensor says of its external data -> where its elements are, checked against the file that holds them."""

from __future__ import annotations

from analyzer.dtypes import DType
from analyzer.errors import ExternalDataError
from analyzer.model import Extent, Key, NoPayload, Payload
from analyzer.ranges import Source
from analyzer.read.book import Book
from analyzer.read.payload import Encoding, FilePayload
from analyzer.units import format_many

__all__ = ["locate_external"]

_EXTERNAL_KEYS = {"location", "offset", "length", "checksum", "basepath"}
"""What an entry of `external_data` may say (onnx.proto)."""

_MAX_DIGITS = 20


def locate_external(
    book: Book, entries: dict[str, str], dtype: DType, shape: tuple[int, ...], numel: int | None, key: Key
) -> tuple[Extent | None, Payload]:
    """Where external data is, checked against the file that holds it."""
    needed = dtype.nbytes(numel or 0)
    odd = sorted(entries.keys() - _EXTERNAL_KEYS)
    if odd:
        book.unread.append(("unknown-fields", key, f"external data has keys of no meaning: {', '.join(odd)}"))
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
        lacks = (
            f"needs {format_many(length, 'byte')} at offset {offset:,}, the file has {available:,} of them"
        )
        book.unread.append(("external-short", key, f"{entries['location']}: {lacks}"))
    elif dtype.bits and numel is not None and length != needed:
        finding = "external-short" if length < needed else "payload-mismatch"
        what = f"{format_many(numel, 'element')} of {dtype.name} {'needs' if numel == 1 else 'need'}"
        wrong = f"{what} {format_many(needed, 'byte')}, its entry says {length:,}"
        book.unread.append((finding, key, wrong))
    else:
        return extent, FilePayload(file, Encoding.PLAIN, ((offset, length),), dtype, shape)
    return extent, NoPayload()


def _sibling(book: Book, location: str) -> Source:
    """An external file, looked at once."""
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
    """Offset and length of external data; the length defaults to what the shape needs (ONNX IR, "External Data")."""
    numbers = []
    for key, default in (("offset", 0), ("length", needed)):
        text = entries.get(key) or str(default)
        if not (text.isascii() and text.isdigit()) or len(text) > max(_MAX_DIGITS, len(str(default))):
            shown = text if len(text) <= _MAX_DIGITS else f"{text[:_MAX_DIGITS]}..."
            raise ExternalDataError(f"[external-short] its {key} {shown!r} is no number of bytes")
        numbers.append(int(text))
    return numbers[0], numbers[1]
