"""Reconciliation -> the PyTorch state dict that the file holds: tensors that it gives back, and lost ones with reasons.

This runs the bridge backwards. PyTorch's side gives names, shapes, types and ties; every value comes from the file.
Tensors that the file does not hold are listed, never made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from analyzer.account.ledger import Role
from analyzer.checkpoints.statefile import FileTensor, write_state_file
from analyzer.model import Key
from analyzer.model.content import Array
from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.lines import Line
from analyzer.recover.judging import Judge
from analyzer.recover.restoring import Lost, Recovery, Restorer, StateTensor, Unnamed

__all__ = ["Lost", "Recovery", "StateTensor", "Unnamed", "recover_state", "save_state"]


def recover_state(result: Reconciliation, refused: Mapping[Key, str] | None = None) -> Recovery:
    """Decide for each tensor of the state dict whether the file gives it back. Few values are read, none is made up.

    Args:
        result: reconciliation of the file with PyTorch's side, under any content mode.
        refused: reasons, where they are known, why stored tensors have no PyTorch name.
    """
    judge = Judge(result)
    pairs = zip(result.manifest.parameters, result.parameters, strict=True)
    judged = [*(judge.judge(*pair) for pair in pairs), *judge.buffers()]
    return Recovery(
        reconciliation=result,
        tensors=tuple(found for found in judged if isinstance(found, StateTensor)),
        lost=tuple(found for found in judged if isinstance(found, Lost)),
        unnamed=tuple(_unnamed(result, refused or {})),
    )


def save_state(
    recovery: Recovery, path: Path | str, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write recovered tensors as a safetensors file; a tied tensor is written once, under its first name.

    Args:
        recovery: result of `recover_state`.
        path: the file, which appears whole or not at all.
        progress: called with (done, total) in bytes.

    Raises:
        UsageError: the file cannot be written.
        ModelReadError: the model file cannot be read any more.
        LedgerError: the written file differs from the recovered tensors, a defect of onnxledger.
    """
    restorer = Restorer(recovery.reconciliation.ledger)
    tensors = {tensor.name: tensor for tensor in recovery.tensors}
    slots = [FileTensor(tensor.name, tensor.dtype, tensor.shape) for tensor in recovery.tensors]

    def values(slot: FileTensor) -> Iterator[Array]:
        return restorer.values(slot.shape, slot.dtype, tensors[slot.name].pieces)

    write_state_file(Path(path), slots, values, recovery.ties, progress)


def _unnamed(result: Reconciliation, refused: Mapping[Key, str]) -> Iterator[Unnamed]:
    opaque = {*result.ledger.opaque} if result.manifest.source.get("kind") == "own-names" else set()
    for entry, line in zip(result.ledger.entries, result.entries, strict=True):
        if line.line in (Line.UNEXPECTED, Line.UNEXPLAINED):
            if entry.role is Role.BUFFER:
                continue
            reason = refused.get(line.key, "the PyTorch tensor that it comes from is unknown")
        elif line.key in opaque and entry.tensor.dtype.is_floating:
            reason = "it takes part in the computation, and may be computed from learned tensors"
        else:
            continue
        yield Unnamed(line.key, entry.tensor.shape, entry.tensor.dtype, line.line, reason)
