"""Rule: the stored tensor that bears a PyTorch name, by itself or by the exporter's note, and its content.

A name match is not a value match: where contents can be compared and differ, the pair becomes a suspect for the
formulas that come after, and is `differing` if none explains it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzer.ledger import Entry, Evidence
from analyzer.manifest import Buffer, Parameter
from analyzer.model import Carrier
from analyzer.reconciliation.books import Books, Suspect, piece_of
from analyzer.reconciliation.contents import Fit
from analyzer.reconciliation.lines import Line

__all__ = ["match_by_name"]


def match_by_name(books: Books) -> None:
    """Match every named entry; a tensor stored as PyTorch has it is the original of its transposed copies."""
    named = list(_named(books))
    ranked = sorted(named, key=lambda item: 2 if item[2] is None else len(item[2].chain) > 0)
    for entry, tensor, fit in ranked:
        if isinstance(tensor, Buffer):
            _match_buffer(books, entry, tensor, fit)
        elif fit is None:
            # Also where contents are compared, and this one cannot be read: that is no proof of anything.
            books.suspects.append(Suspect(entry, tensor))
        else:
            _match_parameter(books, entry, tensor, fit)


def _named(books: Books) -> Iterator[tuple[Entry, Parameter | Buffer, Fit | None]]:
    """Entries whose one PyTorch name is known, and how each holds the tensor of that name."""
    for entry in books.ledger.entries:
        name = _pytorch_name(entry)
        tensor = books.tensor(name) if name is not None else None
        if tensor is not None:
            yield entry, tensor, books.contents.fit(entry, tensor)


def _pytorch_name(entry: Entry) -> str | None:
    """The one name that the entry has in PyTorch; a tensor computed from several has none."""
    if entry.decided_by == "name:folded-bias":
        return None  # named after the weight whose BatchNorm it comes from; it is not that weight
    if len(entry.sources) == 1:
        return entry.sources[0]
    return entry.tensor.name if not entry.sources and entry.tensor.carrier is Carrier.INITIALIZER else None


def _match_parameter(books: Books, entry: Entry, parameter: Parameter, fit: Fit) -> None:
    evidence = entry.evidence if entry.sources else Evidence.NAME
    if evidence is Evidence.CONTENT:
        evidence = Evidence.PROVENANCE  # a copy, known by the note that the copy's rule replaced
    decided_by = f"{evidence}+{fit.evidence}"
    if parameter.name in books.parameters:
        books.copy(parameter, entry, decided_by)
        return
    as_it_stands = Line.RENAMED
    if entry.tensor.name in parameter.names:
        as_it_stands = Line.NAMED if fit.evidence == "shape" else Line.IDENTICAL
    chain = fit.chain or (as_it_stands,)
    books.hold(parameter, entry, chain, decided_by, fit.error, pieces=(piece_of(entry, fit),))


def _match_buffer(books: Books, entry: Entry, buffer: Buffer, fit: Fit | None) -> None:
    """A buffer under its own name must be that buffer; one that was folded may be cut or broadcast."""
    own_name = books.aligned(entry.tensor.name) in buffer.names
    if fit is None and (own_name or _is_other_weight(books, entry, buffer)):
        books.suspects.append(Suspect(entry, buffer))
        return
    how = "derived" if fit is None else fit.evidence
    piece = None if fit is None else piece_of(entry, fit)
    books.settle(entry, Line.BUFFER, f"{entry.evidence}+{how}", buffer.name, piece=piece)


def _is_other_weight(books: Books, entry: Entry, buffer: Buffer) -> bool:
    """Whether some node multiplies by a matrix that was folded from a buffer, says a note, and is not made of it."""
    is_matrix = entry.tensor.dtype.is_floating and sum(dim > 1 for dim in entry.tensor.shape) > 1
    if not is_matrix or not books.contents.compares(buffer) or not books.is_multiplied(entry):
        return False
    values, array = books.contents.originals.values(buffer), books.contents.array(entry)
    return values is None or array is None or not bool(np.isin(array, values).all())
