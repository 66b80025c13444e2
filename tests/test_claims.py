"""A file may claim tensors of any size: every command answers, or reports the error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import run_here
from models import noise, save, text_model
from safetensors.numpy import save_file

MODEL = """
g (float[4, 8] x, float[2] s, float[3, 2] q) => (float[4, 8] y, float[2] z) {
    h = MatMul(x, "layer.weight")
    b = Add(h, "layer.bias")
    m = Add(b, mask)
    y = Relu(m)
    z, r = Scan <
        num_scan_inputs = 1,
        scan_input_axes = [0, 0],
        body = inner (float[2] a, float[2] v) => (float[2] c, float[2] d) { c = Add(a, v) d = Mul(c, v) }
    > (s, q)
}
"""
SIZES = (0, -1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
COMMANDS = (
    ("inspect", "claims.onnx", "--format", "json"),
    ("inspect", "claims.onnx", "--content", "full", "--by", "stage,op", "-v"),
    ("reconcile", "claims.onnx", "--against", "weights.safetensors"),
    ("compare", "claims.onnx", "model.onnx"),
    ("cost", "claims.onnx"),
    ("cost", "claims.onnx", "--shape", "batch=2"),
    ("check", "claims.onnx", "--max-parameters", "1M", "--max-macs", "1G", "--no-duplicates", "--strict"),
    ("graph", "claims.onnx", "--format", "json"),
    ("recover", "claims.onnx", "-o", "state.safetensors"),
    ("verify", "claims.onnx", "--against", "model.onnx", "--static"),
    ("formula", "bert-base-uncased", "--against", "claims.onnx"),
)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_command_answers_to_a_claim_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, rank: int
) -> None:
    monkeypatch.chdir(tmp_path)
    weights = {"layer.weight": noise(8, 8), "layer.bias": noise(8, seed=1)}
    mask = np.triu(np.full((8, 8), -1e9, np.float32), 1)
    save_file(weights, "weights.safetensors")
    proto = text_model(MODEL, {**weights, "mask": mask[:4]})
    save(tmp_path, proto)
    for at, tensor in enumerate(proto.graph.initializer):
        kept = list(tensor.dims)
        tensor.dims[:] = [size] * rank
        save(tmp_path, proto, "claims.onnx")
        for command in COMMANDS[at % 2 :: 2] if rank == 3 else COMMANDS:
            done = run_here(*command)
            assert done.returncode in (0, 1, 2), (command, done.stderr)
            assert "internal error" not in done.stderr, (command, tensor.name, done.stderr)
        tensor.dims[:] = kept
