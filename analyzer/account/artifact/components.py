"""Ledger of an artifact -> what each of its files holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from analyzer.account.ledger import Entry, Ledger, Role
from analyzer.model import Component, GraphPath, Key
from analyzer.records import Frozen


class ComponentTotals(Frozen):
    """What one component of an artifact holds.

    `stored_tensors` and `nodes` are of all its graphs, `stored_elements` the elements of these tensors as stored, and
    `stored_nbytes` the bytes of their payloads; a byte that two tensors share counts for both.
    """

    component: Component
    file: str
    """Its model file, as seen from the artifact's folder."""
    parameters: int
    """Learned elements as if it stood alone: what another component has too counts here as well."""
    stored_tensors: int
    stored_elements: int
    stored_nbytes: int
    duplicated_nbytes: int
    """Bytes of learned tensors that another component has too, and that count there."""
    file_nbytes: int
    """Its model file and all that it refers to; what several refer to counts for each."""
    nodes: int


def count_components(ledger: Ledger) -> tuple[ComponentTotals, ...]:
    """A row for each component of an artifact, in their order; none where the model is one file."""
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
    """Learned elements, of those that repeat one content only the first."""
    found: dict[Key, int] = {}
    for entry in entries:
        if entry.role is Role.PARAMETER:
            found.setdefault(entry.copy_of or entry.tensor.key, entry.logical_numel)
    return sum(found.values())
