"""Tensors in memory -> their types by ONNX's names, and their values as numpy views."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from analyzer.content import Array
from analyzer.dtypes import DType

__all__ = ["AS_INTEGERS", "TORCH_DTYPES", "TensorWeights", "named_tensors", "weights_of"]

TORCH_DTYPES: Mapping[torch.dtype, DType] = {
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
    torch.float8_e8m0fnu: DType.FLOAT8E8M0,
}

AS_INTEGERS = {
    torch.bfloat16: torch.int16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
    torch.float8_e8m0fnu: torch.uint8,
}
"""What torch can hand to numpy only as the integers of the same bytes."""


@dataclass(frozen=True, slots=True)
class TensorWeights:
    """The values of tensors by name, as views; of those on the meta device there are none."""

    tensors: Mapping[str, torch.Tensor]

    def array(self, name: str) -> Array | None:
        """As `analyzer.checkpoints.weights.Weights.array` says."""
        tensor = self.tensors.get(name)
        if tensor is None or tensor.device.type == "meta" or tensor.layout is not torch.strided:
            return None
        element = TORCH_DTYPES.get(tensor.dtype, DType.UNDEFINED).to_numpy()
        if element is None:
            return None
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        integers = AS_INTEGERS.get(plain.dtype)
        array = plain.numpy() if integers is None else plain.view(integers).numpy().view(element)
        return array.astype(element, copy=False)


def named_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by each of their names."""
    return {
        **dict(model.named_buffers(remove_duplicate=False)),
        **dict(model.named_parameters(remove_duplicate=False)),
    }


def weights_of(model: nn.Module, without: Collection[str] = ()) -> TensorWeights | None:
    """The values of a module, less those of the names in `without`; None where all of it is on the meta device."""
    tensors = {name: tensor for name, tensor in named_tensors(model).items() if name not in without}
    if all(tensor.device.type == "meta" for tensor in tensors.values()):
        return None
    return TensorWeights(tensors)
