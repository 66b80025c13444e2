"""Groups and their tree -> their parts of JSON documents."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from analyzer.account.group.tree import TreeRow, build_tree
from analyzer.account.ledger import Group, Grouping, Macs
from analyzer.documents import shared as shared_records
from analyzer.formats.json.parts import Fields


def document_grouping(grouping: Grouping, parameters: int, *, has_tree: bool = True) -> Fields:
    """Return the fields of groups, with the overlap of the user's own groups and the rest outside them.

    `overlap` and `ungrouped` are in stored elements. The tree is empty if it is not asked for.
    """
    return {
        "by": grouping.by,
        "depth": grouping.depth,
        "match": grouping.match,
        "groups_from": grouping.origin,
        "groups": [_group(group, parameters) for group in grouping.groups],
        "tree": list(map(_tree_row, build_tree(grouping, is_opened=True))) if has_tree else [],
        "overlap": grouping.overlap.stored_elements,
        "ungrouped": grouping.ungrouped.stored_elements,
        "group_balance": shared_records.GroupBalance(
            overlap=_group(grouping.overlap, parameters), ungrouped=_group(grouping.ungrouped, parameters)
        ),
    }


def _group(group: Group, parameters: int) -> shared_records.Group:
    return shared_records.Group(
        group=group.name,
        keys=list(group.label),
        parameters=group.parameters,
        unshared_parameters=group.unshared_parameters,
        applications=group.applications,
        stored_elements=group.stored_elements,
        bytes=group.nbytes,
        tensors=group.tensors,
        nodes=group.nodes,
        share=group.parameters / parameters if parameters else None,
        first_node=UNSET if group.first is None else group.first,
        trainable=UNSET if group.trainable is None else group.trainable,
        frozen=UNSET if group.frozen is None else group.frozen,
        macs=UNSET if group.macs is None else group.macs,
        nodes_without_macs=UNSET if group.macs is None else group.unworked,
    )


def _tree_row(row: TreeRow) -> shared_records.TreeRow:
    total = row.total
    return shared_records.TreeRow(
        level=row.level,
        group=total.name,
        count=row.count,
        parameters=row.parameters,
        total_parameters=total.parameters,
        stored_elements=total.stored_elements,
        bytes=total.nbytes,
        tensors=total.tensors,
        nodes=total.nodes,
        first_node=UNSET if total.first is None else total.first,
        macs=UNSET if total.macs is None else total.macs,
        nodes_without_macs=UNSET if total.macs is None else total.unworked,
    )


def document_macs(macs: Macs | None) -> shared_records.CountedMacs | UnsetType:
    """Return the work of one run, if it was counted."""
    if macs is None:
        return UNSET
    return shared_records.CountedMacs(
        total=macs.total, at=dict(macs.at), unknown=len(macs.unknown), choices=macs.choices
    )
