"""Exact counts of five published studies, from full-size exports; docs/study.md walks through one of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import documents
import jsonschema
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from samples import WHOLE

from analyzer.schemas import load_schema

pytestmark = [pytest.mark.export, pytest.mark.slow]

BERT, ALBERT = "build/demo/bert", "build/demo/albert"
STUDY_GROUPS = "--group 'embeddings=^embeddings|embedding_hidden_mapping_in' --group 'encoder=^encoder'"

COUNTS = {
    BERT: 109_482_240,
    ALBERT: 11_683_584,
    "classifier": 109_483_778,
    "gpt2": 124_439_808,
    "mlm": 109_514_298,
    "mlm-legacy": 109_514_298,
    "chinese": 102_290_312,
}


EVERY = {
    "classifier": "bert-base-uncased --class BertForSequenceClassification --random-weights",
    "gpt2": "gpt2 --random-weights",
    "chinese": "bert-base-chinese --random-weights",
    "fresh": "bert-base-uncased --class AutoModel --fresh-init",
}
"""Sources of studies that no document exports; only `make whole` exports them."""

OTHERS = EVERY if WHOLE else {}
COUNTED = [each for each in COUNTS.items() if each[0] in OTHERS or each[0] not in EVERY]


@pytest.fixture(scope="session")
def studied(workplace: Path, printed: dict[Path, list[documents.Step]]) -> Path:
    """Folder where the documents' commands have run, with the other exports and two tampered files."""
    assert printed
    for folder, source in OTHERS.items():
        documents.run(f"onnxledger export {source} -o {folder} --quiet", workplace)
    for folder in ("dropped", "added"):
        shutil.copytree(workplace / ALBERT, workplace / folder)
        path = workplace / folder / "model.onnx"
        model = onnx.load(path, load_external_data=False)
        tensors = model.graph.initializer
        if folder == "dropped":
            del tensors[[tensor.name for tensor in tensors].index("pooler.weight")]
        else:
            tensors.append(numpy_helper.from_array(np.ones((3, 4), "f4"), "extra"))
        onnx.save(model, path)
    return workplace


@pytest.fixture
def run_json(studied: Path):
    """Return a function that runs a command in the folder of the exports, and returns its JSON answer."""

    def answer(command: str) -> dict:
        document = json.loads(documents.run(f"onnxledger {command} --format json", studied))
        jsonschema.validate(document, load_schema(document["command"]))
        return document

    return answer


@pytest.mark.parametrize(("folder", "count"), COUNTED)
def test_the_file_alone_says_the_published_count(
    run_json, workplace: Path, tmp_path: Path, folder: str, count: int
):
    # Only the model's own files are linked, so that no other file can be read.
    for file in (workplace / folder).glob("model.onnx*"):
        (tmp_path / file.name).hardlink_to(file)

    document = run_json(f"inspect {tmp_path / 'model.onnx'}")

    assert document["totals"]["parameters"] == count
    assert sum(group["parameters"] for group in document["groups"]) == count
    assert sum(tensor["parameters"] for tensor in document["tensors"]) == count
    assert document["roles"]["unattributed"]["tensors"] == 0
    assert sum(account["bytes"] for account in document["accounts"]) == document["totals"]["file_bytes"]


@pytest.mark.parametrize(("folder", "count"), COUNTED)
def test_it_reconciles_to_zero(run_json, folder: str, count: int):
    document = run_json(f"reconcile {folder}/model.onnx")

    rows = {row["line"]: row for row in document["bridge"]}
    assert document["balanced"] is True
    assert rows["unexplained"]["elements"] == 0
    assert document["pytorch"]["parameters"] == document["onnx"]["parameters"] == count
    assert count + sum(row["parameter_delta"] for row in rows.values()) == document["onnx"]["parameters"]
    assert count + sum(row["stored_delta"] for row in rows.values()) == document["onnx"]["stored_elements"]
    assert sum(group["trainable"] for group in document["groups"]) == count
    assert sum(parameter["elements"] for parameter in document["parameters"]) == count


def test_bert_is_the_sum_of_its_three_parts(run_json):
    document = run_json(f"inspect {BERT}/model.onnx --by scope --depth 1")

    parts = {group["group"]: group for group in document["groups"] if group["parameters"]}
    assert {name: group["parameters"] for name, group in parts.items()} == {
        "embeddings": 23_837_184,
        "encoder": 85_054_464,
        "pooler": 590_592,
    }
    assert [round(100 * parts[name]["share"], 4) for name in sorted(parts)] == [21.7726, 77.6879, 0.5394]


def test_albert_against_bert_with_the_overlap_of_its_groups(run_json):
    albert = run_json(f"inspect {ALBERT}/model.onnx {STUDY_GROUPS}")
    comparison = run_json(f"compare {ALBERT}/model.onnx {BERT}/model.onnx {STUDY_GROUPS}")

    ratios = {group["group"]: 100 * group["parameters"]["ratio"] for group in comparison["groups"]}
    counts = {group["group"]: group["parameters"] for group in albert["groups"]}
    assert counts == {"embeddings": 4_005_120, "encoder": 7_186_944}
    assert albert["overlap"] == albert["group_balance"]["overlap"]["parameters"] == 99_072 == 128 * 768 + 768
    assert ratios == {"embeddings": 16.801984663960308, "encoder": 8.44981399212627}
    stored = sum(group["stored_elements"] for group in albert["groups"])
    assert stored - albert["overlap"] + albert["ungrouped"] == albert["totals"]["stored_elements"]


def test_the_199_parameters_have_their_pytorch_names(run_json, workplace: Path):
    document = run_json(f"inspect {BERT}/model.onnx")
    manifest = json.loads((workplace / BERT / "manifest.json").read_text())

    listed = {
        tuple(tensor["sources"]): tensor["parameters"]
        for tensor in document["tensors"]
        if tensor["role"] == "parameter"
    }
    expected = {(item["name"],): int(np.prod(item["shape"])) for item in manifest["parameters"]}
    assert len(expected) == 199
    assert listed == expected


def test_the_legacy_file_stores_132_955_194_and_names_the_copied_matrix(run_json):
    document = run_json("inspect mlm-legacy/model.onnx")
    bridge = {row["line"]: row for row in run_json("reconcile mlm-legacy/model.onnx")["bridge"]}

    copies = [tensor for tensor in document["tensors"] if tensor["copy_of"]]
    assert document["roles"]["parameter"]["stored_elements"] == 132_955_194
    assert [(copy["copy_of"], copy["stored_elements"]) for copy in copies] == [
        ("bert.embeddings.word_embeddings.weight", 23_440_896)
    ]
    assert bridge["copied"]["stored_delta"] == 23_440_896 == 30_522 * 768
    assert [finding["id"] for finding in document["findings"]] == ["transposed-copy"]


if "fresh" in OTHERS:

    def test_merged_equal_vectors_are_85_of_zeros_and_24_of_ones(run_json, workplace: Path):
        document = run_json("reconcile fresh/model.onnx")

        (row,) = [row for row in document["bridge"] if row["line"] == "deduplicated"]
        model = onnx.load(workplace / "fresh" / "model.onnx")
        values = {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in model.graph.initializer
            if len(tensor.dims) == 1
        }
        merged = [values[p["entries"][0]] for p in document["parameters"] if p["line"] == "deduplicated"]
        assert document["balanced"] is True
        assert (row["tensors"], row["elements"], row["parameter_delta"], row["stored_delta"]) == (
            109,
            83_712,
            -83_712,
            -83_712,
        )
        assert all(vector.shape == (768,) for vector in merged)
        assert (
            sum(not vector.any() for vector in merged),
            sum((vector == 1).all() for vector in merged),
        ) == (
            85,
            24,
        )


@pytest.mark.parametrize(
    ("folder", "line", "culprit"),
    [("dropped", "missing", "pooler.weight"), ("added", "unexplained", "extra")],
)
def test_tampering_is_named(run_json, folder: str, line: str, culprit: str):
    document = run_json(f"reconcile {folder}/model.onnx")

    assert document["balanced"] is False
    assert [finding["subjects"] for finding in document["findings"] if finding["id"] == line] == [[culprit]]
