"""Computed values against those of a reference: ONNX's own cases, or onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np

from analyzer.model import StoredTensor


class AsStored:
    """Stored tensors that stand for themselves, not for PyTorch's."""

    def of(self, tensor: StoredTensor) -> Any:
        """Return the numbers of a tensor."""
        return tensor.payload.array()

    def factor(self, number: float) -> None:
        """No fusion took a number from a weight."""


def are_alike(found: Any, expected: Any) -> bool:
    """Whether integers are equal, and real numbers nearly: some cases are of half precision."""
    if found.shape != expected.shape:
        return False
    if expected.dtype.kind in "fcV":  # the last are types that numpy itself has not, such as bfloat16
        return np.allclose(found.astype("f8"), expected.astype("f8"), 1e-2, 1e-3, equal_nan=True)
    return bool((found == expected).all())
