"""A comparison -> its JSON document: every group and every tensor, the largest change first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, cast

from msgspec import UNSET

from analyzer.account.ledger import Entry, Macs
from analyzer.comparison import (
    Comparison,
    DeclaredPair,
    Followed,
    GroupPair,
    Pair,
    TensorPair,
    ValueCounts,
    count_statuses,
)
from analyzer.documents import compare as compare_records
from analyzer.documents import shared as shared_records
from analyzer.formats.json.groups import document_macs
from analyzer.formats.json.parts import head
from analyzer.model import label


def document_comparison(report: Comparison) -> compare_records.CompareDocument:
    """Return the document of `compare`."""
    return compare_records.CompareDocument(
        **head(),
        a=report.a,
        b=report.b,
        totals=compare_records.CompareTotals(
            parameters=_pair(report.parameters),
            stored_elements=_pair(report.stored_elements),
            stored_bytes=_pair(report.stored_nbytes),
            bytes=_pair(report.file_nbytes),
            tensors=_pair(report.tensor_count),
            nodes=None if report.nodes is None else _pair(report.nodes),
            macs=UNSET if report.macs is None else _pair(Pair(report.macs[0].total, report.macs[1].total)),
        ),
        changes=compare_records.Changes(groups=_changes(report.groups), tensors=_changes(report.tensors)),
        content=compare_records.Contents(a=report.contents[0], b=report.contents[1]),
        values_compared=None if report.values is None else _values(report.values),
        wiring=None
        if report.wiring is None
        else compare_records.WiringPair(alike=report.wiring.alike, first=report.wiring.first),
        declared=_declared(report.declared),
        file_notes=UNSET if report.notes is None else _declared(report.notes),
        followed=None if report.followed is None else _followed(report.followed),
        same_file=report.is_same_file,
        by=report.by,
        depth=report.depth,
        match=report.match,
        groups_from=shared_records.GroupsFrom(a=report.origins[0], b=report.origins[1]),
        groups=list(map(_group_pair, report.groups)),
        overlap=_group_pair(report.overlap),
        ungrouped=_group_pair(report.ungrouped),
        tensors=list(map(_tensor_pair, report.tensors)),
        macs=UNSET if report.macs is None else _macs(*report.macs),
    )


def _declared(pairs: Sequence[DeclaredPair]) -> list[compare_records.DeclaredPair]:
    return [compare_records.DeclaredPair(what=d.what, a=d.a, b=d.b) for d in pairs]


def _macs(a: Macs, b: Macs) -> compare_records.ComparedMacs:
    ours, theirs = document_macs(a), document_macs(b)
    assert ours is not UNSET
    assert theirs is not UNSET
    return compare_records.ComparedMacs(a=ours, b=theirs)


def _changes(pairs: Iterable[GroupPair | TensorPair]) -> compare_records.Statuses:
    return compare_records.Statuses(
        **{status.value: count for status, count in count_statuses(pairs).items()}
    )


def _values(counts: ValueCounts) -> compare_records.ValuesCompared:
    return compare_records.ValuesCompared(
        content=cast("Literal['sampled', 'full']", counts.content),
        equal=counts.equal,
        differing=counts.differing,
        unknown=counts.unknown,
    )


def _followed(followed: Followed) -> compare_records.Followed:
    return compare_records.Followed(
        content=cast("Literal['sampled', 'full']", followed.content),
        whole=followed.is_whole,
        cut=followed.cut,
        tensors=len(followed.steps),
    )


def _group_pair(group: GroupPair) -> compare_records.GroupPair:
    return compare_records.GroupPair(
        group=group.name,
        keys=list(group.label),
        status=group.status,
        parameters=_pair(group.parameters),
        stored_elements=_pair(group.stored_elements),
        bytes=_pair(group.nbytes),
        tensors=_pair(group.tensors),
        macs=UNSET if group.macs is None else _pair(group.macs),
        nodes_without_macs=UNSET if group.macs is None or group.unworked is None else _pair(group.unworked),
    )


def _tensor_pair(pair: TensorPair) -> compare_records.TensorPair:
    path, name = pair.entry.tensor.key
    return compare_records.TensorPair(
        name=name,
        graph_path="/".join(path),
        group=pair.group,
        status=pair.status,
        matched_by=None if pair.matched_by is None else pair.matched_by,
        changed=list(pair.changed),
        line=pair.line,
        a=None if pair.a is None else _side(pair.a, pair.groups[0]),
        b=None if pair.b is None else _side(pair.b, pair.groups[1]),
        parameters=_pair(pair.parameters),
        stored_elements=_pair(pair.stored_elements),
        bytes=_pair(pair.nbytes),
    )


def _side(entry: Entry, group: str | None) -> compare_records.TensorSide:
    tensor = entry.tensor
    return compare_records.TensorSide(
        name=tensor.key[1],
        group=group,
        dtype=tensor.dtype.name,
        shape=list(tensor.shape),
        role=entry.role,
        parameters=entry.parameters,
        stored_elements=tensor.numel,
        bytes=tensor.nbytes,
        copy_of=None if entry.copy_of is None else label(entry.copy_of),
    )


def _pair(pair: Pair[int]) -> compare_records.Pair:
    return compare_records.Pair(
        a=pair.a, b=pair.b, difference=pair.difference, change=pair.change, ratio=pair.ratio
    )
