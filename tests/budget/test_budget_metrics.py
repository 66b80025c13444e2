"""Count of each metric for models, groups and saved reports, and values that cannot be counted."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import audit, dynamo_like, external, ramp, save, set_metadata, text_model

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.account.ledger import Ledger
from analyzer.budget.measuring import METRICS, Measured, list_parts, measure
from analyzer.budget.selecting import Selection, Unknown, select
from analyzer.documents.saved import load_report
from analyzer.formats.json import render_json
from analyzer.reports import Inspection

WEIGHTS = {
    "embeddings.word.weight": ramp(7, 3),
    "encoder.layer.0.fc.weight": ramp(3, 3),
    "encoder.layer.1.fc.weight": ramp(3, 3, start=20),
    "pooler.weight": ramp(3, 2),
}
"""Weights of 21 + 9 + 9 + 6 = 45 parameters; `shape` is a constant of 2 elements without a scope."""

TEXT = """
    g (int64[1,4] ids) => (float[1,4,2] y) <int64[2] shape = {4, 3}> {
        ["/embeddings/word/Gather"] h0 = Gather("embeddings.word.weight", ids)
        h1 = Reshape(h0, shape)
        ["/encoder/layer.0/fc/MatMul"] h2 = MatMul(h1, "encoder.layer.0.fc.weight")
        ["/encoder/layer.1/fc/MatMul"] h3 = MatMul(h2, "encoder.layer.1.fc.weight")
        ["/pooler/MatMul"] y = MatMul(h3, "pooler.weight")
    }
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return audit(tmp_path, text_model(TEXT, WEIGHTS))


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Ledger], Ledger]:
    """Return a function that saves a ledger as a report and loads it again."""

    def save_and_load(ledger: Ledger) -> Ledger:
        path = tmp_path / "report.json"
        path.write_text(render_json(Inspection(ledger, group_by(ledger))))
        return load_report(path)

    return save_and_load


def whole(ledger: Ledger, group: str | None = None) -> Selection:
    found = select(ledger, group, {})
    assert not isinstance(found, Unknown)
    (part,) = found
    return part


def observe(ledger: Ledger, metric: str, group: str | None = None, *, lowest: bool = False) -> object:
    found = measure(metric, whole(ledger, group), lowest=lowest)
    assert isinstance(found, Measured)
    assert not found.lacking
    return found.observed


def why(ledger: Ledger, metric: str, group: str | None = None) -> str:
    found = measure(metric, whole(ledger, group), lowest=False)
    return found.reason if isinstance(found, Unknown) else found.lacking


def test_every_metric_says_what_it_counts_and_measures_a_model(ledger: Ledger) -> None:
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.meaning.endswith(".")
        assert observe(ledger, name) is not None


def test_counts_are_those_of_the_ledger(ledger: Ledger) -> None:
    assert observe(ledger, "parameters") == ledger.parameters == 45
    assert observe(ledger, "bytes") == ledger.file_nbytes
    assert observe(ledger, "stored-elements") == ledger.stored_elements == 47
    assert observe(ledger, "stored-bytes") == ledger.stored_nbytes
    assert observe(ledger, "tensors") == 5
    assert observe(ledger, "nodes") == 5
    assert observe(ledger, "largest-tensor-bytes") == 84
    assert observe(ledger, "ops") == ("Gather", "MatMul", "Reshape")
    assert observe(ledger, "domains") == ("ai.onnx",)
    assert observe(ledger, "dtypes") == ("FLOAT", "INT64")
    assert observe(ledger, "opset") == 18
    assert observe(ledger, "ir-version") == 10


def test_a_group_is_counted_alone_and_its_bytes_are_its_payload(ledger: Ledger) -> None:
    assert observe(ledger, "parameters", "encoder") == 18
    assert observe(ledger, "bytes", "encoder.layer.1") == 36
    assert observe(ledger, "nodes", "encoder") == 2
    assert observe(ledger, "ops", "pooler") == ("MatMul",)
    assert observe(ledger, "dtypes", "[unscoped]") == ("INT64",)


@pytest.mark.parametrize("metric", [name for name, metric in METRICS.items() if metric.kind == "most"])
def test_parts_of_what_is_counted_add_up_to_it(ledger: Ledger, metric: str) -> None:
    parts = list_parts(metric, whole(ledger))

    assert not isinstance(parts, Unknown)
    total = max if metric in ("largest-tensor-bytes", "ir-version") else sum
    assert total(parts.values()) == observe(ledger, metric)


def test_metadata_is_that_of_nodes_and_of_the_model(tmp_path: Path) -> None:
    plain, noted = text_model(TEXT, WEIGHTS), text_model(TEXT, WEIGHTS)
    set_metadata(noted.graph.node[0], {"trace": "x" * 500})
    set_metadata(noted, {"license": "y" * 300})

    before, after = audit(tmp_path, plain), audit(tmp_path, noted)

    assert observe(before, "metadata-bytes") == 0
    parts = list_parts("metadata-bytes", whole(after))
    assert not isinstance(parts, Unknown)
    assert 500 < parts["[node metadata]"] < 520
    assert 300 < parts["[model metadata]"] < 320
    assert observe(after, "metadata-bytes") == sum(parts.values())


def test_bytes_stored_again_are_duplicates_only_where_contents_were_looked_at(tmp_path: Path) -> None:
    text = "g (float[1,8] x) => (float[1,8] y) {\n h = MatMul(x, a)\n y = MatMul(h, b)\n}"
    path = save(tmp_path, text_model(text, {"a": ramp(8, 8), "b": ramp(8, 8)}))

    seen, unseen = audit_model(path), audit_model(path, content="none")

    assert observe(seen, "duplicates") == 256
    assert "--content sampled" in why(unseen, "duplicates")
    assert "--content sampled" in why(unseen, "findings")
    assert observe(seen, "findings") == len(seen.findings)


def test_the_call_of_a_local_function_is_no_operator_and_its_body_is(tmp_path: Path) -> None:
    ledger = audit(
        tmp_path,
        text_model(
            """
            <ir_version: 10, opset_import: ["" : 18, "local" : 1, "com.microsoft" : 1]>
            g (float[2] x, bool c) => (float[2] y) {
                h = local.twice(x)
                k = com.microsoft.Gelu(h)
                y = If (c) <then_branch = a () => (float[2] p) { p = Neg(k) },
                            else_branch = b () => (float[2] q) { q = Abs(k) }>
            }
            <domain: "local", opset_import: ["" : 18]>
            twice (v) => (w) { w = Add(v, v) }
            """
        ),
    )

    assert observe(ledger, "ops") == ("Abs", "Add", "If", "Neg", "com.microsoft:Gelu")
    assert observe(ledger, "domains") == ("ai.onnx", "com.microsoft")
    assert observe(ledger, "nodes") == 6


def test_bytes_that_are_not_there_are_not_counted_as_if_they_were_none(tmp_path: Path) -> None:
    proto = text_model("g (float[1,2] x) => (float[1,2] y) {\n y = MatMul(x, w)\n}")
    proto.graph.initializer.append(external("w", [2, 2], location="gone.bin"))
    ledger = audit(tmp_path, proto)

    assert "external-missing" in why(ledger, "bytes")
    assert "external-missing" in why(ledger, "external-bytes")
    assert "external-missing" in why(ledger, "orphaned-bytes")
    assert observe(ledger, "parameters") == 4
    assert observe(ledger, "metadata-bytes") == 0


def test_data_outside_the_folder_is_counted_by_tensors(tmp_path: Path) -> None:
    proto = text_model("g (float[1,2] x) => (float[1,2] y) {\n y = MatMul(x, w)\n}")
    proto.graph.initializer.append(external("w", [2, 2], location="../w.bin"))
    ledger = audit(tmp_path, proto)

    assert observe(ledger, "external-outside") == 1
    assert list_parts("external-outside", whole(ledger)) == {"w": 1}


def test_bytes_of_external_files_are_counted(tmp_path: Path) -> None:
    proto = text_model("g (float[1,2] x) => (float[1,2] y) {\n y = MatMul(x, w)\n}")
    proto.graph.initializer.append(external("w", [2, 2], location="w.bin"))
    (tmp_path / "w.bin").write_bytes(np.ones(4, np.float32).tobytes())
    ledger = audit(tmp_path, proto)

    assert observe(ledger, "external-bytes") == 16


def artifact(folder: Path, opsets: dict[str, int]) -> Ledger:
    for name, opset in opsets.items():
        text = f'<ir_version: {opset - 8}, opset_import: ["" : {opset}]>\n{TEXT}'
        save(folder, text_model(text, WEIGHTS), f"{name}.onnx")
    return audit_model(folder, artifact=True)


def test_of_several_files_the_version_that_a_limit_is_about_is_taken(
    tmp_path: Path, saved: Callable[[Ledger], Ledger]
) -> None:
    found = artifact(tmp_path, {"encoder": 13, "decoder": 18})

    for ledger in (found, saved(found)):
        assert observe(ledger, "opset", lowest=True) == 13
        assert observe(ledger, "opset") == 18
        assert observe(ledger, "ir-version") == 10
        assert list_parts("opset", whole(ledger)) == {"decoder": 18, "encoder": 13}


def test_a_model_without_an_opset_has_no_version(tmp_path: Path) -> None:
    proto = text_model(TEXT, WEIGHTS)
    del proto.opset_import[:]

    assert "imports no opset" in why(audit(tmp_path, proto), "opset")


def test_opsets_that_contradict_each_other_are_no_version(tmp_path: Path) -> None:
    proto = text_model(TEXT, WEIGHTS)
    proto.opset_import.append(onnx.helper.make_opsetid("", 11))

    assert "and another" in why(audit(tmp_path, proto), "opset")


def test_a_saved_report_measures_what_it_contains_as_the_model_does(
    ledger: Ledger, saved: Callable[[Ledger], Ledger]
) -> None:
    report = saved(ledger)

    assert not [name for name in METRICS if why(report, name)]
    for name in METRICS:
        assert observe(report, name) == observe(ledger, name), name
    assert observe(report, "parameters", "encoder.layer.1") == 9
    assert "does not hold the graph" in why(report, "nodes", "encoder")
    assert "does not hold the graph" in why(report, "ops", "encoder")
    assert isinstance(list_parts("nodes", whole(report)), Unknown)


def test_a_saved_report_keeps_how_far_contents_were_looked_at(
    ledger: Ledger, saved: Callable[[Ledger], Ledger]
) -> None:
    assert "--content" in why(saved(dataclasses.replace(ledger, content="none")), "duplicates")


# groups


def names(ledger: Ledger, group: str) -> list[tuple[str, str]]:
    found = select(ledger, group, {})
    assert not isinstance(found, Unknown)
    return [(part.kind, part.name) for part in found]


def test_a_group_is_a_scope_with_all_below_it_and_no_prefix_of_letters(ledger: Ledger) -> None:
    assert names(ledger, "encoder.layer") == [("scope", "encoder.layer")]
    assert isinstance(select(ledger, "encoder.lay", {}), Unknown)


def test_a_glob_is_each_group_of_as_many_parts(ledger: Ledger) -> None:
    assert names(ledger, "encoder.layer.*") == [("scope", "encoder.layer.0"), ("scope", "encoder.layer.1")]
    assert names(ledger, "*") == [("scope", "embeddings"), ("scope", "encoder"), ("scope", "pooler")]
    assert names(ledger, "encoder.layer.[1-9]") == [("scope", "encoder.layer.1")]


def test_blocks_are_groups_where_no_scope_is_called_so(ledger: Ledger) -> None:
    assert ledger.blocks is not None
    if not ledger.blocks.count:
        assert isinstance(select(ledger, "block.0", {}), Unknown)
    else:
        assert names(ledger, "block.0") == [("block", "block.0")]
        assert names(ledger, "block.*")[0] == ("block", "block.0")


def test_a_similar_name_is_suggested(ledger: Ledger) -> None:
    found = select(ledger, "encoder.lyer.1", {})

    assert isinstance(found, Unknown)
    assert "'encoder.layer.1'" in found.reason


def test_a_group_of_the_project_goes_before_a_scope(ledger: Ledger) -> None:
    found = select(ledger, "encoder", {"encoder": re.compile("pooler|embeddings")})

    assert not isinstance(found, Unknown)
    assert [part.kind for part in found] == ["group"]
    assert sum(entry.parameters for entry in found[0].entries) == 27
    assert found[0].nodes is not None
    assert len(found[0].nodes) == 2


def test_the_root_is_what_stands_in_no_module(tmp_path: Path) -> None:
    proto = dynamo_like(
        text_model(
            "g (float[1,2] x) => (float[1,2] y) {\n [n] y = MatMul(x, weight)\n}", {"weight": ramp(2, 2)}
        ),
        scopes={"n": ""},
        parameters=("weight",),
    )
    ledger = audit(tmp_path, proto)

    assert observe(ledger, "parameters", "[root]") == 4


def test_what_all_groups_need_of_the_model_is_computed_once_for_all_of_them(tmp_path: Path) -> None:
    count = 1_500
    nodes = "\n".join(f'["/enc/l.{i}/Add"] t{i + 1} = Add(t{i}, "enc.l.{i}.w")' for i in range(count))
    text = f"g (float[4] t0) => (float[4] t{count}) {{\n{nodes}\n}}"
    ledger = audit(tmp_path, text_model(text, {f"enc.l.{i}.w": ramp(4, start=i % 7) for i in range(count)}))
    parts = select(ledger, "enc.l.*", {})
    assert not isinstance(parts, Unknown)

    started = time.process_time()
    found = [measure("duplicates", part, lowest=False) for part in parts]

    assert len(found) == count
    assert time.process_time() - started < 0.5  # seconds; quadratic time in the groups takes more than 1
