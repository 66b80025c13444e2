"""A saved report can replace the model for everything except its contents."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from models import audit, ramp, save, text_model

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.account.group.keys import KEYS
from analyzer.account.group.patterns import group_by_patterns, parse_patterns
from analyzer.account.ledger import Blocks, Finding, Group, Grouping, Ledger, Member, Role, Run, Severity
from analyzer.documents import is_saved_report
from analyzer.documents.saved import load_report
from analyzer.errors import UsageError
from analyzer.formats.json import render_json
from analyzer.model import Key
from analyzer.reports import Inspection


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    proto = text_model(
        """
        g (bool c, float[1,3] x) => (float[1,3] y) {
            ["/enc/layer.0/MatMul"] h = MatMul(x, "enc.layer.0.weight")
            ["/enc/layer.1/MatMul"] k = MatMul(h, v)
            y = If(c) <then_branch = t () => (float[1,3] a) <float[3] w = {1, 2, 3}> { a = Add(k, w) },
                       else_branch = e () => (float[1,3] b) { b = Relu(k) }>
        }
        """,
        {"enc.layer.0.weight": ramp(3, 3), "v": ramp(3, 3).T.copy()},
    )
    found = audit(tmp_path, proto)
    entries = tuple(
        replace(entry, applications=index + 1, shared_with=("enc", "x")[:index])
        for index, entry in enumerate(found.entries)
    )
    blocks = Blocks(
        runs=(Run(0, 2, ("enc.layer.0", "enc.layer.1"), "name:modules"),),
        entries={
            e.tensor.key: Member(f"block.{i}", ("", "attention", "norm")[i]) for i, e in enumerate(entries)
        },
        nodes=found.blocks.nodes,
        roles={e.tensor.key: f"role {i}" for i, e in enumerate(entries) if e.role is Role.PARAMETER},
    )
    return replace(found, entries=entries, blocks=blocks)


@pytest.fixture
def path(tmp_path: Path, ledger: Ledger) -> Path:
    found = tmp_path / "report.json"
    found.write_text(render_json(Inspection(ledger, group_by(ledger))))
    return found


def totals(grouping: Grouping) -> dict[str, tuple[int, ...]]:
    """Return the totals that a report holds for each group; a saved report has no nodes."""

    def of(group: Group) -> tuple[int, ...]:
        uses = group.applications, group.unshared_parameters
        return group.parameters, *uses, group.stored_elements, group.nbytes, group.tensors

    parts = (*grouping.groups, grouping.overlap, grouping.ungrouped)
    return {group.name: of(group) for group in parts if group.tensors}


def test_totals_are_the_models(ledger, path):
    saved = load_report(path)

    assert (saved.parameters, saved.stored_elements, saved.stored_nbytes, saved.file_nbytes, saved.basis) == (
        ledger.parameters,
        ledger.stored_elements,
        ledger.stored_nbytes,
        ledger.file_nbytes,
        ledger.basis,
    )
    assert saved.accounts == ledger.accounts


@pytest.mark.parametrize("by", [None, *KEYS, "scope,dtype", "block,role", "op,block"])
@pytest.mark.parametrize("depth", [None, 1, 2, 3])
def test_groups_are_the_models(ledger, path, by, depth):
    assert totals(group_by(load_report(path), by, depth)) == totals(group_by(ledger, by, depth))


def test_uses_and_blocks_are_the_models(ledger, path):
    saved = load_report(path)

    def uses(of: Ledger) -> dict[Key, tuple[int, tuple[str, ...]]]:
        return {entry.tensor.key: (entry.applications, entry.shared_with) for entry in of.entries}

    assert uses(saved) == uses(ledger)
    assert saved.blocks == replace(ledger.blocks, nodes={})


def test_what_the_report_says_of_the_model_is_kept(ledger, tmp_path):
    findings = (
        Finding("fp64-weights", Severity.WARNING, "a sentence", ("v", "w"), 12),
        Finding("unused-initializer", Severity.NOTE, "another"),
    )
    found = replace(ledger, findings=findings, shared_nbytes=36, content="full")
    path = tmp_path / "full.json"
    path.write_text(render_json(Inspection(found, group_by(found))))

    saved = load_report(path)

    assert (saved.findings, saved.shared_nbytes, saved.content) == (findings, 36, "full")
    assert saved.nodes == ledger.nodes == 5


def test_what_is_reported_of_the_groups_is_no_finding_of_the_model(ledger, tmp_path):
    own = group_by_patterns(ledger, parse_patterns(["all=.", "again=."]))
    path = tmp_path / "own.json"
    path.write_text(render_json(Inspection(ledger, own)))

    ids = [finding.id for finding in Inspection(ledger, own).findings]
    assert "overlapping-groups" in ids
    assert [finding.id for finding in load_report(path).findings] == [
        name for name in ids if name != "overlapping-groups"
    ]


def test_components_of_an_artifact_are_kept(tmp_path):
    proto = text_model('g (float[1,3] x) => (float[1,3] y) { y = MatMul(x, "w") }', {"w": ramp(3, 3)})
    for name in ("encoder", "decoder"):
        save(tmp_path, proto, f"{name}.onnx")
    found = audit_model(tmp_path, artifact=True)
    path = tmp_path / "saved.json"
    path.write_text(render_json(Inspection(found, group_by(found))))

    saved = load_report(path)

    def describe_components(of: Ledger) -> list[tuple[object, ...]]:
        return [(c.name, c.path, c.ir_version, dict(c.opsets), c.producer) for c in of.model.components]

    assert describe_components(saved) == describe_components(found)
    assert [saved.model.root(e.tensor.graph_path) for e in saved.entries] == [("decoder",), ("encoder",)]


def test_report_of_an_older_version_has_every_group_that_needs_no_blocks(ledger, path):
    make_old(path)

    saved = load_report(path)

    assert {(entry.applications, entry.shared_with) for entry in saved.entries} == {(1, ())}
    assert (saved.nodes, saved.shared_nbytes, saved.content, saved.model.components) == (
        None,
        0,
        "sampled",
        (),
    )
    assert [finding.id for finding in saved.findings] == [finding.id for finding in ledger.findings]
    for by in ("scope", "dtype", "op", "scope,dtype"):
        assert totals(group_by(saved, by)).keys() == totals(group_by(ledger, by)).keys()
        assert group_by(saved, by).groups[0].stored_elements == group_by(ledger, by).groups[0].stored_elements
    assert group_by(saved).by == "scope"


@pytest.mark.parametrize("by", ["block", "role", "scope,role"])
def test_report_of_an_older_version_says_that_it_has_no_blocks(path, by):
    make_old(path)

    with pytest.raises(
        UsageError, match=r"the report on .*model\.onnx does not list its blocks; make it again"
    ):
        group_by(load_report(path), by)


def make_old(path: Path) -> None:
    """Remove the keys that older versions did not write."""
    document = json.loads(path.read_text())
    for key in ("blocks", "tree", "components", "content"):
        del document[key]
    del document["model"]["nodes"], document["totals"]["shared_bytes"]
    for finding in document["findings"]:
        del finding["bytes"]
    for tensor in document["tensors"]:
        for key in ("applications", "shared_with", "block", "part", "layer_role"):
            del tensor[key]
    path.write_text(json.dumps(document))


def test_own_groups_are_the_models(ledger, path):
    patterns = parse_patterns(["enc=enc", "zero=layer\\.0"])

    assert totals(group_by_patterns(load_report(path), patterns)) == totals(
        group_by_patterns(ledger, patterns)
    )


def test_entries_know_their_graph_and_their_original(ledger, path):
    saved = {entry.tensor.name: entry for entry in load_report(path).entries}

    assert {entry.tensor.key for entry in saved.values()} == {entry.tensor.key for entry in ledger.entries}
    assert saved["v"].copy_of == ((), "enc.layer.0.weight")
    assert saved["v"].tensor.payload.array() is None


@pytest.mark.parametrize(
    ("name", "answer"), [("a.json", True), ("model.onnx", False), ("dir/x.json", True), ("json", False)]
)
def test_reports_are_known_by_their_suffix(name, answer):
    assert is_saved_report(Path(name)) is answer


# files that are no report


def test_an_absent_report_is_reported(tmp_path):
    with pytest.raises(UsageError, match=r"absent\.json: cannot be read: No such file"):
        load_report(tmp_path / "absent.json")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"text"])
def test_file_that_is_no_json_is_reported(path, content):
    path.write_bytes(content)

    with pytest.raises(UsageError, match=r"report\.json: not JSON"):
        load_report(path)


def test_json_nested_without_end_is_reported(path):
    path.write_text("[" * 100_000)

    with pytest.raises(UsageError, match=r"report\.json: not"):
        load_report(path)


@pytest.mark.parametrize(
    "document",
    [[], 3, {}, {"command": "reconcile", "schema_version": 1}, {"command": "inspect", "schema_version": 2}],
)
def test_json_of_anything_else_is_reported(path, document):
    path.write_text(json.dumps(document))

    with pytest.raises(
        UsageError, match="not a report of `onnxledger inspect --format json` of schema version 1"
    ):
        load_report(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("tensors"),
        lambda d: d.pop("model"),
        lambda d: d.update(tensors=3),
        lambda d: d.update(tensors=["w"]),
        lambda d: d.update(model=[]),
        lambda d: d["model"].update(opsets=[]),
        lambda d: d["tensors"][0].update(role="hero"),
        lambda d: d["tensors"][0].update(dtype="FLOAT7"),
        lambda d: d["tensors"][0].update(carrier="pigeon"),
        lambda d: d["tensors"][0].update(graph_path=None),
        lambda d: d["tensors"][0].update(shape=None),
        lambda d: d["tensors"][0].update(stored_elements="many"),
        lambda d: d["tensors"][0].update(decided_by="magic:wand"),
        lambda d: d["tensors"][0].update(applications="often"),
        lambda d: d["tensors"][0].update(shared_with=[3]),
        lambda d: d["tensors"][0].update(block=None),
        lambda d: d["tensors"][0].pop("part"),
        lambda d: next(t for t in d["tensors"] if t["role"] == "parameter").update(layer_role=None),
        lambda d: d.update(blocks=[3]),
        lambda d: d["blocks"][0].update(count=-1),
        lambda d: d["blocks"][0].pop("modules"),
        lambda d: d["model"].update(nodes="many"),
        lambda d: d.update(content="half"),
        lambda d: d.update(content=[]),
        lambda d: d["totals"].update(shared_bytes=-1),
        lambda d: d.update(findings=[3]),
        lambda d: d.update(findings=[{"id": "x", "severity": "fatal", "message": "", "subjects": []}]),
        lambda d: d.update(components=[{"component": 3}]),
    ],
    ids=[
        "no-tensors",
        "no-model",
        "tensors-number",
        "tensors-texts",
        "model-list",
        "opsets-list",
        "role",
        "dtype",
        "carrier",
        "graph-null",
        "shape-null",
        "elements-text",
        "evidence",
        "uses-text",
        "sharers-numbers",
        "block-null",
        "no-part",
        "layer-role-null",
        "blocks-numbers",
        "block-count",
        "no-modules",
        "nodes-text",
        "content",
        "content-list",
        "shared-negative",
        "findings-numbers",
        "severity",
        "component-number",
    ],
)
def test_incomplete_report_is_reported(path: Path, change: Callable[[dict[str, Any]], object]):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))

    with pytest.raises(UsageError, match=r"report\.json: not a whole report \(.*\); make it again"):
        load_report(path)
