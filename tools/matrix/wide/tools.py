"""An exported file -> the same file as deployment tools write it: the tools of the matrix, and others."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tools.matrix.transforms import (
    AS_EXPORTED,
    Transform,
    as_exported,
    dynamic_int8,
    four_bits,
    optimize,
    slim,
    static_int8,
)

_BATCH = 2


def run_tool(tool: str, source: Path, target: Path) -> None:
    """Write `target`, unless the tool fails."""
    from tools.matrix.transforms import write_whole

    write_whole(TRANSFORMS[tool], source, target)


def simplify(source: Path, target: Path) -> None:
    import onnx
    import onnxsim

    simplified, _ = onnxsim.simplify(onnx.load(source))
    onnx.save(simplified, target)


def fuse(source: Path, target: Path) -> None:
    """Apply onnxruntime's transformer fusions, whatever the model is."""
    from onnxruntime import transformers

    sys.path.append(str(Path(transformers.__file__).parent))  # its modules look for each other there
    from onnxruntime.transformers.optimizer import optimize_model

    optimize_model(str(source), model_type="bert", opt_level=0).save_model_to_file(str(target))


def surgeon(source: Path, target: Path) -> None:
    import onnx
    import onnx_graphsurgeon as gs

    graph = gs.import_onnx(onnx.load(source))
    graph.fold_constants().cleanup().toposort()
    onnx.save(gs.export_onnx(graph, do_type_check=False), target)


def half_precision(source: Path, target: Path) -> None:
    import onnx
    from onnxconverter_common.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def merge(source: Path, target: Path) -> None:
    """Append an ArgMax, as a model of its own, behind the first output; every name gets a prefix."""
    import onnx
    from onnx import TensorProto, compose, helper

    model = onnx.load(source)
    first = model.graph.output[0]
    rank = len(first.type.tensor_type.shape.dim)
    choice = helper.make_model(
        helper.make_graph(
            [helper.make_node("ArgMax", ["scores"], ["best"], axis=-1, keepdims=0, name="choose")],
            "choice",
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None] * rank)],
            [helper.make_tensor_value_info("best", TensorProto.INT64, [None] * (rank - 1))],
        ),
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
    )
    merged = compose.merge_models(
        compose.add_prefix(model, "net/"),
        compose.add_prefix(choice, "post/"),
        [(f"net/{first.name}", "post/scores")],
    )
    onnx.save(merged, target)


def _random_reader(path: Path, home: Path) -> Any:
    """Return a reader of random inputs for the file's own signature; integers stay below every vocabulary."""
    import onnxruntime as ort
    from onnxruntime.quantization import CalibrationDataReader

    options = ort.SessionOptions()
    options.log_severity_level = 4
    inputs = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).get_inputs()
    random = np.random.default_rng(0)
    samples = iter([{value.name: _sample(value, random) for value in inputs} for _ in range(2)])

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime ships no types
        def get_next(self) -> dict[str, np.ndarray[Any, Any]] | None:
            return next(samples, None)

    return Reader()


def _sample(value: Any, random: np.random.Generator) -> np.ndarray[Any, Any]:
    sizes = [
        axis if isinstance(axis, int) else (_BATCH if place == 0 else 11)
        for place, axis in enumerate(value.shape)
    ]
    if value.type == "tensor(float)":
        return random.standard_normal(sizes).astype(np.float32)
    if value.type == "tensor(bool)":
        return np.ones(sizes, np.bool_)
    if value.type != "tensor(int64)":
        raise ValueError(f"input {value.name} is a {value.type}")
    if "mask" in value.name:
        return np.ones(sizes, np.int64)
    if "token_type" in value.name:
        return random.integers(0, 2, sizes)
    return np.sort(random.integers(3, 12, sizes), -1)


TRANSFORMS: Mapping[str, Transform] = {
    AS_EXPORTED: as_exported,
    "ort-basic": optimize("BASIC"),
    "ort-extended": optimize("EXTENDED"),
    "ort-all": optimize("ALL"),
    "ort-fusion": fuse,
    "onnxsim": simplify,
    "onnxslim": slim,
    "surgeon": surgeon,
    "int8": dynamic_int8(per_channel=False),
    "qdq": static_int8("QDQ", per_channel=True, calibration=_random_reader),
    "qoperator": static_int8("QOperator", per_channel=False, calibration=_random_reader),
    "nbits": four_bits(symmetric=True),
    "fp16": half_precision,
    "merge": merge,
}

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "onnxsim": ("onnxsim",),
    "onnxslim": ("onnxslim",),
    "surgeon": ("onnx_graphsurgeon",),
    "fp16": ("onnxconverter_common",),
}
"""Packages that a tool needs beyond those of CI."""
