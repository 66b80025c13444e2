"""nn.Module -> Manifest: every parameter and buffer once, with its ties and evidence of its content."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from analyzer.content import (
    Array,
    channel_statistics,
    digest,
    digest_transposed,
    encode_values,
    is_constant_filled,
    row_digests,
    sample,
)
from analyzer.dtypes import DType
from analyzer.manifest import BatchNorm, Buffer, Content, Manifest, Parameter
from exporter.reads import Reads
from exporter.weights import is_batch_norm

__all__ = ["take_census", "with_reads"]

_T = TypeVar("_T")

Progress = Callable[[int, int], None]
"""Called with the tensors described so far and their number."""

_DTYPES = {
    torch.float32: DType.FLOAT,
    torch.float16: DType.FLOAT16,
    torch.bfloat16: DType.BFLOAT16,
    torch.float64: DType.DOUBLE,
    torch.uint8: DType.UINT8,
    torch.int8: DType.INT8,
    torch.int16: DType.INT16,
    torch.int32: DType.INT32,
    torch.int64: DType.INT64,
    torch.uint16: DType.UINT16,
    torch.uint32: DType.UINT32,
    torch.uint64: DType.UINT64,
    torch.bool: DType.BOOL,
    torch.complex64: DType.COMPLEX64,
    torch.complex128: DType.COMPLEX128,
    torch.float8_e4m3fn: DType.FLOAT8E4M3FN,
    torch.float8_e4m3fnuz: DType.FLOAT8E4M3FNUZ,
    torch.float8_e5m2: DType.FLOAT8E5M2,
    torch.float8_e5m2fnuz: DType.FLOAT8E5M2FNUZ,
}

# numpy has no type for these: the census only needs their bytes.
_AS_INTEGERS = {
    torch.bfloat16: torch.int16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
}


@dataclass(frozen=True, slots=True)
class _Tied:
    """One tensor and all the names it goes by."""

    names: tuple[str, ...]
    tensor: torch.Tensor


def take_census(
    model: nn.Module, source: Mapping[str, str] | None = None, progress: Progress | None = None
) -> Manifest:
    """Describe `model` as PyTorch sees it now; `read` flags come later, from `with_reads`.

    Content is described one tensor at a time, so memory does not grow with the model. Tensors on the meta device
    have none.
    """
    parameters = _group_ties(model.named_parameters(remove_duplicate=False))
    buffers = _group_ties(model.named_buffers(remove_duplicate=False))
    step = _counter(progress, len(parameters) + len(buffers))
    has_batch_norm = any(is_batch_norm(module) for module in model.modules())
    tables = _tables(model)
    return Manifest(
        parameters=tuple(step(_parameter(t, has_batch_norm, id(t.tensor) in tables)) for t in parameters),
        buffers=tuple(step(_buffer(tied, model)) for tied in buffers),
        batch_norms=tuple(_batch_norms(model)),
        values=_whole_values(model) if has_batch_norm else {},
        source=dict(source or {}),
    )


def with_reads(manifest: Manifest, reads: Reads) -> Manifest:
    """The manifest with `read` set: a tensor is read if any of its names is."""
    parameters = tuple(
        dataclasses.replace(p, read=not reads.parameters.isdisjoint(p.names)) for p in manifest.parameters
    )
    buffers = manifest.buffers
    if reads.buffers is not None:
        buffers = tuple(dataclasses.replace(b, read=not reads.buffers.isdisjoint(b.names)) for b in buffers)
    return dataclasses.replace(manifest, parameters=parameters, buffers=buffers, trace=reads.trace)


def _group_ties(named: Iterable[tuple[str, torch.Tensor]]) -> tuple[_Tied, ...]:
    """Tensors in order of their first name. Tied: the same object, or views of one storage that lie alike."""
    groups: dict[tuple[object, ...], list[tuple[str, torch.Tensor]]] = {}
    for name, tensor in named:
        groups.setdefault(_identity(tensor), []).append((name, tensor))
    return tuple(_Tied(tuple(name for name, _ in group), group[0][1]) for group in groups.values())


def _identity(tensor: torch.Tensor) -> tuple[object, ...]:
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # tensor subclasses without a storage of their own
        return (id(tensor),)
    if tensor.numel() == 0:
        return (id(tensor),)
    # The storage object is compared, not its address: on the meta device all addresses are 0.
    layout = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
    return (storage._cdata, *layout)


def _counter(progress: Progress | None, total: int) -> Callable[[_T], _T]:
    done = 0

    def step(described: _T) -> _T:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)
        return described

    return step


_TABLE_ROWS = 4096
"""Rows up to which a table's are described one by one: 8 bytes each in the manifest."""


def _tables(model: nn.Module) -> set[int]:
    """Identities of the parameters that an export may cut or gather: embeddings, and what is no `weight` of a layer."""
    return {
        id(parameter)
        for module in model.modules()
        for leaf, parameter in module.named_parameters(recurse=False)
        if isinstance(module, nn.Embedding) or leaf != "weight"
    }


def _row_digests(tensor: torch.Tensor) -> str | None:
    if tensor.ndim < 2 or not tensor.numel() or not _has_data(tensor) or _dtype(tensor) is DType.UNDEFINED:
        return None
    rows = tensor.numel() // tensor.shape[-1]
    return encode_values(row_digests(_array(tensor))) if rows <= _TABLE_ROWS else None


def _parameter(tied: _Tied, has_batch_norm: bool, is_table: bool) -> Parameter:
    tensor = tied.tensor
    projections = norms = None
    if has_batch_norm and tensor.ndim >= 3 and tensor.numel() and _has_data(tensor):
        values = channel_statistics(tensor.detach().double().cpu().numpy())
        projections, norms = (encode_values(v) for v in values)
    return Parameter(
        name=tied.names[0],
        shape=tuple(tensor.shape),
        dtype=_dtype(tensor),
        trainable=tensor.requires_grad,
        tied=tied.names[1:],
        content=_content(tensor),
        channel_projections=projections,
        channel_norms=norms,
        row_digests=_row_digests(tensor) if is_table else None,
    )


def _buffer(tied: _Tied, model: nn.Module) -> Buffer:
    return Buffer(
        name=tied.names[0],
        shape=tuple(tied.tensor.shape),
        dtype=_dtype(tied.tensor),
        persistent=any(_is_persistent(model, name) for name in tied.names),
        tied=tied.names[1:],
        content=_content(tied.tensor),
    )


def _is_persistent(model: nn.Module, name: str) -> bool:
    owner, _, leaf = name.rpartition(".")
    return leaf not in model.get_submodule(owner)._non_persistent_buffers_set


def _dtype(tensor: torch.Tensor) -> DType:
    return _DTYPES.get(tensor.dtype, DType.UNDEFINED)


def _has_data(tensor: torch.Tensor) -> bool:
    return tensor.device.type != "meta"


def _array(tensor: torch.Tensor) -> Array:
    """The tensor's bytes as numpy, without a copy where it lies in CPU memory."""
    plain = tensor.detach().cpu()
    if plain.dtype in _AS_INTEGERS:
        plain = plain.contiguous().view(_AS_INTEGERS[plain.dtype])
    return plain.numpy()


def _content(tensor: torch.Tensor) -> Content | None:
    if not _has_data(tensor) or _dtype(tensor) is DType.UNDEFINED:
        return None
    array = _array(tensor)
    return Content(
        digest=digest(array),
        digest_transposed=digest_transposed(array) if array.ndim == 2 else None,
        constant_filled=is_constant_filled(array),
        samples=encode_values(sample(array)),
    )


def _batch_norms(model: nn.Module) -> Iterator[BatchNorm]:
    for name, module in model.named_modules():
        if is_batch_norm(module):
            yield BatchNorm(
                module=name,
                # Frozen BatchNorms write 1e-5 into their forward and have no attribute for it.
                eps=float(getattr(module, "eps", 1e-5)),
                weight=_tensor_name(name, module, "weight"),
                bias=_tensor_name(name, module, "bias"),
                running_mean=_tensor_name(name, module, "running_mean"),
                running_var=_tensor_name(name, module, "running_var"),
            )


def _tensor_name(module_name: str, module: nn.Module, attribute: str) -> str | None:
    if not isinstance(getattr(module, attribute, None), torch.Tensor):
        return None
    return f"{module_name}.{attribute}" if module_name else attribute


def _whole_values(model: nn.Module) -> dict[str, str]:
    """Whole vectors that folding a BatchNorm combines: its own four, and the biases it is added to."""
    values: dict[str, str] = {}
    for name, module in model.named_modules():
        wanted: tuple[str, ...] = ()
        if is_batch_norm(module):
            wanted = ("weight", "bias", "running_mean", "running_var")
        elif isinstance(module, (_ConvNd, nn.Linear)):
            wanted = ("bias",)
        for attribute in wanted:
            full_name = _tensor_name(name, module, attribute)
            tensor = getattr(module, attribute, None)
            if full_name and isinstance(tensor, torch.Tensor) and tensor.ndim == 1 and _has_data(tensor):
                values[full_name] = encode_values(_array(tensor))
    return values
