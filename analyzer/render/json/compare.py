"""A comparison -> its JSON document: every group and every tensor, the largest change first."""

from __future__ import annotations

from collections.abc import Iterable

from analyzer.compare import Comparison, GroupPair, Pair, TensorPair, ValueCounts, count_statuses
from analyzer.ledger import Entry
from analyzer.model import label
from analyzer.render.json.parts import Document, head

__all__ = ["document_comparison"]


def document_comparison(report: Comparison) -> Document:
    """What `compare` answers."""
    return {
        **head("compare"),
        "a": report.a,
        "b": report.b,
        "totals": {
            "parameters": _pair(report.parameters),
            "stored_elements": _pair(report.stored_elements),
            "stored_bytes": _pair(report.stored_nbytes),
            "bytes": _pair(report.file_nbytes),
            "tensors": _pair(report.tensor_count),
            "nodes": None if report.nodes is None else _pair(report.nodes),
        },
        "changes": {"groups": _changes(report.groups), "tensors": _changes(report.tensors)},
        "content": dict(zip("ab", report.contents, strict=True)),
        "values_compared": None if report.values is None else _values(report.values),
        "wiring": None
        if report.wiring is None
        else {"alike": report.wiring.alike, "first": report.wiring.first},
        "by": report.by,
        "depth": report.depth,
        "match": report.match,
        "groups_from": dict(zip("ab", report.origins, strict=True)),
        "groups": list(map(_group_pair, report.groups)),
        "overlap": _group_pair(report.overlap),
        "ungrouped": _group_pair(report.ungrouped),
        "tensors": list(map(_tensor_pair, report.tensors)),
    }


def _changes(pairs: Iterable[GroupPair | TensorPair]) -> Document:
    return {status.value: count for status, count in count_statuses(pairs).items()}


def _values(counts: ValueCounts) -> Document:
    return {
        "content": counts.content,
        "equal": counts.equal,
        "differing": counts.differing,
        "unknown": counts.unknown,
    }


def _group_pair(group: GroupPair) -> Document:
    return {
        "group": group.name,
        "keys": list(group.label),
        "status": group.status.value,
        "parameters": _pair(group.parameters),
        "stored_elements": _pair(group.stored_elements),
        "bytes": _pair(group.nbytes),
        "tensors": _pair(group.tensors),
    }


def _tensor_pair(pair: TensorPair) -> Document:
    path, name = pair.entry.tensor.key
    return {
        "name": name,
        "graph_path": "/".join(path),
        "group": pair.group,
        "status": pair.status.value,
        "matched_by": None if pair.matched_by is None else pair.matched_by.value,
        "changed": [change.value for change in pair.changed],
        "a": None if pair.a is None else _side(pair.a, pair.groups[0]),
        "b": None if pair.b is None else _side(pair.b, pair.groups[1]),
        "parameters": _pair(pair.parameters),
        "stored_elements": _pair(pair.stored_elements),
        "bytes": _pair(pair.nbytes),
    }


def _side(entry: Entry, group: str | None) -> Document:
    tensor = entry.tensor
    return {
        "name": tensor.key[1],
        "group": group,
        "dtype": tensor.dtype.name,
        "shape": list(tensor.shape),
        "role": entry.role.value,
        "parameters": entry.parameters,
        "stored_elements": tensor.numel,
        "bytes": tensor.nbytes,
        "copy_of": None if entry.copy_of is None else label(entry.copy_of),
    }


def _pair(pair: Pair[int]) -> Document:
    return {"a": pair.a, "b": pair.b, "difference": pair.difference, "ratio": pair.ratio}
