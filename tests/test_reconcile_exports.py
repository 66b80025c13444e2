"""Real exports reconcile to zero, and what was tampered with is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from exports import CONFIGS, Exports
from onnx import numpy_helper

from analyzer import audit_model, load_manifest, reconcile_ledger
from analyzer.reconcile import Line, Reconciliation

pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.export

NAMES = [*CONFIGS, "factory"]
FOLDED = {"resnet", "factory"}


def elements(result: Reconciliation) -> dict[Line, int]:
    return {row.line: row.elements for row in result.bridge if row.tensors}


def pytorch_count(exported: Exports, name: str, **how: str) -> int:
    return sum(parameter.numel() for parameter in exported(name, **how).resolved.model.parameters())


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("name", NAMES)
def test_an_export_reconciles_to_zero(exported: Exports, name: str, dtype: str) -> None:
    files = exported(name, dtype).files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path))

    assert result.balanced
    assert result.content == "full"
    assert result.manifest.numel == pytorch_count(exported, name, dtype=dtype)
    assert (Line.FOLDED_BATCHNORM in elements(result)) == (name in FOLDED)


@pytest.mark.parametrize("via", ["dynamo", "torchscript"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "resnet", "factory"])
def test_other_exporters_files_reconcile_to_zero(exported: Exports, name: str, via: str) -> None:
    files = exported(name, via=via).files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path))

    assert result.balanced


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FOLDED])
def test_the_file_alone_says_pytorchs_count(exported: Exports, name: str) -> None:
    files = exported(name).files

    ledger = audit_model(files.model)

    assert ledger.parameters == pytorch_count(exported, name)


@pytest.mark.parametrize("name", ["bert", "resnet", "vit"])
def test_a_fresh_initialisation_reconciles_to_zero(exported: Exports, name: str) -> None:
    files = exported(name, fresh=True).files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path))

    assert result.balanced
    assert elements(result).get(Line.DEDUPLICATED) or name == "resnet"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("bert", Line.SLICED),
        ("gpt2", Line.SLICED),
        ("vit", Line.BROADCAST),
        ("whisper", Line.GATHERED),
    ],
)
def test_a_static_export_reconciles_to_zero(exported: Exports, name: str, line: Line) -> None:
    files = exported(name, static=True).files

    for content in ("full", "none"):
        result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path), content)

        assert result.balanced
        assert content == "none" or elements(result)[line]


@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_a_fresh_initialisation_by_the_legacy_exporter_reconciles_to_zero(
    exported: Exports, name: str
) -> None:
    files = exported(name, via="torchscript", fresh=True).files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path))

    assert result.balanced


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "vit", "resnet", "llama"])
def test_names_and_shapes_balance_where_contents_are_not_compared(exported: Exports, name: str) -> None:
    files = exported(name).files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path), "none")

    assert result.balanced
    assert all(line.max_abs_error is None for line in result.parameters)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_sampled_contents_balance_too(exported: Exports, name: str) -> None:
    files = exported(name).files

    result = reconcile_ledger(audit_model(files.model), load_manifest(files.manifest_path), "sampled")

    assert result.balanced


def test_a_census_of_the_config_balances_without_contents(exported: Exports) -> None:
    from exporter import census_source

    files = exported("bert").files

    original = census_source(str(files.model.parent / "config.json"))
    result = reconcile_ledger(audit_model(files.model), original.manifest, weights=original.weights)

    assert result.balanced
    assert result.content == "none"


def test_another_seed_is_another_model(exported: Exports) -> None:
    from exporter import census_source

    files = exported("bert").files
    other = census_source(str(files.model.parent / "config.json"), random_weights=True, seed=1)

    result = reconcile_ledger(audit_model(files.model), other.manifest, weights=other.weights)

    assert not result.balanced
    assert {line.line for line in result.parameters} == {Line.DIFFERING}


@pytest.mark.parametrize("name", ["bert", "resnet", "vit"])
def test_an_export_reconciles_with_the_checkpoint_that_it_was_made_of(
    exported: Exports, tmp_path: Path, name: str
) -> None:
    from exporter import census_source
    from exporter.quiet import quiet

    made = exported(name)
    with quiet():
        made.resolved.model.save_pretrained(tmp_path)

    original = census_source(str(tmp_path / "model.safetensors"))

    ledger = audit_model(made.files.model)
    assert reconcile_ledger(ledger, original.manifest, "full", weights=original.weights).balanced


def test_a_seed_makes_the_weights_of_the_export_again(exported: Exports) -> None:
    from exporter import census_source

    files = exported("bert").files
    config = str(files.model.parent / "config.json")

    same = census_source(config, random_weights=True, seed=0)

    assert reconcile_ledger(audit_model(files.model), same.manifest, "full", weights=same.weights).balanced


# Tampering: each takes the graph of a copy and returns the PyTorch or file name that must be named.


def change_one_ulp(graph: onnx.GraphProto) -> str:
    weight = next(t for t in graph.initializer if t.name.endswith("query.bias"))
    values = numpy_helper.to_array(weight).copy()
    values[3] = np.nextafter(values[3], np.float32(np.inf))
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    return weight.name


def drop_one(graph: onnx.GraphProto) -> str:
    index = next(i for i, t in enumerate(graph.initializer) if t.name.endswith("key.bias"))
    return graph.initializer.pop(index).name


def add_one(graph: onnx.GraphProto) -> str:
    graph.initializer.append(numpy_helper.from_array(np.ones((3, 4), np.float32), "extra.weight"))
    return "extra.weight"


def zero_a_bias(graph: onnx.GraphProto) -> str:
    bias = next(t for t in graph.initializer if t.name.endswith("value.bias"))
    bias.CopyFrom(numpy_helper.from_array(np.zeros(tuple(bias.dims), np.float32), bias.name))
    return bias.name


def cut_rows(graph: onnx.GraphProto) -> str:
    table = next(t for t in graph.initializer if t.name.endswith("position_embeddings.weight"))
    table.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(table)[:-1].copy(), table.name))
    return table.name


def swap_two(graph: onnx.GraphProto) -> str:
    one, other = [t for t in graph.initializer if t.name.endswith("output.dense.bias")][:2]
    ours, theirs = numpy_helper.to_array(one).copy(), numpy_helper.to_array(other).copy()
    one.CopyFrom(numpy_helper.from_array(theirs, one.name))
    other.CopyFrom(numpy_helper.from_array(ours, other.name))
    return one.name


@pytest.mark.parametrize("tamper", [change_one_ulp, drop_one, add_one, zero_a_bias, cut_rows, swap_two])
def test_tampering_is_found_and_named(
    exported: Exports, tmp_path: Path, tamper: Callable[[onnx.GraphProto], str]
) -> None:
    files = exported("bert").files
    shutil.copytree(files.model.parent, tmp_path / "copy")
    model = onnx.load(tmp_path / "copy" / "model.onnx")
    culprit = tamper(model.graph)
    onnx.save(model, tmp_path / "copy" / "model.onnx")

    result = reconcile_ledger(
        audit_model(tmp_path / "copy" / "model.onnx"), load_manifest(files.manifest_path)
    )

    assert not result.balanced
    assert culprit in {subject for finding in result.findings for subject in finding.subjects}


def test_a_changed_folded_convolution_is_found(exported: Exports, tmp_path: Path) -> None:
    files = exported("resnet").files
    model = onnx.load(files.model)
    weight = next(t for t in model.graph.initializer if len(t.dims) == 4)
    values = numpy_helper.to_array(weight).copy()
    values.flat[5] += 0.05
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    onnx.save(model, tmp_path / "model.onnx")

    result = reconcile_ledger(audit_model(tmp_path / "model.onnx"), load_manifest(files.manifest_path))

    assert weight.name in {subject for finding in result.findings for subject in finding.subjects}
