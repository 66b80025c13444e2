"""A file -> the outputs that onnxruntime computes from seeded inputs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.suite.bases import Base
from tools.suite.surgery import Seen

__all__ = ["Runner", "distance", "open_base"]

Array = npt.NDArray[Any]
_BATCH, _LENGTH, _IMAGE = 2, 11, 48


class Runner:
    """Runs files with the inputs of the honest file."""

    def __init__(self, model: Any, vocabulary: int, seed: int = 0) -> None:
        self.inputs = self._inputs(model, vocabulary, np.random.default_rng(seed))

    def run(self, model: Any, *, optimize: bool = False) -> list[Array]:
        """Return the outputs of the graph.

        Raises:
            Exception: any error of onnxruntime.
        """
        session = _session(model, optimize)
        input_names = [value.name for value in session.get_inputs()]
        feeds = {name: array for name, array in self.inputs.items() if name in input_names}
        if not feeds and len(input_names) == len(self.inputs):  # all under other names, in the same order
            feeds = dict(zip(input_names, self.inputs.values(), strict=True))
        return [np.asarray(output) for output in session.run(None, feeds)]

    def observe(self, model: Any) -> dict[str, Seen]:
        """Return the type and shape of every value that a node of the main graph computes."""
        import onnx

        watched = onnx.ModelProto.FromString(model.SerializeToString())
        outputs = {value.name for value in watched.graph.output}
        names = [name for node in watched.graph.node for name in node.output if name and name not in outputs]
        watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        session = _session(watched, optimize=False)
        values = session.run(None, self.inputs)
        return {
            place.name: Seen(value.dtype.name, value.shape)
            for place, value in zip(session.get_outputs(), values, strict=True)
            if isinstance(value, np.ndarray)
        }

    def _inputs(self, model: Any, vocabulary: int, random: np.random.Generator) -> dict[str, Array]:
        inputs = _session(model, optimize=False).get_inputs()
        return {value.name: _sample(value, vocabulary, random) for value in inputs}


def _session(model: Any, optimize: bool) -> Any:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    level = "ORT_ENABLE_ALL" if optimize else "ORT_DISABLE_ALL"
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _sample(value: Any, vocabulary: int, random: np.random.Generator) -> Array:
    images = len(value.shape) == 4 and "mask" not in value.name
    sizes = [
        axis if isinstance(axis, int) else (_BATCH if place == 0 else _IMAGE if images else _LENGTH)
        for place, axis in enumerate(value.shape)
    ]
    if value.type == "tensor(float)":
        return random.standard_normal(sizes, np.float32)
    if value.type == "tensor(float16)":
        return random.standard_normal(sizes, np.float32).astype(np.float16)
    if value.type == "tensor(bool)":
        return np.ones(sizes, np.bool_)
    if value.type != "tensor(int64)":
        raise ValueError(f"input {value.name} is a {value.type}")
    if "mask" in value.name:
        mask = np.ones(sizes, np.int64)
        mask[-1, -3:] = 0
        return mask
    if "position" in value.name:
        return np.broadcast_to(np.arange(sizes[-1]), sizes).astype(np.int64)
    if "token_type" in value.name:
        return random.integers(0, 2, sizes)
    return random.integers(3, vocabulary, sizes)


def distance(before: Sequence[Array], after: Sequence[Array]) -> float:
    """Return the largest change of an output, relative to its own scale; infinite if shapes or NaNs differ."""
    worst = 0.0
    if len(before) != len(after):
        return float("inf")
    for old, new in zip(before, after, strict=True):
        if old.shape != new.shape:
            return float("inf")
        if old.dtype.kind != "f":
            continue
        first, second = old.astype(np.float64), new.astype(np.float64)
        if not np.array_equal(np.isfinite(first), np.isfinite(second)):
            return float("inf")
        both = np.isfinite(first) & np.isfinite(second)
        scale = float(np.abs(first[both]).max(initial=0.0)) or 1.0
        worst = max(worst, float(np.abs(first[both] - second[both]).max(initial=0.0)) / scale)
    return worst


def open_base(folder: Path, base: Base) -> tuple[Any, Runner, dict[str, Seen]]:
    """Return the honest model, its runner, and the type and shape of each of its values."""
    import onnx

    model = onnx.load(base.path(folder))
    config = base.checkpoint(folder).with_name("config.json")
    fields = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    runner = Runner(model, fields.get("vocab_size", 10))
    return model, runner, runner.observe(model)
