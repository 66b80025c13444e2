"""What nothing explains -> the PyTorch tensor that each is most like, for a person to go on from."""

from __future__ import annotations

from analyzer.ledger import Entry
from analyzer.manifest import Parameter
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import UNBALANCED, Nearest

__all__ = ["find_nearest"]

_MOST_ENTRIES = 64
_MOST_CANDIDATES = 64


def find_nearest(books: Books) -> tuple[Nearest, ...]:
    """For the first entries on an unbalanced line, in file order; none where contents are not compared.

    A candidate has as many elements in a shape that can be turned into the entry's. Missing ones go first; among equals
    the one with most elements in common, then with the least largest difference.
    """
    culprits = [line for line in books.entries.values() if line.line in UNBALANCED]
    found = (_nearest(books, books.entry(line.key)) for line in culprits[:_MOST_ENTRIES])
    return tuple(nearest for nearest in found if nearest is not None)


def _nearest(books: Books, entry: Entry) -> Nearest | None:
    numel = books.contents.numel(entry)
    like = [p for p in books.manifest.parameters if p.numel == numel and books.contents.compares(p)]
    like.sort(key=lambda parameter: parameter.name in books.holdings)
    best: tuple[tuple[int, float], Nearest] | None = None
    for parameter in like[:_MOST_CANDIDATES]:
        candidate = _compare(books, entry, parameter)
        if candidate is None:
            continue
        error = float("inf") if candidate.max_abs_error is None else candidate.max_abs_error
        rank = (-candidate.equal, error)
        if best is None or rank < best[0]:
            best = (rank, candidate)
    return None if best is None else best[1]


def _compare(books: Books, entry: Entry, parameter: Parameter) -> Nearest | None:
    equal, compared = books.contents.agreement(entry, parameter)
    if not compared:
        return None
    error = books.contents.error(entry, parameter)
    return Nearest(entry.tensor.key, parameter.name, equal, compared, error)
