"""Small, readable models: ONNX text, plus parts that the text form does not support."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, numpy_helper

from analyzer.account.audit import audit_model
from analyzer.account.ledger import Entry, Ledger
from analyzer.manifest import BatchNorm, Buffer, Content, Manifest, Parameter, Traced, WeightNorm
from analyzer.model.content import (
    Array,
    cast_digest,
    channel_statistics,
    digest,
    digest_transposed,
    encode_values,
    is_constant_filled,
    row_digests,
    run_sums,
    sample,
)
from analyzer.model.dtypes import DType
from analyzer.reconciliation import ContentMode, Reconciliation, reconcile_ledger

HEADER = '<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1, "ai.onnx.ml" : 3]>\n'
NAME_SCOPES = "pkg.torch.onnx.name_scopes"
FX_NODE = "pkg.torch.onnx.fx_node"
INPUT_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
FOLDED_FROM = "pkg.onnxscript.optimizer.folded_from"

Floats = np.ndarray[Any, np.dtype[np.float32]]


# the file's side


def text_model(text: str, weights: Mapping[str, Array] | None = None) -> onnx.ModelProto:
    """Parse ONNX text, with a default header, and add initializers (as `raw_data`) from numpy arrays."""
    text = text.strip()
    proto = onnx.parser.parse_model(text if text.startswith("<") else HEADER + text)
    for name, array in (weights or {}).items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def outs(count: int, names: str = "y") -> str:
    """Return the outputs y0, y1, ... of a main graph, so that their computations are needed."""
    return ", ".join(f"float[1] {name}{index}" for index in range(count) for name in names)


def save(folder: Path, proto: onnx.ModelProto | bytes, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
    return path


def audit(folder: Path, proto: onnx.ModelProto | bytes) -> Ledger:
    return audit_model(save(folder, proto))


def entry(ledger: Ledger, name: str, *graph_path: str) -> Entry:
    """Return the one entry of this name, in the main graph unless a path is given."""
    (found,) = [e for e in ledger.entries if e.tensor.key == (graph_path, name)]
    return found


def finding_ids(ledger: Ledger) -> list[str]:
    return [finding.id for finding in ledger.findings]


def set_metadata(proto: Any, props: Mapping[str, str]) -> None:
    for key, value in props.items():
        proto.metadata_props.add(key=key, value=value)


def with_scopes(proto: onnx.ModelProto, scopes: Mapping[str, str]) -> onnx.ModelProto:
    """Add the module paths that torch.onnx.export(dynamo=True) writes on nodes, by the name of the node."""
    for node in proto.graph.node:
        if node.name in scopes:
            set_metadata(node, {NAME_SCOPES: repr(["", scopes[node.name], node.name])})
    return proto


def with_origins(proto: onnx.ModelProto, origins: Mapping[str, Mapping[str, str]]) -> onnx.ModelProto:
    """Add the notes that the exporter and its optimizer write on `value_info`, by the name of the value."""
    for name, props in origins.items():
        set_metadata(proto.graph.value_info.add(name=name), props)
    return proto


def dynamo_like(
    proto: onnx.ModelProto,
    *,
    scopes: Mapping[str, str] | None = None,
    parameters: tuple[str, ...] = (),
    buffers: tuple[str, ...] = (),
    folded: Mapping[str, list[str]] | None = None,
) -> onnx.ModelProto:
    """Add the notes of a traced export to a model."""
    proto.producer_name = "pytorch"
    origins: dict[str, dict[str, str]] = {name: {INPUT_KIND: "PARAMETER"} for name in parameters}
    origins |= {name: {INPUT_KIND: "BUFFER"} for name in buffers}
    origins |= {name: {FOLDED_FROM: repr(sources)} for name, sources in (folded or {}).items()}
    return with_scopes(with_origins(proto, origins), scopes or {})


def external(
    name: str, dims: list[int], data_type: int = TensorProto.FLOAT, **fields: object
) -> onnx.TensorProto:
    """Return a tensor whose payload is in another file; `fields` are location, offset, length."""
    proto = TensorProto(name=name, dims=dims, data_type=data_type, data_location=TensorProto.EXTERNAL)
    for key, value in fields.items():
        proto.external_data.add(key=key, value=str(value))
    return proto


def raw(name: str, dims: list[int], data_type: int, raw_data: bytes) -> onnx.TensorProto:
    """Return a tensor whose payload need not agree with its dims."""
    return TensorProto(name=name, dims=dims, data_type=data_type, raw_data=raw_data)


def ramp(*shape: int, start: float = 1.0) -> Floats:
    """Return floats that all differ."""
    return (np.arange(np.prod(shape), dtype=np.float32) + np.float32(start)).reshape(shape)


def noise(*shape: int, seed: int = 0) -> Floats:
    """Return floats as in a trained layer: of either sign, around zero."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def quantized(
    name: str, array: Array, *, dtype: str = "i1", axis: int | None = None, zero: bool = False
) -> dict[str, Array]:
    """Return codes, scale and zero point of an array, with the names of onnxruntime's quantizer.

    There is one scale for all, or one for each channel along `axis`; the zero point is 0, unless `zero`.
    """
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    others = None if axis is None else tuple(number for number in range(array.ndim) if number != axis)
    reals = array.astype(np.float64)
    low, high = reals.min(axis=others, keepdims=True), reals.max(axis=others, keepdims=True)
    if not zero and least < 0:
        high = np.maximum(np.abs(low), np.abs(high))
        low = -high
    scale = (high - low) / (most - least)
    scale = np.where(scale == 0, 1.0, scale)
    point = np.round(least - low / scale) if zero or least == 0 else np.zeros_like(low)
    codes = np.clip(np.round(reals / scale + point), least, most).astype(dtype)
    flat = () if axis is None else (-1,)
    return {
        f"{name}_quantized": codes,
        f"{name}_scale": scale.reshape(flat).astype(np.float32),
        f"{name}_zero_point": point.reshape(flat).astype(dtype),
    }


def packed(name: str, matrix: Array, *, block: int = 16, zero: bool = False) -> dict[str, Array]:
    """Return codes, scales and zero points of a (N, K) matrix, as 4-bit MatMulNBits stores them; K in whole blocks."""
    rows, width = matrix.shape
    blocks = matrix.astype(np.float64).reshape(rows, -1, block)  # (N, blocks, block)
    low, high = blocks.min(axis=-1), blocks.max(axis=-1)
    scale = (high - low) / 15 if zero else np.maximum(np.abs(low), np.abs(high)) / 7
    scale = np.where(scale == 0, 1.0, scale)
    point = np.clip(np.round(-low / scale), 0, 15) if zero else np.full_like(scale, 8)
    codes = np.clip(np.round(blocks / scale[..., None] + point[..., None]), 0, 15).astype(np.uint8)
    made: dict[str, Array] = {
        f"{name}_Q4": codes[..., 0::2] | (codes[..., 1::2] << 4),
        f"{name}_scales": scale.reshape(-1).astype(np.float32),
    }
    if zero:
        halves = np.zeros((rows, -(-width // block // 2) * 2), np.uint8)
        halves[:, : scale.shape[1]] = point.astype(np.uint8)
        made[f"{name}_zero_points"] = (halves[:, 0::2] | (halves[:, 1::2] << 4)).reshape(-1)
    return made


# PyTorch's side


class Values(dict[str, Array]):
    """PyTorch's values in memory, with the interface of a checkpoint."""

    def array(self, name: str) -> Array | None:
        return self.get(name)


def content_of(array: Array) -> Content:
    casts = {}
    if array.dtype == np.float32:
        casts = {dtype.name: cast_digest(array, dtype) for dtype in (DType.FLOAT16, DType.BFLOAT16)}
    return Content(
        digest=digest(array),
        digest_transposed=digest_transposed(array) if array.ndim == 2 else None,
        constant_filled=is_constant_filled(array),
        samples=encode_values(sample(array)),
        casts=casts,
    )


def dtype_of(array: Array) -> DType:
    return DType.from_onnx(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))


def parameter(name: str, array: Array, *, weightless: bool = False, **fields: Any) -> Parameter:
    """Return a parameter as a census describes it; `weightless` as on the meta device."""
    known = {
        "shape": array.shape,
        "dtype": dtype_of(array),
        "trainable": True,
        "content": None if weightless else content_of(array),
    }
    if array.ndim == 2 and array.size and array.dtype == np.float32 and not weightless:
        sums = (encode_values(found) for found in channel_statistics(array))
        known |= dict(zip(("channel_projections", "channel_norms"), sums, strict=True))
    return Parameter(name=name, **{**known, **fields})


def convolution(name: str, array: Array, **fields: Any) -> Parameter:
    """Return a convolution's weight, in a model that has a BatchNorm."""
    sums, norms = channel_statistics(array)
    return parameter(
        name, array, channel_projections=encode_values(sums), channel_norms=encode_values(norms), **fields
    )


def table(name: str, array: Array, **fields: Any) -> Parameter:
    """Return an embedding's weight, of which an export may select rows."""
    return parameter(name, array, row_digests=encode_values(row_digests(array)), **fields)


def buffer(name: str, array: Array, **fields: Any) -> Buffer:
    known = {
        "shape": array.shape,
        "dtype": dtype_of(array),
        "persistent": True,
        "content": content_of(array),
    }
    return Buffer(name=name, **{**known, **fields})


def traced(name: str, array: Array, expression: str, **fields: Any) -> Traced:
    """Return a value of PyTorch's program that depends on no input, as the exporter describes it."""
    known: dict[str, Any] = {"shape": array.shape, "dtype": dtype_of(array), "content": content_of(array)}
    is_small = array.size <= 4096
    known |= {"whole": encode_values(array)} if is_small else {"sums": encode_values(run_sums(array))}
    return Traced(name, expression, **{**known, "is_read": True, **fields})


def manifest_of(
    *tensors: Parameter | Buffer,
    batch_norms: tuple[BatchNorm, ...] = (),
    weight_norms: tuple[WeightNorm, ...] = (),
    values: Mapping[str, Array] | None = None,
    trace: str | None = None,
    modules: Mapping[str, str] | None = None,
) -> Manifest:
    return Manifest(
        parameters=tuple(t for t in tensors if isinstance(t, Parameter)),
        buffers=tuple(t for t in tensors if isinstance(t, Buffer)),
        batch_norms=batch_norms,
        weight_norms=weight_norms,
        values={name: encode_values(array) for name, array in (values or {}).items()},
        source={"source": "tests"},
        trace=trace,
        modules=modules or {},
    )


def parameters_of(weights: Mapping[str, Array]) -> list[Parameter]:
    return [parameter(name, array) for name, array in weights.items()]


def without_values(manifest: Manifest) -> Manifest:
    """Return the same model as its class alone describes it, when the values are in a checkpoint."""
    bare = {"content": None}
    evidence = {"row_digests": None, "channel_projections": None, "channel_norms": None}
    return replace(
        manifest,
        parameters=tuple(replace(p, **bare, **evidence) for p in manifest.parameters),
        buffers=tuple(replace(b, **bare) for b in manifest.buffers),
        weight_norms=tuple(replace(norm, scale=None) for norm in manifest.weight_norms),
        values={},
    )


# the two together


def reconcile(
    folder: Path,
    proto: onnx.ModelProto,
    manifest: Manifest,
    content: ContentMode | None = None,
    weights: Mapping[str, Array] | None = None,
) -> Reconciliation:
    """Reconcile a file with a manifest; with `weights`, with a manifest without values and a checkpoint of them."""
    if weights is None:
        return reconcile_ledger(audit(folder, proto), manifest, content)
    at_hand = Values(weights)
    return reconcile_ledger(audit(folder, proto), without_values(manifest), content, weights=at_hand)


def bridge_of(result: Reconciliation) -> dict[str, tuple[int, int, int, int]]:
    """Return (tensors, elements, parameter_delta, stored_delta) of each line that is not empty."""
    return {
        row.line.value: (row.tensors, row.elements, row.parameter_delta, row.stored_delta)
        for row in result.bridge
        if row.tensors
    }


def as_it_stands(content: str) -> str:
    """Return the line of a tensor with PyTorch's name and shape, for a content mode."""
    return "named" if content == "none" else "identical"


def lines_of(result: Reconciliation) -> dict[str, str]:
    """Return each PyTorch parameter's line."""
    return {settled.name: settled.line.value for settled in result.parameters}
