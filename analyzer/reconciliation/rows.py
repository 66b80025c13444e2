"""Rule: a table of which an export kept some rows (`sliced`), picked rows (`gathered`) or repeated all (`broadcast`).

Asked of what the exporter's own note says was folded from the table, and of what has no name at all: a table that
stands under its own name and is shorter was cut by somebody else, and differs. Rows that a mask has overwritten (the
most negative number added to all of them) are passed over; they hold nothing of the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from analyzer.content import Array, cast_digest, digest, rounded, row_digests
from analyzer.dtypes import DType
from analyzer.ledger import Entry, Role
from analyzer.manifest import Parameter
from analyzer.model.operators import Kind, Slot, operator_of
from analyzer.reconciliation.books import Books, Holding
from analyzer.reconciliation.closeness import find_masked, is_like, is_rounded
from analyzer.reconciliation.lines import EntryLine, Line, Piece
from analyzer.scopes import module_of

__all__ = ["match_rows"]

Digests = npt.NDArray[np.uint64]

_FOLDED = frozenset({"provenance:folded-from", "provenance:folded-with"})

_MOST_TABLES = 16
"""Tables that a nameless entry is compared with, those of the modules that read it first."""

_MOST = 1 << 24
"""Pairs of elements up to which each row of codes is looked for among all rows."""


@dataclass(frozen=True, slots=True)
class _Found:
    line: Line
    distinct: int
    """How many different rows of the table are there."""
    is_sampled: bool = False
    is_straight: bool = True
    """Whether the rows stand along the last stored axis."""


def match_rows(books: Books) -> None:
    """Explain entries all of whose rows are rows of one free PyTorch table; each distinct row counts once."""
    _match_repeated(books)
    for entry, tables in list(_pairs(books)):
        for table in tables:
            if table.name in books.parameters or entry.tensor.key in books.entries:
                continue
            compared = books.contents.compares(table)
            found = _compare(books, entry, table) if compared else _measure(books, entry, table)
            if found is not None:
                _settle(books, entry, table, found, compared)
    _match_remaining(books)


def _match_remaining(books: Books) -> None:
    """Explain entries all of whose rows are rows, in their order, of a table that has its entry already.

    An export cuts a table in pieces that its forward joins again (BEiT's three distances of the class token behind
    those of the patches). Rows that no other entry holds are counted; others are there once more.
    """
    if books.contents.mode == "none":
        return
    homes: dict[int, list[Parameter]] = defaultdict(list)
    for table in books.manifest.parameters:
        settled = books.parameters.get(table.name)
        if settled is not None and settled.entries and len(table.shape) == 2 and table.shape[-1] > 1:
            homes[table.shape[-1]].append(table)
    for entry in list(books.free_entries()) if homes else ():
        shape = entry.tensor.shape
        if entry.role in (Role.QUANTIZATION, Role.BUFFER) or entry.sources or _is_read_whole(books, entry):
            continue
        if len(shape) != 2 or not entry.tensor.dtype.is_floating or entry.tensor.numel < _LEAST_WIDTH:
            continue
        modules = books.reader_modules(entry)
        like = [
            table
            for table in homes.get(shape[-1], ())
            if entry.tensor.numel < table.numel and not books.is_elsewhere(entry, table)
        ]
        like.sort(key=lambda table: module_of(table.name) not in modules)
        for table in like[:_MOST_TABLES]:
            found = _compare(books, entry, table) if books.contents.compares(table) else None
            if found is not None and found.line is Line.SLICED and not found.is_sampled:
                _add_rows(books, entry, table)
                break


def _add_rows(books: Books, entry: Entry, table: Parameter) -> None:
    rows, settled = _rows_of(books, entry, table), books.parameters[table.name]
    others = [_rows_of(books, books.entry(key), table) for key in settled.entries]
    is_new = rows is not None and all(other is not None and rows.isdisjoint(other) for other in others)
    if not is_new or settled.line is not Line.SLICED:
        books.settle(entry, Line.COPIED, "content:rows", table.name)
        return
    holding = Holding(entry.tensor.key, entry.tensor.numel, entry.tensor.numel)
    holdings = [*books.holdings[table.name], holding]
    books.entries[entry.tensor.key] = EntryLine(
        entry.tensor.key, Line.SLICED, table.name, "content:rows", entry.tensor.numel
    )
    books.holdings[table.name] = holdings
    keys = (*settled.entries, entry.tensor.key)
    books.parameters[table.name] = replace(settled, entries=keys)


def _rows_of(books: Books, entry: Entry, table: Parameter) -> frozenset[int] | None:
    """Which rows of a table an entry holds; None where that is not known."""
    known, array = _known_digests(books, entry, table), books.contents.array(entry)
    if known is None or array is None or array.shape[-1:] != table.shape[-1:]:
        return None
    stored = row_digests(_canonical(np.ascontiguousarray(array).reshape(-1, table.shape[-1]))).astype(
        np.uint64
    )
    return frozenset(np.flatnonzero(np.isin(known, stored)).tolist())


_LEAST_WIDTH = 8
"""Elements of a vector that is known by its values where it is repeated."""


def _match_repeated(books: Books) -> None:
    """Explain entries each of whose rows is a whole vector of PyTorch's: a class token for each example of a batch."""
    if books.contents.mode == "none":
        return
    vectors: dict[int, list[Parameter]] = defaultdict(list)
    for parameter in books.free_parameters():
        if parameter.shape and parameter.shape[-1] == parameter.numel >= _LEAST_WIDTH:
            vectors[parameter.numel].append(parameter)
    if not vectors:
        return
    told = {suspect.entry.tensor.key: suspect.tensor.name for suspect in books.suspects}
    entries = [*(suspect.entry for suspect in books.suspects), *books.free_entries()]
    for entry in entries:
        shape = entry.tensor.shape
        like = vectors.get(shape[-1], ()) if shape and books.contents.encoding(entry) is None else ()
        if not like or entry.tensor.numel == shape[-1] or entry.tensor.key in books.entries:
            continue
        if not entry.tensor.dtype.is_floating:
            continue  # rounded to whole numbers, any small vector is zeros
        name = told.get(entry.tensor.key)
        free = [v for v in like if v.name not in books.parameters and name in (None, v.name)]
        array = books.contents.array(entry) if free and entry.tensor.numel <= _MOST else None
        rows = None if array is None else array.reshape(-1, shape[-1])
        if rows is None or not bool((rows == rows[:1]).all()):
            continue
        free = [v for v in free if not books.contents.originals.is_constant(v)]
        vector = next((v for v in free if _is_row(books, v, rows[0], entry.tensor.dtype)), None)
        if vector is not None:
            _settle(books, entry, vector, _Found(Line.BROADCAST, 1), True)


def _is_row(books: Books, vector: Parameter, row: Array, dtype: DType) -> bool:
    """Whether a row has all numbers of a vector, as they are or rounded to the row's type."""
    originals = books.contents.originals
    values = originals.values(vector)
    if values is not None:
        return is_rounded(row, values.reshape(-1), dtype)
    if dtype is vector.dtype:
        return digest(row) == originals.digest(vector)
    expected = originals.cast_digest(vector, dtype)
    return expected is not None and cast_digest(row, dtype) == expected


def _pairs(books: Books) -> Iterator[tuple[Entry, list[Parameter]]]:
    """Suspects that were folded from a table, beside it; nameless entries, beside the free tables of their width.

    What multiplies a matrix is no row of a table: a weight with fewer rows, or with them in another order, was changed
    by somebody, and must show.
    """
    for suspect in books.suspects:
        table, entry = suspect.tensor, suspect.entry
        is_folded = entry.decided_by in _FOLDED and entry.tensor.name not in table.names
        if not isinstance(table, Parameter) or len(table.shape) < 2:
            continue
        if is_folded and not _is_read_whole(books, entry):
            yield entry, [table]
    if books.contents.mode == "none":
        return
    has_evidence = any(parameter.row_digests is not None for parameter in books.manifest.parameters)
    free = [
        p
        for p in books.free_parameters()
        if len(p.shape) >= 2
        and (p.row_digests is not None or not has_evidence)
        and not books.contents.originals.is_constant(p)
    ]
    tables: dict[int, list[Parameter]] = defaultdict(list)
    for table in free:
        if table.shape[-1] > 1:
            tables[table.shape[-1]].append(table)
    for entry in books.free_entries():
        if entry.role in (Role.QUANTIZATION, Role.BUFFER) or entry.sources or books.contents.numel(entry) < 2:
            continue
        if _is_read_whole(books, entry):
            continue
        modules = books.reader_modules(entry)
        like = [table for width in set(books.contents.shape(entry)) for table in tables.get(width, ())]
        numel = books.contents.numel(entry)
        like = [table for table in like if table.numel != numel and numel > table.shape[-1]]
        like.sort(key=lambda table: module_of(table.name) not in modules)
        if like:
            yield entry, like[:_MOST_TABLES]


def _is_read_whole(books: Books, entry: Entry) -> bool:
    return books.is_multiplied(entry) or _is_looked_up(books, entry)


def _is_looked_up(books: Books, entry: Entry) -> bool:
    """Whether it is a table still: what was cut from one in advance has no indices any more."""
    known = ((operator_of(node), slot) for node, slot in books.readers(entry))
    return any(
        operator is not None
        and operator.kind is Kind.LOOKS_UP
        and operator.slot(slot) in (Slot.TABLE, Slot.CODES)
        for operator, slot in known
    )


def _settle(books: Books, entry: Entry, table: Parameter, found: _Found, compared: bool) -> None:
    books.suspects = [s for s in books.suspects if s.entry.tensor.key != entry.tensor.key]
    if entry.sources:
        rule = f"provenance+{'shape' if not compared else 'sampled-rows' if found.is_sampled else 'rows'}"
    else:
        rule = "sampled:rows" if found.is_sampled else "content:rows"
    changed = books.contents.changes(entry, table) or ()
    error = 0.0 if compared and not changed else None
    learned = found.distinct * table.shape[-1]
    books.hold(table, entry, (found.line, *changed), rule, error, learned, _first(entry, table, found))


def _first(entry: Entry, table: Parameter, found: _Found) -> tuple[Piece, ...]:
    """Where all of a repeated table stands for the first time; nothing where its rows do not stand as they are."""
    if found.line is not Line.BROADCAST or not found.is_straight:
        return ()
    axes = tuple(range(len(table.shape)))
    return (Piece(entry.tensor.key, table.shape, axes, taken=(0, 0, 1), viewed=(-1, table.numel)),)


def _compare(books: Books, entry: Entry, table: Parameter) -> _Found | None:
    """Along whichever axis makes the entry's rows the table's."""
    array = books.contents.array(entry)
    if array is None or books.contents.changes(entry, table) is None or not array.size:
        return None
    is_last = array.shape[-1:] == table.shape[-1:]
    for number, rows in enumerate(_as_rows(array, table.shape[-1])):
        is_straight = is_last and number == 0
        known = _known_digests(books, entry, table)
        if known is not None:
            stored = row_digests(_canonical(rows)).astype(np.uint64)
            places = _without_masked(rows, np.isin(stored, known, kind="sort"))
            if places is not None and places.size and np.isin(stored[places], known, kind="sort").all():
                line = _line(stored[places], known) if places.size == stored.size else Line.GATHERED
                return _Found(line, int(np.unique(stored[places]).size), is_straight=is_straight)
            continue
        found = _compare_codes(books, entry, table, rows)
        if found is not None:
            return replace(found, is_straight=is_straight)
    return None


def _as_rows(array: Array, width: int) -> list[Array]:
    """The array (rows, width) with each axis of the table's width put last, the last axis first."""
    axes = [axis for axis in reversed(range(array.ndim)) if array.shape[axis] == width]
    return [np.ascontiguousarray(np.moveaxis(array, axis, -1)).reshape(-1, width) for axis in axes]


def _canonical(rows: Array) -> Array:
    return next(rounded(rows, None)) if rows.dtype == np.float16 else rows


def _known_digests(books: Books, entry: Entry, table: Parameter) -> Digests | None:
    """Of the table's rows in the entry's type; None where they are not known, or the entry holds codes."""
    if books.contents.encoding(entry) is not None:
        return None
    if entry.tensor.dtype is table.dtype and entry.tensor.payload is not None:
        digests = books.contents.originals.row_digests(table)
        if digests is not None:
            return digests
    return books.contents.originals.cast_row_digests(table, entry.tensor.dtype)


def _without_masked(rows: Array, is_known: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64] | None:
    """Places of the rows that no mask has overwritten; None where a row is neither known nor masked."""
    if is_known.all():
        return np.arange(len(rows))
    if rows.dtype.kind != "f":
        return None
    values = rows.astype(np.float64)
    masked = find_masked(values).all(axis=1) & (values == values[:, :1]).all(axis=1)
    return np.flatnonzero(~masked) if bool((is_known | masked).all()) else None


def _line(stored: npt.NDArray[np.integer], known: npt.NDArray[np.integer]) -> Line:
    starts = np.flatnonzero(known == stored[0])
    if any(np.array_equal(known[start : start + stored.size], stored) for start in starts):
        return Line.SLICED
    repeats = stored.size % known.size == 0 and np.array_equal(
        np.tile(known, stored.size // known.size), stored
    )
    return Line.BROADCAST if repeats else Line.GATHERED


def _compare_codes(books: Books, entry: Entry, table: Parameter, rows: Array) -> _Found | None:
    """Rows in another type: each against all of the table where its values are known, else a run by the samples."""
    room = _room(books, entry, rows)
    values = books.contents.originals.values(table)
    width = table.shape[-1]
    if values is not None and len(rows) * table.numel <= _MOST:
        known = values.reshape(-1, width).astype(np.float64)
        places = []
        for row in rows.astype(np.float64):
            near = np.flatnonzero((np.abs(known - row) <= room).all(axis=1))
            if not near.size:
                return None
            places.append(int(near[0]))
        found = np.array(places)
        if not is_like(rows, known[places], np.full(rows.shape, room)):
            return None
        return _Found(_line(found, np.arange(len(known))), int(np.unique(found).size))
    samples = books.contents.originals.samples(table)
    rows = _once(rows)
    count = table.numel // width - len(rows)
    for start in range(count + 1) if samples is not None and values is None else ():
        positions = books.contents.originals.positions(table.numel) - start * width
        inside = (positions >= 0) & (positions < rows.size)
        if int(inside.sum()) < 4:
            continue
        assert samples is not None
        mine, theirs = rows.reshape(-1)[positions[inside]], samples[inside]
        if is_like(mine, theirs.astype(np.float64), np.full(mine.shape, room)):
            return _Found(Line.SLICED, len(rows), is_sampled=True)
    return None


def _once(rows: Array) -> Array:
    """The rows of one example of a batch, where all have the same."""
    for count in range(1, len(rows) // 2 + 1):
        if len(rows) % count == 0 and (rows.reshape(-1, count, rows.shape[1]) == rows[:count]).all():
            return rows[:count]
    return rows


def _room(books: Books, entry: Entry, rows: Array) -> float:
    """What an element may be off: a step of the codes, a rounding of the type."""
    encoded = books.contents.encoding(entry)
    if encoded is not None:
        return max((float(steps.max(initial=0.0)) for _, steps in encoded.bands()), default=0.0) * 1.001
    if rows.dtype.kind not in "fV":
        return 0.0
    largest = float(np.abs(rows.astype(np.float64)).max(initial=0.0))
    return largest * {2: 2.0**-8}.get(rows.dtype.itemsize, 2.0**-22)


def _measure(books: Books, entry: Entry, table: Parameter) -> _Found | None:
    """What shapes alone allow: fewer rows are a slice, more are gathered, and then all may be among them."""
    shape = books.contents.shape(entry)
    is_like = books.contents.changes(entry, table) is not None
    if len(table.shape) < 2 or table.shape[-1] not in shape or not is_like:
        return None
    rows, known = books.contents.numel(entry) // table.shape[-1], table.numel // table.shape[-1]
    return _Found(Line.SLICED, rows) if rows < known else _Found(Line.GATHERED, known)
