"""Rules for what no other rule has settled: suspects differ, parameters are unused or missing, entries have a role."""

from __future__ import annotations

from dataclasses import replace

from analyzer.ledger import Role
from analyzer.manifest import Parameter
from analyzer.reconcile.books import Books
from analyzer.reconcile.contents import Relation
from analyzer.reconcile.lines import Line

__all__ = ["mark_ties", "settle_entries", "settle_parameters", "settle_suspects"]

_BY_ROLE = {
    Role.CONSTANT: Line.ADDED,
    Role.QUANTIZATION: Line.QUANTIZATION,
    Role.PARAMETER: Line.UNEXPECTED,
    Role.UNATTRIBUTED: Line.UNEXPLAINED,
}


def settle_suspects(books: Books) -> None:
    """A PyTorch name with other content, which no formula explains, or with content that cannot be read."""
    for suspect in books.suspects:
        entry, tensor = suspect.entry, suspect.tensor
        is_unread = books.contents.relation(entry, tensor) is Relation.UNKNOWN and books.contents.compares(
            tensor
        )
        rule = "none:unreadable" if is_unread else f"name+{books.contents.evidence}"
        if isinstance(tensor, Parameter) and tensor.name not in books.parameters:
            books.hold(tensor, entry, Line.DIFFERING, rule, books.contents.error(entry, tensor))
        else:
            books.settle(entry, Line.DIFFERING, rule, tensor.name)
    books.suspects.clear()


def settle_parameters(books: Books) -> None:
    """Absent parameters: unused by the export's trace, a zero bias that was dropped, else missing."""
    for parameter in list(books.free_parameters()):
        if parameter.read is False and books.manifest.trace is not None:
            books.lose(parameter, Line.UNUSED, f"provenance:{books.manifest.trace}")
        elif books.is_dropped_zero(parameter):
            books.lose(parameter, Line.REMOVED_ZERO, "provenance:traced-zero")
        else:
            books.lose(parameter, Line.MISSING, "none:not-in-file")


def settle_entries(books: Books) -> None:
    """Entries that hold no PyTorch parameter, by what the file alone says they are."""
    for entry in list(books.free_entries()):
        if entry.role is Role.BUFFER:
            known = [name for name in entry.sources if books.tensor(name) is not None]
            line = Line.BUFFER if known else Line.UNEXPLAINED
            books.settle(entry, line, entry.decided_by, known[0] if known else None)
        else:
            is_learned = entry.role is Role.PARAMETER
            books.settle(entry, _BY_ROLE[entry.role], entry.decided_by, is_counted=is_learned)


def mark_ties(books: Books) -> None:
    """A parameter of several names that is stored once, whole, is `tied`; the line it had stays in its chain."""
    storing = {Line.IDENTICAL, Line.RENAMED, Line.TRANSPOSED, Line.RESHAPED}
    for parameter in books.manifest.parameters:
        settled = books.parameters[parameter.name]
        if parameter.tied and settled.line in storing and len(settled.entries) == 1:
            chain = (*settled.chain, Line.TIED)
            books.parameters[parameter.name] = replace(settled, line=Line.TIED, chain=chain)
            held = books.entries[settled.entries[0]]
            books.entries[held.key] = replace(held, line=Line.TIED)
