"""Ledger of an artifact -> totals of each of its files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from analyzer.account.ledger import Entry, Ledger, Role
from analyzer.model import Component, GraphPath, Key
from analyzer.records import Frozen


class ComponentTotals(Frozen):
    """Totals of one component of an artifact.

    `stored_tensors` and `nodes` are those of all its graphs, `stored_elements` the elements of these tensors as stored,
    and `stored_nbytes` the bytes of their payloads; a byte that two tensors share counts for both.
    """

    component: Component
    file: str
    """Path of its model file, relative to the artifact's folder."""
    parameters: int
    """Learned elements as if the component were alone: tensors that another component has too also count here."""
    stored_tensors: int
    stored_elements: int
    stored_nbytes: int
    duplicated_nbytes: int
    """Bytes of learned tensors that another component also has, and that count there."""
    file_nbytes: int
    """Bytes of its model file and all files that it refers to; a shared file counts for each component."""
    nodes: int


def count_components(ledger: Ledger) -> tuple[ComponentTotals, ...]:
    """Return a row for each component of an artifact, in order; empty if the model is one file."""
    model = ledger.model
    if not model.components:
        return ()
    entries: dict[GraphPath, list[Entry]] = defaultdict(list)
    for entry in ledger.entries:
        entries[model.root(entry.tensor.graph_path)].append(entry)
    files = {file.key: file for file in model.files}
    return tuple(
        ComponentTotals(
            component=part,
            file=files[part.files[0]].path,
            parameters=_count_alone(entries[part.path]),
            stored_tensors=len(entries[part.path]),
            stored_elements=sum(entry.tensor.numel for entry in entries[part.path]),
            stored_nbytes=sum(entry.tensor.nbytes for entry in entries[part.path]),
            duplicated_nbytes=sum(entry.tensor.nbytes for entry in entries[part.path] if entry.is_duplicate),
            file_nbytes=sum(files[key].nbytes for key in part.files),
            nodes=sum(len(graph.nodes) for graph in graphs),
        )
        for part, graphs in model.by_part()
    )


def _count_alone(entries: Iterable[Entry]) -> int:
    """Count learned elements; of entries with the same content only the first counts."""
    found: dict[Key, int] = {}
    for entry in entries:
        if entry.role is Role.PARAMETER:
            found.setdefault(entry.copy_of or entry.tensor.key, entry.logical_numel)
    return sum(found.values())
