"""State dict recovered from a cell's file -> whether it is the checkpoint, exactly or as near as codes allow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from analyzer import Reconciliation, Recovery
    from analyzer.model.content import Array
    from analyzer.recover import StateTensor

__all__ = ["RecoveryCheck", "check_recovery"]

_HALF = 6.0e-8
"""Smallest float16, to which a converter clamps."""


@dataclass(frozen=True, slots=True)
class RecoveryCheck:
    """Comparison of a recovered state dict with the checkpoint."""

    exact: int
    """Number of tensors that equal the checkpoint's bit by bit."""
    near: int
    """Number of tensors that differ by no more than the file's precision: a quantization step, a rounding."""
    wrong: tuple[str, ...]
    """Names of tensors that are neither, or not in the checkpoint, or neither recovered nor reported lost."""
    lost: tuple[str, ...]
    """Names of tensors that the report lists as lost."""
    is_whole: bool
    """Whether nothing was lost, and no learned tensor of the file was left over."""


def check_recovery(result: Reconciliation, checkpoint: Path) -> RecoveryCheck:
    """Recover the state dict from a reconciled file, and compare it with the checkpoint whose export it is."""
    from safetensors.numpy import load_file

    from analyzer import recover_state

    recovery, saved = recover_state(result), load_file(checkpoint)
    exact, near, wrong = 0, 0, []
    for tensor in recovery.tensors:
        original = saved.pop(tensor.name, None)
        if original is None or original.shape != tensor.shape or original.dtype != tensor.dtype.to_numpy():
            wrong.append(tensor.name)
            continue
        values = _values(recovery, tensor)
        if values.tobytes() == original.tobytes():
            exact += 1
        elif tensor.loss is not None and _is_near(recovery, tensor, values, original):
            near += 1
        else:
            wrong.append(tensor.name)
    lost = tuple(lost.name for lost in recovery.lost)
    wrong += sorted(saved.keys() - {*lost})
    return RecoveryCheck(exact, near, tuple(wrong), lost, recovery.is_whole)


def _values(recovery: Recovery, tensor: StateTensor) -> Array:
    element = tensor.dtype.to_numpy()
    assert element is not None
    parts: list[Any] = [np.empty(0, element), *recovery.values(tensor.name)]
    return np.concatenate(parts).reshape(tensor.shape)


def _is_near(recovery: Recovery, tensor: StateTensor, values: Array, original: Array) -> bool:
    recovered, expected = values.astype(np.float64), original.astype(np.float64)
    return bool((np.abs(recovered - expected) <= _tolerance(recovery, tensor, expected)).all())


def _tolerance(
    recovery: Recovery, tensor: StateTensor, original: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the tolerance of each element: the largest step of its codes, or the rounding of its type."""
    from analyzer.account.decoding.encodings import find_encoding
    from analyzer.model.dtypes import DType

    ledger = recovery.reconciliation.ledger
    stored = {entry.tensor.key: entry.tensor for entry in ledger.entries}
    tolerance = np.zeros_like(original)
    for piece in tensor.pieces:
        encoded = find_encoding(stored[piece.key], ledger.wiring)
        if encoded is not None:
            steps = max(float(steps.max(initial=0.0)) for _, steps in encoded.bands())
            tolerance = np.maximum(tolerance, steps * 1.001 + 1e-9)
        elif stored[piece.key].dtype is DType.FLOAT16:
            # the file rounds 1 + w, and not w
            sizes = np.abs(original) + (
                1.0 if piece.computed is not None and piece.computed.rule == "1+w" else 0.0
            )
            tolerance = np.maximum(tolerance, sizes * 2.0**-11 + _HALF)
        else:
            tolerance = np.maximum(tolerance, (np.abs(original) + 1.0) * 2.0**-23)
    return tolerance
