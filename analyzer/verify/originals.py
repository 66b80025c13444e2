"""Ledger and PyTorch's side -> the verdict of `reconcile`: the account of the weights, settled by PyTorch's program.

The program is in the manifest of an export, or traced if PyTorch's class is available. That takes seconds, so it is
done only where the account alone is not sufficient.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from analyzer.reconciliation import Reconciliation, reconcile_ledger
from analyzer.verify.proved import is_comparable_with_program, settle_by_program

if TYPE_CHECKING:
    from analyzer.account.ledger import Ledger
    from analyzer.checkpoints import Original
    from analyzer.model.content import ContentMode


class Progress(Protocol):
    """Receiver of messages and progress, such as a command's run."""

    def notify(self, message: str) -> None:
        """Show a message."""
        ...

    def progress(self, title: str) -> AbstractContextManager[Callable[[int, int], None] | None]:
        """Return a context with a (done, total) callback, or None if nothing is shown."""
        ...


class _Silent:
    """Receiver that shows nothing."""

    def notify(self, message: str) -> None:
        """Discard a message."""

    def progress(self, title: str) -> AbstractContextManager[None]:
        return nullcontext()


SILENT = _Silent()


def judge_original(
    ledger: Ledger, original: Original, content: ContentMode | None = None, shown: Progress = SILENT
) -> Reconciliation:
    """Return the verdict of `reconcile`: the account, settled by PyTorch's program if there is one.

    Args:
        ledger: the file.
        original: PyTorch's side.
        content: amount of values that are compared; None compares all values of local checkpoints.
        shown: receiver of messages and progress.

    Raises:
        UsageError: contents are to be compared and PyTorch's side has none.
        LedgerError: the bridge does not lead from one side to the other, a defect of onnxledger.
    """
    return settle_original(reconcile_original(ledger, original, content, shown), original, shown)


def reconcile_original(
    ledger: Ledger, original: Original, content: ContentMode | None = None, shown: Progress = SILENT
) -> Reconciliation:
    """Return the account of a ledger beside PyTorch's side, without a comparison of the programs.

    If it does not balance, contents were compared and PyTorch's class is available, the class is traced, and the values
    that its program computes explain the file's too. Arguments are those of `judge_original`.

    Raises:
        UsageError: contents are to be compared and PyTorch's side has none.
        LedgerError: the bridge does not lead from one side to the other, a defect of onnxledger.
    """
    with shown.progress("comparing contents") as tick:
        result = reconcile_ledger(ledger, original.manifest, content, weights=original.weights, progress=tick)
    if result.balanced or original.trace is None or result.content == "none":
        return result
    shown.notify("tracing PyTorch's program")
    manifest = original.trace(original.manifest, ledger.model.fixed_inputs, ledger.model.salt)
    for note in () if manifest.program is None else manifest.program.notes:
        shown.notify(f"PyTorch's program: {note}")
    if manifest.trace is None and (manifest.program is None or not manifest.program.values):
        return result
    with shown.progress("comparing contents") as tick:
        return reconcile_ledger(ledger, manifest, content, weights=original.weights, progress=tick)


def settle_original(result: Reconciliation, original: Original, shown: Progress = SILENT) -> Reconciliation:
    """Return the reconciliation, settled by PyTorch's program if there is one.

    A manifest may have the program. A class is traced if the place of some parameter was not checked, if the model
    computes a parameter's value before storing or using it, or if a layer computes differently from the others.

    Raises:
        UsageError: contents are to be compared and PyTorch's side has none.
        LedgerError: the bridge does not lead from one side to the other, a defect of onnxledger.
    """
    ledger = result.ledger
    is_computed = any(piece.computed for parameter in result.parameters for piece in parameter.pieces)
    is_odd = any(finding.id in ("changed-alike", "odd-layer") for finding in result.findings)
    is_open = result.balanced and (is_computed or is_odd or result.checked_places < len(result.parameters))
    if (
        original.trace is not None
        and is_open
        and not result.manifest.calls
        and is_comparable_with_program(result)
    ):
        shown.notify("tracing PyTorch's program")
        manifest = original.trace(result.manifest, ledger.model.fixed_inputs, ledger.model.salt)
        if manifest.calls:
            with shown.progress("comparing contents") as tick:
                result = reconcile_ledger(
                    ledger, manifest, result.content, weights=original.weights, progress=tick
                )
    return settle_by_program(result, original.weights)
