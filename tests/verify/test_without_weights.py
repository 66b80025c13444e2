"""A SOURCE that is only a config: PyTorch computes with recovered weights, and missing ones must not matter."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest
from commands import run_here
from exports import Exports

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.time, pytest.mark.export, pytest.mark.usefixtures("forked_children")]

DINO = {
    "architectures": ["Dinov2ForImageClassification"],
    "model_type": "dinov2",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
    "mlp_ratio": 2,
}


def verify(model: Path, config: Path) -> Any:
    return run_here("verify", model, "--against", config, "--seed", "0")


def activate(path: Path, folder: Path, kind: str, other: str) -> Path:
    """Save the file with another operator in place of each activation."""
    model = onnx.load(path)
    for node in model.graph.node:
        if node.op_type == kind:
            node.op_type = other
    onnx.save(model, folder / "changed.onnx")
    return folder / "changed.onnx"


def test_a_folded_normalization_is_one_of_those_that_give_what_the_file_has(
    exported: Exports, tmp_path: Path
) -> None:
    made = exported("resnet")
    model, config = made.files.artifact, tmp_path / "config.json"
    shutil.copy(made.folder / "out" / "config.json", config)  # without a manifest beside it
    assert not [node for node in onnx.load(model).graph.node if node.op_type == "BatchNormalization"]

    honest = verify(model, config)
    changed = verify(activate(model, tmp_path, "Relu", "Elu"), config)

    assert honest.returncode == 0, honest.stderr
    assert "computes the same: " in honest.stdout
    assert "the cost of rounded weights: PyTorch computes with the file's" in " ".join(honest.stdout.split())
    assert changed.returncode == 1
    assert "DIFFERS from node_relu on, in resnet.embedder" in changed.stdout


def test_what_the_file_does_not_contain_is_reported_and_must_not_matter(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(DINO))
    done = run_here("export", config, "--random-weights", "-o", tmp_path / "out", "--quiet")
    assert done.returncode == 0, done.stderr
    model = tmp_path / "out" / "model.onnx"

    honest = verify(model, config)
    changed = verify(activate(model, tmp_path, "Add", "Sub"), config)

    assert honest.returncode == 0, honest.stderr
    text = " ".join(honest.stdout.split())
    assert "the values of 1 parameter, such as dinov2.embeddings.mask_token" in text
    assert changed.returncode == 2  # the values or the graph may be changed
    assert "mask_token, cannot be recovered from the file; put its checkpoint beside" in changed.stderr
