"""Rule: the stored tensor that bears a PyTorch name, by itself or by the exporter's note, and its content.

A name match is not a value match: where contents can be compared and differ, the pair becomes a suspect for the
formulas that come after, and is `differing` if none explains it.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.ledger import Entry, Evidence
from analyzer.manifest import Buffer, Parameter
from analyzer.model import Carrier
from analyzer.reconcile.books import Books, Suspect
from analyzer.reconcile.contents import Relation
from analyzer.reconcile.lines import Line

__all__ = ["match_by_name"]


def match_by_name(books: Books) -> None:
    """Match every named entry; a tensor stored as PyTorch has it is the original of its transposed copies."""
    named = list(_named(books))
    ranked = sorted(named, key=lambda item: item[2] is not Relation.SAME)
    for entry, tensor, relation in ranked:
        if isinstance(tensor, Buffer):
            _match_buffer(books, entry, tensor, relation)
        elif relation in (Relation.DIFFERENT, Relation.UNKNOWN):
            # Unknown: contents are compared, and this one cannot be read. That is no proof of anything.
            books.suspects.append(Suspect(entry, tensor))
        else:
            _match_parameter(books, entry, tensor, relation)


def _named(books: Books) -> Iterator[tuple[Entry, Parameter | Buffer, Relation]]:
    """Entries whose one PyTorch name is known, with the relation of their contents."""
    for entry in books.ledger.entries:
        name = _pytorch_name(entry)
        tensor = books.tensor(name) if name is not None else None
        if tensor is None:
            continue
        relation = books.contents.relation(entry, tensor)
        if not books.contents.compares(tensor):
            relation = _relation_by_shape(entry, tensor)
        yield entry, tensor, relation


def _pytorch_name(entry: Entry) -> str | None:
    """The one name that the entry has in PyTorch; a tensor computed from several has none."""
    if entry.decided_by == "name:folded-bias":
        return None  # named after the weight whose BatchNorm it comes from; it is not that weight
    if len(entry.sources) == 1:
        return entry.sources[0]
    return entry.tensor.name if not entry.sources and entry.tensor.carrier is Carrier.INITIALIZER else None


def _relation_by_shape(entry: Entry, tensor: Parameter | Buffer) -> Relation:
    """What shapes and notes say where contents were not compared.

    onnxscript folds a lone matrix by transposing it, so a square one that it folded is taken as transposed.
    """
    if entry.tensor.dtype is not tensor.dtype:
        return Relation.DIFFERENT
    stored = entry.tensor.shape
    folded = entry.decided_by == "provenance:folded-from"
    if stored == tensor.shape and not (folded and len(stored) == 2 and stored[0] == stored[1]):
        return Relation.SAME
    if len(stored) == 2 and stored == tensor.shape[::-1]:
        return Relation.TRANSPOSED
    return Relation.RESHAPED if entry.tensor.numel == tensor.numel else Relation.DIFFERENT


def _match_parameter(books: Books, entry: Entry, parameter: Parameter, relation: Relation) -> None:
    compared = books.contents.compares(parameter)
    evidence = entry.evidence if entry.sources else Evidence.NAME
    if evidence is Evidence.CONTENT:
        evidence = Evidence.PROVENANCE  # a copy, known by the note that the copy's rule replaced
    decided_by = f"{evidence}+{books.contents.evidence if compared else 'shape'}"
    if parameter.name in books.parameters:
        books.copy(parameter, entry, decided_by)
        return
    line = Line.IDENTICAL if entry.tensor.name in parameter.names else Line.RENAMED
    if relation is Relation.TRANSPOSED:
        line = Line.TRANSPOSED
    elif relation is Relation.RESHAPED:
        line = Line.RESHAPED
    books.hold(parameter, entry, line, decided_by, 0.0 if compared else None)


def _match_buffer(books: Books, entry: Entry, buffer: Buffer, relation: Relation) -> None:
    """A buffer under its own name must be that buffer; one that was folded may be cut or broadcast."""
    own_name = entry.tensor.name in buffer.names or books.aligned(entry.tensor.name) in buffer.names
    if relation in (Relation.DIFFERENT, Relation.UNKNOWN) and own_name:
        books.suspects.append(Suspect(entry, buffer))
        return
    books.settle(entry, Line.BUFFER, f"{entry.evidence}+{relation}", buffer.name)
