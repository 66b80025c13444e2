"""Properties of any two models: no tensor is lost, A and B mirror B and A, and saved reports equal their models."""

from __future__ import annotations

from pathlib import Path

import pytest
from any_model import Artifact, any_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import save
from samples import drawn

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.account.group.keys import KEYS
from analyzer.account.group.patterns import group_by_patterns, parse_patterns
from analyzer.account.ledger import Ledger
from analyzer.comparison import (
    Comparison,
    GroupPair,
    Pair,
    Status,
    TensorPair,
    compare_ledgers,
    count_statuses,
    group_alike,
)
from analyzer.documents.saved import load_report
from analyzer.formats.json import render_json
from analyzer.model.content import ContentMode
from analyzer.reports import Inspection

pytestmark = pytest.mark.slow  # draws random models

steady = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=drawn(60),
    suppress_health_check=list(HealthCheck),
)
keys = st.sampled_from([*KEYS, "scope,dtype", "bytes"])

MIRRORED = {Status.ADDED: Status.REMOVED, Status.REMOVED: Status.ADDED}


def audited(folder: Path, artifact: Artifact, content: ContentMode = "sampled") -> Ledger:
    folder.mkdir(exist_ok=True)
    for name, payload in artifact.files.items():
        (folder / name).write_bytes(payload)
    return audit_model(save(folder, artifact.proto), content=content)


def reported(ledger: Ledger, path: Path) -> Ledger:
    """Return the ledger loaded from its saved report."""
    path.write_text(render_json(Inspection(ledger, group_by(ledger))), encoding="utf-8")
    return load_report(path)


def summed(pairs: tuple[TensorPair, ...] | tuple[GroupPair, ...], total: str) -> Pair[int]:
    found = [getattr(pair, total) for pair in pairs]
    return Pair(sum(pair.a for pair in found), sum(pair.b for pair in found))


def assert_complete(result: Comparison, a: Ledger, b: Ledger) -> None:
    """Assert that every tensor of both is in one pair, and that tensors and groups sum to the ledgers' totals."""
    for side, ledger in (("a", a), ("b", b)):
        found = [getattr(pair, side) for pair in result.tensors if getattr(pair, side) is not None]
        assert sorted(map(id, found)) == sorted(map(id, ledger.entries))
    totals = {
        "parameters": Pair(a.parameters, b.parameters),
        "stored_elements": Pair(a.stored_elements, b.stored_elements),
        "nbytes": Pair(a.stored_nbytes, b.stored_nbytes),
    }
    assert (result.parameters, result.stored_elements, result.stored_nbytes) == tuple(totals.values())
    assert {total: summed(result.tensors, total) for total in totals} == totals
    if result.by == "bytes":
        totals["nbytes"] = result.file_nbytes
    assert {total: summed(result.groups, total) for total in totals} == totals


def assert_grouped(result: Comparison) -> None:
    """Assert that the tensors of each group sum to it, on each side."""
    for group in result.groups:
        for index, side in enumerate("ab"):
            members = tuple(pair for pair in result.tensors if pair.groups[index] == group.name)
            assert getattr(summed(members, "parameters"), side) == getattr(group.parameters, side)
            assert getattr(summed(members, "stored_elements"), side) == getattr(group.stored_elements, side)


def assert_statuses(result: Comparison) -> None:
    """Assert that each pair has exactly the status that follows from its sides."""
    assert sum(count_statuses(result.tensors).values()) == len(result.tensors)
    for pair in result.tensors:
        assert (pair.status is Status.ADDED) == (pair.a is None)
        assert (pair.status is Status.REMOVED) == (pair.b is None)
        assert (pair.status is Status.CHANGED) == bool(pair.changed)
        assert (pair.matched_by is None) == (pair.a is None or pair.b is None)


def assert_mirrored(there: Comparison, back: Comparison) -> None:
    """Assert that comparing B with A mirrors comparing A with B."""

    def seen(result: Comparison, turn: int) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = [
            (group.name, _turned(group.status, turn), (group.nbytes.a, group.nbytes.b)[::turn])
            for group in result.groups
        ]
        rows += [
            (
                tuple(map(id, (pair.a, pair.b)))[::turn],
                _turned(pair.status, turn),
                pair.matched_by,
                pair.changed,
            )
            for pair in result.tensors
        ]
        return sorted(rows, key=repr)

    assert seen(there, 1) == seen(back, -1)


def _turned(status: Status, turn: int) -> Status:
    return MIRRORED.get(status, status) if turn < 0 else status


def assert_ordered(result: Comparison) -> None:
    """Assert that the largest change comes first."""
    for pairs in (result.groups, result.tensors):
        sizes = [(-abs(pair.nbytes.difference), -abs(pair.parameters.difference)) for pair in pairs]
        assert sizes == sorted(sizes)


def assert_unchanged(result: Comparison) -> None:
    for pairs in (result.groups, result.tensors):
        assert {pair.status for pair in pairs} <= {Status.UNCHANGED}
    assert result.nodes is not None
    assert result.nodes.difference == result.file_nbytes.difference == 0


@steady
@given(any_model(), any_model(), keys)
def test_nothing_is_lost_and_both_ways_say_the_same(tmp_path_factory, first, second, by):
    folder = tmp_path_factory.mktemp("pair")
    a, b = audited(folder / "a", first), audited(folder / "b", second)

    there = compare_ledgers(a, b, *group_alike(a, b, by))

    assert_complete(there, a, b)
    assert_grouped(there)
    assert_statuses(there)
    assert_ordered(there)
    assert_mirrored(there, compare_ledgers(b, a, *group_alike(b, a, by)))


@steady
@given(any_model(), keys, st.sampled_from(["none", "sampled", "full"]))
def test_a_model_and_its_saved_report_are_the_same(tmp_path_factory, artifact, by, content):
    folder = tmp_path_factory.mktemp("saved")
    ledger = audited(folder, artifact, content)
    saved = reported(ledger, folder / "saved.json")

    for a, b in ((ledger, saved), (saved, ledger), (saved, saved)):
        assert_unchanged(compare_ledgers(a, b, *group_alike(a, b, by)))


@steady
@given(any_model(), st.sampled_from(["sampled", "full"]))
def test_a_model_has_the_values_that_it_has(tmp_path_factory, artifact, content):
    ledger = audited(tmp_path_factory.mktemp("values"), artifact)

    result = compare_ledgers(ledger, ledger, *group_alike(ledger, ledger), content=content)

    assert_unchanged(result)
    assert result.values is not None
    assert result.values.equal + result.values.unknown == len(ledger.entries)


@pytest.mark.parametrize("by", [None, "dtype", "bytes"])
def test_every_external_case_is_its_saved_report(shared, tmp_path, by):
    for path in sorted((shared / "models").glob("*/*.onnx")):
        if path.parent.name == "corrupt":
            continue
        ledger = audit_model(path)
        saved = reported(ledger, tmp_path / "saved.json")

        result = compare_ledgers(ledger, saved, *group_alike(ledger, saved, by))

        assert_complete(result, ledger, saved)
        assert_unchanged(result)
        own = parse_patterns(["weights=weight", "all=."])
        assert_unchanged(
            compare_ledgers(ledger, saved, group_by_patterns(ledger, own), group_by_patterns(saved, own))
        )
