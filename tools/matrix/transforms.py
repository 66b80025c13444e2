"""An exported model -> the same model as deployment tools write it; each transform reads a path and writes a path."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "AS_EXPORTED",
    "KEEPS_VALUES",
    "TRANSFORMS",
    "Transform",
    "dynamic_int8",
    "four_bits",
    "optimize",
    "slim",
    "static_int8",
    "transform_model",
    "write_whole",
]

Transform = Callable[[Path, Path], None]

AS_EXPORTED = "exported"
KEEPS_VALUES = frozenset({AS_EXPORTED, "ort-basic", "ort-extended", "onnxslim"})
"""Transforms after which the file holds the weights in float32, bit by bit."""

_BATCH, _LENGTH, _SAMPLES = 2, 11, 3
_BLOCK = 32


def transform_model(transform: str, source: Path, target: Path) -> None:
    """Write `target`, unless the transform fails."""
    write_whole(TRANSFORMS[transform], source, target)


def write_whole(transform: Transform, source: Path, target: Path) -> None:
    """Write `target` with any transform, unless it fails."""
    partial = target.with_name(f".{target.name}")
    try:
        transform(source, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def optimize(level: str) -> Transform:
    """Return a transform that saves the graph as an onnxruntime session optimizes it when it loads the file."""

    def run(source: Path, target: Path) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
        options.optimized_model_filepath = str(target)
        ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])

    return run


def dynamic_int8(per_channel: bool) -> Transform:
    def run(source: Path, target: Path) -> None:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        def quantize(path: Path) -> None:
            quantize_dynamic(path, target, per_channel=per_channel, weight_type=QuantType.QInt8)

        _quantize_with_retries(source, target, quantize)

    return run


def static_qdq(source: Path, target: Path) -> None:
    """Insert QuantizeLinear and DequantizeLinear around every operator, calibrated on a few random samples."""
    static_int8("QDQ", per_channel=True, calibration=_calibration)(source, target)


def static_int8(form: str, per_channel: bool, calibration: Callable[[Path, Path], Any]) -> Transform:
    """Return calibrated int8 as `QDQ` or `QOperator`; `calibration` makes a file's reader from the source's folder."""

    def run(source: Path, target: Path) -> None:
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

        def quantize(path: Path) -> None:
            quantize_static(
                path,
                target,
                calibration(path, source.parent),
                quant_format=QuantFormat[form],
                per_channel=per_channel,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )

        _quantize_with_retries(source, target, quantize)

    return run


def half_precision(source: Path, target: Path) -> None:
    """Convert to float16, without shape inference if the file's shapes contradict the inferred ones."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    try:
        converted = convert_float_to_float16(onnx.load(source), keep_io_types=True)
    except onnx.shape_inference.InferenceError:
        converted = convert_float_to_float16(onnx.load(source), keep_io_types=True, disable_shape_infer=True)
    onnx.save(converted, target)


def four_bits(symmetric: bool) -> Transform:
    """Return a transform that stores MatMul weights in blocks of four bits; all else stays unchanged."""

    def run(source: Path, target: Path) -> None:
        import onnx
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantizer = MatMulNBitsQuantizer(
            onnx.load(source),
            bits=4,
            block_size=_BLOCK,
            is_symmetric=symmetric,
            op_types_to_quantize=("MatMul",),
        )
        quantizer.process()
        quantizer.model.save_model_to_file(str(target))

    return run


def slim(source: Path, target: Path) -> None:
    import onnxslim  # type: ignore[import-untyped]

    onnxslim.slim(str(source), str(target))


def as_exported(source: Path, target: Path) -> None:
    """Raise: the first column has no file to write, because `model.onnx` itself is the cell's file."""
    raise AssertionError(f"{source} is not transformed to {target}")


TRANSFORMS: Mapping[str, Transform] = {
    AS_EXPORTED: as_exported,
    "ort-basic": optimize("BASIC"),
    "ort-extended": optimize("EXTENDED"),
    "int8": dynamic_int8(per_channel=False),
    "int8-channel": dynamic_int8(per_channel=True),
    "qdq": static_qdq,
    "fp16": half_precision,
    "nbits": four_bits(symmetric=True),
    "nbits-zero-point": four_bits(symmetric=False),
    "onnxslim": slim,
}


def _quantize_with_retries(source: Path, target: Path, quantize: Callable[[Path], None]) -> None:
    """Quantize the file; if that fails, try again after the quantizer's own preparation, as a user would.

    If that fails too, drop shapes that contradict the inferred ones first.
    """
    try:
        quantize(source)
    except Exception as error:  # noqa: BLE001  the quantizer passes on all errors of its parts
        first = error
    else:
        return
    prepared = target.with_name(f"{target.name}.prepared")
    for prepare in (_prepare, _drop_shapes):
        try:
            prepare(source, prepared)
            quantize(prepared)
        except Exception:  # noqa: BLE001  as above; the first error says more than that of a remedy
            continue
        else:
            return
        finally:
            prepared.unlink(missing_ok=True)
    raise first


def _prepare(source: Path, target: Path) -> None:
    """Infer shapes; optimization is skipped, because it is a column of its own."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(str(source), str(target), skip_optimization=True)


def _drop_shapes(source: Path, target: Path) -> None:
    """Drop the shapes of intermediate values, but keep types: the quantizer cannot infer those past fused operators."""
    import onnx

    model = onnx.load(source)
    for value in model.graph.value_info:
        value.type.tensor_type.ClearField("shape")
    onnx.save(model, target)


def _calibration(path: Path, home: Path) -> Any:
    """Return a reader of random inputs, made from the file's own signature and the vocabulary of its config."""
    import onnxruntime as ort
    from onnxruntime.quantization import CalibrationDataReader

    options = ort.SessionOptions()
    options.log_severity_level = 4
    inputs = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).get_inputs()
    samples = _samples(inputs, json.loads((home / "config.json").read_text(encoding="utf-8")))

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime ships no types
        def get_next(self) -> dict[str, np.ndarray[Any, Any]] | None:
            return next(samples, None)

    return Reader()


def _samples(inputs: Any, config: Mapping[str, Any]) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    random = np.random.default_rng(0)
    for _ in range(_SAMPLES):
        yield {value.name: _sample(value, config, random) for value in inputs}


def _sample(value: Any, config: Mapping[str, Any], random: np.random.Generator) -> np.ndarray[Any, Any]:
    sizes = [
        axis if isinstance(axis, int) else (_BATCH if place == 0 else _LENGTH)
        for place, axis in enumerate(value.shape)
    ]
    if value.type == "tensor(float)":
        return random.standard_normal(sizes, np.float32)
    if value.type == "tensor(bool)":
        return np.ones(sizes, np.bool_)
    if value.type != "tensor(int64)":
        raise ValueError(f"input {value.name} is a {value.type}")
    if "mask" in value.name:
        return np.ones(sizes, np.int64)
    if "position" in value.name:
        return np.broadcast_to(np.arange(sizes[-1]), sizes).astype(np.int64)
    if "token_type" in value.name:
        return random.integers(0, 2, sizes)
    return random.integers(3, config["vocab_size"], sizes)
