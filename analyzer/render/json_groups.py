"""Groups, their tree, and groups side by side -> their parts of JSON documents."""

from __future__ import annotations

from analyzer.compare import Comparison, GroupPair, Pair
from analyzer.ledger import Group, Grouping
from analyzer.render.json_parts import Document, head
from analyzer.tree import TreeRow, build_tree

__all__ = ["document_comparison", "document_grouping"]


def document_grouping(grouping: Grouping, parameters: int) -> Document:
    """Groups, and what the user's own have in common and leave out (`overlap` and `ungrouped` in stored elements)."""
    return {
        "by": grouping.by,
        "depth": grouping.depth,
        "match": grouping.match,
        "groups_from": grouping.origin,
        "groups": [_group(group, parameters) for group in grouping.groups],
        "tree": list(map(_tree_row, build_tree(grouping))),
        "overlap": grouping.overlap.stored_elements,
        "ungrouped": grouping.ungrouped.stored_elements,
        "group_balance": {
            "overlap": _group(grouping.overlap, parameters),
            "ungrouped": _group(grouping.ungrouped, parameters),
        },
    }


def _group(group: Group, parameters: int) -> Document:
    document: Document = {
        "group": group.name,
        "keys": list(group.label),
        "parameters": group.parameters,
        "unshared_parameters": group.unshared_parameters,
        "applications": group.applications,
        "stored_elements": group.stored_elements,
        "bytes": group.nbytes,
        "tensors": group.tensors,
        "nodes": group.nodes,
        "share": group.parameters / parameters if parameters else None,
    }
    if group.trainable is not None:
        document |= {"trainable": group.trainable, "frozen": group.frozen}
    return document


def _tree_row(row: TreeRow) -> Document:
    total = row.total
    return {
        "level": row.level,
        "group": total.name,
        "count": row.count,
        "parameters": row.parameters,
        "total_parameters": total.parameters,
        "stored_elements": total.stored_elements,
        "bytes": total.nbytes,
        "tensors": total.tensors,
        "nodes": total.nodes,
    }


def document_comparison(report: Comparison) -> Document:
    """What `compare` answers."""
    return {
        **head("compare"),
        "a": report.a,
        "b": report.b,
        "totals": {"parameters": _pair(report.parameters), "bytes": _pair(report.file_nbytes)},
        "by": report.by,
        "depth": report.depth,
        "match": report.match,
        "groups_from": dict(zip("ab", report.origins, strict=True)),
        "groups": [_group_pair(group) for group in report.groups],
        "overlap": _group_pair(report.overlap),
        "ungrouped": _group_pair(report.ungrouped),
    }


def _group_pair(group: GroupPair) -> Document:
    return {
        "group": group.name,
        "keys": list(group.label),
        "status": group.status.value,
        "parameters": _pair(group.parameters),
        "bytes": _pair(group.nbytes),
    }


def _pair(pair: Pair[int]) -> Document:
    return {"a": pair.a, "b": pair.b, "difference": pair.difference, "ratio": pair.ratio}
