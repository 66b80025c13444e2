"""A recovered state dict loads into the exported class, and PyTorch then computes what onnxruntime computes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from exports import Exports

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
onnxruntime = pytest.importorskip("onnxruntime")
safetensors_torch = pytest.importorskip("safetensors.torch")

pytestmark = [pytest.mark.export, pytest.mark.time]


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_a_recovered_state_dict_loads_and_computes_the_same(
    exported: Exports, tmp_path: Path, name: str
) -> None:
    made = exported(name)
    command = [
        sys.executable,
        "-m",
        "analyzer",
        "recover",
        made.files.model,
        "-o",
        tmp_path / "model.safetensors",
    ]
    done = subprocess.run([*map(str, command), "--lossless"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    model = type(made.resolved.model)(made.resolved.config).eval()
    keys = model.load_state_dict(safetensors_torch.load_file(tmp_path / "model.safetensors"), strict=False)
    model.tie_weights()
    made.resolved.config.save_pretrained(tmp_path)
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)

    manifest = json.loads((made.files.model.parent / "manifest.json").read_text())
    assert set(keys.missing_keys) <= {other for p in manifest["parameters"] for other in p["tied"]}
    assert keys.unexpected_keys == []
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    original = made.resolved.model.state_dict()
    for found in (model.state_dict(), loaded.state_dict()):
        assert all(torch.equal(found[key], value) for key, value in original.items())
    assert difference(model, made.files.model) < 1e-4


def difference(model: torch.nn.Module, path: Path) -> float:
    """Return the difference of logits between PyTorch and onnxruntime, relative to the largest."""
    session = onnxruntime.InferenceSession(str(path))
    generator = torch.Generator().manual_seed(1)
    highest = {"attention_mask": 2, "token_type_ids": 2}
    feed = {
        node.name: torch.randint(highest.get(node.name, 90), (2, 7), generator=generator)
        if "mask" not in node.name
        else torch.ones(2, 7, dtype=torch.int64)
        for node in session.get_inputs()
    }
    with torch.no_grad():
        ours = model(**feed, return_dict=True).logits.numpy()
    (theirs,) = session.run(["logits"], {key: value.numpy() for key, value in feed.items()})
    return float(np.abs(theirs - ours).max() / np.abs(ours).max())
