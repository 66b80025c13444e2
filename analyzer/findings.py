"""Model + entries -> findings: what the user of a readable file should know. Ids are the contract's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from analyzer.ledger import Entry, Finding, Role, Severity
from analyzer.model import Carrier, Model, label

__all__ = ["find"]

_UNREAD = {
    "external-escapes": Severity.ERROR,
    "external-missing": Severity.ERROR,
    "external-short": Severity.ERROR,
    "payload-mismatch": Severity.ERROR,
}


def find(model: Model, entries: Sequence[Entry]) -> tuple[Finding, ...]:
    """All findings of one file, sorted by id."""
    found = [*_unread(model), *_weightless(model, entries), *_duplicate_names(model)]
    found += [
        *_copies(entries),
        *_unattributed(entries),
        *_unused(model, entries),
        *_constant_weights(entries),
    ]
    return tuple(sorted(found, key=lambda finding: (finding.id, finding.subjects)))


def _unread(model: Model) -> Iterator[Finding]:
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for finding, key, sentence in model.unread:
        grouped[finding, sentence].append(label(key))
    for (finding, sentence), subjects in grouped.items():
        yield Finding(
            finding, _UNREAD[finding], f"{sentence} ({len(subjects)} tensors)", tuple(sorted(subjects))
        )


def _weightless(model: Model, entries: Sequence[Entry]) -> Iterator[Finding]:
    nodes = sum(len(graph.nodes) for graph in model.graphs)
    if not nodes and not entries:
        yield Finding("empty-model", Severity.WARNING, "no nodes and no stored tensors")
    elif not any(entry.role is Role.PARAMETER for entry in entries):
        yield Finding("weightless", Severity.NOTE, f"{nodes:,} nodes, but no stored tensor is a parameter")


def _duplicate_names(model: Model) -> Iterator[Finding]:
    twice = {(tensor.graph_path, tensor.name) for tensor in model.tensors() if tensor.occurrence > 1}
    if twice:
        yield Finding(
            "duplicate-name",
            Severity.WARNING,
            f"{len(twice):,} names are stored more than once in one graph",
            tuple(sorted(map(label, twice))),
        )


def _copies(entries: Iterable[Entry]) -> Iterator[Finding]:
    for rule, finding, words in (
        ("content:copy", "duplicate-content", "as it stands"),
        ("content:transposed-copy", "transposed-copy", "transposed"),
    ):
        copies = [entry for entry in entries if entry.decided_by == rule]
        if copies:
            elements = sum(entry.tensor.numel for entry in copies)
            nbytes = sum(entry.tensor.nbytes for entry in copies)
            named = [f"{label(e.tensor.key)} = {label(e.copy_of)}" for e in copies if e.copy_of is not None]
            message = f"{elements:,} elements ({nbytes:,} bytes) are stored again, {words}"
            yield Finding(finding, Severity.WARNING, message, tuple(sorted(named)))


def _unattributed(entries: Iterable[Entry]) -> Iterator[Finding]:
    unknown = [entry for entry in entries if entry.role is Role.UNATTRIBUTED]
    if unknown:
        elements = sum(entry.tensor.numel for entry in unknown)
        message = f"{elements:,} elements that no rule explains"
        yield Finding("unattributed", Severity.WARNING, message, _labels(unknown))


def _unused(model: Model, entries: Iterable[Entry]) -> Iterator[Finding]:
    outputs = {(graph.path, name) for graph in model.graphs for name in graph.outputs}
    unused = [
        entry
        for entry in entries
        if not entry.uses and entry.tensor.carrier is Carrier.INITIALIZER and entry.tensor.key not in outputs
    ]
    if unused:
        message = f"{sum(e.tensor.nbytes for e in unused):,} bytes in initializers that no node reads"
        yield Finding("unused-initializer", Severity.WARNING, message, _labels(unused))


def _constant_weights(entries: Iterable[Entry]) -> Iterator[Finding]:
    inside = [
        entry
        for entry in entries
        if entry.role is Role.PARAMETER
        and entry.tensor.carrier in (Carrier.CONSTANT, Carrier.SPARSE_CONSTANT, Carrier.CONSTANT_LIST)
    ]
    if inside:
        elements = sum(entry.parameters for entry in inside)
        message = (
            f"{elements:,} parameters are in Constant nodes, where tools that count initializers miss them"
        )
        yield Finding("constant-weights", Severity.NOTE, message, _labels(inside))


def _labels(entries: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(sorted(label(entry.tensor.key) for entry in entries))
