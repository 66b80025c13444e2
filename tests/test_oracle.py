"""An independent oracle: counts and contents from raw safetensors and numpy, without the project's code."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import onnx
import pytest
from exports import Exports
from onnx import numpy_helper
from samples import sampled

from analyzer import audit_model, group_by, load_manifest, reconcile_ledger

pytest.importorskip("torch")
pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")

pytestmark = pytest.mark.export


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The format is an 8-byte length, a JSON header and the data: https://github.com/huggingface/safetensors."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    data = memoryview(raw)[8 + length :]
    kinds = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}
    return {
        name: np.frombuffer(data[slice(*item["data_offsets"])], kinds[item["dtype"]]).reshape(item["shape"])
        for name, item in header.items()
        if name != "__metadata__"
    }


def holders(weights: dict[str, np.ndarray], model: Path) -> dict[str, set[str]]:
    """Return the initializers whose bytes equal each weight's, as stored or transposed."""
    by_bytes: dict[bytes, set[str]] = {}
    for tensor in onnx.load(model).graph.initializer:
        by_bytes.setdefault(numpy_helper.to_array(tensor).tobytes(), set()).add(tensor.name)
    return {
        name: by_bytes.get(array.tobytes(), set())
        | by_bytes.get(np.ascontiguousarray(array.T).tobytes(), set())
        for name, array in weights.items()
    }


@pytest.mark.parametrize(
    ("name", "dtype"),
    sampled(
        [(name, dtype) for name in ("bert", "gpt2", "llama", "vit") for dtype in ("fp32", "fp16")],
        [*((name, "fp32") for name in ("bert", "gpt2", "llama", "vit")), ("vit", "fp16")],
    ),
)
def test_the_report_says_what_safetensors_and_numpy_say(
    exported: Exports, tmp_path: Path, name: str, dtype: str
) -> None:
    made = exported(name, dtype)
    # Not save_pretrained, which writes some architectures under older names than named_parameters() has.
    safetensors_torch.save_model(made.resolved.model, str(tmp_path / "model.safetensors"))
    weights = read_safetensors(tmp_path / "model.safetensors")
    expected = holders(weights, made.files.model)

    ledger = audit_model(made.files.model)
    result = reconcile_ledger(ledger, load_manifest(made.files.manifest_path))

    # safetensors stores a tied tensor once, so its numels sum to the count of unique parameters.
    assert ledger.parameters == result.manifest.numel == sum(array.size for array in weights.values())
    line_of = {alias: line for line in result.parameters for alias in (line.name, *tied(result, line.name))}
    for weight, names in expected.items():
        assert {key[1] for key in line_of[weight].entries} == names, weight
    assert sum(group.stored_elements for group in group_by(ledger).groups) == sum(
        int(np.prod(tensor.dims)) for tensor in onnx.load(made.files.model).graph.initializer
    )


def tied(result, name):
    return next(parameter.tied for parameter in result.manifest.parameters if parameter.name == name)
