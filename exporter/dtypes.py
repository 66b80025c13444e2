"""PyTorch's types of elements -> ONNX's."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from analyzer.model.dtypes import DType

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

AS_INTEGERS: Mapping[torch.dtype, torch.dtype] = {
    torch.bfloat16: torch.int16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
    torch.float8_e8m0fnu: torch.uint8,
}
"""Types that torch can pass to numpy only as integers of the same bytes."""


def dtype_of(tensor: torch.Tensor) -> DType:
    """Return ONNX's type of a tensor's elements; UNDEFINED if it has none."""
    return TORCH_DTYPES.get(tensor.dtype, DType.UNDEFINED)
