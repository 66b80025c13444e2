"""Small fleets: models of two layers with their own weights, their copies, casts and edits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from models import save, text_model
from onnx import numpy_helper

from analyzer.fleet.engines import find_engine
from analyzer.fleet.record import Engine, FleetSettings, Survey
from analyzer.fleet.run import survey_fleet

Floats = np.ndarray[Any, np.dtype[np.float32]]
GRAPH = """g (float[N,{a}] x) => (float[N,{c}] y) {{
    h = MatMul(x, "fc.weight")
    s = Add(h, "fc.bias")
    r = Relu(s)
    y = MatMul(r, "out.weight")
}}"""


def weights(seed: int, a: int = 24, b: int = 40, c: int = 16) -> dict[str, Floats]:
    random = np.random.default_rng(seed)
    shapes = {"fc.weight": (a, b), "fc.bias": (b,), "out.weight": (b, c)}
    return {name: random.normal(0, 0.02, shape).astype(np.float32) for name, shape in shapes.items()}


def network(values: Mapping[str, Any]) -> onnx.ModelProto:
    a, _ = values["fc.weight"].shape
    return text_model(GRAPH.format(a=a, c=values["out.weight"].shape[1]), values)


def add(folder: Path, name: str, values: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return save(folder, network(values), name)


def turned(values: Mapping[str, Any]) -> onnx.ModelProto:
    """Return the same weights under other names: one transposed in a Gemm, another in a Constant node."""
    a, c = values["fc.weight"].shape[0], values["out.weight"].shape[1]
    proto = text_model(
        f"""g (float[N,{a}] x) => (float[N,{c}] y) {{
            s = Gemm <transB = 1> (x, "w0", "b0")
            r = Relu(s)
            y = MatMul(r, w1)
        }}""",
        {"w0": np.ascontiguousarray(values["fc.weight"].T), "b0": values["fc.bias"]},
    )
    constant = onnx.helper.make_node(
        "Constant", [], ["w1"], value=numpy_helper.from_array(values["out.weight"], "")
    )
    proto.graph.node.insert(0, constant)
    return proto


def codes(values: Mapping[str, Any]) -> onnx.ModelProto:
    """Return the weights as int8 with a scale for each column, decoded by DequantizeLinear."""
    a, c = values["fc.weight"].shape[0], values["out.weight"].shape[1]
    stored: dict[str, Any] = {"b": values["fc.bias"]}
    for name, key in (("w0", "fc.weight"), ("w1", "out.weight")):
        scale = np.abs(values[key]).max(axis=0) / np.float32(127)
        stored |= {
            f"{name}_scale": scale.astype(np.float32),
            name: np.round(values[key] / scale).astype(np.int8),
        }
    return text_model(
        f"""g (float[N,{a}] x) => (float[N,{c}] y) {{
            f0 = DequantizeLinear <axis = 1> (w0, w0_scale)
            h = MatMul(x, f0)
            s = Add(h, b)
            r = Relu(s)
            f1 = DequantizeLinear <axis = 1> (w1, w1_scale)
            y = MatMul(r, f1)
        }}""",
        stored,
    )


def survey(*sources: Path | str, lake: Path, engine: Engine | None = None, **options: Any) -> Survey:
    """Survey with one process, unless an engine is given."""
    shard = options.pop("shard", 8)
    return survey_fleet(
        [str(source) for source in sources],
        lake,
        engine or find_engine("local", 1, None),
        settings=FleetSettings(**options),
        shard=shard,
    )


def content(lake: Path) -> dict[str, bytes]:
    """Return every file of a lake except locks, byte for byte."""
    return {
        str(path.relative_to(lake)): path.read_bytes()
        for path in sorted(lake.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
