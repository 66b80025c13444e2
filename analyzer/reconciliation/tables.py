"""Rules: tables of which an export picked, repeated or added rows, or columns; and tables computed from frequencies.

An entry may have some rows (`sliced`), picked rows (`gathered`) or all rows, repeated (`broadcast`). Candidates are
entries that the exporter notes as folded from the table, and nameless entries. A shorter table under its own name was
cut by somebody else, and differs. Rows that a mask has overwritten (the most negative number added to all of them) are
skipped; they hold nothing of the table.

A row of positions may be added to a token (such as a class token): the file stores token + table[r] (Dosovitskiy et al.
2021, equation 1), perhaps once for each example. The row is the first of the table that the file stores nowhere else:
with any other row it is another model. Several tokens (DeiT's for the class and for distillation) have the first rows
in PyTorch's order of the tokens.

Rotary embeddings: cos(p f) and sin(p f) for positions p and frequencies f, times one factor (Su et al. 2021, section
3.4.2; transformers `modeling_rope_utils.py`, `attention_scaling`). The frequencies are a buffer, `inv_freq`.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from analyzer.account.ledger import Entry, Role
from analyzer.account.scopes import module_of
from analyzer.manifest import Buffer, Parameter, split_name
from analyzer.model import Key, Place
from analyzer.model.content import Array, cast_digest, digest, rounded, row_digests
from analyzer.model.dtypes import DType
from analyzer.model.operators import DECODES, MEASURES, MOVES, RECODES, Kind, Slot, operator_of
from analyzer.model.tables import is_known_table
from analyzer.model.waves import are_frequencies
from analyzer.reconciliation.books import Books, Holding, Suspect, is_inside
from analyzer.reconciliation.closeness import Reals, find_masked, is_like, is_rounded, narrow
from analyzer.reconciliation.factors import tolerance_of
from analyzer.reconciliation.lines import Computed, EntryLine, Line, Piece
from analyzer.reconciliation.pointwise import LEAST_HEAD
from analyzer.records import Frozen, replace

# rows of a table

Digests = npt.NDArray[np.uint64]

_FOLDED = frozenset({"provenance:folded-from", "provenance:folded-with"})

_MOST_TABLES = 16
"""Most tables that a nameless entry is compared with: first those of its readers' modules, then position tables."""

_MOST_PAIRS = 1 << 24
"""Most pairs of elements for which each row of codes is compared with all rows of the table."""


class _Rows(Frozen):
    line: Line
    distinct: int
    """Number of distinct rows of the table in the entry."""
    is_sampled: bool = False
    is_straight: bool = True
    """Whether the rows lie along the last stored axis."""
    places: npt.NDArray[np.int64] | None = None
    """Number of each row in its table, in the entry's other axes; None if it was not compared with all rows."""
    are_columns: bool = False
    """Whether columns of the table, and not rows, were picked."""
    factor: float = 1.0
    """Number by which all were multiplied."""


def match_rows(books: Books) -> None:
    """Explain entries whose rows are all rows of one free PyTorch table; each distinct row counts once."""
    _match_repeated(books)
    for entry, tables in list(_find_candidates(books)):
        for table in tables:
            if table.name in books.parameters or entry.tensor.key in books.entries:
                continue
            compared = books.contents.compares(table)
            found = _compare_rows(books, entry, table) if compared else _measure_rows(books, entry, table)
            if found is not None and not _is_rearranged(books, entry, found):
                _settle_rows(books, entry, table, found, compared)
    _match_columns(books)
    _match_remaining(books)


def _match_columns(books: Books) -> None:
    """Explain entries whose elements along one axis are columns of a free PyTorch table.

    A bias of attention heads by distance, (heads, distances), is picked by a constant index (Graham et al. 2021,
    section 3.4; `modeling_levit.py` of transformers caches the result).
    """
    if books.contents.mode == "none":
        return
    free = [table for table in _free_tables(books) if len(table.shape) == 2 and table.shape[0] > 1]
    tables = [table for table in free if not books.contents.originals.is_constant(table)]
    differing = {suspect.entry.tensor.key for suspect in books.suspects if not _is_folded(suspect)}
    for entry in list(books.open_entries()) if tables else ():
        if not _may_hold_picked(books, entry) or not entry.tensor.dtype.is_floating:
            continue
        if entry.tensor.key in differing:
            continue
        modules, numel = books.reader_modules(entry), entry.tensor.numel
        alike = [t for t in tables if t.shape[0] in entry.tensor.shape and numel not in (t.shape[0], t.numel)]
        alike = [table for table in alike if _may_be_of(entry, table)]
        alike.sort(key=lambda table: module_of(table.name) not in modules)
        for table in alike[:_MOST_TABLES]:
            if table.name not in books.parameters and entry.tensor.key not in books.entries:
                found = _compare_columns(books, entry, table)
                if found is not None and not _is_rearranged(books, entry, found):
                    _settle_rows(books, entry, table, found, compared=True)


def _free_tables(books: Books) -> Iterator[Parameter]:
    """Yield the parameters that no entry holds and that forward may read.

    What it picked once and kept (LeViT's biases) is a constant of PyTorch's program, which does not read the parameter.
    """
    return (table for table in books.free_parameters() if table.read is not False)


def _compare_columns(books: Books, entry: Entry, table: Parameter) -> _Rows | None:
    """Compare the entry's elements along each axis of the table's first length with the columns of the table."""
    values, array = books.contents.originals.values(table), books.contents.array(entry)
    if values is None or array is None or books.contents.encoding(entry) is not None:
        return None
    dtype = entry.tensor.dtype
    for rows in _as_rows(_canonical(array), table.shape[0]):
        scaled = _scaled_as_shown(books, table, values.T, rows)
        for factor, columns in itertools.chain([(1.0, values.T)], scaled):
            cast = next(rounded(columns, None if dtype is table.dtype else dtype), None)
            if cast is None:
                return None
            known = row_digests(cast).astype(np.uint64)
            if row_digests(rows.reshape(-1, table.shape[0])[:1]).astype(np.uint64)[0] not in known:
                continue
            stored = row_digests(rows).astype(np.uint64)
            if np.isin(stored, known).all():
                places = _places(stored, known).reshape(rows.shape[:-1])
                found = _Rows(Line.GATHERED, int(np.unique(stored).size), is_straight=False, places=places)
                return replace(found, are_columns=True, factor=factor)
    return None


def _match_remaining(books: Books) -> None:
    """Explain entries whose rows are a slice of a table that another entry holds already.

    An export cuts a table into pieces that its `forward` joins again (BEiT's three distances of the class token after
    those of the patches). Rows that no other entry holds are counted; other rows are copies.
    """
    if books.contents.mode == "none":
        return
    tables_by_width: dict[int, list[Parameter]] = defaultdict(list)
    for table in books.manifest.parameters:
        settled = books.parameters.get(table.name)
        if settled is not None and settled.entries and len(table.shape) == 2 and table.shape[-1] > 1:
            tables_by_width[table.shape[-1]].append(table)
    for entry in list(books.free_entries()) if tables_by_width else ():
        shape = entry.tensor.shape
        if entry.role in (Role.QUANTIZATION, Role.BUFFER) or entry.sources or _is_read_whole(books, entry):
            continue
        is_rows = len(shape) > 1 and sum(dim != 1 for dim in shape[:-1]) <= 1
        if not is_rows or not entry.tensor.dtype.is_floating or entry.tensor.numel < _LEAST_WIDTH:
            continue
        modules = books.reader_modules(entry)
        candidates = [
            table
            for table in tables_by_width.get(shape[-1], ())
            if entry.tensor.numel < table.numel and not books.is_elsewhere(entry, table)
        ]
        candidates.sort(key=lambda table: module_of(table.name) not in modules)
        for table in candidates[:_MOST_TABLES]:
            found = _compare_rows(books, entry, table) if books.contents.compares(table) else None
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
    """Return the numbers of the table's rows that an entry holds; None if unknown."""
    known, array = _known_digests(books, entry, table), books.contents.array(entry)
    if known is None or array is None or array.shape[-1:] != table.shape[-1:]:
        return None
    stored = row_digests(_canonical(np.ascontiguousarray(array).reshape(-1, table.shape[-1]))).astype(
        np.uint64
    )
    return frozenset(np.flatnonzero(np.isin(known, stored)).tolist())


_LEAST_WIDTH = 8
"""Least number of elements of a vector that its values identify."""


def _match_repeated(books: Books) -> None:
    """Explain entries that repeat a PyTorch vector in each row, as a class token for each example of a batch.

    If another entry holds the vector, an entry noted as made from it is a copy, such as an unrolled loop's first bias.
    """
    free: dict[int, set[str]] = defaultdict(set)
    for parameter in books.manifest.parameters:
        if parameter.shape and parameter.name not in books.parameters:
            free[parameter.shape[-1]].add(parameter.name)
    suspect_names = {suspect.entry.tensor.key: suspect.tensor.name for suspect in books.suspects}
    for entry, row, vectors in _repeated(books, books.open_entries()):
        name, width = suspect_names.get(entry.tensor.key), len(row)
        wanted = vectors.keys() & ({name, *entry.sources} | (free[width] if name is None else set()))
        ordered = (each for each in vectors.values() if each.name in wanted) if wanted else ()
        vector = next((v for v in ordered if _is_row(books, v, row, entry.tensor.dtype)), None)
        if vector is not None and vector.name in books.parameters:
            books.settle(entry, Line.COPIED, "content:repeated", vector.name)
        elif vector is not None:
            _settle_rows(books, entry, vector, _Rows(Line.BROADCAST, 1), True)
            free[width].discard(vector.name)


def match_repeated_copies(books: Books) -> None:
    """Explain entries that repeat a held vector in each row, if the vector's own module reads them, as copies.

    A tool that computes a loop's first step in advance, from a state of zeros, leaves the bias for each example.
    """
    for entry, row, vectors in _repeated(books, books.free_entries()):
        if books.is_multiplied(entry):
            continue
        modules = books.reader_modules(entry)
        for vector in vectors.values():
            settled = books.parameters.get(vector.name)
            owners = {module_of(name) for name in vector.names}
            is_near = not modules or any(is_inside(one, home) for one in modules for home in owners)
            is_stored = settled is not None and bool(settled.entries)
            if is_stored and is_near and _is_row(books, vector, row, entry.tensor.dtype):
                books.copy(vector, entry, "content:repeated")
                break


def _repeated(
    books: Books, entries: Iterable[Entry]
) -> Iterator[tuple[Entry, Array, Mapping[str, Parameter]]]:
    """Yield entries with equal rows, one of the rows, and the PyTorch vectors of its length, by name."""
    if books.contents.mode == "none":
        return
    vectors: dict[int, dict[str, Parameter]] = defaultdict(dict)
    for parameter in books.manifest.parameters:
        if parameter.shape and parameter.shape[-1] == parameter.numel >= _LEAST_WIDTH:
            vectors[parameter.numel][parameter.name] = parameter
    for entry in list(entries) if vectors else ():
        width = next((length for length in reversed(books.contents.shape(entry)) if length != 1), 1)
        of_width = vectors.get(width, {}) if books.contents.encoding(entry) is None else {}
        if not of_width or books.contents.numel(entry) == width or entry.tensor.key in books.entries:
            continue
        if not entry.tensor.dtype.is_floating:
            continue  # in integers, any vector of small numbers is zeros
        array = books.contents.array(entry) if entry.tensor.numel <= _MOST_PAIRS else None
        rows = None if array is None else array.reshape(-1, width)
        if rows is not None and len(rows) and bool((rows == rows[:1]).all()):
            yield entry, rows[0], of_width


def _is_row(books: Books, vector: Parameter, row: Array, dtype: DType) -> bool:
    """Whether a row has all numbers of a vector, unchanged or rounded to the row's type, or to a narrower one."""
    if books.contents.originals.is_constant(vector):
        return False  # any row of one number would match
    if _is_rounded_row(books, vector, row, dtype):
        return True
    narrower = (each for each in (DType.FLOAT16, DType.BFLOAT16) if each.bits < dtype.bits)
    narrowed = ((narrow(row, each), each) for each in narrower)
    return any(found is not None and _is_rounded_row(books, vector, found, each) for found, each in narrowed)


def _is_rounded_row(books: Books, vector: Parameter, row: Array, dtype: DType) -> bool:
    originals = books.contents.originals
    values = originals.values(vector)
    if values is not None:
        return is_rounded(row, values.reshape(-1), dtype)
    if dtype is vector.dtype:
        return digest(row) == originals.digest(vector)
    expected = originals.cast_digest(vector, dtype)
    return expected is not None and cast_digest(row, dtype) == expected


def _find_candidates(books: Books) -> Iterator[tuple[Entry, list[Parameter]]]:
    """Yield suspects folded from a table, with that table; and nameless entries, with the free tables of their width.

    A factor of a product is not a row of a table: a weight with fewer rows, or with rows in another order, was changed
    by somebody, and must be reported.
    """
    for suspect in books.suspects:
        table, entry = suspect.tensor, suspect.entry
        if not isinstance(table, Parameter) or len(table.shape) < 2:
            continue
        if _is_folded(suspect) and _may_hold_picked(books, entry):
            yield entry, [table]
    if books.contents.mode == "none":
        return
    has_evidence = any(parameter.row_digests is not None for parameter in books.manifest.parameters)
    free = [
        p
        for p in _free_tables(books)
        if len(p.shape) >= 2
        and (p.row_digests is not None or not has_evidence)
        and not books.contents.originals.is_constant(p)
    ]
    tables: dict[int, list[Parameter]] = defaultdict(list)
    for table in free:
        if table.shape[-1] > 1:
            tables[table.shape[-1]].append(table)
    for entry in books.free_entries():
        if not _may_hold_picked(books, entry):
            continue
        modules = books.reader_modules(entry)
        sizes = {size for size in books.contents.shape(entry) if size}
        widths = [width for width in tables if any(size % width == 0 for size in sizes)]
        candidates = [table for width in widths for table in tables[width]]
        numel = books.contents.numel(entry)
        candidates = [table for table in candidates if table.numel != numel and numel > table.shape[-1]]
        candidates = [table for table in candidates if _may_be_of(entry, table)]
        candidates.sort(
            key=lambda table: (
                module_of(table.name) not in modules,
                table.shape[-1] not in sizes,
                not _is_position_table(table),
            )
        )
        if candidates:
            yield entry, candidates[:_MOST_TABLES]


def _is_folded(suspect: Suspect) -> bool:
    """Whether the exporter notes that it made an entry from the tensor that the entry differs from."""
    return suspect.entry.decided_by in _FOLDED and suspect.entry.tensor.name not in suspect.tensor.names


def _may_hold_picked(books: Books, entry: Entry) -> bool:
    """Whether an entry may hold rows or columns that an export picked."""
    if entry.role in (Role.QUANTIZATION, Role.BUFFER) or books.contents.numel(entry) < 2:
        return False
    return not _is_read_whole(books, entry) or len(entry.tensor.shape) >= _AXES_OF_DISTANCES


_AXES_OF_DISTANCES = 3
"""Least axes of rows that are picked for each query and key."""


def _is_rearranged(books: Books, entry: Entry, found: _Rows) -> bool:
    """Whether rows of an entry are in an order that no export makes.

    Rows that are added are picked by distance or by position. Rows of a factor, or of a table to look up, were changed
    by somebody if they are fewer, or in another order. But relative positions are picked by the distance from query to
    key before they are multiplied (Li et al. 2022, arXiv:2112.01526, section 4.1). Positions in a line are counted
    upwards; only distances from a query count down.
    """
    places = found.places
    is_picked = places is None or (is_known_table(places) and not _counts_down(places))
    if _is_read_whole(books, entry):
        if len(entry.tensor.shape) < _AXES_OF_DISTANCES or places is None:
            return True
        return not (is_picked if entry.sources else _are_of_pairs(places))
    is_judged = places is not None and places.size > _FEW_ROWS and bool((places >= 0).all())
    return found.line is Line.GATHERED and is_judged and not is_picked


def _are_of_pairs(places: npt.NDArray[np.int64]) -> bool:
    """Whether rows are picked by the distance from query to key: it grows along one axis and falls along the other."""
    pairs = np.squeeze(places)
    if pairs.ndim != 2 or not is_known_table(pairs):
        return False
    steps = [np.diff(pairs, axis=axis) for axis in range(2)]
    return (
        all(bool((step == step.flat[0]).all()) for step in steps) and steps[0].flat[0] * steps[1].flat[0] < 0
    )


def _counts_down(places: npt.NDArray[np.int64]) -> bool:
    """Whether rows stand in a single line, each before the one that precedes it in the table."""
    line = np.squeeze(places)
    return line.ndim == 1 and bool((np.diff(line) < 0).all())


_FEW_ROWS = 4
"""Most rows that `forward` may pick by numbers of its own, such as the tokens of a prompt."""


def _may_be_of(entry: Entry, table: Parameter) -> bool:
    """Whether an entry may be made from a table, as far as the exporter notes what it made the entry from."""
    return not entry.sources or any(name in entry.sources for name in table.names)


def _is_read_whole(books: Books, entry: Entry) -> bool:
    return books.is_multiplied(entry) or _is_looked_up(books, entry)


def _is_looked_up(books: Books, entry: Entry) -> bool:
    """Whether nodes still look up rows in an entry: rows cut in advance have no indices any more."""
    known = ((operator_of(node), slot) for node, slot in books.readers(entry))
    return any(
        operator is not None
        and operator.kind is Kind.LOOKS_UP
        and operator.slot(slot) in (Slot.TABLE, Slot.CODES)
        for operator, slot in known
    )


def _settle_rows(books: Books, entry: Entry, table: Parameter, found: _Rows, compared: bool) -> None:
    books.release(entry)
    if entry.sources:
        rule = f"provenance+{'shape' if not compared else 'sampled-rows' if found.is_sampled else 'rows'}"
    else:
        rule = "sampled:rows" if found.is_sampled else "content:rows"
    changed = books.contents.changes(entry, table) or ()
    chain = (found.line, *changed)
    if found.factor != 1.0:
        rule, chain = f"{rule}+{found.factor:.9g}*w", (found.line, Line.FOLDED_POINTWISE, *changed)
    error = 0.0 if compared and not changed else None
    learned = found.distinct * table.shape[0 if found.are_columns else -1]
    books.assign(table, entry, chain, rule, error, learned, _first_of_repeated(entry, table, found))
    key = entry.tensor.key
    order = "" if found.places is None else digest(found.places.reshape(-1))
    books.entries[key] = replace(books.entries[key], order=order)


def _first_of_repeated(entry: Entry, table: Parameter, found: _Rows) -> tuple[Piece, ...]:
    """Return the piece of the first repetition of a whole table; none if its rows do not lie along the last axis."""
    if found.line is not Line.BROADCAST or not found.is_straight or found.factor != 1.0:
        return ()
    axes = tuple(range(len(table.shape)))
    return (Piece(entry.tensor.key, table.shape, axes, taken=(0, 0, 1), viewed=(-1, table.numel)),)


def _compare_rows(books: Books, entry: Entry, table: Parameter) -> _Rows | None:
    """Compare the entry's rows with the table's, along each axis of the table's width; None if none matches."""
    array = books.contents.array(entry)
    if array is None or books.contents.changes(entry, table) is None or not array.size:
        return None
    is_last = array.shape[-1:] == table.shape[-1:]
    for number, rows in enumerate(_as_rows(array, table.shape[-1])):
        is_straight = is_last and number == 0
        known = _known_digests(books, entry, table)
        found = (
            _compare_codes(books, entry, table, rows.reshape(-1, rows.shape[-1]))
            if known is None
            else _compare_digests(rows, known) or _compare_scaled(books, entry, table, rows)
        )
        if found is not None:
            return replace(found, is_straight=is_straight)
    return None


def _compare_digests(rows: Array, known: Digests) -> _Rows | None:
    stored = row_digests(_canonical(rows)).astype(np.uint64)
    whole = _without_masked(rows.reshape(-1, rows.shape[-1]), np.isin(stored, known, kind="sort"))
    if whole is None or not whole.size or not np.isin(stored[whole], known, kind="sort").all():
        return None
    line = _line_of_rows(stored[whole], known) if whole.size == stored.size else Line.GATHERED
    places = _places(stored, known).reshape(rows.shape[:-1])
    return _Rows(line, int(np.unique(stored[whole]).size), places=places)


def _compare_scaled(books: Books, entry: Entry, table: Parameter, rows: Array) -> _Rows | None:
    """Compare rows with the table's times a factor that `forward` may have multiplied them by."""
    values = books.contents.originals.values(table)
    if values is None or rows.dtype != values.dtype or table.numel > _MOST_SCALED:
        return None
    by_row = values.reshape(-1, values.shape[-1])
    for factor, scaled in _scaled_as_shown(books, table, by_row, rows):
        found = _compare_digests(rows, row_digests(_canonical(scaled)).astype(np.uint64))
        if found is not None:
            return replace(found, factor=factor)
    return None


_MOST_SCALED = 1 << 24
"""Most elements of a table whose rows may have been multiplied by a factor."""


def _scaled_as_shown(
    books: Books, table: Parameter, values: Array, rows: Array
) -> Iterator[tuple[float, Array]]:
    """Yield the rows of a table times the factor of attention or embeddings that the stored rows show.

    Embeddings of d numbers may be multiplied by the root of d (Vaswani et al. 2017, section 3.4), or divided by it, and
    a bias of attention scores may be divided by the scale of the scores: the root of a head's width.
    """
    if books.manifest.program is not None:
        return  # it tells which values PyTorch computes
    if rows.dtype != values.dtype or rows.dtype.kind != "f" or values.shape[1] < _LEAST_SCALED:
        return
    flat = rows.reshape(-1, rows.shape[-1])
    largest = flat[np.abs(flat).max(axis=1).argmax()].astype(np.float64)
    each = values.astype(np.float64)
    sizes = (each * each).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = each @ largest / sizes  # of the row that is in proportion
        off = np.abs(each * factors[:, None] - largest).max(axis=1)
    shown = np.unique(factors[off <= _NEAR * np.abs(largest).max()])
    for width in sorted(_scaling_widths(books, table)):
        for root in (math.sqrt(width), 1 / math.sqrt(width)):
            if bool((np.abs(shown / root - 1) <= 2 * _NEAR).any()):
                yield root, np.multiply(values, root, dtype=values.dtype)
                yield root, np.divide(values, 1 / root, dtype=values.dtype)


_LEAST_SCALED = 2
"""Least number of elements of a row that shows a factor."""

_NEAR = 1e-5
"""Relative error of a factor in single precision."""


def _scaling_widths(books: Books, table: Parameter) -> set[int]:
    """Return the numbers by whose root rows of a table may be multiplied or divided.

    These are the width of an embedding, and that of the heads of an attention whose biases the table holds.
    """
    found = {table.shape[-1]}
    home = module_of(table.name)
    while home:
        home = module_of(home)
        weights = [
            p for p in books.manifest.parameters if len(p.shape) > 1 and is_inside(module_of(p.name), home)
        ]
        if len(weights) > 1:
            lengths = {weight.shape[0] for weight in weights}
            heads = {table.shape[0], table.shape[-1]} - {1}
            found |= {length // count for length in lengths for count in heads if length % count == 0}
            break
    return {width for width in found if width >= LEAST_HEAD}


def _places(stored: npt.NDArray[np.integer], known: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return the number of each row in its table, the first of equal ones; -1 for a masked row."""
    digests, places = np.unique(known, return_index=True)
    at = np.minimum(np.searchsorted(digests, stored), digests.size - 1)
    return np.where(digests[at] == stored, places[at], -1).astype(np.int64)


def _as_rows(array: Array, width: int) -> list[Array]:
    """Return arrays (..., width), one for each axis of the table's width, moved to the end; the last axis comes first.

    An axis may have that width several times, with equal parts, as a bias of heads that is joined with the examples.
    """
    found = []
    for axis in reversed(range(array.ndim)):
        times, rest = divmod(array.shape[axis], width)
        if rest or not times:
            continue
        rows = np.moveaxis(array, axis, -1)
        parts = rows.reshape(*rows.shape[:-1], times, width)
        if times == 1 or bool((parts == parts[..., :1, :]).all()):
            found.append(np.ascontiguousarray(parts[..., 0, :]))
    return found


def _canonical(rows: Array) -> Array:
    return next(rounded(rows, None)) if rows.dtype == np.float16 else rows


def _known_digests(books: Books, entry: Entry, table: Parameter) -> Digests | None:
    """Return the digests of the table's rows in the entry's type; None if unknown, or if the entry holds codes."""
    if books.contents.encoding(entry) is not None:
        return None
    if entry.tensor.dtype is table.dtype and entry.tensor.payload is not None:
        digests = books.contents.originals.row_digests(table)
        if digests is not None:
            return digests
    return books.contents.originals.cast_row_digests(table, entry.tensor.dtype)


def _without_masked(rows: Array, is_known: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64] | None:
    """Return the indices of rows that no mask has overwritten; None if a row is neither known nor masked."""
    if is_known.all():
        return np.arange(len(rows))
    if rows.dtype.kind != "f":
        return None
    values = rows.astype(np.float64)
    masked = find_masked(values).all(axis=1) & (values == values[:, :1]).all(axis=1)
    return np.flatnonzero(~masked) if bool((is_known | masked).all()) else None


def _line_of_rows(stored: npt.NDArray[np.integer], known: npt.NDArray[np.integer]) -> Line:
    starts = np.flatnonzero(known == stored[0])
    if any(np.array_equal(known[start : start + stored.size], stored) for start in starts):
        return Line.SLICED
    repeats = stored.size % known.size == 0 and np.array_equal(
        np.tile(known, stored.size // known.size), stored
    )
    return Line.BROADCAST if repeats else Line.GATHERED


def _compare_codes(books: Books, entry: Entry, table: Parameter, rows: Array) -> _Rows | None:
    """Compare rows in another type with the table: with all its rows if these are known, else as a run, by samples."""
    tolerance = _row_tolerance(books, entry, rows)
    values = books.contents.originals.values(table)
    width = table.shape[-1]
    if values is not None and len(rows) * table.numel <= _MOST_PAIRS:
        known = values.reshape(-1, width).astype(np.float64)
        places = []
        for row in rows.astype(np.float64):
            near = np.flatnonzero((np.abs(known - row) <= tolerance).all(axis=1))
            if not near.size:
                return None
            places.append(int(near[0]))
        found = np.array(places)
        if not is_like(rows, known[places], np.full(rows.shape, tolerance)):
            return None
        return _Rows(_line_of_rows(found, np.arange(len(known))), int(np.unique(found).size))
    samples = books.contents.originals.samples(table)
    rows = _rows_of_one_example(rows)
    count = table.numel // width - len(rows)
    for start in range(count + 1) if samples is not None and values is None else ():
        positions = books.contents.originals.positions(table.numel) - start * width
        inside = (positions >= 0) & (positions < rows.size)
        if int(inside.sum()) < 4:
            continue
        assert samples is not None
        stored_samples, expected_samples = rows.reshape(-1)[positions[inside]], samples[inside]
        if is_like(
            stored_samples, expected_samples.astype(np.float64), np.full(stored_samples.shape, tolerance)
        ):
            return _Rows(Line.SLICED, len(rows), is_sampled=True)
    return None


def _rows_of_one_example(rows: Array) -> Array:
    """Return the rows of one example of a batch, if all examples have the same rows."""
    for count in range(1, len(rows) // 2 + 1):
        if len(rows) % count == 0 and (rows.reshape(-1, count, rows.shape[1]) == rows[:count]).all():
            return rows[:count]
    return rows


def _row_tolerance(books: Books, entry: Entry, rows: Array) -> float:
    """Return the tolerance of an element: a step of the codes, or a rounding of the type."""
    encoded = books.contents.encoding(entry)
    if encoded is not None:
        return max((float(steps.max(initial=0.0)) for _, steps in encoded.bands()), default=0.0) * 1.001
    if rows.dtype.kind not in "fV":
        return 0.0
    largest = float(np.abs(rows.astype(np.float64)).max(initial=0.0))
    return largest * {2: 2.0**-8}.get(rows.dtype.itemsize, 2.0**-22)


def _measure_rows(books: Books, entry: Entry, table: Parameter) -> _Rows | None:
    """Return the rows that shapes alone allow: fewer rows are a slice; more are gathered, and may include all."""
    shape = books.contents.shape(entry)
    is_like = books.contents.changes(entry, table) is not None
    if len(table.shape) < 2 or table.shape[-1] not in shape or not is_like:
        return None
    rows, known = books.contents.numel(entry) // table.shape[-1], table.numel // table.shape[-1]
    return _Rows(Line.SLICED, rows) if rows < known else _Rows(Line.GATHERED, known)


# a row added to a token

_LEAST_TOKEN = 8
"""Least number of elements of a token: a sum of fewer numbers may match by chance."""

_BEFORE_JOINED = (MOVES | DECODES) - {"Concat"}

_MOST_ROWS = 1 << 16


class _AddedRow(Frozen):
    token: Parameter
    table: Parameter
    row: int
    entry: Entry


def match_added_rows(books: Books) -> None:
    """Settle each free token that the file holds only as a sum with a row of a position table."""
    if books.contents.mode == "none":
        return
    tokens = [p for p in books.free_parameters() if _is_token(books, p)]
    tables = [p for p in books.manifest.parameters if _is_position_table(p)] if tokens else []
    found: dict[str, list[_AddedRow]] = defaultdict(list)
    used: set[Key] = set()
    for token in tokens:
        candidates = [table for table in tables if table.shape[-1] == token.shape[-1]][:_MOST_TABLES]
        for entry in _find_token_entries(books, token.shape[-1]) if candidates else ():
            pairs = (
                (t, _find_row(books, entry, token, t, [f.row for f in found[t.name]])) for t in candidates
            )
            table, row = next((pair for pair in pairs if pair[1] is not None), (None, None))
            if table is not None and row is not None and entry.tensor.key not in used:
                used.add(entry.tensor.key)
                found[table.name].append(_AddedRow(token, table, row, entry))
                break
    for alike in found.values():
        if _are_joined_in_order(books, [each.entry for each in alike]):
            for each in alike:
                token, entry = each.token, each.entry
                rule = f"{books.contents.evidence}:w+{each.table.name}"
                axes = tuple(range(len(token.shape)))
                piece = Piece(entry.tensor.key, token.shape, axes, computed=Computed(rule))
                books.release(entry)
                books.assign(token, entry, (Line.FOLDED_POINTWISE,), rule, 0.0, token.numel, (piece,))


def _are_joined_in_order(books: Books, entries: list[Entry]) -> bool:
    """Whether one node concatenates several tokens in this order; True for a single token."""
    wiring = books.ledger.wiring
    joined = [
        {reader.node.place: reader.slot for reader in wiring.readers(entry.tensor, past=_BEFORE_JOINED)}
        for entry in entries
    ]
    common = set.intersection(*(set(each) for each in joined)) if entries else set()
    slots = [[each[place] for each in joined] for place in common]
    return len(entries) < 2 or (bool(slots) and all(each == sorted(set(each)) for each in slots))


def _is_token(books: Books, parameter: Parameter) -> bool:
    is_row = len(parameter.shape) > 1 and parameter.numel == parameter.shape[-1] >= _LEAST_TOKEN
    return is_row and parameter.dtype.is_floating and not books.contents.originals.is_constant(parameter)


def _is_position_table(parameter: Parameter) -> bool:
    is_long = len(parameter.shape) > 1 and parameter.numel > parameter.shape[-1]
    is_embedding = len(parameter.shape) == 2 and "pos" in parameter.name.lower()
    return is_long and (parameter.name.rpartition(".")[2] != "weight" or is_embedding)


def _find_token_entries(books: Books, width: int) -> list[Entry]:
    """Return the open entries whose last axis has this width."""
    roles = (Role.PARAMETER, Role.UNATTRIBUTED, Role.CONSTANT)
    return [
        entry
        for entry in books.open_entries()
        if entry.tensor.key not in books.entries
        and entry.role in roles
        and entry.tensor.dtype.is_floating
        and entry.tensor.shape[-1:] == (width,)
        and entry.tensor.numel <= width * _MOST_ROWS
        and books.contents.encoding(entry) is None
    ]


def _find_row(
    books: Books, entry: Entry, token: Parameter, table: Parameter, taken: Collection[int]
) -> int | None:
    """Return the row that was added to a token, if it is the expected one."""
    array = books.contents.array(entry)
    values, known = books.contents.originals.values(token), books.contents.originals.values(table)
    if array is None or values is None or known is None or not array.size:
        return None
    stored, rows = array.reshape(-1, token.numel), known.reshape(-1, token.numel)
    place = _find_unstored_row(books, table, rows, taken) if bool((stored == stored[0]).all()) else None
    if place is None:
        return None
    row, token_values = rows[place], values.reshape(-1)
    expected = token_values + row
    if expected.dtype == stored.dtype and is_rounded(stored[0], expected, entry.tensor.dtype):
        return place
    sizes = np.abs(token_values.astype(np.float64)) + np.abs(row.astype(np.float64))
    error = np.abs(stored[0].astype(np.float64) - (token_values.astype(np.float64) + row))
    return place if bool((error <= tolerance_of(books.contents, entry) * sizes).all()) else None


def _find_unstored_row(
    books: Books, table: Parameter, rows: npt.NDArray[np.generic], taken: Collection[int]
) -> int | None:
    """Return the first row of a table that no entry or other token holds; if all are held, the next in order."""
    settled = books.parameters.get(table.name)
    stored_rows: set[bytes] = set()
    for key in settled.entries if settled is not None else ():
        array = books.contents.array(books.entry(key))
        if array is None or array.dtype.kind != rows.dtype.kind or array.shape[-1:] != rows.shape[-1:]:
            return None
        rows = rows.astype(array.dtype)  # compare in one type, if a tool has converted the file
        stored_rows.update(row.tobytes() for row in np.ascontiguousarray(array).reshape(-1, rows.shape[-1]))
    left = (p for p in range(len(rows)) if p not in taken and rows[p].tobytes() not in stored_rows)
    return next(left, len(taken) if len(taken) < len(rows) else None)


# rotary embeddings

_MOST_ANGLES = 1 << 22
"""Most elements of a table of angles."""

ROTARY = "content:rotary"
"""Rule for a table of cosines or sines."""

_NEAR_ANGLES = 2e-3
"""Tolerance of cosines: float16 errs by half of that, an angle of a thousand in float32 by less."""


def match_rotary(books: Books) -> None:
    """Settle as `buffer` each nameless table whose rows are all cosines, or sines, of integer positions."""
    if books.contents.mode == "none":
        return
    tables = list(_frequencies(books))
    for entry in list(books.free_entries()):
        is_learned = entry.role in (Role.QUANTIZATION, Role.CONSTANT)
        if is_learned or not entry.tensor.dtype.is_floating or not 1 < entry.tensor.numel <= _MOST_ANGLES:
            continue
        for buffer, frequencies in tables:
            if _is_table_of_angles(books, entry, frequencies):
                books.settle(entry, Line.BUFFER, ROTARY, buffer.name)
                break


def settle_untuned(books: Books) -> None:
    """Settle as `differing` each nameless vector in the place of rotary frequencies that is not PyTorch's.

    PyTorch's program reads its frequencies, but the file holds them nowhere, and computes only cosines and sines from
    a vector of as many elements. So the file rotates by other angles, though these may be frequencies too.
    """
    if books.contents.mode == "none" or not books.manifest.lists_all_buffers:
        return
    stored_names = {line.parameter for line in books.entries.values()}
    for buffer, frequencies in _frequencies(books):
        if (
            buffer.read is False
            or stored_names & {*buffer.names}
            or not are_frequencies(frequencies, _FREQUENCIES)
        ):
            continue
        for entry in list(books.free_entries()):
            if not entry.tensor.dtype.is_floating or books.contents.numel(entry) not in (
                frequencies.size,
                2 * frequencies.size,
            ):
                continue
            scope, module = books.aligned.module(entry.scope), split_name(buffer.name)[0]
            is_in_module = not entry.has_scope or not scope or f"{module}.".startswith(f"{scope}.")
            if is_in_module and is_only_rotary(books, entry):
                books.settle(entry, Line.DIFFERING, f"structure+{books.contents.evidence}", buffer.name)


_FREQUENCIES = 2e-4
"""Relative tolerance of frequencies in PyTorch's own type."""


def _frequencies(books: Books) -> Iterator[tuple[Buffer, Reals]]:
    for buffer in books.manifest.buffers:
        if (
            buffer.name.rpartition(".")[2].endswith("inv_freq")
            and len(buffer.shape) == 1
            and buffer.numel > 1
        ):
            values = books.contents.originals.vector(buffer.name)
            if values is not None:
                yield buffer, values


def _is_table_of_angles(books: Books, entry: Entry, frequencies: Reals) -> bool:
    array = books.contents.array(entry)
    if array is None:
        return False
    width = frequencies.size
    for axis in range(array.ndim):
        if array.shape[axis] in (width, 2 * width):
            rows = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis]).astype(np.float64)
            if any(_follows_angles(rows, angles) for angles in _angles(frequencies, rows)):
                return True
    return False


def _angles(frequencies: Reals, rows: Reals) -> Iterator[Reals]:
    """Yield the angles of position 1, (width of a row,): once, or repeated for both halves, or for each pair."""
    if rows.shape[1] == frequencies.size:
        yield frequencies
    else:
        yield np.concatenate([frequencies, frequencies])
        yield np.repeat(frequencies, 2)


def _follows_angles(rows: Reals, angles: Reals) -> bool:
    """Whether the rows are those of positions 0, 1, 2, ..., with any number of repetitions of the whole.

    At position 0 all cosines are 1, which tells nothing about the frequencies: at least two positions are needed.
    """
    for count in (n for n in range(2, len(rows) + 1) if len(rows) % n == 0):
        positions = np.arange(count)[:, None] * angles  # (positions, width)
        for table in (np.cos(positions), np.sin(positions)):
            whole = np.tile(table, (len(rows) // count, 1))
            size = float((whole * whole).sum())
            factor = float((rows * whole).sum()) / size if size else 0.0
            if factor and bool((np.abs(rows - factor * whole) <= _NEAR_ANGLES * abs(factor)).all()):
                return True
    return False


def is_only_rotary(books: Books, entry: Entry) -> bool:
    """Whether only cosines and sines are computed from a tensor, after at most one product."""
    wiring = books.ledger.wiring
    waiting = [(reader, 0) for reader in wiring.readers(entry.tensor)]
    seen: set[Place] = set()
    is_rotary = False
    while waiting:
        (node, _), products = waiting.pop()
        if node.op_type in ("Cos", "Sin") and node.is_standard:
            is_rotary = True
            continue
        if node.op_type in MEASURES:
            continue
        products += node.op_type in _MULTIPLIES
        if products > 1 or node.op_type not in _FOLLOWED or len(seen) > _MOST_FOLLOWED:
            return False
        if node.place not in seen:
            seen.add(node.place)
            graph = wiring.graphs.get(node.graph_path)
            next_readers = wiring.readers(node)
            if graph is not None and graph.parent is not None and {*graph.outputs} & {*node.outputs}:
                holder = wiring.node_at(graph.parent)
                next_readers = [*next_readers, *wiring.readers(holder)] if holder.op_type == "If" else []
            if not next_readers:
                return False
            waiting += [(reader, products) for reader in next_readers]
    return is_rotary


_MULTIPLIES = frozenset({"MatMul", "Mul", "QLinearMatMul", "QLinearMul"})
"""Operators that multiply frequencies by positions."""

_FOLLOWED = _MULTIPLIES | MOVES | DECODES | RECODES | {"Concat", "Expand"}
"""Operators between frequencies and the sines of their angles."""

_MOST_FOLLOWED = 64
"""Most nodes that are followed."""
