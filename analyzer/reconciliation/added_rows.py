"""Rule: a token of its own (a class token) to which an export has added a row of a table of positions.

What is stored is token + table[r] (Dosovitskiy et al. 2021, equation 1), perhaps once for each example. The row is the
first of the table that stands nowhere else in the file: with any other row it is another model. Several tokens (DeiT's
for the class and for distillation) have the first rows in the order in which PyTorch has the tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzer.ledger import Entry, Role
from analyzer.manifest import Parameter
from analyzer.model import Key
from analyzer.model.operators import DECODES, MOVES
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.closeness import is_rounded
from analyzer.reconciliation.lines import Computed, Line, Piece
from analyzer.reconciliation.scaled import tolerance_of

__all__ = ["match_added_rows"]

Reals = npt.NDArray[np.float64]

_FEWEST = 8
"""Elements of a token, at least: of fewer, a sum of two numbers may be chance."""

_BEFORE_JOINED = (MOVES | DECODES) - {"Concat"}

_MOST_TABLES = 16
_MOST_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class _Found:
    token: Parameter
    table: Parameter
    row: int
    entry: Entry


def match_added_rows(books: Books) -> None:
    """Settle each free token of which the file holds the sum with a row of positions, and nothing else."""
    if books.contents.mode == "none":
        return
    tokens = [p for p in books.free_parameters() if _is_token(books, p)]
    tables = [p for p in books.manifest.parameters if _is_table(p)] if tokens else []
    found: dict[str, list[_Found]] = defaultdict(list)
    used: set[Key] = set()
    for token in tokens:
        like = [table for table in tables if table.shape[-1] == token.shape[-1]][:_MOST_TABLES]
        for entry in _candidates(books, token.shape[-1]) if like else ():
            pairs = ((t, _find_row(books, entry, token, t, [f.row for f in found[t.name]])) for t in like)
            table, row = next((pair for pair in pairs if pair[1] is not None), (None, None))
            if table is not None and row is not None and entry.tensor.key not in used:
                used.add(entry.tensor.key)
                found[table.name].append(_Found(token, table, row, entry))
                break
    for alike in found.values():
        if _are_joined_in_order(books, [each.entry for each in alike]):
            for each in alike:
                _settle(books, each)


def _are_joined_in_order(books: Books, entries: list[Entry]) -> bool:
    """Whether one node joins all of several tokens, in this order."""
    wiring = books.ledger.wiring
    joined = [
        {reader.node.place: reader.slot for reader in wiring.readers(entry.tensor, past=_BEFORE_JOINED)}
        for entry in entries
    ]
    common = set.intersection(*(set(each) for each in joined)) if entries else set()
    slots = [[each[place] for each in joined] for place in common]
    return len(entries) < 2 or (bool(slots) and all(each == sorted(set(each)) for each in slots))


def _settle(books: Books, found: _Found) -> None:
    token, entry = found.token, found.entry
    rule = f"{books.contents.evidence}:w+{found.table.name}"
    axes = tuple(range(len(token.shape)))
    piece = Piece(entry.tensor.key, token.shape, axes, computed=Computed(rule))
    books.suspects = [s for s in books.suspects if s.entry.tensor.key != entry.tensor.key]
    books.hold(token, entry, (Line.FOLDED_POINTWISE,), rule, 0.0, token.numel, (piece,))


def _is_token(books: Books, parameter: Parameter) -> bool:
    is_row = len(parameter.shape) > 1 and parameter.numel == parameter.shape[-1] >= _FEWEST
    return is_row and parameter.dtype.is_floating and not books.contents.originals.is_constant(parameter)


def _is_table(parameter: Parameter) -> bool:
    is_long = len(parameter.shape) > 1 and parameter.numel > parameter.shape[-1]
    return is_long and (parameter.name.rpartition(".")[2] != "weight" or _is_position(parameter))


def _is_position(parameter: Parameter) -> bool:
    return len(parameter.shape) == 2 and "pos" in parameter.name.lower()  # an embedding's `weight`


def _candidates(books: Books, width: int) -> list[Entry]:
    """Unsettled entries of which the last axis is as wide."""
    suspected = [suspect.entry for suspect in books.suspects]
    roles = (Role.PARAMETER, Role.UNATTRIBUTED, Role.CONSTANT)
    return [
        entry
        for entry in (*suspected, *books.free_entries())
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
    """The row that was added, if it is the one that has to be."""
    array = books.contents.array(entry)
    values, known = books.contents.originals.values(token), books.contents.originals.values(table)
    if array is None or values is None or known is None or not array.size:
        return None
    stored, rows = array.reshape(-1, token.numel), known.reshape(-1, token.numel)
    place = _first_left(books, table, rows, taken) if bool((stored == stored[0]).all()) else None
    if place is None:
        return None
    row, mine = rows[place], values.reshape(-1)
    expected = mine + row
    if expected.dtype == stored.dtype and is_rounded(stored[0], expected, entry.tensor.dtype):
        return place
    sizes = np.abs(mine.astype(np.float64)) + np.abs(row.astype(np.float64))
    error = np.abs(stored[0].astype(np.float64) - (mine.astype(np.float64) + row))
    return place if bool((error <= tolerance_of(books.contents, entry) * sizes).all()) else None


def _first_left(
    books: Books, table: Parameter, rows: npt.NDArray[np.generic], taken: Collection[int]
) -> int | None:
    """The first row of a table that no entry holds, nor another token; the first of all where each row is held."""
    settled = books.parameters.get(table.name)
    held: set[bytes] = set()
    for key in settled.entries if settled is not None else ():
        array = books.contents.array(books.entry(key))
        if array is None or array.dtype != rows.dtype or array.shape[-1:] != rows.shape[-1:]:
            return None
        held.update(row.tobytes() for row in np.ascontiguousarray(array).reshape(-1, rows.shape[-1]))
    left = (p for p in range(len(rows)) if p not in taken and rows[p].tobytes() not in held)
    return next(left, len(taken) if len(taken) < len(rows) else None)
