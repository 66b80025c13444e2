"""manifest.json: saved manifests are read back unchanged, and invalid ones are refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import buffer, convolution, manifest_of, parameter, ramp

from analyzer.errors import ManifestError
from analyzer.manifest import BatchNorm, Manifest, is_manifest, load_manifest, save_manifest, split_name

Document = dict[str, Any]


def example() -> Manifest:
    return manifest_of(
        parameter("wte.weight", ramp(2, 3), tied=("head.weight",), read=True),
        parameter("frozen.bias", ramp(4), trainable=False),
        parameter("meta.weight", ramp(5, 5), weightless=True),
        convolution("conv.weight", ramp(2, 1, 3, 3)),
        buffer("bn.running_mean", ramp(3), read=False),
        batch_norms=(BatchNorm("bn", 1e-5, None, None, "bn.running_mean", None),),
        values={"bn.running_mean": ramp(3)},
        trace="exported-program",
        modules={"wte": "Embedding", "head": "Linear", "bn": "BatchNorm2d"},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_manifest(example(), tmp_path / "manifest.json")
    return tmp_path / "manifest.json"


def rewrite(path: Path, change: Callable[[Document], object]) -> Path:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


def test_manifest_comes_back_as_it_was(path):
    assert load_manifest(path) == example()


def test_second_save_is_the_same_bytes_and_leaves_nothing_beside(path):
    before = path.read_bytes()

    save_manifest(load_manifest(path), path)

    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_counts_are_of_unique_tensors():
    manifest = example()

    assert (manifest.numel, manifest.trainable, manifest.buffer_numel) == (6 + 4 + 25 + 18, 6 + 25 + 18, 3)


def test_names_with_other_letters_come_back(tmp_path):
    manifest = manifest_of(parameter("größe.重み\x1b", ramp(2)))
    save_manifest(manifest, tmp_path / "m.json")

    assert load_manifest(tmp_path / "m.json") == manifest
    assert "\x1b" not in (tmp_path / "m.json").read_text()


@pytest.mark.parametrize("weightless", [True, False])
def test_a_tensor_without_content_leaves_the_others_comparable(weightless):
    manifest = manifest_of(
        parameter("a.weight", ramp(2)), parameter("b.weight", ramp(2), weightless=weightless)
    )

    assert manifest.has_content
    assert [tensor.content is None for tensor in manifest.tensors] == [False, weightless]


def test_whole_values_are_numpys():
    value = example().value("bn.running_mean")

    np.testing.assert_array_equal(value, ramp(3), strict=True)
    assert example().value("wte.weight") is None


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_tensors_come_back(tmp_path, shape):
    manifest = manifest_of(parameter("w", ramp(*shape)))
    save_manifest(manifest, tmp_path / "m.json")

    assert load_manifest(tmp_path / "m.json") == manifest


def test_manifest_of_before_modules_is_read(path):
    rewrite(path, lambda document: document.pop("modules"))

    assert load_manifest(path) == replace(example(), modules={})


@pytest.mark.parametrize(
    ("name", "owner", "leaf"),
    [
        ("conv.parametrizations.weight.0._u", "conv", "parametrizations.weight.0._u"),
        ("parametrizations.weight.original0", "", "parametrizations.weight.original0"),
        ("head.parametrizations", "head", "parametrizations"),
        ("", "", ""),
    ],
)
def test_what_a_parametrization_contains_belongs_to_its_module(name, owner, leaf):
    assert split_name(name) == (owner, leaf)


# invalid manifests


def test_an_absent_manifest_is_reported(tmp_path):
    with pytest.raises(ManifestError, match=r"absent\.json: cannot be read: No such file"):
        load_manifest(tmp_path / "absent.json")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe{", b"text"])
def test_file_that_is_no_json_is_reported(path, content):
    path.write_bytes(content)

    with pytest.raises(ManifestError, match=r"manifest\.json: not JSON \(.*\); export the model again"):
        load_manifest(path)


def test_json_nested_without_end_is_reported(path):
    path.write_text("[" * 100_000)

    with pytest.raises(ManifestError, match=r"manifest\.json: not"):
        load_manifest(path)


@pytest.mark.parametrize("document", [[], {}, "text", 3, None, {"model_type": "bert"}, {"kind": "other"}])
def test_json_that_is_no_manifest_is_reported(path, document):
    path.write_text(json.dumps(document))

    with pytest.raises(ManifestError, match='not a manifest: it lacks "kind": "onnxledger-manifest"'):
        load_manifest(path)


@pytest.mark.parametrize("version", [0, 1, "2", None])
def test_manifest_of_another_schema_is_reported(path, version):
    rewrite(path, lambda document: document.update(schema_version=version))

    with pytest.raises(
        ManifestError, match=rf"schema_version {version!r}, this version reads 2: export the model"
    ):
        load_manifest(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("parameters"),
        lambda d: d.update(parameters=3),
        lambda d: d.update(parameters={"a": 1}),
        lambda d: d.update(values=[]),
        lambda d: d.update(source=None),
        lambda d: d["parameters"][0].pop("shape"),
        lambda d: d["parameters"][0].update(shape=[-1, 2]),
        lambda d: d["parameters"][0].update(shape=[1.5]),
        lambda d: d["parameters"][0].update(shape=[True]),
        lambda d: d["parameters"][0].update(shape="23"),
        lambda d: d["parameters"][0].update(shape=None),
        lambda d: d["parameters"][0].update(dtype="FLOAT7"),
        lambda d: d["parameters"][0].update(name=3),
        lambda d: d["parameters"][0].update(tied=[3]),
        lambda d: d["parameters"][0].update(colour="red"),
        lambda d: d["parameters"][0].update(content={"digest": "sha256:"}),
        lambda d: d["parameters"][1].update(name="wte.weight"),
        lambda d: d["parameters"][1].update(name="head.weight"),
        lambda d: d["buffers"][0].update(name="wte.weight"),
        lambda d: d["batch_norms"][0].pop("eps"),
        lambda d: d["values"].update({"bn.running_mean": "AAAA"}),
        lambda d: d["values"].update({"bn.running_mean": "not base64!"}),
        lambda d: d.update(modules=[]),
        lambda d: d["modules"].update(wte=3),
        lambda d: d["modules"].update(wte=""),
    ],
    ids=[
        "no-parameters",
        "parameters-number",
        "parameters-object",
        "values-list",
        "source-null",
        "no-shape",
        "negative",
        "fractional",
        "boolean",
        "shape-text",
        "shape-null",
        "dtype",
        "name-number",
        "tie-number",
        "unknown-key",
        "content-parts",
        "name-twice",
        "tie-twice",
        "name-of-buffer",
        "norm-without-eps",
        "short-value",
        "value-no-base64",
        "modules-list",
        "class-number",
        "class-empty",
    ],
)
def test_incomplete_manifest_is_reported(path, change):
    rewrite(path, change)

    with pytest.raises(
        ManifestError, match=r"manifest\.json: not a whole manifest \(.*\); export the model again"
    ):
        load_manifest(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["values"].update({"nobody.bias": "AACAPw=="}),
        lambda d: d["parameters"][0].update(trainable="yes"),
        lambda d: d["parameters"][0]["content"].update(samples="not base64!"),
        lambda d: d["parameters"][0]["content"].update(samples="AACAPw=="),
        lambda d: d["parameters"][3].update(channel_projections="not base64!"),
        lambda d: d["parameters"][3].update(channel_norms="AACAPw=="),
        lambda d: d["batch_norms"][0].update(eps="small"),
        lambda d: d["batch_norms"][0].update(running_mean="nobody.running_mean"),
        lambda d: d["modules"].update(nobody="Linear"),
    ],
    ids=[
        "value of nobody",
        "trainable",
        "samples",
        "too few samples",
        "sums",
        "norms",
        "eps",
        "mean of nobody",
        "module of nobody",
    ],
)
def test_manifest_that_no_census_writes_is_reported(path, change):
    rewrite(path, change)

    with pytest.raises(ManifestError, match=r"manifest\.json: not a whole manifest"):
        load_manifest(path)


def test_folder_is_no_manifest(tmp_path):
    with pytest.raises(ManifestError, match="cannot be read"):
        load_manifest(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "answer"),
    [
        ("m.json", '{"kind": "onnxledger-manifest"}', True),
        ("config.json", '{"model_type": "bert"}', False),
        ("manifest.json", "{", True),
        ("other.json", "{", False),
        ("m.json", "[]", False),
    ],
)
def test_manifests_are_distinguished_from_configs(tmp_path, name, content, answer):
    (tmp_path / name).write_text(content)

    assert is_manifest(tmp_path / name) is answer
